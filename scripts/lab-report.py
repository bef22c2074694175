#!/usr/bin/env python3
"""Draw the pictures and the page of `evb lab report`: its description of measurements comes on standard input, as JSON.

    lab-report.py FOLDER

Writes FOLDER/report.html, which holds all pictures, each of them as PNG and SVG, and FOLDER/report.md with the verdicts and
the pictures. Needs matplotlib.
"""
import base64
import html
import io
import json
import os
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    print("lab-report.py: needs matplotlib (apt-get install python3-matplotlib)", file=sys.stderr)
    sys.exit(77)

# Distinct also without colour, and for most eyes that see fewer colours (Okabe and Ito 2008).
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999"]
MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"]
MEGA = {"whole_bytes_per_second"}
VERDICT_COLOURS = {"agrees": "#009E73", "better": "#0072B2", "differs": "#D55E00", "unknown": "#777777"}


def scale(m, value):
    return value / 1e6 if m["y"] in MEGA else value


def series_of(m):
    found = {}
    for p in m["points"]:
        value = p.get(m["y"])
        if value is not None:
            found.setdefault(p["series"], {})[p["x"]] = (scale(m, value), p)
    return {name: sorted(points.items()) for name, points in found.items()}


def draw_gaps(m, axes):
    """Gaps between packets: the share that is not longer."""
    for i, (name, points) in enumerate(series_of(m).items()):
        p = points[-1][1][1]
        axes.plot(p["gap_edges_us"], [100 * v for v in p["gap_below"]], color=COLOURS[i], label=name, linewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(0.5, 1e5)
    axes.set_xlabel("gap between packets, us")
    axes.set_ylabel("packets with a gap not longer, %")


def draw_curves(m, axes):
    for i, (name, points) in enumerate(series_of(m).items()):
        xs, ys = [x for x, _ in points], [v for _, (v, _) in points]
        axes.plot(xs, ys, color=COLOURS[i % 8], marker=MARKS[i % 8], markersize=6, label=name, linewidth=1.8)
        # Points that lost something are ringed.
        lossy = [(x, v) for x, (v, p) in points if (p.get("events_lost") or 0) + (p.get("events_partial") or 0) > 0]
        if lossy:
            axes.plot(*zip(*lossy), linestyle="none", marker="o", markersize=14, markerfacecolor="none", markeredgecolor="#cc0000",
                      label="_with lost or partial events")
    for i, mark in enumerate(m["marks"]):
        axes.plot(mark["x"], scale(m, mark["y"]), color="#555555", marker="x" if i % 2 else "+", markersize=13, markeredgewidth=2.5, linestyle="none",
                  label=f"published, {mark['label']}")
    if m["log_x"]:
        axes.set_xscale("log")
        ticks = sorted({x for points in series_of(m).values() for x, _ in points})
        # Not so close that their numbers touch.
        kept = [t for i, t in enumerate(ticks) if i == 0 or t / ticks[i - 1] > 1.3]
        axes.set_xticks(kept if len(kept) > 1 else ticks, [f"{t:,.0f}" for t in (kept if len(kept) > 1 else ticks)], rotation=30 if len(kept) > 8 else 0)
        axes.minorticks_off()
    values = [v for points in series_of(m).values() for _, (v, _) in points if v > 0]
    if values and max(values) > 1000 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(m["x_label"])
    axes.set_ylabel(m["y_label"])


def draw(m):
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    if m["y"].startswith("gap_"):
        draw_gaps(m, axes)
    else:
        draw_curves(m, axes)
    axes.set_title(f"{m['id']}: {m['title']}", fontsize=11, loc="left")
    axes.grid(True, which="major", color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if any(p.get("events_partial") or p.get("events_lost") for p in m["points"]) and not m["y"].startswith("gap_"):
        ring = plt.Line2D([], [], linestyle="none", marker="o", markersize=11, markerfacecolor="none", markeredgecolor="#cc0000")
        handles.append(ring)
        labels.append("ring: not all events whole")
    if handles:
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=9, frameon=False)
    return figure


def circumstances(description):
    points = [p for m in description["measurements"] for p in m["points"]]
    machines = sorted({f"{p['processor']}, {p['processors']} processors, Linux {p['kernel']}, evb {p['version']}" for p in points})
    days = sorted({p["time"][:10] for p in points})
    return f"{'; '.join(machines)}. {' to '.join(sorted({days[0], days[-1]})) if days else ''}. {len(points)} points."


def cell(text):
    return text.replace("|", "\\|")


def summary(description, pictures):
    """The same in Markdown, pictures beside it."""
    lines = [circumstances(description), "", "| id | measurement | published | here | |", "|---|---|---|---|---|"]
    lines += [f"| {m['id']} | {cell(m['title'])} | {cell(m['published'])} | {m['verdict']} | {cell(m['why'])} |" for m in description["measurements"]]
    for m in description["measurements"]:
        if m["id"] in pictures:
            lines += ["", f"![{m['id']}: {m['title']}]({m['id']}.png)"]
    return "\n".join(lines) + "\n"


def page(description, pictures):
    rows, parts = [], []
    for m in description["measurements"]:
        colour = VERDICT_COLOURS[m["verdict"]]
        link = f"<a href='#{m['id']}'>{m['id']}</a>" if m["id"] in pictures else m["id"]
        rows.append(f"<tr><td>{link}</td><td>{html.escape(m['title'])}</td><td>{html.escape(m['published'])}</td>"
                    f"<td style='color:{colour}'><b>{m['verdict']}</b></td><td>{html.escape(m['why'])}</td></tr>")
        if m["id"] in pictures:
            settings = sorted({p["settings"] for p in m["points"]})
            parts.append(f"<h2 id='{m['id']}'>{m['id']}: {html.escape(m['title'])}</h2><p>Published: {html.escape(m['published'])}.<br>"
                         f"Here: <b style='color:{colour}'>{m['verdict']}</b>: {html.escape(m['why'])}.</p>"
                         f"<img alt='{m['id']}' src='data:image/png;base64,{pictures[m['id']]}'>"
                         f"<details><summary>again: evb lab run {m['id']}</summary><pre>{html.escape(chr(10).join(settings))}</pre></details>")
    return ("<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>evb lab</title><style>body{font:15px/1.4 sans-serif;max-width:1000px;"
            "margin:2em auto;padding:0 1em}table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:4px 7px;vertical-align:top;"
            "text-align:left}img{max-width:100%}pre{white-space:pre-wrap;font-size:12px}</style><h1>The published measurements, made again</h1>"
            f"<p>{html.escape(circumstances(description))}</p>"
            "<table><tr><th>id</th><th>measurement</th><th>published</th><th>verdict</th><th>why</th></tr>" + "".join(rows) + "</table>"
            + "".join(parts) + "</html>\n")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    description = json.load(sys.stdin)
    pictures = {}
    for m in description["measurements"]:
        if not m["points"]:
            continue
        figure = draw(m)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        for kind in ("png", "svg"):
            figure.savefig(os.path.join(folder, f"{m['id']}.{kind}"), dpi=110)
        plt.close(figure)
        pictures[m["id"]] = base64.b64encode(buffer.getvalue()).decode()
    with open(os.path.join(folder, "report.html"), "w") as f:
        f.write(page(description, pictures))
    with open(os.path.join(folder, "report.md"), "w") as f:
        f.write(summary(description, pictures))
    print(f"{os.path.join(folder, 'report.html')}: {len(pictures)} measurements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
