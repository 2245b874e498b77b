// SPDX-License-Identifier: Apache-2.0
// Tests the oracle by itself: codes and values, ties between neighbouring codes, the law decode(encode(x)) == fake_quantize(x), and the
// properties that every format promises.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "qk/reference/codes.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

std::vector<test_format> floats_beside_fp32() {
    std::vector<test_format> all;
    for (const test_format& f : all_formats()) {
        const floating* g = std::get_if<floating>(&f.format);
        if (g != nullptr && *g != fp32 && !exceeds_float32(*g)) all.push_back(f);
    }
    return all;
}

/// Returns every finite value of a format of up to 16 bits in ascending order, without -0.
std::vector<float> finite_values(floating f) {
    std::vector<float> values;
    for (const std::uint32_t code : codes_of(f)) {
        const float y = reference::value_of(f, code);
        if (std::isfinite(y) && !(y == 0 && std::signbit(y))) values.push_back(y);
    }
    std::sort(values.begin(), values.end());
    return values;
}

/// Returns the finite numbers of codes_of, each with the next larger one.
std::vector<std::pair<float, float>> neighbours(floating f) {
    std::vector<std::pair<float, float>> pairs;
    for (const std::uint32_t code : codes_of(f)) {
        if (code >= largest_magnitude(f)) continue;
        const float low = reference::value_of(f, code), high = reference::value_of(f, code + 1);
        pairs.emplace_back(low, high);
        if (is_signed(f)) pairs.emplace_back(-high, low == 0 ? 0.0f : -low);
    }
    return pairs;
}

struct codes {
    std::vector<std::uint32_t> elements, blocks, shifts;
    explicit codes(std::size_t n) : elements(n), blocks(n), shifts(8 * n + 8) {}
    reference::coded view() { return {elements, blocks, shifts}; }
};

/// Is true for formats that have -v for each v.
bool has_signed_elements(const format& f) {
    if (is_table_format(f)) return false;
    if (const floating* g = std::get_if<floating>(&f)) return is_signed(*g);
    if (const microscaling* g = std::get_if<microscaling>(&f)) return has_integer_elements(*g) || is_signed(g->element);
    return true;
}

affine test_scale(const format& f) {
    if (const integer* g = std::get_if<integer>(&f)) return {0.0625f * 1.1f, (qmin(*g) + qmax(*g) + 1) / 2};
    if (std::holds_alternative<nvfloat>(f)) return {.scale = 0};
    return {};
}

}  // namespace

TEST_CASE("every code of every float survives decode, fake_quantize and encode") {
    for (const test_format& f : floats_beside_fp32()) {
        CAPTURE(f.name);
        const floating g = std::get<floating>(f.format);
        for (const std::uint32_t code : codes_of(g)) {
            const float y = reference::value_of(g, code);
            if (std::isnan(y)) {
                CHECK(has_nan(g));
                continue;
            }
            semantics how;
            how.overflow = has_infinity(g) ? overflow_rule::ieee : overflow_rule::saturate;
            REQUIRE(same_bits(reference::quantize(g, y, how, 0), y));
            REQUIRE(reference::code_of(g, y) == code);
        }
    }
}

TEST_CASE("between neighbouring values: nearest, ties to the even code, and each rounding's own side") {
    for (const test_format& f : floats_beside_fp32()) {
        const floating g = std::get<floating>(f.format);
        if (!has_zero(g)) continue;
        CAPTURE(f.name);
        for (const auto& [low, high] : neighbours(g)) {
            const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
            if (static_cast<double>(middle) != (static_cast<double>(low) + high) / 2) continue;  // the middle is no float32
            const auto rounded = [&](float x, rounding r) {
                semantics how;
                how.rounding = r;
                return reference::quantize(g, x, how, 0);
            };
            const bool low_is_even = (reference::code_of(g, low == 0 ? 0.0f : low) & 1) == 0;
            REQUIRE(rounded(middle, rounding::half_even) == (low_is_even ? low : high));
            REQUIRE(rounded(middle, rounding::half_away) == (middle > 0 ? high : low));
            REQUIRE(rounded(middle, rounding::half_up) == high);
            for (float x : {std::nextafter(low, high), middle, std::nextafter(high, low)}) {
                if (x == low || x == high) continue;
                REQUIRE(rounded(x, rounding::up) == high);
                REQUIRE(rounded(x, rounding::down) == low);
                REQUIRE(rounded(x, rounding::toward_zero) == (x > 0 ? low : high));
            }
            if (std::nextafter(middle, low) != low) REQUIRE(rounded(std::nextafter(middle, low), rounding::half_even) == low);
            if (std::nextafter(middle, high) != high) REQUIRE(rounded(std::nextafter(middle, high), rounding::half_even) == high);
        }
    }
}

TEST_CASE("one law: fake_quantize == decode(encode), every format, rounding and axis") {
    for (const test_format& f : all_formats()) {
        CAPTURE(f.name);
        for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
            const std::size_t count = 3 * 37 * 5;
            const std::vector<float> x = make_inputs(data(kind), count, 7);
            for (const along_axis axis : {along_axis{}, along_axis{3, 37, 5}, along_axis{1, 3, 185}, along_axis{111, 5, 1}}) {
                for (const auto& r : rounding_names) {
                    for (const auto& rule : scale_rule_names) {
                        const bool searched = is_searched(rule.value);  // by brute force, which takes its time
                        if (searched && (r.value != rounding::half_even || axis.inner != 5)) continue;
                        const bool heeded =
                            std::holds_alternative<microscaling>(f.format) || (searched && std::holds_alternative<nvfloat>(f.format));
                        if (rule.value != scale_rule::floor && !heeded) continue;
                        semantics how;
                        how.rounding = r.value;
                        how.scale_rule = rule.value;
                        how.seed = 99;
                        affine scale = test_scale(f.format);
                        if (const nvfloat* g = std::get_if<nvfloat>(&f.format)) scale.scale = reference::tensor_scale(*g, x, how);
                        std::vector<float> y(count), z(count);
                        codes c(count);
                        reference::fake_quantize(f.format, x, y, axis, scale, how);
                        reference::encode(f.format, x, c.view(), axis, scale, how);
                        reference::decode(f.format, c.view(), z, axis, scale);
                        CHECK(count_mismatches(x, y, z, f.name + " " + name_of(data(kind)) + " " + std::string(r.name)) == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("properties inside the range: idempotent, monotonic, symmetric, half a step") {
    const std::size_t count = 4096;
    for (const test_format& f : all_formats()) {
        CAPTURE(f.name);
        if (std::holds_alternative<nvfloat>(f.format)) continue;  // its block scales are rounded: not idempotent where they are subnormal
        for (data kind : {data::ordinary, data::ties, data::narrow_range}) {
            for (rounding r : {rounding::half_even, rounding::half_away, rounding::toward_zero}) {
                semantics how;
                how.rounding = r;
                const affine scale = test_scale(f.format);
                std::vector<float> x = make_inputs(kind, count, 3), y(count), again(count);
                reference::fake_quantize(f.format, x, y, scale, how);
                reference::fake_quantize(f.format, y, again, scale, how);
                const integer* whole = std::get_if<integer>(&f.format);
                // Two cases are not idempotent by nature: truncated quotients (k * scale / scale may lie below k), and a block whose code
                // -2^m raises the exponent when it is quantized again.
                const bool bumps = std::holds_alternative<block_float>(f.format) && std::get<block_float>(f.format).bump;
                const bool truncated_quotient = whole != nullptr && r == rounding::toward_zero;
                // A block of elements without a sign has another largest magnitude once what was below 0 is 0.
                const bool loses_its_largest = is_block_format(f.format) && !has_signed_elements(f.format);
                if (!bumps && !truncated_quotient && !loses_its_largest) CHECK(count_mismatches(x, y, again, f.name + " again") == 0);
                const bool symmetric = has_signed_elements(f.format) &&
                                       (whole == nullptr || (whole->is_signed && scale.zero_point == 0 && whole->narrow)) && !bumps;
                if (symmetric) {
                    std::vector<float> negated(x), back(count);
                    for (float& v : negated) v = -v;
                    reference::fake_quantize(f.format, negated, back, scale, how);
                    std::size_t asymmetric = 0;
                    for (std::size_t i = 0; i < count; ++i) asymmetric += back[i] != -y[i];
                    CHECK(asymmetric == 0);
                }
                if (!is_block_format(f.format)) {
                    std::sort(x.begin(), x.end());
                    reference::fake_quantize(f.format, x, y, scale, how);
                    std::size_t falls = 0;
                    for (std::size_t i = 1; i < count; ++i) falls += y[i] < y[i - 1];
                    CHECK(falls == 0);
                }
            }
        }
    }
}

TEST_CASE("nearest roundings err by at most half a step") {
    const std::size_t count = 1 << 14;
    for (const test_format& f : floats_beside_fp32()) {
        const floating g = std::get<floating>(f.format);
        if (!has_zero(g) || bits(g) > 16) continue;
        const std::vector<float> values = finite_values(g);
        const std::vector<float> x = make_inputs(data::any_bits, count, 11);
        for (float v : x) {
            if (std::fabs(v) > max_value(g)) continue;
            const float y = reference::quantize(g, v, semantics::ocp, 0);
            const auto above = std::lower_bound(values.begin(), values.end(), v);
            double least = std::fabs(static_cast<double>(*above) - v);
            if (above != values.begin()) least = std::min(least, std::fabs(static_cast<double>(*(above - 1)) - v));
            REQUIRE(std::fabs(static_cast<double>(y) - v) == least);
        }
    }
}

TEST_CASE("stochastic rounding: both neighbours, right on average, and independent of how the array is cut") {
    const std::size_t count = 1 << 16;
    semantics how;
    how.rounding = rounding::stochastic;
    how.seed = 42;
    const std::vector<float> x(count, 1.03125f);  // a quarter of fp8_e4m3fn's step above 1
    std::vector<float> y(count), z(count);
    reference::fake_quantize(fp8_e4m3fn, x, y, how);
    const auto ups = std::count(y.begin(), y.end(), 1.125f);
    CHECK(std::count(y.begin(), y.end(), 1.0f) + ups == static_cast<std::ptrdiff_t>(count));
    CHECK(std::abs(static_cast<double>(ups) - count / 4.0) < 4 * std::sqrt(count * 3.0 / 16));
    for (std::size_t start = 0, piece = 1; start < count; start += piece, piece = piece % 1000 + 37) {
        how.first_index = start;
        const std::size_t length = std::min(piece, count - start);
        reference::fake_quantize(fp8_e4m3fn, std::span(x).subspan(start, length), std::span(z).subspan(start, length), how);
    }
    CHECK(y == z);
    std::vector<std::uint32_t> words(count);
    for (std::size_t i = 0; i < count; ++i) words[i] = i % 4 == 3 ? 0xffffffffu : 0;
    how.random_words = words;
    how.first_index = 0;
    reference::fake_quantize(fp8_e4m3fn, x, y, how);
    CHECK(std::count(y.begin(), y.end(), 1.125f) == static_cast<std::ptrdiff_t>(count / 4));
}

TEST_CASE("flushing") {
    semantics how;
    how.flush_inputs = true;
    CHECK(same_bits(reference::quantize(bf16, -0x1p-127f, how, 0), -0.0f));
    CHECK(same_bits(reference::quantize(fp32, 0x1p-127f, how, 0), 0.0f));
    how = {};
    how.flush_outputs = true;
    CHECK(same_bits(reference::quantize(fp16, -0x1p-15f, how, 0), -0.0f));
    CHECK(reference::quantize(fp16, 0x1p-14f, how, 0) == 0x1p-14f);
    CHECK(same_bits(reference::quantize(fp8_e4m3fnuz, -0x1p-9f, how, 0), 0.0f));
}

TEST_CASE("facts of NUMERICS that are easy to get wrong") {
    CHECK(reference::quantize(fp8_e4m3fn, 464, semantics::ml_dtypes, 0) == 448);  // a tie with the missing 480
    CHECK(std::isnan(reference::quantize(fp8_e4m3fn, 464.0001f, semantics::ml_dtypes, 0)));
    CHECK(reference::quantize(e8m0, 1.5f, semantics::ocp, 0) == 2);
    CHECK(reference::quantize(e8m0, 3, semantics::ocp, 0) == 4);
    CHECK(reference::quantize(e8m0, 0x1.8p127f, semantics::ocp, 0) == 0x1p127f);
    CHECK(reference::quantize(e8m0, 0x1p-149f, semantics::ocp, 0) == 0x1p-127f);
    CHECK(std::isnan(reference::quantize(e8m0, 0, semantics::ocp, 0)));
    CHECK(reference::quantize(int32, 0x1p31f, 1, 0, true, semantics::ocp, 0) == 0x1p31f);  // 2147483647 becomes 2^31 as a float
    CHECK(reference::code_of(int32, 0x1p31f, 1, 0, true, semantics::ocp, 0) == 2147483647);
    CHECK(reference::code_of(uint32, 0x1p32f, 1, 0, true, semantics::ocp, 0) == 4294967295);
    CHECK(reference::code_of(int8, 2.5f, 1, 1, true, semantics::ocp, 0) == 3);
    semantics before;
    before.zero_point_before = true;
    CHECK(reference::code_of(int8, 2.5f, 1, 1, true, before, 0) == 4);
    semantics toward_zero;
    toward_zero.rounding = rounding::toward_zero;
    CHECK(reference::quantize(fp16, 1e6f, toward_zero, 0) == 65504);
    CHECK(std::isinf(reference::quantize(fp16, 1e6f, semantics::ocp, 0)));
}
