"""Reads the quantities of a scenario: "1Gbit", "64KiB", "466489mHz", "2s"."""
import re

UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
         "bit": 1, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "mHz": 1e-3, "Hz": 1, "kHz": 1e3, "MHz": 1e6,
         "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}


def parse(text):
    """In bytes, bits per second, hertz or seconds; None for words such as "max", "none" and "unlimited"."""
    match = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    if not match or match[2] not in UNITS:
        return None
    return float(match[1]) * UNITS[match[2]]
