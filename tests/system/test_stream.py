#!/usr/bin/env python3
"""Streams between two real ends: what is sent is received or accounted for, and nothing that happens makes one hang.

    test_stream.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from harness import CHANCE, LIMIT_S, Skip, chance_of_no_loss, first_signal, folder, main
from streams import (CALM, FRAME, HOST, PER_SECOND, SLOW, THREADS, End, balance, both, failed, free_address, has_bytes, invalid, is_listening, of,
                     ports, recording, same_frames, small_disk, small_frame, socket_is_busy, wait_until)


def mistakes(evb):
    sends = {
        ("10.0.0.5",): '"10.0.0.5" is not an address and a port',
        ("10.0.0.5:1",): "--input is required",
        ("10.0.0.5:1", "--input", "x", "--rate", "1Gbit", "--spacing", "1us"): "contradict each other",
        ("10.0.0.5:1", "--input", "x", "--rate", "fast"): "expected a rate",
        ("10.0.0.5:1", "--input", "x", "--spacing", "12"): "expected a time",
        ("10.0.0.5:1", "--input", "x", "--format", "mark5b"): "expected plain, vdif or raw",
        ("10.0.0.5:1", "--input", "x", "--wake", "signal=0"): "expected futex, signal=N",
        ("10.0.0.5:1", "--input", "x", "--cpus", "network=100000"): "processors of this machine",
        ("10.0.0.5:1", "--input", "x", "--set", "ros.count=1"): "option --set",
        ("127.0.0.1:1", "--input", "/nonexistent"): "/nonexistent: cannot open it: No such file or directory",
        ("127.0.0.1:1", "--input", "/tmp"): "it is a directory",
        ("127.0.0.1:1", "--input", "pattern:much"): '"much" is not a size',
        ("127.0.0.1:1", "--input", __file__, "--format", "vdif"): "does not begin with a VDIF header",
        ("127.0.0.1:1", "--input", "pattern:1MB", "--packet-size", "16"): "expected 17 to",
        ("127.0.0.1:1", "--input", "pattern:1MB", "--pacing", "kernel"): "there is no rate",
    }
    for words, message in sends.items():
        error = failed(evb, "send", *words)
        assert message in error, (words, error)
    receives = {
        ("port",): '"port" is not a port',
        ("26900",): "--output is required",
        ("26900", "--output", "null", "--output", "-"): "several streams cannot share it",
        ("26900", "--output", "null", "--fault", "loss=1"): "expected fractions below 1",
        ("26900", "--output", "null", "--ring", "1"): "expected 256KiB to",
        ("26900", "--output", "null", "--connect"): '"26900" is not an address and a port',
        ("26900", "--output", "-", "--json"): "use --json=FILE",
        ("26900", "--output", __file__): "the file exists",
        ("26900", "--output", "/nonexistent/file"): "cannot open it for writing",
    }
    for words, message in receives.items():
        error = failed(evb, "recv", *words)
        assert message in error, (words, error)
    if os.geteuid() == 0 and int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 80:
        done = subprocess.run(["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service", evb, "stream", "recv",
                               "127.0.0.1:80", "--output", "null"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 77 and "need CAP_NET_BIND_SERVICE" in done.stderr, done


def check_times(report):
    """Each packet is in the histograms, and no interval has more than the stream."""
    for end in (report, report["peer"]):
        packets = end.get("packets", report["packets_received"])
        assert 0 < sum(n for _, n in end["inter_packet_us"]["histogram"]) < packets, end
        assert sum(n for _, n in end["processing_us"]["histogram"]) == packets, end
        assert sum(end["intervals"]["packets"]) <= packets and sum(end["intervals"]["bytes"]) <= report["bytes"], end
        seconds = end["inter_packet_us"]["mean"] * sum(n for _, n in end["inter_packet_us"]["histogram"]) / 1e6
        assert end["intervals"]["seconds"] == 0.1 and len(end["intervals"]["bytes"]) >= int(seconds * 10) - 1, end
        # Those of the receiver, by the stamps of the packets. A sender may lose the processor between its clock and a packet.
        receives = (end is report) == (report["role"] == "recv")
        assert not receives or abs(seconds - report["seconds"]) < 0.001, (seconds, report)
        assert end["network_cpu_seconds"] > 0 and end["file_cpu_seconds"] > 0, end


def pattern(evb):
    for options in ({}, {"packet_size": 1472}, {"packet_size": 17, "rate": "1Mbit"}, {"spacing": "50us"}, {"network_cpus": 0, "file_cpus": 0}):
        size = 2001 if options.get("packet_size") == 17 else 5000001
        sent, received = both(evb, f"pattern:{size}", "pattern", send={"rate": CALM, **options} if "spacing" not in options else options)
        assert received["bytes"] == size and received["corrupt"] == 0 and received["packets_lost"] == 0, received
        assert received["cpu_percent"] and received["inter_packet_us"]["mean"] > 0, received
        check_times(sent)
        check_times(received)
        assert sent["peer"]["packets"] == received["packets_received"], sent


def text(evb):
    """Without --json: the same summary on both ends as text, and a line each second with --progress."""
    address = free_address()
    with End(evb, "recv", address, "--progress", output="pattern", report="text") as receiver, \
            End(evb, "send", address, input="pattern:2912000", packet_size=1472, rate=SLOW, network_cpus=0,
                report="text") as sender:
        outputs = [end.process.communicate(timeout=LIMIT_S) for end in (sender, receiver)]
    for out, _ in outputs:
        lines = out.decode().splitlines()
        assert re.fullmatch(r"2.91 MB in \d+\.\d+ s, \d.*bit/s", lines[0]), lines
        assert lines[1:] == ["packets: sent 2000, received 2000, lost 0", "of these: late 0, source 0, network 0, NIC 0, socket 0, receiver 0",
                             "duplicate 0, out of order 0, foreign 0, filled in 0, corrupt 0"], lines
    progress = outputs[1][1].decode()
    assert re.search(r"^ +\d+ s  [\d.]+ [kM]?B  [\d.]+ [kM]?bit/s  0 lost  ring +\d+ %$", progress, re.M), progress
    # With --json, the lines are JSON objects, also those of several streams.
    for streams in (1, 2):
        address = free_address()
        with End(evb, "recv", address, "--progress", output=["null"] * streams) as receiver, \
                End(evb, "send", address, "--progress", input=["pattern:2912000"] * streams, packet_size=1472, rate=SLOW) as sender:
            ends = [end.finish() for end in (sender, receiver)]
        for report, error in ends:
            lines = [json.loads(line) for line in error.splitlines() if line.startswith("{")]
            assert {line["stream"] for line in lines} == set(range(1, streams + 1)), lines
            assert all(line["type"] == "statistics" and line["lost"] in (0, None) and line["bytes"] <= 2912000 for line in lines), lines


def wakes(evb):
    for wake in ("futex", "signal=200", "yield", "poll"):
        sent, received = both(evb, "pattern:5MB", "pattern", send={"rate": CALM, "wake": wake}, receive={"wake": wake})
        assert sent["wake"] == received["wake"] == wake and received["packets_lost"] == 0, received


def full_speed(evb):
    """As fast as this machine can, with losses or without: the accounts are right. As fast as the receiver can: nothing is lost."""
    both(evb, "pattern:300MB", "pattern")
    address = free_address()
    with End(evb, "recv", address, output="pattern") as receiver, \
            End(evb, "send", address, input="pattern:300MB", rate="max") as sender:
        out, err = sender.process.communicate(timeout=LIMIT_S)
        assert sender.process.returncode in (0, 1), err
        received, _ = receiver.finish(sender.process.returncode)
    sent = json.loads(out)
    balance(sent)
    assert received["corrupt"] == 0 and (received["packets_lost"] == 0) == (sender.process.returncode == 0), received


def files(evb):
    with folder() as where:
        data = random.Random(1).randbytes(3000001)
        (where / "in").write_bytes(data)
        both(evb, where / "in", where / "out", send={"rate": CALM})
        assert (where / "out").read_bytes() == data
        # An empty file is a stream, too.
        (where / "empty").write_bytes(b"")
        _, received = both(evb, where / "empty", where / "nothing")
        assert received["packets_sent"] == received["packets_received"] == 0, received


def pipes(evb):
    data = random.Random(2).randbytes(3000001)
    address = free_address()
    with folder() as where, \
            End(evb, "recv", address, output="-", report=where / "report") as receiver, \
            End(evb, "send", address, input="-", rate=CALM, stdin=subprocess.PIPE) as sender:
        # The sender waits for the receiver, and that one for its reader.
        reader = threading.Thread(target=receiver.finish)
        reader.start()
        sent, _ = sender.process.communicate(data, timeout=LIMIT_S)
        reader.join()
        assert sender.process.returncode == 0 and json.loads(sent)["bytes"] == len(data)
        assert receiver.out == data


def losses(evb):
    assert chance_of_no_loss(1000, 0.05) < CHANCE
    with folder() as where:
        data = random.Random(3).randbytes(1456 * 2000 - 7)
        (where / "in").write_bytes(data)
        # At full speed, so that there is something to overtake with.
        _, received = both(evb, where / "in", where / "out", expect=1, send={"packet_size": 1472},
                           receive={"fault": "loss=5%,reorder=5%,duplicate=5%"})
        out = (where / "out").read_bytes()
    assert len(out) == len(data)
    parts = [(data[at:at + 1456], out[at:at + 1456]) for at in range(0, len(data), 1456)]
    missing = [theirs for ours, theirs in parts if ours != theirs]
    assert all(part == bytes(len(part)) for part in missing), "a missing packet is not zeros in its place"
    assert len(missing) == received["packets_lost"] == received["frames_filled_in"] > 0, received
    assert received["packets_duplicate"] > 0 and received["packets_out_of_order"] > 0, received


def lost_tail(evb):
    """Nearly nothing arrives, and not the end: the loss shows as one."""
    _, received = both(evb, "pattern:2MB", "pattern", expect=1, send={"rate": CALM, "packet_size": 1472},
                       receive={"fault": "loss=0.99,seed=7"})
    assert received["packets_sent"] == 1374 and received["packets_lost"] > 1300, received


def vdif(evb, loss=None):
    # Some of the lost frames are the first ones of a second.
    frames = recording(200, per_second=2) if loss else recording(100)
    assert loss is None or chance_of_no_loss(len(frames) // len(THREADS) // 2, 0.3) < CHANCE
    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(frames))
        sent, received = both(evb, where / "in.vdif", where / "out.vdif", expect=1 if loss else 0,
                              send={"format": "vdif", "rate": CALM}, receive={"fault": f"loss={loss}"} if loss else None)
        lost = same_frames(frames, (where / "out.vdif").read_bytes())
    assert lost == received["packets_lost"] == received["frames_filled_in"], received
    assert sent["format"] == received["format"] == "vdif" and (lost > 0) == (loss is not None), received


def vdif_rate(evb):
    """Playback is not faster than the recording, but for what it catches up; a header that states another rate changes nothing."""
    for stated in (None, 2 * PER_SECOND):
        frames, address = recording(100, stated=stated), free_address()
        with folder() as where, End(evb, "recv", address, output="null") as receiver:
            (where / "in.vdif").write_bytes(b"".join(frames))
            with End(evb, "send", address, input=where / "in.vdif", format="vdif") as sender:
                _, error = sender.finish()
                received, _ = receiver.finish()
        least = (len(frames) - 64) / (PER_SECOND * len(THREADS)) / 1.11
        assert received["peer"]["seconds"] >= least, (least, received)
        warned = "states 3200 frames per second of a thread, which the numbers of its frames contradict: they show 1600" in error
        assert warned == (stated is not None), error


def mark5b_frame(number, per_second=100):
    """Returns a Mark 5B frame of day 821, second 19801 and the next ones."""
    return struct.pack("<4I", 0xabaddeed, number % per_second, 0x82119801 + number // per_second, 0) + random.Random(number).randbytes(10000)


def recorded_rate(evb):
    """Plain files of VDIF and Mark 5B leave at the rate of their frames, and others at that of --frame-rate."""
    frames, mark5b = recording(100), [mark5b_frame(number) for number in range(130)]
    for data, options, bytes_per_s, named in (
            (b"".join(frames), {"rate": "recorded"}, PER_SECOND * len(THREADS) * FRAME, "VDIF frames of 5032 bytes, 1600 per second of a thread"),
            (b"".join(mark5b), {"rate": "recorded"}, 100 * 10016, "Mark 5B frames of 10016 bytes, 100 per second of a thread"),
            (b"".join(mark5b[:90]), {"frame_rate": 200}, 200 * 10016, "Mark 5B frames of 10016 bytes"),
            (bytes(1000000), {"frame_rate": 2000, "packet_size": 1016}, 2000 * 1000, "")):
        address = free_address()
        with folder() as where, End(evb, "recv", address, output=where / "out") as receiver:
            (where / "in").write_bytes(data)
            with End(evb, "send", address, input=where / "in", **options) as sender:
                _, error = sender.finish()
                received, _ = receiver.finish()
            assert (where / "out").read_bytes() == data and named in error, error
        # A sender catches up at most 10 % faster, and the first packets leave at once.
        least = (len(data) - 64 * 8956) / bytes_per_s / 1.11
        assert received["peer"]["seconds"] >= least > 0, (least, received)
    with folder() as where:
        (where / "in").write_bytes(b"SIMPLE  =  " + bytes(5000))
        for words, message in ((("--input", where / "in", "--rate", "recorded"), "the rate of a FITS file is not known"),
                               (("--format", "raw", "--rate", "recorded"), "raw streams have no recording")):
            assert message in failed(evb, "send", "127.0.0.1:1", *words)
        (where / "in").write_bytes(b"".join(mark5b[:90]))
        assert "does not show how many frames a second has" in failed(evb, "send", "127.0.0.1:1", "--input", where / "in", "--rate", "recorded")


def vdif_cut(evb):
    """A recording that was cut in the middle of a frame: the rest is named as missing, by both ends."""
    frames = recording(3)
    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(frames)[:-1])
        sent, received = both(evb, where / "in.vdif", where / "out.vdif", expect=1, send={"format": "vdif", "rate": CALM})
        assert (where / "out.vdif").read_bytes() == b"".join(frames[:-1])
    for report in (sent, received):
        assert report["packets_received"] == report["packets_sent"] == len(frames) - 1 and report["cut_bytes"] == FRAME - 1, report
        assert "ends within a frame: the last 5031 bytes are not sent, as a frame has 5032" in report["reason"], report


def vdif_damaged(evb):
    """Frames without a header of their own arrive as they are, and are counted."""
    frames = recording(3)
    frames[20:20] = [bytes(FRAME), b"\xff" * FRAME]
    address = free_address()
    with folder() as where, End(evb, "recv", address, output=where / "out.vdif") as receiver:
        (where / "in.vdif").write_bytes(b"".join(frames))
        with End(evb, "send", address, input=where / "in.vdif", format="vdif", rate=CALM) as sender:
            sent, error = sender.finish()
            received, _ = receiver.finish()
        assert (where / "out.vdif").read_bytes() == b"".join(frames)
    assert sent["frames_damaged"] == received["frames_damaged"] == 2 and received["packets_received"] == len(frames), (sent, received)
    assert f"frames without a header of a frame of 5032 bytes: 2, the first one at byte {20 * FRAME}; they are sent as read" in error, error


def vdif_orders(evb):
    """Every frame of a recording arrives, in whatever order its frames are."""
    pairs = [small_frame(number + i, thread) for number in range(0, 60, 2) for thread in range(8) for i in (0, 1)]
    sets = [small_frame(number, thread) for number in range(100) for thread in (0, 1)]
    fillers = [small_frame(0, 0, seconds=0, valid=False) if i % 7 == 3 else frame for i, frame in enumerate(sets)]
    # As the sample of the DRAO that comes with the Python package baseband.
    drao = [small_frame(number, thread, per_second=1000) for number, thread in (
        (363, 162), (354, 87), (355, 80), (355, 80), (349, 133), (349, 134), (349, 134), (352, 50), (352, 50), (362, 245))]
    recordings = {
        "pairs": pairs,
        "a thread that the first set does not have": sets[:1] + sets[2:],
        "a thread that comes late": sets + [small_frame(number, thread) for number in range(100, 150) for thread in (0, 1, 2)],
        "fillers": fillers,
        "fillers first": [frame if i > 5 else fillers[3] for i, frame in enumerate(sets)],
        "threads without an order": drao,
        "300 threads": [small_frame(number, thread) for number in range(3) for thread in range(300)],
    }
    with folder() as where:
        for name, frames in recordings.items():
            (where / "in.vdif").write_bytes(b"".join(frames))
            _, received = both(evb, where / "in.vdif", where / name, send={"format": "vdif", "rate": CALM})
            assert (where / name).read_bytes() == b"".join(frames), name
            assert received["packets_received"] == len(frames) and received["datagrams_foreign"] == 0, (name, received)


def vdif_middle(evb):
    """A recording that begins within a set of frames: what is lost has its number."""
    frames = recording(100)[5:]
    assert chance_of_no_loss(len(frames), 0.1) < CHANCE
    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(frames))
        _, received = both(evb, where / "in.vdif", where / "out.vdif", expect=1, send={"format": "vdif", "rate": CALM},
                           receive={"fault": "loss=10%"})
        assert same_frames(frames, (where / "out.vdif").read_bytes()) == received["frames_filled_in"] > 0, received
    assert received["frames_filled_unsure"] == 0, received


def vdif_parts(evb):
    """A frame that does not fit into a packet leaves in equal parts, and is marked invalid if one of them is lost."""
    frames, part = recording(100), FRAME // 4
    assert chance_of_no_loss(len(frames) * 4, 0.1) < CHANCE
    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(frames))
        for loss, status in ((None, 0), ("10%", 1)):
            out = where / f"out{loss}"
            _, received = both(evb, where / "in.vdif", out, expect=status, send={"format": "vdif", "rate": CALM, "packet_size": 1472},
                               receive={"fault": f"loss={loss}"} if loss else None)
            assert received["packets_sent"] == 4 * len(frames) and received["frames_filled_unsure"] == 0, received
            found, bad = out.read_bytes(), 0
            assert len(found) == FRAME * len(frames), len(found)
            for i, frame in enumerate(frames):
                arrived = found[i * FRAME:(i + 1) * FRAME]
                bad += arrived != frame
                # A part that arrived is in its place; a lost header follows from the other frames.
                marked = invalid(frame)[:32] + frame[32:]
                assert arrived == frame or all(arrived[at:at + part] in (marked[at:at + part], invalid(frame)[at:at + part])
                                               for at in range(0, FRAME, part)), (i, arrived[:32].hex())
            assert bad == received["frames_invalid"] <= received["packets_lost"] and (bad > 0) == (loss is not None), (bad, received)
    # An interrupted stream ends with a frame. At 1 Mbit/s, 129 s.
    with folder() as where:
        (where / "in.vdif").write_bytes(b"".join(recording(400)))
        address = free_address()
        with End(evb, "recv", address, output=where / "out") as receiver, \
                End(evb, "send", address, input=where / "in.vdif", format="vdif", rate="1Mbit", packet_size=1472, ring="256KiB") as sender:
            wait_until("data", has_bytes(where / "out"))
            sender.signal()
            sent, _ = sender.finish()
            receiver.finish()
        assert sent["cut_bytes"] == 0 == sent["packets_sent"] % 4, sent


def no_control(evb):
    """A program that knows the VDIF Transport Protocol, and nothing else of evb, receives the frames, whole and in parts."""
    frames = recording(1)
    with folder() as where, socket.socket(type=socket.SOCK_DGRAM) as udp:
        (where / "in.vdif").write_bytes(b"".join(frames))
        udp.bind((HOST, 0))
        udp.settimeout(LIMIT_S)
        to = "{}:{}".format(*udp.getsockname())
        for parts, size in ((1, {}), (4, {"packet_size": 1472})):
            with End(evb, "send", to, "--no-control", input=where / "in.vdif", format="vdif", rate=CALM, **size) as sender:
                sent, _ = sender.finish()
            packets = [udp.recv(65536) for _ in range(parts * len(frames))]
            assert [int.from_bytes(packet[:8], "little") for packet in packets] == list(range(parts * len(frames)))
            assert b"".join(packet[8:] for packet in packets) == b"".join(frames)
            assert sent["packets_sent"] == len(packets) and sent["packets_received"] is sent["packets_lost"] is sent["lost_at"] is None, sent
        for words in ((), ("--format", "vdif", "--listen")):
            assert "--no-control needs --format vdif" in failed(evb, "send", to, "--no-control", "--input", where / "in.vdif", *words)


def record(evb, where, packets, *flags, stop=0, address=None, expect=0, send=None):
    """Records the packets of a program that knows nothing of evb; returns the report, the recorded bytes and the log.

    With `stop`, a signal ends it once this many bytes are in the file; all packets wait in the socket by then.
    """
    address = address or free_address()
    # The bytes of an earlier recording must not count.
    (where / "out").unlink(missing_ok=True)
    with End(evb, "recv", address, "--no-control", "--overwrite", *flags, output=where / "out") as receiver, \
            socket.socket(type=socket.SOCK_DGRAM) as udp:
        wait_until("port", lambda: is_receiving(*of(address.replace("%lo", ""))))
        if send:
            send(udp, packets)
        for packet in [] if send else packets:
            udp.sendto(packet, of(address))
        if stop:
            wait_until("data", has_bytes(where / "out", stop))
            receiver.signal()
        report, error = receiver.finish(expect=expect)
    return report, (where / "out").read_bytes(), error


def is_receiving(host, port):
    """A member of a group has joined it after it was bound."""
    at = shown(host, port)
    bound = any(line.split()[1] == at for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:])
    joined = any(line.split()[0] == at[:8] for line in pathlib.Path("/proc/net/igmp").read_text().splitlines())
    return bound and (joined or int(host.partition(".")[0]) < 224)


def vtp(frames, first=1 << 33, parts=1):
    """Packets as the VDIF Transport Protocol has them, or as jive5ab cuts frames: 8 bytes with a number, and a part of a frame."""
    pieces = [frame[len(frame) // parts * i:len(frame) // parts * (i + 1)] for frame in frames for i in range(parts)]
    return [(first + i).to_bytes(8, "little") + piece for i, piece in enumerate(pieces)]


def no_control_recv(evb):
    """Senders written from the documents alone are recorded: numbered frames, parts of frames, frames without numbers, plain datagrams."""
    frames = [small_frame(number, thread) for number in range(95, 125) for thread in (3, 1)]
    whole = b"".join(frames)
    with folder() as where:
        for packets, flags, stop in ((vtp(frames), (), len(whole)), (vtp(frames), ("--record", "size=" + str(len(whole))), 0),
                                     (frames, (), len(whole)), (frames, ("--record", "size=" + str(len(whole))), 0)):
            report, out, _ = record(evb, where, packets, *flags, stop=stop)
            assert out == whole and report["packets_received"] == len(packets) and report["packets_lost"] == 0, report
        # What comes after the size is not of the recording.
        report, out, _ = record(evb, where, vtp(frames), "--record", "size=" + str(1032 * 7))
        assert out == b"".join(frames[:7]) and report["packets_received"] == 7, report
        report, out, _ = record(evb, where, [bytes(1000)] * 50, "--format", "plain", "--record", "size=9001")
        assert len(out) == 10000 and report["packets_received"] == 10, report
        for flags in (("--record", "silence=1s"), ("--duration", "1s")):
            assert record(evb, where, vtp(frames[:1]), *flags)[1] == frames[0]
        # It begins within a frame of four parts, and ends with a whole frame.
        big = [small_frame(number, 5, size=5032) for number in range(20)]
        assert record(evb, where, vtp(big, parts=4), "--record", "size=" + str(5032 * 3 + 100))[1] == b"".join(big[:4])
        report, out, error = record(evb, where, vtp(big, parts=4)[2:], stop=5032 * 19)
        assert out == b"".join(big[1:]) and "before the first frame, which are not recorded: 2" in error, (report, error)
        # Lost, repeated and overtaken packets: the lost frame is filled in.
        packets = vtp(frames)
        mixed = packets[:20] + [packets[22], packets[20], packets[22]] + packets[23:]
        report, out, _ = record(evb, where, mixed, stop=20 * 1032, expect=1)
        assert out == b"".join(frames[:21] + [invalid(frames[21])] + frames[22:]), report
        assert report["packets_lost"] == report["packets_duplicate"] == report["packets_out_of_order"] == report["frames_invalid"] == 1, report
        # A packet that arrives twice after its frame was filled in.
        address = free_address()

        def late(udp, each):
            for packet in each[:20] + each[21:]:
                udp.sendto(packet, of(address))
            wait_until("the filled frame", has_bytes(where / "out", 21 * 1032))
            for packet in [each[20]] * 2:
                udp.sendto(packet, of(address))
        report, out, error = record(evb, where, packets, "--window", "8", stop=22 * 1032, address=address, expect=1, send=late)
        assert out == b"".join(frames[:20] + [invalid(frames[20])] + frames[21:]), report
        assert report["packets_late"] == report["packets_duplicate"] == 1 and "not of its stream" not in error, (report, error)
        # Without numbers nothing is filled in, but what is missing is counted, also over the end of a second.
        some = frames[:9] + frames[11:30] + frames[31:]
        report, out, error = record(evb, where, some, stop=len(some) * 1032, expect=1)
        assert out == b"".join(some) and report["packets_lost"] == 3 and "3 packets are missing" in error, (report, error)
        # Numbers that begin anew are not of this stream, nor are other sizes.
        report, out, error = record(evb, where, [*packets[:30], *vtp(frames, 0), packets[30][:99], *packets[30:]], stop=len(whole), expect=1)
        assert out == whole and f"not of its stream: {len(frames) + 1}" in error, (report, error)
        # Numbers that begin anew at the same number, with other frames.
        report, out, error = record(evb, where, [*packets[:30], *vtp(frames[30:]), *packets[30:]], stop=len(whole), expect=1)
        assert out == whole and "not of its stream: 30" in error and report["packets_duplicate"] == 0, (report, error)
        # Without packet numbers, repeated frames are recorded, too.
        report, out, error = record(evb, where, [*frames[:9], frames[8], *frames[9:]], stop=len(whole) + 1032, expect=1)
        assert len(out) == len(whole) + 1032 and "with the thread and time of an earlier frame: 1" in error, (report, error)
        # Plain datagrams of any size; what is lost in the network is not known.
        plain = [bytes([n]) * (1 + 37 * n) for n in range(200)]
        report, out, _ = record(evb, where, plain, "--format", "plain", stop=len(b"".join(plain)))
        assert out == b"".join(plain) and report["packets_received"] == 200 and report["packets_lost"] is None, report
        # Others do not disturb it, and are named.
        address = free_address()

        def with_others(udp, each):
            with socket.socket(type=socket.SOCK_DGRAM) as other:
                for i, packet in enumerate(each):
                    udp.sendto(packet, of(address))
                    if i % 7 == 6:
                        other.sendto(packet, of(address))
        report, out, error = record(evb, where, packets, stop=len(whole), address=address, send=with_others)
        assert out == whole and f"which was the first to send: {len(frames) // 7}" in error, (report, error)
        # A multicast group, at the device that is named.
        port = int(free_address().rsplit(":", 1)[1])

        def to_group(udp, each):
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
            for packet in each:
                udp.sendto(packet, ("239.192.7.7", port))
        report, out, _ = record(evb, where, packets, stop=len(whole), address=f"239.192.7.7%lo:{port}", send=to_group)
        assert out == whole, report
        for words, message in ((("--no-control", "--repair"), "excludes --connect"), (("--record", "silence=1s"), "need --no-control"),
                               (("--no-control", "--record", "size=0"), "expected bytes"), (("--no-control", "--record", "begin=noon"), "expected a second in UTC"),
                               (("--no-control", "--record", "scan=1500ms"), "expected whole seconds"), (("--no-control", "--record", "scan=1s"), "needs a file as output"), (("--no-control", "--format", "raw"), "expected vdif or plain")):
            assert message in failed(evb, "recv", free_address(), "--output", "null", *words)
        second = failed(evb, "recv", free_address(), "--no-control", "--record", "scan=1s", "--output", where / "x", "--output", "null")
        assert "--record scan needs a file as output" in second, second
        assert 'no device "none"' in failed(evb, "recv", "239.192.7.7%none:7", "--output", "null", "--no-control")


def no_control_scans(evb):
    """A recording begins at a second, and each second of it has a file, whose name says when it begins."""
    frames = [small_frame(number, thread) for number in range(95, 215) for thread in (3, 1)]
    seconds = [b"".join(frames[begin:end]) for begin, end in ((0, 10), (10, 210), (210, 240))]
    with folder() as where:
        for packets in (vtp(frames), frames):
            for begin in ("next", "2014-01-01T00:00:08Z", "2014-01-01T00:00:08"):
                report, out, error = record(evb, where, packets, "--record", f"begin={begin}", stop=230 * 1032)
                assert out == b"".join(seconds[1:]) and report["packets_lost"] == 0, report
                assert "before the begin, not recorded: 10" in error, error
        # The first frame of the last second is lost: the frame in its place does not begin a file.
        for packets, expected in ((vtp(frames), seconds), (vtp(frames)[:210] + vtp(frames)[211:], [
                seconds[0], seconds[1] + invalid(frames[210]), seconds[2][1032:]])):
            address = free_address()
            with End(evb, "recv", address, "--no-control", "--overwrite", "--record", "scan=1s", "--record", f"size={1032 * 240}",
                     output=where / "scan.vdif") as receiver, socket.socket(type=socket.SOCK_DGRAM) as udp:
                wait_until("port", lambda: is_receiving(*of(address)))
                for packet in packets:
                    udp.sendto(packet, of(address))
                report, _ = receiver.finish(expect=len(frames) - len(packets))
            assert [path.read_bytes() for path in sorted(where.glob("scan-*"))] == expected, report
            assert sorted(path.name for path in where.glob("scan*")) == [f"scan-20140101T00000{second}.vdif" for second in (7, 8, 9)], report
            assert report["files"] == 3 and report["peer"] is None and report["bytes"] + 1032 * report["packets_lost"] == 1032 * 240, report
        assert "the file exists" in failed(evb, "recv", free_address(), "--no-control", "--output", where / "scan-20140101T000007.vdif")


def vdif_baseband(evb):
    """The Python package baseband reads the same samples before and after."""
    python = os.environ.get("EVB_BASEBAND_PYTHON", sys.executable)
    helper = pathlib.Path(__file__).parent / "baseband_same.py"
    listed = subprocess.run([python, helper, "--sample"], capture_output=True, text=True) if shutil.which(python) else None
    if not listed or listed.returncode == 77:
        raise Skip("the Python package baseband is not installed; set EVB_BASEBAND_PYTHON to a Python that has it")
    assert listed.returncode == 0, listed
    with folder() as where:
        samples = [pathlib.Path(line) for line in listed.stdout.splitlines()]
        # The samples are short: of parts of longer recordings with frames of their sizes, 1 % loss certainly takes some.
        long = [where / f"long{frame}.vdif" for frame in (FRAME, 8032)]
        long[0].write_bytes(b"".join(recording(100)))
        long[1].write_bytes(b"".join(recording(60, frame=8032)))
        assert chance_of_no_loss(60 * len(THREADS) * 6, 0.01) < CHANCE
        compared = []
        for source, loss, size in [(each, None, size) for each in samples for size in (None, 1472)] + [
                (each, "1%", size) for each in long for size in (None, 1472)]:
            out = where / f"{source.name}-{loss}-{size}"
            _, received = both(evb, source, out, expect=1 if loss else 0,
                               send={"format": "vdif", "rate": CALM, **({"packet_size": size} if size else {})},
                               receive={"fault": f"loss={loss},seed=5"} if loss else None)
            assert received["frames_invalid"] > 0 if loss and size else loss or received["frames_invalid"] == 0, received
            compared += [source, out, str(received["frames_invalid"])]
        done = subprocess.run([python, helper, *compared], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def scan(address):
    """Does what port scanners and passers-by do."""
    for greeting in (None, b"", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\0\0", b"{}\n", b'{"type": "end", "packets": 5}\n',
                     b"[" * 100000):
        with contextlib.suppress(OSError), socket.create_connection(of(address), timeout=LIMIT_S) as tcp:
            if greeting is not None:
                tcp.sendall(greeting)
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        for datagram in (b"", b"x", bytes(8), bytes(16), bytes(1472), bytes(60000)):
            udp.sendto(datagram, of(address))


def port_scan(evb):
    address = free_address()
    with End(evb, "recv", address, output="pattern") as receiver, contextlib.ExitStack() as silent:
        wait_until("receiver", is_listening(address))
        scan(address)
        # More than there are places, and none says a word.
        for _ in range(20):
            silent.enter_context(socket.create_connection(of(address), timeout=LIMIT_S))
        with End(evb, "send", address, input="pattern:5MB", rate=CALM) as sender:
            wait_until("stream", lambda: sender.process.poll() is not None or socket_is_busy(address))
            scan(address)
            sender.finish()
        received, _ = receiver.finish()
        assert received["packets_lost"] == received["corrupt"] == 0, received
        assert received["datagrams_foreign"] >= 5, received


def second_sender(evb):
    with folder() as where:
        address, out = free_address(), where / "out"
        with End(evb, "recv", address, output=out) as receiver, \
                End(evb, "send", address, input="pattern:1TB", rate=SLOW) as sender:
            wait_until("data", has_bytes(out))
            with End(evb, "send", address, input="pattern:20MB") as second:
                report, error = second.finish(1)
                assert report is None and "refuses the stream: it is busy with a stream from" in error, error
            sender.signal()
            sent, _ = sender.finish()
            received, _ = receiver.finish()
            assert 0 < sent["bytes"] == received["bytes"] == out.stat().st_size, (sent, received)


def receiver_killed(evb):
    """The sender ends and says why; the receiver that takes the other's place is not disturbed."""
    with folder() as where:
        address, out, again = free_address(), where / "out", where / "again"
        with End(evb, "recv", address, output=out) as receiver, \
                End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
            wait_until("data", has_bytes(out))
            receiver.signal(signal.SIGKILL)
            receiver.process.wait()
            with End(evb, "recv", address, output=again) as second:
                report, error = sender.finish(1)
                assert "the receiver left" in error and report["packets_received"] is None, (error, report)
                assert report["lost_at"] is None, report
                with End(evb, "send", address, input="pattern:5MB", rate=CALM) as other:
                    other.finish()
                received, _ = second.finish()
                assert received["packets_lost"] == 0 and again.stat().st_size == 5000000, received


def sender_killed(evb):
    with folder() as where:
        address, out = free_address(), where / "out"
        with End(evb, "recv", address, output=out) as receiver, \
                End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
            wait_until("data", has_bytes(out))
            sender.signal(signal.SIGKILL)
            received, error = receiver.finish(1)
        assert "the sender left" in error and "total is unknown" in error, error
        assert received["packets_sent"] is None and received["bytes"] > 0 and received["peer"] is None, received
        assert out.stat().st_size == received["bytes"] + received["packets_lost"] * 8956, received


def full_disk(evb):
    address = free_address()
    with End(evb, "recv", address, output="/dev/full") as receiver, \
            End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
        _, error = receiver.finish(1)
        assert "/dev/full: cannot write: No space left on device" in error, error
        report, error = sender.finish(1)
        assert "No space left on device" in error and "No space left" in report["reason"], (error, report)


def closed_pipe(evb):
    address = free_address()
    with folder() as where, End(evb, "recv", address, output="-", report=where / "report") as receiver, \
            End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
        receiver.process.stdout.read(100000)
        receiver.process.stdout.close()
        receiver.process.stdout = None
        assert receiver.process.wait(LIMIT_S) == 1
        assert "Broken pipe" in receiver.process.stderr.read().decode()
        sender.finish(1)


def stuck_pipe(evb):
    """Nobody reads the output: memory is bounded, and Ctrl-C ends it."""
    address = free_address()
    with folder() as where, \
            End(evb, "recv", address, "--progress", output="-", report=where / "report", ring="1MiB", socket_buffer="256KiB") as receiver, \
            End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
        shown = b""

        def is_full():
            nonlocal shown
            assert sender.process.poll() is None, sender.process.communicate()
            shown += receiver.process.stderr.read() or b""
            return b'"ring_percent":100}' in shown

        # Then it has far more than the pipe could still take.
        os.set_blocking(receiver.process.stderr.fileno(), False)
        wait_until("full ring", is_full)
        # The first one waits for the output, the second one does not.
        first_signal(receiver.process)
        assert receiver.process.poll() is None
        receiver.signal()
        assert receiver.process.wait(LIMIT_S) == 1
        sender.finish(1)


def ctrl_c(evb, stopped):
    with folder() as where:
        address, out = free_address(), where / "out"
        with End(evb, "recv", address, output=out) as receiver, \
                End(evb, "send", address, input="pattern:1TB", rate=SLOW) as sender:
            wait_until("data", has_bytes(out))
            first, second = (sender, receiver) if stopped == "send" else (receiver, sender)
            first.signal()
            ends = [first.finish()[0], second.finish()[0]]
        assert ends[0]["reason"] == "interrupted" and "interrupted" in ends[1]["reason"], ends
        assert 0 < ends[0]["bytes"] == ends[1]["bytes"] == out.stat().st_size, ends
        # A receiver takes packets until the sender ends.
        assert stopped == "send" or ends[1]["lost_at"]["receiver"] == 0, ends


def ctrl_c_twice(evb):
    with folder() as where:
        address, out = free_address(), where / "out"
        with End(evb, "recv", address, output=out) as receiver, \
                End(evb, "send", address, input="pattern:1TB", rate=CALM) as sender:
            wait_until("data", has_bytes(out))
            # The peer does not answer.
            sender.signal(signal.SIGSTOP)
            first_signal(receiver.process)
            assert receiver.process.poll() is None
            receiver.signal()
            received, error = receiver.finish(1)
            assert received["peer"] is None and "interrupted" in error, (received, error)
            sender.signal(signal.SIGCONT)
            sender.finish(1)


def ctrl_c_waiting(evb):
    address = free_address()
    with folder() as where:
        with End(evb, "recv", address, output=where / "out") as receiver:
            wait_until("receiver", is_listening(address))
            receiver.signal()
            assert receiver.finish(1)[0] is None
        assert not (where / "out").exists()
    # One that accepts, and says nothing.
    with socket.create_server(of(free_address())) as server, \
            End(evb, "send", "{}:{}".format(*server.getsockname()), input="pattern:1MB", wait="60s") as sender, server.accept()[0]:
        sender.signal()
        assert sender.finish(1)[0] is None


def no_receiver(evb):
    address = free_address()
    with End(evb, "send", address, input="pattern:1MB", wait="300ms") as sender:
        report, error = sender.finish(1)
        assert report is None and f"{address}: cannot connect: Connection refused" in error, error
    # It may come later.
    with End(evb, "send", address, input="pattern:1MB", rate=CALM, wait="60s") as sender:
        time.sleep(0.3)
        with End(evb, "recv", address, output="pattern") as receiver:
            sender.finish()
            receiver.finish()


def offered(address):
    """Says hello until the sender is free; returns the connection that brought its offer."""
    while True:
        tcp = socket.create_connection(of(address), timeout=LIMIT_S)
        tcp.sendall(b'{"type": "hello", "protocol": 1}\n')
        if json.loads(tcp.makefile().readline())["type"] == "open":
            return tcp
        tcp.close()
        time.sleep(0.05)


def listening_sender(evb):
    """The receiver connects, and a scan comes before it."""
    address = free_address()
    with folder() as where:
        data = random.Random(6).randbytes(1000001)
        (where / "in").write_bytes(data)
        with End(evb, "send", address, "--listen", input=where / "in", rate=CALM) as sender:
            wait_until("sender", is_listening(address))
            scan(address)
            with socket.create_connection(of(address), timeout=LIMIT_S) as tcp:
                tcp.sendall(b'{"type": "hello", "protocol": 7}\n')
                assert "another version" in json.loads(tcp.makefile().readline())["reason"]
            # One that does not go through with it does not hold up the others.
            with socket.create_connection(of(address), timeout=LIMIT_S) as tcp:
                tcp.sendall(b'{"type": "hello", "protocol": 1}\n')
                assert json.loads(tcp.makefile().readline())["type"] == "open"
            # Nor do those who do not want it.
            for answer in (b'{"type": "refused", "reason": "too late"}\n', b'{"type": "ready", "udp_port": 0}\n', b"nonsense\n"):
                with offered(address) as tcp:
                    tcp.sendall(answer)
                    assert answer == b"nonsense\n" or "waits for another" in json.loads(tcp.makefile().readline())["reason"]
            for _ in range(50):
                with End(evb, "recv", address, "--connect", output=where / "out") as receiver:
                    if receiver.process.wait(LIMIT_S) == 0:
                        break
                    error = receiver.process.stderr.read()
                    assert b"it is busy" in error, error
                time.sleep(0.1)
            sender.finish()
        assert (where / "out").read_bytes() == data
    with End(evb, "recv", free_address(), "--connect", output="null", wait="300ms") as receiver:
        report, error = receiver.finish(1)
        assert report is None and "cannot connect: Connection refused" in error, error


def several(evb):
    """Three streams at a time; each is a file, and a failed one is not hidden."""
    with folder() as where:
        data = [random.Random(i).randbytes(1000001 + i) for i in range(3)]
        inputs, outputs = ([where / f"{name}{i}" for i in range(3)] for name in ("in", "out"))
        for path, content in zip(inputs, data):
            path.write_bytes(content)
        first = free_address()
        with End(evb, "recv", first, output=outputs) as receiver, \
                End(evb, "send", first, input=inputs, rate=CALM) as sender:
            sent, _ = sender.finish()
            received, _ = receiver.finish()
        assert [path.read_bytes() for path in outputs] == data
        for report in (sent, received):
            assert len(report["streams"]) == 3 and report["bytes"] == sum(map(len, data)), report
            for stream in report["streams"]:
                balance(stream)
        # The second file exists by now.
        first = free_address()
        with End(evb, "recv", first, output=[where / "new", outputs[1]]) as receiver:
            wait_until("first one", is_listening(first))
            receiver.signal()
            assert receiver.finish(2)[0] is None
        more = [where / "more1", where / "more2"]
        with End(evb, "recv", first, output=more) as receiver, \
                End(evb, "send", first, input=["pattern:1TB", "pattern:1TB"], rate=SLOW) as sender:
            for path in more:
                wait_until("data", has_bytes(path))
            sender.signal()
            sent, _ = sender.finish()
            receiver.finish()
            assert [stream["reason"] for stream in sent["streams"]] == ["interrupted"] * 2, sent


def v6(evb):
    address = f"[::1]:{next(ports)}"
    if not pathlib.Path("/proc/net/if_inet6").exists() or "00000001" not in pathlib.Path("/proc/net/if_inet6").read_text():
        raise Skip("this machine has no IPv6")
    with End(evb, "recv", address, output="pattern") as receiver, \
            End(evb, "send", address, input="pattern:5MB", rate=CALM) as sender:
        sender.finish()
        received, _ = receiver.finish()
        assert received["bytes"] == 5000000, received


def duration(evb):
    address = free_address()
    with End(evb, "recv", address, output="pattern") as receiver, \
            End(evb, "send", address, input="pattern:1TB", rate=SLOW, duration="4s") as sender:
        sent, _ = sender.finish()
        receiver.finish()
        assert sent["bytes"] > 0 and sent["reason"] is None, sent


def other_version(evb):
    address = free_address()
    with End(evb, "recv", address, output="pattern") as receiver:
        wait_until("receiver", is_listening(address))
        with socket.create_connection(of(address), timeout=LIMIT_S) as tcp:
            tcp.sendall(b'{"type": "open", "protocol": 2, "format": "plain"}\n')
            answer = json.loads(tcp.makefile().readline())
            assert answer["type"] == "refused" and "version 2" in answer["reason"], answer
        with End(evb, "send", address, input="pattern:1MB", rate=CALM) as sender:
            sender.finish()
        receiver.finish()
    # A peer of another version refuses; one that is no peer at all is left.
    refusal, foreign = b'{"type": "refused", "reason": "use version 7\\u001b[2J"}\n', b"HTTP/1.0 400\r\n\r\n"
    sends, receives = ("send", {"input": "pattern:1MB"}), ("recv", {"output": "null"})
    for (verb, options), answer, message in ((sends, refusal, "use version 7?[2J"), (sends, foreign, "is not a receiver"),
                                             (receives, refusal, "use version 7?[2J"), (receives, foreign, "is not a sender")):
        with socket.create_server(of(free_address())) as server, \
                End(evb, verb, f"{HOST}:{server.getsockname()[1]}", *["--connect"] * (verb == "recv"), wait="60s", **options) as end:
            with server.accept()[0] as tcp:
                tcp.recv(100000)
                tcp.sendall(answer)
                _, error = end.finish(1)
                assert message in error, error


def slow_output(evb, **options):
    """Nobody reads the output for a while: what does not fit the ring is lost at the socket, and counted there."""
    address = free_address()
    with folder() as where:
        data = random.Random(7).randbytes(1456 * 4000)
        (where / "in").write_bytes(data)
        with End(evb, "recv", address, output="-", report=where / "report", ring="256KiB", socket_buffer="256KiB") as receiver, \
                End(evb, "send", address, input=where / "in", packet_size=1472, **options) as sender:
            wait_until("loss", lambda: udp_drops(address) > 0)
            received, _ = receiver.finish(1)
            sender.finish(1)
        assert received["lost_at"] == {"source": 0, "network": 0, "nic": 0, "socket": received["packets_lost"], "receiver": 0}, received
        assert len(receiver.out) == len(data) and received["packets_sent"] == 4000, received
        lost = [i for i in range(0, len(data), 1456) if receiver.out[i:i + 1456] != data[i:i + 1456]]
        assert len(lost) == received["packets_lost"] and all(receiver.out[i:i + 1456] == bytes(1456) for i in lost), lost


def stopped_receiver(evb):
    """A sender without a rate waits for a receiver that is stopped for longer than its socket's buffer lasts."""
    address = free_address()
    with folder() as where:
        data = random.Random(11).randbytes(60_000_000)
        (where / "in").write_bytes(data)
        with End(evb, "recv", address, output=where / "out", ring="1MiB") as receiver, \
                End(evb, "send", address, input=where / "in") as sender:
            for part in range(1, 4):
                wait_until("data", has_bytes(where / "out", part * 15_000_000))
                receiver.signal(signal.SIGSTOP)
                time.sleep(0.5)
                receiver.signal(signal.SIGCONT)
            sender.finish()
            receiver.finish()
        assert (where / "out").read_bytes() == data


def slow_reader(evb):
    """The output takes longer than the silence that ends a stream, again and again: the sender waits, and nothing is lost."""
    address = free_address()
    with folder() as where:
        data = random.Random(9).randbytes(1456 * 2000)
        (where / "in").write_bytes(data)
        with End(evb, "recv", address, output="-", report=where / "report", ring="256KiB") as receiver, \
                End(evb, "send", address, input=where / "in", packet_size=1472) as sender:
            out = b""
            while part := os.read(receiver.process.stdout.fileno(), 65536):
                out += part
                time.sleep(0.1)
            receiver.finish()
            sender.finish()
        assert out == data


def shown(host, port):
    """The address as /proc/net/udp shows it: other tests may have this port at other ones."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def udp_drops(address):
    """What the kernel counts for the socket with this address."""
    lines = [line.split() for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(words[-1]) for words in lines if words[1] == shown(*of(address)))


def late(evb):
    """Without a window, what is overtaken comes too late: zeros are in its place already."""
    with folder() as where:
        data = random.Random(8).randbytes(1456 * 2000)
        (where / "in").write_bytes(data)
        # At full speed, so that there is something to overtake with.
        _, received = both(evb, where / "in", where / "out", expect=1, send={"packet_size": 1472},
                           receive={"fault": "reorder=20%", "window": 0})
        out = (where / "out").read_bytes()
    assert received["packets_lost"] == received["frames_filled_in"] >= received["packets_late"] > 0, received
    missing = [i for i in range(0, len(data), 1456) if out[i:i + 1456] != data[i:i + 1456]]
    assert len(out) == len(data) and len(missing) == received["packets_lost"], received


def other_options(evb):
    """The ends agree on what concerns both; all else is each one's own affair."""
    for send, receive in (({"wake": "poll", "ring": "256KiB"}, {"wake": "signal=7", "ring": "64MiB", "window": 1000000}),
                          # From one processor: what another one overtakes is lost without a window.
                          ({"wake": "signal=1000000", "socket_buffer": "16KiB", "packet_size": 1472, "network_cpus": 0},
                           {"wake": "yield", "ring": "256KiB", "window": 0}),
                          ({"packet_size": 9000, "spacing": "2ms"}, {"socket_buffer": "4MiB", "network_cpus": 0, "file_cpus": 0})):
        sent, received = both(evb, "pattern:2MB", "pattern", send={"rate": CALM, **send} if "spacing" not in send else send, receive=receive)
        assert received["packets_lost"] == received["corrupt"] == 0 and sent["wake"] == send.get("wake", "futex"), received


def kernel_pacing(evb):
    """Without a qdisc that paces, it says so, and the stream arrives."""
    for pacing, message in (("kernel", "packets leave at full speed; use fq there"), ("txtime", "up to 2 ms early; use fq or etf there")):
        address = free_address()
        with End(evb, "recv", address, output="pattern") as receiver, \
                End(evb, "send", address, input="pattern:1MB", rate=CALM, pacing=pacing) as sender:
            sent, error = sender.finish()
            receiver.finish()
        assert f"--pacing {pacing}: lo has the qdisc noqueue, which does not pace" in error and message in error, error
        assert sent["bytes"] == 1000000, sent


def direct(evb):
    """Direct reads and writes make the same file, of any size; where there are none, each end says so at once."""
    for size in (1, 4096, 5555555):
        with folder() as where:
            data = random.Random(3).randbytes(size)
            (where / "in").write_bytes(data)
            address = free_address()
            with End(evb, "recv", address, "--direct", output=where / "out") as receiver, \
                    End(evb, "send", address, "--direct", input=where / "in", rate=CALM) as sender:
                sender.finish()
                assert receiver.finish()[0]["bytes"] == size
            assert (where / "out").read_bytes() == data
    assert "--direct needs a file as output" in failed(evb, "recv", free_address(), "--output", "pattern", "--direct")
    assert "--direct needs a file as input" in failed(evb, "send", free_address(), "--input", "pattern:1MB", "--direct")


def full_file_system(evb, *flags):
    """The file keeps what fits, and both ends say why they end."""
    address = free_address()
    with folder() as where:
        with End([*small_disk(where, "1m"), evb], "recv", address, *flags, output=where / "out") as receiver, \
                End(evb, "send", address, input="pattern:1TB", packet_size=1472) as sender:
            if flags and receiver.process.wait(LIMIT_S) == 2:
                raise Skip("tmpfs has no direct writes here")
            received, error = receiver.finish(1)
            assert f"{where}/out: cannot write: No space left on device" in error, error
            assert received["peer"] is not None, received
            sent, error = sender.finish(1)
            assert "No space left on device" in error, error
            # What was sent until the sender knew arrived, or the socket was full.
            assert sent["lost_at"] == received["lost_at"], (sent, received)
            assert sent["lost_at"]["network"] == sent["lost_at"]["source"] == 0, sent


def ctrl_c_idle(evb):
    """A source that has nothing, and then the end."""
    address = free_address()
    with folder() as where, End(evb, "recv", address, output=where / "out") as receiver, \
            End(evb, "send", address, input="-", packet_size=1016, stdin=subprocess.PIPE) as sender:
        sender.process.stdin.write(bytes(3000))
        sender.process.stdin.flush()
        wait_until("data", has_bytes(where / "out", 3000))
        sender.signal()
        # Its input is still open.
        assert sender.process.wait(LIMIT_S) == 0
        sent, _ = sender.finish()
        received, _ = receiver.finish()
        assert sent["packets_sent"] == received["packets_received"] == 3, (sent, received)


main({"mistakes": mistakes, "pattern": pattern, "text": text, "wakes": wakes, "full-speed": full_speed, "files": files, "pipes": pipes,
      "losses": losses, "lost-tail": lost_tail, "vdif": vdif, "vdif-loss": lambda evb: vdif(evb, "30%"),
      "vdif-rate": vdif_rate, "recorded-rate": recorded_rate, "vdif-cut": vdif_cut, "vdif-damaged": vdif_damaged, "vdif-orders": vdif_orders, "vdif-middle": vdif_middle,
      "vdif-parts": vdif_parts, "no-control": no_control, "no-control-recv": no_control_recv, "no-control-scans": no_control_scans,
      "vdif-baseband": vdif_baseband, "port-scan": port_scan,
      "second-sender": second_sender, "receiver-killed": receiver_killed, "sender-killed": sender_killed,
      "full-disk": full_disk, "closed-pipe": closed_pipe, "stuck-pipe": stuck_pipe, "ctrl-c-send": lambda evb: ctrl_c(evb, "send"),
      "ctrl-c-receive": lambda evb: ctrl_c(evb, "recv"), "ctrl-c-twice": ctrl_c_twice, "ctrl-c-waiting": ctrl_c_waiting,
      "no-receiver": no_receiver, "listening-sender": listening_sender, "several": several, "v6": v6,
      "duration": duration, "other-version": other_version,
      "slow-output": lambda evb: slow_output(evb, rate=CALM), "slow-output-spaced": lambda evb: slow_output(evb, spacing="100us"),
      # The socket drops whole super-packets, and counts each once.
      "slow-output-max": lambda evb: slow_output(evb, rate="max"), "stopped-receiver": stopped_receiver, "slow-reader": slow_reader, "late": late, "other-options": other_options, "kernel-pacing": kernel_pacing,
      "full-file-system": full_file_system, "direct": direct,
      "full-file-system-direct": lambda evb: full_file_system(evb, "--direct"), "ctrl-c-idle": ctrl_c_idle})
