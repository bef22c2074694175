#!/usr/bin/env python3
"""Every command of the pages for users and operators is run: here, by another test, or, if this machine cannot run it, its
parts are checked; page_table.py has the table. test_network_page.py runs docs/network.md.

    test_pages.py EVB [CASE...]
"""
import os
import pathlib
import re
import shutil
import subprocess

from harness import LIMIT_S, OWN_NET, ROOT, SCENARIOS, Skip, drop_root, folder, listens, main, need_root
from installed import Installed
from network import sh, wait_until
from page_table import DEPLOY, MONITORING, OPERATE, README, TABLE, of_case
from pages import Shell, blocks, commands_of, file_of, pattern_of

# A process that gets no processor for a while loses no fragment, and is not given up.
PATIENT = " --set sfi.timeout=30s --set dfm.node-timeout=30s"


def tables(evb):
    """Each command of a page is in the table, and each entry of the table in its page."""
    cases = set(re.findall(r'^ +"([\w-]+)": \w+[,}]', "".join((ROOT / "tests/system" / name).read_text() for name in
                                                         ("test_pages.py", "test_network_page.py")), re.M))
    assert len((ROOT / README).read_text().splitlines()) <= 120, "README.md is a beginning: move lines to the document of their subject"
    for page, table in TABLE.items():
        typed = {command.text for command in commands_of(page)}
        assert typed == set(table), (page, typed ^ set(table))
        for command, how in table.items():
            if isinstance(how, str):
                assert how in cases, (command, how)
            elif isinstance(how, tuple):
                assert how[1] in (ROOT / "tests/system" / how[0]).read_text(), (command, how)
            else:
                how[1](evb)


def demo(_evb):
    """scripts/demo.sh as it is, with fewer events: it names its file and how to remove it, and 10000 events take what README says."""
    evb = pathlib.Path(_evb)
    with folder() as where:
        where.chmod(0o777)
        for name in ("scripts", "build", "tmp"):
            (where / name).mkdir(mode=0o777)
        (where / "tmp").chmod(0o777)
        shutil.copy(ROOT / "scripts/demo.sh", where / "scripts")
        for name in ("deps.sh", "build.sh"):
            (where / "scripts" / name).write_text("#!/bin/sh\n")
            (where / "scripts" / name).chmod(0o755)
        shutil.copy(evb, where / "build/evb")
        shutil.copytree(SCENARIOS, where / "configs/scenarios")
        if subprocess.run([str(where / "build/evb"), "--version"], preexec_fn=drop_root, capture_output=True, timeout=LIMIT_S).returncode != 0:
            raise Skip("an ordinary user cannot run the copied program")
        done = subprocess.run([str(where / "scripts/demo.sh"), "--set", "trigger.events=1000", "--set", "sfi.timeout=30s", "--set", "dfm.node-timeout=30s"], cwd=where,
                              preexec_fn=drop_root, capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, "TMPDIR": str(where / "tmp"), "XDG_STATE_HOME": str(where / "tmp/state")})
        assert done.returncode == 0, done
        shown = re.search(r"^```text\n(demo: .*?)^```$", (ROOT / README).read_text(), re.M | re.S)[1].splitlines()
        for line in shown:
            line = re.sub(r"evb-demo-\w+", "evb-demo-...", line).replace("/tmp/", f"{where}/tmp/")
            assert line.strip() == "..." or re.search(pattern_of(line), done.stdout), (line, done.stdout)
        (file,) = (where / "tmp").glob("evb-demo-*/*.data")
        stated = int(re.search(r"writes a file of (\d+) MB", (ROOT / README).read_text())[1])
        assert abs(10 * file.stat().st_size / 1e6 - stated) < 1, (file.stat().st_size, stated)
        sh("bash", "-c", re.search(r"with: (rm -r .*)", done.stdout)[1])
        assert not list((where / "tmp").glob("evb-demo-*")), done.stdout


def port(evb):
    """scripts/demo-port.py in short: all four rows are measured, and the picture has them. Whether the machine shows the collapse
    depends on its load."""
    need_root()
    with folder() as where:
        done = sh("python3", "-B", ROOT / "scripts/demo-port.py", "--evb", evb, "--seconds", "0.5", "--svg", where / "port.svg", check=False)
        rows = re.findall(r"^  (?:unshaped, .*|pull|shaped push) +(\d+)  \S{20} +\d+ %", done.stdout, re.M)
        assert done.returncode in (0, 1) and len(rows) == 4 and int(rows[3]) > 0, done
        picture = (where / "port.svg").read_text()
        assert all(f">{figure}<" in picture for figure in rows) and "not measured" not in picture, (rows, picture)


def start_with(shell, device):
    """Gives a shell the sources' directory, as the commands of README expect it, and a device of 10.0.0.5."""
    (shell.where / "build").symlink_to("bin")
    (shell.where / "configs").symlink_to(ROOT / "configs")
    for text in ("ip link set lo up", f"ip link add {device} type veth peer name peer0", f"ip addr add 10.0.0.5/24 dev {device}",
                 f"ip link set {device} up", "ip link set peer0 up"):
        shell.type(text)


def readme(evb):
    """The commands of README, in their order; runs are short."""
    need_root()
    edits = [(r"^sudo ", ""), (r"(evb run .*)", rf"\1 --set trigger.events=200 --set run.stop-timeout=20s{PATIENT}"),
             (r"FILE\.data --verify", "data/*.data --verify")]
    with folder() as where, Shell(where, evb, ("unshare", "--net")) as shell:
        start_with(shell, "eth0")
        (where / "data").mkdir()
        shell.type(f"evb run configs/scenarios/demo.conf --set trigger.events=100 --set sfi.directory=data{PATIENT}")
        for command in of_case(README, "readme") + of_case(DEPLOY, "readme"):
            output = shell.follow(command, edits)
            if "push-6x1.conf --set" in command.text:
                assert '"events_complete":200' in output.replace(" ", ""), output
            elif command.text == "build/evb lab list":
                count = int(re.search(r"lab list +# (\d+) measurements", (ROOT / README).read_text())[1])
                assert output.count("needs: ") == count, (count, output)
        assert "htb" not in shell.type("tc qdisc show dev eth0")


def left_open(shell, complete):
    """Makes an SFI leave its file, and repairs nothing yet."""
    shell.type("wait", expect=None)
    for text in ("evb sfi", "evb ros", "evb ros", "evb dfm"):
        role = text[4:]
        name = {"evb sfi": "sfi1", "evb dfm": "dfm"}.get(text, f"ros{1 + complete.count('evb ros')}")
        complete.append(text)
        shell.type(f"evb {role} --config run.conf --node {name} 2>{name}.log &\neval {name}_pid=$!")
    data = shell.where / "data"
    wait_until("events", lambda: any(path.stat().st_size > 50_000 for path in data.glob("*.writing")))
    shell.type("kill -9 $sfi1_pid; wait $sfi1_pid", expect=137)
    shell.type("evb sfi --config run.conf --node sfi1 2>sfi1-again.log &\nsfi1_pid=$!")
    wait_until("the next file", lambda: len(list(data.glob("*.writing"))) == 2)
    wait_until("the DFM's notice", lambda: "sfi1 has restarted" in (shell.where / "dfm.log").read_text())
    # The command in the warning works. The page's one is to find nothing made yet.
    hint = re.search(r"to repair it, run: (evb dump .* --output (\S+))", (shell.where / "sfi1-again.log").read_text())
    shell.type(f"{hint[1]} && evb dump --verify {hint[2]} && rm {hint[2]}")
    assert hint[2].endswith("_0001.data"), hint[0]
    # The one that is written is locked.
    new = max(path.name for path in data.glob("*.writing"))
    assert "is writing" in shell.type(f"evb dump data/{new} --repair", expect=1)
    shell.type("kill $dfm_pid; wait $dfm_pid", expect=None)
    shell.type("wait $sfi1_pid $ros1_pid $ros2_pid", expect=None)


def hand(evb):
    """docs/operate.md by hand: bring up, watch, stop, disk space, archive, and the repair of a file."""
    edits = [] if os.geteuid() == 0 else [(r"127\.69\.70", OWN_NET)]
    with folder() as where, Shell(where, evb, ("unshare", "--net") if os.geteuid() == 0 else ()) as shell:
        if os.geteuid() == 0:
            shell.type("ip link set lo up")
        text = file_of(OPERATE, "run.conf").replace("[sfi]\n", "[sfi]\ntimeout = 30s\n")
        (where / "run.conf").write_text(text if os.geteuid() == 0 else text.replace("127.69.70", OWN_NET))
        with open(where / "run.conf", "a", encoding="utf-8") as more:
            more.write("[dfm]\nnode-timeout = 30s\n")
        for command in of_case(OPERATE, "hand"):
            if command.text.startswith("for file in data/*.writing"):
                left_open(shell, [])
            output = shell.follow(command, edits)
            assert "bad:" not in output, output
            if command.text.startswith("du"):
                check_framing(shell)
        assert not list((where / "data").glob("*.writing")) and len(list((where / "archive").glob("*.data"))) == 1
        shown = [line for line in (ROOT / OPERATE).read_text().splitlines() if line.startswith("sfi1: data/")]
        assert len(shown) == 1
        warning = pattern_of(shown[0].replace("data/run", "...run"))
        assert re.search(warning, (where / "sfi1-again.log").read_text()), (warning, (where / "sfi1-again.log").read_text())


def check_framing(shell):
    """A file has as many bytes more than payload as the page says."""
    page = (ROOT / OPERATE).read_text()
    fragment, event = map(int, re.search(r"(\d+) bytes more for each fragment\s+and (\d+) for each event", page).groups())
    per_event = int(re.search(r"= (\d+) bytes\s+per event", page)[1])
    (file,) = (shell.where / "data").glob("*.data")
    events = int(re.search(r"(\d+) events of", shell.type(f"evb dump {file}"))[1])
    assert per_event == 2 * (1024 + fragment) + event
    assert 0 <= file.stat().st_size - events * per_event < 1000, (file.stat().st_size, events, per_event)


def full(evb):
    """The file system of an SFI is full: the lines of docs/operate.md."""
    need_root()
    texts = [line for line in (ROOT / OPERATE).read_text().splitlines() if re.match(r"sfi1: writing /data|dfm: the output of", line)]
    assert len(texts) == 2
    with folder() as where, Shell(where, evb, ("unshare", "--net", "--mount", "--propagation", "private")) as shell:
        (where / "run.conf").write_text(file_of(OPERATE, "run.conf") + "[dfm]\nnode-timeout = 30s\n")
        (where / "data").mkdir()
        shell.type("ip link set lo up; mount -t tmpfs -o size=1m tmpfs data")
        for name in ("sfi1", "ros1", "ros2"):
            shell.type(f"evb {name[:3]} --config run.conf --node {name} 2>{name}.log &\neval {name}=$!")
        shell.type("evb dfm --config run.conf --node dfm 2>dfm.log", expect=1)
        shell.type("wait $sfi1", expect=1)
        log = (where / "sfi1.log").read_text() + (where / "dfm.log").read_text()
        for text in texts:
            assert re.search(pattern_of(text.replace("/data/....data", ".../data/....data").replace("= /data", "= .../data")), log), (text, log)
        # The host does not see this file system.
        assert "no faults" in shell.type("evb dump --verify data/*.data")


def installed(evb):
    """The files that docs/deploy.md copies are installed where it says."""
    with folder() as where:
        there = Installed(evb, where)
        for command in of_case(DEPLOY, "installed"):
            source = command.text.split()[1]
            assert source.startswith("/usr/local/") and there.path(source[len("/usr/local/"):]).exists(), command


def socket_metrics(evb):
    """A node at a Unix socket, as docs/monitoring.md asks it."""
    if not shutil.which("curl"):
        raise Skip("curl is not installed; on Debian: apt-get install curl")
    with folder() as where, Shell(where, evb) as shell:
        (where / "m.conf").write_text(f"[metrics]\nlisten = unix:{where}/%n.sock\n[network]\ncontrol-group = none\n" + "".join(
            f"[node {name}]\nrole = {name[:3]}\naddress = {OWN_NET}.{i}\n" for i, name in enumerate(("dfm1", "ros3", "sfi1"), 1)))
        shell.type("evb ros --config m.conf --node ros3 2>log &")
        wait_until("the socket", lambda: listens(where / "ros3.sock"))
        for command in of_case(MONITORING, "socket"):
            output = shell.follow(command, [("/run/evb", str(where))])
            assert 'node="ros3"' in output, output


def start_controlled(shell, listen, own=""):
    """Starts nodes that stay after a run, with the section [control] of docs/operate.md in their scenario."""
    blocks_of_page = ["\n".join(lines) for language, lines in blocks(OPERATE) if language == "ini"]
    control = next(text for text in blocks_of_page if text.startswith(f"[control]\nlisten = {listen}"))
    for place in ("/run/evb", "/etc/evb"):
        control = control.replace(place, str(shell.where))
    # The operator's machine is this one.
    control = control.replace("allow = 10.0.0.9", "allow = 10.0.0.1")
    nodes = (("dfm", 1), ("ros1", 2), ("ros2", 3), ("sfi1", 5))
    shell.type("ip link set lo up")
    for _, i in nodes:
        shell.type(f"ip addr add 10.0.0.{i}/24 dev lo")
    (shell.where / "run.conf").write_text(control + f"\n{own}[trigger]\nrate = 500Hz\n[sfi]\noutput = file\ndirectory = data\ntimeout = 30s\n" + "".join(
        f"[node {name}]\nrole = {name[:3]}\naddress = 10.0.0.{i}\n" for name, i in nodes))
    with open(shell.where / "run.conf", "a", encoding="utf-8") as more:
        more.write("[network]\ncontrol-group = none\n[dfm]\nnode-timeout = 30s\n")
    (shell.where / "data").mkdir()
    for name, _ in nodes:
        shell.type(f"evb {name[:3]} --config run.conf --node {name} 2>{name}.log &")


def wait_shown(shell, command, text):
    wait_until(text, lambda: text in shell.type(f"{command} 2>&1", expect=None))


def control(evb):
    """The commands that control runs at a Unix socket, in the order of docs/operate.md."""
    need_root()
    with folder() as where, Shell(where, evb, ("unshare", "--net")) as shell:
        start_controlled(shell, "unix")
        for command in of_case(OPERATE, "control"):
            if " start " in command.text:
                wait_shown(shell, f"evb ctl status --socket {where}/control.sock", "configured")
            elif " status " in command.text:
                wait_until("the socket", lambda: listens(where / "control.sock"))
            said = shell.follow(command, [("/run/evb", str(where))])
        assert re.search(r" ok +next-run by the Unix socket, user 0\n.* ok +stop by the Unix socket, user 0\n", said, re.S), said
        shell.type("kill $(jobs -p); wait")
        files = sorted(path.name for path in (where / "data").glob("*.data"))
        assert len(files) == 2 and not list((where / "data").glob("*.writing")), files
        for name in files:
            assert "no faults" in shell.type(f"evb dump --verify data/{name}")


def control_tcp(evb):
    """The commands that control runs from another machine, with a token."""
    need_root()
    if not shutil.which("curl"):
        raise Skip("curl is not installed; on Debian: apt-get install curl")
    with folder() as where, Shell(where, evb, ("unshare", "--net")) as shell:
        edits = [("/etc/evb", str(where))]
        first, *others = of_case(OPERATE, "control-tcp")
        shell.follow(first, edits)
        start_controlled(shell, ":26803", "[run]\nstart = manual\n")
        wait_shown(shell, f"evb ctl status --dfm 10.0.0.1:26803 --token-file {where}/token", "configured")
        outputs = [shell.follow(command, edits) for command in others]
        assert '"configured"' in outputs[1] and '"error"' not in outputs[2], outputs
        wait_shown(shell, f"evb ctl status --dfm 10.0.0.1:26803 --token-file {where}/token", "running")
        shell.type(f"evb ctl stop --dfm 10.0.0.1:26803 --token-file {where}/token --wait 60s")
        assert "shift" in shell.type("cat data/*.run.json")


CASES = {
    "tables": tables,
    "demo": demo,
    "port": port,
    "control": control,
    "control-tcp": control_tcp,
    "readme": readme,
    "hand": hand,
    "full": full,
    "installed": installed,
    "socket": socket_metrics,
}

if __name__ == "__main__":
    main(CASES)
