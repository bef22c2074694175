#!/usr/bin/env python3
"""Streams over a link that changes, goes down, or does not carry what is asked for.

    test_stream_network.py EVB [CASE...]
"""
import contextlib
import signal
import time

from harness import folder, main
from network import Network
from streams import THREADS, End, has_bytes, recording, small_frame, wait_until, works_on

AT = "10.9.0.2:26900"
RATE = "10Mbit"


@contextlib.contextmanager
def link(evb):
    """Two machines and a link; returns what runs evb on each, and the network."""
    with Network("a", "b") as network:
        network.pair("a", "b")
        yield *([*("ip", "netns", "exec", network.name(node)), evb] for node in "ab"), network


@contextlib.contextmanager
def stream(evb, where):
    with link(evb) as (a, b, network), End(b, "recv", AT, output=where / "out", window=0) as receiver, \
            End(a, "send", AT, input="pattern:1TB", rate=RATE, packet_size=1472) as sender:
        wait_until("data", has_bytes(where / "out"))
        yield sender, receiver, network


def grows(path):
    """Waits until packets arrive again, after what was lost."""
    wait_until("more data", has_bytes(path, path.stat().st_size + 1000000))


def sent_datagrams(network):
    names, values = (line.split() for line in network.run("a", "cat", "/proc/net/snmp").stdout.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("OutDatagrams")])


def small_mtu(evb):
    """Frames are cut to what the link carries; what cannot be cut is refused before anything is sent."""
    with folder() as where, link(evb) as (a, b, _):
        (where / "in.vdif").write_bytes(b"".join(recording(10)))
        # 1471 is a prime number.
        (where / "odd.vdif").write_bytes(b"".join(small_frame(i, 0, size=8 * 1471) for i in range(9)))
        for options, message in (({"format": "vdif", "input": where / "odd.vdif"}, "frames of 11768 bytes cannot be cut"),
                                 ({"packet_size": 1473, "input": "pattern:1MB"}, "expected 17 to 1472"),
                                 ({"packet_size": 1473, "format": "vdif", "input": where / "in.vdif"}, "expected 9 to 1472")):
            with End(a, "send", AT, **options) as sender:
                report, error = sender.finish(2)
                assert report is None and message in error, error
        with End(b, "recv", AT, output=where / "out.vdif") as receiver, \
                End(a, "send", AT, format="vdif", rate=RATE, input=where / "in.vdif") as sender:
            sender.finish()
            assert receiver.finish()[0]["packets_received"] == 4 * 10 * len(THREADS)
        assert (where / "out.vdif").read_bytes() == (where / "in.vdif").read_bytes()


def mtu_shrinks(evb):
    """In the middle of a stream, for a while: the sender's kernel refuses packets, and they count as lost there."""
    with folder() as where, stream(evb, where) as (sender, receiver, network):
        network.ip("a", "link", "set", "eth0", "mtu", "1000")
        works_on(sender.process, "evb-network")
        network.ip("a", "link", "set", "eth0", "mtu", "1500")
        grows(where / "out")
        sender.signal()
        sent, error = sender.finish(1)
        receiver.finish(1)
        assert sent["lost_at"]["source"] > 0 and "refused" in error and "Message too long" in error, (error, sent)
        assert (where / "out").stat().st_size == 1456 * sent["packets_sent"], sent


def link_down(evb):
    """For a while: the stream goes on afterwards, and each packet is in its place."""
    with folder() as where, stream(evb, where) as (sender, receiver, network):
        network.ip("b", "link", "set", "eth0", "down")
        # A third of these may wait for the address of the other machine, and arrive after all.
        wait_until("packets", lambda least=sent_datagrams(network) + 300: sent_datagrams(network) >= least)
        network.ip("b", "link", "set", "eth0", "up")
        grows(where / "out")
        sender.signal()
        sent, _ = sender.finish(1)
        receiver.finish(1)
        assert sent["packets_lost"] > 0, sent
        assert (where / "out").stat().st_size == 1456 * sent["packets_sent"], sent


def machine_gone(evb):
    """For good: both ends notice, and report what they know."""
    with folder() as where, stream(evb, where) as (sender, receiver, network):
        network.ip("b", "link", "set", "eth0", "down")
        sent, error = sender.finish(1)
        assert "the receiver left" in error and sent["packets_received"] is None, (error, sent)
        received, error = receiver.finish(1)
        assert "the sender left" in error and received["packets_sent"] is None, (error, received)
        assert received["bytes"] > 0 and (where / "out").stat().st_size >= received["bytes"], received


def stopped(evb):
    """One end is stopped for a moment, and then the other: nothing ends, and what was lost is accounted for."""
    with folder() as where, stream(evb, where) as (sender, receiver, _):
        for end in (receiver, sender):
            end.signal(signal.SIGSTOP)
            time.sleep(0.3)
            end.signal(signal.SIGCONT)
            grows(where / "out")
        sender.signal()
        sent, _ = sender.finish(sender.process.wait())
        receiver.finish(sender.process.returncode)
        assert (sent["packets_lost"] > 0) == (sender.process.returncode == 1), sent
        assert (where / "out").stat().st_size == 1456 * sent["packets_sent"], sent


main({"small-mtu": small_mtu, "mtu-shrinks": mtu_shrinks, "link-down": link_down, "machine-gone": machine_gone, "stopped": stopped})
