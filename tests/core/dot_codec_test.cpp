// SPDX-License-Identifier: Apache-2.0
// Tests dot products of what encode wrote, and matrix products.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "qk/dispatch.hpp"
#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

std::vector<float> some_floats(std::size_t n, std::uint64_t seed) { return make_inputs(data::ordinary, n, seed); }

std::vector<std::byte> packed(const format& f, const std::vector<float>& x) {
    std::vector<std::byte> bytes(packed_bytes(f, along_axis{1, x.size(), 1}));
    if (!x.empty()) CHECK(dispatch::encode(f, x, bytes) == encode_status::done);
    return bytes;
}
float value(std::uint64_t code) { return std::bit_cast<float>(static_cast<std::uint32_t>(code)); }

}  // namespace

TEST_CASE("what encode packed is what dot multiplies, in every format") {
    const std::size_t n = 100;
    const std::vector<float> x = some_floats(n, 3), y = some_floats(n, 4);
    const auto one = [&](const format& fa, const format& fb) {
        const auto a = packed(fa, x), b = packed(fb, y);
        std::vector<float> p(n), q(n);
        dispatch::decode(fa, a, p);
        dispatch::decode(fb, b, q);
        double sum = 0;  // exact enough: float32 keeps 29 bits less
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(p[i]) * static_cast<double>(q[i]);
        const float d = value(dot(fa, fb, accumulators::exact, {a, n}, {b, n}, 0));
        CHECK(static_cast<double>(d) == doctest::Approx(sum).epsilon(1e-6));
        if (std::holds_alternative<nvfloat>(fa) || std::holds_alternative<nvfloat>(fb)) return;
        float loop = 0;
        for (std::size_t i = 0; i < n; ++i) loop = std::fma(p[i], q[i], loop);
        CHECK(value(dot(fa, fb, accumulators::sequential_fp32, {a, n}, {b, n}, 0)) == loop);
    };
    one(fp16, bf16);
    one(fp8_e4m3fn, fp8_e5m2);
    one(fp6_e3m2, fp4_e2m1);
    one(int8, fp8_e4m3fnuz);
    one(mxfp8_e4m3, mxfp4);
    one(mxfp6_e2m3, mxint8);
    one(bfp16, bfp16);
    one(mx9, mx4);
    one(nvfp4, mxfp8_e5m2);
    one(nvfp4, nvfp4);
    const auto a = packed(mxfp4, x), b = packed(bfp16, y);
    CHECK(dot<mxfp4, bfp16, accumulators::exact>({a, n}, {b, n}) == value(dot(mxfp4, bfp16, accumulators::exact, {a, n}, {b, n}, 0)));
}

TEST_CASE("a matrix product is dot products: blocks along k on both sides, whatever k") {
    for (const product_shape s : {product_shape{3, 5, 70}, product_shape{2, 9, 300}, product_shape{1, 1, 0}, product_shape{4, 1, 33}}) {
        const std::vector<float> x = some_floats(s.m * s.k, 5), y = some_floats(s.k * s.n, 6), c = some_floats(s.m * s.n, 7);
        const along_axis rows{s.m, s.k, 1}, columns{1, s.k, s.n};
        std::vector<std::byte> a(packed_bytes(format(mxfp6_e3m2), rows)), b(packed_bytes(format(mxfp4), columns));
        CHECK(dispatch::encode(mxfp6_e3m2, x, a, rows) == encode_status::done);
        CHECK(dispatch::encode(mxfp4, y, b, columns) == encode_status::done);
        std::vector<float> d(s.m * s.n);
        constexpr accumulator how = devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator;
        matrix_multiply_add<mxfp6_e3m2, mxfp4, how>(s, {planes_of(layout_of(mxfp6_e3m2, rows), std::span<const std::byte>(a))},
                                                    {planes_of(layout_of(mxfp4, columns), std::span<const std::byte>(b))}, c, d);
        std::vector<float> row(s.k), column(s.k);
        for (std::size_t i = 0; i < s.m; ++i) {
            for (std::size_t j = 0; j < s.n; ++j) {
                for (std::size_t l = 0; l < s.k; ++l) row[l] = x[i * s.k + l], column[l] = y[l * s.n + j];
                const auto pa = packed(mxfp6_e3m2, row), pb = packed(mxfp4, column);
                const float one = dot<mxfp6_e3m2, mxfp4, how>({pa, s.k}, {pb, s.k}, c[i * s.n + j]);
                CHECK(d[i * s.n + j] == one);
            }
        }
    }
}

TEST_CASE("NVFP4's tensor scales multiply a device's sum, and C is added behind them") {
    const std::vector<float> x = some_floats(64, 8), y = some_floats(64, 9);
    auto a = packed(nvfp4, x), b = packed(nvfp4, y);
    constexpr accumulator how = devices::nvidia_rtx_blackwell_mma_block_scale_block16_f32_e2m1_e2m1_f32_ue4m3.accumulator;
    const float with = dot<nvfp4, nvfp4, how>({a, 64}, {b, 64}, 3.0f);
    float ta = 0, tb = 0;
    std::memcpy(&ta, a.data() + a.size() - 4, 4);
    std::memcpy(&tb, b.data() + b.size() - 4, 4);
    const float one = 1;
    std::memcpy(a.data() + a.size() - 4, &one, 4);
    std::memcpy(b.data() + b.size() - 4, &one, 4);
    const float plain = dot<nvfp4, nvfp4, how>({a, 64}, {b, 64});
    const double product = static_cast<double>(plain) * static_cast<double>(ta * tb);  // exact
    const double sum = product + 3;
    if (sum - 3 == product) CHECK(std::abs(static_cast<double>(with) - sum) <= std::abs(sum) * 0x1p-23);
    CHECK(ta != 1);
}
