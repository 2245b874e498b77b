// SPDX-License-Identifier: Apache-2.0
// Plants mistakes of converters as they are met in the field, one to three at once: a block's largest value looked for in the wrong place,
// wrong results beyond the range, subnormals, NVFP4's scales, zero points of channels.
#include <doctest/doctest.h>

#include "../../core/test_inputs.hpp"

#include <cmath>
#include "expected_causes.hpp"
#include "faulty_device.hpp"
#include "qk/qk.hpp"

namespace {

using faulty::element;
constexpr std::size_t length = 96;
const std::vector<std::int64_t> rows{64, 96};

/// Returns rows of blocks whose largest value, above all others, stands at every position in turn, with ties and subnormals below it.
values of_positions() {
    values x;
    generator g{17};
    for (std::size_t b = 0; b < 192; ++b) {
        const std::uint32_t top = 110 + g.below(24);
        for (std::size_t k = 0; k < 32; ++k) x.push_back(k == b % 32 ? tie(g, top + 1 + g.below(3)) : tie(g, top - g.below(18)));
    }
    return x;
}
/// Converts blocks of 32 as faulty::blocks does, with largest(row, first) as the largest value of the block that begins at row[first].
values converted(const values& x, const element& e, int top, const std::function<float(const values& row, std::size_t first)>& largest) {
    values y(x.size());
    for (std::size_t row = 0; row < x.size(); row += length) {
        const values v(x.begin() + static_cast<std::ptrdiff_t>(row), x.begin() + static_cast<std::ptrdiff_t>(row + length));
        for (std::size_t b = 0; b < length; b += 32) {
            const double scale = std::ldexp(1.0, std::ilogb(largest(v, b)) - top);
            for (std::size_t k = b; k < b + 32; ++k) y[row + k] = static_cast<float>(e(v[k], scale) * scale);
        }
    }
    return y;
}
float largest_within(const values& row, std::size_t from, std::size_t to) {
    float m = 0;
    for (std::size_t k = from; k < std::min(to, row.size()); ++k) m = std::max(m, std::abs(row[k]));
    return m;
}

}  // namespace

TEST_CASE("the block's largest value is looked for in the wrong place") {
    const values x = of_positions();
    element away = faulty::e4m3;
    away.mode = faulty::round_to::away;
    const auto late = [](const values& r, std::size_t b) { return largest_within(r, b + 1, b + 33); };
    expect("a window that is late, half away", of("mxfp8_e4m3", rows), rows, x, converted(x, away, 8, late),
           {{"one value too late"}, {"half-away"}});
    element shifted = faulty::e4m3;
    shifted.subnormal_shift = 1;
    const auto early = [](const values& r, std::size_t b) { return largest_within(r, b == 0 ? 0 : b - 1, b + 31); };
    expect("a window that is early, subnormals a place down", of("mxfp8_e4m3", rows), rows, x, converted(x, shifted, 8, early),
           {{"one value too early"}, {"binade too small", "subnormal"}});
    const auto half = [](const values& r, std::size_t b) { return largest_within(r, b, b + 16); };
    expect("half of the block", of("mxfp4", rows), rows, x, converted(x, faulty::e2m1, 2, half), {{"first half alone"}});
    const auto without = [](const values& r, std::size_t b) {
        return std::max(largest_within(r, b, b + 11), largest_within(r, b + 12, b + 32));
    };
    expect("one lane is not looked at, half away", of("mxfp8_e4m3", rows), rows, x, converted(x, away, 8, without),
           {{"the one at position 11"}, {"half-away"}});
    element four = shifted;
    four.mode = faulty::round_to::away;
    four.only = [](float v) { return v < 0; };
    four.flush = true;
    four.subnormal_shift = 0;
    expect("three: late, half away on negatives, flushed", of("mxfp8_e4m3", rows), rows, x, converted(x, four, 8, late),
           {{"one value too late"}, {"half-away", "negative"}, {"flushed"}});
}

TEST_CASE("what lies beyond the range, subnormals of their own, rounding away") {
    values x;
    generator g{23};
    for (int i = 0; i < 6000; ++i) x.push_back(tie(g, 112 + g.below(28)));
    for (const float v : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 0.0f, -0.0f}) x.push_back(v);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    const auto device = [&](element e, double beyond) {
        e.largest = 1e30;
        values y = faulty::each(x, e);
        for (float& v : y) v = std::abs(v) > 448 ? std::copysign(static_cast<float>(beyond), v) : v;
        return y;
    };
    element e = faulty::e4m3;
    e.flush = true;
    expect("Inf beyond the range, flushed", of("fp8_e4m3fn", shape), shape, x, device(e, HUGE_VAL),
           {{"beyond the largest number becomes Inf"}, {"flushed"}});
    e = faulty::e4m3;
    e.mode = faulty::round_to::away;
    expect("zero beyond the range, half away", of("fp8_e4m3fn", shape), shape, x, device(e, 0),
           {{"beyond the largest number becomes zero"}, {"half-away"}});
    values y = device(e, 448);
    element truncating = faulty::e4m3;
    truncating.guard = 1;
    truncating.mode = faulty::round_to::ties_to_zero;
    const values low = faulty::each(x, truncating);  // one bit behind the mantissa, ties toward zero: truncation
    for (std::size_t i = 0; i < x.size(); ++i)
        if (std::abs(x[i]) < 0x1p-6f) y[i] = low[i];
    expect("subnormals truncated, half away", of("fp8_e4m3fn", shape), shape, x, y, {{"subnormal results are truncated"}, {"half-away"}});
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float v = std::clamp(x[i], -448.0f, 448.0f), down = low[i] == low[i] ? std::clamp(low[i], -448.0f, 448.0f) : v;
        const float step = std::ldexp(1.0f, std::max(v == 0 ? -6 : std::ilogb(v), -6) - 3);
        y[i] = v == 0 ? x[i] : std::abs(down) < std::abs(v) ? std::copysign(std::min(std::abs(down) + step, 448.0f), v) : down;
        if (y[i] == 0 && std::signbit(x[i])) y[i] = 0.0f;
    }
    expect("away from zero", of("fp8_e4m3fn", shape), shape, x,
           [&] {
               values z = y;
               for (std::size_t i = 0; i < z.size(); ++i)
                   if (x[i] == 0) z[i] = 0.0f;
               return z;
           }(),
           {{"rounds away from zero"}, {"sign of zero"}});
}

TEST_CASE("NVFP4's scales rounded up") {
    values x;
    generator g{29};
    for (int b = 0; b < 400; ++b)
        for (int k = 0; k < 16; ++k) x.push_back(tie(g, 118 + static_cast<std::uint32_t>(b % 8) + g.below(4)));
    const std::vector<std::int64_t> shape{400, 16};
    conversion c = of("nvfp4", shape);
    c.given = conversion::granularity::tensor;
    c.scale = {0.25f};
    values y(x.size());
    element e = faulty::e2m1;
    e.mode = faulty::round_to::away;
    for (std::size_t b = 0; b < x.size(); b += 16) {
        const float q =
            faulty::largest({x.begin() + static_cast<std::ptrdiff_t>(b), x.begin() + static_cast<std::ptrdiff_t>(b + 16)}) / 6 / 0.25f;
        const float step = std::ldexp(1.0f, std::max(std::ilogb(q), -6) - 3), scale = std::min(std::ceil(q / step) * step, 448.0f) * 0.25f;
        for (std::size_t k = b; k < b + 16; ++k) y[k] = static_cast<float>(e(x[k] / scale, 1)) * scale;
    }
    expect("scales up, half away", c, shape, x, y, {{"scale is rounded up to a number of its format"}, {"half-away"}});
}

TEST_CASE("zero points and scales of channels") {
    const std::vector<std::int64_t> shape{8, 300};
    conversion c = of("int8", shape);
    c.given = conversion::granularity::channel;
    c.scale_axis = 0;
    c.scale_blocks = qk::compare::seen_along(shape, 0);
    c.scale = {0.5f, 0.25f, 1.0f, 0.125f, 2.0f, 0.75f, 0.3f, 0.11f};
    c.zero_point = {3, -4, 5, 0, 7, -9, 11, 2};
    values x = make_inputs(data::ordinary, 2400, 31);
    generator g{5};
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = g.below(4) == 0 ? (static_cast<float>(g.below(120)) - 59.5f) * c.scale[i / 300] : 30 * x[i] * c.scale[i / 300];
    const auto device = [&](const std::function<double(std::size_t)>& zero, const std::function<double(std::size_t)>& scale, bool away) {
        values y;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t n = i / 300;
            const double q = static_cast<double>(x[i] / static_cast<float>(scale(n))), r = away ? std::round(q) : std::nearbyint(q);
            const double code = std::clamp(r + zero(n), -128.0, 127.0);
            y.push_back(static_cast<float>((code - static_cast<double>(c.zero_point[n])) * static_cast<double>(c.scale[n])));
        }
        return y;
    };
    const auto right_zero = [&](std::size_t n) { return static_cast<double>(c.zero_point[n]); };
    const auto right_scale = [&](std::size_t n) { return static_cast<double>(c.scale[n]); };
    expect("one channel's zero point one too high, half away", c, shape, x,
           device([&](std::size_t n) { return right_zero(n) + (n == 5); }, right_scale, true),
           {{"one too high", "the channel is 5"}, {"half-away"}});
    expect("zero points left out", c, shape, x, device([](std::size_t) { return 0.0; }, right_scale, false),
           {{"left out when a value is converted"}});
    expect("scales of the channel before", c, shape, x,
           device(
               right_zero, [&](std::size_t n) { return right_scale(n == 0 ? 0 : n - 1); }, true),
           {{"scale of the channel before"}, {"half-away"}});
    expect("zero points of the channel behind", c, shape, x,
           device([&](std::size_t n) { return right_zero(n == 7 ? 7 : n + 1); }, right_scale, false),
           {{"zero point of the channel behind"}});
}
