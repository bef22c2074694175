#!/usr/bin/env python3
"""Tests run-suite.py with a real suite, and with a meson that dies: no failure is forgiven, and each case is noted."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUN_SUITE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run-suite.py"
MESON_BUILD = """project('suite')
foreach name, status : {'passes': '0', 'fails': '1', 'skips': '77'}
  test(name, find_program('script.sh'), args: status)
endforeach
test('cases', find_program('cases.sh'), protocol: 'tap')
test('breaks', find_program('breaks.sh'), protocol: 'tap')
foreach name : ['one', 'two']
  test(name, find_program('script.sh'), args: '0', suite: name,
    depends: custom_target(name, output: name, command: ['touch', '@OUTPUT@'], build_by_default: true))
endforeach
"""
SCRIPTS = {
    "script.sh": 'exit "$1"',
    "cases.sh": r"printf '1..3\nok 1 - one (1.5 s)\nnot ok 2 - two (70.0 s)\nok 3 - three (0.1 s) # SKIP no root\n'; echo 'two: why' >&2; exit 1",
    "breaks.sh": r"printf '1..2\nok 1 - one (0.1 s)\n'; exit 1",
}


# Runs the tests one by one the first time that it is asked for them, and then ends as it is told to.
DYING = r"""made=%(bin)s/$(echo "$*" | cksum | tr ' ' -)
case " $* " in *" --list "*) [ -e "$made" ] || %(meson)s "$@" >"$made"; exec cat "$made" ;; esac
cd "$3/meson-logs"
[ -e "$made" ] || { %(meson)s "$@" --num-processes 1 >/dev/null; ls -t testlog*.json | head -n 1 >"$made.name"; cp "$(cat "$made.name")" "$made"; }
%(keep)s <"$made" >"$(cat "$made.name")"
%(end)s"""


def suite(where):
    (where / "meson.build").write_text(MESON_BUILD)
    for name, text in SCRIPTS.items():
        (where / name).write_text(f"#!/bin/sh\n{text}\n")
        (where / name).chmod(0o755)
    subprocess.run(["meson", "setup", where / "build", where], check=True, capture_output=True)


def run(*words, path="", prefix=()):
    done = subprocess.run([*prefix, sys.executable, "-B", RUN_SUITE, *words], capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C", "PATH": f"{path}:{os.environ['PATH']}"})
    return done.returncode, done.stdout


def dying(at, keep, end, *words):
    """The exit status and what is noted, if meson logs only what a command keeps of that, and then ends."""
    (at / "bin").mkdir(exist_ok=True)
    (at / "bin" / "meson").write_text("#!/bin/sh\n" + DYING % {"bin": at / "bin", "meson": shutil.which("meson"), "keep": keep, "end": end})
    (at / "bin" / "meson").chmod(0o755)
    (at / "died").unlink(missing_ok=True)
    return run(at / "died", at / "build", *words, path=at / "bin")[0], noted(at / "died")


def noted(notes):
    return {name: result for result, _, name in (line.split("\t") for line in notes.read_text().splitlines())}


with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    at = pathlib.Path(at)
    suite(at)
    assert run(at / "notes", at / "build")[0] == 3
    assert noted(at / "notes") == {"passes": "passed", "fails": "failed", "skips": "skipped", "one": "passed", "two": "passed", "cases/one": "passed",
                                   "cases/two": "failed", "cases/three": "skipped", "breaks/one": "passed", "breaks": "failed"}
    status, out = run("--summary", at / "notes")
    assert status == 1 and "5 passed, 3 failed, 2 skipped\n" in out and out.splitlines()[1] == "    70.0 s  cases/two", out
    # Whoever sees only the end of the log sees why.
    assert out.count("\n== cases failed\n") == out.count("\ntwo: why\n") == 1 and "== passes failed" not in out, out
    assert set(out.splitlines()[-1].split()[1:]) == {"fails", "cases/two", "breaks"}, out
    # What passes alone is noted beside.
    assert run(at / "more", at / "build", "passes")[0] == 0 and noted(at / "more") == {"passes": "passed"}
    assert run("--summary", at / "more")[0] == 0
    # Meson says nothing of a name that no test has, if another one has a test.
    assert run(at / "unknown", at / "build", "--num-processes", "1", "passes", "passed")[0] == 3
    assert noted(at / "unknown") == {"passes": "passed", f"{at / 'build'}: there is no test passed": "failed"}
    # A test of a nice suite is nice to other sessions, too. Without privilege, the kernel refuses two changes within 0.1 s.
    if os.geteuid() == 0 and pathlib.Path("/proc/self/autogroup").exists():
        (at / "script.sh").write_text('#!/bin/sh\n[ "$(sed "s/.*nice //" /proc/self/autogroup)" = "$(nice)" ]\n')
        assert run(at / "nice", at / "build", "passes", prefix=["nice", "-n7"])[0] == 0
        (at / "script.sh").write_text(f"#!/bin/sh\n{SCRIPTS['script.sh']}\n")
    assert run("--targets", at / "build", "two") == (0, "two\n")
    # Whoever ends meson, between two tests or in the middle of a line, what it did not log has not passed.
    for words, keep, end, result in ((["--suite", "one", "--suite", "two"], "cat", "exit 0", None),
                                     (["--suite", "one", "--suite", "two"], "head -n 1", "exit 0", "1 of 2 tests did not run, as two"),
                                     (["passes", "one"], "head -n 1", "kill -9 $$", "1 of 2 tests did not run, as one; the exit status of meson is -9"),
                                     (["passes", "one"], "head -c -9", "kill -9 $$", "1 of 2 tests did not run, as one"),
                                     (["passes", "one"], "cat", "kill -9 $$", "the exit status of meson is -9"),
                                     (["passes", "one"], "cat", "exit 1", "the exit status of meson is 1"),
                                     (["one"], "head -n 0", "exit 0", "no test ran")):
        status, found = dying(at, keep, end, *words)
        failed = [name for name, is_so in found.items() if is_so == "failed"]
        assert status == (3 if result else 0) and len(failed) == bool(result) and (not result or result in failed[0]), (words, keep, end, status, found)
    # A defect of the script itself is none of these.
    assert run(at / "none" / "notes", at / "build", "passes")[0] not in (0, 3)

# A suite that does not run has failed.
with tempfile.TemporaryDirectory(prefix="evb-test-") as at:
    at = pathlib.Path(at)
    assert run(at / "notes", at)[0] == 3 and run("--summary", at / "notes")[0] == 1
    (at / "notes").write_text("")
    assert run("--summary", at / "notes")[0] == 1
