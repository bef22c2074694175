"""The nodes of a scenario as services: each a process of its own, with a service manager's socket."""
import contextlib
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess

from harness import LIMIT_S, OWN_NET, SMALL, scenario, settings
from network import wait_until

_blocks, _sockets = itertools.count(1), itertools.count(1)
# run.stop-timeout, which tests of a busy machine do not reach.
STOP_S = 250


class Nodes(contextlib.AbstractContextManager):
    """The nodes of a scenario as services start them: separate processes, without `evb run`."""

    def __init__(self, evb, where, text=SMALL, keys=None, own=None):
        self.evb, self.where, self.own = evb, pathlib.Path(where), own or {}
        plain = subprocess.run([evb, "check", scenario(where, text, "plain.conf"), *settings({"run.stop-timeout": f"{STOP_S}s", **(keys or {})})],
                               capture_output=True, text=True, check=True).stdout
        block = next(_blocks)
        lines, self.names, self.roles = [], [], {}
        for line in plain.splitlines():
            # A group of its own: other tests run at the same time.
            group = line.startswith("control-group = ")
            lines.append(f"control-group = 239.254.{OWN_NET.rpartition('.')[2]}.{block}" if group else line)
            if line.startswith("[node "):
                self.names.append(line[6:-1])
            if line.startswith("role = ") and self.names:
                self.roles[self.names[-1]] = line[7:]
                lines.append(f"address = {OWN_NET}.{20 * block + len(self.names)}")
        self.path = scenario(where, "\n".join(lines) + "\n", "nodes.conf")
        self.processes, self.listeners, self.notices = {}, {}, {}

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()
        for listener in self.listeners.values():
            listener.close()

    def listen(self, name):
        """Makes a service manager's socket for one start of a node."""
        path = self.where / f"{name}.{next(_sockets)}.notify"
        if name in self.listeners:
            self.listeners.pop(name).close()
        self.listeners[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.listeners[name].bind(str(path))
        self.notices[name] = ""
        return {**os.environ, "NOTIFY_SOCKET": str(path)}

    def start(self, *names, keys=None):
        for name in names or self.names:
            own = {**(keys or {}), **self.own.get(name, {})}
            # A process that blocks on a full pipe would not exit.
            err, out = open(self.where / f"{name}.err", "wb"), open(self.where / f"{name}.json", "wb")
            with err, out:
                self.processes[name] = subprocess.Popen(
                    [self.evb, self.roles[name], "--config", self.path, "--node", name, "--json", *settings(own)], stdout=out, stderr=err,
                    env=self.listen(name))
        return self

    def signal(self, number, *names):
        for name in names or list(self.processes):
            self.processes[name].send_signal(number)

    def said(self, name):
        """Returns all that the node has sent to the service manager; messages to a full queue are lost."""
        for other, listener in self.listeners.items():
            with contextlib.suppress(OSError):
                while True:
                    self.notices[other] += listener.recv(4096).decode() + "\n"
        return self.notices[name]

    def wait_for_notice(self, name, text):
        wait_until(f"{text!r} of {name}", lambda: text in self.said(name) or self.processes[name].poll() is not None)
        assert text in self.said(name), (name, self.processes[name].poll(), self.error(name))

    def wait_for_work(self, name):
        """Waits for a status with an event or a fragment: the first one may come before the first trigger."""
        work = r"running: (?!0 )\d+ (event|fragment)s? (complete|sent)"
        wait_until(f"work of {name}", lambda: re.search(work, self.said(name)) or self.processes[name].poll() is not None)
        assert re.search(work, self.said(name)), (name, self.processes[name].poll(), self.error(name))

    def check_stop(self, name, what):
        """From the signal on, the unit's status and the log say what the node still does, and for how long at most."""
        self.wait_for_notice(name, "STOPPING=1")
        said = self.said(name)
        stop = re.search(rf"STOPPING=1\nSTATUS=stopping: {what}, at most {STOP_S} s longer \(SIGTERM\)\n", said)
        assert stop and " running: " not in said[stop.start():], said
        self.wait_for_text(name, "; a second signal stops it at once")
        assert re.search(rf"{name}: stopping: {what}, at most {STOP_S} s longer; a second signal", self.error(name)), self.error(name)

    def wait_for_less_time(self, name):
        """Waits for a status of a node that stops, in which some of the time has passed."""
        less = rf"STATUS=stopping: .*, at most (?!{STOP_S} )\d+ s longer \(SIGTERM\): \d+ (events? complete|fragments? sent)"
        wait_until(f"less time of {name}", lambda: re.search(less, self.said(name)) or self.processes[name].poll() is not None)
        assert re.search(less, self.said(name)), (name, self.said(name), self.error(name))

    def error(self, name):
        return (self.where / f"{name}.err").read_text()

    def wait_for_text(self, name, text):
        wait_until(f"{text!r} of {name}", lambda: text in self.error(name) or self.processes[name].poll() is not None)
        assert text in self.error(name), (name, self.processes[name].poll(), self.error(name))

    def end(self, *names):
        """Returns exit status, report and standard error of each node."""
        ends, names = {}, names or list(self.processes)
        for name in names:
            self.listeners[name].close()  # unread notices would hold the node up
        for name in names:
            status = self.processes[name].wait(LIMIT_S)
            text = (self.where / f"{name}.json").read_text()
            ends[name] = (status, json.loads(text) if text else None, self.error(name))
        return ends
