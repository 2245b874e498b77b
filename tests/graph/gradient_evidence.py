#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk gradient` with torch's autograd in float64, whose results are in gradients/MODEL.npz of the folders of data.

    python3 tests/graph/gradient_evidence.py QK [FOLDER]
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data_folders


def main():
    tool = sys.argv[1]
    places = [Path(sys.argv[2])] if len(sys.argv) > 2 else data_folders.folders(tool, "gradients")
    files = [f for place in places for f in sorted((place / "gradients").glob("*.npz"))]
    assert len(files) >= 5, places
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            known = np.load(file)
            x, v, g = (str(Path(folder) / name) for name in ("x.npy", "v.npy", "g.npz"))
            np.save(x, known["x"])
            np.save(v, known["v"])
            model = file.parents[1] / "models" / f"{file.stem}.onnx"
            done = subprocess.run([tool, "gradient", str(model), "--inputs", x, "--vector", v, "-o", g], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{file.stem}: {done.stderr}")
            ours = np.load(g)
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
            good = errors[worst] <= 2e-2 and median <= 1e-3
            failed = failed or not good
            print(f"{file.stem:40} {len(errors):4} arrays, worst {errors[worst]:.2e} ({worst}), median {median:.2e}{'' if good else '  <- too far'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
