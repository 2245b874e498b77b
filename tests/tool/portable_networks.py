# SPDX-License-Identifier: Apache-2.0
"""Quantizes a small network with every kind of layer in every format of the catalogue and by every approach.

It has odd numbers of channels, grouped and depthwise filters, a transposed convolution, Gemm, MatMul with weights and of two activations,
and any batch size. ONNX Runtime (optimizer off and on, weights packed and float) and `qk evaluate` on the exported model agree with
`qk evaluate --plan` on the float model up to the order of sums. That flips few roundings, so the median error stays small; with a wrong
rounding, scale or axis it does not.
"""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, evaluated, qk, qk_json
from evidence.graphs import model
from evidence.runtimes import keeps, session

import numpy as np
import onnx
import pytest
from onnx import helper


def network(opset):
    r = np.random.default_rng(7)
    constants, nodes = {}, []

    def weight(name, *shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        constants[name] = (r.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
        return name

    def layer(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=output + "_node", **attributes))

    layer("Conv", ["x", weight("w1", 20, 3, 3, 3), weight("b1", 20)], "c1", pads=[1, 1, 1, 1])
    layer("Relu", ["c1"], "r0")
    layer("MaxPool", ["r0"], "r1", kernel_shape=[2, 2], strides=[1, 1])
    layer("Conv", ["r1", weight("w2", 20, 1, 3, 3), weight("b2", 20)], "c2", group=20, strides=[2, 2])
    layer("Conv", ["c2", weight("w3", 24, 5, 1, 1)], "c3", group=4)
    layer("ConvTranspose", ["c3", weight("w4", 24, 37, 2, 2), weight("b4", 37)], "c4")
    layer("Relu", ["c4"], "r4")
    layer("GlobalAveragePool", ["r4"], "p")
    layer("Flatten", ["p"], "f")
    layer("Gemm", ["f", weight("w5", 33, 37), weight("b5", 33)], "g1", transB=1)
    layer("Gemm", ["g1", weight("w5b", 33, 33), weight("b5b", 33)], "g")
    layer("MatMul", ["g", weight("w6", 33, 17)], "m")
    layer("Add", ["m", weight("b6", 17)], "a")
    constants["row"] = np.array([0, 1, 17], np.int64)
    layer("Reshape", ["a", "row"], "q")
    layer("Transpose", ["q"], "k", perm=[0, 2, 1])
    layer("MatMul", ["k", "q"], "y")
    return model(nodes, {"x": ["N", 3, 9, 9]}, {"y": ["N", 17, 17]}, constants, opset=opset)


def run(model, parts, optimizer):
    runs = session(model, "on" if optimizer else "off")
    return np.concatenate([runs.run(None, {"x": part})[0] for part in parts])


def evaluate(model, *more):
    return evaluated(model, at("x.npy"), *more)


class Comparison:
    """Compares models that `qk quantize` writes, run by ONNX Runtime and by `qk evaluate`, with the plan on the float model."""

    def __init__(self, x):
        self.x, self.plain = x, {}
        np.save(at("x.npy"), x)

    def model(self, opset):
        self.opset = opset
        onnx.save(network(opset), at("float.onnx"))
        if opset not in self.plain:
            self.plain[opset] = evaluate(at("float.onnx"))

    def hold(self, label, flags, median=1e-3, largest=5e-2, alone=False):
        """Quantizes with `flags` and checks the errors; with `alone` sample by sample. Returns the size of the file."""
        qk("quantize", "--recipe", "fast", at("float.onnx"), "-o", at("quantized.onnx"), "--calibration", at("x.npy"), "--save-plan", at("plan.json"), *flags)
        onnx.checker.check_model(onnx.load(at("quantized.onnx")), full_check=True)
        batch = ["--batch", 1] if alone else []
        expected = evaluate(at("float.onnx"), "--plan", at("plan.json"), *batch)
        scale = np.abs(expected).max()
        spread = np.abs(expected - self.plain[self.opset]).max() / scale
        results = {"qk evaluate": evaluate(at("quantized.onnx"), *batch)}
        for optimizer in (False, True):
            parts = [self.x[i:i + 1] for i in range(len(self.x))] if alone else [self.x[:1], self.x[1:]]  # two batch sizes
            results[f"optimizer {'on' if optimizer else 'off'}"] = run(at("quantized.onnx"), parts, optimizer)
        for how, got in results.items():
            error = np.abs(got - expected).reshape(len(self.x), -1).max(1) / scale
            check(np.median(error) <= median and error.max() <= max(largest, spread if largest > median else 0),
                  f"{label}, {how}: median {np.median(error):.1e}, largest {error.max():.1e}; quantizing moves the output by {spread:.1e}")
        kept, said = keeps(results["optimizer on"], results["optimizer off"], self.plain[self.opset])
        check(kept, f"{label}: {said}")
        check(spread != 0, f"{label}: nothing was quantized")
        return os.path.getsize(at("quantized.onnx"))


def catalogue():
    return [f["name"] for f in qk_json("formats")["formats"] if f["name"] not in ("e8m0", "fp32")]


@pytest.fixture
def c():
    c = Comparison(np.random.default_rng(8).standard_normal((40, 3, 9, 9)).astype(np.float32))
    c.model(13)
    return c


def test_every_format(c):
    for i, f in enumerate(catalogue() + ["bfp:block=16,exponent=8,mantissa=10", "mx:element=fp6_e2m3,block=16", "float:exponent=4,mantissa=2"]):
        c.model((13, 18, 11)[i % 3])  # ReduceMax and ReduceSum changed between these opsets
        flags = ["--activation", f, "--weight", f, *(["--per-channel"] if i % 2 else [])]
        for storage in ("packed", "float"):
            c.hold(f"{f}, {storage}", flags + ["--weights", storage])


def test_casts(c):
    floats = os.path.getsize(at("float.onnx"))
    # 16-bit floats are written as Cast, with no other new operator, in half the bytes.
    for f in ("fp16", "bf16"):
        size = c.hold(f"{f}, qdq", ["--activation", f, "--weight", f, "--export", "qdq"])
        operators = {n.op_type for n in onnx.load(at("quantized.onnx")).graph.node} - {n.op_type for n in onnx.load(at("float.onnx")).graph.node}
        check(operators == {"Cast"} and size <= 0.75 * floats, f"{f}: new operators {operators}, {size} bytes of {floats}")


def test_pairs(c):
    # Pairs that onnxruntime's optimizer would fuse into operators of other types or requantize; also each format with one other format
    # (QK_EXHAUSTIVE=1: with all others), as activation and weight and in neighbouring layers.
    pairs = [("int4", "int8"), ("uint4", "uint8"), ("uint8", "fp8_e4m3fn"), ("int8", "int32"), ("int16", "int8"), ("uint8", "fp16"), ("uint8", "mxfp4"), ("int16", "fp32"), ("uint8", "int2")]
    formats = catalogue()
    n = len(formats)
    for k in range(1, n) if "QK_EXHAUSTIVE" in os.environ else (n // 2,):
        pairs += [(f, formats[(i + k) % n]) for i, f in enumerate(formats)]
    for i, (activation, weight) in enumerate(pairs):
        c.hold(f"{activation} with {weight}", ["--activation", activation, "--weight", weight, *(["--per-channel"] if i % 2 else [])])
        if i % 3 == 0 or "QK_EXHAUSTIVE" in os.environ:
            every_other = [{"layer": f"{name}_node", "activation": weight, "weight": weight} for name in ("c2", "c4", "m")]
            with open(at("requests.json"), "w") as f:
                json.dump({"default": {"activation": activation, "weight": activation}, "requests": every_other, "boundary": "dual" if i % 2 else "wider"}, f)
            c.hold(f"{activation} beside {weight}", ["--plan", at("requests.json")])


def test_zero_points(c):
    """Zero points above the lowest code behind a Relu, and a Clip that qk writes in front of QuantizeLinear."""
    for f in ("int8", "uint8", "int4", "uint4", "int16", "int:bits=3", "int:bits=5", "int:bits=12"):
        c.hold(f"{f}, symmetric", ["--activation", f, "--weight", "int8", "--symmetric", "--keep-int8", "--per-tensor"])  # full range in every channel saturates without VNNI


def test_weights_alone(c):
    """Only weights: onnxruntime's optimizer has other fusions for float activations."""
    for f in ("int8", "uint8", "int4", "uint4", "int16", "fp8_e4m3fn", "fp16", "bf16", "mxfp4", "nvfp4"):
        for how in ([], ["--per-channel"], ["--weight-block", "16"] if "fp4" not in f and "16" not in f else ["--weights", "float"]):
            c.hold(f"weights {f} {how}", ["--weight", f, "--approach", "weight_only", *how], median=1e-5, largest=1e-5)
    for f in ("fp16", "bf16"):  # not int8: onnxruntime would make MatMulNBits of it, which rounds activations
        c.hold(f"weights {f}, qdq", ["--weight", f, "--approach", "weight_only", "--per-channel", "--export", "qdq"])


def test_dynamic_scales(c):
    """Dynamic scales of each sample: a different rounding of a tensor's largest value moves all its other values."""
    for f in ("int8", "uint8", "int4", "int16", "int:bits=5", "fp8_e4m3fn", "fp8_e5m2", "fp6_e2m3", "nvfp4", "fp16"):
        c.hold(f"dynamic {f}", ["--activation", f, "--weight", f, "--per-channel", "--approach", "dynamic"], alone=True)
    for flags in ([], ["--per-channel"]):
        c.hold(f"dynamic uint8, qinteger {flags}", ["--activation", "uint8", "--weight", "int8", "--approach", "dynamic", "--export", "qinteger", *flags], alone=True)


def test_static_styles(c):
    for style in ("qdq", "qoperator"):
        c.hold(f"static uint8, {style}", ["--activation", "uint8", "--weight", "int8", "--per-channel", "--export", style])


if __name__ == "__main__":
    evidence.main()
