"""Network namespaces of a test, joined by a bridge or a single link; removed when the test ends."""
import contextlib
import json
import os
import socket
import struct
import subprocess
import tempfile
import unittest.mock

from harness import LIMIT_S, Skip, made, need_root, wait_until

_libc = None


def sh(*arguments, check=True, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done


@contextlib.contextmanager
def slow_netlink(where):
    """Traffic control of the programs that start here waits while the yielded file exists; see slow_netlink.c."""
    path = where / "slow"
    with unittest.mock.patch.dict(os.environ, {"LD_PRELOAD": str(made("slow_netlink.so")), "EVB_TEST_SLOW": str(path), "ASAN_OPTIONS":
                                               os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}):
        yield path


class Network:
    """Network("a", "b") makes namespaces evb-PID-a and evb-PID-b."""

    def __init__(self, *names):
        need_root()
        if sh("ip", "-V", check=False).returncode != 0:
            raise Skip("ip (iproute2) is not installed")
        self.names = names

    def name(self, node):
        return f"evb-{os.getpid()}-{node}"

    def __enter__(self):
        # A temporary state directory, removed with the test.
        self.state = tempfile.TemporaryDirectory(prefix="evb-test-")
        os.environ["EVB_STATE_DIRECTORY"] = self.state.name
        for node in self.names:
            done = sh("ip", "netns", "add", self.name(node), check=False)
            if done.returncode != 0:
                self.__exit__()
                raise Skip(f"cannot make a network namespace: {done.stderr.strip()}")
            sh("ip", "-n", self.name(node), "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for node in self.names:
            sh("ip", "netns", "del", self.name(node), check=False)
        self.state.cleanup()

    def ip(self, node, *arguments):
        return sh("ip", "-n", self.name(node), *arguments)

    def tc(self, node, *arguments, check=True):
        return sh("tc", "-n", self.name(node), *arguments, check=check)

    def run(self, node, *arguments, check=True, **options):
        return sh("ip", "netns", "exec", self.name(node), *arguments, check=check, **options)

    def popen(self, node, *arguments, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.name(node), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)

    def pair(self, a, b, net="10.9.0"):
        """Joins two namespaces by a link: eth0 on both, NET.1 and NET.2."""
        self.ip(a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.name(b))
        for node, host in ((a, 1), (b, 2)):
            self.ip(node, "addr", "add", f"{net}.{host}/24", "dev", "eth0")
            self.ip(node, "addr", "add", f"fd00:9::{host}/64", "dev", "eth0", "nodad")
            self.ip(node, "link", "set", "eth0", "up")

    def bridge(self, switch, hosts, net="10.9.0"):
        """Joins each host's eth0 to the switch: NET.1, NET.2..."""
        self.ip(switch, "link", "add", "bridge", "type", "bridge")
        self.ip(switch, "link", "set", "bridge", "up")
        for i, host in enumerate(hosts, 1):
            self.ip(switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", self.name(host))
            self.ip(switch, "link", "set", f"port{i}", "master", "bridge", "up")
            self.ip(host, "addr", "add", f"{net}.{i}/24", "dev", "eth0")
            self.ip(host, "link", "set", "eth0", "up")

    @contextlib.contextmanager
    def inside(self, node):
        """Moves this process into a namespace; sockets made meanwhile stay there."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.name(node)}") as there:
            _setns(there.fileno())
            try:
                yield
            finally:
                _setns(home.fileno())

    def socket(self, node, kind=socket.SOCK_DGRAM, family=socket.AF_INET):
        with self.inside(node):
            return socket.socket(family, kind)

    def evb(self, evb, node, *arguments, check=True, env=None):
        return self.run(node, str(evb), *arguments, check=check, env=env)

    def qos(self, evb, node, *arguments, env=None):
        """Returns the output of `evb qos ... --json` as an object."""
        return json.loads(self.evb(evb, node, "qos", *arguments, "--json", env=env).stdout)


def _setns(fd):
    global _libc
    if _libc is None:
        import ctypes
        _libc = ctypes.CDLL(None, use_errno=True)
    assert _libc.setns(fd, 0x40000000) == 0, "setns"


class Numbered:
    """Sends numbered datagrams from one namespace to another and records which arrive.

    It keeps this process and its children on one processor: a veth hands packets to the processor that sends them, so two
    processors, of which one is busy, change the order."""

    def __init__(self, network, sender, receiver, address, port=7000, size=1400, sndbuf=1 << 20):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[os.getpid() % len(processors)]})
        self.size = size
        self.out = network.socket(sender)
        self.out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        self.out.connect((address, port))
        self.into = network.socket(receiver)
        with contextlib.suppress(PermissionError):
            self.into.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        self.into.bind((address, port))
        self.into.setblocking(False)
        self.sent = 0
        self.numbers = []

    def send(self, n):
        """Sends n datagrams; blocks while the queue is full."""
        for _ in range(n):
            self.out.send(struct.pack("!I", self.sent) + bytes(self.size - 4))
            self.sent += 1

    def take(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.numbers.append(struct.unpack("!I", self.into.recv(65536)[:4])[0])
        return len(self.numbers)

    def check_all(self):
        """Checks that all have arrived in order."""
        wait_until(f"all {self.sent} datagrams", lambda: self.take() >= self.sent)
        assert self.numbers == list(range(self.sent)), "datagrams lost, duplicated or out of order"

    def close(self):
        self.out.close()
        self.into.close()
