#!/usr/bin/env bash
# B132: installs what a build folder holds, to a folder with a space and umlauts in its name, and uses the library from
# a second project by its pkg-config file alone. Usage: install_test.sh BUILD
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
destination="$work/Größe und mehr"

meson install -C "$build" --no-rebuild --destdir "$destination" >"$work/log" 2>&1 || {
  cat "$work/log"
  exit 1
}
pc=$(find "$destination" -name storytape.pc)
[[ -f $pc ]] || {
  echo "no storytape.pc was installed"
  exit 1
}
program=$(find "$destination" -path '*/bin/storytape')
"$program" --version | grep -q -i storytape

# The prefix as it lies now, as if it had been installed there. A link, since pkg-config's users split at spaces.
ln -s "$destination" "$work/root"
prefix=$work/root$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
flags() { pkg-config --define-variable=prefix="$prefix" "$@" storytape; }

# Every installed header can be included, alone from the installed folder.
include=$prefix/include/storytape
(cd "$include" && find . -name '*.h' ! -name '*-inl.h' | sort | sed 's|^\./\(.*\)|#include "\1"|') >"$work/all.cc"
[[ $(wc -l <"$work/all.cc") -gt 30 ]] || {
  echo "only these headers were installed:"
  cat "$work/all.cc"
  exit 1
}
# shellcheck disable=SC2046  # flags are words
${CXX:-c++} -std=c++20 -fsyntax-only $(flags --cflags) "$work/all.cc"

# shellcheck disable=SC2046
${CXX:-c++} -std=c++20 "$here/install_consumer/main.cc" -o "$work/consumer" $(flags --cflags --libs)
said=$("$work/consumer")
[[ $said == "14: 2 4 6" ]] || {
  echo "the consumer says '$said', wanted '14: 2 4 6'"
  exit 1
}
