# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of all folders: what their checks found, their folders, what they skipped."""
import os
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))
import evidence
from evidence import running
from evidence.running import Test

Test.under_pytest = True


def pytest_ignore_collect(collection_path):
    """Files without tests are makers of data, tools and what tests share: they are not imported."""
    if collection_path.suffix == ".py":
        return None if re.search(r"^def test_", collection_path.read_text(), re.M) else True


def pytest_configure():
    os.environ.setdefault("QK_PYTHON", sys.executable)  # which --run-with and --verify ask
    built = Path(os.environ.get("QK_COMMAND", evidence.ROOT / "build" / "release" / "qk")).parent / "python" / "package"
    if find_spec("qk") is None and built.is_dir():
        sys.path.append(str(built))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(built)]))  # of what tests start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    running.test = Test()
    try:
        return (yield)
    finally:
        if running.test.place:
            running.test.place.cleanup()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    wrong, result = running.test.wrong, None
    try:
        result = yield
    except pytest.skip.Exception:  # hides nothing
        if not wrong:
            raise
    except BaseException:
        print("\n".join(wrong))
        raise
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if reason.startswith("skipped: "):
            Test.skipped = True
            terminalreporter.write_line(reason)
    if Test.all_checks:
        terminalreporter.write_line(f"{Test.all_checks} checks")


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def folder():
    return evidence.folder()


@pytest.fixture(scope="module")
def shared():
    """A folder for all tests of a file."""
    with tempfile.TemporaryDirectory(prefix="qk_evidence_") as place:
        yield Path(place)
