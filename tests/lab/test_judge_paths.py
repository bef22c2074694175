#!/usr/bin/env python3
"""Tests the verdicts on data paths, publication E, on synthetic results."""
import unittest

import cases
from sample import change, results_of, verdict_of

COST, CALLS = "processor_seconds_per_gb", "calls_per_packet"
NAMES = (COST, CALLS, "corrupt")
# By row: system calls per packet as published or, for those that had one call for a whole file, few; and the verdict with these
# calls, which today's forms halve.
ROWS = {1: (2, "agrees"), 2: (1, "agrees"), 3: (0.001, "agrees"), 4: (2, "agrees"), 5: (2, "agrees"), 6: (4, "better"),
        7: (1, "better"), 8: (4, "better"), 9: (2.1, "better"), 10: (1.1, "agrees"), 11: (0.15, "agrees"), 12: (3, "differs"),
        13: (0.05, "agrees")}
REFUSED = "io_uring_setup: Operation not permitted"


def cost_of_row(row):
    """At these costs all conclusions hold."""
    return 1 if row == 1 else 0.55 if row == 3 or row > 8 else 0.75


def good(p, key):
    row = int(p.measurement.id[1:])
    today = any(name in p.series for name in ("MSG_MORE", "sendmmsg"))
    if key == COST:
        return cost_of_row(p.x) if row == 14 else 0.5
    if key == CALLS:
        return 1.0 if row == 14 else ROWS[row][0] * (0.5 if today else 1)
    return 0.0


class Paths(unittest.TestCase):
    def test_a_row_is_judged_by_its_calls(self):
        for row, (_, verdict) in ROWS.items():
            for quick in (False, True):
                results = results_of(f"E{row}", good, NAMES, quick)
                self.assertEqual(verdict_of(f"E{row}", results)[0], verdict, row)
                self.assertEqual(verdict_of(f"E{row}", change(results, COST, 0))[0], "differs", row)
                self.assertEqual(verdict_of(f"E{row}", change(results, CALLS, None))[0], "unknown", row)

    def test_a_refused_form_may_be_missing(self):
        """A row is judged without a form that the kernel refuses, and not without the others."""
        results = results_of("E11", good, NAMES)
        for name in NAMES:
            change(results, name, None, series="UDP, io_uring")
        self.assertEqual(verdict_of("E11", results)[0], "unknown")
        change(results, "refused", REFUSED, series="UDP, io_uring")
        self.assertEqual(verdict_of("E11", results)[0], "agrees")
        results = change(results_of("E13", good, NAMES), COST, None, series="UDP, io_uring")
        verdict, why = verdict_of("E13", change(results, "refused", REFUSED, series="UDP, io_uring"))
        self.assertEqual(verdict, "unknown")
        self.assertIn(f"(refused: {REFUSED})", why)

    def test_wrong_bytes_spoil_a_row(self):
        verdict, why = verdict_of("E4", change(results_of("E4", good, NAMES), "corrupt", 1, series="TCP", x=8192))
        self.assertEqual(verdict, "differs")
        self.assertIn("arrived wrong", why)

    def test_conclusions_are_named(self):
        """Each conclusion is judged, and all must hold."""
        for quick in (False, True):
            verdict, why = verdict_of("E14", results_of("E14", good, NAMES, quick))
            self.assertEqual(verdict, "agrees")
            self.assertIn("download saves 45 % (published: 40 %), which holds", why)
        for row, cost, text in ((1, 0.58, "download saves 5 % (published: 40 %), which no longer holds"),
                                (8, 0.56, "the header costs sendfile 2 % (published: 29 %), which no longer holds"),
                                (4, 0.50, "gains on the best of E4 to E8 -10 % (published: 25 %), which no longer holds")):
            verdict, why = verdict_of("E14", change(results_of("E14", good, NAMES), COST, cost, x=row))
            self.assertEqual(verdict, "differs")
            self.assertIn(text, why)


if __name__ == "__main__":
    cases.main()
