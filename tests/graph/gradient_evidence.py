#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk gradient` with torch's autograd in float64, whose results are in gradients/MODEL.npz of the folders of data.
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, folders, qk

import numpy as np


def test_gradients_of_networks():
    files = [f for place in folders("gradients") for f in sorted((place / "gradients").glob("*.npz"))]
    assert len(files) >= 5, files
    for file in files:
        known = np.load(file)
        np.save(at("x.npy"), known["x"])
        np.save(at("v.npy"), known["v"])
        model = file.parents[1] / "models" / f"{file.stem}.onnx"
        qk("gradient", model, "--inputs", at("x.npy"), "--vector", at("v.npy"), "-o", at(f"{file.stem}.npz"))
        ours = np.load(at(f"{file.stem}.npz"))
        inputs = [key for key in ours.files if ours[key].shape == known["x"].shape]
        errors = {}
        for key in known.files:
            if key != "dx" and not key.startswith("d:"):
                continue
            name = inputs[0] if key == "dx" else key[2:]
            a, b = ours[name].astype(np.float64), known[key].astype(np.float64)
            assert a.shape == b.shape, (file.stem, key, a.shape, b.shape)
            errors[key] = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
        worst = max(errors, key=errors.get)
        median = float(np.median(list(errors.values())))
        check(errors[worst] <= 2e-2 and median <= 1e-3, f"{file.stem}: {len(errors)} arrays, worst {errors[worst]:.2e} ({worst}), median {median:.2e}")


if __name__ == "__main__":
    evidence.main()
