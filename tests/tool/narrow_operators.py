# SPDX-License-Identifier: Apache-2.0
"""com.microsoft's operators on codes of 2 and 4 bits, evaluated beside onnxruntime: QMoE of FP4 experts, GatherBlockQuantized of small floats, MatMulNBits.

    narrow_operators.py QK
"""
import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "graph"))
import evidence
from evidence import FOLDER, check, qk

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

random = np.random.default_rng(3)
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
FP4 = np.concatenate([FP4, -FP4])


def decibels(a, b):
    error = np.sum((np.asarray(a, np.float64) - b) ** 2)
    return np.inf if error == 0 else 10 * np.log10(np.sum(np.asarray(a, np.float64) ** 2) / error)


def model(folder, node, inputs, constants, shape):
    graph = h.make_graph([node], "g", inputs, [h.make_tensor_value_info("y", T.FLOAT, shape)], constants)
    file = folder / "m.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 24), h.make_opsetid("com.microsoft", 1)], ir_version=11), file)
    return file


def both(folder, file, inputs):
    """What qk and onnxruntime compute."""
    np.savez(folder / "x.npz", **inputs)
    qk("evaluate", file, "--inputs", folder / "x.npz", "--output-dir", folder / "out", "--overwrite")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    return np.load(folder / "out" / "y.npy"), theirs


def experts(folder):
    count, hidden, inner = 3, 64, 96
    for kind, block in (("fp4", 32), ("nvfp4", 16)):
        def layer(out, inputs):
            codes = random.integers(0, 16, (count, out, inputs)).astype(np.uint8)
            if kind == "fp4":
                scales = random.integers(122, 126, (count, out, inputs // block)).astype(np.uint8)
                value = np.exp2(scales.astype(np.float32) - 127)
            else:
                scales = random.uniform(0.05, 0.2, (count, out, inputs // block)).astype(ml_dtypes.float8_e4m3fn)
                value = scales.astype(np.float32)
            whole = random.uniform(0.5, 1.5, count).astype(np.float32)
            return codes[:, :, 0::2] | codes[:, :, 1::2] << 4, scales, whole, FP4[codes] * np.repeat(value, block, axis=2) * whole[:, None, None]
        (w1, s1, g1, v1), (w2, s2, g2, v2) = layer(2 * inner, hidden), layer(hidden, inner)
        type_of_scales = T.FLOAT8E8M0 if kind == "fp4" else T.FLOAT8E4M3FN
        constants = [nh.from_array(w1, "w1"), nh.from_array(w2, "w2"), nh.from_array(g1, "g1"), nh.from_array(g2, "g2"),
                     *(h.make_tensor(n, type_of_scales, s.shape, s.tobytes(), raw=True) for n, s in (("s1", s1), ("s2", s2)))]
        node = h.make_node("QMoE", ["x", "p", "w1", "s1", "", "w2", "s2", *[""] * 8, "g1", "g2"], ["y"], domain="com.microsoft", name="experts", quant_type=kind, k=1, weights_prepacked=1,
                           activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0, block_size=block)
        file = model(folder, node, [h.make_tensor_value_info("x", T.FLOAT, [8, hidden]), h.make_tensor_value_info("p", T.FLOAT, [8, count])], constants, [8, hidden])
        x, p = random.normal(size=(8, hidden)).astype(np.float32), random.normal(size=(8, count)).astype(np.float32)
        ours, theirs = both(folder, file, {"x": x, "p": p})
        share = np.exp(p - p.max(1, keepdims=True))
        share = (share / share.sum(1, keepdims=True)).max(1)
        def gated(u):
            gate, linear = np.minimum(u[0::2], 7), np.clip(u[1::2], -7, 7)
            return gate / (1 + np.exp(-1.702 * gate)) * (linear + 1)
        exact = np.stack([share[t] * (v2[e].astype(np.float64) @ gated(v1[e].astype(np.float64) @ x[t])) for t, e in enumerate(p.argmax(1))])
        check(decibels(exact, ours) > 110, f"QMoE {kind}: {decibels(exact, ours):.1f} dB beside its formula")
        # onnxruntime rounds activations to int8 there.
        check(decibels(exact, theirs) > 35, f"QMoE {kind}: onnxruntime is {decibels(exact, theirs):.1f} dB beside the formula")


def tables(folder):
    rows, width = 20, 64
    table = (random.normal(size=(rows, width)) * 2).astype(np.float32)
    inputs = [h.make_tensor_value_info("i", T.INT64, [5])]
    i = np.array([0, 3, 19, 3, -1], np.int64)
    for name, kind, codes in (("FP4", T.FLOAT4E2M1, table.astype(ml_dtypes.float4_e2m1fn)), ("FP8", T.FLOAT8E4M3FN, table.astype(ml_dtypes.float8_e4m3fn))):
        raw = codes.view(np.uint8)
        packed = (raw[:, 0::2] & 15 | raw[:, 1::2] << 4) if name == "FP4" else raw
        for block, shape in ((16, (rows, 4)), (0, (rows, 1)), (0, (1, 1))):
            scales = random.uniform(0.5, 2, shape).astype(np.float32)
            node = h.make_node("GatherBlockQuantized", ["t", "i", "s"], ["y"], domain="com.microsoft", name="table", block_size=block, gather_axis=0, quantize_axis=1)
            file = model(folder, node, inputs, [h.make_tensor("t", kind, [rows, width], packed.tobytes(), raw=True), nh.from_array(scales, "s")], [5, width])
            ours, theirs = both(folder, file, {"i": i})
            check(np.array_equal(ours, theirs), f"{name} in blocks of {block} under scales {shape}: {decibels(theirs, ours):.1f} dB beside onnxruntime")


def two_bits(folder):
    out, inputs, block = 24, 64, 32
    codes = random.integers(0, 4, (out, inputs)).astype(np.uint8)
    packed = codes[:, 0::4] | codes[:, 1::4] << 2 | codes[:, 2::4] << 4 | codes[:, 3::4] << 6
    scales = random.uniform(0.1, 0.3, (out, inputs // block)).astype(np.float32)
    node = h.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", name="product", K=inputs, N=out, bits=2, block_size=block)
    file = model(folder, node, [h.make_tensor_value_info("x", T.FLOAT, [8, inputs])], [nh.from_array(packed.reshape(out, inputs // block, block // 4), "w"), nh.from_array(scales.flatten(), "s")],
                 [8, out])
    x = random.normal(size=(8, inputs)).astype(np.float32)
    ours, theirs = both(folder, file, {"x": x})
    exact = x.astype(np.float64) @ ((codes.astype(np.float64) - 2) * np.repeat(scales, block, axis=1)).T
    check(decibels(exact, ours) > 110, f"2-bit MatMulNBits: {decibels(exact, ours):.1f} dB beside its formula")
    check(decibels(exact, theirs) > 35, f"2-bit MatMulNBits: onnxruntime is {decibels(exact, theirs):.1f} dB beside the formula")
    # Written from a plan, and read back.
    w = nh.from_array((random.normal(size=(inputs, out)) * 0.3).astype(np.float32), "w")
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g", [h.make_tensor_value_info("x", T.FLOAT, [8, inputs])], [h.make_tensor_value_info("y", T.FLOAT, [8, out])], [w])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), folder / "f.onnx")
    qk("quantize", folder / "f.onnx", "-o", folder / "n.onnx", "--export", "nbits", "--weight", "int2", "--approach", "weight_only", "--weight-block", "32", "--save-plan",
       folder / "p.json", "--overwrite")
    nodes = [n for n in onnx.load(folder / "n.onnx").graph.node if n.op_type == "MatMulNBits"]
    check(len(nodes) == 1 and {a.name: a.i for a in nodes[0].attribute}["bits"] == 2, "a plan of int2 becomes MatMulNBits of 2 bits")
    ours, theirs = both(folder, folder / "n.onnx", {"x": x})
    check(decibels(ours, theirs) > 35, f"written 2-bit MatMulNBits: {decibels(ours, theirs):.1f} dB")


folder = Path(FOLDER)
for part in (experts, tables, two_bits):
    part(folder)
sys.exit(bool(evidence.failures))
