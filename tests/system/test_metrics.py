#!/usr/bin/env python3
"""The metrics of nodes, as Prometheus reads them, and as hostile clients try to.

    test_metrics.py EVB [CASE...]
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from board import Board
from harness import LIMIT_S, OWN_NET, ROOT, SMALL, Running, Skip, ask, complete, folder, main, need_root, scenario, settings
from metrics import OPEN_METRICS, PLAIN, Scrape, counter_names, official_parser, scrape, wait_scrape
from network import sh, wait_until

CONFIGS = ROOT / "configs"
# They change after the last event, or with the end of the run.
LATE = re.compile(r"control_|busy_|events_stored|file_bytes|triggers_not_taken|clear_gaps|packets_source|.*_ns$")


def sockets(where):
    return {"metrics.listen": f"unix:{where}/%n.sock"}


def place(where, node):
    return f"unix:{where}/{node}.sock"


@contextlib.contextmanager
def endless(evb, keys=None, text=SMALL, **options):
    """A run that lasts until it is stopped; yields it and its folder."""
    with folder() as where, Running(evb, scenario(where, text), {
            "trigger.events": 0, "trigger.rate": "100Hz", "sfi.directory": where, **sockets(where), **(keys or {})}, **options) as running:
        yield running, where


def stop(running):
    running.signal()
    report = running.end(expect=(0,))
    complete(report)
    return report


def accounts(evb, mode):
    """Once all events are built, the metrics of each node are the figures of its report."""
    n, board = 2000, Board()
    with folder() as where, Running(evb, scenario(where), {
            **board.keys(), **sockets(where), "scenario.mode": mode, "ros.count": 3, "run.number": 4711}) as running:
        running.wait_nodes(6)
        board.connect(running)
        for k in range(0, n, 20):
            board.wait_ready()
            board.send(k, 20)
        wait_scrape(place(where, "dfm"), f"{n} events", lambda s: s.value("evb_events_complete_total") == n)
        nodes = ["dfm", *(f"ros{i}" for i in (1, 2, 3)), "sfi1", "sfi2"]
        # What is on its way is counted before the second message that a node sends from now on: first by the ROSs, then by the SFIs.
        scrapes, (sent, labels) = {}, counter_names()["control_sent"]
        for name in nodes:
            before = scrape(place(where, name)).value(sent, **labels)
            scrapes[name] = wait_scrape(place(where, name), "two messages", lambda s, n=before: s.value(sent, **labels) >= n + 2)
        running.signal()
        report = running.end(expect=(0,))
    complete(report)
    compared = 0
    for node in report["nodes"]:
        for counter, (name, labels) in counter_names().items():
            if not LATE.match(counter):
                value = scrapes[node["name"]].value(name, **labels)
                assert value == node[counter], f"{node['name']}: {name} {labels} is {value}, {counter} {node[counter]}"
                compared += value > 0
    assert compared >= 25, compared
    dfm = scrapes["dfm"]
    assert dfm.value("evb_node_info", run="4711", mode=mode, transport="udp", node="dfm", role="dfm") == 1
    assert dfm.value("evb_event_latency_seconds_count") == n and dfm.value("evb_event_latency_seconds_sum") > 0
    assert dfm.value("evb_node_state", state="running") == 1 and dfm.value("evb_node_state") == 1
    assert all(dfm.value("evb_node_present", peer=name) == 1 for name in nodes[1:])
    assert abs(dfm.value("evb_last_complete_timestamp_seconds") - time.time()) < LIMIT_S
    for ros in nodes[1:4]:
        assert sum(scrapes[sfi].value("evb_pair_fragments_received_total", ros=ros) for sfi in nodes[4:]) == n
        assert scrapes[ros].value("evb_pair_fragments_sent_total") == scrapes[ros].value("evb_fragments_sent_total")
        assert scrapes[ros].value("evb_pair_sent_bytes_total") >= n * 1024
    for name in nodes:
        assert 0 < time.time() - scrapes[name].value("process_start_time_seconds") < 10 * LIMIT_S
        assert scrapes[name].value("process_resident_memory_bytes") > 1 << 20


def formats(evb):
    """Clients get the format that they ask for; other paths and methods are errors."""
    with endless(evb, {"sfi.output": "file"}) as (running, where):
        running.wait_running()
        parse = official_parser()
        for node in ("dfm", "ros1", "sfi1"):
            at = place(where, node)
            for accept in (None, "*/*", "text/plain", "text/html,*/*;q=0.8"):
                status, headers, text = ask(at, accept=accept)
                assert status == 200 and headers["Content-Type"] == PLAIN, (accept, headers)
                assert "# TYPE evb_triggers_total counter\n" in text and "# EOF" not in text, text
            if parse:
                text = ask(at, accept=OPEN_METRICS)[2]
                families = list(parse(text))
                assert len(families) == len(Scrape(text).families), families
        status, headers, text = ask(at, method="HEAD")
        assert status == 200 and int(headers["Content-Length"]) > 1000 and text == "", (headers, text)
        status, _, text = ask(at, "/")
        assert status == 200 and "sfi1" in text and "/metrics" in text, text
        assert ask(at, "/metrics/more")[0] == ask(at, "/../etc/passwd")[0] == 404
        status, headers, _ = ask(at, method="POST", body="x=1")
        assert status == 405 and headers["Allow"] == "GET, HEAD", headers
        disk, free = scrape(at), os.statvfs(where)
        assert disk.value("evb_output_size_bytes") == free.f_blocks * free.f_frsize, disk.samples
        assert 0 < disk.value("evb_output_free_bytes") <= disk.value("evb_output_size_bytes")
        stop(running)
        assert not list(where.glob("*.sock")), "sockets are left"


def losing(evb):
    """A run that loses events is not ok, however fast it runs: all views say so, and where."""
    with folder() as where:
        path, keys = scenario(where), settings(sockets(where))
        words = [evb, "status", "--scenario", str(path), *keys]
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "200Hz", "network.loss": 0.4, "sfi.retries": 0, "sfi.timeout": "200ms",
                                 **sockets(where)}) as running:
            running.wait_running()
            reason = re.compile(r"\d( k)? partial in the last \d+ s.*; missing fragments: ros\d .*; dropped packets: network \d")

            def all_losses():
                done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
                report = json.loads(done.stdout)
                # On a busy machine, a ROS may not answer in time, or hold triggers back for a moment.
                ross = {n["condition"] for n in report["nodes"] if n["role"] == "ros"}
                return (report["nodes"][0]["condition"] == "losing" and ross == {"running"} and reason.search(report["reason"]) and
                        (done.returncode, report))

            # A builder knows of a loss before the DFM does.
            status, report = wait_until("losses of all nodes", all_losses)
            assert status == 1 and report["ok"] is False and report["run"] == report["nodes"][0]["run"] and report["state"] == "losing", report

            # One look may come at a moment in which a node does not answer in time.
            def shown():
                done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
                return (done.returncode == 1 and re.search(r"^dfm +dfm +losing ", done.stdout, re.M) and "partial in the last" in done.stderr and
                        re.search(r"^run \d+ of test: losing; .* in the last \d+ s; missing fragments: ros", done.stdout, re.M))

            def on_top():
                done = subprocess.run([evb, "top", "--scenario", str(path), *keys, "--count", "1", "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
                report = json.loads(done.stdout)
                return done.returncode == 0 and report["ok"] is False and report["state"] == "losing" and "missing fragments: ros" in report["reason"]

            wait_until("losses in the text of evb status", shown)
            wait_until("losses in evb top", on_top)
            running.signal()
            running.end(expect=(1,))


def status(evb):
    """evb status shows all nodes, in 80 columns; it names those that do not answer, and a run that stalls."""
    def ask_all(*more, expect=0):
        done = subprocess.run([evb, "status", "--scenario", str(path), *settings(sockets(where)), *more], capture_output=True,
                              text=True, timeout=LIMIT_S)
        assert expect is None or done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done

    def ask_until(what, condition, *more, expect=0):
        """Asks until one answer is as it should be: of a busy machine, a node may not answer in time."""
        def answer():
            done = ask_all(*more, expect=None)
            return done.returncode == expect and condition(done) and done

        return wait_until(what, answer)

    def nodes_of(done):
        return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}

    def has_rates(done):
        nodes = nodes_of(done)
        return nodes["dfm"]["rates"]["events_hz"] > 0 and nodes["ros1"]["rates"]["fragments_hz"] > 0

    with folder() as where:
        path = scenario(where)
        done = ask_all(expect=1)
        assert done.stderr.count("no answer from unix:") == 9 and "ros4: no answer" in done.stderr, done.stderr
        # The DFM does not give the SFIs up while they are stopped, however long this test takes for its looks.
        patient = {"dfm.node-timeout": "300s", "sfi.timeout": "300s"}
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "500Hz", **patient, **sockets(where)}) as running:
            running.wait_running()
            wait_scrape(place(where, "dfm"), "1000 events", lambda s: s.value("evb_events_complete_total") > 1000)
            # On a busy machine, a line may follow with what a node waits for.
            lines = ask_until("all nodes", lambda done: done.stdout.count("\n") == 12).stdout.splitlines()
            assert all(len(line) <= 80 for line in lines), lines
            assert re.match(r"run \d+ of test: running$", lines[0]), lines
            assert re.match(r"events: [\d.]+( k)? complete, 0 partial, 0 lost$", lines[1]), lines
            assert lines[2].split()[:3] == ["NODE", "ROLE", "STATE"], lines
            assert lines[3].split()[:3] == ["dfm", "dfm", "running"], lines
            report = json.loads(ask_until("rates", has_rates, "--json").stdout)
            by_name = {node["node"]: node for node in report["nodes"]}
            assert report["ok"] is True and len(by_name) == 9 and all(n["reachable"] for n in by_name.values()), report
            assert by_name["dfm"]["counts"]["events_complete"] > 1000 and by_name["dfm"]["rates"]["events_hz"] > 0, report
            fed = {peer["node"]: peer["fragments"] for peer in by_name["sfi1"]["peers"]}
            assert set(fed) == {f"ros{i}" for i in range(1, 7)} and all(fed.values()), report
            assert by_name["sfi1"]["peers"][0]["bytes"] == 1024 * fed["ros1"], report
            assert by_name["dfm"]["latency_us"]["p99"] >= by_name["dfm"]["latency_us"]["p50"] > 0, report
            assert {peer["node"] for peer in by_name["dfm"]["peers"] if peer["live"]} == set(by_name) - {"dfm"}, report
            assert by_name["ros1"]["counts"]["events_complete"] is None and by_name["ros1"]["rates"]["fragments_hz"] > 0, report
            # Without an SFI nothing ends.
            for sfi in ("sfi1", "sfi2"):
                os.kill(running.nodes()[sfi], signal.SIGSTOP)
            # This is the time of the reason, which begins anew if a ROS gets no processor for two seconds, too.
            report = nodes_of(ask_until("stall", lambda done: (nodes_of(done)["dfm"].get("stalled_seconds") or 0) >= 5, "--json", expect=1))
            assert "sfi" in report["dfm"]["reason"], report
            assert report["dfm"]["reason"] in report["dfm"]["problem"], report
            done = ask_until("stall", lambda done: "dfm: stalled for" in done.stderr, expect=1)
            assert re.search(r"^dfm +dfm +stalled .*\n  stalled for \d+ s: .*sfi", done.stdout, re.M), done.stdout
            assert re.search(r"^run \d+ of test: stalled for \d+ s: .*sfi", done.stdout, re.M), done.stdout
            for sfi in ("sfi1", "sfi2"):
                os.kill(running.nodes()[sfi], signal.SIGCONT)
            running.signal()
            running.end(expect=(0, 1))
        refused(evb, ["status", "--scenario", str(path)], 2, "metrics.listen", "expected :PORT")
        refused(evb, ["status", "--scenario", str(path), "--set", "metrics.listen=:9464"], 2, "node dfm is not known")
        refused(evb, ["status"], 2, "--config FILE is required")


def promtool(evb):
    """Prometheus' own checker has no complaint."""
    need_promtool()
    with endless(evb) as (running, where):
        running.wait_running()
        for node in ("dfm", "ros1", "sfi1"):
            done = subprocess.run(["promtool", "check", "metrics"], input=ask(place(where, node))[2], capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done.stderr
        stop(running)


def need_promtool():
    if not shutil.which("promtool"):
        raise Skip("promtool (package prometheus) is not installed")


def ports(evb):
    """With evb run, the DFM has the port, and the other nodes the next ones."""
    with endless(evb, {"metrics.listen": f"{OWN_NET}.1:9464"}) as (running, _):
        running.wait_running()
        nodes = ["dfm", *(f"ros{i + 1}" for i in range(6)), "sfi1", "sfi2"]
        for i, node in enumerate(nodes):
            assert scrape(f"{OWN_NET}.1:{9464 + i}").value("evb_build_info", node=node) == 1
        stop(running)
    with endless(evb, {"metrics.listen": ":9464"}) as (running, _):
        running.wait_running()
        for node in nodes:
            assert scrape(f"{running.address(node)}:9464").value("evb_build_info", node=node) == 1
        stop(running)


def waiting(evb):
    """A node serves its metrics before the run, and removes its socket when it is stopped."""
    with folder() as where:
        with subprocess.Popen([evb, "ros", "--config", str(one_machine(where)), "--node", "r1"], stderr=subprocess.DEVNULL) as ros:
            try:
                found = wait_scrape(place(where, "r1"), "ready", lambda s: s.value("evb_node_state", state="ready") == 1)
                assert found.value("evb_node_info", run="") == 1 and found.value("evb_fragments_sent_total") == 0
            finally:
                ros.send_signal(signal.SIGTERM)
                ros.wait(timeout=LIMIT_S)
        assert not (where / "r1.sock").exists()


def one_machine(where, listen=None):
    """A scenario with one node of each role at own addresses."""
    nodes = "".join(f"[node {name}]\nrole = {role}\naddress = {OWN_NET}.{i + 1}\n"
                    for i, (name, role) in enumerate({"d1": "dfm", "r1": "ros", "s1": "sfi"}.items()))
    return scenario(where, f"{nodes}[metrics]\nlisten = {listen or f'unix:{where}/%n.sock'}\n")


def refused(evb, arguments, expect, *words):
    done = subprocess.run([evb, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == expect, (arguments, done.returncode, done.stderr)
    assert all(word in done.stderr for word in words), (words, done.stderr)


def taken(evb):
    """A port or socket in use stops the start, with its name and that of the key; what is left over does not."""
    with folder() as where:
        path = one_machine(where, ":9464")
        node = ["--config", str(path), "--node", "s1"]
        with socket.create_server((f"{OWN_NET}.3", 9464)):
            refused(evb, ["sfi", *node], 1, f"{OWN_NET}.3:9464", "metrics.listen", "in use")
            refused(evb, ["check", str(path), "--node", "s1"], 1, f"{OWN_NET}.3:9464", "metrics.listen")
        assert subprocess.run([evb, "check", str(path), "--node", "s1"], capture_output=True).returncode == 0
        path = one_machine(where)
        at = where / "s1.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(at))
            other.listen()
            refused(evb, ["sfi", *node], 1, str(at), "metrics.listen", "another process listens")
        # Its process is gone.
        refused(evb, ["check", str(path), "--node", "s1"], 0)
        assert at.exists()
        at.unlink()
        refused(evb, ["check", str(path), "--node", "s1"], 0)
        assert not at.exists(), "a check left a socket"
        at.write_text("mine")
        refused(evb, ["sfi", *node], 2, str(at), "metrics.listen", "not a socket")
        assert at.read_text() == "mine"
        refused(evb, ["sfi", *node, "--set", f"metrics.listen=unix:{where}/none/%n.sock"], 2, "metrics.listen", "No such file")
        bad = scenario(where, SMALL + "[metrics]\nlisten = *:9464\n", "bad.conf")
        line = bad.read_text().splitlines().index("listen = *:9464") + 1
        refused(evb, ["check", str(bad)], 2, f"bad.conf:{line}: metrics.listen: ", "expected none, :PORT")


def killed(evb):
    """The socket of a killed node is replaced; the new process counts from 0, with another start."""
    with folder() as where:
        command = [evb, "sfi", "--config", str(one_machine(where)), "--node", "s1"]
        at, starts = place(where, "s1"), []
        for last in (False, True):
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sfi:
                try:
                    starts.append(wait_scrape(at, "ready", lambda s: s.value("evb_node_state", state="ready") == 1))
                finally:
                    sfi.send_signal(signal.SIGTERM if last else signal.SIGKILL)
                    sfi.wait(timeout=LIMIT_S)
            assert (where / "s1.sock").exists() is not last
        # Ticks of proc(5) have 10 ms.
        first, second = (s.value("process_start_time_seconds") for s in starts)
        assert second > first, (first, second)


def abuse(at, n, seed):
    """One kind of misuse after the other."""
    chance = random.Random(seed)
    kept = []
    for _ in range(n):
        with contextlib.suppress(OSError):
            s = socket.create_connection(at, timeout=LIMIT_S)
            kind = chance.randrange(6)
            if kind == 0:
                s.sendall(chance.randbytes(chance.randrange(1, 3000)))
            elif kind == 1:
                s.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * chance.randrange(20000))
            elif kind == 2:
                s.sendall(b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n" + bytes(200000))
            elif kind == 3:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            elif kind == 4:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHo")
            if kind < 2:
                s.close()
            else:
                kept.append(s)  # idle, half a request, or an answer that nobody reads
    return kept


def hostile(evb):
    """Whatever clients do, the run loses nothing, and a good client is served."""
    with endless(evb, {"metrics.listen": f"{OWN_NET}.1:9464"}) as (running, _):
        running.wait_running()
        kept, threads = [], []
        for i in range(4):
            at = (f"{OWN_NET}.1", 9464 + (i % 2) * 7)
            threads.append(threading.Thread(target=lambda at=at, i=i: kept.extend(abuse(at, 100, i))))
            threads[-1].start()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        for port in (9464, 9471):
            found = scrape(f"{OWN_NET}.1:{port}")
            assert found.value("process_open_fds") < 100, found.value("process_open_fds")
        for s in kept:
            s.close()
        stop(running)


def together(evb):
    """Counters never go back, also with many clients at a time."""
    with endless(evb, {"trigger.rate": "max"}) as (running, where):
        running.wait_running()
        wrong = []

        def follow(node):
            last = {}
            for _ in range(10):
                try:
                    now = scrape(place(where, node))
                except (OSError, ConnectionError):
                    return
                for (name, labels), value in now.samples.items():
                    if name.endswith(("_total", "_count", "_bucket")):
                        if value < last.get((name, labels), 0):
                            wrong.append((node, name, labels, value))
                        last[name, labels] = value

        threads = [threading.Thread(target=follow, args=(node,)) for node in ("dfm", "ros1", "sfi1") for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not wrong, wrong[:5]
        running.signal()
        complete(running.end(expect=(0,)))


def shaped(evb):
    """A ROS reports what the kernel says about each destination, and that its shaping is missing."""
    need_root()
    if sh("ip", "-V", check=False).returncode != 0 or sh("tc", "-V", check=False).returncode != 0:
        raise Skip("ip and tc (iproute2) are not installed")
    os.environ["EVB_STATE_DIRECTORY"] = os.environ["XDG_STATE_HOME"]
    with endless(evb, {"qos.backend": "auto", "qos.rate": "200Mbit", "ros.fragment-size": "14KiB",
                       "trigger.rate": "100Hz", "sfi.output": "file"}, net="lab") as (running, where):
        running.wait_running()
        at = place(where, "ros1")
        found = wait_scrape(at, "shaped", lambda s: "evb_shaping_sent_bytes_total" in s.names() and
                            s.value("evb_shaping_sent_bytes_total") > 0)
        assert found.value("evb_shaping_installed") == found.value("evb_shaping_expected") == 1
        for sfi in ("sfi1", "sfi2"):
            assert found.value("evb_shaping_rate_bytes_per_second", sfi=sfi) == 25e6, found.samples
        inside = ["ip", "netns", "exec", f"evb-{running.process.pid}-ros1"]
        queries_exist({node: scrape(place(where, node)) for node in ("dfm", "ros1", "sfi1")})
        kernel = json.loads(sh(*inside, evb, "qos", "status", "--dev", "eth0", "--json").stdout)
        later = wait_scrape(at, "later", lambda s: s.value("evb_shaping_sent_bytes_total") >=
                            sum(d["bytes"] for d in kernel["destinations"]))
        assert later.value("evb_shaping_packets_sent_total") >= sum(d["packets"] for d in kernel["destinations"])
        # A root with classes of another program is not replaced.
        ros1 = running.nodes()["ros1"]
        os.kill(ros1, signal.SIGSTOP)
        sh(*inside, "tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "77:", "htb")
        sh(*inside, "tc", "class", "add", "dev", "eth0", "parent", "77:", "classid", "77:1", "htb", "rate", "1gbit")
        os.kill(ros1, signal.SIGCONT)
        wait_scrape(at, "unshaped", lambda s: s.value("evb_shaping_installed") == 0)
        running.signal()
        running.end(expect=(0, 1))


def queries():
    """The expressions of the dashboard and of the alerts."""
    board = json.loads((CONFIGS / "grafana" / "evb.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    found += [annotation["expr"] for annotation in board["annotations"]["list"]]
    found += [v["query"]["query"] if isinstance(v["query"], dict) else v["query"] for v in board["templating"]["list"]
              if v["type"] == "query"]
    found += re.findall(r"^ +expr: (.*(?:\n {10,}.*)*)", (CONFIGS / "prometheus" / "evb-alerts.yml").read_text(), re.M)
    return found


def queries_exist(scrapes):
    """Each metric of a query is in a scrape, with its labels."""
    names = set().union(*(s.names() for s in scrapes.values()))
    labels = {label for s in scrapes.values() for _, own in s.samples for label, _ in own} | {"instance", "job"}
    used = {name for query in queries() for name in re.findall(r"\b(?:evb|process)_\w+", query)}
    assert len(used) > 20, used
    assert used <= names, f"queries use {sorted(used - names)}, which no node has"
    for query in queries():
        for selector in re.findall(r"\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", selector)) <= labels, query


def dashboard(evb):
    """Each panel says in plain words what it shows, with a unit, in a place of its own; run control and stalls are there. The
    example for Prometheus scrapes the nodes of the example of a testbed."""
    scraped = re.findall(r"^ +- ([\d.]+):9464$", (CONFIGS / "prometheus/prometheus.yml").read_text(), re.M)
    assert scraped == re.findall(r"^address = (\S+)$", (CONFIGS / "scenarios/testbed.conf").read_text(), re.M), scraped
    board = json.loads((CONFIGS / "grafana" / "evb.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in panels:
        # Words, no names of metrics, and no word that only the program knows.
        assert re.fullmatch(r"[A-Z][A-Za-z]+,?( [A-Za-z]+,?)+", panel["title"]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in {"short", "hertz", "Bps", "bytes", "s", "percentunit", "cps", "pps"}, panel["title"]
        assert panel["targets"] and all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        if panel["type"] == "stat":
            assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]
    assert [annotation["name"] for annotation in board["annotations"]["list"]] == ["Runs"], board["annotations"]
    for key in ("id", "title"):
        assert len({panel[key] for panel in board["panels"]}) == len(board["panels"]), f"the same {key} twice"
    cells = [(x, y) for g in (panel["gridPos"] for panel in board["panels"]) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23, "panels overlap, or are wider than the board"
    text = " ".join(queries())
    assert all(name in text for name in ("evb_run_control_state", "evb_paused_seconds_total", "evb_stalled")), text


def rules(evb):
    """The alert rules are valid, and fire when they should."""
    need_promtool()
    for verb, file in (("check", "evb-alerts.yml"), ("test", "evb-alerts-test.yml")):
        done = subprocess.run(["promtool", verb, "rules", str(CONFIGS / "prometheus" / file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(["promtool", "check", "config", str(CONFIGS / "prometheus" / "prometheus.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


main({
    "accounts-push": lambda evb: accounts(evb, "push"),
    "accounts-pull": lambda evb: accounts(evb, "pull"),
    "formats": formats,
    "status": status,
    "losing": losing,
    "promtool": promtool,
    "ports": ports,
    "waiting": waiting,
    "taken": taken,
    "killed": killed,
    "hostile": hostile,
    "together": together,
    "shaped": shaped,
    "rules": rules,
    "dashboard": dashboard,
})
