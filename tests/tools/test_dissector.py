#!/usr/bin/env python3
"""Tests Wireshark's dissector with tshark: each kind of message, each damaged byte, and captures of runs.

    test_dissector.py samples|damaged|run EVB PROTOCOL_LAYOUT DISSECTOR
"""
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness

CASE, EVB, LAYOUT, DISSECTOR = sys.argv[1:5]
RAW_IP, ETHERNET = 101, 1


def datagram(payload):
    udp = struct.pack("!HHHH", 9000, 9001, 8 + len(payload), 0) + payload
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([127, 0, 0, 1]), bytes([127, 0, 0, 2])) + udp


def write_capture(path, link, packets):
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, link))
        for k, packet in enumerate(packets):
            f.write(struct.pack("<IIII", k, 0, len(packet), len(packet)) + packet)


def tshark(where, link, packets, *words):
    """Returns what tshark prints about these packets. It reads no configuration of the user."""
    path = pathlib.Path(where) / "capture.pcap"
    write_capture(path, link, packets)
    done = subprocess.run(["tshark", "-n", "-o", "tcp.reassemble_out_of_order:TRUE", "-X", f"lua_script:{DISSECTOR}", "-r", path, *words], capture_output=True, text=True,
                          env={**os.environ, "HOME": str(where), "XDG_CONFIG_HOME": str(where)}, timeout=harness.LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def fields(where, link, packets, *names, two_passes=False):
    """Returns the values of these fields, as a list for each packet and field."""
    words = [word for name in names for word in ("-e", name)]
    out = tshark(where, link, packets, *(["-2"] if two_passes else []), "-T", "fields", "-E", "separator=;", "-E", "aggregator=,", *words)
    found = [[value.split(",") if value else [] for value in line.split(";")] for line in out.splitlines()]
    assert len(found) == len(packets), f"{len(found)} packets of {len(packets)}: {out}"
    return found


def samples_of(layout):
    """Returns the samples of the code: names and bytes."""
    messages = [(name, bytes.fromhex(message["bytes"])) for name, message in layout["messages"].items()]
    # The sample of Fragments ends with its directory.
    lengths = {"Fragments": sum(chunk["length"] for chunk in layout["chunks"])}
    return [(name, raw + bytes(lengths.get(name, 0))) for name, raw in messages]


def samples(layout):
    """Each message and packet has its name, and each field its value; compact entries and chunks are read as the code reads them."""
    with harness.folder() as where:
        known = samples_of(layout)
        found = fields(where, RAW_IP, [datagram(raw) for _, raw in known], "evb.message", "evb.malformed", "evb.sender")
        types = {name: number for number, name in layout["types"]}
        for (name, _), (message, malformed, sender) in zip(known, found, strict=True):
            assert [int(message[0], 0)] == [types[name]], (name, message)
            assert not malformed and sender == ["ros6" if name == "Fragments" else "sfi6"], (name, malformed, sender)
        part = {"body": "", "Entry": ".entry", "Event information": ".information"}
        rows = [(k, f"evb.{name.lower()}{part[place]}.{field}", value) for k, (name, _) in enumerate(known)
                for place, field, value, size in layout["messages"][name]["fields"] if size <= 8]
        got = fields(where, RAW_IP, [datagram(raw) for _, raw in known], *(field for _, field, _ in rows))
        for column, (k, field, value) in enumerate(rows):
            assert int(got[k][column][0], 0) == value, (field, value, got[k][column])
        chunks = fields(where, RAW_IP, [datagram(dict(known)["Fragments"])], "evb.event", "evb.l1_id", "evb.fragment_bytes", "evb.offset",
                        "evb.length", "evb.position", "evb.form", "evb.fragment_status")[0]
        wanted = [[c[key] for c in layout["chunks"]] for key in ("event", "l1_id", "fragment_bytes", "offset", "length", "order", "form", "status")]
        assert [[int(value, 0) for value in column] for column in chunks] == wanted, (chunks, wanted)
        compact(where, layout["compact"])
        filters = re.findall(r"^\| `(evb\.[^`]+)` \|", (harness.ROOT / "docs" / "network.md").read_text(), re.M)
        assert len(filters) >= 7, filters
        for text in filters:
            tshark(where, RAW_IP, [datagram(known[0][1])], "-Y", text)
        packets = [bytes.fromhex(packet["bytes"]) for packet in layout["packets"].values()]
        info = tshark(where, RAW_IP, [datagram(raw) for raw in packets], "-T", "fields", "-e", "_ws.col.Info", "-e", "evb.malformed")
        assert info.split() == ["Triggers", "Busy"], info


def compact(where, found):
    columns = {
        "Assign": ["evb.event", "evb.l1_id", "evb.sequence", "", "evb.time_ns"],
        "announcement": ["evb.event", "evb.l1_id", "", "evb.sfi", ""],
        "Update": ["evb.event", "evb.end", "", "", "", "evb.payload_bytes"],
        "Request": ["evb.event", "evb.l1_id"],
        "Clear": ["evb.event"], "ClearById": ["evb.event", "evb.l1_id"], "Numbers": ["evb.frame_number"],
    }
    assert {sample["name"] for sample in found} <= columns.keys()
    shown = sorted({name for names in columns.values() for name in names if name})
    got = fields(where, RAW_IP, [datagram(bytes.fromhex(sample["bytes"])) for sample in found], "evb.malformed", *shown)
    for sample, (malformed, *columns_of) in zip(found, got, strict=True):
        assert not malformed, sample["name"]
        for k, name in enumerate(columns[sample["name"]]):
            if not name:
                continue
            # A void entry of an assignment or an update has no event.
            is_void = sample["name"] in ("Assign", "announcement", "Update") and name in ("evb.event", "evb.l1_id", "evb.time_ns")
            wanted = [entry[k] for entry in sample["entries"] if not (is_void and entry[0] == 2 ** 64 - 2)]
            values = [int(value, 0) for value in columns_of[shown.index(name)]]
            assert values == wanted, (sample["name"], name, values, wanted)


def damaged(layout):
    """A flipped byte, a cut message and random bytes are marked, and never an error of Lua."""
    seeded = random.Random(20261129)
    with harness.folder() as where:
        known = dict(samples_of(layout))
        assign = known["Assign"]
        packets, marked = [datagram(known["Update"])], [False]
        for name in ("Assign", "KeepAlive", "Join", "Metadata", "Decision"):
            raw = known[name]
            for at in range(4, len(raw)):  # without its magic, it is no message of evb
                packets.append(datagram(raw[:at] + bytes([raw[at] ^ 1 << seeded.randrange(8)]) + raw[at + 1:]))
                marked.append(True)
            packets += [datagram(raw[:n]) for n in range(4, len(raw))]
            marked += [True] * (len(raw) - 4)
        # Its check word contains half of the cookie, which the messages above show.
        raw = known["Fragments"]
        directory = len(bytes.fromhex(layout["messages"]["Fragments"]["bytes"]))
        for at in range(8, directory):
            packets.append(datagram(raw[:at] + bytes([raw[at] ^ 1 << seeded.randrange(8)]) + raw[at + 1:]))
            marked.append(True)
        for _ in range(200):
            noise = seeded.randbytes(seeded.randrange(0, 300))
            packets += [datagram(assign[:32] + noise), datagram(b"\xeb\x06\x05\x20" + noise), datagram(b"EVBT" + noise)]
            marked += [None] * 3
        found = fields(where, RAW_IP, packets, "evb.message", "evb.malformed")
        for k, ((message, malformed), wanted) in enumerate(zip(found, marked, strict=True)):
            assert wanted is None or bool(malformed) == wanted, (k, wanted, message, malformed, packets[k].hex())
        text = tshark(where, RAW_IP, packets, "-V")
        assert ".lua:" not in text, re.search(r".*\.lua:.*", text)[0]


class Capture(threading.Thread):
    """Records what the loopback device of this namespace carries."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x0003))
        self.socket.bind(("lo", 0x0003))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)  # SO_RCVBUFFORCE
        self.packets, self.ended = [], False
        self.start()

    def run(self):
        self.socket.settimeout(0.05)
        while True:
            try:
                packet, (_, _, kind, *_) = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                if self.ended:
                    return
                continue
            if kind != socket.PACKET_OUTGOING:  # each packet comes twice
                self.packets.append(packet)

    def end(self):
        self.ended = True
        self.join()
        lost = struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]  # PACKET_STATISTICS
        self.socket.close()
        assert lost == 0, f"{lost} packets were not captured"
        return self.packets


def captured(where, keys, with_level2):
    capture = Capture()
    try:
        with harness.Running(EVB, harness.scenario(where, RUN), keys) as running:
            if with_level2:
                running.wait_nodes(5)
                farm = subprocess.run([EVB, "level2", "--connect", f"{running.address('dfm')}:26803", "--fraction", "0.5", "--regions", "1"],
                                      capture_output=True, text=True, timeout=harness.LIMIT_S)
                assert farm.returncode == 0, farm.stderr
            running.end(expect=(0,))
    finally:
        packets = capture.end()
    return packets


RUN = """
[scenario]
mode = push
[trigger]
events = 100
[ros]
count = 2
fragment-size = 3000
[sfi]
count = 2
timeout = 30s
[dfm]
node-timeout = 30s
"""
ALL = {"Assign", "Fragments", "Update", "KeepAlive", "Alive", "Join", "Welcome", "Clear", "Totals"}
REGIONS = {"level2.listen": "tcp:26803", "level2.regions": "tcp:26804", "level2.timeout": "10min"}
# Keys of a run, the messages that it sends besides, and whether fragments are requested.
RUNS = {
    "push": ({}, set(), False),
    "pull": ({"scenario.mode": "pull"}, {"Request"}, True),
    "TCP": ({"scenario.transport": "tcp", "scenario.mode": "pull"}, {"Request"}, True),
    "level 2": (REGIONS, {"Request", "Undecided", "Decision", "DecisionAck", "Readouts"}, False),
    "key": ({"network.key-file": "key"}, set(), False),
}


def run(layout):
    """In captures of runs, each message has a name, none is malformed, and events link the frames of their messages."""
    harness.need_root()
    if os.environ.get("EVB_TEST_NET") != "1":
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, "EVB_TEST_NET": "1"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    types = {number: name for number, name in layout["types"]}
    for kind, (keys, wanted, is_pull) in RUNS.items():
        with harness.folder() as where:
            os.environ["XDG_STATE_HOME"] = str(where)
            (where / "key").write_text(bytes(range(32)).hex())
            (where / "key").chmod(0o600)
            keys = {key: where / value if value == "key" else value for key, value in keys.items()}
            packets = captured(where, keys, kind == "level 2")
            found = fields(where, ETHERNET, packets, "evb.message", "evb.malformed", "evb.event", "evb.request_in", "evb.answer_in",
                           "evb.assign_in", "evb.trailer.number", "evb.hello.session", two_passes=True)
            if any(row[1] for row in found):
                raise AssertionError(kind + tshark(where, ETHERNET, packets, "-Y", "evb.malformed", "-V")[-3000:])
            names = {types[int(number, 0)] for row in found for number in row[0]}
            assert names >= ALL | wanted, (kind, ALL | wanted - names)
            fragments = [row for row in found if row[0] and {types[int(number, 0)] for number in row[0]} == {"Fragments"}]
            assert kind == "level 2" or all(row[5] for row in fragments), (kind, [row for row in fragments if not row[5]][:3])
            if is_pull:
                assert all(row[3] for row in fragments), (kind, [row for row in fragments if not row[3]][:3])
                assert sum(len(row[4]) for row in found) >= 200, kind
            if kind != "level 2":
                assert {int(event) for row in fragments for event in row[2]} == set(range(100)), kind
            assert any(row[6] for row in found) == any(row[7] for row in found) == (kind == "key"), kind


def main():
    if not shutil.which("tshark"):
        print("SKIPPED: tshark is not installed; on Debian: apt-get install tshark")
        sys.exit(77)
    layout = json.loads(subprocess.run([LAYOUT], check=True, capture_output=True, text=True).stdout)
    try:
        {"samples": samples, "damaged": damaged, "run": run}[CASE](layout)
    except harness.Skip as reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)


main()
