#!/usr/bin/env python3
"""The stand-in for boards and trigger box, alone. tests/nodes has runs with it.

    test_frontend.py EVB [CASE...]
"""
import contextlib
import fcntl
import itertools
import json
import pathlib
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from harness import LIMIT_S, OWN_NET, Background, first_signal, main

MASK = (1 << 64) - 1
SO_RCVBUFFORCE = 33
_ports = itertools.count(27000)
_hosts = itertools.count(1)


def settings_of(options):
    """Options of the command line: a list repeats its option."""
    return [str(word) for name, value in options.items() for each in (value if isinstance(value, list) else [value])
            for word in (f"--{name.replace('_', '-')}", each)]


class Frontend(Background):
    """The stand-in in the background."""

    def __init__(self, evb, *words, **options):
        self.process = subprocess.Popen([evb, "frontend", "--json", *words, *settings_of(options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

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

    def __init__(self, payload):
        n = len(payload) - 16
        self.bytes = payload
        self.number = int.from_bytes(payload[:4], "little")
        self.serial, self.board, self.restarts = struct.unpack_from("<QII", payload, n)
        expected = pattern(1, self.board - 1, self.serial, n)
        assert payload[4:n] == expected[4:], (self.serial, self.board)


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

    def frames(self, n):
        found = []
        for datagram in self.wait(n):
            (length,) = struct.unpack_from("<I", datagram)
            assert length == len(datagram) - 4, datagram
            found.append(Frame(datagram[4:]))
        return found


def usage(evb):
    at = f"{OWN_NET}.1:9000"

    def wrong(*words, text):
        done = subprocess.run([evb, "frontend", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and done.stdout == "" and text in done.stderr, (words, done)

    wrong(text="missing option; --boards LIST is required")
    wrong("--boards", at, text=f'--boards: invalid value "{at}"; expected udp:ADDRESS:PORT of a ROS, or tcp:')
    for place in ("udp:front.end:9000", f"udp:{OWN_NET}.1", f"udp:{OWN_NET}.1:0", f"udp:{at},", f"udp:{at},,udp:{at}"):
        wrong("--boards", place, text="--boards: invalid value")
    wrong("--boards", ",".join(["udp:" + at] * 257), text="more than 256 boards")
    boards = ("--boards", f"udp:{at},udp:{at}")
    for option, values in {
            "rate": ("max", "0Hz", "fast", "poisson", "poisson:", "burst:1kHz"), "kind": ("burst", "often"), "count": ("-1", "many"), "duration": ("10",),
            "size": ("big", "5MiB", "uniform:9-3", "lognormal:100", "lognormal:100,9", "19", "65504"),
            "event-number": ("4", "4:2", "4:65", "x:32", "4:32:le", "70000:32", "-1:16"), "first": ("x",), "run": ("4294967296",), "seed": ("x",), "trigger-to": ("9000", "host:1"),
            "busy-from": ("0", "65536", "x", "host:1")}.items():
        for value in values:
            wrong(*boards, f"--{option}", value, text=f'--{option}: invalid value "{value}"; expected ')
    for fault, values in {
            "missed": ("2", "x"), "late": ("1%", "1%:soon", "2:1ms"), "restart": ("1", "3:1s", "0:1s", "1:soon", "1:1s:x"),
            "dead": ("0", "3", "x"), "skew": ("3",), "reset": ("5", "1s:", "1s:x", "x:1s"), "reset-after-busy": ("x",)}.items():
        for value in values:
            wrong(*boards, "--fault", f"{fault}={value}", text=f'--fault {fault}: invalid value "{value}"; expected ')
    wrong(*boards, "--size", "32", "--event-number", "10:64", text='--size: invalid value "32"; expected 34 bytes or more')
    wrong(*boards, *["--fault", "restart=1:1s"] * 65, text="more than 64 restarts")
    wrong(*boards, *["--fault", "reset=1s"] * 65, text="more than 64 resets")


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
            done = subprocess.run([evb, "frontend", "--boards", *words, "--count", "1"], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 1 and text in done.stderr and done.stdout == "", done


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
    """A board that closes its port may reset a connection while it is made."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=LIMIT_S)
        except (ConnectionRefusedError, ConnectionResetError):
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

    def read(self):
        head = self.file.read(4)
        return Frame(self.file.read(struct.unpack("<I", head)[0])) if head else None


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


main({"usage": usage, "ports": ports, "ctrl-c": ctrl_c, "restart-tcp": restart_tcp, "full-boards": full_boards, "cut-tcp": cut_tcp})
