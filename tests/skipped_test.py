#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what the tests of a run skipped, and compares it with tests/may_be_skipped.txt: exit status 1 if something else was skipped.

    python3 tests/skipped_test.py build/release      # after ctest, or as the last of its tests
"""
import re
import sys
from pathlib import Path

LIST = Path(__file__).with_name("may_be_skipped.txt")


def allowed():
    """Returns [(regular expression, reason)]."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return [(re.compile(pattern), reason) for pattern, reason in (line.split(" | ") for line in lines)]


def skipped(log):
    """Returns the number of tests in a log of ctest, and (test, what it skipped), each once."""
    found, test, tests = {}, "", 0
    for line in log.splitlines():
        if name := re.fullmatch(r"\d+/\d+ Testing: (\S+)", line):
            test, tests = name[1], tests + 1
        elif what := re.match(r"(?:-- |.*MESSAGE: )?\s*skipped: (.*)", line):
            found[test, what[1].strip()] = None
    return tests, list(found)


def main():
    folder = Path(sys.argv[1]) / "Testing" / "Temporary"
    logs = [f for f in (folder / "LastTest.log.tmp", folder / "LastTest.log") if f.exists()]  # the first while ctest runs
    if not logs:
        print(f"no log of ctest in {folder}")
        return 1
    tests, found = skipped(logs[0].read_text(errors="replace"))
    patterns, wrong = allowed(), 0
    for test, what in found:
        reason = next((r for p, r in patterns if p.fullmatch(what)), None)
        wrong += reason is None
        print(f"{test}: {what}" + (f" ({reason})" if reason else "  <- not in tests/may_be_skipped.txt"))
    print(f"{tests} tests; {len(found)} skipped something, of it {wrong} that may not be skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
