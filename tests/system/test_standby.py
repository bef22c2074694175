#!/usr/bin/env python3
"""Standby nodes, each in a namespace of its own, and evb lab as their coordinator.

    test_standby.py EVB CASE
"""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

from harness import LIMIT_S, folder, main
from network import Network, wait_until

DFM = "10.9.0.1"
PORT = 26802


class JsonConnection:
    def __init__(self, connection):
        self.connection, self.rest = connection, b""

    def send(self, message):
        self.connection.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def receive(self):
        """Returns the next message, or None at the end."""
        while b"\n" not in self.rest:
            try:
                part = self.connection.recv(65536)
            except ConnectionResetError:
                return None
            if not part:
                return None
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def receive_until(self, key):
        while (message := self.receive()) is not None:
            if key in message:
                return message
        raise AssertionError(f"the connection has ended without {key}")


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
        standby, commands = self.lets[0], self.lets[1].format(desk=f"{self.net}{len(self.roles) + 1}")
        self.scenario.write_text(f"[network]\nlink-rate = 1Gbit\ncommand-from = {commands}\n{group}[standby]\n{standby}[trigger]\nrate = 1Hz\n[sfi]\noutput = file\ndirectory = /nonexistent\n" + "".join(
            f"[node {name}]\nrole = {role}\naddress = {self.net}{i}\ndevice = eth0\n" for i, (name, role) in enumerate(self.roles.items(), 1)))
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

    def wait_for(self, name, text, times=1):
        wait_until(f"\"{text}\" in the log of {name}: {self.log(name)}", lambda: self.log(name).count(text) >= times)

    def wait_all_on_standby(self):
        for name in self.roles:
            self.wait_for("dfm", f"node {name} is on standby\n")

    def command(self, *arguments):
        return ["ip", "netns", "exec", self.network.name("desk"), self.evb, "lab", "run", *arguments, "--scenario", str(self.scenario), "--results",
                str(self.where / "results.jsonl"), "--quick"]

    def lab(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done

    @contextlib.contextmanager
    def connect(self, host="desk"):
        """Connects to the command port, to send arbitrary messages."""
        with self.network.socket(host, socket.SOCK_STREAM) as s:
            s.settimeout(LIMIT_S)
            s.connect((DFM, PORT))
            yield JsonConnection(s)

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


def events(evb):
    """Runs points of event building one after the other on the same standby nodes."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1")
        points = bed.points()
        assert done.returncode in (0, 1) and {p["series"] for p in points} == {"push", "pull"}, done
        for p in points:
            assert p["testbed"] == "testbed" and p["events_complete"] > 1000 and p["events_lost"] == 0 and p["switch_packets"] is None, p
        # Every standby process survives.
        assert all(p.poll() is None for p in bed.standby.values())
        pids = re.findall(r"run (\d+) started", bed.log("ros1"))
        assert len(pids) == len(points), bed.log("ros1")
        # Settings of the command line apply to all nodes, except those that are local to a machine.
        arguments = ("--again", "--set", "run.seed=99", "--set", "network.order-port=26802")
        with subprocess.Popen(bed.command("C1", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started", times=len(points) + 1)
            given = bed.child_words("ros1")
            said = running.communicate(timeout=LIMIT_S)[1]
        assert "run.seed=99" in given and "network.order-port=26802" not in given and "refused" not in said, (given, said)
        done = bed.lab("C7")
        assert "8 of 8 points of C7 are skipped: C7 needs 6 ROSs, the scenario has 2" in done.stderr and done.returncode == 1, done


def shaped(evb):
    """ROSs shape their traffic during each run and restore the device afterwards."""
    with testbed(evb, ros=6) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        bed.lab("C5")
        points = bed.points()
        assert {p["series"] for p in points} >= {"20 Mbit/s", "40 Mbit/s", "auto"}, points
        for p in points:
            assert p["qos_backend"] == "htb+tbf" and p["source_packets"] == 0 and p["events_lost"] == 0, p
            if p["series"] != "auto":
                rate = float(p["series"].split()[0]) * 1e6
                assert p["qos_rate_bps"] == rate and p["throughput_bytes_per_second"] < 6 * rate / 8, p
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def flows(evb):
    """Runs flows: multicast, TCP with gaps on the wire, several destinations, echoes; shaped only while they run."""
    with testbed(evb, ros=1, sfi=3) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        done = bed.lab("A2", "A7", "B3", "B5", "B6", "C9")
        points = {}
        for p in bed.points():
            points.setdefault(p["id"], []).append(p)
        assert "2 of 2 points of B6 are skipped: B6 needs 3 ROSs, the scenario has 1" in done.stderr, done
        assert "3 of 6 points of B3 are skipped: B3 needs network.mtu = 9000, the scenario has 1500" in done.stderr and set(points) == {"A2", "A7", "B3", "B5", "C9"}, done
        for p in points["A2"]:
            assert p["loss_percent"] < 100 and p["sent_mbps"] > 0, p
        unshaped, shaped_ = points["A7"]
        assert unshaped["gap_p50_us"] < shaped_["gap_p50_us"] and 900 < shaped_["gap_p50_us"] < 1500, points["A7"]
        # A message of 10,000 B is lost with each of its packets, so a busy machine may receive none of them.
        assert all(p["sent_mbps"] > 0 and (p["received_mbps"] > 0 or p["x"] == 10000) for p in points["B3"]), points["B3"]
        for p in points["B5"]:
            assert 0 < p["least_mbps"] < 2 * p["x"], p
        echoes = {p["series"]: p["echo_p99_us"] for p in points["C9"]}
        assert echoes["one class for all"] > 10 * echoes["a class for control"], echoes
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def v6(evb):
    """With IPv6 addresses, event building works; flows fail with an explanation."""
    with folder() as where, Testbed(evb, where, net="fd00:9::") as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1", "A7")
        points = bed.points()
        assert {(p["id"], p["series"]) for p in points} == {("C1", "push"), ("C1", "pull")} and all(p["events_lost"] == 0 for p in points), done
        assert "plain streams need IPv4" in done.stderr and "2 points failed" in done.stderr, done


def lost_node(evb):
    """A node that disconnects during a run spoils only that run; it can come back."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        running = subprocess.Popen(bed.command("C1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            bed.wait_for("ros1", "started")
            bed.standby["ros1"].kill()
            bed.standby["ros1"].wait()
            bed.wait_for("dfm", "ros1 left standby")
            bed.start("ros1")
            _, said = running.communicate(timeout=LIMIT_S)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        assert "ros1 disconnected during a run" in said and "1 point failed" in said, said
        assert len(bed.points()) == 3
        bed.wait_for("dfm", "node ros1 is on standby\n", times=2)
        done = bed.lab("C1", "--again")
        assert all(p["events_lost"] == 0 for p in bed.points()[-4:]), done


def lost_coordinator(evb):
    """A killed evb lab ends its run, and the next one can connect at once."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert set(s.receive()["nodes"]) == set(bed.roles)
            with bed.connect() as other:
                other.send({"coordinator": {"version": version(evb)}})
                assert "another evb lab" in other.receive()["refused"] and other.receive() is None
            done = bed.lab("C1")
            assert done.returncode == 1 and "another evb lab" in done.stderr and "start it with" not in done.stderr, done
            s.send({"to": list(bed.roles), "command": {"kind": "run", "job": 7, "settings": ["trigger.rate=1kHz", "run.number=77", "sfi.output=null"]}})
            for name in bed.roles:
                bed.wait_for(name, "run 7 started")
        for name in bed.roles:
            bed.wait_for(name, "run 7 ended with")
        for again in ([], ["--again"]):
            assert bed.lab("C1", *again).returncode in (0, 1) and bed.points()
        # An answer to one evb lab is not taken for an answer to the next.
        numbers = re.findall(r"run (\d+) started", bed.log("ros1"))
        assert len(numbers) == len(set(numbers)) == 9, numbers


def interrupted(evb):
    """Ctrl-C stops the run; the next evb lab waits until the run has ended."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        # A stopped ROS delays the end of its run; the other nodes continue.
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            bed.wait_for("ros1", "started")
            time.sleep(0.5)
            child = bed.child("ros1")
            os.kill(child, signal.SIGSTOP)
            running.send_signal(signal.SIGINT)
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            run = {"kind": "run", "settings": ["ros.count=1", "sfi.output=null"]}
            s.send({"to": ["ros1"], "command": run | {"job": 5}})
            s.send({"to": ["ros1"], "command": run | {"job": 6}})
            assert s.receive_until("answer")["answer"] == {"job": 6, "state": "refused", "reason": "the previous command has not finished"}
            s.send({"to": ["ros1"], "command": {"kind": "stop"}})
            assert s.receive_until("answer")["answer"] == {"job": 5, "state": "refused", "reason": "stopped before it started"}
            s.send({"to": ["ros1"], "command": run | {"job": 7}})
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            bed.wait_for("sfi1", "started", times=2)
            os.kill(child, signal.SIGCONT)
            said = running.communicate(timeout=LIMIT_S)[0]
        assert running.returncode in (0, 1) and "refused" not in said and len(bed.points()) == 4, said
        assert all(p["events_lost"] == 0 for p in bed.points()), bed.points()


def lost_dfm(evb):
    """Nodes reconnect to a restarted DFM."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        bed.standby["dfm"].kill()
        bed.standby["dfm"].wait()
        bed.wait_for("ros1", "not connected to the DFM")
        done = bed.lab("C1")
        assert done.returncode == 1 and "evb dfm --config FILE --node dfm --standby" in done.stderr, done
        bed.start("dfm")
        for name in bed.roles:
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        # A restart during a measurement costs one point only.
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started")
            bed.standby["dfm"].kill()
            bed.standby["dfm"].wait()
            bed.start("dfm")
            said = running.communicate(timeout=LIMIT_S)[1]
        assert "connection to the DFM" in said and len(bed.points()) == 3 and "1 point failed" in said, said
        bed.standby["dfm"].send_signal(signal.SIGTERM)
        assert bed.standby["dfm"].wait(LIMIT_S) == 0


def port_taken(evb):
    """If any node fails to start, the run fails soon and leaves no result."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        for name, address in (("ros1", "10.9.0.2"), ("dfm", DFM)):
            with bed.network.socket(name) as s:
                s.bind((address, 26800))
                begin = time.monotonic()
                done = bed.lab("C1")
                took = time.monotonic() - begin
            assert done.returncode == 1 and f"{name} could not take part" in done.stderr, done
            assert took < 30 and not bed.points(), (took, done)
        assert bed.lab("C1").returncode in (0, 1) and len(bed.points()) == 4


def left_shaping(evb):
    """Shaping left by a killed node does not affect the next job."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.3", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.3"]}
        run = {"kind": "run", "settings": ["qos.backend=htb+tbf", "sfi.output=null"]}
        plain = {"kind": "flows", "endpoints": [endpoint]}
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for i, (shaping, next_) in enumerate(((plain | {"shape": shape}, plain), (run, plain), (plain | {"shape": shape}, run | {"settings": ["sfi.output=null"]}))):
                s.send({"to": ["ros1"], "command": shaping | {"job": 2 * i}})
                wait_until("shaping", lambda: "htb" in bed.network.tc("ros1", "qdisc", "show").stdout)
                bed.standby["ros1"].kill()
                bed.standby["ros1"].wait()
                bed.start("ros1")
                s.receive_until("joined")
                assert "htb" in bed.network.tc("ros1", "qdisc", "show").stdout
                s.send({"to": ["ros1"], "command": next_ | {"job": 2 * i + 1}})
                wait_until("device without shaping", lambda: bed.network.tc("ros1", "qdisc", "show").stdout == before, limit=30)
                s.send({"to": ["ros1"], "command": {"kind": "stop"}})


def frozen_node(evb):
    """evb lab names a frozen node, although its connection persists."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        bed.standby["sfi1"].send_signal(signal.SIGSTOP)
        try:
            done = bed.lab("A7")
        finally:
            bed.standby["sfi1"].send_signal(signal.SIGCONT)
        assert done.returncode == 1 and "sfi1 did not become ready in time" in done.stderr and not bed.points(), done
        # On a busy machine a flow may start late; repeating the command completes the points.
        wait_until("points of the resumed node", lambda: bed.lab("A7") and len(bed.points()) == 2)


def lost_endpoint(evb):
    """A killed endpoint is reported at once and gives no result."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        endpoint = {"role": 1, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.3", "at": "10.9.0.3", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for job in range(1, 4):
                s.send({"to": ["sfi1"], "command": {"kind": "flows", "job": job, "endpoints": [endpoint, endpoint | {"port": 7002}]}})
                assert s.receive_until("answer")["answer"] == {"job": job, "state": "ready"}
                os.kill(bed.child("sfi1"), signal.SIGKILL)
                assert s.receive_until("answer")["answer"] == {"job": job, "state": "refused", "reason": "Broken pipe"}


def cut_off(evb):
    """DFM and nodes notice a peer that vanishes without closing its connection."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        ports = {host: f"port{i}" for i, host in enumerate([*bed.roles, "desk"], 1)}
        with bed.connect() as gone:
            gone.send({"coordinator": {"version": version(evb)}})
            gone.receive_until("nodes")
            for host in ("desk", "ros1"):
                bed.network.ip("switch", "link", "set", ports[host], "down")
            bed.wait_for("dfm", "node ros1 left standby")
            bed.wait_for("ros1", "not connected to the DFM")
            bed.network.ip("switch", "link", "set", ports["ros1"], "up")
            bed.wait_for("dfm", "node ros1 is on standby\n", times=2)

            def welcome():
                with bed.connect("ros2") as s:
                    s.send({"coordinator": {"version": version(evb)}})
                    return "nodes" in s.receive()

            wait_until("accepted evb lab", welcome, limit=30)


def missing_node(evb):
    """evb lab names a missing node and waits for it only once."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        bed.standby["ros2"].send_signal(signal.SIGINT)
        assert bed.standby["ros2"].wait(LIMIT_S) == 0
        bed.scenario.write_text(bed.scenario.read_text() + "[dfm]\nnode-timeout = 1s\n")
        done = subprocess.run(bed.command("C1", "--set", "ros.count=2"), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        # C1 uses one ROS, which is on standby.
        assert "not on standby" not in done.stderr, done
        bed.standby["ros1"].send_signal(signal.SIGTERM)
        assert bed.standby["ros1"].wait(LIMIT_S) == 0
        done = bed.lab("C1", "--again")
        assert done.returncode == 1 and "not on standby: ros1" in done.stderr, done
        # evb lab waits for the node once, not again at each point.
        assert done.stderr.count("still not on standby: ros1") == done.stderr.count("not on standby: ros1") - 1 == 3, done


def abuse(evb):
    """Random commands, many of them corrupted, with repeated job numbers, break neither nodes nor evb lab."""
    random_ = random.Random(8)
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.4", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.4"]}
        strange = (None, True, -1, 2 ** 62, 1.5, "", "x" * 1000, [], {}, [[]], "\u001b[2J\n", "stop", "ros1")

        def corrupt(value):
            if random_.random() < 0.05:
                return random_.choice(strange)
            if isinstance(value, dict):
                return {key: corrupt(v) for key, v in value.items() if random_.random() > 0.02}
            return [corrupt(v) for v in value] if isinstance(value, list) else value

        def command():
            job = random_.randrange(1, 4)
            return random_.choice((
                {"kind": "run", "job": job, "settings": ["run.number=77", "sfi.output=null", f"ros.count={random_.randrange(1, 3)}"]},
                {"kind": "flows", "job": job, "endpoints": [endpoint] * random_.randrange(1, 4)}, {"kind": "flows", "job": job, "endpoints": [endpoint], "shape": shape},
                {"kind": "state", "job": job, "state": random_.randrange(-1, 7)}, {"kind": "stop"}, {"kind": "stop"}))

        for turn in range(30):
            with bed.connect() as s:
                with contextlib.suppress(ConnectionError):
                    s.send({"coordinator": {"version": version(evb)}})
                    for _ in range(40):
                        s.send(corrupt({"to": random_.choices([*bed.roles, "nobody"], k=2), "command": command()}))
                    # A corrupted message may have ended the connection; half of the others end within a message.
                    if turn % 2:
                        s.send(b'{"to": ["ros1"], "command": {"kind"')
        assert all(p.poll() is None for p in bed.standby.values()), [bed.log(name)[-500:] for name in bed.roles]
        assert "\x1b" not in "".join(bed.log(name) for name in bed.roles)

        def left():
            with bed.connect() as s:
                s.send({"coordinator": {"version": version(evb)}})
                return "nodes" in s.receive()

        wait_until("free place for evb lab", left)
        done = bed.lab("C1")
        assert done.returncode in (0, 1) and len(bed.points()) == 4, done
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def permissions(evb):
    """Nodes refuse commands without permission; evb lab names node, setting and permission."""
    with testbed(evb, standby="allow = none\n") as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        done = bed.lab("C1")
        assert done.returncode == 1 and not bed.points(), done
        # All nodes lack the permission, so any of them may answer first.
        found = re.search(r'(\w+) refused: setting "sfi.output=null" needs the permission "output": add it to standby.allow in the scenario of node (\w+)',
                          done.stderr)
        assert found and found[1] == found[2], done.stderr
        done = bed.lab("B4")
        assert "ros1 refused: shaping needs the permission \"qos\": add it to standby.allow in the scenario of node ros1" in done.stderr, done
        bed.scenario.write_text(bed.scenario.read_text().replace("output = file", "output = null"))
        for name in bed.roles:
            bed.standby[name].kill()
            bed.standby[name].wait()
            bed.start(name)
        for name in bed.roles:
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        # A setting that changes nothing needs no permission.
        assert bed.lab("C1").returncode in (0, 1) and len(bed.points()) == 4
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for job, (setting, permission) in enumerate((("qos.backend=htb", "qos"), ("sfi.output=file", "output"), ("sfi.file-size=1MiB", "output"),
                                                         ("tuning.rx-usecs=1", "tuning"), ("network.link-rate=1kbit", "link-rate")), 1):
                s.send({"to": ["ros1"], "command": {"kind": "run", "job": job, "settings": [setting]}})
                answer = s.receive_until("answer")["answer"]
                assert answer["state"] == "refused" and f'"{setting}" needs the permission "{permission}"' in answer["reason"], answer
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def privileges(evb):
    """evb lab names a node that lacks a privilege, and the file that grants it."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        for name, lacks in (("ros1", "-net_admin"), ("sfi1", "-net_raw")):
            bed.standby[name].kill()
            bed.standby[name].wait()
            bed.start(name, before=("setpriv", f"--inh-caps={lacks}", f"--bounding-set={lacks}"))
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        done = bed.lab("A7", "B4")
        assert "ros1 refused: eth0: shaping is not permitted: node ros1 needs evb-ros-shaping.conf (configs/systemd)" in done.stderr, done.stderr
        assert "sfi1 refused: watching the wire is not permitted: node sfi1 needs evb-sfi-watching.conf (configs/systemd)" in done.stderr, done.stderr
        assert 'A7: "no QoS" at 1448 failed' in done.stderr and done.returncode == 1 and not bed.points(), done


def strangers(evb):
    """Unauthorized addresses cannot give commands, nor lock out others with many connections."""
    with testbed(evb, commands="nodes") as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1")
        assert done.returncode == 1 and "10.9.0.5" in done.stderr and "add its address to network.command-from in the DFM's scenario" in done.stderr, done
        with contextlib.ExitStack() as silent:
            for _ in range(60):
                silent.enter_context(bed.connect())
            with bed.connect("ros1") as s:
                s.send({"coordinator": {"version": version(evb)}})
                assert set(s.receive_until("nodes")["nodes"]) == set(bed.roles)


def idle(evb):
    """An idle coordinator is disconnected, so that the next one can connect."""
    with testbed(evb, standby="allow = qos, output\nidle-timeout = 1s\n") as bed:
        bed.wait_all_on_standby()
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert "nodes" in s.receive()
            assert "standby.idle-timeout" in s.receive_until("refused")["refused"] and s.receive() is None
        # A coordinator with a run is not idle.
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert "nodes" in s.receive()
            s.send({"to": list(bed.roles), "command": {"kind": "run", "job": 7, "settings": ["run.number=77", "sfi.output=null", "scenario.duration=3s"]}})
            answers = {s.receive_until("answer")["from"] for _ in bed.roles}
            assert answers == set(bed.roles)
            assert "standby.idle-timeout" in s.receive_until("refused")["refused"]
        # evb lab waits longer than that for a missing node.
        bed.standby["ros1"].kill()
        bed.standby["ros1"].wait()
        done = bed.lab("C1")
        assert "not on standby: ros1" in done.stderr and "refused" not in done.stderr, done


def twice(evb):
    """The second start of a node is refused; the first one continues its run."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        first = bed.standby["ros1"]
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started")
            bed.start("ros1")
            second = bed.standby["ros1"]
            try:
                bed.wait_for("ros1", "the DFM refused this node: node ros1 is already on standby, connected from 10.9.0.2")
                bed.wait_for("dfm", "node ros1 is already on standby")
                said = running.communicate(timeout=LIMIT_S)[1]
                assert "disconnected" not in said and len(bed.points()) == 4, said
            finally:
                first.kill()
                first.wait()
        # The second one takes over when the first one has left.
        bed.wait_for("dfm", "node ros1 is on standby\n", times=2)
        bed.wait_for("ros1", "the DFM accepts this node now")
        assert second.poll() is None and bed.log("ros1").count("the DFM refused") == bed.log("ros1").count("already on standby, connected from") >= 1


def refused(evb):
    """The DFM refuses nodes of another testbed or version, with a reason."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        other = bed.where / "other.conf"
        other.write_text(bed.scenario.read_text().replace("[network]\n", "[network]\ndata-port = 5000\n"))
        bed.standby["ros2"].kill()
        bed.standby["ros2"].wait()
        bed.start("ros2", scenario=other)
        bed.wait_for("ros2", "the DFM refused this node: its scenario differs from the DFM's in nodes, ports or group")
        for introduction, why in (
            ({"node": "ros9"}, "no such node"),
            ({"node": "ros1"}, "node ros1 has address 10.9.0.2"),
            ({"node": 5}, "no such node"),
            ({}, "no such node"),
        ):
            with bed.connect() as s:
                s.send({"standby": introduction})
                assert why in s.receive()["refused"] and s.receive() is None
        with bed.connect("ros1") as s:
            s.send({"standby": {"node": "ros1", "version": "0.0.1"}})
            assert "the DFM runs evb" in s.receive()["refused"]
        with bed.connect() as s:
            s.send({"coordinator": {"version": "99"}})
            assert "the DFM runs evb" in s.receive()["refused"]
        assert bed.lab("C1").returncode in (0, 1) and bed.points()


def hostile(evb):
    """Invalid messages to the command port end their own connection only."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        for raw in (b"\x00\xff\x00\n", b"[]\n", b"{}\n", b'{"a":1,"a":2}\n', b"[" * 100000 + b"\n", b'{"command":{"kind":"run"},"to":["ros1"]}\n',
                      b'{"answer":{}}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 3000000, b'{"standby":[]}\n', b'{"coordinator":7}\n'):
            with bed.connect() as s:
                with contextlib.suppress(ConnectionError):
                    s.send(raw)
                while (message := s.receive()) is not None:
                    assert "refused" in message, message
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for settings, why in (
                (["sfi.directory=/"], "is local: no command may change it"), (["ros.source=file:/etc/shadow"], "is local: no command may change it"),
                (["node ros1.address=10.9.0.9"], "is local: no command may change it"), (["network.data-port=22"], "is local: no command may change it"),
                ([7], "expected texts"), ("x", "an array"),
                (["tuning.mtu=9000"], "needs the permission \"tuning\""), (["network.link-rate=2Gbit"], "needs the permission \"link-rate\""),
                (["standby.allow=tuning", "tuning.mtu=9000"], "is local: no command may change it"), (["network.command-from=::/0"], "is local: no command may change it"),
                (["run.seed=1"] * 200, "at most 128"), (["qos.rate=fast"], "qos.rate"), (["--help"], "SECTION.KEY=VALUE"),
                (["ros.source=" + "\u00e9" * 60], "is local: no command may change it"), (["qos.rate=x" + "\u00e9" * 60], "qos.rate"),
            ):
                s.send({"to": ["ros1", "nobody", 5], "command": {"kind": "run", "job": 1, "settings": settings}})
                assert s.receive_until("left")["left"] == "nobody"
                answer = s.receive_until("answer")
                assert answer["from"] == "ros1" and answer["answer"]["state"] == "refused" and why in answer["answer"]["reason"], answer
            s.send({"to": ["ros2"], "command": {"kind": "run", "job": 2, "settings": ["ros.count=1"]}})
            assert "does not take part" in s.receive_until("answer")["answer"]["reason"]
            endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.4", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
                   "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
            shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.4"]}
            for command, why in (
                ({"endpoints": []}, "endpoints: expected"), ({}, "endpoints: expected"), ({"endpoints": [endpoint | {"to": "8.8.8.8"}]}, "nodes of this testbed"),
                ({"endpoints": [endpoint | {"at": "10.9.0.3"}]}, "endpoint of this node"), ({"endpoints": [endpoint | {"from": "10.9.0.3"}]}, "endpoint of this node"),
                ({"endpoints": [endpoint | {"port": 22}]}, "endpoint of this node"), ({"endpoints": [endpoint | {"message_bytes": 1 << 40}]}, "endpoint of this node"),
                ({"endpoints": [endpoint, endpoint | {"role": 9}]}, "endpoint 1"), ({"endpoints": [endpoint | {"kind": 1, "to": "10.9.0.4"}]}, "nodes of this testbed"),
                ({"endpoints": [endpoint] * 100}, "Argument list too long"), ({"endpoints": [endpoint], "shape": shape | {"to": ["8.8.8.8"]}}, "addresses of this testbed"),
                ({"endpoints": [endpoint], "shape": {}}, "expected a rate"), ({"endpoints": [endpoint | {"role": 0, "kind": 2, "to": "10.9.0.4", "port": 7777}]}, "refused"),
            ):
                s.send({"to": ["ros1"], "command": {"kind": "flows", "job": 3} | command})
                answer = s.receive_until("answer")["answer"]
                assert answer["state"] == "refused" and why in answer["reason"].lower() + answer["reason"], (command, answer)
            s.send({"to": ["ros2"], "command": {"kind": "format-the-disk"}})
            assert "unknown kind" in s.receive_until("answer")["answer"]["reason"]
        assert all(p.poll() is None for p in bed.standby.values())
        assert bed.lab("C1").returncode in (0, 1) and bed.points()


main({
    "events": events, "shaped": shaped, "flows": flows, "v6": v6, "lost-node": lost_node, "lost-coordinator": lost_coordinator, "lost-dfm": lost_dfm, "interrupted": interrupted, "port-taken": port_taken, "left-shaping": left_shaping, "lost-endpoint": lost_endpoint, "frozen-node": frozen_node, "cut-off": cut_off, "missing-node": missing_node,
    "refused": refused, "hostile": hostile, "abuse": abuse, "permissions": permissions, "privileges": privileges, "strangers": strangers, "idle": idle, "twice": twice,
})
