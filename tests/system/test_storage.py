#!/usr/bin/env python3
"""A complete event is in a file, whatever kills the SFI or delays its disk.

    test_storage.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time

from harness import (LIMIT_S, OWN_NET, Running, Skip, balance, made, complete, drop_root, folder, main, mounted, run, scenario,
                     settings, watched)

SLOW_DISK = str(made("slow_disk.so"))
# The death of the SFI is noticed soon, but no node counts as dead that gets no processor for a while.
QUICK = {"dfm.node-timeout": "5s", "dfm.start-timeout": "60s", "test.keep-alive": "50ms", 
         "sfi.timeout": "30s"}
# Processes that get no processor time for a while lose no event.
PATIENT = {"dfm.node-timeout": "20s", "sfi.timeout": "30s"}


def to_files(where, events=0, **others):
    """Returns settings for one SFI that writes files; without a number of events it runs until stopped."""
    # A fixed run number avoids access to a disk that the test may block.
    return {"sfi.count": 1, "sfi.output": "file", "sfi.directory": where, "trigger.events": events, "run.number": 7,
            **{name.replace("_", ".", 1).replace("_", "-"): value for name, value in others.items()}}


def wait_for(condition, pause_s=0.01):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(pause_s)


def dump(evb, *arguments):
    done = subprocess.run([evb, "dump", *map(str, arguments), "--json"], capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def holds_events(evb, where, files):
    """Returns whether a file that is being written holds events. Its end looks damaged during a write."""
    for path in where.glob(files):
        done = subprocess.run([evb, "dump", path, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode in (0, 1) and done.stdout and json.loads(done.stdout)["events"] > 0:
            return True
    return False


def verified(evb, path):
    """Verifies a file and returns its events."""
    shown = dump(evb, path, "--verify")
    assert shown["verify"]["right"], shown
    return shown["events"]


class Disk:
    """A disk that can be blocked; `env` makes a program use it."""

    def __init__(self, where, shut=False):
        self.folder = pathlib.Path(where) / "disk"
        self.folder.mkdir()
        self.env = {**os.environ, "LD_PRELOAD": SLOW_DISK, "EVB_TEST_DISK": str(self.folder),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        if shut:
            self.shut()

    def shut(self):
        (self.folder / "shut").touch()

    def open(self):
        (self.folder / "shut").unlink()

    def break_calls(self, *calls):
        (self.folder / "broken").write_text("".join(f"{call}\n" for call in calls))

    def is_waiting(self):
        return (self.folder / "waiting").exists()

    def forget(self):
        (self.folder / "waiting").unlink(missing_ok=True)

    def calls(self):
        return (self.folder / "calls").read_text().split()


def kill(running, node):
    pid = running.nodes()[node]
    os.kill(pid, signal.SIGKILL)
    running.wait_for("death", lambda: node not in running.nodes())


def need_direct(where):
    try:
        os.close(os.open(where, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT))
    except OSError as e:
        raise Skip(f"no direct writes to {where}: {e}") from e


def killed_at_5_hz(evb, **others):
    """No complete event is missing from the files, however few events follow."""
    with folder() as where, Running(evb, scenario(where), {**to_files(where, trigger_rate="5Hz", **others),
                                                           **QUICK}) as running:
        running.wait_nodes(8)
        running.wait_for("5 events", lambda: running.counter("dfm", "events_complete") >= 5)
        kill(running, "sfi1")
        report = running.end(expect=(1,))
        (path,) = where.glob("*.writing")
        dump(evb, path, "--repair")
        assert verified(evb, path) >= report["events_complete"] >= 5, report


def watch_until(running, where, size_bytes):
    """Follows a file until it should have that size. Returns samples of the events that DFM and SFI report as complete, and the
    size that the file had afterwards."""
    running.wait_for("file", lambda: running.counter("sfi1", "file_bytes") > 0)
    (path,) = where.glob("*.writing")
    samples = []

    def grown():
        written = running.counter("sfi1", "file_bytes")
        events = [running.counter(node, "events_complete") for node in ("sfi1", "dfm")]
        samples.append((max(events), os.path.getsize(path)))
        assert samples[-1][1] >= written, (samples[-1], written)
        return written >= size_bytes and all(events)

    wait_for(grown, pause_s=0.001)
    return path, samples


def killed_at_max(evb, **others):
    """While an SFI writes as fast as it can, and after it was killed, its file holds all events and bytes that it had counted."""
    with folder() as where:
        if others:
            need_direct(where)
        keys = {**to_files(where, trigger_rate="max", **others), **QUICK, **PATIENT, "dfm.node-timeout": "8s"}
        with Running(evb, scenario(where), keys) as running:
            running.wait_nodes(8)
            # More than both buffers of the writer hold.
            path, samples = watch_until(running, where, 16 << 20)
            kill(running, "sfi1")
            report = running.end(expect=(1,))
        assert list(where.glob("*.data")) == [] and list(where.glob("*.writing")) == [path]
        # Its last counts, which the launcher reads.
        (sfi,) = (node for node in report["nodes"] if node["role"] == "sfi")
        written, built = sfi["file_bytes"], sfi["events_complete"] + sfi["events_partial"]
        dump(evb, path, "--repair")
        # Whole events, as far as the counter says.
        size_bytes, held = os.path.getsize(path), verified(evb, path)
        assert size_bytes >= written >= 16 << 20, (size_bytes, written)
        assert held >= built > 0, (held, built)
        assert held >= report["events_complete"] + report["events_partial"] > 0, (held, report["events_complete"])
        # Events have a multiple of 4 bytes; the front of the file is short beside that many.
        event_bytes = size_bytes // held // 4 * 4
        ahead = [sample for sample in samples if sample[0] * event_bytes > sample[1]]
        assert not ahead, (event_bytes, ahead[:3])


def no_silence_needed(evb):
    """Even without durability, events reach the file within a bounded time under continuous load."""
    with folder() as where, Running(evb, scenario(where), to_files(
            where, sfi_durability="none", trigger_rate="5Hz")) as running:
        running.wait_nodes(8)
        running.wait_for("event in a file", lambda: holds_events(evb, where, "*.writing"))
        running.signal()
        complete(running.end(expect=(0,)))


def write_limit(evb, **others):
    """When the file size limit stops the file, every event that is not lost is in it."""
    limit = 6 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with folder() as where:
        report = run(evb, scenario(where), {**to_files(where, trigger_rate="5kHz", **others), **QUICK, **PATIENT}, expect=1,
                     preexec_fn=limited)
        check_lost(evb, report)


def check_lost(evb, report):
    (path,) = report["files"]
    assert path.endswith(".data")
    built = report["events_complete"] + report["events_partial"]
    assert verified(evb, path) == built == report["events_stored"] > 0, report
    assert report["events_lost"] > 0, report


def full_disk(evb, **others):
    """When the disk is full, every event that is not lost is in the file."""
    with mounted("tmpfs") as (where, disk):
        if others:
            need_direct(disk)
        keys = {**to_files(disk, trigger_rate="5kHz", **others), **QUICK, **PATIENT}
        check_lost(evb, run(evb, scenario(where), keys, expect=1))


def no_direct(evb):
    """A file system without direct writes is a configuration error: status 2 at start, and a message that names the key."""
    with mounted("ramfs") as (where, disk):
        path = scenario(where, f"[sfi]\noutput = file\npage-cache = bypass\ndirectory = {disk}\n"
                        f"[node dfm]\nrole = dfm\naddress = {OWN_NET}.1\n[node ros1]\nrole = ros\naddress = {OWN_NET}.2\n"
                        f"[node sfi1]\nrole = sfi\naddress = {OWN_NET}.3\n")
        done = subprocess.run([evb, "sfi", "--config", path, "--node", "sfi1"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and f"sfi.page-cache = bypass: the file system of {disk} cannot" in done.stderr, done
        assert not list(disk.iterdir())


def direct(evb):
    """Direct writes make the same files, also of events that are larger than the buffer, and with syncs."""
    for keys in ({}, {"ros_fragment_size": "1MiB"}, {"sfi_durability": "synced"}, {"sfi_durability": "none"},
                 {"ros_fragment_size": "lognormal:300KiB,1"}):
        with folder() as where:
            need_direct(where)
            report = run(evb, scenario(where), to_files(where, 40, sfi_file_events=15, sfi_write_direct="yes", **keys))
            complete(report)
            assert [verified(evb, path) for path in sorted(report["files"])] == [15, 15, 10], report


def slow_disk(evb, does):
    """While the disk takes nothing, the DFM holds triggers back, or the SFI drops built events, by choice. Memory is bounded."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = {**to_files(where, sfi_file_events=300, trigger_rate="2kHz", sfi_credits=40, sfi_slow_disk=does),
                "dfm.node-timeout": "60s"}
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(8)
            running.wait_for("sealing", disk.is_waiting)
            if does == "drop":
                running.wait_for("drops", lambda: running.counter("sfi1", "events_not_written") >= 1000)
                running.wait_for("lost events", lambda: running.counter("dfm", "events_lost") > 0)
            else:
                running.wait_for("busy DFM", lambda: running.counter("dfm", "busy_seconds") > 0)
                assert running.counter("dfm", "events_complete") <= 300
            disk.open()
            before = running.counter("dfm", "events_complete")
            running.wait_for("events", lambda: running.counter("dfm", "events_complete") >= before + 300)
            running.signal()
            report = running.end(expect=(1 if does == "drop" else 0,))
            balance(report)
            (sfi,) = (node for node in report["nodes"] if node["role"] == "sfi")
            assert sum(verified(evb, path) for path in report["files"]) == report["events_complete"], report
            assert report["events_lost"] == sfi["events_not_written"], report
            if does == "drop":
                assert sfi["events_not_written"] >= 1000, report
                why = f"dropped {sfi['events_not_written']} built events because the disk was slow"
                assert any(why in reason for reason in report["reasons"]), report["reasons"]
            else:
                complete(report)


def counts_differ(evb):
    """Without durability, complete events can be missing from files; accounts and exit status show it."""
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    with folder() as where:
        keys = {**to_files(where, trigger_rate="5kHz", sfi_durability="none"), **QUICK, **PATIENT}
        done = subprocess.run([evb, "run", scenario(where), "--json", *settings(keys)], capture_output=True,
                              text=True, timeout=LIMIT_S, preexec_fn=limited)
        report = json.loads(done.stdout)
        (path,) = report["files"]
        stored = verified(evb, path)
        assert done.returncode == 1 and report["balanced"] is False, done
        assert report["events_complete"] > stored == report["events_stored"], report
        assert f"but {stored} in its closed files" in done.stderr, done.stderr
        missing = f"sfi1: {report['events_complete'] - stored} events? that it reported as built w(as|ere) not written, because sfi.durability is none"
        assert any(re.fullmatch(missing, reason) for reason in report["reasons"]), report["reasons"]


def synced(evb):
    """With `synced`, events become complete only after the disk has confirmed them."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = to_files(where, sfi_durability="synced", sfi_credits=10, trigger_rate="1kHz")
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(8)
            running.wait_for("sync", disk.is_waiting)
            running.wait_for("busy DFM", lambda: running.counter("dfm", "busy_seconds") > 0)
            assert running.counter("dfm", "events_complete") == 0
            disk.open()
            running.wait_for("100 events", lambda: running.counter("dfm", "events_complete") >= 100)
            running.signal()
            report = running.end(expect=(0,))
            complete(report)
            assert "fdatasync" in disk.calls()
            assert sum(verified(evb, path) for path in report["files"]) == report["events_complete"]


def sealing_between(evb):
    """While the SFI seals a file during a run, it continues to receive and sends KeepAlives."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = to_files(where, 1000, sfi_file_events=300, dfm_keep_alive="50ms")
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(8)
            running.wait_for("sealing", disk.is_waiting)
            running.wait_for("300 events", lambda: running.counter("dfm", "events_complete") == 300)
            lives(running)
            disk.open()
            report = running.end(expect=(0,))
            complete(report)
            assert [verified(evb, path) for path in sorted(report["files"])] == [300, 300, 300, 100]


def sealing_beyond_event_timeout(evb):
    """A built event that waits for the disk is neither lost nor reassigned."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = {**to_files(where, 2000, sfi_file_events=300, trigger_rate="2kHz", sfi_timeout="6s"),
                "sfi.count": 2}
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(9)
            running.wait_for("sealing", disk.is_waiting)
            time.sleep(32)  # beyond the event timeout of all open events
            disk.open()
            report = running.end(expect=(0,))
            complete(report)
            (dfm,) = (node for node in report["nodes"] if node["role"] == "dfm")
            assert dfm["events_reassigned"] == dfm["events_ended_again"] == 0, dfm
            assert sum(verified(evb, path) for path in report["files"]) == 2000


def lives(running):
    """Waits until the SFI has sent further messages."""
    before = running.counter("sfi1", "control_sent")
    running.wait_for("messages of the SFI", lambda: running.counter("sfi1", "control_sent") >= before + 10)


def sealing_killed(evb):
    """If an SFI is killed while it seals, its unsealed file holds all of its events."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = {**QUICK, **PATIENT, **to_files(where, sfi_file_events=300, trigger_rate="2kHz"), "dfm.node-timeout": "8s"}
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(8)
            running.wait_for("sealing", disk.is_waiting)
            # A partial event would be one of the 300 in the file.
            running.wait_for("300 events", lambda: running.counter("dfm", "events_complete") >= 300)
            kill(running, "sfi1")
            disk.open()  # for the record of the run
            report = running.end(expect=(1,))
            (path,) = where.glob("*.writing")
            assert verified(evb, path) == 300 == report["events_complete"], report


WAITS = "waiting for the disk to take "


def signal_early(process, log):
    """Signals the run before it says that it waits, unless it was faster than the test."""
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    if WAITS not in log.read_text():
        process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)


def record_waits(evb):
    """While the disk does not take the records of the run, the run says so. It goes on with the disk, or ends by a later signal."""
    for stops in (False, True):
        with folder() as where:
            disk = Disk(where, shut=True)
            keys = {**QUICK, **PATIENT, **to_files(where, sfi_file_events=300, trigger_rate="2kHz"), "sfi.count": 2,
                    "dfm.node-timeout": "8s"}
            log = where / "log"
            with log.open("w") as to:
                process = subprocess.Popen([evb, "run", scenario(where), "--json", *settings(watched(keys))], stdout=subprocess.PIPE, stderr=to,
                                           text=True, env=disk.env)
            running = Running.of(process)
            with running:
                running.wait_nodes(9)
                running.wait_for("600 events", lambda: running.counter("dfm", "events_complete") >= 600)
                disk.forget()
                for sfi in [running.nodes()[name] for name in ("sfi1", "sfi2")]:
                    os.kill(sfi, signal.SIGKILL)
                running.wait_for("record", disk.is_waiting)
                signal_early(process, log)
                running.wait_for("message", lambda: WAITS in log.read_text())
                if stops:
                    process.send_signal(signal.SIGINT)
                else:
                    disk.open()
                out, _ = process.communicate(timeout=LIMIT_S)
            report, records = json.loads(out), list(where.glob("*.run.json"))
            assert process.returncode in (1, -signal.SIGINT) and report["events_complete"] == 600, (process.returncode, report)
            assert len(records) == (0 if stops else 2), records
            missing = [reason for reason in report["reasons"] if "a signal came before the disk had taken" in reason]
            assert len(missing) == (2 if stops else 0), report


def sealing_at_the_end(evb):
    """The SFI sends KeepAlives while it seals the last file; nobody kills it, however long it takes. The DFM waits for
    run.stop-timeout, and does not know how it ends."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = to_files(where, 100, sfi_timeout="5s", dfm_keep_alive="50ms", dfm_node_timeout="5s", dfm_start_timeout="60s", run_stop_timeout="15s")
        with Running(evb, scenario(where), keys, env=disk.env) as running:
            running.wait_nodes(8)
            running.wait_for("sealing", disk.is_waiting)
            lives(running)
            # run.stop-timeout is longer than a node is waited for that has nothing to seal: 3 s + 5 s, and 5 s + 5 s.
            running.wait_for("end of the DFM", lambda: "dfm" not in running.nodes())
            assert "sfi1" in running.nodes()
            disk.open()
            report = running.end(expect=(1,))
            complete(report)
            assert [verified(evb, path) for path in report["files"]] == [100]
            why = "sfi1 did not close its output within run.stop-timeout: the last file of the run may be unfinished, or lack events"
            assert report["reasons"] == [f"dfm: {why}"], report["reasons"]


def broken(evb, durability, call, least):
    """A failing disk ends the run, and no file is sealed as complete. What failed is not tried again: the kernel reports an error
    once, and a second sync may succeed without the data."""
    with folder() as where:
        disk = Disk(where)
        disk.break_calls(call)
        keys = to_files(where, 200, trigger_rate="2kHz", sfi_durability=durability, ros_fragment_size="64KiB")
        done = subprocess.run([evb, "run", scenario(where), "--json", *settings(keys)], text=True,
                              capture_output=True, timeout=LIMIT_S, env=disk.env)
        report = json.loads(done.stdout)
        assert done.returncode == 1 and "Input/output error" in done.stderr, done
        assert report["files"] == [] and report["events_stored"] == 0, report
        assert not list(where.glob("*.data"))
        # fsync: once for the event file, and once for the record of the run.
        assert disk.calls().count(call) == (2 if call == "fsync" else 1), disk.calls()
        assert (report["events_complete"] >= 1) == (durability == "written"), report
        assert report["events_lost"] >= least and report["balanced"] is (durability == "synced"), report


@contextlib.contextmanager
def nodes_by_hand(evb, where, disk, keys, managed=False):
    """Starts a DFM, a ROS and an SFI, and yields a function that starts one. A managed SFI has a service
    manager; the test must read its socket, which holds few messages."""
    text = "".join(f"[node {name}]\nrole = {role}\naddress = {OWN_NET}.{i}\n"
                   for i, (name, role) in enumerate((("dfm", "dfm"), ("ros1", "ros"), ("sfi1", "sfi")), 1))
    path = scenario(where, "[network]\ncontrol-group = none\n" + text)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(where / "notify"))
    listener.settimeout(LIMIT_S)
    manager = {"NOTIFY_SOCKET": str(where / "notify"), "WATCHDOG_USEC": "100000"}
    nodes = {}

    def start(role, name):
        nodes[name] = subprocess.Popen([evb, role, "--config", path, "--node", name, *settings(keys)],
                                       env={**disk.env, **(manager if managed else {})} if role == "sfi" else None,
                                       stderr=subprocess.DEVNULL)

    try:
        for role, name in (("dfm", "dfm"), ("ros", "ros1"), ("sfi", "sfi1")):
            start(role, name)
        yield nodes, start, listener
    finally:
        for node in nodes.values():
            node.kill()
            node.wait()


def read_all(manager):
    """Reads pending messages; a starting node waits while the socket's queue is full."""
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            manager.recv(4096)
    manager.settimeout(LIMIT_S)


def watchdog(evb):
    """systemd's watchdog does not kill an SFI whose disk is slow at the end."""
    with folder() as where:
        disk = Disk(where, shut=True)
        keys = {**PATIENT, "sfi.output": "file", "sfi.directory": where, "trigger.events": 100}
        with nodes_by_hand(evb, where, disk, keys, managed=True) as (nodes, _, manager):
            sfi = nodes["sfi1"]
            while not disk.is_waiting():
                manager.recv(4096)
            read_all(manager)
            seen = b""
            wanted = (b"sealing", b"EXTEND_TIMEOUT_USEC=")
            while seen.count(b"WATCHDOG=1") < 5 or not all(text in seen for text in wanted):
                seen += manager.recv(4096) + b"\n"
            assert sfi.poll() is None and not list(where.glob("*.data"))
            disk.open()
            assert sfi.wait(LIMIT_S) == 0
            (path,) = where.glob("*.data")
            assert verified(evb, path) == 100


def comes_back(evb):
    """A crashed SFI rejoins the run and writes to the next file."""
    with folder() as where:
        disk = Disk(where)
        keys = {**PATIENT, "sfi.output": "file", "sfi.directory": where, "trigger.rate": "1kHz"}
        with nodes_by_hand(evb, where, disk, keys) as (nodes, start, manager):
            wait_for(lambda: holds_events(evb, where, "*.writing"))
            nodes["sfi1"].kill()
            nodes["sfi1"].wait()
            read_all(manager)
            (left,) = where.glob("*.writing")
            before = left.read_bytes()
            start("sfi", "sfi1")
            wait_for(lambda: holds_events(evb, where, "*_0002.writing"))
            nodes["dfm"].terminate()
            assert nodes["sfi1"].wait(LIMIT_S) == 0
            (path,) = where.glob("*.data")
            assert path.name.endswith("_0002.data") and verified(evb, path) > 0
            assert left.read_bytes() == before


def written_back(evb):
    """A file reaches the disk while it grows, not when it is sealed."""
    with folder() as where:
        disk = Disk(where)
        report = run(evb, scenario(where), to_files(where, 100, ros_fragment_size="64KiB"), env=disk.env)
        complete(report)
        size, calls = os.path.getsize(report["files"][0]), disk.calls()
        assert size > 32 << 20
        assert calls[:4] == ["sync_file_range"] * 4 and calls[-2:] == ["fsync"] * 2, calls


def restarted(evb):
    """A run whose files exist continues with the next number and logs so; the files stay unchanged."""
    with folder() as where:
        first = run(evb, scenario(where), to_files(where, 50, run_number=7))["files"][0]
        keys = {**to_files(where, run_number=7, trigger_rate="1kHz"), **QUICK}
        with Running(evb, scenario(where), keys) as running:
            running.wait_nodes(8)
            running.wait_for("50 events", lambda: running.counter("dfm", "events_complete") >= 50)
            kill(running, "sfi1")
            running.end(expect=(1,))
        (left,) = where.glob("*.writing")
        assert left.name.endswith("_0002.writing")
        before = pathlib.Path(first).read_bytes(), left.read_bytes()
        keys = to_files(where, 60, run_number=7)
        done = subprocess.run([evb, "run", scenario(where), "--json", *settings(keys)], text=True,
                              capture_output=True, timeout=LIMIT_S)
        report = json.loads(done.stdout)
        assert done.returncode == 0, done
        balance(report)
        complete(report)
        (path,) = report["files"]
        assert path.endswith("_0003.data") and verified(evb, path) == 60, path
        assert f"evb dump --repair {left}" in done.stderr and "number 0003" in done.stderr, done.stderr
        assert before == (pathlib.Path(first).read_bytes(), left.read_bytes())


def two_writers(evb):
    """A second run into the same directory detects the first writer and uses other names."""
    with folder() as where:
        first, second = to_files(where, run_number=7, trigger_rate="1kHz"), to_files(where, 60, run_number=7)
        with Running(evb, scenario(where), first) as running:
            running.wait_nodes(8)
            running.wait_running()
            writer = running.nodes()["sfi1"]
            path = scenario(where, name="second.conf")
            done = subprocess.run([evb, "run", path, "--json", *settings(second)], text=True,
                                  capture_output=True, timeout=LIMIT_S)
            assert done.returncode == 0, done
            assert f"process {writer} is writing this file" in done.stderr, done
            (path,) = json.loads(done.stdout)["files"]
            assert path.endswith("_0002.data") and verified(evb, path) == 60
            running.signal()
            report = running.end(expect=(0,))
            complete(report)
            assert verified(evb, report["files"][0]) == report["triggers"]


def repaired_while_written(evb):
    """Repair refuses a file that is being written, names its writer, and does so every time."""
    with folder() as where, Running(evb, scenario(where), to_files(
            where, trigger_rate="500Hz", sfi_file_events=500)) as running:
        running.wait_nodes(8)
        running.wait_running()
        writer, refused = running.nodes()["sfi1"], 0
        # A file is written for longer than a program with sanitizers takes to start.
        while refused < 20 or running.counter("dfm", "events_complete") < 3000:
            assert running.process.poll() is None
            for path in where.glob("*.writing"):
                done = subprocess.run([evb, "dump", path, "--repair"], capture_output=True, text=True,
                                      timeout=LIMIT_S)
                if f"process {writer} is writing this file" in done.stderr:
                    assert done.returncode == 1 and done.stdout == "", done
                    refused += 1
                else:  # between two names, with its first bytes still to come, or closed before its writer was found
                    others = ("; nothing to repair", "No such file", "file is empty", "another process is writing this file")
                    assert any(text in done.stdout + done.stderr for text in others), done
        running.signal()
        report = running.end(expect=(0,))
        complete(report)
        assert sum(verified(evb, path) for path in report["files"]) == report["triggers"]


def wrong_directory(evb):
    """An unusable directory is a configuration error: status 2 at start."""
    with folder() as where:
        nodes = "".join(f"[node {name}]\nrole = {name[:3]}\naddress = {OWN_NET}.{i}\n"
                        for i, name in enumerate(("dfm", "ros1", "sfi1"), 1))
        os.chmod(where, 0o755)
        (where / "file").touch()
        (where / "closed").mkdir(0o555)
        for directory, why in (("/nowhere/at/all", "No such file"), (where / "file", "Not a directory"),
                               (where / "closed", "Permission denied")):
            path = scenario(where, f"[sfi]\noutput = file\ndirectory = {directory}\n" + nodes)
            done = subprocess.run([evb, "sfi", "--config", path, "--node", "sfi1"], capture_output=True,
                                  text=True, timeout=LIMIT_S, preexec_fn=drop_root)
            assert done.returncode == 2 and "sfi.directory" in done.stderr and why in done.stderr, done


CASES = {
    "killed-at-5-hz": killed_at_5_hz,
    "killed-at-max": killed_at_max,
    "killed-at-max-direct": lambda evb: killed_at_max(evb, sfi_write_direct="yes"),
    "no-silence-needed": no_silence_needed,
    "write-limit": write_limit,
    "full-disk": full_disk,
    "killed-at-5-hz-direct": lambda evb: killed_at_5_hz(evb, sfi_write_direct="yes"),
    "write-limit-direct": lambda evb: write_limit(evb, sfi_write_direct="yes"),
    "full-disk-direct": lambda evb: full_disk(evb, sfi_write_direct="yes"),
    "direct": direct, "no-direct": no_direct,
    "slow-disk-wait": lambda evb: slow_disk(evb, "wait"), "slow-disk-drop": lambda evb: slow_disk(evb, "drop"),
    "counts-differ": counts_differ,
    "synced": synced,
    "sealing-between": sealing_between, "sealing-beyond-event-timeout": sealing_beyond_event_timeout,
    "sealing-killed": sealing_killed,
    "record-waits": record_waits,
    "sealing-at-the-end": sealing_at_the_end,
    "watchdog": watchdog,
    "broken-seal": lambda evb: broken(evb, "written", "fsync", 0),
    "broken-write-back": lambda evb: broken(evb, "written", "sync_file_range", 1),
    "broken-sync": lambda evb: broken(evb, "synced", "fdatasync", 1),
    "comes-back": comes_back,
    "written-back": written_back,
    "restarted": restarted,
    "two-writers": two_writers,
    "repaired-while-written": repaired_while_written,
    "wrong-directory": wrong_directory,
}

main(CASES)
