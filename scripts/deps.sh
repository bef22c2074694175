#!/usr/bin/env bash
# Installs the packages of Debian for the given purposes: deps.sh build|test|lint|bench|browser|deploy|package|oldest...
# For build and package, also those of EL 9 or Fedora, where their repositories are enabled (docs/deploy.md).
# Without root or sudo, it names the missing packages and exits with status 77.
set -euo pipefail

build="gcc meson ninja-build pkg-config libc6-dev libmnl-dev libnl-3-dev libnl-route-3-dev libinih-dev
       libjansson-dev zlib1g-dev libmicrohttpd-dev libsodium-dev libncurses-dev libcmocka-dev"
test="python3 python3-h5py python3-ipykernel python3-nbclient python3-numpy python3-venv python3-prometheus-client python3-pyte iproute2 iperf3 python3-matplotlib systemd-container
      curl iputils-ping nftables tcpdump valgrind mmdebstrap tshark zsh"
lint="clang clang-format clang-tidy cppcheck libclang-rt-14-dev"
bench="iperf3 iproute2"
browser="chromium"
package="debhelper dh-python lintian rpm buildah"
deploy="ansible-core ansible-lint munge slurm-client slurmctld slurmd"
oldest="gcc-11 python3-venv"
dnf_build="gcc meson ninja-build pkgconf-pkg-config glibc-devel libmnl-devel libnl3-devel inih-devel jansson-devel zlib-devel
           libmicrohttpd-devel libsodium-devel ncurses-devel libcmocka-devel"
dnf_package="rpm-build python3-devel systemd-rpm-macros"

manager=apt-get prefix=
if ! command -v dpkg-query >/dev/null && command -v dnf >/dev/null && command -v rpm >/dev/null; then manager=dnf prefix=dnf_; fi
packages=()
for purpose in "$@"; do
  case $purpose in
    build | test | lint | bench | browser | deploy | package | oldest) ;;
    *) echo "deps.sh: unknown purpose \"$purpose\"; use build, test, lint, bench, browser, deploy, package or oldest" >&2; exit 2 ;;
  esac
  list=$prefix$purpose
  if [[ ! ${!list:-} ]]; then
    echo "deps.sh: with dnf, only the purposes build and package are supported; install the equivalents of the Debian packages" \
      "${!purpose}" >&2
    exit 77
  fi
  read -r -d '' -a words <<<"${!list}" || true
  packages+=("${words[@]}")
done

if [[ $manager == apt-get ]] && ! command -v dpkg-query >/dev/null; then
  echo "deps.sh: dpkg-query is not installed; install the equivalents of the Debian packages" \
    "${packages[*]}" >&2
  exit 77
fi

has() { # PACKAGE
  if [[ $manager == dnf ]]; then rpm -q "$1" >/dev/null 2>&1; return; fi
  [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == "install ok installed" ]]
}
missing=()
for package in "${packages[@]}"; do
  has "$package" || missing+=("$package")
done
((${#missing[@]})) || exit 0

become=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null && [[ ! -t 0 ]]; then
    echo "deps.sh: packages are missing; install them as root with: $manager install ${missing[*]}" >&2
    exit 77
  fi
  become=(sudo)
fi
echo "installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  if [[ $manager == dnf ]]; then "${become[@]}" dnf install -y "${missing[@]}"; return; fi
  "${become[@]}" apt-get update &&
    "${become[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends "${missing[@]}"
}
if ! install >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "deps.sh: $manager failed; install by hand: ${missing[*]}" >&2
  exit 1
fi
