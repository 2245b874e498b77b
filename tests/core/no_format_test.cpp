// SPDX-License-Identifier: Apache-2.0
// Tests the value of a failed parse_format: it gives NaN everywhere and no codes, so it cannot be taken for float32. Assertions are off, as
// in a release build.
#ifndef NDEBUG
#define NDEBUG
#endif
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "qk/qk.hpp"
#include "qk/reference.hpp"

TEST_CASE("a format that was not parsed is no format") {
    for (const char* text :
         {"e5m10", "", "int:bits=99", "mx:element=q,block=8", "nvfp:element=z", "float:exponent=5", "fp32:x", "bfp:block=x"}) {
        const qk::parsed<qk::format> f = qk::parse_format(text);
        CHECK(!f);
        CHECK(*f == qk::format(qk::no_format));
    }
    const qk::format f = *qk::parse_format("e5m10");
    CHECK(qk::check(f).view().find("parse_format failed") != std::string_view::npos);
    CHECK(qk::to_text(f) == "no format");
    CHECK(!qk::parse_format(qk::to_text(f).view()));
    CHECK(!qk::is_identity(f));
    CHECK(qk::packed_bytes(f, qk::along_axis{1, 1000, 1}) == 0);

    const std::vector<float> x{1, -2, 0, 3.5f}, scale(4, 1.0f);
    const auto all_nan = [](const std::vector<float>& y) {
        for (const float v : y) CHECK(std::isnan(v));
    };
    std::vector<float> y(4);
    qk::fake_quantize(f, x, y);
    all_nan(y);
    y.assign(4, 0);
    qk::fake_quantize(f, x, y, qk::affine{.scale = 2});
    all_nan(y);
    y.assign(4, 0);
    qk::fake_quantize(f, x, y, qk::per_channel{scale, {}, {1, 4, 1}});
    all_nan(y);
    y.assign(4, 0);
    qk::fake_quantize(f, x, y, qk::per_block{scale, {}, {1, 4, 1}, 1});
    all_nan(y);
    y.assign(4, 0);
    qk::reference::fake_quantize(f, x, y);
    all_nan(y);
    y.assign(4, 0);
    std::vector<std::byte> packed(8, std::byte{7});
    CHECK(qk::encode(f, x, packed) == qk::encode_status::no_code);
    CHECK(packed[0] == std::byte{7});
    qk::decode(f, packed, y);
    all_nan(y);
    std::vector<qk::float16> halves(3);
    qk::decode(f, packed, halves);
    CHECK(std::isnan(qk::widen(halves[2])));
    y.assign(4, 1);
    qk::fake_quantize_backward(f, x, scale, y);
    CHECK(y == std::vector<float>(4, 0.0f));
}
