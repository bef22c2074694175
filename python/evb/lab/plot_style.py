"""What the plots of `evb lab report` have in common."""
import math

# Distinct to most colour-blind readers (Okabe and Ito 2008); the markers also work without colour.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999"]
MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"]
SCALES = {"whole_bytes_per_second": 1e-6, "throughput_bytes_per_second": 1e-6, "built_share": 100, "port_share": 100, "steady_share": 100}
# What the name of a simulated series ends with, if the lab has made the same series.
SIMULATED = ", simulated"
LEGEND_BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "fontsize": 9,
                 "frameon": False}


def scale(m, value):
    return value * SCALES.get(m["y"], 1)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def series_of(m, panel=None):
    """Returns the points of each series. A missing, unknown or disturbed figure is NaN, which interrupts the
    line."""
    found = {}
    for p in m["planned"]:
        if panel is None or p["panel"] == panel:
            found.setdefault(p["series"], {})[p["x"]] = (math.nan, {})
    for p in m["points"]:
        value = p.get(m["y"])
        if is_number(value) and not p.get("disturbed") and (panel is None or p.get("panel") == panel):
            found.setdefault(p["series"], {})[p["x"]] = (scale(m, value), p)
    return {name: sorted(points.items()) for name, points in found.items()}


def look(names, name):
    """Returns colour, marker and line style of a series; a simulated one looks like that of the lab, but dashed."""
    simulated = name.endswith(SIMULATED)
    i = names.index(name.removesuffix(SIMULATED) if simulated else name)
    return COLOURS[i % 8], MARKS[i % 8], "--" if simulated else "-"


def tidy(axes):
    axes.grid(True, which="major", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
