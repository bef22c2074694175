"""`evb lab run --sim`: makes the planned points in virtual time, several at once, and appends them to the results file in the order
of the plan."""
import json
import os
import selectors
import signal
import subprocess
import sys

from .execute import run_point

# Each simulation may need a gigabyte of memory.
PROCESSES_MAX = 8
LOOK_S = 0.2
SMALL = ("ros.count=1", "sfi.count=1", "trigger.rate=1kHz", "trigger.events=1")


def invalid_setting(evb, model):
    """The first word of the model that is not a valid setting of the simulator, or None."""
    for word in model.split():
        small = [part for setting in SMALL for part in ("--set", setting)]
        if subprocess.run([evb, "sim", "/dev/null", *small, "--model", word, "--quiet", "--json"], capture_output=True,
                          check=False).returncode:
            return word
    return None


class Worker:
    """A process that makes one point. Its figures come through a pipe, as JSON."""

    def __init__(self, number, point, context):
        self.number, self.text = number, b""
        self.fd, end = os.pipe()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(point, context, end)
        os.close(end)

    @staticmethod
    def _become(point, context, end):
        status = 1
        try:
            with open(end, "w", encoding="utf-8") as to:
                json.dump(run_point(point, context), to)
            status = 0
        except Exception as e:
            print(f"\nevb lab run: {point} failed: {e}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def has_ended(self):
        """Reads what there is."""
        part = os.read(self.fd, 1 << 16)
        self.text += part
        return not part

    def end(self):
        """The figures, or None if the point failed."""
        os.close(self.fd)
        return json.loads(self.text) if os.waitpid(self.pid, 0)[1] == 0 else None

    def kill(self):
        """Ends the process, which ends its program."""
        os.kill(self.pid, signal.SIGTERM)
        self.end()


def make(points, context, stopped):
    """Yields (point, figures or None) in the order of the plan, however many processes make them, until `stopped` says so."""
    n_workers = min(len(os.sched_getaffinity(0)), PROCESSES_MAX)
    ended, started, written = {}, 0, 0
    with selectors.DefaultSelector() as running:
        while written < len(points) and not stopped():
            while started < len(points) and len(running.get_map()) < n_workers:
                worker = Worker(started, points[started], context)
                running.register(worker.fd, selectors.EVENT_READ, worker)
                started += 1
            for key, _ in running.select(LOOK_S):
                if key.data.has_ended():
                    running.unregister(key.fd)
                    ended[key.data.number] = key.data.end()
            while written in ended and not stopped():
                yield points[written], ended.pop(written)
                written += 1
        for key in list(running.get_map().values()):
            running.unregister(key.fd)
            key.data.kill()
