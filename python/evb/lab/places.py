"""Where the programs of a point run that are no nodes: in namespaces of this machine, or on the machines of a testbed."""
import shlex
import subprocess

from . import bed, machines
from .process import Program

LIMIT_SECONDS = 120  # for a program on another machine that no end of ssh reaches


class Here:
    """Senders ros1... and receivers sfi1... in namespaces, with a switch between them. A context manager."""

    def __init__(self, point, context, senders, receivers):
        self.context, self.evb = context, context.evb
        self.senders = [f"ros{i + 1}" for i in range(senders)]
        self.receivers = [f"sfi{i + 1}" for i in range(receivers)]
        self.link_bps, self.buffer_bytes = point.number("link", 1e9), point.number("buffer", 262144)
        self.net = bed.of_switch(context, senders=senders, receivers=receivers, link_bps=self.link_bps, buffer_bytes=self.buffer_bytes,
                                 mtu_bytes=point.number("mtu", 1500))

    def __enter__(self):
        self.net.__enter__()
        return self

    def __exit__(self, *error):
        self.net.__exit__(*error)

    def address(self, node):
        return self.net.address(node)

    def device(self, _):
        return bed.DEVICE

    def start(self, node, words):
        """Runs a program in the network of a node."""
        return Program(words, namespace=self.net.namespace(node), raised=self.context.raised)

    def start_script(self, node, script):
        """Runs a script of the shell; its standard input stays open until it is asked to end."""
        return Program(["sh", "-c", script], namespace=self.net.namespace(node), raised=self.context.raised, stdin=subprocess.PIPE)

    def watch(self, programs, active):
        """Watches the machine while programs are measured."""
        for program in programs:
            self.net.tell(f"watch {program.pid}")
        self.net.tell("begin" if active else "end")

    def finish(self):
        return self.net.finish()


class There:
    """The first nodes of a testbed."""

    def __init__(self, point, context, senders, receivers):
        self.bed, self.evb = point.bed, point.bed.program
        checked = machines.nodes_of(point, point.bed.settings, context)
        self.nodes = {node["name"]: node for node in checked["nodes"]}
        self.senders = [name for name, node in self.nodes.items() if node["role"] == "ros"][:senders]
        self.receivers = [name for name, node in self.nodes.items() if node["role"] == "sfi"][:receivers]
        self.link_bps, self.buffer_bytes = point.bed.link_rate_bps, point.bed.switch_buffer_bytes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def address(self, node):
        return self.nodes[node]["address"]

    def device(self, node):
        return self.nodes[node]["device"]

    def start(self, node, words):
        """The program ends when standard input closes: then ssh or the lab is gone."""
        return self.start_script(node, f"exec 3<&0; {shlex.join(words)} </dev/null & p=$!; (cat <&3; kill $p) >/dev/null 2>&1 & wait $p")

    def start_script(self, node, script):
        bounded = f"timeout --kill-after={machines.KILL_SECONDS} {LIMIT_SECONDS} sh -c {shlex.quote(script)}"
        return Program([*self.bed.ssh, self.address(node), bounded], stdin=subprocess.PIPE)

    def watch(self, programs, active):
        pass

    def finish(self):
        """What the network did is unknown."""
        return {"switch_packets": None, "testbed_lost_packets": None, "port": None}

