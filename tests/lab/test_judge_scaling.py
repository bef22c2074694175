#!/usr/bin/env python3
"""Tests the verdicts of S1 to S9 on synthetic results, and those of simulated results of other measurements."""
import unittest

import cases
from sample import change, results_of, verdict_of

IDS = [f"S{i}" for i in range(1, 10)]
NAMES = ("simulated", "steady_share", "event_rate_hz", "plan_fits", "switch_packets", "events_lost", "events_partial",
         "latency_p99_us", "port_most_bytes")


def good(p, key):
    """Shaped push fits up to 75 nodes, and loses nothing then; late timers of 100 us cost half of the rate."""
    shaped, push = p.series.startswith("push, shaped"), p.series == "push"
    fits = shaped and (p.x <= 75 or p.measurement.id in ("S2", "S8", "S9"))
    built = {"S7": p.x < 100, "S9": p.x >= 4}.get(p.measurement.id, True)
    return {"simulated": True, "steady_share": 0.99 if built else 0.5, "event_rate_hz": p.x, "plan_fits": int(fits),
            "switch_packets": 100 if push or (shaped and not fits) else 0, "latency_p99_us": 1e5 if push else 2e3,
            "port_most_bytes": 3e6 if push else 2e5}.get(key, 0)


class Scaling(unittest.TestCase):
    def test_verdicts_follow_the_points(self):
        for identity in IDS:
            for quick in (False, True):
                verdict, why = verdict_of(identity, results_of(identity, good, NAMES, quick), quick)
                self.assertEqual(verdict, "better", (identity, why))

    def test_a_missing_point_prevents_a_verdict(self):
        for identity in IDS:
            results = results_of(identity, good, NAMES)
            del results[len(results) // 2]
            verdict, why = verdict_of(identity, results, False)
            self.assertEqual(verdict, "unknown")
            self.assertIn("points is missing", why)

    def test_a_broken_promise_differs(self):
        """Changes the figure of each shaped point whose bursts fit."""
        for identity, key, value in (("S1", "switch_packets", 1), ("S2", "events_partial", 1), ("S4", "steady_share", 0.9),
                                     ("S6", "events_lost", 1), ("S3", "port_most_bytes", 4e6), ("S7", "steady_share", 0.9),
                                     ("S8", "latency_p99_us", 5e5), ("S9", "steady_share", 0.9)):
            results = results_of(identity, good, NAMES)
            for r in results:
                if r["plan_fits"] > 0:
                    r[key] = value
            verdict, why = verdict_of(identity, results, False)
            self.assertEqual(verdict, "differs", (identity, key, why))

    def test_simulated_results_need_what_the_model_covers(self):
        """What the model leaves out is missing in no verdict on simulated results, but in that on a lab's."""
        names = (*NAMES, "built_share", "source_packets", "socket_packets")
        results = [r for r in results_of("C10", good, names, True) if not r["series"].startswith("TCP")]
        change(change(results, "built_share", 0.99), "switch_packets", 0)
        verdict, why = verdict_of("C10", results, True)
        self.assertEqual(verdict, "better", why)
        for r in results:
            del r["simulated"]
        verdict, why = verdict_of("C10", results, True)
        self.assertEqual(verdict, "unknown")
        self.assertIn("TCP push, cubic", why)


if __name__ == "__main__":
    cases.main()
