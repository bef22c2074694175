"""Raw event formats v3.0 and v5.0: headers of events, and their fragments, for many events at once.

All positions are indices of 32-bit words in the file; docs/event-format.md describes the layouts. No count or size of the file is
trusted: what does not fit its parent ends the reading of that event, and is named.
"""
import numpy as np

EVENT, SUBDET, ROS, ROB, ROD = 0xAA1234AA, 0xBB1234BB, 0xCC1234CC, 0xDD1234DD, 0xEE1234EE
STATUS_WORDS_MAX = 63
PARTIAL = 0x80000000
DUMMY = 0x20
RAW_SUBDET = 0x70  # in source IDs of raw payload
NS = 10**9

# The builder's stamp: the last sub-detector of a v3.0 event, and the HLT words of a v5.0 event behind the first four.
STAMP_SUBDET, STAMP_MAGIC = 0x79, 0x01425645
STAMP_SUBDET_WORDS, STAMP_WORDS, STAMP_HLT_WORDS = 16, 8, 12

# Fields of an event header: type, and their word in v3.0 and v5.0, without the status words.
FIELDS = {"global_id": ("u8", 8, 9), "run": ("u4", 9, 12), "l1_id": ("u4", 10, 14), "trigger_type": ("u4", 11, 16)}


def _get(words, at):
    # A position behind the end is not used: the checks of sizes reject it.
    if words.flags.aligned:
        return words.take(at, mode="clip")
    return words[np.clip(at, 0, len(words) - 1)]  # take() would copy all words


def _get_rows(words, at):
    """Returns the 8 words from each position on, as columns of 64-bit integers."""
    if len(at) and len(words) >= 8 and at.max() <= len(words) - 8:
        rows = np.ndarray((len(words) - 7,), "V32", words, strides=(4,))  # much faster than by index
        return rows[at].view("<u4").reshape(-1, 8).T.astype(np.int64, order="C")
    return np.stack([_get(words, at + k) for k in range(8)]).astype(np.int64)


class Columns:
    """Arrays of one length, which extend() makes longer without copying them each time."""

    def __init__(self, kinds):
        self._n = 0
        self._room = {name: np.zeros(0, kind) for name, kind in kinds.items()}

    def __len__(self):
        return self._n

    def __getattr__(self, name):
        try:
            return self.__dict__["_room"][name][:self._n]
        except KeyError:
            raise AttributeError(name) from None

    def extend(self, columns):
        n = self._n + len(next(iter(columns.values())))
        for name, room in self._room.items():
            if n > len(room):
                self._room[name] = np.zeros(n if not self._n else max(n, 2 * len(room)), room.dtype)
                self._room[name][:self._n] = room[:self._n]
            self._room[name][self._n:n] = columns[name]
        self._n = n


# Of each event: where it is and its size in words, and the fields of its header.
HEADERS = {"at": "i8", "size": "i8", "version": "u1", "status": "u4", "time_ns": "i8", "number": "u8", "spill": "u4",
           "trigger_flags": "u4", **{name: kind for name, (kind, *_) in FIELDS.items()}}
# What describes an event's trigger, for columns.
TRIGGER = ("number", "global_id", "run", "l1_id", "trigger_type", "trigger_flags", "spill")


def _find_stamps(words, at, size, source, is_3, after):
    """Returns the position of each event's stamp; -1: none."""
    subdet = at + size - STAMP_SUBDET_WORDS
    head = _get_rows(words, np.maximum(subdet, 0))
    sound_3 = ((head[0] == SUBDET) & (head[1] == STAMP_SUBDET_WORDS) & (head[2] == STAMP_SUBDET_WORDS) & (head[5] == 1)
               & (head[7] == STAMP_WORDS) & (head[4] == STAMP_SUBDET << 16 | source & 0xffff) & (subdet > after))
    stamp = subdet + STAMP_SUBDET_WORDS - STAMP_WORDS
    if is_3.all():
        sound = sound_3
    else:
        # The counts of L1, L2 and HLT words follow the fixed words.
        count = after + 13
        for _ in range(2):
            count = count + 1 + np.minimum(_get(words, count).astype(np.int64), size)
        sound = np.where(is_3, sound_3, (_get(words, count) == STAMP_HLT_WORDS) & (count + STAMP_HLT_WORDS < at + size))
        stamp = np.where(is_3, stamp, count + 1 + STAMP_HLT_WORDS - STAMP_WORDS)
    return np.where(sound & (_get(words, stamp) == STAMP_MAGIC), stamp, -1)


def _add_stamps(columns, words, stamp, is_3):
    """Adds what the stamps have and headers lack. Without a stamp, the global ID is the number."""
    found = stamp >= 0
    at = np.maximum(stamp, 0)
    rows = [np.where(found, row, 0) for row in _get_rows(words, at)]
    high = np.uint64(32)
    columns["global_id"] |= np.where(is_3, rows[3], 0).astype("u8") << high
    columns["time_ns"] += np.where(is_3, rows[4], 0)
    columns["number"] = np.where(found, rows[1].astype("u8") | rows[2].astype("u8") << high, columns["global_id"])
    columns["spill"], columns["trigger_flags"] = rows[5], rows[6]


def read_headers(words, at, major=None):
    """Reads the headers of events whose size words are right. Returns columns as in HEADERS, and
    (position, reason) of those to skip."""
    size, header, n_status = (_get(words, at + k).astype(np.int64) for k in (1, 2, 5))
    versions = _get(words, at + 3) >> 16
    version = versions >> 8
    after = at + 6 + n_status  # the first word behind the status words
    is_3 = version == 3
    n_specific = _get(words, after).astype(np.int64)
    reasons = np.zeros(len(at), np.int8)
    reasons[np.where(is_3, header != 7 + n_status + n_specific, header < 23 + n_status)] = 4
    reasons[is_3 & (n_specific < 10)] = 4
    reasons[header > size] = 3
    reasons[n_status > STATUS_WORDS_MAX] = 2
    reasons[(versions != 0x300) & (versions != 0x500) | ((version != major) if major else False)] = 1
    texts = ("", "its version is not that of the file", "too many status words", "its header exceeds the event",
             "the size of its header is wrong")
    bad = [(int(at[i]), texts[reasons[i]]) for i in np.flatnonzero(reasons)]
    good = reasons == 0
    if bad:
        at, size, n_status, version, is_3, after = (x[good] for x in (at, size, n_status, version, is_3, after))
    columns = {name: _get(words, at + n_status + np.where(is_3, in_3, in_5)).astype(kind)
               for name, (kind, in_3, in_5) in FIELDS.items()}
    columns["global_id"] |= np.where(is_3, 0, _get(words, after + 4)).astype("u8") << np.uint64(32)
    seconds = _get(words, after + 1).astype(np.int64)
    columns["time_ns"] = seconds * NS + np.where(is_3, 0, _get(words, after + 2)).astype(np.int64)
    status = np.where(n_status > 0, _get(words, at + 6), 0)
    source = _get(words, at + 4).astype(np.int64)
    _add_stamps(columns, words, _find_stamps(words, at, size, source, is_3, after), is_3)
    return {"at": at, "size": size, "version": version, "status": status, **columns}, bad


class _Nodes:
    """Fragments of one level: the index of each one's event and parent, and columns."""

    def __init__(self, parent, at, header, stop, source, status):
        self.parent, self.at, self.start, self.stop, self.source, self.status = parent, at, at + header, stop, source, status


def _is_header(head, room, marker, version):
    """Checks headers, except for the word behind the status words."""
    size, header, n_status = head[1], head[2], head[5]
    return ((head[0] == marker) & (size <= room) & (header <= size) & (n_status <= STATUS_WORDS_MAX)
            & (header >= 7 + n_status) & (head[3] >> 24 == version))


def _read_children(words, start, stop, marker, version, faults):
    """Reads the fragments that fill [start, stop) of each parent, in step: the first of all, the second of all, ...

    faults(parents, positions, text) receives the parents whose remaining children cannot be read.
    """
    steps = []
    parent = np.flatnonzero(start < stop)
    at, stop = start[parent], stop[parent]
    while parent.size:
        head = _get_rows(words, at)
        good = _is_header(head, stop - at, marker, version)
        n_status, header = head[5], head[2]
        last = head[7] if (n_status == 1).all() else _get(words, at + 6 + np.minimum(n_status, STATUS_WORDS_MAX)).astype(np.int64)
        if version == 3:
            good &= (last == header - 7 - n_status) & ((last >= 3) | (marker != ROS))
            summed = 0
        else:
            good &= header == 7 + n_status
            summed = last != 0
            good &= header + summed <= head[1]
        if not good.all():
            faults(parent[~good], at[~good], f"no valid fragment {marker:08X}")
            parent, at, stop, head, n_status = parent[good], at[good], stop[good], head[:, good], n_status[good]
            summed = summed[good] if version != 3 else 0
        next_at = at + head[1]
        steps.append((parent, at, head[2], next_at - summed, head[4], np.where(n_status > 0, head[6], 0)))
        more = next_at < stop
        if not more.all():
            parent, next_at, stop = parent[more], next_at[more], stop[more]
        at = next_at
    columns = [np.concatenate(c) for c in zip(*steps)] if steps else [np.zeros(0, np.int64)] * 6
    if len(steps) > 1:
        order = np.argsort(columns[0], kind="stable")
        columns = [c[order] for c in columns]
    return _Nodes(*columns)


class Fragments:
    """The ROBs of many events in their order: `event` (index), `source`, `status`, `ros` (its source; 0 in v5.0), `l1_id`, and
    `start` and `stop` of the payload in bytes. `first` has the index of each event's first one, and their number at its end."""

    def __init__(self, event, n_events, rob, ros, rod):
        self.event, self.source, self.status, self.ros = event, rob.source, rob.status, ros
        self.l1_id, self.start, self.stop = rod
        self.first = np.searchsorted(event, np.arange(n_events + 1))


def _read_rods(words, rob, faults):
    """Returns L1 ID, and first and last byte of the payload. An empty ROB has no ROD."""
    at, room = rob.start, rob.stop - rob.start
    head = _get_rows(words, at)
    # The last 8 words; a ROD has 12 or more.
    end = _get_rows(words, np.maximum(rob.stop - 8, 0))
    n_status, n_data, data_first = end[5], end[6], end[7] != 0
    good = (room >= 12) & (head[0] == ROD) & (head[1] == 9) & (n_status + n_data == room - 12)
    start = 4 * (at + 9 + np.where(data_first, 0, n_status))
    status_at = at + 9 + np.where(data_first, n_data, 0)
    # Raw payload is padded; its status words are 0 and its length. Other payload may have two status words too.
    first, length = end[3], end[4]
    if not data_first.all():
        first, length = (_get(words, np.where(good, status_at + k, 0)).astype(np.int64) for k in (0, 1))
    is_raw = (n_status == 2) & (first == 0) & ((length + 3) // 4 == n_data)
    good &= is_raw | (rob.source >> 16 & 0xff != RAW_SUBDET) | (n_status == 0)
    bad = ~good & (room > 0)
    if bad.any():
        faults(np.flatnonzero(bad), at[bad], "no valid ROD")
    length = np.where(is_raw, length, 4 * n_data)
    start = np.where(good, start, 4 * at)
    return np.where(good, head[5], 0), start, start + np.where(good, length, 0), bad


def _read_robs_3(words, at, size, faults):
    def in_events(of):
        return lambda parents, positions, text: faults(of[parents], positions, text)

    start = at + _get(words, at + 2).astype(np.int64)
    subdet = _read_children(words, start, at + size, SUBDET, 3, faults)
    ros = _read_children(words, subdet.start, subdet.stop, ROS, 3, in_events(subdet.parent))
    event_of_ros = subdet.parent[ros.parent]
    rob = _read_children(words, ros.start, ros.stop, ROB, 3, in_events(event_of_ros))
    return rob, event_of_ros[rob.parent], ros.source[rob.parent]


def _read_robs_5(words, at, size, faults):
    n_status = _get(words, at + 5).astype(np.int64)
    start, stop = at + _get(words, at + 2).astype(np.int64), at + size
    stop = stop - (_get(words, at + 6 + n_status) != 0)
    compressed = _get(words, at + 17 + n_status) != 0
    if compressed.any():
        faults(np.flatnonzero(compressed), start[compressed], "its fragments are compressed, which is not supported")
        stop = np.where(compressed, start, stop)
    rob = _read_children(words, start, stop, ROB, 5, faults)
    return rob, rob.parent, np.zeros(len(rob.at), np.int64)


def read_fragments(words, at, size, version, report):
    """Reads the fragments of events of one version. report(position, text, position of the event) receives what is damaged; the
    fragments before it are still read."""
    def faults(events, positions, text):
        for event, position in zip(events.tolist(), positions.tolist()):
            report(position, text, int(at[event]))

    rob, event, ros = (_read_robs_3 if version == 3 else _read_robs_5)(words, at, size, faults)
    *rod, bad = _read_rods(words, rob, lambda robs, positions, text: faults(event[robs], positions, text))
    if bad.any():
        good = ~bad
        rob = _Nodes(*(x[good] for x in (rob.parent, rob.at, rob.start - rob.at, rob.stop, rob.source, rob.status)))
        event, ros, rod = event[good], ros[good], [x[good] for x in rod]
    return Fragments(event, len(at), rob, ros, rod)
