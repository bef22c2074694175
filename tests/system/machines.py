"""Machines with a systemd of their own: containers of systemd-nspawn that share /usr with this machine, each in a network
namespace of its own.

A test of machines runs in a PID namespace and a mount namespace, where /run is a file system of its own (confined()). So
the kernel removes all that it made, also if the test is killed: processes, mounts, network namespaces, files."""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from harness import LIMIT_S, Skip, need_root
from installed import Installed, need_program
from network import Network, sh, wait_until

# The cgroups of the test, of which each machine gets one.
CGROUPS = "EVB_TEST_CGROUPS"
NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
FOLDERS = ("usr", "etc/systemd/system", "etc/systemd/journald.conf.d", "var/log/journal", "var/lib", "var/tmp", "etc/pam.d", "tmp", "run", "proc",
           "sys", "dev", "root")
# Units of this machine's /usr that a container has no use for.
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "cron.service", "dbus.service", "dbus.socket",
          "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty.target", "logrotate.timer",
          "man-db.timer", "systemd-logind.service", "systemd-tmpfiles-clean.timer", "systemd-remount-fs.service", "systemd-update-utmp.service",
          "systemd-update-utmp-runlevel.service",
          # While systemd gets many notices of mounts, it delays the start of mounts, and may never resume it (seen in 4 of 25 boots
          # beside 50 busy processes): the machine stays in "initializing". systemd-nspawn has mounted all that a machine needs.
          "dev-hugepages.mount", "dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount",
          "sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
          "var-lib-machines.mount")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
PR_SET_PDEATHSIG = 1
# With --keep-unit, systemd-nspawn leaves it to its caller to boot a machine again that reboots.
REBOOTS = 133


def _base_cgroups():
    """Returns this process's cgroup in each hierarchy that systemd needs: its own one (v1), and the unified one (v2)."""
    own = dict(re.findall(r"^\d+:(name=systemd|):(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M))
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        hierarchy = "" if kind == "cgroup2" else "name=systemd" if kind == "cgroup" and "name=systemd" in options.split(",") else None
        if hierarchy in own:
            found.append(pathlib.Path(head.split()[4] + own[hierarchy]))
    return found


def _remove_cgroup(path):
    """Removes a cgroup whose processes have been killed, but may still be ending."""
    deadline = time.monotonic() + LIMIT_S
    for folder, _, _ in os.walk(path, topdown=False):
        while os.path.isdir(folder) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
                break
            time.sleep(0.05)


@contextlib.contextmanager
def _alone():
    """Waits until no other test has machines: some 20 use up fs.inotify.max_user_instances."""
    with socket.socket(socket.AF_UNIX) as lock:
        while True:
            with contextlib.suppress(OSError):
                lock.bind("\0evb-test-machines")
                break
            time.sleep(0.1)
        yield


def confined(main):
    """Runs main() in namespaces that end with it."""
    if CGROUPS in os.environ:
        sh("mount", "-t", "tmpfs", "-o", "mode=755,size=1G", "evb-test", "/run")
        pathlib.Path("/run/tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = "/run/tmp"
        return main()
    if os.geteuid() != 0 or subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode != 0:
        return main()  # which is skipped: Machines are always confined
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with _alone():
        return _run_inside()


def _run_inside():
    cgroups = [base / f"evb-test-{os.getpid()}" for base in _base_cgroups()]
    # All that a killed test leaves behind: empty cgroups.
    for left in (path for cgroup in cgroups for path in cgroup.parent.glob("evb-test-*")):
        if not os.path.exists(f"/proc/{left.name.rpartition('-')[2]}"):
            _remove_cgroup(left)
    libc = ctypes.CDLL(None)
    inner = subprocess.Popen([*NAMESPACES, sys.executable, "-B", *sys.argv], env={**os.environ, CGROUPS: ":".join(map(str, cgroups))},
                             preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    try:
        sys.exit(inner.wait())
    finally:
        inner.kill()
        inner.wait()
        for cgroup in cgroups:
            _remove_cgroup(cgroup)


class Machines:
    """Machines(evb, {"pc-ros1": {}, ...}) boots a machine for each name, with evb installed, and eth1 at 192.168.69.1, 2...

    `disk` is the size of a machine's /var/lib/evb, `files` are files that it has before it boots."""

    NET = "192.168.69"

    def __init__(self, evb, machines):
        need_root()
        need_program("systemd-nspawn", "journalctl", "unshare", "nsenter", "ip", "mount")
        if CGROUPS not in os.environ:
            raise Skip(f"{' '.join(NAMESPACES)} fails: namespaces cannot be made")
        if not os.path.islink("/bin"):
            raise Skip("/bin is not part of /usr, which machines share")
        self.evb, self.machines, self.processes = evb, machines, {}
        self.network = Network("switch", *machines)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evb-test-", ignore_cleanup_errors=True)))
            self.folder.chmod(0o755)
            self._prepare()
            stack.enter_context(self.network)
            self.network.bridge("switch", list(self.machines), self.NET)
            stack.callback(self._kill)
            for name, machine in self.machines.items():
                for change in (("link", "set", "eth0", "down"), ("link", "set", "eth0", "name", "eth1"), ("link", "set", "eth1", "up"),
                               ("route", "add", "default", "dev", "eth1")):
                    self.network.ip(name, *change)
                self._make(name, machine)
                if not self.processes:
                    self._probe(name)
                self._start(name)
            for name in self.machines:
                self.wait_booted(name)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _prepare(self):
        """Makes what all machines share."""
        self.installed = Installed(self.evb, self.folder / "installed")
        if not f"{self.installed.prefix}/".startswith("/usr/"):
            raise Skip(f"machines have no {self.installed.prefix}; set the prefix to /usr or /usr/local")

    def _kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def root(self, name):
        return self.folder / name

    def _make(self, name, machine):
        root = self.root(name)
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
        for link in pathlib.Path("/").iterdir():
            if link.is_symlink() and str(link.readlink()).lstrip("/").startswith("usr/"):
                (root / link.name).symlink_to(link.readlink())
        for file in ("os-release", "ld.so.cache"):
            shutil.copy(f"/etc/{file}", root / "etc" / file)
        (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc" / "group").write_text("root:x:0:\n")
        (root / "etc" / "pam.d" / "runuser").write_text("".join(f"{what} required pam_permit.so\n" for what in ("auth", "account", "session")))
        self._configure(root, machine)

    def _configure(self, root, machine):
        (root / "etc" / "machine-id").write_text(os.urandom(16).hex() + "\n")
        (root / "etc" / "systemd" / "journald.conf.d" / "test.conf").write_text("[Journal]\nRateLimitBurst=0\nSyncIntervalSec=1s\n")
        units = root / "etc" / "systemd" / "system"
        (units / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
        for unit in MASKED:
            (units / unit).symlink_to("/dev/null")
        for path, text in machine.get("files", {}).items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _command(self, name):
        disk = self.machines[name].get("disk")
        return ["systemd-nspawn", "--quiet", f"--directory={self.root(name)}", f"--machine=evb-{name}", f"--hostname={name}", "--register=no",
                "--keep-unit", f"--network-namespace-path=/run/netns/{self.network.name(name)}", "--capability=CAP_NET_ADMIN",
                "--resolv-conf=off", "--timezone=off", "--link-journal=no",
                *self._mounts(), *([f"--tmpfs=/var/lib/evb:size={disk},mode=755"] if disk else [])]

    def _mounts(self):
        return [f"--overlay-ro=/usr:{self.folder}/installed/usr:/usr"]

    def _enter_cgroups(self, name):
        for cgroup in os.environ[CGROUPS].split(":"):
            own = pathlib.Path(cgroup) / name
            own.mkdir(parents=True, exist_ok=True)
            (own / "cgroup.procs").write_text(str(os.getpid()))

    def _popen(self, name, *arguments, **options):
        try:
            return subprocess.Popen([*self._command(name), *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                                    preexec_fn=lambda: self._enter_cgroups(name), **options)
        except subprocess.SubprocessError as e:
            raise Skip(f"a container needs a cgroup of its own, which cannot be made in {os.environ[CGROUPS]}") from e

    def _probe(self, name):
        """Skips the test if systemd-nspawn cannot start a program at all."""
        probe = self._popen(name, "/usr/bin/true", stdout=subprocess.PIPE, text=True)
        output = probe.communicate(timeout=LIMIT_S)[0]
        if probe.returncode != 0:
            raise Skip(f"systemd-nspawn cannot start a container: {' '.join(output.split())}")

    def _start(self, name):
        with open(self.folder / f"{name}.console", "ab") as console:
            self.processes[name] = self._popen(name, "--boot", stdout=console)

    def console(self, name):
        return (self.folder / f"{name}.console").read_text(errors="replace")[-4000:]

    def init(self, name):
        """Returns the PID of the machine's systemd; None: it is starting."""
        pid, status = self.processes[name].pid, self.processes[name].poll()
        if status == REBOOTS:
            self._start(name)
            return None
        assert status is None, f"{name} has ended with status {status}: {self.console(name)}"
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if re.search(r"^NSpid:.*\t1$", pathlib.Path(f"/proc/{child}/status").read_text(), re.M):
                    return child
        return None

    def run(self, name, *command, check=True):
        """Runs a command on a machine, as root. A string is a command line of the shell."""
        if len(command) == 1:
            command = ("sh", "-c", command[0])
        done = subprocess.run(["nsenter", f"--target={self.init(name)}", "--all", *command], capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, check=False, env=ENVIRONMENT)
        assert not check or done.returncode == 0, f"{name}: {' '.join(command)}: {done.stdout}{done.stderr}{self.journal(name)[-3000:]}"
        return done

    def wait_booted(self, name, after=None):
        """Waits until a machine is up; `after` is the PID of its previous systemd."""
        def is_up():
            if self.init(name) in (None, after):
                return False
            return self.run(name, "systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded")

        try:
            wait_until(f"boot of {name}", is_up)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.console(name)}") from e

    def show(self, name, unit, key):
        return self.run(name, "systemctl", "show", "--value", f"--property={key}", unit).stdout.strip()

    def journal(self, name, *arguments):
        """Returns the messages in a machine's journal; it may be off."""
        return subprocess.run(["journalctl", f"--directory={self.root(name)}/var/log/journal", "--quiet", "--no-pager", "--output=cat",
                               *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout

    def wait(self, what, condition, limit=LIMIT_S):
        """Waits for a condition, and shows the journals if it does not come."""
        try:
            wait_until(what, condition, limit)
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *(f"{name}:\n{self.journal(name)[-3000:]}" for name in self.machines)])) from e
