#!/usr/bin/env python3
"""Nodes that read their scenario again (SIGHUP), and apply what may change while they run.

    test_reload.py EVB [CASE...]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from harness import LIMIT_S, Running, Skip, folder, main, need_root, scenario, settings, watched
from network import sh, wait_until
from services import STOP_S, Nodes

ENDLESS = {"trigger.events": 0, "trigger.rate": "100Hz", "test.keep-alive": "50ms", "dfm.node-timeout": "60s", "dfm.start-timeout": "60s",
           "ros.count": 2, "sfi.count": 1}


def edit(path, **keys):
    """Sets keys SECTION_KEY of a file that has them all, at once as an editor does."""
    text = pathlib.Path(path).read_text()
    for key, value in keys.items():
        section, name = key.split("_", 1)
        name = name.replace("_", "-")
        text, n = re.subn(rf"(?ms)(^\[{section}\]$(?:(?!^\[).)*?^{name} =)[^\n]*$", rf"\g<1> {value}", text)
        assert n == 1, (key, n)
    replace(path, text)


def replace(path, text):
    fresh = pathlib.Path(f"{path}.new")
    fresh.write_text(text)
    fresh.rename(path)


def reload(nodes, name, *texts):
    """Sends SIGHUP, and waits until the node has logged these texts since then; returns what it logged."""
    before = len(nodes.error(name))
    nodes.signal(signal.SIGHUP, name)

    def since():
        nodes.said(name)  # an unread notice may cost the next one its place
        return nodes.error(name)[before:]

    wait_until(f"{texts} of {name}", lambda: all(t in since() for t in texts) or nodes.processes[name].poll() is not None)
    assert all(t in since() for t in texts), (texts, since())
    return since()


def end(nodes):
    nodes.signal(signal.SIGTERM, "dfm")
    ends = nodes.end()
    assert [e[0] for e in ends.values()] == [0] * len(ends), ends
    report = ends["dfm"][1]
    assert report["events_complete"] == report["triggers"] > 0, report
    return ends


def log_level(evb):
    """log.level decides what a node logs, from its start and after a reload, unless EVB_LOG is set."""
    with folder() as where, Nodes(evb, where, keys={**ENDLESS, "log.level": "warning"}) as nodes:
        nodes.start("dfm", "ros1", "sfi1")
        os.environ["EVB_LOG"] = "info"
        nodes.start("ros2")
        del os.environ["EVB_LOG"]
        nodes.wait_for_work("dfm")
        nodes.wait_for_text("ros2", "joined run")
        assert "joined run" not in nodes.error("ros1") + nodes.error("sfi1")
        edit(nodes.path, log_level="debug", sfi_retries=5)
        said = reload(nodes, "ros1", "reloaded: log.level warning -> debug\n")
        assert "sfi.retries" not in said, said
        reload(nodes, "ros1", f"sfi.retries differs in {nodes.path}, which does not concern this node\n")
        reload(nodes, "ros2", "reloaded: log.level warning -> debug, without effect: EVB_LOG or an option sets the level")
        edit(nodes.path, log_level="error")
        reload(nodes, "ros1", "reloaded: log.level debug -> error\n")
        before = nodes.error("ros1")
        edit(nodes.path, test_buffer_events=128)
        nodes.signal(signal.SIGHUP, "ros1")
        wait_until("fourth reload", lambda: nodes.said("ros1").count("READY=1\n") == 1 + 4)
        assert nodes.error("ros1") == before
        end(nodes)


def refused(evb):
    """What cannot change is named, with what to restart, and the rest is applied. Other roles' keys are of no concern."""
    with folder() as where, Nodes(evb, where, keys=ENDLESS) as nodes:
        nodes.start()
        nodes.wait_for_work("dfm")
        other = where / "other"
        other.mkdir()
        edit(nodes.path, trigger_rate="200Hz", sfi_directory=other, sfi_retries=9, scenario_mode="pull", test_buffer_events=4096, qos_rate="20Mbit")
        text = nodes.path.read_text()
        replace(nodes.path, re.sub(r"(\[node ros2\]\nrole = ros\naddress = )127", r"\g<1>126", text) + "\n[metadata]\nBeam = none\n")
        fixed, every = "but cannot change while the node runs; restart the node\n", "but cannot change while the node runs; restart all nodes\n"
        common = [f"scenario.mode differs in {nodes.path} {every}", f"test.buffer-events differs in {nodes.path} {fixed}",
                  f"[metadata] differs in {nodes.path} {fixed}"]
        said = {
            "dfm": reload(nodes, "dfm", "reloaded: trigger.rate 100Hz -> 200Hz\n", f"[node ros2] differs in {nodes.path} {every}", *common),
            "ros1": reload(nodes, "ros1", "reloaded: qos.rate auto -> 20Mbit, without effect: this node does not shape its traffic\n",
                           f"[node ros2] differs in {nodes.path} {every}", *common),
            "ros2": reload(nodes, "ros2", "reloaded: qos.rate auto -> 20Mbit, without effect", f"[node ros2] differs in {nodes.path} {fixed}", *common),
            "sfi1": reload(nodes, "sfi1", "reloaded: sfi.retries auto -> 9\n", f"sfi.directory differs in {nodes.path} {fixed}", *common),
        }
        own = {"trigger.rate": "dfm", "sfi.directory": "sfi1", "sfi.retries": "sfi1", "qos.rate": "ros"}
        for key, role in own.items():
            assert all((key in text) == name.startswith(role) for name, text in said.items()), (key, said)
        # What was applied is applied; what was refused is refused again.
        assert "reloaded: " not in reload(nodes, "dfm", *common)
        ends = end(nodes)
        assert ends["dfm"][1]["triggers"] > 0 and not list(other.iterdir())


def bad_file(evb):
    """With a file that cannot be read or is wrong, nothing changes, the reason is logged, and the node goes on."""
    nothing = "dfm: nothing was reloaded; the node goes on with its previous settings\n"
    with folder() as where, Nodes(evb, where, keys=ENDLESS) as nodes:
        good = nodes.path.read_text()
        path = nodes.path

        def expect(*texts):
            said = reload(nodes, "dfm", nothing, *texts)
            assert "reloaded: " not in said, said

        nodes.start()
        nodes.wait_for_work("dfm")
        edit(path, trigger_rate="fast", run_stop_timeout="9s")
        line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if text == "rate = fast")
        expect(f'dfm: {path}:{line}: trigger.rate: "fast" is not a frequency; expected e.g. 2kHz, or max\n')
        replace(path, good[:len(good) // 3])
        expect(f"dfm: {path}")
        replace(path, "")
        expect(f"dfm: {path}: ros.count: 0 ROSs; expected 1 to ")
        path.unlink()
        expect(f"dfm: {path}: No such file or directory\n")
        path.mkdir()
        expect(f"dfm: {path}: not a regular file\n")
        path.rmdir()
        os.mkfifo(path)
        expect(f"dfm: {path}: not a regular file\n")
        path.unlink()
        replace(path, good.replace("[node dfm]", "[node other]"))
        expect(f'dfm: {path}: node: unknown node "dfm"; expected a node with role = dfm\n')
        if os.geteuid() != 0:
            path.chmod(0)
            expect(f"dfm: {path}: Permission denied\n")
            path.chmod(0o600)
        replace(path, good)
        edit(path, trigger_rate="1kHz")
        reload(nodes, "dfm", "reloaded: trigger.rate 100Hz -> 1kHz\n")
        end(nodes)


def at_any_time(evb):
    """A reload works before the run begins, twice in a row, and while the run drains; then systemd hears of none."""
    with folder() as where, Nodes(evb, where, keys={**ENDLESS, "trigger.rate": "1Hz", "sfi.timeout": "200s", "dfm.node-timeout": "200s"}) as nodes:
        nodes.start("dfm")
        nodes.wait_for_notice("dfm", "READY=1")
        edit(nodes.path, trigger_rate="500Hz")
        reload(nodes, "dfm", "reloaded: trigger.rate 1Hz -> 500Hz\n")
        nodes.wait_for_notice("dfm", "RELOADING=1\nMONOTONIC_USEC=")
        wait_until("end of the reload", lambda: "READY=1\n" in nodes.said("dfm").partition("RELOADING=1")[2])
        stamp = int(re.search(r"MONOTONIC_USEC=(\d+)", nodes.said("dfm"))[1]) / 1e6
        assert 0 <= time.monotonic() - stamp < LIMIT_S, stamp
        edit(nodes.path, trigger_rate="1Hz")
        nodes.start("ros1", "ros2", "sfi1")
        edit(nodes.path, trigger_rate="500Hz")
        nodes.wait_for_work("dfm")
        # Signals that arrive together count once; the newest file counts.
        edit(nodes.path, trigger_rate="400Hz")
        nodes.signal(signal.SIGSTOP, "dfm")
        for _ in range(5):
            nodes.signal(signal.SIGHUP, "dfm")
        edit(nodes.path, trigger_rate="300Hz")
        nodes.signal(signal.SIGCONT, "dfm")
        nodes.wait_for_text("dfm", "reloaded: trigger.rate 500Hz -> 300Hz\n")
        for _ in range(50):
            nodes.signal(signal.SIGHUP, "dfm", "ros1", "sfi1")
        nodes.wait_for_text("dfm", "reloaded: nothing differs")
        # Events that wait for a suspended ROS do not end.
        nodes.signal(signal.SIGSTOP, "ros1")
        known = nodes.said("dfm").count("running: ")
        wait_until("two more of the DFM's statuses", lambda: nodes.said("dfm").count("running: ") >= known + 2)
        nodes.signal(signal.SIGTERM, "dfm")
        nodes.check_stop("dfm", r"finishes the open events of run \d+ of \w+")
        known = nodes.said("dfm").count("RELOADING=1")
        edit(nodes.path, trigger_rate="1kHz", run_stop_timeout="100s")
        reload(nodes, "dfm", "reloaded: trigger.rate 300Hz -> 1kHz, without effect: the run accepts no further triggers\n",
               f"reloaded: run.stop-timeout {STOP_S}s -> 100s, without effect: the run ends already\n")
        edit(nodes.path, sfi_retries=7)
        reload(nodes, "sfi1", "reloaded: sfi.retries auto -> 7\n")
        nodes.signal(signal.SIGCONT, "ros1")
        nodes.wait_for_notice("dfm", "run over")
        assert nodes.said("dfm").count("RELOADING=1") == known
        ends = nodes.end()
        assert [e[0] for e in ends.values()] == [0] * 4, ends


def shaping(evb):
    """A ROS's rate, burst and limit follow the file in the kernel; a plan that is impossible changes nothing."""
    need_root()
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")
    states = tempfile.TemporaryDirectory(prefix="evb-test-")
    os.environ["EVB_STATE_DIRECTORY"] = states.name
    with states, folder() as where:
        keys = {"qos.backend": "auto", "qos.rate": "200Mbit", "trigger.events": 0, "trigger.rate": "200Hz", "ros.count": 2, "sfi.count": 2, "network.link-rate": "1Gbit", "sfi.timeout": "30s"}
        log = where / "log"
        with open(log, "wb") as err:
            process = subprocess.Popen([evb, "run", scenario(where), "--net", "lab", "--json", *settings(watched(keys))], stdout=subprocess.PIPE, stderr=err,
                                       text=True, env={**os.environ, "EVB_LOG": "info"})
        with Running.of(process) as running:
            running.wait_nodes(5)
            running.wait_running()
            pid = running.nodes()["ros1"]
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            path = pathlib.Path(words[words.index(b"--config") + 1].decode())

            def have(node, key):
                done = sh("ip", "netns", "exec", f"evb-{running.process.pid}-{node}", evb, "qos", "status", "--dev", "eth0", "--json")
                return {d[key] for d in json.loads(done.stdout)["destinations"]}

            assert have("ros1", "rate_bps") == have("ros2", "rate_bps") == {200_000_000}
            edit(path, qos_rate="50Mbit")
            os.kill(pid, signal.SIGHUP)
            wait_until("other rate", lambda: have("ros1", "rate_bps") == {50_000_000})
            assert have("ros2", "rate_bps") == {200_000_000}
            edit(path, qos_rate="300Mbit", qos_limit="3MiB", qos_burst="150000")
            os.kill(pid, signal.SIGHUP)
            wait_until("other rate and limit", lambda: (have("ros1", "rate_bps"), have("ros1", "limit_bytes")) == ({300_000_000}, {3 << 20}))
            # The queues would drop every packet.
            edit(path, qos_burst="100", qos_backend="none")
            os.kill(pid, signal.SIGHUP)
            wait_until("refusal", lambda: "ros1: not reloaded: qos.burst " in log.read_text())
            assert have("ros1", "rate_bps") == {300_000_000} and min(have("ros1", "burst_bytes")) > 1500
            edit(path, qos_burst="auto", qos_rate="100Mbit")
            os.kill(pid, signal.SIGHUP)
            wait_until("third rate", lambda: have("ros1", "rate_bps") == {100_000_000})
            running.signal()
            out, _ = running.process.communicate(timeout=LIMIT_S)
        err = log.read_text()
        for text in ("ros1: reloaded: qos.rate 200Mbit -> 50Mbit\n", "ros1: reloaded: qos.limit auto -> 3MiB\n", "ros1: shaping eth0: 50.0 Mbit/s for each SFI: as configured",
                     "ros1: qos.backend differs in ", "ros1: reloaded: qos.rate 300Mbit -> 100Mbit\n"):
            assert text in err, (text, err)
        assert running.process.returncode == 0, (out, err)


main({"log-level": log_level, "refused": refused, "bad-file": bad_file, "at-any-time": at_any_time,
      "shaping": shaping})
