"""The network that `evb testbed` builds on this machine, for programs that are no nodes."""
import json
import subprocess
import time

from .context import PointFailed
from .process import LOOK_SECONDS, Program

DEVICE = "eth0"
LIMIT_SECONDS = 60  # to build it, or to remove it


def granted_bytes(kind):
    """The size of the largest socket buffer, of the kind "rmem" or "wmem", that every program is granted; at most 8 MiB."""
    with open(f"/proc/sys/net/core/{kind}_max", encoding="ascii") as most:
        return min(int(most.read()), 8 << 20)


class Bed:
    """Namespaces of this machine with a switch or a long path between them, and a watch of the machine.

    `with Bed(context, words) as bed:` builds it; bed.finish() removes it and returns what it did to packets.
    """

    def __init__(self, context, words):
        self.context = context
        self.program = Program([context.evb, "testbed", *words], raised=context.raised, stdin=subprocess.PIPE)

    def __enter__(self):
        try:
            self.nodes = {node["name"]: node for node in json.loads(self._line(0))["nodes"]}
        except BaseException:
            self.program.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.program.__exit__()

    def _line(self, i):
        """A line of its output, as soon as it is there."""
        until = time.monotonic() + LIMIT_SECONDS
        while self.program.output().count("\n") <= i:
            if self.program.has_ended and self.program.output().count("\n") <= i:
                raise PointFailed(f"cannot build the network: {self.program.complaint()}")
            if self.context.stopped() or time.monotonic() > until:
                raise PointFailed("the network did not come in time")
            time.sleep(LOOK_SECONDS)
        return self.program.output().split("\n")[i]

    def tell(self, command):
        """"watch PID", "begin" or "end"."""
        self.program.process.stdin.write(f"{command}\n".encode())
        self.program.process.stdin.flush()

    def namespace(self, name):
        return self.nodes[name]["namespace"]

    def address(self, name):
        return self.nodes[name]["address"]

    def limit_segments(self, n):
        """Makes the kernel divide super-packets of more than n segments before the device of each node."""
        for node in self.nodes.values():
            done = subprocess.run(["ip", "-n", node["namespace"], "link", "set", "dev", DEVICE, "gso_max_segs", f"{n:.0f}"],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PointFailed(f"cannot limit the segments of {DEVICE}: {done.stderr.strip()}")

    def finish(self):
        """Ends the network. Returns {"port", "switch_packets", "path_lost_packets", "testbed_lost_packets", "machine"}."""
        self.program.process.stdin.close()
        return json.loads(self._line(1))


def of_switch(context, *, senders, receivers, link_bps, buffer_bytes, mtu_bytes):
    """Nodes ros1... send and sfi1... receive, over links of one rate (0: unlimited) and ports with one buffer."""
    keys = {"ros.count": senders, "sfi.count": receivers, "network.link-rate": f"{link_bps:.0f}bit" if link_bps else "unlimited",
            "network.switch-buffer": f"{buffer_bytes:.0f}", "network.mtu": f"{mtu_bytes:.0f}"}
    return Bed(context, ["/dev/null", *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))])


def of_path(context, *, round_trip_seconds, loss, mtu_bytes):
    """Nodes "sender" and "receiver", far apart; the path loses a share of the packets to the receiver."""
    return Bed(context, ["/dev/null", "--set", "ros.count=1", "--set", "sfi.count=1", "--set", f"network.mtu={mtu_bytes:.0f}",
                         "--round-trip", f"{round_trip_seconds * 1e9:.0f}ns", "--fault", f"loss={loss:.9f}"])
