// SPDX-License-Identifier: Apache-2.0
// Products over packed weights against the oracle: every format, ragged shapes, kinds of scales, strides, memory of 16 bits, cuts, threads
// and what follows the sum.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "product_oracle.hpp"
#include "product_under_test.hpp"
#include "test_formats.hpp"

namespace {

struct shape {
    std::size_t rows, columns;
};

/// Scales that a caller supplies, and what holds them.
struct supplied {
    std::vector<float> scale;
    std::vector<std::int64_t> zero;
    qk::codec_parameters parameters;
    std::string name = "none";
};

std::int64_t zero_point_of(const qk::format& f, generator& g) {
    const auto* i = std::get_if<qk::integer>(&f);
    if (i == nullptr) return 0;
    const std::int64_t span = std::min<std::int64_t>(qk::qmax(*i) - qk::qmin(*i), 1 << 20);
    return qk::qmin(*i) + g.below(static_cast<std::uint32_t>(span) + 1);
}

/// Returns kind number `kind` of scales for an elementwise format: one, one a row, one a column, by groups along rows and across them.
supplied make_scales(const qk::format& f, shape s, int kind, bool with_zero, std::uint64_t seed) {
    supplied p;
    generator g{seed};
    const auto fill = [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) p.scale.push_back(static_cast<float>(0.01 + g.uniform()));
        for (std::size_t i = 0; with_zero && i < n; ++i) p.zero.push_back(zero_point_of(f, g));
    };
    const auto by_block = [&](qk::along_axis a, std::size_t group) {
        fill(a.outer * ((a.length - 1) / group + 1) * a.inner);
        p.parameters = qk::per_block{p.scale, p.zero, a, group};
        p.name = "by " + std::to_string(group) + " along " + std::to_string(a.length);
    };
    const qk::along_axis along{s.rows, s.columns, 1}, across{1, s.rows, s.columns};
    switch (kind) {
        case 0:
            p.parameters = qk::affine{0.37f, with_zero ? zero_point_of(f, g) : 0};
            p.name = "one";
            break;
        case 1:
            fill(s.rows);
            p.parameters = qk::per_channel{p.scale, p.zero, across};
            p.name = "by row";
            break;
        case 2:
            fill(s.columns);
            p.parameters = qk::per_channel{p.scale, p.zero, along};
            p.name = "by column";
            break;
        case 3: by_block(along, 32); break;
        case 4: by_block(along, 16); break;
        case 5: by_block(along, 7); break;
        case 6: by_block(along, 96); break;
        case 7: by_block(across, 3); break;
        default: by_block(along, std::size_t{1} << 30); break;
    }
    p.name += with_zero ? " with zero points" : "";
    return p;
}
constexpr int kinds_of_scales = 9;

std::size_t check_product(const std::string& name, const qk::format& f, shape s, const made_weights& w, const qk::codec_parameters& p,
                          data kind) {
    const std::vector<float> weights = exact_weights(f, w.planes(), s.rows, s.columns, p), x = make_inputs(kind, s.columns, s.rows + 7);
    std::vector<float> expected(s.rows), y(s.rows, -1.0f);
    for (std::size_t r = 0; r < s.rows; ++r)
        expected[r] = exact_sum(std::span(weights).subspan(r * s.columns, s.columns), [&](std::size_t k) { return x[k]; });
    under_test::product(f, {s.rows, s.columns, w.planes(), p}, {x}, {y});
    return count_mismatches(expected, expected, y, name + " " + std::to_string(s.rows) + "x" + std::to_string(s.columns));
}

constexpr shape shapes[] = {{1, 1}, {3, 5}, {5, 33}, {6, 48}, {7, 64}, {4, 97}, {19, 128}, {2, 1030}};

}  // namespace

TEST_CASE("y = W x has the bits of the oracle, in every format") {
    for (const test_format& t : all_formats()) {
        for (const shape s : shapes) {
            for (const weights_kind kind : {weights_kind::ordinary, weights_kind::any_codes}) {
                const std::size_t offset = (s.rows + s.columns) % 4;
                const made_weights w = make_weights(t.format, s.rows, s.columns, kind, s.rows * 31 + s.columns, 0.03f, offset);
                const qk::codec_parameters p = qk::is_block_format(t.format) ? qk::affine{0.03f} : qk::affine{0.37f};
                for (const data of_x : {data::ordinary, data::special})
                    CHECK(check_product(t.name + (kind == weights_kind::ordinary ? "" : ", any codes"), t.format, s, w, p, of_x) == 0);
            }
        }
    }
}

TEST_CASE("scales of every kind") {
    for (const char* name : {"int4", "uint4", "int8", "uint8", "int2", "int16", "fp8_e4m3fn", "fp4_e2m1", "fp16", "fp32", "int:bits=3",
                             "uint4:symmetric", "float:exponent=5,mantissa=7", "int32"}) {
        const qk::format f = *qk::parse_format(name);
        for (const shape s : {shape{5, 33}, {7, 64}, {9, 192}, {3, 250}, {2, 1056}}) {
            for (int kind = 0; kind < kinds_of_scales; ++kind) {
                for (const bool with_zero : {false, true}) {
                    if (with_zero && !std::holds_alternative<qk::integer>(f)) continue;
                    const supplied p = make_scales(f, s, kind, with_zero, s.columns);
                    const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::any_codes, s.columns + 1, 1, s.rows % 3);
                    CHECK(check_product(std::string(name) + ", " + p.name, f, s, w, p.parameters, data::ordinary) == 0);
                }
            }
        }
    }
}

TEST_CASE("floats under factors so large or small that a power of two more would be beyond a float") {
    for (const char* name : {"fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3fnuz", "fp6_e2m3", "fp16", "bf16"}) {
        const qk::format f = *qk::parse_format(name);
        for (const shape s : {shape{5, 96}, {6, 64}}) {
            for (const float large : {0x1p118f, 0x1p121f, 0x1.8p127f, 0x1p-140f}) {
                const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::any_codes, s.columns + 3, 1, 0);
                std::vector<float> scale(s.rows * ((s.columns - 1) / 32 + 1), 0.5f);
                scale[scale.size() / 2] = large;
                CHECK(check_product(name, f, s, w, qk::affine{large}, data::ordinary) == 0);
                CHECK(check_product(name, f, s, w, qk::per_block{scale, {}, {s.rows, s.columns, 1}, 32}, data::ordinary) == 0);
            }
        }
    }
}

TEST_CASE("rows longer than a piece of x, and rows of every length") {
    for (const char* name :
         {"mxfp4", "nvfp4", "int4", "int8", "fp8_e4m3fn", "mxfp8_e5m2", "mxfp6_e2m3", "bfp16", "mx6", "fp32", "mxint8"}) {
        const qk::format f = *qk::parse_format(name);
        for (const std::size_t columns : {std::size_t{8192}, std::size_t{8200}, std::size_t{20001}}) {
            const made_weights w = make_weights(f, 3, columns, weights_kind::ordinary, columns, 0.1f, 0);
            CHECK(check_product(name, f, {3, columns}, w, qk::affine{0.1f}, data::ordinary) == 0);
        }
        for (std::size_t columns = 1; columns <= 140; ++columns) {
            const made_weights w = make_weights(f, 5, columns, weights_kind::ordinary, columns, 0.1f, columns % 5);
            CHECK(check_product(name, f, {5, columns}, w, qk::affine{0.1f}, data::ordinary) == 0);
        }
    }
}

namespace {

/// x or y in memory of one type.
template <class T>
struct memory {
    std::vector<T> values;
    explicit memory(std::size_t n) : values(n, qk::narrow<T>(-77.0f)) {}
    float operator[](std::size_t i) const { return qk::widen(values[i]); }
};

struct placed {
    std::size_t count, stride, step;
    std::size_t at(std::size_t vector, std::size_t i, std::size_t n) const { return vector * (stride != 0 ? stride : n * step) + i * step; }
    std::size_t size(std::size_t n) const { return at(count - 1, n - 1, n) + 1; }
};

template <class X, class Y>
void check_placed(const test_format& t, shape s, placed px, placed py, const qk::row_range& range) {
    const made_weights w = make_weights(t.format, s.rows, s.columns, weights_kind::ordinary, s.columns, 0.1f, 1);
    const qk::codec_parameters p = qk::affine{0.1f};
    const std::vector<float> weights = exact_weights(t.format, w.planes(), s.rows, s.columns, p);
    memory<X> x(px.size(s.columns));
    const std::vector<float> numbers = make_inputs(data::ordinary, x.values.size(), 5);
    for (std::size_t i = 0; i < numbers.size(); ++i) x.values[i] = qk::narrow<X>(numbers[i]);
    memory<Y> y(py.size(s.rows)), expected(y.values.size());
    for (std::size_t m = 0; m < px.count; ++m) {
        for (std::size_t r = range.first; r < std::min(range.last, s.rows); ++r)
            expected.values[py.at(m, r, s.rows)] = qk::narrow<Y>(
                exact_sum(std::span(weights).subspan(r * s.columns, s.columns), [&](std::size_t k) { return x[px.at(m, k, s.columns)]; }));
    }
    under_test::product(t.format, {s.rows, s.columns, w.planes(), p}, {x.values, px.count, px.stride, px.step},
                        {y.values, py.stride, py.step}, {.rows = range});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i) wrong += !same_bits(y[i], expected[i]);
    CHECK_MESSAGE(wrong == 0, t.name, " ", s.rows, "x", s.columns, " vectors ", px.count, " steps ", px.step, " ", py.step, " rows from ",
                  range.first);
}

}  // namespace

TEST_CASE("vectors, strides, steps, ranges of rows and memory of 16 bits") {
    for (const test_format& t : formats_named({"mxfp4", "int4", "int8", "fp8_e4m3fn", "mxfp6_e3m2", "bfp16", "nvfp4", "bf16"})) {
        const shape s{21, 160};
        for (const std::size_t count : {1u, 2u, 3u, 5u, 16u, 17u, 33u}) {
            check_placed<float, float>(t, s, {count, 0, 1}, {count, 0, 1}, {});
            check_placed<float, float>(t, s, {count, 1, 3}, {count, 50, 2}, {});
            check_placed<qk::float16, qk::bfloat16>(t, s, {count, 200, 1}, {count, 1, 40}, {3, 19});
            check_placed<qk::bfloat16, qk::float16>(t, s, {count, 0, 2}, {count, 0, 1}, {20, 30});
            check_placed<float, float>(t, s, {count, 0, 1}, {count, 0, 1}, {7, 7});
        }
    }
}

TEST_CASE("chains: the order for many vectors, for any number of them") {
    for (const char* name : {"mxfp4", "nvfp4", "mx6", "int4", "uint4:symmetric", "int8", "uint8", "fp8_e4m3fn", "mxint8"}) {
        const qk::format f = *qk::parse_format(name);
        for (const shape s : {shape{1, 5}, {3, 250}, {19, 128}, {131, 96}, {2, 1056}}) {
            for (const int kind : {0, 3, 4, 6}) {
                const bool scaled = !qk::is_block_format(f), with_zero = kind != 0 && std::holds_alternative<qk::integer>(f);
                if (!scaled && kind != 0) continue;
                const supplied p = make_scales(f, s, kind, with_zero, s.columns);
                const qk::codec_parameters parameters = scaled ? p.parameters : qk::affine{0.1f};
                const made_weights w =
                    make_weights(f, s.rows, s.columns, scaled ? weights_kind::any_codes : weights_kind::ordinary, 3, 0.1f, 1);
                const std::vector<float> weights = exact_weights(f, w.planes(), s.rows, s.columns, parameters);
                for (const std::size_t count : {1u, 9u, 67u}) {
                    const std::vector<float> x = make_inputs(data::ordinary, count * s.columns, 5);
                    std::vector<float> expected(count * s.rows), y(count * s.rows), sums(count * s.rows), in_sums(count * s.rows);
                    for (std::size_t i = 0; i < y.size(); ++i) {
                        const auto of_x = [&](std::size_t k) { return x[i / s.rows * s.columns + k]; };
                        const auto row = std::span(weights).subspan(i % s.rows * s.columns, s.columns);
                        expected[i] = exact_chain(s.columns, 0, of_x, [&](std::size_t k) { return row[k]; });
                        in_sums[i] = exact_sum(row, of_x);
                    }
                    const qk::packed_weights m{s.rows, s.columns, w.planes(), parameters};
                    under_test::product(f, m, {x, count}, {y}, {.sums = qk::product_sums::chains});
                    const std::string label = std::string(name) + ", " + p.name + " " + std::to_string(count);
                    CHECK(count_mismatches(expected, expected, y, label) == 0);
                    under_test::product(f, m, {x, count}, {sums}, {});
                    CHECK(count_mismatches(in_sums, in_sums, sums, label) == 0);
                }
            }
        }
    }
    // Strides, 16 bits, rounding on the way and ranges of rows.
    const shape s{21, 160};
    const std::size_t count = 11;
    const made_weights w = make_weights(qk::int4, s.rows, s.columns, weights_kind::ordinary, 3, 1, 0);
    const std::vector<float> weights = exact_weights(qk::int4, w.planes(), s.rows, s.columns, qk::affine{0.25f});
    const std::vector<float> numbers = make_inputs(data::ordinary, count * s.columns * 2, 5);
    std::vector<qk::bfloat16> x(numbers.size()), y(count * s.rows * 2, qk::narrow<qk::bfloat16>(-7.0f));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = qk::narrow<qk::bfloat16>(numbers[i]);
    under_test::product(qk::int4, {s.rows, s.columns, w.planes(), qk::affine{0.25f}}, {x, count, 0, 2}, {y, 0, 2},
                        {.rows = {2, 20}, .sums = qk::product_sums::chains, .round = under_test::rounded_to<qk::bfp16>()});
    std::vector<float> given(s.columns), rounded(s.columns);
    for (std::size_t m = 0; m < count; ++m) {
        for (std::size_t k = 0; k < s.columns; ++k) given[k] = qk::widen(x[(m * s.columns + k) * 2]);
        under_test::fake_quantize(qk::bfp16, given, rounded);
        for (std::size_t r = 0; r < s.rows; ++r) {
            const float sum = exact_chain(
                s.columns, 0, [&](std::size_t k) { return rounded[k]; }, [&](std::size_t k) { return weights[r * s.columns + k]; });
            const bool own = r >= 2 && r < 20;
            CHECK(qk::widen(y[(m * s.rows + r) * 2]) == (own ? qk::widen(qk::narrow<qk::bfloat16>(sum)) : -7.0f));
        }
    }
}

TEST_CASE("however rows are cut, and whoever computes them, the bits are the same") {
    for (const test_format& t : formats_named({"mxfp4", "int4", "int8", "mx9", "fp8_e5m2"})) {
        const shape s{67, 250};
        const made_weights w = make_weights(t.format, s.rows, s.columns, weights_kind::ordinary, 3, 0.1f, 0);
        const std::vector<float> x = make_inputs(data::ordinary, 3 * s.columns, 4);
        const qk::packed_weights m{s.rows, s.columns, w.planes(), qk::affine{0.1f}};
        std::vector<float> whole(3 * s.rows), pieces(3 * s.rows);
        under_test::product(t.format, m, {x, 3}, {whole}, {});
        for (const std::size_t size : {1u, 3u, 64u, 1000u}) {
            std::fill(pieces.begin(), pieces.end(), 0.0f);
            std::size_t calls = 0;
            under_test::product(
                t.format, m, {x, 3}, {pieces}, {},
                [&](std::size_t n, const auto& body) {
                    for (std::size_t i = n; i-- > 0; ++calls) body(i);
                },
                size);
            CHECK(calls == (s.rows + size - 1) / size);
            CHECK(count_mismatches(whole, whole, pieces, t.name) == 0);
        }
        for (std::size_t v = 0; v < 3; ++v) {  // a vector alone
            std::vector<float> alone(s.rows);
            under_test::product(t.format, m, {std::span(x).subspan(v * s.columns, s.columns)}, {alone}, {});
            CHECK(count_mismatches(alone, std::span(whole).subspan(v * s.rows, s.rows), alone, t.name) == 0);
        }
    }
}

TEST_CASE("what follows the sum, step by step") {
    const qk::format f = qk::mxfp4;
    const shape s{37, 96};
    const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::ordinary, 3, 0.1f, 0);
    const qk::packed_weights m{s.rows, s.columns, w.planes(), {}};
    const std::vector<float> x = make_inputs(data::ordinary, 2 * s.columns, 4), bias = make_inputs(data::ordinary, s.rows, 5),
                             row_scale = make_inputs(data::ordinary, s.rows, 6), times = make_inputs(data::ordinary, 2 * s.rows, 7),
                             plus = make_inputs(data::ordinary, 2 * s.rows, 8);
    std::vector<float> sum(2 * s.rows), y(2 * s.rows), expected(2 * s.rows);
    under_test::product(f, m, {x, 2}, {sum}, {});
    for (const qk::activation a :
         {qk::activation::none, qk::activation::relu, qk::activation::silu, qk::activation::gelu, qk::activation::gelu_tanh}) {
        for (std::size_t i = 0; i < sum.size(); ++i) {
            volatile float v = sum[i] * 0.3f;  // volatile: each step is rounded
            v = v * row_scale[i % s.rows];
            v = v + bias[i % s.rows];
            v = qk::detail::activated(a, v);
            v = v * times[i];
            v = v + plus[i];
            expected[i] = v;
        }
        y = plus;
        under_test::product(f, m, {x, 2}, {y}, {.scale = 0.3f, .row_scale = row_scale, .bias = bias, .act = a, .times = times, .plus = y});
        CHECK(count_mismatches(sum, expected, y, "epilogue") == 0);
    }
}

namespace {

/// Checks product_sums::integers: the weights are (element - zero) * factor, so that the oracle needs no codes.
void check_integers(const std::string& name, const qk::format& f, shape s, const made_weights& w, const qk::codec_parameters& p,
                    data kind) {
    // The elements: with scales of 1, and block scales taken from planes of equal codes.
    const std::vector<float> weights = exact_weights(f, w.planes(), s.rows, s.columns, p);
    const qk::packed_layout l = qk::layout_of(f, qk::along_axis{s.rows, s.columns, 1});
    made_weights plain = w;
    double unit = 1;
    std::vector<float> factor(weights.size(), 1);
    if (l.scales.count != 0) {  // factors are the weights of a plane whose elements are all 1 (or the unit)
        const qk::format element = std::visit(
            [](const auto& g) -> qk::format {
                if constexpr (requires { g.element; }) {
                    if constexpr (requires { g.integer_bits; }) {
                        if (g.integer_bits != 0) return qk::integer{.bits = g.integer_bits};
                    }
                    return g.element;
                } else if constexpr (requires {
                                         g.mantissa_bits;
                                         g.block_size;
                                     })
                    return qk::integer{.bits = 1 + g.mantissa_bits};
                else return qk::int8;
            },
            f);
        for (std::byte& b : plain.bytes[0]) b = std::byte{0};
        for (std::size_t k = 0; k < l.elements.count; ++k) {
            const std::size_t bit = k * static_cast<std::size_t>(l.elements.bits);
            plain.bytes[0][plain.offset + bit / 8] |= static_cast<std::byte>(1u << (bit % 8));  // code 1: the smallest number above 0
        }
        const std::vector<float> units = exact_weights(f, plain.planes(), s.rows, s.columns, p);
        unit = std::holds_alternative<qk::integer>(element)
                   ? (std::holds_alternative<qk::microscaling>(f) ? std::ldexp(1.0, 2 - std::get<qk::integer>(element).bits) : 1.0)
                   : static_cast<double>(qk::min_value(std::get<qk::floating>(element)));
        for (std::size_t i = 0; i < units.size(); ++i) factor[i] = static_cast<float>(units[i] / unit);
    } else {
        if (const auto* e = std::get_if<qk::floating>(&f)) unit = static_cast<double>(qk::min_value(*e));
        for (std::size_t i = 0; i < factor.size(); ++i) {
            const std::size_t r = i / s.columns, k = i % s.columns, groups = p.group == 0 ? 0 : (s.columns - 1) / p.group + 1;
            factor[i] = p.scale.empty() ? p.one.scale : p.scale[p.group == 0 ? r : r * groups + k / p.group];
        }
    }
    // A vector alone, and more than a register has lanes.
    const std::size_t count = 19;
    const std::vector<float> x = make_inputs(kind, count * s.columns, 3);
    std::vector<float> expected(count * s.rows), y(count * s.rows), alone(s.rows);
    for (std::size_t i = 0; i < y.size(); ++i) {
        const auto at = [&](std::size_t k) { return i % s.rows * s.columns + k; };
        expected[i] = exact_integer_sum(
            std::span(x).subspan(i / s.rows * s.columns, s.columns), unit,
            [&](std::size_t k) { return std::nearbyint(static_cast<double>(weights[at(k)]) / static_cast<double>(factor[at(k)]) / unit); },
            [&](std::size_t k) { return factor[at(k)]; });
    }
    const qk::packed_weights m{s.rows, s.columns, w.planes(), p};
    const std::string label = name + " integers " + std::to_string(s.rows) + "x" + std::to_string(s.columns);
    under_test::product(f, m, {x, count}, {y}, {.sums = qk::product_sums::integers});
    CHECK(count_mismatches(expected, expected, y, label) == 0);
    under_test::product(f, m, {std::span(x).first(s.columns)}, {alone}, {.sums = qk::product_sums::integers});
    CHECK(count_mismatches(alone, std::span(expected).first(s.rows), alone, label) == 0);
    // Rounded once, by themselves: the same bits, and no byte beyond.
    const std::size_t stride = qk::padded_columns(s.columns);
    std::vector<std::int8_t> q(count * stride + 1, 99);
    std::vector<float> scale(count * stride / 32 + 1, -77.0f);
    under_test::round_vectors({x, count}, s.columns, q, scale);
    CHECK(q.back() == 99);
    CHECK(scale.back() == -77.0f);
    const qk::rounded_vectors rounded{q, scale};
    under_test::product(f, m, {rounded, count}, {y}, {.sums = qk::product_sums::integers});
    CHECK(count_mismatches(expected, expected, y, label + ", rounded") == 0);
    under_test::product(f, m, rounded, alone, {.sums = qk::product_sums::integers});
    CHECK(count_mismatches(alone, std::span(expected).first(s.rows), alone, label + ", rounded") == 0);
}

}  // namespace

TEST_CASE("whole numbers: x in int8, exact sums of eight") {
    for (const char* name : {"mxfp4", "nvfp4", "mxint8", "mxfp6_e2m3", "mxfp4_e3m0", "amdfp4_g32", "bfp:block=16,exponent=8,mantissa=7",
                             "bfp:block=32,exponent=5,mantissa=3", "bfp:block=64,exponent=8,mantissa=7,bump", "mx:element=int4,block=32"}) {
        const qk::format f = *qk::parse_format(name);
        CHECK(qk::takes_integers(f));
        for (const shape s : {shape{1, 5}, {5, 32}, {7, 96}, {3, 100}, {2, 4096}, {3, 4200}, {5, 8300}}) {
            const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::ordinary, s.columns, 0.03f, s.rows % 3);
            for (const data kind : {data::ordinary, data::sparse, data::subnormal}) check_integers(name, f, s, w, qk::affine{0.03f}, kind);
        }
    }
    for (const char* name : {"int4", "uint4", "int8", "uint8", "int2", "int:bits=3", "int8:narrow", "fp4_e2m1", "int:bits=5,signed=0"}) {
        const qk::format f = *qk::parse_format(name);
        CHECK(qk::takes_integers(f));
        for (const shape s : {shape{1, 5}, {5, 32}, {7, 96}, {3, 100}, {9, 192}, {3, 4200}}) {
            for (const int kind : {0, 1, 3, 4, 6, 8}) {
                for (const bool with_zero : {false, true}) {
                    if (with_zero && !std::holds_alternative<qk::integer>(f)) continue;
                    const supplied p = make_scales(f, s, kind, with_zero, s.columns);
                    const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::any_codes, s.columns + 1, 1, s.rows % 3);
                    check_integers(std::string(name) + ", " + p.name, f, s, w, p.parameters, data::ordinary);
                }
            }
        }
    }
    for (const qk::format f : {qk::format(qk::fp8_e4m3fn), qk::format(qk::int16), qk::format(qk::mx9), qk::format(qk::mxfp8_e5m2)})
        CHECK(!qk::takes_integers(f));
    // NaN in x reaches every output.
    const made_weights w = make_weights(qk::mxfp4, 3, 64, weights_kind::ordinary, 1, 1, 0);
    std::vector<float> x(64, 1.0f), y(3);
    x[40] = std::numeric_limits<float>::infinity();
    under_test::product(qk::mxfp4, {3, 64, w.planes(), {}}, {x}, {y}, {.sums = qk::product_sums::integers});
    for (const float v : y) CHECK(std::isnan(v));
}

TEST_CASE("vectors that come rounded: the oracle's numbers, whatever memory they were in, and experts that share them") {
    const std::size_t count = 3, columns = 4999, stride = qk::padded_columns(columns);
    for (const data kind : {data::ordinary, data::sparse, data::subnormal, data::special}) {
        const std::vector<float> numbers = make_inputs(kind, count * columns * 2, 7);
        std::vector<qk::bfloat16> x(numbers.size());
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = qk::narrow<qk::bfloat16>(numbers[i]);
        std::vector<std::int8_t> q(count * stride, 99);
        std::vector<float> scale(count * stride / 32);
        under_test::round_vectors({x, count, 0, 2}, columns, q, scale);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count * stride; i += 32) {
            const std::size_t m = i / stride, first = i % stride, n = std::min<std::size_t>(32, columns - first);
            float largest = 0;
            bool finite = true;
            const auto value = [&](std::size_t j) { return qk::widen(x[(m * columns + first + j) * 2]); };
            for (std::size_t j = 0; j < n; ++j) {
                finite = finite && std::isfinite(value(j));
                largest = std::max(largest, std::fabs(value(j)));
            }
            const float by = largest / 127;
            wrong += finite ? scale[i / 32] != by : !std::isnan(scale[i / 32]);
            for (std::size_t j = 0; j < 32; ++j) {
                const float quotient = j < n && finite && by != 0 ? value(j) / by : 0;
                const double whole = std::clamp(std::nearbyint(static_cast<double>(quotient)), -127.0, 127.0);
                wrong += q[i + j] != static_cast<std::int8_t>(whole);
            }
        }
        CHECK(wrong == 0);
    }
    // Two experts with the same rounded vectors.
    const made_weights w = make_weights(qk::mxfp4, 14, 96, weights_kind::ordinary, 1, 1, 0);
    const qk::packed_weights experts{14, 96, w.planes(), {}};
    const std::vector<float> x = make_inputs(data::ordinary, 2 * 96, 4);
    const std::vector<qk::expert_choice> chosen{{1, 1, 0, 0.5f}, {0, 0, 1, 2}, {0, 1, 2, 1}};
    const qk::product_experts e{.rows = 7, .chosen = chosen};
    std::vector<std::int8_t> q(2 * 96);
    std::vector<float> scale(2 * 3), expected(3 * 7), y(3 * 7);
    const auto round = under_test::rounded_to<qk::bfp16>();
    under_test::grouped_product(qk::mxfp4, experts, e, {x, 2}, expected, {.sums = qk::product_sums::integers, .round = round});
    under_test::round_vectors({x, 2}, 96, q, scale, round);
    under_test::grouped_product(qk::mxfp4, experts, e, {qk::rounded_vectors{q, scale}, 2}, y, {.sums = qk::product_sums::integers});
    CHECK(count_mismatches(expected, expected, y, "experts") == 0);
}

TEST_CASE("more rows than there is room for sums of, in rows longer than a piece of x") {
    for (const char* name : {"int8", "int4", "bf16"}) {
        const qk::format f = *qk::parse_format(name);
        for (const shape s : {shape{530, 4130}, {530, 8230}}) {
            const made_weights w = make_weights(f, s.rows, s.columns, weights_kind::any_codes, 3, 1, 0);
            const std::vector<float> x = make_inputs(data::ordinary, 3 * s.columns, 5);
            const qk::packed_weights m{s.rows, s.columns, w.planes(), qk::affine{0.25f}};
            for (const std::size_t count : {1u, 3u}) {
                for (const qk::product_sums sums : {qk::product_sums::floats, qk::product_sums::chains, qk::product_sums::integers}) {
                    if (sums == qk::product_sums::integers && !qk::takes_integers(f)) continue;
                    std::vector<float> whole(count * s.rows), cut(count * s.rows);
                    const qk::product_input of_x{std::span(x).first(count * s.columns), count};
                    under_test::product(f, m, of_x, whole, {.sums = sums});
                    for (std::size_t r = 0; r < s.rows; r += 11) under_test::product(f, m, of_x, cut, {.rows = {r, r + 11}, .sums = sums});
                    CHECK(count_mismatches(cut, cut, whole, std::string(name) + ", many rows") == 0);
                }
            }
        }
    }
}

TEST_CASE("one to nine vectors, in rows longer than a piece of x, by scales of every kind") {
    for (const char* name : {"mxfp4", "nvfp4", "int4", "uint4", "int8", "uint8", "fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3fnuz", "mxfp8_e4m3",
                             "mxfp6_e2m3", "mxint8", "bf16", "fp16", "fp32", "float:exponent=6,mantissa=9", "mx6", "int:bits=3"}) {
        const qk::format f = *qk::parse_format(name);
        const bool scaled = !qk::is_block_format(f);
        for (const shape s : {shape{37, 40}, {70, 1100}, {5, 4640}}) {
            for (const int kind : {0, 1, 3, 4, 6}) {
                if ((!scaled && kind != 0) || (s.rows == 70 && kind % 3 != 0)) continue;
                const supplied p = make_scales(f, s, kind, scaled && std::holds_alternative<qk::integer>(f), s.columns);
                const qk::codec_parameters parameters = scaled ? p.parameters : qk::affine{0.1f};
                const made_weights w =
                    make_weights(f, s.rows, s.columns, scaled ? weights_kind::any_codes : weights_kind::ordinary, 3, 0.1f, 1);
                const std::vector<float> weights = exact_weights(f, w.planes(), s.rows, s.columns, parameters),
                                         x = make_inputs(data::ordinary, 9 * s.columns, 5);
                std::vector<float> sums(9 * s.rows), chains(9 * s.rows);
                for (std::size_t i = 0; i < sums.size(); ++i) {
                    const auto of_x = [&](std::size_t k) { return x[i / s.rows * s.columns + k]; };
                    const auto row = std::span(weights).subspan(i % s.rows * s.columns, s.columns);
                    sums[i] = exact_sum(row, of_x), chains[i] = exact_chain(s.columns, 0, of_x, [&](std::size_t k) { return row[k]; });
                }
                for (std::size_t count = 1; count <= 9; ++count) {
                    const std::size_t values = count * s.rows;
                    std::vector<float> y(values), chained(values);
                    const qk::product_input of_x{std::span(x).first(count * s.columns), count};
                    const qk::packed_weights m{s.rows, s.columns, w.planes(), parameters};
                    under_test::product(f, m, of_x, y, {});
                    under_test::product(f, m, of_x, chained, {.sums = qk::product_sums::chains});
                    const std::string label =
                        std::string(name) + ", " + p.name + " " + std::to_string(s.columns) + " " + std::to_string(count);
                    CHECK(count_mismatches(y, std::span(sums).first(values), y, label) == 0);
                    CHECK(count_mismatches(y, std::span(chains).first(values), chained, label + ", chains") == 0);
                }
            }
        }
    }
}

TEST_CASE("activations are right to the last bit of a float, and the same everywhere") {
    const auto exact = [](qk::activation a, long double v) -> long double {
        const long double u = 1.5957691216057307117597842397375275L * (v + 0.044715L * v * v * v);
        switch (a) {
            case qk::activation::relu: return v > 0 ? v : 0;
            case qk::activation::silu: return v / (1 + std::exp(-v));
            case qk::activation::gelu: return v * 0.5L * std::erfc(-v * 0.70710678118654752440084436210484904L);
            case qk::activation::gelu_tanh: return v / (1 + std::exp(-u));
            default: return v;
        }
    };
    std::uint64_t hash = 14695981039346656037u;
    for (const qk::activation a :
         {qk::activation::none, qk::activation::relu, qk::activation::silu, qk::activation::gelu, qk::activation::gelu_tanh}) {
        generator g{11};
        for (int i = 0; i < 20000; ++i) {
            const auto digits = g.word();  // drawn one after the other: compilers differ in the order of arguments
            const auto exponent = 90 + g.below(46);
            const float v = assemble(g.below(2) != 0, exponent, digits);
            const float y = qk::detail::activated(a, v);
            hash = (hash ^ std::bit_cast<std::uint32_t>(y)) * 1099511628211u;
            if (i % 16 != 0) continue;
            const long double e = exact(a, v), ulp = std::ldexp(1.0L, std::max(-149, std::ilogb(e == 0 ? 1e-45L : e) - 23));
            CHECK_MESSAGE(std::fabs(e - static_cast<long double>(y)) <= 0.5001L * ulp, static_cast<int>(a), " of ", v, " is ", y);
        }
        constexpr float inf = std::numeric_limits<float>::infinity();
        CHECK(qk::detail::activated(a, inf) == inf);
        CHECK(std::isnan(qk::detail::activated(a, std::numeric_limits<float>::quiet_NaN())));
        CHECK(qk::detail::activated(a, -inf) == (a == qk::activation::none ? -inf : 0));
    }
    CHECK_MESSAGE(hash == 8839674719860170183u, "other bits than on x86-64 with AVX2: ", hash);
}
