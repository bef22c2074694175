#!/usr/bin/env python3
"""Measure the event rate of evb on veth devices without a rate limit, and compare it with iperf3.

    sudo scripts/bench.py [--evb build/src/evb] [--rounds 5] [--json FILE]

Each round runs every row once, so that changes in machine load affect all rows equally. The table shows
medians, and the median ratio to iperf3 in the same round. The script needs root, iproute2 and iperf3; it
exits with status 77 and names the missing ones. It removes its namespaces at the end.
"""
import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import need

ROWS = [
    # name, keys, reference of the ratio
    ("1x1 push, UDP, 1 kB", {"ros.count": 1, "trigger.events": 2000000}, "udp"),
    ("1x1 pull, UDP, 1 kB", {"ros.count": 1, "trigger.events": 1000000, "scenario.mode": "pull"}, "udp"),
    ("6x1 push, UDP, 1 kB", {"ros.count": 6, "trigger.events": 300000}, "udp"),
    ("6x1 pull, UDP, 1 kB", {"ros.count": 6, "trigger.events": 300000, "scenario.mode": "pull"}, "udp"),
    ("1x1 push, UDP, 14 KiB", {"ros.count": 1, "trigger.events": 200000,
                               "ros.fragment-size": "14KiB"}, "udp"),
    ("1x1 push, TCP, 1 kB", {"ros.count": 1, "trigger.events": 1000000, "scenario.transport": "tcp"}, "tcp"),
    ("1x1 push, TCP, 256 KiB", {"ros.count": 1, "trigger.events": 30000, "scenario.transport": "tcp",
                                "ros.fragment-size": "256KiB"}, "tcp"),
    ("1x1 push, TCP, 256 KiB, to files", {"ros.count": 1, "trigger.events": 8000, "scenario.transport": "tcp",
                                          "ros.fragment-size": "256KiB", "sfi.output": "file"}, "tcp"),
    ("the same, past the page cache", {"ros.count": 1, "trigger.events": 8000, "scenario.transport": "tcp",
                                       "ros.fragment-size": "256KiB", "sfi.output": "file",
                                       "sfi.write-direct": "yes"}, "tcp"),
]
SCENARIO = """
[scenario]
name = bench
[ros]
source = pattern
fragment-size = 1024
[sfi]
count = 1
output = null
"""


@contextlib.contextmanager
def wire():
    """Connects two namespaces through a bridge in a third one, as `evb run --net lab` does."""
    with need.namespaces("bench0", "bench1", "bench2") as (a, b, switch):
        need.join(a, b, "10.201.0", switch)
        yield a, b


def iperf(seconds, *options):
    """Returns the received bytes per second."""
    with wire() as (a, b):
        server = subprocess.Popen(["ip", "netns", "exec", b, "iperf3", "-s", "-1", "-J"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            for _ in range(200):
                if ":5201" in need.run("ip", "netns", "exec", b, "ss", "-Hltn"):
                    break
                time.sleep(0.01)
            client = need.run("ip", "netns", "exec", a, "iperf3", "-c", "10.201.0.2", "-t", str(seconds), "-J",
                              *options)
            server.communicate(timeout=20)
        finally:
            server.kill()
            server.wait()
        end = json.loads(client)["end"]
        if "-u" in options:
            if end.get("sum_received", {}).get("bytes"):
                return end["sum_received"]["bits_per_second"] / 8
            return end["sum"]["bits_per_second"] / 8 * (1 - end["sum"]["lost_percent"] / 100)
        return end["sum_received"]["bits_per_second"] / 8


def evb(program, scenario, files, keys):
    """Returns the report of one run. Its files do not stay."""
    command = [program, "run", scenario, "--net", "lab", "--json", "--set", f"sfi.directory={files}"]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if not done.stdout:
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)
    report = json.loads(done.stdout)
    for name in os.listdir(files):
        os.unlink(os.path.join(files, name))
    if report["events_complete"] != report["triggers"] or not report["balanced"]:
        print(f"bench.py: {keys}: {report['events_complete']} of {report['triggers']} events are complete",
              file=sys.stderr)
    return report


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default: %(default)s)")
    # iperf3 takes whole seconds, and 0 as no limit.
    parser.add_argument("--seconds", type=int, choices=range(1, 61), default=2, metavar="N",
                        help="duration of each iperf3 run (default: %(default)s)")
    parser.add_argument("--files", metavar="DIRECTORY", default="/var/tmp",
                        help="disk for the rows that write files (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    return parser.parse_args()


def measure(arguments):
    iperf_rates = {"tcp": [], "udp": []}
    events, rates, ratios = ({name: [] for name, _, _ in ROWS} for _ in range(3))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=arguments.files) as files:
        scenario = os.path.join(folder, "bench.conf")
        with open(scenario, "w") as f:
            f.write(SCENARIO)
        for n in range(arguments.rounds):
            iperf_rates["tcp"].append(iperf(arguments.seconds, "-l", "256K"))
            iperf_rates["udp"].append(iperf(arguments.seconds, "-u", "-b", "0", "-l", "1448"))
            for name, keys, reference in ROWS:
                report = evb(arguments.evb, scenario, files, keys)
                events[name].append(report["event_rate_hz"])
                rates[name].append(report["throughput_bytes_per_second"])
                ratios[name].append(report["throughput_bytes_per_second"] / iperf_rates[reference][-1])
            print(f"round {n + 1} of {arguments.rounds} done", file=sys.stderr)
    return iperf_rates, events, rates, ratios


def main():
    arguments = parse_arguments()
    need.check(("ip", "ss", "iperf3"), arguments.evb)
    try:
        iperf_rates, events, rates, ratios = measure(arguments)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)

    median = statistics.median
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, medians of {arguments.rounds} rounds\n")
    print("| measurement | events/s | payload MB/s | ratio to iperf3 |")
    print("|---|---:|---:|---:|")
    for kind, label in (("tcp", "iperf3 TCP, 256 KiB writes"), ("udp", "iperf3 UDP, 1448 B, received")):
        print(f"| {label} | | {median(iperf_rates[kind]) / 1e6:,.0f} | 1 |")
    for name, _, reference in ROWS:
        print(f"| {name} | {median(events[name]):,.0f} | {median(rates[name]) / 1e6:,.0f} |"
              f" {median(ratios[name]):.2f} x {reference.upper()} |")
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump({"iperf3_bytes_per_second": iperf_rates, "events_per_second": events,
                       "payload_bytes_per_second": rates, "ratio_to_iperf3": ratios}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
