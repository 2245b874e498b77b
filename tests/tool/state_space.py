# SPDX-License-Identifier: Apache-2.0
"""A state-space model in chunks, like an exported mamba 2: a depthwise convolution over time, segment sums, masks of -Inf, tensors of four
and five axes.
"""
import filecmp
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, close, qk, qk_json, saved
from evidence.runtimes import outputs

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import language_models as models
from language_models import logits as evaluated

rng = np.random.default_rng(11)
HIDDEN, HEADS, WIDTH, STATE, CHUNK = 24, 3, 8, 4, 4


def state_space(path):
    """x [N,8,16] -> logits [N,8,11]."""
    g = models.Graph(4)
    inner = HEADS * WIDTH
    x = g.op("MatMul", "x", g.weight("in.weight", 16, inner + 2 * STATE + HEADS), name="in")
    mixed, step = g.op("Split", x, g.ints(inner + 2 * STATE, HEADS), axis=-1, outputs=2)
    mixed = g.op("Conv", g.op("Transpose", mixed, perm=[0, 2, 1]), g.weight("conv.weight", inner + 2 * STATE, 1, 4, scale=0.5), g.weight("conv.bias", inner + 2 * STATE, scale=0.1),
                 group=inner + 2 * STATE, pads=[3, 0], name="conv")
    mixed = g.op("Transpose", g.op("Mul", mixed, g.op("Sigmoid", mixed)), perm=[0, 2, 1])
    values, b, c = g.op("Split", mixed, g.ints(inner, STATE, STATE), axis=-1, outputs=3)
    step = g.op("Softplus", step)
    values = g.op("Mul", g.op("Reshape", values, g.ints(0, 0, HEADS, WIDTH)), g.op("Unsqueeze", step, g.ints(3)))
    values = g.op("Reshape", values, g.ints(0, -1, CHUNK, HEADS, WIDTH))
    b, c = (g.op("Reshape", v, g.ints(0, -1, CHUNK, STATE)) for v in (b, c))
    decay = g.op("Transpose", g.op("Reshape", g.op("Mul", step, g.hold("a", -np.array([0.5, 1, 2], np.float32))), g.ints(0, -1, CHUNK, HEADS)), perm=[0, 3, 1, 2])
    sums = g.op("CumSum", decay, g.hold("last", np.array(-1, np.int64)), name="sums")
    segments = g.op("Sub", g.op("Unsqueeze", sums, g.ints(-1)), g.op("Unsqueeze", sums, g.ints(-2)))
    lower = g.hold("lower", np.tril(np.ones((CHUNK, CHUNK), bool)))
    weights = g.op("Exp", g.op("Where", lower, segments, g.number(-np.inf), name="masked"))
    scores = g.op("Unsqueeze", g.op("Einsum", c, b, equation="nzls,nzms->nzlm", name="scores"), g.ints(1))
    mixed = g.op("MatMul", g.op("Mul", scores, weights), g.op("Transpose", values, perm=[0, 3, 1, 2, 4]), name="within")
    root = g.op("Sqrt", g.op("Cast", g.op("Gather", g.op("Shape", mixed), g.ints(4), axis=0), to=TensorProto.FLOAT), name="root")
    y = g.op("Reshape", g.op("Transpose", g.op("Div", mixed, root), perm=[0, 2, 3, 1, 4]), g.ints(0, -1, inner))
    g.op("MatMul", y, g.weight("out.weight", inner, 11), name="out")
    g.rename("logits")
    return g.save(path, [("x", TensorProto.FLOAT, ["N", 8, 16])], [("logits", TensorProto.FLOAT, ["N", 8, 11])])


def formats(name, *more):
    return ["--activation", name, "--weight", name, *more]


@pytest.fixture
def model():
    return state_space(at("model.onnx"))


@pytest.fixture
def data():
    return saved("x.npz", x=rng.standard_normal((3, 8, 16)).astype(np.float32))


def test_the_model(model, data):
    plain = evaluated(model, data)
    check(close(plain, outputs(model, data)[0]), "float: as onnxruntime has it")


def test_styles(model, data):
    plain = evaluated(model, data)
    for style in ("portable", "amd"):
        for asked in (formats("bfp16"), formats("bfp16", "--placement", "all"), formats("mxint8", "--placement", "every"), formats("mx9", "--placement", "all")):
            if style == "amd" and "mxint8" in asked:
                asked = [*asked, "--semantics", "quark"]
            planned = evaluated(model, data, *asked)
            qk("quantize", "--recipe", "fast", model, "-o", at("file.onnx"), "--export", style, *asked, "--overwrite")
            check(close(evaluated(at("file.onnx"), data), planned), f"{style}, {' '.join(asked)}: the file is the plan")
            check(not close(planned, plain, 1e-4), "which is not the float model")
            qk("inspect", at("file.onnx"), "--save-plan", at("back.json"), "--save-float", at("back.onnx"), "--overwrite")
            check(close(evaluated(at("back.onnx"), data, "--plan", at("back.json")), planned), "and comes back")
            if style == "portable":
                got = outputs(at("file.onnx"), data)[0]
                check(close(got, planned, 3e-2), "and runs in onnxruntime")


def test_reports_and_logs(model, data):
    """Reports and logs change neither plan nor file, with or without calibration samples."""
    for asked in (formats("bfp16", "--placement", "all"), formats("mxfp4", "--placement", "every")):
        qk("quantize", "--recipe", "fast", model, "-o", at("bare.onnx"), *asked, "--save-plan", at("bare.json"), "--overwrite")
        for more in (["--json"], ["--report", at("page.html")], ["--log", at("log.txt")]):
            qk("quantize", "--recipe", "fast", model, "-o", at("told.onnx"), *asked, "--save-plan", at("told.json"), "--calibration", data, *more, "--overwrite")
            check(filecmp.cmp(at("bare.onnx"), at("told.onnx"), False) and filecmp.cmp(at("bare.json"), at("told.json"), False), f"{asked[1]} with {more[0]}: the same file")

    with open(at("bare.json")) as f:
        plan = json.load(f)
    quantized = {**plan["tensors"], **{e["tensor"]: e["quantizer"] for e in plan["edges"]}}
    nodes = {n.name: n for n in onnx.load(model).graph.node}
    check(quantized[nodes["conv"].input[0]]["axis"] == 1, "blocks run along the channels of what a convolution reads")
    check(quantized[nodes["sums"].output[0]]["axis"] == -1, "and along the rows of a tensor of four axes that is no picture")
    check(nodes["root"].input[0] not in quantized and nodes["root"].output[0] not in quantized, "numbers that lengths say are no data")


def test_a_cache():
    """Blocks of a cache of keys run along the rows of a head."""
    qk("quantize", "--recipe", "fast", models.llama(at("llama.onnx"), dtype=np.float32), "-o", at("kept.onnx"), "--kv-cache", "mxfp8_e4m3", "--save-plan", at("kept.json"))
    with open(at("kept.json")) as f:
        check({q["axis"] for q in json.load(f)["tensors"].values()} == {-1}, "blocks of a cache run along the rows of its heads")


def test_operands_of_attention():
    """Operands of attention: known lengths, or at least the sizes behind an axis, follow through Reshape and Transpose."""
    decoder = models.llama(at("decoder.onnx"), dtype=np.float32, hidden=128, count=4)  # heads of 32
    past = {k: rng.standard_normal((1, 2, 3, 32)).astype(np.float32) for k in models.cache()}
    np.savez(at("text.npz"), input_ids=rng.integers(0, 61, (1, 6)), position_ids=np.arange(3, 9)[None], **past)
    for name in ("mxfp4", "mx9"):
        qk("quantize", "--recipe", "fast", decoder, "-o", at("decoder_q.onnx"), *formats(name), "--overwrite")
        file = onnx.load(at("decoder_q.onnx"))
        given = [{a.name for a in n.attribute} for n in file.graph.node if n.domain == "qk" and not n.op_type.startswith("decode")]
        check(sum("ends" in names for names in given) == 4 and not any("after" in names for names in given), f"{name}: weights and values of two attentions are padded, the rest has whole blocks")
        got = outputs(at("decoder_q.onnx"), at("text.npz"), names=["logits"])[0]
        check(close(got, evaluated(decoder, at("text.npz"), *formats(name)), 5e-2), "and onnxruntime computes what the plan says")


def test_a_scattered_mask():
    """A mask may be scattered into scores, as for the windows of a Longformer."""
    g = models.Graph(6)
    g.op("MatMul", "x", g.op("Transpose", "x", perm=[0, 2, 1]), name="scores")
    places = g.hold("places", np.stack([np.zeros(8, np.int64), np.arange(8), np.arange(1, 9) % 8], -1))
    g.op("ScatterND", "scores/y", places, g.hold("lowest", np.full(8, -np.inf, np.float32)), name="masked")
    g.op("MatMul", g.op("Softmax", "masked/y", axis=-1), "x", name="context")
    g.rename("logits")
    scattered = g.save(at("scattered.onnx"), [("x", TensorProto.FLOAT, [1, 8, 16])], [("logits", TensorProto.FLOAT, [1, 8, 16])])
    np.savez(at("one.npz"), x=rng.standard_normal((1, 8, 16)).astype(np.float32))
    told = qk_json("quantize", "--recipe", "fast", scattered, *formats("bfp16", "--placement", "all"))["notes"]
    check(any("masked/y" in n["subject"] and "holds a mask" in n["text"] for n in told), "a scattered mask is found without samples")
    check(close(evaluated(scattered, at("one.npz"), *formats("bfp16", "--placement", "all")), evaluated(scattered, at("one.npz")), 0.1), "and left")


def test_integer_operators(model, data):
    """Integer operators are recovered as the products that they came from."""
    dynamic = ["--approach", "dynamic", "--activation", "uint8", "--weight", "int8"]
    for more in ([], ["--per-channel"]):
        planned = evaluated(model, data, *dynamic, *more)
        qk("quantize", "--recipe", "fast", model, "-o", at("integers.onnx"), "--export", "qinteger", *dynamic, *more, "--overwrite")
        kinds = {n.op_type for n in onnx.load(at("integers.onnx")).graph.node}
        check({"MatMulInteger", "ConvInteger"} <= kinds, f"qinteger {more}: integer operators")
        qk("inspect", at("integers.onnx"), "--save-plan", at("back.json"), "--save-float", at("back.onnx"), "--overwrite")
        left = {n.op_type for n in onnx.load(at("back.onnx")).graph.node}
        check(not any(k.endswith("Integer") or k == "DynamicQuantizeLinear" for k in left), "inspect takes them out")
        check(close(evaluated(at("back.onnx"), data, "--plan", at("back.json")), planned), "plan and floats compute the same")
        with open(at("back.json")) as f:
            back = json.load(f)
        every = list(back["tensors"].values()) + [e["quantizer"] for e in back["edges"]]
        check({q["format"] for q in every} == {"uint8", "int8"} and all(q.get("dynamic") for q in every if q["format"] == "uint8"), "with int8 weights, dynamic activations")


if __name__ == "__main__":
    evidence.main()
