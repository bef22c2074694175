#!/usr/bin/env python3
"""Tests which failures run-suite.py forgives, with a real suite."""
import os
import pathlib
import subprocess
import sys
import tempfile

RUN_SUITE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run-suite.py"
# A test's words are the exit statuses of its runs; further runs pass.
MESON_BUILD = """project('suite')
foreach name, statuses : {'passes': '0', 'fails': '1 1', 'fails-once': '1', 'fails-twice': '1 0 0 1', 'skips': '77'}
  test(name, find_program('script.sh'), args: [meson.current_build_dir() / name, statuses])
endforeach
"""
SCRIPT = """#!/bin/sh
echo run >> "$1"
status=$(echo "$2" | tr ' ' '\\n' | sed -n "$(wc -l < "$1")p")
exit "${status:-0}"
"""


def suite(where):
    (pathlib.Path(where) / "meson.build").write_text(MESON_BUILD)
    script = pathlib.Path(where) / "script.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    subprocess.run(["meson", "setup", f"{where}/build", where], check=True, capture_output=True, timeout=60)


def result(where, *arguments):
    """Runs the suite; returns the lines of its result, and the exit status."""
    done = subprocess.run([sys.executable, "-B", RUN_SUITE, f"{where}/result", f"{where}/build", *arguments], capture_output=True,
                          text=True, timeout=120, env={**os.environ, "LC_ALL": "C"})
    return pathlib.Path(where, "result").read_text().split("\n")[:3], done.returncode


with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    suite(at)
    lines = result(at)
    assert lines == (["2 2 1 1", "fails fails-twice", "fails-once"], 1), lines
    runs = {name: (pathlib.Path(at) / "build" / name).read_text().count("run")
            for name in ("passes", "fails", "fails-once", "fails-twice", "skips")}
    assert runs == {"passes": 1, "fails": 2, "fails-once": 4, "fails-twice": 4, "skips": 1}, runs
    # All pass now.
    lines = result(at, "passes", "fails", "fails-once")
    assert lines == (["3 0 0 0", "", ""], 0), lines

# A suite that does not run has failed.
with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    lines = result(at)
    assert lines == (["0 1 0 0", "", ""], 1), lines
