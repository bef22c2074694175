#!/usr/bin/env python3
"""Files that an SFI writes, and fragments from front-end electronics.

    test_files.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

from harness import (CHANCE, LIMIT_S, SHARED, Running, chance_of_no_loss, complete, folder, main,
                     run, scenario, settings)
from network import Network, wait_until


def dump(evb, *words):
    done = subprocess.run([evb, "dump", *map(str, words), "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, json.loads(done.stdout)


def written(evb, format_):
    """Every file of a run is complete, with each event once and every byte as generated."""
    with folder() as where:
        report = run(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "sfi.format": format_,
                                            "sfi.file-events": 300, "ros.fragment-size": "uniform:1-3000"})
        complete(report)
        assert len(report["files"]) >= 7 and all(p.endswith(".data") for p in report["files"]), report["files"]
        assert not list(where.glob("*.writing"))
        events = 0
        for path in report["files"]:
            status, dumped = dump(evb, path, "--verify")
            assert status == 0 and dumped["verify"]["right"] and dumped["verify"]["pattern_wrong"] == 0, dumped
            assert dumped["verify"]["pattern_fragments"] == dumped["events"] * 6 <= 1800, dumped
            events += dumped["events"]
        assert events == report["triggers"] == 2000
        checker = SHARED / "tools" / "eformat3_check.py"
        if format_ == "eformat3" and checker.exists():
            for path in report["files"]:
                subprocess.run([sys.executable, checker, path], check=True, capture_output=True)


def by_size(evb):
    with folder() as where:
        report = run(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "sfi.file-size": "1MB", "sfi.count": 1})
        complete(report)
        sizes = [os.path.getsize(p) for p in report["files"]]
        assert len(sizes) > 10 and max(sizes) <= 1_000_000, sizes


def partial(evb):
    """Partial events are written with dummy fragments in place of missing ones."""
    assert chance_of_no_loss(300 * 6, 0.05) < CHANCE
    with folder() as where:
        report = run(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "network.loss": "0.05", "sfi.retries": 0,
                                            "sfi.timeout": "1s", "trigger.events": 300, "sfi.count": 1}, expect=1)
        status, dumped = dump(evb, report["files"][0], "--verify")
        assert status == 0 and dumped["verify"]["partial_events"] == report["events_partial"] > 0, (dumped, report["events_partial"])
        assert dumped["events"] == report["events_complete"] + report["events_partial"]
        assert dumped["verify"]["dummies"] > 0


def crash(evb):
    """A killed SFI leaves a file that repair completes."""
    with folder() as where, Running(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "sfi.count": 1,
                                                           "trigger.events": 0, "trigger.rate": "2kHz"}) as running:
        running.wait_nodes(8)
        running.wait_for("some megabytes", lambda: any(p.stat().st_size > 8 << 20 for p in where.glob("*.writing")))
        os.kill(running.nodes()["sfi1"], signal.SIGKILL)
        running.end(expect=(1,))
        (path,) = where.glob("*.writing")
        with open(path, "r+b") as f:
            f.truncate(path.stat().st_size - 1001)
        done = subprocess.run([evb, "dump", path, "--repair"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and "complete events kept" in done.stdout, done
        status, dumped = dump(evb, path, "--verify")
        assert status == 0 and dumped["events"] > 0, dumped


def frame(k, bytes_=700):
    return bytes((k * 7 + i) & 0x7F for i in range(bytes_ + k % 50))


UDP_PORT = 47000


def front_end_socket(running):
    """Returns the words about it in /proc/net/udp, of which the last one is the number of dropped datagrams; None: it is not open."""
    local = f"{struct.unpack('=I', socket.inet_aton(running.address('ros1')))[0]:08X}:{UDP_PORT:04X}"
    lines = map(str.split, pathlib.Path("/proc/net/udp").read_text().splitlines())
    return next((words for words in lines if words[1] == local), None)


def send_frames(sender, n):
    for k in range(n):
        data = frame(k)
        sender.send(struct.pack("<I", len(data)) + data)


def front_end_udp_group(evb):
    """A ROS joins the multicast group that is its source, on the device of its own address."""
    n = 100
    nodes = "[scenario]\nmode = push\n[network]\ncontrol-group = none\n"
    for role, name, host in (("dfm", "dfm", 1), ("ros", "ros1", 2), ("sfi", "sfi1", 3)):
        nodes += f"[node {name}]\nrole = {role}\naddress = 10.77.0.{host}\n"
    keys = {"ros.source": f"udp:239.77.0.1:{UDP_PORT}", "trigger.events": n, "trigger.rate": "1kHz", "sfi.timeout": "20s", "dfm.node-timeout": "20s"}
    with folder() as where, Network("host") as network:
        network.ip("host", "link", "set", "lo", "up")
        for host in (1, 2, 3):
            network.ip("host", "addr", "add", f"10.77.0.{host}/24", "dev", "lo")
        path = scenario(where, nodes)
        with contextlib.ExitStack() as stack:
            processes = {}
            for role, name in (("dfm", "dfm"), ("ros", "ros1"), ("sfi", "sfi1")):
                processes[name] = stack.enter_context(network.popen(
                    "host", evb, role, "--config", path, "--node", name, "--json", *settings(keys)))
                stack.callback(processes[name].kill)
            wait_until("group", lambda: "239.77.0.1" in network.run("host", "ip", "maddr", "show", "dev", "lo").stdout)
            with network.socket("host") as sender:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.77.0.2"))
                sender.connect(("239.77.0.1", UDP_PORT))
                send_frames(sender, n)
            report = json.loads(processes["dfm"].communicate(timeout=LIMIT_S)[0])
            assert processes["dfm"].returncode == 0 and report["events_complete"] == n, report
            for process in processes.values():
                assert process.wait(LIMIT_S) == 0


def front_end_udp_dropped(evb):
    """If a stopped ROS's socket overflows, the ROS detects the kernel's drops and the run fails."""
    data = frame(0)
    datagram = struct.pack("<I", len(data)) + data
    keys = {"ros.source": f"udp:{UDP_PORT}", "ros.count": 1, "sfi.count": 1, "trigger.events": 0, "trigger.rate": "1kHz",
            "sfi.output": "file", "sfi.timeout": "20s"}
    with folder() as where, Running(evb, scenario(where), {**keys, "sfi.directory": where}) as running, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        running.wait_nodes(3)
        running.wait_for("front-end port", lambda: front_end_socket(running))
        sender.connect((running.address("ros1"), UDP_PORT))
        os.kill(running.nodes()["ros1"], signal.SIGSTOP)

        def dropped():
            for _ in range(1000):
                sender.send(datagram)
            return int(front_end_socket(running)[-1]) > 0

        running.wait_for("drops at the socket", dropped)
        os.kill(running.nodes()["ros1"], signal.SIGCONT)
        running.wait_running()
        # The ROS detects drops only when it reads the socket.
        running.wait_for("drops", lambda: running.counter("ros1", "packets_discarded", reason="socket_full") > 0)
        running.signal()
        out, err = running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1, err
        assert "datagrams dropped by the full socket buffer at frame" in err, err
        assert "the run is unreliable" in err, err
        (ros,) = (node for node in json.loads(out)["nodes"] if node["role"] == "ros")
        assert ros["front_end_gaps"] == ros["packets_socket_dropped"] > 0, ros


main({"eformat3": lambda evb: written(evb, "eformat3"), "eformat5": lambda evb: written(evb, "eformat5"), "by-size": by_size,
      "partial": partial, "crash": crash,
      "front-end-udp-group": front_end_udp_group, "front-end-udp-dropped": front_end_udp_dropped})
