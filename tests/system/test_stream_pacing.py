#!/usr/bin/env python3
"""Streams that the kernel paces, in a kernel that has the qdiscs for it: user-mode Linux 5.10.

    test_stream_pacing.py EVB [CASE...]
"""
import json
import pathlib
import re

from harness import Skip, made, main
from streams import balance
from uml.machine import Machine

PRELOAD, EPOLL, CACHE = made("xsave.so"), made("epoll.so"), made("uml-kernel")
LINK = ["ip netns add b", "ip link add v0 type veth peer name v1 netns b", "ip address add 10.9.0.1/24 dev v0",
        "ip -n b address add 10.9.0.2/24 dev v1", "ip link set v0 up", "ip -n b link set v1 up"]
PACKETS = 200


def stream(evb, qdisc, *options):
    """Moves a stream over a link with this qdisc; returns the sender's report and errors, and what tc says afterwards."""
    binary = pathlib.Path(evb).read_bytes()
    if b"__asan_init" in binary or b"__tsan_init" in binary:
        raise Skip("the shadow memory of sanitizers has no room in user-mode Linux")
    modules = ["veth", "cls_u32", "sch_prio", "sch_fq", "sch_etf"]
    at, words = "10.9.0.2:26900", f"--input pattern:{1456 * PACKETS} --packet-size 1472 --ring 1MiB {' '.join(options)}"
    made, _, sent, shown = Machine(PRELOAD, CACHE, modules).run(modules, [
        " && ".join([*LINK, *qdisc]),
        f"LD_PRELOAD={EPOLL} ip netns exec b {evb} stream recv {at} --ring 1MiB --output pattern --json=/run/received >/run/log 2>&1 </dev/null &",
        f"LD_PRELOAD={EPOLL} {evb} stream send {at} {words} --json", "tc -s qdisc show dev v0"])
    assert made.exit == 0, made.err
    assert sent.exit in (0, 1) and sent.out, (sent, shown)
    report = json.loads(sent.out)
    balance(report)
    return report, sent.err, shown.out


def fq(evb, pacing):
    """fq holds packets back until their time."""
    report, error, shown = stream(evb, ["tc qdisc add dev v0 root fq"], "--spacing", "5ms", "--pacing", pacing)
    assert "does not pace" not in error, error
    assert report["packets_received"] == PACKETS and report["corrupt"] == 0, report
    assert int(re.search(r"gc .* throttled (\d+)", shown)[1]) > 0, shown


def etf(evb):
    """etf drops each packet that has no time, or a time that has passed; a guest that pauses loses the latter."""
    qdisc = ["tc qdisc add dev v0 root handle 1: prio", "tc qdisc add dev v0 parent 1:1 handle 2: etf clockid CLOCK_TAI delta 500000",
             "tc filter add dev v0 parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff flowid 1:1"]
    report, error, shown = stream(evb, qdisc, "--spacing", "5ms", "--pacing", "txtime")
    assert "does not pace" not in error, error
    assert report["packets_received"] > 0 and report["corrupt"] == 0, report
    # Without a time, none passes.
    report, _, _ = stream(evb, qdisc, "--spacing", "5ms")
    assert report["packets_received"] == 0 and report["packets_lost"] == PACKETS, (report, shown)


main({"fq-rate": lambda evb: fq(evb, "kernel"), "fq-times": lambda evb: fq(evb, "txtime"), "etf": etf})
