#!/usr/bin/env python3
"""Nodes that start one by one, as services do: which nodes may join a run, and what happens when its DFM dies
and starts again.

    test_join.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from harness import LIMIT_S, OWN_NET, folder, main

BASE = """
[scenario]
mode = push
[trigger]
rate = 2kHz
events = 6000
[dfm]
node-timeout = 3s
[test]
keep-alive = 50ms
[ros]
fragment-size = 500
[sfi]
timeout = 20s
output = file
directory = {folder}
[network]
control-group = none
"""
# A node that starts late, or gets no processor for a while, is not given up.
PATIENT = {"dfm.node-timeout": "20s"}
ROLES = {"dfm": "dfm", "ros1": "ros", "ros2": "ros", "ros3": "ros", "sfi1": "sfi", "sfi2": "sfi"}


class Bed:
    """A scenario whose nodes have addresses of this test only, and its processes."""

    def __init__(self, evb, where, keys=None):
        self.evb, self.folder, self.processes, self.logs = evb, pathlib.Path(where), {}, {}
        self.keys = keys or {}
        self.addresses = {name: f"{OWN_NET}.{i}" for i, name in enumerate(ROLES, 1)}
        self.file = self.write("test.conf", ROLES)

    def write(self, name, roles, **changes):
        text = BASE.format(folder=self.folder)
        for node, role in roles.items():
            text += f"[node {node}]\nrole = {role}\naddress = {changes.get(node, self.addresses[node])}\n"
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, node, file=None, keys=None, name=None):
        """`name` distinguishes the processes if a node is started twice."""
        name = name or node
        arguments = [self.evb, ROLES[node], "--config", str(file or self.file), "--node", node, "--json", str(self.folder / f"{name}.json")]
        for key, value in {**self.keys, **(keys or {})}.items():
            arguments += ["--set", f"{key}={value}"]
        self.logs[name] = open(self.folder / f"{name}.log", "a+", encoding="utf-8")
        environment = dict(os.environ, XDG_STATE_HOME=str(self.folder / "state"), EVB_LOG="debug")
        self.processes[name] = subprocess.Popen(arguments, stderr=self.logs[name], stdout=subprocess.DEVNULL, env=environment)
        return self

    def start_all(self, *nodes, **options):
        for node in nodes or ROLES:
            self.start(node, **options)
        return self

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def wait(self, what, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what} in {LIMIT_S} s\n" + "\n".join(f"{n}: {self.log(n)}" for n in self.logs)
            time.sleep(0.01)

    def wait_log(self, name, text):
        self.wait(f'"{text}" of {name}', lambda: text in self.log(name))

    def wait_in_run(self, name):
        """Waits until the node has heard of the run's state."""
        self.wait(f"run at {name}", lambda: re.search(r"run \d+ has begun: ", self.log(name)))

    def wait_written(self, size, files="*.writing"):
        self.wait(f"{size} bytes of events", lambda: sum(p.stat().st_size for p in self.folder.glob(files)) > size)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self, name, expect=0):
        """Waits for the end of a process and returns its report."""
        status = self.processes[name].wait(timeout=LIMIT_S)
        assert status == expect, f"{name}: exit {status}, not {expect}: {self.log(name)}"
        text = (self.folder / f"{name}.json").read_text()
        return json.loads(text) if text else None

    def end_all(self, expect=0):
        return {name: self.end(name, expect) for name in ROLES}

    def run_record(self):
        """The DFM's record of the run; the one of its processes stands next to it."""
        name = re.compile(rf"dfm-{re.escape(self.addresses['dfm'])}-\d+")
        (record,) = (p for p in (self.folder / "state" / "evb").iterdir() if name.fullmatch(p.name))
        return record

    def events(self):
        """Returns the L1 IDs of all events in the files, which equal the trigger numbers."""
        found = []
        for path in sorted(self.folder.glob("*.data")):
            done = subprocess.run([self.evb, "dump", str(path), "--tree"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
            for event in re.split(r"^event ", done.stdout, flags=re.M)[1:]:
                numbers = set(re.findall(r"L1 id (\d+)", event))
                assert len(numbers) == 1, f"an event with fragments of different triggers: {event}"
                found.append(int(numbers.pop()))
        return found

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for log in self.logs.values():
            log.close()


@contextlib.contextmanager
def bed(evb, keys=None):
    with folder() as where, contextlib.closing(Bed(evb, where, keys)) as b:
        yield b


def stop_later(b):
    """Stops the run after further events."""
    b.wait_written(2 * sum(p.stat().st_size for p in b.folder.glob("*.writing")))
    b.processes["dfm"].send_signal(signal.SIGTERM)


def started_twice(evb):
    """The second process of a node is refused, which both sides log; the first one continues."""
    # The run must not end before the second processes have started.
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "500Hz"}) as b:
        b.start_all()
        b.wait_written(100_000)
        other = b.addresses["dfm"].rsplit(".", 1)[0] + ".250"
        twin = b.write("twin.conf", ROLES, sfi1=other)
        b.start("sfi1", file=twin, name="twin")
        b.end("twin", expect=1)
        assert "its scenario has no node sfi1 at " in b.log("twin"), b.log("twin")
        assert f"ignored a message in the name of sfi1: it came from {other}:" in b.log("dfm"), b.log("dfm")
        b.processes["dfm"].send_signal(signal.SIGTERM)
        complete_run(b)


def complete_run(b):
    reports = b.end_all()
    assert reports["dfm"]["triggers"] == reports["dfm"]["events_complete"] > 0, reports["dfm"]
    assert sorted(b.events()) == list(range(reports["dfm"]["triggers"]))


if __name__ == "__main__":
    main({
        "started-twice": started_twice,
    })
