"""What a run of the lab does to the machine that it measures on: a directory for the state of shaping, priority, processors that
stay awake, and leftovers of dead runs."""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import struct
import tempfile

STATES = pathlib.Path("/tmp")
NAMESPACES = pathlib.Path("/run/netns")
STATE_NAME = re.compile(r"evb-lab-state-([1-9]\d*)-")
NAMESPACE_NAME = re.compile(r"evb-([1-9]\d*)-")
MNT_DETACH = 2


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _owners(folder, name):
    """The files in a folder whose names have the ID of the process that made them, and this ID."""
    try:
        found = [(entry, name.match(entry.name)) for entry in folder.iterdir()]
    except OSError:
        return []
    return [(entry, int(match[1])) for entry, match in found if match]


@contextlib.contextmanager
def states():
    """Makes the directory where shaping stores what a device had before, and names it to child processes. It keeps the state of
    namespaces apart from that of the machine's devices. Raises OSError."""
    path = tempfile.mkdtemp(prefix=f"evb-lab-state-{os.getpid()}-", dir=STATES)
    os.environ["EVB_STATE_DIRECTORY"] = path
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)


def others():
    """The other processes that measure on this machine."""
    return [pid for _, pid in _owners(STATES, STATE_NAME) if pid != os.getpid() and _is_alive(pid)]


def _is_ours(path):
    """As /tmp is open to all users, links and directories of other users do not count."""
    with contextlib.suppress(OSError):
        return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == os.geteuid()
    return False


def clean_states():
    """Removes the directories of dead processes; returns their number."""
    dead = [path for path, pid in _owners(STATES, STATE_NAME) if not _is_alive(pid) and _is_ours(path)]
    for path in dead:
        shutil.rmtree(path, ignore_errors=True)
    return len(dead)


def clean_namespaces():
    """Removes the network namespaces of dead processes; returns their number. The lab itself makes none, so those with its own
    number are of a dead process, too."""
    dead = [path for path, pid in _owners(NAMESPACES, NAMESPACE_NAME) if pid == os.getpid() or not _is_alive(pid)]
    for path in dead:
        ctypes.CDLL(None).umount2(os.fsencode(path), MNT_DETACH)
        with contextlib.suppress(OSError):
            path.unlink()
    return len(dead)


def attend():
    """Gives this process, and none that it starts, the lowest real-time priority: it mostly sleeps, and has to act in time while
    the processes of a point work. Without permission, points are watched all the same."""
    policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))


def may_raise():
    """Whether the processes of a point can have a raised priority."""
    try:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        os.setpriority(os.PRIO_PROCESS, 0, before)
    except OSError:
        return False
    return True


def _is_virtual():
    with contextlib.suppress(OSError):
        return re.search(r"^flags\s*:.*\bhypervisor\b", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M) is not None
    return False


@contextlib.contextmanager
def awake():
    """Keeps the processors of a virtual machine awake: src/sys/awake.h says why. Yields whether it does."""
    fd = -1
    if _is_virtual():
        with contextlib.suppress(OSError):
            fd = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, struct.pack("i", 0))
    try:
        yield fd >= 0
    finally:
        if fd >= 0:
            os.close(fd)
