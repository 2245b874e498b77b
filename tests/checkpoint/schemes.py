# SPDX-License-Identifier: Apache-2.0
"""qk convert --to SYSTEM:SCHEME makes checkpoints that lint finds nothing in, that decode to about the same floats, and whose config fits.

AWQ's and GPTQ's words are decoded by numpy, too; tests/checkpoint/peers.py has the other systems' own readers do it.
"""
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, decibels, ok, run

import numpy as np
import pytest

import llama_files as llama
import make_files as make
from make_files import stored

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Scheme: decibels that weights of normal numbers keep at least.
SCHEMES = {"compressed-tensors:W4A16": 18, "compressed-tensors:W4A16_ASYM": 18, "compressed-tensors:W8A16": 42, "compressed-tensors:W8A8": 40, "compressed-tensors:FP8_DYNAMIC": 30,
           "compressed-tensors:FP8_BLOCK": 30, "compressed-tensors:NVFP4A16": 19, "compressed-tensors:MXFP4A16": 16, "compressed-tensors:MXFP8A16": 28, "modelopt:nvfp4": 19, "modelopt:fp8": 30,
           "awq:4,128": 18, "awq:4,32": 20, "gptq:4,128": 18, "gptq:2,32": 5, "gptq:3,64": 12, "gptq:8,32": 42, "mlx:2,64": 5, "mlx:3,64": 12, "mlx:4,64": 19, "mlx:4,32": 20, "mlx:5,64": 25, "mlx:6,128": 30,
           "mlx:8,64": 40, "mlx:mxfp4": 15, "mlx:mxfp8": 28, "mlx:nvfp4": 18}

# Those whose scales have the type of the floats, and two that have a type of their own.
OF_EACH_TYPE = ("compressed-tensors:W4A16_ASYM", "compressed-tensors:W8A8", "compressed-tensors:FP8_BLOCK", "mlx:4,64", "mlx:6,128", "awq:4,128", "modelopt:nvfp4")


def refused(what, *arguments, says=()):
    """The run ends with 2 and a sentence that has every word, and writes nothing."""
    before = {f: f.read_bytes() for f in Path(arguments[1]).parent.iterdir()}
    done = run("convert", *arguments)
    check(done.returncode == 2 and all(word in done.stderr for word in says), f"{what}: exit {done.returncode}: {done.stderr.strip()}")
    check({f: f.read_bytes() for f in Path(arguments[1]).parent.iterdir()} == before, f"{what}: something was written")


def decoded(file, folder):
    out = folder / "decoded.npz"
    return dict(np.load(out)) if ok("convert", file, out).returncode == 0 else {}


def same(a, b):
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())


def made_by(scheme, source, folder, *more):
    """Converts into a folder of its own. Returns the file and the messages, or None."""
    place = folder / f"{source.parent.name}-{scheme.replace(':', '-').replace(',', '-')}"
    place.mkdir(exist_ok=True)
    done = ok("convert", source, place / "model.safetensors", "--to", scheme, *more)
    return (place / "model.safetensors", done.stderr) if done.returncode == 0 else None


def fits(scheme, name, shape):
    """Whether a scheme's groups divide a matrix; its own blocks and words do, too."""
    if scheme.endswith("FP8_BLOCK"):
        return shape[0] % 128 == 0 and shape[1] % 128 == 0
    group = {"W4A16": 128, "W4A16_ASYM": 128, "W8A16": 128, "NVFP4A16": 16, "nvfp4": 16, "MXFP4A16": 32, "MXFP8A16": 32, "mxfp4": 32, "mxfp8": 32}.get(scheme.split(":")[1])
    if group is None and "," in scheme:
        group = int(scheme.split(",")[1])
    return shape[1] % (group or 1) == 0


def words(raw, shape, bits, axis):
    """Codes of int32 words along an axis, a stream of bits."""
    w = np.frombuffer(raw, "<u4").reshape(shape)
    w = np.moveaxis(w, axis, -1)
    b = np.unpackbits(np.ascontiguousarray(w).view(np.uint8), axis=-1, bitorder="little")
    codes = (b.reshape(*w.shape[:-1], -1, bits) << np.arange(bits, dtype=np.uint8)).sum(-1)
    return np.moveaxis(codes, -1, axis)


def by_formula(scheme, tensors, module):
    """The floats of an AWQ or GPTQ module: both have columns first."""
    bits, group = map(int, scheme.split(":")[1].split(","))
    (_, shape, raw), (_, zero_shape, zeros), (_, scale_shape, scales) = (tensors[f"{module}.{n}"] for n in ("qweight", "qzeros", "scales"))
    s = np.repeat(np.frombuffer(scales, "<f2").reshape(scale_shape), group, axis=0)
    if scheme.startswith("awq"):
        order = [0, 4, 1, 5, 2, 6, 3, 7]
        q, z = (words(r, n, 4, 1).reshape(n[0], -1, 8)[..., order].reshape(n[0], -1).astype(np.int32) for r, n in ((raw, shape), (zeros, zero_shape)))
        return ((q - np.repeat(z, group, axis=0)).astype(np.float16) * s).astype(np.float32).T
    q, z = words(raw, shape, bits, 0).astype(np.int32), words(zeros, zero_shape, bits, 1).astype(np.int32) + 1
    order = np.frombuffer(tensors[f"{module}.g_idx"][2], "<i4")
    check(bool((order == np.arange(len(order)) // group).all()), f"{scheme}: {module}.g_idx is not in order")
    return ((q - np.repeat(z, group, axis=0)).astype(np.float32) * s.astype(np.float32)).T


def config_fits(scheme, config, left, original, folder):
    """The config is the source's with what the system reads; `left` are the modules that stay floats though the system would look for codes."""
    system, name = scheme.split(":")
    own = {k: v for k, v in config.items() if k not in ("quantization_config", "quantization")}
    check(own == original, f"{scheme}: the config is not that of the source")
    q = config["quantization_config"]
    if system == "mlx":
        check(q == config["quantization"] and {k for k, v in q.items() if v is False} == left - {"lm_head"}, f"{scheme}: {q}")
        mode = name if "," not in name else "affine"
        numbers = tuple(map(int, name.split(","))) if "," in name else {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}[name]
        check((q["bits"], q["group_size"]) == numbers and q["mode"] == mode, f"{scheme}: {q}")
        return
    check(q["quant_method"] == system, f"{scheme}: quant_method {q['quant_method']}")
    if system == "compressed-tensors":
        weights = q["config_groups"]["group_0"]["weights"]
        check(set(q["ignore"]) == left and weights["num_bits"] in (4, 8), f"{scheme}: {q}")
        check((q["config_groups"]["group_0"]["input_activations"] is None) == ("A16" in name), f"{scheme}: {q}")
    if system == "modelopt":
        beside = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
        check(set(q["ignore"]) == set(beside["exclude_modules"]) == left and q["quant_algo"] == beside["quant_algo"], f"{scheme}: {q} {beside}")
    if system in ("awq", "gptq"):
        check([q["bits"], q["group_size"]] == list(map(int, name.split(","))), f"{scheme}: {q}")
    if system == "awq":
        check(set(q["modules_to_not_convert"]) == left and q["version"] == "gemm" and q["zero_point"] is True, f"{scheme}: {q}")
    if system == "gptq":
        named = {k.removeprefix("-:^").removesuffix("$").replace("\\", "") for k in q.get("dynamic", {})}
        check(named == left - {"lm_head"} and q["desc_act"] is False and q["sym"] is True, f"{scheme}: {q}")


@pytest.fixture(scope="module")
def folder(shared):
    """A folder for all tests: the same model in each type, files of other systems, and a plan."""
    for kind in ("BF16", "F16", "F32"):
        llama.write(shared / kind, kind, outliers=0)
    make.main(shared / "made")
    (shared / "plan.json").write_text(json.dumps({"requests": [{"layer": "*mlp*", "weight": "bf16"}]}))
    return shared


def test_round_trips(folder):
    for kind in ("BF16", "F16", "F32"):
        source = folder / kind
        floats = llama.write(source, kind, outliers=0)
        original = json.loads((source / "config.json").read_text())
        for scheme, least in SCHEMES.items():
            if kind != "BF16" and scheme not in OF_EACH_TYPE:
                continue
            made = made_by(scheme, source / "model.safetensors", folder)
            if made is None:
                continue
            file, said = made
            lint = run("lint", file)
            check(lint.returncode == 0, f"{kind} {scheme}: lint: {lint.stdout}{lint.stderr}")
            got, tensors, left = decoded(file, folder), stored(file), {"lm_head"}
            if not got:
                continue
            shown = {w["name"]: w for w in json.loads(ok("inspect", file, "--json").stdout)["weights"]}
            for name, x in floats.items():
                module = name.removesuffix(".weight")
                wanted = module.split(".")[-1] in PROJECTIONS or (scheme.startswith("mlx") and x.ndim == 2)
                quantized = wanted and fits(scheme, name, x.shape)
                if wanted and not quantized:
                    check(len(left) > 1 or name in said, f"{kind} {scheme}: nothing is said of {name}")
                    left.add(module)
                check(shown[name]["quantized"] == quantized, f"{kind} {scheme}: {name} is {shown[name]['format']}")
                check(same(got[name], x) if not quantized else decibels(got[name], x) > least, f"{kind} {scheme}: {name}: {decibels(got[name], x):.1f} dB" if quantized else f"{kind} {scheme}: {name} is another")
                if quantized and scheme.startswith(("awq", "gptq")):
                    check(same(by_formula(scheme, tensors, module), got[name]), f"{kind} {scheme}: {name} by its formula")
            config_fits(scheme, json.loads((file.parent / "config.json").read_text()), left, original, file.parent)
        check(json.loads((source / "config.json").read_text()) == original, "the source's config was changed")


def test_requests(folder):
    """--tensor overrules what a system leaves and takes; words of any case; a plan file."""
    source = folder / "BF16" / "model.safetensors"
    place = folder / "asked"
    place.mkdir()
    out = place / "model.safetensors"
    ok("convert", source, out, "--to", "Compressed-Tensors:w4a16", "--tensor", "*q_proj*=f16", "--tensor", "lm_head=W4A16", "--tensor", "model.layers.1.*=f32", "--tensor", "*norm*=f32")
    tensors = stored(out)
    config = json.loads((place / "config.json").read_text())["quantization_config"]
    check(tensors["model.layers.0.self_attn.q_proj.weight"][0] == "F16" and tensors["model.layers.1.mlp.up_proj.weight"][0] == "F32", "a format of a plain float leaves a tensor a float")
    check("lm_head.weight_packed" in tensors and "lm_head" not in config["ignore"], f"a scheme's own word quantizes lm_head: {config['ignore']}")
    check({"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"} <= set(config["ignore"]) and not any("norm" in m for m in config["ignore"]), f"ignore: {config['ignore']}")
    check(run("lint", out).returncode == 0, "lint after requests")
    ok("convert", source, out, "--to", "mlx:4,64", "--plan", folder / "plan.json")
    config = json.loads((place / "config.json").read_text())["quantization"]
    check({k.split(".")[-1] for k, v in config.items() if v is False} == {"gate_proj", "up_proj", "down_proj"}, f"a plan's requests: {config}")


def test_shards(folder):
    """Sources of several files, and outputs."""
    source = folder / "BF16"
    place, out = folder / "cut", folder / "cut_out"
    place.mkdir(), out.mkdir()
    (place / "config.json").write_bytes((source / "config.json").read_bytes())
    ok("convert", source / "model.safetensors", place / "model.safetensors", "--shard-size", "300KB")
    whole = folder / "BF16-gptq-4-128" / "model.safetensors"
    whole.parent.mkdir(exist_ok=True)
    ok("convert", source / "model.safetensors", whole, "--to", "gptq:4,128")
    ok("convert", place / "model.safetensors.index.json", out / "model.safetensors", "--to", "gptq:4,128", "--shard-size", "200KB")
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    parts = {}
    for file in set(index.values()):
        parts |= stored(out / file)
    check(len(set(index.values())) > 1 and parts == stored(whole), "shards hold other tensors than one file")
    check((out / "config.json").read_bytes() == (whole.parent / "config.json").read_bytes() and run("lint", out / "model.safetensors.index.json").returncode == 0, "shards have another config")


def test_quantized_sources(folder):
    """From one system to another: moved where both hold the same codes, else quantized anew; what described the source is gone."""
    source = folder / "BF16-compressed-tensors-MXFP4A16" / "model.safetensors"
    source.parent.mkdir(exist_ok=True)
    ok("convert", folder / "BF16" / "model.safetensors", source, "--to", "compressed-tensors:MXFP4A16")
    x = decoded(source, folder)
    for scheme in ("mlx:mxfp4", "modelopt:nvfp4", "compressed-tensors:MXFP4A16"):
        place = folder / f"from-{scheme.replace(':', '-')}"
        place.mkdir()
        ok("convert", source, place / "model.safetensors", "--to", scheme)
        y = decoded(place / "model.safetensors", folder)
        check(all((x[k] == y[k]).all() for k in x if k.split(".")[-2] in PROJECTIONS), f"MXFP4A16 to {scheme} is not without loss")
        check(run("lint", place / "model.safetensors").returncode == 0, f"MXFP4A16 to {scheme}: lint")
    root = folder / "made"
    for name in ("gptq_v1_int4_order", "modelopt_nvfp4", "modelopt_fp8", "compressed_w4g64", "awq", "deepseek"):
        want = np.load(root / name / "decoded.npz")["m.w.weight"]
        for scheme in ("gptq:4,32", "mlx:8,32", "compressed-tensors:FP8_DYNAMIC", "modelopt:nvfp4"):
            if not fits(scheme, "m.w", want.shape):
                continue
            place = folder / f"{name}-{scheme.replace(':', '-')}"
            place.mkdir()
            out = place / "model.safetensors"
            done = run("convert", root / name / "model.safetensors", out, "--to", scheme)
            if done.returncode != 0:
                check("quantized anew" in done.stderr or "do not fit" in done.stderr or "no whole words" in done.stderr, f"{name} to {scheme}: {done.stderr}")
                continue
            got = decoded(out, folder)["m.w.weight"]
            check(decibels(got, want) > {"gptq:4,32": 8, "mlx:8,32": 30, "compressed-tensors:FP8_DYNAMIC": 20, "modelopt:nvfp4": 10}[scheme], f"{name} to {scheme}: {decibels(got, want):.1f} dB")
            check(run("lint", out).returncode == 0, f"{name} to {scheme}: {run('lint', out).stdout}")
            check("input_scale" not in str(sorted(stored(out))), f"{name} to {scheme}: scales of activations of another system")


def test_refusals(folder):
    source = folder / "BF16" / "model.safetensors"
    place = folder / "never"
    place.mkdir()
    out = place / "model.safetensors"
    every = [s for s in SCHEMES if "," not in s] + ["awq:BITS,GROUP", "gptq:BITS,GROUP", "mlx:BITS,GROUP"]
    refused("no such scheme", source, out, "--to", "compressed-tensors:W5", says=every)
    refused("no such system", source, out, "--to", "exl3", says=every)
    refused("static activations", source, out, "--to", "compressed-tensors:FP8", says=("FP8_DYNAMIC", "calibration"))
    refused("static activations", source, out, "--to", "compressed-tensors:NVFP4", says=("NVFP4A16", "calibration"))
    for scheme, word in (("awq:3,128", "4 bits"), ("awq:4,0", "multiple of 8"), ("gptq:5,128", "2, 3, 4 or 8"), ("gptq:4,-1", "multiple of 8"), ("mlx:7,64", "2, 3, 4, 5, 6 or 8"), ("mlx:4,16", "32, 64 or 128"), ("mlx:4,64,", "no scheme"), ("mlx:4", "no scheme")):
        refused(scheme, source, out, "--to", scheme, says=(word,))
    refused("beside --like", source, out, "--to", "mlx:4,64", "--like", source, says=("--like",))
    refused("beside --format", source, out, "--to", "mlx:4,64", "--format", "f16", says=("--tensor",))
    refused("another scheme for a tensor", source, out, "--to", "mlx:4,64", "--tensor", "*q_proj*=W4A16", says=("w4a16", "bf16"))
    refused("a tensor that does not fit", source, out, "--to", "awq:4,128", "--tensor", "*down_proj*=4,128", says=("down_proj", "352"))
    refused("a .gguf", source, place / "model.gguf", "--to", "mlx:4,64", says=(".safetensors",))
    refused("an .npz", source, place / "model.npz", "--to", "mlx:4,64", says=("--to",))
    refused("of a .gguf", folder / "made" / "gguf" / "little.gguf", out, "--to", "mlx:4,64", says=(".safetensors",))
    refused("no checkpoint", folder / "plan.json", out, "--to", "mlx:4,64")
    (folder / "small").mkdir()
    (folder / "small" / "model.safetensors").write_bytes(make.safetensors({"m.w.weight": ("F32", np.ones((8, 20), np.float32)), "m.norm.weight": ("F32", np.ones(8, np.float32))}))
    refused("nothing fits", folder / "small" / "model.safetensors", out, "--to", "mlx:4,64", says=("no matrix", "m.w.weight", "20"))
    (folder / "large").mkdir()
    (folder / "large" / "model.safetensors").write_bytes(make.safetensors({"m.w.weight": ("F32", np.full((8, 128), 3e7, np.float32)), "m.z.weight": ("F32", np.zeros((8, 128), np.float32))}))
    refused("scales beyond float16", folder / "large" / "model.safetensors", out, "--to", "awq:4,128", says=("m.w.weight", "--tensor"))
    refused("no scale of zeros", folder / "large" / "model.safetensors", out, "--to", "modelopt:nvfp4", says=("m.z.weight", "--tensor"))


def test_configs(folder):
    """A config.json is never replaced, unless it is one that qk made of the same source."""
    source = folder / "BF16"
    out = source / "quantized.safetensors"
    refused("the folder of the source", source / "model.safetensors", out, "--to", "awq:4,128", says=("config.json", "folder of its own"))
    refused("the folder of the source", source / "model.safetensors", out, "--to", "awq:4,128", "--overwrite", says=("config.json",))
    before = (source / "config.json").read_bytes()
    ok("convert", source / "model.safetensors", out, "--to", "modelopt:nvfp4")
    check((source / "config.json").read_bytes() == before, "the source's config.json was replaced")
    check(json.loads((source / "hf_quant_config.json").read_text())["quantization"]["quant_algo"] == "W4A16_NVFP4" and run("lint", out).returncode == 0, "hf_quant_config.json beside the source's config.json")
    out.unlink(), (source / "hf_quant_config.json").unlink()
    place = folder / "other_model"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    refused("the config of another model", source / "model.safetensors", place / "model.safetensors", "--to", "mlx:4,64", says=("another model",))
    place = folder / "alone"
    place.mkdir()
    (place / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    for _ in range(2):  # the second finds the config that it would make
        said = ok("convert", place / "model.safetensors", place / "q.safetensors", "--to", "gptq:4,128").stderr
    check(list(json.loads((place / "config.json").read_text())) == ["quantization_config"] and run("lint", place / "q.safetensors").returncode == 0, "a config.json where the source has none")
    refused("another scheme in one folder", place / "model.safetensors", place / "q.safetensors", "--to", "awq:4,128", says=("config.json",))
    again = folder / "again"
    again.mkdir()
    for scheme in ("awq:4,128", "mlx:4,64"):
        said = ok("convert", source / "model.safetensors", again / "model.safetensors", "--to", scheme).stderr
        check("config.json" in said and scheme in said, f"what is said of the config: {said}")
    check("quantization" in json.loads((again / "config.json").read_text()) and run("lint", again / "model.safetensors").returncode == 0, "a second scheme in the place of the first")
    check(not list(folder.rglob(".*.part")), "parts are left")


if __name__ == "__main__":
    evidence.main()
