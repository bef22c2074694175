#!/usr/bin/env python3
"""evb qos on a device in a private namespace.

    test_qos_watch.py EVB [CASE...]
"""
import contextlib
import json
import os
import signal
import subprocess
import time

from harness import LIMIT_S, Skip, folder, main, need_root

SPACE = f"evb-qos-{os.getpid()}"
DESTINATIONS = ["--dest", "10.0.0.2=20Mbit", "--dest", "fd00::3=30Mbit"]


class Network:
    """A namespace with device v0, and a state directory."""

    def __init__(self, evb, where):
        self.evb, self.env = evb, dict(os.environ, EVB_STATE_DIRECTORY=str(where))

    def run(self, *words, expect=0):
        done = subprocess.run(["ip", "netns", "exec", SPACE, *words], capture_output=True, text=True, timeout=LIMIT_S, env=self.env)
        assert expect is None or done.returncode == expect, f"{words}: exit {done.returncode}, not {expect}: {done.stderr}"
        return done

    def qos(self, *words, expect=0):
        return self.run(self.evb, "qos", *words, expect=expect)

    def report(self, *words):
        return json.loads(self.qos(*words, "--json").stdout)

    def tc(self, text):
        return self.run("tc", *text.split()).stdout

    @contextlib.contextmanager
    def watching(self, *words):
        process = subprocess.Popen(["ip", "netns", "exec", SPACE, self.evb, "qos", "watch", "--dev", "v0", *words], env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert "watching" in process.stdout.readline()
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=LIMIT_S)


@contextlib.contextmanager
def network(evb):
    need_root()
    if subprocess.run(["tc", "-V"], capture_output=True, check=False).returncode != 0:
        raise Skip("tc (iproute2) is not installed")
    subprocess.run(["ip", "netns", "add", SPACE], check=True, timeout=LIMIT_S)
    try:
        with folder() as where:
            n = Network(evb, where)
            n.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
            n.run("ip", "link", "set", "v0", "up")
            yield n
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=True, timeout=LIMIT_S)


def mistakes(evb):
    """Invalid options are rejected with an explanation and change nothing."""
    with network(evb) as n:
        for words, says in (
            (["--set", "sfi.count=5"], "--set sfi.count=5 needs --config"),
            (["--node", "ros1"], "--node needs --config"),
            (["--set", "qos.burst=100"], "at least a frame"),
            (["--set", "qos.burst=1GiB"], "burst"),
            (["--set", "network.port=777", "--set", "qos.control-rate=11Gbit"], "control"),
            (["--wait", "7parsecs"], "--wait"),
            (["--backend", "cbq"], "--backend"),
            (["--dest", "10.0.0.2=1Mbit"], "duplicate destination"),
            (["--dest", "10.0.0.256"], "10.0.0.256"),
        ):
            done = n.qos("apply", "--dev", "v0", *DESTINATIONS, *words, expect=2)
            assert says in done.stderr and not done.stdout, (words, done)
        assert "e7b:" not in n.tc("qdisc show dev v0")


def watch_leaves_others_alone(evb):
    """watch --repair restores evb's tree, but does not replace another program's tree with classes."""
    with network(evb) as n:
        n.qos("apply", "--dev", "v0", *DESTINATIONS)
        with n.watching("--repair") as watch:
            n.tc("qdisc del dev v0 root")
            # The tree is there before the repair is complete.
            assert any("repaired with" in line for line in watch.stdout)
            assert n.report("status", "--dev", "v0")["backend"] == "htb+tbf"
            # It would replace a tree that has no classes yet.
            watch.send_signal(signal.SIGSTOP)
            n.tc("qdisc replace dev v0 root handle 5: htb default 1")
            n.tc("class add dev v0 parent 5: classid 5:1 htb rate 1mbit quantum 2000")
            watch.send_signal(signal.SIGCONT)
            time.sleep(1)
            assert "class htb 5:1" in n.tc("class show dev v0")


def watch_holds_the_device(evb):
    """watch --repair keeps other processes from removing the tree, and the earlier qdisc is restored later."""
    with network(evb) as n:
        n.tc("qdisc add dev v0 root handle 5: tbf rate 10mbit burst 10k limit 100k")
        n.qos("apply", "--dev", "v0", *DESTINATIONS)
        with n.watching("--repair"):
            done = n.qos("remove", "--dev", "v0", expect=1)
            assert "already shapes this device" in done.stderr, done
            n.qos("status", "--dev", "v0")
        n.qos("remove", "--dev", "v0")
        assert "qdisc tbf 5:" in n.tc("qdisc show dev v0")


main({
    "mistakes": mistakes,
    "watch-leaves-others-alone": watch_leaves_others_alone,
    "watch-holds-the-device": watch_holds_the_device,
})
