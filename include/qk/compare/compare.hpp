// SPDX-License-Identifier: Apache-2.0
// What a device gave against what the format says: where the two differ, and which mistakes of a converter, alone or together, make the
// device's values. docs/guide/checking_hardware.md shows it by example.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "qk/compare/conversion.hpp"
#include "qk/compare/flags.hpp"

namespace qk::compare {

/// Each difference has the first class that fits, in this order.
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

/// A part of the values in words, and how many of them are meant: "the result is subnormal", 812 of its 824 values.
struct location {
    std::string words;            ///< "" for everywhere
    std::size_t values = 0;       ///< in the array
    std::size_t differences = 0;  ///< of them
};
/// "where the result is subnormal: 812 of these 824 values differ".
std::string to_text(const location& p);

/// A mistake that the device makes, as far as its values show.
struct cause {
    std::string sentence;
    location where;            ///< restricts the mistake, or else describes the differences that it makes
    bool restricted = false;   ///< the mistake is made there alone
    std::size_t explains = 0;  ///< differences that would be left without it
};

struct report {
    std::size_t values = 0, mismatches = 0, blocks_touched = 0;
    std::array<difference_class, static_cast<std::size_t>(difference::count)> classes;
    input_coverage coverage;
    flag_counts flags;                      ///< of what the format says
    std::vector<location> where;            ///< the differences, described: the first place has most of them
    std::vector<cause> causes;              ///< together they make the device's values
    std::size_t unexplained = 0;            ///< values on which a converter with these mistakes still differs from the device
    std::vector<std::string> alternatives;  ///< other mistakes, each of which explains every difference
    std::optional<cause> nearest;           ///< where no cause is found: what explains most differences, though it is wrong elsewhere
};

/// `shape` is that of the array; `x` what the device was given, `device` what it gave.
report examine(const conversion& c, std::span<const std::int64_t> shape, std::span<const float> x, std::span<const float> device);

/// What the device does wrong, then where the differences are: what `qk compare` opens with. Lines.
std::string to_text(const report& r);

}  // namespace qk::compare
