"""Publication E: data paths for download and streaming (Halvorsen, Dalseng, Griwodz, Linux 2.6). Each row is a path from a file
to a socket; E14 sets them side by side, for the conclusions."""
import math

from . import vary
from .measurement import Kind, Measurement, Panel
from .query import ratio
from .verdict import Verdict

# The file of the publication has 1 GB; here a multiple of the page size.
BASE = "seconds=2 file=999997440"
COST = "processor_seconds_per_gb"
# A path with a call for the whole file needs one for some packets here: in this many, at most.
CALLS_PER_PACKET_SLACK = 0.25
CALLS_LESS = 0.8
# A conclusion holds if at least half of the published effect is there.
COPIES_SHARE, HEADER_COST, PATCH_GAIN, HOLDS_FROM = 0.4, 0.29, 0.25, 0.5
SOURCES = [Panel("page cache", "source=0", True), Panel("disk", "source=1", False)]
WIRES = {"UDP": "wire=0", "TCP": "wire=1", "alone": "wire=2"}


def row(number, title, published, calls, per_packet, series, optional=()):
    """`calls` and `per_packet`: the published number of system calls for n packets, and for each of many. The number of copies
    is stated, so that the verdict of a row is about what can be counted."""
    def judge(j):
        needed = [i for i in range(len(j.points)) if not j.is_dispensable(i)]
        fewest, cheapest = (min((j.figure(i, key) for i in needed), default=math.inf) for key in ("calls_per_packet", COST))
        bad = sum(j.figure(i, "corrupt") for i in needed)
        why = (f"{fewest:.2f} system calls per packet at least, {calls} for n packets published; the cheapest form takes "
               f"{cheapest:.2f} s of processor time per GB{'; bytes arrived wrong or not at all' if bad > 0 else ''}")
        if bad > 0 or cheapest <= 0 or fewest > per_packet + CALLS_PER_PACKET_SLACK:
            return Verdict.DIFFERS, why
        return Verdict.BETTER if fewest < CALLS_LESS * per_packet else Verdict.AGREES, why

    return Measurement(id=f"E{number}", title=title, published=published, x_label="payload of a packet, bytes",
                       y_label="processor time, s/GB", y=COST, log_x=True, kind=Kind.PATHS, base=f"row={number} {BASE}",
                       series=series, optional=frozenset(optional), x=[512, 1024, 8192], quick_x=[1024], panels=SOURCES,
                       vary=vary.payload_bytes, judge=judge)


def forms(*names):
    """Each form of a row on each wire: "UDP, splice". A form is a name, or the names on the three wires."""
    series = {}
    for number, form in enumerate(names):
        on_wires = (form,) * len(WIRES) if isinstance(form, str) else form
        for (wire, setting), name in zip(WIRES.items(), on_wires):
            series[f"{wire}, {name}"] = f"form={number} {setting}"
    return series


ONE_FORM = {"UDP": "form=0 wire=0", "TCP": "form=0 wire=1", "sender alone": "form=0 wire=2"}
IO_URING = [f"{wire}, io_uring" for wire in WIRES]


def cost(j, first, last):
    """The lowest cost of rows `first` to `last` over UDP from the page cache, without a receiver: the publication had another
    machine for it."""
    return j.of("sender alone", "page cache").between(first, last).least(COST)


def judge_conclusions(j):
    copied, handed, headed, existing, patched = (cost(j, *rows) for rows in ((1, 1), (3, 3), (8, 8), (4, 8), (9, 13)))
    conclusions = [("without copies, download saves", 1 - ratio(handed, copied), COPIES_SHARE),
                   ("the header costs sendfile", ratio(headed, handed) - 1, HEADER_COST),
                   ("the best of E9 to E13 gains on the best of E4 to E8", 1 - ratio(patched, existing), PATCH_GAIN)]
    hold = [share >= HOLDS_FROM * published for _, share, published in conclusions]
    parts = [f"{what} {100 * share:.0f} % (published: {100 * published:.0f} %), which {'holds' if holds else 'no longer holds'}"
             for (what, share, published), holds in zip(conclusions, hold)]
    return Verdict.AGREES if all(hold) else Verdict.DIFFERS, "; ".join(parts)


MEASUREMENTS = [
    row(1, "Download by read and send", "2n copies, 2n calls for n packets", "2n", 2, ONE_FORM),
    row(2, "Download by mmap and send", "n copies, 1 + n calls", "1+n", 1, ONE_FORM),
    row(3, "Download by sendfile", "no copies, 1 call", "1", 0, forms("sendfile", "splice")),
    row(4, "Streaming by read and send, header in the buffer", "2n copies, 2n calls", "2n", 2, ONE_FORM),
    row(5, "Streaming by read and writev", "3n copies, 2n calls", "2n", 2, ONE_FORM),
    row(6, "Streaming by mmap and send, corked", "2n copies, 1 + 4n calls", "1+4n", 4, forms("cork", "MSG_MORE")),
    row(7, "Streaming by mmap and writev", "2n copies, 1 + n calls", "1+n", 1,
        forms("writev", ("sendmmsg", "long gather lists", "sendmmsg"))),
    row(8, "Streaming by sendfile, corked header", "n copies, 4n calls", "4n", 4, forms("cork", "MSG_MORE")),
    row(9, "Streaming by mmap and msend (patch)", "n copies, 1 + 4n calls", "1+4n", 4, forms("MSG_ZEROCOPY")),
    row(10, "Streaming by mmap and rtpmsend (patch)", "n copies, 1 + n calls", "1+n", 1, forms("MSG_ZEROCOPY", "vmsplice")),
    row(11, "Streaming by mmap and krtpmsend (patch)", "no copies, 1 call", "1", 0,
        forms(("super-packets", "long gather lists", "super-packets"), "io_uring"), IO_URING),
    row(12, "Streaming by rtpsendfile (patch)", "n copies, n calls", "n", 1, forms("splice", "io_uring"), IO_URING),
    row(13, "Streaming by krtpsendfile (patch)", "no copies, 1 call", "1", 0, forms("io_uring")),
    Measurement(
        id="E14",
        title="Data paths side by side",
        published="40 % of processor time is copies; a header costs sendfile 29 %; the patched paths gain 25 to 27 % on the best "
                  "other one",
        x_label="row",
        y_label="processor time, s/GB",
        y=COST,
        kind=Kind.PATHS,
        base=f"payload=1024 form=0 {BASE}",
        series={"UDP": "wire=0", "TCP": "wire=1", "sender alone": "wire=2"},
        x=list(range(1, 14)), quick_x=[1, 3, 7, 8, 10, 11],
        panels=SOURCES,
        vary=vary.row,
        judge=judge_conclusions,
    ),
]
