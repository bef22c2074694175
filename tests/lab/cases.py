"""Runs the cases of a test file of unittest, and prints a line for each."""
import sys
import time
import unittest


class Lines(unittest.TestResult):
    """"ok 1 - name (0.1 s)", as tests in C print it."""

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def _line(self, status, test):
        name = test.id().rpartition(".")[2].removeprefix("test_")
        print(f"{status} {self.testsRun} - {name} ({time.monotonic() - self.begin:.1f} s)", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._line("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"ok {self.testsRun} - {test.id().rpartition('.')[2].removeprefix('test_')} # SKIP {reason}", flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1])
        self._line("not ok", test)

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1])
        self._line("not ok", test)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = Lines()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
