#!/usr/bin/env python3
"""Tests the benchmarks, P1 to P9, on synthetic results: verdicts, tables and the systems drawn at random."""
import dataclasses
import os
import unittest
import unittest.mock

import cases
from evb.lab import performance
from evb.lab.catalogue import BY_ID
from evb.lab.judge import judge, markdown, table
from evb.lab.measurement import Simulation, Testbed, points_of
from evb.lab.needs import missing
from sample import change, results_of, verdict_of

NAMES = ("throughput_bytes_per_second", "whole_bytes_per_second", "event_rate_hz", "events_lost", "events_partial", "switch_packets",
         "source_packets", "socket_packets", "dfm_seconds_per_event", "ros_seconds_per_event", "sfi_seconds_per_event", "mbps",
         "lost_percent", "lost_packets", "corrupt", "repaired_mbps", "repair_seconds", "packets_repaired", "received_mbps",
         "loss_percent", "gap_p1_us", "gap_p50_us", "gap_p99_us", "gap_p999_us", "gap_max_us")
IPERF_UDP = "iperf3, UDP, 1448 B"


def good(p, key):
    """evb carries 1,000 MB/s in the first round, 1,200 in the second one, and twice as much as anything else in all."""
    mb = 1000 + 200 * (p.x - 1)
    others = p.series in (IPERF_UDP, "iperf3, TCP", "bare wire", "the other build", "iperf3", "spead2")
    bps = 1e6 * mb / (2 if others else 1)
    if p.series == "file":
        bps *= 0.8
    if p.measurement.id == "P5" and p.panel != performance.ONE_BY_ONE and not others:
        bps *= 2
    if p.measurement.id == "P9":
        bps = 1e9
    return {"throughput_bytes_per_second": bps, "whole_bytes_per_second": bps, "event_rate_hz": 10 * mb, "mbps": bps * 8 / 1e6,
            "repaired_mbps": 950, "received_mbps": (p.x if p.series == "shaped" else 3000) * 1400 / 1442 * 0.8, "loss_percent": 20,
            "gap_p50_us": 115.3,
            "sfi_seconds_per_event": 3e-6, "ros_seconds_per_event": 2e-6, "dfm_seconds_per_event": 1e-6}.get(key, 0)


class Verdicts(unittest.TestCase):
    def test_good_figures_have_good_verdicts(self):
        for i in range(1, 10):
            for quick in (False, True):
                results = results_of(f"P{i}", good, NAMES, quick)
                verdict, why = verdict_of(f"P{i}", results)
                self.assertEqual(verdict, "better", (i, why))
                self.assertEqual(verdict_of(f"P{i}", results[1:], quick)[0], "unknown", i)

    def test_each_figure_counts(self):
        for identity, series, panel, x, key, value, wanted, text in (
                ("P1", "pull, UDP", None, None, "throughput_bytes_per_second", 4e8, "differs", "carries 0.57 to 2.00"),
                ("P1", "push, TCP", None, None, "throughput_bytes_per_second", 4e8, "better", "0.57 to 0.57 times over TCP"),
                ("P1", "push, TCP", None, 2, "events_partial", 3, "differs", "3 events are lost or partial"),
                ("P1", IPERF_UDP, None, 1, "throughput_bytes_per_second", 1e9, "better", "2.00 to 2.00 times as much as iperf3 over UDP"),
                ("P2", "push, UDP", "6x1, 1 KiB", None, "throughput_bytes_per_second", 4e8, "differs", "carries 0.57"),
                ("P3", "this build", "6x1 push, UDP, 14 KiB", None, "throughput_bytes_per_second", 6e8, "differs",
                 "is 0.86 (6x1 push, UDP, 14 KiB) to 2.00 (1x1"),
                ("P3", "this build", "6x1 push, UDP, 14 KiB", 1, "throughput_bytes_per_second", 6e8, "better", "is 2.00"),
                ("P3", "this build", None, 3, "events_lost", 1, "differs", "9 events are lost"),
                ("P4", "file", "TCP 14 KiB", None, "throughput_bytes_per_second", 9e8, "differs", "0.64 (TCP 14 KiB)"),
                ("P5", "evb", performance.ONE_BY_ONE, None, "mbps", 4000, "differs", "0.83 (1472 bytes, one by one)"),
                ("P5", "spead2", performance.ONE_BY_ONE, None, "mbps", 16000, "differs", "0.60 (1472 bytes, one by one)"),
                ("P5", "evb", None, None, "mbps", 9000, "differs", "1.88 (8972 bytes, segmentation offload)"),
                ("P5", "evb, pattern", None, 1, "corrupt", 1, "differs", "4 packets are corrupt"),
                ("P6", "1 % lost by the path", None, None, "repaired_mbps", 450, "differs", "1 % lost by the path: 450 Mbit/s"),
                ("P6", "1 % lost by the path", None, None, "repaired_mbps", 550, "better", "1 % lost by the path: 550 Mbit/s"),
                ("P6", "0.01 % lost by the path", None, None, "repaired_mbps", 850, "differs", "0.01 % lost by the path: 850 Mbit/s"),
                ("P6", None, None, 1, "corrupt", 1, "differs", "2 copies differ"),
                ("P6", None, None, 1, "lost_packets", 1, "differs", "2 packets remain lost"),
                ("P7", "shaped", None, 500, "received_mbps", 470 * 0.8, "differs", "3.18 % off (at 500 Mbit/s)"),
                ("P7", "shaped", None, 10, "loss_percent", 21, "differs", "1.27 % off (at 10 Mbit/s)"),
                ("P7", "unshaped, links without a rate", None, None, "received_mbps", 50, "better", "0.00 % off"),
                ("P7", "shaped", None, 10, "source_packets", 2, "better", "2 packets are dropped"),
                ("P8", "htb", None, 2, "socket_packets", 4, "differs", "drops 4 packets"),
                ("P8", "none", None, 2, "socket_packets", 4, "better", "drops 0 packets"),
                ("P9", None, None, 17, "switch_packets", 1, "differs", "drops packets in 1 of 200 systems"),
                ("P9", None, None, 17, "events_partial", 1, "better", "lost or partial in 1;")):
            results = change(results_of(identity, good, NAMES), key, value, series=series, panel=panel, x=x)
            verdict, why = verdict_of(identity, results)
            self.assertEqual(verdict, wanted, (identity, key, value, why))
            self.assertIn(text, why)

    def test_what_cannot_be_made_is_dispensable(self):
        """spead2, and backends that the kernel lacks."""
        for identity, series, left in (("P5", ("spead2",), "2.00 (1472 bytes, one by one)"), ("P8", ("edt", "cbq+tbf"), "1.00 (htb) times")):
            results = [r for r in results_of(identity, good, NAMES) if r["series"] not in series]
            verdict, why = verdict_of(identity, results)
            self.assertEqual(verdict, "better")
            self.assertIn(left, why)
            cells = [cell for row in table(BY_ID[identity], results) for cell in row]
            self.assertEqual([cell for cell in cells if "nan" in cell], [])
            self.assertNotIn("cbq+tbf", cells)


class Tables(unittest.TestCase):
    def test_the_table_of_the_readme_has_medians(self):
        """Medians of the rounds, and medians of the ratios within each round."""
        results = results_of("P1", good, NAMES)
        for x, udp in ((1, 500), (2, 200), (3, 1400), (4, 1600), (5, 900)):
            change(results, "throughput_bytes_per_second", udp * 1e6, series=IPERF_UDP, x=x)
        lines = markdown(table(BY_ID["P1"], results)).splitlines()
        self.assertEqual(lines[:3], ["| 6 ROSs, 1 SFI, fragments of 14 KiB | events/s | payload, MB/s | relative to iperf3 |",
                                     "|---|---:|---:|---:|", "| push, UDP | 14,000 | 1,400 | 2.00 |"])
        self.assertEqual(lines[-2:], [f"| {IPERF_UDP} |  | 900 | 1.00 |", "| iperf3, TCP |  | 700 | 1.00 |"])

    def test_every_table_has_its_columns(self):
        for i in range(1, 10):
            for quick in (False, True):
                rows = table(BY_ID[f"P{i}"], results_of(f"P{i}", good, NAMES, quick), quick)
                self.assertEqual(len({len(row) for row in rows}), 0 if i in (6, 9) else 1, (i, rows))
                self.assertTrue(all(isinstance(cell, str) for row in rows for cell in row))
        self.assertEqual(table(BY_ID["P7"], results_of("P7", good, NAMES))[0][3:],
                         [f"gap {name}, us" for name in ("p1", "p50", "p99", "p99.9", "max")])

    def test_an_incomplete_measurement_has_no_table(self):
        self.assertEqual(table(BY_ID["P1"], results_of("P1", good, NAMES)[1:]), [])
        self.assertEqual(table(BY_ID["P1"], []), [])
        self.assertEqual(table(BY_ID["C1"], results_of("C1", good, NAMES)), [])


class Points(unittest.TestCase):
    def test_the_drawn_systems_are_those_of_the_seed(self):
        """docs/results.md has the results of 200 systems, the first of which these are."""
        first, second = points_of(BY_ID["P9"])[:2]
        self.assertIn("ros.count=4 sfi.count=3 ros.fragment-size=73861 trigger.rate=461Hz network.switch-buffer=320802 "
                      "scenario.duration=2s", first.settings)
        self.assertIn("ros.count=9 sfi.count=2 ros.fragment-size=19947 trigger.rate=max network.switch-buffer=337884 ", second.settings)
        other = points_of(performance.drawn("X1", seed=2, count=3))
        self.assertEqual(len(other), 3)
        self.assertNotEqual(other[0].settings, first.settings)

    def test_systems_with_a_goal_take_longer_and_are_judged(self):
        goals = [p for p in points_of(BY_ID["P9"]) if "scenario.duration=6s" in p.settings]
        self.assertTrue(goals and all("sfi.count=1 " in p.settings for p in goals))
        results = change(results_of("P9", good, NAMES), "throughput_bytes_per_second", 1, x=goals[0].x)
        self.assertIn(f"{len(goals) - 1} of {len(goals)} systems that overload a port fill it", verdict_of("P9", results)[1])

    def test_a_round_runs_every_series_once(self):
        points = points_of(BY_ID["P1"])
        self.assertEqual([p.series for p in points[:5]], list(BY_ID["P1"].series))
        self.assertEqual({p.x for p in points[:5]}, {1})

    def test_only_this_machine_makes_them(self):
        bed = Testbed("lab.conf", (), "lab", 9, 9, 0, 1500, 0)
        for point in points_of(BY_ID["P2"]):
            for where, option in ((bed, "--config"), (Simulation(), "--sim")):
                self.assertEqual(missing(dataclasses.replace(point, bed=where)), f"measures this machine; leave out {option}")

    def test_missing_programs_are_named(self):
        with unittest.mock.patch.dict(os.environ, {"PATH": "/nonexistent"}):
            for identity, series, lack in (("P1", IPERF_UDP, "needs iperf3, which is not installed"), ("P1", "push, UDP", None),
                                           ("P2", "bare wire", None), ("P5", "spead2", "needs spead2, but the programs of its Python package are not in PATH")):
                self.assertEqual(missing(next(p for p in points_of(BY_ID[identity]) if p.series == series)), lack)

    def test_the_other_build_is_that_of_the_environment(self):
        for name, lack in (("", "needs another build of evb; set EVB_BASELINE to its path"), ("/bin/sh", None),
                           ("/nonexistent", "needs the program /nonexistent, which does not exist or is not executable")):
            with unittest.mock.patch.dict(os.environ, {"EVB_BASELINE": name}):
                now, other = points_of(BY_ID["P3"])[:2]
                self.assertEqual((missing(now), missing(other)), (None, lack))
                self.assertEqual(other.text("program"), name or "baseline")
                self.assertEqual(judge(BY_ID["P3"], results_of("P3", good, NAMES))[0].value, "better")


if __name__ == "__main__":
    cases.main()
