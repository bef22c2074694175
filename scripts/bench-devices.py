#!/usr/bin/env python3
"""Measure which rates one tree of `evb qos` shapes on this machine, and what the root qdisc mq changes.

    sudo scripts/bench-devices.py [--evb build/src/evb] [--rounds 3] [--seconds 1] [--json FILE]

Processes, one per processor, send UDP super-packets into a veth device with several transmit queues. The
device's other end drops everything on arrival. The first table shows the greatest throughput of each tree:
the root qdisc of the kernel, one tree of evb's, and a tree for each transmit queue below mq, which evb does
not install. Super-packets either stay whole (the burst holds one) or are cut into frames (a burst of four
frames). The second table shows which part of a configured rate is reached with which burst. The lab cannot make
these points, because its devices have one queue, and its receivers read what arrives.

Each figure is the best round. The first line shows the time that the hypervisor has stolen, and the load.
The script needs root and iproute2; it exits with status 77 and names the missing ones. It removes its
namespace at the end.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time

import need

NAME = f"evb-{os.getpid()}-devices"
DESTINATION = "10.202.0.2"
QUEUES = 4
SEGMENT, SEGMENTS = 1448, 44
FRAME = SEGMENT + 8 + 20 + 14
SOL_UDP, UDP_SEGMENT = 17, 103
MOST = "400Gbit"
WHOLE, CUT = "2MiB", str(4 * FRAME)
RATES_GBIT = (1, 10, 25, 40, 100, 400)
BURSTS = ("8KiB", "64KiB", "128KiB", "512KiB", "2MiB")


def inside(*command):
    return need.run("ip", "netns", "exec", NAME, *command)


@contextlib.contextmanager
def device():
    try:
        need.run("ip", "netns", "add", NAME)
        inside("ip", "link", "add", "v0", "numtxqueues", str(QUEUES), "numrxqueues", str(QUEUES),
               "type", "veth", "peer", "name", "v1")
        inside("ip", "addr", "add", "10.202.0.1/24", "dev", "v0")
        for dev in ("v0", "v1"):
            inside("ip", "link", "set", dev, "up")
        # Not the address of v1, which therefore drops the packets at once.
        inside("ip", "neigh", "replace", DESTINATION, "lladdr", "02:00:00:00:00:02", "dev", "v0")
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAME], capture_output=True)


def send(processor, go, end_at):
    """Sends super-packets until the time is over; a full queue blocks the sender."""
    os.sched_setaffinity(0, {processor})
    need.enter(NAME)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE
    s.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT)
    s.connect((DESTINATION, 9))
    payload = bytes(SEGMENT * SEGMENTS)
    go.wait()
    while time.monotonic() < end_at.value:
        for _ in range(16):
            s.send(payload)


def sent_bytes():
    return int(inside("cat", "/sys/class/net/v0/statistics/tx_bytes"))


def measure(senders, seconds):
    """Returns Gbit/s on the device, and the stolen time in percent."""
    processors = sorted(os.sched_getaffinity(0))[:senders]
    go, end_at = multiprocessing.Event(), multiprocessing.Value("d", 0)
    end_at.value = time.monotonic() + seconds + 5
    processes = [multiprocessing.Process(target=send, args=(p, go, end_at), daemon=True) for p in processors]
    for p in processes:
        p.start()
    end_at.value = time.monotonic() + seconds + 0.6
    go.set()
    time.sleep(0.3)
    bytes_0, began, steal_0 = sent_bytes(), time.monotonic(), need.stolen()
    time.sleep(seconds)
    bytes_1, ended, steal_1 = sent_bytes(), time.monotonic(), need.stolen()
    for p in processes:
        p.join(10)
        if p.is_alive():
            p.kill()
            p.join()
    return {"gbit": (bytes_1 - bytes_0) * 8 / (ended - began) / 1e9,
            "steal": need.stolen_percent(steal_0, steal_1)}


@contextlib.contextmanager
def evb_tree(evb, backend, rate, burst):
    inside(evb, "qos", "apply", "--dev", "v0", "--backend", backend, "--link-rate", MOST, "--set", f"qos.burst={burst}",
           "--set", "qos.limit=32MiB", "--dest", f"{DESTINATION}={rate}")
    try:
        yield
    finally:
        inside(evb, "qos", "remove", "--dev", "v0")


@contextlib.contextmanager
def tree_per_queue(burst):
    """One HTB with a TBF for each transmit queue, each with the full rate."""
    tc = ("tc", "qdisc", "add", "dev", "v0")
    inside(*tc, "root", "handle", "1:", "mq")
    try:
        for i in range(1, QUEUES + 1):
            inside("tc", "qdisc", "replace", "dev", "v0", "parent", f"1:{i}", "handle", f"{i}0:", "htb",
                   "default", "1")
            inside("tc", "class", "add", "dev", "v0", "parent", f"{i}0:", "classid", f"{i}0:1", "htb", "rate",
                   MOST, "burst", "2m", "cburst", "2m", "quantum", "60000")
            inside(*tc, "parent", f"{i}0:1", "handle", f"{i}1:", "tbf", "rate", MOST, "burst", burst, "limit",
                   "32m")
        yield
    finally:
        inside("tc", "qdisc", "del", "dev", "v0", "root")


@contextlib.contextmanager
def unshaped():
    yield


@contextlib.contextmanager
def plain_mq():
    inside("tc", "qdisc", "add", "dev", "v0", "root", "handle", "1:", "mq")
    try:
        yield
    finally:
        inside("tc", "qdisc", "del", "dev", "v0", "root")


def trees(evb):
    return {
        "none (noqueue)": unshaped,
        "mq with its default leaves": plain_mq,
        "evb htb, whole": lambda: evb_tree(evb, "htb", MOST, WHOLE),
        "evb htb+tbf, whole": lambda: evb_tree(evb, "htb+tbf", MOST, WHOLE),
        "evb htb+tbf, cut": lambda: evb_tree(evb, "htb+tbf", MOST, CUT),
        "mq, htb+tbf for each queue, whole": lambda: tree_per_queue("2m"),
        "mq, htb+tbf for each queue, cut": lambda: tree_per_queue(f"{CUT}b"),
    }


def measure_all(arguments):
    evb = os.path.realpath(arguments.evb)
    counts = sorted({1, len(os.sched_getaffinity(0))})
    most = {(name, n): [] for name in trees(evb) for n in counts}
    reached = {(rate, burst): [] for rate in RATES_GBIT for burst in BURSTS}
    with tempfile.TemporaryDirectory() as state, device():
        os.environ["EVB_STATE_DIRECTORY"] = state
        for i in range(arguments.rounds):
            for name, tree in trees(evb).items():
                with tree():
                    for n in counts:
                        most[name, n].append(measure(n, arguments.seconds))
            for rate, burst in reached:
                with evb_tree(evb, "htb+tbf", f"{rate}Gbit", burst):
                    reached[rate, burst].append(measure(1, arguments.seconds))
            print(f"round {i + 1} of {arguments.rounds} done", file=sys.stderr)
    return counts, most, reached


def best(rows):
    """Whatever else runs on the machine only makes a round slower."""
    return max(r["gbit"] for r in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="duration of each point (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    arguments = parser.parse_args()
    need.check(("ip",), arguments.evb)
    try:
        counts, most, reached = measure_all(arguments)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)
    steal = max(r["steal"] for rows in [*most.values(), *reached.values()] for r in rows)
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, best of {arguments.rounds} rounds of "
          f"{arguments.seconds:g} s; frames of {FRAME} bytes, super-packets of {SEGMENTS}; at most {steal:.1f} % "
          f"of the time stolen; load {os.getloadavg()[0]:.1f}\n")
    print("| tree | " + " | ".join(f"{n} sender{'s' * (n > 1)}" for n in counts) + " |")
    print("|---|" + "---:|" * len(counts))
    for name in dict.fromkeys(name for name, _ in most):
        print(f"| {name} | " + " | ".join(f"{best(most[name, n]):.1f} Gbit/s" for n in counts) + " |")
    print("\n| configured | " + " | ".join(f"burst {b}" for b in BURSTS) + " |")
    print("|---:|" + "---:|" * len(BURSTS))
    for rate in RATES_GBIT:
        print(f"| {rate} Gbit/s | " + " | ".join(f"{best(reached[rate, b]):.2f}" for b in BURSTS) + " |")
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump({"most": [[*k, v] for k, v in most.items()],
                       "reached": [[*k, v] for k, v in reached.items()]}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
