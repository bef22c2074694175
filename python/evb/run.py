"""A run: the events of all its files in their order, also while the files grow."""
import glob
import io
import json
import os
import time
import warnings

import numpy as np

from . import eformat
from .event import Batch, Event
from .storage import INDEX_ENDING, DamageWarning, EventFile

BATCH_EVENTS = 4096
POLL_S = 0.05
RECORD_S = 0.5  # between looks for a record that is not there
ENDINGS = (".data", ".writing")
BESIDE = (INDEX_ENDING, ".json.writing")  # in a folder: an index, and a record that an SFI is just writing
FOUND_BY = ("number", "global_id", "l1_id", "spill", "trigger_flags", "trigger_type", "status")


def open(paths, follow=False, run=None, timeout=None):  # pylint: disable=redefined-builtin
    """Opens the event files of one run.

    `paths` is a file, a folder, a pattern such as "data/*.data", or several of these. If they have files of several runs, `run`
    selects one. `follow` makes iteration wait for new events until the run ends, also in files that do not exist yet; without
    `run` it follows the run of the newest file. `timeout` ends it after so many seconds without a new event.
    """
    return Run(paths, follow, run, timeout)


class _Folder:
    """Finds the event files that the paths name; looks again only if a folder has changed."""

    def __init__(self, paths, follow):
        self.paths = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
        self.follow = follow
        self._times = None

    def _patterns(self):
        for path in self.paths:
            if os.path.isdir(path):
                yield from (os.path.join(glob.escape(path), "*" + ending) for ending in ENDINGS)
            elif self.follow and path.endswith(ENDINGS):
                stem = os.path.splitext(path)[0]
                yield from ((stem if glob.has_magic(path) else glob.escape(stem)) + ending for ending in ENDINGS)
            else:
                yield path

    def find(self):
        """Returns the paths; None: the same as before."""
        patterns = list(self._patterns())
        folders = {os.path.dirname(pattern) or "." for pattern in patterns}
        times = {}
        for folder in folders:
            try:
                times[folder] = None if glob.has_magic(folder) else os.stat(folder).st_mtime_ns
            except OSError:
                times[folder] = None
        # A folder may change twice within one tick of its time: look again for a while.
        now = time.time_ns()
        if times == self._times and all(t is not None and now - t > 10**9 for t in times.values()):
            return None
        self._times = times
        found = []
        for pattern in patterns:
            if glob.has_magic(pattern) and not os.path.exists(pattern):
                found += sorted(path for path in glob.glob(pattern) if not path.endswith(BESIDE))
            elif os.path.exists(pattern) or not self.follow:
                found.append(pattern)
        # A shell's pattern names the index of a file, too.
        named = set(found)
        return [path for path in found if not (path.endswith(INDEX_ENDING) and path[:-len(INDEX_ENDING)] in named)]


class _Stream:
    """The files that one SFI writes for the run."""

    def __init__(self, file):
        self.folder, self.core_name = os.path.dirname(file.path), file.front and file.front.core_name
        self.files = []

    def _has_record(self, since_ns):
        pattern = os.path.join(glob.escape(self.folder), glob.escape(self.core_name or "?") + ".run*.json")
        return any(os.stat(path).st_mtime_ns >= since_ns for path in glob.glob(pattern))

    def last(self):
        return max(self.files, key=lambda file: file.front.file_number if file.front else 0)

    def has_ended(self):
        last = self.last()
        if not last.finished:
            return False
        # Its writer may have renamed it since, and gone on with the next one.
        if last.is_writing and not os.path.exists(last.path) and os.path.exists(os.path.splitext(last.path)[0] + ".data"):
            return False
        if last.is_writing or not os.path.exists(last.path) or (last.end and last.end["is_last"]):
            return True
        # The last file may have become full just before the end; then only the run's record shows the end.
        return self._has_record(os.stat(last.path).st_mtime_ns)


def _sources_in(record):
    try:
        ros = [node for node in record["scenario"]["nodes"] if node["role"] == "ros"]
        return {node["name"]: eformat.RAW_SUBDET << 16 | i if node["source_id"] is None else int(str(node["source_id"]), 0)
                for i, node in enumerate(ros) if not str(node["source"]).startswith("file:")}
    except (KeyError, TypeError, ValueError):
        return {}


def _changed_ns(path):
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


class Run:
    """The events of a run, in the order of their numbers. While a run is followed, those found later come later."""

    def __init__(self, paths, follow=False, run=None, timeout=None):
        self.follow, self.timeout = follow, timeout
        self.number = run
        self.files = []
        self._parts = []  # of the files, in the order in which they were found
        self._folder = _Folder(paths, follow)
        self._known = {}  # by device and inode: the files of this run, None for others
        self._record, self._begun, self._sources, self._looked = None, None, None, (0, 0)
        self._order = eformat.Columns({"file": "i4", "row": "i8", "number": "u8", "time_ns": "i8"})
        self.copies, self._copies_named = 0, 0  # further builds of events
        self._open_new()
        if not self.files and not follow:
            raise FileNotFoundError(f"no event files{f' of run {run}' if run is not None else ''}: {', '.join(self._folder.paths)}")
        self._add_events({})
        self._name_copies()
        self._name_other_run()

    # ---- Files ----

    def _open_new(self):
        """Opens the files that are new, and learns new names of the others."""
        paths = self._folder.find()
        new = {}
        for path in paths or ():
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                if not self.follow:
                    raise
                continue  # renamed just now
            key = (stat.st_dev, stat.st_ino)
            if key in self._known:
                if self._known[key]:
                    self._known[key].path = path
            elif key not in new:
                try:
                    new[key] = (EventFile(path), stat.st_mtime_ns)
                except FileNotFoundError:
                    if not self.follow:
                        raise
                except ValueError as error:  # no event file
                    if path in self._folder.paths:
                        raise
                    warnings.warn(f"skipped: {error}", stacklevel=4)
                    self._known[key] = None
        runs = {file.run for file, _ in new.values()} - {None}
        if self.number is None and runs:
            if len(runs) > 1 and not self.follow:
                raise ValueError(f"files of runs {', '.join(map(str, sorted(runs)))}; choose one with run=")
            newest = max((item for item in new.values() if item[0].run is not None), key=lambda item: item[1])
            self.number = newest[0].run
        for key, (file, _) in new.items():
            if file.run is None and not file.finished:
                continue  # its writer has not begun it
            ours = file.run in (self.number, None)
            self._known[key] = file if ours else None
            if ours:
                self.files.append(file)
            else:
                file.close()

    def refresh(self):
        """Finds events that were written since, and returns their number. They come behind those known."""
        before = {part: len(part.headers) for part in self._parts}
        self._open_new()
        for file in self.files:
            file.refresh()
        return self._add_events(before)

    def _add_events(self, before):
        files, rows, numbers, times = [], [], [], []
        self._parts += [part for file in self.files for part in file.parts if part not in before]
        for i, part in enumerate(self._parts):
            begin, end = before.get(part, 0), len(part.headers)
            if begin < end:
                files.append(np.full(end - begin, i, np.int32))
                rows.append(np.arange(begin, end))
                numbers.append(part.headers.number[begin:])
                times.append(part.headers.time_ns[begin:])
        if not files:
            return 0
        numbers = np.concatenate(numbers)
        order = np.argsort(numbers, kind="stable")
        new = {"file": np.concatenate(files)[order], "row": np.concatenate(rows)[order], "number": numbers[order],
               "time_ns": np.concatenate(times)[order]}
        left_out = self._find_copies(new)
        if left_out:
            self.copies += len(left_out)
            new = {name: np.delete(column, left_out) for name, column in new.items()}
        self._order.extend(new)
        return len(new["row"])

    def _find_alike(self, new):
        """Returns groups of events with equal number and time, as indices into `known` and, behind it, the new ones; and `known`."""
        time_of = self._order.time_ns
        known = np.flatnonzero((time_of >= new["time_ns"].min()) & (time_of <= new["time_ns"].max()))
        is_repeated = np.isin(new["number"], self._order.number[known])
        if not is_repeated.any() and (np.diff(new["number"]) != 0).all():  # as in most runs
            return [], known
        number, time_ns = (np.concatenate([getattr(self._order, name)[known], new[name]]) for name in ("number", "time_ns"))
        order = np.lexsort((time_ns, number))
        is_other = (np.diff(number[order]) != 0) | (np.diff(time_ns[order]) != 0)
        begin = np.concatenate([[0], np.flatnonzero(is_other) + 1])
        end = np.append(begin[1:], len(order))
        # Only groups with a new event: within a group, these are the last.
        found = (end - begin > 1) & (order[end - 1] >= len(known))
        return [order[i:k].tolist() for i, k in zip(begin[found].tolist(), end[found].tolist())], known

    def _find_copies(self, new):
        """Returns which of these events are copies of others: an SFI that was killed had written them, and another one built them
        again. The first whole copy counts, but those known already stay."""
        left_out = []
        groups, known = self._find_alike(new)
        for group in groups:
            found = [self[known[i]] for i in group if i < len(known)]
            at = [i - len(known) for i in group if i >= len(known)]
            events = [(i, self._event(new["file"][i], new["row"][i:i + 1])) for i in at]
            for i, event in sorted(events, key=lambda item: not item[1].complete):
                if any(first.is_copy_of(event) for first in found):
                    left_out.append(i)
                else:
                    found.append(event)
        return left_out

    def _name_copies(self):
        if self.copies > self._copies_named:
            warnings.warn(f"events were built twice; the first whole copy of each is read (copies left out: {self.copies})", stacklevel=4)
        self._copies_named = self.copies

    def _name_other_run(self):
        """Warns if numbers of stamped events repeat, which they never do in one run."""
        checked = {part for file in self.files if file.end and file.end["is_checked"] for part in file.parts}
        order = np.argsort(self._order.number, kind="stable")
        is_checked = np.array([part in checked for part in self._parts], bool)[self._order.file[order]]
        is_other = (np.diff(self._order.number[order]) == 0) & (np.diff(self._order.time_ns[order]) != 0)
        n = np.count_nonzero(is_other & is_checked[1:] & is_checked[:-1])
        if n:
            warnings.warn(f"event numbers repeat with other times (events: {n}): several runs may have number {self.number}; then name the "
                          "files of one of them. Otherwise, a DFM that restarted had these events built again", stacklevel=4)

    def _name_unclosed(self):
        """Warns if only the ends of processes show the end of the run."""
        last = [stream.last() for stream in self._streams()]
        if all(file.is_writing and os.path.exists(file.path) for file in last):
            warnings.warn(f"{last[0].path}: its SFI ended without closing this file, and no other file shows the end of the run: the run "
                          "may continue in new files", stacklevel=4)

    def _streams(self):
        streams = {}
        for file in self.files:
            key = (os.path.dirname(file.path), file.front.core_name if file.front else file.path)
            streams.setdefault(key, _Stream(file)).files.append(file)
        return streams.values()

    def _has_ended(self):
        streams = self._streams()
        return bool(streams) and all(stream.has_ended() for stream in streams)

    def _wait(self):
        """Waits for events; False: there will be none."""
        last = time.monotonic()
        while True:
            # In this order: what was written before the end is found.
            ended = self._has_ended()
            if self.refresh():
                return True
            if ended:
                self._name_copies()
                self._name_other_run()
                self._name_unclosed()
                return False
            if self.timeout is not None and time.monotonic() - last > self.timeout:
                warnings.warn(f"no new event for {self.timeout} s; the run may continue", stacklevel=3)
                return False
            time.sleep(POLL_S)

    def close(self):
        """Closes the files. Events stay valid."""
        for file in self.files:
            file.close()

    @property
    def faults(self):
        """What is damaged in the files, as text: the warnings so far."""
        return [fault for file in self.files for fault in file.faults]

    # ---- What is known of the run ----

    @property
    def record(self):
        """The record that evb writes at the end of a run (CORE.run.json); None: not there, or not readable."""
        self._look()
        return self._record

    def _look(self):
        """Reads the record, and CORE.begun.json, which exists until the record does."""
        n, since = self._looked
        # A file is not older than its CORE.begun.json.
        if self._record is None and (n != len(self.files) or time.monotonic() - since > RECORD_S):
            self._begun = self._begun or self._find_record(".begun.json")
            self._record = self._find_record(".run*.json")
            self._looked = len(self.files), time.monotonic()

    def _find_record(self, ending):
        paths = set()
        for file in self.files:
            if file.front:
                core = os.path.join(os.path.dirname(file.path), file.front.core_name)
                paths.update(glob.glob(glob.escape(core) + ending))
        for path in sorted(paths, key=lambda path: (-_changed_ns(path), path)):
            try:
                with io.open(path, encoding="utf-8") as f:
                    record = json.load(f)
            except FileNotFoundError:
                continue  # the run has just ended
            except (OSError, ValueError) as error:
                if ending == ".begun.json":  # being written
                    continue
                warnings.warn(f"{path}: the record of the run cannot be read: {error}", DamageWarning, stacklevel=3)
                continue
            if isinstance(record, dict) and record.get("run") == self.number:
                return record
        return None

    @property
    def metadata(self):
        """Names and values that the run's record, or else its files, store."""
        found = {}
        for file in self.files:
            found.update(file.front.metadata if file.front else {})
        stored = (self.record or self._begun or {}).get("metadata")
        found.update(stored if isinstance(stored, dict) else {})
        return found

    @property
    def sources(self):
        """The source ID of each ROS with raw payload, by the name of its node; empty without a record of the run."""
        if self._sources is None:
            self._look()
            # Of two runs with one number, the other one may have left the record.
            settings = self._begun or self._record
            self._sources = _sources_in(settings) if settings else None
        return self._sources or {}

    # ---- Events ----

    def column(self, name, begin=0, end=None):
        """An array with one item for each event: number, global_id, run, l1_id, time_ns, spill, trigger_flags, trigger_type or
        status."""
        file_of, row_of = self._order.file[begin:end], self._order.row[begin:end]
        found = np.zeros(len(row_of), eformat.HEADERS[name])
        for i in np.unique(file_of).tolist():
            where = file_of == i
            found[where] = getattr(self._parts[i].headers, name)[row_of[where]]
        return found

    def batches(self, begin=0, end=None, events=BATCH_EVENTS):
        """Yields parts of the run: (Batch, positions in the part) of each file, and the number of events in the part."""
        end = len(self) if end is None else end
        for at in range(begin, end, events):
            n = min(events, end - at)
            file_of, row_of = self._order.file[at:at + n], self._order.row[at:at + n]
            if (file_of == file_of[0]).all():
                yield [(Batch(self, self._parts[file_of[0]], row_of), range(n))], n
            else:
                found = [(i, np.flatnonzero(file_of == i)) for i in np.unique(file_of).tolist()]
                yield [(Batch(self, self._parts[i], row_of[where]), where.tolist()) for i, where in found], n

    def _events(self, begin, end):
        for parts, n in self.batches(begin, end):
            if len(parts) == 1:
                batch = parts[0][0]
                for row in range(n):
                    yield Event(batch, row)
                continue
            events = [None] * n
            for batch, where in parts:
                for row, i in enumerate(where):
                    events[i] = Event(batch, row)
            yield from events

    def __len__(self):
        return len(self._order)

    def __iter__(self):
        done = 0
        while True:
            end = len(self)
            yield from self._events(done, end)
            done = end
            if done == len(self) and not (self.follow and self._wait()):
                return

    def _event(self, file, rows):
        return Event(Batch(self, self._parts[file], rows), 0)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        at = i + len(self) if i < 0 else i
        if not 0 <= at < len(self):
            raise IndexError(f"event {i} of {len(self)}")
        return self._event(self._order.file[at], self._order.row[at:at + 1])

    def find(self, **fields):
        """Returns the first event with these values of number, global_id, l1_id, spill, trigger_flags, trigger_type or status; None
        if there is none."""
        found = np.ones(len(self), bool)
        for name, value in fields.items():
            if name not in FOUND_BY:
                raise TypeError(f"cannot find events by {name}; use {', '.join(FOUND_BY[:-1])} or {FOUND_BY[-1]}")
            found &= self.column(name) == value
        at = int(found.argmax()) if found.any() else -1
        return self[at] if at >= 0 else None

    def __repr__(self):
        return f"<evb.Run number={self.number} events={len(self)} files={len(self.files)}>"
