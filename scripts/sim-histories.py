#!/usr/bin/env python3
"""Run very many short histories of random scenarios with random faults in virtual time.

    scripts/sim-histories.py                          # until Ctrl-C
    scripts/sim-histories.py --scenarios 1000         # 1000 scenarios of 100 histories each
    scripts/sim-histories.py --seed 7 --scenarios 1   # again what began with seed 7

Each scenario is drawn from its seed; evb sim checks the histories. The first violation ends the script with status 1,
and it prints the commands that repeat the history.
"""
import argparse
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 600


def draw(seed):
    """Returns a scenario of some 100 ms, small enough for 100 histories a second."""
    r = random.Random(seed)
    link_rate = r.choice(["100Mbit", "1Gbit", "10Gbit", "unlimited"])
    # The DFM's KeepAlive takes a part of what control messages may take of a port, and must leave some.
    keep_alive = 20 if link_rate == "100Mbit" else r.choice([5, 20])
    keys = {
        "scenario": {"mode": r.choice(["push", "pull"]), "transport": "udp"},
        "trigger": {"rate": r.choice(["500Hz", "2kHz", "5kHz", "max"]), "events": r.choice([20, 100, 200]),
                    "kind": r.choice(["periodic", "poisson", "burst"])},
        "ros": {"count": r.randint(1, 8), "fragment-size": r.choice([0, 100, 1400, 3000, 20000]), "buffer-size": "4MiB",
                "buffer-events": r.choice([64, 65536]), "stagger": r.choice(["yes", "no"])},
        "sfi": {"count": r.randint(1, 4), "output": "null", "buffer-size": "8MiB", "credits": r.choice(["auto", 2, 16]),
                "retries": r.choice(["auto", "auto", 0, 3]), "timeout": f"{8 * keep_alive}ms"},
        "dfm": {"keep-alive": f"{keep_alive}ms", "node-timeout": f"{6 * keep_alive}ms", "event-timeout": f"{24 * keep_alive}ms",
                "reassign": r.choice([0, 1, 3]), "clear-group": r.choice([1, 20, 100])},
        "network": {"link-rate": link_rate, "switch-buffer": r.choice(["16KiB", "64KiB", "1MiB"]),
                    "mtu": r.choice([1500, 9000]), "receive-buffer": r.choice(["auto", "64KiB"]),
                    "control-group": r.choice(["none", "239.255.69.86"])},
        "qos": {"backend": "none"},
    }
    if keys["trigger"]["rate"] == "max":
        keys["trigger"]["kind"] = "periodic"
    if keys["network"]["link-rate"] != "unlimited" and r.random() < 0.4:
        keys["qos"]["backend"] = r.choice(["htb", "htb+tbf"])
    return "".join(f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()) for section, values in keys.items())


def run(evb, seed, histories, folder):
    path = pathlib.Path(folder) / f"scenario-{seed}.conf"
    path.write_text(draw(seed))
    done = subprocess.run([evb, "sim", path, "--chaos", "--histories", str(histories)], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode == 0:
        path.unlink()
        return True
    print(done.stdout + done.stderr, end="", file=sys.stderr)
    print(f"the scenario: scripts/sim-histories.py --scenario-seed {seed} > {shlex.quote(path.name)}", file=sys.stderr)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--evb", default=ROOT / "build" / "evb", help="the program (default: build/evb)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first scenario (default: 1)")
    parser.add_argument("--scenarios", type=int, default=0, help="number of scenarios (default: 0, no end)")
    parser.add_argument("--histories", type=int, default=100, help="histories of each (default: 100)")
    parser.add_argument("--scenario-seed", type=int, help="only print the scenario of this seed")
    o = parser.parse_args()
    if o.scenario_seed is not None:
        print(draw(o.scenario_seed), end="")
        return 0
    done = 0
    with tempfile.TemporaryDirectory(prefix="evb-histories-") as folder:
        try:
            while o.scenarios == 0 or done < o.scenarios:
                if not run(o.evb, o.seed + done, o.histories, folder):
                    return 1
                done += 1
        except KeyboardInterrupt:
            pass
    print(f"{done * o.histories} histories of {done} scenarios, from seed {o.seed} on: no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
