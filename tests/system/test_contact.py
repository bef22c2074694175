#!/usr/bin/env python3
"""An SFI loses contact with its DFM, which gives its events to others. Nobody may call such a run a success.

    test_contact.py EVB [CASE...]
"""
import json
import re
import signal
import subprocess

from harness import LIMIT_S, Running, folder, main, need_root, scenario
from test_join import ROLES, bed

REASON = "the DFM did not acknowledge"
SILENT = "sfi1 fell silent and did not return"
LOST = "the DFM dfm fell silent in run 1"
RESTARTED = "sfi1 was restarted with open events"


def unacknowledged(reasons):
    """Returns the number of events that may be in another SFI's files, too."""
    counts = [int(found[1]) for reason in reasons if (found := re.match(rf"{REASON} (\d+) of its events", reason))]
    return counts[0] if counts else 0


def stopped(evb, transport):
    """An SFI stands still until the run is over. Most often it then learns from the waiting announcements which events went to
    others, before it reads any data, and no event is in two files. Otherwise it says how many may be; killed-and-restarted and
    one-way have such events in every run."""
    keys = {"scenario.mode": "push", "scenario.transport": transport, "trigger.events": 3000, "trigger.rate": "500Hz",
            "dfm.node-timeout": "5s", "dfm.start-timeout": "60s", "dfm.event-timeout": "10s", "sfi.timeout": "5s",
            "dfm.lost-after": "20s", "dfm.policy": "round-robin"}
    with bed(evb, keys) as b:
        b.start_all()
        b.wait_written(300_000)
        b.processes["sfi1"].send_signal(signal.SIGSTOP)
        dfm = b.end("dfm", expect=1)
        assert any(SILENT in reason for reason in dfm["reasons"]), dfm
        for name in ROLES:
            if name not in ("dfm", "sfi1"):
                b.end(name)
        b.processes["sfi1"].send_signal(signal.SIGCONT)
        status = b.processes["sfi1"].wait(timeout=LIMIT_S)
        events, sfi = b.events(), b.end("sfi1", expect=status)
        # It heard of its lost events, and of the end; it did not hear of all of them; or KeepAlives since its stop filled its
        # socket, so that it waited for the DFM in vain.
        causes = {0: not sfi["reasons"], 1: unacknowledged(sfi["reasons"]) > 0, 75: LOST in sfi["reasons"]}
        assert causes.get(status), f"exit {status}: {b.log('sfi1')}"
        assert len(events) - len(set(events)) <= unacknowledged(sfi["reasons"]), (len(events), len(set(events)), sfi["reasons"])


def killed(evb, noticed):
    """An SFI is killed with events that others get, and starts again, as a unit does. Its files may hold them too."""
    # The SFI starts again before the DFM notices, or before the run is over.
    keys = {"trigger.events": 3000, "trigger.rate": "200Hz" if noticed else "500Hz", "dfm.start-timeout": "60s",
            "dfm.node-timeout": "5s" if noticed else "20s", "dfm.policy": "round-robin"}
    with bed(evb, keys) as b:
        b.start_all()
        b.wait_written(200_000)
        # It gets events, and cannot finish them before it is killed.
        b.processes["sfi1"].send_signal(signal.SIGSTOP)
        b.wait_written(300_000)
        b.kill("sfi1")
        if noticed:
            b.wait_log("dfm", "no message from sfi1")
        b.start("sfi1")
        dfm = b.end("dfm", expect=1)
        for name in ROLES:
            if name != "dfm":
                b.end(name)
        assert dfm["triggers"] == dfm["events_complete"] == 3000, dfm
        assert any(RESTARTED in reason for reason in dfm["reasons"]), dfm
        assert noticed == ("no message from sfi1" in b.log("dfm")), b.log("dfm")


def neighbour(launcher, node, address, words):
    subprocess.run(["ip", "-n", f"evb-{launcher}-{node}", "neigh", words[0], address, *words[1:], "dev", "eth0"], check=True)


def one_way(evb, mode):
    """An SFI hears its DFM, but the DFM does not hear it, until the end of the run."""
    need_root()
    with folder() as where:
        keys = {"scenario.mode": mode, "scenario.duration": "8s", "trigger.events": 0, "trigger.rate": "300Hz", "ros.count": 3,
                "dfm.keep-alive": "100ms", "dfm.node-timeout": "2s", "dfm.start-timeout": "60s", "dfm.event-timeout": "8s", "sfi.timeout": "4s",
                "dfm.policy": "round-robin", "sfi.output": "file", "sfi.directory": where}
        with Running(evb, scenario(where), keys, net="lab") as running:
            running.wait_nodes(6)
            running.wait_running()
            neighbour(running.process.pid, "sfi1", running.address("dfm"), ["replace", "lladdr", "02:de:ad:00:00:01", "nud", "permanent"])
            report = running.end(expect=(1,))
        sfi = next(node for node in report["nodes"] if node["name"] == "sfi1")
        built = sum(node["events_complete"] for node in report["nodes"] if node["role"] == "sfi")
        assert built > report["events_complete"], "no event was built twice: this case shows nothing"
        assert any("more events than the DFM counts" in reason for reason in report["reasons"]), report["reasons"]
        assert any(f"sfi1: {REASON}" in reason for reason in report["reasons"]), report["reasons"]
        assert sfi["exit"] == 1 and report["balanced"], report


def filter_multicast(launcher, port):
    """The switch no longer delivers multicast to this port, as one whose IGMP snooping fails."""
    switch = ["-n", f"evb-{launcher}-switch"]
    listed = subprocess.run(["ip", *switch, "-j", "link", "show", "type", "bridge"], capture_output=True, text=True, check=True)
    bridge = json.loads(listed.stdout)[0]["ifname"]
    subprocess.run(["ip", *switch, "link", "set", bridge, "type", "bridge", "mcast_snooping", "0"], check=True)
    subprocess.run(["bridge", *switch, "link", "set", "dev", port, "mcast_flood", "off"], check=True)


def deaf_ros(evb):
    """A ROS that hears no Clear holds triggers back until the end: the run fell short, and names it."""
    need_root()
    with folder() as where:
        # 100 events fit above the level of XOFF: 2.5 s of triggers, so that XOFF may be late on a busy machine.
        keys = {"scenario.duration": "22s", "trigger.events": 0, "trigger.rate": "40Hz", "ros.count": 3, "ros.fragment-size": 8000,
                "ros.buffer-size": "4MiB", "dfm.keep-alive": "100ms", "dfm.node-timeout": "8s", "dfm.start-timeout": "60s",
                "dfm.event-timeout": "16s", "sfi.timeout": "8s",
                "dfm.lost-after": 0}
        with Running(evb, scenario(where), keys, net="lab") as running:
            running.wait_nodes(6)
            running.wait_running()
            names = re.findall(r"^\[node (\S+)\]", running.config(), re.M)
            filter_multicast(running.process.pid, f"port{1 + names.index('ros2')}")
            report = running.end(expect=(1,))
        assert report["events_complete"] == report["triggers"] > 0, report
        assert any(re.fullmatch(r"dfm: ros2 held triggers back \(XOFF\) for the last \d+ s of the run", reason)
                   for reason in report["reasons"]), report["reasons"]


if __name__ == "__main__":
    main({
        "deaf-ros": deaf_ros,
        "killed-and-restarted": lambda evb: killed(evb, False),
        "killed-and-restarted-later": lambda evb: killed(evb, True),
        "stopped-push": lambda evb: stopped(evb, "udp"),
        "stopped-push-tcp": lambda evb: stopped(evb, "tcp"),
        "one-way-push": lambda evb: one_way(evb, "push"),
        "one-way-pull": lambda evb: one_way(evb, "pull"),
    })
