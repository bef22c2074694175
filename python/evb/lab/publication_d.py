"""Publication D: throughput and stability of vlbi_udp (Hughes-Jones, 2006), with evb stream. D6 to D8 are the next steps that
its author named; D9 is what the program was for, from disk to disk."""
import dataclasses

from . import vary
from .measurement import Kind, Mark, Measurement, Panel
from .query import NEVER_X, Query
from .verdict import Verdict

# Headers of 42 bytes; a link of 1 Gbit/s carries a packet in 12.1 us, so that 12 us fill it.
BASE = "link=1e9 packet=1472 seconds=8.1 interval=1"
LINK_MBPS = 1000
PACKET_BITS = 8 * (1472 + 42)
# "Within 1 Mbit/s".
SPREAD_MBPS = 1
# Of what the spacing or the link permit.
RATE_SHARE, SHARED_RATE_SHARE = 0.99, 0.95
# A sender that spins, both threads of the receiver, and the links and ports of the testbed: with fewer, some wait for each
# other, and the differences between seconds say how long.
PROCESSORS_TO_BE_STEADY = 4
# A thread that waits for others less than that takes a processor.
WHOLE_PROCESSOR_PERCENT = 90
# A thread that looks without pause takes what others leave: so many times what a sleeping one takes.
SPINS_TIMES, SPINS_LEAST_PERCENT = 10, 25
PROCESSING_MOST_US, PROCESSING_LEAST_US = 0.12, 0.10
# Of a spacing, and of a rate.
ERROR_SHARE = 0.01
FUTEX = "futex (default)"
FREE_LARGE, FREE_SMALL = "free processors, socket of 8 MiB", "free processors, socket of 128 KiB"
BUSY_LARGE, BUSY_SMALL = "busy processor, socket of 8 MiB", "busy processor, socket of 128 KiB"
SOCKETS = [Panel(FREE_LARGE, "socket=8388608", True),
           Panel(FREE_SMALL, "socket=131072", False),
           Panel(BUSY_LARGE, "pin=1 busy=1 socket=8388608", True),
           Panel(BUSY_SMALL, "pin=1 busy=1 socket=131072", True)]
LARGE, SMALL = "socket of 8 MiB", "socket of 128 KiB"
BUFFERS = [Panel(LARGE, "socket=8388608", True), Panel(SMALL, "socket=131072", True)]
SHARED, OTHER = "the interface's processor", "another processor"
MEMORY, CACHE, DIRECT = "memory", "disk to disk", "disk, direct"


def agrees_if(condition):
    return Verdict.AGREES if condition else Verdict.DIFFERS


def better_if(condition):
    return Verdict.BETTER if condition else Verdict.DIFFERS


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a verdict says about some points at one spacing."""
    least_share: float  # of the expected rate
    least_mbps: float
    spread_mbps: float
    lost_percent: float

    @classmethod
    def of(cls, query: Query):
        """The rate on the wire that a spacing permits is expected."""
        least_mbps = query.least("wire_mbps")
        return cls(least_mbps / min(PACKET_BITS / query.least_x, LINK_MBPS), least_mbps, query.most("spread_mbps"),
                   query.most("lost_percent"))

    def worse(self, other):
        return Outcome(min(self.least_share, other.least_share), min(self.least_mbps, other.least_mbps),
                       max(self.spread_mbps, other.spread_mbps), max(self.lost_percent, other.lost_percent))

    def is_whole(self, share):
        """Whether it has the rate, within the share that the processors permit."""
        return self.least_share >= share and self.lost_percent <= 0

    @property
    def is_steady(self):
        return self.is_whole(RATE_SHARE) and self.spread_mbps <= SPREAD_MBPS

    def __str__(self):
        return f"{self.least_mbps:.1f} Mbit/s within {self.spread_mbps:.1f} Mbit/s, {self.lost_percent:.2g} % lost"


def signalled(j, panel):
    """Both semaphores at 12 us, in one panel."""
    return Outcome.of(j.of("signal=100", panel).at(12)).worse(Outcome.of(j.of("signal=200", panel).at(12)))


def judge_signal(j):
    """Linux 2.6.9 was stable; with too few processors, only the rate and losses are judged. The panels show what made 2.6.6
    unstable: a thread that is away for longer than the socket's buffer lasts."""
    now, small, large = signalled(j, FREE_LARGE), signalled(j, BUSY_SMALL), signalled(j, BUSY_LARGE)
    futex = Outcome.of(j.of(FUTEX, FREE_LARGE).at(12))
    processors = j.of().least("processors")
    enough = processors >= PROCESSORS_TO_BE_STEADY
    few = "" if enough else f" (with {processors:g} processors, steadiness is not judged)"
    return agrees_if(now.is_steady if enough else now.is_whole(SHARED_RATE_SHARE)), (
        f"at 12 us {now}{few}, with futex {futex}; beside a busy process, which takes the receiver's processor in turns, {small} "
        f"with a socket of 128 KiB, and {large} with 8 MiB")


def judge_yield(j):
    slow, fast = Outcome.of(j.of("yield").at(20)), Outcome.of(j.of("yield").at(12))
    output, futex = j.of("yield").least("output_cpu_percent"), j.of(FUTEX).most("output_cpu_percent")
    takes = output >= WHOLE_PROCESSOR_PERCENT
    return agrees_if(slow.is_steady and fast.is_steady and takes), (
        f"at 20 us {slow}; at 12 us {fast}; the output thread takes {output:.0f} % of a processor"
        f"{'' if takes else ', as others need it'}, with futex {futex:.1f} %")


def judge_poll(j):
    output, futex = j.of("poll").least("output_cpu_percent"), j.of(FUTEX).most("output_cpu_percent")
    others = ", as others need it" if output < WHOLE_PROCESSOR_PERCENT else ""
    return agrees_if(output >= max(SPINS_LEAST_PERCENT, SPINS_TIMES * futex)), (
        f"the output thread takes {output:.0f} % of a processor{others}, with futex {futex:.1f} %; "
        f"{j.of('poll').most('lost_percent'):.2g} % lost")


def judge_interface(j):
    shared, other, shared_large, other_large = (j.of(series, panel).most("lost_percent")
                                                for panel in (SMALL, LARGE) for series in (SHARED, OTHER))
    return agrees_if(max(shared, shared_large) > max(other, other_large)), (
        f"with a socket of 128 KiB, {shared:.2g} % lost on the interface's processor and {other:.2g} % on another; with 8 MiB, "
        f"{shared_large:.2g} % and {other_large:.2g} %")


def judge_times(j):
    processing, sigma = j.of(FUTEX).most("processing_mean_us"), j.of(FUTEX).most("processing_sigma_us")
    between_sigma = j.of(FUTEX).most("inter_packet_sigma_us")
    off = max((abs(mean / max(j.points[i].x, PACKET_BITS / LINK_MBPS) - 1)
               for i, mean in j.of().figures("inter_packet_mean_us")), default=0)
    why = (f"processing takes {processing:.2f} us per packet (sigma {sigma:.2f} us); the mean time between packets is "
           f"{100 * off:.2f} % off, its sigma is up to {between_sigma:.1f} us")
    if off > ERROR_SHARE or processing > PROCESSING_MOST_US:
        return Verdict.DIFFERS, why
    return Verdict.BETTER if processing < PROCESSING_LEAST_US else Verdict.AGREES, why


def judge_precision(j):
    """Finds the smallest spacing from which on all larger ones are kept, too."""
    kept_us, sigma_us, finest_us = NEVER_X, 0, min(p.x for p in j.points)
    for i, mean in reversed(j.of().figures("sent_inter_packet_mean_us")):
        if abs(mean / j.points[i].x - 1) > ERROR_SHARE:
            break
        kept_us, sigma_us = j.points[i].x, j.figure(i, "sent_inter_packet_sigma_us")
    mean_us = j.of().at(finest_us).least("sent_inter_packet_mean_us")
    if kept_us == NEVER_X:
        return Verdict.DIFFERS, f"no spacing is kept within 1 %; {finest_us:g} us become {mean_us:.2f} us"
    return better_if(kept_us <= finest_us), (f"spacings down to {kept_us:g} us are kept within 1 %, there with a sigma of "
                                             f"{sigma_us:.2f} us; {finest_us:g} us become {mean_us:.2f} us")


def shortfall(j, query, per_x):
    """The greatest share of the requested rate that is missing; `per_x` of x is in Mbit/s."""
    return max((1 - mbps / per_x / j.points[i].x for i, mbps in query.figures("mbps")), default=0)


def judge_fast(j):
    """With the default waking: threads that yield or are signalled late may lose packets, which is a subject of D1 to D3."""
    futex = j.of(FUTEX)
    lost, short_of = futex.most("lost_percent"), max(shortfall(j, futex, 1e3), 0)
    carried = max((j.points[i].x for i, mbps in futex.figures("mbps")
                   if mbps / 1e3 >= (1 - ERROR_SHARE) * j.points[i].x and j.figure(i, "lost_packets") <= 0), default=0)
    return better_if(short_of <= ERROR_SHARE and lost <= 0), (
        f"carries up to {carried:g} Gbit/s without loss; at worst {100 * short_of:.1f} % less than asked for and {lost:.2g} % "
        f"lost; with signal=200 {j.of('signal=200').most('lost_percent'):.2g} % lost, with yield "
        f"{j.of('yield').most('lost_percent'):.2g} %")


def judge_far(j):
    """What the stream reports as lost in the network is what the path did lose."""
    told, lost = j.of().sum("network_packets"), j.of().sum("path_lost_packets")
    elsewhere = j.of().sum("lost_packets") - told
    clean, bad = j.of("no loss").most("lost_packets"), j.of().sum("corrupt")
    short_of = max(shortfall(j, j.of(), 1), 0)
    return better_if(told == lost and elsewhere <= 0 and bad <= 0 and short_of <= ERROR_SHARE), (
        f"the path lost {lost:.0f} packets on purpose, and the report says {told:.0f} in the network and {elsewhere:.0f} "
        f"elsewhere ({clean:.0f} without loss); at worst {100 * short_of:.2f} % less than asked for")


def minute_text(series: Query):
    steady = series.sum("steady_intervals")
    return (f"{series.series}: {series.sum('lost_packets'):.0f} packets lost, {steady:.0f} of "
            f"{steady + series.sum('unsteady_intervals'):.0f} s within 0.1 % of {series.least('mean_mbps'):.2f} Mbit/s "
            f"({series.least('least_mbps'):.2f} to {series.most('most_mbps'):.2f})"
            f"{', corrupt' if series.sum('corrupt') > 0 else ''}")


def judge_minute(j):
    lost, unsteady, bad = j.of().sum("lost_packets"), j.of().most("unsteady_intervals"), j.of().sum("corrupt")
    short_of = max(shortfall(j, j.of(), 1), 0)
    why = "; ".join(minute_text(j.of(series)) for series in (MEMORY, CACHE, DIRECT))
    if short_of > ERROR_SHARE:
        why += f"; at worst {100 * short_of:.2f} % less than asked for"
    return better_if(lost <= 0 and unsteady <= 0 and bad <= 0 and short_of <= ERROR_SHARE), why


SPACINGS = [12, 15, 20]
SPACING_LABEL, WIRE_LABEL = "time from packet to packet, us", "on the wire, Mbit/s"

MEASUREMENTS = [
    Measurement(
        id="D1",
        title="Receiver that signals its output thread every N packets",
        published="Linux 2.6.6, 15 us: 815 Mbit/s, unstable, 0.05 % lost at the top of the IP stack; 2.6.9, 12 us: 999 Mbit/s "
                  "within 1 Mbit/s, no loss",
        x_label=SPACING_LABEL,
        y_label=WIRE_LABEL,
        y="wire_mbps",
        kind=Kind.STREAMS,
        base=BASE,
        series={"signal=100": "wake=1 every=100", "signal=200": "wake=1 every=200", FUTEX: "wake=0"},
        x=[12, 15], quick_x=[12],
        panels=SOCKETS,
        vary=vary.spacing_us,
        judge=judge_signal,
    ),
    Measurement(
        id="D2",
        title="Receiver whose output thread yields",
        published="20 us: 612.5 Mbit/s, 12 us: 999 Mbit/s, each within 1 Mbit/s and without loss, but one processor at 100 %",
        x_label=SPACING_LABEL,
        y_label=WIRE_LABEL,
        y="wire_mbps",
        kind=Kind.STREAMS,
        base=f"{BASE} socket=8388608",
        series={"yield": "wake=2", FUTEX: "wake=0"},
        x=[12, 20], quick_x=[12, 20],
        marks=[Mark("20 us", 20, 612.5), Mark("12 us", 12, 999)],
        vary=vary.spacing_us,
        judge=judge_yield,
    ),
    Measurement(
        id="D3",
        title="Receiver whose output thread polls",
        published="takes a processor",
        x_label=SPACING_LABEL,
        y_label="output thread, % of a processor",
        y="output_cpu_percent",
        kind=Kind.STREAMS,
        base=f"{BASE} socket=8388608",
        series={"poll": "wake=3", FUTEX: "wake=0"},
        x=SPACINGS, quick_x=[12],
        vary=vary.spacing_us,
        judge=judge_poll,
    ),
    Measurement(
        id="D4",
        title="Receive thread on the processor that serves the interface, or another",
        published="loss if it shares that processor",
        x_label=SPACING_LABEL,
        y_label="lost, %",
        y="lost_percent",
        kind=Kind.STREAMS,
        base=f"{BASE} wake=0 pin=1",
        series={SHARED: "interface=1", OTHER: "interface=2"},
        x=SPACINGS, quick_x=[12],
        panels=BUFFERS,
        vary=vary.spacing_us,
        judge=judge_interface,
    ),
    Measurement(
        id="D5",
        title="Time between packets, and to process one",
        published="processing takes 0.10 to 0.12 us on average",
        x_label=SPACING_LABEL,
        y_label="processing, us per packet",
        y="processing_mean_us",
        kind=Kind.STREAMS,
        base=f"{BASE} socket=8388608",
        series={FUTEX: "wake=0"},
        x=SPACINGS, quick_x=[12, 20],
        vary=vary.spacing_us,
        judge=judge_times,
    ),
    Measurement(
        id="D6",
        title="Precision of the spacing down to 1 us",
        published="not published; named as a next step",
        x_label="requested time from packet to packet, us",
        y_label="mean time from packet to packet, us",
        y="sent_inter_packet_mean_us",
        log_x=True,
        kind=Kind.STREAMS,
        base="link=0 packet=64 seconds=4.1 interval=1",
        series={"sender": "wake=0"},
        x=[1, 2, 5, 10, 20, 50], quick_x=[1, 10],
        vary=vary.spacing_us,
        judge=judge_precision,
    ),
    Measurement(
        id="D7",
        title="4 to 8 Gbit/s on a wire that carries it",
        published="not published; named as a next step",
        x_label="requested rate, Gbit/s",
        y_label="received, Mbit/s",
        y="mbps",
        kind=Kind.STREAMS,
        base="link=0 mtu=9000 packet=8972 seconds=4.1 interval=1",
        series={FUTEX: "wake=0", "signal=200": "wake=1 every=200", "yield": "wake=2"},
        x=[4, 6, 8], quick_x=[4, 8],
        vary=vary.rate_gbps,
        judge=judge_fast,
    ),
    Measurement(
        id="D8",
        title="Path with a round trip of 100 ms that loses packets",
        published="not published; named as a next step: 0.01 % lost on a long path",
        x_label="requested rate, Mbit/s",
        y_label="lost, %",
        y="lost_percent",
        kind=Kind.STREAMS,
        base="round_trip_ms=100 packet=1472 pattern=1 wake=0 seconds=4.1 interval=1",
        series={"no loss": "loss_percent=0", "0.01 % lost by the path": "loss_percent=0.01"},
        x=[100, 300, 600], quick_x=[300],
        vary=vary.stream_mbps,
        judge=judge_far,
    ),
    Measurement(
        id="D9",
        title="A minute at 940 Mbit/s from memory and from disk to disk",
        published="not published; expected: no packet lost, each second within 0.1 % of the mean",
        x_label="requested rate, Mbit/s",
        y_label="on the wire, Mbit/s",
        y="mean_mbps",
        kind=Kind.STREAMS,
        # 60 whole intervals, which begin with the first packet.
        base="link=1e9 packet=1472 socket=8388608 wake=0 quiet=1 seconds=60.1 interval=1",
        quick="seconds=3.1",
        series={MEMORY: "pattern=1", CACHE: "disk=1", DIRECT: "disk=1 direct=1"},
        x=[940], quick_x=[940],
        vary=vary.stream_mbps,
        judge=judge_minute,
    ),
]
