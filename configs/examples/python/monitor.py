#!/usr/bin/env python3
"""Shows pulse-height spectra and the event rate of a run while it goes on, from its files or from the live events of an SFI.

Each fragment is a pulse, as in "From boards to a plot" of docs/detectors.md. Change height() for your own boards.
"""
import argparse
import collections
import os
import re
import sys
import threading
import time

import evb
import matplotlib
import numpy as np

parser = argparse.ArgumentParser(description="Shows spectra and rate of a run while it goes on.")
parser.add_argument("data", nargs="+", help="folder or files, whose newest run is followed; or the live.listen of an SFI, such as unix:PATH")
parser.add_argument("--picture", metavar="FILE", help="write a picture (PNG) each second instead of opening a window")
options = parser.parse_args()
if options.picture:
    matplotlib.use("Agg")
import matplotlib.pyplot as plt  # pylint: disable=wrong-import-position

BIN, BINS = 8, 128
# Live events are those that come while the loop waits for one, so the run is never slower for them.
is_live = re.search(r"^unix:|:\d+$", options.data[0]) and not os.path.exists(options.data[0])
run = evb.live(options.data[0]) if is_live else evb.open(options.data, follow=True)
spectra, state = {}, {"events": 0, "built": 0, "ended": False}
rates = collections.deque(maxlen=600)


def height(payload):
    samples = payload[8:].view("<u2").astype(int)
    return samples.max() - samples.min()


def read():
    for event in run:
        for source in event.sources:
            payload = event[source]
            if len(payload) > 0:  # empty if the fragment is missing
                spectrum = spectra.setdefault(source, np.zeros(BINS, int))
                spectrum[min(height(payload) // BIN, BINS - 1)] += 1
        state["events"] += 1
        state["built"] = event.offered if is_live else state["events"]
    state["ended"] = True


def describe():
    return f"{state['events']} of {state['built']} events" if is_live else f"run {run.number}: {state['events']} events"


def draw(left, right):
    names = {source: name for name, source in run.sources.items()}
    left.clear()
    for source, spectrum in sorted(spectra.items()):
        left.stairs(spectrum, BIN * np.arange(BINS + 1), label=names.get(source, f"{source:#x}"))
    left.set(xlabel="pulse height, ADC counts", ylabel="events", title=describe())
    if spectra:
        left.legend()
    right.clear()
    right.plot(*zip(*rates), ".-")
    right.set(xlabel="time, s", ylabel="events/s", ylim=(0, None))


def main():
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="tight")
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    began = last = time.monotonic()
    goes_on = True
    while goes_on:
        before = state["built"]
        reader.join(1) if options.picture else plt.pause(1)
        goes_on = reader.is_alive()  # after the end, all events are drawn
        now = time.monotonic()
        rates.append((now - began, (state["built"] - before) / (now - last)))
        last = now
        draw(*axes)
        if options.picture:
            figure.savefig(options.picture + ".new", format="png")
            os.replace(options.picture + ".new", options.picture)
    print(f"{describe()} of {len(spectra)} boards")
    if not options.picture:
        plt.show()  # until the window is closed
    sys.exit(0 if state["ended"] else 1)


if __name__ == "__main__":
    main()
