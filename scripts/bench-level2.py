#!/usr/bin/env python3
"""Compare the trigger rate with level 2 to that of a run that builds every event, on the same port.

    sudo scripts/bench-level2.py [--evb build/src/evb] [--accept 0.1] [--latency 5ms] [--fragment 14336] [--seconds 4] [--rounds 3] [--json FILE]

Each run is one of the lab: 6 ROSs and an SFI behind a port of 1 Gbit/s with a buffer of 256 KiB, and triggers as fast as they
are taken. A round makes one run that builds everything and one with a stand-in farm (evb level2) beside the DFM, in push
(shaped) and in pull. The trigger rate is that of complete events, times the number of triggers per complete event. The
exit status is 1 if an event was lost or is partial, or if a median ratio is below 5. The script needs root.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import need

PORT = 26803
SCENARIO = """[trigger]
rate = max
[ros]
count = 6
[sfi]
count = 1
[network]
link-rate = 1Gbit
switch-buffer = 256KiB
# More than are undecided within the latency, and few beside all triggers of a run.
[test]
buffer-events = 16000
"""
MODES = {"push": ["scenario.mode=push", "qos.backend=auto"], "pull": ["scenario.mode=pull"]}
GOAL = 5


def settings(words):
    return [word for setting in words for word in ("--set", setting)]


def measure(o, where, mode, level2):
    words = MODES[mode] + [f"scenario.duration={o.seconds}s", f"ros.fragment-size={o.fragment}"]
    words += [f"level2.listen=tcp:{PORT}", f"test.stand-in={o.accept}:{o.latency}"] if level2 else []
    done = subprocess.run([o.evb, "run", where, "--net", "lab", "--json", *settings(words)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"bench-level2.py: evb run ended with status {done.returncode}")
    return json.loads(done.stdout)


def trigger_rate_hz(report):
    return report["event_rate_hz"] * report["triggers"] / report["events_complete"]


@need.awake()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evb", default="build/src/evb")
    parser.add_argument("--accept", default="0.1")
    parser.add_argument("--latency", default="5ms")
    parser.add_argument("--fragment", type=int, default=14336)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    o = parser.parse_args()
    need.check(["ip"], o.evb)
    points, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        where = os.path.join(folder, "level2.conf")
        pathlib.Path(where).write_text(SCENARIO)
        for turn in range(o.rounds):
            for mode in MODES:
                rates = []
                for level2 in (False, True):
                    report = measure(o, where, mode, level2)
                    bad = report["events_lost"] + report["events_partial"]
                    failed |= bad > 0 or not report["balanced"]
                    rates.append(trigger_rate_hz(report))
                    points.append({"mode": mode, "level2": level2, "round": turn, "trigger_rate_hz": rates[-1],
                                   "event_rate_hz": report["event_rate_hz"], "bytes_per_second": report["throughput_bytes_per_second"],
                                   "lost_or_partial": bad, "switch_packets": report["drops"]["switch_packets"], "decisions": report["level2"]})
                print(f"{mode}: {rates[0]:.0f} Hz if all is built, {rates[1]:.0f} Hz of triggers with level 2 ({points[-1]['event_rate_hz']:.0f} Hz built): "
                      f"{rates[1] / rates[0]:.2f} times", flush=True)
    for mode in MODES:
        of = {level2: [p["trigger_rate_hz"] for p in points if p["mode"] == mode and p["level2"] is level2] for level2 in (False, True)}
        ratio = statistics.median(b / a for a, b in zip(of[False], of[True]))
        failed |= ratio < GOAL
        print(f"{mode}: median {ratio:.2f} times the rate of building everything")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(points, indent=1) + "\n")
    sys.exit(1 if failed else 0)


main()
