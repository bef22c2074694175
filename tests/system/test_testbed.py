#!/usr/bin/env python3
"""Sets up testbeds by configs/ansible, on machines with a systemd of their own.

    test_testbed.py EVB [CASE...]
"""
import contextlib
import json
import pathlib
import re
import subprocess

from harness import LIMIT_S, folder, main
from installed import need_program
from machines import Machines, confined
from test_ansible import ANSIBLE, ansible

HOSTS = {"pc-dfm": "dfm", "pc-ros1": "ros", "pc-sfi1": "sfi"}
# The run lasts until it is stopped; a machine may get no processor for a while.
SCENARIO = {"scenario": {"mode": "push"}, "trigger": {"rate": "200Hz"}, "qos": {"required": True},
            "dfm": {"start-timeout": "60s", "node-timeout": "30s"},
            "sfi": {"output": "file", "timeout": "30s", "directory": "/srv/events"}}


class Testbed(Machines):
    """Machines without evb, and an inventory of them."""

    def __init__(self, evb, where):
        need_program("ansible-playbook", "setpriv")
        super().__init__(evb, {name: {} for name in HOSTS})
        self.where = pathlib.Path(where)
        self.variables = {"evb_scenario": json.loads(json.dumps(SCENARIO)), "evb_packages": []}
        self.hosts = {name: {"evb_address": f"{self.NET}.{i}", "evb_device": "eth1"} for i, name in enumerate(HOSTS, 1)}

    def _command(self, name):
        (self.folder / f"{name}-usr").mkdir(exist_ok=True)
        command = [f"--overlay=/usr:{self.folder}/{name}-usr:/usr" if word.startswith("--overlay-ro=") else word
                   for word in super()._command(name)]
        assert command != super()._command(name), command
        return command

    def __enter__(self):
        super().__enter__()
        try:
            archive = self.where / "evb.tar.gz"
            build = next(path for path in pathlib.Path(self.evb).parents if (path / "meson-info").is_dir())
            subprocess.run([ANSIBLE / "pack.sh", archive, build], check=True, timeout=LIMIT_S)
            self.variables |= {"evb_archive": str(archive), "evb_prefix": self.installed.prefix, "ansible_connection": "machine",
                               "ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
        except BaseException:
            self.__exit__()
            raise
        return self

    def inventory(self):
        groups = {role: {"hosts": {name: {**self.hosts[name], "machine_pid": self.init(name)} for name in HOSTS if HOSTS[name] == role}}
                  for role in ("dfm", "ros", "sfi")}
        path = self.where / "inventory.json"
        path.write_text(json.dumps({"testbed": {"vars": self.variables, "children": groups}}))
        return str(path)

    def play(self, *arguments, expect=0, playbook="site.yml"):
        """Returns the output of a play, and the number of changes on each machine."""
        text = ansible(self.where, "ansible-playbook", "-i", self.inventory(), playbook, *arguments, expect=expect, limit=2 * LIMIT_S)
        return text, {name: int(n) for name, n in re.findall(r"^(\S+) +: ok=.* changed=(\d+) ", text, re.M)}

    def unit(self, name):
        return "evb-dfm" if HOSTS[name] == "dfm" else f"evb-{HOSTS[name]}@{name}"

    def processes_of(self):
        """Returns the process of each node; 0: it does not run."""
        return {name: int(self.show(name, self.unit(name), "MainPID") or 0) for name in HOSTS}

    def wait_run(self, number):
        self.wait(f"run {number}", lambda: re.match(rf"run {number} of \S+ running", self.show("pc-dfm", "evb-dfm", "StatusText")))

    def wait_ended(self):
        self.wait("end of all nodes", lambda: not any(self.processes_of().values()))


@contextlib.contextmanager
def testbed(evb):
    with folder() as where, Testbed(evb, where) as bed:
        yield bed


NOTHING = dict.fromkeys(HOSTS, 0)


def setup(evb):
    """A play sets up the testbed, and the next one changes nothing. Check mode predicts that, and changes nothing ever."""
    with testbed(evb) as bed:
        _, changes = bed.play("--check")
        assert all(changes.values()) and set(changes) == set(HOSTS), changes
        for name in HOSTS:
            left = bed.run(name, "ls -d /etc/evb /etc/sysctl.d/90-evb.conf /etc/systemd/system/evb* /srv/events", check=False)
            assert not left.stdout and not any(bed.processes_of().values()), left
        _, changes = bed.play()
        assert all(changes.values()), changes
        bed.wait_run(1)
        before = bed.processes_of()
        for arguments in ([], ["--check"]):
            text, changes = bed.play(*arguments)
            assert changes == NOTHING, text
        assert bed.processes_of() == before
        for name in HOSTS:
            assert bed.run(name, f"systemctl is-enabled {bed.unit(name)} evb.target").stdout.split() == ["enabled"] * 2
        assert bed.run("pc-sfi1", "stat --format %U /srv/events").stdout == "evb\n"


def changes(evb):
    """What changed restarts the nodes, after the run has ended in good order; what is wrong changes nothing."""
    with testbed(evb) as bed:
        bed.play()
        bed.wait_run(1)
        before = bed.processes_of()
        # A scenario that evb refuses, a subset of the testbed, an address that the machine does not have.
        bed.variables["evb_scenario"]["scenario"]["mode"] = "shove"
        text, _ = bed.play(expect=2)
        assert 'scenario.mode: invalid value \\"shove\\"' in text, text
        bed.variables["evb_scenario"]["scenario"]["mode"] = "pull"
        text, _ = bed.play("--limit", "pc-ros1", expect=2)
        assert "do not limit the hosts" in text, text
        assert bed.processes_of() == before
        # A change of the scenario and of privileges, predicted first.
        bed.variables["evb_scenario"]["qos"] = {"backend": "htb"}
        bed.variables["evb_scenario"]["network"] = {"link-rate": "1Gbit"}
        bed.variables["evb_shaping"] = True
        _, changes_ = bed.play("--check")
        assert all(changes_.values()) and bed.processes_of() == before, changes_
        bed.play()
        bed.wait_run(2)
        after = bed.processes_of()
        assert all(after[name] not in (0, before[name]) for name in HOSTS), (before, after)
        assert bed.run("pc-ros1", "tc qdisc show dev eth1").stdout.startswith("qdisc htb"), bed.journal("pc-ros1")
        # The SFI has finished the events of the first run, and written its record.
        accounts = json.loads(bed.run("pc-sfi1", "cat /srv/events/run000001*.run.json").stdout)["accounts"]
        assert accounts["events_complete"] > 0 and accounts["events_partial"] == 0, accounts
        _, changes_ = bed.play()
        assert changes_ == NOTHING and bed.processes_of() == after, changes_
        # An address that the machine does not have.
        bed.hosts["pc-ros1"]["evb_address"] = f"{bed.NET}.99"
        text, _ = bed.play(expect=2)
        assert f"{bed.NET}.99" in text and "pc-ros1" in text, text


def runs(evb):
    """A play makes a run, and fetches the reports, the records and the journals of all nodes."""
    with testbed(evb) as bed:
        bed.variables["evb_state"] = "stopped"
        bed.variables["evb_scenario"]["trigger"]["events"] = 500
        bed.play()
        assert not any(bed.processes_of().values())
        bed.play(playbook="run.yml")
        results = bed.where / "results" / "run-00000001"
        reports = {name: json.loads((results / f"{name}.json").read_text()) for name in HOSTS}
        assert reports["pc-dfm"]["events_complete"] == reports["pc-dfm"]["triggers"] == 500, reports
        assert reports["pc-sfi1"]["events_complete"] == 500 and all(report["run"] == 1 for report in reports.values()), reports
        (record,) = results.glob("*.run.json")
        assert json.loads(record.read_text())["accounts"]["events_complete"] == 500, record
        assert "run 1: all nodes are present" in (results / "pc-dfm.log").read_text()
        # A run without end is stopped; the run before it is ended first.
        del bed.variables["evb_scenario"]["trigger"]["events"]
        bed.play()
        bed.play("-e", "evb_run_seconds=2", playbook="run.yml")
        report = json.loads((bed.where / "results" / "run-00000002" / "pc-dfm.json").read_text())
        assert report["events_complete"] == report["triggers"] > 0 and not any(bed.processes_of().values()), report
        # A run that falls short fails the play, which still fetches the reports.
        bed.variables["evb_scenario"]["network"] = {"loss": 0.5}
        bed.variables["evb_scenario"]["sfi"] |= {"retries": 0, "timeout": "1s"}
        bed.variables["evb_scenario"]["trigger"]["events"] = 100
        bed.play()
        text, _ = bed.play(playbook="run.yml", expect=2)
        assert re.search(r"status 1; see .*/run-00000003/pc-dfm.log", text), text
        report = json.loads((bed.where / "results" / "run-00000003" / "pc-dfm.json").read_text())
        assert report["events_complete"] < report["triggers"] and report["reasons"], report


if __name__ == "__main__":
    confined(lambda: main({"setup": setup, "changes": changes, "runs": runs}))
