// SPDX-License-Identifier: Apache-2.0
// Shared by the tests that compare kernels with the oracle: semantics, roundings, scales, the comparison.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "evidence.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace qk {

using under_test::isa;

struct test_semantics {
    std::string name;
    semantics how;
};

inline std::vector<test_semantics> all_semantics() {
    std::vector<test_semantics> all;
    for (const auto& s : semantics_names) all.push_back({std::string(s.name), s.value});
    const auto add = [&](std::string name, auto change) {
        semantics how;
        change(how);
        all.push_back({std::move(name), how});
    };
    add("ceil", [](semantics& s) { s.scale_rule = scale_rule::ceil; });
    add("even", [](semantics& s) { s.scale_rule = scale_rule::even; });
    add("ceil_7_25", [](semantics& s) { s.scale_rule = scale_rule::ceil_7_25; });
    add("rceil unclamped", [](semantics& s) {
        s.scale_rule = scale_rule::rceil;
        s.clamp_mx_scale = false;
    });
    add("saturate", [](semantics& s) { s.overflow = overflow_rule::saturate; });
    add("ieee, nan kept", [](semantics& s) {
        s.overflow = overflow_rule::ieee;
        s.nan_without_code = nan_rule::nan;
    });
    add("propagate", [](semantics& s) { s.overflow = overflow_rule::propagate; });
    add("flush inputs", [](semantics& s) { s.flush_inputs = true; });
    add("flush outputs", [](semantics& s) { s.flush_outputs = true; });
    add("flush both", [](semantics& s) {
        s.flush_inputs = s.flush_outputs = true;
        s.mx_specials = block_specials::nan_only;
    });
    add("zero point before", [](semantics& s) { s.zero_point_before = true; });
    add("reciprocal before", [](semantics& s) {
        s.integer_mode = integer_mode::reciprocal;
        s.zero_point_before = true;
        s.integer_infinity = integer_special::zero_point;
    });
    add("nan highest", [](semantics& s) {
        s.integer_nan = integer_special::highest;
        s.integer_infinity_per_channel = integer_special::lowest;
    });
    add("bfp nan only", [](semantics& s) {
        s.bfp_specials = block_specials::nan_only;
        s.bfp_zero = zero_sign::positive;
        s.mxint_zero = zero_sign::kept;
    });
    return all;
}

inline std::vector<test_semantics> all_roundings(const test_semantics& base) {
    std::vector<test_semantics> all;
    for (const auto& r : rounding_names) {
        all.push_back({base.name + ", " + std::string(r.name), base.how});
        all.back().how.rounding = r.value;
        all.back().how.seed = 0x123456789abcdefu;
        all.back().how.first_index = 1000;
        if (!is_stochastic(r.value)) continue;
        all.push_back({all.back().name + " by 5 bits", all.back().how});
        all.back().how.stochastic_bits = 5;
    }
    return all;
}

inline affine scale_of(const format& f) {
    if (const integer* g = std::get_if<integer>(&f)) return {0.37f, (qmin(*g) + qmax(*g) + 1) / 2 + (g->bits > 3)};
    return {std::holds_alternative<nvfloat>(f) ? 0.0f : 1.0f, 0};
}

/// Compares the run-time form with the oracle, under one scale and with blocks along `axis`. Returns the number of mismatches.
inline std::size_t compare(const test_format& f, const std::vector<float>& x, along_axis axis, affine scale, const test_semantics& s,
                           const char* kind) {
    std::vector<float> expected(x.size()), actual(x.size(), 12345.0f);
    reference::fake_quantize(f.format, x, expected, axis, scale, s.how);
    under_test::fake_quantize(f.format, x, actual, axis, scale, s.how);
    const std::size_t mismatches = count_mismatches(x, expected, actual, isa + " " + f.name + " [" + s.name + "] " + kind);
    CHECK_MESSAGE(mismatches == 0, f.name, " [", s.name, "] ", kind, ": ", mismatches, " of ", x.size());
    return mismatches;
}

}  // namespace qk
