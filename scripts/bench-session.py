#!/usr/bin/env python3
"""Measure the round trips of a session, such as ssh, to an SFI while data fill its rate.

    sudo scripts/bench-session.py [--evb build/src/evb] [--rounds 3] [--seconds 2] [--json FILE]

A session uses another TCP port than data, so it has a class of its own in the tree of a scenario; no flow of the lab enters this class.
Both ends have real-time priority, so that they do not wait for a processor. The script needs root and iproute2; it exits with
status 77 and names what is missing. It removes its namespaces at the end.
"""
import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import need

NET, MBIT = "10.201.0", 166
SCENARIO = f"""[network]
link-rate = 1Gbit
[qos]
backend = auto
rate = {MBIT}Mbit
[node d]
role = dfm
address = {NET}.9
[node r]
role = ros
address = {NET}.1
[node s]
role = sfi
address = {NET}.2
"""


def echo(name, ready):
    """Sends back what the client sends."""
    need.enter(name)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with socket.create_server((f"{NET}.2", 22)) as server:
        ready.set()
        peer, _ = server.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := peer.recv(4096):
            peer.sendall(data)


def type_keys(name, stop, results):
    """Sends 60 bytes every 5 ms, and puts the sorted round trips, in milliseconds, into `results`."""
    need.enter(name)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    trips = []
    with socket.create_connection((f"{NET}.2", 22), 10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            began = time.monotonic()
            s.sendall(bytes(60))
            left = 60
            while left > 0:
                left -= len(s.recv(left))
            trips.append((time.monotonic() - began) * 1e3)
            time.sleep(0.005)
    results.put(sorted(trips))


def fill(evb, names, seconds):
    """Sends data as fast as the shaped queue accepts them. This queue holds as much as the kernel's default socket buffer, so shaping
    blocks the sender instead of dropping packets. Returns the rate on the wire, in Mbit/s."""
    with subprocess.Popen(["ip", "netns", "exec", names[1], evb, "stream", "recv", "7000", "--output", "null", "--quiet"],
                          stdout=subprocess.DEVNULL) as receiver:
        try:
            report = json.loads(need.run("ip", "netns", "exec", names[0], evb, "stream", "send", f"{NET}.2:7000", "--format", "raw",
                                         "--packet-size", "1400", "--socket-buffer", "0", "--rate", "max", "--duration", f"{seconds}s", "--json"))
            receiver.wait(30)
        finally:
            receiver.kill()
    measured = report["peer"]["measured"]
    return measured["bytes"] * 1442 / 1400 * 8 / measured["seconds"] / 1e6


def session(evb, names, seconds):
    """Returns the figures of one round."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        f.write(SCENARIO)
        f.flush()
        qos = ["ip", "netns", "exec", names[0], evb, "qos"]
        need.run(*qos, "apply", "--config", f.name, "--node", "r")
        before = need.stolen()
        ready, stop, results = multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Queue()
        server = multiprocessing.Process(target=echo, args=(names[1], ready), daemon=True)
        client = multiprocessing.Process(target=type_keys, args=(names[0], stop, results), daemon=True)
        server.start()
        try:
            ready.wait(10)
            client.start()
            mbit = fill(evb, names, seconds)
            stop.set()
            trips = results.get(timeout=30)
            drops = json.loads(need.run(*qos, "status", "--dev", "eth0", "--json"))["destinations"][0]["drops"]
        finally:
            for process in (client, server):
                if process.pid:
                    process.kill()
                    process.join(5)
            need.run(*qos, "remove", "--dev", "eth0")
    return {"mbit": mbit, "trips": len(trips), "drops": drops, "stolen_percent": need.stolen_percent(before),
            **{key: trips[min(int(q * len(trips)), len(trips) - 1)] for key, q in (("p50", 0.5), ("p99", 0.99), ("max", 1))}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each round (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    arguments = parser.parse_args()
    need.check(("ip",), arguments.evb)
    evb = os.path.realpath(arguments.evb)
    try:
        with tempfile.TemporaryDirectory() as state, need.namespaces("bench1", "bench2") as names:
            os.environ["EVB_STATE_DIRECTORY"] = state
            need.join(*names, NET)
            rounds = [session(evb, names, arguments.seconds) for _ in range(arguments.rounds)]
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)
    p50, p99, mbit = (statistics.median(r[key] for r in rounds) for key in ("p50", "p99", "mbit"))
    print(f"round trips of 60 bytes to an SFI while data fill its {MBIT} Mbit/s, medians of {arguments.rounds} rounds: median {p50:.2f} ms, "
          f"99 % below {p99:.1f} ms, longest {max(r['max'] for r in rounds):.0f} ms; data {mbit:.1f} Mbit/s, "
          f"{sum(r['drops'] for r in rounds)} packets dropped; at most {max(r['stolen_percent'] for r in rounds):.1f} % of the time stolen")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(rounds, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
