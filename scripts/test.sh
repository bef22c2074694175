#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests. The log names the reason for each skipped test.
#   scripts/test.sh          the gate
#   scripts/test.sh --full   also what is heavy and rarely changes its answer, for unchanged files, too
# Static analysis, the thread sanitizer, a kernel in user-mode Linux, Ansible, Slurm, the browser and two long measurements are heavy: the
# gate runs them for files that changed in the four hours before the newest commit, or since EVB_BASE. Only --full runs fuzzing
# beyond the corpora, line coverage, the builds on Debian 13 and as on EL 9, and the tests of packages. Only --full also builds
# the unit tests without sanitizers, where gcc warns of more.
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
case ${1:-} in
  "") ;;
  --full) full=1 ;;
  -h | --help) sed -n '2,8s/^# *//p' "$0"; exit 0 ;;
  *) echo "test.sh: unknown argument $1; see scripts/test.sh --help" >&2; exit 2 ;;
esac

base=${EVB_BASE:-$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 14400))" HEAD)}
: "${base:=$(git hash-object -t tree /dev/null)}"
changes=$(git diff --name-only --diff-filter=d "$base")
# Whether a heavy test runs: files that match the expression have changed.
runs() { # EXPRESSION
  ((full)) || grep -qE "$1" <<<"$changes"
}

scripts/deps.sh build test lint
if runs '/page|^tests/system/(browser|test_page)'; then scripts/deps.sh browser || true; fi
((!full)) || scripts/deps.sh package oldest || true

work=$(mktemp -d)
# Reports go to files, because a test may expect the status of a process that a sanitizer ended, or not look at it.
mkdir -m 1777 "$work/reports"
chmod 711 "$work"
# The address sanitizer reuses freed memory after 32 MB more are freed, instead of 256 MB, because new pages take time.
# For the same reason, it clears the shadow of up to 8 MB of memory by writing, instead of mapping new pages.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:handle_sigill=2:quarantine_size_mb=32:clear_shadow_mmap_threshold=1048576:log_path=$work/reports/address TSAN_OPTIONS=halt_on_error=1:log_path=$work/reports/threads

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
# For bash -c: runs a command, and writes the processor time that it and its children used to a file, in whole seconds; before it, the
# shell's word about a signal that ended the command.
clock='TIMEFORMAT="%0U %0S"; { time "${@:2}" 2>&3; } 3>&2 2>"$1"'
# Time that the processors spent busy and idle since the machine started.
ticks() {
  local name user nice system idle iowait irq softirq rest
  read -r name user nice system idle iowait irq softirq rest </proc/stat
  echo $((user + nice + system + irq + softirq)) $((idle + iowait))
}
idle_percent() { # BUSY-BEFORE IDLE-BEFORE
  local busy idle
  read -r busy idle < <(ticks)
  busy=$((busy - $1)) idle=$((idle - $2))
  echo $((100 * idle / (busy + idle > 0 ? busy + idle : 1)))
}
part() { # NAME COMMAND...
  local name=$1 status=0 begin=$SECONDS used=$work/part.used before
  read -ra before < <(ticks)
  shift
  echo "== $name"
  if [[ $1 == arrive ]]; then
    used=$work/$2.used
    arrive "$2" || status=$?
  else
    bash -c "$clock" - "$used" "$@" || status=$?
  fi
  sed '$d' "$used"
  printf '  %4d s  %5d s  %3d %% idle  %s\n' $((SECONDS - begin)) "$(awk 'END { print $1 + $2 }' "$used")" \
    "$(idle_percent "${before[@]}")" "$name" >>"$times"
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
# Starts a command that measures no time, while other commands run that measure none either. What computes is nice.
ahead() { # NAME COMMAND...
  local name=$1
  shift
  setsid bash -c "$clock" - "$work/$name.used" "$@" >"$work/$name" 2>&1 &
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
# Of run-suite.py, which returns 3 if it has noted what failed. Any other failure is its own.
noted() { # NAME COMMAND...
  part "$@" || (($? == 3)) || note failed 0 "$1"
}
suite() { # NAME MESON-TEST-ARGUMENTS...
  noted "$1" scripts/run-suite.py "$notes" "${@:2}"
}
# The tests of these names of which files have changed that match their expression.
changed() { # NAME:EXPRESSION...
  local test
  for test in "$@"; do
    if runs "${test#*:}"; then echo "${test%%:*}"; fi
  done
}

processors=$(nproc)
# On a busy machine, what is nice may take very long, so its time limits are five times those of other tests.
computing=(nice scripts/nice-session.sh)
# These compile in a third of the time of the other options: with lines of code in reports, but without what a debugger needs. With
# sanitizers, gcc takes paths for possible that are not, and warns of them.
sanitize=(-Dwerror=true -Doptimization=g -Db_lundef=false)
lines="-g1 -Wno-maybe-uninitialized -Wno-array-bounds -Wno-nonnull -Wno-stringop-overflow -Wno-stringop-overread -Wno-format-truncation"
# Undefined behaviour traps, and the address sanitizer reports the line, as SIGILL, of which ASAN_OPTIONS lets cmocka know nothing. Reports
# that name the violated rule, too, need 5 MB of data and a library, which the search for leaks at the end of each process reads.
trap_undefined=-fsanitize-undefined-trap-on-error
# Links in two thirds of the time. With the address sanitizer, a program has 24,000 pointers, which the loader adjusts at each start
# unless the program has a fixed place.
link= link_fixed=
if command -v ld.gold >/dev/null; then link=-fuse-ld=gold link_fixed="-fuse-ld=gold -Wl,-no-pie"; fi
# Pure tests run with sanitizers, so only --full builds them without. Full debug information takes a sixth of the compiler's time.
plain="sim counts plain tools house timing heavy"
((!full)) || plain=
# Independent readers of our files, in one environment, and a program of a package whose installation would start a service. Tests that
# need one are skipped if it cannot be installed.
fetch() { # MODULE...
  local module prometheus=build/packages/prometheus
  # An interrupted installation leaves no list of what works.
  if [[ $(cat build/readers/works 2>/dev/null) != "$(printf '%s\n' "$@")" ]]; then
    rm -rf build/readers
    python3 -m venv build/readers
    build/readers/bin/pip install -q "$@" h5py || for module in "$@"; do build/readers/bin/pip install -q "$module" h5py; done
    for module in "$@"; do
      if build/readers/bin/python3 -c "import $module"; then echo "$module"; fi
    done >build/readers/works
  fi
  if command -v promtool || [[ -x $prometheus/usr/bin/promtool ]]; then return; fi
  rm -rf "$prometheus"
  mkdir -p "$prometheus"
  (cd "$prometheus" && apt-get download prometheus && dpkg -x ./*.deb . && rm ./*.deb) || rm -rf "$prometheus"
}
export -f fetch
# Their packages come over the network while the builds compute.
readers=()
for reader in pybes3 baseband uproot; do
  variable=EVB_${reader^^}_PYTHON
  [[ ${!variable:-} ]] || readers+=("$reader")
done
mkdir -p build
# evb starts Python with -B, which reads compiled files but writes none.
python3 -m compileall -q python/evb || true
ahead packages fetch "${readers[@]}"
if runs '^src/(shape|stream|net)'; then
  ahead kernel env PYTHONPATH=tests/system python3 -m uml.kernel build/tests/system/uml-kernel veth sch_fq sch_etf cls_bpf
fi
pure=(unit nodes fuzz)
((!full)) || pure+=(sim)
# Two builds at once, because each uses one processor only, while meson configures it and while its last programs are linked.
ahead sanitized env EVB_SUITES="system ${pure[*]}" scripts/build.sh build-asan \
  "${sanitize[@]}" "-Dc_args=$lines $trap_undefined" "-Dc_link_args=$link_fixed $trap_undefined" -Db_sanitize=address,undefined
part "build" env EVB_SUITES="$plain" scripts/build.sh build -Dwerror=true -Dbuildtype=debugoptimized -Db_lto=false -Dtests=true -Dc_args=-g1
part "the rest of the build with address and undefined-behaviour sanitizers" arrive sanitized
sources=()
# Analysis ignores comments, but for those that address it, and so does this list of changes.
((full)) || mapfile -t sources < <({
  git diff --numstat --no-renames --diff-filter=d -I '^[[:space:]]*(/\*|\*/|\* |\*$)' "$base" -- 'src/*.c'
  git diff --numstat --no-renames --diff-filter=d -G 'NOLINT|cppcheck-suppress' "$base" -- 'src/*.c'
} | cut -f3 | sort -u | grep . || echo src/main.c)
ahead analysis "${computing[@]}" scripts/lint.sh build "${sources[@]}"
part "the rest of the packages" arrive packages >/dev/null || true
for reader in "${readers[@]}"; do
  if grep -qsx "$reader" build/readers/works; then export "EVB_${reader^^}_PYTHON=$PWD/build/readers/bin/python3"; fi
done
export PATH=$PATH:$PWD/build/packages/prometheus/usr/bin
unset -f fetch
ahead simulations "${computing[@]}" scripts/run-suite.py "$notes" build --num-processes "$processors" --timeout-multiplier 25 \
  --suite sim --suite counts --suite plain --suite tools --suite house
ahead pure "${computing[@]}" scripts/run-suite.py "$notes" build-asan --logbase pure --num-processes "$processors" --timeout-multiplier 25 \
  "${pure[@]/#/--suite=}"
# What other threads than the main one own or share, and the tests that show a race there: threads of shaping, files, live events,
# metrics and the page, and both ends of a stream. scripts/check-house.py finds a file with a thread that is missing here.
mapfile -t threads < <(changed {races/{drift,files,live,metrics,stream,stream_raw},system/page}:'^src/(base/(log|ring)|sys/thread)\.' \
  races/drift:'^src/(shape|node/shaping)' \
  races/files:'^src/(data/(builder|disk_space|event_|run_file)|node/node_report|store/event_(index|record|writer)|sys/(disk_writer|uring))' \
  races/live:'^src/(data/builder|live/)' \
  {races/metrics,system/page}:'^src/(data/(obstacle|stats)|net/http_|node/(metrics|page|run_control)/|sys/loop)' \
  races/{stream,stream_raw}:'^src/stream/[^/]*$' | sort -u)
# The other cases show, in the same threads, what happens if a disk, peer or operator does something wrong.
((!full)) || threads=(system/{control,drift,files,live,metrics,page,storage,storage/2,stream,stream/2,stream_peers,stream_peers/2,stream_raw})
# For these, the pure tests are enough.
pure_threads='^src/sys/machine_watch|^tests/unit/(base/test_(log|ring)|live/test_(library|threads)|net/test_http|node/test_mailbox|stream/test_(slot_ring|threads)|sys)'
if ((${#threads[@]})) || runs "$pure_threads"; then
  ahead threads "${computing[@]}" env EVB_SUITES=threads scripts/build.sh build-tsan "${sanitize[@]}" "-Dc_args=$lines" "-Dc_link_args=$link" -Db_sanitize=thread
fi
# System tests mostly wait, so what began ahead computes meanwhile.
suite "system tests, with these sanitizers" build-asan --num-processes $((4 * processors)) --timeout-multiplier 5 --suite system
if [[ ${ahead_pids[threads]:-} ]]; then
  part "the rest of the build with the thread sanitizer" arrive threads
  ahead races "${computing[@]}" scripts/run-suite.py "$notes" build-tsan --logbase pure --num-processes "$processors" --timeout-multiplier 25 \
    --suite threads --no-suite system --no-suite heavy
  ((${#threads[@]} == 0)) || ahead threads scripts/run-suite.py "$notes" build-tsan --num-processes $((4 * processors)) \
    --timeout-multiplier 5 "${threads[@]}"
fi
if [[ ${ahead_pids[kernel]:-} ]]; then part "the rest of user-mode Linux's packages" arrive kernel || true; fi
# These wait as well, and what began ahead computes on.
mapfile -t heavy < <(changed 'system/stream_lab:^src/stream|^python/evb/lab|stream_lab' system/stream_pacing{,/2,/3}:'^src/stream|^src/net' \
  'system/ansible:ansible' \
  'system/testbed:ansible' 'system/cbq:^src/shape' 'system/slurm:slurm' 'system/page_browser:/page|^tests/system/(browser|test_page)')
((!full)) || heavy+=(system/packages)
((${#heavy[@]} == 0)) || suite "heavy tests" build --logbase heavy "${heavy[@]}"
if [[ ${ahead_pids[threads]:-} ]]; then
  noted "the rest of the system tests with threads, with the thread sanitizer" arrive threads
fi
if [[ ${ahead_pids[races]:-} ]]; then
  noted "the rest of the pure tests with threads, with the thread sanitizer" arrive races
fi
noted "the rest of the pure tests, with these sanitizers" arrive pure
noted "the rest of the simulations and tools" arrive simulations
check "the rest of static analysis" arrive analysis
# Its two guests measure rates, and are paused by others.
mapfile -t cbq < <(changed system/cbq_rates{,/2}:'^src/shape')
((${#cbq[@]} == 0)) || suite "rates in user-mode Linux" build "${cbq[@]}"
if ((full)); then
  check "fuzzing" scripts/fuzz.sh --quick
  check "line coverage" scripts/coverage.py
  check "build on Debian 13" scripts/build-on.sh trixie
  check "build as on EL 9" scripts/build-oldest.sh
fi
# These measure time, and nothing else runs at the same time.
read -ra before < <(ticks)
sleep 2
busy=$((100 - $(idle_percent "${before[@]}")))
if ((busy > 20)); then
  echo "== timing: skipped, as other programs use $busy % of the processors"
  note skipped 0 "timing (other programs use $busy % of the processors)"
else
  suite "timing" build --num-processes 5 --suite timing
fi

for report in "$work"/reports/*; do
  # The search for leaks also logs a thread that has just ended.
  if [[ -e $report ]] && grep -q '^SUMMARY: ' "$report"; then
    cat "$report"
    note failed 0 "${report##*/}, a report of a sanitizer"
  fi
done
echo "== $((SECONDS / 60)) min $((SECONDS % 60)) s; the time and the processor time of each part, and how idle the processors were:"
cat "$times"
scripts/run-suite.py --summary "$notes"
