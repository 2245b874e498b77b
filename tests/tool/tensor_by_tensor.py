# SPDX-License-Identifier: Apache-2.0
"""`qk diff` finds a planted fault by its tensor's name, and says of clean files that nothing departs; `qk evaluate --dump` writes every tensor."""
import json
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, run as qk
from evidence.graphs import Graph
from evidence.runtimes import outputs

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


def diff(*words):
    r = qk("diff", *words, "--json")
    check(r.returncode in (0, 1), f"diff {words}: status {r.returncode}, {r.stderr}")
    return r.returncode, json.loads(r.stdout) if r.returncode in (0, 1) else {"sides": [{"against": "?", "first": "?", "tensors": []}]}


class Network(Graph):
    """A graph in which every tensor has a name."""

    def __init__(self, seed, shape):
        super().__init__(seed)
        self.shape = shape

    def constant(self, name, value, kind=None):
        if kind is not None:
            return self.hold(name, h.make_tensor(name, kind, np.shape(value), np.asarray(value).flatten().tolist()))
        return self.hold(name, nh.from_array(np.asarray(value), name))

    def node(self, kind, inputs, output, **more):
        return self.op(kind, *inputs, name="node_" + output, result=output, **more)

    def pair(self, x, scale, zero=0, kind=np.int8):
        s, z = self.constant(x + "_scale", np.float32(scale)), self.constant(x + "_zero", np.array(zero, kind))
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, s, z], x + "_codes"), s, z], x + "_dq")

    def weight(self, name, shape, axis=0, bits=8):
        most = 63 if bits == 8 else 7  # with 127, sums of two products saturate in onnxruntime on x86-64 without VNNI
        codes = self.rng.integers(-most, most + 1, shape)
        scales = (self.rng.uniform(0.5, 1.5, shape[axis]) / most / np.sqrt(np.prod(shape) / shape[axis])).astype(np.float32)
        self.constant(name, codes.astype(np.int8), T.INT4 if bits == 4 else None)
        return self.node("DequantizeLinear", [name, self.constant(name + "_scale", scales)], name + "_dq", axis=axis)

    def write(self, file, output):
        self.save(file, {"x": self.shape}, {output: None}, opset=21, domains=["com.microsoft"])
        return file


def picture(seed, quantized):
    """Two convolutions with Relu, a mean, a Gemm; under Q/DQ pairs or in float32."""
    n = Network(seed, ["N", 3, 8, 8])
    r = n.rng
    def weight(name, shape):
        return n.weight(name, shape) if quantized else n.constant(name, (r.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))
    def pair(t, scale, zero=0, kind=np.int8):
        return n.pair(t, scale, zero, kind) if quantized else t
    a = n.node("Conv", [pair("x", 0.025, 3), weight("w1", [8, 3, 3, 3]), n.constant("b1", r.normal(size=8).astype(np.float32))], "c1", pads=[1, 1, 1, 1])
    a = pair(n.node("Relu", [a], "r1"), 0.02, 0, np.uint8)
    a = n.node("Conv", [a, weight("w2", [8, 8, 3, 3]), n.constant("b2", r.normal(size=8).astype(np.float32))], "c2", pads=[1, 1, 1, 1])
    a = pair(n.node("Relu", [a], "r2"), 0.03, 0, np.uint8)
    a = n.node("Flatten", [n.node("GlobalAveragePool", [a], "mean")], "flat")
    n.node("Gemm", [pair(a, 0.02), weight("w3", [8, 8]), n.constant("b3", r.normal(size=8).astype(np.float32))], "y", transB=1)
    return n


def int4_blocks(seed, zero_points=False):
    n = Network(seed, ["N", 32])
    n.constant("w", n.rng.integers(-7, 8, [32, 16]).astype(np.int8), T.INT4)
    read = ["w", n.constant("w_scale", n.rng.uniform(0.01, 0.03, [2, 16]).astype(np.float32))]
    if zero_points:  # those of neighbours differ
        read.append(n.constant("w_zero", (np.arange(32).reshape(2, 16) % 3 - 1).astype(np.int8), T.INT4))
    a = n.node("MatMul", ["x", n.node("DequantizeLinear", read, "w_dq", axis=0, block_size=16)], "product")
    n.node("Add", [a, n.constant("bias", n.rng.normal(size=16).astype(np.float32))], "y")
    return n


def nbits(seed):
    n = Network(seed, ["N", 32])
    n.constant("w", n.rng.integers(0, 256, [16, 1, 16]).astype(np.uint8))
    n.constant("w_scale", n.rng.uniform(0.01, 0.03, [16]).astype(np.float32))
    a = n.node("MatMulNBits", ["x", "w", "w_scale"], "product", domain="com.microsoft", K=32, N=16, bits=4, block_size=32)
    n.node("Softmax", [a], "y")
    return n


def change(n, name, edit):
    """Returns the initializer as it was, and puts another one in its place."""
    old = n.held[name]
    value = nh.to_array(old)
    n.held[name] = nh.from_array(np.asarray(edit(value.copy())).astype(value.dtype), name)
    return old


def swap_nibbles(n, name):
    """Swaps the codes of the first byte that has two different ones."""
    old = n.held[name]
    new = onnx.TensorProto()
    new.CopyFrom(old)
    if old.data_type == T.INT4:
        raw = bytearray(old.raw_data or bytes(v & 255 for v in old.int32_data))
        at = next(i for i, b in enumerate(raw) if b >> 4 != b & 15)
        raw[at] = (raw[at] >> 4) | (raw[at] & 15) << 4
        new.ClearField("int32_data")
        new.raw_data = bytes(raw)
    else:
        value = nh.to_array(old).copy()
        flat = value.reshape(-1)
        at = next(i for i, b in enumerate(flat) if b >> 4 != b & 15)
        flat[at] = (flat[at] >> 4) | (flat[at] & 15) << 4
        new = nh.from_array(value, name)
    n.held[name] = new
    return old


# network, initializer, its edit, the tensors of which one departs first, a word of the rule
FAULTS = [
    (lambda: picture(1, True), "x_scale", lambda v: v * 1.05, "x_codes", "scale"),
    (lambda: picture(1, True), "x_zero", lambda v: v + 1, "x_codes", "zero point"),
    (lambda: picture(2, True), "r1_scale", lambda v: v * np.float32(0.97), "r1_codes", "scale"),
    (lambda: picture(2, True), "r2_zero", lambda v: v + 1, "r2_codes", "zero point"),
    (lambda: picture(3, True), "w2_scale", lambda v: v * np.where(np.arange(8) == 5, np.float32(1.01), np.float32(1)), "w2_dq", ""),
    (lambda: picture(3, True), "b1", lambda v: v + np.where(np.arange(8) == 2, np.float32(0.01), np.float32(0)), "c1", "bias"),
    (lambda: picture(4, True), "b3", lambda v: -v, "y", "bias"),
    (lambda: picture(5, False), "b2", lambda v: v + np.float32(0.001), "c2", "constant"),
    (lambda: picture(5, False), "w1", lambda v: v * np.float32(1.001), "c1", ""),
    (lambda: int4_blocks(6), "w_scale", lambda v: v * np.where(np.arange(32).reshape(2, 16) == 7, np.float32(1.1), np.float32(1)), "w_dq", ""),
    (lambda: int4_blocks(6), "w", None, "w_dq", "swapped"),
    (lambda: int4_blocks(6, True), "w", None, "w_dq", "swapped"),
    (lambda: int4_blocks(7), "bias", lambda v: v * np.float32(1.01), "y", "bias"),
    (lambda: nbits(8), "w", None, "product", ""),
    (lambda: nbits(8), "w_scale", lambda v: v * np.where(np.arange(16) == 3, np.float32(0.99), np.float32(1)), "product", ""),
]

RUNTIME = """
import os, sys
import numpy, onnx, onnxruntime
model = onnx.load(sys.argv[1])
del model.graph.output[:]
made = [t for n in model.graph.node for t in n.output]
model.graph.output.extend(onnx.ValueInfoProto(name=t) for t in made)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
for name, value in zip(made, session.run(made, {"x": numpy.load(os.path.join(sys.argv[3], "x.npy"))})):
    if isinstance(value, numpy.ndarray):
        numpy.save(os.path.join(sys.argv[4], name + ".npy"), value)
"""


def test_faults(folder):
    for number, (make, name, edit, first, word) in enumerate(FAULTS):
        what = f"fault {number}, {name}"
        n = make()
        x = n.rng.normal(size=[4, *n.shape[1:]]).astype(np.float32)
        np.save(folder / "x.npy", x)
        clean, faulty = n.write(folder / "clean.onnx", "y"), folder / "faulty.onnx"
        if edit is None:
            swap_nibbles(n, name)
        else:
            change(n, name, edit)
        n.write(faulty, "y")
        status, told = diff(clean, "--inputs", folder / "x.npy", "--against", faulty)
        side = told["sides"][0]
        check(status == 1 and side["first"] == first, f"{what}: beside the model's file {side['first']} departs first, not {first}")
        rule = next((t["rule"] for t in side["tensors"] if t["name"] == first and t.get("departs")), "")
        check(word in rule, f"{what}: the rule is '{rule}', without '{word}'")
        # What was dumped of the clean file, beside the faulty one.
        dump = folder / f"dump{number}"
        r = qk("evaluate", clean, "--inputs", folder / "x.npy", "--dump", dump)
        check(r.returncode == 0, f"{what}: dump: {r.stderr}")
        status, told = diff(faulty, "--inputs", folder / "x.npy", "--against", dump)
        check(status == 1 and told["sides"][0]["first"] == first, f"{what}: beside the dump {told['sides'][0]['first']} departs first, not {first}")
        status, told = diff(clean, "--inputs", folder / "x.npy", "--against", dump)
        check(status == 0, f"{what}: {told['sides'][0]['first']} departs from its own dump")
        # A runtime with the fault: it gets the clean file and runs the faulty one.
        (folder / "runtime.py").write_text(RUNTIME)
        command = f"{sys.executable} {folder / 'runtime.py'} {faulty}"
        if number % 3 == 0:
            status, told = diff(clean, "--inputs", folder / "x.npy", "--command", command)
            check(status == 1 and told["sides"][0]["first"] == first, f"{what}: in a runtime {told['sides'][0]['first']} departs first, not {first}")


def test_clean_files(folder):
    for name, make in (("quantized", lambda: picture(11, True)), ("float", lambda: picture(12, False)), ("int4", lambda: int4_blocks(13)),
                       ("nbits", lambda: nbits(14))):
        n = make()
        np.save(folder / "x.npy", n.rng.normal(size=[16, *n.shape[1:]]).astype(np.float32))
        file = n.write(folder / f"{name}.onnx", "y")
        status, told = diff(file, "--inputs", folder / "x.npy", "--against", "onnxruntime", "--report", folder / "r.html")
        first = [s["first"] for s in told["sides"]]
        if name == "int4":  # the optimizer makes MatMulNBits of it, which onnxruntime lets round activations to int8 unless a session says otherwise
            rule = next(t["rule"] for t in told["sides"][1]["tensors"] if t.get("departs"))
            check(first == [None, "y"] and "accuracy_level 4" in rule, f"int4: in onnxruntime {first} departs, {rule}")
        else:
            check(status == 0 and first == [None, None], f"{name}: in onnxruntime {first} departs")
        for s in told["sides"]:
            compared = [t["name"] for t in s["tensors"] if "departs" in t]
            check("y" in compared, f"{name}, {s['against']}: compares {compared}")
        check(len([t for t in told["sides"][0]["tensors"] if "departs" in t]) >= len(n.nodes), f"{name}: the optimizer off, every tensor is compared")
        page = (folder / "r.html").read_text()
        check("optimizer on" in page and "y" in page and (folder / "r.json").exists(), f"{name}: the page")


def test_dumps(folder):
    n = picture(21, False)
    n.shape = [1, 3, 8, 8]  # one row a run
    n.nodes[0].output[0] = n.nodes[1].input[0] = "c1/a:b"
    n.nodes[2].output[0] = n.nodes[3].input[0] = "c1_a/b"
    n.write(folder / "m.onnx", "y")
    x = n.rng.normal(size=[3, 3, 8, 8]).astype(np.float32)
    np.save(folder / "x.npy", x)
    r = qk("evaluate", folder / "m.onnx", "--inputs", folder / "x.npy", "--dump", folder / "d", "--json")
    check(r.returncode == 0 and json.loads(r.stdout)["dumped"] == 8, f"dump: {r.stdout} {r.stderr}")
    index = json.loads((folder / "d" / "index.json").read_text())
    tensors = {t["name"]: t for t in index["tensors"]}
    check(list(tensors) == ["x", "c1/a:b", "r1", "c1_a/b", "r2", "mean", "flat", "y"], f"names {list(tensors)}")
    check(index["samples"] == 3 and index["runs"] == 3, "three samples in three runs")
    check(tensors["c1/a:b"]["file"] == "c1_a_b.npy" and tensors["c1_a/b"]["file"] == "c1_a_b-2.npy", "names of files do not collide")
    check([t["order"] for t in index["tensors"]] == list(range(len(tensors))), "their order")
    check(np.load(folder / "d" / tensors["r1"]["file"]).shape == (3, 8, 8, 8), "samples are joined")
    check(np.array_equal(np.load(folder / "d" / tensors["x"]["file"]), x), "the input is one of them")
    again = qk("evaluate", folder / "m.onnx", "--inputs", folder / "x.npy", "--dump", folder / "d")
    check(again.returncode == 2 and "--overwrite" in again.stderr, f"a dump is not replaced unasked: {again.stderr}")
    again = qk("evaluate", folder / "m.onnx", "--inputs", folder / "x.npy", "--dump", folder / "d", "--overwrite")
    check(again.returncode == 0 and not list(folder.glob(".d*")), "with --overwrite it is, and nothing is left beside it")
    r = qk("evaluate", folder / "m.onnx", "--inputs", folder / "x.npy", "--activation", "int8", "--weight", "int8", "--dump", folder / "q")
    quantized = {t["name"]: t for t in json.loads((folder / "q" / "index.json").read_text())["tensors"]}
    levels = np.unique(np.load(folder / "q" / quantized["r1"]["file"]))
    check(quantized["r1"]["format"] == "int8" and len(levels) <= 256, "tensors are behind their quantizers")
    check(quantized["w1"]["constant"] and np.load(folder / "q" / quantized["w1"]["file"]).shape == (8, 3, 3, 3), "and so are weights")
    status, told = diff(folder / "m.onnx", "--inputs", folder / "x.npy", "--activation", "int8", "--weight", "int8", "--against", folder / "q")
    check(status == 0, f"a plan beside its own dump: {told['sides'][0]['first']} departs")
    value = np.load(folder / "q" / quantized["r1"]["file"])
    value[value > 0] += np.diff(levels).max()
    np.save(folder / "q" / quantized["r1"]["file"], value)
    status, told = diff(folder / "m.onnx", "--inputs", folder / "x.npy", "--activation", "int8", "--weight", "int8", "--against", folder / "q")
    check(status == 1 and told["sides"][0]["first"] == "r1", f"codes that are 1 too high: {told['sides'][0]['first']}")
    # A folder of another runtime, without an index.
    (folder / "q" / "index.json").unlink()
    for name in ("x", "r2", "y"):
        (folder / "q" / (name + ".npy")).unlink(missing_ok=True)
    status, told = diff(folder / "m.onnx", "--inputs", folder / "x.npy", "--against", folder / "q")
    check(status == 1, "a folder without an index is compared by names of files")


def residual(seed):
    """Adds behind convolutions, which runtimes compute inside of them."""
    n = Network(seed, ["N", 8, 16, 16])
    r = n.rng
    def conv(t, output):
        w = n.constant("w_" + output, (r.normal(size=[8, 8, 3, 3]) / 8.5).astype(np.float32))
        return n.node("Conv", [t, w], output, pads=[1, 1, 1, 1])
    t = "x"
    for k in range(4):
        t = n.node("Relu", [n.node("Add", [conv(t, f"c{k}"), t], f"sum{k}")], f"r{k}")
    n.node("Sub", [conv(t, "last"), t], "y")
    return n


def test_in_openvino(folder):
    if find_spec("openvino") is None:
        pytest.skip("openvino is not here")
    for name, make in (("quantized", lambda: picture(31, True)), ("float", lambda: picture(32, False)), ("int4", lambda: int4_blocks(33)),
                       ("residual", lambda: residual(34))):
        n = make()
        np.save(folder / "x.npy", n.rng.normal(size=[4, *n.shape[1:]]).astype(np.float32))
        status, told = diff(n.write(folder / f"{name}.onnx", "y"), "--inputs", folder / "x.npy", "--against", "openvino")
        check(status == 0 and len(told["sides"]) == 2, f"{name}: in openvino {[s['first'] for s in told['sides']]} departs")


def test_accuracy_levels(folder):
    """The level is written, and its price is what onnxruntime's outputs say."""
    n = Network(41, ["N", 64])
    w = n.constant("w", (n.rng.normal(size=[64, 32]) / 8).astype(np.float32))
    n.node("MatMul", ["x", w], "y")
    file = n.write(folder / "wide.onnx", "y")
    x = n.rng.normal(size=[8, 64]).astype(np.float32)
    np.save(folder / "x.npy", x)
    words = ("--weight", "int4", "--weight-block", 32, "--approach", "weight_only", "--calibration", folder / "x.npy", "--json")
    prices = {}
    for level in (0, 1, 4):
        r = qk("quantize", file, "-o", folder / f"level{level}.onnx", "--export", "nbits", "--accuracy-level", level, *words)
        check(r.returncode == 0, f"level {level}: {r.stderr}")
        prices[level] = json.loads(r.stdout)["accuracy_level"]
        nodes = [m for m in onnx.load(folder / f"level{level}.onnx").graph.node if m.op_type == "MatMulNBits"]
        written = [a.i for m in nodes for a in m.attribute if a.name == "accuracy_level"]
        check(len(nodes) == 1 and written == ([level] if level else []), f"level {level}: {written} is written")
    run = {k: outputs(f, {"x": x}, names=["y"])[0] for k, f in (("float", file), (1, folder / "level1.onnx"), (4, folder / "level4.onnx"))}
    for level in (1, 4):
        found = decibels(run[level], run["float"])
        check(abs(found - prices[level]["sqnr"]) < 0.05, f"level {level}: {found} dB, not {prices[level]}")
    check(prices[1]["price"] < 0.01 < prices[4]["price"] and prices[4]["sqnr_without"] == prices[1]["sqnr_without"], f"prices {prices}")
    status, told = diff(folder / "level4.onnx", "--inputs", folder / "x.npy", "--against", "onnxruntime")
    check(status == 0, f"level 4 is evaluated as onnxruntime computes it: {[s['first'] for s in told['sides']]} departs")
    r = qk("quantize", file, "-o", folder / "none.onnx", "--accuracy-level", 4, *words[:-1], "--export", "qdq")
    check(r.returncode == 2 and "MatMulNBits" in r.stderr and not (folder / "none.onnx").exists(), f"a file without such a node: {r.stderr}")


def test_wrong_use(folder):
    picture(21, False).write(folder / "m.onnx", "y")
    np.save(folder / "x.npy", np.zeros((4, 3, 8, 8), np.float32))
    for words, part in (((), "--against"), (("--against", "tensorflow"), "onnxruntime, openvino"),
                        (("--against", "onnxruntime", "--command", "true"), "--against"), (("--command", "false"), "false"),
                        (("--against", "onnxruntime", "--optimizer", "maybe"), "maybe"), (("--command", "true"), "no tensor")):
        r = qk("diff", folder / "m.onnx", "--inputs", folder / "x.npy", *words)
        check(r.returncode == 2 and part in r.stderr, f"{words}: status {r.returncode}, {r.stderr}")


if __name__ == "__main__":
    evidence.main()
