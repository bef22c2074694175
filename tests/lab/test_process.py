#!/usr/bin/env python3
"""Tests that the lab reads all output of a program, also while the program writes it."""
import unittest

import cases
from evb.lab.process import Program

LINES = 20000


class Output(unittest.TestCase):
    def test_a_look_changes_nothing(self):
        script = f"i=0; while [ $i -lt {LINES} ]; do echo $i; echo $i >&2; i=$((i + 1)); done"
        with Program(["sh", "-c", script]) as program:
            while not program.has_ended:
                program.output()
                program.complaint()
            self.assertEqual(program.output().splitlines(), [str(i) for i in range(LINES)])
            self.assertEqual(program.complaint(), "0")


if __name__ == "__main__":
    cases.main()
