// SPDX-License-Identifier: Apache-2.0
// Tests that encode and decode of formats known when compiling give the bytes of the run-time form.
#include <doctest/doctest.h>

#include "qk/codec.hpp"
#include "qk/formats/catalogue.hpp"
#include "test_inputs.hpp"

TEST_CASE("compile-time and run-time forms give the same bytes; 16-bit memory on either side") {
    std::vector<float> x;
    const auto check_one = [&]<auto F>() {
        std::vector<std::byte> a(qk::packed_bytes<F>(x.size())), b(a.size());
        qk::encode<F>(x, a);
        REQUIRE(qk::encode(F, x, b) == qk::encode_status::done);
        CHECK(a == b);
        std::vector<qk::float16> h(x.size()), h2(x.size());
        std::vector<qk::bfloat16> g(x.size());
        std::vector<float> y(x.size()), wide(x.size());
        qk::decode<F>(a, y);
        qk::decode<F>(a, h);
        qk::decode<F>(a, g);
        for (std::size_t i = 0; i < x.size(); ++i) {
            REQUIRE(h[i].bits == qk::narrow<qk::float16>(y[i]).bits);
            REQUIRE(g[i].bits == qk::narrow<qk::bfloat16>(y[i]).bits);
            h2[i] = qk::narrow<qk::float16>(x[i]);
            wide[i] = qk::widen(h2[i]);
        }
        qk::encode<F>(h2, a);
        qk::encode<F>(wide, b);
        CHECK(a == b);
    };
    const auto check = [&]<auto F>() {
        for (const data kind : {data::ties, data::ordinary, data::sparse}) {
            x = make_inputs(kind, 999, 1);
            check_one.operator()<F>();
        }
    };
    check.operator()<qk::mxfp4>();
    check.operator()<qk::bfp16>();
    check.operator()<qk::mx6>();
    check.operator()<qk::fp6_e3m2>();
    check.operator()<qk::int4>();
    check.operator()<qk::nvfp4>();
    check.operator()<qk::mx9>();
    check.operator()<qk::mxint8>();
    check.operator()<qk::fp8_e4m3fn>();
    check.operator()<qk::int8>();
}
