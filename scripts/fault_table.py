"""The faults of scripts/faults.py: how each is made, and the outcome that docs/reliability.md states for it."""
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
from typing import Callable

from fault_bed import NET, ROLES, ROOT, check_files, require, sh

ROSS, SFIS = ("ros1", "ros2", "ros3"), ("sfi1", "sfi2")
ANY = None  # no bound: as many as the fault hits, each reported with a reason
CLOCK_SHIM = ROOT / "build" / "tests" / "system" / "clock_shim.so"
RATE_HZ = 500
FINE = {"dfm": {0}, "ros": {0}, "sfi": {0}}


@dataclasses.dataclass
class Fault:
    """Bounds: events lost and partial at most (ANY: those that the fault hits), whether every trigger completes in the
    end, seconds without an end of an event, exit statuses by role."""
    name: str
    made: str
    outcome: str
    make: Callable
    lost: int | None = 0
    partial: int | None = 0
    pause_s: float | None = 4.0
    end_s: float = 15.0
    exits: dict = dataclasses.field(default_factory=lambda: FINE)
    doubles: bool = False  # events may be in two files, and the SFI or the DFM says so
    keys: dict = dataclasses.field(default_factory=dict)
    before: Callable | None = None  # prepares the run; returns how nodes are started
    settle: Callable | None = None  # before files are read
    after: Callable | None = None  # checks what is special
    draw: Callable | None = None  # settings of a repetition


# What a node logs when it is in the run.
BACK = {"ros": "joined run", "sfi": "joined run", "dfm": "resumed run"}


def check_absence(b, report):
    """Events are partial only for the time in which the ROS was away, and the half second after it."""
    most = 1.3 * RATE_HZ * (b.facts["away_s"] + 0.5)
    require(report["events_partial"] <= most, f"{report['events_partial']} events are partial after {b.facts['away_s']:.2f} s")


def one_of(b, nodes):
    node = b.random.choice(nodes)
    b.facts["victim"] = node
    return node


def killed(nodes, again):
    def make(b):
        node = one_of(b, nodes)
        # The kernel may take long to close the sockets of a process.
        began = time.monotonic()
        b.kill(node)
        if again:
            b.pause(0, 0.5)
            joined = b.log(node).count(BACK[ROLES[node]])
            b.start(node)
            # Until a process runs and has its sockets takes long if namespaces are made at the same time.
            b.wait(f"{node} in the run", lambda: b.log(node).count(BACK[ROLES[node]]) > joined)
        b.facts["away_s"] = time.monotonic() - began
    return make


def stopped(nodes):
    def make(b):
        node = one_of(b, nodes)
        process = b.processes[node]
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        b.pause(0.1, 3.0)
        process.send_signal(signal.SIGCONT)
        b.facts["away_s"] = time.monotonic() - began
    return make


def link_down(nodes):
    """Pulls the cable at the switch, or sets the interface of the node down."""
    def make(b):
        node = one_of(b, nodes)
        place, device = b.random.choice([("switch", b.port(node)), (node, "eth0")])
        b.facts["at"] = place
        began = time.monotonic()
        b.ip(place, "link", "set", device, "down")
        b.pause(0.1, 3.0)
        b.ip(place, "link", "set", device, "up")
        b.facts["away_s"] = time.monotonic() - began
    return make


def nft_drop(b, node, permille):
    sh("ip", "netns", "exec", b.name(node), "nft", "-f", "-", input=f"""table netdev evb {{
        chain in {{
                type filter hook ingress device "eth0" priority 0;
                numgen random mod 1000 < {permille} drop
        }}
}}
""")


def loss(most_permille):
    def make(b):
        permille = b.random.randint(1, most_permille)
        b.facts["loss"] = permille / 1000
        for node in ROLES:
            nft_drop(b, node, permille)
    return make


def image(b, node, size, backing_size=None):
    """Mounts a disk of its own, a loop device, as the directory of a node. With `backing_size`, the file behind it cannot
    hold more."""
    folder, mount = b.where / f"{node}.disk", b.where / f"{node}.mount"
    folder.mkdir()
    mount.mkdir()
    if backing_size:
        sh("mount", "-t", "tmpfs", "-o", f"size={backing_size}", "tmpfs", str(folder))
        b.undo.append(lambda: sh("umount", str(folder), check=False))
    path = folder / "image"
    with path.open("wb") as file:
        file.truncate(size)
    sh("mkfs.ext4", "-q", "-b", "4096", "-O", "^has_journal", "-N", "64", "-E", "lazy_itable_init=1", str(path))
    loop = sh("losetup", "--find", "--show", str(path)).stdout.strip()
    b.undo.append(lambda: sh("losetup", "--detach", loop, check=False))
    if backing_size:
        # The loop device takes a short write for a success. One page is written as a whole, or not at all.
        pathlib.Path(f"/sys/block/{pathlib.Path(loop).name}/queue/max_sectors_kb").write_text("4")
    sh("mount", loop, str(mount))
    b.undo.append(lambda: sh("umount", str(mount), check=False))
    b.directories[node] = mount
    return loop, mount


def stall_before(b):
    b.mount = image(b, one_of(b, SFIS), 64 << 20)[1]


def stall(b):
    """A process of its own thaws the disk, whatever happens to this one."""
    seconds = b.random.uniform(0.1, 2.0)
    b.facts["away_s"] = seconds
    done = subprocess.run(["sh", "-c", 'fsfreeze -f "$1" && sleep "$2"; fsfreeze -u "$1"', "sh", str(b.mount), str(seconds)],
                          capture_output=True, text=True, timeout=60)
    require(done.returncode == 0, f"fsfreeze: {done.stderr}")


def slow_before(b):
    node = one_of(b, SFIS)
    loop, _ = image(b, node, 64 << 20)
    group = pathlib.Path("/sys/fs/cgroup/blkio") / f"evb-{os.getpid()}"
    group.mkdir()
    b.undo.append(group.rmdir)
    rate = b.random.randint(100_000, 400_000)
    device = os.stat(loop).st_rdev
    b.facts["bytes_per_second"] = rate
    (group / "blkio.throttle.write_bps_device").write_text(f"{os.major(device)}:{os.minor(device)} {rate}")
    return {node: {"prefix": ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"), "sfi__write-direct": "yes"}}


def full_before(b):
    node = one_of(b, SFIS)
    mount = b.where / f"{node}.mount"
    mount.mkdir()
    size = b.random.randint(300, 1500) << 10
    b.facts["size_bytes"] = size
    sh("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount))
    b.undo.append(lambda: sh("umount", str(mount), check=False))
    b.directories[node] = mount


def short_before(b):
    node = one_of(b, SFIS)
    size = b.random.randint(300_000, 1_500_000)
    b.facts["size_bytes"] = size
    return {node: {"prefix": ("prlimit", f"--fsize={size}")}}


def broken_before(b):
    image(b, one_of(b, SFIS), 64 << 20, backing_size=b.random.randint(700, 1800) << 10)


def clock_before(b):
    path = b.where / "offset"
    path.write_text("0 0")
    env = {"LD_PRELOAD": str(CLOCK_SHIM), "EVB_CLOCK_OFFSET": str(path)}
    return {node: {"env": env} for node in ROLES}


def clock_step(b):
    for _ in range(b.random.randint(1, 3)):
        step = b.random.choice([-1, 1]) * b.random.choice([1, 30, 3600, 86400])
        b.facts.setdefault("steps_s", []).append(step)
        (b.where / "offset.new").write_text(f"{step} 0")
        (b.where / "offset.new").rename(b.where / "offset")
        b.pause(0.1, 0.6)


def ports_of(b, node):
    """Returns the ports of a node, as the kernel lists them: (protocol, port)."""
    lines = b.run(node, "ss", "-Hlnut").stdout.splitlines()
    return {(words[0], int(words[4].rpartition(":")[2])) for words in map(str.split, lines)}


def probe(b, address, ports):
    """Connects to many TCP ports, and sends datagrams to every UDP port: random ones, and some that begin as ours do."""
    with b.inside("switch"):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for port in {*b.random.sample(range(1, 65536), 300), *(port for kind, port in ports if kind == "tcp")}:
            with socket.socket() as s:
                s.settimeout(0.2)
                with contextlib.suppress(OSError):
                    s.connect((address, port))
                    s.send(b.random.randbytes(b.random.randint(1, 500)))
    for port in {*(port for kind, port in ports if kind == "udp"), *b.random.sample(range(1, 65536), 20)}:
        for _ in range(100):
            head = b.random.choice([b"", b"EVB1", b"EVB1\x06\x00", b"\xeb\x06", b"EVB1\x06\x00\x20\x00"])
            with contextlib.suppress(OSError):
                out.sendto(head + b.random.randbytes(b.random.randint(0, 1400)), (address, port))
    out.close()


def strangers(b):
    b.ip("switch", "addr", "add", f"{NET}.200/24", "dev", "bridge")
    for i, node in enumerate(ROLES, 1):
        ports = ports_of(b, node)
        # A run that ended meanwhile has none any more.
        probe(b, f"{NET}.{i}", ports)
        b.facts["ports"] = b.facts.get("ports", 0) + len(ports)


def second_run(b):
    """The nodes of another run, on the same machines, with the same ports and the same group."""
    for i, node in enumerate(ROLES):
        b.ip(node, "addr", "add", f"{NET}.{101 + i}/24", "dev", "eth0")
        (b.where / f"{node}-b").mkdir()
        b.directories[f"{node}-b"] = b.where / f"{node}-b"
    other = b.write("second.conf", 101)
    for node in ROLES:
        b.start(node, f"{node}-b", file=other, run__number=77, scenario__duration="2s", env={"XDG_STATE_HOME": str(b.where / "state-b")})


def mtu_before(b):
    """Devices and switch ports carry 9000 bytes; the port of one node does not."""
    node = one_of(b, ("dfm", *ROSS, *SFIS))
    for other in ROLES:
        b.ip(other, "link", "set", "eth0", "mtu", "9000")
        b.ip("switch", "link", "set", b.port(other), "mtu", "1500" if other == node else "9000")
    b.ip("switch", "link", "set", "bridge", "mtu", "9000")


def nothing(_):
    """The fault was there from the start."""


def fault_free(b):
    b.pause(0, 0.1)


def kill_dfm(b):
    b.kill("dfm")


def check_closed(b, _):
    """SFIs have closed their files."""
    left = [path for node in SFIS for path in (b.where / node).glob("*.writing")]
    require(not left, f"{left} were left open")


def draw_writer(r):
    """Much to write, in small and large events."""
    return {"trigger.rate": r.choice(["1kHz", "3kHz", "6kHz"]), "scenario.duration": "2s", "ros.fragment-size": r.choice(["100", "1000", "5000"]),
            "sfi.durability": r.choice(["written", "synced"]), "sfi.page-cache": r.choice(["drop", "bypass"]),
            "sfi.file-events": r.choice([0, 500])}


def forget_pages(b):
    """What the disk did not take is no longer in memory: files are read from the disk again."""
    for path in b.directories[b.facts["victim"]].iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def check_failed(b, report):
    """The disk failed before the end of the triggers, and the log of the SFI and the reasons of the DFM say so."""
    node = b.facts["victim"]
    require(b.facts["statuses"][node] == 1, f"{node} does not report its disk: {b.log(node)[-500:]}")
    require(any(f"output of {node} failed" in reason for reason in report["reasons"]), f"the DFM does not name {node}: {report['reasons']}")


def check_counted(b, _):
    refused = sum(b.report(node)[f"packets_{kind}"] for node in ROLES for kind in ("foreign", "malformed"))
    require(refused > 0, "no node counts a foreign or malformed datagram")


def check_clock(b, _):
    if abs(b.facts["steps_s"][-1]) > 1:
        require("the clock was set by" in b.log("dfm"), f"the DFM does not report the steps {b.facts['steps_s']}: {b.log('dfm')[-500:]}")


def check_mtu(b, _):
    """ROSs name the node. One whose own port it is names all that it does not reach."""
    victim = b.facts["victim"]
    for ros in ROSS:
        names = set(re.findall(r"\(network\.mtu\) do not pass between this node and (\S+) at ", b.log(ros)))
        wanted = {"dfm", *SFIS} if ros == victim else {victim} - set(ROSS)
        require((b.facts["statuses"][ros] == 1) == bool(wanted), f"{ros} exits with {b.facts['statuses'][ros]}")
        require(names == wanted, f"{ros} names {sorted(names)}, not {sorted(wanted)}")


def check_second(b, _):
    """The other run is complete too, and its files are its own."""
    other = b.report("dfm-b")
    require(other["triggers"] == other["events_complete"] > 0, f"the second run: {other}")
    found = check_files(b.evb, [b.where / f"{node}-b" for node in SFIS], b.where / "repaired-b")
    require(sorted(found) == list(range(other["triggers"])), f"the files of the second run have {len(found)} events of {other['triggers']}")


# Time enough for the last retry, and no more triggers than lossy paths carry.
LOSSY = {"trigger.rate": "100Hz", "sfi.timeout": "60s", "dfm.node-timeout": "10s", "run.stop-timeout": "90s"}
SHORT = {"dfm": {0, 1}, "ros": {0}, "sfi": {0, 1}}
FAILED = {"dfm": {1}, "ros": {0}, "sfi": {0, 1}}

FAULTS = {fault.name: fault for fault in (
    Fault("none", "no fault, for comparison", "Every event is complete.", fault_free, pause_s=1.0),
    Fault("kill-ros", "SIGKILL of a ROS, which stays away",
          "Events from then on are partial: they lack its fragments. Events end again after `sfi.timeout`.",
          killed(ROSS, False), partial=ANY, exits=SHORT),
    Fault("kill-ros-restart", "SIGKILL of a ROS, which starts again within 0.5 s",
          "The ROS joins the same run. Events whose fragments it had not sent may be partial.",
          killed(ROSS, True), partial=ANY, exits=SHORT, after=check_absence),
    Fault("kill-sfi", "SIGKILL of an SFI, which stays away",
          "The other SFI builds its open events. `evb dump --repair` recovers its file.",
          killed(SFIS, False), exits=SHORT, doubles=True),
    Fault("kill-sfi-restart", "SIGKILL of an SFI, which starts again within 0.5 s",
          "As above. The SFI joins the same run, and begins its next file.",
          killed(SFIS, True), exits=SHORT, doubles=True),
    Fault("kill-sfi-writing", "SIGKILL of an SFI that writes 0.3 to 45 MB/s; `sfi.durability` `written` or `synced`, with and without direct writes",
          "`evb dump --repair` recovers every event whose end the DFM had acknowledged.",
          killed(SFIS, False), exits=SHORT, doubles=True, draw=draw_writer, end_s=60.0,
          keys={"sfi.timeout": "20s", "run.stop-timeout": "45s"}),
    Fault("kill-dfm-restart", "SIGKILL of the DFM, which starts again within 0.5 s", "The DFM resumes the run.",
          killed(("dfm",), True), exits=SHORT),
    Fault("kill-dfm", "SIGKILL of the DFM, which stays away",
          "After 10 `dfm.node-timeout`, SFIs close their files, and all nodes exit with 75. The files have every event that the DFM had counted.",
          kill_dfm, lost=ANY, partial=ANY, pause_s=ANY, exits={"dfm": set(), "ros": {75}, "sfi": {75}}, after=check_closed),
    Fault("stop-ros", "SIGSTOP of a ROS for 0.1 to 3 s, then SIGCONT",
          "Events wait for it for `sfi.timeout`, then they are partial.", stopped(ROSS), partial=ANY, exits=SHORT, after=check_absence),
    Fault("stop-sfi", "SIGSTOP of an SFI for 0.1 to 3 s, then SIGCONT",
          "After `dfm.node-timeout`, the other SFI builds its events.", stopped(SFIS), exits=SHORT, doubles=True),
    Fault("stop-dfm", "SIGSTOP of the DFM for 0.1 to 3 s, then SIGCONT", "Nodes wait for it.",
          stopped(("dfm",)), pause_s=5.0, exits=SHORT, doubles=True),
    Fault("link-ros", "link of a ROS down for 0.1 to 3 s", "As `stop-ros`.", link_down(ROSS), partial=ANY, exits=SHORT, after=check_absence),
    Fault("link-sfi", "link of an SFI down for 0.1 to 3 s", "Events of which it has a part wait for `sfi.timeout`, then they are partial. After `dfm.node-timeout`, the other SFI builds its events.",
          link_down(SFIS), partial=ANY, exits=SHORT, doubles=True),
    Fault("link-dfm", "link of the DFM down for 0.1 to 3 s", "Events of that time end when it is up again.", link_down(("dfm",)), pause_s=5.0, exits=SHORT, doubles=True),
    Fault("loss", "0 to 30 % random loss at every node, in both directions; UDP", "Retries recover every fragment.",
          loss(300), pause_s=10.0, end_s=90.0, keys={**LOSSY, "scenario.transport": "udp"}),
    Fault("loss-tcp", "0 to 10 % random loss at every node, in both directions; TCP", "The kernel and retries recover every fragment.",
          loss(100), pause_s=15.0, end_s=90.0, keys={**LOSSY, "scenario.transport": "tcp"}),
    Fault("disk-stall", "the disk of an SFI takes nothing for 0.1 to 2 s", "The other SFI continues; no event is lost.",
          stall, exits=SHORT, before=stall_before),
    Fault("slow-disk", "the disk of an SFI takes 100 to 400 kB/s, less than half of what comes",
          "The other SFI builds more events. If it has no credit left either, triggers wait.",
          nothing, pause_s=6.0, end_s=30.0, before=slow_before),
    Fault("full-disk", "the disk of an SFI has room for 0.3 to 1.5 MB",
          "The run ends; SFI and DFM exit with 1 and name the disk. Every event that is not lost is in a file.",
          nothing, lost=ANY, pause_s=ANY, exits=FAILED, before=full_before, after=check_failed),
    Fault("short-write", "a limit of the file size, at any byte, cuts a write of an SFI short", "As `full-disk`.",
          nothing, lost=ANY, pause_s=ANY, exits=FAILED, before=short_before, after=check_failed),
    Fault("broken-disk", "writes to the disk of an SFI fail with an I/O error from some block on; `sfi.durability = synced`",
          "The run ends; SFI and DFM exit with 1. The disk has every event that is not lost, when it is read again.",
          nothing, lost=ANY, pause_s=ANY, exits=FAILED, before=broken_before, settle=forget_pages, after=check_failed,
          keys={"sfi.durability": "synced"}),
    Fault("clock-step", "the wall clocks of all nodes step up to three times, by up to a day",
          "Nothing is lost. The DFM logs the step.", clock_step, before=clock_before, after=check_clock),
    Fault("strangers", "another machine scans the ports of each node, and sends thousands of random datagrams to them",
          "It is counted, and has no effect.", strangers, after=check_counted),
    Fault("mtu", "`network.mtu = 9000`, but the switch port of one node drops what is longer than 1500 bytes",
          "Each ROS that cannot reach the node logs its name, and exits with 1.",
          nothing, partial=ANY, lost=ANY, pause_s=ANY, exits={"dfm": {0, 1}, "ros": {0, 1}, "sfi": {0, 1}}, end_s=30.0, before=mtu_before,
          after=check_mtu, keys={"network.mtu": "9000"}),
    Fault("second-run", "another run begins on the same machines, with the same group and ports",
          "Both runs are complete, and their files are apart.", second_run, after=check_second),
)}
