// SPDX-License-Identifier: Apache-2.0
// The integer units of NVIDIA's and AMD's matrix cores: one instruction per line. Sums wrap in 32 bits, so that no order of the terms
// changes a result; with PTX's .satfinite, which clamps, it would, and no source says in what order.
#pragma once

#include "qk/dot/devices/arm.hpp"
#include "qk/dot/devices/device.hpp"

namespace qk::devices {

inline constexpr std::string_view ptx = "NVIDIA PTX ISA, mma, wgmma and tcgen05.mma without .satfinite";
inline constexpr std::string_view instinct = "AMD Instinct ISA guides, V_MFMA_I32 without clamp";

// clang-format off
inline constexpr device nvidia_turing_mma_m8n8k16_s32_s8_s8_s32{"nvidia.turing.mma.m8n8k16.s32.s8.s8.s32", int8, int8, wraps, 8, 8, 16, ptx};
inline constexpr device nvidia_turing_mma_m8n8k16_s32_s8_u8_s32{"nvidia.turing.mma.m8n8k16.s32.s8.u8.s32", int8, uint8, wraps, 8, 8, 16, ptx};
inline constexpr device nvidia_turing_mma_m8n8k16_s32_u8_s8_s32{"nvidia.turing.mma.m8n8k16.s32.u8.s8.s32", uint8, int8, wraps, 8, 8, 16, ptx};
inline constexpr device nvidia_turing_mma_m8n8k16_s32_u8_u8_s32{"nvidia.turing.mma.m8n8k16.s32.u8.u8.s32", uint8, uint8, wraps, 8, 8, 16, ptx};
inline constexpr device nvidia_turing_mma_m8n8k32_s32_s4_s4_s32{"nvidia.turing.mma.m8n8k32.s32.s4.s4.s32", int4, int4, wraps, 8, 8, 32, ptx};
inline constexpr device nvidia_turing_mma_m8n8k32_s32_s4_u4_s32{"nvidia.turing.mma.m8n8k32.s32.s4.u4.s32", int4, uint4, wraps, 8, 8, 32, ptx};
inline constexpr device nvidia_turing_mma_m8n8k32_s32_u4_s4_s32{"nvidia.turing.mma.m8n8k32.s32.u4.s4.s32", uint4, int4, wraps, 8, 8, 32, ptx};
inline constexpr device nvidia_turing_mma_m8n8k32_s32_u4_u4_s32{"nvidia.turing.mma.m8n8k32.s32.u4.u4.s32", uint4, uint4, wraps, 8, 8, 32, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k32_s32_s8_s8_s32{"nvidia.ampere.mma.m16n8k32.s32.s8.s8.s32", int8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k32_s32_s8_u8_s32{"nvidia.ampere.mma.m16n8k32.s32.s8.u8.s32", int8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k32_s32_u8_s8_s32{"nvidia.ampere.mma.m16n8k32.s32.u8.s8.s32", uint8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k32_s32_u8_u8_s32{"nvidia.ampere.mma.m16n8k32.s32.u8.u8.s32", uint8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k64_s32_s4_s4_s32{"nvidia.ampere.mma.m16n8k64.s32.s4.s4.s32", int4, int4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k64_s32_s4_u4_s32{"nvidia.ampere.mma.m16n8k64.s32.s4.u4.s32", int4, uint4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k64_s32_u4_s4_s32{"nvidia.ampere.mma.m16n8k64.s32.u4.s4.s32", uint4, int4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ampere_mma_m16n8k64_s32_u4_u4_s32{"nvidia.ampere.mma.m16n8k64.s32.u4.u4.s32", uint4, uint4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_s32_s8_s8_s32{"nvidia.ada_lovelace.mma.m16n8k32.s32.s8.s8.s32", int8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_s32_s8_u8_s32{"nvidia.ada_lovelace.mma.m16n8k32.s32.s8.u8.s32", int8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_s32_u8_s8_s32{"nvidia.ada_lovelace.mma.m16n8k32.s32.u8.s8.s32", uint8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_s32_u8_u8_s32{"nvidia.ada_lovelace.mma.m16n8k32.s32.u8.u8.s32", uint8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k64_s32_s4_s4_s32{"nvidia.ada_lovelace.mma.m16n8k64.s32.s4.s4.s32", int4, int4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k64_s32_s4_u4_s32{"nvidia.ada_lovelace.mma.m16n8k64.s32.s4.u4.s32", int4, uint4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k64_s32_u4_s4_s32{"nvidia.ada_lovelace.mma.m16n8k64.s32.u4.s4.s32", uint4, int4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k64_s32_u4_u4_s32{"nvidia.ada_lovelace.mma.m16n8k64.s32.u4.u4.s32", uint4, uint4, wraps, 16, 8, 64, ptx};
inline constexpr device nvidia_hopper_mma_m16n8k32_s32_s8_s8_s32{"nvidia.hopper.mma.m16n8k32.s32.s8.s8.s32", int8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_hopper_mma_m16n8k32_s32_s8_u8_s32{"nvidia.hopper.mma.m16n8k32.s32.s8.u8.s32", int8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_hopper_mma_m16n8k32_s32_u8_s8_s32{"nvidia.hopper.mma.m16n8k32.s32.u8.s8.s32", uint8, int8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_hopper_mma_m16n8k32_s32_u8_u8_s32{"nvidia.hopper.mma.m16n8k32.s32.u8.u8.s32", uint8, uint8, wraps, 16, 8, 32, ptx};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_s32_s8_s8{"nvidia.hopper.wgmma.m64n8k32.s32.s8.s8", int8, int8, wraps, 64, 8, 32, ptx};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_s32_s8_u8{"nvidia.hopper.wgmma.m64n8k32.s32.s8.u8", int8, uint8, wraps, 64, 8, 32, ptx};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_s32_u8_s8{"nvidia.hopper.wgmma.m64n8k32.s32.u8.s8", uint8, int8, wraps, 64, 8, 32, ptx};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_s32_u8_u8{"nvidia.hopper.wgmma.m64n8k32.s32.u8.u8", uint8, uint8, wraps, 64, 8, 32, ptx};
inline constexpr device nvidia_blackwell_tcgen05mma_m128n8k32_s32_s8_s8{"nvidia.blackwell.tcgen05mma.m128n8k32.s32.s8.s8", int8, int8, wraps, 128, 8, 32, ptx};
inline constexpr device nvidia_blackwell_tcgen05mma_m128n8k32_s32_s8_u8{"nvidia.blackwell.tcgen05mma.m128n8k32.s32.s8.u8", int8, uint8, wraps, 128, 8, 32, ptx};
inline constexpr device nvidia_blackwell_tcgen05mma_m128n8k32_s32_u8_s8{"nvidia.blackwell.tcgen05mma.m128n8k32.s32.u8.s8", uint8, int8, wraps, 128, 8, 32, ptx};
inline constexpr device nvidia_blackwell_tcgen05mma_m128n8k32_s32_u8_u8{"nvidia.blackwell.tcgen05mma.m128n8k32.s32.u8.u8", uint8, uint8, wraps, 128, 8, 32, ptx};
inline constexpr device amd_cdna1_mfma_i32_16x16x16i8{"amd.cdna1.mfma.i32_16x16x16i8", int8, int8, wraps, 16, 16, 16, instinct};
inline constexpr device amd_cdna1_mfma_i32_4x4x4i8{"amd.cdna1.mfma.i32_4x4x4i8", int8, int8, wraps, 4, 4, 4, instinct};
inline constexpr device amd_cdna2_mfma_i32_16x16x16i8{"amd.cdna2.mfma.i32_16x16x16i8", int8, int8, wraps, 16, 16, 16, instinct};
inline constexpr device amd_cdna2_mfma_i32_4x4x4i8{"amd.cdna2.mfma.i32_4x4x4i8", int8, int8, wraps, 4, 4, 4, instinct};
inline constexpr device amd_cdna3_mfma_i32_16x16x32_i8{"amd.cdna3.mfma.i32_16x16x32_i8", int8, int8, wraps, 16, 16, 32, instinct};
inline constexpr device amd_cdna3_mfma_i32_4x4x4_16b_i8{"amd.cdna3.mfma.i32_4x4x4_16b_i8", int8, int8, wraps, 4, 4, 4, instinct};
// clang-format on

inline constexpr const device* integer_units[] = {
    &nvidia_turing_mma_m8n8k16_s32_s8_s8_s32,
    &nvidia_turing_mma_m8n8k16_s32_s8_u8_s32,
    &nvidia_turing_mma_m8n8k16_s32_u8_s8_s32,
    &nvidia_turing_mma_m8n8k16_s32_u8_u8_s32,
    &nvidia_turing_mma_m8n8k32_s32_s4_s4_s32,
    &nvidia_turing_mma_m8n8k32_s32_s4_u4_s32,
    &nvidia_turing_mma_m8n8k32_s32_u4_s4_s32,
    &nvidia_turing_mma_m8n8k32_s32_u4_u4_s32,
    &nvidia_ampere_mma_m16n8k32_s32_s8_s8_s32,
    &nvidia_ampere_mma_m16n8k32_s32_s8_u8_s32,
    &nvidia_ampere_mma_m16n8k32_s32_u8_s8_s32,
    &nvidia_ampere_mma_m16n8k32_s32_u8_u8_s32,
    &nvidia_ampere_mma_m16n8k64_s32_s4_s4_s32,
    &nvidia_ampere_mma_m16n8k64_s32_s4_u4_s32,
    &nvidia_ampere_mma_m16n8k64_s32_u4_s4_s32,
    &nvidia_ampere_mma_m16n8k64_s32_u4_u4_s32,
    &nvidia_ada_lovelace_mma_m16n8k32_s32_s8_s8_s32,
    &nvidia_ada_lovelace_mma_m16n8k32_s32_s8_u8_s32,
    &nvidia_ada_lovelace_mma_m16n8k32_s32_u8_s8_s32,
    &nvidia_ada_lovelace_mma_m16n8k32_s32_u8_u8_s32,
    &nvidia_ada_lovelace_mma_m16n8k64_s32_s4_s4_s32,
    &nvidia_ada_lovelace_mma_m16n8k64_s32_s4_u4_s32,
    &nvidia_ada_lovelace_mma_m16n8k64_s32_u4_s4_s32,
    &nvidia_ada_lovelace_mma_m16n8k64_s32_u4_u4_s32,
    &nvidia_hopper_mma_m16n8k32_s32_s8_s8_s32,
    &nvidia_hopper_mma_m16n8k32_s32_s8_u8_s32,
    &nvidia_hopper_mma_m16n8k32_s32_u8_s8_s32,
    &nvidia_hopper_mma_m16n8k32_s32_u8_u8_s32,
    &nvidia_hopper_wgmma_m64n8k32_s32_s8_s8,
    &nvidia_hopper_wgmma_m64n8k32_s32_s8_u8,
    &nvidia_hopper_wgmma_m64n8k32_s32_u8_s8,
    &nvidia_hopper_wgmma_m64n8k32_s32_u8_u8,
    &nvidia_blackwell_tcgen05mma_m128n8k32_s32_s8_s8,
    &nvidia_blackwell_tcgen05mma_m128n8k32_s32_s8_u8,
    &nvidia_blackwell_tcgen05mma_m128n8k32_s32_u8_s8,
    &nvidia_blackwell_tcgen05mma_m128n8k32_s32_u8_u8,
    &amd_cdna1_mfma_i32_16x16x16i8,
    &amd_cdna1_mfma_i32_4x4x4i8,
    &amd_cdna2_mfma_i32_16x16x16i8,
    &amd_cdna2_mfma_i32_4x4x4i8,
    &amd_cdna3_mfma_i32_16x16x32_i8,
    &amd_cdna3_mfma_i32_4x4x4_16b_i8,
};

}  // namespace qk::devices
