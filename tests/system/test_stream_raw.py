#!/usr/bin/env python3
"""Raw streams: messages that are only counted, over UDP, TCP and multicast, or sent back one by one.

    test_stream_raw.py EVB [CASE...]
"""
import contextlib
import os
import socket
import threading

from harness import OWN_NET, Skip, main
from streams import CALM, SLOW, End, balance, failed, free_address, is_listening, of, ports, wait_until

GROUP = "239.255.69.1"
# Each socket's buffer holds them all.
FEW = 500


def sender(evb, address, *flags, **options):
    return End(evb, "send", address, *flags, format="raw", **options)


def move(evb, *flags, address=None, receive=(), expect=0, limits=None, **options):
    """Moves a raw stream; returns the sender's report."""
    address = address or free_address()
    with End(evb, "recv", address, *receive, output="null", **(limits or {})) as receiver, sender(evb, address, *flags, **options) as end:
        sent, error = end.finish(expect)
        received, _ = receiver.finish(expect)
    for name in ("format", "packets_sent", "packets_received", "packets_lost", "lost_at", "bytes"):
        assert sent[name] == received[name], (name, sent, received)
    assert sent["format"] == "raw" and sent["frames_filled_in"] is None, (sent, error)
    for name in ("packets", "bytes"):
        assert sent["peer"]["measured"][name] == received["measured"][name], (sent, received)
    return sent


def mistakes(evb):
    for words, message in {
        ("--raw", "transport=tcp", "--input", "x"): "--raw needs --format raw",
        ("--raw", "packets=3", "--input", "x"): "--raw needs --format raw",
        ("--format", "raw", "--input", "x"): "sends zeros",
        ("--format", "raw", "--raw", "transport=sctp"): "expected udp, tcp, echo",
        ("--format", "raw", "--raw", "transport=10.0.0.1:7100"): "or a multicast group and port",
        ("--format", "raw", "--raw", "transport=239.1.2.3:7100", "--listen"): "contradicts the multicast group",
        ("--format", "raw", "--raw", "batch=65"): "expected 1 to 64",
        ("--format", "raw", "--raw", "packets=0"): "expected a positive number",
        ("--format", "raw", "--raw", "warm-up=2h"): "expected a time up to 1 hour",
        ("--format", "raw", "--packet-size", "65508"): "expected bytes",
        ("--format", "raw", "--pacing", "kernel", "--rate", "1Mbit"): "needs --pacing thread",
    }.items():
        error = failed(evb, "send", "127.0.0.1:1", *words)
        assert message in error, (words, error)
    for word, options, message in (("127.0.0.1:1,127.0.0.1:2", (), "several need --raw transport=GROUP"),
                                   (",".join(["127.0.0.1:1"] * 17), ("--raw", f"transport={GROUP}:7"), "at most 16 receivers"),
                                   ("127.0.0.1:1,", ("--raw", f"transport={GROUP}:7"), "is not an address and a port")):
        error = failed(evb, "send", word, "--format", "raw", *options)
        assert message in error, (word, error)
    assert "expected packets per second" in failed(evb, "recv", "1", "--output", "null", "--raw", "packet-limit=0")


def refused(evb):
    """A receiver that stores data does not take a raw stream, and one with options of raw streams takes nothing else."""
    for receive, send, message in (({"output": "pattern"}, {"format": "raw"}, "use --output null"),
                                   ({"output": "null", "packet_limit": 5}, {"input": "null:1MB"}, "is for raw streams")):
        address = free_address()
        with End(evb, "recv", address, **receive) as receiver, End(evb, "send", address, **send) as end:
            report, error = end.finish(1)
            assert report is None and message.replace("use", "receive it with") in error, error
            receiver.signal()
            receiver.finish(1)


def udp(evb):
    """Of any size, even below that of a header, one by one and in super-packets."""
    for options in ({"packet_size": 1, "spacing": "50us"}, {"packet_size": 1472, "rate": CALM}, {"rate": CALM},
                    {"packet_size": 100, "batch": 64, "rate": "max"}):
        report = move(evb, packets=FEW, **options)
        size = report["peer"]["payload_bytes"]
        assert size == options.get("packet_size", 8972), report
        assert report["packets_received"] == FEW and report["bytes"] == FEW * size, report
        for end in (report, report["peer"]):
            assert (end["measured"]["packets"], end["measured"]["bytes"]) == (FEW, FEW * size), end
            assert end["measured"]["seconds"] > 0 and 0 < end["measured"]["cpu_seconds"] <= end["network_cpu_seconds"], end
        # Messages of a super-packet come together.
        between = report["peer"]["inter_packet_us"]
        assert between is None if "batch" in options else sum(n for _, n in between["histogram"]) == FEW - 1, report
        assert (report["peer"]["calls"] < FEW) >= ("batch" in options), report


def tcp(evb):
    """Messages of any size, counted by their bytes; the times between packets are those on the wire."""
    for size in (7, 65536, 4 << 20):
        n = 20 if size > 65536 else FEW
        report = move(evb, transport="tcp", packets=n, packet_size=size)
        assert report["packets_received"] == n and report["bytes"] == n * size, report
        assert report["peer"]["measured"]["bytes"] == n * size and report["peer"]["inter_packet_us"] is None, report


@contextlib.contextmanager
def other_traffic(port):
    """Sends datagrams to this port of another host all the time."""
    over = threading.Event()

    def send():
        with socket.socket(type=socket.SOCK_DGRAM) as s:
            while not over.wait(0.001):
                s.sendto(b"x", (f"{OWN_NET}.2", port))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wire(evb):
    if os.geteuid() != 0:
        raise Skip("not root")
    for options in ({"transport": "tcp", "packet_size": 1000}, {"packet_size": 10}):
        address = free_address()
        with other_traffic(of(address)[1]):
            report = move(evb, address=address, packets=FEW, spacing="1ms", receive=["--raw", "watch-wire"], **options)
        between = report["peer"]["inter_packet_us"]
        n = sum(n for _, n in between["histogram"])
        # Only TCP may send two messages as one packet. Of FEW times between packets at least one is no shorter than their mean.
        assert n == FEW - 1 if "transport" not in options else 0 < n < FEW, report
        assert between["max"] >= 1000 * (FEW - 1) / FEW, report


def echo(evb):
    report = move(evb, transport="echo", packets=FEW, packet_size=4)
    assert sum(n for _, n in report["round_trip_us"]["histogram"]) == FEW, report
    assert 0 < report["round_trip_us"]["p50"] <= report["round_trip_us"]["max"], report


def duration(evb):
    """What is sent before the measurement is received, but not measured; the processor is sampled meanwhile."""
    # Each for longer than an end gets no processor.
    report = move(evb, rate="2Mbit", packet_size=1000, warm_up="5s", duration="5s")
    for end in (report, report["peer"]):
        assert 0 < end["measured"]["packets"] < report["packets_sent"], report
        assert 0 < end["measured"]["seconds"] <= 5 and end["measured"]["cpu_percent"], report
        assert all(0 <= percent < 200 for percent in end["measured"]["cpu_percent"]), report


def losses(evb):
    """What a receiver does not take in time is lost at its socket; what never arrives, in the network."""
    report = move(evb, packets=20000, packet_size=100, rate="max", limits={"packet_limit": 1000, "socket_buffer": 8192}, expect=1)
    assert report["packets_lost"] == report["lost_at"]["socket"] > 0, report
    report = move(evb, packets=2000, packet_size=100, rate=CALM, limits={"fault": "loss=10%"}, expect=1)
    assert report["packets_lost"] == report["lost_at"]["network"] > 0, report


def multicast(evb):
    """One sender, several receivers: each has its own report, and the sum is that of all."""
    addresses = [free_address() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(End(evb, "recv", address, output="null", fault=f"loss={loss}"))
                     for address, loss in zip(addresses, ("0%", "20%", "0%"))]
        end = stack.enter_context(sender(evb, ",".join(addresses), transport=f"{GROUP}:{next(ports)}", packets=FEW, packet_size=100, rate="1Mbit"))
        sent, error = end.finish(1)
        received = [receiver.finish(i == 1 and 1)[0] for i, receiver in enumerate(receivers)]
    assert [r["packets_received"] for r in sent["streams"]] == [r["packets_received"] for r in received], (sent, received)
    assert [r["packets_lost"] > 0 for r in sent["streams"]] == [False, True, False], sent
    assert sent["packets_sent"] == 3 * FEW and sent["packets_lost"] == received[1]["packets_lost"], sent
    assert f"{addresses[1]} misses" in error and addresses[0] not in error, error
    for report in sent["streams"]:
        balance(report)


def incomplete_group(evb):
    """Without one of the receivers nothing is sent, and the others say so."""
    here, nowhere = free_address(), free_address()
    with End(evb, "recv", here, output="null") as receiver:
        wait_until("receiver", is_listening(here))
        with sender(evb, f"{here},{nowhere}", transport=f"{GROUP}:{next(ports)}", packets=FEW, wait="10s") as end:
            report, error = end.finish(1)
            assert report is None and f"{nowhere}: cannot connect" in error, error
            received, _ = receiver.finish(1)
            assert received["packets_received"] == 0 and received["packets_lost"] is None, received


def wait_packets(end):
    """Waits until a line of progress counts packets; earlier ones may count none."""
    while b'"packets":0,' in (line := end.process.stderr.readline()):
        pass
    assert b'"packets":' in line, line


def ctrl_c(evb):
    """On either end: the stream ends, and is whole."""
    for i in range(2):
        address = free_address()
        with End(evb, "recv", address, "--progress", output="null") as receiver, \
                sender(evb, address, "--progress", rate=SLOW, transport=("udp", "tcp")[i]) as end:
            wait_packets((receiver, end)[i])
            (receiver, end)[i].signal()
            sent, _ = end.finish()
            received, _ = receiver.finish()
        assert sent["packets_sent"] == received["packets_received"] > 0, (sent, received)


def sender_killed(evb):
    """The receiver does not know what was sent, and says so."""
    address = free_address()
    with End(evb, "recv", address, "--progress", output="null") as receiver, sender(evb, address, rate=CALM) as end:
        wait_packets(receiver)
        end.process.kill()
        received, error = receiver.finish(1)
    assert received["packets_received"] > 0 and received["packets_lost"] is None and "total is unknown" in error, (received, error)


main({"mistakes": mistakes, "refused": refused, "udp": udp, "tcp": tcp, "wire": wire, "echo": echo, "duration": duration,
      "losses": losses, "multicast": multicast, "incomplete-group": incomplete_group, "ctrl-c": ctrl_c, "sender-killed": sender_killed})
