#!/usr/bin/env python3
"""Record what the program prints and makes, or compare it with the recordings beside this file.

    tests/golden/golden.py compare BUILD [SECTION...]   print what differs; exit status 1 if something does
    tests/golden/golden.py record BUILD [SECTION...]    write the recordings again
"""
import argparse
import concurrent.futures
import difflib
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "system"))
RESULTS = ROOT / "docs" / "results" / "lab-quick.jsonl"
LIMIT_S = 600
# Histories of a small system, with faults of nodes and of the network that --chaos draws from the seed.
SMALL = """
[scenario]
mode = push
[trigger]
rate = 2kHz
events = 50
[ros]
count = 3
fragment-size = 2kB
buffer-size = 4MiB
[sfi]
count = 2
output = null
buffer-size = 8MiB
timeout = 40ms
[test]
buffer-events = 64
keep-alive = 5ms
[dfm]
node-timeout = 30ms
[network]
link-rate = 1Gbit
switch-buffer = 64KiB
"""
BLOCK, BLOCKS = 100, 10


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{words}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def names_in(help_text):
    """The commands or verbs that a help text lists."""
    return re.findall(r"^  ([a-z]\S*)", help_text, re.M)


def help_texts(build):
    evb = build / "src" / "evb"
    texts = {"evb": run(evb, "--help")}
    for command in names_in(texts["evb"]):
        texts[f"evb {command}"] = run(evb, command, "--help")
        for verb in names_in(texts[f"evb {command}"]):
            texts[f"evb {command} {verb}"] = run(evb, command, verb, "--help")
    return "\n".join(f"$ {name} --help\n{text}" for name, text in texts.items())


def keys(build):
    return run(build / "src" / "evb", "check", "--keys")


def metrics(build):
    return run(build / "src" / "evb", "check", "--metrics")


def fields_of(value, path=""):
    """The names of all values in a report: "nodes[].role"."""
    if isinstance(value, dict):
        return {field for name, each in value.items() for field in fields_of(each, f"{path}.{name}" if path else name)}
    if isinstance(value, list):
        return {field for each in value for field in fields_of(each, f"{path}[]")} or {f"{path}[]"}
    return {path}


def split_nodes(reports):
    """Yields names and lists of objects. The nodes of a report are reports, too: they have the same fields as others."""
    for name, objects in reports.items():
        nodes = [node for each in objects if isinstance(each.get("nodes"), list) for node in each.pop("nodes")]
        yield name, objects
        if nodes:
            yield f"nodes of {name}", nodes


def field_text(reports):
    """`reports`: lists of objects by name. A line for each field, with the names of all reports that have it."""
    names = {}
    for name, objects in split_nodes(reports):
        fields = set().union(*(fields_of(each) for each in objects))
        for field in fields:
            # An empty list stands for one with members.
            if not any(other.startswith((field + ".", field + "[")) for other in fields):
                names.setdefault(field, []).append(name)
    return "".join(f"{line}\n" for line in sorted(f"{', '.join(having)}: {field}" for field, having in names.items()))


def reports(build):
    evb = build / "src" / "evb"
    with tempfile.TemporaryDirectory(prefix="evb-test-") as name:
        where = pathlib.Path(name)
        run(build / "tests" / "golden" / "golden_files", where)
        events = sorted((where / "push-udp-eformat3").glob("*.data"))[0]
        (where / "small.conf").write_text(SMALL)
        found = {role: [json.loads(path.read_text()) for path in sorted(where.glob(f"*/{role}*.json"))]
                 for role in ("dfm", "ros", "sfi", "frontend", "level2")}
        for words in (["check", where / "small.conf", "--json"], ["sim", where / "small.conf", "--json"],
                      ["sim", where / "small.conf", "--count", "2", "--json"], ["lab", "list", "--json"],
                      ["lab", "report", RESULTS, "--json"], ["qos", "status", "--dev", "lo", "--json"],
                      ["qos", "plan", "--dev", "lo", "--dest", "127.0.0.5", "--link-rate", "1Gbit", "--set", "network.port=1", "--json"],
                      ["dump", events, "--json"], ["dump", events, "--verify", "--json"]):
            found[" ".join(word for word in words if isinstance(word, str) and word != "--json")] = [json.loads(run(evb, *words))]
    return field_text(found)


def processes(build):
    from harness import SMALL as PROCESSES, Running, folder, scenario, settings
    from network import wait_until
    from streams import CALM, both
    evb = str(build / "src" / "evb")
    found = {}
    with folder() as where:
        os.environ["XDG_STATE_HOME"] = str(where)
        path, places = scenario(where, PROCESSES), {"metrics.listen": f"unix:{where}/%n.sock", "control.listen": f"unix:{where}/control"}
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "100Hz", "sfi.output": "file", "sfi.directory": where, **places}) as of_run:
            of_run.wait_running()
            # The launcher has looked at the processes then, at the latest.
            of_run.wait_for("events for a second", lambda: of_run.counter("dfm", "events_complete") >= 100)
            for words in (["status", "--scenario", path], ["top", "--count", "1", "--scenario", path], ["ctl", "status", "--scenario", path]):
                def answer(words=words):
                    done = subprocess.run([evb, *words, "--json", *settings(places)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
                    report = done.returncode == 0 and json.loads(done.stdout)
                    # evb top is content with one answer, and its object says if others are missing.
                    return report and report.get("ok", True) and report

                # Of a busy machine, a node may not answer in time.
                found[" ".join(words[:-2])] = [wait_until(f"answer of all nodes to evb {words[0]}", answer)]
            of_run.signal()
            found["run"] = [of_run.end(expect=(0,))]
        found["stream send"], found["stream recv"] = ([report] for report in both(evb, "pattern:1MB", "pattern", send={"rate": CALM}))
    return field_text(found)


def files(build):
    with tempfile.TemporaryDirectory(prefix="evb-test-") as name:
        run(build / "tests" / "golden" / "golden_files", name)
        paths = sorted(pathlib.Path(name).glob("*/*.data"))
        return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size:7} {path.relative_to(name)}\n" for path in paths)


def histories(build):
    with tempfile.TemporaryDirectory(prefix="evb-test-") as name:
        path = pathlib.Path(name) / "small.conf"
        path.write_text(SMALL)

        def block(i):
            mode = ["push", "pull"][i % 2]
            text = run(build / "src" / "evb", "sim", path, "--chaos", "--count", BLOCK, "--seed", 1 + i * BLOCK,
                       "--set", f"scenario.mode={mode}")
            return f"{mode}: {text}"

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return "".join(pool.map(block, range(BLOCKS)))


def verdicts(build):
    report = json.loads(run(build / "src" / "evb", "lab", "report", RESULTS, "--json"))
    return "".join(f"{m['id']} {m['verdict']}: {m['why']}\n" for m in report["measurements"])


def points(_):
    """How many points each measurement has, in full, quick and simulated, and a digest of their settings: stored results have the
    same, or are not reused."""
    sys.path.insert(0, str(ROOT / "python"))
    from evb.lab.catalogue import MEASUREMENTS
    from evb.lab.measurement import Simulation, points_of
    found = []
    for m in MEASUREMENTS:
        found.append(m.id)
        for name, each in (("full", points_of(m)), ("quick", points_of(m, quick=True)), ("model", points_of(m, Simulation(model="processors=2")))):
            text = "".join(f"{p.panel or ''}|{p.series}|{p.x:.17g}|{p.settings}\n" for p in each)
            found.append(f" {name} {len(each)} {hashlib.sha256(text.encode()).hexdigest()[:32]}")
        found.append("\n")
    return "".join(found)


SECTIONS = {"help": help_texts, "keys": keys, "metrics": metrics, "reports": reports, "processes": processes, "files": files,
            "histories": histories, "points": points, "verdicts": verdicts}


def compare(build, name):
    path = HERE / f"{name}.txt"
    old, new = path.read_text() if path.exists() else "", SECTIONS[name](build)
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"recorded/{name}.txt", f"now/{name}.txt", n=2))
    return old == new


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    arguments = parser.parse_args()
    names, build = arguments.sections or list(SECTIONS), arguments.build.resolve()
    # A simulated ROS has a buffer that it hardly touches, unless malloc fills all of it.
    os.environ.pop("MALLOC_PERTURB_", None)
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"unknown section {', '.join(unknown)}")
    if arguments.what == "record":
        for name in names:
            (HERE / f"{name}.txt").write_text(SECTIONS[name](build))
        return 0
    different = [name for name in names if not compare(build, name)]
    if different:
        print(f"\nThe behaviour differs from that recorded in tests/golden. If your change intends this, record it anew, and commit\n"
              f"the recordings with the change:\n    tests/golden/golden.py record BUILD {' '.join(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
