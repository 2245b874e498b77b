// SPDX-License-Identifier: Apache-2.0
// Lists the kinds of accumulator whose dot products are compared with the oracle.
#pragma once

#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/formats/p3109.hpp"

struct dot_kind {
    const char* name;
    qk::format a, b;
    qk::accumulator how;
};

/// Sums that are cut and rounded to odd, under formats with independent facts.
inline std::vector<dot_kind> to_odd_cases() {
    using namespace qk;
    return {
        {"aligned inside, cut and rounded to odd",
         fp8_e4m3fn,
         p3109(8, 3),
         {.sum = summation::aligned,
          .groups = 8,
          .align = 24,
          .cut = rounding::to_odd,
          .partial = e8m13,
          .partial_round = rounding::to_odd,
          .round = rounding::to_odd}},
        {"aligned after, joined, to odd",
         ue5m3,
         fp8_e5m2,
         {.sum = summation::aligned,
          .groups = 16,
          .lanes = 2,
          .place = place::after,
          .align = 24,
          .cut = rounding::to_odd,
          .join = 25,
          .join_cut = rounding::to_odd}},
        {"sequential to odd, amdfp4",
         amdfp4,
         nvfp4_e5m3,
         {.sum = summation::sequential, .partial = tf32, .partial_round = rounding::to_odd}},
    };
}

inline std::vector<dot_kind> tile_cases() {
    using namespace qk;
    return {
        {"lanes of bf16", bf16, bf16, devices::tiles_of_bf16},
        {"lanes of fp16, C flushed", fp16, fp16, devices::tiles_of_fp16},
        {"lanes of fp8, C flushed", fp8_e5m2, fp8_e5m2, devices::tiles_of_fp16},
        {"tile of fp8", fp8_e5m2, fp8_e4m3fn, devices::tiles_of_fp8},
        {"chain of tf32", tf32, tf32, devices::tiles_of_tf32},
        {"pairs of fp16, C flushed", fp16, fp16, devices::pairs_of_fp16},
        {"outer product of bf16", bf16, bf16, devices::two_of_bf16},
        {"exact tf32 x fp24", tf32, fp24, accumulators::exact},
    };
}

/// Products whose exponents have a range, and terms that are lost.
inline std::vector<dot_kind> range_cases() {
    using namespace qk;
    accumulator four = devices::partly_fused;
    four.groups = 4;
    return {
        {"blackhole's fma", fp32, fp32, devices::partly_fused},
        {"products in range, four bf16", bf16, bf16, four},
        {"products in range, mxfp8", mxfp8_e4m3, mxfp8_e5m2, {.sum = summation::aligned, .groups = 8, .align = 24, .product_range = true}},
        {"products in range, joined",
         bf16,
         tf32,
         {.sum = summation::aligned,
          .groups = 8,
          .lanes = 2,
          .place = place::after,
          .align = 24,
          .cut = rounding::to_odd,
          .lost_is_zero = true,
          .join = 26,
          .product_overflow = true,
          .product_range = true}},
    };
}

inline std::vector<dot_kind> dot_kinds() {
    using namespace qk;
    const auto changed = [](accumulator a, auto change) {
        change(a);
        return a;
    };
    const accumulator hopper = devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator,
                      fp8 = devices::nvidia_hopper_wgmma_f32_e4m3_e4m3.accumulator;
    std::vector<dot_kind> all{
        {"exact fp32", fp32, fp32, accumulators::exact},
        {"exact fp16 to fp16", fp16, fp16, {.addend = fp16, .partial = fp16, .result = fp16}},
        {"exact mxfp4 x mxfp8", mxfp4, mxfp8_e4m3, accumulators::exact},
        {"exact nvfp4 x bf16, down", nvfp4, bf16, {.round = rounding::down}},
        {"exact bfp16 x mx9, groups", bfp16, mx9, {.groups = 16, .partial = bf16, .result = bf16, .round = rounding::half_away}},
        {"exact int8 x fp8, after",
         int8,
         fp8_e5m2,
         {.groups = 4, .place = place::after, .partial_round = rounding::up, .zero = zero_rule::exact_positive}},
        {"loop fp32", fp32, fp32, accumulators::loop_fp32},
        {"fma fp32", fp32, fp32, accumulators::sequential_fp32},
        {"fma mxfp8", mxfp8_e5m2, mxfp8_e4m3, accumulators::sequential_fp32},
        {"pairwise bf16", bf16, bf16, accumulators::pairwise_fp32},
        {"sequential tf32, truncated",
         fp16,
         fp8_e4m3fn,
         {.sum = summation::sequential, .partial = tf32, .result = tf32, .partial_round = rounding::toward_zero}},
        {"sequential fp16, saturating",
         fp16,
         fp16,
         {.sum = summation::sequential, .fused = false, .addend = fp16, .partial = fp16, .result = fp16, .overflow = too_large::saturate}},
        {"reversed pairs of bf16", bf16, bf16, devices::pairs_of_bf16},
        {"pairwise lanes, down",
         mxint8,
         mxfp6_e3m2,
         {.sum = summation::pairwise,
          .groups = 8,
          .lanes = 2,
          .place = place::after,
          .partial = bf16,
          .result = fp32,
          .partial_round = rounding::down}},
        {"volta", fp16, fp16, devices::nvidia_volta_mma_f32_f16_f16_f32.accumulator},
        {"turing fp16", fp16, fp16, devices::nvidia_turing_mma_f16_f16_f16_f16.accumulator},
        {"ampere bf16", bf16, bf16, devices::nvidia_ampere_mma_f32_bf16_bf16_f32.accumulator},
        {"ampere tf32", fp32, fp32, devices::nvidia_ampere_mma_f32_tf32_tf32_f32.accumulator},
        {"hopper fp8", fp8_e4m3fn, fp8_e5m2, fp8},
        {"hopper fp32 operands, ieee", fp32, fp32,
         changed(hopper, [](accumulator& a) { a.zero = zero_rule::ieee, a.overflow = too_large::ieee, a.cut = rounding::down; })},
        {"blackwell mxfp8", mxfp8_e4m3, mxfp8_e5m2,
         devices::nvidia_rtx_blackwell_mma_block_scale_block32_f32_e4m3_e5m2_f32_ue8m0.accumulator},
        {"blackwell nvfp4", nvfp4, nvfp4, devices::nvidia_rtx_blackwell_mma_block_scale_block16_f32_e2m1_e2m1_f32_ue4m3.accumulator},
        {"cdna1 fp16", fp16, fp16, devices::amd_cdna1_mfma_f32_f16.accumulator},
        {"cdna2 bf16", bf16, bf16, devices::amd_cdna2_mfma_f32_bf16_1k.accumulator},
        {"cdna3 bf16", bf16, bf16, devices::amd_cdna3_mfma_f32_bf16.accumulator},
        {"cdna3 fp8", fp8_e4m3fnuz, fp8_e5m2fnuz, devices::amd_cdna3_mfma_f32_fp8_bf8.accumulator},
        {"cdna3 xf32", fp32, fp32, devices::amd_cdna3_mfma_f32_xf32.accumulator},
        {"aligned after, wide",
         mxint8,
         bfp16,
         {.sum = summation::aligned, .groups = 8, .lanes = 4, .place = place::after, .align = 45, .cut = rounding::down}},
        {"fma fp64", fp64, fp64, accumulators::fma_fp64},
        {"exact fp8 to e4m3fn", fp8_e4m3fn, fp8_e4m3fn, {.groups = 4, .result = fp8_e4m3fn}},
        {"aligned fp8 to fp4, truncated",
         fp8_e4m3fn,
         fp8_e5m2,
         {.sum = summation::aligned, .groups = 8, .align = 12, .result = fp4_e2m1, .round = rounding::toward_zero}},
        {"sequential fp6 to 3 bits",
         fp6_e3m2,
         fp6_e2m3,
         {.sum = summation::sequential, .partial = fp16, .result = {2, 0, 1, specials::none}}},
        {"pairs of fp4 to e4m3fnuz, saturating",
         fp4_e2m1,
         fp8_e4m3fnuz,
         {.sum = summation::pairwise, .result = fp8_e4m3fnuz, .overflow = too_large::saturate}},
    };
    for (const auto& more : {to_odd_cases(), tile_cases(), range_cases()}) all.insert(all.end(), more.begin(), more.end());
    return all;
}
