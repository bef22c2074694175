#!/usr/bin/env python3
"""The stand-in for boards and trigger box, alone and with real ROSs, whose accounts must be equal to its report.

    test_frontend.py EVB [CASE...]
"""
import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from harness import LIMIT_S, OWN_NET, Running, Skip, first_signal, folder, main, scenario

MASK = (1 << 64) - 1
SO_RCVBUFFORCE = 33
_ports = itertools.count(27000)
_hosts = itertools.count(1)


def settings_of(options):
    """Options of the command line: a list repeats its option."""
    return [str(word) for name, value in options.items() for each in (value if isinstance(value, list) else [value])
            for word in (f"--{name.replace('_', '-')}", each)]


class Frontend:
    """The stand-in in the background."""

    def __init__(self, evb, *words, **options):
        self.process = subprocess.Popen([evb, "frontend", "--json", *words, *settings_of(options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def signal(self, number=signal.SIGINT):
        self.process.send_signal(number)

    def end(self, expect=0):
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == expect, f"exit {self.process.returncode}, not {expect}: {err}\n{out}"
        report = json.loads(out)
        assert (expect == 0) == (report["reasons"] == []), report
        for board in report["boards"]:
            sums = sum(board[name] for name in ("frames", "missed", "outage", "broken", "refused", "unsent"))
            assert board["triggers"] == (0 if board["dead"] else report["triggers"]) == sums, board
        return report, err


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def pattern(seed, source, event, n):
    key = mix(mix(seed ^ source << 32) ^ event)
    return b"".join(((key + k * 0x9E3779B97F4A7C15) & MASK).to_bytes(8, "little") for k in range(n // 8 + 1))[:n]


class Frame:
    """A payload of a board, whose every byte is checked."""

    def __init__(self, payload, seed=1, offset=0, bits=32, order="little", first=0):
        end, n = offset + bits // 8, len(payload) - 16
        self.bytes = payload
        self.number = int.from_bytes(payload[offset:end], order)
        self.serial, self.board, self.restarts = struct.unpack_from("<QII", payload, n)
        expected = pattern(seed, self.board - 1, self.serial - first, n)
        assert payload[:offset] + payload[end:n] == expected[:offset] + expected[end:], (self.serial, self.board)


class Receiver:
    """A ROS that keeps the datagrams of one board."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        # Beyond the limit for ordinary users, so that a test that gets no processor for a while loses nothing.
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        self.socket.bind((f"{OWN_NET}.{next(_hosts)}", 0))
        self.at = "udp:{}:{}".format(*self.socket.getsockname())
        self.datagrams = []
        threading.Thread(target=self.receive, daemon=True).start()

    def receive(self):
        while True:
            self.datagrams.append(self.socket.recv(65536))

    def wait(self, n):
        deadline = time.monotonic() + LIMIT_S
        while len(self.datagrams) < n:
            assert time.monotonic() < deadline, f"{len(self.datagrams)} of {n} datagrams"
            time.sleep(0.01)
        return self.datagrams

    def frames(self, n, **form):
        found = []
        for datagram in self.wait(n):
            (length,) = struct.unpack_from("<I", datagram)
            assert length == len(datagram) - 4, datagram
            found.append(Frame(datagram[4:], **form))
        return found


def usage(evb):
    at = f"{OWN_NET}.1:9000"

    def wrong(*words, text):
        done = subprocess.run([evb, "frontend", *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stdout == "" and text in done.stderr, (words, done)

    wrong(text="missing option; --boards LIST is required")
    wrong("--boards", at, text=f'--boards: invalid value "{at}"; expected udp:ADDRESS:PORT of a ROS, or tcp:')
    for place in ("udp:front.end:9000", f"udp:{OWN_NET}.1", f"udp:{OWN_NET}.1:0", f"udp:{at},", f"udp:{at},,udp:{at}"):
        wrong("--boards", place, text="--boards: invalid value")
    wrong("--boards", ",".join(["udp:" + at] * 257), text="more than 256 boards")
    boards = ("--boards", f"udp:{at},udp:{at}")
    for option, values in {
            "rate": ("max", "0Hz", "fast"), "kind": ("burst", "often"), "events": ("-1", "many"), "duration": ("10",),
            "size": ("big", "5MiB", "uniform:9-3", "lognormal:100", "lognormal:100,9", "19", "65504"),
            "counter": ("4", "4:20", "x:32", "4:32:le", "70000:32", "-1:16"), "first": ("x",), "missed": ("2", "x"),
            "late": ("1%", "1%:soon", "2:1ms"), "restart": ("1", "3:1s", "0:1s", "1:soon", "1:1s:x"), "dead": ("0", "3", "x"),
            "skew": ("3",), "reset": ("5", "1s:", "1s:x", "x:1s"), "reset-after-busy": ("x",), "run": ("4294967296",), "seed": ("x",), "trigger-to": ("9000", "host:1"),
            "busy-from": ("0", "65536", "x", "host:1")}.items():
        for value in values:
            wrong(*boards, f"--{option}", value, text=f'--{option}: invalid value "{value}"; expected ')
    wrong(*boards, "--size", "32", "--counter", "10:64", text='--size: invalid value "32"; expected 34 bytes or more')
    wrong(*boards, *["--restart", "1:1s"] * 65, text="more than 64 restarts")
    wrong(*boards, *["--reset", "1s"] * 65, text="more than 64 resets")


def ports(evb):
    """A port in use is an error at once, which names the port."""
    host = f"{OWN_NET}.{next(_hosts)}"
    with socket.create_server((host, 0)) as taken, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as busy:
        busy.bind((host, 0))
        listen, hear = taken.getsockname()[1], busy.getsockname()[1]
        for words, text in (((f"tcp:{host}:{listen}",), f"cannot listen at {host}:{listen} for a board: the port is in use"),
                            ((f"udp:{host}:9", "--busy-from", f"{host}:{hear}"),
                             f"cannot hear busy datagrams at {host}:{hear}: the port is in use"),
                            (("tcp:203.0.113.1:9000",), "cannot listen at 203.0.113.1:9000 for a board: ")):
            done = subprocess.run([evb, "frontend", "--boards", *words, "--events", "1"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and text in done.stderr and done.stdout == "", done


def faults(evb):
    """Each byte of each frame is right, and the report counts what is missing, late or cut off by a restart."""
    options = {"events": 3000, "rate": "3kHz", "kind": "poisson", "size": "uniform:100-300", "counter": "4:16:be", "first": 65000,
               "missed": "2%", "late": "5%:30ms", "restart": "2:400ms:100ms", "dead": "3", "seed": 5}
    form = {"seed": 5, "offset": 4, "bits": 16, "order": "big", "first": 65000}
    before = None
    for _ in range(2):
        ros = [Receiver() for _ in range(3)]
        with Frontend(evb, boards=",".join(r.at for r in ros), **options) as frontend:
            report, _ = frontend.end()
        one, two, dead = report["boards"]
        frames = [ros[0].frames(one["frames"], **form), ros[1].frames(two["frames"], **form)]
        assert dead["dead"] and dead["frames"] == 0 and ros[2].datagrams == [], dead
        for board, found in ((one, frames[0]), (two, frames[1])):
            assert board["missed"] > 0 and board["late"] > 0 and board["connections"] == 0, board
            assert len(found) == board["frames"] and sum(len(f.bytes) for f in found) == board["payload_bytes"], board
            assert all(f.board == board["board"] for f in found)
            # Without an error of our own, the number of a late frame is below that of one before it.
            assert sum(f.serial < g for f, g in zip(found, itertools.accumulate((f.serial for f in found), max))) <= board["late"]
        assert one["outage"] == one["restarts"] == 0 and all(f.number == f.serial % 65536 for f in frames[0])
        assert two["outage"] > 100 and two["restarts"] == 1, two
        # Trigger `base`, the first one after the outage, is number 0.
        (base,) = {f.serial - f.number for f in frames[1] if f.restarts == 1}
        assert max(f.serial for f in frames[1] if f.restarts == 0) < base - two["outage"], (base, two)
        assert all(f.number == f.serial % 65536 for f in frames[1] if f.restarts == 0)
        # The outage lasts for a time, so the frames of the board that restarts depend on the machine.
        sent = sorted((f.board, f.serial, f.number, f.bytes) for f in frames[0])
        assert before in (None, sent), "another history"
        before = sent


def paused(evb):
    """A board misses the triggers of its outage, also if the stand-in gets no processor meanwhile."""
    ros = Receiver()
    with Frontend(evb, boards=ros.at, events=3000, rate="1kHz", restart="1:1s:1s") as frontend:
        ros.wait(300)
        frontend.signal(signal.SIGSTOP)
        time.sleep(2.5)
        frontend.signal(signal.SIGCONT)
        (board,) = frontend.end()[0]["boards"]
    assert board["outage"] == 1000 and board["restarts"] == 1, board


class Box:
    """A DFM that receives triggers and says whether it is busy."""

    def __init__(self):
        self.receiver = Receiver()
        self.host = f"{OWN_NET}.{next(_hosts)}"
        self.port = next(_ports)
        self.state, self.said, self.lock = None, 0, threading.Lock()
        threading.Thread(target=self.speak, daemon=True).start()

    def options(self):
        return {"trigger_to": self.receiver.at.removeprefix("udp:"), "busy_from": f"{self.host}:{self.port}"}

    def send(self):
        if self.state:
            self.receiver.socket.sendto(self.state, (self.host, self.port))
            self.said += 1

    def say(self, busy, reason=1):
        with self.lock:
            self.state = struct.pack("<4sBBHQ", b"EVBB", busy, reason if busy else 0, 0, 0)
            self.send()

    def fall_silent(self):
        with self.lock:
            self.state = None

    def speak(self):
        """Repeats what was said last, as the DFM does, so that a slow test does not look like silence."""
        while True:
            time.sleep(0.1)
            with self.lock:
                self.send()

    def wait_until_it_listens(self):
        address = struct.unpack("=I", socket.inet_aton(self.host))[0]
        deadline = time.monotonic() + LIMIT_S
        while f" {address:08X}:{self.port:04X} " not in pathlib.Path("/proc/net/udp").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def entries(self):
        found = []
        for k, datagram in enumerate(list(self.receiver.datagrams)):
            magic, version, n, sequence, run = struct.unpack_from("<4sHHII", datagram)
            assert (magic, version, sequence, run) == (b"EVBT", 1, k, 77) and len(datagram) == 16 + 24 * n, datagram
            found += struct.iter_unpack("<QQII", datagram[16:])
        return found

    def wait_entries(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition(self.entries()):
            assert time.monotonic() < deadline, len(self.entries())
            time.sleep(0.01)

    def wait_pause(self, n=4):
        """Waits until no trigger comes any more; returns their number. What left before the stand-in heard arrives."""
        deadline, counts = time.monotonic() + LIMIT_S, []
        while len(counts) < n or len(set(counts[-n:])) > 1:
            assert time.monotonic() < deadline, counts
            time.sleep(0.1)
            counts.append(len(self.entries()))
        return counts[-1]


def busy(evb):
    """No trigger comes before the DFM speaks, while it is busy, or after it has fallen silent."""
    box, ros = Box(), Receiver()
    with Frontend(evb, boards=ros.at, rate="1kHz", run=77, first=1 << 40, **box.options()) as frontend:
        box.wait_until_it_listens()
        box.receiver.socket.sendto(b"EVBB", (box.host, box.port))
        time.sleep(0.3)
        assert box.entries() == []
        box.say(False)
        box.wait_entries(lambda entries: len(entries) >= 100)
        box.say(True)
        before = box.wait_pause()
        box.say(False)
        box.wait_entries(lambda entries: len(entries) >= before + 100)
        # Silence is busy, too. It must last until the stand-in has noticed it.
        box.fall_silent()
        box.wait_pause(40)
        frontend.signal()
        report, _ = frontend.end()
    entries = box.entries()
    assert [e[0] for e in entries] == [(1 << 40) + k for k in range(report["triggers"])], entries[:3]
    assert all(type_ == 1 and flags == (0 if k else RESET) and abs(at / 1e9 - time.time()) < 600
               for k, (_, at, type_, flags) in enumerate(entries))
    assert all(a[1] <= b[1] for a, b in itertools.pairwise(entries))
    assert report["trigger_datagrams"] == len(box.receiver.datagrams)
    heard = report["busy"]
    assert heard["datagrams"] == box.said and heard["malformed"] == 1 and heard["changes"] == 2 and heard["seconds"] > 0, heard
    assert report["held_seconds"]["busy"] > heard["seconds"], (report["held_seconds"], heard)
    assert [f.serial for f in ros.frames(report["triggers"], first=1 << 40)] == [e[0] for e in entries]


# The flag of the first trigger and, without a busy signal, of the first one after a reset; an entry that only announces one.
RESET = 4
MARKER = 12
BUSY_RESET = 5


def reset(evb):
    """If the DFM stays busy, trigger and boards count from 0, once the DFM has answered the marker that says so."""
    box, ros = Box(), Receiver()
    with Frontend(evb, boards=ros.at, rate="1kHz", run=77, first=5000, reset_after_busy="2s", **box.options()) as frontend:
        box.wait_until_it_listens()
        box.say(False)
        box.wait_entries(lambda entries: len(entries) >= 50)
        box.say(True)
        box.wait_entries(lambda entries: entries[-1][3] == MARKER)
        # Neither another reason nor ready answers it, so it comes again.
        box.say(True)
        box.say(False)
        box.wait_entries(lambda entries: [e[3] for e in entries[-2:]] == [MARKER] * 2)
        box.say(True, BUSY_RESET)
        # An answer that takes longer is no reason for another reset.
        time.sleep(2.5)
        box.say(False)
        time.sleep(0.5)

        def is_over(entries):
            """20 triggers since the last marker. If this test pauses, that is silence, and a marker comes again."""
            if entries[-1][3] == MARKER:
                box.say(True, BUSY_RESET)
                time.sleep(0.5)
                box.say(False)
                time.sleep(0.5)
            return all(e[3] != MARKER for e in entries[-20:])

        box.wait_entries(is_over)
        frontend.signal()
        report, err = frontend.end()
    assert report["resets"] == 1 and "all counters are reset" in err, (report, err)
    entries = box.entries()
    markers = [k for k, e in enumerate(entries) if e[3] == MARKER]
    again = markers[0]
    assert markers == [*range(again, again + len(markers))] and all(entries[k][0] == 0 for k in markers), markers
    entries = [e for e in entries if e[3] != MARKER]
    assert [k for k, e in enumerate(entries) if e[3]] == [0] and entries[0][3] == RESET, entries[:2]
    numbers = [e[0] for e in entries]
    assert numbers == [*range(5000, 5000 + again), *range(len(numbers) - again)], numbers
    assert [f.number for f in ros.frames(len(numbers), first=5000)] == numbers


def reset_twice(evb):
    """Counters that are reset by a schedule count from 0, and no frame of the former count comes later."""
    box, ros = Box(), [Receiver(), Receiver()]
    with Frontend(evb, boards=",".join(r.at for r in ros), rate="1kHz", events=1000, run=77, counter="0:16", reset=["600ms:1ms", "300ms"], late="10%:50ms",
                  restart="2:100ms", trigger_to=box.options()["trigger_to"]) as frontend:
        report, err = frontend.end()
    assert report["resets"] == 2 and report["held_seconds"]["reset"] >= 0.1, report
    box.wait_entries(lambda entries: len(entries) == 1000)
    entries = box.entries()
    begins = [k for k, e in enumerate(entries) if e[3] == RESET]
    assert begins == [0, 300, 600] and len(entries) == 1000, begins
    assert [e[0] for e in entries] == [*range(300), *range(300), *range(400)]
    for r, board in zip(ros, report["boards"]):
        frames = r.frames(board["frames"], bits=16)
        assert sum(f.serial < g for f, g in zip(frames, itertools.accumulate((f.serial for f in frames), max))) > 0, board
        counts = [min(f.serial // 300, 2) for f in frames]
        assert counts == sorted(counts), board
        assert all(f.number == f.serial - begins[count] for f, count in zip(frames, counts) if count or board["board"] == 1)


def ctrl_c(evb):
    """The first signal ends with a report, before triggers begin as well; the second one ends at once."""
    host = f"{OWN_NET}.{next(_hosts)}"
    ros = Receiver()
    with Frontend(evb, boards=ros.at, rate="500Hz") as frontend:
        ros.wait(20)
        frontend.signal(signal.SIGINT)
        report, _ = frontend.end()
        assert len(ros.frames(report["triggers"])) == report["triggers"] >= 20
    port = next(_ports)
    with Frontend(evb, boards=f"tcp:{host}:{port}") as frontend:
        # The program warns once after 2 s, and lives.
        assert f"board 1: no ROS has connected to {host}:{port} yet" in frontend.process.stderr.readline()
        frontend.signal(signal.SIGTERM)
        report, err = frontend.end(expect=1)
        assert report["triggers"] == 0 and report["reasons"] == ["no trigger was sent", f"board 1: no ROS connected to {host}:{port}"]
        assert "no trigger was sent" in err
    with Frontend(evb, boards=f"tcp:{host}:{port}", rate="100kHz", size="100kB") as frontend:
        # A ROS that reads nothing: triggers wait, and so does the end.
        with contextlib.closing(connect(host, port)) as connection:
            wait_until_full(connection, frontend.process)
            first_signal(frontend.process)
            assert frontend.process.poll() is None
            frontend.signal(signal.SIGINT)
            report, _ = frontend.end(expect=1)
    (board,) = report["boards"]
    assert board["unsent"] + board["broken"] > 0 and any("could not be sent" in reason for reason in report["reasons"]), report


def wait_until_full(connection, process):
    """Waits until nothing more arrives in the socket, although its sender has not only lost the processor."""
    deadline, before = time.monotonic() + LIMIT_S, -1
    while True:
        asleep = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        (waiting,) = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))
        if asleep and waiting == before > 0:
            return
        assert time.monotonic() < deadline
        before = waiting
        time.sleep(0.5)


def connect(host, port):
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=LIMIT_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


class Stream:
    """A ROS on a TCP connection, which counts frames from its own start on."""

    def __init__(self, host, port):
        self.socket = connect(host, port)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def read(self, **form):
        head = self.file.read(4)
        return Frame(self.file.read(struct.unpack("<I", head)[0]), **form) if head else None


def first_frame(host, port):
    """Returns a connection and its first frame. A board that closes its port resets a connection that waits there."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        stream = Stream(host, port)
        try:
            return stream, stream.read()
        except ConnectionResetError:
            assert time.monotonic() < deadline
            stream.close()


def restart_tcp(evb):
    """A board that restarts closes its connection and its port, and sends the rest on the next connection."""
    host, port = f"{OWN_NET}.{next(_hosts)}", next(_ports)
    with Frontend(evb, boards=f"tcp:{host}:{port}", events=2000, rate="2kHz", restart="1:300ms:300ms") as frontend:
        frames = []
        for _ in range(2):
            stream, frame = first_frame(host, port)
            while frame:
                frames.append(frame)
                frame = stream.read()
        report, _ = frontend.end()
    (board,) = report["boards"]
    assert board["connections"] == 2 and board["restarts"] == 1 and board["outage"] > 0 and board["broken"] == 0, board
    assert len(frames) == board["frames"] == 2000 - board["outage"], board
    again = [f for f in frames if f.restarts == 1]
    assert [f.number for f in again] == list(range(len(again))) and len(again) > 0
    assert [f.serial for f in frames] == sorted(f.serial for f in frames)


def at_once(evb):
    """Triggers begin with the last connection. Another wake-up would take 2 s; the machine may be slow, but not thrice."""
    times = []
    for _ in range(3):
        host, port = f"{OWN_NET}.{next(_hosts)}", next(_ports)
        with Frontend(evb, boards=f"tcp:{host}:{port}", events=1) as frontend:
            stream, begin = Stream(host, port), time.monotonic()
            assert stream.read().serial == 0
            times.append(time.monotonic() - begin)
            frontend.end()
    assert min(times) < 1, times


def cut_tcp(evb):
    """After a connection that ended within a frame, the next one begins with a whole frame, of the same board."""
    host = f"{OWN_NET}.{next(_hosts)}"
    ports = [next(_ports), next(_ports)]
    with Frontend(evb, boards=",".join(f"tcp:{host}:{port}" for port in ports), events=400, rate="2kHz", size="30kB") as frontend:
        frames = [[], []]

        def read(board, n):
            stream = Stream(host, ports[board])
            while len(frames[board]) < n and (frame := stream.read()):
                frames[board].append(frame)
            return stream

        other = threading.Thread(target=read, args=(1, 400))
        other.start()
        first = read(0, 3)
        wait_until_full(first.socket, frontend.process)
        first.close()
        read(0, 400)
        other.join()
        report, _ = frontend.end(expect=1)
    one, two = report["boards"]
    assert {f.board for f in frames[0]} == {1} and {f.board for f in frames[1]} == {2}
    assert one["connections"] == 2 and one["broken"] == 1 and one["frames"] == 399, one
    assert [f.serial for f in frames[1]] == list(range(400)) and two["frames"] == 400, two
    serials = [f.serial for f in frames[0]]
    assert serials[:3] == [0, 1, 2] and serials[-1] == 399 and serials == sorted(set(serials)) and len(serials) < 400, serials


def full_boards(evb):
    """Triggers that waited for a full board go on as soon as it has sent its frames, even if all of them leave at once."""
    host, port, n = f"{OWN_NET}.{next(_hosts)}", next(_ports), 400000
    with Frontend(evb, boards=f"tcp:{host}:{port}", events=n, rate="10MHz", size=200) as frontend:
        received = 0
        with contextlib.closing(connect(host, port)) as connection:
            while data := connection.recv(1 << 24):
                received += len(data)
                # The board fills up meanwhile.
                time.sleep(0.05)
        report, _ = frontend.end()
    assert received == n * 204 and report["held_seconds"]["boards"] > 0, (received, report)


# The boards wait for their ROSs: without a time limit of a loaded machine.
WITH_ROS = """
[trigger]
rate = max
[ros]
count = 3
[sfi]
count = 1
timeout = 30s
verify = no
output = file
[dfm]
event-timeout = 60s
node-timeout = 30s
"""


def listening(running, port):
    table = pathlib.Path("/proc/net/udp").read_text()
    return all(f" {struct.unpack('=I', socket.inet_aton(running.address(f'ros{i}')))[0]:08X}:{port:04X} " in table for i in (1, 2, 3))


@contextlib.contextmanager
def experiment(evb, transport, keys=None, trigger_port=None, prepare=None, **options):
    """Three ROSs and their boards, with a trigger box if there is a port for it; yields the run and the stand-in. The run is
    prepared before that begins."""
    port = next(_ports)
    host = f"{OWN_NET}.{next(_hosts)}"
    with folder() as where:
        source = f"udp:{port}" if transport == "udp" else f"tcp:{host}:{port}"
        keys = {"ros.source": source, "sfi.directory": where, "trigger.events": options["events"], **(keys or {})}
        if trigger_port:
            del keys["trigger.events"]
        with Running(evb, scenario(where, WITH_ROS), keys) as running:
            running.wait_nodes(5)
            if transport == "udp":
                running.wait_for("ports of the ROSs", lambda: listening(running, port))
                boards = ",".join(f"udp:{running.address(f'ros{i}')}:{port}" for i in (1, 2, 3))
            else:
                boards = ",".join([source] * 3)
            if trigger_port:
                options["trigger_to"] = f"{running.address('dfm')}:{trigger_port}"
            if prepare:
                prepare(running)
            with Frontend(evb, boards=boards, **options) as frontend:
                yield running, frontend


def rods_of(evb, path):
    """Yields the payloads of each event."""
    for _, payloads in events_of(evb, path):
        yield payloads


def events_of(evb, path):
    """Yields the number and the payloads of each event."""
    done = subprocess.run([evb, "dump", path, "--tree", "--hex", "--json"], capture_output=True, text=True, check=True)
    for event in map(json.loads, done.stdout.splitlines()[:-1]):
        data = struct.pack(f"<{len(event['words'])}I", *event["words"])
        begin = event["fragments"][0]["offset_bytes"]
        payloads = []
        for f in event["fragments"]:
            if f["type"] == "rod":
                at = f["offset_bytes"] - begin
                rod = data[at:at + f["size_bytes"]]
                payloads.append(rod[36:36 + struct.unpack_from("<I", rod, len(rod) - 16)[0]])
        yield event["fragments"][0]["specific"][1], payloads


def compare(evb, report, sent, n):
    """The accounts of the run are those of the stand-in, and no event has frames of different triggers."""
    assert report["events_complete"] == report["triggers"] == n, report
    assert sum(board["frames"] for board in sent["boards"]) == report["fragments"]["received"] == 3 * n, sent
    assert report["payload_bytes"] == sum(board["payload_bytes"] for board in sent["boards"]), sent
    for node in report["nodes"]:
        # Counters that a ROS of this version has.
        if node["role"] == "ros" and "front_end_frames" in node:
            assert node["front_end_frames"] in [board["frames"] for board in sent["boards"]], node
    serials = []
    for payloads in rods_of(evb, report["files"][0]):
        frames = [Frame(p, offset=8, bits=24) for p in payloads]
        assert len({f.serial for f in frames}) == 1 and sorted(f.board for f in frames) == [1, 2, 3], [vars(f) for f in frames]
        assert all(f.number == f.serial for f in frames)
        serials.append(frames[0].serial)
    assert sorted(serials) == list(range(n)), serials


def with_ros(evb, transport):
    n = 2000
    with experiment(evb, transport, events=n, rate="2kHz", kind="poisson", size="lognormal:300,0.5", counter="8:24", skew="2ms") as (running, frontend):
        sent, _ = frontend.end()
        compare(evb, running.end(expect=(0,)), sent, n)


def slow_ros(evb):
    """Boards that are faster than the builder wait, and lose nothing."""
    n = 30000
    with experiment(evb, "tcp", {"ros.buffer-events": 256, "trigger.rate": "10kHz", "sfi.output": "null"}, events=n, rate="1MHz", size="1KiB") as (running, frontend):
        sent, _ = frontend.end()
        assert sent["held_seconds"]["boards"] > 0, sent
        report = running.end(expect=(0,))
        assert report["events_complete"] == n and report["fragments"]["received"] == 3 * n, report


def slow_board(evb, mode):
    """The trigger waits for boards that are slower, by more than an event waits for a frame: all events are complete."""
    n = 200
    keys = {"scenario.mode": mode, "trigger.rate": "1kHz" if mode == "push" else "max", "ros.wait": "300ms"}
    with experiment(evb, "tcp", keys, events=n, rate="100Hz", counter="8:24") as (running, frontend):
        sent, _ = frontend.end()
        compare(evb, running.end(expect=(0,)), sent, n)


def missed_frames(evb):
    """Frames that a board missed show as different counts of the ROSs."""
    n = 1000
    with experiment(evb, "udp", {"trigger.events": n - 100}, events=n, rate="2kHz", missed="1%") as (running, frontend):
        sent, _ = frontend.end()
        assert len({board["missed"] for board in sent["boards"]}) > 1, sent
        out, err = running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1, (out, err)
        assert "counted different numbers of them" in err, err


def need_keys(evb, *keys):
    known = subprocess.run([evb, "check", "/dev/null", *(word for key in keys for word in ("--set", key))], capture_output=True, text=True, timeout=60)
    unknown = [key for key in keys if f"{key.partition('=')[0]}: unknown key" in known.stderr]
    if unknown:
        raise Skip(f"this version does not know {', '.join(unknown)}")


# 16 bits at byte 8.
NUMBERED = "ros.event-number=8:16"


def check_frames(evb, report, sent):
    """Each ROS has read what its board sent, no event mixes triggers, and each frame that was used is in a file."""
    def account(frames, missing):
        return sorted(zip(frames, missing))

    ros = [node for node in report["nodes"] if node["role"] == "ros"]
    # Over TCP, ROSs take boards in any order.
    assert account((n["front_end_frames"] for n in ros), (n["fragments_absent"] for n in ros)) == \
        account((b["frames"] for b in sent["boards"]), (b["missed"] + b["outage"] for b in sent["boards"])), (ros, sent)
    assert all(n["front_end_used"] == n["front_end_frames"] for n in ros), ros
    assert report["balanced"] and report["events_lost"] == 0, report
    found = 0
    for payloads in rods_of(evb, report["files"][0]):
        frames = [Frame(p, offset=8, bits=16) for p in payloads if p]
        assert len({f.serial for f in frames}) == 1 and len({f.board for f in frames}) == len(frames), [vars(f) for f in frames]
        found += len(frames)
    assert found == sum(b["frames"] for b in sent["boards"]), (found, sent)


def numbered(evb, transport):
    """Missed and late frames cost their fragments, and no other."""
    need_keys(evb, NUMBERED)
    n = 3000
    with experiment(evb, transport, {"ros.event-number": "8:16", "sfi.timeout": "16s", "sfi.credits": 100}, events=n, rate="2kHz",
                    counter="8:16", missed="1%", late="2%:50ms") as (running, frontend):
        sent, _ = frontend.end()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        # Events without a fragment of a required ROS are partial.
        assert running.process.returncode == 1 and report["events_complete"] + report["events_partial"] == n, (report, err)
        assert all(board["missed"] > 0 and board["late"] > 0 for board in sent["boards"]), sent
        check_frames(evb, report, sent)


TRIGGERED = "trigger.source=udp:1"


class Held:
    """An SFI that builds nothing from the first trigger on, until the DFM is busy."""

    def __init__(self, busy_from):
        self.busy_from = busy_from

    def hold(self, running):
        host, port = self.busy_from.split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as box:
            box.bind((host, int(port)))
            box.settimeout(LIMIT_S)
            while box.recv(64)[4]:
                pass
        self.busy_ns, self.pid = running.counter("dfm", "busy_ns"), running.nodes()["sfi1"]
        os.kill(self.pid, signal.SIGSTOP)

    def release(self, running):
        running.wait_for("busy", lambda: running.counter("dfm", "busy_ns") > self.busy_ns)
        os.kill(self.pid, signal.SIGCONT)


@contextlib.contextmanager
def triggered(evb, keys=None, hold=False, transport="udp", **options):
    """Runs with the triggers of the stand-in, which obeys busy. Yields the exit status and both reports."""
    need_keys(evb, TRIGGERED, "trigger.busy-to=127.0.0.1:1")
    port, busy_from = next(_ports), f"{OWN_NET}.{next(_hosts)}:{next(_ports)}"
    held = Held(busy_from)
    with experiment(evb, transport, {"trigger.source": f"udp:{port}", "trigger.busy-to": busy_from, **(keys or {})}, trigger_port=port,
                    prepare=held.hold if hold else None, busy_from=busy_from, **options) as (running, frontend):
        if hold:
            held.release(running)
        sent, err = frontend.end()
        ended = lambda: sum(running.counter("dfm", f"events_{end}") for end in ("complete", "partial", "lost"))  # noqa: E731
        running.wait_for("end of all events", lambda: ended() == sent["triggers"])
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        assert report["triggers"] == report["triggers_offered"] == sent["triggers"] == options["events"], (report, err)
        assert report["trigger_datagrams"] == sent["trigger_datagrams"] and report["trigger_datagrams_lost"] == 0, report
        assert report["trigger_resets"] == sent["resets"] + 1 and report["triggers_refused"] == 0, report
        assert sent["busy"]["datagrams"] > 0 and sent["busy"]["malformed"] == 0, sent
        yield running.process.returncode, report, sent


def trigger_box(evb):
    """The DFM takes exactly the triggers that the stand-in sent, however fast it is, because that obeys busy."""
    n = 20000
    # The queue takes what comes in the 300 ms after which the stand-in finds a DFM silent that gets no processor. Frames of boards
    # on TCP wait for a ROS that gets none.
    with triggered(evb, {"sfi.output": "null", "sfi.credits": 200, "trigger.queue": 16384}, hold=True, transport="tcp", events=n,
                   rate="50kHz", kind="poisson") as (status, report, sent):
        assert status == 0 and report["events_complete"] == n, (report, sent)
        assert sent["busy"]["changes"] >= 2 and sent["held_seconds"]["busy"] > 0, sent


def whole_beam(evb, **reset):
    """Missed and late frames, and a board that restarts: the accounts agree, and no event mixes triggers."""
    need_keys(evb, NUMBERED)
    with triggered(evb, {"ros.event-number": "8:16", "sfi.timeout": "8s"}, events=4000, rate="1kHz", counter="8:16", missed="1%",
                   late="2%:50ms", restart="2:1s:500ms", skew="2ms", **reset) as (status, report, sent):
        assert status == 1 and report["balanced"], report
        found = 0
        for payloads in rods_of(evb, report["files"][0]):
            frames = [Frame(p, offset=8, bits=16) for p in payloads if p]
            assert len({f.serial for f in frames}) == 1, [vars(f) for f in frames]
            found += len(frames)
    ros = {node["front_end_frames"]: node for node in report["nodes"] if node["role"] == "ros"}
    for board in sent["boards"]:
        node = ros[board["frames"]]
        refused = sum(node[f"front_end_{name}"] for name in ("late", "duplicate", "impossible", "left_over"))
        assert refused + node["front_end_used"] == board["frames"] and node["front_end_dropped"] == 0, (node, board)
        # The board that restarted at trigger 1000 has no valid frame until the counters are reset.
        most = (2500 if reset else 4000) - 1000 - board["outage"] + 50 if board["restarts"] else 0
        assert max(most - 150, 0) <= refused <= most and node["front_end_restarts"] == board["restarts"], (node, board)
    assert found == sum(node["front_end_used"] for node in ros.values()), (found, sent)


@contextlib.contextmanager
def frame_triggers(evb, transport, keys=None, **options):
    """Runs with events of the numbers in frames. Ends when each frame is in an ended event or refused; yields the exit status and
    both reports."""
    need_keys(evb, "trigger.source=frames")
    with experiment(evb, transport, {"ros.event-number": "8:16", "trigger.source": "frames", "trigger.events": 0, **(keys or {})},
                    counter="8:16", **options) as (running, frontend):
        sent, _ = frontend.end()
        frames = sum(board["frames"] for board in sent["boards"])
        classes = ("used", "late", "duplicate", "impossible", "dropped")
        if "trigger.leader" in (keys or {}):
            ended = lambda: sum(running.counter("dfm", f"events_{end}") for end in ("complete", "partial", "lost"))  # noqa: E731
            running.wait_for("end of all events", lambda: ended() == max(b["frames"] for b in sent["boards"]))
        else:
            # Numbers before the first one of a run, or after a reset, are not taken; their frames are left over at the end.
            running.wait_for("end of all frames", lambda: frames <= 3 * running.counter("dfm", "triggers_not_taken") + sum(
                running.counter(f"ros{i}", f"front_end_{name}") for i in (1, 2, 3) for name in classes))
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        assert report["balanced"] and report["triggers_refused"] == report["triggers_implausible"] == 0, (report, err)
        assert report["numbers_announced"] == report["triggers_offered"] + report["numbers_confirmed"] + report["numbers_late"], report
        yield running.process.returncode, report, sent


def frames(evb, transport, **keys):
    """Each number that a board sends is one event, with all frames that have it."""
    n = 3000
    with frame_triggers(evb, transport, {"sfi.timeout": "10s", **keys}, events=n, rate="2kHz", missed="1%", late="2%:50ms") as (
            status, report, sent):
        assert status == 1 and report["triggers"] == n == report["triggers_offered"], report
        missed = sum(board["missed"] for board in sent["boards"])
        assert n - missed <= report["events_complete"] < n == report["events_complete"] + report["events_partial"], report
        check_frames(evb, report, sent)


def frames_fast(evb):
    """Boards on TCP wait for the disk, or for credits, and lose nothing."""
    n = 30000
    with frame_triggers(evb, "tcp", {"sfi.output": "null", "sfi.credits": 20, "ros.buffer-events": 300}, events=n, rate="100kHz") as (
            status, report, sent):
        assert status == 0 and report["events_complete"] == n == report["triggers"], (report, sent)


def frames_reset(evb):
    """All boards count from 0 again: the events of before end, and the run goes on."""
    # The reset is noticed before the boards reach the numbers of before, even if a process gets no processor for 3 s.
    with frame_triggers(evb, "tcp", {"sfi.timeout": "8s"}, events=8000, rate="1kHz", size="64", reset="4s:1s") as (
            status, report, sent):
        assert status == 1 and report["trigger_resets"] == sent["resets"] == 1, report
        ros = [node for node in report["nodes"] if node["role"] == "ros"]
        assert all(node["front_end_restarts"] == 1 and node["front_end_used"] > 4000 for node in ros), ros
        assert report["events_complete"] > 4000 and report["events_lost"] == 0, report
        for payloads in rods_of(evb, report["files"][0]):
            found = [Frame(p, offset=8, bits=16) for p in payloads if p]
            assert len({f.serial for f in found}) == 1, [vars(f) for f in found]


def frames_led(evb):
    """Only frames of the leader make events; those of other boards without it are left over."""
    n = 2000
    with frame_triggers(evb, "udp", {"sfi.timeout": "2s", "trigger.leader": "ros2"}, events=n, rate="2kHz", restart="1:200ms:200ms") as (
            status, report, sent):
        ros = {node["name"]: node for node in report["nodes"] if node["role"] == "ros"}
        assert report["triggers"] == ros["ros2"]["front_end_frames"] == ros["ros2"]["front_end_used"] == n, report
        assert report["numbers_confirmed"] == 0 and report["triggers_not_taken"] == 0, report


def frames_silent_leader(evb):
    """A leader that sends nothing is reported once frames of other boards come. Over UDP, no connection is missing."""
    with experiment(evb, "udp", {"ros.event-number": "8:16", "trigger.source": "frames", "trigger.events": 0, "trigger.leader": "ros2",
                                 "dfm.node-timeout": "1s"}, events=0, rate="500Hz", counter="8:16", dead="2") as (running, frontend):
        while "ros2 gets nothing from its front-end; it makes the triggers" not in running.process.stderr.readline():
            assert running.process.poll() is None
        frontend.signal()
        frontend.end()
        running.signal()
        report = running.end(expect=(0, 1))
        assert report["triggers"] == 0, report


def frames_of(payload):
    """The counters of the frames in a fragment of a slice."""
    found = []
    while payload:
        length, = struct.unpack_from("<I", payload)
        found.append(Frame(payload[4:4 + length], bits=64))
        payload = payload[4 + length:]
    return found


def slices(evb, transport):
    """Slices of 20 ms, 20 counts of 1 ms, of which the last 4 are in the next slice too. Each frame is in its slice."""
    n = 3000
    with experiment(evb, transport, {"trigger.source": "clock", "trigger.slice": "20ms", "trigger.slice-overlap": "4ms",
                                     "trigger.window": "4s", "ros.event-time": "0:64", "ros.tick": "1ms", "trigger.events": 0},
                    events=n, rate="1kHz", counter="0:64", missed="1%", late="2%:30ms") as (running, frontend):
        sent, _ = frontend.end()
        frames = sum(board["frames"] for board in sent["boards"])
        running.wait_for("end of all slices", lambda: frames == sum(
            running.counter(f"ros{i}", f"slice_frames_{kind}") for i in (1, 2, 3) for kind in ("used", "late", "dropped")))
        last = max(running.counter(f"ros{i}", "front_end_frames") for i in (1, 2, 3))
        running.wait_for("end of the last slice", lambda: running.counter("dfm", "events_complete") >= last)
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        assert running.process.returncode == 0 and report["balanced"], (report, err)
        assert report["events_partial"] == report["events_lost"] == 0, report
        ros = [node for node in report["nodes"] if node["role"] == "ros"]
        assert all(node["slice_frames_used"] + node["slice_frames_late"] == node["slice_frames"] for node in ros), ros
        own, copied = [], {}
        for number, payloads in events_of(evb, report["files"][0]):
            assert len(payloads) == 3, payloads
            found = [(frame.number, frame.board) for payload in payloads for frame in frames_of(payload)]
            own += [frame for frame in found if frame[0] // 20 == number]
            copied[number] = {frame for frame in found if frame[0] // 20 != number}
        assert len(own) == len(set(own)) == sum(node["slice_frames_used"] for node in ros), (len(own), ros)
        for number, overlap in copied.items():
            assert overlap == {frame for frame in own if number * 20 - 4 <= frame[0] < number * 20}, (number, overlap)
        assert own and {frame[0] // 20 for frame in own} <= set(copied), copied.keys()


# Boards that send nothing for the window, and then the rest, would look as if their time began again.
SLICES = {"trigger.source": "clock", "trigger.slice": "20ms", "trigger.window": "4s", "trigger.events": 0,
          "ros.event-time": "0:64", "ros.tick": "1ms", "dfm.node-timeout": "5s"}
# The third board may be missing, and has a time of its own.
NODES = WITH_ROS.replace("count = 3", "").replace("count = 1", "") + "[node dfm]\nrole = dfm\n[node sfi1]\nrole = sfi\n"


@contextlib.contextmanager
def slices_run(evb, transport, **third):
    """Three ROSs, each with a board at a port of its own; yields the run, and where the boards are."""
    host, ports = f"{OWN_NET}.{next(_hosts)}", [next(_ports) for _ in range(3)]
    text = NODES
    for i, port in enumerate(ports):
        keys = {"source": f"udp:{port}" if transport == "udp" else f"tcp:{host}:{port}", **(third if i == 2 else {})}
        text += f"[node ros{i + 1}]\nrole = ros\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
    with folder() as where, Running(evb, scenario(where, text), {**SLICES, "sfi.directory": where}) as running:
        running.wait_nodes(5)
        at = [(running.address(f"ros{i + 1}") if transport == "udp" else host, port) for i, port in enumerate(ports)]
        for i, (address, port) in enumerate(at, 1):
            if transport == "udp":
                bound = f" {struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{port:04X} "
                running.wait_for(f"port of ros{i}", lambda b=bound: b in pathlib.Path("/proc/net/udp").read_text())
        yield running, at


def end_slices(running, expect):
    """Ends the run; every slice has ended. Returns its report and what it logged."""
    running.signal()
    out, err = running.process.communicate(timeout=LIMIT_S)
    report = json.loads(out)
    assert running.process.returncode == expect and report["balanced"] and report["events_lost"] == 0, (report, err)
    return report, err


def slices_dead(evb, transport, required="no"):
    """A dead board costs its fragment: the slices close with those of the others, and hold every frame of theirs."""
    n, wait = 5000, {"wait": "300ms"} if required == "no" else {}
    with slices_run(evb, transport, required=required, **wait) as (running, at):
        boards = ",".join(f"{transport}:{host}:{port}" for host, port in at)
        with Frontend(evb, boards=boards, events=n, rate="1kHz", counter="0:64", dead="3") as frontend:
            sent, _ = frontend.end()
        used = lambda: sum(running.counter(f"ros{i}", f"slice_frames_{kind}") for i in (1, 2) for kind in ("used", "late"))  # noqa: E731
        running.wait_for("end of all frames", lambda: used() == 2 * n)
        end, last = ("complete" if required == "no" else "partial"), n // 20
        running.wait_for("end of the last slice", lambda: running.counter("dfm", f"events_{end}") >= last)
        report, err = end_slices(running, 0 if required == "no" else 1)
        assert "ros3 gets nothing from its front-end; events go on without its fragments" in err, err
        assert report[f"events_{end}"] == report["triggers"] >= last, report
        assert report["fragments"]["absent" if required == "no" else "lost"] == report["triggers"], report["fragments"]
        ros = {node["name"]: node for node in report["nodes"] if node["role"] == "ros"}
        assert ros["ros3"]["slice_frames"] == ros["ros3"]["front_end_frames"] == 0, ros["ros3"]
        found = [(frame.board, frame.number) for number, payloads in events_of(evb, report["files"][0])
                 for payload in payloads for frame in frames_of(payload) if frame.number // 20 == number]
        assert len(found) == len(set(found)) == sum(ros[name]["slice_frames_used"] for name in ("ros1", "ros2")), (len(found), ros)
        assert sum(board["frames"] for board in sent["boards"]) == 2 * n, sent


class Ticks:
    """Three boards that send a frame for each tick of their common clock; the third one may be silent."""

    def __init__(self, at):
        self.at, self.quiet, self.over, self.sent = at, threading.Event(), threading.Event(), []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(LIMIT_S)

    def run(self):
        begun = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            for tick in itertools.count(1000):
                while time.monotonic() - begun < (tick - 1000) / 1000:
                    time.sleep(0.001)
                if self.over.is_set():
                    return
                for board, address in enumerate(self.at, 1):
                    if board < 3 or not self.quiet.is_set():
                        s.sendto(struct.pack("<IQI", 12, tick, board), address)
                        self.sent.append((tick, board))


def slices_silent(evb):
    """A board that falls silent costs its fragments after a while; when it sends again, they are in the slices again."""
    with slices_run(evb, "udp", required="no", wait="300ms") as (running, at), Ticks(at) as boards:
        ended = lambda: running.counter("dfm", "events_complete")  # noqa: E731
        absent = lambda: running.counter("dfm", "fragments_optional")  # noqa: E731
        running.wait_for("slices", lambda: ended() > 30)
        boards.quiet.set()
        running.wait_for("slices without the board", lambda: absent() > 30)
        used = running.counter("ros3", "slice_frames_used")
        boards.quiet.clear()
        running.wait_for("frames of the board", lambda: running.counter("ros3", "slice_frames_used") > used + 1000)
        boards.__exit__()
        running.wait_for("end of all frames", lambda: len(boards.sent) == sum(
            running.counter(f"ros{i}", f"slice_frames_{kind}") for i in (1, 2, 3) for kind in ("used", "late", "dropped")))
        report, err = end_slices(running, 0)
        assert "ros3 gets nothing from its front-end" in err and "the front-end of ros3 is back" in err, err
        assert report["events_complete"] == report["triggers"] and 30 < report["fragments"]["absent"] < report["triggers"], report
        sent, found = set(boards.sent), []
        for number, payloads in events_of(evb, report["files"][0]):
            for payload in payloads:
                found += struct.iter_unpack("<IQI", payload)
                assert all(tick // 20 == number for _, tick, _ in struct.iter_unpack("<IQI", payload)), number
        ticks = [(tick, board) for _, tick, board in found]
        ros = [node for node in report["nodes"] if node["role"] == "ros"]
        used = sum(node["slice_frames_used"] for node in ros)
        # Slices of the board that closed when it sent again, but too late for their events, and those that the stop overtook.
        refused = 20 * sum(node["front_end_frames"] - node["front_end_used"] for node in ros)
        assert used - refused <= len(ticks) <= used and len(ticks) == len(set(ticks)) and set(ticks) <= sent, (len(ticks), len(sent), ros)


def slices_late(evb):
    """A frame whose slice is closed is lost: it is counted and logged, and the run ends with status 1."""
    with slices_run(evb, "udp") as (running, at), Ticks(at) as boards:
        running.wait_for("slices", lambda: running.counter("dfm", "events_complete") > 30)
        boards.__exit__()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(struct.pack("<IQI", 12, 1000, 1), at[0])
        running.wait_for("end of all frames", lambda: len(boards.sent) == sum(running.counter(f"ros{i}", "slice_frames_used") for i in (1, 2, 3)))
        running.wait_for("late frame", lambda: running.counter("ros1", "slice_frames_late") == 1)
        report, err = end_slices(running, 1)
        assert "came after its slice of time 50 was closed" in err and report["events_complete"] == report["triggers"], (report, err)
        assert [reason.rpartition(" ")[2] for reason in report["reasons"] if reason.startswith("ros1: frames with times were lost")] == ["1"], report["reasons"]


main({"slices-late": slices_late, "slices-dead-udp": lambda evb: slices_dead(evb, "udp"), "slices-dead-tcp": lambda evb: slices_dead(evb, "tcp"),
      "slices-dead-required": lambda evb: slices_dead(evb, "udp", "yes"), "slices-silent": slices_silent,
      "slices-udp": lambda evb: slices(evb, "udp"), "slices-tcp": lambda evb: slices(evb, "tcp"),
      "frames-udp": lambda evb: frames(evb, "udp"), "frames-tcp": lambda evb: frames(evb, "tcp"),
      "frames-pull": lambda evb: frames(evb, "tcp", **{"scenario.mode": "pull"}), "frames-fast": frames_fast, "frames-reset": frames_reset,
      "frames-led": frames_led, "frames-silent-leader": frames_silent_leader,
      "usage": usage, "ports": ports, "faults": faults, "paused": paused, "busy": busy, "reset": reset, "reset-twice": reset_twice, "ctrl-c": ctrl_c, "restart-tcp": restart_tcp, "at-once": at_once, "full-boards": full_boards,
      "cut-tcp": cut_tcp,      "udp": lambda evb: with_ros(evb, "udp"), "tcp": lambda evb: with_ros(evb, "tcp"), "slow-ros": slow_ros, "slow-board-push": lambda evb: slow_board(evb, "push"),
      "slow-board-pull": lambda evb: slow_board(evb, "pull"), "missed-frames": missed_frames,
      "numbered-udp": lambda evb: numbered(evb, "udp"), "numbered-tcp": lambda evb: numbered(evb, "tcp"),
      "trigger-box": trigger_box, "whole-beam": whole_beam,
      "whole-beam-reset": lambda evb: whole_beam(evb, reset="2500ms:9s")})
