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
import math
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
SCALES = {"whole_bytes_per_second": 1e-6, "built_share": 100}
PACKETS = ("source_packets", "switch_packets", "socket_packets")
LOSSES = {"source_packets": "source queue, packets", "switch_packets": "switch port, packets", "socket_packets": "socket, packets",
          "lost_messages": "messages not received", "late": "late, fragments", "events_lost": "lost, events", "events_partial": "partial, events"}
UNKNOWN_FACE = "#bbbbbb"
VERDICT_COLOURS = {"agrees": "#009E73", "better": "#0072B2", "differs": "#D55E00", "unknown": "#777777"}


def scale(m, value):
    return value * SCALES.get(m["y"], 1)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def series_of(m, panel=None):
    """Points by series; what should be there and is not, or is not known, is NaN: a gap, and no line across it."""
    found = {}
    for p in m["planned"]:
        if panel is None or p["panel"] == panel:
            found.setdefault(p["series"], {})[p["x"]] = (math.nan, {})
    for p in m["points"]:
        value = p.get(m["y"])
        if is_number(value) and (panel is None or p.get("panel") == panel):
            found.setdefault(p["series"], {})[p["x"]] = (scale(m, value), p)
    return {name: sorted(points.items()) for name, points in found.items()}


def has_gaps(m):
    return any(math.isnan(v) for panel in m["panels"] or [None] for points in series_of(m, panel).values() for _, (v, _) in points)


def lost_packets(p):
    return sum(p.get(key) or 0 for key in PACKETS)


def is_loss_unknown(p):
    """At the switch: nobody could ask it. null elsewhere: nothing of the kind is there."""
    return "switch_packets" in p and p["switch_packets"] is None


def face_of(p, colour):
    return "white" if lost_packets(p) else UNKNOWN_FACE if is_loss_unknown(p) else colour


def lost_events(p):
    return (p.get("events_lost") or 0) + (p.get("events_partial") or 0)


def draw_gaps(m, axes):
    """Gaps between packets: the share that is not longer."""
    for i, (name, points) in enumerate(series_of(m).items()):
        p = next((p for _, (_, p) in reversed(points) if p.get("gap_edges_us") and p.get("gap_below")), None)
        if p is None:
            axes.plot([], [], color=COLOURS[i], label=f"{name}: not measured", linewidth=2)
            continue
        axes.plot(p["gap_edges_us"], [100 * v for v in p["gap_below"]], color=COLOURS[i], label=name, linewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(0.5, 1e5)
    axes.set_xlabel("gap between packets, us")
    axes.set_ylabel("packets with a gap not longer, %")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=9, frameon=False)


def draw_points(axes, series, names, size):
    """Hollow where packets were lost, grey where that is not known, ringed where events were lost, a cross on the axis for a gap.
    A name's place gives it its colour in all panels."""
    for name, points in series.items():
        i = names.index(name)
        colour, mark = COLOURS[i % 8], MARKS[i % 8]
        axes.plot([x for x, _ in points], [v for _, (v, _) in points], color=colour, linewidth=size / 3.5, zorder=2 + i / 10)
        for x, (v, p) in points:
            if math.isnan(v):
                axes.plot(x, 0, color=colour, marker="x", markersize=size, transform=axes.get_xaxis_transform(), zorder=4, clip_on=False)
                continue
            axes.plot(x, v, color=colour, marker=mark, markersize=size, markerfacecolor=face_of(p, colour), markeredgewidth=size / 5,
                      zorder=2.05 + i / 10, clip_on=False)
            if lost_events(p):
                axes.plot(x, v, marker="o", markersize=2.2 * size, markerfacecolor="none", markeredgecolor="#cc0000", zorder=4, clip_on=False)


def legend_of(m, names, size):
    """One for all panels: the series, and what signs mean that occur."""
    def sign(**how):
        return plt.Line2D([], [], linestyle="none", markersize=size, **how)
    handles = [plt.Line2D([], [], color=COLOURS[i % 8], marker=MARKS[i % 8], markersize=size, linewidth=size / 3.5, label=name) for i, name in enumerate(names)]
    handles += [sign(marker="x" if i % 2 else "+", color="#555555", markeredgewidth=2, label=f"published, {mark['label']}") for i, mark in enumerate(m["marks"])]
    if m["y"].startswith("sender_cpu"):
        handles.append(plt.Rectangle((0, 0), 1, 1, color="#bbbbbb", label="line: median of 50 ms;\nband: 10 % to 90 % of them"))
    if any(lost_packets(p) for p in m["points"]):
        handles.append(sign(marker="o", markerfacecolor="white", markeredgecolor="#555555", markeredgewidth=size / 5, label="hollow: packets lost"))
    if any(is_loss_unknown(p) and not lost_packets(p) for p in m["points"]):
        handles.append(sign(marker="o", markerfacecolor=UNKNOWN_FACE, markeredgecolor="#555555", markeredgewidth=size / 5, label="grey: losses not known"))
    if has_gaps(m):
        handles.append(sign(marker="x", markeredgecolor="#555555", label="cross on the axis:\nnot measured, or not known"))
    if any(lost_events(p) for p in m["points"]):
        handles.append(sign(marker="o", markerfacecolor="none", markeredgecolor="#cc0000", label="ring: not all events whole"))
    return handles


def set_log_x(axes, m, text):
    axes.set_xscale("log")
    ticks = sorted({p["x"] for p in m["planned"] + m["points"]})
    # Not so close that their numbers touch.
    kept = [t for i, t in enumerate(ticks) if i == 0 or t / ticks[i - 1] > 1.3]
    kept = kept if len(kept) > 1 else ticks
    axes.set_xticks(kept, [text(t) for t in kept], rotation=30 if len(kept) > 8 else 0)
    axes.minorticks_off()


def tidy(axes):
    axes.grid(True, which="major", color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)


def draw_bands(m, axes):
    """What processors spent in most intervals of 50 ms: all but a tenth above and a tenth below."""
    for i, points in enumerate(series_of(m).values()):
        cpu = [(x, p.get("sender_cpu") or {}) for x, (_, p) in points]
        spread = [(x, *(c[q] if is_number(c.get(q)) else math.nan for q in ("p10", "p90"))) for x, c in cpu]
        axes.fill_between(*zip(*spread), color=COLOURS[i % 8], alpha=0.18, linewidth=0, zorder=1.5)


def draw_curves(m, axes):
    series = series_of(m)
    if m["y"].startswith("sender_cpu"):
        draw_bands(m, axes)
    draw_points(axes, series, list(series), 6)
    for i, mark in enumerate(m["marks"]):
        axes.plot(mark["x"], scale(m, mark["y"]), color="#555555", marker="x" if i % 2 else "+", markersize=13, markeredgewidth=2.5, linestyle="none", zorder=5)
    if m["log_x"]:
        set_log_x(axes, m, lambda x: f"{x:,.0f}")
    values = [v for points in series.values() for _, (v, _) in points if v > 0]
    if values and max(values) > 1000 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(m["x_label"])
    axes.set_ylabel(m["y_label"])
    axes.legend(handles=legend_of(m, series, 7), loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=9, frameon=False)


def draw_single(m):
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    if m["y"].startswith("gap_"):
        draw_gaps(m, axes)
    else:
        draw_curves(m, axes)
    axes.set_title(f"{m['id']}: {m['title']}", fontsize=11, loc="left")
    tidy(axes)
    return figure


def draw_grid(m):
    """Small pictures on the same axes: "ROW, COLUMN" is the name of a panel."""
    named = [tuple(([""] + name.split(", "))[-2:]) for name in m["panels"]]
    made = {place: name for place, name in zip(named, m["panels"]) if any(p["panel"] == name for p in m["planned"] + m["points"])}
    rows, columns = ([word for word in dict.fromkeys(place[k] for place in named) if any(place[k] == word for place in made)] for k in (0, 1))
    names = list(series_of(m))
    figure, grid = plt.subplots(len(rows), len(columns), figsize=(max(2.5 * len(columns), 9), 1.4 + (2.2 if len(rows) > 1 else 3.2) * len(rows)), sharex=True,
                                sharey=True, squeeze=False, layout="constrained")
    for (row, column), axes in zip(((row, column) for row in rows for column in columns), grid.flat):
        if row == rows[0]:
            axes.set_title(column, fontsize=12)
        if column == columns[-1]:
            axes.annotate(row, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center", ha="left", fontsize=12)
        if (row, column) not in made:
            axes.set_axis_off()
            continue
        axes.tick_params(labelleft=not any((row, left) in made for left in columns[:columns.index(column)]))
        draw_points(axes, series_of(m, made[row, column]), names, 5)
        if m["log_x"]:
            set_log_x(axes, m, lambda x: f"{x / 1024:g}")
        tidy(axes)
    grid[0][0].set_ylim(bottom=0)
    figure.suptitle(f"{m['id']}: {m['title']}", fontsize=13, x=0.01, ha="left")
    figure.supxlabel(m["x_label"].replace("bytes", "KiB"), fontsize=12)
    figure.supylabel(m["y_label"], fontsize=12)
    handles = legend_of(m, names, 8)
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=min(len(handles), 4), fontsize=11, frameon=False)
    return figure


def draw(m):
    return draw_grid(m) if m["panels"] else draw_single(m)


def circumstances(description):
    points = [p for m in description["measurements"] for p in m["points"]]
    machines = sorted({(f"nodes of {p['testbed']}, ordered from " if p.get("testbed") else "")
                       + f"{p['processor']}, {p['processors']} processors, Linux {p['kernel']}, evb {p['version']}" for p in points})
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


def loss_text(known, n):
    """The most of those that are known, of n in all; 0 of some is not 0 of all."""
    if not known:
        return "not known"
    return f"{max(known) + 0.0:,.0f}" + (f", not known at {n - len(known)} of {n}" if len(known) < n else "")


def loss_table(m):
    """Where each series lost what: of all its points the one that lost most there."""
    columns = [key for key in LOSSES if any(key in p for p in m["points"])]
    if not any(key in columns for key in PACKETS):
        return ""
    rows = []
    for name in dict.fromkeys(p["series"] for p in m["points"]):
        known = {key: [p[key] for p in m["points"] if p["series"] == name and is_number(p.get(key))] for key in columns}
        cells = "".join(f"<td>{loss_text(known[key], sum(p['series'] == name for p in m['points']))}</td>" for key in columns)
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    return ("<p>Lost, by place; the worst of a series' points:</p><table><tr><th></th>" + "".join(f"<th>{LOSSES[key]}</th>" for key in columns) + "</tr>"
            + "".join(rows) + "</table>")


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
                         f"{loss_table(m)}<details><summary>again: evb lab run {m['id']}</summary><pre>{html.escape(chr(10).join(settings))}</pre></details>")
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
        figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        for kind in ("png", "svg"):
            figure.savefig(os.path.join(folder, f"{m['id']}.{kind}"), dpi=110, bbox_inches="tight")
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
