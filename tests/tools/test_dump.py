#!/usr/bin/env python3
"""Tests evb dump: exit status, JSON on standard output, faults with their event and byte, and repair.

    test_dump.py EVB EVENT_TOOL
"""
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import zlib

EVB, TOOL = sys.argv[1:3]
LARGE_BYTES = 8 << 20


def dump(*words, most_bytes=resource.RLIM_INFINITY, at_limit=signal.SIG_IGN):
    """Runs evb dump, which may write files of at most `most_bytes`."""
    def limit():
        signal.signal(signal.SIGXFSZ, at_limit)
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


def check_index(path, form):
    """The index has what the events have, and appears only when it is whole."""
    index = pathlib.Path(f"{path}.index")
    assert dump(path, "--index", most_bytes=100)[0] == 1 and not list(path.parent.glob("*.index*"))
    # Several processes may write it at once.
    done = [subprocess.Popen([EVB, "dump", "--index", path, *[path] * 20], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [(p.communicate()[1], p.returncode) for p in done] == [(b"", 0)] * 4
    assert dump("--index", path, path) == (0, f"{index}: 6 events\n" * 2, "") and list(path.parent.glob("*.index*")) == [index]
    assert dump("--index", path, index) == (0, f"{index}: 6 events\n", "") and dump(index, index)[0] == 2
    raw, data = index.read_bytes(), path.read_bytes()
    magic, n, size, changed_ns, front_sum, checksum, end = struct.unpack_from("<8s3Q2I40s", raw)
    assert (magic, n, size, changed_ns, end) == (b"EVBINDX1", 6, len(data), path.stat().st_mtime_ns, data[-40:])
    assert zlib.adler32(raw[:36] + bytes(4) + raw[40:]) == checksum and len(raw) == 80 + 64 * n
    events = [json.loads(line) for line in dump(path, "--tree", "--json")[1].splitlines()[:-1]]
    entries = list(struct.iter_unpack("<4Q8I", raw[80:]))
    assert zlib.adler32(data[:entries[0][0] - 16]) == front_sum and len(events) == len(entries) == n
    for event, (at, number, global_id, _, size, version, status, _, l1_id, *rest) in zip(events, entries):
        whole = event["fragments"][0]
        assert (at, size, [status]) == (whole["offset_bytes"], whole["size_bytes"], whole["status"]), event
        assert version == (3 if form == "eformat3" else 5) and global_id == number, event
        assert [number, l1_id, *rest] == [event[name] for name in ("number", "l1_id", "trigger_type", "spill", "trigger_flags")], event
    damaged = path.with_name("damaged.data")
    damaged.write_bytes(data[:entries[3][0]] + bytes(4) + data[entries[3][0] + 4:])
    code, _, err = dump("--index", damaged)
    assert code == 1 and "a damaged file has no index" in err and not pathlib.Path(f"{damaged}.index").exists(), err
    writing = path.with_name("a.writing")
    writing.write_bytes(data)
    assert dump("--index", writing)[0] == 1 and dump("--index", path.with_name("none.data"))[0] == 2
    pipe = path.with_name("pipe.data")
    os.mkfifo(pipe)
    for each, text in (pipe, "Invalid argument"), (path.parent, "Is a directory"):
        assert dump("--index", each) == (2, "", f"{each}: {text}\n"), each
    assert dump("--index", "--verify", path)[0] == 2
    assert dump_json("--index", path) == (0, {"file": str(path), "indexed_events": 6})
    for each in index, damaged, writing, pipe:
        each.unlink()


def check_valid(path, form):
    code, report = dump_json(path, "--verify")
    verify = report["verify"]
    assert code == 0 and verify["right"] and report["events"] == 6 and report["seed"] == 5, report
    assert verify["pattern_fragments"] == 24 and verify["pattern_wrong"] == 0, verify
    assert verify["checksums"] == 6 * (1 if form == "eformat3" else 5), verify
    code, out, err = dump(path, "--verify")
    assert code == 0 and "no faults" in out and err == "", (out, err)
    code, out, _ = dump(path, "--event", 5, "--hex", "--json")
    event, report = map(json.loads, out.splitlines())
    assert code == 0 and event["index"] == 5 and event["words"][0] == 0xAA1234AA, event
    assert [f["type"] for f in event["fragments"]].count("rod") == 4
    assert [event[name] for name in ("number", "trigger_type", "spill", "trigger_flags")] == [5, 0, 0, 0], event
    code, out, _ = dump(path, "--tree", "--verify", "--json")
    *events, report = map(json.loads, out.splitlines())
    assert code == 0 and [e["index"] for e in events] == list(range(6)) and "words" not in events[0], events
    assert event["fragments"] == events[5]["fragments"] and report["verify"] == verify and report["events"] == 6, report
    assert dump(path, "--verify", "--seed", 6)[0] == 1
    code, _, err = dump(path, "--event", 6)
    assert code == 1 and "the file has 6 events" in err, err
    code, out, _ = dump(path, "--tree")
    assert code == 0 and out.count("rob 0070") == 24 and ", number 5, L1 id " in out and ", spill 0, trigger flags 00000000" in out


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
    # A killed repair leaves nothing under the name of the result, and the next one succeeds.
    left = path.with_name("fitting.repair")
    code, _, _ = dump(cut, "--repair", "--output", fitting, most_bytes=repaired.stat().st_size - 1, at_limit=signal.SIG_DFL)
    assert code == -signal.SIGXFSZ and not fitting.exists() and left.exists(), code
    left.write_bytes(left.read_bytes() + bytes(100_000))
    if os.geteuid() == 0:
        os.chown(cut, 65534, 65533)
        cut.chmod(0o640)
    assert dump(cut, "--repair", "--output", fitting)[0] == 0 and fitting.read_bytes() == repaired.read_bytes()
    assert not left.exists()
    if os.geteuid() == 0:
        assert (fitting.stat().st_uid, fitting.stat().st_gid, fitting.stat().st_mode & 0o777) == (65534, 65533, 0o640)
    assert dump(repaired, "--verify")[0] == 0
    assert dump(cut, "--repair", "--verify")[0] == 0
    assert cut.read_bytes() == repaired.read_bytes()

    # A repair makes a new check of records that the old one refuses, so it fails once.
    wrong = bytearray(whole)
    wrong[12] ^= 1  # file number
    cut.write_bytes(wrong)
    code, out, _ = dump(cut, "--repair")
    assert code == 1 and "may be wrong: they do not match the check" in out, out
    code, report = dump_json(cut, "--repair")
    assert code == 0 and report["repair"]["was_whole"] and not report["repair"]["wrong_records"], report

    wrong = bytearray(whole)
    wrong[-40 - (64 if path.parent.name == "eformat3" else 0) - 20 - 9] ^= 1  # in the payload of the last source
    cut.write_bytes(wrong)
    code, report = dump_json(cut, "--verify")
    assert code == 1 and report["faults"][0]["event"] == 5, report
    json_file = path.with_name("report")
    code, out, _ = dump(cut, "--verify", f"--json={json_file}")
    assert code == 1 and out == "" and json.loads(json_file.read_text()) == report


def check_memory(path):
    """The events of a file are printed in less memory than the file has."""
    whole = path.read_bytes()
    begin = whole.index(bytes.fromhex("cccc3412"))  # the first data record
    end = len(whole) - 40
    with open(path.with_name("large"), "wb") as large:
        large.write(whole[:begin])
        while large.tell() < LARGE_BYTES:
            large.write(whole[begin:end])
        large.write(whole[end:])
    # What a sanitizer keeps of freed memory is not the program's.
    environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}

    def peak_bytes(*words):
        process = subprocess.Popen([EVB, "dump", *words], env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, status
        return usage.ru_maxrss * 1024

    # All of the file may be resident, as it is mapped.
    few = peak_bytes(path, "--tree", "--hex", "--json=/dev/null")
    most = peak_bytes(large.name, "--tree", "--hex", "--json=/dev/null")
    assert most < few + 2 * LARGE_BYTES, (few, most)
    os.unlink(large.name)


def check_terminal(path):
    """Texts of a file do not command the terminal."""
    whole = path.read_bytes()
    for text in (b"SFI-1", b"Project="):
        path.write_bytes(whole.replace(text, b"\x1b[2J" + text[4:], 1))
        code, out, _ = dump(path)
        assert code == 0 and "\x1b" not in out and "?[2J" in out, out
    path.write_bytes(whole)


def check_record(path):
    """A file is compared with its entry in the newest record of its run, and a record with all of its files."""
    core, content = str(path).rpartition("._")[0], path.read_bytes()
    record, other = pathlib.Path(core + ".run.json"), pathlib.Path(core + ".run.2.json")
    assert dump_json(path, "--verify")[1]["record"] is None

    def entry(name=path.name, size_bytes=len(content), adler32=f"{zlib.adler32(content):08x}"):
        return {"name": name, "size_bytes": size_bytes, "adler32": adler32}

    def found(*entries):
        record.write_text(json.dumps({"files": entries}))
        code, report = dump_json(path, "--verify")
        assert code == (0 if report["verify"]["right"] else 1) and report["record"]["file"] == str(record), report
        return report["record"]["listed"], report["record"]["right"]

    assert found() == found(entry(name="other.data"), {}, 1) == (False, None)
    assert found(entry()) == (True, True)
    for wrong in (entry(size_bytes=1), entry(size_bytes="x"), entry(adler32="0"), entry(adler32=None)):
        assert found(wrong) == (True, False)
    _, _, err = dump(path, "--verify")
    assert "not the file that the run wrote" in err and core.rpartition("/")[2] in err, err
    other.write_text(json.dumps({"files": [entry()]}))
    code, report = dump_json(path, "--verify")
    assert code == 0 and report["record"] == {"file": str(other), "listed": True, "right": True}, report

    assert dump_json(other, "--verify") == (0, {"file": str(other), "record": {"files": 1, "missing": [], "different": []}})
    other.write_text(json.dumps({"files": [entry(), entry(name="gone.data"), entry(name=str(path)), entry(adler32="0")]}))
    code, out, err = dump(other, "--verify")
    assert code == 1 and out == f"{other}: 4 files, 1 missing, 2 different\n" and f"{path.parent}/gone.data: missing\n" in err, (out, err)
    for text in ("", "{", "[]", "{}"):
        other.write_text(text)
        assert dump(other, "--verify")[:2] == (2, "")
    record.write_text("{")
    code, out, err = dump(path, "--verify")
    assert code == 1 and f"{record.name} cannot be read" in out and "its record cannot be read" in err, (out, err)
    other.write_text(json.dumps({"files": [entry()]}))
    assert dump_json(path, "--verify")[1]["record"] == {"file": str(other), "listed": True, "right": True}
    other.write_text("{}")
    assert dump(other)[0] == 2
    other.unlink()
    record.unlink()


def check_several(path):
    """Several files, or all files and records of a folder, are verified in one call."""
    folder, content = path.parent, path.read_bytes()
    record = pathlib.Path(str(path).rpartition("._")[0] + ".run.json")
    other = path.with_name(path.name.replace("_0001", "_0002"))

    def lines(*words):
        code, out, err = dump(*words, "--json")
        return code, [json.loads(line) for line in out.splitlines()], err

    def write_record(*names):
        record.write_text(json.dumps({"files": [
            {"name": name, "size_bytes": len(content), "adler32": f"{zlib.adler32(content):08x}"} for name in names]}))

    other.write_bytes(content)
    write_record(path.name, other.name)
    code, (first, second, of_record, total), err = lines("--verify", path, other, record)
    assert code == 0 and err == "" and [first["file"], second["file"], of_record["file"]] == [*map(str, (path, other, record))]
    assert first["verify"]["right"] and second["record"]["right"] and of_record["record"]["missing"] == [], (first, second)
    assert total == {"files": 2, "files_with_faults": 0, "records": 1, "records_with_faults": 0}, total
    being_written = folder / "a.run.json.writing"
    being_written.write_text("{")
    code, found, err = lines("--verify", folder)
    being_written.unlink()
    assert code == 0 and err == "" and found[-1] == total and first in found and second in found, found
    code, out, _ = dump("--verify", folder)
    assert code == 0 and out.endswith("2 files, 0 with faults; 1 record, 0 with missing or different files\n"), out
    assert lines(path, other)[1][1]["events"] == 6 and len(lines(path, other)[1]) == 2
    # Of what "data/*" names, only event files, and records if they are verified, are printed.
    beside = [path.with_name(name) for name in ("killed.writing.index", "a.begun.json", "a.run.json.writing", "a.run.2.json")]
    for each_beside in beside:
        each_beside.write_text("")
    assert lines(*beside, path, record, other) == lines(path, other) and lines("--verify", *beside[:3], path, other, record)[1][-1] == total
    assert lines("--verify", path, *beside)[0] == lines(path, path.with_name("a.json"))[0] == lines(*beside)[0] == lines(beside[0])[0] == 2
    for each_beside in beside:
        each_beside.unlink()
    report = path.with_name("report")
    assert dump(path, other, "--json", report)[:2] == (0, "") and len(report.read_text().splitlines()) == 2
    assert dump(path, other, "--repair")[0] == 2 and path.read_bytes() == content

    wrong = bytearray(content)
    wrong[len(wrong) // 2] ^= 1
    path.write_bytes(wrong)
    other.rename(other.with_suffix(".writing"))
    code, found, err = lines("--verify", folder)
    assert code == 1 and found[-1] == {"files": 2, "files_with_faults": 2, "records": 1, "records_with_faults": 1}, found
    assert f"{path}: event " in err and f"{other}: missing\n" in err and ".writing: not complete" in err, err
    assert found[-2]["record"] == {"files": 2, "missing": [other.name], "different": [path.name]}, found
    assert err.count("not the file that the run wrote") == 1, err
    path.write_bytes(b"no event file")  # in a folder, this is damage
    assert lines("--verify", folder)[0] == 1 and lines("--verify", path, record)[0] == 2
    path.write_bytes(content)
    other.with_suffix(".writing").unlink()
    # A file that is not compared with this record, and one that nobody writes to.
    loose, pipe = folder / "loose", folder / "pipe.data"
    loose.write_bytes(wrong)
    write_record(path.name, loose.name)
    os.mkfifo(pipe)
    code, found, err = lines("--verify", folder)
    assert code == 1 and found[-1] == {"files": 2, "files_with_faults": 1, "records": 1, "records_with_faults": 1}, (found, err)
    assert found[-2]["record"] == {"files": 2, "missing": [], "different": [loose.name]} and f"{pipe}: " in err, (found, err)
    loose.unlink()
    pipe.unlink()
    record.unlink()
    report.unlink()
    empty = folder / "empty"
    empty.mkdir()
    code, out, err = dump("--verify", empty)
    assert code == 2 and "has no event file and no record of a run" in err, err
    empty.rmdir()


def check_mistakes(directory):
    for words in (["nothing"], [directory], [TOOL], [TOOL, "--seed", "x"], [TOOL, "--output", "x"], ["--event"], []):
        code, out, err = dump(*words)
        assert code == 2 and out == "" and err != "", (words, code, out, err)
        assert words != [directory] or f"such as {directory}/NAME.data" in err, err


with tempfile.TemporaryDirectory() as name:
    for each in ("eformat3", "eformat5"):
        file = pattern(pathlib.Path(name) / each, each)
        check_valid(file, each)
        check_index(file, each)
        if each == "eformat5":
            check_terminal(file)
        check_record(file)
        check_several(file)
        check_damaged(file)
        check_memory(pattern(pathlib.Path(name) / f"{each}-large", each))
    check_mistakes(name)
