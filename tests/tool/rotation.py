# SPDX-License-Identifier: Apache-2.0
"""Rotation of residual streams keeps the function, lowers noise if some channels are large, or is refused; searches run after it."""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, decibels, difference, qk, qk_json, saved
from evidence.runtimes import outputs

import numpy as np
import onnx

import language_models as models

rng = np.random.default_rng(11)
HADAMARD = ["--rotation", "hadamard"]
FORMATS = {"int8": ["--activation", "int8", "--weight", "int8", "--per-channel"], "mxfp4": ["--activation", "mxfp4", "--weight", "mxfp4"],
           "int4": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"]}


def texts(name, dtype=np.float32, samples=3, length=9, width=8):
    past = {k: np.zeros((samples, 2, 0, width), dtype) for k in models.cache()}
    return saved(name, input_ids=rng.integers(0, 61, (samples, length)), position_ids=np.arange(length)[None].repeat(samples, 0), **past)


def evaluated(*words):
    return models.logits(*words).astype(np.float64)


def by_onnxruntime(path, data):
    return outputs(path, data)[0].astype(np.float64)


def notes(report, kind):
    return [n["text"] for n in report["notes"] if n["kind"] == kind]


def test_same_function():
    for name, how in {"parts": {}, "RMSNormalization": {"norm": "RMSNormalization"}, "SimplifiedLayerNormalization": {"norm": "SimplifiedLayerNormalization", "transposed": False},
                      "three": {"hidden": 48, "count": 4}, "float16": {"dtype": np.float16}}.items():
        how = {"dtype": np.float32, "outliers": 30.0 if name != "float16" else 1.0, **how}
        model = models.llama(at(f"{name}.onnx"), **how)
        data = texts(f"{name}.npz", how["dtype"], width=how.get("hidden", 32) // 4)
        plain = evaluated(model, data)
        file = at(f"{name}_rotated.onnx")
        report = qk_json("quantize", "--recipe", "fast", model, "-o", file, "--weight", "fp32", *HADAMARD)
        told = notes(report, "rotated")
        check(len(told) == 1 and str(how.get("hidden", 32)) in told[0] and not notes(report, "unrealised"), f"{name}: one stream is rotated")
        close = 1e-2 if how["dtype"] == np.float16 else 2e-5
        check(difference(evaluated(file, data), plain) < close, f"{name}: the function stays")
        check(difference(by_onnxruntime(file, data), plain) < close, f"{name}: in onnxruntime, too")
        before, after = (({i.name: i for i in onnx.load(f).graph.initializer}, len(onnx.load(f).graph.node)) for f in (model, file))
        check(after[1] <= before[1], f"{name}: without a node more")


def test_outliers():
    model = models.llama(at("outliers.onnx"), dtype=np.float32, outliers=30.0, hidden=64)
    seen, other = texts("seen.npz", samples=8, width=16), texts("other.npz", samples=8, width=16)
    plain = evaluated(model, other)
    for name, formats in FORMATS.items():
        formats = [*formats, "--calibration", seen] if name == "int8" else formats
        before, after = (decibels(evaluated(model, other, *formats, *more), plain) for more in ([], HADAMARD))
        check(after > before + {"int8": 5, "mxfp4": 2.5, "int4": 2}[name], f"{name}: {after:.1f} dB, {before:.1f} without a rotation")
        file = at(f"{name}_q.onnx")
        qk("quantize", "--recipe", "fast", model, "-o", file, *formats, *HADAMARD)
        planned = evaluated(model, other, *formats, *HADAMARD)
        noise = difference(planned, plain)
        check(difference(by_onnxruntime(file, other), planned) < max(5e-2, noise), f"{name}: the file runs in onnxruntime as planned")
        check(difference(evaluated(file, other), planned) < max(1e-3, noise / 2), "and here")
        qk("inspect", file, "--save-plan", at("again.json"), "--save-float", at("again.onnx"), "--overwrite")
        check(difference(evaluated(at("again.onnx"), other, "--plan", at("again.json")), planned) < max(1e-3, noise / 2), "and its plan is recovered")
    four = [*FORMATS["mxfp4"], "--calibration", seen]
    both = decibels(evaluated(model, other, *four, *HADAMARD, "--smooth-quant", "search"), plain)
    check(both > decibels(evaluated(model, other, *four), plain) + 4, f"with --smooth-quant behind it: {both:.1f} dB")


def test_refusals():
    gpt = models.gpt(at("gpt.onnx"))
    report = qk_json("quantize", "--recipe", "fast", gpt, "-o", at("gpt_q.onnx"), *FORMATS["mxfp4"], *HADAMARD)
    check(len(notes(report, "unrealised")) == 1 and "subtracts the mean" in notes(report, "unrealised")[0], "a LayerNormalization forbids it, and a remark says so")
    data = saved("gpt.npz", input_ids=rng.integers(0, 61, (2, 9)), attention_mask=np.ones((2, 9), np.int64))
    check(difference(evaluated(gpt, data, *FORMATS["mxfp4"], *HADAMARD), evaluated(gpt, data, *FORMATS["mxfp4"])) == 0, "the model stays as it is")
    strict = qk("quantize", "--recipe", "fast", gpt, "-o", at("strict.onnx"), *FORMATS["mxfp4"], *HADAMARD, "--strict", status=2)
    check("subtracts the mean" in strict.stderr and not os.path.exists(at("strict.onnx")), "--strict makes an error of it")

    model = onnx.load(models.llama(at("parts.onnx"), dtype=np.float32, outliers=30.0))
    gain = next(n for n in model.graph.node if any(i == "norm" for i in n.input))
    model.graph.output.append(onnx.helper.make_tensor_value_info(gain.output[0], onnx.TensorProto.FLOAT, None))
    onnx.save(model, at("watched.onnx"))
    report = qk_json("quantize", "--recipe", "fast", at("watched.onnx"), "-o", at("watched_q.onnx"), *FORMATS["mxfp4"], *HADAMARD)
    check("is an output of the model" in " ".join(notes(report, "unrealised")), "an output of the model forbids it")
    check("none" in qk("quantize", "--recipe", "fast", gpt, "-o", at("x.onnx"), "--weight", "int8", "--rotation", "givens", status=2).stderr, "a name that means nothing is an error that names those that do")


def test_searches():
    model, data = models.llama(at("search.onnx"), dtype=np.float32, outliers=30.0), texts("search.npz")
    common = ["--inputs", data, "--next-token", "--metric", "kl", "--wide", "mxfp8_e4m3/mxfp8_e4m3", "--narrow", "mxfp4/mxfp4"]
    with open(at("asked.json"), "w") as f:
        json.dump({"rotation": "hadamard", "smooth_quant": "search"}, f)
    plain = qk_json("sensitivity", model, *common, "--method", "measured")
    for name, more in {"--rotation": HADAMARD, "--smooth-quant": ["--smooth-quant", "search"], "a requests file": ["--plan", at("asked.json")]}.items():
        changed = qk_json("sensitivity", model, *common, "--method", "measured", *more)
        total = [sum(r["metric"] for r in s["sensitivity"]) for s in (plain, changed)]
        check(total[1] < total[0], f"sensitivity under {name}: {total[1]:.3g}, was {total[0]:.3g}")
    report = qk_json("search", "--recipe", "fast", model, *common, "--wide-share", "0.3", *HADAMARD, "-o", at("mixed.onnx"), "--save-plan", at("mixed.json"))
    check(any(r.startswith("rotated: ") for r in report["remarks"]), "a search says what was rotated before it")
    qk("quantize", "--recipe", "fast", model, "-o", at("rotated.onnx"), "--weight", "fp32", *HADAMARD)
    mixed = qk_json("evaluate", at("rotated.onnx"), "--inputs", data, "--next-token", "--metric", "kl", "--plan", at("mixed.json"))
    check(abs(mixed["kl"] - report["metric"]) < 0.02 * report["metric"] + 1e-6, f"its file and its plan are of the rotated model: {mixed['kl']:.4g}, {report['metric']:.4g} in the search")


if __name__ == "__main__":
    evidence.main()
