#!/usr/bin/env python3
"""Reads our v2 files with independent readers: the checker in EVB_SHARED, and pybes3.

    test_foreign_readers.py EVENT_TOOL checker|pybes3

Exits with status 77 and names what is missing if there is no reader or real file.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("EVB_SHARED", SOURCE.parent / "shared"))
REAL = SHARED / "data/bes3-run91668.raw"
CHECKER = SHARED / "tools/eformat3_check.py"
PYBES3 = [os.environ.get("EVB_PYBES3_PYTHON", "python3")]
TOOL = sys.argv[1]


def skip(what):
    print(f"skipped: {what}")
    sys.exit(77)


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout.strip()


def check(path, *more):
    done = subprocess.run([sys.executable, str(CHECKER), str(path), *map(str, more)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_checker(directory):
    same = run(TOOL, "rebuild", REAL, directory / "same", "eformat3", 1)
    report = check(same, "--same", REAL)
    assert report["events"] == 10 and report["partial_events"] == 0 and report["application"] == "SFI-1", report
    original, ours = REAL.read_bytes(), pathlib.Path(same).read_bytes()
    assert original.count(b"\xcc\xcc\x34\x12") == 10 == ours.count(b"\xcc\xcc\x34\x12")

    passes = check(run(TOOL, "rebuild", REAL, directory / "passes", "eformat3", 20))
    assert passes["events"] == 200 and passes["duplicate_events"] == 0, passes

    # Source 0 is one of 16 in its sub-detector; source 25 is the only one in its own.
    lost = check(run(TOOL, "rebuild", REAL, directory / "lost", "eformat3", 1, 0, 25))
    assert lost["partial_events"] == 10 and lost["fragments_min"] == 26 and lost["sources"] == report["sources"], lost

    pattern = run(TOOL, "pattern", directory / "pattern", "eformat3", 12, 30)
    report = check(pattern)
    assert report["events"] == 30 and len(report["sources"]) == 12, report
    whole = pathlib.Path(pattern).read_bytes()
    cut, repaired = directory / "cut", directory / "repaired"
    for size in range(len(whole) // 3, len(whole), len(whole) // 40 + 1):
        cut.write_bytes(whole[:size])
        repaired.unlink(missing_ok=True)
        run(TOOL, "repair", cut, repaired)
        found = check(repaired)
        assert 0 < found["events"] < 30 or size > len(whole) - 40, found


def test_pybes3(directory):
    helper = SOURCE / "tests/system/pybes3_same.py"
    same = run(TOOL, "rebuild", REAL, directory / "same", "eformat3", 1)
    done = subprocess.run([*PYBES3, str(helper), same, str(REAL)], capture_output=True, text=True)
    if done.returncode == 77:
        skip("pybes3 is not installed; set EVB_PYBES3_PYTHON to a Python that has it")
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())
    lost = run(TOOL, "rebuild", REAL, directory / "lost", "eformat3", 1, 3)
    assert subprocess.run([*PYBES3, str(helper), lost, str(REAL)], capture_output=True).returncode == 1
    print(run(*PYBES3, helper, lost, lost))


def main():
    if not REAL.exists() or not CHECKER.exists():
        skip(f"{REAL} or {CHECKER} does not exist; set EVB_SHARED")
    with tempfile.TemporaryDirectory() as name:
        for sub in ("same", "passes", "lost", "pattern"):
            (pathlib.Path(name) / sub).mkdir()
        {"checker": test_checker, "pybes3": test_pybes3}[sys.argv[2]](pathlib.Path(name))


main()
