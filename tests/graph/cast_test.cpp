// SPDX-License-Identifier: Apache-2.0
// Cast: round trips of every code of every small type, every float16 to every small type against the oracle, integers at their limits.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "call_op.hpp"
#include "graph/ops/elements.hpp"
#include "qk/reference.hpp"

using namespace qk::graph;
using namespace qk_test;

namespace {

constexpr data_type small_floats[] = {data_type::float8e4m3fn, data_type::float8e4m3fnuz, data_type::float8e5m2, data_type::float8e5m2fnuz,
                                      data_type::float6e2m3,   data_type::float6e3m2,     data_type::float4e2m1};

tensor cast(const tensor& x, data_type to, const attributes& more = {}) {
    attributes a = more;
    a.emplace_back("to", static_cast<std::int64_t>(to));
    return call_op("Cast", 28, {x}, a)[0];
}

tensor every_half() {
    tensor t(data_type::float16, {65536});
    for (std::uint32_t i = 0; i < 65536; ++i) t.as<half>()[i] = {static_cast<std::uint16_t>(i)};
    return t;
}

}  // namespace

TEST_CASE("every code of a small float survives a trip through float32, float16 and bfloat16") {
    for (const data_type type : small_floats) {
        const int codes = 1 << ops::bits_of(type);
        tensor x(type, {codes});
        for (int i = 0; i < codes; ++i) x.as<std::uint8_t>()[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
        for (const data_type wide : {data_type::float32, data_type::float16, data_type::bfloat16, data_type::float64}) {
            const tensor there = cast(x, wide), back = cast(there, type);
            for (std::size_t i = 0; i < x.size(); ++i) {
                const float v = ops::small_float_table(type)[i];
                if (!std::isfinite(v)) continue;  // NaN has several codes, and Inf saturates: neither comes back as the same code
                INFO(std::string(name_of(type)), " through ", std::string(name_of(wide)), ", code ", i);
                CHECK(back.as<std::uint8_t>()[i] == x.as<std::uint8_t>()[i]);
            }
        }
    }
}

TEST_CASE("float16 to every small float agrees with the oracle, saturating and not") {
    const tensor x = every_half(), wide = cast(x, data_type::float32);
    for (const data_type type : small_floats) {
        for (const bool saturate : {true, false}) {
            const tensor y = cast(cast(x, type, {{"saturate", std::int64_t{saturate}}}), data_type::float32);
            qk::semantics how = qk::semantics::ocp;
            how.overflow = saturate ? qk::overflow_rule::saturate : qk::overflow_rule::ieee;
            how.nan_without_code = qk::nan_rule::negative_zero;
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                const float in = wide.as<float>()[i], got = y.as<float>()[i];
                const float expected = qk::reference::quantize(ops::format_of(type), in, how, 0);
                const bool same =
                    std::isnan(expected) ? std::isnan(got) : std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(got);
                if (!same && wrong++ < 3)
                    MESSAGE(std::string(name_of(type)), " saturate=", saturate, ": ", in, " became ", got, ", not ", expected);
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("float64 and int64 are rounded once, not by way of float32") {
    // A float64 just above a tie of float16: rounding to float32 first would land on the tie and then go down.
    const tensor x = values<double>({2}, {1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-11 - 0x1p-40});
    const tensor y = cast(x, data_type::float16);
    CHECK(y.as<half>()[0].bits == 0x3c01);
    CHECK(y.as<half>()[1].bits == 0x3c00);
    const tensor z = cast(values<std::int64_t>({2}, {(std::int64_t{1} << 60) + (std::int64_t{1} << 52) + 1,
                                                     -(std::int64_t{1} << 60) - (std::int64_t{1} << 52) - 1}),
                          data_type::bfloat16);
    CHECK(z.as<brain>()[0].bits == 0x5d81);
    CHECK(z.as<brain>()[1].bits == 0xdd81);
}

TEST_CASE("integers wrap, floats truncate, booleans are nonzero") {
    const tensor x = values<std::int16_t>({4}, {200, -1, 9, -9});
    CHECK(cast(x, data_type::int8).as<std::int8_t>()[0] == -56);
    CHECK(cast(x, data_type::int4).as<std::int8_t>()[2] == -7);
    CHECK(cast(x, data_type::uint4).as<std::uint8_t>()[1] == 15);
    CHECK(cast(x, data_type::uint2).as<std::uint8_t>()[2] == 1);
    CHECK(cast(x, data_type::boolean).as<std::uint8_t>()[3] == 1);
    const tensor f = values<float>({3}, {-2.9f, 2.9f, 0.4f});
    CHECK(cast(f, data_type::int32).as<std::int32_t>()[0] == -2);
    CHECK(cast(f, data_type::uint8).as<std::uint8_t>()[1] == 2);
    CHECK(cast(f, data_type::boolean).as<std::uint8_t>()[2] == 1);
}

TEST_CASE("float8e8m0 rounds as its attribute says") {
    const tensor x = values<float>({6}, {1.0f, 1.25f, 1.5f, 0x1p-127f, std::ldexp(1.75f, 127), 0.0f});
    const auto codes = [&](const char* mode, std::int64_t saturate) {
        const tensor y = cast(x, data_type::float8e8m0, {{"round_mode", std::string(mode)}, {"saturate", saturate}});
        return std::vector<int>(y.as<std::uint8_t>().begin(), y.as<std::uint8_t>().end());
    };
    CHECK(codes("up", 1) == std::vector<int>{127, 128, 128, 0, 254, 0});
    CHECK(codes("down", 1) == std::vector<int>{127, 127, 127, 0, 254, 0});
    CHECK(codes("nearest", 0) == std::vector<int>{127, 127, 128, 0, 255, 255});
}

TEST_CASE("a cast that is not supported names the node") {
    CHECK_THROWS_WITH_AS(cast(zero_of(data_type::float32, {1}), data_type::string), doctest::Contains("node_under_test"), error);
}
