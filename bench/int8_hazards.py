# SPDX-License-Identifier: Apache-2.0
"""Makes a table for bench/keep_measurement.py: what onnxruntime makes of 8-bit layers on processors with AVX2 but no VNNI, by types of
activations and weights, operator and optimizer level.

usage: int8_hazards.py [--native]    (needs qemu-x86_64, which emulates such a processor; --native: this processor instead)

Each layer has large activations, and large weights of one sign per channel, so that a kernel which adds two products in 16 bits overflows.
A cell names the operator that ran. If the operator is not exact up to the rounding of its result, the cell has its error in dB, the worse
of scales by tensor and by channel.
"""
import argparse
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from evidence import runtimes as onnxruntime_runs

FLOAT = TensorProto.FLOAT
rng = np.random.default_rng(3)
node = helper.make_node
ACTIVATIONS = {"uint8": (np.uint8, 100), "int8": (np.int8, -28)}
WEIGHTS = {"int8": (np.int8, 0), "uint8": (np.uint8, 128)}


class Layer:
    """A layer's parameters as codes. Scales: 0.02 for activations, 0.01 (times 1 to 2 by channel) for weights, 4 for results."""

    def __init__(self, op, weights, per_channel):
        self.op, self.per_channel, self.nodes, self.held = op, per_channel, [], {}
        shape = {"Conv": (16, 8, 3, 3), "depthwise Conv": (16, 1, 3, 3), "MatMul": (64, 16), "Gemm": (16, 64)}[op]
        channels = 1 if op == "MatMul" else 0
        codes = rng.choice(np.arange(90, 128), shape).astype(np.int64) * np.where(np.arange(shape[channels]) % 3 == 0, -1, 1).reshape([-1 if i == channels else 1 for i in range(len(shape))])
        scales = np.float32(0.01) * (1 + np.arange(shape[channels], dtype=np.float32) / shape[channels] if per_channel else np.ones((), np.float32))
        kind, zero = WEIGHTS[weights]
        self.axis = channels
        self.hold("w", (codes + zero).astype(kind))
        self.hold("ws", scales)
        self.hold("wz", np.full(scales.shape, zero, kind))
        wide = scales.reshape([-1 if per_channel and i == channels else 1 for i in range(len(shape))])
        self.real = codes * wide.astype(np.float64)
        self.x = (0.02 * rng.integers(60, 156, (4, 8 if op == "Conv" else 16, 6, 6) if "Conv" in op else (4, 64))).astype(np.float32)

    def hold(self, name, value):
        self.held[name] = np.asarray(value)
        return name

    def activation(self, kind):
        """Makes codes xq of x with scale xs and zero point xz."""
        if kind == "uint8 dynamic":
            self.nodes.append(node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]))
            return
        number, zero = ACTIVATIONS[kind]
        self.hold("xs", np.float32(0.02)), self.hold("xz", number(zero)), self.hold("ys", np.float32(4)), self.hold("yz", number(zero))
        self.nodes.append(node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]))

    def attributes(self):
        return {"Conv": {}, "depthwise Conv": {"group": 16}, "MatMul": {}, "Gemm": {"transB": 1}}[self.op]

    def pairs(self, kind):
        """Builds DequantizeLinear, the layer, QuantizeLinear, DequantizeLinear."""
        float_op = self.op.split()[-1]
        if kind != "float32":
            self.activation(kind)
            self.nodes.append(node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]))
        self.nodes += [node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=self.axis),
                       node(float_op, ["x" if kind == "float32" else "xd", "wd"], ["f"], **self.attributes())]
        self.result(kind, "f")

    def integer(self, kind):
        """Builds the integer operator that styles qoperator and qinteger write."""
        self.activation(kind)
        if kind == "uint8 dynamic":
            op = "ConvInteger" if "Conv" in self.op else "MatMulInteger"
            if self.op == "Gemm":
                self.hold("w", self.held["w"].T.copy())
            self.hold("wz", self.held["wz"].ravel()[0])
            along = (1, -1, 1, 1) if "Conv" in self.op else (-1,)
            self.hold("channel_scales", self.held["ws"].reshape(along) if self.per_channel else self.held["ws"])
            self.nodes += [node(op, ["xq", "w", "xz", "wz"], ["sums"], **(self.attributes() if "Conv" in self.op else {})), node("Cast", ["sums"], ["wide"], to=FLOAT),
                           node("Mul", ["xs", "channel_scales"], ["scales"]), node("Mul", ["wide", "scales"], ["y"])]
            return
        op, domain = {"Conv": ("QLinearConv", ""), "depthwise Conv": ("QLinearConv", ""), "MatMul": ("QLinearMatMul", ""), "Gemm": ("QGemm", "com.microsoft")}[self.op]
        inputs = ["xq", "xs", "xz", "w", "ws", "wz", *([""] if op == "QGemm" else []), "ys", "yz"]
        self.nodes.append(node(op, inputs, ["yq"], domain=domain, **self.attributes()))
        self.nodes.append(node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]))

    def result(self, kind, name):
        if kind in ("uint8 dynamic", "float32"):
            self.nodes.append(node("Identity", [name], ["y"]))
        else:
            self.nodes += [node("QuantizeLinear", [name, "ys", "yz"], ["yq"]), node("DequantizeLinear", ["yq", "ys", "yz"], ["y"])]

    def expected(self):
        """Returns the layer's result in float64."""
        if self.op == "MatMul":
            return self.x.astype(np.float64) @ self.real
        if self.op == "Gemm":
            return self.x.astype(np.float64) @ self.real.T
        windows = np.lib.stride_tricks.sliding_window_view(self.x.astype(np.float64), (3, 3), (2, 3))
        if self.op == "Conv":
            return np.einsum("ncyxhw,ochw->noyx", windows, self.real)
        return np.einsum("ncyxhw,chw->ncyx", windows, self.real[:, 0])

    def save(self, path):
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", FLOAT, ["N", *self.x.shape[1:]])], [helper.make_tensor_value_info("y", FLOAT, None)],
                                  [numpy_helper.from_array(v, k) for k, v in self.held.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), path)


def operator_of(path):
    """Returns the operator that the optimizer made of the layer."""
    names = [n.op_type for n in onnx.load(path).graph.node]
    for known in ("QLinearConv", "QLinearMatMul", "QGemm", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "ConvInteger", "MatMulInteger", "MatMulNBits", "FusedGemm", "FusedConv", "FusedMatMul", "Conv", "Gemm",
                  "MatMul"):
        if known in names:
            return known
    return "+".join(names)


OPERATORS = ("Conv", "depthwise Conv", "MatMul", "Gemm")


def outcome(layer, activation, y, path):
    """Returns (operator, decibels); 200 dB stands for exact."""
    if isinstance(y, str):
        return "no kernel" if "NOT_IMPLEMENTED" in y else "does not run: " + y, 200.0
    expected = layer.expected()
    # Bounds: half of the result's step of 4; for float32 the order of sums; a dynamic scale rounds activations once more.
    bound = {"float32": 1e-4 * np.abs(expected).max(), "uint8 dynamic": 8e-3 * np.abs(expected).max()}.get(activation, 2.001)
    return operator_of(path), 200.0 if np.abs(y - expected).max() <= bound else onnxruntime_runs.decibels(y, expected)


def cell(found):
    """Returns the table's cell for the outcomes by tensor and by channel."""
    operators = "/".join(dict.fromkeys(o for o, _ in found))
    worst = min(d for _, d in found)
    return operators + ("" if worst == 200 else f", {worst:.0f} dB" if worst > 60 else f" **{worst:.0f} dB**")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs, rows = [], []
        for style in ("pairs", "integer operators"):
            for activation in ("uint8", "int8", "uint8 dynamic", *(["float32"] if style == "pairs" else [])):
                for weights in WEIGHTS:
                    for op in OPERATORS:
                        for per_channel in (False, True):
                            layer = Layer(op, weights, per_channel)
                            (layer.pairs if style == "pairs" else layer.integer)(activation)
                            path = f"{folder}/{len(rows)}.onnx"
                            layer.save(path)
                            rows.append((style, activation, weights, op, layer))
                            jobs += [{"model": path, "x": layer.x, "level": level, "optimized": f"{path}.{level}.onnx"} for level in onnxruntime_runs.LEVELS]
        results = iter(zip(onnxruntime_runs.run_all(jobs, not given.native), jobs))
        table = {}  # (style, activations, weights) -> level -> operator -> outcomes
        for style, activation, weights, op, layer in rows:
            for level in onnxruntime_runs.LEVELS:
                y, job = next(results)
                table.setdefault((style, activation, weights), {}).setdefault(level, {}).setdefault(op, []).append(outcome(layer, activation, y, job["optimized"]))
    print("| written as | activations | weights | optimizer | " + " | ".join(OPERATORS) + " |\n|" + "---|" * (4 + len(OPERATORS)))
    for (style, activation, weights), levels in table.items():
        lines = {}
        for level, layers in levels.items():
            lines.setdefault(" | ".join(cell(layers[op]) for op in OPERATORS), []).append("all" if level == "on" else level)
        for cells, names in lines.items():
            print(f"| {style} | {activation} | {'uint8 around 128' if weights == 'uint8' else weights} | {', '.join(names)} | {cells} |")


if __name__ == "__main__":
    main()
