#!/usr/bin/env python3
"""How nodes and runs end: the exit status, its reasons on standard error, and what signals do.

    test_ends.py EVB CASE
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

from harness import LIMIT_S, ROOT, SMALL, Running, Skip, balance, complete, folder, main, run, scenario, settings
from network import wait_until

ENDLESS = {"trigger.events": 0, "trigger.rate": "1kHz"}
_blocks = iter(range(1, 250))


class Nodes:
    """The nodes of a scenario as services start them: each a process of its own, without `evb run`, at addresses of its own."""

    def __init__(self, evb, where, text=SMALL, keys=None, own=None):
        self.evb, self.where, self.own = evb, pathlib.Path(where), own or {}
        plain = subprocess.run([evb, "check", scenario(where, text, "plain.conf"), *settings(keys or {})], capture_output=True,
                               text=True, check=True).stdout
        block, pid = next(_blocks), os.getpid()
        lines, self.names, self.roles = [], [], {}
        for line in plain.splitlines():
            lines.append(line)
            if line.startswith("[node "):
                self.names.append(line[6:-1])
            if line.startswith("role = ") and self.names:
                self.roles[self.names[-1]] = line[7:]
                lines.append(f"address = 127.{100 + block % 100}.{pid % 250}.{len(self.names)}")
        self.path = scenario(where, "\n".join(lines) + "\n", "nodes.conf")
        self.processes, self.listeners, self.notices = {}, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()
        for listener in self.listeners.values():
            listener.close()

    def listen(self, name):
        """Where the node finds its service manager: each start has a socket of its own."""
        path = self.where / f"{name}.{len(self.listeners)}.notify"
        if name in self.listeners:
            self.listeners.pop(name).close()
            path = path.with_suffix(".again")
            path.unlink(missing_ok=True)
        self.listeners[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.listeners[name].bind(str(path))
        self.notices[name] = ""
        return {**os.environ, "NOTIFY_SOCKET": str(path)}

    def start(self, *names, keys=None):
        for name in names or self.names:
            own = {**(keys or {}), **self.own.get(name, {})}
            # A process that waits for a pipe to be read would not end.
            err, out = open(self.where / f"{name}.err", "wb"), open(self.where / f"{name}.json", "wb")
            with err, out:
                self.processes[name] = subprocess.Popen(
                    [self.evb, self.roles[name], "--config", self.path, "--node", name, "--json", *settings(own)], stdout=out, stderr=err,
                    env=self.listen(name))
        return self

    def signal(self, number, *names):
        for name in names or list(self.processes):
            self.processes[name].send_signal(number)

    def said(self, name):
        """All that the node has told the service manager."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.notices[name] += self.listeners[name].recv(4096).decode() + "\n"
        return self.notices[name]

    def wait_for_notice(self, name, text):
        wait_until(f"{text!r} of {name}", lambda: text in self.said(name) or self.processes[name].poll() is not None)
        assert text in self.said(name), (name, self.processes[name].poll(), self.error(name))

    def error(self, name):
        return (self.where / f"{name}.err").read_text()

    def wait_for_text(self, name, text):
        wait_until(f"{text!r} of {name}", lambda: text in self.error(name) or self.processes[name].poll() is not None)
        assert text in self.error(name), (name, self.processes[name].poll(), self.error(name))

    def end(self, *names):
        """Exit status, report and standard error of each."""
        ends = {}
        for name in names or list(self.processes):
            status = self.processes[name].wait(LIMIT_S)
            text = (self.where / f"{name}.json").read_text()
            ends[name] = (status, json.loads(text) if text else None, self.error(name))
        return ends


def corrupt(evb):
    """One ROS has another seed: the SFI logs the first wrong byte at once, and it and the run end with status 1."""
    with folder() as where:
        keys = {"trigger.events": 50, "ros.count": 3, "sfi.count": 1}
        with Nodes(evb, where, keys=keys, own={"ros2": {"run.seed": 99}}) as nodes:
            ends = nodes.start().end()
            status, report, error = ends["sfi1"]
            assert status == 1 and report["fragments_corrupt"] == 50, ends["sfi1"]
            first = [line for line in error.splitlines() if "corrupt fragment" in line]
            assert len(first) == 1, error
            assert "event 0 of ros2, byte 0 is 0x" in first[0] and "expected 0x" in first[0] and "run.seed" in first[0], first
            assert "50 fragments of 50 events are corrupt; the first: event 0 of ros2, byte 0" in error, error
            assert report["reasons"] == ["50 fragments of 50 events are corrupt; the first: " + first[0].split("fragment: ")[1].split(";")[0]]
            for name in ("dfm", "ros1", "ros2", "ros3"):
                assert ends[name][0] == 0 and ends[name][1]["reasons"] == [], ends[name]


def change_in_memory(pid, before, after):
    """Every word of a process's memory that is `before` becomes `after`; how many there were."""
    found = 0
    maps = [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for words in maps:
            begin, end = (int(part, 16) for part in words[0].split("-"))
            if not words[1].startswith("rw") or end - begin > 16 << 20:
                continue
            memory.seek(begin)
            text = memory.read(end - begin)
            at = text.find(before)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(after)
                found += 1
                at = text.find(before, at + 1)
    return found


def corrupt_run(evb):
    """The same within `evb run`, where ros2 changes its seed on the way: status 1, and the reason at the end."""
    seed = 0x7172737475767778
    keys = {**ENDLESS, "ros.count": 3, "sfi.count": 1, "run.seed": seed}
    with folder() as where, Running(evb, scenario(where), keys) as running:
        running.wait_nodes(5)
        running.wait_running()
        try:
            assert change_in_memory(running.nodes()["ros2"], seed.to_bytes(8, "little"), (99).to_bytes(8, "little")) > 0
        except PermissionError as refusal:
            raise Skip(f"the memory of a child may not be written (ptrace): {refusal}") from refusal
        seen = ""
        while "corrupt fragment" not in seen:
            seen = running.process.stderr.readline()
            assert seen, "the run ended without a word"
        assert seen.startswith("sfi1: ") and "of ros2, byte 0 is 0x" in seen and "expected 0x" in seen, seen
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        balance(report)
        assert running.process.returncode == 1 and report["fragments"]["corrupt"] > 0, (running.process.returncode, err)
        assert report["events_complete"] == report["triggers"], report
        (last,) = [line for line in err.splitlines() if "corrupt" in line]
        assert last.startswith("evb: sfi1: ") and "are corrupt; the first: event" in last, err
        assert report["reasons"] == [last.removeprefix("evb: ")], report["reasons"]


def no_trigger(evb):
    """A run without a trigger ends with status 1 and says why: of a DFM alone, of nodes, of `evb run`."""
    with folder() as where, Nodes(evb, where, keys={"ros.count": 2, "sfi.count": 1}) as nodes:
        nodes.start("dfm")
        nodes.wait_for_notice("dfm", "READY=1")
        nodes.signal(signal.SIGTERM)
        status, report, error = nodes.end()["dfm"]
        text = "no trigger was taken: stopped before the run began; ros1, ros2, sfi1 never reached this DFM"
        assert status == 1 and f"dfm: {text}\n" in error and report["reasons"] == [text], (status, error)
    with folder() as where:
        done = subprocess.run([evb, "run", scenario(where), *settings({"trigger.events": 0, "trigger.kind": "poisson",
                               "trigger.rate": "0.001Hz", "scenario.duration": "300ms"})], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and done.stderr == "evb: no trigger was taken: the first trigger was not due yet\n", done


def stopped_before_begin(evb):
    """`evb run` stopped before its nodes have found each other: status 1, nothing is killed, no node outlives it."""
    with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
        running.wait_for("first node", running.nodes)
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1, (out, err)
        lines = err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("evb: no trigger was taken: "), err
        assert [node["signal"] for node in json.loads(out)["nodes"]] == [None] * 9, out


def no_front_end(evb):
    """A ROS that does not reach its front-end says so after 2 s, once, and when it does; one that never did ends with status 1."""
    with folder() as where:
        spare = socket.create_server(("127.0.0.1", 0))
        port = spare.getsockname()[1]
        spare.close()
        with Nodes(evb, where, keys={"ros.count": 1, "sfi.count": 1, "ros.source": f"tcp:127.0.0.1:{port}"}) as nodes:
            nodes.start("ros1")
            nodes.wait_for_text("ros1", f"ros1: no connection to front-end 127.0.0.1:{port} for 2.0 s (Connection refused)")
            nodes.signal(signal.SIGTERM)
            status, report, error = nodes.end()["ros1"]
            text = f"no connection to front-end 127.0.0.1:{port} was ever made: Connection refused"
            assert status == 1 and report["reasons"] == [text] and f"ros1: {text}\n" in error, (status, error)
        with Nodes(evb, where, keys={"ros.count": 1, "sfi.count": 1, "ros.source": f"tcp:127.0.0.1:{port}"}) as nodes:
            nodes.start("ros1")
            nodes.wait_for_text("ros1", "no connection to front-end")
            # It sends nothing: a connection is enough.
            with socket.create_server(("127.0.0.1", port)) as listener:
                peer, _ = listener.accept()
                nodes.wait_for_text("ros1", f"connected to front-end 127.0.0.1:{port} after ")
                nodes.signal(signal.SIGTERM)
                status, report, error = nodes.end()["ros1"]
                peer.close()
            assert status == 0 and report["reasons"] == [] and error.count("no connection to front-end") == 1, (status, error)


assert SMALL
CASES = {name.replace("_", "-"): case for name, case in list(globals().items())
         if callable(case) and getattr(case, "__module__", "") == "__main__" and name[0].islower()}
main(CASES)
