"""EventStorage files: maps them, and finds their events. A file may still grow, end anywhere, or be damaged.

docs/event-format.md describes the records. Only the headers of events are read here; eformat.py reads what is inside.
"""
import contextlib
import fcntl
import mmap
import os
import struct
import time
import warnings
import zlib

import numpy as np

from . import eformat

START, NAMES, METADATA, RUN = 0x1234AAAA, 0x1234AABB, 0x1234AABC, 0x1234BBBB
DATA, END, END_MARK = 0x1234CCCC, 0x1234DDDD, 0x1234EEEE
# A data record, and the first two words of its event.
RECORD = struct.Struct("<6I")
RECORD_BYTES = 16
END_RECORD = struct.Struct("<10I")
CHECKED = 0xEB  # in the status of the end record: all events are stamped
DATA_BEGIN = struct.pack("<2I", DATA, 4)
EVENT_LEAST_BYTES = 4 * 17
INDEX_HEAD = struct.Struct("<8s3Q2I40s")
INDEX_MAGIC = b"EVBINDX1"
INDEX_ENDING = ".index"
INDEX = np.dtype([(name, "<" + kind) for name, kind in {
    "at": "u8", "number": "u8", "global_id": "u8", "time_ns": "i8", "size": "u4", "version": "u4", "status": "u4", "run": "u4",
    "l1_id": "u4", "trigger_type": "u4", "spill": "u4", "trigger_flags": "u4"}.items()])
# The writer creates a file before it locks it; an empty file of this age has no writer.
EMPTY_S = 10


class DamageWarning(UserWarning):
    """Names bytes of a file that are not whole events."""


class _Bad(Exception):
    pass


class _Cursor:
    """Reads words and texts of the front records."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def word(self):
        if self.at + 4 > len(self.raw):
            raise _Bad("the file ends within its front records")
        self.at += 4
        return int.from_bytes(self.raw[self.at - 4:self.at], "little")

    def text(self):
        length = self.word()
        begin, self.at = self.at, self.at + (length + 3) // 4 * 4
        if self.at > len(self.raw):
            raise _Bad("the file ends within its front records")
        return self.raw[begin:begin + length].decode("utf-8", "replace")

    def expect(self, *words):
        at = self.at
        if any([self.word() != word for word in words]):
            raise _Bad(f"no record {words[0]:08X} at byte {at}")


class Front:
    """The records before the first event."""

    def __init__(self, raw):
        cursor = _Cursor(raw)
        cursor.expect(START, 8)
        self.version = cursor.word()
        if self.version not in (2, 5, 6):
            raise _Bad(f"version {self.version} of EventStorage; expected 2, 5 or 6")
        self.file_number = cursor.word()
        cursor.at += 16  # date, time, limits
        cursor.expect(NAMES)
        self.application = cursor.text().rstrip()
        self.core_name = cursor.text().rstrip()
        self.metadata = {}
        if self.version > 2:
            cursor.expect(METADATA)
            for _ in range(cursor.word()):
                name, _, value = cursor.text().partition("=")
                self.metadata[name] = value
        name, seed, value = self.core_name.rpartition(" seed=")
        if seed and value.isdigit():
            self.core_name, self.metadata["Seed"] = name, value
        mask_words = {2: 1, 5: 2, 6: 4}[self.version]
        cursor.expect(RUN, 8 + mask_words)
        self.run = cursor.word()
        cursor.at += 4 * (5 + mask_words)
        if cursor.at > len(raw):
            raise _Bad("the file ends within its front records")
        self.bytes = cursor.at


def _is_locked(fd):
    """Whether another open file description holds the lock of the file's writer."""
    try:
        lock = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return struct.unpack_from("h", lock)[0] != fcntl.F_UNLCK


class _Shifted:
    """The events of a file that begin `shift` bytes behind a word, because bytes in front of them were inserted or removed. It has
    what a Batch uses of an EventFile; positions count from byte `shift` of the file. The views are over the mapped file, so words
    are not aligned."""

    def __init__(self, file, shift):
        self._file, self._shift = file, shift
        self.headers = eformat.Columns(eformat.HEADERS)
        self.map()

    def map(self):
        self.bytes = self._file.bytes[self._shift:]
        self.words = self.bytes[:len(self.bytes) // 4 * 4].view("<u4")

    def check(self, rows):
        """An index has no such events."""

    def report(self, at, text, event=None):
        self._file.report(at + self._shift, text, event and event + self._shift)


class EventFile:
    """One file. refresh() finds the events that were added since; `headers` has the fields of those that begin at a word of the file.
    In a file that lacks bytes, or has too many, others begin between words: `parts` has this file, and a _Shifted for these.

    After damage, the next whole event is searched at each byte. Each byte is searched a few times at most, so the time grows with
    the size of the file; files without damage are not searched.

    `bytes` and `words` are read-only arrays over the mapped file. They stay valid while they are used, whatever becomes of the
    file, unless it is truncated: then the kernel ends the process (SIGBUS), as with every mapping.
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self.front = self.end = None
        self.headers = eformat.Columns(eformat.HEADERS)
        self.bytes = np.zeros(0, "u1")
        self.words = np.zeros(0, "<u4")
        self.finished = False  # nothing more can come
        self.faults = []
        self._raw, self._size, self._at = b"", 0, 0
        self._shifted = {}
        self._last = -1  # the record of the last event
        self._reported = set()
        self._doubtful = -1
        self._has_wrong_index = self._is_unread = False
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def close(self):
        """Closes the descriptor. What was read stays valid."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __del__(self):
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    @property
    def run(self):
        if self.front:
            return self.front.run
        return next((int(part.headers.run[0]) for part in self.parts if len(part.headers)), None)

    @property
    def parts(self):
        return [self, *self._shifted.values()]

    @property
    def n_events(self):
        return sum(len(part.headers) for part in self.parts)

    @property
    def is_writing(self):
        return self.path.endswith(".writing")

    def _word(self, at):
        return int.from_bytes(self._raw[at:at + 4], "little")

    def report(self, at, text, event=None):
        """Warns about a damaged place, once. `event`: the first byte of the event that it damages."""
        if at in self._reported:
            return
        self._reported.add(at)
        if event is not None:
            text = f"the event at byte {event} is damaged: {text}"
        self.faults.append(f"{self.path}: byte {at}: {text}")
        warnings.warn(self.faults[-1], DamageWarning, stacklevel=2)

    def _has_writer(self):
        if not self.is_writing:
            return False
        stat = os.fstat(self._fd)
        return _is_locked(self._fd) or (stat.st_size == 0 and time.time() - stat.st_mtime < EMPTY_S)

    def refresh(self):
        """Finds further events, and returns their number."""
        if self.finished:
            return 0
        before = self.n_events
        # In this order: what is written before the writer ends is seen.
        grows = self._has_writer()
        size = os.fstat(self._fd).st_size
        if size != self._size or not grows:
            self._map(size)
            changed_ns = os.fstat(self._fd).st_mtime_ns
            if grows or not self._read_index():
                self._read(grows)
                if self._has_wrong_index:
                    self._renew_index(changed_ns)
        if not grows:
            self._finish()
        return self.n_events - before

    def _map(self, size):
        if size == self._size:
            return
        self._raw, self._size = b"", 0
        if size > 0:
            self._raw = mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
            self._size = size
        self.bytes = np.frombuffer(self._raw, "u1")
        self.words = np.frombuffer(self._raw, "<u4", size // 4)
        for part in self._shifted.values():
            part.map()

    def _read_index(self):
        """Reads FILE.index instead of the file; False: there is none, or it is of another file, or of another state of this one."""
        if self.is_writing or self._at or self._size < END_RECORD.size:
            return False
        try:
            with open(self.path + INDEX_ENDING, "rb") as f:
                raw = f.read()
        except OSError:
            return False
        entries, front = self._check_index(raw)
        self._has_wrong_index = entries is None
        if self._has_wrong_index:
            return False
        self.front, self._at = front, self._size - END_RECORD.size
        if not self._read_end(False):
            self.front, self._at = None, 0
            return False
        headers = {name: entries[name] for name in INDEX.names}
        headers["at"], headers["size"] = headers["at"] // 4, headers["size"] // 4
        self.headers.extend(headers)
        self._is_unread = True
        return True

    def check(self, rows):
        """Reports those of these events that were damaged after their index was made. They stay events."""
        if not self._is_unread:
            return
        words, at, size = self.words, self.headers.at[rows], self.headers.size[rows]
        is_whole = ((words[at - 4] == DATA) & (words[at - 3] == 4) & (words[at - 1] == 4 * size) & (words[at] == eformat.EVENT)
                    & (words[at + 1] == size))
        for position in at[~is_whole].tolist():
            self.report(4 * position - RECORD_BYTES, "an event that was damaged after its index was made: no event of its size is there")
        for position, reason in eformat.read_headers(self.words, at[is_whole], self._major())[1]:
            self.report(4 * position, f"an event that was damaged after its index was made: {reason}")

    def _renew_index(self, changed_ns):
        """Replaces the index of another state of the file, if the file is not damaged."""
        path, headers = self.path + INDEX_ENDING, self.headers
        is_whole = self.end and not self.faults and self.end["events"] == len(headers)  # so no event is shifted
        stat = os.fstat(self._fd)
        if not is_whole or (stat.st_size, stat.st_mtime_ns) != (self._size, changed_ns):
            return
        entries = np.zeros(len(headers), INDEX)
        for name in INDEX.names:
            entries[name] = getattr(headers, name) * (4 if name in ("at", "size") else 1)
        raw = bytearray(INDEX_HEAD.pack(INDEX_MAGIC, len(headers), self._size, changed_ns % 2**64, zlib.adler32(self._raw[:self.front.bytes]),
                                        0, self._raw[self._size - END_RECORD.size:]) + entries.tobytes())
        raw[36:40] = zlib.adler32(raw).to_bytes(4, "little")
        new_path = f"{path}.{os.getpid()}.new"
        try:
            with open(new_path, "xb") as f:
                f.write(raw)
            os.rename(new_path, path)
        except FileExistsError:
            pass  # another thread renews it
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(new_path)
            warnings.warn(f"{path}: not the index of this state of the file, and cannot be renewed ({error.strerror}); evb dump --index "
                          "renews it", stacklevel=2)

    def _check_index(self, raw):
        """Returns the entries of the index, and the front records of the file; None if it is not that of the file."""
        nothing = None, None
        if len(raw) < INDEX_HEAD.size:
            return nothing
        magic, n, size, changed_ns, front_sum, checksum, end = INDEX_HEAD.unpack_from(raw)
        if (magic != INDEX_MAGIC or len(raw) != INDEX_HEAD.size + n * INDEX.itemsize or size != self._size
                or changed_ns != os.fstat(self._fd).st_mtime_ns % 2**64 or end != self._raw[self._size - END_RECORD.size:]
                or zlib.adler32(raw[INDEX_HEAD.size:], zlib.adler32(raw[:36] + bytes(4) + raw[40:80])) != checksum):
            return nothing
        try:
            front = Front(self._raw)
        except _Bad:
            return nothing
        entries = np.frombuffer(raw, INDEX, n, INDEX_HEAD.size)
        at, size = entries["at"], entries["size"].astype("u8")
        ends = np.concatenate([np.array([front.bytes], "u8"), at + size])
        # Each event follows the one before; no sum exceeds 64 bits.
        is_whole = ((at < self._size).all() and (at == ends[:-1] + np.uint64(RECORD_BYTES)).all() and (size % 4 == 0).all()
                    and (size >= EVENT_LEAST_BYTES).all() and ends[-1] == self._size - END_RECORD.size
                    and (entries["version"] == (3 if front.version == 2 else 5)).all())
        if not is_whole or zlib.adler32(self._raw[:front.bytes]) != front_sum:
            return nothing
        return entries, front

    def _read(self, grows):
        if not self.front and not self._at:
            try:
                self.front = Front(self._raw)
                self._at = self.front.bytes
            except _Bad as bad:
                if grows:
                    return
                if self._size >= 4 and self._word(0) != START and self._find_record(0) < 0:
                    raise ValueError(f"{self.path}: not an event file: no record 1234AAAA at byte 0") from bad
                self.report(0, str(bad))
        self.end = None  # its place may have an event now
        while True:
            self._read_records()
            if self._read_end(grows):
                return
            is_torn = self._is_torn()
            if grows and is_torn:
                return
            # While the writer replaces an end record by events, a reader may see a part of both.
            if grows and self._doubtful != self._at:
                self._doubtful = self._at
                self._size = -1  # look again next time
                return
            found = self._find_overlapped()
            if found >= 0:
                self.report(max(self._last, 0), f"bytes are missing before byte {found}, where reading continues")
            elif is_torn or (found := self._find_record(self._at)) < 0:
                return
            else:
                self.report(self._at, f"{found - self._at} bytes are damaged; reading continues at byte {found}")
            self._at = found

    def _read_records(self):
        raw, at, last, unpack = self._raw, self._at, self._size - RECORD_BYTES - EVENT_LEAST_BYTES, RECORD.unpack_from
        size, found = self._size, []
        while at <= last:
            mark, header, _, event_bytes, event_mark, event_words = unpack(raw, at)
            if (mark != DATA or header != 4 or event_mark != eformat.EVENT or event_bytes != 4 * event_words
                    or event_bytes > size - at - RECORD_BYTES or event_bytes < EVENT_LEAST_BYTES):
                break
            at += RECORD_BYTES
            found.append(at)
            at += event_bytes
        self._at = at
        if not found:
            return
        part = self._part(found[0] % 4)
        self._last = found[-1] - RECORD_BYTES
        headers, bad = eformat.read_headers(part.words, np.array(found, np.int64) // 4, self._major())
        for position, reason in bad:
            part.report(4 * position, f"event skipped: {reason}")
        part.headers.extend(headers)

    def _part(self, shift):
        if not shift:
            return self
        if shift not in self._shifted:
            self._shifted[shift] = _Shifted(self, shift)
        return self._shifted[shift]

    def _major(self):
        if self.front:
            return 3 if self.front.version == 2 else 5
        return None

    def _record_at(self, at):
        """Returns the bytes of the event whose record is here, which may end behind the file; 0: no record."""
        if at + RECORD.size > self._size:
            return 0
        mark, header, _, event_bytes, event_mark, event_words = RECORD.unpack_from(self._raw, at)
        is_event = mark == DATA and header == 4 and event_mark == eformat.EVENT and event_bytes == 4 * event_words
        return event_bytes if is_event and event_bytes >= EVENT_LEAST_BYTES else 0

    def _is_torn(self):
        """Whether what is left is the beginning of an event, or nothing."""
        left = self._size - self._at
        if left < RECORD.size:
            return True
        size = self._record_at(self._at)
        return size > left - RECORD_BYTES and self._find_record(self._at) < 0

    def _read_end(self, grows):
        """Whether the end record is here. Zeros may follow: the rest of the last block that a killed process wrote."""
        if self._size - self._at < END_RECORD.size:
            return False
        mark, n, _, _, events, _, run_events, _, status, end_mark = END_RECORD.unpack_from(self._raw, self._at)
        if mark != END or n != 10 or end_mark != END_MARK:
            return False
        if not grows and self.bytes[self._at + END_RECORD.size:].any():
            if self._find_record(self._at) >= 0:
                return False
            rest = self._size - self._at - END_RECORD.size
            self.report(self._at + END_RECORD.size, f"{rest} bytes after the end record are not read")
        self.end = {"events": events, "run_events": run_events, "is_last": status & 0xff == 1, "is_checked": status >> 24 == CHECKED}
        return True

    def _find_record(self, at, end=None):
        """Returns the position behind `at` of the next whole event, or of an end record at the end of the file; -1: none before `end`."""
        end, end_at = self._size if end is None else end, self._size - END_RECORD.size
        is_end = at < end_at < end and self._word(end_at) == END and self._word(end_at + 36) == END_MARK
        # No record begins in the last bytes. mmap.find() of Python 3.11.2 reads a byte behind its range.
        last = max(0, min(end - 1 + len(DATA_BEGIN), self._size - RECORD_BYTES))
        while (at := self._raw.find(DATA_BEGIN, at + 1, last)) >= 0:
            if 0 < self._record_at(at) <= self._size - at - RECORD_BYTES:
                return at
        return end_at if is_end else -1

    def _is_whole(self, at):
        """Whether the event of this record, and all of its fragments, have the right structure."""
        part = self._part(at % 4)
        headers, faults = eformat.read_headers(part.words, np.array([(at + RECORD_BYTES) // 4]), self._major())
        if not faults:
            eformat.read_fragments(part.words, headers["at"], headers["size"], int(headers["version"][0]),
                                   lambda *fault: faults.append(fault))
        return not faults

    def _find_overlapped(self):
        """Returns the position of the next record if it begins within the last event, or within the front records, because these lack
        bytes; -1: it does not. The payload of a whole event may have records, too."""
        found = self._find_record(max(self._last, 0), self._at)
        if found < 0 or self._last < 0 or not self._is_whole(self._last) or self._word(found) == END:
            return found
        ends_later = found + RECORD_BYTES + self._record_at(found) > self._at
        return found if ends_later and self._is_whole(found) else -1

    def _finish(self):
        self.finished = True
        self.close()
        if not self.end:
            rest = self._size - self._at
            self.report(self._at, f"the file ends without an end record; {rest} bytes at its end are not a whole event")
        elif self.end["events"] != self.n_events & 0xffffffff:
            self.report(self._at, f"the end record counts {self.end['events']} events, {self.n_events} can be read")
