# SPDX-License-Identifier: Apache-2.0
"""qk's operators for onnxruntime: the bits of the kernels, whatever the threads, and a sentence for what is wrong.

    python tests/onnxruntime/operators.py [QK]

That the operators run, not the functions, is sure because these tests take the functions' bodies away before they make the session.
tests/tool/portable_evidence.py runs every function with them, too.
"""
import ctypes
import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tool")]
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
            first = f.input[0] if not f.name.startswith("decode_") else "none"
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


def test_command_says_where():
    said = qk("--onnxruntime-library").stdout.strip()
    check(Path(said).samefile(LIBRARY), f"qk --onnxruntime-library: {said}")


if __name__ == "__main__":
    evidence.main()
