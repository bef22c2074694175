#!/usr/bin/env python3
"""Measurements on standby nodes: no event is lost, and shaping and flows show what they should.

    test_standby_points.py EVB [CASE...]
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from harness import LIMIT_S, folder, main
from standby import Testbed, testbed


def nothing_is_lost(bed, measurement, least=0):
    """Whether no point lost an event, and each built enough. The catalogue sets the timeouts: a node that gets no processor for
    dfm.node-timeout leaves its run."""
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == measurement}.values()
    return latest and all(p["events_complete"] >= least and p["events_lost"] == 0 for p in latest)


def events(evb):
    """Runs points of event building one after the other on the same standby nodes."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1")
        assert nothing_is_lost(bed, "C1", least=1001), bed.points()
        points = bed.points()
        assert done.returncode in (0, 1) and {p["series"] for p in points} == {"push", "pull"}, done
        for p in points:
            assert p["testbed"] == "testbed" and p["switch_packets"] is None, p
        # Every standby process survives.
        assert all(p.poll() is None for p in bed.standby.values())
        pids = re.findall(r"run (\d+) started", bed.log("ros1"))
        assert len(pids) == len(points), bed.log("ros1")
        # Settings of the command line apply to all nodes, except those that are local to a machine.
        arguments = ("--again", "--set", "run.seed=99", "--set", "network.order-port=26802")
        with subprocess.Popen(bed.command("C1", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started", times=len(points) + 1)
            given = bed.child_words("ros1")
            said = running.communicate(timeout=LIMIT_S)[1]
        assert "run.seed=99" in given and "network.order-port=26802" not in given and "refused" not in said, (given, said)
        done = bed.lab("C7")
        assert "8 of 8 points of C7 are skipped: C7 needs 6 ROSs, the scenario has 2" in done.stderr and done.returncode == 1, done


def shaped(evb):
    """ROSs shape their traffic during each run and restore the device afterwards."""
    with testbed(evb, ros=6) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        bed.lab("C5")
        assert nothing_is_lost(bed, "C5"), bed.points()
        points = bed.points()
        assert {p["series"] for p in points} >= {"20 Mbit/s", "40 Mbit/s", "auto"}, points
        for p in points:
            assert p["qos_backend"] == "htb+tbf" and p["source_packets"] == 0, p
            if p["series"] != "auto":
                rate = float(p["series"].split()[0]) * 1e6
                # Less than half of what is offered: a receiver that wakes late counts the same bytes in a shorter time.
                assert p["qos_rate_bps"] == rate and p["throughput_bytes_per_second"] < 2 * 6 * rate / 8, p
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def control_is_fast(bed):
    """Whether echoes in the class for control wait less than a tenth of those behind the data."""
    # Without an echo, there is no figure.
    echoes = {p["series"]: p["echo_p99_us"] for p in bed.points() if p["id"] == "C9" and p["echo_p99_us"] is not None}
    return len(echoes) == 3 and echoes["one class for all"] > 10 * echoes["a class for control"]


def packets_are_spaced(bed):
    """Whether shaping spaces the packets of A7."""
    gaps = [p["gap_p50_us"] for p in bed.points() if p["id"] == "A7"][-2:]
    return len(gaps) == 2 and None not in gaps and gaps[0] < gaps[1] and 900 < gaps[1] < 1500


def some_arrive(bed):
    """Whether in each point of A2 datagrams are sent, and some arrive."""
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == "A2"}.values()
    return latest and all(p["sent_mbps"] > 0 and p["loss_percent"] < 100 for p in latest)


def each_receives(bed):
    """Whether in each point of B5 each receiver gets data, and none twice its rate."""
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == "B5"}.values()
    return latest and all(0 < p["least_mbps"] < 2 * p["x"] for p in latest)


def multicast_arrives(bed):
    """Whether each point of B3 sends, and messages of one packet arrive. A message of 10,000 B is lost with each of its packets, so
    that a receiver without processor time may get none."""
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == "B3"}.values()
    return latest and all(p["sent_mbps"] > 10 and (p["x"] == 10000 or p["received_mbps"] > 10) for p in latest)


def flows(evb):
    """Runs all kinds of flows: multicast, TCP with gaps on the wire, several destinations, echoes."""
    with testbed(evb, ros=1, sfi=3) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        done = bed.lab("A2", "A7", "B3", "B5", "B6", "C9")
        points = {}
        for p in bed.points():
            points.setdefault(p["id"], []).append(p)
        assert "2 of 2 points of B6 are skipped: B6 needs 3 ROSs, the scenario has 1" in done.stderr, done
        assert "3 of 6 points of B3 are skipped: B3 needs network.mtu = 9000, the scenario has 1500" in done.stderr and set(points) == {"A2", "A7", "B3", "B5", "C9"}, done
        assert some_arrive(bed), [p for p in bed.points() if p["id"] == "A2"]
        assert packets_are_spaced(bed), [p for p in bed.points() if p["id"] == "A7"]
        assert each_receives(bed), [p for p in bed.points() if p["id"] == "B5"]
        assert multicast_arrives(bed), [p for p in bed.points() if p["id"] == "B3"]
        assert control_is_fast(bed), bed.points()[-3:]
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def v6(evb):
    """With IPv6 addresses, event building works; flows fail with an explanation."""
    with folder() as where, Testbed(evb, where, net="fd00:9::") as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1", "A7")
        assert {(p["id"], p["series"]) for p in bed.points()} == {("C1", "push"), ("C1", "pull")}, done
        assert nothing_is_lost(bed, "C1"), bed.points()
        assert "plain flows need IPv4" in done.stderr and "2 points failed" in done.stderr, done


def lost_node(evb):
    """A node that disconnects during a run spoils only that run; it can come back."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        running = subprocess.Popen(bed.command("C1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            bed.wait_for("ros1", "started")
            bed.stop_child("ros1")  # the run goes on until the node is killed
            bed.standby["ros1"].kill()
            bed.standby["ros1"].wait()
            bed.wait_for("dfm", "ros1 left standby")
            bed.start("ros1")
            _, said = running.communicate(timeout=LIMIT_S)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        assert "ros1 disconnected during a run" in said and "1 point failed" in said, said
        assert len(bed.points()) == 3
        bed.wait_for("dfm", "node ros1 is on standby\n", times=2)
        bed.lab("C1", "--again")
        assert nothing_is_lost(bed, "C1"), bed.points()


main({"events": events, "shaped": shaped, "flows": flows, "v6": v6, "lost-node": lost_node})
