#!/usr/bin/env python3
"""Measure how soon the busy signal follows its cause.

    scripts/bench-busy.py [--evb build/src/evb] [--cycles 5000] [--json FILE]

The script is the trigger box of a run on this machine. When the DFM is ready, it sends a burst of triggers that
uses most credits of the SFIs: the cause. It takes the time from just before the burst is sent until the kernel has
received the busy signal. Then it waits until the events are built and the DFM is ready again. The first row pauses
between bursts, the second one does not.
"""
import argparse
import json
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
BURST = 180    # trigger.busy-above is 0.8
LIMIT_S = 20
SCENARIO = """
[scenario]
name = busy
[trigger]
source = udp:%d
busy-to = 127.0.0.1:%d
[ros]
count = 6
fragment-size = 1024
[sfi]
count = 2
credits = %d
"""
ROWS = (("a burst every 5 ms", 0.005), ("burst after burst", 0))


class Signal:
    """The receiver of the busy signal, with the kernel's time stamps."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(LIMIT_S)
        self.socket.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self.port = self.socket.getsockname()[1]

    def wait(self, state):
        """Returns the time of the first signal of this state, and the DFM's address."""
        while True:
            data, control, _, sender = self.socket.recvmsg(100, 64)
            if data[:4] == b"EVBB" and data[4] == state:
                seconds, ns = struct.unpack("qq", control[0][2])
                return seconds * 10 ** 9 + ns, sender[0]


def measure(busy, cycles, pause_s, first):
    """Returns the delay of each cycle in us."""
    board, delays = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
    _, dfm = busy.wait(0)
    for k in range(first, first + cycles):
        entries = b"".join(struct.pack("<QQII", BURST * k + i, 0, 0, 0) for i in range(BURST))
        time.sleep(pause_s)
        begun_ns = time.time_ns()
        board.sendto(b"EVBT" + struct.pack("<HHII", 1, BURST, k, 0) + entries, (dfm, PORT))
        delays.append((busy.wait(1)[0] - begun_ns) / 1000)
        busy.wait(0)
    return delays


def describe(delays):
    ordered = sorted(delays)
    return {name: round(ordered[min(int(q * len(ordered)), len(ordered) - 1)], 1)
            for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default=pathlib.Path(__file__).parents[1] / "build/src/evb")
    parser.add_argument("--cycles", type=int, default=5000)
    parser.add_argument("--json")
    options = parser.parse_args()
    need.check((), options.evb, root=False)
    busy, rows = Signal(), {}
    with tempfile.TemporaryDirectory() as where:
        path = pathlib.Path(where) / "busy.conf"
        path.write_text(SCENARIO % (PORT, busy.port, CREDITS // 2))
        run = subprocess.Popen([options.evb, "run", path, "--json"], stdout=subprocess.PIPE, text=True)
        try:
            for i, (name, pause_s) in enumerate(ROWS):
                rows[name] = describe(measure(busy, options.cycles, pause_s, i * options.cycles))
        finally:
            run.send_signal(signal.SIGTERM)
            report = json.loads(run.communicate(timeout=60)[0])
    print(f"from the cause to the busy signal, {options.cycles} times each, us:")
    for name, row in rows.items():
        print(f"  {name:20s} " + "  ".join(f"{key} {value}" for key, value in row.items()))
    print(f"  {report['triggers']} triggers, {report['events_complete']} events complete, "
          f"{report['triggers_refused']} triggers refused")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))
    return run.returncode


sys.exit(main())
