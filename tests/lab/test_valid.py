#!/usr/bin/env python3
"""Tests the bounds of a valid point, how often a disturbed one is made again, and what limited a point."""
import itertools
import unittest

import cases
from evb.lab import limits, valid

# Just at all bounds.
CALM = {"watched_seconds": 1, "stolen_share": valid.STOLEN_SHARE_MAX, "others_share": valid.OTHERS_SHARE_MAX,
        "waiting_share": valid.WAITING_SHARE_EQUAL_MAX, "wait_mean_us": valid.WAIT_MEAN_US,
        "timer_late_p99_us": valid.LATE_P99_US, "timer_late_max_us": valid.LATE_MAX_US}
STOLEN = "the hypervisor took 3.1 % of the processor time, more than 2 %"
LATE = "a timer was 80.0 ms late, more than 40 ms"
LOST = "the testbed itself lost {}, which real links and ports would have carried"


def reason(raised=True, **changes):
    figures = CALM | changes
    valid.describe(figures, raised)
    return valid.reason(figures)


class Disturbance(unittest.TestCase):
    def test_each_bound_counts(self):
        self.assertIsNone(reason())
        self.assertEqual(reason(stolen_share=0.031), STOLEN)
        self.assertEqual(reason(stolen_share=0.031, timer_late_max_us=80000), f"{STOLEN}; {LATE}")
        self.assertEqual(reason(stolen_share=0, timer_late_max_us=80000), LATE)
        self.assertEqual(reason(timer_late_p99_us=18000), "1 % of the timers were 18.0 ms late or more, more than 15 ms")

    def test_only_contested_time_counts(self):
        """Others disturb only if they run while the point's processes wait, and wait for them."""
        self.assertIsNone(reason(others_share=0.9))
        waiting = {"waiting_share": 3, "wait_mean_us": 9000}
        self.assertIsNone(reason(**waiting))
        others = "other processes used 45 % of the processors while the point's waited "
        self.assertEqual(reason(others_share=0.45, **waiting), f"{others}long for their turns")
        # Many short waits are those for each other, unless others have the same priority.
        short = {"others_share": 0.45, "waiting_share": 3, "wait_mean_us": 300}
        self.assertIsNone(reason(**short))
        self.assertEqual(reason(raised=False, **short), f"{others}at equal priority")
        self.assertIsNone(reason(raised=False, **short | {"waiting_share": 0.2}))

    def test_packets_that_the_testbed_lost_disturb(self):
        for lost, late_us, text in ((0, 0, None), (1, 0, LOST.format("1 packet")),
                                    (7, 80000, f"{LATE}; {LOST.format('7 packets')}")):
            self.assertEqual(reason(testbed_lost_packets=lost, timer_late_max_us=late_us), text)
            # Whether or not the machine was watched.
            figures = {"testbed_lost_packets": lost}
            valid.describe(figures, True)
            self.assertEqual(valid.reason(figures) is not None, lost > 0)

    def test_unknown_figures_are_null_and_no_reason(self):
        """Other machines are not watched, and have no testbed."""
        figures = {"testbed_lost_packets": None}
        valid.describe(figures, True)
        self.assertEqual(figures, dict.fromkeys((*valid.SHARES, "testbed_lost_packets", "disturbed")))
        unknown = dict.fromkeys(valid.SHARES)
        self.assertIsNone(reason(**unknown))
        # One known share alone does not show that others took time from the point.
        self.assertIsNone(reason(**unknown | {"others_share": 1}))
        self.assertIsNotNone(reason(**unknown | {"stolen_share": 0.5}))
        self.assertEqual(reason(**unknown | {"watched_seconds": 0}),
                         "the lab itself was not scheduled in time to watch the machine")
        self.assertIsNone(reason(**unknown | {"watched_seconds": None}))

    def test_old_results_are_valid(self):
        for result in ({"series": "push"}, {"disturbed": True}, {"disturbed": None}):
            self.assertIsNone(valid.reason(result))


class Repeats(unittest.TestCase):
    def make(self, disturbed, stop_after=99):
        """The first `disturbed` attempts are so. Returns the number of attempts, that of repeats, and the reason."""
        attempts = itertools.count(1)

        def run():
            self.attempt = next(attempts)
            return {"disturbed": "by the test" if self.attempt <= disturbed else None}

        self.attempt = 0
        figures = valid.make(run, valid.REPEATS_MAX, lambda: self.attempt >= stop_after)
        return self.attempt, figures["repeats"], valid.reason(figures)

    def test_a_disturbed_point_is_made_again(self):
        self.assertEqual(valid.REPEATS_MAX, 3)
        self.assertEqual(self.make(0), (1, 0, None))
        self.assertEqual(self.make(1), (2, 1, None))
        self.assertEqual(self.make(3), (4, 3, None))
        # The last one is kept, and marked.
        self.assertEqual(self.make(9), (4, 3, "by the test"))
        self.assertEqual(self.make(9, stop_after=2), (2, 1, "by the test"))

    def test_a_point_that_fails_is_not_made_again(self):
        def fail():
            self.attempt += 1
            raise RuntimeError

        self.attempt = 0
        with self.assertRaises(RuntimeError):
            valid.make(fail, valid.REPEATS_MAX, lambda: False)
        self.assertEqual(self.attempt, 1)

    def test_the_median_counts_with_all_losses(self):
        for ys in ((1, 2, 3), (3, 1, 2), (2, 3, 1), (2, 2, 1), (2, 2, 2), (2, 1, 2)):
            some = [{"built_share": y, "switch_packets": lost, "corrupt": lost, "port_share": y / 2}
                    for y, lost in zip(ys, (0, 7, 1))]
            self.assertEqual(valid.median(some, "built_share"),
                             {"built_share": 2, "port_share": 1, "switch_packets": 7, "corrupt": 7, "samples": 3})
            # The results themselves stay as they are.
            self.assertEqual(some[0], {"built_share": ys[0], "switch_packets": 0, "corrupt": 0, "port_share": ys[0] / 2})

    def test_what_limited_a_point(self):
        settings = "ros.count=6 network.link-rate=1Gbit ros.fragment-size=1408"
        # 100 triggers are 600 packets.
        short = {"settings": settings, "triggers": 100, "offered_share": 1.5, "port_share": 0.5, "built_share": 0.5, "waiting_share": 0.1,
                 "switch_packets": 0, "qos_rate_bps": None}
        for changes, limit in (
                ({}, None),
                ({"port_share": 0.95, "waiting_share": 3}, "the port"),
                ({"offered_share": 0.4, "built_share": 0.95, "waiting_share": 3}, "the load"),
                ({"waiting_share": 0.5, "switch_packets": 30}, "the processors"),
                ({"waiting_share": 0.5, "switch_packets": 31}, "the port"),
                ({"waiting_share": 0.4, "switch_packets": 1}, "the port"),
                ({"waiting_share": None, "switch_packets": 1}, None),
                ({"waiting_share": None, "switch_packets": 1, "simulated": True}, "the port"),
                ({"qos_rate_bps": 158e6}, "the shaped rate"),
                ({"qos_rate_bps": 159e6}, None),
                ({"port_share": None}, None)):
            found = limits.limit_of(short | changes)
            self.assertEqual(found.value if found else None, limit, changes)


if __name__ == "__main__":
    cases.main()
