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
MADE_ONCE = ("--accept-disturbed",)
CLONE_NEWNS = 0x00020000


def lists(evb):
    """The list contains all published measurements, and what each needs."""
    measurements = json.loads(sh(evb, "lab", "list", "--json").stdout)["measurements"]
    ids = [m["id"] for m in measurements]
    wanted = [f"A{i}" for i in range(1, 9)] + [f"B{i}" for i in range(1, 7)] + [f"C{i}" for i in range(1, 10)]
    assert set(wanted) <= set(ids) and len(ids) == len(set(ids)), ids
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


def bench(evb, path, *options):
    """Makes the points of B1, copies of memory, which are slow on a busy machine."""
    done = sh(evb, "lab", "run", "B1", *options, *MADE_ONCE, "--results", str(path), check=False)
    verdict = re.search("^B1 +(agrees|better|differs) ", done.stdout, re.M)
    assert verdict and done.returncode == (verdict[1] == "differs"), done
    return done


def points(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def resume(evb):
    """A repeated command measures only the points that the results file lacks."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        done = sh(evb, "lab", "run", "A2,B1,C9", "--quick", *MADE_ONCE, "--results", str(path), "--json", check=False)
        verdicts = {v["id"]: v["verdict"] for v in json.loads(done.stdout)["verdicts"]}
        assert set(verdicts) == {"A2", "B1", "C9"} and "unknown" not in verdicts.values(), done
        first = points(path)
        keys = {"id", "series", "x", "settings", "time", "kernel", "processor", "processors", "version"}
        assert all(keys <= set(p) for p in first)
        lines = path.read_text().splitlines()
        # The last point is missing, and the one before it is truncated.
        path.write_text("\n".join(lines[:-2] + [lines[-2][:40]]) + "\n")
        done = sh(evb, "lab", "run", "A2,B1,C9", "--quick", *MADE_ONCE, "--results", str(path), check=False)
        assert "not a result" in done.stderr, done.stderr
        again = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        assert [(p["id"], p["series"], p["x"]) for p in again] == [(p["id"], p["series"], p["x"]) for p in first]


def versions(evb):
    """Points of another catalogue version are ignored, and measured again on request."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        bench(evb, path, "--quick")
        first = points(path)
        gone, lacking = dict(first[0], id="Z1"), dict(first[1])
        without_panel = dict(first[0], id="C7", whole_bytes_per_second=1e8)
        del lacking["mbyte_per_s"]
        written = (gone, lacking, without_panel, dict(without_panel, panel="7x5"), *first[2:])
        path.write_text("".join(json.dumps(p) + "\n" for p in written))
        done = bench(evb, path, "--quick")
        assert f"{path}: skipped 4 points of another version" in done.stderr, done.stderr
        assert [p["x"] for p in points(path)[len(first) + 2:]] == [p["x"] for p in first[:2]]



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


def report(evb):
    """The page contains all plots, and each plot is also a file."""
    need_root()
    with folder() as where:
        path, out = where / "results.jsonl", where / "out"
        judged = sh(evb, "lab", "run", "B1,A2", "--quick", *MADE_ONCE, "--results", str(path), check=False).stdout
        done = sh(evb, "lab", "report", str(path), "--output", str(out), check=False)
        if done.returncode == 77:
            raise Skip("matplotlib is not installed")
        assert done.returncode == 0, done
        page = (out / "report.html").read_text()
        assert page.count("data:image/png;base64,") == 2 and "src='http" not in page
        verdicts = dict(re.findall(r"^(A2|B1) +(agrees|better|differs) ", judged, re.M))
        assert set(verdicts) == {"A2", "B1"} and "not measured" in page, judged
        for measurement, verdict in verdicts.items():
            row = re.search(rf"<tr><td><a href='#{measurement}'>.*?</tr>", page)[0]
            assert f"<b>{verdict}</b>" in row, (verdict, row)
        # Results come first, and what was not measured is folded.
        results, _, folded = page.partition("<details><summary>")
        assert "</h1><p><b>2 measured: " in results and "<td>A5</td>" not in results and re.match(r"\d+ not measured: .*?<td>A5</td>.*?</table></details>", folded), page[:2000]
        # Only A2 has packets.
        assert page.count("Losses by drop location") == 1 and "<th>packets, switch port</th>" in page
        assert "<tr><td>10 Mbit/s</td><td>0</td>" in page
        for name in ("A2.png", "A2.svg", "B1.png", "B1.svg"):
            assert (out / name).stat().st_size > 5000, name


def left_disturbed(evb):
    """Disturbed points of an earlier run count until they are made undisturbed."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        command = (evb, "lab", "run", "A2", "--quick", "--results", str(path))
        sh(*command, *MADE_ONCE, check=False)
        path.write_text("".join(json.dumps(dict(p, disturbed="by the test")) + "\n" for p in points(path)))
        before = points(path)
        # Without this capability, no point can be made.
        done = sh("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *command, "--json", check=False)
        said = json.loads(done.stdout)
        assert done.returncode == 1 and points(path) == before and "points failed" in done.stderr, done
        assert said["measured_points"] == 0 and said["disturbed_points"] == len(before) > 0, said


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
                        running.kill()


def gaps(evb):
    """A missing point or unknown figure is a gap in the plot and prevents a verdict; it never counts as 0."""
    need_root()
    with folder() as where:
        path, out = where / "results.jsonl", where / "out"
        bench(evb, path)
        made = points(path)
        base = {k: v for k, v in made[0].items() if k not in ("id", "x", "series", "settings", "mbyte_per_s")}
        sizes = (1024, 2048, 5120, 8192, 14336, 16384, 32768)
        rates = (("20 Mbit/s", 18e6), ("40 Mbit/s", 40e6), ("50 Mbit/s", 45e6), ("auto", 110e6))
        c5 = [base | {"id": "C5", "series": series, "x": x, "settings": "a whole run",
                      "whole_bytes_per_second": value, "switch_packets": None,
                      "events_lost": 0, "events_partial": 0, "source_packets": 0}
              for series, value in rates for x in sizes]
        c5[3]["whole_bytes_per_second"] = None
        c4 = [dict(p, id="C4", series=series, complete_share=0.5, port_share=0.5)
              for series in ("push", "pull") for p in c5[7:14] if (series, p["x"]) != ("pull", 5120)]
        a7 = base | {"id": "A7", "series": "no QoS", "x": 1448, "settings": "s", "gap_p50_us": None}
        path.write_text("".join(json.dumps(p) + "\n" for p in (*made[:2], *made[3:], *c4, *c5, a7)))
        done = sh(evb, "lab", "report", str(path), "--output", str(out), check=False)
        if done.returncode == 77:
            raise Skip("matplotlib is not installed")
        assert done.returncode == 0, done
        lines = {line.split("|")[1].strip(): line
                 for line in (out / "report.md").read_text().splitlines() if line.startswith("| ")}
        for measurement, why in (
                ("B1", "1 of 6 points is missing: memcpy at 16384"),
                ("C4", "1 of 28 points is missing: pull at 5120"),
                ("C5", "23 more; whole_bytes_per_second is unknown at 1 of 28 points: 20 Mbit/s at 8192"),
                ("A7", "1 of 2 points is missing"), ("A5", "not measured")):
            assert "| unknown |" in lines[measurement] and why in lines[measurement], lines[measurement]
        page = (out / "report.html").read_text()
        assert "<td>unknown</td>" in page and not re.search(r"-0(?![0-9.]*[1-9])[ %<]", page), page
        # The SVG draws text as glyphs, and has each text as a comment.
        svg = (out / "C5.svg").read_text()
        assert "not measured, or unknown" in svg and "drops unknown" in svg
        assert "not measured, or unknown" in (out / "C4.svg").read_text()
        assert "no QoS: not measured" in (out / "A7.svg").read_text()


def spoiled(evb):
    """Invalid lines of a results file are reported and stay; other files are rejected."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        bench(evb, path, "--quick")
        first = points(path)
        good = path.read_text()
        strange = ("", "7", "[]", "{}", "null", "\x00\x00", "{" * 5000, "x" * 200000,
                   json.dumps({"id": "B1", "series": "memcpy"}), json.dumps(first[0] | {"x": "10"}),
                   json.dumps(first[0] | {"settings": None}), json.dumps(first[0] | {"panel": 5}),
                   json.dumps({k: v for k, v in first[0].items() if k != "processor"}))
        path.write_text("\n".join(strange) + "\n" + good)
        done = bench(evb, path, "--quick")
        assert path.read_text() == "\n".join(strange) + "\n" + good and "not a result" in done.stderr, done
        done = sh(evb, "lab", "report", str(path), "--output", str(where / "out"), check=False)
        assert done.returncode in (0, 77), done
        # Another kind of file is rejected and stays unchanged.
        path.write_bytes(os.urandom(1 << 20).replace(b"a", b"\n"))
        before = path.read_bytes()
        for words in (("run", "B1", "--quick", "--results", str(path)), ("report", str(path))):
            done = sh(evb, "lab", *words, check=False)
            assert done.returncode == 2 and "not a results file" in done.stderr, done
            assert len(done.stderr) < 2000, done
        assert path.read_bytes() == before
        done = sh(evb, "lab", "run", "B1", "--quick", *MADE_ONCE, "--results", str(where), check=False)
        assert done.returncode == 2 and "Is a directory" in done.stderr, done


def cut_line(evb):
    """A truncated last line does not damage the next point."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        bench(evb, path, "--quick")
        first = path.read_text().splitlines()
        path.write_text("\n".join(first)[:-20])
        bench(evb, path, "--quick")
        again = path.read_text().splitlines()
        assert again[:-1] == [*first[:-1], first[-1][:-20]], again
        assert json.loads(again[-1])["x"] == json.loads(first[-1])["x"], again


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
    """Two runs cannot share a results file; with two files, the second run warns about every other."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        with background(evb, "C2", path) as running:
            try:
                wait_until("first point", lambda: path.exists() and path.read_text().count("\n") > 0)
                # It makes no further point meanwhile.
                running.send_signal(signal.SIGSTOP)
                done = sh(evb, "lab", "run", "B1", "--quick", *MADE_ONCE, "--results", str(path), check=False)
                assert done.returncode == 1 and "another evb lab run writes to this file" in done.stderr, done
                other = where / "other.jsonl"
                # This test stands for a third run.
                with tempfile.TemporaryDirectory(prefix=f"evb-lab-state-{os.getpid()}-", dir="/tmp"):
                    done = sh(evb, "lab", "run", "B1", "--quick", *MADE_ONCE, "--results", str(other), check=False)
                for pid in (running.pid, os.getpid()):
                    assert f"process {pid} also measures on this machine" in done.stderr, done
                assert len(points(other)) == 3
            finally:
                running.kill()
        assert {p["id"] for p in points(path)} == {"C2"}
        # The leftovers of the killed run do not disturb the next one.
        done = sh(evb, "lab", "run", "A2", "--quick", *MADE_ONCE, "--results", str(path), check=False)
        assert done.returncode in (0, 1) and f"process {running.pid} also measures" not in done.stderr, done
        assert f"evb-{running.pid}-" not in sh("ip", "netns", "list").stdout


def any_moment(evb):
    """A signal at any time leaves complete points, and no namespaces or folders."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        for number in (signal.SIGINT, signal.SIGTERM):
            for moment in range(15):
                with background(evb, "A2,C2,B1", path, "--again") as running:
                    # From before the first line to within the second point.
                    time.sleep(moment * moment * 0.01)
                    running.send_signal(number)
                    status = running.wait(LIMIT_S)
                assert status in (1, -number), status
                assert not any(f"evb-{running.pid}-" in name for name in os.listdir("/run/netns"))
                assert not list(pathlib.Path("/tmp").glob(f"evb-lab-state-{running.pid}-*"))
                assert not path.exists() or all({"id", "x", "version"} <= set(p) for p in points(path))


def same_pid(evb):
    """A run removes the namespaces of a killed run that had the same process ID."""
    need_root()
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")
    with folder() as where:
        path = where / "results.jsonl"
        script = ("ip netns add evb-$$-switch && ip netns add evb-$$-sender1 && "
                  f"exec {evb} lab run A2 --quick {MADE_ONCE[0]} --results {path}")
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            said = running.communicate(timeout=LIMIT_S)[0]
        assert running.returncode in (0, 1) and len(points(path)) == 3, said
        assert f"evb-{running.pid}-" not in sh("ip", "netns", "list").stdout


def removed(evb):
    """A run stops if its results file is removed."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        with background(evb, "C2", path, stderr=subprocess.PIPE, text=True) as running:
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
        "lists": lists, "mistakes": mistakes, "resume": resume, "versions": versions, "interrupted": interrupted, "report": report, "left-disturbed": left_disturbed, "priority": priority, "clean": clean, "killed": killed, "gaps": gaps,
        "spoiled": spoiled, "cut-line": cut_line, "full-disk": full_disk, "at-once": at_once,
        "same-pid": same_pid, "any-moment": any_moment, "removed": removed, "no-state": no_state,
    })
