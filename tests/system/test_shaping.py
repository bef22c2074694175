#!/usr/bin/env python3
"""Whole runs whose ROSs shape their own traffic.

    test_shaping.py EVB [CASE...]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from harness import LIMIT_S, ROOT, Running, Skip, complete, folder, main, need_root, read_until, run, scenario, settings
from network import Network, sh, wait_until

QOS = {"qos.backend": "auto", "qos.rate": "200Mbit", "sfi.timeout": "10s"}


def status(evb, running, node):
    """The qdiscs, classes and filters in a node's namespace."""
    done = sh("ip", "netns", "exec", f"evb-{running.process.pid}-{node}", evb, "qos", "status", "--dev", "eth0", "--json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def destinations(evb, running, node):
    report = status(evb, running, node)
    return report and [d["address"] for d in report["destinations"]]


# Of this test alone: others run beside it.
STATES = tempfile.TemporaryDirectory(prefix="evb-test-")
os.environ["EVB_STATE_DIRECTORY"] = STATES.name


def left_states():
    return [n for n in os.listdir(STATES.name) if n.startswith("qos-")]


def need_ip():
    need_root()
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")


def whole(evb, **keys):
    """A shaped run completes all events, reports its shaping, and leaves nothing behind."""
    need_root()
    before = set(left_states())
    with folder() as where:
        report = run(evb, scenario(where), {**QOS, "ros.fragment-size": "14KiB", "trigger.events": 500, **keys}, net="lab")
    complete(report)
    assert report["qos_backend"] == keys.get("qos.backend", "htb+tbf").replace("auto", "htb+tbf"), report["qos_backend"]
    assert report["qos_rate_bps"] == 200_000_000
    assert report["drops"]["source_qdisc_packets"] == 0 and report["fragments"]["lost"] == 0, report["drops"]
    ros = [n for n in report["nodes"] if n["role"] == "ros"]
    assert len(ros) == 6 and all(n["interface"]["mtu_bytes"] == 1500 for n in ros), ros
    assert not set(left_states()) - before


def follows_sfis(evb):
    """The class of a killed SFI is deleted and installed again on its return; the others keep theirs."""
    need_ip()
    with folder() as where:
        keys = {**QOS, "trigger.events": 0, "trigger.rate": "50Hz", "test.keep-alive": "50ms", "dfm.node-timeout": "5s",
                "dfm.start-timeout": "60s", "sfi.count": 2}
        with Running(evb, scenario(where), keys, net="lab") as running:
            running.wait_nodes(9)
            running.wait_running()
            both = destinations(evb, running, "ros1")
            classes = {d["address"]: d["classid"] for d in status(evb, running, "ros1")["destinations"]}
            assert len(both) == 2, both
            pid, config = running.nodes()["sfi2"], running.config()
            gone = re.search(r"\[node sfi2\]\nrole = sfi\naddress = (\S+)", config)[1]
            os.kill(pid, signal.SIGKILL)
            for ros in ("ros1", "ros6"):
                wait_until(f"class of sfi2 gone at {ros}", lambda ros=ros: destinations(evb, running, ros) == [a for a in both if a != gone])
            again = where / "again.conf"
            again.write_text(config)
            sfi = subprocess.Popen(["ip", "netns", "exec", f"evb-{running.process.pid}-sfi2", evb, "sfi", "--config", str(again), "--node", "sfi2", "--json"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_until("class of sfi2 back", lambda: destinations(evb, running, "ros1") == both)
                now = {d["address"]: d["classid"] for d in status(evb, running, "ros1")["destinations"]}
                stays = [a for a in both if a != gone][0]
                assert now[stays] == classes[stays], (classes, now)
                running.signal()
                report = running.end(expect=(0, 1))
                assert report["events_complete"] > 0
            finally:
                sfi.kill()
                sfi.wait()


def killed(evb):
    """A ROS takes over the tree of one that was killed, and restores the earlier qdisc when it ends."""
    need_ip()
    with folder() as where:
        keys = {**QOS, "trigger.events": 0, "trigger.rate": "5Hz", "run.stop-timeout": "5s"}
        with Running(evb, scenario(where), keys, net="lab") as running:
            running.wait_nodes(9)
            running.wait_running()
            config = where / "again.conf"
            config.write_text(running.config())
            os.kill(running.nodes()["ros1"], signal.SIGKILL)
            wait_until("ros1 gone", lambda: "ros1" not in running.nodes())
            left = status(evb, running, "ros1")
            assert left["backend"] == "htb+tbf", left
            inside = ["ip", "netns", "exec", f"evb-{running.process.pid}-ros1"]
            ros = subprocess.Popen([*inside, evb, "ros", "--config", str(config), "--node", "ros1"], stderr=subprocess.PIPE, text=True)
            try:
                # While it runs, no other process shapes this device.
                def busy():
                    done = sh(*inside, evb, "qos", "remove", "--dev", "eth0", check=False)
                    return done.returncode == 1 and f"process {ros.pid}" in done.stderr

                read_until(ros.stderr, "shaping eth0")
                assert busy()
                assert status(evb, running, "ros1")["destinations"][0]["classid"] == left["destinations"][0]["classid"]
                ros.send_signal(signal.SIGTERM)
                ros.communicate(timeout=LIMIT_S)
            finally:
                if ros.poll() is None:
                    ros.kill()
                ros.wait()
            assert status(evb, running, "ros1")["backend"] == "none"
            running.signal()
            running.end(expect=(0, 1))


def stop_command(evb, config, node):
    """Run the unit's ExecStopPost= with the variables that systemd sets."""
    unit = (ROOT / "configs" / "systemd" / "evb-ros@.service.in").read_text()
    words = re.search(r"^ExecStopPost=-?(.*)$", unit, re.M)[1].split()
    assert words[0] == "@bindir@/evb", words
    variables = {"${EVB_CONFIG}": str(config), "${EVB_NODE}": node}
    return [evb, *(variables.get(word, word) for word in words[1:])]


def unit_stopped(evb):
    """After SIGKILL of a readout, ExecStopPost= restores the device, even if it runs several times."""
    with Network("a", "b") as network, folder() as where:
        network.pair("a", "b")
        root = ("tbf", "rate", "50mbit", "burst", "20k", "limit", "77k")
        network.tc("a", "qdisc", "add", "dev", "eth0", "root", "handle", "5:", *root)
        path = where / "s.conf"
        path.write_text("[network]\nlink-rate = 1Gbit\ncontrol-group = none\n[qos]\nbackend = htb+tbf\n"
                        "[node d]\nrole = dfm\naddress = 10.9.0.9\n"
                        "[node r]\nrole = ros\naddress = 10.9.0.1\n[node s]\nrole = sfi\naddress = 10.9.0.2\n")

        def state():
            return re.sub("refcnt [0-9]+", "", "".join(
                network.tc("a", what, "show", "dev", "eth0").stdout for what in ("qdisc", "class", "filter")))

        before = state()
        ros = network.popen("a", evb, "ros", "--config", str(path), "--node", "r")
        read_until(ros.stderr, "shaping eth0")
        ros.kill()
        ros.communicate()
        assert "htb e7b:" in state()
        for changes in (True, False, False):
            done = network.run("a", *stop_command(evb, path, "r"))
            assert bool(done.stdout) == changes, done
            assert state() == before, state()
        assert not os.listdir(os.environ["EVB_STATE_DIRECTORY"])
        # A readout without shaping has neither the privilege nor a state directory.
        where.chmod(0o755)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        network.run("a", *nobody, *stop_command(evb, path, "r"),
                    env={**os.environ, "EVB_STATE_DIRECTORY": "/nonexistent/evb"})


def left_over(evb):
    """A ROS without shaping warns about a tree that a killed ROS left on its device."""
    with Network("a", "b") as network, folder() as where:
        network.pair("a", "b")
        path = where / "s.conf"
        path.write_text("[network]\nlink-rate = 1Gbit\ncontrol-group = none\n"
                        "[node d]\nrole = dfm\naddress = 10.9.0.9\n[node r]\nrole = ros\naddress = 10.9.0.1\n"
                        "[node s]\nrole = sfi\naddress = 10.9.0.2\n")
        network.qos(evb, "a", "apply", "--config", str(path), "--node", "r")
        ros = network.popen("a", evb, "ros", "--config", str(path), "--node", "r")
        try:
            read_until(ros.stderr, "eth0 is shaped, though qos.backend = none")
        finally:
            ros.kill()
            ros.communicate()


def required(evb):
    """Impossible shaping exits with 77; with :optional the run continues unshaped, with a warning."""
    with folder() as where:
        path = scenario(where)
        done = sh(evb, "run", str(path), *settings({"qos.backend": "htb+tbf"}), check=False)
        assert done.returncode == 77 and "qos.backend" in done.stderr and "--net lab" in done.stderr, done
        report = run(evb, path, {"qos.backend": "htb+tbf:optional"})
        complete(report)
        assert report["qos_backend"] == "none" and report["qos_rate_bps"] is None and report["drops"]["source_qdisc_packets"] is None


def sockets(evb):
    """Without a privilege, the kernel paces each connection, so that whole frames have the planned rate, also after a ROS is gone."""
    if not shutil.which("ss"):
        raise Skip("ss (iproute2) is not installed")
    keys = {"scenario.transport": "tcp", "qos.backend": "socket", "network.link-rate": "600Mbit", "qos.control-rate": "6Mbit", "dfm.node-timeout": "10s", "trigger.events": 0,
            "trigger.rate": "5Hz"}
    with folder() as where, Running(evb, scenario(where), keys) as running:
        running.wait_nodes(9)
        running.wait_running()
        command = ["ss", "-Htnio", "state", "established", "dst", f"{running.address('sfi1')}:26801"]

        # When the rate is set, the kernel does not use the whole segments of lo yet, so headers seem to be up to 0.3 %.
        def paced_for(sources):
            found = re.findall(r"\bmss:(\d+).*?\bpacing_rate \w+/(\d+)bps", sh(*command).stdout)
            rates = [int(pace) / int(mss) * (int(mss) + 66 + 24) for mss, pace in found]
            return len(found) == sources and all(abs(rate / ((600e6 - 6e6) * 0.9995 / sources) - 1) < 0.005 for rate in rates)

        running.wait_for("six paced connections", lambda: paced_for(6))
        os.kill(running.nodes()["ros6"], signal.SIGKILL)
        running.wait_for("the rate of five", lambda: paced_for(5))
        running.signal()
        report = running.end(expect=(0, 1))
    assert report["qos_backend"] == "socket" and report["drops"]["source_qdisc_packets"] == 0, report


def paced(evb):
    """Without a qdisc the ROS itself keeps to the configured rate, and the port loses no packet."""
    need_root()
    with folder() as where:
        report = run(evb, scenario(where), {"network.link-rate": "100Mbit", "test.pacing": "10Mbit", "ros.fragment-size": "14KiB", "sfi.count": 1,
                                            "trigger.events": 100}, net="lab")
    complete(report)
    assert report["qos_backend"] == "none" and report["drops"]["switch_packets"] == 0, report["drops"]
    # From the first trigger on: a DFM that gets no processor for a while learns late of the first complete events.
    assert report["payload_bytes"] < 6 * 10e6 / 8 * report["building_seconds"], report


def no_cbq(evb):
    """A backend that the kernel lacks exits with 77 and names the module."""
    need_root()
    with folder() as where:
        done = sh(evb, "run", str(scenario(where)), "--net", "lab", *settings({"qos.backend": "cbq+tbf", "qos.rate": "100Mbit", "network.link-rate": "unlimited"}), check=False)
        if done.returncode == 0:
            raise Skip("this kernel has CBQ")
        assert done.returncode == 77 and "sch_cbq" in done.stderr, done


main({
    "push": whole,
    "pull": lambda evb: whole(evb, **{"scenario.mode": "pull"}),
    "tcp": lambda evb: whole(evb, **{"scenario.transport": "tcp"}),
    "socket": lambda evb: whole(evb, **{"scenario.transport": "tcp", "qos.backend": "socket"}),
    "sockets": sockets,
    "htb": lambda evb: whole(evb, **{"qos.backend": "htb"}),
    "v6": lambda evb: whole(evb, **{"network.control-group": "ff05::6986"}),
    "follows-sfis": follows_sfis,
    "killed": killed,
    "unit-stopped": unit_stopped,
    "left-over": left_over,
    "required": required,
    "paced": paced,
    "no-cbq": no_cbq,
})
