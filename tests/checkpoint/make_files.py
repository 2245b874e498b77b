#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny checkpoints of every system, with the floats that they mean, by numpy alone: no line is shared with qk.

    python3 tests/checkpoint/make_files.py FOLDER

Writes FOLDER/SYSTEM/model.safetensors, config.json, decoded.npz, and FOLDER/gguf/*.gguf with NAME.decoded.npz. Codes are random, so every
code of a format occurs; what they mean is computed with float64 or float32 as each system's reader does it.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E2M3 = np.array([(1 if c < 32 else -1) * ((c % 8) / 8 if c % 32 < 8 else (1 + c % 8 / 8) * 2.0 ** (c % 32 // 8 - 1)) for c in range(64)], np.float32)
E4M3 = np.array([np.nan if c % 128 == 127 else (1 if c < 128 else -1) * ((c % 8) * 2.0**-9 if c % 128 < 8 else (1 + c % 8 / 8) * 2.0 ** (c % 128 // 8 - 7)) for c in range(256)], np.float32)


def bfloat(x):
    """Rounds float32 to bfloat16, ties to even."""
    u = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def bfloat_bytes(x):
    return (bfloat(x).view(np.uint32) >> 16).astype(np.uint16)


def e8m0(codes):
    return np.ldexp(np.float64(1), codes.astype(np.int32) - 127)


def pairs(codes):
    """Two codes of 4 bits a byte, the first in the low half."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def stream(codes, bits, unit):
    """A stream of bits along the last axis, lowest first, rows filled up to `unit` bits."""
    rows = np.unpackbits(codes.astype(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits].reshape(*codes.shape[:-1], -1)
    rest = -rows.shape[-1] % unit
    rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], rest), np.uint8)], -1)
    return np.packbits(rows, axis=-1, bitorder="little")


def spread(groups, size):
    return np.repeat(groups, size, axis=-1)


TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "I8": "i1", "I32": "<i4", "U32": "<u4", "I64": "<i8", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1", "F4": "u1"}


def safetensors(tensors, metadata=None):
    """`tensors`: name to (type, array), or (type, array, shape)."""
    head, data = {}, b""
    if metadata:
        head["__metadata__"] = metadata
    for name, (kind, array, *shape) in tensors.items():
        raw = np.ascontiguousarray(array).astype(TYPES[kind]).tobytes()
        head[name] = {"dtype": kind, "shape": list(shape[0] if shape else array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Checkpoints:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def codes(self, bits, *shape):
        return self.rng.integers(0, 1 << bits, shape).astype(np.uint8)

    def exponents(self, *shape):
        return self.rng.integers(96, 126, shape).astype(np.uint8)

    def fp8(self, *shape):
        c = self.codes(8, *shape)
        return np.where(c % 128 == 127, 0, c).astype(np.uint8)

    def scales(self, *shape):
        return (self.rng.random(shape) * 0.02 + 0.001).astype(np.float32)

    def halves(self, *shape):
        return self.scales(*shape).astype(np.float16)

    # Each of these gives tensors of one module "m.w.", the config, and the floats by name.
    def modelopt_nvfp4(self, n=24, k=96):
        q, s, g = self.codes(4, n, k), self.rng.integers(1, 127, (n, k // 16)).astype(np.uint8), np.float32(0.0123)
        table = np.where(E2M1 == 0, np.float32(0), E2M1)
        t = {"m.w.weight": ("U8", pairs(q)), "m.w.weight_scale": ("F8_E4M3", s), "m.w.weight_scale_2": ("F32", g), "m.w.input_scale": ("F32", np.float32(0.5))}
        config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}}
        return t, config, {"m.w.weight": table[q] * spread(E4M3[s] * g, 16)}

    def modelopt_experts(self, e=2, k=64, n=24):
        """Experts whose matrices have their inputs first, as Llama 4 has them: NVFP4 pairs and blocks go down each column, FP8 has a scale for a column."""
        q, s, g = self.codes(4, e, k, n), self.rng.integers(1, 127, (e, k // 16, n)).astype(np.uint8), np.float32(0.0123)
        table = np.where(E2M1 == 0, np.float32(0), E2M1)
        f, c = self.fp8(e, n, k), self.scales(e, k)
        t = {"m.experts.gate_up_proj": ("U8", (q[:, 0::2] | q[:, 1::2] << 4).astype(np.uint8)), "m.experts.gate_up_proj_weight_scale": ("F8_E4M3", s), "m.experts.gate_up_proj_weight_scale_2": ("F32", g),
             "m.experts.gate_up_proj_input_scale": ("F32", np.float32(0.5)), "m.experts.down_proj": ("F8_E4M3", f), "m.experts.down_proj_weight_scale": ("F32", c)}
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}, {"m.experts.gate_up_proj": table[q] * np.repeat(E4M3[s] * g, 16, axis=1), "m.experts.down_proj": E4M3[f] * c[:, None, :]}

    def modelopt_fp8(self, n=8, k=40):
        q = self.fp8(n, k)
        t = {"m.w.weight": ("F8_E4M3", q), "m.w.weight_scale": ("F32", np.float32(0.0371)), "m.w.input_scale": ("F32", np.float32(0.02))}
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, {"m.w.weight": E4M3[q] * np.float32(0.0371)}

    def modelopt_fp8_2d(self, n=256, k=384):
        q, s = self.fp8(n, k), self.scales(n // 128, 1, k // 128, 1)
        t = {"m.w.weight": ("F8_E4M3", q), "m.w.weight_scale": ("F32", s)}
        wide = np.repeat(spread(s[:, 0, :, 0], 128), 128, axis=0)
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}}, {"m.w.weight": E4M3[q] * wide}

    def modelopt_fp8_channel(self, n=24, k=40):
        q, s = self.fp8(n, k), self.scales(n)
        t = {"m.w.weight": ("F8_E4M3", q), "m.w.weight_scale": ("F32", s)}
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}}, {"m.w.weight": E4M3[q] * s[:, None]}

    def modelopt_mxfp8(self, n=8, k=96):
        q, s = self.fp8(n, k), self.exponents(n, k // 32)
        t = {"m.w.weight": ("F8_E4M3", q), "m.w.weight_scale": ("U8", s)}
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MXFP8"}}, {"m.w.weight": E4M3[q] * spread(e8m0(s), 32)}

    def modelopt_mxfp4(self, n=8, k=96):
        q, s = self.codes(4, n, k), self.exponents(n, k // 32)
        t = {"m.w.weight": ("U8", pairs(q)), "m.w.weight_scale": ("U8", s)}
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_MXFP4_FP8"}}, {"m.w.weight": E2M1[q] * spread(e8m0(s), 32)}

    def modelopt_int4_awq(self, n=16, k=256):
        q, s = self.codes(4, n, k), self.scales(n, k // 128)
        t = {"m.w.weight": ("U8", q[0::2] | q[1::2] << 4), "m.w.weight_scale": ("F32", s), "m.w.pre_quant_scale": ("BF16", bfloat_bytes(self.scales(k)))}
        value = np.where(q > 7, q.astype(np.float32) - 16, q).astype(np.float32)
        return t, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}}, {"m.w.weight": value * spread(s, 128)}

    def compressed(self, tensors, weights, activations=None, **more):
        group = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}}
        return tensors, {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": group, "ignore": ["lm_head"], **more}}

    def compressed_nvfp4(self, n=24, k=64):
        q, s, g = self.codes(4, n, k), self.rng.integers(1, 127, (n, k // 16)).astype(np.uint8), np.array([1234.5], np.float32)
        t = {"m.w.weight_packed": ("U8", pairs(q)), "m.w.weight_scale": ("F8_E4M3", s), "m.w.weight_global_scale": ("F32", g)}
        return *self.compressed(t, {"num_bits": 4, "type": "float", "group_size": 16}), {"m.w.weight": bfloat(E2M1[q] * spread(E4M3[s] / g, 16))}

    def compressed_mxfp4(self, n=8, k=64):
        q, s = self.codes(4, n, k), self.exponents(n, k // 32)
        t = {"m.w.weight_packed": ("U8", pairs(q)), "m.w.weight_scale": ("U8", s)}
        return *self.compressed(t, {"num_bits": 4, "type": "float", "group_size": 32}), {"m.w.weight": E2M1[q] * spread(e8m0(s), 32)}

    def compressed_mxfp6(self, n=8, k=64):
        q, s = self.codes(6, n, k), self.exponents(n, k // 32)
        t = {"m.w.weight_packed": ("U8", stream(q, 6, 8)), "m.w.weight_scale": ("U8", s)}
        return *self.compressed(t, {"num_bits": 6, "type": "float", "group_size": 32}), {"m.w.weight": E2M3[q] * spread(e8m0(s), 32)}

    def compressed_int(self, bits, group, zeros, scale="BF16", n=32, k=192, bytes_of_zeros=False):
        """Until version 0.7 zero points were signed bytes, one for each group."""
        q, s, z = self.codes(bits, n, k), self.scales(n, k // group), self.codes(bits, n, k // group)
        middle = 1 << (bits - 1)
        value = q.astype(np.float32) - (spread(z, group).astype(np.float32) if zeros else middle)
        s = bfloat(s) if scale == "BF16" else s.astype(np.float16).astype(np.float32)
        t = {"m.w.weight_packed": ("I32", stream(q, bits, 32).view("<i4")), "m.w.weight_shape": ("I64", np.array([n, k])), "m.w.weight_scale": (scale, bfloat_bytes(s) if scale == "BF16" else s)}
        if bytes_of_zeros:
            t["m.w.weight_zero_point"] = ("I8", (z.astype(np.int16) - middle).astype(np.int8))
        elif zeros:
            t["m.w.weight_zero_point"] = ("I32", np.ascontiguousarray(stream(np.ascontiguousarray(z.T), bits, 32).view("<i4").T))
        product = value * spread(s, group)
        made = bfloat(product) if scale == "BF16" else product.astype(np.float16).astype(np.float32)
        return *self.compressed(t, {"num_bits": bits, "type": "int", "group_size": group, "symmetric": not zeros}), {"m.w.weight": made}

    def compressed_int8(self, n=8, k=48):
        q, s = self.codes(8, n, k).view(np.int8), bfloat(self.scales(n, 1))
        t = {"m.w.weight": ("I8", q), "m.w.weight_scale": ("BF16", bfloat_bytes(s))}
        return *self.compressed(t, {"num_bits": 8, "type": "int"}, {"num_bits": 8, "dynamic": True}), {"m.w.weight": bfloat(q.astype(np.float32) * s)}

    def deepseek(self, n=200, k=300, ue8m0=False):
        q, g = self.fp8(n, k), (-(-n // 128), -(-k // 128))
        s = self.exponents(*g) if ue8m0 else self.scales(*g)
        t = {"m.w.weight": ("F8_E4M3", q), "m.w.weight_scale_inv": ("F8_E8M0" if ue8m0 else "F32", s)}
        wide = np.repeat(spread(e8m0(s).astype(np.float32) if ue8m0 else s, 128), 128, axis=0)[:n, :k]
        return t, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, {"m.w.weight": E4M3[q] * wide}

    def gpt_oss(self, e=3, n=24, k=96):
        q, s = self.codes(4, e, n, k), self.exponents(e, n, k // 32)
        t = {"m.experts.down_proj_blocks": ("U8", pairs(q).reshape(e, n, k // 32, 16)), "m.experts.down_proj_scales": ("U8", s)}
        return t, {"quantization_config": {"quant_method": "mxfp4"}}, {"m.experts.down_proj": (E2M1[q] * spread(e8m0(s), 32)).transpose(0, 2, 1)}

    def mlx_affine(self, bits, group, scale="BF16", n=16, k=256):
        q, s, b = self.codes(bits, n, k), self.scales(n, k // group), -self.scales(n, k // group)
        round_ = bfloat if scale == "BF16" else (lambda x: x.astype(np.float16).astype(np.float32)) if scale == "F16" else np.float32
        s, b = round_(s), round_(b)
        keep = bfloat_bytes if scale == "BF16" else lambda x: x
        t = {"m.w.weight": ("U32", stream(q, bits, 32).view("<u4")), "m.w.scales": (scale, keep(s)), "m.w.biases": (scale, keep(b))}
        value = round_(round_(q.astype(np.float32) * spread(s, group)) + spread(b, group))
        return t, {"quantization": {"group_size": group, "bits": bits, "mode": "affine"}}, {"m.w.weight": value}

    def mlx_floats(self, mode, n=16, k=128):
        group = 16 if mode == "nvfp4" else 32
        q = self.fp8(n, k) if mode == "mxfp8" else self.codes(4, n, k)
        s = self.rng.integers(1, 127, (n, k // group)).astype(np.uint8) if mode == "nvfp4" else self.exponents(n, k // group)
        raw = q if mode == "mxfp8" else pairs(q)
        factor = E4M3[s] if mode == "nvfp4" else e8m0(s)
        t = {"m.w.weight": ("U32", raw.view("<u4")), "m.w.scales": ("U8", s)}
        return t, {"quantization": {"group_size": group, "bits": 8 if mode == "mxfp8" else 4, "mode": mode}}, {"m.w.weight": (E4M3 if mode == "mxfp8" else E2M1)[q] * spread(factor, group)}

    def gptq(self, bits, group, version=1, shuffled=False, n=32, k=192):
        q, z, s = self.codes(bits, n, k), self.codes(bits, n, k // group), self.halves(n, k // group)
        order = np.arange(k) // group
        if shuffled:
            order = self.rng.permutation(order)
        t = {"m.w.qweight": ("I32", np.ascontiguousarray(stream(q, bits, 32).view("<i4").T)), "m.w.qzeros": ("I32", stream(np.ascontiguousarray(z.T), bits, 32).view("<i4")),
             "m.w.scales": ("F16", np.ascontiguousarray(s.T)), "m.w.g_idx": ("I32", order)}
        zero = z.astype(np.float32) + (1 if version == 1 else 0)
        value = (q.astype(np.float32) - zero[:, order]) * s.astype(np.float32)[:, order]
        config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": shuffled, "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
        return t, {"quantization_config": config}, {"m.w.weight": value}

    def awq(self, group=64, n=48, k=128):
        q, z, s = self.codes(4, n, k), self.codes(4, n, k // group), self.halves(n, k // group)

        def words(codes):  # [K, N] nibbles; a word holds columns 0 2 4 6 1 3 5 7
            eight = np.ascontiguousarray(codes.T).reshape(codes.shape[1], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].astype(np.uint32)
            return (eight << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1).astype(np.uint32).view(np.int32)

        t = {"m.w.qweight": ("I32", words(q)), "m.w.qzeros": ("I32", words(z)), "m.w.scales": ("F16", np.ascontiguousarray(s.T))}
        value = (q.astype(np.float32) - spread(z, group)) * spread(s.astype(np.float32), group)
        return t, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}}, {"m.w.weight": value.astype(np.float16).astype(np.float32)}

    def all(self):
        plain = {"m.norm.weight": ("BF16", bfloat_bytes(self.scales(32))), "m.half": ("F16", self.halves(3, 5)), "m.count": ("I64", np.arange(4))}
        made = {name: getattr(self, name)() for name in
                ("modelopt_nvfp4", "modelopt_fp8", "modelopt_fp8_2d", "modelopt_fp8_channel", "modelopt_mxfp8", "modelopt_mxfp4", "modelopt_int4_awq", "compressed_nvfp4",
                 "compressed_mxfp4", "compressed_mxfp6", "compressed_int8", "deepseek", "gpt_oss", "awq")}
        made["deepseek_ue8m0"] = self.deepseek(ue8m0=True)
        made["modelopt_experts"] = self.modelopt_experts()
        made["gptq_dynamic_widths"] = self.gptq(8, 32)  # the config's width is of other modules
        made["gptq_dynamic_widths"][1]["quantization_config"] |= {"bits": 4, "group_size": 128, "dynamic": {"+:m\\..*": {"bits": 8, "group_size": 32}}}
        for bits, group, zeros, scale in ((4, 64, False, "BF16"), (4, 32, True, "F16"), (8, 192, False, "BF16"), (3, 96, True, "BF16"), (5, 64, False, "F16"), (6, 64, True, "BF16"), (7, 64, False, "BF16"), (2, 32, True, "F16")):
            made[f"compressed_w{bits}g{group}{'z' if zeros else ''}"] = self.compressed_int(bits, group, zeros, scale)
        for bits, group in ((4, 32), (8, 192)):
            made[f"compressed_w{bits}g{group}_old"] = self.compressed_int(bits, group, True, "F16", bytes_of_zeros=True)
        for bits in (2, 3, 4, 5, 6, 8):
            made[f"mlx_affine{bits}"] = self.mlx_affine(bits, 32 if bits == 4 else 64, ("BF16", "F16", "F32")[bits % 3])
        for mode in ("mxfp4", "mxfp8", "nvfp4"):
            made[f"mlx_{mode}"] = self.mlx_floats(mode)
        for bits, version, shuffled in ((2, 1, False), (3, 1, False), (4, 1, True), (4, 2, False), (8, 2, True)):
            made[f"gptq_v{version}_int{bits}{'_order' if shuffled else ''}"] = self.gptq(bits, 64, version, shuffled)
        floats = {"m.norm.weight": (plain["m.norm.weight"][1].astype(np.uint32) << 16).view(np.float32), "m.half": plain["m.half"][1].astype(np.float32)}
        return {name: ({**t, **plain}, config, {**want, **floats}) for name, (t, config, want) in made.items()}


# ---- GGUF ----

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
TWICE = np.where(E2M1 == 0, 0, E2M1 * 2).astype(np.float32)


def half(raw):
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def halves_of(q):  # low nibbles are the first half
    return np.concatenate([q & 15, q >> 4], -1)


def planes2(q, width, bits):  # runs of `width` bytes hold 8 / bits planes, the lowest bits first
    runs = q.reshape(len(q), -1, 1, width)
    shift = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    return (runs >> shift & ((1 << bits) - 1)).reshape(len(q), -1)


def bits_of(q):
    return np.unpackbits(q, axis=-1, bitorder="little")


def k4(raw):
    s, m = np.zeros((len(raw), 8)), np.zeros((len(raw), 8))
    for j in range(8):
        s[:, j] = raw[:, j] & 63 if j < 4 else (raw[:, j + 4] & 15) | (raw[:, j - 4] >> 6 << 4)
        m[:, j] = raw[:, j + 4] & 63 if j < 4 else (raw[:, j + 4] >> 4) | (raw[:, j] >> 6 << 4)
    return s.astype(np.float32), m.astype(np.float32)


def each(groups, values):  # a number for each group of the 256
    return np.repeat(groups, values.shape[1] // groups.shape[1], axis=1) * values


def trits(raw, count):  # the top trit first, as multiples of 256 / 3^n
    n = raw.astype(np.uint32)
    out = []
    for _ in range(count):
        n = (n & 255) * 3
        out.append(n >> 8)
    return np.stack(out, 1)


def decode_gguf(kind, b):
    """b: [blocks, bytes] to floats [blocks, values]."""
    if kind == "Q4_0":
        return half(b[:, :2]) * (halves_of(b[:, 2:]).astype(np.float32) - 8)
    if kind == "Q4_1":
        return half(b[:, :2]) * halves_of(b[:, 4:]) + half(b[:, 2:4])
    if kind == "Q5_0":
        return half(b[:, :2]) * ((halves_of(b[:, 6:]) | bits_of(b[:, 2:6]) << 4).astype(np.float32) - 16)
    if kind == "Q5_1":
        return half(b[:, :2]) * (halves_of(b[:, 8:]) | bits_of(b[:, 4:8]) << 4).astype(np.float32) + half(b[:, 2:4])
    if kind == "Q8_0":
        return half(b[:, :2]) * b[:, 2:].view(np.int8).astype(np.float32)
    if kind == "IQ4_NL":
        return half(b[:, :2]) * IQ4[halves_of(b[:, 2:])]
    if kind == "MXFP4":
        return (np.ldexp(1.0, b[:, :1].astype(int) - 128) * TWICE[halves_of(b[:, 1:])]).astype(np.float32)
    if kind == "NVFP4":
        d = np.where(b[:, :4] == 127, 0, np.abs(E4M3[b[:, :4] & 127])) / 2
        return each(d.astype(np.float32), TWICE[np.concatenate([halves_of(b[:, 4 + 8 * k : 12 + 8 * k]) for k in range(4)], 1)])
    if kind == "Q1_0":
        return half(b[:, :2]) * (bits_of(b[:, 2:]).astype(np.float32) * 2 - 1)
    if kind == "Q2_0":
        return half(b[:, :2]) * (np.stack([b[:, 2:] >> s & 3 for s in (0, 2, 4, 6)], -1).reshape(len(b), -1).astype(np.float32) - 1)
    if kind == "TQ2_0":
        return half(b[:, 64:]) * (planes2(b[:, :64], 32, 2).astype(np.float32) - 1)
    if kind == "TQ1_0":
        parts = [trits(b[:, :32], 5), trits(b[:, 32:48], 5), trits(b[:, 48:52], 4)]
        return half(b[:, 52:]) * (np.concatenate([p.reshape(len(b), -1) for p in parts], 1).astype(np.float32) - 1)
    if kind == "Q2_K":
        s = b[:, :16]
        return each(half(b[:, 80:82]) * (s & 15), planes2(b[:, 16:80], 32, 2)) - each(half(b[:, 82:84]) * (s >> 4), np.ones((len(b), 256), np.float32))
    if kind == "Q3_K":
        q = planes2(b[:, 32:96], 32, 2).astype(np.float32) - 4 * (1 - planes2(b[:, :32], 32, 1).astype(np.float32))
        t = b[:, 96:108]
        low = np.concatenate([t[:, :8] & 15, t[:, :8] >> 4], 1)
        high = np.concatenate([t[:, 8:] >> s & 3 for s in (0, 2, 4, 6)], 1)
        return each(half(b[:, 108:]) * ((low | high << 4).astype(np.float32) - 32), q)
    if kind in ("Q4_K", "Q5_K"):
        s, m = k4(b[:, 4:16])
        q = planes2(b[:, -128:], 32, 4)
        if kind == "Q5_K":
            q = q | planes2(b[:, 16:48], 32, 1) << 4
        return each(half(b[:, :2]) * s, q.astype(np.float32)) - each(half(b[:, 2:4]) * m, np.ones((len(b), 256), np.float32))
    if kind == "Q6_K":
        q = planes2(b[:, :128], 64, 4) | planes2(b[:, 128:192], 32, 2) << 4
        return each(half(b[:, 208:]) * b[:, 192:208].view(np.int8).astype(np.float32), q.astype(np.float32) - 32)
    if kind == "IQ4_XS":
        high = np.ascontiguousarray(b[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
        low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], -1).reshape(len(b), 8)
        q = np.concatenate([halves_of(b[:, 8 + 16 * k : 24 + 16 * k]) for k in range(8)], 1)
        return each(half(b[:, :2]) * ((low | high << 4).astype(np.float32) - 32), IQ4[q])
    raise ValueError(kind)


# name: number, values and bytes of a block, places of fp16 numbers in it
GGUF_TYPES = {"Q4_0": (2, 32, 18, (0,)), "Q4_1": (3, 32, 20, (0, 2)), "Q5_0": (6, 32, 22, (0,)), "Q5_1": (7, 32, 24, (0, 2)), "Q8_0": (8, 32, 34, (0,)), "Q2_K": (10, 256, 84, (80, 82)),
              "Q3_K": (11, 256, 110, (108,)), "Q4_K": (12, 256, 144, (0, 2)), "Q5_K": (13, 256, 176, (0, 2)), "Q6_K": (14, 256, 210, (208,)), "IQ4_NL": (20, 32, 18, (0,)),
              "IQ4_XS": (23, 256, 136, (0,)), "TQ1_0": (34, 256, 54, (52,)), "TQ2_0": (35, 256, 66, (64,)), "MXFP4": (39, 32, 17, ()), "NVFP4": (40, 64, 36, ()), "Q1_0": (41, 128, 18, (0,)),
              "Q2_0": (42, 64, 18, (0,))}
GGUF_PLAIN = {"F32": (0, "f4"), "F16": (1, "f2"), "BF16": (30, "u2"), "I32": (26, "i4"), "F64": (28, "f8")}


def gguf(tensors, alignment=32, order="<", keys=(), version=3):
    """`tensors`: name to (kind, shape, bytes). `keys`: (name, value type, packed value)."""

    def text(s):
        return struct.pack(order + "Q", len(s.encode())) + s.encode()

    keys = [("general.architecture", 8, text("llama")), *keys]
    if alignment != 32:
        keys.append(("general.alignment", 4, struct.pack(order + "I", alignment)))
    out = b"GGUF" + struct.pack(order + "IQQ", version, len(tensors), len(keys))
    for name, kind, value in keys:
        out += text(name) + struct.pack(order + "I", kind) + value
    offset, data = 0, b""
    for name, (kind, shape, raw) in tensors.items():
        number = GGUF_TYPES[kind][0] if kind in GGUF_TYPES else GGUF_PLAIN[kind][0]
        out += text(name) + struct.pack(order + "I", len(shape)) + b"".join(struct.pack(order + "Q", d) for d in reversed(shape)) + struct.pack(order + "IQ", number, len(data))
        data += raw + b"\0" * (-len(raw) % alignment)
    return out + b"\0" * (-len(out) % alignment) + data


def gguf_tensors(seed, order="<", kinds=None):
    rng = np.random.default_rng(seed)
    tensors, floats = {}, {}
    for kind in kinds or GGUF_TYPES:
        _, values, size, places = GGUF_TYPES[kind]
        b = rng.integers(0, 256, (3 * 512 // values, size)).astype(np.uint8)
        for at in places:  # finite scales
            b[:, at : at + 2] = (rng.standard_normal((len(b), 1)) * 0.02).astype("<f2").view(np.uint8)
        if kind == "MXFP4":
            b[:, 0] = rng.integers(100, 130, len(b))
        if kind == "NVFP4":
            b[:, :4] = rng.integers(1, 127, (len(b), 4))
        if kind == "TQ1_0":
            b[:, :48] = (rng.integers(0, 243, (len(b), 48)) * 256 + 242) // 243
            b[:, 48:52] = (rng.integers(0, 81, (len(b), 4)) * 3 * 256 + 242) // 243
        name = f"blk.0.{kind.lower()}.weight"
        floats[name] = decode_gguf(kind, b).astype(np.float32).reshape(3, 512)
        raw = b.copy()
        if order == ">":
            for at in places + ((2,) if kind == "IQ4_XS" else ()):
                raw[:, [at, at + 1]] = raw[:, [at + 1, at]]
        tensors[name] = (kind, (3, 512), raw.tobytes())
    x = rng.standard_normal((2, 3, 32)).astype(np.float32)
    for kind, (_, dtype) in GGUF_PLAIN.items():
        name = f"blk.0.{kind.lower()}.weight"
        stored = bfloat_bytes(x) if kind == "BF16" else (x * 100).astype(dtype) if kind == "I32" else x.astype(dtype)
        tensors[name] = (kind, x.shape, stored.astype(order + dtype).tobytes())
        if kind != "I32":
            floats[name] = bfloat(x) if kind == "BF16" else stored.astype(np.float32)
    return tensors, floats


def stored(file):
    """Type, shape and bytes of each tensor, by a reader of our own."""
    raw = Path(file).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + size])
    return {k: (v["dtype"], v["shape"], raw[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]]) for k, v in head.items() if k != "__metadata__"}


def main(folder, seed=7):
    folder = Path(folder)
    for name, (tensors, config, floats) in Checkpoints(seed).all().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "model.safetensors").write_bytes(safetensors(tensors, {"format": "mlx" if name.startswith("mlx") else "pt"}))
        (folder / name / "config.json").write_text(json.dumps(config))
        np.savez(folder / name / "decoded.npz", **{k: np.asarray(v, np.float32) for k, v in floats.items()})
    (folder / "gguf").mkdir(exist_ok=True)
    for name, order, alignment in (("little", "<", 32), ("aligned64", "<", 64), ("big", ">", 32)):
        tensors, floats = gguf_tensors(seed, order)
        (folder / "gguf" / f"{name}.gguf").write_bytes(gguf(tensors, alignment, order))
        np.savez(folder / "gguf" / f"{name}.decoded.npz", **floats)


if __name__ == "__main__":
    main(sys.argv[1])
