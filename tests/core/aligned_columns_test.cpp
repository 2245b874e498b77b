// SPDX-License-Identifier: Apache-2.0
// Tests that sums in lanes of columns have the bits of matrix_multiply_add, for every device that aligned_columns supports and for others.
#include <doctest/doctest.h>

#include <random>

#include "qk/dot.hpp"
#include "qk/dot/aligned_columns.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"

namespace {

using qk::detail::element_tile;

std::uint32_t made_code(const qk::format& f, int kind, std::size_t i, std::mt19937& random) {
    const int width = qk::detail::with_family(f, [](const auto& g) { return qk::detail::element_width(g); });
    const auto any = static_cast<std::uint32_t>(random()) & qk::detail::low_bits(width);
    if (kind == 0) return any;
    if (kind == 1 && i % 5 != 0) return 0;
    if (kind == 2 && !qk::is_integer_format(f)) {  // two neighbouring exponents, both signs: cancellation
        const auto& g = std::get<qk::floating>(f);
        return (any & ~(((1u << g.exponent_bits) - 2) << g.mantissa_bits)) | static_cast<std::uint32_t>(g.bias & ~1) << g.mantissa_bits;
    }
    if (kind == 3) return any & ~(qk::detail::low_bits(width) >> 1 & ~qk::detail::low_bits(width / 3));  // small magnitudes
    return any;
}

/// Appends n and exponent of each element. Returns false if an element is NaN or Inf.
bool take(const qk::format& f, const qk::accumulator& how, const std::vector<std::uint32_t>& codes, std::vector<std::int16_t>& n,
          std::vector<std::int16_t>& e) {
    bool finite = true;
    qk::detail::with_family(f, [&](const auto& g) {
        if constexpr (!qk::detail::has_blocks<std::remove_cvref_t<decltype(g)>>) {
            element_tile t;
            for (std::size_t i = 0; i < codes.size(); ++i) {
                qk::detail::take_codes(g, &codes[i], 1, {how.operand_bits, how.flush_inputs, 0}, t);
                finite = finite && t.exponent[0] < qk::detail::first_special;
                n.push_back(static_cast<std::int16_t>(t.n[0]));
                e.push_back(static_cast<std::int16_t>(t.exponent[0]));
            }
        }
    });
    return finite;
}

std::vector<std::byte> packed(const qk::format& f, const std::vector<std::uint32_t>& codes) {
    const int width = qk::detail::with_family(f, [](const auto& g) { return qk::detail::element_width(g); });
    std::vector<std::byte> plane((codes.size() * static_cast<std::size_t>(width) + 7) / 8);
    for (std::size_t i = 0; i < codes.size(); ++i) qk::detail::put_code(plane, i, width, codes[i]);
    return plane;
}

/// Compares the sums of one shape, in lanes and by matrix_multiply_add. Returns how many of them the lanes computed.
std::size_t compare(const std::string& name, const qk::format& fa, const qk::format& fb, const qk::accumulator& how, std::size_t k,
                    std::mt19937& random) {
    constexpr std::size_t lanes = 16, rows = 4;
    const auto ka = qk::detail::with_family(fa, [](const auto& g) { return qk::detail::kind_of(g); });
    const auto kb = qk::detail::with_family(fb, [](const auto& g) { return qk::detail::kind_of(g); });
    std::vector<std::uint32_t> a(rows * k), b(k * lanes);
    const int kind = static_cast<int>(random() % 4);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = made_code(fa, kind, i, random);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = made_code(fb, kind == 1 ? 0 : kind, i, random);
    std::vector<std::int16_t> an, ae, bn, be;
    if (!take(fa, how, a, an, ae) || !take(fb, how, b, bn, be)) return 0;
    std::vector<std::uint64_t> expected(rows * lanes);
    qk::matrix_multiply_add(fa, fb, how, {rows, lanes, k}, {{packed(fa, a), {}, {}, {}}, 0}, {{packed(fb, b), {}, {}, {}}, 0}, {},
                            expected);
    const std::size_t chunk = std::size_t{1} << (31 - qk::detail::aligned_bits(how, ka, kb));
    std::size_t done = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        std::vector<std::int32_t> row(k), exponent(k);
        for (std::size_t i = 0; i < k; ++i) {
            row[i] = an[r * k + i] * (1 << (how.align - ka.fraction - kb.fraction));
            exponent[i] = ae[r * k + i];
        }
        std::uint32_t codes[lanes];
        const bool down = how.cut == qk::rounding::down;
        const auto sums = down ? &qk::detail::aligned_columns<lanes, true> : &qk::detail::aligned_columns<lanes, false>;
        if (!sums(how, k, row.data(), exponent.data(), {bn.data(), be.data()}, lanes, chunk, codes)) continue;
        for (std::size_t j = 0; j < lanes; ++j) {
            INFO(name, " k ", k, " kind ", kind, " row ", r, " column ", j);
            REQUIRE(qk::detail::stored_code(how.result, codes[j]) == expected[r * lanes + j]);
            ++done;
        }
    }
    return done;
}

/// Compares sums of many shapes; the lanes must compute more than 500 of them.
void check(const std::string& name, const qk::format& fa, const qk::format& fb, const qk::accumulator& how) {
    std::mt19937 random(static_cast<unsigned>(name.size()));
    std::size_t done = 0;
    for (const std::size_t k : {1, 2, 3, 15, 16, 17, 32, 33, 64, 100, 147, 288}) {
        for (int repeat = 0; repeat < 12; ++repeat) done += compare(name, fa, fb, how, k, random);
    }
    INFO(name);
    CHECK(done > 500);
}

}  // namespace

TEST_CASE("devices that align have the same bits in lanes of columns") {
    std::size_t served = 0;
    qk::devices::each([&](const qk::device& d) {
        if (qk::is_block_format(d.a) || qk::is_block_format(d.b) || d.accumulator.sum != qk::summation::aligned) return;
        const auto ka = qk::detail::with_family(d.a, [](const auto& g) { return qk::detail::kind_of(g); });
        const auto kb = qk::detail::with_family(d.b, [](const auto& g) { return qk::detail::kind_of(g); });
        if (!qk::detail::serves_aligned_columns(d.accumulator, ka, kb)) return;
        ++served;
        check(std::string(d.name), d.a, d.b, d.accumulator);
    });
    MESSAGE(served, " devices go by columns");
    CHECK(served >= 40);
}

TEST_CASE("so have other accumulators and formats") {
    const struct {
        const char *how, *a, *b;
    } cases[] = {{"groups=16,align=25,round=toward-zero", "fp8_e4m3fn", "fp8_e5m2"},
                 {"groups=16,align=25,cut=down,round=toward-zero", "fp8_e4m3fn", "fp8_e4m3fn"},
                 {"groups=8,align=20", "fp8_e5m2", "fp8_e5m2"},
                 {"align=24,round=half-away", "fp4_e2m1", "fp6_e3m2"},
                 {"groups=4,align=26,result=fp16,round=up", "fp8_e4m3fn", "fp4_e2m1"},
                 {"groups=32,align=13,partial=e8m13", "fp8_e4m3fnuz", "fp8_e5m2fnuz"},
                 {"groups=16,align=25,zero=positive", "fp16", "fp16"},
                 {"groups=16,align=24,overflow=saturate", "fp16", "fp16"},
                 {"groups=16,align=25", "int8", "int8"},
                 {"groups=64,align=22,round=toward-zero", "uint8", "int4"}};
    for (const auto& c : cases) {
        const auto how = qk::parse_accumulator(c.how);
        REQUIRE_MESSAGE(how, how.error.view());
        check(c.how, *qk::parse_format(c.a), *qk::parse_format(c.b), *how);
    }
}
