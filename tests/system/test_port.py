#!/usr/bin/env python3
"""The emulated switch's ports decide by arithmetic, also while other work takes the processors.

    test_port.py EVB CASE

Cases 'carries' and 'exceeds' occupy every processor at real-time priority for 20 ms of each 200 ms.
"""
import contextlib
import ctypes
import errno
import multiprocessing
import os
import re
import socket
import struct
import subprocess
import time

from harness import LIMIT_S, Running, Skip, folder, main, need_root, run, scenario, settings
from network import sh, wait_until

LINK_BPS = 100_000_000
BUFFER_BYTES = 64 * 1024
SECONDS = 3
PAYLOAD = 1472  # fills a frame of 1514 bytes
FRAME = PAYLOAD + 42
HOG_S, HOG_PERIOD_S = 0.020, 0.200
# One tick of the slowest usual kernel timer (HZ = 100): a packet whose program runs this much later than the capture saw it
# is judged with a queue that is shorter by as much.
TOLERANCE_S = 0.010

KEYS = {"network.link-rate": f"{LINK_BPS}bit", "network.switch-buffer": str(BUFFER_BYTES), "ros.count": 2, "sfi.count": 1,
        "trigger.events": 0, "trigger.rate": "5Hz", "ros.fragment-size": 64}

SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS, PACKET_STATISTICS, ETH_P_ALL = 32, 33, 35, 6, 3


def need_tools():
    need_root()
    for tool in ("ip", "tc"):
        if sh(tool, "-V", check=False).returncode != 0:
            raise Skip(f"{tool} (iproute2) is not installed")


@contextlib.contextmanager
def inside(name):
    """Moves this process into a namespace; sockets made meanwhile stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{name}") as there:
        assert libc.setns(there.fileno(), 0x40000000) == 0, "setns"
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), 0x40000000) == 0, "setns"


@contextlib.contextmanager
def children(targets):
    """Runs functions in processes of their own; kills what is left of them at the end."""
    processes = [multiprocessing.Process(target=target, args=arguments, daemon=True) for target, *arguments in targets]
    for p in processes:
        p.start()
    try:
        yield processes
    finally:
        for p in processes:
            p.kill()
            p.join()


def occupy(processor, until):
    """Takes one processor in intervals that are the same on all of them."""
    os.sched_setaffinity(0, {processor})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    while (now := time.monotonic()) < until:
        if now % HOG_PERIOD_S < HOG_S:
            continue
        time.sleep(HOG_PERIOD_S - now % HOG_PERIOD_S)


def need_real_time():
    try:
        old = os.sched_getscheduler(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        os.sched_setscheduler(0, old, os.sched_param(0))
    except PermissionError:
        raise Skip("real-time priority (SCHED_FIFO) is not permitted") from None


def flood(namespace, address, until):
    """Sends full frames; the qdisc of the namespace's device sets the rate, and blocks this process."""
    with inside(namespace):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # More than the qdisc sends while this process cannot run.
    out.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 2 << 20)
    out.connect((address, 9))
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            out.send(bytes(PAYLOAD))


class Capture:
    """Records when each frame to one node left another node's device, before any queue of the testbed.

    SO_TIMESTAMPNS makes the kernel stamp a frame when the veth hands it over."""

    def __init__(self, namespace, ports, mac):
        self.mac = mac
        self.packets = []  # (time in ns, port, bytes)
        self.sockets = {}
        for port in ports:
            with inside(namespace):
                s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                s.bind((port, ETH_P_ALL))
            s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            s.setblocking(False)
            self.sockets[port] = s

    def take(self):
        for port, s in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame, ancillary, _, where = s.recvmsg(64, 64)
                    comes = (frame[:6] == self.mac or frame[0] & 1) and frame[6:12] != self.mac
                    if where[2] != socket.PACKET_OUTGOING and comes and ancillary:
                        seconds, ns = struct.unpack("qq", ancillary[0][2][:16])
                        self.packets.append((seconds * 10**9 + ns, port, length_of(frame)))

    def wait_for_silence(self):
        """The queues of the senders are empty when no full frame comes any more."""
        def silent():
            before = sum(size == FRAME for *_, size in self.packets)
            time.sleep(0.3)
            self.take()
            return before == sum(size == FRAME for *_, size in self.packets)

        wait_until("silence", silent)

    def lost(self):
        return sum(struct.unpack("II", s.getsockopt(263, PACKET_STATISTICS, 8))[1] for s in self.sockets.values())


def length_of(frame):
    """Length of a captured frame, by its IP header."""
    if frame[12:14] == b"\x08\x00":
        return 14 + int.from_bytes(frame[16:18], "big")
    if frame[12:14] == b"\x86\xdd":
        return 54 + int.from_bytes(frame[18:20], "big")
    return 42


def ideal_drops(packets):
    """Returns how many frames ideal links and an ideal port drop, by the arithmetic of docs/lab-port.md."""
    ns_per_byte = 8e9 / LINK_BPS
    links, arrivals = {}, []
    for left, link, size in sorted(packets):
        links[link] = max(links.get(link, 0), left) + size * ns_per_byte
        arrivals.append((links[link], size))
    end = dropped = 0
    for arrival, size in sorted(arrivals):
        after = max(end, arrival) + size * ns_per_byte
        if after - arrival > BUFFER_BYTES * ns_per_byte:
            dropped += 1
        else:
            end = after
    return dropped


def two_senders(evb, share, keys=None, hog=True):
    """Two nodes send to a third at `share` of its port's rate each. Returns the report, the ideal port's drops
    and the captured packets."""
    need_tools()
    need_real_time()
    with folder() as where, Running(evb, scenario(where), {**KEYS, **(keys or {})}, net="lab") as running:
        running.wait_nodes(4)
        running.wait_running()
        name, address = f"evb-{running.process.pid}", running.address("sfi1")
        for node in ("ros1", "ros2"):
            # A burst of two frames: the senders do not make up for time in which they could not send.
            sh("tc", "-n", f"{name}-{node}", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{int(LINK_BPS * share)}bit",
               "burst", str(2 * FRAME), "limit", str(8 << 20))
        with inside(f"{name}-sfi1"):
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sink.bind((address, 9))
        mac = re.search(r"link/ether (\S+)", sh("ip", "-n", f"{name}-sfi1", "link", "show", "eth0").stdout)[1]
        capture = Capture(f"{name}-switch", [f"port{i}" for i in range(1, 5)], bytes.fromhex(mac.replace(":", "")))
        until = time.monotonic() + SECONDS
        hogs = [(occupy, cpu, until + 1) for cpu in sorted(os.sched_getaffinity(0))] if hog else []
        with children([*hogs, *((flood, f"{name}-{node}", address, until) for node in ("ros1", "ros2"))]):
            while time.monotonic() < until + 0.5:
                capture.take()
                time.sleep(0.005)
            capture.wait_for_silence()
        assert capture.lost() == 0, "the capture lost packets"
        running.signal()
        report = running.end(expect=(0, 1))
        sink.close()
        ideal = ideal_drops(capture.packets)
        print(f"{len(capture.packets)} packets, an ideal port drops {ideal}, the {report['port']} port dropped "
              f"{report['drops']['switch_packets']}, the testbed lost {report['testbed_lost_packets']}")
        return report, ideal, capture.packets


def carries(evb):
    """An ideal port carries two streams that together need 98 % of its rate, and so does this one."""
    report, ideal, packets = two_senders(evb, 0.49)
    assert ideal == 0, f"the senders offered more than an ideal port carries: {ideal}"
    offered = sum(size for *_, size in packets)
    assert offered > 0.9 * SECONDS * LINK_BPS / 8, f"the senders offered only {offered} bytes"
    assert report["port"] == "exact", report["port"]
    assert report["drops"]["switch_packets"] == 0 and report["testbed_lost_packets"] == 0, (
        report["drops"], report["testbed_lost_packets"])


def exceeds(evb):
    """A port loses what the arithmetic says, computed here from the times at which frames left their nodes."""
    report, ideal, packets = two_senders(evb, 0.6)
    tolerance = TOLERANCE_S * LINK_BPS / 8 / FRAME
    # A sixth of what comes while both send.
    assert len(packets) / 12 < ideal < len(packets) / 5, (ideal, len(packets))
    assert abs(report["drops"]["switch_packets"] - ideal) <= tolerance, (report["drops"], ideal, tolerance)
    assert report["port"] == "exact" and report["testbed_lost_packets"] == 0, report


SMALL_RUN = {"network.link-rate": "100Mbit", "trigger.events": 50, "ros.count": 2, "sfi.count": 1}


def deny_bpf():
    """For preexec_fn: the bpf system call does not exist for this process and its children."""
    class Program(ctypes.Structure):
        _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    code = b"".join(struct.pack("HBBI", *i) for i in (
        (0x20, 0, 0, 0),                           # load the number of the system call
        (0x15, 0, 1, number),                      # bpf?
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),   # fail
        (0x06, 0, 0, 0x7fff0000)))                 # allow
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Program(4, code)), 0, 0) == 0, ctypes.get_errno()


def fallback(evb):
    """Without bpf, timers decide; the run says so once, and in its report."""
    need_root()
    if os.uname().machine not in ("x86_64", "aarch64"):
        raise Skip(f"this test does not know the number of the bpf system call on {os.uname().machine}")
    with folder() as where:
        done = subprocess.run([evb, "run", str(scenario(where)), "--net", "lab", f"--json={where / 'report.json'}",
                               *settings(SMALL_RUN)],
                              capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=deny_bpf)
        text = (where / "report.json").read_text() if (where / "report.json").exists() else ""
    assert done.returncode == 0, done
    assert done.stderr.count("timers decide") == 1, done.stderr
    assert '"port":"timer"' in text, text


def reported(evb):
    """The report names who decided; without ports, nobody."""
    need_root()
    with folder() as where:
        path = scenario(where)
        report = run(evb, path, SMALL_RUN, net="lab")
        assert report["port"] == "exact" and report["testbed_lost_packets"] == 0, report
        assert report["drops"]["switch_packets"] == 0, report["drops"]
        report = run(evb, path, {**SMALL_RUN, "network.link-rate": "unlimited"}, net="lab")
        assert report["port"] is None and report["testbed_lost_packets"] is None and report["drops"]["switch_packets"] is None, report


main({"carries": carries, "exceeds": exceeds, "fallback": fallback, "reported": reported})
