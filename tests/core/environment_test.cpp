// SPDX-License-Identifier: Apache-2.0
// Runs kernels in other floating-point environments: FTZ and DAZ, and the three other rounding modes of MXCSR. The oracle runs in the
// default one. docs/reference/numerics.md, "The environment", says what is promised.
#include <doctest/doctest.h>

#if defined(__SSE2__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "compare_bits.hpp"
#include "evidence.hpp"
#include "qk/dispatch.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

struct environment {
    const char* name;
    unsigned bits;
};
constexpr environment environments[] = {{"FTZ and DAZ", 0x8040},   {"FTZ", 0x8000},         {"DAZ", 0x0040},
                                        {"rounding down", 0x2000}, {"rounding up", 0x4000}, {"truncating", 0x6000}};

/// Keeps the compiler from moving the call across a change of the environment.
[[gnu::noinline]] void quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale, const semantics& how) {
    dispatch::fake_quantize(f, x, y, scale, how);
}

[[gnu::noinline]] void quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                                const semantics& how) {
    dispatch::fake_quantize(f, x, y, scales, how);
}

template <class Scales>
std::size_t mismatches_in(environment e, const test_format& f, const Scales& scale, const semantics& how, bool normal_only) {
    std::size_t mismatches = 0;
    for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
        const bool has_others =
            data(kind) == data::subnormal || data(kind) == data::special || data(kind) == data::any_bits || data(kind) == data::tiny_runs;
        if (normal_only && has_others) continue;
        const std::vector<float> x = make_inputs(data(kind), 531, 13);
        std::vector<float> expected(x.size()), actual(x.size());
        reference::fake_quantize(f.format, x, expected, scale, how);
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | e.bits);
        quantize(f.format, x, actual, scale, how);
        _mm_setcsr(before);
        mismatches += count_mismatches(x, expected, actual, f.name + " under " + e.name);
    }
    return mismatches;
}

bool divides(const format& f) { return is_integer_format(f) || std::holds_alternative<nvfloat>(f); }

/// Is true for tables whose own numbers, factors of every result, are subnormal.
bool has_subnormal_factors(const format& f) {
    const table* t = std::get_if<table>(&f);
    const auto is_subnormal = [](float v) { return v != 0 && std::fabs(v) < 0x1p-126f; };
    return t != nullptr && std::any_of(t->values->number.begin(), t->values->number.end(), is_subnormal);
}

}  // namespace

TEST_CASE("formats that need no quotient: the same bits in every environment") {
    for (const environment& e : environments) {
        for (const test_format& f : all_formats()) {
            if (divides(f.format)) continue;
            for (const auto& r : rounding_names) {
                semantics how;
                how.rounding = r.value;
                CAPTURE(f.name);
                CAPTURE(e.name);
                CHECK(mismatches_in(e, f, affine{}, how, false) == 0);
            }
        }
    }
}

TEST_CASE("formats with a quotient: the same bits under FTZ and DAZ where no operand, quotient or result is subnormal") {
    for (const environment& e : environments) {
        if ((e.bits & 0x6000) != 0) continue;  // formats with a quotient require the default rounding mode
        for (const test_format& f : all_formats()) {
            affine scale{0.37f, 0};
            if (const integer* g = std::get_if<integer>(&f.format)) scale.zero_point = (qmin(*g) + qmax(*g) + 1) / 2;
            if (is_block_format(f.format) && !std::holds_alternative<nvfloat>(f.format)) continue;
            if (has_subnormal_factors(f.format)) continue;
            if (std::holds_alternative<nvfloat>(f.format)) scale.scale = 0.001f;
            CAPTURE(f.name);
            CAPTURE(e.name);
            CHECK(mismatches_in(e, f, scale, semantics::ocp, true) == 0);
            CHECK(mismatches_in(e, f, scale, semantics::torch, true) == 0);
            if (is_block_format(f.format)) continue;
            const std::vector<float> scales{0.37f, 0.5f, 1.0f};
            const std::vector<std::int64_t> zeros(scales.size(), scale.zero_point);
            CHECK(mismatches_in(e, f, per_channel{scales, zeros, {177, 3, 1}}, semantics::ocp, true) == 0);
            CHECK(mismatches_in(e, f, per_channel{scales, zeros, {1, 3, 177}}, semantics::ocp, true) == 0);
        }
    }
}

#endif
