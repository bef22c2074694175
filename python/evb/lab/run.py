"""`evb lab run`: makes the planned points one by one, and appends each to the results file."""
from __future__ import annotations

import dataclasses
import os
import signal
import sys

from ..interpreter import let_interrupt
from . import machine, results, valid
from .catalogue import plan
from .execute import Context, PointFailed, PointLacks, run_point
from .judge import decisive_points, judge
from .measurement import Measurement, Simulation, Testbed
from .verdict import Verdict

# Of one measurement; bounds the time that confirming a verdict takes.
CONFIRMED_MAX = 12


def say(text):
    print(f"evb lab run: {text}", file=sys.stderr)


class Stop:
    """Signals that ask the lab to stop. They are noticed between points, and end the current one."""

    def __init__(self):
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        let_interrupt()

    def _ask(self, *_):
        self.asked = True

    def __call__(self):
        return self.asked


class Progress:
    """A line for each point, which the next one overwrites on a terminal."""

    def __init__(self, wanted):
        self.wanted, self.terminal = wanted, sys.stderr.isatty()

    def __call__(self, i, n, point, left_s=None):
        if not self.wanted:
            return
        panel = f"{point.panel}, " if point.panel else ""
        left = f"; about {int(left_s) // 60} min {int(left_s) % 60:02} s left" if left_s is not None else ""
        text = f"{i}/{n} {point.measurement.id}, {panel}{point.series} at {point.x:g}{left}    "
        sys.stderr.write(f"\r{text}" if self.terminal else f"{text}\n")

    def end(self):
        if self.wanted and self.terminal:
            sys.stderr.write("\n")


@dataclasses.dataclass
class Made:
    """How many points a run made, how many of them again after a disturbance, how many of all its points have disturbed results
    only, and how many were made more often because a verdict rests on them."""
    points: int = 0
    repeated: int = 0
    disturbed: int = 0
    confirmed: int = 0


@dataclasses.dataclass
class Order:
    """What the command line asks for."""
    measurements: list[Measurement]
    named: set[str]               # words of the command line
    bed: Simulation | Testbed | None
    quick: bool = False
    again: bool = False           # repeat points that the results file already contains
    accept_disturbed: bool = False
    path: str = "evb-lab.jsonl"


class Run:
    """The state of one `evb lab run`."""

    def __init__(self, order, context, here, progress):
        """`here`: the machine, a results.Machine. Raises results.NotReadable."""
        self.order, self.context, self.here, self.progress = order, context, here, progress
        self.file = results.File(order.path)
        self.results, self.by_point = [], results.Made(order.bed)
        for result in [] if order.again else self._stored():
            self._add(result)
        self.points, self.skipped = plan(order.measurements, order.named, order.bed, order.quick, say)
        self.failed, self.made = 0, Made()
        self.full = self.at_end = self.kept_awake = False

    def _stored(self):
        """The results in the file that are from this machine, kernel and version: others say nothing about it."""
        every = results.read([self.order.path])
        mine = [r for r in every if self.here.made(r)]
        if len(mine) < len(every):
            n = len(every) - len(mine)
            say(f"{self.order.path}: {n} point{'' if n == 1 else 's'} of another machine, kernel or version of evb "
                f"{'is' if n == 1 else 'are'} not used")
        return mine

    def _add(self, result):
        self.results.append(result)
        self.by_point.add(result)

    @property
    def stopped(self):
        return self.full or self.context.stopped()

    def append(self, point, figures):
        """Stores the figures of a point. Returns whether they could be written."""
        result = results.describe(point, figures, self.here)
        try:
            self.file.append(result)
        except results.NotWritten as e:
            print(e, file=sys.stderr)
            self.full = True
            return False
        self._add(result)
        return True

    def measure(self, point, repeats_max):
        """The figures of a point, made again while it is disturbed. A user may accept a disturbed point, which then counts; its
        reason remains on record."""
        accepts = self.order.accept_disturbed

        def once():
            figures = run_point(point, self.context)
            valid.describe(figures, self.context.raised)
            return figures

        figures = valid.make(once, 0 if accepts else repeats_max, self.context.stopped)
        if accepts and valid.reason(figures):
            figures["accepted"], figures["disturbed"] = figures["disturbed"], None
        figures["kept_awake"] = self.kept_awake
        return figures

    def twin_of(self, point):
        """A result of the same settings: some measurements share points, and differ in the figure that they use."""
        return next((r for r in self.results if r["settings"] == point.settings and r["x"] == point.x
                     and results.is_of(r, point.bed) and "copied" not in r and not valid.reason(r) and point.measurement.y in r),
                    None)

    def figures_of(self, point):
        """Counts the earlier attempts as well, of which the first is not a repeat."""
        twin = self.twin_of(point)
        if twin:
            return {**twin, "copied": True}
        if not self.at_end:
            return self.measure(point, valid.REPEATS_AT_ONCE)
        figures = self.measure(point, valid.REPEATS_MAX - valid.REPEATS_AT_ONCE - 1)
        figures["repeats"] += valid.REPEATS_AT_ONCE + 1
        return figures

    def make(self, point):
        """Makes a point and stores it. The figures of an interrupted point are invalid. A verdict does without an optional point that
        the machine cannot make."""
        try:
            figures = self.figures_of(point)
        except PointFailed as e:
            figures = None
            if not self.context.stopped():
                say(f"{point} failed: {e}")
                if point.is_optional and isinstance(e, PointLacks):
                    return
        if figures is None or self.context.stopped():
            self.failed += 1
            return
        if not self.append(point, figures):
            return
        if self.at_end and valid.reason(figures):
            say(f"{point} is disturbed: {valid.reason(figures)}")
        elif not self.at_end and "copied" not in figures:
            self.made.points += 1
            self.made.repeated += figures["repeats"] > 0

    def is_missing(self, point):
        return self.by_point.newest(point) is None

    def make_all(self):
        left_s = sum(point.seconds for point in self.points if self.is_missing(point))
        for i, point in enumerate(self.points, 1):
            if self.stopped:
                break
            if self.is_missing(point):
                self.progress(i, len(self.points), point, left_s)
                self.make(point)
                left_s -= point.seconds
        self.progress.end()

    def make_disturbed_again(self):
        """At the end of the run, what disturbed a point may be over."""
        self.at_end = True
        for i, point in enumerate(self.points, 1):
            if self.stopped:
                break
            if self.by_point.is_disturbed(point):
                self.progress(i, len(self.points), point, point.seconds)
                self.make(point)

    def confirm(self, point):
        """Makes a point that decides a verdict more often. Returns whether it has appended the median."""
        samples = [self.by_point.newest(point)]
        while len(samples) < valid.SAMPLES and not self.context.stopped():
            try:
                figures = self.measure(point, valid.REPEATS_MAX)
            except PointFailed:
                return False
            if valid.reason(figures):
                return False
            samples.append(figures)
        if self.context.stopped() or not self.append(point, valid.median(samples, point.measurement.y)):
            return False
        self.made.confirmed += 1
        return True

    def unconfirmed(self, m):
        """The points that decide that a measurement differs, unless they count with their medians already."""
        mine = results.of_bed(self.results, m, self.order.bed)
        if judge(m, mine, self.order.quick)[0] is not Verdict.DIFFERS:
            return []
        points = [dataclasses.replace(p, bed=self.order.bed) for p in decisive_points(m, mine, self.order.quick)[:CONFIRMED_MAX]]
        made = [(point, self.by_point.newest(point)) for point in points]
        return [point for point, result in made if result and "samples" not in result]

    def confirm_measurement(self, m):
        """The verdict "differs" must not rest on chance. Once a point counts with its median, the verdict may rest on another
        one."""
        left, confirmed = CONFIRMED_MAX, True
        while confirmed and left > 0 and not self.stopped:
            points = self.unconfirmed(m)[:left]
            confirmed = False
            for i, point in enumerate(points):
                if self.stopped:
                    return
                self.progress(i + 1, len(points), point, (len(points) - i) * 2 * point.seconds)
                confirmed |= self.confirm(point)
                left -= 1

    def all(self):
        """Makes all points, and those again on which other work or chance has an influence."""
        self.make_all()
        self.make_disturbed_again()
        if not self.order.accept_disturbed:
            for m in self.order.measurements:
                self.confirm_measurement(m)
        self.made.disturbed = sum(map(self.by_point.is_disturbed, self.points))

    def interruption(self):
        """Why the run ended early, or None."""
        if not self.stopped:
            return None
        return (f"{'stopped because points cannot be written' if self.full else 'interrupted'}; the same command continues after "
                f"the points in {self.order.path}")


def make_points(run):
    """Makes the points of a run on this machine, or on those of a testbed. Returns an exit status, or None after the run."""
    for pid in machine.others():
        say(f"process {pid} also measures on this machine; each disturbs the results of the other")
    try:
        with machine.states():
            if run.order.bed:
                run.all()
            else:
                machine.clean_namespaces()
                machine.clean_states()
                run.context.raised = machine.may_raise()
                machine.attend()
                with machine.awake() as run.kept_awake:
                    run.all()
    except OSError as e:
        if str(e.filename or "").startswith(str(machine.STATES / "evb-lab-state-")):
            say(f"cannot create a directory in /tmp: {os.strerror(e.errno)}")
            return 1
        raise
    return None
