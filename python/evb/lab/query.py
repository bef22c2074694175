"""Queries of verdict functions over the planned points of a measurement and the newest result of each.

A query records missing points and unknown figures; judge.py then refuses a verdict. A disturbed result (valid.py) does not
count.
"""
from __future__ import annotations

import dataclasses
import math

from . import valid
from .limits import limit_of
from .measurement import Simulation, points_of
from .needs import missing

NEVER_X = 1e18
# Names at most this many missing points.
NAMED_MAX = 4
# In place of a figure: the point has no result; it has only disturbed ones.
LACK_POINT, LACK_VALID = "", "disturbed"


def ratio(a, b):
    """a / b, as IEEE 754 defines it for b = 0."""
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a)


def place_of(result):
    """The point to which a result belongs."""
    return result.get("series") or "", result.get("panel") or "", result.get("x") or 0


class Judging:
    """`points`, and for each: its result or None, why its only results are disturbed or None, what it lacks or None, and
    whether the verdict rests on it."""

    def __init__(self, m, results, quick):
        self.m = m
        self.points = points_of(m, quick=quick)
        if results and results[0].get("simulated") is True:
            # Simulated results need no points that the simulator's model does not cover.
            self.points = [p for p in self.points if not missing(dataclasses.replace(p, bed=Simulation()))]
        n = len(self.points)
        self.results, self.reasons, self.lacks, self.decisive = [None] * n, [None] * n, [None] * n, [False] * n
        self._find(results)
        # Every point is required, even if the verdict's queries do not match it.
        for i in range(n):
            if not self.is_dispensable(i):
                self.figure(i, m.y)

    def _find(self, results):
        """The newest valid result of a point wins, because the user repeated the point for a reason."""
        places = {(p.series, p.panel or "", p.x): i for i, p in enumerate(self.points)}
        for result in results:
            i = places.get(place_of(result))
            if i is None:
                continue
            if valid.reason(result):
                self.reasons[i] = valid.reason(result)
            else:
                self.results[i] = result

    def of(self, series=None, panel=None):
        """The points of a series, of a panel, or of all."""
        return Query(self, series, panel)

    def figure(self, i, key):
        """A figure of point i. An unknown figure is recorded, and 0 returned."""
        value = (self.results[i] or {}).get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if self.lacks[i] is None:
            self.lacks[i] = key if self.results[i] else LACK_VALID if self.reasons[i] else LACK_POINT
        return 0.0

    def refusal(self, i):
        """The call that the kernel refused, and why; None: none."""
        text = (self.results[i] or {}).get("refused")
        return text if isinstance(text, str) else None

    def limit(self, i):
        """What limited point i, a limits.Limit; None: unknown."""
        return limit_of(self.results[i]) if self.results[i] else None

    def is_dispensable(self, i):
        """Whether a verdict does without point i: its series is optional, and it is missing or the kernel refused it."""
        return self.points[i].is_optional and bool(not self.results[i] or self.refusal(i))

    @property
    def is_whole(self):
        """Whether all queried figures are known."""
        return all(lack is None for lack in self.lacks)

    def _names(self, lack):
        """"push at 1024 (6x3), pull at 1024 (6x3), and 7 more"."""
        having = [i for i, other in enumerate(self.lacks) if other == lack]
        names = []
        for i in having[:NAMED_MAX]:
            p = self.points[i]
            why = f" ({self.reasons[i]})" if lack == LACK_VALID else f" (refused: {self.refusal(i)})" if self.refusal(i) else ""
            names.append(f"{p.series} at {p.x:g}{f' ({p.panel})' if p.panel else ''}{why}")
        return ", ".join(names) + (f", and {len(having) - NAMED_MAX} more" if len(having) > NAMED_MAX else "")

    def lacking(self):
        """Names the missing points, the disturbed ones with the reason, and unknown figures."""
        parts = []
        for lack in dict.fromkeys(lack for lack in self.lacks if lack is not None):
            n, of_all = self.lacks.count(lack), f"of {len(self.points)} points"
            if lack not in (LACK_POINT, LACK_VALID):
                parts.append(f"{lack} is unknown at {n} {of_all}: {self._names(lack)}")
            else:
                parts.append(f"{n} {of_all} {'is' if n == 1 else 'are'} {lack or 'missing'}: {self._names(lack)}")
        return "; ".join(parts)


@dataclasses.dataclass(frozen=True)
class Query:
    """Folds a figure over points: NAN if no planned point matches. A verdict that uses the most or the least rests on that
    point."""
    judging: Judging
    series: str | None = None  # None: any
    panel: str | None = None
    least_x: float = 0
    most_x: float = NEVER_X

    def between(self, least_x, most_x=NEVER_X):
        return dataclasses.replace(self, least_x=least_x, most_x=most_x)

    def at(self, x):
        return self.between(x, x)

    def __iter__(self):
        """The numbers of the points."""
        for i, p in enumerate(self.judging.points):
            if (self.series in (None, p.series) and self.panel in (None, p.panel or "")
                    and self.least_x <= p.x <= self.most_x):
                yield i

    def figures(self, key):
        return [(i, self.judging.figure(i, key)) for i in self]

    def _extreme(self, key, better):
        best = None
        for i, value in self.figures(key):
            if best is None or better(value, best[1]):
                best = i, value
        if best is None:
            return math.nan
        self.judging.decisive[best[0]] = True
        return best[1]

    def most(self, key):
        return self._extreme(key, lambda a, b: a > b)

    def least(self, key):
        return self._extreme(key, lambda a, b: a < b)

    def sum(self, key):
        values = [value for _, value in self.figures(key)]
        return sum(values) if values else math.nan
