"""The page and the plots of `evb lab report`, from what report.describe_all() returns. Needs matplotlib."""
import base64
import html
import io
import math
import os
import re

from . import plot_simulated
from .judge import markdown
from .plot_streams import draw_streams, has_streams, stream_table
from .plot_style import COLOURS, LEGEND_BESIDE, MARKS, is_number, look, scale, series_of, tidy

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

PACKETS = ("source_packets", "switch_packets", "network_packets", "nic_packets", "socket_packets")
LOSSES = {"source_packets": "packets, source queue", "switch_packets": "packets, switch port",
          "network_packets": "packets, network", "nic_packets": "packets, NIC", "socket_packets": "packets, socket", "lost_messages": "messages", "late": "late fragments",
          "events_lost": "lost events", "events_partial": "partial events"}
# What valid.py describes: the text, the factor to its unit, and the unit.
DISTURBANCES = {"stolen_share": ("processor time that the hypervisor took", 100, "%"),
                "others_share": ("processor time of other processes", 100, "%"),
                "waiting_share": ("processes of the point waiting for a processor", 100, "% of all processors"),
                "wait_mean_us": ("a process of the point waiting for its turn, mean", 1e-3, "ms"),
                "timer_late_p99_us": ("timer lateness, 99 %", 1e-3, "ms"),
                "timer_late_max_us": ("timer lateness, most", 1e-3, "ms")}
UNKNOWN_FACE = "#bbbbbb"
DPI, PAD_INCHES = 110, 0.1
VERDICT_COLOURS = {"agrees": "#009E73", "better": "#0072B2", "differs": "#D55E00", "unknown": "#777777"}


def has_gaps(m):
    return any(math.isnan(v) for panel in m["panels"] or [None]
               for points in series_of(m, panel).values() for _, (v, _) in points)


def lost_packets(p):
    return sum(p.get(key) or 0 for key in PACKETS)


def is_loss_unknown(p):
    """Only a switch can have unknown drops. Elsewhere null means that the location does not exist."""
    return "switch_packets" in p and p["switch_packets"] is None


def face_of(p, colour):
    return "white" if lost_packets(p) else UNKNOWN_FACE if is_loss_unknown(p) else colour


def lost_events(p):
    return (p.get("events_lost") or 0) + (p.get("events_partial") or 0)


def draw_gaps(m, axes):
    """Draws the cumulative distribution of the gaps between packets."""
    for i, (name, points) in enumerate(series_of(m).items()):
        p = next((p for _, (_, p) in reversed(points) if p.get("gap_edges_us") and p.get("gap_below")), None)
        if p is None:
            axes.plot([], [], color=COLOURS[i], label=f"{name}: not measured", linewidth=2)
            continue
        axes.plot(p["gap_edges_us"], [100 * v for v in p["gap_below"]], color=COLOURS[i], label=name,
                  linewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(0.5, 1e5)
    axes.set_xlabel("gap between packets, us")
    axes.set_ylabel("packets with at most this gap, %")
    axes.legend(**LEGEND_BESIDE)


def draw_points(axes, series, names, size):
    """Draws one marker per point: hollow if packets were lost, grey if drops are unknown, ringed if events
    were lost, and a cross on the axis if the figure is missing. A series keeps its colour in all panels."""
    for name, points in series.items():
        i = names.index(name)
        colour, mark, style = look(names, name)
        axes.plot([x for x, _ in points], [v for _, (v, _) in points], color=colour, linewidth=size / 3.5,
                  linestyle=style, zorder=2 + i / 10)
        for x, (v, p) in points:
            if math.isnan(v):
                axes.plot(x, 0, color=colour, marker="x", markersize=size, zorder=4, clip_on=False,
                          transform=axes.get_xaxis_transform())
                continue
            axes.plot(x, v, color=colour, marker=mark, markersize=size, markerfacecolor=face_of(p, colour),
                      markeredgewidth=size / 5, zorder=2.05 + i / 10, clip_on=False)
            if lost_events(p):
                axes.plot(x, v, marker="o", markersize=2.2 * size, markerfacecolor="none",
                          markeredgecolor="#cc0000", zorder=4, clip_on=False)


def legend_of(m, names, size):
    """Returns the legend of all panels: the series, and the signs that occur."""
    def sign(marker, edge="#555555", **how):
        return plt.Line2D([], [], linestyle="none", marker=marker, markersize=size, markeredgecolor=edge,
                          **how)

    def curve(name):
        colour, mark, style = look(names, name)
        return plt.Line2D([], [], color=colour, marker=mark, markersize=size, linewidth=size / 3.5, linestyle=style,
                          label=name)

    handles = [curve(name) for name in names]
    handles += [sign("x" if i % 2 else "+", markeredgewidth=2, label=f"published, {mark['label']}")
                for i, mark in enumerate(m["marks"])]
    if m["y"].startswith("sender_cpu"):
        handles.append(plt.Rectangle((0, 0), 1, 1, color="#bbbbbb",
                                     label="line: median of 50 ms intervals;\nband: 10 % to 90 % of them"))
    if any(lost_packets(p) for p in m["points"]):
        handles.append(sign("o", markerfacecolor="white", markeredgewidth=size / 5,
                            label="hollow: packets lost"))
    if any(is_loss_unknown(p) and not lost_packets(p) for p in m["points"]):
        handles.append(sign("o", markerfacecolor=UNKNOWN_FACE, markeredgewidth=size / 5,
                            label="grey: drops unknown"))
    if has_gaps(m):
        handles.append(sign("x", label="cross on the axis:\nnot measured, or unknown"))
    if any(lost_events(p) for p in m["points"]):
        handles.append(sign("o", "#cc0000", markerfacecolor="none", label="ring: some events incomplete"))
    return handles


def set_log_x(axes, m, text):
    axes.set_xscale("log")
    ticks = sorted({p["x"] for p in m["planned"] + m["points"]})
    # The numbers of closer ticks would overlap.
    kept = [t for i, t in enumerate(ticks) if i == 0 or t / ticks[i - 1] > 1.3]
    kept = kept if len(kept) > 1 else ticks
    axes.set_xticks(kept, [text(t) for t in kept], rotation=30 if len(kept) > 8 else 0)
    axes.minorticks_off()


def draw_bands(m, axes):
    """Draws the CPU usage between the 10 % and the 90 % quantile of the 50 ms intervals."""
    for i, points in enumerate(series_of(m).values()):
        cpu = [(x, p.get("sender_cpu") or {}) for x, (_, p) in points]
        spread = [(x, *(c[q] if is_number(c.get(q)) else math.nan for q in ("p10", "p90")))
                  for x, c in cpu]
        axes.fill_between(*zip(*spread), color=COLOURS[i % 8], alpha=0.18, linewidth=0, zorder=1.5)


def is_wide(values):
    """Whether the axis of these values is logarithmic. It cannot show 0."""
    known = [v for v in values if not math.isnan(v)]
    return bool(known) and min(known) > 0 and max(known) > 1000 * min(known)


def draw_curves(m, axes):
    series = series_of(m)
    if m["y"].startswith("sender_cpu"):
        draw_bands(m, axes)
    draw_points(axes, series, list(series), 6)
    for i, mark in enumerate(m["marks"]):
        axes.plot(mark["x"], scale(m, mark["y"]), color="#555555", marker="x" if i % 2 else "+",
                  markersize=13, markeredgewidth=2.5, linestyle="none", zorder=5)
    if m["log_x"]:
        set_log_x(axes, m, lambda x: f"{x:,.0f}")
    if is_wide([v for points in series.values() for _, (v, _) in points] + [scale(m, mark["y"]) for mark in m["marks"]]):
        axes.set_yscale("log")
    else:
        # From 0, with room above: the margin is a part of the range of the points, and may be nothing.
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * max((v for points in series.values() for _, (v, _) in points), default=1)))
    axes.set_xlabel(m["x_label"])
    axes.set_ylabel(m["y_label"])
    axes.legend(handles=legend_of(m, list(series), 7), **LEGEND_BESIDE)


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
    """Draws one small plot per panel, all on the same axes. A panel's name is "ROW, COLUMN"."""
    named = [tuple(([""] + name.split(", "))[-2:]) for name in m["panels"]]
    made = {place: name for place, name in zip(named, m["panels"])
            if any(p["panel"] == name for p in m["planned"] + m["points"])}
    rows, columns = ([word for word in dict.fromkeys(place[k] for place in named)
                      if any(place[k] == word for place in made)] for k in (0, 1))
    names = list(series_of(m))
    size = (max(2.5 * len(columns), 9), 1.4 + (2.2 if len(rows) > 1 else 3.2) * len(rows))
    figure, grid = plt.subplots(len(rows), len(columns), figsize=size, sharex=True, sharey=True,
                                squeeze=False, layout="constrained")
    for (row, column), axes in zip(((row, column) for row in rows for column in columns), grid.flat):
        if row == rows[0]:
            axes.set_title(column, fontsize=12)
        if column == columns[-1]:
            axes.annotate(row, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center", ha="left",
                          fontsize=12)
        if (row, column) not in made:
            axes.set_axis_off()
            continue
        axes.tick_params(labelleft=not any((row, left) in made for left in columns[:columns.index(column)]))
        draw_points(axes, series_of(m, made[row, column]), names, 5)
        if m["log_x"]:
            set_log_x(axes, m, lambda x: f"{x / (1024 if 'bytes' in m['x_label'] else 1):g}")
        tidy(axes)
    grid[0][0].set_ylim(bottom=0)
    figure.suptitle(f"{m['id']}: {m['title']}", fontsize=13, x=0.01, ha="left")
    figure.supxlabel(m["x_label"].replace("bytes", "KiB"), fontsize=12)
    figure.supylabel(m["y_label"], fontsize=12)
    handles = legend_of(m, names, 8)
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=min(len(handles), 4),
                  fontsize=11, frameon=False)
    return figure


def per_packet(published):
    """Returns the number for each of many packets in a published count, such as 4 in "1+4n"."""
    match = re.search(r"(\d*)n", published)
    return int(match[1] or 1) if match else 0


def draw_paths(m):
    """Draws the data paths as bars, one group per row, beside the system calls that were counted and those of the
    publication, in the published order."""
    rows = sorted({p["x"] for p in m["planned"] + m["points"]})
    about = {p["x"]: p for p in m["points"] if p.get("published")}
    panels = [name for name in m["panels"] if any(p["panel"] == name for p in m["planned"] + m["points"])]
    names = list(series_of(m))
    refused = {(p["panel"], p["series"], p["x"]) for p in m["points"] if p.get("refused")}
    figure, grid = plt.subplots(1, len(panels) + 1, figsize=(4 * (len(panels) + 1) + 2, 0.5 * len(rows) + 1.6), sharey=True,
                                squeeze=False, layout="constrained")
    height = 0.8 / max(len(names), 1)
    for panel, axes in zip(panels, grid[0]):
        for i, (name, points) in enumerate(series_of(m, panel).items()):
            at = [rows.index(x) + (i - (len(names) - 1) / 2) * height for x, _ in points]
            values = [v for _, (v, _) in points]
            axes.barh(at, [0 if math.isnan(v) else v for v in values], height, color=COLOURS[i % 8])
            for place, (x, (v, _)) in zip(at, points):
                if math.isnan(v):
                    text = " refused" if (panel, name, x) in refused else " not measured"
                    axes.text(0, place, text, va="center", fontsize=8)
        axes.set_title(panel, fontsize=12)
        axes.set_xlabel(m["y_label"])
        axes.set_xlim(left=0)
        tidy(axes)
    axes = grid[0][-1]
    for i, name in enumerate(names):
        points = series_of(m, panels[0]).get(name, []) if panels else []
        counted = [(p["calls_per_packet"], rows.index(x)) for x, (_, p) in points if is_number(p.get("calls_per_packet"))]
        axes.plot([n for n, _ in counted], [at for _, at in counted], color=COLOURS[i % 8], marker=MARKS[i % 8],
                  linestyle="none", markersize=7, label=name)
    axes.plot([per_packet(about[x]["published"]["calls"]) for x in rows if x in about], [rows.index(x) for x in rows if x in about],
              color="#555555", marker="|", markersize=17, markeredgewidth=2.5, linestyle="none", label="published")
    axes.set_title("system calls per packet", fontsize=12)
    axes.set_xlabel("calls")
    tidy(axes)
    axes.legend(**LEGEND_BESIDE)
    grid[0][0].set_yticks(range(len(rows)), [f"E{x:g}  {about[x]['title'].split(',')[0].split(' (')[0]}\n"
                                             f"published: {about[x]['published']['copies']} copies"
                                             if x in about else f"E{x:g}" for x in rows], fontsize=9)
    grid[0][0].invert_yaxis()
    figure.suptitle(f"{m['id']}: {m['title']}", fontsize=13, x=0.01, ha="left")
    return figure


def draw(m):
    if m["id"] == "E14":
        return draw_paths(m)
    return draw_grid(m) if m["panels"] else draw_single(m)


def circumstances(description):
    """Returns the machines, the dates and the number of points."""
    def machine(p):
        if p.get("simulated"):
            return f"simulated by evb {p['version']} with seed {p['seed']}"
        return ((f"nodes of {p['testbed']}, coordinated by " if p.get("testbed") else "")
                + f"{p['processor']}, {p['processors']} processors, Linux {p['kernel']}, evb {p['version']}")

    points = [p for m in description["measurements"] for p in m["points"]]
    days = sorted({p["time"][:10] for p in points if not p.get("simulated")})
    dates = " to ".join(sorted({days[0], days[-1]})) if days else ""
    return ". ".join(filter(None, ("; ".join(sorted({machine(p) for p in points})), dates, f"{len(points)} points."))).replace("..", ".")


def cell(text):
    return text.replace("|", "\\|")


def summary(description, pictures):
    """Returns the report in Markdown, which links to the plots."""
    lines = [circumstances(description), "",
             "| id | measurement | published | verdict | result |", "|---|---|---|---|---|"]
    for m in description["measurements"]:
        texts = (m["id"], m["title"], m["published"], m["verdict"], m["why"])
        lines.append("| " + " | ".join(cell(text) for text in texts) + " |")
    apart = [f"- {m['id']}: {plot_simulated.summary(m)}" for m in description["measurements"] if plot_simulated.summary(m)]
    lines += ["", "Lab and simulator:", "", *apart] if apart else []
    for m in description["measurements"]:
        lines += ["", markdown(m["table"])] if m["table"] else []
        if m["id"] in pictures:
            lines += ["", f"![{m['id']}: {m['title']}]({m['id']}.png)"]
        if f"{m['id']}-streams" in pictures:
            lines += ["", f"![{m['id']}: streams]({m['id']}-streams.png)"]
    return "\n".join(lines) + "\n"


def number_text(value):
    """Formats a rounded number. round() returns an integer, so that a zero has no sign."""
    return f"{round(value):,}"


def loss_text(known, n):
    """Returns the largest of the known counts of n points, and at how many the count is unknown."""
    if not known:
        return "unknown"
    return number_text(max(known)) + (f", unknown at {n - len(known)} of {n}" if len(known) < n else "")


def loss_table(m):
    """Returns a table of the largest loss in each series, by drop location."""
    columns = [key for key in LOSSES if any(key in p for p in m["points"])]
    if not any(key in columns for key in PACKETS):
        return ""
    rows = []
    for name in dict.fromkeys(p["series"] for p in m["points"]):
        points = [p for p in m["points"] if p["series"] == name and not p.get("disturbed")]
        known = {key: [p[key] for p in points if is_number(p.get(key))] for key in columns}
        cells = "".join(f"<td>{loss_text(known[key], len(points))}</td>" for key in columns)
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    head = "".join(f"<th>{LOSSES[key]}</th>" for key in columns)
    return ("<p>Losses by drop location, at the worst point of each series:</p>"
            f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>")


def own_table(m):
    """Returns the table of a measurement that declares one."""
    if not m["table"]:
        return ""
    head, *rows = ("".join(f"<td>{html.escape(text)}</td>" for text in row) for row in m["table"])
    return f"<table><tr>{head.replace('td>', 'th>')}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def atlas_table(m):
    """Returns the table of the incast atlas: what each transport makes of each port and number of sources."""
    if m["id"] != "C10":
        return ""
    rows = []
    for panel in m["panels"]:
        for name, points in series_of(m, panel).items():
            for x, (share, p) in points:
                if not math.isnan(share):
                    latency = p.get("latency_p99_us")
                    rows.append((panel, f"{x:g}", name, f"{p['whole_bytes_per_second'] / 1e6:.1f}", f"{share:.1f}",
                                 number_text(lost_packets(p)), number_text(lost_events(p)),
                                 number_text(latency) if is_number(latency) else "unknown"))
    head = ("port", "sources", "transport", "MB/s", "% of the load", "lost packets", "incomplete events",
            "latency, 99 %, us")
    return ("<details><summary>all points</summary><table>"
            f"<tr>{''.join(f'<th>{text}</th>' for text in head)}</tr>"
            + "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
            + "</table></details>")


def path_table(m):
    """Returns the table of a data path: what each form takes, and what it does."""
    points = [p for p in m["points"] if p.get("copies_reason") and not p.get("disturbed")]
    if not points:
        return ""

    def known(value, digits, factor=1):
        return f"{value * factor:,.{digits}f}" if is_number(value) else "unknown"

    rows = []
    for p in points:
        cells = ((p["refused"], *[""] * 6) if p.get("refused") else
                 (known(p.get("mbyte_per_s"), 0), known(p.get("user_seconds_per_gb"), 3),
                  known(p.get("system_seconds_per_gb"), 3), known(p.get("calls_per_packet"), 3), known(p.get("copies"), 0),
                  known(p.get("zero_copy_copied_share"), 0, 100), known(p.get("received_share"), 0, 100)))
        rows.append((p["row"], p["form"], p["wire"], p["reads"], known(p.get("x"), 0), *cells))
    head = ("row", "form", "wire", "read from", m["x_label"], "MB/s", "user s/GB", "system s/GB", "calls per packet",
            "copies (stated)", "zero-copy sends that the kernel copied, %", "received, %")
    return ("<details><summary>all points</summary><table>"
            f"<tr>{''.join(f'<th>{html.escape(text)}</th>' for text in head)}</tr>"
            + "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
            + "</table></details>")


def limits_text(m):
    """Says what limited the points of event building, "" for others; names those that the processors limited."""
    by_limit = {}
    for p in m["points"]:
        if "limited_by" in p and not p.get("disturbed"):
            by_limit.setdefault(p["limited_by"] or "unknown", []).append(p)
    if not by_limit:
        return ""
    parts = [f"{limit}: {len(points)}" for limit, points in sorted(by_limit.items(), key=lambda each: -len(each[1]))]
    named = [f"{p['series']} at {p['x']:g}{' (' + p['panel'] + ')' if p.get('panel') else ''}" for p in by_limit.get("the processors", [])]
    folded = (f"<details><summary>limited by the processors, so not by the network</summary><p>{html.escape('; '.join(named))}</p></details>"
              if named else "")
    return f"<p>Points by what limited them: {html.escape('; '.join(parts))}.</p>{folded}"


def disturbance_table(m):
    """Returns a table of what else the machine did during the points, or "" for results without it."""
    newest = {}
    for p in m["points"]:
        place = (p["series"], p["x"], p.get("panel"))
        if not p.get("disturbed") or newest.get(place, p).get("disturbed"):
            newest[place] = p
    points = [p for p in newest.values() if any(is_number(p.get(key)) for key in DISTURBANCES)]
    if not points:
        return ""
    rows = []
    for key, (text, factor, unit) in DISTURBANCES.items():
        known = sorted(p[key] * factor for p in points if is_number(p.get(key)))
        cells = [f"{known[len(known) // 2]:.1f} {unit}", f"{known[-1]:.1f} {unit}"] if known else ["unknown"] * 2
        rows.append(f"<tr><td>{text}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    repeated = sum(1 for p in points if p.get("repeats"))
    accepted = sum(1 for p in points if p.get("accepted"))
    disturbed = [f"<li>{html.escape(p['series'])} at {p['x']:g}"
                 f"{html.escape(' (' + p['panel'] + ')' if p.get('panel') else '')}: "
                 f"{html.escape(p['disturbed'])}</li>" for p in points if p.get("disturbed")]
    return (f"<details><summary>validity: {len(points)} points, repeated: {repeated}, disturbed and left out: "
            f"{len(disturbed)}{f', disturbed but accepted: {accepted}' if accepted else ''}</summary>"
            f"<table><tr><th>beside the points</th><th>median</th><th>most</th></tr>{''.join(rows)}</table>"
            f"<ul>{''.join(disturbed)}</ul></details>")


STYLE = """
body{font:15px/1.4 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;font-size:13px}
td,th{border:1px solid #ccc;padding:4px 7px;vertical-align:top;text-align:left}
img{max-width:100%}
pre{white-space:pre-wrap;font-size:12px}
"""


HEAD = "<table><tr><th>id</th><th>measurement</th><th>published</th><th>verdict</th><th>result</th></tr>"


def results_table(description, rows):
    """Returns the number of each verdict and the table of the results; what was not measured is folded."""
    measured = [m for m in description["measurements"] if m["points"]]
    missing = [m for m in description["measurements"] if not m["points"]]
    counts = [f"{n} {verdict}" for verdict in VERDICT_COLOURS if (n := sum(m["verdict"] == verdict for m in measured))]
    folded = (f"<details><summary>{len(missing)} not measured: {html.escape(', '.join(m['id'] for m in missing))}</summary>"
              f"{HEAD}{''.join(rows[m['id']] for m in missing)}</table></details>" if missing else "")
    return (f"<p><b>{len(measured)} measured{': ' if counts else ''}{', '.join(counts)}</b></p>"
            + (f"{HEAD}{''.join(rows[m['id']] for m in measured)}</table>" if measured else "") + folded)


def published_sentence(published):
    text = f"N{published[1:]}" if published.startswith("not published") else f"Published: {published}"
    return text if text.endswith("?") else f"{text}."


def page(description, pictures):
    rows, parts = {}, []
    for m in description["measurements"]:
        colour = VERDICT_COLOURS[m["verdict"]]
        link = f"<a href='#{m['id']}'>{m['id']}</a>" if m["id"] in pictures else m["id"]
        rows[m["id"]] = (f"<tr><td>{link}</td><td>{html.escape(m['title'])}</td>"
                         f"<td>{html.escape(m['published'])}</td>"
                         f"<td style='color:{colour}'><b>{m['verdict']}</b></td>"
                         f"<td>{html.escape(m['why'])}</td></tr>")
        if m["id"] in pictures:
            settings = sorted({p["settings"] for p in m["points"]})
            streams = pictures.get(f"{m['id']}-streams")
            details = f"<img alt='{m['id']}: streams' src='data:image/png;base64,{streams}'>" if streams else ""
            parts.append(f"<h2 id='{m['id']}'>{m['id']}: {html.escape(m['title'])}</h2>"
                         f"<p>{html.escape(published_sentence(m['published']))}<br>"
                         f"Result: <b style='color:{colour}'>{m['verdict']}</b>: {html.escape(m['why'])}.</p>"
                         f"<img alt='{m['id']}' src='data:image/png;base64,{pictures[m['id']]}'>"
                         f"{own_table(m)}{limits_text(m)}{plot_simulated.table(m)}{loss_table(m)}{atlas_table(m)}{path_table(m)}{details}{stream_table(m)}{disturbance_table(m)}<details><summary>repeat with: evb lab run {m['id']}</summary>"
                         f"<pre>{html.escape(chr(10).join(settings))}</pre></details>")
    return ("<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>evb lab</title>"
            f"<style>{STYLE}</style>"
            f"<h1>Published measurements, repeated</h1>{results_table(description, rows)}"
            f"<p>{html.escape(circumstances(description))}</p>" + "".join(parts) + "</html>\n")


def lay_out(figure):
    """Lays a plot out, once for all files. Returns the area that is not empty, for savefig()."""
    if not hasattr(figure, "set_layout_engine"):  # before matplotlib 3.6
        return "tight"
    figure.set_dpi(DPI)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    return figure.get_tightbbox().padded(PAD_INCHES)


def save(figure, folder, name):
    """Writes a plot as PNG and SVG. Returns the PNG for the page."""
    drawn, area = {}, lay_out(figure)
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=DPI, bbox_inches=area)
        drawn[kind] = buffer.getvalue()
        with open(os.path.join(folder, f"{name}.{kind}"), "wb") as f:
            f.write(drawn[kind])
    plt.close(figure)
    return base64.b64encode(drawn["png"]).decode()


def write(description, folder):
    """Writes FOLDER/report.html with all plots inside, FOLDER/report.md with links to them, and each plot as PNG and SVG.
    Returns the path of the page, and the number of measurements in it."""
    os.makedirs(folder, exist_ok=True)
    pictures = {}
    for m in description["measurements"]:
        if not m["points"]:
            continue
        plot_simulated.split(m)
        pictures[m["id"]] = save(draw(m), folder, m["id"])
        if has_streams(m):
            pictures[f"{m['id']}-streams"] = save(draw_streams(m, plt), folder, f"{m['id']}-streams")
    path = os.path.join(folder, "report.html")
    for name, text in ((path, page(description, pictures)), (os.path.join(folder, "report.md"), summary(description, pictures))):
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
    return path, sum(1 for name in pictures if "-" not in name)
