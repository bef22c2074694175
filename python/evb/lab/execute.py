"""Runs one point of a measurement: on this machine, on the machines of a testbed, or in the simulator."""
import collections.abc
import dataclasses


class PointFailed(Exception):
    """The point has no figures; the text says why."""


@dataclasses.dataclass
class Context:
    """What the runs of all points share."""
    evb: str                                     # path of the program
    raised: bool = True                          # whether the processes of a point may run at a raised priority
    stopped: collections.abc.Callable[[], bool] = lambda: False  # after a signal: end soon, figures do not matter
    kept: dict = dataclasses.field(default_factory=dict)  # what a kind of point keeps for the next one, by its name


def run_point(point, context):
    """Returns the figures of `point` (measurement.Point), as results.py writes them. An unknown figure is None.

    What the machine did meanwhile is in six of the figures, None if nobody watched: stolen_share, others_share,
    waiting_share, wait_mean_us, timer_late_p99_us, timer_late_max_us; `watched_seconds` is for how long. valid.py
    derives `disturbed` from them, and from testbed_lost_packets. Raises PointFailed.
    """
    raise NotImplementedError(f"evb.lab.execute.run_point: {point.measurement.kind.value} points are not executed in Python yet")
