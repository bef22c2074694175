#!/usr/bin/env python3
"""A switch port with a smaller MTU than network.mtu is found at the start of a run, and reported with the name of the node. Without
this key, packets are as large as each path carries.

    test_mtu.py EVB [CASE...]
"""
import contextlib
import json
import re
import subprocess

from harness import LIMIT_S, folder, main
from network import Network, wait_until

NODES = {"dfm": "dfm", "ros1": "ros", "ros2": "ros", "sfi1": "sfi", "sfi2": "sfi"}
# Small fragments, and few events at a time: the fragments of all of them fit in a packet of 1500 bytes, so that the run itself
# is complete, and only the probe can tell.
SCENARIO = """[scenario]
transport = {transport}
[trigger]
rate = 100Hz
[ros]
fragment-size = {size}
[network]
mtu = {mtu}
[dfm]
node-timeout = 30s
[sfi]
timeout = 30s
credits = 8
"""


def jumbo(net, small):
    """All devices and ports carry 9000 bytes, but the port of the node `small`."""
    for i, node in enumerate(NODES, 1):
        net.ip(node, "link", "set", "eth0", "mtu", "9000")
        net.ip("switch", "link", "set", f"port{i}", "mtu", "1500" if node == small else "9000")
    net.ip("switch", "link", "set", "bridge", "mtu", "9000")


FAILS = r"packets of 9000 bytes \(network\.mtu\) do not pass between this node and (\S+) at (\S+), but short"
PASS = r"packets of 9000 bytes \(network\.mtu\) pass to the DFM and all SFIs"


class Bed(contextlib.AbstractContextManager):
    """All nodes, each in its namespace."""

    def __init__(self, evb, where, net, transport, mtu="9000", size="100"):
        self.where, self.processes = where, {}
        path = where / "run.conf"
        path.write_text(SCENARIO.format(transport=transport, mtu=mtu, size=size) + "".join(
            f"[node {node}]\nrole = {role}\naddress = 10.9.0.{i}\n" for i, (node, role) in enumerate(NODES.items(), 1)))
        for node, role in NODES.items():
            with open(where / f"{node}.log", "wb") as log:
                self.processes[node] = subprocess.Popen(
                    ["ip", "netns", "exec", net.name(node), evb, role, "--config", path, "--node", node, "--verbose", "--json", where / f"{node}.json"],
                    stderr=log, stdout=subprocess.DEVNULL)

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def wait_log(self, node, pattern, times=1):
        """Returns what the pattern finds in the log of a node."""
        def found():
            return re.findall(pattern, (self.where / f"{node}.log").read_text())

        wait_until(f"{pattern} of {node}", lambda: len(found()) >= times)
        return found()

    def end(self):
        """Stops the run; returns exit status and report of each node."""
        self.processes["dfm"].terminate()
        return {node: (process.wait(LIMIT_S), json.loads((self.where / f"{node}.json").read_text()))
                for node, process in self.processes.items()}


def port(evb, transport, small):
    """Each ROS names the node whose port is too small, and no other one."""
    with folder() as where, Network("switch", *NODES) as net:
        net.bridge("switch", NODES)
        jumbo(net, small)
        with Bed(evb, where, net, transport) as bed:
            for ros in ("ros1", "ros2"):
                found = bed.wait_log(ros, FAILS)
                assert found == [(small, f"10.9.0.{1 + list(NODES).index(small)}")], (ros, found)
            # A ROS does not wait for the other nodes.
            bed.wait_log("dfm", "triggers begin")
            ends = bed.end()
        report = ends["dfm"][1]
        assert ends["dfm"][0] == 0 and report["events_complete"] == report["triggers"], ends["dfm"]
        for ros in ("ros1", "ros2"):
            text = f"packets of 9000 bytes (network.mtu) did not pass between this node and {small}"
            assert ends[ros][0] == 1 and ends[ros][1]["reasons"] == [text], ends[ros]


def own_port(evb):
    """A ROS whose own port is too small reaches nobody; the other ROS reaches all nodes."""
    with folder() as where, Network("switch", *NODES) as net:
        net.bridge("switch", NODES)
        jumbo(net, "ros1")
        with Bed(evb, where, net, "udp") as bed:
            found = bed.wait_log("ros1", FAILS, 3)
            assert sorted(name for name, _ in found) == ["dfm", "sfi1", "sfi2"], found
            bed.wait_log("ros2", PASS)
            ends = bed.end()
        text = "packets of 9000 bytes (network.mtu) did not pass between this node and 3 others, of which the first is dfm"
        assert ends["ros1"][0] == 1 and ends["ros1"][1]["reasons"] == [text], ends["ros1"]
        assert ends["ros2"][0] == 0 and ends["ros2"][1]["reasons"] == [], ends["ros2"]


def each_path(evb):
    """Large packets go to the SFI whose port carries them, and short ones to the other one. A port that carries less loses no event."""
    with folder() as where, Network("switch", *NODES) as net:
        net.bridge("switch", NODES)
        jumbo(net, "sfi2")
        with Bed(evb, where, net, "udp", "auto", "8000") as bed:
            bed.wait_log("dfm", "triggers begin")
            for ros in ("ros1", "ros2"):
                bed.wait_log(ros, "packets of 9000 bytes pass to sfi1")
            net.ip("switch", "link", "set", f"port{1 + list(NODES).index('sfi1')}", "mtu", "1500")
            for ros in ("ros1", "ros2"):
                bed.wait_log(ros, "packets of 9000 bytes no longer pass to sfi1")
            ends = bed.end()
        assert all(status == 0 and not report["reasons"] for status, report in ends.values()), ends
        assert ends["dfm"][1]["events_complete"] == ends["dfm"][1]["triggers"] > 0, ends["dfm"]
        assert "pass to sfi2" not in (where / "ros1.log").read_text()


main({
    "sfi-udp": lambda evb: port(evb, "udp", "sfi2"),
    "dfm-tcp": lambda evb: port(evb, "tcp", "dfm"),
    "own-port": own_port,
    "each-path": each_path,
})
