"""Boots user-mode Linux, runs steps in it, and returns their results."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import types

from harness import Skip, folder
from uml.kernel import kernel

HERE = pathlib.Path(__file__).resolve().parent
MEMORY = 256 << 20
BOOT_S = 60
OUT_OF_TIME = "\nout of time"


def memory_folder(where):
    """Returns a directory for the file with the guest's memory; its file system must permit execution."""
    shm = pathlib.Path("/dev/shm")
    if not shm.is_dir() or not os.access(shm, os.W_OK) or os.statvfs(shm).f_flag & os.ST_NOEXEC:
        return where
    return shm if shutil.disk_usage(shm).free > 2 * MEMORY else where


class Machine:
    """A kernel that has these modules, and the library that is preloaded into it."""

    def __init__(self, preload, cache, modules=()):
        self.preload = preload
        self.linux, self.modules = kernel(cache, modules)

    def python(self, name, *arguments):
        """Returns the step that runs a program of this directory."""
        return shlex.join([sys.executable, str(HERE / name), *arguments])

    def load(self, module):
        return self.python("guest.py", "load", str(self.modules[module]))

    def command(self, where):
        return [str(self.linux), f"mem={MEMORY >> 20}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet",
                "panic=1", "con=null", "con0=fd:0,fd:1", f"uml_dir={where}/", f"init={sys.executable}", "--",
                str(HERE / "guest.py"), str(where)]

    def boot(self, where):
        """Boots the guest and returns its console output. None of its processes outlives the call."""
        environment = dict(os.environ, LD_PRELOAD=str(self.preload), TMPDIR=str(memory_folder(where)))
        with subprocess.Popen(self.command(where), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
            old = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
            try:
                return process.communicate(timeout=json.loads((where / "job.json").read_text())["seconds"] + BOOT_S)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return process.communicate()[0] + OUT_OF_TIME
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                signal.signal(signal.SIGTERM, old)

    def run(self, modules, steps, seconds=300):
        """Runs shell commands as root in a fresh guest, and returns exit status, output and errors of each."""
        with folder() as where:
            job = {"modules": [str(self.modules[name]) for name in modules], "steps": steps, "seconds": seconds}
            (where / "job.json").write_text(json.dumps(job))
            console = self.boot(where)
            path = where / "answers.json"
            answers = json.loads(path.read_text()) if path.exists() else []
        if not any(word in console for word in ("guest: begins", "panic", OUT_OF_TIME)):
            raise Skip(f"user-mode Linux does not start here: {(console.strip() or 'no console output').splitlines()[-1]}")
        assert len(answers) == len(steps), f"{len(answers)} of {len(steps)} steps were done: {console}"
        return [types.SimpleNamespace(step=step, **answer) for step, answer in zip(steps, answers)]
