#!/usr/bin/env python3
"""Whatever dies, is lost, or is sent to it, a run ends with its accounts in balance.

    test_faults.py EVB CASE
"""
import os
import resource
import signal
import socket
import subprocess
import sys

from harness import (SHARED, SMALL, Running, complete, folder, main, run, scenario)

# Short times, so that what dies is noticed soon.
QUICK = {"dfm.node-timeout": "600ms", "dfm.keep-alive": "50ms", "sfi.timeout": "400ms", "dfm.event-timeout": "1s"}
ENDLESS = {"trigger.events": 0, "trigger.rate": "2kHz"}
LONG = {**ENDLESS, **QUICK}


def loss(evb, mode, transport="udp"):
    with folder() as where:
        report = run(evb, scenario(where), {"scenario.mode": mode, "scenario.transport": transport, "network.loss": "0.05",
                                            "network.reorder": "0.02", "network.duplicate": "0.02"})
        complete(report)
        if transport == "udp":
            assert report["fragments"]["recovered"] > 0, "nothing was lost, so nothing was tested"
            assert report["drops"]["network_packets"] > 0, report["drops"]


def no_re_asking(evb):
    """Without asking again loss shows as partial events, and is told."""
    with folder() as where:
        report = run(evb, scenario(where), {"network.loss": "0.05", "sfi.re-ask": 0, "sfi.timeout": "200ms"}, expect=1)
        assert report["events_partial"] > 0 and report["fragments"]["lost"] > 0, report


def kill(evb, victim, mode):
    with folder() as where, Running(evb, scenario(where), {"scenario.mode": mode, **LONG}) as running:
        running.wait_nodes(9)
        running.wait_running()
        os.kill(running.nodes()[victim], signal.SIGKILL)
        running.wait_for("death", lambda: victim not in running.nodes())
        if victim != "dfm":
            before = running.counters("dfm")
            running.wait_for("progress", lambda: "dfm" not in running.nodes() or running.counters("dfm") != before)
            running.signal()
        report = running.end(expect=(1,))
        dead = next(n for n in report["nodes"] if n["name"] == victim)
        assert dead["signal"] == 9, dead
        assert report["events_complete"] > 0, report


def only_sfi(evb):
    """No SFI is left: nothing can be built, and the run ends by itself."""
    with folder() as where, Running(evb, scenario(where), {"sfi.count": 1, **LONG}) as running:
        running.wait_nodes(8)
        running.wait_running()
        os.kill(running.nodes()["sfi1"], signal.SIGKILL)
        report = running.end(expect=(1,))
        assert report["events_complete"] > 0, report


def interrupt(evb, number):
    """Ctrl-C: what has begun is finished, nothing is lost, status 0."""
    with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
        running.wait_nodes(9)
        running.wait_running()
        running.signal(number)
        complete(running.end(expect=(0,)))


def interrupt_twice(evb):
    with folder() as where, Running(evb, scenario(where), {**LONG, "dfm.event-timeout": "60s", "sfi.timeout": "50s"}) as running:
        running.wait_nodes(9)
        running.wait_running()
        os.kill(running.nodes()["ros1"], signal.SIGSTOP)  # so that draining cannot end
        running.signal()
        running.wait_for("first signal", lambda: True)
        os.kill(running.process.pid, signal.SIGINT)
        running.end(expect=(1,))


def foreign(evb):
    """Datagrams that are not ours are counted as what they are, and change nothing."""
    with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
        running.wait_nodes(9)
        running.wait_running()
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ours = bytes.fromhex("45564231 0100 2000 01000000 0200 0000")
        hostile = [b"", b"x", b"EVB1", ours, ours + bytes(16), bytes(1400), b"EVB1" + b"\xff" * 1000, os.urandom(900),
                   b"EVB1\x02\x00" + bytes(40), b"EVB1\x01\x00\x20\x00\x63\x00\x00\x00" + bytes(60)]
        for node in ("dfm", "ros1", "sfi1", "sfi2"):
            for port in (26800, 26801):
                for bytes_ in hostile:
                    try:
                        sender.sendto(bytes_, (running.address(node), port))
                    except ConnectionRefusedError:
                        pass
        running.signal()
        report = running.end(expect=(0,))
        complete(report)
        assert report["fragments"]["foreign"] > 0 and report["fragments"]["malformed"] > 0, report["fragments"]


def full_disk(evb):
    """A write error is told, ends the run, and leaves a file that others can read."""
    limit = 3 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with folder() as where:
        report = run(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "sfi.count": 1, "trigger.events": 0,
                                            "trigger.rate": "5kHz", **QUICK}, expect=1, preexec_fn=limited)
        assert report["events_lost"] > 0 and report["events_complete"] > 0, report
        (path,) = report["files"]
        assert path.endswith(".data") and os.path.getsize(path) <= limit
        done = subprocess.run([evb, "dump", path, "--verify"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        checker = SHARED / "tools" / "eformat3_check.py"
        if checker.exists():
            subprocess.run([sys.executable, checker, path], check=True, capture_output=True)


def small_memory(evb):
    """Buffers far too small for the rate: overload is busy, not memory, and nothing is lost for it."""
    with folder() as where:
        report = run(evb, scenario(where), {"sfi.buffer-size": "4MiB", "ros.buffer-size": "4MiB", "ros.fragment-size": "200KiB",
                                            "trigger.events": 200, "sfi.count": 1})
        complete(report)
        assert report["busy_seconds"] > 0, report


def flat_memory(evb):
    """Four times as many events need no more memory."""
    with folder() as where:
        peaks = [run(evb, scenario(where), {"trigger.events": n})["peak_rss_bytes"] for n in (20000, 80000)]
        for role in ("ros", "dfm", "sfi"):
            assert peaks[1][role] < peaks[0][role] * 1.1 + (4 << 20), (role, peaks)


CASES = {
    "loss-push": lambda evb: loss(evb, "push"),
    "loss-pull": lambda evb: loss(evb, "pull"),
    "loss-push-tcp": lambda evb: loss(evb, "push", "tcp"),
    "loss-pull-tcp": lambda evb: loss(evb, "pull", "tcp"),
    "no-re-asking": no_re_asking,
    "only-sfi": only_sfi,
    "interrupt": lambda evb: interrupt(evb, signal.SIGINT),
    "terminate": lambda evb: interrupt(evb, signal.SIGTERM),
    "interrupt-twice": interrupt_twice,
    "foreign": foreign,
    "full-disk": full_disk,
    "small-memory": small_memory,
    "flat-memory": flat_memory,
}
for victim_ in ("ros3", "sfi1", "dfm"):
    for mode_ in ("push", "pull"):
        CASES[f"kill-{victim_}-{mode_}"] = lambda evb, v=victim_, m=mode_: kill(evb, v, m)

assert SMALL
main(CASES)
