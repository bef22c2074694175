"""Runs a memory copy point: a process copies blocks of x bytes for a fixed time."""
from .process import machine_figures, report_of


def run(point, context):
    words = [context.evb, "bench", "memcpy", "--size", f"{point.x:.0f}", "--duration", f"{point.number('seconds', 0.2):g}s", "--json"]
    [measured] = report_of(words, context, raised=context.raised)["sizes"]
    return {"mbyte_per_s": measured["mbyte_per_s"]} | machine_figures(measured)
