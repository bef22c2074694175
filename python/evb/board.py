"""Boards and a trigger box in Python: frames for ROSs, triggers for the DFM, and its busy signal.

docs/detectors.md has an example, and docs/protocol.md the bytes of triggers and busy signal.
"""
import logging
import select
import socket
import struct
import time

SPILL_BEGINS, SPILL_ENDS, RESET, MARKER = 1, 2, 4, 8
STOPPED, RESETTING = 4, 5  # reasons for busy
FRAME = struct.Struct("<IQ")  # length of what follows, number of the trigger
HEADER, ENTRY = struct.Struct("<4sHHII"), struct.Struct("<QQII")
SIGNAL = struct.Struct("<4sBB2xQ")
SILENCE_NS = 300_000_000
SO_TIMESTAMPNS = 35
AGAIN_S, LOOK_S, EXPLAIN_S = 1, 0.05, 1
_log = logging.getLogger("evb")


def _address(place, listens):
    """Returns family and address of "HOST:PORT"; IPv6 is "[HOST]:PORT"."""
    host, colon, port = place.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ValueError(f'"{place}" is not an address; expected HOST:PORT')
    flags = socket.AI_PASSIVE if listens else 0
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM, flags=flags)[0]
    return family, address


def _place(sock):
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _poll(sockets, seconds, out=None):
    """Waits until a socket has input, or `out` has input or room. select() has no descriptors above 1023."""
    poll = select.poll()
    for s in sockets:
        poll.register(s, select.POLLIN)
    if out:
        poll.register(out, select.POLLIN | select.POLLOUT)
    poll.poll(None if seconds is None else 1000 * seconds)


def _wait(what, condition, sockets, timeout):
    """Returns whether the condition holds within `timeout` seconds (None: waits until it does). Logs if this takes long."""
    began, explained = time.monotonic(), False
    while not condition():
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            return False
        if not explained and waited >= EXPLAIN_S:
            explained = True
            _log.warning("waiting for %s", what())
        _poll(sockets(), LOOK_S if timeout is None else min(LOOK_S, timeout - waited))
    return True


class _Busy:
    """The busy signal at an address of this machine; without an address, never busy."""

    def __init__(self, place):
        self.busy, self.reason, self.last, self._at_ns, self._socket = place is not None, STOPPED, None, None, None
        if place is not None:
            family, address = _address(place, True)
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.bind(address)
            self._socket.setblocking(False)
            # Signals may have waited in the socket while the program did something else.
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    place = property(lambda self: self._socket and _place(self._socket))

    def sockets(self):
        return [self._socket] if self._socket else []

    def is_silent(self):
        """Then the DFM is not running, or not reachable."""
        return self._at_ns is None or time.time_ns() - self._at_ns >= SILENCE_NS

    def receive(self):
        """Yields, for each signal that has come, whether there was silence before it."""
        while self._socket:
            try:
                data, extra, _, _ = self._socket.recvmsg(SIGNAL.size + 1, 64)
            except BlockingIOError:
                return
            if len(data) != SIGNAL.size or data[:4] != b"EVBB" or data[4] > 1:
                continue
            at_ns = time.time_ns()
            for level, kind, stamp in extra:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, ns = struct.unpack("@ll", stamp)
                    at_ns = seconds * 10 ** 9 + ns
            was_silent = self._at_ns is None or at_ns - self._at_ns >= SILENCE_NS
            self._at_ns, self.busy, self.reason = at_ns, data[4] == 1, data[5]
            last = SIGNAL.unpack(data)[3]
            self.last = None if last == 2 ** 64 - 1 else last
            yield was_silent

    def is_ready(self):
        for _ in self.receive():
            pass
        return not self._socket or not (self.busy or self.is_silent())

    def close(self):
        if self._socket:
            self._socket.close()


class _Closing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Board(_Closing):
    """A board that sends frames to a ROS.

    source: as in the section of the ROS: "udp:HOST:PORT", where the ROS receives datagrams, or "tcp:HOST:PORT", where this board
    listens and the ROS connects. `board.source` has the port that was chosen for port 0.
    busy: the address in trigger.busy-to, if this board obeys the busy signal itself. If a TriggerBox receives it, there is none.
    """

    def __init__(self, source, busy=None):
        kind, _, place = source.partition(":")
        if kind not in ("udp", "tcp"):
            raise ValueError(f'"{source}" is not a source of frames; expected "udp:HOST:PORT" or "tcp:HOST:PORT"')
        family, self._to = _address(place, kind == "tcp")
        self.source, self.frames, self._listener, self._peer, self._out = source, 0, None, None, None
        self._busy = _Busy(busy)
        self.busy = self._busy.place
        if kind == "udp":
            self._out = socket.socket(family, socket.SOCK_DGRAM)
        else:
            self._listener = socket.create_server(self._to, family=family)
            self._listener.setblocking(False)
            self.source = f"tcp:{_place(self._listener)}"

    def send(self, number, data=b""):
        """Sends a frame for the default of `frame`: its length, the number of its trigger in 64 bits (event-number = 0:64; 0:32 has
        the low ones), and data: bytes, or an array. Waits as send_frame() does."""
        data = memoryview(data).tobytes()
        self.send_frame(FRAME.pack(FRAME.size - 4 + len(data), number) + data)

    def send_frame(self, frame):
        """Sends these bytes as they are. Waits for a connection, for room, and while evb is busy if this board obeys the signal. If
        the connection ends within the frame, the next one gets all of it."""
        frame = memoryview(frame).tobytes()
        self.wait()
        if self._out:
            self._out.sendto(frame, self._to)
        else:
            self._send_stream(frame)
        self.frames += 1

    def wait(self, timeout=None):
        """Waits until a ROS is connected, and evb is not busy. Returns False if this takes longer than `timeout` seconds."""
        return _wait(self._obstacle, lambda: self._is_connected() and self._busy.is_ready(), self._sockets, timeout)

    def close(self):
        for s in (self._out, self._listener, self._peer, self._busy):
            if s:
                s.close()

    def _obstacle(self):
        return f"a ROS with source = {self.source}" if self._listener and not self._peer else "the DFM to accept triggers"

    def _sockets(self):
        return [s for s in (self._listener, self._peer, *self._busy.sockets()) if s]

    def _disconnect(self):
        if self._peer:
            self._peer.close()
        self._peer = None

    def _is_connected(self):
        """Also notices that a connection has ended. A new one replaces it."""
        if not self._listener:
            return True
        try:
            peer, _ = self._listener.accept()
        except OSError:
            pass
        else:
            self._disconnect()
            self._peer = peer
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._peer:
            try:
                if self._peer.recv(4096) == b"":
                    self._disconnect()
            except BlockingIOError:
                pass
            except OSError:
                self._disconnect()
        return self._peer is not None

    def _send_stream(self, frame):
        peer, left = self._peer, memoryview(frame)
        while left:
            if not self._is_connected() or self._peer is not peer:
                self.wait()
                peer, left = self._peer, memoryview(frame)
            try:
                left = left[peer.send(left):]
            except BlockingIOError:
                _poll([self._listener], None, out=peer)
            except OSError:
                self._disconnect()


class TriggerBox(_Closing):
    """A trigger box, which numbers the triggers from 0.

    to: address of the DFM and port of trigger.source; busy: the address in trigger.busy-to, on this machine (None: the box does not
    obey the busy signal; then triggers may be lost); run: number of the run, or 0 for any.
    """

    def __init__(self, to, busy=None, run=0):
        family, address = _address(to, False)
        self._to, self._run, self._sequence = to, run, 0
        self._out = socket.socket(family, socket.SOCK_DGRAM)
        self._address = address
        self._busy = _Busy(busy)
        self.busy = self._busy.place
        # Whether the next trigger is the first after a reset. None: it is the first of this object, so only if its number is 0.
        self.number, self._begins = 0, None

    reason = property(lambda self: self._busy.reason, doc="Why evb is busy (docs/protocol.md), as of the last wait; 0: it is ready.")

    last = property(lambda self: self._busy.last, doc="Number of the newest trigger that the DFM accepted, as of the last wait, or None.")

    def trigger(self, type=0, time_ns=None, flags=0):  # pylint: disable=redefined-builtin
        """Waits until evb is ready, sends a trigger, and returns its number. time_ns: since 1970 (None: now; 0: the DFM's clock);
        flags: SPILL_BEGINS, SPILL_ENDS."""
        self.wait()
        return self.forward(self.number, type, time_ns, flags)

    def forward(self, number, type=0, time_ns=None, flags=0):  # pylint: disable=redefined-builtin
        """As trigger(), for a trigger that has occurred: sends it at once, with this number. The first one says that the boards'
        counters were reset if its number is 0; otherwise, the numbers go on."""
        begins = number == 0 if self._begins is None else self._begins
        self._send(number, time.time_ns() if time_ns is None else time_ns, type, flags | (RESET if begins else 0))
        self.number, self._begins = number + 1, False
        return number

    def mark(self, flags):
        """Sends flags without a trigger: SPILL_BEGINS, SPILL_ENDS."""
        self._send(self.number, time.time_ns(), 0, flags | MARKER)

    def reset(self):
        """Tells evb that the counters of the boards are reset, so that the next trigger and its frames have number 0. Call it when
        the boards have sent all earlier frames. Waits until evb is ready for the new numbers."""
        self.number = 0
        self._begins = not self._busy.place
        if self._begins:
            return
        while not self._ask_reset():
            pass

    def wait(self, timeout=None):
        """Waits until evb is ready for a trigger. Returns False if this takes longer than `timeout` seconds."""
        return _wait(lambda: f"the DFM at {self._to} to accept triggers", self._busy.is_ready, self._busy.sockets, timeout)

    def close(self):
        self._out.close()
        self._busy.close()

    def _send(self, number, time_ns, kind, flags):
        header = HEADER.pack(b"EVBT", 1, 1, self._sequence % 2 ** 32, self._run)
        self._sequence += 1
        self._out.sendto(header + ENTRY.pack(number, time_ns, kind, flags), self._address)

    def _ask_reset(self):
        """Sends the marker of a reset. False: it was lost, or a DFM that stopped or restarted has lost it."""
        self._busy.is_ready()  # reads earlier signals, which do not answer this marker
        self._send(0, time.time_ns(), 0, RESET | MARKER)
        asked, acknowledged, lost = time.monotonic(), False, False
        while True:
            for was_silent in self._busy.receive():
                lost |= was_silent or (self._busy.busy and self._busy.reason == STOPPED)
                acknowledged = not lost and (acknowledged or (self._busy.busy and self._busy.reason == RESETTING))
                if acknowledged and not self._busy.busy:
                    return True
            if not acknowledged and (lost and self._busy.reason != STOPPED or time.monotonic() - asked >= AGAIN_S):
                return False
            _poll(self._busy.sockets(), LOOK_S)
