# SPDX-License-Identifier: Apache-2.0
"""Gradients of the networks of make_networks.py by torch's autograd in float64, rounded to float32: gradients/NAME.npz holds x, v, y, dx, and
d:NAME for each initializer of floats; the function is the sum of v * y, where y is the first output."""
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

NETWORKS = {"resnet20_made": 2, "resnet20_made_folded": 2, "fires_made": 2, "transformer_made": 3, "detector_made": 1}  # and how many samples


def ints(t):
    return [int(v) for v in t.flatten()]


def window(a):
    n = len(a["pads"]) // 2
    assert a["pads"][:n] == a["pads"][n:]
    return {"stride": a["strides"], "padding": a["pads"][:n]}


def batch_norm(x, scale, bias, mean, variance, _):
    one = lambda t: t.reshape(1, -1, 1, 1)
    return (x - one(mean)) / torch.sqrt(one(variance) + 1e-5) * one(scale) + one(bias)


def sliced(x, starts, ends, axes, steps, _):
    for start, end, axis, step in zip(*map(ints, (starts, ends, axes, steps))):
        x = x.index_select(axis, torch.arange(start, min(end, x.shape[axis]), step))
    return x


def padded(x, pads, _):
    n = x.dim()
    pads = ints(pads)
    return F.pad(x, [p for axis in reversed(range(n)) for p in (pads[axis], pads[axis + n])])


def expanded(x, shape, _):
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape)))


OPERATORS = {
    "Conv": lambda x, w, *rest: F.conv2d(x, w, rest[0] if len(rest) > 1 else None, groups=rest[-1].get("group", 1), dilation=rest[-1].get("dilations", 1), **window({"pads": [0] * 4, **rest[-1]})),
    "BatchNormalization": batch_norm, "Slice": sliced, "Pad": padded, "Expand": expanded,
    "MaxPool": lambda x, a: F.max_pool2d(x, a["kernel_shape"], **window({"pads": [0] * 4, **a})),
    "Relu": lambda x, _: F.relu(x), "Tanh": lambda x, _: torch.tanh(x), "Sqrt": lambda x, _: torch.sqrt(x),
    "Add": lambda x, y, _: x + y, "Sub": lambda x, y, _: x - y, "Mul": lambda x, y, _: x * y, "Div": lambda x, y, _: x / y, "Pow": lambda x, y, _: x**y,
    "MatMul": lambda x, y, _: x @ y, "Gemm": lambda x, w, b, a: x @ (w.T if a.get("transB") else w) + b,
    "GlobalAveragePool": lambda x, _: x.mean((2, 3), keepdim=True), "Flatten": lambda x, a: x.flatten(a["axis"]),
    "Softmax": lambda x, a: torch.softmax(x, a["axis"]), "Concat": lambda *x: torch.cat(x[:-1], x[-1]["axis"]),
    "Transpose": lambda x, a: x.permute(a["perm"]), "Reshape": lambda x, s, _: x.reshape(ints(s)), "Shape": lambda x, _: torch.tensor(x.shape),
    "Gather": lambda x, i, a: x.index_select(a.get("axis", 0), i.reshape(-1)).reshape([*x.shape[: a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1 :]]),
    "ReduceMean": lambda x, a: x.mean(a["axes"], keepdim=bool(a["keepdims"])),
}


def write(folder):
    (folder / "gradients").mkdir(exist_ok=True)
    for name, samples in NETWORKS.items():
        graph = onnx.load(folder / "models" / f"{name}.onnx").graph
        x = np.load(folder / "reference" / f"{name}.input.{graph.input[0].name}.npy")[:samples]
        values = {}
        for i in graph.initializer:
            array = numpy_helper.to_array(i)
            values[i.name] = torch.tensor(array).double().requires_grad_() if array.dtype == np.float32 else torch.tensor(array)
        start = values[graph.input[0].name] = torch.tensor(x).double().requires_grad_()
        for node in graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type](*(values[i] for i in node.input), attributes)
        y = values[graph.output[0].name]
        expected = np.load(folder / "reference" / f"{name}.output.{graph.output[0].name}.npy")[:samples]
        error = np.abs(y.detach().numpy() - expected).max() / np.abs(expected).max()
        assert error < 1e-5, (name, error)
        v = np.random.default_rng(7).standard_normal(y.shape).astype(np.float32)
        (torch.tensor(v).double() * y).sum().backward()
        short = lambda t: t.detach().numpy().astype(np.float32)
        found = {f"d:{i.name}": short(values[i.name].grad) for i in graph.initializer if getattr(values[i.name], "grad", None) is not None}
        found = {k: d for k, d in found.items() if np.isfinite(d).all()}  # a power of a negative number has no slope by its exponent
        np.savez(folder / "gradients" / f"{name}.npz", x=x, v=v, y=short(y), dx=short(start.grad), **found)
        print(f"{name}: {len(found)} arrays, outputs as onnxruntime's within {error:.1e}")
