# SPDX-License-Identifier: Apache-2.0
"""Measures scaling of channels, rotation and compensated rounding on small decoders in which some channels are 30 times as large as others.

usage: python bench/transformers.py QK    (the built command; needs numpy and onnx)

Weights are random, so the numbers compare methods and do not show how a trained model fares. Calibrates on 16 texts, measures on 16 others.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "tool"))
import language_models as models  # noqa: E402

QK = sys.argv[1]
FORMATS = {"int8/int8": ["--activation", "int8", "--weight", "int8", "--per-channel"], "mxfp4/mxfp4": ["--activation", "mxfp4", "--weight", "mxfp4"],
           "int4 weights, blocks of 32": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"]}
HELP = {"nothing": [], "smooth_quant 0.5": ["--smooth-quant", "0.5"], "smooth_quant search": ["--smooth-quant", "search"], "awq search": ["--awq", "search"],
        "compensated": ["--weight-rounding", "compensated"], "smooth_quant search, compensated": ["--smooth-quant", "search", "--weight-rounding", "compensated"],
        "awq search, compensated": ["--awq", "search", "--weight-rounding", "compensated"]}
if "--rotation" in subprocess.run([QK, "evaluate", "--help"], capture_output=True, text=True).stdout:
    HELP.update({"rotation": ["--rotation", "hadamard"], "rotation, compensated": ["--rotation", "hadamard", "--weight-rounding", "compensated"]})

SHAPE = {"vocabulary": 211, "hidden": 128, "layers": 3, "count": 4, "outliers": 30.0}
MODELS = {"decoder with LayerNormalization": lambda path: models.gpt(path, **SHAPE),
          "decoder with RMS normalization": lambda path: models.llama(path, groups=2, dtype=np.float32, transposed=False, **SHAPE)}


def texts(rng, what):
    x = {"input_ids": rng.integers(0, 211, (16, 32))}
    if "RMS" in what:
        return {**x, "position_ids": np.tile(np.arange(32), (16, 1)), **models.cache(3, 2, 32, 16, 0, np.float32)}
    return {**x, "attention_mask": np.ones((16, 32), np.int64)}


with tempfile.TemporaryDirectory() as folder:
    for what, make in MODELS.items():
        rng = np.random.default_rng(1)
        model = make(os.path.join(folder, "m.onnx"))
        for name in ("c", "x"):
            np.savez(os.path.join(folder, name + ".npz"), **texts(rng, what))
        print(f"| {what} | " + " | ".join(FORMATS) + " |\n|---|" + "---|" * len(FORMATS), flush=True)
        for help, options in HELP.items():
            if "rotation" in help and "RMS" not in what:  # LayerNormalization's mean depends on the basis, so qk does not rotate it
                continue
            cells = []
            for formats in FORMATS.values():
                done = subprocess.run([QK, "evaluate", model, "--inputs", os.path.join(folder, "x.npz"), "--calibration", os.path.join(folder, "c.npz"), "--metric", "sqnr,agreement",
                                       "--json", *formats, *options], capture_output=True, text=True, check=True)
                got = json.loads(done.stdout)
                cells.append(f"{got['sqnr']:.1f} dB, {100 * got['agreement']:.0f} %")
            print(f"| {help} | " + " | ".join(cells) + " |", flush=True)
        print()
