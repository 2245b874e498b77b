# SPDX-License-Identifier: Apache-2.0
"""From a module of torch to a file: torch's exporter writes the network, qk's writes the formats."""

import ast
import contextlib
import functools
import inspect
import itertools
import json
import logging
import warnings

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from . import _arrays, _data, _models
from . import torch as _formats

_domain = "qk.torch"  # of nodes that stand for a quantizer while torch's exporter is at work
_opset = 18  # what torch's exporter writes, and then converts


# ---- quantizers as a plan has them


def _quantizer(format, axis, semantics="ocp", rounding=None, scale_axis=None, scale_block=None, dynamic=False):
    """Returns a quantizer as in a plan, without its scales."""
    name, _, rule = format.partition("@")
    q = {"format": _arrays._spec(name).text, "axis": axis if scale_axis is None else scale_axis}
    how = {"base": semantics} if not semantics.startswith("{") else ast.literal_eval(semantics)
    how |= {k: v for k, v in (("rounding", rounding), ("scale_rule", rule)) if v}
    if how != {"base": "ocp"}:
        q["semantics"] = how
    if scale_block is not None:
        q["block_size"] = scale_block
    if dynamic:
        q["dynamic"] = True
        if _formats._range_of(format)[0] < 0 and "symmetric" not in q["format"]:
            q["format"] += ("," if ":" in q["format"] else ":") + "symmetric"
    return q


def table(write):
    """Returns a translation table; write(x, scale, zero_point, quantizer) writes a quantizer and returns its result."""

    def fake_quantize(x, scale, zero_point, format, axis, semantics, rounding, scale_axis, scale_block, threads):
        return write(x, scale, zero_point, _quantizer(format, axis, semantics, rounding, scale_axis, scale_block))

    def by_range(x, format, axis):
        return write(x, None, None, _quantizer(format, axis, dynamic=True))

    return {torch.ops.qk.fake_quantize.default: fake_quantize, torch.ops.qk.by_range.default: by_range}


def _nodes(like, domain, op_type, inputs, attributes=(), text=None, count=1):
    """Puts a node into the graph that torch's exporter makes; returns its results, values such as `like`."""
    import onnx_ir
    from onnxscript import evaluator

    recorder = evaluator.default()
    results = [type(like)(recorder.opset) for _ in range(count)]
    recorder.nodes.append(onnx_ir.Node(domain, op_type, inputs, attributes, outputs=results, version=1 if domain else None, doc_string=text))
    return results


def _node(*node):
    return _nodes(*node)[0]


def _stand_in(x, scale, zero_point, quantizer):
    import onnx_ir

    return _node(x, _domain, "quantizer", [x, scale, zero_point], [onnx_ir.AttrString("quantizer", json.dumps(quantizer))])


# ---- what a file has for one quantizer, as qk writes it


@functools.lru_cache
def _pieces(quantizer, element, shape, scales):
    """Returns the model that qk makes of one quantized tensor x. Scales are 1: the caller puts its own into their place."""
    q = json.loads(quantizer)
    q |= {"scale": [1.0] * scales[0]} if scales[0] else {}
    q |= {"zero_point": [1] * scales[1]} if scales[1] else {}
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], "last")], "one", [helper.make_tensor_value_info("x", element, shape)],
                              [helper.make_tensor_value_info("y", element, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _opset)], ir_version=10)
    made = _models.quantize(model, plan={"qk": "plan", "version": 1, "tensors": {"x": q}}, progress=False).model.proto()
    needed = next(o.version for o in made.opset_import if not o.domain)
    if needed > _opset:
        raise ValueError(f"{q['format']} needs opset {needed}, and torch's exporter writes {_opset} first: qk.torch.export(model, example, FILE) writes it")
    return made


class _Function:
    """A function as torch's exporter takes one."""

    def __init__(self, proto):
        self.proto = proto

    def to_function_proto(self):
        return self.proto


class Writer:
    """Writes quantizers as qk's portable files have them, with scales that the graph computes or holds. One writes one file."""

    def __init__(self):
        self.names = {}  # of functions, by their bodies: formats whose blocks lie otherwise have bodies of their own

    def __call__(self, x, scale, zero_point, quantizer):
        import onnx_ir
        from onnxscript import evaluator

        recorder = evaluator.default()
        counts = tuple(0 if v is None else int(np.prod([int(d) for d in v.shape], dtype=np.int64)) for v in (scale, zero_point))
        shape = tuple(d if isinstance(d, int) else f"d{i}" for i, d in enumerate(x.shape))
        m = _pieces(json.dumps(quantizer), int(x.dtype), shape, counts)
        values = {"x": x, "": None}
        for t in m.graph.initializer:
            given = {"x_scale": scale, "x_zero_point": zero_point}.get(t.name)
            values[t.name] = _constant(x, t) if given is None else _in_place_of(t, given, x)
        names = {(f.domain, f.name): self._function(recorder, f) for f in m.functions}
        for n in m.graph.node[:-1]:
            attributes = [onnx_ir.serde.deserialize_attribute(a) for a in n.attribute]
            name = names.get((n.domain, n.op_type), n.op_type)
            results = _nodes(x, n.domain, name, [values[i] for i in n.input], attributes, n.doc_string, len(n.output))
            values.update(zip(n.output, results))
        return values[m.graph.node[-1].input[0]]

    def _function(self, recorder, proto):
        """Has the file hold a function; returns its name there."""
        body, stem = proto.SerializeToString(), proto.name
        if body not in self.names:
            taken = set(self.names.values())
            self.names[body] = next(n for n in (stem, *(f"{stem}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        own = onnx.FunctionProto()
        own.CopyFrom(proto)
        own.name = self.names[body]
        _keep_from_optimizers(own)
        recorder.functions[own.domain, own.name, ""] = _Function(own)
        return own.name


def _keep_from_optimizers(function):
    """Writes q * (1 - u) as q - u q, which is rounded alike where u is a power of two: torch's optimizer, which sees the bodies of functions,
    takes 1 - 2^-24 for 1 and drops the product."""
    constants = {n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in function.node if n.op_type == "Constant" and n.attribute[0].HasField("t")}
    nodes = []
    for n in function.node:
        nodes.append(n)
        near = constants.get(n.input[1]) if n.op_type == "Mul" else None
        if near is None or near.size != 1 or near == 1 or abs(near - 1) > 1e-3:
            continue
        rest = n.output[0] + "_rest"
        nodes[-1:] = [helper.make_node("Constant", [], [rest + "_factor"], value=numpy_helper.from_array(np.asarray(1 - near, near.dtype))),
                      helper.make_node("Mul", [n.input[0], rest + "_factor"], [rest]), helper.make_node("Sub", [n.input[0], rest], list(n.output))]
    kept = onnx.FunctionProto()
    kept.node.extend(nodes)
    function.ClearField("node")
    function.node.extend(kept.node)


def _constant(like, proto):
    import onnx_ir

    return _node(like, "", "Constant", [], [onnx_ir.AttrTensor("value", onnx_ir.serde.deserialize_tensor(proto))])


def _in_place_of(placeholder, given, like):
    """Returns a scale or a zero point of the graph in type and shape of the constant that stands for it."""
    import onnx_ir

    def cast(v, to):
        return _node(like, "", "Cast", [v], [onnx_ir.AttrInt64("to", to)])

    if placeholder.name == "x_zero_point":
        given = _node(like, "", "Round", [cast(given, onnx.TensorProto.FLOAT)])
    shape = numpy_helper.from_array(np.array(placeholder.dims, np.int64))
    return _node(like, "", "Reshape", [cast(given, placeholder.data_type), _constant(like, shape)])


# ---- a whole model


def _given(example):
    """Returns positional and named arguments of a call."""
    if isinstance(example, dict):
        return (), dict(example)
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


def _free_first_axes(args, kwargs):
    """Returns dynamic_shapes that leave the first axis of all inputs free, where they share its length; None where they do not."""
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    if not tensors or any(v.dim() < 2 for v in tensors) or len({v.shape[0] for v in tensors}) != 1 or tensors[0].shape[0] < 2:
        return None
    free = [{0: torch.export.Dim.AUTO} if isinstance(v, torch.Tensor) else None for v in (*args, *kwargs.values())]
    return tuple(free) if not kwargs else dict(zip(kwargs, free)) if not args else None


@contextlib.contextmanager
def _as_deployed(model):
    """Has a model compute as it will where it is deployed, and torch's exporter say only what is wrong."""
    trained, log = [m for m in model.modules() if m.training], logging.getLogger("torch.onnx")
    level = log.level
    model.eval()
    log.setLevel(logging.ERROR)
    try:
        with torch.no_grad():
            yield
    finally:
        log.setLevel(level)
        for m in trained:
            m.training = True


def network(model, args, kwargs, dynamic_shapes=None, input_names=None, output_names=None):
    """Returns what torch's exporter makes of a model, with a node of the domain qk.torch for each quantizer."""
    if tuple(int(v) for v in torch.__version__.split(".")[:2]) < (2, 6):
        raise RuntimeError(f"torch {torch.__version__} exports no operator of others; the exporter of torch 2.6 and later does")
    from onnxscript import optimizer

    if isinstance(dynamic_shapes, str):  # "free"
        dynamic_shapes = _free_first_axes(args, kwargs)
    with _as_deployed(model):
        program = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, custom_translation_table=table(_stand_in), optimize=False, verbose=False,
                                    dynamic_shapes=dynamic_shapes, input_names=input_names, output_names=output_names)
    # Functions stay functions; scales that come of weights alone become constants, however large the weights are.
    optimizer.optimize_ir(program.model, inline=False, input_size_limit=1 << 40, output_size_limit=1 << 26)
    proto = program.model_proto
    _name_free_axes(proto)
    for n in proto.graph.node:  # names of modules stay; lines of the user's sources go
        kept = [p for p in n.metadata_props if not p.key.endswith((".stack_trace", ".fx_node"))]
        del n.metadata_props[:]
        n.metadata_props.extend(kept)
    return proto


def _name_free_axes(proto):
    """Calls the first axis `batch` where it is free: torch numbers its symbols."""
    dims = {v.type.tensor_type.shape.dim[0].dim_param for v in proto.graph.input if v.type.tensor_type.shape.dim} - {""}
    if len(dims) != 1:
        return
    own = dims.pop()
    for v in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param == own:
                d.dim_param = "batch"


class _Lowering:
    """Takes the quantizers out of a network: what is left is a float model, and a plan that says on which edges they are."""

    def __init__(self, proto):
        self.proto, self.graph = proto, proto.graph
        self.constants = {t.name: t for t in self.graph.initializer}
        self.producers = {o: n for n in self.graph.node for o in n.output}
        for n in self.graph.node:
            if n.op_type == "Constant" and not n.domain and n.attribute[0].name == "value":
                self.constants[n.output[0]] = n.attribute[0].t
        self.made, self.edges, self.nodes = {}, [], []  # made: by the result of a quantizer what it read, and how it quantizes
        self.weights, self.rounded = {}, set()  # by the result of a layer its quantized weight, and how; what became constants

    def run(self):
        for n in self.graph.node:
            if n.domain == _domain:
                self._take(n)
            elif not self._rearranged(n):
                self._refuse_norm(n)
                self._read(n)
        for o in self.graph.output:
            if o.name in self.made:
                self._read(self._identity(o.name, o.name))
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        for i in reversed(range(len(self.proto.opset_import))):
            if self.proto.opset_import[i].domain == _domain:
                del self.proto.opset_import[i]
        self._drop_unread()
        return self.proto, {"qk": "plan", "version": 1, "tensors": {}, "edges": self.edges}

    def _identity(self, source, result):
        return helper.make_node("Identity", [source], [result], f"{result}/identity")

    def _array(self, name):
        return numpy_helper.to_array(self.constants[name])

    def _add(self, name, array):
        """Adds a constant; returns its name."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.graph.initializer.append(self.constants[name])
        return name

    def _take(self, n):
        """Notes a quantizer, whose scales are constants by now."""
        quantizer, source = json.loads(n.attribute[0].s), n.input[0]
        for key, name in zip(("scale", "zero_point"), (*n.input[1:], "", "")):
            if name and name not in self.constants:
                raise ValueError(f"the {key.replace('_', ' ')} of what becomes '{n.output[0]}' is computed from the model's input, and a file has constants:"
                                 " leave it out for a range that follows the values (qk.torch.by_range)")
            if name:
                array = self._array(name).reshape(-1)
                quantizer[key] = array.astype(float).tolist() if key == "scale" else np.rint(array).astype(int).tolist()
        if "scale" in quantizer and quantizer.get("zero_point") and len(quantizer["zero_point"]) != len(quantizer["scale"]):
            quantizer["zero_point"] *= len(quantizer["scale"])
        if quantizer.get("dynamic") and source in self.constants:
            scale, zero = _formats._range_scale(quantizer["format"], torch.from_numpy(self._array(source).copy()), None)
            del quantizer["dynamic"]
            quantizer |= {"scale": [float(scale)]} | ({} if zero is None else {"zero_point": [int(zero)]})
        if source in self.made:  # quantized twice
            self._read(between := self._identity(source, source + "_once"))
            source = between.output[0]
        self.made[n.output[0]] = (source, quantizer)

    def _read(self, n):
        """Takes over a node. What it reads quantized goes into the plan."""
        if n.input and all(not i or i in self.constants or (i in self.made and self.made[i][0] in self.constants) for i in n.input):
            for i in n.input:
                if i in self.made:
                    self._round(i)
        for k, i in enumerate(n.input):
            if i in self.made and i not in self.rounded:
                source, quantizer = self.made[i]
                n.input[k] = source
                if k == 1 and source in self.constants:
                    self.weights[n.output[0]] = source, quantizer
                self.edges.append({"tensor": source, "consumer": n.name, "index": k, "quantizer": quantizer})
        self.nodes.append(n)

    def _round(self, name):
        """Adds a constant with the values that a quantizer makes of one: for a node of constants, which is computed once, not planned."""
        if name in self.rounded:
            return
        self.rounded.add(name)
        source, q = self.made[name]
        how, x = dict(q.get("semantics", {"base": "ocp"})), self._array(source)
        options = {k: _grid(q[k], x, q) for k in ("scale", "zero_point") if k in q}
        if "scale" in q and ("block_size" in q or len(q["scale"]) > 1):
            options |= {"scale_axis": q["axis"], "scale_block": q.get("block_size")}
        y = _arrays.fake_quantize(x.reshape(x.shape[0], -1) if q.get("flatten") else x, q["format"], q["axis"],
                                  _arrays.Semantics(how.pop("base"), **how), **options)
        self._add(name, y.reshape(x.shape))

    def _rearranged(self, n):
        """Does to a constant under a quantizer what a node does to its result: layers read weights as they are quantized. Returns whether the
        node is gone."""
        if not n.input or n.input[0] not in self.made or n.domain or n.op_type not in ("Transpose", "Reshape"):
            return False
        source, q = self.made[n.input[0]]
        if source not in self.constants:
            return False
        x, q = self._array(source), dict(q)
        if n.op_type == "Transpose":
            order = next((list(a.ints) for a in n.attribute if a.name == "perm"), list(reversed(range(x.ndim))))
            q |= {k: _grid(q[k], x, q).transpose(order).reshape(-1).tolist() for k in ("scale", "zero_point") if k in q and "block_size" in q}
            q["axis"] = order.index(q["axis"] % x.ndim)
            y = x.transpose(order)
        else:
            if n.input[1] not in self.constants or x.ndim != 2 or q["axis"] % 2 != 1 or "scale" in q:
                return False
            y = x.reshape(*self._array(n.input[1]).tolist())
            if y.ndim < 3 or y.shape[0] != x.shape[0]:
                return False
            q["flatten"] = True
        name = f"{source}_{n.op_type.lower()}d"
        self.made[n.output[0]] = (self._add(n.output[0] if name in self.constants else name, y), q)
        return True

    def _refuse_norm(self, n):
        """Refuses a BatchNormalization behind a quantized weight, into which every tool would multiply it."""
        if n.op_type != "BatchNormalization" or n.domain:
            return
        layer = self.producers.get(n.input[0])
        sums = list(layer.input) if layer is not None and layer.op_type == "Add" else []  # of a product with its bias
        source, q = next((self.weights[i] for i in (n.input[0], *sums) if i in self.weights), ("", None))
        if q is not None:
            raise ValueError(f"the weight '{source}' is trained in {q['format']}, and the BatchNorm behind it ('{n.input[1].rpartition('.')[0] or n.name}') would "
                             "multiply it off the format's grid: call qk.torch.fold_batch_norm(model) before the model is trained in formats")

    def _drop_unread(self):
        """Removes what nobody reads any more."""
        outputs, nodes = {o.name for o in self.graph.output}, list(self.graph.node)
        while True:
            read = outputs | {i for n in nodes for i in n.input}
            kept = [n for n in nodes if any(o in read for o in n.output)]
            if len(kept) == len(nodes):
                break
            nodes = kept
        constants = [t for t in self.graph.initializer if t.name in read]
        made = {o for n in nodes for o in n.output}
        shapes = [v for v in self.graph.value_info if v.name in made]
        for field, values in ((self.graph.node, nodes), (self.graph.initializer, constants), (self.graph.value_info, shapes)):
            values = list(values)
            del field[:]
            field.extend(values)


def _grid(values, x, quantizer):
    """Returns scales or zero points in the shape that qk.fake_quantize takes: where blocks have them, that of x with blocks for one axis."""
    values = np.array(values, np.int64 if all(isinstance(v, int) for v in values) else np.float32)
    if "block_size" not in quantizer:
        return values
    axis = quantizer["axis"] % x.ndim
    return values.reshape([-(-n // quantizer["block_size"]) if i == axis else n for i, n in enumerate(x.shape)])


def export(model, example, file, dynamic_shapes, input_names, output_names, options):
    args, kwargs = _given(example)
    proto = network(model, args, kwargs, "free" if dynamic_shapes is None else dynamic_shapes, input_names, output_names)
    lowering = _Lowering(proto)
    proto, plan = lowering.run()
    if not lowering.made:
        raise ValueError("no layer of the model rounds anything through qk.torch: qk.quantize(model, data, ...) quantizes a float model")
    if file is not None:
        options = {**options, "output": file}
    with warnings.catch_warnings(record=True) as remarks:
        result = _models.quantize(proto, plan=plan, progress=False, **options)
    for r in remarks:
        warnings.warn(r.message, r.category, stacklevel=3)  # at the caller's line
    return result


# ---- a float module and its samples, for the verbs of models


def _first(data):
    """Returns the first batch of samples as a verb takes them, and the samples, the first among them."""
    each = _data.batches(data)
    if each is None:
        return data, data
    try:
        first = next(each)
    except StopIteration:
        raise ValueError("data is empty: an example is needed, with which torch exports the module") from None
    if not hasattr(data, "__iter__") and hasattr(data, "__getitem__"):  # a Dataset, whose samples have no axis for a batch
        return [np.asarray(v)[None] for v in (first if isinstance(first, (tuple, list)) else [first])], data
    again = hasattr(data, "__iter__") and iter(data) is not data
    return first, data if again else itertools.chain([first], each)


def _arguments(module, batch):
    """Returns the arguments of a call of the module for a batch, without its labels."""
    def tensor(v):
        t = v.detach() if isinstance(v, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(_data.as_array(v)))
        return torch.cat([t, t]) if t.dim() > 0 and t.shape[0] == 1 else t  # torch takes a length of 1 for a constant

    if isinstance(batch, dict):
        return (), {k: tensor(v) for k, v in batch.items()}
    tensors = [tensor(v) for v in batch] if isinstance(batch, (tuple, list)) and not _data._is_plain_list(batch) else [tensor(batch)]
    parameters = inspect.signature(module.forward).parameters.values()
    taken = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in taken)
    if len(tensors) > max(needed, 1) and not tensors[-1].is_floating_point():
        tensors.pop()  # the labels
    return tuple(tensors), {}


def of_module(module, data):
    """Returns (the model that torch's exporter makes of a float module, the samples), the first of which are the example."""
    if data is None:
        raise TypeError("a torch module is exported with an example: give data, or calibration=")
    if _data.paths(data) is not None:
        raise TypeError("a torch module is exported with an example: give arrays or a loader as data, not files")
    batch, data = _first(data)
    args, kwargs = _arguments(module, batch)
    proto = network(module, args, kwargs, "free")
    if any(n.domain == _domain for n in proto.graph.node):
        raise ValueError("the module rounds through qk.torch already: qk.torch.export(model, example, FILE) writes what was trained")
    return proto, data
