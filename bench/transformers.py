# SPDX-License-Identifier: Apache-2.0
"""What scaling of channels and compensated rounding bring on a small decoder some of whose channels are 30 times the others.

usage: python bench/transformers.py QK    (the built command; needs numpy and onnx)

Random weights, so the numbers say how the methods compare, not how a trained model fares. Calibrated on 16 texts, measured on 16 others.
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

with tempfile.TemporaryDirectory() as folder:
    rng = np.random.default_rng(1)
    model = models.gpt(os.path.join(folder, "m.onnx"), vocabulary=211, hidden=128, layers=3, count=4, outliers=30.0)
    for name in ("c", "x"):
        np.savez(os.path.join(folder, name + ".npz"), input_ids=rng.integers(0, 211, (16, 32)), attention_mask=np.ones((16, 32), np.int64))
    print("| help | " + " | ".join(FORMATS) + " |\n|---|" + "---|" * len(FORMATS))
    for what, options in HELP.items():
        cells = []
        for formats in FORMATS.values():
            done = subprocess.run([QK, "evaluate", model, "--inputs", os.path.join(folder, "x.npz"), "--calibration", os.path.join(folder, "c.npz"), "--metric", "sqnr,agreement", "--json", *formats, *options],
                                  capture_output=True, text=True, check=True)
            got = json.loads(done.stdout)
            cells.append(f"{got['sqnr']:.1f} dB, {100 * got['agreement']:.0f} %")
        print(f"| {what} | " + " | ".join(cells) + " |", flush=True)
