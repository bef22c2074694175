#!/usr/bin/env bash
# Installs what is missing, builds, and lets 6 ROSs, a DFM and an SFI build events on this machine for ten seconds; as root
# then the same over ports of 1 Gbit/s that are offered too much: unshaped push, pull, shaped push.
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
if ((EUID != 0)); then
  echo "As root this goes on with the comparison that the project is for: unshaped push, pull, shaped push." >&2
  exit "$status"
fi

figure() { # REPORT NAME
  sed -E "s/.*\"$2\":(-?[0-9.]+).*/\\1/" <<<"$1"
}
compare() { # WHAT SETTING...
  local what=$1 settings=() report
  shift
  for setting in ros.count=6 sfi.count=1 ros.fragment-size=14KiB network.link-rate=1Gbit network.switch-buffer=256KiB trigger.rate=2kHz \
    scenario.duration=4s "$@"; do
    settings+=(--set "$setting")
  done
  report=$(build/evb run /dev/null --net lab --json "${settings[@]}") || true
  printf '  %-14s %6.0f events/s  %6.1f MB/s  lost: %d events, %d packets\n' "$what" "$(figure "$report" event_rate_hz)" \
    "$(awk -v b="$(figure "$report" throughput_bytes_per_second)" 'BEGIN {print b / 1e6}')" \
    $(($(figure "$report" events_lost) + $(figure "$report" events_partial))) "$(figure "$report" switch_packets)"
}
echo
echo "6 ROSs, 1 SFI, 14 KiB each; ports of 1 Gbit/s with 256 KiB of buffer, offered half as much again as they take:"
compare "unshaped push"
compare "pull" scenario.mode=pull
compare "shaped push" qos.backend=auto
exit "$status"
