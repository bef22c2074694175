#!/usr/bin/env python3
"""Count the instructions and system calls of an event, and compare them with the recorded figures.

    scripts/counts.py [--program FILE] calls|instructions   compare; exit status 1 if a figure grew by more than 5 %
    scripts/counts.py [--program FILE] show                 print the present figures
    scripts/counts.py [--program FILE] record               record the present figures as those to hold

The program (default: build/tests/counts/counted) runs all nodes of a scenario in one process, in virtual time and
with sockets of its own, so that its figures are the same in each run and on each machine. Callgrind counts the
instructions. They depend on compiler, options, C library and AVX2, so each build has figures of its own in
tests/counts/figures.json; one without is skipped. System calls do not depend on them.

Exit status: 0, 1 (see above), 2 (wrong use), 77 (valgrind is missing, or this build has no recorded figures).
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "tests" / "counts" / "figures.json"
LIMIT = 1.05
# A layer with a smaller share of its role is held only as a part of the role, and a function is not recorded.
LAYER_SHARE, FUNCTION_SHARE = 0.02, 0.005
COMMON = ["sfi.count=1", "ros.fragment-size=1024", "sfi.output=null", "sfi.credits=32"]
# Name: number of counted events, and settings. Batches are as large as the credits, or one event each ("single").
SCENARIOS = {
    "push-1x1": (3000, ["scenario.mode=push", "ros.count=1", "trigger.rate=max"]),
    "push-6x1": (2000, ["scenario.mode=push", "ros.count=6", "trigger.rate=max"]),
    "pull-1x1": (3000, ["scenario.mode=pull", "ros.count=1", "trigger.rate=max"]),
    "pull-6x1": (2000, ["scenario.mode=pull", "ros.count=6", "trigger.rate=max"]),
    "push-6x1-tcp": (2000, ["scenario.mode=push", "scenario.transport=tcp", "ros.count=6", "trigger.rate=max"]),
    "pull-6x1-tcp": (2000, ["scenario.mode=pull", "scenario.transport=tcp", "ros.count=6", "trigger.rate=max"]),
    "push-6x1-single": (1000, ["scenario.mode=push", "ros.count=6", "trigger.rate=1kHz"]),
}
# The C library chooses its functions by the processor. These names keep it from that.
TUNABLES = "glibc.cpu.hwcaps=" + ",".join(f"-{f}" for f in (
    "AVX512F", "AVX512VL", "AVX512BW", "AVX2", "AVX", "BMI2", "ERMS", "FSRM", "RTM", "SSSE3", "SSE4_1", "SSE4_2",
    "AVX_Fast_Unaligned_Load", "Fast_Unaligned_Copy", "Fast_Copy_Backward"))
PLACE = re.compile(r"^(?:.*/)?(src|tests/counts)/(.+)$")
SYSTEM_CALL = re.compile(r"^SYSCALL\[\d+,\d+\]\(\s*\d+\) sys_(\w+)", re.M)


class Missing(Exception):
    """Something that this machine or build lacks, by name."""


class Failed(Exception):
    """The run itself went wrong."""


def place_of(path):
    """Returns ("core/dfm", "core/dfm/dfm.c") for a file of the product, None for another one."""
    match = PLACE.search(path)
    if not match or match[1] == "tests/counts":
        return None
    parts = match[2].split("/")
    return "/".join(parts[:2] if parts[0] in ("core", "shape") and len(parts) > 2 else parts[:1]), match[2]


class Profile:
    """The instructions of a role, by layer and by function; those of libraries count for their callers."""

    def __init__(self):
        self.layers, self.functions = collections.Counter(), collections.Counter()

    def add(self, text):
        """Adds what callgrind wrote."""
        fl = line_file = function = home = callee = None
        library = callee_library = False
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "ob":
                library = os.path.basename(value) != "counted"
            elif key == "fl":
                fl = line_file = value
            elif key in ("fi", "fe"):
                line_file = value
            elif key == "fn":
                home = None if library else place_of(fl)
                function = re.sub(r"\.(isra|part|constprop|cold)(\.\d+)?|'\d+", "", value)
                callee, callee_library = None, library
            elif key == "cob":
                callee_library = os.path.basename(value) != "counted"
            elif key == "cfn":
                callee = value
            elif line[:1].isdigit() and home:
                cost = int(line.split()[1])
                if callee is None:
                    self.layers[(place_of(line_file) or home)[0]] += cost
                    self.functions[f"{home[1]}: {function}"] += cost
                elif callee_library:
                    self.layers["libraries"] += cost
                    self.functions[f"{home[1]}: {function}, in {callee.split('@')[0]}"] += cost
                callee, callee_library = None, library
            elif line[:1].isdigit():
                callee = None


def run(program, name, folder=None):
    """Runs a scenario, with a folder under callgrind. Returns what the program reports, and valgrind's log."""
    events, settings = SCENARIOS[name]
    command, log = [str(program), str(events), *COMMON, *settings], ""
    environment = {"PATH": os.environ["PATH"], "LD_BIND_NOW": "1", "GLIBC_TUNABLES": TUNABLES}
    if folder:
        log = folder / f"{name}.log"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", "--trace-syscalls=yes",
                   "--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={folder}/{name}.out",
                   f"--log-file={log}", *command]
    else:
        environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Failed(f"{name}: {' '.join(command)} ended with status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), log and log.read_text(errors="replace")


def calls_of(report):
    """System calls per 1,000 fragments, by role and name."""
    return {role: {name: round(1000 * n / report["fragments"], 2) for name, n in calls.items() if n}
            for role, calls in report["calls"].items()}


def per_event(counter, events):
    """Largest first, and in a fixed order."""
    return {k: round(n / events, 1) for k, n in sorted(counter.items(), key=lambda item: (-item[1], item[0]))}


def instructions_of(report, name, folder):
    """Instructions per event, by role: in all, by layer and by function."""
    profiles = {role: Profile() for role in report["roles"]}
    # Thread 1 is the main thread; the nodes follow in their order.
    for thread, role in enumerate(report["roles"], 2):
        profiles[role].add((folder / f"{name}.out-{thread:02}").read_text(errors="replace"))
    figures = {}
    for role, profile in profiles.items():
        total = sum(profile.layers.values())
        if not total:
            raise Failed(f"{name}: callgrind counted nothing of role {role}")
        figures[role] = {"all": round(total / report["events"], 1), "layers": per_event(profile.layers, report["events"]),
                         "functions": per_event(profile.functions, report["events"])}
    return figures


def other_calls(name, log):
    """System calls while events were counted that did not go through the program's own sockets. The nodes wait for
    each other by futex."""
    parts = log.split("counted: ")
    if len(parts) < 3:
        raise Failed(f"{name}: no begin and end of the counted events in valgrind's log")
    found = collections.Counter(SYSTEM_CALL.findall(parts[1]))
    found.pop("futex", None)
    return found


def require_callgrind(program):
    if not shutil.which("valgrind"):
        raise Missing("valgrind is not installed; scripts/deps.sh test installs it")
    report, _ = run(program, "push-1x1")
    if not report["callgrind"]:
        raise Missing("the program was built without valgrind/callgrind.h; install valgrind, then run meson setup --reconfigure "
                      "build")
    return report["build"]


def count_calls(program):
    return {name: calls_of(run(program, name)[0]) for name in SCENARIOS}


def count_instructions(program):
    figures = {}
    with tempfile.TemporaryDirectory(prefix="evb-counts-") as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(folder)
        for name, (report, log) in zip(SCENARIOS, pool.map(lambda n: run(program, n, folder), SCENARIOS)):
            others = other_calls(name, log)
            if others:
                raise Failed(f"{name}: system calls that tests/counts does not know: {dict(others)}; add them to "
                                   "enum counted_call")
            figures[name] = instructions_of(report, name, folder)
    return figures


def compare(findings, what, unit, now, recorded):
    if now > recorded * LIMIT:
        findings.append(f"{what}: {now:,.1f} {unit}, recorded {recorded:,.1f} ({100 * (now / recorded - 1):+.1f} %)"
                        if recorded else f"{what}: {now:,.1f} {unit}, recorded none")
    return now > recorded * LIMIT


def compare_calls(now, recorded):
    findings, unit = [], "system calls per 1,000 fragments"
    for name, roles in now.items():
        for role, calls in roles.items():
            before = recorded[name][role]
            for call in calls:
                compare(findings, f"{name}, {role}, {call}", unit, calls[call], before.get(call, 0))
            compare(findings, f"{name}, {role}", unit, sum(calls.values()), sum(before.values()))
    return findings


def growth(now, recorded):
    """The functions whose figures grew most, as text."""
    by = sorted(((n - recorded["functions"].get(k, 0), k) for k, n in now["functions"].items()), reverse=True)
    return [f"    {n:+10,.1f}  {k}" for n, k in by[:5] if n > FUNCTION_SHARE * now["all"]]


def compare_instructions(now, recorded):
    findings = []
    for name, roles in now.items():
        for role, figures in roles.items():
            before, grew = recorded[name][role], False
            grew |= compare(findings, f"{name}, {role}", "instructions per event", figures["all"], before["all"])
            for layer, n in figures["layers"].items():
                if n >= LAYER_SHARE * figures["all"]:
                    grew |= compare(findings, f"{name}, {role}, {layer}", "instructions per event", n,
                                    before["layers"].get(layer, 0))
            if grew:
                findings.extend(growth(figures, before))
    return findings


def load():
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {"calls": {}, "instructions": {}}


def record(program):
    figures, build = load(), require_callgrind(program)
    figures["calls"] = count_calls(program)
    found = figures["instructions"][build] = count_instructions(program)
    for roles in found.values():
        for f in roles.values():
            f["functions"] = {k: n for k, n in f["functions"].items() if n >= FUNCTION_SHARE * f["all"]}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"recorded {build} in {FIGURES.relative_to(ROOT)}")
    return []


def show(program):
    build, calls = require_callgrind(program), count_calls(program)
    print(f"Instructions per event of each role, with {build}:\n")
    for name, roles in count_instructions(program).items():
        for role, f in roles.items():
            print(f"{name}, {role}: {f['all']:,.0f} = " + " + ".join(f"{n:,.0f} {k}" for k, n in f["layers"].items()))
    print("\nSystem calls per 1,000 fragments:\n")
    for name, roles in calls.items():
        for role, by in roles.items():
            print(f"{name}, {role}: {sum(by.values()):.2f} = " + " + ".join(f"{n} {k}" for k, n in by.items()))
    return []


def check_calls(program):
    return compare_calls(count_calls(program), load()["calls"])


def check_instructions(program):
    build, recorded = require_callgrind(program), load()["instructions"]
    if build not in recorded:
        raise Missing(f"figures are recorded for {'; '.join(recorded)}; this build is {build}")
    return compare_instructions(count_instructions(program), recorded[build])


def main():
    actions = {"calls": check_calls, "instructions": check_instructions, "show": show, "record": record}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "tests" / "counts" / "counted", type=pathlib.Path, metavar="FILE")
    parser.add_argument("action", choices=actions)
    options = parser.parse_args()
    if not options.program.exists():
        parser.error(f"{options.program} does not exist; build it with scripts/build.sh")
    try:
        findings = actions[options.action](options.program)
    except Missing as error:
        print(f"counts.py: skipped: {error}", file=sys.stderr)
        return 77
    except Failed as error:
        print(f"counts.py: {error}", file=sys.stderr)
        return 1
    if findings:
        print("more than 5 % above the recorded figures:", *findings, sep="\n", file=sys.stderr)
        print("If the growth is worth it, record it with: scripts/counts.py record", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
