"""What a point or a measurement needs: nodes of a testbed by role, and features of their machines. The points of a full sweep
determine both, so they cannot differ from what the points do."""
import dataclasses
import os
import shutil
import socket

from . import quantity
from .measurement import Kind, Simulation, Testbed, points_of

# The input and the output of a stream from disk to disk, and what must stay free on the disk.
DISK, SPARE_BYTES = "/var/tmp", 10**9
TUN = "/dev/net/tun"
NOT_SIMULATED = {Kind.FLOWS: "plain flows and echoes", Kind.COPY: "copies of memory", Kind.PATHS: "data paths of a kernel",
                 Kind.STREAMS: "streams of evb stream"}
# What the simulator models, and what `evb sim` says of other values. In all measurements, the rest of a scenario is modelled.
MODELLED = [("scenario.transport", ("udp",), "scenario.transport: tcp is not modelled; expected udp"),
            ("test.pacing", ("none", "together"), "test.pacing: pacing is not modelled; expected none")]


def _simulator_lacks(point):
    if point.measurement.kind is not Kind.EVENTS:
        return f"cannot be simulated: it measures {NOT_SIMULATED[point.measurement.kind]}"
    keys = point.settings.scenario_keys()
    for key, modelled, why in MODELLED:
        if keys.get(key, modelled[0]) not in modelled:
            return f"cannot be simulated: {why}"
    return None


def _congestion_control_of(point):
    """Empty: the kernel's default, or no TCP."""
    return point.settings.scenario_keys().get("scenario.transport", "").partition(":")[2]


def _congestion_control_lacks(point):
    """The kernel loads a module on demand, so what it lists says less than a socket."""
    name = _congestion_control_of(point)
    if not name:
        return None
    try:
        with socket.socket() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError:
        return f"needs the TCP congestion control {name}, which the kernel lacks"
    return None


def disk_file_bytes(point):
    """The file of a stream from disk lasts for the time of the stream."""
    return int(point.number("rate_mbps") * 1e6 / 8 * point.number("seconds", 2))


def _has_direct():
    """Whether the disk has direct reads and writes: raises OSError if not."""
    fd = os.open(DISK, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    os.close(fd)


def _disk_lacks(point):
    needed = 2 * disk_file_bytes(point) + SPARE_BYTES
    direct = point.number("direct") > 0
    try:
        if direct:
            _has_direct()
        free = os.statvfs(DISK)
    except OSError as e:
        return f"needs {'direct reads and writes (O_DIRECT)' if direct else 'files'} in {DISK}: {e.strerror}"
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes >= needed:
        return None
    return f"needs {needed / 1e9:.1f} GB in {DISK}, where {free_bytes / 1e9:.1f} GB are free"


PROGRAMS = {"iperf3": ("iperf3", "iperf3, which is not installed"),
            "spead2": ("spead2_send.py", "spead2, but the programs of its Python package are not in PATH")}


def _program_lacks(point):
    """What runs in place of evb."""
    name = point.text("program")
    if name == "baseline":
        return "needs another build of evb; set EVB_BASELINE to its path"
    if name in ("", "wire"):
        return None
    path, lack = PROGRAMS.get(name, (name, f"the program {name}, which does not exist or is not executable"))
    return None if shutil.which(path) else f"needs {lack}"


def _machine_lacks(point):
    if point.text("program"):
        return _program_lacks(point)
    if point.number("round_trip_ms") > 0 and not os.access(TUN, os.R_OK | os.W_OK):
        return "needs TUN devices, which the kernel lacks"
    if point.number("pin") > 0 and len(os.sched_getaffinity(0)) < 2:
        return "needs two processors"
    if point.number("disk") > 0:
        return _disk_lacks(point)
    return _congestion_control_lacks(point)


def nodes_of(point):
    """The numbers of sources and destinations."""
    events = point.measurement.kind is Kind.EVENTS
    return point.number("ros.count" if events else "senders", 1), point.number("sfi.count" if events else "receivers", 1)


def _is_varied(point, key):
    """Whether the panel or the series of the point sets a property of the network."""
    m = point.measurement
    return (bool(m.panels) and key in m.panels[0].settings) or key in m.series[point.series]


def _testbed_lacks(point):
    bed = point.bed
    if point.measurement.kind in (Kind.PATHS, Kind.STREAMS):
        return "measures this machine; leave out --config"
    if point.text("level2.stand-in"):
        return "needs a stand-in farm, which other machines lack"
    for needed, available, role in zip(nodes_of(point), (bed.ros, bed.sfi), ("ROS", "SFI")):
        if needed > available:
            return f"needs {needed:.0f} {role}{'s' if needed > 1 else ''}, the scenario has {available:.0f}"
    buffer_kib, link = point.number("network.switch-buffer"), point.text("network.link-rate", "1Gbit")
    if _is_varied(point, "network.switch-buffer") and buffer_kib * 1024 != bed.switch_buffer_bytes:
        return f"needs network.switch-buffer = {buffer_kib:.0f}KiB, the scenario has {bed.switch_buffer_bytes / 1024:g} KiB"
    if _is_varied(point, "network.link-rate") and quantity.parse(link) != bed.link_rate_bps:
        return f"needs network.link-rate = {link}, the scenario has {bed.link_rate_bps / 1e9:g} Gbit/s"
    mtu = point.number("mtu", bed.mtu_bytes)
    return None if mtu == bed.mtu_bytes else f"needs network.mtu = {mtu:.0f}, the scenario has {bed.mtu_bytes:.0f}"


def missing(point):
    """What the testbed, this machine's kernel or the simulator lacks to make the point ("needs ..."), or None."""
    if point.measurement.benchmark and point.bed:
        return f"measures this machine; leave out {'--sim' if isinstance(point.bed, Simulation) else '--config'}"
    if isinstance(point.bed, Simulation):
        return _simulator_lacks(point)
    if point.measurement.virtual_only:
        return "exists in the simulator only; add --sim"
    return _testbed_lacks(point) if isinstance(point.bed, Testbed) else _machine_lacks(point)


# Features in the order in which they are listed, and whether a point needs them.
FEATURES = [("shaping", lambda p: bool(p.text("qos.backend"))),
            ("shaping", lambda p: p.number("rate") > 0),
            ("packet capture", lambda p: p.number("watch") > 0),
            ("TUN devices", lambda p: p.number("round_trip_ms") > 0),
            ("two processors", lambda p: p.number("pin") > 0),
            ("iperf3", lambda p: p.text("program") == "iperf3"),
            ("spead2", lambda p: p.text("program") == "spead2"),
            ("another build of evb", lambda p: p.measurement.id == "P3"),
            ("a stand-in farm", lambda p: bool(p.text("level2.stand-in"))),
            ("TCP congestion control bbr", lambda p: _congestion_control_of(p) == "bbr")]
# Properties of a network that no run can change: text, key, unit, and usual value. missing() compares the MTU, and those others
# that a measurement varies.
PROPERTIES = [("MTU", "mtu", "", 1500), ("link rate", "network.link-rate", " Gbit/s", 1),
              ("port buffer", "network.switch-buffer", " KiB", 0)]


@dataclasses.dataclass(frozen=True)
class Needs:
    simulator: bool = False     # only the simulator can make it
    testbed: bool = False       # other machines can make it, too; False: only this machine can
    ros: tuple[int, int] = (0, 0)  # nodes of a testbed: for the smallest point, and for all points
    sfi: tuple[int, int] = (0, 0)
    features: tuple[str, ...] = ()

    def __str__(self):
        """"1 DFM, 6 ROSs, 1 SFI; shaping", for example."""
        def nodes(least, most, role):
            return f", {least} to {most} {role}s" if least < most else f", {most} {role}{'s' if most > 1 else ''}"

        text = "1 DFM" if self.testbed else "the simulator (--sim)" if self.simulator else "this machine"
        if self.testbed:
            text += nodes(*self.ros, "ROS") + nodes(*self.sfi, "SFI")
        return text + ("; " + ", ".join(self.features) if self.features else "")


def _needed_features(points):
    for point in points:
        for text, is_needed in FEATURES:
            if is_needed(point):
                yield text, point.is_optional


def _features(points):
    """A feature is optional if no other points need it."""
    found = list(dict.fromkeys(_needed_features(points)))
    return [f"{text} (optional)" if is_optional else text for text, is_optional in found
            if not is_optional or (text, False) not in found]


def _disk(kind, points):
    """A stream has a file at each end. The data paths of a measurement share one file for each of their sources."""
    if kind is Kind.STREAMS:
        needed = max((2 * disk_file_bytes(p) + SPARE_BYTES for p in points if p.number("disk") > 0), default=0)
    elif kind is Kind.PATHS:
        needed = max(p.number("file") for p in points) * len({p.number("source") for p in points})
    else:
        needed = 0
    return [f"{needed / 1e9:.1f} GB in {DISK}"] if needed > 0 else []


def _properties(points):
    for text, key, unit, usual in PROPERTIES:
        values = list(dict.fromkeys(p.number(key, usual) for p in points if not p.is_optional))
        if len(values) > 1 or (key == "mtu" and values[0] != usual):
            yield f"{text} {', '.join(f'{value:g}' for value in values)}{unit}"


def needs_of(m):
    """What a measurement needs in full."""
    if m.virtual_only:
        return Needs(simulator=True)
    points = points_of(m)
    # A stand-in farm is a process on this machine, so other machines do not have one.
    testbed = m.kind in (Kind.EVENTS, Kind.FLOWS) and not m.benchmark and not any(p.text("level2.stand-in") for p in points)
    features = [*_features(points), *_disk(m.kind, points), *(_properties(points) if testbed else ())]
    ranges = [(int(min(numbers)), int(max(numbers))) for numbers in zip(*map(nodes_of, points))] if testbed else []
    return Needs(False, testbed, *ranges, features=tuple(dict.fromkeys(features)))
