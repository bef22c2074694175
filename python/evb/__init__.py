"""Reads the events that evb, an event builder for data acquisition, has written or is writing.

    run = evb.open("data/*.data")
    for event in run:
        samples = event["ros1"].view("<u2")

Board and TriggerBox send frames and triggers to evb. docs/python.md describes all. numpy is imported with the first name that
needs it, as `evb.lab` works without it.
"""
from importlib import import_module as _import

_EXPORTS = {"open": "run", "Run": "run", "Event": "event", "Fragment": "event", "columns": "flat", "awkward": "flat",
            "Columns": "flat", "DamageWarning": "storage", "live": "live_events", "Board": "board", "TriggerBox": "board"}
__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module 'evb' has no attribute {name!r}")
    value = globals()[name] = getattr(_import(f".{_EXPORTS[name]}", __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *_EXPORTS})
