# SPDX-License-Identifier: Apache-2.0
"""qk reads checkpoints of every system to the floats that they mean, writes them again with the same bytes, and says what is wrong with bad ones.

The files are made by make_files.py, which decodes them by numpy; those of ../shared/checkpoints are read, too, where they are.
"""
import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, check, command, decibels, ok, run

import numpy as np
import pytest

import make_files as make
from make_files import stored


def same(a, b):
    return evidence.same(*(np.ascontiguousarray(v, np.float32) for v in (a, b)))


def rounded(values, key):
    return make.bfloat(values) if key.endswith(".bfloat16") else values


def decodes(file, wanted, folder):
    """Every weight of `wanted` comes out of `qk convert FILE OUT.npz`."""
    out = folder / "out.npz"
    if ok("convert", file, out).returncode != 0:
        return
    got = np.load(out)
    for key in wanted:
        name = key.removesuffix(".float32").removesuffix(".bfloat16")
        check(name in got.files, f"{file}: {name} is not in the .npz")
        if name in got.files:
            check(same(rounded(got[name], key), wanted[key]), f"{file}: {key} has other values")


def written_again(file, folder):
    """convert A B --like A, with A's configs beside B."""
    copy = folder / "copy"
    copy.mkdir(exist_ok=True)
    for old in copy.iterdir():
        old.unlink()
    for config in file.parent.glob("*.json"):
        (copy / config.name).write_bytes(config.read_bytes())
    again = copy / file.name
    if ok("convert", file, again, "--like", file).returncode != 0:
        return
    if file.suffix == ".safetensors":
        check(stored(file) == stored(again), f"{file}: written again, its tensors have other bytes")
    else:
        check(file.read_bytes() == again.read_bytes(), f"{file}: written again, it has other bytes")
    done = ok("compare", file, again, "--json")
    if done.returncode == 0:
        check(json.loads(done.stdout)["equal"], f"{file}: qk compare finds differences from its copy")


@pytest.fixture(scope="module")
def root(shared):
    make.main(shared / "made")
    return shared / "made"


def test_made_files(root, folder):
    files = sorted(root.glob("*/model.safetensors")) + sorted(root.glob("gguf/*.gguf"))
    for file in files:
        decoded = file.parent / "decoded.npz" if file.suffix == ".safetensors" else file.with_suffix(".decoded.npz")
        decodes(file, np.load(decoded), folder)
        written_again(file, folder)
        done = ok("lint", file)
        check("nothing found" in done.stdout, f"{file}: qk lint says {done.stdout.strip()}")
        shown = ok("inspect", file, "--json")
        if shown.returncode == 0:
            check(len(json.loads(shown.stdout)["weights"]) >= 1, f"{file}: qk inspect shows no weights")


def test_shards(folder):
    """Codes in one shard, scales in the other; a GGUF in two parts."""
    made = make.Checkpoints(3)
    tensors, config, floats = made.modelopt_nvfp4()
    place = folder / "shards"
    place.mkdir()
    names = list(tensors)
    for number, part in enumerate((names[:1], names[1:]), 1):
        (place / f"model-{number:05d}-of-00002.safetensors").write_bytes(make.safetensors({k: tensors[k] for k in part}))
    index = {"metadata": {}, "weight_map": {k: f"model-{1 if k in names[:1] else 2:05d}-of-00002.safetensors" for k in names}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    (place / "config.json").write_text(json.dumps(config))
    decodes(place / "model.safetensors.index.json", floats, folder)
    index["weight_map"]["m.other.weight"] = "model-00001-of-00002.safetensors"
    (place / "wrong.index.json").write_text(json.dumps(index))
    done = run("lint", place / "wrong.index.json")
    check(done.returncode == 2 and "m.other.weight" in done.stderr, f"an index that names a missing tensor: {done.stderr}")
    index["weight_map"] = {k: "../" + v for k, v in index["weight_map"].items()}
    (place / "outside.index.json").write_text(json.dumps(index))
    done = run("inspect", place / "outside.index.json")
    check(done.returncode == 2 and "not beside" in done.stderr, f"an index that leads out of its folder: {done.stderr}")

    tensors, floats = make.gguf_tensors(5)
    names = list(tensors)
    for number, part in enumerate((names[:7], names[7:])):
        keys = [("split.no", 2, struct.pack("<H", number)), ("split.count", 2, struct.pack("<H", 2)), ("split.tensors.count", 5, struct.pack("<i", len(names)))]
        (place / f"m-{number + 1:05d}-of-00002.gguf").write_bytes(make.gguf({k: tensors[k] for k in part}, keys=keys))
    for number in (1, 2):
        decodes(place / f"m-{number:05d}-of-00002.gguf", floats, folder)
    ok("convert", place / "m-00001-of-00002.gguf", place / "whole.gguf", "--like", place / "m-00001-of-00002.gguf")
    decodes(place / "whole.gguf", floats, folder)
    (place / "m-00002-of-00002.gguf").unlink()
    done = run("inspect", place / "m-00001-of-00002.gguf")
    check(done.returncode == 2 and "m-00002-of-00002.gguf" in done.stderr, f"a split GGUF without its second part: {done.stderr}")


def test_sharded_output(root, folder):
    """--shard-size: several files and their index, with the tensors that one file has; a split GGUF; nothing half done, no input lost."""
    place = folder / "cut"
    place.mkdir()
    made = make.Checkpoints(7)
    tensors = {f"m.{i}.weight": ("F32", made.rng.standard_normal((8, 64)).astype(np.float32)) for i in range(7)}
    (place / "a.safetensors").write_bytes(make.safetensors(tensors))
    floats = {k: v[1] for k, v in tensors.items()}
    ok("convert", place / "a.safetensors", place / "b.safetensors", "--shard-size", "5000")  # two tensors of 2048 bytes a file
    names = [f"b-{i:05d}-of-00004.safetensors" for i in range(1, 5)]
    check(sorted(f.name for f in place.glob("b*")) == [*names, "b.safetensors.index.json"], f"shards: {sorted(f.name for f in place.glob('*'))}")
    if (place / "b.safetensors.index.json").exists():
        index = json.loads((place / "b.safetensors.index.json").read_text())
        check(index["metadata"]["total_size"] == 7 * 2048, f"total_size {index['metadata']}")
        parts = {n: stored(place / n) for n in names}
        check(all(parts[f][k] == stored(place / "a.safetensors")[k] for k, f in index["weight_map"].items()) and len(index["weight_map"]) == 7, "shards hold other tensors than their index says")
        decodes(place / "b.safetensors.index.json", floats, folder)
        ok("convert", place / "b.safetensors.index.json", place / "c.safetensors", "--shard-size", "1GB", "--like", place / "a.safetensors")
        check((place / "c.safetensors").exists() and stored(place / "c.safetensors") == stored(place / "a.safetensors"), "shards put together again are another file")
        done = run("convert", place / "b.safetensors.index.json", place / "b.safetensors", "--shard-size", "5000")
        check(done.returncode == 2 and "INPUT" in done.stderr, f"shards in the place of their input: {done.stderr}")
        decodes(place / "b.safetensors.index.json", floats, folder)
    ok("convert", place / "a.safetensors", place / "one.safetensors", "--shard-size", "1")
    check(len(list(place.glob("one-*-of-00007.safetensors"))) == 7, "a tensor that is larger than a shard has one of its own")
    for bad in ("0", "0.2", "5 GB", "much", "5TB", "nan"):
        done = run("convert", place / "a.safetensors", place / "d.safetensors", "--shard-size", bad)
        check(done.returncode == 2 and "--shard-size" in done.stderr, f"--shard-size {bad}: {done.stderr}")
    done = run("convert", place / "a.safetensors", place / "d.npz", "--shard-size", "5GB")
    check(done.returncode == 2 and not list(place.glob("d*")), f"--shard-size for .npz: {done.stderr}")
    check(not list(place.glob(".*.part")), "sharded output leaves parts")
    whole = root / "gguf" / "little.gguf"
    wanted = np.load(whole.with_suffix(".decoded.npz"))
    ok("convert", whole, place / "g.gguf", "--shard-size", "3000")
    cut = sorted(place.glob("g-*.gguf"))
    check(len(cut) > 1, "a GGUF is not split")
    for file in cut[:1] + cut[-1:]:
        decodes(file, wanted, folder)
    if cut:
        ok("convert", cut[0], place / "h.gguf", "--like", cut[0])
        check((place / "h.gguf").exists() and (place / "h.gguf").read_bytes() == whole.read_bytes(), "a GGUF that was split and put together is another file")


def test_lone_files(root, folder):
    """Without a config, names and types tell most systems; the others' errors name the config."""
    needs = ("mlx_affine", "gptq")
    for file in sorted(root.glob("*/model.safetensors")):
        alone = folder / "alone.safetensors"
        alone.write_bytes(file.read_bytes())
        if file.parent.name.startswith(needs):
            done = run("convert", alone, folder / "never.npz")
            check(done.returncode == 2 and "config.json" in done.stderr, f"{file.parent.name} without its config: {done.stderr}")
            check(not (folder / "never.npz").exists(), f"{file.parent.name} without its config leaves a file")
        else:
            decodes(alone, np.load(file.parent / "decoded.npz"), folder)


def with_change(tensors, name, change):
    kind, array, *rest = tensors[name]
    return {**tensors, name: (kind, change(np.array(array)), *rest)}


def without(tensors, name):
    return {k: v for k, v in tensors.items() if k != name}


def test_findings(folder):
    """Files that read without complaint and are wrong: lint exits with 1 and names tensor and kind."""
    made = make.Checkpoints(9)
    nvfp4, config, _ = made.modelopt_nvfp4()
    packed, packed_config, _ = made.compressed_nvfp4()
    experts, _, _ = made.gpt_oss()
    fp8, fp8_config, _ = made.modelopt_fp8()
    mx, mx_config, _ = made.modelopt_mxfp8()
    big, big_config, _ = made.modelopt_nvfp4(256, 1024)
    rows = made.rng.integers(8, 118, 256).astype(np.uint8)
    linear = np.minimum(rows[:, None] + made.rng.integers(0, 4, (256, 64)), 126).astype(np.uint8)
    tiles = linear.reshape(2, 4, 32, 16, 4).transpose(0, 3, 2, 1, 4).reshape(256, 64)
    weights_only = {"quantization_config": {**config["quantization_config"], "quant_algo": "W4A16_NVFP4"}}
    activations = json.loads(json.dumps(packed_config))
    activations["quantization_config"]["config_groups"]["group_0"]["input_activations"] = {"num_bits": 4, "dynamic": "local"}

    def put(value, *at):
        def change(a):
            a[at if at else ()] = value
            return a
        return change

    scale, second = "m.w.weight_scale", "m.w.weight_scale_2"
    cases = {
        "missing scale": (without(nvfp4, scale), config, scale, "missing_scale"),
        "missing second scale": (without(nvfp4, second), config, second, "missing_scale"),
        "missing input scale": (without(nvfp4, "m.w.input_scale"), config, "m.w.input_scale", "activation_mismatch"),
        "input scale of weights only": (nvfp4, weights_only, "m.w.input_scale", "activation_mismatch"),
        "W4A16 described as W4A4": (packed, activations, "m.w.input_global_scale", "activation_mismatch"),
        "reciprocal": (with_change(nvfp4, second, put(np.float32(300))), config, second, "reciprocal_scale"),
        "reciprocal, divided": (with_change(packed, "m.w.weight_global_scale", put(np.float32(0.004))), packed_config, "m.w.weight_global_scale", "reciprocal_scale"),
        "reciprocal of FP8": (with_change(fp8, scale, put(np.float32(27))), fp8_config, scale, "reciprocal_scale"),
        "global 0": (with_change(nvfp4, second, put(np.float32(0))), config, second, "zero_scale"),
        "global Inf": (with_change(nvfp4, second, put(np.float32(np.inf))), config, second, "infinite_scale"),
        "global NaN": (with_change(nvfp4, second, put(np.float32(np.nan))), config, second, "nan_scale"),
        "NaN scale": (with_change(nvfp4, scale, put(0x7F, 3, 2)), config, scale, "nan_scale"),
        "negative scale": (with_change(nvfp4, scale, put(0x88, 3, 2)), config, scale, "negative_scale"),
        "scale 0": (with_change(nvfp4, scale, put(0, 3, 2)), config, scale, "zero_scale"),
        "NaN code": (with_change(fp8, "m.w.weight", put(0x7F, 2, 2)), fp8_config, "m.w.weight", "nan_code"),
        "code 255 of an MX scale": (with_change(mx, scale, put(255, 2, 1)), mx_config, scale, "nan_scale"),
        "scales transposed": ({**nvfp4, scale: ("F8_E4M3", nvfp4[scale][1].T)}, config, scale, "wrong_shape"),
        "scales for 32": ({**nvfp4, scale: ("F8_E4M3", nvfp4[scale][1][:, ::2])}, config, scale, "wrong_shape"),
        "scales as U8": ({**nvfp4, scale: ("U8", nvfp4[scale][1])}, config, scale, "wrong_type"),
        "scales missing of experts": (without(experts, "m.experts.down_proj_scales"), {}, "m.experts.down_proj_scales", "missing_scale"),
        "code 255 of experts": (with_change(experts, "m.experts.down_proj_scales", put(255, 1, 1, 1)), {}, "m.experts.down_proj_scales", "nan_scale"),
        "swizzled": ({**big, scale: ("F8_E4M3", tiles)}, big_config, scale, "swizzled_scale"),
        "quantized though left out": (nvfp4, {"quantization_config": {**config["quantization_config"], "ignore": ["m.w"]}}, "m.w.weight", "config_mismatch"),
        "another system's config": (nvfp4, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}, "m.w.weight", "config_mismatch"),
        "another group than the config's": (packed, {"quantization_config": {**packed_config["quantization_config"], "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}}}}, "m.w.weight", "config_mismatch"),
    }
    place = folder / "findings"
    place.mkdir()
    for what, (tensors, its_config, tensor, kind) in cases.items():
        (place / "model.safetensors").write_bytes(make.safetensors(tensors))
        (place / "config.json").write_text(json.dumps(its_config))
        done = run("lint", place / "model.safetensors", "--json")
        found = json.loads(done.stdout)["findings"] if done.returncode == 1 else []
        check(any(f["tensor"] == tensor and f["kind"] == kind and len(f["sentence"]) > 10 for f in found), f"{what}: exit {done.returncode}, {found or done.stderr}")
        lines = run("lint", place / "model.safetensors").stdout.splitlines()
        check(len(lines) == len(found) and all(f["tensor"] in line for f, line in zip(found, lines)), f"{what}: not a line for each finding")
    for what, tensors, its_config in (("linear scales that follow rows", {**big, scale: ("F8_E4M3", linear)}, big_config), ("weights only", without(nvfp4, "m.w.input_scale"), weights_only)):
        (place / "model.safetensors").write_bytes(make.safetensors(tensors))
        (place / "config.json").write_text(json.dumps(its_config))
        done = run("lint", place / "model.safetensors")
        check(done.returncode == 0, f"{what}: {done.stdout}")


def test_broken_files(folder):
    """Whatever the bytes, an error with a sentence: exit status 2, nothing written."""
    tensors, _, _ = make.Checkpoints(1).modelopt_nvfp4(8, 64)
    good = make.safetensors(tensors)
    head = good[8 : 8 + struct.unpack("<Q", good[:8])[0]].decode().rstrip()
    data = good[8 + len(head) + (-len(head) % 8) :]

    def with_head(text, body=data):
        raw = text.encode() if isinstance(text, str) else text
        return struct.pack("<Q", len(raw)) + raw + body

    cases = {"empty.safetensors": b"", "short.safetensors": good[:5], "cut_header.safetensors": good[:60], "cut_data.safetensors": good[:-3], "more.safetensors": good + b"1",
             "long.safetensors": struct.pack("<Q", 1 << 62) + good[8:], "past_end.safetensors": struct.pack("<Q", 10**6) + good[8:], "bom.safetensors": with_head(b"\xef\xbb\xbf{}   "),
             "list.safetensors": with_head("[1, 2]"), "utf8.safetensors": with_head(b'{"\xff\xfe":1}'), "no_json.safetensors": with_head('{"a": [1, 2'), "deep.safetensors": with_head('{"a":' + "[" * 5000),
             "type.safetensors": with_head(head.replace("F8_E4M3", "F5_E2M2")), "negative.safetensors": with_head(head.replace("[8,32]", "[-8,-32]")), "float.safetensors": with_head(head.replace("[8,32]", "[8.0,32]")),
             "overflow.safetensors": with_head(head.replace("[8,32]", "[8589934592,8589934592]")), "twice.safetensors": with_head(head.replace("m.w.weight_scale_2", "m.w.input_scale")),
             "other_shape.safetensors": with_head(head.replace("[8,32]", "[8,33]")), "metadata.safetensors": with_head('{"__metadata__":{"a":3},' + head[1:]), "no_shape.safetensors": with_head(head.replace('"shape":[8,32],', ""))}
    for name in ("overlap", "reversed", "hole"):
        j = json.loads(head)
        begin, end = j["m.w.weight_scale"]["data_offsets"]
        j["m.w.weight_scale"]["data_offsets"] = {"overlap": [0, end - begin], "reversed": [end, begin], "hole": [begin + 8, end + 8]}[name]
        cases[name + ".safetensors"] = with_head(json.dumps(j))

    part = make.gguf_tensors(2, kinds=["Q8_0"])[0]
    whole = make.gguf(part)
    names = list(part)
    at = whole.index(names[0].encode()) + len(names[0])  # of the number of dimensions

    def patched(offset, value):
        return whole[:offset] + value + whole[offset + len(value) :]

    info = at + 4 + 16  # two dimensions behind their number
    cases |= {"empty.gguf": b"", "magic.gguf": b"GGML" + whole[4:], "version0.gguf": patched(4, struct.pack("<I", 0)), "version1.gguf": patched(4, struct.pack("<I", 1)), "version99.gguf": patched(4, struct.pack("<I", 99)),
              "cut.gguf": whole[:20], "cut_keys.gguf": whole[:40], "cut_names.gguf": whole[: at + 2], "cut_data.gguf": whole[:-400], "tensors.gguf": patched(8, struct.pack("<Q", 1 << 62)),
              "keys.gguf": patched(16, struct.pack("<Q", 1 << 62)), "key_length.gguf": patched(24, struct.pack("<Q", 1 << 63)), "dimensions.gguf": patched(at, struct.pack("<I", 5)),
              "many_dimensions.gguf": patched(at, struct.pack("<I", 1 << 31)), "zero.gguf": patched(at + 4, struct.pack("<Q", 0)), "overflow.gguf": patched(at + 4, struct.pack("<QQ", 1 << 40, 1 << 40)),
              "ragged.gguf": patched(at + 4, struct.pack("<Q", 40)), "type.gguf": patched(info, struct.pack("<I", 200)), "removed.gguf": patched(info, struct.pack("<I", 4)),
              "misaligned.gguf": patched(info + 4, struct.pack("<Q", 8)), "past_end.gguf": patched(info + 4, struct.pack("<Q", 1 << 40)), "wraps.gguf": patched(info + 4, struct.pack("<q", -32)),
              "overlap.gguf": patched(whole.index(names[1].encode()) + len(names[1]) + 4 + 8 * 3 + 4, struct.pack("<Q", 0)), "twice.gguf": whole.replace(b"blk.0.bf16.weight", b"blk.0.q8_0.weight", 1),
              "alignment.gguf": make.gguf(part, keys=[("general.alignment", 4, struct.pack("<I", 24))]), "value_type.gguf": make.gguf(part, keys=[("x", 99, b"")]), "key_twice.gguf": make.gguf(part, keys=[("x", 0, b"1"), ("x", 0, b"1")]),
              "array.gguf": make.gguf(part, keys=[("x", 9, struct.pack("<IQ", 8, 1 << 60))]), "nested.gguf": make.gguf(part, keys=[("x", 9, struct.pack("<IQ", 9, 1) * 50)])}
    place = folder / "broken"
    place.mkdir()
    for name, raw in cases.items():
        (place / name).write_bytes(raw)
        for words in (("lint", place / name), ("inspect", place / name), ("convert", place / name, place / "out.npz"), ("compare", place / name, place / name)):
            done = run(*words)
            check(done.returncode == 2 and name in done.stderr and len(done.stderr) > len(name) + 10, f"{name}: {words[0]}: exit {done.returncode}: {done.stderr or done.stdout}")
    check(not [f for f in place.iterdir() if "npz" in f.name], "a conversion that failed leaves a file")


def test_other_formats(root, folder):
    """Codes that move to other layouts, and floats that are stored otherwise."""
    place = folder / "other"
    place.mkdir()
    values = lambda file: np.load(place / "v.npz") if ok("convert", file, place / "v.npz").returncode == 0 else {}
    for name, weight in (("modelopt_mxfp4", "m.w.weight"), ("mlx_mxfp4", "m.w.weight"), ("compressed_mxfp4", "m.w.weight")):
        ok("convert", root / name / "model.safetensors", place / "a.gguf", "--format", "mxfp4")
        got = values(place / "a.gguf")
        wanted = np.load(root / name / "decoded.npz")[weight]
        check(weight in got and same(got[weight], np.where(wanted == 0, np.float32(0), wanted)), f"{name} to mxfp4 blocks")
    ok("convert", root / "gpt_oss/model.safetensors", place / "experts.gguf", "--format", "mxfp4")
    got, wanted = values(place / "experts.gguf"), np.load(root / "gpt_oss/decoded.npz")["m.experts.down_proj"].transpose(0, 2, 1)
    check("m.experts.down_proj" in got and same(got["m.experts.down_proj"], np.where(wanted == 0, np.float32(0), wanted)), "GPT-OSS's experts to mxfp4 blocks")
    made = make.Checkpoints(4)
    tensors, config, floats = made.modelopt_nvfp4(24, 128)
    (place / "model.safetensors").write_bytes(make.safetensors(tensors))
    (place / "config.json").write_text(json.dumps(config))
    ok("convert", place / "model.safetensors", place / "n.gguf", "--format", "nvfp4")
    got = values(place / "n.gguf")
    check("m.w.scale" not in got and np.allclose(got["m.w.weight"], floats["m.w.weight"], rtol=1e-6), "ModelOpt's NVFP4 to nvfp4 blocks with a scale beside, which its reader multiplies in")
    ok("convert", root / "mlx_affine4/model.safetensors", place / "f.gguf", "--format", "f16", "--tensor", "*norm*=f32", "--tensor", "m.half=bf16")
    shown = {w["name"]: w["format"] for w in json.loads(ok("inspect", place / "f.gguf", "--json").stdout)["weights"]}
    check(shown == {"m.w.weight": "f16", "m.norm.weight": "f32", "m.half": "bf16"}, f"formats by globs: {shown}")
    ok("convert", root / "gguf/little.gguf", place / "f.safetensors", "--format", "f32")
    got, wanted = values(place / "f.safetensors"), np.load(root / "gguf/little.decoded.npz")
    check(all(k in got and same(got[k], wanted[k]) for k in wanted), "a GGUF as float32 safetensors")
    done = run("compare", root / "gguf/little.gguf", place / "f.safetensors", "--json")
    check(done.returncode == 0 and json.loads(done.stdout)["equal"], f"its blocks and its floats compare equal: {done.stdout[:300]}")
    changed = dict(tensors)
    changed["m.w.weight"] = ("U8", tensors["m.w.weight"][1] ^ np.eye(24, 64, dtype=np.uint8))
    (place / "changed.safetensors").write_bytes(make.safetensors(changed))
    done = run("compare", place / "model.safetensors", place / "changed.safetensors", "--json")
    row = [r for r in json.loads(done.stdout)["tensors"] if r["tensor"] == "m.w.weight"][0]
    check(done.returncode == 1 and row["codes_differ"] == 24 and 0 < row["db"] < 60, f"24 codes differ: {row}")


def put_file(place, tensors, config):
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config))
    (place / "model.safetensors").write_bytes(make.safetensors(tensors))
    return place / "model.safetensors"


def decibels(x, y):
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    finite = np.isfinite(x)
    error = ((x - y)[finite] ** 2).sum()
    return np.inf if error == 0 else 10 * np.log10((x[finite] ** 2).sum() / error)


def transcoded(source, wanted, target, config, place):
    """Converts --like `target` or to the block format `target`; returns the row of the weight and the decibels by our own count."""
    for old in place.iterdir():
        old.unlink()
    out = place / ("o.gguf" if isinstance(target, str) else "model.safetensors")
    (place / "config.json").write_text(json.dumps(config or {}))
    words = ("convert", source, out, *(("--format", target) if isinstance(target, str) else ("--like", target)))
    done = ok(*words, "--json")
    if done.returncode != 0 or ok("convert", out, place / "o.npz").returncode != 0:
        return None
    said = json.loads(done.stdout)
    row = said["rows"][0]
    got = np.load(place / "o.npz")["m.w.weight"]
    own = decibels(wanted, got)
    line = done.stderr.strip().splitlines()[-1]
    check("without loss" in line and "quantized anew" in line and (np.isinf(own) or f"worst {row['db']:.2f} dB (m.w.weight)" in line), f"{words}: the last line is {line}")
    check(np.isinf(own) if row["db"] is None else abs(row["db"] - own) < 0.01, f"{words}: {row['db']} dB are said, and {own} are measured")
    check(said["weights"] == said["without_loss"] + said["rounded"] + said["quantized_anew"], f"{words}: {said}")
    raw = out.read_bytes()
    refused = run(*words[:2], place / ("kept" + out.suffix), *words[3:], "--lossless")
    check(refused.returncode == (0 if row["without_loss"] else 2), f"{words} --lossless: exit {refused.returncode}: {refused.stderr}")
    if refused.returncode == 2:
        check("m.w.weight" in refused.stderr and "--lossless" in refused.stderr and not list(place.glob("*kept*")), f"{words} --lossless: {refused.stderr}")
    again = ok(*words[:2], place / ("r" + out.suffix), *words[3:], "--requantize", "--json")
    if again.returncode == 0:
        anew = json.loads(again.stdout)["rows"][0]
        check((place / ("r" + out.suffix)).read_bytes() == raw or row["how"] == "rounded", f"{words} --requantize makes other bytes: {anew}")
        check(anew["how"] == ("quantized" if row["how"] == "rounded" else row["how"]), f"{words} --requantize: {anew}")
    return row, own, place / out.name


def test_transcodings(folder):
    """Codes are moved where the other layout holds code, scale and zero point; scales and biases are rounded where that is less than
    quantizing anew; the rest is quantized anew; and each says how many decibels it cost."""
    place = folder / "transcoded"
    place.mkdir()
    made = make.Checkpoints(21)
    n, k = 64, 256

    def symmetric(maker, zeros, fill, *arguments, **more):  # zero points in the middle
        tensors, config, _ = maker(*arguments, n=n, k=k, **more)
        kind, array = tensors[zeros]
        return {**tensors, zeros: (kind, np.full_like(array, np.array(fill, np.uint32).astype(np.int32)))}, config

    sources = {f"gptq{b}v{v}": made.gptq(b, 64, v, n=n, k=k)[:2] for b, v in ((2, 1), (3, 2), (4, 1), (4, 2), (8, 1))}
    sources["gptq4 shuffled"] = made.gptq(4, 64, 1, True, n=n, k=k)[:2]
    for name in ("gptq4v1", "gptq4 shuffled"):  # the second version has no zero point 16
        kind, zeros = sources[name][0]["m.w.qzeros"]
        sources[name][0]["m.w.qzeros"] = kind, np.ascontiguousarray(zeros) & 0x77777777
    sources["gptq4 symmetric"] = symmetric(made.gptq, "m.w.qzeros", 0x77777777, 4, 64)
    sources["awq"] = made.awq(128, n=n, k=k)[:2]
    sources["awq symmetric"] = symmetric(made.awq, "m.w.qzeros", 0x88888888, 64)
    for bits in (2, 3, 4, 8):
        for scale in ("BF16", "F16"):
            sources[f"ct{bits} {scale}"] = made.compressed_int(bits, 64, False, scale, n=n, k=k)[:2]
    sources["ct4 BF16 zeros"] = made.compressed_int(4, 128, True, n=n, k=k)[:2]
    sources["deepseek"], sources["deepseek powers"] = made.deepseek(n, k)[:2], made.deepseek(n, k, ue8m0=True)[:2]
    sources["modelopt nvfp4"], sources["modelopt mxfp4"] = made.modelopt_nvfp4(n, k)[:2], made.modelopt_mxfp4(n, k)[:2]
    targets = {f"mlx{b} {t}": made.mlx_affine(b, 32, t, n=n, k=k)[:2] for b in (2, 3, 4, 8) for t in ("F16", "BF16")}
    targets |= {f"gptq{b}v{v}": made.gptq(b, 64, v, n=n, k=k)[:2] for b in (3, 4, 8) for v in (1, 2)}
    targets |= {"gptq4 shuffled": made.gptq(4, 64, 2, True, n=n, k=k)[:2], "awq": made.awq(64, n=n, k=k)[:2], "mlx8 wide": made.mlx_affine(8, 64, "F16", n=n, k=k)[:2]}
    targets |= {"ct4 BF16": made.compressed_int(4, 64, False, n=n, k=k)[:2], "ct4 zeros": made.compressed_int(4, 64, True, "F16", n=n, k=k)[:2]}
    targets |= {f"mlx {m}": made.mlx_floats(m, n, k)[:2] for m in ("mxfp8", "nvfp4", "mxfp4")}
    block, block_config = made.compressed({"m.w.weight": ("F8_E4M3", made.fp8(n, k)), "m.w.weight_scale": ("BF16", make.bfloat_bytes(made.scales(1, 2)))}, {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]})
    targets["ct fp8 blocks"] = block, block_config
    files = {}
    for kind, all_of_kind in (("s", sources), ("t", targets)):
        for name, (tensors, config) in all_of_kind.items():
            files[kind, name] = put_file(folder / f"{kind} {name}", tensors, config)
    floats = {}
    for name in sources:
        ok("convert", files["s", name], place / "s.npz")
        floats[name] = np.load(place / "s.npz")["m.w.weight"]
    half, brain = 55, 40  # readers that multiply in float16 or bfloat16 round more than the conversion does
    table = [
        ("gptq4 symmetric", "mlx4 F16", "moved", half), ("awq symmetric", "mlx4 F16", "moved", half), ("ct4 F16", "mlx4 F16", "moved", half), ("ct4 BF16", "mlx4 BF16", "moved", brain),
        ("ct4 BF16", "mlx4 F16", "moved", brain), ("ct4 F16", "mlx4 BF16", "rounded", brain), ("gptq4v1", "mlx4 F16", "rounded", half), ("awq", "mlx4 F16", "rounded", half), ("ct4 BF16 zeros", "mlx4 BF16", "rounded", brain),
        ("gptq2v1", "mlx2 F16", "rounded", half), ("gptq3v2", "mlx3 F16", "rounded", half), ("gptq8v1", "mlx8 F16", "rounded", half), ("gptq4v2", "mlx8 wide", "moved", half), ("ct8 F16", "mlx8 F16", "moved", half),
        ("ct2 BF16", "mlx2 BF16", "moved", brain), ("ct3 BF16", "mlx3 BF16", "moved", brain), ("gptq4 shuffled", "mlx4 F16", "quantized", 14), ("gptq8v1", "mlx4 F16", "quantized", 14),
        ("gptq4 symmetric", "q4_0", "moved", 140), ("gptq4 symmetric", "q4_1", "moved", 140), ("gptq4v1", "q5_1", "moved", 140), ("gptq4v1", "q5_0", "moved", 140), ("gptq4v2", "q8_0", "moved", 140), ("awq", "q8_0", "moved", half),
        ("gptq4v1", "q4_1", "rounded", half), ("gptq3v2", "q4_1", "moved", 140), ("gptq2v1", "q4_0", "moved", 140), ("awq", "q4_0", "quantized", 12), ("gptq8v1", "q8_0", "quantized", 35), ("ct8 F16", "q8_0", "moved", half), ("gptq4 shuffled", "q4_1", "quantized", 14),
        ("awq symmetric", "ct4 BF16", "rounded", brain), ("awq", "ct4 BF16", "quantized", 10), ("ct4 BF16 zeros", "ct4 BF16", "quantized", 10), ("ct4 F16", "ct4 zeros", "moved", 140), ("awq symmetric", "ct4 zeros", "moved", 140), ("ct4 F16", "awq", "moved", half),
        ("gptq4v1", "gptq4v2", "moved", 140), ("gptq4v2", "gptq8v1", "moved", 140), ("gptq4v1", "gptq3v1", "quantized", 8), ("gptq4 shuffled", "gptq4v2", "moved", 140), ("gptq4v1", "gptq4 shuffled", "moved", 140), ("gptq3v2", "gptq4 shuffled", "moved", 140),
        ("deepseek powers", "mlx mxfp8", "moved", 140), ("deepseek", "mlx mxfp8", "quantized", 25), ("deepseek", "ct fp8 blocks", "rounded", brain), ("modelopt nvfp4", "mlx nvfp4", "quantized", 12), ("modelopt mxfp4", "mlx mxfp4", "moved", 140),
    ]
    for name, target, how, least in table:
        known = ("t", target) in files
        done = transcoded(files["s", name], floats[name], files["t", target] if known else target, targets[target][1] if known else None, place)
        if done is not None:
            check(done[0]["how"] == how and done[1] >= least, f"{name} to {target}: {done[0]}, {done[1]:.2f} dB; {how} and {least} dB or more are expected")
    # biases that are whole multiples of their scales go back to zero points
    done = transcoded(files["s", "gptq4 symmetric"], floats["gptq4 symmetric"], files["t", "mlx4 F16"], targets["mlx4 F16"][1], place)
    (folder / "back").mkdir()
    mlx = put_file(folder / "mlx again", {k: (v[0], np.frombuffer(v[2], make.TYPES[v[0]]).reshape(v[1])) for k, v in stored(done[2]).items()}, targets["mlx4 F16"][1])
    ok("convert", mlx, place / "m.npz")
    back = transcoded(mlx, np.load(place / "m.npz")["m.w.weight"], "q4_0", None, folder / "back")
    check(back[0]["how"] == "moved", f"MLX to q4_0: {back[0]}")


def test_what_conversions_say(folder):
    """One line for whatever is true of many weights; numbers of floats that are rounded; --json and the options that exclude each other."""
    place = folder / "said"
    place.mkdir()
    made = make.Checkpoints(22)
    x = {f"m.{i}.weight": made.rng.standard_normal((8, 40)).astype(np.float32) for i in range(20)}
    file = put_file(place / "a", {k: ("F32", v) for k, v in x.items()}, {})
    done = ok("convert", file, place / "b.gguf", "--format", "q8_0")
    check(len(done.stderr.strip().splitlines()) == 2 and "m.0.weight (and likewise 19 more): rows of 40" in done.stderr, f"20 weights with one remark: {done.stderr}")
    other = put_file(place / "b", {"m.norm": ("F32", np.ones(4)), "m.0.weight": ("F32", x["m.0.weight"])}, {})  # one name in common
    done = ok("convert", file, place / "c.safetensors", "--like", other)
    check(len(done.stderr.strip().splitlines()) == 3 and "20 weights: 20 without loss" in done.stderr and "no value differs" in done.stderr, f"20 weights that stay: {done.stderr}")
    said = json.loads(ok("convert", file, place / "d.safetensors", "--format", "bf16", "--json").stdout)
    own = [decibels(v, make.bfloat(v)) for v in x.values()]
    check(abs(said["worst_db"] - min(own)) < 1e-3 and abs(said["mean_db"] - np.mean(own)) < 1e-3 and said["worst"] == f"m.{int(np.argmin(own))}.weight" and said["rounded"] == 20, f"bfloat16: {said}")
    again = json.loads(ok("convert", place / "d.safetensors", place / "e.safetensors", "--format", "f32", "--lossless", "--json").stdout)
    check(again["without_loss"] == 20 and again["worst"] is None, f"bfloat16 to float32: {again}")
    ok("convert", place / "e.safetensors", place / "f.safetensors", "--format", "bf16", "--lossless")  # the data fit
    npz = json.loads(ok("convert", file, place / "g.npz", "--json").stdout)
    check(npz["weights"] == npz["without_loss"] == 20, f"to .npz: {npz}")
    large = put_file(place / "l", {"m.w.weight": ("F32", np.array([[1e6, 1, -2, 3]], np.float32))}, {})
    said = json.loads(ok("convert", large, place / "h.safetensors", "--format", "f16", "--json").stdout)
    check(said["not_finite"] == 1 and said["worst_db"] < 1e-6, f"a value beyond float16: {said}")
    check(run("convert", file, place / "i.safetensors", "--format", "bf16", "--lossless").returncode == 2 and not list(place.glob("*i.safetensors*")), "--lossless to bfloat16")
    done = run("convert", file, place / "i.safetensors", "--lossless", "--requantize")
    check(done.returncode == 2 and "--requantize" in done.stderr, f"--lossless with --requantize: {done.stderr}")
    np.save(place / "x.npy", np.ones((2, 32), np.float32))
    for option in ("--lossless", "--requantize", "--json"):
        done = run("convert", place / "x.npy", place / "y.npy", "--format", "mxfp4", option)
        check(done.returncode == 2 and option in done.stderr and not (place / "y.npy").exists(), f"{option} for an array: {done.stderr}")


def test_stopped_and_resumed(folder):
    """A run that is killed is taken up by the next, and the file is that of a run that was not."""
    place = folder / "resumed"
    place.mkdir()
    made = make.Checkpoints(6)
    tensors = {f"m.{i}.weight": ("BF16", made.rng.integers(0, 0x7F80, (1024, 4096)).astype(np.uint16)) for i in range(24)}
    (place / "a.safetensors").write_bytes(make.safetensors(tensors))
    ok("convert", place / "a.safetensors", place / "whole.npz")
    for _ in range(20):
        working = subprocess.Popen([command(), "convert", place / "a.safetensors", place / "b.npz"], stderr=subprocess.DEVNULL)
        while working.poll() is None and not any(f.stat().st_size > 60_000_000 for f in place.glob(".b.npz.qk-*.part")):
            time.sleep(0.001)
        working.send_signal(signal.SIGKILL)
        if working.wait() == -signal.SIGKILL:
            break
        (place / "b.npz").unlink()
    done = ok("convert", place / "a.safetensors", place / "b.npz")
    check("were there" in done.stderr, f"nothing of a killed run is used: {done.stderr}")
    check((place / "whole.npz").read_bytes() == (place / "b.npz").read_bytes(), "a resumed conversion gives another file")
    check(not list(place.glob(".*.part")), "a resumed conversion leaves its part")
    # A forked process counts the memory of this one, so a small one starts the command.
    measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:]); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", measure, command(), "convert", place / "a.safetensors", place / "c.npz"], capture_output=True, text=True)
    peak = int(done.stdout.split()[-1])
    check(peak < 150_000, f"converting 200 MB takes {peak} kB of memory at its peak")


def gguf_data(file):
    """The bytes of the last tensor, which ends the file but for its padding; of a file with one tensor."""
    raw = Path(file).read_bytes()
    keys, at = struct.unpack("<Q", raw[16:24])[0], 24
    for _ in range(keys):
        at += 8 + struct.unpack("<Q", raw[at : at + 8])[0]
        kind, at = struct.unpack("<I", raw[at : at + 4])[0], at + 4
        at += 8 + struct.unpack("<Q", raw[at : at + 8])[0] if kind == 8 else {4: 4, 5: 4, 10: 8}[kind]
    at += 8 + struct.unpack("<Q", raw[at : at + 8])[0]
    at += 4 + 8 * struct.unpack("<I", raw[at : at + 4])[0] + 4 + 8
    return raw[at + -at % 32 :]


def test_encoded_by_ggml(folder):
    """Where ggml's answers are: the blocks that qk writes are those that ggml made."""
    goldens = ROOT.parent / "shared" / "goldens2"
    for codes in sorted(goldens.glob("ggml.*.normal256.codes.npy")):
        if ".imatrix." in codes.name:
            continue
        kind = codes.name.split(".")[1].lower()
        (folder / "x.safetensors").write_bytes(make.safetensors({"x.weight": ("F32", np.load(goldens / "input.normal256.npy"))}))
        if ok("convert", folder / "x.safetensors", folder / "x.gguf", "--format", kind).returncode == 0:
            wanted = np.load(codes).tobytes()
            check(gguf_data(folder / "x.gguf")[: len(wanted)] == wanted, f"{kind}: other blocks than ggml's")


def test_formats_for_a_size(folder):
    """sensitivity ranks formats by their error, search keeps to its bytes, and convert takes the plan."""
    rng = np.random.default_rng(8)
    tensors = {"a.weight": ("F32", rng.standard_normal((16, 512)).astype(np.float32)), "b.weight": ("F32", rng.standard_normal((64, 512)).astype(np.float32) ** 3), "n.weight": ("F32", rng.random(8).astype(np.float32))}
    file = folder / "sizes.safetensors"
    file.write_bytes(make.safetensors(tensors))
    done = ok("sensitivity", "--weights-only", file, "--formats", "q4_0,q8_0,q6_k", "--json")
    rows = {(r["tensor"], r["format"]): r for r in json.loads(done.stdout)["rows"]} if done.returncode == 0 else {}
    check(len(rows) == 6, f"six rows for two matrices: {list(rows)}")
    for name in ("a.weight", "b.weight"):
        ok("convert", file, folder / "q.gguf", "--format", "q4_0")
        got, x = np.load(folder / "q.npz") if ok("convert", folder / "q.gguf", folder / "q.npz").returncode == 0 else {}, tensors[name][1].astype(np.float64)
        db = 10 * np.log10((x**2).sum() / ((x - got[name]) ** 2).sum())
        check(abs(rows[name, "q4_0"]["db"] - db) < 1e-6, f"{name}: {rows[name, 'q4_0']['db']} dB for {db}")
    for budget in (25_000, 40_000, 10**6, 1000):
        done = run("search", file, "--budget", budget, "--formats", "q4_0,q8_0", "--save-plan", folder / "p.json", "--json")
        found = json.loads(done.stdout)
        check(done.returncode == (1 if budget == 1000 else 0) and (budget == 1000 or found["bytes"] <= budget), f"budget {budget}: {found}")
    ok("convert", file, folder / "p.gguf", "--plan", folder / "p.json")
    shown = {w["name"]: w["format"] for w in json.loads(ok("inspect", folder / "p.gguf", "--json").stdout)["weights"]}
    check(shown == {"a.weight": "q8_0", "b.weight": "q8_0", "n.weight": "f32"}, f"a plan for the largest budget: {shown}")
    done = run("sensitivity", file)
    check(done.returncode == 2 and "--weights-only" in done.stderr, f"a checkpoint without --weights-only: {done.stderr}")


def test_like_other_systems(root, folder):
    """Floats become what another checkpoint has, by its system's own rule: what is already on its grid keeps its values."""
    place = folder / "like"
    place.mkdir()
    for name in sorted(f.parent.name for f in root.glob("*/model.safetensors")):
        if name in ("gpt_oss", "modelopt_experts"):
            continue  # the experts have other names
        file = root / name / "model.safetensors"
        model = stored(file)
        made = make.Checkpoints(12)
        shape = np.load(root / name / "decoded.npz")["m.w.weight"].shape
        x = made.rng.standard_normal(shape).astype(np.float32) * 0.05
        plain = {"m.w.weight": ("F32", x)}
        for key in ("m.norm.weight", "m.half", "m.count"):
            kind, its_shape, raw = model[key]
            plain[key] = (kind, np.frombuffer(raw, make.TYPES[kind]).reshape(its_shape))
        (place / "plain.safetensors").write_bytes(make.safetensors(plain))
        (place / "config.json").write_bytes((root / name / "config.json").read_bytes())
        if ok("convert", place / "plain.safetensors", place / "made.safetensors", "--like", file).returncode != 0:
            continue
        got = stored(place / "made.safetensors")
        check({k: v[:2] for k, v in got.items()} == {k: v[:2] for k, v in model.items() if k not in ("m.w.input_scale", "m.w.pre_quant_scale")}, f"{name}: other tensors than its model")
        ok("convert", place / "made.safetensors", place / "made.npz")
        y = np.load(place / "made.npz")["m.w.weight"]
        db = 10 * np.log10((x.astype(np.float64) ** 2).sum() / ((x - y.astype(np.float64)) ** 2).sum())
        bits = next(int(w["format"][3:]) for w in json.loads(ok("inspect", file, "--json").stdout)["weights"] if w["name"] == "m.w.weight") if "int" in name or "_w" in name or "affine" in name else 4
        check(db > 6 * bits - 9, f"{name}: {db:.1f} dB after quantizing like it")


def test_codes_of_fp8(folder):
    """Floats become FP8 to nearest, ties to the even code, with -0; Inf is the largest number; NaN is 0x7f with its sign, as PyTorch has it."""
    place = folder / "fp8"
    place.mkdir()
    for kind, mantissa, bias, count in (("F8_E4M3", 3, 7, 0x7F), ("F8_E5M2", 2, 15, 0x7C)):
        field, fraction = np.arange(count) >> mantissa, np.arange(count) & ((1 << mantissa) - 1)
        grid = np.ldexp(fraction + np.where(field == 0, 0, 1 << mantissa), np.maximum(field, 1) - bias - mantissa).astype(np.float64)
        random = np.random.default_rng(5).integers(0, 1 << 32, 4000, np.uint32).view(np.float32)
        random = random[np.abs(random) <= float(grid[-1])]
        some = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, (3 * grid[1:] + grid[:-1]) / 4, np.abs(random), [np.inf]]).astype(np.float32)
        x = np.concatenate([some, -some, np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)])
        (place / "model.safetensors").write_bytes(make.safetensors({"m.w.weight": (kind, np.zeros((1, x.size), np.uint8)), "m.w.weight_scale": ("F32", np.float32(1))}))
        (place / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}))
        (place / "plain.safetensors").write_bytes(make.safetensors({"m.w.weight": ("F32", x.reshape(1, -1))}))
        if ok("convert", place / "plain.safetensors", place / "made.safetensors", "--like", place / "model.safetensors", "--overwrite").returncode != 0:
            continue
        made = stored(place / "made.safetensors")
        check(np.frombuffer(made["m.w.weight_scale"][2], np.float32)[0] == 1, f"{kind}: the largest number is that of the format, so the scale is 1")
        away = np.abs(np.minimum(np.abs(some.astype(np.float64)), grid[-1])[:, None] - grid[None, :])
        nearest = np.argmin(away, axis=1)  # the lower of two
        nearest += (nearest & 1) & (np.take_along_axis(away, np.minimum(nearest + 1, count - 1)[:, None], 1)[:, 0] == away.min(axis=1)) & (nearest + 1 < count)
        wanted = np.concatenate([nearest, nearest | 0x80, [0x7F, 0xFF, 0x7F, 0xFF]]).astype(np.uint8)
        wrong = np.flatnonzero(np.frombuffer(made["m.w.weight"][2], np.uint8) != wanted)
        check(wrong.size == 0, f"{kind}: {wrong.size} other codes, first of {x[wrong[:1]]}")


def test_shared_files(folder):
    root = ROOT.parent / "shared" / "checkpoints"
    if not root.is_dir():
        return
    for file in sorted(root.glob("*/model.safetensors")):
        decodes(file, np.load(file.parent / "decoded.npz"), folder)
        written_again(file, folder)
        check(run("lint", file).returncode == 0, f"{file}: qk lint finds something")
    for file in sorted(root.glob("gguf/*.gguf")):
        decoded = file.with_suffix(".decoded.npz")
        wanted = np.load(decoded) if decoded.exists() else {}
        if "weight_without_scale" in wanted:  # of one weight, and its NAME.scale
            wanted = {"blk.0.ffn_up.weight": wanted["weight_without_scale"] * wanted["scale"]}
        decodes(file, wanted, folder)
        written_again(file, folder)
    for file in sorted(root.glob("broken/*/*.*")):
        if file.suffix == ".json":
            continue
        done = run("lint", file)
        wanted = 0 if file.stem.startswith("good") else 1 if file.stem.startswith("lint_") else 2
        check(done.returncode == wanted and (wanted == 0 or len(done.stdout + done.stderr) > 20), f"{file}: exit {done.returncode}, {done.stdout}{done.stderr}")


if __name__ == "__main__":
    evidence.main()
