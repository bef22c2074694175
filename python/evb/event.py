"""One event of a run, and its fragments. They refer to the mapped file; nothing is copied."""
from functools import cached_property

import numpy as np

from . import eformat


class Batch:
    """Events of one file, whose fragments are read together when the first of them is needed.

    Lists are faster than arrays if single items are read.
    """

    def __init__(self, run, file, rows):
        self.run, self.file, self.rows = run, file, rows
        self.bytes = file.bytes

    def _list(self, name):
        return getattr(self.file.headers, name)[self.rows].tolist()

    number = cached_property(lambda self: self._list("number"))
    global_id = cached_property(lambda self: self._list("global_id"))
    spill = cached_property(lambda self: self._list("spill"))
    trigger_flags = cached_property(lambda self: self._list("trigger_flags"))
    l1_id = cached_property(lambda self: self._list("l1_id"))
    trigger_type = cached_property(lambda self: self._list("trigger_type"))
    status = cached_property(lambda self: self._list("status"))
    at = cached_property(lambda self: self._list("at"))
    size = cached_property(lambda self: self._list("size"))
    time = cached_property(lambda self: self.file.headers.time_ns[self.rows].view("M8[ns]"))

    @cached_property
    def fragments(self):
        headers, rows = self.file.headers, self.rows
        self.file.check(rows)
        version = int(headers.version[rows[0]])
        return eformat.read_fragments(self.file.words, headers.at[rows], headers.size[rows], version,
                                      lambda position, text, event: self.file.report(4 * position, text, 4 * event))

    first = cached_property(lambda self: self.fragments.first.tolist())
    start = cached_property(lambda self: self.fragments.start.tolist())
    stop = cached_property(lambda self: self.fragments.stop.tolist())

    @cached_property
    def indices(self):
        """For each event, the index of each source's fragment among those of the event. Most events share one dictionary."""
        sources, known, found = self.fragments.source.tolist(), {}, []
        for begin, end in zip(self.first, self.first[1:]):
            key = tuple(sources[begin:end])
            index = known.get(key)
            if index is None:
                # Of two fragments with one source, the first counts.
                index = known[key] = {source: i for i, source in reversed(list(enumerate(key)))}
                index = known[key] = {source: index[source] for source in key}
            found.append(index)
        return found


class Fragment:
    """A fragment's header, and its payload: the data words of its ROD, without padding."""

    __slots__ = ("_batch", "_i")

    def __init__(self, batch, i):
        self._batch, self._i = batch, i

    @property
    def source(self):
        return int(self._batch.fragments.source[self._i])

    @property
    def detector(self):
        """The sub-detector in its source ID."""
        return self.source >> 16 & 0xff

    @property
    def ros(self):
        """The source ID of its ROS; None in v5.0, which does not store it."""
        return int(self._batch.fragments.ros[self._i]) or None

    @property
    def status(self):
        """The status word of its ROB (docs/event-format.md); 0 if nothing is wrong."""
        return int(self._batch.fragments.status[self._i])

    @property
    def is_missing(self):
        """Whether it is a dummy without data: the fragment was lost, pending, discarded or damaged."""
        return bool(self.status & eformat.DUMMY)

    @property
    def l1_id(self):
        return int(self._batch.fragments.l1_id[self._i])

    @property
    def length(self):
        """Bytes of the payload."""
        return self._batch.stop[self._i] - self._batch.start[self._i]

    @property
    def payload(self):
        return self._batch.bytes[self._batch.start[self._i]:self._batch.stop[self._i]]

    def __repr__(self):
        return f"<evb.Fragment source={self.source:#08x} length={self.length} status={self.status:#x}>"


class Event:
    """One event. event[source] is a read-only view of a fragment's payload; a source is a source ID, or the name of its node."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch, row):
        self._batch, self._row = batch, row

    @property
    def number(self):
        """The builder's number of the event, which never repeats in a run. In files without it, the global ID."""
        return self._batch.number[self._row]

    @property
    def global_id(self):
        """The number of the trigger, or of the event in the file that was replayed."""
        return self._batch.global_id[self._row]

    @property
    def spill(self):
        """The number of spills that had begun in the run, with the event's own; 0 without spills."""
        return self._batch.spill[self._row]

    @property
    def trigger_flags(self):
        """The flags of the trigger, as it came."""
        return self._batch.trigger_flags[self._row]

    @property
    def l1_id(self):
        """The low 32 bits of the trigger's number, which may repeat after a reset of counters."""
        return self._batch.l1_id[self._row]

    @property
    def time(self):
        """The event's time in UTC, as numpy.datetime64 in ns; v3.0 without the builder's stamp has whole seconds."""
        return self._batch.time[self._row]

    @property
    def trigger_type(self):
        return self._batch.trigger_type[self._row]

    @property
    def status(self):
        """The event's status word (docs/event-format.md); 0 if nothing is wrong."""
        return self._batch.status[self._row]

    @property
    def complete(self):
        return not self._batch.status[self._row] & eformat.PARTIAL

    @property
    def sources(self):
        """The source IDs of the fragments, in the order of the event."""
        return tuple(self._batch.indices[self._row])

    @property
    def fragments(self):
        """All fragments, in the order of the event; two of them may have the same source ID."""
        first = self._batch.first
        return [Fragment(self._batch, i) for i in range(first[self._row], first[self._row + 1])]

    @property
    def data(self):
        """The bytes of the whole event, as they are in the file."""
        begin = 4 * self._batch.at[self._row]
        return self._batch.bytes[begin:begin + 4 * self._batch.size[self._row]]

    def is_copy_of(self, other):
        """Whether both are builds of one event: equal numbers, types and times, and equal bytes of each source that both have,
        which is one at least. After a reset of the counters, another event may have the same number."""
        if any(getattr(self, name) != getattr(other, name) for name in ("number", "l1_id", "trigger_type", "time")):
            return False
        mine, others = ({f.source: f.payload for f in event.fragments if not f.is_missing} for event in (self, other))
        common = mine.keys() & others.keys()
        return bool(common) and all(np.array_equal(mine[source], others[source]) for source in common)

    def _find(self, source):
        index = self._batch.indices[self._row]
        if source not in index:
            known = self._batch.run.sources.get(source, source)
            if known not in index:
                text = source if isinstance(source, str) else f"{source:#08x}" if isinstance(source, int) else repr(source)
                hint = "; names are known once the run has a record" if isinstance(source, str) and not self._batch.run.sources else ""
                raise KeyError(f"event {self.number} has no fragment of {text}{hint}")
            source = known
        return self._batch.first[self._row] + index[source]

    def fragment(self, source):
        return Fragment(self._batch, self._find(source))

    def __contains__(self, source):
        index = self._batch.indices[self._row]
        return source in index or self._batch.run.sources.get(source) in index

    def __getitem__(self, source):
        batch, row = self._batch, self._row
        try:
            i = batch.first[row] + batch.indices[row][source]
        except KeyError:
            i = self._find(source)
        return batch.bytes[batch.start[i]:batch.stop[i]]

    def __repr__(self):
        return f"<evb.Event number={self.number} l1_id={self.l1_id} {'complete' if self.complete else 'partial'}>"
