"""A run of real processes for scripts/faults.py: each node in a network namespace of its own, joined by a bridge."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "system"))

import harness  # noqa: E402
from metrics import ask  # noqa: E402
from network import Network, sh  # noqa: E402

ROLES = {"dfm": "dfm", "ros1": "ros", "ros2": "ros", "ros3": "ros", "sfi1": "sfi", "sfi2": "sfi"}
NET = "10.77.0"
# The settings of every repetition; docs/reliability.md lists them. The bounds of the table follow from them.
SETTINGS = {
    "scenario.duration": "5s", "trigger.rate": "500Hz", "trigger.kind": "poisson", "ros.fragment-size": "1000",
    "test.keep-alive": "50ms", "dfm.node-timeout": "2s", "sfi.timeout": "2s",
    "dfm.start-timeout": "60s", "run.stop-timeout": "10s", "run.stall-timeout": "20s", "sfi.output": "file", "sfi.durability": "written",
}
START_LIMIT_S, END_LIMIT_S = 60, 180
CHECKER = harness.SHARED / "tools" / "eformat3_check.py"


AFTER_TRIGGERS = ("draining", "sealing", "ended")


class Violation(Exception):
    """The outcome differs from what is stated."""


def require(condition, text):
    if not condition:
        raise Violation(text)


def wait_until(what, condition, limit_s):
    try:
        harness.wait_until(what, condition, limit_s)
    except AssertionError as e:
        raise Violation(str(e)) from None


class Sampler(threading.Thread):
    """Asks the DFM how many events have ended, some 40 times a second."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place, self.samples, self.stopping = place, [], threading.Event()

    def run(self):
        while not self.stopping.wait(0.025):
            with contextlib.suppress(OSError, ValueError):
                status = json.loads(ask(f"unix:{self.place}", "/status")[2])
                ended = sum(status["counts"][f"events_{end}"] or 0 for end in ("complete", "partial", "lost"))
                self.samples.append((time.monotonic(), ended, status["state"]))

    def longest_pause_s(self, since):
        """Returns the longest time without an end of an event, from `since` to the end of the triggers."""
        pause, last, at = 0.0, None, since
        for when, ended, state in list(self.samples):
            if when < since:
                last = ended
            elif state in AFTER_TRIGGERS:
                return max(pause, when - at)
            elif ended != last:
                pause, last, at = max(pause, when - at), ended, when
        return pause


class Bed(Network):
    """The namespaces and processes of one repetition."""

    def __init__(self, evb, where, random, keys):
        super().__init__(*ROLES, "switch")
        self.evb, self.where, self.random = evb, pathlib.Path(where), random
        self.keys = {**SETTINGS, **keys}
        self.processes, self.killed, self.restarts, self.facts = {}, {}, {}, {}
        self.all, self.undo, self.directories = [], [], {}
        self.file = self.write("run.conf", 1)
        self.sampler = Sampler(self.where / "dfm.sock")

    def write(self, name, first):
        """Writes a scenario whose nodes have the addresses from NET.first on."""
        text = "[network]\ncontrol-group = 239.255.69.86\n"
        for i, (node, role) in enumerate(ROLES.items()):
            text += f"[node {node}]\nrole = {role}\naddress = {NET}.{first + i}\n"
        path = self.where / name
        path.write_text(text)
        return path

    def __enter__(self):
        super().__enter__()
        self.bridge("switch", ROLES, NET)
        for node in ROLES:
            (self.where / node).mkdir()
        return self

    def __exit__(self, *_):
        self.sampler.stopping.set()
        for process in self.all:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
            process.wait()
        for function in reversed(self.undo):
            function()
        super().__exit__()

    def bridge(self, switch, hosts, net="10.9.0"):
        """As Network.bridge(), with one process for each namespace."""
        lines = ["link add bridge type bridge", "link set bridge up"]
        for i, host in enumerate(hosts, 1):
            lines += [f"link add port{i} type veth peer name eth0 netns {self.name(host)}", f"link set port{i} master bridge up"]
        self.batch(switch, lines)
        for i, host in enumerate(hosts, 1):
            self.batch(host, [f"addr add {net}.{i}/24 dev eth0", "link set eth0 up"])

    def batch(self, node, lines):
        sh("ip", "-n", self.name(node), "-batch", "-", input="\n".join(lines) + "\n")

    def port(self, node):
        return f"port{1 + list(ROLES).index(node)}"

    def start(self, node, key=None, file=None, prefix=(), env=None, **keys):
        """Starts a node; `key` distinguishes processes of one node."""
        key = key or node
        restarts = self.restarts.get(key, -1) + 1
        self.restarts[key] = restarts
        own = {**self.keys, "sfi.directory": str(self.directories.get(key, self.where / node)),
               "metrics.listen": f"unix:{self.where / key}.sock", **{name.replace("__", "."): v for name, v in keys.items()}}
        words = [word for name, value in own.items() for word in ("--set", f"{name}={value}")]
        with open(self.where / f"{key}.log", "a", encoding="utf-8") as log:
            self.processes[key] = subprocess.Popen(
                [*prefix, "ip", "netns", "exec", self.name(node), self.evb, ROLES[node], "--config", str(file or self.file), "--node", node,
                 "--json", str(self.where / f"{key}.{restarts}.json"), *words],
                stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, "XDG_STATE_HOME": str(self.where / "state"), **(env or {})})
        self.all.append(self.processes[key])

    def start_all(self, options=None):
        for node in ROLES:
            self.start(node, **(options or {}).get(node, {}))
        self.sampler.start()

    def wait_running(self):
        def ended():
            for node, process in self.processes.items():
                require(process.poll() is None, f"{node} ended before the run began: {self.log(node)[-500:]}")
            return self.sampler.samples and self.sampler.samples[-1][1] > 0

        wait_until("first event", ended, START_LIMIT_S)

    def log(self, node):
        path = self.where / f"{node}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait(self, what, condition):
        wait_until(what, condition, START_LIMIT_S)

    def pause(self, low_s, high_s):
        seconds = self.random.uniform(low_s, high_s)
        time.sleep(seconds)
        return seconds

    def kill(self, node):
        """Kills the process of a node; it need not be there any more."""
        self.processes[node].kill()
        self.killed[node] = self.processes[node].wait()

    def wait_all(self):
        deadline = time.monotonic() + END_LIMIT_S
        statuses = {}
        for node, process in self.processes.items():
            try:
                statuses[node] = process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise Violation(f"{node} did not end within {END_LIMIT_S} s; its log: {self.log(node)[-500:]}") from None
        return statuses

    def report(self, node):
        path = self.where / f"{node}.{self.restarts[node]}.json"
        return json.loads(path.read_text()) if path.exists() and path.read_text() else None


def repair(evb, path, folder):
    """Makes a file of the whole events of one that was left open; it need not hold any."""
    data = folder / path.with_suffix(".data").name
    done = subprocess.run([evb, "dump", path, "--repair", "--output", data, "--json"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        require(path.stat().st_size < 4096, f"{path.name} of {path.stat().st_size} bytes cannot be repaired: {done.stderr}")
        return None
    return data


def read_events(path):
    """Yields L1 ID and whether it is partial, of each event of a v3.0 file, by layout only."""
    raw = path.read_bytes()
    at = raw.find(struct.pack("<2I", 0x1234CCCC, 4))
    while 0 <= at < len(raw) and struct.unpack_from("<I", raw, at)[0] == 0x1234CCCC:
        size = struct.unpack_from("<I", raw, at + 12)[0]
        words = struct.unpack_from(f"<{size // 4}I", raw, at + 16)
        yield words[5 + words[5] + 5], bool(words[6] & 0x80000000)
        at += 16 + size


def check_file(evb, path):
    """Checks a file with `evb dump --verify`, and with the reader that shares no code with evb; returns its events."""
    done = subprocess.run([evb, "dump", path, "--verify", "--json"], capture_output=True, text=True, timeout=120)
    require(done.returncode == 0 and json.loads(done.stdout)["verify"]["right"], f"{path.name} is damaged: {done.stdout} {done.stderr}")
    events = list(read_events(path))
    require(json.loads(done.stdout)["events"] == len(events), f"{path.name}: evb dump counts other events than its bytes")
    if CHECKER.exists():
        other = subprocess.run([sys.executable, CHECKER, path], capture_output=True, text=True, timeout=120)
        require(other.returncode == 0, f"{path.name}: {other.stderr}")
        require(json.loads(other.stdout)["events"] == len(events), f"{path.name}: the other reader counts other events")
    return events


def check_files(evb, folders, repaired):
    """Repairs what was left open into another folder, and reads every file. Returns the L1 IDs of all events, each as often as
    it is there."""
    repaired.mkdir()
    for path in sorted(path for folder in folders for path in folder.glob("*.writing")):
        repair(evb, path, repaired)
    paths = sorted(path for folder in (*folders, repaired) for path in folder.glob("*.data"))
    return [l1_id for path in paths for l1_id, _ in check_file(evb, path)]


def balance(report):
    """Checks that each trigger ended once, and returns how many in which way."""
    ends = {end: report[f"events_{end}"] for end in ("complete", "partial", "lost", "rejected")}
    require(report["triggers"] == sum(ends.values()), f"{report['triggers']} triggers, but ends {ends}")
    return ends


def processes_of(where):
    """Returns the processes whose command line names the folder of a repetition."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(where).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def namespaces_of(pid):
    folder = pathlib.Path("/run/netns")
    return [name for name in (os.listdir(folder) if folder.exists() else []) if re.fullmatch(rf"evb-{pid}-\w+", name)]


def clean(pid, where):
    """Removes what a repetition that ended badly has left: processes, mounts, namespaces, files."""
    for other in processes_of(where):
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    mounts = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{where}/")]):
        subprocess.run(["fsfreeze", "-u", mount], capture_output=True)
        subprocess.run(["umount", "-l", mount], capture_output=True)
    for name in namespaces_of(pid):
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    shutil.rmtree(where, ignore_errors=True)
