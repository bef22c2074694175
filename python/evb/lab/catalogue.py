"""The catalogue of measurements, in the order of the publications."""
from . import extensions, performance, publication_a, publication_b, publication_c, publication_d, publication_e, scaling
from .measurement import Simulation, points_of
from .needs import missing

MEASUREMENTS = [m for module in (publication_a, publication_b, publication_c, extensions, publication_d, publication_e, scaling, performance)
                for m in module.MEASUREMENTS]
BY_ID = {m.id: m for m in MEASUREMENTS}


def add(m):
    """Adds a measurement of the user's own."""
    if m.id in BY_ID:
        raise ValueError(f"measurement {m.id} exists")
    MEASUREMENTS.append(m)
    BY_ID[m.id] = m


class UnknownMeasurement(Exception):
    """A word of the command line selects nothing."""


def _selects(word, m):
    return word in (m.id, m.id[0]) or (word == "all" and not m.benchmark)


def select(words):
    """The measurements that "all", letters and IDs choose."""
    for word in words:
        if not any(_selects(word, m) for m in MEASUREMENTS):
            raise UnknownMeasurement(f'unknown measurement "{word}"; expected all, a letter, or {" ".join(BY_ID)}')
    return [m for m in MEASUREMENTS if any(_selects(word, m) for word in words)]


def plan(measurements, named, bed, quick, warn):
    """The points that can be made here, and how many are skipped although they should exist. Points that cannot be made are
    reported to `warn`. Measurements that only exist elsewhere, in the simulator or outside it, count only if `named` has
    their IDs."""
    points, skipped = [], 0
    for m in measurements:
        every = points_of(m, bed, quick)
        lacks = [missing(point) for point in every]
        kept = [point for point, lack in zip(every, lacks) if not lack]
        if len(kept) < len(every):
            reasons = "; ".join(f"{m.id} {lack}" for lack in dict.fromkeys(filter(None, lacks)))
            warn(f"{len(every) - len(kept)} of {len(every)} points of {m.id} are skipped: {reasons}")
        elsewhere = isinstance(bed, Simulation) or m.virtual_only
        if not elsewhere or (not kept and m.id in named):
            skipped += sum(1 for point, lack in zip(every, lacks) if lack and not point.is_optional)
        points += kept
    return points, skipped
