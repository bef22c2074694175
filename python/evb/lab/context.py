"""What the runs of all points share."""
import collections.abc
import dataclasses


class PointFailed(Exception):
    """The point has no figures; the text says why."""


class PointLacks(PointFailed):
    """A privilege, a program or a kernel feature is missing to make the point."""


@dataclasses.dataclass
class Context:
    """What the runs of all points share."""
    evb: str                                     # path of the program
    raised: bool = True                          # whether the processes of a point may run at a raised priority
    stopped: collections.abc.Callable[[], bool] = lambda: False  # after a signal: end soon, figures do not matter
    kept: dict = dataclasses.field(default_factory=dict)  # what a kind of point keeps for the next one, by its name
