#!/usr/bin/env python3
"""Overloads a switch port with event building in four ways, prints what each builds, and draws it.

    sudo scripts/demo-port.py [--evb PROGRAM] [--svg FILE] [--seconds N]

Six ROSs send to one SFI in namespaces of this machine. The port has 100 Mbit/s, which any machine can overload. Exit status 1:
this machine does not show the collapse of unshaped push, and the last line says why; 77: something is missing.
"""
import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from evb.lab import publication_c, run_events, valid  # noqa: E402
from evb.lab.context import Context, PointFailed  # noqa: E402
from evb.lab.measurement import Point, Settings  # noqa: E402
from evb.lab.plot_style import COLOURS  # noqa: E402
import need  # noqa: E402

# One event has 84 KiB, more than the port buffers; 137 such events per second fill the port.
BASE = ("ros.count=6 sfi.count=1 ros.fragment-size=14KiB trigger.rate=200Hz network.link-rate=100Mbit "
        "network.switch-buffer=64KiB sfi.output=null")
TITLE = "6 ROSs send 14 KiB each to 1 SFI, {:.0f} % of what its port of 100 Mbit/s passes; port buffer 64 KiB"
# Name, colour and settings.
WAYS = (
    ("unshaped, as in 2003", COLOURS[1], f"{publication_c.BUILDERS_OF_2003} sfi.buffer-size=256MiB ros.buffer-size=128MiB"),
    ("unshaped, with retries", COLOURS[5], ""),
    ("pull", COLOURS[2], "scenario.mode=pull"),
    ("shaped push", COLOURS[0], "qos.backend=auto"),
)
UNSHAPED, SHAPED = WAYS[0][0], WAYS[3][0]
LEGEND = ("As in 2003: no retries, and no trigger is held back. p50, p99: latency of an event; at such a load, it is "
          "time in queues.")
COLLAPSE = 0.5  # unshaped push shows the collapse if it builds at most this part of what shaped push builds
BAR = 20


def time_text(us):
    return "-" if us is None else f"{us / 1e3:.0f} ms" if us < 1e6 else f"{us / 1e6:.1f} s"


def cells(name, figures):
    """The columns of a row after its name, as text."""
    if figures is None:
        return ["not measured"]
    dropped, hz = figures["switch_packets"], figures["whole_events_per_second"]
    # A few partial events have latencies, too.
    latencies = [figures[f"latency_{p}_us"] if round(hz) > 0 else None for p in ("p50", "p99")]
    return [f"{hz:.0f}", f"{100 * figures['port_share']:.0f} %", "unknown" if dropped is None else f"{dropped:,}",
            *map(time_text, latencies)]


def bar(share, full="█", empty="·"):
    n = min(round(BAR * share), BAR)
    return full * n + empty * (BAR - n)


def header():
    return f"  {'':22} {'events/s':>8}  {'':{BAR}} {'of port':>7}  {'dropped':>8}  {'p50':>7}  {'p99':>7}"


def row(name, figures, plain=False):
    text = cells(name, figures)
    if figures is None:
        return f"  {name:22} {text[0]}"
    drawn = bar(figures["port_share"], "#", ".") if plain else bar(figures["port_share"])
    return f"  {name:22} {text[0]:>8}  {drawn} {text[1]:>7}  {text[2]:>8}  {text[3]:>7}  {text[4]:>7}"


def judge(found):
    """Whether the collapse shows, and the last line. `found`: the figures of each way, None if it was not measured."""
    missing = [name for name in (UNSHAPED, SHAPED) if found.get(name) is None]
    if missing:
        return False, f"This machine could not measure {' and '.join(missing)}, so it cannot show what shaping does."
    unshaped, shaped = found[UNSHAPED], found[SHAPED]
    unshaped_hz, shaped_hz = (figures["whole_events_per_second"] for figures in (unshaped, shaped))
    if shaped_hz > 0 and unshaped_hz <= COLLAPSE * shaped_hz:
        drops = shaped["switch_packets"]
        packets = "" if drops is None else ", and drops no packet" if drops == 0 else f", and drops {drops:,} packets"
        return True, f"Shaped push builds {shaped_hz:.0f} events/s{packets}; unshaped as in 2003, push builds {unshaped_hz:.0f}."
    why = next(filter(None, map(valid.reason, (shaped, unshaped))), None)
    if not why:
        why = ("the port dropped nothing, so the ROSs did not overload it" if unshaped["switch_packets"] == 0 else
               f"the ROSs offered {100 * unshaped['offered_share']:.0f} % of what the port passes, and nothing else disturbed the run")
    return False, (f"This machine cannot show the collapse: unshaped push built {unshaped_hz:.0f} events/s, shaped push "
                   f"{shaped_hz:.0f}. Reason: {why}.")


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def svg(found, title, conclusion):
    """The same rows as a picture."""
    left, width, top, step = 190, 330, 92, 44
    height = top + step * len(WAYS) + 66
    columns = [(left + 8 + width, "start", "of port"), (left + width + 150, "end", "dropped"), (left + width + 215, "end", "p50"),
               (left + width + 280, "end", "p99")]

    def text(x, y, words, anchor="start", **style):
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222222"{more}>{escape(words)}</text>'

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="840" height="{height}" viewBox="0 0 840 {height}" '
             'font-family="DejaVu Sans, Verdana, Arial, sans-serif" font-size="13">', f"<title>{escape(title)}</title>",
             f"<desc>{escape(conclusion)}</desc>", f'<rect width="840" height="{height}" fill="#ffffff"/>',
             text(20, 28, conclusion, font_size="15", font_weight="bold"), text(20, 50, title),
             text(left + 4, top - 12, "events/s", font_size="11")]
    lines += [text(x, top - 12, words, anchor, font_size="11") for x, anchor, words in columns]
    for i, (name, colour, _) in enumerate(WAYS):
        y, figures = top + step * i, found.get(name)
        lines.append(text(left - 10, y + 19, name, "end"))
        lines.append(f'<rect x="{left}" y="{y}" width="{width}" height="28" fill="#eeeeee"/>')
        words = cells(name, figures)
        if figures is None:
            lines.append(text(left + 8, y + 19, words[0]))
            continue
        drawn = width * min(figures["port_share"], 1)
        lines.append(f'<rect x="{left}" y="{y}" width="{drawn:.1f}" height="28" fill="{colour}"/>')
        lines.append(text(left + drawn - 8 if drawn > 60 else left + drawn + 8, y + 19, words[0], "end" if drawn > 60 else "start",
                          font_weight="bold").replace("#222222", "#ffffff" if drawn > 60 else "#222222"))
        lines += [text(x, y + 19, word, anchor) for (x, anchor, _), word in zip(columns, words[1:])]
    lines += [text(20, height - 34, LEGEND, font_size="11"),
              text(20, height - 16, "Made by: sudo scripts/demo-port.py --svg FILE", font_size="11"), "</svg>"]
    return "\n".join(lines) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--evb", default=str(ROOT / "build/evb"), metavar="PROGRAM")
    options.add_argument("--svg", metavar="FILE", help="also draw the rows as a picture")
    options.add_argument("--seconds", type=float, default=4, metavar="N", help="duration of each row (default: 4)")
    o = options.parse_args()
    need.check((), o.evb)
    context, found = Context(o.evb), {}
    plain = "utf" not in (sys.stdout.encoding or "").lower()
    title = TITLE.format(100 * 200 * 6 * 14 * 1024 / run_events.event_figures.payload_limit(100e6, 1500, 14 * 1024))
    print(f"{title}:\n{header()}", flush=True)
    for name, _, settings in WAYS:
        point = Point(None, name, 0, Settings(f"{BASE} {settings} scenario.duration={o.seconds:g}s"))
        try:
            found[name] = run_events.run(point, context)
            valid.describe(found[name], context.raised)
        except PointFailed as error:
            print(f"demo-port.py: {name}: {error}", file=sys.stderr)
            found[name] = None
        print(row(name, found[name], plain), flush=True)
    shown, conclusion = judge(found)
    print(f"{conclusion}\n{LEGEND}")
    if o.svg:
        pathlib.Path(o.svg).write_text(svg(found, title, conclusion), encoding="utf-8")
    return 0 if shown else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
