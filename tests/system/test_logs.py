#!/usr/bin/env python3
"""What an operator finds in the log: a line for each important event of a run, at levels, and in the journal with
fields.

    test_logs.py EVB [CASE...]
"""
import contextlib
import fcntl
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading

from harness import LIMIT_S, OWN_NET, QUIET, ROOT, Skip, complete, drop_root, folder, main, need_root, scenario, settings
from test_join import PATIENT, ROLES, bed
from test_foreign_senders import ALIVE, Wire
from test_keys import send

# Nodes that take long to start are in the run from its beginning. A DFM that gets no processor for three keep-alives extends timeouts.
ENDLESS = {"trigger.events": 0, "trigger.rate": "100Hz", "sfi.timeout": "2s", "dfm.start-timeout": "60s", "test.keep-alive": "500ms"}


def in_mounts(case, *needs):
    """Runs a case again in a mount namespace of its own."""
    need_root()
    for program in ("unshare", "mount", *needs):
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    if "EVB_TEST_MOUNTS" in os.environ:
        return True
    words = ["unshare", "-m", "--propagation", "private"]
    if subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False).returncode != 0:
        raise Skip("mount namespaces are not permitted")
    subprocess.run([*words, sys.executable, __file__, sys.argv[1], case], check=True, timeout=3 * LIMIT_S,
                   env={**os.environ, "EVB_TEST_MOUNTS": "1"})
    return False


def stop(b, name="dfm"):
    """Stops a node, and returns how its log must name this process."""
    b.processes[name].send_signal(signal.SIGTERM)
    comm = pathlib.Path("/proc/self/comm").read_text().strip()
    return f"stopped by SIGTERM from process {os.getpid()} ({comm}), user {os.getuid()}\n"


def wait_ended(b):
    for process in b.processes.values():
        process.wait(timeout=LIMIT_S)


def check_accounts(b):
    """The accounts in the logs are those of the reports, and each trigger has one end."""
    report = json.loads((b.folder / "dfm.json").read_text())
    (found,) = re.findall(r"^dfm: run 1 ended: (\d+) triggers = (\d+) complete \+ (\d+) partial \+ (\d+) lost \+ (\d+) rejected$", b.log("dfm"), re.M)
    triggers, *ends = map(int, found)
    assert triggers == sum(ends) == report["triggers"] > 0, (found, report)
    assert ends == [report[f"events_{end}"] for end in ("complete", "partial", "lost", "rejected")], (found, report)
    for name, role in ROLES.items():
        pattern = {"ros": r"run 1 ended: \d+ fragments sent, ", "sfi": r"run 1 ended: \d+ events complete, \d+ partial, \d+ lost; "}.get(role)
        assert not pattern or len(re.findall(pattern, b.log(name))) == 1, b.log(name)


def lines(evb):
    """Each important event of a run has a line in the logs of the nodes that it concerns."""
    with bed(evb, ENDLESS) as b:
        b.start("ros1")
        b.wait_log("ros1", f"waiting for the DFM dfm at {b.addresses['dfm']}\n")
        b.start("dfm")
        b.wait("wait of the DFM", lambda: re.search(r"waiting for .*ros2, ros3, sfi1, sfi2\n", b.log("dfm")))
        b.start_all("ros2", "ros3", "sfi1", "sfi2")
        for name in ROLES:
            b.wait_log(name, "run 1 has begun: test, 3 ROSs, 2 SFIs, push over UDP, shaping none\n")
        b.wait_written(50_000)
        b.kill("ros3")
        b.wait_log("dfm", "no message from ros3 for dfm.node-timeout; treating it as gone\n")
        b.wait("partial event", lambda: re.search(r"event \d+ is partial: the fragments of .* are missing; further", b.log("sfi1")))
        b.start("ros3")
        b.wait("return of ros3", lambda: re.search(r"ros3 is back after \d+\.\d s\n", b.log("dfm")))
        b.kill("ros2")
        b.wait("second fault", lambda: re.search(r"event \d+ is partial: the fragments of .*ros2.* are missing; further", b.log("sfi1")))
        b.start("ros2")
        b.wait("return of ros2", lambda: re.search(r"ros2 (is back after|has restarted)", b.log("dfm")))
        b.processes["dfm"].send_signal(signal.SIGSTOP)
        b.wait_log("ros1", f"no message from the DFM dfm at {b.addresses['dfm']} for ")
        b.processes["dfm"].send_signal(signal.SIGCONT)
        b.wait("return of the DFM", lambda: re.search(r"the DFM dfm is back after \d+\.\d s\n", b.log("ros1")))
        says = stop(b)
        b.wait_log("dfm", "dfm: " + says)
        wait_ended(b)
        for name in ("ros1", "ros2", "sfi1", "sfi2"):
            assert f"{name}: the DFM dfm stops run 1\n" in b.log(name), b.log(name)
        for sfi in ("sfi1", "sfi2"):
            assert all(b.log(sfi).count(f"the fragments of {ros} are missing") <= 1 for ros in ("ros2", "ros3")), b.log(sfi)
        check_accounts(b)


def ends(evb):
    """The DFM logs which limit ends a run, and a single stopped node logs who stopped it."""
    for keys, why in (({"trigger.events": 200}, r"run 1 stops: it has all 200 triggers \(trigger.events\)\n"),
                      ({"trigger.events": 0, "scenario.duration": "1s"}, r"run 1 stops: 1\.00 s have passed \(scenario.duration\)\n")):
        with bed(evb, {**PATIENT, **keys}) as b:
            b.start_all()
            wait_ended(b)
            assert re.search(why, b.log("dfm")) and "stopped by" not in b.log("dfm"), b.log("dfm")
            check_accounts(b)
    with bed(evb, ENDLESS) as b:
        b.start_all()
        b.wait_written(50_000)
        b.wait_log("sfi1", "run 1 has begun: ")
        says = stop(b, "sfi1")
        b.wait_log("sfi1", "sfi1: " + says)
        b.wait_log("dfm", "sfi1 has left\n")
        stop(b)
        wait_ended(b)
        assert "the DFM dfm stops" not in b.log("sfi1"), b.log("sfi1")
        check_accounts(b)


def buffer(evb):
    """A socket buffer that the kernel grants only in part is logged with the limit to raise."""
    most = int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text())
    if most >= 256 << 20:
        raise Skip("net.core.rmem_max is not lower than what network.socket-buffer may be")
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("nobody")
        except KeyError as missing:
            raise Skip("there is no user nobody") from missing
    with folder() as where:
        where.chmod(0o755)
        done = subprocess.run([evb, "run", scenario(where), *settings({"trigger.events": 100, "network.socket-buffer": "256MiB"})],
                              capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=drop_root, check=False)
        found = re.search(r"^sfi1: the kernel grants (\S+ ?\w+) of the requested .* as receive buffer for fragments; raise net\.core\.rmem_max to 268435456$",
                          done.stderr, re.M)
        assert done.returncode == 0 and found, done


def read_only(evb):
    """A service is told how to write to a directory that only its unit makes read-only."""
    if not in_mounts("read-only"):
        return
    with bed(evb) as b:
        output = b.folder / "output"
        output.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", output], check=True)
        try:
            command = [evb, "sfi", "--config", b.file, "--node", "sfi1", *settings({"sfi.directory": output})]
            environment = {key: value for key, value in os.environ.items() if key != "INVOCATION_ID"}
            for own, text in (({}, f"cannot write to {output}: Read-only file system"),
                              ({"INVOCATION_ID": "0" * 32}, f"{output} is read-only: add it to ReadWritePaths= of this service")):
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env={**environment, **own}, check=False)
                assert done.returncode == 2 and f"sfi1: sfi.directory: {text}\n" in done.stderr, done
        finally:
            subprocess.run(["umount", output], check=True)


def levels(evb):
    """--verbose and --quiet set the level, also for the nodes of a run, and override EVB_LOG."""
    def said(*words, level=None):
        with folder() as where:
            environment = {key: value for key, value in os.environ.items() if key != "EVB_LOG"}
            if level:
                environment["EVB_LOG"] = level
            done = subprocess.run([evb, "run", scenario(where), *settings({"ros.count": 1, "sfi.count": 1, "trigger.events": 100, "qos.backend": "htb:optional"}), *words],
                                  capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
            assert done.returncode == 0, done
            # The launcher logs this warning at any level here.
            assert ("evb: qos.backend: nodes cannot shape on loopback" in done.stderr) == (level != "error"), done.stderr
            return bool(re.search(r"sfi1: run \d+ has begun", done.stderr))

    assert not said()
    assert not said("--quiet")
    assert said("-v") and said("--verbose", "--json")
    assert said(level="info") and not said(level="error")
    assert not said("-q", level="debug") and said("-v", level="warning")
    # A node alone logs its run, unless it is quiet.
    with bed(evb, {**PATIENT, **QUIET, "trigger.events": 100}) as b:
        b.start_all("ros1", "ros2", "ros3", "sfi1", "sfi2")
        log = b.folder / "dfm.log"
        with log.open("w") as to:
            b.processes["dfm"] = subprocess.Popen([evb, "dfm", "--config", b.file, "--node", "dfm", "-q", *settings(b.keys)], stderr=to,
                                                  stdout=subprocess.DEVNULL)
        wait_ended(b)
        assert log.read_text() == "", log.read_text()


def terminal(evb):
    """Only a terminal gets the time of day and colours, and these only if nothing forbids them."""
    def said(**environment):
        master, slave = os.openpty()
        with folder() as where:
            keys = settings({"ros.count": 1, "sfi.count": 1, "trigger.events": 100, "qos.backend": "htb:optional", **QUIET})
            base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "EVB_LOG")}
            subprocess.run([evb, "run", "-q", scenario(where), *keys], stderr=slave, stdout=subprocess.DEVNULL, timeout=LIMIT_S, env={**base, **environment},
                           check=True)
        os.close(slave)
        text = b""
        with contextlib.suppress(OSError):
            while part := os.read(master, 65536):
                text += part
        os.close(master)
        return text.decode()

    line = "evb: qos.backend: nodes cannot shape on loopback; this run is unshaped (:optional)"
    clock = r"[0-2]\d:[0-5]\d:[0-6]\d "
    assert re.fullmatch(f"\r\033\\[K{clock}\033\\[33m{re.escape(line)}\033\\[0m\r\n", text := said(TERM="xterm")), repr(text)
    assert re.fullmatch(f"\r\033\\[K{clock}{re.escape(line)}\r\n", text := said(TERM="xterm", NO_COLOR="1")), repr(text)
    assert re.fullmatch(f"{clock}{re.escape(line)}\r\n", text := said(TERM="dumb")), repr(text)


def run_unread(evb, where, stderr, **options):
    """Makes a run whose log nothing reads; it must end all the same."""
    words = [evb, "run", "--verbose", "--json", scenario(where), *settings({"trigger.events": 500, "qos.backend": "none"})]
    done = subprocess.run(words, stderr=stderr, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True, **options)
    complete(json.loads(done.stdout))


def fill(write):
    """Writes to something non-blocking until it is full."""
    with contextlib.suppress(BlockingIOError):
        while True:
            write(b"x" * 512)


def unread(evb):
    """A log that nothing reads does not stop a run: a full pipe, and a terminal that suspends those in the background."""
    with folder() as where:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        fill(lambda text: os.write(writer, text))
        os.set_blocking(writer, True)
        run_unread(evb, where, writer)
        assert os.get_blocking(writer)
        os.close(reader)
        os.close(writer)

        master, slave = os.openpty()
        mode = termios.tcgetattr(slave)
        mode[3] |= termios.TOSTOP
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        run_unread(evb, where, slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))
        os.close(slave)
        os.close(master)


def strangers(evb):
    """Messages from strangers cannot fill the log: a few are logged, the others counted."""
    need_root()
    with bed(evb, ENDLESS) as b, contextlib.closing(Wire()) as wire:
        b.start_all()
        alive = wire.hear(ALIVE, b.addresses["ros1"], b.addresses["dfm"])
        for i in range(1000):
            # ROSs that the scenario does not have, each another one.
            send(b, wire, alive.with_changes(sender=alive.sender + 100 + i % 500).encode(), f"{OWN_NET}.200", b.addresses["dfm"])
        b.wait("strangers", lambda: re.search(r"more messages of this kind were not logged; the last one: ignored a message from ros", b.log("dfm")))
        stop(b)
        b.processes["dfm"].wait(timeout=LIMIT_S)
        report = json.loads((b.folder / "dfm.json").read_text())
        written = len(re.findall(r"^dfm: ignored a message from ros \d+ at ", b.log("dfm"), re.M))
        dropped = sum(map(int, re.findall(r"^dfm: (\d+) more messages of this kind were not logged", b.log("dfm"), re.M)))
        assert 10 <= written <= 100 < dropped, (written, dropped)
        assert written + dropped <= report["packets_foreign"] == 1000, (written, dropped, report["packets_foreign"])


class Journal:
    """Receives what nodes send to the socket of the journal."""

    def __init__(self, reads=True):
        # Other services of this machine are not seen here, and nothing of this is seen there.
        at = "/run/systemd" if pathlib.Path("/run/systemd").is_dir() else "/run"
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", at], check=True)
        self.path = pathlib.Path("/run/systemd/journal/socket")
        self.path.parent.mkdir(parents=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.records = []
        if reads:
            threading.Thread(target=self.receive, daemon=True).start()

    def receive(self):
        while True:
            text = self.socket.recv(1 << 20).decode()
            assert text.endswith("\n"), text
            pairs = [line.split("=", 1) for line in text.splitlines()]
            assert len(dict(pairs)) == len(pairs), f"a field twice: {text}"
            self.records.append(dict(pairs))

    def find(self, message_id, **fields):
        return [r for r in list(self.records) if r.get("MESSAGE_ID") == message_id and fields.items() <= r.items()]


def check_record(record, sources):
    """A record has what src/base/log.h promises."""
    node = record["EVB_NODE"]
    assert record["MESSAGE"].startswith(f"{node}: ") and record["EVB_ROLE"] == ROLES[node], record
    assert record["PRIORITY"] in "3467" and record["SYSLOG_IDENTIFIER"] == "evb", record
    source = sources.setdefault(record["CODE_FILE"], (ROOT / record["CODE_FILE"]).read_text().splitlines())
    assert re.fullmatch(r"[a-z_0-9]+", record["CODE_FUNC"]) and 0 < int(record["CODE_LINE"]) <= len(source), record
    assert any(re.match(rf".*\b{record['CODE_FUNC']}\(", line) for line in source[:int(record["CODE_LINE"])]), record
    assert int(record.get("EVB_RUN", 1)) == 1, record


def journal(evb):
    """Under systemd, messages go to the journal with fields; without a journal, to standard error with priorities."""
    if not in_mounts("journal"):
        return
    ids = dict(re.findall(r'^#define LOG_ID_(\w+) "(\w+)"', (ROOT / "src/base/log.h").read_text(), re.M))
    to = Journal()
    with bed(evb, ENDLESS) as b:
        def start(name, keys=None):
            log = b.folder / f"{name}.log"
            log.touch()
            os.environ["JOURNAL_STREAM"] = f"{log.stat().st_dev}:{log.stat().st_ino}"
            b.start(name, keys=keys)

        def wait(name, **fields):
            b.wait(f"{name} {fields}: {to.records}", lambda: to.find(ids[name], **fields))
            return to.find(ids[name], **fields)[0]

        start("dfm")
        wait("WAITING", EVB_NODE="dfm", PRIORITY="6")
        for name in ("ros1", "ros3", "sfi1", "sfi2"):
            start(name)
        start("ros2", {"run.seed": 99})
        for name in ROLES:
            wait("RUN_BEGUN", EVB_NODE=name, EVB_RUN="1", PRIORITY="6")
        for name in ROLES:
            assert name == "dfm" or wait("NODE_JOINED", EVB_NODE="dfm", EVB_PEER=name)
        corrupt = wait("EVENT_CORRUPT", EVB_NODE="sfi1", EVB_PEER="ros2", PRIORITY="3")
        assert f"event {corrupt['EVB_EVENT']} of ros2" in corrupt["MESSAGE"], corrupt
        b.kill("ros3")
        wait("NODE_LOST", EVB_NODE="dfm", EVB_PEER="ros3", PRIORITY="4")
        partial = wait("EVENT_PARTIAL", EVB_NODE="sfi1", PRIORITY="4")
        assert f"event {partial['EVB_EVENT']} is partial" in partial["MESSAGE"], partial
        start("ros3")
        wait("NODE_BACK", EVB_NODE="dfm", EVB_PEER="ros3", EVB_RUN="1")
        stop(b, "sfi2")
        stopped = wait("STOPPED", EVB_NODE="sfi2")
        assert f"SIGTERM from process {os.getpid()} (" in stopped["MESSAGE"], stopped
        wait("RUN_ENDED", EVB_NODE="sfi2")
        assert all(b.log(name) == "" for name in ROLES), [b.log(name) for name in ROLES]
        sources = {}
        for record in list(to.records):
            check_record(record, sources)
        to.path.unlink()
        says = stop(b)
        wait_ended(b)
        assert f"<6>dfm: {says}" in b.log("dfm"), b.log("dfm")
        for name in ("dfm", "ros1", "sfi1"):
            assert re.search(r"^<6>\w+: run 1 ended: ", b.log(name), re.M), b.log(name)
            assert all(re.match(r"<[3467]>", line) for line in b.log(name).splitlines()), b.log(name)
            assert not to.find(ids["STOPPED"], EVB_NODE=name) and not to.find(ids["RUN_ENDED"], EVB_NODE=name), to.records


def unread_journal(evb):
    """A journal that reads nothing does not stop a run."""
    if not in_mounts("unread-journal"):
        return
    to = Journal(reads=False)
    with folder() as where, open(where / "log", "wb") as log, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        fill(lambda text: sender.sendto(text, str(to.path)))
        stream = os.fstat(log.fileno())
        run_unread(evb, where, log, env={**os.environ, "JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"})
        assert (where / "log").read_text() == "", (where / "log").read_text()


if __name__ == "__main__":
    main({"lines": lines, "ends": ends, "buffer": buffer, "read-only": read_only, "levels": levels, "terminal": terminal,
          "strangers": strangers, "journal": journal, "unread": unread, "unread-journal": unread_journal})
