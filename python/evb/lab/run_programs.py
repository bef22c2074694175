"""Runs a point with another program than evb, for comparison: iperf3, spead2, or the kernel alone."""
import os
import re
import shutil
import signal
import time

from . import bed
from .context import PointFailed
from .process import LOOK_SECONDS, Program, machine_figures, report_of, wait

IPERF_PORT, SPEAD_PORT = 5201, 26900
HEAP_BYTES, FIRST_HEAPS = 4 << 20, 128
PACKET_HEADER_BYTES = 40  # of spead2; that of the first packet of a heap has some more
PATIENCE_SECONDS = 30


def seconds_of(point):
    """iperf3 takes whole seconds, and 0 as no limit."""
    return max(int(point.number("scenario.duration", point.number("seconds", 1))), 1)


def figures(received, sent=None, lost_percent=None):
    """In bytes per second; of event building, and of streams."""
    return {"throughput_bytes_per_second": received, "mbps": received * 8 / 1e6, "sent_mbps": sent and sent * 8 / 1e6,
            "lost_percent": lost_percent}


def listens(program, port, *protocols):
    """Whether a socket in the namespace of the program listens at the port."""
    for name in protocols:
        with open(f"/proc/{program.pid}/net/{name}", encoding="ascii") as sockets:
            lines = [line.split() for line in sockets.readlines()[1:]]
        # TCP in state LISTEN, UDP without a peer: connections have other states.
        if any(words[1].endswith(f":{port:04X}") and words[3] in ("07", "0A") for words in lines):
            return True
    return False


class Pair:
    """A receiver and a sender in the namespaces of a network; the machine is watched from the start of the sender."""

    def __init__(self, point, context, net):
        self.point, self.context, self.net = point, context, net
        self.to = net.address("sfi1")

    def start(self, node, words):
        program = Program(words, namespace=self.net.namespace(node), raised=self.context.raised)
        self.net.tell(f"watch {program.pid}")
        return program

    def until(self, what, condition):
        """Waits for a condition."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > until or self.context.stopped():
                raise PointFailed(f"{what} within {PATIENCE_SECONDS} s")
            time.sleep(LOOK_SECONDS)

    def ended(self, program, seconds):
        """Waits for the end of a program. Returns what it printed."""
        if not wait([program], self.context, seconds + PATIENCE_SECONDS):
            raise PointFailed(f"{program.words[0]} did not end")
        return program.output()

    def buffers(self, option, kind):
        """All programs of streams are granted the same buffers."""
        return [option, str(bed.granted_bytes(kind))] if self.point.text("socket") == "granted" else []


def iperf3(pair):
    """The receiver's sums: packets and lost ones of UDP, bytes of TCP."""
    point, seconds = pair.point, seconds_of(pair.point)
    words = ["iperf3", "-c", pair.to, "-t", seconds, "-J"]
    tcp = point.text("transport") == "tcp"
    packet = int(point.number("writes" if tcp else "packet"))
    words += ["-l", packet] + ([] if tcp else ["-u", "-b", "0"]) + pair.buffers("-w", "wmem")
    with pair.start("sfi1", ["iperf3", "-s", "-1", "-J"]) as server:
        pair.until("iperf3 does not listen", lambda: server.has_ended or listens(server, IPERF_PORT, "tcp", "tcp6"))
        pair.net.tell("begin")
        with pair.start("ros1", words) as client:
            pair.ended(client, seconds)
            pair.net.tell("end")
            pair.ended(server, 0)
            client.report((0,))
            end = server.report()["end"]
    if tcp:
        return figures(end["sum_received"]["bits_per_second"] / 8)
    total, lost, seconds = (end["sum"][name] for name in ("packets", "lost_packets", "seconds"))
    return figures((total - lost) * packet / seconds, total * packet / seconds, 100 * lost / total)


def send_heaps(pair, n, watched):
    """Sends n heaps with spead2. Returns the bytes that were sent, in how many seconds, and the packets that arrived."""
    at, packet = f"{pair.to}:{SPEAD_PORT}", int(pair.point.number("packet"))
    seconds = 4 * seconds_of(pair.point)
    with pair.start("sfi1", [shutil.which("spead2_recv.py"), at, "--mem-pool", *pair.buffers("--buffer", "rmem")]) as receiver:
        pair.until("spead2 does not listen", lambda: receiver.has_ended or listens(receiver, SPEAD_PORT, "udp"))
        if watched:
            pair.net.tell("begin")
        with pair.start("ros1", [shutil.which("spead2_send.py"), at, "--packet", packet, "--heap-size", HEAP_BYTES, "--heaps", n,
                                 *pair.buffers("--buffer", "wmem")]) as sender:
            sent = re.search(r"Sent (\d+) bytes in ([0-9.]+)s", pair.ended(sender, seconds))
        if watched:
            pair.net.tell("end")
        # The receiver reads what is in its buffer, and ends with the stream or on SIGINT.
        wait([receiver], pair.context, 0.5)
        if not receiver.has_ended:
            os.kill(receiver.pid, signal.SIGINT)
        packets = re.search(r"^packets: (\d+)", pair.ended(receiver, 0), re.M)
    if not sent or not packets:
        raise PointFailed("spead2 does not say what it sent and received")
    return int(sent[1]), float(sent[2]), int(packets[1])


def spead2(pair):
    """Its sender ends after a number of heaps: a short run shows how many. Its receiver counts packets; those of incomplete heaps
    count here, too."""
    sent, seconds, _ = send_heaps(pair, FIRST_HEAPS, False)
    n = max(int(sent / seconds * seconds_of(pair.point) / HEAP_BYTES), 1)
    sent, seconds, packets = send_heaps(pair, n, True)
    part = min(packets / (n * -(-HEAP_BYTES // (int(pair.point.number("packet")) - PACKET_HEADER_BYTES))), 1)
    return figures(sent * part / seconds, sent / seconds, 100 * (1 - part))


def in_namespaces(measure):
    """Runs a sender and a receiver between the namespaces of a network without a rate."""
    def run_pair(point, context):
        with bed.of_switch(context, senders=1, receivers=1, link_bps=0, buffer_bytes=262144,
                           mtu_bytes=point.number("mtu", point.mtu_bytes)) as net:
            if point.number("segments") > 0:
                net.limit_segments(point.number("segments"))
            measured = measure(Pair(point, context, net))
            return measured | machine_figures(net.finish())
    return run_pair


def wire(point, context):
    """The kernel alone. The machine is not watched."""
    words = [context.evb, "bench", "wire", "--size", f"{point.number('packet'):.0f}", "--count", "1", "--duration", f"{seconds_of(point)}s", "--json"]
    [measured] = report_of(words, context, raised=context.raised)["sizes"]
    return figures(measured["throughput_bytes_per_second"], lost_percent=measured["lost_percent"])


RUNS = {"iperf3": in_namespaces(iperf3), "spead2": in_namespaces(spead2), "wire": wire}


def run(point, context):
    return RUNS[point.text("program")](point, context)
