# SPDX-License-Identifier: Apache-2.0
"""A conversion of a checkpoint keeps every factor of a weight, or ends with exit status 2; what it cannot keep of single numbers it says; lint sees it.

Values are computed here by numpy, those of each system's own layout by make_files.py.
"""
import itertools
import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, run

import numpy as np
import pytest

import make_files as make

rng = np.random.default_rng(3)
place = None


@pytest.fixture(autouse=True)
def in_place(folder):
    global place
    place = folder


def save(name, tensors, config=None):
    folder = place / name
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(make.safetensors(tensors))
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder / "model.safetensors"


def floats(file):
    done = run("convert", file, place / "floats.npz", "--overwrite")
    return (dict(np.load(place / "floats.npz")) if done.returncode == 0 else {}), done.stderr


def findings(file):
    done = run("lint", file, "--json")
    return {(f["tensor"], f["kind"]) for f in json.loads(done.stdout)["findings"]} if done.returncode in (0, 1) else {("", done.stderr)}


def keeps(a, b, least, what):
    """`b` is `a` but for rounding: no factor between them, and enough decibels."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    error, power = ((a - b) ** 2).sum(), (a**2).sum()
    db = 999 if error == 0 else 10 * np.log10(power / error)
    check(a.shape == b.shape and db > least, f"{what}: {db:.1f} dB, a factor of {(a * b).sum() / power:.4g}")


def test_every_pair_of_layouts():
    """All layouts of one shape, each written --like each: the same values, or exit status 2."""
    made = make.Checkpoints(21)
    n, k = 128, 256
    all_of = {"modelopt_nvfp4": made.modelopt_nvfp4(n, k), "modelopt_fp8": made.modelopt_fp8(n, k), "modelopt_fp8_2d": made.modelopt_fp8_2d(n, k), "modelopt_fp8_channel": made.modelopt_fp8_channel(n, k),
              "modelopt_mxfp8": made.modelopt_mxfp8(n, k), "modelopt_mxfp4": made.modelopt_mxfp4(n, k), "modelopt_int4_awq": made.modelopt_int4_awq(n, k), "compressed_nvfp4": made.compressed_nvfp4(n, k),
              "compressed_mxfp4": made.compressed_mxfp4(n, k), "compressed_mxfp6": made.compressed_mxfp6(n, k), "compressed_int4": made.compressed_int(4, 64, False, n=n, k=k),
              "compressed_int4_asym": made.compressed_int(4, 64, True, n=n, k=k), "compressed_int8": made.compressed_int8(n, k), "deepseek": made.deepseek(n, k), "deepseek_ue8m0": made.deepseek(n, k, True),
              "mlx_affine4": made.mlx_affine(4, 64, n=n, k=k), "mlx_mxfp4": made.mlx_floats("mxfp4", n, k), "mlx_nvfp4": made.mlx_floats("nvfp4", n, k), "mlx_mxfp8": made.mlx_floats("mxfp8", n, k),
              "gptq": made.gptq(4, 64, n=n, k=k), "gptq_v2": made.gptq(4, 64, 2, n=n, k=k), "gptq_shuffled": made.gptq(4, 64, shuffled=True, n=n, k=k), "awq": made.awq(64, n, k)}
    # The scales of blocks within a few binades, so that a coarser layout still has most of a matrix.
    for tensors, _, _ in all_of.values():
        for name, (kind, a, *rest) in list(tensors.items()):
            if name.endswith(("weight_scale", "weight_scale_inv", ".scales")) and a.dtype == np.uint8:
                tensors[name] = (kind, (a % 4 + (116 if kind == "U8" and "mlx_nv" not in name or kind == "F8_E8M0" else 88)).astype(np.uint8), *rest)
    files, values = {}, {}
    for name, (tensors, config, _) in all_of.items():
        files[name] = save(name, tensors, config)
        values[name], said = floats(files[name])
        check("m.w.weight" in values[name], f"{name}: {said}")
    moved = 0
    for a, b in itertools.product(files, files):
        out = place / "pair"
        out.mkdir(exist_ok=True)
        (out / "config.json").write_bytes((files[b].parent / "config.json").read_bytes())
        done = run("convert", files[a], out / "model.safetensors", "--like", files[b])
        check(done.returncode in (0, 2), f"{a} like {b}: exit {done.returncode}")
        if done.returncode:
            continue
        moved += 1
        got, said = floats(out / "model.safetensors")
        wanted = values[a]["m.w.weight"].astype(np.float64)
        factor = values[a].get("m.w.pre_quant_scale")
        if factor is not None and "m.w.pre_quant_scale" not in got:
            wanted = wanted * factor
            check("pre_quant_scale" in done.stderr, f"{a} like {b}: a factor is applied, and nothing is said")
        keeps(wanted, got.get("m.w.weight", np.zeros(1)), 50 if a == b else 10, f"{a} like {b}: {done.stderr.splitlines()[:1]} {said}")
    check(moved > len(files) * 6, f"only {moved} pairs are converted")


def test_factors_of_the_input():
    """ModelOpt's pre_quant_scale is in the values wherever the target has no place for it, and dropped there; else it stays beside."""
    made = make.Checkpoints(5)
    for maker in (made.modelopt_int4_awq, made.modelopt_nvfp4):
        tensors, config, want = maker(32, 256)
        factor = (2.0 ** rng.integers(-3, 4, 256)).astype(np.float32)
        tensors["m.w.pre_quant_scale"] = ("F32", factor)
        file = save("awq_of_modelopt", tensors, config)
        check(not findings(file), f"pre_quant_scale is explained: {findings(file)}")
        weight = want["m.w.weight"]
        got, _ = floats(file)
        keeps(weight, got["m.w.weight"], 200, "ModelOpt's own weight in a .npz")
        check(np.array_equal(got["m.w.pre_quant_scale"], factor), "the factor beside it in a .npz")
        for name, options, least in (("o.gguf", ("--format", "q8_0"), 30), ("o.gguf", ("--format", "f32"), 200), ("o.gguf", (), 10), ("o.safetensors", ("--format", "bf16"), 40), ("o.safetensors", ("--tensor", "m.w.weight=f32"), 200)):
            done = run("convert", file, place / name, *options)
            got, said = floats(place / name)
            check(done.returncode == 0 and "pre_quant_scale" in done.stderr, f"{name} {options}: {done.returncode} {done.stderr}")
            scale = got.get("m.w.scale", np.float32(1))
            keeps(weight * factor, got.get("m.w.weight", np.zeros(1)) * scale, least, f"{name} {options}")
            check("m.w.pre_quant_scale" not in got, f"{name} {options}: a factor that is applied stays beside")
        done = run("compare", file, place / "o.safetensors", "--json")
        row = next(r for r in json.loads(done.stdout)["tensors"] if r["tensor"] == "m.w.weight")
        check(row["values_differ"] == 0, f"compare takes the factor for a difference: {row}")
        run("convert", file, place / "same.safetensors", "--like", file)
        (place / "config.json").write_text(json.dumps(config))
        got, _ = floats(place / "same.safetensors")
        check(np.array_equal(got["m.w.pre_quant_scale"], factor), "written like itself the factor stays")
        keeps(weight, got["m.w.weight"], 200, "written like itself")
        (place / "config.json").unlink()
    tensors["m.w.pre_quant_scale"] = ("F32", factor[:7])
    check(("m.w.pre_quant_scale", "wrong_shape") in findings(save("short_factor", tensors, config)), "a factor of another length is found")


def test_scales_beside_fp8():
    codes = rng.integers(0, 126, (8, 32)).astype(np.uint8)
    for leaf, more in (("scale_weight", {"scaled_fp8": ("F8_E4M3", np.zeros(0, np.uint8)), "a.scale_input": ("F32", np.float32(1))}), ("qscale_weight", {"a.qscale_act": ("F32", np.float32(1))})):
        for scale in (np.float32(0.001), (rng.random((8, 1)) * 0.01 + 1e-4).astype(np.float32)):
            file = save(leaf, {**more, "a.weight": ("F8_E4M3", codes), f"a.{leaf}": ("F32", scale)})
            got, said = floats(file)
            keeps(make.E4M3[codes] * scale, got.get("a.weight", np.zeros(1)), 120, f"{leaf}: {said}")
            check(not findings(file), f"{leaf}: {findings(file)}")


def test_scale_of_a_gguf():
    """llama.cpp multiplies what comes out of NAME.weight by NAME.scale; one for each expert where there are several."""
    for kind in ("NVFP4", "Q8_0", "F16"):
        for shape, scale in (((4, 256), np.array([0.25], np.float32)), ((3, 4, 256), np.array([0.5, 3.0, 0.01], np.float32))):
            count = int(np.prod(shape))
            if kind == "F16":
                raw, want = (x := rng.standard_normal(shape).astype(np.float16)).tobytes(), x.astype(np.float32)
            else:
                _, values, size, places = make.GGUF_TYPES[kind]
                b = rng.integers(1, 120, (count // values, size)).astype(np.uint8)
                for at in places:
                    b[:, at : at + 2] = np.full((len(b), 1), 0.01, "<f2").view(np.uint8)
                raw, want = b.tobytes(), make.decode_gguf(kind, b).astype(np.float32).reshape(shape)
            (place / "s.gguf").write_bytes(make.gguf({"blk.0.a.weight": (kind, shape, raw), "blk.0.a.scale": ("F32", scale.shape, scale.tobytes())}))
            wanted = want * scale.reshape(-1, *[1] * (len(shape) - 1))
            got, said = floats(place / "s.gguf")
            keeps(wanted, got.get("blk.0.a.weight", np.zeros(1)), 140, f"{kind} {shape} with a scale: {said}")
            check("blk.0.a.scale" not in got, f"{kind}: a scale that is applied is a tensor, too")
            run("convert", place / "s.gguf", place / "t.gguf", "--format", "bf16")
            got, _ = floats(place / "t.gguf")
            keeps(wanted, got["blk.0.a.weight"], 40, f"{kind} {shape} with a scale to bf16")
            run("convert", place / "s.gguf", place / "u.gguf", "--like", place / "s.gguf")
            check((place / "s.gguf").read_bytes() == (place / "u.gguf").read_bytes(), f"{kind}: written like itself")


def test_numbers_that_a_format_has_not():
    """The sentences count what really happened: finite numbers that became Inf or NaN, and NaN and Inf that became numbers."""
    x = rng.standard_normal((4, 512)).astype(np.float64)
    x[1, 7], x[2, 300:340] = 1e5, -3e4
    nan = x.copy()
    nan[0, 3], nan[3, 9] = np.nan, np.inf
    large = x.copy()
    large[3, 4] = 1e300
    for type_of, values in (("F32", x), ("F32", nan), ("F32", nan * 1e-6), ("F64", large), ("F64", x), ("BF16", nan)):
        stored = make.bfloat_bytes(values.astype(np.float32)) if type_of == "BF16" else values
        with np.errstate(over="ignore"):
            source = save("numbers", {"w.weight": (type_of, stored)})
        original = make.bfloat(values.astype(np.float32)).astype(np.float64) if type_of == "BF16" else values
        for format in ("f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q6_k", "tq1_0", "tq2_0", "iq4_nl", "mxfp4", "nvfp4", "q1_0", "q2_0"):
            for out in ("o.gguf", "o.safetensors") if format in ("f16", "bf16") else ("o.gguf",):
                done = run("convert", source, place / out, "--format", format)
                got, _ = floats(place / out)
                y = got["w.weight"]
                overflowed, invented = int((np.isfinite(original) & ~np.isfinite(y)).sum()), int((~np.isfinite(original) & np.isfinite(y)).sum())
                said = {word: int(m[1]) if (m := re.search(rf"w\.weight: (\d+) of 2048 numbers are {word}", done.stderr)) else 0 for word in ("finite", "Inf or NaN")}
                check(said == {"finite": overflowed, "Inf or NaN": invented}, f"{type_of} to {format}: {overflowed} and {invented}, said {done.stderr}")
                if format in ("f16", "bf16"):
                    check(np.array_equal(np.isnan(original), np.isnan(y)), f"{type_of} to {format}: NaN")
                if overflowed:
                    check(any(kind in ("infinite_code", "nan_code", "infinite_scale", "nan_scale") for _, kind in findings(place / out)), f"lint does not see the Inf or NaN of {format}")
        done = run("convert", source, place / "o.npz", "--overwrite")
        check(("are finite, and" in done.stderr) == (values is large), f"{type_of} to a .npz: {done.stderr}")
        check(("w.weight", "infinite_code") in findings(source) or (np.isfinite(original).all() and values is not large), f"{type_of}: lint of Inf: {findings(source)}")
    payloads = np.array([[sign << 31 | 0x7F800000 | p for sign in (0, 1) for p in (1, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x400000, 0x7FFFFF)]], np.uint32).view(np.float32)
    source = save("payloads", {"w.weight": ("F32", payloads)})
    for format in ("f16", "bf16"):
        run("convert", source, place / "o.safetensors", "--format", format)
        check(np.isnan(floats(place / "o.safetensors")[0]["w.weight"]).all(), f"{format}: NaN whose payload is dropped")
    scales = np.array([[1e6]], np.float32)  # beyond float16, in which GPTQ's scales are
    tensors, config, _ = make.Checkpoints(2).gptq(4, 64, n=32, k=192)
    plain = rng.standard_normal((32, 192)).astype(np.float32)
    plain[3] *= scales[0]
    done = run("convert", save("gptq_overflow_source", {"m.w.weight": ("F32", plain)}), place / "o.safetensors", "--like", save("gptq_overflow", tensors, config))
    check(done.returncode == 2 or "m.w.weight: 192 of" in done.stderr, f"scales that become Inf: {done.returncode} {done.stderr}")


def test_packings_of_auto_round():
    """Zero points as each of its packings stores them (auto_round/inference/backend.py), at every width it has."""
    for bits, packing in itertools.product((2, 4, 8), ("auto_round:auto_gptq", "auto_round:gptqmodel", "auto_round", None, "auto")):
        q, z, s = rng.integers(0, 1 << bits, (32, 64)), rng.integers(1, 1 << bits, (32, 2)), (rng.random((32, 2)) * 0.1 + 0.01).astype(np.float16)
        less = 0 if packing in ("auto_round:gptqmodel", "auto_round") else 1
        stream = lambda codes: make.stream(np.ascontiguousarray(codes).astype(np.uint8), bits, 32).view("<i4")
        tensors = {"a.qweight": ("I32", stream(q).T), "a.qzeros": ("I32", stream((z - less).T)), "a.scales": ("F16", s.T)}
        config = {"quant_method": "auto-round", "bits": bits, "group_size": 32, "sym": False, **({"packing_format": packing} if packing else {})}
        got, said = floats(save("auto_round", tensors, {"quantization_config": config}))
        keeps((q - np.repeat(z, 32, 1)) * np.repeat(s.astype(np.float64), 32, 1), got.get("a.weight", np.zeros(1)), 120, f"{packing}, {bits} bits: {said}")
    tensors, _, want = make.Checkpoints(2).awq()
    got, said = floats(save("auto_round_awq", tensors, {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4, "group_size": 64, "sym": False}}))
    keeps(want["m.w.weight"], got.get("m.w.weight", np.zeros(1)), 200, f"auto_round:auto_awq: {said}")
    for maker, more in ((make.Checkpoints(2).compressed_nvfp4, {"data_type": "nv_fp", "group_size": 16}), (make.Checkpoints(2).compressed_mxfp4, {"data_type": "mx_fp", "group_size": 32})):
        tensors, _, want = maker()
        if "m.w.weight_global_scale" in tensors:
            tensors["m.w.input_global_scale"] = ("F32", np.array([100], np.float32))
        file = save("auto_round_fp4", tensors, {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:llm_compressor", "bits": 4, "sym": True, "act_bits": 4, **more}})
        got, said = floats(file)
        keeps(want["m.w.weight"], got.get("m.w.weight", np.zeros(1)), 200, f"auto_round:llm_compressor: {said}")
        check(not findings(file), f"auto_round:llm_compressor: {findings(file)}")
    codes, rows = make.Checkpoints(2).fp8(8, 64), make.bfloat(rng.random(8).astype(np.float32) * 0.01)
    tensors = {"a.weight": ("F8_E4M3", codes), "a.weight_scale": ("BF16", make.bfloat_bytes(rows)), "a.input_scale": ("BF16", make.bfloat_bytes(rows[:1]))}
    file = save("auto_round_fp8", tensors, {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:fp8_static", "data_type": "fp", "bits": 8, "group_size": -1, "sym": True}})
    keeps(make.E4M3[codes] * rows[:, None], floats(file)[0].get("a.weight", np.zeros(1)), 40, "auto_round:fp8_static")
    check(not findings(file), f"auto_round:fp8_static: {findings(file)}")
    tensors, config, want = make.Checkpoints(2).mlx_affine(4, 64)
    got, said = floats(save("auto_round_mlx", tensors, {**config, "quantization_config": {"quant_method": "auto-round", "packing_format": "mlx", "bits": 4, "group_size": 64, "sym": True}}))
    keeps(want["m.w.weight"], got.get("m.w.weight", np.zeros(1)), 200, f"auto-round's mlx: {said}")


def test_what_is_not_read():
    """Codes of writers and packings that are not known are refused by every conversion, in a sentence that names them."""
    gptq, _, _ = make.Checkpoints(2).gptq(4, 64)
    mx4, _, _ = make.Checkpoints(2).compressed_mxfp4()
    nibbles = {"a.weight": ("U8", rng.integers(0, 256, (16, 32)).astype(np.uint8))}
    rest = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    cases = {
        **{m: (gptq, {"quant_method": m, "bits": 4, "group_size": 64}) for m in ("exl3", "hqq", "aqlm", "quanto", "never_heard_of")},
        "gptq_p": (make.Checkpoints(2).gptq(3, 64)[0], {**rest, "bits": 3, "checkpoint_format": "gptq_p"}), "marlin": (gptq, {**rest, "checkpoint_format": "marlin"}), "is_marlin_format": (gptq, {**rest, "is_marlin_format": True}),
        "mx_int": (mx4, {"quant_method": "auto-round", "data_type": "mx_int", "packing_format": "auto_round", "bits": 4, "group_size": 32}),
        "E5M3": (mx4, {"quant_method": "auto-round", "data_type": "nv_fp", "packing_format": "auto_round:llm_compressor_nvfp4_e5m3", "bits": 4, "group_size": 16}),
        "gemv": (make.Checkpoints(2).awq()[0], {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv"}),
        "gemv_fast": (make.Checkpoints(2).awq()[0], {"quant_method": "awq", "bits": 4, "group_size": 64, "checkpoint_format": "gemv_fast"}),
        "whole codes in a word": ({"a.weight_packed": ("I32", np.zeros((16, 7), np.int32)), "a.weight_scale": ("BF16", np.full((16, 1), 0x3F80, np.uint16)), "a.weight_shape": ("I64", np.array([16, 64]))},
                                  {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights": {"num_bits": 3, "type": "int", "symmetric": True}}}}),
        "bitsandbytes": ({**nibbles, "a.weight.absmax": ("F32", np.ones(8, np.float32)), "a.weight.quant_map": ("F32", np.ones(16, np.float32))}, {"quant_method": "bitsandbytes"}),
        "bitnet": ({**nibbles, "a.weight_scale": ("BF16", np.full(1, 0x3F80, np.uint16))}, {"quant_method": "bitnet"}),
        "Quark": ({"a.weight": ("I32", np.zeros((16, 4), np.int32)), "a.weight_scale": ("F32", np.ones((32, 2), np.float32))}, {"quant_method": "quark"}),
        "torchao": ({"a._weight_qdata": ("F8_E4M3", np.zeros((8, 32), np.uint8)), "a._weight_scale": ("F32", np.ones((8, 1), np.float32))}, None),
        "ComfyUI": ({**nibbles, "a.weight_scale": ("F8_E4M3", np.full((16, 4), 0x38, np.uint8)), "a.comfy_quant": ("U8", np.frombuffer(b'{"format": "nvfp4"}', np.uint8))}, None),
    }
    for word, (tensors, config) in cases.items():
        file = save("unread", tensors, {"quantization_config": config} if config else None)
        for words in (("o.npz",), ("o.gguf", "--format", "q8_0"), ("o.safetensors", "--format", "bf16")):
            done = run("convert", file, place / words[0], *words[1:], *(("--overwrite",) if words[0] == "o.npz" else ()))
            check(done.returncode == 2 and word.lower() in done.stderr.lower(), f"{word} to {words[0]}: exit {done.returncode}: {done.stderr}")
        check(run("lint", file).returncode == 1, f"{word}: lint finds nothing")
    codes = {"a.trellis": ("I32", np.zeros((4, 4), np.int32)), "a.suh": ("F16", np.ones(64, np.float16)), "n.weight": ("F32", np.ones(4, np.float32))}
    done = run("convert", save("exl3", codes, {"quantization_config": {"quant_method": "exl3"}}), place / "o.safetensors", "--format", "bf16")
    check("exl3" in done.stderr, f"a file in which no weight is known: {done.stderr}")


def test_what_lint_finds():
    base = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
    for bits, version, stored in itertools.product((2, 3, 4, 8), ("gptq", "gptq_v2"), (-1, 0)):
        middle = 1 << (bits - 1)
        stream = lambda codes: make.stream(np.ascontiguousarray(codes).astype(np.uint8), bits, 32).view("<i4")
        tensors = {"a.qweight": ("I32", stream(rng.integers(0, 1 << bits, (32, 64))).T), "a.qzeros": ("I32", stream(np.full((2, 32), middle + stored))), "a.scales": ("F16", np.full((2, 32), 0.01, np.float16))}
        found = findings(save("version", tensors, {"quantization_config": {**base, "bits": bits, "checkpoint_format": version}}))
        wrong = (stored == 0) == (version == "gptq")
        check((("a.qzeros", "wrong_zero_point") in found) == wrong and len(found) == wrong, f"{bits} bits, {version}, stored {middle + stored}: {found}")
        check(not findings(save("version", tensors, {"quantization_config": {**base, "bits": bits, "checkpoint_format": version, "sym": False}})), "zero points of asymmetric codes are any")
    gptq, _, _ = make.Checkpoints(2).gptq(4, 32)
    gptq["m.w.scales"] = ("F16", -gptq["m.w.scales"][1])
    check(not findings(save("negative", gptq, {"quantization_config": {**base, "sym": False}})), "negative scales of integers")
    for change, count in (({"group_size": 0}, 1), ({"group_size": -128}, 1), ({"bits": "four"}, 1), ({"bits": 0}, 1), ({"bits": 4.5}, 1), ({"group_size": "32"}, 1), ({"group_size": None}, 0), ({}, 0)):
        found = findings(save("senseless", gptq, {"quantization_config": {**base, "sym": False, **change}}))
        check(len(found) == count and all(k == "config_mismatch" for _, k in found), f"{change}: {found}")
    mx8 = {"a.weight": ("F8_E4M3", rng.integers(0, 126, (8, 64)).astype(np.uint8)), "a.weight_scale_inv": ("U8", rng.integers(110, 120, (8, 2)).astype(np.uint8))}
    check(not findings(save("mxfp8", mx8, {"quantization_config": {"quant_method": "mxfp8"}})), "FP8 under mxfp8")
    for kind in ("F16", "F32", "BF16", "F64"):
        x = np.ones((2, 4))
        x[0, 1], x[1, 1] = np.inf, np.nan
        stored = make.bfloat_bytes(x.astype(np.float32)) | np.where(np.isnan(x), 0x40, 0).astype(np.uint16) if kind == "BF16" else x
        found = findings(save("plain", {"a.weight": (kind, stored)}))
        check(found == {("a.weight", "infinite_code"), ("a.weight", "nan_code")}, f"{kind}: {found}")
    nvfp4, config, _ = make.Checkpoints(2).modelopt_nvfp4()
    for tensors, its_config in ((nvfp4, config), ({"m.w.weight": ("F32", np.ones((4, 8), np.float32))}, None)):
        for leaf in ("foo_scale", "smooth", "svdquant_lora_a", "weight_zero_point"):
            file = save("unexplained", {**tensors, f"m.w.{leaf}": ("F32", np.ones(4, np.float32))}, its_config)
            check(findings(file) == {(f"m.w.{leaf}", "unexplained")}, f"{leaf}: {findings(file)}")
            done = run("convert", file, place / "o.npz", "--overwrite")
            check(f"m.w.{leaf}" in done.stderr, f"convert does not name {leaf}: {done.stderr}")
    many = {f"l.{i}.w.{leaf}": ("F32", np.ones((4, 8) if leaf == "weight" else 4, np.float32)) for i in range(40) for leaf in ("weight", "bias", "foo_scale")}
    done = run("convert", save("many", many), place / "o.npz", "--overwrite")
    check(len(done.stderr.strip().splitlines()) == 2 and "39 more" in done.stderr, f"forty tensors in one line, before that of every conversion: {done.stderr}")
    norm = {"n.weight": ("F32", np.ones(4, np.float32)), "n.bias": ("F32", np.ones(4, np.float32)), "n.running_mean": ("F32", np.ones(4, np.float32)), "m.A_log": ("F32", np.ones(4, np.float32))}
    check(not findings(save("norm", norm)), f"what belongs to floats: {findings(save('norm', norm))}")
    index = place / "index"
    index.mkdir()
    for k in (1, 2):
        (index / f"m-0000{k}-of-00002.safetensors").write_bytes(make.safetensors({f"w{k}.weight": ("F32", np.ones((2, 2), np.float32))}))
    for places, wrong in (((1, 2), 0), ((2, 1), 1)):
        (index / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {f"w{k}.weight": f"m-0000{p}-of-00002.safetensors" for k, p in zip((1, 2), places)}}))
        check(run("lint", index / "m.safetensors.index.json").returncode == 2 * wrong, "an index that names the wrong shards")
        check(run("lint", index / "m-00001-of-00002.safetensors").returncode == wrong, "a shard that its index puts elsewhere")


if __name__ == "__main__":
    evidence.main()
