# SPDX-License-Identifier: Apache-2.0
"""The same words give the same file, byte for byte: each option of `qk quantize`, from the table that makes the command, in the command and in
qk.quantize(), whose model comes back from memory beside a plan. Plan and float model give that file once more."""

import json
import os
import subprocess

import numpy as np
import pytest
import qk
from qk import _run

from conftest import ROOT

BASE = {"activation": "int8", "weight": "int4"}
BLOCKS = {"approach": "weight_only", "weight": "int4", "weight_block": 32, "activation": None}
# Values of options that the table has no words for, and what has to stand beside an option for it to say something.
VALUES = {"iterations": [3], "seed": [5], "weight_block": [32], "percentile": [99.0], "ignore_label": [3], "samples": [12], "threads": [1], "batch_axis": ["0"],
          "accuracy_level": [4], "preprocess": ["scale=2"], "plan": ["requests.json"], "inputs": ["x.npy"], "calibration": ["x.npy"], "labels": ["y.npy"],
          "activation": ["int8", "uint8", "mxfp8_e4m3", "bf16"], "weight": ["int4", "int8", "mxfp4", "nvfp4"], "bias": ["fp32", "int32"], "kv_cache": ["int8"]}
BESIDE = {"iterations": {"weight_rounding": "adaround"}, "seed": {"weight_rounding": "adaround", "iterations": 3}, "weight_block": BLOCKS, "percentile": {"calibration_method": "percentile"},
          "scale_rule": {"activation": "mxfp8_e4m3", "weight": "mxfp4"}, "scale_objective": {"activation": "mxfp8_e4m3", "weight": "mxfp4", "scale_rule": "search"},
          "accuracy_level": {**BLOCKS, "export": "nbits"}, "pow2": {"weight": "int8"}, "ignore_label": {"labels": "y.npy"}, "plan": {"activation": None, "weight": None},
          "target": {"activation": None, "weight": None}, "recipe": {"iterations": None}}
BESIDE_WORD = {("weight_rounding", "adaround"): {"iterations": 3}, ("weight_rounding", "adaquant"): {"iterations": 3}, ("recipe", "best"): {"iterations": 3},
               ("export", "qdq"): {"weight": "int8"}, ("export", "qoperator"): {"weight": "int8"}, ("export", "qinteger"): {"weight": "int8", "approach": "dynamic"},
               ("export", "amd"): {"activation": "mxfp4", "weight": "mxfp4"}, ("export", "nbits"): BLOCKS}
# What names a file that is made, or says how the answer is given, changes no file; runtimes are not there on every machine.
NOT_HERE = {"output", "save_plan", "encodings", "encodings_version", "report", "log", "overwrite", "json", "time", "run_with", "verify"}


def cases():
    found = []
    for name, option in _run.options_of("quantize").items():
        if name in NOT_HERE:
            continue
        values = VALUES.get(name) or ([True] if option["kind"] == "flag" else option["words"])
        assert values, f"{name} is new: VALUES needs one for it"
        for value in values:
            found.append({**BASE, **BESIDE.get(name, {}), **BESIDE_WORD.get((name, value), {}), name: value})
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("doors")
    digits = ROOT / "examples" / "digits"
    np.save(where / "x.npy", np.load(digits / "test_images.npy")[:16])
    np.save(where / "y.npy", np.load(digits / "test_labels.npy")[:16])
    (where / "requests.json").write_text(json.dumps({"default": {"activation": "int8", "weight": "int4"}, "bias_correction": True}))
    return where


@pytest.mark.parametrize("given", cases(), ids=lambda given: " ".join(f"{k}={v}" for k, v in given.items() if v is not None and BASE.get(k) != v) or "base")
def test_both_doors_write_the_same_file(folder, model, given):
    program = os.environ.get("QK_COMMAND", str(ROOT / "build" / "release" / "qk"))
    given = {k: v for k, v in given.items() if v is not None}
    in_files = {k: folder / v if isinstance(v, str) and (folder / v).is_file() else v for k, v in given.items()}
    words = _run.words_of("quantize", {"inputs": folder / "x.npy", **in_files})
    done = subprocess.run([program, "quantize", str(model), "-o", str(folder / "command.onnx"), "--overwrite", *words], capture_output=True, text=True)
    arrays = {k: np.load(v) if k in ("inputs", "calibration", "labels") else v for k, v in in_files.items()}
    data = arrays.pop("inputs", np.load(folder / "x.npy"))
    try:
        result = qk.quantize(model, data, **arrays)
    except qk.Error as error:
        assert done.returncode == 2, f"{error}: the command says nothing of it"
        return
    assert done.returncode == 0, done.stderr
    result.save(folder / "call.onnx")
    written = (folder / "command.onnx").read_bytes()
    assert (folder / "call.onnx").read_bytes() == written
    if "encodings" in given or given.get("target") == "openvino":  # a plan goes with the style that it is written in
        return
    result.plan.save(folder / "plan.json")
    more = {k: v for k, v in given.items() if k in ("export", "weights", "inline", "keep_int8", "accuracy_level", "target")}
    again = _run.words_of("quantize", {**more, "inputs": folder / "x.npy", "plan": folder / "plan.json"})
    done = subprocess.run([program, "quantize", str(model), "-o", str(folder / "again.onnx"), "--overwrite", *again], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "again.onnx").read_bytes() == written
