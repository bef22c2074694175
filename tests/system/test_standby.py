#!/usr/bin/env python3
"""Measurements on standby nodes, each in a namespace of its own, with evb lab as their coordinator.

    test_standby.py EVB [CASE...]
"""
import os
import re
import signal
import subprocess
import time

from harness import LIMIT_S, folder, main, times_logged
from network import wait_until
from standby import DFM, Testbed, testbed, version


def nothing_is_lost(bed, again, measurement, least=0):
    """Whether no point lost an event, and each built enough. The catalogue sets the timeouts: a node that gets no processor for
    dfm.node-timeout leaves its run."""
    if again:
        bed.lab(measurement, "--again")
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == measurement}.values()
    return latest and all(p["events_complete"] >= least and p["events_lost"] == 0 for p in latest)


def events(evb):
    """Runs points of event building one after the other on the same standby nodes."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1")
        assert any(nothing_is_lost(bed, again, "C1", least=1001) for again in range(8)), bed.points()
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
        assert any(nothing_is_lost(bed, again, "C5") for again in range(3)), bed.points()
        points = bed.points()
        assert {p["series"] for p in points} >= {"20 Mbit/s", "40 Mbit/s", "auto"}, points
        for p in points:
            assert p["qos_backend"] == "htb+tbf" and p["source_packets"] == 0, p
            if p["series"] != "auto":
                rate = float(p["series"].split()[0]) * 1e6
                # Less than half of what is offered: a receiver that wakes late counts the same bytes in a shorter time.
                assert p["qos_rate_bps"] == rate and p["throughput_bytes_per_second"] < 2 * 6 * rate / 8, p
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def control_is_fast(bed, again):
    """Whether echoes in the class for control wait less than a tenth of those behind the data."""
    if again:
        bed.lab("C9", "--again")
    # Without an echo, there is no figure.
    echoes = {p["series"]: p["echo_p99_us"] for p in bed.points() if p["id"] == "C9" and p["echo_p99_us"] is not None}
    return len(echoes) == 3 and echoes["one class for all"] > 10 * echoes["a class for control"]


def packets_are_spaced(bed, again):
    """Whether shaping spaces the packets of A7."""
    if again:
        bed.lab("A7", "--again")
    gaps = [p["gap_p50_us"] for p in bed.points() if p["id"] == "A7"][-2:]
    return len(gaps) == 2 and None not in gaps and gaps[0] < gaps[1] and 900 < gaps[1] < 1500


def some_arrive(bed, again):
    """Whether in each point of A2 datagrams are sent, and some arrive."""
    if again:
        bed.lab("A2", "--again")
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == "A2"}.values()
    return latest and all(p["sent_mbps"] > 0 and p["loss_percent"] < 100 for p in latest)


def each_receives(bed, again):
    """Whether in each point of B5 each receiver gets data, and none twice its rate."""
    if again:
        bed.lab("B5", "--again")
    latest = {(p["series"], p["x"]): p for p in bed.points() if p["id"] == "B5"}.values()
    return latest and all(0 < p["least_mbps"] < 2 * p["x"] for p in latest)


def multicast_arrives(bed, again):
    """Whether each point of B3 sends, and messages of one packet arrive. A message of 10,000 B is lost with each of its packets, so
    that a receiver without processor time may get none."""
    if again:
        bed.lab("B3", "--again")
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
        # Processes that wait for a busy processor send and receive little, and echo late in either class: such points are made again.
        assert any(some_arrive(bed, again) for again in range(8)), [p for p in bed.points() if p["id"] == "A2"]
        assert any(packets_are_spaced(bed, again) for again in range(8)), [p for p in bed.points() if p["id"] == "A7"]
        assert any(each_receives(bed, again) for again in range(8)), [p for p in bed.points() if p["id"] == "B5"]
        assert any(multicast_arrives(bed, again) for again in range(8)), [p for p in bed.points() if p["id"] == "B3"]
        assert any(control_is_fast(bed, again) for again in range(8)), bed.points()[-3:]
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def v6(evb):
    """With IPv6 addresses, event building works; flows fail with an explanation."""
    with folder() as where, Testbed(evb, where, net="fd00:9::") as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1", "A7")
        assert {(p["id"], p["series"]) for p in bed.points()} == {("C1", "push"), ("C1", "pull")}, done
        assert any(nothing_is_lost(bed, again, "C1") for again in range(8)), bed.points()
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
        assert any(nothing_is_lost(bed, again, "C1") for again in range(1, 9)), bed.points()


def lost_coordinator(evb):
    """A killed evb lab ends its run, and the next one can connect at once."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert set(s.receive()["nodes"]) == set(bed.roles)
            with bed.connect() as other:
                other.send({"coordinator": {"version": version(evb)}})
                assert "another evb lab" in other.receive()["refused"] and other.receive() is None
            done = bed.lab("C1")
            assert done.returncode == 1 and "another evb lab" in done.stderr and "start it with" not in done.stderr, done
            s.send({"to": list(bed.roles), "command": {"kind": "run", "job": 7, "settings": ["trigger.rate=1kHz", "run.number=77", "sfi.output=null"]}})
            for name in bed.roles:
                bed.wait_for(name, "run 7 started")
        for name in bed.roles:
            bed.wait_for(name, "run 7 ended with")
        for again in ([], ["--again"]):
            assert bed.lab("C1", *again).returncode in (0, 1) and bed.points()
        # An answer to one evb lab is not taken for an answer to the next. Points that decide a verdict may be confirmed.
        numbers = re.findall(r"run (\d+) started", bed.log("ros1"))
        assert len(numbers) == len(set(numbers)) >= 9, numbers


def interrupted(evb):
    """Ctrl-C stops the run; the next evb lab waits until the run has ended."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        # A stopped ROS delays the end of its run; the other nodes continue.
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            bed.wait_for("ros1", "has begun: ")
            child = bed.stop_child("ros1")
            running.send_signal(signal.SIGINT)
        started = bed.log("sfi1").count("started")
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            run = {"kind": "run", "settings": ["ros.count=1", "sfi.output=null"]}
            s.send({"to": ["ros1"], "command": run | {"job": 5}})
            s.send({"to": ["ros1"], "command": run | {"job": 6}})
            assert s.receive_until("answer")["answer"] == {"job": 6, "state": "refused", "reason": "the previous command has not finished"}
            s.send({"to": ["ros1"], "command": {"kind": "stop"}})
            assert s.receive_until("answer")["answer"] == {"job": 5, "state": "refused", "reason": "stopped before it started"}
            s.send({"to": ["ros1"], "command": run | {"job": 7}})
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            bed.wait_for("sfi1", "started", times=started + 1)
            os.kill(child, signal.SIGCONT)
            said = running.communicate(timeout=LIMIT_S)[0]
        assert running.returncode in (0, 1) and "refused" not in said and len(bed.points()) == 4, said
        assert all(p["events_complete"] > 0 for p in bed.points()), bed.points()


def lost_dfm(evb):
    """Nodes reconnect to a restarted DFM."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        bed.standby["dfm"].kill()
        bed.standby["dfm"].wait()
        bed.wait_for("ros1", "no connection to the DFM (")
        done = bed.lab("C1")
        assert done.returncode == 1 and "evb dfm --config FILE --node dfm --standby" in done.stderr, done
        bed.start("dfm")
        for name in bed.roles:
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        # A restart during a measurement costs one point only.
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started")
            child = bed.stop_child("ros1")  # the run goes on until the DFM is killed
            # evb lab waits 5 s for a DFM, and a process may take longer to start.
            running.send_signal(signal.SIGSTOP)
            bed.standby["dfm"].kill()
            bed.standby["dfm"].wait()
            os.kill(child, signal.SIGCONT)
            bed.start("dfm")
            bed.wait_for("dfm", "node dfm is on standby\n", times=3)
            running.send_signal(signal.SIGCONT)
            said = running.communicate(timeout=LIMIT_S)[1]
        assert "connection to the DFM" in said and len(bed.points()) == 3 and "1 point failed" in said, said
        bed.standby["dfm"].send_signal(signal.SIGTERM)
        assert bed.standby["dfm"].wait(LIMIT_S) == 0


def port_taken(evb):
    """If any node fails to start, the run fails soon and leaves no result."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        for name, address in (("ros1", "10.9.0.2"), ("dfm", DFM)):
            with bed.network.socket(name) as s:
                s.bind((address, 26800))
                begin = time.monotonic()
                done = bed.lab("C1")
                took = time.monotonic() - begin
            assert done.returncode == 1 and f"{name} could not take part" in done.stderr, done
            assert took < 30 and not bed.points(), (took, done)
        assert bed.lab("C1").returncode in (0, 1) and len(bed.points()) == 4


def frozen_node(evb):
    """evb lab names a frozen node, although its connection persists."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        bed.standby["sfi1"].send_signal(signal.SIGSTOP)
        try:
            done = bed.lab("A7")
        finally:
            bed.standby["sfi1"].send_signal(signal.SIGCONT)
        assert done.returncode == 1 and "sfi1 did not become ready in time" in done.stderr and not bed.points(), done
        # On a busy machine a flow may start late; repeating the command completes the points.
        deadline = time.monotonic() + LIMIT_S
        while len(bed.points()) < 2:
            done = bed.lab("A7")
            assert time.monotonic() < deadline, (done, bed.points(), bed.log("sfi1"))


def missing_node(evb):
    """evb lab names a missing node and waits for it only once."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        bed.standby["ros2"].send_signal(signal.SIGINT)
        assert bed.standby["ros2"].wait(LIMIT_S) == 0
        bed.scenario.write_text(bed.scenario.read_text() + "[dfm]\nnode-timeout = 1s\n")
        done = subprocess.run(bed.command("C1", "--set", "ros.count=2"), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        # C1 uses one ROS, which is on standby.
        assert "not on standby" not in done.stderr, done
        bed.standby["ros1"].send_signal(signal.SIGTERM)
        assert bed.standby["ros1"].wait(LIMIT_S) == 0
        done = bed.lab("C1", "--again")
        assert done.returncode == 1 and "not on standby: ros1" in done.stderr, done
        # evb lab waits for the node once, not again at each point.
        assert times_logged("still not on standby: ros1", done.stderr) == times_logged("not on standby: ros1", done.stderr) - 1 == 3, done


main({
    "events": events, "shaped": shaped, "flows": flows, "v6": v6, "lost-node": lost_node,
    "lost-coordinator": lost_coordinator, "interrupted": interrupted, "lost-dfm": lost_dfm,
    "port-taken": port_taken, "frozen-node": frozen_node, "missing-node": missing_node,
})
