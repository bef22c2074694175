"""The Python that runs a command of evb."""
import os
import signal
import sys

SYSTEM_PYTHON = "/usr/bin/python3"


def use_system_python():
    """Runs this command again with the system's Python. Returns if it is that, or is missing.

    Debian installs modules for its own Python, and the first python3 in PATH may be another.
    """
    if os.access(SYSTEM_PYTHON, os.X_OK) and not os.path.samefile(sys.executable, SYSTEM_PYTHON):
        # sys.orig_argv, which Python 3.9 does not have.
        with open("/proc/self/cmdline", "rb") as words:
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *words.read().split(b"\0")[1:-1]])


def let_interrupt():
    """Takes the signals of Ctrl-C, which `evb` blocks until Python has started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
