#!/usr/bin/env python3
"""Boards whose frames carry the number of their trigger: no event mixes triggers, and every frame is accounted for.

    test_front_ends.py EVB [CASE...]
"""
import contextlib
import heapq
import json
import math
import os
import pathlib
import random
import re
import signal
import socket
import struct
import time

from harness import Running, balance, folder, main, payloads_by_l1_id, scenario

PORT = 47100 + os.getpid() % 800
NUMBERED = """
[scenario]
mode = push
[trigger]
rate = 1kHz
[ros]
count = 3
wait = 8s
[sfi]
count = 1
output = file
timeout = 24s
verify = no
[dfm]
event-timeout = 60s
node-timeout = 30s
"""


class Board:
    """A board that reads out each trigger and misses some."""

    def __init__(self, name, bits, start, seed, big_endian=False, **faults):
        self.name, self.bits, self.start, self.big = name, bits, start, big_endian
        self.random = random.Random(seed)
        self.missed, self.late = faults.get("missed", 0.0), faults.get("late", 0.0)
        self.restart = faults.get("restart")  # from this trigger on, it counts from 0
        self.waiting, self.sent = [], set()

    def counter(self, n):
        n = n - self.restart if self.restart and n >= self.restart else n + self.start
        return (n % 2 ** self.bits).to_bytes(self.bits // 8, "big" if self.big else "little")

    def frame(self, n):
        payload = b"abc" + self.counter(n) + struct.pack("<I", n) + bytes([n % 251] * (40 + n % 100))
        return struct.pack("<I", len(payload)) + payload

    def trigger(self, n):
        # A late frame follows that of the trigger 50 ms later, however late this test is.
        if self.random.random() >= self.missed:
            heapq.heappush(self.waiting, (n + (50 if self.random.random() < self.late else 0), n))

    def deliver(self, until, send):
        while self.waiting and self.waiting[0][0] < until:
            n = heapq.heappop(self.waiting)[1]
            send(self.frame(n))
            self.sent.add(n)


def number_of(payload, bits):
    return struct.unpack_from("<I", payload, 3 + bits // 8)[0]


@contextlib.contextmanager
def boards_run(evb, transport, boards, keys=None):
    """Starts a run with these boards; yields the run, and what sends a frame of each."""
    bits, big = boards[0].bits, boards[0].big
    with folder() as where, contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=8))
        source = f"udp:{PORT}" if transport == "udp" else f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        running = stack.enter_context(Running(evb, scenario(where, NUMBERED), {
            "ros.count": len(boards), "ros.source": source, "ros.event-number": f"3:{bits}{':be' if big else ''}",
            "ros.number-from": boards[0].start, "sfi.directory": where, **(keys or {})}))
        running.wait_nodes(2 + len(boards))
        addresses = {running.address(b.name): b for b in boards}
        senders = {}
        if transport == "udp":
            bound = pathlib.Path("/proc/net/udp")
            for address, board in addresses.items():
                at = f" {struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{PORT:04X} "
                running.wait_for("front-end port", lambda a=at: a in bound.read_text())
                s = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                s.connect((address, PORT))
                senders[board.name] = s.send
        else:
            listener.settimeout(60)
            for _ in boards:
                connection, (peer, _) = listener.accept()
                stack.enter_context(connection)
                senders[addresses[peer].name] = connection.sendall
        yield running, senders


def read_out(running, boards, senders, n):
    """The boards read out the first n triggers, as soon as the DFM counts them."""
    done = 0
    while done < n or any(b.waiting for b in boards):
        assert running.process.poll() is None, "the run ended before its boards"
        until = max(done, min(running.counter("dfm", "triggers"), n))
        for b in boards:
            for k in range(done, until):
                b.trigger(k)
            b.deliver(until if until < n else math.inf, senders[b.name])
        done = until
        time.sleep(0.002)


def check(report, boards, usable=lambda board, n: True):
    """Every event has the frames of its trigger, all that were sent, and no other; returns their number."""
    found = {}
    for path in report["files"]:
        found.update(payloads_by_l1_id(path))
    bits, n_used = boards[0].bits, 0
    for l1_id, payloads in found.items():
        numbers = [number_of(p, bits) for p in payloads if p]
        assert set(numbers) <= {l1_id}, f"event {l1_id} has fragments of triggers {numbers}"
        expected = sum(l1_id in b.sent and usable(b, l1_id) for b in boards)
        assert len(numbers) == expected, f"event {l1_id} has {len(numbers)} fragments, expected {expected}"
        n_used += len(numbers)
    ends = report["front_ends"]
    assert ends["frames"] == sum(len(b.sent) for b in boards), (ends, [len(b.sent) for b in boards])
    assert ends["frames"] == sum(ends[c] for c in ("used", "late", "duplicate", "impossible", "dropped", "left_over")), ends
    assert ends["used"] >= n_used and ends["dropped"] == ends["gaps"] == 0, (ends, n_used)
    assert report["fragments"]["mismatched"] == 0, report["fragments"]
    return n_used


def numbers(evb, transport, bits, big_endian=False, mode="push"):
    """Boards miss triggers and deliver late, and their counters wrap."""
    n = 3000
    boards = [Board(f"ros{i}", bits, 2 ** bits - 1000, i, big_endian, missed=0.01, late=0.01) for i in (1, 2, 3)]
    with boards_run(evb, transport, boards, {"trigger.events": n, "scenario.mode": mode}) as (running, senders):
        read_out(running, boards, senders, n)
        report = running.end(expect=(1,))
        n_used = check(report, boards)
        assert n_used == sum(len(b.sent) for b in boards) == report["front_ends"]["used"], (n_used, report["front_ends"])
        complete = sum(all(k in b.sent for b in boards) for k in range(n))
        assert 0 < complete == report["events_complete"] < n and report["triggers"] == n, (complete, report)
        assert report["front_ends"]["absent"] == 3 * n - n_used, report["front_ends"]


def restarted_board(evb, transport):
    """A board that counts from 0 again is noticed; its frames are used for nothing, and the others go on."""
    n = 3000
    boards = [Board(f"ros{i}", 16, 0, i, late=0.01, restart=1000 if i == 2 else None) for i in (1, 2, 3)]
    with boards_run(evb, transport, boards, {"trigger.events": n}) as (running, senders):
        read_out(running, boards, senders, n)
        out, err = running.process.communicate(timeout=120)
        assert running.process.returncode == 1, err
        assert "do not follow the triggers: the last one is " in err and "the board has restarted, or its number" in err, err
        report = json.loads(out)
        check(report, boards, lambda b, k: b.restart is None or k < b.restart)
        assert report["front_ends"]["restarts"] == 1 and report["balanced"], report["front_ends"]
        assert any("fell out of step with the triggers once: " in r for r in report["reasons"]), report["reasons"]


def restarted_at_once(evb, transport):
    """A board misses trigger 5 and restarts while its event waits: the new frame 5, of trigger 12, is not used for it."""
    n = 40
    boards = [Board(f"ros{i}", 16, 0, i, restart=7 if i == 2 else None) for i in (1, 2, 3)]
    with boards_run(evb, transport, boards, {"trigger.events": n, "sfi.credits": 100}) as (running, senders):
        running.wait_for("triggers", lambda: running.counter("dfm", "triggers") == n)
        for b in boards:
            b.sent.update(k for k in range(n) if b.restart is None or (k != 5 and k <= 12))
            for k in sorted(b.sent):
                senders[b.name](b.frame(k))
        report = running.end(expect=(1,))
        check(report, boards, lambda b, k: b.restart is None or k < b.restart)
        ends = report["front_ends"]
        assert ends["duplicate"] == 5 and ends["late"] + ends["impossible"] == 1 and report["events_complete"] == 6, (ends, report)


def byte_order(evb):
    """A wrong ros.event-number is named, with the numbers and the order that would fit."""
    n = 300
    boards = [Board(f"ros{i}", 32, 0, i) for i in (1, 2)]
    with boards_run(evb, "udp", boards, {"trigger.events": n, "ros.event-number": "3:32:be", "ros.wait": "5s"}) as (running, senders):
        read_out(running, boards, senders, n)
        out, err = running.process.communicate(timeout=120)
        assert running.process.returncode == 1, err
        words = r"the last one is (\d+), expected about (\d+); in the other byte order it is (\d+), so ros\.event-number should be 3:32 instead of 3:32:be"
        found = re.search(words, err)
        assert found and abs(int(found[2]) - int(found[3])) < 1000, err
        assert int(found[1]).to_bytes(4, "big") == int(found[3]).to_bytes(4, "little"), found[0]
        report = json.loads(out)
        assert report["front_ends"]["used"] < 2 * n and report["balanced"], report["front_ends"]


def twice(evb, transport):
    """Boards send two frames for each trigger: the first one is in the event, the second is counted and named."""
    n = 1000
    boards = [Board(f"ros{i}", 32, 0, i) for i in (1, 2, 3)]
    with boards_run(evb, transport, boards, {"trigger.events": n, "trigger.rate": "3kHz"}) as (running, senders):
        doubled = {name: lambda frame, send=send: (send(frame), send(frame)) for name, send in senders.items()}
        read_out(running, boards, doubled, n)
        out, err = running.process.communicate(timeout=120)
        assert running.process.returncode == 1, err
        report = json.loads(out)
        ends = report["front_ends"]
        assert report["events_complete"] == n and report["balanced"], (report, err)
        assert ends == {**ends, "frames": 6 * n, "used": 3 * n, "duplicate": 3 * n, "restarts": 0}, ends
        assert sum("frames of its front-end that have the same number" in r for r in report["reasons"]) == 3, report["reasons"]
        assert any("reported frames of the front-end that are lost, or in no event" in r for r in report["reasons"]), report["reasons"]
        assert "a frame has the same number as an earlier one, 0, and is discarded" in err, err


def offset(evb):
    """A board counts from 1, the trigger and the other board from 0: this is named at both ends of the run."""
    n = 500
    boards = [Board(f"ros{i}", 32, i - 1, i) for i in (1, 2)]
    with boards_run(evb, "udp", boards, {"trigger.events": n, "ros.wait": "2s"}) as (running, senders):
        read_out(running, boards, senders, n)
        out, err = running.process.communicate(timeout=120)
        assert running.process.returncode == 1, err
        report = json.loads(out)
        assert report["events_complete"] == n - 1 and report["events_partial"] == 1, report["front_ends"]
        assert report["front_ends"]["left_over"] == report["front_ends"]["absent"] == 1 and report["balanced"], report["front_ends"]
        assert any("ros2: the numbers of its front-end seem to be 1 too high" in r and "ros.number-from should be 1" in r
                   for r in report["reasons"]), report["reasons"]
        assert "ros2: front-end: no frame came for the first trigger of the run" in err and "ros1: front-end:" not in err, err
        assert "dfm: ros2 has frames whose numbers seem to be those of other triggers" in err, err


def stopped(evb, transport):
    """Boards stop first, then the run: what nobody answers was not taken, and the end is clean."""
    n = 1000
    boards = [Board(f"ros{i}", 32, 7, i) for i in (1, 2, 3)]
    with boards_run(evb, transport, boards) as (running, senders):
        read_out(running, boards, senders, n)
        running.wait_for("all events", lambda: running.counter("dfm", "events_complete") == n)
        running.wait_for("a trigger more", lambda: running.counter("dfm", "triggers") > n)
        if transport == "tcp":
            for send in senders.values():
                send.__self__.close()
        running.signal(signal.SIGTERM)
        out, err = running.process.communicate(timeout=120)
        # A board that closes its connection at the end is no fault.
        assert running.process.returncode == 0 and "connection lost" not in err and "Broken pipe" not in err, err
        report = json.loads(out)
        balance(report)
        check(report, boards)
        assert report["triggers"] == report["events_complete"] == n, report
        assert report["triggers_not_taken"] > 0 and report["reasons"] == [], report


def dropped(evb):
    """Frames for which the ROS has no room are lost beam data: exit status 1, with the reason."""
    boards = [Board("ros1", 32, 0, 1)]
    with boards_run(evb, "udp", boards, {"ros.buffer-events": 100}) as (running, senders):
        running.wait_for("first trigger", lambda: running.counter("dfm", "triggers") > 0)
        for k in range(10000):
            senders["ros1"](boards[0].frame(k))
        running.wait_for("drops", lambda: running.counter("ros1", "front_end_dropped") > 0)
        running.signal(signal.SIGTERM)
        report = running.end(expect=(1,))
        ends = report["front_ends"]
        assert ends["dropped"] > 0 and report["balanced"], ends
        assert any("frames of the front-end did not fit into" in r for r in report["reasons"]), report["reasons"]


main({"numbers-udp-16": lambda evb: numbers(evb, "udp", 16), "numbers-udp-24": lambda evb: numbers(evb, "udp", 24, True),
      "numbers-tcp-16": lambda evb: numbers(evb, "tcp", 16, True), "numbers-tcp-24": lambda evb: numbers(evb, "tcp", 24),
      "numbers-tcp-32": lambda evb: numbers(evb, "tcp", 32), "numbers-pull": lambda evb: numbers(evb, "udp", 16, mode="pull"),
      "restarted-board-udp": lambda evb: restarted_board(evb, "udp"), "restarted-board-tcp": lambda evb: restarted_board(evb, "tcp"),
      "restarted-at-once-udp": lambda evb: restarted_at_once(evb, "udp"), "restarted-at-once-tcp": lambda evb: restarted_at_once(evb, "tcp"),
      "byte-order": byte_order, "offset": offset, "twice-udp": lambda evb: twice(evb, "udp"), "twice-tcp": lambda evb: twice(evb, "tcp"), "stopped-udp": lambda evb: stopped(evb, "udp"), "stopped-tcp": lambda evb: stopped(evb, "tcp"), "dropped": dropped})
