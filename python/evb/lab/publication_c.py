"""Publication C: event building without and with QoS (Hasegawa et al., JPS 2003). Its open questions are in
extensions.py."""
import math

from . import vary
from .limits import Limit
from .measurement import Kind, Mark, Measurement
from .verdict import Verdict

SIZES, FEW_SIZES = [1024, 2048, 5120, 8192, 14336, 16384, 32768], [1024, 5120, 14336]
SIX_BY_ONE = "ros.count=6 sfi.count=1 network.link-rate=1Gbit network.switch-buffer=256KiB scenario.duration=3s"
SHAPED = "qos.backend=auto qos.rate=auto"
PUSH_AND_PULL = {"push": "", "pull": "scenario.mode=pull"}
# The builders of 2003 neither repeated requests nor held triggers back. Results files made before sfi.re-ask became
# sfi.retries contain these settings, and only points of equal settings are compared.
BUILDERS_OF_2003 = ("sfi.re-ask=0 sfi.timeout=300ms dfm.event-timeout=1s sfi.credits=4000 sfi.buffer-size=1GiB "
                    "ros.buffer-size=512MiB")
PULL_OF_2003 = "scenario.mode=pull sfi.outstanding=4"
# The processors of one machine may carry less than six senders need to overload a port of 1 Gbit/s, but any machine can overload
# one of 100 Mbit/s. Its buffer is the same, because it holds as many fragments.
SLOW_PORT = "network.link-rate=100Mbit"
AT_100_MBIT = {"push, 100 Mbit/s": SLOW_PORT, "pull, 100 Mbit/s": f"{PULL_OF_2003} {SLOW_PORT}"}


def megabytes_per_s(query):
    return query.most("whole_bytes_per_second") / 1e6


def judge_rate(push_hz, pull_hz):
    """Compares the event rates of push and pull with the published ones."""
    def judge(j):
        push, pull = (j.of(series).most("whole_events_per_second") for series in ("push", "pull"))
        why = (f"push builds {push / 1e3:.1f} kHz (published: {push_hz / 1e3:.1f}), pull {pull / 1e3:.1f} kHz (published: "
               f"{pull_hz / 1e3:.1f})")
        if push > 1.2 * push_hz and pull > 1.2 * pull_hz:
            return Verdict.BETTER, why
        return Verdict.AGREES if push > 0.8 * push_hz else Verdict.DIFFERS, why
    return judge


def judge_c2(j):
    push, pull = megabytes_per_s(j.of("push")), megabytes_per_s(j.of("pull"))
    large = megabytes_per_s(j.of("push").between(15000))
    return Verdict.BETTER if push > 60 and pull > 60 else Verdict.DIFFERS, (
        f"push builds {push:.0f} MB/s, pull {pull:.0f} MB/s (published: 52); from 15 kB, where building stopped in 2003, push "
        f"builds {large:.0f} MB/s: the link is the limit, not the SFI")


def is_limited_by_processors(j, points):
    """Such points say nothing about the port. Without an account of the processors, as on other machines, it is not known."""
    return any(j.limit(i) is Limit.PROCESSORS for i in points)


def collapse_at(j, push, pull, published=("", "")):
    """Whether push collapses at one link rate, as it did in 2003, and the figures; None: the processors are the limit."""
    large = push.between(5000)
    small_mb, large_mb, pull_mb = megabytes_per_s(push.between(0, 2048)), megabytes_per_s(large), megabytes_per_s(pull)
    complete, pull_large_mb = large.most("complete_share"), megabytes_per_s(pull.between(14337))
    why = (f"push builds {small_mb:.0f} MB/s up to 2 kB{published[0]} and at most {large_mb:.0f} MB/s from 5 kB, with "
           f"{100 * complete:.0f} % of the events complete; pull builds at most {pull_mb:.0f} MB/s{published[1]}")
    # A quick sweep has no such points.
    if not math.isnan(pull_large_mb):
        why += f", and {pull_large_mb:.0f} MB/s above 14 kB"
    if is_limited_by_processors(j, large):
        return None, why + "; there, push is limited by the processors, not by the port"
    # It collapses with time, so a quick run sees less of it.
    return large_mb < 0.9 * pull_mb and complete < 0.9, why


def judge_c4(j):
    found = [collapse_at(j, j.of("push"), j.of("pull"), (" (published: 82)", " (published: 95)"))]
    slow = [j.of(series) for series in AT_100_MBIT]
    # A testbed with another link rate has none of these.
    if not any(j.is_dispensable(i) for query in slow for i in query):
        found.append(collapse_at(j, *slow))
    why = "; at 100 Mbit/s, ".join(text for _, text in found)
    collapses = [each for each, _ in found if each is not None]
    if not collapses:
        return Verdict.UNKNOWN, why
    return Verdict.AGREES if all(collapses) else Verdict.DIFFERS, why


def judge_c5(j):
    mb20, mb40, mb50, planned = (megabytes_per_s(j.of(series)) for series in ("20 Mbit/s", "40 Mbit/s", "50 Mbit/s", "auto"))
    lost = j.of().sum("switch_packets")
    why = (f"push builds {mb20:.0f}, {mb40:.0f} and {mb50:.0f} MB/s at 20, 40 and 50 Mbit/s, and {planned:.0f} MB/s at the "
           f"planned rate; the port drops {lost:.0f} packets")
    if mb50 > mb40 and planned > 95 and lost == 0:
        return Verdict.BETTER, why
    return Verdict.AGREES if mb40 > mb20 else Verdict.DIFFERS, why


MEASUREMENTS = [
    Measurement(
        id="C1",
        title="Event rate of 1x1, 1 kB fragments, no QoS",
        published="push 20 kHz, pull 14 kHz, limited by the SFI's CPU; building stops above 40 kHz",
        x_label="trigger rate, Hz",
        y_label="complete events/s",
        y="whole_events_per_second",
        log_x=True,
        kind=Kind.EVENTS,
        base="ros.count=1 sfi.count=1 ros.fragment-size=1000 network.link-rate=1Gbit scenario.duration=2s",
        series=PUSH_AND_PULL,
        x=[5000, 10000, 20000, 40000, 80000, 160000], quick_x=[20000, 80000],
        marks=[Mark("2003: push", 20000, 20000), Mark("2003: pull", 14000, 14000)],
        vary=vary.trigger_hz,
        judge=judge_rate(20e3, 14e3),
    ),
    Measurement(
        id="C2",
        title="Throughput of 1x1 at 25 kHz, no QoS",
        published="52 MB/s at 14 kB, push and pull; building stops from 15 kB",
        x_label="fragment size, bytes",
        y_label="complete events, MB/s",
        y="whole_bytes_per_second",
        log_x=True,
        kind=Kind.EVENTS,
        base="ros.count=1 sfi.count=1 network.link-rate=1Gbit scenario.duration=2s",
        series=PUSH_AND_PULL,
        x=[1000, 2000, 4000, 8000, 14000, 15000, 20000], quick_x=[2000, 15000],
        marks=[Mark("2003: push and pull", 14000, 52e6)],
        vary=vary.fragment_bytes_at_25_khz,
        judge=judge_c2,
    ),
    Measurement(
        id="C3",
        title="Event rate of 6x1, 1 kB fragments, no QoS",
        published="push 5 kHz, pull 3.8 kHz, limited by the SFI's CPU",
        x_label="trigger rate, Hz",
        y_label="complete events/s",
        y="whole_events_per_second",
        log_x=True,
        kind=Kind.EVENTS,
        base=f"{SIX_BY_ONE} ros.fragment-size=1000",
        series=PUSH_AND_PULL,
        x=[2000, 5000, 10000, 15000, 20000, 30000], quick_x=[5000, 20000],
        marks=[Mark("2003: push", 5000, 5000), Mark("2003: pull", 3800, 3800)],
        vary=vary.trigger_hz,
        judge=judge_rate(5e3, 3.8e3),
    ),
    Measurement(
        id="C4",
        title="Throughput of 6x1, no QoS, load 150 % of the port",
        published="push at most 82 MB/s, cannot build above 5 kB; pull 95 MB/s, degrades above 14 kB",
        x_label="fragment size, bytes",
        y_label="complete events, % of what the port passes",
        y="port_share",
        log_x=True,
        kind=Kind.EVENTS,
        base=f"{SIX_BY_ONE} {BUILDERS_OF_2003} load=150",
        series={"push": "", "pull": PULL_OF_2003, **AT_100_MBIT},
        optional=frozenset(AT_100_MBIT),
        x=SIZES, quick_x=FEW_SIZES,
        marks=[Mark("2003: push, maximum", 5000, 82 / 118.9), Mark("2003: pull, maximum", 14000, 95 / 118.9)],
        vary=vary.fragment_bytes,
        judge=judge_c4,
    ),
    Measurement(
        id="C5",
        title="Throughput of 6x1 push with QoS, load 110 % of the port",
        published="18 MB/s at 20 Mbit/s and some 40 MB/s at 40 Mbit/s, from 5 kB; congestion at 50 Mbit/s; never as good as pull",
        x_label="fragment size, bytes",
        y_label="complete events, MB/s",
        y="whole_bytes_per_second",
        log_x=True,
        kind=Kind.EVENTS,
        base=f"{SIX_BY_ONE} load=110 qos.backend=auto",
        series={"20 Mbit/s": "qos.rate=20Mbit", "40 Mbit/s": "qos.rate=40Mbit", "50 Mbit/s": "qos.rate=50Mbit",
                "auto": "qos.rate=auto"},
        x=SIZES, quick_x=FEW_SIZES,
        marks=[Mark("2003: 20 Mbit/s", 5000, 18e6), Mark("2003: 40 Mbit/s", 5000, 40e6)],
        vary=vary.fragment_bytes,
        judge=judge_c5,
    ),
]
