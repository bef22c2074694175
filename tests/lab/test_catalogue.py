#!/usr/bin/env python3
"""Tests the catalogue, the points that its measurements expand to, and what these need."""
import dataclasses
import pathlib
import re
import unittest

import cases
from evb.lab import vary
from evb.lab.catalogue import BY_ID, MEASUREMENTS, UnknownMeasurement, plan, select
from evb.lab.measurement import Point, Settings, Simulation, Testbed, points_of
from evb.lab.needs import missing, needs_of


def testbed(ros, sfi, buffer_kib=0):
    return Testbed("lab.conf", (), "lab", ros, sfi, 0, 1500, buffer_kib * 1024)


def find(points, panel, series, x):
    return next(p for p in points if (p.panel, p.series, p.x) == (panel, series, x))


class Points(unittest.TestCase):
    def test_every_measurement_has_points(self):
        self.assertEqual(len(BY_ID), len(MEASUREMENTS))
        for m in MEASUREMENTS:
            every, few = points_of(m), points_of(m, quick=True)
            self.assertTrue(0 < len(few) <= len(every), m.id)
            self.assertEqual(len({(p.panel, p.series, p.x) for p in every}), len(every), m.id)
            for p in every:
                # D9 is about a minute.
                self.assertTrue(0 < p.seconds < (130 if m.id == "D9" else 10), p)
                self.assertNotIn(" load=", p.settings)
        # A --quick run of all measurements takes less than 7 minutes.
        self.assertLess(sum(p.seconds for m in select(["all"]) if not m.virtual_only for p in points_of(m, quick=True)), 420)

    def test_c6_has_every_combination(self):
        """3 buffers, 5 loads, 6 sizes and 7 series."""
        points = points_of(BY_ID["C6"])
        self.assertEqual(len(points), 3 * 5 * 6 * 7)
        for buffer in (128, 256, 512):
            for load in (10, 50, 90, 110, 150):
                for x in (256, 1024, 4096, 14336, 32768, 65536):
                    panel, limit = f"buffer {buffer} KiB, offered {load} %", vary.payload_limit(1e9, 1500, x)
                    p = find(points, panel, "push, shaped", x)
                    self.assertEqual(p.number("network.switch-buffer"), buffer)
                    self.assertIn(f"={buffer}KiB ", p.settings)
                    # In mHz.
                    self.assertLess(abs(p.number("trigger.rate") * 6 * x - 1e3 * limit * load / 100), 6 * x)
                    self.assertEqual(p.number("scenario.duration"), 3 if (buffer, load) == (256, 150) else 1)
                    find(points, panel, "pull, auto", x)
        few = points_of(BY_ID["C6"], quick=True)
        find(few, "buffer 256 KiB, offered 50 %", "push, shaped", 1024)
        find(few, "buffer 128 KiB, offered 150 %", "pull, 4", 65536)
        self.assertEqual({p.number("scenario.duration") for p in few}, {1})

    def test_the_last_setting_wins(self):
        settings = Settings("rate=5 xrate=7 rate=9e6 sfi.count=3 a=64KiB b=0.1:5ms c=max")
        for key, value in (("rate", 9e6), ("sfi.count", 3), ("count", 4), ("a", 64), ("b", 0.1), ("c", 0)):
            self.assertEqual(settings.number(key, 4), value)
        self.assertEqual(settings.text("b"), "0.1:5ms")
        self.assertEqual(settings.without("rate"), " xrate=7  sfi.count=3 a=64KiB b=0.1:5ms c=max")

    def test_commands_have_the_present_keys(self):
        """The text of the settings has the names of stored results."""
        known, section = set(), ""
        for line in (pathlib.Path(__file__).parents[1] / "golden/keys.txt").read_text().splitlines():
            section = line[1:-1] if line.startswith("[") else section
            known.add(f"{section}.{line}")
        for m in MEASUREMENTS:
            for p in points_of(m):
                self.assertLessEqual(set(p.settings.scenario_keys()), known, p)
        keys = Settings("a=1 scenario.transport=tcp network.tcp-congestion=bbr ros.stagger=no level2.window=9").scenario_keys()
        self.assertEqual(keys, {"scenario.transport": "tcp:bbr", "test.pacing": "together"})

    def test_a_model_is_part_of_the_settings(self):
        for p in points_of(BY_ID["S7"], Simulation(3, "processors=2")):
            self.assertTrue(p.settings.endswith(" processors=2"), p.settings)

    def test_small_fragments_lower_the_limit(self):
        """Payload is at most 1448 of the 1514 bytes of each frame."""
        limits = [vary.payload_limit(1e9, 1500, 64 * 2**k) for k in range(14)]
        self.assertEqual(limits, sorted(limits))
        self.assertTrue(118e6 < limits[-1] < 125e6 * 1448 / 1514)

    def test_a_testbed_has_its_own_rate(self):
        bed = dataclasses.replace(testbed(6, 1), link_rate_bps=10e9, mtu_bytes=9000)
        p = points_of(BY_ID["C4"], bed)[0]
        self.assertEqual((p.link_bps, p.mtu_bytes), (10e9, 9000))
        self.assertGreater(p.number("trigger.rate"), 8 * points_of(BY_ID["C4"])[0].number("trigger.rate"))


class Selection(unittest.TestCase):
    def test_words_select(self):
        self.assertEqual(select(["all"]), [m for m in MEASUREMENTS if m.id[0] != "P"])
        self.assertEqual([m.id for m in select(["P"])], [f"P{i}" for i in range(1, 10)])
        self.assertEqual([m.id for m in select(["B", "A2"])], ["A2", "B1", "B2", "B3", "B4", "B5", "B6"])
        with self.assertRaisesRegex(UnknownMeasurement, '"Z9"; expected all, a letter, or A1 A2 '):
            select(["A2", "Z9"])

    def test_what_cannot_be_made_is_reported_once(self):
        said = []
        points, skipped = plan([BY_ID["C5"], BY_ID["C1"], BY_ID["S1"]], {"C"}, testbed(3, 1), False, said.append)
        self.assertEqual({p.measurement.id for p in points}, {"C1"})
        # S1 was not named, and exists in the simulator.
        self.assertEqual(skipped, 28)
        self.assertEqual(said[0], "28 of 28 points of C5 are skipped: C5 needs 6 ROSs, the scenario has 3")
        self.assertEqual(plan([BY_ID["S8"]], {"S8"}, None, True, said.append), ([], 6))
        self.assertTrue(said[-1].endswith("S8 exists in the simulator only; add --sim"), said)
        points, skipped = plan([BY_ID["C10"], BY_ID["A1"]], {"C10"}, Simulation(), True, said.append)
        self.assertEqual((len(points), skipped), (6, 0))
        self.assertEqual(plan([BY_ID["A1"]], {"A1"}, Simulation(), True, said.append), ([], 3))


class Needs(unittest.TestCase):
    def test_missing_nodes_are_named(self):
        for identity, lack in (("C5", "needs 6 ROSs, the scenario has 3"), ("A1", "needs 3 SFIs, the scenario has 1"),
                               ("B3", "needs network.mtu = 9000, the scenario has 1500"), ("C1", None),
                               ("C11", "needs a stand-in farm, which other machines lack"),
                               ("D1", "measures this machine; leave out --config"),
                               ("E1", "measures this machine; leave out --config")):
            points = points_of(BY_ID[identity], testbed(3, 1))
            # The last series has the most needs, except in C11.
            self.assertEqual(missing(points[0 if identity == "C11" else -1]), lack)
        self.assertEqual(missing(points_of(BY_ID["C6"], testbed(6, 1, 256))[0]),
                         "needs network.switch-buffer = 128KiB, the scenario has 256 KiB")

    def test_a_missing_congestion_control_is_named(self):
        """The kernel has reno in any case, whether or not it lists it."""
        def point(name):
            return Point(BY_ID["C10"], "UDP push", 4, Settings(f"ros.count=4 {name}"))

        for key in ("network.tcp-congestion=", "scenario.transport=tcp:"):
            self.assertIsNone(missing(point(f"{key}reno")))
            self.assertEqual(missing(point(f"{key}nosuchone")), "needs the TCP congestion control nosuchone, which the kernel lacks")

    def test_values_that_are_not_modelled_are_named(self):
        def lack(text):
            return missing(Point(BY_ID["C10"], "UDP push", 4, Settings(text), bed=Simulation()))

        self.assertIsNone(lack("ros.stagger=no"))
        self.assertIn("tcp is not modelled", lack("scenario.transport=tcp:reno"))
        self.assertIn("pacing is not modelled", lack("test.pacing=100Mbit"))

    def test_the_named_nodes_are_enough_and_not_too_many(self):
        """How many points a scenario with so many nodes can make, if its links are as each needs."""
        def possible(m, ros, sfi):
            lacks = [missing(p) for p in points_of(m, testbed(ros, sfi))]
            return sum(1 for lack in lacks if not lack or "network." in lack)

        for m in MEASUREMENTS:
            needs = needs_of(m)
            if not needs.testbed:
                self.assertEqual((needs.ros, needs.sfi), ((0, 0), (0, 0)))
                continue
            (ros, most_ros), (sfi, most_sfi), n = needs.ros, needs.sfi, len(points_of(m))
            self.assertEqual(possible(m, most_ros, most_sfi), n)
            self.assertLess(possible(m, most_ros - 1, most_sfi), n)
            self.assertLess(possible(m, most_ros, most_sfi - 1), n)
            self.assertGreater(possible(m, ros, sfi), 0)
            self.assertEqual(possible(m, ros - 1, most_sfi), 0)

    def test_nodes_and_features_are_named(self):
        for identity, text in (
                ("A1", "1 DFM, 1 ROS, 3 SFIs"),
                ("A7", "1 DFM, 1 ROS, 1 SFI; packet capture, shaping"),
                ("B1", "this machine"),
                ("B3", "1 DFM, 1 ROS, 1 SFI; MTU 1500, 9000"),
                ("C6", "1 DFM, 6 ROSs, 1 SFI; shaping, port buffer 128, 256, 512 KiB"),
                ("C7", "1 DFM, 6 to 8 ROSs, 3 to 4 SFIs; shaping"),
                ("C10", "1 DFM, 2 to 24 ROSs, 1 SFI; TCP congestion control bbr (optional), shaping, link rate 1, 10 Gbit/s, port "
                        "buffer 32, 64, 128, 256, 512, 1024 KiB"),
                ("C11", "this machine; shaping, a stand-in farm"),
                ("D4", "this machine; two processors"),
                ("S1", "the simulator (--sim)"),
                ("D8", "this machine; TUN devices"),
                ("D9", "this machine; 15.1 GB in /var/tmp"),
                ("P1", "this machine; iperf3"),
                ("P3", "this machine; another build of evb"),
                ("P5", "this machine; iperf3, spead2 (optional)"),
                ("P6", "this machine; TUN devices, 1.8 GB in /var/tmp"),
                ("P9", "this machine; shaping"),
                ("E8", "this machine; 2.0 GB in /var/tmp")):
            self.assertEqual(str(needs_of(BY_ID[identity])), text)


class Document(unittest.TestCase):
    def test_the_copied_measurement_is_one(self):
        """The example of docs/results.md is a measurement of the catalogue's kind."""
        text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
        [example] = re.findall(r"```python\n(.*?)```", text, re.S)
        names = {}
        exec(example, names)  # pylint: disable=exec-used
        [m] = names["MEASUREMENTS"]
        self.assertNotIn(m.id, BY_ID)
        self.assertEqual(len(points_of(m)), len(m.x) * len(m.series))
        self.assertTrue(needs_of(m).testbed)


if __name__ == "__main__":
    cases.main()
