#!/usr/bin/env python3
"""Level 2: clients decide which events are built. None of them can stop a run.

    test_level2.py EVB [CASE...]
"""
import contextlib
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time

from harness import LIMIT_S, OWN_NET, Running, complete, folder, main, need_root, run, scenario

PORT = 26803
HEADER = struct.Struct("<IHHQIIII")
JOIN, WELCOME, DECISION, UNDECIDED, ACK = 0x00EB0005, 0x00EB0006, 0x00EB0012, 0x00EB0013, 0x00EB0014
CLIENT = 4 << 12
VERSION = 6
ACCEPT, REJECT = 1, 2

# No time-out decides unless a case sets a shorter one.
SCENARIO = f"""
[scenario]
mode = push
[trigger]
events = 4000
rate = 4kHz
[ros]
count = 3
fragment-size = 512
[sfi]
count = 2
timeout = 30s
[dfm]
node-timeout = 30s
[level2]
listen = tcp:{PORT}
timeout = 10min
"""
NODES = 6


def check_word(data):
    h = 0x9E3779B97F4A7C15 ^ len(data)
    for i in range(0, len(data), 8):
        h = (h ^ int.from_bytes(data[i:i + 8], "little")) * 0xD6E8FEB86659FD93 % 2 ** 64
        h ^= h >> 32
    return h % 2 ** 32


def message(kind, payload, cookie=0, transaction=0, sender=CLIENT, version=VERSION, magic=0x31425645):
    head = HEADER.pack(magic, version, sender, cookie, kind, transaction, len(payload), 0)
    return HEADER.pack(magic, version, sender, cookie, kind, transaction, len(payload), check_word(head[:28]) ^ check_word(payload))


def join(run=0, incarnation=7):
    payload = struct.pack("<QQQQIIII", 0, incarnation, 0, 0, run, 0, 0, 0)
    return message(JOIN, payload) + payload


class Client(contextlib.AbstractContextManager):
    """A client by docs/protocol.md alone."""

    def __init__(self, address, deadline_s=LIMIT_S):
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                self.socket = socket.create_connection((address, PORT), timeout=LIMIT_S)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, "the DFM does not listen"
                time.sleep(0.01)
        self.bytes = b""
        self.cookie = self.dfm = self.next = 0

    def __exit__(self, *_):
        self.socket.close()

    def take(self, n):
        while len(self.bytes) < n:
            got = self.socket.recv(65536)
            if not got:
                raise EOFError
            self.bytes += got
        taken, self.bytes = self.bytes[:n], self.bytes[n:]
        return taken

    def receive(self):
        """Returns type and payload of the next message."""
        head = self.take(HEADER.size)
        magic, version, sender, cookie, kind, _, size, check = HEADER.unpack(head)
        payload = self.take(size)
        assert (magic, version, sender) == (0x31425645, VERSION, 1 << 12), head
        assert check == check_word(head[:28]) ^ check_word(payload), head
        self.cookie = cookie
        return kind, payload

    def join(self, **options):
        """Returns the verdict."""
        self.socket.sendall(join(**options))
        kind, payload = self.receive()
        assert kind == WELCOME, hex(kind)
        self.dfm, incarnation, _, verdict, _ = struct.unpack("<QQIHH", payload)
        assert incarnation == options.get("incarnation", 7)
        return verdict

    def listed(self, wanted, entry):
        """Returns the entries of the next message of this kind."""
        kind, payload = self.receive()
        while kind != wanted:
            kind, payload = self.receive()
        dfm, n, _ = struct.unpack_from("<QII", payload)
        assert dfm == self.dfm and len(payload) == 16 + struct.calcsize(entry) * n, payload
        return list(struct.iter_unpack(entry, payload[16:]))

    def undecided(self):
        """Returns the events of the next list."""
        return [event for event, *_ in self.listed(UNDECIDED, "<QQQII")]

    def decision(self, entries, dfm=None, cookie=None, transaction=None):
        payload = struct.pack("<QII", self.dfm if dfm is None else dfm, len(entries), 0)
        payload += b"".join(struct.pack("<QBBHI", event, verdict, 0, 0, 0) for event, verdict in entries)
        return message(DECISION, payload, self.cookie if cookie is None else cookie,
                       self.next if transaction is None else transaction) + payload

    def decide(self, entries):
        self.socket.sendall(self.decision(entries))
        self.next += 1

    def is_closed(self):
        """Reads until the DFM closes the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True


class Farm:
    """evb level2 in the background."""

    def __init__(self, evb, running, accept="0.1", latency="5ms", seed=1, run=0):
        address = running if isinstance(running, str) else running.address("dfm")
        self.process = subprocess.Popen(
            [evb, "level2", "--connect", f"{address}:{PORT}", "--accept", accept, "--latency", latency, "--seed", str(seed),
             "--run", str(run), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, expect=0):
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == expect, (self.process.returncode, err)
        return json.loads(out)


@contextlib.contextmanager
def begin(evb, keys=None):
    with folder() as where, Running(evb, scenario(where, SCENARIO), keys) as running:
        running.wait_nodes(NODES)
        yield running


def sums(report, farm=None):
    """Every trigger was decided once, and the farm and the DFM count the same."""
    level2 = report["level2"]
    assert report["triggers"] == level2["accepted"] + level2["rejected"] + level2["timed_out"], report
    assert report["events_complete"] + report["events_rejected"] == report["triggers"] > 0, report
    if farm:
        assert farm["accepted"] + farm["rejected"] - farm["unused"] == level2["accepted"] + level2["rejected"], (farm, level2)


def event_headers(path):
    """Returns {number: (L2 info, first event-filter word)} of a file of format v3.0."""
    data, found, at = path.read_bytes(), {}, -1
    while (at := data.find(b"\xaa\x34\x12\xaa", at + 1)) >= 0:
        words = struct.unpack_from("<6I", data, at)
        if words[3] != 0x03000000:
            continue
        specific = struct.unpack_from("<10I", data, at + 4 * (7 + words[5]))
        found[specific[1]] = (specific[5], specific[6])
    return found


def accept(evb):
    """A tenth is accepted. The files hold these events alone, with what the farm said about them."""
    with folder() as where, begin(evb, {"sfi.output": "file", "sfi.directory": where}) as running:
        farm = Farm(evb, running)
        report, counts = running.end((0,)), farm.end()
        sums(report, counts)
        assert counts["events"] == report["triggers"] == 4000 and counts["run_ended"] and counts["unused"] == 0, counts
        assert counts["accepted"] == report["level2"]["accepted"] == report["events_complete"] and 250 < counts["accepted"] < 550, counts
        assert report["fragments"]["expected"] == 3 * report["events_complete"] and report["fragments"]["corrupt"] == 0, report
        assert report["level2"]["latency_us"]["p50"] >= 5000, report["level2"]
        headers = {}
        for path in where.glob("*.data"):
            headers.update(event_headers(path))
        assert len(headers) == counts["accepted"], (len(headers), counts)
        assert all(header == (number, 1) for number, header in headers.items()), headers


def hostile(evb):
    """Bytes of others end their connection, and nothing else."""
    def in_run(*forged, **options):
        def send(client):
            assert client.join() == 0
            client.socket.sendall(client.decision(list(forged), **options))
        return send

    def raw(data):
        return lambda client: client.socket.sendall(data)

    def twice(client):
        assert client.join() == 0
        client.socket.sendall(join())

    attacks = [
        raw(b"GET / HTTP/1.1\r\n\r\n" * 3), raw(b"\0" * 100), raw(join()[:-1] + b"\1"), raw(join(incarnation=0)),
        raw(message(JOIN, b"")), raw(message(JOIN, b"", version=2)), raw(message(JOIN, b"", sender=1 << 12)),
        raw(message(0x00EB0002, b"")), raw(HEADER.pack(0x31425645, VERSION, CLIENT, 0, JOIN, 0, 2 ** 31, 0) + b"\0" * 64),
        lambda client: client.socket.sendall(client.decision([(0, REJECT)])),
        in_run((0, 0)), in_run((0, 3)), in_run((0, REJECT), transaction=1), in_run((0, REJECT), cookie=1), in_run((0, REJECT), dfm=1), twice,
    ]
    with begin(evb) as running:
        for attack in attacks:
            with Client(running.address("dfm")) as client:
                attack(client)
                assert client.is_closed(), attack
        # Idle ones, more than there are places; and one that breaks off within a message.
        idle = [Client(running.address("dfm")) for _ in range(20)]
        idle[-1].socket.sendall(join()[:40])
        farm = Farm(evb, running)
        report = running.end((0,))
        sums(report, farm.end())
        for client in idle:
            client.socket.close()
        assert report["level2"]["timed_out"] == 0, report
        assert report["fragments"]["foreign"] + report["fragments"]["malformed"] >= len(attacks), report["fragments"]


def liar(evb):
    """Decisions about events that do not exist or are decided are counted, and the DFM tells the client."""
    with begin(evb, {"trigger.events": 200, "trigger.rate": "max"}) as running, Client(running.address("dfm")) as client:
        assert client.join() == 0
        events = []
        while len(events) < 200:
            events += client.undecided()
        assert events == list(range(200)), events
        client.decide([(event, ACCEPT if event == 7 else REJECT) for event in events[:100]])
        client.decide([(event, ACCEPT) for event in events[:100]])
        client.decide([(event, ACCEPT) for event in (200, 10 ** 6, 2 ** 64 - 1, 2 ** 64 - 2)])
        client.decide([])
        taken = unused = ended = 0
        while taken < 4:
            kind, payload = client.receive()
            if kind == ACK:
                _, taken, state, unused, _ = struct.unpack("<QIIII", payload)
        assert (taken, unused) == (4, 104) and state in (2, 3), (taken, unused, state)
        client.decide([(event, REJECT) for event in reversed(events[100:])])
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                kind, payload = client.receive()
                ended |= kind == ACK and struct.unpack("<QIIII", payload)[2] == 4
        assert ended, "the client did not learn of the end of the run"
        report = running.end((0,))
        assert report["events_complete"] == 1 and report["events_rejected"] == 199, report
        level2 = report["level2"]
        assert (level2["repeated"], level2["unknown"], level2["late"], level2["timed_out"]) == (100, 4, 0, 0), level2


def stand_in(evb, net):
    """evb run starts the farm itself, and ends it."""
    with folder() as where:
        report = run(evb, scenario(where, SCENARIO), {"test.stand-in": "0.25:2ms", "trigger.events": 2000}, net=net)
        sums(report)
        assert report["level2"]["timed_out"] == 0 and 400 < report["events_complete"] < 600, report
        # A run that is stopped at once leaves no farm behind.
        with Running(evb, scenario(where, SCENARIO), {"test.stand-in": "0.25:2ms", "trigger.events": 0}, net=net) as running:
            running.wait_for("decision", lambda: running.counter("dfm", "level2_decisions", decision="rejected") > 0)
            children = f"/proc/{running.process.pid}/task/{running.process.pid}/children"
            farm = [pid for pid in pathlib.Path(children).read_text().split()
                    if b"level2" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
            assert len(farm) == 1, farm
            running.signal()
            sums(running.end((0,)))
            assert not pathlib.Path(f"/proc/{farm[0]}").exists(), farm


def mistakes(evb):
    def call(*words):
        return subprocess.run([evb, *words], capture_output=True, text=True, timeout=LIMIT_S)

    for words, text in ((["level2"], "missing --connect"), (["level2", "--connect", "nowhere:1"], "--connect: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--accept", "2"], "--accept: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--latency", "soon"], "--latency: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "extra"], "extra")):
        done = call(*words)
        assert done.returncode == 2 and text in done.stderr, done
    with folder() as where:
        path = scenario(where, SCENARIO)
        for setting, text in (("level2.listen=udp:5", "level2.listen: invalid address \"udp:5\"; expected none or tcp:PORT"),
                              ("level2.listen=tcp:0", "level2.listen: invalid address"),
                              ("network.clients=farm", "network.clients: \"farm\" is not an address"), ("level2.timeout=1s:maybe", "level2.timeout"),
                              ("test.stand-in=0.1", "test.stand-in: invalid farm \"0.1\""), ("test.stand-in=2:5ms", "invalid farm")):
            done = call("check", path, "--set", setting)
            assert done.returncode == 2 and text in done.stderr, done
        done = call("check", path, "--set", "level2.listen=none", "--set", "test.stand-in=0.1:5ms")
        assert done.returncode == 2 and "test.stand-in: has no DFM to connect to" in done.stderr, done
        report = json.loads(call("run", path, "--set", "level2.listen=none", "--set", "trigger.events=10", "--json").stdout)
        assert report["level2"] is None and report["events_rejected"] == 0 and report["events_complete"] == 10, report
    farm = subprocess.Popen([evb, "level2", "--connect", "127.255.255.254:9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Before that, it may not have caught signals yet.
    assert "waiting for a DFM" in farm.stderr.readline()
    farm.send_signal(signal.SIGTERM)
    _, err = farm.communicate(timeout=LIMIT_S)
    assert farm.returncode == 1 and "no DFM was at 127.255.255.254:9" in err, err


def waits(evb):
    """A client that waits says for whom, and that it has found it."""
    nodes = "".join(f"[node {name}]\nrole = {role}\naddress = {OWN_NET}.{k}\n"
                    for k, (name, role) in enumerate((("dfm", "dfm"), ("ros1", "ros"), ("sfi1", "sfi")), 1))
    text = f"[trigger]\nevents = 100\n[level2]\nlisten = tcp:{PORT}\n[network]\ncontrol-group = none\n{nodes}"
    with folder() as where, subprocess.Popen([evb, "level2", "--connect", f"{OWN_NET}.1:{PORT}", "--accept", "1"],
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as farm:
        try:
            line = farm.stderr.readline()
            assert f"waiting for a DFM with level2.listen at {OWN_NET}.1:{PORT}: Connection refused" in line, line
            with Running(evb, scenario(where, text), {"level2.timeout": "60s", "sfi.timeout": "30s", 
                                                      "dfm.node-timeout": "30s"}) as running:
                complete(running.end(expect=(0,)))
            out, err = farm.communicate(timeout=LIMIT_S)
        finally:
            farm.kill()
        assert farm.returncode == 0 and out.startswith("100 events: 100 accepted"), (out, err)
        assert re.fullmatch(rf".*connected to the DFM of run \d+ at {OWN_NET}\.1:{PORT}\n", err), err


if __name__ == "__main__":
    main({"push": accept,
          "hostile": hostile, "liar": liar,
          "stand-in": lambda evb: stand_in(evb, "loopback"), "stand-in-lab": lambda evb: (need_root(), stand_in(evb, "lab")),
          "waits": waits, "mistakes": mistakes})
