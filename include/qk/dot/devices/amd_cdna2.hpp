// SPDX-License-Identifier: Apache-2.0
// AMD CDNA2 (MI200): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device amd_cdna2_mfma_f32_16x16x16bf16_1k{"amd.cdna2.mfma.f32_16x16x16bf16_1k", bf16, bf16, matrix_core(4, true), 16, 16, 16, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x16f16{"amd.cdna2.mfma.f32_16x16x16f16", fp16, fp16, matrix_core(4, true), 16, 16, 16, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x1f32{"amd.cdna2.mfma.f32_16x16x1f32", fp32, fp32, accumulators::sequential_fp32, 16, 16, 1, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x2bf16{"amd.cdna2.mfma.f32_16x16x2bf16", bf16, bf16, matrix_core(2, true), 16, 16, 2, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x4bf16_1k{"amd.cdna2.mfma.f32_16x16x4bf16_1k", bf16, bf16, matrix_core(4, true), 16, 16, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x4f16{"amd.cdna2.mfma.f32_16x16x4f16", fp16, fp16, matrix_core(4, true), 16, 16, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x4f32{"amd.cdna2.mfma.f32_16x16x4f32", fp32, fp32, accumulators::sequential_fp32, 16, 16, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_16x16x8bf16{"amd.cdna2.mfma.f32_16x16x8bf16", bf16, bf16, matrix_core(2, true), 16, 16, 8, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_4x4x1f32{"amd.cdna2.mfma.f32_4x4x1f32", fp32, fp32, accumulators::sequential_fp32, 4, 4, 1, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_4x4x2bf16{"amd.cdna2.mfma.f32_4x4x2bf16", bf16, bf16, matrix_core(2, true), 4, 4, 2, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_4x4x4bf16_1k{"amd.cdna2.mfma.f32_4x4x4bf16_1k", bf16, bf16, matrix_core(4, true), 4, 4, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f32_4x4x4f16{"amd.cdna2.mfma.f32_4x4x4f16", fp16, fp16, matrix_core(4, true), 4, 4, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f64_16x16x4f64{"amd.cdna2.mfma.f64_16x16x4f64", fp64, fp64, accumulators::fma_fp64, 16, 16, 4, mma_sim};
inline constexpr device amd_cdna2_mfma_f64_4x4x4f64{"amd.cdna2.mfma.f64_4x4x4f64", fp64, fp64, accumulators::fma_fp64, 4, 4, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& amd_cdna2_mfma_f32_bf16_1k = amd_cdna2_mfma_f32_16x16x16bf16_1k;
inline constexpr const device& amd_cdna2_mfma_f32_f16 = amd_cdna2_mfma_f32_16x16x16f16;
inline constexpr const device& amd_cdna2_mfma_f32_f32 = amd_cdna2_mfma_f32_16x16x4f32;
inline constexpr const device& amd_cdna2_mfma_f32_bf16 = amd_cdna2_mfma_f32_16x16x8bf16;
inline constexpr const device& amd_cdna2_mfma_f64_f64 = amd_cdna2_mfma_f64_16x16x4f64;
// clang-format on

inline constexpr const device* amd_cdna2[] = {
    &amd_cdna2_mfma_f32_16x16x16bf16_1k, &amd_cdna2_mfma_f32_16x16x16f16, &amd_cdna2_mfma_f32_16x16x1f32,   &amd_cdna2_mfma_f32_16x16x2bf16,
    &amd_cdna2_mfma_f32_16x16x4bf16_1k,  &amd_cdna2_mfma_f32_16x16x4f16,  &amd_cdna2_mfma_f32_16x16x4f32,   &amd_cdna2_mfma_f32_16x16x8bf16,
    &amd_cdna2_mfma_f32_4x4x1f32,        &amd_cdna2_mfma_f32_4x4x2bf16,   &amd_cdna2_mfma_f32_4x4x4bf16_1k, &amd_cdna2_mfma_f32_4x4x4f16,
    &amd_cdna2_mfma_f64_16x16x4f64,      &amd_cdna2_mfma_f64_4x4x4f64,
};

}  // namespace qk::devices
