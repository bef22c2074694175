#!/usr/bin/env bash
# Builds the program: build.sh [DIRECTORY [MESON-OPTION...]] (default: build). DIRECTORY/evb links to it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
shift || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ! -f $folder/build.ninja ]]; then
  meson setup "$folder" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
if ! ninja -C "$folder" >"$log" 2>&1; then
  grep -E "error|warning|FAILED|undefined" "$log" >&2 || cat "$log" >&2
  exit 1
fi
ln -sfn src/evb "$folder/evb"
