#!/usr/bin/env python3
"""Consumers of live events of real runs.

    test_live.py EVB [CASE...]
"""
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from harness import LIMIT_S, OWN_NET, ROOT, SMALL, Background, Running, Skip, ask, complete, events_of, folder, listens, main, scenario
from installed import Installed, need_program
from network import sh

sys.path.insert(0, str(ROOT / "python"))
from evb.interpreter import use_system_python  # pylint: disable=wrong-import-position

try:
    import numpy  # noqa: F401
except ImportError:
    use_system_python()

import evb  # pylint: disable=wrong-import-position

ENDLESS = SMALL.replace("events = 2000", "rate = 200Hz\nevents = 0")


class Consumer(Background):
    """A program that receives events."""

    def __init__(self, *command, env=None):
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def end(self):
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, f"exit {self.process.returncode}: {err}\n{out}"
        return out


class Live(Consumer):
    """A consumer, evb live."""

    def __init__(self, evb_program, socket, *options):
        super().__init__(evb_program, "live", f"unix:{socket}", *options)


@contextlib.contextmanager
def run_with_sockets(evb_program, where, keys=None):
    """A run that goes on until it is stopped, with the sockets of its SFIs."""
    (where / "data").mkdir()
    keys = {"sfi.output": "file", "sfi.directory": where / "data", "live.listen": f"unix:{where}/%n", **(keys or {})}
    with Running(evb_program, scenario(where, ENDLESS), keys) as running:
        running.wait_for("sockets of both SFIs", lambda: listens(where / "sfi1") and listens(where / "sfi2"))
        yield running


def content(where):
    """Counts the events of files by L1 ID and payload."""
    return collections.Counter((l1_id, hashlib.sha256(b"".join(payloads)).hexdigest()) for path in where
                               for l1_id, payloads in events_of(path))


def of_node(report, name):
    return next(node for node in report["nodes"] if node["name"] == name)


def command(evb_program):
    """evb live receives what the files hold, and its counts agree with the SFI's."""
    with folder() as where, run_with_sockets(evb_program, where) as running:
        with Live(evb_program, where / "sfi1", "--mode", "skip", "--output", where / "live.data") as whole:
            sample = [json.loads(line) for line in Live(evb_program, where / "sfi2", "--stride", "7:3", "--count", 100, "--json").end().splitlines()]
            running.wait_for("live events of sfi1", lambda: running.counter("sfi1", "live_events") >= 100)
            running.process.terminate()
            report = running.end({0})
            line = whole.end()
        complete(report)
        found = content([where / "live.data"])
        assert max(found.values()) == 1 and not found - content((where / "data").glob("*.data")), "events that are in no file"
        n, offered, skipped = map(int, re.fullmatch(r"(\d+) events, .*; (\d+) offered, (\d+) skipped\n", line).groups())
        sfi1, sfi2 = of_node(report, "sfi1"), of_node(report, "sfi2")
        assert n == len(found) == sfi1["live_events"] and offered == n + skipped and sfi1["live_events_skipped"] >= skipped, line
        assert len(sample) == 100 and [e["given"] for e in sample] == list(range(1, 101)) and sfi2["live_events"] >= 100
        assert all(e["offered"] == 7 * (e["given"] + e["skipped"]) - 3 and e["bytes"] > 6 * 1024 for e in sample), sample


def remote(evb_program):
    """Loops over TCP see what the files hold, with the key only, and end with the run."""
    need_numpy()
    with folder() as where:
        (where / "key").write_text("6b" * 32)
        (where / "other").write_text("6c" * 32)
        for name in "key", "other":
            (where / name).chmod(0o600)
        key = where / "key"
        sfi1, sfi2 = (f"{OWN_NET}.1:{port}" for port in (7400, 7401))
        (where / "data").mkdir()
        keys = {"sfi.output": "file", "sfi.directory": where / "data", "live.listen": sfi1, "live.all": "yes", "network.key-file": key}
        with Running(evb_program, scenario(where, ENDLESS), keys) as running:
            # An SFI listens before it joins.
            running.wait_running()
            for wrong, text in ((None, "this SFI has a key"), (where / "other", "another key")):
                try:
                    evb.live(sfi2, key=wrong)
                    raise AssertionError("a consumer without the key")
                except (ValueError, ConnectionError) as error:
                    assert text in str(error), error
            for options, text in ((), "this SFI has a key"), (("--key", where / "other"), "another key"):
                refused = subprocess.run([evb_program, "live", sfi1, *options], capture_output=True, text=True, timeout=LIMIT_S)
                assert refused.returncode == 2 and text in refused.stderr, refused
            with_key = Consumer(evb_program, "live", sfi1, "--key", key, "--mode", "all", "--output", where / "live.data")
            readers = [Reader(sfi1, mode="all", key=key), Reader(sfi1, key=key), Reader(sfi1, mode="skip", copy=False, stride=3, key=key),
                       Reader(sfi2, mode="skip", group="a", key=key), Reader(sfi2, mode="skip", group="a", key=key)]
            running.wait_for("events of each loop", lambda: all(len(r.counts) > 100 for r in readers))
            pids = [forked(sfi2, {"mode": "skip", "key": key, "group": "a" if i % 2 else "b"}, False) for i in range(4)]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            running.process.terminate()
            complete(running.end({0}))
            found = [reader.end() for reader in readers]
            assert re.fullmatch(r"(\d+) events, .*; \1 offered, 0 skipped\n", with_key.end())
            found.append(content([where / "live.data"]))
        files = content((where / "data").glob("*.data"))
        assert all(max(f.values()) == 1 and not f - files for f in found), "events that are in no file"
        assert not found[3].keys() & found[4].keys(), "an event for two members of a group"
        assert all(o == g and s == 0 for o, g, s in readers[0].counts) and all(o == 3 * (g + s) - 2 for o, g, s in readers[2].counts)


def remote_command(evb_program):
    """evb live gets each event over TCP with a key in mode all, and the end of the run."""
    with folder() as where:
        (where / "data").mkdir()
        key, address = where / "key", f"{OWN_NET}.1:7402"
        key.write_text("6b" * 32)
        key.chmod(0o600)
        keys = {"sfi.output": "file", "sfi.directory": where / "data", "live.listen": address, "live.all": "yes", "network.key-file": key}
        with Running(evb_program, scenario(where, ENDLESS), keys) as running:
            # An SFI listens before it joins.
            running.wait_running()
            with Consumer(evb_program, "live", address, "--key", key, "--mode", "all", "--ring", "1MiB", "--output", where / "live.data") as whole:
                running.wait_for("live events of sfi1", lambda: running.counter("sfi1", "live_events") >= 100)
                running.process.terminate()
                report = running.end({0})
                line = whole.end()
        complete(report)
        found = content([where / "live.data"])
        assert max(found.values()) == 1 and not found - content((where / "data").glob("*.data")), "events that are in no file"
        n, offered, skipped = map(int, re.fullmatch(r"(\d+) events, .*; (\d+) offered, (\d+) skipped\n", line).groups())
        assert n == len(found) == offered == of_node(report, "sfi1")["live_events"] and skipped == 0, line


def acknowledged(evb_program):
    """With sfi.output = live, events of consumers that are killed at random go to others, and what none has finished is lost."""
    need_numpy()
    dice = random.Random(11)
    keys = {"sfi.output": "live", "trigger.rate": "1kHz"}
    with folder() as where:
        # At the end, the SFIs wait for consumers for 10 s. A slow machine may finish only a few events in this time.
        with Running(evb_program, scenario(where, ENDLESS), {**keys, "sfi.credits": 8, "live.listen": f"unix:{where}/%n"}) as running:
            running.wait_for("sockets of both SFIs", lambda: listens(where / "sfi1") and listens(where / "sfi2"))
            # Their rings have room for a few events.
            options = {"mode": "all", "ring": 65536, "group": "farm"}
            # Most are killed while they have an event.
            farm = {name: [forked(where / name, options, False, 0.01) for _ in range(2)] for name in ("sfi1", "sfi2")}
            running.wait_for("events that are finished", lambda: running.counter("dfm", "events_complete") > 100)
            for _ in range(40):
                name, i = dice.choice(sorted(farm)), dice.randrange(2)
                time.sleep(dice.random() * 0.02)
                os.kill(farm[name][i], signal.SIGKILL)
                os.waitpid(farm[name][i], 0)
                farm[name][i] = forked(where / name, options, False, 0.01)
            before = running.counter("dfm", "events_complete")
            running.wait_for("further events", lambda: running.counter("dfm", "events_complete") > before + 100)
            running.process.terminate()
            complete(running.end({0}))
            for pid in [pid for pids in farm.values() for pid in pids]:
                os.waitpid(pid, 0)
        # The SFI holds all events of the run, which ends although no consumer is left.
        with Running(evb_program, scenario(where, SMALL.replace("count = 2", "count = 1").replace("events = 2000", "events = 200")),
                     {**keys, "sfi.credits": 200, "live.listen": f"{OWN_NET}.1:7404"}) as running:
            running.wait_for("triggers", lambda: running.counter("dfm", "triggers") > 0)
            with evb.live(f"{OWN_NET}.1:7404", mode="all") as live:
                for i, _ in enumerate(live):
                    if i == 99:
                        break
                live._abandon()  # pylint: disable=protected-access
            report = running.end({1})
            # The last of the hundred was not finished.
            assert 0 < report["events_complete"] <= 99 and report["events_lost"] == report["triggers"] - report["events_complete"], report
            assert any("no consumer at live.listen acknowledged them" in reason for reason in report["reasons"]), report["reasons"]


def identify(event):
    return event.l1_id, hashlib.sha256(b"".join(event[s].tobytes() for s in event.sources)).hexdigest()


class Reader(threading.Thread):
    """A loop over live events in Python."""

    def __init__(self, socket, **options):
        super().__init__(daemon=True)
        # Little memory: a slow machine has few events to process after the end.
        self.live = evb.live(socket if isinstance(socket, str) else f"unix:{socket}", ring="1MiB", **options)
        self.found, self.counts, self.error = collections.Counter(), [], None
        self.is_alone = "group" not in options
        self.start()

    def run(self):
        try:
            for e in self.live:
                self.found[identify(e)] += 1
                self.counts.append((e.offered, e.given, e.skipped))
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = error

    def end(self):
        self.join(LIMIT_S)
        assert not self.is_alive() and self.error is None, self.error
        assert self.live.ended and (not self.is_alone or [c[1] for c in self.counts] == list(range(1, len(self.counts) + 1))), self.counts[-3:]
        last = (self.live.offered, self.live.given, self.live.skipped)
        assert last[1] >= self.counts[-1][1] and (not self.is_alone or last[1] == self.counts[-1][1]), (last, self.counts[-1])
        assert last[0] >= self.counts[-1][0] and last[2] >= self.counts[-1][2], (last, self.counts[-1])
        self.live.close()
        return self.found


def need_numpy():
    try:
        evb.live  # pylint: disable=pointless-statement
    except ImportError as error:
        raise Skip(f"{error}; install python3-numpy") from error


def python(evb_program):
    """Loops in Python see in each mode what the files hold, and end with the run."""
    need_numpy()
    with folder() as where, run_with_sockets(evb_program, where) as running:
        readers = [Reader(where / "sfi1", mode="skip"), Reader(where / "sfi1"), Reader(where / "sfi1", mode="skip", copy=False, stride=3),
                   Reader(where / "sfi2", fraction=0.3, seed=5, mode="skip", status="complete")]
        running.wait_for("events of each loop", lambda: all(len(r.counts) > 100 for r in readers))
        closed = evb.live(f"unix:{where}/sfi2", mode="skip")
        running.wait_for("events for one look", lambda: closed._head[8] > 100_000)  # pylint: disable=protected-access
        next(closed)
        closed.close()
        assert next(closed, None) is None, "an event after the end of the connection"
        running.process.terminate()
        report = running.end({0})
        complete(report)
        found = [reader.end() for reader in readers]
        files = content((where / "data").glob("*.data"))
        assert all(max(f.values()) == 1 and not f - files for f in found), "events that are in no file"
        assert of_node(report, "sfi1")["live_events"] >= sum(len(f) for f in found[:3])
        assert all(o == g + s for o, g, s in readers[0].counts) and all(o == 3 * (g + s) - 2 for o, g, s in readers[2].counts)


def monitor(evb_program):
    """The monitor of configs/examples draws the spectra of each source, and the rate of the SFI, until the run ends."""
    need_numpy()
    if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True, check=False).returncode != 0:
        raise Skip("matplotlib is not installed; install python3-matplotlib")
    with folder() as where, run_with_sockets(evb_program, where) as running:
        picture = where / "spectra.png"
        with Consumer(sys.executable, ROOT / "configs" / "examples" / "python" / "monitor.py", f"unix:{where}/sfi1", "--picture", picture,
                      env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "MPLCONFIGDIR": str(where), "HOME": str(where)}) as drawn:
            running.wait_for("live events of sfi1", lambda: running.counter("sfi1", "live_events") >= 100)
            running.process.terminate()
            complete(running.end({0}))
            n, built = map(int, re.fullmatch(r"(\d+) of (\d+) events of 6 boards\n", drawn.end()).groups())
        assert 100 <= n <= built and picture.read_bytes().startswith(b"\x89PNG"), (n, built)
        if to := os.environ.get("EVB_KEEP_PLOT"):
            (pathlib.Path(to) / "live.png").write_bytes(picture.read_bytes())


def process(where, n, fails):
    """Processes n events of the group; `fails`: with an exception at the last one."""
    done = []
    with contextlib.suppress(LookupError), evb.live(f"unix:{where}", mode="skip", group="a", ring="1MiB") as live:
        for event in live:
            done.append(identify(event))
            if len(done) == n:
                if fails:
                    raise LookupError
                break
    return done


def shared(evb_program):
    """Another program of a group gets the event at which a loop failed, and no event that a loop has finished."""
    need_numpy()
    with folder() as where, run_with_sockets(evb_program, where) as running:
        other = Reader(where / "sfi1", mode="skip", group="a")
        done = process(where / "sfi1", 5, False)
        *more, failed = process(where / "sfi1", 5, True)
        running.wait_for("event at which the loop failed", lambda: failed in other.found)
        running.process.terminate()
        complete(running.end({0}))
        found = other.end()
        assert len({*done, *more, failed}) == 10 and max(found.values()) == 1 and not found.keys() & {*done, *more}


def is_held(running, sfi):
    """Whether an SFI has built nothing for a second, and has no credits."""
    free = re.search(rf'^evb_free_credits{{.*"{sfi}".*}} (\d+)$', running.metrics("dfm"), re.M)
    if not free or free[1] != "0":
        return False
    return (json.loads(ask(running.listen.replace("%n", sfi), "/status")[2])["stalled_seconds"] or 0) >= 1


def everything(evb_program):
    """A consumer in mode all that sleeps holds the run, and gets each event of the SFI, with files and without."""
    need_numpy()
    for output in "file", "null":
        # With more credits, the DFM prefers the other SFI while this one has fewer of them left.
        with folder() as where, run_with_sockets(evb_program, where, {"live.all": "yes", "sfi.output": output, "sfi.credits": 1}) as running:
            # It stops as soon as it is connected. Its ring has room for some 10 events.
            pid = forked(where / "sfi1", {"mode": "all", "ring": 65536}, True)
            with contextlib.ExitStack() as stack:
                stack.callback(os.waitpid, pid, 0)
                stack.callback(os.kill, pid, signal.SIGKILL)
                running.wait_for("stop of the SFI", lambda: is_held(running, "sfi1"))
                before = running.counter("sfi1", "events_complete")
                live = Reader(where / "sfi2", mode="all")
            running.wait_for("further events", lambda: running.counter("sfi1", "events_complete") > before + 100 and len(live.counts) > 100)
            # At the end of the run, an SFI does not wait for ever.
            assert live.counts[-1][2] == 0, live.counts[-1]
            running.process.terminate()
            report = running.end({0})
            complete(report)
            found = live.end()
            assert of_node(report, "sfi1")["live_events_skipped"] == 0 and max(found.values()) == 1, report
            assert sum(found.values()) == of_node(report, "sfi2")["live_events"], report
            assert output == "null" or not found - content((where / "data").glob("*.data"))


def forked(where, options, stops, pause_s=0):
    """A process that is connected, unless the SFI refuses it, and receives events until it is killed, with a pause within each;
    `stops`: it sleeps at once."""
    connected, other_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(Exception):
            live = evb.live(where if isinstance(where, str) else f"unix:{where}", **options)
            os.write(other_end, b".")
            if stops:
                os.kill(os.getpid(), signal.SIGSTOP)
            for event in live:
                event[event.sources[0]].sum()
                time.sleep(pause_s)
        os._exit(0)
    os.close(other_end)
    os.read(connected, 1)
    os.close(connected)
    return pid


def connect(running, where):
    """A consumer, as soon as the SFI has seen enough ends of other ones."""
    found = []

    def try_once():
        with contextlib.suppress(ValueError, BlockingIOError):
            found.append(evb.live(f"unix:{where}", mode="skip"))
        return found

    running.wait_for("place for a consumer", try_once)
    return found[0]


def killed(evb_program):
    """Consumers that are killed at random moments, sleep or lie cost the run and other consumers nothing."""
    need_numpy()
    dice = random.Random(7)
    modes = [{}, {"stride": 3}, *({"mode": "skip", **more} for more in ({}, {"copy": False}, {"group": "a"}, {"ring": 65536})),
             {"mode": "all"}, {"mode": "all", "group": "b"}]
    with folder() as where, run_with_sockets(evb_program, where, {"live.all": "yes"}) as running, \
            Live(evb_program, where / "sfi1", "--mode", "skip") as survivor:
        running.wait_for("events of evb live", lambda: running.counter("sfi1", "live_events") > 0)
        # Each is opened after its file.
        running.wait_for("indexes of both SFIs", lambda: len(list((where / "data").glob("*.writing.index"))) == 2)
        sfis = [running.nodes()[name] for name in ("sfi1", "sfi2")]
        before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in sfis]
        asleep = [forked(where / name, {"mode": "skip"}, True) for name in ("sfi1", "sfi2")]
        for i in range(5 * len(modes)):
            pid = forked(where / dice.choice(("sfi1", "sfi2")), modes[i % len(modes)], False)
            time.sleep(dice.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        lying = connect(running, where / "sfi1")
        lying._head[16] = 1 << 40  # pylint: disable=protected-access
        running.wait_for("end of the false consumer", lambda: lying._sleep(None))  # pylint: disable=protected-access
        lying.close()
        for pid in asleep:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        running.wait_for("end of all connections but one",
                         lambda: all(len(os.listdir(f"/proc/{pid}/fd")) <= n for pid, n in zip(sfis, before)))
        running.process.terminate()
        complete(running.end({0}))
        n, offered, skipped = map(int, re.match(r"(\d+) events, .*; (\d+) offered, (\d+) skipped", survivor.end()).groups())
        assert n > 0 and offered == n + skipped, (n, offered, skipped)


def requests(evb_program):  # pylint: disable=unused-argument
    """Numbers of Python and numpy are requested as an SFI reads them, and a loop waits at any descriptor."""
    need_numpy()
    from evb.live_events import _request  # pylint: disable=import-outside-toplevel
    for options, text in (({"fraction": 1e-5}, "fraction=0.000010000"), ({"fraction": numpy.float32(0.25)}, "fraction=0.250000000"),
                          ({"fraction": "1%"}, "fraction=1%"), ({"stride": numpy.int64(7)}, "stride=7"),
                          ({"trigger_type": numpy.uint32(3)}, "trigger-type=3"), ({"trigger_type": "1,4"}, "trigger-type=1,4"),
                          ({"trigger_type": numpy.array([1, 4])}, "trigger-type=1,4"), ({"status": None}, "")):
        assert _request("skip", **options) == f"evb-live 1 mode=skip {text}".strip(), (options, text)


def refused(evb_program):
    """What cannot work is explained, with exit status 2 if another command line helps."""
    with folder() as where:
        for options, status, text in ((["nowhere"], 2, 'invalid address "nowhere"; expected unix:PATH'),
                                      ([f"unix:{where}/none"], 1, "No such file or directory; does an SFI run there, with live.listen?"),
                                      (["unix:x", "--mode", "each"], 2, "mode: invalid value; expected newest, skip or all"),
                                      (["unix:x", "--stride", "2:2"], 2, "offset: invalid value; expected a number below the stride"),
                                      (["unix:x", "--stride", "2", "--offset", "2"], 2, "--offset is now --stride N:K"),
                                      (["unix:x", "--count", "0"], 2, '--count: invalid value "0"; expected 1 or more'),
                                      (["unix:x", "--output", where], 2, "exists; expected the name of a new file")):
            done = subprocess.run([evb_program, "live", *map(str, options)], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == status and text in done.stderr and not done.stdout, (options, done)


def build_example(evb_program, where):
    """Builds the example of libevb-live(3) with what is installed. Returns the program, and its environment."""
    need_program("cc", "pkg-config", "readelf")
    installed = Installed(evb_program, where / "root")
    libraries, sanitizers = installed.path(installed.options["libdir"]), installed.options["b_sanitize"]
    package = sh("pkg-config", "--cflags", "--libs", "evb-live",
                 env={**os.environ, "PKG_CONFIG_PATH": f"{libraries}/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(installed.root)}).stdout.split()
    strict, header = ("-Wall", "-Wextra", "-Wpedantic", "-Werror"), installed.path(installed.options["includedir"]) / "evb" / "live.h"
    sh("cc", "-std=c99", *strict, *(() if sanitizers == "none" else (f"-fsanitize={sanitizers}",)), "-o", str(where / "monitor"),
       str(installed.path(installed.options["datadir"]) / "evb" / "examples" / "c" / "monitor.c"), *package)
    if shutil.which("c++"):
        sh("c++", *strict, "-fsyntax-only", "-x", "c++", str(header))
    if sanitizers == "none":
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", sh("readelf", "-d", str(libraries / "libevb-live.so.1")).stdout)
        assert not [name for name in needed if not re.match(r"lib[cm]\.|ld-linux", name)], needed
    return where / "monitor", {**os.environ, "LD_LIBRARY_PATH": str(libraries)}


def library(evb_program):
    """A program with libevb-live prints what the files hold, and ends with the run."""
    need_numpy()
    with folder() as where:
        program, env = build_example(evb_program, where)
        with run_with_sockets(evb_program, where) as running, Consumer(program, f"unix:{where}/sfi1", env=env) as monitor:
            running.wait_for("live events of sfi1", lambda: running.counter("sfi1", "live_events") >= 3)
            running.process.terminate()
            complete(running.end({0}))
            found = collections.defaultdict(dict)
            for line in monitor.end().splitlines():
                number, source, mean = re.fullmatch(r"event (\d+) source (0x7\d+) mean ([\d.]+)", line).groups()
                found[int(number)][int(source, 0)] = mean
        run = evb.open(where / "data")
        assert len(found) >= 3
        for number, means in found.items():
            event = run.find(number=number)
            assert means == {source: f"{event[source].mean():.1f}" for source in event.sources}, (number, means)
        refused = subprocess.run([program, f"unix:{where}/none"], env=env, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "does an SFI run there" in refused.stderr, refused


def output(evb_program):
    """In mode all, an event is in the file before it counts as finished, so that a consumer that is killed loses none."""
    with folder() as where, run_with_sockets(evb_program, where, {"live.all": "yes"}) as running:
        with Live(evb_program, where / "sfi1", "--mode", "all", "--json", "--output", where / "live.data") as killed_one:
            lines = [killed_one.process.stdout.readline() for _ in range(20)]
            killed_one.process.kill()
            lines += killed_one.process.stdout.read().splitlines(keepends=True)
            killed_one.process.wait(LIMIT_S)
        finished = sum(json.loads(line)["bytes"] for line in lines if line.endswith("\n"))
        assert (where / "live.data._0001.writing").stat().st_size > finished > 0
        running.process.terminate()
        complete(running.end({0}))


main({"command": command, "library": library, "python": python, "monitor": monitor, "acknowledged": acknowledged, "remote": remote, "remote_command": remote_command, "shared": shared, "everything": everything, "killed": killed, "requests": requests, "refused": refused, "output": output})
