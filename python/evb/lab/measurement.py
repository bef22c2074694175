"""Measurements, and the points that each consists of.

A point is one run with fixed settings, and its result is a flat JSON object of figures, so that an interrupted
measurement can continue later.
"""
from __future__ import annotations

import dataclasses
import enum
import re
import typing

from . import quantity
from .verdict import Verdict


class Kind(enum.Enum):
    """What a point runs."""
    EVENTS = "events"    # a complete event building run
    FLOWS = "flows"      # plain flows, and echoes beside data
    COPY = "copy"        # memory to memory
    PATHS = "paths"      # a file to a socket, on this machine only
    STREAMS = "streams"  # one stream of evb stream, on this machine only


# What shortens the points of a --quick run.
QUICK = {Kind.EVENTS: "scenario.duration=1s", Kind.PATHS: "seconds=0.3 file=268435456", Kind.STREAMS: "seconds=1.3 interval=0.5",
         Kind.FLOWS: "seconds=0.5", Kind.COPY: "seconds=0.5"}
# Making the files of a stream and comparing them takes about as long as the stream, on an average disk.
DISK_TIMES = 2
# A simulation of S1 to S9, on average.
VIRTUAL_S = 0.6
# The value of `kind=` in the settings of flows.
UDP, MULTICAST, TCP, ECHO = 0, 1, 2, 3
# Stored results have the names of keys at their time, and points must have the same text. Here are those with another name now.
RENAMED = {"level2.stand-in": "test.stand-in", "ros.buffer-events": "test.buffer-events", "ros.pacing": "test.pacing",
           "sfi.re-ask": "sfi.retries"}
WITHOUT_EFFECT = ("dfm.event-timeout", "level2.window")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One small plot with all series over all x. Its settings precede those of the series."""
    name: str      # "ROW, COLUMN" or "COLUMN": the position in the grid of plots
    settings: str
    quick: bool    # part of a --quick run


@dataclasses.dataclass(frozen=True)
class Mark:
    """A published figure, drawn into the plot of the measurement."""
    label: str
    x: float
    y: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Settings are "KEY=VALUE KEY=VALUE": keys of a scenario, or those that the kind has. The later one counts."""
    id: str
    title: str
    published: str             # the published outcome
    x_label: str
    y_label: str
    y: str                     # the plotted figure of the points
    kind: Kind
    base: str                  # settings of all points
    series: dict[str, str]     # a curve each: its name, and the settings that it adds
    x: list[float]
    quick_x: list[float]       # of a --quick run
    vary: typing.Callable[["Point", float], str]   # the settings that depend on x; the point has the others
    judge: typing.Callable[[typing.Any], tuple[Verdict, str]]  # all points (query.Judging): the verdict, and why
    panels: list[Panel] = dataclasses.field(default_factory=list)
    marks: list[Mark] = dataclasses.field(default_factory=list)
    optional: frozenset[str] = frozenset()  # series that need a feature that not every kernel has; a verdict does not
    quick: str = ""            # what shortens the points of a --quick run (default: QUICK)
    log_x: bool = False
    virtual_only: bool = False  # no lab of ours could make it, only the simulator
    benchmark: bool = False    # of this machine: "all" leaves it out, and neither a testbed nor the simulator makes it
    table: typing.Callable[[typing.Any], list[list[str]]] | None = None  # as judge: what the reason has no room for, its head first

    @property
    def quick_setting(self):
        return self.quick or QUICK[self.kind]


class Settings(str):
    """"KEY=VALUE KEY=VALUE". Results record the text, and an equal text is the same point."""

    def text(self, key, otherwise=""):
        """The value of the last setting with this key."""
        values = [word.partition("=")[2] for word in self.split(" ") if word.partition("=")[0] == key and "=" in word]
        return values[-1] if values else otherwise

    def number(self, key, otherwise=0.0):
        """The number that the value begins with, without its unit: 256 of "256KiB"."""
        text = self.text(key)
        if not text:
            return float(otherwise)
        match = re.match(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text)
        return float(match[0]) if match else 0.0

    def scenario_keys(self):
        """The keys of a scenario, by their present names, and their values."""
        keys = {}
        for word in self.split():
            key, _, value = word.partition("=")
            if key == "network.tcp-congestion":
                key, value = "scenario.transport", f"tcp:{value}"
            elif word == "ros.stagger=no":
                key, value = "test.pacing", "together"
            if "." in key and key not in WITHOUT_EFFECT:
                keys[RENAMED.get(key, key)] = value
        return keys

    def without(self, *keys):
        """Removes settings; blanks stay, as in stored results."""
        return Settings(" ".join("" if word.partition("=")[0] in keys and "=" in word else word for word in self.split(" ")))


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Where points are made: in virtual time. The same point, seed and version give the same result."""
    seed: int = 1
    model: str = ""  # options of evb sim without dashes, "NAME=VALUE ..."


@dataclasses.dataclass(frozen=True)
class Testbed:
    """Where points are made: on the machines of a scenario (--config FILE)."""
    path: str                 # of the scenario
    settings: tuple[str, ...]  # --set
    name: str                 # scenario.name, "testbed" in results
    ros: int                  # nodes by role
    sfi: int
    link_rate_bps: float
    mtu_bytes: int
    switch_buffer_bytes: int
    ssh: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5")  # before ADDRESS COMMAND
    program: str = "evb"      # on the machines


@dataclasses.dataclass(frozen=True)
class Point:
    measurement: Measurement
    series: str
    x: float
    settings: Settings
    panel: str | None = None                   # None: the measurement has no panels
    bed: Simulation | Testbed | None = None    # None: namespaces of this machine

    def number(self, key, otherwise=0.0):
        return self.settings.number(key, otherwise)

    def text(self, key, otherwise=""):
        return self.settings.text(key, otherwise)

    @property
    def is_optional(self):
        return self.series in self.measurement.optional

    @property
    def seconds(self):
        """Expected duration, with the time to set up and tear down the namespaces, or to check a data path."""
        if self.measurement.virtual_only:
            return VIRTUAL_S
        kind, seconds = self.measurement.kind, self.number("seconds", 1)
        if kind is Kind.EVENTS:
            return self.number("scenario.duration", 2) + 0.7
        if kind is Kind.PATHS:
            return seconds + 0.3
        if kind is Kind.STREAMS:
            return seconds * (DISK_TIMES if self.number("disk") > 0 else 1) + 0.6
        return seconds + (1.5 if self.number("kind") == TCP else 0.6)

    @property
    def link_bps(self):
        rate_bps = self.bed.link_rate_bps if isinstance(self.bed, Testbed) else 0
        return rate_bps or quantity.parse(self.text("network.link-rate", "1Gbit")) or 0

    @property
    def mtu_bytes(self):
        return self.bed.mtu_bytes if isinstance(self.bed, Testbed) else self.number("network.mtu", 1500) or 1500

    def __str__(self):
        panel = f"{self.panel}, " if self.panel else ""
        return f'{self.measurement.id}: "{panel}{self.series}" at {self.x:g}'


def make_point(m, panel, series, x, bed, quick):
    """The text of the settings is exactly that of the points in stored results, blanks included."""
    text = f"{m.base} {panel.settings + ' ' if panel else ''}{m.series[series]}{' ' + m.quick_setting if quick else ''}"
    point = Point(m, series, x, Settings(text), panel.name if panel else None, bed)
    varied = m.vary(point, x)
    text += f" {varied}" if varied else ""
    if isinstance(bed, Simulation) and bed.model:
        text += f" {bed.model}"
    settings = Settings(text)
    # Only vary() reads these two; they are not keys of a scenario.
    if m.kind is Kind.EVENTS:
        settings = settings.without("load", "paced")
    return dataclasses.replace(point, settings=settings)


def points_of(m, bed=None, quick=False):
    """All points of a measurement, in the order in which they are made."""
    panels = [panel for panel in m.panels if panel.quick or not quick] if m.panels else [None]
    return [make_point(m, panel, series, x, bed, quick)
            for panel in panels for x in (m.quick_x if quick else m.x) for series in m.series]
