# SPDX-License-Identifier: Apache-2.0
"""One small model or more for every operator of ai.onnx, at every opset at which it has this form: what `opset_evidence.py` raises.

`cases()` returns them. A case holds for the opsets from its first to its last: `model(opset)` makes it there. Inputs and attributes are chosen so
that a change of meaning between opsets shows in the result (fractions where halves of a pixel matter, three axes where the axis does).
"""
import numpy as np
import onnx
from onnx import TensorProto as TP, helper as oh, numpy_helper as nh

FIRST, LAST = 7, 25
r = np.random.default_rng(7)
IR = {19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13}


def f32(*shape, scale=1.0, shift=0.0):
    return (r.standard_normal(shape) * scale + shift).astype(np.float32)


def pos(*shape):
    return (np.abs(r.standard_normal(shape)) + 0.25).astype(np.float32)


def unit(*shape):
    return r.uniform(-0.9, 0.9, shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


class K:
    """A constant: an initializer of the model instead of an input."""

    def __init__(self, value):
        self.value = np.asarray(value)


class Case:
    """`refused`, if given, is (first, last, text): raising to opsets from the first to the last is an error that says the text."""

    def __init__(self, op, first, last, nodes, feeds, constants=(), outputs=("y",), functions=(), name="", imports=(), refused=None):
        self.op, self.first, self.last, self.nodes, self.feeds, self.constants, self.outputs = op, max(first, 1), last, nodes, feeds, dict(constants), outputs
        self.functions, self.imports, self.refused = functions, imports, refused
        self.name = op + ("-" + name if name else "")

    def model(self, opset):
        inputs = []
        for name, x in self.feeds.items():
            kind = TP.STRING if x.dtype == object else oh.np_dtype_to_tensor_dtype(x.dtype)
            inputs.append(oh.make_tensor_value_info(name, kind, list(x.shape)))
        nodes = self.nodes(opset) if callable(self.nodes) else self.nodes
        functions = self.functions(opset) if callable(self.functions) else self.functions
        g = oh.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=o) for o in self.outputs],
                          [nh.from_array(v, n) for n, v in self.constants.items()])
        m = oh.make_model(g, opset_imports=[oh.make_opsetid("", opset), *self.imports], functions=list(functions))
        m.ir_version = IR.get(opset, 8)
        return m


ALL = []


def c(op, first, last, *inputs, name="", outs=1, refused=None, **attributes):
    """Adds a case of one node. An input is an array, a K, or None for one that is left out."""
    names, feeds, constants = [], {}, {}
    for i, x in enumerate(inputs):
        n = "" if x is None else f"i{i}"
        names.append(n)
        if isinstance(x, K):
            constants[n] = x.value
        elif x is not None:
            feeds[n] = np.asarray(x)
    outputs = [f"y{i}" for i in range(outs)] if isinstance(outs, int) else [o for o in outs]
    node = oh.make_node(op, names, outputs, name="node", **attributes)
    ALL.append(Case(op, first, last, [node], feeds, constants, [o for o in outputs if o], name=name, refused=refused))


def g(op, first, last, nodes, feeds, constants=(), outputs=("y",), **more):
    """Adds a case of several nodes."""
    ALL.append(Case(op, first, last, nodes, feeds, constants, outputs, **more))


def n(op, inputs, outputs, **attributes):
    return oh.make_node(op, inputs, outputs, name=attributes.pop("name", op.lower() + "_" + outputs[0]), **attributes)


def elementwise():
    x = f32(2, 3, 4)
    for op, first in (("Abs", 6), ("Ceil", 6), ("Cos", 7), ("Elu", 6), ("Exp", 6), ("Floor", 6), ("HardSigmoid", 6), ("Identity", 1), ("LeakyRelu", 6), ("Neg", 6), ("Relu", 6),
                      ("Selu", 6), ("Sigmoid", 6), ("Sin", 7), ("Softplus", 1), ("Softsign", 1), ("Tan", 7), ("Tanh", 6), ("Reciprocal", 6), ("Cosh", 9), ("Sinh", 9),
                      ("Asinh", 9), ("Atan", 7), ("Sign", 9), ("Erf", 9), ("Round", 11), ("Celu", 12), ("HardSwish", 14), ("Mish", 18), ("Gelu", 20), ("Swish", 24), ("Shrink", 9),
                      ("ThresholdedRelu", 10), ("IsNaN", 9), ("IsInf", 10)):
        c(op, first, LAST, x)
    for op, first in (("Acos", 7), ("Asin", 7), ("Atanh", 9)):
        c(op, first, LAST, unit(2, 3))
    for op in ("Log", "Sqrt"):
        c(op, 6, LAST, pos(2, 3))
    c("Acosh", 9, LAST, pos(2, 3) + np.float32(1))
    c("Not", 1, LAST, np.array([True, False]))
    for op, first in (("Elu", 6), ("HardSigmoid", 6), ("LeakyRelu", 6), ("Selu", 6), ("ThresholdedRelu", 10), ("Celu", 12)):
        c(op, first, LAST, x, name="alpha", alpha=0.4)
    c("Gelu", 20, LAST, x, name="tanh", approximate="tanh")
    c("Shrink", 9, LAST, x, name="set", bias=0.1, lambd=0.4)
    c("Swish", 24, LAST, x, name="alpha", alpha=0.5)
    odd = np.array([[np.inf, -np.inf, np.nan, 1.5]], np.float32)
    c("IsInf", 10, LAST, odd, name="one", detect_negative=0)
    c("IsNaN", 9, LAST, odd, name="some")
    c("Round", 11, LAST, np.array([0.5, 1.5, 2.5, -0.5], np.float32), name="ties")
    for op in ("Add", "Sub", "Mul", "Div"):
        c(op, 7, LAST, x, f32(3, 1))
        c(op, 7, LAST, np.array([7, 8, -9], np.int64), np.array([2], np.int64), name="int64")
    c("Pow", 7, LAST, pos(2, 3), f32(3))
    c("Pow", 12, LAST, pos(2, 3), i64(2), name="types")
    c("PRelu", 7, LAST, x, K(f32(3, 1)))
    for op in ("And", "Or", "Xor"):
        c(op, 7, LAST, np.array([[True, False], [True, True]]), np.array([False, True]))
    c("Equal", 7, LAST, np.array([[1, 2], [3, 4]], np.int64), np.array([1, 4], np.int64))
    c("Equal", 11, LAST, x, x.copy(), name="float")
    for op, first in (("Greater", 7), ("Less", 7), ("GreaterOrEqual", 12), ("LessOrEqual", 12)):
        c(op, first, LAST, x, f32(3, 1))
    c("Mod", 10, LAST, np.array([7, -7, 5], np.int64), np.array([3, 3, -3], np.int64))
    c("Mod", 10, LAST, f32(4), pos(4), name="fmod", fmod=1)
    for op in ("Max", "Min", "Sum", "Mean"):
        c(op, 6, LAST, x, f32(2, 3, 4), f32(2, 3, 4))
        c(op, 8, LAST, x, f32(4), name="broadcast")
    c("BitShift", 11, LAST, np.array([1, 2, 4], np.uint32), np.array([1, 2, 3], np.uint32), direction="LEFT")
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        c(op, 18, LAST, np.array([12, 10], np.int32), np.array([10, 3], np.int32))
    c("BitwiseNot", 18, LAST, np.array([12, 10], np.int32))
    c("Where", 9, LAST, np.array([[True], [False]]), f32(2, 3), f32(3))
    wide = np.array([-np.inf, -3, -0.25, 0.5, 2, np.inf], np.float32)
    c("Clip", 6, 10, wide, name="neither")
    c("Clip", 6, 10, wide, name="min", min=-0.5)
    c("Clip", 6, 10, wide, name="max", max=1.0)
    c("Clip", 6, 10, wide, name="both", min=-0.5, max=1.0)
    double = [n("Cast", ["x"], ["d"], to=TP.DOUBLE), n("Neg", ["d"], ["m"]), n("Clip", ["m"], ["y"], min=-0.5, max=1.0)]
    g("Clip", 6, 10, double, {"x": wide}, name="double")
    c("Clip", 11, LAST, wide, K(np.float32(-0.5)), K(np.float32(1)))
    c("Clip", 11, LAST, wide, None, K(np.float32(1)), name="max_input")
    c("Clip", 12, LAST, np.array([1, 5, 9], np.int8), K(np.int8(2)), K(np.int8(7)), name="int8")


def types_and_constants():
    x = np.array([[1.5, -2.5, 300.25], [0, 3.5, -7]], np.float32)
    c("Cast", 6, LAST, x, to=TP.INT32)
    c("Cast", 6, LAST, x, name="half", to=TP.FLOAT16)
    c("Cast", 9, LAST, np.array(["1.5", "-2"], object), name="string", to=TP.FLOAT)
    g("Cast", 13, LAST, [n("Cast", ["x"], ["b"], to=TP.BFLOAT16), n("Cast", ["b"], ["y"], to=TP.FLOAT)], {"x": x}, name="bfloat16")
    c("CastLike", 15, LAST, x, np.zeros(1, np.float64))
    for to in (TP.FLOAT8E4M3FN, TP.FLOAT8E5M2, TP.FLOAT8E4M3FNUZ, TP.FLOAT8E5M2FNUZ):
        for saturate in (0, 1):
            big = np.array([1e9, np.inf, -np.inf, 0.3, -470], np.float32)
            g("Cast", 19, LAST, [n("Cast", ["x"], ["e"], to=to, saturate=saturate), n("Cast", ["e"], ["y"], to=TP.FLOAT)], {"x": big}, name=f"{TP.DataType.Name(to)}_{saturate}")
    g("Constant", 1, LAST, [n("Constant", [], ["k"], value=nh.from_array(f32(3))), n("Identity", ["k"], ["y"])], {})
    g("Constant", 12, LAST, [n("Constant", [], ["k"], value_floats=[1.0, 2.0]), n("Identity", ["k"], ["y"])], {}, name="floats")
    g("Constant", 11, LAST, [n("Constant", [], ["k"], sparse_value=oh.make_sparse_tensor(nh.from_array(f32(2), "v"), nh.from_array(i64(0, 3), "i"), [2, 2])),
                             n("Identity", ["k"], ["y"])], {}, name="sparse")
    c("ConstantOfShape", 9, LAST, i64(2, 3), value=nh.from_array(np.array([2.5], np.float32)))
    c("ConstantOfShape", 9, LAST, i64(2, 3), name="default")
    c("EyeLike", 9, LAST, f32(3, 4), k=1)
    c("EyeLike", 9, LAST, np.zeros((3, 3), np.int32), name="dtype", dtype=TP.FLOAT)
    c("Range", 11, LAST, np.float32(1), np.float32(4), np.float32(0.5))
    c("OneHot", 9, LAST, i64(0, 2, 5, -1), K(i64(4)), K(np.array([0.5, 2], np.float32)))
    c("OneHot", 9, LAST, i64(0, 2, 3), K(i64(4)), K(np.array([0.5, 2], np.float32)), name="axis", axis=0)
    c("Shape", 1, LAST, f32(2, 3, 4))
    c("Shape", 15, LAST, f32(2, 3, 4), name="part", start=1, end=-1)
    c("Size", 1, LAST, f32(2, 3, 4))
    c("NonZero", 9, LAST, np.array([[0, 1], [2, 0]], np.float32))


def moving():
    x = f32(2, 3, 4)
    c("Concat", 4, LAST, x, f32(2, 1, 4), axis=1)
    c("Concat", 11, LAST, x, f32(2, 3, 2), name="negative", axis=-1)
    c("Compress", 9, LAST, x, np.array([True, False, True]), axis=1)
    c("Compress", 9, LAST, x, np.array([True, False, True]), name="flat")
    c("DepthToSpace", 1, LAST, f32(1, 8, 2, 3), blocksize=2)
    c("DepthToSpace", 11, LAST, f32(1, 8, 2, 3), name="CRD", blocksize=2, mode="CRD")
    c("SpaceToDepth", 1, LAST, f32(1, 2, 4, 6), blocksize=2)
    c("Expand", 8, LAST, f32(3, 1), K(i64(2, 3, 4)))
    c("Flatten", 1, LAST, x)
    c("Flatten", 9, LAST, x, name="axis", axis=2)
    c("Gather", 1, LAST, x, K(i64(2, 0)), axis=1)
    c("Gather", 11, LAST, x, K(i64(-1, 0)), name="negative", axis=-1)
    c("GatherElements", 11, LAST, x, K(np.zeros((2, 3, 2), np.int64)), axis=2)
    c("GatherND", 11, LAST, x, K(np.array([[0, 1], [1, 2]], np.int64)))
    c("GatherND", 12, LAST, x, K(np.array([[1], [2]], np.int64)), name="batch", batch_dims=1)
    c("Scatter", 9, 10, x, K(np.array([[[1, 0, 2, 1]]], np.int64)), K(f32(1, 1, 4)), axis=1)
    c("Scatter", 9, 10, x, K(np.array([[[1, 0, 1, 1]]], np.int64)), K(f32(1, 1, 4)), name="default")
    c("ScatterElements", 11, LAST, x, K(np.array([[[1, 0, 2, 1]]], np.int64)), K(f32(1, 1, 4)), axis=1)
    c("ScatterElements", 16, LAST, x, K(np.array([[[1, 1, 2, 1]]], np.int64)), K(f32(1, 1, 4)), name="add", axis=1, reduction="add")
    c("ScatterElements", 18, LAST, x, K(np.array([[[1, 1, 2, 1]]], np.int64)), K(f32(1, 1, 4)), name="max", axis=1, reduction="max")
    c("ScatterND", 11, LAST, x, K(np.array([[0, 1], [1, 2]], np.int64)), K(f32(2, 4)))
    c("ScatterND", 16, LAST, x, K(np.array([[0, 1], [0, 1]], np.int64)), K(f32(2, 4)), name="add", reduction="add")
    c("Pad", 2, 10, f32(2, 3), pads=[0, 1, 1, 2])
    c("Pad", 2, 10, f32(2, 3), name="value", pads=[0, 1, 1, 2], value=1.5)
    c("Pad", 2, 10, f32(2, 3).astype(np.float64), name="double", pads=[0, 1, 1, 2], value=1.5)
    c("Pad", 2, 10, f32(2, 3), name="reflect", pads=[0, 1, 0, 1], mode="reflect")
    c("Pad", 11, LAST, f32(2, 3), K(i64(0, 1, 1, 2)), K(np.float32(1.5)))
    c("Pad", 11, LAST, f32(2, 3), K(i64(0, 1, 0, 1)), name="edge", mode="edge")
    c("Pad", 18, LAST, f32(2, 3), K(i64(1, 2)), K(np.float32(1.5)), K(i64(1)), name="axes")
    c("Pad", 19, LAST, f32(2, 3), K(i64(0, 1, 1, 2)), name="wrap", mode="wrap")
    c("Reshape", 5, LAST, x, K(i64(0, -1)))
    c("Reshape", 14, LAST, np.zeros((0, 3), np.float32), K(i64(3, 0)), name="allowzero", allowzero=1)
    c("ReverseSequence", 10, LAST, f32(4, 2, 3), K(i64(2, 4)))
    c("Slice", 1, 9, x, starts=[0, 1], ends=[1, 100])
    c("Slice", 1, 9, x, name="axes", starts=[-2], ends=[2147483647], axes=[1])
    c("Slice", 10, LAST, x, K(i64(3)), K(i64(-100)), K(i64(2)), K(i64(-2)))
    c("Slice", 10, LAST, x, K(i64(0, 1)), K(i64(1, 100)), name="no_axes")
    c("Split", 2, 12, x, outs=2, name="parts", axis=2, split=[1, 3])
    c("Split", 2, 12, x, outs=2, axis=2)
    c("Split", 2, 12, x, outs=2, name="default")
    c("Split", 13, LAST, x, K(i64(1, 3)), outs=2, name="parts", axis=2)
    c("Split", 13, 17, x, outs=2, axis=2)
    c("Split", 13, 17, x, None, outs=2, name="left_out", axis=2)
    c("Split", 18, LAST, x, outs=3, name="uneven", axis=2, num_outputs=3)
    c("Squeeze", 1, 12, f32(2, 1, 3, 1), axes=[1])
    c("Squeeze", 1, 12, f32(2, 1, 3, 1), name="all")
    c("Squeeze", 11, 12, f32(2, 1, 3, 1), name="negative", axes=[-1])
    c("Squeeze", 13, LAST, f32(2, 1, 3, 1), K(i64(-1)))
    c("Squeeze", 13, LAST, f32(2, 1, 3, 1), name="all")
    c("Unsqueeze", 1, 12, f32(2, 3), axes=[0, 3])
    c("Unsqueeze", 11, 12, f32(2, 3), name="negative", axes=[-1])
    c("Unsqueeze", 13, LAST, f32(2, 3), K(i64(0, -1)))
    c("Tile", 6, LAST, x, K(i64(1, 2, 1)))
    c("Transpose", 1, LAST, x, perm=[1, 2, 0])
    c("Transpose", 1, LAST, x, name="default")
    c("Trilu", 14, LAST, f32(4, 4), upper=0)
    c("Trilu", 14, LAST, f32(4, 4), K(np.int64(1)), name="k")
    c("Unique", 11, LAST, np.array([2, 1, 1, 3, 4, 3], np.float32), outs=4)
    c("Unique", 11, LAST, np.array([2, 1, 1, 3, 4, 3], np.float32), outs=4, name="unsorted", sorted=0)
    c("TopK", 1, 9, f32(3, 5), outs=2, k=2)
    c("TopK", 1, 9, f32(3, 5), outs=2, name="axis", k=2, axis=0)
    c("TopK", 10, LAST, f32(3, 5), K(i64(2)), outs=2)
    c("TopK", 11, LAST, f32(3, 5), K(i64(2)), outs=2, name="least", largest=0)
    c("CenterCropPad", 18, LAST, f32(5, 3), K(i64(3, 4)))
    c("Col2Im", 18, LAST, f32(1, 4, 4), K(i64(3, 3)), K(i64(2, 2)))
    c("TensorScatter", 24, LAST, f32(2, 3, 8, 4), f32(2, 3, 2, 4), K(i64(1, 3)))
    c("CumSum", 11, LAST, x, K(np.int64(1)))
    c("CumSum", 11, LAST, x, K(np.int64(-1)), name="reverse", exclusive=1, reverse=1)


def reducing():
    x = pos(2, 3, 4)
    for op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare", "ReduceSum"):
        last = 12 if op == "ReduceSum" else 17
        c(op, 1, last, x, name="axes", axes=[0, 2])
        c(op, 1, last, x, name="all", keepdims=0)
        c(op, 11, last, x, name="negative", axes=[-1], keepdims=0)
        c(op, last + 1, LAST, x, K(i64(0, -1)), name="input", keepdims=0)
        c(op, last + 1, LAST, x, name="nothing")
        c(op, last + 1, LAST, x, name="noop", noop_with_empty_axes=1)
    for op in ("ReduceMax", "ReduceMin"):
        c(op, 12, 17, np.array([[1, -5], [7, 2]], np.int8), name="int8", axes=[1])
        c(op, 20, LAST, np.array([[True, False], [True, True]]), K(i64(1)), name="bool")
    for op in ("ArgMax", "ArgMin"):
        c(op, 1, LAST, x, axis=1, keepdims=0)
        c(op, 12, LAST, np.array([[1, 3, 3], [0, 0, 5]], np.float32), name="last", axis=1, select_last_index=1)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        c(op, 1, LAST, f32(2, 3, 4), name="default")
        c(op, 1, LAST, f32(2, 3, 4), name="first", axis=0)
        c(op, 1, LAST, f32(2, 3, 4), name="middle", axis=1)
        c(op, 1, LAST, f32(2, 3, 4), name="last", axis=2)
        c(op, 11, LAST, f32(2, 3, 4), name="negative", axis=-2)
    c("LpNormalization", 1, LAST, f32(2, 3), p=1, axis=0)
    c("LpNormalization", 1, LAST, f32(2, 3), name="default")
    c("MeanVarianceNormalization", 9, LAST, f32(2, 3, 2, 2))
    c("MeanVarianceNormalization", 9, LAST, f32(2, 3, 2, 2), name="axes", axes=[0, 2])
    c("Det", 11, LAST, f32(2, 3, 3))
    c("NegativeLogLikelihoodLoss", 12, LAST, f32(3, 4), K(i64(0, 3, 1)))
    c("SoftmaxCrossEntropyLoss", 12, LAST, f32(3, 4), K(i64(0, 3, 1)))


def layers():
    x = f32(2, 3, 7, 8)
    c("MatMul", 1, LAST, f32(2, 3), K(f32(3, 4)))
    c("Gemm", 7, LAST, f32(2, 3), K(f32(3, 4)), K(f32(4)))
    c("Gemm", 11, LAST, f32(3, 2), K(f32(3, 4)), name="no_c", transA=1, alpha=0.5)
    c("Einsum", 12, LAST, f32(2, 3), f32(3, 4), equation="ij,jk->ik")
    c("Conv", 1, LAST, x, K(f32(4, 3, 3, 3)), K(f32(4)), strides=[2, 1], pads=[1, 0, 1, 2])
    c("Conv", 1, LAST, x, K(f32(4, 3, 3, 4)), name="upper", auto_pad="SAME_UPPER", strides=[2, 2])
    c("Conv", 1, LAST, x, K(f32(4, 3, 3, 4)), name="lower", auto_pad="SAME_LOWER", strides=[2, 2])
    c("ConvTranspose", 1, LAST, f32(1, 2, 3, 3), K(f32(2, 3, 3, 3)), strides=[2, 2], output_padding=[1, 1])
    for pad in ("SAME_UPPER", "SAME_LOWER"):
        c("ConvTranspose", 1, LAST, f32(1, 2, 3, 3), K(f32(2, 3, 4, 3)), name=pad, auto_pad=pad, strides=[2, 2])
    c("ConvTranspose", 1, LAST, f32(1, 2, 3, 3), K(f32(2, 3, 3, 3)), name="shape", strides=[2, 2], output_shape=[8, 7])
    c("ConvInteger", 10, LAST, np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4), K(np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)), K(np.uint8(3)))
    c("MatMulInteger", 10, LAST, np.arange(6, dtype=np.uint8).reshape(2, 3), K(np.arange(6, dtype=np.uint8).reshape(3, 2)), K(np.uint8(1)), K(np.uint8(2)))
    q = [K(np.float32(0.1)), K(np.uint8(3))]
    c("QLinearMatMul", 10, LAST, np.arange(6, dtype=np.uint8).reshape(2, 3), *q, K(np.arange(6, dtype=np.uint8).reshape(3, 2)), *q, *q)
    c("QLinearConv", 10, LAST, np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4), *q, K(np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)), *q, *q)
    c("QuantizeLinear", 10, LAST, f32(2, 3), K(np.float32(0.05)), K(np.uint8(120)))
    c("QuantizeLinear", 10, LAST, f32(2, 3), K(np.float32(0.05)), name="no_zero_point")
    c("QuantizeLinear", 13, LAST, f32(2, 3), K(pos(3)), K(np.zeros(3, np.int8)), name="default_axis")
    c("QuantizeLinear", 13, LAST, f32(2, 3), K(pos(2)), K(np.zeros(2, np.int8)), name="axis", axis=0)
    c("QuantizeLinear", 21, LAST, f32(2, 4), K(pos(2, 2)), name="blocks", axis=1, block_size=2, output_dtype=TP.INT8)
    c("DequantizeLinear", 10, LAST, np.array([0, 3, 255], np.uint8), K(np.float32(0.05)), K(np.uint8(120)))
    c("DequantizeLinear", 13, LAST, np.arange(6, dtype=np.int8).reshape(2, 3), K(pos(3)), name="default_axis")
    c("DequantizeLinear", 21, LAST, np.arange(8, dtype=np.int8).reshape(2, 4), K(pos(2, 2)), name="blocks", axis=1, block_size=2)
    c("DynamicQuantizeLinear", 11, LAST, f32(2, 3), outs=3)
    bn = [K(f32(3)), K(f32(3)), K(f32(3)), K(pos(3))]
    c("BatchNormalization", 7, LAST, x, *bn)
    c("BatchNormalization", 7, LAST, x, *bn, name="epsilon", epsilon=0.1)
    c("BatchNormalization", 7, 8, x, *bn, name="spatial", spatial=1)
    each = [K(f32(3, 7, 8)), K(f32(3, 7, 8)), K(f32(3, 7, 8)), K(pos(3, 7, 8))]
    c("BatchNormalization", 7, 8, x, *each, name="each_element", spatial=0)
    c("BatchNormalization", 7, 8, x.astype(np.float64), *[K(v.value.astype(np.float64)) for v in each], name="each_double", spatial=0)
    c("BatchNormalization", 13, 13, x, *bn, name="training", outs=5, refused=(14, LAST, "opset 14: its second to fifth outputs"))
    c("InstanceNormalization", 6, LAST, x, K(f32(3)), K(f32(3)))
    c("GroupNormalization", 18, 20, f32(2, 4, 3, 3), K(f32(2)), K(f32(2)), num_groups=2)
    c("GroupNormalization", 18, 20, f32(2, 4, 3, 3), f32(2), f32(2), name="inputs", num_groups=2, epsilon=0.05)
    c("GroupNormalization", 18, 20, f32(2, 4, 3, 3).astype(np.float16), K(f32(2).astype(np.float16)), K(f32(2).astype(np.float16)), name="half", num_groups=2)
    c("GroupNormalization", 21, LAST, f32(2, 4, 3, 3), K(f32(4)), K(f32(4)), num_groups=2)
    c("LayerNormalization", 17, LAST, f32(2, 3, 4), K(f32(4)), K(f32(4)))
    c("LayerNormalization", 17, LAST, f32(2, 3, 4), K(f32(3, 4)), name="axis", axis=1, outs=3)
    c("RMSNormalization", 23, LAST, f32(2, 3, 4), K(f32(4)))
    c("LRN", 1, LAST, x, size=3, alpha=0.5)
    c("Dropout", 7, 9, f32(2, 3))
    c("Dropout", 7, 11, f32(2, 3), name="ratio", ratio=0.3)
    read = (12, LAST, "opset 12: its mask")
    c("Dropout", 7, 9, f32(2, 3), name="mask", outs=2, refused=read)
    c("Dropout", 10, 11, f32(2, 3), name="mask", outs=2, refused=read)
    g("Dropout", 7, 11, [n("Dropout", ["x"], ["y", "unread"])], {"x": f32(2, 3)}, name="unread")
    c("Dropout", 12, LAST, f32(2, 3), K(np.float32(0.3)), outs=2)
    c("AveragePool", 1, LAST, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    c("AveragePool", 7, LAST, x, name="include", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    c("AveragePool", 10, LAST, x, name="ceil", kernel_shape=[3, 3], strides=[3, 3], ceil_mode=1)
    c("AveragePool", 10, LAST, x, name="ceil_pads", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    c("AveragePool", 10, LAST, x, name="ceil_include", kernel_shape=[3, 3], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1, count_include_pad=1)
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        c("AveragePool", 1, LAST, x, name=pad, kernel_shape=[3, 2], strides=[2, 2], auto_pad=pad)
        c("MaxPool", 1, LAST, x, name=pad, kernel_shape=[3, 2], strides=[2, 2], auto_pad=pad)
        c("LpPool", 2, LAST, x, name=pad, kernel_shape=[3, 2], strides=[2, 2], auto_pad=pad)
    c("AveragePool", 19, LAST, x, name="dilations", kernel_shape=[2, 2], dilations=[2, 2])
    c("MaxPool", 1, LAST, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    c("MaxPool", 8, LAST, x, name="indices", outs=2, kernel_shape=[2, 2], strides=[2, 2])
    c("MaxPool", 10, LAST, x, name="ceil", kernel_shape=[3, 3], strides=[2, 2], dilations=[1, 2], ceil_mode=1)
    c("LpPool", 2, LAST, x, kernel_shape=[3, 3], strides=[2, 2], p=1)
    c("LpPool", 18, LAST, x, name="ceil", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, dilations=[1, 1])
    c("GlobalAveragePool", 1, LAST, x)
    c("GlobalMaxPool", 1, LAST, x)
    c("GlobalLpPool", 2, LAST, x, p=1)
    c("MaxRoiPool", 1, LAST, x, K(np.array([[0, 0, 0, 4, 5], [1, 1, 1, 6, 6]], np.float32)), pooled_shape=[2, 2], spatial_scale=0.7)
    c("MaxUnpool", 9, LAST, f32(1, 1, 2, 2), K(np.array([[[[5, 7], [13, 15]]]], np.int64)), kernel_shape=[2, 2], strides=[2, 2])
    c("DeformConv", 19, LAST, f32(1, 1, 4, 4), K(f32(1, 1, 2, 2)), K(f32(1, 8, 3, 3, scale=0.3)))


def vision():
    x = f32(1, 2, 4, 5)
    for mode in ("nearest", "linear"):
        c("Upsample", 7, 8, x, name=mode, mode=mode, scales=[1.0, 1.0, 2.0, 1.5])
        c("Upsample", 9, 9, x, K(np.array([1, 1, 2, 1.5], np.float32)), name=mode, mode=mode)
        for what, scales in (("up", [1, 1, 2, 1.7]), ("down", [1, 1, 0.6, 0.5]), ("both", [1, 1, 1.7, 0.6]), ("one", [1, 1, 1, 1])):
            c("Resize", 10, 10, x, K(np.array(scales, np.float32)), name=f"{mode}_{what}", mode=mode)
            c("Resize", 10, 10, x, np.array(scales, np.float32), name=f"{mode}_{what}_input", mode=mode)
    for size, to in ((3, 7), (6, 16), (10, 26), (7, 3), (11, 25), (26, 10)):  # lengths and positions that float32 rounds up to a whole number
        scales = np.array([1, 1, np.float32(to) / np.float32(size), np.float32(to) / np.float32(size)], np.float32)
        if to > size:  # onnxruntime's Upsample does nothing else
            c("Upsample", 9, 9, f32(1, 1, size, size), K(scales), name=f"{size}_to_{to}")
        c("Resize", 10, 10, f32(1, 1, size, size), K(scales), name=f"{size}_to_{to}")
        for way in ("half_pixel", "asymmetric"):
            c("Resize", 13, LAST, f32(1, 1, size, size), None, K(scales), name=f"{way}_{size}_to_{to}", coordinate_transformation_mode=way, nearest_mode="floor")
    c("Upsample", 7, 8, x, name="default", scales=[1.0, 1.0, 2.0, 2.0])
    c("Upsample", 9, 9, x, np.array([1, 1, 2, 3], np.float32), name="input")
    for last, absent in ((12, np.zeros(0, np.float32)), (LAST, None)):
        first = 11 if last == 12 else 13
        roi = None if absent is None else K(absent)
        none = "_empty" if roi else ""
        for mode in ("nearest", "linear", "cubic"):
            for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
                c("Resize", first, last, x, roi, K(np.array([1, 1, 1.7, 0.6], np.float32)), name=f"{mode}_{way}{none}", mode=mode, coordinate_transformation_mode=way)
            c("Resize", first, last, x, roi, K(np.zeros(0, np.float32)) if roi else None, K(i64(1, 2, 7, 3)), name=f"{mode}_sizes{none}", mode=mode)
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            c("Resize", first, last, x, roi, K(np.array([1, 1, 2, 0.5], np.float32)), name=f"{rounding}{none}", nearest_mode=rounding)
    for rounding in ("round_prefer_floor", "floor"):
        c("Resize", 11, 12, f32(1, 1, 4, 6), K(np.zeros(0, np.float32)), K(np.array([1, 1, 2, 0.5], np.float32)), name=f"tf_half_pixel_{rounding}",
          coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode=rounding)
    c("Resize", 11, 12, f32(1, 1, 4, 6), K(np.zeros(0, np.float32)), K(np.array([1, 1, 2, 0.5], np.float32)), name="tf_half_pixel_linear", mode="linear",
      coordinate_transformation_mode="tf_half_pixel_for_nn", refused=(13, LAST, "opset 13: coordinate_transformation_mode"))
    c("Resize", 11, LAST, x, K(np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.2], np.float32)), K(np.zeros(0, np.float32)), K(i64(1, 2, 3, 4)), name="crop", mode="linear",
      coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.0)
    c("Resize", 18, LAST, x, None, None, K(i64(7, 9)), name="axes", axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    c("Resize", 18, LAST, x, None, K(np.array([1, 1, 0.6, 0.6], np.float32)), name="antialias", mode="linear", antialias=1)
    c("Resize", 19, LAST, x, None, K(np.array([1, 1, 1.7, 0.6], np.float32)), name="symmetric", mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
    rois, batch = K(np.array([[0.3, 0.2, 3.1, 2.7], [1, 1, 2.5, 3]], np.float32)), K(i64(0, 0))
    c("RoiAlign", 10, LAST, x, rois, batch, output_height=2, output_width=2)
    c("RoiAlign", 10, LAST, x, rois, batch, name="max", mode="max", output_height=2, output_width=2, sampling_ratio=2, spatial_scale=0.9)
    for way in ("half_pixel", "output_half_pixel"):
        c("RoiAlign", 16, LAST, x, rois, batch, name=way, output_height=2, output_width=2, coordinate_transformation_mode=way)
    boxes, scores = K(np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)), K(np.array([[[0.9, 0.75, 0.6]]], np.float32))
    c("NonMaxSuppression", 10, LAST, boxes, scores, K(i64(3)), K(np.array([0.5], np.float32)), K(np.array([0.0], np.float32)))
    grid = K(unit(1, 3, 3, 2))
    for mode in ("bilinear", "nearest", "bicubic"):
        c("GridSample", 16, 19, x, grid, name=mode, mode=mode, padding_mode="border")
    for mode in ("linear", "nearest", "cubic"):
        c("GridSample", 20, LAST, x, grid, name=mode, mode=mode, align_corners=1)
    c("GridSample", 16, LAST, x, grid)
    c("AffineGrid", 20, LAST, f32(1, 2, 3), K(i64(1, 1, 3, 4)), align_corners=1)
    c("ImageDecoder", 20, LAST, np.frombuffer(b"BM", np.uint8).copy())


def signal():
    x = f32(1, 6, 5, 1)
    c("DFT", 17, 19, x)
    c("DFT", 17, 19, x, name="axis", axis=2)
    c("DFT", 17, 19, x, name="negative", axis=-2, onesided=1)
    c("DFT", 17, 19, x, K(np.int64(4)), name="length")
    c("DFT", 17, 19, f32(1, 6, 5, 2), name="inverse", axis=1, inverse=1)
    c("DFT", 20, LAST, x)
    c("DFT", 20, LAST, x, None, K(np.int64(1)), name="axis")
    c("STFT", 17, LAST, f32(1, 16, 1), K(np.int64(4)), K(pos(8)), K(np.int64(8)))
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        c(op, 17, LAST, K(np.int64(7)))
        c(op, 17, LAST, K(np.int64(7)), name="symmetric", periodic=0)
    c("MelWeightMatrix", 17, LAST, *[K(v) for v in (np.int64(5), np.int64(16), np.int64(8000), np.float32(100), np.float32(3000))])


def recurrent():
    h, directions = 3, 2
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outs = 3 if op == "LSTM" else 2
        w = [K(f32(directions, gates * h, 2)), K(f32(directions, gates * h, h)), K(f32(directions, 2 * gates * h))]
        c(op, 7, LAST, f32(4, 2, 2), *w, outs=outs, hidden_size=h, direction="bidirectional")
        c(op, 7, LAST, f32(4, 2, 2), *w, K(np.array([2, 4], np.int32)), K(f32(directions, 2, h)), outs=outs, name="state", hidden_size=h, direction="bidirectional", clip=0.5)
        c(op, 14, LAST, f32(2, 4, 2), *w, outs=outs, name="layout", hidden_size=h, direction="bidirectional", layout=1)
    w = [K(f32(1, 3 * h, 2)), K(f32(1, 3 * h, h)), K(f32(1, 6 * h))]
    c("GRU", 7, LAST, f32(4, 2, 2), *w, outs=2, name="linear", hidden_size=h, linear_before_reset=1, activations=["Sigmoid", "Relu"])
    w = [K(f32(1, 4 * h, 2)), K(f32(1, 4 * h, h)), None, None, None, None, K(f32(1, 3 * h))]
    c("LSTM", 7, LAST, f32(4, 2, 2), *w, outs=["", "h", "c"], name="peepholes", hidden_size=h)


def attention():
    q, k, v = f32(1, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4)
    c("Attention", 23, LAST, q, k, v)
    c("Attention", 23, LAST, q, k, v, name="causal", is_causal=1, softcap=2.0)
    c("Attention", 23, LAST, q, k, v, K(f32(3, 5)), name="mask", scale=0.3)
    c("Attention", 23, LAST, q, f32(1, 2, 3, 4), f32(1, 2, 3, 4), None, f32(1, 2, 2, 4), f32(1, 2, 2, 4), outs=3, name="cache", is_causal=1)
    for mode in range(4):
        c("Attention", 23, LAST, q, k, v, K(f32(3, 5)), outs=["y", "", "", "qk"], name=f"mode{mode}", qk_matmul_output_mode=mode, softcap=2.0)
    c("Attention", 24, LAST, q, k, v, None, None, None, K(i64(4)), name="lengths")
    c("RotaryEmbedding", 23, LAST, f32(1, 2, 3, 4), K(f32(5, 2)), K(f32(5, 2)), K(np.array([[0, 2, 4]], np.int64)))


def at_random():
    x = f32(2, 3)
    c("Bernoulli", 15, LAST, r.uniform(0, 1, (2, 3)).astype(np.float32), seed=3.0)
    c("Multinomial", 7, LAST, f32(2, 4), sample_size=3, seed=3.0)
    for op in ("RandomNormal", "RandomUniform"):
        c(op, 1, LAST, shape=[2, 3], seed=3.0)
        c(op + "Like", 1, LAST, x, seed=3.0)


def texts():
    a = np.array(["abc", "de"], object)
    c("StringConcat", 20, LAST, a, np.array(["x", "yz"], object))
    c("StringSplit", 20, LAST, np.array(["a b", "c"], object), outs=2)
    c("RegexFullMatch", 20, LAST, a, pattern="a.*")
    c("StringNormalizer", 10, LAST, a, stopwords=["de"], is_case_sensitive=1)
    c("TfIdfVectorizer", 9, LAST, np.array([[1, 1, 3, 3, 3, 7]], np.int32), min_gram_length=2, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 4],
      ngram_indexes=[0, 1, 2, 3, 4, 5, 6], pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7], mode="TF")


def sequences():
    two = {"a": f32(2, 3), "b": f32(2, 3)}
    pack = n("SequenceConstruct", ["a", "b"], ["s"])
    at = n("SequenceAt", ["s2", "one"], ["y"])
    one = {"one": np.int64(1)}
    g("SequenceConstruct", 11, LAST, [pack, n("SequenceAt", ["s", "one"], ["y"])], two, one)
    g("SequenceAt", 11, LAST, [pack, n("SequenceAt", ["s", "one"], ["y"])], two, {"one": np.int64(-1)})
    g("SequenceEmpty", 11, LAST, [n("SequenceEmpty", [], ["s"]), n("SequenceLength", ["s"], ["y"])], {})
    g("SequenceLength", 11, LAST, [pack, n("SequenceLength", ["s"], ["y"])], two)
    g("SequenceErase", 11, LAST, [pack, n("SequenceErase", ["s", "zero"], ["s2"]), n("SequenceLength", ["s2"], ["y"])], two, {"zero": np.int64(0)})
    g("SequenceInsert", 11, LAST, [pack, n("SequenceInsert", ["s", "a", "one"], ["s2"]), at], two, one)
    g("ConcatFromSequence", 11, LAST, [pack, n("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)], two)
    g("SplitToSequence", 11, LAST, [n("SplitToSequence", ["x", "parts"], ["s2"], axis=1), at], {"x": f32(2, 5)}, {"parts": i64(2, 3), **one})
    g("SplitToSequence", 11, LAST, [n("SplitToSequence", ["x"], ["s2"], axis=0, keepdims=0), at], {"x": f32(2, 5)}, one, name="each")
    body = oh.make_graph([n("Neg", ["e"], ["m"])], "each", [oh.make_tensor_value_info("e", TP.FLOAT, [2, 3])], [oh.make_tensor_value_info("m", TP.FLOAT, [2, 3])])
    g("SequenceMap", 17, LAST, [pack, n("SequenceMap", ["s"], ["s2"], body=body), at], two, one)
    g("Optional", 15, LAST, [n("Optional", ["x"], ["o"]), n("OptionalGetElement", ["o"], ["y"])], {"x": f32(2)})
    g("OptionalGetElement", 18, LAST, [n("OptionalGetElement", ["x"], ["y"])], {"x": f32(2)})
    g("OptionalGetElement", 15, LAST, [n("Optional", ["x"], ["o"]), n("OptionalGetElement", ["o"], ["y"])], {"x": f32(2)}, name="optional")
    g("OptionalHasElement", 15, LAST, [n("Optional", ["x"], ["o"]), n("OptionalHasElement", ["o"], ["y"])], {"x": f32(2)})
    g("OptionalHasElement", 18, LAST, [n("OptionalHasElement", [], ["y"])], {}, name="nothing")


def old_squeeze(opset, x, y, axis):
    """Returns nodes that squeeze an axis: an operator that changes in 13, for use inside bodies."""
    if opset < 13:
        return [n("Squeeze", [x], [y], axes=[axis])]
    return [n("Constant", [], [y + "_axes"], value=nh.from_array(i64(axis), "v")), n("Squeeze", [x, y + "_axes"], [y])]


def old_mean(opset, x, y, axis):
    if opset < 18:
        return [n("ReduceMean", [x], [y], axes=[axis], keepdims=0)]
    return [n("Constant", [], [y + "_axes"], value=nh.from_array(i64(axis), "v")), n("ReduceMean", [x, y + "_axes"], [y], keepdims=0)]


def bodies():
    info = oh.make_tensor_value_info
    x = f32(2, 3, 1)

    def choice(opset):
        branch = oh.make_graph([*old_squeeze(opset, "x", "t", 2)], "then", [], [info("t", TP.FLOAT, [2, 3])])
        other = oh.make_graph([n("Softmax", ["x"], ["s"]), *old_squeeze(opset, "s", "e", 2)], "else", [], [info("e", TP.FLOAT, [2, 3])])
        return [n("If", ["c"], ["y"], then_branch=branch, else_branch=other)]

    for taken in (False, True):
        g("If", 1, LAST, choice, {"x": x, "c": np.array(taken)}, name=str(taken))

    def loop(opset):
        inner = [n("Add", ["v", "x"], ["w"]), *old_squeeze(opset, "w", "o", 2), n("Identity", ["go"], ["go_on"]), n("Softmax", ["w"], ["next"])]
        body = oh.make_graph(inner, "body", [info("i", TP.INT64, []), info("go", TP.BOOL, []), info("v", TP.FLOAT, [2, 3, 1])],
                             [info("go_on", TP.BOOL, []), info("next", TP.FLOAT, [2, 3, 1]), info("o", TP.FLOAT, [2, 3])])
        return [n("Loop", ["count", "yes", "x"], ["y", "z"], body=body)]

    g("Loop", 1, LAST, loop, {"x": x}, {"count": np.int64(3), "yes": np.array(True)}, ("y", "z"))

    def scan(opset, **more):
        body = oh.make_graph([n("Add", ["s", "e"], ["t"]), *old_mean(opset, "t", "o", 0), n("Softmax", ["t"], ["u"])], "body",
                             [info("s", TP.FLOAT, [3, 2]), info("e", TP.FLOAT, [3, 2])], [info("u", TP.FLOAT, [3, 2]), info("o", TP.FLOAT, [2])])
        return [n("Scan", (["", "s0", "x"] if opset == 8 else ["s0", "x"]), ["y", "z"], body=body, num_scan_inputs=1, **more)]

    g("Scan", 8, 8, scan, {"s0": f32(2, 3, 2), "x": f32(2, 4, 3, 2)}, outputs=("y", "z"), name="batch")
    g("Scan", 8, 8, lambda o: scan(o, directions=[1]), {"s0": f32(2, 3, 2), "x": f32(2, 4, 3, 2)}, outputs=("y", "z"), name="batch_reverse")
    def lengths(opset):
        node = scan(opset)[0]
        node.input[0] = "lengths"
        return [node]

    g("Scan", 8, 8, lengths, {"s0": f32(2, 3, 2), "x": f32(2, 4, 3, 2)}, {"lengths": i64(4, 3)}, ("y", "z"), name="lengths",
      refused=(9, LAST, "opset 9: the lengths of sequences"))
    g("Scan", 9, LAST, scan, {"s0": f32(3, 2), "x": f32(4, 3, 2)}, outputs=("y", "z"))
    g("Scan", 9, LAST, lambda o: scan(o, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1]), {"s0": f32(3, 2), "x": f32(3, 4, 2)}, outputs=("y", "z"), name="axes")


def functions():
    """The model's own functions carry opsets of their own, and attributes that refer to those of the call."""
    call = oh.make_opsetid("pkg", 1)

    def function(opset, nodes, inputs=("a",), outputs=("o",), attributes=()):
        return [oh.make_function("pkg", "F", inputs, outputs, nodes, [oh.make_opsetid("", opset)], list(attributes))]

    def referring(op, inputs, outputs, kind, **names):
        node = n(op, inputs, outputs)
        for name, of in names.items():
            a = node.attribute.add()
            a.name, a.ref_attr_name, a.type = name, of, kind
        return node

    x = f32(2, 3, 4)
    used = [n("F", ["x"], ["y"], domain="pkg")]
    g("Softmax", FIRST, LAST, used, {"x": x}, functions=lambda o: function(o, [n("Softmax", ["a"], ["o"])]), imports=[call], name="function")
    g("Squeeze", FIRST, LAST, used, {"x": f32(2, 3, 1)}, functions=lambda o: function(o, old_squeeze(o, "a", "o", 2)), imports=[call], name="function")
    g("ReduceMean", FIRST, 17, [n("F", ["x"], ["y"], domain="pkg", over=[0, 2])], {"x": x}, imports=[call], name="function",
      functions=lambda o: function(o, [referring("ReduceMean", ["a"], ["o"], onnx.AttributeProto.INTS, axes="over")], attributes=["over"]))
    g("DFT", 17, 19, [n("F", ["x"], ["y"], domain="pkg", over=2)], {"x": f32(1, 6, 5, 1)}, imports=[call], name="function",
      functions=lambda o: function(o, [referring("DFT", ["a"], ["o"], onnx.AttributeProto.INT, axis="over")], attributes=["over"]))
    g("Softmax", FIRST, 12, [n("F", ["x"], ["y"], domain="pkg", over=1)], {"x": x}, imports=[call], name="function_axis",
      functions=lambda o: function(o, [referring("Softmax", ["a"], ["o"], onnx.AttributeProto.INT, axis="over")], attributes=["over"]))
    g("RoiAlign", 10, LAST, [n("F", ["x", "r", "b"], ["y"], domain="pkg")], {"x": f32(1, 2, 4, 5)},
      {"r": np.array([[0.3, 0.2, 3.1, 2.7]], np.float32), "b": i64(0)}, imports=[call], name="function",
      functions=lambda o: function(o, [n("RoiAlign", ["a", "r", "b"], ["o"], output_height=2, output_width=2)], ("a", "r", "b")))
    g("GroupNormalization", 18, 20, [n("F", ["x", "s", "b"], ["y"], domain="pkg", groups=2)], {"x": f32(2, 4, 3, 3)}, {"s": f32(2), "b": f32(2)}, imports=[call], name="function",
      functions=lambda o: function(o, [referring("GroupNormalization", ["a", "s", "b"], ["o"], onnx.AttributeProto.INT, num_groups="groups")], ("a", "s", "b"), attributes=["groups"]))
    g("Resize", 10, 10, [n("F", ["x", "s"], ["y"], domain="pkg")], {"x": f32(1, 2, 4, 5), "s": np.array([1, 1, 0.6, 1.7], np.float32)}, imports=[call], name="function",
      functions=lambda o: function(o, [n("Resize", ["a", "s"], ["o"])], ("a", "s")))


    unknown = (11, 14, "opset 11: the element type of tensor 'a'")
    g("Clip", FIRST, 10, used, {"x": x}, functions=lambda o: function(o, [n("Clip", ["a"], ["o"], min=-0.5)]), imports=[call], name="function", refused=unknown)
    g("Clip", FIRST, 10, [n("F", ["x"], ["y"], domain="pkg", least=-0.5)], {"x": x}, imports=[call], name="function_min", refused=unknown,
      functions=lambda o: function(o, [referring("Clip", ["a"], ["o"], onnx.AttributeProto.FLOAT, min="least")], attributes=["least"]))
    g("GridSample", 16, 19, [n("F", ["x", "grid"], ["y"], domain="pkg", how="bicubic")], {"x": f32(1, 2, 4, 5), "grid": unit(1, 3, 3, 2)}, imports=[call], name="function_mode",
      functions=lambda o: function(o, [referring("GridSample", ["a", "grid"], ["o"], onnx.AttributeProto.STRING, mode="how")], ("a", "grid"), attributes=["how"]),
      refused=(20, LAST, "opset 20: what to write for attribute 'mode'"))
    g("TopK", FIRST, 9, [n("F", ["x"], ["y", "z"], domain="pkg", many=2)], {"x": x}, outputs=("y", "z"), imports=[call], name="function_k",
      functions=lambda o: function(o, [referring("TopK", ["a"], ["o", "p"], onnx.AttributeProto.INT, k="many")], outputs=("o", "p"), attributes=["many"]),
      refused=(10, LAST, "function 'F': node 'topk_o' (TopK) changed its meaning in opset 10"))


def names():
    """New tensors and nodes get names that nothing in the model has."""
    taken = {"squeeze_y/axes": f32(1), "squeeze_y/axes_2": f32(1)}
    g("Squeeze", FIRST, 12, [n("Squeeze", ["x"], ["s"], axes=[2], name="squeeze_y"), n("Add", ["s", "squeeze_y/axes"], ["t"]), n("Mul", ["t", "squeeze_y/axes_2"], ["y"])],
      {"x": f32(2, 3, 1)}, taken, name="names")
    g("Softmax", FIRST, 12, [n("Softmax", ["x"], ["s"], name="softmax"), n("Softmax", ["softmax/rows"], ["t"], name="softmax/Flatten"), n("Add", ["s", "t"], ["y"])],
      {"x": f32(2, 3, 4), "softmax/rows": f32(2, 3, 4)}, name="names")


def neighbours():
    """Other domains stay as they are. ONNX had experiments, too, which onnxruntime still runs; its schemas do not know them."""
    c("MeanVarianceNormalization", 7, 8, f32(2, 3, 2, 2), name="across", across_channels=1)
    c("MeanVarianceNormalization", 7, 8, f32(2, 3, 2, 2), name="within", across_channels=0)
    c("Affine", 7, 9, f32(2, 3), alpha=2.0, refused=(10, LAST, "opset 10: it was an experiment"))
    microsoft = [oh.make_opsetid("com.microsoft", 1)]
    g("Gelu", FIRST, LAST, [n("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": f32(2, 3)}, imports=microsoft, name="com.microsoft")
    ml = [oh.make_opsetid("ai.onnx.ml", 1)]
    g("Scaler", FIRST, LAST, [n("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])], {"x": f32(2, 3)}, imports=ml, name="ai.onnx.ml")


def cases():
    if not ALL:
        for make in (elementwise, types_and_constants, moving, reducing, layers, vision, signal, recurrent, attention, at_random, texts, sequences, bodies, functions, names, neighbours):
            make()
    return ALL
