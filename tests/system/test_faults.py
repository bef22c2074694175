#!/usr/bin/env python3
"""Whatever dies, gets lost or arrives, a run ends with balanced accounts.

    test_faults.py EVB [CASE...]
"""
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys

from network import Network
from harness import (CHANCE, LIMIT_S, OWN_NET, SHARED, SMALL, Running, chance_of_missing, chance_of_no_loss, complete, first_signal, folder,
                     main, read_until, run, scenario)

LIBC = ctypes.CDLL(None)

# Short timeouts, so that dead nodes are noticed soon, but not those that get no processor for a moment.
QUICK = {"dfm.node-timeout": "3s", "dfm.start-timeout": "60s", "test.keep-alive": "50ms", "sfi.timeout": "2s"}
ENDLESS = {"trigger.events": 0, "trigger.rate": "2kHz"}
LONG = {**ENDLESS, **QUICK}


def loss(evb):
    # 2000 events of 6 fragments of 1 KiB: at least 8000 datagrams of 1472 bytes, at most 24000.
    assert chance_of_missing(24000, 0.05) < CHANCE and chance_of_no_loss(8000, 0.05) < CHANCE
    with folder() as where:
        report = run(evb, scenario(where), {"network.loss": "0.05", "network.reorder": "0.02", "network.duplicate": "0.02"})
        complete(report)
        assert report["fragments"]["recovered"] > 0, "nothing was lost, so nothing was tested"
        assert report["drops"]["network_packets"] > 0, report["drops"]


def kill(evb, victim, mode):
    with folder() as where, Running(evb, scenario(where), {"scenario.mode": mode, **LONG}) as running:
        running.wait_nodes(9)
        running.wait_running()
        os.kill(running.nodes()[victim], signal.SIGKILL)
        running.wait_for("death", lambda: victim not in running.nodes())
        if victim != "dfm":
            before = running.counter("dfm", "control_received")
            running.wait_for("progress", lambda: "dfm" not in running.nodes() or running.counter("dfm", "control_received") != before)
            running.signal()
        report = running.end(expect=(1,))
        dead = next(n for n in report["nodes"] if n["name"] == victim)
        assert dead["signal"] == 9, dead
        assert report["events_complete"] > 0, report
        if victim == "dfm":
            assert not report["balanced"] and any("dfm died, and had last counted" in reason for reason in report["reasons"]), report["reasons"]


def only_sfi(evb):
    """Without any SFI left, the run ends by itself."""
    with folder() as where, Running(evb, scenario(where), {"sfi.count": 1, **LONG}) as running:
        running.wait_nodes(8)
        running.wait_running()
        os.kill(running.nodes()["sfi1"], signal.SIGKILL)
        report = running.end(expect=(1,))
        assert report["events_complete"] > 0, report


def interrupt_twice(evb):
    with folder() as where, Running(evb, scenario(where), {**LONG, "sfi.timeout": "50s"}) as running:
        running.wait_nodes(9)
        running.wait_running()
        os.kill(running.nodes()["ros1"], signal.SIGSTOP)  # so that it cannot end
        first_signal(running.process)
        assert "ros1" in running.nodes()
        running.signal()
        running.end(expect=(1,))


def full_disk(evb):
    """A write error is reported, ends the run, and leaves a readable file."""
    limit = 3 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with folder() as where:
        report = run(evb, scenario(where), {"sfi.output": "file", "sfi.directory": where, "sfi.count": 1, "trigger.events": 0,
                                            "trigger.rate": "5kHz"}, expect=1, preexec_fn=limited)
        assert report["events_lost"] > 0 and report["events_complete"] > 0, report
        (path,) = report["files"]
        assert path.endswith(".data") and os.path.getsize(path) <= limit
        done = subprocess.run([evb, "dump", path, "--verify"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        checker = SHARED / "tools" / "eformat3_check.py"
        if checker.exists():
            subprocess.run([sys.executable, checker, path], check=True, capture_output=True)


def flat_memory(evb):
    """Memory does not grow with the number of events."""
    with folder() as where:
        peaks = [run(evb, scenario(where), {"trigger.events": n})["peak_rss_bytes"] for n in (20000, 80000)]
        for role in ("ros", "dfm", "sfi"):
            assert peaks[1][role] < peaks[0][role] * 1.1 + (4 << 20), (role, peaks)


def second_process(evb):
    """The second process of a node cannot share its sockets; it logs so and exits."""
    with folder() as where, Running(evb, scenario(where), ENDLESS) as running:
        running.wait_nodes(9)
        running.wait_running()
        (where / "again.conf").write_text(running.config())
        for node in ("dfm", "ros1", "sfi1"):
            arguments = [evb, node.rstrip("1"), "--config", where / "again.conf", "--node", node]
            again = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S)
            assert again.returncode == 1 and "in use" in again.stderr, again
            assert running.address(node) in again.stderr, again
        running.signal()
        complete(running.end(expect=(0,)))


def three_nodes(where, net, keys):
    """Makes a scenario of three nodes at addresses NET.1 to NET.3, to start one by one."""
    nodes = [f"[node {node}]\nrole = {node[:3]}\naddress = {net}.{i}\n"
             for i, node in enumerate(("dfm", "ros1", "sfi1"), 1)]
    return scenario(where, keys + "".join(nodes))


def port_in_use(evb, transport):
    """A program that uses the SFI's data port makes the SFI fail, even with SO_REUSEADDR."""
    keys = f"[scenario]\ntransport = {transport}\n[network]\nport = 46920\n"
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    with folder() as where, socket.socket(socket.AF_INET, kind) as other:
        path = three_nodes(where, OWN_NET, keys)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((f"{OWN_NET}.3", 46921))
        if transport == "tcp":
            other.listen()
        arguments = [evb, "sfi", "--config", path, "--node", "sfi1"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1, done
        assert f"cannot open {OWN_NET}.3:46921 for " in done.stderr, done
        assert "is this node running already?" in done.stderr, done


def late_address(evb):
    """A node waits for its address to appear; a signal ends the wait with status 0."""
    def start(net):
        return net.popen("a", evb, "sfi", "--config", path, "--node", "sfi1")

    with folder() as where, Network("a") as net:
        path = three_nodes(where, "10.77.0", "[network]\ncontrol-group = none\n")
        node = start(net)
        try:
            warning = read_until(node.stderr, "cannot open 10.77.0.3:26800 for control messages yet")
            assert warning.endswith("; no device of this machine has this address\n"), warning
            net.ip("a", "addr", "add", "10.77.0.3/32", "dev", "lo")
            assert "the address for control messages is present" in node.stderr.readline()
            node.send_signal(signal.SIGTERM)
            assert node.wait(LIMIT_S) == 0
            net.ip("a", "addr", "del", "10.77.0.3/32", "dev", "lo")
            node = start(net)
            read_until(node.stderr, "cannot open 10.77.0.3:26800")
            node.send_signal(signal.SIGTERM)
            assert node.wait(LIMIT_S) == 0
        finally:
            node.kill()
            node.communicate()


def small_buffers(evb):
    """Without the privilege to exceed the system's limit, the log names the small buffer and the limit."""
    def unprivileged():
        pr_capbset_drop, cap_net_admin = 24, 12
        LIBC.prctl(pr_capbset_drop, cap_net_admin, 0, 0, 0)

    keys = ("[network]\ncontrol-group = none\nport = 46930\n"
            "socket-buffer = 1GiB\n")
    with folder() as where:
        path = three_nodes(where, OWN_NET, keys)
        for role, limit in (("sfi", "rmem_max"), ("ros", "wmem_max")):
            arguments = [evb, role, "--config", path, "--node", f"{role}1"]
            node = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, preexec_fn=unprivileged)
            try:
                line = node.stderr.readline()
                assert f"raise net.core.{limit} to 1073741824" in line, line
            finally:
                node.kill()
                node.communicate()


CASES = {
    "loss-push": loss,
    "only-sfi": only_sfi,
    "interrupt-twice": interrupt_twice,
    "full-disk": full_disk,
    "flat-memory": flat_memory,
    "late-address": late_address,
    "small-buffers": small_buffers,
    "second-process": second_process,
    "port-in-use": lambda evb: port_in_use(evb, "udp"),
    "port-in-use-tcp": lambda evb: port_in_use(evb, "tcp"),
}
for victim_, mode_ in (("sfi1", "push"), ("dfm", "pull")):
    CASES[f"kill-{victim_}-{mode_}"] = lambda evb, v=victim_, m=mode_: kill(evb, v, m)

assert SMALL
main(CASES)
