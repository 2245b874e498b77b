# SPDX-License-Identifier: Apache-2.0
"""The stubs say what the package has."""

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

import qk


def test_the_stubs_are_current(tmp_path):
    subprocess.run([sys.executable, ROOT / "python" / "make_stubs.py", tmp_path / "stubs.pyi"], check=True)
    assert (tmp_path / "stubs.pyi").read_text() == (ROOT / "python" / "qk" / "__init__.pyi").read_text(), "run python/make_stubs.py"


def test_the_stubs_name_everything():
    tree = ast.parse((ROOT / "python" / "qk" / "__init__.pyi").read_text())
    named = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert set(qk.__all__) <= named
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in qk.__all__:
            there = dir(getattr(qk, node.name))
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    assert member.name in there, (node.name, member.name)


@pytest.fixture
def typed(tmp_path):
    """A folder with the package's sources and stubs alone, as type checkers find them."""
    shutil.copytree(ROOT / "python" / "qk", tmp_path / "qk", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_mypy_finds_nothing_in_the_examples(typed):
    pytest.importorskip("mypy")
    samples = sorted(str(p) for p in (ROOT / "examples" / "python").glob("*.py"))
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(typed / "cache"), *samples], capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(typed)})
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = typed / "wrong.py"
    wrong.write_text("import qk\nqk.quantize('m.onnx', activaton='int8')\nqk.fake_quantize([1.0], 'mxfp4', axis='x')\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(typed / "cache"), str(wrong)], capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(typed)})
    assert done.returncode == 1 and "activaton" in done.stdout and "axis" in done.stdout, done.stdout


def test_basedpyright_finds_no_error_in_the_examples(typed):
    pytest.importorskip("basedpyright")
    samples = ROOT / "examples" / "python"
    (typed / "pyrightconfig.json").write_text(json.dumps({"include": [str(samples)], "extraPaths": [str(typed), str(samples)]}))
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable, "-p", str(typed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
