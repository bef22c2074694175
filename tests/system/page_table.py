"""Which test runs each command of the pages for users and operators. A command that is not in the table fails test_pages.py."""
from harness import ROOT
from network import sh
from pages import commands_of

README, OPERATE, NETWORK, DEPLOY, MONITORING = "README.md", "docs/operate.md", "docs/network.md", "docs/deploy.md", "docs/monitoring.md"
MACHINES, LAB, PATHS, METRICS = ("test_machines.py", "test_lab.py", "test_paths.py", "test_metrics.py")
TOP, PAGE, PACKAGES = ("test_top.py", "test_page.py", "test_packages.py")


def has_options(*words):
    """Returns a check that a verb of evb exists and has these options."""
    verb = [word for word in words if not word.startswith("-")]

    def check(evb):
        text = sh(evb, *verb, "--help").stdout
        missing = [word for word in words if word.startswith("--") and f"{word} " not in text]
        assert not missing, (words, missing)
    return check


def has_files(*names):
    def check(_):
        missing = [name for name in names if not (ROOT / name).exists()]
        assert not missing, missing
    return check


def is_shell(text):
    def check(_):
        assert sh("bash", "-n", "-c", text, check=False).returncode == 0, text
    return check


def has_packages(_):
    """The packages to install are the libraries of the program; test_ansible.py compares them with what it links."""
    play = (ROOT / "configs/ansible/roles/evb/defaults/main.yml").read_text() + "".join(
        path.read_text() for path in (ROOT / "configs/ansible/roles/evb").rglob("*.yml"))
    command = next(c.text for c in commands_of(DEPLOY) if c.text.startswith("apt-get"))
    assert all(name in play for name in command.split()[2:]), command


# Which case of this file runs a command; or (other test, words in it); or [reason, check], if no test can run it.
TABLE = {
    README: {
        "sudo scripts/demo-port.py --svg port.svg": "port",
        "scripts/demo.sh": "demo",
        "build/evb run configs/scenarios/push-6x1.conf": "readme",
        "sudo build/evb run configs/scenarios/pull-6x1.conf --net lab": "readme",
        "build/evb run configs/scenarios/push-6x1.conf --set network.loss=0.02 --set ros.fragment-size=14KiB --json": "readme",
        "build/evb check --keys": "readme",
        "build/evb dump FILE.data --verify": "readme",
        "build/evb lab list": "readme",
        "sudo build/evb lab run C4 --quick && build/evb lab report evb-lab.jsonl": (LAB, '"lab", "report"'),
        "build/evb qos plan        --dev eth0 --dest 10.0.0.5 --sources 6 --link-rate 1Gbit --switch-buffer 128KiB": "readme",
        "sudo build/evb qos apply  --dev eth0 --dest 10.0.0.5 --sources 6 --link-rate 1Gbit --switch-buffer 128KiB": "readme",
        "sudo build/evb qos status --dev eth0": "readme",
        "sudo build/evb qos remove --dev eth0": "readme",
        "scripts/build.sh && sudo meson install -C build --no-rebuild": [
            "the build is older than the test, which may not install it; installed.py installs it into a directory",
            has_files("scripts/build.sh")],
        "sudo systemd-sysusers evb.conf && sudo systemd-tmpfiles --create evb.conf && sudo systemctl daemon-reload": (
            MACHINES, "systemd-sysusers evb.conf"),
        "sudo cp /usr/local/share/evb/scenarios/testbed.conf /etc/evb/scenario.conf": [
            "an example that must be edited; the same command of docs/deploy.md is tested", has_files("configs/scenarios/testbed.conf")],
        "sudoedit /etc/evb/scenario.conf": ["an editor", has_files("configs/scenarios/testbed.conf")],
        "sudo systemctl enable --now evb.target evb-ros@pc-ros1": (MACHINES, "systemctl enable --now evb.target evb-ros@pc-ros1"),
    },
    OPERATE: {
        "systemctl start evb.target": (MACHINES, "systemctl start evb.target"),
        "systemctl status 'evb-*'": (MACHINES, "systemctl status 'evb-*'"),
        "mkdir data": "hand",
        "evb check run.conf --node sfi1 >/dev/null && echo sfi1 can start": "hand",
        "evb sfi --config run.conf --node sfi1 2>sfi1.log &": "hand",
        "evb ros --config run.conf --node ros1 2>ros1.log &": "hand",
        "evb ros --config run.conf --node ros2 2>ros2.log &": "hand",
        "evb dfm --config run.conf --node dfm 2>dfm.log &": "hand",
        "evb status --config run.conf": "hand",
        "evb check run.conf --network": "hand",
        "cat dfm.log": "hand",
        "journalctl -u 'evb-*' -p warning": (MACHINES, "journalctl -u 'evb-*' -p warning"),
        "journalctl EVB_RUN=1": (MACHINES, "journalctl EVB_RUN=1"),
        **{f"evb ctl {words} --socket /run/evb/control.sock{more}": "control" for words, more in (
            ("status", ""), ("start", " --set-meta shift=7 --wait 30s"), ("pause", ""), ("resume", ""), ("next-run", " --wait 60s"),
            ("stop", " --wait 60s"), ("runs", ""))},
        "head -c 32 /dev/urandom | base64 > /etc/evb/token": "control-tcp",
        "evb ctl status --dfm 10.0.0.1:26803 --token-file /etc/evb/token": "control-tcp",
        'curl -H "Authorization: Bearer $(cat /etc/evb/token)" http://10.0.0.1:26803/control': "control-tcp",
        'curl -H "Authorization: Bearer $(cat /etc/evb/token)" -d \'{"command": "start", "metadata": {"shift": "7"}}\' '
        "http://10.0.0.1:26803/control": "control-tcp",
        "kill %4": "hand",
        "wait %4 && echo complete": "hand",
        "for file in data/*.data; do evb dump --verify $file; done": "hand",
        "systemctl stop evb-dfm": (MACHINES, "systemctl stop evb-dfm"),
        "systemctl status evb-dfm": (MACHINES, "systemctl status evb-dfm"),
        "journalctl -u evb-dfm -u 'evb-*@*' --since -10min": (MACHINES, "journalctl -u evb-dfm -u 'evb-*@*' --since -10min"),
        "df -h data": "hand",
        "du -sh data": "hand",
        "mkdir archive": "hand",
        "for file in data/*.data; do evb dump --verify $file >/dev/null && mv -n $file* archive/; done": "hand",
        "for file in data/*.writing; do evb dump $file --repair --output ${file%.writing}.data; done": "hand",
        "for file in data/*.data; do evb dump --verify $file >/dev/null || echo bad: $file; done": "hand",
        "rm data/*.writing*": "hand",
    },
    NETWORK: {
        "ss -Hlntup": "network",
        "nft -f /etc/nftables.d/evb.nft": "firewall",
        "nft list table inet evb": "firewall",
        "ip maddress show dev eth1": "network",
        "evb status --config /etc/evb/scenario.conf": "network",
        "ip link show dev eth1": "network",
        "ping -M do -c 3 -s 1472 10.0.0.5": "network",
        "sysctl net.core.rmem_max net.core.wmem_max": "network",
        "nstat -az UdpRcvbufErrors UdpInErrors": "network",
        "ss -Hlnum": "network",
        "evb qos plan --dev eth1 --dest 10.0.0.5 --sources 6 --link-rate 1Gbit --switch-buffer 128KiB": "network",
        "evb check scenario.conf --set network.link-rate=1Gbit --set network.switch-buffer=128KiB | grep -o 'into the port .*'":
            "network",
        "tcpdump -ni eth1 -c 20 'udp port 26800'": "capture",
        "tcpdump -ni eth1 -c 1000 -s 128 -w /tmp/data.pcap 'udp dst port 26801'": "capture",
        "tcpdump -ni eth1 -c 5 igmp": "capture",
        "tcpdump -ni eth1 -c 1 'udp port 26800 and udp[24:4] = 0x0500eb00'": "capture",
    },
    DEPLOY: {
        **{command.text: (MACHINES, f'"{command.text}"') for command in commands_of(DEPLOY)},
        "scripts/deps.sh build": ["test_scripts.py runs it, where nothing is installed", has_files("scripts/deps.sh")],
        "scripts/deps.sh build package": ["it installs packages", has_files("scripts/deps.sh")],
        "scripts/package.sh deb packages": (PACKAGES, '"scripts/package.sh", kind'),
        "scp packages/*.deb root@pc-ros1:": ["it needs another machine with ssh", has_files("debian/control")],
        "buildah build --file Containerfile --tag evb packages": (PACKAGES, 'str(ROOT / "Containerfile"), "--tag", "evb"'),
        "apt install ./evb_*.deb ./evb-qos_*.deb": (PACKAGES, "apt install ./evb_*.deb ./evb-qos_*.deb"),
        "apt purge evb evb-qos": (PACKAGES, "apt purge evb evb-qos"),
        "scripts/build.sh": ["the build is older than the test", has_files("scripts/build.sh")],
        "meson install -C build --no-rebuild": ["the test may not install; installed.py does, into a directory", has_files()],
        "meson install -C build --no-rebuild --destdir /tmp/evb-files": ("installed.py", '"--no-rebuild", "--quiet", "--destdir"'),
        "tar -C /tmp/evb-files -cz usr | ssh root@pc-ros1 tar -C / -xz --no-overwrite-dir": [
            "it needs another machine with ssh", is_shell("tar -C /tmp/evb-files -cz usr | ssh root@pc-ros1 tar -C / -xz --no-overwrite-dir")],
        "apt-get install libinih1 libjansson4 libmicrohttpd12 libmnl0 libncursesw6 libnl-route-3-200 libsodium23": ["the test may not install", has_packages],
        "cp /usr/local/share/evb/scenarios/testbed.conf /etc/evb/scenario.conf": "installed",
        "cp /usr/local/share/evb/sysctl.d/90-evb.conf /etc/sysctl.d/": "installed",
        "sysctl --system": ["the limits belong to the whole machine", has_files("configs/sysctl.d/90-evb.conf")],
        "evb lab run C5 --config /etc/evb/scenario.conf": ("test_lab_machines.py", '"evb.lab", "run", *words, "--config"'),
        "evb lab list": "readme",
        "ninja -C build uninstall": ["it removes what another test may have installed last", has_files("configs/meson.build")],
        "(cd /tmp/evb-files && find usr ! -type d) | ssh root@pc-ros1 'cd / && xargs rm -f && rm -rf usr/local/share/evb'": [
            "it needs another machine with ssh", is_shell("(cd /tmp/evb-files && find usr ! -type d) | ssh root@pc-ros1 'cd / && xargs rm -f'")],
    },
    MONITORING: {
        "curl http://10.0.0.5:9464/metrics": "network",
        "curl --unix-socket /run/evb/ros3.sock http://localhost/metrics": "socket",
        "evb status --config /etc/evb/scenario.conf": "network",
        "curl http://10.0.0.5:9464/status": "network",
        "curl http://10.0.0.1:9464/events": (PAGE, 'ask(place, "/events")'),
        "evb run configs/scenarios/push-6x1.conf --set metrics.listen=127.0.0.1:9464 --set scenario.duration=10min": [
            "it lasts ten minutes; test_page.py makes shorter runs", has_options("run", "--set")],
        "evb top --config /etc/evb/scenario.conf": (TOP, '"top", "--scenario"'),
        "evb top --config /etc/evb/scenario.conf --interval 10s >> rates.txt": (TOP, '"--interval", "1s"'),
        "evb top --config /etc/evb/scenario.conf --count 60 --json > minute.jsonl": (TOP, '"--count", "2", "--json"'),
        "promtool check config /etc/prometheus/prometheus.yml": (METRICS, '"check", "config"'),
        "systemctl reload prometheus": ["it needs Prometheus as a service", has_files("configs/prometheus/prometheus.yml")],
    },
}


def of_case(page, case):
    return [command for command in commands_of(page) if TABLE[page][command.text] == case]
