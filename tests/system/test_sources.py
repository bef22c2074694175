#!/usr/bin/env python3
"""Sources of single ROSs: different ones in a run, and optional ones that die and return.

    test_sources.py EVB [CASE...]
"""
import contextlib
import json
import pathlib
import socket
import struct
import subprocess
import threading
import time

from harness import LIMIT_S, OWN_NET, SHARED, Running, Skip, complete, folder, main, run, scenario, settings

# Every trigger of this scenario waits for a frame of each board; frame k belongs to trigger k.
HEAD = """
[scenario]
mode = {mode}
transport = {transport}
[trigger]
events = {events}
rate = 1kHz
[sfi]
timeout = {timeout}
[dfm]
node-timeout = {node_timeout}
start-timeout = {start_timeout}
[test]
keep-alive = 50ms
[node dfm]
role = dfm
[node sfi1]
role = sfi
"""

# Of each board: as many as a ROS can buffer, or fewer.
FRAMES = 60000
# No more events than these are late if a process gets no processor for a while, or wait for each other on a slow machine.
FEW_CREDITS = {"sfi.credits": 8}


def head(mode="push", transport="udp", events=0, timeout="30s", node_timeout="20s", start_timeout="60s"):
    return HEAD.format(mode=mode, transport=transport, events=events, timeout=timeout, node_timeout=node_timeout,
                       start_timeout=start_timeout)


def ros(name, source, **keys):
    lines = [f"[node {name}]", "role = ros", f"source = {source}", *(f"{key.replace('_', '-')} = {keys[key]}" for key in keys)]
    return "\n".join(lines) + "\n"


def frame(board, k):
    data = b"%s %08d " % (board.encode(), k) + bytes(100)
    return struct.pack("<I", len(data)) + data


class Board(threading.Thread):
    """A front-end over TCP that sends n frames, and pauses on demand. It may run ahead of the triggers."""

    def __init__(self, name, n):
        super().__init__(daemon=True)
        self.board, self.n, self.sent, self.quiet, self.over = name, n, 0, threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.source = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.listener.close()
        self.join(10)

    def run(self):
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            connection.settimeout(0.1)
            data = b""
            while not self.over.is_set():
                if self.quiet.is_set() or (not data and self.sent == self.n):
                    time.sleep(0.01)
                    continue
                if not data:
                    data = frame(self.board, self.sent)
                    self.sent += 1
                with contextlib.suppress(TimeoutError):
                    data = data[connection.send(data):]


def dump(evb, path, *words):
    done = subprocess.run([evb, "dump", path, *words, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, json.loads(done.stdout)


def kinds(evb, format_):
    """A pattern, two fragments of a file, a board over TCP and one over UDP: each event has all five, with their IDs."""
    data = SHARED / "data" / "bes3-run91668.raw"
    if not data.exists():
        raise Skip(f"{data} is not there")
    address = f"{OWN_NET}.7"
    with folder() as where, Board("tcp", 300) as board:
        text = head(events=300) + ros("p", "pattern", source_id="0x530001") + ros("f1", f"file:{data}") + \
            ros("f2", f"file:{data}") + ros("t", board.source, source_id="0x520002") + \
            ros("u", "udp:47100", address=address, source_id="0x520001")
        with Running(evb, scenario(where, text), {"sfi.output": "file", "sfi.directory": where, "sfi.format": format_}) as running:
            running.wait_nodes(7)
            assert running.address("u") == address
            listens = f" {struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{47100:04X} "
            running.wait_for("front-end port", lambda: listens in pathlib.Path("/proc/net/udp").read_text())
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.connect((address, 47100))
                for k in range(300):
                    sender.send(frame("udp", k))
            report = running.end(expect=(0,))
        complete(report)
        (path,) = report["files"]
        status, dumped = dump(evb, path, "--verify")
        assert status == 0 and dumped["verify"]["pattern_fragments"] is None, dumped
        words = pathlib.Path(path).read_bytes()
        for source in (0x530001, 0x520002, 0x520001):
            marker = struct.pack("<3I", 0xEE1234EE, 9, 0x03000000) + struct.pack("<I", source)
            assert words.count(marker) == 300, (hex(source), words.count(marker))
        for k in range(300):
            assert words.count(frame("tcp", k)[4:20]) == words.count(frame("udp", k)[4:20]) == 1, k


def file_ids(evb):
    """A ROS replays the source of its file that has its source ID; an ID that the file lacks, or that another ROS has, is refused."""
    data = SHARED / "data" / "bes3-run91668.raw"
    if not data.exists():
        raise Skip(f"{data} is not there")
    with folder() as where:
        path = scenario(where, head(events=20) + ros("f", f"file:{data}", source_id="0xa10033"))
        report = run(evb, path, {"sfi.output": "file", "sfi.directory": where})
        complete(report)
        words = pathlib.Path(report["files"][0]).read_bytes()
        found = words.count(struct.pack("<4I", 11, 0x03000000, 0xa10033, 1))
        assert found == 20, found
        for command in (["run"], ["check"]):
            done = subprocess.run([evb, *command, str(path), "--set", "node f.source-id=0xa10099"], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 2 and "has no ROS source with ID 0xa10099" in done.stderr, done
        path = scenario(where, head(events=20) + ros("f", f"file:{report['files'][0]}") + ros("p", "pattern", source_id="0xa10033"), "same.conf")
        output, check = ["--set", "sfi.output=file", "--set", f"sfi.directory={where}"], ["check", "--net", "loopback"]
        for command, settings in ((["run"], output), (check, output), (check, ["--set", f"live.listen=unix:{where}/%n"])):
            done = subprocess.run([evb, *command, str(path), *settings], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 2 and "f and p have the same source ID 0xa10033 in events" in done.stderr, done


def addresses(evb):
    """Addresses of sections hold on loopback; what cannot hold is refused by evb run and by evb check --net."""
    address = f"{OWN_NET}.9"
    with folder() as where:
        text = head() + ros("p", "pattern", address=address)
        with Running(evb, scenario(where, text)) as running:
            running.wait_nodes(3)
            given = {name: running.address(name) for name in ("dfm", "sfi1", "p")}
            running.wait_running()
            running.signal()
            complete(running.end(expect=(0,)))
        assert given["p"] == address and len(set(given.values())) == 3, given
        assert given["dfm"].startswith("127.") and given["sfi1"].startswith("127."), given
        for wrong, message in (("198.51.100.7", "this machine does not have address 198.51.100.7"),
                               ("::1", "::1 cannot reach node sfi1")):
            path = scenario(where, head(events=50) + ros("p", "pattern", address=wrong), "wrong.conf")
            for command in (["run"], ["check", "--net", "loopback"]):
                done = subprocess.run([evb, *command, str(path), "--set", "network.control-group=none"], capture_output=True, text=True,
                                      timeout=LIMIT_S)
                assert done.returncode == 2 and f"wrong.conf:{text[:text.index('[node p]')].count(chr(10)) + 1}: node p.address: {message}" \
                    in done.stderr, done


@contextlib.contextmanager
def beam(evb, dead, keys):
    """Four boards, of which the last one is dead: its front-end sends nothing."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(folder())
        boards = [stack.enter_context(Board(f"b{i}", FRAMES)) for i in range(4)]
        boards[3].quiet.set()
        text = head() + "".join(ros(f"b{i}", boards[i].source) for i in range(3)) + ros("b3", boards[3].source, **dead)
        yield where, boards, stack.enter_context(Running(evb, scenario(where, text), {"sfi.output": "file", "sfi.directory": where,
                                                                                       **keys}))


def stop(running, *names):
    """Ends the run once these ROSs have counted all frames of their boards: different counts are an error."""
    running.wait_for("all frames", lambda: all(running.counter(name, "front_end_frames") == FRAMES for name in names))
    running.signal()


def complete_events(running):
    return running.counter("dfm", "events_complete")


def dead_board(evb):
    """A dead optional board costs its fragment: events are complete at the rate of the triggers, at first after the
    board's wait, and then at once."""
    with beam(evb, {"required": "no", "wait": "300ms"}, FEW_CREDITS) as (where, _, running):
        running.wait_nodes(6)
        running.wait_for("complete events", lambda: complete_events(running) > 3000)
        stop(running, "b0", "b1", "b2")
        report = running.end(expect=(0,))
        assert report["events_complete"] == report["triggers"], report
        assert report["fragments"]["absent"] == report["triggers"] and report["fragments"]["lost"] == 0, report["fragments"]
        # Less than the board's wait.
        assert report["latency_us"]["p50"] < 250_000, report["latency_us"]
        status, dumped = dump(evb, report["files"][0], "--verify")
        assert status == 0 and dumped["verify"]["partial_events"] == 0, dumped
        assert dumped["verify"]["dummies"] == dumped["events"] == report["triggers"], dumped


def start(evb):
    """A run starts without an optional ROS that cannot start, dfm.start-timeout after the others are there."""
    with folder() as where:
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind((f"{OWN_NET}.8", 47101))
        # The optional ROS has failed by then, even if it starts slowly.
        text = head(events=100, start_timeout="5s") + ros("p", "pattern") + \
            ros("o", f"udp:{taken.getsockname()[0]}:47101", required="no")
        done = subprocess.run([evb, "run", str(scenario(where, text)), "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        report = json.loads(done.stdout)
        assert done.returncode == 0 and "o: the run goes on without it" in done.stderr, done
        assert report["events_complete"] == 100 and report["fragments"]["absent"] == 100, report
        done = subprocess.run([evb, "run", str(scenario(where, text)), "--json", *settings({"node o.required": "yes", "dfm.start-timeout": "20s"})],
                              capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and "the run did not start: o exited" in done.stderr, done


main({"kinds-eformat3": lambda evb: kinds(evb, "eformat3"), "kinds-eformat5": lambda evb: kinds(evb, "eformat5"), "file-ids": file_ids,
      "addresses": addresses, "start": start,
      "dead-board-push": dead_board})
