# SPDX-License-Identifier: Apache-2.0
"""Files as the command reads and writes them: regular files alone, and outputs whole or not at all, all of them or none."""

import io
import json
import os

import numpy as np

from . import _qk


def read(path):
    """Returns the bytes of a file."""
    os.stat(path)  # a file that is missing is Python's own error
    return _qk.read_file(os.fspath(path))


def read_json(path):
    return json.loads(read(path).decode("utf-8"))


def read_arrays(path):
    """Returns the arrays of an .npz, a path or an open file, by name."""
    with np.load(path if hasattr(path, "read") else io.BytesIO(read(path))) as members:
        return {name: members[name] for name in members}


def npz(arrays):
    """Returns the bytes of an .npz."""
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


def write(contents):
    """Writes bytes or text by path."""
    _qk.write_files([(os.fspath(path), text.encode() if isinstance(text, str) else bytes(text)) for path, text in contents.items()])
