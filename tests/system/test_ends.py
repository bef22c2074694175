#!/usr/bin/env python3
"""How nodes and runs end: exit status, reasons on standard error, and signals.

    test_ends.py EVB [CASE...]
"""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import termios

from harness import LIMIT_S, QUIET, SMALL, Running, Skip, balance, complete, folder, main, need_root, scenario, settings
from network import slow_netlink, wait_until
from services import Nodes

ENDLESS = {"trigger.events": 0, "trigger.rate": "1kHz"}


def change_in_memory(pid, before, after):
    """Replaces each word `before` in a process's memory by `after` and returns the number of replacements."""
    found = 0
    maps = [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for words in maps:
            begin, end = (int(part, 16) for part in words[0].split("-"))
            if not words[1].startswith("rw") or end - begin > 16 << 20:
                continue
            memory.seek(begin)
            text = memory.read(end - begin)
            at = text.find(before)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(after)
                found += 1
                at = text.find(before, at + 1)
    return found


def corrupt_run(evb):
    """If ros2 changes its seed during `evb run`, the run ends with status 1 and the reason."""
    seed = 0x7172737475767778
    keys = {**ENDLESS, "ros.count": 3, "sfi.count": 1, "run.seed": seed}
    with folder() as where, Running(evb, scenario(where), keys) as running:
        running.wait_nodes(5)
        running.wait_running()
        try:
            assert change_in_memory(running.nodes()["ros2"], seed.to_bytes(8, "little"), (99).to_bytes(8, "little")) > 0
        except PermissionError as refusal:
            raise Skip(f"cannot write the memory of a child (ptrace): {refusal}") from refusal
        seen = ""
        while "corrupt fragment" not in seen:
            seen = running.process.stderr.readline()
            assert seen, "the run ended without a word"
        # One of 256 bytes of another seed's pattern is the same.
        assert re.match(r"sfi1: .*of ros2, byte \d+ is 0x.*expected 0x", seen), seen
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        balance(report)
        assert running.process.returncode == 1 and report["fragments"]["corrupt"] > 0, (running.process.returncode, err)
        assert report["events_complete"] == report["triggers"], report
        (last,) = [line for line in err.splitlines() if "corrupt" in line]
        assert last.startswith("evb: sfi1: ") and "are corrupt; the first: event" in last, err
        assert report["reasons"] == ["dfm: sfi1 found a fault in what it built: its own report says which", last.removeprefix("evb: ")], report["reasons"]


def no_trigger(evb):
    """A run without a trigger ends with status 1 and a reason: for a DFM alone, for nodes, for `evb run`."""
    with folder() as where, Nodes(evb, where, keys={"ros.count": 2, "sfi.count": 1}) as nodes:
        nodes.start("dfm")
        nodes.wait_for_notice("dfm", "READY=1")
        nodes.signal(signal.SIGTERM)
        status, report, error = nodes.end()["dfm"]
        text = "no trigger was accepted: stopped before the run began; ros1, ros2, sfi1 never reached this DFM"
        assert status == 1 and f"dfm: {text}\n" in error and report["reasons"] == [text], (status, error)
    with folder() as where:
        done = subprocess.run([evb, "run", scenario(where), *settings({"trigger.events": 0, "trigger.kind": "poisson",
                               "trigger.rate": "0.001Hz", "scenario.duration": "300ms", **QUIET})], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and done.stderr == "evb: no trigger was accepted: the first trigger was not due yet\n", done


def stopped_at_start(evb):
    """SIGTERM reaches a node that still reads its scenario: it ends by itself, not by the signal."""
    with folder() as where, Nodes(evb, where, keys=ENDLESS) as nodes:
        text, pipe = nodes.path.read_bytes(), where / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen([evb, "dfm", "--config", pipe, "--node", "dfm"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as dfm:

            def opened():
                with contextlib.suppress(OSError):
                    return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                return None

            end = wait_until("that the DFM opens its scenario", opened)
            dfm.send_signal(signal.SIGTERM)
            os.write(end, text)
            os.close(end)
            error = dfm.communicate(timeout=LIMIT_S)[1].decode()
        assert dfm.returncode >= 0 and "dfm: stopped by SIGTERM from process" in error, (dfm.returncode, error)


def stopped_before_begin(evb):
    """Stopping `evb run` before its nodes have connected gives status 1; no node is killed or survives."""
    # Nor is there a trigger if this test gets no processor until they have.
    keys = {**ENDLESS, **QUIET, "trigger.kind": "poisson", "trigger.rate": "0.001Hz"}
    with folder() as where, Running(evb, scenario(where), keys) as running:
        running.wait_for("first node", running.nodes)
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1, (out, err)
        stopped, reason = (line for line in err.splitlines() if line.startswith("evb: "))
        assert stopped.startswith(f"evb: stopped by SIGTERM from process {os.getpid()} "), err
        assert reason.startswith("evb: no trigger was accepted: "), err
        assert [node["signal"] for node in json.loads(out)["nodes"]] == [None] * 9, out


QUICK = {"test.keep-alive": "50ms", "dfm.node-timeout": "20s", "dfm.start-timeout": "60s", "ros.count": 3, "sfi.count": 2}


def stop_ros_first(evb):
    """A ROS stopped during triggers serves until the DFM ends the run."""
    with folder() as where, Nodes(evb, where, keys={**ENDLESS, **QUICK}) as nodes:
        nodes.start()
        for name in ("dfm", "ros1", "ros2", "ros3"):
            nodes.wait_for_notice(name, "running: ")
        nodes.signal(signal.SIGTERM, "ros1", "ros2", "ros3")
        for name in ("ros1", "ros2", "ros3"):
            nodes.check_stop(name, r"serves run \d+ of \w+ until it ends")
        # The time that is left passes, and a reload is not what stops the node.
        nodes.signal(signal.SIGHUP, "ros1")
        nodes.wait_for_less_time("ros1")
        # The DFM reports its status once per second.
        known = nodes.said("dfm").count("running: ")
        wait_until("two more of the DFM's statuses", lambda: nodes.said("dfm").count("running: ") >= known + 2)
        wait_until("1000 events", lambda: any(int(n) > 1000 for n in re.findall(r"running: (\d+) events", nodes.said("dfm"))))
        nodes.signal(signal.SIGTERM, "dfm", "sfi1", "sfi2")
        ends = nodes.end()
        report = ends["dfm"][1]
        assert [end[0] for end in ends.values()] == [0] * 6, ends
        assert report["events_complete"] == report["triggers"] > 1000, report


def stop_sfi(evb):
    """A stopped SFI finishes its events and leaves the run; no event is lost."""
    with folder() as where, Nodes(evb, where, keys={**ENDLESS, **QUICK}) as nodes:
        nodes.start()
        nodes.wait_for_work("sfi1")
        nodes.signal(signal.SIGTERM, "sfi1")
        nodes.check_stop("sfi1", r"takes no new events, and finishes its open ones in run \d+ of \w+")
        status, report, _ = nodes.end("sfi1")["sfi1"]
        assert status == 0 and report["events_complete"] > 0 and nodes.processes["dfm"].poll() is None, report
        nodes.signal(signal.SIGTERM, "dfm")
        report = nodes.end()["dfm"][1]
        assert report["events_complete"] == report["triggers"] > 0, report


def hangup_run(evb):
    """SIGHUP stops `evb run` as SIGTERM does, also if both arrive together, but not under nohup."""
    for numbers in ((signal.SIGHUP,), (signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)):
        with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
            running.wait_nodes(9)
            running.wait_running()
            # Signals that come more than a second apart are two requests.
            freeze(running.process.pid)
            for number in (*numbers, signal.SIGCONT):
                running.signal(number)
            complete(running.end(expect=(0,)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with folder() as where, Running(evb, scenario(where), {"trigger.events": 1000, "trigger.rate": "200Hz"}) as running:
        running.wait_nodes(9)
        running.wait_running()
        running.signal(signal.SIGHUP)
        report = running.end(expect=(0,))
        assert report["triggers"] == 1000, report


def terminal_closed(evb):
    """If the terminal of a foreground run closes, the run drains and reports; no node survives."""
    with at_terminal(evb) as (runner, master, out):
        pids = pathlib.Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
        os.close(master)
        assert runner.wait(LIMIT_S) == 0
        report = json.loads(out.read_text())
        balance(report)
        complete(report)
        assert len(pids) == 9 and not any(is_node(pid) for pid in pids)


@contextlib.contextmanager
def at_terminal(evb):
    """Starts a run in the foreground of its own terminal and waits until it builds events."""
    with folder() as where:
        out = where / "out.json"
        master, slave = os.openpty()
        runner = subprocess.Popen([evb, "run", scenario(where), "--json", out, *settings(ENDLESS)], stdin=slave,
                                  stdout=slave, stderr=slave, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        try:
            children = pathlib.Path(f"/proc/{runner.pid}/task/{runner.pid}/children")
            wait_until("nodes", lambda: len(children.read_text().split()) == 9)
            seen = b""
            while not re.search(rb"[1-9][\d.]*( [kM])? complete", seen):
                seen = (seen + os.read(master, 4096))[-1000:]
            yield runner, master, out
        finally:
            runner.kill()
            runner.wait()


def freeze(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until("frozen node", lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")


def wait_for_triggers(running):
    """Waits for triggers after this moment: only the second change of the counter proves them."""
    for _ in range(2):
        before = running.counter("dfm", "triggers")
        running.wait_for("triggers", lambda before=before: running.counter("dfm", "triggers") > before)


def give_up(evb):
    """A DFM that cannot finish its open events exits at run.stop-timeout and counts them as lost."""
    keys = {**ENDLESS, "trigger.rate": "100Hz", "run.stop-timeout": "1s", "sfi.count": 1}
    with folder() as where, Running(evb, scenario(where), keys) as running:
        running.wait_nodes(8)
        running.wait_running()
        ros2 = running.nodes()["ros2"]
        freeze(ros2)
        wait_for_triggers(running)
        running.signal()
        running.wait_for("end of the DFM", lambda: "dfm" not in running.nodes())
        os.kill(ros2, signal.SIGCONT)
        out, err = running.process.communicate(timeout=LIMIT_S)
        report = json.loads(out)
        balance(report)
        assert running.process.returncode == 1 and report["events_lost"] > 0, (running.process.returncode, err)
        assert f"evb: {report['events_lost']} of {report['triggers']} events are lost\n" in err, err
        assert re.search(r"^evb: lost events: .*still open when this DFM ended \(sfi1\)$", err, re.M), err


def namespaces(pid):
    folder_ = pathlib.Path("/run/netns")
    return [name for name in (os.listdir(folder_) if folder_.exists() else []) if name.startswith(f"evb-{pid}-")]


def lab_signals(evb):
    """Any signal at any time removes the namespaces of a run; no node survives."""
    need_root()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with folder() as where, Running(evb, scenario(where), {**ENDLESS, "ros.count": 2}, net="lab") as running:
            running.wait_nodes(5)
            running.wait_running()
            pids = running.nodes().values()
            assert len(namespaces(running.process.pid)) == 6
            running.signal(number)
            complete(running.end(expect=(0,)))
            assert not namespaces(running.process.pid) and not any(is_node(pid) for pid in pids)
        # The launcher has made its namespaces, and waits for the kernel to set the first rate.
        keys = {**ENDLESS, "ros.count": 2, "network.link-rate": "1Gbit"}
        with folder() as where, slow_netlink(where) as slow:
            slow.touch()
            with Running(evb, scenario(where), keys, net="lab") as running:
                running.wait_for("request to the kernel", pathlib.Path(f"{slow}.{running.process.pid}").exists)
                assert len(namespaces(running.process.pid)) == 6 and not running.nodes()
                running.signal(number)
                slow.unlink()
                out, err = running.process.communicate(timeout=LIMIT_S)
                assert not namespaces(running.process.pid)
                assert running.process.returncode == 1 and "no trigger was accepted: stopped before" in err, (out, err)


def ctrl_c(evb):
    """Ctrl-C in a terminal reaches only the launcher: open events are finished, nothing is lost, status 0."""
    with at_terminal(evb) as (runner, master, out):
        os.write(master, b"\x03")
        while True:
            with contextlib.suppress(OSError):
                if os.read(master, 4096):
                    continue
            break
        assert runner.wait(LIMIT_S) == 0
        report = json.loads(out.read_text())
        balance(report)
        complete(report)


def killed_run(evb):
    """No node survives a killed `evb run`."""
    with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
        running.wait_nodes(9)
        running.wait_running()
        pids = running.nodes().values()
        running.signal(signal.SIGKILL)
        running.process.wait(LIMIT_S)
        wait_until("end of all nodes", lambda: not any(is_node(pid) for pid in pids))


def is_node(pid):
    with contextlib.suppress(OSError):
        return b"--node" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


assert SMALL


main({"corrupt-run": corrupt_run, "no-trigger": no_trigger, "stopped-at-start": stopped_at_start, "stopped-before-begin": stopped_before_begin,
      "stop-ros-first-push": stop_ros_first,
      "stop-sfi": stop_sfi, "hangup-run": hangup_run, "terminal-closed": terminal_closed,
      "killed-run": killed_run, "lab-signals": lab_signals, "ctrl-c": ctrl_c, "give-up": give_up})
