// SPDX-License-Identifier: Apache-2.0
// Tests encode, above all for formats of at most 8 bits, whose codes some instruction sets make many at a time. The decoded values must be
// the oracle's for every split, bias, width, zero point, block size and position, and no byte behind the codes is written.
#include <doctest/doctest.h>

#include <algorithm>

#include "compare_bits.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace {

constexpr data kinds[] = {data::ordinary, data::ties, data::sparse, data::top, data::special, data::tiny_runs};

/// Encodes x under `scale`, decodes it, and compares the values with the oracle.
void check(const qk::format& f, data kind, std::size_t n, qk::affine scale, const qk::semantics& how = {}) {
    const std::vector<float> x = make_inputs(kind, n, n);
    std::vector<float> expected(n), y(n);
    const bool plain = qk::is_block_format(f) && !std::holds_alternative<qk::nvfloat>(f);
    plain ? qk::reference::fake_quantize(f, x, expected, how) : qk::reference::fake_quantize(f, x, expected, scale, how);
    const std::size_t size = qk::packed_bytes(f, {1, n, 1});
    std::vector<std::byte> packed(size + 64, std::byte{0x5a});
    const qk::codec_parameters p = plain ? qk::codec_parameters{} : qk::codec_parameters{scale};
    REQUIRE(under_test::encode(f, x, std::span(packed).first(size), p, how) == qk::encode_status::done);
    REQUIRE(
        std::all_of(packed.begin() + static_cast<std::ptrdiff_t>(size), packed.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
    under_test::decode(f, std::span<const std::byte>(packed).first(size), y, p);
    const std::string what = std::string(qk::to_text(f).view()) + " " + name_of(kind) + " of " + std::to_string(n);
    CHECK_MESSAGE(count_mismatches(x, expected, y, what) == 0, what);
}

/// Compares fake_quantize with the oracle.
void check_fake(const qk::format& f, data kind, std::size_t n, qk::affine scale, const qk::semantics& how) {
    const std::vector<float> x = make_inputs(kind, n, n);
    std::vector<float> expected(n), y(n);
    if (qk::is_block_format(f) && !std::holds_alternative<qk::nvfloat>(f)) {
        qk::reference::fake_quantize(f, x, expected, how);
        under_test::fake_quantize(f, std::span<const float>(x), std::span(y), how);
    } else {
        qk::reference::fake_quantize(f, x, expected, scale, how);
        under_test::fake_quantize(f, std::span<const float>(x), std::span(y), scale, how);
    }
    const std::string what = std::string(qk::to_text(f).view()) + " " + name_of(kind) + ", fake-quantized";
    CHECK_MESSAGE(count_mismatches(x, expected, y, what) == 0, what);
}

/// Does what check() does with a scale and a zero point for each of seven channels. Their planes of `plane` values begin at any bit.
void check_planes(const qk::format& f, data kind, std::size_t plane, std::int64_t zero, const qk::semantics& how) {
    const qk::along_axis axis{3, 7, plane};
    const std::size_t n = 21 * plane;
    const std::vector<float> x = make_inputs(kind, n, n);
    std::vector<float> expected(n), y(n), scale(7);
    const std::vector<std::int64_t> zeros(qk::is_integer_format(f) ? 7 : 0, zero);
    for (std::size_t c = 0; c < 7; ++c) scale[c] = 0.05f + 0.01f * static_cast<float>(c);
    for (std::size_t p = 0; p < 21; ++p) {
        qk::semantics here = how;
        here.first_index += p * plane;  // random bits depend on the index in the whole array
        qk::reference::fake_quantize(f, std::span(x).subspan(p * plane, plane), std::span(expected).subspan(p * plane, plane),
                                     qk::affine{scale[p % 7], zeros.empty() ? 0 : zero}, here);
    }
    std::vector<std::byte> packed(qk::packed_bytes(f, axis));
    const qk::per_channel scales{scale, zeros, axis};
    REQUIRE(under_test::encode(f, x, packed, scales, how) == qk::encode_status::done);
    under_test::decode(f, packed, y, scales);
    const std::string what = std::string(qk::to_text(f).view()) + " " + name_of(kind) + " in planes of " + std::to_string(plane);
    CHECK_MESSAGE(count_mismatches(x, expected, y, what) == 0, what);
}

}  // namespace

TEST_CASE("every rounding, flushed or not, zero points added before it, planes that begin at any bit") {
    std::vector<qk::semantics> all;
    for (const auto& r : qk::rounding_names) all.push_back({.rounding = r.value, .seed = 3});
    all.push_back({.flush_inputs = true});
    all.push_back({.flush_outputs = true});
    all.push_back({.rounding = qk::rounding::half_away, .flush_inputs = true, .flush_outputs = true});
    all.push_back({.rounding = qk::rounding::up, .flush_inputs = true});
    all.push_back({.rounding = qk::rounding::down, .flush_outputs = true});
    all.push_back({.rounding = qk::rounding::stochastic, .flush_outputs = true, .seed = 5});
    all.push_back({.zero_point_before = true});
    all.push_back({.rounding = qk::rounding::toward_zero, .zero_point_before = true});
    for (const char* name : {"int3", "uint4", "int8", "uint8", "int16", "int24", "int32", "fp4_e2m1", "fp6_e2m3", "fp8_e4m3fn", "fp8_e5m2",
                             "fp8_e4m3fnuz", "fp16", "bf16", "e8m0"}) {
        const qk::format f = name == std::string("int24")  ? qk::format(qk::integer{.bits = 24})
                             : name == std::string("int3") ? qk::format(qk::integer{.bits = 3})
                                                           : *qk::parse_format(name);
        const bool whole = qk::is_integer_format(f);
        CAPTURE(name);
        // In formats with float32's exponents fake_quantize flushes products with the scale, although they have codes.
        const bool reaches_subnormals = name == std::string("bf16") || name == std::string("e8m0");
        for (const qk::semantics& how : all)
            for (const data kind : {data::ordinary, data::ties, data::special, data::top, data::subnormal}) {
                if (reaches_subnormals && (how.flush_inputs || how.flush_outputs)) continue;
                for (const std::int64_t zero : {std::int64_t{0}, std::int64_t{3}})
                    if (whole || zero == 0) check(f, kind, 700, {.scale = 0.0625f, .zero_point = zero}, how);
                if (!whole) check(f, kind, 700, {.scale = 1.0f, .zero_point = 0}, how);
                for (const std::size_t plane : {std::size_t{49}, std::size_t{13}, std::size_t{295}}) check_planes(f, kind, plane, 2, how);
            }
    }
}

TEST_CASE("floats: every split of 3 to 8 bits, biases around the usual one, all kinds of special values") {
    for (int width = 3; width <= 8; ++width)
        for (int e = 1; e < width; ++e) {
            const int m = width - 1 - e, usual = (1 << (e - 1)) - 1;
            for (const int bias : {usual, usual - 2, usual + 9})
                for (const qk::specials s : {qk::specials::ieee, qk::specials::fn, qk::specials::fnuz, qk::specials::none}) {
                    const qk::floating f{e, m, bias, s};
                    if (!qk::check(f).empty()) continue;
                    for (const data kind : kinds) check(f, kind, 64 * 5 + 3, {.scale = 1.0f, .zero_point = 0});
                    check(f, data::ties, 331, {.scale = 0.01171875f, .zero_point = 0});
                    qk::microscaling blocks;
                    blocks.element = f;
                    for (const int size : {8, 16, 32, 64}) {
                        blocks.block_size = size;
                        if (qk::check(blocks).empty()) check(blocks, data::ties, 64 * 9 + 5, {});
                    }
                    qk::nvfloat scaled;
                    scaled.element = f;
                    if (qk::check(scaled).empty()) check(scaled, data::ordinary, 64 * 9 + 5, {.scale = 0.001f, .zero_point = 0});
                }
        }
}

TEST_CASE("integers: 2 to 8 bits with and without a sign, zero points at the ends and within") {
    for (int width = 2; width <= 8; ++width)
        for (const bool is_signed : {true, false}) {
            const qk::integer f{.bits = width, .is_signed = is_signed};
            for (const std::int64_t zero : {qk::qmin(f), qk::qmin(f) / 2 + qk::qmax(f) / 2, qk::qmax(f)})
                for (const data kind : kinds)
                    for (const float scale : {0.05f, 0x1p-20f, 300.0f}) check(f, kind, 64 * 5 + 3, {.scale = scale, .zero_point = zero});
        }
}

TEST_CASE("blocks with one step: every width, sizes from one vector to eight, both signs of zero") {
    for (int width = 2; width <= 8; ++width)
        for (const data kind : kinds) {
            for (const int size : {8, 16, 32, 64}) {
                check(qk::block_float{.block_size = size, .exponent_bits = 8, .mantissa_bits = width - 1}, kind, 64 * 17 + 5, {});
                qk::microscaling integers = qk::mxint8;
                integers.block_size = size;
                integers.integer_bits = width;
                if (qk::check(integers).empty()) check(integers, kind, 64 * 17 + 5, {});
            }
            for (const int size : {8, 16, 32})
                for (const int mantissa_bits : {width - 1}) {
                    qk::microexponent f = qk::mx9;
                    f.block_size = size;
                    f.mantissa_bits = mantissa_bits;
                    check(f, kind, 64 * 17 + 5, {});
                }
            check(qk::bfp16, kind, 64 * 17, {}, {.bfp_zero = qk::zero_sign::positive});
        }
    for (const data kind : kinds) {
        for (const qk::microscaling& f : {qk::mxfp8_e4m3, qk::mxfp8_e5m2, qk::mxfp4}) check(f, kind, 64 * 17 + 5, {});
        for (const float scale : {0.001f, 0x1p-60f, 0x1p40f}) check(qk::nvfp4, kind, 64 * 17 + 5, {.scale = scale, .zero_point = 0});
    }
}

TEST_CASE("integers of 17 to 32 bits: every rounding, zero points at the ends and within, values far beyond the codes") {
    for (const int width : {17, 20, 21, 24, 25, 28, 29, 31, 32})
        for (const bool is_signed : {true, false}) {
            const qk::integer f{.bits = width, .is_signed = is_signed};
            for (const auto& r : qk::rounding_names)
                for (const std::int64_t zero : {qk::qmin(f), std::int64_t{5}, qk::qmax(f)})
                    for (const data kind : {data::ordinary, data::ties, data::top, data::special, data::subnormal})
                        for (const float scale : {0.0625f, 0x1.8p-25f, 0x1p-100f}) {
                            check(f, kind, 700, {.scale = scale, .zero_point = zero}, {.rounding = r.value, .seed = 9});
                            check_fake(f, kind, 700, {.scale = scale, .zero_point = zero}, {.rounding = r.value, .seed = 9});
                        }
            for (const data kind : {data::ordinary, data::ties, data::special}) {
                check(f, kind, 700, {.scale = 0.0625f, .zero_point = 0}, {.zero_point_before = true});
                check_fake(f, kind, 700, {.scale = 0.0625f, .zero_point = 0}, {.zero_point_before = true});
                check_fake(f, kind, 700, {.scale = 0.0625f, .zero_point = 77}, {.zero_point_before = true});
                check_planes(f, kind, 49, 0, {});
            }
        }
}

TEST_CASE("blocks in every rounding, with either sign of zero") {
    for (const auto& r : qk::rounding_names)
        for (const data kind : kinds) {
            for (const char* name : {"bfp16", "mx9", "mx6", "mx4", "mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4"})
                check(*qk::parse_format(name), kind, 64 * 17 + 5, {}, {.rounding = r.value, .seed = 4});
            for (const int width : {3, 5, 8})
                check(qk::block_float{.block_size = 16, .exponent_bits = 8, .mantissa_bits = width - 1}, kind, 64 * 17 + 5, {},
                      {.rounding = r.value, .bfp_zero = qk::zero_sign::positive, .seed = 4});
            check(qk::nvfp4, kind, 64 * 17 + 5, {.scale = 0.001f, .zero_point = 0}, {.rounding = r.value, .seed = 4});
        }
}

TEST_CASE("random words of the caller's, and indices that pass 2^32") {
    const std::size_t n = 64 * 23 + 11;
    std::vector<std::uint32_t> words(n);
    for (std::size_t i = 0; i < n; ++i) words[i] = qk::random_bits(77, i);
    const qk::semantics of_words{.rounding = qk::rounding::stochastic, .random_words = words};
    for (const char* name : {"int8", "int16", "int32", "fp8_e4m3fn", "fp16", "bf16", "e8m0", "bfp16", "mx9", "mxint8", "mxfp4", "nvfp4"}) {
        const qk::format f = *qk::parse_format(name);
        for (const data kind : {data::ordinary, data::ties}) {
            const qk::affine scale{.scale = std::holds_alternative<qk::nvfloat>(f) ? 0.001f : 0.05f, .zero_point = 0};
            for (const std::uint64_t before : {1u, 700u, 1472u}) {
                const qk::semantics passing{
                    .rounding = qk::rounding::stochastic, .seed = 6, .first_index = (std::uint64_t{1} << 32) - before};
                check(f, kind, n, scale, passing);
                check_fake(f, kind, n, scale, passing);
            }
            check(f, kind, n, scale, of_words);
            check_fake(f, kind, n, scale, of_words);
        }
    }
}
