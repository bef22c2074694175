"""What the benchmarks share: a check of their requirements, and a message if a command fails."""
import os
import shutil
import subprocess
import sys

PACKAGES = {"ip": "iproute2", "ss": "iproute2", "iperf3": "iperf3"}


def missing(programs, evb, root):
    """Yields one line for each missing requirement, with the way to get it."""
    if root and os.geteuid() != 0:
        yield "network namespaces need root; run the script with sudo"
    for name in programs:
        if shutil.which(name) is None:
            yield f"{name} is not installed; install it with: apt-get install {PACKAGES[name]}"
    if not (os.path.isfile(evb) and os.access(evb, os.X_OK)):
        yield f"{evb} does not exist or is not executable; build it with scripts/build.sh, or set --evb"


def check(programs, evb, root=True):
    """Exits with status 77, and one line on standard error for each missing requirement."""
    lines = list(missing(programs, evb, root))
    for line in lines:
        print(f"{os.path.basename(sys.argv[0])}: {line}", file=sys.stderr)
    if lines:
        sys.exit(77)


def failed(error):
    """Reports a command that failed or timed out, and returns the exit status 1."""
    command = " ".join(error.cmd[:10])
    if isinstance(error, subprocess.TimeoutExpired):
        reason = f"no end after {error.timeout} s"
    else:
        reason = f"exit status {error.returncode}: {(error.stderr or '').strip()}"
    print(f"{os.path.basename(sys.argv[0])}: {command}: {reason}", file=sys.stderr)
    return 1
