"""Starts the programs of a point, waits for them, and makes sure that they end."""
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time

from .context import PointFailed, PointLacks

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
HIGHEST_NICE = -20
LACKS = 77  # the exit status of evb if something is missing
LOOK_SECONDS = 0.005
TERM_SECONDS = 30  # that a program may take to end after SIGTERM: it removes its namespaces


def raise_priority():
    """Gives this process precedence over ordinary ones, as src/sys/thread.h does. Without permission: nothing."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_NICE)
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(HIGHEST_NICE))


def enter_namespace(name):
    """Lets this thread use the network of a namespace in /run/netns."""
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    if LIBC.setns(fd, CLONE_NEWNET) < 0:
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
    os.close(fd)


def content(file):
    """The text of a file to which a program may be writing. The two share its position, which therefore stays."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


class Program:
    """A program with its output. Leaving `with` ends it: by SIGTERM, and by SIGKILL if that has no effect.

    Its output goes into memory or a temporary file, so it never waits for this process.
    """

    def __init__(self, words, *, namespace=None, raised=False, stdin=subprocess.DEVNULL):
        self.words = [str(word) for word in words]
        self.out = tempfile.TemporaryFile()
        self.err = tempfile.TemporaryFile()

        def become():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if raised:
                raise_priority()
            if namespace:
                enter_namespace(namespace)

        try:
            self.process = subprocess.Popen(self.words, stdin=stdin, stdout=self.out, stderr=self.err, preexec_fn=become,
                                            start_new_session=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise PointFailed(f"cannot start {self.words[0]}: {error}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.out.close()
        self.err.close()

    @property
    def pid(self):
        return self.process.pid

    @property
    def has_ended(self):
        return self.process.poll() is not None

    @property
    def status(self):
        return self.process.returncode

    def end(self):
        """The end of its input is the first request, if it has one."""
        ways = [self.process.terminate, self.process.kill]
        if self.process.stdin:
            ways.insert(0, self.close_input)
        while not self.has_ended and ways:
            ways.pop(0)()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TERM_SECONDS)
        self.process.wait()
        self.close_input()

    def kill(self):
        """For a program whose result does not matter."""
        self.process.kill()

    def close_input(self):
        with contextlib.suppress(OSError, AttributeError):
            self.process.stdin.close()

    def output(self):
        return content(self.out)

    def complaint(self):
        """The first line of what it printed on standard error, without warnings about old names of keys."""
        lines = [line for line in content(self.err).strip().splitlines() if ": warning: " not in line]
        return lines[0] if lines else f"no message, exit status {self.status}"

    def report(self, accepted=(0, 1)):
        """The object that it printed. A run that fell short ends with status 1, and has a report all the same."""
        try:
            if self.status in accepted:
                return json.loads(self.output())
        except ValueError:
            pass
        error = PointLacks if self.status == LACKS else PointFailed
        raise error(f"{' '.join(self.words[:3])} has no report (status {self.status}): {self.complaint()}")


def wait(programs, context, seconds=None):
    """Waits until all have ended. Returns False after `seconds`, or once the user has stopped the measurement."""
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    while not all(program.has_ended for program in programs):
        if time.monotonic() > until or context.stopped():
            return False
        time.sleep(LOOK_SECONDS)
    return True


def report_of(words, context, **how):
    """Runs a program to its end, and returns the object that it printed."""
    with Program(words, **how) as program:
        if not wait([program], context):
            raise PointFailed("interrupted")
        return program.report()


MACHINE_FIGURES = ("stolen_share", "others_share", "waiting_share", "wait_mean_us", "timer_late_p99_us", "timer_late_max_us")


def machine_figures(report):
    """What the machine did meanwhile, from the object "machine" of a report."""
    machine = report.get("machine") or {}
    return {"watched_seconds": machine.get("seconds"), **{name: machine.get(name) for name in MACHINE_FIGURES}}
