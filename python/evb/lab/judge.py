"""Makes a verdict on the results of a measurement: finds its points, calls its verdict function, and refuses a verdict if
a point or a figure is missing."""
import re

from .measurement import points_of
from .query import Judging, place_of
from .verdict import Verdict

SIGN_OF_ZERO = re.compile(r"(?:^|(?<=[ (]))-(?=0[0.]*(?![0-9.]))")


def is_quick(m, results):
    """Whether the results belong to a quick run, which has fewer and shorter points."""
    places = {(p.series, p.panel or "", p.x) for p in points_of(m, quick=True)}
    return all(place_of(r) in places and f" {m.quick_setting}" in (r.get("settings") or "") for r in results)


def judge(m, results, quick=None):
    """Judges the results of one measurement, which are all simulated or all measured; returns the verdict and why.

    `quick` says which points a verdict requires: those of a quick sweep, those of a full one, or (None) those of the sweep
    that the results belong to. The verdict is UNKNOWN if a point or a required figure is missing; the text then names it.
    """
    if not results:
        return Verdict.UNKNOWN, "not measured"
    judging = Judging(m, results, is_quick(m, results) if quick is None else quick)
    if not judging.points:
        return Verdict.UNKNOWN, "the simulator models none of its points"
    verdict, why = m.judge(judging)
    if not judging.is_whole:
        return Verdict.UNKNOWN, judging.lacking()
    return verdict, SIGN_OF_ZERO.sub("", why)


def table(m, results, quick=None):
    """The rows of a measurement's table, its head first; [] if it has none, or points are missing."""
    if not m.table or not results:
        return []
    judging = Judging(m, results, is_quick(m, results) if quick is None else quick)
    rows = m.table(judging) if judging.is_whole else []
    return rows if judging.is_whole else []


def markdown(rows):
    """A table for a document; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]]) if rows else ""


def decisive_points(m, results, quick):
    """The points that a verdict rests on: those whose figures, changed, may change it. Counts of losses are not among
    them, as a loss is not a matter of chance."""
    judging = Judging(m, results, quick)
    m.judge(judging)
    return [p for p, decides in zip(judging.points, judging.decisive) if decides]
