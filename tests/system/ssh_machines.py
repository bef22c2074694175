"""Machines of a testbed that are reached by ssh: a network namespace with an sshd of its own for each node, and a desk."""
import contextlib
import os
import pathlib
import shutil
import subprocess

from harness import LIMIT_S, Skip, folder
from network import Network, sh, wait_until

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class SshMachines:
    """Nodes dfm, ros1... and sfi1... with addresses 10.9.0.1 and so on."""

    def __init__(self, evb, where, ros=2, sfi=1):
        if not SSHD or not shutil.which("ssh"):
            raise Skip("sshd and ssh are not installed (openssh-server, openssh-client)")
        self.evb, self.where = str(pathlib.Path(evb).resolve()), where
        self.roles = {"dfm": "dfm", **{f"ros{i + 1}": "ros" for i in range(ros)}, **{f"sfi{i + 1}": "sfi" for i in range(sfi)}}
        self.addresses = {name: f"10.9.0.{i}" for i, name in enumerate(self.roles, 1)}
        self.network = Network("switch", *self.roles, "desk")
        self.daemons = {}
        self.ssh = f"ssh -F {where}/ssh_config -o BatchMode=yes"

    def __enter__(self):
        self.network.__enter__()
        try:
            self.network.bridge("switch", [*self.roles, "desk"])
            for host in (*self.roles, "desk"):
                self.network.ip(host, "route", "add", "default", "dev", "eth0")
            self._make_keys()
            for name in self.roles:
                self._start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        self.network.__exit__()

    def _make_keys(self):
        for name in ("host", "user"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.where / name))
        (self.where / "known").write_text(f"* {(self.where / 'host.pub').read_text()}")
        # Where sshd separates its privileges.
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        (self.where / "sshd_config").write_text(
            f"HostKey {self.where}/host\nAuthorizedKeysFile {self.where}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\n")
        (self.where / "ssh_config").write_text(
            f"Host *\nIdentityFile {self.where}/user\nUserKnownHostsFile {self.where}/known\nUser root\nStrictHostKeyChecking yes\n")

    def _start(self, name):
        self.daemons[name] = subprocess.Popen(["ip", "netns", "exec", self.network.name(name), SSHD, "-D", "-e", "-f", self.where / "sshd_config"],
                                              stderr=open(self.where / f"{name}.sshd", "w", encoding="utf-8"))
        wait_until(f"sshd of {name}", lambda: "Server listening on 0.0.0.0" in (self.where / f"{name}.sshd").read_text())

    def scenario(self, more=""):
        path = self.where / "testbed.conf"
        nodes = "".join(f"[node {name}]\nrole = {role}\naddress = {self.addresses[name]}\ndevice = eth0\n" for name, role in self.roles.items())
        path.write_text(f"[network]\nlink-rate = 1Gbit\n{more}[trigger]\nrate = 1Hz\n{nodes}")
        return path

    def nodes(self):
        """The processes of nodes on these machines, by name."""
        here = {os.stat(f"/run/netns/{self.network.name(name)}").st_ino for name in self.roles}
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if words[0].decode() == self.evb and b"--node" in words and os.stat(path.parent / "ns" / "net").st_ino in here:
                    found[words[words.index(b"--node") + 1].decode()] = int(path.parent.name)
        return found

    def desk(self, *words, **options):
        """Starts a program at the desk."""
        return subprocess.Popen(["ip", "netns", "exec", self.network.name("desk"), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)


@contextlib.contextmanager
def ssh_machines(evb, **how):
    with folder() as where, SshMachines(evb, where, **how) as machines:
        yield machines


def end_of(process, expect=0):
    """Returns what it printed on standard output and standard error."""
    out, err = process.communicate(timeout=5 * LIMIT_S)
    assert process.returncode == expect, (process.returncode, out, err)
    return out, err
