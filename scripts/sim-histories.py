#!/usr/bin/env python3
"""Run very many short histories of random scenarios with random faults in virtual time.

    scripts/sim-histories.py                                # until Ctrl-C
    scripts/sim-histories.py --scenarios 500 --histories 20 # 500 scenarios of 20 histories each
    scripts/sim-histories.py --reduce 7:3                   # scenario 7, history 3: finds a shorter history that also fails

Each scenario is drawn from its seed; evb sim checks the histories. The first violation ends the script with status 1,
and it prints the command that repeats the history.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Its keys are overridden, so that one command describes a history, without another file.
BASE = ROOT / "configs" / "scenarios" / "push-6x1.conf"
LIMIT_S = 600
# A reduced history differs from the first one in all that follows a change. Some of so many seeds fail in the same way.
REDUCE_TRIES = 20
REDUCE_LIMIT_S = 60
VIOLATION = re.compile(r"^evb sim: seed (\d+), at [0-9.]+ s: (([a-z-]+): .*)$", re.M)
FAULTS = re.compile(r"^evb sim: its faults: (.*)$", re.M)


def draw(seed):
    """Returns the keys and further options of a scenario of some ms, small enough for hundreds of histories a second."""
    r = random.Random(seed)
    # KeepAlive takes a part of what control messages may take of a port; evb check refuses too much.
    link_rate = r.choice(["100Mbit", "1Gbit", "10Gbit", "unlimited"])
    keep_alive = r.choice({"100Mbit": [20], "1Gbit": [5, 20]}.get(link_rate, [2, 5, 20]))
    rate = r.choice(["500Hz", "2kHz", "5kHz", "20kHz", "max"])
    n_sfi = r.randint(1, 3)
    mode = r.choice(["push", "pull"])
    # Without faults of nodes, long time-outs, and retries, all events must be complete. Without losses, a valid plan must hold.
    quiet = r.random() < 0.2
    timeout = 10000 if quiet else r.choice([2, 8, 8]) * keep_alive
    keys = {
        "scenario.mode": mode, "scenario.duration": "0",
        "trigger.rate": rate, "trigger.events": r.choice([1, 10, 20, 40, 80]),
        "trigger.kind": "periodic" if rate == "max" else r.choice(["periodic", "poisson", "burst"]),
        "ros.count": r.randint(1, 6),
        "ros.fragment-size": r.choice([0, 1, 100, 1400, 3000, 20000]), "ros.buffer-size": "4MiB",
        **r.choice([{}, {}, {"ros.fragment-size": "uniform:0-3000"}, {"ros.fragment-size": "lognormal:1000,1"}]),
        "test.buffer-events": r.choice([16, 64, 1024]), "test.pacing": r.choice(["none", "together"]),
        "sfi.count": n_sfi, "sfi.buffer-size": r.choice(["4MiB", "8MiB"]), "sfi.credits": r.choice(["auto", 1, 2, 16]),
        "sfi.retries": "auto" if quiet else r.choice(["auto", "auto", 0, 3]),
        # The other draws, of keys that are gone, let a seed keep its scenario.
        "sfi.timeout": [f"{timeout}ms", r.choice(["auto", "auto", "1ms", "20ms"]), r.choice([0, 1, 3])][0],
        "test.keep-alive": f"{keep_alive}ms", "dfm.node-timeout": "3s" if quiet else f"{max(6 * keep_alive, 10)}ms",
        "network.link-rate": link_rate, "network.switch-buffer": r.choice(["16KiB", "64KiB", "1MiB"]), "network.mtu": r.choice([1500, 9000]),
        # Two draws, so that a seed keeps the scenario that it had when there were two keys.
        "network.socket-buffer": [r.choice(["auto", "64KiB"]) for _ in range(2)][0],
        "network.control-group": r.choice(["none", "239.255.69.86"]),
        "qos.backend": r.choice(["none", "none", "htb", "htb+tbf"]) if link_rate != "unlimited" else "none",
    }
    if mode == "pull":
        keys["sfi.outstanding"] = r.choice(["auto", "auto", 1, 4])
    if r.random() < 0.2:
        keys.update({"scenario.duration": f"{r.choice([5, 20, 50])}ms", "trigger.events": 100})
    if r.random() < 0.03:
        # Buffers get full.
        keys.update({"ros.fragment-size": 300000, "trigger.events": 20})
    words = ["--model", "wake-time=" + r.choice(["0", "10us", "200us"]), "--model", "packet-time=" + r.choice(["0", "1us", "10us"])]
    if not quiet:
        words.append("--chaos")
    elif r.random() < 0.5:
        keys.update({f"network.{fault}": r.choice([0, 0.003, 0.02]) for fault in ("loss", "reorder", "duplicate")})
    elif mode == "pull" and r.random() < 0.5:
        # Only the limit of bytes in flight keeps the ports from dropping packets, as long as nothing is sent twice.
        keys.update({"trigger.rate": "20kHz", "trigger.events": 40, "ros.count": r.randint(4, 6), "ros.fragment-size": 20000,
                     "sfi.credits": 16, "sfi.outstanding": "auto",
                     "test.keep-alive": "20ms", "network.link-rate": "100Mbit", "network.switch-buffer": "64KiB", "qos.backend": "none"})
    return keys, words


def command(evb, keys, words, *more):
    base = os.path.relpath(BASE)
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    return [str(evb), "sim", base if not base.startswith("..") else str(BASE), *settings, *words, *map(str, more)]


class Failure:
    """How a history failed."""

    def __init__(self, done, seed):
        found = VIOLATION.search(done.stderr)
        faults = FAULTS.search(done.stderr)
        self.text = done.stdout + done.stderr
        self.seed = int(found[1]) if found else seed
        self.kind = found[3] if found else f"status {done.returncode}"
        self.reason = found[2] if found else self.kind
        self.faults = shlex.split(faults[1]) if faults else None


def run(evb, keys, words, seed, histories, limit_s=LIMIT_S):
    """Runs the histories from a seed on. Returns the first failure, or None. ValueError: the scenario is wrong."""
    def call(*more):
        return subprocess.run(command(evb, keys, words, *more), capture_output=True, text=True, timeout=limit_s)

    done = call("--seed", seed, "--count", histories)
    if done.returncode < 0 and histories > 1:
        # It was killed, so it did not print which history was the one.
        return next(filter(None, (run(evb, keys, words, seed + i, 1, limit_s) for i in range(histories))), Failure(done, seed))
    if done.returncode < 0 or VIOLATION.search(done.stderr):
        return Failure(done, seed)
    if done.returncode == 2:
        raise ValueError(done.stderr)
    # A single history reports lost events with status 1, but several report only violations.
    return Failure(done, seed) if done.returncode != 0 and histories > 1 else None


class Reduction:
    """Makes a history smaller as long as one of some seeds fails in the same way."""

    def __init__(self, evb, keys, words, failure):
        self.evb, self.keys, self.failure = evb, dict(keys), failure
        self.words = [word for word in words if word != "--chaos"]
        self.faults, self.tries = [], 0
        for option, value in zip(*[iter(failure.faults or [])] * 2):
            if option == "--fault":
                self.faults.append((option, value))
            elif float(value.split("=")[1]) > 0:
                self.keys[value.split("=")[0].strip()] = value.split("=")[1]

    def fails(self, keys, words, faults):
        options = [*words, *(word for fault in faults for word in fault)]
        self.tries += 1
        for seed, histories in ((self.failure.seed, 1), (1, REDUCE_TRIES)):
            try:
                failure = run(self.evb, keys, options, seed, histories, REDUCE_LIMIT_S)
            except (ValueError, subprocess.TimeoutExpired):
                return False
            if failure and failure.kind == self.failure.kind:
                self.keys, self.words, self.faults, self.failure = keys, words, faults, failure
                return True
        return False

    def drop_faults(self):
        """Delta debugging: tries without halves, quarters and so on."""
        part = max(len(self.faults) // 2, 1)
        while self.faults:
            at = 0
            while at < len(self.faults):
                if not self.fails(self.keys, self.words, self.faults[:at] + self.faults[at + part:]):
                    at += part
            if part == 1:
                return
            part //= 2

    def shrink(self, key):
        """The least number that still fails, by halves and then one by one."""
        while (now := int(self.keys.get(key, 0))) > 1:
            for less in dict.fromkeys([1, now // 2, now - 1]):
                keys = {**self.keys, key: less}
                nodes = {"dfm", *(f"{role}{i + 1}" for role in ("ros", "sfi") for i in range(int(keys[f"{role}.count"])))}
                faults = [fault for fault in self.faults if re.split("[=@]", fault[1])[1] in nodes]
                if self.fails(keys, self.words, faults):
                    break
            else:
                return

    def simplify(self):
        """Keys and options with their usual values, and times in whole milliseconds."""
        for key in [key for key in self.keys if key not in ("ros.count", "sfi.count", "scenario.duration", "trigger.events", "trigger.rate")]:
            self.fails({k: v for k, v in self.keys.items() if k != key}, self.words, self.faults)
        if self.words:
            self.fails(self.keys, [], self.faults)
        for i, (option, value) in enumerate(self.faults):
            rounded = re.sub(r"(\d+)ns", lambda found: f"{max(round(int(found[1]) / 1e6), 1)}ms", value)
            if rounded != value:
                self.fails(self.keys, self.words, [*self.faults[:i], (option, rounded), *self.faults[i + 1:]])

    def run(self):
        if not self.fails(self.keys, self.words, self.faults):
            return False
        before = None
        while before != (size := (len(self.faults), len(self.keys), *map(str, self.keys.values()))):
            before = size
            self.drop_faults()
            for key in ("sfi.count", "ros.count", "trigger.events"):
                self.shrink(key)
            self.simplify()
        return True

    def print(self):
        options = [*self.words, *(word for fault in self.faults for word in fault)]
        print(f"reduced after {self.tries} tries: {self.failure.reason}")
        print(shlex.join(command("evb", self.keys, options, "--seed", self.failure.seed, "--trace")))


def reduce(o):
    scenario, history = map(int, o.reduce.split(":"))
    keys, words = draw(scenario)
    failure = run(o.evb, keys, words, history, 1)
    if not failure:
        print(f"sim-histories.py: history {history} of scenario {scenario} does not fail", file=sys.stderr)
        return 2
    reduction = Reduction(o.evb, keys, words, failure)
    if not reduction.run():
        print("sim-histories.py: the history does not fail without --chaos", file=sys.stderr)
        return 1
    reduction.print()
    return 0


def run_scenario(o, seed):
    return seed, run(o.evb, *draw(seed), 1, o.histories)


def print_failure(seed, failure):
    print(failure.text, end="", file=sys.stderr)
    print(f"sim-histories.py: reduce it with: scripts/sim-histories.py --reduce {seed}:{failure.seed}", file=sys.stderr)


def run_all(o):
    """As many scenarios beside each other as there are processors. The violation of the lowest seed counts."""
    seed = o.seed
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        while o.scenarios == 0 or o.done < o.scenarios:
            n = o.jobs * 8 if o.scenarios == 0 else min(o.jobs * 8, o.scenarios - o.done)
            for at, failure in pool.map(lambda s: run_scenario(o, s), range(seed, seed + n)):
                if failure:
                    print_failure(at, failure)
                    pool.shutdown(wait=True, cancel_futures=True)
                    return 1
                o.done += 1
            seed += n
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--evb", default=ROOT / "build" / "evb", help="the program (default: build/evb)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first scenario (default: 1)")
    parser.add_argument("--scenarios", type=int, default=0, help="number of scenarios (default: 0, no end)")
    parser.add_argument("--histories", type=int, default=20, help="histories of each (default: 20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="scenarios at a time (default: one for each processor)")
    parser.add_argument("--print", type=int, metavar="SEED", help="only print the command that runs the scenario of this seed")
    parser.add_argument("--reduce", metavar="SEED:HISTORY", help="make a failing history as short as possible, and print the command that runs it")
    o = parser.parse_args()
    if o.print is not None:
        print(shlex.join(command("evb", *draw(o.print))))
        return 0
    if o.reduce is not None:
        return reduce(o)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status, o.done = 0, 0
    try:
        status = run_all(o)
    except KeyboardInterrupt:
        pass
    except ValueError as e:
        print(f"sim-histories.py: a scenario is wrong: {e}", file=sys.stderr)
        return 2
    if status == 0:
        print(f"{o.done * o.histories} histories of {o.done} scenarios, from seed {o.seed} on: no violation")
    return status


if __name__ == "__main__":
    sys.exit(main())
