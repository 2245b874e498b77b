// SPDX-License-Identifier: Apache-2.0
// Arm's and RISC-V's dot product instructions: one instruction per line. tests/arm_devices.sh holds Arm's against qemu.
#pragma once

#include "qk/dot/devices/device.hpp"
#include "qk/isa.hpp"

namespace qk::devices {

inline constexpr std::string_view arm_arm =
    "Arm Architecture Reference Manual (DDI 0487), pseudocode; tests/arm_devices.sh (qemu-aarch64 7.2)";
inline constexpr std::string_view arm_fp8 =
    "Arm A64 instruction descriptions: FDOT, FMLALL and FMLAL of FEAT_FP8DOT4, FEAT_FP8DOT2, FEAT_FP8FMA";
inline constexpr std::string_view riscv_bf16 = "RISC-V unprivileged ISA, Zvfbfwma";
inline constexpr std::string_view riscv_dot = "RISC-V vector quad-widening dot product, Zvqdotq";

/// BFDOT and BFMMLA without FEAT_EBF16 (BFMulH, FPAdd_BF16, BFRound): two products are rounded, then their sum, then the sum with C, each
/// to odd, without subnormals; what is too large is Inf.
inline constexpr accumulator pairs_of_bf16_to_odd{.sum = summation::sequential,
                                                  .groups = 2,
                                                  .place = place::after,
                                                  .fused = false,
                                                  .partial_round = rounding::to_odd,
                                                  .round = rounding::to_odd,
                                                  .flush_inputs = input_flush::kept_sign,
                                                  .flush_partials = true,
                                                  .overflow = too_large::infinity};
/// FP8's products and C are added exactly and rounded once, where FPMR neither scales (LSCALE 0) nor saturates (OSM 0).
constexpr accumulator fused_fp8(int products, floating d) {
    return {.sum = summation::exact, .groups = products, .addend = d, .partial = d, .result = d};
}
inline constexpr accumulator wraps{.sum = summation::integer};

// clang-format off
inline constexpr device arm_bf16_bfdot{"arm.bf16.bfdot", bf16, bf16, pairs_of_bf16_to_odd, 1, 4, 2, arm_arm};
inline constexpr device arm_bf16_bfmmla{"arm.bf16.bfmmla", bf16, bf16, pairs_of_bf16_to_odd, 2, 2, 4, arm_arm};
inline constexpr device arm_dotprod_sdot{"arm.dotprod.sdot", int8, int8, wraps, 1, 4, 4, arm_arm};
inline constexpr device arm_dotprod_udot{"arm.dotprod.udot", uint8, uint8, wraps, 1, 4, 4, arm_arm};
inline constexpr device arm_i8mm_sudot{"arm.i8mm.sudot", int8, uint8, wraps, 1, 4, 4, arm_arm};
inline constexpr device arm_i8mm_usdot{"arm.i8mm.usdot", uint8, int8, wraps, 1, 4, 4, arm_arm};
inline constexpr device arm_i8mm_smmla{"arm.i8mm.smmla", int8, int8, wraps, 2, 2, 8, arm_arm};
inline constexpr device arm_i8mm_ummla{"arm.i8mm.ummla", uint8, uint8, wraps, 2, 2, 8, arm_arm};
inline constexpr device arm_i8mm_usmmla{"arm.i8mm.usmmla", uint8, int8, wraps, 2, 2, 8, arm_arm};
inline constexpr device arm_fp8dot4_fdot_f32_e4m3_e4m3{"arm.fp8dot4.fdot.f32.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, fused_fp8(4, fp32), 1, 4, 4, arm_fp8};
inline constexpr device arm_fp8dot4_fdot_f32_e4m3_e5m2{"arm.fp8dot4.fdot.f32.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, fused_fp8(4, fp32), 1, 4, 4, arm_fp8};
inline constexpr device arm_fp8dot4_fdot_f32_e5m2_e4m3{"arm.fp8dot4.fdot.f32.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, fused_fp8(4, fp32), 1, 4, 4, arm_fp8};
inline constexpr device arm_fp8dot4_fdot_f32_e5m2_e5m2{"arm.fp8dot4.fdot.f32.e5m2.e5m2", fp8_e5m2, fp8_e5m2, fused_fp8(4, fp32), 1, 4, 4, arm_fp8};
inline constexpr device arm_fp8dot2_fdot_f16_e4m3_e4m3{"arm.fp8dot2.fdot.f16.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, fused_fp8(2, fp16), 1, 8, 2, arm_fp8};
inline constexpr device arm_fp8dot2_fdot_f16_e4m3_e5m2{"arm.fp8dot2.fdot.f16.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, fused_fp8(2, fp16), 1, 8, 2, arm_fp8};
inline constexpr device arm_fp8dot2_fdot_f16_e5m2_e4m3{"arm.fp8dot2.fdot.f16.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, fused_fp8(2, fp16), 1, 8, 2, arm_fp8};
inline constexpr device arm_fp8dot2_fdot_f16_e5m2_e5m2{"arm.fp8dot2.fdot.f16.e5m2.e5m2", fp8_e5m2, fp8_e5m2, fused_fp8(2, fp16), 1, 8, 2, arm_fp8};
inline constexpr device arm_fp8fma_fmlall_f32_e4m3_e4m3{"arm.fp8fma.fmlall.f32.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, fused_fp8(1, fp32), 1, 4, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlall_f32_e4m3_e5m2{"arm.fp8fma.fmlall.f32.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, fused_fp8(1, fp32), 1, 4, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlall_f32_e5m2_e4m3{"arm.fp8fma.fmlall.f32.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, fused_fp8(1, fp32), 1, 4, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlall_f32_e5m2_e5m2{"arm.fp8fma.fmlall.f32.e5m2.e5m2", fp8_e5m2, fp8_e5m2, fused_fp8(1, fp32), 1, 4, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlal_f16_e4m3_e4m3{"arm.fp8fma.fmlal.f16.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, fused_fp8(1, fp16), 1, 8, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlal_f16_e4m3_e5m2{"arm.fp8fma.fmlal.f16.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, fused_fp8(1, fp16), 1, 8, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlal_f16_e5m2_e4m3{"arm.fp8fma.fmlal.f16.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, fused_fp8(1, fp16), 1, 8, 1, arm_fp8};
inline constexpr device arm_fp8fma_fmlal_f16_e5m2_e5m2{"arm.fp8fma.fmlal.f16.e5m2.e5m2", fp8_e5m2, fp8_e5m2, fused_fp8(1, fp16), 1, 8, 1, arm_fp8};
inline constexpr device riscv_zvfbfwma_vfwmaccbf16{"riscv.zvfbfwma.vfwmaccbf16", bf16, bf16, accumulators::sequential_fp32, 1, 1, 1, riscv_bf16};
inline constexpr device riscv_zvqdotq_vqdot{"riscv.zvqdotq.vqdot", int8, int8, wraps, 1, 1, 4, riscv_dot};
inline constexpr device riscv_zvqdotq_vqdotu{"riscv.zvqdotq.vqdotu", uint8, uint8, wraps, 1, 1, 4, riscv_dot};
inline constexpr device riscv_zvqdotq_vqdotsu{"riscv.zvqdotq.vqdotsu", int8, uint8, wraps, 1, 1, 4, riscv_dot};
// clang-format on

inline constexpr const device* arm_and_riscv[] = {
    &arm_bf16_bfdot,
    &arm_bf16_bfmmla,
    &arm_dotprod_sdot,
    &arm_dotprod_udot,
    &arm_i8mm_sudot,
    &arm_i8mm_usdot,
    &arm_i8mm_smmla,
    &arm_i8mm_ummla,
    &arm_i8mm_usmmla,
    &riscv_zvfbfwma_vfwmaccbf16,
    &riscv_zvqdotq_vqdot,
    &riscv_zvqdotq_vqdotu,
    &riscv_zvqdotq_vqdotsu,
    &arm_fp8dot4_fdot_f32_e4m3_e4m3,
    &arm_fp8dot4_fdot_f32_e4m3_e5m2,
    &arm_fp8dot4_fdot_f32_e5m2_e4m3,
    &arm_fp8dot4_fdot_f32_e5m2_e5m2,
    &arm_fp8dot2_fdot_f16_e4m3_e4m3,
    &arm_fp8dot2_fdot_f16_e4m3_e5m2,
    &arm_fp8dot2_fdot_f16_e5m2_e4m3,
    &arm_fp8dot2_fdot_f16_e5m2_e5m2,
    &arm_fp8fma_fmlall_f32_e4m3_e4m3,
    &arm_fp8fma_fmlall_f32_e4m3_e5m2,
    &arm_fp8fma_fmlall_f32_e5m2_e4m3,
    &arm_fp8fma_fmlall_f32_e5m2_e5m2,
    &arm_fp8fma_fmlal_f16_e4m3_e4m3,
    &arm_fp8fma_fmlal_f16_e4m3_e5m2,
    &arm_fp8fma_fmlal_f16_e5m2_e4m3,
    &arm_fp8fma_fmlal_f16_e5m2_e5m2,
};

}  // namespace qk::devices
