// SPDX-License-Identifier: Apache-2.0
// NVIDIA Ampere (A100, RTX 30): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_ampere_mma_m16n8k16_f16_f16_f16_f16{"nvidia.ampere.mma.m16n8k16.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 8, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k16_f32_bf16_bf16_f32{"nvidia.ampere.mma.m16n8k16.f32.bf16.bf16.f32", bf16, bf16, tensor_core(24, 8, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k16_f32_f16_f16_f32{"nvidia.ampere.mma.m16n8k16.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 8, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k4_f32_tf32_tf32_f32{"nvidia.ampere.mma.m16n8k4.f32.tf32.tf32.f32", fp32, fp32, tensor_core(24, 4, fp32, fp32, 10), 16, 8, 4, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k8_f16_f16_f16_f16{"nvidia.ampere.mma.m16n8k8.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 8, fp16, fp16), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k8_f32_bf16_bf16_f32{"nvidia.ampere.mma.m16n8k8.f32.bf16.bf16.f32", bf16, bf16, tensor_core(24, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k8_f32_f16_f16_f32{"nvidia.ampere.mma.m16n8k8.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ampere_mma_m16n8k8_f32_tf32_tf32_f32{"nvidia.ampere.mma.m16n8k8.f32.tf32.tf32.f32", fp32, fp32, tensor_core(24, 4, fp32, fp32, 10), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ampere_mma_m8n8k4_f64_f64_f64_f64{"nvidia.ampere.mma.m8n8k4.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 8, 8, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_ampere_mma_f16_f16_f16_f16 = nvidia_ampere_mma_m16n8k16_f16_f16_f16_f16;
inline constexpr const device& nvidia_ampere_mma_f32_bf16_bf16_f32 = nvidia_ampere_mma_m16n8k16_f32_bf16_bf16_f32;
inline constexpr const device& nvidia_ampere_mma_f32_f16_f16_f32 = nvidia_ampere_mma_m16n8k16_f32_f16_f16_f32;
inline constexpr const device& nvidia_ampere_mma_f32_tf32_tf32_f32 = nvidia_ampere_mma_m16n8k8_f32_tf32_tf32_f32;
inline constexpr const device& nvidia_ampere_mma_f64_f64_f64_f64 = nvidia_ampere_mma_m8n8k4_f64_f64_f64_f64;
// clang-format on

inline constexpr const device* nvidia_ampere[] = {
    &nvidia_ampere_mma_m16n8k16_f16_f16_f16_f16, &nvidia_ampere_mma_m16n8k16_f32_bf16_bf16_f32,
    &nvidia_ampere_mma_m16n8k16_f32_f16_f16_f32, &nvidia_ampere_mma_m16n8k4_f32_tf32_tf32_f32,
    &nvidia_ampere_mma_m16n8k8_f16_f16_f16_f16,  &nvidia_ampere_mma_m16n8k8_f32_bf16_bf16_f32,
    &nvidia_ampere_mma_m16n8k8_f32_f16_f16_f32,  &nvidia_ampere_mma_m16n8k8_f32_tf32_tf32_f32,
    &nvidia_ampere_mma_m8n8k4_f64_f64_f64_f64,
};

}  // namespace qk::devices
