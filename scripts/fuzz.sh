#!/usr/bin/env bash
# Fuzzes code that reads foreign bytes, with libFuzzer and the address and undefined-behaviour sanitizers.
#   scripts/fuzz.sh                                   every target for 10 s
#   scripts/fuzz.sh message chunks --runs 10000000    some targets, so many inputs each
#   scripts/fuzz.sh --seconds 60                      every target for so long
#   scripts/fuzz.sh --bulk --runs 10000000            up to twice as many inputs a second: -O2, comparisons not traced
#   scripts/fuzz.sh --quick                           for the gate: as long as a minute of processor time allows
#   scripts/fuzz.sh --list                            the targets
# Inputs that reach new code stay in corpus of the build directory: build-fuzz, or build-fuzz-bulk. One that fails is
# written to failed, beside it; copy it to tests/fuzz/corpus/TARGET, under a name that says what it shows, and each build
# tests it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-fuzz flags=-O1
mapfile -t all < <(sed -n "s/^  '\([a-z0-9_]*\)': .*/\1/p" tests/fuzz/meson.build)
targets=() limits=(-max_total_time=10) input_seconds=30
while (($#)); do
  case $1 in
    --bulk) build=build-fuzz-bulk flags='-O2 -fno-sanitize-coverage=trace-cmp'; shift ;;
    --runs | --seconds)
      [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "fuzz.sh: $1 needs a number" >&2; exit 2; }
      if [[ $1 == --runs ]]; then limits=("-runs=$2"); else limits=("-max_total_time=$2"); fi
      shift 2 ;;
    # Without optimization the build takes a third of the time. In the gate, other processes come first, for minutes.
    --quick) build=build-fuzz-quick flags=-O0 limits=(-runs=10000 -max_total_time=3) input_seconds=600; shift ;;
    --list) printf '%s\n' "${all[@]}"; exit 0 ;;
    -h | --help) sed -n '2,11s/^# *//p' "$0"; exit 0 ;;
    -*) echo "fuzz.sh: unknown option $1; see scripts/fuzz.sh --help" >&2; exit 2 ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || { echo "fuzz.sh: unknown target $1; expected one of ${all[*]}" >&2; exit 2; }
      targets+=("$1")
      shift ;;
  esac
done
((${#targets[@]})) || targets=("${all[@]}")

scripts/deps.sh build lint
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ! -f $build/build.ninja ]]; then
  CC=clang meson setup "$build" -Dfuzz=true -Dtests=false -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=plain \
    "-Dc_args=-gline-tables-only -fno-omit-frame-pointer -fsanitize=fuzzer-no-link $flags" >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
fi
ninja -C "$build" "${targets[@]/#/tests/fuzz/fuzz_}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

# A small quarantine, because large blocks in it slow the allocator down; and few callers of each allocation, as finding
# them takes as long as the allocation.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=quarantine_size_mb=1:malloc_context_size=4
failed=()
mkdir -p "$build/failed"
printf '%-12s %12s %9s\n' target executions seconds
for target in "${targets[@]}"; do
  seeds=("tests/fuzz/corpus/$target")
  [[ $target != scenario ]] || seeds+=(configs/scenarios)
  mkdir -p "$build/corpus/$target"
  start=$SECONDS
  # Limits of one input: so much time by the clock, and 1 GiB.
  "$build/tests/fuzz/fuzz_$target" "${limits[@]}" -entropic=0 "-timeout=$input_seconds" -rss_limit_mb=1024 -print_final_stats=1 \
    "-artifact_prefix=$build/failed/$target-" "$build/corpus/$target" "${seeds[@]}" >"$log" 2>&1 || failed+=("$target")
  printf '%-12s %12s %9s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$((SECONDS - start))"
  # Without libFuzzer's lines about its progress.
  if [[ " ${failed[*]-} " == *" $target "* ]]; then grep -Ev '^#[0-9]+[[:space:]]+[A-Z]|^INFO' "$log" | tail -n 60 >&2; fi
done
((${#failed[@]} == 0)) || { echo "fuzz.sh: failed: ${failed[*]}; the inputs are in $build/failed" >&2; exit 1; }
