// SPDX-License-Identifier: Apache-2.0
// Defines a device of the catalogue, and the few algorithms that the catalogue's lines name. docs/reference/numerics.md, "Devices".
#pragma once

#include <string_view>

#include "qk/dot/accumulator.hpp"
#include "qk/isa.hpp"

namespace qk {

/// One instruction: D [m][n] = A [m][k] B [k][n] + C. Longer sums chain D into C: that is what `accumulator.groups` says.
struct device {
    std::string_view name;
    qk::format a, b;  ///< MX and NVFP4 where the instruction reads scales of blocks
    qk::accumulator accumulator;
    int m = 0, n = 0, k = 0;
    std::string_view source;
};

namespace devices {

inline constexpr std::string_view mma_sim = "Xie et al., MMA-Sim, arXiv 2511.10909";
inline constexpr std::string_view intel_sdm = "Intel SDM volume 2; this operation on the processor itself (devices_x86_test)";
inline constexpr std::string_view intel_vnni = "Intel SDM volume 2, AVX-VNNI-INT8 and AVX-VNNI-INT16";
inline constexpr std::string_view intel_amx = "Intel SDM volume 2, AMX";
inline constexpr std::string_view intel_amx_document =
    "Intel Architecture Instruction Set Extensions Programming Reference: AMX-FP16, AMX-COMPLEX, AMX-TF32 (by the document)";
inline constexpr std::string_view intel_amx_fp8 =
    "Intel Architecture Instruction Set Extensions Programming Reference: AMX-FP8; Bochs, cpu/avx/amx.cc (by their text)";
inline constexpr std::string_view intel_avx10_2 =
    "Intel AVX10.2 Architecture Specification: VDPPHPS; Bochs, cpu/avx/avx10_2_misc.cc (by their text)";
inline constexpr std::string_view ace = "AI Compute Extensions 1, section 14, as Bochs, cpu/avx/amx_top.cc, computes it (by its text)";
inline constexpr std::string_view tpu = "Jouppi et al., arXiv 1704.04760, and Norrie et al., IEEE Micro 41(2), 2021";

inline namespace QK_ISA {

/// NVIDIA: products and C are aligned and truncated, the sum is truncated to `d` (fp16: rounded).
constexpr accumulator tensor_core(int align, int groups, floating d, floating c, int operand_bits = 0, int bundle = 1) {
    const rounding r = d == fp16 ? rounding::half_even : rounding::toward_zero;
    return {.sum = summation::aligned,
            .groups = groups,
            .bundle = bundle,
            .align = align,
            .addend = c,
            .partial = d,
            .result = d,
            .partial_round = r,
            .round = r,
            .operand_bits = operand_bits,
            .overflow = too_large::infinity,
            .zero = zero_rule::positive,
            .nan = nan_answer::all_ones};
}
/// CDNA1 and CDNA2 (flushes): products and sums of a group are added in pairs, each rounded to float32.
constexpr accumulator matrix_core(int groups, bool flush) {
    return {.sum = summation::pairwise,
            .groups = groups,
            .place = place::after,
            .flush_inputs = flush ? input_flush::positive : input_flush::none,
            .flush_partials = flush,
            .zero = zero_rule::positive_products};
}
/// CDNA3: a group is aligned and truncated, then it and C are aligned and rounded down, then to float32. fp8: even and odd terms apart.
constexpr accumulator matrix_core_3(int groups, int operand_bits = 0) {
    return {.sum = summation::aligned,
            .groups = groups,
            .place = place::after,
            .align = 24,
            .join = 31,
            .operand_bits = operand_bits,
            .product_overflow = true,
            .zero = zero_rule::exact_positive};
}
constexpr accumulator matrix_core_3_fp8() {
    accumulator a = matrix_core_3(16);
    a.lanes = 2;
    a.join_drop = 25;
    return a;
}

}  // namespace QK_ISA

}  // namespace devices
}  // namespace qk
