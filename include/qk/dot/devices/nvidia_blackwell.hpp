// SPDX-License-Identifier: Apache-2.0
// NVIDIA Blackwell (B200): one instruction per line.
#pragma once

#include "qk/dot/devices/device.hpp"

namespace qk::devices {

// clang-format off
inline constexpr device nvidia_blackwell_mma_m16n8k16_f16_f16_f16_f16{"nvidia.blackwell.mma.m16n8k16.f16.f16.f16.f16", fp16, fp16, tensor_core(25, 16, fp16, fp16), 16, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k16_f32_bf16_bf16_f32{"nvidia.blackwell.mma.m16n8k16.f32.bf16.bf16.f32", bf16, bf16, tensor_core(25, 16, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k16_f32_f16_f16_f32{"nvidia.blackwell.mma.m16n8k16.f32.f16.f16.f32", fp16, fp16, tensor_core(25, 16, fp32, fp32), 16, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k4_f32_tf32_tf32_f32{"nvidia.blackwell.mma.m16n8k4.f32.tf32.tf32.f32", fp32, fp32, tensor_core(25, 4, fp32, fp32, 10), 16, 8, 4, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k8_f16_f16_f16_f16{"nvidia.blackwell.mma.m16n8k8.f16.f16.f16.f16", fp16, fp16, tensor_core(25, 8, fp16, fp16), 16, 8, 8, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k8_f32_bf16_bf16_f32{"nvidia.blackwell.mma.m16n8k8.f32.bf16.bf16.f32", bf16, bf16, tensor_core(25, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k8_f32_f16_f16_f32{"nvidia.blackwell.mma.m16n8k8.f32.f16.f16.f32", fp16, fp16, tensor_core(25, 8, fp32, fp32), 16, 8, 8, mma_sim};
inline constexpr device nvidia_blackwell_mma_m16n8k8_f32_tf32_tf32_f32{"nvidia.blackwell.mma.m16n8k8.f32.tf32.tf32.f32", fp32, fp32, tensor_core(25, 8, fp32, fp32, 10), 16, 8, 8, mma_sim};
inline constexpr device nvidia_blackwell_mma_m8n8k4_f64_f64_f64_f64{"nvidia.blackwell.mma.m8n8k4.f64.f64.f64.f64", fp64, fp64, accumulators::fma_fp64, 8, 8, 4, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k16_f16_f16_f16{"nvidia.blackwell.tcgen05mma.m64n8k16.f16.f16.f16", fp16, fp16, tensor_core(25, 16, fp16, fp16), 64, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k16_f32_bf16_bf16{"nvidia.blackwell.tcgen05mma.m64n8k16.f32.bf16.bf16", bf16, bf16, tensor_core(25, 16, fp32, fp32), 64, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k16_f32_f16_f16{"nvidia.blackwell.tcgen05mma.m64n8k16.f32.f16.f16", fp16, fp16, tensor_core(25, 16, fp32, fp32), 64, 8, 16, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k32_f16_e4m3_e5m2{"nvidia.blackwell.tcgen05mma.m64n8k32.f16.e4m3.e5m2", fp8_e4m3fn, fp8_e5m2, tensor_core(25, 32, fp16, fp16), 64, 8, 32, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k32_f32_e4m3_e4m3{"nvidia.blackwell.tcgen05mma.m64n8k32.f32.e4m3.e4m3", fp8_e4m3fn, fp8_e4m3fn, tensor_core(25, 32, fp32, fp32), 64, 8, 32, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k32_f32_e5m2_e4m3{"nvidia.blackwell.tcgen05mma.m64n8k32.f32.e5m2.e4m3", fp8_e5m2, fp8_e4m3fn, tensor_core(25, 32, fp32, fp32), 64, 8, 32, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_m64n8k8_f32_tf32_tf32{"nvidia.blackwell.tcgen05mma.m64n8k8.f32.tf32.tf32", fp32, fp32, tensor_core(25, 8, fp32, fp32, 10), 64, 8, 8, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e4m3_e4m3_ue8m0{"nvidia.blackwell.tcgen05mma_block_scale.m128n8k32.block32.f32.e4m3.e4m3.ue8m0", microscaling{.block_size = 32, .element = fp8_e4m3fn}, microscaling{.block_size = 32, .element = fp8_e4m3fn}, tensor_core(25, 32, fp32, fp32), 128, 8, 32, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e5m2_e4m3_ue8m0{"nvidia.blackwell.tcgen05mma_block_scale.m128n8k32.block32.f32.e5m2.e4m3.ue8m0", microscaling{.block_size = 32, .element = fp8_e5m2}, microscaling{.block_size = 32, .element = fp8_e4m3fn}, tensor_core(25, 32, fp32, fp32), 128, 8, 32, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue4m3{"nvidia.blackwell.tcgen05mma_block_scale.m128n8k64.block16.f32.e2m1.e2m1.ue4m3", nvfp4, nvfp4, tensor_core(35, 64, fp32, fp32, 0, 16), 128, 8, 64, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue8m0{"nvidia.blackwell.tcgen05mma_block_scale.m128n8k64.block16.f32.e2m1.e2m1.ue8m0", microscaling{.block_size = 16, .element = fp4_e2m1}, microscaling{.block_size = 16, .element = fp4_e2m1}, tensor_core(35, 64, fp32, fp32, 0, 16), 128, 8, 64, mma_sim};
inline constexpr device nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block32_f32_e2m1_e2m1_ue8m0{"nvidia.blackwell.tcgen05mma_block_scale.m128n8k64.block32.f32.e2m1.e2m1.ue8m0", microscaling{.block_size = 32, .element = fp4_e2m1}, microscaling{.block_size = 32, .element = fp4_e2m1}, tensor_core(35, 64, fp32, fp32, 0, 16), 128, 8, 64, mma_sim};

// A name without its shape means the largest k.
inline constexpr const device& nvidia_blackwell_mma_f16_f16_f16_f16 = nvidia_blackwell_mma_m16n8k16_f16_f16_f16_f16;
inline constexpr const device& nvidia_blackwell_mma_f32_bf16_bf16_f32 = nvidia_blackwell_mma_m16n8k16_f32_bf16_bf16_f32;
inline constexpr const device& nvidia_blackwell_mma_f32_f16_f16_f32 = nvidia_blackwell_mma_m16n8k16_f32_f16_f16_f32;
inline constexpr const device& nvidia_blackwell_mma_f32_tf32_tf32_f32 = nvidia_blackwell_mma_m16n8k8_f32_tf32_tf32_f32;
inline constexpr const device& nvidia_blackwell_mma_f64_f64_f64_f64 = nvidia_blackwell_mma_m8n8k4_f64_f64_f64_f64;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f16_f16_f16 = nvidia_blackwell_tcgen05mma_m64n8k16_f16_f16_f16;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f32_bf16_bf16 = nvidia_blackwell_tcgen05mma_m64n8k16_f32_bf16_bf16;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f32_f16_f16 = nvidia_blackwell_tcgen05mma_m64n8k16_f32_f16_f16;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f16_e4m3_e5m2 = nvidia_blackwell_tcgen05mma_m64n8k32_f16_e4m3_e5m2;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f32_e4m3_e4m3 = nvidia_blackwell_tcgen05mma_m64n8k32_f32_e4m3_e4m3;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f32_e5m2_e4m3 = nvidia_blackwell_tcgen05mma_m64n8k32_f32_e5m2_e4m3;
inline constexpr const device& nvidia_blackwell_tcgen05mma_f32_tf32_tf32 = nvidia_blackwell_tcgen05mma_m64n8k8_f32_tf32_tf32;
inline constexpr const device& nvidia_blackwell_tcgen05mma_block_scale_block32_f32_e4m3_e4m3_ue8m0 = nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e4m3_e4m3_ue8m0;
inline constexpr const device& nvidia_blackwell_tcgen05mma_block_scale_block32_f32_e5m2_e4m3_ue8m0 = nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e5m2_e4m3_ue8m0;
inline constexpr const device& nvidia_blackwell_tcgen05mma_block_scale_block16_f32_e2m1_e2m1_ue4m3 = nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue4m3;
inline constexpr const device& nvidia_blackwell_tcgen05mma_block_scale_block16_f32_e2m1_e2m1_ue8m0 = nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue8m0;
inline constexpr const device& nvidia_blackwell_tcgen05mma_block_scale_block32_f32_e2m1_e2m1_ue8m0 = nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block32_f32_e2m1_e2m1_ue8m0;
// clang-format on

inline constexpr const device* nvidia_blackwell[] = {
    &nvidia_blackwell_mma_m16n8k16_f16_f16_f16_f16,
    &nvidia_blackwell_mma_m16n8k16_f32_bf16_bf16_f32,
    &nvidia_blackwell_mma_m16n8k16_f32_f16_f16_f32,
    &nvidia_blackwell_mma_m16n8k4_f32_tf32_tf32_f32,
    &nvidia_blackwell_mma_m16n8k8_f16_f16_f16_f16,
    &nvidia_blackwell_mma_m16n8k8_f32_bf16_bf16_f32,
    &nvidia_blackwell_mma_m16n8k8_f32_f16_f16_f32,
    &nvidia_blackwell_mma_m16n8k8_f32_tf32_tf32_f32,
    &nvidia_blackwell_mma_m8n8k4_f64_f64_f64_f64,
    &nvidia_blackwell_tcgen05mma_m64n8k16_f16_f16_f16,
    &nvidia_blackwell_tcgen05mma_m64n8k16_f32_bf16_bf16,
    &nvidia_blackwell_tcgen05mma_m64n8k16_f32_f16_f16,
    &nvidia_blackwell_tcgen05mma_m64n8k32_f16_e4m3_e5m2,
    &nvidia_blackwell_tcgen05mma_m64n8k32_f32_e4m3_e4m3,
    &nvidia_blackwell_tcgen05mma_m64n8k32_f32_e5m2_e4m3,
    &nvidia_blackwell_tcgen05mma_m64n8k8_f32_tf32_tf32,
    &nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e4m3_e4m3_ue8m0,
    &nvidia_blackwell_tcgen05mma_block_scale_m128n8k32_block32_f32_e5m2_e4m3_ue8m0,
    &nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue4m3,
    &nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block16_f32_e2m1_e2m1_ue8m0,
    &nvidia_blackwell_tcgen05mma_block_scale_m128n8k64_block32_f32_e2m1_e2m1_ue8m0,
};

}  // namespace qk::devices
