# SPDX-License-Identifier: Apache-2.0
"""Runs the built command, collects what is wrong in a test, and runs the tests of one file."""
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def command():
    """Returns the path of the built command."""
    path = Path(os.environ.get("QK_COMMAND", ROOT / "build" / "release" / "qk")).resolve()
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: build it, or say with QK_COMMAND where it is")
    return str(path)


def build():
    """Returns the folder of the build that the command, or a program of its tests, is of."""
    folder = Path(command()).parent
    return folder.parent if folder.name == "tests" else folder


def program(name):
    """Returns the path of a program of the tests: the argument, or what the build has."""
    return command() if Path(command()).stem == name else str(build() / "tests" / name)


# ---- what a test found. tests/conftest.py begins and ends each test.

class Test:
    under_pytest, skipped, all_checks = False, False, 0

    def __init__(self):
        self.wrong, self.place = [], None


test = Test()


def check(holds, what):
    """Counts a check. What does not hold is told at the end of the test, with all else that does not."""
    Test.all_checks += 1
    if not holds:
        test.wrong.append(f"WRONG {what}")
    return bool(holds)


def equal(found, expected, what):
    """Checks that two values are equal."""
    return check(found == expected, f"{what}: expected {expected!r}, found {found!r}")


def folder():
    """Returns a folder that is there until the test ends."""
    test.place = test.place or tempfile.TemporaryDirectory(prefix="qk_evidence_")
    return Path(test.place.name)


def at(name):
    """Returns the path of a file in the test's folder, as text."""
    return str(folder() / name)


def skip(why):
    """Ends a test, or the file at whose top this stands, as skipped; tests/may_be_skipped.txt lists what may be."""
    if not Test.under_pytest:
        print(f"skipped: {why}")
        sys.exit(0)
    import pytest
    pytest.skip(f"skipped: {why}", allow_module_level=True)


def needs(*packages):
    """Skips what follows if a package is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as missing:
            skip(f"no {missing.name} here (./dev test makes build/venv)")


# ---- the command

def run(*words, **how):
    """Runs the command and returns the process, whatever its status; `how` goes to subprocess.run."""
    return subprocess.run([command(), *map(str, words)], **{"capture_output": True, "text": True, **how})


def qk(*words, status=0, **how):
    """Runs the command, which has to end with the status, or one of several."""
    __tracebackhide__ = True  # pytest shows the line that calls
    done = run(*words, **how)
    Test.all_checks += 1
    if done.returncode not in ((status,) if isinstance(status, int) else status):
        raise AssertionError(f"WRONG qk {' '.join(map(str, words))}: expected status {status}, found {done.returncode}\n{done.stdout or ''}{done.stderr or ''}")
    return done


def ok(*words, **how):
    """Runs the command and returns the process. Another status than 0 is told with all else that is wrong."""
    done = run(*words, **how)
    check(done.returncode == 0, f"qk {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
    return done


def qk_json(*words, **how):
    """Runs the command with --json and returns its object."""
    return json.loads(qk(*words, "--json", **how).stdout)


def saved(name, **arrays):
    """Writes arrays to an .npz in the test's folder and returns its path."""
    import numpy as np
    np.savez(at(name), **arrays)
    return at(name)


def evaluated(model, data, *more, output=None):
    """Returns what `qk evaluate` writes: the output of that name, those of a list of names, or the only one."""
    import numpy as np
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        qk("evaluate", model, "--inputs", data, "--output-dir", place, *more)
        if isinstance(output, list):
            return [np.load(Path(place) / f"{name}.npy") for name in output]
        (file,) = [Path(place) / f"{output}.npy"] if output else Path(place).glob("*.npy")
        return np.load(file)


# ---- one file

def start():
    """Takes the command from the front of the arguments, where it is given."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        os.environ["QK_COMMAND"] = str(Path(sys.argv.pop(1)).resolve())


def main(*own):
    """Runs the tests of the file that was started, by pytest: [QK] [options of pytest]. `own` are options that the file itself looks for in
    sys.argv, "--name=" one that has a value."""
    needs("pytest")
    import pytest
    start()
    words = sys.argv[1:]
    for name in own:
        while name.rstrip("=") in words:
            at_word = words.index(name.rstrip("="))
            del words[at_word:at_word + 1 + name.endswith("=")]
    status = pytest.main([sys.argv[0], "-q", "--tb=short", "--disable-warnings", "-p", "no:cacheprovider", *words])
    sys.exit(0 if status == pytest.ExitCode.NO_TESTS_COLLECTED and Test.skipped else int(status))


def option(name, otherwise=None):
    """Returns the value of an option of the file's own."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise
