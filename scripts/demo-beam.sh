#!/usr/bin/env bash
# Installs missing packages, builds evb, and plays a test beam for ten seconds: `evb frontend` is four detector
# boards, one of which restarts, and `evb run` builds their events. Options are those of `evb run`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh build
echo "building ..." >&2
scripts/build.sh build
folder=$(mktemp -d "${TMPDIR:-/tmp}/evb-beam-XXXXXX")
events=10000
board=tcp:127.69.86.2:26900

echo "Four boards send frames of some 2 kB at random times, with a mean rate of 1 kHz; board 3 restarts after 5 s." >&2
# The boards listen before the ROSs connect.
build/evb frontend --boards "$board,$board,$board,$board" --events $events --kind poisson --size lognormal:2kB,0.5 \
  --counter 0:32 --restart 3:5s >"$folder/boards.txt" &
boards=$!
trap 'kill "$boards" 2>/dev/null || true' EXIT
status=0
build/evb run configs/scenarios/beam.conf --progress --set sfi.directory="$folder" --set trigger.events=$events "$@" || status=$?
((status != 2)) || exit 2
# The boards have sent all frames, unless the run ended early.
kill -INT "$boards" 2>/dev/null || true
wait "$boards" || status=1
trap - EXIT
echo
cat "$folder/boards.txt"
file=$(find "$folder" -name '*.data' | head -n 1)
if [[ -n $file ]]; then
  echo
  echo "The events are in $file; show them with: build/evb dump $file"
fi
exit "$status"
