#!/usr/bin/env python3
"""evb qos and a shaping ROS on multi-queue, stacked, renamed, stopped, deleted and slower devices.

    test_devices.py EVB [CASE...]
"""
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import struct

from harness import LIMIT_S, Background, Skip, folder, main
from network import Network, sh, wait_until

DEST = ("--dest", "10.0.0.2=20Mbit", "--dest", "10.0.0.3=30Mbit")
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x0100
SIOCETHTOOL = 0x8946
ETHTOOL_GSET, ETHTOOL_SSET = 1, 2


def state(network, dev):
    """The qdiscs, classes and filters of a device as tc shows them, without the count of references."""
    text = [network.tc("a", what, "show", "dev", dev).stdout for what in ("qdisc", "class", "filter")]
    return re.sub(r" refcnt \d+", "", "".join(text))


def states():
    return os.listdir(os.environ["EVB_STATE_DIRECTORY"])


def add_link(network, *words):
    """Makes a device of a kind that this kernel may lack."""
    done = sh("ip", "-n", network.name("a"), "link", "add", *words, check=False)
    if done.returncode != 0 and re.search("Operation not supported|Unknown device type", done.stderr):
        kind = words[words.index("type") + 1]
        raise Skip(f"this kernel has no {kind} devices (module {'8021q' if kind == 'vlan' else kind})")
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def alone(*names):
    with Network("a", *names) as network:
        yield network


class Tap(contextlib.AbstractContextManager):
    """A tap with several queues; closing it deletes the device."""

    def __init__(self, network, name, queues):
        self.files = []
        with network.inside("a"):
            for _ in range(queues):
                f = open("/dev/net/tun", "rb+", buffering=0)
                self.files.append(f)
                flags = IFF_TAP | IFF_NO_PI | (IFF_MULTI_QUEUE if queues > 1 else 0)
                fcntl.ioctl(f, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        network.ip("a", "link", "set", name, "up")

    def __exit__(self, *_):
        for f in self.files:
            f.close()


def tap(network, name="t0", queues=1):
    try:
        return Tap(network, name, queues)
    except FileNotFoundError:
        raise Skip("this kernel has no tap devices (/dev/net/tun)") from None


def set_speed(network, dev, mbps):
    """What `ethtool -s DEV speed N` does."""
    with network.socket("a") as s:
        data = bytearray(44)
        for command in (ETHTOOL_GSET, ETHTOOL_SSET):
            struct.pack_into("=I", data, 0, command)
            if command == ETHTOOL_SSET:
                struct.pack_into("=H", data, 12, mbps & 0xFFFF)
                struct.pack_into("=H", data, 28, mbps >> 16)
            import ctypes
            buffer = (ctypes.c_char * 44).from_buffer(data)
            try:
                fcntl.ioctl(s, SIOCETHTOOL, struct.pack("16sP16x", dev.encode(), ctypes.addressof(buffer)))
            except OSError as e:
                raise Skip(f"this kernel's tap devices do not accept a speed: {e}") from None
            del buffer


def comes_and_goes(network, evb, dev):
    """apply replaces the root, and remove restores exactly what the kernel makes for this device."""
    before = state(network, dev)
    report = network.qos(evb, "a", "apply", "--dev", dev, *DEST)
    assert report["backend"] == "htb+tbf" and not report["foreign_root"], report
    shaped = state(network, dev)
    assert "htb e7b:" in shaped and "mq" not in shaped, shaped
    assert network.qos(evb, "a", "apply", "--dev", dev, *DEST)["operations"] == 0
    report = network.qos(evb, "a", "remove", "--dev", dev)
    assert report["backend"] == "none", report
    after = state(network, dev)
    assert after == before, f"{before}\n--- became ---\n{after}"
    assert not states()
    return before


def mq_veth(evb):
    """A veth with four transmit queues has mq as its root, which removal makes again."""
    with alone() as network:
        add_link(network, "v0", "numtxqueues", "4", "numrxqueues", "4", "type", "veth", "peer", "name", "v1")
        for dev in ("v0", "v1"):
            network.ip("a", "link", "set", dev, "up")
        # The kernel gives a virtual device no queue; set mq as a card with several queues has it.
        network.tc("a", "qdisc", "replace", "dev", "v0", "root", "mq")
        done = network.run("a", str(evb), "qos", "apply", "--dev", "v0", *DEST, check=False)
        assert done.returncode == 1 and "root qdisc mq" in done.stderr, done
        network.tc("a", "qdisc", "del", "dev", "v0", "root")
        comes_and_goes(network, evb, "v0")


def mq_tap(evb):
    """A tap with four queues has the kernel's own mq."""
    with alone() as network, tap(network, "t0", 4):
        before = comes_and_goes(network, evb, "t0")
        assert "qdisc mq 0: root" in before and before.count("parent :") == 4, before
        # The same after a device that was down meanwhile.
        network.evb(evb, "a", "qos", "apply", "--dev", "t0", *DEST)
        network.ip("a", "link", "set", "t0", "down")
        network.ip("a", "link", "set", "t0", "up")
        assert network.qos(evb, "a", "status", "--dev", "t0")["backend"] == "htb+tbf"
        network.evb(evb, "a", "qos", "remove", "--dev", "t0")
        assert state(network, "t0") == before, state(network, "t0")


def mq_foreign(evb):
    """mq with a handle is another program's: only --force replaces it, and remove restores it with its leaves."""
    with alone() as network, tap(network, "t0", 4):
        network.tc("a", "qdisc", "replace", "dev", "t0", "root", "handle", "77:", "mq")
        network.tc("a", "qdisc", "replace", "dev", "t0", "parent", "77:2", "handle", "78:", "pfifo", "limit", "55")
        before = state(network, "t0")
        done = network.run("a", str(evb), "qos", "apply", "--dev", "t0", *DEST, check=False)
        assert done.returncode == 1 and "root qdisc mq 77:" in done.stderr, done
        assert state(network, "t0") == before
        network.evb(evb, "a", "qos", "apply", "--dev", "t0", *DEST, "--force")
        report = network.qos(evb, "a", "remove", "--dev", "t0")
        assert state(network, "t0") == before, (report, before, state(network, "t0"))


def mq_spread(evb):
    """Flows of all queues of a device go through the one tree, and its rate holds for their sum."""
    with alone() as network, tap(network, "t0", 4) as t:
        network.ip("a", "addr", "add", "10.0.0.1/24", "dev", "t0")
        network.ip("a", "neigh", "add", "10.0.0.2", "lladdr", "02:00:00:00:00:02", "dev", "t0")
        network.evb(evb, "a", "qos", "apply", "--dev", "t0", "--dest", "10.0.0.2=1Mbit", "--set", "qos.burst=3000")
        for f in t.files:
            os.set_blocking(f.fileno(), False)
        sockets = [network.socket("a") for _ in range(32)]
        for s in sockets:
            s.connect(("10.0.0.2", 9))
            s.setblocking(False)
            for _ in range(4):
                s.send(bytes(1000))

        def counted():
            # A packet may leave between the dumps of queues and classes.
            row = network.qos(evb, "a", "status", "--dev", "t0")["destinations"][0]
            return row["overlimits"] > 0 and row["packets"] + row["backlog_bytes"] // 1042 == 128

        wait_until("all packets in the tree", counted)
        used = set()

        def arrived():
            for i, f in enumerate(t.files):
                with contextlib.suppress(BlockingIOError):
                    while f.read(2048):
                        used.add(i)
            return network.qos(evb, "a", "status", "--dev", "t0")["destinations"][0]["packets"] == 128

        wait_until("all packets", arrived)
        # The kernel chooses the queue before the qdisc; several are in use.
        assert len(used) > 1, used
        for s in sockets:
            s.close()


def stacked(evb, *words):
    with alone() as network:
        network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        add_link(network, *words)
        for dev in ("v0", "v1", "s0"):
            network.ip("a", "link", "set", dev, "up")
        network.ip("a", "addr", "add", "10.0.0.1/24", "dev", "s0")
        comes_and_goes(network, evb, "s0")
        # Found by its address, like a ROS does it.
        with folder() as where:
            path = where / "s.conf"
            path.write_text("[network]\nlink-rate = 1Gbit\n[qos]\nbackend = auto\n[node d]\nrole = dfm\naddress = 10.0.0.9\n"
                            "[node r]\nrole = ros\naddress = 10.0.0.1\n[node s]\nrole = sfi\naddress = 10.0.0.2\n")
            assert network.qos(evb, "a", "apply", "--config", str(path), "--node", "r")["device"] == "s0"
            network.evb(evb, "a", "qos", "remove", "--config", str(path), "--node", "r")


def vlan(evb):
    """The VLAN device, not the device below it, is shaped."""
    stacked(evb, "link", "v0", "name", "s0", "type", "vlan", "id", "5")


def bond(evb):
    """The bond, not its members, is shaped."""
    stacked(evb, "s0", "type", "bond")


def macvlan(evb):
    stacked(evb, "link", "v0", "name", "s0", "type", "macvlan")


@contextlib.contextmanager
def pair(evb):
    with alone() as network:
        network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        for dev in ("v0", "v1"):
            network.ip("a", "link", "set", dev, "up")
        yield network


def rename(network, old, new):
    network.ip("a", "link", "set", old, "down")
    network.ip("a", "link", "set", old, "name", new)
    network.ip("a", "link", "set", new, "up")


def renamed(evb):
    """A renamed device stays shaped; the old name leads to the new one."""
    with pair(evb) as network:
        before = state(network, "v0")
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        rename(network, "v0", "w0")
        done = network.run("a", str(evb), "qos", "status", "--dev", "v0", check=False)
        assert done.returncode == 2 and "is now called w0" in done.stderr, done
        report = network.qos(evb, "a", "status", "--dev", "w0")
        assert report["backend"] == "htb+tbf" and "w0 was called v0 when it was shaped" in report["warnings"], report
        assert [d["asked_bps"] for d in report["destinations"]] == [20_000_000, 30_000_000], report
        network.evb(evb, "a", "qos", "remove", "--dev", "w0")
        assert state(network, "w0") == before and not states()


def deleted(evb):
    """A deleted device, and one that is made anew with its name, are not taken for the shaped one."""
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        network.ip("a", "link", "del", "v0")
        done = network.run("a", str(evb), "qos", "status", "--dev", "v0", check=False)
        assert done.returncode == 2 and "evb qos remove --dev v0" in done.stderr, done
        network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        report = network.qos(evb, "a", "status", "--dev", "v0")
        assert report["backend"] == "none", report
        assert any("made anew; the new device is not shaped" in w for w in report["warnings"]), report
        assert "v0 is down" in " ".join(report["warnings"]), report
        report = network.qos(evb, "a", "apply", "--dev", "v0", *DEST)
        assert any("an earlier device v0" in w for w in report["warnings"]) and report["operations"] > 0, report
        assert len(states()) == 1
        network.ip("a", "link", "del", "v0")
        report = network.qos(evb, "a", "remove", "--dev", "v0")
        assert "v0 no longer exists; its state file is deleted" in report["warnings"], report
        assert not states()
        done = network.run("a", str(evb), "qos", "remove", "--dev", "v0", check=False)
        assert done.returncode == 2 and "expected a network device" in done.stderr, done


class Watcher(Background):
    def __init__(self, network, evb, *words):
        self.process = network.popen("a", str(evb), "qos", "watch", *words)
        self.seen = ""
        os.set_blocking(self.process.stdout.fileno(), False)
        self.wait("watching")

    def wait(self, text, times=1):
        def said():
            with contextlib.suppress(TypeError):
                self.seen += self.process.stdout.read() or ""
            return self.seen.count(text) >= times

        try:
            wait_until(text, said)
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.seen}") from None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_S)
        return self.process.returncode


def watch_link(evb):
    """watch follows a device that goes down, comes up with another name, and has another MTU."""
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        with Watcher(network, evb, "--dev", "v0") as w:
            network.ip("a", "link", "set", "v0", "down")
            w.wait("v0: is down; the kernel has emptied its queues")
            network.ip("a", "link", "set", "v0", "name", "w0")
            w.wait("is now called w0")
            network.ip("a", "link", "set", "w0", "up")
            w.wait("w0: is up")
            network.ip("a", "link", "set", "w0", "mtu", "1400")
            w.wait("has an MTU of 1400 instead of 1500 bytes")
            network.tc("a", "qdisc", "del", "dev", "w0", "root")
            w.wait("root qdisc htb e7b: is missing")
            assert w.stop() == 0, w.seen
        network.evb(evb, "a", "qos", "remove", "--dev", "w0")


def watch_returns(evb):
    """watch --repair waits for a deleted device and shapes it again."""
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        with Watcher(network, evb, "--dev", "v0", "--repair") as w:
            for times in (1, 2):
                network.ip("a", "link", "del", "v0")
                w.wait("the device is gone; shaping it again once it is back", times)
                network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
                w.wait("v0: repaired with", times)
                # A repair whose device vanishes, or that comes too early, is made again.
                wait_until("shaped device", lambda: len(rates(network, evb, "v0")) == 2)
                assert network.qos(evb, "a", "status", "--dev", "v0")["backend"] == "htb+tbf"
            network.tc("a", "qdisc", "del", "dev", "v0", "root")
            w.wait("v0: repaired with", 3)
            network.ip("a", "link", "del", "v0")
            w.wait("the device is gone; shaping it again once it is back", 3)
            assert w.stop() == 1, w.seen
        assert not states(), states()


def watch_flaps(evb):
    """watch --repair bears a device that vanishes while it is being shaped."""
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        with Watcher(network, evb, "--dev", "v0", "--repair") as w:
            for _ in range(20):
                network.ip("a", "link", "del", "v0")
                network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
            wait_until("shaped device", lambda: len(network.qos(evb, "a", "status", "--dev", "v0")["destinations"]) == 2)
            assert w.stop() == 0, w.seen


def watch_unreturned(evb):
    """watch --repair that cannot shape the device that came back fails, and says why."""
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", "--dev", "v0", *DEST)
        with Watcher(network, evb, "--dev", "v0", "--repair") as w:
            network.ip("a", "link", "del", "v0")
            w.wait("the device is gone; shaping it again once it is back")
            where = pathlib.Path(os.environ["EVB_STATE_DIRECTORY"])
            aside = where.rename(f"{where}-aside")
            where.write_text("no directory")
            try:
                network.ip("a", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
                w.process.wait(LIMIT_S)
                said = w.process.stderr.read()
                assert w.process.returncode == 1 and "v0: cannot open the state file: Not a directory" in said, (w.process.returncode, said)
            finally:
                where.unlink()
                aside.rename(where)


def bursts(network, evb, dev):
    return [d["burst_bytes"] for d in network.qos(evb, "a", "status", "--dev", dev)["destinations"]]


def holds_two_frames(network, evb, dev, mtu):
    """The kernel keeps bursts as times; reading them rounds."""
    return all(abs(burst - 2 * (mtu + 14)) < 100 for burst in bursts(network, evb, dev))


def mtu_watch(evb):
    """watch --repair plans again when the device has another MTU, or comes back with one."""
    words = ("--dev", "v0", "--link-rate", "40Mbit", "--dest", "10.0.0.2", "--sources", "16")
    with pair(evb) as network:
        network.evb(evb, "a", "qos", "apply", *words)
        assert holds_two_frames(network, evb, "v0", 1500), bursts(network, evb, "v0")
        with Watcher(network, evb, *words, "--repair") as w:
            network.ip("a", "link", "set", "v0", "mtu", "9000")
            w.wait("has an MTU of 9000 instead of 1500 bytes")
            # A repair whose device vanishes fails.
            w.wait("v0: repaired with")
            wait_until("bursts of two frames", lambda: holds_two_frames(network, evb, "v0", 9000))
            network.ip("a", "link", "del", "v0")
            w.wait("the device is gone")
            network.ip("a", "link", "add", "v0", "mtu", "4000", "type", "veth", "peer", "name", "v1")
            w.wait("v0: repaired with", 2)
            wait_until("bursts of two frames", lambda: bursts(network, evb, "v0") and holds_two_frames(network, evb, "v0", 4000))
            assert w.stop() == 0, w.seen
        network.evb(evb, "a", "qos", "remove", "--dev", "v0")


def rates(network, evb, dev):
    return [d["rate_bps"] for d in network.qos(evb, "a", "status", "--dev", dev)["destinations"]]


def speed(evb):
    """The plan takes the speed that the device reports."""
    with alone() as network, tap(network):
        set_speed(network, "t0", 100)
        network.evb(evb, "a", "qos", "apply", "--dev", "t0", "--dest", "10.0.0.2", "--sources", "2")
        assert rates(network, evb, "t0") == [49_975_000], rates(network, evb, "t0")
        set_speed(network, "t0", 1000)
        network.evb(evb, "a", "qos", "apply", "--dev", "t0", "--dest", "10.0.0.2", "--sources", "2")
        assert rates(network, evb, "t0") == [499_750_000], rates(network, evb, "t0")


def speed_watch(evb):
    """watch --repair plans again when the device reports another speed, unless the rate is configured."""
    with alone() as network, tap(network):
        set_speed(network, "t0", 100)
        words = ("--dev", "t0", "--dest", "10.0.0.2", "--sources", "2")
        network.evb(evb, "a", "qos", "apply", *words)
        with Watcher(network, evb, *words, "--repair") as w:
            set_speed(network, "t0", 1000)
            w.wait("reports 1.00 Gbit/s instead of 100 Mbit/s")
            wait_until("new rate", lambda: rates(network, evb, "t0") == [499_750_000])
            assert w.stop() == 0, w.seen


@contextlib.contextmanager
def lone_ros(network, evb, rate="auto"):
    """A ROS without a DFM, which shapes all the same."""
    with folder() as where:
        path = where / "s.conf"
        path.write_text(f"[network]\ncontrol-group = none\n[qos]\nbackend = auto\nrate = {rate}\n[test]\noverhead = 0\n"
                        "[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                        "[node s]\nrole = sfi\naddress = 10.9.0.2\n[node s2]\nrole = sfi\naddress = 10.9.0.3\n")
        log = where / "log"
        with open(log, "w") as to:
            ros = network.popen("a", str(evb), "ros", "--config", str(path), "--node", "r")
            os.set_blocking(ros.stderr.fileno(), False)
            del to
        seen = [""]

        def wait(text):
            def said():
                with contextlib.suppress(TypeError):
                    seen[0] += ros.stderr.read() or ""
                return text in seen[0]

            try:
                wait_until(text, said)
            except AssertionError as e:
                raise AssertionError(f"{e}: {seen[0]}") from None

        try:
            wait("shaping ")
            yield wait
        finally:
            ros.kill()
            ros.communicate()


def speed_ros(evb):
    """A running ROS plans again when its device reports another speed, and keeps its classes."""
    with alone() as network, tap(network):
        network.ip("a", "addr", "add", "10.9.0.1/24", "dev", "t0")
        set_speed(network, "t0", 100)
        with lone_ros(network, evb) as wait:
            before = network.qos(evb, "a", "status", "--dev", "t0")["destinations"]
            set_speed(network, "t0", 1000)
            wait("t0 reports 1.00 Gbit/s instead of 100 Mbit/s; planning again")

            def faster():
                now = network.qos(evb, "a", "status", "--dev", "t0")["destinations"]
                assert [d["classid"] for d in now] == [d["classid"] for d in before]
                return all(9.5 < n["rate_bps"] / b["rate_bps"] < 10.5 for n, b in zip(now, before))

            wait_until("ten times the rate", faster)
        with lone_ros(network, evb, "20Mbit"):
            set_speed(network, "t0", 100)
            assert rates(network, evb, "t0") == [20_000_000] * 2


def ros_link(evb):
    """A ROS follows its device through another name, a stop and a start, and stays shaped."""
    with Network("a", "b") as network:
        network.pair("a", "b")
        with lone_ros(network, evb, "20Mbit") as wait:
            network.ip("a", "link", "set", "eth0", "down")
            wait("eth0 is down; the kernel has emptied its queues")
            network.ip("a", "link", "set", "eth0", "name", "eth7")
            wait("eth0 is now called eth7")
            network.ip("a", "link", "set", "eth7", "up")
            wait("eth7 is up")
            assert rates(network, evb, "eth7") == [20_000_000] * 2
            network.tc("a", "qdisc", "del", "dev", "eth7", "root")
            wait("eth7 is shaped again as planned")
            assert rates(network, evb, "eth7") == [20_000_000] * 2


main({
    "mq-veth": mq_veth,
    "mq-tap": mq_tap,
    "mq-foreign": mq_foreign,
    "mq-spread": mq_spread,
    "vlan": vlan,
    "bond": bond,
    "macvlan": macvlan,
    "renamed": renamed,
    "deleted": deleted,
    "watch-link": watch_link,
    "watch-returns": watch_returns,
    "watch-flaps": watch_flaps,
    "watch-unreturned": watch_unreturned,
    "mtu-watch": mtu_watch,
    "speed": speed,
    "speed-watch": speed_watch,
    "speed-ros": speed_ros,
    "ros-link": ros_link,
})
