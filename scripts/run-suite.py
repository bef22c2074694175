#!/usr/bin/env python3
"""Runs a test suite, and repeats tests that failed while the machine was disturbed.

    run-suite.py RESULT BUILD-DIRECTORY [MESON-TEST-ARGUMENT...]

A failure is disturbed if the hypervisor took processor time in the test: more than 5 % in one second. Such a test is
repeated alone, twice at most, as `evb lab run` repeats disturbed points; with more than ten of them, something else is
wrong, and none is. Every other failure is final. The file RESULT gets the numbers of passed, failed, skipped and
repeated tests, and then the names of failed ones. The exit status is 1 if a test failed.
"""
import json
import os
import subprocess
import sys
import threading
import time

from need import stolen, stolen_percent

STOLEN_MAX_PERCENT = 5
INTERVAL_S = 1
REPEATS_MAX = 2
REPEATED_TESTS_MAX = 10
PASSED = ("OK", "EXPECTEDFAIL")


class Watch:
    """Notes in each second how much processor time was stolen."""

    def __init__(self):
        self.seconds = []  # (begin, end, percent)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        begin, before = time.time(), stolen()
        while not self.ended.wait(INTERVAL_S):
            end, after = time.time(), stolen()
            self.seconds.append((begin, end, stolen_percent(before, after)))
            begin, before = end, after

    def end(self):
        self.ended.set()
        self.thread.join()

    def worst_percent(self, begin, end):
        return max((percent for b, e, percent in self.seconds if e > begin and b < end), default=0)


def printed(line):
    return line.strip() and not line.startswith(("ninja", "["))


def meson_test(build, logbase, arguments):
    """Runs `meson test`, and returns each test's entry of its log."""
    log = os.path.join(build, "meson-logs", f"{logbase}.json")
    if os.path.exists(log):
        os.unlink(log)
    command = ["meson", "test", "-C", build, "--logbase", logbase, "--print-errorlogs", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as meson:
        for line in meson.stdout:
            if printed(line):
                print(line, end="", flush=True)
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_failed(test):
    return test["result"] not in (*PASSED, "SKIP")


def is_disturbed(test, watch):
    begin = test["starttime"]
    percent = watch.worst_percent(begin, begin + test["duration"])
    print(f"{test['name']}: {test['result']}; at most {percent:.1f} % of the processor time was stolen in a second of it")
    return percent > STOLEN_MAX_PERCENT


def passes_alone(build, test, arguments):
    name = test["name"].split(" / ")[-1]
    for turn in range(1, REPEATS_MAX + 1):
        print(f"{name}: repeated alone, {turn} of {REPEATS_MAX}", flush=True)
        again = meson_test(build, "repeated", ["--num-processes", "1", *arguments, name])
        if len(again) == 1 and not is_failed(again[0]):
            return True
    return False


def main(result, build, *arguments):
    watch = Watch()
    # Most system tests wait rather than compute.
    tests = meson_test(build, "testlog", ["--num-processes", str(2 * os.cpu_count()), *arguments])
    watch.end()

    failed = [t for t in tests if is_failed(t)]
    disturbed = [t for t in failed if is_disturbed(t, watch)]
    repeated = [t for t in disturbed if passes_alone(build, t, arguments)] if len(disturbed) <= REPEATED_TESTS_MAX else []
    skipped = sum(t["result"] == "SKIP" for t in tests)
    # A suite that did not run has failed.
    n_failed = len(failed) - len(repeated) if tests else 1
    for t in repeated:
        print(f"{t['name']}: failed on the disturbed machine, and passed alone")
    with open(result, "w", encoding="utf-8") as out:
        print(len(tests) - n_failed - skipped if tests else 0, n_failed, skipped, len(repeated), file=out)
        print(*(t["name"].split(" / ")[-1] for t in failed if t not in repeated), file=out)
    return 1 if n_failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    sys.exit(main(*sys.argv[1:]))
