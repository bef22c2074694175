#!/usr/bin/env python3
"""Measurements on standby nodes, each in a namespace of its own, with evb lab as their coordinator.

    test_standby.py EVB [CASE...]
"""
import os
import re
import signal
import subprocess
import time

from harness import LIMIT_S, main, times_logged
from standby import DFM, testbed, version


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


def answer_of(connection, *jobs):
    """Returns the next answer to one of these jobs. A node may still have to tell of an earlier one."""
    while True:
        answer = connection.receive_until("answer")["answer"]
        if answer["job"] in jobs:
            return answer


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
            assert answer_of(s, 5, 6) == {"job": 6, "state": "refused", "reason": "the previous command has not finished"}
            s.send({"to": ["ros1"], "command": {"kind": "stop"}})
            assert answer_of(s, 5, 6) == {"job": 5, "state": "refused", "reason": "stopped before it started"}
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
    "lost-coordinator": lost_coordinator, "interrupted": interrupted, "lost-dfm": lost_dfm,
    "port-taken": port_taken, "frozen-node": frozen_node, "missing-node": missing_node,
})
