// SPDX-License-Identifier: Apache-2.0
// Compares gradients with finite differences of the straight-through function, and observers with plain loops.
#include <doctest/doctest.h>

#include "qk/backward.hpp"

#include <cmath>
#include "qk/observe.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

TEST_CASE("the gradient by x is that of the clipped identity") {
    for (const test_format& t : formats_named({"int8", "uint4", "int4", "fp8_e4m3fn", "fp4_e2m1", "int8:narrow"})) {
        const bool integers = qk::is_integer_format(t.format);
        const qk::affine a{.scale = 0.125f, .zero_point = t.name == "uint4" ? 5 : integers ? 1 : 0};
        const qk::format_facts k = qk::facts(t.format);
        const double low = (k.lowest - static_cast<double>(a.zero_point)) * 0.125,
                     high = (k.largest - static_cast<double>(a.zero_point)) * 0.125;
        std::vector<float> x = make_inputs(data::ordinary, 500, 4), grad(500, 1.0f), in(500);
        for (float& v : x) v *= static_cast<float>(high);
        qk::fake_quantize_backward(t.format, x, grad, in, a);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double h = 1e-4, v = static_cast<double>(x[i]);
            const double slope = (std::clamp(v + h, low, high) - std::clamp(v - h, low, high)) / (2 * h);
            if (slope == 0 || std::abs(slope - 1) < 1e-6) CHECK(static_cast<double>(in[i]) == std::round(slope));
        }
    }
    const std::vector<float> x{1, -2, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> in(4);
    qk::fake_quantize_backward<qk::mxfp4>(x, std::vector<float>(4, 3.0f), in);
    CHECK(in == std::vector<float>{3, 3, 0, 0});
}

TEST_CASE("the gradients by scale and zero point are those of LSQ") {
    // With the code q held fixed, y(s, z) = s (v + r) where r = q - z - v is the rounding's residue, or s (limit - z) outside the range.
    const qk::integer f = qk::uint4;
    const std::vector<float> x = [] {
        std::vector<float> v = make_inputs(data::ordinary, 400, 8);
        for (float& e : v) e *= 2;
        return v;
    }();
    std::vector<float> grad(x.size()), in(x.size());
    generator r{5};
    for (float& g : grad) g = static_cast<float>(r.uniform() - 0.5);
    const qk::affine a{.scale = 0.3f, .zero_point = 6};
    const qk::scale_gradient got = qk::fake_quantize_backward<qk::uint4>(x, grad, in, a);
    const auto loss = [&](double s, double z) {
        double sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double v0 = static_cast<double>(x[i]) / static_cast<double>(a.scale), residue = std::nearbyint(v0) - v0;
            const double v = static_cast<double>(x[i]) / s, low = static_cast<double>(qk::qmin(f)), high = static_cast<double>(qk::qmax(f));
            const bool inside = v0 + 6 >= low && v0 + 6 <= high;
            sum += static_cast<double>(grad[i]) * (inside ? s * (v + residue) : s * ((v0 + 6 < low ? low : high) - z));
        }
        return sum;
    };
    const double s = static_cast<double>(a.scale), h = 1e-5;
    CHECK(got.scale == doctest::Approx((loss(s + h, 6) - loss(s - h, 6)) / (2 * h)).epsilon(1e-4));
    CHECK(got.zero_point == doctest::Approx((loss(s, 6 + h) - loss(s, 6 - h)) / (2 * h)).epsilon(1e-4));
}

TEST_CASE("observers do not depend on how a tensor is cut") {
    const std::vector<float> x = make_inputs(data::special, 3000, 2);
    qk::observed_range whole, parts;
    whole.observe(x);
    for (std::size_t i = 0; i < x.size(); i += 37) parts.observe(std::span(x).subspan(i, std::min<std::size_t>(37, x.size() - i)));
    float low = 0, high = 0;
    std::size_t special = 0;
    for (const float v : x) {
        if (!std::isfinite(v)) ++special;
        else low = std::min(low, v), high = std::max(high, v);
    }
    for (const qk::observed_range& o : {whole, parts}) {
        CHECK(o.min == low);
        CHECK(o.max == high);
        CHECK(o.special == special);
        CHECK(o.count == x.size() - special);
    }
    std::vector<std::uint64_t> bins(16);
    qk::observe_histogram(std::vector<float>{-1, 0, 0.5f, 0.999f, 1, 7}, 0, 1, bins);
    CHECK(bins[0] == 2);
    CHECK(bins[8] == 1);
    CHECK(bins[15] == 3);
}
