# SPDX-License-Identifier: Apache-2.0
"""A small network with every kind of layer, in every format of the catalogue, written by `qk quantize --export portable`.

usage: portable_networks.py QK
Odd numbers of channels, grouped and depthwise filters, a transposed convolution, Gemm, MatMul with weights and of two activations, a batch of any size.
ONNX Runtime (optimizer off and on, weights packed and float) and `qk evaluate` on the exported model agree with `qk evaluate --plan` on the float one,
up to the order of sums: that moves few roundings, so the median error stays small; a wrong rounding, scale or axis does not.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

QK = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="qk_networks_")
onnxruntime.set_default_logger_severity(3)


def at(name):
    return os.path.join(FOLDER, name)


def qk(*arguments):
    done = subprocess.run([QK, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("qk " + " ".join(map(str, arguments)) + "\n" + done.stdout + done.stderr)
    return done.stdout


def network(opset):
    r = np.random.default_rng(7)
    constants, nodes = [], []

    def weight(name, *shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        constants.append(numpy_helper.from_array((r.standard_normal(shape) / np.sqrt(fan)).astype(np.float32), name))
        return name

    def layer(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=output + "_node", **attributes))

    layer("Conv", ["x", weight("w1", 20, 3, 3, 3), weight("b1", 20)], "c1", pads=[1, 1, 1, 1])
    layer("Relu", ["c1"], "r1")
    layer("Conv", ["r1", weight("w2", 20, 1, 3, 3), weight("b2", 20)], "c2", group=20, strides=[2, 2])
    layer("Conv", ["c2", weight("w3", 24, 5, 1, 1)], "c3", group=4)
    layer("ConvTranspose", ["c3", weight("w4", 24, 37, 2, 2), weight("b4", 37)], "c4")
    layer("Relu", ["c4"], "r4")
    layer("GlobalAveragePool", ["r4"], "p")
    layer("Flatten", ["p"], "f")
    layer("Gemm", ["f", weight("w5", 33, 37), weight("b5", 33)], "g", transB=1)
    layer("MatMul", ["g", weight("w6", 33, 17)], "m")
    layer("Add", ["m", weight("b6", 17)], "a")
    constants.append(numpy_helper.from_array(np.array([0, 1, 17], np.int64), "row"))
    layer("Reshape", ["a", "row"], "q")
    layer("Transpose", ["q"], "k", perm=[0, 2, 1])
    layer("MatMul", ["k", "q"], "y")
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 9, 9])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 17, 17])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def run(model, x, optimizer):
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizer else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": part})[0] for part in (x[:1], x[1:]) if len(part)])  # two sizes of batch, if there are two samples


def evaluate(model, *more):
    qk("evaluate", model, "--inputs", at("x.npy"), "--output-dir", at("out"), *more)
    return np.load(os.path.join(at("out"), "y.npy"))


def main():
    formats = [f["name"] for f in json.loads(qk("formats", "--json"))["formats"] if f["name"] not in ("e8m0", "fp32")]
    x = np.random.default_rng(8).standard_normal((40, 3, 9, 9)).astype(np.float32)
    np.save(at("x.npy"), x)
    failures = 0
    for i, f in enumerate(formats + ["bfp:block=16,exponent=8,mantissa=10", "mx:element=fp6_e2m3,block=16", "float:exponent=4,mantissa=2"]):
        opset = (13, 18, 11)[i % 3]  # ReduceMax and ReduceSum changed in between
        onnx.save(network(opset), at("float.onnx"))
        if i < 3:
            plain = {opset: evaluate(at("float.onnx"))} if i == 0 else plain | {opset: evaluate(at("float.onnx"))}
        sizes = {}
        for storage in ("packed", "float"):
            qk("quantize", at("float.onnx"), "-o", at("quantized.onnx"), "--activation", f, "--weight", f, "--calibration", at("x.npy"), "--save-plan", at("plan.json"),
               "--export", "portable", "--weights", storage, *(["--per-channel"] if i % 2 else []))
            onnx.checker.check_model(onnx.load(at("quantized.onnx")), full_check=True)
            sizes[storage] = os.path.getsize(at("quantized.onnx"))
            expected = evaluate(at("float.onnx"), "--plan", at("plan.json"))
            scale = np.abs(expected).max()
            spread = np.abs(expected - plain[opset]).max() / scale
            results = {"qk evaluate": evaluate(at("quantized.onnx")), "optimizer off": run(at("quantized.onnx"), x, False), "optimizer on": run(at("quantized.onnx"), x, True)}
            for how, got in results.items():
                error = np.abs(got - expected).reshape(len(x), -1).max(1) / scale
                if not (np.median(error) <= 1e-3 and error.max() <= max(5e-2, spread)):
                    failures += 1
                    print(f"{f}, {storage}, {how}: median {np.median(error):.1e}, largest {error.max():.1e}; quantizing moves the output by {spread:.1e}")
        print(f"{f}: {sizes['packed']} bytes packed, {sizes['float']} in float32", flush=True)
    # Weights alone: between float activations onnxruntime's optimizer has fusions of its own.
    onnx.save(network(13), at("float.onnx"))
    for f in ("int8", "uint8", "int4", "uint4", "int16", "fp8_e4m3fn", "fp16", "mxfp4", "nvfp4"):
        for how in ([], ["--per-channel"], ["--weight-block", "16"] if "fp4" not in f and f != "fp16" else []):
            qk("quantize", at("float.onnx"), "-o", at("quantized.onnx"), "--weight", f, "--approach", "weight_only", "--save-plan", at("plan.json"), *how)
            expected = evaluate(at("float.onnx"), "--plan", at("plan.json"))
            for optimizer in (False, True):
                error = np.abs(run(at("quantized.onnx"), x, optimizer) - expected).max() / np.abs(expected).max()
                if error > 1e-5:
                    failures += 1
                    print(f"weights {f} {how}, optimizer {optimizer}: differs by {error:.1e}")
    # Scales from the values of each sample: one rounding more or less of a tensor's largest value moves all the others.
    for f in ("int8", "uint8", "int4", "int16", "int:bits=5", "fp8_e4m3fn", "fp8_e5m2", "fp6_e2m3", "nvfp4", "fp16"):
        qk("quantize", at("float.onnx"), "-o", at("quantized.onnx"), "--activation", f, "--weight", f, "--per-channel", "--approach", "dynamic", "--save-plan", at("plan.json"))
        expected = evaluate(at("float.onnx"), "--plan", at("plan.json"), "--batch", 1)
        scale = np.abs(expected).max()
        spread = np.abs(expected - plain[13]).max() / scale
        results = {"qk evaluate": evaluate(at("quantized.onnx"), "--batch", 1)} | {
            f"optimizer {optimizer}": np.concatenate([run(at("quantized.onnx"), x[i:i + 1], optimizer) for i in range(len(x))]) for optimizer in (False, True)}
        for how, got in results.items():
            error = np.abs(got - expected).reshape(len(x), -1).max(1) / scale
            if not (np.median(error) <= 1e-3 and error.max() <= max(5e-2, spread)):
                failures += 1
                print(f"dynamic {f}, {how}: median {np.median(error):.1e}, largest {error.max():.1e}; quantizing moves the output by {spread:.1e}")
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
