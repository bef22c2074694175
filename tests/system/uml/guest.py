"""The first process of the guest: mounts file systems, loads modules, runs the steps of DIRECTORY/job.json one by one,
writes their results to DIRECTORY/answers.json, and powers off. The guest's root is the host's, read-only; /run is empty
and writable.

    guest.py DIRECTORY
    guest.py load MODULE     loads one more module, for a step
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

POWER_OFF = 0x4321FEDC  # LINUX_REBOOT_CMD_POWER_OFF
FINIT_MODULE = 313      # of x86-64; not every system has insmod
libc = ctypes.CDLL(None, use_errno=True)


def mount(kind, where, *options):
    subprocess.run(["mount", "-t", kind, *options, kind, where], check=True)


def load(module):
    fd = os.open(module, os.O_RDONLY)
    if libc.syscall(FINIT_MODULE, fd, b"", 0) < 0:
        raise OSError(ctypes.get_errno(), f"{module}: {os.strerror(ctypes.get_errno())}")
    os.close(fd)


def do(step, limit):
    try:
        done = subprocess.run(["sh", "-c", step], capture_output=True, text=True, timeout=max(limit, 0.1), stdin=subprocess.DEVNULL)
        return {"exit": done.returncode, "out": done.stdout, "err": done.stderr}
    except subprocess.TimeoutExpired:
        return {"exit": 124, "out": "", "err": "out of time"}


def work(folder):
    job = json.loads((folder / "job.json").read_text())
    deadline = time.monotonic() + job["seconds"]
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("tmpfs", "/run")
    os.mkdir("/run/answers")
    mount("hostfs", "/run/answers", "-o", str(folder))
    for module in job["modules"]:
        load(module)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    answers = []
    for step in job["steps"]:
        answers.append(do(step, deadline - time.monotonic()))
        pathlib.Path("/run/answers/answers.json").write_text(json.dumps(answers))


def live(folder):
    os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/", TMPDIR="/run")
    print("guest: begins", flush=True)
    try:
        work(folder)
    except Exception as e:  # pylint: disable=broad-except
        print(f"guest: {e!r}", flush=True)
    os.sync()
    libc.reboot(POWER_OFF)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2])
    else:
        live(pathlib.Path(sys.argv[1]))
