#!/usr/bin/env python3
"""What careless operators do to nodes that run as services: every party says what became of the run, and why.

    test_operator.py EVB CASE
"""
import shutil

from harness import ROOT, main
from test_join import ROLES, bed


def removed_folder(evb):
    """Files that are removed while they are written end the run: no event is complete that nobody has."""
    with bed(evb, {"trigger.events": 0}) as b:
        output = b.folder / "output"
        output.mkdir()
        b.start_all(keys={"sfi.directory": output})
        b.wait("events", lambda: sum(p.stat().st_size for p in output.iterdir()) > 100_000)
        shutil.rmtree(output)
        for sfi in ("sfi1", "sfi2"):
            b.end(sfi, expect=1)
            assert "No such file or directory" in b.log(sfi), b.log(sfi)
        report = b.end("dfm", expect=1)
        for sfi in ("sfi1", "sfi2"):
            assert f"the output of {sfi} failed: events that are complete may be in no file" in report["reasons"]
        for ros in ("ros1", "ros2", "ros3"):
            b.end(ros)


def incomplete(evb):
    """A run that begins without a node says so at once, and not only by its partial events."""
    with bed(evb, {"trigger.events": 100, "dfm.node-timeout": "600ms"}) as b:
        b.start_all("dfm", "ros1", "ros2", "sfi1", "sfi2")
        b.end("dfm", expect=1)
        assert "run 1 begins without all nodes, after dfm.node-timeout: still waiting for ros3" in b.log("dfm")
        for name in ("ros1", "ros2", "sfi1", "sfi2"):
            b.end(name)
        b.start_all(*ROLES)
        assert b.end("dfm")["events_complete"] == 100
        assert "run 2 begins\n" in b.log("dfm"), b.log("dfm")


def run_of(b):
    """One whole run; its number."""
    b.start_all()
    return b.end_all()["dfm"]["run"]


def no_state(evb):
    """Without a place for run numbers, two runs one after the other do not share one; the DFM says so."""
    with bed(evb, {"trigger.events": 10}) as b:
        (b.folder / "state").write_text("no directory")
        assert run_of(b) != run_of(b)
        assert "cannot keep run numbers in" in b.log("dfm"), b.log("dfm")
        assert "cannot keep the state of the run in" in b.log("dfm"), b.log("dfm")


def damaged_state(evb):
    """Numbers of runs that may be in use do not come again where their record is damaged."""
    with bed(evb, {"trigger.events": 10}) as b:
        assert [run_of(b), run_of(b)] == [1, 2]
        state = b.folder / "state" / "evb"
        (state / "run-number").write_text("2\0\0x")
        next(state.glob("dfm-*")).write_text("run 2")
        number = run_of(b)
        assert number > 1_000_000_000 and run_of(b) == number + 1
        assert f"run-number is damaged, so the last run number is unknown: this run is number {number}" in b.log("dfm")
        assert "is damaged: nothing is known of the last run" in b.log("dfm"), b.log("dfm")


def units_keep_state(evb):
    """The DFM's unit gives it a folder that it may write to; all else is read-only to it."""
    assert evb and "StateDirectory=evb\n" in (ROOT / "configs" / "systemd" / "evb-dfm.service").read_text()


if __name__ == "__main__":
    main({
        "removed-folder": removed_folder,
        "incomplete": incomplete,
        "no-state": no_state,
        "damaged-state": damaged_state,
        "units-keep-state": units_keep_state,
    })
