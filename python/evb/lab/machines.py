"""Runs a point on the machines of a testbed, by ssh."""
