# shellcheck shell=bash
# What quickstart and check share: what the build needs, found or installed, and the build folders. To be sourced by
# bash.
#
# On Debian and Ubuntu, need_everything installs what is missing (as root, or through sudo) and nothing else; elsewhere
# it names what is missing. Tools that a distribution has too old are put below build-tools/ in the tree.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/build-tools
highway_release=1.2.0
highway_sha256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
highway_prefix=$tools/highway-$highway_release

say() { printf '%s\n' "$*" >&2; }
stop() {
  say "$(basename -- "$0"): $*"
  exit 1
}

# at_least WANTED GOT
at_least() { [[ -n $2 ]] && printf '%s\n' "$1" "$2" | sort -V -C; }

# --- what there is ---------------------------------------------------------------------------------------------------

# Prints "gcc 12" or "clang 14".
compiler_version() {
  printf '#ifdef __clang__\nclang __clang_major__\n#else\ngcc __GNUC__\n#endif\n' |
    $1 -E -P -x c++ - 2>/dev/null | grep -E '^(gcc|clang) '
}

good_compiler() {
  local kind major
  read -r kind major < <(compiler_version "$1") || return 1
  [[ $kind == gcc && $major -ge 12 ]] || [[ $kind == clang && $major -ge 14 ]]
}

# Sets CXX, which Meson takes, unless the user's own will do.
find_compiler() {
  local candidate
  if [[ -n ${CXX:-} ]]; then
    good_compiler "$CXX"
    return
  fi
  for candidate in g++ g++-14 g++-13 g++-12 c++ clang++ clang++-18 clang++-17 clang++-16 clang++-15 clang++-14; do
    if command -v "$candidate" >/dev/null && good_compiler "$candidate"; then
      export CXX=$candidate
      return
    fi
  done
  return 1
}

find_meson() {
  at_least 1.0 "$(meson --version 2>/dev/null)" && return
  [[ -x $tools/meson/bin/meson ]] && export PATH=$tools/meson/bin:$PATH
}

has_command() { command -v "$1" >/dev/null; }
has_library() { pkg-config --exists "$1${2:+ >= $2}" 2>/dev/null; }

has_blis() {
  has_library blis && return
  local probe result=1
  probe=$(mktemp -d) || return 1
  printf '#include <blis.h>\nint main() { return bli_info_get_version_str() == nullptr; }\n' >"$probe/probe.cc"
  ${CXX:-c++} -w "$probe/probe.cc" -o "$probe/probe" -lblis 2>/dev/null && result=0
  rm -rf -- "$probe"
  return $result
}

# Lines of: what | its package on Debian and Ubuntu | the test that it is there. The order matters: the tests of
# libraries need the compiler and pkg-config.
requirements() {
  local compiler=g++
  # The plain g++ of Ubuntu 22.04 is 11.
  [[ $(os_field ID) == ubuntu && $(os_field VERSION_ID) == 22.04 ]] && compiler=g++-12
  cat <<END
GCC 12 or Clang 14, or newer|$compiler|find_compiler
Meson 1.0 or newer|meson|find_meson
Ninja|ninja-build|has_command ninja
pkg-config|pkg-config|has_command pkg-config
Highway 1.0.3 or newer|libhwy-dev|has_library libhwy 1.0.3
BLIS|libblis-serial-dev|has_blis
CLI11|libcli11-dev|has_library CLI11
nlohmann-json|nlohmann-json3-dev|has_library nlohmann_json
fmt|libfmt-dev|has_library fmt
zlib|zlib1g-dev|has_library zlib
Catch2|catch2|has_library catch2
END
  local extra
  for extra; do
    case $extra in
      curl) echo "curl|curl|has_command curl" ;;
      clang)
        echo "Clang|clang|has_command clang++"
        echo "clang-tidy|clang-tidy|has_command clang-tidy"
        echo "clang-format|clang-format|has_command clang-format"
        ;;
    esac
  done
}

# Sets the arrays missing (what) and packages. Arguments: further requirements, see requirements().
find_missing() {
  local what package test
  missing=()
  packages=()
  while IFS='|' read -r -u 3 what package test; do
    if ! $test; then
      missing+=("$what")
      packages+=("$package")
    fi
  done 3< <(requirements "$@")
  return 0
}

# --- what is missing -------------------------------------------------------------------------------------------------

os_field() { (. /etc/os-release 2>/dev/null && printf '%s' "${!1:-}"); }

has_apt() {
  case " $(os_field ID) $(os_field ID_LIKE) " in
    *" debian "* | *" ubuntu "*) has_command apt-get ;;
    *) return 1 ;;
  esac
}

apt_get() {
  local sudo=()
  [[ $(id -u) == 0 ]] || sudo=(sudo)
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" \
    </dev/null >&2
}

apt_install() {
  if [[ $(id -u) != 0 ]] && ! has_command sudo; then
    stop "missing: $*. Install them as root: apt-get install $*"
  fi
  say "Installing $*"
  apt_get update || say "apt-get update failed; going on with the package lists at hand"
  apt_get install -y --no-install-recommends "$@" || stop "apt-get could not install $*"
}

meson_from_pip() {
  say "The Meson packaged here is older than 1.0; putting a newer one into build-tools/ with pip"
  python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
  if ! { python3 -m venv "$tools/meson" && "$tools/meson/bin/python" -m pip install -q 'meson>=1.0' >&2; }; then
    stop "pip could not install Meson 1.0 or newer"
  fi
}

# The Highway of Ubuntu 22.04 is 0.16. Release archives: the project's own, and the same file at Debian's.
highway_from_source() {
  say "The Highway packaged here is older than 1.0.3; building $highway_release into build-tools/"
  local wanted=() tool archive=$tools/highway.tar.gz source=$tools/highway-source url
  for tool in cmake curl; do has_command "$tool" || wanted+=("$tool"); done
  ((${#wanted[@]})) && apt_install "${wanted[@]}" ca-certificates
  mkdir -p "$source"
  for url in "https://github.com/google/highway/archive/refs/tags/$highway_release.tar.gz" \
    "https://deb.debian.org/debian/pool/main/h/highway/highway_$highway_release.orig.tar.gz"; do
    curl -fsSL --retry 2 -m 300 -o "$archive" "$url" || continue
    [[ $(sha256sum <"$archive") == "$highway_sha256"* ]] && break
  done
  [[ -f $archive && $(sha256sum <"$archive") == "$highway_sha256"* ]] ||
    stop "could not fetch Highway $highway_release; install 1.0.3 or newer so that pkg-config finds libhwy"
  if ! {
    tar -xzf "$archive" -C "$source" --strip-components=1 &&
      cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$highway_prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DHWY_ENABLE_TESTS=OFF \
        -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF &&
      cmake --build "$source/build" -j "$(nproc)" && cmake --install "$source/build" &&
      # CMake's pkg-config file has the blanks of a path bare.
      sed -i '/^[a-z]*=/s/ /\\ /g' "$highway_prefix"/lib/pkgconfig/*.pc
  } >"$tools/highway.log" 2>&1; then
    tail -n 20 "$tools/highway.log" >&2
    stop "Highway $highway_release did not build; see build-tools/highway.log"
  fi
  rm -rf -- "$source" "$archive"
}

# Ends with everything there that the build needs, or stops and names it. Arguments: further requirements.
need_everything() {
  [[ -d $highway_prefix ]] && export PKG_CONFIG_PATH=$highway_prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
  find_missing "$@"
  if ((${#missing[@]})) && has_apt; then
    apt_install "${packages[@]}"
    find_missing "$@"
    if printf '%s\n' "${missing[@]}" | grep -q '^Meson'; then meson_from_pip; fi
    if printf '%s\n' "${missing[@]}" | grep -q '^Highway'; then
      highway_from_source
      export PKG_CONFIG_PATH=$highway_prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    fi
    find_missing "$@"
  fi
  if ((${#missing[@]})); then
    say "Missing:"
    local i
    for i in "${!missing[@]}"; do say "  ${missing[i]} (Debian's package: ${packages[i]})"; done
    [[ -z ${CXX:-} ]] || say "The compiler asked for by CXX is $CXX: $(compiler_version "$CXX" || echo "not found")."
    stop "install what is missing with your system's package manager, so that commands are on the PATH and pkg-config finds libraries, and run this again"
  fi
}

# configure FOLDER OPTION...: a build folder of the tree, configured once.
configure() {
  local folder=$1
  shift
  [[ -f $folder/build.ninja ]] && return
  mkdir -p "$(dirname -- "$folder")"
  if ! meson setup "$folder" "$root" "$@" >"$folder.log" 2>&1; then
    tail -n 15 "$folder.log" >&2
    return 1
  fi
  rm -f -- "$folder.log"
}

# build FOLDER [NINJA ARGUMENT...]: on a terminal with Ninja's progress, elsewhere silent unless it fails.
build() {
  local folder=$1 log=$1/build.log
  shift
  if [[ -t 1 ]]; then
    ninja -C "$folder" "$@"
  elif ! ninja -C "$folder" "$@" >"$log" 2>&1; then
    grep -v -E '^\[[0-9]+/[0-9]+\]|^ninja: Entering' "$log" | head -n 80
    return 1
  fi
}
