"""The plots and the table of streams in `evb lab report`: throughput against time, losses by place, times between
packets and to process one, and the load of each processor."""
import html
import math

from .plot_style import COLOURS, LEGEND_BESIDE, is_number, series_of, tidy

# From the receiver backwards. Late packets came, but too late.
PLACES = {"socket_packets": "socket", "nic_packets": "NIC", "network_packets": "network", "source_packets": "source",
          "receiver_packets": "receiver", "late_packets": "late"}
# As in vmstat: us, sy, si, hi, wa, and what the hypervisor took; the rest is idle.
USES = {"user": "us", "system": "sy", "softirq": "si", "irq": "hi", "iowait": "wa", "steal": "stolen"}
TIMES = {"inter_packet": "time between packets, us", "processing": "processing of a packet, us"}


def has_streams(m):
    return any(p.get("throughput_mbps") is not None for p in m["points"])


def columns_of(m):
    """Returns the title and the points by series of each column: one per panel, at its first x, or one per x."""
    columns = []
    if m["panels"]:
        for panel in m["panels"]:
            series = {name: points[0][1][1] for name, points in series_of(m, panel).items() if points}
            xs = [p["x"] for p in series.values() if p]
            columns.append((f"{panel},\n{min(xs):g} us" if xs else panel, series))
    else:
        series = series_of(m)
        for x in sorted({x for points in series.values() for x, _ in points}):
            found = {name: dict(points).get(x, (None, {}))[1] for name, points in series.items()}
            columns.append((f"{x:g} {m['x_label'].rsplit(', ', 1)[-1]}", found))
    return [(title, points) for title, points in columns if any(points.values())]


def draw_throughput(axes, points):
    for i, p in enumerate(points.values()):
        values, step = p.get("throughput_mbps") or [], p.get("interval_seconds") or 1
        axes.plot([step * (k + 0.5) for k in range(len(values))], values, color=COLOURS[i % 8], marker=".", linewidth=1.5)
    axes.set_xlabel("time, s")
    axes.set_xlim(left=0)


def draw_losses(axes, points):
    for i, p in enumerate(points.values()):
        sent, bottom = p.get("packets_sent") or 0, 0
        for k, place in enumerate(PLACES):
            lost = 100 * (p.get(place) or 0) / sent if sent else 0
            axes.bar(i, lost, bottom=bottom, color=COLOURS[(k + 3) % 8], width=0.6)
            bottom += lost
        axes.annotate(f"{bottom:.2g} %" if p else "not measured", (i, bottom), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(points)), [name.replace(" ", "\n", 1) for name in points], fontsize=8)


def draw_histogram(axes, points, name):
    """Draws the share of the packets in each bin; a bin ends at its first number."""
    for i, p in enumerate(points.values()):
        bins = [(most, n) for most, n in (p.get(name) or {}).get("histogram", []) if most > 0]
        total = sum(n for _, n in bins)
        edges, shares, last = [], [], 0
        for most, n in bins:
            # A bin is at most an eighth wide; what is between bins is empty.
            if most / 1.13 > last:
                edges += [most / 1.13, most / 1.13]
                shares += [math.nan, 100 * n / total]
            edges.append(most)
            shares.append(100 * n / total)
            last = most
        axes.plot(edges, shares, color=COLOURS[i % 8], drawstyle="steps-pre", linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(TIMES[name])


def draw_load(axes, points):
    at, ticks = 0, []
    for i, (name, p) in enumerate(points.items()):
        for cpu in p.get("cpu_percent") or []:
            bottom = 0
            for k, use in enumerate(USES):
                axes.bar(at, cpu[use], bottom=bottom, color=COLOURS[k % 8], width=0.8)
                bottom += cpu[use]
            ticks.append((at, cpu["cpu"]))
            at += 1
        axes.plot([at - len(p.get("cpu_percent") or []) - 0.4, at - 0.6], [-6, -6], color=COLOURS[i % 8], linewidth=4,
                  clip_on=False)
        at += 1
    axes.set_xticks([place for place, _ in ticks], [text for _, text in ticks], fontsize=8 if len(ticks) < 13 else 6)
    axes.tick_params(axis="x", pad=11)
    axes.set_xlabel("processor, by series")
    axes.set_ylim(0, 100)


def draw_streams(m, plt):
    """Draws all about the streams of a measurement: a column per panel or x, a colour per series."""
    columns = columns_of(m)
    names = list(series_of(m))
    rows = (("on the wire, Mbit/s", draw_throughput), ("lost, %", draw_losses),
            ("packets, %", lambda axes, points: draw_histogram(axes, points, "inter_packet")),
            ("packets, %", lambda axes, points: draw_histogram(axes, points, "processing")),
            ("load, %", draw_load))
    figure, grid = plt.subplots(len(rows), len(columns), figsize=(max(3.3 * len(columns), 6) + 2, 13.5), squeeze=False,
                                sharey="row", layout="constrained")
    for (label, draw), line in zip(rows, grid):
        for (_, points), axes in zip(columns, line):
            draw(axes, points)
            tidy(axes)
        line[0].set_ylabel(label)
    # All columns share it, and most points lose nothing.
    most = max(p.get("lost_percent") or 0 for _, points in columns for p in points.values())
    grid[1][0].set_ylim(0, 1.2 * most if most else 1)
    for (title, _), axes in zip(columns, grid[0]):
        axes.set_title(title, fontsize=10)

    def patches(colours, texts):
        return [plt.Rectangle((0, 0), 1, 1, color=colour, label=text) for colour, text in zip(colours, texts)]

    grid[0][-1].legend(handles=patches(COLOURS, names), title="series", **LEGEND_BESIDE)
    grid[1][-1].legend(handles=patches(COLOURS[3:] + COLOURS, PLACES.values()), title="lost at", **LEGEND_BESIDE)
    grid[4][-1].legend(handles=patches(COLOURS, USES.values()), title="use", **LEGEND_BESIDE)
    figure.suptitle(f"{m['id']}: {m['title']}", fontsize=13, x=0.01, ha="left")
    return figure


def known(value, digits):
    return f"{value:,.{digits}f}" if is_number(value) else "unknown"


def times_text(times):
    return " / ".join(known((times or {}).get(key), 2) for key in ("mean", "sigma", "p999"))


def steady_text(p):
    steady, unsteady = (p.get(f"{key}_intervals") for key in ("steady", "unsteady"))
    return f"{steady:.0f} of {steady + unsteady:.0f}" if is_number(steady) and is_number(unsteady) else "unknown"


def stream_table(m):
    """Returns the table of all points of a measurement of streams."""
    if not has_streams(m):
        return ""
    rows = []
    for panel in m["panels"] or [None]:
        for name, points in series_of(m, panel).items():
            for x, (_, p) in points:
                if p:
                    rows.append((panel or "", name, f"{x:g}", known(p.get("wire_mbps"), 1), known(p.get("spread_mbps"), 2),
                                 known(p.get("sigma_mbps"), 2), *(known(p.get(f"{key}_mbps"), 2) for key in ("mean", "least", "most")),
                                 steady_text(p),
                                 *(known(p.get(key), 0) for key in ("packets_sent", *PLACES)),
                                 *(times_text(p.get(key)) for key in ("inter_packet", "processing")),
                                 *(known(p.get(f"{key}_cpu_percent"), 1) for key in ("input", "send", "receive", "output"))))
    head = ("panel", "series", m["x_label"], "on the wire, Mbit/s", "most less least of the intervals", "sigma of the intervals",
            "mean of the intervals", "least", "most", "intervals within 0.1 % of the mean", "sent", *(f"lost: {text}" for text in PLACES.values()),
            "between packets, us: mean / sigma / 99.9 %", "processing, us: mean / sigma / 99.9 %", "input thread, % of a processor",
            "send", "receive", "output")
    return ("<details><summary>all points</summary><table>"
            f"<tr>{''.join(f'<th>{html.escape(text)}</th>' for text in head)}</tr>"
            + "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
            + "</table></details>")
