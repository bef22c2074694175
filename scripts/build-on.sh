#!/usr/bin/env bash
# Builds this checkout in a fresh root of another Debian: build-on.sh [SUITE] (default: trixie, Debian 13).
# The program must build without warnings, and start. Needs root and mmdebstrap; exits with 77 if it cannot make the root.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
  -*) echo "build-on.sh: unknown option $1; see build-on.sh --help" >&2; exit 2 ;;
esac
suite=${1:-trixie}
skip() { echo "build-on.sh: skipped: $1" >&2; exit 77; }

((EUID == 0)) || skip "not root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
# The mirror of this machine's own packages.
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Label: Debian" | head -n 1)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=minbase --include=ca-certificates "$suite" "$root/root" ${mirror:+"$mirror"} 2>"$root/log" ||
  { tail -n 5 "$root/log" >&2; skip "no root of $suite could be made"; }

# What a clone has, with changes that are not committed yet.
mkdir "$root/root/evb"
git ls-files -z | xargs -0 cp --parents -t "$root/root/evb"
# A namespace of its own mounts /proc, which ends with it.
unshare --mount --fork --pid --mount-proc="$root/root/proc" chroot "$root/root" bash -c '
  set -e
  cd /evb
  scripts/deps.sh build
  CFLAGS=-Werror scripts/build.sh build
  build/evb --version'
