#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of earlier versions of qk are read with the same meaning, and the same settings still write the same files.

    python3 tests/tool/old_files.py QK

tests/data/old_files holds plans, requests, encodings and models of examples/digits. Files in read/ are only read, those in written/ are
written again and compared byte for byte. reports/ holds JSON: new keys may be added, but none removed.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OLD = ROOT / "tests/data/old_files"
DIGITS = ROOT / "examples/digits"
MODEL, IMAGES = str(DIGITS / "digits.onnx"), str(DIGITS / "test_images.npy")
qk = str(Path(sys.argv[1]).resolve())
failures = []


def run(*arguments):
    done = subprocess.run([qk, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        failures.append(f"qk {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def written_again(folder):
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
        run("quantize", MODEL, *arguments, "-o", folder / name)
        if (folder / name).exists() and (folder / name).read_bytes() != (OLD / "written" / name).read_bytes():
            failures.append(f"{name} is written otherwise than before")
    # What requests leave open has other defaults since; the old ones can be named.
    named = ["--per-tensor", "--weight-method", "min_max", "--semantics", "ocp"]
    run("quantize", MODEL, "--plan", OLD / "requests.json", *named, "--save-plan", folder / "requested_plan.json")
    if json.loads((folder / "requested_plan.json").read_text()) != json.loads((OLD / "written/requested_plan.json").read_text()):
        failures.append("requests.json leads to another plan than before")


def outputs(folder, model, *arguments):
    """Returns the logits of 100 images."""
    run("evaluate", model, "--inputs", IMAGES, "--samples", 100, "--output-dir", folder, *arguments)
    found = list(folder.glob("*.npy"))
    return np.load(found[0]) if len(found) == 1 else np.zeros(0)


def read_as_before(folder):
    """A model that was written under a plan gives the plan's outputs; encodings give them as far as they can express the plan."""
    by_plan = outputs(folder / "plan", MODEL, "--plan", OLD / "plan.json")
    by_blocks = outputs(folder / "mx_plan", MODEL, "--plan", OLD / "mx_plan.json")
    for file in sorted([*OLD.glob("read/*.onnx"), *OLD.glob("written/*.onnx")]):
        got = outputs(folder / (file.parent.name + file.stem), file)
        expected = by_blocks if file.stem.startswith("blocks") else by_plan
        if got.shape != expected.shape or got.size == 0:
            failures.append(f"{file.name}: outputs of shape {got.shape}, expected {expected.shape}")
            continue
        # An integer layer rounds its sum once, the plan's float layer twice, so logits may differ by one step.
        off = np.abs(got - expected).max() / np.abs(expected).max()
        if off > 0.02:
            failures.append(f"{file.name}: outputs are off by {off:.3g} of the largest")
    by_encodings = outputs(folder / "encodings", MODEL, "--plan", OLD / "encodings.json")
    if by_encodings.shape != by_plan.shape or (by_encodings.argmax(1) == by_plan.argmax(1)).mean() < 0.97:
        failures.append("encodings.json leads to other answers than the plan that it was written from")


def keys_lost(old, new, place=""):
    if isinstance(old, dict) and isinstance(new, dict):
        return [lost for k, v in old.items() for lost in (keys_lost(v, new[k], f"{place}/{k}") if k in new else [f"{place}/{k}"])]
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return keys_lost(old[0], new[0], place + "/0")
    return [] if old is None or new is None or isinstance(old, type(new)) or isinstance(old, (int, float)) else [f"{place} changed its type"]


def reports_keep_their_keys(folder):
    mix = ["--inputs", IMAGES, "--wide", "int8/int8", "--narrow", "int8/int4", "--samples", 50]
    for name, arguments in {
        "search": ["search", MODEL, *mix, "--target-sqnr", 25],
        "sensitivity": ["sensitivity", MODEL, *mix],
        "quantize": ["quantize", MODEL, "--plan", OLD / "mx_plan.json"],
    }.items():
        run(*arguments, "--report", folder / f"{name}.html")
        old = json.loads((OLD / "reports" / f"{name}.json").read_text())
        lost = keys_lost(old, json.loads((folder / f"{name}.json").read_text()))
        if lost:
            failures.append(f"the JSON of `qk {name} --report` has lost {', '.join(lost)}")


with tempfile.TemporaryDirectory() as scratch:
    written_again(Path(scratch))
    read_as_before(Path(scratch))
    reports_keep_their_keys(Path(scratch))
print("\n".join(failures) or "old files: read and written as before")
sys.exit(1 if failures else 0)
