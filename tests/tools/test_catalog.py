#!/usr/bin/env python3
"""Tests the message catalog: it has an entry for each message ID, and systemd reads it.

    test_catalog.py CASE
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CATALOG = ROOT / "configs" / "systemd" / "evb.catalog"
# Fields that src/base/log.h promises.
FIELDS = {"EVB_NODE", "EVB_ROLE", "EVB_RUN", "EVB_EVENT", "EVB_PEER"}


def message_ids():
    header = (ROOT / "src" / "base" / "log.h").read_text()
    return dict(re.findall(r'^#define LOG_ID_(\w+) "([0-9a-f]{32})"', header, re.M))


def entries():
    """Each ID has one entry under its name, and each entry an ID that the sources use."""
    ids, catalog = message_ids(), CATALOG.read_text()
    assert len(ids) > 10 and len(set(ids.values())) == len(ids), ids
    found = dict(re.findall(r"^# (\w+)\n-- ([0-9a-f]{32})$", catalog, re.M))
    assert found == ids, set(found.items()) ^ set(ids.items())
    assert len(re.findall(r"^-- ", catalog, re.M)) == len(ids), "an entry without a name, or two of one ID"
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.c"))
    unused = [name for name in ids if f"LOG_ID_{name}" not in sources]
    assert not unused, unused


def syntax():
    """journalctl compiles the catalog and finds each entry, with a subject, a page, and known fields only."""
    if not shutil.which("journalctl"):
        print("SKIPPED syntax: journalctl is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="evb-test-") as root:
        folder = pathlib.Path(root) / "usr" / "lib" / "systemd" / "catalog"
        folder.mkdir(parents=True)
        shutil.copy(CATALOG, folder)
        done = subprocess.run(["journalctl", f"--root={root}", "--update-catalog"], capture_output=True, text=True, check=True)
        assert done.stderr == "", done.stderr
        for name, message_id in message_ids().items():
            text = subprocess.run(["journalctl", f"--root={root}", "--dump-catalog", message_id], capture_output=True, text=True, check=True).stdout
            head, _, body = text.partition("\n\n")
            assert re.search(r"^Subject: \S", head, re.M) and re.search(r"^Defined-By: evb$", head, re.M), (name, text)
            page = re.search(r"^Documentation: man:(\S+)\((\d)\)$", head, re.M)
            assert page and (ROOT / "docs" / "man" / f"{page[1]}.{page[2]}.in").exists(), (name, text)
            assert len(body) > 10 and set(re.findall(r"@(\w+)@", text)) <= FIELDS, (name, text)
            assert max(map(len, body.splitlines())) <= 120, (name, text)


if __name__ == "__main__":
    {"entries": entries, "syntax": syntax}[sys.argv[1]]()
    print(f"ok {sys.argv[1]}")
