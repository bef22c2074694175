#!/usr/bin/env bash
# Installs what is missing, builds, and lets 6 ROSs, a DFM and an SFI build events on this machine for ten seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh build
echo "building ..." >&2
scripts/build.sh build
folder=$(mktemp -d "${TMPDIR:-/tmp}/evb-demo-XXXXXX")
echo "6 ROSs push fragments of 14 KiB to one SFI, 1000 events a second, for ten seconds; every byte is checked" >&2
status=0
build/evb run configs/scenarios/demo.conf --progress --set sfi.directory="$folder" "$@" || status=$?
file=$(find "$folder" -name '*.data' | head -n 1)
if [[ -n $file ]]; then
  echo
  echo "The events are in $file; look at them with: build/evb dump $file"
fi
exit "$status"
