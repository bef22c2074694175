#!/usr/bin/env bash
# Installs missing packages, builds evb, and runs 6 ROSs, a DFM and an SFI on this machine for ten seconds.
# As root, it then overloads a port of 100 Mbit/s with unshaped push, pull and shaped push (scripts/demo-port.py).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh build
echo "building ..." >&2
scripts/build.sh build
folder=$(mktemp -d "${TMPDIR:-/tmp}/evb-demo-XXXXXX")
echo "6 ROSs push fragments of 1 KiB to one SFI at 1 kHz for ten seconds; the SFI checks every byte" >&2
status=0
build/evb run configs/scenarios/demo.conf --progress --set sfi.directory="$folder" "$@" || status=$?
# A run that wrote nothing leaves no directory.
rmdir "$folder" 2>/dev/null || true
((status != 2)) || exit 2
if [[ -d $folder ]]; then
  file=$(find "$folder" -name '*.data' | head -n 1)
  echo
  [[ -z $file ]] || echo "The events are in $file; check them with: build/evb dump --verify $file"
  echo "Remove the files of this and of earlier demos ($(du -hc "${folder%-*}"-* 2>/dev/null | tail -n 1 | cut -f 1)) with:" \
    "rm -r ${folder%-*}-*"
fi
if ((EUID != 0)); then
  echo "This ran on loopback. Namespaces need root: run scripts/demo.sh as root to compare unshaped push, pull and shaped" \
    "push at an overloaded port as well." >&2
  exit "$status"
fi

echo
# Whether this machine shows the collapse does not decide about the demo; the last line says why not.
scripts/demo-port.py || true
exit "$status"
