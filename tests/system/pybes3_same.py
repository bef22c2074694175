#!/usr/bin/env python3
"""Compares two event files as pybes3 decodes them.

    pybes3_same.py A B

Exits 0 where both hold the same events (matched by event number, in any order, each of A once in B and the other way
round) with the same decoded arrays; 1, saying where, if not; 77 where pybes3 is not installed.
"""
import sys

try:
    import awkward as ak
    import pybes3.io.raw_io as raw_io
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def read(path):
    arrays = raw_io.RawBinaryReader(path).arrays()
    return arrays[ak.argsort(arrays["evt_header", "evt_no"])]


def main():
    a, b = read(sys.argv[1]), read(sys.argv[2])
    if len(a) != len(b):
        print(f"{len(a)} events and {len(b)} events")
        return 1
    if a.fields != b.fields:
        print(f"fields {a.fields} and {b.fields}")
        return 1
    for field in a.fields:
        if not ak.array_equal(a[field], b[field]):
            print(f"{field} differs")
            return 1
    print(f"{len(a)} events, the same in {', '.join(a.fields)}")
    return 0


sys.exit(main())
