# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: the shipped network, its data, and the command to compare with."""

import json
import os
import pathlib
import subprocess
from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("qk") is None:
    collect_ignore_glob = ["test_*.py"]  # the package is not built
ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


def pytest_configure(config):
    if find_spec("qk"):
        config.addinivalue_line("filterwarnings", "ignore::qk._run.Remark")


@pytest.fixture(scope="session")
def command():
    """Runs the command that was built (QK_COMMAND), and returns its JSON or its text."""
    program = os.environ.get("QK_COMMAND", str(ROOT / "build" / "release" / "qk"))
    if not os.path.exists(program):
        pytest.skip(f"skipped: no {program}")

    def run(*words, expect=(0, 1)):
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
        assert done.returncode in expect, done.stderr + done.stdout
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


def values(shape, seed=1):
    """Returns numbers of many magnitudes, with zeros, subnormals and special values among them."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(shape) * np.exp2(random.integers(-12, 9, shape))).astype(np.float32)
    flat = x.reshape(-1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -3e-39, 3.4e38, 448, 0.4375], np.float32)
    if flat.size >= 400:
        flat[random.choice(flat.size, special.size, replace=False)] = special
    return x


def same(a, b):
    """Is true for the same bits; NaN equals NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}"))))
