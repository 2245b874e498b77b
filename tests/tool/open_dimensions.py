# SPDX-License-Identifier: Apache-2.0
"""A network with its first dimension open is quantized and evaluated as well as with that dimension fixed, whatever the dimension is.

Thirty small networks take time, rows of an image, nodes, audio samples or true samples along axis 0. Each is quantized to int8 twice, with
the first dimension open and fixed, on the same data; in ONNX Runtime both have the same decibels within 0.1. With it open, `qk evaluate`
gives the outputs of ONNX Runtime, and says whether rows ran together.
"""
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import evidence
from evidence import at, decibels, evaluated, qk
from evidence.graphs import Graph
from evidence.runtimes import outputs

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


class Network(Graph):
    """Builds a model with inputs whose first dimension is open or fixed."""

    def __init__(self, seed):
        super().__init__(seed)
        self.inputs, self.data = [], {}

    def input(self, name, value, symbol="n", along=(0,)):
        """`along` are the dimensions that are open."""
        self.data[name] = value
        self.inputs.append((name, value, symbol, along))
        return name

    def floats(self, *shape, scale=None):
        scale = scale if scale is not None else 1 / np.sqrt(max(1, np.prod(shape[1:] if len(shape) > 2 else shape[:1])))
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def whole(self, value):
        return self.number(value, np.int64)

    def linear(self, x, inputs, outputs):
        return self.op("Add", self.op("MatMul", x, self.floats(inputs, outputs)), self.floats(outputs, scale=0.1))

    def attention(self, x, width, causal=None):
        """Attention among the rows of x [..., S, width]."""
        q, k, v = (self.linear(x, width, width) for _ in range(3))
        rank = self.rank
        kt = self.op("Transpose", k, perm=list(range(rank - 2)) + [rank - 1, rank - 2])
        scores = self.op("Mul", self.op("MatMul", q, kt), self.constant(np.float32(1.5 / np.sqrt(width))))
        if causal is not None:
            scores = self.op("Add", scores, causal)
        return self.op("Add", x, self.op("MatMul", self.op("Softmax", scores, axis=-1), v))

    def write(self, file, is_open):
        shape = lambda value, symbol, along: [symbol if is_open and k in along else d for k, d in enumerate(value.shape)]
        kind = lambda value: TensorProto.INT64 if value.dtype == np.int64 else TensorProto.FLOAT
        self.rename("y")
        return self.save(file, [(name, kind(value), shape(value, *open_)) for name, value, *open_ in self.inputs], {"y": None})


NETWORKS = {}


def network(kind):
    """`kind`: "apart" if rows are samples, "together" if not."""
    def add(build):
        NETWORKS[build.__name__] = (kind, build)
        return build
    return add


def signal(g, *shape):
    """Something like speech: slow, with a few loud places."""
    t = np.arange(shape[0], dtype=np.float64).reshape((-1,) + (1,) * (len(shape) - 1))
    x = np.sin(t / 7) + 0.3 * g.rng.standard_normal(shape)
    return (x * (1 + 3 * (np.sin(t / 40) > 0.9))).astype(np.float32)


# Time along axis 0.
def recurrent(g, kind, gates, steps=48):
    x = g.input("x", signal(g, steps, 1, 8), "t")
    outputs = {"LSTM": 3, "GRU": 2, "RNN": 2}[kind]
    y = g.op(kind, x, g.floats(1, gates * 16, 8, scale=0.3), g.floats(1, gates * 16, 16, scale=0.3), outputs=outputs, hidden_size=16)[0]
    return g.linear(g.op("Squeeze", y, g.ints(1, 2)), 16, 4)


@network("together")
def lstm_over_time(g): return recurrent(g, "LSTM", 4)
@network("together")
def gru_over_time(g): return recurrent(g, "GRU", 3)
@network("together")
def rnn_over_time(g): return recurrent(g, "RNN", 1)


def time_convolution(g, dilation, layers):
    h = g.op("Unsqueeze", g.op("Transpose", g.input("x", signal(g, 64, 4), "t"), perm=[1, 0]), g.ints(0))
    width = 4
    for _ in range(layers):
        h = g.op("Relu", g.op("Conv", h, g.floats(8, width, 5), pads=[2 * dilation] * 2, dilations=[dilation]))
        width = 8
    h = g.op("Conv", h, g.floats(2, width, 1))
    return g.op("Transpose", g.op("Squeeze", h, g.ints(0)), perm=[1, 0])


@network("together")
def convolution_over_time(g): return time_convolution(g, 1, 2)
@network("together")
def dilated_over_time(g): return time_convolution(g, 2, 3)


@network("together")
def attention_over_time(g):
    g.rank = 2
    return g.linear(g.attention(g.linear(g.input("x", signal(g, 40, 8), "t"), 8, 16), 16), 16, 4)


@network("together")
def attention_over_ids(g):
    g.rank = 2
    ids = g.input("ids", g.rng.integers(0, 50, 24), "s")
    return g.linear(g.attention(g.op("Gather", g.floats(50, 16, scale=1.0), ids), 16), 16, 8)


@network("together")
def causal_attention_over_ids(g):
    g.rank = 2
    ids = g.input("ids", g.rng.integers(0, 50, 24), "s")
    h = g.op("Gather", g.floats(50, 16, scale=1.0), ids)
    count = g.op("Gather", g.op("Shape", ids), g.whole(0))
    places = g.op("Range", g.whole(0), count, g.whole(1))
    later = g.op("Less", g.op("Unsqueeze", places, g.ints(1)), g.op("Unsqueeze", places, g.ints(0)))
    mask = g.op("Where", later, g.constant(np.float32(-1e4)), g.constant(np.float32(0)))
    return g.linear(g.attention(h, 16, mask), 16, 8)


@network("together")
def sum_over_time(g):
    h = g.op("Tanh", g.linear(g.input("x", signal(g, 40, 6), "t"), 6, 12))
    return g.linear(g.op("Mul", g.op("CumSum", h, g.whole(0)), g.constant(np.float32(0.1))), 12, 4)


@network("together")
def mean_over_time(g):
    h = g.op("Relu", g.linear(g.input("x", signal(g, 40, 6), "t"), 6, 12))
    return g.linear(g.op("ReduceMean", h, axes=[0], keepdims=1), 12, 4)


@network("together")
def scan_over_time(g):
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "keep"], ["k"]), helper.make_node("Add", ["k", "e"], ["s2"]), helper.make_node("Identity", ["s2"], ["o"])],
        "body", [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "se"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("s2", "o")],
        [numpy_helper.from_array(np.float32(0.9), "keep")])
    h = g.linear(g.input("x", signal(g, 40, 6), "t"), 6, 8)
    y = g.op("Scan", g.constant(np.zeros(8, np.float32)), h, outputs=2, num_scan_inputs=1, body=body)[1]
    return g.linear(y, 8, 4)


# Rows of an image along axis 0.
def image(g, channels, build):
    x = g.input("x", np.abs(signal(g, 24, 20, channels) if channels > 1 else signal(g, 24, 20)), "h")
    h = g.op("Transpose", x, perm=[2, 0, 1]) if channels > 1 else g.op("Unsqueeze", x, g.ints(0))
    return build(g.op("Unsqueeze", h, g.ints(0)))


@network("together")
def image_to_classes(g):
    def build(h):
        h = g.op("Relu", g.op("Conv", h, g.floats(8, 3, 3, 3), pads=[1] * 4))
        h = g.op("Relu", g.op("Conv", h, g.floats(8, 8, 3, 3), pads=[1] * 4, strides=[2, 2]))
        return g.linear(g.op("Flatten", g.op("GlobalAveragePool", h)), 8, 5)
    return image(g, 3, build)


@network("together")
def image_to_image(g):
    def build(h):
        h = g.op("Relu", g.op("Conv", h, g.floats(8, 3, 3, 3), pads=[1] * 4))
        h = g.op("Conv", h, g.floats(3, 8, 3, 3), pads=[1] * 4)
        return g.op("Transpose", g.op("Squeeze", h, g.ints(0)), perm=[1, 2, 0])
    return image(g, 3, build)


@network("together")
def grey_image(g):
    def build(h):
        h = g.op("Relu", g.op("Conv", h, g.floats(6, 1, 5, 5), pads=[2] * 4))
        return g.op("Squeeze", g.op("Conv", h, g.floats(1, 6, 3, 3), pads=[1] * 4), g.ints(0, 1))
    return image(g, 1, build)


@network("together")
def larger_image(g):
    def build(h):
        h = g.op("Resize", h, "", g.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
        h = g.op("Relu", g.op("Conv", h, g.floats(4, 3, 3, 3), pads=[1] * 4))
        return g.op("Conv", h, g.floats(3, 4, 3, 3), pads=[1] * 4)
    return image(g, 3, build)


@network("together")
def pooled_image(g):
    def build(h):
        h = g.op("MaxPool", g.op("Relu", g.op("Conv", h, g.floats(8, 3, 3, 3))), kernel_shape=[2, 2], strides=[2, 2])
        return g.op("ConvTranspose", h, g.floats(8, 2, 2, 2), strides=[2, 2])
    return image(g, 3, build)


# Nodes of a graph along axis 0.
@network("together")
def nodes_by_edges(g):
    x, edges = g.input("x", signal(g, 20, 6)), g.input("edges", g.rng.integers(0, 20, (2, 50)), "e", (1,))
    h = g.op("Relu", g.linear(x, 6, 8))
    source, target = (g.op("Squeeze", e, g.ints(0)) for e in g.op("Split", edges, g.ints(1, 1), outputs=2, axis=0))
    message = g.linear(g.op("Gather", h, source, axis=0), 8, 8)
    index = g.op("Expand", g.op("Unsqueeze", target, g.ints(1)), g.op("Shape", message))
    zeros = g.op("Mul", h, g.constant(np.float32(0)))
    return g.linear(g.op("Add", h, g.op("ScatterElements", zeros, index, message, axis=0, reduction="add")), 8, 4)


@network("together")
def nodes_by_matrix(g):
    x = g.input("x", signal(g, 20, 6))
    a = g.input("a", (g.rng.random((20, 20)) < 0.2).astype(np.float32), "n", (0, 1))
    h = g.op("Relu", g.linear(g.op("MatMul", a, x), 6, 8))
    return g.linear(g.op("MatMul", a, h), 8, 4)


@network("together")
def edges_of_nodes(g):
    x, i = g.input("x", signal(g, 20, 6)), g.input("i", g.rng.integers(0, 20, 30), "e")
    return g.linear(g.op("Gather", g.op("Relu", g.linear(x, 6, 8)), i, axis=0), 8, 4)


@network("together")
def readout_of_nodes(g):
    h = g.op("Relu", g.linear(g.input("x", signal(g, 20, 6)), 6, 8))
    weight = g.op("Softmax", g.linear(h, 8, 1), axis=0)
    return g.linear(g.op("ReduceSum", g.op("Mul", h, weight), g.ints(0), keepdims=1), 8, 4)


# Audio along axis 0.
def audio(g, build, length=400):
    return build(g.op("Unsqueeze", g.input("x", signal(g, length), "t"), g.ints(0, 1)))


@network("together")
def audio_filter(g):
    def build(h):
        h = g.op("Relu", g.op("Conv", h, g.floats(8, 1, 9), pads=[4, 4]))
        return g.op("Squeeze", g.op("Conv", h, g.floats(1, 8, 9), pads=[4, 4]), g.ints(0, 1))
    return audio(g, build)


@network("together")
def audio_classes(g):
    def build(h):
        h = g.op("Relu", g.op("Conv", h, g.floats(8, 1, 16), strides=[8]))
        h = g.op("Relu", g.op("Conv", h, g.floats(12, 8, 4), strides=[2]))
        return g.linear(g.op("ReduceMean", h, axes=[2], keepdims=0), 12, 5)
    return audio(g, build)


@network("together")
def normalized_audio(g):
    x = g.input("x", signal(g, 400), "t")
    x = g.op("Sub", x, g.op("ReduceMean", x, axes=[0], keepdims=1))
    x = g.op("Div", x, g.op("ReduceMax", g.op("Abs", x), axes=[0], keepdims=1))
    h = g.op("Relu", g.op("Conv", g.op("Unsqueeze", x, g.ints(0, 1)), g.floats(8, 1, 9), pads=[4, 4]))
    return g.op("Conv", h, g.floats(1, 8, 9), pads=[4, 4])


@network("together")
def framed_audio(g):
    frames = g.op("Reshape", g.input("x", signal(g, 400), "t"), g.ints(-1, 40))
    return g.linear(g.op("Relu", g.linear(frames, 40, 16)), 16, 4)


# Samples along axis 0.
@network("apart")
def perceptron(g):
    return g.linear(g.op("Relu", g.linear(g.input("x", signal(g, 32, 10)), 10, 16)), 16, 4)


@network("apart")
def images(g):
    h = g.op("Relu", g.op("Conv", g.input("x", signal(g, 8, 3, 12, 12)), g.floats(8, 3, 3, 3), pads=[1] * 4))
    h = g.op("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2])
    return g.linear(g.op("Reshape", h, g.ints(-1, 288)), 288, 5)


@network("apart")
def transformer(g):
    g.rank = 4
    x = g.input("x", signal(g, 8, 10, 16))
    n = g.op("Gather", g.op("Shape", x), g.whole(0))
    to = g.op("Concat", g.op("Unsqueeze", n, g.ints(0)), g.ints(-1, 2, 8), axis=0)
    h = g.op("Transpose", g.op("Reshape", x, to), perm=[0, 2, 1, 3])
    h = g.op("Transpose", g.attention(h, 8), perm=[0, 2, 1, 3])
    return g.linear(g.op("Add", x, g.op("Reshape", h, g.ints(0, 0, 16))), 16, 4)


@network("apart")
def ids_with_mask(g):
    g.rank = 3
    ids = g.input("ids", g.rng.integers(0, 50, (8, 12)))
    mask = g.input("mask", (g.rng.random((8, 12)) < 0.8).astype(np.int64))
    h = g.op("Gather", g.floats(50, 16, scale=1.0), ids)
    bias = g.op("Mul", g.op("Sub", g.constant(np.float32(1)), g.op("Cast", mask, to=1)), g.constant(np.float32(-100)))
    h = g.attention(h, 16, g.op("Unsqueeze", bias, g.ints(1)))
    return g.linear(g.op("Gather", h, g.whole(0), axis=1), 16, 4)


@network("apart")
def lstm_of_samples(g):
    x = g.op("Transpose", g.input("x", signal(g, 8, 12, 6)), perm=[1, 0, 2])
    y = g.op("LSTM", x, g.floats(1, 32, 6, scale=0.4), g.floats(1, 32, 8, scale=0.4), outputs=3, hidden_size=8)[1]
    return g.linear(g.op("Squeeze", y, g.ints(0)), 8, 4)


@network("together")
def mean_over_samples(g):
    h = g.op("Relu", g.linear(g.input("x", signal(g, 16, 6)), 6, 12))
    return g.linear(g.op("Sub", h, g.op("ReduceMean", h, axes=[0], keepdims=1)), 12, 4)


@network("together")
def similarities(g):
    h = g.op("LpNormalization", g.linear(g.input("x", signal(g, 16, 6)), 6, 12), axis=1)
    return g.op("MatMul", h, g.op("Transpose", h, perm=[1, 0]))


def run(file, data):
    return outputs(file, data, "off")[0]


def said_of(*words):
    done = qk(*words)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NETWORKS)
def test_open_and_fixed(name):
    kind, build = NETWORKS[name]
    results = []
    for is_open in (True, False):
        g = Network(sum(map(ord, name)))
        build(g)
        file = at("open" if is_open else "fixed")
        g.write(file + ".onnx", is_open)
        np.savez(file + ".npz", **g.data)
        said = said_of("quantize", file + ".onnx", "-o", file + "_q.onnx", "--calibration", file + ".npz", "--activation", "int8", "--weight", "int8", "--recipe", "fast")
        reference = run(file + ".onnx", g.data)
        results.append(decibels(run(file + "_q.onnx", g.data), reference))
        if not is_open:
            continue
        together = "they run together" in said or "runs as a whole" in said
        assert together == (kind == "together"), f"{name}: rows are {kind}, and quantize says: {said[:300]}"
        said = said_of("evaluate", file + ".onnx", "--inputs", file + ".npz", "--output-dir", file)
        assert ("they run together" in said or "runs as a whole" in said) == (kind == "together"), f"{name}: evaluate says: {said[:300]}"
        value = np.load(os.path.join(file, "y.npy"))
        error = np.abs(value - reference).max() / np.abs(reference).max()
        assert value.shape == reference.shape and error < 1e-4, f"{name}: evaluate differs by {error:.3g}"
    assert abs(results[0] - results[1]) <= 0.1, f"{name}: {results[0]:.2f} dB with the first dimension open, {results[1]:.2f} with it fixed"


def test_data():
    """Files of a folder, a fixed batch with labels, and --batch-axis."""
    def saved(name, build, *inputs):
        g = Network(1)
        for i in inputs:
            g.input(*i)
        build(g)
        return g.write(at(name), True)

    mean = saved("mean.onnx", lambda g: g.op("ReduceMean", "x", axes=[0], keepdims=1), ("x", np.zeros(3, np.float32), "t"))
    os.mkdir(at("recordings"))
    np.save(at("recordings/0.npy"), np.zeros(3, np.float32))
    np.save(at("recordings/1.npy"), np.ones(2, np.float32))
    for more in ([], ["--batch-axis", "none"]):
        y = evaluated(mean, at("recordings"), *more)
        assert np.array_equal(y, [0, 1]), f"two recordings with means 0 and 1 {more}: {y}"
    np.save(at("x.npy"), np.arange(4, dtype=np.float32))
    for axis, wanted in (("none", [1.5]), ("0", [0, 1, 2, 3])):
        y = evaluated(mean, at("x.npy"), "--batch-axis", axis)
        assert np.array_equal(y, wanted), f"--batch-axis {axis}: {y}"
    wrong = qk("evaluate", mean, "--inputs", at("x.npy"), "--batch-axis", "rows", status=2)
    assert "neither none nor an axis" in wrong.stderr, wrong.stderr

    g = Network(2)
    g.linear(g.input("x", signal(g, 4, 10)), 10, 3)
    g.write(at("batch.onnx"), False)
    x = signal(g, 200, 10)
    np.save(at("many.npy"), x)
    os.mkdir(at("batches"))
    for k in range(50):
        np.save(at(f"batches/{k}.npy"), x[4 * k:4 * k + 4])
    expected = np.concatenate([run(at("batch.onnx"), {"x": x[4 * k:4 * k + 4]}) for k in range(50)])
    np.save(at("labels.npy"), expected.argmax(1))
    for data in ("many.npy", "batches"):
        qk("quantize", at("batch.onnx"), "-o", at("q.onnx"), "--overwrite", "--calibration", at(data), "--activation", "int8", "--weight", "int8")
        said = said_of("evaluate", at("batch.onnx"), "--inputs", at(data), "--output-dir", at("y"), "--overwrite", "--labels", at("labels.npy"))
        assert np.abs(np.load(at("y/y.npy")) - expected).max() < 1e-5, data
        assert "top1              1.0" in said, said


def test_there_are_thirty_networks():
    assert len(NETWORKS) >= 30, len(NETWORKS)


if __name__ == "__main__":
    evidence.main()
