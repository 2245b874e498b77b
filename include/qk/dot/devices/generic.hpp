// SPDX-License-Identifier: Apache-2.0
// x86's dot product instructions and systolic arrays: one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"
#include "qk/isa.hpp"

namespace qk::devices {

/// AVX512_BF16 and AVX10.2 add products in pairs, the odd one first, each by an fma without subnormals.
inline constexpr accumulator pairs_of_bf16{
    .sum = summation::sequential, .groups = 2, .reverse = true, .flush_inputs = input_flush::kept_sign, .flush_tiny = true};
inline constexpr accumulator pairs_of_fp16{
    .sum = summation::sequential, .groups = 2, .reverse = true, .flush_inputs = input_flush::addend, .flush_tiny = true};
/// ACE's outer product rounds each of two products, their sum, and the sum with C.
inline constexpr accumulator two_of_bf16{.sum = summation::sequential,
                                         .groups = 2,
                                         .place = place::after,
                                         .fused = false,
                                         .flush_inputs = input_flush::kept_sign,
                                         .flush_tiny = true};

inline namespace QK_ISA {

/// AMX adds products in `lanes` chains, then the chains, then C, in float32; tiny results become zero of their sign.
constexpr accumulator tiles(int products, int lanes, input_flush flush) {
    return {.sum = summation::sequential,
            .groups = products,
            .lanes = lanes,
            .place = place::after,
            .flush_inputs = flush,
            .flush_tiny = true,
            .zero = zero_rule::positive_products};
}
constexpr accumulator whole_numbers(int groups, bool saturate = false) {
    return {.sum = summation::integer, .groups = groups, .saturate = saturate};
}

}  // namespace QK_ISA

inline constexpr accumulator tiles_of_bf16 = tiles(32, 2, input_flush::kept_sign);
/// Subnormal operands in fp16 are no subnormals of float32. A complex product is two such sums: its real part that of b with the sign of
/// its imaginary numbers changed, its imaginary part that of b with real and imaginary numbers swapped.
inline constexpr accumulator tiles_of_fp16 = tiles(32, 2, input_flush::addend);
/// AMX-FP8 adds the products of a tile exactly, rounds their sum, and adds it to C.
inline constexpr accumulator tiles_of_fp8{.sum = summation::exact,
                                          .groups = 64,
                                          .place = place::after,
                                          .flush_inputs = input_flush::addend,
                                          .flush_tiny = true,
                                          .zero = zero_rule::exact_positive};
inline constexpr accumulator tiles_of_tf32 = tiles(16, 1, input_flush::none);
/// Weights stay, partial sums move through a column: exact products are added one after the other, each sum rounded without subnormals.
inline constexpr accumulator column_of_fp32{.sum = summation::sequential, .flush_inputs = input_flush::kept_sign, .flush_partials = true};

// clang-format off
inline constexpr device x86_fma_vfmadd231ps{"x86.fma.vfmadd231ps", fp32, fp32, accumulators::sequential_fp32, 1, 8, 1, intel_sdm};
inline constexpr device x86_fma_vfmadd231pd{"x86.fma.vfmadd231pd", fp64, fp64, accumulators::fma_fp64, 1, 4, 1, intel_sdm};
inline constexpr device x86_avx512_bf16_vdpbf16ps{"x86.avx512_bf16.vdpbf16ps", bf16, bf16, pairs_of_bf16, 1, 16, 2, intel_sdm};
inline constexpr device x86_avx512_vnni_vpdpbusd{"x86.avx512_vnni.vpdpbusd", uint8, int8, whole_numbers(4), 1, 16, 4, intel_sdm};
inline constexpr device x86_avx512_vnni_vpdpbusds{"x86.avx512_vnni.vpdpbusds", uint8, int8, whole_numbers(4, true), 1, 16, 4, intel_sdm};
inline constexpr device x86_avx512_vnni_vpdpwssd{"x86.avx512_vnni.vpdpwssd", int16, int16, whole_numbers(2), 1, 16, 2, intel_sdm};
inline constexpr device x86_avx512_vnni_vpdpwssds{"x86.avx512_vnni.vpdpwssds", int16, int16, whole_numbers(2, true), 1, 16, 2, intel_sdm};
inline constexpr device x86_avx_vnni_int8_vpdpbssd{"x86.avx_vnni_int8.vpdpbssd", int8, int8, whole_numbers(4), 1, 8, 4, intel_vnni};
inline constexpr device x86_avx_vnni_int8_vpdpbssds{"x86.avx_vnni_int8.vpdpbssds", int8, int8, whole_numbers(4, true), 1, 8, 4, intel_vnni};
inline constexpr device x86_avx_vnni_int8_vpdpbsud{"x86.avx_vnni_int8.vpdpbsud", int8, uint8, whole_numbers(4), 1, 8, 4, intel_vnni};
inline constexpr device x86_avx_vnni_int8_vpdpbsuds{"x86.avx_vnni_int8.vpdpbsuds", int8, uint8, whole_numbers(4, true), 1, 8, 4, intel_vnni};
inline constexpr device x86_avx_vnni_int8_vpdpbuud{"x86.avx_vnni_int8.vpdpbuud", uint8, uint8, whole_numbers(4), 1, 8, 4, intel_vnni};
inline constexpr device x86_avx_vnni_int16_vpdpwsud{"x86.avx_vnni_int16.vpdpwsud", int16, uint16, whole_numbers(2), 1, 8, 2, intel_vnni};
inline constexpr device x86_avx_vnni_int16_vpdpwsuds{"x86.avx_vnni_int16.vpdpwsuds", int16, uint16, whole_numbers(2, true), 1, 8, 2, intel_vnni};
inline constexpr device x86_avx_vnni_int16_vpdpwusd{"x86.avx_vnni_int16.vpdpwusd", uint16, int16, whole_numbers(2), 1, 8, 2, intel_vnni};
inline constexpr device x86_avx_vnni_int16_vpdpwusds{"x86.avx_vnni_int16.vpdpwusds", uint16, int16, whole_numbers(2, true), 1, 8, 2, intel_vnni};
inline constexpr device x86_avx_vnni_int16_vpdpwuud{"x86.avx_vnni_int16.vpdpwuud", uint16, uint16, whole_numbers(2), 1, 8, 2, intel_vnni};
inline constexpr device x86_amx_tdpbf16ps{"x86.amx.tdpbf16ps", bf16, bf16, tiles_of_bf16, 16, 16, 32, intel_amx};
inline constexpr device x86_amx_fp16_tdpfp16ps{"x86.amx_fp16.tdpfp16ps", fp16, fp16, tiles_of_fp16, 16, 16, 32, intel_amx_document};
inline constexpr device x86_amx_complex_tcmmrlfp16ps{"x86.amx_complex.tcmmrlfp16ps", fp16, fp16, tiles_of_fp16, 16, 16, 32, intel_amx_document};
inline constexpr device x86_amx_complex_tcmmimfp16ps{"x86.amx_complex.tcmmimfp16ps", fp16, fp16, tiles_of_fp16, 16, 16, 32, intel_amx_document};
inline constexpr device x86_amx_tf32_tmmultf32ps{"x86.amx_tf32.tmmultf32ps", tf32, tf32, tiles_of_tf32, 16, 16, 16, intel_amx_document};
inline constexpr device x86_amx_fp8_tdpbf8ps{"x86.amx_fp8.tdpbf8ps", fp8_e5m2, fp8_e5m2, tiles_of_fp8, 16, 16, 64, intel_amx_fp8};
inline constexpr device x86_amx_fp8_tdpbhf8ps{"x86.amx_fp8.tdpbhf8ps", fp8_e5m2, fp8_e4m3fn, tiles_of_fp8, 16, 16, 64, intel_amx_fp8};
inline constexpr device x86_amx_fp8_tdphbf8ps{"x86.amx_fp8.tdphbf8ps", fp8_e4m3fn, fp8_e5m2, tiles_of_fp8, 16, 16, 64, intel_amx_fp8};
inline constexpr device x86_amx_fp8_tdphf8ps{"x86.amx_fp8.tdphf8ps", fp8_e4m3fn, fp8_e4m3fn, tiles_of_fp8, 16, 16, 64, intel_amx_fp8};
inline constexpr device x86_avx10_2_vdpphps{"x86.avx10_2.vdpphps", fp16, fp16, pairs_of_fp16, 1, 16, 2, intel_avx10_2};
inline constexpr device x86_ace_top2bf16ps{"x86.ace.top2bf16ps", bf16, bf16, two_of_bf16, 16, 16, 2, ace};
inline constexpr device x86_ace_top4bssd{"x86.ace.top4bssd", int8, int8, whole_numbers(4), 16, 16, 4, ace};
inline constexpr device x86_ace_top4bsud{"x86.ace.top4bsud", int8, uint8, whole_numbers(4), 16, 16, 4, ace};
inline constexpr device x86_ace_top4busd{"x86.ace.top4busd", uint8, int8, whole_numbers(4), 16, 16, 4, ace};
inline constexpr device x86_ace_top4buud{"x86.ace.top4buud", uint8, uint8, whole_numbers(4), 16, 16, 4, ace};
inline constexpr device x86_amx_tdpbssd{"x86.amx.tdpbssd", int8, int8, whole_numbers(4), 16, 16, 64, intel_amx};
inline constexpr device x86_amx_tdpbsud{"x86.amx.tdpbsud", int8, uint8, whole_numbers(4), 16, 16, 64, intel_amx};
inline constexpr device x86_amx_tdpbusd{"x86.amx.tdpbusd", uint8, int8, whole_numbers(4), 16, 16, 64, intel_amx};
inline constexpr device x86_amx_tdpbuud{"x86.amx.tdpbuud", uint8, uint8, whole_numbers(4), 16, 16, 64, intel_amx};
inline constexpr device systolic_s32_s8_s8{"systolic.s32.s8.s8", int8, int8, whole_numbers(1), 256, 256, 256, tpu};
inline constexpr device systolic_s32_u8_s8{"systolic.s32.u8.s8", uint8, int8, whole_numbers(1), 256, 256, 256, tpu};
inline constexpr device systolic_f32_bf16_bf16{"systolic.f32.bf16.bf16", bf16, bf16, column_of_fp32, 128, 128, 128, tpu};
inline constexpr device systolic_f32_f16_f16{"systolic.f32.f16.f16", fp16, fp16, column_of_fp32, 128, 128, 128, tpu};
// clang-format on

inline constexpr const device* generic[] = {
    &x86_fma_vfmadd231ps,
    &x86_fma_vfmadd231pd,
    &x86_avx512_bf16_vdpbf16ps,
    &x86_avx512_vnni_vpdpbusd,
    &x86_avx_vnni_int8_vpdpbssd,
    &x86_avx_vnni_int8_vpdpbssds,
    &x86_avx_vnni_int8_vpdpbsud,
    &x86_avx_vnni_int8_vpdpbsuds,
    &x86_avx_vnni_int8_vpdpbuud,
    &x86_avx_vnni_int16_vpdpwsud,
    &x86_avx_vnni_int16_vpdpwsuds,
    &x86_avx_vnni_int16_vpdpwusd,
    &x86_avx_vnni_int16_vpdpwusds,
    &x86_avx_vnni_int16_vpdpwuud,
    &x86_avx512_vnni_vpdpbusds,
    &x86_avx512_vnni_vpdpwssd,
    &x86_avx512_vnni_vpdpwssds,
    &x86_amx_tdpbf16ps,
    &x86_amx_fp16_tdpfp16ps,
    &x86_amx_complex_tcmmrlfp16ps,
    &x86_amx_complex_tcmmimfp16ps,
    &x86_amx_tf32_tmmultf32ps,
    &x86_amx_fp8_tdpbf8ps,
    &x86_amx_fp8_tdpbhf8ps,
    &x86_amx_fp8_tdphbf8ps,
    &x86_amx_fp8_tdphf8ps,
    &x86_avx10_2_vdpphps,
    &x86_ace_top2bf16ps,
    &x86_ace_top4bssd,
    &x86_ace_top4bsud,
    &x86_ace_top4busd,
    &x86_ace_top4buud,
    &x86_amx_tdpbssd,
    &x86_amx_tdpbsud,
    &x86_amx_tdpbusd,
    &x86_amx_tdpbuud,
    &systolic_s32_s8_s8,
    &systolic_s32_u8_s8,
    &systolic_f32_bf16_bf16,
    &systolic_f32_f16_f16,
};

}  // namespace qk::devices
