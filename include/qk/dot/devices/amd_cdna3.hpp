// SPDX-License-Identifier: Apache-2.0
// AMD CDNA3 (MI300): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device amd_cdna3_mfma_f32_16x16x16_bf16{"amd.cdna3.mfma.f32_16x16x16_bf16", bf16, bf16, matrix_core_3(8), 16, 16, 16, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x16_f16{"amd.cdna3.mfma.f32_16x16x16_f16", fp16, fp16, matrix_core_3(8), 16, 16, 16, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x1_4b_f32{"amd.cdna3.mfma.f32_16x16x1_4b_f32", fp32, fp32, accumulators::sequential_fp32, 16, 16, 1, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x32_bf8_bf8{"amd.cdna3.mfma.f32_16x16x32_bf8_bf8", fp8_e5m2fnuz, fp8_e5m2fnuz, matrix_core_3_fp8(), 16, 16, 32, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x32_bf8_fp8{"amd.cdna3.mfma.f32_16x16x32_bf8_fp8", fp8_e5m2fnuz, fp8_e4m3fnuz, matrix_core_3_fp8(), 16, 16, 32, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x32_fp8_bf8{"amd.cdna3.mfma.f32_16x16x32_fp8_bf8", fp8_e4m3fnuz, fp8_e5m2fnuz, matrix_core_3_fp8(), 16, 16, 32, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x32_fp8_fp8{"amd.cdna3.mfma.f32_16x16x32_fp8_fp8", fp8_e4m3fnuz, fp8_e4m3fnuz, matrix_core_3_fp8(), 16, 16, 32, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x4_4b_bf16{"amd.cdna3.mfma.f32_16x16x4_4b_bf16", bf16, bf16, matrix_core_3(4), 16, 16, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x4_4b_f16{"amd.cdna3.mfma.f32_16x16x4_4b_f16", fp16, fp16, matrix_core_3(4), 16, 16, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x4_f32{"amd.cdna3.mfma.f32_16x16x4_f32", fp32, fp32, accumulators::sequential_fp32, 16, 16, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_16x16x8_xf32{"amd.cdna3.mfma.f32_16x16x8_xf32", fp32, fp32, matrix_core_3(4, 10), 16, 16, 8, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_4x4x1_16b_f32{"amd.cdna3.mfma.f32_4x4x1_16b_f32", fp32, fp32, accumulators::sequential_fp32, 4, 4, 1, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_4x4x4_16b_bf16{"amd.cdna3.mfma.f32_4x4x4_16b_bf16", bf16, bf16, matrix_core_3(4), 4, 4, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f32_4x4x4_16b_f16{"amd.cdna3.mfma.f32_4x4x4_16b_f16", fp16, fp16, matrix_core_3(4), 4, 4, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f64_16x16x4_f64{"amd.cdna3.mfma.f64_16x16x4_f64", fp64, fp64, accumulators::fma_fp64, 16, 16, 4, mma_sim};
inline constexpr device amd_cdna3_mfma_f64_4x4x4_4b_f64{"amd.cdna3.mfma.f64_4x4x4_4b_f64", fp64, fp64, accumulators::fma_fp64, 4, 4, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& amd_cdna3_mfma_f32_bf16 = amd_cdna3_mfma_f32_16x16x16_bf16;
inline constexpr const device& amd_cdna3_mfma_f32_f16 = amd_cdna3_mfma_f32_16x16x16_f16;
inline constexpr const device& amd_cdna3_mfma_f32_f32 = amd_cdna3_mfma_f32_16x16x4_f32;
inline constexpr const device& amd_cdna3_mfma_f32_bf8_bf8 = amd_cdna3_mfma_f32_16x16x32_bf8_bf8;
inline constexpr const device& amd_cdna3_mfma_f32_bf8_fp8 = amd_cdna3_mfma_f32_16x16x32_bf8_fp8;
inline constexpr const device& amd_cdna3_mfma_f32_fp8_bf8 = amd_cdna3_mfma_f32_16x16x32_fp8_bf8;
inline constexpr const device& amd_cdna3_mfma_f32_fp8_fp8 = amd_cdna3_mfma_f32_16x16x32_fp8_fp8;
inline constexpr const device& amd_cdna3_mfma_f32_xf32 = amd_cdna3_mfma_f32_16x16x8_xf32;
inline constexpr const device& amd_cdna3_mfma_f64_f64 = amd_cdna3_mfma_f64_16x16x4_f64;
// clang-format on

inline constexpr const device* amd_cdna3[] = {
    &amd_cdna3_mfma_f32_16x16x16_bf16,    &amd_cdna3_mfma_f32_16x16x16_f16,     &amd_cdna3_mfma_f32_16x16x1_4b_f32,
    &amd_cdna3_mfma_f32_16x16x32_bf8_bf8, &amd_cdna3_mfma_f32_16x16x32_bf8_fp8, &amd_cdna3_mfma_f32_16x16x32_fp8_bf8,
    &amd_cdna3_mfma_f32_16x16x32_fp8_fp8, &amd_cdna3_mfma_f32_16x16x4_4b_bf16,  &amd_cdna3_mfma_f32_16x16x4_4b_f16,
    &amd_cdna3_mfma_f32_16x16x4_f32,      &amd_cdna3_mfma_f32_16x16x8_xf32,     &amd_cdna3_mfma_f32_4x4x1_16b_f32,
    &amd_cdna3_mfma_f32_4x4x4_16b_bf16,   &amd_cdna3_mfma_f32_4x4x4_16b_f16,    &amd_cdna3_mfma_f64_16x16x4_f64,
    &amd_cdna3_mfma_f64_4x4x4_4b_f64,
};

}  // namespace qk::devices
