"""StoryLM in PyTorch: the shortest complete statement of the model and of the course's recipe.

Written for scripts/interop, which holds the program against it: same weights, same logits; same batches, same losses.
Tensors carry the names of the program's checkpoints; W is stored [in, out], so y = x @ W + b.
"""

import math

import torch
import torch.nn.functional as F


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps=1e-5)


def linear(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def heads(x, n):  # [B, T, D] -> [B, H, T, D/H]: a head is a contiguous block of columns
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def softmax_attention(q, k, v):
    t = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1) @ v


def linear_attention(q, k, v, gamma, eps):
    """S_t = gamma S_{t-1} + phi(k_t)^T v_t, z_t = gamma z_{t-1} + phi(k_t), o_t = phi(q_t) S_t / (phi(q_t) z_t + eps)
    over all tokens at once: weights gamma^(t-i) phi(q_t) phi(k_i), i <= t."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    t = torch.arange(q.shape[-2])
    age = (t[:, None] - t[None, :]).clamp(min=0)
    weights = (q @ k.transpose(-1, -2)) * gamma[:, None, None] ** age
    weights = weights.tril()
    return weights @ v / (weights.sum(-1, keepdim=True) + eps)


def mixer(w, name, kind, x, config):
    q, k, v = (heads(linear(w, f"{name}.{m}", x), config["heads"]) for m in "qkv")
    if kind == "full":
        o = softmax_attention(q, k, v)
    else:
        o = linear_attention(q, k, v, w[name + ".gamma_logit"].sigmoid(), config["linear_eps"])
    return linear(w, name + ".out", o.transpose(1, 2).flatten(-2))


def logits(w, config, tokens):
    """tokens [B, T] -> [B, T, V]"""
    x = w["tok.weight"][tokens] + w["pos.weight"][: tokens.shape[1]]
    for i, kind in enumerate(config["pattern"]):
        block = f"blocks.{i}"
        x = x + mixer(w, block + ".mixer", kind, layer_norm(w, block + ".norm1", x), config)
        hidden = F.gelu(linear(w, block + ".mlp.fc1", layer_norm(w, block + ".norm2", x)))
        x = x + linear(w, block + ".mlp.fc2", hidden)
    return layer_norm(w, "norm", x) @ w["tok.weight"].T + w["head.bias"]


def learning_rate(recipe, step):
    if step < recipe["warmup"]:
        return recipe["lr"] * (step + 1) / recipe["warmup"]
    if step >= recipe["steps"]:
        return recipe["min_lr"]
    progress = (step - recipe["warmup"]) / (recipe["steps"] - recipe["warmup"])
    return recipe["min_lr"] + 0.5 * (1 + math.cos(math.pi * progress)) * (recipe["lr"] - recipe["min_lr"])


def train(w, config, recipe, batches):
    """Trains the weights in place on batches of (tokens, targets), [B, T] each, and yields the losses."""
    decays = [p for p in w.values() if recipe["decay_all"] or p.dim() == 2]
    others = [p for p in w.values() if not (recipe["decay_all"] or p.dim() == 2)]
    groups = [{"params": decays, "weight_decay": recipe["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizer = torch.optim.AdamW(groups, betas=(recipe["beta1"], recipe["beta2"]), eps=recipe["eps"])
    for step, (tokens, targets) in enumerate(batches):
        loss = F.cross_entropy(logits(w, config, tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if recipe["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(w.values(), recipe["clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimizer.step()
        yield loss.item()
