"""Lab and simulator side by side in `evb lab report`: the curves of both, and how far they are apart."""
import html

from .plot_style import SIMULATED, is_number, scale


def split(m):
    """Gives the simulated points of a measurement series of their own, if it has points of a lab, too."""
    simulated = [p for p in m["points"] if p.get("simulated")]
    if 0 < len(simulated) < len(m["points"]):
        for p in simulated:
            p["twin"] = p["series"]
            p["series"] += SIMULATED


def pairs(m):
    """Returns (lab point, simulated point) of the same settings of the measurement, the newest of each."""
    lab, simulated = {}, {}
    for p in m["points"]:
        if is_number(p.get(m["y"])) and not p.get("disturbed"):
            to = simulated if "twin" in p else lab
            to[p.get("panel"), p.get("twin", p["series"]), p["x"]] = p
    return [(lab[key], p) for key, p in simulated.items() if key in lab]


def is_limited(m, p):
    """Whether the lab's processes waited so long for processors that these limit the point."""
    return not is_number(p.get("waiting_share")) or p["waiting_share"] > m["crowded_share"]


def deviation(m, lab, simulated):
    """Returns by how many percent the simulator exceeds the lab, or None."""
    return 100 * (simulated[m["y"]] / lab[m["y"]] - 1) if lab[m["y"]] else None


def summary(m):
    """Returns a sentence about the deviations, or ""."""
    found = [(deviation(m, *pair), is_limited(m, pair[0])) for pair in pairs(m)]
    free, limited = ([abs(d) for d, l in found if d is not None and l == wanted] for wanted in (False, True))
    if not free and not limited:
        return ""
    parts = []
    if free:
        parts.append(f"at {len(free)} points where the lab is not limited by its processors, simulator and lab differ "
                     f"by at most {max(free):.1f} %")
    if limited:
        parts.append(f"at {len(limited)} others, where its processes waited, by at most {max(limited):.1f} %")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def table(m):
    """Returns a table of all points that both have made, or ""."""
    rows = []
    for lab, p in pairs(m):
        apart = deviation(m, lab, p)
        wait = lab.get("waiting_share")
        rows.append((lab.get("panel") or "", lab["series"], f"{lab['x']:g}", f"{scale(m, lab[m['y']]):,.1f}",
                     f"{scale(m, p[m['y']]):,.1f}", "" if apart is None else f"{apart:+.1f}",
                     f"{100 * wait:.0f}" if is_number(wait) else "unknown", "yes" if is_limited(m, lab) else ""))
    if not rows:
        return ""
    head = ("panel", "series", m["x_label"], f"lab: {m['y_label']}", "simulator", "deviation, %",
            "waited, % of all processors", "limited by processors")
    return (f"<p>{html.escape(summary(m))}</p><details><summary>lab and simulator, point by point</summary><table>"
            f"<tr>{''.join(f'<th>{html.escape(text)}</th>' for text in head)}</tr>"
            + "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
            + "</table></details>")
