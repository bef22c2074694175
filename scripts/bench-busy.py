#!/usr/bin/env python3
"""Measure how soon the busy signal follows its cause.

    scripts/bench-busy.py [--evb build/src/evb] [--cycles 5000] [--poll 20ms] [--json FILE]

The script is the trigger box of a run on this machine. When the DFM is ready, it sends a burst of triggers that
uses most credits of the SFIs: the cause. It takes the time from just before the burst is sent until the kernel has
received the busy signal. Then it waits until the events are built and the DFM is ready again. The first row pauses
between bursts, the second one does not.

It is a script and not a measurement of the lab, because it takes part in the run, and needs no root.

The floor below each row is what this machine takes at the same time to wake any process: before each burst, after the
same pause, a process that does nothing else answers a datagram. Idle processors of a virtual machine may wake late.
"""
import argparse
import contextlib
import gc
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import need

PORT = 47300
CREDITS = 200  # of two SFIs
BURST = 180    # the DFM becomes busy at 80 %
LIMIT_S = 20
SCENARIO = """
[scenario]
name = busy
[trigger]
source = udp:%d
busy-to = 127.0.0.1:%d
[network]
busy-poll = %s
[ros]
count = 6
fragment-size = 1024
[sfi]
count = 2
credits = %d
"""
ROWS = (("a burst every 5 ms", 0.005), ("burst after burst", 0))


class Receiver:
    """A socket with the kernel's time stamps."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(LIMIT_S)
        self.socket.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self.port = self.socket.getsockname()[1]

    def receive(self):
        """Returns a datagram, when it came, and from which address."""
        data, control, _, sender = self.socket.recvmsg(100, 64)
        seconds, ns = struct.unpack("qq", control[0][2])
        return data, seconds * 10 ** 9 + ns, sender[0]

    def wait(self, state):
        """Returns the time of the first busy signal of this state, and the DFM's address."""
        while True:
            data, at_ns, sender = self.receive()
            if data[:4] == b"EVBB" and data[4] == state:
                return at_ns, sender


def answer(s):
    """Answers datagrams until none has come for a while."""
    s.settimeout(3 * LIMIT_S)
    try:
        while True:
            s.sendto(*s.recvfrom(100))
    finally:
        os._exit(0)


@contextlib.contextmanager
def echo():
    """A process that answers datagrams; yields its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        pid = os.fork()
        if pid == 0:
            answer(s)
        try:
            yield s.getsockname()
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def ping(receiver, address):
    """Returns in us how late the answer comes."""
    begun_ns = time.time_ns()
    receiver.socket.sendto(b"ping", address)
    return (receiver.receive()[1] - begun_ns) / 1000


def measure(busy, pings, answers, cycles, pause_s, first):
    """Returns the delay of each cycle in us, and the floor."""
    board, delays, floor = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), [], []
    _, dfm = busy.wait(0)
    for k in range(first, first + cycles):
        entries = b"".join(struct.pack("<QQII", BURST * k + i, 0, 0, 0) for i in range(BURST))
        time.sleep(pause_s)
        floor.append(ping(pings, answers))
        time.sleep(pause_s)
        begun_ns = time.time_ns()
        board.sendto(b"EVBT" + struct.pack("<HHII", 1, BURST, k, 0) + entries, (dfm, PORT))
        delays.append((busy.wait(1)[0] - begun_ns) / 1000)
        busy.wait(0)
    return delays, floor


def describe(delays):
    ordered = sorted(delays)
    return {name: round(ordered[min(int(q * len(ordered)), len(ordered) - 1)], 1)
            for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1))}


@need.awake()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default=pathlib.Path(__file__).parents[1] / "build/src/evb")
    parser.add_argument("--cycles", type=int, default=5000)
    parser.add_argument("--poll", default="0", help="network.busy-poll: for how long each node looks for messages without sleeping")
    parser.add_argument("--json")
    options = parser.parse_args()
    need.check((), options.evb, root=False)
    busy, pings, rows = Receiver(), Receiver(), {}
    gc.disable()
    with tempfile.TemporaryDirectory() as where, echo() as answers:
        path = pathlib.Path(where) / "busy.conf"
        path.write_text(SCENARIO % (PORT, busy.port, options.poll, CREDITS // 2))
        run = subprocess.Popen([options.evb, "run", path, "--json"], stdout=subprocess.PIPE, text=True)
        try:
            for i, (name, pause_s) in enumerate(ROWS):
                before = need.stolen()
                delays, floor = measure(busy, pings, answers, options.cycles, pause_s, i * options.cycles)
                rows[name], rows[f"{name}, floor"] = describe(delays), describe(floor)
                rows[name]["stolen %"] = round(need.stolen_percent(before), 1)
        finally:
            run.send_signal(signal.SIGTERM)
            report = json.loads(run.communicate(timeout=60)[0])
    print(f"from the cause to the busy signal, {options.cycles} times each, us:")
    for name, row in rows.items():
        print(f"  {name:27s} " + "  ".join(f"{key} {value}" for key, value in row.items()))
    print(f"  {report['triggers']} triggers, {report['events_complete']} events complete, "
          f"{report['triggers_refused']} triggers refused")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))
    return run.returncode


sys.exit(main())
