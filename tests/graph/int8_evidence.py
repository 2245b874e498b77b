# SPDX-License-Identifier: Apache-2.0
"""int8 models in stock onnxruntime are as accurate with its optimizer as without, on this processor and on one that has AVX2 but no VNNI,
where products of uint8 by int8 saturate.

Bounds are in dB of the outputs against float32: with the optimizer a model may lose 1 dB, the mean of all 0.2; without it 0.5 to the plan.
Weights are int8 and pair-safe by default; `operators` has a small model for each operator whose kernel pairs, with weights that saturate.
qemu-x86_64 emulates the other processor if it is installed; weights kept signed show that products saturate there.
"""
import json
import os
import sys
from functools import cached_property
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, at, check, decibels, evaluated, folders, qk, qk_json, residual_network
from evidence import runtimes as runs
from evidence.graphs import save

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

DIGITS = str(ROOT / "examples" / "digits")
rng = np.random.default_rng(5)
node = helper.make_node


def model(name, nodes, held, x_shape, y_shape):
    return save(at(name + ".onnx"), nodes, {"x": ["N", *x_shape]}, {"y": ["N", *y_shape]}, held)


def w(*shape):
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])).astype(np.float32)


def convolutions():
    """A network of plain, grouped, depthwise and pointwise convolutions with a residual and a classifier, and its samples."""
    nodes = [node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]), node("Relu", ["c1"], ["r1"], "relu1"), node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1], group=4),
             node("Conv", ["c2", "w3"], ["c3"], "conv3", pads=[1, 1, 1, 1], group=16), node("Relu", ["c3"], ["r3"], "relu3"), node("Conv", ["r3", "w4"], ["c4"], "conv4"), node("Add", ["c4", "r1"], ["a"], "add"),
             node("Relu", ["a"], ["r4"], "relu4"), node("GlobalAveragePool", ["r4"], ["p"], "pool"), node("Flatten", ["p"], ["f"], "flatten"), node("Gemm", ["f", "fc", "b"], ["y"], "fc", transB=1)]
    held = {"w1": w(16, 3, 3, 3), "b1": w(16, 1).ravel(), "w2": w(16, 4, 3, 3), "w3": w(16, 1, 3, 3), "w4": w(16, 16, 1, 1), "fc": w(10, 16), "b": w(10, 1).ravel()}
    return model("convolutions", nodes, held, (3, 12, 12), (10,)), np.abs(rng.standard_normal((16, 3, 12, 12))).astype(np.float32)


def transformer():
    """One encoder block (two heads, LayerNormalization, a feed-forward network with Gelu written out), and its samples."""
    d, h, length = 32, 2, 12
    held = {"g1": np.ones(d, np.float32), "z1": np.zeros(d, np.float32), "heads": np.int64([0, 0, h, d // h]), "flat": np.int64([0, 0, d]), "root": np.float32(1 / np.sqrt(d // h)), "sqrt2": np.float32(2 ** .5),
            "one": np.float32(1), "half": np.float32(.5), "w_up": w(d, 4 * d), "b_up": w(4 * d, 1).ravel(), "w_down": w(4 * d, d), "b_down": w(d, 1).ravel()}
    nodes = []
    for m in "qkv":
        held[f"w_{m}"], held[f"b_{m}"] = w(d, d), w(d, 1).ravel()
        nodes += [node("MatMul", ["x", f"w_{m}"], [f"{m}0"], f"{m}_matmul"), node("Add", [f"{m}0", f"b_{m}"], [f"{m}1"], f"{m}_add"), node("Reshape", [f"{m}1", "heads"], [f"{m}2"], f"{m}_heads"),
                  node("Transpose", [f"{m}2"], [f"{m}3"], f"{m}_turn", perm=[0, 2, 3, 1] if m == "k" else [0, 2, 1, 3])]
    held["w_o"] = w(d, d)
    nodes += [node("MatMul", ["q3", "k3"], ["s"], "scores"), node("Mul", ["s", "root"], ["s1"], "scaled"), node("Softmax", ["s1"], ["p"], "softmax", axis=-1), node("MatMul", ["p", "v3"], ["o"], "mix"),
              node("Transpose", ["o"], ["o1"], "back", perm=[0, 2, 1, 3]), node("Reshape", ["o1", "flat"], ["o2"], "joined"), node("MatMul", ["o2", "w_o"], ["o3"], "out"), node("Add", ["o3", "x"], ["o4"], "residual"),
              node("LayerNormalization", ["o4", "g1", "z1"], ["n"], "norm"), node("MatMul", ["n", "w_up"], ["u0"], "up"), node("Add", ["u0", "b_up"], ["u"], "up_add"), node("Div", ["u", "sqrt2"], ["e0"], "div"),
              node("Erf", ["e0"], ["e1"], "erf"), node("Add", ["e1", "one"], ["e2"], "add1"), node("Mul", ["u", "e2"], ["e3"], "mul1"), node("Mul", ["e3", "half"], ["e4"], "mul2"),
              node("MatMul", ["e4", "w_down"], ["d0"], "down"), node("Add", ["d0", "b_down"], ["d1"], "down_add"), node("Add", ["d1", "n"], ["y"], "residual2")]
    return model("transformer", nodes, held, (length, d), (length, d)), rng.standard_normal((16, length, d)).astype(np.float32)


def networks():
    """Yields (name, file, calibration, samples), smallest first; ends with the networks of the folders of data."""
    for make in (convolutions, transformer):
        path, x = make()
        yield make.__name__, path, x, x[:8]
    digits = np.load(os.path.join(DIGITS, "test_images.npy"))[:64]
    yield "digits", os.path.join(DIGITS, "digits.onnx"), digits, digits[:16]
    for folder in folders("reference"):
        if (folder / "data" / "speech_mfcc_119x98x40_f32.npy").exists():
            speech = np.load(folder / "data" / "speech_mfcc_119x98x40_f32.npy")
            yield "kwt1", str(folder / "models" / "kwt1_mfcc.onnx"), speech[::10], speech[:4]
        else:
            features = np.load(folder / "reference" / "transformer_made.input.features.npy")
            yield "transformer_made", str(folder / "models" / "transformer_made.onnx"), features, features
        path, samples = residual_network(folder)
        yield path.stem, str(path), samples(40), samples(8)


def heavy(outputs, inputs):
    """Weights [outputs, inputs] of mostly one sign and near the largest, so that most pairs saturate at full range."""
    values = rng.uniform(.3, 1, (outputs, inputs)) * np.where(rng.random((outputs, inputs)) < .2, -1, 1) * np.where(np.arange(outputs) % 3 == 0, -1, 1)[:, None]
    return (values / inputs).astype(np.float32)


def operators():
    """Yields (name, file, calibration, samples) for each operator whose kernel pairs, each followed by one that reads 8 bits."""
    pictures = {"conv": (8, 8, 1, {"kernel": (3, 3), "pads": [1, 1, 1, 1]}), "conv of odd length": (3, 8, 1, {"kernel": (3, 3)}), "grouped conv": (12, 8, 4, {"kernel": (3, 3)}),
                "conv of two outputs a channel": (6, 12, 6, {"kernel": (3, 3)}), "depthwise conv": (8, 8, 8, {"kernel": (3, 3)}), "pointwise conv": (5, 16, 1, {"kernel": (1, 1)}),
                "strided conv": (8, 8, 1, {"kernel": (3, 3), "strides": [2, 2]}), "dilated conv": (7, 8, 1, {"kernel": (3, 3), "dilations": [2, 2]}), "conv of one axis": (6, 8, 1, {"kernel": (5,)})}
    for name, (channels, outputs, group, how) in pictures.items():
        kernel = how.pop("kernel")
        held = {"w": heavy(outputs, channels // group * int(np.prod(kernel))).reshape(outputs, channels // group, *kernel), "b": w(outputs, 1).ravel() / 10, "w2": heavy(4, outputs).reshape(4, outputs, *[1] * len(kernel))}
        nodes = [node("Conv", ["x", "w", "b"], ["c"], "first", group=group, **how), node("Relu", ["c"], ["r"], "relu"), node("Conv", ["r", "w2"], ["y"], "second")]
        x = np.abs(rng.standard_normal((24, channels, *[11] * len(kernel)))).astype(np.float32)
        yield name, model(name, nodes, held, x.shape[1:], (4, *[None] * len(kernel))), x[:16], x[16:]
    held = {"w": heavy(20, 33), "b": w(20, 1).ravel() / 10, "w2": heavy(6, 20)}
    x = np.abs(rng.standard_normal((48, 33))).astype(np.float32)
    yield "gemm transB", model("gemm transB", [node("Gemm", ["x", "w", "b"], ["c"], "first", transB=1), node("Relu", ["c"], ["r"], "relu"), node("Gemm", ["r", "w2"], ["y"], "second", transB=1)], held, (33,), (6,)), x[:32], x[32:]
    held = {k: v.T.copy() if k != "b" else v for k, v in held.items()}
    yield "gemm", model("gemm", [node("Gemm", ["x", "w", "b"], ["c"], "first"), node("Relu", ["c"], ["r"], "relu"), node("Gemm", ["r", "w2"], ["y"], "second")], held, (33,), (6,)), x[:32], x[32:]
    del held["b"]
    products = [node("MatMul", ["x", "w"], ["c"], "first"), node("Relu", ["c"], ["r"], "relu"), node("MatMul", ["r", "w2"], ["y"], "second")]
    yield "matmul", model("matmul", products, held, (33,), (6,)), x[:32], x[32:]
    x = np.abs(rng.standard_normal((24, 7, 33))).astype(np.float32)
    yield "batched matmul", model("batched matmul", products, held, (7, 33), (7, 6)), x[:16], x[16:]


def pair_models():
    """Yields (name, file, x, groups): integer operators whose output j sees 255 * 127 at the places j and j + 1 of the sum, in the order that
    pair_safe.hpp assumes. Only outputs whose two places are a pair saturate."""
    held = {"one": np.float32(1), "zero": np.uint8(0), "zero8": np.int8(0), "step": np.float32(512)}
    ends = [node("DequantizeLinear", ["yq", "step", "zero"], ["y"])]
    begin = [node("QuantizeLinear", ["x", "one", "zero"], ["xq"])]

    def saved(name, nodes, weights, x, groups=1):
        save(at(f"pairs {name}.onnx"), [*begin, *nodes], {"x": ["N", *x.shape[1:]]}, {"y": None}, {**held, "w": weights}, domains=["com.microsoft"])
        return name, at(f"pairs {name}.onnx"), x, groups

    def places(length):
        return np.int8([[127 if k in (j, j + 1) else 0 for k in range(length)] for j in range(length - 1)])

    for channels, kernel, group in ((3, (2, 2), 1), (4, (1, 1), 1), (5, (3,), 1), (5, (1, 2), 3), (8, (2, 2), 2)):
        taps = int(np.prod(kernel))
        rows = places(channels * taps).reshape(-1, taps, channels)  # the place of the kernel, then the channel
        weights = np.concatenate([np.moveaxis(rows, 2, 1).reshape(-1, channels, *kernel)] * group)
        operands = ["xq", "one", "zero", "w", "one", "zero8", "step", "zero"]
        yield saved(f"QLinearConv of {channels} channels, {kernel}, {group} groups", [node("QLinearConv", operands, ["yq"], group=group), *ends], weights, np.full((1, channels * group, *kernel), 255, np.float32), group)
    for length, rows in ((9, 1), (9, 4), (32, 1), (600, 5)):
        x = np.full((rows, length), 255, np.float32)
        yield saved(f"QLinearMatMul of {length}, {rows} rows", [node("QLinearMatMul", ["xq", "one", "zero", "w", "one", "zero8", "step", "zero"], ["yq"]), *ends], places(length).T.copy(), x)
        yield saved(f"QGemm of {length}, {rows} rows", [node("QGemm", ["xq", "one", "zero", "w", "one", "zero8", "", "step", "zero"], ["yq"], domain="com.microsoft", transB=1), *ends], places(length), x)
        yield saved(f"MatMulInteger of {length}, {rows} rows", [node("MatMulInteger", ["xq", "w", "zero", "zero8"], ["i"]), node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)], places(length).T.copy(), x)


def kernel_order(where, emulated):
    """Checks which places pair, if products saturate here at all; on the emulated processor they must."""
    models = list(pair_models())
    results = runs.run_all([{"model": path, "x": x} for _, path, x, _ in models], emulated)
    seen = [(groups, y if isinstance(y, str) else np.asarray(y).reshape(len(x), -1)[0] < 1.5 * 255 * 127) for (_, _, x, groups), y in zip(models, results)]
    if not emulated and not any(np.any(pairs) for _, pairs in seen if not isinstance(pairs, str)):
        return
    for (name, *_), (groups, pairs) in zip(models, seen):
        fits = not isinstance(pairs, str) and all(p == (j % (len(pairs) // groups) % 2 == 0) for j, p in enumerate(pairs))
        check(fits, f"{where}, {name}: places 2i and 2i + 1 are a pair")


STATIC = ["--activation", "int8", "--weight", "int8"]
DYNAMIC = ["--approach", "dynamic", "--activation", "uint8", "--weight", "int8"]
STYLES = {  # name: (options, batch, whether the file itself names integer operators, which then also run with the optimizer off)
    "portable": ([*STATIC, "--per-channel"], 0, False),
    "qdq per tensor": ([*STATIC, "--export", "qdq"], 0, False),
    "qoperator": ([*STATIC, "--per-channel", "--export", "qoperator"], 0, True),
    "qoperator --keep-int8": ([*STATIC, "--per-channel", "--export", "qoperator", "--keep-int8"], 0, True),
    "qinteger": ([*DYNAMIC, "--per-channel", "--export", "qinteger"], 1, True),
    "dynamic": ([*DYNAMIC, "--per-channel", "--export", "qdq"], 1, False),
}


class Case:
    """A network exported in a style: its files, and its decibels as they are measured."""

    def __init__(self, folder, name, style, path, calibration, x):
        options, self.batch, self.integer = STYLES[style]
        self.name, self.style, self.x, self.file = name, style, x, str(folder / f"{name} {style}.onnx")
        np.save(at("calibration.npy"), calibration)
        np.save(at("x.npy"), x)
        self.plain = runs.run(path, x, "off")
        data = [] if "dynamic" in options else ["--calibration", at("calibration.npy")]
        self.notes = qk_json("quantize", "--recipe", "fast", path, "-o", self.file, "--save-plan", at("plan.json"), *data, *options)["export_notes"]
        self.planned = decibels(evaluated(path, at("x.npy"), "--plan", at("plan.json"), *(["--batch", self.batch] if self.batch else [])), self.plain)

    @cached_property
    def off(self):
        """Decibels without the optimizer on this processor."""
        return decibels(runs.run(self.file, self.x, "off", self.batch), self.plain)

    def code_types(self):
        """Returns the types of the weights' codes in the file, by the name of the weight."""
        return {t.name.removesuffix("_quantized"): t.data_type for t in onnx.load(self.file).graph.initializer if t.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(t.dims) > 1}

    def jobs(self, levels):
        return [{"model": self.file, "x": self.x, "level": level, "batch": self.batch} for level in levels]


def compare(cases, where, emulated):
    """Runs all cases and checks the bounds. Results of float operators come from this processor."""
    jobs = [(c, job) for c in cases for job in c.jobs(["off", "on"] if c.integer or not emulated else ["on"])]
    lost = []
    for (c, job), y in zip(jobs, runs.run_all([j for _, j in jobs], emulated)):
        what = f"{c.name}, {c.style}, {where}, optimizer {job['level']}"
        if isinstance(y, str):
            check(False, f"{what}: {y}")
            continue
        got = decibels(y, c.plain)
        if job["level"] == "off":
            c.off = got
            check(got >= c.planned - 0.5, f"{what}: {got:.1f} dB, the plan {c.planned:.1f}")
        else:
            lost.append(c.off - got)
            check(got >= c.off - 1, f"{what}: {got:.1f} dB, without {c.off:.1f}")
    check(float(np.mean(lost)) <= 0.2, f"{where}: the optimizer costs {np.mean(lost):.2f} dB in the mean of {len(lost)} models")


def signed_by_request():
    """Weights stay int8 on request, with a remark on what that means. Returns the float model's file and samples."""
    path, x = transformer()
    np.save(at("calibration.npy"), x)
    with open(at("profile.json"), "w") as f:
        json.dump({"name": "mine", "int8_weights": "signed"}, f)
    for flags in (["--keep-int8"], ["--target", at("profile.json")]):
        out = qk_json("quantize", "--recipe", "fast", path, "-o", at("signed.onnx"), *STATIC, "--per-channel", "--calibration", at("calibration.npy"), *flags)
        held = {t.name: t.data_type for t in onnx.load(at("signed.onnx")).graph.initializer}
        types = {held[f"w_{m}_quantized"] for m in ("q", "k", "v", "o", "up", "down")}
        check(types == {TensorProto.INT8}, f"{flags[0]}: weights are int8")
        check(any("written as int8" in n and "saturate" in n for n in out["export_notes"]), f"{flags[0]}: a remark says what that means")
    digits = [os.path.join(DIGITS, n) for n in ("digits.onnx", "test_images.npy", "test_labels.npy")]
    with open(at("unsigned.json"), "w") as f:
        json.dump({"name": "mine", "int8_weights": "unsigned"}, f)
    # A search makes its weights pair-safe as well.
    for flags, kind in (([], TensorProto.INT8), (["--target", at("profile.json")], TensorProto.INT8), (["--target", at("unsigned.json")], TensorProto.UINT8)):
        qk("search", digits[0], "--inputs", digits[1], "--labels", digits[2], "--samples", 32, "--wide", "int8/int8", "--narrow", "int8/int4", "--wide-share", 1, "-o", at("mix.onnx"), *flags)
        types = {t.data_type for t in onnx.load(at("mix.onnx")).graph.initializer if t.name.endswith("weight_quantized")}
        check(kind in types and (kind == TensorProto.UINT8 or types == {kind}), f"qk search {' '.join(flags)}: weights are {'int8' if kind == TensorProto.INT8 else 'uint8'}")
    return path, x[:8]


def test_recovered():
    """A plan recovered from a model with uint8 weights, or pair-safe ones, has int8 again, symmetric and with the same scales."""
    path, x = convolutions()
    np.save(at("calibration.npy"), x)
    with open(at("unsigned.json"), "w") as f:
        json.dump({"name": "mine", "int8_weights": "unsigned"}, f)
    for style, flags, kind in (("portable", ["--target", at("unsigned.json")], TensorProto.UINT8), ("qdq", ["--target", at("unsigned.json")], TensorProto.UINT8), ("portable", [], TensorProto.INT8)):
        notes = qk_json("quantize", "--recipe", "fast", path, "-o", at("moved.onnx"), *STATIC, "--per-channel", "--calibration", at("calibration.npy"), "--export", style, "--save-plan", at("asked.json"), *flags)["export_notes"]
        types = {t.name: t.data_type for t in onnx.load(at("moved.onnx")).graph.initializer}
        check(all(types[f"{n}_quantized"] == kind for n in ("w1", "w2", "w3", "w4", "fc")), f"{style} {' '.join(flags[:1])}: the type of weights in the file")
        check(any("int8 weights written as uint8" in n for n in notes) == bool(flags), f"{style} {' '.join(flags[:1])}: a remark where weights are uint8")
        qk("inspect", at("moved.onnx"), "--save-plan", at("found.json"), "--save-float", at("float.onnx"))
        asked, found = (json.load(open(at(f)))["tensors"] for f in ("asked.json", "found.json"))
        for name in ("w1", "w2", "w3", "w4", "fc"):
            same = {k: v for k, v in asked[name].items() if k != "axis"} == {k: v for k, v in found[name].items() if k != "axis"}
            check(same and found[name]["format"] == "int8" and "zero_point" not in found[name], f"{style}: the recovered plan has {name} in int8 with its scales")


def tried(name, style):
    """Whether a network is tried in a style. int8 by int8 is right only in integer operators, not in the transformer's layers that stay
    pairs. Large networks run once or twice, since the emulator is slow."""
    if "keep-int8" in style:
        return name in ("convolutions", "digits")
    return name not in ("kwt1", "resnet20") or style == "portable" or (name == "resnet20" and style == "qoperator")


@pytest.fixture(scope="module")
def cases(shared):
    """The networks and operators in the styles that they are tried in."""
    cases = [Case(shared, name, style, path, calibration, x) for name, path, calibration, x in networks() for style in STYLES if tried(name, style)]
    for name, path, calibration, x in operators():
        for style in STYLES:
            dynamic = style in ("dynamic", "qinteger")
            if "keep-int8" not in style and not (dynamic and "conv" in name):
                cases.append(Case(shared, name, style, path, calibration, x))
    return cases


def test_types_of_codes(cases):
    for c in cases:
        # A Conv with dynamic scales is no product of uint8 by int8: its weights stay uint8.
        kept = {k: t for k, t in c.code_types().items() if t == TensorProto.UINT8 and not (c.style in ("dynamic", "qinteger") and c.name.startswith(("convolutions", "digits", "resnet20", "kwt1")))}
        if "keep-int8" not in c.style:
            check(not kept, f"{c.name}, {c.style}: pair-safe weights are int8 in the file, and not {kept}")


def test_this_processor(cases):
    signed_by_request()
    kernel_order("this processor", False)
    compare(cases, "this processor", False)


def test_avx2_without_vnni(cases):
    command, why = runs.emulator()
    if command is None:
        pytest.skip(f"not tried on AVX2 without VNNI: {why}")
    path, x = signed_by_request()
    plain = runs.run(path, x, "off")
    (y,) = runs.run_all([{"model": at("signed.onnx"), "x": x, "level": "on"}], True)
    seen = isinstance(y, np.ndarray) and decibels(y, plain) < decibels(runs.run(at("signed.onnx"), x, "off"), plain) - 3
    check(seen, f"AVX2 without VNNI, emulated by {' '.join(command)}: signed weights lose there, so that this test sees what it is for")
    kernel_order("AVX2 without VNNI", True)
    compare(cases, "AVX2 without VNNI", True)


if __name__ == "__main__":
    evidence.main()
