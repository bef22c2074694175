#!/usr/bin/env python3
"""Reads event files by the tables of docs/event-format.md alone, which give the position of each word.

    test_event_format_doc.py EVENT_TOOL
"""
import binascii
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

TOOL = sys.argv[1]
DOC = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "event-format.md").read_text()
SOURCES, EVENTS = 3, 5


def read_tables():
    """Returns the rows of all tables, by section and the name of their last column."""
    found, section, rows = {}, "", None
    for line in DOC.split("\n"):
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if not cells:
            rows = None
        elif rows is None:
            rows = found[section, cells[1]] = []
        else:
            rows.append(cells)
    return found


TABLES = read_tables()


def rows_of(section, name):
    (rows,) = (rows for (s, n), rows in TABLES.items() if s.startswith(section) and n == name)
    return rows


def place(rows, text):
    """The word, or first word, of the row whose text is this one or begins so."""
    (row,) = [row for row in rows if row[1] == text] or [row for row in rows if row[1].startswith(text)]
    return int(re.match(r"\d+", row[0])[0])


def markers(text):
    return {name: int(word, 16) for name, word in re.findall(r"([a-zA-Z-]+) `([0-9A-F]{8})`", text)}


def words_of(raw):
    return struct.unpack(f"<{len(raw) // 4}I", raw)


class Format:
    """What the section of a format says of headers."""

    def __init__(self, major):
        self.section = f"Raw event format v{major}.0"
        name = "header of an event, sub-detector, ROS or ROB" if major == 3 else "header of an event or ROB"
        self.header = rows_of(self.section, name)
        self.markers = markers(self.header[1][1])
        self.version = int(re.search(r"`(\d{8})`", next(row[1] for row in self.header if row[1].startswith("version")))[1], 16)
        self.event = rows_of(self.section, "event")
        # Behind the status words: the number of specific words, or the type of the checksum.
        self.has_sum = major == 5

    def read(self, words, at, kind):
        """Returns size, source, specific words and content of the fragment that begins at a word."""
        size, header, source, n_status = (words[at + place(self.header, text)] for text in
                                          ("total size", "header size", "source ID", "number of status words"))
        assert words[at] == self.markers[kind] and words[at + place(self.header, "version")] == self.version
        after = at + place(self.header, "the status words") + n_status
        specific = words[after + 1:at + header]
        assert self.has_sum or words[after] == len(specific), kind
        end = at + size
        if self.has_sum:
            assert words[after] == 2, "checksum type"
            end -= 1
            assert words[end] == zlib.adler32(struct.pack(f"<{end - at - header}I", *words[at + header:end])), kind
        return size, source, specific, (at + header, end)


def read_rod(form, words, begin, end):
    table = rows_of("Raw event format v3.0", "ROD")
    n_status, n_data, data_first = words[end - 3:end]
    data = begin + place(table, "the data words")
    assert words[begin] == markers("ROD " + table[1][1].split()[1])["ROD"] and data_first == 1
    assert end - begin == words[begin + place(table, "header size")] + n_data + n_status + 3 and n_status == 2
    payload = struct.pack(f"<{n_data}I", *words[data:data + n_data])
    length = words[data + n_data + 1]  # "the true length of the payload in bytes"
    assert len(payload) - length < 4 and not any(payload[length:])
    return words[begin + place(table, "source ID")], words[begin + place(table, "L1 ID")], length


def children(form, words, span, kind):
    begin, end = span
    while begin < end:
        size, *found = form.read(words, begin, kind)
        yield found
        begin += size
    assert begin == end


def read_event(form, raw):
    """Returns the specific words, the stamp, and the RODs."""
    words = words_of(raw)
    size, _, specific, span = form.read(words, 0, "event")
    assert size == len(words)
    if form.has_sum:
        robs = [rob for _, _, rob in children(form, words, span, "ROB")]
        at = place(form.event, "number of payload words") + 1
        for _ in range(2):  # L1 and L2 words
            at += 1 + specific[at]
        assert specific[at] == 12
        stamp, stamp_end = specific[at + 5:at + 13], span[0] - 1
    else:
        *subdets, (source, stamp, (begin, stamp_end)) = children(form, words, span, "sub-detector")
        assert source >> 16 == 0x79 and begin == stamp_end == size
        robs = [rob for _, _, subdet in subdets for _, _, ros in children(form, words, subdet, "ROS")
                for _, _, rob in children(form, words, ros, "ROB")]
    assert stamp[-1] == zlib.adler32(raw[:4 * (stamp_end - 1)])
    return specific, stamp, [read_rod(form, words, *rob) for rob in robs]


def record(name):
    """The markers of a record, and its fields."""
    (row,) = (row for row in rows_of("EventStorage files", "words") if row[0].startswith(name))
    return [int(word, 16) for word in re.findall(r"`([0-9A-F]{8})`", row[1])], row[1].split(", ")


def check(major):
    form = Format(major)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([TOOL, "pattern", folder, f"eformat{major}", str(SOURCES), str(EVENTS)], check=True, capture_output=True,
                              text=True)
        raw = pathlib.Path(done.stdout.strip()).read_bytes()
    ((data,), fields), ((end, end_mark), end_fields) = record("data"), record("file end")
    begin = at = raw.index(struct.pack("<2I", data, int(fields[1])))
    stamps = rows_of("The stamp", "content")
    blocks = 0
    for n in range(EVENTS):
        words = words_of(raw[at:at + 16])
        block, size = words[fields.index("block number")], words[fields.index("size of the event in bytes")]
        blocks ^= block
        specific, stamp, rods = read_event(form, raw[at + 16:at + 16 + size])
        assert [specific[place(form.event, text)] for text in ("run", "L1 ID", "global ID")] == [12, n, n]
        low = place(stamps, "the event number")
        assert stamp[0] == int(re.search(r"`(\d{8})`", stamps[1][1])[1], 16)
        assert (stamp[low], stamp[low + 1], block) == (n, 0, n + 1)
        assert rods == [(0x700000 + s, n, (37 * n + 11 * s) % 1000) for s in range(SOURCES)], rods
        at += 16 + size
    words = words_of(raw[at:])
    assert words[0] == end and words[-1] == end_mark and len(words) == int(end_fields[1])
    status = words[-2]
    unsummed = raw[at:-8] + struct.pack("<2I", status & ~(0xffff << 8), end_mark)
    crc = binascii.crc_hqx(raw[:begin] + struct.pack("<I", blocks) + unsummed, 0xFFFF)
    assert (status & 1, status >> 8 & 0xffff, status >> 24) == (1, crc, 0xEB), f"{status:08x}, CRC {crc:04x}"


check(3)
check(5)
