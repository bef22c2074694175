#!/usr/bin/env python3
"""Scenarios in virtual time: evb sim.

    test_sim.py EVB [CASE...]
"""
import json
import os
import re
import signal
import subprocess

from harness import LIMIT_S, ROOT, SCENARIOS, balance, complete, folder, main, run, scenario, settings

SHORT = """
[scenario]
mode = push
[trigger]
rate = 2kHz
events = 300
[ros]
count = 3
fragment-size = 2kB
buffer-size = 4MiB
[sfi]
count = 2
output = null
buffer-size = 8MiB
timeout = 40ms
[test]
keep-alive = 5ms
[dfm]
node-timeout = 30ms
[network]
link-rate = 1Gbit
switch-buffer = 64KiB
"""
# Six ROSs send 14 KiB each to one port of 1 Gbit/s, at 80 % of its rate.
OVERLOAD = SCENARIOS / "push-6x1-qos.conf"


def call(evb, *words, expect=0, **options):
    done = subprocess.run([evb, "sim", *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == expect, f"exit {done.returncode}, not {expect}: {done.stderr}\n{done.stdout[-2000:]}"
    return done


def report_of(evb, *words, expect=0, **options):
    report = json.loads(call(evb, *words, "--json", expect=expect, **options).stdout)
    balance(report)
    return report


def places(evb):
    """Addresses, folders, the environment and standard input do not matter."""
    with folder() as here, folder() as there:
        texts = set()
        for where, prefix in ((here, []), (there, []), (there, ["setarch", "--addr-no-randomize"])):
            path = scenario(where, SHORT)
            for words in (["sim", "test.conf"], ["sim", str(path)]):
                done = subprocess.run([*prefix, evb, *words, "--chaos", "--json"], capture_output=True, text=True, timeout=LIMIT_S, cwd=where,
                                      stdin=subprocess.DEVNULL, env={**os.environ, "MALLOC_PERTURB_": str(len(texts) + 7), "TZ": "Asia/Tokyo"})
                assert done.returncode in (0, 1), done
                texts.add(done.stdout)
        assert len(texts) == 1, texts


def same_report(evb):
    """The report has the fields of a real run, those of the nodes included, and those of docs/sim.md."""
    with folder() as where:
        path = scenario(where, SHORT)
        real = run(evb, path, {"sfi.timeout": "30s", "dfm.node-timeout": "30s"})
        virtual = report_of(evb, path)
        assert set(virtual) - set(real) == {"seed", "digest", "violation", "plan_fits", "port_most_bytes"} and set(real) <= set(virtual), set(real) ^ set(virtual)
        for a, b in zip(real["nodes"], virtual["nodes"]):
            assert set(a) == set(b), (a["name"], set(a) ^ set(b))
        assert set(virtual["cpu_seconds"].values()) == set(virtual["peak_rss_bytes"].values()) == {None}, virtual["cpu_seconds"]
        assert real["payload_bytes"] == virtual["payload_bytes"] == 300 * 3 * 2000
        assert virtual["files"] == [] and virtual["drops"]["source_qdisc_packets"] is None
        unlimited = report_of(evb, path, *settings({"network.link-rate": "unlimited"}))
        assert unlimited["drops"]["switch_packets"] is None and unlimited["port"] is None, unlimited["drops"]


def overload(evb):
    """Six senders at once overflow the port; shaping and pull prevent it."""
    keys = {"scenario.duration": "500ms"}
    unshaped = report_of(evb, OVERLOAD, *settings({**keys, "qos.backend": "none"}))
    assert unshaped["drops"]["switch_packets"] > 50 and unshaped["fragments"]["recovered"] > 0, unshaped["drops"]
    # Chunks that were dropped are those that the network lost.
    assert 0 < unshaped["drops"]["network_packets"] <= unshaped["drops"]["switch_packets"], unshaped["drops"]
    complete(unshaped)
    for backend in ("htb", "htb+tbf", "cbq+tbf", "edt", "auto"):
        shaped = report_of(evb, OVERLOAD, *settings({**keys, "qos.backend": backend}))
        assert shaped["drops"] == {"source_qdisc_packets": 0, "network_packets": 0, "switch_packets": 0, "socket_packets": 0}, shaped["drops"]
        assert shaped["qos_backend"] == ("htb+tbf" if backend == "auto" else backend) and shaped["qos_rate_bps"] > 1.6e8, shaped
        complete(shaped)
    pulled = report_of(evb, OVERLOAD, *settings({**keys, "qos.backend": "none", "scenario.mode": "pull"}))
    assert pulled["drops"]["switch_packets"] == 0 and pulled["fragments"]["re_asked"] == 0, pulled["drops"]
    complete(pulled)


def source_queue(evb):
    """A limit below what sockets may send makes the source drop, and the report says so."""
    keys = {"scenario.duration": "200ms", "qos.limit": "20kB", "qos.burst": "3kB"}
    dropped = report_of(evb, OVERLOAD, *settings(keys))["drops"]
    assert dropped["source_qdisc_packets"] > 0 and dropped["switch_packets"] == 0, dropped


def faults(evb):
    """The report says who is gone."""
    with folder() as where:
        path = scenario(where, SHORT)
        complete(report_of(evb, path, "--fault", "pause=ros3@30ms+10ms", "--fault", "pause=sfi2@80ms+10ms"))
        lost = report_of(evb, path, "--fault", "crash=ros2@50ms", expect=1)
        assert lost["events_partial"] > 0 and any("ros2 was killed by signal 9" in text for text in lost["reasons"]), lost["reasons"]
        dead = report_of(evb, path, "--fault", "crash=dfm@50ms", expect=1)
        assert any("dfm was killed by signal 9" in text for text in dead["reasons"]), dead["reasons"]
        assert 0 < dead["events_complete"] < 300, dead


def trace(evb):
    """Each line has a time, a node and what happens; the history is the same with and without it."""
    with folder() as where:
        path = scenario(where, SHORT)
        words = [path, "--seed", 3, "--fault", "crash=ros1@20ms", "--fault", "restart=ros1@40ms", "--set", "network.loss=0.01", "--set", "trigger.events=80"]
        done = subprocess.run([evb, "sim", *map(str, words), "--trace", "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        again = subprocess.run([evb, "sim", *map(str, words), "--trace"], capture_output=True, text=True, timeout=LIMIT_S)
        quiet = subprocess.run([evb, "sim", *map(str, words), "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.stdout == quiet.stdout, "the trace changed the history"
        lines = [line for line in done.stderr.splitlines() if re.match(r"\d+\.\d{9} ", line)]
        assert lines and lines == [line for line in again.stdout.splitlines() if re.match(r"\d+\.\d{9} ", line)]
        times = [float(line.split()[0]) for line in lines]
        assert times == sorted(times)
        for text in (r"dfm: Join from ros2, \d+ bytes", r"sfi1: Fragments from ros1, \d+ bytes", "0.020000000 ros1 crashes", "0.040000000 ros1 restarts",
                     "sfi1 sees the run: running", r"sfi\d builds event 7: complete", "dropped at its receiver, as network.loss wants it: ",
                     r"dfm counts \d+ triggers, \d+ complete"):
            assert any(re.search(text, line) for line in lines), text
        digest = json.loads(done.stdout)["digest"]
        assert f"seed 3, digest {digest}, " in again.stdout


def mistakes(evb):
    with folder() as where:
        path = scenario(where, SHORT)
        for words, text in ((["--seed", "x"], '--seed: invalid value "x"; expected a whole number'),
                            (["--seed", "-1"], "--seed: invalid value"),
                            (["--count", "0"], "--count: invalid value \"0\"; expected a positive integer"),
                            (["--fault", "crash=ros9@1s"], '--fault crash: invalid value "ros9@1s"; expected NODE@TIME'),
                            (["--fault", "crash=ros1"], "--fault crash: invalid value"), (["--fault", "crash=ros1@soon"], "--fault crash: invalid value"),
                            (["--fault", "crash=ros1@1s+1s"], "--fault crash: invalid value"),
                            (["--fault", "pause=ros1@1s"], "expected NODE@TIME+DURATION"), (["--fault", "pause=ros1@1s+x"], "expected NODE@TIME+DURATION"),
                            (["--fault", "restart=@1s"], "--fault restart: invalid value"),
                            (["--fault", "kill=ros1@1s"], '--fault kill=ros1@1s: unknown name "kill"'),
                            (["--crash", "ros1@x"], "--crash ros1@x is now --fault crash=ros1@x"), (["--model", "wake-time=2s"], "expected a time up to 1s"),
                            (["--model", "packet-time=3"], "--model: invalid value"), (["--model", "wake=3us"], "--model: invalid value"), (["--net", "lab"], "unknown option --net"),
                            (["--set", "scenario.transport=tcp"], "scenario.transport: tcp is not modelled; expected udp"),
                            (["--set", "ros.source=file:/dev/null"], "ros.source"),
                            (["--set", "trigger.events=0"], "the run has no end"),
                            (["--set", "test.pacing=1Mbit"], "test.pacing"),
                            (["--set", "qos.backend=htb", "--set", "qos.burst=64"], "the queue would drop every packet"),
                            (["--set", "ros.count=2000"], "out of range; expected 0 to 1024"),
                            (["--set", "nonsense.key=1"], "unknown key")):
            done = call(evb, path, *words, expect=2)
            assert text in done.stderr and done.stdout == "", (words, done.stderr)
        many = [word for i in range(257) for word in ("--fault", f"crash=ros1@{i}ms")]
        assert "more than 256 faults" in call(evb, path, *many, expect=2).stderr
        assert "No such file" in call(evb, where / "none.conf", expect=2).stderr
        assert "missing argument FILE" in call(evb, expect=2).stderr
        assert "/nowhere" in call(evb, path, "--json=/nowhere/x.json", expect=2).stderr


def stopped(evb):
    """A signal ends a history that would take hours, and the report says how far it came."""
    with folder() as where:
        path = scenario(where, SHORT)
        for words in (["--json"], []):
            process = subprocess.Popen([evb, "sim", path, *settings({"trigger.events": "1000000000", "trigger.rate": "2kHz"}), "--trace", *words],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for line in process.stdout:
                if "counts" in line:
                    break
            process.send_signal(signal.SIGINT)
            text = process.stdout.read()
            assert process.wait(LIMIT_S) == 1 and "evb sim: stopped by a signal at " in text, text[-500:]
            assert '"digest":"' in text if words else "digest " in text, text[-500:]


def many(evb, *words):
    return subprocess.run([ROOT / "scripts" / "sim-histories.py", "--evb", evb, *map(str, words)], capture_output=True, text=True, timeout=10 * LIMIT_S, cwd=ROOT)


def ten_thousand(evb):
    """10,000 histories of 500 scenarios violate no invariant."""
    done = many(evb, "--scenarios", 500, "--histories", 20)
    assert done.returncode == 0 and done.stdout.startswith("10000 histories of 500 scenarios"), done.stderr[-5000:]


# An evb that fails in each history with a pause and 5 events or more, in which it prints only the seed of the first one.
LIAR = """#!/bin/sh
case " $* " in *" trigger.events="[0-4]" "*) exit 0 ;; esac
case "$*" in *pause=* | *--chaos*) ;; *) exit 0 ;; esac
case "$*" in *"ros.count=1 "*"sfi.count=1 "*) exit 0 ;; esac
echo "evb sim: seed 3, at 0.1 s: ends-once: dfm: it lies" >&2
case "$*" in *--chaos*)
  echo "evb sim: its faults: --fault crash=ros1@1ns --fault pause=dfm@2000001ns+3ns --fault restart=ros1@5ns --set network.loss=0.100000000" \\
    "--set network.reorder=0.000000000 --set network.duplicate=0.000000000" >&2 ;;
esac
exit 1
"""


def script(evb):
    """scripts/sim-histories.py prints how to repeat a failure, and reduces it to what it needs."""
    done = many(evb, "--seed", 7, "--scenarios", 3, "--histories", 5)
    assert done.returncode == 0 and "15 histories" in done.stdout, done
    seed = next(seed for seed in range(1, 100) if {"--chaos", "trigger.events=80"} <= set(many(evb, "--print", seed).stdout.split()))
    with folder() as where:
        liar = where / "evb"
        liar.write_text(LIAR)
        liar.chmod(0o755)
        done = many(liar, "--seed", seed, "--scenarios", 1)
        assert done.returncode == 1 and "ends-once: dfm: it lies" in done.stderr and f"--reduce {seed}:3" in done.stderr, done
        done = many(liar, "--reduce", f"{seed}:3")
        assert done.returncode == 0 and "ends-once: dfm: it lies" in done.stdout, done
        command = done.stdout.splitlines()[-1].split()
        assert command[:3] == ["evb", "sim", "configs/scenarios/push-6x1.conf"] and command[-3:] == ["--seed", "3", "--trace"], command
        assert "trigger.events=5" in command and "--fault pause=dfm@2ms+1ms" in done.stdout, command
        assert "--chaos" not in command and not re.search("crash=|restart=", done.stdout) and "network.loss" not in done.stdout and len(command) < 25, command
        done = many(evb, "--reduce", f"{seed}:3")
        assert done.returncode == 2 and f"history 3 of scenario {seed} does not fail" in done.stderr, done
        liar.write_text("#!/bin/sh\nkill -ABRT $$\n")
        done = many(liar, "--seed", seed, "--scenarios", 1, "--histories", 2)
        assert done.returncode == 1 and f"--reduce {seed}:1" in done.stderr, done
        liar.write_text("#!/bin/sh\necho 'test.conf:1: nonsense' >&2\nexit 2\n")
        done = many(liar, "--seed", seed, "--scenarios", 1)
        assert done.returncode == 2 and "test.conf:1: nonsense" in done.stderr, done


def atlas(evb):
    """The size of ATLAS's event builder in 2008: 150 ROSs, 100 SFIs, 3 kHz."""
    keys = {"scenario.duration": "1s", "trigger.rate": "3kHz", "ros.count": 150, "sfi.count": 100, "network.link-rate": "1Gbit", "ros.fragment-size": "1kB"}
    with folder() as where:
        path = scenario(where, "[scenario]\nmode = pull\n[sfi]\ncount = 1\noutput = null\n[ros]\ncount = 1\n")
        report = report_of(evb, path, *settings(keys))
        assert report["triggers"] == 3000 and report["drops"]["switch_packets"] == 0, report["drops"]
        complete(report)


main({"places": places, "same-report": same_report, "overload": overload, "source-queue": source_queue,
      "faults": faults, "trace": trace, "mistakes": mistakes, "stopped": stopped, "script": script, "atlas": atlas,
      "ten-thousand": ten_thousand})
