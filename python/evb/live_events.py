"""Events of a running SFI, by the ring of memory that it shares with each consumer (src/live/live_ring.h), or by TCP."""
import array
import mmap
import numbers
import os
import select
import socket
import struct
import time
from types import SimpleNamespace

import numpy as np

from . import eformat
from .event import Batch, Event
from .live_remote import Remote, is_remote

GREETING = "evb-live 1"
MAGIC, DATA_AT = int.from_bytes(b"EVBLIVE1", "little"), 4096
# In the head: 64-bit words, and 32-bit words of two flags.
BYTES_WORD, WRITTEN_WORD, READ_WORD, ENDED_FLAG, SLEEPING_FLAG = 1, 8, 16, 18, 34
COUNTS_WORD = 10  # offered, given, skipped; valid after the end
RECORD = struct.Struct("=6Q16x")  # bytes of record and event, offered, given, skipped, time
LINE_MAX = 512
COPY_BYTES = 8 << 20
# A store and a later load may change places, as Python has no fence: look again.
LOOK_S = 0.05
ANSWER_S = 60


def live(address, mode="newest", **options):
    """Connects to a running SFI at "unix:PATH" or "HOST:PORT", the place in its live.listen. A loop over the result receives events.

    mode: "newest" (an event only while the loop waits for one), "skip" (each event that the ring has room for) or "all" (each
    event; the run waits). Options:
    stride, offset; or fraction, seed; trigger_type (a number or several); status ("complete", "partial"); group; ring (bytes);
    copy (False: events are views of the ring, valid until the next one is requested); timeout (ends the loop after so many
    seconds without an event); sources (IDs by name); key (the file with the key of the SFI's network.key-file, by TCP).
    docs/python.md describes them.
    """
    return Live(address, mode, **options)


class LiveEvent(Event):
    """An event, and how many the SFI had offered, given and skipped when this one was given, which is counted too."""

    __slots__ = ()
    offered = property(lambda self: self._batch.counts[self._row][0])
    given = property(lambda self: self._batch.counts[self._row][1])
    skipped = property(lambda self: self._batch.counts[self._row][2])


def _report(position, text, _event=None):
    raise ValueError(f"a live event is damaged at byte {position}: {text}")


def _make_batch(run, raw, at, sizes, counts):
    """A batch of the events at these bytes of `raw`."""
    words, at = raw[:len(raw) // 4 * 4].view("<u4"), np.array(at, np.int64) // 4
    size = np.array(sizes, np.int64)
    wrong = np.flatnonzero((words[at] != eformat.EVENT) | (4 * words[at + 1].astype(np.int64) != size))
    headers, bad = ({}, []) if wrong.size else eformat.read_headers(words, at)
    if wrong.size or bad:
        _report(*((int(4 * at[wrong[0]]), "no header") if wrong.size else (4 * bad[0][0], bad[0][1])))
    file = SimpleNamespace(bytes=raw, words=words, headers=SimpleNamespace(**headers), report=_report, check=lambda rows: None)
    batch = Batch(run, file, np.arange(len(at)))
    batch.counts = counts
    return batch


def _request(mode, trigger_type=None, **options):
    """The line that requests events."""
    if trigger_type is not None:
        types = [trigger_type] if isinstance(trigger_type, (numbers.Integral, str)) else trigger_type
        options["trigger-type"] = ",".join(map(str, types))
    # Numbers have no exponents.
    words = [f"{name}={f'{value:.9f}' if isinstance(value, (float, np.floating)) else value}"
             for name, value in {"mode": mode, **options}.items() if value is not None]
    if any(character.isspace() for word in words for character in word):
        raise ValueError(f"invalid options: {', '.join(words)}; expected values without blanks")
    return " ".join([GREETING, *words])


class Live:
    """The connection to an SFI. Iterate it; close it, or use it in `with`."""

    def __init__(self, address, mode="newest", copy=True, timeout=None, sources=None, key=None, **options):
        self.address, self.mode, self.copy, self.timeout = address, mode, copy, timeout
        self.sources = dict(sources or {})
        self.offered = self.given = self.skipped = 0
        self.ended = False
        self._batch, self._row, self._open = None, 0, True
        # In a group, events that are not released go to the others when the connection ends, and with sfi.output = live, they are
        # not acknowledged: release each one when the loop requests the next.
        self._shares, self._ends = options.get("group") is not None or mode == "all", []
        self._remote, self._read = None, 0
        request = _request(mode, **options)
        if is_remote(address):
            self._remote = Remote(address, request, key, ANSWER_S)
            self._socket, self._data = self._remote.socket, self._remote.data.view()
            self._data.flags.writeable = False
            self._written = 0
        elif address.startswith("unix:"):
            self._connect(address[5:], request)
        else:
            raise ValueError(f"invalid address {address!r}; expected unix:PATH or HOST:PORT, as in live.listen")
        self._socket.setblocking(False)
        # select() has no descriptors above 1023.
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def _connect(self, path, request):
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.connect(path)
            self._socket.sendall(f"{request}\n".encode())
            self._map(self._receive_answer())
        except BaseException:
            self._socket.close()
            raise

    def _receive_answer(self):
        line, fds = b"", array.array("i")
        while not line.endswith(b"\n"):
            part, control, _, _ = self._socket.recvmsg(1, socket.CMSG_SPACE(fds.itemsize), socket.MSG_CMSG_CLOEXEC)
            for level, kind, data in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[:fds.itemsize])
            if not part or len(line) > LINE_MAX:
                raise ConnectionError(f"{self.address}: the SFI ended the connection")
            line += part
        text = line.decode(errors="replace").rstrip("\n")
        if text.startswith("error "):
            raise ValueError(text[6:])
        if text != GREETING or not fds:
            raise ConnectionError(f"{self.address}: the answer is not that of an SFI of this version")
        return fds[0]

    def _map(self, fd):
        try:
            memory = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self._head = np.frombuffer(memory, np.uint64, DATA_AT // 8)
        self._flags = self._head.view(np.uint32)
        self._data = np.frombuffer(memory, np.uint8, offset=DATA_AT)
        self._data.flags.writeable = False
        if int(self._head[0]) != MAGIC or int(self._head[BYTES_WORD]) != len(self._data):
            raise ConnectionError(f"{self.address}: the memory is not that of an SFI of this version")

    def close(self):
        """Ends the connection; events with copy=False stay valid. In a group, other programs get the events that this loop did
        not."""
        if self._open and self._batch is not None:
            self._release_row()
        self._abandon()

    def _abandon(self):
        """Ends the connection, as if the last event had not been received."""
        self._socket.close()
        self._open = False

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        (self.close if kind is None else self._abandon)()

    def __iter__(self):
        return self

    def __next__(self):
        if not self._open:
            raise StopIteration
        if self._batch is None or self._row + 1 >= len(self._batch.counts):
            self._batch, self._row = None, -1
            self._batch = self._fill()
        else:
            self._release_row()
        if self._batch is None:
            raise StopIteration
        self._row += 1
        self.offered, self.given, self.skipped = self._batch.counts[self._row]
        return LiveEvent(self._batch, self._row)

    def _release(self, position=None):
        position = self._read if position is None else position
        if self._remote:
            self._remote.release(position)
        else:
            self._head[READ_WORD] = position

    def _release_row(self):
        """The event that the loop received last is done."""
        if self._shares:
            self._release(self._ends[self._row])

    def _fill(self):
        """Waits for events. None: there are no more."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        at_end = False
        self._release()
        while self._open:
            batch = self._pop_events()
            if batch:
                return batch
            if at_end:
                self.ended = self._remote.ended if self._remote else bool(self._flags[ENDED_FLAG])
                if self.ended:
                    counts = self._remote.counts if self._remote else self._head[COUNTS_WORD:COUNTS_WORD + 3]
                    self.offered, self.given, self.skipped = map(int, counts)
                    if self.mode == "all" and self.skipped:
                        raise ConnectionError(f"{self.address}: {self.skipped} events are missing: at the end of the run, the SFI waits at "
                                              "most 10 s for room, and larger events than half the ring have none")
                    return None
                raise ConnectionError(f"{self.address}: the connection ended before all events had come")
            if deadline is not None and time.monotonic() >= deadline:
                return None
            if not self._remote:
                self._flags[SLEEPING_FLAG] = 1
            if self._get_written() == self._read:
                # What was written before the end is in the ring.
                at_end = self._sleep(deadline)
        return None

    def _sleep(self, deadline):
        """Waits for the SFI. True: the connection has ended."""
        wait = LOOK_S if deadline is None else min(LOOK_S, max(0, deadline - time.monotonic()))
        if self._remote:
            self._remote.flush()
        if not self._poll.poll(1000 * wait):
            return False
        if self._remote:
            self._written, at_end = self._remote.receive()
            return at_end
        try:
            return not self._socket.recv(64)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _get_written(self):
        """The position before which the ring has events."""
        return self._written if self._remote else int(self._head[WRITTEN_WORD])

    def _find_events(self):
        """Returns begin and end of a part of the ring, and its events: (byte, bytes, counts) of each."""
        written, size = self._get_written(), len(self._data)
        begin = end = self._read % size
        found, many = [], self.copy and self.mode != "newest"
        self._ends = []
        while self._read != written and (not found or (many and end < size and end - begin < COPY_BYTES)):
            record, event, offered, given, skipped, _ = RECORD.unpack_from(self._data, end % size)
            if record % 64 or record < 64 or record > min(size - end % size, written - self._read) or event > record - 64:
                raise ConnectionError(f"{self.address}: the ring of events is damaged")
            if event:
                if not found:
                    begin = end = end % size
                found.append((end + 64, event, (offered, given, skipped)))
            end += record
            self._read += record
            if event:
                self._ends.append(self._read)
        return begin, end, found

    def _pop_events(self):
        begin, end, found = self._find_events()
        if not found:
            return None
        raw, shift = self._data, 0
        if self.copy:
            raw, shift = self._data[begin:end].copy(), begin
            raw.flags.writeable = False
        at, sizes, counts = zip(*found)
        batch = _make_batch(self, raw, [x - shift for x in at], sizes, counts)
        if self.copy and self.mode != "newest" and not self._shares:
            self._release()
        return batch
