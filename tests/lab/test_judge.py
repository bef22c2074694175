#!/usr/bin/env python3
"""Tests verdicts on synthetic results: complete ones, and ones that lack a point or a figure."""
import copy
import re
import unittest

import cases
from evb.lab.catalogue import BY_ID
from evb.lab.judge import decisive_points
from evb.lab.measurement import points_of
from sample import change, results_of, verdict_of

# The figures that each measurement needs, and its verdict on good().
CASES = {
    "A1": ("loss_percent", "agrees"),
    "A2": ("loss_percent", "agrees"),
    "A3": ("loss_percent", "agrees"),
    "A4": ("loss_percent", "agrees"),
    "A5": ("received_mbps", "agrees"),
    "A6": ("sender_cpu_percent sender_cpu_p50_percent", "better"),
    "A7": ("gap_p50_us gap_p99_us", "better"),
    "A8": ("gap_p50_us", "agrees"),
    "B1": ("mbyte_per_s", "better"),
    "B2": ("received_mbps", "unknown"),
    "B3": ("received_mbps", "agrees"),
    "B4": ("received_mbps", "agrees"),
    "B5": ("least_mbps", "better"),
    "B6": ("least_mbps", "agrees"),
    "C1": ("whole_events_per_second", "better"),
    "C2": ("whole_bytes_per_second", "better"),
    "C3": ("whole_events_per_second", "better"),
    "C4": ("whole_bytes_per_second complete_share port_share", "agrees"),
    "C5": ("whole_bytes_per_second switch_packets", "better"),
    "C6": ("events_lost events_partial switch_packets source_packets socket_packets offered_share built_share port_share "
           "whole_bytes_per_second", "better"),
    "C7": ("whole_bytes_per_second switch_packets port_share", "better"),
    "C8": ("whole_bytes_per_second switch_packets", "better"),
    "C9": ("echo_p99_us", "better"),
    "C10": ("events_lost events_partial switch_packets source_packets socket_packets built_share", "better"),
    "C11": ("trigger_rate_hz events_lost events_partial", "better"),
}
# All figures that verdicts read.
FIGURES = sorted({name for needs, _ in CASES.values() for name in needs.split()})


def bytes_per_second(p):
    if p.measurement.id == "C4" and p.series.startswith("push") and p.x > 5000:
        return 10e6
    if p.measurement.id == "C5" and p.series != "auto":
        return float(p.series.split()[0]) * 0.9e6
    return 110e6


def good(p, key):
    """Figures that give the verdicts in CASES."""
    identity, load = p.measurement.id, re.search(r"offered (\d+)", p.panel or "")
    offered = float(load[1]) / 100 if load else 1.5
    if key == "loss_percent":
        return 7 if identity == "A1" or (identity == "A3" and p.x <= 60) or (identity == "A4" and p.x <= 200) else 0
    if key == "received_mbps":
        return p.x * 0.95 if identity == "B4" else 990 if "9000" in p.series else 900
    if key.startswith("gap_"):
        return 1050 if identity == "A8" or p.series.startswith("QoS") else 12
    if key == "switch_packets":
        return 0 if "shaped" in p.series or identity == "C5" else 100
    return {"least_mbps": p.x * 0.95, "whole_bytes_per_second": bytes_per_second(p), "built_share": 0.995,
            "complete_share": 0.1 if p.series.startswith("push") else 1, "offered_share": offered, "port_share": 0.98 * min(offered, 1),
            "echo_p99_us": 50000 if p.series == "one class for all" else 300, "trigger_rate_hz": 1e5 / p.x,
            "source_packets": 0, "socket_packets": 0, "events_lost": 0, "events_partial": 0, "sender_cpu_percent": 50,
            "sender_cpu_p50_percent": 50}.get(key, 1e5)


def good_results(identity, quick=False):
    return results_of(identity, good, FIGURES, quick)


def changed(identity, key, value, **where):
    return verdict_of(identity, change(good_results(identity), key, value, **where))


class Judge(unittest.TestCase):
    def test_verdicts_follow_the_points(self):
        self.assertEqual(set(CASES), {i for i in BY_ID if i[0] in "ABC"})
        for identity, (_, verdict) in CASES.items():
            for quick in (False, True):
                self.assertEqual(verdict_of(identity, good_results(identity, quick))[0], verdict, (identity, quick))

    def test_a_missing_point_prevents_a_verdict(self):
        for identity in CASES:
            every, points = good_results(identity), points_of(BY_ID[identity])
            for k in range(0, len(points), 41 if len(points) > 100 else 1):
                if points[k].is_optional:
                    continue
                verdict, why = verdict_of(identity, every[:k] + every[k + 1:], quick=False)
                self.assertEqual(verdict, "unknown")
                self.assertTrue(why.startswith(f"1 of {len(points)} points is missing: {points[k].series} at {points[k].x:g}"), why)

    def test_an_unknown_figure_prevents_a_verdict(self):
        """Neither null nor a missing value counts as 0."""
        for identity, (needs, good_verdict) in CASES.items():
            for key in FIGURES:
                verdict, why = verdict_of(identity, change(good_results(identity, True), key, None))
                self.assertEqual(verdict, "unknown" if key in needs.split() else good_verdict, (identity, key))
                if key in needs.split():
                    self.assertIn(f"{key} is unknown at ", why)

    def test_one_unknown_figure_prevents_a_verdict(self):
        results = good_results("C5")
        why = "switch_packets is unknown at 1 of 28 points: 40 Mbit/s at 5120"
        results[9]["switch_packets"] = None
        self.assertEqual(verdict_of("C5", results, False), ("unknown", why))
        del results[9]["switch_packets"]
        self.assertEqual(verdict_of("C5", results, False), ("unknown", why))
        self.assertEqual(verdict_of("C5", results[2:], False),
                         ("unknown", f"2 of 28 points are missing: 20 Mbit/s at 1024, 40 Mbit/s at 1024; {why}"))

    def test_zero_throughput_differs(self):
        """A throughput of zero never agrees; zero loss is the published outcome of A2 and A4."""
        for identity in CASES:
            wanted = {"A2": "agrees", "A4": "agrees", "B2": "unknown"}.get(identity, "differs")
            self.assertEqual(verdict_of(identity, results_of(identity, lambda p, key: 0, FIGURES))[0], wanted, identity)
            # verdict_of() checks that no zero has a sign.
            verdict_of(identity, results_of(identity, lambda p, key: -1e-9, FIGURES, True))

    def test_a_quick_sweep_is_not_a_full_one(self):
        """The caller chooses the sweep, or the results' settings imply it."""
        quick, whole = good_results("C5", True), good_results("C5")
        self.assertEqual(verdict_of("C5", quick)[0], "better")
        self.assertEqual(verdict_of("C5", quick, True)[0], "better")
        verdict, why = verdict_of("C5", quick, False)
        self.assertEqual(verdict, "unknown")
        self.assertIn("16 of 28 points are missing: 20 Mbit/s at 2048, 40 Mbit/s at 2048, 50 Mbit/s at 2048, auto at 2048, "
                      "and 12 more", why)
        self.assertEqual(verdict_of("C5", whole, True)[0], "better")
        # A full sweep that was interrupted after the points that a quick one has too.
        verdict, why = verdict_of("C5", whole[:4])
        self.assertEqual(verdict, "unknown")
        self.assertIn("24 of 28 points", why)

    def test_the_newest_result_counts(self):
        """This holds even if the newest result lacks a figure."""
        results = good_results("A2", True)
        old = dict(results[1], loss_percent=None)
        self.assertEqual(verdict_of("A2", [old, *results])[0], "agrees")
        self.assertEqual(verdict_of("A2", [old, *results, old])[0], "unknown")
        self.assertEqual(verdict_of("A2", []), ("unknown", "not measured"))

    def test_a_disturbed_point_prevents_a_verdict(self):
        """It counts as missing, with its reason, unless the file has a valid result of the point, older or newer."""
        for identity, (_, good_verdict) in CASES.items():
            results = good_results(identity, True)
            valid = copy.deepcopy(results[0])
            results[0]["disturbed"] = "a timer was 99 ms late"
            verdict, why = verdict_of(identity, results)
            self.assertEqual(verdict, "unknown")
            self.assertIn(" points is disturbed: ", why)
            self.assertIn(" (a timer was 99 ms late)", why)
            self.assertEqual(verdict_of(identity, [*results, valid])[0], good_verdict)
            self.assertEqual(verdict_of(identity, [valid, *results])[0], good_verdict)
            # An undisturbed result says so with null.
            self.assertEqual(verdict_of(identity, change(results, "disturbed", None))[0], good_verdict)

    def test_points_of_the_processors_say_nothing_about_the_port(self):
        """Then C4 rests on the points at 100 Mbit/s, if these are limited by the port."""
        crowded = {"port_share": 0.4, "built_share": 0.4, "waiting_share": 3, "switch_packets": 0, "triggers": 1000, "complete_share": 0.95}
        results = good_results("C4")
        for key, value in crowded.items():
            change(results, key, value, series="push")
        verdict, why = verdict_of("C4", results)
        self.assertEqual(verdict, "agrees", why)
        self.assertEqual(why.count("limited by the processors"), 1, why)
        dropped = change(results, "switch_packets", 10000, series="push")
        self.assertEqual(verdict_of("C4", dropped)[0], "differs")
        change(results, "switch_packets", 0, series="push")
        for key, value in crowded.items():
            change(results, key, value, series="push, 100 Mbit/s")
        verdict, why = verdict_of("C4", results)
        self.assertEqual((verdict, why.count("limited by the processors")), ("unknown", 2), why)

    def test_c7_needs_ports_that_the_processors_do_not_limit(self):
        results = good_results("C7")
        for key, value in {"port_share": 0.4, "built_share": 0.4, "waiting_share": 3, "switch_packets": 0}.items():
            change(results, key, value, series="shaped")
        self.assertEqual(verdict_of("C7", results)[0], "better")
        self.assertEqual(verdict_of("C7", [r for r in results if "100 Mbit/s" not in r["series"]])[0], "unknown")
        self.assertEqual(verdict_of("C7", change(results, "switch_packets", 1, series="shaped, 100 Mbit/s"))[0], "differs")

    def test_verdicts_can_differ(self):
        port, fast = "1 Gbit/s, buffer 256 KiB", "10 Gbit/s, buffer 256 KiB"
        for identity, key, value, where, verdict in (
                ("A1", "loss_percent", 0.1, {}, "differs"),
                ("A3", "loss_percent", 3, {}, "differs"),
                ("C1", "whole_events_per_second", 6e3, {"series": "pull"}, "agrees"),
                ("C1", "whole_events_per_second", 6e3, {"series": "push"}, "differs"),
                ("C5", "switch_packets", 1, {"series": "auto"}, "agrees"),
                # Push must collapse: neither match pull nor complete its events.
                ("C4", "whole_bytes_per_second", 105e6, {"series": "push"}, "differs"),
                ("C4", "complete_share", 0.95, {"series": "push"}, "differs"),
                ("C8", "whole_bytes_per_second", 100e6, {"series": "TCP, shaped"}, "differs"),
                ("B3", "received_mbps", 979, {"series": "MTU 9000"}, "differs"),
                ("B6", "least_mbps", 80, {}, "differs"),
                ("A6", "sender_cpu_percent", 76, {"series": "QoS at 1000 Mbit/s"}, "agrees"),
                ("A5", "received_mbps", 760, {"series": "QoS at 1000 Mbit/s"}, "differs"),
                # One lost packet in either system.
                ("C7", "switch_packets", 1, {"series": "shaped", "panel": "8x4"}, "differs"),
                ("C7", "switch_packets", 1, {"series": "shaped", "panel": "6x3"}, "differs"),
                ("C10", "built_share", 0.91, {"series": "shaped push", "panel": port}, "better"),
                ("C10", "built_share", 0.89, {"series": "shaped push", "panel": port}, "differs"),
                ("C10", "built_share", 0.6, {"series": "shaped push", "panel": fast}, "better"),
                ("C10", "built_share", 0.4, {"series": "shaped push", "panel": fast}, "differs"),
                ("C10", "socket_packets", 1, {"series": "shaped push", "panel": port}, "differs")):
            self.assertEqual(changed(identity, key, value, **where)[0], verdict, (identity, key, value, where))

    def test_c6_is_strict(self):
        """A loss, an unfilled port, a better pull or a load not built counts; drops of unshaped push do not."""
        over, spare, shaped = "buffer 256 KiB, offered 150 %", "buffer 256 KiB, offered 50 %", "push, shaped"
        for key, value, series, panel, verdict in (
                ("switch_packets", 1, shaped, over, "differs"),
                ("source_packets", 1, shaped, spare, "differs"),
                ("port_share", 0.95, shaped, over, "differs"),
                ("whole_bytes_per_second", 120e6, "pull, 4", over, "differs"),
                # The start may take 30 ms of 1 s.
                ("built_share", 0.95, shaped, spare, "differs"),
                ("built_share", 0.97, shaped, spare, "better"),
                ("port_share", 0.8, None, over, "differs"),
                ("whole_bytes_per_second", 120e6, "pull, 4", spare, "better"),
                ("switch_packets", 1000, "push", over, "better")):
            self.assertEqual(changed("C6", key, value, series=series, panel=panel)[0], verdict, (key, value, series, panel))

    def test_a_verdict_rests_on_few_points(self):
        """The points whose figures may change a verdict are known, and losses are not among them."""
        over = "buffer 256 KiB, offered 150 %"
        results = change(good_results("C6", True), "switch_packets", 3, series="push, shaped", panel=over)
        self.assertEqual(decisive_points(BY_ID["C6"], results, True), [])
        change(results, "whole_bytes_per_second", 120e6, series="pull, 4", panel=over)
        decisive = decisive_points(BY_ID["C6"], results, True)
        self.assertEqual(len(decisive), 4)
        self.assertEqual({p.panel for p in decisive}, {over})
        self.assertEqual({p.series for p in decisive}, {"push, shaped", "pull, 4"})
        results = good_results("A5", True)
        results[3]["received_mbps"], results[4]["received_mbps"] = 1e3, 1e4
        self.assertEqual([p.x for p in decisive_points(BY_ID["A5"], results, True)], [1000, 10000])

    def test_c6_and_c7_name_the_worst_points(self):
        verdict, why = changed("C6", "port_share", 0.97, series="push, shaped", panel="buffer 512 KiB, offered 110 %")
        self.assertEqual(verdict, "better")
        self.assertIn("loses 0 events and 0 packets at 90 combinations", why)
        self.assertIn("; under overload it builds at least 97.0 % of the port's payload limit (256 bytes; buffer 512 KiB, offered "
                      "110 %)", why)
        verdict, why = changed("C7", "whole_bytes_per_second", 400e6, series="shaped", panel="8x4")
        self.assertEqual(verdict, "better")
        self.assertIn("builds at most 110 MB/s with 6x3, 400 MB/s with 8x4", why)

    def test_c10_says_where_to_shape(self):
        """Unshaped push loses packets from 12 sources on with 256 KiB, and nowhere with more."""
        results = good_results("C10")
        for r in results:
            large = any(text in r["panel"] for text in (" 512 ", " 1024 ", "10 G"))
            if large or (" 256 " in r["panel"] and r["x"] < 12):
                r["switch_packets"] = 0
        verdict, why = verdict_of("C10", results, False)
        self.assertEqual(verdict, "better")
        self.assertIn("1 Gbit/s: 32 KiB: shape from 2 sources, ", why)
        self.assertIn(", 256 KiB: shape from 12 sources, 512 KiB: no shaping needed, 1024 KiB: no shaping needed; 10 Gbit/s: this "
                      "machine cannot fill such a port", why)
        # Where the kernel lacks a congestion control, its series is not needed.
        results = [r for r in results if r["series"] != "TCP push, bbr"]
        self.assertEqual(verdict_of("C10", results, False)[0], "better")
        change(results, "switch_packets", 1, series="shaped push", panel="1 Gbit/s, buffer 32 KiB")
        verdict, why = verdict_of("C10", results, False)
        self.assertEqual(verdict, "differs")
        self.assertIn("shaped push loses 0 events and 6 packets", why)

    def test_simulated_results_of_what_nobody_models_have_no_verdict(self):
        results = change(good_results("B4"), "simulated", True)
        self.assertEqual(verdict_of("B4", results), ("unknown", "the simulator models none of its points"))


if __name__ == "__main__":
    cases.main()
