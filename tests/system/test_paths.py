#!/usr/bin/env python3
"""Tests evb bench paths: each row brings every byte to the receiver, with the system calls that it should make.

    test_paths.py EVB [CASE...]
"""
import json
import os
import signal
import subprocess
import sys

from harness import LIMIT_S, ROOT, Skip, folder, main

# The check traces each system call of 1,024 packets of 1 KiB.
FILE_BYTES = 1 << 20
# System calls per packet, by row and form: over UDP and over TCP, at least and at most.
CALLS = {
    ("E1", "read+send"): ((2, 2.02), (2, 2.02)),
    ("E2", "mmap+send"): ((1, 1.02), (1, 1.02)),
    ("E3", "sendfile"): ((1, 1.02), (0, 0.02)),
    ("E3", "splice"): ((2, 2.02), (2, 2.02)),
    ("E4", "read+send"): ((2, 2.02), (2, 2.02)),
    ("E5", "read+writev"): ((2, 2.02), (2, 2.02)),
    ("E6", "cork"): ((4, 4.02), (4, 4.02)),
    ("E6", "MSG_MORE"): ((2, 2.02), (2, 2.02)),
    ("E7", "writev"): ((1, 1.02), (1, 1.02)),
    ("E7", "batch"): ((1 / 32, 0.06), (1 / 32, 0.06)),
    ("E8", "cork"): ((4, 4.02), (4, 4.02)),
    ("E8", "MSG_MORE"): ((2, 2.02), (2, 2.02)),
    # With those that read notifications, whose number depends on the time.
    ("E9", "MSG_ZEROCOPY"): ((2, 4.1), (2, 4.1)),
    ("E10", "MSG_ZEROCOPY"): ((1, 3.1), (1, 3.1)),
    ("E10", "vmsplice"): ((3, 3.02), (3, 3.02)),
    ("E11", "super-packet"): ((1 / 8, 0.5), (1 / 32, 0.15)),
    ("E11", "io_uring"): ((1 / 32, 1), (1 / 32, 1)),
    ("E12", "splice"): ((3, 3.02), (3, 3.02)),
    ("E12", "io_uring"): ((1 / 32, 1), (1 / 32, 1)),
    ("E13", "io_uring"): ((1 / 32, 1), (1 / 32, 1)),
}
FORMS = {"E3": 2, "E6": 2, "E7": 2, "E8": 2, "E10": 2, "E11": 2, "E12": 2}


def bench(evb, *options, expect=0, **how):
    done = subprocess.run([evb, "bench", "paths", "--size", str(FILE_BYTES), "--duration", "10ms", "--json",
                           *options], capture_output=True, text=True, timeout=LIMIT_S, **how)
    assert done.returncode == expect, f"exit {done.returncode}, not {expect}: {done.stderr}\n{done.stdout}"
    return json.loads(done.stdout)


def check(path):
    """A path that the kernel has delivered every byte; one that it lacks says what was refused."""
    if path["refused"]:
        assert ": " in path["refused"] and path["throughput_bytes_per_second"] is None, path
        assert path["calls_per_packet"] is None and path["corrupt"] is None, path
        return
    assert path["corrupt"] == 0 and path["checked_bytes"] == FILE_BYTES, path
    assert path["throughput_bytes_per_second"] > 0 and path["processor_seconds_per_gb"] > 0, path
    assert path["bytes"] >= min(FILE_BYTES, 1024) and (path["wire"] == "sink" or 0 < path["received_share"] <= 1), path
    assert path["header_bytes"] == (0 if path["row"] in ("E1", "E2", "E3") else 27), path
    assert 0 <= path["copies"] <= 2 and len(path["copies_reason"]) > 20 and path["published"]["calls"], path


def row(evb, name):
    """A row over each wire, from the page cache and from disk."""
    report = bench(evb, "--rows", name)
    paths = report["paths"]
    assert report["bench"] == "paths" and report["file_bytes"] == FILE_BYTES and report["payload_bytes"] == 1024, report
    assert len(paths) == 6 * FORMS.get(name, 1) and {p["row"] for p in paths} == {name}, paths
    for path in paths:
        check(path)
        if path["source"] == "cache" and not path["refused"]:
            assert path["reads"] == "page cache" and path["cached_share"] == 1, path
        if path["calls_per_packet"] is None:
            assert path["refused"] or path["calls_refused"], path
            continue
        least, most = CALLS[name, path["form"]][path["wire"] == "tcp"]
        # O_DIRECT reads many packets at once.
        if path["reads"] == "O_DIRECT" and path["form"].startswith("read+"):
            least, most = 1, 1.02
        assert least <= path["calls_per_packet"] <= most, path
        assert sum(path["calls"].values()) <= path["calls_per_packet"] + 0.001, path
    if all(path["refused"] for path in paths):
        raise Skip(paths[0]["refused"])


def unprivileged(evb):
    """Without root, the paths over loopback work; a sender without receiver needs a device, and says so."""
    how = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        paths = bench(evb, "--rows", "E3,E4,E10", "--source", "cache", **how)["paths"]
    except PermissionError:
        raise Skip("nobody may not execute evb") from None
    assert len(paths) == 15, paths
    for path in paths:
        check(path)
        assert (path["wire"] == "sink") == str(path["refused"]).startswith("unshare of a network namespace: "), path


def in_memory(evb):
    """A file system without a disk is no place for a file that is to be read from disk."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        if not any(line.split()[1:3] == ["/dev/shm", "tmpfs"] for line in mounts):
            raise Skip("/dev/shm is not a tmpfs")
    for path in bench(evb, "--rows", "E1,E2", "--wire", "tcp", "--directory", "/dev/shm")["paths"]:
        check(path)
        assert bool(path["refused"]) == (path["source"] == "disk"), path


def text(evb):
    """The table has a line for each path, and the reason for those that the kernel refuses."""
    done = subprocess.run([evb, "bench", "paths", "--rows", "E3,E7-8", "--size", "1MiB", "--duration", "10ms", "--wire", "tcp",
                           "--source", "cache"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["E3", "E3", "E7", "E7", "E8", "E8"], lines
    assert "published copies, calls" in lines[2] and lines[3].rstrip().endswith("0, 1"), lines
    assert done.stderr == "", done


def mistakes(evb):
    for words, says in (
        (("--rows", "E14"), "E1 to E13"), (("--rows", "0"), "E1 to E13"), (("--rows", "x"), "E1 to E13"),
        (("--wire", "sctp"), "udp,tcp,sink"), (("--wire", "udp,"), "udp,tcp,sink"), (("--source", "tape"), "cache,disk"),
        (("--packet-size", "31"), "32 to 60000"), (("--packet-size", "1000"), "multiple of 512"), (("--size", "1kB"), "1MiB"),
        (("--duration", "0"), "10ms to 60s"), (("--form", "2"), "the published form"), (("--count", "10"), "1 to 9"), (("--set", "ros.count=1"), "option --set"),
    ):
        done = subprocess.run([evb, "bench", "paths", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and says in done.stderr and not done.stdout, (words, done)
    for words, says in ((("--directory", "/nonexistent"), "/nonexistent: "), (("--size", "64GiB", "--directory", "/proc"), "/proc: ")):
        done = subprocess.run([evb, "bench", "paths", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and says in done.stderr, (words, done)


def kept(evb):
    """A file that is kept is filled once, and serves the next measurement; one of another size is refused. Small packets are checked in
    whole pages, of 2048 packets at most."""
    with folder() as where:
        file = where / "file"
        file.touch()

        def bench(size, *words):
            return subprocess.run([evb, "bench", "paths", "--rows", "E3", "--form", "1", "--wire", "tcp", "--source", "cache", "--duration", "10ms",
                                   "--packet-size", "255", "--directory", str(file), "--size", size, *words],
                                  capture_output=True, text=True, timeout=LIMIT_S)

        times = set()
        for _ in range(2):
            report = json.loads(bench("1MiB", "--json").stdout)
            paths = report["paths"]
            assert report["payload_bytes"] == 255 and paths[0]["checked_bytes"] == 2048 * 255 // 4096 * 4096, report
            assert [p["form"] for p in paths] == ["splice"] and paths[0]["corrupt"] == 0 and paths[0]["watched_seconds"] >= 0, paths
            assert file.stat().st_size == 1 << 20
            times.add(file.stat().st_mtime_ns)
        assert len(times) == 1, times
        refused = bench("2MiB")
        assert refused.returncode == 1 and "has 1048576 bytes; expected" in refused.stderr, refused


def interrupted(evb):
    """A signal ends the bench and its processes, and leaves no file."""
    with folder() as where, subprocess.Popen(
            [evb, "bench", "paths", "--directory", str(where), "--size", str(FILE_BYTES), "--duration", "60s"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(3):
            process.stdout.readline()
        # Its processes have sessions of their own.
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1 and "interrupted" in errors, (process.returncode, errors)
        assert not os.listdir(where)


def memcpy(evb):
    """Memory is copied at some rate, in blocks of each size."""
    done = subprocess.run([evb, "bench", "memcpy", "--size", "64,1MiB", "--duration", "100ms", "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    sizes = json.loads(done.stdout)["sizes"]
    assert done.returncode == 0 and [s["bytes"] for s in sizes] == [64, 1 << 20] and all(s["mbyte_per_s"] > 10 for s in sizes), done
    done = subprocess.run([evb, "bench", "memcpy", "--size", "64", "--seconds", "0.05"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and "--seconds is now --duration" in done.stderr, done
    for words, says in ((("--size", "0"), "at most 16 sizes"), (("--size", ","), "1KiB,1MiB"), (("--duration", "61s"), "50ms to 60s")):
        refused = subprocess.run([evb, "bench", "memcpy", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert refused.returncode == 2 and says in refused.stderr and not refused.stdout, (words, refused)


# A row whose file is as small as those of the other cases.
SMALL_ROW = """
import dataclasses, sys
from evb.lab.__main__ import main
from evb.lab.catalogue import BY_ID
sys.exit(main([dataclasses.replace(BY_ID["E8"], id="small", base="row=8 seconds=0.1 file=1048576", x=[1024], panels=BY_ID["E8"].panels[:1])]))
"""


def lab(evb):
    """The lab measures a row."""
    if os.geteuid() != 0:
        raise Skip("evb lab run needs root")
    with folder() as where:
        path = where / "results.jsonl"
        done = subprocess.run([sys.executable, "-c", SMALL_ROW, "run", "small", "--force", "--results", str(path), "--json"],
                              capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "EVB_PROGRAM": evb})
        verdicts = {v["id"]: v for v in json.loads(done.stdout)["verdicts"]}
        assert verdicts["small"]["verdict"] == "better" and "2.00 system calls per packet" in verdicts["small"]["why"], done
        points = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(points) == 6 and all(p["corrupt"] == 0 and p["processor_seconds_per_gb"] > 0 for p in points), points


if __name__ == "__main__":
    rows = {f"E{i}": (lambda evb, name=f"E{i}": row(evb, name)) for i in range(1, 14)}
    main(rows | {"unprivileged": unprivileged, "in-memory": in_memory, "text": text, "mistakes": mistakes, "kept": kept, "memcpy": memcpy, "interrupted": interrupted, "lab": lab})
