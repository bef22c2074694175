#!/usr/bin/env python3
"""Tests that the judge gives the verdicts of the lab in C, word for word, on random results of all measurements that it had.

drawn.txt was recorded with `evb lab report --json` of the lab in C (evb 0.2.0), which read the same results. In one line on C11, the
simulator now has level 2.
"""
import json
import pathlib
import random
import sys
import unittest

import cases
from evb.lab.catalogue import select
from evb.lab.judge import judge
from evb.lab.measurement import Kind, points_of

MEASUREMENTS = select(["all"])
RECORDED = pathlib.Path(__file__).with_name("drawn.txt")
# In the order of drawing; between these, or how it is drawn.
FIGURES = {
    "loss_percent": (0, 3), "received_mbps": (700, 1000), "least_mbps": (40, 330), "sender_cpu_percent": (0, 120),
    "sender_cpu_p50_percent": (0, 120), "gap_p50_us": (0, 1300), "gap_p99_us": (0, 6000), "mbyte_per_s": (100, 9000),
    "whole_events_per_second": (2e3, 3e4), "whole_bytes_per_second": (1e7, 4e8), "complete_share": (0, 1), "switch_packets": "few",
    "source_packets": "few", "socket_packets": "few", "events_lost": "few", "events_partial": "few", "built_share": (0.4, 1.01),
    "offered_share": (0.5, 1.5), "port_share": (0.9, 1), "echo_p99_us": (10, 9000), "trigger_rate_hz": (1e3, 1e5),
    "wire_mbps": (500, 1000), "spread_mbps": (0, 2), "lost_percent": (0, 0.2), "output_cpu_percent": (0, 100),
    "processing_mean_us": (0.05, 0.2), "processing_sigma_us": (0, 1), "inter_packet_sigma_us": (0, 5),
    "inter_packet_mean_us": (11.9, 20.1), "sent_inter_packet_mean_us": "x", "sent_inter_packet_sigma_us": (0, 1), "mbps": "rate",
    "lost_packets": "few", "network_packets": "few", "path_lost_packets": "few", "corrupt": "rare", "mean_mbps": (900, 960),
    "steady_intervals": (0, 5), "unsteady_intervals": "few", "calls_per_packet": (0, 4), "processor_seconds_per_gb": (0.1, 3),
    "steady_share": (0.8, 1), "plan_fits": "few", "port_most_bytes": (1e4, 1e7), "latency_p99_us": (10, 9000),
    "event_rate_hz": (1e3, 6e3), "most_mbps": (900, 960)}


def drawn(r, how, p):
    if how == "few":
        return r.randrange(500) if r.random() < 0.2 else 0
    if how == "rare":
        return int(r.random() < 0.03)
    if how == "x":
        return p.x * (0.985 + 0.03 * r.random())
    if how == "rate":
        return p.x * (0.98 + 0.02 * r.random()) * (1000 if p.x < 10 else 1)
    return how[0] + (how[1] - how[0]) * r.random()


class Draw:
    """What a seed decides for all points."""

    def __init__(self, seed):
        self.r = r = random.Random(seed)
        self.quick, self.simulated, self.good = (r.random() < share for share in (0.5, 0.3, 0.5))
        self.missing, self.unknown = (share if r.random() < 0.3 else 0 for share in (0.05, 0.01))
        self.disturbed, self.refused = (share if r.random() < 0.3 else 0 for share in (0.02, 0.02))
        self.calm = {key for key, how in FIGURES.items() if how == "few" and r.random() < 0.8}

    def result(self, p):
        r = self.r
        result = {key: round(0 if key in self.calm else drawn(r, how, p), 6) for key, how in FIGURES.items()}
        if self.good:
            result["built_share"], result["steady_share"] = 0.985 + 0.015 * r.random(), 0.94 + 0.06 * r.random()
        result = {key: None if r.random() < self.unknown else value for key, value in result.items()}
        for key, share, text in (("refused", self.refused, "sendmsg: not this time"), ("disturbed", self.disturbed, "by the test")):
            if r.random() < share:
                result[key] = text
        if p.panel:
            result["panel"] = p.panel
        result |= {"id": p.measurement.id, "series": p.series, "x": float(p.x), "settings": str(p.settings), "version": "0"}
        if self.simulated:
            return result | {"simulated": True, "seed": 1, "processors": 4}
        return result | {"time": "2026-11-28T00:00:00Z", "kernel": "6", "processor": "p", "processors": 4 if r.random() < 0.9 else 2}

    def results(self):
        """C8 has no points that the simulator models. The lab in C had no points at 100 Mbit/s, so these are missing."""
        return [self.result(p) for m in MEASUREMENTS if not self.simulated or (m.kind is Kind.EVENTS and m.id != "C8")
                for p in points_of(m, quick=self.quick) if ", 100 Mbit/s" not in p.series and self.r.random() >= self.missing]


# With the other tests of the judge, these two take each branch of it that any of the first eight does.
SEEDS = (4, 6)
# Longer texts of the lab in C were cut.
WHY_MAX = 599


def verdicts(results):
    found = {m.id: judge(m, [r for r in results if r["id"] == m.id]) for m in MEASUREMENTS}
    return {identity: f"{verdict.value}: {why}" for identity, (verdict, why) in found.items()}


class Drawn(unittest.TestCase):
    def test_verdicts_are_those_of_the_lab_in_c(self):
        recorded = RECORDED.read_text(encoding="utf-8").splitlines()
        now = [f"{seed} {identity} {text}" for seed in SEEDS for identity, text in verdicts(Draw(seed).results()).items()
               if not text.endswith("not measured")]
        self.assertEqual(len(now), len(recorded))
        for line, wanted in zip(now, recorded):
            was_cut = len(wanted.partition(": ")[2]) == WHY_MAX
            self.assertEqual(line[:len(wanted)] if was_cut else line, wanted)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        # The results of a seed, for another judge.
        print("\n".join(json.dumps(result) for result in Draw(int(sys.argv[1])).results()))
    else:
        cases.main()
