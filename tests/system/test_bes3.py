#!/usr/bin/env python3
"""Replays real detector data through 26 ROSs, a DFM and an SFI, and compares the output with the original file.

    test_bes3.py EVB MODE-TRANSPORT[-loss]
"""
import os
import pathlib
import struct
import subprocess
import sys

from harness import CHANCE, SCENARIOS, SHARED, Skip, chance_of_missing, complete, folder, main, run

DATA = SHARED / "data" / "bes3-run91668.raw"
# 28 processes share two processors: a slow machine must not cause partial events.
PATIENT = {"sfi.timeout": "30s", "dfm.node-timeout": "30s"}
CHECKER = SHARED / "tools" / "eformat3_check.py"


STAMP_BYTES = 64


def without_stamp(event):
    """Returns the event as it was before evb added its stamp, the last sub-detector."""
    stamp = struct.unpack_from("<9I", event, len(event) - STAMP_BYTES)
    if stamp[:4] != (0xBB1234BB, 16, 16, 0x03000000) or stamp[8] != 0x01425645:
        return event
    size = struct.pack("<I", (len(event) - STAMP_BYTES) // 4)
    return event[:4] + size + event[8:-STAMP_BYTES]


def events(path):
    """Returns the bytes of each event of a file, without its stamp, by L1 ID."""
    raw = pathlib.Path(path).read_bytes()
    found, at = {}, raw.index(struct.pack("<2I", 0x1234CCCC, 4))
    while struct.unpack_from("<I", raw, at)[0] == 0x1234CCCC:
        size = struct.unpack_from("<I", raw, at + 12)[0]
        event = raw[at + 16:at + 16 + size]
        found[struct.unpack_from("<I", event, 4 * 11)[0]] = without_stamp(event)
        at += 16 + size
    return found


def check(evb, also=lambda path: None, **keys):
    # 10 events of 26 fragments are less than 1 MB, and at most 10000 datagrams.
    assert chance_of_missing(10000, float(keys.get("network_loss", 0)), nodes=28) < CHANCE
    if not DATA.exists():
        raise Skip(f"{DATA} does not exist; set EVB_SHARED to the folder of data/ and tools/")
    with folder() as where:
        more = {k.replace("_", "."): v for k, v in keys.items()}
        report = run(evb, SCENARIOS / "bes3-replay.conf",
                     {"ros.source": f"file:{DATA}", "sfi.directory": where, **PATIENT, **more})
        complete(report)
        assert report["sources"] == 26 and report["triggers"] == 10, report
        (path,) = report["files"]
        done = subprocess.run([sys.executable, CHECKER, path, "--same", DATA], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours, theirs = events(path), events(DATA)
        assert ours == theirs, "events differ from the original bytes"
        done = subprocess.run([evb, "dump", path, "--verify"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        also(path)


def pybes3_same(path):
    """Compares the files with pybes3, if it is installed. What it reads of one file holds for all, as their events are the same bytes."""
    python = os.environ.get("EVB_PYBES3_PYTHON", sys.executable)
    helper = pathlib.Path(__file__).parent / "pybes3_same.py"
    done = subprocess.run([python, helper, path, DATA], capture_output=True, text=True)
    if done.returncode == 77:
        raise Skip("only the pybes3 check is missing; set EVB_PYBES3_PYTHON to a Python that has pybes3")
    assert done.returncode == 0, done.stdout + done.stderr


def second_pass(evb):
    """With more triggers than events, the replay starts over with new L1 IDs."""
    if not DATA.exists():
        raise Skip(f"{DATA} does not exist; set EVB_SHARED")
    with folder() as where:
        report = run(evb, SCENARIOS / "bes3-replay.conf",
                     {"ros.source": f"file:{DATA}", "sfi.directory": where, "trigger.events": 35, **PATIENT})
        complete(report)
        ours, theirs = events(report["files"][0]), events(DATA)
        assert len(ours) == 35 and set(theirs) < set(ours)
        assert all(ours[l1] == event for l1, event in theirs.items()), "the first pass differs from the original"


main({
    "push-udp": lambda evb: check(evb, pybes3_same, scenario_mode="push", scenario_transport="udp"),
    "push-tcp": lambda evb: check(evb, scenario_mode="push", scenario_transport="tcp"),
    "pull-udp": lambda evb: check(evb, scenario_mode="pull", scenario_transport="udp"),
    "pull-tcp": lambda evb: check(evb, scenario_mode="pull", scenario_transport="tcp"),
    "push-udp-loss": lambda evb: check(evb, scenario_mode="push", network_loss="0.02"),
    "pull-udp-loss": lambda evb: check(evb, scenario_mode="pull", network_loss="0.02"),
    "second-pass": second_pass,
})
