#!/usr/bin/env python3
"""Tests evb lab on streams, D1 to D9: the points have all figures, and the report draws some. Demands no rates: it passes beside other tests.

    test_stream_lab.py EVB [CASE...]
"""
import json
import os
import re
import subprocess

from harness import CASE_LIMIT_S, LIMIT_S, Skip, folder, main
from short_lab import short_lab

NUMBERS = ("wire_mbps", "mbps", "spread_mbps", "sigma_mbps", "lost_percent", "lost_packets", "packets_sent", "packets_received",
           "inter_packet_mean_us", "inter_packet_sigma_us", "processing_mean_us", "sent_inter_packet_mean_us", "input_cpu_percent",
           "send_cpu_percent", "receive_cpu_percent", "output_cpu_percent", "interval_seconds", "testbed_lost_packets")
SECONDS = 0.35
IDS = [f"D{i}" for i in range(1, 10)]
# Points that are shorter than those of --quick, and fewer of D7: nothing here depends on how fast a stream is.
SHORT = {i: {"quick": f"seconds={SECONDS} interval=0.1"} | ({"quick_x": [4]} if i == "D7" else {}) for i in IDS}
# A plot takes longer than a stream.
DRAWN = ("D4", "D6", "D9")
# The path loses the same packets each time: the first of them is among so many.
LOSES_ONE_OF = 5000
PLACES = ("source_packets", "network_packets", "nic_packets", "socket_packets", "receiver_packets", "late_packets")


def lists(evb):
    """The lab has all rows, and says what was published."""
    listed = subprocess.run([evb, "lab", "list", "--json"], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    rows = {m["id"]: m for m in json.loads(listed.stdout)["measurements"]}
    assert [i for i in rows if i[0] == "D"] == IDS, rows
    assert "815 Mbit/s" in rows["D1"]["published"], rows["D1"]


def measure(evb, where):
    """Makes the points of all measurements in one run, which copies those that several have in common. Returns the points, and why
    some measurements cannot be made here."""
    if os.geteuid() != 0:
        raise Skip("evb lab run needs root")
    path = where / "results.jsonl"
    done = short_lab(evb, SHORT, "run", *IDS, "--quick", "--force", "--results", str(path), "--json", timeout=len(IDS) * LIMIT_S)
    lacks = {i: why for i, why in re.findall(r"points of (D\d) are skipped: (.*)", done.stderr)
             if any(text in why for text in ("needs TUN devices", "needs two processors", " GB in /var/tmp", "(O_DIRECT)"))}
    if set(lacks) == set(IDS):
        raise Skip("; ".join(lacks.values()))
    assert done.returncode in (0, 1) and done.stdout, done
    verdicts = {v["id"]: v for v in json.loads(done.stdout)["verdicts"]}
    points = [json.loads(line) for line in path.read_text().splitlines()]
    # Where threads spin, or the machine loses its processors, a stream may get no time, or none for two intervals, without
    # which there is no spread; the verdict says so.
    idle = {p["id"] for p in points if not p.get("packets_received") or len(p["throughput_mbps"]) < 2}
    assert set(verdicts) == set(IDS), (verdicts, done)
    assert all(v["verdict"] in ("agrees", "better", "differs") or v["id"] in {*idle, *lacks} for v in verdicts.values()), (verdicts, done)
    return points, lacks


def check(point):
    """Every packet is accounted for once, and every figure is there."""
    # A wire without a rate has no port that could drop, and less than two whole intervals have no spread.
    none = {"testbed_lost_packets"} if "link=0" in point["settings"] else set()
    if len(point["throughput_mbps"]) < 2:
        none |= {"spread_mbps", "sigma_mbps"}
    missing = [name for name in NUMBERS if not isinstance(point.get(name), (int, float)) and name not in none]
    assert not missing, (missing, point)
    assert point["lost_packets"] == point["packets_sent"] - point["packets_received"] == sum(point[key] or 0 for key in PLACES), point
    between = sum(n for _, n in point["inter_packet"]["histogram"])
    assert between < point["packets_received"] + 1 and point["cpu_percent"], point
    # No whole interval between the first packet and the last one is missing, however long the machine let them wait. With losses, the
    # last packet may be one that was not taken.
    whole = point["inter_packet_mean_us"] * between / 1e6 / point["interval_seconds"]
    assert len(point["throughput_mbps"]) <= whole + 1e-6, point
    assert len(point["throughput_mbps"]) > whole - 1 - 1e-6 or point["lost_packets"] > 0, point


def report(evb, where, points, ids):
    """Measurements with panels, with a logarithmic axis and with files have their plots and those of their streams; the others look alike."""
    if not ids:
        return
    path = where / "drawn.jsonl"
    path.write_text("".join(json.dumps(p) + "\n" for p in points if p["id"] in ids))
    done = short_lab(evb, SHORT, "report", str(path), "--output", str(where / "out"), timeout=CASE_LIMIT_S)
    if done.returncode == 77:
        return
    assert done.returncode == 0 and f": {len(ids)} measurement" in done.stdout, done
    page, text = (where / "out" / "report.html").read_text(), (where / "out" / "report.md").read_text()
    for name in (f"{i}{part}" for i in ids for part in ("", "-streams")):
        assert (where / "out" / f"{name}.png").stat().st_size > 10000 and f"({name}.png)" in text, name
    for i in ids:
        drawn = (where / "out" / f"{i}-streams.svg").read_text()
        assert all(part in drawn for part in ("processing of a packet, us", "time between packets, us", "lost, %", "load, %", "socket")), i
    assert "lost: network" in page and "most less least of the intervals" in page


def measured(evb):
    """All points of D1 to D9 have their figures, and the report draws one of each kind."""
    with folder() as where:
        points, lacks = measure(evb, where)
        made = [i for i in IDS if any(p["id"] == i for p in points)]
        assert {*made, *lacks} == set(IDS), (made, lacks)
        # One packet has no time between packets.
        streams = [p for p in points if (p.get("packets_received") or 0) > 1]
        assert streams, points
        for point in streams:
            check(point)
            special(point)
        report(evb, where, points, [i for i in DRAWN if i in made])
        if lacks:
            raise Skip("; ".join(lacks.values()))


def special(point):
    """What single measurements have beside the common figures."""
    if point["id"] == "D1":
        assert point["wake"] == point["series"].split(" ")[0], point
    if point["id"] == "D4":
        assert (point["places"]["interface"] == point["places"]["receive"]) == (point["series"] == "the interface's processor"), point
    if point["id"] == "D8":
        # 50 ms there, and the path counts what it loses on purpose.
        lossless = point["series"] == "no loss"
        assert point["corrupt"] == 0 and (point["path_lost_packets"] == 0 if lossless else
                                          point["path_lost_packets"] > 0 or point["packets_received"] < LOSES_ONE_OF), point
    if point["id"] == "D9":
        if len(point["throughput_mbps"]) > 1:
            assert point["steady_intervals"] + point["unsteady_intervals"] == len(point["throughput_mbps"]), point
            assert point["least_mbps"] <= point["mean_mbps"] <= point["most_mbps"], point
        # A file is the same as far as no packet was lost: the lab says so, and the stream.
        if point["series"] == "memory":
            assert point["corrupt"] == 0 and "file_bytes" not in point, point
        else:
            assert abs(point["file_bytes"] - 940e6 / 8 * SECONDS) <= 1, point
            assert point["corrupt"] == (point["lost_packets"] > 0) == (point["same_bytes"] < point["file_bytes"]), point


if __name__ == "__main__":
    main({"lists": lists, "measured": measured})
