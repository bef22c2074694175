#!/usr/bin/env python3
"""Nodes that start one by one, as services do: which nodes may join a run, and what happens when its DFM dies
and starts again.

    test_join.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time

from board import RESET, Board
from harness import LIMIT_S, OWN_NET, complete, folder, main

BASE = """
[scenario]
mode = push
[trigger]
rate = 2kHz
events = 6000
[dfm]
keep-alive = 50ms
node-timeout = 3s
event-timeout = 60s
lost-after = 60s
[ros]
fragment-size = 500
[sfi]
timeout = 20s
output = file
directory = {folder}
[network]
control-group = none
"""
# A node that starts late, or gets no processor for a while, is not given up.
PATIENT = {"dfm.node-timeout": "20s"}
ROLES = {"dfm": "dfm", "ros1": "ros", "ros2": "ros", "ros3": "ros", "sfi1": "sfi", "sfi2": "sfi"}


class Bed:
    """A scenario whose nodes have addresses of this test only, and its processes."""

    def __init__(self, evb, where, keys=None):
        self.evb, self.folder, self.processes, self.logs = evb, pathlib.Path(where), {}, {}
        self.keys = keys or {}
        self.addresses = {name: f"{OWN_NET}.{i}" for i, name in enumerate(ROLES, 1)}
        self.file = self.write("test.conf", ROLES)

    def write(self, name, roles, **changes):
        text = BASE.format(folder=self.folder)
        for node, role in roles.items():
            text += f"[node {node}]\nrole = {role}\naddress = {changes.get(node, self.addresses[node])}\n"
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, node, file=None, keys=None, name=None):
        """`name` distinguishes the processes if a node is started twice."""
        name = name or node
        arguments = [self.evb, ROLES[node], "--config", str(file or self.file), "--node", node, "--json", str(self.folder / f"{name}.json")]
        for key, value in {**self.keys, **(keys or {})}.items():
            arguments += ["--set", f"{key}={value}"]
        self.logs[name] = open(self.folder / f"{name}.log", "a+", encoding="utf-8")
        environment = dict(os.environ, XDG_STATE_HOME=str(self.folder / "state"), EVB_LOG="debug")
        self.processes[name] = subprocess.Popen(arguments, stderr=self.logs[name], stdout=subprocess.DEVNULL, env=environment)
        return self

    def start_all(self, *nodes, **options):
        for node in nodes or ROLES:
            self.start(node, **options)
        return self

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def wait(self, what, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what} in {LIMIT_S} s\n" + "\n".join(f"{n}: {self.log(n)}" for n in self.logs)
            time.sleep(0.01)

    def wait_log(self, name, text):
        self.wait(f'"{text}" of {name}', lambda: text in self.log(name))

    def wait_in_run(self, name):
        """Waits until the node has heard of the run's state."""
        self.wait(f"run at {name}", lambda: re.search(r"run \d+ has begun: ", self.log(name)))

    def wait_written(self, size, files="*.writing"):
        self.wait(f"{size} bytes of events", lambda: sum(p.stat().st_size for p in self.folder.glob(files)) > size)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self, name, expect=0):
        """Waits for the end of a process and returns its report."""
        status = self.processes[name].wait(timeout=LIMIT_S)
        assert status == expect, f"{name}: exit {status}, not {expect}: {self.log(name)}"
        text = (self.folder / f"{name}.json").read_text()
        return json.loads(text) if text else None

    def end_all(self, expect=0):
        return {name: self.end(name, expect) for name in ROLES}

    def run_record(self):
        """The DFM's record of the run; the one of SFI processes stands beside it."""
        return next(p for p in (self.folder / "state" / "evb").glob("dfm-*") if p.suffix != ".processes")

    def events(self):
        """Returns the L1 IDs of all events in the files, which equal the trigger numbers."""
        found = []
        for path in sorted(self.folder.glob("*.data")):
            done = subprocess.run([self.evb, "dump", str(path), "--tree"], capture_output=True, text=True, timeout=120, check=True)
            for event in re.split(r"^event ", done.stdout, flags=re.M)[1:]:
                numbers = set(re.findall(r"L1 id (\d+)", event))
                assert len(numbers) == 1, f"an event with fragments of different triggers: {event}"
                found.append(int(numbers.pop()))
        return found

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for log in self.logs.values():
            log.close()


@contextlib.contextmanager
def bed(evb, keys=None):
    with folder() as where, contextlib.closing(Bed(evb, where, keys)) as b:
        yield b


def restart(evb, mode, transport, again=1):
    """A DFM killed and restarted during a run: each event is built once, whichever DFM assigned it."""
    # At 1 kHz, the run is not over before this test kills its DFM.
    with bed(evb, {**PATIENT, "scenario.mode": mode, "scenario.transport": transport, "trigger.rate": "1kHz"}) as b:
        b.start_all()
        for i in range(again):
            b.wait_written(400_000 * (i + 1))
            b.kill("dfm")
            b.start("dfm")
            b.wait("resumption", lambda n=i: b.log("dfm").count("resumed run 1 of an earlier DFM") > n)
        reports = b.end_all()
        assert reports["dfm"]["triggers"] == reports["dfm"]["events_complete"] == 6000, reports["dfm"]
        assert reports["dfm"]["events_ended_again"] == 0, reports["dfm"]
        assert {r["run"] for r in reports.values()} == {1}, reports
        assert sorted(b.events()) == list(range(6000))
        assert "restarted and resumed run 1" in b.log("ros2")


def restart_after_sfi(evb, at_once=False):
    """A DFM restarts after an SFI did, or both `at_once`: no event in a file is lost, or the report names the SFI."""
    # The SFI is not silent for long, and its earlier process is replaced.
    with bed(evb, {"trigger.rate": "1kHz"}) as b:
        b.start_all()
        b.wait_written(400_000)
        b.kill("sfi1")
        if at_once:
            b.kill("dfm")
        b.start("sfi1", name="sfi1b")
        if not at_once:
            b.wait_in_run("sfi1b")
            b.kill("dfm")
        b.start("dfm")
        b.wait_log("dfm", "resumed run 1 of an earlier DFM")
        for process in b.processes.values():
            process.wait(timeout=LIMIT_S)
        dfm = json.loads((b.folder / "dfm.json").read_text())
        (left,) = b.folder.glob("*.writing")
        subprocess.run([b.evb, "dump", str(left), "--repair", "--output", str(left.with_suffix(".data"))], check=True, timeout=60, capture_output=True)
        found = b.events()
        assert dfm["triggers"] == dfm["events_complete"] + dfm["events_lost"] == len(set(found)) == 6000, (dfm, len(set(found)))
        named = re.search(r"sfi1: the events of its earlier process are not known: its files may hold up to (\d+)", b.log("dfm"))
        if at_once:
            assert named and int(named[1]) == dfm["events_lost"] > 0, (dfm, b.log("dfm"))
        else:
            assert dfm["events_lost"] == 0 and not named, (dfm, b.log("dfm"))


def restart_with_board(evb):
    """A DFM restarts while a trigger box goes on: no trigger becomes two events, and each one that was taken ends."""
    board, over = Board(), threading.Event()

    def send():
        number = 0
        while not over.is_set():
            with contextlib.suppress(ConnectionError):  # nobody listens
                board.send(number, 10, flags=RESET if number == 0 else 0)
            number += 10
            time.sleep(0.005)

    keys = board.keys()
    with bed(evb, {**PATIENT, **keys, "trigger.events": 6000}) as b:
        board.sender.connect((b.addresses["dfm"], int(keys["trigger.source"][4:])))
        sender = threading.Thread(target=send)
        sender.start()
        try:
            b.start_all()
            b.wait_written(400_000)
            b.kill("dfm")
            b.start("dfm")
            b.wait_log("dfm", "resumed run 1 of an earlier DFM")
            for name in b.processes:
                b.processes[name].wait(timeout=LIMIT_S)
        finally:
            over.set()
            sender.join()
        dfm = json.loads((b.folder / "dfm.json").read_text())
        assert dfm["triggers"] == 6000 == dfm["events_complete"] + dfm["events_partial"] + dfm["events_lost"], dfm
        assert dfm["events_partial"] == 0 and b.processes["dfm"].returncode == (1 if dfm["reasons"] else 0), dfm
        found = b.events()
        assert len(found) == len(set(found)) >= dfm["events_complete"], (len(found), len(set(found)), dfm)


def restart_late(evb):
    """After a restart of the DFM, triggers continue and a new node can still join."""
    with bed(evb, {**PATIENT, "dfm.start-timeout": "8s", "trigger.rate": "1kHz"}) as b:
        b.start_all("dfm", "ros1", "ros2", "ros3", "sfi1")
        b.wait_written(300_000)
        b.kill("dfm")
        time.sleep(0.5)
        b.start("sfi2")
        b.start("dfm")
        reports = b.end_all()
        assert reports["dfm"]["triggers"] == reports["dfm"]["events_complete"] == 6000, reports["dfm"]
        assert {r["run"] for r in reports.values()} == {1}, reports
        assert sorted(b.events()) == list(range(6000))


def ended_is_over(evb):
    """A node that missed the end of a run does not make the next DFM resume it."""
    with bed(evb, {"trigger.events": 300, "dfm.start-timeout": "8s"}) as b:
        b.start_all()
        b.wait_log("sfi2", "joined run 1")
        b.wait("run", lambda: b.processes["dfm"].poll() is not None or "sfi2 has joined" in b.log("dfm"))
        b.processes["sfi2"].send_signal(signal.SIGSTOP)
        b.end("dfm", expect=b.processes["dfm"].wait(timeout=LIMIT_S))
        b.start("dfm", keys={"run.number": "auto"})
        b.processes["sfi2"].send_signal(signal.SIGCONT)
        b.processes["sfi2"].wait(timeout=LIMIT_S)
        b.wait_log("dfm", "waiting for")
        assert "of an earlier DFM" not in b.log("dfm")


def lost_dfm(evb):
    with bed(evb, {"dfm.lost-after": "5s", "dfm.start-timeout": "20s", "trigger.events": 0}) as b:
        b.start_all()
        b.wait_written(100_000)
        b.kill("dfm")
        for name in ROLES:
            if name != "dfm":
                b.end(name, expect=75)
                assert "the DFM dfm fell silent in run 1" in b.log(name), b.log(name)
                assert "(dfm.lost-after); this node exits" in b.log(name), b.log(name)
        assert not list(b.folder.glob("*.writing")), "a node that ends seals its file"


def started_twice(evb):
    """The second process of a node is refused, which both sides log; the first one continues."""
    # The run must not end before the second processes have started.
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "500Hz"}) as b:
        b.start_all("dfm", "ros1", "ros2", "ros3", "sfi1", "sfi2")
        b.wait_written(100_000)
        other = b.addresses["dfm"].rsplit(".", 1)[0] + ".250"
        twin = b.write("twin.conf", ROLES, sfi1=other)
        b.start("sfi1", file=twin, name="twin")
        b.end("twin", expect=1)
        assert "its scenario has no node sfi1 at " in b.log("twin"), b.log("twin")
        assert f"ignored a message in the name of sfi1: it came from {other}:" in b.log("dfm"), b.log("dfm")
        # At the same address, the second process cannot even open its sockets.
        b.start("sfi1", name="double")
        b.end("double", expect=1)
        assert "in use" in b.log("double"), b.log("double")
        b.processes["dfm"].send_signal(signal.SIGTERM)
        complete_run(b)


def complete_run(b):
    reports = b.end_all()
    assert reports["dfm"]["triggers"] == reports["dfm"]["events_complete"] > 0, reports["dfm"]
    assert sorted(b.events()) == list(range(reports["dfm"]["triggers"]))


def other_scenario(evb):
    """An SFI whose scenario lacks a ROS builds nothing; the DFM logs node and key."""
    with bed(evb, {**PATIENT, "dfm.start-timeout": "8s", "trigger.events": 500}) as b:
        short = b.write("short.conf", {name: role for name, role in ROLES.items() if name != "ros3"})
        b.start("sfi2", file=short)
        b.start_all("dfm", "ros1", "ros2", "ros3", "sfi1")
        b.wait_log("sfi2", "its scenario differs from ours in ros.count")
        b.wait_log("dfm", "refused sfi2: its scenario differs from ours in ros.count")
        report = b.end("dfm")
        assert report["events_complete"] == 500
        assert b.end("sfi1")["events_complete"] == 500
        b.processes["sfi2"].send_signal(signal.SIGTERM)
        assert b.end("sfi2", expect=b.processes["sfi2"].wait(timeout=LIMIT_S))["events_complete"] == 0


def other_run(evb):
    with bed(evb, {**PATIENT, "dfm.start-timeout": "8s", "trigger.events": 500}) as b:
        b.start("sfi2", keys={"run.number": 2})
        b.start_all("dfm", "ros1", "ros2", "ros3", "sfi1", keys={"run.number": 1})
        b.wait_log("sfi2", "its run number is 1, ours is 2")
        b.wait_log("dfm", "refused sfi2: it is configured for run 2, ours is run 1")
        assert b.end("dfm")["events_complete"] == 500


def waiting(evb):
    """A waiting node logs what it waits for."""
    with bed(evb, {"trigger.events": 10}) as b:
        b.start_all("ros1", "sfi1")
        b.wait_log("ros1", f"waiting for the DFM dfm at {b.addresses['dfm']}")
        b.start("dfm", keys={"dfm.node-timeout": "30s"})
        b.wait("wait of the DFM", lambda: re.search("waiting for .*\n", b.log("dfm")))
        # It logs this once, perhaps before ros1 and sfi1 have joined.
        joined = b.log("dfm").partition("waiting for ")[0]
        missing = [name for name in ROLES if name != "dfm" and f"{name} has joined" not in joined]
        assert f"waiting for {', '.join(missing)}" in b.log("dfm") and {"ros2", "ros3", "sfi2"} <= set(missing), b.log("dfm")
        b.start_all("ros2", "ros3", "sfi2")
        assert b.end("dfm")["events_complete"] == 10


def numbers(evb):
    """run.number = auto never repeats a number on a machine."""
    with bed(evb, {**PATIENT, "trigger.events": 10}) as b:
        for number in (1, 2):
            b.start_all()
            reports = b.end_all()
            assert {r["run"] for r in reports.values()} == {number}, reports
        assert len(b.events()) == 20


class FrontEnds:
    """Front-ends that send frame k of each ROS as a datagram to the port of `ros.source`."""

    def __init__(self, b):
        self.bed = b
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def wait_until_they_listen(self, *nodes):
        for node in nodes:
            address = struct.unpack("=I", socket.inet_aton(self.bed.addresses[node]))[0]
            self.bed.wait(f"front-end port of {node}",
                          lambda a=address: f" {a:08X}:{PORT:04X} " in pathlib.Path("/proc/net/udp").read_text())

    def send(self, node, frames):
        for k in frames:
            data = b"frame %d" % k
            self.socket.sendto(struct.pack("<I", len(data)) + data, (self.bed.addresses[node], PORT))


    def send_numbers(self, node, numbers):
        for k in numbers:
            data = b"frame " + struct.pack(">I", k) + bytes(100)
            self.socket.sendto(struct.pack("<I", len(data)) + data, (self.bed.addresses[node], PORT))

    def close(self):
        self.socket.close()


PORT = 26950
COUNTED = {"ros.source": f"udp:{PORT}", "sfi.verify": "no"}


@contextlib.contextmanager
def counted(evb, keys):
    with bed(evb, {**PATIENT, **COUNTED, **keys}) as b:
        front_ends = FrontEnds(b)
        with contextlib.closing(front_ends):
            yield b, front_ends


def lost_frame(evb):
    """If one ROS misses a datagram, the ROSs' counts differ and the run fails."""
    with counted(evb, {"trigger.events": 100, "trigger.rate": "1kHz"}) as (b, front_ends):
        b.start_all()
        front_ends.wait_until_they_listen("ros1", "ros2", "ros3")
        front_ends.send("ros1", range(102))
        front_ends.send("ros2", [k for k in range(102) if k != 50])
        front_ends.send("ros3", range(102))
        report = b.end("dfm", expect=1)
        assert report["events_complete"] == 100, report
        assert any("counted different numbers of them" in reason for reason in report["reasons"]), report["reasons"]


def equal_frames(evb):
    with counted(evb, {"trigger.events": 100, "trigger.rate": "1kHz"}) as (b, front_ends):
        b.start_all()
        front_ends.wait_until_they_listen("ros1", "ros2", "ros3")
        for node in ("ros1", "ros2", "ros3"):
            front_ends.send(node, range(102))
        report = b.end("dfm")
        assert report["events_complete"] == 100 and report["reasons"] == [], report


def restarted_front_end(evb):
    """A ROS restarted during a run would count from 0, so it logs that it cannot take part."""
    # At 20 Hz, the run lasts until the ROS has started again.
    with counted(evb, {"trigger.events": 200, "trigger.rate": "20Hz", "sfi.timeout": "500ms", "dfm.node-timeout": "500ms",
                       "dfm.start-timeout": "60s"}) as (b, front_ends):
        b.start_all()
        front_ends.wait_until_they_listen("ros1", "ros2", "ros3")
        for node in ("ros1", "ros2", "ros3"):
            front_ends.send(node, range(200))
        b.wait_written(1000)
        b.kill("ros2")
        b.start("ros2")
        b.end("ros2", expect=1)
        assert "run 1 has begun, and this node must count its front-end's frames from the beginning" in b.log("ros2"), b.log("ros2")
        report = b.end("dfm", expect=1)
        assert "refused ros2: run 1 has begun" in b.log("dfm") and report["events_partial"] > 0, report


def restarted_numbered(evb):
    """A ROS whose frames carry numbers takes part again after a restart: only what it held is lost."""
    n = 3000
    with bed(evb, {**COUNTED, "ros.event-number": "6:32:be", "ros.wait": "8s", "trigger.events": n, "trigger.rate": "500Hz",
                   "dfm.node-timeout": "30s"}) as b, contextlib.closing(FrontEnds(b)) as front_ends:
        nodes = ("ros1", "ros2", "ros3")
        b.start_all()
        front_ends.wait_until_they_listen(*nodes)
        # The boards of ros1 and ros3 are ahead of the trigger.
        for k in range(0, n, 100):
            front_ends.send_numbers("ros1", range(k, k + 100))
            front_ends.send_numbers("ros3", range(k, k + 100))
        front_ends.send_numbers("ros2", range(200))
        b.wait_written(20_000)
        b.kill("ros2")
        b.start("ros2", name="again")
        b.wait_in_run("again")
        front_ends.send_numbers("ros2", range(200, n))
        report, again = b.end("dfm", expect=1), b.end("again")
        assert report["triggers"] == n == report["events_complete"] + report["events_partial"], report
        # Some of the 200 frames were lost with the process. The new one got all others.
        assert report["events_partial"] <= 200 < report["events_complete"], report
        assert again["front_end_frames"] == n - 200 == again["front_end_used"], again
        assert "refused" not in b.log("dfm")


FRAMES = {**COUNTED, "ros.event-number": "6:32:be", "trigger.source": "frames", "ros.wait": "8s", "trigger.events": 0,
          "dfm.node-timeout": "30s"}


def end_after(b, n, names):
    """Waits until the event of the boards' last trigger is written, and stops the run; returns the reports."""
    last = b"frame " + struct.pack(">I", n - 1)
    b.wait("event of the last frames", lambda: any(last in path.read_bytes() for path in b.folder.glob("*.writing")))
    b.processes["dfm"].send_signal(signal.SIGTERM)
    for name in names:
        b.processes[name].wait(timeout=LIMIT_S)
    return {name: json.loads((b.folder / f"{name}.json").read_text()) for name in names}


def frames_ros_restart(evb):
    """A ROS restarts while its frames and those of others make the events: only what it held is lost."""
    n = 3000
    with bed(evb, FRAMES) as b, contextlib.closing(FrontEnds(b)) as front_ends:
        b.start_all()
        front_ends.wait_until_they_listen("ros1", "ros2", "ros3")
        for k in range(0, 1000, 100):
            for node in ("ros1", "ros2", "ros3"):
                front_ends.send_numbers(node, range(k, k + 100))
        b.wait_written(20_000)
        b.kill("ros2")
        b.start("ros2", name="again")
        b.wait_log("again", "joined run 1")
        for k in range(1000, n, 100):
            for node in ("ros1", "ros2", "ros3"):
                front_ends.send_numbers(node, range(k, k + 100))
            time.sleep(0.02)
        reports = end_after(b, n, ("dfm", "ros1", "ros3", "sfi1", "sfi2", "again"))
        dfm, again = reports["dfm"], reports["again"]
        assert dfm["triggers"] == n == dfm["events_complete"] + dfm["events_partial"] and dfm["events_complete"] >= n - 1000, dfm
        assert again["front_end_frames"] == n - 1000 == again["front_end_used"], again


def frames_dfm_restart(evb):
    """The DFM restarts while frames make the events: it continues after the numbers that were taken."""
    n = 3000
    with bed(evb, FRAMES) as b, contextlib.closing(FrontEnds(b)) as front_ends:
        b.start_all()
        front_ends.wait_until_they_listen("ros1", "ros2", "ros3")
        for k in range(0, n, 100):
            for node in ("ros1", "ros2", "ros3"):
                front_ends.send_numbers(node, range(k, k + 100))
            if k == 1000:
                # Of 1100 events, so that the DFM has given nearly all to SFIs; each has three frames.
                b.wait("850 events", lambda: sum(p.read_bytes().count(b"frame ") for p in b.folder.glob("*.writing")) >= 3 * 850)
                b.kill("dfm")
                b.start("dfm")
                b.wait_log("dfm", "resumed run 1 of an earlier DFM")
            time.sleep(0.02)
        reports = end_after(b, n, ("dfm", "ros1", "ros2", "ros3", "sfi1", "sfi2"))
        dfm = reports["dfm"]
        assert dfm["triggers"] == dfm["events_complete"] + dfm["events_partial"] + dfm["events_lost"], dfm
        found = b.events()
        # What the former DFM had taken and given to no SFI is lost.
        assert len(set(found)) >= n - 300 and set(range(2000, n)) <= set(found), (len(found), len(set(found)), dfm)
        for name in ("ros1", "ros2", "ros3"):
            ros = reports[name]
            assert ros["front_end_frames"] == n == sum(
                ros[f"front_end_{kind}"] for kind in ("used", "late", "duplicate", "impossible", "dropped", "left_over")), ros


if __name__ == "__main__":
    main({
        "dfm-restart-push": lambda evb: restart(evb, "push", "udp"),
        "dfm-restart-pull": lambda evb: restart(evb, "pull", "udp"),
        "dfm-restart-tcp": lambda evb: restart(evb, "push", "tcp"),
        "dfm-restart-twice": lambda evb: restart(evb, "push", "udp", again=3),
        "dfm-restart-late": restart_late, "dfm-restart-board": restart_with_board,
        "sfi-and-dfm-restart": restart_after_sfi, "sfi-restart-without-dfm": lambda evb: restart_after_sfi(evb, at_once=True),
        "ended-is-over": ended_is_over,
        "lost-dfm": lost_dfm,
        "started-twice": started_twice,
        "other-scenario": other_scenario,
        "other-run": other_run,
        "waiting": waiting,
        "numbers": numbers,
        "lost-frame": lost_frame,
        "equal-frames": equal_frames,
        "restarted-front-end": restarted_front_end, "restarted-numbered": restarted_numbered,
        "frames-ros-restart": frames_ros_restart, "frames-dfm-restart": frames_dfm_restart,
    })
