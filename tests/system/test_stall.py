#!/usr/bin/env python3
"""A run never stalls silently: each node names what it waits for, and a run that stays stalled ends.

    test_stall.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest.mock

from control import control_bed
from harness import LIMIT_S, Running, balance, made, folder, main, mounted, run, scenario, settings, watched
from test_join import ROLES, bed

SLOW_DISK = str(made("slow_disk.so"))
# No node counts as gone, and no event times out, while a case lasts.
PATIENT = {"dfm.node-timeout": "100s", "dfm.start-timeout": "60s", "sfi.timeout": "200s",
           "trigger.events": 0}


class Log:
    """Collects what a run writes to standard error while it goes on."""

    def __init__(self, where):
        self.path = pathlib.Path(where) / "stderr"
        self.file = self.path.open("w")

    def text(self):
        return self.path.read_text()


@contextlib.contextmanager
def running_with_log(evb, where, keys, env=None):
    log = Log(where)
    process = subprocess.Popen([evb, "run", scenario(where), "--json", *settings(watched(keys))], stdout=subprocess.PIPE, stderr=log.file,
                               text=True, env={**(env or os.environ), "EVB_LOG": "info"})
    with Running.of(process) as running:
        yield running, log


def finish(running, log, expect):
    out, _ = running.process.communicate(timeout=LIMIT_S)
    assert running.process.returncode == expect, f"exit {running.process.returncode}: {log.text()}\n{out}"
    report = json.loads(out)
    balance(report)
    return report


def node(report, name):
    (found,) = (each for each in report["nodes"] if each["name"] == name)
    return found


def disk_of(where):
    """A disk that can be held up; see slow_disk.c."""
    disk = pathlib.Path(where) / "disk"
    disk.mkdir()
    environment = {**os.environ, "LD_PRELOAD": SLOW_DISK, "EVB_TEST_DISK": str(disk),
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    (disk / "shut").touch()
    return disk / "shut", environment


def to_disk(where):
    # A fixed number, as the DFM would sync another one; each file is synced when it is closed.
    return {**PATIENT, "sfi.count": 1, "sfi.output": "file", "sfi.directory": where, "run.number": 7, "sfi.file-events": 100,
            "sfi.credits": 40, "trigger.rate": "2kHz"}


def slow_disk(evb):
    """A disk that takes nothing is named by the SFI with its directory, and by the DFM."""
    with folder() as where:
        shut, environment = disk_of(where)
        with running_with_log(evb, where, to_disk(where), env=environment) as (running, log):
            running.wait_for("reason of the SFI", lambda: re.search(f"sfi1: (still )?no progress for [0-9]+ s: slow disk: {where} for",
                                                                    log.text()))
            running.wait_for("reason of the DFM", lambda: re.search("dfm: (still )?no progress for [0-9]+ s: no credit from sfi1: "
                                                                    "slow disk on sfi1\n", log.text()))
            shut.unlink()
            running.wait_for("events", lambda: running.counter("dfm", "events_complete") > 500)
            running.signal()
            report = finish(running, log, 0)
        assert report["stall_reason"] == "no credit from sfi1: slow disk on sfi1", report
        assert node(report, "sfi1")["stall_reason"] == f"slow disk: {where}", report


def full_disk(evb):
    """A full disk ends the run as ever: SFI and DFM name it, the directory, and what to do."""
    with mounted() as (where, disk):
        report = run(evb, scenario(where), {**to_disk(disk), "sfi.file-events": 100_000}, expect=1)
    why = f"its output failed: No space left on device in {disk}; free space there, or set sfi.directory"
    assert why in node(report, "sfi1")["reasons"], report
    assert f"the output of sfi1 failed (disk full; sfi.directory = {disk}): events that are complete may be in no file" in node(report, "dfm")["reasons"], report


def timeout_disk(evb):
    """Events that an SFI cannot write are given up, and the run ends although the SFI still waits for its disk."""
    with folder() as where:
        shut, environment = disk_of(where)
        keys = {**to_disk(where), "run.stall-timeout": "6s", "run.stop-timeout": "1s"}
        with running_with_log(evb, where, keys, env=environment) as (running, log):
            running.wait_nodes(8)
            running.wait_for("end of the DFM", lambda: "dfm" not in running.nodes())
            shut.unlink()
            out, _ = running.process.communicate(timeout=LIMIT_S)
            report = json.loads(out)
        assert running.process.returncode == 1, log.text()
        # Just then, another node may have got no processor for two seconds.
        assert re.match(r"the run made no progress for [0-9]+ s: (no credit from sfi1: slow disk on sfi1|.* silent for )", report["reasons"][0]), report["reasons"]
        dfm = node(report, "dfm")
        assert dfm["events_lost"] > 0 and dfm["triggers"] == dfm["events_complete"] + dfm["events_lost"], dfm
        assert any(reason.startswith(f"it gave up {dfm['events_lost']} events") for reason in dfm["reasons"]), dfm
        assert node(report, "sfi1")["ended_by_stall"], report


class Manager:
    """Stands in for systemd: collects the states that nodes send to $NOTIFY_SOCKET."""

    def __init__(self, where):
        self.path = str(pathlib.Path(where) / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.states = []

    def has(self, pattern):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.states += [line for line in self.socket.recv(4096).decode().splitlines() if line.startswith("STATUS=")]
        return any(re.search(pattern, state) for state in self.states)


def status(evb):
    """The status that systemd shows has the reason, from the wait for nodes to the stall and its end."""
    with bed(evb, {**PATIENT, "trigger.rate": "500Hz", "sfi.credits": 20}) as b:
        dfm = Manager(b.folder)
        os.environ["NOTIFY_SOCKET"] = dfm.path
        b.start("dfm")
        del os.environ["NOTIFY_SOCKET"]
        b.wait("wait for nodes", lambda: dfm.has("STATUS=waiting for ros1, ros2, ros3, sfi1, sfi2"))
        b.start_all(*(name for name in ROLES if name != "dfm"))
        b.wait_in_run("sfi1")
        b.wait("running", lambda: dfm.has(r"STATUS=run \d+ of test running: [1-9]\d* events complete"))
        b.processes["ros1"].send_signal(signal.SIGSTOP)
        b.wait("stall", lambda: dfm.has(r"events complete; stalled: ros1 silent for \d+\.\d s$"))
        b.processes["ros1"].send_signal(signal.SIGCONT)
        b.wait_log("dfm", "progress again after")
        seen = len(dfm.states)
        b.wait("end of the stall", lambda: dfm.has("STATUS=") and any(
            re.search(r"running: \d+ events complete$", state) for state in dfm.states[seen:]))
        b.processes["dfm"].send_signal(signal.SIGTERM)
        report = b.end("dfm")
        # Another node may have got no processor when it began.
        assert report["stalls"] >= 1 and re.fullmatch(r"ros1(, \w+)* silent", report["stall_reason"]), report


def late_failure(evb):
    """A builder may close its last file long after the end of the run, and fail in that: the run counts as failed. One that is
    killed meanwhile is a reason, too."""
    with folder() as where, control_bed(evb, {**PATIENT, "dfm.node-timeout": "5s", "run.stop-timeout": "100s"}) as b:
        shut, environment = disk_of(where)
        shut.unlink()
        with unittest.mock.patch.dict(os.environ, environment):
            b.start("sfi1")
        b.start_all(*(name for name in ROLES if name != "sfi1"))
        b.wait_listening()
        broken = shut.parent / "broken"
        for spoil, status, reason in ((lambda: None, "ok", None),
                                      (lambda: broken.write_text("fsync\n"), "error", "the output of sfi1 failed: events"),
                                      (lambda: b.kill("sfi1"), "fell short", "sfi1 fell silent before it had closed its output: the last")):
            b.wait("all nodes", lambda: b.state()["state"] in ("configured", "error") and b.state()["nodes"]["missing"] == [])
            run = b.start_run()["run"]
            b.wait_triggers()
            shut.touch()
            b.ctl("stop")
            b.wait("sealing", lambda: b.state()["reason"] == "waiting for sfi1 to close the last file")
            # The other nodes are back, and would begin the next run. It lasts longer than dfm.node-timeout.
            since = time.monotonic()
            while status == "ok" and time.monotonic() < since + 7:
                assert (now := b.state())["state"] == "draining", now
                time.sleep(0.2)
            spoil()
            shut.unlink()
            b.wait("end", lambda n=run: (b.state()["last_run"] or {"run": None})["run"] == n)
            last = b.state()["last_run"]
            assert last["status"] == status and (not reason or last["reasons"][0].startswith(reason)), last
            broken.unlink(missing_ok=True)
        b.terminate(expect={"dfm": 1}, names=[name for name in ROLES if name != "sfi1"])


if __name__ == "__main__":
    main({
        "slow-disk": slow_disk,
        "full-disk": full_disk,
        "timeout-disk": timeout_disk,
        "status": status,
        "late-failure": late_failure,
    })
