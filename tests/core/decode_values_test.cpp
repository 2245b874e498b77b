// SPDX-License-Identifier: Apache-2.0
// Decodes random codes of floats of 8, 6 and 4 bits, elementwise and in blocks, and every code of 16 bits. Each value must be its code's
// value times its scale, for every split, bias, kind of special values and position of the code.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compare_bits.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/codes.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/formats/parse.hpp"
#include "qk/memory/bits.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace {

std::vector<std::byte> random_bytes(std::size_t n, generator& r) {
    std::vector<std::byte> bytes(n);
    for (std::byte& b : bytes) b = static_cast<std::byte>(r.word());
    return bytes;
}

std::uint32_t code_at(std::span<const std::byte> plane, std::size_t i, int width) {
    const std::size_t bit = i * static_cast<std::size_t>(width);
    std::uint32_t two = std::to_integer<std::uint32_t>(plane[bit / 8]);
    if (bit % 8 + static_cast<std::size_t>(width) > 8) two |= std::to_integer<std::uint32_t>(plane[bit / 8 + 1]) << 8;
    return two >> bit % 8 & qk::detail::low_bits(width);
}

void check_elements(qk::floating f, std::size_t n, float scale, generator& r) {
    const int width = qk::bits(f);
    const std::vector<std::byte> plane = random_bytes(qk::packed_bytes(f, {1, n, 1}), r);
    std::vector<float> y(n);
    under_test::decode(f, plane, y, qk::affine{.scale = scale, .zero_point = 0});
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t code = code_at(plane, i, width);
        REQUIRE_MESSAGE(same_bits(y[i], qk::value_of(f, code) * scale), qk::to_text(f).view(), " of ", n, " values: code ", code, " at ",
                        i);
    }
}

template <class Format>
void check_blocks(const Format& f, int width, std::size_t n, generator& r) {
    const qk::along_axis axis{1, n, 1};
    std::vector<std::byte> packed = random_bytes(qk::packed_bytes(qk::format(f), axis), r);
    const auto planes = qk::planes_of(qk::layout_of(qk::format(f), axis), std::span<const std::byte>(packed));
    float tensor = 1;
    if constexpr (std::same_as<Format, qk::nvfloat>) {
        tensor = 0.37f;
        std::memcpy(const_cast<std::byte*>(planes.tensor.data()), &tensor, sizeof tensor);
    }
    std::vector<float> y(n);
    under_test::decode(qk::format(f), packed, y, axis);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t code = code_at(planes.elements, i, width),
                            shared = code_at(planes.scales, i / static_cast<std::size_t>(f.block_size), 8);
        float scale = 0;
        if constexpr (std::same_as<Format, qk::nvfloat>) scale = qk::detail::scale_of(f, shared, tensor);
        else scale = qk::detail::scale_of(f, shared);
        REQUIRE_MESSAGE(same_bits(y[i], qk::value_of(f.element, code) * scale), qk::to_text(qk::format(f)).view(), " of ", n,
                        " values: code ", code, " under ", shared, " at ", i);
    }
}

}  // namespace

TEST_CASE("elements: every split of 8, 6 and 4 bits, biases around the usual one, all kinds of special values") {
    generator r{11};
    for (const int width : {8, 6, 4})
        for (int e = 1; e < width; ++e) {
            const int m = width - 1 - e, usual = (1 << (e - 1)) - 1;
            for (int bias = usual - 2; bias <= usual + 4; ++bias)
                for (const qk::specials s : {qk::specials::ieee, qk::specials::fn, qk::specials::fnuz, qk::specials::none}) {
                    const qk::floating f{e, m, bias, s};
                    if (!qk::check(f).empty()) continue;
                    for (const std::size_t n : {std::size_t{4000}, std::size_t{33}, std::size_t{31}}) check_elements(f, n, 0.01171875f, r);
                }
        }
}

TEST_CASE("elements without a sign, and of every width of a byte: the upper bit of a code is no sign") {
    generator r{14};
    for (int width = 2; width <= 8; ++width)
        for (const bool is_signed : {false, true})
            for (int e = 1; e + is_signed <= width; ++e) {
                const int m = width - is_signed - e, usual = (1 << (e - 1)) - 1;
                for (const char* special : {"none", "fn", "ieee"}) {
                    const std::string name = "float:exponent=" + std::to_string(e) + ",mantissa=" + std::to_string(m) +
                                             ",bias=" + std::to_string(usual + 1) + ",special=" + special + (is_signed ? "" : ",sign=0");
                    const auto f = qk::parse_format(name);
                    if (!f) continue;
                    for (const std::size_t n : {std::size_t{2000}, std::size_t{33}, std::size_t{31}})
                        check_elements(std::get<qk::floating>(*f), n, 0.01171875f, r);
                }
            }
}

TEST_CASE("elements of the catalogue: every code, under scales that leave them normal, subnormal and infinite") {
    generator r{12};
    for (const qk::named_format& t : qk::catalogue) {
        const qk::floating* f = std::get_if<qk::floating>(&t.format);
        if (f == nullptr || (qk::bits(*f) != 8 && qk::bits(*f) != 6 && qk::bits(*f) != 4)) continue;
        for (const float scale : {1.0f, 3e-3f, 0x1p-130f, 0x1p125f}) check_elements(*f, 20000, scale, r);
    }
}

TEST_CASE("IEEE P3109's formats of 3 to 15 bits: every code becomes its value, and the value its code") {
    for (int width = 3; width <= 15; ++width)
        for (int precision = 1; precision <= width; ++precision)
            for (const bool is_signed : {true, false})
                for (const bool extended : {true, false}) {
                    const qk::floating f = qk::p3109(width, precision, is_signed, extended);
                    if (f == qk::no_format) continue;
                    const std::size_t codes = std::size_t{1} << width, n = std::max<std::size_t>(2048, codes);
                    const qk::along_axis axis{1, n, 1};
                    std::vector<std::byte> plane(qk::packed_bytes(f, axis)), again(plane.size());
                    for (std::size_t bit = 0; bit < n * static_cast<std::size_t>(width); ++bit)
                        if ((bit / static_cast<std::size_t>(width) % codes) >> (bit % static_cast<std::size_t>(width)) & 1u)
                            plane[bit / 8] |= std::byte{1} << static_cast<int>(bit % 8);
                    std::vector<float> y(n);
                    under_test::decode(f, plane, y);
                    for (std::size_t i = 0; i < n; ++i)
                        REQUIRE_MESSAGE(same_bits(y[i], qk::value_of(f, static_cast<std::uint32_t>(i % codes))), qk::to_text(f).view(),
                                        ": code ", i % codes);
                    if (qk::exceeds_float32(f) || qk::min_exponent(f) - f.mantissa_bits < -149) continue;  // codes share a float32
                    const qk::semantics how{.overflow = qk::overflow_rule::propagate};                     // Inf stays
                    REQUIRE(under_test::encode(f, y, again, {}, how) == qk::encode_status::done);
                    CHECK_MESSAGE(again == plane, qk::to_text(f).view());
                }
}

TEST_CASE("tables of more than 128 numbers: every code, with values that need all bits of a float32 and without") {
    generator r{15};
    for (const std::size_t size : {std::size_t{129}, std::size_t{200}, std::size_t{256}})
        for (const bool short_values : {true, false}) {
            std::vector<float> numbers(size);
            for (float& v : numbers)
                v = std::bit_cast<float>((r.word() & 0xbfffffffu) & (short_values ? 0xffff0000u : 0xffffffffu));  // finite
            numbers[size / 2] = std::numeric_limits<float>::quiet_NaN();
            if (!short_values) std::fill(numbers.begin(), numbers.end() - 1, 1.0f), numbers.back() = 0x1.000002p0f;
            const qk::table f = qk::table_of(numbers);
            for (const float scale : {1.0f, 0.01171875f}) {
                const std::vector<std::byte> plane = random_bytes(20000, r);
                std::vector<float> y(plane.size());
                under_test::decode(f, plane, y, qk::affine{.scale = scale, .zero_point = 0});
                for (std::size_t i = 0; i < y.size(); ++i) {
                    const std::uint32_t code = std::to_integer<std::uint32_t>(plane[i]);
                    REQUIRE_MESSAGE(same_bits(y[i], qk::value_of(f, code) * scale), size, " numbers: code ", code, " at ", i);
                }
            }
        }
}

TEST_CASE("16-bit floats of the catalogue: every code") {
    std::vector<std::byte> plane(2 * 65536);
    std::vector<float> y(65536);
    for (std::size_t i = 0; i < y.size(); ++i) plane[2 * i] = static_cast<std::byte>(i), plane[2 * i + 1] = static_cast<std::byte>(i >> 8);
    for (const qk::named_format& t : qk::catalogue) {
        const qk::floating* f = std::get_if<qk::floating>(&t.format);
        if (f == nullptr || qk::bits(*f) != 16) continue;
        for (const float scale : {1.0f, 3e-3f, 0x1p-130f, 0x1p125f}) {
            under_test::decode(*f, plane, y, qk::affine{.scale = scale, .zero_point = 0});
            for (std::uint32_t code = 0; code < y.size(); ++code)
                REQUIRE_MESSAGE(same_bits(y[code], qk::value_of(*f, code) * scale), t.name, ": code ", code, " times ", scale);
        }
    }
}

TEST_CASE("blocks: every code under every scale, whole groups and what is left of them") {
    generator r{13};
    for (const std::size_t n : {std::size_t{64000}, std::size_t{256 + 96}, std::size_t{320}}) {
        for (const qk::microscaling& f : {qk::mxfp8_e4m3, qk::mxfp8_e5m2, qk::mxfp6_e3m2, qk::mxfp6_e2m3, qk::mxfp4})
            check_blocks(f, qk::bits(f.element), n, r);
        check_blocks(qk::nvfp4, 4, n, r);
        for (const int size : {8, 16, 64, 128, 512}) {
            qk::microscaling f = qk::mxfp8_e4m3;
            f.block_size = size;
            if (n % static_cast<std::size_t>(size) == 0) check_blocks(f, 8, n, r);
        }
    }
}

// decode writes float16 here. Below 2^-14 a float16 code counts steps of 2^-24, so the expected code is an integer.
TEST_CASE("16-bit floats: every subnormal, every middle between two, and the floats beside it") {
    std::vector<float> x;
    std::vector<std::uint16_t> expected;
    for (std::uint16_t k = 0; k < 1024; ++k) {
        const float middle = static_cast<float>(2 * k + 1) * 0x1p-25f;
        const auto up = static_cast<std::uint16_t>(k + 1), even = k % 2 == 0 ? k : up;
        for (const auto& [value, code] : {std::pair(static_cast<float>(k) * 0x1p-24f, k),
                                          {std::nextafter(middle, 0.0f), k},
                                          {middle, even},
                                          {std::nextafter(middle, 1.0f), up}}) {
            x.insert(x.end(), {value, -value});
            expected.insert(expected.end(), {code, static_cast<std::uint16_t>(code | 0x8000)});
        }
    }
    std::vector<qk::float16> y(x.size());
    under_test::decode(qk::fp32, std::as_bytes(std::span(x)), y);
    for (std::size_t i = 0; i < y.size(); ++i) REQUIRE_MESSAGE(y[i].bits == expected[i], "float16 of ", x[i]);
}
