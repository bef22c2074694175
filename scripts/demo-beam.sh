#!/usr/bin/env bash
# Installs missing packages, builds evb, and plays a test beam: `evb frontend` is four detector boards and their
# trigger box, which obeys busy. Board 3 restarts after 3 s; after 6 s all counters are reset, and it is back. Then it plays
# boards as they are: a CAEN digitizer, a tracker that sends datagrams, and an AIDA-2020 TLU.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh build
echo "building ..." >&2
scripts/build.sh build
scenario=configs/scenarios/beam.conf
folder=$(mktemp -d "${TMPDIR:-/tmp}/evb-beam-XXXXXX")
settings=(--set sfi.directory="$folder")
farm=
pids=()
trap '((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true' EXIT
if build/evb level2 --help >/dev/null 2>&1; then
  farm=127.69.86.1:26912
  settings+=(--set level2.listen=tcp:26912)
fi

for node in ros1 ros2 ros3 ros4 sfi1 dfm; do
  build/evb "${node%[0-9]}" --config $scenario --node $node --json "$folder/$node.json" "${settings[@]}" 2>"$folder/$node.log" &
  pids+=($!)
done
dfm=$!
if [[ -n $farm ]]; then
  echo "A level-2 farm accepts a tenth of the events." >&2
  build/evb level2 --connect $farm --fraction 0.1 --latency 5ms >"$folder/level2.txt" 2>&1 &
  pids+=($!)
fi
echo "The boards send frames of some 2 kB at random times, with a mean rate of 1 kHz, as soon as the DFM is ready." >&2
status=0
build/evb frontend --boards udp:127.69.86.11:26900,udp:127.69.86.12:26900,udp:127.69.86.13:26900,udp:127.69.86.14:26900 \
  --trigger-to 127.69.86.1:26910 --busy-from 127.69.86.2:26911 --count 9000 --rate poisson:1kHz --size lognormal:2kB,0.5 \
  --event-number 0:32 --fault missed=0.1% --fault restart=3:3s:300ms --fault reset=6s:3s || status=$?
# Events without a frame of a board end after ros.wait, 1.5 s.
sleep 3
kill -INT $dfm 2>/dev/null || true
# A required board was missing, so the nodes end with status 1.
wait "${pids[@]}" || true
pids=()

figure() { # NODE NAME
  grep -oE "\"$2\": ?-?[0-9]+" "$folder/$1.json" | grep -oE '[0-9]+$' || echo 0
}
echo
echo "evb: $(figure dfm triggers) triggers, $(figure dfm events_complete) events complete," \
  "$(figure dfm events_partial) without all boards, $(figure dfm events_lost) lost, $(figure dfm events_rejected) rejected"
for node in ros1 ros2 ros3 ros4; do
  echo "  $node: $(figure $node front_end_frames) frames read, $(figure $node front_end_used) used," \
    "$(figure $node front_end_late) late, $(figure $node front_end_duplicate) duplicate," \
    "$(figure $node front_end_impossible) impossible, $(figure $node front_end_left_over) left over;" \
    "$(figure $node front_end_restarts) restarts"
done
[[ -z $farm ]] || cat "$folder/level2.txt"
echo
echo "Now three boards with formats of their own: a CAEN digitizer on TCP, a tracker that sends datagrams, and an AIDA-2020 TLU," \
  "whose triggers make the events." >&2
mkdir "$folder/boards"
cat >"$folder/boards/boards.conf" <<CONF
[trigger]
source = udp:26910
busy-to = 127.69.87.2:26911
events = 1000
[sfi]
output = file
directory = $folder/boards
[node dfm]
role = dfm
address = 127.69.87.1
[node digitizer]
role = ros
address = 127.69.87.11
source = tcp:127.69.87.2:26901
frame = length 0:28 unit 4
event-number = 8:24
[node tracker]
role = ros
address = 127.69.87.12
source = udp:26902
frame = datagram
event-number = 0:32:be
[node tlu]
role = ros
address = 127.69.87.13
source = tcp:127.69.87.2:26903
frame = fixed 24
event-number = 12:32
[node sfi1]
role = sfi
address = 127.69.87.21
CONF
PYTHONPATH=python python3 configs/examples/python/beam.py 1000 &
beam=$!
build/evb run "$folder/boards/boards.conf" --json "$folder/boards/run.json" &
run=$!
pids=("$beam" "$run")
first=
# Without triggers, the run would not end.
wait -n -p first "${pids[@]}" || {
  status=$?
  [[ $first == "$run" ]] || echo "beam.py failed with status $status." >&2
  kill -INT "$run" 2>/dev/null || true
}
[[ $first == "$run" ]] || wait "$run" || status=$?
kill "$beam" 2>/dev/null || true
wait "$beam" || true
pids=()
echo
build/evb dump "$folder"/boards/*.data || status=$?
# The whole run comes first in its report.
echo "evb built $(figure boards/run events_complete | sed -n 1p) complete events of $(figure boards/run triggers | sed -n 1p) triggers. Each has the frame of" \
  "the digitizer, of the tracker and of the TLU with the number of its trigger."
echo
echo "Logs, reports and events are in $folder; show the events with: build/evb dump FILE.data"
exit $status
