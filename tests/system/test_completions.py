#!/usr/bin/env python3
"""Completions of the command line, typed in bash and zsh.

    test_completions.py EVB [CASE...]
"""
import os
import pathlib
import re
import shutil
import subprocess

from harness import LIMIT_S, ROOT, SCENARIOS, Skip, folder, main
from terminal import Terminal

COMPLETIONS = ROOT / "configs" / "completions"
# What is typed before Tab, and the line after it.
TYPED = [
    ("evb sta", "evb status"),
    ("evb qos wa", "evb qos watch"),
    ("evb help stre", "evb help stream"),
    ("evb run --progr", "evb run --progress"),
    ("evb run --net lo", "evb run --net loopback"),
    ("evb run --set sfi.outp", "evb run --set sfi.output="),
    ("evb run --set sfi.output=nu", "evb run --set sfi.output=null"),
    ("evb qos plan --set=scenario.mode=pul", "evb qos plan --set=scenario.mode=pull"),
    ("evb frontend --fault mis", "evb frontend --fault missed="),
    ("evb stream recv --raw=watch", "evb stream recv --raw=watch-wire"),
    ("evb ctl set trigger.kind=bu", "evb ctl set trigger.kind=burst"),
    ("evb top --config push-6x1.conf --node sf", "evb top --config push-6x1.conf --node sfi1"),
    ("evb dump run1.d", "evb dump run1.data"),
    ("evb run push", "evb run push-6x1.conf"),
    ("evb-qos rem", "evb-qos remove"),
    ("evb-qos watch --rep", "evb-qos watch --repair"),
    ("evb-qos plan --set qos.backend=cb", "evb-qos plan --set qos.backend=cbq+tbf"),
    ("evb-qos plan --config push-6x1.conf --node ro", "evb-qos plan --config push-6x1.conf --node ros"),
]


def shaper_of(evb):
    return pathlib.Path(evb).resolve().with_name("evb-qos")


def prepare(evb, where):
    (where / "bin").mkdir()
    (where / "bin" / "evb").symlink_to(evb)
    (where / "bin" / "evb-qos").symlink_to(shaper_of(evb))
    (where / "run1.data").touch()
    shutil.copy(SCENARIOS / "push-6x1.conf", where)
    for name in ("evb.bash", "_evb"):
        (where / name).write_text((COMPLETIONS / f"{name}.in").read_text().replace("@helper@", str(COMPLETIONS / "complete.sh")))


def complete_in(evb, words, start):
    """Types each line in the shell; `start` is what its file of settings has."""
    with folder() as where:
        prepare(evb, where)
        for name in (".bashrc", ".zshrc"):
            (where / name).write_text(start.replace("WHERE", str(where)) + "\nPS1='$ '\n")
        environment = {"PATH": f"{where}/bin:{os.environ['PATH']}", "HOME": str(where), "ZDOTDIR": str(where)}
        with Terminal(words, 160, 24, env=environment, cwd=where) as shell:
            for typed, shown in [("", ""), *TYPED]:
                if typed:
                    shell.type(typed + "\t")
                shell.wait(shown or "prompt", lambda lines, wanted=f"$ {shown}".rstrip(): [line for line in lines if line][-1:] == [wanted])
                shell.type("\x15")  # Ctrl-U


def bash(evb):
    """Commands, verbs, options, keys, values, nodes and files."""
    complete_in(evb, ["bash", "-i"], "source WHERE/evb.bash")


def zsh(evb):
    """The same in zsh."""
    if not shutil.which("zsh"):
        raise Skip("zsh is not installed (scripts/deps.sh test)")
    complete_in(evb, ["zsh", "-d", "-i"], "fpath=(WHERE $fpath); autoload -Uz compinit; compinit -D -u")


def all_commands(evb):
    """Each command and verb has its options, and each key is there once."""
    def proposed(*words):
        done = subprocess.run([COMPLETIONS / "complete.sh", evb, *words], capture_output=True, text=True, check=True, timeout=LIMIT_S)
        assert done.stderr == "", done
        return done.stdout.split("\n")[:-1]

    commands = proposed("")[:-3]
    assert commands[0] == "run" and "bench" in commands and proposed("nonsense", "--x") == [], commands
    for command in commands:
        for words in [[command, verb] for verb in proposed(command, "")] or [[command]]:
            options = proposed(*words, "--")
            shown = subprocess.run([evb, *words, "--help"], capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
            for option, lines in re.findall(r"^  (--\S+).*\n((?:    .*\n)*)", shown, re.M):
                parts = re.findall(r"^    ([a-z][a-z-]*=?)", lines, re.M)
                assert not parts or proposed(*words, option, "") == parts, (words, option)
                assert not parts or proposed(*words, f"{option}=") == [f"{option}={part}" for part in parts], (words, option)
            assert {"--help", "--version"} <= set(options) and all(" " not in option for option in options), (words, options)
    keys = subprocess.run([evb, "check", "--keys"], capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    found = proposed("run", "--set", "")
    assert found == proposed("ctl", "set", "") and "metrics.listen=" in found and len(found) == len(set(found)) == keys.count("\n    Values: "), found
    assert proposed("sim", "--set", "trigger.rate=") == ["trigger.rate=max"]
    assert proposed("ros", "--config", str(SCENARIOS / "push-6x1.conf"), "--node", "") == [f"ros{i + 1}" for i in range(6)]


def shaper(evb):
    """evb-qos alone: verbs, options, devices, and the keys that it accepts without a scenario."""
    with folder() as where:
        # As if evb was not installed.
        (where / "evb").write_text("#!/bin/sh\nexit 127\n")
        (where / "evb").chmod(0o755)

        def proposed(*words):
            done = subprocess.run([COMPLETIONS / "complete.sh", shaper_of(evb), *words], capture_output=True, text=True, check=True,
                                  timeout=LIMIT_S, env={**os.environ, "PATH": f"{where}:{os.environ['PATH']}"})
            return done.stdout.split("\n")[:-1]

        assert proposed("") == ["plan", "apply", "status", "watch", "remove", "--help", "--version"], proposed("")
        assert "--dest" in proposed("apply", "--") and "lo" in proposed("apply", "--dev", "") and "--dev=lo" in proposed("apply", "--dev=l")
        assert proposed("apply", "--set", "qos.b") == ["qos.backend=", "qos.burst="] and proposed("apply", "--set", "sfi.") == []
        assert proposed("apply", "--set=test.") == ["--set=test.overhead="]


main({"bash": bash, "zsh": zsh, "all-commands": all_commands, "shaper": shaper})
