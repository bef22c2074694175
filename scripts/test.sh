#!/usr/bin/env bash
# Installs missing packages, builds, and runs every test. The log names the reason for each skipped test.
#   scripts/test.sh [--quick]   --quick: without sanitizers, static analysis, fuzzing and line coverage
set -euo pipefail
cd "$(dirname "$0")/.."
quick=0
case ${1:-} in
  "") ;;
  --quick) quick=1 ;;
  -h | --help) sed -n '2,3s/^# *//p' "$0"; exit 0 ;;
  *) echo "test.sh: unknown argument $1; see scripts/test.sh --help" >&2; exit 2 ;;
esac

scripts/deps.sh build test
((quick)) || scripts/deps.sh lint
# The test of the DFM's page in a browser is skipped without one.
scripts/deps.sh browser || true

# Independent readers of our files. Tests that need one are skipped if it cannot be installed.
reader() { # MODULE VARIABLE
  local module=$1 variable=$2 venv=build/$1
  if [[ -n ${!variable:-} ]]; then return; fi
  # An interrupted installation leaves an interpreter without the module.
  if ! "$venv/bin/python3" -c "import $module" 2>/dev/null; then
    rm -rf "$venv"
    mkdir -p build
    { python3 -m venv "$venv" && "$venv/bin/pip" install -q "$module"; } >/dev/null 2>&1 || rm -rf "$venv"
  fi
  if [[ -x $venv/bin/python3 ]]; then export "$variable=$PWD/$venv/bin/python3"; fi
}
reader pybes3 EVB_PYBES3_PYTHON
reader baseband EVB_BASEBAND_PYTHON

# A program of a package whose installation would start a service.
unpack() { # PACKAGE PROGRAM
  local folder=build/packages/$1
  if command -v "$2" >/dev/null; then return; fi
  if [[ ! -x $folder/usr/bin/$2 ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" && apt-get download "$1" && dpkg -x ./*.deb . && rm ./*.deb) >/dev/null 2>&1 || rm -rf "$folder"
  fi
  if [[ -x $folder/usr/bin/$2 ]]; then export PATH="$PWD/$folder/usr/bin:$PATH"; fi
}
unpack prometheus promtool

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 TSAN_OPTIONS=halt_on_error=1

passed=0 failed=0 skipped=0 repeated=0 failed_names= repeated_names=
suite() { # DIRECTORY NAME MESON-TEST-ARGUMENTS...
  local directory=$1 name=$2 result counts
  shift 2
  echo "== $name"
  result=$(mktemp)
  scripts/run-suite.py "$result" "$directory" "$@" || true
  # Empty if the script itself failed.
  read -r -a counts <"$result" || counts=(0 1 0 0)
  passed=$((passed + counts[0])) failed=$((failed + counts[1]))
  skipped=$((skipped + counts[2])) repeated=$((repeated + counts[3]))
  failed_names+=$(sed -n '2s/[^ ][^ ]*/ &/gp' "$result")
  repeated_names+=$(sed -n '3s/[^ ][^ ]*/ &/gp' "$result")
  rm -f "$result"
}
check() { # NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  local status=0
  "$@" || status=$?
  case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) failed_names+=" $name" ;;
  esac
}

# Tests mostly wait. Meanwhile, the other builds and the analysis take the time that the tests leave.
declare -A ahead_pids=()
ahead_logs=$(mktemp -d)
finish() {
  for pid in "${ahead_pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  rm -rf "$ahead_logs"
}
trap finish EXIT
ahead() { # NAME COMMAND...
  local name=$1
  shift
  setsid chrt --idle 0 "$@" >"$ahead_logs/$name" 2>&1 &
  ahead_pids[$name]=$!
}
# Waits for a command that began ahead, prints what it printed, and returns its status.
arrive() { # NAME
  local status=0
  wait "${ahead_pids[$1]}" || status=$?
  unset "ahead_pids[$1]"
  cat "$ahead_logs/$1"
  return "$status"
}

echo "== build"
scripts/build.sh build -Dwerror=true -Dbuildtype=debugoptimized -Db_lto=false -Dtests=true
if ((quick)); then
  # lint.sh checks them too.
  check "house rules" scripts/check-house.py
  suite build "all tests"
else
  ahead build-asan scripts/build.sh build-asan -Dwerror=true -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized
  ahead build-tsan scripts/build.sh build-tsan -Dwerror=true -Db_sanitize=thread -Db_lundef=false
  ahead debian13 scripts/build-on.sh trixie
  ahead analysis scripts/lint.sh
  # These tests mostly wait, so more run at once than with sanitizers. The suite sim only computes, and runs with
  # sanitizers.
  suite build "tests" --num-processes $((3 * $(nproc))) --no-suite sim
  arrive build-asan
  # Both need processors, which the tests with sanitizers leave more of than builds beside each other would.
  ahead fuzzing scripts/fuzz.sh --quick
  ahead coverage scripts/coverage.py
  suite build-asan "all tests, with address and undefined-behaviour sanitizers" --timeout-multiplier 3
  arrive build-tsan
  suite build-tsan "tests of programs with threads, with the thread sanitizer" --suite threads --timeout-multiplier 5
  check "build on Debian 13" arrive debian13
  check "static analysis" arrive analysis
  check "fuzzing" arrive fuzzing
  check "line coverage" arrive coverage
fi
echo "$passed passed ($repeated of them only alone), $failed failed, $skipped skipped, in $((SECONDS / 60)) min"
if [[ -n $repeated_names ]]; then echo "failed beside other tests, and passed alone:$repeated_names"; fi
if [[ -n $failed_names ]]; then echo "failed:$failed_names"; fi
((failed == 0))
