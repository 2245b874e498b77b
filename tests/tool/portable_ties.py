# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime and `qk evaluate` differ on a quantized network with normalizations and pools only where a value lies on a tie.

Every activation is quantized (--placement every) and ONNX Runtime's optimizer is off; with it on, outputs are no further from float32's.
Follows the quantizers in order: among samples that agree so far, both sides differ before a quantizer by the order of float sums, and
behind it only in elements that lay between two codes. Samples without such an element have equal outputs.
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, evaluated, qk
from evidence.graphs import save
from evidence.runtimes import keeps, outputs, run

import numpy as np
import onnx
import pytest
from onnx import helper

SAMPLES = 300


def network(r, file):
    constants = {}

    def weight(name, *shape, scale=0.3, mean=0.0):
        constants[name] = (mean + scale * r.standard_normal(shape)).astype(np.float32)
        return name

    nodes = [helper.make_node(op, inputs, [output], output + "_node", **attributes) for op, inputs, output, attributes in (
        ("Conv", ["x", weight("w1", 32, 3, 3, 3), weight("b1", 32)], "c1", {"pads": [1, 1, 1, 1]}),
        ("LayerNormalization", ["c1", weight("g1", 32, 16, 16, scale=0.1, mean=1), weight("s1", 32, 16, 16)], "l1", {"axis": 1}),
        ("Relu", ["l1"], "r1", {}),
        ("MaxPool", ["r1"], "p1", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Conv", ["p1", weight("w2", 48, 32, 3, 3, scale=0.1), weight("b2", 48)], "c2", {"pads": [1, 1, 1, 1]}),
        ("AveragePool", ["c2"], "p2", {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
        ("GlobalAveragePool", ["p2"], "p3", {}),
        ("Flatten", ["p3"], "f", {}),
        ("LayerNormalization", ["f", weight("g2", 48, scale=0.1, mean=1), weight("s2", 48)], "l2", {"axis": -1}),
        ("Gemm", ["l2", weight("w3", 10, 48), weight("b3", 10)], "g", {"transB": 1}),
        ("Softmax", ["g"], "y", {}))]
    return save(file, nodes, {"x": ["N", 3, 16, 16]}, {"y": ["N", 10]}, constants)


def quantizers(model):
    """Returns (float tensor, result of its function or Q/DQ pair) of each quantized activation, in order."""
    constants = {i.name for i in model.graph.initializer}
    coded, pairs = {}, []
    for n in model.graph.node:
        if n.op_type == "QuantizeLinear":
            coded[n.output[0]] = n.input[0]
        elif n.op_type == "DequantizeLinear":
            if n.input[0] in coded:
                pairs.append((coded[n.input[0]], n.output[0]))
        elif n.domain not in ("", "ai.onnx") and n.input[0] not in constants:
            pairs.append((n.input[0], n.output[0]))
    return [(a, b) for a, b in pairs if a != "x"]


def both_sides(model, names, x):
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    onnx.save(shown, at("shown.onnx"))
    theirs = outputs(at("shown.onnx"), {"x": x}, "off", names)
    ours = evaluated(at("shown.onnx"), at("x.npy"), output=names)
    return {n: (t.astype(np.float64), o.astype(np.float64)) for n, t, o in zip(names, theirs, ours)}


@pytest.mark.parametrize("f, elementwise", (("int8", True), ("uint8", True), ("fp8_e4m3fn", True), ("mxfp8_e4m3", False), ("bfp16", False), ("mx6", False)))
def test_values_differ_on_ties_alone(f, elementwise):
    r = np.random.default_rng(1)
    network(r, at("float.onnx"))
    x = r.standard_normal((SAMPLES, 3, 16, 16)).astype(np.float32)
    np.save(at("x.npy"), x)
    qk("quantize", at("float.onnx"), "-o", at("quantized.onnx"), "--activation", f, "--weight", f, "--placement", "every", "--calibration", at("x.npy"))
    model = onnx.load(at("quantized.onnx"))
    pairs = quantizers(model)
    values = both_sides(model, sorted({t for pair in pairs for t in pair}), x)
    equal, flips, furthest, ties = np.ones(SAMPLES, bool), 0, 0.0, 0.0
    for before, after in pairs:
        (u, v), (s, t) = ([side.reshape(SAMPLES, -1)[equal] for side in values[name]] for name in (before, after))
        largest = np.abs(v).max()
        furthest = max(furthest, np.abs(u - v).max() / largest)
        apart = s != t
        if elementwise and apart.any():
            ties = max(ties, np.abs((u + v) / 2 - (s + t) / 2)[apart].max() / largest)
        flips += int(apart.sum())
        equal[np.flatnonzero(equal)[apart.any(1)]] = False
    ends = np.abs(values["y"][0] - values["y"][1])[equal].max() if equal.any() else 0.0
    good = len(pairs) >= 9 and furthest < 1e-5 and ties < 1e-5 and ends == 0 and equal.sum() >= SAMPLES / 4
    check(good, f"{f}: {len(pairs)} quantizers; apart in front of one by at most {furthest:.1e} of the largest; {flips} elements on a tie"
          + (f" (within {ties:.1e})" if elementwise else "") + f" in {SAMPLES - equal.sum()} of {SAMPLES} samples; the others end apart by {ends:.1e}")
    kept, said = keeps(*(run(at("quantized.onnx"), x, level) for level in ("on", "off")), run(at("float.onnx"), x))
    check(kept, f"{f}: {said}")


if __name__ == "__main__":
    evidence.main()
