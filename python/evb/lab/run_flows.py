"""Runs a point of plain flows."""
from .context import PointFailed


def run(point, context):
    raise PointFailed("plain flows cannot be run yet")
