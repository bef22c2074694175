#!/usr/bin/env python3
"""Runs configs/slurm/evb.sbatch on a Slurm cluster of nine nodes, which are network namespaces of this machine.

    test_slurm.py EVB [CASE...]
"""
import contextlib
import json
import shutil
import subprocess

from harness import LIMIT_S, ROOT, folder, main
from network import wait_until
from slurm import DATA_NET, NET, Cluster

SLURM = ROOT / "configs" / "slurm"
ROSS, SFIS = [f"ros{i}" for i in range(1, 7)], ["sfi1", "sfi2"]
NODES = ["dfm", *ROSS, *SFIS]
# A machine that runs nine nodes and Slurm may give one of them no processor for a while.
PATIENT = {"duration = 60s": "", "[ros]": "[sfi]\ntimeout = 30s\n[ros]", "[dfm]": "[dfm]\nnode-timeout = 30s"}
SHORT = {**PATIENT, "rate = 2kHz": "rate = 2kHz\nevents = 2000"}


class Bed(Cluster):
    """The cluster, with a scenario of its own, and jobs."""

    def __init__(self, evb, where, changes):
        super().__init__(where, *NODES)
        self.evb, self.output = evb, self.where / "evb.log"
        self.scenario, self.results = self.where / "scenario.conf", self.where / "results"
        self.write(changes)

    def write(self, changes):
        text = (SLURM / "6x2.conf").read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        self.scenario.write_text(text)

    def submit(self, *options, script=SLURM / "evb.sbatch", arguments=None, **environment):
        """Submits the job, and returns its number."""
        done = self.client("sbatch", "--parsable", f"--output={self.output}", *options, str(script),
                           *(arguments or [str(self.scenario), str(self.results)]), environment={"EVB_PROGRAM": self.evb, **environment})
        return int(done.stdout.split(";")[0])

    def text(self):
        return self.output.read_text() if self.output.exists() else ""

    def wait_running(self, job):
        """Waits until the DFM has begun the run."""
        def begun():
            assert self.state(job)[0] in ("PENDING", "CONFIGURING", "RUNNING"), f"{self.state(job)}: {self.text()}{self.logs()}"
            return "all nodes are present" in self.text()

        wait_until(f"run of job {job}", begun)

    def report(self):
        return json.loads((self.results / "report.json").read_text())

    def whole(self, job, status=0):
        """Checks the report of a job whose nodes all ended, and returns the nodes' reports by name."""
        report = self.report()
        assert (report["job"], report["status"], report["missing"]) == (job, status, []), (report, self.text())
        nodes = {node["name"]: node for node in report["nodes"]}
        assert list(nodes) == NODES and all(node["run"] == job for node in report["nodes"]), report
        return nodes


@contextlib.contextmanager
def bed(evb, changes=None):
    with folder() as where, Bed(evb, where, SHORT if changes is None else changes) as b:
        try:
            yield b
        except BaseException:
            print(b.text(), b.logs())
            raise


def built(nodes):
    """Checks that all triggers were built, by both SFIs together, and returns their number."""
    dfm = nodes["dfm"]
    assert dfm["events_complete"] == dfm["triggers"] > 0 and dfm["reasons"] == [], dfm
    assert sum(nodes[name]["events_complete"] for name in SFIS) == dfm["triggers"], nodes
    assert all(nodes[name]["fragments_sent"] >= dfm["triggers"] for name in ROSS), nodes
    return dfm["triggers"]


def addresses(b, net):
    text = (b.results / "scenario.conf").read_text()
    return [f"[node {name}]\nrole = {name.rstrip('0123456789')}\naddress = {net}.{i}\n" in text for i, name in enumerate(NODES, 1)]


def run(evb):
    """The job makes a run of six ROSs and two SFIs on the nodes of its allocation, and ends with its status."""
    with bed(evb) as b:
        job = b.submit()
        assert b.wait_end(job) == ("COMPLETED", 0), b.text()
        assert built(b.whole(job)) == 2000
        assert all(addresses(b, NET)), (b.results / "scenario.conf").read_text()
        # One after the other, jobs do not know of each other.
        job = b.submit(arguments=[str(b.scenario), str(b.where / "second")])
        assert b.wait_end(job) == ("COMPLETED", 0), b.text()
        assert json.loads((b.where / "second" / "report.json").read_text())["job"] == job


def data_network(evb):
    """Nodes use the addresses of another network if their names there have a suffix."""
    with bed(evb) as b:
        job = b.submit(EVB_HOST_SUFFIX="-data", EVB_DEVICE="eth0")
        assert b.wait_end(job) == ("COMPLETED", 0), b.text()
        assert built(b.whole(job)) == 2000
        assert all(addresses(b, DATA_NET)) and (b.results / "scenario.conf").read_text().count("device = eth0\n") == len(NODES)
        job = b.submit(EVB_HOST_SUFFIX="-nowhere")
        assert b.wait_end(job) == ("FAILED", 2), b.text()
        assert "node dfm has no address; check EVB_HOST_SUFFIX=-nowhere" in b.text(), b.text()


def cancelled(evb):
    """scancel lets the nodes finish open events; the report is complete."""
    with bed(evb, PATIENT) as b:
        job = b.submit()
        b.wait_running(job)
        b.client("scancel", str(job))
        assert b.wait_end(job)[0] == "CANCELLED"
        # The state changes before the script has ended.
        wait_until("end of the script", lambda: "the run ended with status" in b.text())
        built(b.whole(job))


def time_limit(evb):
    """Before the time limit, the job stops the run in good order, and ends with its status."""
    with bed(evb, PATIENT) as b:
        script = b.where / "short.sbatch"
        script.write_text((SLURM / "evb.sbatch").read_text().replace("--time=00:10:00", "--time=00:02:00"))
        job = b.submit(script=script)
        end = b.wait_end(job)
        assert end == ("COMPLETED", 0), (end, b.text())
        assert "the time limit is near; stopping the run" in b.text(), b.text()
        built(b.whole(job))


def stopped_once(evb):
    """A node that is stopped, and still closes its files when the DFM fails, is not stopped again."""
    with bed(evb, PATIENT) as b:
        program = b.where / "evb"
        program.write_text(f"#!/bin/sh\ntrap : TERM\n{b.evb} \"$@\"\nstatus=$?\ncase $1 in dfm) exit 3 ;; sfi) sleep 3 ;; esac\nexit $status\n")
        program.chmod(0o755)
        job = b.submit(EVB_PROGRAM=str(program))
        b.wait_running(job)
        b.client("scancel", "--batch", "--signal=USR1", str(job))
        assert b.wait_end(job) == ("FAILED", 3), b.text()
        assert "dfm failed; stopping the run" in b.text(), b.text()
        # One to the script, one to the nodes.
        assert b.logs().count("REQUEST_KILL_JOB") == 2, b.logs()


def failing(b, nodes, late=False):
    """Writes a program that fails on some nodes; the others may be late."""
    program = b.where / "evb"
    # check is for the script.
    wait = "case $1 in check) ;; *) sleep 20 ;; esac\n" if late else ""
    program.write_text(f"#!/bin/sh\ncase $1-$SLURMD_NODENAME in {'|'.join(nodes)}) exit 3 ;; esac\n{wait}exec {b.evb} \"$@\"\n")
    program.chmod(0o755)
    return str(program)


def failed_node(evb):
    """If a node fails to start, the run begins without it, and the job fails with its status."""
    with bed(evb, {**SHORT, "start-timeout = 60s": "start-timeout = 20s"}) as b:
        job = b.submit(EVB_PROGRAM=failing(b, ["ros-ros3"]))
        assert b.wait_end(job) == ("FAILED", 3), b.text()
        report = b.report()
        assert report["missing"] == ["ros3"] and report["status"] == 3, report
        assert report["nodes"][0]["triggers"] > 0 and report["nodes"][0]["reasons"], report


def failed_role(evb):
    """If no ROS starts, or no DFM, the job ends by itself: the others do not wait until the time limit."""
    for nodes, late in ((["ros-*"], False), (["dfm-*"], False), (["ros-*"], True)):
        with bed(evb) as b:
            job = b.submit(EVB_PROGRAM=failing(b, nodes, late))
            # Its status is the first cause, also if the signal to stop kills the others before evb has begun there.
            assert b.wait_end(job) == ("FAILED", 3), b.text()
            missing = b.report()["missing"]
            assert {name for name in NODES if late or name.startswith(nodes[0][:3])} <= set(missing), missing


def mistakes(evb):
    """Wrong arguments end the job at once, with a reason."""
    with bed(evb) as b:
        (b.where / "own.conf").write_text("[node a]\nrole = dfm\naddress = 10.9.0.1\n")
        (b.where / "bad.conf").write_text("[scenario]\nmode = shove\n")
        (b.where / "file").write_text("")
        for arguments, error in (
                ([str(b.where / "own.conf")], "own.conf has [node NAME] sections; remove them"),
                ([str(b.where / "none.conf")], "cannot read the scenario"),
                ([str(b.where / "bad.conf"), str(b.where / "bad")], 'scenario.mode: invalid value "shove"'),
                ([str(b.scenario), str(b.where / "file")], "cannot make the directory"),
                ([str(b.scenario), "a", "b"], "expected SCENARIO [RESULTS], but got 3 arguments")):
            job = b.submit(f"--chdir={b.where}", arguments=arguments)
            assert b.wait_end(job) == ("FAILED", 2), (arguments, b.state(job), b.text())
            assert error in b.text(), (error, b.text())
        # Not as a job of three components.
        done = subprocess.run([shutil.which("bash"), str(SLURM / "evb.sbatch"), str(b.scenario)], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and "submit it with: sbatch evb.sbatch SCENARIO" in done.stderr, done


main({"run": run, "data-network": data_network, "cancelled": cancelled, "time-limit": time_limit, "stopped-once": stopped_once,
      "failed-node": failed_node, "failed-role": failed_role, "mistakes": mistakes})
