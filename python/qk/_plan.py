# SPDX-License-Identifier: Apache-2.0
"""Plans: what every tensor gets, as an object that can be changed.

A Plan is made of requests (what you want), or comes from a result and then holds what every edge got, with scales. Changing an entry of
such a plan turns it into requests for the same formats; the next call that takes it chooses the scales anew.
"""

import copy
import json
import operator
import os

import numpy as np

from . import _files
from ._arrays import Semantics

_roles = ("activation", "weight", "bias", "input", "output")


def _format_name(value):
    if value is None or isinstance(value, (str, dict)):
        return value
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    raise TypeError(f"a format is its name, as 'int8', or a dictionary as in a requests file, not {type(value).__name__}")


def _given(**formats):
    """Returns the formats that were said, by their roles."""
    return {role: _format_name(value) for role, value in formats.items() if value is not None}


def _as_json(value):
    """Returns what JSON has for a value of the caller's in a plan."""
    if isinstance(value, Semantics):
        return {"base": value.name, **value.choices()} if value.choices() else value.name
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(getattr(value, "name", None), str):  # a qk.Format
        return value.name
    raise TypeError(f"a plan holds {value!r}, a {type(value).__name__}; give text, numbers, lists and dictionaries")


def _one(activation, what):
    """Returns the one format of AIMET's list, which has an entry for each input of a layer."""
    if not isinstance(activation, (list, tuple)):
        return activation
    if len({str(_format_name(v)) for v in activation}) != 1:
        raise ValueError(f"{what}: activation={list(activation)!r}: a layer's inputs have one format here; say tensors by name for others")
    return activation[0]


class Layer:
    """One layer's entry of a plan: activation, weight, bias, input, output are formats; exclude leaves it in float32."""

    __slots__ = ("_plan", "name")

    def __init__(self, plan, name):
        object.__setattr__(self, "_plan", plan)
        object.__setattr__(self, "name", name)

    def __getattr__(self, role):
        if role not in (*_roles, "exclude", "accumulator"):
            raise AttributeError(f"a layer of a plan has {', '.join(_roles)}, exclude and accumulator, not {role!r}")
        return self._plan._get(self.name, role)

    def __setattr__(self, role, value):
        if role not in (*_roles, "exclude", "accumulator"):
            raise AttributeError(f"a layer of a plan has {', '.join(_roles)}, exclude and accumulator, not {role!r}")
        self._plan._set(self.name, role, value)

    def __repr__(self):
        given = [f"{r}={self._plan._get(self.name, r)!r}" for r in _roles if self._plan._get(self.name, r) is not None]
        return f"<layer {self.name}: {', '.join(given) or 'as the default'}>"


class Plan:
    """Requests, or a saved plan. plan["conv1"].weight = "int16" changes one layer; activation= and weight= are the default.

    It is given as plan= to quantize, evaluate, sensitivity, search, finetune and explain.
    """

    def __init__(self, source=None, *, activation=None, weight=None, bias=None):
        self._arrays, self._uses, self._parameters = {}, {}, set()  # uses: (layer, input) to tensor; parameters: weights and biases
        self._weighted = None  # the layers that have weights, where the model is known
        if source is None:
            self.document = {"qk": "requests", "version": 1, "requests": []}
        elif isinstance(source, Plan):
            self.document, self._arrays, self._uses = copy.deepcopy(source.document), dict(source._arrays), dict(source._uses)
            self._parameters, self._weighted = set(source._parameters), source._weighted
        elif isinstance(source, dict):
            self.document = copy.deepcopy(source)
        elif not isinstance(source, (str, os.PathLike)):
            raise TypeError(f"a plan is made of a file, a dictionary or another plan, not {type(source).__name__}")
        else:
            self.document = _files.read_json(source)
            beside = os.fspath(source) + ".npz"
            if os.path.exists(beside):
                self._arrays = _files.read_arrays(beside)
        for role, value in (("activation", activation), ("weight", weight), ("bias", bias)):
            if value is not None:
                self.set_default(**{role: value})

    @classmethod
    def _of(cls, document, arrays):
        """Returns the plan of a document and of the arrays that it refers to."""
        plan = cls(document)
        plan._arrays = arrays
        return plan

    @property
    def is_saved(self):
        """Whether this holds what every edge got, with scales (a result's plan), and not requests."""
        return self.document.get("qk") == "plan"

    def set_default(self, activation=None, weight=None, bias=None):
        self._to_requests()
        self.document.setdefault("default", {}).update(_given(activation=activation, weight=weight, bias=bias))
        return self

    def __getitem__(self, layer):
        if not isinstance(layer, str):
            try:
                layer = operator.index(layer)
            except TypeError:
                raise TypeError(f"a layer is its name, a pattern or its number, not {type(layer).__name__}") from None
        return Layer(self, layer)

    def __delitem__(self, layer):
        self._to_requests()
        requests = self.document.get("requests", [])
        kept = [r for r in requests if r.get("layer") != layer]
        if len(kept) == len(requests):
            raise KeyError(layer)
        self.document["requests"] = kept

    def layers(self):
        """Returns the names of the layers that the plan speaks of, in its order."""
        if not self.is_saved:
            return [r["layer"] for r in self.document.get("requests", []) if "layer" in r]
        edges = [e["consumer"] for e in self.document.get("edges", []) if e["consumer"]]
        return list(dict.fromkeys(edges + [consumer for consumer, _ in self._uses]))

    def _get(self, layer, role):
        if self.is_saved:
            index = {"activation": 0, "input": 0, "weight": 1, "bias": 2}.get(role)
            for e in self.document.get("edges", []):
                if e["consumer"] == layer and e["index"] == index:
                    return e["quantizer"]["format"]
            q = self.document.get("tensors", {}).get(self._uses.get((layer, index)))
            return q["format"] if q else None
        for r in reversed(self.document.get("requests", [])):
            if r.get("layer") == layer and role in r:
                return r[role]
        return None

    def _set(self, layer, role, value):
        self._to_requests()
        requests = self.document.setdefault("requests", [])
        if requests and requests[-1].get("layer") == layer:
            entry = requests[-1]
        else:
            entry = {"layer": layer}
            requests.append(entry)
        gone = _roles if role == "exclude" else ("activation", "input", "output") if role == "activation" else (role,)
        for r in [r for r in requests if r.get("layer") == layer]:  # what was said before of the same is said no more
            for name in gone:
                r.pop(name, None)
            if r is not entry and set(r) == {"layer"}:
                requests.remove(r)
        entry[role] = value if role in ("exclude", "accumulator") else _format_name(value)

    def _to_requests(self):
        """Turns a saved plan, or AIMET's encodings, into requests for its formats."""
        if "activation_encodings" in self.document or "param_encodings" in self.document:
            self.document = {"qk": "requests", "version": 1, "requests": _of_encodings(self.document), "boundary": "dual"}
        if not self.is_saved:
            return
        requests = []
        for e in self.document.get("edges", []):
            if not e["consumer"]:
                continue
            role = {0: "input", 1: "weight", 2: "bias"}.get(e["index"])
            if self._weighted is not None and e["consumer"] not in self._weighted:
                role = "input"  # the second operand of an Add, too
            if role is None:
                continue
            what = _request_of(e["quantizer"], role == "weight")
            found = next((r for r in requests if r["layer"] == e["consumer"]), None)
            if found is None:
                found = {"layer": e["consumer"]}
                requests.append(found)
            found[role] = what
        weights = {t for (_, index), t in self._uses.items() if index == 1}
        tensors = [{"tensor": t, "format": _request_of(q, t in weights)} for t, q in self.document.get("tensors", {}).items()]
        self.document = {"qk": "requests", "version": 1, "requests": tensors + requests}
        if requests:
            self.document["boundary"] = "dual"
        self._arrays = {}

    # ---- AIMET's words

    def set_precision(self, layer, activation=None, weight=None, *, param=None, output=None):
        """Asks for formats at a layer (a name or a pattern), or a list of layers. `param` is AIMET's word: {"weight": F, "bias": F}."""
        bias = None
        if param is not None:
            if not isinstance(param, dict) or set(param) - {"weight", "bias"}:
                raise ValueError(f"set_precision({layer!r}): param is {param!r}; it is a dictionary of \"weight\" and \"bias\"")
            weight, bias = param.get("weight", weight), param.get("bias")
        activation = _one(activation, f"set_precision({layer!r})")
        names = [layer] if isinstance(layer, (str, int)) else list(layer)
        self._to_requests()
        for name in names:
            entry = {"layer": name, **_given(activation=activation, weight=weight, bias=bias, output=output)}
            if len(entry) == 1:
                raise ValueError(f"set_precision({name!r}): say activation=, weight=, param= or output=")
            self.document.setdefault("requests", []).append(entry)
        return self

    def set_op_type_precision(self, op_type, activation=None, weight=None):
        self._to_requests()
        self.document.setdefault("requests", []).append({"op_type": op_type, **_given(activation=activation, weight=weight)})
        return self

    def set_model_input_precision(self, activation):
        """Asks for a format for each model input; None leaves one out. One format is that of the first input."""
        self._to_requests()
        given = activation if isinstance(activation, (list, tuple)) else [activation]
        self.document["model_inputs"] = [_format_name(v) for v in given]
        return self

    def set_model_output_precision(self, activation):
        self._to_requests()
        given = activation if isinstance(activation, (list, tuple)) else [activation]
        self.document["model_outputs"] = [_format_name(v) for v in given]
        return self

    def apply(self, model, data=None, log_file=None, strict=True, **options):
        """Quantizes a model as the plan says: qk.quantize(model, data, plan=self, ...). strict: what cannot be met is an error. log_file is
        a path, or an open file to write to."""
        from ._models import quantize

        if not hasattr(log_file, "write"):
            return quantize(model, data, plan=self, log=log_file, strict=strict, **options)
        from ._data import Workspace

        with Workspace(0) as workspace:
            result = quantize(model, data, plan=self, log=workspace / "log.txt", strict=strict, **options)
            with open(workspace / "log.txt", encoding="utf-8") as file:
                text = file.read()
        log_file.write(text if hasattr(log_file, "encoding") or not hasattr(log_file, "mode") or "b" not in log_file.mode else text.encode())
        return result

    # ---- files

    def to_dict(self):
        return copy.deepcopy(self.document)

    def save(self, file):
        """Writes the file that --plan takes, and FILE.npz beside it where lists are long. Returns what stands on each line."""
        file = os.fspath(file)
        document, contents = self.document, {}
        if self._arrays:
            contents[file + ".npz"] = _files.npz(self._arrays)
            document = _with_file(document, os.path.basename(file) + ".npz")
        text = json.dumps(document, indent=1, default=_as_json) + "\n"
        _files.write(contents | {file: text})
        return _places(text, document)

    def __eq__(self, other):
        return isinstance(other, Plan) and self.document == other.document

    def __repr__(self):
        kind = f"{len(self.document.get('tensors', {})) + len(self.document.get('edges', []))} quantizers" if self.is_saved else f"{len(self.document.get('requests', []))} requests"
        return f"<qk.Plan of {kind}>"


def _places(text, document):
    """Returns what stands on each line of a plan's text, from 1, as its author knows it: "the plan's request for layer 'conv1'"."""
    places, key, entry = {}, None, -1
    for number, line in enumerate(text.splitlines(), 1):
        depth = len(line) - len(line.lstrip())
        if depth == 1 and line.startswith(' "'):
            key, entry = line.split('"')[1], -1
        elif depth == 2 and line.rstrip() == "  {":
            entry += 1
        places[number] = f"the plan's {key!r}" if key is not None else "the plan"
        if key == "requests" and 0 <= entry < len(document["requests"]):
            scope = next(iter(document["requests"][entry].items()), None)
            places[number] = "the plan's request" + (f" for {scope[0].replace('_', ' ')} {scope[1]!r}" if scope is not None else "")
    return places


def _of_encodings(document):
    """Returns requests for the formats of AIMET's encodings 1.0.0, without their scales."""
    requests = []
    for kind in ("activation_encodings", "param_encodings"):
        for e in document.get(kind) or []:
            sign = "fp" if e["dtype"] == "FLOAT" else "int" if e.get("is_sym") else "uint"
            what = {"format": f"{sign}{e['bw']}"}
            if e.get("enc_type") == "PER_CHANNEL":
                what["per_channel"] = True
            elif e.get("enc_type") == "PER_BLOCK":
                what["block_size"] = e["block_size"]
            requests.append({"tensor": e["name"], "format": what if len(what) > 1 else what["format"]})
    return requests


def _request_of(q, is_weight):
    """Returns the request for what a quantizer is, without its scales."""
    what = {"format": q["format"]}
    if "semantics" in q:
        what["semantics"] = q["semantics"]
    if is_weight and q.get("block_size"):
        what["block_size"] = q["block_size"]
    elif is_weight and isinstance(q.get("scale"), list) and len(q["scale"]) > 1:
        what["per_channel"] = True
    if q.get("dynamic"):
        what["dynamic"] = True
    return what if len(what) > 1 else q["format"]


def _with_file(value, name):
    """Returns a document whose references to arrays name the file beside it."""
    if isinstance(value, dict):
        if set(value) == {"file", "array"}:
            return {"file": name, "array": value["array"]}
        return {k: _with_file(v, name) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_file(v, name) for v in value] if value and isinstance(value[0], (dict, list)) else value
    return value
