# SPDX-License-Identifier: Apache-2.0
"""Enumerates what onnxruntime's optimizer makes of Q/DQ pairs, and proves the guards of exported models against it.

One model holds every operator that the optimizer knows in pairs (and many that it does not), each as an island between an input and an
output of its own. Saved plans quantize the islands with scales, zero points, types and shapes of scales that agree with what a fused
operator assumes, and with such that do not. For each island and each style: with the optimizer on its error against the float model is at
most 1 dB above that with the optimizer off, no element is further than a step away, `qk evaluate` of the plan gives the same, and where
all agrees the fused operator is there.

    fusions_enumerated.py QK [--all]    # prints every island's operators
"""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check
from evidence.graphs import model as made
from evidence.runtimes import keeps, session

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.usefixtures("one_thread")
FLOAT = TensorProto.FLOAT
BITS = {"int4": 4, "uint4": 4, "int:bits=7": 7, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32}


def draw(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32)


class Island:
    """Nodes between inputs "x", "x2", ... and the output "y". `held` has constants; of these `weights` name (axis of channels) and
    `biases` name (input, weights, alpha) of their layer. `fused` is what the operator becomes where everything agrees."""

    def __init__(self, name, nodes, held=None, inputs=None, weights=None, biases=None, fused=None, between=(), same=()):
        self.name, self.nodes, self.held, self.inputs = name, nodes, held or {}, inputs or {"x": (4, 8, 6, 6)}
        self.weights, self.biases, self.fused, self.between, self.same = weights or {}, biases or {}, fused, between, same

    def own(self, tensor):
        return f"{self.name.replace(' ', '_')}.{tensor}" if tensor else ""

    def output_type(self):
        return TensorProto.INT64 if self.name == "ArgMax" else FLOAT


def islands(rng):
    w = lambda *shape: draw(rng, *shape)
    n = helper.make_node
    i64 = lambda *v: np.int64(v)
    every = []

    def add(name, op, inputs=("x",), held=None, shapes=None, fused=None, **attributes):
        every.append(Island(name, [n(op, list(inputs), ["y"], **attributes)], held, shapes, fused=fused))

    # Layers: weights and biases.
    for name, shape, group, tail in (("Conv", (5, 8, 3, 3), 1, []), ("Conv grouped", (8, 1, 3, 3), 8, []), ("Conv 1 x 1", (5, 8, 1, 1), 1, []), ("Conv Relu", (5, 8, 3, 3), 1, ["Relu"]),
                                     ("Conv Clip", (5, 8, 3, 3), 1, ["Clip"])):
        nodes = [n("Conv", ["x", "w", "b"], ["t" if tail else "y"], group=group)]
        nodes += [n(op, ["t", "low", "high"] if op == "Clip" else ["t"], ["y"]) for op in tail]
        every.append(Island(name, nodes, {"w": w(*shape), "b": w(shape[0], 1).ravel(), "low": np.float32(-0.2), "high": np.float32(0.7)}, weights={"w": 0}, biases={"b": ("x", "w", 1)},
                            fused="QLinearConv"))
    every.append(Island("Conv without bias", [n("Conv", ["x", "w"], ["y"])], {"w": w(5, 8, 3, 3)}, weights={"w": 0}, fused="QLinearConv"))
    every.append(Island("Conv of one dimension", [n("Conv", ["x", "w", "b"], ["y"])], {"w": w(5, 8, 3), "b": w(5, 1).ravel()}, {"x": (4, 8, 9)}, {"w": 0}, {"b": ("x", "w", 1)}, "QLinearConv"))
    every.append(Island("ConvTranspose", [n("ConvTranspose", ["x", "w", "b"], ["y"])], {"w": w(8, 5, 3, 3), "b": w(5, 1).ravel()}, weights={"w": 1}, biases={"b": ("x", "w", 1)}))
    for name, attributes, fused in (("Gemm", {}, "QGemm"), ("Gemm transB", {"transB": 1}, "QGemm"), ("Gemm transA", {"transA": 1}, "QGemm"), ("Gemm alpha", {"alpha": 0.4}, None),
                                    ("Gemm beta", {"beta": 0.3}, None), ("Gemm of negative alpha", {"alpha": -0.7}, None)):
        x, weights = ((8, 4) if "transA" in attributes else (4, 8)), ((5, 8) if "transB" in attributes else (8, 5))
        every.append(Island(name, [n("Gemm", ["x", "w", "b"], ["y"], **attributes)], {"w": w(*weights), "b": w(5, 1).ravel()}, {"x": x}, {"w": 0 if "transB" in attributes else 1},
                            {"b": ("x", "w", attributes.get("alpha", 1))}, fused))
    every.append(Island("Gemm without bias", [n("Gemm", ["x", "w"], ["y"])], {"w": w(8, 5)}, {"x": (4, 8)}, {"w": 1}, fused="QGemm"))
    every.append(Island("Gemm Relu", [n("Gemm", ["x", "w", "b"], ["t"]), n("Relu", ["t"], ["y"])], {"w": w(8, 5), "b": w(5, 1).ravel()}, {"x": (4, 8)}, {"w": 1}, {"b": ("x", "w", 1)}, "QGemm"))
    every.append(Island("Gemm with zeros as bias", [n("Gemm", ["x", "w", "b"], ["y"])], {"w": w(8, 5), "b": np.zeros(5, np.float32)}, {"x": (4, 8)}, {"w": 1}, {"b": ("x", "w", 1)}, "QGemm"))
    every.append(Island("MatMul", [n("MatMul", ["x", "w"], ["y"])], {"w": w(8, 5)}, {"x": (4, 6, 8)}, {"w": 1}, fused="QLinearMatMul"))
    every.append(Island("MatMul and bias", [n("MatMul", ["x", "w"], ["t"]), n("Add", ["t", "b"], ["y"])], {"w": w(8, 5), "b": w(5, 1).ravel()}, {"x": (4, 8)}, {"w": 1}))
    add("MatMul of two", "MatMul", ("x", "x2"), shapes={"x": (4, 6, 8), "x2": (4, 8, 5)}, fused="QLinearMatMul")
    # A layer behind a mover: its pair may come from in front of that.
    every.append(Island("MaxPool Conv", [n("MaxPool", ["x"], ["t"], kernel_shape=[2, 2]), n("Conv", ["t", "w", "b"], ["y"])], {"w": w(5, 8, 3, 3), "b": w(5, 1).ravel()}, weights={"w": 0},
                        biases={"b": ("t", "w", 1)}, between=("t",), same=(("x", "t"),), fused="QLinearConv"))
    every.append(Island("Reshape Gemm", [n("Reshape", ["x", "to"], ["t"]), n("Gemm", ["t", "w", "b"], ["y"])], {"to": i64(4, 8), "w": w(8, 5), "b": w(5, 1).ravel()}, {"x": (2, 2, 8)}, {"w": 1},
                        {"b": ("t", "w", 1)}, between=("t",), same=(("x", "t"),), fused="QGemm"))
    every.append(Island("Conv Conv", [n("Conv", ["x", "w", "b"], ["t"]), n("Conv", ["t", "v", "c"], ["y"])], {"w": w(5, 8, 3, 3), "b": w(5, 1).ravel(), "v": w(6, 5, 1, 1), "c": w(6, 1).ravel()},
                        weights={"w": 0, "v": 0}, biases={"b": ("x", "w", 1), "c": ("t", "v", 1)}, between=("t",), fused="QLinearConv"))
    every.append(Island("Conv Transpose Conv", [n("Conv", ["x", "w", "b"], ["t"]), n("Transpose", ["t"], ["u"], perm=[0, 1, 3, 2]), n("Conv", ["u", "v", "c"], ["y"])],
                        {"w": w(5, 8, 3, 3), "b": w(5, 1).ravel(), "v": w(6, 5, 1, 1), "c": w(6, 1).ravel()}, weights={"w": 0, "v": 0}, biases={"b": ("x", "w", 1), "c": ("u", "v", 1)},
                        between=("t", "u"), same=(("t", "u"),), fused="QLinearConv"))
    every.append(Island("Conv Add Relu", [n("Conv", ["x", "w", "b"], ["t"]), n("Add", ["t", "x"], ["u"]), n("Relu", ["u"], ["y"])], {"w": w(8, 8, 1, 1), "b": w(8, 1).ravel()}, weights={"w": 0},
                        biases={"b": ("x", "w", 1)}, between=("t",), fused="QLinearConv"))
    # Two operands, and many.
    for op, fused in (("Add", "QLinearAdd"), ("Mul", "QLinearMul"), ("Sub", None), ("Max", None), ("PRelu", None)):
        add(op, op, ("x", "x2"), shapes={"x": (4, 8, 6), "x2": (8, 6)}, fused=fused)
        add(f"{op} of a constant", op, ("x", "k"), {"k": w(8, 6)}, {"x": (4, 8, 6)})
    add("Add of itself", "Add", ("x", "x"), shapes={"x": (4, 8)}, fused="QLinearAdd")
    add("Div", "Div", ("x", "k"), {"k": np.abs(w(8, 6)) + 1}, {"x": (4, 8, 6)})
    add("Where", "Where", ("c", "x", "x2"), {"c": rng.random((8, 6)) > 0.5}, {"x": (4, 8, 6), "x2": (4, 8, 6)}, "QLinearWhere")
    add("Concat", "Concat", ("x", "x2"), shapes={"x": (4, 8, 6), "x2": (4, 3, 6)}, axis=1, fused="QLinearConcat")
    every.append(Island("Split", [n("Split", ["x", "parts"], ["t", "u"], axis=1), n("Sub", ["t", "u"], ["y"])], {"parts": i64(4, 4)}, between=("t", "u"), same=(("x", "t"), ("x", "u"))))
    # One operand.
    pool = {"kernel_shape": [2, 2]}
    add("AveragePool", "AveragePool", fused="QLinearAveragePool", **pool)
    add("AveragePool with padding", "AveragePool", pads=[1, 1, 1, 1], **pool)
    add("GlobalAveragePool", "GlobalAveragePool", fused="QLinearGlobalAveragePool")
    add("Softmax", "Softmax", shapes={"x": (16, 40)}, fused="QLinearSoftmax")
    add("Softmax along an inner axis", "Softmax", axis=1)
    add("Sigmoid", "Sigmoid", fused="QLinearSigmoid")
    add("LeakyRelu", "LeakyRelu", fused="QLinearLeakyRelu", alpha=0.1)
    for op in ("GlobalMaxPool", "LogSoftmax", "Tanh", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Elu", "Relu", "Abs", "Neg", "Exp", "Identity", "Softplus", "Selu", "ArgMax", "Flatten"):
        if op != "Gelu":
            add(op, op)
    add("Clip", "Clip", ("x", "low", "high"), {"low": np.float32(-0.3), "high": np.float32(0.6)})
    add("Clip to 0", "Clip", ("x", "low"), {"low": np.float32(0)})
    # What moves, chooses or sums.
    add("MaxPool", "MaxPool", **pool)
    add("Reshape", "Reshape", ("x", "to"), {"to": i64(8, 4, 36)})
    add("Transpose", "Transpose", perm=[0, 2, 3, 1])
    add("Transpose of channels", "Transpose", perm=[1, 0, 2, 3])
    add("Squeeze", "Squeeze", ("x", "a"), {"a": i64(1)}, {"x": (4, 1, 6)})
    add("Unsqueeze", "Unsqueeze", ("x", "a"), {"a": i64(1)}, {"x": (4, 6)})
    add("Gather", "Gather", ("x", "i"), {"i": i64(2, 0, 5)}, axis=1)
    every.append(Island("Gather from a table", [n("Gather", ["w", "i"], ["t"]), n("Add", ["x", "t"], ["y"])], {"w": w(9, 16), "i": i64(2, 0, 5)}, {"x": (4, 3, 16)}, {"w": 0}))
    add("GatherElements", "GatherElements", ("x", "i"), {"i": i64([0, 1, 2], [3, 0, 1])}, {"x": (4, 6)})
    add("Slice", "Slice", ("x", "a", "b", "c"), {"a": i64(1), "b": i64(5), "c": i64(1)})
    add("Expand", "Expand", ("x", "to"), {"to": i64(4, 3, 6)}, {"x": (4, 1, 6)})
    add("Tile", "Tile", ("x", "to"), {"to": i64(1, 2, 1)}, {"x": (4, 2, 6)})
    add("Pad", "Pad", ("x", "p"), {"p": i64(0, 0, 1, 1, 0, 0, 1, 1)})
    add("Pad with a value", "Pad", ("x", "p", "v"), {"p": i64(0, 0, 1, 1, 0, 0, 1, 1), "v": np.float32(0.37)})
    add("Pad by reflection", "Pad", ("x", "p"), {"p": i64(0, 0, 1, 1, 0, 0, 1, 1)}, mode="reflect")
    add("DepthToSpace", "DepthToSpace", blocksize=2)
    add("SpaceToDepth", "SpaceToDepth", blocksize=2)
    add("Resize", "Resize", ("x", "", "s"), {"s": np.float32([1, 1, 2, 2])}, mode="nearest")
    add("Resize linear", "Resize", ("x", "", "s"), {"s": np.float32([1, 1, 2, 2])}, mode="linear")
    add("CumSum", "CumSum", ("x", "a"), {"a": np.int64(1)})
    every.append(Island("TopK", [n("TopK", ["x", "k"], ["y", "index"])], {"k": i64(3)}, {"x": (4, 8)}))
    for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"):
        if op == "ReduceSum":
            add(op, op, ("x", "a"), {"a": i64(2, 3)})
        else:
            add(op, op)
    # Normalization, whose factors are constants.
    for name, op, attributes in (("LayerNormalization", "LayerNormalization", {}), ("InstanceNormalization", "InstanceNormalization", {})):
        size = 6 if op == "LayerNormalization" else 8
        every.append(Island(name, [n(op, ["x", "g", "h"], ["y"], **attributes)], {"g": 1 + w(size, 1).ravel(), "h": w(size, 1).ravel()}))
    add("LRN", "LRN", size=3)
    add("LpNormalization", "LpNormalization", axis=1)
    # Attention without its projections.
    every.append(Island("attention", [n("MatMul", ["x", "x2"], ["s"]), n("Mul", ["s", "k"], ["t"]), n("Softmax", ["t"], ["u"], axis=-1), n("MatMul", ["u", "x3"], ["y"])], {"k": np.float32(0.35)},
                        {"x": (4, 6, 8), "x2": (4, 8, 6), "x3": (4, 6, 8)}, between=("s", "t", "u"), fused="QLinearMatMul"))
    return every


def whole(every, opset):
    """Returns the model of all islands."""
    nodes, held, inputs, outputs = [], [], [], []
    for i in every:
        for k, node in enumerate(i.nodes):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = i.own(f"{node.op_type}{k}")
            for field in (copy.input, copy.output):
                names = [i.own(t) for t in field]
                del field[:]
                field.extend(names)
            nodes.append(copy)
        used = {t for node in i.nodes for t in node.input}
        held += [numpy_helper.from_array(np.asarray(v), i.own(k)) for k, v in i.held.items() if k in used]
        inputs += [helper.make_tensor_value_info(i.own(k), FLOAT, s) for k, s in i.inputs.items()]
        outputs.append(helper.make_tensor_value_info(i.own("y"), i.output_type(), None))
    return onnx.shape_inference.infer_shapes(made(nodes, inputs, outputs, held, opset=opset, ir_version=10 if opset > 20 else 8), strict_mode=True)


def run(path, feeds, optimize, optimized=None):
    s = session(path, "on" if optimize else "off", optimized)
    return dict(zip([y.name for y in s.get_outputs()], s.run(None, feeds)))


class Draw:
    """A way to draw plans: formats of activations, weights and biases, and how far scales, zero points and counts of scales stray."""

    def __init__(self, name, activations, weights=("int8",), biases=("agrees",), stray=0.0, per_channel=0.0, per_channel_activations=0.0, left_out=0.0, options=(), agrees=False, opset=21, outputs=True):
        self.name, self.activations, self.weights, self.biases = name, activations, weights, biases
        self.stray, self.per_channel, self.per_channel_activations, self.left_out = stray, per_channel, per_channel_activations, left_out
        self.options, self.agrees, self.opset, self.outputs = list(options), agrees, opset, outputs


def quantizer(rng, values, form, stray, axis=None):
    """Returns the plan's entry for a tensor: the range of its values, moved by up to a factor of 2^stray, and a zero point likewise."""
    if form not in BITS:
        return float_quantizer(rng, values, form, stray)
    bits = BITS[form]
    lowest = 0 if form.startswith("u") else -(2 ** (bits - 1))
    rows = [values] if axis is None else np.moveaxis(values, axis, 0)
    scales, zeros = [], []
    for row in rows:
        low, high = min(float(np.min(row)), 0.0), max(float(np.max(row)), 0.0, 1e-3)
        scale = (high - low) / (2 ** bits - 1) * 2 ** rng.uniform(-stray / 2, stray)
        zero = round(lowest - low / scale) + (rng.integers(-2 ** (bits - 4), 2 ** (bits - 4), endpoint=True) if stray else 0)
        scales.append(float(np.float32(scale)))
        zeros.append(int(np.clip(zero, lowest, lowest + 2 ** bits - 1)))
    return {"format": form, "axis": -1 if axis is None else axis, "scale": scales, "zero_point": zeros}


def float_quantizer(rng, values, form, stray):
    """Returns the entry of a format that is no integer, or of a scale from each run's own values ("dynamic")."""
    if form == "dynamic":
        return {"format": "uint8", "dynamic": True}
    if not form.startswith("fp8"):
        return {"format": form, "axis": -1}
    return {"format": form, "axis": -1, "scale": [float(np.float32(max(np.abs(values).max(), 1e-3) / 448 * 2 ** rng.uniform(0, stray)))]}


def weight_quantizer(rng, values, form, stray, axis=None):
    rows = [values] if axis is None else np.moveaxis(values, axis, 0)
    if form not in BITS:
        return float_quantizer(rng, values, form, stray)
    bits = BITS[form]
    q = {"format": form, "axis": -1 if axis is None else axis}
    if form.startswith("u"):
        return quantizer(rng, values, form, stray, axis)
    q["scale"] = [float(np.float32(max(np.abs(r).max(), 1e-3) / (2 ** (bits - 1) - 1) * 2 ** rng.uniform(-stray / 4, stray))) for r in rows]
    return q


def bias_quantizer(rng, values, how, x, w, alpha):
    """`how`: agrees; other (another scale than s_x * s_w); fine (that of the whole range in 32 bits); one (one scale beside many); a format."""
    if how in BITS or how == "bf16":
        return weight_quantizer(rng, values, how, 0)
    if x is None or w is None or len(x.get("scale", [])) != 1 or "scale" not in w:
        return None
    scale = np.float32(np.float64(x["scale"][0]) * np.float64(w["scale"]) * (alpha if alpha > 0 else 1))
    if how == "other":
        scale = scale * np.float32(2 ** rng.uniform(-3, 3, len(scale) if rng.random() < 0.5 else 1))
    elif how == "fine":
        scale = np.float32([max(np.abs(values).max(), 1e-3) / (2 ** 31 - 1)])
    elif how == "one":
        scale = scale[:1]
    return {"format": "int32", "axis": 0 if len(scale) > 1 else -1, "scale": [float(s) for s in scale]}


def plan_for(rng, i, how, seen):
    """Returns the plan's entries for an island; `seen` has the values of its tensors in the float model."""
    plan = {}
    form = how.activations[rng.integers(len(how.activations))]
    mixed = len(how.activations) > 1 and rng.random() < 0.5
    skipped = lambda: rng.random() < how.left_out
    activations = [*i.inputs, *i.between, *(["y"] if i.output_type() == FLOAT and how.outputs else [])]
    for t in activations:
        if skipped():
            continue
        f = how.activations[rng.integers(len(how.activations))] if mixed else form
        v = seen[i.own(t)]
        axis = 1 if v.ndim > 1 and rng.random() < how.per_channel_activations else None
        plan[t] = quantizer(rng, v, f, how.stray, axis)
    for a, b in i.same:
        if (how.agrees or rng.random() < 0.5) and a in plan and b in plan and len(plan[a].get("scale", [])) == 1:
            plan[b] = plan[a]
    for t, axis in i.weights.items():
        if not skipped():
            plan[t] = weight_quantizer(rng, i.held[t], how.weights[rng.integers(len(how.weights))], how.stray, axis if rng.random() < how.per_channel else None)
    for t, (x, w, alpha) in i.biases.items():
        q = None if skipped() else bias_quantizer(rng, i.held[t], how.biases[rng.integers(len(how.biases))], plan.get(x), plan.get(w), alpha)
        if q is not None:
            plan[t] = q
    return {i.own(t): q for t, q in plan.items()}


def operators(makers, i):
    """Returns the operators behind an island's output in a model; `makers` maps tensors to their nodes."""
    found, todo, done = set(), [i.own("y")], set()
    while todo:
        n = makers.get(todo.pop())
        if n is not None and id(n) not in done:
            done.add(id(n))
            found.add(n.op_type)
            todo += n.input
    return found


def wrong(y, reference, plan, i):
    """Returns what is wrong with an island's output against that with the optimizer off: elements further away than a step of its
    quantizer (2 % of the largest, where it has none) and of those between nodes."""
    y, reference = np.asarray(y, np.float64).reshape(reference.shape), np.asarray(reference, np.float64)
    steps = [max(plan[i.own(t)]["scale"]) for t in ("y", *i.between) if "scale" in plan.get(i.own(t), {})]
    allowed = 1.01 * sum(steps) + (1e-4 if "scale" in plan.get(i.own("y"), {}) else 2e-2) * max(np.abs(reference).max(initial=0), 1e-30)
    if i.name == "Identity" and "scale" in plan.get(i.own("x"), {}):  # two pairs in a row become one
        allowed += max(plan[i.own("x")]["scale"])
    off = np.abs(y - reference)
    return "" if off.max(initial=0) <= allowed else f"{(off > allowed).sum()} of {off.size} elements differ by up to {off.max():.3g} (allowed {allowed:.3g})"


# Operators on codes that the runtime has and its optimizer does not make of pairs as they are written here.
NOT_OF_PAIRS = {"ConvInteger", "MatMulInteger", "MatMulInteger16", "DynamicQuantizeLinear", "DynamicQuantizeLSTM", "GatherBlockQuantized", "QAttention", "QEmbedLayerNormalization", "QMoE",
                "QuantizeLinear", "QuickGelu"}


def runtime_operators():
    """Returns the operators on codes for which the installed runtime has kernels; empty where it does not say."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state
    if not hasattr(state, "get_all_opkernel_def"):
        return set()
    names = {k.op_name for k in state.get_all_opkernel_def() if k.domain in ("", "com.microsoft")}
    return {n for n in names if n.startswith("Q") or "Integer" in n or "NBits" in n or "Quantize" in n} - {"DequantizeLinear"}


DRAWS = [
    Draw("all agrees", ["uint8"], agrees=True),
    Draw("all agrees, opset 13", ["uint8"], agrees=True, opset=13),
    Draw("all agrees, per channel", ["uint8"], agrees=True, per_channel=1),
    Draw("all agrees, int8", ["int8"], agrees=True, per_channel=0.5),
    Draw("all agrees, int8 kept", ["int8"], weights=["int:bits=7"], options=["--keep-int8"]),
    Draw("random scales", ["uint8"], stray=1.0, per_channel=0.5),
    Draw("random scales, outputs in float", ["uint8", "int8"], stray=1.0, per_channel=0.5, outputs=False),
    Draw("biases of other scales", ["uint8", "int8"], biases=["other", "fine", "one"], per_channel=0.5),
    Draw("biases of other scales, outputs in float", ["uint8", "int8"], biases=["other", "fine", "one"], outputs=False),
    Draw("biases of other scales, random scales", ["uint8", "int8"], biases=["other", "fine", "one", "agrees"], stray=1.0, per_channel=0.5),
    Draw("biases of other types", ["uint8"], biases=["int8", "int16", "int32"], per_channel=0.5),
    Draw("weights with zero points", ["uint8", "int8"], weights=["uint8"], stray=0.7, per_channel=0.5),
    Draw("mixed types", ["uint8", "int8"], weights=["int:bits=7"], biases=["agrees", "other"], stray=0.7, options=["--keep-int8"]),
    Draw("wide and narrow types", ["uint8", "int16", "uint16", "int8"], weights=["int8", "int16", "int4"], biases=["agrees", "other"], per_channel=0.5),
    Draw("4 bits", ["uint8", "uint4", "int4", "int8"], weights=["int4", "uint4", "int8"], biases=["agrees", "other"], per_channel=0.5),
    Draw("FP8 and halves", ["uint8", "fp8_e4m3fn", "bf16", "int8"], weights=["int8", "fp8_e4m3fn", "bf16"], biases=["agrees", "other", "fine", "bf16"], stray=0.7, left_out=0.1),
    Draw("dynamic", ["uint8", "dynamic"], weights=["int8", "uint8"], biases=["agrees", "other", "fine"], per_channel=0.3, left_out=0.1),
    Draw("some left out", ["uint8", "int8"], biases=["agrees", "other", "fine"], stray=0.7, per_channel=0.5, left_out=0.3),
    Draw("some left out, wide", ["uint8", "uint16"], weights=["int8", "int16"], biases=["agrees", "other", "fine"], stray=0.7, left_out=0.3),
    Draw("activations by channel", ["uint8", "int8"], biases=["agrees", "other"], per_channel=0.5, per_channel_activations=0.5),
    Draw("activations by channel, some left out", ["uint8", "int8"], per_channel=0.5, per_channel_activations=0.5, left_out=0.3),
]


class Checker:
    def __init__(self, folder):
        self.folder = folder
        self.made = {}  # fused operators by island
        self.models = {}

    def file(self, name):
        return f"{self.folder}/{name}"

    def model(self, every, opset):
        """Writes the model and its inputs once; returns (path, inputs, values of all float tensors)."""
        if opset not in self.models:
            fit = [i for i in every if opset >= 14 or i.name not in ("HardSwish", "LayerNormalization")]
            m = whole(fit, opset)
            path = self.file(f"m{opset}.onnx")
            onnx.save(m, path)
            rng = np.random.default_rng(5)
            feeds = {i.own(k): draw(rng, *s) * np.float32(np.sqrt(np.prod(s[1:]))) for i in fit for k, s in i.inputs.items()}
            np.savez(self.file(f"x{opset}.npz"), **feeds)
            inner = onnx.ModelProto()
            inner.CopyFrom(m)
            outputs = {o.name for o in inner.graph.output}
            inner.graph.output.extend([v for v in m.graph.value_info if v.name not in outputs])
            self.models[opset] = (fit, path, feeds, {**feeds, **run(inner.SerializeToString(), feeds, False)})
        return self.models[opset]

    def hold(self, text, what, i, plan):
        """Checks that nothing is wrong with an island, or with the model."""
        check(not text, f"{what}, {i.name if i else 'the model'}: {text}" + ("\n      " + json.dumps({t: q for t, q in plan.items() if t.startswith(i.own("x")[:-1])})[:1500] if i and text else ""))

    def compare(self, every, how, style, seed):
        fit, path, feeds, seen = self.model(every, how.opset)
        plan, rng = {}, np.random.default_rng(seed)
        for i in fit:
            plan.update(plan_for(rng, i, how, seen))
        with open(self.file("p.json"), "w") as f:
            json.dump({"qk": "plan", "version": 1, "tensors": plan, "edges": []}, f)
        what = f"{how.name}, {style}"
        out = self.file("q.onnx")
        done = evidence.run("quantize", path, "-o", out, "--plan", self.file("p.json"), "--export", style, *how.options)
        if done.returncode != 0:
            return self.hold(done.stderr[:400], what, None, plan)
        try:
            off, on = run(out, feeds, False), run(out, feeds, True, self.file("o.onnx"))
        except Exception as failed:
            return self.hold(str(failed)[:400] or "an error", what, None, plan)
        evaluated = {}
        if style == "portable":
            done = evidence.run("evaluate", path, "--plan", self.file("p.json"), "--inputs", self.file(f"x{how.opset}.npz"), "--output-dir", self.file("y"))
            if done.returncode != 0:
                return self.hold(done.stderr[:400], what, None, plan)
            evaluated = {f.name.split(".npy")[0]: np.load(f) for f in Path(self.file("y")).iterdir()}
        makers = {o: n for n in onnx.load(self.file("o.onnx")).graph.node for o in n.output}
        for i in fit:
            y = i.own("y")
            text = ""
            made = operators(makers, i)
            if i.output_type() == FLOAT:
                # Styles other than portable leave MatMulNBits to those who want its speed; its 8-bit activations cost up to 3 dB.
                coarse = style != "portable" and "MatMulNBits" in made
                kept, said = keeps(on[y], off[y], seen[y], 3.5 if coarse else 1.0)
                text += "" if kept else said + "; "
                text += "" if coarse else wrong(on[y], off[y], plan, i)
                if y in evaluated:
                    said = wrong(evaluated[y], off[y], plan, i)
                    text += f"; qk evaluate: {said}" if said else ""
            elif not (on[y] == off[y]).all():
                text = f"{(on[y] != off[y]).sum()} of {on[y].size} differ"
            fused = {o for o in made if "Q" in o and o not in ("QuantizeLinear", "DequantizeLinear")} | {o for o in made if "Integer" in o or "NBits" in o}
            self.made.setdefault(i.name, set()).update(fused)
            if how.agrees and i.fused and i.fused not in made:
                text += f" is not fused to {i.fused}, but {sorted(made)}"
            self.hold(text, what, i, plan)


@pytest.fixture(scope="module")
def islands_and_checker(shared):
    return islands(np.random.default_rng(3)), Checker(shared)


@pytest.mark.parametrize("k, how", list(enumerate(DRAWS)), ids=[how.name for how in DRAWS])
def test_draw(islands_and_checker, k, how):
    every, checker = islands_and_checker
    for s, style in enumerate(("portable", "qdq", "qoperator")):
        checker.compare(every, how, style, 100 * k + s)
    seen.add(k)


seen = set()


def test_every_operator_of_the_runtime_was_made(islands_and_checker):
    checker = islands_and_checker[1]
    if "--all" in sys.argv:
        print("\n".join(f"{name}: {', '.join(sorted(made)) or '-'}" for name, made in checker.made.items()))
    if len(seen) < len(DRAWS):
        pytest.skip("some draws were left out")
    left = runtime_operators() - set().union(*checker.made.values()) - NOT_OF_PAIRS
    check(not left, f"the runtime has operators on codes that no island becomes: {', '.join(sorted(left))}")


if __name__ == "__main__":
    evidence.main("--all")
