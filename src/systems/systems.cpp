// SPDX-License-Identifier: Apache-2.0
// The table of the systems' rules. T is the largest magnitude of the tensor, A that of a block.
//
// This file is long because every format of every system has its line.
#include "qk/systems.hpp"

#include <stdexcept>
#include <string>

#include "tables.hpp"

namespace qk::systems {
namespace {

constexpr const char* te_source =
    "transformer_engine 2.20.2, pytorch/custom_recipes (its reference; values in the order of its CUDA kernel)";
constexpr const char* modelopt_source = "nvidia-modelopt 0.47.0, torch/quantization";
constexpr const char* ct_source = "compressed-tensors 0.20.0";
constexpr const char* torchao_source = "torchao 0.18.0, prototype/mx_formats";
constexpr const char* ar_source = "auto-round 0.16.1, data_type";
constexpr const char* quark_source = "amd-quark 0.13, torch side";
constexpr const char* mlx_source = "mlx 0.32.4 on the CPU";
constexpr const char* ggml_source = "ggml 0.20.2, ggml_quantize_chunk";
constexpr const char* gguf_source = "gguf 0.19.0, gguf/quants.py";
constexpr const char* ml_dtypes_source = "ml_dtypes 0.6.0";

constexpr rule all_rules[] = {
    {"transformer_engine", "nvfp4", "codes scales amax",
     "two levels, T / 2688; a block scale that underflows loses its block; x times the rounded inverse; ties to even", te_source, false, 1,
     te_nvfp4},
    {"transformer_engine", "nvfp4_2d16x16", "codes scales amax", "the same with a scale for tiles of 16 x 16", te_source, false, 1,
     te_nvfp4},
    {"transformer_engine", "nvfp4_rowscaled", "codes scales amax", "the same with a tensor scale for each row", te_source, false, 1,
     te_nvfp4},
    {"transformer_engine", "nvfp4_4over6_mae", "codes scales amax",
     "scale for 6, or 1.5 times it for 4, whichever has the smaller sum of |error|", te_source, false, 1, te_nvfp4},
    {"transformer_engine", "nvfp4_4over6_mae_fast", "codes scales amax",
     "the same with the error taken in the scaled domain, in products of half precision", te_source, false, 1, te_nvfp4},
    {"transformer_engine", "nvfp4_4over6_mse", "codes scales amax", "four over six by squared error", te_source, false, 1, te_nvfp4},
    {"transformer_engine", "nvfp4_4over6_mse256", "codes scales amax",
     "four over six by squared error under T / 1536, which leaves room for the 1.5", te_source, false, 1, te_nvfp4},
    {"transformer_engine", "nvfp4_4over6_2d", "codes scales amax", "four over six by squared error for tiles of 16 x 16", te_source, false,
     1, te_nvfp4},
    {"transformer_engine", "nvfp4_columnwise", "codes scales amax", "nvfp4 of the transposed matrix", te_source, false, 1, te_columnwise},
    {"transformer_engine", "nvfp4_columnwise_rht", "codes scales amax",
     "nvfp4 of the transposed matrix after a Hadamard transform of each 16 values", te_source, false, 1, te_columnwise},
    {"transformer_engine", "rht16", "", "the Hadamard transform alone", te_source, false, 1, te_columnwise},
    {"transformer_engine", "mxfp4", "codes scales", "2^ceil(log2(A / 6)); ties to even; input -0 becomes +0", te_source, false, 1,
     te_mxfp4},
    {"transformer_engine", "fp8_current_e4m3", "codes scales", "S = 448 / T for the tensor; x S cast, times 1 / S", te_source, false, 1,
     te_fp8_current},
    {"transformer_engine", "fp8_current_e4m3_pow2", "codes scales", "the same with S cut to its power of two", te_source, false, 1,
     te_fp8_current},
    {"transformer_engine", "fp8_current_e5m2", "codes scales", "S = 57344 / T for the tensor; x S cast, times 1 / S", te_source, false, 1,
     te_fp8_current},
    {"transformer_engine", "fp8_current_e5m2_pow2", "codes scales", "the same with S cut to its power of two", te_source, false, 1,
     te_fp8_current},
    {"modelopt", "nvfp4", "codes scales global", "two levels, t = T / 2688; block scales at least 2^-9; x divided; no -0; ties to even",
     modelopt_source, false, 1, modelopt_nvfp4},
    {"modelopt", "nvfp4_static", "", "fake quantization of static weights: block scale by fake FP8 under T / 6", modelopt_source, false, 1,
     modelopt_nvfp4_static},
    {"modelopt", "nvfp4_sweep", "codes scales amax", "the same, block amax the best of T times the 126 positive E4M3 values / 448",
     modelopt_source, false, 1, modelopt_nvfp4_static},
    {"modelopt", "nvfp4_sweep_46", "codes scales amax", "the sweep with 256 for 448 in the tensor scale", modelopt_source, false, 1,
     modelopt_nvfp4_static},
    {"modelopt", "mxfp4", "codes scales", "2^ceil(log2(A / 6)); ties to the smaller magnitude; +0 is written as -0", modelopt_source, false,
     1, modelopt_mxfp4},
    {"modelopt", "mxfp4_to_nvfp4", "codes scales block_amax global_amax",
     "mxfp4, then its values as nvfp4 under scales that are powers of two", modelopt_source, false, 1, modelopt_mxfp4_to_nvfp4},
    {"modelopt", "mxfp8", "codes scales", "2^ceil(log2(A / 448)); ties to even", modelopt_source, false, 1, modelopt_mxfp8},
    {"modelopt", "fp8_tensor", "", "fake FP8 with a range for the tensor; a range up to 2^-24 counts as 1", modelopt_source, false, 1,
     modelopt_fp8_fake},
    {"modelopt", "fp8_row", "", "fake FP8 with a range for each row", modelopt_source, false, 1, modelopt_fp8_fake},
    {"modelopt", "fp8_tensor_packed", "codes scales", "packed FP8: x divided by T / 448", modelopt_source, false, 1, modelopt_fp8_packed},
    {"modelopt", "fp8_2d_128x128", "codes scales", "packed FP8 with a scale for tiles of 128 x 128", modelopt_source, false, 1,
     modelopt_fp8_packed},
    {"modelopt", "fp8_2d_16x16", "codes scales", "packed FP8 with a scale for tiles of 16 x 16", modelopt_source, false, 1,
     modelopt_fp8_packed},
    {"modelopt", "int4_g128", "codes scales", "x times 7 / A for 128 values along the whole tensor; the first of a pair in the high half",
     modelopt_source, false, 2, modelopt_int4},
    {"compressed_tensors", "nvfp4", "codes scales global",
     "two levels, g = 2688 / T; a block scale that underflows becomes 0.125; x divided; ties to even", ct_source, false, 16, ct_nvfp4},
    {"compressed_tensors", "mxfp4", "codes scales", "A rounded up to a power of two from 1.75 on, / 4; ties to even", ct_source, false, 32,
     ct_mx},
    {"compressed_tensors", "mxfp6_e2m3", "codes scales",
     "A rounded up to a power of two from 1.9375 on, / 4; ties to even; four codes in three bytes", ct_source, false, 32, ct_mx},
    {"compressed_tensors", "mxfp8", "codes scales", "A rounded up to a power of two from 1.75 on, / 256; ties to even", ct_source, false,
     32, ct_mx},
    {"compressed_tensors", "fp8_tensor", "codes scales", "T / 448; x divided and clamped", ct_source, false, 1, ct_fp8},
    {"compressed_tensors", "fp8_channel", "codes scales", "A / 448 for each row", ct_source, false, 1, ct_fp8},
    {"compressed_tensors", "fp8_block128", "codes scales", "A / 448 for tiles of 128 x 128", ct_source, false, 1, ct_fp8},
    {"compressed_tensors", "int3_channel", "codes scales", "A / 3.5 for 128 values; clamped, then rounded; dense 32-bit words", ct_source,
     false, 128, ct_int},
    {"compressed_tensors", "int8_channel", "codes scales", "A / 127.5 for 128 values; clamped, then rounded; dense 32-bit words", ct_source,
     false, 128, ct_int},
    {"compressed_tensors", "int4_g128", "codes scales", "A / 7.5 for 128 values; clamped, then rounded; dense 32-bit words", ct_source,
     false, 128, ct_int},
    {"compressed_tensors", "int4_g128_asym", "codes scales zeros", "(max - min) / 15 and a rounded zero point for 128 values", ct_source,
     false, 128, ct_int},
    {"torchao", "mxfp4_e2m1.floor", "codes scales", "2^floor(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp4_e2m1.even", "codes scales", "A rounded to the bits of the element, then floor; ties to even", torchao_source, false,
     32, torchao_mx},
    {"torchao", "mxfp4_e2m1.ceil", "codes scales", "2^ceil(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp4_e2m1.rceil", "codes scales", "2^ceil(log2(A / largest)); a scale of 2^-127 makes zeros; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e2m3.floor", "codes scales", "2^floor(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e2m3.even", "codes scales", "A rounded to the bits of the element, then floor; ties to even", torchao_source, false,
     32, torchao_mx},
    {"torchao", "mxfp6_e2m3.ceil", "codes scales", "2^ceil(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e2m3.rceil", "codes scales", "2^ceil(log2(A / largest)); a scale of 2^-127 makes zeros; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e3m2.floor", "codes scales", "2^floor(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e3m2.even", "codes scales", "A rounded to the bits of the element, then floor; ties to even", torchao_source, false,
     32, torchao_mx},
    {"torchao", "mxfp6_e3m2.ceil", "codes scales", "2^ceil(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp6_e3m2.rceil", "codes scales", "2^ceil(log2(A / largest)); a scale of 2^-127 makes zeros; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e4m3.floor", "codes scales", "2^floor(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e4m3.even", "codes scales", "A rounded to the bits of the element, then floor; ties to even", torchao_source, false,
     32, torchao_mx},
    {"torchao", "mxfp8_e4m3.ceil", "codes scales", "2^ceil(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e4m3.rceil", "codes scales", "2^ceil(log2(A / largest)); a scale of 2^-127 makes zeros; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e5m2.floor", "codes scales", "2^floor(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e5m2.even", "codes scales", "A rounded to the bits of the element, then floor; ties to even", torchao_source, false,
     32, torchao_mx},
    {"torchao", "mxfp8_e5m2.ceil", "codes scales", "2^ceil(log2 A) over the largest power of two of the element; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "mxfp8_e5m2.rceil", "codes scales", "2^ceil(log2(A / largest)); a scale of 2^-127 makes zeros; ties to even",
     torchao_source, false, 32, torchao_mx},
    {"torchao", "nvfp4", "codes scales global", "two levels, t = T / 2688; block scales at least 2^-6; x times (1 / t) / s; ties to even",
     torchao_source, false, 16, torchao_nvfp4},
    {"torchao", "nvfp4_onelevel", "codes scales", "block scale E4M3(A / 6), at least 2^-6", torchao_source, false, 16, torchao_nvfp4},
    {"auto_round", "mxfp4", "scales", "2^(floor(log2 A) - 2); a block of zeros has 2^-1; the float just below a tie rounds up", ar_source,
     false, 1, ar_mx},
    {"auto_round", "mxfp4_rceil", "scales", "2^ceil(log2(A / 6))", ar_source, false, 1, ar_mx},
    {"auto_round", "mxfp4_725", "scales", "2^ceil(log2(A / 7.25))", ar_source, false, 1, ar_mx},
    {"auto_round", "mxfp4_search", "scales", "floor rule of A, A / 2 or 2 A, by squared error", ar_source, false, 1, ar_mx},
    {"auto_round", "mxfp6_e2m3", "scales", "2^(floor(log2 A) - 2)", ar_source, false, 1, ar_mx},
    {"auto_round", "mxfp8", "scales", "2^(floor(log2 A) - 8)", ar_source, false, 1, ar_mx},
    {"auto_round", "mxint8", "scales", "2^floor(log2 A), steps of 1/64", ar_source, false, 1, ar_mx},
    {"auto_round", "mxint4", "scales", "2^floor(log2 A), steps of 1/4", ar_source, false, 1, ar_mx},
    {"auto_round", "mxuint4", "scales", "2^floor(log2 A), codes 0 to 15 around 8", ar_source, false, 1, ar_mxuint4},
    {"auto_round", "nvfp4", "scales",
     "two levels, g = 2688 / T; a block scale that underflows zeroes its block; x times the rounded inverse", ar_source, false, 1,
     ar_nvfp4},
    {"auto_round", "nvfp4_search", "scales", "the same, A times the best of 0.50 to 1.51 in steps of 0.01", ar_source, false, 1, ar_nvfp4},
    {"auto_round", "nvfp4_e5m3_g16", "scales", "one level: UE5M3(A / 6)", ar_source, false, 1, ar_nvfp4_e5m3},
    {"auto_round", "nvfp4_e5m3_g32", "scales", "one level: UE5M3(A / 6)", ar_source, false, 1, ar_nvfp4_e5m3},
    {"auto_round", "nvfp4_e5m3_global_g16", "scales", "two levels with UE5M3, g = 114688 * 6 / T", ar_source, false, 1, ar_nvfp4_e5m3},
    {"auto_round", "ue5m3", "codes", "the cast to UE5M3: saturates, negatives are 0", ar_source, false, 1, ar_ue5m3},
    {"auto_round", "int_sym4_g128", "scales", "the signed value of largest magnitude / -8, in half precision, at least 1e-5", ar_source,
     false, 1, ar_int},
    {"auto_round", "int_asym4_g128", "scales zeros", "(max - min) / 15 in half precision, at least 1e-5, and a rounded zero point",
     ar_source, false, 1, ar_int},
    {"auto_round", "fp8_block128", "scales", "A / 448 for tiles of 128 x 128", ar_source, false, 1, ar_fp8_block},
    {"quark_torch", "mxfp4_even", "scales", "A rounded up to a power of two from 1.75 on, / 4; no -0", quark_source, false, 1, quark_mxfp4},
    {"quark_torch", "mxfp4_ceil", "scales", "2^ceil(log2 A) / 4; no -0", quark_source, false, 1, quark_mxfp4},
    {"quark_torch", "mxfp4_diffs", "scales", "2^ceil(log2 A) / 4 or half of it, by squared error", quark_source, false, 1, quark_mxfp4},
    {"quark_torch", "nvfp4_block_e4m3", "scales", "E4M3 of A / 6 under T, divided back into one float32 scale", quark_source, false, 1,
     quark_nvfp4},
    {"quark_torch", "amdfp4_g16", "scales", "UE5M3(A / 6); a scale of 0 divides as 2^-23", quark_source, false, 1, quark_amdfp4},
    {"quark_torch", "amdfp4_g32", "scales", "UE5M3(A / 6); a scale of 0 divides as 2^-23", quark_source, false, 1, quark_amdfp4},
    {"quark_torch", "amdfp4_global_g16", "scales0 scales1",
     "UE5M3 of A / 6 under T / (6 * 114688), at least 2^-23 where that is 0; a scale of 0 zeros its block", quark_source, false, 1,
     quark_amdfp4},
    {"quark_torch", "fp8_e5m3_tensor", "scales", "UE5M3 of |x| under T / 114688", quark_source, false, 1, quark_fp8_e5m3},
    {"quark_torch", "ue5m3", "codes", "the cast to UE5M3: no saturation, the sign is dropped", quark_source, false, 1, quark_ue5m3},
    {"quark_torch", "int4_g128_sym", "scales", "A / 7.5 for 128 values, x times the inverse", quark_source, false, 128, quark_int4},
    {"quark_torch", "uint4_g128_asym", "scales zeros", "(max - min) / 15 and a rounded zero point for 128 values", quark_source, false, 128,
     quark_int4},
    {"mlx", "mxfp4", "codes scales", "2^ceil(log2(A / 6)), exponents below -127 wrap; ties to the smaller magnitude; zeros have scale 1",
     mlx_source, false, 32, mlx_fp},
    {"mlx", "mxfp8", "codes scales", "2^ceil(log2(A / 448)), exponents below -127 wrap; ties to even", mlx_source, false, 32, mlx_fp},
    {"mlx", "mxfp4_rounded", "codes scales", "as before the mend of 2026: 2^round(log2(A / 6))", mlx_source, false, 32, mlx_fp},
    {"mlx", "mxfp8_rounded", "codes scales", "as before the mend of 2026: 2^round(log2(A / 448))", mlx_source, false, 32, mlx_fp},
    {"mlx", "nvfp4", "codes scales", "E4M3(A / 6), no tensor level; ties to the smaller magnitude", mlx_source, false, 16, mlx_fp},
    {"mlx", "nvfp4_global", "codes scales", "E4M3(A / 6 * 2688 / T); ties to the smaller magnitude", mlx_source, false, 16, mlx_fp},
    {"mlx", "affine1_g32", "codes scales", "max - min and min", mlx_source, false, 32, mlx_affine},
    {"mlx", "affine1_g64", "codes scales", "max - min and min", mlx_source, false, 64, mlx_affine},
    {"mlx", "affine1_g128", "codes scales", "max - min and min", mlx_source, false, 128, mlx_affine},
    {"mlx", "affine2_g32", "codes scales", "(max - min) / 3, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     32, mlx_affine},
    {"mlx", "affine2_g64", "codes scales", "(max - min) / 3, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     64, mlx_affine},
    {"mlx", "affine2_g128", "codes scales", "(max - min) / 3, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     128, mlx_affine},
    {"mlx", "affine3_g32", "codes scales", "(max - min) / 7, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     32, mlx_affine},
    {"mlx", "affine3_g64", "codes scales", "(max - min) / 7, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     64, mlx_affine},
    {"mlx", "affine3_g128", "codes scales", "(max - min) / 7, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     128, mlx_affine},
    {"mlx", "affine4_g32", "codes scales", "(max - min) / 15, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     32, mlx_affine},
    {"mlx", "affine4_g64", "codes scales", "(max - min) / 15, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     64, mlx_affine},
    {"mlx", "affine4_g128", "codes scales", "(max - min) / 15, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 128, mlx_affine},
    {"mlx", "affine5_g32", "codes scales", "(max - min) / 31, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     32, mlx_affine},
    {"mlx", "affine5_g64", "codes scales", "(max - min) / 31, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     64, mlx_affine},
    {"mlx", "affine5_g128", "codes scales", "(max - min) / 31, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 128, mlx_affine},
    {"mlx", "affine6_g32", "codes scales", "(max - min) / 63, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     32, mlx_affine},
    {"mlx", "affine6_g64", "codes scales", "(max - min) / 63, moved so that the larger edge is exact; scales and biases", mlx_source, false,
     64, mlx_affine},
    {"mlx", "affine6_g128", "codes scales", "(max - min) / 63, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 128, mlx_affine},
    {"mlx", "affine8_g32", "codes scales", "(max - min) / 255, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 32, mlx_affine},
    {"mlx", "affine8_g64", "codes scales", "(max - min) / 255, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 64, mlx_affine},
    {"mlx", "affine8_g128", "codes scales", "(max - min) / 255, moved so that the larger edge is exact; scales and biases", mlx_source,
     false, 128, mlx_affine},
    {"mlx", "affine4_g64_bf16", "codes scales", "the same on weights in bfloat16", mlx_source, false, 64, mlx_affine},
    {"mlx", "affine8_g64_bf16", "codes scales", "the same on weights in bfloat16", mlx_source, false, 64, mlx_affine},
    {"ggml", "q1_0", "codes", "mean of |x| and a sign each", ggml_source, false, 128, ggml_rule},
    {"ggml", "q2_0", "codes", "A, codes -1 0 1", ggml_source, false, 64, ggml_rule},
    {"ggml", "q4_0", "codes", "signed maximum / -8, 32 values", ggml_source, true, 32, ggml_rule},
    {"ggml", "q4_1", "codes", "(max - min) / 15 and the minimum, 32 values", ggml_source, true, 32, ggml_rule},
    {"ggml", "q5_0", "codes", "signed maximum / -16, 32 values", ggml_source, true, 32, ggml_rule},
    {"ggml", "q5_1", "codes", "(max - min) / 31 and the minimum, 32 values", ggml_source, true, 32, ggml_rule},
    {"ggml", "q8_0", "codes", "A / 127, half away from zero, 32 values", ggml_source, false, 32, ggml_rule},
    {"ggml", "q2_K", "codes", "16 x 16 values, searched scales and minima of 4 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "q3_K", "codes", "16 x 16 values, searched scales of 6 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "q4_K", "codes", "8 x 32 values, searched scales and minima of 6 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "q5_K", "codes", "8 x 32 values, searched scales and minima of 6 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "q6_K", "codes", "16 x 16 values, searched scales of 8 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "iq4_nl", "codes", "16 uneven levels, searched scale, 32 values", ggml_source, true, 32, ggml_rule},
    {"ggml", "iq4_xs", "codes", "16 uneven levels, 8 x 32 values, searched scales of 6 bits", ggml_source, true, 256, ggml_rule},
    {"ggml", "tq1_0", "codes", "A, codes -1 0 1, five in a byte", ggml_source, false, 256, ggml_rule},
    {"ggml", "tq2_0", "codes", "A, codes -1 0 1", ggml_source, false, 256, ggml_rule},
    {"ggml", "mxfp4", "codes", "2^(floor(log2 A) - 2), ties to the smaller magnitude", ggml_source, false, 32, ggml_rule},
    {"ggml", "nvfp4", "codes", "its own UE4M3 of A / 6, half up, 448 from 256 on; no tensor level", ggml_source, false, 64, ggml_rule},
    {"gguf", "q4_0", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "q4_1", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "q5_0", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "q5_1", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "q8_0", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "mxfp4", "codes", "as ggml; Inf and NaN as numpy passes them on", gguf_source, false, 32, gguf_rule},
    {"gguf", "bf16", "codes", "to nearest even; NaN keeps its top bits", gguf_source, false, 1, gguf_rule},
    {"ml_dtypes", "int1", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
    {"ml_dtypes", "int2", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
    {"ml_dtypes", "int4", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
    {"ml_dtypes", "uint1", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
    {"ml_dtypes", "uint2", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
    {"ml_dtypes", "uint4", "codes", "truncated toward zero, then the low bits; NaN and Inf are 0", ml_dtypes_source, false, 1,
     ml_dtypes_int},
};

}  // namespace

std::span<const rule> rules() { return all_rules; }

const rule* find(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return nullptr;
    const std::string_view system = name.substr(0, dot), format = name.substr(dot + 1);
    for (const rule& r : all_rules) {
        if (r.system != system) continue;
        if (r.format == format) return &r;
        // torchao's formats without their scale rule
        if (r.format.ends_with(".rceil") && r.format.substr(0, r.format.size() - 6) == format) return &r;
    }
    return nullptr;
}

result rule::convert(const input& x) const {
    if (x.values.size() != x.rows * x.columns) throw std::invalid_argument(name() + ": the values are not rows x columns");
    if (x.values.empty()) throw std::invalid_argument(name() + ": there is nothing to quantize");
    if (x.columns % multiple != 0) {
        throw std::invalid_argument(name() + " takes columns in multiples of " + std::to_string(multiple) + ", and here are " +
                                    std::to_string(x.columns));
    }
    if (!x.importance.empty() && !takes_importance) throw std::invalid_argument(name() + " does not look at an importance; leave it out");
    if (!x.importance.empty() && x.importance.size() != x.columns) {
        throw std::invalid_argument(name() + ": the importance has " + std::to_string(x.importance.size()) + " values for " +
                                    std::to_string(x.columns) + " columns");
    }
    return run(*this, x);
}

}  // namespace qk::systems
