#!/usr/bin/env python3
"""Prints Wireshark's dissector: the template with the tables of docs/protocol.md and docs/streams.md.

    make-dissector.py TEMPLATE PROTOCOL STREAMS
"""
import pathlib
import re
import sys

# Packets with a layout of their own, by section of protocol.md: name in filters, and its text.
PACKETS = {
    "Triggers from outside": ("triggers", "Triggers"),
    "Busy": ("busy", "Busy"),
    "With a key": ("hello", "Hello"),
}


def quoted(text):
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def plain(text):
    """The text of a cell without marks and links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").strip()


def tables(section):
    """Returns the tables of fields in a section, each with the paragraph before it (its first line) and its rows (name, offset, size, meaning)."""
    found, above, before, rows = [], "", "", None
    for line in section.split("\n"):
        row = re.match(r"\| (\d+) \| (\d*)(?: each)? \| ([a-z0-9_ ]+) \|(.*)\|$", line)
        if line.startswith("| offset | size | field |"):
            rows = []
            found.append((above, rows))
        elif row and rows is not None:
            if row[2]:
                rows.append((row[3].replace(" ", "_"), int(row[1]), int(row[2]), plain(row[4])))
        elif not line.startswith("|"):
            above, rows = (line or above) if not before else above, None
        before = line
    return found


def as_lua(rows):
    size = max((offset + bytes_ for _, offset, bytes_, _ in rows), default=0)
    lines = ", ".join(f"{{ name = {quoted(name)}, offset = {offset}, size = {bytes_}, meaning = {quoted(meaning)} }}"
                      for name, offset, bytes_, meaning in rows)
    return f"{{ bytes = {size}, rows = {{ {lines} }} }}"


def enumeration(text, pattern):
    return "{ " + ", ".join(f"[{number}] = {quoted(name)}" for number, name in re.findall(r"(\d+) ([^,.]+)", re.search(pattern, text, re.S)[1])) + " }"


def named(doc, mark):
    """Returns the sections below headings of this level, by title."""
    return dict(re.findall(rf"^{mark} (.*?)\n(.*?)(?=^#{{2,{len(mark)}}} |\Z)", doc, re.M | re.S))


def generate(protocol, streams):
    parts, sections = named(protocol, "##"), named(protocol, "###")
    bodies = {name: tables(text) for title, text in sections.items() for name in title.split(", ")}
    lines = ["local VERSION = " + re.search(r"protocol version (\d+)", protocol)[1], "local MESSAGES = {"]
    for number, name in re.findall(r"^\| 0x([0-9A-F]{8}) \| (\w+) \|", parts["Types"], re.M):
        items = [f"name = {quoted(name)}"]
        for above, rows in bodies[name]:
            kind = "entry" if above.startswith("Entry (") else "information" if above.startswith("Event information") else "body"
            items.append(f"{kind} = {as_lua(rows)}")
        lines.append(f"  [0x{number}] = {{ {', '.join(items)} }},")
        if name == "Fragments":
            fragments = number
    lines += ["}", f"local FRAGMENTS = 0x{fragments}", f"local HEADER = {as_lua(tables(parts['Header'])[0][1])}", "local PACKETS = {"]
    magics = []
    for title, (name, _) in PACKETS.items():
        found = [rows for _, rows in tables(parts[title]) if rows[0][0] == "magic"][0]
        entry = [rows for above, rows in tables(parts[title]) if above.startswith("Entry (")]
        magics.append(f"[{quoted(re.search(r'bytes .(EVB.)', found[0][3])[1])}] = {quoted(name)}")
        lines.append(f"  {name} = {{ body = {as_lua(found)}" + (f", entry = {as_lua(entry[0])}" if entry else "") + " },")
    trailer = [rows for _, rows in tables(parts["With a key"]) if rows[0][0] == "session"][0]
    stream = [rows for above, rows in tables(named(streams, "###")["Packets"]) if above.startswith("Plain")][0]
    lines += ["}", "local PACKET_NAMES = { " + ", ".join(f"{name} = {quoted(text)}" for name, text in PACKETS.values()) + " }",
              "local PACKET_MAGICS = { " + ", ".join(magics) + " }", f"local TRAILER = {as_lua(trailer)}",
              f"local STREAM = {as_lua(stream)}",
              "local FORMS = " + enumeration(sections["Fragments"], r"The forms are (.*?)\. The\s"),
              "local STATUSES = " + enumeration(sections["Fragments"], r"statuses are (.*?)\.\n")]
    return "\n".join(lines)


def main():
    template, protocol, streams = (pathlib.Path(path).read_text() for path in sys.argv[1:])
    print(template.replace("@TABLES@", generate(protocol, streams)), end="")


if __name__ == "__main__":
    main()
