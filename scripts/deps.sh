#!/usr/bin/env bash
# Installs, by apt, what is missing of the packages for a purpose: deps.sh build|test|lint...
# Without root or sudo it names them and exits 77.
set -euo pipefail

build="gcc meson ninja-build pkg-config libc6-dev libmnl-dev libnl-3-dev libnl-route-3-dev libinih-dev libjansson-dev
       zlib1g-dev libsystemd-dev libcmocka-dev"
test="python3 python3-venv iproute2 iperf3 python3-matplotlib"
lint="clang clang-format clang-tidy cppcheck libclang-rt-14-dev"
bench="iperf3 iproute2"

packages=""
for purpose in "$@"; do
  case $purpose in
    build | test | lint | bench) packages+=" ${!purpose}" ;;
    *) echo "deps.sh: \"$purpose\" is not allowed, allowed: build test lint bench" >&2; exit 2 ;;
  esac
done

missing=()
for package in $packages; do
  [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

become=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null && [[ ! -t 0 ]]; then
    echo "missing packages, and neither root nor sudo to install them: apt-get install ${missing[*]}" >&2
    exit 77
  fi
  become=(sudo)
fi
echo "installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${become[@]}" apt-get update && DEBIAN_FRONTEND=noninteractive "${become[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  exit 1
fi
