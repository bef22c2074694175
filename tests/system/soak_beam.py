#!/usr/bin/env python3
"""A long test beam with real processes: no event may mix triggers, and every frame is accounted for.

    tests/system/soak_beam.py [--evb build/src/evb] [--frames 10M] [--rate 10000] [--only udp:16,tcp:32] [--json FILE]

Four boards and a trigger box, played by `evb frontend`, give a share of the frames to each combination of transport and
counter width. Boards miss 0.1 % of the triggers and send 1 % of the frames 50 ms late; counters start shortly before they
wrap. Board 2 restarts at a fourth of the time and counts from 0, until all counters are reset at half of it; ros3 is
stopped and started at three fourths. The script reads every event of the files. Its exit status is 1 if
 - an event has frames of different triggers, or a trigger is in two events,
 - a frame that a ROS used is not in a file, or the accounts of triggers or frames do not add up,
 - a frame was not used though its board and its ROS were in order.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from harness import OWN_NET, events_of

BOARDS = ("ros1", "ros2", "ros3", "ros4")
RESTARTS, STOPPED = 1, 2  # places of the board and of the ROS
SCENARIO = """[trigger]
source = udp:{trigger}
busy-to = {busy}
[ros]
event-number = 0:{bits}
wait = 500ms
[sfi]
output = file
timeout = 5s
[dfm]
node-timeout = 30s
[network]
control-group = none
"""
LIMIT_S = 120


def free_ports(host, n):
    """Ports that nobody uses at this address; the sockets keep them apart from each other."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(n)]
    for s in sockets:
        s.bind((host, 0))
    found = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return found


class Beam:
    """The nodes of one combination, each a process with an address of its own."""

    def __init__(self, evb, where, transport, bits):
        self.evb, self.where, self.processes = evb, where, {}
        self.dfm, self.trigger = f"{OWN_NET}.1", free_ports(f"{OWN_NET}.1", 1)[0]
        self.busy = "{}:{}".format(f"{OWN_NET}.2", *free_ports(f"{OWN_NET}.2", 1))
        self.boards, nodes = [], f"[node dfm]\nrole = dfm\naddress = {OWN_NET}.1\n[node sfi1]\nrole = sfi\naddress = {OWN_NET}.21\n"
        for i, name in enumerate(BOARDS):
            host = f"{OWN_NET}.{11 + i}"
            port = free_ports(host, 1)[0]
            source = f"udp:{port}" if transport == "udp" else f"tcp:{host}:{port}"
            self.boards.append(f"{transport}:{host}:{port}")
            nodes += f"[node {name}]\nrole = ros\naddress = {host}\nsource = {source}\n"
        self.file = where / "beam.conf"
        self.file.write_text(SCENARIO.format(trigger=self.trigger, busy=self.busy, bits=bits) + nodes)

    def start(self, node, name=None):
        name = name or node
        role = node.rstrip("0123456789")
        with open(self.where / f"{name}.log", "w", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(
                [self.evb, role, "--config", self.file, "--node", node, "--json", self.where / f"{name}.json",
                 "--set", f"sfi.directory={self.where}"], stdout=subprocess.DEVNULL, stderr=log,
                env={**os.environ, "XDG_STATE_HOME": str(self.where / "state")})

    def log(self, name):
        return (self.where / f"{name}.log").read_text(encoding="utf-8")

    def wait_log(self, name, text):
        deadline = time.monotonic() + LIMIT_S
        while text not in self.log(name):
            if time.monotonic() > deadline or self.processes[name].poll() is not None:
                sys.exit(f'soak_beam.py: {name} did not log "{text}"; its log:\n{self.log(name)}')
            time.sleep(0.05)

    def stop(self, name):
        """Ends a node within a run: the first signal asks it to wait for the end of the run."""
        self.processes[name].send_signal(signal.SIGTERM)
        self.wait_log(name, "a second signal stops at once")
        self.processes[name].send_signal(signal.SIGTERM)
        return self.end(name)

    def end(self, name):
        """Waits for the end of a node and returns its report."""
        self.processes[name].wait(timeout=LIMIT_S)
        return json.loads((self.where / f"{name}.json").read_text())

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def play(o, where, transport, bits):
    """Makes one run; returns the reports of the boards, the DFM and the ROSs (two of the one that was stopped)."""
    triggers = o.frames // (6 * len(BOARDS))
    seconds, first = triggers / o.rate, 2 ** bits - min(triggers // 8, 2 ** bits // 2)
    beam = Beam(o.evb, where, transport, bits)
    try:
        for node in ("sfi1", *BOARDS, "dfm"):
            beam.start(node)
        beam.wait_log("dfm", "triggers begin")
        words = ["--trigger-to", f"{beam.dfm}:{beam.trigger}", "--busy-from", beam.busy, "--rate", f"poisson:{o.rate}Hz",
                 "--count", str(triggers), "--size", "uniform:60-200", "--event-number", f"0:{bits}", "--first", str(first), "--fault", "missed=0.1%",
                 "--fault", "late=1%:50ms", "--fault", f"restart={RESTARTS + 1}:{seconds / 4:.1f}s:500ms", "--fault", f"reset={seconds / 2:.1f}s:2s", "--json"]
        for board in beam.boards:
            words += ["--boards", board]
        with subprocess.Popen([o.evb, "frontend", *words], stdout=subprocess.PIPE, text=True) as frontend:
            time.sleep(seconds * 3 / 4 + 2)
            stopped = beam.stop(BOARDS[STOPPED])
            beam.start(BOARDS[STOPPED], "again")
            sent = json.loads(frontend.communicate(timeout=LIMIT_S + 4 * seconds)[0])
        time.sleep(2)  # longer than ros.wait
        beam.processes["dfm"].send_signal(signal.SIGINT)
        ros = [beam.end("again" if i == STOPPED else name) for i, name in enumerate(BOARDS)]
        return sent, beam.end("dfm"), ros, stopped
    finally:
        beam.close()


def read_files(where, bits):
    """Reads every event; returns the frames found per board and the number of events."""
    found, seen, n = [0] * len(BOARDS), set(), 0
    for path in sorted(where.glob("*.data")):
        for l1_id, payloads in events_of(path):
            n += 1
            serials = set()
            for payload in payloads:
                if payload:
                    serial, board, _ = struct.unpack_from("<QII", payload, len(payload) - 16)
                    number = int.from_bytes(payload[:bits // 8], "little")
                    assert number == l1_id % 2 ** bits, f"{path}: event {l1_id} has a frame with number {number}"
                    serials.add(serial)
                    found[board - 1] += 1
            assert len(serials) <= 1, f"{path}: event {l1_id} mixes triggers {sorted(serials)}"
            assert not serials & seen, f"{path}: trigger {serials} is in two events"
            seen |= serials
    return found, n


FATES = ("used", "late", "duplicate", "impossible", "dropped", "left_over")


def account(sent, dfm, ros, stopped, found, n_events):
    """Checks the accounts; returns one row of the result."""
    ends = {end: dfm[f"events_{end}"] for end in ("complete", "partial", "lost")}
    assert dfm["triggers"] == sum(ends.values()) == sent["triggers"], (dfm["triggers"], ends, sent["triggers"])
    assert n_events == ends["complete"] + ends["partial"], (n_events, ends)
    row = {"triggers": dfm["triggers"], **ends, "frames": 0, "used": 0, "unused": {}}
    for i, (board, node) in enumerate(zip(sent["boards"], ros)):
        nodes = [node, stopped] if i == STOPPED else [node]
        for each in nodes:
            assert each["front_end_frames"] == sum(each[f"front_end_{fate}"] for fate in FATES), each
        fates = {fate: sum(each[f"front_end_{fate}"] for each in nodes) for fate in FATES}
        # What a process that ends had not read yet was lost with its socket.
        fates["lost_with_process"] = board["frames"] - sum(each["front_end_frames"] for each in nodes)
        assert fates["lost_with_process"] == 0 or i == STOPPED, (BOARDS[i], board, fates)
        # A process that ends does not learn which of the frames that it still had were built.
        most = fates["used"] + (fates["left_over"] if i == STOPPED else 0)
        assert fates["used"] <= found[i] <= most, (BOARDS[i], fates, found[i])
        assert node["front_end_restarts"] == (i == RESTARTS), (BOARDS[i], node["front_end_restarts"])
        if i not in (RESTARTS, STOPPED):
            assert fates["used"] == board["frames"], (BOARDS[i], fates, board["frames"])
        row["frames"] += board["frames"]
        row["used"] += found[i]
        row["unused"][BOARDS[i]] = {fate: n for fate, n in fates.items() if n and fate != "used"}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb")
    parser.add_argument("--frames", default="10M", help="in all combinations together (default: 10M)")
    parser.add_argument("--rate", type=int, default=10000, help="mean trigger rate in Hz (default: 10000)")
    parser.add_argument("--only", default="", help="combinations, such as udp:16,tcp:32 (default: all six)")
    parser.add_argument("--json", help="file for the result")
    o = parser.parse_args()
    o.evb = str(pathlib.Path(o.evb).resolve())
    o.frames = int(float(o.frames.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(o.frames[-1], 1))
    rows, failed = [], 0
    for combination in o.only.split(",") if o.only else [f"{t}:{b}" for t in ("udp", "tcp") for b in (16, 24, 32)]:
        transport, bits = combination.split(":")
        with tempfile.TemporaryDirectory(prefix="evb-soak-") as name:
            where = pathlib.Path(name)
            begin = time.monotonic()
            reports = play(o, where, transport, int(bits))
            try:
                row = account(*reports, *read_files(where, int(bits)))
            except AssertionError as reason:
                row, failed = {"failed": str(reason)}, 1
                print(f"{combination}: {reason}", file=sys.stderr)
            rows.append({"combination": combination, "seconds": round(time.monotonic() - begin, 1), **row})
            print(json.dumps(rows[-1]), flush=True)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(rows, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
