#!/usr/bin/env python3
"""Tests evb bench wire: its figures agree with each other, and it leaves nothing behind.

    test_wire.py EVB [CASE...]
"""
import json
import signal
import subprocess

from harness import LIMIT_S, left_overs, main, need_root


def figures(evb):
    """Datagrams travel in super-packets: far more arrive than one system call each permits, and none is counted twice."""
    need_root()
    bench = subprocess.Popen([evb, "bench", "wire", "--size", "64,1448", "--count", "1", "--duration", "200ms", "--json"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = bench.communicate(timeout=LIMIT_S)
    assert bench.returncode == 0, errors
    report = json.loads(output)
    assert (report["bench"], report["mtu_bytes"], report["rounds"]) == ("wire", 1500, 1), report
    assert [f["datagram_bytes"] for f in report["sizes"]] == [64, 1448], report
    for f in report["sizes"]:
        sent, received = f["sent_packets"], f["received_packets"]
        # Whole super-packets: 64 segments, or as many as 65507 bytes hold.
        assert sent > 0 and sent % min(64, 65507 // f["datagram_bytes"]) == 0, f
        assert 0 < received <= sent and abs(f["lost_percent"] - 100 * (sent - received) / sent) < 1e-6, f
        assert abs(f["throughput_bytes_per_second"] * f["seconds"] - received * f["datagram_bytes"]) < 1e-3 * received, f
        assert f["sender_ns_per_datagram"] > 0 and f["receiver_ns_per_datagram"] > 0, f
    assert not left_overs(bench.pid), left_overs(bench.pid)


def mistakes(evb):
    for words, says in ((("--size", "1473"), "1 to 1472"), (("--size", "0"), "1 to 1472"), (("--size", "x"), "64,1024"),
                        (("--size", "8973", "--mtu", "9000"), "1 to 8972"), (("--mtu", "100"), "576"), (("--duration", "0"), "50ms to 60s"), (("--seconds", "61"), "50ms to 60s"),
                        (("--count", "10"), "1 to 9"), (("--set", "ros.count=1"), "option --set"), (("word",), "word")):
        done = subprocess.run([evb, "bench", "wire", *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2 and says in done.stderr and not done.stdout, (words, done)


def interrupted(evb):
    need_root()
    bench = subprocess.Popen([evb, "bench", "wire", "--duration", "60s", "--progress"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "round 1 of 3" in bench.stderr.readline()
    bench.send_signal(signal.SIGINT)
    output, errors = bench.communicate(timeout=LIMIT_S)
    assert bench.returncode == 1 and "interrupted" in errors and not output, (bench.returncode, output, errors)
    assert not left_overs(bench.pid), left_overs(bench.pid)


if __name__ == "__main__":
    main({"figures": figures, "mistakes": mistakes, "interrupted": interrupted})
