#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantizes the same floats with other people's packages and with `qk convert --system SYSTEM.FORMAT --packed`, and compares every value and every packed part in every bit.

    tests/systems/packages.py QK [--systems mlx,gguf] [--seed 1] [--goldens FOLDER]

Prints a Markdown table with a row for each system, and below each row a line for each file that does not agree: format, input, and in how many places each part differs. With
--goldens it asks the packages for SYSTEM.FORMAT.CASE.PART.npy of FOLDER from the inputs input.CASE.npy beside them, and not qk: that proves that the packages are called here as
they were when the answers were kept. What is not installed is passed over and said. Exits with 1 if something disagrees that KNOWN does not name. Inputs are finite, except some of FOLDER.

Packages: libggml-python, gguf, mlx[cpu], compressed-tensors, nvidia-modelopt, torchao, auto-round, amd-quark, transformer_engine (the Python files alone; its library needs CUDA).
Not asked: mlx.*_rounded (the rule of older releases), transformer_engine.rht16 (a transform alone), ml_dtypes (casts of single values).
"""
import argparse
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np

# Formats, or one answer of a format, that may disagree.
KNOWN = {
    "modelopt.nvfp4_sweep_46": "The last bit of the tensor scale is not the same in all paths of the package, and codes beside a tie follow it.",
    "transformer_engine.nvfp4_columnwise_rht": "Sums of subnormal numbers depend on the order in which torch multiplies the matrices.",
    "quark_torch.amdfp4_g16.specials256": "The scale of a block with NaN is made of the payload of the NaN that torch's maximum happens to return.",
    "quark_torch.amdfp4_g32.specials256": "The scale of a block with NaN is made of the payload of the NaN that torch's maximum happens to return.",
}
LARGEST, LEAST = float(np.finfo(np.float32).max), 2.0**-149


# Inputs: functions of a random generator and a shape. Blocks of 32 hold two of the blocks of 16 that some formats have, and lie inside those of 64, 128 and 256.


def signs(draw, shape):
    return draw.choice((-1.0, 1.0), shape)


def powers(draw, shape, low, high):
    return np.exp2(draw.integers(low, high, shape).astype(np.float64))


def by_block(shape, size, values):
    """One value for each block of `size` in a row; values(shape of the blocks) draws them."""
    return np.repeat(values((shape[0], -(-shape[1] // size))), size, 1)[:, : shape[1]]


def up_or_down(draw, values):
    """Each value as it is, or the float32 next to it on either side."""
    values = np.asarray(values, np.float32)
    toward = draw.integers(0, 3, values.shape)
    return np.where(toward == 0, values, np.nextafter(values, np.where(toward == 1, np.inf, -np.inf).astype(np.float32)))


def any_bits(draw, shape):
    return draw.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32).view(np.float32)


def with_few(draw, values, share, few):
    """The values, but `few` times as large in a share of the places."""
    return np.where(draw.random(values.shape) < share, values * few, values)


def the_maximum(draw, shape):
    values = draw.standard_normal(shape) * 1e37
    values.flat[draw.integers(values.size)] = LARGEST
    return values


def one_nonzero(draw, shape):
    values = np.zeros(shape)
    values.flat[draw.integers(values.size)] = -0.37
    return values


# The magnitudes of E2M1 and the middles between two of them.
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
E2M1_TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5)


def fp4_ties(draw, shape):
    return draw.choice(E2M1_TIES + E2M1, shape) * signs(draw, shape) * by_block(shape, 16, lambda s: powers(draw, s, -6, 7))


def outliers_in_blocks(draw, shape):
    """Small values, and one in each 32 that is up to 2^13 and more."""
    values = draw.standard_normal(shape) * 0.02
    for start in range(0, shape[1], 32):
        place = np.minimum(start + draw.integers(0, 32, shape[0]), shape[1] - 1)
        values[np.arange(shape[0]), place] = draw.standard_normal(shape[0]) * powers(draw, shape[0], -2, 14)
    return values


def with_maxima(draw, shape, size, maxima):
    """Uniform values under the given maximum of each block, which comes first in its block."""
    maxima = by_block(shape, size, lambda s: np.asarray(maxima(s), np.float32))
    return np.where(np.arange(shape[1]) % size == 0, maxima * signs(draw, shape), draw.uniform(-1, 1, shape).astype(np.float32) * maxima)


def scale_ties(draw, shape):
    """A / 6 of blocks of 16 is an E4M3 number or a tie between two under a tensor scale of 1: the largest of all is 2688 = 6 * 448."""
    values = with_maxima(draw, shape, 16, lambda s: 6 * (16 + draw.integers(0, 32, s) / 2) * powers(draw, s, -10, 4))
    values.flat[0] = 2688
    return values


# Where rules for the scale turn: a maximum there needs the next power of two, or not.
TURNS = (1.5, 1.75, 1.9375, 4, 6, 7.25, 7.5, 15, 28, 240, 448, 57344)
KINDS = {
    "normal": lambda draw, shape: draw.standard_normal(shape),
    "laplace": lambda draw, shape: draw.laplace(size=shape),
    "uniform": lambda draw, shape: draw.uniform(-1, 1, shape),
    "positive": lambda draw, shape: draw.uniform(0, 1, shape),
    "negative": lambda draw, shape: -np.abs(draw.standard_normal(shape)) - 0.01,
    "student": lambda draw, shape: draw.standard_t(2, shape),
    "offset": lambda draw, shape: draw.standard_normal(shape) + 3,
    "log_uniform": lambda draw, shape: np.exp2(draw.uniform(-30, 30, shape)) * signs(draw, shape),
    # Integers, of which formats of integers are exact or tie
    "small_integers": lambda draw, shape: draw.integers(-8, 9, shape),
    "wide_integers": lambda draw, shape: draw.integers(-130, 131, shape),
    "integer_ties": lambda draw, shape: draw.integers(-15, 16, shape) / 2 * by_block(shape, 32, lambda s: powers(draw, s, -3, 3)),
    "few_levels": lambda draw, shape: draw.integers(-3, 4, shape) * 0.1,
    # The ends of float32
    "large_outliers": lambda draw, shape: with_few(draw, draw.standard_normal(shape), 0.003, 1e30),
    "near_the_maximum": lambda draw, shape: draw.uniform(-1, 1, shape) * LARGEST / 2,
    "the_maximum": the_maximum,
    "tiny": lambda draw, shape: draw.standard_normal(shape) * 1e-37,
    "subnormal": lambda draw, shape: draw.standard_normal(shape) * 1e-40,
    "few_last_bits": lambda draw, shape: draw.integers(-9, 10, shape) * LEAST,
    "any_bits": any_bits,
    # Ties of values and of scales, and the floats beside them
    "fp4_ties": fp4_ties,
    "beside_fp4_ties": lambda draw, shape: up_or_down(draw, fp4_ties(draw, shape)),
    "powers_of_two": lambda draw, shape: powers(draw, shape, -8, 9) * signs(draw, shape),
    "beside_powers_of_two": lambda draw, shape: up_or_down(draw, powers(draw, shape, -8, 9) * signs(draw, shape)),
    "fp8_ties": lambda draw, shape: (16 + draw.integers(0, 17, shape)) / 2 * powers(draw, shape, -8, 6) * signs(draw, shape),
    "scale_ties": scale_ties,
    "beside_turns": lambda draw, shape: with_maxima(draw, shape, 32, lambda s: up_or_down(draw, draw.choice(TURNS, s) * powers(draw, s, -9, 9))),
    # Zeros and signs
    "zeros": lambda draw, shape: np.zeros(shape),
    "negative_zeros": lambda draw, shape: -np.zeros(shape),
    "one_nonzero": one_nonzero,
    "mostly_zeros": lambda draw, shape: draw.standard_normal(shape) * (draw.random(shape) < 0.07),
    "zeros_of_both_signs": lambda draw, shape: np.where(draw.random(shape) < 0.5, draw.standard_normal(shape), signs(draw, shape) * 0.0),
    "blocks_of_zeros": lambda draw, shape: draw.standard_normal(shape) * by_block(shape, 16, lambda s: draw.integers(0, 2, s)),
    "one_sign_in_a_block": lambda draw, shape: np.abs(draw.standard_normal(shape)) * by_block(shape, 32, lambda s: signs(draw, s)),
    # Blocks unlike each other or unlike within
    "constant": lambda draw, shape: np.full(shape, 0.7),
    "constant_blocks": lambda draw, shape: by_block(shape, 32, draw.standard_normal),
    "constant_halves_of_blocks": lambda draw, shape: by_block(shape, 16, lambda s: draw.integers(-20, 20, s) / 8),
    "ramp": lambda draw, shape: np.linspace(-3, 5, shape[0] * shape[1]).reshape(shape),
    "outliers_in_blocks": outliers_in_blocks,
    "blocks_of_other_sizes": lambda draw, shape: draw.standard_normal(shape) * by_block(shape, 16, lambda s: powers(draw, s, -20, 20)),
    "blocks_of_any_size": lambda draw, shape: np.clip(draw.standard_normal(shape), -3.9, 3.9) * by_block(shape, 16, lambda s: powers(draw, s, -149, 125)),
    "mostly_positive_blocks": lambda draw, shape: draw.uniform(-0.1, 1, shape) * by_block(shape, 64, lambda s: powers(draw, s, -15, 5)),
    # Half precision, in which some packages keep their scales
    "bfloat16": lambda draw, shape: (draw.standard_normal(shape).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32),
    "float16_underflows": lambda draw, shape: draw.standard_normal(shape) * by_block(shape, 32, lambda s: powers(draw, s, -30, -8)),
    "float16_overflows": lambda draw, shape: draw.uniform(-1, 1, shape) * by_block(shape, 32, lambda s: powers(draw, s, 12, 22)),
}
# Weights of the columns.
IMPORTANCES = (lambda draw, size: np.exp(draw.standard_normal(size)), lambda draw, size: draw.uniform(0, 2, size), lambda draw, size: draw.standard_normal(size) ** 2 * 1e-3,
               lambda draw, size: np.abs(draw.standard_normal(size)) * (draw.random(size) < 0.8), lambda draw, size: np.ones(size))


class Format:
    """How a package is asked for a format: quantize(x), or quantize(x, importance), returns {part: array}, "values" among them; and shapes that the package takes."""

    def __init__(self, quantize, *shapes, importance=False):
        self.quantize, self.shapes, self.importance = quantize, shapes, importance

    def inputs(self, seed):
        """Yields name, input and importance: the first kinds in every shape, the others in the first and one more."""
        for number, (kind, make) in enumerate(KINDS.items()):
            chosen = range(len(self.shapes)) if number < 4 else sorted({0, number % len(self.shapes)})
            for place in chosen:
                shape, draw = self.shapes[place], np.random.default_rng([seed, number, place])
                with np.errstate(over="ignore"):
                    x = np.ascontiguousarray(make(draw, shape), np.float32)
                x[~np.isfinite(x)] = 1
                name = f"{kind} {shape[0]}x{shape[1]}"
                yield name, x, None
                if self.importance:
                    yield f"{name} with importance", x, IMPORTANCES[number % len(IMPORTANCES)](draw, shape[1]).astype(np.float32)


def plane_shapes(size):
    """Shapes for blocks of `size` along rows that must be whole."""
    return (8, max(256, size)), (3, 3 * size), (2, size), (1, 5 * size)


RAGGED, TILES = ((8, 256), (7, 77), (3, 33), (5, 200), (1, 640)), ((40, 72), (136, 112), (130, 260), (3, 200), (128, 128))


# The packages. Each function returns {format: Format}.


def array(tensor):
    """A torch tensor as NumPy's array; types of one byte that NumPy has not, as bytes."""
    import torch

    tensor = tensor.detach().contiguous()
    return (tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor).numpy()


def wide(tensor):
    """A tensor in float32, as scales in half precision are kept."""
    return tensor.detach().contiguous().float().numpy()


def tensor_of(x):
    import torch

    return torch.from_numpy(x.copy())  # packages write into their arguments


def largest_finite(x):
    return np.abs(x[np.isfinite(x)]).max()


def ggml():
    library = ctypes.CDLL(str(Path(importlib.util.find_spec("libggml").submodule_search_locations[0]) / "lib64" / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = library.ggml_row_size.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *3 * [ctypes.c_int64], ctypes.c_void_p]
    library.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.ggml_blck_size.restype = ctypes.c_int64
    # enum ggml_type of ggml.h
    numbers = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_K": 10, "q3_K": 11, "q4_K": 12, "q5_K": 13, "q6_K": 14, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34, "tq2_0": 35, "mxfp4": 39,
               "nvfp4": 40, "q1_0": 41, "q2_0": 42}

    def blocks(name):
        dequantize = getattr(library, f"dequantize_row_{name}")
        dequantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]

        def quantize(x, importance=None):
            rows, columns = x.shape
            codes, values = np.zeros((rows, library.ggml_row_size(numbers[name], columns)), np.uint8), np.zeros_like(x)
            library.ggml_quantize_chunk(numbers[name], x.ctypes.data, codes.ctypes.data, 0, rows, columns, None if importance is None else importance.ctypes.data)
            dequantize(codes.ctypes.data, values.ctypes.data, x.size)
            return {"codes": codes, "values": values}

        return quantize

    weighted = ("q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "iq4_xs")
    return {n: Format(blocks(n), *plane_shapes(library.ggml_blck_size(numbers[n])), importance=n in weighted) for n in numbers}


def gguf():
    from gguf import GGMLQuantizationType, quants

    def blocks(kind):
        def quantize(x):
            with np.errstate(all="ignore"):
                codes = quants.quantize(x, kind)
                return {"codes": codes.view(np.uint8), "values": quants.dequantize(codes, kind).astype(np.float32)}

        return quantize

    formats = {n: Format(blocks(GGMLQuantizationType[n.upper()]), *plane_shapes(32)) for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4")}
    return formats | {"bf16": Format(blocks(GGMLQuantizationType.BF16), *RAGGED)}


def mlx():
    import mlx.core as mx

    mx.set_default_device(mx.cpu)

    def floats(mode, size, bits, tensor_scale=False):
        def quantize(x):
            how = {"group_size": size, "bits": bits, "mode": mode} | ({"global_scale": mx.array(largest_finite(x))} if tensor_scale else {})
            codes, scales = mx.quantize(mx.array(x), **how)
            return {"codes": np.array(codes), "scales": np.array(scales), "values": np.array(mx.dequantize(codes, scales, dtype=mx.float32, **how))}

        return Format(quantize, *plane_shapes(32))  # also nvfp4: mlx 0.32.4 raises for 3 rows of 48

    def affine(bits, size, dtype=mx.float32):
        def quantize(x):
            codes, *ends = mx.quantize(mx.array(x).astype(dtype), group_size=size, bits=bits)
            values = mx.dequantize(codes, *ends, group_size=size, bits=bits)
            return {"codes": np.array(codes), "scales": np.stack([np.array(e.astype(mx.float32)) for e in ends]), "values": np.array(values.astype(mx.float32))}

        return Format(quantize, *plane_shapes(size))

    formats = {"mxfp4": floats("mxfp4", 32, 4), "mxfp8": floats("mxfp8", 32, 8), "nvfp4": floats("nvfp4", 16, 4), "nvfp4_global": floats("nvfp4", 16, 4, tensor_scale=True)}
    formats |= {f"affine{bits}_g{size}": affine(bits, size) for bits in (1, 2, 3, 4, 5, 6, 8) for size in (32, 64, 128)}
    return formats | {f"affine{bits}_g64_bf16": affine(bits, 64, mx.bfloat16) for bits in (4, 8)}


def compressed_tensors():
    from compressed_tensors.compressors import mxfp4, mxfp6, mxfp8, naive_quantized, nvfp4, pack_quantized
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    from compressed_tensors.quantization.utils.helpers import maybe_pad_tensor_for_block_quant

    def ranges(t, how):
        """Minima and maxima of what shares a scale, as the package's observers see them."""
        if how.strategy in ("group", "tensor_group"):
            return t.unflatten(-1, (-1, how.group_size)).aminmax(dim=-1)
        if how.strategy == "block":
            rows, columns = how.block_structure
            tiles = maybe_pad_tensor_for_block_quant(t, how.block_structure).unflatten(0, (-1, rows)).unflatten(-1, (-1, columns))
            return tiles.amin((1, 3)), tiles.amax((1, 3))
        return t.aminmax() if how.strategy == "tensor" else t.aminmax(dim=1, keepdim=True)

    def scheme(preset, compressor, codes="weight_packed", tensor_scale=False):
        scheme = preset_name_to_scheme(preset, ["Linear"])
        how = scheme.weights

        def quantize(x):
            t = tensor_of(x)
            tensor = generate_gparam(t.min(), t.max()) if tensor_scale else None
            scales, zeros = calculate_qparams(*ranges(t, how), how, global_scale=tensor)
            zeros = None if how.symmetric else zeros
            given = {"weight": t.clone(), "weight_scale": scales.clone(), "weight_zero_point": zeros, "weight_global_scale": tensor}
            packed = compressor.compress({k: v for k, v in given.items() if v is not None}, scheme)
            parts = {"codes": packed[codes], "scales": packed["weight_scale"], "zeros": packed.get("weight_zero_point"), "global": tensor}
            parts["values"] = fake_quantize(t, scales, zeros, how, global_scale=tensor)
            return {k: array(v) for k, v in parts.items() if v is not None}

        return quantize

    bits, bytes_ = pack_quantized.PackedQuantizationCompressor, naive_quantized.NaiveQuantizationCompressor
    by_32, by_128 = plane_shapes(32), plane_shapes(128)
    return {"nvfp4": Format(scheme("NVFP4A16", nvfp4.NVFP4PackedCompressor, tensor_scale=True), *plane_shapes(16)), "mxfp4": Format(scheme("MXFP4A16", mxfp4.MXFP4PackedCompressor), *by_32),
            "mxfp6_e2m3": Format(scheme("MXFP6A16", mxfp6.MXFP6PackedCompressor), *by_32), "mxfp8": Format(scheme("MXFP8A16", mxfp8.MXFP8QuantizationCompressor, "weight"), *by_32),
            "fp8_tensor": Format(scheme("FP8", bytes_, "weight"), *RAGGED), "fp8_channel": Format(scheme("FP8_DYNAMIC", bytes_, "weight"), *RAGGED),
            "fp8_block128": Format(scheme("FP8_BLOCK", bytes_, "weight"), *TILES), "int3_channel": Format(scheme("W3A16", bits), *by_128), "int8_channel": Format(scheme("W8A16", bits), *by_128),
            "int4_g128": Format(scheme("W4A16", bits), *by_128), "int4_g128_asym": Format(scheme("W4A16_ASYM", bits), *by_128)}


def modelopt():
    import torch
    from modelopt.torch.quantization.calib.mse import NVFP4MSECalibrator
    from modelopt.torch.quantization.qtensor import FP8QTensor, INT4QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import _cast_per_block_scale_to_fp8
    from modelopt.torch.quantization.tensor_quant import _fp8_eager
    from modelopt.torch.quantization.utils import reduce_amax, reduce_block_amax
    from modelopt.torch.quantization.utils.numeric_utils import mxfp4_to_nvfp4_global_amax, mxfp4_to_nvfp4_per_block_amax

    def parts(packed, scales, values, **more):
        return {"codes": array(packed._quantized_data), "scales": array(scales)} | ({} if values is None else {"values": array(values)}) | {k: array(v) for k, v in more.items()}

    def packed(kind, *arguments, **blocks):
        def quantize(x):
            codes, scales = kind.quantize(tensor_of(x), *arguments, **blocks)
            values = codes.dequantize(dtype=torch.float32, scale=scales, **(blocks or {"block_sizes": {-1: arguments[0]}} if arguments or blocks else {}))
            return parts(codes, scales.reshape(len(x), -1) if kind is MXFP4QTensor else scales.reshape(1) if scales.dim() == 0 else scales, values)

        return quantize

    def nvfp4(x):
        codes, scales, tensor = NVFP4QTensor.quantize(tensor_of(x), 16)
        whole = x.shape[1] % 16 == 0  # the package packs ragged rows, and cannot read them
        return parts(codes, scales, codes.dequantize(dtype=torch.float32, scale=scales, double_scale=tensor, block_sizes={-1: 16}) if whole else None, **{"global": tensor.reshape(1)})

    def fake(blocks, scales):
        """Values under given scales of blocks, by the cast of the packed path: the package's kernel of the fake one is for CUDA alone."""
        scales = scales.reshape(-1, 1)
        return NVFP4QTensor.get_e2m1_values("cpu")[NVFP4QTensor._cast_fp4((blocks / scales).clone()).long()] * scales

    def fake_scales(amax, tensor, largest=448.0):
        """compute_fp4_scales of the package's fp4_kernel.py, which imports triton."""
        return _fp8_eager(amax.float() / 6.0, tensor.float() * (448.0 / largest) / 6.0)

    def static(x):
        t = tensor_of(x)
        return {"values": array(fake(t.reshape(-1, 16), fake_scales(reduce_block_amax(t, {-1: 16}).reshape(-1), reduce_amax(t))).reshape(x.shape))}

    def sweep(largest):
        def quantize(x):
            t = tensor_of(x)
            blocks, tensor = t.reshape(-1, 16), reduce_amax(t)
            calibrator = NVFP4MSECalibrator(amax=reduce_block_amax(t, {-1: 16}).reshape(-1, 1), global_amax=tensor, axis=0,
                                            quant_func=lambda b, amax: fake(b, fake_scales(amax.reshape(-1), tensor, largest)))
            calibrator.collect(blocks)
            best = calibrator.compute_amax().reshape(-1)
            scales = best.float() / 6.0
            scales[scales == 0] = 1.0
            scales = _cast_per_block_scale_to_fp8(scales.view(len(x), -1), tensor.float() / 6.0, fp8_max_for_normalization=largest)
            codes, scales, _ = NVFP4QTensor.quantize(t.clone(), 16, scales, tensor.float() / (6.0 * largest))
            return parts(codes, scales, fake(blocks, fake_scales(best, tensor, largest)).reshape(x.shape), amax=best.reshape(len(x), -1))

        return quantize

    def mxfp4_to_nvfp4(x):
        codes, exponents = MXFP4QTensor.quantize(tensor_of(x), 32)
        weights = codes.dequantize(dtype=torch.float32, scale=exponents, block_sizes={-1: 32})
        exponents = exponents.reshape(len(x), -1)
        amax = mxfp4_to_nvfp4_per_block_amax(codes._quantized_data.reshape(len(x), -1, 16), exponents)
        tensor_amax = torch.tensor(mxfp4_to_nvfp4_global_amax(exponents)[0])
        # The path of export. The package also has a cast of its own for scales, which differs for blocks of zeros and at the top of float32.
        quantizer = types.SimpleNamespace(_amax=amax, global_amax=tensor_amax, block_sizes={-1: 16})
        scales, tensor = NVFP4QTensor.get_weights_scaling_factor_from_quantizer(quantizer, weights)
        codes, scales, _ = NVFP4QTensor.quantize(weights, 16, scales, tensor)
        return parts(codes, scales, codes.dequantize(dtype=torch.float32, scale=scales, double_scale=tensor, block_sizes={-1: 16}), block_amax=amax, global_amax=tensor_amax.reshape(1))

    def range_of(**axis):
        return lambda x: {"values": array(_fp8_eager(tensor_of(x), reduce_amax(tensor_of(x), **axis)))}

    formats = {"nvfp4": Format(nvfp4, *RAGGED, (3, 48)), "mxfp4": Format(packed(MXFP4QTensor, 32), *plane_shapes(32)), "mxfp8": Format(packed(MXFP8QTensor), *RAGGED),
               "int4_g128": Format(packed(INT4QTensor, 128), (8, 256), (3, 96), (1, 640), (2, 2)), "fp8_tensor": Format(range_of(), *RAGGED), "fp8_row": Format(range_of(axis=1), *RAGGED),
               "fp8_tensor_packed": Format(packed(FP8QTensor), *RAGGED), "mxfp4_to_nvfp4": Format(mxfp4_to_nvfp4, *plane_shapes(32)), "nvfp4_static": Format(static, *plane_shapes(16))}
    formats |= {f"fp8_2d_{size}x{size}": Format(packed(FP8QTensor, block_sizes={-1: size, -2: size}), *TILES) for size in (16, 128)}
    return formats | {"nvfp4_sweep": Format(sweep(448.0), *plane_shapes(16)), "nvfp4_sweep_46": Format(sweep(256.0), *plane_shapes(16))}


def torchao():
    import torch
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_dtype, to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    def mx(element, rule):
        def quantize(x):
            scales, codes = to_mx(tensor_of(x), element, 32, rule)
            return {"codes": array(codes), "scales": array(scales).reshape(len(x), -1), "values": array(to_dtype(codes, scales, element, 32, torch.float32)).reshape(x.shape)}

        return quantize

    def nvfp4(x):
        tensor = per_tensor_amax_to_scale(torch.tensor(largest_finite(x)))
        return one_level(x, tensor) | {"global": array(tensor.reshape(1))}

    def one_level(x, tensor=None):
        packed = NVFP4Tensor.to_nvfp4(tensor_of(x), per_tensor_scale=tensor)
        return {"codes": array(packed.qdata), "scales": array(packed.scale), "values": array(packed.dequantize(torch.float32))}

    elements = {"mxfp4_e2m1": torch.float4_e2m1fn_x2, "mxfp6_e2m3": "fp6_e2m3", "mxfp6_e3m2": "fp6_e3m2", "mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2}
    formats = {f"{name}.{rule}": Format(mx(element, ScaleCalculationMode[rule.upper()]), *plane_shapes(32)) for name, element in elements.items() for rule in ("floor", "even", "ceil", "rceil")}
    return formats | {"nvfp4": Format(nvfp4, *plane_shapes(16)), "nvfp4_onelevel": Format(one_level, *plane_shapes(16))}


def auto_round():
    from auto_round.data_type import fp8, int as integers, mxfp, nvfp

    def fake(function, zeros=False, rows=True, **how):
        def quantize(x):
            values, scales, zero_points = function(tensor_of(x), **how)
            parts = {"values": wide(values), "scales": wide(scales).reshape(len(x), -1) if rows else wide(scales)}
            return parts | ({"zeros": wide(zero_points)} if zeros else {})

        return quantize

    def mx(function, name):
        return Format(fake(function, bits=int(name[-1]), group_size=32, data_type=name), *RAGGED, (3, 96))

    def nv(function, size=16):
        return Format(fake(function, bits=4, group_size=size), *RAGGED, (3, 48))

    def ue5m3(x):
        codes = nvfp.float_to_e5m3_frexp(tensor_of(x))
        return {"codes": array(codes), "values": wide(nvfp.e5m3_to_float_tensor(codes))}

    by_128 = (*plane_shapes(128), (5, 200))
    return {"mxfp4": mx(mxfp.quant_mx, "mx_fp4"), "mxfp4_rceil": mx(mxfp.quant_mx_rceil, "mx_fp4"), "mxfp4_725": mx(mxfp.quant_mx_rceil_v2, "mx_fp4"), "mxfp4_search": mx(mxfp.quant_mx_opt_rtn, "mx_fp4"),
            "mxfp6_e2m3": mx(mxfp.quant_mx, "mx_fp6"), "mxfp8": mx(mxfp.quant_mx, "mx_fp8"), "mxint8": mx(mxfp.quant_mx, "mx_int8"), "mxint4": mx(mxfp.quant_mx, "mx_int4"),
            "mxuint4": mx(mxfp.quant_mx_uint, "mx_uint4"), "nvfp4": nv(nvfp.nv_fp4), "nvfp4_search": nv(nvfp.opt_rtn_fast_nvfp4), "nvfp4_e5m3_g16": nv(nvfp.nvfp4_v2), "nvfp4_e5m3_g32": nv(nvfp.nvfp4_v2, 32),
            "nvfp4_e5m3_global_g16": nv(nvfp.nvfp4_v2_with_global_scale), "int_sym4_g128": Format(fake(integers.quant_tensor_sym, bits=4, group_size=128), *by_128),
            "int_asym4_g128": Format(fake(integers.quant_tensor_asym, zeros=True, bits=4, group_size=128), *by_128),
            "fp8_block128": Format(fake(fp8.quant_block_fp_sym, rows=False, group_size=(128, 128)), *TILES), "ue5m3": Format(ue5m3, *RAGGED)}


def quark_torch():
    # quark compiles an extension when it is first imported, with the ninja that lies beside the interpreter.
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    import torch
    from quark.torch.kernel.float8_e5m3 import convert_fp32_to_e5m3_bits_func, dequantize_float8_e5m3_func
    from quark.torch.quantization.config import config as specs
    from quark.torch.quantization.tensor_quantize import FakeQuantizeBase

    def quantized(x, spec):
        quantizer = FakeQuantizeBase.get_fake_quantize(spec)
        for stage in quantizer if isinstance(spec, list) else [quantizer]:
            stage.enable_observer()
            stage.enable_fake_quant()
        with torch.no_grad():
            return quantizer, wide(quantizer(tensor_of(x)))

    def one_stage(spec, zeros=False):
        spec = spec.to_quantization_spec()

        def quantize(x):
            quantizer, values = quantized(x, spec)
            scales, zero_points = quantizer.observe(tensor_of(x)) if getattr(quantizer, "is_dynamic", False) else (quantizer.scale, quantizer.zero_point)
            parts = {"values": values, "scales": wide(scales).reshape(1 if spec.qscheme.value == "per_tensor" else (len(x), -1))}
            return parts | ({"zeros": wide(zero_points).reshape(len(x), -1)} if zeros else {})

        return quantize

    def two_stages(x):
        blocks = specs.FP4PerGroupSpec(ch_axis=-1, group_size=16, is_dynamic=False)
        tensor = specs.FP8E5M3PerTensorSpec(observer_method="min_max", is_dynamic=False, scale_type="float")
        (first, second), values = quantized(x, specs.ScaleQuantSpec(first_stage=blocks, second_stage=tensor).to_quantization_spec())
        return {"values": values, "scales0": wide(first.scale).reshape(len(x), -1), "scales1": wide(second.scale).reshape(1)}

    def ue5m3(x):
        codes = convert_fp32_to_e5m3_bits_func(tensor_of(x))
        return {"codes": array(codes), "values": wide(dequantize_float8_e5m3_func(codes))}

    rows_of_16, by_32, by_128 = (*RAGGED, (3, 48)), plane_shapes(32), plane_shapes(128)
    asymmetric = specs.Uint4PerGroupSpec(ch_axis=-1, group_size=128, symmetric=False, scale_type="float", round_method="half_even")
    return {"amdfp4_g16": Format(one_stage(specs.AmdFP4Spec(ch_axis=-1, group_size=16)), *rows_of_16), "amdfp4_g32": Format(one_stage(specs.AmdFP4Spec(ch_axis=-1, group_size=32)), *by_32),
            "mxfp4_even": Format(one_stage(specs.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False, scale_calculation_mode="even")), *by_32),
            "mxfp4_ceil": Format(one_stage(specs.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False, scale_calculation_mode="ceil")), *by_32),
            "mxfp4_diffs": Format(one_stage(specs.OCP_MXFP4DiffsSpec(ch_axis=-1)), *by_32), "nvfp4_block_e4m3": Format(one_stage(specs.FP4PerGroupSpec(ch_axis=-1, group_size=16, scale_format="e4m3")), *rows_of_16),
            "fp8_e5m3_tensor": Format(one_stage(specs.FP8E5M3PerTensorSpec(observer_method="min_max", scale_type="float")), *RAGGED), "amdfp4_global_g16": Format(two_stages, *by_32),
            "int4_g128_sym": Format(one_stage(specs.Int4PerGroupSpec(ch_axis=-1, group_size=128)), *by_128), "uint4_g128_asym": Format(one_stage(asymmetric, zeros=True), *by_128), "ue5m3": Format(ue5m3, *RAGGED)}


def reference_of_transformer_engine():
    """The package's references in Python, loaded from their files: importing the package needs its CUDA library. What they import from the rest of it is replaced."""
    root, name = Path(importlib.util.find_spec("transformer_engine").submodule_search_locations[0]), "transformer_engine.pytorch.custom_recipes"
    for part in ("transformer_engine", "transformer_engine.pytorch", name, "transformer_engine.pytorch.tensor", "transformer_engine.pytorch.quantized_tensor", "transformer_engine.pytorch.tensor.utils"):
        sys.modules[part] = types.ModuleType(part)
        sys.modules[part].__path__ = []

    class Quantizer:
        def __init__(self, *, rowwise, columnwise):
            self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    sys.modules["transformer_engine.pytorch.quantized_tensor"].Quantizer = Quantizer
    sys.modules["transformer_engine.pytorch.quantized_tensor"].QuantizedTensorStorage = type("QuantizedTensorStorage", (), {})
    sys.modules["transformer_engine.pytorch.tensor.utils"].is_custom = lambda value: True
    for file in ("reference_utils", "gemm", "reference_nvfp4", "reference_current_scaling"):
        spec = importlib.util.spec_from_file_location(f"{name}.{file}", root / "pytorch" / "custom_recipes" / f"{file}.py")
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        setattr(sys.modules[name], file, sys.modules[spec.name])
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[name]


def transformer_engine():
    import torch

    package = reference_of_transformer_engine()
    fp4, reference = package.reference_utils.Fp4Formats.E2M1, package.reference_nvfp4

    def nvfp4(tile=(1, 16), largest=448, **how):
        def quantize(x):
            quantizer = reference.NVFP4QuantizerRef(dtype=fp4, rowwise=True, columnwise=False, quant_tile_shape=tile, nvfp4_e4m3_max=largest, **how)
            codes, scales, _, _, amax, _ = quantizer._quantize(tensor_of(x))
            scales = scales[: len(x)]  # the reference pads them
            # The order of the CUDA kernel that reads them; the references have none.
            factors = scales.to(torch.float32) * (amax if amax.numel() == 1 else amax.reshape(-1, 1)) * torch.tensor(np.float32(1) / np.float32(6 * largest))
            values = (reference.cast_from_fp4x2(codes, torch.float32).reshape(len(x), -1, 16) * factors.unsqueeze(-1)).reshape(x.shape)
            return {"codes": array(codes), "scales": array(scales), "amax": array(amax), "values": array(values)}

        return quantize

    def columnwise(hadamard):
        def quantize(x):
            _, _, codes, scales, _, amax = reference.NVFP4QuantizerRef(dtype=fp4, rowwise=False, columnwise=True, with_rht=hadamard)._quantize(tensor_of(x))
            return {"codes": array(codes), "scales": array(scales), "amax": array(amax)}

        return quantize

    def mxfp4(x):
        codes, scales = reference.NVFP4QuantizerRef._quantize_blockwise_reference(tensor_of(x), None, 32, 1, pow_2_scales=True, eps=0.0)
        values = (reference.cast_from_fp4x2(codes, torch.float32).reshape(len(x), -1, 32) * scales.unsqueeze(-1)).reshape(x.shape)
        return {"codes": array(codes), "scales": wide(scales).reshape(len(x), -1), "values": array(values)}

    def current(dtype, powers_of_two):
        def quantize(x):
            quantizer = package.reference_current_scaling.CurrentScalingQuantizerRef(dtype=dtype, rowwise=True, columnwise=False, pow_2_scales=powers_of_two, eps=0.0)
            codes, scale = quantizer._quantize(tensor_of(x))[:2]
            return {"codes": array(codes), "scales": array(scale.reshape(1)), "values": array(codes.float() * scale)}

        return quantize

    rows, tiles, columns = plane_shapes(16), ((32, 64), (16, 16), (48, 32)), ((16, 256), (32, 48), (64, 17))
    squared = {"nvfp4_use_4over6": True, "nvfp4_4over6_err_mode": "MSE"}
    formats = {"nvfp4": Format(nvfp4(), *rows), "nvfp4_2d16x16": Format(nvfp4((16, 16)), *tiles), "nvfp4_rowscaled": Format(nvfp4(row_scaled_nvfp4=True), *rows),
               "nvfp4_4over6_mae": Format(nvfp4(nvfp4_use_4over6=True), *rows), "nvfp4_4over6_mae_fast": Format(nvfp4(nvfp4_use_4over6=True, nvfp4_4over6_err_use_fast_math=True), *rows),
               "nvfp4_4over6_mse": Format(nvfp4(**squared), *rows), "nvfp4_4over6_mse256": Format(nvfp4(largest=256, **squared), *rows), "nvfp4_4over6_2d": Format(nvfp4((16, 16), **squared), *tiles),
               "nvfp4_columnwise": Format(columnwise(False), *columns), "nvfp4_columnwise_rht": Format(columnwise(True), *columns), "mxfp4": Format(mxfp4, *plane_shapes(32))}
    return formats | {f"fp8_current_{name}{'_pow2' * p}": Format(current(dtype, p), *RAGGED) for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)) for p in (False, True)}


SYSTEMS = {"ggml": ("libggml-python", ggml), "gguf": ("gguf", gguf), "mlx": ("mlx", mlx), "compressed_tensors": ("compressed-tensors", compressed_tensors), "modelopt": ("nvidia-modelopt", modelopt),
           "torchao": ("torchao", torchao), "auto_round": ("auto-round", auto_round), "quark_torch": ("amd-quark", quark_torch), "transformer_engine": ("transformer_engine", transformer_engine)}


# Comparing


def bits(values):
    """The values as integers; NaN is one value, whatever its payload."""
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return values.view(f"u{values.dtype.itemsize}")


def differences(answer, expected):
    """A phrase for each part that differs, or that one of the two lacks."""
    phrases = []
    for part in sorted(answer.keys() | expected.keys()):
        if part not in answer or part not in expected:
            phrases.append(f"{part} only in {'the package' if part in answer else 'the other'}")
            continue
        a, b = np.asarray(answer[part]), np.asarray(expected[part])
        if a.shape != b.shape or a.dtype.itemsize != b.dtype.itemsize:
            phrases.append(f"{part} is {a.dtype} {a.shape}, not {b.dtype} {b.shape}")
        elif (count := int((bits(a) != bits(b)).sum())):
            phrases.append(f"{count} of {a.size} {part}")
    return phrases


def asked(answer):
    """What the package says, or its error as a part that nothing agrees with."""
    try:
        return answer()
    except Exception as error:
        return {"error: " + " ".join(str(error).split())[:160]: 0}


def by_qk(qk, name, x, importance, wanted):
    """What `qk convert` says. Values that the package does not give are left out; parts are asked for where it gives any."""
    with tempfile.TemporaryDirectory() as place:
        files = [f"{place}/{n}" for n in ("x.npy", "values.npy", "parts.npz", "importance.npy")]
        command = [qk, "convert", *files[:2], "--system", name]
        np.save(files[0], x)
        if wanted != {"values"}:
            command += ["--packed", files[2]]
        if importance is not None:
            np.save(files[3], importance)
            command += ["--importance", files[3]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        parts = {"values": np.load(files[1])} if "values" in wanted else {}
        return parts | (dict(np.load(files[2])) if wanted != {"values"} else {})


def fresh(qk, system, formats, seed):
    """Yields format, input, and how the package and qk differ."""
    for name, form in formats.items():
        for what, x, importance in form.inputs(seed):
            answer = asked(lambda: form.quantize(x) if importance is None else form.quantize(x, importance))
            yield name, what, differences(answer, asked(lambda: by_qk(qk, f"{system}.{name}", x, importance, set(answer))))


def kept(folder, system, formats):
    """Yields format, case, and how the package and the answers of the folder differ. Only parts that were kept are compared."""
    elsewhere = ("decompressed", "scales_swizzled")  # what the packages read back, and moved scales: not what `qk convert` writes
    for name, form in formats.items():
        for file in sorted(folder.glob("input.*.npy")):
            for mark in ("", "imatrix."):
                case = mark + file.name.split(".")[1]
                stem = f"{system}.{name}.{case}."
                expected = {f.name[len(stem) :].removesuffix("npy").removesuffix(".") or "values": np.load(f) for f in folder.glob(stem + "*npy")}
                expected = {k: v for k, v in expected.items() if k not in elsewhere}
                if expected:
                    importance = [np.load(folder / "ggml.imatrix256.npy")] if mark else []
                    answer = asked(lambda: form.quantize(np.load(file), *importance))
                    yield name, case, differences({k: v for k, v in answer.items() if k in expected or k.startswith("error")}, expected)


def row(system, package, formats, results):
    """Prints the row of a system and its disagreements. Returns whether KNOWN names them all."""
    wrong = [(name, what, phrases) for name, what, phrases in results if phrases]
    print(f"| {system} | {package} {importlib.metadata.version(package)} | {len(formats)} | {len(results)} | {len(results) - len(wrong)} |", flush=True)
    surprises = 0
    for name, what, phrases in wrong:
        known = f"{system}.{name}" in KNOWN or f"{system}.{name}.{what}" in KNOWN
        surprises += not known
        print(f"  {system}.{name}, {what}: {'; '.join(phrases)}{' (known)' if known else ''}", flush=True)
    return not surprises


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("qk", type=Path)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of " + ",".join(SYSTEMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goldens", type=Path, help="a folder of answers to make again, in place of qk's")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    missing, good = [], True
    print("| system | package | formats | files | equal in every bit |\n|---|---|---|---|---|")
    for system in options.systems.split(","):
        package, formats_of = SYSTEMS[system]
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
            continue
        with contextlib.redirect_stdout(sys.stderr):  # some packages greet
            formats = formats_of()
            results = list(kept(options.goldens, system, formats) if options.goldens else fresh(options.qk.resolve(), system, formats, options.seed))
        good &= row(system, package, formats, results)
    for package in missing:
        print(f"\n{package} is not installed.")
    return 0 if good else 1


sys.exit(main())
