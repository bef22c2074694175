#!/usr/bin/env python3
"""Measure which lines of the lower layers their own unit tests execute.

    scripts/coverage.py [BUILD-DIRECTORY]     # default: build-coverage
    scripts/coverage.py --lines FILE          # also print the lines of FILE that no test executes

Builds these layers and their tests with gcc's instrumentation, runs the tests, and prints a table. The exit status is 1 if a
layer has less than its share of executed lines in LAYERS; then the files that lack most are named. Whether the tests pass is
for scripts/test.sh to say: it runs them without instrumentation, and with time for each.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The least share of executed lines, in percent: what the tests once reached.
LAYERS = {"core": 97.5, "format": 99.0, "conf": 95.9, "store": 94.6, "shape/kernel": 91.0, "shape/model": 96.1}
NAMED_FILES = 10
# The simulated scenes would execute little more, and take most of the time.
TESTS = re.compile(r"unit/(" + "|".join(LAYERS) + r")/")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], text=True, **more)


def tests_of(build):
    """{name: program}"""
    listed = run("meson", "introspect", "--tests", build, stdout=subprocess.PIPE, check=True).stdout
    return {test["name"]: test["cmd"][0] for test in json.loads(listed) if TESTS.match(test["name"])}


def run_tests(build):
    """Builds and runs the tests; returns the layers of tests that were skipped."""
    if not (build / "build.ninja").exists():
        run("meson", "setup", build, "-Db_coverage=true", "-Dbuildtype=plain", "-Dc_args=-O0", cwd=ROOT, check=True,
            stdout=subprocess.DEVNULL)
    # An older folder may not know all tests.
    run("ninja", "-C", build, "build.ninja", stdout=subprocess.DEVNULL, check=True)
    tests = tests_of(build)
    # meson test would also build all other programs.
    made = run("ninja", "-C", build, *(pathlib.Path(program).relative_to(build) for program in tests.values()),
               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        sys.exit(f"coverage.py: the build failed:\n{made.stdout[-4000:]}")
    for old in build.rglob("*.gcda"):
        old.unlink()
    run("meson", "test", "-C", build, "--no-rebuild", "--logbase", "coverage", "--timeout-multiplier", "5", *tests,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    skipped = set()
    for line in (build / "meson-logs" / "coverage.json").read_text().splitlines():
        test = json.loads(line)
        name = test["name"].split(" / ")[-1]
        if test["result"] != "OK":
            print(f"{name}: {test['result']}")
        if test["result"] == "SKIP":
            skipped.add(TESTS.match(name)[1])
    return skipped


def counts_of(build):
    """{source file: {line: times executed}}, over all programs that contain the file."""
    counts = collections.defaultdict(lambda: collections.defaultdict(int))
    # These files exist for what no test links, too.
    data = [path for layer in LAYERS for path in (build / "src" / layer).rglob("*.gcno")]
    for at in range(0, len(data), 50):
        out = run("gcov", "--json-format", "--stdout", *data[at:at + 50], cwd=build, stdout=subprocess.PIPE,
                  stderr=subprocess.DEVNULL, check=True).stdout
        for document in out.splitlines():
            for entry in json.loads(document)["files"]:
                for line in entry["lines"]:
                    counts[entry["file"]][line["line_number"]] += line["count"]
    return counts


class File:
    def __init__(self, path, lines):
        self.path, self.lines = path, len(lines)
        self.missed = sorted(line for line, count in lines.items() if count == 0)


def files_of(layer, counts, build):
    """The files of a layer that have code."""
    for path, lines in counts.items():
        source = (build / path).resolve()
        if source.suffix == ".c" and source.is_relative_to(ROOT / "src" / layer):
            yield File(source.relative_to(ROOT), lines)


def percent(files):
    lines = sum(f.lines for f in files)
    return 100.0 * (lines - sum(len(f.missed) for f in files)) / lines


def report(by_layer, skipped):
    """Prints the table; True if each layer has enough, or some of its tests cannot run here."""
    print(f"{'layer':12} {'lines':>7} {'executed':>9}")
    low = []
    for layer, files in by_layer.items():
        share, verdict = round(percent(files), 1), ""
        if share < LAYERS[layer]:
            verdict = "  not judged, as tests were skipped" if layer in skipped else f"  expected {LAYERS[layer]} %"
            low += [] if layer in skipped else [f for f in files if f.missed]
        print(f"{layer:12} {sum(f.lines for f in files):7} {share:7.1f} %{verdict}")
    for f in sorted(low, key=lambda f: -len(f.missed))[:NAMED_FILES]:
        print(f"{f.path}: {len(f.missed)} of {f.lines} lines are not executed")
    return not low


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build-coverage", help="(default: %(default)s)")
    parser.add_argument("--lines", metavar="FILE", help="also print the lines of FILE that no test executes")
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    skipped = run_tests(build)
    counts = counts_of(build)
    by_layer = {layer: list(files_of(layer, counts, build)) for layer in LAYERS}
    enough = report(by_layer, skipped)
    for f in (f for files in by_layer.values() for f in files if options.lines and str(f.path).endswith(options.lines)):
        print(f"{f.path}: {' '.join(map(str, f.missed))}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
