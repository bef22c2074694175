#!/usr/bin/env python3
"""Boards whose frames carry the number of their trigger: no event mixes triggers, and every frame is accounted for.

    test_front_ends.py EVB [CASE...]
"""
import contextlib
import heapq
import math
import os
import pathlib
import random
import socket
import struct
import time

from harness import Running, folder, main, payloads_by_l1_id, scenario

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
        self.waiting, self.sent = [], set()

    def counter(self, n):
        return ((n + self.start) % 2 ** self.bits).to_bytes(self.bits // 8, "big" if self.big else "little")

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


def check(report, boards):
    """Every event has the frames of its trigger, all that were sent, and no other; returns their number."""
    found = {}
    for path in report["files"]:
        found.update(payloads_by_l1_id(path))
    bits, n_used = boards[0].bits, 0
    for l1_id, payloads in found.items():
        numbers = [number_of(p, bits) for p in payloads if p]
        assert set(numbers) <= {l1_id}, f"event {l1_id} has fragments of triggers {numbers}"
        expected = sum(l1_id in b.sent for b in boards)
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


main({"numbers-udp-16": lambda evb: numbers(evb, "udp", 16),
      "numbers-tcp-24": lambda evb: numbers(evb, "tcp", 24)})
