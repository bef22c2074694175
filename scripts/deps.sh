#!/usr/bin/env bash
# Installs the Debian packages for the given purposes: deps.sh build|test|lint|bench|browser|deploy|package...
# Without root or sudo, it names the missing packages and exits with status 77.
set -euo pipefail

build="gcc meson ninja-build pkg-config libc6-dev libmnl-dev libnl-3-dev libnl-route-3-dev libinih-dev
       libjansson-dev zlib1g-dev libsystemd-dev libmicrohttpd-dev libsodium-dev libncurses-dev libcmocka-dev"
test="python3 python3-h5py python3-ipykernel python3-nbclient python3-numpy python3-venv python3-prometheus-client python3-pyte iproute2 iperf3 python3-matplotlib systemd-container
      curl iputils-ping nftables tcpdump valgrind mmdebstrap tshark zsh"
lint="clang clang-format clang-tidy cppcheck libclang-rt-14-dev"
bench="iperf3 iproute2"
browser="chromium"
package="debhelper dh-python lintian"
deploy="ansible-core ansible-lint munge slurm-client slurmctld slurmd"

packages=()
for purpose in "$@"; do
  case $purpose in
    build | test | lint | bench | browser | deploy | package) read -r -d '' -a words <<<"${!purpose}" || true; packages+=("${words[@]}") ;;
    *) echo "deps.sh: unknown purpose \"$purpose\"; use build, test, lint, bench, browser, deploy or package" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "deps.sh: dpkg-query is not installed; install the equivalents of the Debian packages" \
    "${packages[*]}" >&2
  exit 77
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || true
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

become=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null && [[ ! -t 0 ]]; then
    echo "deps.sh: packages are missing; install them as root with: apt-get install ${missing[*]}" >&2
    exit 77
  fi
  become=(sudo)
fi
echo "installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${become[@]}" apt-get update &&
    "${become[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends "${missing[@]}"
}
if ! install >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "deps.sh: apt-get failed; install by hand: ${missing[*]}" >&2
  exit 1
fi
