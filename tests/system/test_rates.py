#!/usr/bin/env python3
"""Rates that follow a run: ROSs that come and go, and a port that loses packets although the plan allows none.

    test_rates.py EVB [CASE...]
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from harness import LIMIT_S, Running, folder, main, need_root, scenario, settings, watched
from network import sh, wait_until

# Each packet takes processor time. With less, tc would round the rates that it prints too much for near().
PORT_MBIT = 50
# Of another program, so that the port loses packets.
FOREIGN_MBIT = 20
KEYS = {
    "qos.backend": "htb+tbf", "qos.rate": "auto", "network.link-rate": f"{PORT_MBIT}Mbit", "trigger.events": 0,
    "trigger.rate": "max", "ros.fragment-size": "4KiB", "ros.count": 4, "sfi.count": 2, "sfi.timeout": "30s",
    "test.keep-alive": "50ms", "dfm.node-timeout": "5s", "dfm.start-timeout": "60s",
}
# Of this test alone: others run beside it.
STATES = tempfile.TemporaryDirectory(prefix="evb-test-")
os.environ["EVB_STATE_DIRECTORY"] = STATES.name
SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bits, size = float(sys.argv[2]), 1400
begin, sent = time.monotonic(), 0
while time.monotonic() - begin < 900:
    due = (time.monotonic() - begin) * bits / 8 / (size + 42)
    # Without the bursts of a sender that makes up for lost time.
    sent = max(sent, due - 8)
    while sent < due:
        s.sendto(bytes(size), (sys.argv[1], 9))
        sent += 1
    time.sleep(0.001)
"""


class Rated(Running):
    """A run in namespaces; its log goes to a file so that tests can wait for messages."""

    def __init__(self, evb, where, keys):
        need_root()
        self.evb, self.keys = evb, {**KEYS, **keys}
        self.log_path = where / "log"
        with open(self.log_path, "w") as log:
            words = [evb, "run", str(scenario(where)), "--net", "lab", "--json", *settings(watched(self.keys))]
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)

    def __enter__(self):
        self.wait_nodes(1 + self.keys["ros.count"] + self.keys["sfi.count"])
        self.wait_running()
        path = self.log_path.with_name("running.conf")
        path.write_text(self.config())
        control_bps = json.loads(sh(self.evb, "check", str(path), "--json").stdout)["control"]["sfi_port_bps"]
        # docs/shaping.md, "How the figures are computed".
        self.port_mbit = (PORT_MBIT - control_bps / 1e6) * 0.9995
        return self

    def log(self):
        return self.log_path.read_text()

    def inside(self, node):
        return ["ip", "netns", "exec", f"evb-{self.process.pid}-{node}"]

    def destinations(self, node):
        done = sh(*self.inside(node), self.evb, "qos", "status", "--dev", "eth0", "--json", check=False)
        return json.loads(done.stdout)["destinations"] if done.returncode == 0 else []

    def queue_rates(self, node):
        """What tc reads from the kernel: the rate of the TBF of each destination's data, in Mbit/s, by its class."""
        done = sh(*self.inside(node), "tc", "-j", "qdisc", "show", "dev", "eth0", check=False)
        objects = json.loads(done.stdout or "[]") if done.returncode == 0 else []
        return {o["parent"]: o["options"]["rate"] * 8 / 1e6 for o in objects if o["kind"] == "tbf" and o["parent"].startswith("e7b:2")}

    def rates(self, node):
        """The same, or the ceiling of the class if it is lower."""
        done = sh(*self.inside(node), "tc", "class", "show", "dev", "eth0", check=False)
        units = {"": 1e-6, "K": 1e-3, "M": 1, "G": 1e3}
        ceilings = {i: float(n) * units[unit] for i, n, unit in
                    re.findall(r"class htb (\S+) .* ceil ([\d.]+)([KMG]?)bit ", done.stdout)}
        return {i: min(rate, ceilings.get(i, rate)) for i, rate in self.queue_rates(node).items()}

    def stop(self, expect=(0,)):
        self.signal()
        out, _ = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode in expect, f"exit {self.process.returncode}: {self.log()}"
        report = json.loads(out)
        return report, {n["name"]: n for n in report["nodes"]}


def near(running, node, sources, n):
    """Whether a ROS has classes for n SFIs, each with its share of the planned rate of a port."""
    share = running.port_mbit / sources
    rates = running.rates(node)
    # The kernel counts whole bytes per second.
    return len(rates) == n and all(abs(r - share) < 1e-4 * share for r in rates.values())


def sources(evb):
    """A dead ROS leaves its share to the others, and takes it back when it returns; queues are kept."""
    with folder() as where, Rated(evb, where, {}) as running:
        wait_until("shares of four", lambda: near(running, "ros1", 4, 2))
        classes = {d["address"]: d["classid"] for d in running.destinations("ros1")}
        config = where / "again.conf"
        config.write_text(running.config())
        os.kill(running.nodes()["ros4"], signal.SIGKILL)
        for node in ("ros1", "ros2", "ros3"):
            wait_until(f"shares of three at {node}", lambda node=node: near(running, node, 3, 2))
        assert {d["address"]: d["classid"] for d in running.destinations("ros1")} == classes
        # A partition of the port also without one of the SFIs.
        os.kill(running.nodes()["sfi2"], signal.SIGKILL)
        wait_until("one class at ros1", lambda: near(running, "ros1", 3, 1))
        words = [*running.inside("ros4"), evb, "ros", "--config", str(config), "--node", "ros4"]
        again = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for node in ("ros1", "ros4"):
                wait_until(f"shares of four again at {node}", lambda node=node: near(running, node, 4, 1))
            assert all(d["drops"] == 0 for d in running.destinations("ros1"))
            # A shorter burst would cost the queue, see test_qos.py.
            assert "replaced" not in running.log(), running.log()
            running.stop((0, 1))
        finally:
            again.kill()
            again.wait()


def restarted(evb):
    """While a DFM that restarts does not see all ROSs yet, their shares stay as they are."""
    with folder() as where, Rated(evb, where, {"ros.count": 2, "sfi.count": 1, "dfm.node-timeout": "20s"}) as running:
        wait_until("shares of two", lambda: near(running, "ros1", 2, 1))
        config = where / "again.conf"
        config.write_text(running.config())
        late, pid = running.nodes()["ros2"], running.nodes()["dfm"]
        # evb run stops all nodes when it sees that its DFM has died.
        running.signal(signal.SIGSTOP)
        os.kill(late, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGKILL)
            wait_until("dfm gone", lambda: "dfm" not in running.nodes())
            words = [*running.inside("dfm"), evb, "dfm", "--config", str(config), "--node", "dfm"]
            again = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 2
            while time.monotonic() < until:
                assert near(running, "ros1", 2, 1), running.rates("ros1")
                time.sleep(0.05)
        finally:
            os.kill(late, signal.SIGCONT)
        try:
            events = running.counter("sfi1", "events_complete")
            wait_until("more events", lambda: running.counter("sfi1", "events_complete") > events + 100)
            assert near(running, "ros1", 2, 1), running.rates("ros1")
            again.terminate()
            # It has no record of the DFM before it.
            assert again.wait(LIMIT_S) == 1
        finally:
            again.kill()
            again.wait()
            running.signal(signal.SIGCONT)
        running.stop((0, 1))


class Foreign(contextlib.AbstractContextManager):
    """Traffic of another program to an SFI's port."""

    def __init__(self, running):
        words = [*running.inside("dfm"), sys.executable, "-c", SENDER, running.address("sfi1"), str(FOREIGN_MBIT * 1e6)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def lost(running):
    """The gaps that count as losses of the port; packets_lost includes what still waits in a ROS's queue."""
    return running.counter("sfi1", "packets_port_lost")


def no_loss_for(running, seconds):
    """Waits until nothing is lost for a while."""
    began = since = time.monotonic()
    last = lost(running)
    while time.monotonic() - since < seconds:
        if lost(running) != last:
            last, since = lost(running), time.monotonic()
        if time.monotonic() - began > 60:
            return False
        time.sleep(0.1)
    return True


def reduced(evb):
    """Foreign traffic at a port leads to a smaller share, which ends the loss; the planned rate returns later."""
    # A ROS forgets a reduction that is not repeated for five intervals.
    keys = {"sfi.count": 1, "network.switch-buffer": "64KiB", "test.keep-alive": "500ms"}
    with folder() as where, Rated(evb, where, keys) as running:
        wait_until("planned rates", lambda: near(running, "ros1", 4, 1))
        planned = running.queue_rates("ros1").popitem()[1]
        wait_until("planned rates without a loss", lambda: no_loss_for(running, 2))
        with Foreign(running):
            for node in ("ros1", "ros4"):
                wait_until(f"reduction at {node}", lambda node=node: max(running.rates(node).values()) < 0.75 * planned)
            # A change of a TBF would fill its bucket: only the class changes. A ROS may seem absent for a while.
            rates, shares = running.queue_rates("ros1"), [running.port_mbit / n for n in (1, 2, 3, 4)]
            assert all(min(abs(r - s) / s for s in shares) < 1e-4 for r in rates.values()), (rates, shares)

            def agrees():
                # A change is in the state file before it is in the kernel.
                rows = running.destinations("ros1")
                share = rows and (rows[0]["permille"] or 1000) / 1000
                return rows and share < 0.8 and abs(rows[0]["rate_bps"] / rows[0]["asked_bps"] - share) < 0.01

            wait_until("reduction in the status", agrees)
            text = sh(*running.inside("ros1"), evb, "qos", "status", "--dev", "eth0").stdout
            assert "reduced to" in text and "of the configured rate" in text, text
            wait_until("reports", lambda: "sfi1 loses packets at its port although the plan allows no loss" in running.log())
            assert "packets were lost at this SFI's port" in running.log()
            assert no_loss_for(running, 1.5), running.log()
        wait_until("recovery", lambda: abs(max(running.rates("ros1").values()) - planned) < 0.01 * planned)
        begins, ends = "ros1: shaping: sfi1 loses packets", "ros1: shaping: sfi1 gets the planned rate again"
        wait_until("reported recovery", lambda: running.log().count(ends) == running.log().count(begins))
        wait_until("report of the SFI", lambda: "the ROSs send at the planned rate again" in running.log())
        # Once, however often the rate was reduced in between.
        assert running.log().count(begins) <= running.counter("sfi1", "rate_reductions"), running.log()
        report, nodes = running.stop()
        sfi = nodes["sfi1"]
        assert sfi["rate_reductions"] >= 1 and sfi["reduced_ns"] > 0, sfi
        assert report["events_complete"] == report["triggers"]


def fixed(evb):
    """A fixed rate stays as it is, whatever is lost."""
    keys = {"sfi.count": 1, "network.switch-buffer": "64KiB", "qos.rate": "11Mbit"}
    with folder() as where, Rated(evb, where, keys) as running:
        with Foreign(running):
            wait_until("losses", lambda: running.counter("sfi1", "packets_received") > 5000)
            time.sleep(2)
            assert abs(running.rates("ros1").popitem()[1] - 11) < 0.1
        _, nodes = running.stop((0, 1))
        assert nodes["sfi1"]["rate_reductions"] == 0, nodes["sfi1"]


def own_queue(evb):
    """What a ROS's own queue drops is not the port's fault."""
    keys = {"sfi.count": 1, "qos.limit": "10kB", "network.socket-buffer": "1MiB"}
    with folder() as where, Rated(evb, where, keys) as running:
        wait_until("drops", lambda: running.counter("ros1", "packets_source_dropped") > 2000)
        time.sleep(2)
        assert near(running, "ros1", 4, 1), running.rates("ros1")
        _, nodes = running.stop((0, 1))
        assert nodes["sfi1"]["packets_lost"] > 2000 and nodes["sfi1"]["rate_reductions"] == 0, nodes["sfi1"]


main({f.__name__.replace("_", "-"): f for f in (sources, restarted, reduced, fixed, own_queue)})
