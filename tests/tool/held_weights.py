# SPDX-License-Identifier: Apache-2.0
"""Weights that are not direct operands of a product: a fused BERT's, and experts that a router chooses; also a Concat with an empty cache."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, difference, qk, qk_json
from evidence.graphs import Graph
from evidence.runtimes import outputs

import numpy as np
from onnx import TensorProto

rng = np.random.default_rng(9)
FORMATS = {"int8": ["--activation", "int8", "--weight", "int8", "--per-channel"], "mx": ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"],
           "int4": ["--approach", "weight_only", "--weight", "int4", "--weight-block", "16"]}


def evaluated(model, data, *more):
    return evidence.evaluated(model, data, *more, output="y").astype(np.float64)


def by_onnxruntime(path, data):
    return outputs(path, data, names=["y"])[0].astype(np.float64)


def holds(name, model, data, weights, tables=()):
    """Checks for every format that exactly `weights` (and `tables` under weight_only) are quantized as weights, that the file runs as
    planned, and that its plan is recovered."""
    plain = evaluated(model, data)
    check(difference(plain, by_onnxruntime(model, data)) < 1e-5, f"{name}: as onnxruntime evaluates it")
    for kind, formats in FORMATS.items():
        file, calibrated = at(f"{kind}.onnx"), [*formats, "--calibration", data] if kind == "int8" else formats
        report = qk_json("quantize", "--recipe", "fast", model, "-o", file, *calibrated, "--overwrite")
        found = {e["consumer"] for e in report["edges"] if e["role"] == "weight"}
        check(found == {*weights, *(tables if kind == "int4" else ())}, f"{name}, {kind}: weights of {', '.join(sorted(found))}")
        planned = evaluated(model, data, *calibrated)
        noise = difference(planned, plain)
        check(0 < noise < 1, f"{name}, {kind}: quantizing changes {noise:.3f}")
        check(difference(by_onnxruntime(file, data), planned) < max(5e-2, noise), f"{name}, {kind}: onnxruntime runs the file as planned")
        check(difference(evaluated(file, data), planned) < max(1e-3, noise / 2), f"{name}, {kind}: and so does qk")
        qk("inspect", file, "--save-plan", at("back.json"), "--save-float", at("back.onnx"), "--overwrite")
        check(difference(evaluated(at("back.onnx"), data, "--plan", at("back.json")), planned) < max(1e-3, noise / 2), f"{name}, {kind}: and its plan comes back")
    return report


def test_fused():
    g = Graph(1)
    hidden, ms = 32, {"domain": "com.microsoft"}
    tables = [g.weight(n, rows, hidden, scale=0.3) for n, rows in (("word", 61), ("place", 16), ("kind", 2))]
    x, mask = g.op("EmbedLayerNormalization", "input_ids", "segment_ids", *tables, g.hold("gain", np.ones(hidden, np.float32)), g.weight("shift", hidden, scale=0.02), outputs=2, name="embed", **ms)
    for i in range(2):
        g.prefix = f"{i}/"
        y = g.op("Attention", x, g.weight("qkv", hidden, 3 * hidden), g.weight("qkv_bias", 3 * hidden, scale=0.02), mask if i == 0 else "", name="attention", num_heads=4, **ms)
        y = g.op("MatMul", y, g.weight("out", hidden, hidden), name="out")
        x = g.op("SkipLayerNormalization", y, x, g.hold(f"gain{i}", np.ones(hidden, np.float32)), g.weight("skip_shift", hidden, scale=0.02), name="skip", **ms)
    g.op("Identity", x)
    g.rename("y")
    ids = ["N", "S"]
    model = g.save(at("fused.onnx"), [("input_ids", TensorProto.INT32, ids), ("segment_ids", TensorProto.INT32, ids)], [("y", TensorProto.FLOAT, ["N", "S", hidden])], domains=["com.microsoft"])
    np.savez(at("fused.npz"), input_ids=rng.integers(0, 61, (1, 9)).astype(np.int32), segment_ids=rng.integers(0, 2, (1, 9)).astype(np.int32))
    report = holds("fused", model, at("fused.npz"), {"0/attention", "0/out", "1/attention", "1/out"}, ["embed"])
    check(sum(n["kind"] == "embedding" for n in report["notes"]) == 3, "fused: a remark for each of its tables of embeddings")


    common = ["--inputs", at("fused.npz"), "--metric", "l2", "--method", "measured"]
    told = [r for r in qk_json("sensitivity", model, *common)["remarks"] if "no layers to search" in r]
    check(len(told) == 1 and "'0/attention'" in told[0], "fused: a search says whose weights it leaves")
    with open(at("fixed.json"), "w") as f:
        json.dump({"requests": [{"op_type": "Attention", "activation": "int8", "weight": "int8"}]}, f)
    check(not any("no layers to search" in r for r in qk_json("sensitivity", model, *common, "--plan", at("fixed.json"))["remarks"]), "fused: and nothing where a request gives them a format")


def test_experts():
    g = Graph(2)
    hidden, count = 32, 4
    scores = g.op("MatMul", "x", g.weight("router.weight", hidden, count), name="router")
    chosen = g.op("ArgMax", scores, axis=-1, keepdims=0)  # [N]
    rows = g.op("Unsqueeze", "x", g.ints(1))  # [N,1,hidden]
    one = g.op("MatMul", rows, g.op("Gather", g.weight("up", count, hidden, 64), chosen, name="up_rows", axis=0), name="up")  # [in, out]
    turned = g.op("Transpose", g.op("Gather", g.weight("gate", count, 64, hidden, scale=0.2), chosen, name="gate_rows", axis=0), perm=[0, 2, 1])
    two = g.op("Sigmoid", g.op("MatMul", rows, turned, name="gate"))
    column = g.op("Transpose", g.op("Mul", one, two), perm=[0, 2, 1])
    y = g.op("MatMul", g.op("GatherND", g.weight("down", count, hidden, 64, scale=0.1), g.op("Unsqueeze", chosen, g.ints(1)), name="down_rows"), column, name="down")  # [out, in] first
    g.op("Squeeze", y, g.ints(2))
    g.rename("y")
    model = g.save(at("experts.onnx"), [("x", TensorProto.FLOAT, ["N", hidden])], [("y", TensorProto.FLOAT, ["N", hidden])])
    np.savez(at("experts.npz"), x=rng.standard_normal((1, hidden)).astype(np.float32))
    report = holds("experts", model, at("experts.npz"), {"router", "up_rows", "gate_rows", "down_rows"})
    shapes = {e["consumer"]: e["quantizer"] for e in report["edges"]}
    check([shapes[n]["axis"] % 3 for n in ("up_rows", "gate_rows", "down_rows")] == [1, 2, 2], "experts: blocks run along what is added up, whichever way the matrix stands")
    moving = {e["consumer"] for e in qk_json("quantize", "--recipe", "fast", model, "-o", at("m.onnx"), *FORMATS["mx"])["edges"] if e["role"] != "weight"}
    check(moving == {"router", "up", "gate", "down"}, "experts: the other operand of each product is an activation")


def test_empty_cache():
    g = Graph(4)
    past = g.op("Concat", "past", axis=1, name="alone")
    total = g.op("Concat", past, g.op("MatMul", "x", g.weight("k", 8, 8), name="k"), axis=1, name="join")
    g.rename("present")
    g.op("MatMul", "x", g.op("Transpose", "present", perm=[0, 2, 1]), name="scores")
    g.rename("y")
    del total
    shape = ["N", "S", 8]
    model = g.save(at("cache.onnx"), [("x", TensorProto.FLOAT, shape), ("past", TensorProto.FLOAT, ["N", "P", 8])], [("y", TensorProto.FLOAT, ["N", "S", "T"]), ("present", TensorProto.FLOAT, ["N", "T", 8])])
    np.savez(at("cache.npz"), x=rng.standard_normal((1, 5, 8)).astype(np.float32), past=np.zeros((1, 0, 8), np.float32))
    report = qk_json("quantize", "--recipe", "fast", model, "-o", at("cache_q.onnx"), *FORMATS["int8"], "--calibration", at("cache.npz"))
    told = {n["subject"] for n in report["notes"] if "saw no value" in n["text"]}
    check({"k", "scores"} <= {e["consumer"] for e in report["edges"]}, "a cache that calibration saw empty, behind a Concat of its own, is left; the rest is quantized")
    check(told <= {"tensor 'past'", "tensor 'alone/y'"}, f"and told: {sorted(told)}")
    check(difference(by_onnxruntime(at("cache_q.onnx"), at("cache.npz")), evaluated(model, at("cache.npz"), *FORMATS["int8"])) < 5e-2, "the file runs as planned")


if __name__ == "__main__":
    evidence.main()
