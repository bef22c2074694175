#!/usr/bin/env python3
"""Tests evb lab: runs, results files, interruption, reports, and removal of leftovers.

    test_lab.py EVB [CASE...]
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from harness import LIMIT_S, Skip, folder, main, need_root
from network import sh, wait_until


# For tests of files and processes, which other work on this machine must not fail.
MADE_ONCE = ("--force",)
CLONE_NEWNS = 0x00020000


def lists(evb):
    """The list contains all published measurements, and what each needs."""
    measurements = json.loads(sh(evb, "lab", "list", "--json").stdout)["measurements"]
    ids = [m["id"] for m in measurements]
    wanted = [f"A{i}" for i in range(1, 9)] + [f"B{i}" for i in range(1, 7)] + [f"C{i}" for i in range(1, 10)]
    assert set(wanted) <= set(ids) and len(ids) == len(set(ids)), ids
    assert [i for i in ids if i[0] == "E"] == [f"E{i}" for i in range(1, 15)], ids
    text = sh(evb, "lab", "list").stdout
    assert all(f"{i} " in text for i in ids)
    assert [f"           needs: {m['needs']}" for m in measurements] == re.findall("^ +needs: .*$", text, re.M), text
    needs = {m["id"]: [m["dfm"], m["ros"], m["sfi"]] for m in measurements}
    one = {"least": 1, "most": 1}
    assert needs["C10"] == [1, {"least": 2, "most": 24}, one] and needs["D1"] == [None, None, None], needs


def mistakes(evb):
    """Wrong arguments have exit status 2, and a missing privilege has 77."""
    for words, status, says in (
        (("run", "Z9"), 2, "Z9"), (("run",), 2, "missing"), (("fly",), 2, 'unknown verb "fly"; expected list, run, report or clean'),
        (("report", "/nonexistent"), 2, "nonexistent"), ((), 2, "lab VERB"),
    ):
        done = sh(evb, "lab", *words, check=False)
        assert done.returncode == status and says in done.stderr, (words, done)
    if os.geteuid() == 0:
        done = sh("setpriv", "--reuid=65534", "--clear-groups", evb, "lab", "run", "A2", check=False)
        assert done.returncode == 77 and "root" in done.stderr, done


def background(evb, measurements, path, *options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more):
    """Starts a run that a test disturbs."""
    return subprocess.Popen([evb, "lab", "run", measurements, *options, "--results", str(path)],
                            stdout=stdout, stderr=stderr, **more)


def points(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def resume(evb):
    """A repeated command measures only the points that the results file lacks. What is no result of this catalogue is named, and
    stays; a truncated last line does not damage the next point."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        command = (evb, "lab", "run", "A2,B1,C9", "--quick", *MADE_ONCE, "--results", str(path))
        done = sh(*command, "--json", check=False)
        assert done.stdout, done
        verdicts = {v["id"]: v["verdict"] for v in json.loads(done.stdout)["verdicts"]}
        assert set(verdicts) == {"A2", "B1", "C9"} and "unknown" not in verdicts.values(), done
        first = points(path)
        keys = {"id", "series", "x", "settings", "time", "kernel", "processor", "processors", "version"}
        assert all(keys <= set(p) for p in first)
        a2, others = ([p for p in first if (p["id"] == "A2") == wanted] for wanted in (True, False))
        lacking = {key: value for key, value in a2[1].items() if key != "loss_percent"}
        without_panel = dict(a2[0], id="C7", whole_bytes_per_second=1e8)
        lines = [*strange(a2[0]), *map(json.dumps, (dict(a2[0], id="Z1"), lacking, without_panel, dict(without_panel, panel="7x5"), *others)),
                 json.dumps(a2[2])[:-20]]
        path.write_text("\n".join(lines))
        done = sh(*command, check=False)
        assert "not a result" in done.stderr and f"{path}: skipped 4 points of another version" in done.stderr, done.stderr
        again = path.read_text().splitlines()
        assert again[:len(lines)] == lines, again
        again = [json.loads(line) for line in again[len(lines):]]
        assert [(p["id"], p["series"], p["x"]) for p in again] == [(p["id"], p["series"], p["x"]) for p in a2]
        left_disturbed(evb, path, again)


def strange(result):
    """Lines that are no results."""
    return ("", "7", "[]", "{}", "null", "\x00\x00", "{" * 5000, "x" * 200000, json.dumps({"id": "B1", "series": "memcpy"}),
            json.dumps(result | {"x": "10"}), json.dumps(result | {"settings": None}), json.dumps(result | {"panel": 5}),
            json.dumps({k: v for k, v in result.items() if k != "processor"}))


def left_disturbed(evb, path, made):
    """Disturbed points of an earlier run count until they are made undisturbed."""
    path.write_text("".join(json.dumps(dict(p, disturbed="by the test")) + "\n" for p in made))
    before = points(path)
    # Without this capability, no point can be made.
    done = sh("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", evb, "lab", "run", "A2", "--quick", "--results", str(path), "--json",
              check=False)
    said = json.loads(done.stdout)
    assert done.returncode == 1 and points(path) == before and "points failed" in done.stderr, done
    assert said["measured_points"] == 0 and said["disturbed_points"] == len(before) > 0, said


def interrupted(evb):
    """A signal ends the command at once, and discards the unfinished point."""
    need_root()
    for measurement, number in (("C2", signal.SIGINT), ("B4", signal.SIGTERM)):
        with folder() as where:
            path = where / "results.jsonl"
            with background(evb, measurement, path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                wait_until("first point", lambda: path.exists() and path.read_text().count("\n") > 0)
                # It makes no further point meanwhile.
                running.send_signal(signal.SIGSTOP)
                made = len(points(path))
                running.send_signal(number)
                running.send_signal(signal.SIGCONT)
                out, err = running.communicate(timeout=LIMIT_S)
            assert running.returncode == 1 and out == "", (running.returncode, out)
            assert "the same command continues" in err, err
            assert made <= len(points(path)) <= made + 1
            assert not any(f"evb-{running.pid}-" in n for n in os.listdir("/run/netns"))


# Of a result, what says where and how it was made.
MADE = ("time", "kernel", "processor", "processors", "version", "repeats", "disturbed", "stolen_share", "others_share", "waiting_share",
        "wait_mean_us", "timer_late_p99_us", "timer_late_max_us")


def with_gaps(base):
    """Results with a missing point or an unknown figure in each measurement."""
    b1 = [base | {"id": "B1", "series": "memcpy", "x": x, "settings": "seconds=0.2", "mbyte_per_s": 9000}
          for x in (64, 1024, 262144, 4194304, 67108864)]
    rates = (("20 Mbit/s", 18e6), ("40 Mbit/s", 40e6), ("50 Mbit/s", 45e6), ("auto", 110e6))
    c5 = [base | {"id": "C5", "series": series, "x": x, "settings": "a whole run",
                  "whole_bytes_per_second": value, "switch_packets": None,
                  "events_lost": 0, "events_partial": 0, "source_packets": 0}
          for series, value in rates for x in (1024, 2048, 5120, 8192, 14336, 16384, 32768)]
    c5[3]["whole_bytes_per_second"] = None
    c4 = [dict(p, id="C4", series=series, complete_share=0.5, port_share=0.5)
          for series in ("push", "pull") for p in c5[7:14] if (series, p["x"]) != ("pull", 5120)]
    return [*b1, *c4, *c5, base | {"id": "A7", "series": "no QoS", "x": 1448, "settings": "s", "gap_p50_us": None}]


def paths_beside(evb, base):
    """All data paths side by side, of which the kernel refuses one."""
    measured = json.loads(sh(evb, "bench", "paths", "--rows", "E8", "--form", "0", "--wire", "udp", "--source", "cache", "--size", "1MiB",
                             "--duration", "100ms", "--json").stdout)["paths"][0]
    return [measured | base | {"id": "E14", "x": x, "series": series, "panel": panel, "settings": "s", "row": f"E{x}", "calls_per_packet": x / 4,
                               "processor_seconds_per_gb": None if x == 13 else 0.1 * x, "refused": "io_uring_setup: no" if x == 13 else None}
            for x in range(1, 14) for series in ("UDP", "TCP", "sender alone") for panel in ("page cache", "disk")]


def report(evb):
    """The page has a plot of each measurement, which is also a file. A missing point or unknown figure is a gap in the plot and prevents
    a verdict; it never counts as 0. Lines that are no results do not matter."""
    need_root()
    with folder() as where:
        path, out = where / "results.jsonl", where / "out"
        judged = sh(evb, "lab", "run", "A2", "--quick", *MADE_ONCE, "--results", str(path), check=False)
        verdict = re.search("^A2 +(agrees|better|differs) ", judged.stdout, re.M)
        assert verdict, judged
        made = points(path)
        base = {key: made[0].get(key) for key in MADE}
        path.write_text("\n".join([*strange(made[0]), *map(json.dumps, (*made, *with_gaps(base), *paths_beside(evb, base)))]) + "\n")
        done = sh(evb, "lab", "report", str(path), "--output", str(out), check=False)
        if done.returncode == 77:
            raise Skip("matplotlib is not installed")
        assert done.returncode == 0, done
        page = (out / "report.html").read_text()
        drawn = ("A2", "A7", "B1", "C4", "C5", "E14")
        assert page.count("data:image/png;base64,") == len(drawn) and "src='http" not in page
        for name in drawn:
            for kind in ("png", "svg"):
                assert (out / f"{name}.{kind}").stat().st_size > 5000, name
        check_page(page, verdict[1])
        check_gaps(out, page)


def check_page(page, verdict):
    row = re.search(r"<tr><td><a href='#A2'>.*?</tr>", page)[0]
    assert f"<b>{verdict}</b>" in row and "not measured" in page, (verdict, row)
    # Results come first, and what was not measured is folded.
    results, _, folded = page.partition("<details><summary>")
    assert "</h1><p><b>6 measured: " in results and "<td>A5</td>" not in results and re.match(r"\d+ not measured: .*?<td>A5</td>.*?</table></details>", folded), page[:2000]
    sections = dict(re.findall("<h2 id='(\\w+)'>(.*?)(?=<h2 |</html>)", page, re.S))
    assert "Losses by drop location" in sections["A2"] and "<th>packets, switch port</th>" in sections["A2"]
    assert "<tr><td>10 Mbit/s</td><td>0</td>" in sections["A2"]
    # It has no packets.
    assert "Losses by drop location" not in sections["B1"], sections["B1"]
    assert "io_uring_setup: no" in sections["E14"] and "calls per packet" in sections["E14"]


def check_gaps(out, page):
    lines = {line.split("|")[1].strip(): line
             for line in (out / "report.md").read_text().splitlines() if line.startswith("| ")}
    for measurement, why in (
            ("B1", "1 of 6 points is missing: memcpy at 16384"),
            ("C4", "1 of 28 points is missing: pull at 5120"),
            ("C5", "23 more; whole_bytes_per_second is unknown at 1 of 28 points: 20 Mbit/s at 8192"),
            ("A7", "1 of 2 points is missing"), ("A5", "not measured")):
        assert "| unknown |" in lines[measurement] and why in lines[measurement], lines[measurement]
    assert "<td>unknown</td>" in page and not re.search(r"-0(?![0-9.]*[1-9])[ %<]", page), page
    # The SVG draws text as glyphs, and has each text as a comment.
    svg = {name: (out / f"{name}.svg").read_text() for name in ("A7", "C4", "C5", "E14")}
    assert "not measured, or unknown" in svg["C5"] and "drops unknown" in svg["C5"]
    assert "not measured, or unknown" in svg["C4"]
    assert "no QoS: not measured" in svg["A7"]
    assert "refused" in svg["E14"] and "system calls per packet" in svg["E14"] and "published: n copies" in svg["E14"]


def priority(evb):
    """Only the processes of a point have a raised priority."""
    need_root()

    def look(pid):
        """Returns the nice value and the autogroup."""
        nice = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[16])
        group = pathlib.Path(f"/proc/{pid}/autogroup")
        return nice, group.read_text().strip() if group.exists() else ""

    def children(pid, word):
        """Returns the descendants that have the word in their command line. Points are short: no program is quick enough."""
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                yield from children(child, word)
                if word in pathlib.Path(f"/proc/{child}/cmdline").read_text().replace("\0", " "):
                    yield int(child)

    def raised(pid, word):
        """Whether a process of a point has a raised priority. It may also end, or be about to raise it."""
        for child in children(pid, word):
            with contextlib.suppress(OSError):
                nice, group = look(child)
                if nice == -20 and (own[1] == "" or "nice -20" in group):
                    return True
        return False

    own, deadline = look(os.getpid()), time.monotonic() + LIMIT_S
    with folder() as where:
        for measurement, word in (("C2", "--node ros1"), ("B4", "stream send"), ("B1", "bench memcpy")):
            found = False
            # On a busy machine, all points of a run may be over before this process has a processor.
            while not found:
                assert time.monotonic() < deadline, f"{measurement}: no raised process of a point in {LIMIT_S} s"
                with background(evb, measurement, where / measurement, "--again") as running:
                    try:
                        while not found and running.poll() is None:
                            found = raised(running.pid, word)
                            time.sleep(0.005)
                        if found:
                            seen = look(running.pid)
                            # A process that has ended has no group.
                            found = running.poll() is None
                            assert not found or seen == own, (seen, own)
                            assert look(os.getpid()) == own, (look(os.getpid()), own)
                    finally:
                        running.terminate()  # it removes its directory


def spoiled(evb):
    """Another kind of file is rejected and stays unchanged."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        path.write_bytes(os.urandom(1 << 20).replace(b"a", b"\n"))
        before = path.read_bytes()
        for words in (("run", "B1", "--quick", "--results", str(path)), ("report", str(path))):
            done = sh(evb, "lab", *words, check=False)
            assert done.returncode == 2 and "not a results file" in done.stderr, done
            assert len(done.stderr) < 2000, done
        assert path.read_bytes() == before
        done = sh(evb, "lab", "run", "B1", "--quick", *MADE_ONCE, "--results", str(where), check=False)
        assert done.returncode == 2 and "Is a directory" in done.stderr, done


def full_disk(evb):
    """A full disk stops the command, and the file contains complete points only."""
    need_root()
    with folder() as where:
        path = where / "disk" / "results.jsonl"
        path.parent.mkdir()
        filler = "x" * 4000 + "\n"
        script = (f"mount -t tmpfs -o size=4k none {path.parent} && printf '%s\\n' {filler.strip()} > {path} && "
                  f"{evb} lab run B1 --quick --results {path}; echo \"status $?\" >&2; cat {path}")
        done = sh("unshare", "-m", "sh", "-c", script)
        assert "status 1" in done.stderr and "stopped because points cannot be written" in done.stderr, done
        assert done.stdout == filler, done
        assert done.stderr.count("no space") + done.stderr.count("No space") == 1, done


def at_once(evb):
    """Two runs cannot share a results file; with two files, the second run warns about every other. The leftovers of a killed run do not
    disturb the next one, which removes them even if it has the same process ID."""
    need_root()
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")
    with folder() as where:
        path = where / "results.jsonl"
        with background(evb, "A2", path) as running:
            try:
                wait_until("first point", lambda: path.exists() and path.read_text().count("\n") > 0)
                # It makes no further point meanwhile.
                running.send_signal(signal.SIGSTOP)
                done = sh(evb, "lab", "run", "B1", "--quick", *MADE_ONCE, "--results", str(path), check=False)
                assert done.returncode == 1 and "another evb lab run writes to this file" in done.stderr, done
                other = where / "other.jsonl"
                # This test stands for a third run.
                with tempfile.TemporaryDirectory(prefix=f"evb-lab-state-{os.getpid()}-", dir="/tmp"):
                    done = sh(evb, "lab", "run", "A2", "--quick", *MADE_ONCE, "--results", str(other), check=False)
                for pid in (running.pid, os.getpid()):
                    assert f"process {pid} also measures on this machine" in done.stderr, done
                assert len(points(other)) == 3
            finally:
                running.kill()
        made = points(path)
        assert {p["id"] for p in made} == {"A2"}
        script = ("ip netns add evb-$$-switch && ip netns add evb-$$-sender1 && "
                  f"exec {evb} lab run A2 --quick {MADE_ONCE[0]} --results {path}")
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as same:
            said = same.communicate(timeout=LIMIT_S)[0]
        assert same.returncode in (0, 1) and len(points(path)) == len(made) + 3, said
        assert f"process {running.pid} also measures" not in said, said
        for run in (running, same):
            assert f"evb-{run.pid}-" not in sh("ip", "netns", "list").stdout
            assert not list(pathlib.Path("/tmp").glob(f"evb-lab-state-{run.pid}-*"))


def any_moment(evb):
    """A signal at any time leaves complete points, and no namespaces or folders."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        for moment in range(16):
            number = (signal.SIGINT, signal.SIGTERM)[moment % 2]
            with background(evb, "A2,C2,B1", path, "--again") as running:
                # From before the first line to within the second point.
                time.sleep(moment * moment * 0.009)
                running.send_signal(number)
                status = running.wait(LIMIT_S)
            assert status in (1, -number), status
            assert not any(f"evb-{running.pid}-" in name for name in os.listdir("/run/netns"))
            assert not list(pathlib.Path("/tmp").glob(f"evb-lab-state-{running.pid}-*"))
            assert not path.exists() or all({"id", "x", "version"} <= set(p) for p in points(path))


def removed(evb):
    """A run stops if its results file is removed."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        with background(evb, "A2", path, stderr=subprocess.PIPE, text=True) as running:
            try:
                wait_until("first point", lambda: path.exists() and path.read_text().count("\n") > 0)
                path.unlink()
                said = running.communicate(timeout=LIMIT_S)[1]
            finally:
                running.kill()
        assert running.returncode == 1 and "the file was removed or replaced during the run" in said, said


def no_state(evb):
    """A run without a directory for the shaping state measures nothing."""
    need_root()
    script = ("mount -t tmpfs none /mnt && mount -t tmpfs -o ro none /tmp && "
              f"{evb} lab run B1 --quick --results /mnt/r; echo status $?; cat /mnt/r")
    if str(evb).startswith("/tmp/"):
        raise Skip("the program is in /tmp, which this test mounts over")
    done = sh("unshare", "-m", "sh", "-c", script)
    assert done.stdout == "status 1\n" and "cannot create a directory in /tmp: Read-only file system" in done.stderr, done


@contextlib.contextmanager
def own_places():
    """Gives this process a /tmp and a /run/netns of its own: runs elsewhere, when they begin, remove what dead runs have left."""
    assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    sh("mount", "--make-rprivate", "/")
    os.makedirs("/run/netns", exist_ok=True)
    with contextlib.ExitStack() as stack:
        for place in ("/run/netns", "/tmp"):
            sh("mount", "-t", "tmpfs", "none", place)
            stack.callback(sh, "umount", "--lazy", place)
        yield


def clean(evb):
    """Removes namespaces and folders of dead runs, but not those of live runs, of other users, or links."""
    need_root()
    dead = subprocess.Popen(["true"])
    dead.wait()
    stale, living = f"evb-{dead.pid}-x", f"evb-{os.getpid()}-x"
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")
    left_over, in_use, alien, link = (
        pathlib.Path(f"/tmp/evb-lab-state-{name}")
        for name in (f"{dead.pid}-aaaaaa", f"{os.getpid()}-aaaaaa", f"{dead.pid}-bbbbbb", f"{dead.pid}-cccccc"))
    # It may be in /tmp.
    program = f"/proc/{os.getpid()}/fd/{os.open(evb, os.O_PATH)}"
    with own_places():
        where = pathlib.Path("/tmp/other")
        where.mkdir()
        (where / "kept").touch()
        for name in (stale, living):
            sh("ip", "netns", "add", name)
        for path in (left_over, in_use, alien):
            path.mkdir()
            (path / "qos-eth0.json").touch()
        os.chown(alien, 65534, 65534)
        link.symlink_to(where)
        said = sh(program, "lab", "clean").stdout
        assert said == "removed 1 namespaces and 1 directories in /tmp of dead runs\n", said
        assert not left_over.exists()
        left = sh("ip", "netns", "list").stdout
        assert stale not in left and living in left, left
        assert (in_use / "qos-eth0.json").exists() and (alien / "qos-eth0.json").exists()
        assert (where / "kept").exists() and link.is_symlink()


def killed(evb):
    """Removes the leftovers of a killed run."""
    need_root()
    with folder() as where:
        run = background(evb, "C2", where / "results.jsonl")
        try:
            deadline = time.monotonic() + LIMIT_S
            while not (states := list(pathlib.Path("/tmp").glob(f"evb-lab-state-{run.pid}-*"))):
                assert time.monotonic() < deadline and run.poll() is None
                time.sleep(0.01)
        finally:
            run.kill()
            run.wait()
        sh(evb, "lab", "clean")
        assert not any(path.exists() for path in states)
        assert f"evb-{run.pid}-" not in sh("ip", "netns", "list").stdout


if __name__ == "__main__":
    main({
        "lists": lists, "mistakes": mistakes, "resume": resume, "interrupted": interrupted, "report": report, "priority": priority, "clean": clean, "killed": killed,
        "spoiled": spoiled, "full-disk": full_disk, "at-once": at_once, "any-moment": any_moment, "removed": removed, "no-state": no_state,
    })
