#!/usr/bin/env python3
"""Runs with a key (network.key-file): strangers who record, change and repeat real messages, nodes with another key or none,
restarts of each role, and what a command line or a key file must be like. test_foreign_senders.py shows that the same forgeries end a run without a key.

    test_keys.py EVB [CASE...]
"""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading

from harness import LIMIT_S, OWN_NET, complete, folder, main, need_root
from keys import CONTROL, TRAILER_BYTES, derive, siphash, write_key
from test_join import PATIENT, ROLES, bed
from test_foreign_senders import ALIVE, CONTROL as PORT, KEEP_ALIVE, Wire, ear, harmful

ANYWHERE = f"{OWN_NET}.252"
_sent = itertools.count()


def messages_of(data):
    """The messages of a packet on the loopback device, which may be a super-packet of several; no header: the packet."""
    rest, messages = data, []
    while rest[:4] in (b"EVB1", b"EVBH"):
        size = 72 if rest[:4] == b"EVBH" else 32 + int.from_bytes(rest[24:28], "little") + TRAILER_BYTES
        messages.append(rest[:size])
        rest = rest[size:]
    return [data] if rest else messages


class Recorder:
    """Records each control message of the scenario: (source, destination, bytes)."""

    def __init__(self, addresses):
        self.hosts = {socket.inet_aton(a): a for a in addresses.values()}
        # The keys of a dictionary: each packet passes the loopback device twice.
        self.packets, self.stopped = {}, False
        self.ear = ear()
        self.ear.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: it may not run for a while
        self.ear.settimeout(0.05)
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopped:
            with contextlib.suppress(TimeoutError):
                packet = self.ear.recv(65535 + 14)[14:]
                at = (packet[0] & 15) * 4
                source, to, data = self.hosts.get(packet[12:16]), self.hosts.get(packet[16:20]), packet[at + 8:]
                if packet[9] == socket.IPPROTO_UDP and source and to and struct.unpack_from(">HH", packet, at) == (PORT, PORT) and len(data) >= 64:
                    self.packets.update(((source, to, message), None) for message in messages_of(data))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join()
        self.ear.close()

    def messages(self):
        return list(self.packets)

    def last(self, source, to):
        """The last message between these two; None: there is none."""
        return next((d for s, t, d in reversed(self.messages()) if s == source and t == to and d[:4] == b"EVB1"), None)

    def kinds(self):
        return {struct.unpack_from("<I", data, 16)[0] for _, _, data in self.messages() if data[:4] == b"EVB1"}


@contextlib.contextmanager
def keyed(evb, **keys):
    """A bed whose nodes have a key; none of them has started."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "500Hz", **keys}) as b:
        b.key = derive(write_key(b.folder / "key"), CONTROL)
        b.keys["network.key-file"] = b.folder / "key"
        yield b


def go_on(b):
    """Waits for further events."""
    b.wait_written(sum(p.stat().st_size for p in b.folder.glob("*.writing")) + 50_000)


def stop(b):
    go_on(b)
    b.processes["dfm"].send_signal(signal.SIGTERM)


def sum_of(reports, counter):
    return sum(r[counter] for r in reports.values())


def is_documented(b, recorder):
    """Tags, sessions and numbers of real messages are those of docs/protocol.md."""
    numbers, seen = {}, collections.Counter()
    for source, to, data in recorder.messages():
        # Some of each pair: it takes long to compute tags.
        seen[source, to, data[:4]] += 1
        if seen[source, to, data[:4]] > 30:
            continue
        assert siphash(b.key, data[:-16]) == data[-16:], data
        if data[:4] != b"EVB1":
            assert data[:4] == b"EVBH" and len(data) == 72
            continue
        assert len(data) == 32 + struct.unpack_from("<I", data, 24)[0] + TRAILER_BYTES
        session, number = struct.unpack_from("<QQ", data, len(data) - TRAILER_BYTES)
        names = [name for name, address in b.addresses.items() if address == to]
        role, index = {"d": 1, "r": 2, "s": 3}[names[0][0]], 0 if names[0] == "dfm" else int(names[0][3:]) - 1
        assert session and number >> 48 == role << 12 | index, (names, hex(number))
        numbers.setdefault((source, to, session), []).append(number & 2 ** 48 - 1)
    assert len(numbers) > 5 and all(len(set(n)) == len(n) for n in numbers.values()), numbers


def send(b, wire, data, source, to):
    """Sends a datagram. Before every eighth, its receiver has to read most others: a socket drops what it has no room for."""
    at = f" {int.from_bytes(socket.inet_aton(to), 'little'):08X}:{PORT:04X} "

    def has_room():
        waiting = [line.split()[4].partition(":")[2] for line in pathlib.Path("/proc/net/udp").read_text().splitlines() if at in line]
        return all(int(n, 16) < 50_000 for n in waiting)

    if next(_sent) % 8 == 0:
        b.wait(f"room for messages to {to}", has_room)
    wire.send(data, source, to)


def forge(b, wire, recorder, last=400):
    """Sends what was recorded first and last once more, and forgeries of what would spoil the run; returns the number of datagrams."""
    sent, copies = 0, recorder.messages()
    for source, to, data in copies[:100] + copies[-last:]:
        send(b, wire, data, source, to)
        sent += 1
    for node, sender, message in harmful(b, wire):
        source, to = b.addresses[sender], b.addresses[node]
        # The wire has heard it, and the recorder may be behind.
        b.wait("recorded message", lambda s=source, t=to: recorder.last(s, t))
        trailer = recorder.last(source, to)[-TRAILER_BYTES:]
        session, number = struct.unpack_from("<QQ", trailer)
        for tail in (b"", trailer, struct.pack("<QQ", session, number + 1) + trailer[16:], os.urandom(TRAILER_BYTES),
                     struct.pack("<QQ", session, number + 2) + siphash(b"\0" * 16, message.encode())):
            send(b, wire, message.encode() + tail, source, to)
            sent += 1
    return sent


@contextlib.contextmanager
def recorded(evb):
    need_root()
    with keyed(evb) as b, contextlib.closing(Wire()) as wire, Recorder(b.addresses) as recorder:
        b.start_all()
        b.wait_written(100_000)
        b.wait("recorded messages", lambda: {KEEP_ALIVE, ALIVE} < recorder.kinds())
        yield b, wire, recorder


def strangers(evb):
    """Recorded messages that are repeated, redirected or changed have no effect: each event is built once, and whole."""
    with recorded(evb) as (b, wire, recorder):
        # The recorder may be behind.
        dfm, *others = b.addresses.values()
        b.wait("recorded messages of all nodes", lambda: all(recorder.last(dfm, node) and recorder.last(node, dfm) for node in others))
        is_documented(b, recorder)
        sent = forge(b, wire, recorder)
        # To a node for which it was not, and back to its sender.
        for source, to, data in recorder.messages()[:200]:
            send(b, wire, data, source, b.addresses["sfi2"] if to != b.addresses["sfi2"] else b.addresses["sfi1"])
            send(b, wire, data, source, source)
        stop(b)
        reports = b.end_all()
        complete(dict(reports["dfm"], fragments={"corrupt": 0}))
        assert sorted(b.events()) == list(range(reports["dfm"]["triggers"]))
        assert sum_of(reports, "control_replayed") + sum_of(reports, "control_unproven") > sent / 2, reports
        for counter in ("control_untagged", "control_wrong_key", "control_replayed"):
            assert sum_of(reports, counter) > 0, (counter, reports)
        assert "it came before, or was for another node" in b.log("ros2") and "it has no tag" in b.log("ros1")


def restarts(evb):
    """Copies of messages have no effect after a restart of the DFM, a ROS or an SFI either, and the run goes on."""
    with recorded(evb) as (b, wire, recorder):
        for name in ("dfm", "ros1", "sfi1"):
            b.kill(name)
            b.start(name, name=f"{name}-again")
            b.processes[name] = b.processes[f"{name}-again"]
            forge(b, wire, recorder)
            if name != "dfm":
                b.wait(f"run at {name}", lambda n=name: "has begun: " in b.log(f"{n}-again"))
            go_on(b)
            forge(b, wire, recorder)
            go_on(b)
            assert all(p.poll() is None for p in b.processes.values()), {n: b.log(n)[-2000:] for n in b.logs}
        stop(b)
        for process in b.processes.values():
            assert process.wait(LIMIT_S) in (0, 1)
        report = json.loads((b.folder / "dfm-again.json").read_text())
        assert report["control_unproven"] > 0 and report["control_wrong_key"] > 0, report
        # Events for which the ROS was killed may be partial, but the books balance.
        assert report["triggers"] == report["events_complete"] + report["events_partial"] and report["events_partial"] < report["triggers"] / 2, report


def mixed(evb):
    """A node with another key, and one without, stay out of the run, and both ends say why."""
    with keyed(evb, **{"dfm.start-timeout": "2s"}) as b:
        write_key(b.folder / "other")
        b.start_all("dfm", "ros1", "sfi1", "sfi2")
        b.start("ros2", keys={"network.key-file": b.folder / "other"})
        b.start("ros3", keys={"network.key-file": ""})
        b.wait_log("dfm", "ignored a control message of ros2")
        b.wait_log("dfm", "ignored a control message of ros3")
        b.wait_log("ros3", "it has a tag, and this node has no key; set network.key-file")
        b.wait_log("ros2", "its tag was not made with this node's key; use the same key on all machines")
        assert "it has no tag, and this node has a key" in b.log("dfm") and "its tag was not made" in b.log("dfm")
        b.wait_written(100_000)
        for name in ("ros2", "ros3"):
            assert b.processes[name].poll() is None and "has begun" not in b.log(name)
            b.kill(name)
        stop(b)
        # All events lack the fragments of these two.
        report = b.end("dfm", expect=1)
        assert report["events_partial"] == report["triggers"] > 0 and report["control_wrong_key"] > 0 and report["control_untagged"] > 0, report


def run_once(evb, *arguments):
    return subprocess.run([evb, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def refused(evb):
    """Files that are no key are refused with exit status 2, and a node without a key warns."""
    with folder() as where:
        where = pathlib.Path(where)
        def write(net):
            (where / "test.conf").write_text("[network]\ncontrol-group = none\n[sfi]\noutput = null\n" + "".join(
                f"[node {name}]\nrole = {role}\naddress = {net}{i}\n" for i, (name, role) in enumerate(ROLES.items(), 101)))

        write(f"{OWN_NET}.")
        write_key(where / "key")
        for name, mode, text, what in (("short", 0o600, "c2hvcnQ=\n", "at least 32 random bytes"), ("open", 0o640, None, "run chmod 600"),
                                       ("missing", None, None, "No such file")):
            path = where / name
            if mode is not None:
                path.write_text(text or (where / "key").read_text())
                path.chmod(mode)
            done = run_once(evb, "dfm", "--config", where / "test.conf", "--node", "dfm", "--set", f"network.key-file={path}")
            assert done.returncode == 2 and "network.key-file" in done.stderr and what in done.stderr and str(path) in done.stderr, done
        # Addresses that this machine does not have: that is not what is wrong first.
        for net in ("10.255.255.", "fd00:9:255::"):
            write(net)
            warned = run_once(evb, "check", where / "test.conf", "--node", "ros1")
            assert warned.returncode == 2 and warned.stderr.count("network.key-file is not set: whoever can send") == 1, warned
            silent = run_once(evb, "check", where / "test.conf", "--node", "ros1", "--set", f"network.key-file={where / 'key'}")
            assert silent.returncode == 2 and "key-file" not in silent.stderr, silent


def stream(evb):
    """Both ends of a stream need the same key."""
    with folder() as where:
        where = pathlib.Path(where)
        for name in ("key", "other"):
            write_key(where / name)
        for keys, what in ((("key", "key"), None), (("key", "other"), "different keys"), ((None, "key"), "only one end"), (("key", None), "only one end")):
            options = [["--key", str(where / k)] if k else [] for k in keys]
            with socket.socket() as s:
                s.bind((ANYWHERE, 0))
                at = f"{ANYWHERE}:{s.getsockname()[1]}"
            recv = subprocess.Popen([evb, "stream", "recv", at, "--output", "pattern", *options[0]], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            done = run_once(evb, "stream", "send", at, "--input", "pattern:1MB", "--wait", f"{LIMIT_S}s", *options[1])
            try:
                if what:
                    assert done.returncode == 1 and what in done.stderr, done
                else:
                    assert done.returncode == 0 and recv.wait(LIMIT_S) == 0, done
            finally:
                recv.kill()
                recv.communicate()
        assert run_once(evb, "stream", "recv", at, "--output", "null", "--key", where / "missing").returncode == 2


if __name__ == "__main__":
    main({"strangers": strangers, "restarts": restarts, "mixed": mixed, "refused": refused, "stream": stream})
