#!/usr/bin/env python3
"""Forged datagrams. Nodes believe a message only from its sender's address and port, with the cookie of the run and
the incarnation of its DFM. The forgeries are changed copies of real messages, so no other error protects a node.

    test_foreign_senders.py EVB [CASE...]
"""
import contextlib
import ctypes
import signal
import socket
import struct
import time

from harness import LIMIT_S, OWN_NET, complete, main, need_root
from test_join import bed

CONTROL, DATA = 26800, 26801
STRANGER = f"{OWN_NET}.251"
KEEP_ALIVE, ALIVE, XOFF = 0x00DCDF11, 0x00EB0002, 0x00DCDF51
RUNNING, ENDED = 2, 4
EVERYTHING = 2 ** 63


def check_word(data):
    h = 0x9E3779B97F4A7C15 ^ len(data)
    for i in range(0, len(data), 8):
        h = (h ^ int.from_bytes(data[i:i + 8], "little")) * 0xD6E8FEB86659FD93 % 2 ** 64
        h ^= h >> 32
    return h % 2 ** 32


class Message:
    """A control message as docs/protocol.md describes it. Attributes may be changed."""

    def __init__(self, data):
        self.magic, self.version, self.sender, self.cookie, self.kind, self.transaction, n = struct.unpack_from("<IHHQIII", data)
        self.body = bytearray(data[32:32 + n])

    def with_changes(self, fields=(), **changes):
        """A copy with other attributes, and with other fields of the body: (offset, format, value)."""
        other = Message(self.encode())
        for name, value in changes.items():
            setattr(other, name, value)
        for offset, form, value in fields:
            struct.pack_into("<" + form, other.body, offset, value)
        return other

    def encode(self):
        head = struct.pack("<IHHQIII", self.magic, self.version, self.sender, self.cookie, self.kind, self.transaction, len(self.body))
        return head + struct.pack("<I", check_word(head) ^ check_word(self.body)) + self.body


def fragments(genuine, cookie):
    """A data message of ROS 1: the whole fragment of event 0, which has no bytes."""
    directory = b"\x81\x00"
    head = struct.pack("<BBHIII", 0xEB, genuine.version, 2 << 12, cookie % 2 ** 32, 0, 0)
    return head + struct.pack("<I", check_word(head) ^ check_word(directory) ^ cookie >> 32) + directory


def ear():
    """A socket that receives the UDP packets of this test's addresses from and to CONTROL on the loopback device. The kernel drops
    the others, which are those of all tests that run now."""
    # See bpf(4) of the BSDs: (operation, jump if true, jump if false, value); 12 and 14 are the lengths of Ethernet's addresses and header.
    program = [(0x28, 0, 0, 12), (0x15, 0, 11, 0x0800), (0x30, 0, 0, 14 + 9), (0x15, 0, 9, socket.IPPROTO_UDP),
               (0x20, 0, 0, 14 + 12), (0x54, 0, 0, 0xffffff00), (0x15, 0, 6, int.from_bytes(socket.inet_aton(f"{OWN_NET}.0"), "big")),
               (0xb1, 0, 0, 14), (0x48, 0, 0, 14), (0x15, 0, 3, CONTROL), (0x48, 0, 0, 16), (0x15, 0, 1, CONTROL),
               (0x06, 0, 0, 1 << 18), (0x06, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    # It has no protocol before it has the filter.
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    listener.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", len(program), ctypes.addressof(code)))  # SO_ATTACH_FILTER
    listener.bind(("lo", 0x0800))
    return listener


class Wire:
    """Hears and sends datagrams of the loopback device, with any source address and port."""

    def __init__(self):
        self.mouth = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def close(self):
        self.mouth.close()

    def hear(self, kind, source, to):
        """The next control message of this type from and to these addresses."""
        addresses = socket.inet_aton(source) + socket.inet_aton(to)
        deadline = time.monotonic() + LIMIT_S
        with ear() as listener:
            while time.monotonic() < deadline:
                listener.settimeout(LIMIT_S)
                packet = listener.recv(65536)[14:]
                data = packet[(packet[0] & 15) * 4 + 8:]
                if packet[9] == socket.IPPROTO_UDP and packet[12:20] == addresses and len(data) >= 32 and \
                        struct.unpack_from("<I", data, 16)[0] == kind:
                    return Message(data)
        raise AssertionError(f"no message {kind:#x} from {source} to {to}")

    def send(self, data, source, to, port=CONTROL, from_port=CONTROL):
        udp = struct.pack(">HHHH", from_port, port, 8 + len(data), 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0, socket.inet_aton(source), socket.inet_aton(to))
        self.mouth.sendto(ip + udp, (to, 0))


@contextlib.contextmanager
def running(evb):
    need_root()
    with bed(evb, {"trigger.events": 0, "dfm.node-timeout": "20s"}) as b, contextlib.closing(Wire()) as wire:
        b.start_all()
        b.wait_written(100_000)
        yield b, wire


def end_complete(b):
    """Stops the run after further events; every event was built once, by nodes that noticed nothing."""
    b.wait_written(sum(p.stat().st_size for p in b.folder.glob("*.writing")) + 100_000)
    b.processes["dfm"].send_signal(signal.SIGTERM)
    reports = b.end_all()
    complete(dict(reports["dfm"], fragments={"corrupt": 0}))
    assert sorted(b.events()) == list(range(reports["dfm"]["triggers"]))
    return reports


def harmful(b, wire):
    """Yields messages that would spoil the run if they were sent at once: (receiver, sender, message)."""
    for node in ("ros1", "sfi1"):
        message = wire.hear(KEEP_ALIVE, b.addresses["dfm"], b.addresses[node])
        yield node, "dfm", message.with_changes([(24, "I", ENDED)], transaction=message.transaction + 1)
        alive = wire.hear(ALIVE, b.addresses[node], b.addresses["dfm"])
        yield "dfm", node, alive.with_changes([(24, "I", ENDED)], transaction=alive.transaction + 1)
    alive = wire.hear(ALIVE, b.addresses["ros1"], b.addresses["dfm"])
    yield "dfm", "ros1", alive.with_changes(kind=XOFF, transaction=alive.transaction + 1, body=alive.body[:12])


def forged(evb):
    """Forged messages have no effect: from another address or port, which is counted, with another cookie, or of another DFM."""
    with running(evb) as (b, wire):
        foreign = dict.fromkeys(b.addresses, 0)
        for node, sender, message in harmful(b, wire):
            source, to = b.addresses[sender], b.addresses[node]
            wire.send(message.encode(), STRANGER, to)
            wire.send(message.encode(), source, to, from_port=CONTROL + 7)
            wire.send(message.with_changes(cookie=message.cookie ^ 1).encode(), source, to)
            wire.send(message.with_changes(cookie=0).encode(), source, to)
            foreign[node] += 2
            other = struct.unpack_from("<Q", message.body)[0] ^ 1
            wire.send(message.with_changes([(0, "Q", other)]).encode(), source, to)
            wire.send(fragments(message, message.cookie), STRANGER, b.addresses["sfi1"], DATA)
            wire.send(fragments(message, message.cookie ^ 1), b.addresses["ros1"], b.addresses["sfi1"], DATA)
            foreign["sfi1"] += 2
        reports = end_complete(b)
        seen = {node: report["packets_foreign"] for node, report in reports.items()}
        assert all(seen[node] >= n for node, n in foreign.items()), (seen, foreign)


def jump(evb):
    """One message of the DFM that says that all events have ended is not believed, however good it looks."""
    with running(evb) as (b, wire):
        for node in ("ros1", "sfi1"):
            message = wire.hear(KEEP_ALIVE, b.addresses["dfm"], b.addresses[node])
            fields = [(8, "Q", EVERYTHING), (16, "Q", EVERYTHING), (24, "I", RUNNING)]
            wire.send(message.with_changes(fields, transaction=message.transaction + 1).encode(), b.addresses["dfm"], b.addresses[node])
        end_complete(b)


def believed(evb):
    """The same forgeries end a ROS if nothing else is wrong: only what `forged` changes protects it."""
    with running(evb) as (b, wire):
        deadline = time.monotonic() + LIMIT_S
        while b.processes["ros1"].poll() is None:
            assert time.monotonic() < deadline, b.log("ros1")
            node, sender, message = next(harmful(b, wire))
            wire.send(message.encode(), b.addresses[sender], b.addresses[node])
            time.sleep(0.05)


if __name__ == "__main__":
    main({"forged": forged, "jump": jump, "believed": believed})
