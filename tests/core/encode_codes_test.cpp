// SPDX-License-Identifier: Apache-2.0
// encode of formats of at most 8 bits, whose codes some instruction sets make many at a time: what is decoded is what the oracle rounds to,
// whatever the split, bias, width, zero point and size of block, wherever the value stands, and no byte behind the codes is touched.
#include <doctest/doctest.h>

#include <algorithm>

#include "compare_bits.hpp"
#include "qk/codec.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/parse.hpp"
#include "qk/reference.hpp"
#include "test_inputs.hpp"

namespace {

constexpr data kinds[] = {data::ordinary, data::ties, data::sparse, data::top, data::special, data::tiny_runs};

/// Codes of x under `scale`, decoded, beside the oracle.
void check(const qk::format& f, data kind, std::size_t n, qk::affine scale, const qk::semantics& how = {}) {
    const std::vector<float> x = make_inputs(kind, n, n);
    std::vector<float> expected(n), y(n);
    const bool plain = qk::is_block_format(f) && !std::holds_alternative<qk::nvfloat>(f);
    plain ? qk::reference::fake_quantize(f, x, expected, how) : qk::reference::fake_quantize(f, x, expected, scale, how);
    const std::size_t size = qk::packed_bytes(f, {1, n, 1});
    std::vector<std::byte> packed(size + 64, std::byte{0x5a});
    const qk::codec_parameters p = plain ? qk::codec_parameters{} : qk::codec_parameters{scale};
    REQUIRE(qk::encode(f, x, std::span(packed).first(size), p, how) == qk::encode_status::done);
    REQUIRE(
        std::all_of(packed.begin() + static_cast<std::ptrdiff_t>(size), packed.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
    qk::decode(f, std::span<const std::byte>(packed).first(size), y, p);
    const std::string what = std::string(qk::to_text(f).view()) + " " + name_of(kind) + " of " + std::to_string(n);
    CHECK_MESSAGE(count_mismatches(x, expected, y, what) == 0, what);
}

}  // namespace

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
