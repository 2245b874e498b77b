// SPDX-License-Identifier: Apache-2.0
// What math_flags_kernels.cpp computes under compiler flags and math_flags_oracle.cpp compares.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

/// A format's values from kernels and oracle that were compiled with the flags.
struct results {
    std::vector<float> fake_quantized, decoded, oracle;
};

inline constexpr std::size_t format_count = 5;
inline constexpr float integer_scale = 0.05f;  ///< for int8

std::vector<results> run_kernels(std::span<const float> x);
float sum_of_products(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t size);
float users_own(float a, float b);
