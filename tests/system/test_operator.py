#!/usr/bin/env python3
"""Operator mistakes with nodes that run as services: each node logs what happened to the run, and why.

    test_operator.py EVB [CASE...]
"""
import shutil
import signal

from harness import LIMIT_S, ROOT, main, times_logged
from test_join import PATIENT, ROLES, bed

NODES = [name for name in ROLES if name != "dfm"]


def removed_folder(evb):
    """Removing a file that is being written ends the run; lost events do not count as complete."""
    with bed(evb, {"trigger.events": 0}) as b:
        output = b.folder / "output"
        output.mkdir()
        b.start_all(keys={**PATIENT, "sfi.directory": output})
        b.wait("events of both SFIs", lambda: sum(p.stat().st_size > 50_000 for p in output.glob("*.writing")) == 2)
        # It would end the run after the first file, and the second one might be closed before it is removed.
        b.processes["dfm"].send_signal(signal.SIGSTOP)
        shutil.rmtree(output)
        b.processes["dfm"].send_signal(signal.SIGCONT)
        for sfi in ("sfi1", "sfi2"):
            b.end(sfi, expect=1)
            assert "No such file or directory" in b.log(sfi), b.log(sfi)
        report = b.end("dfm", expect=1)
        for sfi in ("sfi1", "sfi2"):
            text = f"the output of {sfi} failed (directory or file missing; sfi.directory = {output}): events that are complete may be in no file"
            assert text in report["reasons"], report
        for ros in ("ros1", "ros2", "ros3"):
            b.end(ros)
        # The same before the first file is open.
        output.mkdir()
        b.start_all(*(name for name in ROLES if name != "ros3"), keys={**PATIENT, "sfi.directory": output, "dfm.start-timeout": "100s"})
        b.wait("builders", lambda: all(times_logged(f"{sfi} has joined", b.log("dfm")) == 2 for sfi in ("sfi1", "sfi2")))
        output.rmdir()
        b.start("ros3", keys={**PATIENT, "sfi.directory": output})
        reasons = b.end("dfm", expect=1)["reasons"]
        # The first SFI that fails ends the run, perhaps before the other one has begun it.
        failed = [sfi for sfi in ("sfi1", "sfi2") if b.processes[sfi].wait(timeout=LIMIT_S) != 0 or "no run took place" not in b.log(sfi)]
        assert failed, (b.log("sfi1"), b.log("sfi2"))
        for sfi in failed:
            assert f"its output failed: No such file or directory in {output}" in b.end(sfi, expect=1)["reasons"]
            assert f"the output of {sfi} failed (directory or file missing; sfi.directory = {output}): events that are complete may be in no file" in reasons


def truncated_file(evb):
    """A file that is emptied while it is written ends the run as well: it does not count as complete."""
    with bed(evb, {**PATIENT, "trigger.events": 0}) as b:
        b.start_all()
        b.wait_written(50_000, "*_sfi1_*.writing")
        next(b.folder.glob("*_sfi1_*.writing")).write_bytes(b"")
        b.end("sfi1", expect=1)
        assert "another program changed or replaced the file" in b.log("sfi1"), b.log("sfi1")
        report = b.end("dfm", expect=1)
        assert "the output of sfi1 failed: events that are complete may be in no file" in report["reasons"], report
        b.end("sfi2")


def run_of(b):
    """Makes one whole run and returns its number."""
    b.start_all()
    return b.end_all()["dfm"]["run"]


def no_state(evb):
    """Without a state directory, consecutive runs still have different numbers; the DFM logs a warning."""
    with bed(evb, {**PATIENT, "trigger.events": 10}) as b:
        (b.folder / "state").write_text("no directory")
        assert run_of(b) != run_of(b)
        assert "cannot store run numbers in" in b.log("dfm"), b.log("dfm")
        assert "cannot store the state of the run in" in b.log("dfm"), b.log("dfm")


def damaged_state(evb):
    """A damaged record of run numbers does not lead to a number that may be in use."""
    with bed(evb, {**PATIENT, "trigger.events": 10}) as b:
        assert [run_of(b), run_of(b)] == [1, 2]
        state = b.folder / "state" / "evb"
        (state / "run-number").write_text("2\0\0x")
        b.run_record().write_text("run 2")
        number = run_of(b)
        assert number > 1_000_000_000 and run_of(b) == number + 1
        text = f"run-number is damaged, so the last run number is unknown; this run gets number {number}"
        assert text in b.log("dfm"), b.log("dfm")
        assert "is damaged, so the state of the last run is unknown" in b.log("dfm"), b.log("dfm")


def units_keep_state(evb):
    """The DFM's unit grants write access to its state directory only."""
    assert evb and "StateDirectory=evb\n" in (ROOT / "configs" / "systemd" / "evb-dfm.service.in").read_text()


def fewer_nodes(evb):
    """The DFM logs a node that its scenario lacks; the node learns the reason."""
    with bed(evb) as b:
        fewer = {name: role for name, role in ROLES.items() if name != "ros3"}
        b.start("dfm", file=b.write("short.conf", fewer))
        b.start("ros3")
        b.end("ros3", expect=1)
        assert f"its scenario has no node ros3 at {b.addresses['ros3']}" in b.log("ros3")
        b.wait_log("dfm", f"ignored a message from ros 3 at {b.addresses['ros3']}")
        assert "null" not in b.log("dfm"), b.log("dfm")


def comes_back(evb):
    """Nodes that lost their DFM exit, and their units restart them for its next run."""
    with bed(evb, {"dfm.node-timeout": "700ms", "dfm.start-timeout": "60s", "trigger.events": 0}) as b:
        b.start_all(*NODES)
        # It does not give up nodes that get no processor for a moment.
        b.start("dfm", keys=PATIENT)
        b.wait_written(100_000)
        b.kill("dfm")
        for name in NODES:
            b.end(name, expect=75)
            unit = (ROOT / "configs" / "systemd" / f"evb-{ROLES[name]}@.service.in").read_text()
            assert "Restart=on-failure\n" in unit and "RestartPreventExitStatus=1 2 77\n" in unit
        assert not list(b.folder.glob("*.writing")), "a node that ends seals its file"
        # The DFM may take long to start.
        b.start_all(*NODES, keys=PATIENT)
        b.start("dfm", keys={**PATIENT, "trigger.events": 100})
        reports = b.end_all()
        assert reports["dfm"]["run"] == 2 and reports["dfm"]["events_complete"] == 100, reports["dfm"]


def crash_loop(evb):
    """An SFI that restarts at once is noticed, and each restart logs few lines."""
    with bed(evb, {"trigger.events": 0, "trigger.rate": "100Hz", "dfm.node-timeout": "60s"}) as b:
        b.start_all()
        b.wait_written(50_000, "*_sfi1_*.writing")
        for i in range(1, 7):
            b.kill("sfi1")
            b.start("sfi1")
            b.wait_log("sfi1", f"continuing with number {i + 1:04}")
            # The DFM has seen it.
            b.wait_written(50_000, f"*_sfi1_{i + 1:04}.writing")
        lines = b.log("sfi1").splitlines()
        assert "has 3 more files that earlier SFIs did not close" in b.log("sfi1"), b.log("sfi1")
        assert sum("an earlier SFI did not close this file" in line for line in lines) == 1 + 2 + 3 * 4, lines
        b.wait("six restarts", lambda: times_logged("sfi1 has restarted", b.log("dfm")) == 6)


if __name__ == "__main__":
    main({
        "removed-folder": removed_folder,
        "truncated-file": truncated_file,
        "no-state": no_state,
        "damaged-state": damaged_state,
        "units-keep-state": units_keep_state,
        "fewer-nodes": fewer_nodes,
        "comes-back": comes_back,
        "crash-loop": crash_loop,
    })
