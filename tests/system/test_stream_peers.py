#!/usr/bin/env python3
"""Each end of a stream against a peer that lies, breaks off, or says nothing: the end counts it, says what is wrong, and ends.

    test_stream_peers.py EVB [CASE...]
"""
import contextlib
import re
import select
import signal
import socket
import struct
import time

from harness import LIMIT_S, ROOT, folder, main
from streams import (CALM, HOST, PER_SECOND, SIZE, THREADS, End, Peer, Sender, digest, free_address, has_bytes, is_listening, of, part, recording,
                     repeating, small_disk, wait_until)

@contextlib.contextmanager
def receiving(evb, output, **offer):
    """A receiver of ours, and a sender made by hand."""
    address = free_address()
    with End(evb, "recv", address, output=output) as receiver:
        wait_until("receiver", is_listening(address))
        with Sender(address, **offer) as sender:
            yield receiver, sender


@contextlib.contextmanager
def sending(evb, *flags, size="1MB", **options):
    """A sender of ours, and a receiver made by hand that has read the offer."""
    with socket.create_server(of(free_address())) as server:
        server.settimeout(LIMIT_S)
        with End(evb, "send", "{}:{}".format(*server.getsockname()), *flags, input=f"pattern:{size}", rate=CALM, **options) as sender, \
                Peer(server.accept()[0]) as peer:
            assert peer.hear("open")["protocol"] == 1
            peer.udp.bind((HOST, 0))
            yield sender, peer


def wrong_total(evb):
    """The sender's total contradicts what arrived: the output is not cut, and nothing is called complete."""
    with folder() as where:
        with receiving(evb, where / "out") as (receiver, sender):
            for n in range(10):
                sender.packet(n)
            wait_until("data", has_bytes(where / "out", 10 * SIZE))
            sender.end(4)
            assert sender.hear("report")["report"]["packets"] == 10
            _, error = receiver.finish(1)
            assert "the sender announced 4 packets, but number 9 has arrived" in error, error
        assert (where / "out").read_bytes() == b"".join(map(part, range(10)))
    # More than arrived, with a size that contradicts it: each packet has its place.
    with folder() as where:
        with receiving(evb, where / "out") as (receiver, sender):
            sender.packet(1)
            sender.end(4, size=5)
            report, error = receiver.finish(1)
            assert "3 packets are missing" in error and report["packets_lost"] == 3, (error, report)
        assert (where / "out").read_bytes() == bytes(SIZE) + part(1) + bytes(2 * SIZE)


def endless_total(evb):
    """The sender's total is more than a link carries in the time: the output ends with what has arrived."""
    for total in (2 ** 40, 2 ** 63 - 1):
        with receiving(evb, "null") as (receiver, sender):
            sender.packet(0)
            sender.packet(2)
            sender.end(total, size=2 ** 63 - 1)
            assert sender.hear("report")["report"]["written_bytes"] == 3 * SIZE
            report, error = receiver.finish(1)
            assert f"announced {total} packets, but cannot have sent more than" in error and "1 packet is missing" in error, error
            assert report["packets_sent"] is None and report["packets_received"] == 2, report


def long_jump(evb):
    """A sequence number that no link reaches within a minute: it is not of this stream, and nothing is filled in."""
    size = 65000
    with receiving(evb, "null", payload_bytes=size) as (receiver, sender):
        for n in (0, 2 ** 26 - 1, 1):
            sender.packet(n, size=size)
        wait_until("packets", lambda: sender.hear("statistics")["packets"] == 2)
        sender.end(2, size=2 * size)
        report, _ = receiver.finish()
        assert report["datagrams_foreign"] == 1 and report["bytes"] == 2 * size, report


def no_total(evb):
    for wrong in ({}, {"packets": "3", "bytes": 3 * SIZE}, {"packets": 3, "bytes": -1}, {"packets": 3}, {"packets": 3, "bytes": 3000.0}):
        with folder() as where, receiving(evb, where / "out") as (receiver, sender):
            for n in range(3):
                sender.packet(n)
            wait_until("data", has_bytes(where / "out", 3 * SIZE))
            sender.say("end", **wrong)
            _, error = receiver.finish(1)
            assert "does not say how much it sent" in error, error
            assert (where / "out").stat().st_size == 3 * SIZE


def wrong_report(evb):
    """The sender's report is nonsense; what is lost is known all the same."""
    for report in ("none", [1, 2], 7, None, {"packets": "many", "reason": 5}, {"packets": 1, "bytes": -5, "seconds": "long"}):
        with folder() as where, receiving(evb, where / "out") as (receiver, sender):
            sender.packet(0)
            sender.packet(2)
            sender.say("end", packets=3, bytes=3 * SIZE, report=report)
            assert sender.hear("report")["report"]["filled_in"] == 1
            assert receiver.process.wait(LIMIT_S) == 1
            error = receiver.process.stderr.read().decode()
            assert "1 packet is missing" in error, error
            assert (where / "out").read_bytes() == part(0) + bytes(SIZE) + part(2)


def wrong_packets(evb):
    """Short ones inside the stream, and some after its end: none moves the others from their places."""
    with folder() as where:
        with receiving(evb, where / "out") as (receiver, sender):
            # Number 4 would be given up after a second.
            receiver.signal(signal.SIGSTOP)
            for n in (0, 1, 3):
                sender.packet(n)
            sender.packet(2, b"short")
            sender.packet(2)
            sender.packet(5, b"tail")
            sender.packet(6)
            sender.packet(5)
            sender.packet(3, b"another")
            sender.packet(2 ** 63)
            # The output waits for it, so that the others have arrived before.
            sender.packet(4)
            receiver.signal(signal.SIGCONT)
            wait_until("data", has_bytes(where / "out", 5 * SIZE + 4))
            sender.end(6, size=5 * SIZE + 4)
            report, _ = receiver.finish()
            assert report["packets_received"] == 6 and report["datagrams_short"] == 2, report
            assert report["datagrams_foreign"] == 2 and report["packets_duplicate"] == 1, report
        assert (where / "out").read_bytes() == b"".join(map(part, range(5))) + b"tail"


def no_silence(evb):
    """A sender that repeats itself after the end, and one that goes on after it left: the receiver ends."""
    with folder() as where, receiving(evb, where / "out") as (receiver, sender):
        sender.packet(0)
        with repeating(lambda: sender.packet(0)) as repeated:
            assert repeated.wait(LIMIT_S)
            sender.end(2)
            report, _ = receiver.finish(1)
        assert report["packets_lost"] == 1 and report["packets_duplicate"] > 0, report
    with folder() as where, receiving(evb, where / "out") as (receiver, sender):
        numbers = iter(range(10 ** 9))
        with repeating(lambda: sender.packet(next(numbers))):
            wait_until("data", has_bytes(where / "out"))
            sender.leave()
            _, error = receiver.finish(1)
        assert "the sender left" in error and "total is unknown" in error, error


def nonsense(evb):
    """In the middle of the stream: words that are not JSON, too long, or of no known kind."""
    for text, expected in ((b"]\n", "Bad message"), (b"[1]\n", "Bad message"), (b"{" * (3 << 20), "Message too long")):
        with folder() as where, receiving(evb, where / "out") as (receiver, sender):
            sender.packet(0)
            with contextlib.suppress(OSError):
                sender.tcp.sendall(text)
            _, error = receiver.finish(1)
            assert "the sender left" in error and expected in error, error
    with folder() as where, receiving(evb, where / "out") as (receiver, sender):
        sender.say("open", **sender.offer)
        for kind in ("statistics", "ready", "stop", "report", "refused", "hello", "news", ""):
            sender.say(kind, lost="much", packets=None, report=[], reason={})
        for _ in range(5000):
            sender.say("statistics", packets=1, bytes=2)
        sender.tcp.sendall(b'{"type": 5}\n{"type": null}\n{}\n\n')
        sender.packet(0)
        sender.end(1)
        report, _ = receiver.finish()
        assert report["packets_received"] == 1, report


def wrong_answers(evb):
    """A receiver that is ready in no way, or breaks off."""
    for port in (0, -1, 65536, "5000", None, 2.5):
        with sending(evb) as (sender, peer):
            peer.say("ready", udp_port=port)
            report, error = sender.finish(1)
            assert report is None and "no valid UDP port" in error, error
    with sending(evb, "--progress") as (sender, peer):
        # Too early, or of the wrong kind.
        for kind in ("stop", "report", "statistics", "hello", "end", "open"):
            peer.say(kind, reason=5, report={}, lost=-1)
        peer.say("ready", udp_port=peer.udp.getsockname()[1])
        peer.say("ready", udp_port=1)
        peer.say("statistics", lost="many")
        peer.udp.settimeout(LIMIT_S)
        assert len(peer.udp.recv(65536)) > 16
        peer.leave()
        report, error = sender.finish(1)
        assert "the receiver left" in error and report["packets_received"] is None, (error, report)


def wrong_reports(evb):
    for received, message in (("all", "invalid report"), ({"packets": 10 ** 9}, "reports more than the"),
                              ({}, "misses"), ({"packets": "x", "late": [], "corrupt": "y"}, "misses"), ({"packets": -5}, "misses"),
                              ({"packets": -2 ** 63, "late": -2 ** 63, "socket_packets": -2 ** 63}, "misses")):
        with sending(evb) as (sender, peer):
            peer.say("ready", udp_port=peer.udp.getsockname()[1])
            assert peer.hear("end")["packets"] > 0
            peer.say("report", report=received)
            assert sender.process.wait(LIMIT_S) == 1
            error = sender.process.stderr.read().decode()
            assert message in error, (received, error)


def closed_port(evb):
    """Nobody listens at the receiver's UDP port: the sender goes on, and the loss is accounted for."""
    with sending(evb) as (sender, peer):
        port = peer.udp.getsockname()[1]
        peer.udp.close()
        peer.say("ready", udp_port=port)
        end = peer.hear("end")
        peer.say("report", report={"packets": 0, "bytes": 0, "late": 0, "socket_packets": 0, "nic_packets": 0, "seconds": 0.0})
        report, error = sender.finish(1)
        assert report["packets_lost"] == report["packets_sent"] == end["packets"] > 0, report
        assert "misses" in error, error


def silent(evb):
    """A peer that holds the connection but says nothing more, as one that was stopped."""
    with folder() as where, receiving(evb, where / "out") as (receiver, _), sending(evb, size="1TB") as (sender, peer):
        peer.say("ready", udp_port=peer.udp.getsockname()[1])
        _, error = sender.finish(1)
        assert "the receiver left: it was silent for 20 s" in error, error
        _, error = receiver.finish(1)
        assert "the sender left: it was silent for 20 s" in error, error


def slow_output(evb):
    """A receiver that speaks, but takes long to write, is not silent."""
    with sending(evb) as (sender, peer):
        peer.say("ready", udp_port=peer.udp.getsockname()[1])
        end = peer.hear("end")
        begin = time.monotonic()
        # Longer than the silence that ends a stream.
        while time.monotonic() < begin + 22:
            peer.say("statistics", packets=1, bytes=1, lost=0)
            assert peer.hear("statistics"), "the sender left"
            select.select([], [], [], 0.5)
        peer.say("report", report={**end["report"], "late": 0, "socket_packets": 0, "nic_packets": 0})
        sender.finish()


@contextlib.contextmanager
def followed(evb, size, **ready):
    """A sender of ours without a rate, and a receiver made by hand that accepts its offer."""
    with socket.create_server(of(free_address())) as server:
        server.settimeout(LIMIT_S)
        with End(evb, "send", "{}:{}".format(*server.getsockname()), input=f"pattern:{size}", packet_size=SIZE + 16) as sender, \
                Peer(server.accept()[0]) as peer:
            assert peer.hear("open")["follows"]
            peer.udp.bind((HOST, 0))
            peer.udp.settimeout(LIMIT_S)
            peer.say("ready", udp_port=peer.udp.getsockname()[1], **ready)
            yield sender, peer


def progress(evb):
    """A sender without a rate sends no more than the receiver permits, by its window and by the room in its ring."""
    def next_ones(n):
        return [struct.unpack("<Q", peer.udp.recv(2 * SIZE)[:8])[0] for _ in range(n)]

    with followed(evb, 40 * SIZE, window=10, seen=0, room=17) as (sender, peer):
        assert next_ones(10) == list(range(10))
        peer.say("progress", seen=5, room=17)
        assert next_ones(5) == list(range(10, 15))
        # The packets on their way may be lost: without progress, one more follows, as long as the ring has room.
        assert next_ones(2) == [15, 16]
        peer.say("progress", seen=17, room=18)
        assert next_ones(1) == [17]
        # All have arrived and the ring is full: nothing follows, for longer than a stall.
        peer.say("progress", seen=18, room=18)
        assert not select.select([peer.udp], [], [], 1)[0]
        # A report that goes back, or makes no sense, changes nothing.
        peer.say("progress", seen=-1, room="much")
        peer.say("progress", seen=18, room=40)
        assert next_ones(10) == list(range(18, 28))
        peer.say("progress", seen=40, room=50)
        assert next_ones(12) == list(range(28, 40))
        end = peer.hear("end")
        assert end["packets"] == 40
        peer.say("report", report={**end["report"], "late": 0, "socket_packets": 0, "nic_packets": 0})
        sender.finish()


def no_progress(evb):
    """A receiver that reports no progress gets all packets at once, and the sender warns."""
    with followed(evb, 40 * SIZE) as (sender, peer):
        end = peer.hear("end")
        assert end["packets"] == 40
        peer.say("report", report={**end["report"], "late": 0, "socket_packets": 0, "nic_packets": 0})
        _, error = sender.finish()
        assert "does not report its progress, so packets may be lost; use --rate" in error, error


def full_disk(evb, *flags):
    """Each packet that the receiver no longer takes counts as lost there, and those that the network lost before and after do not."""
    lost, size = (20, 305), 8000
    address = free_address()
    with folder() as where, End([*small_disk(where, "64k"), evb], "recv", address, *flags, output=where / "out", window=0) as receiver:
        wait_until("receiver", lambda: receiver.process.poll() is not None or is_listening(address)())
        if flags and receiver.process.poll() == 2:
            raise Skip("tmpfs has no direct writes here")
        with Sender(address, payload_bytes=size) as sender:
            for n in range(300):
                if n not in lost:
                    sender.packet(n, size=size)
            assert sender.hear("stop")["reason"].endswith("out: cannot write: No space left on device")
            for n in range(300, 310):
                if n not in lost:
                    sender.packet(n, size=size)
            sender.end(310, size=310 * size, source_packets=0)
            assert sender.hear("report")["report"]["untaken_packets"] >= 9
        report, error = receiver.finish(1)
    assert f"{where}/out: cannot write: No space left on device" in error, error
    assert report["lost_at"] == {"source": 0, "network": 2, "nic": 0, "socket": 0, "receiver": report["packets_lost"] - 2}, report


def documented():
    """The members of each message in docs/streams.md."""
    rows = re.findall(r"^\| `([a-z]+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "streams.md").read_text(), re.M)
    return {kind: set(re.findall(r"`([a-z_]+)`", members)) for kind, members in rows if kind not in ("protocol", "program", "format")}


def protocol(evb):
    """Each message has the members that docs/streams.md lists, and no others."""
    heard = {}

    def note(peer, kind):
        message = peer.hear(kind)
        heard.setdefault(message.pop("type"), set()).update(message)
        return message

    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(recording(4)))
        with socket.create_server(of(free_address())) as server, \
                End(evb, "send", "{}:{}".format(*server.getsockname()), format="vdif", input=where / "in.vdif", rate=CALM) as sender, \
                Peer(server.accept()[0]) as peer:
            offer = note(peer, "open")
            assert offer["vdif"]["frames_per_second"] == PER_SECOND and len(offer["vdif"]["headers"]) == len(THREADS), offer
            assert all(re.fullmatch("[0-9a-f]{16}", offer[name]) for name in ("cookie", "key")), offer
            peer.udp.bind((HOST, 0))
            for _ in "answered", "refused":
                peer.say("compare", first=0, packets=1)
                note(peer, "digests")
            peer.say("ready", udp_port=peer.udp.getsockname()[1])
            note(peer, "end")
            note(peer, "statistics")
            for ranges in ([[0, 1]], None):
                peer.say("gaps", ranges=ranges)
                note(peer, "repaired")
            peer.say("report", report={})
            sender.finish(1)
        with socket.create_server(of(free_address())) as server, \
                End(evb, "send", "{}:{}".format(*server.getsockname()), format="raw"), Peer(server.accept()[0]) as peer:
            assert note(peer, "open")["raw"] == {"tcp": False, "echo": False, "group": None, "warm_up_ns": 0, "duration_ns": 0}
        address = free_address()
        with End(evb, "recv", address, "--repair", output=where / "out") as receiver:
            wait_until("receiver", is_listening(address))
            with Sender(address, repairs=True) as sender:
                sender.end(1)
                note(sender, "gaps")
            receiver.finish(1)
        (where / "copy").write_bytes(part(0))
        with End(evb, "recv", address, "--resume", output=where / "copy") as receiver:
            wait_until("receiver", is_listening(address))
            with Sender(address, repairs=True, resumes=True, answer="compare") as sender:
                heard["compare"] = set(sender.ready) - {"type"}
                sender.say("digests", digests=[digest(part(0))])
                note(sender, "ready")
                sender.end(1)
            receiver.finish()
        with End(evb, "recv", address, "--overwrite", output=where / "out") as receiver:
            wait_until("receiver", is_listening(address))
            with Peer(socket.create_connection(of(address))) as stranger:
                stranger.say("open")
                note(stranger, "refused")
            with Sender(address, follows=True) as sender:
                heard["ready"] |= set(sender.ready) - {"type"}
                for n in range(sender.ready["window"]):
                    sender.packet(n)
                note(sender, "progress")
                note(sender, "statistics")
                receiver.signal()
                note(sender, "stop")
                sender.end(sender.ready["window"])
                note(sender, "report")
                receiver.finish()
        with socket.create_server(of(free_address())) as server, \
                End(evb, "recv", "{}:{}".format(*server.getsockname()), "--connect", output="null"), Peer(server.accept()[0]) as peer:
            note(peer, "hello")
    assert heard == documented(), (heard, documented())


main({"wrong-total": wrong_total, "endless-total": endless_total, "long-jump": long_jump, "no-total": no_total, "wrong-report": wrong_report, "wrong-packets": wrong_packets,
      "no-silence": no_silence, "nonsense": nonsense, "wrong-answers": wrong_answers, "wrong-reports": wrong_reports,
      "closed-port": closed_port, "silent": silent, "slow-output": slow_output, "progress": progress, "no-progress": no_progress, "full-disk": full_disk,
      "full-disk-direct": lambda evb: full_disk(evb, "--direct"), "protocol": protocol})
