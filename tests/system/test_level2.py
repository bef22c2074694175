#!/usr/bin/env python3
"""Level 2: clients decide which events are built. None of them can stop a run.

    test_level2.py EVB [CASE...]
"""
import json
import pathlib
import re
import signal
import struct
import subprocess

from harness import LIMIT_S, OWN_NET, Running, complete, folder, main, need_root, run, scenario

PORT = 26803
REGIONS = 26804
REGIONS_KEYS = {"level2.regions": f"tcp:{REGIONS}", "run.seed": 5}

# No time-out decides unless a case sets a shorter one.
SCENARIO = f"""
[scenario]
mode = push
[trigger]
events = 4000
rate = 4kHz
[ros]
count = 3
fragment-size = 512
[sfi]
count = 2
timeout = 30s
[dfm]
node-timeout = 30s
[level2]
listen = tcp:{PORT}
timeout = 10min
"""
NODES = 6


def sums(report):
    """Every trigger was decided once."""
    level2 = report["level2"]
    assert report["triggers"] == level2["accepted"] + level2["rejected"] + level2["timed_out"], report
    assert report["events_complete"] + report["events_rejected"] == report["triggers"] > 0, report


def event_headers(path):
    """Returns {number: (L2 info, first event-filter word)} of a file of format v3.0."""
    data, found, at = path.read_bytes(), {}, -1
    while (at := data.find(b"\xaa\x34\x12\xaa", at + 1)) >= 0:
        words = struct.unpack_from("<6I", data, at)
        if words[3] != 0x03000000:
            continue
        specific = struct.unpack_from("<10I", data, at + 4 * (7 + words[5]))
        found[specific[1]] = (specific[5], specific[6])
    return found


def accept(evb):
    """A tenth is accepted. The files hold these events alone, with what the farm said about them."""
    with folder() as where, Running(evb, scenario(where, SCENARIO), {"sfi.output": "file", "sfi.directory": where}) as running:
        running.wait_nodes(NODES)
        farm = subprocess.Popen([evb, "level2", "--connect", f"{running.address('dfm')}:{PORT}", "--fraction", "0.1", "--latency", "5ms", "--json"],
                                stdout=subprocess.PIPE, text=True)
        report, counts = running.end((0,)), json.loads(farm.communicate(timeout=LIMIT_S)[0])
        sums(report)
        assert farm.returncode == 0
        assert counts["events"] == report["triggers"] == 4000 and counts["run_ended"] and counts["unused"] == 0, counts
        assert counts["accepted"] == report["level2"]["accepted"] == report["events_complete"] and 250 < counts["accepted"] < 550, counts
        assert report["fragments"]["expected"] == 3 * report["events_complete"] and report["fragments"]["corrupt"] == 0, report
        assert report["level2"]["latency_us"]["p50"] >= 5000, report["level2"]
        headers = {}
        for path in where.glob("*.data"):
            headers.update(event_headers(path))
        assert len(headers) == counts["accepted"], (len(headers), counts)
        assert all(header == (number, 1) for number, header in headers.items()), headers


def stand_in(evb, net):
    """evb run starts the farm itself, and ends it."""
    with folder() as where:
        report = run(evb, scenario(where, SCENARIO), {"test.stand-in": "0.25:2ms", "trigger.events": 2000}, net=net)
        sums(report)
        assert report["level2"]["timed_out"] == 0 and 400 < report["events_complete"] < 600, report
        # A run that is stopped at once leaves no farm behind.
        with Running(evb, scenario(where, SCENARIO), {"test.stand-in": "0.25:2ms", "trigger.events": 0}, net=net) as running:
            running.wait_for("decision", lambda: running.counter("dfm", "level2_decisions", decision="rejected") > 0)
            children = f"/proc/{running.process.pid}/task/{running.process.pid}/children"
            farm = [pid for pid in pathlib.Path(children).read_text().split()
                    if b"level2" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
            assert len(farm) == 1, farm
            running.signal()
            sums(running.end((0,)))
            assert not pathlib.Path(f"/proc/{farm[0]}").exists(), farm


def mistakes(evb):
    def call(*words):
        return subprocess.run([evb, *words], capture_output=True, text=True, timeout=LIMIT_S)

    for words, text in ((["level2"], "missing --connect"), (["level2", "--connect", "nowhere:1"], "--connect: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--fraction", "2"], "--fraction: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--latency", "soon"], "--latency: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--regions", "33"], "--regions: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--wait", "0"], "--wait: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "--pattern", "x"], "--pattern: invalid value"),
                        (["level2", "--connect", "127.0.0.1:1", "extra"], "extra")):
        done = call(*words)
        assert done.returncode == 2 and text in done.stderr, done
    with folder() as where:
        path = scenario(where, SCENARIO)
        report = json.loads(call("run", path, "--set", "level2.listen=none", "--set", "trigger.events=10", "--json").stdout)
        assert report["level2"] is None and report["events_rejected"] == 0 and report["events_complete"] == 10, report
    farm = subprocess.Popen([evb, "level2", "--connect", "127.255.255.254:9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Before that, it may not have caught signals yet.
    assert "waiting for a DFM" in farm.stderr.readline()
    farm.send_signal(signal.SIGTERM)
    _, err = farm.communicate(timeout=LIMIT_S)
    assert farm.returncode == 1 and "no DFM was at 127.255.255.254:9" in err, err


def waits(evb):
    """A client that waits says for whom, and that it has found it."""
    nodes = "".join(f"[node {name}]\nrole = {role}\naddress = {OWN_NET}.{k}\n"
                    for k, (name, role) in enumerate((("dfm", "dfm"), ("ros1", "ros"), ("sfi1", "sfi")), 1))
    text = f"[trigger]\nevents = 100\n[level2]\nlisten = tcp:{PORT}\n[network]\ncontrol-group = none\n{nodes}"
    with folder() as where, subprocess.Popen([evb, "level2", "--connect", f"{OWN_NET}.1:{PORT}", "--fraction", "1"],
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as farm:
        try:
            line = farm.stderr.readline()
            assert f"waiting for a DFM with level2.listen at {OWN_NET}.1:{PORT}: Connection refused" in line, line
            with Running(evb, scenario(where, text), {"level2.timeout": "60s", "sfi.timeout": "30s", 
                                                      "dfm.node-timeout": "30s"}) as running:
                complete(running.end(expect=(0,)))
            out, err = farm.communicate(timeout=LIMIT_S)
        finally:
            farm.kill()
        assert farm.returncode == 0 and out.startswith("100 events: 100 accepted"), (out, err)
        assert re.fullmatch(rf".*connected to the DFM of run \d+ at {OWN_NET}\.1:{PORT}\n", err), err


def regions_balance(report):
    r = report["level2"]["regions"]
    assert r["requested"] == r["sent"] + r["gone"] + r["absent"] + r["refused"] + r["dropped"], r
    of_nodes = sum(node["regions_sent"] for node in report["nodes"] if node["role"] == "ros")
    assert of_nodes == r["sent"], (of_nodes, r)
    return r


def regions_stand_in(evb, net, keys):
    """evb run starts a farm with regions of interest. What the ROSs send to it keeps below its bound."""
    with folder() as where:
        report = run(evb, scenario(where, SCENARIO), {**REGIONS_KEYS, "test.stand-in": "0.25:2ms:2", "trigger.events": 2000, "trigger.rate": "max",
                                                      "test.buffer-events": 200, **keys}, net=net)
        sums(report)
        r = regions_balance(report)
        assert r["sent"] == 4000 and report["level2"]["timed_out"] == 0 and 400 < report["events_complete"] < 600, report
        rate = keys.get("network.link-rate")
        if rate:
            # Each ROS sends its part at a tenth of this rate, so in this time at least, but for the first message.
            bits = 8 * max(node["regions_bytes"] for node in report["nodes"] if node["role"] == "ros")
            assert report["seconds"] > 0.9 * (bits - 8 * 64 * 1024) / (1e5 * int(rate[:-4])), (bits, report["seconds"])


NODES_WITH_ADDRESSES = f"""
[level2]
listen = tcp:{PORT}
[network]
link-rate = 1Gbit
[node dfm]
role = dfm
address = 127.0.0.1
[node ros1]
role = ros
address = 127.0.0.2
[node sfi1]
role = sfi
address = 127.0.0.3
"""


def regions_plan(evb):
    """evb check and evb qos plan know the bound."""
    with folder() as where:
        path = scenario(where, SCENARIO)
        keys = ["--set", f"level2.regions=tcp:{REGIONS}", "--set", "network.link-rate=1Gbit"]

        def call(*words):
            done = subprocess.run([evb, *words, *keys], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, done
            return done.stdout

        assert "each ROS sends at most 100 Mbit/s to all level-2 clients, and all ROSs at most 300 Mbit/s" in call("check", str(path))
        assert json.loads(call("check", str(path), "--json"))["regions_rate_bps"] == 100_000_000
        nodes = str(scenario(where, NODES_WITH_ADDRESSES, "nodes.conf"))
        assert json.loads(call("qos", "plan", "--config", nodes, "--node", "ros1", "--json"))["default"]["rate_bps"] == 105_000_000
        assert "other:   5.00 Mbit/s, and 100 Mbit/s for regions of interest" in call("qos", "plan", "--config", nodes, "--node", "ros1")
        keys[1] = "level2.regions=none"
        assert "Regions of interest" not in call("check", str(path)) and json.loads(call("check", str(path), "--json"))["regions_rate_bps"] is None


if __name__ == "__main__":
    main({"push": accept,
          "stand-in": lambda evb: stand_in(evb, "loopback"), "stand-in-lab": lambda evb: (need_root(), stand_in(evb, "lab")),
          "waits": waits, "mistakes": mistakes,
          "regions": lambda evb: regions_stand_in(evb, "loopback", {"network.link-rate": "50Mbit"}),
          "regions-lab": lambda evb: (need_root(), regions_stand_in(evb, "lab", {"network.link-rate": "100Mbit", "qos.backend": "auto"})),
          "regions-plan": regions_plan})
