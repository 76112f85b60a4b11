"""The checks of scripts/interop, one line each; exit 1 if one fails."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import safetensors
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import storylm

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 50
failures = 0


def check(name, ok, figure):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'}  {name}: {figure}", flush=True)


def program(*arguments, text=None):
    command = [str(a) for a in (options.program, "--json", *arguments)]
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if result.returncode != 0:
        sys.exit(f"interop: {' '.join(command)}: exit {result.returncode}: {result.stderr.decode()}")
    return json.loads(result.stdout)


def check_tokenizer(run):
    text = options.valid.read_bytes()
    theirs = Tokenizer.from_file(str(run / "tokenizer.json")).encode(text.decode(), add_special_tokens=False).ids
    ids = program("tokenizer", "encode", "--tokenizer", run, "--specials", text=text)["ids"]
    same = ids == theirs
    check("tokenizers gives the same ids on the held-out text", same, f"{len(ids):,} ids")


def check_logits(run, config, weights):
    program("eval", run, options.valid, "--context", config["max_seq"], "--windows", 1, "--logits", run / "logits.safetensors")
    dump = load_file(run / "logits.safetensors")
    with torch.no_grad():
        theirs = storylm.logits(weights, config, dump["tokens"].long()[None])[0]
    worst = (theirs - dump["logits"]).abs().max().item()
    check("PyTorch's logits from our weights", worst < 1e-4, f"largest difference {worst:.1e} (allowed 1e-4)")


def check_training(run, config, recipe, weights):
    """Our step-0 checkpoint and batches, PyTorch's training; ours goes on in the same run."""
    program("data", "batches", run, "--steps", STEPS, "--out", run / "batches.safetensors")
    batches = load_file(run / "batches.safetensors")
    pairs = [(batches["tokens"][i].long(), batches["targets"][i].long()) for i in range(STEPS)]
    for p in weights.values():
        p.requires_grad_(True)
    theirs = list(storylm.train(weights, config, recipe, pairs))
    program("train", "--resume", "--out", run, "--stop-after", STEPS)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ours = [row["loss"] for row in rows]
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    check(f"losses over {STEPS} steps", worst < 1e-3,
          f"largest difference {worst:.1e} (allowed 1e-3), {ours[0]:.4f} -> {ours[-1]:.4f}")


def check_writing_back(run, folder, weights):
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    save_file({name: p.detach().contiguous() for name, p in weights.items()}, folder / "checkpoints" / f"step-{STEPS}.safetensors")
    told = program("generate", folder, "--tokens", 20, "--temperature", 0)
    ours = program("generate", run, "--tokens", 20, "--temperature", 0)
    loss, reference = (program("eval", f, options.valid, "--windows", 8)["loss"] for f in (folder, run))
    check("weights saved by Python load and generate", told["tokens"] > 0 and abs(loss - reference) < 1e-3,
          f"held-out loss {loss:.4f} (ours {reference:.4f}), text {'the same' if told['text'] == ours['text'] else 'differs'}")


def check_pattern(pattern, folder):
    print(f"pattern {pattern}")
    run = folder / pattern.replace(",", "-")
    program("train", "--out", run, "--recipe", "course", "--pattern", pattern, "--data", options.text, "--valid",
            options.valid, "--log-every", 1, "--eval-every", 0, "--save-every", 1, "--stop-after", 0)
    settings = json.loads((run / "config.json").read_text())
    config, recipe = settings["model"], settings["recipe"]
    with safetensors.safe_open(run / "checkpoints" / "step-0.safetensors", "pt") as file:
        names = [name for name in file.keys() if not name.startswith("optimizer.")]
        weights = {name: file.get_tensor(name) for name in names}
    count = sum(w.numel() for w in weights.values())
    check("safetensors opens our checkpoint", count == program("inspect", run)["params"], f"{len(names)} tensors, {count:,} weights")
    check_logits(run, config, weights)
    check_training(run, config, recipe, weights)
    check_writing_back(run, folder / ("python-" + run.name), weights)
    return run


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "cli" / "storytape")
parser.add_argument("--text", type=pathlib.Path, help="training text (default: the embedded corpus)")
parser.add_argument("--valid", type=pathlib.Path, help="held-out text (default: the embedded corpus)")
options = parser.parse_args()
if not options.program.exists():
    sys.exit(f"interop: {options.program} is missing; build it first (./quickstart)")
torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    if not options.text or not options.valid:
        program("data", "make", "--out", folder / "corpus")
        options.text, options.valid = folder / "corpus" / "train.txt", folder / "corpus" / "valid.txt"
    last = [check_pattern(pattern, folder) for pattern in ("full", "linear", "linear,linear,linear,full")][-1]
    check_tokenizer(last)
print(f"{failures} failed" if failures else "all passed")
sys.exit(failures > 0)
