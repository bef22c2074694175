#!/usr/bin/env python3
"""Runs whose SFI receives in several threads (sfi.receive-threads): events, files and accounts are as without.

    test_receive_threads.py EVB [CASE...]
"""
import contextlib
import json
import pathlib
import subprocess

from harness import CHANCE, LIMIT_S, Running, chance_of_missing, chance_of_no_loss, complete, folder, main, run, scenario

KEYS = {"ros.count": 2, "ros.fragment-size": 3000, "sfi.count": 1, "sfi.receive-threads": 2, "sfi.output": "file"}


def receive_threads(pid):
    """Returns the number of a process's threads that receive; 0 once it has ended."""
    names = []
    with contextlib.suppress(OSError):
        names = [(task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return names.count("evb-receive")


def verified(evb, path):
    done = subprocess.run([evb, "dump", path, "--verify", "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    dumped = json.loads(done.stdout)
    assert done.returncode == 0 and dumped["verify"]["right"] and dumped["verify"]["pattern_wrong"] == 0, dumped
    assert dumped["verify"]["pattern_fragments"] == dumped["events"] * 2, dumped
    return dumped["events"]


def check(evb, report):
    """All events are complete and in the file. Returns the reports of the SFI and of the ROSs."""
    complete(report)
    (path,) = report["files"]
    assert verified(evb, path) == report["triggers"]
    nodes = {node["name"]: node for node in report["nodes"]}
    return nodes["sfi1"], [nodes["ros1"], nodes["ros2"]]


def lossless(evb, mode):
    keys = {**KEYS, "scenario.mode": mode, "trigger.events": 0, "trigger.rate": "2kHz"}
    with folder() as where, Running(evb, scenario(where), {**keys, "sfi.directory": where}) as running:
        running.wait_nodes(4)
        running.wait_running()
        assert receive_threads(running.nodes()["sfi1"]) == 2
        running.wait_for("1000 events", lambda: running.counter("sfi1", "events_complete") >= 1000)
        running.signal()
        report = running.end(expect=(0,))
        sfi, ross = check(evb, report)
    assert report["fragments"]["lost"] == report["fragments"]["malformed"] == report["fragments"]["foreign"] == 0, report
    assert all(ros["packets_sent"] > 0 for ros in ross), ross
    missing = sum(ros["packets_sent"] for ros in ross) - sfi["packets_received"] - sfi["packets_socket_dropped"]
    # The answer to a retry may come when the SFI has left.
    assert missing == 0 or 0 < missing <= report["fragments"]["re_asked"] * 3, (missing, sfi, ross)
    assert sfi["packets_socket_dropped"] == report["drops"]["socket_packets"], (sfi, report["drops"])


def loss(evb):
    """Each socket injects its own faults; retries complete every event."""
    # A fragment of 3000 bytes takes at least 2 datagrams of 1472 bytes, or parts of them, and at most 3.
    assert chance_of_missing(2000 * 2 * 3, 0.05) < CHANCE and chance_of_no_loss(2000 * 2 * 2, 0.05) < CHANCE
    with folder() as where:
        report = run(evb, scenario(where), {**KEYS, "sfi.directory": where, "trigger.events": 2000, "network.loss": "0.05",
                                            "network.reorder": "0.02", "network.duplicate": "0.02"})
        sfi, ross = check(evb, report)
    assert report["triggers"] == 2000 and report["fragments"]["recovered"] > 0, report
    assert report["drops"]["network_packets"] > 0 and sfi["packets_lost"] > 0, (report["drops"], sfi)
    assert sfi["packets_received"] > 0.8 * sum(ros["packets_sent"] for ros in ross), (sfi, ross)


main({"push": lambda evb: lossless(evb, "push"), "pull": lambda evb: lossless(evb, "pull"), "loss": loss})
