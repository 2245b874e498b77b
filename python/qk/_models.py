# SPDX-License-Identifier: Apache-2.0
"""Models: load, and the command's verbs as functions. It is long because what a verb returns, its rows, pictures and page, stands beside the verb."""

import contextlib
import html
import json
import os
import shutil
import sys

import numpy as np

from . import _data, _files, _qk, _run
from ._arrays import Packed, _scales, _source, _spec
from ._formats import Format
from ._plan import Plan, _as_json
from ._qk import Error
from ._run import Interrupted, Remark  # noqa: F401  (users see them as qk.Interrupted and qk.Remark)


class Model:
    """An ONNX model: a file (with external data beside it), or bytes."""

    def __init__(self, source):
        self._known = None
        if isinstance(source, Model):
            source = source.path if source.path is not None else source.bytes
        if _data.is_path(source):
            self.path, self._bytes = os.path.abspath(os.fspath(source)), None
            if not os.path.exists(self.path):
                raise FileNotFoundError(f"there is no model '{os.fspath(source)}'")
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self.path, self._bytes = None, bytes(source)
        elif hasattr(source, "SerializeToString"):
            try:
                self.path, self._bytes = None, source.SerializeToString()
            except Exception as e:
                raise ValueError(f"the ModelProto cannot be serialized ({e}); above 2 GB give the path of its file") from e
        else:
            more = "; a torch module goes to the verbs with data: qk.quantize(module, data, ...)" if _is_module(source) else ""
            raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}{more}")
        self.inspect()  # raises qk.Error for what is no model

    @classmethod
    def _of(cls, made):
        """Returns the model of bytes that qk made."""
        model = cls.__new__(cls)
        model.path, model._bytes, model._known = None, made, None
        return model

    @property
    def _facts(self):
        if self._known is None:
            self._known = inspect(self)
        return self._known

    @property
    def bytes(self):
        """The serialized model, without external data."""
        if self._bytes is not None:
            return self._bytes
        return _files.read(self.path)

    @property
    def _word(self):
        """The word for the model in a call, and what stands for it (_run.run's memory)."""
        return (self.path, {}) if self.path is not None else ("MODEL", {"model": self._bytes})

    @property
    def _is_large(self):
        """Whether what is made of it may not fit into the 2 GB of one ONNX message."""
        return self._facts["initializer_bytes"] > 1 << 30

    @property
    def inputs(self):
        return [i["name"] for i in self._facts["inputs"]]

    @property
    def outputs(self):
        return [o["name"] for o in self._facts["outputs"]]

    @property
    def layers(self):
        return [layer["name"] for layer in self._facts["layers"]]

    @property
    def proto(self):
        """An onnx.ModelProto of its own, read anew each time (needs the package onnx)."""
        import onnx

        return onnx.load(self.path) if self.path is not None else onnx.load_from_string(self._bytes)

    @property
    def _files(self):
        """The files that a model at a path lies in, by their places in its folder: itself, then its external data."""
        folder = os.path.dirname(self.path)
        return {os.path.relpath(file, folder): file for file in _qk.files_of_model(self.path)}

    def save(self, path):
        """Writes the model; external data goes beside it under the names that it has."""
        path = os.fspath(path)
        if self.path is not None and not (os.path.exists(path) and os.path.samefile(path, self.path)):
            for name, file in list(self._files.items())[1:]:
                to = os.path.join(os.path.dirname(path), name)
                if not (os.path.exists(to) and os.path.samefile(to, file)):
                    os.makedirs(os.path.dirname(to) or ".", exist_ok=True)
                    shutil.copyfile(file, to)
        _files.write({path: self.bytes})

    def inspect(self, **options):
        return inspect(self, **options) if options else self._facts

    def __call__(self, data, **options):
        """Runs the model; returns its outputs by name."""
        return evaluate(self, data, outputs=True, **options).outputs

    def __reduce__(self):
        return (Model, (self.path if self.path is not None else self._bytes,))

    def __repr__(self):
        return f"<qk.Model {self.path or f'{len(self._bytes)} bytes'}: {len(self.layers)} layers>"

    def _repr_html_(self):
        rows = "".join(
            f"<tr><td>{html.escape(str(r['name']))}</td><td>{r['op_type']}</td><td>{html.escape(str(r['shape']))}</td></tr>"
            for r in self._facts["layers"]
        )
        return f"<b>{html.escape(repr(self))}</b><table><tr><th>layer</th><th>operator</th><th>weight</th></tr>{rows}</table>"


def load(source):
    """Returns a model from a path, bytes or an onnx.ModelProto."""
    return source if isinstance(source, Model) else Model(source)


def _is_module(source):
    """Is true for a torch.nn.Module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def _loaded(source, data, options):
    """Returns the model of a call and its samples: a module of torch is exported with the first of them."""
    if not _is_module(source):
        return load(source), data
    from . import _torch_export

    name = "data" if data is not None else "calibration"
    proto, samples = _torch_export.of_module(source, data if data is not None else options.get("calibration"))
    if name == "calibration":
        options["calibration"] = samples
    return Model(proto), samples if name == "data" else data


# ---- results


class Result:
    """What a verb found. to_dict() is what the command prints with --json."""

    def __init__(self, verb, answer, remarks, status=0):
        self.verb, self._answer, self.remarks, self.status = verb, answer, list(remarks), status
        self.plan = self.model = None

    def to_dict(self):
        return self._answer

    def __getstate__(self):
        """Leaves out the call, which is this process's own: a result that was pickled can be read and saved, not made anew."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_again", "_folder")}

    def __getitem__(self, key):
        return self._answer[key]

    def __contains__(self, key):
        return key in self._answer

    def keys(self):
        return self._answer.keys()

    @property
    def metric(self):
        """The metric of the result, where one was measured: that of a search; else top-1 where there are labels, else the ratio of signal to
        noise of the output, in decibels."""
        measured = self._answer.get("measured", self._answer)
        return next((measured[name] for name in ("metric", "top1", "sqnr") if name in measured), None)

    layers = property(lambda self: self._answer.get("layers"), doc="what is known of each layer")
    front = property(lambda self: self._answer.get("front", []), doc="mixes of which none is both cheaper and better than another")

    def report(self, path):
        """Writes the HTML page of the command's --report; the call is made once more for it."""
        if not hasattr(self, "_again"):
            raise ValueError(f"`qk {self.verb}` makes no report")
        self._again(report=path)

    def save(self, path, export=None):
        """Writes the quantized model; `export` is a style (docs/guide/export.md), if not the one that was asked for."""
        if self.model is None:
            raise ValueError(f"{self.verb} made no model" + (f": {self['verified']['runtime']} does not compute what qk does" if _departs(self._answer) else ""))
        if export is None or export == self._style:
            if self.model.path is not None and os.path.exists(self.model.path + ".data"):  # above 2 GB: written anew, with its data beside it
                self._again(output=path)
            else:
                self.model.save(path)
        elif hasattr(self, "_again"):
            self._again(output=path, export=export)
        else:
            raise ValueError(f"this result was pickled, and can be saved as it is (export={self._style!r}) alone; quantize with its plan for another style")

    def to_pandas(self):
        """Returns the rows of the result as a DataFrame (needs pandas)."""
        import pandas

        return pandas.DataFrame(self._rows())

    def _rows(self):
        rows = _rows_of.get(self.verb, lambda result: None)(self)
        if rows:
            return rows
        for key in ("sensitivity", "rows", "edges", "tensors", "layers", "front"):
            rows = self._answer.get(key)
            if isinstance(rows, list) and rows and isinstance(rows[0], dict):
                return rows
        return [self._summary()]

    def plot(self, axes=None):
        """Draws how much noise each quantized tensor has, the size of gradients, or the loss of each epoch (needs matplotlib); returns the
        axes, new ones if none are given."""
        for key, label in (("sqnr", "signal to noise, dB"), ("largest", "largest gradient"), ("loss", "loss")):
            rows = [r for r in self._rows() if isinstance(r.get(key), (int, float)) and (key == "loss") == ("epoch" in r)]
            if not rows or "tensor" not in rows[0] and "epoch" not in rows[0]:
                continue
            if key == "loss":
                axes = _axes(axes)
                axes.plot([r["epoch"] for r in rows], [r["loss"] for r in rows], "o-")
                axes.set_xlabel("epoch")
                axes.set_ylabel(label)
                return axes
            names = [" ".join([r["tensor"], *([r["quantizer"]["format"]] if "quantizer" in r else [])]) for r in rows]
            return _bars(axes, names, [r[key] for r in rows], label)
        raise ValueError(f"{self.verb} has nothing to draw")

    def _summary(self):
        return {k: v for k, v in self._answer.items() if not isinstance(v, (list, dict))}

    def __repr__(self):
        facts = ", ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}" for k, v in list(self._summary().items())[:6])
        return f"<qk {self.verb}: {facts}>"

    def _repr_html_(self):
        cell = lambda v: html.escape(f"{v:.6g}" if isinstance(v, float) else str(v))  # noqa: E731
        facts = "".join(f"<tr><th>{html.escape(k)}</th><td>{cell(v)}</td></tr>" for k, v in self._summary().items())
        rows = self._rows()
        table = ""
        if rows and isinstance(rows[0], dict) and len(rows[0]) > 1:
            heads = [k for k, v in rows[0].items() if not isinstance(v, (list, dict))]
            body = "".join("<tr>" + "".join(f"<td>{cell(r.get(h, ''))}</td>" for h in heads) + "</tr>" for r in rows[:60])
            table = "<table><tr>" + "".join(f"<th>{html.escape(h)}</th>" for h in heads) + f"</tr>{body}</table>"
        return f"<b>qk {self.verb}</b>{self._picture()}<table>{facts}</table>{table}"

    def _picture(self):
        return ""


def _axes(given, height=None):
    """Returns axes to draw on: the caller's, or those of a new figure."""
    if given is not None:
        return given
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=None if height is None else (8, height), layout="constrained")[1]


def _bars(axes, names, values, label):
    """Draws a horizontal bar for each name, the first on top, high enough that names can be read."""
    axes = _axes(axes, max(2.0, 0.6 + 0.22 * len(names)))
    axes.barh(range(len(names)), values)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return axes


def _calibrated_rows(result):
    return [{"tensor": name, "method": method, "best": method == entry.get("best"), **values}
            for name, entry in result._answer.get("tensors", {}).items() for method, values in entry.get("methods", {}).items()]


def _gradient_rows(result):
    return [{"tensor": name, "shape": list(g.shape), "largest": float(np.max(np.abs(g), initial=0)), "mean": float(np.mean(np.abs(g))) if g.size else 0.0}
            for name, g in (getattr(result, "gradients", None) or {}).items()]


def _recovered_rows(result):
    document = result.plan.to_dict() if result.plan is not None else {}
    found = [(n, "", "", q) for n, q in document.get("tensors", {}).items()]
    found += [(e["tensor"], e["consumer"], e["index"], e["quantizer"]) for e in document.get("edges", [])]
    return [{"tensor": n, "consumer": c, "index": i, "format": q["format"], "scales": len(q.get("scale") or [])} for n, c, i, q in found]


_rows_of = {
    "calibrate": _calibrated_rows,
    "gradient": _gradient_rows,
    "recover": _recovered_rows,
    "diff": lambda result: [{"against": side["against"], **t} for side in result._answer.get("sides", []) for t in side["tensors"]],
    "finetune": lambda result: [{"epoch": i, "loss": v} for i, v in enumerate(result._answer.get("losses", []))],
}


def _short(value):
    """Returns a number as a reader has it: whole numbers of bytes in full."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _scatter(points, chosen, x_name, y_name, width=480, height=260):
    """Returns an SVG of points (x, y), of which one is the chosen one."""
    points = [(x, y) for x, y in points if isinstance(x, (int, float)) and isinstance(y, (int, float))]
    if len(points) < 2:
        return ""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    sx = lambda v: 60 + (v - min(xs)) / ((max(xs) - min(xs)) or 1) * (width - 80)  # noqa: E731
    sy = lambda v: height - 40 - (v - min(ys)) / ((max(ys) - min(ys)) or 1) * (height - 60)  # noqa: E731
    dots = "".join(f'<circle cx="{sx(x):.1f}" cy="{sy(y):.1f}" r="3" fill="#2b6cb0"/>' for x, y in points)
    if chosen is not None and all(isinstance(v, (int, float)) for v in chosen):
        dots += f'<circle cx="{sx(chosen[0]):.1f}" cy="{sy(chosen[1]):.1f}" r="6" fill="none" stroke="#c53030" stroke-width="2"/>'
    texts = "".join(
        f'<text x="{x}" y="{y}" font-size="11" text-anchor="{a}">{html.escape(t)}</text>'
        for x, y, a, t in (
            (60, height - 22, "start", _short(min(xs))), (width - 20, height - 22, "end", _short(max(xs))),
            (width / 2, height - 6, "middle", x_name), (54, height - 40, "end", f"{min(ys):.4g}"), (54, 28, "end", f"{max(ys):.4g}"),
            (60, 14, "start", y_name))
    )
    axes = f'<path d="M60 20V{height - 36}H{width - 16}" fill="none" stroke="#718096"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{axes}{dots}<g fill="#2d3748">{texts}</g></svg>'


class SearchResult(Result):
    """The mix that a search chose: .metric, .cost, .choice (layer to formats), .front, .plan, .model."""

    cost = property(lambda self: self._answer["cost"])
    status_text = property(lambda self: self._answer["status"])
    target_met = property(lambda self: self._answer["target_met"])

    @property
    def choice(self):
        """Returns the formats of each layer that was searched, by its name."""
        return dict(self._answer["layers"])

    def _picture(self):
        points = [(t["cost"], t["metric"]) for t in self.front]
        return _scatter(points, (self._answer.get("cost"), self._answer.get("metric")), self._answer.get("cost_unit", "cost"),
                        self._answer.get("metric_name", "metric"))

    def plot(self, axes=None):
        """Draws the front (needs matplotlib); returns the axes, new ones if none are given."""
        axes = _axes(axes)
        axes.plot([t["cost"] for t in self.front], [t["metric"] for t in self.front], "o-")
        axes.plot([self._answer["cost"]], [self._answer["metric"]], "rx", markersize=12)
        axes.set_xlabel(self._answer["cost_unit"])
        axes.set_ylabel(self._answer["metric_name"])
        return axes


class SensitivityResult(Result):
    """Rows of layers, least harm first: .layers, .rows."""

    rows = property(lambda self: self._answer["sensitivity"])

    @property
    def layers(self):
        return [r for r in self.rows if r["part"] == "layer"]

    def plot(self, axes=None):
        """Draws the harm of each layer (needs matplotlib); returns the axes, new ones if none are given."""
        rows = self.layers
        return _bars(axes, [f"{r['layer']} {r['option']}" for r in rows], [r["harm"] for r in rows], f"harm ({self._answer['metric_name']})")


class Calibration(Result):
    """Ranges and histograms; given as calibration= to the other functions."""

    def save(self, path, export=None):
        _files.write({path: self.statistics})

    tensors = property(lambda self: self._answer["tensors"])


_results = {"search": SearchResult, "sensitivity": SensitivityResult, "calibrate": Calibration}

# ---- calls


def _expected(data):
    return getattr(data, "nbytes", 0) or (sum(getattr(v, "nbytes", 0) for v in data.values()) if isinstance(data, dict) else 0)


def _document(value, workspace, name, kind):
    """Writes a dictionary as JSON; passes paths and names on."""
    if isinstance(value, dict):
        with open(workspace / name, "w", encoding="utf-8") as file:
            json.dump(value, file, default=_as_json)
        return workspace / name
    if _data.is_path(value):
        return os.fspath(value)
    raise TypeError(f"{kind} is a path or a dictionary, not {type(value).__name__}")


def _written(verb, model, data, options, workspace, in_files):
    """Returns the options of a verb as its words have them, and the memory that words stand for: the model and arrays (`in_files`: written
    into the workspace instead, as what is small always is)."""
    given, (_, memory) = dict(options), model._word
    memory = dict(memory)
    known = _run.options_of(verb)

    def samples(name, value):
        """Puts samples into `given`; returns the labels that came with them, or None."""
        given[name], labels = _data.paths(value), None
        if given[name] is None and in_files:
            given[name], labels = _data.write(value, workspace, name, model.inputs)
        elif given[name] is None:
            memory[name], labels = _data.take(value, model.inputs)
            given[name] = name.upper()
        return labels

    def one_array(name, array):
        if in_files:
            given[name] = _data._save(workspace / f"{name}.npy", array)
        else:
            given[name], memory[name] = name.upper(), _data.ready(array)

    if data is not None:
        if "inputs" not in known:
            raise TypeError(f"{verb}() takes no data")
        labels = samples("inputs", data)
        if labels is not None and "labels" in known and given.get("labels") is None and verb not in ("calibrate",):
            given["labels"] = labels
    calibration = given.get("calibration")
    if isinstance(calibration, Calibration):
        calibration.save(workspace / "calibration.json")
        given["calibration"] = workspace / "calibration.json"
    elif isinstance(calibration, (bytes, bytearray)):  # a result's .statistics
        with open(workspace / "calibration.json", "wb") as file:
            file.write(calibration)
        given["calibration"] = workspace / "calibration.json"
    elif calibration is not None:
        samples("calibration", calibration)
    for name in ("labels", "vector"):
        value = given.get(name)
        if value is not None and not _data.is_path(value):
            array = _data.as_array(value, name)
            if name == "labels" and array.dtype.kind not in "iufb":
                raise TypeError(f"labels hold {array.dtype}; they are whole numbers")
            one_array(name, array)
    plan = given.get("plan")
    if isinstance(plan, dict):
        plan = Plan(plan)
    if isinstance(plan, Plan):
        workspace.places["asked-plan.json"] = plan.save(workspace / "asked-plan.json")
        given["plan"] = workspace / "asked-plan.json"
    elif plan is not None:
        given["plan"] = _document(plan, workspace, "asked-plan.json", "plan")
    for name in ("target", "latency_table"):
        if given.get(name) is not None:
            given[name] = _document(given[name], workspace, f"{name}.json", name)
    if isinstance(given.get("compare"), Model) or hasattr(given.get("compare"), "SerializeToString"):
        other = load(given["compare"])
        given["compare"] = other.path if other.path is not None else workspace / "compare.onnx"
        if other.path is None:
            other.save(given["compare"])
    if isinstance(given.get("compare"), dict):
        arrays = {str(key): _data.as_array(value, f"compare[{key!r}]") for key, value in given.pop("compare").items()}
        if not arrays:
            raise ValueError("compare is empty: give an array for each output that is compared, by its name")
        memory["expected"] = {key: _data.ready(array) for key, array in arrays.items()}
    return given, memory


def _call(verb, model, data, options, *, arguments=(), metric=None, eval_func=None, eval_func_path=False, progress=None,
          makes=(), outputs=False, executor=None):
    """Runs a verb on a model. `makes`: the options that name files for what it makes; without a name it comes back from memory."""
    if options.get("inputs") is not None:  # the command's name for data
        if data is not None:
            raise TypeError(f"{verb}() has data twice: inputs= is the same under the command's name")
        data = options.pop("inputs")
    model, data = _loaded(model, data, options)
    if callable(options.get("metric")):
        metric = options.pop("metric")
    if metric is not None and eval_func is not None:
        raise TypeError("give metric= or eval_func=, not both: a search has one measure")
    if (metric is not None or eval_func is not None) and options.get("metric") is not None:
        raise TypeError("metric is the name of a metric, or a function; with eval_func leave it out")
    workspace = _data.Workspace(_expected(data))
    inner = {}
    if verb == "search" and options.get("cache") is None:  # for what is asked of the result later
        inner["cache"] = workspace / "trials"
    if "output" in makes and options.get("output") is None and model._is_large and verb in _of_models:
        inner["output"] = workspace / "output.onnx"
    kept = {} if makes or outputs else None
    json_too = {"json": True} if "json" in _run.options_of(verb) else {}
    given, memory = _written(verb, model, data, {**options, **inner, **json_too}, workspace, executor is not None)
    words = [model._word[0], *arguments, *_run.words_of(verb, given)]
    command = _as_command(verb, model, data, options, arguments, metric, eval_func)
    elsewhere = None
    if executor is not None:
        if eval_func is not None:
            raise TypeError("eval_func and executor do not go together: workers measure outputs; give metric=, which travels to them")
        from ._executor import Trials

        known, left = _run.options_of("sensitivity"), ("method", "direction", "report", "json", *inner)
        asked = _run.words_of("sensitivity", {k: v for k, v in given.items() if k in known and k not in left})
        if verb == "search" and metric is None and options.get("metric") is None:  # a target may name the metric
            named = [k.removeprefix("target_").removesuffix("_drop") for k in options if k.startswith("target_") and options[k] is not None]
            named = [n for n in named if n not in ("metric", "drop", "relative")]
            asked += [f"--metric={named[0]}"] if named else []
        elsewhere = Trials(executor, model, asked, workspace, metric)
    with _named_by_caller(workspace), _interrupted_as(verb):
        status, answer, remarks, interrupted = _run.run(verb, words, metric=metric, eval_func=eval_func, eval_func_path=eval_func_path,
                                                        progress=progress, command=command, stack=5, elsewhere=elsewhere,
                                                        memory=memory, kept=kept, known=workspace.known)
    for note in answer.get("notes", []) if isinstance(answer, dict) else []:
        if isinstance(note, dict) and "origin" in note:
            note["origin"] = workspace.known(note["origin"])
    result = _results.get(verb, Result)(verb, answer, remarks, status)
    result._folder, result._style = workspace, options.get("export", "portable")
    for name in makes if not _departs(answer) else ():  # nothing was written then
        if (file := options.get(name) or inner.get(name)) is not None:
            _take(result, name, file)
    _give(result, kept or {})
    if result.plan is not None:
        result.plan._weighted = {row["name"] for row in model._facts["layers"] if row["weight"]}
    if isinstance(answer, dict) and "output" in answer and "output" in inner:
        answer.pop("output")

    def again(**more):
        """Makes the call once more, with other outputs; a search finds its trials in the cache."""
        kept = {k: v for k, v in given.items() if k not in inner or k == "cache"}
        own = _run.words_of(verb, {**kept, **more, "overwrite": True})
        _run.run(verb, [model._word[0], *arguments, *own], metric=metric, eval_func=eval_func, eval_func_path=eval_func_path,
                 progress=progress, command=command, warn=False, memory=memory)

    if "report" in _run.options_of(verb) or makes:
        result._again = again
    if interrupted:
        raise Interrupted(result)
    return result


@contextlib.contextmanager
def _interrupted_as(verb):
    """Makes Ctrl-C during a search qk.Interrupted from its first moment on, while it still calibrates."""
    try:
        yield
    except KeyboardInterrupt:
        if verb == "search":
            raise Interrupted(None) from None
        raise


@contextlib.contextmanager
def _named_by_caller(workspace):
    """Takes the workspace's folder, which is gone when a user reads it, and lines of its files out of errors."""
    try:
        yield
    except Error as e:
        text = workspace.known(str(e))
        if text == str(e):
            raise
        raise Error(text) from None


def _is_text(verb, name, value):
    """Is true for a value that a command line can show: no array, nor a list of numbers where an array belongs."""
    if isinstance(value, (list, tuple)):
        return _run.options_of(verb)[name]["kind"] == "list" and all(isinstance(v, (str, int, float, os.PathLike)) for v in value)
    return isinstance(value, (str, int, float, os.PathLike))


def _as_command(verb, model, data, options, arguments, metric, eval_func):
    """Returns what a report shows as the command that made it: the command's line where files hold everything, and else the call, with
    names in place of what lay in memory."""
    given = {k: v for k, v in options.items() if v is not None and v is not False}
    if data is not None:
        given["inputs"] = data
    in_files = data is None or _data.is_path(data)
    known = _run.options_of(verb)
    if model.path is not None and in_files and metric is eval_func is None and all(k in known and _is_text(verb, k, v) for k, v in given.items()):
        return _run.shown([verb, model.path, *arguments, *_run.words_of(verb, given)])
    given.pop("inputs", None)
    said = [repr(model.path) if model.path is not None else "model", *map(repr, arguments)]
    if data is not None:
        said.append(repr(os.fspath(data)) if in_files else "data")
    said += [f"{name}={_run._title(f) or name}" for name, f in (("metric", metric), ("eval_func", eval_func)) if f is not None]
    said += [f"{k}={v!r}" if k not in known or _is_text(verb, k, v) else f"{k}={k}" for k, v in given.items()]
    return f"qk.{verb}({', '.join(said)})"


_of_models = ("quantize", "search", "finetune")


def _give(result, kept):
    """Gives a result what its verb made in memory."""
    if "statistics" in kept:
        result.statistics = kept["statistics"]
    if "model" in kept:
        result.model = Model._of(kept["model"])
    if "plan" in kept:
        _set_plan(result, Plan._of(json.loads(kept["plan"]), kept.get("lists", {})))
    if "arrays" in kept:
        setattr(result, "gradients" if result.verb == "gradient" else "outputs", kept["arrays"])


def _set_plan(result, plan):
    result.plan = plan
    if isinstance(result._answer, dict) and isinstance(result._answer.get("edges"), list):  # recover answers with their number
        for e in result._answer["edges"]:
            if e["consumer"]:
                plan._uses[e["consumer"], e["index"]] = e["tensor"]
            if e.get("role") in ("weight", "bias"):
                plan._parameters.add(e["tensor"])


def _departs(answer):
    """Is true where verify= found that a runtime does not compute what qk does."""
    return isinstance(answer, dict) and (answer.get("verified") or {}).get("departs", False)


def _take(result, name, file):
    """Reads an output back from the file that the caller named."""
    if name == "output" and result.verb == "calibrate":
        result.statistics = _files.read(file)
    elif name == "output" and result.verb == "gradient":
        result.gradients = _files.read_arrays(file)
    elif name in ("output", "save_float"):
        if os.path.exists(file):
            beside = os.path.exists(os.fspath(file) + ".data")
            result.model = Model(file) if beside else Model(_files.read(file))
    elif name == "save_plan" and os.path.exists(file):
        _set_plan(result, Plan(file))


def _verb(name, makes=(), needs_data=False, measured=False):
    """Makes a function of a verb."""

    def function(model, data=None, *, progress=None, **options):
        more = {}
        if measured:
            for key in ("eval_func", "eval_func_path"):
                if key in options:
                    more[key] = options.pop(key)
            more["executor"] = options.pop("executor", None)
        if needs_data and data is None and options.get("inputs") is None:
            raise TypeError(f"{name}() needs data: arrays, a dictionary by input name, an iterable, a DataLoader or a reader")
        if name == "evaluate":
            more["outputs"] = options.pop("outputs", False)
        return _call(name, model, data, options, progress=progress, makes=makes, **more)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "qk"
    extra = [("progress", None)]
    if measured:
        extra += [("eval_func", None), ("eval_func_path", False), ("executor", None)]
    if name == "evaluate":
        extra.append(("outputs", False))
    empty = _run.inspect.Parameter.empty
    function.__signature__ = _run.signature(name, [("model", empty), ("data", empty if needs_data else None)], extra)
    function.__doc__ = _run.documentation(name, _texts[name])
    return function


_data_text = (
    "data is an array, a dictionary of arrays by input name, an iterable of either, a torch DataLoader, a reader with get_next(), or a path.\n"
    "progress: True or False, or a function of (what, done, all); by default a terminal or notebook shows it."
)
_texts = {
    "quantize": f"Returns a result with .model, .plan and .save(path, export=...).\n{_data_text}",
    "evaluate": f"With outputs=True the result has .outputs, arrays by name.\n{_data_text}",
    "calibrate": f"Returns a Calibration, for calibration= of the other functions.\n{_data_text}",
    "sensitivity": f"Returns a result with .rows and .layers.\n{_data_text}\nmetric may be a function, and eval_func a function of a model: as in search.",
    "search": (
        f"Returns a result with .metric, .choice, .front, .plan, .model.\n{_data_text}\n"
        "metric may be a function of (outputs, reference, labels), lists of arrays, or of the outputs alone. eval_func is a function of a\n"
        "model's bytes, with eval_func_path=True of its path. Both return a number; higher_is_better=True says which way. target_metric,\n"
        "target_drop and target_relative are goals for either. Ctrl-C raises qk.Interrupted, a KeyboardInterrupt with the best so far."
    ),
    "gradient": f"The result has .gradients, arrays by name, and .loss in its dictionary.\n{_data_text}",
    "finetune": f"The result has .model, the float model with what was learned, and .plan.\n{_data_text}",
}

quantize = _verb("quantize", ("output", "save_plan"))
calibrate = _verb("calibrate", ("output",), needs_data=True)
evaluate = _verb("evaluate", needs_data=True)
sensitivity = _verb("sensitivity", needs_data=True, measured=True)
search = _verb("search", ("output", "save_plan"), needs_data=True, measured=True)
gradient = _verb("gradient", ("output",), needs_data=True)
finetune = _verb("finetune", ("output", "save_plan"), needs_data=True)


def inspect(model, **options):
    """Returns what `qk inspect --json` says of a model: inputs, outputs, operators, layers. tensors=True adds every name."""
    model = load(model) if not isinstance(model, Model) else model
    word, memory = model._word
    return _run.run("inspect", [word, *_run.words_of("inspect", {**options, "json": True})], progress=False, memory=memory)[1]


def recover(model):
    """Returns the plan and the float model of a model that is quantized already: a result with .plan and .model."""
    model = load(model)
    workspace, kept = _data.Workspace(0), {}
    word, memory = model._word
    words = [word, *([f"--save-float={workspace / 'float.onnx'}"] if model._is_large else []), "--json"]
    status, answer, remarks, _ = _run.run("inspect", words, progress=False, memory=memory, kept=kept)
    result = Result("recover", answer if isinstance(answer, dict) else {"text": answer}, remarks, status)
    result._folder, result._style = workspace, None
    if model._is_large:
        _take(result, "save_float", workspace / "float.onnx")
    _give(result, kept)
    return result


def explain(model, tensor, data=None, **options):
    """Returns why a tensor has its precision: request, range, scale, error. data is that of quantize, and options are, too."""
    if not isinstance(tensor, str):
        raise TypeError(f"tensor is {tensor!r}, a {type(tensor).__name__}; give the tensor's name")
    return _call("explain", model, data, options, arguments=(tensor,), progress=False)


def _other_side(against):
    """Returns what --against takes for a runtime's name, a model, a folder or arrays by name; and the folder that holds what lay in memory."""
    if against is None or _data.is_path(against):
        return against, None
    if isinstance(against, dict):
        folder = _data.Workspace(sum(np.asarray(v).nbytes for v in against.values()))
        index = []
        for i, (name, value) in enumerate(against.items()):
            _data._save(folder / f"{i}.npy", _data.as_array(value, f"against[{name!r}]"))
            index.append({"name": name, "file": f"{i}.npy"})
        with open(folder / "index.json", "w", encoding="utf-8") as file:
            json.dump({"tensors": index}, file)
        return folder.path, folder
    other = load(against)
    if other.path is not None:
        return other.path, None
    folder = _data.Workspace(len(other.bytes))
    other.save(folder / "model.onnx")
    return folder / "model.onnx", folder


def diff(model, against=None, data=None, *, progress=None, **options):
    against, folder = _other_side(against)
    try:
        return _call("diff", model, data, {**options, "against": against}, progress=progress)
    finally:
        if folder is not None:
            folder.close()


diff.__signature__ = _run.signature("diff", [("model", _run.inspect.Parameter.empty), ("against", None), ("data", None)], [("progress", None)])
diff.__doc__ = _run.documentation("diff", (
    "against is \"onnxruntime\" or \"openvino\", another model, a folder of tensors, or a dictionary of arrays by the tensors' names.\n"
    f"The result has [\"agree\"] and [\"sides\"], each with the name of the first tensor that departs; .status is 1 where one does.\n{_data_text}"))


# ---- arrays through the command's other verbs


def _format_words(verb, format, options, workspace, shape=()):
    given = dict(options)
    spec = _spec(format, given.get("semantics", "ocp"), given.get("rounding"))
    given["format"] = spec.text
    scale, zero, axis, block = (given.pop(k, None) for k in ("scale", "zero_point", "scale_axis", "scale_block"))
    if axis is None:
        s, z, _, _ = _scales(np.empty(shape, np.float32), scale, zero, axis, block)
        given.update(scale=None if s is None else float(s[0]), zero_point=None if z is None else int(z[0]))
    else:
        s, z, axis, block = _scales(np.empty(shape, np.float32), scale, zero, axis, block)
        given.update(scales=_data._save(workspace / "scales.npy", s), scale_axis=axis, scale_block=block or None)
        if z is not None:
            given["zero_points"] = _data._save(workspace / "zero_points.npy", z)
    return _run.words_of(verb, given)


def compare(x, device, format, **options):
    """Compares what a device made of x with what the format says. Returns counts, likely causes and examples (`qk compare --json`)."""
    with _data.Workspace(_expected(x)) as workspace, _named_by_caller(workspace):
        words = [_data._save(workspace / f"{name}.npy", _data.as_array(value, name)) for name, value in (("x", x), ("device", device))]
        words += _format_words("compare", format, options, workspace, np.shape(x))
        return _compared(words)


class Comparison(dict):
    """What a comparison found: the object of `qk compare --json`. `text` is what the command prints for people, and print() shows it."""

    text = ""

    def __str__(self):
        return self.text.rstrip("\n")


def _compared(words, multiply=None, progress=False):
    kept = {}
    found = Comparison(_run.run("compare", [*words, "--json"], multiply=multiply, progress=progress, kept=kept)[1])
    found.text = kept.get("text", "")
    return found


def find_accumulator(device, a_format, b_format, c_format="fp32", accumulator=None, progress=None, **options):
    """Asks a function that multiplies and adds until one accumulator is left: its order, alignment, roundings and width. `device` is called
    with codes a [m,k], b [k,n] and c [m,n] as unsigned integers, and with scale_a= and scale_b= of blocks, and returns d [m,n]: codes of 8,
    16 or 32 bits, or float32 or float16. c_format="none": it adds no c, and gets none. `accumulator`: what is expected. Options: k (64), questions, seed."""
    if not callable(device):
        raise TypeError(f"device is a function of a, b and c, not {type(device).__name__}")
    asked = {"a_format": a_format, "b_format": b_format, "c_format": c_format, "accumulator": accumulator, **options}

    def ask(arrays):
        operands = {n: np.array(v) for n, v in arrays.items()}
        first = [operands.pop(n) for n in ("a", "b")]
        c = operands.pop("c")
        d = np.asarray(device(*first, *([] if c_format == "none" else [c]), **operands))
        if d.dtype.kind == "f" and d.dtype.itemsize in (2, 4):
            d = d.view(f"u{d.dtype.itemsize}")
        if d.dtype.kind not in "iu" or d.dtype.itemsize > 4:
            raise TypeError(f"device returned {d.dtype}; it returns codes of 8, 16 or 32 bits, or float32 or float16")
        return np.ascontiguousarray(d)

    words = ["--dot", "--command=device", *_run.words_of("compare", asked)]
    return _compared(words, multiply=ask, progress=progress)


def vectors(format=None, out=None, **options):
    """Returns test vectors for a converter: {"input", "expected", "codes", "manifest"}; written into the folder `out` if one is given.
    device="..." makes products of matrices for a device instead: {"a", "b", "c", "d", "manifest"}, the codes of its cases."""
    with _data.Workspace(0) as workspace, _named_by_caller(workspace):
        folder = os.fspath(out) if out is not None else workspace / "vectors"
        words = [f"--out={folder}"]
        if format is not None:
            words += _format_words("vectors", format, options, workspace)
        else:
            words += _run.words_of("vectors", options)
        manifest = _run.run("vectors", [*words, "--json"], progress=False)[1]
        made = {"manifest": manifest}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".npy"):
                made[name[:-4]] = np.load(os.path.join(folder, name))
        if os.path.exists(os.path.join(folder, "case.npz")):
            with np.load(os.path.join(folder, "case.npz")) as arrays:
                made.update({name: arrays[name] for name in arrays if name in "abcd"})
        return made


def _float32_of(value, name):
    """Returns an operand as float32, which has to hold its values."""
    array = _data.as_array(value, name)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.asarray(array, np.float32)
    if array.dtype != narrow.dtype and not np.array_equal(narrow.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"):
        raise TypeError(f"{name} holds {array.dtype} with values that float32 has not; give x.astype('float32'), and know that it rounds twice")
    return narrow


def dot(a, b, c=None, device=None, accumulator=None, a_format=None, b_format=None):
    """Returns a @ b (+ c) as a device multiplies and adds: a [m,k], b [k,n]. qk.devices() lists devices; accumulator is its text form."""
    if (device is None) == (accumulator is None):
        raise TypeError("say what multiplies: device= (qk.devices() lists them), or accumulator=")
    arrays = {n: _float32_of(v, n) for v, n in ((a, "a"), (b, "b"), (c, "c")) if v is not None}
    with _data.Workspace(sum(v.nbytes for v in arrays.values())) as workspace, _named_by_caller(workspace):
        words = [_data._save(workspace / f"{n}.npy", v) for n, v in arrays.items()] + [workspace / "out.npy"]
        words += _run.words_of("dot", {"device": device, "accumulator": accumulator, "a_format": a_format, "b_format": b_format})
        _run.run("dot", words, progress=False)
        return np.load(workspace / "out.npy")


def devices(part=None):
    """Returns what multiplies and adds: matrix units as dictionaries with name, a_format, b_format, m, n, k, accumulator, source.
    `part`: only those whose name contains it."""
    if part is not None and not (isinstance(part, str) and not part.startswith("-")):
        raise TypeError(f"part is {part!r}; give a piece of a device's name")
    words = ([part] if part is not None else []) + ["--devices", "--json"]
    return _run.run("formats", words, progress=False)[1]["devices"]
