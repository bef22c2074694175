#!/usr/bin/env python3
"""Runs and what is kept of them: numbers in sequence, metadata, and the record beside the event files.

    test_runs.py EVB [CASE...]
"""
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import zlib

from harness import LIMIT_S, OWN_NET, Running, complete, folder, main, mounted, run, scenario

SMALL = """
[trigger]
events = 200
[ros]
count = 2
[sfi]
count = 2
output = file
directory = {where}
timeout = 30s
[dfm]
node-timeout = 30s
[run]
number = next
[metadata]
Beam = electrons, 5 GeV
Shifter = Jürgen
"""


def small(where, **keys):
    text = SMALL.format(where=where)
    for key, value in keys.items():
        text = text.replace(f"{key} =", f"{key} = {value} #")
    return scenario(where, text)


def number_of(report):
    (number,) = {node["run"] for node in report["nodes"]}
    return number


def records(where):
    return sorted(pathlib.Path(where).glob("*.run*.json"))


def state():
    return pathlib.Path(os.environ["XDG_STATE_HOME"]) / "evb" / "run-number"


def numbers(evb):
    """run.number = next counts on: after runs, after a killed one, and after one that could not start."""
    with folder() as where:
        path = small(where)
        assert number_of(run(evb, path)) == 1
        assert number_of(run(evb, path)) == 2
        with Running(evb, path, {"trigger.events": 0, "trigger.rate": "1kHz"}) as running:
            running.wait_nodes(5)
            running.wait_running()
            assert state().read_text() == "3\n"
            children = list(running.nodes().values())
            running.process.kill()
            for pid in children:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        report = run(evb, path)
        assert number_of(report) == 4, report
        assert all("/run000004_" in name for name in report["files"]), report["files"]
        assert number_of(run(evb, path, {"run.number": 2})) == 2
        assert number_of(run(evb, path)) == 5
        # A later run with the number of an earlier one keeps both records.
        assert [p.name for p in records(where) if p.name.startswith("run000002_")] == [
            f"run000002_{sfi}.run{n}.json" for sfi in ("sfi1", "sfi2") for n in (".2", "")]


def refused(evb):
    """Without the last number there is no next one: no run, and a message that says what to do."""
    with folder() as where:
        path = small(where)
        state().parent.mkdir(parents=True)
        damaged = f"{state()} is damaged, so the last run number is unknown"
        for text, status, message in (("12", 2, damaged), ("", 2, damaged), ("\0\0\0\0", 2, damaged),
                                      (None, 1, f"cannot store run numbers in {state()}: Is a directory")):
            if text is None:
                state().unlink()
                state().mkdir()
            else:
                state().write_text(text)
            done = subprocess.run([evb, "run", path, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == status and f"run.number: {message}" in done.stderr, done
            assert not list(where.glob("*.data")), done
        # auto goes on with the time, as ever.
        assert number_of(run(evb, path, {"run.number": "auto"})) > 1_000_000_000


def metadata(evb):
    """v6 files hold the metadata in their records; v2 files have none, and evb check shows them."""
    with folder() as where:
        path = small(where)
        report = run(evb, path, {"sfi.format": "eformat5"})
        done = subprocess.run([evb, "dump", report["files"][0], "--json"], capture_output=True, text=True, check=True, timeout=LIMIT_S)
        front = json.loads(done.stdout)["metadata"]
        assert front[:4] == ["Stream=physics_Main", "Project=evb", "LumiBlock=0", "Beam=electrons, 5 GeV"], front
        assert front[4] == "Shifter=Jürgen" and front[5].startswith("Seed="), front
        # By layout: the record, its number of texts, and each with its length and padding.
        raw = pathlib.Path(report["files"][0]).read_bytes()
        at, texts = raw.index(struct.pack("<2I", 0x1234AABC, 6)) + 8, []
        for _ in range(6):
            n = struct.unpack_from("<I", raw, at)[0]
            texts.append(raw[at + 4:at + 4 + n].decode())
            at += 4 + (n + 3) // 4 * 4
        assert texts == front and struct.unpack_from("<I", raw, at)[0] == 0x1234BBBB, texts
        report = run(evb, path)
        assert b"electrons" not in pathlib.Path(report["files"][0]).read_bytes()
        done = subprocess.run([evb, "check", path, "--json"], capture_output=True, text=True, check=True, timeout=LIMIT_S)
        assert json.loads(done.stdout)["metadata"] == {"Beam": "electrons, 5 GeV", "Shifter": "Jürgen"}, done.stdout


def record(evb):
    """The record beside the files of each SFI: all that the run reported, and what it was made with."""
    with folder() as where:
        path = small(where, rate="5kHz")
        report = run(evb, path, {"metadata.Beam": "muons"})
        complete(report)
        cores = {name.rpartition("_")[0] for name in report["files"]}
        assert {str(p) for p in records(where)} == {f"{core}.run.json" for core in cores} and len(cores) == 2
        assert not list(where.glob("*.writing"))
        for file in records(where):
            with open(file, encoding="utf-8") as f:
                kept = json.load(f)
            assert kept["accounts"] == report
            files = [{"name": p.name, "size_bytes": p.stat().st_size, "adler32": f"{zlib.adler32(p.read_bytes()):08x}"}
                     for p in sorted(where.glob(file.name.removesuffix(".run.json") + "_*.data"))]
            assert [{key: each[key] for key in ("name", "size_bytes", "adler32")} for each in kept["files"]] == files != [], kept["files"]
            assert kept["begun"] == kept["files"][0]["begun"] <= kept["ended"] == kept["files"][-1]["ended"] <= kept["written"], kept
            assert kept["run"] == number_of(report) == 1 and kept["metadata"] == {"Beam": "muons", "Shifter": "Jürgen"}, kept
            version = subprocess.run([evb, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
            assert kept["versions"]["evb"] == version and kept["versions"]["format"] == "eformat3", kept["versions"]
            assert kept["scenario"]["trigger"]["events"] == "200" and kept["scenario"]["run"]["number"] == "next", kept["scenario"]
            assert [n["name"] for n in kept["scenario"]["nodes"]] == ["dfm", "ros1", "ros2", "sfi1", "sfi2"]
            assert all(n["address"].startswith("127.") for n in kept["scenario"]["nodes"])


def stopped(evb):
    """A run that is stopped by hand leaves its record too, and so does one with a killed SFI."""
    for victim in (None, "sfi2"):
        with folder() as where, Running(evb, small(where), {
                "trigger.events": 0, "trigger.rate": "1kHz", "dfm.node-timeout": "1s", "dfm.start-timeout": "60s"}) as running:
            # An SFI without events has no file, and so no record.
            running.wait_for("files of both SFIs", lambda: len(list(where.glob("*.writing"))) == 2)
            if victim:
                os.kill(running.nodes()[victim], signal.SIGKILL)
                running.wait_for("end of the SFI", lambda: victim not in running.nodes())
            running.signal(signal.SIGINT)
            out, _ = running.process.communicate(timeout=LIMIT_S)
            report = json.loads(out)
            names = [p.name.partition("_")[2] for p in records(where)]
            assert names == ["sfi1.run.json", "sfi2.run.json"], names
            for file in records(where):
                assert json.loads(file.read_text(encoding="utf-8"))["accounts"] == report


def none(evb):
    """Without event files, or without a run, there is no record."""
    with folder() as where:
        run(evb, small(where), {"sfi.output": "null"})
        run(evb, small(where), {"trigger.events": 5, "trigger.rate": "1mHz", "scenario.duration": "100ms", "trigger.kind": "poisson"}, expect=1)
        assert not records(where), records(where)


def long_folder(evb):
    """The name of the folder for temporary files may be long."""
    with folder() as where:
        temporary = where / ("t" * 100)
        temporary.mkdir()
        done = subprocess.run([evb, "run", small(where), "--json"], env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        assert done.returncode == 0 and not list(temporary.iterdir()), done


def full_disk(evb):
    """A disk without room for the record: a clear message, exit status 1, and nothing half-written."""
    # Room for the folder, the two event files, their indexes, and their CORE.begun.json.
    with mounted(options="size=64m,nr_inodes=7") as (where, disk):
        report = run(evb, small(where), {"sfi.directory": disk}, expect=1)
        complete(report)
        wanted = [f"cannot write {disk}/" in reason and ".run.json: No space left on device" in reason for reason in report["reasons"]]
        assert wanted == [True, True], report["reasons"]
        assert sorted(p.suffix for p in disk.iterdir()) == [*[".data"] * 2, *[".index"] * 2, *[".json"] * 2], list(disk.iterdir())
        assert len(list(disk.glob("*.begun.json"))) == 2


def service(evb):
    """An SFI that a service manager starts writes its own report beside its files."""
    with folder() as where:
        text = SMALL.format(where=where).replace("[ros]\ncount = 2\n", "").replace("count = 2\n", "") + "".join(
            f"[node {name}]\nrole = {role}\naddress = {OWN_NET}.{i}\n"
            for i, (name, role) in enumerate((("d", "dfm"), ("r", "ros"), ("s", "sfi")), 1))
        path = scenario(where, text + "[network]\ncontrol-group = none\n")
        nodes = [subprocess.Popen([evb, role, "--config", path, "--node", name, "--json"], stdout=subprocess.PIPE, text=True)
                 for name, role in (("d", "dfm"), ("r", "ros"), ("s", "sfi"))]
        try:
            outs = [node.communicate(timeout=LIMIT_S)[0] for node in nodes]
        finally:
            for node in nodes:
                node.kill()
        assert [node.returncode for node in nodes] == [0, 0, 0], outs
        (file,) = records(where)
        kept = json.loads(file.read_text(encoding="utf-8"))
        report = json.loads(outs[2])
        # Memory and processor time are read at each writing, and the last messages come after that of the record.
        for each in (kept["accounts"], report):
            for name in ("peak_rss_bytes", "cpu_seconds", *(name for name in report if name.startswith(("control_sent", "control_received")))):
                each.pop(name, None)
        assert kept["accounts"] == report and kept["run"] == report["run"] == 1, (kept["accounts"], report)
        assert kept["accounts"]["events_complete"] == 200 and file.name == "run000001.run.json"


main({"numbers": numbers, "refused": refused, "metadata": metadata, "record": record, "stopped": stopped, "none": none,
      "long-folder": long_folder, "full-disk": full_disk, "service": service})
