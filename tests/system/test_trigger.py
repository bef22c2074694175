#!/usr/bin/env python3
"""Runs with a trigger box that the test plays: it sends triggers over UDP and receives the busy signal.

    test_trigger.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess

from board import CREDITS, MARKER, READY, RESET, SPILL_BEGINS, SPILL_ENDS, STOPPED, Board
from harness import LIMIT_S, Running, balance, complete, folder, main, scenario, settings


@contextlib.contextmanager
def board_run(evb, keys=None):
    """Starts a run of two ROSs and two SFIs; yields it and its trigger box once triggers are taken."""
    board = Board()
    with folder() as where, Running(evb, scenario(where), {
            **board.keys(), "ros.count": 2, "sfi.output": "file", "sfi.directory": where, "sfi.format": "eformat5",
            "ros.fragment-size": 200, "run.number": 4711, **(keys or {})}) as running:
        running.wait_nodes(5)
        board.connect(running)
        board.wait_ready()
        yield running, board


def wait_offered(running, n):
    running.wait_for(f"{n} triggers", lambda: running.counter("dfm", "triggers_offered") >= n)


def wait_built(running, n):
    running.wait_for(f"{n} events", lambda: running.counter("dfm", "events_complete") >= n)


def stop(running, expect=0, again=True):
    """Stops the run by hand; returns its report and standard error."""
    if again:
        running.signal()
    out, err = running.process.communicate(timeout=LIMIT_S)
    assert running.process.returncode == expect, (running.process.returncode, err, out)
    report = json.loads(out)
    balance(report)
    ends = sum(report[f"triggers_{end}"] for end in ("refused", "repeated", "implausible", "not_taken"))
    assert report["triggers_offered"] == report["triggers"] + ends, report
    return report, err


def headers(report):
    """Returns global ID, L1 ID, trigger type and time of each event in the files of format v5.0."""
    found = []
    for path in report["files"]:
        data = pathlib.Path(path).read_bytes()
        words = struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4])
        for at in [i for i, word in enumerate(words) if word == 0xAA1234AA and words[i + 3] == 0x05000000]:
            specific = words[at + 7 + words[at + 5]:]
            found.append((specific[2] | specific[3] << 32, specific[7], specific[9], specific[0] * 10 ** 9 + specific[1],
                          specific[5]))
    return sorted(found)


def whole(evb, mode):
    """Each trigger becomes one event, with the number, time and type that the board gave it."""
    n, first, time_ns = 2000, 2 ** 32 + 2 ** 31 - 1000, 1_700_000_000 * 10 ** 9
    with board_run(evb, {"scenario.mode": mode}) as (running, board):
        for k in range(0, n, 20):
            board.wait_ready()
            board.send(first + k, 20, time_ns=time_ns + k, type_=0x80 + k // 20 % 2, run=4711 * (k % 40 == 0))
        wait_built(running, n)
        report, _ = stop(running)
        complete(report)
        assert report["triggers"] == report["triggers_offered"] == n and report["events_stored"] == n, report
        assert report["trigger_datagrams"] == n // 20 and report["trigger_datagrams_lost"] == 0, report
        assert headers(report) == [(first + k, (first + k) % 2 ** 32, 0x80 + k // 20 % 2, time_ns + k, 4711)
                                   for k in range(n)]
        for path in report["files"]:
            done = subprocess.run([evb, "dump", path, "--verify", "--json"], capture_output=True, text=True, check=True)
            assert json.loads(done.stdout)["verify"]["pattern_wrong"] == 0, done.stdout


def lost(evb):
    """Lost datagrams fail the run, repeated ones and gaps in the numbers do not."""
    with board_run(evb) as (running, board):
        for k in range(50):
            board.send(10 * k, 5)  # numbers have gaps
            board.sender.send(board.datagram(10 * k, 5, sequence=board.sequence - 1))
        wait_built(running, 250)
        report, _ = stop(running)
        assert report["trigger_datagrams_repeated"] == 50 and report["trigger_datagrams_lost"] == 0, report
        assert report["triggers"] == 250 and report["trigger_numbers_missing"] == 49 * 5, report
    with board_run(evb) as (running, board):
        board.send(0, 5)
        board.sequence += 3
        board.send(20, 5)
        wait_built(running, 10)
        report, err = stop(running, expect=1)
        assert report["trigger_datagrams_lost"] == 3 and report["triggers"] == 10, report
        assert "3 datagrams with triggers are lost" in err, err


def went_back(evb):
    """Numbers that go back without a counter reset are refused; with it, events follow."""
    with board_run(evb) as (running, board):
        board.send(100, 10)
        board.send(105, 10)
        board.send(0, 10)
        wait_offered(running, 30)
        board.send(0, 10, flags=RESET)
        wait_built(running, 25)
        report, err = stop(running, expect=1)
        assert report["triggers"] == 25 and report["triggers_repeated"] == 15 and report["trigger_resets"] == 1, report
        assert "15 of 40 triggers are repeated: their number came before" in err, err
        assert [h[0] for h in headers(report)] == [*range(10), *range(100, 115)]


def reset(evb):
    """Many resets while events are being built: nothing is lost, and a board may restart its sequence."""
    with board_run(evb) as (running, board):
        for k in range(40):
            board.send(0, 25, flags=RESET | SPILL_BEGINS)
            board.send(25, 25)
            board.send(0, 1, flags=MARKER | SPILL_ENDS)
        wait_built(running, 2000)
        report, _ = stop(running)
        complete(report)
        assert report["triggers"] == 2000 and report["trigger_resets"] == 40, report
        assert report["spills"] == {"begun": 40, "ended": 40, "triggers": 2000}, report["spills"]
        assert [h[0] for h in headers(report)] == sorted(40 * [*range(50)])


def marker(evb):
    """A reset that a marker announces is over before the next trigger, which needs no flag."""
    with board_run(evb) as (running, board):
        for _ in range(20):
            board.reset()
            board.send(0, 25)
        wait_built(running, 500)
        report, _ = stop(running)
        complete(report)
        assert report["triggers"] == 500 and report["trigger_resets"] == 20, report
        assert [h[0] for h in headers(report)] == sorted(20 * [*range(25)])


def stopped(evb):
    """Triggers that wait or come after a stop by hand are not taken, and the run is a success."""
    with board_run(evb, {"trigger.queue": 20000, "sfi.credits": 100}) as (running, board):
        board.send(0, 100)
        wait_built(running, 100)
        sfis = [running.nodes()[f"sfi{i}"] for i in (1, 2)]
        for pid in sfis:
            os.kill(pid, signal.SIGSTOP)
        for k in range(0, 5000, 250):
            board.send(100 + k, 250)
        wait_offered(running, 5100)
        board.wait("busy", lambda _, reason, __: reason == CREDITS)
        running.signal()
        board.wait("stopped", lambda _, reason, __: reason == STOPPED)
        board.send(5100, 10)
        wait_offered(running, 5110)
        for pid in sfis:
            os.kill(pid, signal.SIGCONT)
        report, _ = stop(running, again=False)
        complete(report)
        assert report["triggers"] <= 300 and report["triggers_not_taken"] == 5110 - report["triggers"], report
        assert report["triggers_refused"] == 0, report


def too_fast(evb, obeys):
    """A board faster than the SFIs: one that obeys the signal loses nothing, another one is refused."""
    keys = {"trigger.queue": 20000 if obeys else 1000, "sfi.credits": 200}
    with board_run(evb, keys) as (running, board):
        board.send(0, 100)
        wait_built(running, 100)
        sfis = [running.nodes()[f"sfi{i}"] for i in (1, 2)]
        for pid in sfis:
            os.kill(pid, signal.SIGSTOP)
        sent = 100
        while sent < 4000 and not (obeys and board.listen()[0]):
            board.send(sent, 10)
            sent += 10
        board.wait("busy", lambda state, reason, _: state == 1 and reason == CREDITS)
        wait_offered(running, sent)
        for pid in sfis:
            os.kill(pid, signal.SIGCONT)
        if obeys:
            for _ in range(100):
                board.wait_ready()
                board.send(sent, 10)
                sent += 10
        wait_offered(running, sent)
        board.wait_ready()
        running.wait_for("empty queue", lambda: running.counter("dfm", "events_complete") ==
                         sent - running.counter("dfm", "triggers_refused"))
        report, err = stop(running, expect=0 if obeys else 1)
        complete(report)
        assert board.seen >= {READY, CREDITS} and report["busy_datagrams"] > 2, (board.seen, report)
        assert report["busy_seconds"] > 0, report
        if obeys:
            assert report["triggers"] == sent and report["triggers_refused"] == 0, report
        else:
            # 200 credits of each SFI and the queue hold the rest.
            assert report["triggers_refused"] >= 3900 - 1000 - 2 * 200, report
            assert "were refused, because trigger.queue was full" in err, err


def hostile(evb):
    """Whatever comes to the port is counted, and disturbs nothing."""
    with board_run(evb) as (running, board):
        good = board.datagram(0, 3)
        bad = [b"", b"E", b"EVBT", good[:-1], good + b"x", b"EVBX" + good[4:], good[:4] + b"\x02" + good[5:],
               good[:6] + b"\xff\xff" + good[8:], good[:36] + b"\xff" + good[37:], os.urandom(60000)]
        for _ in range(20):
            for data in bad:
                board.sender.send(data)
        board.sender.send(board.datagram(0, 3, run=9))
        for k in range(20):
            board.send(5 * k, 5)
        wait_built(running, 100)
        report, err = stop(running)
        complete(report)
        assert err.count("that is not a trigger datagram: ") == 1, err
        assert re.search(r"dfm: ignored a datagram from 127\.\S+ that is not a trigger datagram: it has 0 bytes, expected at least", err), err
        (dfm,) = (node for node in report["nodes"] if node["role"] == "dfm")
        assert report["triggers"] == 100 and report["trigger_datagrams_other_run"] == 1, report
        assert dfm["packets_foreign"] == 20 * 4 + 20 and dfm["packets_malformed"] == 20 * 5, dfm


def other_sizes(evb):
    """A datagram may hold as many triggers as UDP carries, and a burst of datagrams is not lost."""
    with board_run(evb, {"trigger.queue": 65536}) as (running, board):
        for k in range(8):
            board.send(2700 * k, 2700)
        wait_built(running, 8 * 2700)
        report, _ = stop(running)
        complete(report)
        assert report["triggers"] == 8 * 2700, report


def clock(evb):
    """Without triggers, each slice of time is an event."""
    with folder() as where, Running(evb, scenario(where), {
            "trigger.source": "clock", "trigger.slice": "5ms", "trigger.events": 200, "ros.count": 2, "sfi.output": "file",
            "sfi.directory": where, "sfi.format": "eformat5"}) as running:
        report = running.end(expect=(0, 1))
        # A machine that stands still for long makes slices wait, but none is lost without being counted.
        assert report["triggers"] == 200 == report["events_complete"] and report["triggers_refused"] == 0, report
        found = headers(report)
        assert [h[0] for h in found] == [h[1] for h in found] == list(range(200)), found
        times = [h[3] for h in found]
        assert {b - a for a, b in zip(times, times[1:])} == {5_000_000}, times


def no_trigger(evb):
    """If no trigger comes, the run says so."""
    with board_run(evb) as (running, _):
        running.signal()
        _, err = running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1 and "no trigger was accepted: no trigger came to UDP port " in err, err


def refused(evb):
    """`evb check` refuses what a run would refuse."""
    for keys, text in (({"trigger.source": "tcp:26801"}, "expected internal, udp:PORT, frames or clock"),
                       ({"trigger.source": "frames"}, "frames make the triggers only if they carry numbers; set ros.event-number"),
                       ({"trigger.source": "frames", "ros.event-number": "0:32", "trigger.leader": "sfi1"}, "not a ROS with a front-end"),
                       ({"trigger.source": "udp:26801"}, "is network.data-port"),
                       ({"trigger.busy-to": "somewhere:1"}, "expected none, or HOST:PORT"),
                       ({"trigger.busy-to": "[::1]:1"}, None),
                       ({"trigger.busy-above": "0.5"}, "less than trigger.busy-above")):
        with folder() as where:
            done = subprocess.run([evb, "check", scenario(where), *settings(keys)], capture_output=True, text=True, timeout=60)
            assert done.returncode == (2 if text else 0) and (text or "") in done.stderr, (keys, done.stderr)


main({"push": lambda evb: whole(evb, "push"), "pull": lambda evb: whole(evb, "pull"), "lost": lost, "went-back": went_back,
      "reset": reset, "marker": marker, "stopped": stopped, "too-fast": lambda evb: too_fast(evb, False), "obeys-busy": lambda evb: too_fast(evb, True),
      "hostile": hostile, "large": other_sizes, "clock": clock, "no-trigger": no_trigger, "refused": refused})
