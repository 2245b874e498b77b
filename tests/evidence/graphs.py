# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX models: `save` from nodes, `Graph` node by node."""
from .running import needs

needs("numpy", "onnx")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, list(shape))


def infos(given):
    """Infos of tensors from a dict of names to shapes, or from a list of infos and (name, type, shape)."""
    given = [(name, TensorProto.FLOAT, shape) for name, shape in given.items()] if isinstance(given, dict) else given
    return [helper.make_tensor_value_info(*one) if isinstance(one, tuple) else one for one in given]


def model(nodes, inputs, outputs, constants=(), opset=17, domains=(), functions=(), ir_version=None, **more):
    """Returns a model. Inputs and outputs: what `infos` takes. Constants: a dict of arrays, or tensors. Domains: names, of version 1."""
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()] if isinstance(constants, dict) else list(constants)
    graph = helper.make_graph(list(nodes), "g", infos(inputs), infos(outputs), held, **more)
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    least = 8 if opset < 19 else 9 if opset < 21 else 10 if opset < 23 else 11
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=ir_version or least)


def save(path, *parts, outside=False, **more):
    """Writes what `model` makes and returns the path; with `outside` the weights go into a file beside it."""
    onnx.save(model(*parts, **more), str(path), save_as_external_data=outside)
    return str(path)


class Graph:
    """Builds a graph node by node; every call returns the name of its result."""

    def __init__(self, seed, dtype=np.float32):
        self.nodes, self.held, self.rng, self.dtype, self.prefix = [], {}, np.random.default_rng(seed), dtype, ""

    def op(self, kind, *inputs, outputs=1, name=None, result=None, domain="", **attributes):
        """Adds a node. `result` names its only one, which is the node's name and "/y" otherwise."""
        name = self.prefix + (name or f"{kind}_{len(self.nodes)}")
        made = [result] if result else [f"{name}/y{i}" if i else f"{name}/y" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, name=name, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def hold(self, name, value):
        """Adds a constant: an array, or a tensor of onnx."""
        self.held[name] = value if isinstance(value, onnx.TensorProto) else np.array(value, order="C")
        return name

    def constant(self, value):
        return self.hold(f"c{len(self.held)}", value)

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def number(self, value, dtype=None):
        return self.constant(np.array(value, dtype or self.dtype))

    def weight(self, name, *shape, scale=None):
        scale = scale if scale is not None else 1 / np.sqrt(shape[0])
        return self.hold(self.prefix + name, (self.rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(self.dtype))

    def rename(self, name):
        """Gives the last node's result another name, for an output of the model."""
        self.nodes[-1].output[0] = name
        return name

    def save(self, path, inputs, outputs, **more):
        held = [v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(v, k) for k, v in self.held.items()]
        return save(path, self.nodes, inputs, outputs, held, **more)
