#!/usr/bin/env bash
# Builds the program: build.sh [DIRECTORY [MESON-OPTION...]] (default: build). DIRECTORY/evb links to it.
# A new directory without options is for users: optimized across files (-O3, link-time optimization), without tests.
# With EVB_SUITES="SUITE...", it builds only what these tests need, and what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
  -*) echo "build.sh: unknown option $1; options of meson follow the directory" >&2; exit 2 ;;
esac
directory=${1:-build}
shift || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ! -f $directory/build.ninja ]]; then
  (($#)) || set -- -Doptimization=3 -Ddebug=true -Db_lto=true -Dtests=false
  meson setup "$directory" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
elif (($#)); then
  meson configure "$directory" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
targets=()
if [[ ${EVB_SUITES:-} ]]; then
  ninja -C "$directory" build.ninja >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  read -ra suites <<<"$EVB_SUITES"
  listed=$(scripts/run-suite.py --targets "$directory" "${suites[@]}")
  mapfile -t targets <<<"$listed"
fi
if ! ninja -C "$directory" "${targets[@]}" >"$log" 2>&1; then
  grep -E "error|warning|FAILED|undefined" "$log" >&2 || cat "$log" >&2
  exit 1
fi
ln -sfn src/evb "$directory/evb"
