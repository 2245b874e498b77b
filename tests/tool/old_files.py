#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of earlier versions of qk are read with the same meaning, and the same settings still write the same files.

tests/data/old_files holds plans, requests, encodings and models of examples/digits. Files in read/ are only read, those in written/ are
written again and compared byte for byte. reports/ holds JSON: new keys may be added, but none removed.
"""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, check, qk

import numpy as np

OLD = ROOT / "tests/data/old_files"
DIGITS = ROOT / "examples/digits"
MODEL, IMAGES = str(DIGITS / "digits.onnx"), str(DIGITS / "test_images.npy")


def test_written_again(folder):
    plan, blocks = OLD / "plan.json", OLD / "mx_plan.json"
    # int8 weights that are pair-safe as they are stay int8 now; this profile stores them as uint8, as files of before have them.
    as_before = folder / "as_before.json"
    as_before.write_text('{"name": "as before", "int8_weights": "unsigned"}')
    for name, arguments in {
        "qdq.onnx": ["--plan", plan, "--export", "qdq", "--target", as_before],
        "qoperator.onnx": ["--plan", plan, "--export", "qoperator", "--target", as_before],
        "amd.onnx": ["--plan", plan, "--export", "amd"],
        "blocks.onnx": ["--plan", blocks, "--export", "portable"],
    }.items():
        qk("quantize", MODEL, *arguments, "-o", folder / name)
        check((folder / name).read_bytes() == (OLD / "written" / name).read_bytes(), f"{name} is written as before")
    # What requests leave open has other defaults since; the old ones can be named.
    named = ["--per-tensor", "--weight-method", "min_max", "--semantics", "ocp"]
    qk("quantize", MODEL, "--plan", OLD / "requests.json", *named, "--save-plan", folder / "requested_plan.json")
    check(json.loads((folder / "requested_plan.json").read_text()) == json.loads((OLD / "written/requested_plan.json").read_text()), "requests.json leads to the plan of before")


def outputs(model, *arguments):
    """Returns the logits of 100 images."""
    return evidence.evaluated(model, IMAGES, "--samples", 100, *arguments)


def test_read_as_before():
    """A model that was written under a plan gives the plan's outputs; encodings give them as far as they can express the plan."""
    by_plan = outputs(MODEL, "--plan", OLD / "plan.json")
    by_blocks = outputs(MODEL, "--plan", OLD / "mx_plan.json")
    for file in sorted([*OLD.glob("read/*.onnx"), *OLD.glob("written/*.onnx")]):
        got = outputs(file)
        expected = by_blocks if file.stem.startswith("blocks") else by_plan
        if not check(got.shape == expected.shape and got.size > 0, f"{file.name}: outputs of shape {got.shape}, expected {expected.shape}"):
            continue
        # An integer layer rounds its sum once, the plan's float layer twice, so logits may differ by one step.
        off = np.abs(got - expected).max() / np.abs(expected).max()
        check(off <= 0.02, f"{file.name}: outputs are off by {off:.3g} of the largest")
    by_encodings = outputs(MODEL, "--plan", OLD / "encodings.json")
    check(by_encodings.shape == by_plan.shape and (by_encodings.argmax(1) == by_plan.argmax(1)).mean() >= 0.97, "encodings.json leads to the answers of the plan that it was written from")


def keys_lost(old, new, place=""):
    if isinstance(old, dict) and isinstance(new, dict):
        return [lost for k, v in old.items() for lost in (keys_lost(v, new[k], f"{place}/{k}") if k in new else [f"{place}/{k}"])]
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return keys_lost(old[0], new[0], place + "/0")
    return [] if old is None or new is None or isinstance(old, type(new)) or isinstance(old, (int, float)) else [f"{place} changed its type"]


def test_reports_keep_their_keys(folder):
    mix = ["--inputs", IMAGES, "--wide", "int8/int8", "--narrow", "int8/int4", "--samples", 50]
    for name, arguments in {
        "search": ["search", MODEL, *mix, "--target-sqnr", 25],
        "sensitivity": ["sensitivity", MODEL, *mix],
        "quantize": ["quantize", MODEL, "--plan", OLD / "mx_plan.json"],
    }.items():
        qk(*arguments, "--report", folder / f"{name}.html")
        old = json.loads((OLD / "reports" / f"{name}.json").read_text())
        lost = keys_lost(old, json.loads((folder / f"{name}.json").read_text()))
        check(not lost, f"the JSON of `qk {name} --report` has lost {', '.join(lost)}")


if __name__ == "__main__":
    evidence.main()
