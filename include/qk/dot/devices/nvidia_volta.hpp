// SPDX-License-Identifier: Apache-2.0
// NVIDIA Volta (V100): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_volta_mma_m8n8k4_f16_f16_f16_f16{"nvidia.volta.mma.m8n8k4.f16.f16.f16.f16", fp16, fp16, tensor_core(23, 4, fp16, fp16), 8, 8, 4, mma_sim};
inline constexpr device nvidia_volta_mma_m8n8k4_f32_f16_f16_f16{"nvidia.volta.mma.m8n8k4.f32.f16.f16.f16", fp16, fp16, tensor_core(23, 4, fp32, fp16), 8, 8, 4, mma_sim};
inline constexpr device nvidia_volta_mma_m8n8k4_f32_f16_f16_f32{"nvidia.volta.mma.m8n8k4.f32.f16.f16.f32", fp16, fp16, tensor_core(23, 4, fp32, fp32), 8, 8, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_volta_mma_f16_f16_f16_f16 = nvidia_volta_mma_m8n8k4_f16_f16_f16_f16;
inline constexpr const device& nvidia_volta_mma_f32_f16_f16_f16 = nvidia_volta_mma_m8n8k4_f32_f16_f16_f16;
inline constexpr const device& nvidia_volta_mma_f32_f16_f16_f32 = nvidia_volta_mma_m8n8k4_f32_f16_f16_f32;
// clang-format on

inline constexpr const device* nvidia_volta[] = {
    &nvidia_volta_mma_m8n8k4_f16_f16_f16_f16,
    &nvidia_volta_mma_m8n8k4_f32_f16_f16_f16,
    &nvidia_volta_mma_m8n8k4_f32_f16_f16_f32,
};

}  // namespace qk::devices
