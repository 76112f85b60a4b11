#!/usr/bin/env bash
# B122: flags that loosen arithmetic are refused when a build is set up. B132: it is set up without the network, in a
# folder with a space and umlauts.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0

for flag in -ffast-math -Ofast -ffinite-math-only; do
  if meson setup "$work/$flag" "$root" -Dtests=false "-Dcpp_args=$flag" >"$work/log" 2>&1; then
    echo "FAILED: $flag was accepted"
    failed=1
  elif ! grep -q 'fast-math' "$work/log"; then
    echo "FAILED: $flag was refused without a word on fast-math:"
    tail -n 5 "$work/log"
    failed=1
  fi
done

copy="$work/Größe und mehr/storytape"
mkdir -p "$copy"
(cd "$root" && tar -cf - --exclude='./build*' --exclude=./.git --exclude=./runs .) | tar -C "$copy" -xf -
if ! meson setup --wrap-mode=nodownload "$copy/build" "$copy" >"$work/log" 2>&1; then
  echo "FAILED: no set-up in '$copy/build':"
  tail -n 5 "$work/log"
  failed=1
elif ! ninja -C "$copy/build" tests/house_tests >"$work/log" 2>&1; then
  echo "FAILED: no build in '$copy/build':"
  tail -n 20 "$work/log"
  failed=1
elif ! "$copy/build/tests/house_tests" "includes point down*" >"$work/log" 2>&1; then
  echo "FAILED: house_tests in '$copy':"
  tail -n 20 "$work/log"
  failed=1
fi
exit $failed
