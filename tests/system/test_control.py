#!/usr/bin/env python3
"""Several runs without a restart of the nodes, and what an operator commands: evb ctl, and plain HTTP.

    test_control.py EVB [CASE...]
"""
import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
import unittest.mock
import urllib.request

from control import TOKEN, balanced, configured, control_bed, free_port
from harness import LIMIT_S, OWN_NET, Running, Skip, ask, folder, main, mounted, scenario
from network import Network, wait_until
from test_join import ROLES


# Nodes that get no processor for a while lose no event. The section [sfi] is the last one.
SLOW = "[dfm]\nnode-timeout = 30s\n[sfi]\ntimeout = 30s\n"


def status_of(b, condition, expect):
    """What evb status says of the nodes once it says this of the DFM: its report, and its text. A node of a busy machine may not
    answer in time."""
    words = [b.evb, "status", "--scenario", str(b.file), "--set", f"metrics.listen={b.keys['metrics.listen']}"]

    def ask_twice():
        both = [subprocess.run([*words, *more], capture_output=True, text=True, timeout=LIMIT_S, check=False) for more in (["--json"], [])]
        report, text = json.loads(both[0].stdout), both[1].stdout
        is_said = report["state"] == report["nodes"][0]["condition"] == condition and re.search(rf"^dfm +dfm +{condition} ", text, re.M)
        return is_said and [done.returncode for done in both] == [expect] * 2 and (report, text)

    return wait_until(f"{condition} in evb status", ask_twice)


def pause(evb):
    """In a pause no trigger is taken, and nothing is caught up afterwards; the time is accounted for. All views call it a pause."""
    with folder() as sockets, configured(evb, {"metrics.listen": f"unix:{sockets}/%n.sock"}) as b:
        started = time.monotonic()
        b.start_run()
        b.wait_triggers()
        begun = time.monotonic()
        assert b.ctl("pause")[0]["state"] == "paused"
        paused_at = time.monotonic()
        b.wait("end of the open events", lambda: (e := b.state()["events"])["triggers"] == e["complete"])
        taken = b.state()["events"]["triggers"]
        while time.monotonic() - paused_at < 1:
            assert b.state()["events"]["triggers"] == taken
        b.refused("pause", text="the state is paused; pause needs running")
        b.wait("the reason", lambda: "paused" in (b.state()["reason"] or ""))
        report, text = status_of(b, "paused", 0)
        assert report["ok"] and "paused by an operator for" in report["reason"], report
        assert re.search(r"^dfm +dfm +paused +\d+", text, re.M) and re.search(r"^run \d+ of test: paused by an operator for", text, re.M), text
        top = [b.evb, "top", "--scenario", str(b.file), "--set", f"metrics.listen={b.keys['metrics.listen']}", "--count", "1"]
        b.wait("the pause in evb top", lambda: re.search(r" dfm +dfm +paused .* paused by an operator for [0-9.]+ s$", subprocess.run(
            top, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout, re.M))
        before, state = time.monotonic(), b.ctl("resume")[0]
        paused = time.monotonic() - begun
        assert "paused" not in (state["reason"] or ""), state
        assert state["state"] == "running" and before - paused_at - 0.5 < state["paused_seconds"] <= paused, (state, paused)
        total = b.wait_triggers(100)
        # At 1 kHz: had the pause been caught up, there would be as many more as it has milliseconds.
        most = 1000 * (time.monotonic() - started - (before - paused_at)) + 1
        assert total <= most, (total, most, taken, state)
        b.ctl("pause")
        b.stop_run()
        (dfm,) = b.terminate()["dfm"]
        balanced(dfm)
        assert dfm["paused_ns"] / 1e9 >= state["paused_seconds"], dfm


def metadata(evb):
    """Metadata of an operator reach the file headers and the records of one run, beside those of the scenario."""
    with configured(evb, {"sfi.format": "eformat5", "metadata.Beam": "electrons"}) as b:
        wanted = ({"Beam": "electrons", "shift": "7", "Weather": "rain, 5 °C"}, {"Beam": "none"}, {"Beam": "electrons"})
        for run, names in enumerate(wanted, 1):
            more = [word for name, value in names.items() if (name, value) != ("Beam", "electrons") for word in ("--set-meta", f"{name}={value}")]
            state = b.start_run(*more, command="next-run" if run == 2 else "start")
            assert state["run"] == run and state["metadata"] == names, state
            b.wait_triggers()
            # A builder that comes later gets them too.
            if run == 1:
                b.wait_in_run("sfi2")
                b.kill("sfi2")
                b.start("sfi2")
                b.wait_log("dfm", "sfi2 has restarted")
                b.wait("events of the new builder", lambda: b.log("sfi2").count("run 1 has begun: ") == 2)
                b.wait_triggers()
            if run != 1:
                b.stop_run()
        reports = b.terminate(expect={"dfm": 1})
        for run, names in enumerate(wanted, 1):
            lines = [f"{name}={value}" for name, value in names.items()]
            assert len(b.files(run)) >= 2
            for path in b.files(run):
                assert b.dump(path)["metadata"][3:3 + len(lines)] == lines, (path, b.dump(path)["metadata"])
            for path in b.folder.glob(f"run{run:06}_*.run.json"):
                assert json.loads(path.read_text())["metadata"] == names, path
            assert reports["sfi1"][run - 1]["metadata"] == names


def metadata_resumed(evb):
    """A DFM that restarts in the run knows its metadata, and gives them to a builder that comes later."""
    with configured(evb, {"sfi.format": "eformat5"}) as b:
        b.start_run("--set-meta", "shift=7")
        b.wait_triggers()
        b.kill("dfm")
        b.start("dfm")
        b.wait_log("dfm", "resumed run 1 of an earlier DFM")
        assert b.wait_state("running")["metadata"] == {"shift": "7"}
        b.wait_in_run("sfi2")
        b.kill("sfi2")
        b.start("sfi2")
        b.wait_log("dfm", "sfi2 has restarted")
        b.wait("events of the new builder", lambda: b.log("sfi2").count("run 1 has begun: ") == 2)
        b.wait_triggers()
        b.stop_run()
        reports = b.terminate(expect={"dfm": 1})
        assert len(b.files(1)) >= 2
        for path in b.files(1):
            assert "shift=7" in b.dump(path)["metadata"], (path, b.dump(path)["metadata"])
        assert reports["dfm"][-1]["metadata"] == {"shift": "7"}


def metadata_of_v2(evb):
    """Files of version 2 have no place for metadata: the records of the run have them."""
    with configured(evb) as b:
        b.start_run("--set-meta", "shift=7")
        b.wait_triggers()
        b.stop_run()
        b.terminate()
        records = list(b.folder.glob("*.run.json"))
        assert len(records) == 2 and all(json.loads(r.read_text())["metadata"] == {"shift": "7"} for r in records), records


def wrong_states(evb):
    """A command that the state does not permit is refused with the states that do, and changes nothing."""
    with configured(evb) as b:
        for command in ("pause", "resume"):
            b.refused(command, text=f"the state is configured; {command} needs ")
        b.start_run()
        b.refused("start", text="the state is running; start needs idle, configured, draining or error")
        b.refused("resume", text="resume needs paused")
        b.refused("set", "sfi.credits=9", text="sfi.credits is applied by an SFI: edit the scenario, and reload these units")
        b.refused("set", "scenario.mode=pull", text="scenario.mode cannot change while nodes run: edit the scenario, and restart all nodes")
        b.refused("set", "trigger.rate=fast", text="\"fast\" is not a frequency", expect=2)
        b.refused("set", "trigger.color=red", text="unknown key", expect=2)
        assert b.state()["state"] == "running"
        b.ctl("set", "trigger.rate=3kHz")
        assert "set: trigger.rate 1kHz -> 3kHz" in b.log("dfm")
        b.terminate()


def fixed_number(evb):
    """A fixed run number makes a single run: two runs must not have the same one."""
    with configured(evb, {"run.number": 77}) as b:
        assert b.start_run()["run"] == 77
        b.refused("next-run", text="run.number = 77 is fixed")
        b.stop_run()
        b.refused("start", text="run.number = 77 is fixed")
        assert [r["run"] for r in b.terminate()["dfm"]] == [77]
    with control_bed(evb, {"run.number": 77, "run.start": "auto", "trigger.events": 300}) as b:
        b.start_all()
        b.wait("the run", lambda: b.reports("dfm"))
        assert b.wait_state("configured")["held"]
        assert [r["run"] for r in b.terminate()["dfm"]] == [77]
        file = b.files(77)[0].rename(b.folder / "replayed")
        # So does the number of a replayed file, with run.number = auto.
        with control_bed(evb, {"ros.source": f"file:{file}", "run.start": "auto"}) as other:
            other.start_all()
            other.wait_listening()
            other.wait_state("running", run=77)
            other.refused("next-run", text=f"run.number = auto takes the number 77 of {file} for every run, so this DFM makes a single run; "
                                           "set run.number = next")
            other.stop_run()
            assert other.wait_state("configured")["held"]
            other.refused("start", text="set run.number = next and restart the DFM")
            assert [r["run"] for r in other.terminate()["dfm"]] == [77]
        with configured(evb, {"ros.source": f"file:{file}", "run.number": "next"}) as other:
            assert [other.start_run()["run"], other.start_run(command="next-run")["run"]] == [1, 2]
            other.terminate()


def command_line(evb):
    """Mistakes at the command line, and DFMs that are not there, are told apart within a bounded time."""
    with folder() as where:
        def ctl(*words):
            done = subprocess.run([evb, "ctl", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert not done.stdout, done
            return done.returncode, done.stderr

        def says(status, text, *words):
            got = ctl(*words)
            assert got[0] == status and text in got[1], (words, got)

        path = str(where / "a.sock")
        says(2, "expected one of --socket PATH, --dfm HOST:PORT or --config FILE", "status")
        says(2, "exclude each other", "status", "--socket", path, "--dfm", "127.0.0.1:1")
        says(2, "unknown verb", "begin", "--socket", path)
        says(2, "expected SECTION.KEY=VALUE", "set", "trigger.rate", "--socket", path)
        says(2, "expected NAME=VALUE", "start", "--set-meta", "shift", "--socket", path)
        says(2, "option --set-meta does not apply", "stop", "--set-meta", "a=b", "--socket", path)
        says(2, "--set needs --config", "status", "--set", "a.b=c", "--socket", path)
        says(2, '--wait: invalid value "soon"; expected a time', "start", "--wait", "soon", "--socket", path)
        says(2, "No such file", "status", "--socket", path, "--key", str(where / "none"))
        says(2, "not an address", "status", "--dfm", "nowhere:1")
        says(1, "there is no such socket", "status", "--socket", path)
        says(1, "nobody listens there", "status", "--dfm", f"{OWN_NET}.1:{free_port(f'{OWN_NET}.1')}")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            says(1, "nobody listens there", "status", "--socket", path)
            other.listen()
            # It never answers, as a DFM that is suspended.
            began = time.monotonic()
            says(1, "no answer in time", "status", "--socket", path)
            assert time.monotonic() - began >= 5
            with concurrent.futures.ThreadPoolExecutor() as pool:
                def answer():
                    connection = other.accept()[0]
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n{\"hello\": 1}")
                    connection.close()

                other.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        other.accept()[0].close()
                other.setblocking(True)
                done = pool.submit(answer)
                says(1, "another program answers there", "status", "--socket", path)
                done.result()

                def leave():
                    connection = other.accept()[0]
                    connection.recv(1000)
                    connection.close()

                done = pool.submit(leave)
                says(1, "the connection ended without an answer", "stop", "--socket", path)
                done.result()


def ended_in_error(evb):
    """--wait fails with the reason if the run of the command has ended in an error, even if it never was seen running."""
    def state(name, last=None, status="ok", run=None):
        reasons = ["the output of sfi1 failed"] if status == "error" else []
        return {"state": name, "run": run, "seconds": 1.0 if run else None, "last_run": {"run": last, "status": status, "reasons": reasons} if last else None,
                "reason": None}

    with folder() as where, socket.socket(socket.AF_UNIX) as dfm:
        dfm.bind(str(where / "a.sock"))
        dfm.listen()
        dfm.settimeout(LIMIT_S)

        def answer(states):
            """Answers the command, and the requests for the state after it."""
            for each in states:
                with dfm.accept()[0] as connection:
                    connection.recv(1000)
                    connection.sendall((b"HTTP/1.0 503 Busy\r\n\r\n" if "error" in each else b"HTTP/1.0 200 OK\r\n\r\n") + json.dumps(each).encode())

        def says(status, text, command, *states):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                answers = pool.submit(answer, states)
                done = subprocess.run([evb, "ctl", command, "--wait", "20s", "--socket", str(where / "a.sock")],
                                      capture_output=True, text=True, timeout=LIMIT_S, check=False)
                answers.result()
            assert (done.returncode, done.stderr) == (status, text), (command, states, done)

        failed = "evb ctl: run 2 ended in an error: the output of sfi1 failed\n"
        says(1, failed, "start", state("configured", 1), state("error", 2, "error"))
        says(1, failed, "next-run", state("draining", run=1), state("configured", 1), state("error", 2, "error"))
        says(1, failed, "stop", state("draining", 1, run=2), state("error", 2, "error"))
        # The run that next-run ended is not the one that it began; an earlier error is no error of this run.
        says(0, "", "next-run", state("draining", run=1), state("running", 1, "error", run=2))
        says(0, "", "start", state("configured", 1, "error"), state("running", 1, "error", run=2))
        says(1, "evb ctl: run 2 fell short\n", "start", state("configured", 1), state("configured", 2, "fell short"))
        # Another operator begins a run after the one that stop ends. Without a run, stop is about the last one.
        says(0, "", "stop", state("draining", 1, run=2), state("running", 2, run=3))
        says(1, failed, "stop", state("draining", 1, run=2), state("running", 2, "error", run=3))
        says(1, "evb ctl: run 2 has ended, and so has a later one; the log of the DFM says how it ended\n", "stop", state("draining", 1, run=2), state("configured", 3))
        says(1, failed, "stop", state("configured", 2, "error"))
        says(0, "", "stop", state("configured", 2))
        # A DFM that is too busy to answer is asked again, but follows no command twice.
        busy = {"error": "the DFM does not answer, or ends"}
        says(0, "", "stop", state("draining", 1, run=2), busy, busy, state("configured", 2))
        says(1, f"evb ctl: {busy['error']}\n", "stop", busy)


def waits_for_reader(host, port):
    """Whether a connection to this TCP port has bytes that nobody has read."""
    at = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()]
    return any(words[1] == at and words[3] == "01" and int(words[4].partition(":")[2], 16) > 0 for words in lines)


def suspended(evb):
    """A DFM that is suspended answers nobody, goes on afterwards, and does not follow commands whose senders have given up."""
    port = free_port(f"{OWN_NET}.1")
    with folder() as keys:
        key = keys / "key"
        key.write_text(TOKEN)
        with configured(evb, {"metrics.listen": f":{port}", "control.token-file": key}) as b:
            b.processes["dfm"].send_signal(signal.SIGSTOP)
            # By TCP, a client that is killed; by the Unix socket, one that gives up.
            other = subprocess.Popen([evb, "ctl", "start", "--dfm", f"{OWN_NET}.1:{port}", "--key", key], stderr=subprocess.DEVNULL)
            b.refused("start", text="no answer in time: the DFM may be suspended. It will not follow the command later")
            b.wait("request over TCP", lambda: other.poll() is not None or waits_for_reader(f"{OWN_NET}.1", port))
            other.kill()
            other.wait()
            b.processes["dfm"].send_signal(signal.SIGCONT)
            # The server itself may find the Unix socket closed.
            b.wait("refusal", lambda: re.search("start from 127.* not followed: the client has closed its connection", b.log("dfm")))
            assert b.wait_state("configured")["held"] and "start requested" not in b.log("dfm")
            b.start_run()
            b.terminate()


def tcp(evb):
    """By TCP: the token and the address decide, whatever is asked, and refusals are counted."""
    with folder() as keys:
        key, wrong = keys / "key", keys / "wrong"
        key.write_text(TOKEN + "\n")
        key.chmod(0o644)
        wrong.write_text("x" * 20)
        address = (f"{OWN_NET}.1", free_port(f"{OWN_NET}.1"))
        place = ("--dfm", f"{address[0]}:{address[1]}")
        with control_bed(evb, {"control.listen": ":%d" % address[1], "control.token-file": key}) as b:
            b.start_all()
            b.wait("port", lambda: subprocess.run([evb, "ctl", "status", *place, "--key", key], capture_output=True, check=False).returncode == 0)
            assert b.ctl("status", place=(*place, "--key", str(key)))[0]["nodes"]["expected"] == 5
            for more, text in (((), "no token"), (("--key", str(wrong)), "wrong token")):
                for command in ("status", "start"):
                    assert text in b.ctl(command, place=(*place, *more), expect=1)[1]
            assert b.request("GET", address=address)[0] == 401
            assert b.request("POST", {"command": "start"}, token=TOKEN + "x", address=address)[0] == 401
            b.wait("start", lambda: b.request("POST", {"command": "start"}, token=TOKEN, address=address)[0] == 200)
            b.wait("run", lambda: b.ctl("status", place=(*place, "--key", str(key)))[0]["state"] == "running")
            (dfm,) = b.terminate()["dfm"]
            assert dfm["control_refused"] == 6, dfm
            assert "run control: refused a request from 127." in b.log("dfm")
            assert b.log("dfm").count(f"all users of this machine can read {key}; to leave it to its owner, run: chmod 600 {key}") == 1


def unit_socket(evb):
    """Under systemd, the DFM takes commands at a Unix socket of its unit too: beside a port, without its token; and without
    control.listen, for its single run."""
    address = (f"{OWN_NET}.1", free_port(f"{OWN_NET}.1"))
    with folder() as where:
        (where / "token").write_text(TOKEN)
        (where / "token").chmod(0o600)
        for keys in ({"control.listen": f":{address[1]}", "control.token-file": where / "token"},
                     {"control.listen": "none", "run.start": "auto"}):
            is_single = keys["control.listen"] == "none"
            with control_bed(evb, keys) as b:
                with unittest.mock.patch.dict(os.environ, {"RUNTIME_DIRECTORY": str(b.folder)}):
                    b.start_all()
                b.wait_listening()
                if not is_single:
                    b.wait_state("configured")
                    assert b.request("POST", {"command": "start"}, address=address)[0] == 401
                    b.start_run()
                    assert b.request("GET", token=TOKEN, address=address)[1]["state"] == "running"
                b.wait_state("running")
                assert stat.S_IMODE(b.socket.stat().st_mode) == 0o660, b.socket.stat()
                b.ctl("pause")
                b.wait_state("paused")
                b.ctl("resume")
                b.wait_state("running")
                b.wait_triggers()
                if is_single:
                    b.refused("next-run", text="this DFM makes a single run; set control.listen in the scenario of all nodes")
                    b.ctl("stop")
                    assert {name: p.wait(timeout=LIMIT_S) for name, p in b.processes.items()} == dict.fromkeys(b.processes, 0), b.log("dfm")
                else:
                    b.stop_run()
                    b.terminate()
                assert not b.socket.exists()


def open_port(evb):
    """Without a token, pages in a browser of this machine can still not send commands."""
    address = (f"{OWN_NET}.1", free_port(f"{OWN_NET}.1"))
    with control_bed(evb, {"control.listen": ":%d" % address[1]}) as b:
        b.start_all()
        b.wait("port", lambda: "joined" in b.log("dfm"))
        json_type = {"Content-Type": "application/json"}
        assert b.request("POST", {"command": "stop"}, address=address)[0] == 415
        assert b.request("POST", {"command": "stop"}, address=address, headers={"Content-Type": "text/plain"})[0] == 415
        assert b.request("POST", {"command": "stop"}, address=address, headers={**json_type, "Origin": "http://page.example"})[0] == 403
        assert b.request("POST", {"command": "stop"}, address=address, headers=json_type)[0] == 200
        assert b.request("GET", address=address)[1]["held"]


def wakes(pid):
    """How often the event loop of a process has slept."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text(), re.M)[1])


def crowd(b, address, requests=1000):
    """However often anybody asks for the state, the event loop of the DFM sleeps on."""
    begun, before = time.monotonic(), wakes(b.processes["dfm"].pid)
    for _ in range(requests):
        assert b.request("GET", address=address)[1]["state"] == "configured"
    woken, seconds = wakes(b.processes["dfm"].pid) - before, time.monotonic() - begun
    # The nodes wake it some ten times per second.
    assert woken < requests / 2 + 100 * seconds, f"woken {woken} times in {seconds} s by {requests} requests"


def page(evb):
    """The DFM's metrics.listen has the state for everybody, and takes commands with the token alone."""
    with folder() as keys:
        key = keys / "key"
        key.write_text(TOKEN)
        address = (f"{OWN_NET}.1", free_port(f"{OWN_NET}.1"))
        with configured(evb, {"metrics.listen": f":{address[1]}", "control.token-file": key}) as b:
            assert b.request("GET", address=address)[1]["state"] == "configured"
            assert b.request("GET", path="/status", address=address)[1]["control_state"] == "configured"
            crowd(b, address)
            assert b.request("POST", {"command": "start"}, address=address)[0] == 401
            assert b.request("POST", {"command": "start"}, token="x", address=address)[0] == 401
            assert b.request("POST", {"command": "start"}, token=TOKEN, path="/status", address=address)[0] == 405
            assert b.request("POST", {"command": "start"}, token=TOKEN, address=address)[0] == 200
            b.wait_state("running")
            assert b.request("POST", {"command": "start"}, token=TOKEN, address=address)[0] == 409
            ros = (b.addresses["ros1"], address[1])
            assert b.request("GET", path="/status", address=ros)[1]["control_state"] is None
            assert b.request("GET", address=ros)[0] == 404
            assert b.request("POST", {"command": "stop"}, token=TOKEN, address=ros)[0] == 405
            b.terminate()
        with configured(evb, {"metrics.listen": f":{address[1]}"}) as b:
            assert b.request("GET", address=address)[0] == 200
            assert b.request("POST", {"command": "start"}, token=TOKEN, address=address)[0] == 405
            b.terminate()


def foreign(evb):
    """Only listed addresses and the DFM's own machine may control runs by TCP, although others reach the port too."""
    with folder() as where, Network("switch", "dfm", "desk", "stranger") as network:
        network.bridge("switch", ["dfm", "desk", "stranger"])
        path = scenario(where, "[network]\ncontrol-group = none\n[control]\nlisten = :26803\nallow = 10.9.0.2\n[node dfm]\nrole = dfm\n"
                               "address = 10.9.0.1\n[node ros1]\nrole = ros\naddress = 10.9.0.4\n[node sfi1]\nrole = sfi\naddress = 10.9.0.5\n")
        with open(where / "log", "w", encoding="utf-8") as log:
            dfm = subprocess.Popen(["ip", "netns", "exec", network.name("dfm"), evb, "dfm", "--config", path, "--node", "dfm"], stderr=log)
        try:
            def ctl(host):
                done = network.run(host, evb, "ctl", "status", "--dfm", "10.9.0.1:26803", check=False)
                return done.returncode, done.stderr

            wait_until("permitted address", lambda: ctl("desk")[0] == 0)
            assert ctl("stranger") == (1, "evb ctl: this address may not control runs (network.clients)\n")
            assert ctl("dfm")[0] == 0  # by its own address, which is not listed
            assert "refused a request from 10.9.0.3:" in (where / "log").read_text()
        finally:
            dfm.terminate()
            assert dfm.wait(timeout=LIMIT_S) == 0, (where / "log").read_text()


def escapes(evb):
    """What another program sends cannot command the terminal; the JSON report has it unchanged."""
    evil = "\033]0;owned\007\x9b2J\r\n\x7fé"
    shown = "?]0;owned???2J???é"
    answer = {"state": "running" + evil, "reason": evil, "run": 1, "nodes": {"present": 1, "expected": 2, "missing": [evil]},
              "metadata": {"a" + evil: evil}, "permits": [evil], "last_run": {"run": 3, "status": evil, "reasons": [evil], "end": evil,
                                                     "events": {"triggers": 9, "complete": 4, "partial": 3, "lost": 2, "rejected": 0}}}

    class Server(http.server.BaseHTTPRequestHandler):
        def reply(self, status, o):
            body = json.dumps(o).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(200, answer)

        def do_POST(self):
            self.reply(409, {"error": "no: " + evil, "state": evil})

        def log_message(self, *_):
            pass

    with http.server.HTTPServer((f"{OWN_NET}.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ctl(*words):
            done = subprocess.run([evb, "ctl", *words, "--dfm", f"{OWN_NET}.1:{server.server_port}"], capture_output=True, timeout=LIMIT_S,
                                  check=False)
            return done.returncode, done.stdout.decode(), done.stderr.decode()

        status, out, err = ctl("status")
        assert (status, err) == (0, "") and out.count(shown) == 9, (status, out, err)
        assert f"state      running{shown}: {shown}\nrun        1\n" in out, out
        assert f"\n           9 triggers: 4 complete, 3 partial, 2 lost, 0 rejected; ended {shown}\n" in out, out
        assert all(c.isprintable() or c == "\n" for c in out), out
        assert json.loads(ctl("status", "--json")[1]) == answer
        for words in (["start"], ["start", "--json"]):
            status, out, err = ctl(*words)
            assert status == 1 and err == f"evb ctl: no: {shown}\n", (status, out, err)
        server.shutdown()


def shaping(evb):
    """The shaping of a ROS stays installed between two runs, and its counters go on."""
    with folder() as where, Network("switch", "dfm", "ros1", "sfi1") as network:
        network.bridge("switch", ["dfm", "ros1", "sfi1"])
        path = scenario(where, f"[network]\ncontrol-group = none\nlink-rate = 1Gbit\n[trigger]\nrate = 1kHz\n[qos]\nbackend = auto\n{SLOW}"
                               f"[control]\nlisten = unix:{where}/control.sock\n[run]\nstart = manual\n"
                        + "".join(f"[node {name}]\nrole = {name.rstrip('1')}\naddress = 10.9.0.{i}\ndevice = eth0\n"
                                  for i, name in enumerate(("dfm", "ros1", "sfi1"), 1)))
        nodes = {}
        with open(where / "log", "w", encoding="utf-8") as log:
            for name in ("dfm", "ros1", "sfi1"):
                nodes[name] = subprocess.Popen(["ip", "netns", "exec", network.name(name), evb, name.rstrip("1"), "--config", path, "--node", name,
                                                "--json", where / f"{name}.json"], stderr=log)
        monitor = None
        try:
            def ctl(*words):
                done = subprocess.run([evb, "ctl", *words, "--socket", where / "control.sock", "--json"], capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False)
                return json.loads(done.stdout or "{}")

            def log():
                return (where / "log").read_text()

            def configured_or_ended():
                assert nodes["ros1"].poll() in (None, 77), log()
                return ctl("status").get("state") == "configured" or nodes["ros1"].poll() == 77

            wait_until("all nodes", configured_or_ended)
            if nodes["ros1"].poll() == 77:
                raise Skip(log())
            ctl("start", "--wait", "60s")
            wait_until("shaped triggers", lambda: ctl("status")["events"]["complete"] > 200)
            monitor = network.popen("ros1", "tc", "monitor")
            before = network.tc("ros1", "qdisc", "show", "dev", "eth0").stdout
            assert "htb" in before or "cbq" in before, before
            ctl("next-run", "--wait", "60s")
            wait_until("shaped triggers", lambda: ctl("status")["events"]["complete"] > 200)
            assert network.tc("ros1", "qdisc", "show", "dev", "eth0").stdout == before
            monitor.terminate()
            assert "deleted qdisc" not in monitor.communicate(timeout=LIMIT_S)[0], "the tree was removed"
            for node in nodes.values():
                node.terminate()
            assert {name: node.wait(timeout=LIMIT_S) for name, node in nodes.items()} == dict.fromkeys(nodes, 0), log()
            assert "noqueue" in network.tc("ros1", "qdisc", "show", "dev", "eth0").stdout
            for line in (where / "ros1.json").read_text().splitlines():
                report = json.loads(line)
                assert report["qos_backend"] not in ("none", None) and report["packets_source_dropped"] == 0, report
        finally:
            for node in (*nodes.values(), *([monitor] if monitor else [])):
                if node.poll() is None:
                    node.kill()
                node.wait()


def manager(evb):
    """A service manager sees one start and one stop, however many runs there are, and the watchdog never starves."""
    with folder() as where, control_bed(evb, {"trigger.events": 100}) as b, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = where / "notify"
        listener.bind(str(path))
        listener.settimeout(LIMIT_S)
        # A sign of life comes every 8 s, and may come so much later on a busy machine.
        limit_s = 16
        os.environ.update(NOTIFY_SOCKET=str(path), WATCHDOG_USEC=str(limit_s * 10**6))
        try:
            b.start("sfi1")
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
        seen, times = [], []

        def hear():
            with contextlib.suppress(TimeoutError):
                while True:
                    text = listener.recv(4096).decode()
                    seen.append(text)
                    if "WATCHDOG=1" in text:
                        times.append(time.monotonic())
                    if "STOPPING=1" in text:
                        listener.settimeout(0.2)

        hearing = threading.Thread(target=hear, daemon=True)
        hearing.start()
        b.start_all(*(name for name in ROLES if name != "sfi1"))
        b.wait_listening()
        b.wait_state("configured")
        for run in (1, 2, 3):
            b.start_run()
            b.wait("end of the run", lambda n=run: len(b.reports("sfi1")) == n)
            b.wait_state("configured")
        known = len(times)
        b.wait("two signs of life after the runs", lambda: len(times) >= known + 2)
        b.terminate()
        hearing.join()
        text = "\n".join(seen)
        assert text.count("READY=1") == 1 and text.count("STOPPING=1") >= 1, text
        assert "READY=1" not in text[text.index("STOPPING=1"):], text
        assert max(b - a for a, b in zip(times, times[1:])) < limit_s, "the watchdog starved"


def garbage(evb):
    """Requests that are malformed, too long or slow change nothing, and keep nobody out."""
    with configured(evb) as b:
        for body, text in ((b"", "not a JSON object"), (b"{", "not a JSON object"), (b"[1]", "of another type"), (b"{}", "no \"command\""),
                           (b'{"command": 5}', "no \"command\""), (b'{"command": "fly"}', "unknown command \"fly\"; expected start, stop"),
                           (b'{"command": "start", "command": "stop"}', "not a JSON object"), (b"\xff\xfe\0", "not a JSON object"),
                           (b'{"command": "start", "metadata": [1]}', "not an object"),
                           (b'{"command": "start", "metadata": {"a b": "1"}}', "invalid name"),
                           (b'{"command": "start", "metadata": {"Seed": "1"}}', "evb writes this name itself"),
                           (b'{"command": "start", "metadata": {"a": "1\\n2"}}', "invalid value"),
                           (b'{"command": "start", "metadata": {"a": 1}}', "not a text"),
                           (json.dumps({"command": "start", "metadata": {str(i): "" for i in range(13)}}).encode(), "too many names"),
                           (b'{"command": "set", "key": "trigger.rate"}', "\"key\" and \"value\""),
                           (b'{"command": "set", "key": "%s", "value": "1"}' % (b"x" * 100), "\"key\" and \"value\"")):
            status, answer = b.request("POST", body)
            assert status == 400 and text in answer["error"], (body, status, answer)
        assert b.request("POST", b"[" * 30000)[0] == 400
        assert b.request("POST", b" " * 40000)[0] == 413
        with contextlib.suppress(ConnectionError):  # it ends without an answer
            b.request("POST", b" " * 1_000_000)
        assert b.request("DELETE")[0] == 405 and b.allowed("/control") == "GET, HEAD, POST" and b.allowed("/elsewhere") == "GET, HEAD"
        assert b.request("GET", path="/elsewhere")[0] == 404
        slow = []
        for i in range(50):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(b.socket))
            s.sendall(b"POST /control HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{" if i % 2 else b"POST /con")
            slow.append(s)
        assert b.state()["state"] == "configured"
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for answer in [pool.submit(b.request, "GET") for _ in range(100)]:
                assert answer.result()[0] == 200
            starts = [pool.submit(b.request, "POST", {"command": "start"}) for _ in range(2)]
            assert sorted(s.result()[0] for s in starts)[0] == 200
        for s in slow:
            s.close()
        b.wait_state("running")
        b.terminate()


def error(evb):
    """After a failed output the state is error, and no run begins by itself until start."""
    with folder() as sockets, control_bed(evb, {"run.start": "auto", "metrics.listen": f"unix:{sockets}/%n.sock"}) as b:
        output = b.folder / "output"
        output.mkdir()
        b.start_all(keys={"sfi.directory": output})
        b.wait_listening()
        # The output of the other one stays good: it might close its file before this test reaches it.
        b.wait("events", lambda: any(p.stat().st_size > 50_000 for p in output.glob("*_sfi1_*.writing")))
        first = b.state()["run"]
        next(output.glob("*_sfi1_*.writing")).write_bytes(b"")
        state = b.wait_state("error")
        assert state["last_run"]["run"] == first and state["last_run"]["status"] == "error", state
        assert "the output of" in state["reason"], state
        b.wait("the error in evb status", lambda: "the output of" in (json.loads(ask(f"unix:{sockets}/dfm.sock", "/status")[2])["control_error"] or ""))
        report, text = status_of(b, "error", 1)
        assert not report["ok"], report
        assert "the last run ended in an error: the output of" in report["reason"], report["reason"]
        assert re.search(r"^run \d+ of test: error; the last run ended in an error: the output of sfi", text, re.M), text
        b.refused("pause", text="the state is error")
        b.refused("stop", text="the state is error")
        for _ in range(10):
            assert b.state()["state"] == "error"
        assert b.start_run()["run"] > first
        b.terminate(expect={"dfm": 1, "sfi1": 1})


def no_output(evb):
    """A run that begins while builders cannot open their files ends in error, with the reason; all processes stay for the next one."""
    everyone = {"expected": 5, "present": 5, "missing": []}
    # The disk has room for a minute of events.
    with mounted(options="size=32m") as (_, disk), control_bed(evb, {"trigger.rate": "200Hz"}) as b:
        output, away, filler = disk / "output", disk / "away", disk / "filler"
        output.mkdir()

        def fill():
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as f:
                while True:
                    f.write(bytes(4096))

        def mount(how):
            subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)

        b.start_all(keys={"sfi.directory": output})
        b.wait_listening()
        b.wait_state("configured")
        pids = b.pids()
        for spoil, mend, what in ((fill, filler.unlink, "disk full"),
                                  (lambda: output.rename(away), lambda: away.rename(output), "directory or file missing"),
                                  (lambda: mount("ro"), lambda: mount("rw"), "directory not writable")):
            spoil()
            b.ctl("start")
            state = b.wait_state("error", nodes=everyone)
            assert re.fullmatch(rf"the output of sfi[12] failed \({what}; sfi.directory = {output}\): events that are complete may be in no file",
                                state["reason"]) and state["last_run"]["status"] == "error", state
            # All nodes are back, while the cause lasts.
            mend()
            run = b.start_run()["run"]
            b.wait_triggers()
            assert (last := b.stop_run()["last_run"]) == {**last, "run": run, "status": "ok", "reasons": []}, last
            assert b.wait_state("configured", nodes=everyone) and b.pids() == pids
        reports = b.terminate(expect={"dfm": 1, "sfi1": 1, "sfi2": 1})
        assert f"its output failed: No space left on device in {output}; free space there, or set sfi.directory" in reports["sfi1"][0]["reasons"], reports


def no_record(evb):
    """A run whose record an SFI cannot write is not ok: the record belongs to the output."""
    with configured(evb) as b:
        run = b.start_run()["run"]
        b.wait_triggers()
        b.wait_written(1, "*_sfi2_*.writing")
        core = next(b.folder.glob("*_sfi2_*.writing")).name.rpartition("_")[0]
        # An SFI replaces no file.
        for number in ("", *(f".{n}" for n in range(2, 101))):
            (b.folder / f"{core}.run{number}.json.writing").touch()
        state = b.stop_run()
        assert state["state"] == "error" and state["last_run"]["run"] == run and state["last_run"]["status"] == "error", state
        assert state["last_run"]["reasons"] == ["the output of sfi2 failed: events that are complete may be in no file"], state
        reports = b.terminate(expect={"dfm": 1, "sfi2": 1})
        assert reports["sfi2"][0]["reasons"] == [f"cannot write {b.folder}/{core}.run.json: File exists"], reports


def metrics(evb):
    """Counters of a process never go back, and its listener stays; /status counts the present run."""
    address = (f"{OWN_NET}.1", free_port(f"{OWN_NET}.1"))
    with configured(evb, {"metrics.listen": f":{address[1]}"}) as b:
        def value(host, name):
            with urllib.request.urlopen(f"http://{host}:{address[1]}/metrics", timeout=LIMIT_S) as page:
                return sum(float(v) for v in re.findall(rf"^{name}\{{[^}}]*\}} ([0-9.e+]+)$", page.read().decode(), re.M))

        names = (("dfm", "evb_events_complete_total"), ("dfm", "evb_event_latency_seconds_count"), ("sfi1", "evb_events_complete_total"),
                 ("ros1", "evb_fragments_sent_total"), ("ros1", "evb_control_sent_total"))
        last = dict.fromkeys(names, 0.0)
        for _ in range(3):
            b.start_run()
            b.wait_triggers()
            for command in (None, "stop"):
                if command:
                    b.stop_run()
                for node, name in names:
                    now = value(b.addresses[node], name)
                    assert now >= last[node, name], (node, name, now, last)
                    last[node, name] = now
        reports = b.terminate()
        assert last["dfm", "evb_events_complete_total"] == sum(r["events_complete"] for r in reports["dfm"]), last
        assert last["dfm", "evb_event_latency_seconds_count"] == sum(r["triggers"] for r in reports["dfm"]), last


def one_run(evb):
    """evb run makes one run: it names the command that starts it; evb ctl pauses and stops it, and next-run is refused."""
    with folder() as where:
        path = scenario(where, f"[trigger]\nrate = 1kHz\n[ros]\ncount = 2\n{SLOW}count = 1\n[control]\nlisten = unix:control.sock\n[run]\nstart = manual\n")

        def ctl(*words):
            done = subprocess.run([evb, "ctl", *words, "--socket", where / "control.sock", "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            return done.returncode, json.loads(done.stdout or "{}"), done.stderr

        with Running(evb, path) as running:
            running.wait_for("configured", lambda: ctl("status")[1].get("state") == "configured")
            assert ctl("start", "--wait", "60s")[1]["state"] == "running"
            running.wait_running()
            assert ctl("pause")[1]["state"] == "paused"
            status, answer, text = ctl("next-run")
            assert status == 1 and "evb run makes a single run" in text, (status, answer, text)
            status, answer, text = ctl("runs")
            assert status == 1 and "evb run keeps no list of runs" in text, (status, answer, text)
            state = ctl("resume")[1]
            assert state["state"] == "running" and state["permits"] == ["stop", "pause", "set"], state
            status, answer, text = ctl("stop", "--wait", "60s")
            # The DFM waits some seconds at most for a client that gets no processor.
            assert (status == 1 and "the DFM has ended, and did not say how the run ended" in text) or \
                (status == 0 and answer["last_run"]["status"] == "ok" and answer["permits"] == []), (status, answer, text)
            report = running.end([0])
            assert f"run.start = manual: the run waits for evb ctl start --socket {where}/control.sock\n" in running.err, running.err
            assert report["events_complete"] == report["triggers"] > 0 and report["paused_seconds"] > 0, report


if __name__ == "__main__":
    main({
        "pause": pause, "metadata": metadata, "metadata-resumed": metadata_resumed, "metadata-of-v2": metadata_of_v2,
        "wrong-states": wrong_states, "fixed-number": fixed_number, "command-line": command_line, "ended-in-error": ended_in_error,
        "suspended": suspended, "tcp": tcp, "unit-socket": unit_socket, "open-port": open_port, "page": page, "foreign": foreign, "escapes": escapes, "shaping": shaping,
        "manager": manager, "garbage": garbage, "error": error,
        "no-output": no_output, "no-record": no_record, "metrics": metrics, "one-run": one_run,
    })
