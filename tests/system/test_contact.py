#!/usr/bin/env python3
"""An SFI loses contact with its DFM, which gives its events to others. Nobody may call such a run a success.

    test_contact.py EVB [CASE...]
"""
import signal
import subprocess

from harness import Running, folder, main, need_root, scenario
from test_join import ROLES, bed

REASON = "the DFM did not acknowledge"
RESTARTED = "sfi1 was restarted with open events"


def killed(evb):
    """An SFI is killed with events that others get, and starts again, as a unit does. Its files may hold them too."""
    # The SFI starts again before the DFM notices.
    keys = {"trigger.events": 3000, "trigger.rate": "500Hz", "dfm.start-timeout": "60s",
            "dfm.node-timeout": "20s", "test.policy": "round-robin"}
    with bed(evb, keys) as b:
        b.start_all()
        b.wait_written(200_000)
        # It gets events, and cannot finish them before it is killed.
        b.processes["sfi1"].send_signal(signal.SIGSTOP)
        b.wait_written(300_000)
        b.kill("sfi1")
        b.start("sfi1")
        dfm = b.end("dfm", expect=1)
        for name in ROLES:
            if name != "dfm":
                b.end(name)
        assert dfm["triggers"] == dfm["events_complete"] == 3000, dfm
        assert any(RESTARTED in reason for reason in dfm["reasons"]), dfm
        assert "no message from sfi1" not in b.log("dfm"), b.log("dfm")


def neighbour(launcher, node, address, words):
    subprocess.run(["ip", "-n", f"evb-{launcher}-{node}", "neigh", words[0], address, *words[1:], "dev", "eth0"], check=True)


def one_way(evb):
    """An SFI hears its DFM, but the DFM does not hear it, until the end of the run."""
    need_root()
    with folder() as where:
        keys = {"scenario.duration": "8s", "trigger.events": 0, "trigger.rate": "300Hz", "ros.count": 3,
                "test.keep-alive": "100ms", "dfm.node-timeout": "2s", "dfm.start-timeout": "60s", "dfm.event-timeout": "8s", "sfi.timeout": "4s",
                "test.policy": "round-robin", "sfi.output": "file", "sfi.directory": where}
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


if __name__ == "__main__":
    main({
        "killed-and-restarted": killed,
        "one-way-push": one_way,
    })
