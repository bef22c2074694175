"""The results file: one line of JSON per measured point."""
import dataclasses
import fcntl
import json
import math
import os
import platform
import sys
import time

from . import valid
from .catalogue import BY_ID
from .measurement import Simulation, Testbed

# Names the first lines that are not results. A file with more than SPOILT_MAX is not a results file.
SPOILT_NAMED_MAX, SPOILT_MAX = 5, 1000
LOCK_TRIES, LOCK_PAUSE_S = 10, 0.1
# What readers rely on. A simulated point has no machine and no time.
TEXTS, MACHINE_TEXTS = ("id", "series", "settings", "version"), ("time", "kernel", "processor")
DIGITS = 9


class NotReadable(Exception):
    """A results file that cannot be used; the text says why."""


class Busy(NotReadable):
    """Another run writes to the file."""


class NotWritten(Exception):
    """A point could not be appended; the text says why."""


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_simulated(result):
    return result.get("simulated") is True


def is_result(r):
    """Whether the line has all members that readers rely on."""
    if not isinstance(r, dict) or not _is_number(r.get("x")):
        return False
    simulated = is_simulated(r)
    count = r.get("seed" if simulated else "processors")
    texts = TEXTS if simulated else TEXTS + MACHINE_TEXTS
    return (isinstance(count, int) and not isinstance(count, bool) and all(isinstance(r.get(key), str) for key in texts)
            and all(key not in r or isinstance(r[key], str) for key in ("panel", "testbed")))


def is_of_the_catalogue(r):
    """Another version may have other measurements, or other figures of a measurement."""
    m = BY_ID.get(r["id"])
    if not m or m.y not in r:
        return False
    return r["panel"] in [panel.name for panel in m.panels] if "panel" in r else not m.panels


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def _parse(line):
    try:
        return json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _read_lines(path, lines):
    results, foreign, bad = [], 0, 0
    for number, line in enumerate(lines, 1):
        result = _parse(line)
        if not is_result(result):
            bad += 1
            if bad <= SPOILT_NAMED_MAX:
                print(f"{path}:{number}: not a result; skipped", file=sys.stderr)
            if bad > SPOILT_MAX:
                raise NotReadable(f"{path}: not a results file")
        elif is_of_the_catalogue(result):
            results.append(result)
        else:
            foreign += 1
    if bad > SPOILT_NAMED_MAX:
        print(f"{path}: {bad} lines are not results", file=sys.stderr)
    if foreign:
        print(f"{path}: skipped {foreign} point{'' if foreign == 1 else 's'} of another version of the catalogue", file=sys.stderr)
    return results


def read(paths):
    """All results in the files, as a list of objects. Lines that are not results, and points of another version of the
    catalogue, are skipped with a warning. Raises NotReadable."""
    results = []
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                results += _read_lines(path, f)
        except OSError as e:
            raise NotReadable(f"{path}: {e.strerror}") from e
    return results


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where a point is made. A stored point counts as made only if it is from the same machine, kernel and version."""
    version: str
    kernel: str = dataclasses.field(default_factory=platform.release)
    processor: str = dataclasses.field(default_factory=lambda: processor_name())
    processors: int = dataclasses.field(default_factory=lambda: os.sysconf("SC_NPROCESSORS_ONLN"))

    def made(self, result):
        """A simulation is the same on every machine."""
        if is_simulated(result):
            return result["version"] == self.version
        return all(result[key] == value for key, value in dataclasses.asdict(self).items())


def processor_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = [line.partition(":")[2].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else "unknown"


def is_of(result, bed):
    """Whether the result is from this testbed, or from the simulator with this seed; None: from namespaces."""
    if isinstance(bed, Simulation) or is_simulated(result):
        return isinstance(bed, Simulation) and is_simulated(result) and result["seed"] == bed.seed
    return result.get("testbed", "") == (bed.name if isinstance(bed, Testbed) else "")


def _key(result):
    return result["id"], result.get("panel"), result["series"], result["settings"], result["x"]


class Made:
    """The results of one bed, found by their points: with the same settings."""

    def __init__(self, bed):
        self.bed, self.valid, self.disturbed = bed, {}, {}

    def add(self, result):
        if is_of(result, self.bed):
            (self.disturbed if valid.reason(result) else self.valid)[_key(result)] = result

    @staticmethod
    def _key(point):
        return point.measurement.id, point.panel, point.series, point.settings, point.x

    def newest(self, point):
        """The newest valid result of a point, or None."""
        return self.valid.get(self._key(point))

    def is_disturbed(self, point):
        """Whether all results of the point are disturbed."""
        return self._key(point) in self.disturbed and not self.newest(point)


def of_bed(results, m, bed):
    """The results of a measurement in namespaces (None), on one testbed, or in the simulator."""
    return [r for r in results if r["id"] == m.id and is_of(r, bed)]


def _written(value):
    """A value as the file has it: unknown instead of infinite, and no more digits than mean something."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(each) for each in value]
    return value


def describe(point, figures, machine):
    """The figures with the point's description, the machine and the time. A simulated point has a seed instead of a machine and
    a time, so the line is the same whenever it is made."""
    result = {key: value for key, value in figures.items() if key != "panel"}
    result["id"] = point.measurement.id
    if point.panel:
        result["panel"] = point.panel
    result.update(series=point.series, x=float(point.x), settings=str(point.settings))
    if isinstance(point.bed, Simulation):
        result.update(simulated=True, seed=point.bed.seed, version=machine.version)
    else:
        if isinstance(point.bed, Testbed):
            result["testbed"] = point.bed.name
        result.update(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **dataclasses.asdict(machine))
    return _written(result)


class File:
    """The results file, open for appending and locked."""

    def __init__(self, path):
        """Raises NotReadable, and Busy if another run writes to the file."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as e:
            raise NotReadable(f"{path}: {e.strerror}") from e
        self._lock()

    def _lock(self):
        """Processes of a killed run may hold its lock for a moment, until the kernel has ended them."""
        for i in range(LOCK_TRIES + 1):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S if i < LOCK_TRIES else 0)
        raise Busy(f"{self.path}: another evb lab run writes to this file; wait until it ends, or use another file (--results)")

    def append(self, result):
        """Writes a complete line, or raises NotWritten and leaves the file as it was."""
        try:
            self._append(json.dumps(result, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        except OSError as e:
            raise NotWritten(f"{self.path}: {e.strerror}") from e

    def _append(self, line):
        before = os.fstat(self._fd)
        if before.st_nlink == 0:
            raise NotWritten(f"{self.path}: the file was removed or replaced during the run")
        # Ends a line that a crash or a full disk truncated.
        if before.st_size > 0 and os.pread(self._fd, 1, before.st_size - 1) != b"\n":
            line = b"\n" + line
        done = os.write(self._fd, line)
        if done < len(line):
            os.ftruncate(self._fd, before.st_size)
            raise NotWritten(f"{self.path}: no space left for a complete point")

    def close(self):
        os.close(self._fd)
