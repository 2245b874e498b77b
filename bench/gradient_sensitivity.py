#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`qk sensitivity --method gradient` beside `measured`: Spearman's rank correlation of the output errors, how well the standard errors
cover, and the seconds of both.

    python3 bench/gradient_sensitivity.py QK MODEL.onnx INPUTS.npy [SAMPLES [NARROW,...]] [-- OPTIONS OF QK]
"""
import json
import subprocess
import sys

import numpy as np


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


def main():
    words = sys.argv[1:]
    more = words[words.index("--") + 1:] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    tool, model, inputs = words[:3]
    samples = int(words[3]) if len(words) > 3 else 16
    narrow = words[4] if len(words) > 4 else "int8/int8,mx9/mx9,int8/int4,mxfp4/mxfp4"
    measured_seconds, measured = sweep(tool, model, inputs, samples, narrow, "measured", more)
    estimated_seconds, estimated = sweep(tool, model, inputs, samples, narrow, "gradient", more)
    print(f"{model}: {samples} samples, measured {measured_seconds:.2f} s, gradient {estimated_seconds:.2f} s ({estimated_seconds / measured_seconds:.2f})")
    print(f"{'formats':18} {'what':18} {'layers':>6} {'rank correlation':>17} {'median ratio':>13} {'10 to 90 %':>15} {'within 2 errors':>16}")
    for option in [*narrow.split(","), "all"]:
        for part in ("layer", "weights alone", "activations alone"):
            keys = [k for k in measured if (option in ("all", k[0])) and k[1] == part]
            if not keys:
                continue
            a, b = [measured[k]["added"] for k in keys], [estimated[k]["added"] for k in keys]
            ratio = np.array(b) / np.maximum(np.array(a), 1e-30)
            inside = np.mean([abs(x - y) <= 2 * estimated[k]["standard_error"] for k, x, y in zip(keys, a, b)])
            low, high = np.quantile(ratio, (0.1, 0.9))
            print(f"{option:18} {part:18} {len(keys):6} {spearman(a, b):17.3f} {np.median(ratio):13.2f} {low:7.2f} {high:7.2f} {inside:15.0%}")


if __name__ == "__main__":
    main()
