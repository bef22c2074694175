#!/usr/bin/env python3
"""Regions of interest: level-2 clients request fragments of undecided events. Building does not notice it.

    test_regions.py EVB [CASE...]
"""
import contextlib
import json
import socket
import struct
import subprocess

from harness import LIMIT_S, folder, main, need_root, run, scenario
from test_level2 import (ACCEPT, CLIENT, HEADER, PORT, REJECT, SCENARIO, VERSION, Client, Farm, begin, join,
                         message, sums)

REGIONS = 26804
REQUEST, READOUTS, FRAGMENTS_MAGIC = 0x00DCDF20, 0x00EB0016, 0xEB
OK, LOST, GONE = 0, 3, 4
MASK = 2 ** 64 - 1
SEED = 5
KEYS = {"level2.regions": f"tcp:{REGIONS}", "run.seed": SEED}


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def accepts(seed, event, share):
    """Whether evb level2 accepts the event."""
    return (mix(mix(seed) ^ event) >> 11) / 2 ** 53 < share


def pattern(source, l1_id, n):
    key = mix(mix(SEED ^ source << 32) ^ l1_id)
    return b"".join(((key + k * 0x9E3779B97F4A7C15) & MASK).to_bytes(8, "little") for k in range(n // 8 + 1))[:n]


def entry(event, l1_id=None, span=None):
    """An entry of Request with its event and L1 ID in full."""
    coded = b"\x01" + bytes([1 | 4 | (8 if span else 0)]) + struct.pack("<QI", event, event % 2 ** 32 if l1_id is None else l1_id)
    for value in span or ():
        while value > 0x7f:
            coded += bytes([value & 0x7f | 0x80])
            value >>= 7
        coded += bytes([value])
    return coded


def request(cookie, *entries, **options):
    payload = struct.pack("<II", len(entries), 0) + b"".join(entries)
    return message(REQUEST, payload, cookie=cookie, **options) + payload


class Readout(contextlib.AbstractContextManager):
    """A connection to a ROS, by docs/protocol.md alone."""

    def __init__(self, address, cookie, index=0):
        self.socket = socket.create_connection((address, REGIONS), timeout=LIMIT_S)
        self.cookie, self.index, self.bytes, self.transaction = cookie, index, b"", 0
        self.answers = []

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *entries, **options):
        self.socket.sendall(request(self.cookie, *entries, **options))

    def more(self):
        got = self.socket.recv(65536)
        if not got:
            raise EOFError
        self.bytes += got

    def byte(self):
        while self.at == len(self.bytes):
            self.more()
        self.at += 1
        return self.bytes[self.at - 1]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.number()
        return -(value + 1) // 2 if value % 2 else value // 2

    def read_message(self):
        while len(self.bytes) < 20:
            self.more()
        magic, version, sender, cookie, transaction, queued, _ = struct.unpack_from("<BBHIIII", self.bytes)
        assert (magic, version, sender, cookie) == (FRAGMENTS_MAGIC, VERSION, 2 << 12 | self.index, self.cookie % 2 ** 32), self.bytes[:20]
        assert (transaction, queued) == (self.transaction, 0)
        self.transaction += 1
        self.at, stride, flags, chunks = 20, 1, 0, []
        event = l1_id = size = kind = 0
        while not flags & 0x80:
            flags, before = self.byte(), event
            event = event + (self.signed() if flags & 1 else stride) & MASK
            if chunks:
                stride = event - before & MASK
            l1_id = (l1_id + event - before + (self.signed() if flags & 2 else 0)) % 2 ** 32
            size = self.number() if flags & 4 else size
            offset = 32 * self.number() if flags & 8 else 0
            length = 32 * self.number() if flags & 16 else size - offset
            if flags & 32:
                self.number()
                kind = self.byte()
            chunks.append((event, l1_id, kind >> 4, size, offset, length))
        for event, l1_id, status, size, offset, length in chunks:
            while len(self.bytes) < self.at + length:
                self.more()
            self.answers.append((event, l1_id, status, size, offset, self.bytes[self.at:self.at + length]))
            self.at += length
        self.bytes = self.bytes[self.at:]

    def answer(self):
        while not self.answers:
            self.read_message()
        return self.answers.pop(0)

    def statuses(self, n):
        return {event: status for event, _, status, *_ in (self.answer() for _ in range(n))}

    is_closed = Client.is_closed


def readouts(client):
    """Returns {index: (address, port, present)} once all ROSs are present."""
    while True:
        found = {}
        for index, port, flags, address in client.listed(READOUTS, "<HHI16s"):
            assert address[:12] == bytes(10) + b"\xff\xff" and flags in (0, 1), (flags, address)
            found[index] = (socket.inet_ntoa(address[12:]), port, flags == 1)
        if all(present for _, _, present in found.values()):
            return found


class RegionFarm(Farm):
    """evb level2 with regions of interest."""

    def __init__(self, evb, running, regions=2, accept="0.1", latency="0", pattern=SEED, timeout="60s"):
        self.process = subprocess.Popen(
            [evb, "level2", "--connect", f"{running.address('dfm')}:{PORT}", "--accept", accept, "--latency", latency, "--regions", str(regions),
             "--regions-timeout", timeout, *(["--pattern", str(pattern)] if pattern else []), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def regions_balance(report):
    r = report["level2"]["regions"]
    assert r["requested"] == r["sent"] + r["gone"] + r["absent"] + r["refused"] + r["dropped"], r
    of_nodes = sum(node["regions_sent"] for node in report["nodes"] if node["role"] == "ros")
    assert of_nodes == r["sent"], (of_nodes, r)
    return r


def whole(evb, n=2000, size=512):
    """Each event is decided on two fragments, whose bytes are checked. The files are as without regions of interest."""
    with begin(evb, {**KEYS, "trigger.events": n}) as running:
        farm = RegionFarm(evb, running)
        report, counts = running.end((0,)), farm.end()
        sums(report, counts)
        r, got = regions_balance(report), counts["regions"]
        assert report["triggers"] == n == counts["events"] and report["level2"]["timed_out"] == 0, (report, counts)
        assert got["requested"] == got["received"] == 2 * n and got["bytes"] == 2 * n * size, got
        assert got["corrupt"] == got["absent"] == got["missed"] == got["gone"] == got["events_incomplete"] == 0, got
        assert (r["sent"], r["bytes"]) == (2 * n, 2 * n * size), r
        assert counts["accepted"] == report["events_complete"] == sum(accepts(1, event, 0.1) for event in range(n)), counts
        assert report["fragments"]["expected"] == 3 * report["events_complete"], report["fragments"]


def by_document(evb):
    """A client by the document: addresses, fragments and their ranges, and what becomes of decided events."""
    keys = {**KEYS, "trigger.events": 100, "trigger.rate": "max"}
    with begin(evb, keys) as running, Client(running.address("dfm")) as client:
        assert client.join() == 0
        found = readouts(client)
        assert sorted(found) == [0, 1, 2] and {port for _, port, _ in found.values()} == {REGIONS}, found
        assert [found[k][0] for k in range(3)] == [running.address(f"ros{k + 1}") for k in range(3)], found
        events = []
        while len(events) < 100:
            events += client.undecided()
        with Readout(found[2][0], client.cookie, 2) as ros:
            ros.send(*(entry(event) for event in range(40)))
            got = sorted(ros.answer() for _ in range(40))
            assert got == [(event, event, OK, 512, 0, pattern(2, event, 512)) for event in range(40)], got
            ros.send(entry(5, span=(64, 200)), entry(6, span=(480, 2 ** 32 - 1)), entry(7, span=(512, 600)))
            got = sorted(ros.answer() for _ in range(3))
            assert got[:2] == [(5, 5, OK, 512, 64, pattern(2, 5, 512)[64:192]), (6, 6, OK, 512, 480, pattern(2, 6, 512)[480:])], got
            assert got[2][:3] == (7, 7, LOST) and got[2][5] == b"", got
            ros.send(entry(10 ** 12), entry(2 ** 64 - 3))
            assert set(ros.statuses(2).values()) == {LOST}
            # Decided events are gone as soon as the ROS knows of it.
            client.decide([(event, ACCEPT if event % 2 else REJECT) for event in range(50)])
            running.wait_for("decision", lambda: running.counter("dfm", "events_complete") + running.counter("dfm", "events_rejected") == 50)
            gone = {}
            while set(gone.values()) != {GONE}:
                ros.send(*(entry(event) for event in range(50)))
                gone = ros.statuses(50)
                assert set(gone.values()) <= {OK, GONE}, gone
            ros.send(entry(60))
            assert ros.statuses(1) == {60: OK}
            client.decide([(event, REJECT) for event in range(50, 100)])
            report = running.end((0,))
        assert report["events_complete"] == 25 and report["events_rejected"] == 75, report
        r = regions_balance(report)
        assert r["refused"] == 3 and r["gone"] >= 50 and r["absent"] == r["dropped"] == 0, r


def hostile(evb):
    """Bytes of others end their connection to a ROS, and nothing else."""
    def raw(data):
        return lambda ros: ros.socket.sendall(data)

    def after(data):
        def send(ros):
            ros.send(entry(0))
            ros.answer()
            ros.socket.sendall(data(ros.cookie))
        return send

    attacks = [
        raw(b"GET / HTTP/1.1\r\n\r\n" * 3), raw(b"\0" * 100), raw(join()), raw(request(0, entry(0))), raw(request(1, entry(0))),
        raw(HEADER.pack(0x31425645, 4, CLIENT, 0, REQUEST, 0, 2 ** 31, 0) + b"\0" * 64),
        lambda ros: ros.send(entry(0), sender=3 << 12), lambda ros: ros.send(entry(0), sender=1 << 12), lambda ros: ros.send(entry(0), version=3),
        lambda ros: ros.send(entry(0, span=(33, 64))), lambda ros: ros.send(entry(0, span=(64, 32))), lambda ros: ros.send(entry(2 ** 64 - 1)),
        after(lambda cookie: request(cookie + 1, entry(1))), after(lambda cookie: request(cookie, entry(1))[:-1] + b"\1"),
        after(lambda cookie: message(0x00EB0012, b"", cookie=cookie)),
    ]
    with begin(evb, KEYS) as running, Client(running.address("dfm")) as client:
        assert client.join() == 0
        address = readouts(client)[0][0]
        for k, attack in enumerate(attacks):
            with Readout(address, client.cookie) as ros:
                attack(ros)
                assert ros.is_closed(), f"attack {k}"
        # Idle ones, more than there are places; and one that breaks off within a message.
        idle = [socket.create_connection((address, REGIONS), timeout=LIMIT_S) for _ in range(20)]
        idle[-1].sendall(request(client.cookie, entry(0))[:40])
        farm = RegionFarm(evb, running, accept="0.1")
        report, counts = running.end((0,)), farm.end()
        sums(report)
        for one in idle:
            one.close()
        regions_balance(report)
        assert counts["regions"]["received"] == counts["regions"]["requested"] == 8000 and report["level2"]["timed_out"] == 0, counts
        assert report["fragments"]["foreign"] + report["fragments"]["malformed"] >= len(attacks), report["fragments"]


def stand_in(evb, net, keys):
    """evb run starts a farm with regions of interest. What the ROSs send to it keeps below its bound."""
    with folder() as where:
        report = run(evb, scenario(where, SCENARIO), {**KEYS, "test.stand-in": "0.25:2ms:2", "trigger.events": 2000, "trigger.rate": "max",
                                                      "test.buffer-events": 200, **keys}, net=net)
        sums(report)
        r = regions_balance(report)
        assert r["sent"] == 4000 and report["level2"]["timed_out"] == 0 and 400 < report["events_complete"] < 600, report
        rate = keys.get("network.link-rate")
        if rate:
            # Each ROS sends its part at a tenth of this rate, so in this time at least, but for the first message.
            bits = 8 * max(node["regions_bytes"] for node in report["nodes"] if node["role"] == "ros")
            assert report["seconds"] > 0.9 * (bits - 8 * 64 * 1024) / (1e5 * int(rate[:-4])), (bits, report["seconds"])


NODES_WITH_ADDRESSES = f"""
[level2]
listen = tcp:{PORT}
[network]
link-rate = 1Gbit
[node dfm]
role = dfm
address = 127.0.0.1
[node ros1]
role = ros
address = 127.0.0.2
[node sfi1]
role = sfi
address = 127.0.0.3
"""


def plan(evb):
    """evb check and evb qos plan know the bound."""
    with folder() as where:
        path = scenario(where, SCENARIO)
        keys = ["--set", f"level2.regions=tcp:{REGIONS}", "--set", "network.link-rate=1Gbit"]

        def call(*words):
            done = subprocess.run([evb, *words, *keys], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, done
            return done.stdout

        assert "each ROS sends at most 100 Mbit/s to all level-2 clients, and all ROSs at most 300 Mbit/s" in call("check", str(path))
        assert json.loads(call("check", str(path), "--json"))["regions_rate_bps"] == 100_000_000
        nodes = str(scenario(where, NODES_WITH_ADDRESSES, "nodes.conf"))
        assert json.loads(call("qos", "plan", "--config", nodes, "--node", "ros1", "--json"))["default"]["rate_bps"] == 105_000_000
        assert "other:   5.00 Mbit/s, and 100 Mbit/s for regions of interest" in call("qos", "plan", "--config", nodes, "--node", "ros1")
        keys[1] = "level2.regions=none"
        assert "Regions of interest" not in call("check", str(path)) and json.loads(call("check", str(path), "--json"))["regions_rate_bps"] is None


def mistakes(evb):
    for words, text in ((["--regions", "33"], "--regions: invalid value"), (["--regions", "2", "--regions-timeout", "0"], "--regions-timeout: invalid value"),
                        (["--pattern", "x"], "--pattern: invalid value")):
        done = subprocess.run([evb, "level2", "--connect", "127.0.0.1:1", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and text in done.stderr, done
    with folder() as where:
        path = scenario(where, SCENARIO)
        for settings, text in ((["level2.regions=udp:5"], "level2.regions: invalid address \"udp:5\"; expected none or tcp:PORT"),
                               (["level2.regions=tcp:5", "level2.listen=none"], "set level2.listen"),
                               (["test.stand-in=0.1:5ms:2"], "test.stand-in: has no ROSs to connect to; set level2.regions")):
            done = subprocess.run([evb, "check", str(path), *(word for setting in settings for word in ("--set", setting))],
                                  capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 2 and text in done.stderr, done


if __name__ == "__main__":
    main({"push": whole,
          "by-document-push": by_document,
          "hostile": hostile,
          "stand-in": lambda evb: stand_in(evb, "loopback", {"network.link-rate": "50Mbit"}),
          "stand-in-lab": lambda evb: (need_root(), stand_in(evb, "lab", {"network.link-rate": "100Mbit", "qos.backend": "auto"})),
          "plan": plan, "mistakes": mistakes})
