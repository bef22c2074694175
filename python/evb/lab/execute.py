"""Runs one point of a measurement: on this machine, on the machines of a testbed, or in the simulator."""
import dataclasses

from . import run_copy, run_events, run_flows, run_paths, run_programs, run_streams, run_virtual
from .context import Context, PointFailed, PointLacks
from .measurement import Kind, Simulation

__all__ = ["Context", "PointFailed", "PointLacks", "run_point"]
RUNS = {Kind.EVENTS: run_events.run, Kind.FLOWS: run_flows.run, Kind.COPY: run_copy.run,
        Kind.PATHS: run_paths.run, Kind.STREAMS: run_streams.run}


def run_point(point, context):
    """Returns the figures of `point` (measurement.Point), as results.py writes them. An unknown figure is None.

    What the machine did meanwhile is in six of the figures, None if nobody watched: stolen_share, others_share,
    waiting_share, wait_mean_us, timer_late_p99_us, timer_late_max_us; `watched_seconds` is for how long. valid.py
    derives `disturbed` from them, and from testbed_lost_packets. Raises PointFailed.
    """
    if isinstance(point.bed, Simulation):
        return run_virtual.run(point, context)
    program = point.text("program")
    if program in run_programs.RUNS:
        return run_programs.run(point, context)
    if program:
        context = dataclasses.replace(context, evb=program)
    return RUNS[point.measurement.kind](point, context)
