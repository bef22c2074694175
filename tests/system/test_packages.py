#!/usr/bin/env python3
"""The Debian packages of the newest commit: what they contain, and a run in fresh roots of Debian 12 from `apt install` to
`apt purge`, with an upgrade while it goes on. Those of EL 9 are built, but not installed. An image of them.

    test_packages.py EVB [CASE...]

EVB_PACKAGES names a folder in which scripts/package.sh has left the packages; without it, the test builds them.
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

from harness import ROOT, Skip, main
from installed import need_program
from machines import Machines, confined
from network import sh, wait_until
from test_machines import documented, main_pid, scenario, shape_of, unit, wait_begun

PACKAGES, SUITE = "EVB_PACKAGES", "bookworm"
# Downloads as apt does, with its proxies.
HELPER = "/usr/lib/apt/apt-helper"
# What a shaper needs, and a builder not only.
SHAPER = {"libc6", "libinih1", "libjansson4", "libmnl0", "libnl-3-200", "libnl-route-3-200", "systemd"}
NODES = ("pc-dfm", "pc-ros1", "pc-sfi1")
BUILD_LIMIT_S = 3000
# A purge leaves these: events and their records, the log of the machine and of its package manager, and what the test put there.
LEFT = re.compile(r"/var/lib/evb(/[^/]+\.(data|json))?|/var/log/.*|/var/cache/.*|/root/.*")


def packages():
    """Returns the folder of the packages."""
    if not os.environ.get(PACKAGES):
        raise Skip("debhelper is not installed; scripts/deps.sh package installs it")
    return pathlib.Path(os.environ[PACKAGES])


def build(where, kind="deb"):
    done = subprocess.run(["scripts/package.sh", kind, where], cwd=ROOT, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert done.returncode in (0, 77), done.stdout + done.stderr
    return done.returncode == 0


@contextlib.contextmanager
def built():
    """Builds the packages for all cases, if that can be done and nothing names them."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        if PACKAGES not in os.environ and build(where):
            os.environ[PACKAGES] = where
        yield


def file_of(folder, name):
    return next(folder.glob(f"{name}_*.deb"))


def field(file, name):
    return sh("dpkg-deb", "-f", str(file), name).stdout.strip()


def needs(file):
    """The packages that one depends on; of alternatives, the first."""
    return {re.split(r"[ :(|]", each.strip())[0] for each in field(file, "Depends").split(",")}


def contents(_):
    """No file is in two packages, and the shaper needs nothing that only the builder needs."""
    folder, owners = packages(), {}
    for file in folder.glob("*.deb"):
        for line in sh("dpkg-deb", "-c", str(file)).stdout.splitlines():
            path = line.split(maxsplit=5)[5]
            if not path.endswith("/"):
                assert path not in owners, (path, owners[path], file.name)
                owners[path] = file.name
    assert needs(file_of(folder, "evb-qos")) <= SHAPER, needs(file_of(folder, "evb-qos"))
    assert "evb-qos" in needs(file_of(folder, "evb"))
    assert needs(file_of(folder, "libevb-live1")) == {"libc6"}


def style(_):
    """lintian finds nothing that no override explains."""
    need_program("lintian")
    done = subprocess.run(["lintian", "--pedantic", *packages().glob("*.changes")], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def repeated(_):
    """Two builds in different folders are equal byte for byte."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        folder, again = packages(), pathlib.Path(where)
        assert build(again)
        assert {path.name for path in again.glob("*.deb")} == {path.name for path in folder.glob("*.deb")}
        different = [path.name for path in again.glob("*.deb") if path.read_bytes() != (folder / path.name).read_bytes()]
        assert not different, different


def el9(_):
    """The packages of evb.spec have each installed file once, and the shaper needs nothing that only the builder needs."""
    need_program("rpmbuild", "rpm")
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        # It fails if a file that is installed is in no package.
        assert build(where, "rpm")
        owners, shaper = {}, None
        for file in pathlib.Path(where).glob("*.rpm"):
            listed = sh("rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", str(file)).stdout.splitlines()
            for path in [line.split()[1] for line in listed if line[0] != "d" and "LICENSE" not in line]:
                assert path not in owners, (path, owners[path], file.name)
                owners[path] = file.name
            if file.name.startswith("evb-qos-"):
                shaper = set(re.findall(r"^lib([a-z]+)[-\d]*\.so|^lib(nl-route)", sh("rpm", "-qpR", str(file)).stdout, re.M))
        assert len({name.split("-0")[0] for name in owners.values()}) == 7, set(owners.values())
        assert shaper and {first or second for first, second in shaper} <= {"c", "inih", "jansson", "mnl", "nl", "nl-route"}, shaper


def make_root(where, root, names, more=()):
    """Makes a root of Debian 12, or an archive of it, with what these packages need, but without them."""
    need_program("mmdebstrap", "apt-get", HELPER, "dpkg-deb")
    mirror = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"],
                            capture_output=True, text=True, check=False).stdout.split("\n")[0]
    if not mirror:
        raise Skip("apt knows no mirror of Debian")
    asked = subprocess.run([HELPER, "download-file", f"{mirror.rstrip('/')}/dists/{SUITE}/InRelease", where / "InRelease"],
                           capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise Skip(f"{mirror} has no {SUITE}: {' '.join(asked.stderr.split()[-30:])}")
    wanted = set(more).union(*(needs(file_of(packages(), name)) for name in names)) - set(names)
    done = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(sorted(wanted))}", SUITE, root, mirror],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def image(_):
    """An image of the packages, made without a registry, has evb as its entry point; the lab runs in it."""
    need_program("buildah")
    # A gigabyte, which the temporary directory of machines cannot store.
    with tempfile.TemporaryDirectory(prefix="evb-test-", dir="/var/tmp") as folder:
        where = pathlib.Path(folder)
        os.environ["TMPDIR"] = folder
        (where / "scenario.conf").write_text("[trigger]\nrate = 1kHz\nevents = 500\n[ros]\ncount = 2\n[sfi]\ncount = 1\ntimeout = 30s\n"
                                             "[dfm]\nnode-timeout = 30s\n[network]\nlink-rate = 1Gbit\n[qos]\nbackend = auto\n")

        def buildah(*words):
            return sh("buildah", "--storage-driver", "vfs", "--root", f"{where}/store", "--runroot", f"{where}/run", *words).stdout.strip()

        def inside(*words):
            return buildah("run", "--isolation", "chroot", "--cap-add", "CAP_NET_ADMIN,CAP_SYS_ADMIN", container, "--", *words)

        make_root(where, where / "base.tar", ("evb", "evb-qos", "evb-lab", "python3-evb"))
        container = buildah("from", "scratch")
        buildah("add", "-q", container, str(where / "base.tar"), "/")
        buildah("commit", "-q", container, "base")
        buildah("build", "-q", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", "--file", str(ROOT / "Containerfile"), "--tag", "evb",
                str(packages()))
        assert buildah("inspect", "--type", "image", "--format", "{{.OCIv1.Config.Entrypoint}}", "localhost/evb") == "[/usr/bin/evb]"
        container = buildah("from", "localhost/evb")
        buildah("copy", "-q", container, str(where / "scenario.conf"), "/scenario.conf")
        assert " (commit " in inside("evb", "--version")
        report = json.loads(inside("evb", "run", "/scenario.conf", "--net", "lab", "--quiet", "--json"))
        assert (report["events_complete"], report["qos_backend"]) == (500, "htb+tbf"), report
        assert re.search(r"^C1 ", inside("evb", "lab", "list"), re.M)


class Fresh(Machines):
    """Machines with a root of Debian 12 of their own, which has what the packages depend on, but not the packages."""

    def _prepare(self):
        folder, base = packages(), self.folder / "base"
        make_root(self.folder, base, ("evb", "evb-qos"), {"iproute2"})
        # mmdebstrap copies the name of this machine.
        (base / "etc" / "hostname").unlink()
        for name in ("evb", "evb-qos"):
            sh("cp", str(file_of(folder, name)), str(base / "root"))
            self._make_newer(name, file_of(folder, name), base / "root")

    def _make_newer(self, name, file, where):
        """Makes a package of the next version, which only the version tells from this one."""
        with tempfile.TemporaryDirectory(prefix="evb-test-") as there:
            tree, version = pathlib.Path(there, "tree"), field(file, "Version")
            sh("dpkg-deb", "-R", str(file), str(tree))
            control = tree / "DEBIAN" / "control"
            control.write_text(control.read_text().replace(version, f"{version}+next"))
            (where / "next").mkdir(exist_ok=True)
            sh("dpkg-deb", "-b", str(tree), str(where / "next" / f"{name}_next.deb"))

    def _make(self, name, machine):
        work = self.folder / f"{name}.work"
        for folder in (self.root(name), self.folder / f"{name}.own", work):
            folder.mkdir()
        sh("mount", "-t", "overlay", "-o", f"lowerdir={self.folder}/base,upperdir={self.folder}/{name}.own,workdir={work}", "evb-test",
           str(self.root(name)))
        for folder in ("etc/systemd/journald.conf.d", "var/log/journal"):
            (self.root(name) / folder).mkdir(parents=True, exist_ok=True)
        self._configure(self.root(name), machine)

    def _mounts(self):
        return []

    def install(self, name, command):
        self.run(name, f"cd /root && yes | DEBIAN_FRONTEND=noninteractive {command}")


def program_of(m, name, service):
    return os.readlink(f"/proc/{main_pid(m, name, service)}/exe")


def shape(m, name):
    """The shaper alone shapes a device."""
    m.install(name, "apt install ./evb-qos_*.deb")
    m.run(name, documented("echo 'EVB_QOS=--dest 192.168.69.3=20Mbit --link-rate 1Gbit' >/etc/evb/qos-eth1.env"))
    m.run(name, documented("systemctl enable --now evb.target evb-qos@eth1"))
    assert [d["rate_bps"] for d in json.loads(m.run(name, "evb-qos status --dev eth1 --json").stdout)["destinations"]] == [20_000_000]


def install(m):
    for name in NODES:
        m.install(name, documented("apt install ./evb_*.deb ./evb-qos_*.deb"))
        if name != "pc-ros1":
            assert m.run(name, "systemctl list-units --no-legend 'evb*'").stdout == "", "something has started"
        assert m.run(name, "stat -c %U:%a /var/lib/evb /etc/evb").stdout.split() == ["evb:755", "root:755"]
        assert " (commit " in m.run(name, "evb --version").stdout
        (m.root(name) / "etc/evb/scenario.conf").write_text(scenario(NODES))
        m.run(name, f"systemctl enable --now evb.target {unit(name)}")


def upgrade(m):
    """The nodes and the shaping go on through an upgrade, and the next start uses the new program."""
    services = [*((name, unit(name)) for name in NODES), ("pc-ros1", "evb-qos@eth1")]
    before = [main_pid(m, *service) for service in services]
    for name in NODES:
        m.install(name, "apt install ./next/*.deb")
        assert m.run(name, "dpkg-query -W -f '${Version} ' evb evb-qos").stdout.count("+next") == 2
    assert [main_pid(m, *service) for service in services] == before
    assert all(program_of(m, *service).endswith(" (deleted)") for service in services), "the programs are not new"
    assert [d["rate_bps"] for d in shape_of(m, "pc-ros1")["destinations"]] == [20_000_000]
    m.run("pc-dfm", documented("systemctl stop evb-dfm"))
    m.wait("end", lambda: all(m.show(name, unit(name), "ActiveState") in ("inactive", "failed") for name in NODES))
    assert [m.show(name, unit(name), "Result") for name in NODES] == ["success"] * 3, m.journal("pc-dfm")
    for name in NODES:
        m.run(name, documented("systemctl start evb.target"))
    wait_begun(m, 2)
    assert [program_of(m, name, unit(name)) for name in NODES] == ["/usr/bin/evb"] * 3


def purge(m):
    """A purge ends what runs, and leaves events and their records only."""
    for name in ("pc-ros1", "pc-sfi1"):
        m.install(name, documented("apt purge evb evb-qos"))
        left = m.run(name, "find / -xdev -name '*evb*' -o -path '*/evb/*' -xdev").stdout.split()
        assert not [path for path in left if not LEFT.fullmatch(path)], left
        # The network device has no qdisc of evb.
        assert "e7b:" not in m.run(name, "tc qdisc show dev eth1").stdout
        assert (m.root(name) / "var/lib/evb").exists() == (name == "pc-sfi1")
    assert list((m.root("pc-sfi1") / "var/lib/evb").glob("*.data"))


def life(evb):
    """Shaper alone, run, upgrade, purge."""
    with Fresh(evb, {name: {} for name in NODES}) as m:
        shape(m, "pc-ros1")
        install(m)
        wait_begun(m, 1)
        wait_until("events", lambda: "0 events complete" not in m.run("pc-dfm", "systemctl status evb-dfm", check=False).stdout)
        upgrade(m)
        purge(m)


def test():
    with built():
        main({"contents": contents, "style": style, "repeated": repeated, "life": life, "el9": el9, "image": image})


if __name__ == "__main__":
    confined(test)
