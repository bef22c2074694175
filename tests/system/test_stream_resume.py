#!/usr/bin/env python3
"""Copies that were interrupted and go on: the result equals the file, or the copy stays as it was, and both ends say why.

    test_stream_resume.py EVB [CASE...]
"""
import contextlib
import os
import random
import signal
import struct
import subprocess
import socket

from harness import CHANCE, LIMIT_S, chance_of_no_loss, folder, main
from streams import CALM, FRAME, HOST, SIZE, End, Peer, Sender, digest, failed, free_address, has_bytes, is_listening, of, part, recording, wait_until

PACKET = 1472
PAYLOAD = PACKET - 16
# What a copy has before an end is killed, seconds before the stream could end.
PART, SLOW = 300_000, "1Mbit"


def ends(evb, source, out, *flags, receive=None, **send):
    """A receiver that resumes the copy, and a sender."""
    address = free_address()
    return End(evb, "recv", address, "--resume", *flags, output=out, **(receive or {})), End(evb, "send", address, input=source, **send)


def resumed(evb, source, out, *flags, expect=0, receive=None, **send):
    receiver, sender = ends(evb, source, out, *flags, receive=receive, **send)
    with receiver, sender:
        sent, sender_error = sender.finish(expect)
        received, receiver_error = receiver.finish(expect)
    return sent, received, sender_error, receiver_error


def check(evb, where, data, least=1, **options):
    """Resumes the copy until it is whole; what it had does not come again."""
    had = (where / "out").stat().st_size
    sent, received, *_ = resumed(evb, where / "in", where / "out", rate=CALM, **options)
    assert (where / "out").read_bytes() == data
    assert least <= received["resumed_bytes"] <= had, (had, received)
    assert sent["packets_lost"] == received["packets_lost"] == 0 and received["bytes"] + received["resumed_bytes"] == len(data), received
    return received


def killed(evb, who, name, data, loss=None, **options):
    """One end is killed, perhaps after losses; the copy goes on with new ends."""
    with folder() as where:
        (where / "in").write_bytes(data)
        address = free_address()
        with End(evb, "recv", address, output=where / "out", **({"fault": f"loss={loss}"} if loss else {})) as receiver, \
                End(evb, "send", address, input=where / "in", rate=SLOW, **options) as sender:
            wait_until("data", has_bytes(where / "out", PART))
            (receiver if who == "recv" else sender).signal(signal.SIGKILL)
            (sender if who == "recv" else receiver).finish(1)
        had = (where / "out").read_bytes()
        whole = next((i for i, (a, b) in enumerate(zip(had, data)) if a != b), len(had))
        assert len(had) < len(data) and (whole < len(had)) == bool(loss), (name, whole, len(had))
        received = check(evb, where, data, least=PART - FRAME, **options)
        assert ((received["packets_sent_again"] or 0) > 0) == bool(loss), received
        assert received["frames_invalid"] == 0, received
        # A whole copy needs nothing more, but the last packet, which is shorter than the others.
        assert check(evb, where, data, **options)["packets_received"] <= 1


def kills(evb):
    data, frames = random.Random(5).randbytes(3000001), b"".join(recording(75))
    assert chance_of_no_loss(PART // PACKET, 0.15) < CHANCE
    killed(evb, "recv", "plain", data, packet_size=PACKET)
    killed(evb, "send", "plain, lost packets", data, loss="15%", packet_size=PACKET)
    killed(evb, "recv", "VDIF", frames, format="vdif")
    killed(evb, "send", "VDIF in parts, lost packets", frames, loss="15%", format="vdif", packet_size=PACKET)


def sizes(evb):
    """Copies of any length, some long enough for several requests; with direct reads too, and with a sender that listens."""
    data = random.Random(6).randbytes(20_000_003)
    with folder() as where:
        (where / "in").write_bytes(data)
        attempt = subprocess.run([evb, "stream", "send", free_address(), "--direct", "--wait", "1ms", "--input", where / "in"], capture_output=True)
        direct = ("--direct",) if attempt.returncode != 2 else ()
        for n, flags in ((0, ()), (1, ()), (PAYLOAD - 1, ()), (PAYLOAD, ()), (19_000_000, ()), (19_999_999, direct), (len(data), ())):
            (where / "out").write_bytes(data[:n])
            address = free_address()
            with End(evb, "recv", address, "--resume", output=where / "out", wake="signal=7" if n == 19_000_000 else "futex") as receiver, \
                    End(evb, "send", address, *flags, input=where / "in", packet_size=PACKET) as sender:
                sender.finish()
                received, _ = receiver.finish()
            assert (where / "out").read_bytes() == data, n
            assert (received["resumed_bytes"] or 0) == n - n % PAYLOAD, (n, received)
        (where / "out").write_bytes(data[:15_000_000])
        address = free_address()
        with End(evb, "send", address, "--listen", input=where / "in", packet_size=PACKET) as sender, \
                End(evb, "recv", address, "--connect", "--resume", output=where / "out") as receiver:
            sender.finish()
            received, _ = receiver.finish()
        assert (where / "out").read_bytes() == data and received["resumed_bytes"] > 14_990_000, received


def changed(evb):
    """A file that is another one, or shorter than the copy: both ends say so, and the copy stays as it was."""
    data = random.Random(7).randbytes(1_000_000)
    with folder() as where:
        out = where / "out"
        for name, copy, message in (("another byte", data[:500_000] + b"\0" + data[500_001:900_000], "it differs from the sender's file"),
                                    ("longer", data + data[:2 * PAYLOAD], "the file is shorter than the copy")):
            (where / "in").write_bytes(data)
            out.write_bytes(copy)
            _, _, sender_error, receiver_error = resumed(evb, where / "in", out, expect=1, packet_size=PACKET)
            assert message in sender_error and message in receiver_error and "cannot resume" in receiver_error, (name, sender_error, receiver_error)
            assert out.read_bytes() == copy, name
        # An input that cannot be compared: the receiver waits for another sender.
        address = free_address()
        with End(evb, "recv", address, "--resume", output=out) as receiver:
            with End(evb, "send", address, input="-", stdin=subprocess.PIPE) as sender:
                assert "needs a file as input" in sender.finish(1)[1]
            with End(evb, "send", address, input="pattern:1MB") as sender:
                assert "needs a file as input" in sender.finish(1)[1]
            receiver.signal()
            receiver.finish(1)
        assert out.read_bytes() == copy
    for flags, message in ((["--overwrite", "--output", "x"], "--resume excludes --overwrite"), (["--no-control", "--output", "x"], "--no-control excludes"),
                           (["--output", "null"], "--resume needs a file as output")):
        assert message in failed(evb, "recv", free_address(), "--resume", *flags)


def sender_by_hand(evb):
    """Answers that are none, and a sender that leaves: the copy stays as it was. Packets that stay missing are named."""
    copy = b"".join(map(part, range(1, 6)))
    for answer, message in (({"digests": []}, "the sender's answer is invalid"), ({"digests": ["0"] * 6}, "the sender's answer is invalid"),
                            ({}, "the sender's answer is invalid"), ({"digests": [None] * 5}, "it differs"), ({"reason": "it\nrains"}, "it?rains"),
                            (None, "the sender left")):
        with folder() as where:
            (where / "out").write_bytes(copy)
            address = free_address()
            with End(evb, "recv", address, "--resume", output=where / "out") as receiver:
                wait_until("receiver", is_listening(address))
                with Sender(address, repairs=True, resumes=True, answer="compare") as sender:
                    assert sender.ready == {"type": "compare", "first": 0, "packets": 5}, sender.ready
                    if answer is None:
                        sender.leave()
                    else:
                        sender.say("digests", **answer)
                        assert message in sender.hear("refused")["reason"]
                        sender.leave()
                assert message in receiver.finish(1)[1], message
            assert (where / "out").read_bytes() == copy, answer
    # What the copy misses, and is not sent again, is missing at the end.
    with folder() as where:
        (where / "out").write_bytes(copy + bytes(SIZE))
        address = free_address()
        with End(evb, "recv", address, "--resume", output=where / "out") as receiver:
            wait_until("receiver", is_listening(address))
            with Sender(address, repairs=True, resumes=True, answer="compare") as sender:
                assert sender.ready["packets"] == 6, sender.ready
                sender.say("digests", digests=[*(digest(part(n)) for n in range(1, 6)), digest(part(9))])
                ready = sender.hear("ready")
                assert ready["first"] == 6, ready
                sender.udp.connect((HOST, ready["udp_port"]))
                sender.packet(6)
                sender.say("end", packets=7, bytes=7 * SIZE, report={"packets": 1})
                assert sender.hear("gaps")["ranges"] == [[5, 1]]
                sender.say("repaired", packets=0, reason="enough")
                report = sender.hear("report")["report"]
                assert (report["packets"], report["repaired"], report["resumed_bytes"], report["failed"]) == (1, 0, 6 * SIZE, True), report
                sender.leave()
            assert "1 packets of the resumed copy are missing" in receiver.finish(1)[1]
        assert (where / "out").read_bytes() == copy + bytes(SIZE) + part(6)


@contextlib.contextmanager
def offering(evb, where):
    """A sender of ours with a file of 10 packets, and a receiver made by hand."""
    (where / "in").write_bytes(b"".join(map(part, range(10))))
    with socket.create_server(of(free_address())) as server:
        server.settimeout(LIMIT_S)
        with End(evb, "send", "{}:{}".format(*server.getsockname()), input=where / "in", packet_size=SIZE + 16, rate=CALM) as sender, \
                Peer(server.accept()[0]) as peer:
            assert peer.hear("open")["resumes"]
            peer.udp.bind((HOST, 0))
            peer.udp.settimeout(LIMIT_S)
            yield sender, peer


def receiver_by_hand(evb):
    """Requests in order are answered, others are not; the stream begins only where the copy was compared."""
    with folder() as where, offering(evb, where) as (sender, peer):
        for first, packets in ((0, 0), (0, 4097), (-1, 1), ("0", 1), (2 ** 63 - 1, 1), (None, None)):
            peer.say("compare", first=first, packets=packets)
            assert peer.hear("digests") == {"type": "digests", "reason": "the request to compare is invalid"}, (first, packets)
        peer.say("compare", first=0, packets=4)
        first = peer.hear("digests")["digests"]
        assert len(first) == 4 == len(set(first)), first
        # Not again, and not beyond the end.
        peer.say("compare", first=0, packets=4)
        assert "invalid" in peer.hear("digests")["reason"]
        peer.say("compare", first=9, packets=2)
        assert "shorter" in peer.hear("digests")["reason"]
        peer.say("ready", udp_port=peer.udp.getsockname()[1], first=4)
        for n in range(4, 10):
            packet = peer.udp.recv(65536)
            assert packet[:8] == struct.pack("<Q", n) and packet[16:] == part(n), n
        end = peer.hear("end")
        assert (end["packets"], end["bytes"], end["report"]["packets"], end["report"]["bytes"]) == (10, 10 * SIZE, 6, 6 * SIZE), end
        peer.say("gaps", ranges=[[2, 1], [9, 1]])
        for n in (2, 9):
            packet = peer.udp.recv(65536)
            assert packet[:8] == struct.pack("<Q", n) and packet[16:] == part(n), n
        assert peer.hear("repaired")["packets"] == 2
        peer.say("report", report={**end["report"], "late": 0, "socket_packets": 0, "nic_packets": 0})
        sender.finish()
    with folder() as where, offering(evb, where) as (sender, peer):
        peer.say("compare", first=0, packets=4)
        peer.hear("digests")
        # The file does not have these.
        peer.say("compare", first=9, packets=2)
        peer.hear("digests")
        peer.say("ready", udp_port=peer.udp.getsockname()[1], first=5)
        assert "it resumes where it has not compared its copy" in sender.finish(1)[1]
    # The receiver leaves.
    with folder() as where, offering(evb, where) as (sender, peer):
        peer.say("compare", first=0, packets=4)
        peer.hear("digests")
        peer.leave()
        assert "the receiver left" in sender.finish(1)[1]
    # The file changes between the comparison and a request.
    with folder() as where, offering(evb, where) as (sender, peer):
        peer.say("compare", first=0, packets=4)
        peer.hear("digests")
        os.utime(where / "in", (1, 1))
        peer.say("compare", first=4, packets=1)
        assert peer.hear("digests")["reason"] == "the file was changed"
        peer.say("refused", reason="so be it")
        assert "so be it" in sender.finish(1)[1]


if __name__ == "__main__":
    main({"kills": kills, "sizes": sizes, "changed": changed, "sender-by-hand": sender_by_hand, "receiver-by-hand": receiver_by_hand})
