# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of language models: saved inputs, outputs computed by qk, and a comparison."""
import os
import tempfile

from evidence import FOLDER, at, qk

import numpy as np


def saved(name, **arrays):
    np.savez(at(name), **arrays)
    return at(name)


def close(a, b, tolerance):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return a.shape == b.shape and np.abs(a - b).max() <= tolerance * np.abs(b).max()


def evaluated(model, data, *more):
    """Returns the output `logits` of `qk evaluate`."""
    folder = tempfile.mkdtemp(dir=FOLDER)
    qk("evaluate", model, "--inputs", data, "--output-dir", folder, *more)
    return np.load(os.path.join(folder, "logits.npy"))


def softmax_log(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
