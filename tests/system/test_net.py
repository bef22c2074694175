#!/usr/bin/env python3
"""Runs over other networks: namespaces with a bridge, IPv6, no multicast, no super-packets, large datagrams.

    test_net.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import LIMIT_S, Running, Skip, complete, folder, left_overs, main, need_root, read_until, run, scenario, settings
from network import Network, wait_until


def lab(evb, **keys):
    need_root()
    # Events that wait for their turn in pull took 32 s at load 50.
    keys = {"sfi_timeout": "100s", "dfm_event__timeout": "200s", **keys}
    with folder() as where, Running(evb, scenario(where), {k.replace("__", "-").replace("_", ".", 1): v for k, v in keys.items()},
                                    net="lab") as running:
        pid = running.process.pid
        complete(running.end(expect=(0,)))
        assert not left_overs(pid), left_overs(pid)


def loopback(evb, **keys):
    with folder() as where:
        complete(run(evb, scenario(where), {k.replace("__", "-").replace("_", ".", 1): v for k, v in keys.items()}))


def backends(evb):
    """Shaping with each backend of this kernel drops nothing at the source, and super-packets stay whole."""
    need_root()
    keys = {"ros.count": 1, "sfi.count": 1, "ros.fragment-size": "14KiB", "trigger.rate": "max", "trigger.events": 0,
            "scenario.duration": "1s", "network.link-rate": "unlimited", "qos.rate": "10Gbit"}
    for backend in ("htb+tbf", "htb"):
        with folder() as where, Running(evb, scenario(where), {**keys, "qos.backend": backend}, net="lab") as running:
            report = running.end(expect=(0, 1))
        assert report["events_complete"] > 0 and report["drops"]["source_qdisc_packets"] == 0, (backend, report)


def full_frames(evb):
    """Overloaded, nearly all datagrams are full, although bursts of assignments end all the time."""
    need_root()
    keys = {"ros.count": 6, "sfi.count": 1, "trigger.rate": "max", "trigger.events": 0,
            "scenario.duration": "2s", "ros.fragment-size": "1KiB", "network.link-rate": "200Mbit", "qos.backend": "auto",
            "qos.rate": "auto"}
    with folder() as where, Running(evb, scenario(where), keys, net="lab") as running:
        report = running.end(expect=(0, 1))
    sent = sum(n.get("packets_sent", 0) for n in report["nodes"])
    full = sum(n.get("packets_full", 0) for n in report["nodes"])
    assert sent > 1000 and full > 0.95 * sent, (sent, full)


def sleeps(pid):
    """Returns how often the main thread of a process has given up its processor by itself."""
    status = pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])


def busy_poll(evb):
    """Nodes that poll do not sleep between two events. The run is complete and stops as usual."""
    keys = {"ros.count": 1, "sfi.count": 1, "trigger.rate": "500Hz", "trigger.events": 0, "network.busy-poll": "1s"}
    for transport in ("udp", "tcp"):
        with folder() as where, Running(evb, scenario(where), {**keys, "scenario.transport": transport}) as running:
            running.wait_running()
            before = {pid: sleeps(pid) for pid in running.nodes().values()}
            enough = running.counter("dfm", "events_complete") + 200
            running.wait_for("200 events", lambda: running.counter("dfm", "events_complete") >= enough)
            slept = {pid: sleeps(pid) - before[pid] for pid in before}
            assert len(slept) == 3 and max(slept.values()) <= 20, slept
            running.signal()
            complete(running.end(expect=(0,)))


def has_congestion_control(name):
    """The kernel may load a module when a socket asks for it, and lists loaded ones only."""
    with socket.socket() as s:
        try:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except FileNotFoundError:
            return False
    return True


def congestion(evb):
    """Data connections use the configured congestion control; one that the kernel lacks ends the run before it begins."""
    if not shutil.which("ss"):
        raise Skip("ss (iproute2) is not installed")
    with folder() as where:
        path = scenario(where)
        for name in ("reno", "cubic", "bbr", "dctcp"):
            keys = {"scenario.transport": f"tcp:{name}", "trigger.events": 0, "trigger.rate": "1kHz"}
            with Running(evb, path, keys) as running:
                if not has_congestion_control(name):
                    said = running.process.communicate(timeout=LIMIT_S)[1]
                    assert running.process.returncode == 77 and f"the kernel has no {name}" in said, said
                    continue
                running.wait_nodes(9)
                running.wait_running()
                command = ["ss", "-Htnio", "state", "established", "dst", f"{running.address('sfi1')}:26801"]
                used = []

                def connected():
                    used[:] = re.findall(r"^\s+.*?\b(reno|cubic|bbr|dctcp)\b", subprocess.run(
                        command, stdout=subprocess.PIPE, text=True, check=True).stdout, re.M)
                    return len(used) == 6

                running.wait_for("6 connections of ROSs", connected)
                assert used == [name] * 6, used
                running.process.send_signal(signal.SIGTERM)
                running.end(expect=(0,))


def parts_of(packet):
    """Returns the kind of an IPv4 packet of a run, None for others, and its DSCP."""
    ports = packet[0] % 16 * 4
    to_sfi, from_sfi = ((packet[ports + i] << 8 | packet[ports + i + 1]) == 26801 for i in (2, 0))
    kind = None
    if packet[9] == socket.IPPROTO_UDP:
        kind = "fragment" if to_sfi else "control"
    elif packet[9] == socket.IPPROTO_TCP and (packet[2] << 8 | packet[3]) > ports + (packet[ports + 12] >> 4) * 4:
        kind = "fragment" if to_sfi else "request" if from_sfi else None
    return kind, packet[1] >> 2


def dscp(evb):
    """Control messages, fragments, and requests for these over TCP have the marks of network.dscp."""
    with folder() as where, Network("marks") as network:
        path = scenario(where)
        for mode, transport, kinds in ("push", "udp", ()), ("pull", "tcp", ("request",)):
            with network.socket("marks", socket.SOCK_DGRAM, socket.AF_PACKET) as listener, network.inside("marks"):
                # SO_RCVBUFFORCE, for all packets of the run.
                listener.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)
                listener.bind(("lo", 0x0800))
                complete(run(evb, path, {"scenario.mode": mode, "scenario.transport": transport, "trigger.events": 100,
                                         "network.dscp": "cs6,af21"}))
                listener.setblocking(False)
                seen = set()
                with contextlib.suppress(BlockingIOError):
                    while True:
                        seen.add(parts_of(listener.recv(128)))
            marks = {"control": 48, "fragment": 18, **{kind: 18 for kind in kinds}}
            assert {(kind, mark) for kind, mark in seen if kind} == set(marks.items()), (transport, seen)


def killed_launcher(evb):
    """The nodes of a killed launcher die with it; the next run removes its namespaces."""
    need_root()
    with folder() as where:
        path = scenario(where)
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "1kHz"}, net="lab") as running:
            running.wait_nodes(9)
            nodes = running.nodes()
            pid = running.process.pid
            # Once it is dead, any other run may remove them.
            assert left_overs(pid)
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            wait_until(f"end of {nodes}", lambda: not any(os.path.exists(f"/proc/{n}") for n in nodes.values()))
        complete(run(evb, path, net="lab"))
        assert not left_overs(pid)


def rate(evb, *, link_bps=10**9, events=600, **keys):
    """Links limit the rate; the SFIs miss only what ports drop, and recover all of it."""
    need_root()
    with folder() as where:
        report = run(evb, scenario(where), {"network.link-rate": f"{link_bps}bit",
                                            "ros.fragment-size": "14KiB",
                                            "sfi.count": 1, "trigger.events": events, **keys},
                     net="lab")
    complete(report)
    # From the first trigger on: a DFM that gets no processor for a while learns late of the first complete events.
    assert report["payload_bytes"] < link_bps / 8 * report["building_seconds"], report
    drops = report["drops"]
    assert drops["switch_packets"] is not None
    if report["transport"] == "udp":
        # The port also drops control messages, which the SFI does not count. A busy machine loses packets too.
        least, most = drops["network_packets"] - report["testbed_lost_packets"], 1.1 * drops["network_packets"] + 50
        assert least <= drops["switch_packets"] <= most, report
    if report["qos_backend"] != "none":
        assert drops["switch_packets"] == 0 and drops["source_qdisc_packets"] == 0, drops
        # Fragments in transit do not count as lost, except when a process waited for a processor.
        assert report["fragments"]["lost"] == 0, report["fragments"]


def rate_shaped(evb, **keys):
    """At a tenth of the rate, the port's buffer bridges longer scheduling delays, and nothing is lost."""
    rate(evb, link_bps=10**8, **{"qos.backend": "auto", **keys})


def control(evb, *, net="loopback", mode="push", **keys):
    """At any trigger rate, control messages stay within the bound of each port, and small events need a part of it."""
    with folder() as where:
        done = run(evb, scenario(where), {"scenario.mode": mode, "trigger.rate": "max", "trigger.events": 20000, "ros.fragment-size": 64,
                                          "ros.count": 2, "network.link-rate": "100Mbit", "network.mtu": 1500, **keys}, net=net)
    complete(done)
    for port in done["control_ports"]:
        # A burst of two frames, one more message, and what is sent at fixed intervals beyond the budget.
        most = port["bound_bps"] / 8 * done["seconds"] + 3 * 1514 + 20000
        assert 0 < port["bytes"] <= most, (port, most)
        assert port["packets"] * 74 <= port["bytes"], port


def summary(evb, net, keys):
    """Returns the summary for people."""
    with folder() as where:
        done = subprocess.run([evb, "run", str(scenario(where)), "--net", net, *settings(keys)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done
    return done.stdout


def loopback_summary(evb):
    text = summary(evb, "loopback", {})
    assert re.search(r"^  drops at   source queue unknown, switch port unknown, socket \d+; late \d+$", text, re.M), text
    assert "shaping" not in text, text
    control = r"^  control    up to [\d.]+ \wbit/s into the port of an SFI \(sfi\d\), bound unknown$"
    # Events of a DFM that gets no processor for a while follow each other too closely for a rate.
    wait_until("a rate of control messages", lambda: re.search(control, summary(evb, "loopback", {"trigger.events": 200, "trigger.rate": "500Hz"}), re.M))
    # One event takes no time that a rate could refer to.
    text = summary(evb, "loopback", {"trigger.events": 1})
    assert "  events     1 complete" in text and "  rate " not in text and "  control " not in text, text


def lab_summary(evb):
    need_root()
    slow = {"network.link-rate": "100Mbit", "ros.fragment-size": "14KiB", "sfi.count": 1, "trigger.events": 250}
    text = summary(evb, "lab", slow)
    found = re.search(r"^  drops at   source queue unknown, switch port (\d+), socket \d+; late \d+$", text, re.M)
    assert found and int(found[1]) > 0 and "shaping" not in text, text
    text = summary(evb, "lab", {**slow, "qos.backend": "htb+tbf", "qos.rate": "15Mbit"})
    assert re.search(r"^  drops at   source queue 0, switch port 0, socket \d+; late \d+$", text, re.M), text
    assert "  shaping    htb+tbf, 15.0 Mbit/s per destination\n" in text, text


def measured(evb):
    """A measured run says what the machine did beside it."""
    need_root()
    with folder() as where:
        words = [evb, "run", scenario(where), "--net", "lab", "--measure", "--json", *settings({"trigger.rate": "1kHz", "trigger.events": 1000})]
        machine, deadline = {"seconds": 0}, time.monotonic() + LIMIT_S
        # On a busy machine, the launcher may get no processor in the second that it measures.
        while machine["seconds"] == 0 and time.monotonic() < deadline:
            done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, done
            machine = json.loads(done.stdout)["machine"]
    assert 0 < machine["seconds"] < LIMIT_S and 0 <= machine["others_share"] <= 1 and machine["raised"] in (True, False), machine
    late = machine["timer_late_max_us"], machine["timer_late_p99_us"]
    # Unknown without a real-time priority, which a control group may deny to root, too.
    assert machine["waiting_share"] > 0 and (late == (None, None) or late[0] >= late[1] > 0), machine


@contextlib.contextmanager
def testbed(evb, where, *words, **options):
    """Yields the nodes by name, a list that has the report after the end, and the process."""
    reports = []
    with subprocess.Popen([evb, "testbed", scenario(where), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as bed:
        nodes = {node["name"]: node for node in json.loads(bed.stdout.readline())["nodes"]}
        assert len(left_overs(bed.pid)) >= len(nodes), nodes
        yield nodes, reports, bed
        bed.stdin.close()
        reports.append(json.loads(bed.stdout.read()))
    assert bed.returncode == 0 and not left_overs(bed.pid), bed.returncode


def stream(evb, sender, receiver):
    """Sends 1000 packets from one namespace to another. Returns the report of the receiver."""
    def inside(node, *words):
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{node['namespace']}", evb, "stream", *words], stdout=subprocess.PIPE, text=True)

    with inside(receiver, "recv", "0.0.0.0:26900", "--output", "null", "--json") as received:
        sent = inside(sender, "send", f"{receiver['address']}:26900", "--wait", f"{LIMIT_S}s", "--input", "pattern:1400000", "--packet-size", "1400", "--rate", "100Mbit")
        report = json.loads(received.communicate(timeout=LIMIT_S)[0])
        assert sent.wait(LIMIT_S) in (0, 1)
    return report


def bed_of_switch(evb):
    """Other programs use the network of a scenario, which goes when its user closes the input, and on a signal."""
    need_root()
    with folder() as where:
        with testbed(evb, where, "--set", "network.link-rate=1Gbit", stderr=subprocess.PIPE) as (nodes, reports, bed):
            assert stream(evb, nodes["ros1"], nodes["sfi1"])["packets_lost"] == 0
            for command in (f"watch {os.getpid()}", "begin", "hello"):
                print(command, file=bed.stdin, flush=True)
            read_until(bed.stderr, 'unknown command "hello"')  # once the others were obeyed
            begin = time.monotonic()
            wait_until("half a second", lambda: time.monotonic() > begin + 0.5)
            print("end", file=bed.stdin, flush=True)
        assert reports[0]["switch_packets"] == reports[0]["testbed_lost_packets"] == 0 and reports[0]["port"] in ("exact", "timer"), reports
        assert reports[0]["machine"]["seconds"] > 0.2, reports
        with testbed(evb, where) as (nodes, reports, bed):
            bed.send_signal(signal.SIGTERM)
            assert bed.wait(LIMIT_S) == 0 and not left_overs(bed.pid)


def bed_of_path(evb):
    """A long path delays packets, and loses the share that was asked for."""
    need_root()
    if not os.path.exists("/dev/net/tun"):
        raise Skip("a long path needs TUN devices")
    with folder() as where:
        with testbed(evb, where, "--round-trip", "20ms", "--fault", "loss=0.2") as (nodes, reports, bed):
            lost = stream(evb, nodes["sender"], nodes["receiver"])["packets_lost"]
        assert 100 < lost <= reports[0]["path_lost_packets"] and reports[0]["testbed_lost_packets"] == 0, (lost, reports)
        for words, says in ((["--round-trip", "soon"], "expected a time, e.g. 100ms"), (["--fault", "loss=0.1"], "needs --round-trip")):
            refused = subprocess.run([evb, "testbed", scenario(where), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
            assert refused.returncode == 2 and says in refused.stderr, refused


main({
    "measured": measured,
    "testbed": bed_of_switch,
    "testbed-path": bed_of_path,
    "summary": loopback_summary,
    "lab-summary": lab_summary,
    "lab-push": lambda evb: lab(evb, scenario_mode="push"),
    "lab-v6": lambda evb: lab(evb, network_control__group="ff05::6986"),
    "lab-v6-tcp": lambda evb: lab(evb, network_control__group="ff05::6986", scenario_transport="tcp", scenario_mode="pull"),
    "lab-jumbo": lambda evb: lab(evb, network_mtu=9000, ros_fragment__size="14KiB"),
    "lab-rate": rate,
    "lab-rate-pull": lambda evb: rate(evb, **{"scenario.mode": "pull"}),
    "lab-rate-tcp": lambda evb: rate(evb, **{"scenario.transport": "tcp"}),
    "lab-rate-jumbo": lambda evb: rate(evb, **{"network.mtu": "9000", "network.switch-buffer": "1MiB"}),
    "control-bound": lambda evb: control(evb),
    "control-bound-pull": lambda evb: control(evb, mode="pull"),
    "control-bound-sfis": lambda evb: control(evb, **{"sfi.count": 4, "ros.count": 3}),
    "lab-rate-shaped": lambda evb: rate_shaped(evb, events=250),
    "lab-rate-shaped-small-buffer": lambda evb: rate_shaped(evb, events=60, **{"network.switch-buffer": "128KiB", "ros.fragment-size": "64KiB"}),
    "backends": backends,
    "full-frames": full_frames,
    "killed-launcher": killed_launcher,
    "congestion": congestion,
    "dscp": dscp,
    "busy-poll": busy_poll,
    # The ROSs have room for 5 of the 8 events, which share the processors.
    "large": lambda evb: loopback(evb, ros_fragment__size="4MiB", ros_buffer__size="20MiB", trigger_events=8, sfi_timeout="100s"),
})
