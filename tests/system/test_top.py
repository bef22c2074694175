#!/usr/bin/env python3
"""evb top: its screen in terminals of several sizes, and what it prints without one.

    test_top.py EVB [CASE...]
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import time

from harness import LIMIT_S, SMALL, Running, ask, folder, main, scenario, settings
from network import wait_until
from terminal import Terminal

NODES = ["dfm", *(f"ros{i}" for i in range(1, 7)), "sfi1", "sfi2"]
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|38;5;\d+)m")


@contextlib.contextmanager
def running(evb, keys=None):
    """A run with few triggers, so that counts stay exact; yields it, the words of evb top, and a function that asks a node."""
    with folder() as where:
        path, listen = scenario(where, SMALL), {"metrics.listen": f"unix:{where}/%n.sock"}
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "20Hz", "sfi.output": "file", "sfi.directory": where,
                                 **listen, **(keys or {})}) as run:
            run.wait_running()
            run.wait_nodes(len(NODES))
            yield run, [evb, "top", "--scenario", str(path), *settings(listen)], \
                lambda node: json.loads(ask(f"unix:{where}/{node}.sock", "/status")[2])


def stop(run, expect=(0,)):
    run.signal()
    run.end(expect=expect)


def end_of_looks(top):
    """The end after a last look, to which all nodes of a busy machine may answer too late."""
    if top.end(0, 1) == 1:
        top.wait_text("none of 9 nodes answers")


def rows(lines):
    """The nodes of a screen, by name: the fields of their lines."""
    head = next(i for i, line in enumerate(lines) if line.startswith("NODE"))
    found = {}
    for line in lines[head + 1:]:
        if line and not line.startswith("q quit"):
            fields = line.split()
            assert fields[0] not in found, lines
            found[fields[0]] = line
    return found


def check(lines, width, height, nodes=None):
    """Each line of a whole screen is what it should be, so none was wrapped or left over."""
    text = "\n".join(lines)
    assert len(lines) == height and all(len(line) <= width for line in lines), text
    assert re.match(r"evb top: test, run \d+, \w+; 9 nodes.*\d\d:\d\d:\d\d$", lines[0]), text
    head = next(i for i, line in enumerate(lines) if line.startswith("NODE"))
    for line in lines[1:head]:
        assert re.match(r"Triggers |Waiting |Busy |Open |Data |Complete |Rejected |Latency |Drops: |late |corrupt |socket |Disk of |Discarded: |"
                        r"\w+: (no answer|stalled|no credit)|.*more problems?$|", line), line
    for name, line in rows(lines).items():
        assert name in NODES and re.match(rf"{name} +((dfm|ros|sfi) +)?[a-z_]+ +(-|[0-9])", line), line
    assert nodes is None or set(rows(lines)) == set(nodes), text
    assert lines[-1].startswith("q quit"), text
    assert all(c.isascii() or c in "█░" for c in text), text


def rate_of(line):
    found = re.search(r" ([0-9.]+) Hz", line)
    return float(found[1]) if found else 0


def whole(terminal, also=lambda lines: True):
    """A screen that is not half drawn: all of it is what it should be."""
    def is_whole(lines):
        try:
            check(lines, terminal.width, terminal.height)
        except (AssertionError, StopIteration):
            return False
        return also(lines)

    return terminal.wait("whole screen", is_whole)


def whole_with(terminal, pattern):
    """A whole screen that has the text. One of its lines may be there before the others."""
    return whole(terminal, lambda lines: any(re.search(pattern, line) for line in lines))


def rounded(number):
    """A count as the screen shows it."""
    return float(f"{number:.3g}")


def shown(lines, name):
    found = re.search(rf"\b{name} ([0-9.]+)(?: ([kM]))?(?= |$)", "\n".join(lines), re.M)
    assert found, lines
    return rounded(float(found[1]) * {None: 1, "k": 1e3, "M": 1e6}[found[2]])


def figures(evb, width, height):
    """The figures of the screen are those of /status, before and after it was drawn."""
    with running(evb) as (run, words, status):
        with Terminal([*words, "--interval", "200ms"], width, height) as top:
            complete = rounded(status("dfm")["counts"]["events_complete"])
            # Nodes know their rates after a second. At 20 Hz, the rates of all nodes are of that order.
            lines = whole(top, lambda lines: shown(lines, "Complete") > complete and
                          all(0 < rate_of(line) < 200 and " running " in line for line in rows(lines).values()))
            after = status("dfm")
            check(lines, width, height, NODES)
            assert shown(lines, "Complete") <= rounded(after["counts"]["events_complete"])
            assert shown(lines, "Partial") == shown(lines, "Lost") == 0
            assert f"run {after['run']}, running" in lines[0], lines
            disk = status("sfi1")["output_size_bytes"]
            assert re.search(rf"Disk of sfi[12]: .* of {disk / 10 ** (3 * ((len(str(disk)) - 1) // 3)):.3g} .B free", "\n".join(lines)), lines
            assert re.search(r"sfi1 .* [█░]{6} +\d+%", rows(lines)["sfi1"]), lines
            credits = f"{status('sfi1')['credits']}"
            assert re.search(rf" \d+/{credits} ", rows(lines)["sfi1"]), lines
            assert ("NOTE" in "\n".join(lines)) == (width == 200), lines
            top.type("q")
            top.end()
        stop(run)


def resized(evb):
    """At each size the screen is whole: at once, and after many changes."""
    with running(evb) as (run, words, _):
        with Terminal(words, 80, 24) as top:
            whole(top)
            for width, height in ((200, 60), (80, 24), (60, 20), (132, 43), (80, 24)):
                top.resize(width, height)
                lines = whole(top)
                check(lines, width, height)
            for width, height in ((20, 5), (1, 1), (3, 60), (500, 2), (10, 10)):
                top.resize(width, height)
                top.wait("first line", lambda lines, w=width: lines[0].startswith("evb top: test"[:w]))
            # A burst, as a user who drags a corner makes.
            for width in range(40, 120):
                top.resize(width, 30)
            check(whole(top), 119, 30, NODES)
            top.type("q")
            top.end()
        stop(run)


def keys(evb):
    """Each key does what the help says."""
    with running(evb) as (run, words, _):
        with Terminal([*words, "--sort", "rate"], 80, 24) as top:
            assert "RATEv" in "\n".join(whole_with(top, "s sort: rate"))
            top.type("s")
            assert "DATAv" in "\n".join(whole_with(top, "s sort: data"))
            top.type("<")
            whole_with(top, "s sort: rate")
            top.type(">>")
            whole_with(top, "s sort: buffer")
            top.type("r")
            whole_with(top, r"BUFFER\^")
            top.type("<<<<<<r")
            whole(top, lambda lines: "s sort: node" in lines[-1] and list(rows(lines)) == NODES)
            top.type("r")
            whole(top, lambda lines: list(rows(lines)) == NODES[::-1])
            top.type("r")
            top.type("h")
            top.wait_text("PgUp, PgDn")
            top.type("s")
            whole_with(top, "s sort: node")
            top.type(" ")
            lines = whole_with(top, "9 nodes; display paused")
            complete = shown(lines, "Complete")
            # The clock goes on, and with it the screen is drawn.
            for _ in range(3):
                lines = whole(top, lambda now, before=lines: now[0][-8:] != before[0][-8:])
                assert shown(lines, "Complete") == complete, lines
            top.type(" ")
            whole(top, lambda now: "paused" not in now[0] and shown(now, "Complete") > complete)
            top.resize(80, 11)
            assert "dfm" in rows(whole_with(top, "9 nodes, [1-9] hidden"))
            top.type("\x1b[6~")
            whole(top, lambda now: "dfm" not in rows(now))
            top.type("\x1bOF")
            whole(top, lambda now: "sfi2" in rows(now))
            for key in ("\x1bOA", "\x1bOB", "\x1bOH"):
                top.type(key)
            whole(top, lambda now: "dfm" in rows(now))
            top.type("q")
            top.end()
        stop(run)


def ends(evb):
    """However it ends, the terminal is as before."""
    with running(evb) as (run, words, _):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with Terminal(words, 80, 24) as top:
                whole(top)
                top.process.send_signal(number)
                top.end()
        for key in ("\x03", "q"):
            with Terminal(words, 80, 24) as top:
                whole(top)
                top.type(key)
                top.end()
        with Terminal([*words, "--count", "2"], 80, 24) as top:
            end_of_looks(top)
        # The window is closed: there is no terminal to restore, but an end.
        with Terminal(words, 80, 24) as top:
            whole(top)
            top.hang_up()
            assert top.process.wait(timeout=LIMIT_S) in (0, 1)
        stop(run)


def problems(evb):
    """A node that is stopped or gone shows so, and delays no other; a stalled run names its reason."""
    # The DFM does not give ros3 up while it is stopped, however long this test takes for its looks.
    with running(evb, {"dfm.node-timeout": "300s", "sfi.timeout": "300s", "run.stop-timeout": "1s"}) as (run, words, status):
        # Wide enough for each reason on one line.
        with Terminal(words, 160, 24) as top:
            whole(top)
            os.kill(run.nodes()["ros3"], signal.SIGSTOP)
            top.wait_text(r"^ros3 +ros +no_answer ")
            top.wait_text("ros3: no answer from unix:.*ros3.sock: Connection timed out")
            top.wait_text("9 nodes, 1 without answer")
            # Figures of others go on.
            seen = status("sfi1")["fragments"]["received"]
            for _ in range(2):
                clock = top.lines()[0][-8:]
                top.wait("the next second", lambda lines, c=clock: lines[0].startswith("evb top") and lines[0][-8:] != c)
            assert status("sfi1")["fragments"]["received"] >= seen
            # No event is complete without ros3. The DFM names it after 5 s.
            top.wait_text(r"^dfm +dfm +stalled ")
            lines = whole_with(top, r"^dfm: stalled for \d+ s: .*ros3")
            assert not any("0 Hz" not in line for line in lines if re.match("dfm +dfm ", line)), lines
            top.resize(300, 60)
            top.wait_text(r"^dfm +dfm +stalled .* stalled for \d+ s: .*ros3")
            os.kill(run.nodes()["ros3"], signal.SIGCONT)
            top.wait_text(r"^ros3 +ros +running ")
            top.wait_text(r"^dfm +dfm +running ")
            os.kill(run.nodes()["ros3"], signal.SIGKILL)
            top.wait_text(r"^ros3 +ros +no_answer .*Connection refused")
            top.type("q")
            top.end()
        run.signal()
        run.process.communicate(timeout=LIMIT_S)


def plain(evb):
    """Into a pipe: a head, and a line for each node at each look."""
    with running(evb) as (run, words, status):
        before = status("dfm")["counts"]["events_complete"]

        def looks(*options):
            """What evb top prints if all nodes answer in time; "": one was late, as all may be on a busy machine."""
            done = subprocess.run([*words, "--interval", "1s", *options], capture_output=True, text=True, timeout=LIMIT_S)
            if done.returncode == 1 and "none of 9 nodes answers" in done.stderr:
                return ""
            assert done.returncode == 0 and done.stderr == "", done
            return "" if re.search(r' (late|no_answer|ready) |"ok":false', done.stdout) else done.stdout

        text = wait_until("looks at nodes that all answer", lambda: looks("--count", "3"))
        head, *lines = text.splitlines()
        names = head.split()
        assert names[:4] == ["TIME", "NODE", "ROLE", "STATE"] and names[-1] == "NOTE", head
        assert len(lines) == 3 * len(NODES), text
        assert "\x1b" not in text and text.isascii(), text
        times = []
        for i, line in enumerate(lines):
            found = dict(zip(names, line.split(None, len(names) - 1)))
            assert found["NODE"] == NODES[i % 9] and found["STATE"] == "running", line
            assert float(found["RATE_HZ"]) < 200 and (found["BUFFER_PERCENT"] == "-") == (i % 9 == 0), line
            times.append(time.mktime(time.strptime(found["TIME"], "%Y-%m-%dT%H:%M:%S")))
        assert times == sorted(times) and abs(times[-1] - time.time()) < LIMIT_S, times
        after = status("dfm")["counts"]["events_complete"]
        # The same as JSON, one object for each look.
        text = wait_until("looks at nodes that all answer", lambda: looks("--count", "2", "--json"))
        objects = [json.loads(line) for line in text.splitlines()]
        assert len(objects) == 2 and objects[0]["time"] < objects[1]["time"], text
        for o in objects:
            assert o["ok"] is True and [node["node"] for node in o["nodes"]] == NODES, o
            assert o["nodes"][0]["counts"]["events_complete"] >= after >= before and 0 <= o["nodes"][0]["age_seconds"] < LIMIT_S, o
        # A reader that leaves.
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as top:
            top.stdout.readline()
            top.stdout.close()
            assert top.wait(timeout=LIMIT_S) == 1 and b"standard output" in top.stderr.read()
        stop(run)


def without_screen(evb):
    """Terminals that cannot place text get lines, without a control character."""
    with running(evb) as (run, words, _):
        for term in ("dumb", "", "no-such-terminal"):
            with Terminal([*words, "--count", "1"], 250, 24, env={"TERM": term}) as top:
                end_of_looks(top)
                top.wait_text("^2.* sfi2 +sfi +(running|late|no_answer) ")
                assert b"\x1b" not in top.raw and top.raw.startswith(b"TIME"), top.raw
        with Terminal([*words, "--count", "1", "--json"], 250, 60) as top:
            end_of_looks(top)
            assert b"\x1b" not in top.raw, top.raw
        stop(run)


def colours(evb):
    """NO_COLOR, and a locale without UTF-8, are obeyed."""
    with running(evb) as (run, words, _):
        for env, has_colour in (({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)):
            with Terminal(words, 80, 24, env=env) as top:
                # A node whose answer is late has no bar.
                whole_with(top, "░")
                top.type("q")
                top.end()
                assert bool(COLOUR.search(top.raw)) == has_colour, (env, top.raw)
        with Terminal(words, 80, 24, env={"LC_ALL": "C"}) as top:
            whole_with(top, r"sfi1 .* [#.]{6} +\d+%")
            top.type("q")
            top.end()
            assert top.raw.isascii(), top.raw
        # Keys come from another place than the terminal.
        with Terminal(["sh", "-c", 'exec "$@" </dev/null', "sh", *words], 80, 24) as top:
            whole(top)
            top.resize(100, 30)
            whole(top)
            top.type("\x03")
            top.end()
        stop(run)


def mistakes(evb):
    """A wrong command line or scenario has exit status 2, and nodes that do not answer 1."""
    def refused(words, status, *texts):
        done = subprocess.run([evb, "top", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == status and done.stderr.count("\n") == 1, done
        assert all(text in done.stderr for text in texts), done.stderr

    with folder() as where:
        path = str(scenario(where))
        good = ["--scenario", path, "--set", f"metrics.listen=unix:{where}/%n"]
        refused([], 2, "--config FILE is required")
        refused(["--scenario", path], 2, "metrics.listen", "expected :PORT")
        refused([*good, "--sort", "beauty"], 2, '--sort: "beauty" is not a column; expected node, role, state')
        for interval in ("fast", "99ms", "2h", "0"):
            refused([*good, "--interval", interval], 2, f'--interval: invalid value "{interval}"; expected a time from 100ms to 1h')
        for count in ("0", "-1", "many"):
            refused([*good, "--count", count], 2, f'--count: invalid value "{count}"; expected a number')
        refused([*good, "--count", "1", "--json", f"{where}/none/x"], 2, "none/x")
        refused([*good, "--count", "1"], 1, "none of 9 nodes answers; dfm: no answer from unix:", "No such file or directory")


main({
    "small": lambda evb: figures(evb, 80, 24),
    "large": lambda evb: figures(evb, 200, 60),
    "resized": resized,
    "keys": keys,
    "ends": ends,
    "problems": problems,
    "plain": plain,
    "without-screen": without_screen,
    "colours": colours,
    "mistakes": mistakes,
})
