#!/usr/bin/env python3
"""Consumers of live events of real runs.

    test_live.py EVB [CASE...]
"""
import collections
import contextlib
import hashlib
import json
import re
import subprocess

from harness import LIMIT_S, SMALL, Background, Running, complete, events_of, folder, listens, main, scenario

ENDLESS = SMALL.replace("events = 2000", "rate = 3kHz\nevents = 0")


class Live(Background):
    """A consumer, evb live."""

    def __init__(self, evb, socket, *options):
        self.process = subprocess.Popen([evb, "live", f"unix:{socket}", *map(str, options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def end(self):
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, f"exit {self.process.returncode}: {err}\n{out}"
        return out


@contextlib.contextmanager
def run_with_sockets(evb, where, keys=None):
    """A run that goes on until it is stopped, with the sockets of its SFIs."""
    (where / "data").mkdir()
    keys = {"sfi.output": "file", "sfi.directory": where / "data", "live.listen": f"unix:{where}/%n", **(keys or {})}
    with Running(evb, scenario(where, ENDLESS), keys) as running:
        running.wait_for("sockets of both SFIs", lambda: listens(where / "sfi1") and listens(where / "sfi2"))
        yield running


def content(where):
    """Counts the events of files by L1 ID and payload."""
    return collections.Counter((l1_id, hashlib.sha256(b"".join(payloads)).hexdigest()) for path in where
                               for l1_id, payloads in events_of(path))


def of_node(report, name):
    return next(node for node in report["nodes"] if node["name"] == name)


def command(evb):
    """evb live receives what the files hold, and its counts agree with the SFI's."""
    with folder() as where, run_with_sockets(evb, where) as running:
        with Live(evb, where / "sfi1", "--mode", "skip", "--output", where / "live.data") as whole:
            sample = [json.loads(line) for line in Live(evb, where / "sfi2", "--stride", 7, "--count", 100, "--json").end().splitlines()]
            running.wait_for("live events of sfi1", lambda: running.counter("sfi1", "live_events") >= 100)
            running.process.terminate()
            report = running.end({0})
            line = whole.end()
        complete(report)
        found = content([where / "live.data"])
        assert max(found.values()) == 1 and not found - content((where / "data").glob("*.data")), "events that are in no file"
        n, offered, skipped = map(int, re.fullmatch(r"(\d+) events, .*; (\d+) offered, (\d+) skipped\n", line).groups())
        sfi1, sfi2 = of_node(report, "sfi1"), of_node(report, "sfi2")
        assert n == len(found) == sfi1["live_events"] and offered == n + skipped and sfi1["live_events_skipped"] >= skipped, line
        assert len(sample) == 100 and [e["given"] for e in sample] == list(range(1, 101)) and sfi2["live_events"] >= 100
        assert all(e["offered"] == 7 * (e["given"] + e["skipped"]) - 6 and e["bytes"] > 6 * 1024 for e in sample), sample


def refused(evb):
    """What cannot work is explained, with exit status 2 if another command line helps."""
    with folder() as where:
        for options, status, text in ((["nowhere"], 2, 'invalid address "nowhere"; expected unix:PATH'),
                                      ([f"unix:{where}/none"], 1, "No such file or directory; does an SFI run there, with live.listen?"),
                                      (["unix:x", "--mode", "all"], 2, "mode: invalid value; expected newest or skip"),
                                      (["unix:x", "--count", "0"], 2, '--count: invalid value "0"; expected 1 or more'),
                                      (["unix:x", "--output", where], 2, "exists; expected the name of a new file")):
            done = subprocess.run([evb, "live", *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == status and text in done.stderr and not done.stdout, (options, done)


main({"command": command, "refused": refused})
