# SPDX-License-Identifier: Apache-2.0
"""Runs models that `qk quantize --export portable` writes in ONNX Runtime (optimizer off and on, and with qk's operators) and in `qk evaluate`.

QK_EXHAUSTIVE=1 in the environment runs every pair of format and semantics instead of every third.
Single quantizers must agree bit for bit with the native kernels (`qk evaluate --plan` on the float model): every format of the catalogue
and others, blocks along every axis, with a remainder or of unknown length, every semantics and rounding of a plan, scales for each channel
and each block, and dynamic scales.
"""
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, evaluated, qk, qk_json, same_bits as same
from evidence.graphs import save
from evidence.runtimes import operators, outputs

import numpy as np
import onnx
import pytest
from onnx import helper


def catalogue():
    return [f["name"] for f in qk_json("formats")["formats"] if f["name"] not in ("e8m0", "fp32")]


def evaluate(model, x, count, *more):
    np.save(at("x.npy"), x)
    return evaluated(model, at("x.npy"), "--threads", 1, "--batch", x.shape[0], *more, output=[f"y{i}" for i in range(count)])


def first_difference(x, got, expected):
    if got.shape != x.shape:
        return f"shape {got.shape}, not {x.shape}"
    got, expected = got.reshape(x.shape), expected.reshape(x.shape)
    at = np.argwhere(~same(got, expected))
    i = tuple(at[0])
    return f"{len(at)} of {x.size} differ; first at {i}: x {float(x[i]).hex()} gives {float(got[i]).hex()}, not {float(expected[i]).hex()}"


def planned(source, quantizers, tensor, *more):
    """Writes a model under a plan of one quantizer for each of its outputs; returns the file and the words for the plan."""
    plan, exported = at("plan.json"), at("portable.onnx")
    edges = [{"tensor": tensor, "consumer": f"n{i}", "index": 0, "quantizer": q} for i, q in enumerate(quantizers)]
    with open(plan, "w") as f:
        json.dump({"qk": "plan", "version": 1, "tensors": {}, "edges": edges}, f)
    qk("quantize", source, "-o", exported, "--plan", plan, "--export", "portable", *more)
    return exported, ("--plan", plan)


def in_all(exported, x, count):
    """Yields what runs the model, and its outputs."""
    yield "qk evaluate", evaluate(exported, x, count)
    for level in ("off", "on"):
        yield f"optimizer {level}", outputs(exported, {"x": x}, level)
    if operators():
        yield "qk's operators", outputs(exported, {"x": x}, library=operators())


def quantizers_alone(name, shape, declared, quantizers, x, opset=13):
    """Checks one model whose outputs are its input under each quantizer."""
    nodes = [helper.make_node("Identity", ["x"], [f"y{i}"], name=f"n{i}") for i in range(len(quantizers))]
    source = save(at("float.onnx"), nodes, {"x": declared}, {f"y{i}": declared and [None] * len(declared) for i in range(len(quantizers))}, opset=opset)
    exported, plan = planned(source, quantizers, "x")
    if declared is not None:  # the checker needs a shape for every input
        onnx.checker.check_model(onnx.load(exported), full_check=True)
    x = x.reshape(shape)
    expected = evaluate(source, x, len(quantizers), *plan)
    for how, got in in_all(exported, x, len(quantizers)):
        for i, q in enumerate(quantizers):
            good = same(got[i], expected[i]).all()
            check(good, good or f"{name}, {how}: {json.dumps(q)}: {first_difference(x, got[i], expected[i])}")


def constants_alone(name, shape, quantizers, w, weights):
    """Checks one model whose outputs are a constant under each quantizer. It also has an input, since every model needs one."""
    count, w = len(quantizers), w.reshape(shape)
    nodes = [helper.make_node("Identity", ["w"], [f"y{i}"], name=f"n{i}") for i in range(count)] + [helper.make_node("Identity", ["x"], [f"y{count}"], name="n")]
    source = save(at("float.onnx"), nodes, {"x": ["N", 2]}, {f"y{i}": list(shape) if i < count else ["N", 2] for i in range(count + 1)}, {"w": w}, opset=13)
    exported, plan = planned(source, quantizers, "w", "--weights", weights)
    onnx.checker.check_model(onnx.load(exported), full_check=True)
    x = np.zeros((1, 2), np.float32)
    expected = evaluate(source, x, count, *plan)
    for how, got in in_all(exported, x, count):
        for i, q in enumerate(quantizers):
            good = got[i].shape == w.shape and same(got[i], expected[i].reshape(shape)).all()
            check(good, good or f"{name}, {how}: {json.dumps(q)[:200]}: {first_difference(w, got[i], expected[i])}")


def inputs(count, seed, specials):
    """Returns ordinary numbers, every exponent, ties, zeros of both signs, subnormals, large numbers; with `specials` also Inf and NaN."""
    r = np.random.default_rng(seed)
    bits = r.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    parts = [
        r.standard_normal(count).astype(np.float32),
        np.where(np.isfinite(bits), bits, 1),
        (r.integers(-2048, 2048, count) * 2.0 ** r.integers(-12, 3, count)).astype(np.float32),
        (r.standard_normal(count) * 2.0 ** r.integers(-140, 120, count)).astype(np.float32),
        (r.integers(-300, 300, count) * 2.0**-149).astype(np.float32),
        np.where(r.random(count) < 0.5, 0.0, -0.0).astype(np.float32),
        np.nextafter((2.0 ** r.integers(-20, 20, count)).astype(np.float32), np.float32(0)).astype(np.float32),
    ]
    # Runs of one kind, then a mixture.
    kinds = np.where(np.arange(count) < count // 2, np.arange(count) * 14 // count % 7, r.integers(0, 7, count))
    x = np.choose(kinds, parts).astype(np.float32)
    if specials:
        at = r.random(count) < 0.01
        x[at] = r.choice(np.array([np.nan, np.inf, -np.inf], np.float32), at.sum())
    return x


def scaled(format_name, scale=0.05):
    """Returns a quantizer, with a scale for integers, which need one."""
    q = {"format": format_name}
    if "int" in format_name and not format_name.startswith(("mx", "nv")):
        q["scale"] = [scale]
    return q


def matters(format_name, choice):
    """Whether a choice of semantics applies to this format."""
    family = "mx" if format_name.startswith("mx") and format_name not in ("mx9", "mx6", "mx4") else "integer" if "int" in format_name else "float"
    if "scale_rule" in choice:
        return family == "mx"
    if "integer_mode" in choice or choice.get("base") == "onnx":
        return family == "integer"
    if "overflow" in choice or choice.get("base") == "ml_dtypes":
        return family == "float"
    return choice.get("base") not in ("microxcaling", "torchao") or family == "mx"


def test_many_scales():
    """Checks activations with a scale for each channel, and for each block along each axis."""
    r = np.random.default_rng(5)
    shape = (6, 20, 3, 5)
    channels, grids = [], []
    for f in ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16", "int32", "uint32", "int:bits=5", "fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3", "fp6_e3m2", "fp4_e2m1"):
        for shifted in (False, True) if "int" in f else (False,):
            def asked(count, **more):
                q = {"format": f, "scale": [float(np.float32(v)) for v in 0.01 + r.random(count)], **more}
                return q | {"zero_point": [int(v) for v in r.integers(0, 2, count)]} if shifted else q
            channels += [asked(shape[a], axis=a) for a in (0, 1, 2, 3, -1, -3)]
            for axis, block in ((0, 4), (1, 7), (1, 32), (2, 2), (3, 1), (-1, 3)):
                count = int(np.prod(shape)) // shape[axis] * -(-shape[axis] // block)
                grids.append(asked(count, axis=axis, block_size=block))
    x = inputs(int(np.prod(shape)), 6, False)
    for how, declared in (("known", list(shape)), ("unknown", ["N", "C", "H", "W"])):
        for what, q in (("a scale a channel", channels), ("grids of scales", grids)):
            quantizers_alone(f"{what}, shape {how}", shape, declared, q, x)
    quantizers_alone("grids of scales, rank unknown", shape, None, grids, x)


def test_dynamic_scales():
    """Checks dynamic scales and zero points, also where all values lie below 2^-126 * 255."""
    more = ["int:bits=3", "int:bits=5,signed=0", "int8:narrow", "int8:symmetric", "uint8:symmetric", "int8:pow2", "uint8:pow2", "int:bits=12", "int:bits=24",
            "float:exponent=4,mantissa=2,special=fnuz", "float:exponent=6,mantissa=9"]
    asked = [{"format": n, "dynamic": True} for n in catalogue() + more if not n.startswith(("mx", "bfp"))]
    r = np.random.default_rng(7)
    normal = r.standard_normal(16 * 96).astype(np.float32)
    for what, x, q in (
        ("every exponent", inputs(16 * 96, 9, False), asked), ("normal", normal, asked), ("positive", np.abs(normal) * 3, asked), ("negative", -np.abs(normal), asked),
        ("zeros", normal * 0, asked), ("subnormal", normal * np.float32(1e-40), asked), ("huge", np.full(16 * 96, 3e38, np.float32), asked)):
        quantizers_alone(f"dynamic, {what}", (16, 96), ["N", 96], q, x)


def formats():
    """Quantizers of every format of the catalogue and of others."""
    more = ["bfp:block=16,exponent=8,mantissa=4", "bfp:block=7,exponent=5,mantissa=3", "bfp:block=8,exponent=8,mantissa=23", "bfp:block=8,exponent=8,mantissa=5,bump",
            "mx:element=fp8_e4m3fn,block=16", "mx:element=int4,block=8", "mx:element=fp8_e5m2fnuz,block=32", "mx:element=float:exponent=5,mantissa=1,block=32",
            "microexponent:block=12,sub_block=3,mantissa=5", "microexponent:block=10,sub_block=4,mantissa=3,shift=2", "nvfp:block=8",
            "float:exponent=5,mantissa=6", "float:exponent=8,mantissa=3", "float:exponent=3,mantissa=3,special=fn", "float:exponent=4,mantissa=2,special=fnuz", "float:exponent=6,mantissa=9",
            "int:bits=3", "int:bits=5,signed=0", "int8:narrow", "int:bits=12", "int:bits=24"]
    return [scaled(n) for n in catalogue() + more]


def blocks():
    return [q for q in formats() if q["format"].startswith(("mx", "bfp", "micro", "nv"))]


def test_every_format():
    finite, special = inputs(64 * 96, 1, False), inputs(64 * 96, 2, True)
    quantizers_alone("every format", (64, 96), ["N", 96], formats(), finite)
    quantizers_alone("blocks with NaN and Inf", (64, 96), ["N", 96], blocks(), special)


def test_semantics():
    finite, special = inputs(64 * 96, 1, False), inputs(64 * 96, 2, True)
    some = [scaled(n) for n in ("int8", "int4", "uint8", "int32", "uint32", "fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2", "fp8_e5m2fnuz", "fp8_e4m3", "fp6_e2m3", "fp4_e2m1",
                                "float:exponent=8,mantissa=3", "float:exponent=6,mantissa=9", "bfp16", "bfp:block=8,exponent=8,mantissa=5,bump", "mx6", "mxint8", "mxfp8_e4m3",
                                "mxfp6_e2m3", "mxfp4", "mx:element=fp8_e5m2fnuz,block=32", "nvfp4")]
    some += [dict(q, scale=[0.25], zero_point=[3]) for q in (scaled("uint8"), scaled("uint32"), scaled("int32"), scaled("int2") | {"format": "uint4"})]
    choices = [{"base": b, "rounding": r} for b in ("ocp", "quark", "microxcaling", "torchao", "ml_dtypes", "torch", "onnx")
               for r in (("half-even", "half-away") if b in ("quark", "microxcaling") else ("half-even",))]
    choices += [{"rounding": r} for r in ("half-away", "half-up", "toward-zero", "up", "down")]
    choices += [{"scale_rule": r} for r in ("ceil", "rceil", "even", "ceil_7_25")]
    choices += [{"integer_mode": "reciprocal"}, {"overflow": "saturate"}, {"overflow": "ieee"}]
    choices += [{"overflow": "ieee", "rounding": r} for r in ("toward-zero", "up", "down")]
    # The standard leaves open what QuantizeLinear makes of NaN and Inf, so its formats get finite values only.
    standard = ("int", "uint", "fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2")
    for what, of, data in (("finite", some, finite), ("NaN and Inf", [q for q in some if not q["format"].startswith(standard)], special)):
        asked = [dict(q, semantics=c) for q in of for c in choices if matters(q["format"], c)]
        if "QK_EXHAUSTIVE" not in os.environ:
            asked = asked[::3]
        quantizers_alone(f"semantics, {what}", (16, 96), ["N", 96], asked, data[::4].copy())


def test_axes_and_lengths():
    x = inputs(6 * 20 * 3 * 5, 3, False)
    on_axes = [dict(q, axis=a) for q in blocks() for a in (0, 1, 2, 3, -2)]
    quantizers_alone("blocks along every axis, shape known but for the batch", (6, 20, 3, 5), ["N", 20, 3, 5], on_axes, x)
    quantizers_alone("blocks along every axis, shape unknown", (6, 20, 3, 5), ["N", "C", "H", "W"], on_axes, x)
    quantizers_alone("rank unknown", (6, 20, 3, 5), None, [dict(q, axis=a) for q in blocks() for a in (-1, -3)], x)
    for length in (1, 5, 32, 77):
        quantizers_alone(f"vectors of {length}", (length,), [length], blocks(), inputs(length, length, False))


@pytest.mark.parametrize("weights", ("packed", "float"))
def test_constants(weights):
    w = inputs(40 * 37, 4, False)
    constants_alone(f"{weights} matrix", (40, 37), [dict(q, axis=a) for q in formats() for a in (0, 1)], w, weights)
    filters = [dict(q, axis=1) for q in formats()] + [dict(q, axis=0, flatten=True) for q in blocks()]
    constants_alone(f"{weights} filters", (40, 1, 37, 1), filters, w, weights)
    r = np.random.default_rng(5)
    grids = []
    for q in formats():
        if "scale" in q and not q["format"].startswith(("int32", "uint32", "int:bits=24")):
            low = 0 if "uint" in q["format"] or "signed=0" in q["format"] else -1
            for shape, more in (((40, 1), {"axis": 0}), ((40, 5), {"axis": 1, "block_size": 8}), ((5, 37), {"axis": 0, "block_size": 8})):
                count = shape[0] * shape[1]
                grids.append(dict(q, scale=[float(np.float32(v)) for v in 0.01 + r.random(count)], zero_point=[int(v) for v in r.integers(low, 2, count)], **more))
    for f in ("fp8_e4m3", "fp6_e3m2", "fp4_e2m1", "fp8_e4m3fn", "float:exponent=6,mantissa=9"):
        grids.append({"format": f, "axis": 1, "scale": [float(np.float32(v)) for v in 0.01 + r.random(37)]})
        grids.append({"format": f, "axis": 0, "block_size": 16, "scale": [float(np.float32(v)) for v in 0.01 + r.random(3 * 37)]})
    constants_alone(f"{weights} matrix with many scales", (40, 37), grids, w, weights)


if __name__ == "__main__":
    evidence.main()
