#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests. The log names the reason for each skipped test.
#   scripts/test.sh          the gate
#   scripts/test.sh --full   also what is heavy and rarely changes its answer, for unchanged files, too
# Heavy are static analysis, the thread sanitizer, fuzzing beyond the corpora, line coverage, the build on Debian 13, kernels in
# user-mode Linux, Ansible, Slurm and the browser. The gate runs these for files that changed in the last day before the newest
# commit, or since EVB_BASE.
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
case ${1:-} in
  "") ;;
  --full) full=1 ;;
  -h | --help) sed -n '2,7s/^# *//p' "$0"; exit 0 ;;
  *) echo "test.sh: unknown argument $1; see scripts/test.sh --help" >&2; exit 2 ;;
esac

if base=${EVB_BASE:-$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 86400))" HEAD)} && [[ $base ]]; then
  changes=$(git diff --name-only --diff-filter=d "$base")
else
  changes=$(git ls-files)
fi
# Whether a heavy test runs: files that match the expression have changed.
runs() { # EXPRESSION
  ((full)) || grep -qE "$1" <<<"$changes"
}

scripts/deps.sh build test lint
if runs '/page|^tests/system/(browser|test_page)'; then scripts/deps.sh browser || true; fi

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

work=$(mktemp -d)
notes=$work/notes times=$work/times
touch "$notes" "$times"
declare -A ahead_pids=()
finish() {
  for pid in "${ahead_pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

note() { # RESULT SECONDS NAME
  printf '%s\t%s\t%s\n' "$@" >>"$notes"
}
part() { # NAME COMMAND...
  local name=$1 status=0 begin=$SECONDS
  shift
  echo "== $name"
  "$@" || status=$?
  printf '  %4d s  %s\n' $((SECONDS - begin)) "$name" >>"$times"
  return "$status"
}
# A part that is a test of its own.
check() { # NAME COMMAND...
  local name=$1 status=0 begin=$SECONDS result=failed
  part "$@" || status=$?
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
  esac
  note $result $((SECONDS - begin)) "$name"
}
# Builds go on while tests run that measure no time.
ahead() { # NAME COMMAND...
  local name=$1
  shift
  setsid nice "$@" >"$work/$name" 2>&1 &
  ahead_pids[$name]=$!
}
# Waits for a command that began ahead, prints what it printed, and returns its status.
arrive() { # NAME
  local status=0
  wait "${ahead_pids[$1]}" || status=$?
  unset "ahead_pids[$1]"
  cat "$work/$1"
  return "$status"
}
suite() { # NAME MESON-TEST-ARGUMENTS...
  local name=$1
  shift
  part "$name" scripts/run-suite.py "$notes" "$@" || true
}

busy_percent() {
  local name user nice system idle iowait rest used=0 all=0 sign
  for sign in -1 1; do
    read -r name user nice system idle iowait rest </proc/stat
    used=$((used + sign * (user + nice + system))) all=$((all + sign * (user + nice + system + idle + iowait)))
    ((sign > 0)) || sleep 2
  done
  echo $((100 * used / all))
}

processors=$(nproc)
part "build" scripts/build.sh build -Dwerror=true -Dbuildtype=debugoptimized -Db_lto=false -Dtests=true
ahead build-asan scripts/build.sh build-asan -Dwerror=true -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized

suite "pure tests" build --num-processes $((processors + 1)) --no-suite system --no-suite heavy --no-suite timing
part "build with address and undefined-behaviour sanitizers" arrive build-asan
if runs '\.[ch]$|meson'; then
  ahead build-tsan scripts/build.sh build-tsan -Dwerror=true -Db_sanitize=thread -Db_lundef=false
fi
suite "system tests, with these sanitizers" build-asan --num-processes $((4 * processors)) --timeout-multiplier 3 --suite system
suite "pure tests, with these sanitizers" build-asan --num-processes $((processors + 1)) --timeout-multiplier 5 --no-suite system \
  --no-suite heavy --no-suite timing
if runs '\.[ch]$|meson'; then
  part "build with the thread sanitizer" arrive build-tsan
  suite "programs with threads, with the thread sanitizer" build-tsan --num-processes $((2 * processors)) --timeout-multiplier 5 \
    --suite threads --no-suite heavy
fi
mapfile -t sources < <(((full)) && git ls-files 'src/*.c' || grep -E '^src/.*\.c$' <<<"$changes")
check "static analysis" scripts/lint.sh build "${sources[@]:-src/main.c}"
heavy=()
for test in 'cbq:^src/tc' 'stream_pacing:^src/stream|^src/net' 'ansible:ansible' 'testbed:ansible' 'slurm:slurm' \
  'page_browser:/page|^tests/system/(browser|test_page)'; do
  if runs "${test#*:}"; then heavy+=("system/${test%%:*}"); fi
done
((${#heavy[@]} == 0)) || suite "heavy tests" build "${heavy[@]}"
if ((full)); then
  check "fuzzing" scripts/fuzz.sh --quick
  check "line coverage" scripts/coverage.py
  check "build on Debian 13" scripts/build-on.sh trixie
fi
# These measure time, and run alone.
busy=$(busy_percent)
if ((busy > 20)); then
  echo "== timing: skipped, as other programs use $busy % of the processors"
  note skipped 0 "timing (other programs use $busy % of the processors)"
else
  suite "timing" build --num-processes 1 --suite timing
fi

echo "== $((SECONDS / 60)) min $((SECONDS % 60)) s"
cat "$times"
scripts/run-suite.py --summary "$notes"
