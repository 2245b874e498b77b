# SPDX-License-Identifier: Apache-2.0
"""Takes the saved plans of twenty networks, changes every scale in them at random, as someone does who edits a plan by hand, and exports
them again: with onnxruntime's optimizer on, the error against the float model is at most 1 dB above that with the optimizer off, and `qk
evaluate` of the plan gives the same error.
"""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, decibels, evaluated, folders, qk
from evidence.graphs import Graph
from evidence.runtimes import keeps, run

import numpy as np
import onnx
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


class Network(Graph):
    """A network under construction: `at` is the tensor that the next node reads, `shape` its shape without the batch."""

    def __init__(self, rng, shape):
        super().__init__(rng)
        self.at, self.shape, self.input = "x", list(shape), list(shape)

    def node(self, kind, inputs=(), **attributes):
        self.at = self.op(kind, self.at, *inputs, name=f"{kind.lower()}{len(self.nodes)}", result=f"t{len(self.nodes)}", **attributes)
        return self

    def constant(self, *shape, like=None):
        return self.hold(f"c{len(self.held)}", like if like is not None else (self.rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32))

    def conv(self, channels, size=3, group=1, bias=True):
        inputs = [self.constant(channels, self.shape[0] // group, size, size)] + ([self.constant(channels, 1, like=(0.3 * self.rng.standard_normal(channels)).astype(np.float32))] if bias else [])
        self.shape[0] = channels
        return self.node("Conv", inputs, pads=[size // 2] * 4, group=group)

    def gemm(self, features, turned, alpha=1.0):
        k = self.shape[-1]
        inputs = [self.constant(*((features, k) if turned else (k, features))), self.constant(like=(0.3 * self.rng.standard_normal(features)).astype(np.float32))]
        self.shape = [features]
        return self.node("Gemm", inputs, transB=int(turned), alpha=alpha)

    def matmul(self, features):
        w = self.constant(self.shape[-1], features)
        self.shape[-1] = features
        return self.node("MatMul", [w])

    def activation(self):
        op = ("Relu", "LeakyRelu", "Sigmoid", "Clip", "HardSwish", "Tanh")[self.rng.integers(6)]
        return self.node("Clip", [self.constant(like=np.float32(0)), self.constant(like=np.float32(1.5))]) if op == "Clip" else self.node(op)

    def pool(self, op):
        self.shape[1:] = [v // 2 for v in self.shape[1:]]
        return self.node(op, kernel_shape=[2, 2], strides=[2, 2])

    def flatten(self):
        self.shape = [int(np.prod(self.shape))]
        return self.node("Flatten")

    def write(self, file):
        self.rename("y")
        self.save(file, {"x": ["N", *self.input]}, {"y": None})
        onnx.save(onnx.shape_inference.infer_shapes(onnx.load(file)), file)
        return file


def convolutions(rng):
    net = Network(rng, (3, 12, 12)).conv(int(rng.integers(6, 12))).activation()
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(4)
        if kind == 0:
            shortcut = net.at
            net.conv(net.shape[0], bias=bool(rng.integers(2))).activation().node("Add", [shortcut]).node("Relu")
        elif kind == 1:
            net.conv(net.shape[0], group=net.shape[0]).activation().conv(int(rng.integers(6, 12)), 1)
        elif kind == 2:
            other = net.at
            net.conv(net.shape[0]).activation().node("Concat", [other], axis=1)
            net.shape[0] *= 2
        else:
            net.conv(int(rng.integers(6, 12))).activation()
    net.pool(("MaxPool", "AveragePool")[rng.integers(2)])
    if rng.integers(2):
        net.conv(8, 1).node("GlobalAveragePool")
        net.shape = [8, 1, 1]
    return net.flatten().gemm(int(rng.integers(4, 9)), bool(rng.integers(2)))


def layers(rng):
    net = Network(rng, (int(rng.integers(6, 20)),))
    for _ in range(rng.integers(1, 4)):
        net.gemm(int(rng.integers(6, 20)), bool(rng.integers(2)), (1.0, 0.5)[rng.integers(2)]).activation()
    return net.gemm(5, bool(rng.integers(2)))


def attention(rng):
    net = Network(rng, (6, 8))
    tokens = net.at
    queries = net.matmul(8).node("Add", [net.constant(like=(0.1 * rng.standard_normal(8)).astype(np.float32))]).at
    net.at = tokens
    keys = net.matmul(8).node("Transpose", perm=[0, 2, 1]).at
    net.at = tokens
    net.shape = [6, 8]
    values = net.matmul(8).at
    net.at = queries
    net.node("MatMul", [keys]).node("Mul", [net.constant(like=np.float32(0.35))]).node("Softmax", axis=-1).node("MatMul", [values])
    net.shape = [6, 8]
    return net.matmul(8).node("Add", [tokens]).node("LayerNormalization", [net.constant(like=np.ones(8, np.float32)), net.constant(like=np.zeros(8, np.float32))]).matmul(12).activation().matmul(5)


def networks():
    """Yields (name, path, samples)."""
    for k in range(17):
        rng = np.random.default_rng(k)
        net = (convolutions, layers, attention)[(0, 0, 1, 0, 2)[k % 5]](rng)
        yield f"{('convolutions', 'convolutions', 'layers', 'convolutions', 'attention')[k % 5]} {k}", net.write(at("m.onnx")), rng.standard_normal((16, *net.input)).astype(np.float32)
    rng = np.random.default_rng(99)
    for folder in folders("reference"):
        for name in ("mnist-8", "resnet20_cifar10_folded", "kwt1_mfcc") if (folder / "models" / "mnist-8.onnx").exists() else ("old_made", "resnet20_made_folded", "transformer_made"):
            path = str(folder / "models" / f"{name}.onnx")
            shape = [d.dim_value or 8 for d in onnx.load(path, load_external_data=False).graph.input[0].type.tensor_type.shape.dim]
            yield name, path, rng.standard_normal(shape).astype(np.float32)


def edited(plan, rng):
    """Multiplies every scale of a plan by a factor of its own, between 0.7 and 1.4: a tensor's, or each channel's."""
    for q in [*plan["tensors"].values(), *(e for e in plan.get("edges", []))]:
        if "scale" in q:
            factor = 2 ** rng.uniform(-0.5, 0.5, len(q["scale"]) if rng.integers(2) else 1)
            q["scale"] = [float(np.float32(v)) for v in np.asarray(q["scale"]) * factor]
    return plan


def test_edited_plans():
    for k, (name, path, x) in enumerate(networks()):
        np.save(at("x.npy"), x)
        plain = run(path, x, "off")
        rng = np.random.default_rng(1000 + k)
        for style, options in (("portable", ["--per-channel"]), ("qdq", []), ("qoperator", ["--per-channel"])):
            try:
                qk("quantize", path, "-o", at("q.onnx"), "--activation", "int8", "--weight", "int8", *options, "--calibration", at("x.npy"), "--save-plan", at("p.json"))
                with open(at("p.json")) as f:
                    plan = edited(json.load(f), rng)
                with open(at("e.json"), "w") as f:
                    json.dump(plan, f)
                qk("quantize", path, "-o", at("q.onnx"), "--plan", at("e.json"), "--export", style)
                on, off = (run(at("q.onnx"), x, level) for level in ("on", "off"))
                kept, said = keeps(on, off, plain)
                if style == "portable":
                    ours = decibels(evaluated(path, at("x.npy"), "--plan", at("e.json")), plain)
                    kept, said = kept and abs(ours - decibels(off, plain)) <= 1, f"{said}, {ours:.1f} by qk"
            except Exception as failed:
                kept, said = False, str(failed)[:300]
            check(kept, f"{name}, {style}: {said}")


def test_plans_of_changed_models():
    """Plans of models that the command itself changes."""
    rng = np.random.default_rng(5)
    net = Network(rng, (3, 8, 8)).conv(6, bias=False).node("Relu").conv(5, bias=False)
    x = rng.standard_normal((16, 3, 8, 8)).astype(np.float32)
    net.write(at("m.onnx"))
    np.save(at("x.npy"), x)
    plain = run(at("m.onnx"), x, "off")
    bytes_of = lambda name: open(at(name), "rb").read()
    error = lambda name: decibels(run(at(name), x, "off"), plain)
    asked = ["--activation", "int8", "--weight", "int4", "--calibration", at("x.npy"), "--recipe", "fast"]
    qk("quantize", at("m.onnx"), "-o", at("q.onnx"), *asked, "--bias-correction", "--save-plan", at("p.json"))
    qk("quantize", at("m.onnx"), "-o", at("n.onnx"), *asked)
    qk("quantize", at("m.onnx"), "-o", at("again.onnx"), "--plan", at("p.json"))
    check(bytes_of("again.onnx") == bytes_of("q.onnx") and error("q.onnx") > error("n.onnx"), "the plan of corrected biases and its own model are the file")

    net = Network(rng, (6, 8)).matmul(8)
    net.node("LayerNormalization", [net.constant(like=np.ones(8, np.float32)), net.constant(like=np.zeros(8, np.float32))]).matmul(12).node("Relu").matmul(5)
    x = (rng.standard_normal((16, 6, 8)) * 2 ** rng.uniform(-2, 3, 8)).astype(np.float32)
    net.write(at("m.onnx"))
    np.save(at("x.npy"), x)
    plain = run(at("m.onnx"), x, "off")
    qk("quantize", at("m.onnx"), "-o", at("q.onnx"), *asked, "--smooth-quant", "0.5", "--save-plan", at("p.json"))
    qk("quantize", at("m.onnx"), "-o", at("again.onnx"), "--plan", at("p.json"))
    check(bytes_of("again.onnx") == bytes_of("q.onnx"), "the plan of scaled channels and its own model are the file")
    qk("inspect", at("q.onnx"), "--save-float", at("f.onnx"))
    done = evidence.run("quantize", at("f.onnx"), "-o", at("no.onnx"), "--plan", at("p.json"))
    check(done.returncode == 2 and "nothing is scaled yet" in done.stderr, f"channels are not scaled twice: {done.stderr.strip()}")


if __name__ == "__main__":
    evidence.main()
