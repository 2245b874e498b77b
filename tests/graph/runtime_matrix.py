# SPDX-License-Identifier: Apache-2.0
"""Runs a matrix of small quantized networks in onnxruntime and OpenVINO, and finds where a runtime computes other values than qk.

    runtime_matrix.py QK [--full [--part PART/PARTS] | --seed N] [--show]

A setting says how a file is written: style or target, formats of activations and weights, zero points or none, scales for each channel or
one. A network says what is quantized: a layer with weights, its groups, filters, strides, padding, channels and bias, what stands behind
it, what reads that, and what values it is fed. Networks that share a setting stand side by side in one model. Every two values of the
table below meet in some network, in others with another --seed; --full takes the whole product, and of it every so-many-th model from PART on.

A runtime departs where its output is more than 1 dB further from the float network's than qk's own is, and its difference from qk's is no
small part of that error. With the optimizer on and off, with an open and a fixed batch, no file departs in onnxruntime, and none in OpenVINO that was
written for it. Other files may depart in OpenVINO where a note of `qk quantize` says so, and OpenVINO may refuse them; onnxruntime may refuse those of
--keep-int8 (its optimizer moves their pairs and then takes uint8 for int8). --show prints every departure with its decibels.
"""
import itertools
import json
import random
import sys
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, evaluated, folder, option, qk_json
from evidence.graphs import Graph
from evidence.runtimes import in_openvino, outputs

import numpy as np
import onnx
import pytest
from onnx import TensorProto

BATCH = 4
# Without these instructions products of int8 codes saturate in onnxruntime, unless weights are pair-safe, and in OpenVINO, whose files nobody
# has judged on such a processor yet: its departures are shown and do not count there.
HAS_VNNI = "vnni" in Path("/proc/cpuinfo").read_text()
LOUD = "does not run it: "
SETTINGS = {
    "style": ["portable", "qdq", "signed", "openvino"],
    "activation": ["int8", "uint8", "int16", "float"],
    "weight": ["int8", "uint8", "int4", "int2", "int8/32", "uint8/32", "int4/16", "uint2/16"],
    "zeros": ["free", "symmetric"],
    "scales": ["channel", "tensor"],
}
NETWORK = {
    "layer": ["Conv", "ConvTranspose", "Conv1d", "Gemm", "MatMul", "LSTM", "GRU", "Gather"],
    "group": ["one", "two", "depthwise"],
    "window": [(1, 1, 0), (2, 2, 0), (3, 1, 1), (3, 2, 0), (4, 4, 0), (16, 16, 0)],
    "channels": [(3, 8), (16, 16), (64, 32)],
    "bias": [False, True],
    "behind": ["nothing", "Relu", "Clip", "Sigmoid", "SiLU", "Softmax", "LayerNormalization", "AveragePool", "MaxPool", "GlobalAveragePool", "Resize", "sequence", "tokens", "Flatten", "Add", "Mul", "Concat",
               "MatMul"],
    "reader": ["nothing", "layer"],
    "values": ["centred", "positive"],
}


def fits(row):
    """Returns whether the values of a network can meet."""
    (c, _), kind, behind = row["channels"], row["layer"], row["behind"]
    spatial = "Conv" in kind
    if not spatial and (row["group"] != "one" or row["window"] != NETWORK["window"][0] or behind in ("AveragePool", "MaxPool", "GlobalAveragePool", "Resize", "Flatten")):
        return False
    if row["group"] == "two" and c == 3 or kind == "ConvTranspose" and row["window"][0] == 16 or kind not in ("Conv", "ConvTranspose", "Conv1d", "Gemm") and row["bias"]:
        return False
    if row["window"][0] in (4, 16) and spatial and kind != "ConvTranspose" and behind in ("AveragePool", "MaxPool", "Flatten"):
        return row["window"][0] == 4
    return not (kind == "Gemm" and behind in ("sequence", "tokens", "MatMul"))


def pairs(axes, seed, fits=lambda row: True, settings=()):
    """Returns rows of the axes, dictionaries that fit, in which every two values of two axes that can meet do. With `settings` every row has the values of one of these."""
    names, draw = list(axes), random.Random(seed)
    of = lambda row: {(a, str(row[a]), b, str(row[b])) for a, b in itertools.combinations(names, 2)}
    missing = {(a, str(u), b, str(v)) for a, b in itertools.combinations(names, 2) for u in axes[a] for v in axes[b]}
    rows = []
    while missing:
        a, u, b, v = min(missing)
        wanted = {n: next(x for x in axes[n] if str(x) == w) for n, w in ((a, u), (b, v))}
        near = [s for s in settings if all(s.get(n, x) == x for n, x in wanted.items())]
        best, most = None, 0
        for _ in range(150 if near or not settings else 0):
            row = {n: draw.choice(axes[n]) for n in names} | wanted | (draw.choice(near) if near else {})
            gain = len(missing & of(row)) if fits(row) else 0
            if gain > most:
                best, most = row, gain
        missing -= of(best) if best else {(a, u, b, v)}
        rows += [best] if best else []
    return rows


class Model(Graph):
    """Networks side by side; each has an input and an output of its own."""

    def __init__(self):
        super().__init__(0)
        self.inputs, self.outputs, self.feeds, self.rows = [], [], {}, []

    def node(self, kind, inputs, outputs=1, **more):
        made = self.op(kind, *inputs, outputs=outputs, name=f"{kind.lower()}{len(self.nodes)}", **more)
        return made if outputs == 1 else made[-1]

    def write(self, file, fixed=False):
        batch = lambda shape: [BATCH if fixed and n == "N" else n for n in shape]
        return self.save(file, [(n, t, batch(s)) for n, t, s in self.inputs], {n: None for n in self.outputs})


def add_network(m, row):
    """Adds a network to the model."""
    draw = np.random.default_rng(zlib.crc32(json.dumps(row).encode()))
    weight = lambda *shape: (draw.standard_normal(shape) * np.exp(0.5 * draw.standard_normal((shape[0],) + (1,) * (len(shape) - 1))) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    (c, d), (k, s, p), kind, behind = row["channels"], row["window"], row["layer"], row["behind"]
    spatial = {"Conv": 2, "ConvTranspose": 2, "Conv1d": 1}.get(kind, 0)
    size = {16: 32, 4: 12}.get(k, 9)
    name = f"x{len(m.rows)}"
    shape = {0: ["N", 7, c], 1: ["N", c, size], 2: ["N", c, size, size]}[spatial] if kind not in ("Gemm", "Gather") else ["N", c] if kind == "Gemm" else ["N", 7]
    feed = draw.standard_normal([BATCH, *shape[1:]]).astype(np.float32)
    feed = np.abs(feed) if row["values"] == "positive" else feed
    bias = lambda n: [m.constant((draw.standard_normal(n) * 0.3).astype(np.float32))] if row["bias"] else []
    h = name
    if spatial:
        groups = {"one": 1, "two": 2, "depthwise": c}[row["group"]]
        d = d if row["group"] != "depthwise" else c
        w = weight(c, d // groups, *[k] * spatial) if kind == "ConvTranspose" else weight(d, c // groups, *[k] * spatial)
        h = m.node(kind.removesuffix("1d"), [h, m.constant(w), *bias(d)], strides=[s] * spatial, pads=[p] * 2 * spatial, group=groups)
    elif kind == "Gemm":
        h = m.node("Gemm", [h, m.constant(weight(d, c)), *bias(d)], transB=1)
    elif kind == "MatMul":
        h = m.node("MatMul", [h, m.constant(weight(d, c).T)])
    elif kind == "Gather":
        feed = draw.integers(0, 40, (BATCH, 7)).astype(np.int64)
        h = m.node("MatMul", [m.node("Gather", [m.constant(weight(40, c)), h]), m.constant(weight(d, c).T)])
    else:
        gates = 4 if kind == "LSTM" else 3
        h = m.node("Transpose", [h], perm=[1, 0, 2])
        m.node(kind, [h, m.constant(weight(gates * d, c)[None]), m.constant(weight(gates * d, d)[None])], hidden_size=d)
        h = m.node("Transpose", [m.node("Squeeze", [m.nodes[-1].output[0], m.constant(np.array([1]))])], perm=[1, 0, 2])
    rank = {"Gemm": 2}.get(kind, spatial + 2 if spatial else 3)
    at = 1 if spatial else rank - 1  # the axis of channels
    along = lambda n: [n if i == at else 1 for i in range(rank)]
    if behind in ("Relu", "Sigmoid"):
        h = m.node(behind, [h])
    elif behind == "Clip":
        h = m.node("Clip", [h, m.constant(np.float32(0)), m.constant(np.float32(1))])
    elif behind == "SiLU":
        h = m.node("Mul", [h, m.node("Sigmoid", [h])])
    elif behind == "Softmax":
        h = m.node("Softmax", [h], axis=at)
    elif behind == "LayerNormalization":
        h = m.node("Transpose", [h], perm=[i for i in range(rank) if i != at] + [at])
        h = m.node("LayerNormalization", [h, m.constant(weight(d) + 1), m.constant(weight(d))], axis=-1)
        at = rank - 1
    elif behind in ("AveragePool", "MaxPool"):
        h = m.node(behind, [h], kernel_shape=[2] * spatial, strides=[2] * spatial)
    elif behind == "GlobalAveragePool":
        h = m.node("Flatten", [m.node("GlobalAveragePool", [h])])
        rank, at = 2, 1
    elif behind == "Resize":
        h = m.node("Resize", [h, "", m.constant(np.array([1, 1] + [2] * spatial, np.float32))], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    elif behind == "tokens":  # a token of its own stands before those of each sample
        if spatial:
            h = m.node("Transpose", [m.node("Reshape", [h, m.constant(np.array([0, d, -1]))])], perm=[0, 2, 1])
        count = m.node("Slice", [m.node("Shape", [h]), m.constant(np.array([0])), m.constant(np.array([1])), m.constant(np.array([0]))])
        token = m.node("Expand", [m.constant(weight(1, 1, d)), m.node("Concat", [count, m.constant(np.array([1, d]))], axis=0)])
        h = m.node("Concat", [token, h], axis=1)
        rank, at = 3, 2
    elif behind == "sequence":
        if spatial:
            h = m.node("Transpose", [m.node("Reshape", [h, m.constant(np.array([0, d, -1]))])], perm=[0, 2, 1])
        else:
            h = m.node("Transpose", [m.node("Reshape", [h, m.constant(np.array([0, 7, 2, d // 2]))])], perm=[0, 2, 1, 3])
            d, rank = d // 2, 4
        rank, at = (3, 2) if spatial else (4, 3)
    elif behind == "Flatten":
        h = m.node("Flatten", [m.node("AveragePool", [m.node("Relu", [h])], kernel_shape=[2] * spatial, strides=[2] * spatial)])
        rank, at = 2, 1
    elif behind in ("Add", "Mul"):
        other = m.node("Tanh", [h])
        h = m.node(behind, [m.node("Conv", [h, m.constant(weight(d, d, *[1] * spatial))]) if spatial else h, other])
    elif behind == "Concat":
        h = m.node("Concat", [h, m.node("Tanh", [h])], axis=at)
        d *= 2
    elif behind == "MatMul":
        if spatial:
            h = m.node("Reshape", [h, m.constant(np.array([0, d, -1]))])
        h = m.node("MatMul", [m.node("Softmax", [m.node("MatMul", [h, m.node("Transpose", [h], perm=[0, 2, 1])])], axis=-1), h])
        rank, at = 3, 1 if spatial else 2
    if row["reader"] == "layer":
        if rank > 2 and at == 1:
            h = m.node("Conv", [h, m.constant(weight(8, d, *[1] * (rank - 2)))])
        else:
            width = d
            if behind == "Flatten":  # what the layer makes decides how long rows are
                w = {"ConvTranspose": (size - 1) * s + k - 2 * p, "Conv1d": (size + 2 * p - k) // s + 1}.get(kind, (size + 2 * p - k) // s + 1)
                width = d * (w // 2) ** spatial
            h = m.node("MatMul", [h, m.constant(weight(8, width).T)])
    m.inputs.append((name, TensorProto.INT64 if kind == "Gather" else TensorProto.FLOAT, shape))
    m.outputs.append(f"y{len(m.rows)}")
    m.nodes[-1].output[0] = m.outputs[-1]
    m.feeds[name] = feed
    m.rows.append(row)


def named(file, values):
    return dict(zip((o.name for o in onnx.load(file).graph.output), values))


RUNTIMES = {f"onnxruntime, optimizer {level}": lambda f, x, c, level=level: named(f, outputs(f, x, level)) for level in ("off", "on")}
if find_spec("openvino"):
    RUNTIMES |= {f"openvino, {name} batch": lambda f, x, c, fixed=fixed: named(f, in_openvino(f, x, fixed, **c)) for name, fixed in (("open", False), ("fixed", True))}


def words_of(setting):
    weight, _, block = setting["weight"].partition("/")
    words = ["--weight", weight, "--recipe", "fast", *(["--weight-block", block] if block else [])]
    words += ["--approach", "weight_only"] if setting["activation"] == "float" else ["--activation", setting["activation"]]
    words += {"openvino": ["--target", "openvino"], "signed": ["--keep-int8"]}.get(setting["style"], ["--export", setting["style"]])
    return words + ["--symmetric"] * (setting["zeros"] == "symmetric") + ["--per-tensor"] * (setting["scales"] == "tensor")


def quantized(m, setting, folder):
    """Writes the model under the setting; returns the file, the float outputs, qk's own, and the notes on writing."""
    m.write(folder / "float.onnx")
    np.savez(folder / "x.npz", **m.feeds)
    written = qk_json("quantize", folder / "float.onnx", "-o", folder / "q.onnx", "--calibration", folder / "x.npz", "--save-plan", folder / "plan.json", "--overwrite", *words_of(setting))
    own = []
    for words in ([], ["--plan", folder / "plan.json"]):
        own.append(dict(zip(m.outputs, evaluated(folder / "float.onnx", folder / "x.npz", *words, "--threads", 1, output=m.outputs))))
    return folder / "q.onnx", *own, written["export_notes"] + [n["text"] for n in written["notes"]]


def difference(floats, own, there):
    """Returns how a runtime's output departs from qk's; empty if it does not."""
    if there.size != own.size:
        return f"gives shape {list(there.shape)} for {list(own.shape)}"
    there = there.reshape(own.shape)
    quality, its, beside = decibels(own, floats), decibels(there, floats), decibels(there, own)
    return f"{its:.1f} dB for {quality:.1f}, {beside:.1f} beside qk's" if its < quality - 1 and beside < quality + 6 and beside < 60 else ""


def departures(m, setting, folder):
    """Yields (runtime, row, what it did, what the notes say) for each network that departs."""
    file, floats, own, notes = quantized(m, setting, folder)
    exact = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}  # as a note on files for OpenVINO says
    config = exact if setting["style"] == "openvino" and any(next(iter(exact)) in n for n in notes) else {}
    for runtime, run in RUNTIMES.items():
        try:
            got = run(file, m.feeds, config)
        except Exception as wrong:
            if len(m.rows) == 1:
                yield runtime, m.rows[0], LOUD + " ".join(str(wrong).split())[-160:], notes
                continue
            for row in m.rows:  # find out which
                yield from alone(row, setting, runtime)
            continue
        for row, name in zip(m.rows, m.outputs):
            what = difference(floats[name], own[name], got[name])
            if what:
                if len(m.rows) == 1:
                    yield runtime, row, what, notes
                else:  # whose notes are about this network alone
                    yield from list(alone(row, setting, runtime)) or [(runtime, row, what + ", beside other networks", [])] * (not what.startswith("gives shape"))


def alone(row, setting, runtime):
    """Yields what departures() does of a network in a model of its own."""
    single = Model()
    add_network(single, row)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        yield from (found for found in departures(single, setting, Path(place)) if found[0] == runtime)


def cases(full, seed=2):
    """Yields settings with the networks of a model, at most 100 of them."""
    settings = pairs(SETTINGS, 1)
    if not full:
        rows = pairs({**SETTINGS, **NETWORK}, seed, fits, settings)
        for setting in settings:
            yield setting, [{k: row[k] for k in NETWORK} for row in rows if all(row[k] == v for k, v in setting.items())]
        return
    rows = [row for row in (dict(zip(NETWORK, v)) for v in itertools.product(*NETWORK.values())) if fits(row)]
    for values in itertools.product(*SETTINGS.values()):
        for first in range(0, len(rows), 100):
            yield dict(zip(SETTINGS, values)), rows[first:first + 100]


def chosen():
    part, parts = (int(n) for n in option("--part", "0/1").split("/"))
    return itertools.islice(cases("--full" in sys.argv, int(option("--seed", 2))), part, None, parts)


@pytest.mark.parametrize("setting, rows", [pytest.param(setting, rows, id="-".join(setting.values())) for setting, rows in chosen()])
def test_setting(folder, setting, rows):
    m = Model()
    for row in rows:
        add_network(m, row)
    for runtime, row, what, notes in departures(m, setting, folder):
        told = runtime.startswith("openvino") and setting["style"] != "openvino" and (what.startswith(LOUD) or any("OpenVINO" in n for n in notes))
        told = told or setting["style"] == "signed" and (what.startswith(LOUD) or any("saturate" in n for n in notes) and not HAS_VNNI)
        told = told or runtime.startswith("openvino") and not HAS_VNNI
        if "--show" in sys.argv:
            print("   ", "told  " if told else "silent", *setting.values(), "|", runtime, "|", *row.values(), "|", what, flush=True)
        check(told, f"{' '.join(setting.values())} | {runtime} | {' '.join(map(str, row.values()))} | a silent departure: {what}")


if __name__ == "__main__":
    evidence.main("--full", "--show", "--seed=", "--part=")
