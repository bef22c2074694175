#!/usr/bin/env python3
"""Compares docs/protocol.md with the code: numbers and names of types, and the offset of each field.

    test_protocol_doc.py PROTOCOL_LAYOUT
"""
import json
import pathlib
import re
import subprocess
import sys

DOC = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()
HEADER_BYTES = 32
VOID = 2 ** 64 - 2
FIXED = {}


def tables(section):
    """Returns the field tables of a section: {"body": {field: (offset, size)}, "Entry": …}."""
    found, name = {}, "body"
    for line in section.split("\n"):
        if match := re.match(r"(Entry|Event information) \((\d+) bytes\)", line):
            name = match[1]
            found[name] = {"": (0, int(match[2]))}
        elif match := re.match(r"\| (\d+) \| (\d+)(?: each)? \| ([a-z0-9_ ]+) \|", line):
            found.setdefault(name, {})[match[3]] = (int(match[1]), int(match[2]))
    return found


def span(table):
    return max(offset + size for offset, size in table.values())


def check_message(name, message, section):
    raw = bytes.fromhex(message["bytes"])
    documented = tables(section)
    start = {"body": HEADER_BYTES}
    start["Entry"] = HEADER_BYTES + span(documented.get("body", {"": (0, 0)}))
    start["Event information"] = len(raw) - span(documented.get("Event information", {"": (0, 0)}))
    for part, field, value, size in message["fields"]:
        offset, documented_size = documented[part][field]
        assert documented_size == size, \
            f"{name}: {part}: {field}: {documented_size} bytes in the document, {size} in the code"
        at = start[part] + offset
        found = int.from_bytes(raw[at:at + min(size, 8)], "little")
        assert found & (2 ** 32 - 1 if size == 16 else 2 ** 64 - 1) == value, \
            f"{name}: {part}: {field} is not at offset {offset}"
    in_code = {(part, field) for part, field, _, _ in message["fields"]}
    in_document = {(part, field) for part, table in documented.items()
                   for field in table if field not in ("", "reserved")}
    assert in_code == in_document, f"{name}: only the code or the document has {in_code ^ in_document}"
    compact = len(Compact(raw, HEADER_BYTES + span(documented["body"])).entries("announcement", 1)[1]) \
        if name == "Assign" else 0
    assert len(raw) == HEADER_BYTES + compact + sum(span(table) for table in documented.values()), \
        f"{name}: {len(raw)} bytes"


def number(raw, at):
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return value, at


def signed(value):
    return -(value + 1) // 2 if value % 2 else value // 2


class Compact:
    """Reads compact entries as the section "Compact entries" describes them."""

    def __init__(self, raw, at):
        self.raw, self.at, self.begin = raw, at, at

    def fixed(self, size):
        self.at += size
        return int.from_bytes(self.raw[self.at - size:self.at], "little")

    def varint(self):
        value, self.at = number(self.raw, self.at)
        return value

    def near(self, expected):
        return (expected + signed(self.varint())) % 2 ** 64

    def entry(self, name, before):
        event_before, l1_before, value_before = before
        coded = self.varint()
        flags = self.fixed(1) if coded & 1 else 0
        event = (event_before + 1 + signed(coded >> 1)) % 2 ** 64
        if flags & 1:
            event = self.fixed(8)
        if flags & 2:
            event = VOID
        if name == "Update":
            payload = self.near(value_before)
            missing = self.varint() if flags & 4 else 0
            absent = self.varint() if flags & 32 else 0
            return [event, flags >> 3 & 3, flags >> 6 & 1, missing, absent, payload], (event, 0, payload)
        l1_id = (l1_before + event - event_before) % 2 ** 32
        if flags & 4:
            l1_id = self.fixed(4)
        if name == "Request":
            first, last = (self.varint(), self.varint()) if flags & 8 else (0, 2 ** 32 - 1)
            again = self.varint() if flags & 16 else 0
            return [event, l1_id, first, last, again], (event, l1_id, 0)
        sfi = self.varint() if name == "announcement" else 3
        time = self.near(value_before) if name == "Assign" and event != VOID else 0
        return [event, 0 if event == VOID else l1_id, sfi, time], (event, l1_id, time)

    def entries(self, name, n, oldest=0):
        found, before = [], (2 ** 64 - 1, 2 ** 32 - 1, 0)
        if name in ("Clear", "ClearById"):
            event, l1_id = oldest - 1, 2 ** 32 - 1
            for _ in range(n):
                previous, event = event, self.near(event + 1)
                if name == "ClearById":
                    l1_id = (l1_id + event - previous + signed(self.varint())) % 2 ** 32
                found.append([event, l1_id] if name == "ClearById" else [event])
            return found, self.raw[self.begin:self.at]
        if name == "Numbers":
            number = 2 ** 32 - 1
            for _ in range(n):
                number = (number + 1 + signed(self.varint())) % 2 ** 32
                found.append([number])
            return found, self.raw[self.begin:self.at]
        for _ in range(n):
            values, after = self.entry(name, before)
            if values[0] != VOID:
                before = after
            found.append(values)
        return found, self.raw[self.begin:self.at]


def check_compact(sample, transaction=0x06070809):
    name, raw = sample["name"], bytes.fromhex(sample["bytes"])
    section = {"announcement": "Assign", "ClearById": "Clear"}.get(name, name)
    reader = Compact(raw, HEADER_BYTES + FIXED[section])
    found, _ = reader.entries(name, len(sample["entries"]), oldest=990)
    if section == "Assign":
        for k, values in enumerate(found):
            values.insert(2, 0 if name == "announcement" else transaction + k)
    assert found == sample["entries"], f"{name}: {found} by the document, {sample['entries']} by the code"
    assert reader.at == len(raw), f"{name}: {len(raw) - reader.at} bytes are left"


def read_directory(raw, at, index):
    """Reads the entries by the rules of the document."""
    chunks, step = [], 1
    last = {"event": 0, "l1_id": 0, "fragment_bytes": 0, "order": index, "form": 0, "status": 0}
    while True:
        flags, at = raw[at], at + 1
        c = dict(last, event=(last["event"] + step) % 2 ** 64)
        if flags & 0x01:
            value, at = number(raw, at)
            c["event"] = (last["event"] + signed(value)) % 2 ** 64
        c["l1_id"] = (last["l1_id"] + c["event"] - last["event"]) % 2 ** 32
        if flags & 0x02:
            value, at = number(raw, at)
            c["l1_id"] = (c["l1_id"] + signed(value)) % 2 ** 32
        if flags & 0x04:
            c["fragment_bytes"], at = number(raw, at)
        blocks, at = number(raw, at) if flags & 0x08 else (0, at)
        c["offset"] = 32 * blocks
        blocks, at = number(raw, at) if flags & 0x10 else (0, at)
        c["length"] = 32 * blocks if flags & 0x10 else c["fragment_bytes"] - c["offset"]
        if flags & 0x20:
            c["order"], at = number(raw, at)
            c["form"], c["status"], at = raw[at] & 15, raw[at] >> 4, at + 1
        assert flags & 0x40 == 0
        if chunks:
            step = c["event"] - last["event"]
        chunks.append(c)
        last = {name: c[name] for name in last}
        if flags & 0x80:
            return chunks, at


def check_fragments(layout, section):
    message = layout["messages"]["Fragments"]
    raw = bytes.fromhex(message["bytes"])
    documented = tables(section)["body"]
    for _, field, value, size in message["fields"]:
        offset, documented_size = documented.pop(field)
        assert documented_size == size, f"Fragments: {field}: {documented_size} bytes in the document, {size} in the code"
        found = int.from_bytes(raw[offset:offset + size], "little")
        assert found == value, f"Fragments: {field} is not at offset {offset}"
    assert not documented, f"Fragments: only the document has {documented}"
    flags = {name: int(flag, 16) for flag, name in re.findall(r"^\| (0x[0-9A-F]{2}) \| (\w+) \|", section, re.M)}
    assert flags == layout["flags"], (flags, layout["flags"])
    chunks, at = read_directory(raw, 20, 5)
    assert chunks == layout["chunks"], f"Fragments: read by the document: {chunks}, encoded: {layout['chunks']}"
    assert at == len(raw)


def check_packet(name, packet):
    """Checks a datagram to or from a trigger box: it has no header, and each field has its place."""
    raw = bytes.fromhex(packet["bytes"])
    documented = tables(DOC.split(f"\n## {name}\n")[1].split("\n## ")[0])
    found = {(part, field) for part, table in documented.items() for field in table if field not in ("", "reserved")}
    assert found == {(part, field) for part, field, _, _ in packet["fields"]}, f"{name}: {found}"
    for part, field, value, size in packet["fields"]:
        offset, documented_size = documented[part][field]
        at = offset + (span(documented["body"]) if part == "Entry" else 0)
        assert documented_size == size, f"{name}: {field}: {documented_size} bytes in the document, {size} in the code"
        assert int.from_bytes(raw[at:at + size], "little") == value, f"{name}: {field} is not at offset {offset}"
    assert len(raw) == sum(span(table) for table in documented.values()), f"{name}: {len(raw)} bytes"


def check_header(message):
    raw = bytes.fromhex(message["bytes"])
    table = tables(DOC.split("## Header")[1].split("## Types")[0])["body"]
    wanted = {"magic": 0x31425645, "version": 6, "sender": 3 << 12 | 5, "cookie": 0x0102030405060708,
              "type": message["type"], "transaction": 0x06070809, "payload bytes": len(raw) - HEADER_BYTES}
    for field, value in wanted.items():
        offset, size = table[field]
        assert int.from_bytes(raw[offset:offset + size], "little") == value, field

    def check_word(data):
        h = 0x9E3779B97F4A7C15 ^ len(data)
        for i in range(0, len(data), 8):
            h = (h ^ int.from_bytes(data[i:i + 8], "little")) * 0xD6E8FEB86659FD93 % 2 ** 64
            h ^= h >> 32
        return h % 2 ** 32

    offset, size = table["check"]
    assert int.from_bytes(raw[offset:offset + size], "little") == check_word(raw[:28]) ^ check_word(raw[HEADER_BYTES:])


def main():
    layout = json.loads(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout)
    types = re.findall(r"^\| 0x([0-9A-F]{8}) \| (\w+) \|", DOC, re.M)
    assert [[int(number, 16), name] for number, name in types] == layout["types"], "the table of types differs"
    sections = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", DOC, re.M | re.S))
    by_name = {name: text for title, text in sections.items() for name in title.split(", ")}
    in_code = {name for _, name in layout["types"]}
    del by_name["Compact entries"]
    assert set(by_name) == in_code, set(by_name) ^ in_code
    for name, message in layout["messages"].items():
        if name != "Fragments":
            check_message(name, message, by_name[name])
            FIXED[name] = span(tables(by_name[name]).get("body", {"": (0, 0)}))
    for name, packet in layout["packets"].items():
        check_packet(name, packet)
    check_fragments(layout, by_name["Fragments"])
    for sample in layout["compact"]:
        check_compact(sample)
    check_header(layout["messages"]["Update"])
    print(f"ok: {len(layout['messages'])} kinds of messages")


main()
