"""`evb convert`: writes the events of a run as columns, to HDF5 or a ROOT file. evb-convert(1) describes the layout.

Events pass in blocks, so memory is bounded. The file gets its name when it is whole.
"""
import argparse
import contextlib
import hashlib
import importlib
import io
import json
import os
import signal
import sys
import threading
import time
import warnings

from .interpreter import let_interrupt, use_system_python

NOT_INSTALLED = 77
BLOCK_BYTES = 32 << 20
BLOCK_EVENTS = 65536
CHUNK_BYTES = 1 << 20
ATTRIBUTE_MAX = 30000  # HDF5 has room for 64 KiB
COMPRESSION = 4
FIELDS = {"number": "u8", "run": "u4", "time_ns": "i8", "trigger_type": "u4", "status": "u4", "l1_id": "u4", "global_id": "u8", "spill": "u4",
          "trigger_flags": "u4"}


class Failed(Exception):
    """Ends the command with a message and an exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Interrupted(Exception):
    pass


class Stop:
    """The first signal ends the command between two events, as a library may not bear an exception anywhere. A second one ends it
    at once."""

    signal = None
    temporary = None

    @classmethod
    def receive(cls, number, _frame):
        if cls.signal:
            if cls.temporary:
                os.unlink(cls.temporary)
            os._exit(1)
        cls.signal = signal.Signals(number).name

    @classmethod
    def check(cls):
        if cls.signal:
            raise Interrupted(cls.signal)


def say(text):
    print(f"evb convert: {text}", file=sys.stderr)


def load(module, package):
    """Imports a module that the output needs, with this Python or the system's."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        use_system_python()
        raise Failed(f"{module} is not installed; install it, e.g. with: {package}", NOT_INSTALLED) from error


# ---- The user's decoder ----

class Decoder:
    """Calls the function of --decode, and checks what it returns: a one-dimensional array of one type for each source."""

    def __init__(self, name):
        module, colon, function = name.partition(":")
        if not (module and colon and function):
            raise Failed(f'--decode: "{name}" is not MODULE:FUNCTION', 2)
        try:
            self.function = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise Failed(f"--decode: {error}; MODULE must be a module in this folder or in PYTHONPATH", 2) from error

    def __call__(self, payload, source, event):
        try:
            items = self.function(payload, source)
        except Exception as error:
            raise Failed(f"the decoder fails for {source} in event {event}: {type(error).__name__}: {error}") from error
        if items is None:
            return None
        if getattr(items, "ndim", None) != 1 or items.dtype.hasobject:
            raise Failed(f"the decoder returns no one-dimensional array of numbers for {source} in event {event}")
        return items.astype(items.dtype.newbyteorder("="), copy=False)


class Column:
    """One source of the output. Without a decoder its items are bytes."""

    def __init__(self, name, source):
        self.name, self.source, self.dtype, self.bytes = name, source, None, 0

    @property
    def is_raw(self):
        return self.dtype is None

    def fields(self):
        """The type of each column; a type without fields has one column, "value"."""
        if self.dtype.names:
            return {name: self.dtype[name] for name in self.dtype.names}
        return {"value": self.dtype}

    def part(self, items, name):
        return items[name] if self.dtype.names else items


def find_columns(run, decoder, progress):
    """Finds the sources of the run, and what the decoder makes of the first fragment with data of each."""
    names = {source: name for name, source in run.sources.items()}
    columns, undecided = {}, {}
    for batch in progress.over(run, "looks for sources"):
        fragments = batch.fragments
        for source in set(fragments.source.tolist()):
            if source not in columns:
                columns[source] = undecided[source] = Column(names.get(source, f"{source:#08x}"), source)
            of = fragments.source == source
            columns[source].bytes += int((fragments.stop[of] - fragments.start[of]).sum())
        for source in list(undecided) if decoder else ():
            rows = ((fragments.source == source) & (fragments.start < fragments.stop)).nonzero()[0]
            if len(rows):
                i = int(rows[0])
                column = undecided.pop(source)
                items = decoder(batch.bytes[fragments.start[i]:fragments.stop[i]], column.name, batch.number[fragments.event[i]])
                column.dtype = None if items is None else items.dtype
    return [columns[source] for source in sorted(columns)]


def decode(column, source, numbers, decoder):
    """Returns the offsets and items of the events of a block."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    parts, counts = [np.zeros(0, column.dtype)], np.zeros(len(numbers), "i8")
    for i in source.lengths.nonzero()[0].tolist():
        Stop.check()
        items = decoder(source.slice(i, i + 1), column.name, int(numbers[i]))
        if items is None or items.dtype != column.dtype:
            found = "nothing" if items is None else f"the type {items.dtype}"
            raise Failed(f"the decoder returns {found} for {column.name} in event {numbers[i]}, and {column.dtype} before")
        parts.append(items)
        counts[i] = len(items)
    return np.concatenate([[0], np.cumsum(counts)]).astype("u8"), np.concatenate(parts)


# ---- Outputs ----

class Disk(io.FileIO):
    """The new file. An error of the disk is kept for check(), and what follows is discarded: HDF5 cannot close a file whose disk
    is full."""

    def __init__(self, path):
        super().__init__(path, "x+")
        self.error = None

    def _try(self, call, *arguments):
        if self.error is None:
            try:
                return call(*arguments)
            except OSError as error:
                self.error = error
        return None

    def write(self, data):
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.error is None:
            done += self._try(super().write, view[done:]) or 0
        if self.error is not None:
            self.seek(len(view) - done, os.SEEK_CUR)
        return len(view)

    def truncate(self, size=None):
        return self._try(super().truncate, size)

    def check(self):
        if self.error is not None:
            raise self.error

    def end(self):
        self.check()
        self.close()
        fd = os.open(self.name, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Hdf5:
    """/event/FIELD, /source/NAME/offset, data and status; instead of data, values/FIELD if a decoder made them; /provenance."""

    def __init__(self, disk, columns, provenance, level):
        h5py = load("h5py", "apt-get install python3-h5py")
        self.file = h5py.File(disk, "w")
        self.columns, self.datasets = columns, {}
        self.at = {column.source: 0 for column in columns}
        self.packing = {"compression": "gzip", "compression_opts": level, "shuffle": True} if level else {}
        attributes = {name: value if isinstance(value, (int, str)) else json.dumps(value) for name, value in provenance.items()}
        self.file.attrs.update({name: value for name, value in attributes.items() if len(str(value)) < ATTRIBUTE_MAX})
        n = provenance["events"]
        for name, kind in FIELDS.items():
            self._make(f"event/{name}", kind, n)
        for column in columns:
            base = f"source/{column.name}"
            self._make(f"{base}/offset", "u8", n + 1)
            self._append(f"{base}/offset", [0])
            self._make(f"{base}/status", "u4", n)
            for name, kind in ({f"{base}/data": "u1"} if column.is_raw else
                               {f"{base}/values/{name}": kind for name, kind in column.fields().items()}).items():
                self._make(name, kind, column.bytes)
            self.file[base].attrs["source_id"] = column.source

    def _make(self, name, kind, items):
        """Makes an empty dataset, for about so many items."""
        import numpy as np  # pylint: disable=import-outside-toplevel
        kind = np.dtype(kind)
        kind, shape = kind.subdtype or (kind, ())
        item_bytes = max(1, kind.itemsize * int(np.prod(shape)))
        chunk = max(1, min(items, CHUNK_BYTES // item_bytes))
        self.datasets[name] = self.file.create_dataset(name, (0, *shape), kind, maxshape=(None, *shape), chunks=(chunk, *shape),
                                                       **self.packing)

    def _append(self, name, values):
        if not len(values):
            return
        dataset = self.datasets[name]
        n = dataset.shape[0]
        dataset.resize(n + len(values), axis=0)
        dataset[n:] = values

    def add(self, events, parts):
        for name in FIELDS:
            self._append(f"event/{name}", events[name])
        for column, (offset, items, status) in zip(self.columns, parts):
            base = f"source/{column.name}"
            self._append(f"{base}/offset", offset[1:] + offset.dtype.type(self.at[column.source]))
            self.at[column.source] += len(items)
            self._append(f"{base}/status", status)
            if column.is_raw:
                self._append(f"{base}/data", items)
            else:
                for name in column.fields():
                    self._append(f"{base}/values/{name}", column.part(items, name))

    def end(self, provenance):
        self.file["provenance"] = json.dumps(provenance)
        self.close()

    def close(self):
        self.file.close()


class Root:
    """An RNTuple "events" with the fields of events, and data_NAME and status_NAME for each source."""

    def __init__(self, disk, columns, provenance, level):
        uproot = load("uproot", "pip install uproot awkward")
        self.ak = load("awkward", "pip install awkward")
        self.columns = columns
        self.file = uproot.recreate(disk, compression=uproot.ZLIB(level) if level else None)
        self.table = None

    def _jagged(self, column, offset, items):
        ak = self.ak
        if column.is_raw or not column.dtype.names:
            content = ak.from_numpy(items, regulararray=True).layout
        else:
            content = ak.contents.RecordArray([ak.from_numpy(items[name].copy(), regulararray=True).layout for name in column.dtype.names],
                                              list(column.dtype.names))
        return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offset.astype("i8")), content))

    def add(self, events, parts):
        fields = {name: self.ak.Array(events[name]) for name in FIELDS}
        for column, (offset, items, status) in zip(self.columns, parts):
            fields[f"data_{column.name}"] = self._jagged(column, offset, items)
            fields[f"status_{column.name}"] = self.ak.Array(status)
        block = self.ak.zip(fields, depth_limit=1)
        if self.table is None:
            self.table = self.file.mkrntuple("events", block[:0])
        if len(block):
            self.table.extend(block)

    def end(self, provenance):
        self.file["provenance"] = json.dumps(provenance)
        self.close()

    def close(self):
        self.file.close()


OUTPUTS = {".h5": Hdf5, ".hdf5": Hdf5, ".root": Root}


# ---- Converting ----

class Progress:
    """One line on standard error, at most 5 times a second."""

    def __init__(self, on):
        self.on, self.next, self.shown = on, 0.0, False

    def show(self, done, total, what):
        Stop.check()
        now = time.monotonic()
        if self.on and now >= self.next:
            self.next, self.shown = now + 0.2, True
            width = 30 * done // max(1, total)
            print(f"\r\x1b[K[{'#' * width}{'.' * (30 - width)}] {100 * done // max(1, total):3} %  {what}", end="", file=sys.stderr,
                  flush=True)

    def over(self, run, what):
        """Yields each Batch of the run."""
        done = 0
        for parts, n in run.batches():
            self.show(done, len(run), what)
            yield from (batch for batch, _ in parts)
            done += n

    def end(self):
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Checksums(threading.Thread):
    """SHA-256 of the input files up to the size that was read, made while the events are converted."""

    def __init__(self, files):
        super().__init__(daemon=True)
        self.files, self.inputs, self.stopped = files, [], False

    def run(self):
        for file in self.files:
            digest, view = hashlib.sha256(), memoryview(file.bytes)
            for at in range(0, len(view), CHUNK_BYTES):
                if self.stopped:
                    return
                digest.update(view[at:at + CHUNK_BYTES])
            self.inputs.append({"name": os.path.basename(file.path), "bytes": len(view), "events": file.n_events,
                                "sha256": digest.hexdigest()})


def describe(run, program):
    """What the output says about its origin."""
    record = run.record or {}
    scenario = record.get("scenario")
    versions = record.get("versions")
    return {
        "run": run.number,
        "program": f"evb {program}",
        "written_by": f"evb {versions['evb']}" if isinstance(versions, dict) and "evb" in versions else "unknown",
        "metadata": run.metadata,
        "scenario_sha256": hashlib.sha256(json.dumps(scenario, sort_keys=True).encode()).hexdigest() if scenario else "unknown",
        "events": len(run),
        "sources": run.sources,
    }


def convert(run, output, disk, decoder, columns, progress):
    from .flat import Columns  # pylint: disable=import-outside-toplevel
    total = len(run)
    event_bytes = max(1, sum(len(file.bytes) for file in run.files) // max(1, total))
    step = max(256, min(BLOCK_EVENTS, BLOCK_BYTES // event_bytes))
    begun = time.monotonic()
    for begin in range(0, max(1, total), step):
        seconds = time.monotonic() - begun
        rate = begin * event_bytes / seconds / 1e6 if seconds > 0 else 0
        progress.show(begin, total, f"{begin} of {total} events, {rate:.0f} MB/s")
        block = Columns(run, begin, min(total, begin + step))
        events = {name: run.column(name, begin, begin + step) for name in FIELDS}
        parts = []
        for column in columns:
            source = block.source(column.source)
            offset, items = (source.offset, source.data) if column.is_raw else decode(column, source, block.number, decoder)
            parts.append((offset, items, source.status))
        output.add(events, parts)
        disk.check()


def rename(temporary, path):
    """Gives the file its name, which must not exist."""
    try:
        os.link(temporary, path)
        os.unlink(temporary)
    except FileExistsError as error:
        raise Failed(f"{path}: the file exists; remove it, or choose another name") from error
    except OSError:  # the file system has no links
        os.rename(temporary, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(o, run, output_type, program, progress):
    """Writes the output, and returns its provenance."""
    decoder = Decoder(o.decode) if o.decode else None
    provenance = {**describe(run, program), "decoder": o.decode or ""}
    checksums = Checksums(run.files)
    columns = find_columns(run, decoder, progress)
    temporary = f"{o.output}.{os.getpid()}.writing"
    disk = output = None
    try:
        disk = Disk(temporary)
        Stop.temporary = temporary
        output = output_type(disk, columns, provenance, o.compress)
        checksums.start()
        convert(run, output, disk, decoder, columns, progress)
        checksums.join()
        output.end({**provenance, "inputs": checksums.inputs})
        Stop.check()
        disk.end()
        rename(temporary, o.output)
        Stop.temporary = None
    except BaseException:
        checksums.stopped = True
        with contextlib.suppress(Exception):  # the error that brought us here counts
            if output:
                output.close()
        if disk:
            disk.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            Stop.temporary = None
            disk.check()  # the cause of whatever else failed
        raise
    return {**provenance, "inputs": checksums.inputs}


def level(text):
    if text not in map(str, range(10)):
        raise argparse.ArgumentTypeError(f'"{text}" is not a level from 0 to 9')
    return int(text)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="evb convert", description=__doc__, allow_abbrev=False)
    parser.add_argument("words", nargs="+", metavar="RUN")
    parser.add_argument("--output")
    parser.add_argument("--run", type=int)
    parser.add_argument("--decode")
    parser.add_argument("--compress", type=level, default=COMPRESSION)
    parser.add_argument("--json", nargs="?", const="-")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    return parser.parse_args(arguments)


def open_output(path):
    """Checks the name of the output, and that its module is there."""
    if not path:
        raise Failed("missing option --output FILE.h5 or FILE.root", 2)
    output_type = OUTPUTS.get(os.path.splitext(path)[1])
    if not output_type:
        raise Failed(f"--output {path}: unknown ending; expected .h5 or .root", 2)
    if os.path.lexists(path):
        raise Failed(f"--output {path}: the file exists; remove it, or choose another name", 2)
    load("numpy", "apt-get install python3-numpy")
    if output_type is Hdf5:
        load("h5py", "apt-get install python3-h5py")
    else:
        load("uproot", "pip install uproot awkward")
        load("awkward", "pip install awkward")
    return output_type


def open_run(o):
    from . import run as runs  # pylint: disable=import-outside-toplevel
    try:
        run = runs.open(o.words, run=o.run)
    except (OSError, ValueError) as error:
        raise Failed(str(error), 2) from error
    for file in run.files:
        if not file.finished:
            say(f"{file.path}: still being written; the output has its first {file.n_events} events")
    return run


def report(o, run, provenance, seconds):
    size = os.stat(o.output).st_size
    if o.json:
        text = json.dumps({**provenance, "output": o.output, "output_bytes": size, "seconds": seconds, "faults": run.faults}, indent=1)
    elif not o.quiet:
        text = f"{o.output}: {len(run)} events of run {run.number}, {size / 1e6:.1f} MB, in {seconds:.1f} s"
    else:
        return
    to_file = o.json and o.json != "-"
    try:
        with open(o.json if to_file else 1, "w", encoding="utf-8", closefd=bool(to_file)) as f:
            f.write(text + "\n")
    except OSError as error:
        raise Failed(f"{o.output} is whole, but its report cannot be written: {error}") from error


def run_command(o):
    begun = time.monotonic()
    output_type = open_output(o.output)
    run = open_run(o)
    progress = Progress((o.progress or sys.stderr.isatty()) and not o.quiet)
    try:
        provenance = write(o, run, output_type, os.environ.get("EVB_VERSION", "unknown"), progress)
    finally:
        progress.end()
    report(o, run, provenance, time.monotonic() - begun)
    if run.faults:
        say(f"{o.output} has all whole events; the input is damaged, as named above")
    return 1 if run.faults else 0


def main(arguments):
    o = parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, Stop.receive)
    let_interrupt()
    warnings.showwarning = lambda message, *_args, **_more: say(message)
    warnings.simplefilter("always")
    try:
        return run_command(o)
    except Failed as error:
        say(error)
        return error.status
    except Interrupted as error:
        say(f"interrupted by {error}; no output is left")
    except OSError as error:
        say(f"cannot write {o.output}: {error}")
    except MemoryError:
        say("out of memory")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
