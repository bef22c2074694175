#!/usr/bin/env python3
"""Reads real runs in Python: while they go on, after a killed SFI, and those of a detector; and converts them.

    test_events.py EVB [CASE...]
"""
import collections
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import threading
import unittest.mock
import warnings

from harness import LIMIT_S, ROOT, SCENARIOS, SHARED, SMALL, Running, Skip, complete, events_of, folder, main, run, scenario, settings

sys.path.insert(0, str(ROOT / "python"))
from evb.interpreter import use_system_python  # pylint: disable=wrong-import-position

try:
    import numpy  # noqa: F401
except ImportError:
    use_system_python()

import evb  # pylint: disable=wrong-import-position

DATA = SHARED / "data" / "bes3-run91668.raw"
PATIENT = {"sfi.timeout": "30s", "dfm.node-timeout": "30s"}


def need_numpy():
    try:
        evb.open  # pylint: disable=pointless-statement
    except ImportError as error:
        raise Skip(f"{error}; install python3-numpy") from error


def content(l1_id, payloads):
    return l1_id, hashlib.sha256(b"".join(bytes(payload) for payload in payloads)).hexdigest()


def in_files(where):
    """The events of all files, as the harness reads them."""
    return collections.Counter(content(l1_id, payloads) for path in where.iterdir() if path.suffix in (".data", ".writing")
                               for l1_id, payloads in events_of(path))


class Follower(threading.Thread):
    """Follows the runs of a folder until the end."""

    def __init__(self, where):
        super().__init__(daemon=True)
        self.run_ = evb.open(where, follow=True)
        self.found, self.error = [], None
        self.start()

    def run(self):
        try:
            self.found.extend(content(e.l1_id, [e["ros1"], *(e[s] for s in e.sources[1:])]) for e in self.run_)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = error

    def end(self):
        self.join(LIMIT_S)
        assert not self.is_alive(), f"still waits after {len(self.found)} events: {[f.path for f in self.run_.files]}"
        assert self.error is None, repr(self.error)
        return collections.Counter(self.found)


def follow(evb_program):
    """A run of two SFIs with many files is followed from before its beginning to its end, and each event is seen once."""
    need_numpy()
    with folder() as where, warnings.catch_warnings():
        warnings.simplefilter("error")
        (where / "data").mkdir()
        follower = Follower(where / "data")
        report = run(evb_program, scenario(where), {"trigger.events": 5000, "sfi.output": "file", "sfi.file-events": 400,
                                                    "sfi.directory": where / "data"})
        complete(report)
        found = follower.end()
        assert len(found) == 5000 and found == in_files(where / "data"), len(found)
        again = evb.open(where / "data")
        assert [e.l1_id for e in again] == list(range(5000)), "not in order"
        assert again.sources == {f"ros{i + 1}": 0x700000 + i for i in range(6)}, again.sources
        columns = evb.columns(again)
        plot(where)
        event = again[4711]
        begin, end = columns["ros3"].offset[4711:4713]
        assert columns["ros3"].data[begin:end].tobytes() == event["ros3"].tobytes() == event.fragments[2].payload.tobytes()


def plot(where):
    """The first program of docs/python.md makes a plot of the run."""
    program = re.search(r"```python\n(import evb\n.*?savefig.*?)```", (ROOT / "docs/python.md").read_text(), re.S)[1]
    try:
        import matplotlib  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        return
    done = subprocess.run([sys.executable, "-c", program], cwd=where, capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "MPLBACKEND": "agg"})
    assert done.returncode == 0 and "5000 of 5000 events are complete" in done.stdout, done.stderr
    assert (where / "peaks.png").stat().st_size > 1000


def killed(evb_program):
    """An SFI that is killed costs the follower nothing: it sees what is in the files, and ends with the run. A loop over live events fails."""
    need_numpy()
    with folder() as where:
        out = where / "data"
        out.mkdir()
        path = scenario(where, SMALL.replace("events = 2000", "rate = 1kHz\nevents = 0"))
        keys = {"sfi.output": "file", "sfi.directory": out, "sfi.durability": "written", "live.listen": f"unix:{where}/%n"}
        with Running(evb_program, path, keys) as running:
            running.wait_nodes(9)
            follower = Follower(out)
            running.wait_for("followed events of both SFIs", lambda: len({f.path for f in follower.run_.files if len(f.headers)}) == 2)
            with evb.live(f"unix:{where}/sfi1", mode="skip", ring="1MiB") as live:
                next(live)
                os.kill(running.nodes()["sfi1"], signal.SIGKILL)
                seen = len(follower.found)
                try:
                    collections.deque(live, maxlen=0)
                    raise AssertionError("the loop ended as if the run had")
                except ConnectionError as error:
                    assert "ended before all events had come" in str(error) and not live.ended, error
            running.wait_for("further events", lambda: len(follower.found) > seen + 300)
            running.signal()
            running.end((0, 1))
        found = follower.end()
        files = in_files(out)
        assert found.keys() == files.keys(), f"{len(found)} events followed, {len(files)} in the files"
        twice = [event for event, copies in found.items() if copies > 1]
        assert not twice, f"events that both SFIs built are read once: {twice[:3]}"


def read_indexes(where):
    return {path: path.read_bytes() for path in where.glob("*.index")}


def l1_ids(path):
    """The events of a file that Python opens by its index."""
    with unittest.mock.patch.object(evb.storage.EventFile, "_read", side_effect=AssertionError(f"{path}: the file is read")):
        return list(evb.open(path).files[0].headers.l1_id)


def run_without_events(evb_program, path, keys):
    """A run that takes no trigger until both SFIs have a file."""
    with Running(evb_program, path, keys) as running:
        running.wait_for("files of both SFIs", lambda: len(list(path.parent.glob("*.writing"))) == 2)
        running.signal()
        return running.end((1,))


def indexed(evb_program):
    """The SFIs write the same index for each file as `evb dump --index`. Python opens the file with it, and detects a damaged one."""
    need_numpy()
    for keys in ({"ros.fragment-size": 100}, {"sfi.format": "eformat5", "ros.fragment-size": 100, "sfi.durability": "synced"},
                 {"ros.fragment-size": "1MiB", "trigger.events": 30, "sfi.file-events": 7},
                 {"sfi.page-cache": "bypass"}, {"trigger.events": 0, "trigger.rate": "1mHz", "trigger.kind": "poisson"}):
        with folder() as where, warnings.catch_warnings():
            warnings.simplefilter("error")
            keys = {"ros.count": 2, "sfi.file-events": 400, "sfi.output": "file", "sfi.directory": where, "run.number": 7, **keys}
            no_events = keys.get("trigger.events") == 0
            files = sorted((run_without_events if no_events else run)(evb_program, scenario(where), keys)["files"])
            indexes = read_indexes(where)
            assert sorted(map(str, indexes)) == [f"{path}.index" for path in files] and len(files) == 2 or not no_events, (files, indexes)
            subprocess.run([evb_program, "dump", "--index", *files], stdout=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
            assert read_indexes(where) == indexes, f"{keys}: dump makes another index"
            found = {path: l1_ids(path) for path in files}
            assert sorted(sum(found.values(), [])) == list(range(0 if no_events else keys.get("trigger.events", 2000))), found
            for path in files:
                index = pathlib.Path(f"{path}.index")
                index.write_bytes(indexes[index][:-1] + bytes([indexes[index][-1] ^ 1]))
                assert list(evb.open(path).files[0].headers.l1_id) == found[path] and index.read_bytes() == indexes[index], f"{index} is not renewed"


def unindexed(evb_program):
    """Without room for an index, the file and the run are complete. A killed SFI leaves a part of an index, which is detected."""
    need_numpy()
    with folder() as where:
        path = scenario(where, SMALL.replace("events = 2000", "rate = 1kHz\nevents = 0"))
        keys = {"sfi.output": "file", "sfi.directory": where, "run.number": 7, "dfm.node-timeout": "10s"}
        (where / "run000007_sfi2_0001.writing.index").mkdir()
        with Running(evb_program, path, keys) as running:
            running.wait_nodes(9)
            running.wait_for("events of both SFIs", lambda: len([p for p in where.glob("*.writing") if p.stat().st_size > 1_000_000]) == 2)
            os.kill(running.nodes()["sfi1"], signal.SIGKILL)
            running.signal()
            running.end((0, 1))
        assert running.err.count("sfi2: cannot write") == 1 and ".writing.index: Is a directory; " in running.err, running.err
        assert (where / "run000007_sfi2_0001.data").exists() and not list(where.glob("*_sfi2_*.data.index"))
        # The index of a file that is repaired and renamed.
        left = where / "run000007_sfi1_0001.writing"
        index, final = left.with_name(left.name + ".index"), left.with_suffix(".data")
        assert index.exists(), sorted(where.iterdir())
        subprocess.run([evb_program, "dump", "--repair", left], stdout=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
        left.rename(final)
        index.rename(f"{final}.index")
        expected = [l1_id for l1_id, _ in events_of(final)]
        assert list(evb.open(final).files[0].headers.l1_id) == expected and l1_ids(final) == expected


def bes3(evb_program):
    """The events of BES III, built by 26 ROSs, equal those of the experiment's file and of evb dump, also when converted."""
    need_numpy()
    if not DATA.exists():
        raise Skip(f"{DATA} does not exist; set EVB_SHARED to the folder of data/ and tools/")
    with folder() as where:
        report = run(evb_program, SCENARIOS / "bes3-replay.conf", {"ros.source": f"file:{DATA}", "sfi.directory": where, **PATIENT})
        complete(report)
        ours, theirs = evb.open(report["files"]), evb.open(DATA)
        fragments = [[(f.source, f.ros, f.status, f.l1_id, f.payload.tobytes()) for f in e.fragments] for e in theirs]
        assert len(ours) == 10 and all(len(f) == 42 and len({x[1] for x in f}) == 26 for f in fragments)
        by_l1 = {e.l1_id: e for e in ours}
        for e, expected in zip(theirs, fragments):
            assert [(f.source, f.ros, f.status, f.l1_id, f.payload.tobytes()) for f in by_l1[e.l1_id].fragments] == expected
        same_as_checker(report["files"][0], ours)
        dumped = subprocess.run([evb_program, "dump", report["files"][0], "--hex", "--json"], capture_output=True, text=True, check=True)
        for line in dumped.stdout.splitlines()[:10]:
            words = [int(word, 16) if isinstance(word, str) else word for word in json.loads(line)["words"]]
            assert by_l1[words[11]].data.view("<u4").tolist() == words
        convert(evb_program, where, ours)


def same_as_checker(path, events):
    """The checker of eformat3, which shares no code with us, sees the same fragments."""
    spec = importlib.util.spec_from_file_location("eformat3_check", SHARED / "tools" / "eformat3_check.py")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    raw, run_number, _, theirs = checker.read(path)
    assert run_number == events.number and len(theirs) == len(events)
    # Theirs are in the order of the file, and ours in that of the numbers.
    by_l1 = {e.specific[3]: e for e in theirs}
    for ours in events:
        robs = by_l1[ours.l1_id].all(checker.ROB)
        assert len(robs) == len(ours.fragments) == 42
        for f, rob in zip(ours.fragments, robs):
            # The trailer says how many words follow the 9 of the header.
            n_status, n_data, data_first = struct.unpack_from("<3I", raw, 4 * rob.end - 12)
            data = 4 * (rob.start + rob.header + 9 + (0 if data_first else n_status))
            assert (f.source, f.status, f.l1_id) == (rob.source, rob.status[0] if rob.status else 0, rob.rod_l1)
            assert f.payload.tobytes() == raw[data:data + 4 * n_data]


# What uproot alone finds in a converted file.
BY_UPROOT = """
import json, sys, uproot
with uproot.open(sys.argv[1]) as f:
    found = f["events"].arrays()
print(json.dumps({name[5:]: [bytes(x).hex() for x in found[name].to_list()] for name in found.fields if name.startswith("data_")}))
"""


def convert(evb_program, where, events):
    done = subprocess.run([evb_program, "convert", str(where), "--output", str(where / "out.h5"), "--json"], capture_output=True,
                          text=True, timeout=LIMIT_S)
    if done.returncode == 77:
        raise Skip(f"only the conversion is missing: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 10
    import h5py  # pylint: disable=import-outside-toplevel
    with h5py.File(where / "out.h5") as f:
        for group in f["source"].values():
            offset, data, source = group["offset"][:], group["data"][:], int(group.attrs["source_id"])
            assert [data[a:b].tobytes() for a, b in zip(offset, offset[1:])] == [e[source].tobytes() for e in events]
        assert len(f["source"]) == 42
    python = os.environ.get("EVB_UPROOT_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import uproot"], capture_output=True, check=False).returncode != 0:
        raise Skip("only the conversion to ROOT is missing; set EVB_UPROOT_PYTHON to a Python that has uproot")
    subprocess.run([python, "-m", "evb.convert", str(where), "--output", str(where / "out.root")], timeout=LIMIT_S, check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    found = json.loads(subprocess.run([python, "-c", BY_UPROOT, str(where / "out.root")], stdout=subprocess.PIPE, timeout=LIMIT_S, check=True).stdout)
    names = {source: name for name, source in events.sources.items()}
    assert found == {names.get(source, f"{source:#08x}"): [e[source].tobytes().hex() for e in events] for source in events[0].sources}


main({"follow": follow, "killed": killed, "indexed": indexed, "unindexed": unindexed, "bes3": bes3})
