#!/usr/bin/env python3
"""What `meson install` brings for services: systemd accepts the units and finds them confined, they restart nodes after
transient errors only, and the user and the directories are made.

    test_units.py EVB [CASE...]
"""
import os
import pathlib
import re
import shutil
import subprocess

from harness import LIMIT_S, OWN_NET, ROOT, Skip, drop_root, folder, main, scenario
from installed import UNIT_DIRECTORIES, UNITS, Installed, need_program, setting
from network import Network, sh

# Exposure of a unit as `systemd-analyze security` rates it: 0 is best, 10 is worst. It counts in tenths.
EXPOSURE_MAX_TENTHS = 19
COMMANDS = ["bench", "check", "dfm", "dump", "frontend", "lab", "level2", "qos", "ros", "run", "sfi", "stream"]


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text)[1])


def files(evb):
    """Everything that a machine needs is installed, and nothing that would become active by itself."""
    with folder() as where:
        installed = Installed(evb, where)
        directory = installed.units()
        if installed.prefix in ("/usr", "/usr/local"):
            assert str(directory.relative_to(where)) in UNIT_DIRECTORIES, directory
        assert {path.name for path in directory.iterdir()} == {*UNITS, "evb.target"}, list(directory.iterdir())
        man = pathlib.Path(installed.options["mandir"])
        wanted = {*(f"{installed.options['bindir']}/{name}" for name in ("evb", "evb-qos")), "lib/sysusers.d/evb.conf", "lib/tmpfiles.d/evb.conf",
                  "share/evb/sysctl.d/90-evb.conf", "share/evb/scenarios/testbed.conf",
                  "share/evb/systemd/evb-ros@.service.d/evb-ros-shaping.conf",
                  "share/bash-completion/completions/evb", "share/bash-completion/completions/evb-qos", "share/zsh/site-functions/_evb", "share/evb/complete.sh",
                  f"{man}/man1/evb.1", f"{man}/man5/evb.conf.5", f"{man}/man3/libevb-live.3", *(f"{man}/man1/evb-{name}.1" for name in COMMANDS)}
        found = installed.files()
        assert not wanted - found, wanted - found
        active = {name for name in found if re.search(r"(^|/)(etc|sysctl\.d|systemd/system/.*\.d)/", name)}
        assert active == {"share/evb/sysctl.d/90-evb.conf"}, active
        program = f"{installed.prefix}/{installed.options['bindir']}/evb"
        for name in UNITS:
            own = f"{program}-qos" if name == "evb-qos@.service" else program
            for key in ("ExecStart", "ExecStartPre", "ExecStopPost"):
                for value in setting((directory / name).read_text(), key):
                    assert value.lstrip("-").split()[0] in (own, "/bin/sh" if key == "ExecStartPre" else own), (name, value)
        # The example is a scenario of the program beside it.
        sh(str(installed.evb()), "check", str(installed.path("share/evb/scenarios/testbed.conf")))


def restarts(evb):
    """Only a crash or status 75 restarts a node, without limit. A stop leaves time to drain."""
    keys = subprocess.run([evb, "check", "--keys"], capture_output=True, text=True, check=True).stdout
    stop = re.search(r"stop-timeout\n.*\n.*default: (\d+)s\)\n", keys)
    for name in UNITS:
        head, service = (ROOT / "configs" / "systemd" / f"{name}.in").read_text().split("[Service]")
        assert setting(head, "PartOf") == ["evb.target"] and setting(service, "WantedBy") == ["evb.target"], name
        assert setting(head, "StartLimitIntervalSec") == ["0"], (name, "the start limit belongs in [Unit]")
        assert setting(service, "Restart") == ["on-failure"] and seconds(*setting(service, "RestartSec")) >= 1, name
        assert not setting(service, "SuccessExitStatus"), name
        if name in ("evb-ros@.service", "evb-qos@.service"):
            assert re.search("[ -]qos remove ", setting(service, "ExecStopPost")[0]), f"a killed {name} leaves its shaping installed"
        if name == "evb-qos@.service":
            continue
        assert sorted(setting(service, "RestartPreventExitStatus")[0].split()) == ["1", "2", "77"], name
        if name == "evb-dfm.service":
            assert setting(service, "StateDirectory") == ["evb"], "a restarted DFM reads its run from the state directory"
        assert seconds(*setting(service, "TimeoutStopSec")) >= int(stop[1]) + 10, name


def confined(evb):
    """The nodes of all roles are confined alike, and nothing hides what shaping reads in /proc."""
    common = []
    for name in UNITS:
        service = (ROOT / "configs" / "systemd" / f"{name}.in").read_text().split("[Service]")[1]
        settings = service[service.index("NoNewPrivileges="):service.index("[Install]")]
        assert not setting(settings, "ProcSubset"), name
        if name != "evb-qos@.service":
            common.append([line for line in settings.splitlines() if not line.startswith("#")])
    assert evb and common[0] == common[1] == common[2], common


def with_drop_ins(installed):
    """Copies the drop-ins to where systemd-analyze finds them, as an operator does for systemd."""
    shutil.copytree(installed.path("share/evb/systemd"), installed.units(), dirs_exist_ok=True)


def analyze(installed, verb, *arguments):
    return subprocess.run(["systemd-analyze", verb, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{installed.units()}:", "SYSTEMD_LOG_LEVEL": "warning"})


def ours_here(installed):
    """Makes the units name the program where it is, not where it will be."""
    for name in UNITS:
        path = installed.units() / name
        path.write_text(path.read_text().replace(f"={installed.prefix}/", f"={installed.path('')}/")
                        .replace(f"=-{installed.prefix}/", f"=-{installed.path('')}/"))


def verify(evb):
    """systemd-analyze verify says nothing about the units, with and without the drop-ins."""
    need_program("systemd-analyze")
    with folder() as where:
        installed = Installed(evb, where)
        ours_here(installed)
        for drop_ins in (False, True):
            if drop_ins:
                with_drop_ins(installed)
            for name in (*UNITS, "evb.target"):
                done = analyze(installed, "verify", "--man=no", str(installed.units() / name.replace("@.", "@node1.")
                                                                    if drop_ins else installed.units() / name))
                ours = [line for line in done.stderr.splitlines() if "evb" in line]
                assert done.returncode == 0 and not ours, (name, done.returncode, done.stderr)


def security(evb):
    """Each unit is rated below 2.0, also with its drop-in."""
    need_program("systemd-analyze")
    with folder() as where:
        installed = Installed(evb, where)
        for drop_ins in (False, True):
            if drop_ins:
                with_drop_ins(installed)
            for name in UNITS:
                done = analyze(installed, "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_MAX_TENTHS}",
                               str(installed.units() / name))
                assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
                assert re.search(r"^→ Overall exposure level for evb-.*: [01]\.\d", done.stdout, re.M), done.stdout
        for name in UNITS:
            capable = setting((installed.units() / name).read_text(), "AmbientCapabilities")
            assert capable == (["CAP_NET_ADMIN"] if name == "evb-qos@.service" else []), (name, capable)


def users(evb):
    """systemd-sysusers makes the user, and systemd-tmpfiles the directories, as the units expect them."""
    if os.geteuid() != 0:
        raise Skip("directories of another user need root")
    need_program("systemd-sysusers", "systemd-tmpfiles")
    with folder() as where:
        installed = Installed(evb, where)
        for kind in ("sysusers.d", "tmpfiles.d"):
            target = where / "usr" / "lib" / kind
            if not target.exists():
                shutil.copytree(installed.path(f"lib/{kind}"), target)
        (where / "etc").mkdir(exist_ok=True)
        sh("systemd-sysusers", f"--root={where}")
        user = next(line for line in (where / "etc" / "passwd").read_text().splitlines() if line.startswith("evb:")).split(":")
        assert user[5] == "/var/lib/evb" and user[6].endswith("nologin"), user
        sh("systemd-tmpfiles", f"--root={where}", "--create")
        for name, owner in (("etc/evb", 0), ("var/lib/evb", int(user[2])), ("run/evb", int(user[2]))):
            status = (where / name).stat()
            assert (status.st_uid, status.st_mode & 0o7777) == (owner, 0o755), (name, oct(status.st_mode), status.st_uid)
        # A second time changes nothing.
        sh("systemd-sysusers", f"--root={where}")
        sh("systemd-tmpfiles", f"--root={where}", "--create")
        assert len(re.findall("^evb:", (where / "etc" / "passwd").read_text(), re.M)) == 1
        for name in UNITS:
            assert setting((installed.units() / name).read_text(), "User") == ["evb"], name


def psched(evb):
    """The installed bursts do not depend on /proc/net/psched, which ProcSubset=pid hides."""
    with Network("a", "b") as network:
        network.pair("a", "b")
        shape = f"{evb} qos apply --dev eth0 --dest 10.9.0.2=200Mbit --set qos.burst=32KiB --link-rate 1Gbit --backend htb+tbf --json"

        def burst(command):
            """Shapes, and returns the burst of the one destination as tc computes it, in bytes."""
            network.run("a", "unshare", "--mount", "--propagation", "private", "sh", "-ec", command)
            found = re.findall(r"tbf 1001:.* burst (\d+)b", network.tc("a", "qdisc", "show", "dev", "eth0").stdout)
            network.evb(evb, "a", "qos", "remove", "--dev", "eth0")
            return int(*found)

        hidden = "mount -t proc -o subset=pid proc /proc && ! [ -e /proc/net/psched ]"
        if network.run("a", "unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, check=False).returncode != 0:
            raise Skip("this kernel cannot mount proc with subset=pid")
        found = burst(f"{hidden}; {shape}"), burst(shape)
        # tc prints what it computes from ticks of 64 ns, each 1.6 bytes of this rate.
        assert found[0] == found[1] and abs(found[0] - 32768) < 100, found


def priority(evb):
    """A DFM that may not raise its priority for the busy signal says so, and goes on."""
    with folder() as where:
        where.chmod(0o755)
        path = scenario(where, "[trigger]\nbusy-to = 127.0.0.1:9\n[network]\ncontrol-group = none\n"
                        f"[node d]\nrole = dfm\naddress = {OWN_NET}.1\n[node r]\nrole = ros\naddress = {OWN_NET}.2\n"
                        f"[node s]\nrole = sfi\naddress = {OWN_NET}.3\n")
        done = subprocess.run([evb, "check", str(path), "--node", "d"], capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=drop_root)
        assert done.returncode == 0, done
        assert "trigger.busy-to: not permitted to raise the priority" in done.stderr, done.stderr


if __name__ == "__main__":
    main({"files": files, "restarts": restarts, "confined": confined, "verify": verify, "security": security, "users": users,
          "psched": psched, "priority": priority})
