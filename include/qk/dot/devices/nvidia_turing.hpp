// SPDX-License-Identifier: Apache-2.0
// NVIDIA Turing (T4, RTX 20): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_turing_mma_m16n8k8_f16_f16_f16_f16{"nvidia.turing.mma.m16n8k8.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 8, fp16, fp16), 16, 8, 8, mma_sim};
inline constexpr device nvidia_turing_mma_m16n8k8_f32_f16_f16_f32{"nvidia.turing.mma.m16n8k8.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_turing_mma_m8n8k4_f16_f16_f16_f16{"nvidia.turing.mma.m8n8k4.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 4, fp16, fp16), 8, 8, 4, mma_sim};
inline constexpr device nvidia_turing_mma_m8n8k4_f32_f16_f16_f16{"nvidia.turing.mma.m8n8k4.f32.f16.f16.f16", fp16, fp16, tensor_core(24, 4, fp32, fp16), 8, 8, 4, mma_sim};
inline constexpr device nvidia_turing_mma_m8n8k4_f32_f16_f16_f32{"nvidia.turing.mma.m8n8k4.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 4, fp32, fp32), 8, 8, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_turing_mma_f16_f16_f16_f16 = nvidia_turing_mma_m16n8k8_f16_f16_f16_f16;
inline constexpr const device& nvidia_turing_mma_f32_f16_f16_f32 = nvidia_turing_mma_m16n8k8_f32_f16_f16_f32;
inline constexpr const device& nvidia_turing_mma_f32_f16_f16_f16 = nvidia_turing_mma_m8n8k4_f32_f16_f16_f16;
// clang-format on

inline constexpr const device* nvidia_turing[] = {
    &nvidia_turing_mma_m16n8k8_f16_f16_f16_f16, &nvidia_turing_mma_m16n8k8_f32_f16_f16_f32, &nvidia_turing_mma_m8n8k4_f16_f16_f16_f16,
    &nvidia_turing_mma_m8n8k4_f32_f16_f16_f16,  &nvidia_turing_mma_m8n8k4_f32_f16_f16_f32,
};

}  // namespace qk::devices
