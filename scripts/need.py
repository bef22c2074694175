"""What the scripts that measure share: a check of their requirements, a message if a command fails, namespaces, stolen time, and
processors that stay awake."""
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys

PACKAGES = {"ip": "iproute2", "ss": "iproute2", "tc": "iproute2", "iperf3": "iperf3", "nft": "nftables", "ping": "iputils-ping"}

CLONE_NEWNET = 0x40000000


def missing(programs, evb, root):
    """Yields one line for each missing requirement, with the way to get it."""
    if root and os.geteuid() != 0:
        yield "network namespaces need root; run the script with sudo"
    for name in programs:
        if shutil.which(name) is None:
            yield f"{name} is not installed; install it with: apt-get install {PACKAGES[name]}"
    if not (os.path.isfile(evb) and os.access(evb, os.X_OK)):
        yield f"{evb} does not exist or is not executable; build it with scripts/build.sh, or set --evb"


def check(programs, evb, root=True):
    """Exits with status 77, and one line on standard error for each missing requirement."""
    lines = list(missing(programs, evb, root))
    for line in lines:
        print(f"{os.path.basename(sys.argv[0])}: {line}", file=sys.stderr)
    if lines:
        sys.exit(77)


def failed(error):
    """Reports a command that failed or timed out, and returns the exit status 1."""
    command = " ".join(error.cmd[:10])
    if isinstance(error, subprocess.TimeoutExpired):
        reason = f"no end after {error.timeout} s"
    else:
        reason = f"exit status {error.returncode}: {(error.stderr or '').strip()}"
    print(f"{os.path.basename(sys.argv[0])}: {command}: {reason}", file=sys.stderr)
    return 1


def run(*command):
    """Returns the standard output of a command; raises an error if it fails."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@contextlib.contextmanager
def namespaces(*nodes):
    """Yields the names of new network namespaces, evb-PID-NODE, and removes them whatever happens."""
    names = [f"evb-{os.getpid()}-{node}" for node in nodes]
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def join(a, b, net, switch=None):
    """Makes the eth0 of two namespaces, NET.1 and NET.2, and joins them: by a veth pair, or a bridge in a third one with
    the ports p1 and p2."""
    if switch:
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        for i, name in enumerate((a, b), 1):
            run("ip", "-n", switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", switch, "link", "set", f"p{i}", "master", "br0", "up")
    else:
        run("ip", "-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b)
    for i, name in enumerate((a, b), 1):
        run("ip", "-n", name, "addr", "add", f"{net}.{i}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")


def enter(name):
    """Lets this process use the network of a namespace."""
    with open(f"/run/netns/{name}", encoding="ascii") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def stolen():
    """Returns stolen and total time of all processors, in ticks."""
    with open("/proc/stat") as f:
        numbers = [int(n) for n in f.readline().split()[1:9]]
    return numbers[7], sum(numbers)


def stolen_percent(before, after=None):
    """Returns the part of the time that the hypervisor has stolen between two results of stolen(), or since one."""
    after = after or stolen()
    return 100 * (after[0] - before[0]) / max(after[1] - before[1], 1)


@contextlib.contextmanager
def awake():
    """Asks the kernel to keep idle processors from halting (Documentation/power/pm_qos_interface.rst). On a virtual machine,
    a processor that halts returns to the hypervisor, and often gets it back milliseconds late. Needs root."""
    try:
        request = open("/dev/cpu_dma_latency", "wb", buffering=0)
        request.write(bytes(4))
    except OSError:
        request = contextlib.nullcontext()
    # The kernel forgets the request when the file is closed.
    with request:
        yield
