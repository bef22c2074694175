#!/usr/bin/env python3
"""Tests the figures of other programs, which stand-ins print here, and points that the machine cannot make."""
import os
import pathlib
import socket
import tempfile
import types
import unittest
import unittest.mock

import cases
from evb.lab import execute, results, run, run_programs
from evb.lab.catalogue import BY_ID
from evb.lab.context import Context, PointFailed, PointLacks
from evb.lab.measurement import Point, Settings, points_of
from evb.lab.process import report_of

IPERF = """#!/bin/sh
case "$*" in
*-s*) echo '{"end":{"sum":{"packets":1000,"lost_packets":250,"seconds":2},"sum_received":{"bits_per_second":8e9}}}' ;;
*) echo "$*" >>"$0.words"; echo '{"end":{}}' ;;
esac
"""
# The first 128 heaps of 4 MiB take 1 s, so that a stream of 2 s has 256; of these, half of the packets arrive.
SEND = """#!/bin/sh
for n; do :; done
case "$*" in *"--heaps 256"*) echo 'Sent 1073741824 bytes in 2.0s' ;; *) echo 'Sent 536870912 bytes in 1.0s' ;; esac
"""
RECEIVE = "#!/bin/sh\necho 'packets: 374912'\n"


class Net:
    """Programs run in the namespace of the test."""

    def __init__(self):
        self.told = []

    def namespace(self, _):
        return None

    def address(self, _):
        return "127.0.0.1"

    def tell(self, command):
        self.told.append(command.split()[0])


class Programs(unittest.TestCase):
    def measure(self, measured, identity, **point):
        context, net = Context("/nonexistent"), Net()
        first = next(p for p in points_of(BY_ID[identity]) if all(getattr(p, name) == value for name, value in point.items()))
        with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
            for name, text in (("iperf3", IPERF), ("spead2_send.py", SEND), ("spead2_recv.py", RECEIVE)):
                (pathlib.Path(where) / name).write_text(text, encoding="utf-8")
                (pathlib.Path(where) / name).chmod(0o755)
            with unittest.mock.patch.dict(os.environ, {"PATH": f"{where}:/usr/bin:/bin"}), \
                    unittest.mock.patch.object(run_programs, "listens", return_value=True), \
                    unittest.mock.patch.object(run_programs, "seconds_of", return_value=2):
                figures = measured(run_programs.Pair(first, context, net))
            words = pathlib.Path(where) / "iperf3.words"
            return figures, net, words.read_text(encoding="utf-8") if words.exists() else ""

    def test_datagrams_of_iperf3_are_those_of_the_receiver(self):
        figures, net, words = self.measure(run_programs.iperf3, "P1", series="iperf3, UDP, 1448 B")
        self.assertEqual((figures["throughput_bytes_per_second"], figures["lost_percent"]), (750 * 1448 / 2, 25))
        self.assertEqual((figures["mbps"], figures["sent_mbps"]), (750 * 1448 * 4 / 1e6, 1000 * 1448 * 4 / 1e6))
        self.assertIn("-l 1448 -u -b 0", words)
        self.assertEqual(net.told, ["watch", "begin", "watch", "end"])

    def test_tcp_of_iperf3_has_the_writes_of_the_panel(self):
        figures, _, words = self.measure(run_programs.iperf3, "P2", series="iperf3, TCP", panel="6x1, 1 KiB")
        self.assertEqual((figures["throughput_bytes_per_second"], figures["lost_percent"]), (1e9, None))
        self.assertIn("-l 1000", words)
        self.assertNotIn("-u", words)

    def test_packets_of_spead2_count_as_they_arrive(self):
        figures, net, _ = self.measure(run_programs.spead2, "P5", series="spead2")
        self.assertAlmostEqual(figures["sent_mbps"], (256 << 22) * 8 / 2 / 1e6)
        self.assertAlmostEqual(figures["lost_percent"], 100 * (1 - 374912 / (256 * 2929)))
        self.assertAlmostEqual(figures["mbps"], figures["sent_mbps"] * (1 - figures["lost_percent"] / 100))
        # The first heaps only say how many to send.
        self.assertEqual(net.told, ["watch", "watch", "watch", "begin", "watch", "end"])

    def test_iperf3_takes_whole_seconds(self):
        for settings, seconds in (("scenario.duration=4s", 4), ("seconds=1.3", 1), ("seconds=0.5", 1), ("", 1)):
            self.assertEqual(run_programs.seconds_of(Point(BY_ID["P1"], "", 1, Settings(settings))), seconds)

    def test_a_port_is_seen_once_a_socket_listens(self):
        here = types.SimpleNamespace(pid=os.getpid())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.create_server(("127.0.0.1", 0)) as server, \
                socket.create_connection(server.getsockname()) as client:
            s.bind(("127.0.0.1", 0))
            self.assertTrue(run_programs.listens(here, s.getsockname()[1], "udp"))
            self.assertTrue(run_programs.listens(here, server.getsockname()[1], "tcp6", "tcp"))
            # The kernel gives a connection no port at which another socket listens.
            self.assertFalse(run_programs.listens(here, client.getsockname()[1], "tcp", "tcp6"))


class Missing(unittest.TestCase):
    def test_status_77_says_that_something_is_missing(self):
        for status, error in ((77, PointLacks), (3, PointFailed)):
            with self.assertRaises(error) as caught:
                report_of(["sh", "-c", f"echo no feature >&2; exit {status}"], Context("evb"))
            self.assertIs(type(caught.exception), error)

    def test_a_point_that_a_verdict_does_without_has_not_failed(self):
        """Unless it failed for another reason, or the verdict needs it."""
        with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
            made = run.Run(run.Order([BY_ID["P8"]], {"P8"}, None, path=f"{where}/results.jsonl"), Context("evb"), results.Machine("1"), run.Progress(False))
            points = {p.series: p for p in made.points}
            with unittest.mock.patch("sys.stderr"):
                for series, error, failed in (("edt", PointLacks, 0), ("edt", PointFailed, 1), ("htb", PointLacks, 2)):
                    with unittest.mock.patch.object(run, "run_point", side_effect=error("no feature")):
                        made.make(points[series])
                    self.assertEqual(made.failed, failed, (series, error))
            made.file.close()

    def test_another_build_runs_the_point(self):
        with unittest.mock.patch.dict(os.environ, {"EVB_BASELINE": "/old/evb"}):
            now, other = points_of(BY_ID["P3"])[:2]
        with unittest.mock.patch.dict(execute.RUNS, {BY_ID["P3"].kind: lambda _, context: context.evb}):
            self.assertEqual([execute.run_point(p, Context("/new/evb")) for p in (now, other)], ["/new/evb", "/old/evb"])


if __name__ == "__main__":
    cases.main()
