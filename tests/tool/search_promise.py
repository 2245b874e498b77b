# SPDX-License-Identifier: Apache-2.0
"""The mix that `qk search` saves keeps its promise: measured again in ONNX Runtime it meets the target and has the reported metric.

Runs on the shipped digits, with targets of the output's error and of top-1, integers and block formats, several strategies, and layers
ranked by measuring and by gradients.
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, at, check, qk_json
from evidence.runtimes import keeps, run

import numpy as np
import pytest

DIGITS = ROOT / "examples" / "digits"
SAMPLES = 300
X = np.load(DIGITS / "test_images.npy")[:SAMPLES]
LABELS = np.load(DIGITS / "test_labels.npy")[:SAMPLES]


def outputs(model, optimizer):
    return run(model, X, "on" if optimizer else "off")


def l2(y, reference):
    return float(np.mean(np.linalg.norm((y - reference).reshape(len(y), -1).astype(np.float64), axis=1)))


def search(*options):
    model = at("mixed.onnx")
    return qk_json("search", DIGITS / "digits.onnx", "--inputs", DIGITS / "test_images.npy", "--labels", DIGITS / "test_labels.npy", "--samples", SAMPLES, "-o", model, *options), model


@pytest.mark.parametrize("wide, narrow", (("int8/int8", "int8/int4"), ("mxfp8_e4m3/mxfp8_e4m3", "mxfp4/mxfp4"), ("bf16/bf16", "bfp16/mx4")))
def test_promises(wide, narrow):
    reference = outputs(DIGITS / "digits.onnx", True)
    float_top1 = float(np.mean(reference.argmax(1) == LABELS))
    # The target lies between the wide and the narrow model's metric, so that a search has to choose.
    formats = ("--wide", wide, "--narrow", narrow, "--per-channel")
    least = search(*formats, "--target-l2", "1e9")[0]
    middle = least["baseline_metric"] + 0.5 * (least["metric"] - least["baseline_metric"])
    for how in (("--target-l2", repr(middle)), ("--target-l2", repr(middle), "--strategy", "budget"), ("--target-top1-drop", "0.02", "--strategy", "pareto"),
                ("--target-l2", repr(middle), "--ranking", "gradient"), ("--target-l2", repr(middle), "--ranking", "auto"),
                ("--target-top1-drop", "0.02", "--ranking", "gradient")):
        r, model = search(*formats, *how)
        good, said = keeps(outputs(model, True), outputs(model, False), reference)
        check(good, f"{wide} to {narrow}, {' '.join(how)}: {said}")
        for optimizer in (False, True):
            y = outputs(model, optimizer)
            if "--target-l2" in how:
                # Another order of sums flips a few roundings, worth a hundredth of the target; a wrong format is worth far more.
                got, target, slack = l2(y, reference), middle, 0.01 * middle
                kept = got <= target + slack and abs(got - r["metric"]) <= slack
            else:
                got, target, slack = float(np.mean(y.argmax(1) == LABELS)), float_top1 - 0.02, r["sampling_error"]
                kept = got >= target - slack and abs(got - r["metric"]) <= slack
            check(kept, f"{wide} to {narrow}, {' '.join(how)}: {len(set(r['layers'].values()))} formats; report {r['metric']:.6g}, onnxruntime {got:.6g}, target {target:.6g}"
                        f"{'' if optimizer else ' (optimizer off)'}")


if __name__ == "__main__":
    evidence.main()
