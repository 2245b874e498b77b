# SPDX-License-Identifier: Apache-2.0
"""Runs models of styles qoperator and qinteger in stock onnxruntime, and recovers plans from models that onnxruntime quantized."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, evaluated, folders, qk, residual_network
from evidence.graphs import model
from evidence.runtimes import keeps, run

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

rng = np.random.default_rng(7)


def network(opset):
    """A model with every operator that style qoperator writes, at an opset."""
    w = lambda *s: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32)
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        n("Relu", ["c1"], ["r1"], "relu1"),
        n("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1], group=8),
        n("Clip", ["c2", "zero", "one"], ["r2"], "clip"),
        n("Conv", ["r2", "w3"], ["c3"], "conv3"),
        n("Add", ["c3", "r1"], ["a"], "add"),
        n("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        n("AveragePool", ["r1"], ["q"], "average", kernel_shape=[2, 2], strides=[2, 2]),
        n("Concat", ["p", "q"], ["cat"], "cat", axis=1),
        n("Transpose", ["cat"], ["t"], "transpose", perm=[0, 1, 3, 2]),
        n("Conv", ["t", "w4", "b4"], ["c4"], "conv4"),
        n("GlobalAveragePool", ["c4"], ["g"], "gap"),
        n("Flatten", ["g"], ["f"], "flatten"),
        n("MatMul", ["f", "m"], ["mm"], "matmul"),
        n("Relu", ["mm"], ["rm"], "relu3"),
        n("Gemm", ["rm", "fc", "fcb"], ["y"], "fc", transB=1),
    ]
    held = {"w1": w(8, 3, 3, 3), "b1": w(8, 1).ravel(), "w2": w(8, 1, 3, 3), "b2": w(8, 1).ravel(), "w3": w(8, 8, 1, 1), "w4": w(12, 16, 1, 1), "b4": w(12, 1).ravel(),
            "m": w(12, 9), "fc": w(6, 9), "fcb": w(6, 1).ravel(), "zero": np.float32(0), "one": np.float32(0.7)}
    return model(nodes, {"x": ["N", 3, 12, 12]}, {"y": ["N", 6]}, held, opset=opset, ir_version=min(10, 6 + opset // 4))


def run_qk(path, x, *more):
    np.save(at("in.npy"), x)
    return evaluated(path, at("in.npy"), *more)


def agree(got, expected, plain, what):
    """Checks errors relative to the largest expected output, D being the largest error of `plain`: the median over samples is at most
    max(1e-3, D / 2), the maximum at most max(5e-2, D); 97 % of 100 samples or more have the same largest output."""
    got, expected, plain = (v.reshape(len(v), -1) for v in (got, expected, plain))
    largest = np.abs(expected).max()
    error, d = np.abs(got - expected).max(1) / largest, np.abs(plain - expected).max() / largest
    same = (got.argmax(1) == expected.argmax(1)).mean()
    ok = np.median(error) <= max(1e-3, d / 2) and error.max() <= max(5e-2, d) and (len(got) < 100 or same >= 0.97)
    check(bool(ok), f"{what}: median {np.median(error):.2g}, worst {error.max():.2g}, quantization {d:.2g}, same top-1 {same:.3f}")


def optimized_too(path, x, plain, batch, ours, what):
    """Checks that onnxruntime agrees with qk with the optimizer and without, and is no worse against float32 with it."""
    off, on = (run(path, x, level, batch) for level in ("off", "on"))
    agree(off, ours, plain, what + " as written")
    agree(on, ours, plain, what + " optimized")
    kept, said = keeps(on, off, plain)
    check(kept, f"{what}: {said}")


def operators(path):
    m = onnx.load(path)
    onnx.checker.check_model(m)
    return {n.op_type for n in m.graph.node}


def styles(path, x, calibration, name, integer_ops, dynamic_ops):
    plain = run(path, x, "off", 1)
    for flags in ([], ["--per-channel"], ["--keep-int8"]):
        out = at("q.onnx")
        qk("quantize", "--recipe", "fast", path, "-o", out, "--activation", "int8", "--weight", "int8", "--calibration", calibration, "--export", "qoperator", *flags)
        missing = integer_ops - operators(out)
        check(not missing, f"{name} qoperator {' '.join(flags)} has its operators {missing or ''}")
        ours = run_qk(out, x)
        optimized_too(out, x, plain, 8, ours, f"{name} qoperator {' '.join(flags)}")
    for flags in ([], ["--per-channel"]):
        out = at("q.onnx")
        qk("quantize", "--recipe", "fast", path, "-o", out, "--activation", "uint8", "--weight", "int8", "--approach", "dynamic", "--export", "qinteger", *flags)
        missing = dynamic_ops - operators(out)
        check(not missing, f"{name} qinteger {' '.join(flags)} has its operators {missing or ''}")
        ours = run_qk(out, x, "--batch", "1")
        optimized_too(out, x, plain, 1, ours, f"{name} qinteger {' '.join(flags)}")  # one sample a run: a run shares its dynamic scales


class Samples(CalibrationDataReader):
    def __init__(self, name, x):
        self.rest = iter([{name: x[i:i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self.rest, None)


def recovered(path, x, name):
    """Recovered from models that onnxruntime quantized, plan and float model compute the same and use the original's names."""
    original = onnx.load(path)
    names = {i.name for i in original.graph.input} | {i.name for i in original.graph.initializer} | {o for n in original.graph.node for o in n.output}
    for per_channel in (False, True):
        for activation, weight in ((QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8), (QuantType.QUInt8, QuantType.QUInt8)):
            out = at("theirs.onnx")
            quantize_static(path, out, Samples(original.graph.input[0].name, x[:8]), quant_format=QuantFormat.QDQ, per_channel=per_channel, activation_type=activation, weight_type=weight)
            expected = run(out, x, "off", 8)
            qk("inspect", out, "--save-plan", at("p.json"), "--save-float", at("f.onnx"))
            plan = json.load(open(at("p.json")))
            what = f"{name} by quantize_static {activation.name} {weight.name}{' per channel' if per_channel else ''}"
            strangers = [t for t in plan["tensors"] if t not in names] + [e["tensor"] for e in plan.get("edges", []) if e["tensor"] not in names]
            check(not strangers, f"{what}: {len(plan['tensors'])} tensors recovered under the original's names {strangers or ''}")
            left = {o for o in operators(at("f.onnx")) if "uantize" in o}
            check(not left, f"{what}: nothing left in the float model {left or ''}")
            agree(run_qk(at("f.onnx"), x, "--plan", at("p.json")), expected, run(path, x, "off", 8), what)
            agree(run_qk(path, x, "--plan", at("p.json")), expected, run(path, x, "off", 8), what + ", on the original")


@pytest.mark.parametrize("opset", (11, 17, 21))
def test_every_operator(opset):
    x = rng.standard_normal((24, 3, 12, 12)).astype(np.float32)
    np.save(at("calibration.npy"), x)
    onnx.save(network(opset), at("m.onnx"))
    styles(at("m.onnx"), x, at("calibration.npy"), f"opset {opset}",
           {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "MaxPool", "Transpose"},
           {"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"})
    if opset == 17:
        recovered(at("m.onnx"), x, "opset 17")


def test_residual_networks():
    for data in folders("reference"):
        network_file, samples = residual_network(data)
        pictures, name = samples(120), network_file.stem
        np.save(at("calibration.npy"), pictures[:32])
        styles(str(network_file), pictures, at("calibration.npy"), name, {"QLinearConv", "QGemm", "QLinearAdd", "QLinearGlobalAveragePool"}, {"ConvInteger", "MatMulInteger"})
        recovered(str(network_file), pictures, name)


if __name__ == "__main__":
    evidence.main()
