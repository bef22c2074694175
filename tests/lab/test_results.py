#!/usr/bin/env python3
"""Tests the results file: which lines are results, which stored points count as made, and what a run appends."""
import contextlib
import dataclasses
import io
import json
import math
import pathlib
import random
import tempfile
import unittest

import cases
from evb.lab import results
from evb.lab.catalogue import BY_ID
from evb.lab.measurement import Simulation, Testbed, points_of

HERE = results.Machine("1.0", "6.1", "a processor", 2)
BED = Testbed("lab.conf", (), "lab", 6, 1, 1e9, 1500, 0)
POINT = points_of(BY_ID["B1"])[0]
RESULT = results.describe(POINT, {"mbyte_per_s": 5.0}, HERE)


def read(text):
    """The results in a file, and what was said about it."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where, contextlib.redirect_stderr(said):
        path = pathlib.Path(where) / "results"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return results.read([path]), said.getvalue().replace(str(path), "results")


class Reading(unittest.TestCase):
    def test_other_lines_are_named_and_skipped(self):
        strange = ["", "7", "[]", "{}", "null", "\x00\x00", "{" * 5000, "[" * 200000, "x" * 200000, '{"id": "B1"}',
                   json.dumps(RESULT | {"x": math.nan}), json.dumps(RESULT | {"x": "10"}), json.dumps(RESULT | {"settings": None}), json.dumps(RESULT | {"panel": 5}),
                   json.dumps(RESULT | {"processors": True}), json.dumps({k: v for k, v in RESULT.items() if k != "processor"})]
        for line in strange:
            self.assertEqual(read(f"{line}\n{json.dumps(RESULT)}\n"), ([RESULT], "results:1: not a result; skipped\n"))
        found, said = read("\n".join([*strange, json.dumps(RESULT)]))
        self.assertEqual(found, [RESULT])
        self.assertEqual(said.count("not a result; skipped"), results.SPOILT_NAMED_MAX)
        self.assertIn(f"results: {len(strange)} lines are not results\n", said)

    def test_any_bytes_are_read(self):
        r = random.Random(7)
        line = json.dumps(RESULT).encode()
        for _ in range(300):
            spoilt = bytearray(line)
            for _ in range(r.randint(1, 5)):
                spoilt[r.randrange(len(spoilt))] = r.randrange(256)
            for result in read(bytes(spoilt[:r.randint(0, len(spoilt))]) + b"\n" + line)[0]:
                self.assertTrue(results.is_result(result))

    def test_another_file_is_rejected(self):
        with self.assertRaisesRegex(results.NotReadable, "not a results file"):
            read("no\n" * (results.SPOILT_MAX + 1))
        for path, why in (("/nonexistent", "No such file"), ("/tmp", "Is a directory")):
            with self.assertRaisesRegex(results.NotReadable, why):
                results.read([path])

    def test_another_catalogue_is_skipped(self):
        panel = RESULT | {"id": "C7", "whole_bytes_per_second": 1e8}
        others = [RESULT | {"id": "Z1"}, {k: v for k, v in RESULT.items() if k != "mbyte_per_s"}, panel, panel | {"panel": "7x5"},
                  RESULT | {"panel": "6x3"}]
        kept = [RESULT, RESULT | {"mbyte_per_s": None}, panel | {"panel": "6x3"}]
        found, said = read("".join(json.dumps(r) + "\n" for r in others + kept))
        self.assertEqual(found, kept)
        self.assertEqual(said, "results: skipped 5 points of another version of the catalogue\n")


class Reuse(unittest.TestCase):
    def test_machine_kernel_and_version_must_agree(self):
        self.assertTrue(HERE.made(RESULT))
        for field in ("version", "kernel", "processor"):
            self.assertFalse(dataclasses.replace(HERE, **{field: "another"}).made(RESULT), field)
        self.assertFalse(dataclasses.replace(HERE, processors=4).made(RESULT))

    def test_a_simulation_is_the_same_on_every_machine(self):
        point = points_of(BY_ID["C1"], Simulation(3))[0]
        result = results.describe(point, {"whole_events_per_second": 1.0}, HERE)
        self.assertTrue({"kernel", "time", "processor"}.isdisjoint(result))
        self.assertEqual((result["simulated"], result["seed"]), (True, 3))
        self.assertTrue(results.is_result(result))
        self.assertTrue(results.Machine("1.0", "other", "other", 9).made(result))
        self.assertFalse(results.Machine("1.1").made(result))

    def test_settings_and_place_must_agree(self):
        made = results.Made(None)
        made.add(RESULT)
        self.assertEqual(made.newest(POINT), RESULT)
        for point in points_of(BY_ID["B1"])[1:] + points_of(BY_ID["B1"], quick=True):
            self.assertIsNone(made.newest(point))
        for other in (BED, Simulation(1)):
            elsewhere = results.Made(other)
            elsewhere.add(RESULT)
            self.assertIsNone(elsewhere.newest(dataclasses.replace(POINT, bed=other)))
        self.assertTrue(results.is_of(RESULT | {"testbed": "lab"}, BED))
        self.assertFalse(results.is_of(RESULT | {"testbed": "lab"}, None))
        self.assertFalse(results.is_of(RESULT | {"simulated": True, "seed": 2}, Simulation(1)))

    def test_a_disturbed_result_is_not_made(self):
        made = results.Made(None)
        self.assertFalse(made.is_disturbed(POINT))
        made.add(RESULT | {"disturbed": "by the test"})
        self.assertIsNone(made.newest(POINT))
        self.assertTrue(made.is_disturbed(POINT))
        made.add(RESULT)
        self.assertEqual(made.newest(POINT), RESULT)
        self.assertFalse(made.is_disturbed(POINT))


class Appending(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="evb-test-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "results"

    def open(self):
        file = results.File(self.path)
        self.addCleanup(file.close)
        return file

    def test_a_line_is_a_result(self):
        figures = {"mbyte_per_s": 1 / 3, "lost": math.nan, "most": math.inf, "panel": "of a copy", "list": [0.1 + 0.2, {"a": math.nan}]}
        self.open().append(results.describe(POINT, figures, HERE))
        [result], said = read(self.path.read_bytes())
        self.assertEqual(said, "")
        self.assertEqual({key: result[key] for key in ("mbyte_per_s", "lost", "most", "list", "x", "id", "settings")},
                         {"mbyte_per_s": 0.333333333, "lost": None, "most": None, "list": [0.3, {"a": None}], "x": 64.0, "id": "B1",
                          "settings": POINT.settings})
        self.assertNotIn("panel", result)
        self.assertIn('"x":64.0,', self.path.read_text(encoding="utf-8"))

    def test_a_truncated_line_is_ended(self):
        self.path.write_text('{"id":', encoding="utf-8")
        self.open().append(RESULT)
        self.assertEqual(self.path.read_text(encoding="utf-8").splitlines()[0], '{"id":')
        self.assertEqual(json.loads(self.path.read_text(encoding="utf-8").splitlines()[1]), RESULT)

    def test_a_file_that_is_gone_is_not_written(self):
        file = self.open()
        self.path.unlink()
        with self.assertRaisesRegex(results.NotWritten, "removed or replaced during the run"):
            file.append(RESULT)

    def test_two_runs_do_not_share_a_file(self):
        self.open()
        with self.assertRaisesRegex(results.Busy, "another evb lab run writes to this file"):
            self.open()

    def test_a_folder_is_no_file(self):
        with self.assertRaisesRegex(results.NotReadable, "Is a directory"):
            results.File(self.path.parent)


if __name__ == "__main__":
    cases.main()
