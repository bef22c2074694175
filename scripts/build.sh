#!/usr/bin/env bash
# Builds into build/ (or the folder given), with the meson options given after it; links build/evb to the program.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
shift || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ! -f $folder/build.ninja ]]; then
  meson setup "$folder" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
ninja -C "$folder" >"$log" 2>&1 || { grep -E "error|warning|FAILED|undefined" "$log" >&2 || cat "$log" >&2; exit 1; }
ln -sfn src/evb "$folder/evb"
