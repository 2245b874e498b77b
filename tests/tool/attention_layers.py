# SPDX-License-Identifier: Apache-2.0
"""ai.onnx Attention (from opset 23 on) as a layer: its two products are quantized, exported, recovered and searched; results are preserved."""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, difference, qk, qk_json, saved
from evidence.graphs import Graph
from evidence.runtimes import outputs

import numpy as np
import onnx
from onnx import TensorProto, helper

rng = np.random.default_rng(5)
NARROW = ["--activation", "int8", "--weight", "int8", "--per-channel"]


def model(name, heads=4, groups=2, width=8, rank=3, dtype=np.float32, opset=23, mask=None, past=False, more=(), debug=False, **attributes):
    """x [N,S,32] (mask, past_key, past_value, valid) -> y [N,S,32], present_key, present_value, shown. Has two layers, each an attention
    'a' and a projection."""
    g = Graph(3, dtype)
    own = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    hidden = heads * width
    x, inputs, outputs = "x", [("x", own, ["N", "S", hidden])], []
    if mask is not None:
        inputs.append(("mask", TensorProto.BOOL if mask == "bool" else own, ["N", 1, "S", "T"]))
    if "valid" in more:
        inputs.append(("valid", TensorProto.INT64, ["N"]))

    def linear(x, name, out):
        return g.op("MatMul", x, g.weight(name + ".weight", hidden, out), name=name)

    def split(x, count):
        return x if rank == 3 else g.op("Transpose", g.op("Reshape", x, g.ints(0, 0, count, width)), perm=[0, 2, 1, 3])

    for i in range(2):
        g.prefix = f"{i}/"
        q, k, v = split(linear(x, "q", hidden), heads), split(linear(x, "k", groups * width), groups), split(linear(x, "v", groups * width), groups)
        cache = [f"past_key{i}", f"past_value{i}"] if past else ["", ""]
        if past:
            inputs += [(c, own, ["N", groups, "P", width]) for c in cache]
        fed = [q, k, v, "mask" if mask is not None else "", *cache] + (["valid"] if "valid" in more else [])
        while fed[-1] == "":
            fed.pop()
        counts = {"q_num_heads": heads, "kv_num_heads": groups} if rank == 3 else {}
        made = g.op("Attention", *fed, outputs=4 if debug else 3 if past else 1, name="a", **counts, **attributes)
        y = made if isinstance(made, str) else made[0]
        if past:
            for k, what in ((1, "present_key"), (2, "present_value")):
                g.nodes[-1].output[k] = f"{what}{i}"
                outputs.append((f"{what}{i}", own, ["N", groups, "T", width]))
        if debug and i == 0:
            g.nodes[-1].output[3] = "shown"
            outputs.append(("shown", own, ["N", heads, "S", "T"]))
        if debug:
            for k in (1, 2) if not past else ():
                g.nodes[-1].output[k] = ""
        x = g.op("Add", x, linear(y if rank == 3 else g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, hidden)), "o", hidden))
    g.prefix = ""
    g.op("Identity", x)
    g.rename("y")
    return g.save(at(name + ".onnx"), inputs, [("y", own, ["N", "S", hidden])] + outputs, opset=opset)


def data(name, batch=2, queries=6, past=0, groups=2, width=8, dtype=np.float32, mask=None, valid=None):
    held = {"x": rng.standard_normal((batch, queries, 32)).astype(dtype)}
    if mask == "bool":
        held["mask"] = rng.random((batch, 1, queries, queries + past)) < 0.6
        held["mask"][1, 0, 3] = False  # this query sees no key
    if mask == "float":
        held["mask"] = rng.standard_normal((batch, 1, queries, queries + past)).astype(dtype)
    if valid is not None:
        held["valid"] = np.array(valid, np.int64)
    if past:
        held |= {f"past_{kind}{i}": rng.standard_normal((batch, groups, past, width)).astype(dtype) for i in range(2) for kind in ("key", "value")}
    return saved(name, **held)


def evaluated(model, data, *more, output="y"):
    return evidence.evaluated(model, data, "--batch", 2, *more, output=output).astype(np.float64)


def by_onnxruntime(path, data):
    return outputs(path, data, names=["y"])[0].astype(np.float64)


CASES = {
    "heads as one row": ({"groups": 4}, {"groups": 4}),
    "grouped, causal": ({"is_causal": 1}, {}),
    "rank 4, a cache, a scale": ({"rank": 4, "past": True, "is_causal": 1, "scale": 0.3}, {"past": 5}),
    "rank 4, no scale": ({"rank": 4}, {}),
    "a mask of truths": ({"mask": "bool"}, {"mask": "bool"}),
    "a mask of numbers, softcap": ({"mask": "float", "softcap": 1.5}, {"mask": "float"}),
    "float16, causal, precise": ({"dtype": np.float16, "is_causal": 1, "softmax_precision": 1}, {"dtype": np.float16}),
    "windows": ({"opset": 24, "is_causal": 1, "left_window_size": 2}, {}),
    "lengths of a cache": ({"opset": 24, "is_causal": 1, "more": ("valid",)}, {"valid": (6, 6)}),
}


def test_same_function():
    for name, (how, fed) in CASES.items():
        m, d = model(name, **how), data(name + ".npz", **fed)
        plain = evaluated(m, d)
        fine = evaluated(m, d, "--activation", "int16", "--weight", "int16")
        close = 6e-3 if how.get("dtype") == np.float16 else 1e-3
        check(0 < difference(fine, plain) < close, f"{name}: the products in int16 make what the node makes ({difference(fine, plain):.1e})")
        file = at(name + "_q.onnx")
        report = qk_json("quantize", "--recipe", "fast", m, "-o", file, *NARROW, "--calibration", d)
        asked = sorted((e["consumer"], e["index"]) for e in report["edges"] if e["consumer"].endswith(("/scores", "/context")))
        check(asked == [(f"{i}/a/{p}", k) for i in range(2) for p in ("context", "scores") for k in (0, 1)], f"{name}: queries, keys, probabilities and values are quantized")
        planned, made = evaluated(m, d, *NARROW), evaluated(file, d)
        noise = difference(planned, plain)
        check(difference(made, planned) < max(1e-3, noise / 2), f"{name}: the file is the plan")
        if how.get("opset", 23) == 23 or "valid" in fed:
            check(difference(by_onnxruntime(file, d), planned) < max(5e-2, noise), f"{name}: onnxruntime loads and runs it")
        qk("inspect", file, "--save-plan", at("back.json"), "--save-float", at("back.onnx"), "--overwrite")
        check(difference(evaluated(at("back.onnx"), d, "--plan", at("back.json")), planned) < max(1e-3, noise / 2), f"{name}: its plan is recovered")


def test_shown():
    for mode in range(4):
        m, d = model(f"mode{mode}", mask="float", softcap=1.5, debug=True, qk_matmul_output_mode=mode), data("mode.npz", mask="float")
        plain, fine = (evaluated(m, d, *more, output="shown") for more in ([], ["--activation", "int16", "--weight", "int16"]))
        check(difference(fine, plain) < 1e-3, f"qk_matmul_output_mode {mode} is shown by the products, too")


def test_requests():
    m, d = model("asked", past=True, is_causal=1), data("asked.npz", past=4)

    def ops(*more):
        qk("quantize", "--recipe", "fast", m, "-o", at("asked_q.onnx"), *more, "--calibration", d, "--overwrite")
        return [n.op_type for n in onnx.load(at("asked_q.onnx")).graph.node].count("Attention")

    check(ops("--approach", "weight_only", "--weight", "int4") == 2, "weight_only leaves the nodes whole")
    check(ops(*NARROW) == 0, "a default format of activations expands them")
    for text, left in (({"requests": [{"layer": "0/a", "exclude": True}]}, 1), ({"requests": [{"op_type": "Attention", "exclude": True}]}, 2), ({"requests": [{"op_type": ["Attention", "MatMul"], "activation": "mxfp8_e4m3"}]}, 0)):
        with open(at("asked.json"), "w") as f:
            json.dump({"default": {"activation": "int8", "weight": "int8"}, **text}, f)
        check(ops("--plan", at("asked.json")) == left, f"{text['requests'][0]}: {left} stay whole")
    for one in ("0/a", "0/a/context"):
        with open(at("asked.json"), "w") as f:
            json.dump({"requests": [{"layer": one, "activation": "fp8_e4m3fn"}]}, f)
        report = qk_json("quantize", "--recipe", "fast", m, "-o", at("one.onnx"), "--plan", at("asked.json"), "--calibration", d, "--overwrite")
        consumers = {e["consumer"] for e in report["edges"] if e["role"] == "input" and e["consumer"].endswith(("/scores", "/context"))}
        check(consumers == ({"0/a/scores", "0/a/context"} if one == "0/a" else {one}), f"a request for layer {one} alone is for {sorted(consumers)}")
    qk("quantize", "--recipe", "fast", m, "--save-plan", at("kept.json"), "-o", at("kept.onnx"), *NARROW, "--calibration", d)
    check(difference(evaluated(m, d, "--plan", at("kept.json")), evaluated(m, d, *NARROW)) < 1e-6, "a saved plan expands what it names")
    report = qk_json("quantize", "--recipe", "fast", m, "-o", at("cache.onnx"), *NARROW, "--kv-cache", "fp8_e4m3fn", "--calibration", d)
    check(len([n for n in report["notes"] if n["kind"] == "cache"]) == 4, "keys and values of the cache take a format of their own")
    planned = evaluated(m, d, *NARROW, "--kv-cache", "fp8_e4m3fn")
    check(difference(by_onnxruntime(at("cache.onnx"), d), planned) < 5e-2, "in the file, too")
    rows = {r["layer"] for r in qk_json("sensitivity", m, "--inputs", d, "--metric", "l2", "--method", "measured")["sensitivity"]}
    check({"0/a/scores", "0/a/context", "1/a/scores", "1/a/context", "0/q"} <= rows, "sensitivity ranks the products")
    found = qk_json("search", m, "--inputs", d, "--metric", "l2", "--wide-share", "0.5", "-o", at("mixed.onnx"), "--save-plan", at("mixed.json"))
    check("0/a/scores" in found["layers"] and os.path.exists(at("mixed.onnx")), "and a search chooses their formats")


if __name__ == "__main__":
    evidence.main()
