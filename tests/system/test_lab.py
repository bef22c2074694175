#!/usr/bin/env python3
"""The published measurements as a user makes them again.

    test_lab.py EVB CASE
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import LIMIT_S, Skip, folder, main, need_root
from network import sh, wait_until


def lists(evb):
    measurements = json.loads(sh(evb, "lab", "list", "--json").stdout)["measurements"]
    ids = [m["id"] for m in measurements]
    wanted = [f"A{i}" for i in range(1, 9)] + [f"B{i}" for i in range(1, 7)] + [f"C{i}" for i in range(1, 10)]
    assert set(wanted) <= set(ids) and len(ids) == len(set(ids)), ids
    text = sh(evb, "lab", "list").stdout
    assert all(f"{i} " in text for i in ids)


def mistakes(evb):
    for words, status, says in (
        (("run", "Z9"), 2, "Z9"), (("run",), 2, "missing"), (("fly",), 2, "fly"), (("report", "/nonexistent"), 2, "nonexistent"), ((), 2, "lab VERB"),
    ):
        done = sh(evb, "lab", *words, check=False)
        assert done.returncode == status and says in done.stderr, (words, done)
    if os.geteuid() == 0:
        done = sh("setpriv", "--reuid=65534", "--clear-groups", evb, "lab", "run", "A2", check=False)
        assert done.returncode == 77 and "root" in done.stderr, done


def points(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def resume(evb):
    """Points go to a file as they are made; what is there is not made again; another length is."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        done = sh(evb, "lab", "run", "A2,B1,C9", "--quick", "--results", str(path), "--json", check=False)
        verdicts = {v["id"]: v["verdict"] for v in json.loads(done.stdout)["verdicts"]}
        assert set(verdicts) == {"A2", "B1", "C9"} and "unknown" not in verdicts.values(), done
        first = points(path)
        assert all({"id", "series", "x", "settings", "time", "kernel", "processor", "processors", "version"} <= set(p) for p in first)
        lines = path.read_text().splitlines()
        # As if it had been cut off: the last point is missing, the one before is half there.
        path.write_text("\n".join(lines[:-2] + [lines[-2][:40]]) + "\n")
        done = sh(evb, "lab", "run", "A2,B1,C9", "--quick", "--results", str(path), check=False)
        assert "not a result" in done.stderr, done.stderr
        again = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        assert [(p["id"], p["series"], p["x"]) for p in again] == [(p["id"], p["series"], p["x"]) for p in first]


def versions(evb):
    """Points of another version of the catalogue are left out, and made again where they are wanted."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        sh(evb, "lab", "run", "B1", "--quick", "--results", str(path))
        first = points(path)
        gone, lacking, without_panel = dict(first[0], id="Z1"), dict(first[1]), dict(first[0], id="C7", whole_bytes_per_second=1e8)
        del lacking["mbyte_per_s"]
        path.write_text("".join(json.dumps(p) + "\n" for p in (gone, lacking, without_panel, dict(without_panel, panel="7x5"), *first[2:])))
        done = sh(evb, "lab", "run", "B1", "--quick", "--results", str(path))
        assert f"{path}: 4 points of another version" in done.stderr, done.stderr
        assert [p["x"] for p in points(path)[len(first) + 2:]] == [p["x"] for p in first[:2]]


def losses(evb):
    """What receivers did not get of a stream was dropped somewhere, and is told by place."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        sh(evb, "lab", "run", "A1,A2", "--quick", "--results", str(path), check=False)
        for p in points(path):
            assert (p["source_packets"] is None) == (p["id"] == "A1") and p["switch_packets"] >= 0 and p["socket_packets"] <= p["lost_messages"], p
            assert 0 < p["sender_cpu"]["p50"] <= p["sender_cpu"]["p90"] and p["sender_cpu"]["below"][-1] == 1 and p["receiver_cpu"]["p99"] > 0, p
        # More packets a second than its receivers take.
        small = next(p for p in points(path) if p["id"] == "A1" and p["x"] == 40)
        assert small["lost_messages"] > 0 and small["switch_packets"] + small["socket_packets"] > 0, small


def interrupted(evb):
    """Ctrl-C ends all, not one point, at once and whole; the point that was under way is none."""
    need_root()
    for measurement, number in (("C2", signal.SIGINT), ("B4", signal.SIGTERM)):
        with folder() as where:
            path = where / "results.jsonl"
            with subprocess.Popen([evb, "lab", "run", measurement, "--results", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                wait_until("first point", lambda: path.exists() and path.read_text().count("\n") > 0)
                made = len(points(path))
                running.send_signal(number)
                out, err = running.communicate(timeout=LIMIT_S)
            assert running.returncode == 1 and "the same command goes on" in err and out == "", (running.returncode, out, err)
            assert made <= len(points(path)) <= made + 1
            assert not any(f"evb-{running.pid}-" in n for n in os.listdir("/run/netns"))


def report(evb):
    """A page that needs nothing else, and each picture beside it."""
    need_root()
    with folder() as where:
        path, out = where / "results.jsonl", where / "out"
        sh(evb, "lab", "run", "B1,A2", "--quick", "--results", str(path), check=False)
        done = sh(evb, "lab", "report", str(path), "--output", str(out), check=False)
        if done.returncode == 77:
            raise Skip("matplotlib is not installed")
        assert done.returncode == 0, done
        page = (out / "report.html").read_text()
        assert page.count("data:image/png;base64,") == 2 and "src='http" not in page
        assert "not measured" in page and "agrees" in page
        # Of A2 alone: B1 has no packets.
        assert page.count("Lost, by place") == 1 and "<th>switch port, packets</th>" in page and "<tr><td>10 Mbit/s</td><td>0</td>" in page
        for name in ("A2.png", "A2.svg", "B1.png", "B1.svg"):
            assert (out / name).stat().st_size > 5000, name


def clean(evb):
    """Namespaces and folders of runs that live no more go; others stay, and what only has such a name."""
    need_root()
    dead = subprocess.Popen(["true"])
    dead.wait()
    stale, living = f"evb-{dead.pid}-x", f"evb-{os.getpid()}-x"
    if sh("ip", "-V", check=False).returncode != 0:
        raise Skip("ip (iproute2) is not installed")
    left_over, in_use, alien, link = (pathlib.Path(f"/tmp/evb-lab-state-{name}") for name in
                                      (f"{dead.pid}-aaaaaa", f"{os.getpid()}-aaaaaa", f"{dead.pid}-bbbbbb", f"{dead.pid}-cccccc"))
    with folder() as where:
        (where / "kept").touch()
        try:
            for name in (stale, living):
                sh("ip", "netns", "add", name)
            for path in (left_over, in_use, alien):
                path.mkdir()
                (path / "qos-eth0.json").touch()
            os.chown(alien, 65534, 65534)
            link.symlink_to(where)
            said = sh(evb, "lab", "clean").stdout
            left = sh("ip", "netns", "list").stdout
            assert stale not in left and living in left, left
            assert not left_over.exists() and (in_use / "qos-eth0.json").exists() and (alien / "qos-eth0.json").exists()
            assert (where / "kept").exists() and link.is_symlink()
            found = re.fullmatch(r"(\d+) namespaces and (\d+) folders in /tmp of runs that live no more removed\n", said)
            assert found and int(found[1]) >= 1 and int(found[2]) >= 1, said
        finally:
            for name in (stale, living):
                sh("ip", "netns", "del", name, check=False)
            link.unlink(missing_ok=True)
            for path in (left_over, in_use, alien):
                shutil.rmtree(path, ignore_errors=True)


def killed(evb):
    """What a run that is killed leaves behind, `clean` removes."""
    need_root()
    with folder() as where:
        run = subprocess.Popen([evb, "lab", "run", "A2", "--quick", "--results", str(where / "results.jsonl")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while not (states := list(pathlib.Path("/tmp").glob(f"evb-lab-state-{run.pid}-*"))):
                assert time.monotonic() < deadline and run.poll() is None
                time.sleep(0.01)
        finally:
            run.kill()
            run.wait()
        sh(evb, "lab", "clean")
        assert not any(path.exists() for path in states)
        assert f"evb-{run.pid}-" not in sh("ip", "netns", "list").stdout


main({"lists": lists, "mistakes": mistakes, "resume": resume, "versions": versions, "losses": losses, "interrupted": interrupted, "report": report, "clean": clean, "killed": killed})
