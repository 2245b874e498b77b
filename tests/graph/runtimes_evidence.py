# SPDX-License-Identifier: Apache-2.0
"""Runs block formats as styles qdq and portable write them in onnx's checker and reference evaluator, in onnxruntime and in OpenVINO.

    runtimes_evidence.py QK [--exhaustive | --table]

Each runtime must give the values of `qk evaluate --plan` on the float model, and the file's plan must come back from it. OpenVINO is tried
where it is installed (tests/peers.sh install). --exhaustive tries every format in every shape; --table prints the decibels of 22 formats in each style and runtime.
"""
import json
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, decibels, graphs, qk, run
from evidence.runtimes import in_openvino, outputs

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

EXHAUSTIVE = "--exhaustive" in sys.argv
# Formats, and whether onnxruntime's CPU has kernels for the types that style qdq writes them in.
WEIGHTS = {"mxfp4": False, "mxfp8_e4m3": False, "mxfp8_e5m2": False, "mxfp6_e2m3": False, "mxfp6_e3m2": False, "mxint8": True, "nvfp4": False,
           "bfp16": True, "mx9": False, "mx6": True, "mx4": True, "amdfp4": False, "mx:element=int4,block=8": True, "nvfp:block=8": False,
           "bfp:block=16,exponent=8,mantissa=4,bump": True, "bfp:block=16,exponent=8,mantissa=11": True, "mxfp4_e1m2": True}


OPENVINO = find_spec("openvino") is not None


def save(nodes, inputs, outputs, constants, name, **more):
    return graphs.save(at(name), nodes, dict(inputs), dict(outputs), constants, **more)


def write_plan(edges):
    with open(at("plan.json"), "w") as f:
        json.dump({"qk": "plan", "version": 1, "tensors": {}, "edges": [{"tensor": t, "consumer": c, "index": i, "quantizer": q} for t, c, i, q in edges]}, f)
    return at("plan.json")


def in_onnxruntime(model, inputs, optimizer):
    return outputs(model, inputs, "on" if optimizer else "off")


def runs(model, inputs, onnxruntime_has):
    """Yields the name of a runtime and a function that runs the model there."""
    loaded = onnx.load(model)
    onnx.checker.check_model(loaded, full_check=True)
    onnx.shape_inference.infer_shapes(loaded, check_type=True, strict_mode=True)
    yield "onnx.reference", lambda: ReferenceEvaluator(loaded).run(None, inputs)
    if onnxruntime_has:
        yield "onnxruntime, optimizer off", lambda: in_onnxruntime(model, inputs, False)
        yield "onnxruntime, optimizer on", lambda: in_onnxruntime(model, inputs, True)
    if OPENVINO:
        yield "openvino", lambda: in_openvino(model, inputs)


def qk_evaluate(model, inputs, count, *more):
    np.save(at("x.npy"), inputs["x"])
    return evidence.evaluated(model, at("x.npy"), "--threads", 1, "--batch", inputs["x"].shape[0], *more, output=[f"y{i}" for i in range(count)])


def compare(what, model, inputs, expected, onnxruntime_has, bits=False):
    """Checks that every runtime gives the expected values; with `bits` their signs of zero, too."""
    wrong = []
    for name, run in runs(model, inputs, onnxruntime_has):
        try:
            got = run()
        except Exception as error:
            wrong.append(f"{name} does not run it: {' '.join(str(error).split())[:300]}")
            continue
        for i, (a, b) in enumerate(zip(got, expected)):
            a = np.asarray(a).reshape(b.shape)
            if not (np.array_equal(a.view(np.uint32), b.view(np.uint32)) if bits and name != "openvino" else np.array_equal(a, b)):
                at_place = tuple(np.argwhere(a != b)[0]) if (a != b).any() else "a zero"
                wrong.append(f"{name}: output {i} differs in {np.sum(a != b)} of {a.size}, first at {at_place}")
    check(not wrong, "\n    ".join([what, *wrong[:6]]))


def told(plan):
    """What a plan says of each tensor."""
    blocks = ("mx", "bfp", "nvfp", "amdfp")
    of = lambda q: (q["format"], q["axis"] if q["format"].startswith(blocks) else None, q.get("flatten", False))
    return {e["tensor"]: of(e["quantizer"]) for e in plan["edges"]} | {t: of(q) for t, q in plan["tensors"].items()}


def test_weights_in_blocks():
    """Constants under each format: a matrix along each axis, with whole and short blocks, and filters that are flattened."""
    r = np.random.default_rng(3)
    shapes = [("matrix", (8, 64), [{"axis": 1}, {"axis": 0}]), ("short blocks", (40, 37), [{"axis": 1}, {"axis": 0}]),
              ("filters", (6, 3, 5, 5), [{"axis": 0, "flatten": True}, {"axis": 1}])]
    formats = list(WEIGHTS) if EXHAUSTIVE else list(WEIGHTS)[:12]
    for name in formats:
        constants, nodes, edges, outputs = {}, [helper.make_node("Identity", ["x"], ["y0"], name="n0")], [], [("y0", ["N", 2])]
        for what, shape, places in shapes:
            for more in places:
                i = len(nodes)
                w = (r.standard_normal(shape) * 2.0 ** r.integers(-9, 3, shape)).astype(np.float32)
                constants[f"w{i}"] = w
                nodes.append(helper.make_node("Identity", [f"w{i}"], [f"y{i}"], name=f"n{i}"))
                outputs.append((f"y{i}", list(shape)))
                edges.append((f"w{i}", f"n{i}", 0, {"format": name, **more, **({"scale": [float(np.abs(w).max() / 2688)]} if name == "nvfp4" else {})}))
        source = save(nodes, [("x", ["N", 2])], outputs, constants, "float.onnx")
        plan = write_plan(edges)
        inputs = {"x": np.ones((1, 2), np.float32)}
        expected = qk_evaluate(source, inputs, len(nodes), "--plan", plan)
        notes = qk("quantize", source, "-o", at("qdq.onnx"), "--plan", plan, "--export", "qdq").stderr
        check(("has no kernel" in notes) == (not WEIGHTS[name]), f"{name}: a note where onnxruntime cannot load the file, and only there")
        held = onnx.load(at("qdq.onnx"))
        check(sum(n.op_type == "DequantizeLinear" for n in held.graph.node) >= len(edges) and not held.functions, f"{name}: all constants are standard")
        for a, b in zip(qk_evaluate(at("qdq.onnx"), inputs, len(nodes)), expected):
            if not np.array_equal(a.reshape(b.shape), b):
                check(False, f"{name}: qk evaluates the file as the plan")
        compare(f"{name}: constants in every runtime", at("qdq.onnx"), inputs, expected, WEIGHTS[name])
        qk("inspect", at("qdq.onnx"), "--save-plan", at("again.json"), "--save-float", at("again.onnx"))
        again, before = (json.load(open(at(f))) for f in ("again.json", "plan.json"))
        if not name.endswith("bump"):  # whose rounded values need another exponent
            check(told(again) == told(before), f"{name}: the plan comes back")
        again_values = qk_evaluate(at("again.onnx"), inputs, len(nodes), "--plan", at("again.json"))
        check(all(np.array_equal(a.reshape(b.shape), b) for a, b in zip(again_values, expected)), f"{name}: the recovered model has its values")


def values(shape, seed):
    """Ordinary numbers of several magnitudes, ties, and zeros of both signs."""
    r = np.random.default_rng(seed)
    x = (r.standard_normal(shape) * 2.0 ** r.integers(-6, 7, shape)).astype(np.float32)
    x[r.random(shape) < 0.1] = 0.0
    x[r.random(shape) < 0.05] = -0.0
    ties = r.random(shape) < 0.2
    x[ties] = (r.integers(-64, 64, shape) * 0.125).astype(np.float32)[ties]
    return x


ACTIVATIONS = ["bfp16", "mxfp8_e4m3", "mxfp4", "mxint8", "mx9", "mx6", "nvfp4", "fp8_e4m3fn", "fp6_e3m2", "fp4_e2m1", "int2", "mxfp8_e5m2", "mx4", "mxfp6_e2m3", "amdfp4", "fp8_e5m2",
               "fp8_e3m4", "int:bits=12", "uint4", "bfp:block=8,exponent=8,mantissa=5,bump", "mx:element=int4,block=8", "nvfp:block=8"]


def test_functions_everywhere():
    """Activations and constants in style portable without functions: one file with an output for each way of seeing blocks."""
    shapes = [((6, 64), ["N", 64], 1), ((6, 37), ["N", 37], 1), ((6, 37), ["N", "C"], 1), ((4, 20, 3), ["N", 20, 3], 1)]
    for name in ACTIVATIONS if EXHAUSTIVE else ACTIVATIONS[:11]:
        for shape, declared, axis in shapes:
            q = {"format": name, "axis": axis}
            if "int" in name and not name.startswith("mx"):
                q = {"format": name, "scale": [0.25]}
            w = values((48, 37), 11)
            constants = {"w": w, "v": values((5, 8, 3, 3), 12)}
            nodes = [helper.make_node("Identity", [t], [f"y{i}"], name=f"n{i}") for i, t in enumerate(("x", "w", "v"))]
            source = save(nodes, [("x", declared)], [("y0", declared), ("y1", [48, 37]), ("y2", [5, 8, 3, 3])], constants, "float.onnx")
            plan = write_plan([("x", "n0", 0, q), ("w", "n1", 0, q), ("v", "n2", 0, q)])
            inputs = {"x": values(shape, 13)}
            expected = qk_evaluate(source, inputs, 3, "--plan", plan)
            qk("quantize", source, "-o", at("inline.onnx"), "--plan", plan, "--export", "portable", "--inline")
            check(not onnx.load(at("inline.onnx")).functions, f"{name} {declared}: the file has no functions")
            compare(f"{name} {declared}: without functions in every runtime", at("inline.onnx"), inputs, expected, True, bits=True)
            qk("inspect", at("inline.onnx"), "--save-plan", at("again.json"))
            check(told(json.load(open(at("again.json")))) == told(json.load(open(plan))), f"{name} {declared}: the plan comes back")


def beside(run, expected):
    """Returns the decibels of a run's first output, and what was said where it did not run."""
    try:
        return decibels(run()[0], expected), ""
    except Exception as error:
        return -np.inf, " ".join(str(error).split())[:400]


def network():
    """Writes a small network of floats and its inputs; returns the file and the inputs."""
    r = np.random.default_rng(17)
    w = {"c1": (r.standard_normal((16, 3, 3, 3)) * 0.3).astype(np.float32), "b1": r.standard_normal(16).astype(np.float32),
         "c2": (r.standard_normal((32, 16, 3, 3)) * 0.1).astype(np.float32), "m": (r.standard_normal((32, 48)) * 0.2).astype(np.float32),
         "g": (r.standard_normal((10, 48)) * 0.2).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "c1", "b1"], ["h1"], name="conv1", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["h1"], ["r1"], name="relu1"),
             helper.make_node("Conv", ["r1", "c2"], ["h2"], name="conv2", pads=[1, 1, 1, 1], strides=[2, 2]), helper.make_node("Relu", ["h2"], ["r2"], name="relu2"),
             helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"), helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
             helper.make_node("MatMul", ["f", "m"], ["h3"], name="matmul"), helper.make_node("Tanh", ["h3"], ["t"], name="tanh"),
             helper.make_node("Gemm", ["t", "g"], ["y0"], name="gemm", transB=1)]
    source = save(nodes, [("x", ["N", 3, 12, 12])], [("y0", ["N", 10])], w, "float.onnx")
    inputs = {"x": r.standard_normal((8, 3, 12, 12)).astype(np.float32)}
    np.save(at("calibration.npy"), inputs["x"])
    return source, inputs


PAGE = """# Formats in every runtime

`tests/graph/runtimes_evidence.py QK --table` quantizes a network of two convolutions, a MatMul and a Gemm, activations and weights in one format, and runs the files. Numbers are
decibels beside `qk evaluate --plan` on the float network; "inf" is the same bits.

"no" is a runtime that does not have the file's operators: onnx's reference evaluator has DequantizeLinear from opset 19 on, onnxruntime's CPU none of FLOAT4E2M1 and FLOAT8E8M0, and
OpenVINO no functions. An error is a format that the style refuses. [Export styles](../reference/export_styles.md#functions-in-other-runtimes) says why OpenVINO has few decibels in
some rows, and `--target openvino` writes what it reads.
"""


def table():
    """Prints a page of decibels beside `qk evaluate --plan` for each format, style and runtime."""
    source, inputs = network()
    kinds = {"onnxruntime, off": lambda f: in_onnxruntime(f, inputs, False), "onnxruntime, on": lambda f: in_onnxruntime(f, inputs, True),
             "onnx.reference": lambda f: ReferenceEvaluator(onnx.load(f)).run(None, inputs), "openvino": lambda f: in_openvino(f, inputs)}
    styles = {"qdq": ["--export", "qdq"], "portable": [], "portable --inline": ["--inline"], "--target openvino": ["--target", "openvino"]}
    print(PAGE)
    print("| format | style | " + " | ".join(kinds) + " |")
    print("|---|---|" + "---|" * len(kinds))
    for name in ["int8", "uint8", "int4", "int16", "uint16", "fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "bfp16", "mx9", "mx6", "mx4", "mxint8",
                 "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4"]:
        for style, flags in styles.items():
            done = qk("quantize", source, "-o", at("cell.onnx"), "--activation", name, "--weight", name, "--calibration", at("calibration.npy"), "--save-plan", at("plan.json"), *flags, "--overwrite",
                      status=(0, 1, 2))
            cells = []
            if done.returncode == 0:
                expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
                for runtime in kinds.values():
                    try:
                        told = decibels(runtime(at("cell.onnx"))[0], expected)
                        cells.append("inf" if told == 200 else f"{told:.1f}")
                    except Exception:
                        cells.append("no")
            print(f"| {name} | {style} | " + " | ".join(cells or ["an error"] * len(kinds)) + " |", flush=True)


def test_network_for_openvino():
    """A small network with `--target openvino`: what OpenVINO computes beside the plan."""
    if not OPENVINO:
        return
    source, inputs = network()
    pairs = [("int8", "int8"), ("int16", "int8"), ("fp8_e4m3fn", "fp8_e4m3fn"), ("bfp16", "bfp16"), ("mxfp8_e4m3", "mxfp4"), ("nvfp4", "nvfp4"), ("uint8", "int4"), ("bf16", "mx6"),
             ("mx9", "mx9"), ("fp16", "int4"), ("mxint8", "mxint8"), ("mxfp6_e2m3", "mxfp6_e3m2"), ("int16", "int16"), ("fp8_e5m2", "fp8_e4m3fn")]
    for activation, weight in pairs if EXHAUSTIVE else pairs[:8]:
        qk("quantize", source, "-o", at("openvino.onnx"), "--activation", activation, "--weight", weight, "--calibration", at("calibration.npy"), "--target", "openvino",
           "--save-plan", at("plan.json"))
        expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
        onnx.checker.check_model(onnx.load(at("openvino.onnx")), full_check=True)
        own = qk_evaluate(at("openvino.onnx"), inputs, 1)[0]
        got, said = beside(lambda: in_openvino(at("openvino.onnx"), inputs), expected)
        check(got > 35 and decibels(own, expected) > 35 and not onnx.load(at("openvino.onnx")).functions,
              f"{activation}, {weight}: OpenVINO {got:.1f} dB beside the plan, qk {decibels(own, expected):.1f} dB {said}")


def test_taps_behind_reshape():
    """Conv of one tap whose input a Reshape makes, and weights whose last block is short: OpenVINO makes a MatMul of the first, and loads no DequantizeLinear of the second."""
    r = np.random.default_rng(23)
    w = {"m": (r.standard_normal((12, 16)) * 0.3).astype(np.float32), "shape": np.array([0, 16, 1, 1], np.int64), "c1": (r.standard_normal((24, 16, 1, 1)) * 0.3).astype(np.float32),
         "b1": r.standard_normal(24).astype(np.float32), "c2": (r.standard_normal((8, 24, 1, 1)) * 0.3).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "m"], ["h"], name="matmul"), helper.make_node("Reshape", ["h", "shape"], ["t"], name="reshape"),
             helper.make_node("Conv", ["t", "c1", "b1"], ["h1"], name="conv1"), helper.make_node("Relu", ["h1"], ["r1"], name="relu1"),
             helper.make_node("Conv", ["r1", "c2"], ["y0"], name="conv2")]
    source = save(nodes, [("x", ["N", 12])], [("y0", ["N", 8, 1, 1])], w, "float.onnx")
    inputs = {"x": r.standard_normal((8, 12)).astype(np.float32)}
    np.save(at("calibration.npy"), inputs["x"])
    pairs = [["--approach", "weight_only", "--weight", "int8"], ["--approach", "weight_only", "--weight", "int4", "--weight-block", "32"],
             ["--activation", "bfp16", "--weight", "bfp16"], ["--activation", "mxfp8_e4m3", "--weight", "mxfp4"], ["--activation", "nvfp4", "--weight", "nvfp4"]]
    for words in pairs:
        for style in (["--target", "openvino"], ["--inline"]):
            qk("quantize", source, "-o", at("taps.onnx"), *words, *style, "--calibration", at("calibration.npy"), "--save-plan", at("plan.json"), "--overwrite")
            expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
            qk("inspect", at("taps.onnx"), "--save-plan", at("again.json"), "--save-float", at("again.onnx"), "--overwrite")
            again = qk_evaluate(at("again.onnx"), inputs, 1, "--plan", at("again.json"))[0]
            check(np.array_equal(again, expected), f"{' '.join(words + style)}: the plan comes back")
            if not OPENVINO:
                continue
            told, said = beside(lambda: in_openvino(at("taps.onnx"), inputs), expected)
            check(told > 35, f"{' '.join(words + style)}: OpenVINO {told:.1f} dB beside the plan {said}")


def test_static_shapes():
    """OpenVINO fuses more where shapes are static, a product with the difference behind it, too: formats find their scales all the same."""
    r = np.random.default_rng(37)
    formats = ["bfp16", "mxfp8_e4m3", "mxfp4", "nvfp4", "mx9", "fp8_e4m3", "mxint8"] + (["mx6", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "amdfp4", "bf16", "fp8_e5m2", "mx4"] if EXHAUSTIVE else [])
    for width in (4, 64):
        w = (r.standard_normal((width, 8)) * 0.3).astype(np.float32)
        source = save([helper.make_node("MatMul", ["x", "w"], ["y0"], name="matmul")], [("x", [3, width])], [("y0", [3, 8])], {"w": w}, "static.onnx")
        inputs = {"x": (r.standard_normal((3, width)) * 5).astype(np.float32)}
        np.save(at("calibration.npy"), inputs["x"])
        for name in formats:
            qk("quantize", source, "-o", at("static_out.onnx"), "--activation", name, "--weight", "mxint8", "--inline", "--recipe", "fast", "--calibration", at("calibration.npy"), "--save-plan", at("plan.json"), "--overwrite")
            expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
            for runtime, run in runs(at("static_out.onnx"), inputs, True):
                told, said = beside(run, expected)
                check(told > 100 or (name == "bf16" and runtime == "openvino"), f"static shapes, {width} columns in {name}: {runtime} {told:.1f} dB beside the plan {said}")


def test_inputs_of_doubles():
    """A network of float64: OpenVINO's CPU has no operator for a Cast from float64 with a pair behind it, and takes the file with a guard between them."""
    r = np.random.default_rng(31)
    source = at("doubles.onnx")
    graphs.save(source, [helper.make_node("MatMul", ["x", "w"], ["h"], name="matmul"), helper.make_node("Relu", ["h"], ["t"], name="relu"), helper.make_node("Gemm", ["t", "v", "b"], ["y0"], name="gemm")],
         [("x", TensorProto.DOUBLE, ["N", 16])], [("y0", TensorProto.DOUBLE, ["N", 6])], {n: r.standard_normal(s) for n, s in (("w", (16, 24)), ("v", (24, 6)), ("b", (6,)))})
    inputs = {"x": r.standard_normal((8, 16))}
    np.save(at("calibration.npy"), inputs["x"])
    for activation, weight in (("int8", "int8"), ("uint8", "int4"), ("mxfp8_e4m3", "mxfp4"), ("fp8_e4m3fn", "int8")):
        qk("quantize", source, "-o", at("doubles_out.onnx"), "--activation", activation, "--weight", weight, "--target", "openvino", "--calibration", at("calibration.npy"), "--save-plan", at("plan.json"), "--overwrite")
        expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
        qk("inspect", at("doubles_out.onnx"), "--save-plan", at("again.json"), "--save-float", at("again.onnx"), "--overwrite")
        again = qk_evaluate(at("again.onnx"), inputs, 1, "--plan", at("again.json"))[0]
        check(np.array_equal(again, expected), f"float64, {activation}, {weight}: the plan comes back")
        for name, run in runs(at("doubles_out.onnx"), inputs, True):
            told, said = beside(run, expected)
            if name == "openvino" or told > -np.inf:  # the others do not have every type's DequantizeLinear
                check(told > 35, f"float64, {activation}, {weight}: {name} {told:.1f} dB beside the plan {said}")


def test_functions_of_the_model():
    """A function of the model's own without layers, and one that calls it: files for runtimes without functions have neither."""
    half = helper.make_function("own", "Half", ["a"], ["b"], [helper.make_node("Constant", [], ["c"], value_float=0.5), helper.make_node("Mul", ["a", "c"], ["b"])],
                                [helper.make_opsetid("", 17)])
    outer = helper.make_function("own", "Outer", ["a"], ["b"], [helper.make_node("Half", ["a"], ["c"], domain="own"), helper.make_node("Tanh", ["c"], ["b"])],
                                 [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    r = np.random.default_rng(29)
    source = at("own.onnx")
    graphs.save(source, [helper.make_node("MatMul", ["x", "w"], ["h"], name="matmul"), helper.make_node("Outer", ["h"], ["y0"], name="outer", domain="own")], {"x": ["N", 8]},
         {"y0": ["N", 4]}, {"w": r.standard_normal((8, 4)).astype(np.float32)}, domains=["own"], functions=[half, outer])
    inputs = {"x": r.standard_normal((4, 8)).astype(np.float32)}
    np.save(at("calibration.npy"), inputs["x"])
    for style in (["--target", "openvino"], ["--inline"]):
        qk("quantize", source, "-o", at("without.onnx"), "--activation", "int8", "--weight", "int8", *style, "--calibration", at("calibration.npy"), "--save-plan", at("plan.json"), "--overwrite")
        expected = qk_evaluate(source, inputs, 1, "--plan", at("plan.json"))[0]
        held = onnx.load(at("without.onnx"))
        check(not held.functions and not [n for n in held.graph.node if n.domain == "own"], f"{' '.join(style)}: the model's own functions are opened")
        told = decibels(in_onnxruntime(at("without.onnx"), inputs, True)[0], expected)
        check(told > 60, f"{' '.join(style)}: onnxruntime {told:.1f} dB beside the plan")
        if OPENVINO and not held.functions:
            told = decibels(in_openvino(at("without.onnx"), inputs)[0], expected)
            check(told > 35, f"{' '.join(style)}: OpenVINO {told:.1f} dB beside the plan")


if __name__ == "__main__":
    if "--table" in sys.argv:
        evidence.start()
        table()
    else:
        evidence.main("--exhaustive")
