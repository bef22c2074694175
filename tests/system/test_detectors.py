#!/usr/bin/env python3
"""The worked example of docs/detectors.md, followed as a reader would, from boards to a plot.

    test_detectors.py EVB CASE
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from harness import LIMIT_S, OWN_NET, ROOT, Skip, folder, main

EVENTS = 500


def blocks(where):
    """Writes the files of the example, for addresses of this test."""
    text = (ROOT / "docs" / "detectors.md").read_text()
    for block in re.findall(r"^```\w+\n(.*?)^```$", text, re.M | re.S):
        name = re.match(r"# (\S+\.(?:py|conf)): ", block)
        if name:
            (where / name[1]).write_text(block.replace("127.69.86", OWN_NET))


def remove_unknown_keys(evb, path):
    """Removes keys that this version does not know from the scenario, and returns their names."""
    done = subprocess.run([evb, "check", path], capture_output=True, text=True, cwd=path.parent, timeout=60)
    unknown = re.findall(r":(\d+): (\S+): unknown key", done.stderr)
    assert done.returncode == (2 if unknown else 0), done.stderr
    lines = path.read_text().splitlines()
    for number, _ in unknown:
        lines[int(number) - 1] = ""
    path.write_text("\n".join(lines) + "\n")
    return [name for _, name in unknown]


class Dfm:
    """Says that it takes triggers, for a DFM that cannot."""

    def __init__(self):
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            while not self.ended.wait(0.05):
                s.sendto(struct.pack("<4sBBHQ", b"EVBB", 0, 0, 0, 0), (f"{OWN_NET}.2", 26911))

    def close(self):
        self.ended.set()
        self.thread.join()


def wait_until_ros_listen():
    wanted = [f" {struct.unpack('=I', socket.inet_aton(f'{OWN_NET}.{i}'))[0]:08X}:{26901:04X} " for i in (11, 12)]
    deadline = time.monotonic() + LIMIT_S
    while not all(w in pathlib.Path("/proc/net/udp").read_text() for w in wanted):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def processes(commands, where):
    running = [subprocess.Popen(command, cwd=where, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        yield running
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def boards(where):
    done = subprocess.run([sys.executable, "-B", "boards.py", str(EVENTS)], cwd=where, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done


def run_as_described(evb, where):
    with processes([[evb, "run", "beam.conf", "--json"]], where) as (run,):
        boards(where)
        # The last frames are built within this time, or they are lost.
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=LIMIT_S)
        assert run.returncode == 0, err
        return json.loads(out)


def run_keeps_addresses(evb, path):
    """Whether `evb run` uses the addresses of the scenario, since ROSs have sources of their own."""
    done = subprocess.run([evb, "check", path, "--set", "node ros1.source=udp:26901"], capture_output=True, text=True, timeout=60)
    return done.returncode == 0


def run_by_hand(evb, where, outside):
    """Each node is a process of its own. If triggers cannot come from outside, the DFM makes them, and the test says ready."""
    keys = ["--json", "--set", "sfi.verify=no", "--set", "sfi.timeout=30s", "--set", "dfm.event-timeout=60s"]
    if not outside:
        keys += ["--set", "trigger.rate=max", "--set", f"trigger.events={EVENTS}", "--set", "sfi.credits=100"]
    nodes = [("ros", "ros1"), ("ros", "ros2"), ("sfi", "sfi1"), ("dfm", "dfm")]
    with processes([[evb, role, "--config", "beam.conf", "--node", name, *keys] for role, name in nodes], where) as running:
        wait_until_ros_listen()
        with contextlib.closing(Dfm()) if not outside else contextlib.nullcontext():
            boards(where)
        if outside:
            time.sleep(1)
            running[-1].send_signal(signal.SIGINT)
        results = [process.communicate(timeout=LIMIT_S) for process in running]
        assert all(process.returncode == 0 for process in running), results
        return json.loads(results[-1][0])


def plot(evb):
    if not importlib.util.find_spec("matplotlib"):
        raise Skip("matplotlib is not installed")
    with folder() as where:
        blocks(where)
        (where / "data").mkdir()
        unknown = remove_unknown_keys(evb, where / "beam.conf")
        if unknown or not run_keeps_addresses(evb, where / "beam.conf"):
            report = run_by_hand(evb, where, outside=not unknown)
        else:
            report = run_as_described(evb, where)
        assert report["events_complete"] == EVENTS and report["events_partial"] == report["events_lost"] == 0, report
        files = [str(path) for path in (where / "data").glob("*.data")]
        done = subprocess.run([sys.executable, "-B", "plot.py", *files], cwd=where, capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, "EVB": evb})
        assert done.returncode == 0 and done.stdout == f"{EVENTS} events with both boards\n", done
        assert (where / "beam.png").read_bytes().startswith(b"\x89PNG"), "no plot"


main({"plot": plot})
