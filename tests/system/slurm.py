"""A Slurm cluster of a test: a network namespace with its own host name and slurmd for each node, on one switch.

Nothing of the machine's own Slurm or MUNGE is used."""
import os
import pathlib
import re
import shutil
import subprocess

from harness import LIMIT_S, Skip
from network import Network, wait_until

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "unshare": "util-linux"}
# The address of a node for Slurm, and the one for data.
NET, DATA_NET = "10.9.0", "10.9.1"

CONFIG = """
ClusterName=evb
SlurmctldHost={first}({net}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={where}/munge.socket
CredType=cred/munge
StateSaveLocation={where}/slurmctld
SlurmctldPidFile={where}/slurmctld.pid
SlurmdSpoolDir={where}/%n
SlurmdPidFile={where}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_hetjob_immediate
KillWait=60
MessageTimeout=60
SlurmdTimeout=0
BatchStartTimeout=60
ReturnToService=2
SlurmdDebug=info
SlurmctldDebug=info
{nodes}
PartitionName=evb Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED OverSubscribe=EXCLUSIVE
"""


class Cluster:
    """Cluster(where, "dfm", "ros1"...): each node has the name of its host."""

    def __init__(self, where, *names):
        for program, package in PROGRAMS.items():
            if not shutil.which(program):
                raise Skip(f"{program} (package {package}) is not installed")
        self.where, self.names, self.processes = pathlib.Path(where), names, []
        self.network = Network("switch", *names)
        self.environment = {**os.environ, "SLURM_CONF": str(self.where / "slurm.conf")}

    def __enter__(self):
        self.network.__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.network.bridge("switch", self.names, NET)
        for i, name in enumerate(self.names, 1):
            self.network.ip(name, "addr", "add", f"{DATA_NET}.{i}/24", "dev", "eth0")
        (self.where / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{DATA_NET}.{i} {name}-data\n" for i, name in enumerate(self.names, 1)))
        nodes = "".join(f"NodeName={name} NodeAddr={NET}.{i} CPUs={os.cpu_count()} State=UNKNOWN\n" for i, name in enumerate(self.names, 1))
        (self.where / "slurm.conf").write_text(CONFIG.format(where=self.where, first=self.names[0], net=NET, nodes=nodes))
        (self.where / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.where / "munge.key").write_bytes(os.urandom(128))
        (self.where / "munge.key").chmod(0o600)
        # munged refuses directories that others may write.
        self.where.chmod(0o755)
        self.daemon("munge", "munged", "--foreground", "--force", f"--key-file={self.where}/munge.key", f"--socket={self.where}/munge.socket",
                    f"--pid-file={self.where}/munge.pid", f"--seed-file={self.where}/munge.seed", f"--log-file={self.where}/munge.log")
        wait_until("socket of munged", (self.where / "munge.socket").exists)
        for name in self.names:
            (self.where / name).mkdir()
        self.daemon("slurmctld", *self.on(self.names[0]), "slurmctld", "-D", "-f", str(self.where / "slurm.conf"))
        for name in self.names:
            self.daemon(f"slurmd-{name}", *self.on(name), "slurmd", "-D", "-f", str(self.where / "slurm.conf"))
        wait_until("idle cluster", lambda: self.client("sinfo", "--noheader", "--states=idle", "--format=%D", check=False).stdout.split()
                   == [str(len(self.names))])

    def on(self, name):
        """The beginning of a command that runs it on a node of the cluster."""
        # ip netns exec would hide the control groups.
        return ["nsenter", f"--net=/run/netns/{self.network.name(name)}", "unshare", "--uts", "--mount", "sh", "-c",
                f'mount --bind {self.where}/hosts /etc/hosts && hostname {name} && exec "$@"', "sh"]

    def daemon(self, log, *arguments):
        with open(self.where / f"{log}.log", "wb") as file:
            # A session of its own, so that the jobs end with it.
            self.processes.append(subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self.environment,
                                                   start_new_session=True))

    def client(self, *arguments, check=True, environment=None):
        """Runs a command on the first node."""
        done = subprocess.run([*self.on(self.names[0]), *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                              env={**self.environment, **(environment or {})})
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}{self.logs()}"
        return done

    def logs(self):
        """Returns what the daemons logged last, without complaints about MPI, which nothing here uses."""
        lines = {path.name: [line for line in path.read_text(errors="replace").splitlines() if "mpi" not in line.lower()]
                 for path in sorted(self.where.glob("*.log"))}
        return "".join(f"\n== {name}\n" + "\n".join(text[-12:]) for name, text in lines.items())

    def state(self, job):
        """Returns the state of a job and the exit status of its script."""
        shown = self.client("scontrol", "show", "job", "--oneliner", str(job)).stdout.splitlines()[0]
        return re.search(r"JobState=(\S+)", shown)[1], int(re.search(r" ExitCode=(\d+):", shown)[1])

    def wait_end(self, job):
        """Returns the state and exit status with which a job ended."""
        def ended():
            return self.state(job)[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED")

        wait_until(f"end of job {job}", ended, 2 * LIMIT_S)
        return self.state(job)

    def __exit__(self, *_):
        if self.processes:
            # Jobs would survive their slurmd.
            self.client("scancel", "--user=root", check=False)
            wait_until("end of all jobs", lambda: not self.client("squeue", "--noheader", check=False).stdout.strip())
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.network.__exit__()
