#!/usr/bin/env python3
"""Break real runs on purpose, many times at random, and check that the outcome is the one that docs/reliability.md states.

    sudo scripts/faults.py                                # 20 repetitions of each fault
    sudo scripts/faults.py --repetitions 200 --jobs 4 --json faults.json
    sudo scripts/faults.py kill-sfi loss --seed 7         # two faults, with other random moments
    sudo scripts/faults.py kill-sfi --seed 7 --only 13    # one repetition again, with the logs of its nodes
    scripts/faults.py --list
    scripts/faults.py --document faults.json              # writes the tables of docs/reliability.md
    scripts/faults.py --check-document

Each repetition is a run of some seconds in network namespaces of its own: a DFM, three ROSs and two SFIs that write files, in
push or pull, over UDP or TCP, at random. The fault comes at a random moment. Afterwards, the script checks the accounts, the exit
statuses, the time without events, every file (with `evb dump --verify`, and with another reader if EVB_SHARED has one), and that
no process and no namespace is left. Its exit status is 1 if any outcome differs. It needs root.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import need
from fault_bed import ROLES, SETTINGS, Bed, Violation, balance, check_files, clean, namespaces_of, processes_of, require
from fault_table import ANY, CLOCK_SHIM, FAULTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reliability.md"
REPETITION_LIMIT_S = 300


def play(fault, evb, where, r):
    """Makes one run with the fault; returns what was measured."""
    keys = {"scenario.mode": r.choice(["push", "pull"]), "scenario.transport": r.choice(["udp", "tcp"]), **fault.keys,
            **(fault.draw(r) if fault.draw else {})}
    with Bed(evb, where, r, keys) as b:
        b.facts.update(mode=keys["scenario.mode"], transport=keys["scenario.transport"])
        b.start_all(fault.before(b) if fault.before else None)
        b.wait_running()
        b.facts["moment_s"] = b.pause(0, 1.0)
        since = time.monotonic()
        fault.make(b)
        b.facts["statuses"] = b.wait_all()
        b.facts["end_s"] = time.monotonic() - since
        b.sampler.stopping.set()
        b.sampler.join()
        check(fault, b, since)
        return b.facts


def check(fault, b, since):
    """Compares the outcome with the stated one."""
    check_statuses(fault, b)
    report = b.report("dfm")
    if report:
        check_accounts(fault, b, report, since)
    require(report or "dfm" in b.killed, f"the DFM has no report: {b.log('dfm')[-500:]}")
    require(b.facts["end_s"] <= fault.end_s, f"the run ended {b.facts['end_s']:.1f} s after the fault")
    if fault.settle:
        fault.settle(b)
    check_events(fault, b, report)
    if fault.after:
        fault.after(b, report)


def check_statuses(fault, b):
    for node, status in b.facts["statuses"].items():
        allowed = fault.exits[ROLES[node.partition("-")[0]]]
        if node not in b.killed or b.restarts[node] > 0:
            require(status in allowed, f"{node}: exit status {status}, stated are {sorted(allowed)}: {b.log(node)[-800:]}")


def check_accounts(fault, b, report, since):
    ends = balance(report)
    b.facts.update(triggers=report["triggers"], **ends)
    require(report["triggers"] > 0 and ends["complete"] > 0, f"nothing was built: {ends}")
    for end, most in (("lost", fault.lost), ("partial", fault.partial)):
        require(most is ANY or ends[end] <= most, f"{ends[end]} events are {end}, stated are {most}: {report['reasons']}")
    bad = ends["lost"] + ends["partial"]
    require((bad > 0) <= bool(report["reasons"]), f"{bad} events are partial or lost, and the DFM names no reason")
    b.facts["pause_s"] = b.sampler.longest_pause_s(since)
    require(fault.pause_s is ANY or b.facts["pause_s"] <= fault.pause_s,
            f"no event ended for {b.facts['pause_s']:.1f} s, stated are {fault.pause_s} s")


# What nodes say if an event may be in two files.
DOUBLES = re.compile("files may hold (?:them|it) twice|hold events that other SFIs built too|did not acknowledge|was restarted with open events|"
                     "fell silent and did not return")


def says_doubles(b):
    return any(DOUBLES.search(b.log(node)) for node in b.processes)


def check_events(fault, b, report):
    """Compares the files with the accounts; without a report of the DFM, with what it had counted last."""
    folders = {b.directories.get(node, b.where / node) for node, role in ROLES.items() if role == "sfi"}
    found = check_files(b.evb, folders, b.where / "repaired")
    held = set(found)
    b.facts.update(doubles=len(found) - len(held), stored=len(held))
    require(len(found) == len(held) or (fault.doubles and says_doubles(b)), f"{len(found) - len(held)} events are in two files")
    if not report:
        require(len(held) >= b.sampler.samples[-1][1] > 0, f"{len(held)} events are in files, the DFM had counted {b.sampler.samples[-1][1]}")
        return
    require(max(held, default=0) < report["triggers"], f"event {max(held, default=0)} is in a file, but there were {report['triggers']} triggers")
    missing = report["triggers"] - len(held)
    require(missing <= report["events_lost"], f"{missing} events are in no file, but {report['events_lost']} are lost")


def repeat_inside(name, number, seed, evb, where):
    """One repetition, in this process. Prints its result."""
    fault, r = FAULTS[name], random.Random(f"{seed}/{name}/{number}")
    began = time.monotonic()
    result = {"fault": name, "number": number, "seed": seed}
    try:
        result.update(play(fault, evb, where, r))
        left = processes_of(where)
        require(not left, f"processes {left} are left")
        require(not namespaces_of(os.getpid()), f"namespaces {namespaces_of(os.getpid())} are left")
        result["violation"] = None
    except (Violation, AssertionError) as reason:
        result["violation"] = str(reason)
    result["seconds"] = time.monotonic() - began
    print(json.dumps(result))


def repeat(o, name, number):
    """One repetition, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="evb-faults-", ignore_cleanup_errors=True) as where:
        words = [sys.executable, __file__, name, "--seed", str(o.seed), "--only", str(number), "--evb", o.evb, "--inside", where]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, err = process.communicate(timeout=REPETITION_LIMIT_S)
                result = json.loads(out) if out else {"violation": f"the script failed: {err[-800:]}"}
            except subprocess.TimeoutExpired:
                process.kill()
                result = {"violation": f"the repetition did not end within {REPETITION_LIMIT_S} s"}
            if o.only is not None or result["violation"]:
                result["logs"] = {path.name: path.read_text(errors="replace")[-4000:] for path in pathlib.Path(where).glob("*.log")}
            clean(process.pid, where)
    return {"fault": name, "number": number, "seed": o.seed, **result}


def spread(results, name):
    """Median and worst of what was measured."""
    values = [result[name] for result in results if result.get(name) is not None]
    return {"median": statistics.median(values), "worst": max(values)} if values else None


def summarize(results):
    rows = {}
    for name in FAULTS:
        own = [result for result in results if result["fault"] == name]
        if own:
            rows[name] = {"repetitions": len(own), "violations": sum(bool(result["violation"]) for result in own),
                          **{key: spread(own, key) for key in ("pause_s", "end_s", "lost", "partial", "doubles", "seconds")}}
    return rows


def cell(value, form="{:.2f}"):
    return "" if value is None else f"{form.format(value['median'])} / {form.format(value['worst'])}"


def print_rows(rows):
    print(f"{'fault':18} {'runs':>5} {'wrong':>5} {'pause s':>13} {'lost':>11} {'partial':>11} {'doubles':>9}   (median / worst)")
    for name, row in rows.items():
        print(f"{name:18} {row['repetitions']:5} {row['violations']:5} {cell(row['pause_s']):>13} {cell(row['lost'], '{:.0f}'):>11} "
              f"{cell(row['partial'], '{:.0f}'):>11} {cell(row['doubles'], '{:.0f}'):>9}")


def bound(value):
    return "as hit" if value is ANY else str(value)


def stated():
    """The table of outcomes for docs/reliability.md."""
    lines = ["| fault | how it is made | outcome | lost | partial | pause at most |", "|---|---|---|---:|---:|---:|"]
    for fault in FAULTS.values():
        pause = "the run ends" if fault.pause_s is ANY else f"{fault.pause_s:g} s"
        lines.append(f"| `{fault.name}` | {fault.made} | {fault.outcome} | {bound(fault.lost)} | {bound(fault.partial)} | {pause} |")
    return "\n".join(lines)


def measured(rows):
    """The table of what was measured."""
    lines = ["| fault | repetitions | as stated | pause, s | lost | partial |", "|---|---:|---:|---:|---:|---:|"]
    for name, row in rows.items():
        lines.append(f"| `{name}` | {row['repetitions']} | {row['repetitions'] - row['violations']} | {cell(row['pause_s'])} | "
                     f"{cell(row['lost'], '{:.0f}')} | {cell(row['partial'], '{:.0f}')} |")
    return "\n".join(lines)


def settings():
    return "\n".join(f"    {key} = {value}" for key, value in SETTINGS.items())


def section(text, name, content=None):
    """Returns the part of a document between two marks, or the document with another part."""
    found = re.search(rf"(<!-- {name}: begin[^\n]*-->\n)(.*?)(\n<!-- {name}: end -->)", text, re.S)
    if not found:
        sys.exit(f"faults.py: {DOCUMENT} has no part {name}")
    return found[2] if content is None else text[:found.end(1)] + content + text[found.start(3):]


def write_document(paths):
    """Writes the tables, with the repetitions of all results together."""
    results = [result for path in paths for result in json.loads(pathlib.Path(path).read_text())["repetitions"]]
    text = section(section(DOCUMENT.read_text(), "outcomes", stated()), "settings", settings())
    DOCUMENT.write_text(section(text, "measured", measured(summarize(results))))


def write_result(o, results):
    """Written after each repetition, so that one that is interrupted has a result too."""
    if o.json:
        new = pathlib.Path(f"{o.json}.new")
        new.write_text(json.dumps({"seed": o.seed, "settings": SETTINGS, "faults": summarize(results), "repetitions": results}, indent=1))
        new.rename(o.json)


def check_document():
    text = DOCUMENT.read_text()
    for name, content in (("outcomes", stated()), ("settings", settings())):
        if section(text, name) != content:
            print(f"faults.py: the part {name} of docs/reliability.md differs from scripts/fault_table.py; run --document", file=sys.stderr)
            return 1
    return 0


def repeat_all(o):
    """Makes all repetitions, several at once, and prints those that went wrong as they come."""
    order = [(name, number) for number in ([o.only] if o.only is not None else range(o.repetitions)) for name in o.faults]
    results = []
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for result in pool.map(lambda pair: repeat(o, *pair), order):
            results.append(result)
            write_result(o, results)
            if result["violation"]:
                print(f"{result['fault']} {result['number']}: {result['violation']}", file=sys.stderr, flush=True)
            elif sys.stderr.isatty():
                print(f"\r{len(results)} of {len(order)}", end="", file=sys.stderr, flush=True)
    return results


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="faults (default: all)")
    parser.add_argument("--repetitions", type=int, default=20, help="of each fault (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of all random moments (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="repetitions at once (default: 2)")
    parser.add_argument("--only", type=int, help="only this repetition, with the logs of its nodes in the result")
    parser.add_argument("--evb", default=str(ROOT / "build/src/evb"))
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("--list", action="store_true", help="print the faults and their outcomes")
    parser.add_argument("--document", metavar="RESULT", nargs="+", help="write the tables of docs/reliability.md from these results")
    parser.add_argument("--check-document", action="store_true", help="check that docs/reliability.md has these faults and outcomes")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    o = parser.parse_args()
    unknown = [name for name in o.faults if name not in FAULTS]
    if unknown:
        parser.error(f"unknown fault {unknown[0]}; expected {', '.join(FAULTS)}")
    o.faults = o.faults or list(FAULTS)
    return o


def main():
    o = parse()
    if o.list:
        print(stated())
        return 0
    if o.document:
        write_document(o.document)
        return 0
    if o.check_document:
        return check_document()
    need.check(("ip", "ss", "nft"), o.evb)
    if "clock-step" in o.faults and not CLOCK_SHIM.exists():
        print(f"faults.py: {CLOCK_SHIM} does not exist; build the tests: scripts/build.sh build -Dtests=true", file=sys.stderr)
        return 77
    o.evb = str(pathlib.Path(o.evb).resolve())
    if o.inside:
        return repeat_inside(o.faults[0], o.only, o.seed, o.evb, pathlib.Path(o.inside))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = repeat_all(o)
    print_rows(summarize(results))
    return int(any(result["violation"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
