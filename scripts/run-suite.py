#!/usr/bin/env python3
"""Runs tests of a build, and notes each of them.

    run-suite.py NOTES BUILD-DIRECTORY [MESON-TEST-ARGUMENT...]
    run-suite.py --summary NOTES
    run-suite.py --targets BUILD-DIRECTORY SUITE...

Appends a line for each test to the file NOTES: result, seconds and name, separated by tabs. A case of a test that names its cases
is a test of its own. The exit status is 3 if a test failed, if one did not run, or if meson failed: NOTES says so. Any other
status but 0 is a defect that NOTES may not show. NOTES.said gets the last lines of the failed tests. --summary prints the ten
slowest tests, these lines, the numbers of tests and the names of the failed ones, and exits with 1 if any failed or none passed.
--targets prints the targets of ninja that tests of these suites need, and those that `meson install` copies.
"""
import collections
import contextlib
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

import need

SLOWEST = 10
# Of each failed test. Who sees only the end of a long log sees these.
LAST_LINES = 60
# Each test has a session of its own.
NICE_SESSION = pathlib.Path(__file__).with_name("nice-session.sh")
# Python itself exits with 1 or 2.
FAILED = 3
RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
CASE = re.compile(r"^(not ok|ok) \d+ - (\S+)(?: \((\S+) s\))?( # SKIP)?", re.M)


def printed(line):
    return line.strip() and not line.startswith(("ninja", "["))


def short(name):
    """A test's name without its suites."""
    return name.split(" / ")[-1]


def cases_of(test):
    """Yields (result, seconds, name) of a test, or of its cases."""
    name = short(test["name"])
    result = RESULTS.get(test["result"], "failed")
    found = CASE.findall(test.get("stdout", ""))
    for status, case, seconds, skip in found:
        yield "failed" if status == "not ok" else "skipped" if skip else "passed", float(seconds or 0), f"{name}/{case}"
    # A test can also fail between its cases, or before the first one.
    if not found or (result == "failed" and all(status == "ok" for status, *_ in found)):
        yield result, test["duration"], name


def listed(build, arguments):
    """Returns the names of the tests that these arguments of meson select."""
    done = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--list", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return [short(line) for line in done.stdout.splitlines() if printed(line)] if done.returncode == 0 else []


def unmatched(arguments, selected):
    """Returns the arguments that name a test, or are a pattern of names, and select none: meson passes over them in silence. Every option
    here has a value."""
    return [name for option, name in zip(["", *arguments], arguments)
            if not name.startswith("-") and (not option.startswith("-") or "=" in option) and not fnmatch.filter(selected, name)]


def logged(log):
    """Returns the tests that meson has logged as a whole: whoever ended it may have done so in the middle of a line."""
    tests = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            tests.append(json.loads(line))
    return tests


def lacking(unknown, selected, tests, status, failed):
    """Says what is wrong with a run whatever the results of its tests; None: nothing."""
    missing = [*(collections.Counter(selected) - collections.Counter(short(test["name"]) for test in tests)).elements()]
    if not selected or not tests:
        return "no test ran"
    if unknown:
        return f"there is no test {unknown[0]}"
    if missing:
        return f"{len(missing)} of {len(selected)} tests did not run, as {missing[0]}; the exit status of meson is {status}"
    if status < 0 or (status > 0 and not failed):
        return f"the exit status of meson is {status}"
    return None


def run(notes, build, *arguments):
    selected = listed(build, arguments)
    base = arguments[arguments.index("--logbase") + 1] if "--logbase" in arguments else "testlog"
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *arguments]
    if os.nice(0) > 0:
        command += ["--wrapper", str(NICE_SESSION)]
        base += "-" + NICE_SESSION.name # by meson
    log = pathlib.Path(build, "meson-logs", base + ".json")
    log.unlink(missing_ok=True)
    before = need.stolen()
    with need.awake(), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as meson:
        for line in meson.stdout:
            if printed(line):
                print(line, end="", flush=True)
    print(f"{need.stolen_percent(before):.1f} % of the processor time was stolen")
    tests = logged(log)
    rows = [row for test in tests for row in cases_of(test)]
    wrong = lacking(unmatched(arguments, selected), selected, tests, meson.returncode, any(result == "failed" for result, *_ in rows))
    if wrong:
        print(f"{build}: {wrong}")
        rows.append(("failed", 0, f"{build}: {wrong}"))
    with open(notes, "a", encoding="utf-8") as out:
        for result, seconds, name in rows:
            print(result, f"{seconds:.1f}", name, sep="\t", file=out)
    with open(f"{notes}.said", "a", encoding="utf-8", errors="replace") as out:
        for test in tests:
            if any(result == "failed" for result, *_ in cases_of(test)):
                lines = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
                print(f"== {short(test['name'])} failed", *lines[-LAST_LINES:], sep="\n", file=out)
    return FAILED if any(result == "failed" for result, *_ in rows) else 0


def summary(notes):
    rows = [line.split("\t") for line in pathlib.Path(notes).read_text(encoding="utf-8").splitlines()]
    numbers = collections.Counter(result for result, *_ in rows)
    print("slowest tests:")
    for _, seconds, name in sorted(rows, key=lambda row: -float(row[1]))[:SLOWEST]:
        print(f"  {seconds:>6} s  {name}")
    said = pathlib.Path(f"{notes}.said")
    print(said.read_text(encoding="utf-8") if said.exists() else "", end="")
    print(f"{numbers['passed']} passed, {numbers['failed']} failed, {numbers['skipped']} skipped")
    if numbers["failed"]:
        print("failed:", *(name for result, _, name in rows if result == "failed"))
    return 1 if numbers["failed"] or not numbers["passed"] else 0


def targets(build, suites):
    at = pathlib.Path(build).resolve()
    tests, found = (json.loads((at / "meson-info" / f"intro-{name}.json").read_text(encoding="utf-8")) for name in ("tests", "targets"))
    needed = {target for test in tests if {suite.rpartition(":")[2] for suite in test["suite"]} & set(suites) for target in test["depends"]}
    return sorted(str(pathlib.Path(path).relative_to(at)) for target in found if target["id"] in needed or target["installed"] for path in target["filename"])


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--summary":
        sys.exit(summary(sys.argv[2]))
    if len(sys.argv) > 3 and sys.argv[1] == "--targets":
        print(*targets(sys.argv[2], sys.argv[3:]), sep="\n")
        sys.exit()
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    sys.exit(run(*sys.argv[1:]))
