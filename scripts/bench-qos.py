#!/usr/bin/env python3
"""Measure what shaping by `evb qos` makes of a stream: the rate asked for and the rate at the wire, and the gaps between
packets by the kernel's receive time stamps; beside the same stream unshaped. And how long 1000 destinations take.

    sudo scripts/bench-qos.py [--evb build/src/evb] [--rounds 3] [--json FILE]

Needs root (namespaces). Exits 1 where a rate is more than 1 % off. Everything it makes is gone at its end.
"""
import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import platform
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

RATES_MBIT = (10, 50, 100, 500, 900)
PAYLOAD = 1400
FRAME = PAYLOAD + 8 + 20 + 14
SECONDS = 2.0
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@contextlib.contextmanager
def wire():
    names = [f"evb-{os.getpid()}-bench{i}" for i in (1, 2)]
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for i, name in enumerate(names, 1):
            run("ip", "-n", name, "addr", "add", f"10.201.0.{i}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def enter(name):
    with open(f"/run/netns/{name}") as f:
        if LIBC.setns(f.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def send(name, stop):
    """As fast as the queue takes it: a blocked sender is what shaping makes."""
    enter(name)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    s.connect(("10.201.0.2", 7000))
    payload = bytes(PAYLOAD)
    # At the end nobody listens any more.
    with contextlib.suppress(ConnectionRefusedError):
        while not stop.is_set():
            for _ in range(64):
                s.send(payload)


def receive(name, ready, results):
    """Kernel time stamps of packets, for a while behind the first second."""
    enter(name)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.bind(("10.201.0.2", 7000))
    s.settimeout(20)
    ready.set()
    begin, stamps = None, []
    while True:
        _, ancillary, _, _ = s.recvmsg(1, 64)
        seconds, ns = struct.unpack("qq", ancillary[0][2][:16])
        now = seconds * 1_000_000_000 + ns
        begin = begin or now
        if now - begin < 300_000_000:
            continue
        stamps.append(now)
        if now - stamps[0] > SECONDS * 1e9:
            break
    results.put(stamps)


def measure(names):
    ready, stop, results = multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Queue()
    receiver = multiprocessing.Process(target=receive, args=(names[1], ready, results), daemon=True)
    sender = multiprocessing.Process(target=send, args=(names[0], stop), daemon=True)
    receiver.start()
    ready.wait(10)
    sender.start()
    try:
        stamps = results.get(timeout=30)
    finally:
        stop.set()
        for process in (sender, receiver):
            process.join(5)
            if process.is_alive():
                process.kill()
    gaps = sorted((b - a) / 1e3 for a, b in zip(stamps, stamps[1:]))

    def percentile(q):
        return gaps[min(int(q * len(gaps)), len(gaps) - 1)]

    return {"mbit": (len(stamps) - 1) * FRAME * 8e3 / (stamps[-1] - stamps[0]), "p1": percentile(0.01), "p50": percentile(0.5),
            "p99": percentile(0.99), "p999": percentile(0.999), "max": gaps[-1]}


def shaped(evb, names, mbit):
    run("ip", "netns", "exec", names[0], evb, "qos", "apply", "--dev", "eth0", "--dest", f"10.201.0.2={mbit}Mbit", "--link-rate", "10Gbit")
    try:
        row = measure(names)
        status = json.loads(run("ip", "netns", "exec", names[0], evb, "qos", "status", "--dev", "eth0", "--json"))
        row["drops"] = status["destinations"][0]["drops"]
        row["burst"] = status["destinations"][0]["burst_bytes"]
        return row
    finally:
        run("ip", "netns", "exec", names[0], evb, "qos", "remove", "--dev", "eth0")


def many(evb, names):
    """Milliseconds of a whole process that applies 1000 destinations, and of one that finds nothing to do."""
    words = ["ip", "netns", "exec", names[0], evb, "qos", "apply", "--dev", "eth0", "--link-rate", "10Gbit"]
    for i in range(1000):
        words += ["--dest", f"10.{i % 5}.{i // 250}.{i % 250 + 1}=20Mbit"]
    times = []
    for _ in range(2):
        began = time.monotonic()
        run(*words)
        times.append((time.monotonic() - began) * 1e3)
    run("ip", "netns", "exec", names[0], evb, "qos", "remove", "--dev", "eth0")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("bench-qos.py: network namespaces need root", file=sys.stderr)
        return 77
    evb = os.path.realpath(arguments.evb)
    rows = {mbit: [] for mbit in RATES_MBIT}
    bare, thousand = [], []
    with tempfile.TemporaryDirectory() as state, wire() as names:
        os.environ["EVB_STATE_DIRECTORY"] = state
        for n in range(arguments.rounds):
            bare.append(measure(names))
            for mbit in RATES_MBIT:
                rows[mbit].append(shaped(evb, names, mbit))
            thousand.append(many(evb, names))
            print(f"round {n + 1} of {arguments.rounds} done", file=sys.stderr)

    def median(measured, key):
        return statistics.median(m[key] for m in measured)

    print(f"Linux {platform.release()}, {os.cpu_count()} processors, medians of {arguments.rounds} rounds; packets of {FRAME} bytes\n")
    print("| asked Mbit/s | measured | off by | gap p1 us | p50 | p99 | p99.9 | max | dropped |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    wrong = 0
    for mbit, measured in rows.items():
        rate = median(measured, "mbit")
        off = rate / mbit - 1
        wrong += abs(off) > 0.01
        print(f"| {mbit} | {rate:.2f} | {off * 100:+.2f} % |", " | ".join(f"{median(measured, k):.1f}" for k in ("p1", "p50", "p99", "p999", "max")),
              f"| {sum(m['drops'] for m in measured)} |")
    print(f"| unshaped | {median(bare, 'mbit'):.0f} | |", " | ".join(f"{median(bare, k):.1f}" for k in ("p1", "p50", "p99", "p999", "max")), "| |")
    print(f"\n1000 destinations, the whole process: applied in {statistics.median(t[0] for t in thousand):.0f} ms, "
          f"found to be there in {statistics.median(t[1] for t in thousand):.0f} ms")
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump({"rates": rows, "unshaped": bare, "thousand_ms": thousand}, f, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
