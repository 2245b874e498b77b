# SPDX-License-Identifier: Apache-2.0
"""Built-in target profiles: each rule changes or refuses a layer of a small network, and the files compute what the plan says."""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, evaluated, qk
from evidence.graphs import save
from evidence.runtimes import outputs

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


def network(folder):
    """conv (with Relu), a Gemm with transB and a MatMul; x is [N, 4, 8, 8], the matrices have 64 rows or columns to sum over."""
    r = np.random.default_rng(5)
    w = {"c": r.normal(size=(16, 4, 3, 3)) * 0.3, "cb": r.normal(size=16) * 0.1, "g": r.normal(size=(64, 64)) * 0.2, "gb": r.normal(size=64) * 0.1,
         "m": r.normal(size=(64, 32)) * 0.2}
    nodes = [h.make_node("Conv", ["x", "c", "cb"], ["h1"], name="conv", pads=[1, 1, 1, 1]), h.make_node("Relu", ["h1"], ["r1"], name="relu"),
             h.make_node("AveragePool", ["r1"], ["p"], name="pool", kernel_shape=[4, 4], strides=[4, 4]), h.make_node("Flatten", ["p"], ["f"], name="flatten"),
             h.make_node("Gemm", ["f", "g", "gb"], ["h2"], name="gemm", transB=1), h.make_node("Tanh", ["h2"], ["t"], name="tanh"),
             h.make_node("MatMul", ["t", "m"], ["y"], name="matmul")]
    file = folder / "float.onnx"
    save(file, nodes, {"x": ["N", 4, 8, 8]}, {"y": ["N", 32]}, {k: v.astype(np.float32) for k, v in w.items()})
    np.save(folder / "x.npy", r.normal(size=(8, 4, 8, 8)).astype(np.float32))
    return file


def made(folder, target, *words, name="out"):
    """Returns the file, its plan, and the remarks by the layer that they are about."""
    file = folder / f"{name}.onnx"
    r = qk("quantize", folder / "float.onnx", "-o", file, "--target", target, "--calibration", folder / "x.npy", "--save-plan", folder / "plan.json", "--overwrite", "--json", *words)
    plan = json.load(open(folder / "plan.json"))
    return onnx.load(file), plan, json.dumps(json.loads(r.stdout).get("notes", []))


def quantizers(plan):
    return {**plan["tensors"], **{e["tensor"]: e["quantizer"] for e in plan["edges"]}}


def same_as_plan(folder, what, least=60):
    """The file computes the plan, in qk, and in onnxruntime where it has the operators; its plan comes back."""
    a, b = evaluated(folder / "float.onnx", folder / "x.npy", "--plan", folder / "plan.json"), evaluated(folder / "out.onnx", folder / "x.npy")
    check(decibels(b, a) > least, f"{what}: the file is {decibels(b, a):.1f} dB beside the plan")
    qk("inspect", folder / "out.onnx", "--save-plan", folder / "again.json", "--overwrite")
    formats = lambda plan: {t: q["format"] for t, q in quantizers(plan).items() if not t.endswith("b")}
    before, again = (json.load(open(folder / f)) for f in ("plan.json", "again.json"))
    known = {t: f for t, f in formats(before).items() if t in formats(again)}
    check(len(known) >= 4 and known == {t: formats(again)[t] for t in known}, f"{what}: the plan comes back: {formats(before)} {formats(again)}")


def nodes_of(model):
    return [n.op_type for n in model.graph.node]


def test_tensorrt(folder):
    model, plan, notes = made(folder, "tensorrt")
    q = quantizers(plan)
    check(q["x"]["format"] == "int8" and not q["x"].get("zero_point") and not q["f"].get("zero_point"), f"int8 activations have no zero points: {q['x']}")
    check(len(q["c"]["scale"]) == 16 and len(q["x"]["scale"]) == 1, "a scale for each channel of weights, one for an activation")
    zeros = [nh.to_array(t) for t in model.graph.initializer if t.name.endswith("_zero_point")]
    check(zeros and all(z.dtype in (np.int8, np.int32) and not z.any() for z in zeros), f"all zero points are int8 and 0: {[(z.dtype, z.max()) for z in zeros]}")
    check("Max" not in nodes_of(model) and not model.functions, f"nothing stands between pairs and layers: {nodes_of(model)}")
    same_as_plan(folder, "tensorrt int8")
    run = outputs(folder / "out.onnx", {"x": np.load(folder / "x.npy")}, "off")[0]  # the optimizer would make products of int8 that saturate without VNNI
    check(decibels(run, evaluated(folder / "float.onnx", folder / "x.npy", "--plan", folder / "plan.json")) > 60, "it runs in onnxruntime, too")

    _, plan, notes = made(folder, "tensorrt", "--activation", "uint8", "--weight", "int8")
    check(not quantizers(plan) and "tensorrt has no Conv with activation uint8" in notes, f"no uint8: {notes[:300]}")
    model, plan, notes = made(folder, "tensorrt", "--approach", "weight_only", "--weight", "int4", "--weight-block", 64)
    q = quantizers(plan)
    check(set(q) == {"g", "m"} and q["g"]["block_size"] == 64, f"int4 weights of matrices, in blocks of 64: {set(q)}")
    model, plan, notes = made(folder, "tensorrt", "--activation", "fp8_e4m3fn", "--weight", "fp8_e4m3fn")
    check(nodes_of(model).count("QuantizeLinear") >= 3 and "Max" not in nodes_of(model) and not model.functions, f"FP8 in pairs without guards: {nodes_of(model)}")
    same_as_plan(folder, "tensorrt fp8")

    (folder / "no_conv.json").write_text(json.dumps({"default": {"activation": "nvfp4", "weight": "nvfp4"}}))
    model, plan, notes = made(folder, "tensorrt", "--plan", folder / "no_conv.json")
    q = quantizers(plan)
    check(q["f"]["format"] == "nvfp4" and "c" not in q and "tensorrt has no Conv with activation nvfp4" in notes, f"nvfp4 of matrices alone: {notes[:300]}")
    dynamic = [n for n in model.graph.node if n.op_type == "TRT_FP4DynamicQuantize"]
    attributes = {a.name: a.i for a in dynamic[0].attribute} if dynamic else {}
    check(len(dynamic) == 2 and all(n.domain == "trt" for n in dynamic) and attributes == {"axis": -1, "block_size": 16, "scale_type": T.FLOAT8E4M3FN}, f"dynamic quantize: {attributes}")
    types = {t.data_type for t in model.graph.initializer}
    check({T.FLOAT4E2M1, T.FLOAT8E4M3FN} <= types and not model.functions, "weights are FP4 under FP8 scales")
    check("TensorRT's dynamic quantizers" in json.dumps(json.loads(qk("quantize", folder / "float.onnx", "-o", folder / "n.onnx", "--target", "tensorrt", "--plan", folder / "no_conv.json",
          "--calibration", folder / "x.npy", "--overwrite", "--json").stdout)["export_notes"]), "a note says what these operators are")
    same_as_plan(folder, "tensorrt nvfp4", 100)

    model, plan, notes = made(folder, "tensorrt", "--activation", "mxfp8_e4m3", "--weight", "mxfp8_e4m3")
    check(nodes_of(model).count("TRT_MXFP8DynamicQuantize") == 2 and nodes_of(model).count("TRT_MXFP8DequantizeLinear") == 4, f"MXFP8: {nodes_of(model)}")
    same_as_plan(folder, "tensorrt mxfp8", 100)
    r = qk("quantize", folder / "float.onnx", "-o", folder / "no.onnx", "--target", "tensorrt", "--export", "nbits", "--calibration", folder / "x.npy", status=2)
    check("tensorrt does not have what style nbits writes" in r.stderr and not (folder / "no.onnx").exists(), r.stderr)


def test_residual(folder):
    """What TensorRT fuses has no pairs inside: a layer with the Add that alone reads it, and with the Sigmoid of a SiLU."""
    r = np.random.default_rng(6)
    conv = lambda x, w, y: h.make_node("Conv", [x, w], [y], name=y, pads=[1, 1, 1, 1])
    nodes = [conv("x", "w", "c"), h.make_node("Relu", ["c"], ["a"], name="relu"), conv("a", "w", "d"), h.make_node("Add", ["d", "a"], ["s"], name="identity"), h.make_node("Relu", ["s"], ["o"], name="relu2"),
             conv("o", "w", "e"), conv("o", "w", "f"), h.make_node("Add", ["e", "f"], ["t"], name="projection"), conv("t", "w", "g"), h.make_node("Sigmoid", ["g"], ["i"], name="sigmoid"),
             h.make_node("Mul", ["g", "i"], ["j"], name="silu"), conv("j", "w", "k"), conv("k", "w", "l"), h.make_node("Add", ["k", "l"], ["m"], name="shared"), conv("m", "w", "y")]
    save(folder / "residual.onnx", nodes, {"x": ["N", 4, 8, 8]}, {"y": ["N", 4, 8, 8]}, {"w": (r.normal(size=(4, 4, 3, 3)) * 0.2).astype(np.float32)})
    np.save(folder / "r.npy", r.normal(size=(8, 4, 8, 8)).astype(np.float32))
    inner = {"d", "f", "l", "g"}  # made for the Add alone (the later of two), or for a SiLU
    (folder / "apart.json").write_text(json.dumps({"name": "apart", "base": "tensorrt", "fused_outputs": False}))
    (folder / "d.json").write_text(json.dumps({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"tensor": "d", "format": "int8"}]}))
    for target, more, without in (("tensorrt", (), inner), (folder / "apart.json", (), set()), ("tensorrt", ("--plan", folder / "d.json"), inner - {"d"})):
        qk("quantize", folder / "residual.onnx", "-o", folder / "residual_q.onnx", "--target", target, "--recipe", "fast", "--calibration", folder / "r.npy", "--save-plan", folder / "plan.json", "--overwrite", *more)
        found = set(quantizers(json.load(open(folder / "plan.json")))) - {"w"}
        check(found == {"x", "a", "o", "e", "t", "j", "k", "m", *inner} - without, f"residual for {Path(target).name} {more and 'and a request'}: {sorted(found)}")


def test_qnn(folder):
    model, plan, notes = made(folder, "qnn")
    q = quantizers(plan)
    check("y" in q and "h1" not in q and "t" in q, f"every activation is quantized, but between a layer and its Relu: {sorted(q)}")
    check(len(q["c"]["scale"]) == 16 and len(q["m"]["scale"]) == 32 and not q["c"].get("zero_point"), "symmetric weights, a scale for each channel in version 73")
    check("Max" not in nodes_of(model), "no guards")
    same_as_plan(folder, "qnn int8")
    for version, by_channel in ((66, set()), (68, {"c"}), (69, {"c", "g", "m"}), (85, {"c", "g", "m"})):
        q = quantizers(made(folder, f"qnn_v{version}")[1])
        got = {t for t in ("c", "g", "m") if len(q[t]["scale"]) > 1}
        check(got == by_channel, f"version {version}: a scale for each channel of {got}")
    _, plan, notes = made(folder, "qnn_v66", "--plan", write(folder, {"default": {"activation": "int8", "weight": {"format": "int8", "per_channel": True}}}))
    check("qnn_v66 has one scale for the weights of Conv" in notes, f"asked for all the same: {notes[:400]}")


def write(folder, document):
    (folder / "requests.json").write_text(json.dumps(document))
    return folder / "requests.json"


def test_vitis_ai(folder):
    model, plan, notes = made(folder, "vitis_ai")
    q = quantizers(plan)
    scales = np.concatenate([q[t]["scale"] for t in q])
    check(np.array_equal(np.exp2(np.round(np.log2(scales))), scales), "all scales are powers of two")
    check(all(len(q[t]["scale"]) == 1 for t in ("c", "g", "m")), "one scale for a weight")
    check(all(q[t]["format"].startswith("int8") and not q[t].get("zero_point") for t in ("x", "c", "cb", "g", "f")), f"int8 without zero points, biases, too: {q['cb']}, {q['x']}")
    check({n.op_type for n in model.graph.node if "Quantize" in n.op_type or "quantize" in n.op_type} == {"QuantizeLinear", "DequantizeLinear"} and "Max" not in nodes_of(model), "standard pairs")
    same_as_plan(folder, "vitis_ai int8")
    model, plan, notes = made(folder, "vitis_ai", "--activation", "bfp16", "--weight", "bfp16")
    check("BFPQuantizeDequantize" in nodes_of(model), "BFP16 in AMD's operators")
    _, plan, notes = made(folder, "vitis_ai", "--activation", "int16", "--weight", "int8")
    q = quantizers(plan)
    check(not np.array_equal(np.exp2(np.round(np.log2(q["x"]["scale"]))), q["x"]["scale"]), "int16 has float scales")


def test_profiles(folder):
    (folder / "own.json").write_text(json.dumps({"name": "own", "base": "openvino", "int8_weights": "signed"}))
    model, plan, notes = made(folder, folder / "own.json")
    kinds = {t.data_type for t in model.graph.initializer if t.name.startswith(("c_", "g_", "m_")) and t.name.endswith("quantized")}
    check(kinds == {T.INT8} and not model.functions, f"a profile on top of openvino's: {kinds}")
    for document, part in (({"name": "own", "base": "openvin"}, "Did you mean"), ({"name": "own", "symmetric": "some"}, "activations"), ({"name": "own", "pairs": [["int8"]]}, "[ACTIVATION, WEIGHT]")):
        (folder / "own.json").write_text(json.dumps(document))
        r = qk("quantize", folder / "float.onnx", "-o", folder / "no.onnx", "--target", folder / "own.json", "--calibration", folder / "x.npy", status=2)
        check(part in r.stderr, f"{document}: {r.stderr}")
    (folder / "own.json").write_text(json.dumps({"name": "own"}))
    r = qk("quantize", folder / "float.onnx", "-o", folder / "no.onnx", "--target", folder / "own.json", status=2)
    check("names no formats" in r.stderr, r.stderr)
    r = qk("quantize", folder / "float.onnx", "-o", folder / "no.onnx", "--target", "tensorr", status=2)
    check("tensorrt" in r.stderr and "vitis_ai" in r.stderr and "qnn" in r.stderr, r.stderr)
    r = json.loads(qk("quantize", folder / "float.onnx", "-o", folder / "mx.onnx", "--export", "qdq", "--activation", "mxfp4", "--weight", "mxfp4", "--overwrite", "--json").stdout)
    check("onnxruntime 1.32 has no kernel on the CPU: a file of --export portable runs there" in json.dumps(r["export_notes"]), f"types without a kernel: {r['export_notes']}")
    # Portable files for OpenVINO say what those of style qdq say.
    for style in ("qdq", "portable"):
        r = json.loads(qk("quantize", folder / "float.onnx", "-o", folder / "ov.onnx", "--target", "openvino", "--export", style, "--activation", "int16", "--weight", "int8", "--calibration",
                          folder / "x.npy", "--overwrite", "--json").stdout)
        check("OpenVINO drops pairs of 16 bits" in json.dumps(r["export_notes"]), f"style {style} for OpenVINO: {r['export_notes']}")


def test_verified(folder):
    """--verify runs the file before it is written: status 1 and no file where the runtime departs, 2 where there is none."""
    file = folder / "verified.onnx"
    words = ["quantize", folder / "float.onnx", "-o", file, "--calibration", folder / "x.npy", "--overwrite"]
    r = json.loads(qk(*words, "--activation", "int8", "--weight", "int8", "--verify", "onnxruntime", "--json").stdout)
    v = r["verified"]
    check(file.exists() and not v["departs"] and abs(v["sqnr"] - v["of_qk"]) < 1 and v["of_qk"] > 20 and v["samples"] > 0 and v["runtime"].startswith("onnxruntime "), f"verified in onnxruntime: {v}")
    file.write_text("before")  # what is there stays where a runtime departs
    block = [*words, "--activation", "mxfp4", "--weight", "mxfp4", "--export", "qdq", "--verify", "onnxruntime", "--save-plan", folder / "unwritten.json"]
    r = qk(*block, status=1)
    check("not verified: onnxruntime did not run the model" in r.stderr and file.read_text() == "before" and not (folder / "unwritten.json").exists(), f"a type without a kernel: {r.stderr[-300:]}")
    r = json.loads(qk(*block, "--json", status=1).stdout)
    check(r["verified"]["departs"] and "not_run" in r["verified"] and "output" not in r, f"the same in JSON: {r['verified']}")
    for more, environment, part in ((("onnxruntim",), {}, "Did you mean 'onnxruntime'"), (("openvino",), {"QK_PYTHON": "/nonexistent/python"}, "no python with openvino")):
        kept, os.environ["QK_PYTHON"] = os.environ["QK_PYTHON"], environment.get("QK_PYTHON", os.environ["QK_PYTHON"])
        r = qk(*words, "--activation", "int8", "--weight", "int8", "--verify", *more, status=2)
        os.environ["QK_PYTHON"] = kept
        check(part in r.stderr and file.read_text() == "before", f"--verify {more}: {r.stderr[-200:]}")
    r = qk("quantize", folder / "float.onnx", "-o", file, "--activation", "mxfp4", "--weight", "mxfp4", "--verify", "onnxruntime", "--overwrite", status=2)
    check("give --inputs or --calibration" in r.stderr, f"--verify without samples: {r.stderr}")
    try:
        import openvino  # noqa: F401
    except ImportError:
        return
    w = np.random.default_rng(2).normal(size=(16, 8, 2, 2)).astype(np.float32)  # zero points of a ConvTranspose are lost there
    save(folder / "up.onnx", [h.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", strides=[2, 2])], {"x": ["N", 16, 5, 5]}, {"y": None}, {"w": w})
    np.save(folder / "up.npy", np.abs(np.random.default_rng(3).normal(size=(8, 16, 5, 5))).astype(np.float32))
    for more, status in ((("--asymmetric-weights",), 1), ((), 0), (("--asymmetric-weights", "--target", "openvino"), 0)):
        r = qk("quantize", folder / "up.onnx", "-o", folder / "up_q.onnx", "--activation", "int8", "--weight", "int8", "--calibration", folder / "up.npy", "--verify", "openvino", "--overwrite", *more, status=(0, 1))
        check(r.returncode == status and (folder / "up_q.onnx").exists() == (status == 0), f"ConvTranspose in OpenVINO {more}: {r.returncode} {r.stdout[-200:]}{r.stderr[-200:]}")
        check(("OpenVINO computes this file otherwise" in r.stderr) == (status == 1), f"a note says so {more}")
        (folder / "up_q.onnx").unlink(missing_ok=True)


def test_recurrent_weights(folder):
    """OpenVINO's GRU wants constants, which integers with their scales are not there; other formats are."""
    r = np.random.default_rng(11)
    w = {"w": r.normal(size=(1, 24, 8)) * 0.3, "r": r.normal(size=(1, 24, 8)) * 0.3}
    save(folder / "gru.onnx", [h.make_node("GRU", ["x", "w", "r"], ["y"], name="gru", hidden_size=8)], {"x": [5, "N", 8]}, {"y": [5, 1, "N", 8]},
         {k: v.astype(np.float32) for k, v in w.items()})
    np.save(folder / "steps.npy", r.normal(size=(5, 4, 8)).astype(np.float32))
    for format, quantized in (("int8", False), ("bfp16", True)):
        q = qk("quantize", folder / "gru.onnx", "-o", folder / "gru_q.onnx", "--target", "openvino", "--activation", format, "--weight", format, "--calibration", folder / "steps.npy",
               "--save-plan", folder / "plan.json", "--overwrite", "--json")
        found = set(quantizers(json.load(open(folder / "plan.json")))) & {"w", "r"}
        check(bool(found) == quantized, f"GRU for OpenVINO in {format}: {found}")
        check(quantized or "left in float32" in q.stdout, f"GRU for OpenVINO in {format}: {json.loads(q.stdout)['notes']}")
    r = qk("quantize", folder / "gru.onnx", "-o", folder / "gru_q.onnx", "--activation", "int8", "--weight", "int8", "--calibration", folder / "steps.npy", "--overwrite", "--json")
    check("it loads no LSTM, GRU and RNN with weights in integers (1: 'gru')" in json.dumps(json.loads(r.stdout)["export_notes"]), "a GRU of another style has a note")


@pytest.fixture
def folder(folder):
    network(folder)
    return folder


if __name__ == "__main__":
    evidence.main()
