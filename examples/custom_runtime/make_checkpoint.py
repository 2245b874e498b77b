#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of random weights for custom_runtime: a model of Qwen3's kind as compressed-tensors stores it, or of GPT-OSS's with experts.

    make_checkpoint.py FOLDER [--format mxfp4|nvfp4|int8|fp8|fp8_blocks|bf16|gpt_oss] [--size tiny|500m] [--seed N]

FOLDER gets model.safetensors and config.json. Needs numpy."""
import argparse
import json
import pathlib
import struct

import numpy

SIZES = {
    "tiny": dict(hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=32, vocab_size=64),
    "500m": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=64000),
}
EXPERTS = dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], num_local_experts=8, num_experts_per_tok=2, sliding_window=4, swiglu_limit=7.0, attention_bias=True,
               rms_norm_eps=1e-5, rope_theta=150000.0,
               rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=16))
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)


def e4m3(code):
    """The value of each code of fp8_e4m3fn."""
    code = code.astype(numpy.int32)
    exponent, fraction = code >> 3 & 15, code & 7
    value = numpy.where(exponent == 0, numpy.ldexp(fraction / 8, -6), numpy.ldexp(1 + fraction / 8, exponent - 7))
    return numpy.where(code & 128, -value, value).astype(numpy.float32)


def bfloat16(values):
    return (numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)


def from_bfloat16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


class Writer:
    """Collects tensors and, where `floats` is given, what each weight is as float32."""

    def __init__(self, seed, floats=None):
        self.random, self.tensors, self.floats = numpy.random.default_rng(seed), [], floats

    def put(self, name, kind, array):
        self.tensors.append((name, kind, array))

    def plain(self, name, values):
        bits = bfloat16(values)
        self.put(name, "BF16", bits)
        if self.floats is not None:
            self.floats[name] = from_bfloat16(bits)

    def matrix(self, name, rows, columns, how):
        """Random codes under scales that give weights of about 1 / sqrt(columns)."""
        size = columns**-0.5
        if how == "bf16":
            return self.plain(name + ".weight", self.random.standard_normal((rows, columns), numpy.float32) * size)
        if how == "fp8":
            code = self.random.integers(0, 256, (rows, columns), numpy.uint8) & 0xBF  # magnitudes below 2
            scale = numpy.full((rows, 1), size, numpy.float32) * self.random.uniform(0.5, 1.5, (rows, 1)).astype(numpy.float32)
            self.put(name + ".weight", "F8_E4M3", code)
            self.put(name + ".weight_scale", "F32", scale)
            value = None if self.floats is None else e4m3(code) * scale
        elif how == "int8":
            code = self.random.integers(-127, 128, (rows, columns), numpy.int8)
            scale = (size / 73 * self.random.uniform(0.5, 1.5, (rows, 1))).astype(numpy.float32)
            self.put(name + ".weight", "I8", code)
            self.put(name + ".weight_scale", "F32", scale)
            value = None if self.floats is None else code * scale
        elif how == "fp8_blocks":  # as DeepSeek and Qwen store it: a scale for 128 x 128 weights
            code = self.random.integers(0, 256, (rows, columns), numpy.uint8) & 0xBF
            scale = (size * self.random.uniform(0.5, 1.5, (-(-rows // 128), -(-columns // 128)))).astype(numpy.float32)
            self.put(name + ".weight", "F8_E4M3", code)
            self.put(name + ".weight_scale_inv", "F32", scale)
            value = None if self.floats is None else e4m3(code) * numpy.repeat(numpy.repeat(scale, 128, 0), 128, 1)[:rows, :columns]
        else:
            group = 32 if how == "mxfp4" else 16
            packed = self.random.integers(0, 256, (rows, columns // 2), numpy.uint8)
            self.put(name + ".weight_packed", "U8", packed)
            if how == "mxfp4":
                step = int(round(numpy.log2(size / 3)))
                scale = self.random.integers(127 + step - 1, 127 + step + 2, (rows, columns // group), numpy.uint8)
                self.put(name + ".weight_scale", "U8", scale)
                factor = numpy.ldexp(numpy.float32(1), scale.astype(numpy.int32) - 127)
            else:
                scale = self.random.integers(0x38, 0x48, (rows, columns // group), numpy.uint8)  # 1 to 4
                divides = numpy.float32(2.0 ** round(numpy.log2(8 / size)))
                self.put(name + ".weight_scale", "F8_E4M3", scale)
                self.put(name + ".weight_global_scale", "F32", numpy.array([divides], numpy.float32))
                factor = e4m3(scale) / divides
            if self.floats is not None:
                value = numpy.stack([E2M1[packed & 15], E2M1[packed >> 4]], -1).reshape(rows, columns) * numpy.repeat(factor, group, 1)
        if self.floats is not None:
            self.floats[name + ".weight"] = value.astype(numpy.float32)

    def experts(self, name, count, rows, columns):
        """Matrices in MXFP4 as GPT-OSS has them, one after the other, with a bias for each row."""
        codes = self.random.integers(0, 256, (count, rows, columns // 32, 16), numpy.uint8)
        step = int(round(numpy.log2(columns**-0.5 / 3)))
        scale = self.random.integers(127 + step - 1, 127 + step + 2, (count, rows, columns // 32), numpy.uint8)
        self.put(name + "_blocks", "U8", codes)
        self.put(name + "_scales", "U8", scale)
        self.plain(name + "_bias", 0.1 * self.random.standard_normal((count, rows), numpy.float32))
        if self.floats is not None:
            value = numpy.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(count, rows, columns)
            self.floats[name] = value * numpy.repeat(numpy.ldexp(numpy.float32(1), scale.astype(numpy.int32) - 127), 32, -1)

    def write(self, path, tensors=None):
        tensors = self.tensors if tensors is None else tensors
        header, at = {}, 0
        for name, kind, array in tensors:
            header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            at += array.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, _, array in tensors:
                file.write(numpy.ascontiguousarray(array).tobytes())

    def write_shards(self, folder, count):
        """Writes tensors to several files, with the index that says which holds what."""
        places = {}
        for i in range(count):
            file = f"model-{i + 1:05}-of-{count:05}.safetensors"
            self.write(folder / file, self.tensors[i::count])
            places.update({name: file for name, _, _ in self.tensors[i::count]})
        (folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata={}, weight_map=places)))


def quantization(how):
    if how == "gpt_oss":
        return dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    if how == "fp8_blocks":
        return dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128], activation_scheme="dynamic")
    weights = {
        "mxfp4": dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False, scale_dtype="torch.uint8"),
        "nvfp4": dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True, dynamic=False, scale_dtype="torch.float8_e4m3fn"),
        "fp8": dict(num_bits=8, type="float", strategy="channel", symmetric=True, dynamic=False),
        "int8": dict(num_bits=8, type="int", strategy="channel", symmetric=True, dynamic=False),
    }[how]
    form = {"mxfp4": "mxfp4-pack-quantized", "nvfp4": "nvfp4-pack-quantized", "fp8": "float-quantized", "int8": "int-quantized"}[how]
    group = dict(format=form, targets=["Linear"], weights=weights, input_activations=None, output_activations=None)
    return dict(config_groups=dict(group_0=group), format=form, ignore=["lm_head"], quant_method="compressed-tensors", quantization_status="compressed", version="0.20.0")


def make(folder, how="mxfp4", size="tiny", seed=1, floats=None, shards=1, **changes):
    """Returns the config; `floats`, a dictionary, gets every weight as float32. `changes` are other entries of the config."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(SIZES[size], model_type="qwen3", architectures=["Qwen3ForCausalLM"], rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, torch_dtype="bfloat16")
    if how == "gpt_oss":
        config.update(EXPERTS, layer_types=["sliding_attention", "full_attention"] * (config["num_hidden_layers"] // 2))
    config.update(changes)
    if how != "bf16":
        config["quantization_config"] = quantization(how)
    w, c = Writer(seed, floats), config
    width, head, inner = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    biased = lambda part, *names: c.get(part) and [w.plain(f"{name}.bias", 0.1 * w.random.standard_normal(n, numpy.float32)) for name, n in names]
    norm = lambda name, n: w.plain(name + ".weight", 1 + 0.1 * w.random.standard_normal(n, numpy.float32))
    w.plain("model.embed_tokens.weight", w.random.standard_normal((c["vocab_size"], width), numpy.float32))
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norm(at + "input_layernorm", width)
        for name, rows, columns in (("q", c["num_attention_heads"] * head, width), ("k", c["num_key_value_heads"] * head, width), ("v", c["num_key_value_heads"] * head, width), ("o", width, c["num_attention_heads"] * head)):
            w.matrix(at + f"self_attn.{name}_proj", rows, columns, "bf16" if how == "gpt_oss" else how)
        if c["model_type"] == "qwen3":
            norm(at + "self_attn.q_norm", head)
            norm(at + "self_attn.k_norm", head)
        biased("attention_bias", *((at + f"self_attn.{n}_proj", c["num_attention_heads" if n == "q" else "num_key_value_heads"] * head) for n in "qkv"), (at + "self_attn.o_proj", width))
        norm(at + "post_attention_layernorm", width)
        if how == "gpt_oss":
            w.plain(at + "self_attn.sinks", w.random.standard_normal(c["num_attention_heads"], numpy.float32))
            w.matrix(at + "mlp.router", c["num_local_experts"], width, "bf16")
            w.plain(at + "mlp.router.bias", w.random.standard_normal(c["num_local_experts"], numpy.float32))
            w.experts(at + "mlp.experts.gate_up_proj", c["num_local_experts"], 2 * inner, width)
            w.experts(at + "mlp.experts.down_proj", c["num_local_experts"], width, inner)
            continue
        for name, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            w.matrix(at + f"mlp.{name}_proj", rows, columns, how)
        biased("mlp_bias", (at + "mlp.gate_proj", inner), (at + "mlp.up_proj", inner), (at + "mlp.down_proj", width))
    norm("model.norm", width)
    if not c["tie_word_embeddings"]:
        w.matrix("lm_head", c["vocab_size"], width, "bf16")
    w.write(folder / "model.safetensors") if shards == 1 else w.write_shards(folder, shards)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return config


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--format", default="mxfp4", choices=["mxfp4", "nvfp4", "int8", "fp8", "fp8_blocks", "bf16", "gpt_oss"])
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    make(given.folder, given.format, given.size, given.seed)
