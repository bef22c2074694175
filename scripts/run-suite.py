#!/usr/bin/env python3
"""Runs the tests of a suite beside each other, and those that failed again, alone.

    run-suite.py RESULT BUILD-DIRECTORY [MESON-TEST-ARGUMENT...]

Tests run beside each other only to save time, so what they do alone decides: a test that failed beside others passes
if it passes alone three times in a row. It is named all the same; look for the reason. With more than ten failures
none is repeated. The file RESULT gets the numbers of passed, failed, skipped and repeated tests, then a line with the
names of failed tests, and a line with those that passed only alone. The exit status is 1 if a test failed.
"""
import json
import os
import subprocess
import sys

import need

TIMES_ALONE = 3
REPEATED_TESTS_MAX = 10


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
    return test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")


def name_of(test):
    return test["name"].split(" / ")[-1]


def passes_alone(build, name, arguments):
    for turn in range(1, TIMES_ALONE + 1):
        print(f"{name}: alone, {turn} of {TIMES_ALONE}", flush=True)
        again = meson_test(build, "alone", ["--num-processes", "1", *arguments, name])
        if len(again) != 1 or is_failed(again[0]):
            return False
    return True


@need.awake()
def main(result, build, *arguments):
    before = need.stolen()
    # Most system tests wait rather than compute.
    tests = meson_test(build, "testlog", ["--num-processes", str(2 * os.cpu_count()), *arguments])
    print(f"{need.stolen_percent(before):.1f} % of the processor time was stolen")

    failed = sorted(name_of(t) for t in tests if is_failed(t))
    repeated = [name for name in failed if passes_alone(build, name, arguments)] if len(failed) <= REPEATED_TESTS_MAX else []
    failed = [name for name in failed if name not in repeated]
    skipped = sum(t["result"] == "SKIP" for t in tests)
    # A suite that did not run has failed.
    n_failed = len(failed) if tests else 1
    with open(result, "w", encoding="utf-8") as out:
        print(len(tests) - len(failed) - skipped, n_failed, skipped, len(repeated), file=out)
        print(*failed, file=out)
        print(*repeated, file=out)
    return 1 if n_failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    sys.exit(main(*sys.argv[1:]))
