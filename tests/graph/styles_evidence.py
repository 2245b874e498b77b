# SPDX-License-Identifier: Apache-2.0
"""Runs models of styles qoperator and qinteger in stock onnxruntime, and recovers plans from models that onnxruntime quantized.

usage: styles_evidence.py QK    (the built command)
"""
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    import onnxruntime_runs
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

QK = sys.argv[1]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import data_folders

ort.set_default_logger_severity(3)
logging.disable(logging.WARNING)
rng = np.random.default_rng(7)
failures = 0


def check(ok, what):
    global failures
    print(("ok    " if ok else "WRONG ") + what)
    failures += not ok


def qk(*arguments):
    done = subprocess.run([QK, *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"qk {' '.join(arguments)}: {done.stderr}")
    return done


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


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
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 12, 12])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])], [constant(k, v) for k, v in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, 6 + opset // 4))


def run_ort(path, x, optimize, batch):
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL if optimize else ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    name = s.get_inputs()[0].name
    return np.concatenate([s.run(None, {name: x[i:i + batch]})[0] for i in range(0, len(x), batch)])


def run_qk(path, x, folder, *more):
    np.save(f"{folder}/in.npy", x)
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    qk("evaluate", path, "--inputs", f"{folder}/in.npy", "--output-dir", f"{folder}/out", "--json", *more)
    (name,) = os.listdir(f"{folder}/out")
    return np.load(f"{folder}/out/{name}")


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
    off, on = (run_ort(path, x, optimize, batch) for optimize in (False, True))
    agree(off, ours, plain, what + " as written")
    agree(on, ours, plain, what + " optimized")
    check(*onnxruntime_runs.keeps(on, off, plain))


def operators(path):
    m = onnx.load(path)
    onnx.checker.check_model(m)
    return {n.op_type for n in m.graph.node}


def styles(path, x, calibration, folder, name, integer_ops, dynamic_ops):
    plain = run_ort(path, x, False, 1)
    for flags in ([], ["--per-channel"], ["--keep-int8"]):
        out = f"{folder}/q.onnx"
        qk("quantize", "--recipe", "fast", path, "-o", out, "--activation", "int8", "--weight", "int8", "--calibration", calibration, "--export", "qoperator", *flags)
        missing = integer_ops - operators(out)
        check(not missing, f"{name} qoperator {' '.join(flags)} has its operators {missing or ''}")
        ours = run_qk(out, x, folder)
        optimized_too(out, x, plain, 8, ours, f"{name} qoperator {' '.join(flags)}")
    for flags in ([], ["--per-channel"]):
        out = f"{folder}/q.onnx"
        qk("quantize", "--recipe", "fast", path, "-o", out, "--activation", "uint8", "--weight", "int8", "--approach", "dynamic", "--export", "qinteger", *flags)
        missing = dynamic_ops - operators(out)
        check(not missing, f"{name} qinteger {' '.join(flags)} has its operators {missing or ''}")
        ours = run_qk(out, x, folder, "--batch", "1")
        optimized_too(out, x, plain, 1, ours, f"{name} qinteger {' '.join(flags)}")  # one sample a run: a run shares its dynamic scales


class Samples(CalibrationDataReader):
    def __init__(self, name, x):
        self.rest = iter([{name: x[i:i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self.rest, None)


def recovered(path, x, folder, name):
    """Recovered from models that onnxruntime quantized, plan and float model compute the same and use the original's names."""
    original = onnx.load(path)
    names = {i.name for i in original.graph.input} | {i.name for i in original.graph.initializer} | {o for n in original.graph.node for o in n.output}
    for per_channel in (False, True):
        for activation, weight in ((QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8), (QuantType.QUInt8, QuantType.QUInt8)):
            out = f"{folder}/theirs.onnx"
            quantize_static(path, out, Samples(original.graph.input[0].name, x[:8]), quant_format=QuantFormat.QDQ, per_channel=per_channel, activation_type=activation, weight_type=weight)
            expected = run_ort(out, x, False, 8)
            qk("inspect", out, "--save-plan", f"{folder}/p.json", "--save-float", f"{folder}/f.onnx")
            plan = json.load(open(f"{folder}/p.json"))
            what = f"{name} by quantize_static {activation.name} {weight.name}{' per channel' if per_channel else ''}"
            strangers = [t for t in plan["tensors"] if t not in names] + [e["tensor"] for e in plan.get("edges", []) if e["tensor"] not in names]
            check(not strangers, f"{what}: {len(plan['tensors'])} tensors recovered under the original's names {strangers or ''}")
            left = {o for o in operators(f"{folder}/f.onnx") if "uantize" in o}
            check(not left, f"{what}: nothing left in the float model {left or ''}")
            agree(run_qk(f"{folder}/f.onnx", x, folder, "--plan", f"{folder}/p.json"), expected, run_ort(path, x, False, 8), what)
            agree(run_qk(path, x, folder, "--plan", f"{folder}/p.json"), expected, run_ort(path, x, False, 8), what + ", on the original")


with tempfile.TemporaryDirectory() as folder:
    x = rng.standard_normal((24, 3, 12, 12)).astype(np.float32)
    np.save(f"{folder}/calibration.npy", x)
    integer_ops = {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "MaxPool", "Transpose"}
    for opset in (11, 17, 21):
        path = f"{folder}/m{opset}.onnx"
        onnx.save(network(opset), path)
        styles(path, x, f"{folder}/calibration.npy", folder, f"opset {opset}", integer_ops, {"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"})
    recovered(f"{folder}/m17.onnx", x, folder, "opset 17")
    for data in data_folders.folders(QK, "reference"):
        network_file, samples = data_folders.residual_network(data)
        pictures, name = samples(120), network_file.stem
        np.save(f"{folder}/calibration.npy", pictures[:32])
        styles(str(network_file), pictures, f"{folder}/calibration.npy", folder, name, {"QLinearConv", "QGemm", "QLinearAdd", "QLinearGlobalAveragePool"}, {"ConvInteger", "MatMulInteger"})
        recovered(str(network_file), pictures, folder, name)
sys.exit(1 if failures else 0)
