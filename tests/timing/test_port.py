#!/usr/bin/env python3
"""The emulated switch's ports decide by arithmetic, also while other work takes the processors.

    test_port.py EVB [CASE...]

Cases 'carries', 'exceeds' and 'floods' occupy every processor at real-time priority for 20 ms of each 200 ms.
"""
import contextlib
import ctypes
import errno
import json
import multiprocessing
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from harness import LIMIT_S, Running, Skip, folder, main, need_root, run, scenario, settings
from network import sh, wait_until

LINK_BPS = 100_000_000
BUFFER_BYTES = 64 * 1024
SECONDS = 2
PAYLOAD = 1472  # fills a frame of 1514 bytes
FRAME = PAYLOAD + 42
HOG_S, HOG_PERIOD_S = 0.020, 0.200
# The port and the capture read the clock at different times, and the port does not know the order of frames that it decides
# late and that arrived within an eighth of its buffer (0.7 ms). One tick of the slowest usual kernel timer (HZ = 100).
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


def flood(namespace, address, start):
    """Sends full frames for some seconds; the qdisc of the namespace's device sets the rate, and blocks this process."""
    with inside(namespace):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # More than the qdisc sends while this process cannot run.
    out.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 2 << 20)
    out.connect((address, 9))
    start.wait(LIMIT_S)
    until = time.monotonic() + SECONDS
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


def send_to_one(evb, shares, keys=None):
    """ROSs send to the SFI, each at a share of its port's rate (1: all that the link carries). Returns the report, the ideal
    port's drops and the captured packets."""
    need_tools()
    need_real_time()
    with folder() as where, Running(evb, scenario(where), {**KEYS, **(keys or {})}, net="lab") as running:
        running.wait_nodes(4)
        running.wait_running()
        name, address = f"evb-{running.process.pid}", running.address("sfi1")
        nodes = [f"ros{i + 1}" for i in range(len(shares))]
        for node, share in zip(nodes, shares):
            if share < 1:
                # A burst of two frames: the senders do not make up for time in which they could not send.
                sh("tc", "-n", f"{name}-{node}", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                   f"{int(LINK_BPS * share)}bit", "burst", str(2 * FRAME), "limit", str(8 << 20))
        with inside(f"{name}-sfi1"):
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sink.bind((address, 9))
        mac = re.search(r"link/ether (\S+)", sh("ip", "-n", f"{name}-sfi1", "link", "show", "eth0").stdout)[1]
        capture = Capture(f"{name}-switch", [f"port{i}" for i in range(1, 5)], bytes.fromhex(mac.replace(":", "")))
        end, start = time.monotonic() + LIMIT_S, multiprocessing.Barrier(len(nodes))
        senders = [(flood, f"{name}-{node}", address, start) for node in nodes]
        with children([*senders, *((occupy, cpu, end) for cpu in sorted(os.sched_getaffinity(0)))]) as processes:
            sending = processes[:len(senders)]
            while any(p.is_alive() for p in sending):
                assert time.monotonic() < end, "the senders do not end"
                capture.take()
                time.sleep(0.005)
            assert not any(p.exitcode for p in sending), "a sender failed"
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
    report, ideal, packets = send_to_one(evb, (0.49, 0.49))
    assert ideal == 0, f"the senders offered more than an ideal port carries: {ideal}"
    offered = sum(size for *_, size in packets)
    # On a busy machine the senders may not fill their share at all times.
    assert offered > 0.3 * SECONDS * LINK_BPS / 8, f"the senders offered only {offered} bytes"
    assert report["port"] == "exact", report["port"]
    assert report["drops"]["switch_packets"] == 0 and report["testbed_lost_packets"] == 0, (
        report["drops"], report["testbed_lost_packets"])


def exceeds(evb):
    """A port loses what the arithmetic says, computed here from the times at which frames left their nodes."""
    report, ideal, packets = send_to_one(evb, (0.6, 0.6))
    tolerance = TOLERANCE_S * LINK_BPS / 8 / FRAME
    # A sixth of what comes while both send; less if a sender pauses, as it may on a busy machine.
    assert 3 * tolerance < ideal < len(packets) / 5, (ideal, len(packets))
    assert abs(report["drops"]["switch_packets"] - ideal) <= tolerance, (report["drops"], ideal, tolerance)
    assert report["port"] == "exact" and report["testbed_lost_packets"] == 0, report


def floods(evb):
    """A sender fills its link. The link's queue loses time, so its packets come later and later than they should, while those
    of the other nodes are on time: the port still drops no more than an ideal one."""
    report, ideal, packets = send_to_one(evb, (1,), {"trigger.rate": "50Hz"})
    tolerance = TOLERANCE_S * LINK_BPS / 8 / FRAME
    assert len(packets) * FRAME > 0.3 * SECONDS * LINK_BPS / 8, len(packets)
    assert abs(report["drops"]["switch_packets"] - ideal) <= tolerance, (report["drops"], ideal, tolerance)
    assert report["port"] == "exact" and report["testbed_lost_packets"] == 0, report


def lost(evb):
    """What the queue behind the program drops is not the port's: it is reported and logged."""
    need_tools()
    with folder() as where, Running(evb, scenario(where), KEYS, net="lab") as running:
        running.wait_nodes(4)
        running.wait_running()
        name, address = f"evb-{running.process.pid}", running.address("sfi1")
        for port in range(1, 5):
            sh("tc", "-n", f"{name}-switch", "qdisc", "change", "dev", f"port{port}", "root", "tbf", "rate", "10mbit", "burst", "4kb",
               "limit", "8kb")
        start = multiprocessing.Barrier(1)
        with children([(flood, f"{name}-ros1", address, start)]) as processes:
            processes[0].join(LIMIT_S)
            assert processes[0].exitcode == 0, processes[0]
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
    report = json.loads(out)
    print(f"the port dropped {report['drops']['switch_packets']}, the testbed lost {report['testbed_lost_packets']}")
    assert report["testbed_lost_packets"] > 0, report["testbed_lost_packets"]
    # One sender cannot send more than the port's rate: the port itself has no reason to drop, however late the link is.
    assert report["drops"]["switch_packets"] <= TOLERANCE_S * LINK_BPS / 8 / FRAME, report["drops"]
    assert f"the testbed itself lost {report['testbed_lost_packets']} packets" in err, err


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


main({"fallback": fallback, "carries": carries, "exceeds": exceeds, "floods": floods, "lost": lost, "reported": reported})
