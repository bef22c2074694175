"""Common code of the system tests: runs the real program, finds its nodes and balances the accounts."""
import contextlib
import http.client
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "configs" / "scenarios"
SHARED = pathlib.Path(os.environ.get("EVB_SHARED", ROOT.parent / "shared"))
# Longer than any run may take on a busy machine, whatever dies in it. The gate's nice tests get the processor last.
LIMIT_S = 300 if os.nice(0) <= 0 else 1500
os.environ.setdefault("EVB_CONFIG", "")  # no test reads the scenario of an installed evb
CASE_LIMIT_S = 3600

# Timeouts that even a slow machine does not reach; some cases set shorter ones.
SMALL = """
[scenario]
mode = push
[trigger]
events = 2000
[ros]
count = 6
fragment-size = 1024
[sfi]
count = 2
timeout = 30s
[dfm]
node-timeout = 30s
"""
# A node that gets no processor for a while warns that it was suspended: for three such intervals or more.
QUIET = {"test.keep-alive": "5s"}


class Skip(Exception):
    """Skips a test that this machine cannot run, with the reason."""


# Pause between two looks of wait_until(): at least, at most, and as a multiple of the time that a look takes.
PAUSE_S, PAUSE_MAX_S, PAUSE_LOOKS = 0.01, 0.2, 3


def wait_until(what, condition, limit_s=LIMIT_S):
    """Returns what the condition returned once that is true. An expensive condition is looked at less often."""
    deadline = time.monotonic() + limit_s
    while True:
        begin = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now < deadline, f"no {what} in {limit_s} s"
        time.sleep(min(max(PAUSE_S, PAUSE_LOOKS * (now - begin)), PAUSE_MAX_S))


def settings(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


# Of each log of a failed case. meson prints the last 100 lines of a test; these should not displace the traceback.
LAST_LINES = 12


def show_end(name, text, lines=LAST_LINES):
    print(f"--- the end of {name}:", *(text or "").splitlines()[-lines:], sep="\n")


@contextlib.contextmanager
def folder():
    """A folder of a case. If the case fails, the ends of its logs are printed, that of the DFM last."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as name:
        where = pathlib.Path(name)
        try:
            yield where
        except Skip:
            raise
        except BaseException:
            for path in sorted(where.iterdir(), reverse=True):
                if path.is_file() and path.name.endswith(("log", "err", "stderr")):
                    show_end(path.name, path.read_text(errors="replace"))
            raise


def own_net():
    """Reserves loopback addresses until this process ends. evb run never uses 127.255."""
    for third in range(250):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0evb-test-net-{third}")
        except OSError:
            lock.close()
        else:
            return f"127.255.{third}", lock
    raise RuntimeError("all loopback addresses for tests are in use")


OWN_NET, _own_net_lock = own_net()


def scenario(where, text=SMALL, name="test.conf"):
    path = pathlib.Path(where) / name
    path.write_text(text)
    return path


def run(evb, path, keys=None, net="loopback", expect=0, limit=LIMIT_S, **options):
    """Makes one whole run and returns its report."""
    done = subprocess.run([evb, "run", str(path), "--net", net, "--json", *settings(keys or {})], capture_output=True,
                          text=True, timeout=limit, **options)
    assert done.returncode == expect, f"exit {done.returncode}, not {expect}: {done.stderr}\n{done.stdout}"
    report = json.loads(done.stdout)
    balance(report)
    return report


def balance(report):
    """Checks that every trigger ended once and every fragment is accounted for."""
    fragments = report["fragments"]
    ends = [report["events_complete"], report["events_partial"], report["events_lost"], report["events_rejected"]]
    assert report["triggers"] == sum(ends), f"{report['triggers']} triggers, ends {ends}"
    assert fragments["expected"] == fragments["received"] + fragments["lost"] + fragments["absent"], fragments
    assert fragments["expected"] == (report["triggers"] - report["events_rejected"]) * report["sources"], fragments
    # The last counts of a DFM that died are too old.
    assert report["balanced"] is True or any(node["role"] == "dfm" and node.get("signal") for node in report["nodes"]), report["reasons"]


def complete(report):
    assert report["events_complete"] == report["triggers"] > 0, report
    assert report["fragments"]["corrupt"] == 0, report["fragments"]


# Maximum probability that a test with random faults fails by chance.
CHANCE = 1e-9


def chance_of_missing(datagrams, loss, nodes=9, timeout_s=30):
    """Returns the probability that random loss alone leaves a fragment of a run missing.

    A datagram stays missing if it and each retry of it are lost. A retry fails with 1 - (1 - p)^2, as
    request or answer may be lost. After 2 s of backoff, retries come every 500 ms until sfi.timeout. With
    p = 0.05 and 30 s this is 0.05 * 0.0975^56 = 1e-58 per datagram. A node also fails the run if it misses
    all ten KeepAlives at the end (one per 200 ms for 2 s): 1e-13 per node.
    """
    retries = int((timeout_s - 2) / 0.5)
    return datagrams * loss * (1 - (1 - loss) ** 2) ** retries + nodes * loss ** 10


def chance_of_no_loss(datagrams, loss):
    """Returns the probability that a lossy run loses nothing: 0.95^2000 = 3e-45."""
    return (1 - loss) ** datagrams


def events_of(path):
    """Yields the L1 ID and the payloads of all fragments of each whole event of a v3.0 file, read by layout only."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        at = raw.find(struct.pack("<2I", 0x1234CCCC, 4))
        assert at >= 0, f"{path} has no file header"
        while raw[at:at + 4] == struct.pack("<I", 0x1234CCCC):
            size = int.from_bytes(raw[at + 12:at + 16], "little")
            if at + 16 + size > len(raw):
                break
            event, start = raw[at + 16:at + 16 + size], 0
            rods, l1_ids = [], set()
            while (start := event.find(struct.pack("<2I", 0xEE1234EE, 9), start)) >= 0:
                words = struct.unpack_from("<I", event, start - 4 * 8 + 4)[0]
                end = start - 4 * 8 + 4 * words
                length = struct.unpack_from("<I", event, end - 16)[0]
                l1_ids.add(struct.unpack_from("<I", event, start + 20)[0])
                rods.append(event[start + 36:start + 36 + length])
                start = end
            assert len(l1_ids) == 1, f"{path}: an event has L1 IDs {l1_ids}"
            yield l1_ids.pop(), rods
            at += 16 + size
        # A file that a killed SFI left may end within an event.
        assert raw[at:at + 4] == struct.pack("<I", 0x1234DDDD) or str(path).endswith(".writing"), f"{path} ends within an event"


def payloads_by_l1_id(path):
    """Returns the payloads of all fragments of each event of a v3.0 file, by L1 ID."""
    found = {}
    for l1_id, rods in events_of(path):
        assert l1_id not in found, f"trigger {l1_id} is there twice"
        found[l1_id] = rods
    return found


class LocalConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT_S)
        self.local = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.local)


def connection(place):
    """place: "HOST:PORT" or "unix:PATH"."""
    if place.startswith("unix:"):
        return LocalConnection(place[5:])
    host, _, port = place.rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)


def ask(place, path="/metrics", method="GET", accept=None, body=None):
    """Returns status, headers and text."""
    c = connection(place)
    c.request(method, path, body=body, headers={"Accept": accept} if accept else {})
    reply = c.getresponse()
    text = reply.read().decode()
    c.close()
    return reply.status, dict(reply.getheaders()), text


def listens(path):
    """Whether a program accepts connections at a Unix socket, whose file appears earlier."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


def watched(keys):
    """Lets the nodes serve their counters for Running.counter(), at sockets of this run alone."""
    place = tempfile.mkdtemp(prefix="evb-test-", dir=os.environ["XDG_STATE_HOME"])
    return {"metrics.listen": f"unix:{place}/%n.sock", **keys}


class Background(contextlib.AbstractContextManager):
    """self.process, which ends with the block. If the block fails, the end of what it logged is printed."""

    def __exit__(self, kind=None, *_):
        if self.process.poll() is None:
            self.process.kill()
        _, err = self.process.communicate()
        if kind and not issubclass(kind, Skip):
            show_end(" ".join(map(str, self.process.args[:3])), err, 4 * LAST_LINES)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)


class Running(Background):
    """A run in the background, which the test can disturb. Its nodes log their steps for show_end()."""

    names, listen = {}, None

    def __init__(self, evb, path, keys=None, net="loopback", env=None, **options):
        self.process = subprocess.Popen([evb, "run", str(path), "--net", net, "--json", *settings(watched(keys or {}))],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        # A killed run leaves the scenario of its nodes.
                                        env={"EVB_LOG": "info", **(env or os.environ), "TMPDIR": os.environ["XDG_STATE_HOME"]}, **options)

    @classmethod
    def of(cls, process):
        """A run that the test started, watched() if it asks for counters."""
        running = cls.__new__(cls)
        running.process = process
        return running

    def name_of(self, pid):
        """Returns the node of a child of the run; None: it is not a node, or it has ended and closed its sockets."""
        arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--node" in arguments:
            self.names = {**self.names, pid: arguments[arguments.index(b"--node") + 1].decode()}
        # A process that ends loses its command line first, and then its sockets. After that, it is a zombie. Its first thread
        # may be one while others still hold the sockets.
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return None if state in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1 else self.names.get(pid)

    def nodes(self):
        """Returns the PIDs of the running nodes, by node name."""
        found = {}
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            with contextlib.suppress(OSError):
                if name := self.name_of(pid):
                    found[name] = int(pid)
        return found

    def config(self):
        """Returns the text of the scenario that the nodes got."""
        for pid in self.nodes().values():
            arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return pathlib.Path(arguments[arguments.index(b"--config") + 1].decode()).read_text()
        raise LookupError("no node is running")

    def address(self, node):
        return re.search(rf"\[node {node}\]\nrole = \w+\naddress = (\S+)", self.config())[1]

    def wait_for(self, what, condition):
        def holds():
            value = condition()
            assert value or self.process.poll() is None, f"the run ended before {what}: {self.process.communicate()}"
            return value

        wait_until(what, holds)

    def wait_nodes(self, n):
        self.wait_for(f"{n} nodes", lambda: len(self.nodes()) == n)

    def metrics(self, node):
        """Returns what a node serves at /metrics; "" before and after that."""
        with contextlib.suppress(OSError, LookupError, http.client.HTTPException):
            self.listen = self.listen or re.search(r"\[metrics\]\nlisten = (\S+)", self.config())[1]
            place = self.listen.replace("%n", node)
            return ask(self.address(node) + place if place.startswith(":") else place)[2]
        return ""

    def counter(self, node, name, **label):
        """Returns a counter of evb-metrics(7); 0 before the node serves it."""
        labels = "".join(f',{key}="{value}"' for key, value in label.items())
        text = self.metrics(node)
        return json.loads(re.search(rf'^evb_{name}_total{{node="{node}",role="\w+"{labels}}} (\S+)$', text, re.M)[1]) if text else 0

    def wait_running(self):
        """Waits until the DFM counts a complete event."""
        self.wait_for("built event", lambda: self.counter("dfm", "events_complete") > 0)

    def end(self, expect):
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode in expect, f"exit {self.process.returncode}: {err}\n{out}"
        self.err = err
        report = json.loads(out)
        balance(report)
        return report


def made(name):
    """A file that the build made for the tests of this folder."""
    return pathlib.Path(sys.argv[1]).resolve().parents[1] / "tests" / "system" / name


def run_case(cases, evb, name):
    """Runs a case in this process, and exits: 0 passed, 77 skipped for the printed reason."""
    # Clean up also if a time limit ends the test.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        # Do not touch the machine's own run numbers.
        with folder() as state:
            os.environ["XDG_STATE_HOME"] = str(state)
            cases[name](evb)
    except Skip as reason:
        print(f"SKIPPED {name}: {reason}")
        sys.exit(77)
    print(f"ok {name}")
    sys.exit(0)


def fork_case(cases, evb, name, output):
    """Starts a case in a process of its own, whose output goes to a file. A case may replace its process by sys.argv."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid > 0:
        return pid
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.argv = [sys.argv[0], evb, name]
    status = 1
    try:
        run_case(cases, evb, name)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # What the caller made is the caller's to remove.
        os._exit(status if isinstance(status, int) else 1)


def wait_case(pid):
    """Returns the exit status of a case, None if it took too long. Then its handlers get time to clean up."""
    for limit_s, last in ((CASE_LIMIT_S, signal.SIGTERM), (60, signal.SIGKILL)):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status) if last == signal.SIGTERM else None
            time.sleep(0.01)
        os.kill(pid, last)
    os.waitpid(pid, 0)
    return None


def main(cases):
    """test_x.py EVB [CASE...] runs these cases, or all, one after the other, and prints a line of the Test Anything Protocol
    for each. A single one runs in this process. test_x.py EVB --part K/N runs each Nth case, from the Kth one on; a last
    argument --but CASE,CASE leaves these out."""
    # A shell in the background ignores SIGINT, and nohup SIGHUP; so would programs that have not set a handler yet.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    evb, *names = sys.argv[1:]
    evb = str(pathlib.Path(evb).resolve())
    left_out = []
    if names[-2:-1] == ["--but"]:
        left_out, names = names[-1].split(","), names[:-2]
        assert not set(left_out) - set(cases), left_out
    if names[:1] == ["--part"]:
        k, n = map(int, names[1].split("/"))
        names = list(cases)[k - 1::n]
    elif len(names) == 1:
        run_case(cases, evb, names[0])
    names = [name for name in names or cases if name not in left_out]
    print(f"1..{len(names)}")
    failed = False
    for number, name in enumerate(names, 1):
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            begin = time.monotonic()
            pid = fork_case(cases, evb, name, output)
            # A signal that ends this process, such as that of a time limit, ends the case first.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            try:
                status = wait_case(pid)
            except BaseException:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
                raise
            taken = f"{time.monotonic() - begin:.1f} s"
            output.seek(0)
            text = output.read()
        skipped = re.search(r"^SKIPPED [^:]+: (.*)", text, re.M) if status == 77 else None
        if status not in (0, 77):
            failed = True
            print(f"--- {name}: {'too slow' if status is None else f'exit status {status}'}, {taken}\n{text}", file=sys.stderr, flush=True)
        print(f"{'ok' if status in (0, 77) else 'not ok'} {number} - {name} ({taken})" + (f" # SKIP {skipped[1]}" if skipped else ""), flush=True)
    sys.exit(failed)


def first_signal(process):
    """Interrupts a process so that another signal counts as a second one: waits until it has taken this one, as a pending signal
    is merged with the next, and for the second in which signals are one request."""
    process.send_signal(signal.SIGINT)
    status, bit = pathlib.Path(f"/proc/{process.pid}/status"), 1 << (signal.SIGINT - 1)
    deadline = time.monotonic() + LIMIT_S
    while int(re.search(r"ShdPnd:\s+(\w+)", status.read_text())[1], 16) & bit:
        assert time.monotonic() < deadline, f"no signal taken in {LIMIT_S} s"
        time.sleep(0.01)
    time.sleep(1.1)


def times_logged(text, log):
    """Returns how often lines of a log contain the text; the log counts equal lines in a row in one line."""
    return sum(int(repeated or 1) for repeated in re.findall(re.escape(text) + r"[^\n]*?(?: \(repeated (\d+) times?\))?\n", log))


def drop_root():
    """For preexec_fn: makes the program run as an ordinary user."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def read_until(stream, text):
    """Reads lines until one has the text, and returns it."""
    lines = []
    while line := stream.readline():
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line has {text!r}: {lines}")


def left_overs(pid):
    """Namespaces that a launcher has not removed."""
    return [n for n in os.listdir("/run/netns") if n.startswith(f"evb-{pid}-")] if os.path.isdir("/run/netns") else []


@contextlib.contextmanager
def mounted(kind="tmpfs", options="size=6m"):
    """Yields a folder, and one in it that is a small disk of its own. Starts this test again in a namespace."""
    if os.geteuid() != 0:
        raise Skip("mounting a disk needs root")
    if "EVB_TEST_MOUNTS" not in os.environ:
        shutil.rmtree(os.environ["XDG_STATE_HOME"])
        os.execvpe("unshare", ["unshare", "-m", sys.executable, *sys.argv], {**os.environ, "EVB_TEST_MOUNTS": "1"})
    with folder() as where:
        disk = where / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", kind, "-o", options, kind, disk], check=True)
        try:
            yield where, disk
        finally:
            subprocess.run(["umount", disk], check=True)


def need_root():
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
