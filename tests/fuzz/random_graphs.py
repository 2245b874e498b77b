# SPDX-License-Identifier: Apache-2.0
"""Random small ONNX models of float32, in which every value's shape is known and no operator is badly conditioned by itself."""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Value:
    """A tensor of the graph. `exact`: whatever computes it moves and compares numbers, so that every runtime has the same bits."""

    def __init__(self, name, shape, exact):
        self.name, self.shape, self.exact = name, tuple(shape), exact

    size = property(lambda self: math.prod(self.shape))
    rank = property(lambda self: len(self.shape))


class Graph:
    """A graph that grows by one node after the other; `random` is a numpy generator."""

    most = 4096  # elements of a value

    def __init__(self, random):
        self.random, self.nodes, self.initializers, self.values, self.inputs = random, [], {}, [], []
        self.opset = int(random.choice([13, 15, 17, 18, 20, 21]))
        self.open_batch = bool(random.integers(2))
        for i in range(int(random.integers(1, 3))):
            rank = int(random.choice([2, 3, 4, 4]))
            shape = (2, *(int(n) for n in random.integers(1, (20, 20, 9)[4 - max(rank, 2)] if rank < 4 else 9, rank - 1)))
            self.inputs.append(Value(f"x{i}", shape, True))
        self.values += self.inputs
        wanted = int(random.integers(1, 12))
        for _ in range(20 * wanted):
            operators[int(random.integers(len(operators)))](self)
            if len(self.nodes) >= wanted:
                break

    # ---- what operators draw

    def chance(self, one_in):
        return self.random.integers(one_in) == 0

    def one(self, *choices):
        return choices[int(self.random.integers(len(choices)))]

    def between(self, low, high):
        return int(self.random.integers(low, high + 1))

    def value(self, ranks=None, exact=False):
        """Returns a value of one of these ranks, or None; later ones are likelier, so that graphs are deep."""
        fitting = [v for v in self.values if (ranks is None or v.rank in ranks) and (v.exact or not exact) and v.size]
        if not fitting:
            return None
        return fitting[max(int(self.random.integers(len(fitting))), int(self.random.integers(len(fitting))))]

    def numbers(self, shape, least=None):
        """Returns the name of random floats; with `least` of magnitudes from there to 2."""
        w = self.random.standard_normal(shape).astype(np.float32)
        if least is not None:
            w = (np.sign(w) * self.random.uniform(least, 2, shape)).astype(np.float32)
        return self.constant(w)

    def weights(self, shape, terms):
        """Returns random weights whose products with values of size one sum up to size one."""
        return self.constant((self.random.standard_normal(shape) / math.sqrt(max(terms, 1))).astype(np.float32))

    def constant(self, array):
        name = f"c{len(self.initializers)}"
        self.initializers[name] = np.asarray(array)
        return name

    def whole(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def add(self, op, inputs, shape, exact=False, **attributes):
        """Adds a node with one output of this shape, unless that is too large."""
        if math.prod(shape) > self.most:
            return None
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [i.name if isinstance(i, Value) else i for i in inputs], [name], f"{op}_{len(self.nodes)}", **attributes))
        made = Value(name, shape, exact)
        self.values.append(made)
        return made

    # ---- the model

    def model(self, all_outputs=True):
        """Returns the model; `all_outputs`: every value is an output, else those that no node reads."""
        read = {i for n in self.nodes for i in n.input}
        outputs = [v for v in self.values if v not in self.inputs and (all_outputs or v.name not in read)]
        known = lambda v: ["N" if i == 0 and self.open_batch else n for i, n in enumerate(v.shape)]  # noqa: E731
        declared = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, known(v)) for v in self.inputs]
        made = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, [None] * v.rank) for v in outputs]
        held = [numpy_helper.from_array(a, n) for n, a in self.initializers.items()]
        graph = helper.make_graph(self.nodes, "random", declared, made, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8 if self.opset < 19 else 10)

    def data(self, random):
        return {v.name: random.standard_normal(v.shape).astype(np.float32) for v in self.inputs}


# ---- operators: each adds a node to a graph, or nothing where no value fits

operators = []


def operator(function):
    operators.append(function)
    return function


def window(g, length):
    """Returns (kernel, stride, dilation, pad before, pad after) along one axis, and the number of positions."""
    kernel, stride, dilation = g.between(1, min(3, length)), g.between(1, 2), g.one(1, 1, 1, 2)
    before, after = (g.between(0, kernel - 1) for _ in range(2))
    reach = dilation * (kernel - 1) + 1
    if length + before + after < reach:
        dilation, reach = 1, kernel
    return kernel, stride, dilation, before, after, (length + before + after - reach) // stride + 1


def windows(g, lengths):
    each = [window(g, n) for n in lengths]
    kernel, stride, dilation, before, after, count = ([w[i] for w in each] for i in range(6))
    return kernel, {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "pads": before + after}, count


@operator
def conv(g):
    if (x := g.value((3, 4))) is None:
        return
    group = g.one(1, 1, x.shape[1])
    out = group * g.between(1, 4 if group == 1 else 2)
    kernel, attributes, count = windows(g, x.shape[2:])
    each = x.shape[1] // group
    inputs = [x, g.weights((out, each, *kernel), each * math.prod(kernel))]
    if g.chance(2):
        inputs.append(g.numbers((out,)))
    g.add("Conv", inputs, (x.shape[0], out, *count), group=group, **attributes)


@operator
def conv_transpose(g):
    if (x := g.value((3, 4))) is None or max(x.shape[2:]) > 10:
        return
    out, kernel = g.between(1, 4), [g.between(1, 3) for _ in x.shape[2:]]
    stride = [g.between(1, 2) for _ in kernel]
    extra = [g.between(0, s - 1) for s in stride]
    shape = [(n - 1) * s + k + e for n, s, k, e in zip(x.shape[2:], stride, kernel, extra)]
    g.add("ConvTranspose", [x, g.weights((x.shape[1], out, *kernel), x.shape[1] * math.prod(kernel))], (x.shape[0], out, *shape),
          kernel_shape=kernel, strides=stride, output_padding=extra)


@operator
def max_pool(g):
    if (x := g.value((3, 4))) is not None:
        _, attributes, count = windows(g, x.shape[2:])
        g.add("MaxPool", [x], (*x.shape[:2], *count), x.exact, **attributes)


@operator
def average_pool(g):
    if (x := g.value((3, 4))) is not None:
        _, attributes, count = windows(g, x.shape[2:])
        if g.opset < 19:
            del attributes["dilations"]
            k, s, p, n = attributes["kernel_shape"], attributes["strides"], attributes["pads"], len(count)
            count = [(x.shape[2 + i] + p[i] + p[n + i] - k[i]) // s[i] + 1 for i in range(n)]
        g.add("AveragePool", [x], (*x.shape[:2], *count), count_include_pad=g.one(0, 1), **attributes)


@operator
def global_pool(g):
    if (x := g.value((3, 4))) is not None:
        op = g.one("GlobalAveragePool", "GlobalMaxPool")
        g.add(op, [x], (*x.shape[:2], *[1] * (x.rank - 2)), x.exact and op == "GlobalMaxPool")


@operator
def gemm(g):
    if (x := g.value((2,))) is None:
        return
    flip, across = g.one(0, 0, 1), g.one(0, 1)
    rows, k = x.shape[::-1] if flip else x.shape
    n = g.between(1, 12)
    inputs = [x, g.weights((n, k) if across else (k, n), k)]
    if g.chance(2):
        inputs.append(g.numbers(g.one((n,), (1, n), (1,), (rows, n))))
    g.add("Gemm", inputs, (rows, n), transA=flip, transB=across, alpha=g.one(1.0, 0.5, 1.25), beta=g.one(1.0, 2.0, 0.75))


@operator
def matmul(g):
    if (x := g.value((2, 3, 4))) is not None:
        n = g.between(1, 12)
        shape = (x.shape[-1], n) if x.rank < 3 or g.chance(2) else (g.one(1, x.shape[-3]), x.shape[-1], n)
        g.add("MatMul", [x, g.weights(shape, x.shape[-1])], (*x.shape[:-1], n))


@operator
def matmul_of_values(g):
    if (x := g.value((2, 3, 4))) is not None:
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        if (t := g.add("Transpose", [x], [x.shape[i] for i in order], x.exact, perm=order)) is not None:
            g.add("MatMul", [x, t], (*x.shape[:-1], x.shape[-2]))


@operator
def with_constant(g):
    if (x := g.value()) is not None:
        op = g.one("Add", "Sub", "Mul", "Div", "Max", "Min")
        shape = [g.one(1, n) for n in x.shape][g.between(0, x.rank):]
        other = g.numbers(shape, 0.25)
        inputs = [x, other] if op == "Div" or g.chance(2) else [other, x]
        g.add(op, inputs, x.shape, x.exact and op in ("Max", "Min"))


@operator
def with_value(g):
    x, y = g.value(), g.value()
    if x is None:
        return
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return
    op = g.one("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum")
    g.add(op, [x, y], shape, x.exact and y.exact and op in ("Max", "Min"))


@operator
def activation(g):
    if (x := g.value()) is None:
        return
    exact = ("Relu", "Neg", "Abs", "Identity")
    plain = ["Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Erf", "Sin", "Cos", "Atan", *exact]
    op = g.one(*(p for p in plain if p != "HardSwish" or g.opset >= 14))
    g.add(op, [x], x.shape, x.exact and op in exact)


@operator
def activation_with_attributes(g):
    if (x := g.value()) is not None:
        op, more = g.one(("LeakyRelu", {"alpha": 0.1}), ("Elu", {"alpha": 0.7}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("Selu", {}),
                         ("Celu", {"alpha": 1.5}), ("ThresholdedRelu", {"alpha": -9.0}))
        g.add(op, [x], x.shape, **more)


@operator
def gelu(g):
    if g.opset >= 20 and (x := g.value()) is not None:
        g.add("Gelu", [x], x.shape, approximate=g.one("none", "tanh"))


@operator
def clip(g):
    if (x := g.value()) is not None:
        low, high = (g.constant(np.float32(v)) for v in (-g.between(0, 2), g.between(1, 6)))
        g.add("Clip", [x, *g.one((low, high), ("", high), (low,))], x.shape, x.exact)


@operator
def prelu(g):
    if (x := g.value()) is not None and x.rank > 1:
        g.add("PRelu", [x, g.numbers((x.shape[1], *[1] * (x.rank - 2)))], x.shape)


@operator
def exponential(g):
    if (x := g.value()) is not None and (t := g.add("Tanh", [x], x.shape)) is not None:
        g.add("Exp", [t], x.shape)


@operator
def square_root(g):
    if (x := g.value()) is not None and (t := g.add("Sigmoid", [x], x.shape)) is not None:
        g.add(g.one("Sqrt", "Reciprocal", "Log"), [t], x.shape)


@operator
def reduction(g):
    if (x := g.value()) is None or x.rank == 0:
        return
    op, keep = g.one("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"), g.one(0, 1)
    axes = sorted({g.between(0, x.rank - 1) for _ in range(g.between(1, 2))})
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    signed = [int(a) - (x.rank if g.chance(2) else 0) for a in axes]
    exact = x.exact and op in ("ReduceMax", "ReduceMin")
    if g.opset >= 18 or op == "ReduceSum":
        g.add(op, [x, g.whole(*signed)], shape, exact, keepdims=keep)
    else:
        g.add(op, [x], shape, exact, keepdims=keep, axes=signed)


@operator
def softmax(g):
    if (x := g.value()) is not None and x.rank:
        g.add(g.one("Softmax", "LogSoftmax"), [x], x.shape, axis=g.between(-x.rank, x.rank - 1))


@operator
def normalization(g):
    if (x := g.value((3, 4))) is None or min(x.shape[1:]) < 2:
        return
    channels = lambda least=None: g.numbers((x.shape[1],), least)  # noqa: E731
    kinds = ["BatchNormalization", "InstanceNormalization"] + ["LRN"] * (x.rank == 4) + ["LayerNormalization"] * (g.opset >= 17)
    op = g.one(*kinds)
    if op == "BatchNormalization":
        variance = g.constant(np.abs(g.random.uniform(0.5, 2, x.shape[1])).astype(np.float32))
        g.add(op, [x, channels(), channels(), channels(), variance], x.shape, epsilon=1e-3)
    elif op == "InstanceNormalization":
        g.add(op, [x, channels(), channels()], x.shape, epsilon=1e-2)
    elif op == "LRN":
        g.add(op, [x], x.shape, size=g.one(1, 3, 5), alpha=0.3, beta=0.75, bias=1.5)
    else:
        axis = g.between(1, x.rank - 1)
        g.add(op, [x, g.numbers(x.shape[axis:]), g.numbers(x.shape[axis:])], x.shape, axis=axis, epsilon=1e-2)


@operator
def transpose(g):
    if (x := g.value()) is not None and x.rank:
        order = [int(i) for i in g.random.permutation(x.rank)]
        g.add("Transpose", [x], [x.shape[i] for i in order], x.exact, perm=order)


@operator
def reshape(g):
    if (x := g.value()) is None or x.rank < 2:
        return
    kind = g.between(0, 3)
    if kind == 0:
        axis = g.between(0, x.rank)
        g.add("Flatten", [x], (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), x.exact, axis=axis)
    elif kind == 1:
        g.add("Reshape", [x, g.whole(0, -1)], (x.shape[0], x.size // x.shape[0]), x.exact)
    elif kind == 2:
        at = g.between(0, x.rank)
        g.add("Unsqueeze", [x, g.whole(at)], (*x.shape[:at], 1, *x.shape[at:]), x.exact) if x.rank < 4 else None
    elif 1 in x.shape:
        at = x.shape.index(1)
        g.add("Squeeze", [x, g.whole(at)], (*x.shape[:at], *x.shape[at + 1 :]), x.exact)


@operator
def concat(g):
    if (x := g.value()) is None or not x.rank:
        return
    axis = g.between(0, x.rank - 1)
    others = [v for v in g.values if v.rank == x.rank and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]
    y = others[g.between(0, len(others) - 1)]
    shape = list(x.shape)
    shape[axis] += y.shape[axis]
    g.add("Concat", [x, y], shape, x.exact and y.exact, axis=axis - (x.rank if g.chance(2) else 0))


@operator
def cut(g):
    if (x := g.value()) is None or not x.rank:
        return
    axis = g.between(0, x.rank - 1)
    n, backwards = x.shape[axis], g.chance(3)
    start, step = g.between(0, n - 1), g.between(1, 3)
    shape = list(x.shape)
    if backwards:
        shape[axis] = start // step + 1
        g.add("Slice", [x, g.whole(start), g.whole(-(2**31)), g.whole(axis), g.whole(-step)], shape, x.exact)
    else:
        shape[axis] = (n - start + step - 1) // step
        g.add("Slice", [x, g.whole(start - n), g.whole(2**31), g.whole(axis), g.whole(step)], shape, x.exact)


@operator
def gather(g):
    if (x := g.value()) is not None and x.rank:
        axis = g.between(0, x.rank - 1)
        n = x.shape[axis]
        index = g.random.integers(-n, n, g.one((), (3,), (2, 2)) if x.rank < 4 else (3,))
        g.add("Gather", [x, g.constant(np.asarray(index, np.int64))], (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.exact, axis=axis)


@operator
def pad(g):
    if (x := g.value()) is None or not x.rank:
        return
    mode = g.one("constant", "reflect", "edge")
    most = [min(2, n - 1) if mode == "reflect" else 2 for n in x.shape]
    before, after = ([g.between(0, m) for m in most] for _ in range(2))
    inputs = [x, g.whole(*before, *after)] + ([g.constant(np.float32(0.5))] if mode == "constant" and g.chance(2) else [])
    g.add("Pad", inputs, [n + b + a for n, b, a in zip(x.shape, before, after)], x.exact, mode=mode)


@operator
def resize(g):
    if (x := g.value((4,))) is None:
        return
    sizes = [g.between(1, 2 * n) for n in x.shape[2:]]
    mode = g.one("nearest", "linear", "cubic")
    more = {"nearest_mode": g.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")} if mode == "nearest" else {}
    where = g.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    if mode == "nearest" and where != "asymmetric":  # positions that lie on a half in one arithmetic and beside it in another
        where = "asymmetric"
        sizes = [n * g.one(1, 2) for n in x.shape[2:]]
    g.add("Resize", [x, "", "", g.whole(*x.shape[:2], *sizes)], (*x.shape[:2], *sizes), x.exact and mode == "nearest", mode=mode,
          coordinate_transformation_mode=where, **more)


@operator
def spread(g):
    if (x := g.value()) is None or not x.rank:
        return
    if g.chance(2):
        times = [g.one(1, 1, 2) for _ in x.shape]
        g.add("Tile", [x, g.whole(*times)], [n * t for n, t in zip(x.shape, times)], x.exact)
    else:
        shape = [g.between(1, 3) if n == 1 else n for n in x.shape]
        g.add("Expand", [x, g.whole(*shape)], shape, x.exact)


@operator
def blocks_of_depth(g):
    if (x := g.value((4,))) is None:
        return
    n, c, h, w = x.shape
    if c % 4 == 0:
        g.add("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), x.exact, blocksize=2, mode=g.one("DCR", "CRD"))
    elif h % 2 == 0 and w % 2 == 0:
        g.add("SpaceToDepth", [x], (n, 4 * c, h // 2, w // 2), x.exact, blocksize=2)


@operator
def sums_so_far(g):
    if (x := g.value()) is not None and x.rank:
        g.add("CumSum", [x, g.constant(np.int64(g.between(-x.rank, x.rank - 1)))], x.shape, exclusive=g.one(0, 1), reverse=g.one(0, 1))


@operator
def choice(g):
    """What jumps is asked only of values that every runtime has bit for bit."""
    if (x := g.value(exact=True)) is None or not x.rank:
        return
    kind = g.between(0, 3)
    if kind == 0:
        g.add(g.one("Floor", "Ceil", "Round", "Sign"), [x], x.shape, True)
    elif kind == 1:
        g.nodes.append(helper.make_node("Greater", [x.name, g.numbers(())], [f"b{len(g.nodes)}"], f"Greater_{len(g.nodes)}"))
        g.add("Where", [g.nodes[-1].output[0], x, g.numbers(x.shape)], x.shape, True)
    elif kind == 2:
        axis = g.between(0, x.rank - 1)
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        g.nodes.append(helper.make_node("ArgMax", [x.name], [f"i{len(g.nodes)}"], f"ArgMax_{len(g.nodes)}", axis=axis))
        g.add("Cast", [g.nodes[-1].output[0]], shape, True, to=TensorProto.FLOAT)
    else:
        axis = g.between(0, x.rank - 1)
        k = g.between(1, x.shape[axis])
        shape = [k if i == axis else n for i, n in enumerate(x.shape)]
        if math.prod(shape) <= g.most:
            g.add("TopK", [x, g.whole(k)], shape, True, axis=axis, largest=g.one(0, 1))
            g.nodes[-1].output.append(f"k{len(g.nodes)}")
