# SPDX-License-Identifier: Apache-2.0
"""Layers in functions, in Ifs and Loops that constants decide, of float64, and behind operators that qk does not have, are quantized or said to stay."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, qk
from evidence.graphs import save as save_model, value
from evidence.runtimes import outputs

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

random = np.random.default_rng(7)


def weight(name, *shape, kind=np.float32):
    return nh.from_array((random.normal(size=shape) * 0.4).astype(kind), name)


def save(folder, *parts, **more):
    return save_model(folder / "m.onnx", *parts, **more)


def run(file, x):
    return outputs(file, {"x": x}, "off")


def quantized(folder, file, x, *words, formats=("int8", "int8")):
    """Quantizes; returns the quantized tensors and all remarks. What the file computes is near the float model, and what its plan computes."""
    np.save(folder / "x.npy", x)
    r = qk("quantize", file, "-o", folder / "q.onnx", "--activation", formats[0], "--weight", formats[1], "--calibration", folder / "x.npy", "--save-plan", folder / "p.json", "--overwrite", "--json",
           *words)
    plan = json.load(open(folder / "p.json"))
    notes = json.dumps(json.loads(r.stdout)["notes"])
    onnx.checker.check_model(onnx.load(folder / "q.onnx"))
    return {**{e["tensor"]: e["quantizer"]["format"] for e in plan["edges"]}, **{t: q["format"] for t, q in plan["tensors"].items()}}, notes


def as_planned(folder, file, x, what, least=25):
    for a, b in zip(run(file, x), run(folder / "q.onnx", x)):
        check(a.dtype == b.dtype and decibels(b, a) > least, f"{what}: the file is {decibels(b, a):.1f} dB beside the float model")
    qk("evaluate", file, "--plan", folder / "p.json", "--inputs", folder / "x.npy", "--output-dir", folder / "out", "--overwrite")
    for f, b in zip(sorted((folder / "out").glob("*.npy")), run(folder / "q.onnx", x)):
        check(decibels(b, np.load(f)) > 40, f"{what}: the saved plan gives {decibels(b, np.load(f)):.1f} dB beside the file")


def test_functions(folder):
    attribute = h.make_node("LeakyRelu", ["h"], ["o"])
    a = attribute.attribute.add()
    a.name, a.ref_attr_name, a.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    lin = h.make_function("pkg", "Lin", ["a", "b"], ["o", "h"], [h.make_node("MatMul", ["a", "b"], ["h"]), attribute], [h.make_opsetid("", 17)], ["slope"])
    twice = h.make_function("pkg", "Twice", ["a", "b", "c"], ["o"], [h.make_node("Lin", ["a", "b"], ["t", "unused"], domain="pkg", slope=0.25, name="one"),
                            h.make_node("Lin", ["t", "c"], ["o", "unused_too"], domain="pkg", slope=0.5, name="two")], [h.make_opsetid("", 17), h.make_opsetid("pkg", 1)])
    old = h.make_function("pkg", "Old", ["a", "b"], ["o"], [h.make_node("MatMul", ["a", "b"], ["h"]), h.make_node("Softmax", ["h"], ["o"])], [h.make_opsetid("", 11)])
    file = save(folder, [h.make_node("Twice", ["x", "w", "v"], ["t"], domain="pkg", name="call"), h.make_node("Old", ["t", "u"], ["s"], domain="pkg", name="aged"),
                         h.make_node("MatMul", ["s", "z"], ["y"], name="last")],
                [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("v", 8, 8), weight("u", 8, 8), weight("z", 8, 4)], functions=[lin, twice, old], domains=["pkg"])
    x = random.normal(size=(16, 8)).astype(np.float32)
    formats, notes = quantized(folder, file, x)
    check({"x", "w", "v", "u", "z", "t"} <= set(formats) and set(formats.values()) == {"int8"}, f"layers in functions are layers: {formats}")
    check("opened" in notes and "call" in notes, f"a remark says so: {notes}")
    check(not [f for f in onnx.load(folder / "q.onnx").functions if f.domain == "pkg"], "no function is left")
    as_planned(folder, file, x, "functions")


def test_bodies(folder):
    then = h.make_graph([h.make_node("MatMul", ["x", "w"], ["then_y"], name="inside")], "then", [], [value("then_y", "N", 8)])
    other = h.make_graph([h.make_node("Identity", ["x"], ["else_y"])], "else", [], [value("else_y", "N", 8)])
    body = h.make_graph([h.make_node("MatMul", ["state", "v"], ["m"], name="turned"), h.make_node("Tanh", ["m"], ["next"]), h.make_node("Identity", ["go"], ["go_on"])], "body",
                        [value("i", kind=T.INT64), value("go", kind=T.BOOL), value("state", "N", 8)], [value("go_on", kind=T.BOOL), value("next", "N", 8)], [weight("v", 8, 8)])
    nodes = [h.make_node("Shape", ["w"], ["s"], name="shape"), h.make_node("Gather", ["s", "zero"], ["rows"], name="rows"), h.make_node("Greater", ["rows", "three"], ["many"], name="many"),
             h.make_node("If", ["many"], ["a"], name="if", then_branch=then, else_branch=other), h.make_node("Loop", ["turns", "", "a"], ["b"], name="loop", body=body),
             h.make_node("MatMul", ["b", "z"], ["y"], name="last")]
    number = lambda name, v: nh.from_array(np.array(v, np.int64), name)
    file = save(folder, nodes, [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("z", 8, 4), number("zero", 0), number("three", 3), number("turns", 3)])
    x = random.normal(size=(16, 8)).astype(np.float32)
    formats, notes = quantized(folder, file, x)
    check({"x", "w", "a", "z"} <= set(formats) and len([t for t in formats if t.startswith("loop/")]) >= 3, f"layers of the branch and of three turns: {formats}")
    check("If of a constant condition" in notes and "Loop of a constant number of turns" in notes, f"remarks say so: {notes}")
    as_planned(folder, file, x, "If and Loop", 20)
    # A condition that the data decides: the layer stays, and a remark says so.
    file = save(folder, [h.make_node("ReduceMax", ["x"], ["most"], keepdims=0, name="most"), h.make_node("Greater", ["most", "limit"], ["c"], name="c"),
                         h.make_node("If", ["c"], ["a"], name="if", then_branch=then, else_branch=other), h.make_node("MatMul", ["a", "z"], ["y"], name="last")],
                [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("z", 8, 4), nh.from_array(np.float32(0), "limit")])
    formats, notes = quantized(folder, file, x)
    check({"a", "z"} == set(formats) and "1 layers in the bodies of If, Loop or Scan" in notes, f"a condition of data: {formats} {notes}")


def test_doubles(folder):
    file = save(folder, [h.make_node("MatMul", ["x", "w"], ["m"], name="first"), h.make_node("Mul", ["m", "two"], ["k"], name="mul"), h.make_node("Relu", ["k"], ["r"], name="relu"),
                         h.make_node("MatMul", ["r", "v"], ["y"], name="second")],
                [value("x", "N", 8, kind=T.DOUBLE)], [value("y", "N", 4, kind=T.DOUBLE)], [weight("w", 8, 8, kind=np.float64), weight("v", 8, 4, kind=np.float64), nh.from_array(np.float64(2), "two")])
    x = random.normal(size=(16, 8))
    formats, notes = quantized(folder, file, x)
    check({"w", "v", "r"} <= set(formats), f"layers of float64 are layers: {formats}")
    check("computes in float64: planned and written in float32" in notes, f"a remark says so: {notes}")
    as_planned(folder, file, x, "float64")
    qk("quantize", file, "-o", folder / "w.onnx", "--approach", "weight_only", "--weight", "fp32", "--activation", "fp32", "--overwrite")
    check(decibels(run(folder / "w.onnx", x)[0], run(file, x)[0]) > 120, "in float32 the model gives its own values")


def test_doubles_in_bodies(folder):
    """A body inside of a body reads an output of the graph."""
    deep = h.make_graph([h.make_node("Add", ["m", "one"], ["a"], name="add")], "deep", [], [value("a", None, kind=T.DOUBLE)])
    flat = [h.make_graph([h.make_node("Identity", ["m"], [name], name=name + "_same")], name, [], [value(name, None, kind=T.DOUBLE)]) for name in ("b", "d")]
    inner = h.make_graph([h.make_node("If", ["c"], ["i"], name="inner", then_branch=deep, else_branch=flat[0])], "inside", [], [value("i", None, kind=T.DOUBLE)])
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"], name="first"), h.make_node("ReduceMax", ["x"], ["most"], keepdims=0, name="most"),
             h.make_node("Greater", ["most", "limit"], ["c"], name="c"), h.make_node("If", ["c"], ["y"], name="outer", then_branch=inner, else_branch=flat[1])]
    file = save(folder, nodes, [value("x", "N", 8, kind=T.DOUBLE)], [value("m", "N", 4, kind=T.DOUBLE), value("y", "N", 4, kind=T.DOUBLE)],
                [weight("w", 8, 4, kind=np.float64), nh.from_array(np.float64(-9), "limit"), nh.from_array(np.float64(1), "one")])
    x = random.normal(size=(16, 8))
    formats, notes = quantized(folder, file, x)
    check("computes in float64" in notes and formats["w"] == "int8", "layers of float64 beside nested bodies")
    as_planned(folder, file, x, "float64 in nested bodies")


def test_foreign(folder):
    # An operator of nobody's: what runs before it has ranges, what stands behind stays.
    custom = [h.make_node("MatMul", ["x", "w"], ["a"], name="before"), h.make_node("Odd", ["a"], ["b"], name="odd", domain="my.ops"), h.make_node("MatMul", ["b", "v"], ["y"], name="behind")]
    file = save(folder, custom, [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("v", 8, 4)], domains=["my.ops"])
    x = random.normal(size=(16, 8)).astype(np.float32)
    formats, notes = quantized(folder, file, x)
    check(set(formats) == {"x", "w"} and "my.ops:Odd" in notes and "1 layer behind stays float32" in notes, f"before and behind: {formats} {notes}")
    r = qk("quantize", file, "-o", folder / "n.onnx", "--activation", "int8", "--weight", "int8", "--calibration", folder / "x.npy", "--run-with", "tensorflow", status=2)
    check("onnxruntime" in r.stderr, r.stderr)
    # The operator stands in a body, which alone reads what was made before.
    odd = h.make_graph([h.make_node("Odd", ["a"], ["t"], name="odd", domain="my.ops")], "then", [], [value("t", "N", 8)])
    plain = h.make_graph([h.make_node("Neg", ["a"], ["e"], name="neg")], "else", [], [value("e", "N", 8)])
    inside = [h.make_node("MatMul", ["x", "w"], ["a"], name="before"), h.make_node("ReduceMax", ["x"], ["most"], name="most", keepdims=0),
              h.make_node("Greater", ["most", "zero"], ["c"], name="greater"), h.make_node("If", ["c"], ["b"], name="if", then_branch=odd, else_branch=plain),
              h.make_node("MatMul", ["b", "v"], ["y"], name="behind")]
    file = save(folder, inside, [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("v", 8, 4), nh.from_array(np.float32(0), "zero")], domains=["my.ops"])
    formats, notes = quantized(folder, file, x)
    check({"x", "w"} <= set(formats) and "v" not in formats and "my.ops:Odd" in notes, f"an unknown operator in a body: {formats} {notes}")
    # Sequences, and one operator of onnxruntime's, calibrated there.
    nodes = [h.make_node("MatMul", ["x", "w"], ["a"], name="before"), h.make_node("SplitToSequence", ["a", "half"], ["s"], name="split", axis=1),
             h.make_node("SequenceAt", ["s", "one"], ["b"], name="at"), h.make_node("MatMul", ["b", "v"], ["y"], name="behind")]
    number = lambda name, v: nh.from_array(np.array(v, np.int64), name)
    file = save(folder, nodes, [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("v", 4, 4), number("half", 4), number("one", 1)])
    formats, notes = quantized(folder, file, x)
    check({"x", "w"} <= set(formats), f"a sequence stops nothing: {formats} {notes}")
    for a, b in zip(run(file, x), run(folder / "q.onnx", x)):
        check(decibels(b, a) > 25, f"sequence: {decibels(b, a):.1f} dB")
    nodes = [h.make_node("MatMul", ["x", "w"], ["a"], name="before"), h.make_node("Scaler", ["a"], ["b"], name="scaler", domain="ai.onnx.ml", scale=[0.5] * 8, offset=[0.1] * 8),
             h.make_node("MatMul", ["b", "v"], ["y"], name="behind")]
    file = save(folder, nodes, [value("x", "N", 8)], [value("y", "N", 4)], [weight("w", 8, 8), weight("v", 8, 4)], domains=["ai.onnx.ml"])
    formats, notes = quantized(folder, file, x)
    check({"x", "w"} <= set(formats) and "v" not in formats, f"qk does not have Scaler: {formats} {notes}")
    formats, notes = quantized(folder, file, x, "--run-with", "onnxruntime")
    check({"x", "w", "b", "v"} <= set(formats), f"calibrated in onnxruntime: {formats} {notes}")
    for a, b in zip(run(file, x), run(folder / "q.onnx", x)):
        check(decibels(b, a) > 25, f"calibrated in onnxruntime: {decibels(b, a):.1f} dB")


if __name__ == "__main__":
    evidence.main()
