#!/usr/bin/env python3
"""Sends backups from six machines to one server, without and with evb-qos, and prints what their users see.

    sudo scripts/demo-jobs.py [--evb PROGRAM] [--size BYTES]

The machines are namespaces of this one, the port of the server's switch has 100 Mbit/s and a buffer of 64 KiB. Each backup is an
unmodified iperf3. A seventh machine pings the server meanwhile. Exit status 77: something is missing.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import need

ROOT = pathlib.Path(__file__).resolve().parents[1]
JOBS, RATE, BUFFER = 6, "100Mbit", "64KiB"
SCENARIO = f"[ros]\ncount = {JOBS}\n[sfi]\ncount = 1\n[network]\nlink-rate = {RATE}\nswitch-buffer = {BUFFER}\n"
LIMIT_S = 300


def inside(node, *command, **how):
    return subprocess.Popen(["ip", "netns", "exec", node["namespace"], *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def output(process, limit=LIMIT_S):
    out, err = process.communicate(timeout=limit)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, process.args, out, err or out[-500:])
    return out


def measure(evb, where, size, shaped):
    """Returns the figures of one row."""
    testbed = subprocess.Popen([evb, "testbed", where / "jobs.conf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    servers = []
    try:
        nodes = {node["name"]: node for node in json.loads(testbed.stdout.readline())["nodes"]}
        server, others = nodes["sfi1"], [nodes[f"ros{i + 1}"] for i in range(JOBS)]
        for i, node in enumerate(others if shaped else []):
            # Devices of different namespaces may have the same name.
            (where / f"state{i}").mkdir()
            output(inside(node, pathlib.Path(evb).resolve().with_name("evb-qos"), "apply", "--dev", node["device"], "--dest", server["address"], "--sources", str(JOBS),
                          "--link-rate", RATE, "--switch-buffer", BUFFER, env={**os.environ, "EVB_STATE_DIRECTORY": str(where / f"state{i}")}))
        servers += [inside(server, "iperf3", "-s", "-1", "-p", str(5201 + i), "--forceflush") for i in range(JOBS)]
        for each in servers:
            while "listening" not in each.stdout.readline():
                pass
        ping = inside(nodes["dfm"], "ping", "-i", "0.05", "-c", "100000", "-W", "1", server["address"])
        jobs = [inside(node, "iperf3", "-c", server["address"], "-p", str(5201 + i), "-n", str(size), "--json") for i, node in enumerate(others)]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            ended = list(pool.map(lambda job: (json.loads(output(job))["end"], time.monotonic() - begin), jobs))
        ping.send_signal(2)
        answers = [float(time) for time in re.findall(r"time=([\d.]+) ms", output(ping))]
        testbed.stdin.close()
        dropped = json.loads(testbed.stdout.readline())["switch_packets"]
        testbed.wait(LIMIT_S)
        times = [seconds for _, seconds in ended]
        return (f"{min(times):.1f} to {max(times):.1f} s", f"{dropped:,}", f"{sum(end['sum_sent']['retransmits'] for end, _ in ended):,}",
                f"{statistics.median(answers):.2f} ms")
    finally:
        for process in [*servers, testbed]:
            process.terminate()
            process.wait(LIMIT_S)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--evb", default=str(ROOT / "build/evb"), metavar="PROGRAM")
    options.add_argument("--size", type=int, default=20_000_000, metavar="BYTES", help="size of each backup (default: 20 MB)")
    o = options.parse_args()
    need.check(("ip", "iperf3", "ping"), o.evb)
    print(f"{JOBS} backups of {o.size / 1e6:g} MB to one server behind a port of {RATE}/s; ideal: all end after "
          f"{JOBS * o.size * 8 * 1514 / 1448 / 100e6:.1f} s\n{'':16} {'ended after':>16} {'dropped at port':>16} {'sent again':>11} {'ping':>9}", flush=True)
    with tempfile.TemporaryDirectory(prefix="evb-jobs-") as folder:
        where = pathlib.Path(folder)
        (where / "jobs.conf").write_text(SCENARIO, encoding="utf-8")
        for name in ("without evb-qos", "with evb-qos"):
            ended, dropped, again, answer = measure(o.evb, where, o.size, name.startswith("with "))
            print(f"{name:16} {ended:>16} {dropped:>16} {again:>11} {answer:>9}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(need.failed(error))
    except KeyboardInterrupt:
        sys.exit(130)
