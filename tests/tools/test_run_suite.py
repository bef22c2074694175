#!/usr/bin/env python3
"""Tests run-suite.py with a real suite: no failure is forgiven, and each case is noted."""
import os
import pathlib
import subprocess
import sys
import tempfile

RUN_SUITE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run-suite.py"
MESON_BUILD = """project('suite')
foreach name, status : {'passes': '0', 'fails': '1', 'skips': '77'}
  test(name, find_program('script.sh'), args: status)
endforeach
test('cases', find_program('cases.sh'), protocol: 'tap')
test('breaks', find_program('breaks.sh'), protocol: 'tap')
foreach name : ['one', 'two']
  test(name, find_program('script.sh'), args: '0', suite: name,
    depends: custom_target(name, output: name, command: ['touch', '@OUTPUT@'], build_by_default: true))
endforeach
"""
SCRIPTS = {
    "script.sh": 'exit "$1"',
    "cases.sh": r"printf '1..3\nok 1 - one (1.5 s)\nnot ok 2 - two (70.0 s)\nok 3 - three (0.1 s) # SKIP no root\n'; exit 1",
    "breaks.sh": r"printf '1..2\nok 1 - one (0.1 s)\n'; exit 1",
}


def suite(where):
    (where / "meson.build").write_text(MESON_BUILD)
    for name, text in SCRIPTS.items():
        (where / name).write_text(f"#!/bin/sh\n{text}\n")
        (where / name).chmod(0o755)
    subprocess.run(["meson", "setup", where / "build", where], check=True, capture_output=True, timeout=60)


def run(*words):
    done = subprocess.run([sys.executable, "-B", RUN_SUITE, *words], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


def noted(notes):
    return {name: result for result, _, name in (line.split("\t") for line in notes.read_text().splitlines())}


with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    at = pathlib.Path(at)
    suite(at)
    assert run(at / "notes", at / "build")[0] == 1
    assert noted(at / "notes") == {"passes": "passed", "fails": "failed", "skips": "skipped", "one": "passed", "two": "passed", "cases/one": "passed",
                                   "cases/two": "failed", "cases/three": "skipped", "breaks/one": "passed", "breaks": "failed"}
    status, out = run("--summary", at / "notes")
    assert status == 1 and "5 passed, 3 failed, 2 skipped\n" in out and out.splitlines()[1] == "    70.0 s  cases/two", out
    assert set(out.splitlines()[-1].split()[1:]) == {"fails", "cases/two", "breaks"}, out
    # What passes alone is noted beside.
    assert run(at / "more", at / "build", "passes")[0] == 0 and noted(at / "more") == {"passes": "passed"}
    assert run("--summary", at / "more")[0] == 0
    assert run("--targets", at / "build", "two") == (0, "two\n")

# A suite that does not run has failed.
with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    at = pathlib.Path(at)
    assert run(at / "notes", at)[0] == 1 and run("--summary", at / "notes")[0] == 1
