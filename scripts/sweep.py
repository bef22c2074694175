#!/usr/bin/env python3
"""Try shaped push at points drawn at random: nothing is tuned, and no port may drop a packet.

    sudo scripts/sweep.py [--evb build/src/evb] [--points 200] [--seed 1] [--seconds 2] [--json FILE]

Each point is one run in the lab over links of 1 Gbit/s with qos.rate = auto: 2 to 12 sources, 1 to 3 SFIs,
fragments of 256 B to 200 KiB, port buffers of 64 to 512 KiB, triggers at 10 % of what the ports carry up to max.
The lab's ports decide by arithmetic on arrival time and size which packets they drop. A seed gives the same points
on every machine.

Each line shows the point, the packets that the ports dropped, and the payload that was built as a share of what the
SFIs' ports carry in full frames (1448 of 1514 bytes). "cpu" is the share of the processors that was busy; above 90 %
the processors may be the limit. "goal" is the efficiency that an overloaded point with one SFI is to reach: 0.90 from
256 bytes, 0.97 from 1 KiB, 0.99 from 14 KiB. Points with a goal take three times as long.

A point is made again, at most twice, if the testbed itself lost packets, or if it has a goal and the hypervisor took
more than 0.5 % of the processor time meanwhile. Drops of all attempts count, except of those in which the testbed
lost packets. The exit status is 1 if a port dropped a packet, or if the testbed lost packets in every attempt at a
point. The file of --json holds the reports and logs of the runs with drops. The script needs root.
"""
import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile

import need

LINK_BYTES = 125e6
FRAME, PAYLOAD = 1514, 1448
BUSY, STOLEN = 0.9, 0.005
ATTEMPTS = 3
GOALS = ((14 << 10, 0.99), (1 << 10, 0.97), (256, 0.90))
SCENARIO = """[scenario]
mode = push
[network]
link-rate = 1Gbit
[qos]
backend = auto
rate = auto
"""


def between(r, least, most):
    """Draws a whole number; each power of two is as likely as the others."""
    return round(math.exp(r.uniform(math.log(least), math.log(most))))


def draw(r):
    point = {"sources": r.randint(2, 12), "sfis": r.randint(1, 3), "fragment": between(r, 256, 200 << 10),
             "buffer": between(r, 64 << 10, 512 << 10), "load": r.choice(["max", round(r.uniform(0.1, 1.2), 2)])}
    event = point["sources"] * point["fragment"]
    point["carried"] = LINK_BYTES * PAYLOAD / FRAME * point["sfis"]
    point["rate"] = "max" if point["load"] == "max" else f"{max(round(point['load'] * point['carried'] / event), 1)}Hz"
    return point


def processors():
    """Returns busy, stolen and all processor time so far, in ticks. Time of processes that give way (nice) is not busy."""
    with open("/proc/stat") as f:
        ticks = [int(word) for word in f.readline().split()[1:9]]
    return sum(ticks) - ticks[1] - ticks[3] - ticks[4], ticks[7], sum(ticks)


def goal_of(point):
    if point["sfis"] > 1 or not (point["load"] == "max" or point["load"] > 1):
        return None
    return next(goal for least, goal in GOALS if point["fragment"] >= least)


def measure(evb, path, point, seconds):
    keys = {"scenario.duration": f"{seconds}s", "trigger.rate": point["rate"], "ros.count": point["sources"],
            "sfi.count": point["sfis"], "ros.fragment-size": point["fragment"], "network.switch-buffer": point["buffer"]}
    before = processors()
    done = subprocess.run([evb, "run", path, "--net", "lab", "--json", *(word for key, value in keys.items()
                                                                        for word in ("--set", f"{key}={value}"))],
                          capture_output=True, text=True, timeout=60 + 10 * seconds)
    after = processors()
    if not done.stdout:
        sys.exit(f"sweep.py: evb run failed with status {done.returncode}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    ticks = after[2] - before[2]
    return {"share": (report["throughput_bytes_per_second"] or 0) / point["carried"], "dropped": report["drops"]["switch_packets"],
            "port": report["port"], "testbed_lost": report["testbed_lost_packets"], "partial": report["events_partial"],
            "lost": report["events_lost"], "busy": (after[0] - before[0]) / ticks, "stolen": (after[1] - before[1]) / ticks,
            **({"report": report, "log": done.stderr} if report["drops"]["switch_packets"] else {})}


def is_disturbed(attempt, goal):
    """A testbed that loses packets itself is late beyond what its ports' arithmetic covers."""
    return bool(attempt["testbed_lost"]) or goal is not None and attempt["stolen"] > STOLEN


def make(evb, path, point, seconds):
    goal, attempts = goal_of(point), []
    while not attempts or is_disturbed(attempts[-1], goal) and len(attempts) < ATTEMPTS:
        attempts.append(measure(evb, path, point, seconds if goal is None else 3 * seconds))
    valid = [a for a in attempts if not a["testbed_lost"]] or attempts
    losses = {key: max(a[key] or 0 for a in valid) for key in ("dropped", "testbed_lost", "partial", "lost")}
    return {**point, **valid[-1], **losses, "goal": goal, "attempts": attempts}


def why_missed(p):
    return "processors" if p["busy"] > BUSY else "disturbed" if is_disturbed(p, p["goal"]) else "missed"


def show(number, p):
    again = f"  attempt {len(p['attempts'])}" if len(p["attempts"]) > 1 else ""
    goal = "" if p["goal"] is None else f"  goal {p['goal']:.2f} " + (
        "reached" if p["share"] >= p["goal"] else why_missed(p))
    print(f"{number:4} {p['sources']:2} x {p['sfis']}, {p['fragment']:6} B, buffer {p['buffer'] // 1024:3} KiB, load {p['load']!s:4}: "
          f"{p['dropped']} dropped, share {p['share']:.3f}, cpu {100 * p['busy']:3.0f} %{goal}{again}", flush=True)


def summary(points):
    dropped = [p for p in points if p["dropped"] and not p["testbed_lost"]]
    unknown = [p for p in points if p["testbed_lost"]]
    goals = [p for p in points if p["goal"] is not None]
    reached = [p for p in goals if p["share"] >= p["goal"]]
    missed = [why_missed(p) for p in goals if p["share"] < p["goal"]]
    print(f"{len(points)} points: a port dropped packets at {len(dropped)}, events are partial or lost at "
          f"{sum(1 for p in points if p['partial'] + p['lost'])}, the testbed lost packets in every attempt at {len(unknown)}")
    print(f"{sum(1 for p in points if len(p['attempts']) > 1)} points were made again")
    print(f"{len(goals)} points with a goal: {len(reached)} reach it, {missed.count('processors')} are limited by the processors, "
          f"{missed.count('disturbed')} were disturbed, {missed.count('missed')} miss it")
    print(f"{os.cpu_count()} processors, Linux {platform.release()}, at most {100 * max(p['stolen'] for p in points):.1f} % of the "
          "processor time stolen at a point")
    return 1 if dropped or unknown else 0


@need.awake()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--evb", default=os.path.join(os.path.dirname(__file__), "..", "build", "src", "evb"))
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    o = parser.parse_args()
    need.check((), o.evb)
    with tempfile.TemporaryDirectory(prefix="evb-sweep-") as where:
        path = os.path.join(where, "sweep.conf")
        with open(path, "w") as to:
            to.write(SCENARIO)
        r, points = random.Random(o.seed), []
        for number in range(1, o.points + 1):
            points.append(make(o.evb, path, draw(r), o.seconds))
            show(number, points[-1])
    if o.json:
        with open(o.json, "w") as to:
            json.dump({"seed": o.seed, "seconds": o.seconds, "points": points}, to, indent=1)
    return summary(points)


if __name__ == "__main__":
    sys.exit(main())
