#!/usr/bin/env python3
"""Defects planted in the product: the tests find each of them.

    test_mutants.py EVB [CASE...]

Each file of tests/mutants says what is wrong, and is a patch. Its second line may name the test that finds it, `Test: NAME`;
others are defects of the cores, which simulated histories find, first looked for in those of the scenario that the second
line names, `Scenario: SEED`. The patch changes copies of source files; these are compiled with the options of the build but its
optimization, which takes longer than it saves here, and linked with all other objects of the program, without what a debugger
needs. The sources of a unit test are compiled, too.
"""
import contextlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess

from harness import LIMIT_S, ROOT, Skip, folder, main

MUTANTS = ROOT / "tests" / "mutants"
# As many as test_sim.py runs.
BUDGET = ["--scenarios", "500", "--histories", "20"]
INVARIANTS = {"ends-once", "accounts-balance", "events-unmixed", "buffers-bounded", "nothing-waits", "plan-holds", "nothing-lost"}
LEAST_MUTANTS = 10


def output_of(words, **options):
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, (words, done.stdout)
    return done.stdout


def compile_as(entry, source, to, *options):
    """Compiles a source file as the build compiles that of an entry of its compile commands."""
    words = shlex.split(entry["command"])
    words[words.index("-o") + 1] = to
    words[words.index(entry["file"])] = source
    words[words.index("-MF") + 1] = to.with_suffix(".d")
    output_of([*words, "-w", "-g0", "-O0", *options], cwd=entry["directory"])
    return to


def build_of(evb):
    return next(folder for folder in pathlib.Path(evb).resolve().parents if (folder / "compile_commands.json").exists())


def make(evb, patch, where, program="src/evb"):
    """Builds a program with the defect. Members of archives that the changed objects replace are not linked."""
    build = build_of(evb)
    sources = [pathlib.Path(path) for path in re.findall(r"^--- a/(\S+)", patch.read_text(), re.M)]
    for source in sources:
        (where / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, where / source)
    done = subprocess.run(["patch", "-p1", "-F0", "-i", patch], cwd=where, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"mutant {patch.stem} no longer applies: {done.stdout}"
    entries = json.loads((build / "compile_commands.json").read_text())
    by_source = {(pathlib.Path(entry["directory"]) / entry["file"]).resolve(): entry for entry in entries}
    objects = [compile_as(by_source[ROOT / source], where / source, where / (source.stem + ".o"), "-iquote", (ROOT / source).parent) for source in sources]
    link = output_of(["ninja", "-C", build, "-t", "commands", program]).splitlines()[-1]
    words = shlex.split(link)
    # The gate's build does not make unit tests: it has none, or those of earlier sources.
    for entry in entries:
        if entry["output"] in words and entry["output"].startswith("tests/unit/"):
            words[words.index(entry["output"])] = compile_as(entry, entry["file"], where / pathlib.Path(entry["output"]).name)
    mutant = where / "evb"
    words[words.index("-o") + 1] = mutant
    at = words.index("-Wl,--start-group") if "-Wl,--start-group" in words else words.index("-o") + 3
    # It links in a third of the time.
    gold = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
    output_of([*words[:at], *gold, "-Wl,--strip-debug", *objects, *words[at:]], cwd=build)
    return mutant


def histories(mutant, *words):
    return subprocess.run([ROOT / "scripts" / "sim-histories.py", "--evb", mutant, *words], capture_output=True, text=True, timeout=5 * LIMIT_S, cwd=ROOT)


def how(done):
    """The invariant that a history violates, or `assertion`. None: nothing was found."""
    found = re.search(r"^evb sim: seed \d+, at \S+ s: ([a-z-]+): ", done.stderr, re.M)
    if done.returncode == 1 and found and found[1] in INVARIANTS:
        return found[1]
    return "assertion" if done.returncode == 1 and "Assertion" in done.stderr else None


@contextlib.contextmanager
def needed():
    for program in ("patch", "ninja", "cc"):
        if not shutil.which(program):
            raise Skip(f"{program} is missing")
    yield


def patches():
    """{patch: the name of the test that finds it, or None}"""
    found = {patch: re.search(r"^Test: (\S+)$", patch.read_text(), re.M) for patch in sorted(MUTANTS.glob("*.patch"))}
    return {patch: test and test[1] for patch, test in found.items()}


def search(mutant, patch):
    """Runs histories until one finds the defect: those of its scenario, or if they do not find it, all."""
    named = re.search(r"^Scenario: (\d+)$", patch.read_text(), re.M)
    if named:
        assert int(named[1]) <= int(BUDGET[1]), (patch, named[1])
        done = histories(mutant, *BUDGET[2:], "--seed", named[1], "--scenarios", "1")
        if how(done):
            return done
    return histories(mutant, *BUDGET)


def caught_by_histories(evb):
    """Each one violates an invariant in some history, or an assertion of its core."""
    found = [patch for patch, test in patches().items() if not test]
    assert len(found) >= LEAST_MUTANTS, found
    missed = []
    with needed():
        for patch in found:
            with folder() as where:
                done = search(make(evb, patch, where), patch)
                reason = how(done)
                print(f"{patch.stem}: {reason or 'MISSED'}", flush=True)
                if not reason:
                    missed.append((patch.stem, done.stdout[-500:], done.stderr[-2000:]))
    assert not missed, missed


def caught_by_tests(evb):
    """Each one fails its test, which passes without it."""
    build = build_of(evb)
    listed = json.loads(output_of(["meson", "introspect", "--tests", build]))
    programs = {test["name"]: test["cmd"] for test in listed}
    missed = []
    with needed():
        for patch, test in patches().items():
            if not test:
                continue
            words = programs[test]
            with folder() as where:
                mutant = make(evb, patch, where, str(pathlib.Path(words[0]).relative_to(build)))
                status = subprocess.run([mutant, *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S,
                                        cwd=build).returncode
                print(f"{patch.stem}: {'MISSED by ' if status in (0, 77) else ''}{test}", flush=True)
                if status in (0, 77):
                    missed.append((patch.stem, test))
    assert not missed, missed


def outdated(evb):
    """A patch that no longer applies is named."""
    with needed(), folder() as where:
        patch = where / "old-defect.patch"
        patch.write_text((MUTANTS / "end-counts-twice.patch").read_text().replace("dfm_record_end", "dfm_record_ended"))
        try:
            make(evb, patch, where)
        except AssertionError as e:
            assert "mutant old-defect no longer applies" in str(e), e
            return
    raise AssertionError("the patch applied")


def reduced(evb):
    """A failing history of a mutant becomes a short one, which one command repeats."""
    with needed(), folder() as where:
        mutant = make(evb, MUTANTS / "fragment-counts-twice.patch", where)
        seed = 0
        # Others lose events, but have no faults of nodes, which the reduction drops.
        while how(done := histories(mutant, *BUDGET, "--seed", str(seed + 1))) != "events-unmixed":
            assert how(done) == "nothing-lost", done.stderr
            seed = int(re.search(r"--reduce (\d+)", done.stderr)[1])
        done = histories(mutant, "--reduce", re.search(r"--reduce (\S+)", done.stderr)[1])
        assert done.returncode == 0 and ": events-unmixed: sfi" in done.stdout, done
        words = shlex.split(done.stdout.splitlines()[-1])
        assert words[0] == "evb" and len(words) <= 40, words
        again = subprocess.run([mutant, *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, cwd=ROOT)
        assert again.returncode == 1 and how(again) == "events-unmixed", again.stderr


main({"histories": caught_by_histories, "tests": caught_by_tests, "outdated": outdated, "reduced": reduced})
