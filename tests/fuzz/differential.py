#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random small graphs, in qk beside onnxruntime with its optimizer off: what the graph gives in float32, and what a quantized file gives
beside the plan that it was written from.

    python tests/fuzz/differential.py [--seed N] [--count N | --seconds S] [--first I] [--out FOLDER]

Graph I of seed N is always the same: --seed N --first I --count 1 makes it alone. A graph is written into FOLDER (build/differential)
before it runs and stays there where something is wrong, a crash too: NAME.onnx, NAME.npz with its data, NAME.txt with what was seen. Exit
status 1 then. It needs the package qk (PYTHONPATH=build/release/python/package), onnx and onnxruntime.

Float32. Values that are only moved and compared must have the same bits. For others the tolerance is what the graph itself does with
small errors: onnxruntime runs it once more with every computed value and every weight moved by up to 2^-21 of itself, which is more than
one operator's rounding, and a tensor may differ by 32 times its largest change there. That covers sums in another order (at most some
hundreds of terms) and passes on what a badly conditioned step makes of errors before it; a wrong attribute, axis or border is far beyond.

Quantized. A sum in another order moves a value over a tie now and then, and that by a whole step, so tensors of single samples may differ.
The error of the file beside the plan is therefore measured against the error of the plan beside float32: in the median of five samples it
may be a quarter. A scale, zero point, axis or rounding that differs makes it as large as the error of quantization itself. Where
quantization does less than sums in another order do, these count.
"""
import argparse
import collections
import os
import pathlib
import sys
import time
import warnings

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import helper, numpy_helper
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

import qk
from random_graphs import Graph

PAIRS = [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int16", "int8"), ("uint16", "int4"), ("int8", "int4"), ("int8", "int2"), ("int:bits=5", "int:bits=6"),
         ("fp8_e4m3fn", "fp8_e4m3fn"), ("fp8_e5m2", "int8"), ("fp6_e2m3", "fp4_e2m1"), ("bf16", "fp16"), ("mxfp8_e4m3", "mxfp4"), ("mxfp6_e2m3", "mxint8"),
         ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("bfp16", "bfp16"), ("mx9", "mx6"), ("mx4", "int8")]


class Wrong(Exception):
    """What two sides disagree about."""


def in_onnxruntime(model, data):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, data)))


def with_noise(graph, model, random):
    """Returns the model with every computed value that is not exact, and the weights of such nodes, moved by up to 2^-21 of themselves."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    noise = lambda shape: (1 + random.uniform(-1, 1, shape) * 2.0**-21).astype(np.float32)  # noqa: E731
    inexact = {v.name: v for v in graph.values if not v.exact}
    weights = {i for n in moved.graph.node if n.output[0] in inexact for i in n.input}
    for t in moved.graph.initializer:
        if t.name in weights and t.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(t)
            t.CopyFrom(numpy_helper.from_array((array * noise(array.shape)).astype(np.float32), t.name))
    nodes = list(moved.graph.node)
    del moved.graph.node[:]
    for n in nodes:
        moved.graph.node.append(n)
        if (v := inexact.get(n.output[0])) is not None:
            own = moved.graph.node[-1]
            own.output[0] = v.name + " before"
            moved.graph.initializer.append(numpy_helper.from_array(noise(v.shape), v.name + " noise"))
            moved.graph.node.append(helper.make_node("Mul", [v.name + " before", v.name + " noise"], [v.name]))
    return moved


def in_qk(model, data, **options):
    return qk.evaluate(model.SerializeToString(), data, outputs=True, **options).outputs


def same_kind(name, a, b):
    """Throws unless both arrays have one type and shape, and NaN in the same places."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        raise Wrong(f"{name} is {a.dtype}{list(a.shape)} in qk and {b.dtype}{list(b.shape)} in onnxruntime")
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        raise Wrong(f"{name} has NaN in other places")
    if not np.array_equal(np.isinf(a), np.isinf(b)):
        raise Wrong(f"{name} has infinities in other places")


def is_coarse_zero(model, data):
    """Returns whether onnxruntime gives 0 where qk gives a number below 2^-24, as its Sigmoid does for -18 and below: a logarithm or a
    quotient of that is infinite on one side alone, and says nothing."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    for node in model.graph.node:
        if node.op_type == "Sigmoid" and all(o.name != node.output[0] for o in model.graph.output):
            everything.graph.output.append(helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    ours, theirs = in_qk(everything, data), in_onnxruntime(everything, data)
    return any(np.any((theirs[n.output[0]] == 0) & (np.asarray(ours[n.output[0]]) > 0)) for n in model.graph.node if n.op_type == "Sigmoid")


def compare_floats(graph, model, data, random):
    """Compares every output of the model in both; throws Wrong at the first tensor that departs, in the graph's order."""
    theirs = in_onnxruntime(model, data)
    moved = in_onnxruntime(with_noise(graph, model, random), data)
    ours = in_qk(model, data)
    made_by = {o: n.op_type for n in model.graph.node for o in n.output}
    for v in graph.values:
        if v.name not in theirs:
            continue
        name = f"{v.name} of {made_by[v.name]}"
        if v.name not in ours:
            raise Wrong(f"{name} is no output of qk")
        a, b = np.asarray(ours[v.name], np.float64), np.asarray(theirs[v.name], np.float64)
        same_kind(name, ours[v.name], theirs[v.name])
        if b.shape != v.shape:
            raise AssertionError(f"random_graphs.py says that {name} has shape {v.shape}; it has {b.shape}")
        if b.size == 0:
            continue
        away = float(np.nanmax(np.abs(a - b), initial=0))
        allowed = 0.0 if v.exact else 32 * float(np.nanmax(np.abs(np.asarray(moved[v.name], np.float64) - b), initial=0)) + 2.0**-22 * float(np.nanmax(np.abs(b), initial=0))
        if not away <= allowed:
            raise Wrong(f"{name} differs by {away:.3g}, largest {np.nanmax(np.abs(b)):.3g}, allowed {allowed:.3g}")


def options_of(random):
    """Returns how a graph is quantized: the options of qk.quantize."""
    activation, weight = PAIRS[int(random.integers(len(PAIRS)))]
    options = {"weight": weight, "export": str(random.choice(["portable", "portable", "qdq", "qoperator", "qinteger"]))}
    approach = str(random.choice(["static", "static", "static", "dynamic", "weight_only"]))
    if approach == "weight_only":
        options["export"] = str(random.choice(["portable", "qdq", "nbits"]))
    else:
        options["activation"] = activation
        options["placement"] = str(random.choice(["layers", "layers", "all", "every"]))
    options["approach"] = approach
    options["recipe"] = "fast"  # a plan cannot hold what other recipes do to weights and biases
    if weight.startswith(("int", "uint")) and random.integers(2):
        options["per_channel"] = True
    if random.integers(4) == 0:
        options["weights"] = "float"
    return options


def error_of(a, b):
    """Returns the length of a - b; where an infinity or NaN is in both it counts as no difference (same_kind has looked)."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.sqrt(np.sum((np.where(finite, a, 0) - np.where(finite, b, 0)) ** 2)))


def compare_files(graph, model, random, options):
    """Quantizes, and compares the file in onnxruntime with its plan in qk. Returns False where qk says in words that it cannot be done."""
    samples = [graph.data(random) for _ in range(5)]
    try:
        made = qk.quantize(model.SerializeToString(), samples, **options)
    except (qk.Error, TypeError, ValueError) as e:
        return str(e)
    file = onnx.load_from_string(made.model.bytes)
    ratios = collections.defaultdict(list)
    for data in samples:
        try:
            theirs = in_onnxruntime(file, data)
        except Exception as e:
            if "NOT_IMPLEMENTED" in str(e) and options["export"] == "qdq":  # ONNX's own operators with types that this runtime has not
                return f"onnxruntime: {str(e)[-120:]}"
            raise Wrong(f"onnxruntime cannot run the file: {str(e)[:300]}") from None
        ours, plain, theirs_plain = in_qk(model, data, plan=made.plan), in_qk(model, data), in_onnxruntime(model, data)
        for name, b in theirs.items():
            same_kind(name, ours[name], b)
            if b.size:
                floor = 1e-5 * error_of(ours[name], 0) + 8 * error_of(plain[name], theirs_plain[name]) + 1e-30
                ratios[name].append(error_of(ours[name], b) / max(error_of(ours[name], plain[name]), floor))
    for name, each in ratios.items():
        if not np.median(each) <= 0.25:
            raise Wrong(f"{name}: the file is away from its plan by {np.median(each):.3g} times what quantization does to it")
    return None


class Run:
    """The graphs of one run, and what came of them."""

    def __init__(self, out):
        self.out, self.counts, self.operators, self.wrong, self.refused = out, collections.Counter(), collections.Counter(), [], collections.Counter()
        out.mkdir(parents=True, exist_ok=True)

    def one(self, seed, number):
        random = np.random.default_rng([seed, number])
        graph = Graph(random)
        if not graph.nodes:
            return
        everything = bool(random.integers(2))
        model, data = graph.model(everything), graph.data(random)
        place = self.out / f"seed{seed}-{number}"
        onnx.save(model, f"{place}.onnx")
        np.savez(f"{place}.npz", **data)
        self.operators.update(n.op_type for n in model.graph.node)
        self.counts["graphs"] += 1
        said = {}
        try:
            try:
                in_onnxruntime(model, data)
            except Exception as e:
                self.counts["no graph for onnxruntime"] += 1
                self.refused[f"onnxruntime: {str(e).splitlines()[0][-100:]}"] += 1
                return
            try:
                compare_floats(graph, model, data, random)
            except Wrong as e:
                said["float32"] = str(e)
                if not everything:  # which tensor is the first
                    try:
                        compare_floats(graph, graph.model(True), data, random)
                    except Wrong as first:
                        said["float32"] = str(first)
            options = options_of(random)
            try:
                why_not = compare_files(graph, model, random, options)
                self.counts["quantized files" if why_not is None else "not quantized"] += 1
                if why_not is not None:
                    self.refused[f"qk: {why_not.splitlines()[0][:100]}"] += 1
            except Wrong as e:
                said["quantized"] = f"{options}: {e}"
        except Exception as e:  # an error of qk's for a good model, or something else that nobody expects
            said["an error"] = f"{type(e).__name__}: {e}"
        finally:
            if not said and sys.exc_info()[0] is None:
                pathlib.Path(f"{place}.onnx").unlink()
                pathlib.Path(f"{place}.npz").unlink()
        if any("infinities in other places" in what for what in said.values()) and is_coarse_zero(model, data):
            self.counts["left out for onnxruntime's Sigmoid"] += 1
            return
        if said:
            text = "\n".join(f"{kind}: {what}" for kind, what in said.items())
            pathlib.Path(f"{place}.txt").write_text(text + "\n")
            print(f"WRONG {place}.onnx (--seed {seed} --first {number} --count 1)\n  " + text.replace("\n", "\n  "), flush=True)
            self.wrong.append(number)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first graph")
    parser.add_argument("--count", type=int, help="so many graphs")
    parser.add_argument("--seconds", type=float, help="graphs for so long (20 where no --count is given)")
    parser.add_argument("--out", type=pathlib.Path, default=root / "build" / "differential")
    parser.add_argument("--refused", action="store_true", help="print why graphs were left out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    ort.set_default_logger_severity(4)
    until = None if given.seconds is None and given.count is not None else time.monotonic() + (given.seconds or 20)
    run, number = Run(given.out), given.first
    while (given.count is None or number < given.first + given.count) and (until is None or time.monotonic() < until):
        run.one(given.seed, number)
        number += 1
    print(f"seed {given.seed}: " + ", ".join(f"{n} {what}" for what, n in run.counts.items()) + f", {len(run.wrong)} wrong")
    print("operators: " + ", ".join(f"{op} {n}" for op, n in run.operators.most_common()))
    if given.refused:
        for why, n in run.refused.most_common(40):
            print(f"{n:6} {why}")
    return int(bool(run.wrong) or run.counts["graphs"] == 0)


if __name__ == "__main__":
    sys.exit(main())
