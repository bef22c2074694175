#!/usr/bin/env python3
"""Tests how the reader follows files that grow. Each wait of the reader makes the next change, so nothing depends on time."""
import fcntl
import itertools
import os
import struct

import cases
import files
from files import Files, describe, end, event, expected, fragments_of, read, record, whole

import evb
from evb import run as run_module
from evb import storage


class Clock:
    """Stands for the module `time` of the reader: sleep() makes the next change of the script. Soon after the last one, the reader
    must find the end."""

    def __init__(self, script):
        self.script, self.now = itertools.chain(script, [None] * 5), 0.0

    def sleep(self, seconds):
        self.now += seconds
        if next(self.script, self) is self:
            raise AssertionError("the reader does not find the end of the run")

    def monotonic(self):
        return self.now

    time_ns = staticmethod(run_module.time.time_ns)


class Writer:
    """Writes a file as an SFI does: locked, each write ends in an end record, and renamed at the end."""

    def __init__(self, folder, name, version=3, **front):
        self.path, self.final = os.path.join(folder, name + ".writing"), os.path.join(folder, name + ".data")
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        # The lock of another open file, as closing a descriptor of this one would release a POSIX lock of this process.
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        self.version, self.run, self.n = version, front.get("run", 7), 0
        begin = files.front(version, **front)
        os.write(self.fd, begin + end(0, False))
        self.at = len(begin)

    def add(self, *numbers, piece=0, last=False, fragments=fragments_of):
        """Writes events, in pieces of so many bytes if not 0; yields after each."""
        data = b""
        for number in numbers:
            self.n += 1
            data += record(self.n, event(self.version, number, fragments(number), self.run))
        data += end(self.n, last)
        piece = piece or len(data)
        for i in range(0, len(data), piece):
            os.pwrite(self.fd, data[i:i + piece], self.at + i)
            yield
        self.at += len(data) - len(end(0))

    def close(self, last=True):
        list(self.add(last=last))
        os.rename(self.path, self.final)
        os.close(self.fd)

    def kill(self):
        os.close(self.fd)


class Follow(Files):
    def follow(self, script, path=None, **options):
        """Follows a run while the script changes its files. Returns the numbers of the events, and the warnings."""
        clock = Clock(script)
        before, run_module.time = run_module.time, clock
        try:
            with files.warnings.catch_warnings(record=True) as caught:
                files.warnings.simplefilter("always")
                self.run_ = evb.open(path or self.folder, follow=True, **options)
                found = []
                for e in self.run_:
                    self.assertEqual(describe(e), expected(e.number))
                    found.append(e.number)
            return found, [str(w.message) for w in caught]
        finally:
            run_module.time = before

    def test_events_in_pieces_are_read_once_and_whole(self):
        for piece in (1, 7, 41, 4096):
            w = Writer(self.folder, f"p{piece}", run=piece)

            def script(w=w, piece=piece):
                yield from w.add(3, piece=piece)
                yield from w.add(1, 2, piece=piece)
                w.close()
                yield
            self.assertEqual(self.follow(script(), run=piece), ([3, 1, 2], []))

    def test_the_run_goes_on_in_the_next_file_and_ends_with_the_last(self):
        def script():
            first = Writer(self.folder, "a1")
            yield
            yield from first.add(0, 1)
            first.close(last=False)
            yield
            second = Writer(self.folder, "a2", number=2)
            yield from second.add(2)
            second.close()
            yield
        for path in (None, os.path.join(self.folder, "*.data")):
            self.assertEqual(self.follow(script(), path), ([0, 1, 2], []))
            for name in os.listdir(self.folder):
                os.remove(os.path.join(self.folder, name))

    def test_a_file_is_followed_under_its_new_name(self):
        w = Writer(self.folder, "a")

        def script():
            w.close()
            yield
        list(w.add(1))
        self.assertEqual(self.follow(script(), [w.path, w.path, self.folder]), ([1], []))
        self.assertEqual([f.path for f in self.run_.files], [w.final])

    def test_a_last_file_that_was_just_full_ends_with_the_record(self):
        def script():
            w = Writer(self.folder, "a")
            yield from w.add(1)
            w.close(last=False)
            # The record of an earlier run with this number says nothing about this one.
            os.utime(self.write("run7.run.json", b"{}"), (1, 1))
            yield
            yield
            being_written = self.write("run7.run.2.json.writing", b'{"run": 7}' + b" " * 4096)
            yield
            os.rename(being_written, f"{self.folder}/run7.run.2.json")
            yield
        self.assertEqual(self.follow(script()), ([1], []))

    def test_nodes_have_names_while_the_run_goes_on(self):
        nodes = [{"name": "adc", "role": "ros", "source": "pattern", "source_id": None}]
        text = files.json.dumps({"run": 7, "metadata": {"beam": "on"}, "scenario": {"nodes": nodes}}).encode()
        seen = []

        def script():
            writer = Writer(self.folder, "a")
            self.write("run7.begun.json", text[:9])  # of another run; readers see it in part while it is replaced
            yield
            seen.append((self.run_.sources, self.run_.record))
            self.write("run7.begun.json", text)
            for number in (4, 5):
                yield from writer.add(number)
                if number == 5:
                    seen.append((self.run_.sources, self.run_.record, self.run_.metadata["beam"], "adc" in self.run_[0],
                                 self.run_[0]["adc"].tobytes()))
                yield from [None] * 20  # more than RECORD_S
            os.remove(os.path.join(self.folder, "run7.begun.json"))
            writer.close()

        self.assertEqual(self.follow(script()), ([4, 5], []))
        self.assertEqual(seen, [({}, None), ({"adc": 0x700000}, None, "on", True, bytes(range(4, 13)))])
        self.assertEqual(self.run_.sources, {"adc": 0x700000})

    def test_a_killed_writer_ends_the_run(self):
        w = Writer(self.folder, "a")

        def script():
            yield from w.add(1)
            data = record(2, event(3, 2, fragments_of(2)))[:-4]
            os.pwrite(w.fd, data, w.at)
            w.kill()
            yield
        found, caught = self.follow(script())
        self.assertEqual(found, [1])
        self.assertEqual(len(caught), 2)
        self.assertRegex(caught[0], "the file ends without an end record; .* bytes at its end are not a whole event")
        self.assertEqual(caught[1], f"{w.path}: its SFI ended without closing this file, and no other file shows the end of the run: "
                         "the run may continue in new files")

    def test_another_builder_goes_on(self):
        a, b = Writer(self.folder, "a", core="a"), Writer(self.folder, "b", core="b", version=5)

        def script():
            yield from a.add(4, 2)
            a.kill()
            yield from b.add(3, 1)
            b.close()
            yield
        self.assertEqual(self.follow(script()), ([2, 4, 1, 3], []))

    def test_damage_in_a_growing_file_is_skipped(self):
        w = Writer(self.folder, "a")

        def script():
            list(w.add(1, 2, 3))
            os.pwrite(w.fd, b"\0", len(files.front(3)) + len(record(1, event(3, 1, fragments_of(1)))))
            yield
            yield
            yield from w.add(4)
            w.close()
            yield
        found, caught = self.follow(script())
        self.assertEqual(found, [1, 3, 4])
        self.assertRegex(caught[0], "bytes are damaged; reading continues at byte")

    def test_other_runs_are_opened_once(self):
        for i in range(3):
            os.utime(self.write(f"other{i}.data", b"".join(whole(3, [0], run=6))), (1, 1))
        opened, original = [], storage.EventFile.__init__
        self.addCleanup(setattr, storage.EventFile, "__init__", original)

        def count(file, path):
            opened.append(path)
            original(file, path)
        storage.EventFile.__init__ = count

        def script():
            w = Writer(self.folder, "a")
            for number in range(20):
                yield from w.add(number)
            w.close()
            b.close()
            yield
        b = Writer(self.folder, "b", core="b")
        self.assertEqual(self.follow(script()), (list(range(20)), []))
        self.assertEqual(len(opened), len(set(opened)))
        self.assertEqual(len(opened), 5)

    def test_a_file_that_is_closed_while_the_reader_looks_does_not_end_the_run(self):
        first = Writer(self.folder, "a1")
        original = storage._is_locked
        self.addCleanup(setattr, storage, "_is_locked", original)

        def close_first(fd):
            if first.fd >= 0:
                first.close(last=False)
                first.fd = -1
            return original(fd)

        def script():
            yield from first.add(1)
            storage._is_locked = close_first
            yield
            yield
            second = Writer(self.folder, "a2", number=2)
            yield from second.add(2)
            second.close()
            yield
        self.assertEqual(self.follow(script()), ([1, 2], []))

    def test_files_that_are_removed_end_the_run(self):
        for last in (True, False):
            w = Writer(self.folder, "a")

            def script(w=w, last=last):
                yield from w.add(1)
                w.close(last=False) if last else w.kill()
                os.remove(w.final if last else w.path)
                yield
            self.assertEqual(self.follow(script()), ([1], []))

    def test_a_time_limit_ends_it(self):
        w = Writer(self.folder, "a")
        list(w.add(1))
        found, caught = self.follow(itertools.repeat(None), timeout=10)
        self.assertEqual(found, [1])
        self.assertRegex(caught[0], "no new event for 10 s; the run may continue")
        w.close()

    def test_an_open_run_can_look_again(self):
        w = Writer(self.folder, "a")
        list(w.add(2, 1))
        run = evb.open(self.folder)
        self.assertEqual([e.number for e in run], [1, 2])
        list(w.add(0))
        w.close()
        self.assertEqual((run.refresh(), run.refresh()), (1, 0))
        self.assertEqual([e.number for e in run], [1, 2, 0])
        self.assertEqual(read(w.final)[0], [expected(n) for n in range(3)])


if __name__ == "__main__":
    cases.main()
