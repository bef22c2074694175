#!/usr/bin/env python3
"""Wrong command lines and files: error messages and exit statuses.

    test_cli.py EVB [CASE...]
"""
import fcntl
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import termios

from harness import LIMIT_S, OWN_NET, QUIET, ROOT, SCENARIOS, SMALL, Running, drop_root, folder, main, read_until, run, scenario, settings
from network import wait_until


def call(evb, *words, **options):
    return subprocess.run([evb, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, **options)


def wrong(evb, words, *texts, status=2):
    done = call(evb, *words)
    assert done.returncode == status and done.stdout == "", (words, done)
    for text in texts:
        assert text in done.stderr, (words, text, done.stderr)


def usage(evb):
    wrong(evb, [], "evb COMMAND", "run", "ros", "dfm", "sfi", "check", "dump")
    wrong(evb, ["fly"], 'unknown command "fly"; see `evb --help`')
    wrong(evb, ["run"], "missing argument FILE, as there is no /etc/evb/scenario.conf; see `evb run --help`")
    wrong(evb, ["run", "a", "b"], 'unexpected argument "b"')
    wrong(evb, ["run", "--fast", "x"], "unknown option --fast")
    wrong(evb, ["dump", "x", "--set", "a.b=c"], "option --set does not apply here; see `evb dump --help`")
    wrong(evb, ["run", "x", "--net"], "requires an argument")
    wrong(evb, ["run", "x", "--json="], "requires an argument")
    wrong(evb, ["run", "x", "--progress=3"], "takes no argument")
    wrong(evb, ["run", SCENARIOS / "demo.conf", "--net", "moon"], '--net: invalid network "moon"; expected loopback or lab')
    wrong(evb, ["ros"], "missing option; --config FILE is required, as there is no /etc/evb/scenario.conf")
    wrong(evb, ["ros", "--config", SCENARIOS / "demo.conf"], "missing option; --node NAME is required")
    wrong(evb, ["ros", "--config", SCENARIOS / "demo.conf", "--node", "ros9"], 'unknown node "ros9"; expected a node with role = ros: ros1')
    wrong(evb, ["ros", "--config", SCENARIOS / "demo.conf", "--node", "sfi1"], 'wrong role of node "sfi1"; expected a node with role = ros')
    wrong(evb, ["check", "/nowhere.conf"], "/nowhere.conf: No such file or directory")
    for words in (["--version"], ["run", "--version"]):
        done = call(evb, *words)
        assert done.returncode == 0 and done.stdout.startswith("evb ") and done.stderr == "", done
    for command in ("run", "ros", "dfm", "sfi", "check", "dump"):
        done = call(evb, command, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"Usage: evb {command}") and "--json" in done.stdout, done


def config(evb):
    """--config, its alias, the argument, the environment and the installed scenario name the same file."""
    with folder() as where:
        path, other = scenario(where), scenario(where, name="other.conf")
        environment = {**os.environ, "EVB_CONFIG": str(path)}
        texts = {call(evb, "check", *words, env=environment).stdout for words in
                 ((), (path,), ("--config", path), ("--scenario", path), (f"--config={path}",))}
        assert len(texts) == 1 and "[scenario]" in texts.pop(), texts
        done = call(evb, "run", "--config", path, "--json", where / "report.json", "--set", "sfi.output=null", env={**environment, "EVB_CONFIG": ""})
        assert done.returncode == 0 and json.loads((where / "report.json").read_text())["events_lost"] == 0, done
        wrong(evb, ["check", path, "--config", other], f'--config {other} and the argument "{path}" exclude each other')
        wrong(evb, ["check", "--config", other, path], f'unexpected argument "{path}"')
        if os.geteuid() != 0:
            return
        script = f'mount -t tmpfs none /etc && mkdir /etc/evb && cp "$1" /etc/evb/scenario.conf && unset EVB_CONFIG && exec "{evb}" check'
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", str(path)], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and "[scenario]" in done.stdout, done
        # The check does not run in the sandbox of the SFI's unit, so it warns.
        (where / "data").mkdir()
        for at, warns in ((where / "data", True), ("/var/lib/evb", False)):
            words = f"mount -t tmpfs none /var/lib && mkdir /var/lib/evb && {script} --node sfi1 --set sfi.directory={at} --set sfi.output=file"
            done = subprocess.run(["unshare", "--mount", "sh", "-c", words, "sh", str(path)], capture_output=True, text=True, timeout=LIMIT_S)
            assert "node dfm has no address" in done.stderr and ("may write only below /var/lib/evb" in done.stderr) == warns, (at, done)
        assert call(evb, "ctl", "status", env=environment).stderr.startswith(f"{path}: control.listen: the DFM takes no commands"), path


def mistakes(evb):
    """One check reports all errors of a file, each with its line and the expected values."""
    with folder() as where:
        path = scenario(where, "[scenario]\nmode = shove\n\n[trigger]\nrate = fast\n[ros]\ncount = 0\nfragment-siz = 1kB\n"
                               "[sfi]\ncount = 1\n[nonsense]\nx = 1\n")
        wrong(evb, ["check", path],
              f'{path}:2: scenario.mode: invalid value "shove"; expected push or pull',
              f'{path}:5: trigger.rate: "fast" is not a frequency; expected e.g. 2kHz, or max',
              f"{path}:8: ros.fragment-siz: unknown key; did you mean ros.fragment-size?",
              f"{path}:12: nonsense.x: unknown key")
        path = scenario(where)
        wrong(evb, ["run", path, "--set", "ros.count"], "SECTION.KEY=VALUE")
        wrong(evb, ["run", path, "--set", "network.loss=2"], "--set network.loss=2: network.loss:", "0 to 1")
        wrong(evb, ["run", path, "--set", "ros.source=carrier-pigeon"], "ros.source", "expected pattern, file:PATH")
        wrong(evb, ["run", path, "--set", "trigger.kind=poisson"], "trigger.kind", "trigger.rate")
        wrong(evb, ["run", path, "--set", "ros.source=file:/nowhere.raw"], "/nowhere.raw: No such file")


def json_output(evb):
    """--json prints one object and nothing else; with a FILE, standard output stays empty."""
    with folder() as where:
        path = scenario(where)
        for words in (["--json", path], [path, "--json"], ["--json=" + str(where / "a.json"), path], [path, "--json", where / "a.json"]):
            done = call(evb, "run", *words, *settings({"trigger.events": 10, **QUIET}))
            assert done.returncode == 0, done
            text = done.stdout or (where / "a.json").read_text()
            report = json.loads(text)
            assert report["triggers"] == 10 and len(report["nodes"]) == 9, report
            assert done.stderr == "", done.stderr
        wanted = {"scenario", "mode", "transport", "qos_backend", "qos_rate_bps", "sources", "builders", "seconds", "triggers",
                  "events_assigned", "events_complete", "events_partial", "events_lost", "events_rejected", "level2", "event_rate_hz", "payload_bytes",
                  "throughput_bytes_per_second", "building_seconds", "busy_seconds", "paused_seconds", "latency_us", "fragments", "drops", "cpu_seconds", "cpu_percent",
                  "peak_rss_bytes", "files", "nodes", "front_ends", "triggers_not_taken"}
        assert wanted <= set(report), wanted - set(report)
        assert set(report["fragments"]) == {"expected", "received", "lost", "absent", "late", "duplicate", "foreign", "malformed",
                                            "corrupt", "mismatched", "re_asked", "recovered"}
        assert set(report["drops"]) == {"source_qdisc_packets", "network_packets", "switch_packets", "socket_packets"}
        assert report["drops"]["switch_packets"] is None and report["drops"]["source_qdisc_packets"] is None
        done = call(evb, "check", path, "--json")
        assert json.loads(done.stdout)["ros"]["fragment-size"] == "1KiB", done


def check_old_names(evb):
    """Old names of keys work, and removed keys have no effect; a check and a run warn about both, once."""
    with folder() as where:
        path = scenario(where, "[ros]\ncount = 2\n[sfi]\ncount = 1\nre-ask = 3\n")
        done = call(evb, "check", path, "--set", "network.control-port=27100")
        assert done.returncode == 0, done
        assert done.stderr == (f"{path}:5: warning: sfi.re-ask is now sfi.retries\n"
                               "--set network.control-port=27100: warning: network.control-port is now network.port\n"), done
        assert "\nretries = 3\n" in done.stdout and "\nport = 27100\n" in done.stdout, done
        patient = settings({"sfi.timeout": "30s", "dfm.node-timeout": "30s", **QUIET})
        done = call(evb, "run", path, *patient, "--set", "trigger.events=10", "--set", "dfm.poll=1ms", "--json")
        assert done.returncode == 0, done
        assert done.stderr == (f"{path}:5: warning: sfi.re-ask is now sfi.retries\n"
                               "--set dfm.poll=1ms: warning: dfm.poll has no effect any more: set network.busy-poll\n"), done
        wrong(evb, ["check", scenario(where, "[ros]\ncount = 2\n[sfi]\ncount = 1\nre-ask = 3\nretries = 3\n")],
              ":6: sfi.retries: duplicate key; first set on line 5 by its old name sfi.re-ask")


def check_round_trip(evb):
    with folder() as where:
        for path in sorted(SCENARIOS.glob("*.conf")):
            # A check opens the file that ROSs of this machine replay.
            if path.name == "bes3-replay.conf" and not (ROOT.parent / "shared").exists():
                continue
            first = call(evb, "check", path)
            assert first.returncode == 0, first
            again = call(evb, "check", scenario(where, first.stdout))
            assert again.returncode == 0 and again.stdout == first.stdout, path


def manual(evb):
    """Pages have a fixed date, the program's name, a heading for options, and evb(1) refers to all the others."""
    with folder() as where:
        subprocess.run([ROOT / "scripts/make-docs.sh", evb, where], check=True, timeout=LIMIT_S)
        pages = {path.name: path.read_text() for path in pathlib.Path(where).iterdir()}
        for name, text in pages.items():
            assert re.search(r'^\.Dd [A-Z][a-z]+ \d+, \d{4}\n(.*\n)?\.Dt \S+ \d\n\.Os evb \S+$', text, re.M), (name, text[:200])
            assert "\n@" not in text and text.count("\n.Bl ") == text.count("\n.El\n"), name
            options = re.search(r"^\.It Fl -(?!keys)", text, re.M)
            assert name in ("evb.1", "evb-bench.1") or not options or text.index(".Sh OPTIONS") < options.start(), name
        helps = re.findall(r"^\$ evb (\S+).* --help\n([^$]*)", (ROOT / "tests/golden/help.txt").read_text(), re.M)
        parts = [(f"evb-{command}.1", part) for command, text in helps for part in re.findall(r"^    ([a-z][a-z-]*)", text, re.M)]
        assert ("evb-frontend.1", "missed") in parts and ("evb-stream.1", "watch-wire") in parts, parts
        assert [(name, part) for name, part in parts if f"\n.It Cm {part}" not in pages[name]] == []
        referred = re.findall(r"^\.Xr (\S+) (\d)", pages["evb.1"].partition(".Sh SEE ALSO")[2], re.M)
        assert sorted(f"{name}.{section}" for name, section in referred) == sorted(set(pages) - {"evb.1"}), referred


def no_disk(evb):
    """A missing output directory is an error at once; the run does not hang."""
    with folder() as where:
        done = call(evb, "run", scenario(where), "--set", "sfi.output=file", "--set", "sfi.directory=/nowhere/at/all")
        assert done.returncode != 0 and "sfi.directory" in done.stderr and "/nowhere/at/all" in done.stderr, done


def no_overwriting(evb):
    """A second run with the same number keeps the files of the first and logs the number of its own."""
    with folder() as where:
        words = ["run", scenario(where), "--set", "sfi.output=file", "--set", f"sfi.directory={where}",
                 "--set", "trigger.events=5", "--set", "run.number=7"]
        assert call(evb, *words).returncode == 0
        first = {path: path.read_bytes() for path in where.glob("*.data")}
        assert len(first) == 2, first
        done = call(evb, *words)
        assert done.returncode == 0 and "continuing with number 0002" in done.stderr, done
        assert len(list(where.glob("*.data"))) == 4
        assert all(path.read_bytes() == bytes_ for path, bytes_ in first.items())


def check_directory(evb):
    """A missing directory is an error for SFIs on this machine only."""
    def text(directory, address):
        nodes = "".join(f"[node {name}]\nrole = {name[:3]}\naddress = {address}.{i}\n"
                        for i, name in enumerate(("dfm", "ros1", "sfi1"), 1))
        return f"[sfi]\noutput = file\ndirectory = {directory}\n" + nodes

    with folder() as where:
        os.chmod(where, 0o755)
        (where / "closed").mkdir(0o555)
        wrong(evb, ["check", scenario(where), "--set", "sfi.output=file", "--set", "sfi.directory=/no/where"],
              "sfi.directory", "/no/where: No such file")
        wrong(evb, ["check", scenario(where, text("/no/where", "127.0.0"))], "/no/where: No such file")
        wrong(evb, ["check", scenario(where, text("/dev/null", "127.0.0"))], "/dev/null: Not a directory")
        done = call(evb, "check", scenario(where, text("/no/where", "192.0.2")))
        assert done.returncode == 0 and done.stderr == "", done
        done = call(evb, "check", scenario(where, text(where / "closed", "127.0.0")), preexec_fn=drop_root)
        assert done.returncode == 0 and "warning: not writable for this user" in done.stderr, done


def no_root(evb):
    """Without root, --net lab names the missing privilege and exits with 77."""
    with folder() as where:
        os.chmod(where, 0o755)
        done = call(evb, "run", scenario(where), "--net", "lab", preexec_fn=drop_root)
        assert done.returncode == 77 and "root" in done.stderr, done


def progress(evb):
    """--progress prints plain lines if standard error is not a terminal."""
    with folder() as where, subprocess.Popen([evb, "run", scenario(where), "--progress", "--set", "trigger.events=0", "--set",
                                              "trigger.rate=1kHz"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        lines, said = [], b""
        # One line a second, until events are built; a launcher without processor writes fewer.
        while not (len(lines) >= 2 and " 0 complete" not in lines[-1]) and (line := running.stderr.readline()):
            said += line
            lines += [line.decode()] if b"events/s" in line else []
        running.send_signal(signal.SIGINT)
        said += running.communicate(timeout=LIMIT_S)[1]
        assert running.returncode == 0 and len(lines) >= 2 and b"\r" not in said and b"\033" not in said, said
        assert "complete" in lines[0] and "busy" in lines[0], lines


def full_device(evb):
    """Output that cannot be written is an error, whichever command writes it."""
    with folder() as where, open("/dev/full", "w") as full:
        path = scenario(where)
        small = {"ros.count": 1, "sfi.count": 1}
        short = settings({**small, "trigger.events": 20})
        for words in (["run", path, *short], ["run", path, *short, "--json"], ["check", path], ["check", path, "--json"],
                      ["check", "--keys"], ["lab", "list"], ["lab", "list", "--json"], ["--help"], ["--version"]):
            done = subprocess.run([evb, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            assert done.returncode == 1, (words, done)
            assert "cannot write to standard output: " in done.stderr, (words, done)
        files = run(evb, path, {**small, "trigger.events": 20, "sfi.output": "file", "sfi.directory": where})["files"]
        for words in (["run", path, *short], ["check", path], ["lab", "list"], ["dump", files[0]], ["qos", "status", "--dev", "lo"],
                      ["qos", "plan", "--dev", "lo", "--link-rate", "1Gbit", "--dest", "127.0.0.2=10Mbit"]):
            done = call(evb, *words, "--json=/dev/full")
            assert done.returncode == 1 and done.stderr.count("--json /dev/full: cannot write the report: ") == 1, (words, done)
            assert words[0] == "run" or len(done.stderr.splitlines()) == 1, (words, done)
            done = call(evb, *words, "--json=/nowhere/report")
            assert done.returncode == 2 and "--json /nowhere/report: No such file or directory" in done.stderr, (words, done)
        # A node's report is shorter than a buffer.
        with Running(evb, path, {**small, "trigger.events": 0}) as running:
            running.wait_nodes(3)
            config = running.config()
        config = "\n".join(line if not line.startswith("address") else f"address = {OWN_NET}.{i}"
                           for i, line in enumerate(config.splitlines(), 1))
        with subprocess.Popen([evb, "sfi", "--config", scenario(where, config, "other.conf"), "--node", "sfi1", "--set", "metrics.listen=none",
                               "--json", "/dev/full"], stderr=subprocess.PIPE, text=True) as node:
            try:
                read_until(node.stderr, "waiting for the DFM")
                node.terminate()
                err = node.communicate(timeout=LIMIT_S)[1]
            finally:
                node.kill()
            assert node.returncode == 1 and "cannot write the report: " in err, (node.returncode, err)


def shared_output(evb):
    """Output is whole although another process made standard output non-blocking and reads late."""
    words = [evb, "check", "--keys"]
    expected = subprocess.run(words, capture_output=True, check=True, timeout=LIMIT_S).stdout
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    assert len(expected) > 2 * size, len(expected)
    with subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE) as process:
        wait_until("a full pipe", lambda: struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))[0] == size)
        os.close(writer)
        with open(reader, "rb") as pipe:
            assert pipe.read() == expected
        assert process.wait(LIMIT_S) == 0, process.stderr.read()


def notify(evb):
    """A node notifies systemd when it is ready, of its status, and when it stops."""
    with folder() as where, Running(evb, scenario(where), {"trigger.events": 0, "trigger.rate": "1kHz"}) as running:
        running.wait_nodes(9)
        running.wait_running()
        text = running.config().replace("\nnumber = 1\n", "\nnumber = 7\n")
        text = "\n".join(line if not line.startswith("address") else f"address = {OWN_NET}.{i}"
                         for i, line in enumerate(text.splitlines(), 1))
        path = scenario(where, text, "other.conf")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.settimeout(60)
        listener.bind(str(where / "notify"))
        node = subprocess.Popen([evb, "sfi", "--config", path, "--node", "sfi1", "--set", "metrics.listen=none"],
                                stderr=(where / "stderr").open("w"),
                                env={**os.environ, "NOTIFY_SOCKET": str(where / "notify"), "WATCHDOG_USEC": "60000000"})
        try:
            seen = ""

            def hear():
                try:
                    return listener.recv(4096).decode() + "\n"
                except TimeoutError:
                    raise AssertionError((node.poll(), seen, (where / "stderr").read_text())) from None

            waits = f"STATUS=waiting for the DFM dfm at {OWN_NET}."
            while not ("READY=1" in seen and "WATCHDOG=1" in seen and waits in seen):
                seen += hear()
            node.terminate()
            while "STOPPING=1" not in seen:
                seen += hear()
            listener.close()  # unread messages would block the node
            assert node.wait(LIMIT_S) == 0
        finally:
            node.kill()
            node.wait()
        running.signal()
        running.end(expect=(0,))


def file_limit(evb):
    """A limit of the size of files that is too small for the counters of a node is an error, not a signal without a message."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    with folder() as where:
        done = call(evb, "sfi", "--config", scenario(where), "--node", "sfi1", "--set", "metrics.listen=none", preexec_fn=limit)
        assert done.returncode > 0 and "mapping the counters: File too large" in done.stderr, done


assert SMALL
main({"usage": usage, "config": config, "manual": manual, "mistakes": mistakes, "json": json_output, "check-round-trip": check_round_trip, "check-old-names": check_old_names, "no-disk": no_disk,
      "no-overwriting": no_overwriting, "check-directory": check_directory, "no-root": no_root, "progress": progress,
      "full-device": full_device, "shared-output": shared_output, "notify": notify, "file-limit": file_limit})
