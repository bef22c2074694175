"""Nodes that stay for several runs, and the control of these runs by `evb ctl` and by plain HTTP."""
import contextlib
import http.client
import json
import pathlib
import socket
import subprocess

from harness import LIMIT_S, connection, folder, listens
from test_join import PATIENT, ROLES, Bed

NODES = [name for name in ROLES if name != "dfm"]
TOKEN = "a-token-of-this-test"


class ControlBed(Bed):
    def __init__(self, evb, where, keys=None):
        super().__init__(evb, where, {**PATIENT, "trigger.events": 0, "trigger.rate": "1kHz", "run.start": "manual",
                                      "control.listen": f"unix:{where}/control.sock", **(keys or {})})
        self.socket = self.folder / "control.sock"

    def ctl(self, *words, expect=0, place=None):
        """Returns the object that the command prints, and its standard error. `expect` None: it may succeed or fall short."""
        done = subprocess.run([self.evb, "ctl", *words, *(place or ("--socket", str(self.socket))), "--json"], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        assert done.returncode in ((0, 1) if expect is None else (expect,)), f"evb ctl {words}: exit {done.returncode}, not {expect}: {done.stderr}\n{done.stdout}\n{self.log('dfm')}"
        assert bool(done.stderr) == (done.returncode != 0), done
        return (json.loads(done.stdout) if done.stdout else None), done.stderr

    def state(self):
        """A DFM that is too busy to answer in time is asked again."""
        answers = []

        def is_answered():
            answers.append(self.request("GET"))
            return answers[-1][0] == 200

        self.wait("state", is_answered)
        return answers[-1][1]

    def refused(self, *words, text="", expect=1):
        said = self.ctl(*words, expect=expect)[1]
        assert text in said, (words, said)

    def wait_state(self, state, **figures):
        """Waits until the DFM is in this state, and returns it."""
        last = {}

        # A program for each look would take more of the processor than the nodes.
        def reached():
            with contextlib.suppress(OSError, http.client.HTTPException):
                last.update(self.request("GET")[1])
            return last.get("state") == state and all(last[name] == value for name, value in figures.items())

        self.wait(f"{state} {figures}", reached)
        return last

    def wait_listening(self):
        self.wait("control socket", lambda: listens(self.socket))

    def start_run(self, *more, command="start"):
        return self.ctl(command, "--wait", "100s", *more)[0]

    def stop_run(self):
        """Stops the run. The command fails if the run fell short."""
        state, err = self.ctl("stop", "--wait", "100s", expect=None)
        assert state and "last_run" in state, (state, err, self.log("dfm"))
        assert bool(err) == (state["last_run"]["status"] != "ok"), (state, err)
        return state

    def wait_triggers(self, more=200):
        """Waits until the run has taken that number of further triggers; returns how many it has."""
        begun = self.state()["events"]["triggers"]
        self.wait(f"{more} triggers", lambda: self.state()["events"]["triggers"] >= begun + more)
        return self.state()["events"]["triggers"]

    def reports(self, name):
        """Returns the report of each run of a node: one line each, of which the last one may not be whole yet."""
        path = self.folder / f"{name}.json"
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []

    def pids(self):
        return {name: process.pid for name, process in self.processes.items() if process.poll() is None}

    def terminate(self, expect=0, names=None):
        """Ends the nodes; returns the reports of each."""
        for name in names or list(self.processes):
            self.processes[name].terminate()
        for name in names or list(self.processes):
            status = self.processes[name].wait(timeout=LIMIT_S)
            assert status == (expect.get(name, 0) if isinstance(expect, dict) else expect), f"{name}: exit {status}: {self.log(name)}"
        return {name: self.reports(name) for name in names or list(self.processes)}

    def files(self, run):
        return sorted(self.folder.glob(f"run{run:06}_*.data"))

    def dump(self, path):
        return json.loads(subprocess.run([self.evb, "dump", "--verify", str(path), "--json"], capture_output=True, text=True, timeout=LIMIT_S,
                                         check=True).stdout)

    def request(self, method, body=None, token=None, path="/control", address=None, headers=None):
        """Plain HTTP: returns the status, and the object of the answer."""
        with contextlib.closing(connection(":".join(map(str, address)) if address else f"unix:{self.socket}")) as c:
            c.request(method, path, body=json.dumps(body) if isinstance(body, dict) else body,
                      headers={**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})})
            answer = c.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text.decode()

    def allowed(self, path):
        """The methods that the socket of control.listen names when it refuses one."""
        with contextlib.closing(connection(f"unix:{self.socket}")) as c:
            c.request("DELETE", path)
            return c.getresponse().getheader("Allow")


def balanced(report):
    assert report["triggers"] == report["events_complete"] + report["events_partial"] + report["events_lost"] + report["events_rejected"], report


def free_port(address):
    """A TCP port that nobody has at this moment."""
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def control_bed(evb, keys=None):
    with folder() as where, contextlib.closing(ControlBed(evb, pathlib.Path(where), keys)) as b:
        yield b


@contextlib.contextmanager
def configured(evb, keys=None):
    """All nodes wait for a run."""
    with control_bed(evb, keys) as b:
        b.start_all()
        b.wait_listening()
        b.wait_state("configured")
        yield b
