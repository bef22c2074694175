"""A trigger box that a test plays: it sends triggers over UDP and receives the busy signal."""
import contextlib
import socket
import struct

from network import wait_until

PORT = 47200
RESET = 4
READY, CREDITS, XOFF, OUTPUT, STOPPED, RESETTING, LEVEL_2 = range(7)
NONE = 2 ** 64 - 1


class Board:
    """A trigger box: numbers its triggers and datagrams, and obeys the busy signal if it is asked to."""

    def __init__(self):
        self.signal = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.signal.bind(("127.0.0.1", 0))
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sequence, self.busy = 0, (1, STOPPED, NONE)

    def keys(self):
        return {"trigger.source": f"udp:{PORT}", "trigger.busy-to": "127.0.0.1:%d" % self.signal.getsockname()[1],
                "trigger.events": 0}

    def connect(self, running):
        self.sender.connect((running.address("dfm"), PORT))

    def listen(self):
        """Takes all busy signals that have come."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.signal.recv(100, socket.MSG_DONTWAIT)
                magic, state, reason, zero, last = struct.unpack("<4sBBHQ", data)
                assert magic == b"EVBB" and zero == 0 and state == (reason != READY), data
                self.busy = (state, reason, last)
        return self.busy

    def wait(self, what, condition):
        wait_until(f"busy signal: {what}", lambda: condition(*self.listen()))

    def wait_ready(self):
        self.wait("ready", lambda state, _, __: state == 0)

    def datagram(self, first, n, sequence=None, run=0, flags=0, time_ns=0, type_=0):
        entries = b"".join(struct.pack("<QQII", first + k, time_ns + k if time_ns else 0, type_, 0 if k else flags)
                           for k in range(n))
        return b"EVBT" + struct.pack("<HHII", 1, n, self.sequence if sequence is None else sequence, run) + entries

    def send(self, first, n, **options):
        self.sender.send(self.datagram(first, n, **options))
        self.sequence += 1
