"""All events of a run as columns: one array for each field, and for each source the offset of each event's bytes."""
from functools import cached_property

import numpy as np

from . import eformat


class Source:
    """The fragments of one source: the bytes of event i are data[offset[i]:offset[i + 1]]; `status` is 0 without a fragment."""

    def __init__(self, n):
        self.status = np.zeros(n, "u4")
        self.has_fragment = np.zeros(n, bool)
        self._start, self._length, self._file = np.zeros(n, "i8"), np.zeros(n, "i8"), np.zeros(n, "i4")
        self._files = []

    def add(self, file, events, start, stop, status):
        if not self._files or self._files[-1] is not file.bytes:
            self._files.append(file.bytes)
        self._file[events] = len(self._files) - 1
        self._start[events], self._length[events], self.status[events] = start, stop - start, status
        self.has_fragment[events] = True

    @cached_property
    def offset(self):
        """The first byte of each event's fragment in `data`, and the size of `data` at its end."""
        offset = np.zeros(len(self._length) + 1, "u8")
        np.cumsum(self._length, out=offset[1:])
        return offset

    @property
    def lengths(self):
        return self._length

    @cached_property
    def data(self):
        """The bytes of all events; made when they are first used."""
        return self.slice(0, len(self._length))

    def slice(self, begin, end):
        """The bytes of the events from `begin` to `end`."""
        length, start, file = self._length[begin:end], self._start[begin:end], self._file[begin:end]
        if not length.any():
            return np.zeros(0, "u1")
        size = int(length[0])
        if (length == size).all() and (file == file[0]).all():
            rows = np.lib.stride_tricks.sliding_window_view(self._files[file[0]], size)
            return rows[start].reshape(-1)
        views = [memoryview(f) for f in self._files]
        return np.frombuffer(b"".join([views[f][s:e] for f, s, e in zip(file.tolist(), start.tolist(), (start + length).tolist())]), "u1")


class Columns:
    """columns.number, .global_id, .l1_id, .time, .trigger_type, .trigger_flags, .spill, .status and .complete; columns[source] is a
    Source.

    `sources` has the source IDs of all fragments, ascending. A source may be given by the name of its node. `begin` and `end` choose
    a part of the events.
    """

    def __init__(self, run, begin=0, end=None):
        self._run = run
        end = len(run) if end is None else end
        for name in eformat.TRIGGER:
            setattr(self, name, run.column(name, begin, end))
        self.status = run.column("status", begin, end)
        self.time = run.column("time_ns", begin, end).view("M8[ns]")
        self.complete = self.status & eformat.PARTIAL == 0
        self._sources = {}
        done = 0
        for parts, n in run.batches(begin, end):
            for batch, where in parts:
                self._add(batch, done + np.asarray(where), end - begin)
            done += n
        self.sources = sorted(self._sources)

    def _add(self, batch, events, n_events):
        fragments = batch.fragments
        least = int(fragments.source.min(initial=1 << 32))
        narrow = len(fragments.source) and int(fragments.source.max()) - least < 1 << 16
        # numpy sorts 16 bits much faster.
        order = np.argsort((fragments.source - least).astype("u2") if narrow else fragments.source, kind="stable")
        sources = fragments.source[order]
        bounds = np.flatnonzero(np.diff(sources)) + 1
        # Reversed, so that of two fragments with one source the first one stays.
        for rows in np.split(order, bounds) if len(order) else ():
            rows = rows[::-1]
            source = int(fragments.source[rows[0]])
            if source not in self._sources:
                self._sources[source] = Source(n_events)
            self._sources[source].add(batch.file, events[fragments.event[rows]], fragments.start[rows], fragments.stop[rows],
                                      fragments.status[rows])

    def __len__(self):
        return len(self.number)

    def source(self, source_id):
        """The Source with this ID, which has no fragments if none of these events has one."""
        return self._sources.get(source_id) or Source(len(self))

    def __getitem__(self, source):
        found = self._sources.get(source) or self._sources.get(self._run.sources.get(source))
        if found is None:
            raise KeyError(f"no fragment of {source if isinstance(source, str) else f'{source:#08x}'} in the run")
        return found


def columns(run):
    """The columns of all events that `run` knows."""
    return Columns(run)


def awkward(run):
    """The columns as an awkward array: the fields of the events (not `run`), and for each source, by the name of its node or else by
    its ID such as "0x700001", the bytes of each event."""
    try:
        import awkward as ak  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise ImportError("evb.awkward needs awkward; install it, e.g. with: pip install awkward") from error
    c = columns(run)
    names = {source: name for name, source in run.sources.items()}
    fields = {name: getattr(c, name) for name in (*eformat.TRIGGER, "time", "status", "complete") if name != "run"}
    for source in c.sources:
        content = ak.contents.ListOffsetArray(ak.index.Index64(c[source].offset.astype("i8")), ak.contents.NumpyArray(c[source].data))
        fields[names.get(source, f"{source:#08x}")] = ak.Array(content)
    return ak.zip(fields, depth_limit=1)
