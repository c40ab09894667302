"""Run the tests of one module of CPython's own suite, and write a line for each to a file.

unittests.py MODULE PATTERN RESOURCES OUTPUT: the tests whose id the regular expression finds. Lines of OUTPUT are
"start ID", "pass ID", "skip ID" and "fail ID", so that the test of a run that hangs is known. Tests that have
a line already are not run again.
"""
import os
import re
import sys
import unittest

from test import support

class Result(unittest.TextTestResult):
    """Result writes what came of each test. A test with subtests that fail has failed once."""

    def startTest(self, test):
        self.verdict = "pass"
        out.write(f"start {test.id()}\n")
        super().startTest(test)

    def stopTest(self, test):
        out.write(f"{self.verdict} {test.id()}\n")
        super().stopTest(test)

    def addSkip(self, test, reason):
        if self.verdict == "pass":
            self.verdict = "skip"
        super().addSkip(test, reason)

    def failed(self, test):
        self.verdict = "fail"
        if not isinstance(test, unittest.TestCase):  # a fixture of a class or module
            out.write(f"fail {test.id()}\n")

    def addError(self, test, err):
        self.failed(test)
        super().addError(test, err)

    def addFailure(self, test, err):
        self.failed(test)
        super().addFailure(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.verdict = "fail"
        super().addSubTest(test, subtest, err)

    def addUnexpectedSuccess(self, test):
        self.verdict = "fail"
        super().addUnexpectedSuccess(test)


def cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def wanted(test):
    return test.id() not in done and re.search(pattern, test.id())


if __name__ == "__main__":  # multiprocessing imports this file again
    module, pattern, resources, output = sys.argv[1:]
    support.use_resources = resources.split()  # as -u of regrtest
    done = set()
    if os.path.exists(output):
        with open(output) as f:
            done = {line.split(None, 1)[1].strip() for line in f}
    out = open(output, "a", buffering=1)
    tests = unittest.TestSuite(t for t in cases(unittest.defaultTestLoader.loadTestsFromName(module)) if wanted(t))
    unittest.TextTestRunner(resultclass=Result, verbosity=0).run(tests)
    out.write("end of\n")
    os._exit(0)  # threads that a failed test has left do not matter
