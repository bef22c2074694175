#!/usr/bin/env python3
"""Standby nodes and their command server against invalid, unauthorized and badly timed messages.

    test_commands.py EVB [CASE...]
"""
import contextlib
import os
import random
import re
import signal
import subprocess

from harness import LIMIT_S, main
from network import wait_until
from standby import testbed, version


def refused(evb):
    """The DFM refuses nodes of another testbed or version, with a reason."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        other = bed.where / "other.conf"
        other.write_text(bed.scenario.read_text().replace("[network]\n", "[network]\nport = 5000\n"))
        bed.standby["ros2"].kill()
        bed.standby["ros2"].wait()
        bed.start("ros2", scenario=other)
        bed.wait_for("ros2", "the DFM refused this node: its scenario differs from the DFM's in nodes, ports or group")
        for introduction, why in (
            ({"node": "ros9"}, "no such node"),
            ({"node": "ros1"}, "node ros1 has address 10.9.0.2"),
            ({"node": 5}, "no such node"),
            ({}, "no such node"),
        ):
            with bed.connect() as s:
                s.send({"standby": introduction})
                assert why in s.receive()["refused"] and s.receive() is None
        with bed.connect("ros1") as s:
            s.send({"standby": {"node": "ros1", "version": "0.0.1"}})
            assert "the DFM runs evb" in s.receive()["refused"]
        with bed.connect() as s:
            s.send({"coordinator": {"version": "99"}})
            assert "the DFM runs evb" in s.receive()["refused"]
        assert bed.lab("C1").returncode in (0, 1) and bed.points()


def hostile(evb):
    """Invalid messages to the command port end their own connection only."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        for raw in (b"\x00\xff\x00\n", b"[]\n", b"{}\n", b'{"a":1,"a":2}\n', b"[" * 100000 + b"\n", b'{"command":{"kind":"run"},"to":["ros1"]}\n',
                      b'{"answer":{}}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 3000000, b'{"standby":[]}\n', b'{"coordinator":7}\n'):
            with bed.connect() as s:
                with contextlib.suppress(ConnectionError):
                    s.send(raw)
                while (message := s.receive()) is not None:
                    assert "refused" in message, message
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for settings, why in (
                (["sfi.directory=/"], "is local: no command may change it"), (["ros.source=file:/etc/shadow"], "is local: no command may change it"),
                (["node ros1.address=10.9.0.9"], "is local: no command may change it"), (["network.port=22"], "is local: no command may change it"),
                ([7], "expected texts"), ("x", "an array"),
                (["tuning.mtu=9000"], "needs the permission \"tuning\""), (["network.link-rate=2Gbit"], "needs the permission \"link-rate\""),
                (["standby.allow=tuning", "tuning.mtu=9000"], "is local: no command may change it"), (["network.command-from=::/0"], "is local: no command may change it"),
                (["run.seed=1"] * 200, "at most 128"), (["qos.rate=fast"], "qos.rate"), (["--help"], "SECTION.KEY=VALUE"),
                (["ros.source=" + "\u00e9" * 60], "is local: no command may change it"), (["qos.rate=x" + "\u00e9" * 60], "qos.rate"),
            ):
                s.send({"to": ["ros1", "nobody", 5], "command": {"kind": "run", "job": 1, "settings": settings}})
                assert s.receive_until("left")["left"] == "nobody"
                answer = s.receive_until("answer")
                assert answer["from"] == "ros1" and answer["answer"]["state"] == "refused" and why in answer["answer"]["reason"], answer
            s.send({"to": ["ros2"], "command": {"kind": "run", "job": 2, "settings": ["ros.count=1"]}})
            assert "does not take part" in s.receive_until("answer")["answer"]["reason"]
            endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.4", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
                   "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
            shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.4"]}
            for command, why in (
                ({"endpoints": []}, "endpoints: expected"), ({}, "endpoints: expected"), ({"endpoints": [endpoint | {"to": "8.8.8.8"}]}, "nodes of this testbed"),
                ({"endpoints": [endpoint | {"at": "10.9.0.3"}]}, "endpoint of this node"), ({"endpoints": [endpoint | {"from": "10.9.0.3"}]}, "endpoint of this node"),
                ({"endpoints": [endpoint | {"port": 22}]}, "endpoint of this node"), ({"endpoints": [endpoint | {"message_bytes": 1 << 40}]}, "endpoint of this node"),
                ({"endpoints": [endpoint, endpoint | {"role": 9}]}, "endpoint 1"), ({"endpoints": [endpoint | {"kind": 1, "to": "10.9.0.4"}]}, "nodes of this testbed"),
                ({"endpoints": [endpoint] * 100}, "Argument list too long"), ({"endpoints": [endpoint], "shape": shape | {"to": ["8.8.8.8"]}}, "addresses of this testbed"),
                ({"endpoints": [endpoint], "shape": {}}, "expected a rate"), ({"endpoints": [endpoint | {"role": 0, "kind": 2, "to": "10.9.0.4", "port": 7777}]}, "refused"),
            ):
                s.send({"to": ["ros1"], "command": {"kind": "flows", "job": 3} | command})
                answer = s.receive_until("answer")["answer"]
                assert answer["state"] == "refused" and why in answer["reason"].lower() + answer["reason"], (command, answer)
            s.send({"to": ["ros2"], "command": {"kind": "format-the-disk"}})
            assert "unknown kind" in s.receive_until("answer")["answer"]["reason"]
        assert all(p.poll() is None for p in bed.standby.values())
        assert bed.lab("C1").returncode in (0, 1) and bed.points()


def abuse(evb):
    """Random commands, many of them corrupted, with repeated job numbers, break neither nodes nor evb lab."""
    random_ = random.Random(8)
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.4", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.4"]}
        strange = (None, True, -1, 2 ** 62, 1.5, "", "x" * 1000, [], {}, [[]], "\u001b[2J\n", "stop", "ros1")

        def corrupt(value):
            if random_.random() < 0.05:
                return random_.choice(strange)
            if isinstance(value, dict):
                return {key: corrupt(v) for key, v in value.items() if random_.random() > 0.02}
            return [corrupt(v) for v in value] if isinstance(value, list) else value

        def command():
            job = random_.randrange(1, 4)
            return random_.choice((
                {"kind": "run", "job": job, "settings": ["run.number=77", "sfi.output=null", f"ros.count={random_.randrange(1, 3)}"]},
                {"kind": "flows", "job": job, "endpoints": [endpoint] * random_.randrange(1, 4)}, {"kind": "flows", "job": job, "endpoints": [endpoint], "shape": shape},
                {"kind": "state", "job": job, "state": random_.randrange(-1, 7)}, {"kind": "stop"}, {"kind": "stop"}))

        for turn in range(30):
            with bed.connect() as s:
                with contextlib.suppress(ConnectionError):
                    s.send({"coordinator": {"version": version(evb)}})
                    for _ in range(40):
                        s.send(corrupt({"to": random_.choices([*bed.roles, "nobody"], k=2), "command": command()}))
                    # A corrupted message may end the connection; half of the others end within a message.
                    if turn % 2:
                        s.send(b'{"to": ["ros1"], "command": {"kind"')
        assert all(p.poll() is None for p in bed.standby.values()), [bed.log(name)[-500:] for name in bed.roles]
        assert "\x1b" not in "".join(bed.log(name) for name in bed.roles)

        def left():
            with bed.connect() as s:
                s.send({"coordinator": {"version": version(evb)}})
                return "nodes" in s.receive()

        wait_until("free place for evb lab", left)
        done = bed.lab("C1")
        assert done.returncode in (0, 1) and len(bed.points()) == 4, done
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def permissions(evb):
    """Nodes refuse commands without permission; evb lab names node, setting and permission."""
    with testbed(evb, standby="allow = none\n") as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        done = bed.lab("C1")
        assert done.returncode == 1 and not bed.points(), done
        # All nodes lack the permission, so any of them may answer first.
        found = re.search(r'(\w+) refused: setting "sfi.output=null" needs the permission "output": add it to standby.allow in the scenario of node (\w+)',
                          done.stderr)
        assert found and found[1] == found[2], done.stderr
        done = bed.lab("B4")
        assert "ros1 refused: shaping needs the permission \"qos\": add it to standby.allow in the scenario of node ros1" in done.stderr, done
        bed.scenario.write_text(bed.scenario.read_text().replace("output = file", "output = null"))
        for name in bed.roles:
            bed.standby[name].kill()
            bed.standby[name].wait()
            bed.start(name)
        for name in bed.roles:
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        # A setting that changes nothing needs no permission.
        assert bed.lab("C1").returncode in (0, 1) and len(bed.points()) == 4
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for job, (setting, permission) in enumerate((("qos.backend=htb", "qos"), ("sfi.output=file", "output"), ("sfi.file-size=1MiB", "output"),
                                                         ("tuning.rx-usecs=1", "tuning"), ("network.link-rate=1kbit", "link-rate")), 1):
                s.send({"to": ["ros1"], "command": {"kind": "run", "job": job, "settings": [setting]}})
                answer = s.receive_until("answer")["answer"]
                assert answer["state"] == "refused" and f'"{setting}" needs the permission "{permission}"' in answer["reason"], answer
        assert bed.network.tc("ros1", "qdisc", "show").stdout == before


def privileges(evb):
    """evb lab names a node that lacks a privilege, and the file that grants it."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        for name, lacks in (("ros1", "-net_admin"), ("sfi1", "-net_raw")):
            bed.standby[name].kill()
            bed.standby[name].wait()
            bed.start(name, before=("setpriv", f"--inh-caps={lacks}", f"--bounding-set={lacks}"))
            bed.wait_for("dfm", f"node {name} is on standby\n", times=2)
        done = bed.lab("A7", "B4")
        assert "ros1 refused: eth0: shaping is not permitted: node ros1 needs evb-ros-shaping.conf (share/evb/systemd)" in done.stderr, done.stderr
        assert "sfi1 refused: watching the wire is not permitted: node sfi1 needs evb-sfi-watching.conf (share/evb/systemd)" in done.stderr, done.stderr
        assert 'A7: "no QoS" at 1448 failed' in done.stderr and done.returncode == 1 and not bed.points(), done


def strangers(evb):
    """Unauthorized addresses cannot give commands, nor lock out others with many connections."""
    with testbed(evb, commands="nodes") as bed:
        bed.wait_all_on_standby()
        done = bed.lab("C1")
        assert done.returncode == 1 and "10.9.0.5" in done.stderr and "add its address to network.command-from in the DFM's scenario" in done.stderr, done
        with contextlib.ExitStack() as silent:
            for _ in range(60):
                silent.enter_context(bed.connect())
            with bed.connect("ros1") as s:
                s.send({"coordinator": {"version": version(evb)}})
                assert set(s.receive_until("nodes")["nodes"]) == set(bed.roles)


def idle(evb):
    """An idle coordinator is disconnected, so that the next one can connect."""
    # evb lab reports every 1.25 s; it may be without processor for some seconds.
    with testbed(evb, standby="allow = qos, output\nidle-timeout = 5s\n") as bed:
        bed.wait_all_on_standby()
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert "nodes" in s.receive()
            assert "standby.idle-timeout" in s.receive_until("refused")["refused"] and s.receive() is None
        # A coordinator with a run is not idle.
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            assert "nodes" in s.receive()
            s.send({"to": list(bed.roles), "command": {"kind": "run", "job": 7, "settings": ["run.number=77", "sfi.output=null", "scenario.duration=8s"]}})
            answers = {s.receive_until("answer")["from"] for _ in bed.roles}
            assert answers == set(bed.roles)
            assert "standby.idle-timeout" in s.receive_until("refused")["refused"]
        # evb lab waits longer than that for a missing node.
        bed.standby["ros1"].kill()
        bed.standby["ros1"].wait()
        done = bed.lab("C1")
        assert "not on standby: ros1" in done.stderr and "refused" not in done.stderr, done


def twice(evb):
    """The second start of a node is refused; the first one continues its run."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        first = bed.standby["ros1"]
        with subprocess.Popen(bed.command("C1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            bed.wait_for("ros1", "started")
            bed.start("ros1")
            second = bed.standby["ros1"]
            try:
                bed.wait_for("ros1", "the DFM refused this node: node ros1 is already on standby, connected from 10.9.0.2")
                bed.wait_for("dfm", "node ros1 is already on standby")
                said = running.communicate(timeout=LIMIT_S)[1]
                assert "disconnected" not in said and len(bed.points()) == 4, said
            finally:
                first.kill()
                first.wait()
        # The second one takes over when the first one has left.
        bed.wait_for("dfm", "node ros1 is on standby\n", times=2)
        bed.wait_for("ros1", "the DFM accepts this node now")
        assert second.poll() is None and bed.log("ros1").count("the DFM refused") == bed.log("ros1").count("already on standby, connected from") >= 1


def cut_off(evb):
    """DFM and nodes notice a peer that vanishes without closing its connection."""
    with testbed(evb) as bed:
        bed.wait_all_on_standby()
        ports = {host: f"port{i}" for i, host in enumerate([*bed.roles, "desk"], 1)}
        with bed.connect() as gone:
            gone.send({"coordinator": {"version": version(evb)}})
            gone.receive_until("nodes")
            for host in ("desk", "ros1"):
                bed.network.ip("switch", "link", "set", ports[host], "down")
            bed.wait_for("dfm", "node ros1 left standby")
            bed.wait_for("ros1", "no connection to the DFM (")
            bed.network.ip("switch", "link", "set", ports["ros1"], "up")
            bed.wait_for("dfm", "node ros1 is on standby\n", times=2)

            def welcome():
                with bed.connect("ros2") as s:
                    s.send({"coordinator": {"version": version(evb)}})
                    return "nodes" in s.receive()

            wait_until("accepted evb lab", welcome, limit=30)


def left_shaping(evb):
    """Shaping left by a killed node does not affect the next job."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        before = bed.network.tc("ros1", "qdisc", "show").stdout
        endpoint = {"role": 0, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.3", "at": "10.9.0.2", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        shape = {"rate_bps": 10 ** 7, "link_rate_bps": 10 ** 9, "mtu_bytes": 1500, "sources": 1, "to": ["10.9.0.3"]}
        run = {"kind": "run", "settings": ["qos.backend=htb+tbf", "sfi.output=null"]}
        plain = {"kind": "flows", "endpoints": [endpoint]}
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for i, (shaping, next_) in enumerate(((plain | {"shape": shape}, plain), (run, plain), (plain | {"shape": shape}, run | {"settings": ["sfi.output=null"]}))):
                s.send({"to": ["ros1"], "command": shaping | {"job": 2 * i}})
                wait_until("shaping", lambda: "htb" in bed.network.tc("ros1", "qdisc", "show").stdout)
                bed.standby["ros1"].kill()
                bed.standby["ros1"].wait()
                bed.start("ros1")
                s.receive_until("joined")
                assert "htb" in bed.network.tc("ros1", "qdisc", "show").stdout
                s.send({"to": ["ros1"], "command": next_ | {"job": 2 * i + 1}})
                wait_until("device without shaping", lambda: bed.network.tc("ros1", "qdisc", "show").stdout == before, limit=30)
                s.send({"to": ["ros1"], "command": {"kind": "stop"}})


def lost_endpoint(evb):
    """A killed endpoint is reported at once and gives no result."""
    with testbed(evb, ros=1) as bed:
        bed.wait_all_on_standby()
        endpoint = {"role": 1, "kind": 0, "flow": 0, "which": 0, "from": "10.9.0.2", "to": "10.9.0.3", "at": "10.9.0.3", "port": 7000, "message_bytes": 100,
               "buffer_bytes": 0, "messages_per_s": 10, "receiver_packets_per_s": 0}
        with bed.connect() as s:
            s.send({"coordinator": {"version": version(evb)}})
            s.receive_until("nodes")
            for job in range(1, 4):
                s.send({"to": ["sfi1"], "command": {"kind": "flows", "job": job, "endpoints": [endpoint, endpoint | {"port": 7002}]}})
                assert s.receive_until("answer")["answer"] == {"job": job, "state": "ready"}
                os.kill(bed.child("sfi1"), signal.SIGKILL)
                assert s.receive_until("answer")["answer"] == {"job": job, "state": "refused", "reason": "Broken pipe"}


main({
    "refused": refused, "hostile": hostile, "abuse": abuse, "permissions": permissions,
    "privileges": privileges, "strangers": strangers, "idle": idle, "twice": twice, "cut-off": cut_off,
    "left-shaping": left_shaping, "lost-endpoint": lost_endpoint,
})
