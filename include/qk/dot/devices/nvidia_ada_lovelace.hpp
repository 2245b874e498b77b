// SPDX-License-Identifier: Apache-2.0
// NVIDIA Ada Lovelace (L40, RTX 40): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f16_e4m3_e4m3_f16{"nvidia.ada_lovelace.mma.m16n8k16.f16.e4m3.e4m3.f16", fp8_e4m3fn, fp8_e4m3fn, tensor_core(13, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f16_e4m3_e5m2_f16{"nvidia.ada_lovelace.mma.m16n8k16.f16.e4m3.e5m2.f16", fp8_e4m3fn, fp8_e5m2, tensor_core(13, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f16_e5m2_e4m3_f16{"nvidia.ada_lovelace.mma.m16n8k16.f16.e5m2.e4m3.f16", fp8_e5m2, fp8_e4m3fn, tensor_core(13, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f16_e5m2_e5m2_f16{"nvidia.ada_lovelace.mma.m16n8k16.f16.e5m2.e5m2.f16", fp8_e5m2, fp8_e5m2, tensor_core(13, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f16_f16_f16_f16{"nvidia.ada_lovelace.mma.m16n8k16.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 8, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_bf16_bf16_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.bf16.bf16.f32", bf16, bf16, tensor_core(24, 8, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_e4m3_e4m3_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.e4m3.e4m3.f32", fp8_e4m3fn, fp8_e4m3fn, tensor_core(13, 16, e8m13, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_e4m3_e5m2_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.e4m3.e5m2.f32", fp8_e4m3fn, fp8_e5m2, tensor_core(13, 16, e8m13, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_e5m2_e4m3_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.e5m2.e4m3.f32", fp8_e5m2, fp8_e4m3fn, tensor_core(13, 16, e8m13, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_e5m2_e5m2_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.e5m2.e5m2.f32", fp8_e5m2, fp8_e5m2, tensor_core(13, 16, e8m13, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k16_f32_f16_f16_f32{"nvidia.ada_lovelace.mma.m16n8k16.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 8, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e4m3_f16{"nvidia.ada_lovelace.mma.m16n8k32.f16.e4m3.e4m3.f16", fp8_e4m3fn, fp8_e4m3fn, tensor_core(13, 16, fp16, fp16), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e5m2_f16{"nvidia.ada_lovelace.mma.m16n8k32.f16.e4m3.e5m2.f16", fp8_e4m3fn, fp8_e5m2, tensor_core(13, 16, fp16, fp16), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e4m3_f16{"nvidia.ada_lovelace.mma.m16n8k32.f16.e5m2.e4m3.f16", fp8_e5m2, fp8_e4m3fn, tensor_core(13, 16, fp16, fp16), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e5m2_f16{"nvidia.ada_lovelace.mma.m16n8k32.f16.e5m2.e5m2.f16", fp8_e5m2, fp8_e5m2, tensor_core(13, 16, fp16, fp16), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e4m3_f32{"nvidia.ada_lovelace.mma.m16n8k32.f32.e4m3.e4m3.f32", fp8_e4m3fn, fp8_e4m3fn, tensor_core(13, 16, e8m13, fp32), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e5m2_f32{"nvidia.ada_lovelace.mma.m16n8k32.f32.e4m3.e5m2.f32", fp8_e4m3fn, fp8_e5m2, tensor_core(13, 16, e8m13, fp32), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e4m3_f32{"nvidia.ada_lovelace.mma.m16n8k32.f32.e5m2.e4m3.f32", fp8_e5m2, fp8_e4m3fn, tensor_core(13, 16, e8m13, fp32), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e5m2_f32{"nvidia.ada_lovelace.mma.m16n8k32.f32.e5m2.e5m2.f32", fp8_e5m2, fp8_e5m2, tensor_core(13, 16, e8m13, fp32), 16, 8, 32, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k4_f32_tf32_tf32_f32{"nvidia.ada_lovelace.mma.m16n8k4.f32.tf32.tf32.f32", fp32, fp32, tensor_core(24, 4, fp32, fp32, 10), 16, 8, 4, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k8_f16_f16_f16_f16{"nvidia.ada_lovelace.mma.m16n8k8.f16.f16.f16.f16", fp16, fp16, tensor_core(24, 8, fp16, fp16), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k8_f32_bf16_bf16_f32{"nvidia.ada_lovelace.mma.m16n8k8.f32.bf16.bf16.f32", bf16, bf16, tensor_core(24, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k8_f32_f16_f16_f32{"nvidia.ada_lovelace.mma.m16n8k8.f32.f16.f16.f32", fp16, fp16, tensor_core(24, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m16n8k8_f32_tf32_tf32_f32{"nvidia.ada_lovelace.mma.m16n8k8.f32.tf32.tf32.f32", fp32, fp32, tensor_core(24, 4, fp32, fp32, 10), 16, 8, 8, mma_sim};
inline constexpr device nvidia_ada_lovelace_mma_m8n8k4_f64_f64_f64_f64{"nvidia.ada_lovelace.mma.m8n8k4.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 8, 8, 4, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_ada_lovelace_mma_f16_e4m3_e4m3_f16 = nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e4m3_f16;
inline constexpr const device& nvidia_ada_lovelace_mma_f16_e4m3_e5m2_f16 = nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e5m2_f16;
inline constexpr const device& nvidia_ada_lovelace_mma_f16_e5m2_e4m3_f16 = nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e4m3_f16;
inline constexpr const device& nvidia_ada_lovelace_mma_f16_e5m2_e5m2_f16 = nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e5m2_f16;
inline constexpr const device& nvidia_ada_lovelace_mma_f16_f16_f16_f16 = nvidia_ada_lovelace_mma_m16n8k16_f16_f16_f16_f16;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_bf16_bf16_f32 = nvidia_ada_lovelace_mma_m16n8k16_f32_bf16_bf16_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_e4m3_e4m3_f32 = nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e4m3_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_e4m3_e5m2_f32 = nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e5m2_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_e5m2_e4m3_f32 = nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e4m3_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_e5m2_e5m2_f32 = nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e5m2_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_f16_f16_f32 = nvidia_ada_lovelace_mma_m16n8k16_f32_f16_f16_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f32_tf32_tf32_f32 = nvidia_ada_lovelace_mma_m16n8k8_f32_tf32_tf32_f32;
inline constexpr const device& nvidia_ada_lovelace_mma_f64_f64_f64_f64 = nvidia_ada_lovelace_mma_m8n8k4_f64_f64_f64_f64;
// clang-format on

inline constexpr const device* nvidia_ada_lovelace[] = {
    &nvidia_ada_lovelace_mma_m16n8k16_f16_e4m3_e4m3_f16, &nvidia_ada_lovelace_mma_m16n8k16_f16_e4m3_e5m2_f16,
    &nvidia_ada_lovelace_mma_m16n8k16_f16_e5m2_e4m3_f16, &nvidia_ada_lovelace_mma_m16n8k16_f16_e5m2_e5m2_f16,
    &nvidia_ada_lovelace_mma_m16n8k16_f16_f16_f16_f16,   &nvidia_ada_lovelace_mma_m16n8k16_f32_bf16_bf16_f32,
    &nvidia_ada_lovelace_mma_m16n8k16_f32_e4m3_e4m3_f32, &nvidia_ada_lovelace_mma_m16n8k16_f32_e4m3_e5m2_f32,
    &nvidia_ada_lovelace_mma_m16n8k16_f32_e5m2_e4m3_f32, &nvidia_ada_lovelace_mma_m16n8k16_f32_e5m2_e5m2_f32,
    &nvidia_ada_lovelace_mma_m16n8k16_f32_f16_f16_f32,   &nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e4m3_f16,
    &nvidia_ada_lovelace_mma_m16n8k32_f16_e4m3_e5m2_f16, &nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e4m3_f16,
    &nvidia_ada_lovelace_mma_m16n8k32_f16_e5m2_e5m2_f16, &nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e4m3_f32,
    &nvidia_ada_lovelace_mma_m16n8k32_f32_e4m3_e5m2_f32, &nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e4m3_f32,
    &nvidia_ada_lovelace_mma_m16n8k32_f32_e5m2_e5m2_f32, &nvidia_ada_lovelace_mma_m16n8k4_f32_tf32_tf32_f32,
    &nvidia_ada_lovelace_mma_m16n8k8_f16_f16_f16_f16,    &nvidia_ada_lovelace_mma_m16n8k8_f32_bf16_bf16_f32,
    &nvidia_ada_lovelace_mma_m16n8k8_f32_f16_f16_f32,    &nvidia_ada_lovelace_mma_m16n8k8_f32_tf32_tf32_f32,
    &nvidia_ada_lovelace_mma_m8n8k4_f64_f64_f64_f64,
};

}  // namespace qk::devices
