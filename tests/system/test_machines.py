#!/usr/bin/env python3
"""Runs on six machines, each with a systemd of its own, as docs/deploy.md describes them: by units alone.

    test_machines.py EVB [CASE...]
"""
import json
import os
import pathlib
import re
import signal

from harness import ROOT, main
from machines import Machines, confined

NODES = ("pc-dfm", "pc-ros1", "pc-ros2", "pc-ros3", "pc-sfi1", "pc-sfi2")
SCENARIO = """
[scenario]
mode = push
[trigger]
rate = 500Hz
events = {events}
[ros]
fragment-size = 1000
[sfi]
output = file
directory = /var/lib/evb
timeout = 20s
[dfm]
start-timeout = 100s
node-timeout = 15s
[run]
stop-timeout = 10s
[qos]
backend = {backend}
rate = 100Mbit
[network]
link-rate = 1Gbit
[metrics]
listen = :9464
"""
DOCUMENT = (ROOT / "docs" / "deploy.md").read_text()
# Commands of the document that this test does not run: the build is older than the test, each machine has its files
# already, and the limits of sockets belong to the whole machine. test_pages.py runs evb lab list. Tests that run at the same time
# share the record of the last installation.
NOT_RUN = re.compile(r"evb lab list|scripts/|(sudo )?meson install|tar |scp |cp /usr/local/share/evb/(scenarios|sysctl\.d)/|sysctl --system|apt(-get)? |buildah |ninja |\(cd ")


def documented(command):
    assert re.search(rf"^[#$] {re.escape(command)}( +# .*)?$", DOCUMENT, re.M), f"docs/deploy.md lacks: {command}"
    return command


def commands(_):
    """Each command of the document is run here."""
    source = pathlib.Path(__file__).read_text()
    found = re.findall(r"^[#$] (.*?)(?: +# .*)?$", "\n".join(re.findall(r"^```\w*\n(.*?)^```", DOCUMENT, re.M | re.S)), re.M)
    assert len(found) > 15, found
    missing = [command for command in found if not NOT_RUN.match(command) and f'"{command}"' not in source]
    assert not missing, missing


def unit(name):
    return "evb-dfm" if name == "pc-dfm" else f"evb-{name[3:6]}@{name}"


def scenario(nodes=NODES, events=0, backend="none", **others):
    text = SCENARIO.format(events=events, backend=backend)
    return text + "".join(f"[node {name}]\nrole = {name[3:6]}\naddress = {Machines.NET}.{i}\ndevice = eth1\n{others.get(name, '')}"
                          for i, name in enumerate(nodes, 1))


def booted(evb, text, nodes=NODES, **machines):
    files = {"/etc/evb/scenario.conf": text}
    return Machines(evb, {name: {"files": files, **machines.get(name, {})} for name in nodes})


def prepare(m, nodes=NODES):
    """Makes the users and directories; a machine that boots with evb installed has them already."""
    for name in nodes:
        m.run(name, documented("systemd-sysusers evb.conf"))
        m.run(name, documented("systemd-tmpfiles --create evb.conf"))
        m.run(name, documented("systemctl daemon-reload"))
        m.run(name, documented("journalctl --update-catalog"))


def enable(m, nodes=NODES):
    for name in nodes:
        if name == "pc-ros1":
            m.run(name, documented("systemctl enable --now evb.target evb-ros@pc-ros1"))
        elif name == "pc-sfi1":
            m.run(name, documented("systemctl enable --now evb.target evb-sfi@pc-sfi1"))
        elif name == "pc-dfm":
            m.run(name, documented("systemctl enable --now evb.target evb-dfm"))
        else:
            m.run(name, f"systemctl enable --now evb.target {unit(name)}")


def disable(m):
    """Each unit is enabled until it is disabled."""
    assert m.run("pc-ros1", documented("systemctl is-enabled evb.target evb-ros@pc-ros1")).stdout.split() == ["enabled"] * 2
    m.run("pc-ros1", documented("systemctl disable evb-ros@pc-ros1"))
    done = m.run("pc-ros1", "systemctl is-enabled evb.target evb-ros@pc-ros1", check=False)
    assert done.stdout.split() == ["enabled", "disabled"], done


def start(m, nodes=NODES):
    for name in nodes:
        m.run(name, documented("systemctl start evb.target"))


def wait_logged(m, name, text, *arguments):
    """The journal gets a message after it was sent."""
    m.wait(f"{text!r} of {name}", lambda: text in m.journal(name, *arguments))


def wait_begun(m, run):
    wait_logged(m, "pc-dfm", f"run {run}: all nodes are present")


def wait_over(m, nodes=NODES, failed=()):
    """Waits until all units have ended; those of `failed` with exit status 1."""
    m.wait("end of all units", lambda: all(m.show(name, unit(name), "ActiveState") in ("inactive", "failed") for name in nodes))
    for name in nodes:
        result, status = (m.show(name, unit(name), key) for key in ("Result", "ExecMainStatus"))
        assert (result, status) == (("exit-code", "1") if name in failed else ("success", "0")), (name, result, status, m.journal(name))


def events_in_files(m):
    """Verifies all event files, and returns how many events they hold."""
    events = 0
    for name in NODES:
        if name.startswith("pc-sfi"):
            output = m.run(name, documented("for file in /var/lib/evb/*.data; do evb dump --verify $file; done")).stdout
            assert output.count("no faults") == len(re.findall(r"^\s*pattern: \d+ fragments .* 0 wrong$", output, re.M)) > 0, output
            events += sum(int(n) for n in re.findall(r"^\s*pattern: (\d+) fragments", output, re.M)) / 3
    return events


def wait_written(m, sfi, size):
    folder = f"/proc/{m.init(sfi)}/root/var/lib/evb"
    m.wait(f"{size} bytes of events", lambda: sum(p.stat().st_size for p in pathlib.Path(folder).glob("*.writing")) > size)


def main_pid(m, name, what=None):
    """Returns the PID that a unit's process has here."""
    inside = m.show(name, what or unit(name), "MainPID")
    for path in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            numbers = re.search(r"^NSpid:\t(.*)$", path.read_text(), re.M)[1].split("\t")
            same = os.readlink(path.parent / "ns" / "pid") == os.readlink(f"/proc/{m.init(name)}/ns/pid")
        except OSError:
            continue
        if same and numbers[-1] == inside:
            return int(path.parent.name)
    raise AssertionError(f"{what or unit(name)} of {name} has no process: {m.journal(name)}")


def check_confined(pid, capabilities=0):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    values = dict(re.findall(r"^(\w+):\t(\S+)", status, re.M))
    assert int(values["Uid"]) > 0 and values["Seccomp"] == "2" and values["NoNewPrivs"] == "1", status
    assert int(values["CapEff"], 16) == int(values["CapBnd"], 16) == capabilities, status


def writes_past_the_page_cache(m, name):
    """Makes an SFI write by io_uring, if this kernel can: its system calls are beyond what most services need."""
    try:
        with open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as disabled:
            if disabled.read().strip() != "0":
                return False
        os.close(os.open(m.root(name) / "var" / "direct", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    m.run(name, "echo EVB_OPTIONS=--set sfi.page-cache=bypass >/etc/evb/sfi.env")
    return True


def has_uring(pid):
    return any(os.readlink(link) == "anon_inode:[io_uring]" for link in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def reload(m, name):
    before = m.show(name, unit(name), "MainPID")
    m.run(name, f"systemctl reload {unit(name)}")
    m.wait(f"reload of {name}", lambda: "reloaded: nothing differs" in m.journal(name))
    assert m.show(name, unit(name), "MainPID") == before and m.show(name, unit(name), "ActiveState") == "active", m.journal(name)


def runs(evb):
    """Three runs, started by the target: the first ends by itself, then evb-dfm is stopped, then every machine's target."""
    with booted(evb, scenario(events=1000, **{"pc-sfi1": "cpus = 0\n"})) as m:
        prepare(m)
        m.run("pc-ros1", documented("runuser -u evb -- evb check /etc/evb/scenario.conf --node pc-ros1"))
        for name in NODES:
            m.run(name, f"runuser -u evb -- evb check /etc/evb/scenario.conf --node {name}")
        enable(m)
        wait_begun(m, 1)
        wait_over(m)
        # As docs/operate.md asks them.
        for command in ("systemctl status evb-dfm", "journalctl -u evb-dfm -u 'evb-*@*' --since -10min", "journalctl -u 'evb-*' -p warning",
                        "journalctl EVB_RUN=1"):
            m.run("pc-dfm", command, check=False)
        assert "run 1 has begun" in m.run("pc-dfm", "journalctl EVB_RUN=1").stdout, m.journal("pc-dfm")
        assert "Subject: Run 1 has begun on pc-dfm" in m.run("pc-dfm", "journalctl -u evb-dfm -x").stdout
        wait_logged(m, "pc-dfm", "run 1 ended: 1000 triggers = 1000 complete + 0 partial + 0 lost")
        assert events_in_files(m) == 1000

        # The next runs do not end by themselves. The target is still active, and starts what has ended.
        m.run("pc-dfm", "echo EVB_OPTIONS=--set trigger.events=0 >/etc/evb/dfm.env")
        direct = writes_past_the_page_cache(m, "pc-sfi1")
        start(m)
        wait_begun(m, 2)
        for name in NODES:
            check_confined(main_pid(m, name))
            reload(m, name)
        assert "cannot use processor" not in m.journal("pc-sfi1"), m.journal("pc-sfi1")
        m.wait("an answer of all nodes", lambda: m.run("pc-ros1", documented("evb status --config /etc/evb/scenario.conf"), check=False).returncode == 0)
        assert has_uring(main_pid(m, "pc-sfi1")) == direct, m.journal("pc-sfi1")
        wait_written(m, "pc-sfi1", 100_000)
        m.run("pc-ros1", documented("systemctl status 'evb-*'"))
        # The scenario has no control.listen: the unit's socket takes commands, without an option.
        assert "state      running" in m.run("pc-dfm", "evb ctl status").stdout
        assert m.run("pc-dfm", "stat -c '%a %U %G' /run/evb/control.sock").stdout == "660 evb evb\n"
        m.run("pc-dfm", documented("systemctl stop evb-dfm"))
        wait_over(m)

        start(m)
        wait_begun(m, 3)
        wait_written(m, "pc-sfi2", 100_000)
        for name in NODES:
            m.run(name, documented("systemctl stop evb.target"))
        wait_over(m)
        wait_logged(m, "pc-dfm", "run 3 ended: ")
        ended = re.findall(r"ended: (\d+) triggers = (\d+) complete \+ 0 partial \+ 0 lost", m.journal("pc-dfm"))
        assert len(ended) == 3 and all(n == done for n, done in ended), m.journal("pc-dfm")
        assert events_in_files(m) == sum(int(n) for n, _ in ended), ended
        disable(m)


def came_back(m, name):
    return f"{name} has restarted" in m.journal("pc-dfm")


def faults(evb):
    """Killed nodes and a rebooted machine come back into the run; a full disk ends it, with the reason in the journals."""
    # The disk has room for minutes of events.
    with booted(evb, scenario().replace("rate = 500Hz", "rate = 100Hz"), **{"pc-sfi2": {"disk": "24M"}}) as m:
        enable(m)
        wait_begun(m, 1)
        os.kill(main_pid(m, "pc-ros2"), signal.SIGKILL)
        m.wait("return of pc-ros2", lambda: came_back(m, "pc-ros2"))
        assert m.show("pc-ros2", unit("pc-ros2"), "NRestarts") == "1", m.journal("pc-ros2")

        # A killed SFI comes back too. It leaves its file, which can be repaired.
        wait_written(m, "pc-sfi1", 100_000)
        os.kill(main_pid(m, "pc-sfi1"), signal.SIGKILL)
        m.wait("return of pc-sfi1", lambda: came_back(m, "pc-sfi1"))
        m.run("pc-sfi1", "evb dump /var/lib/evb/*_0001.writing --repair")

        # As if the power failed. Its unit starts at boot.
        init = m.init("pc-ros3")
        m.run("pc-ros3", "systemctl reboot --force --force", check=False)
        m.wait_booted("pc-ros3", after=init)
        m.wait("return of pc-ros3", lambda: came_back(m, "pc-ros3"))
        assert m.show("pc-dfm", unit("pc-dfm"), "ActiveState") == "active", m.journal("pc-dfm")

        wait_written(m, "pc-sfi2", 100_000)
        m.run("pc-sfi2", "cat /dev/zero >/var/lib/evb/filler", check=False)
        wait_over(m, failed=("pc-dfm", "pc-sfi2"))
        errors = documented("journalctl -u 'evb-*' -p err")
        m.wait("the reason of the SFI", lambda: "pc-sfi2: its output failed: No space left on device" in m.run("pc-sfi2", errors).stdout)
        wait_logged(m, "pc-dfm", "the output of pc-sfi2 failed", "-p", "err", "-u", "evb-dfm")
        assert events_in_files(m) > 0

        # The operator makes room.
        m.run("pc-sfi2", "rm /var/lib/evb/filler")
        start(m)
        wait_begun(m, 2)


def shape_of(m, name):
    return json.loads(m.run(name, "evb qos status --dev eth1 --json").stdout)


def shaping(evb):
    """A ROS shapes with its drop-in only, and a killed one leaves nothing behind; evb-qos@ shapes for any program."""
    nodes = ("pc-dfm", "pc-ros1", "pc-sfi1")
    other = "pc-other"
    with booted(evb, scenario(nodes, backend="auto"), (*nodes, other)) as m:
        enable(m, ("pc-dfm", "pc-sfi1"))
        assert m.run("pc-ros1", "systemctl enable --now evb.target evb-ros@pc-ros1", check=False).returncode in (0, 1)
        m.wait("end without the drop-in", lambda: m.show("pc-ros1", unit("pc-ros1"), "ExecMainStatus") == "77")
        assert m.show("pc-ros1", unit("pc-ros1"), "NRestarts") == "0", m.journal("pc-ros1")
        m.run("pc-ros1", documented("cp -rs /usr/local/share/evb/systemd/evb-ros@.service.d /etc/systemd/system/"))
        m.run("pc-ros1", documented("systemctl daemon-reload"))
        m.run("pc-ros1", "evb check /etc/evb/scenario.conf --node pc-ros1")
        start(m, nodes)
        wait_begun(m, 1)
        m.wait("shaping of the ROS", lambda: shape_of(m, "pc-ros1")["destinations"])
        assert [d["address"] for d in shape_of(m, "pc-ros1")["destinations"]] == [f"{Machines.NET}.3"], shape_of(m, "pc-ros1")
        check_confined(main_pid(m, "pc-ros1"), capabilities=1 << 12)  # CAP_NET_ADMIN
        os.kill(main_pid(m, "pc-ros1"), signal.SIGKILL)
        m.wait("removal after a kill", lambda: re.search("eth1: [1-9][0-9]* changes", m.journal("pc-ros1")))
        m.wait("return of pc-ros1", lambda: came_back(m, "pc-ros1"))
        m.wait("shaping again", lambda: shape_of(m, "pc-ros1")["destinations"])
        m.run("pc-dfm", "systemctl stop evb-dfm")
        m.wait("end", lambda: m.show("pc-ros1", unit("pc-ros1"), "ActiveState") in ("inactive", "failed"))
        assert shape_of(m, "pc-ros1")["backend"] == "none", m.journal("pc-ros1")

        m.run("pc-ros1", documented("systemctl disable --now evb.target evb-ros@pc-ros1"))
        m.run("pc-ros1", documented("systemctl stop 'evb-*'"))
        m.run("pc-ros1", documented(
            "rm -rf /etc/evb /etc/systemd/system/evb-ros@.service.d /etc/sysctl.d/90-evb.conf"))
        m.run("pc-ros1", "systemctl daemon-reload")
        assert m.run("pc-ros1", "find /etc -name 'evb*'").stdout == "", m.run("pc-ros1", "find /etc -name 'evb*'")

        # For any program: without its file, the unit says so and tries again.
        assert m.run(other, "systemctl start evb-qos@eth1", check=False).returncode != 0
        wait_logged(m, other, "EVB_QOS is not set; write the options of evb-qos apply into /etc/evb/qos-eth1.env")
        m.run(other, documented("echo 'EVB_QOS=--dest 192.168.69.3=20Mbit --link-rate 1Gbit' >/etc/evb/qos-eth1.env"))
        m.run(other, documented("systemctl enable --now evb.target evb-qos@eth1"))
        status = json.loads(m.run(other, "evb qos status --dev eth1 --json").stdout)
        assert [(d["address"], d["rate_bps"]) for d in status["destinations"]] == [("192.168.69.3", 20_000_000)], status
        m.run(other, documented("evb qos status --dev eth1"))
        watch = main_pid(m, other, "evb-qos@eth1")
        check_confined(watch, capabilities=1 << 12)
        m.wait("watching", lambda: "eth1: watching" in m.journal(other))
        # This tc does not end before its name has been read in /proc.
        m.run(other, "mkfifo /run/orders && (tc -batch /run/orders >/dev/null 2>&1 </dev/null &)")
        with open(f"/proc/{m.init(other)}/root/run/orders", "w", encoding="ascii") as orders:
            orders.write("qdisc del dev eth1 root\n")
            orders.flush()
            m.wait("repair", lambda: "eth1: repaired" in m.journal(other))
        assert "eth1: root qdisc htb e7b: is missing, by tc (process " in m.journal(other), m.journal(other)
        assert [d["rate_bps"] for d in shape_of(m, other)["destinations"]] == [20_000_000]
        os.kill(watch, signal.SIGKILL)
        m.wait("restart", lambda: m.journal(other).count("eth1: watching") == 2)
        assert [d["rate_bps"] for d in shape_of(m, other)["destinations"]] == [20_000_000]
        m.run(other, documented("systemctl stop evb-qos@eth1"))
        assert shape_of(m, other)["backend"] == "none", m.journal(other)


if __name__ == "__main__":
    confined(lambda: main({"commands": commands, "runs": runs, "faults": faults, "shaping": shaping}))
