"""Runs a point on the machines of a testbed: starts each node by ssh, collects the reports, and ends all nodes whatever
happens.

ssh_config(5) says how a machine is reached whose address in the scenario is not that of its ssh server.
"""
import contextlib
import pathlib
import shlex
import subprocess
import time

from . import quantity
from .context import PointFailed
from .process import Program, report_of, wait

# The sections of a scenario that a measurement sets. A testbed's own scenario has the others: nodes, links, sockets.
MEASURED = ("scenario", "trigger", "dfm", "ros", "sfi", "qos")
# Their keys that belong to a testbed all the same, or to this machine.
OF_TESTBED = ("scenario.name", "ros.count", "sfi.count", "sfi.directory")
LINKS = ("network.link-rate", "network.mtu", "network.switch-buffer")
# Time to connect, to start, to find each other and to answer.
OVERHEAD_SECONDS = 60
LOOK_SECONDS = 0.1
# Between the end of a run and the end of a node that no signal reaches.
KILL_SECONDS = 30
# The program of the remote shell. It reads the scenario and the key from standard input. When that closes afterwards, ssh or
# the lab is gone, and the node ends; a node that no end of ssh is noticed of ends by timeout(1).
SHELL = """
umask 077
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
head -c {scenario_bytes} >"$d/scenario.conf" && head -c {key_bytes} >"$d/key" || exit 1
cd "$d" || exit 1
exec 3<&0
timeout --kill-after={kill} {limit} {command} </dev/null &
node=$!
(cat <&3; kill $node) >/dev/null 2>&1 &
wait $node
"""


def settings_of(point, defaults):
    """The settings of a run: those of the command line, the defaults of all keys that a measurement may set, so that the
    testbed's own values have no effect, and those of the point."""
    usual = [f"{section}.{name}={value}" for section in MEASURED for name, value in defaults[section].items()
             if value != "" and f"{section}.{name}" not in OF_TESTBED]
    of_point = [f"{key}={value}" for key, value in point.settings.scenario_keys().items() if key not in LINKS]
    # A new run number makes packets of earlier runs foreign to this one. No operator starts the runs of measurements.
    number = time.time_ns() // 10**6 % 2**32 | 1
    return [*point.bed.settings, *usual, *of_point, "run.start=auto", f"run.number={number}"]


def as_options(settings):
    return [word for setting in settings for word in ("--set", setting)]


class Node:
    """A node on its machine."""

    def __init__(self, bed, node, settings, files, limit_seconds):
        self.name, self.role = node["name"], node["role"]
        key = ["--set", "network.key-file=key"] if files["key"] else []
        words = [bed.program, self.role, "--config", "scenario.conf", "--node", self.name, "--quiet", "--json", *as_options(settings), *key]
        script = SHELL.format(scenario_bytes=len(files["scenario"]), key_bytes=len(files["key"]), kill=KILL_SECONDS,
                              limit=f"{limit_seconds:.0f}", command=shlex.join(words))
        self.program = Program([*bed.ssh, node["address"], f"sh -c {shlex.quote(script)}"], stdin=subprocess.PIPE)
        with contextlib.suppress(OSError):
            self.program.process.stdin.write(files["scenario"] + files["key"])
            self.program.process.stdin.flush()

    @property
    def failed(self):
        """Without one node, the result is invalid."""
        return self.program.has_ended and self.program.status not in (0, 1)

    def why(self):
        return f"{self.name} could not take part (status {self.program.status}): {self.program.complaint()}"


def nodes_of(point, settings, context):
    """The nodes of a run, and its effective keys."""
    checked = report_of([context.evb, "check", point.bed.path, "--json", *as_options(settings)], context)
    if any(node["address"] == "" for node in checked["nodes"]):
        raise PointFailed(f"{point.bed.path}: each node needs a section [node NAME] with an address")
    return checked


def files_of(bed, checked):
    """What each machine gets: the scenario, and the key of its messages."""
    key = checked["network"]["key-file"]
    return {"scenario": pathlib.Path(bed.path).read_bytes(), "key": pathlib.Path(key).read_bytes() if key else b""}


def run_nodes(point, settings, checked, context):
    """Returns the reports of all nodes, and the seconds that they took."""
    limit = quantity.parse(checked["scenario"]["duration"]) + OVERHEAD_SECONDS
    files = files_of(point.bed, checked)
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        nodes = [started(stack, Node(point.bed, node, settings, files, limit)) for node in checked["nodes"]]
        wait_for(nodes, begin + limit + KILL_SECONDS, context)
        return [node.program.report() for node in nodes], time.monotonic() - begin


def started(stack, node):
    """All nodes are asked to end before any is waited for."""
    stack.enter_context(node.program)
    stack.callback(node.program.close_input)
    return node


def wait_for(nodes, until, context):
    """Waits until all nodes have ended. Raises PointFailed as soon as one has failed."""
    ended = False
    while not ended:
        ended = wait([node.program for node in nodes], context, LOOK_SECONDS)
        failed = [node.why() for node in nodes if node.failed]
        if failed or context.stopped():
            raise PointFailed("; ".join(failed) or "interrupted")
        if time.monotonic() > until:
            raise PointFailed("the nodes did not end")


def merge(reports, seconds):
    """Makes a report as `evb run` does, as far as figures need it, of those of the nodes. What a launcher measures beside its
    nodes is unknown."""
    dfm = next(report for report in reports if report["role"] == "dfm")
    role = {name: [report for report in reports if report["role"] == name] for name in ("dfm", "ros", "sfi")}
    shaped = next((ros for ros in role["ros"] if ros["qos_backend"] != "none"), None)

    def total(of, name):
        return sum(report[name] for report in role[of])

    return dfm | {
        "seconds": seconds,
        "qos_backend": shaped["qos_backend"] if shaped else "none",
        "qos_rate_bps": shaped["qos_rate_bps"] if shaped else None,
        "busy_seconds": dfm["busy_ns"] / 1e9,
        "drops": {"switch_packets": None, "socket_packets": total("sfi", "packets_socket_dropped"),
                  "source_qdisc_packets": total("ros", "packets_source_dropped") if shaped else None},
        "fragments": {"re_asked": total("sfi", "fragments_re_asked"), "late": total("sfi", "fragments_late"),
                      "lost": dfm["fragments_lost"]},
        "cpu_seconds": {name: total(name, "cpu_seconds") for name in role},
        "cpu_percent": dict.fromkeys(role),
    }


def run_events(point, context, defaults):
    settings = settings_of(point, defaults)
    checked = nodes_of(point, settings, context)
    report = merge(*run_nodes(point, settings, checked, context))
    if report["triggers"] == 0:
        network = checked["network"]
        raise PointFailed(f"the run accepted no trigger; check that packets to port {network['port']} and the next one, and to group "
                          f"{network['control-group']}, reach all nodes")
    return report
