#!/usr/bin/env bash
# Tests of scripts/get-tinystories against files of this machine. Ends with 0 if all of them passed.
set -u
script=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)/scripts/get-tinystories
work=$(mktemp -d)
server=
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null
  rm -rf -- "$work"
}
trap cleanup EXIT
failed=0

fail() {
  echo "FAILED: $name: $1"
  sed 's/^/    /' "$work/log"
  failed=$((failed + 1))
}
# run ARGUMENTS: output to $work/log, exit code to $code.
run() {
  code=0
  bash "$script" "$@" >"$work/log" 2>&1 || code=$?
}
want_code() { [[ $code == "$1" ]] || fail "exit code $code, wanted $1"; }
want_said() { grep -q -F -e "$1" "$work/log" || fail "did not say '$1'"; }
want_same() { cmp -s -- "$1" "$2" || fail "$1 differs from $2"; }
want_none() { [[ ! -e $1 ]] || fail "$1 exists"; }

if ! command -v curl >/dev/null; then
  echo "skipped: curl is missing"
  exit 77
fi

source=$work/source
mkdir "$source"
for i in $(seq 1 4000); do
  printf 'Once upon a time, there was a girl named Lily. She had %d caf\303\251s.\n<|endoftext|>\n' "$i"
done >"$source/TinyStories-train.txt"
head -n 100 "$source/TinyStories-train.txt" >"$source/TinyStories-valid.txt"
head -c 50000 "$source/TinyStories-train.txt" >"$work/tier"
export STORYTAPE_TINYSTORIES_URL=file://$source/

name="a tier is the first bytes of the training text"
run --bytes 50000 --to "$work/tier-run"
want_code 0
want_same "$work/tier" "$work/tier-run/TinyStories-train-50000B.txt"
want_same "$source/TinyStories-valid.txt" "$work/tier-run/TinyStories-valid.txt"
want_none "$work/tier-run/TinyStories-train-50000B.txt.part"

name="what is there is not fetched again"
echo "my own" >"$work/tier-run/TinyStories-valid.txt"
run --bytes 50000 --to "$work/tier-run"
want_code 0
want_said "is there already"
grep -q "my own" "$work/tier-run/TinyStories-valid.txt" || fail "a file was replaced"

name="the full set"
run --full --to "$work/full"
want_code 0
want_same "$source/TinyStories-train.txt" "$work/full/TinyStories-train.txt"

name="a stopped download goes on, tier and full"
mkdir "$work/resume"
head -c 12345 "$work/tier" >"$work/resume/TinyStories-train-50000B.txt.part"
head -c 999 "$source/TinyStories-train.txt" >"$work/resume/TinyStories-train.txt.part"
run --bytes 50000 --to "$work/resume"
want_code 0
want_said "at byte 12345"
want_same "$work/tier" "$work/resume/TinyStories-train-50000B.txt"
run --full --to "$work/resume"
want_code 0
want_said "at byte 999"
want_same "$source/TinyStories-train.txt" "$work/resume/TinyStories-train.txt"

name="a download that was whole but unnamed is finished"
rm "$work/resume/"*.txt
cp "$work/tier" "$work/resume/TinyStories-train-50000B.txt.part"
cp "$source/TinyStories-train.txt" "$work/resume/TinyStories-train.txt.part"
run --bytes 50000 --to "$work/resume"
want_code 0
want_same "$work/tier" "$work/resume/TinyStories-train-50000B.txt"
run --full --to "$work/resume"
want_code 0
want_same "$source/TinyStories-train.txt" "$work/resume/TinyStories-train.txt"

name="a source that is too small is refused, and nothing takes the final name"
run --to "$work/small"
want_code 1
want_said "wanted 100000000"
want_none "$work/small/TinyStories-train-100MB.txt"

name="a missing source is refused"
STORYTAPE_TINYSTORIES_URL=file://$work/nowhere run --bytes 50000 --to "$work/missing"
want_code 1
want_said "cannot fetch file://$work/nowhere/TinyStories-train.txt"
want_none "$work/missing/TinyStories-train-50000B.txt"
want_none "$work/missing/TinyStories-train-50000B.txt.part"

name="what is no TinyStories is refused and removed"
mkdir "$work/odd"
yes "<html>Please log in</html>" | head -c 60000 >"$work/odd/TinyStories-train.txt"
STORYTAPE_TINYSTORIES_URL=file://$work/odd run --bytes 50000 --to "$work/refused"
want_code 1
want_said "no <|endoftext|>"
head -c 60000 /dev/zero >"$work/odd/TinyStories-train.txt"
STORYTAPE_TINYSTORIES_URL=file://$work/odd run --bytes 50000 --to "$work/refused"
want_code 1
want_said "NUL bytes"
yes $'\377\376\377 <|endoftext|>' | head -c 60000 >"$work/odd/TinyStories-train.txt"
STORYTAPE_TINYSTORIES_URL=file://$work/odd run --bytes 50000 --to "$work/refused"
want_code 1
if command -v iconv >/dev/null; then want_said "no UTF-8"; fi
want_none "$work/refused/TinyStories-train-50000B.txt"
want_none "$work/refused/TinyStories-train-50000B.txt.part"

name="wrong usage exits 2"
for arguments in "--bytes" "--bytes 0" "--bytes -5" "--bytes ten" "--full --bytes 5" "--fast" "--to"; do
  # shellcheck disable=SC2086
  run $arguments
  want_code 2
done
run --help
want_code 0
want_said "usage:"

name="a folder that can't be made is refused"
run --bytes 50000 --to "$work/tier/inside"
want_code 1
want_said "cannot make the folder"

# A server that knows ranges or, under /plain, does not, and that breaks off every reply after 200,000 bytes.
cat >"$work/server.py" <<'END'
import http.server, re, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            data = open(sys.argv[1] + "/" + self.path.rsplit("/", 1)[1], "rb").read()
        except OSError:
            return self.send_error(404)
        wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = 0, len(data) - 1
        if wanted and not self.path.startswith("/plain"):
            first = int(wanted[1])
            last = min(last, int(wanted[2] or last))
            if first > last:
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(data[first:last + 1][:200000])
        self.close_connection = True

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END
if command -v python3 >/dev/null; then
  python3 "$work/server.py" "$source" >"$work/port" &
  server=$!
  for _ in $(seq 1 100); do
    [[ ! -s $work/port ]] || break
    sleep 0.1
  done
  export no_proxy=127.0.0.1 STORYTAPE_TINYSTORIES_URL=http://127.0.0.1:$(cat "$work/port")

  name="a broken connection is taken up again, tier and full"
  head -c 310000 "$source/TinyStories-train.txt" >"$work/larger-tier"
  run --bytes 310000 --to "$work/http"
  want_code 0
  want_said "at byte 200000"
  want_same "$work/larger-tier" "$work/http/TinyStories-train-310000B.txt"
  run --full --to "$work/http"
  want_code 0
  want_same "$source/TinyStories-train.txt" "$work/http/TinyStories-train.txt"

  name="a download that was whole but unnamed is finished over http"
  mv "$work/http/TinyStories-train.txt" "$work/http/TinyStories-train.txt.part"
  mv "$work/http/TinyStories-train-310000B.txt" "$work/http/TinyStories-train-310000B.txt.part"
  run --full --to "$work/http"
  want_code 0
  want_same "$source/TinyStories-train.txt" "$work/http/TinyStories-train.txt"
  run --bytes 310000 --to "$work/http"
  want_code 0
  want_same "$work/larger-tier" "$work/http/TinyStories-train-310000B.txt"

  name="a missing file of a server is an error"
  mv "$source/TinyStories-valid.txt" "$work/valid"
  run --bytes 50000 --to "$work/http-missing"
  want_code 1
  want_said "404"
  want_none "$work/http-missing/TinyStories-valid.txt"
  mv "$work/valid" "$source/TinyStories-valid.txt"

  name="a source without ranges starts again"
  mkdir "$work/plain"
  head -c 12345 "$work/tier" >"$work/plain/TinyStories-train-50000B.txt.part"
  STORYTAPE_TINYSTORIES_URL=$STORYTAPE_TINYSTORIES_URL/plain run --bytes 50000 --to "$work/plain"
  want_code 0
  want_said "from its start"
  want_same "$work/tier" "$work/plain/TinyStories-train-50000B.txt"
fi

if ((failed > 0)); then
  echo "$failed checks failed"
  exit 1
fi
echo "get-tinystories: all checks passed"
