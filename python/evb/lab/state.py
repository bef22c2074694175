"""The directory in which `evb lab run` keeps the shaping state of its namespaces, apart from that of the machine."""
import atexit
import os
import pathlib
import shutil
import tempfile

PREFIX = "evb-lab-state-"
TMP = pathlib.Path("/tmp")


def state_directory(context):
    """Exists until this process ends. Its name has the number of this process: see others() and clean()."""
    if "state" not in context.kept:
        context.kept["state"] = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=TMP)
        atexit.register(shutil.rmtree, context.kept["state"], ignore_errors=True)
    return context.kept["state"]


def _directories():
    """The number of the process, whether it lives, and the directory. As /tmp is open to all users, links and
    directories of other users do not count."""
    for path in TMP.glob(f"{PREFIX}*-*"):
        number = path.name[len(PREFIX):].partition("-")[0]
        if number.isdigit() and path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
            yield int(number), pathlib.Path(f"/proc/{number}").exists(), path


def others():
    """The processes that also measure on this machine."""
    return [pid for pid, lives, _ in _directories() if lives and pid != os.getpid()]


def clean():
    """Removes what dead processes left. Returns the number of directories."""
    left = [path for _, lives, path in _directories() if not lives]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)
