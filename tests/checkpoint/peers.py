#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other packages read the checkpoints that qk writes, and get the floats that qk gets.

    tests/peers.sh [QK]

Prints a Markdown table: package, version, file, tensors, how many agree in every bit. What is not installed is passed over and said.
"""
import contextlib
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
import llama_files as llama
import make_files as make

import numpy as np

evidence.start()
rows, missing, failed = [], [], 0


def run(*arguments):
    done = evidence.run(*arguments)
    if done.returncode != 0:
        sys.exit(f"qk {' '.join(map(str, arguments))}: {done.stderr}")


def agree(a, b):
    a, b = np.ascontiguousarray(a, np.float32).reshape(-1), np.ascontiguousarray(b, np.float32).reshape(-1)
    return len(a) == len(b) and bool((a.view(np.uint32) == b.view(np.uint32)).all())


def floats(file, folder):
    run("convert", file, folder / "floats.npz")
    return np.load(folder / "floats.npz")


def note(package, what, pairs):
    global failed
    good = sum(agree(a, b) for a, b in pairs)
    failed += good != len(pairs)
    rows.append(f"| {package} | {importlib.metadata.version(package)} | {what} | {len(pairs)} | {good} |")


def by_gguf(root, folder):
    import gguf

    for name, formats in (("gpt_oss", ("mxfp4",)), ("modelopt_mxfp4", ("mxfp4",)), ("mlx_affine4", ("f16", "bf16", "q8_0", "q4_k", "q6_k", "iq4_nl", "tq2_0")), ("deepseek", ("f32",))):
        for kind in formats:
            file = folder / "a.gguf"
            run("convert", root / name / "model.safetensors", file, "--format", kind)
            wanted = floats(file, folder)
            read = [t for t in gguf.GGUFReader(file).tensors if t.name in wanted.files]
            note("gguf", f"{name} as {kind}", [(gguf.quants.dequantize(t.data, t.tensor_type), wanted[t.name]) for t in read])
    # Those of the types that gguf-py can read, written like themselves.
    tensors, _ = make.gguf_tensors(7, kinds=[k for k in make.GGUF_TYPES if hasattr(gguf.GGMLQuantizationType, k)])
    (folder / "own.gguf").write_bytes(make.gguf({k: t for k, t in tensors.items() if t[0] not in ("I32", "F64")}))
    run("convert", folder / "own.gguf", folder / "b.gguf", "--like", folder / "own.gguf")
    wanted = floats(folder / "b.gguf", folder)
    read = [t for t in gguf.GGUFReader(folder / "b.gguf").tensors if t.tensor_type != gguf.GGMLQuantizationType.Q1_0 or hasattr(gguf.quants, "Q1_0")]
    note("gguf", "every type of blocks like itself", [(gguf.quants.dequantize(t.data, t.tensor_type), wanted[t.name]) for t in read])


def by_mlx(root, folder):
    import mlx.core as mx

    for name, bits, group, mode in (("mlx_affine2", 2, 64, "affine"), ("mlx_affine3", 3, 64, "affine"), ("mlx_affine4", 4, 32, "affine"), ("mlx_affine5", 5, 64, "affine"), ("mlx_affine6", 6, 64, "affine"),
                                    ("mlx_affine8", 8, 64, "affine"), ("mlx_mxfp4", 4, 32, "mxfp4"), ("mlx_mxfp8", 8, 32, "mxfp8"), ("mlx_nvfp4", 4, 16, "nvfp4")):
        file = folder / "model.safetensors"
        (folder / "config.json").write_bytes((root / name / "config.json").read_bytes())
        run("convert", root / name / "model.safetensors", file, "--like", root / name / "model.safetensors")
        t = mx.load(str(file))
        y = mx.dequantize(t["m.w.weight"], t["m.w.scales"], t.get("m.w.biases"), group_size=group, bits=bits, mode=mode)
        note("mlx", name, [(np.array(y.astype(mx.float32)), floats(file, folder)["m.w.weight"])])


def by_safetensors(root, folder):
    from safetensors import safe_open

    for name in ("awq", "gptq_v1_int4_order"):
        (folder / "config.json").write_bytes((root / name / "config.json").read_bytes())
        run("convert", root / name / "model.safetensors", folder / "model.safetensors", "--like", root / name / "model.safetensors")
        wanted = make.Checkpoints(7).all()[name][0]
        with safe_open(folder / "model.safetensors", "numpy") as f:  # NumPy has no bfloat16
            pairs = [(f.get_tensor(k).view(np.uint8), np.ascontiguousarray(wanted[k][1]).astype(make.TYPES[wanted[k][0]]).view(np.uint8)) for k in f.keys() if wanted[k][0] != "BF16"]
        note("safetensors", name, pairs)


def module_of(file):
    """The tensors of m.w, by safetensors' reader for torch, under their names in the module."""
    from safetensors.torch import load_file

    return {k.removeprefix("m.w."): v for k, v in load_file(file).items() if k.startswith("m.w.")}


def written(root, like, folder):
    """Writes `like` again, then random floats in its form. Yields what was written, the file, and the floats that qk reads from it."""
    file, original = folder / "model.safetensors", root / like / "model.safetensors"
    (folder / "config.json").write_bytes((root / like / "config.json").read_bytes())
    run("convert", original, file, "--like", original)
    wanted = floats(file, folder)
    yield like, file, wanted
    draw = np.random.default_rng(1)
    (folder / "plain").mkdir(exist_ok=True)
    plain = folder / "plain" / "model.safetensors"
    plain.write_bytes(make.safetensors({k: ("F32", draw.standard_normal(wanted[k].shape).astype(np.float32)) for k in wanted.files}))
    run("convert", plain, file, "--like", original)
    yield f"float32 as {like}", file, floats(file, folder)


def by_compressed_tensors(root, folder):
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    forms = (("nvfp4", "nvfp4-pack-quantized"), ("mxfp4", "mxfp4-pack-quantized"), ("mxfp6", "mxfp6-pack-quantized"), ("int8", "int-quantized"), ("w", "pack-quantized"))
    for name in (d.name for d in sorted(root.glob("compressed_*")) if not d.name.endswith("_old")):
        for what, file, wanted in written(root, name, folder):
            config = json.loads((folder / "config.json").read_text())["quantization_config"]
            weights = config["config_groups"]["group_0"]["weights"]
            weights["strategy"] = "tensor_group" if "nvfp4" in name else "group" if "group_size" in weights else "channel"
            scheme = QuantizationConfig.model_validate(config).config_groups["group_0"]
            reader = BaseCompressor.get_value_from_registry(next(form for part, form in forms if name.startswith("compressed_" + part)))
            note("compressed-tensors", what, [(reader.decompress(module_of(file), scheme)["weight"].to(torch.float32).numpy(), wanted["m.w.weight"])])


def by_modelopt(root, folder):
    import torch
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

    for name in ("modelopt_nvfp4", "modelopt_mxfp4", "modelopt_mxfp8", "modelopt_fp8", "modelopt_fp8_2d"):
        for what, file, wanted in written(root, name, folder):
            t, y = module_of(file), wanted["m.w.weight"]
            w, s, shape = t["weight"], t["weight_scale"], torch.Size(y.shape)
            if "nvfp4" in name:
                got = NVFP4QTensor(shape, torch.float32, w).dequantize(torch.float32, scale=s, double_scale=t["weight_scale_2"], block_sizes={-1: 16})
            elif "mxfp4" in name:
                got = MXFP4QTensor(shape, torch.float32, w).dequantize(torch.float32, scale=s, block_sizes={-1: 32})
            elif "mxfp8" in name:
                got = MXFP8QTensor(shape, torch.float32, w).dequantize(torch.float32, scale=s)
            else:
                s = s.squeeze()
                blocks = {d: shape[d] // s.shape[d] for d in range(2)} if s.dim() == 2 else None
                got = FP8QTensor(shape, torch.float32, w).dequantize(torch.float32, scale=s, block_sizes=blocks)
            note("nvidia-modelopt", what, [(got.numpy(), y)])


def by_transformers(root, folder):
    import torch
    from safetensors.torch import load_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    for what, file, wanted in written(root, "gpt_oss", folder):
        t = load_file(file)
        got = convert_moe_packed_tensors(t["m.experts.down_proj_blocks"], t["m.experts.down_proj_scales"], dtype=torch.float32)
        note("transformers", what, [(got.numpy(), wanted["m.experts.down_proj"])])


# What --to makes of a small random model, by the package that the system belongs to: each yields a name and the floats of the package's reader.

def modules_of(file):
    """The tensors of each quantized module, by safetensors' reader for torch."""
    from safetensors.torch import load_file

    modules = {}
    for name, value in load_file(file).items():
        modules.setdefault(name.rpartition(".")[0], {})[name.rpartition(".")[2]] = value
    return modules


def loaded_by_transformers(file):
    import torch
    from transformers import AutoModelForCausalLM, logging
    from transformers.utils.quantization_config import CompressedTensorsConfig

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype="auto", quantization_config=CompressedTensorsConfig(dequantize=True))
    for name, value in model.state_dict().items():
        yield name, value.to(torch.float32).numpy()


def read_by_modelopt(file):
    import torch
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor

    for name, t in modules_of(file).items():
        w, s = t.get("weight"), t.get("weight_scale")
        if s is None:
            continue
        if w.dtype == torch.uint8:
            shape = torch.Size((w.shape[0], w.shape[1] * 2))
            got = NVFP4QTensor(shape, torch.float32, w).dequantize(torch.float32, scale=s, double_scale=t["weight_scale_2"], block_sizes={-1: 16})
        else:
            got = FP8QTensor(w.shape, torch.float32, w).dequantize(torch.float32, scale=s[:, None], block_sizes={-1: w.shape[1]})
        yield name + ".weight", got.numpy()


def loaded_by_mlx_lm(file):
    import mlx.core as mx
    from mlx_lm.utils import load_model

    for name, module in load_model(file.parent)[0].named_modules():
        if hasattr(module, "scales"):
            y = mx.dequantize(module.weight, module.scales, module.get("biases"), group_size=module.group_size, bits=module.bits, mode=module.mode)
        elif "weight" in module:
            y = module.weight
        else:
            continue
        yield name + ".weight", np.array(y.astype(mx.float32))


def read_by_autoawq(file):
    """AutoAWQ's own function, without the rest of the package, which needs a GPU."""
    place = Path(importlib.util.find_spec("awq").submodule_search_locations[0]) / "utils" / "packing_utils.py"
    spec = importlib.util.spec_from_file_location("packing_utils", place)
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    q = json.loads((file.parent / "config.json").read_text())["quantization_config"]
    for name, t in modules_of(file).items():
        if "qweight" in t:
            yield name + ".weight", packing.dequantize_gemm(t["qweight"], t["qzeros"], t["scales"], q["bits"], q["group_size"]).float().numpy().T


def read_by_gptqmodel(file):
    """Its products are rounded to the type of the scales."""
    import torch
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module

    q = json.loads((file.parent / "config.json").read_text())["quantization_config"]
    for name, t in modules_of(file).items():
        if "qweight" not in t:
            continue
        module = TorchLinear(bits=q["bits"], group_size=q["group_size"], sym=q["sym"], desc_act=q["desc_act"], in_features=len(t["g_idx"]), out_features=t["scales"].shape[1])
        module.load_state_dict({k: t[k] for k in ("qweight", "qzeros", "scales", "g_idx")}, strict=False)
        convert_gptq_v1_to_v2_format_module(module, q["bits"], torch.int32)
        yield name + ".weight", module.dequantize_weight().float().numpy().T


SCHEMES = (("transformers", loaded_by_transformers, [f"compressed-tensors:{s}" for s in "W4A16 W4A16_ASYM W8A16 W8A8 FP8_DYNAMIC FP8_BLOCK NVFP4A16 MXFP4A16 MXFP8A16".split()]),
           ("nvidia-modelopt", read_by_modelopt, ["modelopt:nvfp4", "modelopt:fp8"]),
           ("mlx-lm", loaded_by_mlx_lm, [f"mlx:{s}" for s in "2,64 3,64 4,64 4,32 5,64 6,128 8,64 mxfp4 mxfp8 nvfp4".split()]),
           ("autoawq", read_by_autoawq, ["awq:4,128", "awq:4,32"]),
           ("gptqmodel", read_by_gptqmodel, ["gptq:4,128", "gptq:2,32", "gptq:3,64", "gptq:8,32"]))


def by_schemes(folder):
    for kind in ("BF16", "F32"):
        source = folder / f"llama-{kind}"
        llama.write(source, kind)
        for package, read, schemes in SCHEMES:
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                missing.append(package)
                continue
            for scheme in schemes:
                place = folder / f"{kind}-{scheme.replace(':', '-').replace(',', '-')}"
                place.mkdir()
                run("convert", source / "model.safetensors", place / "model.safetensors", "--to", scheme)
                wanted, pairs = floats(place / "model.safetensors", folder), []
                with contextlib.redirect_stdout(sys.stderr):  # GPTQModel has much to say
                    for name, got in read(place / "model.safetensors"):
                        y = wanted[name]
                        pairs.append((got, y.astype(np.float16) if package == "gptqmodel" else y))
                note(package, f"Llama in {kind.lower()} --to {scheme}", pairs or [(np.ones(1), np.zeros(1))])


warnings.filterwarnings("ignore")
with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    make.main(folder / "made")
    for package, read in (("gguf", by_gguf), ("mlx", by_mlx), ("safetensors", by_safetensors), ("compressed-tensors", by_compressed_tensors),
                          ("nvidia-modelopt", by_modelopt), ("transformers", by_transformers)):
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
            continue
        read(folder / "made", folder)
    by_schemes(folder)
print("| package | version | file that qk wrote | tensors | equal in every bit |\n|---|---|---|---|---|")
print("\n".join(rows))
for package in dict.fromkeys(missing):
    print(f"\n{package} is not installed.")
sys.exit(1 if failed else 0)
