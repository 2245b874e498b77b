# SPDX-License-Identifier: Apache-2.0
"""qk's operators for onnxruntime: the bits of the kernels, whatever the threads, and a sentence for what is wrong.

    python tests/onnxruntime/operators.py [QK]

That the operators run, not the functions, is sure because these tests take the functions' bodies away before they make the session.
tests/tool/portable_evidence.py runs every function with them, too.
"""
import ctypes
import json
import subprocess
import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tool")]
import evidence
from evidence import at, check, evaluated, qk, same_bits
from evidence.graphs import save
from evidence.runtimes import operators, outputs, session

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import portable_evidence
from portable_evidence import blocks, catalogue, first_difference, inputs, planned, scaled
from quark_cases import quark, quark_operators

if __name__ == "__main__":
    evidence.start()  # the library lies beside the command
LIBRARY = operators() or evidence.skip("no libqk_onnxruntime.so in this build")
OLD = tuple(map(int, ort.__version__.split(".")[:2])) < (1, 18)


def formats():
    """Those of portable_evidence; what pairs of opset 21 hold is left out where the runtime knows no such opset."""
    return [q for q in portable_evidence.formats() if not (OLD and q["format"].startswith(("int4", "uint4", "int16", "uint16", "int:")))]


def bodiless(file, computed=lambda f: True):
    """Returns a model as bytes whose functions give their first input back, as far as types allow: what the library computes it alone can give."""
    m = onnx.load(file)
    for f in m.functions:
        if f.domain == "qk" and computed(f):
            first = f.input[0] if not f.name.startswith(("decode_", "rows_")) else "none"
            del f.node[:]
            if first == "none":
                f.node.append(helper.make_node("Constant", [], ["y"], value_floats=[0.0]))
            else:
                f.node.append(helper.make_node("Identity", [first], ["y"]))
    return m.SerializeToString()


def activations(shape, declared, quantizers):
    nodes = [helper.make_node("Identity", ["x"], [f"y{i}"], name=f"n{i}") for i in range(len(quantizers))]
    source = save(at("float.onnx"), nodes, {"x": declared}, {f"y{i}": [None] * len(declared) for i in range(len(quantizers))}, opset=13)
    return source, *planned(source, quantizers, "x")


def expected_of(source, x, plan, count):
    np.save(at("x.npy"), x)
    return evaluated(source, at("x.npy"), "--threads", 1, "--batch", x.shape[0], *plan, output=[f"y{i}" for i in range(count)])


def compare(what, got, expected, x):
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        good = g.shape == x.shape and same_bits(g, e.reshape(x.shape)).all()
        check(good, good or f"{what}, output {i}: {first_difference(x, g, e)}")


def own_registered(model, level="on", threads=1):
    """A session by the model: its own formats, too, as qk.onnxruntime.session makes it. Bodies that were taken away are signed again."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    with open(at("signed.onnx"), "wb") as f:
        f.write(signed(model))
    library = ctypes.CDLL(LIBRARY)
    library.qk_onnxruntime_problem.restype = ctypes.c_char_p
    if library.qk_onnxruntime_model(at("signed.onnx").encode()) != 0:
        raise AssertionError(library.qk_onnxruntime_problem().decode())
    options.register_custom_ops_library(LIBRARY)
    return ort.InferenceSession(at("signed.onnx"), options, providers=["CPUExecutionProvider"])


def fields(message):
    """Yields number and bytes of each field of a protobuf message that has texts and messages alone."""
    def varint(i):
        value = shift = 0
        while True:
            value, shift, i = value | (message[i] & 127) << shift, shift + 7, i + 1
            if message[i - 1] < 128:
                return value, i
    i = 0
    while i < len(message):
        begin = i
        tag, i = varint(i)
        length, i = varint(i)
        i += length
        yield tag >> 3, message[begin:i]


def fingerprint(function):
    """FNV-1a of all fields but the doc_string, in the order of their numbers; docs/reference/portable_functions.md."""
    value = 0xcbf29ce484222325
    for _, field in sorted((f for f in fields(function.SerializeToString()) if f[0] != 8), key=lambda f: f[0]):
        for byte in field:
            value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def signed(model):
    m = onnx.load_from_string(model)
    for f in m.functions:
        text, mark, _ = f.doc_string.rpartition("; body ")
        f.doc_string = text + mark + fingerprint(f)
    return m.SerializeToString()


def test_fingerprint():
    """The fingerprint that stands in a file is what the reference page says, and stays through onnx's own loading and saving."""
    _, file, _ = activations((4, 32), ["N", 32], [scaled("mxfp4"), scaled("bfp16")])
    functions = onnx.load(file).functions
    check(len(functions) == 2, f"{len(functions)} functions")
    for f in functions:
        check(f.doc_string.endswith("; body " + fingerprint(f)), f"{f.name}: {f.doc_string}, not {fingerprint(f)}")


def test_activations_on_threads():
    """Every format, seen as rows of whole blocks, along another axis, with a short block, and of unknown length; in parts, on 1, 2 and 4 threads."""
    for shape, declared, axes in (((40, 1024), ["N", 1024], (-1, 0)), ((2, 70, 9, 33), ["N", 70, 9, 33], (1, 3)), ((3, 21000), ["N", "C"], (1,))):
        asked = [dict(q, axis=a) for q in formats() for a in axes if a == axes[0] or q in blocks()]
        source, file, plan = activations(shape, declared, asked)
        x = inputs(int(np.prod(shape)), 11, False).reshape(shape)
        expected = expected_of(source, x, plan, len(asked))
        model = bodiless(file)
        for threads in (1, 2, 4):
            compare(f"{shape}, {threads} threads", own_registered(model, threads=threads).run(None, {"x": x}), expected, x)


def test_scales_of_channels_blocks_and_runs():
    r = np.random.default_rng(3)
    shape, asked = (8, 48, 100), []
    for f in ("int2", "int32", "fp8_e4m3fn", "fp4_e2m1", *(() if OLD else ("int4", "uint4", "int:bits=5"))):
        for axis, block in ((0, 0), (1, 0), (2, 0), (1, 16), (2, 7), (0, 3)):
            count = shape[axis] if block == 0 else int(np.prod(shape)) // shape[axis] * -(-shape[axis] // block)
            q = {"format": f, "axis": axis, "scale": [float(np.float32(v)) for v in 0.01 + r.random(count)]}
            zeros = {"zero_point": [int(v) for v in r.integers(0, 2, count)]} if "int" in f and axis == 1 else {}
            asked.append(q | zeros | ({"block_size": block} if block else {}))
    asked += [{"format": f, "dynamic": True} for f in catalogue() if not f.startswith(("mx", "bfp", "nvfp", "amd")) and f != "uint8"]
    source, file, plan = activations(shape, list(shape), asked)
    x = inputs(int(np.prod(shape)), 12, False).reshape(shape)
    expected = expected_of(source, x, plan, len(asked))
    model = bodiless(file)
    for threads in (1, 4):
        compare(f"{threads} threads", own_registered(model, threads=threads).run(None, {"x": x}), expected, x)


def test_matrices_that_stay_packed():
    """Constants of a megabyte and more are decoded in each run, by the operators where their names say so."""
    shape = (672, 512)
    w = inputs(int(np.prod(shape)), 13, False).reshape(shape)
    r = np.random.default_rng(4)
    asked = [dict(q, axis=a) for q in formats() for a in (0, 1)]
    for f in ("int2", "uint2", "fp6_e2m3", "fp4_e2m1", "nf4"):
        for axis, block in ((0, 0), (1, 0), (0, 32), (1, 32), (1, 100)):
            count = shape[axis] if block == 0 else shape[1 - axis] * -(-shape[axis] // block)
            q = {"format": f, "axis": axis, "scale": [float(np.float32(v)) for v in 0.01 + r.random(count)]}
            asked.append(q | ({"block_size": block} if block else {}) | ({"zero_point": [int(v) for v in r.integers(0, 2, count)]} if "int" in f else {}))
    count = len(asked)
    nodes = [helper.make_node("Identity", ["w"], [f"y{i}"], name=f"n{i}") for i in range(count)] + [helper.make_node("Identity", ["x"], ["z"], name="n")]
    source = save(at("float.onnx"), nodes, {"x": ["N", 2]}, {**{f"y{i}": list(shape) for i in range(count)}, "z": ["N", 2]}, {"w": w}, opset=13)
    file, plan = planned(source, asked, "w")
    x = np.zeros((1, 2), np.float32)
    np.save(at("x.npy"), x)
    expected = evaluated(source, at("x.npy"), "--threads", 1, *plan, output=[f"y{i}" for i in range(count)])
    names = {f.name for f in onnx.load(file).functions}
    for f in ("mxfp4", "mxfp8_e4m3", "mxint8", "bfp16", "mx9", "nvfp4", "nf4", "fp6_e2m3", "int2"):
        check(any(n.startswith(f"decode_{f}_in_run") for n in names), f"no function decode_{f}_in_run: {sorted(names)}")
    model = bodiless(file, lambda f: "_in_run" in f.name)
    for threads in (1, 4):
        compare(f"{threads} threads", own_registered(model, threads=threads).run(None, {"x": x})[:count], expected, w)


def small_network(format_name="mxfp4", width=96):
    source, file, _ = activations((8, width), ["N", width], [scaled(format_name)])
    return file


def refused(make, *words):
    """Checks that making or running a session fails with all the words in one sentence."""
    try:
        make()
    except Exception as e:
        check(all(w in str(e) for w in words), f"'{e}' lacks one of {words}")
    else:
        check(False, f"nothing refused: {words}")


def changed(file, **attributes):
    """The model with other attributes of its first call of ours; None takes one away."""
    m = onnx.load(file)
    call = next(n for n in m.graph.node if n.domain == "qk")
    for name, value in attributes.items():
        kept = [a for a in call.attribute if a.name != name]
        del call.attribute[:]
        call.attribute.extend(kept + ([] if value is None else [helper.make_attribute(name, value)]))
    return m.SerializeToString()


def test_what_is_wrong():
    file, x = small_network(), np.ones((8, 96), np.float32)
    check(session(file, library=LIBRARY).run(None, {"x": x})[0].shape == (8, 96), "the network itself does not run")

    def runs(**attributes):
        return lambda: session(changed(file, **attributes), library=LIBRARY).run(None, {"x": x})
    for name in ("qk_version", "format", "semantics", "scale_rule", "scales", "axis", "block", "flatten", "result"):
        refused(runs(**{name: None}), "qk: node", "mxfp4", f"lacks the attribute '{name}'")
    refused(runs(qk_version=2), "version 2", "reads version 1")
    refused(runs(format="mxfp5"), "mxfp5", "did you mean mxfp4")
    refused(runs(semantics="ocp,rounding=sideways"), "sideways")
    refused(runs(scales="channels"), "contradict")
    refused(runs(block=7), "contradict", "block")
    refused(runs(axis=5), "its axis is 5", "2 axes")
    refused(runs(axis=-3), "its axis is -3")
    refused(runs(result="shape"), "contradict")
    channels = activations((8, 12), ["N", 12], [{"format": "int2", "axis": 1, "scale": [0.5] * 12}])[1]
    m = onnx.load(channels)
    for t in m.graph.initializer:
        if t.name.endswith("_scale"):
            t.dims[:] = [6]
            t.raw_data = t.raw_data[:24]
    refused(lambda: session(m.SerializeToString(), library=LIBRARY).run(None, {"x": x[:, :12]}), "6 scales for 12 channels")
    for bad in (0.0, -1.0, np.nan, np.inf):
        m = onnx.load(channels)
        for t in m.graph.initializer:
            if t.name.endswith("_scale"):
                t.raw_data = np.full(12, bad, np.float32).tobytes()
        refused(lambda: session(m.SerializeToString(), library=LIBRARY).run(None, {"x": x[:, :12]}), "a scale is no finite number above 0")


def test_empty_and_special():
    """Empty tensors have empty results, and NaN and Inf what the kernels make of them."""
    asked = blocks()
    source, file, plan = activations((8, 96), ["N", 96], asked)
    model = bodiless(file)
    x = inputs(8 * 96, 15, True).reshape(8, 96)
    runs = own_registered(model)
    compare("special values", runs.run(None, {"x": x}), expected_of(source, x, plan, len(asked)), x)
    for got in runs.run(None, {"x": np.zeros((0, 96), np.float32)}):
        check(got.shape == (0, 96), f"shape {got.shape} of an empty tensor")


def test_edited_functions_are_refused():
    file = small_network()
    library = ctypes.CDLL(LIBRARY)
    library.qk_onnxruntime_problem.restype = ctypes.c_char_p

    def problem(of):
        return "" if library.qk_onnxruntime_model(str(of).encode()) == 0 else library.qk_onnxruntime_problem().decode()
    check(problem(file) == "", problem(file))
    m = onnx.load(file)
    onnx.save(m, at("saved.onnx"))
    check(problem(at("saved.onnx")) == "", "a file that onnx saved again: " + problem(at("saved.onnx")))
    m.functions[0].node[0].op_type = "Neg"
    onnx.save(m, at("edited.onnx"))
    said = problem(at("edited.onnx"))
    check("edited.onnx" in said and "qk:mxfp4" in said and "was changed" in said, f"an edited function: '{said}'")
    m.functions[0].doc_string = "mine"
    onnx.save(m, at("other.onnx"))
    check("does not say which body" in problem(at("other.onnx")), "a function of somebody else: " + problem(at("other.onnx")))
    check("no such file" in problem(at("none.onnx")).lower(), problem(at("none.onnx")))
    Path(at("text.onnx")).write_text("no model at all\n")
    check("no ONNX model" in problem(at("text.onnx")), problem(at("text.onnx")))


def test_twice_and_on_threads():
    """The library registered twice, in two sessions, which two threads make and run."""
    file = small_network("mxfp8_e4m3", 4096)
    x = inputs(8 * 4096, 16, False).reshape(8, 4096)
    (expected,) = outputs(file, {"x": x}, "off")
    options = ort.SessionOptions()
    for _ in range(2):
        options.register_custom_ops_library(LIBRARY)
    runs = [ort.InferenceSession(file, options) for _ in range(2)]
    wrong = []

    def work(number):
        own = session(file, library=LIBRARY)
        for _ in range(20):
            for one in (own, *runs):
                if not same_bits(one.run(None, {"x": x})[0], expected).all():
                    wrong.append(number)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not wrong, f"{len(wrong)} runs gave other bits")


# Products: a matrix that stays packed (--weights product). An input of unit vectors gives the matrix itself, whatever the order of the sums.

def weight_quantizers(inputs, outputs):
    """Quantizers of weights [inputs, outputs]: every format, and scales for the tensor, for each output, each input, and each run along the inputs."""
    r = np.random.default_rng(7)

    def scales(count):
        return [float(np.float32(v)) for v in 0.01 + r.random(count)]
    found = [dict(q, axis=0) for q in formats() if q["format"] not in ("int32", "uint32", "int:bits=24", "fp24", "tf32")]
    for f in ("int2", "int4", "uint4", "int8", "uint8", "int16", "int:bits=5", "fp8_e4m3fn", "fp6_e2m3", "fp4_e2m1", "nf4", "posit8"):
        for axis, block in ((1, 0), (0, 0), (0, 32), (0, 16), (0, 100)):
            count = (inputs, outputs)[axis] if block == 0 else outputs * -(-inputs // block)
            q = {"format": f, "axis": axis, "scale": scales(count)} | ({"block_size": block} if block else {})
            found.append(q | ({"zero_point": [int(v) for v in r.integers(0, 2, count)]} if "int" in f and axis + block != 0 else {}))
    return [q for q in found if not (OLD and q["format"] in ("int4", "uint4", "int16", "int:bits=5"))]


def turned(q, inputs, outputs):
    """The quantizer of the transpose."""
    q = dict(q, axis=1 - q["axis"])
    if q.get("block_size"):
        for k in ("scale", "zero_point"):
            if k in q:
                q[k] = np.array(q[k]).reshape(-1, outputs).T.reshape(-1).tolist()
    return q


def products(w, quantizers, kinds=("MatMul", "Gemm", "turned"), element=np.float32):
    """Writes a model of a layer for each quantizer, and its file with products; returns the float model, the file and the words for the plan."""
    inputs_, outputs_ = w.shape
    b = np.linspace(-1, 1, outputs_).astype(np.float32)
    nodes, edges, weights = [], [], {"w": w.astype(element), "t": np.ascontiguousarray(w.T).astype(element), "b": b.astype(element)}
    for i, q in enumerate(quantizers):
        kind = kinds[i % len(kinds)]
        name = "t" if kind == "turned" else "w"
        nodes.append(helper.make_node("MatMul", ["x", "w"], [f"y{i}"], name=f"n{i}") if kind == "MatMul"
                     else helper.make_node("Gemm", ["x", name, "b"], [f"y{i}"], name=f"n{i}", **({"transB": 1} if name == "t" else {})))
        edges.append({"tensor": name, "consumer": f"n{i}", "index": 1, "quantizer": turned(q, inputs_, outputs_) if name == "t" else q})
    used = {i for n in nodes for i in n.input}
    kind = onnx.TensorProto.FLOAT if element == np.float32 else onnx.TensorProto.FLOAT16
    source = save(at("float.onnx"), nodes, [("x", kind, ["N", inputs_])], [(f"y{i}", kind, ["N", outputs_]) for i in range(len(quantizers))],
                  {k: v for k, v in weights.items() if k in used}, opset=13)
    plan = at("plan.json")
    with open(plan, "w") as f:
        json.dump({"qk": "plan", "version": 1, "tensors": {}, "edges": edges}, f)
    file = at("products.onnx")
    qk("quantize", source, "-o", file, "--plan", plan, "--weights", "product", "--overwrite")
    return source, file, ("--plan", plan), b


def alike(what, got, expected, quantizers):
    """Compares with ==, since the sum of +0 and -0 is +0."""
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        wrong = np.argwhere(~((g == e) | (np.isnan(g) & np.isnan(e)))) if g.shape == e.shape else [g.shape]
        check(len(wrong) == 0, len(wrong) and f"{what}: {json.dumps(quantizers[i])[:200]}: {len(wrong)} differ, first {wrong[0]}")


def test_products_hold_every_format():
    """Unit vectors give the values that the plan rounds the weights to: as functions, as operators on 1, 2 and 4 threads, and in qk evaluate."""
    for shape in ((96, 24), (100, 17)):  # whole blocks; a short last one, and codes that fill no byte
        w = inputs(int(np.prod(shape)), 21, False).reshape(shape)
        w = np.where(np.abs(w) < 1000, w, 1).astype(np.float32)  # no Inf, which times 0 is NaN
        asked = weight_quantizers(*shape)
        source, file, plan, _ = products(w, asked)
        calls = [n for n in onnx.load(file).graph.node if n.domain == "qk"]
        check(len(calls) == len(asked) and all(n.op_type.startswith("product_") for n in calls), f"{len(calls)} products for {len(asked)} layers")
        x = np.eye(shape[0], dtype=np.float32)
        expected = expected_of(source, x, plan, len(asked))
        for how in ("off", "on"):
            alike(f"{shape}, functions, optimizer {how}", outputs(file, {"x": x}, how), expected, asked)
        for threads in (1, 2, 4):
            alike(f"{shape}, operators, {threads} threads", own_registered(bodiless(file), threads=threads).run(None, {"x": x}), expected, asked)
        alike(f"{shape}, qk evaluate", expected_of(file, x, (), len(asked)), expected, asked)


def test_products_add_up_as_the_kernel_does():
    """Any input: the operators have the bits of qk evaluate, which calls the same kernel, whatever the threads and however many rows there are."""
    w = np.random.default_rng(5).standard_normal((352, 70)).astype(np.float32)
    asked = weight_quantizers(*w.shape)
    source, file, plan, _ = products(w, asked)
    x = np.random.default_rng(6).standard_normal((9, 352)).astype(np.float32)
    near, same = expected_of(source, x, plan, len(asked)), expected_of(file, x, (), len(asked))
    for threads in (1, 2, 4):
        runs = own_registered(bodiless(file), threads=threads)
        got, alone = runs.run(None, {"x": x}), runs.run(None, {"x": x[4:5]})
        for i, q in enumerate(asked):
            good = same_bits(got[i], same[i]).all() and same_bits(got[i][4:5], alone[i]).all()
            check(good, good or f"{threads} threads: {json.dumps(q)[:200]}: other bits than in qk evaluate, or in a row alone")
            error = np.abs(got[i] - near[i]).max() / max(np.abs(near[i]).max(), 1e-30)
            check(error < 1e-5, error < 1e-5 or f"{json.dumps(q)[:200]}: off by {error:.2g} of the largest output")
    for n, r in enumerate(outputs(file, {"x": x}, "off")):
        error = np.abs(r - near[n]).max() / np.abs(near[n]).max()
        check(error < 1e-5, error < 1e-5 or f"{json.dumps(asked[n])[:200]}: the function is off by {error:.2g}")


def test_products_in_sixteen_bits():
    w = np.random.default_rng(8).standard_normal((64, 24)).astype(np.float16)
    # The plan's NVFP4 weights are no float16, and the float model narrows them before a bias; a product does not.
    asked = [{"format": "nvfp4", "axis": 0}, {"format": "mxfp4", "axis": 0}, {"format": "int4", "axis": 0, "block_size": 32, "scale": [0.25] * 48}]
    source, file, plan, b = products(w, asked, element=np.float16)
    x = np.eye(64, dtype=np.float16)
    expected = expected_of(source, x, plan, 3)
    names = {n.op_type for n in onnx.load(file).graph.node if n.domain == "qk"}
    check(all(n.startswith("product_") and "_float16" in n for n in names) and names, f"functions {sorted(names)}")
    for how, got in (("functions", outputs(file, {"x": x}, "off")), ("operators", own_registered(bodiless(file)).run(None, {"x": x}))):
        alike(how, got, expected, asked)
    # onnxruntime multiplies no bfloat16, so the reference is numpy: the matrix is exact there, and so are unit vectors.
    nodes = [helper.make_node("Cast", ["x"], ["xb"], to=onnx.TensorProto.BFLOAT16), helper.make_node("MatMul", ["xb", "w"], ["yb"], name="n0"),
             helper.make_node("Cast", ["yb"], ["y0"], to=onnx.TensorProto.FLOAT)]
    wide = w.astype(np.float32)
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    held = helper.make_tensor("w", onnx.TensorProto.BFLOAT16, w.shape, bits.tobytes(), raw=True)
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["N", 64])], [helper.make_tensor_value_info("y0", 1, ["N", 24])], [held])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), at("brain.onnx"))
    qk("quantize", at("brain.onnx"), "-o", at("brain_products.onnx"), "--weight", "mxfp4", "--weights", "product", "--overwrite")
    x = np.eye(64, dtype=np.float32)
    (expected,) = expected_of(at("brain_products.onnx"), x, (), 1)
    for how, level in (("functions", "off"), ("functions, optimized", "on")):
        alike(how, outputs(at("brain_products.onnx"), {"x": x}, level), [expected], asked)
    alike("operators", own_registered(bodiless(at("brain_products.onnx"))).run(None, {"x": x}), [expected], asked)
    check(len(np.unique(expected)) > 8, "the product is nothing but zeros")


def test_products_of_integers():
    """--accuracy-level 4: the input is rounded to int8 by block of 32, in the function's body and in the operator."""
    w = np.random.default_rng(9).standard_normal((160, 48)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y0"], name="n0")]
    source = save(at("float.onnx"), nodes, {"x": ["N", 160]}, {"y0": ["N", 48]}, {"w": w}, opset=13)
    x = np.random.default_rng(10).standard_normal((5, 160)).astype(np.float32)
    x[1, :32], x[2, 5] = 0, 1e-30
    for f in ("mxfp4", "nvfp4", "mxint8", "int4", "int8"):
        block = ("--weight-block", "32") if f == "int4" else ()
        qk("quantize", source, "-o", at("floats.onnx"), "--weight", f, *block, "--weights", "product", "--overwrite")
        qk("quantize", source, "-o", at("integers.onnx"), "--weight", f, *block, "--weights", "product", "--accuracy-level", 4, "--overwrite")
        # What the kernel rounds x to, in numpy: qk/product.hpp, "the order of product_sums::integers".
        cut = x.reshape(5, 5, 32)
        scale = (np.abs(cut).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
        whole = np.rint(np.where(scale > 0, cut / np.where(scale > 0, scale, 1), 0).astype(np.float32))
        rounded = (whole * scale).astype(np.float32).reshape(5, 160)
        (want,) = outputs(at("floats.onnx"), {"x": rounded}, "off")
        (body,) = outputs(at("integers.onnx"), {"x": x}, "off")
        (op,) = own_registered(bodiless(at("integers.onnx"))).run(None, {"x": x})
        (own,) = expected_of(at("integers.onnx"), x, (), 1)
        (plain,) = outputs(at("floats.onnx"), {"x": x}, "off")
        top = np.abs(want).max()
        check(np.abs(body - want).max() < 1e-5 * top, f"{f}: the body is off by {np.abs(body - want).max() / top:.2g}")
        check(np.abs(op - want).max() < 1e-5 * top, f"{f}: the operator is off by {np.abs(op - want).max() / top:.2g}")
        check(same_bits(op, own).all(), f"{f}: operator and qk evaluate differ")
        check(np.abs(plain - want).max() > 1e-4 * top, f"{f}: rounding the input changes nothing")
    done = qk("quantize", source, "-o", at("integers.onnx"), "--weight", "mxfp8_e4m3", "--weights", "product", "--accuracy-level", 4, "--overwrite", status=2)
    check("whole numbers" in done.stderr, done.stderr)


def test_products_are_read_back():
    """The plan comes back with its words and scales, from a MatMul, a Gemm and one of turned weights, and qk diff finds nothing."""
    w = np.random.default_rng(11).standard_normal((96, 24)).astype(np.float32)
    asked = [q for q in weight_quantizers(*w.shape) if q["format"] in ("mxfp4", "mx9", "bfp16", "fp16", "int16", "nf4") or (q["format"] == "uint8" and q.get("block_size"))]
    for i, q in enumerate(asked):
        kind = ("MatMul", "Gemm", "turned")[i % 3]
        _, file, plan, _ = products(w, [q], kinds=(kind,))
        qk("inspect", file, "--save-plan", at("back.json"), "--overwrite")
        with open(at("back.json")) as f, open(plan[1]) as g:
            back, (before,) = json.load(f), json.load(g)["edges"]
        (found,) = [*back["tensors"].values(), *(e["quantizer"] for e in back["edges"])]
        for key in ("format", "axis", "block_size", "scale", "zero_point"):
            wanted = before["quantizer"].get(key)
            good = wanted is None or found.get(key) == wanted or (key == "scale" and np.array_equal(np.float32(found[key]), np.float32(wanted)))
            check(good, good or f"{kind} {json.dumps(q)[:160]}: {key} is {str(found.get(key))[:60]}, not {str(wanted)[:60]}")
    done = qk("diff", file, "--against", "onnxruntime", "--library", "--samples", 2, "--inputs", saved_rows(96))
    check("first tensor" not in done.stdout, done.stdout[:400])


def saved_rows(width):
    np.save(at("rows.npy"), np.random.default_rng(12).standard_normal((2, width)).astype(np.float32))
    return at("rows.npy")


def test_products_that_cannot_be():
    """What is no product stays what it was, and a note says why; styles without functions refuse."""
    r = np.random.default_rng(13)
    weights = {"w": r.standard_normal((64, 32)).astype(np.float32), "b": r.standard_normal((4, 32)).astype(np.float32), "s": r.standard_normal((2, 32, 8)).astype(np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w"], ["a"], name="scaled", alpha=2.0), helper.make_node("Gemm", ["x", "w", "b"], ["c"], name="biased"),
             helper.make_node("MatMul", ["a", "s"], ["y0"], name="stack"), helper.make_node("Identity", ["c"], ["y1"])]
    source = save(at("float.onnx"), nodes, {"x": [4, 64]}, {"y0": [2, 4, 8], "y1": [4, 32]}, weights, opset=13)
    done = qk("quantize", source, "-o", at("none.onnx"), "--weight", "mxfp4", "--weights", "product", "--overwrite")
    said = done.stdout + done.stderr
    for words in ("'scaled' are multiplied by a Gemm of floats: the Gemm transposes its input or multiplies", "'biased'", "no constant of a value for each output", "'stack'", "no matrix"):
        check(words in said, f"'{words}' is not in {said}")
    check(not any(f.name.startswith("product_") for f in onnx.load(at("none.onnx")).functions), "a product")
    for style, word in (("qdq", "style qdq"), ("amd", "style amd")):
        failed = qk("quantize", source, "-o", at("none.onnx"), "--weight", "int8", "--weights", "product", "--export", style, "--overwrite", status=2)
        check(word in failed.stderr and "portable or nbits" in failed.stderr, failed.stderr)
    failed = qk("quantize", source, "-o", at("none.onnx"), "--weight", "mxfp4", "--weights", "product", "--inline", "--overwrite", status=2)
    check("--inline" in failed.stderr, failed.stderr)


def test_products_beside_the_standard_node():
    """--export nbits: what MatMulNBits has becomes that, and the rest products."""
    w = {k: np.random.default_rng(i).standard_normal((64, 48)).astype(np.float32) for i, k in enumerate(("v", "w"))}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["y0"], name="n0"), helper.make_node("MatMul", ["x", "w"], ["y1"], name="n1")]
    source = save(at("float.onnx"), nodes, {"x": ["N", 64]}, {"y0": ["N", 48], "y1": ["N", 48]}, w, opset=13)
    with open(at("plan.json"), "w") as f:
        json.dump({"qk": "plan", "version": 1, "tensors": {}, "edges": [
            {"tensor": "v", "consumer": "n0", "index": 1, "quantizer": {"format": "int4", "axis": 0, "block_size": 32, "scale": [0.3] * 96}},
            {"tensor": "w", "consumer": "n1", "index": 1, "quantizer": {"format": "mxfp4", "axis": 0}}]}, f)
    qk("quantize", source, "-o", at("both.onnx"), "--plan", at("plan.json"), "--export", "nbits", "--weights", "product", "--overwrite")
    types = sorted(n.op_type for n in onnx.load(at("both.onnx")).graph.node)
    check(types == ["MatMulNBits", "product_mxfp4"], f"{types}")


def tables(t, quantizers, indices=onnx.TensorProto.INT64):
    """Writes a model that looks rows up in a table for each quantizer, and its file; returns both and the words for the plan."""
    count, width = t.shape
    nodes = [helper.make_node("Gather", ["t", "x"], [f"y{i}"], name=f"n{i}") for i in range(len(quantizers))]
    source = save(at("float.onnx"), nodes, [("x", indices, ["N", 5])], [(f"y{i}", onnx.TensorProto.FLOAT, ["N", 5, width]) for i in range(len(quantizers))], {"t": t}, opset=13)
    edges = [{"tensor": "t", "consumer": f"n{i}", "index": 0, "quantizer": q} for i, q in enumerate(quantizers)]
    with open(at("plan.json"), "w") as f:
        json.dump({"qk": "plan", "version": 1, "tensors": {}, "edges": edges}, f)
    qk("quantize", source, "-o", at("tables.onnx"), "--plan", at("plan.json"), "--weights", "product", "--overwrite")
    return source, at("tables.onnx"), ("--plan", at("plan.json"))


def test_rows_of_tables():
    """A large table behind a Gather stays packed; the rows have the values that the plan rounds them to: as functions, operators, and in qk evaluate."""
    named = ("mxfp4", "mxint8", "nvfp4", "mx9", "bfp16", "nf4", "fp16", "int4", "uint8", "int16", "int:bits=5", "posit8")
    for shape in ((2731, 96), (2667, 100)):  # whole blocks; a short last one, and rows that fill no byte
        t = np.random.default_rng(15).standard_normal(shape).astype(np.float32)
        asked = [turned(q, *shape[::-1]) for q in weight_quantizers(*shape[::-1]) if q["format"] in named]
        source, file, plan = tables(t, asked)
        calls = [n for n in onnx.load(file).graph.node if n.domain == "qk"]
        check(len(calls) == len(asked) and all(n.op_type.startswith("rows_") for n in calls), f"{len(calls)} tables for {len(asked)}: {sorted({n.op_type for n in calls})}")
        x = np.array([[0, 1, 7, 8, 9], [shape[0] - 1, -1, -shape[0], 1234, 8]], np.int64)
        expected = expected_of(source, x, plan, len(asked))
        check(all(e.shape == (2, 5, shape[1]) for e in expected), "a table has another shape")
        alike(f"{shape}, functions", outputs(file, {"x": x}, "off"), expected, asked)
        for threads in (1, 2):
            alike(f"{shape}, operators, {threads} threads", own_registered(bodiless(file), threads=threads).run(None, {"x": x}), expected, asked)
        alike(f"{shape}, qk evaluate", expected_of(file, x, (), len(asked)), expected, asked)


def test_tables_are_read_back_and_refused():
    t = np.random.default_rng(16).standard_normal((2731, 96)).astype(np.float32)
    asked = next(turned(q, 96, 2731) for q in weight_quantizers(96, 2731) if q["format"] == "uint8" and q.get("block_size") == 32)
    for q in ({"format": "mxfp4", "axis": 1}, {"format": "uint8", "scale": [0.25], "zero_point": [121]}):
        _, file, _ = tables(t, [q])
        qk("inspect", file, "--save-plan", at("back.json"), "--overwrite")
        with open(at("back.json")) as f:
            back = json.load(f)
        (found,) = [*back["tensors"].values(), *(e["quantizer"] for e in back["edges"])]
        check(all(found.get(k) == v for k, v in q.items()), f"{q} comes back as {found}")
    _, file, _ = tables(t, [asked], onnx.TensorProto.INT32)

    def runs(feed, **attributes):
        return lambda: session(changed(file, **attributes), library=LIBRARY).run(None, {"x": np.array([feed], np.int32)})
    check(runs([0, 1, 2, 3, -1])()[0].shape == (1, 5, 96), "the network itself does not run")
    refused(runs([0, 1, 2, 3, 2731]), "index 2731 is outside of 2731 rows")
    refused(runs([0, -2732, 2, 3, 4]), "index -2732")
    refused(runs([0, 1, 2, 3, 4], shape=[2732, 96]), "scales for each row")
    refused(runs([0, 1, 2, 3, 4], shape=[2731]), "[outputs, inputs]")
    refused(runs([0, 1, 2, 3, 4], axis=0), "blocks of a table lie in its rows")
    _, small_file, _ = tables(t[:64], [dict(asked, scale=asked["scale"][:192], zero_point=asked["zero_point"][:192])])
    check(not any(n.op_type.startswith("rows_") for n in onnx.load(small_file).graph.node), "a small table is decoded once, when the file is loaded")


def test_wrong_products():
    w = np.random.default_rng(14).standard_normal((96, 24)).astype(np.float32)
    _, file, _, _ = products(w, [{"format": "mxfp4", "axis": 0}], kinds=("Gemm",))
    x = np.ones((2, 96), np.float32)

    def runs(feed=x, **attributes):
        return lambda: session(changed(file, **attributes), library=LIBRARY).run(None, {"x": feed})
    check(runs()()[0].shape == (2, 24), "the network itself does not run")
    check(runs(np.zeros((0, 96), np.float32))()[0].shape == (0, 24), "no row gives no row")
    check(np.isnan(runs(np.full((1, 96), np.nan, np.float32))()[0]).all(), "NaN times weights is NaN")
    for name in ("bias", "sums", "shape"):
        refused(runs(**{name: None}), "product_mxfp4", f"lacks the attribute '{name}'")
    refused(runs(sums="sideways"), "sideways")
    refused(runs(shape=[24, 0]), "no")
    refused(runs(shape=[24, 96, 1]), "[outputs, inputs]")
    refused(runs(shape=[48, 96]), "bytes")
    refused(runs(shape=[24, 64]), "64 values that a row")
    refused(runs(shape=[23, 96]), "bias")
    refused(runs(scales="one"), "contradict")
    refused(runs(result="shape"), "contradict")
    refused(runs(bias=0), "qk: node")
    refused(runs(format="mxfp8_e4m3", sums="integers"), "contradict")


def test_c_program():
    """A program in C registers the library in every way, twice with the same options and from two threads."""
    program = evidence.build() / "tests" / "onnxruntime_session"
    runtimes = sorted((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    if not program.exists() or not runtimes:
        return evidence.skip("the program is not built, or this onnxruntime has no library of its own")
    done = subprocess.run([program, runtimes[0], LIBRARY, small_network("mxfp8_e4m3", 4096), "8", "4096"], capture_output=True, text=True)
    check(done.returncode == 0 and "the same bits" in done.stdout, done.stderr[-500:])


# AMD Quark's operators, by their names.

def test_quark_operators():
    """The bits of qk evaluate, which Quark's own library was compared with, too (tests/onnxruntime/quark_peer.py)."""
    x = inputs(6 * 33 * 5, 31, True).reshape(6, 33, 5)
    for kind, how in quark_operators():
        dtype = how.get("dtype", np.float32)
        model = quark(at("quark.onnx"), kind, **how)
        given = np.clip(x, -60000, 60000).astype(dtype) if dtype != np.float32 else x
        (expected,) = expected_of(model, given, (), 1)
        for threads in (1, 2):
            (got,) = session(model, threads=threads, library=LIBRARY).run(None, {"x": given})
            good = got.dtype == given.dtype and same_bits(got, expected).all()
            check(good, good or f"{kind} {how}, {threads} threads: {np.argwhere(~same_bits(got, expected))[:3]}")


def test_wrong_quark_operators():
    x = np.ones((6, 33, 5), np.float32)
    for words, kind, how in ((("rounding_mode 7",), "BFPQuantizeDequantize", {"rounding_mode": 7}), (("fp9",), "MXQuantizeDequantize", {"element_dtype": "fp9"}),
                             (("bit_width=40",), "BFPQuantizeDequantize", {"bit_width": 40}), (("to_nothing",), "BFPQuantizeDequantize", {"bfp_method": "to_nothing"}),
                             (("axis is 9",), "BFPQuantizeDequantize", {"axis": 9}), (("finite number above 0",), "ExtendedQuantizeLinear", {"zero": np.int8(0), "scale": np.float32(0)}),
                             (("3 scales for 33 channels",), "ExtendedQuantizeLinear", {"zero": np.zeros(3, np.int8), "scale": np.ones(3, np.float32), "axis": 1})):
        refused(lambda: session(quark(at("quark.onnx"), kind, **how), library=LIBRARY).run(None, {"x": x}), "qk: node", *words)


def test_evaluate_runs_with():
    """qk evaluate gives another runtime's figures, and refuses what no other runtime does."""
    digits = evidence.ROOT / "examples" / "digits"
    qk("quantize", digits / "digits.onnx", "-o", at("digits.onnx"), "--activation", "mxfp4", "--weight", "mxfp4")
    asked = ("evaluate", at("digits.onnx"), "--inputs", digits / "test_images.npy", "--labels", digits / "test_labels.npy")
    own = evidence.qk_json(*asked, "--output-dir", at("own"))
    for word, runtime in (("onnxruntime", f"onnxruntime {ort.__version__}"), ("onnxruntime+library", f"onnxruntime {ort.__version__} with qk's operators")):
        other = evidence.qk_json(*asked, "--run-with", word, "--output-dir", at(word), "--compare", at("own"))
        check(other["runtime"] == runtime and other["samples"] == own["samples"], f"{word}: {other}")
        check(abs(other["top1"] - own["top1"]) <= 2 / own["samples"], f"{word}: top1 {other['top1']}, {own['top1']} in qk")
        (name,) = [f.name for f in Path(at("own")).glob("*.npy")]
        (values, expected) = (np.load(Path(at(f)) / name) for f in (word, "own"))
        check(evidence.decibels(values, expected) > 20, f"{word}: {evidence.decibels(values, expected)} dB beside qk's outputs")
    for words, more in ((("none of onnxruntime", "Did you mean"), ("--run-with", "onxruntime")), (("as it is",), ("--run-with", "onnxruntime", "--weight", "int8")),
                        (("--batch",), ("--run-with", "onnxruntime", "--batch", 3))):
        said = qk(*asked, *more, status=2).stderr
        check(all(w in said for w in words), f"{more}: {said}")


def test_command_says_where():
    said = qk("--onnxruntime-library").stdout.strip()
    check(Path(said).samefile(LIBRARY), f"qk --onnxruntime-library: {said}")


if __name__ == "__main__":
    evidence.main()
