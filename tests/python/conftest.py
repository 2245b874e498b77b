# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: the shipped network, its data, and the command to compare with."""

import json
from importlib.util import find_spec

import evidence
import numpy as np
import pytest
from evidence import ROOT, of_many_magnitudes as values, same

if find_spec("qk") is None:
    collect_ignore_glob = ["test_*.py"]  # the package is not built
DIGITS = ROOT / "examples" / "digits"


def pytest_configure(config):
    if find_spec("qk"):
        config.addinivalue_line("filterwarnings", "ignore::qk._run.Remark")


@pytest.fixture(scope="session")
def command():
    """Runs the command that was built (QK_COMMAND), and returns its JSON or its text."""
    try:
        evidence.command()
    except FileNotFoundError as missing:
        pytest.skip(f"skipped: no command: {missing}")

    def run(*words, expect=(0, 1)):
        done = evidence.qk(*words, status=expect)
        return json.loads(done.stdout) if "--json" in words or "--count" in words else done.stdout

    return run


@pytest.fixture(scope="session")
def model():
    return DIGITS / "digits.onnx"


@pytest.fixture(scope="session")
def images():
    return np.load(DIGITS / "test_images.npy")[:64]


@pytest.fixture(scope="session")
def labels():
    return np.load(DIGITS / "test_labels.npy")[:64]
