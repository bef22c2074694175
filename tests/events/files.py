"""Builds small event files by the layout alone, and compares events; shares no code with the reader."""
import contextlib
import hashlib
import importlib.util
import json
import os
import struct
import sys
import unittest
import warnings
import zlib

from evb.interpreter import use_system_python

try:
    import evb
    evb.open  # imports numpy
except ImportError as error:
    use_system_python()
    print(f"skipped: {error}; install python3-numpy")
    sys.exit(77)


def find_module(name):
    return importlib.util.find_spec(name) is not None


def words(*values):
    return struct.pack(f"<{len(values)}I", *values)


def text(value):
    value = value.encode()
    return words(len(value)) + value + b" " * (-len(value) % 4)


def rod(source, l1, payload):
    padded = payload + bytes(-len(payload) % 4)
    return (words(0xEE1234EE, 9, 0x03000000, source, 7, l1, 0, 0, 0) + padded + words(0, len(payload))
            + words(2, len(padded) // 4, 1))


def header(marker, version, source, specific, inside, status=0):
    size = 7 + len(specific) + (version == 3)
    front = [marker, size + len(inside) // 4, size, version << 24, source, 1, status]
    return words(*front, *([len(specific)] if version == 3 else []), *specific) + inside


def event(version, number, fragments, run=7, status=0, time=(1700000000, 500), stamp=None):
    """`fragments`: (source, payload). `time`: s, ns. The L1 ID is the number + 1000. `stamp`: the event's number, spill and flags,
    in an event whose global ID is the number + 2^32."""
    l1 = number + 1000
    own = [0x01425645, stamp[0] & 0xffffffff, stamp[0] >> 32, 1, time[1], *stamp[1:]] if stamp else []
    if version == 3:
        parts = [header(0xCC1234CC, 3, s, [run, l1, 0], header(0xDD1234DD, 3, s, [], rod(s, l1, p))) for s, p in fragments]
        # In two sub-detectors.
        inside = b"".join(header(0xBB1234BB, 3, 0x700001 + i, [0], b"".join(part)) for i, part in enumerate((parts[:1], parts[1:])))
        if stamp:
            inside += header(0xBB1234BB, 3, 0x790001, own + [0], b"")
        return add_sum(header(0xAA1234AA, 3, 0x790001, [time[0], number, run, l1, 5, 0, 0, 0, 0, 0], inside, status), stamp, b"")
    inside = b"".join(header(0xDD1234DD, 5, s, [0], rod(s, l1, p)) for s, p in fragments)
    front_words = [0, *time, number, int(bool(stamp)), 0, run, 0, l1, 0, 5, 0, len(inside) // 4, 0, 0]
    hlt = [12, 0, 0, 0, 0, *own, 0] if stamp else [0]
    return add_sum(header(0xAA1234AA, 5, 0x790001, [*front_words, *hlt, 0], inside, status), stamp, words(0) + inside)


def add_sum(data, stamp, behind):
    """Fills the last word of the stamp, which is in front of `behind`."""
    if not stamp:
        return data
    at = len(data) - len(behind) - 4
    return data[:at] + words(zlib.adler32(data[:at])) + behind


def front(version, run=7, core="run7", number=1):
    begin = words(0x1234AAAA, 8, 2 if version == 3 else 6, number, 28112026, 120000, 0, 0) + words(0x1234AABB) + text("SFI-1")
    if version == 3:
        return begin + text(core + " seed=3") + words(0x1234BBBB, 9, run, 0, 1, 0, 0, 0, 0)
    return begin + text(core) + words(0x1234AABC, 1) + text("Seed=3") + words(0x1234BBBB, 12, run, 0, 1, 0, 0, 0, 0, 0, 0, 0)


def record(block, data):
    return words(0x1234CCCC, 4, block, len(data)) + data


def end(events, last=True):
    return words(0x1234DDDD, 10, 28112026, 120001, events, 0, events, 0, int(last), 0x1234EEEE)


def fragments_of(number):
    return [(0x700000, bytes(range(number % 200, number % 200 + 9))), (0x700001, b""), (0x110003, bytes(5 + number % 200))]


def whole(version, numbers, **options):
    """Returns the parts of a file: front, a record for each number, end record."""
    records = [record(i + 1, event(version, n, fragments_of(n), options.get("run", 7))) for i, n in enumerate(numbers)]
    return [front(version, **options), *records, end(len(records))]


def add_index(path, version, parts, numbers):
    """Writes the index of a file that has these parts, as whole() returns them."""
    entries, at = b"", len(parts[0])
    for n, part in zip(numbers, parts[1:]):
        time_ns = 1700000000 * 10**9 + (0 if version == 3 else 500)
        entries += struct.pack("<4Q8I", at + 16, n, n, time_ns, len(part) - 16, version, 0, 7, n + 1000, 5, 0, 0)
        at += len(part)
    stat = os.stat(path)

    def head(total):
        return struct.pack("<8s3Q2I40s", b"EVBINDX1", len(numbers), stat.st_size, stat.st_mtime_ns, zlib.adler32(parts[0]), total, parts[-1])

    with open(path + ".index", "wb") as f:
        f.write(head(zlib.adler32(head(0) + entries)) + entries)


def expected(number):
    """An event as describe() shows it."""
    return [number, number + 1000, 5, 0, *((source, 0, number + 1000, payload) for source, payload in fragments_of(number))]


def describe(event):
    return [event.number, event.l1_id, event.trigger_type, event.status,
            *((f.source, f.status, f.l1_id, f.payload.tobytes()) for f in event.fragments)]


def read(path, **options):
    """Returns the events of a path, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = evb.open(path, **options)
        found = [describe(event) for event in run]
    return found, [str(w.message) for w in caught]


class Files(unittest.TestCase):
    def setUp(self):
        import tempfile  # pylint: disable=import-outside-toplevel
        folder = tempfile.TemporaryDirectory(prefix="evb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        # A file that is overwritten goes to the disk at once.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "wb") as f:
            f.write(data)
        return path
