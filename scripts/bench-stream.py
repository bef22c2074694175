#!/usr/bin/env python3
"""Measure the throughput of `evb stream` on veth devices, beside the UDP streams of iperf3 and spead2.

    sudo scripts/bench-stream.py [--evb build/src/evb] [--spead2 PYTHON] [--rounds 3] [--seconds 3] [--json FILE]
    sudo scripts/bench-stream.py --steady [--seconds 60] [--folder /tmp] [--json FILE]
    sudo scripts/bench-stream.py --repair [--rounds 3] [--folder /tmp] [--json FILE]

Two namespaces are joined by a veth pair without a rate limit. Each round runs each program once with each
kind of packet, as fast as it sends: packets of 1472 and of 8972 bytes that cross the wire one by one, and as
super-packets that cross it whole (segmentation offload). The data come from memory and are discarded on
arrival; "evb, pattern" makes and checks each byte. The table shows medians of what was sent and received, the
median ratio to the faster of the others in the same round, and the most time that the hypervisor stole. The
exit status is 1 if evb receives less than the faster one at 1472 bytes, or less than 3 times as much with
both jumbo frames and segmentation offload.

spead2 is the Python package, with its tools spead2_send.py and spead2_recv.py, whose threads are C++:
python3 -m venv build/spead2 && build/spead2/bin/pip install spead2

--steady sends 940 Mbit/s through a port of 1 Gbit/s, from memory to memory and from disk to disk, and counts
at the receiver's device how much arrives in each second. The exit status is 1 if a packet is lost, or a second
differs from the mean by more than 0.1 %.

--repair sends a file of 386 MB at 1 Gbit/s with recv --repair over a path with a round trip of 100 ms that loses
0.01 % and 1 % of the packets. The rate includes the time of the repair. The exit status is 1 if a copy differs, or
the median rate is below 0.9 Gbit/s at 0.01 %, or below 0.5 Gbit/s at 1 %.

The script needs root, iproute2 and iperf3; it exits with status 77 and names the missing ones. It removes its
namespaces and files at the end.
"""
import argparse
import contextlib
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import need

# name, UDP payload, MTU, whether super-packets cross the wire whole
KINDS = [("1472 B", 1472, 1500, False), ("1472 B, offload", 1472, 1500, True),
         ("8972 B", 8972, 9000, False), ("8972 B, offload", 8972, 9000, True)]
MARKS = [(("1472 B",), 1), (("8972 B", "1472 B, offload", "8972 B, offload"), 3)]
NET = "10.203.0"
RECEIVER, PORT = f"{NET}.2", 26900
AT = f"{RECEIVER}:{PORT}"
STEADY_RATE, STEADY_PERCENT = 940_000_000, 0.1
REPAIR_BYTES, REPAIR_RATE, REPAIR_MARKS = 386_000_000, 1_000_000_000, {0.0001: 0.9, 0.01: 0.5}
HEAP = 4 << 20


def wait_for(what, condition, limit=20):
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"bench-stream.py: no {what} in {limit} s")
        time.sleep(0.01)


@contextlib.contextmanager
def wire(mtu, whole):
    """Yields the names of two namespaces that are joined by a veth pair."""
    with need.namespaces("a", "b") as (a, b):
        need.join(a, b, NET)
        for name in (a, b):
            need.run("ip", "-n", name, "link", "set", "eth0", "mtu", str(mtu))
            if not whole:
                # The kernel divides super-packets before the device.
                need.run("ip", "-n", name, "link", "set", "eth0", "gso_max_segs", "1")
        yield a, b


@contextlib.contextmanager
def port():
    """Yields two namespaces, of which the second is behind a port of 1 Gbit/s with a buffer of 512 KiB."""
    with need.namespaces("a", "b", "switch") as (a, b, switch):
        need.join(a, b, NET, switch)
        # Preamble, checksum and gap take 24 bytes more on a wire. The large burst compensates for late timers.
        need.run("tc", "-n", switch, "qdisc", "add", "dev", "p2", "stab", "overhead", "24", "linklayer", "ethernet",
                 "root", "tbf", "rate", "1gbit", "burst", "256k", "limit", "256k")
        yield a, b


@contextlib.contextmanager
def long_path(o, loss):
    """Yields the namespaces of a sender and a receiver that are 100 ms apart, and the address of the receiver."""
    with subprocess.Popen([o.evb, "testbed", "/dev/null", "--set", "ros.count=1", "--set", "sfi.count=1", "--quiet",
                           "--round-trip", "100ms", "--loss", str(loss)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bed:
        nodes = {node["name"]: node for node in json.loads(bed.stdout.readline())["nodes"]}
        yield (nodes["sender"]["namespace"], nodes["receiver"]["namespace"]), nodes["receiver"]["address"]


@contextlib.contextmanager
def background(name, *command):
    """A program in a namespace; it ends with the block. Its output goes to files, as a full pipe would stop it."""
    files = {stream: tempfile.TemporaryFile("w+") for stream in ("stdout", "stderr")}
    process = subprocess.Popen(["ip", "netns", "exec", name, *command], **files)
    process.files = files
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def buffer_bytes(kind):
    """The socket buffer of each program, which all of them are granted."""
    with open(f"/proc/sys/net/core/{kind}_max") as f:
        return min(int(f.read()), 8 << 20)


def output_of(process, limit):
    """Returns the standard output of a process that ends by itself; both ends of evb exit with 1 after a loss."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    out, err = (f.seek(0) or f.read() for f in process.files.values())
    if process.returncode not in (0, 1) or not out:
        raise subprocess.CalledProcessError(process.returncode, process.args[4:], stderr=err)
    return out


def figures(sent, received, seconds, lost):
    """Bytes of data per second, as sent and received, and the part of packets that was lost."""
    return {"offered": sent / seconds, "received": received / seconds, "lost": lost}


def evb_stream(o, names, source, sink, *options, meanwhile=None, at=AT, receive=()):
    """Returns the receiver's report, and what `meanwhile` returns, which gets the receiver's process."""
    with background(names[1], o.evb, "stream", "recv", at, "--output", sink, "--socket-buffer", str(buffer_bytes("rmem")),
                    "--json", *receive) as receiver, \
            background(names[0], o.evb, "stream", "send", at, "--input", source, "--socket-buffer", str(buffer_bytes("wmem")),
                       "--json", *options) as sender:
        seen = meanwhile(receiver) if meanwhile else None
        output_of(sender, o.seconds + 120)
        return json.loads(output_of(receiver, 60)), seen


def evb(o, names, payload, kind="null"):
    report, _ = evb_stream(o, names, f"{kind}:1000TB", kind, "--packet-size", str(payload), "--duration", f"{o.seconds}s", "--rate", "max")
    peer = report["peer"]
    if report["corrupt"]:
        sys.exit(f"bench-stream.py: {report['corrupt']} packets arrived corrupt")
    return {"offered": peer["bytes"] / peer["seconds"], "received": report["throughput_bytes_per_second"],
            "lost": report["packets_lost"] / report["packets_sent"]}


def pattern(o, names, payload):
    return evb(o, names, payload, "pattern")


def iperf3(o, names, payload):
    with background(names[1], "iperf3", "-s", "-1", "-J") as receiver:
        wait_for("iperf3", lambda: ":5201" in need.run("ip", "netns", "exec", names[1], "ss", "-Hltn"))
        need.run("ip", "netns", "exec", names[0], "iperf3", "-c", RECEIVER, "-u", "-b", "0", "-l", str(payload), "-t",
                 str(o.seconds), "-w", str(min(buffer_bytes("rmem"), buffer_bytes("wmem"))), "-J")
        sums = json.loads(output_of(receiver, 20))["end"]
    # The server's sums of a receiver: packets and lost ones, over the seconds of the test.
    total, lost = sums["sum"]["packets"], sums["sum"]["lost_packets"]
    return figures(total * payload, (total - lost) * payload, sums["sum"]["seconds"], lost / total)


def send_heaps(o, names, payload, n):
    """Sends n heaps with spead2. Returns the bytes that were sent, in how many seconds, and the packets that arrived."""
    send, receive = ((o.spead2, os.path.join(os.path.dirname(o.spead2), f"spead2_{verb}.py")) for verb in ("send", "recv"))
    with background(names[1], *receive, AT, "--mem-pool", "--buffer", str(buffer_bytes("rmem"))) as receiver:
        wait_for("spead2", lambda: f":{PORT} " in need.run("ip", "netns", "exec", names[1], "ss", "-Hlun"))
        with background(names[0], *send, AT, "--packet", str(payload), "--heap-size", str(HEAP), "--heaps", str(n), "--buffer",
                        str(buffer_bytes("wmem"))) as sender:
            sent = re.search(r"Sent (\d+) bytes in ([0-9.]+)s", output_of(sender, o.seconds * 4 + 60))
        time.sleep(0.5)
        # Unless it has ended with the stream.
        receiver.send_signal(signal.SIGINT)
        packets = re.search(r"^packets: (\d+)", output_of(receiver, 30), re.M)
    if not sent or not packets:
        sys.exit("bench-stream.py: spead2 does not say what it sent and received")
    return int(sent[1]), float(sent[2]), int(packets[1])


def spead2(o, names, payload):
    """Its receiver counts packets; those of incomplete heaps count here too."""
    # It ends after a number of heaps: a short run shows how many.
    sent, seconds, _ = send_heaps(o, names, payload, 128)
    n = max(int(sent / seconds * o.seconds / HEAP), 1)
    sent, seconds, packets = send_heaps(o, names, payload, n)
    # The header of a packet has 40 bytes; that of the first one of a heap some more.
    part = min(packets / (n * -(-HEAP // (payload - 40))), 1)
    return figures(sent, sent * part, seconds, 1 - part)


PROGRAMS = {"iperf3": iperf3, "spead2": spead2, "evb": evb, "evb, pattern": pattern}
OTHERS = ("iperf3", "spead2")


def measure(o, programs):
    points = []
    for turn in range(o.rounds):
        for kind, payload, mtu, whole in KINDS:
            for program in programs:
                with wire(mtu, whole) as names:
                    before = need.stolen()
                    point = PROGRAMS[program](o, names, payload)
                    point["stolen_percent"] = need.stolen_percent(before)
                points.append({"round": turn, "kind": kind, "program": program, **point})
        print(f"round {turn + 1} of {o.rounds} done", file=sys.stderr)
    return points


def ratios(points, kind, program):
    """The received rate in each round, divided by that of the faster of the other programs."""
    of = {(p["round"], p["program"]): p["received"] for p in points if p["kind"] == kind}
    others = {turn: max(rate for (t, name), rate in of.items() if t == turn and name in OTHERS) for turn, _ in of}
    return [rate / others[turn] for (turn, name), rate in of.items() if name == program]


def show(points, programs):
    """Prints the table. Returns the median ratios of evb, by kind."""
    median, found = statistics.median, {}
    print("| packets | program | sent MB/s | received MB/s | lost | stolen | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for kind, *_ in KINDS:
        for program in programs:
            own = [p for p in points if p["kind"] == kind and p["program"] == program]
            ratio = median(ratios(points, kind, program))
            print(f"| {kind} | {program} | {median(p['offered'] for p in own) / 1e6:,.0f} |"
                  f" {median(p['received'] for p in own) / 1e6:,.0f} | {median(p['lost'] for p in own):.1%} |"
                  f" {max(p['stolen_percent'] for p in own):.1f} % | {ratio:.2f} |")
            if program == "evb":
                found[kind] = ratio
    return found


def compare(o):
    programs = [name for name in PROGRAMS if name != "spead2" or is_installed(o.spead2)]
    points = measure(o, programs)
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, medians of {o.rounds} rounds of {o.seconds} s\n")
    found = show(points, programs)
    missed = [(kinds, mark) for kinds, mark in MARKS if max(found[kind] for kind in kinds) < mark]
    for kinds, mark in missed:
        print(f"bench-stream.py: evb is not {mark} times as fast as the faster of the others with {' or '.join(kinds)}",
              file=sys.stderr)
    return {"points": points, "ratios": found}, 1 if missed else 0


def is_installed(python):
    with contextlib.suppress(OSError):
        if subprocess.run([python, "-c", "import spead2"], capture_output=True).returncode == 0:
            return True
    print(f"bench-stream.py: spead2 is skipped: {python} does not import it; install it with: python3 -m venv build/spead2 "
          f"&& build/spead2/bin/pip install spead2", file=sys.stderr)
    return False


def arrived(process):
    """Returns the bytes that the device of a process has received, and the time in seconds."""
    while True:
        began = time.monotonic_ns()
        with open(f"/proc/{process.pid}/net/dev") as f:
            count = int(re.search(r"eth0: *(\d+)", f.read())[1])
        ended = time.monotonic_ns()
        # Interrupted in between, the time would be wrong.
        if ended - began < 200_000:
            return count, (began + ended) / 2e9


def watch(process, seconds):
    """Returns the bytes per second at the device of a process, in each second but the first and last."""
    wait_for("receiver", lambda: not os.path.samefile(f"/proc/{process.pid}/ns/net", "/proc/self/ns/net"))
    start, _ = arrived(process)
    wait_for("stream", lambda: arrived(process)[0] > start + 1_000_000, 60)
    samples = []
    next_at = time.monotonic() + 0.5
    for _ in range(max(seconds, 2)):
        time.sleep(max(0, next_at - time.monotonic()))
        samples.append(arrived(process))
        next_at += 1
    return [(b - a) / (t - s) for (a, s), (b, t) in zip(samples, samples[1:])]


def steady_once(o, source, sink):
    before = need.stolen()
    with port() as names:
        report, rates = evb_stream(o, names, source, sink, "--rate", str(STEADY_RATE),
                                   meanwhile=lambda receiver: watch(receiver, o.seconds))
    mean = statistics.mean(rates)
    return {"lost": report["packets_lost"], "lost_at": report["lost_at"], "packets": report["packets_sent"],
            "data_bytes_per_second": report["throughput_bytes_per_second"], "behind_seconds": report["peer"]["behind_seconds"],
            "device_bytes_per_second": rates, "worst_percent": max(abs(r / mean - 1) for r in rates) * 100,
            "stolen_percent": need.stolen_percent(before), "corrupt": report["corrupt"]}


def make_file(path, size):
    block = os.urandom(16 << 20)
    with open(path, "wb") as f:
        for at in range(0, size, len(block)):
            f.write(block[:size - at])
        f.flush()
        os.fsync(f.fileno())
        # It is to be read from the disk.
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def steady(o):
    size = STEADY_RATE // 8 * (o.seconds + 1)
    rows = {"memory to memory": steady_once(o, f"pattern:{size}", "pattern")}
    with tempfile.TemporaryDirectory(prefix="evb-bench-", dir=o.folder) as folder:
        source, sink = os.path.join(folder, "in"), os.path.join(folder, "out")
        make_file(source, size)
        rows["disk to disk"] = steady_once(o, source, sink)
        rows["disk to disk"]["corrupt"] = int(subprocess.run(["cmp", "-s", source, sink]).returncode != 0)
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, {o.seconds} s, port of 1 Gbit/s, {STEADY_RATE / 1e6:g} Mbit/s\n")
    print("| stream | packets | lost | data MB/s | slowest second | fastest | deviation | stolen |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    bad = 0
    for name, row in rows.items():
        rates = [r / 1e6 for r in row["device_bytes_per_second"]]
        bad += row["lost"] > 0 or row["corrupt"] > 0 or row["worst_percent"] > STEADY_PERCENT
        print(f"| {name} | {row['packets']:,} | {row['lost']} | {row['data_bytes_per_second'] / 1e6:.3f} | {min(rates):.3f} |"
              f" {max(rates):.3f} | {row['worst_percent']:.3f} % | {row['stolen_percent']:.1f} % |")
        if row["corrupt"]:
            print(f"bench-stream.py: {name}: the output differs from the input", file=sys.stderr)
    return rows, 1 if bad else 0


def repair_once(o, loss):
    before = need.stolen()
    with tempfile.TemporaryDirectory(prefix="evb-bench-", dir=o.folder) as folder, long_path(o, loss) as (names, address):
        source, sink = os.path.join(folder, "in"), os.path.join(folder, "out")
        make_file(source, REPAIR_BYTES)
        report, _ = evb_stream(o, names, source, sink, "--rate", str(REPAIR_RATE), at=f"{address}:{PORT}", receive=("--repair",))
        same = subprocess.run(["cmp", "-s", source, sink]).returncode == 0
    repair = report["repair_seconds"] or 0
    return {"loss": loss, "whole": same and report["packets_lost"] == 0, "seconds": report["seconds"], "repair_seconds": repair,
            "packets_repaired": report["packets_repaired"], "bits_per_second": REPAIR_BYTES * 8 / (report["seconds"] + repair),
            "stolen_percent": need.stolen_percent(before)}


def repair(o):
    points = [repair_once(o, loss) for _ in range(o.rounds) for loss in REPAIR_MARKS]
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, {REPAIR_BYTES / 1e6:g} MB, round trip of 100 ms, medians of {o.rounds}\n")
    print("| loss | whole | packets repaired | stream | repair | rate | stolen |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    bad = 0
    for loss, mark in REPAIR_MARKS.items():
        rows = [p for p in points if p["loss"] == loss]
        middle = {key: statistics.median(p[key] for p in rows) for key in rows[0] if key not in ("loss", "whole")}
        whole = sum(p["whole"] for p in rows)
        bad += whole < len(rows) or middle["bits_per_second"] < mark * REPAIR_RATE
        print(f"| {loss:.2%} | {whole} of {len(rows)} | {middle['packets_repaired']:.0f} | {middle['seconds']:.2f} s |"
              f" {middle['repair_seconds']:.2f} s | {middle['bits_per_second'] / 1e9:.2f} Gbit/s | {max(p['stolen_percent'] for p in rows):.1f} % |")
    return points, 1 if bad else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--spead2", default="build/spead2/bin/python3", metavar="PYTHON",
                        help="interpreter that has spead2 (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    # iperf3 takes whole seconds, and 0 as no limit.
    parser.add_argument("--seconds", type=int, choices=range(1, 3601), metavar="N",
                        help="duration of each point (default: 3; with --steady 60)")
    parser.add_argument("--steady", action="store_true", help="measure how even a stream is at 1 Gbit/s")
    parser.add_argument("--repair", action="store_true", help="measure a long path that loses packets")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for the files of --steady and --repair (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    o = parser.parse_args()
    o.seconds = o.seconds or (60 if o.steady else 3)
    return o


def main():
    o = parse_arguments()
    need.check(("ip", "tc") if o.steady or o.repair else ("ip", "ss", "iperf3"), o.evb)
    try:
        result, status = steady(o) if o.steady else repair(o) if o.repair else compare(o)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(result, f, indent=1)
    return status


if __name__ == "__main__":
    sys.exit(main())
