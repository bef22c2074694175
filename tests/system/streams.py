"""Common code of the tests of evb stream: both ends as processes, and what their reports must say."""
import contextlib
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import threading

from harness import LIMIT_S, OWN_NET, Skip, need_root, wait_until

ports = itertools.count(20000 + os.getpid() * 37 % 10000)
HOST = f"{OWN_NET}.1"
# Slow enough for any machine: the socket's buffer holds more than three seconds.
CALM = "20Mbit"
# Of streams that last until they are stopped: more than ten seconds.
SLOW = "5Mbit"
# Of streams by hand.
COOKIE, SIZE = 0x0123456789ABCDEF, 1000
FRAME, THREADS, PER_SECOND = 5032, (1, 3, 5, 7, 0, 2, 4, 6), 1600


def free_address():
    """Returns an address whose TCP and UDP ports are free."""
    while True:
        port = next(ports)
        with contextlib.suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((HOST, port))
            udp.bind((HOST, port))
            return f"{HOST}:{port}"


def of(address):
    host, port = address.split(":")
    return host, int(port)


def option_words(name, value):
    """The words of an option, or of a part of --raw or --cpus."""
    name = name.replace("_", "-")
    if name.endswith("-cpus"):
        return ["--cpus", f"{name.removesuffix('-cpus')}={value}"]
    return ["--raw", f"{name}={value}"] if name in ("transport", "batch", "packets", "warm-up", "packet-limit") else [f"--{name}", str(value)]


class End(contextlib.AbstractContextManager):
    """One end of a stream in the background. `evb` may be a list of words that run it."""

    def __init__(self, evb, verb, address, *flags, stdin=subprocess.DEVNULL, report=None, **options):
        # By default 10 s, in which its peer may not have started.
        if verb == "send" or "--connect" in flags:
            options.setdefault("wait", f"{LIMIT_S}s")
        words = [word for name, value in options.items() for each in (value if isinstance(value, list) else [value])
                 for word in option_words(name, each)]
        self.report = report
        json_option = [] if report == "text" else [f"--json={report}" if report else "--json"]
        command = evb if isinstance(evb, list) else [evb]
        self.process = subprocess.Popen([*command, "stream", verb, address, *json_option, *flags, *words], stdin=stdin,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()

    def signal(self, number=signal.SIGINT):
        self.process.send_signal(number)

    def finish(self, expect=0):
        """Waits for the end; returns the report (None: there is none) and the text on standard error."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        err = err.decode()
        assert self.process.returncode == expect, f"exit {self.process.returncode}, not {expect}: {err}\n{out[:2000]}"
        self.out = out
        return self.read_report(out), err

    def read_report(self, out):
        text = pathlib.Path(self.report).read_text() if self.report else out.decode()
        report = json.loads(text) if text else None
        if report:
            balance(report)
        return report


def balance(report):
    """Checks that each packet is accounted for once."""
    if report["packets_sent"] is None or report["packets_received"] is None:
        return
    assert report["packets_sent"] == report["packets_received"] + report["packets_lost"], report
    places = [n for n in report["lost_at"].values() if n is not None]
    assert all(n >= 0 for n in places) and report["packets_lost"] == sum(places) + report["packets_late"], report


def both(evb, source, sink, send=None, receive=None, expect=0, **options):
    """Moves one stream; returns the reports of sender and receiver."""
    address = free_address()
    with End(evb, "recv", address, output=sink, **(receive or {})) as receiver, \
            End(evb, "send", address, input=source, **(send or {})) as sender:
        ended = [(end.process.communicate(timeout=LIMIT_S), end.process.returncode) for end in (sender, receiver)]
    # Each end blames the other.
    assert [status for _, status in ended] == [expect, expect], (expect, *(f"exit {status}: {err.decode()}\n{out[:2000]}" for (out, err), status in ended))
    sent, received = (end.read_report(out) for end, ((out, _), _) in zip((sender, receiver), ended, strict=True))
    for name in ("packets_sent", "packets_received", "packets_lost", "lost_at", "bytes", "packets_late"):
        assert sent[name] == received[name], (name, sent, received)
    assert (sent["role"], received["role"]) == ("send", "recv")
    return sent, received


def has_bytes(path, n=1):
    return lambda: path.exists() and path.stat().st_size >= n


def is_listening(address):
    def condition():
        with contextlib.suppress(OSError), socket.create_connection(of(address), timeout=1):
            return True
    return condition


def works_on(process, thread, turns=20):
    """Waits until a thread has slept and woken some more times."""
    def count():
        for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            status = (task / "status").read_text()
            if f"Name:\t{thread}\n" in status:
                return int(status.split("\nvoluntary_ctxt_switches:\t")[1].split()[0])
        raise AssertionError(f"no thread {thread}")
    before = count()
    wait_until(f"work of {thread}", lambda: count() >= before + turns)


def failed(evb, verb, *words, expect=2):
    done = subprocess.run([evb, "stream", verb, *words], capture_output=True, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == expect, f"{words}: exit {done.returncode}, not {expect}: {done.stderr}"
    assert done.stdout == "" and done.stderr.count("\n") == 1, (words, done.stdout, done.stderr)
    return done.stderr


def socket_is_busy(address):
    """Whether a receiver refuses a second sender."""
    with contextlib.suppress(OSError), socket.create_connection(of(address), timeout=LIMIT_S) as tcp:
        tcp.sendall(b'{"type": "open"}\n')
        return b"busy" in tcp.recv(1000)
    return False


def small_disk(where, size):
    """Returns the words that run a program with a file system of this size at `where`, which no one else sees."""
    need_root()
    mount = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size={size} tmpfs {where} && exec \"$@\"", "sh"]
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        raise Skip("no file system can be mounted here")
    return mount


def recording(sets, first=1550, per_second=PER_SECOND, stated=None, frame=FRAME):
    """Returns VDIF frames of all threads, over the end of a second. The header says how many frames a second has, or `stated`."""
    # Extended data version 3 has frames of 5032 bytes only.
    version = 3 if frame == FRAME else 1
    draw = random.Random(4)
    frames = []
    for number in range(first, first + sets):
        for thread in THREADS:
            # Four samples of two bits in a byte; the rate is that of the bandwidth, in kHz.
            rate = (stated or per_second) * (frame - 32) // 500
            words = (14363767 + number // per_second, 28 << 24 | number % per_second, 1 << 29 | frame // 8,
                     1 << 26 | thread << 16 | 65532, version << 24 | rate, 0xacabfeed, 0x33400000 + thread, 0xf2031583)
            frames.append(struct.pack("<8I", *words) + draw.randbytes(frame - 32))
    return frames


def small_frame(number, thread, per_second=100, seconds=7, valid=True, size=1032):
    """Returns a VDIF frame whose header does not say how many frames a second has."""
    words = ((not valid) << 31 | seconds + number // per_second, 28 << 24 | number % per_second, 1 << 29 | size // 8, 1 << 26 | thread << 16 | 77, 0, 0, 0, 0)
    return struct.pack("<8I", *words) + random.Random(f"{number} {thread}").randbytes(size - 32)


def invalid(frame):
    """Returns the frame that takes the place of a lost one."""
    (word,) = struct.unpack_from("<I", frame)
    return struct.pack("<I", word | 1 << 31) + frame[4:32] + bytes(len(frame) - 32)


def same_frames(frames, out):
    """Checks that each frame is there, or an invalid one in its place; returns how many were lost."""
    assert len(out) == FRAME * len(frames), len(out)
    lost = 0
    for i, frame in enumerate(frames):
        found = out[i * FRAME:(i + 1) * FRAME]
        if found != frame:
            assert found == invalid(frame), f"frame {i}: {found[:32].hex()}, not {invalid(frame)[:32].hex()}"
            lost += 1
    return lost


class Peer(contextlib.AbstractContextManager):
    """A peer made by hand: the control connection, and a UDP socket."""

    def __init__(self, tcp):
        self.tcp = tcp
        self.tcp.settimeout(LIMIT_S)
        self.lines = tcp.makefile("rb")
        self.udp = socket.socket(type=socket.SOCK_DGRAM)

    def __exit__(self, *_):
        self.udp.close()
        self.leave()

    def leave(self):
        """Closes the control connection."""
        self.lines.close()
        self.tcp.close()

    def say(self, kind, **members):
        self.tcp.sendall(json.dumps({"type": kind, **members}).encode() + b"\n")

    def hear(self, kind):
        """Returns the next message of this type; None: the peer closed the connection."""
        for line in self.lines:
            message = json.loads(line)
            if message["type"] == kind:
                return message
        return None


class Sender(Peer):
    """Sends to a receiver of ours, once that is ready, or has asked something else."""

    def __init__(self, address, answer="ready", **changed):
        super().__init__(socket.create_connection(of(address), timeout=LIMIT_S))
        self.udp.bind((self.tcp.getsockname()[0], 0))
        self.offer = {"protocol": 1, "format": "plain", "cookie": f"{COOKIE:016x}", "key": f"{0:016x}", "payload_bytes": SIZE,
                      "udp_port": self.udp.getsockname()[1], "pattern": False, "spaced": False, **changed}
        self.say("open", **self.offer)
        self.ready = self.hear(answer)
        if answer == "ready":
            self.udp.connect((of(address)[0], self.ready["udp_port"]))

    def packet(self, sequence, data=None, size=SIZE):
        self.udp.send(struct.pack("<QQ", sequence, COOKIE) + (bytes([sequence % 256]) * size if data is None else data))

    def end(self, packets, size=None, **report):
        self.say("end", packets=packets, bytes=SIZE * packets if size is None else size, report={"packets": packets, **report})


def part(n):
    return bytes([n % 256]) * SIZE


def digest(data):
    """SipHash-2-4 with the cookie and the key of Sender, by the paper of Aumasson and Bernstein."""
    mask = 2 ** 64 - 1

    def rounds(n, a, b, c, d):
        def left(x, bits):
            return (x << bits | x >> 64 - bits) & mask
        for _ in range(n):
            a, c = a + b & mask, c + d & mask
            b, d = left(b, 13) ^ a, left(d, 16) ^ c
            a = left(a, 32)
            c, a = c + b & mask, a + d & mask
            b, d = left(b, 17) ^ c, left(d, 21) ^ a
            c = left(c, 32)
        return a, b, c, d
    whole = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    a, b, c, d = COOKIE ^ 0x736F6D6570736575, 0x646F72616E646F6D, COOKIE ^ 0x6C7967656E657261, 0x7465646279746573
    for (word,) in struct.iter_unpack("<Q", whole):
        a, b, c, d = rounds(2, a, b, c, d ^ word)
        a ^= word
    a, b, c, d = rounds(4, a, b, c ^ 0xFF, d)
    return f"{a ^ b ^ c ^ d:016x}"


@contextlib.contextmanager
def repeating(action):
    """Does something in the background, again and again. Yields an event that says whether it has been done."""
    over, done = threading.Event(), threading.Event()

    def work():
        while not over.wait(0.001):
            with contextlib.suppress(OSError):
                action()
                done.set()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
