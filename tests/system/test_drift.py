#!/usr/bin/env python3
"""Changes by other programs to the shaping of running ROSs, and a kernel that answers late.

    test_drift.py EVB [CASE...]
"""
import json
import os
import re
import signal
import subprocess
import tempfile

from harness import LIMIT_S, Running, folder, main, need_root, scenario, settings, watched
from network import sh, slow_netlink, wait_until

KEYS = {"qos.backend": "htb+tbf", "qos.rate": "200Mbit", "trigger.events": 0, "trigger.rate": "500Hz"}
# Of this test alone: others run beside it.
STATES = tempfile.TemporaryDirectory(prefix="evb-test-")
os.environ["EVB_STATE_DIRECTORY"] = STATES.name


class Shaped(Running):
    """A run in namespaces; its log goes to a file so that tests can wait for messages."""

    def __init__(self, evb, where, keys):
        need_root()
        self.evb = evb
        self.log_path = where / "log"
        with open(self.log_path, "w") as log:
            words = [evb, "run", str(scenario(where)), "--net", "lab", "--json", *settings(watched({**KEYS, **keys}))]
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)

    def __enter__(self):
        try:
            self.wait_nodes(9)
            self.wait_running()
        except BaseException:
            self.__exit__()
            raise
        return self

    def log(self):
        return self.log_path.read_text()

    def inside(self, node, *words, check=True):
        return sh("ip", "netns", "exec", f"evb-{self.process.pid}-{node}", *words, check=check)

    def tree(self, node):
        return self.inside(node, "tc", "qdisc", "show", "dev", "eth0").stdout

    def stop(self, expect):
        self.signal()
        out, _ = self.process.communicate(timeout=LIMIT_S)
        status = self.process.returncode
        assert status == expect, f"exit {status}, not {expect}: {self.log()}"
        report = json.loads(out)
        return report, {n["name"]: n for n in report["nodes"]}


def repair(evb):
    """A deleted root is installed again and reported; the other ROSs are unaffected."""
    with folder() as where, Shaped(evb, where, {}) as running:
        for times in (1, 2):
            running.inside("ros1", "tc", "qdisc", "del", "dev", "eth0", "root")
            wait_until("repair", lambda: running.log().count("eth0 is shaped again as planned") == times)
            assert "htb e7b:" in running.tree("ros1") and "tbf 2001:" in running.tree("ros1")
        report, nodes = running.stop(0)
        log, one, two = running.log(), nodes["ros1"], nodes["ros2"]
        # A ROS that reads its tree while the kernel deletes it first misses a class or a queue.
        missing = re.findall("ros1: shaping: eth0: .* is missing, .*: repairing it", log)
        assert len(missing) == log.count("repairing it") == 2, log
        assert one["shaping_repairs"] == 2 and one["unshaped_ns"] > 0, one
        assert two["shaping_repairs"] == 0 and two["unshaped_ns"] == 0, two
        assert report["qos_backend"] == "htb+tbf" and not os.listdir(STATES.name)


def changed(evb):
    """A changed rate is reverted; a classless root is replaced."""
    with folder() as where, Shaped(evb, where, {}) as running:
        change = ("class", "change", "dev", "eth0", "parent", "e7b:1001", "classid", "e7b:2001")
        running.inside("ros1", "tc", *change, "htb", "rate", "1mbit", "quantum", "2000")
        wait_until("first repair", lambda: running.log().count("is shaped again as planned") == 1)
        root = ("qdisc", "replace", "dev", "eth0", "root", "handle", "77:", "pfifo", "limit", "10")
        running.inside("ros1", "tc", *root)
        wait_until("second repair", lambda: running.log().count("is shaped again as planned") == 2)
        assert "htb e7b:" in running.tree("ros1")
        _, nodes = running.stop(0)
        assert nodes["ros1"]["shaping_repairs"] == 2, nodes["ros1"]


def foreign(evb):
    """Another program's root qdisc with classes is not replaced; a ROS that must be shaped fails."""
    with folder() as where, Shaped(evb, where, {}) as running:
        # It would replace a tree that has no classes yet.
        ros1 = running.nodes()["ros1"]
        os.kill(ros1, signal.SIGSTOP)
        running.inside("ros1", "tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "77:", "htb")
        running.inside("ros1", "tc", "class", "add", "dev", "eth0", "parent", "77:", "classid", "77:1", "htb",
                       "rate", "1gbit")
        os.kill(ros1, signal.SIGCONT)
        wait_until("refusal", lambda: "another program has set the root qdisc" in running.log())
        _, nodes = running.stop(1)
        assert running.log().count("another program has set the root qdisc") == 1, running.log()
        assert nodes["ros1"]["unshaped_ns"] > 0 and nodes["ros1"]["shaping_repairs"] == 0


def gone(evb):
    """A ROS outlives its device, and shapes another device that gets its address."""
    keys = {"sfi.timeout": "1s", "dfm.node-timeout": "2s", "dfm.start-timeout": "60s",
            "test.keep-alive": "50ms"}
    with folder() as where, Shaped(evb, where, keys) as running:
        address = running.address("ros1")
        running.inside("ros1", "ip", "link", "del", "dev", "eth0")
        wait_until("warning", lambda: "eth0: the device is gone" in running.log())
        running.inside("ros1", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
        running.inside("ros1", "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        running.inside("ros1", "ip", "link", "set", "eth0", "up")
        wait_until("repair", lambda: "is shaped again as planned" in running.log())
        assert "htb e7b:" in running.tree("ros1")
        running.signal()
        out, _ = running.process.communicate(timeout=LIMIT_S)
        ros1 = [n for n in json.loads(out)["nodes"] if n["name"] == "ros1"][0]
        assert ros1["shaping_repairs"] == 1 and ros1["unshaped_ns"] > 0, ros1
        assert not os.listdir(STATES.name), os.listdir(STATES.name)


def slow(evb):
    """While the kernel does not answer, the ROSs keep sending keep-alives, and events are built."""
    with folder() as where, slow_netlink(where) as path, Shaped(evb, where, {"test.keep-alive": "50ms"}) as running:
        path.touch()
        ros = {name: pid for name, pid in running.nodes().items() if name.startswith("ros")}
        wait_until("all ROSs waiting", lambda: all(os.path.exists(f"{path}.{pid}") for pid in ros.values()))
        alive = {name: running.counter(name, "control_sent") for name in ros}
        built = running.counter("dfm", "events_complete")
        wait_until("more events", lambda: running.counter("dfm", "events_complete") > built + 500)
        for name, n in alive.items():
            wait_until(f"signs of life of {name}", lambda: running.counter(name, "control_sent") > n + 20)
        path.unlink()
        report, _ = running.stop(0)
        assert report["events_complete"] == report["triggers"] and "gone" not in running.log(), running.log()


main({f.__name__: f for f in (repair, changed, foreign, gone, slow)})
