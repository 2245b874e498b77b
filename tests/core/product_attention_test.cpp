// SPDX-License-Identifier: Apache-2.0
// Products with parts of a packed matrix against the oracle: keys and values of a cache, experts that a router chose; and x rounded on its
// way, and more vectors than are multiplied at once.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "product_oracle.hpp"
#include "product_under_test.hpp"
#include "test_formats.hpp"

namespace {

/// A packed matrix, its numbers, and the scales that go with it.
struct cache {
    made_weights packed;
    std::vector<float> number, scale;
    std::vector<std::int64_t> zero;
    qk::packed_weights weights;
    cache(const qk::format& f, std::size_t rows, std::size_t columns, std::size_t group, std::size_t offset)
        : packed(make_weights(f, rows, columns, weights_kind::ordinary, rows + columns, 0.1f, offset)) {
        qk::codec_parameters p = qk::affine{0.1f};
        const bool with_zero = std::holds_alternative<qk::integer>(f);
        generator g{columns};
        if (!qk::is_block_format(f) && group != 0) {
            const qk::along_axis along{rows, columns, 1}, across{1, rows, columns};
            const std::size_t n = group == 1 ? rows : rows * ((columns - 1) / group + 1);
            for (std::size_t i = 0; i < n; ++i) scale.push_back(static_cast<float>(0.01 + g.uniform()));
            for (std::size_t i = 0; with_zero && i < n; ++i) zero.push_back(g.below(3));
            if (group == 1) p = qk::per_channel{scale, zero, across};
            else p = qk::per_block{scale, zero, along, group};
        }
        number = exact_weights(f, packed.planes(), rows, columns, p);
        weights = {rows, columns, packed.planes(), p};
    }
    cache(const cache&) = delete;
    cache& operator=(const cache&) = delete;
    float at(const qk::packed_rows& v, std::size_t r, std::size_t k) const {
        return number[(v.first_row + r * v.row_step) * weights.columns + v.first_column + k];
    }
};

/// Checks scores and contexts of `vectors` queries with one part of a cache.
void check_part(const std::string& name, const qk::format& f, const cache& c, const qk::packed_rows& v, std::size_t vectors) {
    const std::string what = name + " " + std::to_string(v.rows) + "x" + std::to_string(v.columns) + " from " +
                             std::to_string(v.first_row) + ", " + std::to_string(v.first_column) + ", vectors " + std::to_string(vectors);
    const std::vector<float> query = make_inputs(data::ordinary, vectors * v.columns, 3), mask = make_inputs(data::ordinary, v.rows, 4);
    std::vector<float> scores(vectors * v.rows, -1.0f), expected(vectors * v.rows);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t r = i % v.rows, m = i / v.rows;
        std::vector<float> row(v.columns);
        for (std::size_t k = 0; k < v.columns; ++k) row[k] = c.at(v, r, k);
        const volatile float scaled = exact_sum(row, [&](std::size_t k) { return query[m * v.columns + k]; }) * 0.125f;
        expected[i] = vectors == 1 ? scaled + mask[r] : scaled;
    }
    qk::product_options o{.scale = 0.125f};
    if (vectors == 1) o.plus = mask;
    under_test::dot_rows(f, v, {query, vectors}, {scores}, o);
    CHECK(count_mismatches(expected, expected, scores, what + ", scores") == 0);

    const std::vector<float> by = make_inputs(data::ordinary, vectors * v.rows, 5),
                             column_scale = make_inputs(data::ordinary, v.columns, 6);
    std::vector<float> context(vectors * v.columns, -1.0f), plain(context.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
        const std::size_t k = i % v.columns, m = i / v.columns;
        volatile float s = exact_chain(
            v.rows, 0.0f, [&](std::size_t r) { return by[m * v.rows + r]; }, [&](std::size_t r) { return c.at(v, r, k); });
        s = s * 0.5f;
        s = s * column_scale[k];
        plain[i] = s + 1.0f;
    }
    std::fill(context.begin(), context.end(), 1.0f);
    under_test::weighted_rows(f, v, {by, vectors}, {context}, {.scale = 0.5f, .column_scale = column_scale, .plus = context});
    CHECK(count_mismatches(plain, plain, context, what + ", context") == 0);
}

}  // namespace

TEST_CASE("attention over packed caches: every format, heads as columns and as rows, queries that share a head") {
    for (const test_format& t : all_formats()) {
        const cache by_token(t.format, 19, 3 * 64, 0, 1), by_head(t.format, 2 * 23, 40, 0, 0);
        for (const std::size_t vectors : {1u, 4u}) {
            check_part(t.name, t.format, by_token, {by_token.weights, 17, 64, 0, 1, 64}, vectors);
            check_part(t.name, t.format, by_head, {by_head.weights, 11, 40, 23, 1, 0}, vectors);
        }
    }
}

TEST_CASE("scales by token, by head and by block; steps of rows; columns that begin anywhere") {
    for (const test_format& t : formats_named({"fp8_e4m3fn", "fp8_e5m2", "int8", "int4", "uint4", "fp4_e2m1", "mxfp8_e4m3", "mxfp4",
                                               "nvfp4", "mxint8", "bfp16", "mx6", "bf16", "int:bits=3"})) {
        for (const std::size_t group : {0u, 1u, 16u, 32u, 64u, 128u, 7u}) {
            if (group != 0 && qk::is_block_format(t.format)) continue;
            const cache c(t.format, 40, 2 * 128, group, 0);
            const std::string name = t.name + " scales " + std::to_string(group);
            for (const std::size_t vectors : {1u, 3u, 8u, 17u}) check_part(name, t.format, c, {c.weights, 33, 128, 0, 1, 128}, vectors);
            check_part(name, t.format, c, {c.weights, 13, 96, 1, 3, 32}, 1);
            check_part(name, t.format, c, {c.weights, 13, 96, 1, 3, 16}, 1);
            check_part(name, t.format, c, {c.weights, 5, 67, 2, 1, 5}, 1);
            check_part(name, t.format, c, {c.weights, 5, 200, 2, 2, 8}, 2);
        }
    }
    const cache odd(qk::int4, 9, 75, 0, 0);  // rows that begin within a byte
    check_part("int4, odd", qk::int4, odd, {odd.weights, 4, 33, 1, 2, 3}, 1);
}

TEST_CASE("whole numbers over a part of a matrix") {
    for (const test_format& t : formats_named({"int8", "int4", "mxfp4", "nvfp4", "mxint8"})) {
        const cache c(t.format, 12, 256, 0, 0);
        const std::vector<float> x = make_inputs(data::ordinary, 96, 3);
        std::vector<float> part(5), whole(5);
        // The same codes and scales as a matrix of their own.
        const qk::packed_rows v{c.weights, 5, 96, 1, 2, 64};
        std::vector<float> numbers;
        for (std::size_t i = 0; i < 5 * 96; ++i) numbers.push_back(c.at(v, i / 96, i % 96));
        const qk::along_axis axis{5, 96, 1};
        std::vector<std::byte> packed(qk::packed_bytes(t.format, axis));
        qk::codec_parameters p = c.weights.parameters;
        if (qk::is_block_format(t.format)) p = qk::codec_parameters(axis, qk::affine{0.1f});
        REQUIRE(under_test::encode(t.format, numbers, packed, p) == qk::encode_status::done);
        under_test::dot_rows(t.format, v, {x}, {part}, {.sums = qk::product_sums::integers});
        under_test::product(t.format, {5, 96, qk::planes_of(qk::layout_of(t.format, axis), std::span<const std::byte>(packed)), p}, {x},
                            {whole}, {.sums = qk::product_sums::integers});
        for (std::size_t i = 0; i < 5; ++i) CHECK_MESSAGE(std::fabs(part[i] - whole[i]) <= 1e-5f * std::fabs(whole[i]) + 1e-6f, t.name);
    }
}

TEST_CASE("a cache in pages gives the bits of one in a piece, and so do columns in parts") {
    for (const test_format& t : formats_named({"fp8_e4m3fn", "int8", "mxfp4", "mx9"})) {
        const cache c(t.format, 50, 200, 0, 0);
        const std::vector<float> by = make_inputs(data::ordinary, 3 * 50, 5);
        std::vector<float> whole(3 * 200), pages(3 * 200), parts(3 * 200);
        under_test::weighted_rows(t.format, {c.weights, 50, 200}, {by, 3}, {whole});
        for (std::size_t first = 0; first < 50; first += 21) {
            const std::size_t rows = std::min<std::size_t>(21, 50 - first);
            const std::vector<float> begin = pages;
            under_test::weighted_rows(t.format, {c.weights, rows, 200, first}, {std::span(by).subspan(first), 3, 50}, {pages},
                                      {.begin = begin});
        }
        CHECK(count_mismatches(whole, whole, pages, t.name + " pages") == 0);
        for (std::size_t k = 0; k < 200; k += 72)
            under_test::weighted_rows(t.format, {c.weights, 50, 200}, {by, 3}, {parts}, {.columns = {k, k + 72}});
        CHECK(count_mismatches(whole, whole, parts, t.name + " parts") == 0);
    }
}

TEST_CASE("numbers of attention in memory of 16 bits, with steps") {
    const cache c(qk::int8, 20, 64, 1, 0);
    const qk::packed_rows v{c.weights, 20, 64};
    std::vector<qk::bfloat16> by(2 * 20 * 3);
    const std::vector<float> numbers = make_inputs(data::ordinary, by.size(), 5);
    for (std::size_t i = 0; i < by.size(); ++i) by[i] = qk::narrow<qk::bfloat16>(numbers[i]);
    std::vector<qk::float16> y(2 * 64 * 2, qk::narrow<qk::float16>(7.0f));
    under_test::weighted_rows(qk::int8, v, {by, 2, 60, 3}, {y, 128, 2});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t m = i / 128, k = i % 128 / 2;
        const float s = exact_chain(
            20, 0.0f, [&](std::size_t r) { return qk::widen(by[m * 60 + r * 3]); }, [&](std::size_t r) { return c.at(v, r, k); });
        wrong += !same_bits(qk::widen(y[i]), i % 2 == 0 ? qk::widen(qk::narrow<qk::float16>(s)) : 7.0f);
    }
    CHECK(wrong == 0);
}

TEST_CASE("experts that a router chose, in one call") {
    for (const test_format& t :
         formats_named({"mxfp4", "nvfp:block=16,element=fp4_e2m1,scale=ue4m3,tensor=0", "int4", "fp8_e4m3fn", "bfp16"})) {
        const std::size_t experts = 5, rows = 21, columns = 96, tokens = 7;
        const cache c(t.format, experts * rows, columns, qk::is_block_format(t.format) ? 0 : 1, 0);
        const std::vector<float> x = make_inputs(data::ordinary, tokens * columns, 2),
                                 bias = make_inputs(data::ordinary, experts * rows, 3),
                                 row_scale = make_inputs(data::ordinary, experts * rows, 4),
                                 scale = make_inputs(data::ordinary, experts, 6);
        std::vector<qk::expert_choice> chosen;  // sorted by expert for the most part; one `to` several times
        for (std::uint32_t e = 0; e < experts; ++e)
            for (std::uint32_t m = 0; m < tokens; ++m)
                if ((m * 3 + e) % 4 != 0) chosen.push_back({e, m, m, 0.1f * static_cast<float>(m + 1)});
        chosen.push_back({1, 2, 8, 1});
        const std::vector<float> before = make_inputs(data::ordinary, 9 * rows, 8);
        std::vector<float> y = before, expected = before;
        for (const qk::expert_choice& one : chosen) {
            for (std::size_t r = 3; r < 20; ++r) {
                const std::size_t of = one.expert * rows + r;
                volatile float s =
                    exact_sum(std::span(c.number).subspan(of * columns, columns), [&](std::size_t k) { return x[one.from * columns + k]; });
                s = s * 0.7f;
                s = s * scale[one.expert];
                s = s * row_scale[of];
                s = s + bias[of];
                s = qk::detail::activated(qk::activation::silu, s);
                s = s * one.weight;
                s = s + expected[one.to * rows + r];
                expected[one.to * rows + r] = s;
            }
        }
        under_test::grouped_product(
            t.format, c.weights, {.rows = rows, .chosen = chosen, .scale = scale}, {x, tokens}, {y},
            {.scale = 0.7f, .row_scale = row_scale, .bias = bias, .act = qk::activation::silu, .plus = y, .rows = {3, 20}});
        CHECK(count_mismatches(expected, expected, y, t.name + " experts") == 0);
    }
}

namespace {

/// x rounded to a format on its way is x that fake_quantize rounded before.
template <auto Format>
void check_rounded(const char* name) {
    for (const std::size_t columns : {17u, 300u, 1000u, 8250u}) {
        for (const std::size_t vectors : {1u, 5u}) {
            const cache c(qk::mxfp4, 6, columns, 0, 0);
            const std::vector<float> x = make_inputs(data::ordinary, vectors * columns, 4);
            std::vector<float> rounded(x.size()), y(vectors * 6), expected(vectors * 6);
            for (std::size_t m = 0; m < vectors; ++m)
                under_test::fake_quantize(Format, std::span(x).subspan(m * columns, columns),
                                          std::span(rounded).subspan(m * columns, columns));
            under_test::product(qk::mxfp4, c.weights, {rounded, vectors}, {expected});
            under_test::product(qk::mxfp4, c.weights, {x, vectors}, {y}, {.round = under_test::rounded_to<Format>()});
            CHECK(count_mismatches(expected, expected, y, name) == 0);
        }
    }
}

}  // namespace

TEST_CASE("x is rounded to MX and block floats on its way") {
    check_rounded<qk::mxfp8_e4m3>("mxfp8_e4m3");
    check_rounded<qk::bfp16>("bfp16");
    check_rounded<qk::microscaling{.block_size = 64, .integer_bits = 8}>("mx:element=int8,block=64");
}

TEST_CASE("more vectors than are multiplied at once") {
    for (const test_format& t : formats_named({"mxfp4", "int8"})) {
        for (const std::size_t vectors : {6u, 7u, 31u, 64u, 65u, 131u}) {
            for (const std::size_t columns : {60u, 300u}) {
                const cache c(t.format, 13, columns, 0, 0);
                const std::vector<float> x = make_inputs(data::ordinary, vectors * columns, 4);
                std::vector<float> y(vectors * 13), expected(vectors * 13);
                for (std::size_t i = 0; i < y.size(); ++i)
                    expected[i] = exact_sum(std::span(c.number).subspan(i % 13 * columns, columns),
                                            [&](std::size_t k) { return x[i / 13 * columns + k]; });
                under_test::product(t.format, c.weights, {x, vectors}, {y});
                CHECK(count_mismatches(expected, expected, y, t.name + " vectors " + std::to_string(vectors)) == 0);
            }
        }
    }
}
