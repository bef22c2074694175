#!/usr/bin/env python3
"""Compare the event rate with one of four boards dead to that with all four.

    scripts/bench-dead-board.py [--evb build/src/evb] [--rounds 3] [--seconds 8] [--frame 1024] [--json FILE]

`evb frontend` plays four boards and a trigger box that sends triggers as fast as the DFM takes them. In the second run of each
round the fourth board, which is not required, sends nothing. Both run in push and in pull. The event rate is that from the first
to the last complete event; the first one is complete when the DFM leaves the dead board out, after its wait of 300 ms. The exit status is 1 if a median
ratio is below 0.95, or if an event is partial or lost.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import need

NET = "127.69.87."
BOARDS = 4
GOAL = 0.95
SCENARIO = f"""[trigger]
source = udp:26910
busy-to = {NET}2:26911
[ros]
source = udp:26900
event-number = 0:32
[node dfm]
role = dfm
address = {NET}1
[node sfi1]
role = sfi
address = {NET}21
""" + "".join(f"[node ros{i}]\nrole = ros\naddress = {NET}{10 + i}\n" for i in range(1, BOARDS + 1)) + "required = no\nwait = 300ms\n"


def measure(o, path, mode, dead):
    run = subprocess.Popen([o.evb, "run", path, "--json", "--set", f"scenario.mode={mode}"], stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        boards = ",".join(f"udp:{NET}{10 + i}:26900" for i in range(1, BOARDS + 1))
        words = ["--boards", boards, "--trigger-to", f"{NET}1:26910", "--busy-from", f"{NET}2:26911", "--rate", f"{o.rate}Hz",
                 "--duration", f"{o.seconds}s", "--size", str(o.frame), "--counter", "0:32", *(["--fault", f"dead={BOARDS}"] if dead else [])]
        subprocess.run([o.evb, "frontend", *words], check=True, stdout=subprocess.DEVNULL)
        time.sleep(2)
    finally:
        run.send_signal(signal.SIGINT)
        report = json.loads(run.communicate(timeout=60)[0])
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default=pathlib.Path(__file__).parents[1] / "build/src/evb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--frame", type=int, default=1024)
    parser.add_argument("--rate", type=int, default=200000, help="of the triggers, if the DFM is never busy, in Hz")
    parser.add_argument("--json", metavar="FILE")
    o = parser.parse_args()
    need.check((), o.evb, root=False)
    points, whole = [], True
    with tempfile.TemporaryDirectory(prefix="evb-dead-") as where:
        path = pathlib.Path(where) / "dead.conf"
        path.write_text(SCENARIO)
        for mode in ("push", "pull"):
            ratios = []
            for _ in range(o.rounds):
                reports = [measure(o, path, mode, dead) for dead in (False, True)]
                whole &= not any(r["events_partial"] + r["events_lost"] for r in reports)
                rates = [r["event_rate_hz"] for r in reports]
                ratios.append(rates[1] / rates[0])
                points.append({"mode": mode, "event_rate_hz": rates, "absent": [r["fragments"]["absent"] for r in reports],
                               "events": [[r[f"events_{end}"] for end in ("complete", "partial", "lost")] for r in reports]})
                print(f"{mode}: {rates[0]:.0f} Hz with all boards, {rates[1]:.0f} Hz with one dead: {ratios[-1]:.3f}", flush=True)
            points[-1]["median_ratio"] = statistics.median(ratios)
            print(f"{mode}: median ratio {points[-1]['median_ratio']:.3f}")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(points, indent=1))
    if not whole:
        print("events are partial or lost")
    return 0 if whole and all(p.get("median_ratio", 1) >= GOAL for p in points) else 1


sys.exit(main())
