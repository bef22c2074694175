#!/usr/bin/env python3
"""Tests evb lab run --sim: the points of the catalogue in virtual time.

    test_lab_sim.py EVB [CASE...]
"""
import json
import os
import pathlib
import re
import signal
import subprocess

from harness import Skip, drop_root, folder, main
from network import sh, wait_until

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "docs/results/lab-quick.jsonl"
# As in evb.lab.valid: above it, the lab's processors limit a point.
CROWDED_SHARE = 0.4


def simulate(evb, *words, expect=0, **more):
    done = subprocess.run([evb, "lab", "run", *words, "--sim"], capture_output=True, text=True, timeout=300, check=False, **more)
    assert expect is None or done.returncode == expect, done
    return done


def points(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def place(p):
    return p["id"], p.get("panel"), p["series"], p["x"]


def agrees(evb):
    """The curves of 6x1 (push, pull, shaped) agree within 10 % with those of a quiet lab, recorded in the tree, where
    its processors do not limit it."""
    lab = {place(p): p for p in points(RECORDED) if not p["disturbed"]}
    with folder() as where:
        simulate(evb, "C3", "C5", "C6", "--quick", "--results", f"{where}/sim", expect=None)
        compared = {}
        for p in points(f"{where}/sim"):
            there = lab[place(p)]
            assert there["settings"] == p["settings"], (there["settings"], p["settings"])
            if there["waiting_share"] > CROWDED_SHARE:
                continue
            apart = p["whole_bytes_per_second"] / there["whole_bytes_per_second"] - 1
            assert abs(apart) < 0.1, (place(p), apart)
            compared.setdefault(p["id"], set()).add(p["series"])
        assert {"push", "pull"} <= compared["C3"] and "auto" in compared["C5"], compared
        assert {"push", "pull, auto", "push, shaped"} <= compared["C6"], compared


def same_lines(evb):
    """A seed gives the same file on any number of processors, as an ordinary user, and after an interruption."""
    with folder() as where:
        os.chmod(where, 0o777)
        one = {min(os.sched_getaffinity(0))}
        words = ("C5", "S8", "--quick", "--results")
        simulate(evb, *words, f"{where}/whole", expect=None)
        simulate(evb, *words, f"{where}/other", "--seed", "2", expect=None)
        with subprocess.Popen([evb, "lab", "run", *words, f"{where}/cut", "--sim"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              preexec_fn=drop_root) as running:
            wait_until("first point", lambda: pathlib.Path(f"{where}/cut").exists() and pathlib.Path(f"{where}/cut").stat().st_size > 0)
            running.send_signal(signal.SIGINT)
        simulate(evb, *words, f"{where}/cut", expect=None, preexec_fn=lambda: os.sched_setaffinity(0, one))
        whole = pathlib.Path(f"{where}/whole").read_text()
        assert pathlib.Path(f"{where}/cut").read_text() == whole
        first = points(f"{where}/whole")
        assert all(p["simulated"] is True and p["seed"] == 1 and re.fullmatch(r"[0-9.]+", p["version"]) and p["virtual_seconds"] > 0 for p in first)
        others = points(f"{where}/other")
        assert [place(p) for p in first] == [place(p) for p in others]
        assert all(p["seed"] == 2 and p["digest"] != q["digest"] for p, q in zip(others, first))


def refuses(evb):
    """What the model leaves out is refused by name, with the reason; so are options that do not belong together."""
    with folder() as where:
        done = simulate(evb, "C8", "C9", "B1", "--quick", "--results", f"{where}/r", expect=1)
        for text in ("2 of 2 points of C8 are skipped: C8 cannot be simulated: scenario.transport: tcp is not modelled",
                     "C9 cannot be simulated: it measures plain flows", "B1 cannot be simulated: it measures copies of memory"):
            assert text in done.stderr, (text, done.stderr)
        # The rest of the measurement is made, and judged without the missing points.
        done = simulate(evb, "C10", "--quick", "--results", f"{where}/r")
        assert "4 of 10 points of C10 are skipped: C10 cannot be simulated: scenario.transport" in done.stderr, done.stderr
        assert re.search("^C10 +better ", done.stdout, re.M), done.stdout
        for words, text in ((("--seed", "x"), "--seed: invalid value"), (("--scenario", "x"), "exclude each other"),
                            (("--force",), "nothing disturbs simulated points"),
                            (("--model", "wake-time=3"), 'invalid setting "wake-time=3"'),
                            (("--model", "wake-time=2s"), 'invalid setting "wake-time=2s"'),
                            (("--model", "sfi.count=2"), 'invalid setting "sfi.count=2"'),
                            (("--model", "processors=65"), 'invalid setting "processors=65"')):
            done = simulate(evb, "C1", *words, "--results", f"{where}/x", expect=2)
            assert text in done.stderr, (text, done.stderr)
        done = sh(evb, "lab", "run", "C1", "--seed", "1", check=False)
        assert done.returncode == 2 and "add --sim" in done.stderr, done
        if os.geteuid() == 0:
            done = sh(evb, "lab", "run", "S8", "--quick", "--results", f"{where}/x", check=False)
            assert done.returncode == 1 and "S8 exists in the simulator only; add --sim" in done.stderr, done


def models(evb):
    """Processors that nodes share, and slow senders, are part of a point."""
    with folder() as where:
        words = ("C7", "--quick", "--results", f"{where}/r")
        simulate(evb, *words, expect=None)
        simulate(evb, *words, "--model", "processors=2 send-time=10us packet-time=2us", expect=None)
        # Two processors carry ports of 100 Mbit/s.
        made = [p for p in points(f"{where}/r") if "100 Mbit/s" not in p["series"]]
        free = {place(p): p for p in made if "processors=2" not in p["settings"]}
        shared = {place(p): p for p in made if "processors=2 send-time=10us packet-time=2us" in p["settings"]}
        assert set(free) == set(shared) and len(free) == 8, made
        # Four ports take 480 MB/s; two processors send 20 packets of 1.4 kB in 100 us, and also receive them.
        assert all(p["whole_bytes_per_second"] < 280e6 for p in shared.values()), shared
        assert all(free[key]["whole_bytes_per_second"] > 1.2 * p["whole_bytes_per_second"] for key, p in shared.items())


def report(evb):
    """The report shows lab and simulator side by side, with their deviation in percent."""
    with folder() as where:
        simulate(evb, "C3", "S8", "--quick", "--results", f"{where}/sim", expect=None)
        lines = RECORDED.read_text().splitlines()
        (where / "lab").write_text("".join(line + "\n" for line in lines if '"id":"C3"' in line))
        done = sh(evb, "lab", "report", f"{where}/lab", f"{where}/sim", "--output", f"{where}/out", check=False)
        if done.returncode == 77:
            raise Skip("matplotlib is not installed")
        assert done.returncode == 0, done
        page, text = (where / "out/report.html").read_text(), (where / "out/report.md").read_text()
        assert "simulated by evb" in text and re.search(r"^- C3: At 2 points where the lab is not limited", text, re.M), text
        rows = re.findall(r"<tr><td></td><td>(push|pull)</td><td>([\d+e.]+)</td><td>([\d,.]+)</td><td>([\d,.]+)</td><td>([-+\d.]+)</td>", page)
        assert len(rows) == 4, rows
        for _, _, lab, sim, apart in rows:
            lab, sim = (float(number.replace(",", "")) for number in (lab, sim))
            assert abs(100 * (sim / lab - 1) - float(apart)) < 0.1, rows
        curves = (where / "out/C3.svg").read_text()
        assert "push, simulated" in curves and curves.count("stroke-dasharray") >= 2
        # A measurement that only the simulator makes has its own verdict and no twin.
        assert "data:image/png;base64," in page and "S8" in page and "push, shaped, simulated" not in page


if __name__ == "__main__":
    main({"agrees": agrees, "same-lines": same_lines, "refuses": refuses, "models": models, "report": report})
