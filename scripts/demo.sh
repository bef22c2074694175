#!/usr/bin/env bash
# Installs missing packages, builds evb, and runs 6 ROSs, a DFM and an SFI on this machine for ten seconds.
# As root, it then overloads a port of 1 Gbit/s with unshaped push, pull and shaped push.
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
  echo "Run scripts/demo.sh as root to compare unshaped push, pull and shaped push as well." >&2
  exit "$status"
fi

figure() { # REPORT NAME
  sed -E "s/.*\"$2\":(-?[0-9.]+).*/\\1/" <<<"$1"
}
compare() { # NAME SETTING...
  local what=$1 settings=() report
  shift
  for setting in ros.count=6 sfi.count=1 ros.fragment-size=14KiB network.link-rate=1Gbit \
    network.switch-buffer=128KiB trigger.rate=2kHz scenario.duration=4s "$@"; do
    settings+=(--set "$setting")
  done
  report=$(build/evb run /dev/null --net lab --json "${settings[@]}") || true
  # evb has named the reason on standard error.
  [[ -n $report ]] || { printf '  %-14s not measured\n' "$what"; return 0; }
  printf '  %-14s %6.0f events/s  %6.1f MB/s  lost: %d events, %d packets\n' "$what" \
    "$(figure "$report" event_rate_hz)" \
    "$(awk -v b="$(figure "$report" throughput_bytes_per_second)" 'BEGIN {print b / 1e6}')" \
    $(($(figure "$report" events_lost) + $(figure "$report" events_partial))) \
    "$(figure "$report" switch_packets)"
}
echo
echo "6 ROSs push 14 KiB each to 1 SFI, at 1.4 times the rate of its 1 Gbit/s port with a 128 KiB buffer:"
compare "unshaped push"
compare "pull" scenario.mode=pull
compare "shaped push" qos.backend=auto
echo "If nothing is lost unshaped, this machine is too slow to overload the port."
exit "$status"
