#!/usr/bin/env python3
"""Measure the event rate of evb over links without a rate limit, beside what the kernel and other programs carry.

    sudo scripts/bench.py [--cases REGEX | --readme] [--rounds 5] [--seconds 10] [--baseline PROGRAM] [--json FILE]

Each round runs every case once, so that what else the machine does affects all alike; the ratios of the table are
medians of the ratios within a round. `--list` names the cases, e.g. "6x1 push UDP 1KiB": sources x builders, mode,
transport, fragment, and what differs from the default: "file" writes the events, "unchecked" does not compare the
received bytes. `--cases .` is every case; `--readme` measures and prints the table of README.md.

The references are `evb bench wire` (the kernel alone), iperf3, and with `--spead2` the program spead2_bench.py of
the Python package spead2. `--baseline` runs each case with another build of evb, too, to compare two versions. The script needs
root, iproute2 and iperf3; it exits with status 77 and names what is missing. It removes its namespaces and files.
"""
import argparse
import contextlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import need

SIZES = ("64", "1KiB", "14KiB", "256KiB")
USUAL = (r"1x1 push UDP (64|1KiB|14KiB)$|1x1 pull UDP 1KiB$|6x1 (push|pull) (UDP|TCP) (1KiB|14KiB)$|"
         r"2x2 push UDP 1KiB$|1x1 push TCP (1KiB|256KiB|256KiB file)$")
README = r"6x1 (push (UDP|TCP)|pull UDP) 14KiB$"
# Bytes of a datagram of the bare wire that is closest to a fragment's packets.
WIRE_BYTES = {"64": 64, "1KiB": 1024, "14KiB": 1448, "256KiB": 1448}
SCENARIO = "[scenario]\nname = bench\n[ros]\nsource = pattern\n"


def cases():
    """Yields the name and the keys of each case."""
    for shape in ("1x1", "6x1", "2x2"):
        sources, builders = shape.split("x")
        for mode in ("push", "pull"):
            for transport in ("UDP", "TCP"):
                for size in SIZES:
                    keys = {"ros.count": sources, "sfi.count": builders, "scenario.mode": mode, "ros.fragment-size": size,
                            "scenario.transport": transport.lower(), "sfi.output": "null"}
                    name = f"{shape} {mode} {transport} {size}"
                    yield name, keys
                    yield f"{name} file", {**keys, "sfi.output": "file"}


@contextlib.contextmanager
def wire():
    """Connects two namespaces through a bridge in a third one, as `evb run --net lab` does."""
    with need.namespaces("bench0", "bench1", "bench2") as (a, b, switch):
        need.join(a, b, "10.201.0", switch)
        yield a, b


@contextlib.contextmanager
def server(namespace, port, *command):
    """Runs a server, and waits until it listens."""
    with subprocess.Popen(["ip", "netns", "exec", namespace, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:
        try:
            for _ in range(500):
                if f":{port} " in need.run("ip", "netns", "exec", namespace, "ss", "-Hltn"):
                    break
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def iperf(seconds, *options):
    """Returns the received bytes per second."""
    with wire() as (a, b), server(b, 5201, "iperf3", "-s", "-1", "-J"):
        client = need.run("ip", "netns", "exec", a, "iperf3", "-c", "10.201.0.2", "-t", str(seconds), "-J", *options)
    end = json.loads(client)["end"]
    if "-u" in options and not end.get("sum_received", {}).get("bytes"):
        return end["sum"]["bits_per_second"] / 8 * (1 - end["sum"]["lost_percent"] / 100)
    return end["sum_received"]["bits_per_second"] / 8


def bare_wire(program, seconds, size):
    """Returns the received bytes per second of the kernel alone."""
    report = need.run(program, "bench", "wire", "--size", str(size), "--rounds", "1", "--seconds", str(seconds),
                      "--json")
    return json.loads(report)["sizes"][0]["throughput_bytes_per_second"]


def spead2(program, size):
    """Returns the bytes per second that spead2 sends and receives without loss, which it searches for itself."""
    with wire() as (a, b), server(b, 18900, program, "agent", "18900"):
        printed = need.run("ip", "netns", "exec", a, program, "master", "10.201.0.2:18900", "--quiet", "--packet", "1472",
                           "--heap-size", str(size))
    return float(re.search(r"([\d.]+) Gbps", printed).group(1)) * 1e9 / 8


def evb(program, scenario, files, seconds, keys):
    """Returns the report of one run. Its files do not stay."""
    command = [program, "run", scenario, "--net", "lab", "--json", "--set", f"sfi.directory={files}", "--set",
               f"scenario.duration={seconds}s"]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180 + 3 * seconds)
    for name in os.listdir(files):
        os.unlink(os.path.join(files, name))
    if not done.stdout:
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)
    report = json.loads(done.stdout)
    report["whole"] = report["events_complete"] == report["triggers"] and report["balanced"]
    return report


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evb", default="build/src/evb", help="program to measure (default: %(default)s)")
    parser.add_argument("--baseline", metavar="PROGRAM", help="another build of evb, to compare with")
    cases_of = parser.add_mutually_exclusive_group()
    cases_of.add_argument("--cases", metavar="REGEX", default=USUAL, help="cases to measure (default: the usual ones)")
    cases_of.add_argument("--readme", dest="cases", action="store_const", const=README, help="measure and print the table of README.md")
    parser.add_argument("--list", action="store_true", help="name all cases, and exit")
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, 100), metavar="N", help="number of rounds (default: %(default)s)")
    # iperf3 takes whole seconds, and 0 as no limit.
    parser.add_argument("--seconds", type=int, choices=range(1, 601), default=10, metavar="N",
                        help="duration of each measurement (default: %(default)s)")
    parser.add_argument("--files", metavar="DIRECTORY", default="/var/tmp",
                        help="disk for the cases that write files (default: %(default)s)")
    parser.add_argument("--spead2", metavar="PROGRAM", help="spead2_bench.py (pip install spead2), to measure beside")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds to FILE")
    return parser.parse_args()


def references(arguments, chosen):
    """Returns a function for each reference that the chosen cases are compared with."""
    seconds = arguments.seconds
    all_references = {
        "iperf3 TCP, 256 KiB writes": lambda: iperf(seconds, "-l", "256K"),
        "iperf3 TCP, 1 kB writes": lambda: iperf(seconds, "-l", "1000"),
        "iperf3 UDP, 1448 B": lambda: iperf(seconds, "-u", "-b", "0", "-l", "1448"),
    }
    for size in sorted({WIRE_BYTES[keys["ros.fragment-size"]] for _, keys in chosen if keys["scenario.transport"] == "udp"}):
        all_references[f"bare wire, {size} B"] = lambda size=size: bare_wire(arguments.evb, seconds, size)
    if arguments.spead2:
        for size in (1024, 14336):
            all_references[f"spead2, {size} B"] = lambda size=size: spead2(arguments.spead2, size)
    return all_references


def references_of(keys):
    """Names the references of a case: iperf3's, and the bare wire's."""
    if keys["scenario.transport"] == "udp":
        return "iperf3 UDP, 1448 B", f"bare wire, {WIRE_BYTES[keys['ros.fragment-size']]} B"
    small = keys["ros.fragment-size"] in ("64", "1KiB")
    return ("iperf3 TCP, 1 kB writes" if small else "iperf3 TCP, 256 KiB writes"), None


def measure(arguments, chosen):
    """Returns a list of rounds; each has the figures of its references, cases and baselines by name."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=arguments.files) as files:
        scenario = os.path.join(folder, "bench.conf")
        with open(scenario, "w", encoding="utf-8") as f:
            f.write(SCENARIO)

        def run(program, keys):
            before = need.stolen()
            report = evb(program, scenario, files, arguments.seconds, keys)
            return {"bytes_per_second": report["throughput_bytes_per_second"], "events_per_second": report["event_rate_hz"],
                    "whole": report["whole"], "cpu_seconds": report["cpu_seconds"],
                    "events": report["events_complete"], "stolen_percent": need.stolen_percent(before)}

        for n in range(arguments.rounds):
            figures = {"references": {}, "cases": {}, "baseline": {}}
            for name, reference in references(arguments, chosen).items():
                before = need.stolen()
                figures["references"][name] = {"bytes_per_second": reference(), "stolen_percent": need.stolen_percent(before)}
            for name, keys in chosen:
                runs = [("cases", arguments.evb)] + ([("baseline", arguments.baseline)] if arguments.baseline else [])
                # The run before leaves its traces, e.g. free memory that is in the caches: each is the first in turn.
                for kind, program in runs[::-1] if n % 2 else runs:
                    figures[kind][name] = run(program, keys)
            rounds.append(figures)
            print(f"bench.py: round {n + 1} of {arguments.rounds} done", file=sys.stderr)
    return rounds


def median(rounds, kind, name, key="bytes_per_second"):
    return statistics.median(r[kind][name][key] for r in rounds)


def ratio(rounds, case, kind, name):
    """The median of the ratios within each round, or None."""
    if name is None or name not in rounds[0][kind]:
        return None
    return statistics.median(r["cases"][case]["bytes_per_second"] / r[kind][name]["bytes_per_second"] for r in rounds)


def tabulate(chosen, rounds):
    """Returns the rows of the table: medians of the references and cases, and medians of the ratios within each round."""
    def row(kind, name, **more):
        return {"name": name, "bytes_per_second": median(rounds, kind, name), **more,
                "stolen_percent_max": max(r[kind][name]["stolen_percent"] for r in rounds)}

    cases_rows = []
    for name, keys in chosen:
        like, bare = references_of(keys)
        cases_rows.append(row("cases", name, events_per_second=median(rounds, "cases", name, "events_per_second"), reference=like,
                              ratio_iperf3=ratio(rounds, name, "references", like), ratio_wire=ratio(rounds, name, "references", bare),
                              ratio_baseline=ratio(rounds, name, "baseline", name)))
    return [row("references", name) for name in rounds[0]["references"]], cases_rows


def print_tables(arguments, references_rows, cases_rows):
    def times(value):
        return "" if value is None else f"{value:.2f}"

    print(f"Linux {platform.release()}, {os.cpu_count()} processors; medians of {arguments.rounds} rounds of {arguments.seconds} s\n")
    print("| reference | MB/s | stolen, at most |\n|---|---:|---:|")
    for r in references_rows:
        print(f"| {r['name']} | {r['bytes_per_second'] / 1e6:,.0f} | {r['stolen_percent_max']:.1f} % |")
    print("\n| case | events/s | payload, MB/s | x iperf3 | x bare wire | x baseline | stolen, at most |\n|---|---:|---:|---:|---:|---:|---:|")
    for r in cases_rows:
        print(f"| {r['name']} | {r['events_per_second']:,.0f} | {r['bytes_per_second'] / 1e6:,.0f} | {times(r['ratio_iperf3'])} |"
              f" {times(r['ratio_wire'])} | {times(r['ratio_baseline'])} | {r['stolen_percent_max']:.1f} % |")


def print_readme(references_rows, cases_rows):
    print("| 6 ROSs, 1 SFI, fragments of 14 KiB | events/s | payload, MB/s | relative to iperf3 |\n|---|---:|---:|---:|")
    for r in cases_rows:
        _, mode, transport, _ = r["name"].split()
        print(f"| {mode}, {transport} | {r['events_per_second']:,.0f} |"
              f" {r['bytes_per_second'] / 1e6:,.0f} | {r['ratio_iperf3']:.2f} |")
    for r in references_rows:
        if r["name"] in {case["reference"] for case in cases_rows}:
            received = ", received" if "UDP" in r["name"] else ""
            print(f"| {r['name'].replace('iperf3 ', 'iperf3, ')}{received} | | {r['bytes_per_second'] / 1e6:,.0f} | 1 |")


def main():
    arguments = parse_arguments()
    try:
        chosen = [(name, keys) for name, keys in cases() if re.search(arguments.cases, name)]
    except re.error as error:
        print(f"bench.py: --cases: {arguments.cases}: {error}", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(name for name, _ in cases()))
        return 0
    if not chosen:
        print(f"bench.py: --cases: {arguments.cases}: matches no case; --list names them", file=sys.stderr)
        return 2
    need.check(("ip", "ss", "iperf3"), arguments.evb)
    try:
        with need.awake():
            rounds = measure(arguments, chosen)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return need.failed(error)

    references_rows, cases_rows = tabulate(chosen, rounds)
    if arguments.cases == README:
        print_readme(references_rows, cases_rows)
    else:
        print_tables(arguments, references_rows, cases_rows)
    fell_short = sorted({name for r in rounds for kind in ("cases", "baseline") for name, f in r[kind].items() if not f["whole"]})
    if fell_short:
        print(f"bench.py: not every event was complete: {', '.join(fell_short)}", file=sys.stderr)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"linux": platform.release(), "processors": os.cpu_count(), "seconds": arguments.seconds,
                       "references": references_rows, "cases": cases_rows, "rounds": rounds}, f, indent=1)
    return 1 if fell_short else 0


if __name__ == "__main__":
    sys.exit(main())
