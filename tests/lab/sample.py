"""Results of a measurement at all of its points, as a test wants them, and the verdict on them."""
import re

from evb.lab.catalogue import BY_ID
from evb.lab.judge import judge
from evb.lab.measurement import points_of

SIGNED_ZERO = re.compile(r"-0[0.]*(?![0-9.])")


def result_of(point, figure, names):
    """`figure(point, name)` makes each figure."""
    result = {"series": point.series, "x": float(point.x), "settings": str(point.settings)}
    if point.panel:
        result["panel"] = point.panel
    return result | {name: figure(point, name) for name in names}


def results_of(identity, figure, names, quick=False):
    return [result_of(point, figure, names) for point in points_of(BY_ID[identity], quick=quick)]


def change(results, key, value, series=None, panel=None, x=None):
    """Changes a figure at all points of a series, a panel and an x (None: any)."""
    for r in results:
        if series in (None, r["series"]) and panel in (None, r.get("panel")) and x in (None, r["x"]):
            r[key] = value
    return results


def verdict_of(identity, results, quick=None):
    """The verdict and why; no text has a signed zero."""
    verdict, why = judge(BY_ID[identity], results, quick)
    assert len(why) > 10 and not SIGNED_ZERO.search(why), why
    return verdict.value, why
