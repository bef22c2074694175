"""Measurements S1 to S9: does event building scale? Only the simulator can make them: up to 1000 sources, links of up to 400
Gbit/s, and the buffers of real switches. docs/scaling.md discusses them.

What shaping promises counts where its bursts fit the port's buffer; at the other points, the buffer is too small for the number
of sources, and the plan warns.
"""
import math

from . import vary
from .measurement import Kind, Measurement, Panel
from .publication_c import PUSH_AND_PULL, SHAPED
from .verdict import Verdict

OPEN = "not published; open question of 2003: does it scale?"
# The processors are not in question here: they carry the fastest link. Small tables of events keep 1000 sources in a gigabyte of
# memory.
BASE = "ros.buffer-events=1024 wake-time=2us packet-time=20ns send-time=20ns fragment-time=5ns "
QUICK = "scenario.duration=50ms"
# A switch port as it is in practice: the memory of a switch divided by its ports, if all are congested. 12 MB for 48 ports of 10
# Gbit/s, 16 MB for 32 of 100 Gbit/s, 64 MB for 32 of 400 Gbit/s. Fragments are about a frame. Durations give each panel about as
# many packets.
PORT_1 = "network.link-rate=1Gbit network.switch-buffer=256KiB ros.fragment-size=1024 scenario.duration=1s"
PORT_10 = "network.link-rate=10Gbit network.switch-buffer=256KiB ros.fragment-size=1024 scenario.duration=300ms"
PORT_100 = ("network.link-rate=100Gbit network.switch-buffer=512KiB network.mtu=9000 ros.fragment-size=8192 "
            "scenario.duration=200ms")
PORT_400 = ("network.link-rate=400Gbit network.switch-buffer=2MiB network.mtu=9000 ros.fragment-size=8192 "
            "scenario.duration=50ms")
PUSH_SHAPED = "push, shaped"
TRANSPORTS = {**PUSH_AND_PULL, PUSH_SHAPED: SHAPED}
PORTS = [Panel("1 Gbit/s with 256 KiB", PORT_1, True),
         Panel("10 Gbit/s with 256 KiB", PORT_10, False),
         Panel("100 Gbit/s with 512 KiB", PORT_100, True),
         Panel("400 Gbit/s with 2 MiB", PORT_400, False)]
# Enough packets for a steady rate at each of the many ports.
SYSTEMS = [Panel("1 Gbit/s with 256 KiB", f"{PORT_1} scenario.duration=300ms", True),
           Panel("10 Gbit/s with 256 KiB", f"{PORT_10} scenario.duration=30ms", False),
           Panel("10 Gbit/s with 2 MiB", f"{PORT_10} network.switch-buffer=2MiB scenario.duration=30ms", False),
           Panel("100 Gbit/s with 512 KiB", f"{PORT_100} scenario.duration=15ms", False)]
# The least buffer of a switch that a port may get, a usual one, and deep ones.
DEPTHS = [Panel("buffer 64 KiB", "network.switch-buffer=64KiB", False),
          Panel("buffer 256 KiB", "network.switch-buffer=256KiB", True),
          Panel("buffer 2 MiB", "network.switch-buffer=2MiB", False),
          Panel("buffer 64 MiB", "network.switch-buffer=64MiB", False)]
ATLAS = [Panel("fragments of 1 kB", "ros.fragment-size=1000", True), Panel("fragments of 10 kB", "ros.fragment-size=10000", False)]
# Runs are short, so the last events weigh in.
BUILT_LEAST = 0.95


def better_if(condition):
    return Verdict.BETTER if condition else Verdict.DIFFERS


def dropped(j, points):
    return sum(j.figure(i, key) for i in points for key in ("switch_packets", "events_lost", "events_partial"))


def judge_shares(j):
    built = dict(j.of(PUSH_SHAPED).figures("steady_share"))
    fit = [i for i in built if j.figure(i, "plan_fits") > 0]
    others = [i for i in built if i not in fit]
    lost, least = dropped(j, fit), min((built[i] for i in fit), default=math.inf)
    why = f"by the plan, bursts of shaped push fit the port at {len(fit)} of {len(built)} points"
    if fit:
        why += f"; there it loses {lost:.0f} packets and events, and builds at least {100 * least:.1f} % of the load"
    if others:
        why += (f"; at the others it loses {dropped(j, others):.0f} and builds at least "
                f"{100 * min(built[i] for i in others):.1f} %")
    for series in PUSH_AND_PULL:
        why += (f"; {series} loses {j.of(series).sum('switch_packets'):.0f} packets and builds at least "
                f"{100 * j.of(series).least('steady_share'):.1f} %")
    return better_if(fit and lost == 0 and least >= BUILT_LEAST), why


def most_built(j, series, panel):
    """The greatest trigger rate that a series builds."""
    return max((j.points[i].x for i, share in j.of(series, panel).figures("steady_share") if share >= BUILT_LEAST), default=0)


def judge_rates(j):
    panels = [panel.name for panel in j.m.panels if not math.isnan(j.of(PUSH_SHAPED, panel.name).least("steady_share"))]
    texts = [",".join(f" {most_built(j, series, panel):.0f} Hz ({series})" for series in TRANSPORTS) + f" with {panel}"
             for panel in panels]
    return (better_if(all(most_built(j, PUSH_SHAPED, panel) >= 3000 for panel in panels)),
            "all triggers are built up to" + ";".join(texts))


def most_sources(j, series):
    """The most sources up to which no point of a series drops packets."""
    most_x = 0
    for i, packets in j.of(series).figures("switch_packets"):
        if packets > 0:
            break
        most_x = j.points[i].x
    return most_x


def judge_buffers(j):
    plain_bytes, shaped_bytes = (j.of(series).most("port_most_bytes") for series in ("push", "push, shaped, bursts of two frames"))
    planned, pull = (most_sources(j, series) for series in ("push, shaped, planned for 256 KiB", "pull, planned for 256 KiB"))
    return better_if(shaped_bytes < plain_bytes and planned >= 50), (
        f"at the most sources, a port holds up to {plain_bytes / 1e6:.1f} MB of unshaped push and {shaped_bytes / 1e6:.1f} MB of "
        f"bursts of two frames; a port of 256 KiB carries shaped push of up to {planned:.0f} sources and pull of up to {pull:.0f}")


def extremes(j, series, choose, otherwise):
    """For each panel: the extreme x at which the share is reached; `otherwise`: nowhere."""
    found = {}
    for panel in j.m.panels:
        shares = j.of(series, panel.name).figures("steady_share")
        if shares:
            found[panel.name] = choose((j.points[i].x for i, share in shares if share >= BUILT_LEAST), default=otherwise)
    return found


def judge_timers(j):
    latest_us = extremes(j, PUSH_SHAPED, max, 0)
    return (better_if(min(latest_us.values(), default=math.inf) >= 10),
            "shaped push builds 95 % of the port while timers are late by up to "
            + ", ".join(f"{panel}: {x:g} us" for panel, x in latest_us.items()))


def judge_credits(j):
    push, pull = (extremes(j, series, min, math.inf) for series in (PUSH_SHAPED, "pull"))
    push_text, pull_text = (", ".join(f"{panel}: {x:g}" for panel, x in least.items()) for least in (push, pull))
    return (better_if(all(x <= 256 for x in [*push.values(), *pull.values()])),
            f"95 % of the load need so many credits with shaped push: {push_text}; with pull: {pull_text}")


def judge_latency(j):
    push, pull, shaped = (j.of(series).at(90).most("latency_p99_us") for series in TRANSPORTS)
    return better_if(shaped < push and shaped < 2 * pull), (
        f"at 90 % of the port, 99 % of the events are built within {shaped / 1e3:.1f} ms by shaped push, {pull / 1e3:.1f} ms by "
        f"pull and {push / 1e3:.1f} ms by unshaped push")


def simulated(number, **others):
    """What S1 to S9 have in common."""
    return Measurement(id=f"S{number}", kind=Kind.EVENTS, virtual_only=True,
                       **{"published": OPEN, "base": BASE, "quick": QUICK, "series": TRANSPORTS, "y": "steady_share",
                          "y_label": "built share of the load, %", "log_x": True, "judge": judge_shares, **others})


MEASUREMENTS = [
    simulated(
        1,
        title="Sources of one SFI, load 90 % of the port",
        x_label="sources",
        x=[6, 12, 25, 50, 100, 200, 400, 1000], quick_x=[6, 100],
        panels=PORTS,
        vary=lambda point, x: vary.system(point, ros=x),
    ),
    simulated(
        2,
        title="Fragment size, 50 sources of one SFI at 10 Gbit/s, load 90 % of the port",
        x_label="fragment size, bytes",
        base=f"{BASE}ros.count=50 network.link-rate=10Gbit scenario.duration=300ms",
        x=[256, 1024, 4096, 14336, 65536], quick_x=[1024],
        panels=DEPTHS,
        vary=lambda point, x: vary.system(point, size_bytes=x),
    ),
    simulated(
        3,
        title="What a port's buffer has to hold, fragments of 14 KiB at 10 Gbit/s, load 90 %",
        x_label="sources",
        y_label="most bytes in the port of an SFI",
        y="port_most_bytes",
        base=f"{BASE}network.link-rate=10Gbit network.switch-buffer=1GiB ros.fragment-size=14336 scenario.duration=200ms",
        series={"push": "",
                "push, shaped, bursts of two frames": f"{SHAPED} qos.burst=3028",
                "pull, planned for 256 KiB": "scenario.mode=pull network.switch-buffer=256KiB",
                "push, shaped, planned for 256 KiB": f"{SHAPED} network.switch-buffer=256KiB"},
        x=[6, 12, 25, 50, 75, 100, 200, 400, 1000], quick_x=[12, 50],
        vary=lambda point, x: vary.system(point, ros=x),
        judge=judge_buffers,
    ),
    simulated(
        4,
        title="Systems of as many SFIs as sources, load 90 % of all ports",
        x_label="sources, and as many SFIs",
        quick="scenario.duration=20ms",
        x=[6, 12, 24, 48, 96], quick_x=[6, 12],
        panels=SYSTEMS,
        vary=lambda point, x: vary.system(point, ros=x, sfi=x),
    ),
    simulated(
        5,
        title="ATLAS in 2008: 150 sources, 100 SFIs, 1 Gbit/s, ports of 256 KiB",
        published="not published; planned: 3 kHz",
        x_label="trigger rate, Hz",
        y_label="complete events/s",
        y="event_rate_hz",
        base=f"{BASE}ros.count=150 sfi.count=100 network.link-rate=1Gbit network.switch-buffer=256KiB scenario.duration=1500ms",
        quick="scenario.duration=600ms",
        x=[1000, 3000, 6000], quick_x=[3000],
        panels=ATLAS,
        vary=vary.trigger_hz,
        judge=judge_rates,
    ),
    simulated(
        6,
        title="Destinations of 16 sources at 10 Gbit/s, load 90 %",
        x_label="SFIs",
        base=f"{BASE}ros.count=16 network.link-rate=10Gbit ros.fragment-size=4096 scenario.duration=50ms",
        quick="scenario.duration=20ms",
        x=[1, 2, 4, 8, 16, 32, 64, 128], quick_x=[4],
        panels=[DEPTHS[1], DEPTHS[2]],
        vary=lambda point, x: vary.system(point, sfi=x),
    ),
    simulated(
        7,
        title="Late timers of the shaping, 24 sources, load 150 % of the port",
        x_label="mean lateness of a timer, us",
        y_label="built share of the port, %",
        base=f"{BASE}ros.count=24 load=150 {SHAPED}",
        series={PUSH_SHAPED: ""},
        x=[1, 3, 10, 30, 100, 300, 1000], quick_x=[10, 100],
        panels=PORTS,
        vary=lambda point, x: f"{vary.system(point)} timer-time={x * 1e3:.0f}ns",
        judge=judge_timers,
    ),
    simulated(
        8,
        title="Latency by load, 24 sources of one SFI at 10 Gbit/s, fragments of 14 KiB, port of 512 KiB",
        x_label="offered load, % of the port",
        y_label="99 % of events built within, us",
        y="latency_p99_us",
        log_x=False,
        base=f"{BASE}ros.count=24 network.link-rate=10Gbit network.switch-buffer=512KiB ros.fragment-size=14336 "
             "trigger.kind=poisson scenario.duration=500ms",
        x=[10, 30, 50, 70, 80, 90, 95], quick_x=[50, 90],
        vary=lambda point, x: vary.system(point, load=x),
        judge=judge_latency,
    ),
    simulated(
        9,
        title="Credits of an SFI, 24 sources, load 90 % of the port",
        x_label="credits",
        base=f"{BASE}ros.count=24",
        series={"pull": "scenario.mode=pull", PUSH_SHAPED: SHAPED},
        x=[1, 2, 4, 16, 64], quick_x=[4, 64],
        panels=PORTS,
        vary=lambda point, x: f"{vary.system(point)} sfi.credits={x:.0f}",
        judge=judge_credits,
    ),
]
