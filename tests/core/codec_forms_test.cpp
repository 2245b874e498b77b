// SPDX-License-Identifier: Apache-2.0
// Tests that encode and decode of formats known when compiling give the bytes of the run-time form.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "qk/codec.hpp"
#include "qk/formats/catalogue.hpp"
#include "test_inputs.hpp"

namespace {

/// Planes far apart, in another order than a buffer's, are what the buffer is, in the compile-time and the run-time form.
const auto check_planes = []<auto F>(const std::vector<float>& x, const std::vector<std::byte>& buffer, const std::vector<float>& values) {
    const qk::packed_layout l = qk::layout_of(F, qk::along_axis{1, x.size(), 1});
    const qk::const_planes wanted = qk::planes_of(l, std::span<const std::byte>(buffer));
    const auto bytes = [](std::size_t n) { return std::vector<std::byte>(n + 3, std::byte{0xa5}); };  // three beyond, which stay
    for (const bool known : {true, false}) {
        auto tensor = bytes(l.tensor.bytes()), scales = bytes(l.scales.bytes()), shifts = bytes(l.shifts.bytes()),
             elements = bytes(l.elements.bytes());
        const qk::planes apart{elements, scales, shifts, tensor};
        if (known) qk::encode<F>(x, apart);
        else REQUIRE(qk::encode(F, x, apart) == qk::encode_status::done);
        const auto same = [](std::span<const std::byte> whole, const std::vector<std::byte>& own) {
            CHECK(std::equal(whole.begin(), whole.end(), own.begin()));
            for (std::size_t i = whole.size(); i < own.size(); ++i) CHECK(own[i] == std::byte{0xa5});
        };
        same(wanted.elements, elements), same(wanted.scales, scales), same(wanted.shifts, shifts), same(wanted.tensor, tensor);
        std::vector<float> y(x.size());
        known ? qk::decode<F>(apart, y) : qk::decode(F, apart, y);
        CHECK(std::memcmp(y.data(), values.data(), y.size() * sizeof(float)) == 0);
        const qk::const_planes read{.elements = elements, .scales = scales, .shifts = shifts, .tensor = tensor};
        std::fill(y.begin(), y.end(), -1.0f);
        known ? qk::decode<F>(read, y, qk::along_axis{1, x.size(), 1}) : qk::decode(F, read, y, qk::along_axis{1, x.size(), 1});
        CHECK(std::memcmp(y.data(), values.data(), y.size() * sizeof(float)) == 0);
    }
};

}  // namespace

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
        check_planes.operator()<F>(x, a, y);
        if constexpr (!qk::kernels::is_block_family<std::remove_const_t<decltype(F)>>) {
            std::vector<float> scale;
            for (std::size_t k = 0; k < (x.size() + 31) / 32; ++k) scale.push_back(0.25f + 0.01f * static_cast<float>(k * k % 61));
            const qk::per_block runs{scale, {}, {1, x.size(), 1}, 32};
            qk::encode<F>(x, a, runs);
            REQUIRE(qk::encode(F, x, b, runs) == qk::encode_status::done);
            CHECK(a == b);
            std::vector<float> again(x.size());
            qk::decode<F>(a, y, runs);
            qk::decode(F, a, again, runs);
            CHECK(std::memcmp(y.data(), again.data(), y.size() * sizeof(float)) == 0);
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
    check.operator()<qk::nf4>();
    check.operator()<qk::posit8>();
}
