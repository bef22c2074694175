#!/usr/bin/env python3
"""Run all nodes for an hour with a mixed load and faults; memory and descriptors must stay flat, and all accounts balance.

    sudo scripts/soak.py                              # one hour
    sudo scripts/soak.py --minutes 3 --run 4          # a trial: runs of 4 s
    sudo scripts/soak.py --json soak.json --seed 7

A DFM, three ROSs and two SFIs run in network namespaces and make one run after the other, in the same processes. The trigger
rate changes several times in each run. Every few seconds, a fault comes at random: SIGKILL and restart of ros3 or sfi2, SIGSTOP
of any node, a link down, packet loss, or datagrams from a stranger. dfm, ros1, ros2 and sfi1 live from begin to end; their
memory and descriptors are sampled. Every file is verified and then removed. The exit status is 1 if

 - the memory of a process in the last quarter of the time after 12 runs is more than 5 % and 2 MiB above that of the first
   quarter. This is the tenth percentile of all samples, since a leak stays, while the buffers of a run fill when they have to,
   and go back to the kernel at its end,
 - a process has more descriptors in the last quarter than it had in the first one,
 - the accounts of a run do not balance, an event that counts as complete is in no file, or a file is damaged.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import need
from fault_bed import NET, ROLES, Bed, Violation, balance, check_file, clean, repair, require, sh
from fault_table import RATE_HZ, nft_drop, ports_of, probe

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIVING = ("dfm", "ros1", "ros2", "sfi1")
SAMPLE_S = 2
# The allocator keeps what a run frees, so memory grows for the first ten runs or so.
WARM_RUNS = 12
GROWTH, GROWTH_BYTES = 1.05, 2 << 20
KEYS = {"trigger.kind": "poisson", "ros.fragment-size": "lognormal:1KiB,1", "run.start": "auto", "sfi.file-events": "5000",
        # Small buffers are in use as a whole soon.
        "ros.buffer-size": "8MiB", "sfi.buffer-size": "16MiB"}


def kill(b):
    node = b.random.choice(("ros3", "sfi2"))
    b.kill(node)
    b.pause(0, 1)
    b.start(node)
    return f"SIGKILL of {node}"


def stop(b):
    node = b.random.choice(list(ROLES))
    b.processes[node].send_signal(signal.SIGSTOP)
    b.pause(0.1, 3)
    b.processes[node].send_signal(signal.SIGCONT)
    return f"SIGSTOP of {node}"


def link(b):
    node = b.random.choice(list(ROLES))
    b.ip("switch", "link", "set", b.port(node), "down")
    b.pause(0.1, 3)
    b.ip("switch", "link", "set", b.port(node), "up")
    return f"link of {node} down"


def lossy(b):
    node = b.random.choice(list(ROLES))
    nft_drop(b, node, b.random.randint(1, 100))
    b.pause(1, 5)
    sh("ip", "netns", "exec", b.name(node), "nft", "delete", "table", "netdev", "evb")
    return f"loss at {node}"


def stranger(b):
    node = b.random.choice(list(ROLES))
    probe(b, f"{NET}.{1 + list(ROLES).index(node)}", ports_of(b, node))
    return f"a stranger at {node}"


def load(b):
    rate = b.random.choice((50, RATE_HZ, 2 * RATE_HZ, 4 * RATE_HZ))
    done = subprocess.run([b.evb, "ctl", "set", f"trigger.rate={rate}Hz", "--socket", b.where / "control.sock"], capture_output=True, text=True,
                          timeout=60)
    return f"trigger.rate {rate} Hz: {done.returncode}"


FAULTS = (kill, stop, link, lossy, stranger, load, load)


def sample(b):
    """Returns memory and descriptors of each process that lives from begin to end."""
    found = {"runs": len((b.where / "dfm.0.json").read_text().splitlines())}
    for node in LIVING:
        pid = b.processes[node].pid
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        found[node] = (pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd")))
    return found


class Files:
    """Verifies files and removes them."""

    def __init__(self, b):
        self.b, self.n, self.ids = b, 0, {}
        self.repaired = b.where / "repaired"
        self.repaired.mkdir()

    def take(self, everything):
        """Takes closed files; at the end, also those that were left open."""
        folders = [self.b.where / node for node in ("sfi1", "sfi2")]
        for path in [path for folder in folders for path in folder.glob("*.writing")] if everything else []:
            repair(self.b.evb, path, self.repaired)
        for path in [path for folder in (*folders, self.repaired) for path in folder.glob("*.data")]:
            run = int(path.name.split(".")[1])
            self.ids.setdefault(run, set()).update(l1_id for l1_id, _ in check_file(self.b.evb, path))
            self.n += 1
            path.unlink()
            path.with_name(path.name + ".index").unlink(missing_ok=True)


def judge(samples):
    """Returns memory and descriptors of each process in the first and in the last quarter after the warm-up, and whether they
    are flat."""
    rows = {}
    warm = [found for found in samples if found["runs"] >= WARM_RUNS]
    require(len(warm) >= 8, f"too short: only {len(warm)} samples after {WARM_RUNS} runs")
    first, last = warm[:len(warm) // 4], warm[-(len(warm) // 4):]
    for node in LIVING:
        early, late = (statistics.quantiles((found[node][0] for found in part), n=10)[0] for part in (first, last))
        few, many = (max(found[node][1] for found in part) for part in (first, last))
        rows[node] = {"memory_bytes": [early, late], "descriptors": [few, many],
                      "flat": late <= max(early * GROWTH, early + GROWTH_BYTES) and many <= few}
    return rows


def reports(b):
    """Returns the reports of all runs, one a line."""
    return [json.loads(line) for line in (b.where / f"dfm.{b.restarts['dfm']}.json").read_text().splitlines() if line]


def check_runs(b, files):
    runs = [report for report in reports(b) if report["triggers"] > 0]
    require(runs, "no run has a trigger")
    for report in runs:
        ends = balance(report)
        missing = report["triggers"] - len(files.ids.get(report["run"], ()))
        require(missing <= ends["lost"], f"run {report['run']}: {missing} events are in no file, but {ends['lost']} are lost")
    return runs


def soak(o, where, r):
    seconds = 60 * o.minutes
    keys = {**KEYS, "scenario.mode": r.choice(["push", "pull"]), "scenario.transport": r.choice(["udp", "tcp"]), "scenario.duration": f"{o.run}s",
            "control.listen": f"unix:{where / 'control.sock'}"}
    with Bed(o.evb, where, r, keys) as b:
        b.ip("switch", "addr", "add", f"{NET}.200/24", "dev", "bridge")
        b.start_all()
        b.wait_running()
        files, samples, done = Files(b), [], []
        began = time.monotonic()
        next_fault, next_sample = began + r.uniform(2, 8), began
        while time.monotonic() < began + seconds:
            if time.monotonic() >= next_fault:
                done.append(r.choice(FAULTS)(b))
                next_fault = time.monotonic() + r.uniform(2, 8)
                if sys.stderr.isatty():
                    print(f"{time.monotonic() - began:6.0f} s: {done[-1]}", file=sys.stderr)
            if time.monotonic() >= next_sample:
                samples.append(sample(b))
                files.take(False)
                next_sample = time.monotonic() + SAMPLE_S
            time.sleep(0.1)
        # The first signal drains the run; the others wait for the DFM.
        for node in ("dfm", *(node for node in ROLES if node != "dfm")):
            b.processes[node].terminate()
        b.wait_all()
        files.take(True)
        runs = check_runs(b, files)
        rows = judge(samples)
        faults = {kind: sum(text.startswith(kind) for text in done) for kind in ("SIGKILL", "SIGSTOP", "link", "loss", "a stranger", "trigger.rate")}
        return {"minutes": o.minutes, "seed": o.seed, "mode": keys["scenario.mode"], "transport": keys["scenario.transport"], "runs": len(runs),
                **{end: sum(run[end] for run in runs) for end in ("triggers", "events_complete", "events_partial", "events_lost")},
                "files": files.n, "faults": faults, "processes": rows, "flat": all(row["flat"] for row in rows.values()), "samples": samples}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--run", type=int, default=60, help="seconds of each run (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evb", default=str(ROOT / "build/src/evb"))
    parser.add_argument("--json", help="file for the result, with all samples")
    o = parser.parse_args()
    need.check(("ip", "ss", "nft"), o.evb)
    o.evb = str(pathlib.Path(o.evb).resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cleans up
    with tempfile.TemporaryDirectory(prefix="evb-soak-", ignore_cleanup_errors=True) as where:
        try:
            result = soak(o, pathlib.Path(where), random.Random(o.seed))
        except (Violation, AssertionError) as reason:
            print(f"soak.py: {reason}", file=sys.stderr)
            return 1
        finally:
            clean(os.getpid(), where)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "samples"}, indent=1))
    print("flat" if result["flat"] else "not flat")
    return int(not result["flat"])


if __name__ == "__main__":
    sys.exit(main())
