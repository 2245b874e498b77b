// SPDX-License-Identifier: Apache-2.0
// The stimuli hold what tells mistakes apart: the bins that a format must have are counted here by other means, and every bin is hit.
#include "qk/compare/bins.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "expected_causes.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/parse.hpp"

namespace {

using qk::compare::bin;
using qk::compare::bin_kind;
using qk::compare::conversion;
using qk::compare::converter_bins;
using qk::compare::dot_bins;
using qk::compare::dot_case;
using qk::compare::dot_task;

/// Returns the conversion of one case.
conversion one_case(const qk::format& f) {
    conversion c;
    c.format = f;
    c.axis = 1;
    const auto size = std::max<std::size_t>(1, static_cast<std::size_t>(block_size(f)));
    c.blocks = {1, size, 1};
    if (has_floating_scales(f)) c.given = conversion::granularity::tensor, c.scale = {1.0f};
    return c;
}
std::size_t empty_bins(const std::vector<bin>& bins) {
    std::size_t n = 0;
    for (const bin& b : bins) {
        if (b.hits == 0 && ++n <= 3) MESSAGE(name_of(b));
    }
    return n;
}
bool has(const std::vector<bin>& bins, bin_kind kind, int a, int b = 0, int c = 0, int d = 0) {
    return std::any_of(bins.begin(), bins.end(),
                       [&](const bin& x) { return x.kind == kind && x.a == a && x.b == b && x.c == c && x.d == d; });
}

TEST_CASE("every bin of every format is hit by its cases, whatever the seed, and by its own stimulus") {
    for (const auto& [name, f, about] : qk::catalogue) {
        CAPTURE(name);
        const conversion c = one_case(f);
        converter_bins bins(c), single(c);
        bins.add(qk::compare::converter_cases(c, 7));
        CHECK(empty_bins(bins.bins()) == 0);
        CHECK(bins.bins().size() > 40);
        const std::size_t step = std::max<std::size_t>(1, bins.bins().size() / 64);
        for (std::size_t k = 0; k < bins.bins().size(); k += step) {
            single.add(single.stimulus(k));
            CHECK(single.bins()[k].hits != 0);
        }
    }
}

/// Which sticky bits a shift has, by the shape of the significand alone: `top` is its leading bit.
void expect_every_sticky_bit(const std::vector<bin>& bins, int shift, int top, bool subnormal) {
    CAPTURE(shift);
    for (int sign = 0; sign < 2; ++sign) {
        for (int odd = 0; odd < 2; ++odd) {
            const int kept_bits = top + 1 - shift;
            if (kept_bits <= 0 && odd == 1) continue;  // nothing is kept: 0 is even
            if (kept_bits == 1 && odd == 0) continue;  // the leading bit is kept alone
            const auto part = [&](int pattern) { return 4 * pattern + 2 * int{subnormal} + odd; };
            if (kept_bits >= 0) CHECK(has(bins, bin_kind::rounding, shift, part(0), 0, sign));
            for (int bit = 0; bit + 1 < shift; ++bit) {
                CAPTURE(bit);
                if (kept_bits >= 0) CHECK(has(bins, bin_kind::rounding, shift, part(1), bit, sign));  // above a tie
                if (kept_bits > 0) CHECK(has(bins, bin_kind::rounding, shift, part(3), bit, sign));   // alone
                if (kept_bits > 0) CHECK(has(bins, bin_kind::rounding, shift, part(2), bit, sign));   // below a tie
            }
        }
    }
}

TEST_CASE("for every shift, of normal and of subnormal results, each sticky bit stands alone") {
    struct row {
        qk::floating f;
        int mantissa;
    };
    for (const auto& [f, mantissa] : {row{qk::fp8_e5m2, 2}, row{qk::fp8_e4m3fn, 3}, row{qk::fp16, 10}, row{qk::fp4_e2m1, 1}}) {
        const converter_bins bins(one_case(f));
        expect_every_sticky_bit(bins.bins(), 23 - mantissa, 23, false);
        for (int shift = 24 - mantissa; shift <= 24; ++shift) expect_every_sticky_bit(bins.bins(), shift, 23, true);
    }
    const converter_bins bf16(one_case(qk::bf16));
    expect_every_sticky_bit(bf16.bins(), 16, 23, false);
    for (const char* name : {"mxfp4", "mxfp8_e5m2", "mxfp8_e4m3"}) {
        CAPTURE(name);
        const qk::format f = *qk::parse_format(name);
        const int mantissa = qk::element_float(f)->mantissa_bits;
        const converter_bins bins(one_case(f));
        expect_every_sticky_bit(bins.bins(), 23 - mantissa, 23, false);
        for (int shift = 24 - mantissa; shift <= 24; ++shift) expect_every_sticky_bit(bins.bins(), shift, 23, true);
    }
}

TEST_CASE("blocks have the largest value, NaN and Inf in each lane; decoders every code under every scale") {
    for (const char* name : {"mxfp4", "mxint8", "bfp16", "nvfp4"}) {
        CAPTURE(name);
        const qk::format f = *qk::parse_format(name);
        const conversion c = one_case(f);
        const converter_bins bins(c);
        for (int lane = 0; lane < block_size(f); ++lane) {
            for (int sign = 0; sign < 2; ++sign) {
                CHECK(has(bins.bins(), bin_kind::largest_at, lane, 0, 0, sign));
                CHECK(has(bins.bins(), bin_kind::infinity_at, lane, 0, 0, sign));
            }
            CHECK(has(bins.bins(), bin_kind::nan_at, lane));
        }
        const qk::compare::decoder_bins codes(c);
        for (int code = 0; code < 1 << qk::scale_width(f); ++code) CHECK(has(codes.bins(), bin_kind::scale_code, code));
        for (int lane = 0; lane < block_size(f); ++lane)
            for (int code = 0; code < 1 << qk::element_width(f); ++code) CHECK(has(codes.bins(), bin_kind::code_at, lane, code));
    }
}

TEST_CASE("level 1 of a float format has less than a million cases, and every kind of NaN") {
    for (const qk::floating f :
         {qk::fp16, qk::bf16, qk::floating{8, 10, 127, qk::specials::ieee}, qk::floating{8, 15, 127, qk::specials::ieee}}) {
        const std::vector<float> x = qk::compare::converter_cases(one_case(f), 0);
        CHECK(x.size() < 1'000'000);
        std::set<std::uint32_t> words;
        for (const float v : x) words.insert(std::bit_cast<std::uint32_t>(v));
        for (const std::uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u}) CHECK(words.count(nan) == 1);
        CHECK((f != qk::bf16 || words.count(0xff800100u) + words.count(0xff808000u) >= 1));
    }
}

dot_task task_of(const qk::device& d) { return {.a = d.a, .b = d.b, .k = 2 * static_cast<std::size_t>(d.k), .c = d.accumulator.addend}; }

TEST_CASE("dots: every bin of every device is hit, and has a stimulus") {
    std::size_t devices = 0;
    qk::devices::each([&](const qk::device& d) {
        if (++devices % 8 != 1) return;
        CAPTURE(std::string(d.name));
        dot_bins bins(task_of(d), d.accumulator);
        const std::vector<dot_case> corners = qk::compare::dot_corners(task_of(d), qk::compare::kept_bits(d.accumulator));
        for (const dot_case& c : corners) bins.add(c);
        CHECK(empty_bins(bins.bins()) == 0);
        CHECK(bins.bins().size() > 20);
        dot_bins single(task_of(d), d.accumulator);
        for (std::size_t k = 0; k < single.bins().size(); k += 31) {
            single.add(single.stimulus(k));
            CHECK(single.bins()[k].hits != 0);
        }
    });
    CHECK(devices > 100);
}

TEST_CASE("dots: distances of every place, NaN that meets zeros alone, the lowest codes, wraps") {
    const dot_task task{.a = qk::fp8_e4m3fn, .b = qk::fp8_e4m3fn, .k = 64};
    const dot_bins bins(task, *qk::parse_accumulator("sum=exact"));
    for (int place = 0; place < 64; ++place)
        for (int distance = 0; distance <= 25; ++distance) {
            CAPTURE(place);
            CAPTURE(distance);
            CHECK(has(bins.bins(), bin_kind::distance, place, distance));
        }
    for (int distance = -25; distance <= 25; ++distance) CHECK(has(bins.bins(), bin_kind::addend, distance));
    for (int side = 1; side <= 2; ++side) CHECK(has(bins.bins(), bin_kind::special, 0, side));
    for (int bits = 1; bits <= 17; ++bits) CHECK(has(bins.bins(), bin_kind::cancels, bits));
    for (int beside = 0; beside < 3; ++beside)
        for (int odd = 0; odd < 2; ++odd)
            for (int sign = 0; sign < 2; ++sign) CHECK(has(bins.bins(), bin_kind::sum_tie, beside, odd, 0, sign));
    for (int carry = 1; carry <= 6; ++carry) CHECK(has(bins.bins(), bin_kind::carries, carry));
    CHECK(has(bins.bins(), bin_kind::ends, 0, 0));
    const dot_task whole{.a = qk::int8, .b = qk::int8, .k = 64};
    const dot_bins wholes(whole, *qk::parse_accumulator("sum=integer"));
    for (int bits = 15; bits <= 21; ++bits) CHECK(has(wholes.bins(), bin_kind::whole_sum, bits));
    CHECK(has(wholes.bins(), bin_kind::ends, 0, 0));
}

}  // namespace
