// SPDX-License-Identifier: Apache-2.0
// ggml's blocks as formats: decode against the dequantizers of qk::systems, which share no line with it and give what ggml gives
// (system_rules_test), and products against their order in scalar code over those numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../core/compare_bits.hpp"
#include "../core/product_oracle.hpp"
#include "../core/product_under_test.hpp"
#include "qk/formats/parse.hpp"
#include "qk/layout/ggml.hpp"
#include "qk/systems/ggml.hpp"

namespace {

const qk::systems::ggml::block_type& type_of(const qk::ggml::named_blocks& f) {
    const auto* type = qk::systems::ggml::find(f.name);
    REQUIRE(type != nullptr);
    return *type;
}

/// Where a block's float16 numbers lie.
std::vector<std::size_t> scales_of(const qk::systems::ggml::block_type& t) {
    const std::string name(t.name);
    if (name == "q2_K") return {80, 82};
    if (name == "q3_K") return {108};
    if (name == "q4_K" || name == "q5_K" || name == "q4_1" || name == "q5_1") return {0, 2};
    if (name == "q6_K") return {208};
    if (name == "tq1_0") return {52};
    if (name == "tq2_0") return {64};
    if (name == "mxfp4" || name == "nvfp4") return {};
    return {0};
}

enum class bits { any, finite };

/// Returns blocks of random bits; `finite`: their scales are numbers that products can take.
std::vector<std::byte> random_blocks(const qk::systems::ggml::block_type& t, std::size_t values, bits kind, std::uint64_t seed) {
    generator g{seed};
    std::vector<std::byte> blocks(t.bytes_of(values));
    for (std::byte& b : blocks) b = static_cast<std::byte>(g.word() >> 24);
    if (kind == bits::any) return blocks;
    const bool powers = t.name == "mxfp4";
    for (std::size_t at = 0; at < blocks.size(); at += t.bytes) {
        for (const std::size_t scale : scales_of(t)) {
            const auto h = static_cast<std::uint16_t>((g.word() & 0x83ff) | (g.below(9) + 8) << 10);
            std::memcpy(blocks.data() + at + scale, &h, 2);
        }
        if (powers) blocks[at] = static_cast<std::byte>(120 + g.below(9));
    }
    return blocks;
}

/// Blocks off an aligned address, and not a byte too long, with the numbers in them.
struct made_blocks {
    std::vector<std::byte> bytes;
    std::size_t offset;
    std::vector<float> values;

    made_blocks(const qk::systems::ggml::block_type& t, std::size_t n, bits kind, std::uint64_t seed) : offset(seed % 3), values(n) {
        const std::vector<std::byte> blocks = random_blocks(t, n, kind, seed);
        t.dequantize(blocks, values);
        bytes.resize(offset);
        bytes.insert(bytes.end(), blocks.begin(), blocks.end());
    }
    std::span<const std::byte> blocks() const { return std::span(bytes).subspan(offset); }
    qk::packed_weights matrix(std::size_t rows, std::size_t columns) const { return {rows, columns, {blocks(), {}, {}, {}}}; }
};

template <class Expected>
void check(const std::vector<float>& y, const qk::ggml::named_blocks& f, const std::string& what, const Expected& expected) {
    std::vector<float> wanted(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) wanted[i] = expected(i);
    CHECK(count_mismatches(wanted, wanted, y, std::string(f.name) + ", " + what) == 0);
}

}  // namespace

TEST_CASE("names, sizes and what cannot be") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        const std::string text = "ggml." + std::string(f.name);
        const auto parsed = qk::parse_format(text);
        REQUIRE(parsed);
        CHECK(*parsed == qk::format(f.format));
        CHECK(qk::to_text(*parsed) == text);
        CHECK(qk::check(*parsed).empty());
        CHECK(qk::is_read_only(*parsed));
        CHECK(static_cast<std::size_t>(qk::block_size(*parsed)) == t.values);
        CHECK(qk::packed_bytes(*parsed, qk::along_axis{3, 2 * t.values, 1}) == 6 * t.bytes);
        CHECK(qk::bits_per_value(*parsed) == 8.0 * static_cast<double>(t.bytes) / static_cast<double>(t.values));
        CHECK(!qk::encodable(*parsed, qk::semantics::ocp));
        CHECK(qk::parse_rounded_format(text).error.view().find("ggml's blocks are only read") != std::string_view::npos);
    }
    CHECK(*qk::parse_format("ggml.Q4_K") == qk::format(qk::ggml::q4_K));
    CHECK(qk::parse_format("ggml.q4").error.view().find("ggml's blocks are q4_0, q4_1") != std::string_view::npos);
    CHECK(!qk::check(qk::ggml_blocks{qk::ggml_type::q8_1}).empty());
    std::vector<std::byte> packed(144);
    CHECK(under_test::encode(qk::ggml::q4_K, std::vector<float>(256), packed) == qk::encode_status::no_code);
}

TEST_CASE("decode gives what ggml's dequantizers give, of any bits") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        for (const bits kind : {bits::any, bits::finite}) {
            const std::size_t columns = 3 * t.values, rows = 700;
            const made_blocks w(t, rows * columns, kind, 11 + static_cast<std::uint64_t>(kind));
            std::vector<float> y(rows * columns, -1.0f);
            under_test::decode(f.format, w.blocks(), y, qk::along_axis{rows, columns, 1});
            CHECK(count_mismatches(w.values, w.values, y, std::string(f.name)) == 0);
            y.assign(y.size(), -1.0f);
            under_test::decode(f.format, w.blocks(), y);
            CHECK(count_mismatches(w.values, w.values, y, std::string(f.name) + ", one row") == 0);
            std::vector<qk::float16> halves(y.size());
            under_test::decode(f.format, w.blocks(), halves, qk::along_axis{rows, columns, 1});
            for (std::size_t i = 0; i < y.size(); ++i) {
                const float exact = qk::widen(qk::narrow<qk::float16>(w.values[i])), own = qk::widen(halves[i]);
                if (!same_bits(exact, own)) FAIL(t.name << " in float16, number " << i << ": " << own << " for " << exact);
            }
        }
    }
}

TEST_CASE("products have the order of every other format") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        for (const std::size_t rows : {1u, 3u, 22u}) {
            for (const std::size_t blocks : {1u, 3u, 8448u / static_cast<unsigned>(t.values)}) {
                if (rows > 3 && blocks > 3) continue;
                const std::size_t columns = blocks * t.values, vectors = 3;
                const made_blocks w(t, rows * columns, bits::finite, rows + blocks);
                const std::vector<float> x = make_inputs(data::ordinary, vectors * columns, columns);
                const auto row = [&](std::size_t r) { return std::span(w.values).subspan(r * columns, columns); };
                const auto exact = [&](std::size_t i) {
                    return exact_sum(row(i % rows), [&](std::size_t k) { return x[i / rows * columns + k]; });
                };
                const qk::packed_weights m = w.matrix(rows, columns);
                std::vector<float> one(rows, -1.0f), y(vectors * rows, -1.0f);
                under_test::product(f.format, m, std::span(x).first(columns), one);
                check(one, f, "one vector", exact);
                under_test::product(f.format, m, {x, vectors}, y);
                check(y, f, "three vectors", exact);
                under_test::product(f.format, m, {x, vectors}, y, {.sums = qk::product_sums::chains});
                check(y, f, "chains", [&](std::size_t i) {
                    return exact_chain(
                        columns, 0, [&](std::size_t k) { return x[i / rows * columns + k]; },
                        [&](std::size_t k) { return row(i % rows)[k]; });
                });
            }
        }
    }
}

namespace {

/// The smallest and the largest whole number of a type, as ggml's own products take them.
struct whole_range {
    std::string_view name;
    int lowest, highest;
    std::size_t run, together;  ///< weights under one factor; those to which one number is added
};
constexpr whole_range whole_ranges[] = {{"q4_0", -8, 7, 32, 0},    {"q4_1", 0, 15, 32, 32},      {"q5_0", -16, 15, 32, 0},
                                        {"q5_1", 0, 31, 32, 32},   {"q8_0", -128, 127, 32, 0},   {"q2_K", 0, 3, 16, 16},
                                        {"q3_K", -4, 3, 16, 0},    {"q4_K", 0, 15, 32, 32},      {"q5_K", 0, 31, 32, 32},
                                        {"q6_K", -32, 31, 16, 0},  {"iq4_nl", -127, 113, 32, 0}, {"iq4_xs", -127, 113, 32, 0},
                                        {"tq1_0", -1, 1, 256, 0},  {"tq2_0", -1, 2, 256, 0},     {"mxfp4", -12, 12, 32, 0},
                                        {"nvfp4", -12, 12, 16, 0}, {"q1_0", -1, 1, 128, 0},      {"q2_0", -1, 2, 64, 0}};

/// The whole numbers of blocks, their factors and what is added to them, for each weight.
struct whole_weights {
    std::vector<int> number;
    std::vector<float> factor, added;

    whole_weights(qk::ggml_type type, std::span<const std::byte> blocks) {
        const bool known = qk::with_ggml_type(type, [&]<qk::ggml_type Type>() {
            using parts = qk::layout_parts::block_parts<Type>;
            const std::size_t bytes = qk::facts_of(Type).bytes;
            for (std::size_t at = 0; at < blocks.size(); at += bytes) {
                const auto* const block = reinterpret_cast<const std::uint8_t*>(blocks.data() + at);
                float factors[parts::runs], behind[parts::runs] = {};
                parts::read(block, factors, behind);
                for (unsigned i = 0; i < parts::values; ++i) {
                    number.push_back(parts::number(qk::ggml_code(Type, block, i)));
                    factor.push_back(factors[i / parts::run]), added.push_back(behind[i / parts::run]);
                }
            }
        });
        REQUIRE(known);
    }
};

}  // namespace

TEST_CASE("blocks are whole numbers, factors and constants, whose values are those of the dequantizers") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        const whole_range& range =
            *std::find_if(std::begin(whole_ranges), std::end(whole_ranges), [&](auto& r) { return r.name == f.name; });
        const made_blocks w(t, 300 * t.values, bits::finite, 17);
        const whole_weights whole(f.format.type, w.blocks());
        const auto [lowest, highest] = std::minmax_element(whole.number.begin(), whole.number.end());
        CHECK(*lowest == range.lowest);
        CHECK(*highest == range.highest);
        std::vector<float> values(w.values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = whole.factor[i] * static_cast<float>(whole.number[i]);
            if (range.together != 0) values[i] = values[i] + whole.added[i];
            if (whole.factor[i] != whole.factor[i / range.run * range.run]) FAIL(f.name << ": a factor of fewer weights");
        }
        CHECK(count_mismatches(w.values, w.values, values, std::string(f.name)) == 0);
    }
}

TEST_CASE("products of whole numbers have the order of every other format") {
    for (const auto& f : qk::ggml::named) {
        CHECK(qk::takes_integers(f.format));
        const auto& t = type_of(f);
        const whole_range& range =
            *std::find_if(std::begin(whole_ranges), std::end(whole_ranges), [&](auto& r) { return r.name == f.name; });
        for (const std::size_t rows : {1u, 3u, 22u}) {
            for (const std::size_t blocks : {1u, 3u, 8448u / static_cast<unsigned>(t.values)}) {
                if (rows > 3 && blocks > 3) continue;
                const std::size_t columns = blocks * t.values, vectors = 9;
                const made_blocks w(t, rows * columns, bits::finite, rows + blocks);
                const whole_weights whole(f.format.type, w.blocks());
                for (const data kind : {data::ordinary, data::sparse, data::special}) {
                    const std::vector<float> x = make_inputs(kind, vectors * columns, columns);
                    const auto exact_part = [&](std::size_t row, std::span<const float> own, std::size_t first) {
                        const std::size_t at = row * columns + first;
                        return exact_integer_sum(
                            own, 1, [&](std::size_t k) { return static_cast<double>(whole.number[at + k]); },
                            [&](std::size_t k) { return whole.factor[at + k]; }, range.together,
                            [&](std::size_t k) { return whole.added[at + k]; });
                    };
                    const auto exact = [&](std::size_t i) {
                        return exact_part(i % rows, std::span(x).subspan(i / rows * columns, columns), 0);
                    };
                    const qk::packed_weights m = w.matrix(rows, columns);
                    const qk::product_options whole_numbers{.sums = qk::product_sums::integers};
                    for (const std::size_t count : {1u, 2u, 3u, 4u, 9u}) {
                        std::vector<float> y(count * rows, -1.0f);
                        under_test::product(f.format, m, {std::span(x).first(count * columns), count}, y, whole_numbers);
                        check(y, f, std::to_string(count) + " vectors in whole numbers", exact);
                    }
                    std::vector<std::int8_t> q(qk::padded_columns(columns));
                    std::vector<float> scale(q.size() / 32), y(rows, -1.0f);
                    under_test::round_vectors(std::span(x).first(columns), columns, q, scale);
                    under_test::product(f.format, m, qk::rounded_vectors{q, scale}, y, whole_numbers);
                    check(y, f, "a rounded vector", exact);
                    for (const std::size_t first : {std::size_t{0}, std::size_t{32}, t.values}) {
                        for (const std::size_t n : {std::size_t{7}, std::size_t{32}, t.values + 40}) {
                            if (first + n > columns) continue;
                            under_test::dot_rows(f.format, {m, rows, n, 0, 1, first}, std::span(x).first(n), y, whole_numbers);
                            check(y, f, "a part of rows in whole numbers",
                                  [&](std::size_t r) { return exact_part(r, std::span(x).first(n), first); });
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("any bits in a product: NaN and Inf in scales, in x") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        const std::size_t rows = 50, columns = 2 * t.values;
        const made_blocks w(t, rows * columns, bits::any, 3);
        for (const data kind : {data::ordinary, data::special}) {
            const std::vector<float> x = make_inputs(kind, columns, 5);
            std::vector<float> y(rows, -1.0f);
            under_test::product(f.format, w.matrix(rows, columns), x, y);
            check(y, f, "any bits", [&](std::size_t r) {
                return exact_sum(std::span(w.values).subspan(r * columns, columns), [&](std::size_t k) { return x[k]; });
            });
        }
    }
}

TEST_CASE("parts of rows, every second row, and experts") {
    for (const auto& f : qk::ggml::named) {
        const auto& t = type_of(f);
        const std::size_t rows = 12, columns = 4 * t.values;
        const made_blocks w(t, rows * columns, bits::finite, 8);
        const qk::packed_weights m = w.matrix(rows, columns);
        const auto weight = [&](std::size_t r, std::size_t k) { return w.values[r * columns + k]; };
        for (const std::size_t first : {std::size_t{0}, t.values, t.values / 2, std::size_t{5}}) {
            for (const std::size_t count : {t.values, 2 * t.values, t.values + 24, std::size_t{7}}) {
                const qk::packed_rows part{m, 5, count, 1, 2, first};
                const std::vector<float> x = make_inputs(data::ordinary, count, first + count), by = make_inputs(data::ordinary, 5, first);
                std::vector<float> y(5, -1.0f), context(count, -1.0f);
                under_test::dot_rows(f.format, part, x, y);
                check(y, f, "a part of rows", [&](std::size_t r) {
                    std::vector<float> own(count);
                    for (std::size_t k = 0; k < count; ++k) own[k] = weight(1 + 2 * r, first + k);
                    return exact_sum(own, [&](std::size_t k) { return x[k]; });
                });
                under_test::weighted_rows(f.format, part, by, context);
                check(context, f, "weighted rows", [&](std::size_t c) {
                    return exact_chain(
                        5, 0, [&](std::size_t r) { return by[r]; }, [&](std::size_t r) { return weight(1 + 2 * r, first + c); });
                });
            }
        }
        const std::vector<qk::expert_choice> chosen{{2, 0, 1, 0.5f}, {0, 1, 0, 1}};
        const std::vector<float> x = make_inputs(data::ordinary, 2 * columns, 9);
        std::vector<float> y(2 * 4, -1.0f);
        under_test::grouped_product(f.format, m, {.rows = 4, .chosen = chosen}, {x, 2}, y);
        check(y, f, "experts", [&](std::size_t i) {
            const qk::expert_choice& c = chosen[i / 4 == 1 ? 0 : 1];
            const float sum = exact_sum(std::span(w.values).subspan((c.expert * 4 + i % 4) * columns, columns),
                                        [&](std::size_t k) { return x[c.from * columns + k]; });
            return sum * c.weight;
        });
    }
}
