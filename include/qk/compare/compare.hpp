// SPDX-License-Identifier: Apache-2.0
// Compares a device's values with what the format says: where the two differ, and which mistakes of a converter, alone or together,
// reproduce the device's values. docs/guide/checking_hardware.md shows examples.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "qk/compare/conversion.hpp"
#include "qk/compare/flags.hpp"

namespace qk::compare {

/// Classes of differences. A difference is in the first class that fits.
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

/// What the input exercises. A comparison says nothing about kinds of values that the input lacks.
struct input_coverage {
    std::size_t values = 0, negative = 0, positive_zero = 0, negative_zero = 0, subnormal = 0, infinite = 0, nan = 0;
    std::size_t ties = 0, exact = 0, overflow = 0, underflow = 0;
    std::size_t binades = 0;             ///< distinct exponents of nonzero finite values, whatever their sign
    std::size_t blocks = 0, scales = 0;  ///< blocks, and distinct scales among them
};

/// A subset of the values, described in words, and how many of them differ: "the result is subnormal", 812 of its 824 values.
struct location {
    std::string words;            ///< "" means everywhere
    std::size_t values = 0;       ///< values of the array that lie there
    std::size_t differences = 0;  ///< how many of these differ; in a cause, how many it explains
};
/// Returns "where the result is subnormal: 812 of these 824 values".
std::string to_text(const location& p);
/// Returns the same, and which part of all `mismatches` lies there: ", 812 of the 900 differences".
std::string to_text(const location& p, std::size_t mismatches);

/// A mistake that the device makes, as far as its values show.
struct cause {
    std::string sentence;
    location where;            ///< where the mistake is made if `restricted`, else where its differences lie
    bool restricted = false;   ///< the mistake is made only in `where`
    std::size_t explains = 0;  ///< differences that would be unexplained without it
    std::size_t keeps = 0;     ///< values that the device gives rightly and the other causes alone would not; not 0 if `explains` is
    std::size_t alone = 0;     ///< differences that it explains without the other causes
    std::size_t makes = 0;     ///< differences that it would make where the device is right; 0 except in `report::nearest`
};

struct report {
    std::size_t values = 0, mismatches = 0, blocks_touched = 0;
    std::array<difference_class, static_cast<std::size_t>(difference::count)> classes;
    input_coverage coverage;
    flag_counts flags;            ///< of the conversion itself, not of the device
    std::vector<location> where;  ///< where the differences are, in up to three places
    /// Mistakes that together explain at least four fifths of the differences and make none where the device is right; else empty.
    std::vector<cause> causes;
    std::size_t unexplained = 0;            ///< values on which a converter with these mistakes still differs from the device
    std::vector<std::string> alternatives;  ///< other mistakes, each of which explains every difference
    std::optional<cause> nearest;           ///< without causes: the mistake that comes nearest, though it is wrong elsewhere
};

/// Compares `device`, a device's output for `x`, with what `c` gives. `shape` is the shape of the array.
report examine(const conversion& c, std::span<const std::int64_t> shape, std::span<const float> x, std::span<const float> device);

/// Which differences a comparison looks at: those of a device with many mistakes, one part after the other.
struct selection {
    bool zeros = true, specials = true, subnormals = true,
         overflow = true;  ///< no: values of this kind count as right; specials: blocks with them
    std::string where;     ///< a place as reports print it, "the result is subnormal and the input is negative"; empty: everywhere
};
/// Returns the device's values, those that are not selected replaced by right ones; nullopt if no value lies in `where`, or it is no place.
std::optional<std::vector<float>> selected(const conversion& c, std::span<const std::int64_t> shape, std::span<const float> x,
                                           std::span<const float> device, const selection& which);

/// Returns lines that say what the device does wrong, then where the differences are. `qk compare` opens with them.
std::string to_text(const report& r);

}  // namespace qk::compare
