#!/usr/bin/env python3
"""Tests the verdicts on streams, publication D, on synthetic results."""
import unittest

import cases
from sample import change, results_of, verdict_of

NAMES = ("wire_mbps", "spread_mbps", "lost_percent", "socket_packets", "output_cpu_percent", "processing_mean_us",
         "processing_sigma_us", "inter_packet_mean_us", "inter_packet_sigma_us", "mbps", "sent_inter_packet_mean_us",
         "sent_inter_packet_sigma_us", "network_packets", "path_lost_packets", "lost_packets", "corrupt", "mean_mbps", "least_mbps",
         "most_mbps", "steady_intervals", "unsteady_intervals", "processors")
# As published, or better where nothing is.
VERDICTS = {"D1": "agrees", "D2": "agrees", "D3": "agrees", "D4": "agrees", "D5": "agrees", "D6": "better", "D7": "better",
            "D8": "better", "D9": "better"}
FREE = "free processors, socket of 8 MiB"


def good(p, key):
    row = p.measurement.id
    busy = "busy processor, socket of 128" in (p.panel or "")
    if key.endswith("_packets"):
        return 50 if "lost by the path" in p.series else 0
    return {"wire_mbps": min(12112 / p.x, 1000), "spread_mbps": 200 if busy else 0.5,
            "lost_percent": 3 if busy or (row == "D4" and "interface" in p.series) else 0,
            "output_cpu_percent": 99 if p.series in ("yield", "poll") else 2, "processing_mean_us": 0.11, "processing_sigma_us": 0.11,
            "inter_packet_mean_us": max(p.x, 12.112), "sent_inter_packet_mean_us": p.x * 1.005, "processors": 8,
            "steady_intervals": 60, "mean_mbps": 977, "least_mbps": 977, "most_mbps": 977,
            "mbps": p.x * (1000 if row == "D7" else 1) * 0.999}.get(key, 0)


class Streams(unittest.TestCase):
    def test_good_figures_have_good_verdicts(self):
        for identity, wanted in VERDICTS.items():
            for quick in (False, True):
                results = results_of(identity, good, NAMES, quick)
                verdict, why = verdict_of(identity, results)
                self.assertEqual(verdict, wanted, (identity, why))
                self.assertEqual(verdict_of(identity, results[1:])[0] if results[1:] else "unknown", "unknown", identity)

    def test_each_figure_counts(self):
        for identity, series, panel, x, key, value, wanted, text in (
                ("D1", "signal=200", FREE, 12, "lost_percent", 0.05, "differs", "0.05 % lost, with futex"),
                ("D1", "signal=100", FREE, 12, "spread_mbps", 1.5, "differs", "within 1.5 Mbit/s"),
                ("D1", "signal=100", FREE, 12, "wire_mbps", 980, "differs", "at 12 us 980.0 Mbit/s"),
                ("D1", "signal=100", FREE, 12, "wire_mbps", 940, "differs", "at 12 us 940.0 Mbit/s"),
                ("D1", None, "busy processor, socket of 128 KiB", 12, "lost_percent", 0, "agrees",
                 "turns, 1000.0 Mbit/s within 200.0 Mbit/s, 0 % lost with a socket of 128 KiB"),
                ("D2", "yield", None, 20, "lost_percent", 1, "differs", "1 % lost; at 12 us"),
                ("D2", "yield", None, 12, "spread_mbps", 3, "differs", "within 3.0 Mbit/s"),
                ("D2", "yield", None, 12, "output_cpu_percent", 60, "differs", "60 % of a processor, as others need it"),
                ("D3", "poll", None, 12, "output_cpu_percent", 60, "agrees", "60 % of a processor, as others need it"),
                ("D3", "poll", None, 12, "output_cpu_percent", 20, "differs", "20 % of a processor"),
                ("D3", "futex (default)", None, 12, "output_cpu_percent", 15, "differs", "with futex 15.0 %"),
                ("D4", "the interface's processor", None, None, "lost_percent", 0, "differs", "0 % lost on"),
                ("D5", None, None, None, "processing_mean_us", 0.5, "differs", "0.50 us"),
                ("D5", None, None, None, "processing_mean_us", 0.05, "better", "0.05 us"),
                ("D5", None, None, 20, "inter_packet_mean_us", 21, "differs", "5.00 % off"),
                ("D6", None, None, 1, "sent_inter_packet_mean_us", 1.5, "differs", "down to 2 us"),
                ("D6", None, None, 50, "sent_inter_packet_mean_us", 51, "differs", "no spacing is kept"),
                ("D7", None, None, 8, "mbps", 7000, "differs", "up to 6 Gbit/s"),
                ("D7", "futex (default)", None, 4, "lost_percent", 1, "differs", "1 % lost; with signal=200 0 % lost"),
                ("D7", "yield", None, 4, "lost_percent", 1, "better", "with yield 1 %"),
                ("D8", "no loss", None, 300, "network_packets", 1, "differs", "in the network"),
                ("D8", None, None, 300, "corrupt", 1, "differs", ""),
                ("D8", None, None, 300, "mbps", 290, "differs", "3.33 % less"),
                ("D9", "memory", None, None, "lost_packets", 1, "differs", "memory: 1 packets lost, 60 of 60 s"),
                ("D9", "disk to disk", None, None, "unsteady_intervals", 1, "differs",
                 "disk to disk: 0 packets lost, 60 of 61 s within 0.1 % of 977.00 Mbit/s"),
                ("D9", "disk, direct", None, None, "corrupt", 1, "differs", "(977.00 to 977.00), corrupt"),
                ("D9", "disk, direct", None, None, "mbps", 900, "differs", "4.26 % less than asked for"),
                ("D9", "memory", None, None, "least_mbps", 976.5, "better", "(976.50 to 977.00)")):
            results = change(results_of(identity, good, NAMES), key, value, series=series, panel=panel, x=x)
            verdict, why = verdict_of(identity, results)
            self.assertEqual(verdict, wanted, (identity, key, value, why))
            self.assertIn(text, why)

    def test_steadiness_needs_processors(self):
        """With two processors, the ends of a stream wait for each other."""
        for wire_mbps, spread_mbps, lost_percent, wanted in ((980, 60, 0, "agrees"), (940, 1, 0, "differs"), (999, 1, 0.01, "differs")):
            results = change(results_of("D1", good, NAMES), "processors", 2)
            for key, value in (("wire_mbps", wire_mbps), ("spread_mbps", spread_mbps), ("lost_percent", lost_percent)):
                change(results, key, value, series="signal=100", panel=FREE, x=12)
            verdict, why = verdict_of("D1", results)
            self.assertEqual(verdict, wanted)
            self.assertIn("with 2 processors, steadiness is not judged", why)


if __name__ == "__main__":
    cases.main()
