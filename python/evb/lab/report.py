"""`evb lab report`: judges results files, and draws the report of them."""
from . import valid
from .catalogue import MEASUREMENTS
from .judge import is_quick, judge, table
from .limits import limit_of
from .measurement import Kind, Simulation, points_of
from .needs import missing
from .results import is_simulated


def planned_of(m, results, bed):
    """All planned points, so that the report can show missing ones."""
    return [{"series": p.series, "x": float(p.x), "panel": p.panel} for p in points_of(m, bed, is_quick(m, results))
            if not bed or not missing(p)]


def with_limit(result):
    """Adds what limited a point of event building."""
    limit = limit_of(result)
    return {**result, "limited_by": limit.value if limit else None}


def describe(m, results):
    """A measurement with its points and its verdict, which is about the results of labs, or without any, those of the
    simulator."""
    points = [r for r in results if r["id"] == m.id]
    measured = [r for r in points if not is_simulated(r)]
    judged = measured or points
    verdict, why = judge(m, judged)
    return {"id": m.id, "title": m.title, "published": m.published, "x_label": m.x_label, "y_label": m.y_label, "y": m.y,
            "log_x": m.log_x, "verdict": verdict.value, "why": why, "table": table(m, judged),
            "points": list(map(with_limit, points)) if m.kind is Kind.EVENTS else points,
            "marks": [{"label": mark.label, "x": float(mark.x), "y": float(mark.y)} for mark in m.marks],
            "panels": [panel.name for panel in m.panels],
            "planned": planned_of(m, judged, Simulation() if points and not measured else None),
            "crowded_share": valid.CROWDED_SHARE}


def describe_all(results, version):
    return {"measurements": [describe(m, results) for m in MEASUREMENTS], "version": version}
