#!/usr/bin/env python3
"""Streams whose lost packets are sent again at the end: the same bytes arrive, and a peer that lies or breaks off changes nothing else.

    test_stream_repair.py EVB [CASE...]
"""
import contextlib
import os
import random
import socket
import struct
import subprocess

from harness import CHANCE, LIMIT_S, chance_of_no_loss, folder, made, main
from streams import CALM, FRAME, HOST, SIZE, End, Peer, Sender, failed, free_address, invalid, is_listening, of, part, recording, repeating, small_frame, wait_until


def receiver_of(evb, address, output, *flags, **options):
    return End(evb, "recv", address, "--repair", *flags, output=output, **options)


def moved(evb, source, sink, *flags, receive=None, expect=0, **send):
    """Moves one stream with --repair; returns the reports of both ends."""
    address = free_address()
    with receiver_of(evb, address, sink, *flags, **(receive or {})) as receiver, End(evb, "send", address, input=source, **send) as sender:
        sent, _ = sender.finish(expect)
        received, error = receiver.finish(expect)
    for name in ("packets_sent", "packets_received", "packets_lost", "packets_repaired", "packets_sent_again", "packets_late"):
        assert sent[name] == received[name], (name, sent[name], received[name])
    return received, error


def files(evb):
    """Plain data, at a rate and without, past the page cache too; the last packet is shorter than the others."""
    data = random.Random(5).randbytes(1456 * 2000 - 7)
    assert chance_of_no_loss(2000, 0.05) < CHANCE
    with folder() as where:
        (where / "in").write_bytes(data)
        # Not all file systems support direct writes.
        words = ["stream", "recv", free_address(), "--connect", "--wait", "1ms", "--direct", "--output", where / "try"]
        attempt = subprocess.run([evb, *words], capture_output=True)
        direct = ("--direct",) if attempt.returncode != 2 else ()
        for i, (flags, loss, send) in enumerate((((), "5%", {"rate": CALM}), ((), "1%,reorder=5%,duplicate=5%", {}),
                                                 (direct, "60%", {"rate": "200Mbit"}))):
            out = where / f"out{i}"
            received, _ = moved(evb, where / "in", out, *flags, packet_size=1472, receive={"fault": f"loss={loss}"}, **send)
            assert out.read_bytes() == data, i
            assert received["packets_lost"] == received["frames_filled_in"] == 0 < received["repair_seconds"], received
            assert received["bytes"] == len(data), received
            assert received["packets_sent_again"] >= received["packets_repaired"] > 0, received
        received, _ = moved(evb, "pattern:3MB", "pattern", packet_size=1472, receive={"fault": "loss=5%"}, rate=CALM)
        assert received["corrupt"] == 0 and received["packets_repaired"] > 0, received


def vdif(evb):
    """Frames, whole and in parts: none is marked invalid in the end."""
    five, eight = recording(50), [small_frame(number, 5, size=8032) for number in range(150)]
    assert max(chance_of_no_loss(n, 0.1) for n in (len(five), 8 * len(eight))) < CHANCE
    with folder() as where:
        for frames, size in ((five, None), (five, 1472), (eight, 1472)):
            out = where / f"out{len(frames)}-{size}"
            (where / "in.vdif").write_bytes(b"".join(frames))
            received, _ = moved(evb, where / "in.vdif", out, format="vdif", rate=CALM, receive={"fault": "loss=10%"},
                                **({"packet_size": size} if size else {}))
            assert out.read_bytes() == b"".join(frames), size
            assert received["frames_invalid"] == received["frames_filled_unsure"] == 0 and received["packets_repaired"] > 0, received


def pipe(evb):
    """What cannot be read again stays missing, and the receiver warns."""
    address = free_address()
    with folder() as where, receiver_of(evb, address, where / "out", fault="loss=0.99,seed=7") as receiver, \
            End(evb, "send", address, input="-", rate=CALM, packet_size=1472, stdin=subprocess.PIPE) as sender:
        sender.process.communicate(bytes(2000000), timeout=LIMIT_S)
        received, error = receiver.finish(1)
    assert "the sender cannot send packets again" in error and received["packets_lost"] > 0 == received["packets_repaired"], (error, received)
    with folder() as where:
        os.mkfifo(where / "fifo")
        with open(os.open(where / "fifo", os.O_RDWR)):
            assert "--repair needs a file as output" in failed(evb, "recv", free_address(), "--repair", "--output", where / "fifo")
    assert "invalid value" in failed(evb, "recv", free_address(), "--repair", "--duration", "0s", "--output", "null")


@contextlib.contextmanager
def repairing(evb, output, time="10min", **offer):
    """A receiver of ours with --repair, and a sender made by hand."""
    address = free_address()
    with receiver_of(evb, address, output, repair_time=time) as receiver:
        wait_until("receiver", is_listening(address))
        with Sender(address, **{"repairs": True, **offer}) as sender:
            yield receiver, sender


def sender_by_hand(evb):
    """Rounds until all has arrived; what is not missing, too short, too long or of another stream changes nothing."""
    with folder() as where, repairing(evb, where / "out") as (receiver, sender):
        for n in (0, 2, 6):
            sender.packet(n)
        sender.end(8, size=7 * SIZE + 5)
        assert sender.hear("gaps")["ranges"] == [[1, 1], [3, 3], [7, 1]]
        for n in (0, 2):
            sender.packet(n, b"x" * SIZE)
        sender.packet(1, b"short")
        sender.packet(7)
        sender.packet(8)
        sender.packet(2 ** 63)
        sender.packet(4)
        # Datagrams of others do not delay the next round.
        with socket.socket(type=socket.SOCK_DGRAM) as other, repeating(lambda: other.sendto(b"x", sender.udp.getpeername())) as begun:
            begun.wait()
            sender.say("repaired", packets=1)
            assert sender.hear("gaps")["ranges"] == [[1, 1], [3, 1], [5, 1], [7, 1]]
        for n in (5, 1, 3):
            sender.packet(n)
        sender.packet(7, part(7)[:5])
        sender.say("repaired", packets=5)
        report = sender.hear("report")["report"]
        assert (report["packets"], report["repaired"], report["repair_rounds"], report["filled_in"]) == (8, 5, 2, 0), report
        sender.leave()
        received, _ = receiver.finish()
        assert received["packets_sent_again"] == 5 and received["packets_repaired"] == 5, received
        assert (where / "out").read_bytes() == b"".join(map(part, range(7))) + part(7)[:5]


def part_of_frame(evb):
    """A frame stays marked invalid as long as any part is missing."""
    (frame, *_), size = recording(1), FRAME // 4
    offer = {"format": "vdif", "payload_bytes": size, "vdif": {"frames_per_second": 1600, "headers": [frame[:32].hex()]}}
    with folder() as where, repairing(evb, where / "out", **offer) as (receiver, sender):
        def send(*parts):
            for n in parts:
                sender.udp.send(struct.pack("<Q", n) + frame[n * size:(n + 1) * size])
        send(1, 3)
        sender.end(4, size=FRAME)
        assert sender.hear("gaps")["ranges"] == [[0, 1], [2, 1]]
        send(0)
        sender.say("repaired", packets=1)
        assert sender.hear("gaps")["ranges"] == [[2, 1]]
        sender.say("repaired", packets=1, reason="enough")
        report = sender.hear("report")["report"]
        assert (report["packets"], report["repaired"], report["invalid"], report["filled_in"]) == (3, 1, 1, 1), report
        sender.leave()
        receiver.finish(1)
        marked = invalid(frame)[:32] + frame[32:]
        assert (where / "out").read_bytes() == marked[:2 * size] + bytes(size) + marked[3 * size:]
    # A stream that ends within a frame.
    with folder() as where, repairing(evb, where / "out", **offer) as (receiver, sender):
        sender.udp.send(struct.pack("<Q", 0) + frame[:size])
        sender.end(2, size=2 * size)
        assert sender.hear("gaps")["ranges"] == [[0, 2]]
        for n in range(2):
            sender.udp.send(struct.pack("<Q", n) + frame[n * size:(n + 1) * size])
        sender.say("repaired", packets=2)
        report = sender.hear("report")["report"]
        assert (report["packets"], report["repaired"], report["invalid"], report["filled_in"]) == (2, 1, 0, 0), report
        sender.leave()
        receiver.finish()
        assert (where / "out").read_bytes() == frame[:2 * size]


def ends(evb):
    """A sender that refuses, falls silent, leaves, or is of an older version; and Ctrl-C: the output has what arrived."""
    def lose(sender):
        sender.packet(0)
        sender.packet(2)
        sender.end(4)

    for how, message in (("refuses", "the disk is on fire"), ("is silent", "2 packets are missing"), ("leaves", "the sender left"),
                         ("is old", "the sender cannot send packets again"), ("ctrl-c", "2 packets are missing"),
                         ("ctrl-c at the end", "2 packets are missing")):
        with folder() as where, repairing(evb, where / "out", repairs=how != "is old",
                                          time="300ms" if how == "is silent" else "10min") as (receiver, sender):
            lose(sender)
            if how == "ctrl-c at the end":
                receiver.signal()
            elif how != "is old":
                assert sender.hear("gaps")["ranges"] == [[1, 1], [3, 1]]
            if how == "refuses":
                sender.say("repaired", packets="none", reason="the disk is on fire")
            if how == "leaves":
                sender.leave()
            else:
                if how == "ctrl-c":
                    receiver.signal()
                report = sender.hear("report")["report"]
                assert report["packets"] == 2 and report["repaired"] == 0, report
                sender.leave()
            received, error = receiver.finish(1)
            assert message in error and received["packets_lost"] == 2, (how, error, received)
            assert (where / "out").read_bytes() == part(0) + bytes(SIZE) + part(2) + bytes(SIZE), how


def slow_disk(evb):
    """The receiver reports its progress while the disk writes what was repaired, so that the sender does not give it up."""
    with folder() as where:
        words = ["env", f"LD_PRELOAD={made('slow_disk.so')}", f"EVB_TEST_DISK={where}",
                 f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0", evb]
        with repairing(words, where / "out") as (receiver, sender):
            sender.packet(0)
            sender.end(2)
            assert sender.hear("gaps")["ranges"] == [[1, 1]]
            (where / "shut").touch()
            sender.packet(1)
            sender.say("repaired", packets=1)
            wait_until("disk", (where / "waiting").exists)
            # One of them may be older.
            for _ in range(2):
                while sender.hear("statistics")["packets"] != 2:
                    pass
            (where / "shut").unlink()
            assert sender.hear("report")["report"]["packets"] == 2
            sender.leave()
            receiver.finish()
        assert (where / "out").read_bytes() == part(0) + part(1)


@contextlib.contextmanager
def again(evb, where, rate=CALM):
    """A sender of ours that has sent a file of 10 packets, and a receiver made by hand."""
    (where / "in").write_bytes(b"".join(map(part, range(10)))[:-3])
    with socket.create_server(of(free_address())) as server:
        server.settimeout(LIMIT_S)
        with End(evb, "send", "{}:{}".format(*server.getsockname()), input=where / "in", packet_size=SIZE + 16, rate=rate) as sender, \
                Peer(server.accept()[0]) as peer:
            assert peer.hear("open")["repairs"]
            peer.udp.bind((HOST, 0))
            peer.udp.settimeout(LIMIT_S)
            peer.say("ready", udp_port=peer.udp.getsockname()[1])
            peer.end = peer.hear("end")
            assert peer.end["packets"] == 10
            for n in range(10):
                assert number(peer)[0] == n
            yield sender, peer


def number(peer):
    """The number and the data of the next packet."""
    packet = peer.udp.recv(65536)
    return struct.unpack("<Q", packet[:8])[0], packet[16:]


def report(peer, packets):
    """Says that so many packets arrived."""
    peer.say("report", report={**peer.end["report"], "packets": packets, "late": 0, "socket_packets": 0, "nic_packets": 0})


def receiver_by_hand(evb):
    """What is requested is sent again, in its order; what makes no sense is not."""
    bad = (None, [], [[0]], [[0, 0]], [[-1, 1]], [[10, 1]], [[9, 2]], [["0", 1]], [[0, 2 ** 62]], [[0, 1]] * 4097)
    with folder() as where, again(evb, where) as (sender, peer):
        for ranges in bad:
            peer.say("gaps", ranges=ranges)
            assert "list of missing packets is invalid" in peer.hear("repaired")["reason"], ranges
        peer.say("gaps", ranges=[[3, 2], [9, 1], [0, 1]])
        assert [number(peer) for _ in range(4)] == [(3, part(3)), (4, part(4)), (9, part(9)[:-3]), (0, part(0))]
        assert peer.hear("repaired") == {"type": "repaired", "packets": 4}
        report(peer, 10)
        sent, _ = sender.finish()
        assert sent["packets_sent_again"] == 4, sent
    # More than any receiver needs.
    with folder() as where, again(evb, where, rate="1Gbit") as (sender, peer):
        for i in range(7):
            peer.say("gaps", ranges=[[0, 10]] * 1000)
            reason = peer.hear("repaired").get("reason")
            assert reason == (None if i < 6 else "too many packets were requested again"), (i, reason)
        report(peer, 0)
        sender.finish(1)


def source_changes(evb):
    """A file that becomes shorter, is changed or goes on, and Ctrl-C at the sender: the receiver is told, and the stream ends."""
    with folder() as where, again(evb, where) as (sender, peer):
        os.truncate(where / "in", 100)
        peer.say("gaps", ranges=[[5, 1]])
        assert "it has become shorter" in peer.hear("repaired")["reason"]
        report(peer, 9)
        _, error = sender.finish(1)
        assert "cannot read it again" in error and "misses 1 of 10 packets" in error, error
    with folder() as where, again(evb, where) as (sender, peer):
        os.utime(where / "in", (1, 1))
        peer.say("gaps", ranges=[[5, 1]])
        assert "it was changed" in peer.hear("repaired")["reason"]
        report(peer, 9)
        assert "cannot read it again" in sender.finish(1)[1]
    with folder() as where, again(evb, where) as (sender, peer):
        with open(where / "in", "ab") as more:
            more.write(b"more")
        peer.say("gaps", ranges=[[5, 1]])
        assert number(peer) == (5, part(5))
        assert "reason" not in peer.hear("repaired")
        report(peer, 10)
        sender.finish(0)
    with folder() as where, again(evb, where, rate="2Mbit") as (sender, peer):
        # 160 s.
        peer.say("gaps", ranges=[[0, 10]] * 4000)
        number(peer)
        sender.signal()
        assert peer.hear("repaired")["reason"] == "interrupted"
        # Between two requests, too.
        peer.say("gaps", ranges=[[0, 1]])
        assert peer.hear("repaired")["reason"] == "interrupted"
        report(peer, 9)
        sender.finish(1)


if __name__ == "__main__":
    main({"files": files, "vdif": vdif, "pipe": pipe, "sender-by-hand": sender_by_hand, "part-of-frame": part_of_frame,
          "slow-disk": slow_disk, "ends": ends, "receiver-by-hand": receiver_by_hand,
          "source-changes": source_changes})
