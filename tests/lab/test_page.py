#!/usr/bin/env python3
"""Tests the report of the lab, without drawing: numbers, the deviation of simulated points, and a system without matplotlib."""
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import cases
from evb.lab import page, plot_simulated, report
from evb.lab.catalogue import BY_ID
from evb.lab.measurement import points_of

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Numbers(unittest.TestCase):
    def test_no_zero_has_a_sign(self):
        for value, text in ((-0.0, "0"), (-0.4, "0"), (-1e-9, "0"), (0, "0"), (-1.2, "-1"), (4832.0, "4,832")):
            self.assertEqual(page.number_text(value), text)
        self.assertEqual(page.loss_text([], 3), "unknown")
        self.assertEqual(page.loss_text([-0.3, -2], 3), "0, unknown at 1 of 3")

    def test_a_logarithmic_axis_has_no_zero(self):
        for values, wide in (([0.02, 36], True), ([0.02, 36, 0], False), ([0.02, math.nan, 36], True), ([math.nan], False),
                             ([1, 36], False)):
            self.assertEqual(page.is_wide(values), wide, values)

    def test_calls_of_many_packets_are_read(self):
        for text, number in (("1+4n", 4), ("2n", 2), ("n", 1), ("1+n", 1), ("1", 0), ("0", 0)):
            self.assertEqual(page.per_packet(text), number, text)


class Report(unittest.TestCase):
    def described(self, results):
        return report.describe(BY_ID["C1"], results)

    def result(self, p, **more):
        return {"id": "C1", "series": p.series, "x": p.x, "settings": str(p.settings), "version": "1", "waiting_share": 0.1} | more

    def test_missing_points_are_planned(self):
        m = self.described([self.result(p, whole_events_per_second=1e4) for p in points_of(BY_ID["C1"])[:3]])
        self.assertEqual((len(m["points"]), len(m["planned"]), m["verdict"]), (3, 12, "unknown"))

    def test_simulated_points_are_compared_with_those_of_the_lab(self):
        points = points_of(BY_ID["C1"], quick=True)
        lab = [self.result(p, whole_events_per_second=1e4) for p in points]
        sim = [self.result(p, whole_events_per_second=1.05e4, simulated=True, seed=1) for p in points]
        m = self.described([*lab, *sim])
        # The verdict is about the lab.
        self.assertEqual(m["why"], self.described(lab)["why"])
        plot_simulated.split(m)
        self.assertEqual(plot_simulated.summary(m), "At 4 points where the lab is not limited by its processors, simulator and lab "
                                                    "differ by at most 5.0 %.")
        self.assertEqual(plot_simulated.table(m).count("<td>+5.0</td>"), 4)

    def test_points_say_what_limited_them(self):
        points, full = points_of(BY_ID["C1"], quick=True), {"port_share": 1, "built_share": 1, "offered_share": 2}
        m = self.described([self.result(p, **full) for p in points[:3]] + [self.result(points[3], **{**full, "port_share": 0.5, "built_share": 0.5, "waiting_share": 2})])
        self.assertEqual([p["limited_by"] for p in m["points"]], ["the port"] * 3 + ["the processors"])
        text = page.limits_text(m)
        self.assertIn("<p>Points by what limited them: the port: 3; the processors: 1.</p>", text)
        self.assertIn(f"<p>{points[3].series} at {points[3].x:g}</p>", text)

    def test_disturbed_points_are_listed(self):
        points = points_of(BY_ID["B1"], quick=True)
        here = {"time": "2026-11-30T12:00:00Z", "processor": "x", "processors": 2, "kernel": "6.12"}
        results = [self.result(p, id="B1", **here, mbyte_per_s=1e4, timer_late_max_us=1e4 * i, repeats=3,
                               disturbed="a timer was <late>" if i > 0 else None) for i, p in enumerate(points)]
        text = page.page(report.describe_all(results, "1"), {"B1": ""})
        self.assertIn("validity: 3 points, repeated: 3, disturbed and left out: 2<", text)
        self.assertIn("<tr><td>timer lateness, most</td><td>10.0 ms</td><td>20.0 ms</td></tr>", text)
        self.assertEqual(re.findall("<li>.*?</li>", text), [f"<li>{p.series} at {p.x:g}: a timer was &lt;late&gt;</li>" for p in points[1:]])

    def test_without_matplotlib_nothing_is_written(self):
        with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
            (pathlib.Path(where) / "matplotlib.py").write_text("raise ImportError\n", encoding="utf-8")
            (pathlib.Path(where) / "results").touch()
            program = pathlib.Path(where) / "evb"
            program.write_text("#!/bin/sh\necho evb 1.0\n", encoding="utf-8")
            program.chmod(0o755)
            done = subprocess.run([sys.executable, "-B", "-m", "evb.lab", "report", f"{where}/results", "--output", f"{where}/out"],
                                  env=os.environ | {"PYTHONPATH": f"{where}:{ROOT}/python", "EVB_PROGRAM": str(program)},
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 77, done)
            self.assertIn("matplotlib is not installed; install it with: apt-get install python3-matplotlib", done.stderr)
            self.assertFalse((pathlib.Path(where) / "out").exists())


if __name__ == "__main__":
    cases.main()
