"""Benchmarks P1 to P9: what this machine carries, compared with other programs, another build of evb and the bare kernel.

In most of them x is a round, which runs every series once, so that what else the machine does affects all of them alike; ratios are
medians of the ratios within a round.
"""
import math
import os
import random
import statistics

from . import limits, vary
from .measurement import Kind, Measurement, Panel
from .query import ratio
from .verdict import Verdict

ROUNDS, FEW_ROUNDS, ONE_ROUND = [1, 2, 3, 4, 5], [1, 2, 3], [1]
RATE, EVENTS = "throughput_bytes_per_second", "event_rate_hz"
UNLIMITED = "network.link-rate=unlimited trigger.rate=max sfi.output=null"
TCP, PULL = "scenario.transport=tcp", "scenario.mode=pull"
WAYS = {"push, UDP": "", "push, TCP": TCP, "pull, UDP": PULL, "pull, TCP": f"{PULL} {TCP}"}
IPERF_UDP, IPERF_TCP, WIRE = "iperf3, UDP, 1448 B", "iperf3, TCP", "bare wire"
REFERENCES = {IPERF_UDP: "program=iperf3 packet=1448", IPERF_TCP: "program=iperf3 transport=tcp"}
NOT_PUBLISHED = "not published; "


def better_if(condition):
    return Verdict.BETTER if condition else Verdict.DIFFERS


def values(j, key, series, panel=None):
    """A figure in each round."""
    return [value for _, value in j.of(series, panel).figures(key)]


def middle(j, key, series, panel=None):
    found = values(j, key, series, panel)
    return statistics.median(found) if found else math.nan


def times(j, key, series, reference, panel=None):
    """The median of the ratios within each round."""
    found = [ratio(a, b) for a, b in zip(values(j, key, series, panel), values(j, key, reference, panel))]
    return statistics.median(found) if found else math.nan


def incomplete(j, of_evb):
    """Events of all rounds that were not built whole."""
    return sum(j.of(series).sum("events_lost") + j.of(series).sum("events_partial") for series in of_evb)


def panels_of(j):
    """The panels of these points: a quick run has fewer."""
    return list(dict.fromkeys(p.panel for p in j.points))


def like(series):
    return IPERF_TCP if "TCP" in series else IPERF_UDP


def is_evb(series):
    return series not in (IPERF_UDP, IPERF_TCP, WIRE)


def speed_rows(j, panel=None, wire=False):
    """A row for each series: what it carries, relative to iperf3, and to the kernel alone."""
    for series in j.m.series:
        shown = f"{middle(j, EVENTS, series, panel):,.0f}" if is_evb(series) else ""
        row = [series, shown, f"{middle(j, RATE, series, panel) / 1e6:,.0f}"]
        row += [f"{times(j, RATE, series, like(series), panel):.2f}" if series != WIRE else ""]
        yield row + ([f"{times(j, RATE, series, WIRE, panel):.2f}" if "UDP" in series else ""] if wire else [])


def table_p1(j):
    return [["6 ROSs, 1 SFI, fragments of 14 KiB", "events/s", "payload, MB/s", "relative to iperf3"], *speed_rows(j)]


def table_p2(j):
    head = ["nodes, fragments", "case", "events/s", "payload, MB/s", "relative to iperf3", "relative to the bare wire"]
    return [head, *([panel, *row] for panel in panels_of(j) for row in speed_rows(j, panel, wire=True))]


def judge_speed(j):
    """Over UDP, evb must carry more than iperf3 does; over TCP, both are limited by the same copies."""
    found = {(series, panel): times(j, RATE, series, like(series), panel) for series in j.m.series if is_evb(series)
             for panel in panels_of(j)}
    udp = [value for (series, _), value in found.items() if "UDP" in series]
    tcp = [value for (series, _), value in found.items() if "TCP" in series]
    lost = incomplete(j, filter(is_evb, j.m.series))
    return better_if(min(udp) > 1 and lost == 0), (
        f"carries {min(udp):.2f} to {max(udp):.2f} times as much as iperf3 over UDP, and {min(tcp):.2f} to {max(tcp):.2f} times over "
        f"TCP; {lost:.0f} events are lost or partial")


# Writes of iperf3 and packets of the bare wire that are closest to the fragments.
SIZES = {"64 B": "ros.fragment-size=64 writes=1000 packet=64", "1 KiB": "ros.fragment-size=1024 writes=1000 packet=1024",
         "14 KiB": "ros.fragment-size=14336 writes=262144 packet=1448", "256 KiB": "ros.fragment-size=262144 writes=262144 packet=1448"}


def shape(sources, builders, size, quick=False):
    return Panel(f"{sources}x{builders}, {size}", f"ros.count={sources} sfi.count={builders} {SIZES[size]}", quick)


# Of two builds: mode, transport, nodes and fragments.
NOW, OTHER = "this build", "the other build"
CASES = [(f"{nodes} {way}, {size}", f"ros.count={nodes[0]} sfi.count={nodes[2]} {SIZES[size]} {WAYS[way]}")
         for nodes, way, size in (("1x1", "push, UDP", "64 B"), ("1x1", "push, UDP", "1 KiB"), ("1x1", "push, UDP", "14 KiB"),
                                  ("1x1", "push, TCP", "256 KiB"), ("6x1", "push, UDP", "1 KiB"), ("6x1", "push, UDP", "14 KiB"),
                                  ("6x1", "push, TCP", "14 KiB"), ("6x1", "pull, UDP", "14 KiB"), ("6x1", "pull, TCP", "14 KiB"))]
# Rounds of the same build differ by less.
SLOWER = 0.95


def other_build(point, _):
    return f"program={os.environ.get('EVB_BASELINE') or 'baseline'}" if point.series == OTHER else ""


def judge_builds(j):
    found = {panel: times(j, RATE, NOW, OTHER, panel) for panel in panels_of(j)}
    worst, best = min(found, key=found.get), max(found, key=found.get)
    lost = incomplete(j, [NOW])
    return better_if(found[worst] >= SLOWER and lost == 0), (
        f"is {found[worst]:.2f} ({worst}) to {found[best]:.2f} ({best}) times as fast as the other build; {lost:.0f} events are lost or "
        "partial")


def table_builds(j):
    return [["case", "events/s", "the other build", "times as fast"],
            *([panel, *(f"{middle(j, EVENTS, series, panel):,.0f}" for series in (NOW, OTHER)), f"{times(j, RATE, NOW, OTHER, panel):.2f}"]
              for panel in panels_of(j))]


# docs/performance.md, "Goals".
FILE, NONE, FILE_SHARE = "file", "null", 0.7


def judge_files(j):
    found = {panel: times(j, RATE, FILE, NONE, panel) for panel in panels_of(j)}
    lost = incomplete(j, [FILE, NONE])
    return better_if(min(found.values()) >= FILE_SHARE and lost == 0), (
        "with a file, it carries " + ", ".join(f"{share:.2f} ({panel})" for panel, share in found.items())
        + f" times as much as without; {lost:.0f} events are lost or partial")


def table_files(j):
    def us(role, series, panel):
        return f"{1e6 * middle(j, f'{role}_seconds_per_event', series, panel):.1f}"

    return [["case", "ratio", "DFM, ROS, SFI without a file, us per event", "SFI with a file"],
            *([panel, f"{times(j, RATE, FILE, NONE, panel):.2f}", ", ".join(us(role, NONE, panel) for role in ("dfm", "ros", "sfi")),
               us("sfi", FILE, panel)] for panel in panels_of(j))]


IPERF, SPEAD, EVB, PATTERN = "iperf3", "spead2", "evb", "evb, pattern"
ONE_BY_ONE = "1472 bytes, one by one"
# Packets that cross the wire one by one, and as super-packets (segmentation offload).
PACKETS = [Panel(f"{size} bytes, {how}", f"packet={size} mtu={mtu} segments={segments}", quick=size == 1472)
           for size, mtu in ((1472, 1500), (8972, 9000)) for how, segments in (("one by one", 1), ("segmentation offload", 0))]
# Relative to the faster of the others.
FAST, FASTER = 1, 3


def beside_others(j, series, panel):
    others = [values(j, "mbps", name, panel) for name in (IPERF, SPEAD)
              if not any(j.is_dispensable(i) for i in j.of(name, panel))]
    return statistics.median(ratio(a, max(b)) for a, b in zip(values(j, "mbps", series, panel), zip(*others)))


def judge_streams(j):
    found = {panel: beside_others(j, EVB, panel) for panel in panels_of(j)}
    plain, rest = found[ONE_BY_ONE], max(share for panel, share in found.items() if panel != ONE_BY_ONE)
    bad = j.of(PATTERN).sum("corrupt")
    return better_if(plain >= FAST and rest >= FASTER and bad == 0), (
        "receives " + ", ".join(f"{share:.2f} ({panel})" for panel, share in found.items())
        + f" times as much as the faster of iperf3 and spead2; {bad:.0f} packets are corrupt")


def table_streams(j):
    def cell(series, panel):
        is_missing = any(j.is_dispensable(i) for i in j.of(series, panel))
        return "" if is_missing else f"{middle(j, 'mbps', series, panel) / 8:,.0f} ({middle(j, 'lost_percent', series, panel):.1f} %)"

    return [["packets; MB/s received (lost)", *j.m.series],
            *([panel, *(cell(series, panel) for series in j.m.series)] for panel in panels_of(j))]


# The least share of the rate, the repair included, by what the path loses.
REPAIRED = {"0.01 % lost by the path": 0.9, "1 % lost by the path": 0.5}


def judge_repair(j):
    rates = {series: middle(j, "repaired_mbps", series) for series in REPAIRED}
    lost, bad = j.of().sum("lost_packets"), j.of().sum("corrupt")
    return better_if(lost == 0 and bad == 0 and all(rates[series] >= least * 1000 for series, least in REPAIRED.items())), (
        "; ".join(f"{series}: {rates[series]:.0f} Mbit/s, of which the repair takes {middle(j, 'repair_seconds', series):.2f} s for "
                  f"{middle(j, 'packets_repaired', series):.0f} packets" for series in REPAIRED)
        + f"; {lost:.0f} packets remain lost, {bad:.0f} copies differ")


MESSAGE_BYTES, FRAME_BYTES = 1400, 1442
GAPS = ("p1", "p50", "p99", "p999", "max")


SHAPED, UNSHAPED = "shaped", "unshaped, links without a rate"


def rate_or_none(point, x):
    return vary.rate_mbps(point, x) if point.series == SHAPED else ""


def on_wire(j, i):
    """In Mbit/s, with what the receiver's socket lost."""
    return ratio(j.figure(i, "received_mbps"), 1 - j.figure(i, "loss_percent") / 100) * FRAME_BYTES / MESSAGE_BYTES


def judge_rates(j):
    off = {j.points[i].x: on_wire(j, i) / j.points[i].x - 1 for i in j.of(SHAPED)}
    worst = max(off, key=lambda mbps: abs(off[mbps]))
    drops = sum(j.figure(i, "source_packets") for i in j.of(SHAPED))
    return better_if(abs(off[worst]) <= 0.01), (f"the rate is at most {100 * abs(off[worst]):.2f} % off (at {worst:g} Mbit/s), and "
                                               f"{drops:.0f} packets are dropped at the source")


def table_rates(j):
    rows = []
    for i in j.of():
        mbps, gaps = j.points[i].x, [f"{j.figure(i, f'gap_{name}_us'):.1f}" for name in GAPS]
        # Adding 0 removes the sign of a rounded zero.
        is_shaped = j.points[i].series == SHAPED
        rows.append([f"{mbps:g}" if is_shaped else "unshaped", f"{on_wire(j, i):.2f}",
                     f"{round(100 * (on_wire(j, i) / mbps - 1), 2) + 0:+.2f} %" if is_shaped else "", *gaps])
    return [["configured, Mbit/s", "measured", "deviation", *(f"gap {name.replace('p999', 'p99.9')}, us" for name in GAPS)], *rows]


BACKENDS = ("none", "htb+tbf", "htb", "edt", "cbq+tbf")
SHAPED_BYTES = 14336


def made(j, series):
    return [name for name in series if not any(j.is_dispensable(i) for i in j.of(name))]


def judge_cost(j):
    shaped = [name for name in made(j, BACKENDS) if name != "none"]
    drops = sum(j.of(name).sum("source_packets") + j.of(name).sum("socket_packets") for name in shaped)
    found = {name: times(j, RATE, name, "none") for name in shaped}
    return better_if(drops == 0), ("shaped, it carries " + ", ".join(f"{share:.2f} ({name})" for name, share in found.items())
                                   + f" times as much as unshaped, and drops {drops:.0f} packets at the source or the receiver")


def table_cost(j):
    def ns(role, name):
        return f"{1e9 * middle(j, f'{role}_seconds_per_event', name) / SHAPED_BYTES:.2f}"

    return [["backend", "MB/s", "ROS, ns/byte", "SFI, ns/byte", "dropped at the source", "at the receiver"],
            *([name, f"{middle(j, RATE, name) / 1e6:.0f}", ns("ros", name), ns("sfi", name),
               "-" if name == "none" else f"{middle(j, 'source_packets', name):.0f}", f"{middle(j, 'socket_packets', name):.0f}"]
              for name in made(j, BACKENDS))]


LINK_BYTES, PAYLOAD_OF_FRAME = 125e6, 1448 / 1514
# The share of an overloaded port's payload that one SFI is to build, from so many bytes of a fragment on.
GOALS = ((14 << 10, 0.99), (1 << 10, 0.97), (256, 0.90))


def between(r, least, most):
    """Draws a whole number; each power of two is as likely as the others."""
    return round(math.exp(r.uniform(math.log(least), math.log(most))))


class Drawn:
    """A system drawn at random."""

    def __init__(self, r):
        self.sources, self.sfis = r.randint(2, 12), r.randint(1, 3)
        self.fragment_bytes, self.buffer_bytes = between(r, 256, 200 << 10), between(r, 64 << 10, 512 << 10)
        self.load = r.choice([math.inf, round(r.uniform(0.1, 1.2), 2)])
        self.carried = LINK_BYTES * PAYLOAD_OF_FRAME * self.sfis

    @property
    def goal(self):
        """The share of the port to build, or None."""
        if self.sfis > 1 or self.load <= 1:
            return None
        return next(goal for least, goal in GOALS if self.fragment_bytes >= least)

    @property
    def trigger_rate(self):
        if self.load == math.inf:
            return "max"
        return f"{max(round(self.load * self.carried / (self.sources * self.fragment_bytes)), 1)}Hz"

    def settings(self, seconds):
        return (f"ros.count={self.sources} sfi.count={self.sfis} ros.fragment-size={self.fragment_bytes} trigger.rate={self.trigger_rate} "
                f"network.switch-buffer={self.buffer_bytes} scenario.duration={seconds * (3 if self.goal else 1):g}s")


def drawn(identity, seed, count, quick_count=10):
    """A measurement of systems drawn at random. The same seed has the same systems on every machine."""
    r = random.Random(seed)
    systems = [Drawn(r) for _ in range(count)]

    def judge_drawn(j):
        """No port may drop a packet. What the processors limit misses its goal, too."""
        dropped = [i for i in j.of() if j.figure(i, "switch_packets") > 0]
        lost = sum(j.figure(i, "events_lost") + j.figure(i, "events_partial") > 0 for i in j.of())
        short = [i for i in j.of() if (goal := systems[int(j.points[i].x) - 1].goal)
                 and j.figure(i, RATE) < goal * systems[int(j.points[i].x) - 1].carried]
        goals = sum(systems[int(p.x) - 1].goal is not None for p in j.points)
        busy = sum(j.limit(i) is limits.Limit.PROCESSORS for i in short)
        return better_if(not dropped), (
            f"a port drops packets in {len(dropped)} of {len(j.points)} systems, and events are lost or partial in {lost}; {goals - len(short)} "
            f"of {goals} systems that overload a port fill it, and the processors limit {busy} of the others")

    return Measurement(
        id=identity,
        title=f"Shaped push of {count} systems drawn at random, without tuning",
        published=NOT_PUBLISHED + "expected: no port drops a packet",
        x_label="system", y_label="complete events, MB/s", y="whole_bytes_per_second",
        kind=Kind.EVENTS, benchmark=True,
        base="network.link-rate=1Gbit qos.backend=auto qos.rate=auto",
        series={"push, shaped": ""},
        x=list(range(1, count + 1)), quick_x=list(range(1, quick_count + 1)),
        vary=lambda point, x: systems[int(x) - 1].settings(point.number("scenario.duration", 2)),
        judge=judge_drawn)


MEASUREMENTS = [
    Measurement(
        id="P1",
        title="Events of 6x1 over links without a rate",
        published=NOT_PUBLISHED + "expected: more than iperf3 over UDP",
        x_label="round", y_label="payload, MB/s", y=RATE,
        kind=Kind.EVENTS, benchmark=True,
        base=f"{UNLIMITED} scenario.duration=8s ros.count=6 sfi.count=1 {SIZES['14 KiB']}",
        series={**{way: WAYS[way] for way in ("push, UDP", "push, TCP", "pull, UDP")}, **REFERENCES},
        x=ROUNDS, quick_x=ONE_ROUND,
        vary=vary.nothing, judge=judge_speed, table=table_p1),
    Measurement(
        id="P2",
        title="Events of all sizes over links without a rate",
        published=NOT_PUBLISHED + "expected: more than iperf3 over UDP",
        x_label="round", y_label="payload, MB/s", y=RATE,
        kind=Kind.EVENTS, benchmark=True,
        base=f"{UNLIMITED} scenario.duration=4s",
        series={**WAYS, **REFERENCES, WIRE: "program=wire"},
        x=ROUNDS, quick_x=ONE_ROUND,
        panels=[*(shape(sources, 1, size, size == "14 KiB") for sources in (1, 6) for size in SIZES), shape(2, 2, "1 KiB")],
        vary=vary.nothing, judge=judge_speed, table=table_p2),
    Measurement(
        id="P3",
        title="Two builds of evb, in turns",
        published=NOT_PUBLISHED + "expected: no slower than the build that EVB_BASELINE names",
        x_label="round", y_label="payload, MB/s", y=RATE,
        kind=Kind.EVENTS, benchmark=True,
        base=f"{UNLIMITED} scenario.duration=4s",
        series={NOW: "", OTHER: ""},
        x=ROUNDS, quick_x=ONE_ROUND,
        panels=[Panel(name, settings, quick=name == "6x1 push, UDP, 14 KiB") for name, settings in CASES],
        vary=other_build, judge=judge_builds, table=table_builds),
    Measurement(
        id="P4",
        title="What a file costs: events of 1x1, push",
        published=NOT_PUBLISHED + "expected: 0.7 times the rate without a file",
        x_label="round", y_label="payload, MB/s", y=RATE,
        kind=Kind.EVENTS, benchmark=True,
        base=f"{UNLIMITED} scenario.duration=3s ros.count=1 sfi.count=1",
        series={NONE: "", FILE: "sfi.output=file"},
        x=ROUNDS, quick_x=ONE_ROUND,
        panels=[Panel(f"{transport} {size}", f"{settings} {SIZES[size]}", quick=size == "14 KiB")
                for transport, settings, size in (("TCP", TCP, "256 KiB"), ("TCP", TCP, "14 KiB"), ("UDP", "", "14 KiB"), ("UDP", "", "1 KiB"))],
        vary=vary.nothing, judge=judge_files, table=table_files),
    Measurement(
        id="P5",
        title="Streams as fast as possible from memory",
        published=NOT_PUBLISHED + "expected: as fast as iperf3 and spead2, and 3 times as fast with offload or jumbo frames",
        x_label="round", y_label="received, Mbit/s", y="mbps",
        kind=Kind.STREAMS, benchmark=True,
        base="link=0 wake=0 seconds=3 interval=1 socket=granted",
        series={IPERF: "program=iperf3", SPEAD: "program=spead2", EVB: "", PATTERN: "pattern=1"},
        optional=frozenset((SPEAD,)),
        x=FEW_ROUNDS, quick_x=ONE_ROUND,
        panels=PACKETS,
        vary=vary.nothing, judge=judge_streams, table=table_streams),
    Measurement(
        id="P6",
        title="Repair of a file over a path with a round trip of 100 ms",
        published=NOT_PUBLISHED + "expected, repair included: 0.9 Gbit/s at 0.01 % lost, and 0.5 Gbit/s at 1 %",
        x_label="round", y_label="copied, Mbit/s", y="repaired_mbps",
        kind=Kind.STREAMS, benchmark=True,
        base="round_trip_ms=100 packet=1472 wake=0 disk=1 repair=1 rate_mbps=1000 seconds=3.1 interval=1",
        # The repair of a shorter file would be a larger share.
        quick="seconds=3.1",
        series={name: f"loss_percent={name.split()[0]}" for name in REPAIRED},
        x=FEW_ROUNDS, quick_x=ONE_ROUND,
        vary=vary.nothing, judge=judge_repair),
    Measurement(
        id="P7",
        title="Rate and gaps of a shaped flow",
        published=NOT_PUBLISHED + "expected: within 1 % of the rate",
        x_label="configured, Mbit/s", y_label="payload received, Mbit/s", y="received_mbps",
        kind=Kind.FLOWS, benchmark=True,
        base=f"kind=0 message={MESSAGE_BYTES} watch=1 warm_up=0.3 seconds=2 socket=1048576 buffer=4194304",
        series={SHAPED: "link=10e9", UNSHAPED: "link=0"},
        x=[10, 50, 100, 500, 900], quick_x=[100, 900],
        vary=rate_or_none, judge=judge_rates, table=table_rates),
    Measurement(
        id="P8",
        title="What shaping costs: events of 1x1 and 14 KiB at 10 Gbit/s",
        published=NOT_PUBLISHED + "expected: nothing is dropped",
        x_label="round", y_label="payload, MB/s", y=RATE,
        kind=Kind.EVENTS, benchmark=True,
        base=f"{UNLIMITED} scenario.duration=2s ros.count=1 sfi.count=1 ros.fragment-size={SHAPED_BYTES} qos.rate=10Gbit",
        series={name: f"qos.backend={name}" for name in BACKENDS},
        optional=frozenset(("edt", "cbq+tbf")),
        x=FEW_ROUNDS, quick_x=ONE_ROUND,
        vary=vary.nothing, judge=judge_cost, table=table_cost),
    drawn("P9", seed=1, count=200),
]
