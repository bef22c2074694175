#!/usr/bin/env python3
"""Tests the measurements of data paths: E1 to E14.

    test_paths.py EVB CASE
"""
import json
import os
import subprocess

from harness import LIMIT_S, Skip, folder, main


def draw(evb, where, point):
    """The report has a plot of all rows side by side, also of those that the kernel refuses."""
    path, out = where / "side.jsonl", where / "out"
    side = [dict(point, id="E14", x=x, series=series, panel=panel, row=f"E{x}", calls_per_packet=x / 4,
                 processor_seconds_per_gb=None if x == 13 else 0.1 * x, refused="io_uring_setup: no" if x == 13 else None)
            for x in range(1, 14) for series in ("UDP", "TCP", "sender alone") for panel in ("page cache", "disk")]
    path.write_text("".join(json.dumps(p) + "\n" for p in side))
    done = subprocess.run([evb, "lab", "report", str(path), "--output", str(out)], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode == 77:
        return
    assert done.returncode == 0, done
    drawn = (out / "E14.svg").read_text()
    assert "refused" in drawn and "system calls per packet" in drawn and "published: n copies" in drawn
    page = (out / "report.html").read_text()
    assert "io_uring_setup: no" in page and "calls per packet" in page


def lab(evb):
    """The lab has all rows, and measures one."""
    listed = subprocess.run([evb, "lab", "list", "--json"], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    ids = [m["id"] for m in json.loads(listed.stdout)["measurements"]]
    assert [i for i in ids if i[0] == "E"] == [f"E{i}" for i in range(1, 15)], ids
    if os.geteuid() != 0:
        raise Skip("evb lab run needs root")
    with folder() as where:
        path = where / "results.jsonl"
        done = subprocess.run([evb, "lab", "run", "E8", "--quick", "--accept-disturbed", "--results", str(path), "--json"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        verdicts = {v["id"]: v for v in json.loads(done.stdout)["verdicts"]}
        assert verdicts["E8"]["verdict"] == "better" and "2.00 system calls per packet" in verdicts["E8"]["why"], done
        points = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(points) == 6 and all(p["corrupt"] == 0 and p["processor_seconds_per_gb"] > 0 for p in points), points
        draw(evb, where, points[0])


if __name__ == "__main__":
    main({"lab": lab})
