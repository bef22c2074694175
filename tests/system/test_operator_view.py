#!/usr/bin/env python3
"""The faults that an operator meets: the first line of evb status, the status of the DFM's unit, the reason on the page, the
alert and the last line about a fault in the DFM's log name the same node and cause, and evb check --network the node.

    test_operator_view.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import sys
import time

from harness import LIMIT_S, ROOT, folder, main, made, settings
from metrics import ask
from network import sh

sys.path.append(str(ROOT / "scripts"))
from fault_bed import NET, ROLES, Bed as FaultBed, wait_until  # noqa: E402

ALERTS = ROOT / "configs" / "prometheus" / "evb-alerts.yml"
PLACE = f"{NET}.1:9464"
GROUP = "239.255.69.86"
# So few bytes that the small disk of sfi2 is not full within an hour.
KEYS = {"scenario.duration": "0", "trigger.rate": "20Hz", "trigger.kind": "periodic", "ros.fragment-size": "200", "network.control-group": GROUP, "qos.backend": "htb",
        "network.link-rate": "1Gbit", "run.stall-timeout": "0", "dfm.node-timeout": "3s"}
BOARD_PORT = 26901


def labels_of(text):
    return dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', text))


class Alert:
    """An alert whose rule is METRIC{LABELS} == NUMBER, evaluated after each scrape, as Prometheus does."""

    def __init__(self, name):
        rule = re.search(rf"- alert: {name}\n((?: {{8}}.+\n)+)", ALERTS.read_text())[1]
        self.metric, selector, self.number = re.search(r"^ +expr: (\w+)(?:\{(.*)\})? == (\d+)$", rule, re.M).groups()
        self.selector = labels_of(selector or "").items()
        number, unit = re.search(r"^ +for: (\d+)([sm])$", rule, re.M).groups()
        self.for_s = int(number) * {"s": 1, "m": 60}[unit]
        self.summary = re.search(r'^ +summary: "(.*)"$', rule, re.M)[1]
        self.since = {}

    def evaluate(self, text):
        now, active = time.monotonic(), []
        # Without a scrape, all series of the DFM are stale, except `up`.
        for metric, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", text + f'\nup{{}} {int(bool(text))}', re.M):
            labels = {**labels_of(labels), "job": "evb", "instance": PLACE}
            if metric == self.metric and float(value) == float(self.number) and self.selector <= labels.items():
                active.append(tuple(labels.items()))
        self.since = {labels: self.since.get(labels, now) for labels in active}

    def pending(self):
        """Returns the summary of the alert, whose labels have to stay the same until it fires; "": the rule is not true."""
        return "; ".join(re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: dict(labels).get(match[1], ""), self.summary) for labels in self.since)

    def fires(self):
        return any(time.monotonic() - since >= self.for_s for since in self.since.values())


class Bed(FaultBed):
    """Six nodes in namespaces, with run control, so that they outlive a run that fails, and a service manager's socket each."""

    def __init__(self, evb, where, keys):
        control = pathlib.Path(where) / "control.sock"
        super().__init__(evb, where, random.Random(1), {**KEYS, **keys, "control.listen": f"unix:{control}"})
        self.control, self.listeners, self.statuses = control, {}, {}
        self.fault = Alert("EvbFault")

    def __enter__(self):
        super().__enter__()
        for name in ROLES:
            self.listeners[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self.listeners[name].bind(str(self.where / f"{name}.notify"))
            self.undo.append(self.listeners[name].close)
        # The disk of sfi2 can be filled, and made read-only.
        disk = self.where / "disk"
        disk.mkdir()
        sh("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(disk))
        self.undo.append(lambda: sh("umount", "-l", str(disk)))
        self.directories["sfi2"] = disk
        return self

    def start(self, node, key=None, file=None, prefix=(), env=None, **keys):
        env = {**(env or {}), "NOTIFY_SOCKET": str(self.where / f"{node}.notify")}
        super().start(node, key, file, prefix, env, **{"metrics__listen": ":9464", **keys})

    def restart(self, node, **keys):
        self.kill(node)
        self.start(node, **keys)

    def first_line(self):
        done = self.evb_at("dfm", "status", "--config", str(self.file), "--set", "metrics.listen=:9464")
        return (done.stdout.splitlines() or [done.stderr])[0]

    def evb_at(self, node, *words):
        return self.run(node, self.evb, *words, check=False)

    def unit(self, node="dfm"):
        # Nodes whose notices nobody reads would wait.
        for name, listener in self.listeners.items():
            with contextlib.suppress(OSError):
                while True:
                    for line in listener.recv(4096).decode().splitlines():
                        if line.startswith("STATUS="):
                            self.statuses[name] = line
        return self.statuses.get(node, "")

    def ask(self, path):
        with contextlib.suppress(OSError), self.inside("dfm"):
            return ask(PLACE, path)[2]
        return ""

    def page(self):
        """The reason that the page shows in its banner."""
        found = re.search(r"^data: (.*)$", self.ask("/events"), re.M)
        return (json.loads(found[1])["run"]["reason"] or "") if found else ""

    def alert(self):
        # A loaded machine may fail to answer; the dead DFM has a test of its own.
        text = self.ask("/metrics")
        if text:
            self.fault.evaluate(text)
        return self.fault.pending()

    def wait_alert(self, node, cause):
        """Waits until the alert fires, which it does only if its labels do not change while the counts do."""
        wait_until("alert", lambda: time.sleep(0.2) or (self.unit() and self.alert() and self.fault.fires()), LIMIT_S + 5 * self.fault.for_s)
        assert node in self.fault.pending() and cause in self.fault.pending(), self.fault.since

    def last_fault(self):
        """The last line about a fault in the DFM's log; others may follow on a loaded machine."""
        lines = re.findall(r"^dfm: run \d+: .*", self.log("dfm"), re.M)
        return lines[-1] if lines else ""

    def wait_named(self, node, cause):
        """Waits until all places name node and cause."""
        # The last ones take a process, or an answer of the DFM, and are asked once the first ones name both.
        places = {"unit": self.unit, "log": self.last_fault, "page": self.page, "alert": self.alert, "evb status": self.first_line}
        seen = {}

        def is_named(place):
            seen[place] = places[place]()
            return node in seen[place] and re.search(cause, seen[place])

        try:
            wait_until("the same node and cause everywhere", lambda: time.sleep(0.2) or all(map(is_named, places)), LIMIT_S)
        except Exception as e:
            raise AssertionError(f"{e}: {node}, {cause}: {json.dumps(seen, indent=1)}") from None

    def check_network(self):
        """The nodes at which evb check --network finds a fault."""
        done = self.evb_at("dfm", "check", str(self.file), "--network", *settings({**self.keys, "metrics.listen": ":9464"}), "--json")
        assert done.returncode in (0, 1), done
        return {each["node"] for each in json.loads(done.stdout)["faults"]}

    def wait_well(self):
        line = []

        def is_well():
            time.sleep(0.2)
            # A node that had lost the DFM for too long has exited; its unit would start it again.
            for node, process in list(self.processes.items()):
                if process.poll() is not None:
                    self.start(node)
            # First, as a node that has just started waits in READY=1 until its notices are read.
            if not re.search(r"running: [^;]*$", self.unit()) or "at fault" in self.alert():
                return False
            line[:] = [self.first_line()]
            return re.fullmatch(r"run \d+ of run: running", line[0])

        try:
            wait_until("a run without a fault", is_well, LIMIT_S)
        except Exception as e:
            raise AssertionError(f"{e}: {line}, {self.alert()}") from None

    def filter(self, node, rule):
        sh("ip", "netns", "exec", self.name(node), "nft", "-f", "-",
           input=f"table inet evb {{ chain c {{ type filter hook input priority 0; {rule} drop; }}\n }}\n")

    def unfilter(self, node):
        self.run(node, "nft", "delete", "table", "inet", "evb")

    def edited(self, node, pattern, text):
        """The scenario with a change in the section of a node."""
        path = self.where / f"{node}.conf"
        path.write_text(re.sub(rf"(\[node {node}\]\n(?:.+\n)*?){pattern}", rf"\1{text}", self.file.read_text()))
        return path


NO_ANSWER = "no answer"


def of_processes(b):
    yield "ros2", NO_ANSWER, lambda: b.kill("ros2"), lambda: b.start("ros2")
    yield "sfi2", NO_ANSWER, lambda: b.kill("sfi2"), lambda: b.start("sfi2")
    yield ("ros2", NO_ANSWER, lambda: b.processes["ros2"].send_signal(signal.SIGSTOP),
           lambda: b.processes["ros2"].send_signal(signal.SIGCONT))


def of_the_network(b):
    def boot():
        b.ip("switch", "link", "set", b.port("ros3"), "up")
        b.start("ros3")

    yield ("ros2", NO_ANSWER, lambda: b.ip("switch", "link", "set", b.port("ros2"), "down"),
           lambda: b.ip("switch", "link", "set", b.port("ros2"), "up"))
    yield "ros3", NO_ANSWER, lambda: (b.ip("switch", "link", "set", b.port("ros3"), "down"), b.kill("ros3")), boot


def of_filters(b):
    yield "sfi2", "no fragment arrives at its port 26801", lambda: b.filter("sfi2", "udp dport 26801"), lambda: b.unfilter("sfi2")
    yield "ros2", "it receives nothing from the DFM", lambda: b.filter("ros2", "udp dport 26800"), lambda: b.unfilter("ros2")
    yield "ros2", "it receives nothing from the DFM", lambda: b.filter("ros2", f"ip daddr {GROUP}"), lambda: b.unfilter("ros2")


def of_disks(b):
    disk = b.directories["sfi2"]

    def fill():
        with contextlib.suppress(OSError), open(disk / "other", "wb") as f:
            while True:
                f.write(bytes(1 << 20))
                f.flush()

    def empty():
        (disk / "other").unlink()
        assert b.evb_at("dfm", "ctl", "start", "--socket", str(b.control)).returncode == 0

    def remount(how):
        b.kill("sfi2")
        sh("mount", "-o", f"remount,{how}", str(disk))
        b.start("sfi2")

    yield "sfi2", r"disk full", fill, empty
    yield "sfi2", NO_ANSWER, lambda: remount("ro"), lambda: remount("rw"), "Read-only file system"
    yield ("sfi2", NO_ANSWER, lambda: b.restart("sfi2", sfi__directory=str(b.where / "missing")), lambda: b.start("sfi2"),
           "No such file or directory")


def of_settings(b):
    offset = b.where / "offset"
    offset.write_text("10800 0")
    ahead = {"LD_PRELOAD": str(made("clock_shim.so")), "EVB_CLOCK_OFFSET": str(offset),
             "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def well():
        b.restart("ros2")

    def long_packets(device, scenario):
        b.ip("ros2", "link", "set", "eth0", "mtu", device)
        b.restart("ros2", network__mtu=scenario)

    def other_tree():
        b.tc("ros2", "qdisc", "replace", "dev", "eth0", "root", "handle", "77:", "htb")
        b.tc("ros2", "class", "add", "dev", "eth0", "parent", "77:", "classid", "77:1", "htb", "rate", "1gbit")

    def own_tree():
        b.tc("ros2", "qdisc", "del", "dev", "eth0", "root")
        well()

    yield "ros2", "its scenario differs from ours in scenario.mode", lambda: b.restart("ros2", scenario__mode="pull"), well
    yield "ros2", "its scenario differs from that of the DFM in sfi.timeout", lambda: b.restart("ros2", sfi__timeout="9s"), well
    yield "ros2", r"its clock is .*ahead of this machine's", lambda: b.restart("ros2", env=ahead), well
    yield "ros2", r"its longest packets \(network.mtu\) do not reach", lambda: long_packets("9000", "9000"), lambda: long_packets("1500", "auto")
    yield ("ros2", NO_ANSWER, lambda: b.restart("ros2", file=b.edited("ros2", "address = .*", "address = 127.0.1.1")), lambda: b.start("ros2"),
           "127.0.1.1")
    yield ("ros2", NO_ANSWER, lambda: b.restart("ros2", file=b.edited("ros2", "role = ros", r"role = ros\ndevice = eth9")),
           lambda: b.start("ros2"), "eth9")
    yield "ros2", "its shaping is not installed as planned", other_tree, own_tree


def of_boards(b):
    """No frame of the board of ros2 arrives, which makes events partial."""
    rosses = [f"udp:{NET}.{2 + i}:{BOARD_PORT}" for i in range(3)]
    b.all.append(b.popen("dfm", b.evb, "frontend", "--boards", ",".join(rosses), "--rate", "20Hz", "--size", "200"))
    yield "ros2", "silent front-end", lambda: b.filter("ros2", f"udp dport {BOARD_PORT}"), lambda: b.unfilter("ros2")


def of_memory(b):
    """Most events do not fit into 4 MiB, with each fragment rounded up to a power of two."""
    yield ("sfi2", r"its events find no memory \(sfi.buffer-size\)", lambda: b.restart("sfi2", **{"sfi.buffer-size": "4MiB"}),
           lambda: b.restart("sfi2"))


def follow(evb, faults, **keys):
    """Makes each fault of a list in one bed, and mends it."""
    with folder() as where, Bed(evb, where, keys) as b:
        for node in ROLES:
            b.start(node)
        for node, cause, make, mend, *own in faults(b):
            b.wait_well()
            make()
            b.wait_named(node, cause)
            if faults in (of_processes, of_the_network, of_filters, of_settings) and "shaping" not in cause:
                wait_until(f"evb check --network names {node} alone", lambda n=node: b.check_network() == {n}, LIMIT_S)
            # A process that starts slowly is named before it has failed.
            for text in own:
                wait_until(f"{text!r} in the log of {node}", lambda n=node, t=text: t in b.log(n), LIMIT_S)
            if faults is of_boards:
                b.wait_alert(node, cause)
            mend()
        b.wait_well()
        wait_until("evb check --network finds nothing", lambda: not b.check_network(), LIMIT_S)
        if faults is of_processes:
            dead_dfm(b)
            last_status(b)


def dead_dfm(b):
    """A dead DFM serves neither page nor metrics; Prometheus, evb status and all other nodes miss it."""
    before = {node: len(b.log(node)) for node in ROLES}
    b.kill("dfm")

    def named():
        # The cheapest question first.
        return all("dfm silent" in b.unit(node) and "dfm silent" in b.log(node)[before[node]:] for node in ROLES if node != "dfm") and (
            "dfm" in b.first_line() or "dfm" in b.evb_at("dfm", "status", "--config", str(b.file), "--set", "metrics.listen=:9464").stderr)

    wait_until("the dead DFM", named, LIMIT_S)
    down = Alert("EvbNodeDown")
    down.evaluate(b.ask("/metrics"))
    assert NO_ANSWER in b.first_line() and f"{PLACE} does not answer" in down.pending(), down.since
    b.start("dfm")
    b.wait_well()


def last_status(b):
    """After a run that fell short, the unit keeps the first of the reasons in the log."""
    b.processes["dfm"].terminate()
    wait_until("the end of the DFM", lambda: b.unit() and b.processes["dfm"].poll() is not None, LIMIT_S)
    reason = re.fullmatch("STATUS=run over: (.+)", b.unit())
    assert reason and f"dfm: {reason[1]}" in b.log("dfm"), (b.unit(), b.log("dfm"))


if __name__ == "__main__":
    main({
        "processes": lambda evb: follow(evb, of_processes),
        "network": lambda evb: follow(evb, of_the_network),
        # A node that receives nothing exits after 10 dfm.node-timeout.
        "filters": lambda evb: follow(evb, of_filters, **{"dfm.node-timeout": "10s"}),
        "disks": lambda evb: follow(evb, of_disks),
        "settings": lambda evb: follow(evb, of_settings),
        "boards": lambda evb: follow(evb, of_boards, **{"trigger.source": "frames", "ros.source": f"udp:{BOARD_PORT}", "ros.event-number": "0:32", "sfi.timeout": "10s"}),
        "memory": lambda evb: follow(evb, of_memory, **{"trigger.rate": "2Hz", "ros.fragment-size": "uniform:200-3MiB", "sfi.output": "null"}),
    })
