// SPDX-License-Identifier: Apache-2.0
// What a device gave against what the format says: every disagreement in a class, what the input exercised, and the likely cause.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "options/format_options.hpp"

namespace qk::tool {

/// Each disagreement has the first class that fits, in this order.
enum class difference { nan, block_shifted, block_scale, zero_sign, overflow, underflow, tie, one_code, other, count };
const char* name_of(difference d);
const char* meaning_of(difference d);

struct example {
    std::size_t index = 0;
    float input = 0, expected = 0, device = 0;
    std::string expected_code, device_code;  ///< empty where the value has none
};

struct difference_class {
    std::size_t count = 0;
    std::vector<example> examples;  ///< the first eight
};

/// What the input exercised; a converter is not validated by what it never met.
struct input_coverage {
    std::size_t values = 0, negative = 0, positive_zero = 0, negative_zero = 0, subnormal = 0, infinite = 0, nan = 0;
    std::size_t ties = 0, exact = 0, overflow = 0, underflow = 0;
    std::size_t binades = 0;             ///< distinct exponents of finite values, signs apart
    std::size_t blocks = 0, scales = 0;  ///< blocks, and distinct scales among them
};

struct cause {
    std::string sentence;
    std::size_t unexplained = 0;  ///< values on which this converter still differs from the device
};

struct comparison {
    std::size_t values = 0, mismatches = 0, blocks_touched = 0;
    std::array<difference_class, static_cast<std::size_t>(difference::count)> classes;
    input_coverage coverage;
    std::vector<cause> causes;  ///< converters that explain the device's values, the best first; empty: none does
};

comparison compare(const conversion& c, const graph::dims& shape, std::span<const float> x, std::span<const float> device);

/// Known mistakes, each as a converter: which of them gives the device's values?
std::vector<cause> find_causes(const conversion& c, const graph::dims& shape, std::span<const float> x, std::span<const float> expected,
                               std::span<const float> device, std::span<const float> unit, std::size_t mismatches);

inline bool same_value(float a, float b) { return a != a ? b != b : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

/// For each value the factor of its element: scale or step of its block, or the scale that the caller gave.
std::vector<float> units_of(const conversion& c, std::span<const float> x);

}  // namespace qk::tool
