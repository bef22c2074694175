#!/usr/bin/env python3
"""`evb check --node` and `--net` accept and reject what the start does, with the same messages.

    test_check.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import socket
import subprocess

from harness import LIMIT_S, OWN_NET, Skip, folder, main, need_root, scenario, settings
from network import Network, wait_until

# Each node has its own address, and each test process its own block.
TEXT = "".join(f"[node {name}]\nrole = {name[:3]}\naddress = {OWN_NET}.{i}\n" for i, name in enumerate(("dfm", "ros1", "ros2", "sfi1"), 1))
HUGE = {"ros": "64GiB", "sfi": "256GiB"}


def nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def both(evb, path, node, keys, user=None):
    """Exit status and standard error of the check and of the start."""
    words = ["--node", node, *settings(keys)]
    ends = []
    for command in (["check", path, *words], [node[:3], "--config", path, *words]):
        done = subprocess.run([evb, *map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=user)
        ends.append((done.returncode, done.stderr))
    return ends


def refused(evb):
    """Rejects scenarios that cannot run on this machine: node, keys, status, message."""
    with folder() as where:
        path = scenario(where, TEXT)
        plain = where / "plain.txt"
        plain.write_text("no event file")
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind((f"{OWN_NET}.2", 0))
        table = [
            ("ros1", {"node ros1.device": "evb-none0"}, 2, "ros1: node ros1: device evb-none0 does not exist; expected one that ip link lists"),
            ("sfi1", {"node sfi1.device": "evb-none0"}, 2, "device evb-none0 does not exist"),
            ("dfm", {"node dfm.cpus": "1000"}, 2, "dfm: node dfm.cpus: this machine has no processor 1000; expected 0 to "),
            ("sfi1", {"node sfi1.cpus": "0,1001", "sfi.output": "file", "sfi.directory": where}, 2, "no processor 1001"),
            ("ros1", {"network.port": taken.getsockname()[1]}, 1, "for control messages: it is in use; is this node running"),
            ("dfm", {"network.link-rate": "100Mbit", "test.keep-alive": "1ms"}, 2, "test.keep-alive: KeepAlive takes 2.70 Mbit/s of the 1.10 Mbit/s that the "
             "DFM may send to an SFI, so there is too little left for assignments; expected at least 6.00 ms, or a higher qos.control-rate"),
            ("ros1", {"ros.source": f"udp:{taken.getsockname()[1]}"}, 1, "is in use"),
            ("ros1", {"ros.source": "udp:26800"}, 2, "ros.source: port 26800 is network.port"),
            ("ros1", {"ros.source": "tcp:front.end:8"}, 2, 'ros.source: invalid source "tcp:front.end:8"'),
            ("ros1", {"ros.source": "file:/nowhere.data"}, 2, "ros.source: /nowhere.data: No such file"),
            ("dfm", {"ros.source": "file:/nowhere.data", "run.number": 3}, 2, "ros.source: /nowhere.data: No such file"),
            ("ros2", {"ros.source": f"file:{plain}"}, 2, f"ros.source: {plain}"),
            ("sfi1", {"sfi.output": "file", "sfi.directory": "/nowhere/at/all"}, 2, "cannot write to /nowhere/at/all: No such file"),
            ("sfi1", {"sfi.output": "file", "sfi.directory": plain}, 2, f"sfi.directory: cannot write to {plain}: "),
            ("ros1", {"ros.buffer-size": HUGE["ros"]}, 2, "ros.buffer-size: this machine has no memory for "),
            ("sfi1", {"sfi.buffer-size": HUGE["sfi"]}, 2, "sfi.buffer-size: this machine has no memory for "),
            ("ros1", {"qos.backend": "htb"}, None, "shaping: "),
            ("ros1", {"qos.backend": "htb", "node ros1.device": "lo"}, 77, "all nodes share device lo"),
            ("ros9", {}, 2, 'unknown node "ros9"'),
            ("ros1", {"network.control-group": "ff02::1"}, 2, "network.control-group"),
            ("ros1", {"sfi.credits": 12001}, 2, "sfi.credits"),
            ("ros1", {"ros.wait": "1h"}, 2, "ros.wait"),
        ]
        for node, keys, status, text in table:
            if "buffer-size" in text and over_commits():
                continue
            (checked, said), (started, error) = both(evb, path, node, keys)
            assert started != 0 and (status is None or started == status) and text in error, (node, keys, started, error)
            # Only the start requires a role.
            assert checked == started and (said == error or node == "ros9"), (node, keys, (checked, said), (started, error))
            assert text in said, (node, keys, said)
        taken.close()
        # A start waits for a missing address, a check does not.
        done = subprocess.run([evb, "check", path, "--node", "ros1", "--set", "node ros1.address=192.0.2.1"], capture_output=True,
                              text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and "cannot open 192.0.2.1:26800 for control messages: Cannot assign" in done.stderr, done
        assert "; no device of this machine has this address" in done.stderr, done


def over_commits():
    return pathlib.Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1"


def refused_to_nobody(evb):
    """An inaccessible file or directory is an error of the scenario (2); a port below 1024 requires a privilege (77)."""
    need_root()
    with folder() as where:
        os.chmod(where, 0o755)
        path = scenario(where, TEXT)
        closed = where / "closed"
        closed.mkdir(mode=0o700)
        file = where / "file.data"
        file.write_text("")
        file.chmod(0o600)
        table = [
            ("sfi1", {"sfi.output": "file", "sfi.directory": closed}, 2, f"sfi.directory: cannot write to {closed}: Permission denied"),
            ("sfi1", {"sfi.output": "file", "sfi.directory": where}, 2, f"cannot write to {where}: Permission denied"),
            ("ros1", {"ros.source": f"file:{file}"}, 2, f"ros.source: {file}: Permission denied"),
            ("dfm", {"ros.source": f"file:{file}"}, 2, f"ros.source: {file}: Permission denied"),
        ]
        if int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 80:
            table.append(("dfm", {"network.port": 80}, 77, "for control messages: Permission denied"))
        for node, keys, status, text in table:
            checked, started = both(evb, path, node, keys, user=nobody)
            assert checked == started and started[0] == status and text in started[1], (node, keys, checked, started)


def accepted(evb):
    """A node that passes the check starts; the check leaves no file, port or shaping behind."""
    with folder() as where:
        path = scenario(where, TEXT)
        keys = {"sfi.output": "file", "sfi.directory": where / "data", "scenario.transport": "tcp"}
        (where / "data").mkdir()
        for node in ("dfm", "ros1", "ros2", "sfi1"):
            for _ in range(2):
                done = subprocess.run([evb, "check", path, "--node", node, *settings(keys)], capture_output=True, text=True, timeout=LIMIT_S)
                assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("[scenario]"), (node, done)
            assert not list((where / "data").iterdir())
            starts(evb, where, path, node, keys)
        assert subprocess.run([evb, "check", path], capture_output=True).returncode == 0


def starts(evb, where, path, node, keys):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    listener.bind(str(where / f"{node}.notify"))
    process = subprocess.Popen([evb, node[:3], "--config", path, "--node", node, *settings(keys)], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "NOTIFY_SOCKET": str(where / f"{node}.notify")})
    seen = []

    def ready():
        with contextlib.suppress(BlockingIOError):
            seen.append(listener.recv(4096).decode())
        assert process.poll() is None, (node, process.communicate())
        return any("READY=1" in text for text in seen)

    try:
        wait_until(f"{node} to be ready", ready)
    finally:
        listener.close()
        process.kill()
        process.communicate()


def shaping(evb):
    """For a ROS that shapes, checks the privilege, the kernel and the plan, and leaves the device unchanged."""
    with Network("a", "b") as network, folder() as where:
        network.pair("a", "b")
        os.chmod(where, 0o755)
        text = TEXT.replace(f"{OWN_NET}.1\n", "10.9.0.9\n").replace(f"{OWN_NET}.2\n", "10.9.0.1\n").replace(OWN_NET, "10.9.0")
        path = scenario(where, text)
        words = ["--node", "ros1", *settings({"qos.backend": "htb", "network.link-rate": "100Mbit"})]
        before = network.tc("a", "qdisc", "show").stdout
        done = network.evb(evb, "a", "check", path, *words, check=False)
        assert done.returncode == 0 and network.tc("a", "qdisc", "show").stdout == before, done
        ends = [network.run("a", "setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", evb, *map(str, command), *words, check=False)
                for command in (["check", path], ["ros", "--config", path])]
        assert [end.returncode for end in ends] == [77, 77] and ends[0].stderr == ends[1].stderr, ends


def granted(evb):
    """A buffer that the kernel does not grant is logged, by the check as well; the node still starts."""
    need_root()
    limit = int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text()) if pathlib.Path("/proc/sys/net/core/rmem_max").exists() else None
    if limit is None or limit >= 1 << 29:
        raise Skip("net.core.rmem_max cannot be read here, or limits nothing")
    with folder() as where:
        os.chmod(where, 0o755)
        path = scenario(where, TEXT)
        done = subprocess.run([evb, "check", path, "--node", "sfi1", "--set", "network.socket-buffer=1GiB"], capture_output=True, text=True,
                              timeout=LIMIT_S, preexec_fn=nobody)
        assert done.returncode == 0 and "sfi1: the kernel grants " in done.stderr and "as receive buffer for fragments" in done.stderr, done
        assert "net.core.rmem_max" in done.stderr, done


def run(evb):
    """`evb check --net` and `evb run --net` exit with the same status and message."""
    with folder() as where:
        path = scenario(where)
        table = [
            ("loopback", {"sfi.output": "file", "sfi.directory": "/nowhere/at/all"}, 2),
            ("loopback", {"ros.source": "file:/nowhere.data"}, 2),
            ("lab", {"ros.source": "file:/nowhere.data"}, 2),
            ("loopback", {"qos.backend": "htb"}, 77),
            ("moon", {}, 2),
        ]
        for net, keys, status in table:
            ends = [subprocess.run([evb, command, path, "--net", net, *settings(keys)], capture_output=True, text=True, timeout=LIMIT_S)
                    for command in ("check", "run")]
            assert [end.returncode for end in ends] == [status] * 2 and ends[0].stderr == ends[1].stderr != "", ends
        done = subprocess.run([evb, "check", path, "--net", "loopback"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and done.stderr == "", done


def pull(evb):
    """States what an SFI derives for pull: from the port's buffer, while it runs, or not at all. The output stays a scenario."""
    with folder() as where:
        path = scenario(where)
        table = [
            ({"network.link-rate": "1Gbit", "network.switch-buffer": "128KiB"}, "requests at most 122880 bytes ", 122880),
            ({"network.link-rate": "1Gbit", "network.switch-buffer": "32KiB"}, "requests at most 29748 bytes ", 29748),
            ({}, "from losses and latency", None),
            ({"network.link-rate": "1Gbit", "sfi.outstanding": 4}, None, None),
            ({"network.link-rate": "1Gbit", "scenario.transport": "tcp"}, None, None),
            ({"network.link-rate": "1Gbit", "scenario.mode": "push"}, None, None),
        ]
        for keys, text, limit in table:
            words = [path, *settings({"scenario.mode": "pull", **keys})]
            done = subprocess.run([evb, "check", *words], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 0 and (text in done.stdout if text else "# sfi.outstanding" not in done.stdout), (keys, done)
            derived = json.loads(subprocess.run([evb, "check", *words, "--json"], capture_output=True, timeout=LIMIT_S).stdout)["derived"]
            assert derived == {"sfi_in_flight_max_bytes": limit}, (keys, derived)
            again = scenario(where, done.stdout, "again.conf")
            assert subprocess.run([evb, "check", again], capture_output=True, text=True, timeout=LIMIT_S).stdout == done.stdout, keys


main({"refused": refused, "refused-to-nobody": refused_to_nobody, "accepted": accepted, "shaping": shaping, "granted": granted, "run": run, "pull": pull})
