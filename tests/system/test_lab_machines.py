#!/usr/bin/env python3
"""Measures on other machines: evb lab run --config FILE starts the nodes there by ssh.

    test_lab_machines.py EVB [CASE...]
"""
import json
import os
import re
import signal
import subprocess
import sys

from harness import LIMIT_S, ROOT, main
from keys import write_key
from network import wait_until
from ssh_machines import end_of, ssh_machines

ENV = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def lab(machines, *words, scenario=None):
    """Starts the lab at the desk, with the results file in its folder."""
    return machines.desk(sys.executable, "-m", "evb.lab", "run", *words, "--config", scenario or machines.scenario(), "--quick", "--force",
                         "--results", machines.where / "results.jsonl", "--ssh", machines.ssh, "--program", machines.evb,
                         env={**ENV, "EVB_PROGRAM": machines.evb})


def points(machines):
    path = machines.where / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def gone(machines):
    """Nothing of a run stays on the machines."""
    wait_until("the end of all nodes", lambda: not machines.nodes())


def measured(evb):
    """A whole measurement, with shaping on the machines, which are clean afterwards."""
    with ssh_machines(evb, ros=6) as machines:
        out, err = end_of(lab(machines, "C5"))
        # The lab does not see the ports of a real switch.
        assert out.startswith("C5         unknown  switch_packets is unknown at 12 of 12 points"), (out, err)
        made = points(machines)
        assert len(made) == 12 and all(p["testbed"] == "testbed" and p["events_complete"] > 0 and p["latency_p99_us"] > 0 for p in made), made
        assert {p["qos_backend"] for p in made} != {"none"} and all(p["switch_packets"] is None and p["ros_cpu_share"] > 0 for p in made), made
        gone(machines)
        assert is_clean(machines)


def is_clean(machines):
    """No machine shapes its traffic any more."""
    kinds = {word for name in machines.roles for word in machines.network.tc(name, "qdisc", "show", "dev", "eth0").stdout.split()}
    return not kinds & {"htb", "tbf"}


def flows(evb):
    """Senders and receivers of plain flows run there as well, and shape."""
    with ssh_machines(evb, ros=1) as machines:
        out, err = end_of(lab(machines, "A6"))
        made = points(machines)
        assert len(made) == 6 and all(p["received_mbps"] > 0 and p["switch_packets"] is None for p in made), (made, out, err)
        assert [p["source_packets"] is not None for p in made] == ["QoS" in p["series"] and not p["series"].startswith("no") for p in made], made
        assert is_clean(machines)


def flows_lost(evb):
    """A machine removes the shaping of flows when the lab is gone."""
    with ssh_machines(evb, ros=1) as machines:
        process = lab(machines, "B4")
        wait_until("shaping", lambda: not is_clean(machines), 5 * LIMIT_S)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        wait_until("the end of shaping", lambda: is_clean(machines), 5 * LIMIT_S)


def with_key(evb):
    """The machines get the key with the scenario; nobody copies it there."""
    with ssh_machines(evb) as machines:
        (machines.where / "elsewhere").mkdir()
        write_key(machines.where / "elsewhere" / "key")
        scenario = machines.scenario(f"key-file = {machines.where}/elsewhere/key\n")
        words = ("C1", "--set", "dfm.start-timeout=60s")
        out, err = end_of(lab(machines, *words, scenario=scenario))
        assert len(points(machines)) == 4 and re.search("^C1 +(agrees|better|differs) ", out, re.M), (out, err)


def running(machines):
    wait_until("the nodes of C1", lambda: set(machines.nodes()) == {"dfm", "ros1", "sfi1"})


def interrupted(evb):
    """Ctrl-C ends the lab and the nodes, also those that would wait for others."""
    with ssh_machines(evb) as machines:
        process = lab(machines, "C1")
        running(machines)
        process.send_signal(signal.SIGINT)
        _, err = end_of(process, expect=1)
        assert "interrupted; the same command continues" in err, err
        gone(machines)


def killed(evb):
    """Nodes do not outlive a lab that is killed, even if they are waiting."""
    with ssh_machines(evb) as machines:
        process = lab(machines, "C1")
        running(machines)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        gone(machines)


def lost(evb):
    """The connection to a machine ends, so the point fails; the other nodes end, and the lab goes on."""
    with ssh_machines(evb) as machines:
        process = lab(machines, "C1")
        running(machines)
        connections = subprocess.run(["pgrep", "--parent", str(machines.daemons["ros1"].pid)], capture_output=True, text=True, check=True, timeout=LIMIT_S)
        for pid in connections.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        _, err = end_of(process, expect=1)
        assert "ros1 could not take part (status 255)" in err and "1 point failed" in err, err
        assert len(points(machines)) == 3, points(machines)
        gone(machines)


def refused(evb):
    """The reason of a machine that cannot take part."""
    with ssh_machines(evb) as machines:
        machines.daemons["sfi1"].kill()
        machines.daemons["sfi1"].wait()
        _, err = end_of(lab(machines, "C1"), expect=1)
        assert "sfi1 could not take part (status 255): ssh: connect to host 10.9.0.4 port 22: Connection refused" in err, err
        gone(machines)


def mistakes(evb):
    with ssh_machines(evb, ros=1) as machines:
        for more, words, says in (
            ("", ("--set", "bogus.key=1"), "unknown key"), ("", ("--set", "ros.source=udp:7000"), "expected pattern"),
            ("mtu = 0\n", (), "network.mtu"),
        ):
            _, err = end_of(lab(machines, "C1", *words, scenario=machines.scenario(more)), expect=2)
            assert says in err, (more, words, err)
        machines.ssh = "no-such-ssh"
        _, err = end_of(lab(machines, "C1"), expect=77)
        assert "no-such-ssh is not installed; install it with: apt-get install openssh-client" in err, err
        machines.ssh = "ssh"
        _, err = end_of(lab(machines, "C5"), expect=1)
        assert "needs 6 ROSs, the scenario has 1" in err, err


main({"measured": measured, "flows": flows, "flows-lost": flows_lost, "key": with_key, "interrupted": interrupted, "killed": killed, "lost": lost, "refused": refused, "mistakes": mistakes})
