#!/usr/bin/env python3
"""Boards as they are: frames by their public definitions, over TCP and UDP, in one run whose events are read by layout only.

    test_boards.py EVB [CASE...]
"""
import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import sys
import threading

from harness import LIMIT_S, OWN_NET, ROOT, Running, complete, events_of, folder, main, payloads_by_l1_id, scenario
from network import wait_until

sys.path.insert(0, str(ROOT / "python"))
from evb.board import Board as PythonBoard, TriggerBox  # pylint: disable=wrong-import-position

EVENTS = 200
HEAD = f"""
[trigger]
events = {EVENTS}
rate = 1kHz
[ros]
wait = 200s
[sfi]
timeout = 250s
credits = 300
output = file
[dfm]
node-timeout = 200s
start-timeout = 200s
[node dfm]
role = dfm
[node sfi1]
role = sfi
"""


def data(k):
    """Words of event k, whose number depends on it."""
    return b"".join(struct.pack("<I", 0x10000 * k + i) for i in range(k % 7 + 1))


def caen(k):
    """V1730: the size in words is in the low 28 bits of the first one, the event counter in 24 bits of the third one."""
    words = data(k)
    return struct.pack("<4I", 0xA0000000 | 4 + len(words) // 4, 0x08000003, 0xEE000000 | k, 8 * k) + words


def midas(k):
    return struct.pack("<HHIII", 1, 0, k, 1700000000, len(data(k))) + data(k)


def drs4(k):
    """The evaluation board: no length; it counts from 1."""
    channel = struct.pack("<1024H", *range(1024))
    return b"EHDR" + struct.pack("<I8HBBH", k + 1, 2026, 11, 28, 12, 0, 0, k % 1000, 0, 66, 35, 2264) + b"C001" + channel


def evio(k):
    words = struct.pack(f">{k % 7 + 1}I", *range(k % 7 + 1))
    return struct.pack(">IHBB", 2 + len(words) // 4, 1, 1, 0) + struct.pack(">I", k) + words


def fei4(k):
    """As YARR files have it: tag, L1 ID of 5 bits, BCID, number of hits, hits."""
    return struct.pack("<IHHH", 0x1234, k % 32, k * 7 % 1024, k % 7 + 1) + data(k)


def eudet(k):
    """The trigger number of the handshake: 15 bits, here of a TLU that began before."""
    return struct.pack("<HH", (k + 32700) % 32768 | 0x8000 * (k % 2), 0xCAFE)


def aida(k):
    return struct.pack("<6I", 0x10010000, k * 1000, 0x01020304, k, 0x05060000, 0)


def fed(k):
    """Counters with a number of resets above the 24 bits."""
    return struct.pack("<II", 4 + len(data(k)), 3 << 24 | k) + data(k)


def sls(k):
    """One datagram per frame: frame number, exposure, packet number, bunch ID, then fields that stay, and pixels."""
    return struct.pack("<QIIQ", k, 1000, 0, 12345) + bytes(24) + data(k) * 20


def srs(k):
    return struct.pack(">I", k) + b"VM3\x05" + struct.pack(">II", k * 100, 0) + data(k)


def caen_twice(k):
    """The second event of the trigger has no samples."""
    return [caen(k), struct.pack("<4I", 0xA0000004, 0x08000000, 0xEE000000 | k, 8 * k + 1)]


def sls_packets(k):
    """A frame of 4 packets, each with its number, which have overtaken each other."""
    return [sls(k)[:12] + struct.pack("<I", packet) + sls(k)[16:] + bytes([packet]) for packet in (2, 0, 3, 1)]


def srs_datagrams(k):
    return [srs(k) + bytes([part]) for part in range(k % 3 + 1)]


def hits(k):
    """A frame for each hit: length, L1 ID, and flags, of which the top one ends the trigger."""
    return [struct.pack("<HHI", 8, k, i | 0x80000000 * (i == k % 4)) for i in range(k % 4 + 1)]


def concentrator(k):
    """Frames of three boards in turn, one of which sends two: length, ID of the board in 4 bits, L1 ID, data."""
    order = [1, 2, 14, 2]
    return [struct.pack("<HHI", 8 + len(data(k)), board | 0xFF0, k) + data(k) for board in order[k % 4:] + order[:k % 4]]


def board_of(frame):
    return frame[2] % 16


# Frame, number, first number, maker, and how many bytes of a frame are not stored. If the maker makes several frames of a
# trigger, also how they are joined, and the order in which they are in the fragment.
STREAMS = {
    "caen": ("length 0.0:28 unit 4", "8:24", 0, caen, 0),
    "midas": ("length 12:32 plus 16", "4:32", 0, midas, 0),
    "drs4": (f"fixed {len(drs4(0))} marker {b'EHDR'.hex()}", "4:32", 1, drs4, 0),
    "drs4-marked": (f"marker {b'EHDR'.hex()}", "4:32", 1, drs4, 0),
    "evio": ("length 0:32:be unit 4 plus 4", "8:32:be", 0, evio, 0),
    "fei4": ("length 8:16 unit 4 plus 10", "4:5", 0, fei4, 0),
    "eudet": ("fixed 4", "0:16 mod 32768", 32700, eudet, 0),
    "aida": ("fixed 24", "12:32", 0, aida, 0),
    "fed": ("length 0:32 plus 4 skip 4", "0:24", 0, fed, 4),
    "caen-twice": ("length 0.0:28 unit 4", "8:24", 0, caen_twice, 0, "join count 2", None),
    "hits": ("length 0:16", "2:16", 0, hits, 0, "join last 7.7:1", None),
    "evio-joined": ("length 0:32:be unit 4 plus 4", "8:32:be", 0, lambda k: [evio(k)] * (k % 2 + 1), 0, "join", None),
    "concentrator": ("length 0:16", "4:32", 0, concentrator, 0, "join count 4 demux 2:4", board_of),
}
DATAGRAMS = {
    "sls": ("datagram", "0:64", 0, sls, 0),
    "srs": ("datagram", "0:32:be", 0, srs, 0),
    "sls-packets": ("datagram", "0:64", 0, sls_packets, 0, "join count 4 index 12:32", lambda frame: frame[12]),
    "srs-datagrams": ("datagram", "0:32:be", 0, srs_datagrams, 0, "join", None),
}


def section(name, source, rule):
    frame, number, first, _, _, *join = rule
    return (f"[node {name}]\nrole = ros\nsource = {source}\nframe = {frame}\nevent-number = {number}\nnumber-from = {first}\n"
            f"fragments = {join[0] + ' within 100s' if join else 'one'}\n" +
            ("source-id = 0x120000\n" if board_of in join else ""))


def frames(rule, k):
    """All frames of trigger k."""
    made = rule[3](k)
    return made if isinstance(made, list) else [made]


def after(rule):
    """Shows the end of the last fragment: a frame of the next trigger."""
    return frames(rule, EVENTS)[0] if "join" in rule else b""


def fragments(rule, k):
    """The fragments as evb should store them: one, or one of each board of the stream, which has its ID."""
    _, _, _, _, skip, *join = rule
    stored = [frame[skip:] for frame in frames(rule, k)]
    if not join:
        return stored
    stored.sort(key=join[1] or (lambda frame: 0))
    groups = itertools.groupby(stored, join[1] if board_of in join else lambda frame: 0)
    return [b"".join(struct.pack("<I", len(frame)) + frame for frame in group) for _, group in groups]


class Board(threading.Thread):
    """Serves all of its frames to one connection, in parts of odd sizes."""

    def __init__(self, stream, rule):
        super().__init__(daemon=True)
        self.stream, self.rule = stream, rule
        self.listener = socket.create_server((f"{OWN_NET}.9", 0))
        self.source = f"tcp:{OWN_NET}.9:{self.listener.getsockname()[1]}"

    def run(self):
        connection, _ = self.listener.accept()
        with connection, contextlib.suppress(OSError):
            for at in range(0, len(self.stream), 1013):
                connection.sendall(self.stream[at:at + 1013])


def check(report, rules):
    """Each event has the frame of its trigger from each board, byte by byte."""
    complete(report)
    assert report["triggers"] == EVENTS, report
    (path,) = report["files"]
    seen = 0
    for l1_id, payloads in events_of(path):
        expected = [stored for rule in rules.values() for stored in fragments(rule, l1_id)]
        assert sorted(payloads) == sorted(expected), l1_id
        seen += 1
    assert seen == EVENTS, seen
    file = pathlib.Path(path).read_bytes()
    for board in (1, 2, 14):
        header = re.escape(struct.pack("<2I", 0xEE1234EE, 9)) + b"...." + re.escape(struct.pack("<I", 0x120000 + board))
        assert len(re.findall(header, file, re.DOTALL)) == EVENTS, board


def tcp(evb):
    """The DRS4 begins with a header of calibrations, which is part of no frame."""
    with folder() as where:
        text, boards = HEAD, []
        for name, rule in STREAMS.items():
            begin = b"TIMEB#\x01\x00C001" + bytes(400) if "drs4" in name else b""
            boards.append(Board(begin + b"".join(frame for k in range(EVENTS) for frame in frames(rule, k)) + after(rule), rule))
            text += section(name, boards[-1].source, rule)
            boards[-1].start()
        with Running(evb, scenario(where, text), {"sfi.directory": where}) as running:
            check(running.end(expect=(0,)), STREAMS)


def waiting(addresses, port):
    """The bytes that wait in the sockets of these addresses; None: not all are open."""
    lines = [line.split() for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]]
    queues = {line[1]: int(line[4].partition(":")[2], 16) for line in lines}
    names = [f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{port:04X}" for address in addresses]
    return sum(queues[name] for name in names) if all(name in queues for name in names) else None


def udp(evb):
    """Some boards send two frames in a datagram. A datagram is sent when the ones before have been read."""
    rules = {name: rule for name, rule in {**STREAMS, **DATAGRAMS}.items() if name != "drs4-marked"}
    port = 47300
    with folder() as where, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        text = HEAD + "".join(section(name, f"udp:{port}", rule) for name, rule in rules.items())
        with Running(evb, scenario(where, text), {"sfi.directory": where}) as running:
            running.wait_nodes(len(rules) + 2)
            addresses = {name: running.address(name) for name in rules}
            running.wait_for("ports of the ROSs", lambda: waiting(addresses.values(), port) is not None)
            for k in range(0, EVENTS, 2):
                running.wait_for("read of all datagrams", lambda: waiting(addresses.values(), port) == 0)
                for name, rule in rules.items():
                    pair = frames(rule, k) + frames(rule, k + 1)
                    for datagram in pair if name in DATAGRAMS or k % 3 else [b"".join(pair)]:
                        sender.sendto(datagram, (addresses[name], port))
            for name, rule in rules.items():
                if after(rule):
                    sender.sendto(after(rule), (addresses[name], port))
            check(running.end(expect=(0,)), rules)


def in_python(evb):
    """evb.TriggerBox and two of evb.Board. The counters are reset once; each event has the frames of its trigger, and the files of
    both SFIs have one order by event numbers, which do not repeat."""
    n, part = 300, 50
    addresses = {name: f"{OWN_NET}.{i}" for i, name in enumerate(("dfm", "sfi1", "sfi2", "served", "sent"), 2)}
    with contextlib.ExitStack() as undo:
        where = undo.enter_context(folder())
        box = undo.enter_context(TriggerBox(f"{addresses['dfm']}:47300", busy=f"{OWN_NET}.9:0"))
        boards = [undo.enter_context(PythonBoard(source)) for source in (f"tcp:{OWN_NET}.9:0", f"udp:{addresses['sent']}:47300")]
        text = HEAD.replace(f"events = {EVENTS}\nrate = 1kHz", f"source = udp:47300\nbusy-to = {box.busy}")
        text += f"[node served]\nrole = ros\nsource = {boards[0].source}\nevent-number = 0:64\n"
        text += "[node sent]\nrole = ros\nsource = udp:47300\nevent-number = 0:32\n[node sfi2]\nrole = sfi\n"
        text = re.sub(r"\[node (\w+)\]\n", lambda node: f"{node[0]}address = {addresses[node[1]]}\n", text)
        running = undo.enter_context(Running(evb, scenario(where, text), {"sfi.directory": where}))
        assert boards[0].wait(LIMIT_S), "no ROS connects"
        for k in range(2 * n):
            number = box.trigger(type=k)
            assert number == k % n
            for i, board in enumerate(boards):
                board.send(number, struct.pack("<IB", k, i))
            if k % part == part - 1:
                running.wait_for(f"{k + 1} events", lambda built=k + 1: running.counter("dfm", "events_complete") >= built)
            if k == n - 1:
                box.reset()
        running.signal()
        report = running.end(expect=(0,))
        complete(report)
        assert report["triggers"] == 2 * n and report["trigger_resets"] >= 2, report
        found = [(l1_id, sorted(payloads)) for path in report["files"] for l1_id, payloads in events_of(path)]
        assert sorted(found) == sorted((k % n, [struct.pack("<QIB", k % n, k, i) for i in (0, 1)]) for k in range(2 * n)), found
        numbers = []
        for path in report["files"]:
            done = subprocess.run([evb, "dump", path, "--tree", "--verify", "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
            *events, verified = map(json.loads, done.stdout.splitlines())
            assert events and verified["verify"]["right"] and verified["verify"]["duplicate_events"] == 0, verified
            numbers += [(event["number"], event["l1_id"]) for event in events]
        assert len(report["files"]) == 2 and sorted(numbers) == [(k, k % n) for k in range(2 * n)], numbers


def page(evb):
    """The board of docs/python.md, with its keys: its frames are the events."""
    text = (ROOT / "docs" / "python.md").read_text()
    program, keys = re.search(r"```python\n(import evb\n[^`]*evb\.Board\([^`]*)```\s*```ini\n(.*?)```", text, re.S).groups()
    n = int(re.search(r"range\((\d+)\)", program)[1])
    keys = HEAD.replace(f"[trigger]\nevents = {EVENTS}\nrate = 1kHz\n", keys) + f"[node ros1]\nrole = ros\n[trigger]\nevents = {n}\n"
    with folder() as where:
        (where / "program.py").write_text(program.replace("127.0.0.1", f"{OWN_NET}.9"))
        with subprocess.Popen([sys.executable, "program.py"], cwd=where, env={**os.environ, "PYTHONPATH": ROOT / "python"}) as board, \
                Running(evb, scenario(where, keys.replace("127.0.0.1", f"{OWN_NET}.9")), {"sfi.directory": where}) as running:
            try:
                report = running.end(expect=(0,))
            finally:
                board.kill()
        complete(report)
        (path,) = report["files"]
        found = sorted(events_of(path))  # a fragment that came again is later in the file
        assert found == [(k, [struct.pack("<Q", k) + b"what the device measured"]) for k in range(n)], found


@contextlib.contextmanager
def many_descriptors():
    """Descriptors of this process get numbers above 1023, if its limit allows that."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        if before[1] == resource.RLIM_INFINITY or before[1] >= 2048:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
            for _ in range(1024):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        yield


def busy(_):
    """The trigger box obeys the busy signal, and ignores other datagrams. Silence is busy. So does a board by itself."""
    with many_descriptors(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dfm, TriggerBox("127.0.0.1:9", busy="127.0.0.1:0") as box, \
            PythonBoard("udp:127.0.0.1:9", busy="127.0.0.1:0") as board:
        for electronics in (box, board):
            host, _, port = electronics.busy.rpartition(":")

            def says(data, after, to=(host, int(port)), electronics=electronics):
                """Whether it is ready after this datagram."""
                dfm.sendto(data, to)
                return electronics.wait(after)

            ready, full = (struct.pack("<4sBBHQ", b"EVBB", state, state, 0, 0) for state in (0, 1))
            assert not electronics.wait(0.001)
            wait_until("ready", lambda: says(ready, 0.05))
            wait_until("silence", lambda: not electronics.wait(0))
            for wrong in (ready[:-1], ready + b"0", b"EVBT" + ready[4:], ready[:4] + b"\2" + ready[5:]):
                assert not says(wrong, 0), wrong
            wait_until("ready again", lambda: says(ready, 0.05))
            assert not says(full, 0)
        assert box.reason == 1
        assert TriggerBox("127.0.0.1:9").wait(0), "without a signal, there is no busy"


def reconnects(_):
    """A ROS that ends within a frame: the next one gets all of it. Frames between two connections wait."""
    with PythonBoard("tcp:127.0.0.1:0") as board:
        large = bytes(range(256)) * 2 ** 17
        to = ("127.0.0.1", int(board.source.rpartition(":")[2]))
        sender = threading.Thread(target=lambda: [board.send(k, data) for k, data in enumerate((large, b"end"))], daemon=True)
        sender.start()
        with socket.create_connection(to, timeout=LIMIT_S) as ros:
            assert len(ros.recv(2 ** 16)) > 0
        with socket.create_connection(to, timeout=LIMIT_S) as ros, ros.makefile("rb") as stream:
            assert stream.read(12 + len(large)) == struct.pack("<IQ", 8 + len(large), 0) + large
            assert stream.read(15) == struct.pack("<IQ", 11, 1) + b"end"
            sender.join(LIMIT_S)
        assert not sender.is_alive() and board.frames == 2
        wait_until("end of the connection", lambda: not board.wait(0))


def listen(evb):
    """`evb listen` proposes keys for a stream and for datagrams, and cuts frames by the keys of a scenario."""
    streams = {"caen": ("length 0:28 unit 4", "8:24"), "midas": ("length 12:32 plus 16", "4:32"), "fed": ("length 0:32 plus 4 skip 4", "0:24"),
               "evio": ("length 0:32:be unit 4 plus 4", "8:32:be"), "drs4": (f"fixed {len(drs4(0))} marker {b'EHDR'.hex()}", "4:32")}

    def ask(*options, expect=0):
        done = subprocess.run([evb, "listen", *options, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == expect, (options, done)
        return json.loads(done.stdout), done.stderr

    def serve(name):
        board = Board(b"TIMEB#\x01\x00C001" * (name == "drs4") + b"".join(STREAMS[name][3](k) for k in range(EVENTS)), STREAMS[name])
        board.start()
        return board.source

    for name, (frame, number) in streams.items():
        report, _ = ask(serve(name))
        proposed = report["frame"], report["event_number"], report["frames"]
        assert proposed == (frame, number, EVENTS), (name, report)
    with folder() as where, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        path = scenario(where, HEAD + section("caen", f"udp:{OWN_NET}.9:47300", STREAMS["caen"]))
        for options in (("caen", "--config", path), (f"udp:{OWN_NET}.9:47300",)):
            with subprocess.Popen([evb, "listen", *options, "--count", str(EVENTS), "--json"], stdout=subprocess.PIPE, text=True) as listening:
                try:
                    wait_until("open port", lambda: waiting([f"{OWN_NET}.9"], 47300) is not None)
                    for k in range(EVENTS):
                        wait_until("read of all datagrams", lambda: waiting([f"{OWN_NET}.9"], 47300) == 0)
                        sender.sendto(caen(k), (f"{OWN_NET}.9", 47300))
                    report = json.loads(listening.communicate(timeout=LIMIT_S)[0])
                finally:
                    listening.kill()
            assert listening.returncode == 0 and report["frames"] == EVENTS and report["number_gaps"] == 0, report
            assert report["event_number"] == "8:24" and report["first_frames"][1]["hex"] == caen(1).hex(), report
            assert report["first_frames"][1]["number"] == (1 if "--config" in options else None), report
    done = subprocess.run([evb, "listen", "tcp:127.0.0.1:9", "--count", "3"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and "without --frame, the frames of a stream are not known" in done.stderr, done
    report, said = ask(serve("midas"), "--frame", "length 0:32 unit 4096", expect=1)
    assert "frame begins with the bytes" in said and report["frame"] == streams["midas"][0], (report, said)


class AidaDevice:
    """A simulated AIDA-2020 TLU behind IPbus: a FIFO of words, and a veto."""

    def __init__(self):
        self.fifo, self.vetoes, self.node = [], [], ""

    def getNode(self, node):
        self.node = node
        return self

    def dispatch(self):
        pass

    def read(self):
        assert self.node == "eventBuffer.EventFifoFillLevel"
        return len(self.fifo)

    def readBlock(self, n):
        assert self.node == "eventBuffer.EventFifoData"
        words, self.fifo = self.fifo[:n], self.fifo[n:]
        return words

    def write(self, on):
        assert self.node == "triggerLogic.TriggerVetoW"
        self.vetoes.append(on)


class EudetPins:
    """A simulated EUDET TLU: a trigger stays until busy, and each rising clock then shows the next bit of its number."""

    def __init__(self, numbers):
        self.numbers, self.bits, self.is_busy = list(numbers), None, False

    def trigger(self):
        return self.bits[0] if self.bits else int(bool(self.numbers) and not self.is_busy)

    def busy(self, level):
        if level and not self.is_busy and self.numbers:
            self.bits = [0]
        elif not level and self.is_busy and self.bits is not None:
            assert self.bits == [0] * len(self.bits), "the number has not been read"
            self.numbers.pop(0)
            self.bits = None
        self.is_busy = level

    def clock(self, level):
        if level and self.bits == [0]:
            self.bits = [0] + [self.numbers[0] % 32768 >> bit & 1 for bit in range(15)] + [0]
        if level:
            self.bits = self.bits[1:]


def tlu(_):
    """The bridge of the examples sends the triggers of both TLUs with their numbers, and holds them back while evb is busy."""
    module = importlib.util.spec_from_file_location("tlu", ROOT / "configs" / "examples" / "python" / "tlu.py")
    bridge = importlib.util.module_from_spec(module)
    module.loader.exec_module(bridge)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dfm:
        dfm.bind(("127.0.0.1", 0))
        dfm.settimeout(LIMIT_S)
        for unit, numbers, last in ((bridge.Aida(AidaDevice()), range(7, 12), None), (bridge.Eudet(EudetPins([])), range(32765, 32771), None),
                                    (bridge.Eudet(EudetPins([])), range(98301, 98307), 98300)):
            with TriggerBox("127.0.0.1:%d" % dfm.getsockname()[1], busy="127.0.0.1:0") as box:
                bridge.forward(unit, box)
                assert (unit.device.vetoes if hasattr(unit, "device") else [unit.pins.is_busy]) == [True], "silence is busy"
                unit.veto(False)
                if last:
                    host, port = box.busy.rsplit(":", 1)

                    def knows_last(box=box, last=last, to=(host, int(port))):
                        dfm.sendto(struct.pack("<4sBB2xQ", b"EVBB", 0, 0, last), to)
                        return box.wait(0) and box.last == last

                    wait_until("the number of the last trigger", knows_last)
                if hasattr(unit, "device"):
                    unit.device.fifo = [word for k in numbers for word in struct.unpack("<6I", aida(k))]
                else:
                    unit.pins.numbers = list(numbers)
                box.wait = lambda timeout: True
                for _ in numbers:
                    bridge.forward(unit, box)
                got = [struct.unpack("<4sHHII2Q2I", dfm.recv(100)) for _ in numbers]
                assert [(magic, entries, sequence, number) for magic, _, entries, sequence, _, number, *_ in got] == \
                    [(b"EVBT", 1, i, number) for i, number in enumerate(numbers)], got
                assert not any(flags for *_, flags in got), "the numbers go on"
                if hasattr(unit, "device"):
                    assert {kind for *_, kind, _ in got} == {0x11} and {b[6] - a[6] for a, b in zip(got, got[1:])} == {25000}, got


def demo(evb):
    """The second part of scripts/demo-beam.sh, at addresses of this test: each event has the frames of its trigger."""
    text = re.search(r"<<CONF\n(.*?)\nCONF\n", (ROOT / "scripts" / "demo-beam.sh").read_text(), re.S)[1]
    examples, n = ROOT / "configs" / "examples" / "python", int(re.search(r"^events = (\d+)$", text, re.M)[1])
    with folder() as where:
        text = text.replace("$folder/boards", str(where)).replace("127.69.87", OWN_NET)
        (where / "tlu.py").write_text((examples / "tlu.py").read_text())
        (where / "beam.py").write_text((examples / "beam.py").read_text().replace("127.69.87", OWN_NET))
        patient = {"ros.wait": "200s", "sfi.timeout": "250s", "dfm.node-timeout": "200s", "dfm.start-timeout": "200s", "sfi.credits": 100}
        with subprocess.Popen([sys.executable, "beam.py", str(n)], cwd=where, env={**os.environ, "PYTHONPATH": ROOT / "python"}) as beam, \
                Running(evb, scenario(where, text), patient) as running:
            try:
                report = running.end(expect=(0,))
            finally:
                beam.kill()
        complete(report)
        (path,) = report["files"]
        events = payloads_by_l1_id(path)
        assert sorted(events) == list(range(n)), report
        for number, payloads in events.items():
            unit, = [data for data in payloads if len(data) == 24 and data[12:16] == struct.pack("<I", number) and data[2] == 1]
            tracker, = [data for data in payloads if len(data) == 8 and data[:4] == struct.pack(">I", number)]
            digitizer, = [data for data in payloads if data not in (unit, tracker)]
            assert struct.unpack("<4I", digitizer[:16])[:3] == (0xA0000000 | len(digitizer) // 4, 1, number), (number, payloads)


if __name__ == "__main__":
    main({"tcp": tcp, "udp": udp, "python": in_python, "page": page, "busy": busy, "reconnects": reconnects, "listen": listen, "tlu": tlu, "demo": demo})
