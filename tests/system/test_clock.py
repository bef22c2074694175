#!/usr/bin/env python3
"""A DFM whose wall clock is set, or whose machine starts again, in mid-run.

    test_clock.py EVB [CASE...]
"""
import contextlib
import os
import re
import struct
import time

from harness import LIMIT_S, made, main
from test_join import PATIENT, ROLES, bed, stop_later

SHIM = str(made("clock_shim.so"))
EVENT_MARK = struct.pack("<I", 0xAA1234AA)


@contextlib.contextmanager
def clock(b):
    """The DFM of this bed reads its clock through the shim; yields a function that sets it."""
    path = b.folder / "offset"
    plain, sanitizer = b.start, os.environ.get("ASAN_OPTIONS", "")

    def start(node, *words, **options):
        if node == "dfm":
            os.environ.update(LD_PRELOAD=SHIM, EVB_CLOCK_OFFSET=str(path), ASAN_OPTIONS=f"{sanitizer}:verify_asan_link_order=0")
        try:
            return plain(node, *words, **options)
        finally:
            os.environ.pop("LD_PRELOAD", None)
            os.environ["ASAN_OPTIONS"] = sanitizer

    def step(seconds, suspended=0):
        """Sets the wall clock, or lets the machine sleep."""
        other = b.folder / "offset.new"
        other.write_text(f"{seconds} {suspended}")
        other.rename(path)

    step(0)
    b.start = start
    yield step


def restart(evb, seconds):
    """The clock is set while a DFM is away: the run lasts as long as it would have."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "scenario.duration": "20s", "trigger.rate": "100Hz"}) as b, clock(b) as step:
        b.start_all()
        b.wait_written(50_000)
        b.kill("dfm")
        step(seconds)
        b.start("dfm")
        dfm = b.end_all()["dfm"]
        assert "the clock was set since the last run began" in b.log("dfm"), b.log("dfm")
        assert dfm["triggers"] == dfm["events_complete"] > 0, dfm
        assert sorted(b.events()) == list(range(dfm["triggers"]))
        # By the clock, 2 h too early or 2 h too late; a machine that stands costs some of its 2,000 triggers.
        assert 200 < dfm["triggers"] <= 4000, dfm


def restart_says_so(evb):
    """The same in a run without a duration: its further events have other times."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "100Hz"}) as b, clock(b) as step:
        b.start_all()
        b.wait_written(50_000)
        b.kill("dfm")
        step(7200)
        b.start("dfm")
        b.wait_log("dfm", "its further events have the times of this clock")
        stop_later(b)
        b.end_all()


def rebooted(b, earlier_s):
    """The record of the run as a machine finds it that started again, so many seconds later by its clock."""
    path = b.run_record()
    words = path.read_text().split()
    words[words.index("began") + 1] = str(int(words[words.index("began") + 1]) - earlier_s * 10**9)
    words[words.index("boot") + 1] = "00000000-0000-0000-0000-000000000000"
    path.write_text(" ".join(words) + "\n")


def overdue(evb):
    """A run whose duration passed while its machine was down does not end as if nothing were wrong."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "scenario.duration": "30min", "trigger.rate": "500Hz"}) as b:
        b.start_all()
        b.wait_written(300_000)
        b.kill("dfm")
        rebooted(b, 3600)
        b.start("dfm")
        dfm = b.end("dfm", expect=1)
        assert "this machine may have restarted since the last run began" in b.log("dfm"), b.log("dfm")
        assert "run 1 ends at once: scenario.duration had passed" in b.log("dfm"), b.log("dfm")
        assert "triggers begin" not in b.log("dfm").partition("resumed run 1")[2], b.log("dfm")
        assert any("the run ended when this DFM resumed it" in reason for reason in dfm["reasons"]), dfm
        for name in ROLES:
            b.processes[name].wait(timeout=LIMIT_S)


def event_times(path):
    """The times of the events in seconds since 1970: the words of each header that can be one."""
    data, now, at = path.read_bytes(), time.time(), 0
    while (at := data.find(EVENT_MARK, at)) >= 0:
        size, = struct.unpack_from("<I", data, at + 4)
        words = struct.unpack_from("<32I", data, at)
        yield [word for word in words if abs(word - now) < 4 * 3600]
        at += 4 * size


def event_times_follow(evb):
    """The clock is set before the run begins: events have its times. It is set again: they go on from there."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "500Hz"}) as b, clock(b) as step:
        begin = time.time() + 7200
        b.start("dfm")
        b.wait_log("dfm", "waiting for")
        step(7200)
        b.start_all(*[name for name in ROLES if name != "dfm"])
        b.wait_written(200_000)
        step(-3600)
        b.wait_log("dfm", "the clock was set by ")
        stop_later(b)
        b.end_all()
        # A DFM that loses the processor between two clocks measures up to 0.25 s more or less.
        assert re.search(r"the clock was set by -(10800|10799)\.\d s during the run", b.log("dfm")), b.log("dfm")
        assert b.log("dfm").count("the clock was set by") == 1, b.log("dfm")
        end = time.time() + 7200
        for path in b.folder.glob("*.data"):
            times = list(event_times(path))
            assert times and all(t and all(begin - 2 < s < end + 2 for s in t) for t in times), (begin, end, times[0], times[-1])


def suspended(evb):
    """The DFM's machine sleeps in mid-run: nobody has set its clock."""
    with bed(evb, {**PATIENT, "trigger.events": 0, "trigger.rate": "500Hz"}) as b, clock(b) as step:
        b.start_all()
        b.wait_written(200_000)
        step(0, 3600)
        b.wait_log("dfm", "this machine was suspended for ")
        stop_later(b)
        b.end_all()
        assert re.search(r"this machine was suspended for (3600|3599)\.\d s during the run", b.log("dfm")), b.log("dfm")
        assert b.log("dfm").count("this machine was suspended for") == 1, b.log("dfm")
        assert "the clock was set" not in b.log("dfm"), b.log("dfm")


if __name__ == "__main__":
    main({
        "restart-forward": lambda evb: restart(evb, 7200),
        "restart-back": lambda evb: restart(evb, -7200),
        "restart-says-so": restart_says_so,
        "overdue": overdue,
        "suspended": suspended,
        "event-times": event_times_follow,
    })
