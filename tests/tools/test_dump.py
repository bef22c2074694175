#!/usr/bin/env python3
"""Tests evb dump: exit status, JSON on standard output, faults with their event and byte, and repair.

    test_dump.py EVB EVENT_TOOL
"""
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

EVB, TOOL = sys.argv[1:3]


def dump(*words, most_bytes=resource.RLIM_INFINITY):
    """Runs evb dump, which may write files of at most `most_bytes`."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

    done = subprocess.run([EVB, "dump", *map(str, words)], capture_output=True, text=True, preexec_fn=limit)
    return done.returncode, done.stdout, done.stderr


def dump_json(*words):
    code, out, _ = dump(*words, "--json")
    return code, json.loads(out)


def pattern(directory, form):
    directory.mkdir()
    done = subprocess.run([TOOL, "pattern", str(directory), form, "4", "6"], check=True, capture_output=True, text=True)
    return pathlib.Path(done.stdout.strip())


def check_valid(path, form):
    code, report = dump_json(path, "--verify")
    verify = report["verify"]
    assert code == 0 and verify["right"] and report["events"] == 6 and report["seed"] == 5, report
    assert verify["pattern_fragments"] == 24 and verify["pattern_wrong"] == 0, verify
    assert verify["checksums"] == (0 if form == "eformat3" else 6 * 5), verify
    code, out, err = dump(path, "--verify")
    assert code == 0 and "no faults" in out and err == "", (out, err)
    code, report = dump_json(path, "--event", 5, "--hex")
    (event,) = report["event_list"]
    assert code == 0 and event["index"] == 5 and event["words"][0] == 0xAA1234AA, event
    assert [f["type"] for f in event["fragments"]].count("rod") == 4
    assert dump(path, "--verify", "--seed", 6)[0] == 1
    code, _, err = dump(path, "--event", 6)
    assert code == 1 and "the file has 6 events" in err, err
    code, out, _ = dump(path, "--tree")
    assert code == 0 and out.count("rob 0070") == 24


def check_damaged(path):
    whole = path.read_bytes()
    cut = path.with_name("cut")
    cut.write_bytes(whole[:-50])
    code, report = dump_json(cut, "--verify")
    assert code == 1 and not report["verify"]["right"] and report["events"] == 5 and report["ended"] is None, report
    (fault,) = report["faults"]
    assert fault["event"] is None and fault["reason"] == "event extends past the end of the file", fault
    repaired = path.with_name("repaired")
    code, report = dump_json(cut, "--repair", "-o", repaired)
    assert code == 0 and report["repair"]["events"] == 5 and not report["repair"]["was_whole"], report
    assert cut.read_bytes() == whole[:-50]
    code, _, err = dump(cut, "--repair", "--output", repaired)
    assert code == 2 and err == f"{repaired}: File exists\n", (code, err)
    # The copy does not fit: neither an incomplete one nor the blame of the original remains.
    fitting = path.with_name("fitting")
    code, _, err = dump(cut, "--repair", "--output", fitting, most_bytes=repaired.stat().st_size - 1)
    assert code == 1 and err == f"{fitting}: File too large\n" and not fitting.exists(), (code, err)
    assert cut.read_bytes() == whole[:-50]
    assert dump(repaired, "--verify")[0] == 0
    assert dump(cut, "--repair", "--verify")[0] == 0
    assert cut.read_bytes() == repaired.read_bytes()

    wrong = bytearray(whole)
    wrong[-40 - 20 - 9] ^= 1  # in the payload of the last source
    cut.write_bytes(wrong)
    code, report = dump_json(cut, "--verify")
    assert code == 1 and report["faults"][0]["event"] == 5, report
    json_file = path.with_name("report")
    code, out, _ = dump(cut, "--verify", f"--json={json_file}")
    assert code == 1 and out == "" and json.loads(json_file.read_text()) == report


def check_mistakes(directory):
    for words in (["nothing"], [directory], [TOOL], [TOOL, "--seed", "x"], [TOOL, "--output", "x"], ["--event"], []):
        code, out, err = dump(*words)
        assert code == 2 and out == "" and err != "", (words, code, out, err)


with tempfile.TemporaryDirectory() as name:
    for each in ("eformat3", "eformat5"):
        file = pattern(pathlib.Path(name) / each, each)
        check_valid(file, each)
        check_damaged(file)
    check_mistakes(name)
