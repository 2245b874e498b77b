// SPDX-License-Identifier: Apache-2.0
// NVIDIA Hopper (H100): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_hopper_mma_m16n8k16_f16_f16_f16_f16{"nvidia.hopper.mma.m16n8k16.f16.f16.f16.f16", fp16, fp16, tensor_core(25, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k16_f32_bf16_bf16_f32{"nvidia.hopper.mma.m16n8k16.f32.bf16.bf16.f32", bf16, bf16, tensor_core(25, 16, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k16_f32_f16_f16_f32{"nvidia.hopper.mma.m16n8k16.f32.f16.f16.f32", fp16, fp16, tensor_core(25, 16, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k16_f64_f64_f64_f64{"nvidia.hopper.mma.m16n8k16.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 16, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k4_f32_tf32_tf32_f32{"nvidia.hopper.mma.m16n8k4.f32.tf32.tf32.f32", fp32, fp32, tensor_core(25, 4, fp32, fp32, 10), 16, 8, 4, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k4_f64_f64_f64_f64{"nvidia.hopper.mma.m16n8k4.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 16, 8, 4, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k8_f16_f16_f16_f16{"nvidia.hopper.mma.m16n8k8.f16.f16.f16.f16", fp16, fp16, tensor_core(25, 8, fp16, fp16), 16, 8, 8, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k8_f32_bf16_bf16_f32{"nvidia.hopper.mma.m16n8k8.f32.bf16.bf16.f32", bf16, bf16, tensor_core(25, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k8_f32_f16_f16_f32{"nvidia.hopper.mma.m16n8k8.f32.f16.f16.f32", fp16, fp16, tensor_core(25, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k8_f32_tf32_tf32_f32{"nvidia.hopper.mma.m16n8k8.f32.tf32.tf32.f32", fp32, fp32, tensor_core(25, 8, fp32, fp32, 10), 16, 8, 8, mma_sim};
inline constexpr device nvidia_hopper_mma_m16n8k8_f64_f64_f64_f64{"nvidia.hopper.mma.m16n8k8.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 16, 8, 8, mma_sim};
inline constexpr device nvidia_hopper_mma_m8n8k4_f64_f64_f64_f64{"nvidia.hopper.mma.m8n8k4.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 8, 8, 4, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k16_f16_f16_f16{"nvidia.hopper.wgmma.m64n8k16.f16.f16.f16", fp16, fp16, tensor_core(25, 16, fp16, fp16), 64, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k16_f32_bf16_bf16{"nvidia.hopper.wgmma.m64n8k16.f32.bf16.bf16", bf16, bf16, tensor_core(25, 16, fp32, fp32), 64, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k16_f32_f16_f16{"nvidia.hopper.wgmma.m64n8k16.f32.f16.f16", fp16, fp16, tensor_core(25, 16, fp32, fp32), 64, 8, 16, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_f16_e4m3_e5m2{"nvidia.hopper.wgmma.m64n8k32.f16.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, tensor_core(13, 32, fp16, fp16), 64, 8, 32, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_f32_e4m3_e4m3{"nvidia.hopper.wgmma.m64n8k32.f32.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, tensor_core(13, 32, e8m13, fp32), 64, 8, 32, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k32_f32_e5m2_e4m3{"nvidia.hopper.wgmma.m64n8k32.f32.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, tensor_core(13, 32, e8m13, fp32), 64, 8, 32, mma_sim};
inline constexpr device nvidia_hopper_wgmma_m64n8k8_f32_tf32_tf32{"nvidia.hopper.wgmma.m64n8k8.f32.tf32.tf32", fp32, fp32, tensor_core(25, 8, fp32, fp32, 10), 64, 8, 8, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_hopper_mma_f16_f16_f16_f16 = nvidia_hopper_mma_m16n8k16_f16_f16_f16_f16;
inline constexpr const device& nvidia_hopper_mma_f32_bf16_bf16_f32 = nvidia_hopper_mma_m16n8k16_f32_bf16_bf16_f32;
inline constexpr const device& nvidia_hopper_mma_f32_f16_f16_f32 = nvidia_hopper_mma_m16n8k16_f32_f16_f16_f32;
inline constexpr const device& nvidia_hopper_mma_f64_f64_f64_f64 = nvidia_hopper_mma_m16n8k16_f64_f64_f64_f64;
inline constexpr const device& nvidia_hopper_mma_f32_tf32_tf32_f32 = nvidia_hopper_mma_m16n8k8_f32_tf32_tf32_f32;
inline constexpr const device& nvidia_hopper_wgmma_f16_f16_f16 = nvidia_hopper_wgmma_m64n8k16_f16_f16_f16;
inline constexpr const device& nvidia_hopper_wgmma_f32_bf16_bf16 = nvidia_hopper_wgmma_m64n8k16_f32_bf16_bf16;
inline constexpr const device& nvidia_hopper_wgmma_f32_f16_f16 = nvidia_hopper_wgmma_m64n8k16_f32_f16_f16;
inline constexpr const device& nvidia_hopper_wgmma_f16_e4m3_e5m2 = nvidia_hopper_wgmma_m64n8k32_f16_e4m3_e5m2;
inline constexpr const device& nvidia_hopper_wgmma_f32_e4m3_e4m3 = nvidia_hopper_wgmma_m64n8k32_f32_e4m3_e4m3;
inline constexpr const device& nvidia_hopper_wgmma_f32_e5m2_e4m3 = nvidia_hopper_wgmma_m64n8k32_f32_e5m2_e4m3;
inline constexpr const device& nvidia_hopper_wgmma_f32_tf32_tf32 = nvidia_hopper_wgmma_m64n8k8_f32_tf32_tf32;
// clang-format on

inline constexpr const device* nvidia_hopper[] = {
    &nvidia_hopper_mma_m16n8k16_f16_f16_f16_f16,  &nvidia_hopper_mma_m16n8k16_f32_bf16_bf16_f32,
    &nvidia_hopper_mma_m16n8k16_f32_f16_f16_f32,  &nvidia_hopper_mma_m16n8k16_f64_f64_f64_f64,
    &nvidia_hopper_mma_m16n8k4_f32_tf32_tf32_f32, &nvidia_hopper_mma_m16n8k4_f64_f64_f64_f64,
    &nvidia_hopper_mma_m16n8k8_f16_f16_f16_f16,   &nvidia_hopper_mma_m16n8k8_f32_bf16_bf16_f32,
    &nvidia_hopper_mma_m16n8k8_f32_f16_f16_f32,   &nvidia_hopper_mma_m16n8k8_f32_tf32_tf32_f32,
    &nvidia_hopper_mma_m16n8k8_f64_f64_f64_f64,   &nvidia_hopper_mma_m8n8k4_f64_f64_f64_f64,
    &nvidia_hopper_wgmma_m64n8k16_f16_f16_f16,    &nvidia_hopper_wgmma_m64n8k16_f32_bf16_bf16,
    &nvidia_hopper_wgmma_m64n8k16_f32_f16_f16,    &nvidia_hopper_wgmma_m64n8k32_f16_e4m3_e5m2,
    &nvidia_hopper_wgmma_m64n8k32_f32_e4m3_e4m3,  &nvidia_hopper_wgmma_m64n8k32_f32_e5m2_e4m3,
    &nvidia_hopper_wgmma_m64n8k8_f32_tf32_tf32,
};

}  // namespace qk::devices
