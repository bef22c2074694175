"""What a point or a measurement needs: nodes of a testbed by role, and features of their machines."""


def missing(point):
    """What the machine, the testbed or the simulator lacks to make the point ("needs ..."), or None."""
    raise NotImplementedError
