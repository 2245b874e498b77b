// SPDX-License-Identifier: Apache-2.0
// Every operation of lanes/ on the vectors of the instruction set that this file is compiled for, against the same operation on one value.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "qk/lanes/code_lanes.hpp"
#include "qk/lanes/maxima.hpp"

namespace lanes_test {  // one source with other tests on some processors
namespace {

using namespace qk::kernels;
using arch = native;
constexpr std::size_t w = lanes<arch>;

std::uint32_t bits(float v) { return std::bit_cast<std::uint32_t>(v); }
/// NaN is NaN: processors give it other signs.
bool same(float a, float b) { return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b)); }
bool same(std::int32_t a, std::int32_t b) { return a == b; }
bool same(bool a, bool b) { return a == b; }

template <class T>
std::vector<T> out_of(batch<T, arch> v) {
    std::vector<T> lane(w);
    v.store_unaligned(lane.data());
    return lane;
}
std::vector<bool> out_of(mask<arch> m) {
    std::vector<bool> lane(w);
    for (std::size_t k = 0; k < w; ++k) lane[k] = (bits_of<arch>(m) >> k & 1) != 0;
    return lane;
}

/// Compares vector(a, b) with one(a[k], b[k]) in each lane, of every pair of values beside random ones.
template <class T, class Vector, class One>
void compare(const std::string& what, const std::vector<T>& values, const Vector& vector, const One& one) {
    CAPTURE(what);
    std::size_t wrong = 0;
    std::vector<T> a(w), b(w);
    for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t j = 0; j + w <= values.size(); ++j) {
            for (std::size_t k = 0; k < w; ++k) {
                a[k] = values[(i + k * k) % values.size()];
                b[k] = values[j + k];
            }
            const auto got = out_of(vector(batch<T, arch>::load_unaligned(a.data()), batch<T, arch>::load_unaligned(b.data())));
            for (std::size_t k = 0; k < w; ++k) wrong += same(got[k], one(a[k], b[k])) ? 0 : 1;
        }
    CHECK(wrong == 0);
}

std::vector<std::int32_t> integers() {
    std::vector<std::int32_t> v = {
        0, 1, -1, 2, 3, -7, 255, 256, -256, 65535, 65536, INT32_MAX, INT32_MIN, INT32_MAX - 1, INT32_MIN + 1, 0x7f800000};
    std::mt19937 random(1);
    while (v.size() < 80) v.push_back(std::bit_cast<std::int32_t>(static_cast<std::uint32_t>(random())));
    return v;
}
std::vector<float> floats() {  // no NaN: operations keep other payloads
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> v = {0.0f,       -0.0f,   1.0f,           -1.0f,           0.5f, 1.5f, 2.5f, -2.5f, 0x1p-149f,
                            -0x1p-126f, 0x1p23f, 0x1.fffffep30f, 0x1.fffffep127f, inf,  -inf, 0.1f};
    std::mt19937 random(2);
    while (v.size() < 80) {
        const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        if (!std::isnan(f)) v.push_back(f);
    }
    return v;
}
[[gnu::noinline]] void put_constant(std::int32_t* to) {
    const std::int32_t from[8] = {255, 0, 255, 0, 0, 0, 0, 0};
    std::memcpy(to, from, sizeof from);
}
std::uint32_t u(std::int32_t v) { return static_cast<std::uint32_t>(v); }
std::int32_t s(std::uint32_t v) { return static_cast<std::int32_t>(v); }

}  // namespace

TEST_CASE("integers wrap around, and compare with their sign") {
    using V = vi<arch>;
    const std::vector<std::int32_t> v = integers();
    compare(
        "+", v, [](V a, V b) { return a + b; }, [](auto a, auto b) { return s(u(a) + u(b)); });
    compare(
        "-", v, [](V a, V b) { return a - b; }, [](auto a, auto b) { return s(u(a) - u(b)); });
    compare(
        "*", v, [](V a, V b) { return a * b; }, [](auto a, auto b) { return s(u(a) * u(b)); });
    compare(
        "negated", v, [](V a, V) { return -a; }, [](auto a, auto) { return s(0 - u(a)); });
    compare(
        "&", v, [](V a, V b) { return a & b; }, [](auto a, auto b) { return a & b; });
    compare(
        "|", v, [](V a, V b) { return a | b; }, [](auto a, auto b) { return a | b; });
    compare(
        "^", v, [](V a, V b) { return a ^ b; }, [](auto a, auto b) { return a ^ b; });
    compare(
        "~", v, [](V a, V) { return ~a; }, [](auto a, auto) { return ~a; });
    compare(
        "<< 5", v, [](V a, V) { return a << 5; }, [](auto a, auto) { return s(u(a) << 5); });
    compare(
        ">> 16", v, [](V a, V) { return a >> 16; }, [](auto a, auto) { return a >> 16; });
    compare(
        ">> 31", v, [](V a, V) { return a >> 31; }, [](auto a, auto) { return a >> 31; });
    compare(
        "<< lanes", v, [](V a, V b) { return a << (b & V(31)); }, [](auto a, auto b) { return s(u(a) << (b & 31)); });
    compare(
        ">> lanes", v, [](V a, V b) { return a >> (b & V(31)); }, [](auto a, auto b) { return a >> (b & 31); });
    compare(
        "<", v, [](V a, V b) { return a < b; }, [](auto a, auto b) { return a < b; });
    compare(
        "<=", v, [](V a, V b) { return a <= b; }, [](auto a, auto b) { return a <= b; });
    compare(
        ">", v, [](V a, V b) { return a > b; }, [](auto a, auto b) { return a > b; });
    compare(
        ">=", v, [](V a, V b) { return a >= b; }, [](auto a, auto b) { return a >= b; });
    compare(
        "==", v, [](V a, V b) { return a == b; }, [](auto a, auto b) { return a == b; });
    compare(
        "!=", v, [](V a, V b) { return a != b; }, [](auto a, auto b) { return a != b; });
    compare(
        "min", v, [](V a, V b) { return min(a, b); }, [](auto a, auto b) { return a < b ? a : b; });
    compare(
        "max", v, [](V a, V b) { return max(a, b); }, [](auto a, auto b) { return a > b ? a : b; });
    compare(
        "select", v, [](V a, V b) { return select(a < b, a, V(7)); }, [](auto a, auto b) { return a < b ? a : 7; });
    compare(
        "all_bits", v, [](V a, V b) { return all_bits<arch>(a < b); }, [](auto a, auto b) { return a < b ? -1 : 0; });
    compare(
        "one_more", v, [](V a, V b) { return one_more(a, a < b); }, [](auto a, auto b) { return a < b ? s(u(a) + 1) : a; });
    compare(
        "signed_as", v, [](V a, V b) { return signed_as(select(b == V(0), V(0), a), b); },
        [](auto a, auto b) { return b == 0  ? 0
                                    : b > 0 ? a
                                            : s(0 - u(a)); });
}

TEST_CASE("floats") {
    using V = vf<arch>;
    const std::vector<float> v = floats();
    compare(
        "+", v, [](V a, V b) { return a + b; }, [](float a, float b) { return a + b; });
    compare(
        "-", v, [](V a, V b) { return a - b; }, [](float a, float b) { return a - b; });
    compare(
        "*", v, [](V a, V b) { return a * b; }, [](float a, float b) { return a * b; });
    compare(
        "/", v, [](V a, V b) { return a / b; }, [](float a, float b) { return a / b; });
    compare(
        "negated", v, [](V a, V) { return -a; }, [](float a, float) { return -a; });
    std::vector<float> with_nan = v;
    with_nan[5] = std::numeric_limits<float>::quiet_NaN(), with_nan[21] = -with_nan[5];
    compare(
        "<", with_nan, [](V a, V b) { return a < b; }, [](float a, float b) { return a < b; });
    compare(
        "<=", with_nan, [](V a, V b) { return a <= b; }, [](float a, float b) { return a <= b; });
    compare(
        "==", with_nan, [](V a, V b) { return a == b; }, [](float a, float b) { return a == b; });
    compare(
        "!=", with_nan, [](V a, V b) { return a != b; }, [](float a, float b) { return a != b; });
    compare(
        "min", v, [](V a, V b) { return min(a, b) + V(0.0f); }, [](float a, float b) { return std::fmin(a, b) + 0.0f; });
    compare(
        "max", v, [](V a, V b) { return max(a, b) + V(0.0f); }, [](float a, float b) { return std::fmax(a, b) + 0.0f; });
    compare(
        "select", v, [](V a, V b) { return select(a < b, a, V(7.0f)); }, [](float a, float b) { return a < b ? a : 7.0f; });
    compare(
        "one_more", v, [](V a, V b) { return one_more(a * a, a < b); }, [](float a, float b) { return a < b ? a * a + 1.0f : a * a; });
    compare(
        "clamp_magnitude", v, [](V a, V) { return clamp_magnitude(a, V(2.25f)); },
        [](float a, float) { return std::fmin(std::fmax(a, -2.25f), 2.25f); });
    compare(
        "fma", v, [](V a, V b) { return fma<arch>(a, b, V(1.5f)); },
        [](float a, float b) { return has_fused<arch>() ? std::fma(a, b, 1.5f) : a * b + 1.5f; });
    compare(
        "fnma", v, [](V a, V b) { return fnma<arch>(a, b, V(1.5f)); },
        [](float a, float b) { return has_fused<arch>() ? std::fma(-a, b, 1.5f) : 1.5f - a * b; });
}

TEST_CASE("a constant keeps its last words") {  // g++ 12.2 fills it with the first one on AVX-512; cmake/qk_flags.cmake keeps it from that
    std::int32_t number[8];
    put_constant(number);
    for (int k = 0; k < 8; ++k) CHECK(number[k] == (k == 0 || k == 2 ? 255 : 0));
}

TEST_CASE("whole numbers, conversions") {
    using V = vf<arch>;
    std::vector<float> v = {0.0f, 0.5f, 1.5f, 2.5f, 0.49999997f, 8388607.5f, 0x1p23f, 0x1.fffffep30f, 1e9f};
    std::mt19937 random(3);
    while (v.size() < 80) v.push_back(std::ldexp(static_cast<float>(random()), -static_cast<int>(1 + random() % 40)));
    compare(
        "nearest", v, [](V a, V) { return nearest(a); }, [](float a, float) { return std::nearbyint(a); });
    compare(
        "trunc", v, [](V a, V) { return trunc(a); }, [](float a, float) { return std::trunc(a); });
    compare(
        "trunc of a negative", v, [](V a, V) { return trunc(-a) - V(1.0f); }, [](float a, float) { return std::trunc(-a) - 1.0f; });
    compare(
        "to_int", v, [](V a, V) { return to_int(-a); }, [](float a, float) { return static_cast<std::int32_t>(-a); });
    compare(
        "to_float", integers(), [](vi<arch> a, vi<arch>) { return to_float(a); },
        [](std::int32_t a, std::int32_t) { return static_cast<float>(a); });
    compare(
        "carries", v, [](V a, V b) { return carries<arch>(a, as_int<arch>(b) << 7); },
        [](float a, float b) {
            return std::floor((static_cast<double>(a) - std::floor(static_cast<double>(a))) * 0x1p32) + u(s(bits(b) << 7)) >= 0x1p32;
        });
}

TEST_CASE("masks") {
    for (std::uint32_t m = 0; m < (1u << w); ++m) {
        const mask<arch> in = lanes_set<arch>(m);
        if (bits_of<arch>(in) != m || any(in) != (m != 0) || all(in) != (m == (1u << w) - 1) ||
            bits_of<arch>(~in) != (~m & ((1u << w) - 1)))
            FAIL_CHECK("mask ", m);
        if (bits_of<arch>(in & lanes_set<arch>(5 & ((1u << w) - 1))) != (m & 5) || bits_of<arch>(in | lanes_set<arch>(1)) != (m | 1))
            FAIL_CHECK("mask ", m);
    }
}

TEST_CASE("some lanes in memory") {
    std::vector<float> x(3 * w), y(3 * w);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    for (std::size_t count = 0; count <= w; ++count)
        for (const std::size_t stride : {std::size_t{1}, std::size_t{2}}) {
            const auto lane = out_of(load_some<arch>(x.data(), stride, count));
            std::fill(y.begin(), y.end(), -1.0f);
            store_some<arch>(y.data(), stride, count, load<arch>(x.data()));
            for (std::size_t k = 0; k < w; ++k) {
                CHECK(lane[k] == (k < count ? x[k * stride] : 0.0f));
                CHECK(y[k * stride] == (k < count ? x[k] : -1.0f));
            }
        }
    alignas(64) float aligned[w];
    stream<arch>(aligned, load<arch>(x.data()));
    end_streaming<arch>();
    CHECK(std::memcmp(aligned, x.data(), sizeof(aligned)) == 0);
    std::vector<std::uint8_t> bytes(w), bytes_back(w);
    std::vector<std::uint16_t> words(w), words_back(w);
    for (std::size_t k = 0; k < w; ++k) {
        bytes[k] = static_cast<std::uint8_t>(250 - 16 * k);
        words[k] = static_cast<std::uint16_t>(65530 - 4096 * k);
    }
    store_codes<arch>(bytes_back.data(), load_codes<arch>(bytes.data()) | vi<arch>(0x7f00));
    store_codes<arch>(words_back.data(), load_codes<arch>(words.data()) | vi<arch>(0x7f0000));
    CHECK(bytes == bytes_back);
    CHECK(words == words_back);
}

TEST_CASE("largest lanes of groups and blocks") {
    const std::vector<std::int32_t> v = integers();
    const auto groups = [&]<std::size_t Group>(std::integral_constant<std::size_t, Group>) {
        const auto got = out_of(max_of_group<Group, arch>(vi<arch>::load_unaligned(v.data())));
        for (std::size_t k = 0; k < w; ++k) CHECK(got[k] == *std::max_element(&v[k / Group * Group], &v[k / Group * Group] + Group));
    };
    groups(std::integral_constant<std::size_t, 1>());
    groups(std::integral_constant<std::size_t, (w < 2 ? w : 2)>());
    groups(std::integral_constant<std::size_t, (w < 4 ? w : 4)>());
    groups(std::integral_constant<std::size_t, w>());
    if constexpr (w > 1) {
        std::vector<std::int32_t> many = v;
        while (many.size() < w * w) many.insert(many.end(), v.begin(), v.end());
        vi<arch> rows[w];
        for (std::size_t b = 0; b < w; ++b) rows[b] = vi<arch>::load_unaligned(&many[b * w]);
        const auto got = out_of(maxima<arch>(rows));
        for (std::size_t b = 0; b < w; ++b) CHECK(got[b] == *std::max_element(&many[b * w], &many[b * w] + w));
    }
}

}  // namespace lanes_test
