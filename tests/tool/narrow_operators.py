# SPDX-License-Identifier: Apache-2.0
"""com.microsoft's operators on codes of 2, 4 and 8 bits: QMoE, GatherBlockQuantized and MatMulNBits, evaluated beside onnxruntime, written from plans and read back."""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, evaluated, qk
from evidence.graphs import model as made, save
from evidence.runtimes import outputs

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

random = np.random.default_rng(3)
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
FP4 = np.concatenate([FP4, -FP4])


def model(folder, node, inputs, constants, shape):
    file = folder / "m.onnx"
    save(file, [node], inputs, {"y": shape}, constants, opset=24, domains=["com.microsoft"])
    return file


def both(folder, file, inputs):
    """What qk and onnxruntime compute."""
    np.savez(folder / "x.npz", **inputs)
    return evaluated(file, folder / "x.npz"), outputs(file, inputs)[0]


def test_experts(folder):
    count, hidden, inner = 3, 64, 96
    for kind, block in (("fp4", 32), ("nvfp4", 16)):
        def layer(out, inputs):
            codes = random.integers(0, 16, (count, out, inputs)).astype(np.uint8)
            if kind == "fp4":
                scales = random.integers(122, 126, (count, out, inputs // block)).astype(np.uint8)
                value = np.exp2(scales.astype(np.float32) - 127)
            else:
                scales = random.uniform(0.05, 0.2, (count, out, inputs // block)).astype(ml_dtypes.float8_e4m3fn)
                value = scales.astype(np.float32)
            whole = random.uniform(0.5, 1.5, count).astype(np.float32)
            return codes[:, :, 0::2] | codes[:, :, 1::2] << 4, scales, whole, FP4[codes] * np.repeat(value, block, axis=2) * whole[:, None, None]
        (w1, s1, g1, v1), (w2, s2, g2, v2) = layer(2 * inner, hidden), layer(hidden, inner)
        type_of_scales = T.FLOAT8E8M0 if kind == "fp4" else T.FLOAT8E4M3FN
        constants = [nh.from_array(w1, "w1"), nh.from_array(w2, "w2"), nh.from_array(g1, "g1"), nh.from_array(g2, "g2"),
                     *(h.make_tensor(n, type_of_scales, s.shape, s.tobytes(), raw=True) for n, s in (("s1", s1), ("s2", s2)))]
        node = h.make_node("QMoE", ["x", "p", "w1", "s1", "", "w2", "s2", *[""] * 8, "g1", "g2"], ["y"], domain="com.microsoft", name="experts", quant_type=kind, k=1, weights_prepacked=1,
                           activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0, block_size=block)
        file = model(folder, node, [h.make_tensor_value_info("x", T.FLOAT, [8, hidden]), h.make_tensor_value_info("p", T.FLOAT, [8, count])], constants, [8, hidden])
        x, p = random.normal(size=(8, hidden)).astype(np.float32), random.normal(size=(8, count)).astype(np.float32)
        ours, theirs = both(folder, file, {"x": x, "p": p})
        share = np.exp(p - p.max(1, keepdims=True))
        share = (share / share.sum(1, keepdims=True)).max(1)
        def gated(u):
            gate, linear = np.minimum(u[0::2], 7), np.clip(u[1::2], -7, 7)
            return gate / (1 + np.exp(-1.702 * gate)) * (linear + 1)
        exact = np.stack([share[t] * (v2[e].astype(np.float64) @ gated(v1[e].astype(np.float64) @ x[t])) for t, e in enumerate(p.argmax(1))])
        check(decibels(ours, exact) > 110, f"QMoE {kind}: {decibels(ours, exact):.1f} dB beside its formula")
        # onnxruntime rounds activations to int8 there.
        check(decibels(theirs, exact) > 35, f"QMoE {kind}: onnxruntime is {decibels(theirs, exact):.1f} dB beside the formula")


def test_tables(folder):
    rows, width = 20, 64
    table = (random.normal(size=(rows, width)) * 2).astype(np.float32)
    inputs = [h.make_tensor_value_info("i", T.INT64, [5])]
    i = np.array([0, 3, 19, 3, -1], np.int64)
    for name, kind, codes in (("FP4", T.FLOAT4E2M1, table.astype(ml_dtypes.float4_e2m1fn)), ("FP8", T.FLOAT8E4M3FN, table.astype(ml_dtypes.float8_e4m3fn))):
        raw = codes.view(np.uint8)
        packed = (raw[:, 0::2] & 15 | raw[:, 1::2] << 4) if name == "FP4" else raw
        for block, shape in ((16, (rows, 4)), (0, (rows, 1)), (0, (1, 1))):
            scales = random.uniform(0.5, 2, shape).astype(np.float32)
            node = h.make_node("GatherBlockQuantized", ["t", "i", "s"], ["y"], domain="com.microsoft", name="table", block_size=block, gather_axis=0, quantize_axis=1)
            file = model(folder, node, inputs, [h.make_tensor("t", kind, [rows, width], packed.tobytes(), raw=True), nh.from_array(scales, "s")], [5, width])
            ours, theirs = both(folder, file, {"i": i})
            check(np.array_equal(ours, theirs), f"{name} in blocks of {block} under scales {shape}: {decibels(ours, theirs):.1f} dB beside onnxruntime")


def test_two_bits(folder):
    out, inputs, block = 24, 64, 32
    codes = random.integers(0, 4, (out, inputs)).astype(np.uint8)
    packed = codes[:, 0::4] | codes[:, 1::4] << 2 | codes[:, 2::4] << 4 | codes[:, 3::4] << 6
    scales = random.uniform(0.1, 0.3, (out, inputs // block)).astype(np.float32)
    node = h.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", name="product", K=inputs, N=out, bits=2, block_size=block)
    file = model(folder, node, [h.make_tensor_value_info("x", T.FLOAT, [8, inputs])], [nh.from_array(packed.reshape(out, inputs // block, block // 4), "w"), nh.from_array(scales.flatten(), "s")],
                 [8, out])
    x = random.normal(size=(8, inputs)).astype(np.float32)
    ours, theirs = both(folder, file, {"x": x})
    exact = x.astype(np.float64) @ ((codes.astype(np.float64) - 2) * np.repeat(scales, block, axis=1)).T
    check(decibels(ours, exact) > 110, f"2-bit MatMulNBits: {decibels(ours, exact):.1f} dB beside its formula")
    check(decibels(theirs, exact) > 35, f"2-bit MatMulNBits: onnxruntime is {decibels(theirs, exact):.1f} dB beside the formula")
    # Written from a plan, and read back.
    w = nh.from_array((random.normal(size=(inputs, out)) * 0.3).astype(np.float32), "w")
    save(folder / "f.onnx", [h.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"x": [8, inputs]}, {"y": [8, out]}, [w])
    qk("quantize", folder / "f.onnx", "-o", folder / "n.onnx", "--export", "nbits", "--weight", "int2", "--approach", "weight_only", "--weight-block", "32", "--save-plan",
       folder / "p.json", "--overwrite")
    nodes = [n for n in onnx.load(folder / "n.onnx").graph.node if n.op_type == "MatMulNBits"]
    check(len(nodes) == 1 and {a.name: a.i for a in nodes[0].attribute}["bits"] == 2, "a plan of int2 becomes MatMulNBits of 2 bits")
    ours, theirs = both(folder, folder / "n.onnx", {"x": x})
    check(decibels(theirs, ours) > 35, f"written 2-bit MatMulNBits: {decibels(theirs, ours):.1f} dB")


def there_and_back(folder, name, source, inputs, arguments, wanted, beside_runtime):
    """Writes a plan with style nbits, evaluates it here and in onnxruntime, and reads the plan back. Returns the file's model."""
    qk("quantize", source, "-o", folder / "n.onnx", "--export", "nbits", "--approach", "weight_only", "--save-plan", folder / "p.json", "--overwrite", *arguments)
    ours, theirs = both(folder, folder / "n.onnx", inputs)
    written = onnx.load(folder / "n.onnx")
    check(sum(n.op_type == wanted for n in written.graph.node) == 1, f"{name} becomes {wanted}")
    check(decibels(theirs, ours) > beside_runtime, f"{name}: onnxruntime at {decibels(theirs, ours):.1f} dB beside qk")
    planned = decibels(ours, evaluated(source, folder / "x.npz", "--plan", folder / "p.json"))
    check(planned > 60 if ours.dtype == np.float16 else planned > 110, f"{name}: the file at {planned:.1f} dB beside the plan")
    qk("inspect", folder / "n.onnx", "--save-plan", folder / "back.json", "--save-float", folder / "plain.onnx", "--overwrite")
    back = decibels(evaluated(folder / "plain.onnx", folder / "x.npz", "--plan", folder / "back.json"), ours)
    check(back > 60 if ours.dtype == np.float16 else back > 110, f"{name}: what was read back at {back:.1f} dB beside the file")
    plain = onnx.load(folder / "plain.onnx")
    check(not any(n.op_type == wanted for n in plain.graph.node), f"{name}: the float model has no {wanted}")
    qk("quantize", folder / "plain.onnx", "--plan", folder / "back.json", "-o", folder / "again.onnx", "--export", "nbits", "--overwrite")
    again = onnx.load(folder / "again.onnx")
    codes = [sorted(t.raw_data for t in m.graph.initializer if t.data_type in (T.UINT8, T.FLOAT4E2M1, T.FLOAT8E4M3FN, T.FLOAT8E5M2)) for m in (written, again)]
    # A block of MXFP8 whose largest value was rounded down may have half the scale then, and twice the numbers.
    check((codes[0] == codes[1] or "mxfp8" in name) and len(codes[0]) > 0, f"{name}: read back and written again, the codes are the same")
    return written


def moe(activation, hidden=64, inner=96, bias=False, half=False, third=False):
    """A model of experts in floats."""
    count, fused = 3, activation == "swiglu"
    kind, number = (T.FLOAT16, np.float16) if half else (T.FLOAT, np.float32)
    def weights(name, *shape):
        return nh.from_array((random.normal(size=shape) * 0.2).astype(number), name)
    constants = [weights("w1", count, inner * (2 if fused else 1), hidden), weights("w2", count, hidden, inner)]
    names = ["x", "p", "w1", "", "w2", ""]
    if bias:
        constants += [weights("b1", count, inner * (2 if fused else 1)), weights("b2", count, hidden)]
        names[3], names[5] = "b1", "b2"
    if third:
        constants.append(weights("w3", count, inner, hidden))
        names += ["w3"]
    more = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0} if fused else {}
    node = h.make_node("MoE", names, ["y"], domain="com.microsoft", name="experts", k=2, activation_type=activation, normalize_routing_weights=1, **more)
    inputs = {"x": random.normal(size=(8, hidden)).astype(number), "p": random.normal(size=(8, count)).astype(number)}
    return made([node], [("x", kind, [8, hidden]), ("p", kind, [8, count])], [("y", kind, [8, hidden])], constants, domains=["com.microsoft"]), inputs


def test_written_experts(folder):
    exact, bytes_in_blocks = 100, 25  # onnxruntime rounds activations to int8 for some codes
    cases = [("int4", (), "silu", exact), ("int4", ("--weight-block", "32"), "silu", exact), ("uint4", ("--weight-block", "16"), "gelu", exact), ("int4", ("--weight-block", "48"), "relu", exact),
             ("int4", ("--weight-block", "64"), "swiglu", exact), ("int8", (), "identity", exact), ("int8", ("--weight-block", "32"), "relu", bytes_in_blocks),
             ("uint8", (), "swiglu", exact), ("int2", ("--weight-block", "16"), "swiglu", exact), ("uint2", ("--weight-block", "32"), "silu", bytes_in_blocks),
             ("mxfp4", (), "swiglu", bytes_in_blocks), ("nvfp4", (), "swiglu", bytes_in_blocks)]
    for at, (format, block, activation, beside) in enumerate(cases):
        source, inputs = moe(activation, bias=at % 2 == 1)
        onnx.save(source, folder / "f.onnx")
        what = f"experts of {' '.join((format, *block))}, {activation}"
        written = there_and_back(folder, what, folder / "f.onnx", inputs, ("--weight", format, *block), "QMoE", beside)
        node = next(n for n in written.graph.node if n.op_type == "QMoE")
        kind = {a.name: a.s.decode() for a in node.attribute if a.name == "quant_type"}["quant_type"]
        check(kind == {"mxfp4": "fp4", "nvfp4": "nvfp4"}.get(format, "int"), f"{what}: quant_type {kind}")
    source, inputs = moe("swiglu", bias=True, half=True)
    onnx.save(source, folder / "f.onnx")
    there_and_back(folder, "experts of a float16 model", folder / "f.onnx", inputs, ("--weight", "int4", "--weight-block", "32"), "QMoE", 50)
    # What onnxruntime's QMoE does not have on the CPU stays experts of floats, and a remark says why.
    for name, more, format, words in (("a third layer", {"third": True}, "int4", "third layer"), ("FP4 under silu", {}, "mxfp4", "swiglu alone"), ("5 bits", {}, "int:bits=5", "2, 4 or 8 bits"),
                                      ("48 inputs", {"hidden": 48, "inner": 80}, "nvfp4", "multiples of 32")):
        source, inputs = moe("swiglu" if name == "48 inputs" else "silu", **more)
        onnx.save(source, folder / "f.onnx")
        done = qk("quantize", folder / "f.onnx", "-o", folder / "n.onnx", "--export", "nbits", "--approach", "weight_only", "--weight", format, "--overwrite")
        check(words in done.stderr and "MoE" in [n.op_type for n in onnx.load(folder / "n.onnx").graph.node], f"{name}: experts stay MoE, and a remark says {words!r}")


def test_other_experts(folder):
    """Forms that onnxruntime runs on other devices alone: evaluated beside their formulas."""
    count, hidden, inner, block = 3, 64, 32, 32
    x, p = random.normal(size=(8, hidden)).astype(np.float32), random.normal(size=(8, count)).astype(np.float32)
    infos = [h.make_tensor_value_info("x", T.FLOAT, [8, hidden]), h.make_tensor_value_info("p", T.FLOAT, [8, count])]

    def packed(codes, bits):
        bits_of = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits].reshape(*codes.shape[:-1], -1)
        return np.packbits(bits_of, axis=-1, bitorder="little")

    def integers(name, out, inputs, bits):
        codes = random.integers(0, 1 << bits, (count, out, inputs)).astype(np.uint8)
        scales = random.uniform(0.02, 0.1, (count, out, inputs // block)).astype(np.float32)
        value = (codes.astype(np.float64) - (1 << bits - 1)) * np.repeat(scales, block, 2)
        return [nh.from_array(packed(codes, bits), f"w{name}"), nh.from_array(scales, f"s{name}")], value

    def floats(name, out, inputs, square):
        codes = (random.normal(size=(count, out, inputs)) * 4).astype(ml_dtypes.float8_e4m3fn)
        shape = (count, -(-out // square), -(-inputs // square)) if square else (count,)
        scales = random.uniform(0.02, 0.1, shape).astype(np.float32)
        each = np.repeat(np.repeat(scales, square, 1), square, 2)[:, :out, :inputs] if square else scales[:, None, None]
        made = [h.make_tensor(f"w{name}", T.FLOAT8E4M3FN, codes.shape, codes.tobytes(), raw=True), nh.from_array(scales, f"s{name}")]
        return made, codes.astype(np.float64) * each

    for name in ("3 bits", "4 and 8 bits", "fp8 in squares", "fp8", "geglu", "relu2", "a limit after the activation"):
        activation = name if name in ("geglu", "relu2") else "swiglu"
        fused = activation != "relu2"
        attributes = {"activation_type": activation, "k": 1, **({"swiglu_fusion": 1} if fused else {}), **({"swiglu_limit": 0.5} if activation == "swiglu" else {})}
        wide = inner * 2 if fused else inner
        if name.startswith("fp8"):
            square = 24 if "squares" in name else 0
            (first, v1), (second, v2) = floats(1, wide, hidden, square), floats(2, hidden, inner, square)
            attributes |= {"quant_type": "fp8"} | ({"block_size": square} if square else {})
            names = ["x", "p", "w1", "s1", "", "w2", "s2"] if square else ["x", "p", "w1", "", "", "w2", "", *[""] * 8, "s1", "s2"]
        else:
            own = {"3 bits": (3, 3), "4 and 8 bits": (4, 8)}.get(name, (4, 4))
            (first, v1), (second, v2) = integers(1, wide, hidden, own[0]), integers(2, hidden, inner, own[1])
            attributes |= {"block_size": block, "expert_weight_bits": own[0]} | ({"fc2_expert_weight_bits": own[1]} if own[0] != own[1] else {})
            names = ["x", "p", "w1", "s1", "", "w2", "s2"]
        if "limit" in name:
            attributes |= {"swiglu_limit_after_activation": 1}
        file = model(folder, h.make_node("QMoE", names, ["y"], domain="com.microsoft", name="experts", **attributes), infos, first + second, [8, hidden])
        np.savez(folder / "x.npz", x=x, p=p)
        share = np.exp(p - p.max(1, keepdims=True))
        share = (share / share.sum(1, keepdims=True)).max(1)

        def between(u):
            gate, linear = (u[0::2], u[1::2]) if fused else (u, None)
            if activation == "relu2":
                return np.maximum(gate, 0) ** 2
            if activation == "geglu":
                return gate / 2 * (1 + np.tanh(0.7978845608028654 * (gate + 0.044715 * gate ** 3))) * linear
            linear = np.clip(linear, -0.5, 0.5)
            if "limit" in name:
                return np.minimum(gate / (1 + np.exp(-gate)), 0.5) * linear
            gate = np.minimum(gate, 0.5)
            return gate / (1 + np.exp(-gate)) * linear
        exact = np.stack([share[t] * (v2[e] @ between(v1[e] @ x[t])) for t, e in enumerate(p.argmax(1))])
        found = decibels(evaluated(file, folder / "x.npz"), exact)
        check(found > 110, f"QMoE, {name}: {found:.1f} dB beside its formula")
        if activation == "swiglu" and not name.startswith("fp8"):
            qk("inspect", file, "--save-plan", folder / "p.json", "--save-float", folder / "plain.onnx", "--overwrite")
            found = decibels(evaluated(folder / "plain.onnx", folder / "x.npz", "--plan", folder / "p.json"), exact)
            check(found > 110, f"QMoE, {name}: read back at {found:.1f} dB beside its formula")


def test_written_products(folder):
    """MatMulNBits of every width, with zero points, blocks that the inputs do not fill, and accuracy levels."""
    for bits in (2, 4, 8):
        for format, block, depth in ((f"int{bits}", "32", 64), (f"uint{bits}", "32", 80), (f"uint{bits}", "16", 72), (f"int{bits}", "128", 200)):
            w = nh.from_array((random.normal(size=(depth, 24)) * 0.3 + 0.1).astype(np.float32), "w")
            save(folder / "f.onnx", [h.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"x": [8, depth]}, {"y": [8, 24]}, [w])
            x = random.normal(size=(8, depth)).astype(np.float32)
            there_and_back(folder, f"product of {format} in blocks of {block}, {depth} inputs", folder / "f.onnx", {"x": x}, ("--weight", format, "--weight-block", block),
                           "MatMulNBits", 25 if bits == 2 else 100)


def test_written_tables(folder):
    for format, block in (("int2", "16"), ("int4", "32"), ("uint4", "32"), ("int8", "16"), ("uint8", "32"), ("fp8_e4m3fn", "32"), ("fp8_e5m2", ""), ("fp4_e2m1", "16"), ("mxfp4", ""), ("nvfp4", ""),
                          ("mxfp8_e4m3", "")):
        table, w = (nh.from_array((random.normal(size=shape) * 0.3).astype(np.float32), n) for n, shape in (("table", (40, 64)), ("w", (64, 16))))
        nodes = [h.make_node("Gather", ["table", "i"], ["e"], name="embedding"), h.make_node("MatMul", ["e", "w"], ["y"], name="head")]
        save(folder / "f.onnx", nodes, [("i", T.INT64, [7])], {"y": [7, 16]}, [table, w])
        asked = {"format": format, "block_size": int(block)} if block else format
        (folder / "r.json").write_text(json.dumps({"qk": "requests", "version": 1, "requests": [{"tensor": "table", "format": asked}]}))
        there_and_back(folder, f"a table of {format} {block}", folder / "f.onnx", {"i": np.array([0, 3, 39, 3, 7, 12, 1], np.int64)}, ("--plan", folder / "r.json"), "GatherBlockQuantized", 110)


if __name__ == "__main__":
    evidence.main()
