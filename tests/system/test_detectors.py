#!/usr/bin/env python3
"""docs/detectors.md, followed as a reader would: its scenarios hold, and its example leads from boards to a plot.

    test_detectors.py EVB [CASE...]
"""
import bisect
import contextlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys

from harness import LIMIT_S, OWN_NET, ROOT, Skip, folder, main, need_root

PAGE = (ROOT / "docs" / "detectors.md").read_text()
EXAMPLE = PAGE[PAGE.index("\n## From boards to a plot\n"):].split("\n## ")[1]
# A process that gets no processor for a while loses no fragment.
PATIENT = "--set sfi.timeout=30s --set dfm.node-timeout=30s "
BOARDS = ("127.69.86.11", "127.69.86.12")
# Stands in for python3: runs the script as printed, and notes the datagrams that it sends and what it plots.
RECORDER = """
import json, runpy, socket, sys

sys.argv = sys.argv[1:]
noted = {"sent": [], "histograms": [], "points": []}


class Noting(socket.socket):
    def sendto(self, data, to):
        noted["sent"].append((to[0], data.hex()))
        return super().sendto(data, to)


def note_plots():
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib.axes import Axes
    hist, plot = Axes.hist, Axes.plot

    def noting_hist(self, *arguments, **options):
        counts, edges, patches = hist(self, *arguments, **options)
        noted["histograms"].append([counts.tolist(), edges.tolist()])
        return counts, edges, patches

    def noting_plot(self, x, y, *arguments, **options):
        noted["points"] += zip(x, y)
        return plot(self, x, y, *arguments, **options)

    Axes.hist, Axes.plot = noting_hist, noting_plot


if sys.argv[0] == "plot.py":
    note_plots()
else:
    socket.socket = Noting
runpy.run_path(sys.argv[0], run_name="__main__")
with open("noted-" + sys.argv[0] + ".json", "w") as to:
    json.dump(noted, to)
"""


def blocks(text):
    """Returns language and content of each code block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)


def file_blocks():
    """Returns the files of the example by name: each begins with a comment that names it."""
    named = ((re.match(r"# (\S+): ", body), body) for language, body in blocks(EXAMPLE) if language)
    return {name[1]: body for name, body in named if name}


def commands():
    """Returns the lines to type, and those that the reader should see."""
    lines = [line for language, body in blocks(EXAMPLE) if not language for line in body.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")], [line for line in lines if not line.startswith("$ ")]


def interpreter():
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", "import matplotlib"], capture_output=True, timeout=LIMIT_S).returncode == 0:
                return python
    raise Skip("matplotlib is not installed; on Debian: apt-get install python3-matplotlib")


def prepare(evb, where, python):
    for name, body in file_blocks().items():
        if name == "beam.conf":
            body = body.replace("[sfi]\n", "[dfm]\nnode-timeout = 30s\n[sfi]\ntimeout = 30s\n")
        # Only root can have a network of its own, in which the addresses are free.
        (where / name).write_text(body if os.geteuid() == 0 else body.replace("127.69.86", OWN_NET))
    for folder_ in ("build", "bin"):
        (where / folder_).mkdir()
    (where / "build" / "evb").symlink_to(evb)
    (where / "python").symlink_to(ROOT / "python")
    (where / "recorder.py").write_text(RECORDER)
    (where / "bin" / "python3").write_text(f'#!/bin/sh\nexec {python} -B recorder.py "$@"\n')
    (where / "bin" / "python3").chmod(0o755)


def in_shell(lines):
    """Returns the command that types the lines into a shell with job control, in a network of its own if it may have one."""
    own = ["unshare", "--net"] if os.geteuid() == 0 else []
    return [*own, "bash", "-m", "-c", "\n".join((["ip link set lo up"] if own else []) + lines)]


def surroundings(where):
    return {"cwd": where, "text": True, "env": {**os.environ, "PATH": f"{where}/bin:{os.environ['PATH']}"}}


def shell(where, lines):
    """Returns the finished process."""
    return subprocess.run(in_shell(lines), capture_output=True, timeout=LIMIT_S, **surroundings(where))


def noted(where, script):
    return json.loads((where / f"noted-{script}.json").read_text())


def sent_heights(sent):
    """Returns the pulse heights of both boards for each number that both sent, from the datagrams alone."""
    heights = {}
    for to, data in sent:
        data = bytes.fromhex(data)
        if to.rpartition(".")[2] in ("11", "12"):
            length, number, _, *samples = struct.unpack("<III16H", data)
            assert length == len(data) - 4 and (number, to) not in heights
            heights[number, to] = max(samples) - min(samples)
    ros1, ros2 = sorted({to for _, to in heights})
    return [(heights[number, ros1], heights[number, ros2]) for number, to in heights if to == ros1]


def check_histogram(counts, edges, values):
    expected = [0] * (len(edges) - 1)
    for value in values:
        expected[min(bisect.bisect_right(edges, value), len(expected)) - 1] += 1
    assert counts == expected, (counts, expected)


def plot(evb):
    """The example as printed: files, commands, and what they show. The plot has each event once, as it was sent."""
    python = interpreter()
    with folder() as where:
        prepare(evb, where, python)
        typed, expected = commands()
        done = shell(where, typed)
        assert [line for line in expected if line in done.stdout.splitlines()] == expected, (expected, done)
        report = json.loads((where / "run.json").read_text())
        events = int(re.search(r"boards\.py (\d+)", "\n".join(typed))[1])
        assert report["events_complete"] == events and report["reasons"] == [], (report, done.stderr)
        assert report["events_partial"] == report["events_lost"] == 0 and report["balanced"], report
        assert len(report["files"]) > 1, "the example should show a run of several files"
        pairs, drawn = sent_heights(noted(where, "boards.py")["sent"]), noted(where, "plot.py")
        assert len(pairs) == events and sorted(map(tuple, drawn["points"])) == sorted(pairs)
        ((counts, edges),) = drawn["histograms"]
        for board in (0, 1):
            check_histogram(counts[board], edges, [pair[board] for pair in pairs])
        picture = (where / "beam.png").read_bytes()
        assert picture.startswith(b"\x89PNG"), "no plot"
        if to := os.environ.get("EVB_KEEP_PLOT"):
            pathlib.Path(to).write_bytes(picture)


def waits(evb):
    """Without a run, the boards say whom they wait for."""
    with folder() as where:
        prepare(evb, where, sys.executable)
        with contextlib.ExitStack() as undo:
            boards = undo.enter_context(subprocess.Popen(in_shell(["export PYTHONPATH=python", "exec python3 boards.py 5000"]), **surroundings(where), stderr=subprocess.PIPE))
            undo.callback(boards.kill)
            assert any("waiting for the DFM" in line for line in boards.stderr), "the boards ended without a word"
            assert boards.poll() is None


def run_scenario(evb, which, addresses, lines):
    """Returns the report of a run with a scenario of the page, at these addresses of a network, and with 500 triggers."""
    need_root()
    before = PAGE[:PAGE.index("\n## From boards")]
    scenario = [body for language, body in blocks(before) if language == "ini" and "[node dfm]" in body][which]
    with folder() as where:
        prepare(evb, where, sys.executable)
        (where / "desk.conf").write_text(scenario.replace("directory = /data", f"directory = {where}"))
        done = shell(where, [
            "ip link add desk0 type veth peer name desk1 && ip link set desk0 up && ip link set desk1 up",
            *(f"ip address add {address}/24 dev desk0" for address in addresses),
            "build/evb run desk.conf --set trigger.events=500 " + PATIENT + "--json run.json &",
            "run=$!",
            *lines,
            "wait $run"])
        assert done.returncode == 0, done
        return json.loads((where / "run.json").read_text())


def desk(evb):
    """The first scenario: boards and a trigger box at addresses of a network, the veto is dead and may be."""
    report = run_scenario(evb, 0, ("192.168.1.10", "192.168.1.20"), [
        "build/evb check desk.conf --node veto >/dev/null || exit 3",
        "build/evb frontend --boards udp:192.168.1.10:26901,udp:192.168.1.10:26902 --fault dead=2 --count 500 "
        "--trigger-to 192.168.1.10:26910 --busy-from 192.168.1.20:26911"])
    assert report["events_complete"] == report["triggers"] == 500 and report["fragments"]["absent"] == 500, report


def without_trigger(evb):
    """The scenario with frames as triggers: the boards count, and there is no trigger box."""
    report = run_scenario(evb, 1, ("192.168.1.21", "192.168.1.22"), [
        "build/evb frontend --boards tcp:192.168.1.21:9000,tcp:192.168.1.22:9000 --count 500"])
    assert report["events_complete"] == report["triggers"] == 500 == report["triggers_offered"], report


main({"plot": plot, "waits": waits, "desk": desk, "without-trigger": without_trigger})
