"""Runs a point of one stream: builds its network, starts both ends of `evb stream`, and computes the figures."""
import contextlib
import os
import subprocess
import sys
import time

from . import bed, stream_figures
from .context import PointFailed
from .process import Program, machine_figures, wait
from .stream_files import StreamFiles, figures as file_figures

PORT = 26900
DEVICE = "eth0"
# More than any stream sends.
INPUT_BYTES = 10**12
# Beyond twice the time of the stream, as a disk may be slow; a stream whose network is gone ends by itself after 20 s.
PATIENCE_SECONDS = 30
# The values of `wake` and `interface` in settings.
WAKES = ("futex", "signal", "yield", "poll")
ANYWHERE, WITH_RECEIVER, ELSEWHERE = range(3)


def places(point):
    """The processors of threads that are pinned. With two, the sender shares the one that serves the interface, or the
    receiver does."""
    processors = sorted(os.sched_getaffinity(0))
    found = {"send": processors[0], "receive": processors[-1], "interface": processors[-1]}
    if point.number("interface") == ELSEWHERE:
        found["interface"] = processors[1] if len(processors) > 2 else processors[0]
    return found


def place_interface(namespace, processor):
    """Sets receive packet steering. sysfs shows the namespace of the process that mounts it."""
    mask = f"{1 << processor % 32:x}" + ",00000000" * (processor // 32)
    script = f"mount -t sysfs sysfs /sys && echo {mask} > /sys/class/net/{DEVICE}/queues/rx-0/rps_cpus"
    done = subprocess.run(["nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount", "sh", "-c", script],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PointFailed(f"cannot choose the processor that serves {DEVICE}: {done.stderr.strip()}")


def network(point, context):
    round_trip_ms, mtu_bytes = point.number("round_trip_ms"), point.number("mtu", 1500)
    if round_trip_ms > 0:
        return bed.of_path(context, round_trip_seconds=round_trip_ms / 1e3, loss=point.number("loss_percent") / 100, mtu_bytes=mtu_bytes)
    return bed.of_switch(context, senders=1, receivers=1, link_bps=point.number("link", 1e9),
                         buffer_bytes=point.number("buffer", 262144), mtu_bytes=mtu_bytes)


def data_words(point, files):
    """Input and output. A file ends the stream by itself."""
    direct = ["--direct"] if point.number("direct") > 0 else []
    if files:
        return ["--input", files.path(files.input), *direct], ["--output", files.path(files.output), *direct]
    kind = "pattern" if point.number("pattern") > 0 else "null"
    duration = f"{1e3 * point.number('seconds', 2):.0f}ms"
    return ["--input", f"{kind}:{INPUT_BYTES}", "--duration", duration], ["--output", kind]


def wake_words(point):
    """How the receiver wakes its output thread. A sender's threads always use the default."""
    wake = WAKES[min(int(point.number("wake")), len(WAKES) - 1)]
    return ["--wake", f"signal={point.number('every', 100):.0f}" if wake == "signal" else wake]


def pace_words(point):
    """As fast as possible, unless a spacing or a rate is set."""
    spacing_ns, mbps = point.number("spacing_ns"), point.number("rate_mbps")
    return ["--spacing", f"{spacing_ns:.0f}ns"] if spacing_ns > 0 else ["--rate", f"{mbps:.0f}Mbit" if mbps > 0 else "max"]


def buffer_words(point):
    """For the sender and for the receiver. Every program is granted the buffers of bed.granted_bytes()."""
    if point.text("socket") != "granted":
        return [], ["--socket-buffer", f"{point.number('socket', 8 << 20):.0f}"]
    return [["--socket-buffer", f"{bed.granted_bytes(kind)}"] for kind in ("wmem", "rmem")]


def commands(point, to, at, files):
    """The options of the sender and of the receiver."""
    send, receive = data_words(point, files)
    send_buffer, receive_buffer = buffer_words(point)
    send = [f"{to}:{PORT}", "--packet-size", f"{point.number('packet', 1472):.0f}", *pace_words(point), *send_buffer, *send]
    receive = [f"0.0.0.0:{PORT}", *receive_buffer, "--json", *receive, *wake_words(point)]
    if point.number("repair") > 0:
        receive += ["--repair"]
    if point.number("pin") > 0:
        send += ["--cpus", f"network={at['send']}"]
        receive += ["--cpus", f"network={at['receive']}"]
    if point.number("busy") > 0:
        receive += ["--cpus", f"file={at['receive']}"]
    return send, receive


def busy_process(point, context, at):
    """A process at the priority of the ends, which takes the time of the receiver's processor."""
    if point.number("busy") <= 0:
        return contextlib.nullcontext()
    return Program(["taskset", "--cpu-list", at["receive"], sys.executable, "-c", "while True: pass"], raised=context.raised)


def follow(net, ends, seconds, context):
    """Waits for both ends. The machine is watched while the sender sends: the watch reads the times of living processes."""
    until = time.monotonic() + 2 * seconds + PATIENCE_SECONDS
    net.tell("begin")
    wait(ends, context, seconds)
    net.tell("end")
    if not wait(ends, context, until - time.monotonic()):
        raise PointFailed("interrupted" if context.stopped() else f"a stream of {seconds:g} s did not end")


def run_ends(point, context, net, names, at, files):
    """Returns the report of the receiver, which contains the sender's."""
    send, receive = commands(point, net.address(names[1]), at, files)
    with busy_process(point, context, at) as busy, \
            Program([context.evb, "stream", "recv", *receive], namespace=net.namespace(names[1]), raised=context.raised) as receiver, \
            Program([context.evb, "stream", "send", *send], namespace=net.namespace(names[0]), raised=context.raised) as sender:
        for process in filter(None, (sender, receiver, busy)):
            net.tell(f"watch {process.pid}")
        follow(net, [sender, receiver], point.number("seconds", 2), context)
        try:
            return receiver.report()
        except PointFailed as error:
            raise PointFailed(f"{error}; the sender: {sender.complaint()}") from error


def path_figures(counts):
    """What the network did to the packets, as it counted them itself."""
    if counts["path_lost_packets"] is not None:
        return {name: counts[name] for name in ("path_lost_packets", "testbed_lost_packets")}
    return {name: counts[name] for name in ("switch_packets", "testbed_lost_packets", "port")}


def place_figures(point, at):
    used = ["send", "receive"] if point.number("pin") > 0 else []
    used += ["interface"] if used and point.number("interface") != ANYWHERE else []
    return {"places": {name: at[name] for name in used}} if used else {}


def repair_figures(report, size_bytes):
    """The rate includes the time of the repair."""
    repair = report["repair_seconds"] or 0
    return {"packets_repaired": report["packets_repaired"], "repair_seconds": repair,
            "repaired_mbps": size_bytes * 8 / (report["seconds"] + repair) / 1e6}


def run(point, context):
    at, names = places(point), ("sender", "receiver") if point.number("round_trip_ms") > 0 else ("ros1", "sfi1")
    with contextlib.ExitStack() as stack:
        files = None
        if point.number("disk") > 0:
            size_bytes = int(point.number("rate_mbps") * 1e6 / 8 * point.number("seconds", 2))
            files = stack.enter_context(StreamFiles(size_bytes, context))
        if point.number("quiet") > 0:
            os.sync()
        net = stack.enter_context(network(point, context))
        if point.number("segments") > 0:
            net.limit_segments(point.number("segments"))
        if point.number("interface") != ANYWHERE:
            place_interface(net.namespace(names[1]), at["interface"])
        report = run_ends(point, context, net, names, at, files)
        counts = net.finish()
        found = stream_figures.of_report(report, packet_bytes=point.number("packet", 1472), interval_seconds=point.number("interval", 1))
        found |= path_figures(counts) | place_figures(point, at) | machine_figures(counts)
        if point.number("repair") > 0:
            found |= repair_figures(report, files.size_bytes)
        return found | (file_figures(files) if files else {})
