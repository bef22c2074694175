#!/usr/bin/env python3
"""Points of evb lab on a machine that other work disturbs, and losses of receivers that cannot keep up.

    test_lab_points.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from harness import Skip, folder, main, need_root
from network import wait_until
from short_lab import STOLEN_SHARE_MAX, short_lab
from test_lab import MADE_ONCE, points

# Few points and short ones: nothing here depends on how many there are, or how fast.
LOSSES = {"A1": {"quick_x": [40, 1472]}, "A2": {"quick_x": [40]}}
COPIES = {"B1": {"quick_x": [1024, 4194304], "quick": "seconds=0.3"}}
# Holds each processor at real-time priority for 60 of every 150 ms, and so at least once, from begin to end, in each point of B1.
HOG = """
import os, time
allowed = sorted(os.sched_getaffinity(0))
for processor in allowed[1:]:
    if os.fork() == 0:
        allowed = [processor]
        break
os.sched_setaffinity(0, allowed[:1])
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
except PermissionError:
    os.write(1, b"denied\\n")
    raise SystemExit
# In one piece, as several processes write to one pipe.
os.write(1, b"ready\\n")
end = time.monotonic() + 120
while time.monotonic() < end and os.getppid() != 1:
    until = time.monotonic() + 0.06
    while time.monotonic() < until:
        pass
    time.sleep(0.09)
"""


def losses(evb):
    """Packets that receivers miss are reported by drop location."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"
        short_lab(evb, LOSSES, "run", "A1,A2", "--quick", *MADE_ONCE, "--results", str(path))
        for p in points(path):
            assert (p["source_packets"] is None) == (p["id"] == "A1"), p
            assert p["switch_packets"] >= 0 and p["socket_packets"] <= p["lost_messages"], p
            assert 0 < p["sender_cpu"]["p50"] <= p["sender_cpu"]["p90"], p
            assert p["sender_cpu"]["below"][-1] == 1 and p["receiver_cpu"]["p99"] > 0, p
        small = [p for p in points(path) if p["id"] == "A1" and p["x"] == 40][-1]
        sent_per_s = small["sent_mbps"] * 1e6 / 8 / 40
        accepted_per_s = int(re.search(r"receiver_pps=(\d+)", small["settings"])[1])
        if small["lost_messages"] == 0 and sent_per_s <= 1.2 * accepted_per_s:
            raise Skip(f"this machine sends {sent_per_s:.0f} packets/s, and receivers accept {accepted_per_s}")
        assert small["lost_messages"] > 0 and small["switch_packets"] + small["socket_packets"] > 0, small


@contextlib.contextmanager
def hogged():
    """Disturbs this machine by real-time processes."""
    with subprocess.Popen(["python3", "-c", HOG], stdout=subprocess.PIPE, text=True, start_new_session=True) as hog:
        try:
            for _ in os.sched_getaffinity(0):
                line = hog.stdout.readline()
                if line == "denied\n":
                    raise Skip("real-time priority (CAP_SYS_NICE) is missing")
                assert line == "ready\n", line
            yield
        finally:
            os.killpg(hog.pid, signal.SIGKILL)


def disturbed(evb):
    """A disturbed point is made again, then marked and left out of the verdict, until it is made undisturbed."""
    need_root()
    with folder() as where:
        path = where / "results.jsonl"

        def copies(*words, results=path):
            return short_lab(evb, COPIES, "run", "B1", "--quick", "--results", str(results), *words)

        with hogged():
            done = copies("--json")
            said = json.loads(done.stdout)
            counts = [said[f"{name}_points"] for name in ("measured", "repeated", "disturbed")]
            assert done.returncode == 1 and counts == [2, 2, 2], done
            assert said["verdicts"][0]["verdict"] == "unknown", said
            assert "2 of 2 points are disturbed: memcpy at 1024 (" in said["verdicts"][0]["why"], said
            assert done.stderr.count("is disturbed: ") == 2 and "makes disturbed points again" in done.stderr, done
            # Once at once, and twice at the end of the run.
            assert [p["repeats"] for p in points(path)] == [1] * 2 + [3] * 2, points(path)
            for p in points(path):
                assert "a timer was" in p["disturbed"] and p["timer_late_max_us"] > 40000, p
            # Accepted points count, and keep the reason.
            accepted = where / "accepted.jsonl"
            done = copies(*MADE_ONCE, results=accepted)
            assert done.returncode == 0 and "0 of 2 measured points were made again; 0 remain disturbed" in done.stdout, done
            assert all(p["disturbed"] is None and p["accepted"] and p["repeats"] == 0 for p in points(accepted))
        # Others may disturb this machine, too; what is not disturbed is kept.
        done = wait_until("undisturbed points", lambda: (done := copies()).returncode == 0 and done)
        assert re.search("^B1 +better ", done.stdout, re.M), done
        valid = [p for p in points(path) if p["disturbed"] is None]
        assert len(valid) == 2 and all(0 <= p["stolen_share"] <= STOLEN_SHARE_MAX for p in valid), points(path)
        before, done = path.read_text(), copies()
        assert done.returncode == 0 and "0 of 0 measured points" in done.stdout and path.read_text() == before, done


main({"losses": losses, "disturbed": disturbed})
