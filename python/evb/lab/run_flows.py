"""Runs a point of plain flows: one-way traffic or echoes between nodes by `evb stream --format raw`, with or without shaping."""
import contextlib
import dataclasses
import json
import shlex
import time

from . import flow_figures
from .context import PointFailed
from .measurement import ECHO, MULTICAST, TCP, UDP, Testbed
from .places import Here, There
from .process import LOOK_SECONDS, machine_figures, wait

GROUP = "239.255.69.1"
PORT = 7100
CONTROL_PORT = 26800
FILL_BYTES = 1400
WARM_UP_SECONDS = 1  # flows of TCP are counted once they run at full speed
# Beyond the time of the flows, to start and to end.
PATIENCE_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class Flow:
    sender: str
    receivers: list[str]  # several only of multicast
    port: int
    watched: bool = False  # times between packets are measured at the first receiver


def flows_of(point, place, kind):
    """All flows at once: from each sender to each receiver, or to all receivers by multicast."""
    watched = point.number("watch") > 0
    if kind == MULTICAST:
        return [Flow(sender, place.receivers, PORT + 16 * i, watched) for i, sender in enumerate(place.senders)]
    return [Flow(sender, [receiver], CONTROL_PORT if kind == ECHO else PORT + 16 * i + k, watched)
            for i, sender in enumerate(place.senders) for k, receiver in enumerate(place.receivers)]


def warm_up_seconds(point, kind):
    return point.number("warm_up", WARM_UP_SECONDS if kind == TCP else 0)


def pace(point):
    """As fast as possible, unless messages per second are set."""
    per_second = point.number("messages_per_s")
    return ["--spacing", f"{1e9 / per_second:.0f}ns"] if per_second > 0 else ["--rate", "max"]


def send_words(point, place, flow, kind):
    to = ",".join(f"{place.address(receiver)}:{flow.port}" for receiver in flow.receivers)
    words = [to, "--format", "raw", "--duration", f"{1e3 * point.number('seconds', 1):.0f}ms", "--json"]
    if kind == ECHO:
        return [*words, "--raw", "transport=echo", "--packet-size", "4"]
    words += ["--packet-size", f"{point.number('message', 1400):.0f}", "--socket-buffer", f"{point.number('socket'):.0f}", *pace(point)]
    if kind == MULTICAST:
        words += ["--raw", f"transport={GROUP}:{flow.port}"]
    if kind == TCP:
        words += ["--raw", "transport=tcp"]
    warm_up = warm_up_seconds(point, kind)
    return [*words, "--raw", f"warm-up={1e3 * warm_up:.0f}ms"] if warm_up > 0 else words


def receive_words(point, flow, kind, first):
    words = [f"0.0.0.0:{flow.port}", "--output", "null", "--json", "--quiet"]
    if kind != ECHO:
        words += ["--socket-buffer", f"{point.number('socket'):.0f}"]
    if point.number("receiver_pps") > 0:
        words += ["--raw", f"packet-limit={point.number('receiver_pps'):.0f}"]
    return [*words, "--raw", "watch-wire"] if flow.watched and first else words


class Started:
    """All programs of a point; the receivers wait for their senders."""

    def __init__(self, stack, place):
        self.stack, self.place = stack, place
        self.sent, self.received, self.fills = [], [], []

    def start(self, node, words):
        program = self.stack.enter_context(self.place.start(node, [self.place.evb, "stream", *words]))
        self.stack.callback(program.close_input)
        return program

    def start_flow(self, point, flow, kind):
        for i, receiver in enumerate(flow.receivers):
            self.received.append(self.start(receiver, ["recv", *receive_words(point, flow, kind, i == 0)]))
        self.sent.append(self.start(flow.sender, ["send", *send_words(point, self.place, flow, kind)]))

    def start_fill(self, point, flow):
        """Data beside an echo, which fill the link."""
        seconds = point.number("seconds", 1) + PATIENCE_SECONDS
        port = flow.port + 1
        receive = ["recv", f"0.0.0.0:{port}", "--output", "null", "--quiet"]
        send = ["send", f"{self.place.address(flow.receivers[0])}:{port}", "--format", "raw", "--packet-size", f"{FILL_BYTES}",
                "--rate", "max", "--duration", f"{seconds:.0f}s", "--socket-buffer", f"{point.number('socket'):.0f}"]
        self.fills += [self.start(flow.receivers[0], receive), self.start(flow.sender, send)]
        self.stack.callback(self.end_fill)

    def end_fill(self):
        """What they report does not matter, and shaping ends faster without traffic."""
        for program in self.fills:
            program.kill()


class Shaping:
    """The shaping of one sender, which ends with its script."""

    def __init__(self, stack, place, sender, words, context):
        evb, device = shlex.quote(place.evb), shlex.quote(place.device(sender))
        apply = shlex.join([place.evb, "qos", "apply", "--dev", place.device(sender), *words])
        script = (f"trap '' PIPE; trap '{evb} qos remove --dev {device} >&2' EXIT; {apply} >&2 || exit; echo applied; cat; "
                  f"{evb} qos status --dev {device} --json")
        self.program = stack.enter_context(place.start_script(sender, script))
        while not self.program.output():
            if self.program.has_ended or context.stopped():
                raise PointFailed(f"{sender} cannot shape: {self.program.complaint()}")
            time.sleep(LOOK_SECONDS)

    def drops(self):
        """Packets that the queues dropped until now. Ends the shaping."""
        self.program.end()
        try:
            status = json.loads(self.program.output().partition("\n")[2])
        except ValueError:
            return None
        classes = [*status["destinations"], status["control"] or {}, status["default"] or {}]
        return sum(each.get("drops") or 0 for each in classes)


def shaping_words(point, place, kind):
    """One class for each destination."""
    to = [GROUP] if kind == MULTICAST else [place.address(receiver) for receiver in place.receivers]
    # The shaping tree limits an echo's link to its configured rate, even on a faster wire.
    link_bps = point.number("link", 1e9) if kind == ECHO else place.link_bps
    words = [word for address in to for word in ("--dest", f"{address}={point.number('rate'):.0f}bit")]
    words += ["--backend", "htb+tbf", "--link-rate", f"{link_bps:.0f}bit", "--sources", f"{len(place.senders)}"]
    if kind != ECHO:
        words += ["--switch-buffer", f"{place.buffer_bytes:.0f}"]
    return words + (["--set", f"network.port={CONTROL_PORT}"] if point.number("control") > 0 else [])


def follow(point, context, place, started, kind):
    """Waits until all flows have ended; the machine is watched while they are measured."""
    measured = started.sent + started.received
    wait(measured, context, warm_up_seconds(point, kind))
    place.watch(measured, True)
    wait(started.sent, context, point.number("seconds", 1))
    place.watch([], False)
    if not wait(measured, context, PATIENCE_SECONDS):
        raise PointFailed("interrupted" if context.stopped() else "the flows did not end")


def reports_of(programs):
    """A sender to a group reports a stream for each receiver, all of one thread."""
    reports = [program.report() for program in programs]
    return [report["streams"][0] if "streams" in report else report for report in reports]


def run(point, context):
    kind = int(point.number("kind", UDP))
    counts = int(point.number("senders", 1)), int(point.number("receivers", 1))
    with contextlib.ExitStack() as stack:
        place = stack.enter_context((There if isinstance(point.bed, Testbed) else Here)(point, context, *counts))
        shaped = [Shaping(stack, place, sender, shaping_words(point, place, kind), context) for sender in place.senders] \
            if point.number("rate") > 0 else []
        started = Started(stack, place)
        for flow in flows_of(point, place, kind):
            if kind == ECHO and point.number("socket") > 0:
                started.start_fill(point, flow)
            started.start_flow(point, flow, kind)
        follow(point, context, place, started, kind)
        started.end_fill()
        figures = flow_figures.of_reports(kind, reports_of(started.sent), reports_of(started.received), point.number("watch") > 0)
        for shaping in shaped:
            shaping.program.close_input()
        drops = [shaping.drops() for shaping in shaped]
        figures["source_packets"] = sum(drops) if drops and None not in drops else None
        counted = place.finish()
        figures |= {name: counted[name] for name in ("switch_packets", "testbed_lost_packets", "port")}
        return figures | machine_figures(counted)
