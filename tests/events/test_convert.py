#!/usr/bin/env python3
"""Tests the conversion of event files: what h5py and uproot alone find in the output, and that no half output is left."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys

# A Python that has uproot, awkward and h5py.
if python := os.environ.pop("EVB_UPROOT_PYTHON", None):
    os.execv(python, [python, *sys.orig_argv[1:]])

import cases
import files
from files import Files, end, event, record, whole

import evb
import numpy as np

HAS = {module: files.find_module(module) for module in ("h5py", "uproot", "awkward")}
DECODER = """
import numpy
def samples(payload, source):
    if source == "0x110003":
        return None
    found = numpy.zeros(len(payload) // 3, [("offset", ">u2"), ("data", "f4"), ("pair", "u1", 2)])
    found["offset"] = payload[:len(found)]
    found["data"] = 0.5 * len(payload)
    found["pair"] = payload[:2 * len(found)].reshape(-1, 2)
    return found
def plain(payload, source):
    return payload[:2]
def changing(payload, source):
    return payload if payload[0] != 2 else payload.view("i1")
def failing(payload, source):
    return payload[99]
def texts(payload, source):
    return "text"
"""


class Convert(Files):
    def setUp(self):
        super().setUp()
        self.output = os.path.join(self.folder, "out.h5")
        self.write("decoder.py", DECODER.encode())

    def convert(self, *arguments, expect=0, **options):
        """Runs the command in the folder of the files; returns its standard error."""
        words = [sys.executable, "-m", "evb.convert", *arguments]
        environment = {**os.environ, "EVB_VERSION": "9.9", **options.pop("env", {})}
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=1500, env=environment, **options)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".writing")], [])
        if expect and "damaged" not in done.stderr:
            self.assertFalse(os.path.exists(self.output))
        self.printed = done.stdout
        return done.stderr

    def write_run(self, extra=b""):
        a = [3, 1, 9] + list(range(20, 120))
        self.write("a.data", b"".join(whole(3, a, core="a")))
        one = event(5, 4, [(0x700000, b"\2four")], status=1 << 31, stamp=(4, 2, 6))
        self.write("b.data", b"".join(whole(5, [2], core="b")[:-1]) + record(2, one) + end(2) + extra)
        nodes = [{"name": "adc", "role": "ros", "source": "pattern", "source_id": None}]
        self.write("a.run.json", json.dumps({"run": 7, "metadata": {"beam": "on"}, "versions": {"evb": "0.1"},
                                             "scenario": {"nodes": nodes}}).encode())
        return None if extra else evb.open(self.folder)

    def need(self, module):
        if not HAS[module]:
            self.skipTest(f"{module} is not installed")
        return __import__(module)

    def check_origin(self, origin, decoder=""):
        self.assertEqual((origin["run"], origin["events"], origin["written_by"], origin["decoder"]), (7, 105, "evb 0.1", decoder))
        self.assertEqual((origin["metadata"], origin["sources"]), ({"Seed": "3", "beam": "on"}, {"adc": 0x700000}))
        self.assertEqual(len(origin["scenario_sha256"]), 64)
        for item in origin["inputs"]:
            data = pathlib.Path(self.folder, item["name"]).read_bytes()
            self.assertEqual((item["bytes"], item["sha256"]), (len(data), files.hashlib.sha256(data).hexdigest()))
        self.assertEqual(sorted((item["name"], item["events"]) for item in origin["inputs"]), [("a.data", 103), ("b.data", 2)])

    def test_hdf5_has_the_events(self):
        h5py = self.need("h5py")
        run = self.write_run()
        for level in ("0", "4"):
            self.output = os.path.join(self.folder, f"out{level}.h5")
            self.convert(".", "--output", self.output, "--compress", level, "--json")
            self.check_origin(json.loads(self.printed))
            with h5py.File(self.output) as f:
                self.check_origin(json.loads(f["provenance"][()]))
                self.assertEqual((f.attrs["run"], f.attrs["program"], json.loads(f.attrs["metadata"])["beam"]), (7, "evb 9.9", "on"))
                self.assertEqual(len(f["event"]), 9)
                for name in ("number", "l1_id", "trigger_type", "status", "global_id", "spill", "trigger_flags"):
                    self.assertEqual(f["event"][name][:].tolist(), [getattr(e, name) for e in run])
                self.assertEqual(f["event/time_ns"][:].view("M8[ns]").tolist(), evb.columns(run).time.tolist())
                self.assertEqual(set(f["event/run"]), {7})
                self.assertEqual(sorted(f["source"]), ["0x110003", "0x700001", "adc"])
                self.assertEqual(f["source/adc/data"].compression, "gzip" if level == "4" else None)
                for name, group in f["source"].items():
                    source, offset, data = group.attrs["source_id"], group["offset"][:], group["data"][:]
                    for i, e in enumerate(run):
                        self.assertEqual(data[offset[i]:offset[i + 1]].tobytes(), e[source].tobytes() if source in e else b"", name)

    def test_root_has_the_events(self):
        uproot = self.need("uproot")
        run = self.write_run()
        self.output = os.path.join(self.folder, "out.root")
        for decoder in ((), ("--decode", "decoder:samples")):
            self.convert(".", "--output", self.output, *decoder)
            with uproot.open(self.output) as f:
                self.check_origin(json.loads(f["provenance"]), "".join(decoder[1:]))
                found = f["events"].arrays()
            os.remove(self.output)
            for name in ("number", "global_id", "spill", "trigger_flags"):
                self.assertEqual(found[name].to_list(), [getattr(e, name) for e in run])
            self.assertEqual([bytes(x) for x in found["data_0x110003"].to_list()],
                             [e[0x110003].tobytes() if 0x110003 in e else b"" for e in run])
            adc = found["data_adc"].to_list()
            if decoder:
                self.assertEqual(adc[0][1], {"offset": 2, "data": 4.5, "pair": [3, 4]})
            else:
                self.assertEqual([bytes(x) for x in adc], [e["adc"].tobytes() for e in run])

    def test_awkward_arrays_have_the_events(self):
        self.need("awkward")
        run = self.write_run()
        found = evb.awkward(run)
        for name in ("number", "l1_id", "spill", "trigger_flags", "complete"):
            self.assertEqual(found[name].to_list(), [getattr(e, name) for e in run])
        self.assertEqual([bytes(x) for x in found["adc"].to_list()], [e["adc"].tobytes() for e in run])
        self.assertEqual(sorted(set(found.fields) - {"adc"})[:2], ["0x110003", "0x700001"])

    def test_a_decoder_makes_columns(self):
        h5py = self.need("h5py")
        run = self.write_run()
        self.convert(".", "--output", self.output, "--decode", "decoder:samples")
        with h5py.File(self.output) as f:
            adc = f["source/adc"]
            self.assertEqual(sorted(adc["values"]), ["data", "offset", "pair"])
            self.assertEqual(adc["offset"][:].tolist(), np.cumsum([0] + [len(e["adc"]) // 3 for e in run]).tolist())
            self.assertEqual(adc["values/offset"][:].tolist(), [x for e in run for x in e["adc"][:len(e["adc"]) // 3].tolist()])
            self.assertEqual(adc["values/pair"].shape, (len(adc["values/offset"]), 2))
            self.assertIn("data", f["source/0x110003"])
        os.remove(self.output)
        self.convert(".", "--output", self.output, "--decode", "decoder:plain")
        with h5py.File(self.output) as f:
            self.assertEqual(f["source/adc/values/value"][:4].tolist(), [1, 2, 2, 3])

    def test_a_wrong_decoder_is_named(self):
        self.need("h5py")
        self.write_run()
        for name, status, text in (("decoder", 2, "is not MODULE:FUNCTION"), ("none:f", 2, "No module named 'none'"),
                                   ("decoder:none", 2, "has no attribute 'none'"),
                                   ("decoder:failing", 1, "the decoder fails for .* in event .*: IndexError"),
                                   ("decoder:texts", 1, "returns no one-dimensional array of numbers"),
                                   ("decoder:changing", 1, "returns the type int8 for adc in event 2, and uint8 before")):
            self.assertRegex(self.convert(".", "--output", self.output, "--decode", name, expect=status), text)

    def test_wrong_commands_are_refused(self):
        self.need("h5py")
        self.write_run()
        for words, text in ((["--output", "x.txt"], "unknown ending"), ([], "missing option --output"),
                            (["--output", "a.data"], "unknown ending"), (["--output", "old.h5"], "the file exists"),
                            (["--run", "8", "--output", self.output], "no event files of run 8"),
                            (["--compress", "10", "--output", self.output], "is not a level from 0 to 9")):
            self.write("old.h5", b"kept")
            self.assertIn(text, self.convert(".", *words, expect=2))
        self.assertEqual(pathlib.Path(self.folder, "old.h5").read_bytes(), b"kept")

    def test_a_report_that_cannot_be_written_is_an_error(self):
        self.need("h5py")
        self.write_run()
        for i, words in enumerate(([], ["--json"], ["--json=/dev/full"])):
            self.output = os.path.join(self.folder, f"out{i}.h5")
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([sys.executable, "-m", "evb.convert", ".", "--output", self.output, *words], cwd=self.folder, text=True,
                                      stdout=full, stderr=subprocess.PIPE, timeout=1500)
            self.assertEqual((done.returncode, os.path.exists(self.output)), (1, True))
            self.assertIn("is whole, but its report cannot be written: [Errno 28]", done.stderr)

    def test_damage_is_named_and_the_rest_converted(self):
        h5py = self.need("h5py")
        self.write_run(b"more")
        self.assertIn("bytes after the end record are not read", self.convert(".", "--output", self.output, expect=1))
        with h5py.File(self.output) as f:
            self.assertEqual(len(f["event/number"]), 105)

    def test_a_full_disk_leaves_nothing(self):
        def limit(size):
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        self.write("a.data", b"".join(record(i, event(3, i, [(0x700000, os.urandom(40000))])) if i else files.front(3)
                                      for i in range(60)) + end(59))
        for module, name, packing in (("h5py", "out.h5", "4"), ("h5py", "out.h5", "0"), ("uproot", "out.root", "4")):
            if HAS[module]:
                self.output = os.path.join(self.folder, name)
                for size in (0, 10000, 1500000):
                    error = self.convert("a.data", "--output", self.output, "--compress", packing, expect=1, preexec_fn=limit(size))
                    self.assertEqual(error, f"evb convert: cannot write {self.output}: [Errno 27] File too large\n")

    def test_an_interrupted_command_leaves_nothing(self):
        self.need("h5py")
        self.write_run()
        # The decoder interrupts the command at an event in the middle.
        self.write("stop.py", b"import os\ndef stop(payload, source):\n"
                   b"    for i in range(int(os.environ['TIMES']) if payload[0] == 50 else 0):\n"
                   b"        os.kill(os.getpid(), int(os.environ['NUMBER']))\n    return payload\n")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for times in (1, 2):
                error = self.convert(".", "--output", self.output, "--decode", "stop:stop", expect=1,
                                     env={"NUMBER": str(int(number)), "TIMES": str(times)})
                self.assertEqual(error, f"evb convert: interrupted by {number.name}; no output is left\n" if times == 1 else "")

    def test_a_missing_module_is_named(self):
        self.write_run()
        self.write("h5py.py", b"raise ImportError('no')")
        error = self.convert(".", "--output", self.output, expect=77)
        self.assertIn("h5py is not installed; install it, e.g. with: apt-get install python3-h5py", error)

    def test_a_run_without_events_has_empty_columns(self):
        h5py = self.need("h5py")
        self.write("a.data", b"".join(whole(3, [])))
        self.convert("a.data", "--output", self.output)
        with h5py.File(self.output) as f:
            self.assertEqual((len(f["event/number"]), f.attrs["events"]), (0, 0))


if __name__ == "__main__":
    cases.main()
