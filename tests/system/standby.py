"""A testbed of standby nodes in network namespaces, and connections to their command server."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess

from harness import LIMIT_S, folder
from keys import COMMANDS, Connection, derive, write_key
from network import Network, wait_until

DFM = "10.9.0.1"
PORT = 26802


class Testbed:
    """A namespace for each node, a switch, and a desk from which commands come."""

    def __init__(self, evb, where, ros=2, sfi=1, net="10.9.0.", standby="allow = qos, output\n", commands="nodes, {desk}"):
        self.evb, self.where, self.net = evb, where, net
        self.lets = (standby, commands)
        self.roles = {"dfm": "dfm", **{f"ros{i + 1}": "ros" for i in range(ros)}, **{f"sfi{i + 1}": "sfi" for i in range(sfi)}}
        self.network = Network("switch", *self.roles, "desk")
        self.standby = {}
        self.outputs = {}

    def __enter__(self):
        self.network.__enter__()
        self.network.bridge("switch", [*self.roles, "desk"])
        for i, host in enumerate((*self.roles, "desk"), 1):
            self.network.ip(host, "route", "add", "default", "dev", "eth0")
            if ":" in self.net:
                self.network.ip(host, "addr", "add", f"{self.net}{i}/64", "dev", "eth0", "nodad")
        self.scenario = self.where / "testbed.conf"
        group = "control-group = ff15::69:86\n" if ":" in self.net else ""
        self.key = derive(write_key(self.where / "key"), COMMANDS)
        standby, commands = self.lets[0], self.lets[1].format(desk=f"{self.net}{len(self.roles) + 1}")
        nodes = "".join(f"[node {name}]\nrole = {role}\naddress = {self.net}{i}\ndevice = eth0\n"
                        for i, (name, role) in enumerate(self.roles.items(), 1))
        self.scenario.write_text(f"[network]\nkey-file = key\nlink-rate = 1Gbit\ncommand-from = {commands}\n{group}[standby]\n{standby}"
                                 f"[trigger]\nrate = 1Hz\n[sfi]\noutput = file\ndirectory = /nonexistent\n{nodes}")
        for name in self.roles:
            self.start(name)
        return self

    def __exit__(self, *error):
        for process in self.standby.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.network.__exit__()

    def start(self, name, *arguments, scenario=None, before=()):
        log = open(self.where / f"{name}.log", "a", encoding="utf-8")
        with log:
            self.standby[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.network.name(name), *before, self.evb, self.roles[name], "--config", str(scenario or self.scenario), "--node", name,
                 "--standby", *arguments], stdout=log, stderr=log, env={**os.environ, "EVB_LOG": "info"})

    def log(self, name):
        return (self.where / f"{name}.log").read_text()

    def child(self, name):
        """Returns the PID of the node's run."""
        pid = self.standby[name].pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def child_words(self, name):
        """Returns its command line, once it has executed the node's program."""
        cmdline = pathlib.Path(f"/proc/{self.child(name)}/cmdline")
        wait_until(f"program of {name}", lambda: b"--node\0" in cmdline.read_bytes() and b"--json\0" in cmdline.read_bytes())
        return cmdline.read_text().split("\0")

    def stop_child(self, name):
        """Stops the program of the node's run, or of its next one, so that the run cannot end; returns its PID."""
        stopped = None

        def is_stopped():
            nonlocal stopped
            with contextlib.suppress(IndexError, OSError):
                stopped = self.child(name)
                process = pathlib.Path(f"/proc/{stopped}")
                if b"--json\0" in (process / "cmdline").read_bytes():
                    os.kill(stopped, signal.SIGSTOP)
                return (process / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            return False

        wait_until(f"run of {name} to stop", is_stopped)
        return stopped

    def wait_for(self, name, text, times=1):
        wait_until(f"\"{text}\" in the log of {name}: {self.log(name)}", lambda: self.log(name).count(text) >= times)

    def wait_all_on_standby(self):
        for name in self.roles:
            self.wait_for("dfm", f"node {name} is on standby\n")

    def command(self, *arguments):
        # A point that the machine disturbs is not made again: the tests count runs.
        return ["ip", "netns", "exec", self.network.name("desk"), self.evb, "lab", "run", *arguments, "--scenario", str(self.scenario), "--results",
                str(self.where / "results.jsonl"), "--quick", "--accept-disturbed"]

    def lab(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done

    @contextlib.contextmanager
    def connect(self, host="desk", key=COMMANDS):
        """Connects to the command port, to send arbitrary messages; by default with the testbed's key."""
        with self.network.socket(host, socket.SOCK_STREAM) as s:
            s.settimeout(LIMIT_S)
            s.connect((DFM, PORT))
            yield Connection(s, self.key if key == COMMANDS else key)

    def points(self):
        if not (self.where / "results.jsonl").exists():
            return []
        return [json.loads(line) for line in (self.where / "results.jsonl").read_text().splitlines()]


@contextlib.contextmanager
def testbed(evb, **how):
    with folder() as where, Testbed(evb, where, **how) as bed:
        yield bed


def version(evb):
    return subprocess.run([evb, "--version"], capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.split()[-1]
