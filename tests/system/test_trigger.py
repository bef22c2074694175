#!/usr/bin/env python3
"""Runs with a trigger box that the test plays: it sends triggers over UDP and receives the busy signal.

    test_trigger.py EVB [CASE...]
"""
import contextlib
import json
import pathlib
import struct
import subprocess

from board import Board
from harness import Running, complete, folder, main, scenario, settings


@contextlib.contextmanager
def board_run(evb):
    """Starts a run of two ROSs and two SFIs; yields it and its trigger box once triggers are taken."""
    board = Board()
    with folder() as where, Running(evb, scenario(where), {
            **board.keys(), "ros.count": 2, "sfi.output": "file", "sfi.directory": where, "sfi.format": "eformat5",
            "ros.fragment-size": 200, "run.number": 4711}) as running:
        running.wait_nodes(5)
        board.connect(running)
        board.wait_ready()
        yield running, board


def wait_built(running, n):
    running.wait_for(f"{n} events", lambda: running.counter("dfm", "events_complete") >= n)


def stop(running):
    """Stops the run by hand; returns its report."""
    running.signal()
    report = running.end(expect=(0,))
    ends = sum(report[f"triggers_{end}"] for end in ("refused", "repeated", "implausible", "not_taken"))
    assert report["triggers_offered"] == report["triggers"] + ends, report
    return report


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


def whole(evb):
    """Each trigger becomes one event, with the number, time and type that the board gave it."""
    n, first, time_ns = 2000, 2 ** 32 + 2 ** 31 - 1000, 1_700_000_000 * 10 ** 9
    with board_run(evb) as (running, board):
        for k in range(0, n, 20):
            board.wait_ready()
            board.send(first + k, 20, time_ns=time_ns + k, type_=0x80 + k // 20 % 2, run=4711 * (k % 40 == 0))
        wait_built(running, n)
        report = stop(running)
        complete(report)
        assert report["triggers"] == report["triggers_offered"] == n and report["events_stored"] == n, report
        assert report["trigger_datagrams"] == n // 20 and report["trigger_datagrams_lost"] == 0, report
        assert headers(report) == [(first + k, (first + k) % 2 ** 32, 0x80 + k // 20 % 2, time_ns + k, 4711)
                                   for k in range(n)]
        for path in report["files"]:
            done = subprocess.run([evb, "dump", path, "--verify", "--json"], capture_output=True, text=True, check=True)
            assert json.loads(done.stdout)["verify"]["pattern_wrong"] == 0, done.stdout


def refused(evb):
    """`evb check` refuses what a run would refuse."""
    for keys, text in (({"trigger.source": "tcp:26801"}, "expected internal, udp:PORT, frames or clock"),
                       ({"trigger.source": "frames"}, "no ROS has a board whose frames make the triggers"),
                       ({"trigger.source": "frames:sfi1", "ros.event-number": "0:32"}, "not a ROS with a front-end"),
                       ({"trigger.source": "udp:26801"}, "is the port after network.port"),
                       ({"trigger.busy-to": "somewhere:1"}, "expected none, or HOST:PORT"),
                       ({"trigger.busy-to": "[::1]:1"}, None)):
        with folder() as where:
            done = subprocess.run([evb, "check", scenario(where), *settings(keys)], capture_output=True, text=True, timeout=60)
            assert done.returncode == (2 if text else 0) and (text or "") in done.stderr, (keys, done.stderr)


main({"push": whole,
      "refused": refused})
