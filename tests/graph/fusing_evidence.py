# SPDX-License-Identifier: Apache-2.0
"""Layers that onnxruntime's optimizer would fuse into operators that cannot express them: the exported model loads, and gives the same
results with the optimizer off and on.
"""
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, run as ran
from evidence.graphs import model as made
from evidence.runtimes import keeps, run

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.usefixtures("one_thread")
rng = np.random.default_rng(11)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def w(*shape):
    return (rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[:-1]), 1))).astype(np.float32)


def model(nodes, held, x_shape, y_shape=(None, None, None), opset=17):
    return made(nodes, {"x": x_shape}, {"y": y_shape}, held, opset=opset, ir_version=10 if opset > 20 else 8)


def holds(what, m, x, options, styles=("portable", "qdq"), limit=2e-2, edges=1):
    """Compares onnxruntime with the optimizer off and on, `qk evaluate` of the file, and of the plan. Results may differ by `limit` of the
    largest output, since values beside ties may round either way."""
    plain, data, out, plan = (at(n) for n in ("m.onnx", "x.npy", "q.onnx", "p.json"))
    onnx.save(m, plain)
    np.save(data, x)
    for style in styles:
        problem = ""
        done = ran("quantize", "--recipe", "fast", plain, "-o", out, "--save-plan", plan, "--calibration", data, "--export", style, *options, "--overwrite")
        if done.returncode != 0:
            problem = done.stderr
        else:
            try:
                onnx.checker.check_model(out)
                reference = run(out, x, "off")
                got = {"optimized": run(out, x)}
                for name, arguments in (("qk evaluate", [out]), ("qk evaluate of the plan", [plain, "--plan", plan])):
                    got[name] = evidence.evaluated(*arguments[:1], data, *arguments[1:], "--batch", len(x), output="y")
                kept, said = keeps(got["optimized"], reference, run(plain, x, "off"))
                problem += "" if kept else said + "; "
                for name, y in got.items():
                    error = np.abs(y.reshape(reference.shape) - reference).max(initial=0) / max(np.abs(reference).max(initial=0), 1e-30)
                    if not error <= limit:
                        problem += f"{name}: {error:.2g} of the largest output; "
                if int(re.search(r"(\d+) quantized edges", done.stdout)[1]) < edges:
                    problem += "nothing was quantized"
            except Exception as failed:  # the model does not load or run
                problem = str(failed)[:300]
        check(not problem, f"{what}, {' '.join(options)}, {style}: {problem}")


x6, x8 = w(4, 6), w(4, 5, 8)
u8 = ["--activation", "uint8", "--weight", "int8"]


def test_biases_of_gemm():
    """Gemm's bias may have any shape that broadcasts to the output."""
    for shape in ((5,), (1, 5), (1,), (), (1, 1), (4, 1), (4, 5)):
        m = model([node("Gemm", ["x", "w", "c"], ["y"], "gemm")], {"w": w(6, 5), "c": w(*shape) if shape else np.float32(0.7)}, [4, 6], [4, 5], 13)
        for more in ([], ["--per-channel"]):
            holds(f"Gemm with a bias of shape {shape}", m, x6, [*u8, *more], ("portable", "qdq", "qoperator"))


def test_scales_that_integer_products_lack():
    """Scales that integer products cannot express: by block, by row, of several matrices."""
    for bias in (False, True):
        tail = [node("Add", ["t", "b"], ["y"], "add")] if bias else [node("Identity", ["t"], ["y"], "end")]
        m = model([node("MatMul", ["x", "w"], ["t"], "matmul"), *tail], {"w": w(24, 24), "b": w(24)}, ["N", 6, 24], ["N", 6, 24])
        for weight in (["int8"], ["uint8", "--asymmetric-weights"], ["int4"]):
            holds(f"MatMul in blocks, bias {bias}", m, w(4, 6, 24), ["--activation", "uint8", "--weight", *weight, "--weight-block", "8"])
    conv = model([node("Conv", ["x", "w"], ["y"], "conv")], {"w": w(7, 8, 1)}, ["N", 8, 5], ["N", 7, 5])
    holds("Conv in blocks", conv, w(4, 8, 5), [*u8, "--weight-block", "4"])
    for shape in ((3, 8, 6), (1, 8, 6)):
        m = model([node("MatMul", ["x", "w"], ["t"], "matmul"), node("Relu", ["t"], ["y"], "relu")], {"w": w(*shape)}, [4, 3, 5, 8] if shape[0] == 3 else [4, 5, 8],
                  [None] * (4 if shape[0] == 3 else 3))
        for more in ([], ["--per-channel"]):
            holds(f"MatMul with weights {shape}", m, w(4, 3, 5, 8) if shape[0] == 3 else x8, [*u8, *more])
    left = model([node("MatMul", ["w", "x"], ["t"], "matmul"), node("Relu", ["t"], ["y"], "relu")], {"w": w(7, 5)}, ["N", 5, 8], ["N", 7, 8])
    for weight in (["int8"], ["int8", "--per-channel"], ["uint8", "--asymmetric-weights", "--per-channel"], ["fp8_e4m3fn"], ["int32"], ["int16"], ["int4"]):
        holds("MatMul with weights on the left", left, x8, ["--activation", "uint8", "--weight", *weight])


def test_guarded_layers():
    """A guarded layer's weights of 8 bits must not become MatMulNBits."""
    for turned in (0, 1):
        m = model([node("Gemm", ["x", "w", "b"], ["h"], "one", transB=turned), node("Relu", ["h"], ["r"], "relu"), node("Gemm", ["r", "v", "c"], ["y"], "two")],
                  {"w": w(48, 64) if turned else w(64, 48), "b": w(48), "v": w(48, 10), "c": w(10)}, ["N", 64], ["N", 10])
        for more in (["--bias", "fp32"], ["--bias", "bf16"], ["--weight-block", "16"], []):
            holds(f"Gemm, transB={turned}", m, w(6, 64), [*u8, *more], ("portable",), 2e-3)


def test_two_bits():
    two_bits = model([node("MatMul", ["x", "w"], ["y"], "matmul")], {"w": w(8, 6)}, ["N", 5, 8])
    holds("weights of 2 bits", two_bits, x8, ["--activation", "fp8_e4m3fn", "--weight", "int2"], limit=1e-3)
    for rows, columns in ((16, 3), (32, 5), (64, 2), (24, 4)):  # their blocks are longer than the rows, or the last one is shorter
        two_bits = model([node("MatMul", ["x", "w"], ["y"], "matmul")], {"w": w(rows, columns)}, ["N", 5, rows])
        holds(f"{rows} x {columns} weights of 2 bits by blocks", two_bits, w(4, 5, rows),
              ["--approach", "weight_only", "--weight", "int2", "--weight-block", "128" if rows != 24 else "16"], ("portable", "qdq"), 1e-3)
    convs = model([node("Conv", ["x", "w"], ["t"], "one"), node("Conv", ["t", "v"], ["y"], "two")], {"w": w(6, 8, 1), "v": w(4, 6, 1)}, ["N", 8, 5])
    holds("convolutions of 2 bits", convs, w(4, 8, 5), ["--activation", "uint8", "--weight", "int2"])


def test_dynamic_pairs_with_a_bias():
    # onnxruntime turns a MatMul of dynamic pairs with a bias into a Gemm. No integer operator exists for it, so its weights would become
    # those of MatMulNBits.
    for bias in (("t", "b"), ("b", "t")):
        dynamic = model([node("MatMul", ["x", "w"], ["t"], "matmul"), node("Add", list(bias), ["y"], "add")], {"w": w(64, 48), "b": w(48)}, ["N", 5, 64])
        for options in (["--activation", "uint8", "--weight", "int8"], ["--activation", "uint8", "--weight", "int8", "--per-channel"], ["--activation", "int8", "--weight", "uint8"]):
            holds("dynamic scales and a bias", dynamic, w(1, 5, 64), ["--approach", "dynamic", *options], ("portable",), 1e-4)


def test_codes_behind_a_transpose():
    """Integers with fewer bits than their type, behind operators that only move data."""
    for opset in (17, 21):
        m = model([node("MatMul", ["x", "w"], ["t"], "one"), node("Transpose", ["t"], ["s"], "turn", perm=[0, 2, 1]), node("MatMul", ["s", "v"], ["y"], "two")],
                  {"w": w(8, 6), "v": w(5, 5)}, ["N", 5, 8], ["N", 6, 5], opset)
        for f in ("int8:narrow", "int:bits=6", "int:bits=3", "int8"):
            holds(f"opset {opset}, codes behind a Transpose", m, x8, ["--activation", f, "--weight", "int8"], ("portable",), 2e-3)


def test_average_pools():
    partial = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    for attributes in ({}, {"dilations": [1, 1]}, {"dilations": [2, 2]}, partial, {**partial, "count_include_pad": 1}, {**partial, "count_include_pad": 1, "pads": [1, 1, 1, 1]}):
        m = model([node("Conv", ["x", "w"], ["t"], "one"), node("AveragePool", ["t"], ["p"], "pool", **{"kernel_shape": [2, 2], **attributes}), node("Conv", ["p", "v"], ["y"], "two")],
                  {"w": w(4, 3, 1, 1), "v": w(2, 4, 1, 1)}, ["N", 3, 8, 8], [None] * 4, 19)
        holds(f"AveragePool {attributes}", m, w(4, 3, 8, 8), u8)


def test_small_tensors():
    """Tensors of no values, of one value, of one block."""
    empty = model([node("Concat", ["past", "x"], ["t"], "joined", axis=1), node("MatMul", ["past", "w"], ["u"], "none"), node("MatMul", ["t", "w"], ["v"], "some"),
                   node("Concat", ["u", "v"], ["y"], "all", axis=1)], {"past": np.zeros((4, 0, 8), np.float32), "w": w(8, 6)}, [4, 5, 8])
    none = model([node("Slice", ["x", "zero", "zero", "one"], ["past"], "past"), node("MatMul", ["past", "w"], ["u"], "none"), node("MatMul", ["x", "w"], ["v"], "some"),
                  node("Concat", ["u", "v"], ["y"], "all", axis=1)], {"zero": np.int64([0]), "one": np.int64([1]), "w": w(8, 6)}, [4, 5, 8])
    scalar = model([node("ReduceMean", ["x"], ["m"], "mean", keepdims=0), node("Mul", ["x", "m"], ["t"], "scaled"), node("MatMul", ["t", "w"], ["y"], "matmul")], {"w": w(8, 6)}, [4, 5, 8])
    for f in ("bfp16", "mx6", "mxfp4", "mxint8"):
        for m, what in ((empty, "an empty constant"), (none, "an empty activation")):
            holds(what, m, x8, ["--activation", f, "--weight", f], ("portable",))
        holds("a scalar activation", scalar, x8, ["--activation", f, "--weight", f, "--placement", "all"], ("portable",))
    holds("a scalar of run-time scales", scalar, x8, ["--activation", "int8", "--weight", "int8", "--approach", "dynamic", "--placement", "all"], ("portable",), 5e-2)
    vector = model([node("MatMul", ["x", "w"], ["y"], "matmul")], {"w": w(8)}, ["N", 5, 8], ["N", 5])
    for f in ("int8", "int4", "fp8_e4m3fn"):
        holds("a vector of one block", vector, x8, ["--approach", "weight_only", "--weight", f, "--weight-block", "32"])


def test_types_of_outputs():
    """Operators whose output does not have the type of the first input."""
    branch = lambda name: helper.make_graph([node("Identity", ["x"], [name], name + "_node")], name, [], [helper.make_tensor_value_info(name, FLOAT, None)])
    held = {"w": w(8, 6), "three": np.int64(3), "yes": np.bool_(True)}
    body = helper.make_graph([node("Identity", ["go"], ["more"], "again"), node("Mul", ["v", "v"], ["next"], "square")], "body",
                             [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", BOOL, []), helper.make_tensor_value_info("v", FLOAT, None)],
                             [helper.make_tensor_value_info("more", BOOL, []), helper.make_tensor_value_info("next", FLOAT, None)])
    matmul = node("MatMul", ["t", "w"], ["y"], "matmul")
    for f in ("int8", "mx6"):
        same = ["--activation", f, "--weight", f]
        holds("a layer behind an If", model([node("If", ["yes"], ["t"], "choice", then_branch=branch("a"), else_branch=branch("b")), matmul], held, [4, 5, 8]), x8, same, ("portable",), edges=2)
        holds("a layer behind a Loop", model([node("Loop", ["three", "yes", "x"], ["t"], "loop", body=body), matmul], held, [4, 5, 8]), x8, same, ("portable",), edges=2)
        holds("the mask of a Dropout", model([node("Dropout", ["x"], ["d", "mask"], "drop"), node("Where", ["mask", "d", "x"], ["t"], "where"), matmul], held, [4, 5, 8]), x8,
              [*same, "--placement", "all"], ("portable",), edges=2)
        holds("integers made floats by CastLike", model([node("ArgMax", ["x"], ["i"], "largest", axis=2), node("CastLike", ["i", "x"], ["j"], "like"), node("Mul", ["x", "j"], ["t"], "times"), matmul],
                                                        held, [4, 5, 8]), x8, [*same, "--placement", "all"], ("portable",), edges=2)


def test_a_pair_of_the_models_own():
    """A model that already has a Q/DQ pair in front of a layer whose weights are quantized."""
    own = model([node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"), node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"), node("MatMul", ["d", "w"], ["y"], "matmul")],
                {"s": np.float32(0.01), "z": np.uint8(128), "w": w(8, 6)}, [4, 5, 8])
    holds("a pair of the model's own", own, x8, ["--approach", "weight_only", "--weight", "mxfp4"], ("portable",), 1e-5)


if __name__ == "__main__":
    evidence.main()
