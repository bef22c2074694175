#!/usr/bin/env python3
"""Tests which failures run-suite.py repeats, with a real suite of three tests and invented stolen time."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.append(str(SCRIPTS))
sys.dont_write_bytecode = True

MESON_BUILD = """project('suite')
sh = find_program('sh')
test('passes', sh, args: ['-c', 'sleep 2.5'])
test('fails', sh, args: ['-c', 'sleep 2.5; exit 1'])
test('fails/once', sh, args: ['-c', 'sleep 2.5; test -e "$0" || { touch "$0"; exit 1; }', meson.current_build_dir() / 'was'])
"""


def load():
    spec = importlib.util.spec_from_file_location("run_suite", SCRIPTS / "run-suite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counts(stolen_percent):
    """Runs the suite while so much processor time is stolen; returns the result and the exit status."""
    run_suite = load()
    ticks = [0, 0]

    def stolen():
        ticks[0] += stolen_percent
        ticks[1] += 100
        return tuple(ticks)

    run_suite.stolen = stolen
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        (pathlib.Path(where) / "meson.build").write_text(MESON_BUILD)
        subprocess.run(["meson", "setup", f"{where}/build", where], check=True, capture_output=True, timeout=60)
        status = run_suite.main(f"{where}/result", f"{where}/build")
        return pathlib.Path(where, "result").read_text().splitlines(), status


# A machine without neighbours, and one at the bound: every failure is final.
assert counts(0) == (["1 2 0 0", "fails fails/once"], 1)
assert counts(5) == (["1 2 0 0", "fails fails/once"], 1)
# A disturbed one: only the test that fails again has failed.
assert counts(6) == (["2 1 0 1", "fails"], 1)

# A suite that does not run fails, too.
with tempfile.TemporaryDirectory(prefix="evb-test-") as empty:
    done = subprocess.run([sys.executable, "-B", SCRIPTS / "run-suite.py", f"{empty}/result", f"{empty}/build"],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 1 and pathlib.Path(empty, "result").read_text().split() == ["0", "1", "0", "0"], done
