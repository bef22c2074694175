#!/usr/bin/env python3
"""Tests the figures of points, computed from synthetic reports."""
import math
import types
import unittest

import cases
from evb.lab import event_figures, flow_figures, machines, stream_figures
from evb.lab.measurement import ECHO, TCP, UDP, Settings
from evb.lab.quantity import parse

LINK_BPS, FRAGMENT_BYTES, SOURCES = 1e9, 5000, 6
DEFAULTS = {"network": {"link-rate": "1Gbit", "mtu": "1500"}}


def offer(settings="", **changes):
    """2 s of triggers at 1 kHz."""
    text = f"scenario.duration=2s trigger.rate=1kHz ros.count={SOURCES} sfi.count=1 ros.fragment-size={FRAGMENT_BYTES} {settings}"
    point = types.SimpleNamespace(text=Settings(text).text, bed=None)
    made = event_figures.Offer(point, DEFAULTS)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def building(offered, triggers, complete, building_s):
    """The figures of a run with `complete` events, the last one `building_s` seconds after the first trigger."""
    report = {"triggers": triggers, "events_complete": complete, "payload_bytes": complete * SOURCES * FRAGMENT_BYTES, "building_seconds": building_s}
    return event_figures.building(report, offered)


class Events(unittest.TestCase):
    def test_an_early_stop_lowers_the_rate(self):
        """10 events in the first 10 ms of 2 s, and none afterwards, are 5 events/s."""
        figures = building(offer(), 100, 10, 0.01)
        self.assertEqual((figures["whole_events_per_second"], figures["whole_bytes_per_second"]), (5, 5 * SOURCES * FRAGMENT_BYTES))
        self.assertEqual(building(offer(), 100, 1, None)["whole_events_per_second"], 0.5)

    def test_a_long_drain_lowers_the_rate(self):
        """Events that complete after the last trigger extend the time."""
        self.assertEqual(building(offer(), 2000, 2000, 4)["whole_events_per_second"], 500)

    def test_both_end_triggers_count_one_period(self):
        """Five triggers at 2 Hz, from 0 s to 2 s, represent 2.5 s of load."""
        figures = building(offer("trigger.rate=2000mHz"), 5, 5, 2)
        self.assertEqual(figures["whole_events_per_second"], 2)
        self.assertAlmostEqual(figures["built_share"], 1)

    def test_shares_refer_to_port_and_offered_load(self):
        limit, offered = event_figures.payload_limit(LINK_BPS, 1500, FRAGMENT_BYTES), 1000 * SOURCES * FRAGMENT_BYTES
        figures = building(offer(), 2000, 1000, 1)
        self.assertAlmostEqual(figures["offered_share"], offered / limit)
        self.assertAlmostEqual(figures["port_share"], 0.5 * offered / limit)
        self.assertAlmostEqual(figures["built_share"], 0.5)
        # Ten times the load exceeds the port's capacity. Two builders have two ports.
        figures = building(offer("trigger.rate=10kHz"), 20000, 1000, 1)
        self.assertGreater(figures["offered_share"], 2)
        self.assertAlmostEqual(figures["built_share"], 500 * SOURCES * FRAGMENT_BYTES / limit)
        self.assertAlmostEqual(building(offer("trigger.rate=10kHz sfi.count=2"), 20000, 1000, 1)["port_share"],
                               500 * SOURCES * FRAGMENT_BYTES / (2 * limit))

    def test_the_limit_follows_from_full_datagrams(self):
        """docs/protocol.md states how much a full datagram carries."""
        self.assertAlmostEqual(event_figures.payload_limit(LINK_BPS, 1500, 14 << 10), 1440 * LINK_BPS / 8 / 1514, places=0)
        self.assertAlmostEqual(event_figures.payload_limit(LINK_BPS, 1500, 256), 1408 * LINK_BPS / 8 / 1514, places=0)

    def test_unlimited_links_and_rates_give_null(self):
        figures = building(offer("network.link-rate=unlimited"), 2000, 2000, 2)
        self.assertEqual([figures[name] for name in ("port_share", "offered_share", "built_share")], [None] * 3)
        self.assertEqual(figures["whole_events_per_second"], 1000)
        figures = building(offer("trigger.rate=max"), 2000, 2000, 2)
        self.assertIsNone(figures["offered_share"])
        self.assertEqual(figures["built_share"], figures["port_share"])

    def test_quantities_have_units(self):
        self.assertEqual([parse(text) for text in ("1Gbit", "64KiB", "500mHz", "2s", "1500", "max")],
                         [1e9, 65536, 0.5, 2, 1500, None])

    def test_nodes_of_other_machines_are_summed_up(self):
        ros = {"role": "ros", "qos_backend": "htb+tbf", "qos_rate_bps": 5, "packets_source_dropped": 2, "cpu_seconds": 1.5}
        sfi = {"role": "sfi", "packets_socket_dropped": 3, "fragments_re_asked": 4, "fragments_late": 1, "cpu_seconds": 1}
        dfm = {"role": "dfm", "busy_ns": 2e9, "fragments_lost": 7, "cpu_seconds": 0.5}
        report = machines.merge([dfm, ros, ros, sfi, sfi], 2)
        self.assertEqual((report["qos_rate_bps"], report["busy_seconds"], report["cpu_seconds"]["ros"]), (5, 2, 3))
        self.assertEqual(report["drops"], {"switch_packets": None, "socket_packets": 6, "source_qdisc_packets": 4})
        self.assertEqual(report["fragments"], {"re_asked": 8, "late": 2, "lost": 7})
        plain = machines.merge([dfm, {**ros, "qos_backend": "none"}, sfi], 2)
        self.assertIsNone(plain["drops"]["source_qdisc_packets"])


def end(sent=10, received=10, cpu=(), times=None, **more):
    """The report of one end: 2 s in which 1 MB was measured."""
    return {"packets_sent": sent, "packets_received": received, "lost_at": {"socket": sent - received}, "inter_packet_us": times,
            "measured": {"seconds": 2, "bytes": 1e6 * received / 10, "cpu_seconds": 0.5, "cpu_percent": list(cpu)}, **more}


class Flows(unittest.TestCase):
    def test_loss_counts_missing_messages(self):
        figures = flow_figures.of_reports(UDP, [end()], [end(), end(received=5)], False)
        self.assertEqual((figures["sent_mbps"], figures["received_mbps"], figures["least_mbps"]), (4, 6, 2))
        self.assertEqual((figures["loss_percent"], figures["lost_messages"], figures["socket_packets"]), (25, 5, 5))
        self.assertEqual((figures["sender_cpu_percent"], figures["receiver_cpu_percent"]), (25, 50))

    def test_what_is_not_known_is_null(self):
        figures = flow_figures.of_reports(UDP, [end(0, 0)], [end(0, 0)], True)
        for name in ("loss_percent", "lost_messages", "gap_p50_us", "gap_max_us", "sender_cpu", "sender_cpu_p50_percent"):
            self.assertIsNone(figures[name], name)
        self.assertNotIn("gap_below", figures)
        tcp = flow_figures.of_reports(TCP, [end()], [end()], False)
        self.assertIsNone(tcp["socket_packets"])
        self.assertNotIn("loss_percent", tcp)

    def test_gaps_are_those_of_the_histogram(self):
        times = {"histogram": [[10.0, 50], [1000.0, 49], [2000.0, 1]], "max": 1999.0}
        figures = flow_figures.gaps(times)
        self.assertEqual((figures["gap_p25_us"], figures["gap_p50_us"], figures["gap_p75_us"], figures["gap_p99_us"], figures["gap_max_us"]),
                         (10, 10, 1000, 1000, 1999))
        below = dict(zip(figures["gap_edges_us"], figures["gap_below"]))
        self.assertEqual((len(below), below[0.1], below[10.0], below[1000.0], below[10000.0]), (71, 0, 0.5, 0.99, 1))

    def test_shares_of_processors_are_those_of_all_threads(self):
        shares = flow_figures.cpu_shares([end(cpu=range(1, 51)), end(cpu=range(51, 101))])
        self.assertEqual((shares["p10"], shares["p50"], shares["p99"]), (11, 51, 100))
        self.assertEqual(dict(zip(shares["edges"], shares["below"]))[20], 0.2)

    def test_echoes_are_those_of_the_sender(self):
        times = {"histogram": [[5.0, 3]], "p50": 5.0, "p99": 5.0, "max": 4.5}
        figures = flow_figures.of_reports(ECHO, [end(round_trip_us=times)], [end()], False)
        self.assertEqual((figures["echoes"], figures["echo_p99_us"], figures["echo_max_us"]), (3, 5, 4.5))
        self.assertEqual(flow_figures.echoes({"round_trip_us": None})["echoes"], 0)


def stream_times(mean):
    return {"mean": mean, "sigma": 2.0, "p999": 30.0, "histogram": [[mean, 99]]}


# 1000 packets of a stream of half a second, in intervals of 0.1 s.
STREAM = {"packets_sent": 1000, "packets_received": 900, "packets_lost": 100, "seconds": 0.5, "bytes": 900 * 1456, "packets_late": 10,
          "lost_at": {"source": 20, "network": 30, "nic": None, "socket": 34, "receiver": 6},
          "intervals": {"seconds": 0.1, "packets": [100, 300, 200, 200, 100]},
          "inter_packet_us": stream_times(12), "processing_us": stream_times(0.25), "network_cpu_seconds": 0.25, "file_cpu_seconds": 0.05,
          "corrupt": None, "cpu_percent": [{"cpu": 0}],
          "peer": {"inter_packet_us": stream_times(11), "network_cpu_seconds": 0.5, "file_cpu_seconds": 0.1}}


def mbps(packets, seconds):
    return packets * 1514 * 8 / seconds / 1e6


class Streams(unittest.TestCase):
    def assert_figures(self, figures, **expected):
        for name, value in expected.items():
            if value is None or isinstance(figures[name], (int, list)):
                self.assertEqual(figures[name], value, name)
            else:
                self.assertAlmostEqual(figures[name], value, msg=name)

    def test_figures_follow_from_the_report(self):
        figures = stream_figures.of_report(STREAM, packet_bytes=1472, interval_seconds=0.2)
        self.assert_figures(figures, wire_mbps=mbps(900, 0.5), mbps=900 * 1456 * 8 / 0.5 / 1e6, lost_percent=10, lost_packets=100,
                            source_packets=20, network_packets=30, nic_packets=None, socket_packets=34, receiver_packets=6, late_packets=10,
                            corrupt=None, inter_packet_mean_us=12, sent_inter_packet_mean_us=11, processing_sigma_us=2,
                            receive_cpu_percent=50, output_cpu_percent=10, send_cpu_percent=100, input_cpu_percent=20)
        self.assertEqual(figures["processing"]["histogram"], [[0.25, 99]])

    def test_throughput_is_compared_in_whole_intervals(self):
        """Two intervals of 0.2 s have 400 packets each; the rest is too short for a third one."""
        figures = stream_figures.of_report(STREAM, packet_bytes=1472, interval_seconds=0.2)
        self.assertEqual(len(figures["throughput_mbps"]), 2)
        self.assert_figures(figures, interval_seconds=0.2, spread_mbps=0, sigma_mbps=0, mean_mbps=mbps(400, 0.2), steady_intervals=2,
                            unsteady_intervals=0)
        figures = stream_figures.of_report(STREAM, packet_bytes=1472, interval_seconds=0.01)
        # The mean is 180 packets: sqrt((2 * 80^2 + 120^2 + 2 * 20^2) / 5).
        self.assert_figures(figures, spread_mbps=mbps(200, 0.1), sigma_mbps=mbps(math.sqrt(28000 / 5), 0.1), least_mbps=mbps(100, 0.1),
                            most_mbps=mbps(300, 0.1), unsteady_intervals=5)

    def test_what_is_not_known_is_null(self):
        """A sender that is gone reports nothing."""
        figures = stream_figures.of_report({"packets_sent": None, "lost_at": None, "peer": None, "seconds": None}, packet_bytes=1472, interval_seconds=1)
        for name in ("lost_percent", "source_packets", "socket_packets", "spread_mbps", "sigma_mbps", "sent_inter_packet_mean_us", "send_cpu_percent",
                     "receive_cpu_percent", "wire_mbps", "interval_seconds", "mean_mbps", "least_mbps", "most_mbps", "steady_intervals"):
            self.assertIsNone(figures[name], name)


if __name__ == "__main__":
    cases.main()
