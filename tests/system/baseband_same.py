#!/usr/bin/env python3
"""Compares two VDIF recordings as the Python package baseband decodes them.

    baseband_same.py {ORIGINAL RECEIVED LOST}...
    baseband_same.py --sample

Exits with 0 if each RECEIVED has the same samples at the same times, except in LOST invalid frames. --sample prints
the paths of the package's own recordings. Exits with 77 if the package is not installed.
"""
import sys

try:
    import baseband.data
    import numpy
    from astropy import units
    from baseband import vdif
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def frames(path):
    with vdif.open(path, "rb") as f:
        while True:
            try:
                yield f.read_frame()
            except EOFError:
                return


def compare(original, received, lost):
    found = 0
    for a, b in zip(frames(original), frames(received), strict=True):
        assert (a["thread_id"], a["seconds"], a["frame_nr"]) == (b["thread_id"], b["seconds"], b["frame_nr"])
        if b["invalid_data"]:
            found += 1
        else:
            assert numpy.array_equal(a.data, b.data)
    assert found == lost, f"{found} invalid frames, not {lost}"
    # The header of the sample with frames of 8032 bytes does not state a rate, and the sample is too short to show it.
    rate = {"sample_rate": 16 * units.MHz} if original == baseband.data.SAMPLE_BPS1_VDIF else {}
    with vdif.open(original, "rs", **rate) as a, vdif.open(received, "rs", **rate) as b:
        assert (a.start_time, a.stop_time, a.sample_rate, a.shape) == (b.start_time, b.stop_time, b.sample_rate, b.shape)
        ours, theirs = a.read(), b.read()
    # Invalid frames are read as zeros, which no sample of two bits is.
    same = (ours == theirs) | (theirs == 0)
    assert same.all(), "samples differ"
    in_frame = ours.size // len(list(frames(original)))
    assert numpy.count_nonzero(theirs == 0) == lost * in_frame, "other samples than those of lost frames are invalid"


def main():
    if sys.argv[1] == "--sample":
        # Frames of 5032 and 8032 bytes.
        print(baseband.data.SAMPLE_VDIF, baseband.data.SAMPLE_BPS1_VDIF, sep="\n")
        return 0
    words = sys.argv[1:]
    for original, received, lost in zip(words[::3], words[1::3], words[2::3], strict=True):
        print(f"{original} and {received}:", flush=True)
        compare(original, received, int(lost))
    return 0


sys.exit(main())
