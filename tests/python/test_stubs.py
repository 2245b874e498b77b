# SPDX-License-Identifier: Apache-2.0
"""The stubs say what the package has."""

import ast
import subprocess
import sys

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
