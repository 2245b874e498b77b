# SPDX-License-Identifier: Apache-2.0
"""A test that is wrong says what was expected and found, ends with status 1, and is found by -k; what is missing is skipped in the words that ctest looks for."""
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import TESTS, at, equal

FILE = """
import evidence
PART
def test_right():
    evidence.check(True, "nothing")
    assert evidence.folder().is_dir()

def test_wrong():
    evidence.check(False, "the first")
    evidence.equal(3, 4, "the second")

def test_status():
    evidence.check(False, "before the end")
    evidence.qk("formats", "--json")

def test_skipped():
    evidence.check(False, "before a skip")
    evidence.skip("no reason")

if __name__ == "__main__":
    evidence.main("--own=")
"""


def started(*words, part=""):
    """Runs a file of tests alone; its command is one that ends with 1."""
    Path(at("three.py")).write_text(FILE.replace("PART", part))
    words = [shutil.which("false"), "-p", "conftest", *words]
    return subprocess.run([sys.executable, at("three.py"), *words], capture_output=True, text=True, env={"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin"})


def test_what_is_wrong_is_told():
    done = started()
    for line in ("WRONG the first", "WRONG the second: expected 4, found 3", "WRONG before the end", "WRONG qk formats --json: expected status 0, found 1", "WRONG before a skip", "3 failed, 1 passed", "6 checks"):
        assert line in done.stdout, done.stdout
    equal(done.returncode, 1, "the status of a file with something wrong")


def test_parts_and_own_options():
    for words, status, said in ((("-k", "right"), 0, "1 passed"), (("--own", "3", "-k", "wrong"), 1, "1 failed"), (("-k", "none"), 5, "4 deselected")):
        done = started(*words)
        equal((done.returncode, said in done.stdout), (status, True), f"{words}: {done.stdout}")


def test_missing_packages_are_skipped():
    for part, status in (('evidence.needs("no_such_package")\n', 0), ('def test_one(): evidence.skip("no hardware here")\n', 1)):
        done = started(part=part)
        line = "skipped: no no_such_package here (./dev test makes build/venv)" if status == 0 else "skipped: no hardware here"
        equal((done.returncode, line in done.stdout.splitlines()), (status, True), done.stdout)


if __name__ == "__main__":
    evidence.main()
