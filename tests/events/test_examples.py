#!/usr/bin/env python3
"""Runs the examples of configs/examples/python on a run that goes on until they have drawn it, and on one that has ended.

EVB_KEEP_PLOT=FOLDER keeps the pictures.
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import cases
import files
from files import Files, end, event, fragments_of, front, record, words
from test_follow import Writer

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "configs" / "examples" / "python"
LIMIT_S = 1500
SOURCES = (0x700000, 0x700001)
NODES = [{"name": name, "role": "ros", "source": "udp:26901", "source_id": None} for name in ("tracker", "veto")]


def pulse(number, board):
    """A frame as docs/detectors.md describes it. Its height is 300 + number % 50, and 400 more for board 1."""
    samples = [100] * 15 + [400 + number % 50 + 400 * board]
    return words(number, 0) + b"".join(sample.to_bytes(2, "little") for sample in samples)


def pulses_of(number):
    # A fragment of the second board is missing.
    return [(source, pulse(number, i) if (number, i) != (3, 1) else b"") for i, source in enumerate(SOURCES)]


class Examples(Files):
    def setUp(self):
        super().setUp()
        self.need("matplotlib")
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.write("data/run7.begun.json", json.dumps({"run": 7, "scenario": {"nodes": NODES}}).encode())

    def need(self, module):
        if not files.find_module(module):
            self.skipTest(f"{module} is not installed; install python3-{module}")

    def environment(self):
        """Jupyter and Matplotlib keep files below HOME."""
        return {**os.environ, "HOME": self.folder, "XDG_CACHE_HOME": self.folder, "MPLCONFIGDIR": self.folder, "IPYTHONDIR": self.folder,
                "JUPYTER_RUNTIME_DIR": self.folder, "TMPDIR": self.folder, "EVB_DATA": self.data, "PYTHONPATH": str(ROOT / "python")}

    def keep(self, name, picture):
        self.assertTrue(picture.startswith(b"\x89PNG"))
        if folder := os.environ.get("EVB_KEEP_PLOT"):
            pathlib.Path(folder, name).write_bytes(picture)

    def write_whole(self, numbers):
        records = [record(i + 1, event(3, number, pulses_of(number))) for i, number in enumerate(numbers)]
        self.write("data/a.data", front(3) + b"".join(records) + end(len(records)))

    def test_the_monitor_follows_a_run(self):
        picture = pathlib.Path(self.folder, "spectra.png")
        writer = Writer(self.data, "a")
        list(writer.add(*range(100), fragments=pulses_of))
        with subprocess.Popen([sys.executable, EXAMPLES / "monitor.py", self.data, "--picture", picture], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment()) as monitor:
            self.addCleanup(monitor.kill)
            deadline = time.monotonic() + LIMIT_S
            while not picture.exists():
                self.assertIsNone(monitor.poll(), "the monitor ended before the run")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            list(writer.add(*range(100, 400), fragments=pulses_of))
            writer.close()
            out, err = monitor.communicate(timeout=LIMIT_S)
        self.assertEqual((monitor.returncode, out), (0, "run 7: 400 events of 2 boards\n"), err)
        self.assertFalse(picture.with_name("spectra.png.new").exists())
        self.keep("monitor.png", picture.read_bytes())

    def test_the_notebook_follows_a_run(self):
        self.need("nbclient")
        self.need("ipykernel")
        self.write_whole(range(400))
        shutil.copy(EXAMPLES / "follow.ipynb", self.folder)
        # Ports that it chooses may be in use before its kernel binds them.
        run = ("import jupyter_client, nbclient, nbformat; n = nbformat.read('follow.ipynb', 4); "
               "kernel = jupyter_client.AsyncKernelManager(transport='ipc', ip='kernel'); "
               f"nbclient.NotebookClient(n, km=kernel, timeout={LIMIT_S}, startup_timeout={LIMIT_S}, iopub_timeout={LIMIT_S}).execute(); "
               "nbformat.write(n, 'done.ipynb')")
        done = subprocess.run([sys.executable, "-c", run], cwd=self.folder, capture_output=True, text=True, timeout=2 * LIMIT_S,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "done.ipynb"), encoding="utf-8") as f:
            outputs = [output for cell in json.load(f)["cells"] for output in cell.get("outputs", ())]
        pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        self.assertEqual(len(pictures), 1)
        self.keep("notebook.png", base64.b64decode(pictures[0]))
        printed = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")
        self.assertEqual(printed, "0x700000: 400 pulses, mean height 325\n0x700001: 399 pulses, mean height 725\n")


cases.main()
