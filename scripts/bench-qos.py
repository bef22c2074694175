#!/usr/bin/env python3
"""Measure the accuracy of `evb qos`, the rate of a shaped flow and the gaps between its packets, and what shaping costs.

    sudo scripts/bench-qos.py [--evb build/src/evb] [--rounds 3] [--json FILE]

The kernel's receive timestamps give the rates and gaps. The table also shows the same flow without shaping.
A line shows the time to shape 1000 destinations, and another one the round trips of a session, such as ssh, to an SFI while data fill
its rate. A second table shows the cost with each backend: the processor time of the nodes per byte of payload, in `evb run --net lab`
with one ROS, one SFI, and events of 14 KiB. The script exits with status 1 if a rate is off by more than 1 %. It needs root and
iproute2; it exits with status 77 and names the missing ones. It removes its namespaces at the end.
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

import need

RATES_MBIT = (10, 50, 100, 500, 900)
PAYLOAD = 1400
FRAME = PAYLOAD + 8 + 20 + 14
SECONDS = 2.0
SESSION_MBIT = 166
BACKENDS = ("none", "htb+tbf", "htb", "cbq+tbf")
SO_TIMESTAMPNS, SO_RCVBUFFORCE, CLONE_NEWNET = 35, 33, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def wire():
    with need.namespaces("bench1", "bench2") as names:
        need.join(*names, "10.201.0")
        yield names


def enter(name):
    with open(f"/run/netns/{name}") as f:
        if LIBC.setns(f.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def send(name, stop):
    """Sends until `stop`, as fast as the queue accepts packets. Shaping blocks the sender."""
    enter(name)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    s.connect(("10.201.0.2", 7000))
    payload = bytes(PAYLOAD)
    # The receiver closes its socket first.
    with contextlib.suppress(ConnectionRefusedError):
        while not stop.is_set():
            for _ in range(64):
                s.send(payload)


def receive(name, ready, results):
    """Collects kernel timestamps for SECONDS, after 300 ms in which the flow settles."""
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
    """Returns the rate and the gaps of one flow."""
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

    return {"mbit": (len(stamps) - 1) * FRAME * 8e3 / (stamps[-1] - stamps[0]),
            "p1": percentile(0.01), "p50": percentile(0.5), "p99": percentile(0.99),
            "p999": percentile(0.999), "max": gaps[-1]}


def shaped(evb, names, mbit):
    need.run("ip", "netns", "exec", names[0], evb, "qos", "apply", "--dev", "eth0", "--link-rate", "10Gbit",
             "--dest", f"10.201.0.2={mbit}Mbit")
    try:
        row = measure(names)
        status = json.loads(need.run("ip", "netns", "exec", names[0], evb, "qos", "status", "--dev", "eth0",
                                     "--json"))
        row["drops"] = status["destinations"][0]["drops"]
        row["burst"] = status["destinations"][0]["burst_bytes"]
        return row
    finally:
        need.run("ip", "netns", "exec", names[0], evb, "qos", "remove", "--dev", "eth0")


def echo(name, ready):
    """Sends back what the client of a session sends."""
    enter(name)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with socket.create_server(("10.201.0.2", 22)) as server:
        ready.set()
        peer, _ = server.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := peer.recv(4096):
            peer.sendall(data)


def type_keys(name, stop, results):
    """Sends 60 bytes every 5 ms, and puts the round trips, in milliseconds."""
    enter(name)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    trips = []
    with socket.create_connection(("10.201.0.2", 22), 10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            began = time.monotonic()
            s.sendall(bytes(60))
            left = 60
            while left > 0:
                left -= len(s.recv(left))
            trips.append((time.monotonic() - began) * 1e3)
            time.sleep(0.005)
    results.put(trips)


def session(evb, names):
    """Returns the round trips to an SFI while data fill its rate of SESSION_MBIT, and the drops of data. Both ends of the session have
    real-time priority, so that they do not wait for a processor."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        f.write(f"[network]\nlink-rate = 1Gbit\n[qos]\nbackend = auto\nrate = {SESSION_MBIT}Mbit\n"
                "[node d]\nrole = dfm\naddress = 10.201.0.9\n[node r]\nrole = ros\naddress = 10.201.0.1\n"
                "[node s]\nrole = sfi\naddress = 10.201.0.2\n")
        f.flush()
        qos = ["ip", "netns", "exec", names[0], evb, "qos"]
        need.run(*qos, "apply", "--config", f.name, "--node", "r")
        ready, stop, results = multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Queue()
        server = multiprocessing.Process(target=echo, args=(names[1], ready), daemon=True)
        client = multiprocessing.Process(target=type_keys, args=(names[0], stop, results), daemon=True)
        server.start()
        try:
            ready.wait(10)
            client.start()
            row = measure(names)
            stop.set()
            trips = sorted(results.get(timeout=30))
            status = json.loads(need.run(*qos, "status", "--dev", "eth0", "--json"))
        finally:
            for process in (client, server):
                if process.pid:
                    process.kill()
                    process.join(5)
            need.run(*qos, "remove", "--dev", "eth0")
    return {"mbit": row["mbit"], "trips": len(trips), "drops": status["destinations"][0]["drops"],
            **{key: trips[min(int(q * len(trips)), len(trips) - 1)] for key, q in (("p50", 0.5), ("p99", 0.99), ("max", 1))}}


def many(evb, names):
    """Returns the milliseconds to shape 1000 destinations, and to find them shaped already."""
    command = ["ip", "netns", "exec", names[0], evb, "qos", "apply", "--dev", "eth0", "--link-rate", "10Gbit"]
    for i in range(1000):
        command += ["--dest", f"10.{i % 5}.{i // 250}.{i % 250 + 1}=20Mbit"]
    times = []
    for _ in range(2):
        began = time.monotonic()
        need.run(*command)
        times.append((time.monotonic() - began) * 1e3)
    need.run("ip", "netns", "exec", names[0], evb, "qos", "remove", "--dev", "eth0")
    return times


def cost(evb, backend):
    """Returns what a run with this backend costs and drops; None: this machine cannot run it, and evb says why."""
    keys = {"ros.count": 1, "sfi.count": 1, "ros.fragment-size": "14KiB", "trigger.rate": "max", "scenario.duration": "2s",
            "network.link-rate": "unlimited", "qos.rate": "10Gbit", "qos.backend": backend}
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run([evb, "run", "/dev/null", "--net", "lab", "--quiet", "--json", *settings], stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        return None
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, done.args)
    report = json.loads(done.stdout)
    return {"mbyte_per_second": report["throughput_bytes_per_second"] / 1e6,
            **{role: report["cpu_seconds"][role] * 1e9 / report["payload_bytes"] for role in ("ros", "sfi")},
            "at_source": report["drops"]["source_qdisc_packets"] or 0, "at_socket": report["drops"]["socket_packets"]}


def measure_all(arguments):
    evb = os.path.realpath(arguments.evb)
    rows = {mbit: [] for mbit in RATES_MBIT}
    bare, thousand, sessions, costs = [], [], [], {backend: [] for backend in BACKENDS}
    with tempfile.TemporaryDirectory() as state, wire() as names:
        os.environ["EVB_STATE_DIRECTORY"] = state
        for n in range(arguments.rounds):
            bare.append(measure(names))
            for mbit in RATES_MBIT:
                rows[mbit].append(shaped(evb, names, mbit))
            thousand.append(many(evb, names))
            sessions.append(session(evb, names))
            for backend in BACKENDS:
                costs[backend].append(cost(evb, backend))
            print(f"round {n + 1} of {arguments.rounds} done", file=sys.stderr)
    return rows, bare, thousand, sessions, costs


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    need.check(("ip",), arguments.evb)
    try:
        rows, bare, thousand, sessions, costs = measure_all(arguments)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)

    def median(measured, key):
        return statistics.median(m[key] for m in measured)

    def gaps(measured):
        return " | ".join(f"{median(measured, k):.1f}" for k in ("p1", "p50", "p99", "p999", "max"))

    print(f"Linux {platform.release()}, {os.cpu_count()} processors, medians of {arguments.rounds} rounds; "
          f"packets of {FRAME} bytes\n")
    print("| configured Mbit/s | measured | deviation | gap p1 us | p50 | p99 | p99.9 | max | dropped |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    wrong = 0
    for mbit, measured in rows.items():
        rate = median(measured, "mbit")
        percent = (rate / mbit - 1) * 100
        wrong += abs(percent) > 1
        drops = sum(m["drops"] for m in measured)
        # Adding 0 removes the sign of a rounded zero.
        print(f"| {mbit} | {rate:.2f} | {round(percent, 2) + 0:+.2f} % | {gaps(measured)} | {drops} |")
    print(f"| unshaped | {median(bare, 'mbit'):.0f} | | {gaps(bare)} | |")
    first, again = (statistics.median(times) for times in zip(*thousand))
    print(f"\n`evb qos apply` takes {first:.0f} ms for 1000 destinations, "
          f"and {again:.0f} ms if they are shaped already")
    print(f"\nround trips of 60 bytes to an SFI while data fill its {SESSION_MBIT} Mbit/s: median {median(sessions, 'p50'):.2f} ms, "
          f"99 % below {median(sessions, 'p99'):.1f} ms, longest {max(m['max'] for m in sessions):.0f} ms; "
          f"data {median(sessions, 'mbit'):.1f} Mbit/s, {sum(m['drops'] for m in sessions)} packets dropped")
    print("\n| backend | MB/s | ROS, ns/byte | SFI, ns/byte | dropped at the source | at the receiver |\n|---|---:|---:|---:|---:|---:|")
    for backend, measured in costs.items():
        if None in measured:
            print(f"| {backend} | not possible here | | | | |")
            continue
        rate, ros, sfi, source, at_socket = (median(measured, key) for key in measured[0])
        at_source = "-" if backend == "none" else f"{source:.0f}"
        print(f"| {backend} | {rate:.0f} | {ros:.2f} | {sfi:.2f} | {at_source} | {at_socket:.0f} |")
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump({"rates": rows, "unshaped": bare, "thousand_ms": thousand, "sessions": sessions, "costs": costs}, f, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
