#!/usr/bin/env python3
"""docs/network.md, followed as a network engineer would: ports, firewall, multicast, sizes and captures, in namespaces with the
addresses of the page.

    test_network_page.py EVB [CASE...]
"""
import contextlib
import json
import re
import shutil
import socket
import struct
import subprocess
import time

from harness import LIMIT_S, OWN_NET, ROOT, Skip, folder, main, need_root
from network import Network, sh, wait_until
from page_table import MONITORING, NETWORK, of_case
from pages import Shell, check_shown, file_of, pattern_of, table_rows


PATIENT = ("--set", "sfi.timeout=30s", "--set", "dfm.node-timeout=30s")


class Bed:
    """A DFM, a ROS and an SFI in namespaces joined by a bridge, with the addresses of docs/network.md."""

    NODES = {"dfm": "10.0.0.1", "ros1": "10.0.0.2", "sfi1": "10.0.0.5"}

    def __init__(self, evb, network, where):
        self.evb, self.network, self.where, self.processes = evb, network, where, {}
        network.ip("switch", "link", "add", "bridge", "type", "bridge")
        network.ip("switch", "link", "set", "bridge", "up")
        text = "[trigger]\nrate = 500Hz\n[ros]\nfragment-size = 1KiB\n[metrics]\nlisten = :9464\n[dfm]\n"
        for name, address in self.NODES.items():
            network.ip("switch", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth1", "netns", network.name(name))
            network.ip("switch", "link", "set", f"to-{name}", "master", "bridge", "up")
            network.ip(name, "addr", "add", f"{address}/24", "dev", "eth1")
            network.ip(name, "link", "set", "eth1", "up")
            text += f"[node {name}]\nrole = {name[:3]}\naddress = {address}\ndevice = eth1\n"
        (where / "scenario.conf").write_text(text)

    def start(self, *options, expect_running=True):
        # A node that gets no processor for a while loses nothing.
        options = [*(PATIENT if expect_running else ()), *options]
        for name in self.NODES:
            log = open(self.where / f"{name}.log", "w", encoding="utf-8")
            self.processes[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.network.name(name), self.evb, name[:3], "--config", str(self.where / "scenario.conf"),
                 "--node", name, *options], stderr=log, stdout=subprocess.DEVNULL)
        if expect_running:
            wait_until("a run", lambda: re.search(r"^sfi1 +sfi +running +\d+ +[\d.]+ k? +[1-9]", self.status(), re.M))

    def status(self, *options):
        return self.network.evb(self.evb, "dfm", "status", "--scenario", str(self.where / "scenario.conf"), *options, check=False).stdout

    def faults(self, *options):
        """What evb check --network finds: node and fault of each."""
        done = self.network.evb(self.evb, "dfm", "check", str(self.where / "scenario.conf"), "--network", "--json", *options,
                                check=False)
        found = [(each["node"], each["fault"]) for each in json.loads(done.stdout)["faults"]]
        assert done.returncode == bool(found), done
        return found

    def log(self, name):
        return (self.where / f"{name}.log").read_text()

    def stop(self, expect=0):
        self.processes["dfm"].terminate()
        for name, process in self.processes.items():
            status = process.wait(timeout=LIMIT_S)
            assert status == expect or name != "dfm", (name, status, self.log(name))

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def shell(self, node):
        (self.where / f"of-{node}").mkdir(exist_ok=True)
        return Shell(self.where / f"of-{node}", self.evb, ("ip", "netns", "exec", self.network.name(node)))

    def edits(self):
        return [(r"/etc/evb/scenario.conf|(?<= )scenario.conf", str(self.where / "scenario.conf"))]


@contextlib.contextmanager
def bed(evb):
    need_root()
    with Network("switch", *Bed.NODES) as network, folder() as where, contextlib.closing(Bed(evb, network, where)) as b:
        yield b


# Where a command of docs/network.md or docs/monitoring.md is typed, if not at the ROS.
PLACES = {"evb status": "dfm", "curl": "dfm", "nft": "sfi1"}
OPTIONAL = {"ping": "iputils-ping", "curl": "curl"}


def network(evb):
    """Commands and shown output of docs/network.md at a running ROS; afterwards, the same without multicast."""
    with bed(evb) as b:
        b.start()
        commands = of_case(NETWORK, "network") + of_case(MONITORING, "network")
        (without_multicast,) = (command for command in commands if command.page == NETWORK and command.text.startswith("evb status"))
        skipped = set()
        shells = {name: b.shell(name) for name in Bed.NODES}
        try:
            for command in commands:
                program = command.text.split()[0]
                if program in OPTIONAL and not shutil.which(program):
                    skipped.add(program)
                elif command is not without_multicast:
                    place = next((name for start, name in PLACES.items() if command.text.startswith(start)), "ros1")
                    shells[place].follow(command, b.edits())
            wait_until("an answer without faults", lambda: b.faults(*PATIENT) == [])
            for program in skipped:
                print(f"not run: {program}, which is not installed; on Debian: apt-get install {OPTIONAL[program]}")
            b.stop()
            without(b, without_multicast)
        finally:
            for shell in shells.values():
                shell.__exit__()


def is_logged(b, node, begin):
    """Whether a node has logged the message of the page that begins so; figures differ."""
    found = re.findall(rf"`({begin}.*?)`", (ROOT / NETWORK).read_text())
    assert len(found) == 1, found
    return re.search(pattern_of(found[0]), b.log(node))


def is_shown(command, output):
    with contextlib.suppress(AssertionError):
        check_shown(command, output)
        return True
    return False


def without(b, command):
    """Multicast that the switch drops: the state of the ROS, its message, and the remedy are those of the page."""
    for device, settings in (("bridge", ("bridge", "mcast_snooping", "0")), ("to-ros1", ("bridge_slave", "mcast_flood", "off"))):
        b.network.ip("switch", "link", "set", device, "type", *settings)
    # The ROS ends after ten times this time, which leaves time to look on a slow machine.
    b.start("--set", "dfm.node-timeout=10s", expect_running=False)
    wait_until("the ROS's message", lambda: is_logged(b, "ros1", "no message from the DFM"))
    wait_until("the page's status", lambda: is_shown(command, b.status()))
    wait_until("the fault", lambda: [node for node, fault in b.faults() if "multicast of the DFM" in fault] == ["ros1"])
    b.close()
    b.start("--set", "network.control-group=none")
    b.stop()


def listening(process):
    """Returns protocol and port of each socket on which a process listens, with "multicast" for those of a group."""
    found = set()
    for line in sh("ss", "-Hlntup").stdout.splitlines():
        if f"pid={process}," in line:
            words = line.split()
            host, _, port = words[4].rpartition(":")
            found.add((words[0].upper() + (" multicast" if host.startswith("239.") else ""), int(port)))
    return found


def ports(evb):
    """The table of ports has each key that contains one, with its default; nodes listen where it says, and nowhere else."""
    rows = table_rows(NETWORK, ["port", "protocol", "from", "to", "carries", "set by"])
    keys = subprocess.run([evb, "check", "--keys"], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
    defaults = {}
    for section in re.split(r"^\[", keys, flags=re.M)[1:]:
        name = section.split("]")[0]
        for key, text in re.findall(r"^([\w-]+)\n((?:    .*\n)+)", section, re.M):
            if key == "port" or re.search(r"Values: .*(PORT|multicast)", text):
                defaults[f"{name}.{key}"] = re.search(r"default: (\S+?)\)", text)[1]
    named = {row[5].split("`")[1] for row in rows}
    assert named == set(defaults), named ^ set(defaults)
    for port, *_, carries, key in rows:
        default = defaults[key.split("`")[1]]
        if key.startswith("the port after"):
            default = str(int(default) + 1)
        assert port == default or (port == "none" and not default.isdigit()) or default in carries, (key, port, default)
    expected = {"dfm": set(), "ros": set(), "sfi": set()}
    chosen = {"metrics.listen": 9464, "control.listen": 26803, "level2.listen": 26811, "level2.regions": 26812, "live.listen": 26815, "trigger.source": 26813,
              "ros.source": 26814}
    for port, protocol, _, to, carries, key in rows:
        if "`tcp`" in carries or "tcp:HOST" in carries or "udp:GROUP" in carries or key.strip("`") == "trigger.busy-to":
            continue
        number = int(port) if port != "none" else chosen[key.strip("`")]
        for role in expected if to == "all nodes" else [to.lower()]:
            expected[role].add((protocol, number))
    check_lab_ports(evb)
    with folder() as where:
        path = where / "all.conf"
        path.write_text("[metrics]\nlisten = :9464\n[control]\nlisten = :26803\n[level2]\nlisten = tcp:26811\nregions = tcp:26812\n"
                        f"[live]\nlisten = {OWN_NET}.3:26815\n[trigger]\nsource = udp:26813\n"
                        "[ros]\nsource = udp:26814\nevent-number = 0:32\n" + "".join(
                            f"[node {role}1]\nrole = {role}\naddress = {OWN_NET}.{i}\ndevice = lo\n" for i, role in enumerate(expected, 1)))
        assert_ports(evb, path, expected)


def check_lab_ports(evb):
    """The ports of plain flows of the lab are those of the code, for the measurements of the catalogue."""
    code = (ROOT / "python/evb/lab/run_flows.py").read_text()
    first, group = int(re.search(r"^PORT = (\d+)", code, re.M)[1]), re.search(r'^GROUP = "(.*)"', code, re.M)[1]
    assert "PORT + 16 * i + k" in code
    measurements = json.loads(sh(evb, "lab", "list", "--json").stdout)["measurements"]
    last = max(first + 16 * (m["ros"]["most"] - 1) + (m["sfi"]["most"] - 1 if m["ros"]["most"] == 1 else 0)
               for m in measurements if m["id"][0] in "AB" and m["dfm"])
    page = " ".join((ROOT / NETWORK).read_text().split())
    assert f"ports {first} to {last}, and at the group {group}" in page, (first, last, group)


def assert_ports(evb, path, expected):
    started = {}
    try:
        for role in expected:
            started[role] = subprocess.Popen([evb, role, "--config", str(path), "--node", f"{role}1"], stderr=subprocess.DEVNULL)
        for role, process in started.items():
            deadline = time.monotonic() + LIMIT_S
            while (found := listening(process.pid) if process.poll() is None else None) != expected[role]:
                assert found is not None and time.monotonic() < deadline, (role, found, expected[role])
                time.sleep(0.05)
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def firewall(evb):
    """With the rules of docs/network.md, runs over UDP and TCP are complete, and other ports are closed."""
    if not shutil.which("nft"):
        raise Skip("nft is not installed; on Debian: apt-get install nftables")
    with bed(evb) as b:
        rules = b.where / "evb.nft"
        rules.write_text(file_of(NETWORK, "/etc/nftables.d/evb.nft"))
        for name in Bed.NODES:
            with b.shell(name) as shell:
                for command in of_case(NETWORK, "firewall"):
                    shell.follow(command, [("/etc/nftables.d/evb.nft", str(rules))])
        for transport in ("udp", "tcp"):
            b.start("--set", f"scenario.transport={transport}")
            b.stop()
        with b.network.inside("sfi1"):
            server = socket.socket()
            server.bind(("10.0.0.5", 26899))
            server.listen()
        with b.network.inside("ros1"):
            client = socket.socket()
            client.settimeout(1)
        with contextlib.closing(server), contextlib.closing(client):
            try:
                client.connect(("10.0.0.5", 26899))
                raise AssertionError("a port that the page does not name is open")
            except TimeoutError:
                pass
        # The rules are needed: closed ports show as the page says.
        closed(b, rules, "sfi1", "udp dport 26801", lambda: is_logged(b, "sfi1", "event 0 is lost"))
        closed(b, rules, "sfi1", "udp dport 26800", lambda: "waiting for sfi1" in b.log("dfm"))
        closed(b, rules, "dfm", "udp dport 26800", lambda: "waiting for the DFM dfm at 10.0.0.1" in b.log("ros1"))


def closed(b, rules, node, what, is_shown):
    """Without one of the rules at a node, the page's reason is shown."""
    without_it = rules.with_suffix(".without")
    without_it.write_text(re.sub(rf".*{what}.*\n", "", rules.read_text()))
    for text in (without_it, rules):
        b.network.run(node, "nft", "flush", "ruleset")
        b.network.run(node, "nft", "-f", str(text))
        if text == without_it:
            b.start(expect_running=False)
            wait_until(f"the reason without {what} at {node}", is_shown)
            b.close()


def no_fragments(evb):
    """A port in front of the SFI that passes everything but fragments: the SFI says so while the run goes on, and once."""
    with bed(evb) as b:
        to = ("dev", "to-sfi1")
        b.network.tc("switch", "qdisc", "add", *to, "root", "handle", "1:", "htb", "default", "1")
        for minor in ("1", "2"):
            b.network.tc("switch", "class", "add", *to, "parent", "1:", "classid", f"1:{minor}", "htb", "rate", "1gbit", "quantum", "60000")
        b.network.tc("switch", "qdisc", "add", *to, "parent", "1:2", "bfifo", "limit", "1")
        b.network.tc("switch", "filter", "add", *to, "parent", "1:", "protocol", "ip", "u32", "match", "ip", "dport", "26801", "0xffff",
                     "flowid", "1:2")
        b.start("--set", "sfi.timeout=300ms", expect_running=False)
        wait_until("the message", lambda: is_logged(b, "sfi1", "event 0 is lost"))
        wait_until("the fault", lambda: any(node == "sfi1" and "arrives at its port 26801" in fault for node, fault in b.faults()))
        # A DFM that answers too late has no counts.
        wait_until("more lost events", lambda: json.loads(b.status("--json"))["nodes"][0].get("counts", {}).get("events_lost", 0) > 20)
        b.stop(expect=1)
        assert b.log("sfi1").count(" is lost: ") == 1, b.log("sfi1")


class Sniffer:
    """What arrives at and leaves a device: IPv4 packets, without tcpdump."""

    def __init__(self, b, node):
        with b.network.inside(node):
            # Of all protocols: otherwise, what this node sends does not come here.
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(0x0003))
            self.socket.bind(("eth1", 0x0003))
        self.socket.setblocking(False)
        self.packets = []

    def take(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, (_, protocol, *_) = self.socket.recvfrom(65536)
                self.packets += [packet] if protocol == 0x0800 else []
        return self.packets

    def messages(self):
        """Returns TTL, destination, and the filter's value of each control message."""
        return [(p[8], socket.inet_ntoa(p[16:20]), p[20 + 24:20 + 28].hex()) for p in self.take()
                if p[9] == 17 and struct.unpack("!H", p[22:24])[0] == 26800]


def filters(evb):
    """The values in the filters are the types of docs/protocol.md, and packets on the wire have them; multicast has a TTL of 1."""
    types = {name: number for number, name, *_ in table_rows("docs/protocol.md", ["number", "name", "direction", "transaction"])}
    rows = {name: re.search(r"udp\[24:4\] = 0x(\w+)", text)[1] for text, name, _ in table_rows(NETWORK, ["filter", "message", "expect"])}
    for name, value in rows.items():
        assert int.from_bytes(bytes.fromhex(value), "little") == int(types[name], 16), (name, value)
    with bed(evb) as b:
        sniffer = Sniffer(b, "dfm")
        b.start("--set", "network.loss=0.05")
        wanted = {value for name, value in rows.items() if name != "Request"}
        wait_until("all messages", lambda: wanted <= {value for _, _, value in sniffer.messages()})
        assert {ttl for ttl, to, _ in sniffer.messages() if to == "239.255.69.86"} == {1}
        sniffer.socket.close()
        # Between ROS and SFI.
        sniffer = Sniffer(b, "ros1")
        wait_until("a request", lambda: rows["Request"] in {value for _, _, value in sniffer.messages()})
        sniffer.socket.close()
        b.stop()


def capture(evb):
    """The commands of docs/network.md with tcpdump, at a ROS; their filters compile."""
    if not shutil.which("tcpdump"):
        raise Skip("tcpdump is not installed; on Debian: apt-get install tcpdump")
    expressions = [text.strip("`") for text, *_ in table_rows(NETWORK, ["filter", "message", "expect"])]
    for expression in expressions:
        sh("tcpdump", "-d", "-y", "EN10MB", expression)
    with bed(evb) as b, contextlib.ExitStack() as undo:
        shells = []
        for command in of_case(NETWORK, "capture"):
            shell = undo.enter_context(Shell(b.where / str(len(shells)), evb, ("ip", "netns", "exec", b.network.name("ros1"))))
            text = command.text.replace("tcpdump", "tcpdump -Z root --immediate-mode -l").replace("/tmp/", f"{b.where}/")
            text = text.replace("-c 1000", "-c 100").replace("-c 5 igmp", "-c 2 igmp")
            shells.append((command, shell))
            shell.process.stdin.write(f"{text} 2>&1 | tee out\n")
            shell.process.stdin.flush()
        # All of them listen before anything is sent.
        for _, shell in shells:
            wait_until("tcpdump", lambda s=shell: "listening on eth1" in (s.where / "out").read_text() if (s.where / "out").exists() else False)
        b.start()
        for command, shell in shells:
            check_shown(command, shell.type("true"))
        b.stop()
        assert (b.where / "data.pcap").stat().st_size > 5000


main({
    "network": network,
    "ports": ports,
    "firewall": firewall,
    "no-fragments": no_fragments,
    "filters": filters,
    "capture": capture,
})
