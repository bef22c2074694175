#!/usr/bin/env python3
"""Shaping by `evb qos`, on real devices in namespaces, as a user has it.

    test_qos.py EVB [CASE...]
"""
import contextlib
import json
import os
import re
import signal
import socket
import struct
import time

from harness import LIMIT_S, Skip, folder, main
from network import Network, Numbered, sh, wait_until

TWO = ("--dev", "eth0", "--dest", "10.9.0.2=8Mbit", "--dest", "fd00:9::2=9Mbit", "--link-rate", "100Mbit")


def texts(network, node):
    return "".join(network.tc(node, what, "show", "dev", "eth0").stdout for what in ("qdisc", "class", "filter"))


@contextlib.contextmanager
def pair():
    with Network("a", "b") as network:
        network.pair("a", "b")
        yield network


def plan(evb):
    """plan needs no privilege, and its report has the fields of the contract."""
    done = sh(evb, "qos", "plan", "--dev", "lo", "--dest", "127.0.0.2=20Mbit", "--dest", "127.0.0.3", "--link-rate", "1Gbit", "--sources", "6",
              "--switch-buffer", "2MiB", "--set", "network.port=26800", "--json")
    report = json.loads(done.stdout)
    assert report["device"] == "lo" and report["backend"] == "htb+tbf" and report["operations"] == 0 and report["foreign_root"] is False
    first, second = report["destinations"]
    assert (first["address"], first["rate_bps"]) == ("127.0.0.2", 20000000)
    assert 150_000_000 < second["rate_bps"] < 1_000_000_000 / 6
    for d in (first, second, report["control"], report["default"]):
        assert re.fullmatch(r"e7b:[0-9a-f]+", d["classid"]), d
        for counter in ("bytes", "packets", "drops"):
            assert d[counter] is None, d
    for d in (first, second):
        assert d["overlimits"] is None and d["backlog_bytes"] is None and d["requeues"] is None
    for d in (first, second):
        assert d["burst_bytes"] * 6 <= 2 * 1024 * 1024 * 3 / 4 and d["limit_bytes"] > 0, d
    assert len(report["tc_commands"]) == 17 and all(c.startswith("tc ") for c in report["tc_commands"]), report["tc_commands"]
    text = sh(evb, "qos", "plan", "--dev", "lo", "--dest", "127.0.0.2=20Mbit").stdout
    assert "tc qdisc add dev lo root handle e7b: htb" in text and "reasons" in text
    with folder() as where:
        path = where / "x.conf"
        path.write_text("[scenario]\ntransport = tcp\n[network]\nlink-rate = 1Gbit\nswitch-buffer = 128KiB\ncontrol-group = none\n"
                        "[qos]\nbackend = socket\n[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                        "device = lo\n[node s]\nrole = sfi\naddress = 10.9.0.2\n")
        words = ["--config", str(path), "--node", "r"]
        text = sh(evb, "qos", "plan", *words).stdout
        assert "backend socket, as configured" in text and "no tc commands: the kernel paces each TCP connection of the ROS" in text, text
        report = json.loads(sh(evb, "qos", "plan", *words, "--json").stdout)
        assert report["backend"] == "socket" and report["tc_commands"] == [] and report["control"] is report["default"] is None, report
        assert report["destinations"][0]["classid"] is None and report["destinations"][0]["rate_bps"] > 900_000_000, report
        for verb in ("apply", "watch"):
            done = sh(evb, "qos", verb, *words, check=False)
            assert done.returncode == 2 and "only a ROS can have its own connections paced" in done.stderr, done
        assert sh(evb, "qos", "remove", *words).stdout.startswith("lo: 0 changes\n")


LOOPBACK = ("--dev", "lo", "--dest", "127.0.0.1=1Mbit")


def mistakes(evb):
    for words, says in (
        ((), "missing device or destination"),
        (("--dev", "lo"), "missing device or destination"),
        (("--dest", "127.0.0.1=1Mbit"), "missing device or destination"),
        (("--dev", "lo", "--dest", "nonsense=1Mbit"), "ADDRESS=RATE"),
        (("--dev", "lo", "--dest", "127.0.0.1=fast"), "ADDRESS=RATE"),
        (("--dev", "lo", "--dest", "127.0.0.1=500Gbit"), "400Gbit"),
        (("--dev", "lo", "--dest", "127.0.0.1=1Mbit", "--dest", "127.0.0.1=2Mbit"), "duplicate destination"),
        (("--dev", "lo", "--dest", "127.0.0.1=1Mbit", "--set", "qos.burst=100"), "frame"),
        (("--dev", "lo", "--dest", "127.0.0.1=1Mbit", "--backend", "fq"), "htb+tbf"),
        (("--dev", "lo", "--dest", "127.0.0.1=1Mbit", "--sources", "0"), "from 1"),
        ((*LOOPBACK, "--backend", "none"), "--backend: invalid value"),
        ((*LOOPBACK, "--backend", "socket"), "backend socket: only a ROS can have its own connections paced"),
        ((*LOOPBACK, "--set", "qos.backend=none"), "--set qos.backend: invalid value"),
        ((*LOOPBACK, "--set", "qos.overhead=x"), "--set test.overhead: invalid value"),
        ((*LOOPBACK, "--set", "nonsense"), "--set nonsense: unknown key; without --config, expected KEY=VALUE of qos.backend, "),
        ((*LOOPBACK, "--set", "qos.brust=2kB"), "--set qos.brust=2kB: unknown key"),
        ((*LOOPBACK, "--set", "sfi.retries=2"), "--set sfi.retries=2 needs --config FILE"),
        (("--dev", "nonesuch", "--dest", "127.0.0.1=1Mbit"), "nonesuch"),
        (("--config", "/nonexistent.conf", "--node", "ros1"), "nonexistent"),
        (("--bogus",), "unknown option"),
    ):
        done = sh(evb, "qos", "plan", *words, check=False)
        assert done.returncode == 2 and says in done.stderr, (words, done)
    done = sh(evb, "qos", "plan", *LOOPBACK, "--set", "nonsense", check=False)
    keys = re.findall(r"[a-z]+\.[a-z-]+", done.stderr.partition("KEY=VALUE of ")[2])
    dest = " ".join(sh(evb, "qos", "plan", "--help").stdout.split()).partition("--dest ")[2].partition("repeatable")[0]
    assert len(keys) > 9 and sorted(keys) == sorted(re.findall(r"[a-z]+\.[a-z-]+", dest)), (keys, dest)
    done = sh(evb, "qos", "plan", *LOOPBACK, "--set", "qos.overhead=30")
    new = sh(evb, "qos", "plan", *LOOPBACK, "--set", "test.overhead=30")
    assert "qos.overhead is now test.overhead" in done.stderr and done.stdout == new.stdout and not new.stderr, (done, new)
    assert sh(evb, "qos", "fly", check=False).returncode == 2
    assert sh(evb, "qos", check=False).returncode == 2
    with folder() as where:
        path = where / "x.conf"
        path.write_text("[ros]\ncount = 2\n[sfi]\ncount = 1\n")
        done = sh(evb, "qos", "plan", "--config", str(path), "--node", "sfi1", check=False)
        assert done.returncode == 2, done
        done = sh(evb, "qos", "plan", "--config", str(path), "--node", "ros1", "--rate", "1Mbit", check=False)
        assert done.returncode == 2 and "--set qos.rate=1Mbit" in done.stderr, done


def no_root(evb):
    """Without privilege, apply exits with 77 and names the capability; status works."""
    with folder() as where:
        where.chmod(0o777)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        for offload in ("no", "auto", "required"):
            done = sh(*drop, evb, "qos", "apply", "--dev", "lo", "--dest", "127.0.0.9=1Mbit", "--offload", offload, check=False,
                      env={**os.environ, "EVB_STATE_DIRECTORY": str(where)})
            assert done.returncode == 77 and "CAP_NET_ADMIN" in done.stderr, done
        assert sh(*drop, evb, "qos", "status", "--dev", "lo").returncode == 0


def life(evb):
    """A tree is installed, kept, changed, shown and removed."""
    with pair() as network:
        before = texts(network, "a")
        refused = network.evb(evb, "a", "qos", "apply", *TWO, "--offload", "required", check=False)
        says = "eth0: the kernel refuses to offload htb: Operation not supported: hw-tc-offload ethtool feature flag must be on"
        assert refused.returncode == 77 and refused.stderr == f"evb qos: {says}\n" and texts(network, "a") == before, refused
        first = network.qos(evb, "a", "apply", *TWO, "--set", "network.port=26800", "--offload", "auto")
        assert f"{says}; shaping without offload (qos.offload = auto)" in first["warnings"] and first["offload"] is False, first
        assert first["operations"] > 10 and first["backend"] == "htb+tbf", first
        assert [d["rate_bps"] for d in first["destinations"]] == [8000000, 9000000]
        again = network.qos(evb, "a", "apply", *TWO, "--set", "network.port=26800")
        assert again["operations"] == 0, again
        changed = network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=5Mbit", "--link-rate", "100Mbit", "--set", "network.port=26800")
        assert len(changed["destinations"]) == 1 and changed["destinations"][0]["rate_bps"] == 5000000
        status = network.qos(evb, "a", "status", "--dev", "eth0")
        assert status["destinations"][0]["asked_bps"] == 5000000 and status["operations"] == 0
        rows = dict(re.findall(r"^(\S+|all other) +e7b:\S+ +\S+(?: \S+/s)? +(.*?/s) ", network.run("a", evb, "qos", "status", "--dev", "eth0").stdout, re.M))
        # Only the destination is limited to its rate.
        assert rows["10.9.0.2"] == "5.00 Mbit/s" and rows["control"].startswith(">= ") and rows["all other"].startswith(">= "), rows
        removed = network.qos(evb, "a", "remove", "--dev", "eth0")
        assert removed["operations"] > 0 and removed["backend"] == "none" and removed["destinations"] == []
        assert texts(network, "a") == before
        assert network.qos(evb, "a", "remove", "--dev", "eth0")["operations"] == 0


def counters(evb):
    """Packets reach the class of their destination, port and family; ARP and neighbour discovery that of control messages."""
    with pair() as network:
        network.qos(evb, "a", "apply", *TWO, "--set", "network.port=26800", "--dest", "239.1.2.3=7Mbit")
        network.ip("a", "route", "add", "239.0.0.0/8", "dev", "eth0")
        with network.inside("a"):
            four, six = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        for _ in range(10):
            four.sendto(b"x" * 100, ("10.9.0.2", 5000))
            six.sendto(b"x" * 100, ("fd00:9::2", 5000))
            four.sendto(b"x" * 100, ("239.1.2.3", 5000))
            four.sendto(b"x" * 100, ("10.9.0.2", 26800))
            four.sendto(b"x" * 100, ("239.255.69.86", 26800))
            six.sendto(b"x" * 100, ("fd00:9::2", 26800))

        def packets():
            s = network.qos(evb, "a", "status", "--dev", "eth0")
            return [d["packets"] for d in s["destinations"]], s["control"]["packets"], s["default"]["packets"]

        # The kernel itself looks for neighbours and routers, too.
        wait_until("packets in their classes", lambda: packets()[0] == [10, 10, 10] and packets()[1] >= 30)
        four.close()
        six.close()
        with network.inside("a"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + bytes(20)
            for what, frames in (("control", [(0x0806, arp)] + [(0x86dd, icmpv6("fd00:9::2", kind)) for kind in (133, 135, 136, 137)]),
                                 ("other", [(0x0806, arp[:5] + b"\x06" + arp[6:])] +
                                  [(0x86dd, icmpv6("fd00:9::9", *how)) for how in ((128,), (138,), (135, 254))])):
                before = packets()
                for protocol, packet in frames:
                    for _ in range(50):
                        raw.send(b"\xff" * 6 + b"\x02" * 6 + struct.pack("!H", protocol) + packet)
                at, other = (1, 2) if what == "control" else (2, 1)
                wait_until(f"neighbours in the class of {what} traffic", lambda: packets()[at] >= before[at] + 50 * len(frames))
                assert packets()[other] < before[other] + 50, (before, packets())


def icmpv6(to, kind, hops=255):
    """An ICMPv6 packet, without a checksum."""
    return struct.pack("!IHBB", 6 << 28, 24, 58, hops) + socket.inet_pton(socket.AF_INET6, "fd00:9::1") + \
        socket.inet_pton(socket.AF_INET6, to) + bytes([kind]) + bytes(23)


def others(evb):
    """All other traffic has a short queue, whose drops are counted and raise no alarm; the plan says which queue."""
    with pair() as network:
        planned = json.loads(network.run("a", evb, "qos", "plan", *TWO, "--json").stdout)["reasons"]["other"]
        assert planned == "fq_codel, a short queue for each flow, if the kernel supports it; otherwise a queue of 262144 bytes, about 10 ms of the link"
        reasons = network.qos(evb, "a", "apply", *TWO)["reasons"]["other"]
        assert reasons in planned and reasons != planned, reasons
        network.ip("b", "address", "add", "10.9.0.7/24", "dev", "eth0")
        out = network.socket("a")
        out.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)  # SO_SNDBUFFORCE
        for _ in range(2000):
            out.sendto(b"x" * 1400, ("10.9.0.7", 5000))
        status = network.qos(evb, "a", "status", "--dev", "eth0")
        other = status["default"]
        assert other["limit_bytes"] == (16 << 20 if "fq_codel" in reasons else 262144), status
        if "fq_codel" not in reasons:
            assert other["drops"] > 0 and other["backlog_bytes"] <= 262144, status
        assert status["warnings"] == [], status
        out.close()


def many(evb):
    """With more than 64 destinations, a hash table leads each address to its class."""
    with pair() as network:
        dests = [w for i in range(1, 301) for w in ("--dest", f"10.{i % 3}.{i // 200}.{i % 200 + 1}=1Mbit")]
        report = network.qos(evb, "a", "apply", "--dev", "eth0", *dests, "--link-rate", "1Gbit")
        assert len(report["destinations"]) == 300
        network.ip("a", "route", "add", "10.0.0.0/8", "via", "10.9.0.2")
        network.ip("b", "link", "set", "eth0", "promisc", "on")
        out = network.socket("a")
        for n, i in enumerate((1, 2, 77, 199, 200, 300), 1):
            for _ in range(n):
                out.sendto(b"x", (f"10.{i % 3}.{i // 200}.{i % 200 + 1}", 5000))
        want = {f"10.{i % 3}.{i // 200}.{i % 200 + 1}": n for n, i in enumerate((1, 2, 77, 199, 200, 300), 1)}

        def got():
            s = network.qos(evb, "a", "status", "--dev", "eth0")
            return {d["address"]: d["packets"] for d in s["destinations"] if d["packets"]}

        wait_until("packets in their classes", lambda: got() == want)
        out.close()


def bpf(command, attributes):
    """The system call bpf: returns a descriptor, or skips the case with the reason."""
    import ctypes
    import platform
    number = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    if not number:
        raise Skip(f"the number of the bpf system call of {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attributes.ljust(120, b"\0"), 120)
    fd = ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, 120)
    if fd < 0:
        raise Skip(f"no BPF program that tags packets: {os.strerror(ctypes.get_errno())}")
    return fd


def tag_all(network, node, device):
    """Tag each packet out of band, as a VLAN device above does, until the result is closed."""
    import ctypes
    code = struct.pack("<BBhiBBhiBBhiBBhiBBhi", 0xb7, 2, 0, socket.htons(0x8100), 0xb7, 3, 0, 5,
                       0x85, 0, 0, 18, 0xb7, 0, 0, -1, 0x95, 0, 0, 0)  # vlan_push(packet, 802.1Q, 5); go on
    instructions, license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    with network.inside(node):
        program = bpf(5, struct.pack("<IIQQ", 3, len(code) // 8, ctypes.addressof(instructions),
                                     ctypes.addressof(license)))
        link = bpf(28, struct.pack("<IIII", program, socket.if_nametoindex(device), 47, 0))
    os.close(program)
    return link


def vlan(evb):
    """Packets of a VLAN device above find their class: by row, by hash, by control port."""
    for more in (0, 100):
        with pair() as network:
            dests = [w for i in range(1, more + 1)
                     for w in ("--dest", f"10.8.0.{i}=1Mbit", "--dest", f"fd00:8::{i}=1Mbit")]
            network.qos(evb, "a", "apply", *TWO, *dests, "--set", "network.port=4680")
            four = network.socket("a")
            six = network.socket("a", family=socket.AF_INET6)
            for address in ("10.9.0.2", "fd00:9::2"):
                link = json.loads(network.run("b", "ip", "-j", "link", "show", "dev", "eth0").stdout)[0]
                network.ip("a", "neigh", "replace", address, "lladdr", link["address"], "dev", "eth0")

            def packets():
                s = network.qos(evb, "a", "status", "--dev", "eth0")
                known = {d["address"]: d["packets"] for d in s["destinations"]}
                return known["10.9.0.2"], known["fd00:9::2"], s["control"]["packets"]

            link = tag_all(network, "a", "eth0")
            before = packets()
            for _ in range(10):
                four.sendto(b"x", ("10.9.0.2", 5000))
                six.sendto(b"x", ("fd00:9::2", 5000))
                four.sendto(b"x", ("10.9.0.2", 4680))
                six.sendto(b"x", ("fd00:9::2", 4680))
            want = tuple(n + more for n, more in zip(before, (10, 10, 20)))
            # The kernel's own search for neighbours is in the class of control messages, too.
            wait_until("tagged packets in their classes", lambda: packets()[:2] == want[:2] and packets()[2] >= want[2])
            os.close(link)
            four.close()
            six.close()


def live(evb):
    """A change of rates loses and reorders no packet of a queued stream."""
    with pair() as network:
        def apply(rate):
            return network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", f"10.9.0.2={rate}", "--link-rate", "1Gbit")

        apply("4Mbit")
        stream = Numbered(network, "a", "b", "10.9.0.2")
        stream.send(300)
        for rate in ("8Mbit", "2Mbit", "20Mbit", "5Mbit", "100Mbit"):
            # An empty queue would prove nothing; on a slow machine it may be empty already.
            while network.qos(evb, "a", "status", "--dev", "eth0")["destinations"][0]["backlog_bytes"] == 0:
                stream.send(800)
                stream.take()
            assert apply(rate)["operations"] > 0
            stream.send(200)
        stream.check_all()
        assert network.qos(evb, "a", "status", "--dev", "eth0")["destinations"][0]["drops"] == 0
        stream.close()


def shorter_burst(evb):
    """TBF never sends a super-packet that waits already and is larger than a new burst: evb replaces such a queue, and
    traffic goes on."""
    size, segments = 1400, 40
    with pair() as network:
        def apply(burst):
            return network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=50kbit", "--link-rate", "1Gbit",
                               "--set", f"qos.burst={burst}")

        def queue():
            return network.qos(evb, "a", "status", "--dev", "eth0")["destinations"][0]

        assert apply(80000)["warnings"] == []
        stream = Numbered(network, "a", "b", "10.9.0.2", size=size)
        try:
            stream.out.setsockopt(socket.SOL_UDP, 103, size)  # UDP_SEGMENT
        except OSError as error:
            raise Skip(f"no UDP_SEGMENT: {error}") from error
        sent = 0
        # Some 9 s each.
        while queue()["backlog_bytes"] < 6 * size * segments:
            stream.out.send(bytes(size * segments))
            sent += 1
        report = apply(5000)
        stream.out.setsockopt(socket.SOL_UDP, 103, 0)
        stream.sent = 1000
        stream.send(20)
        wait_until("traffic after the change", lambda: stream.take() and stream.numbers[-1] == 1019)
        found = re.search(r"tbf 1001: .*: 1 queue replaced, (\d+) packets dropped", " ".join(report["warnings"]))
        assert found and int(found[1]) > 0, report["warnings"]
        # What went with the queue is counted, and nothing else is lost.
        assert stream.numbers.count(0) == (sent - int(found[1])) * segments, (len(stream.numbers), found[0])
        assert stream.numbers[-20:] == list(range(1000, 1020)), stream.numbers
        assert queue()["backlog_bytes"] == 0
        # The same burst, or a longer one, keeps the queue.
        assert apply(5000)["operations"] == 0 and apply(20000)["warnings"] == []
        stream.close()


def full_queue(evb):
    """A socket that sends more than the queue holds waits; the source drops nothing."""
    with pair() as network:
        network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=50Mbit", "--link-rate", "1Gbit", "--set", "network.socket-buffer=2MiB")
        stream = Numbered(network, "a", "b", "10.9.0.2")
        for _ in range(40):
            stream.send(100)
            stream.take()
        stream.check_all()
        status = network.qos(evb, "a", "status", "--dev", "eth0")
        assert status["destinations"][0]["drops"] == 0 and status["destinations"][0]["overlimits"] > 0
        stream.close()


# More data than this are queued when a control message is sent, and this process does not pause meanwhile for longer.
WAITING, UNPAUSED_S = 400, 0.01


def control_overtakes(evb):
    """With a class of their own, control messages overtake data that fill the link: less than a tenth of the data that wait are sent before
    them. Without it, all of them are."""
    with pair() as network:
        def shape(*more):
            # The rate of the destination exceeds the link, so that data fill the link.
            network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=40Mbit", "--link-rate", "10Mbit", *more)

        # While the kernel looks up an address, it drops packets.
        mac = json.loads(network.ip("b", "-json", "link", "show", "eth0").stdout)[0]["address"]
        network.ip("a", "neigh", "replace", "10.9.0.2", "lladdr", mac, "dev", "eth0", "nud", "permanent")
        shape()
        stream, control, ports = Numbered(network, "a", "b", "10.9.0.2"), network.socket("a"), []
        stream.out.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE
        stream.out.setblocking(False)
        with network.inside("b"):
            every = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        every.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        every.setblocking(False)

        def arrived():
            """Returns the destination ports of all datagrams, in the order in which they arrived."""
            with contextlib.suppress(BlockingIOError):
                while True:
                    ports.append(int.from_bytes(every.recv(24)[22:24], "big"))
            return ports

        def share():
            """Returns the share of the waiting data that a control message does not overtake, in a tuple."""
            with contextlib.suppress(BlockingIOError):
                while True:
                    stream.send(1)
            arrived()
            begin = time.monotonic()
            before = len(arrived())
            control.sendto(b"ping", ("10.9.0.2", 26800))
            pause = time.monotonic() - begin
            wait_until("control message", lambda: 26800 in arrived()[before:])
            first, waiting = ports.index(26800, before) - before, stream.sent - ports[:before].count(7000)
            return waiting > WAITING and pause < UNPAUSED_S and (first / waiting,)

        def shares(n):
            return [wait_until("data that wait", share)[0] for _ in range(n)]

        without = shares(1)
        shape("--set", "network.port=26800", "--set", "qos.control-rate=500kbit")
        overtaking = shares(7)
        assert without == [1] and max(overtaking) < 0.1, (without, overtaking)
        for s in (every, control):
            s.close()
        stream.close()


def drops_alarm(evb):
    """A limit below the send buffer drops packets at the source; plan warns, status counts them."""
    with pair() as network:
        report = network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=1Mbit", "--set", "qos.limit=10kB", "--link-rate", "1Gbit")
        assert any("may drop packets" in w for w in report["warnings"]), report["warnings"]
        stream = Numbered(network, "a", "b", "10.9.0.2")
        stream.send(200)
        status = network.qos(evb, "a", "status", "--dev", "eth0")
        assert status["destinations"][0]["drops"] > 0
        assert any("dropped at the source" in w for w in status["warnings"]), status["warnings"]
        assert "ALARM" in network.evb(evb, "a", "qos", "status", "--dev", "eth0").stdout
        stream.close()


def remove_drains(evb):
    """Packets that are queued during removal still arrive."""
    with pair() as network:
        network.qos(evb, "a", "apply", "--dev", "eth0", "--dest", "10.9.0.2=1Mbit", "--link-rate", "1Gbit")
        stream = Numbered(network, "a", "b", "10.9.0.2")
        stream.send(300)  # three seconds' worth
        report = network.qos(evb, "a", "remove", "--dev", "eth0")
        assert report["warnings"] == [], report
        stream.check_all()
        stream.close()


def leaving(evb):
    """A removed destination drains at its own rate before its class is deleted."""
    with pair() as network:
        def apply(*dests):
            return network.qos(evb, "a", "apply", "--dev", "eth0", *[w for d in dests for w in ("--dest", d)], "--link-rate", "1Gbit")

        apply("10.9.0.2=2Mbit", "10.9.0.7=1Mbit")
        stream = Numbered(network, "a", "b", "10.9.0.2")
        stream.send(100)
        report = apply("10.9.0.7=1Mbit")
        assert len(report["destinations"]) == 1 and report["warnings"] == [], report
        stream.check_all()
        stream.close()


def watch(evb):
    """Changes by other programs are reported with the program's name, and reverted; own changes are not reported."""
    with pair() as network:
        network.qos(evb, "a", "apply", *TWO)
        wanted = texts(network, "a")
        watcher = network.popen("a", evb, "qos", "watch", "--dev", "eth0", "--repair")
        try:
            assert "watching" in watcher.stdout.readline()
            network.tc("a", "qdisc", "change", "dev", "eth0", "parent", "e7b:1001", "handle", "1001:", "tbf", "rate", "1mbit", "burst", "5k", "limit", "1m")
            line = watcher.stdout.readline()
            assert "tbf 1001:" in line and "changed" in line and "8Mbit" in line, line
            assert "repaired with 1" in watcher.stdout.readline()
            network.tc("a", "qdisc", "del", "dev", "eth0", "root")
            lines = [watcher.stdout.readline()]
            while "repaired" not in lines[-1]:
                lines.append(watcher.stdout.readline())
            assert any("root qdisc" in line and "missing" in line for line in lines), lines
            wait_until("the tree again", lambda: re.sub(r"refcnt \d+", "", texts(network, "a")) == re.sub(r"refcnt \d+", "", wanted))
            watcher.send_signal(signal.SIGTERM)
            out, err = watcher.communicate(timeout=LIMIT_S)
            assert watcher.returncode == 0 and out == "", (out, err)
        finally:
            watcher.kill()
            watcher.wait()


def watch_gone(evb):
    """watch reports a deleted device, and exits with 1."""
    with pair() as network:
        network.qos(evb, "a", "apply", *TWO)
        watcher = network.popen("a", evb, "qos", "watch", "--dev", "eth0")
        try:
            assert "watching" in watcher.stdout.readline()
            network.ip("a", "link", "del", "eth0")
            _, err = watcher.communicate(timeout=LIMIT_S)
            assert watcher.returncode == 1 and "gone" in err, err
        finally:
            watcher.kill()
            watcher.wait()


def jumbo_device(evb):
    """TCP packets larger than network.mtu pass, up to the MTU of the device."""
    with pair() as network, folder() as where:
        path = where / "s.conf"
        path.write_text("[network]\nlink-rate = 1Gbit\ncontrol-group = none\n[qos]\nrate = 20Mbit\n"
                        "[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                        "[node s]\nrole = sfi\naddress = 10.9.0.2\n")
        for node in ("a", "b"):
            network.ip(node, "link", "set", "eth0", "mtu", "9000")
        network.qos(evb, "a", "apply", "--config", str(path), "--node", "r")
        stream = socket.SOCK_STREAM
        with network.socket("b", stream) as listener, network.socket("a", stream) as sender:
            listener.bind(("10.9.0.2", 5000))
            listener.listen()
            sender.settimeout(60)
            sender.connect(("10.9.0.2", 5000))
            receiver = listener.accept()[0]
            receiver.settimeout(60)
            got, wanted = 0, 2 << 20
            while got < wanted:
                sender.sendall(bytes(1 << 14))
                got += len(receiver.recv(1 << 16))
            receiver.close()
        drops = [d["drops"] for d in network.qos(evb, "a", "status", "--dev", "eth0")["destinations"]]
        assert drops == [0], drops


def scenario(evb):
    """With a scenario and a node name, the device is found by the node's address."""
    with pair() as network, folder() as where:
        path = where / "s.conf"
        path.write_text("[network]\nlink-rate = 1Gbit\ncontrol-group = none\n[qos]\nbackend = auto\n"
                        "[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                        "[node s]\nrole = sfi\naddress = 10.9.0.2\n[node t]\nrole = sfi\naddress = 10.9.0.3\n")
        words = ("--config", str(path), "--node", "r")
        report = network.qos(evb, "a", "apply", *words)
        assert report["device"] == "eth0" and [d["address"] for d in report["destinations"]] == ["10.9.0.2", "10.9.0.3"], report
        assert network.qos(evb, "a", "apply", *words)["operations"] == 0
        assert network.qos(evb, "a", "apply", *words, "--set", "qos.rate=10Mbit")["operations"] > 0
        assert network.qos(evb, "a", "remove", *words)["backend"] == "none"


def apart(evb):
    """In a scenario, packets to an SFI that are not data have a queue of their own, and do not wait behind data."""
    port = 26801
    with pair() as network, folder() as where:
        path = where / "apart.conf"
        for transport in ("udp", "tcp"):
            path.write_text(f"[scenario]\ntransport = {transport}\n[network]\nlink-rate = 1Gbit\n[qos]\nbackend = auto\nrate = 8kbit\n"
                            "[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                            "[node s]\nrole = sfi\naddress = 10.9.0.2\n")
            words = ("--config", str(path), "--node", "r")
            assert network.qos(evb, "a", "apply", *words)["operations"] > 0 == network.qos(evb, "a", "apply", *words)["operations"]
            with network.inside("b"):
                servers = {n: socket.create_server(("10.9.0.2", n)) for n in (22, port)}
            with network.inside("a"):
                data = socket.socket(type=socket.SOCK_DGRAM) if transport == "udp" else socket.create_connection(("10.9.0.2", port))
                other = socket.socket()
            data.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(50):
                    if transport == "udp":
                        data.sendto(b"x" * 1400, ("10.9.0.2", port))
                    else:
                        data.send(b"x" * 1400)
            wait_until("data in the queue", lambda: status(network, evb)["destinations"][0]["backlog_bytes"] > 20000)
            # All of it needs more than a minute, the other packets a part of a second.
            other.settimeout(LIMIT_S)
            other.connect(("10.9.0.2", 22))
            peer, _ = servers[22].accept()
            other.send(b"x")
            assert peer.recv(1) == b"x"
            now = status(network, evb)
            assert now["destinations"][0]["backlog_bytes"] > 0 < now["apart"]["packets"] and now["destinations"][0]["drops"] == 0, now
            assert "to them, not data" in network.run("a", evb, "qos", "status", "--dev", "eth0").stdout
            before = now["apart"]["packets"]
            with network.inside("a"), socket.socket(type=socket.SOCK_DGRAM) as udp:
                udp.sendto(b"x", ("10.9.0.2", 5000))
            if transport == "tcp":
                wait_until("UDP apart", lambda before=before: status(network, evb)["apart"]["packets"] > before)
            assert network.qos(evb, "a", "remove", *words)["backend"] == "none"
            for each in (*servers.values(), data, other, peer):
                each.close()


def status(network, evb):
    return network.qos(evb, "a", "status", "--dev", "eth0")


if __name__ == "__main__":
    main({
        "plan": plan,
        "mistakes": mistakes,
        "no-root": no_root,
        "life": life,
        "counters": counters,
        "many": many,
        "vlan": vlan,
        "live": live,
        "shorter-burst": shorter_burst,
        "full-queue": full_queue,
        "control-overtakes": control_overtakes,
        "drops-alarm": drops_alarm,
        "remove-drains": remove_drains,
        "leaving": leaving,
        "watch": watch,
        "watch-gone": watch_gone,
        "jumbo-device": jumbo_device,
        "scenario": scenario,
        "apart": apart,
        "others": others,
    })
