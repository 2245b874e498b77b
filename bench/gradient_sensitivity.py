#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `qk sensitivity --method gradient` with `measured`: Spearman's rank correlation of the output errors, how often two standard
errors cover the measured one, and the seconds of both.

    python3 bench/gradient_sensitivity.py QK SHARED_DIR [NAME[=SAMPLES],...]                    networks.py's networks
    python3 bench/gradient_sensitivity.py QK MODEL.onnx INPUTS.npy [SAMPLES [NARROW,...]] [-- OPTIONS OF QK]

Standard errors come from the choice of vectors. If all vectors are taken (no more outputs than vectors), they are 0, and only the error of
linearization is left.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import networks

NARROW = "int8/int8,mx9/mx9,int8/int4,mxfp4/mxfp4"
SAMPLES = {"resnet20": 256, "squeezenet1.1": 8, "kwt1": 16, "densenet121": 1, "decoder": 16}


def sweep(tool, model, inputs, samples, narrow, method, more):
    line = [tool, "sensitivity", model, "--inputs", inputs, "--samples", str(samples), "--wide", "int16/int16", "--narrow", narrow, "--metric", "mse",
            "--method", method, "--json", *more]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = json.loads(done.stdout)
    return found["seconds"], {(r["option"], r["part"], r["layer"]): r for r in found["sensitivity"]}


def ranks(values):
    order = np.argsort(values, kind="stable")
    r = np.empty(len(values))
    r[order] = np.arange(len(values))
    return r


def spearman(a, b):
    return float(np.corrcoef(ranks(np.array(a)), ranks(np.array(b)))[0, 1]) if len(a) > 2 else float("nan")


def compare(tool, model, inputs, samples, narrow, more=()):
    measured_seconds, measured = sweep(tool, model, inputs, samples, narrow, "measured", more)
    estimated_seconds, estimated = sweep(tool, model, inputs, samples, narrow, "gradient", more)
    print(f"{Path(model).stem}: {samples} samples, measured {measured_seconds:.2f} s, gradient {estimated_seconds:.2f} s ({estimated_seconds / measured_seconds:.2f})\n")
    print("| formats | what | layers | rank correlation | median ratio | 10 to 90 % | median standard error | within two of them |")
    print("|---|---|---|---|---|---|---|---|")
    for option in [*narrow.split(","), "all"]:
        for part in ("layer", "weights alone", "activations alone"):
            keys = [k for k in measured if (option in ("all", k[0])) and k[1] == part]
            if not keys:
                continue
            a, b = [np.array([of[k]["added"] for k in keys]) for of in (measured, estimated)]
            errors = np.array([estimated[k]["standard_error"] for k in keys])
            ratio = b / np.maximum(a, 1e-30)
            low, high = np.quantile(ratio, (0.1, 0.9))
            inside = f"{np.mean(np.abs(a - b) <= 2 * errors):.0%}" if errors.any() else "all vectors"
            spread = np.median(errors / np.maximum(b, 1e-30))
            print(f"| {option} | {part} | {len(keys)} | {spearman(a, b):.3f} | {np.median(ratio):.2f} | {low:.2f} to {high:.2f} | {spread:.0%} | {inside} |")
    print(flush=True)


def main():
    words = sys.argv[1:]
    more = words[words.index("--") + 1:] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    tool, where = words[:2]
    if not Path(where).is_dir():
        compare(tool, where, words[2], int(words[3]) if len(words) > 3 else 16, words[4] if len(words) > 4 else NARROW, more)
        return
    asked = dict((w.split("=") + [None])[:2] for w in words[2].split(",")) if len(words) > 2 else dict.fromkeys(SAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        for name, samples in asked.items():
            samples = int(samples or SAMPLES[name])
            compare(tool, *networks.make(name, where, folder, samples), samples, NARROW, more)


if __name__ == "__main__":
    main()
