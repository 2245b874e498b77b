// SPDX-License-Identifier: Apache-2.0
// The check of a library's convolution: right code passes, and one wrong value, in a channel, a row or a tail, does not.
#include <doctest/doctest.h>

#include <algorithm>

#include "graph/evaluate/execute/check_convolution.hpp"

using namespace qk::graph::execute;

namespace {

/// What a library that is right computes.
void convolve(const convolution_case& c, convolution_numbers& d) {
    std::size_t at = 0;
    for (std::int64_t n = 0; n < c.n; ++n)
        for (std::int64_t row = 0; row < c.y[0]; ++row)
            for (std::int64_t column = 0; column < c.y[1]; ++column)
                for (std::int64_t channel = 0; channel < c.groups * c.out; ++channel, ++at) {
                    double sum = c.bias ? static_cast<double>(d.bias[static_cast<std::size_t>(channel)]) : 0;
                    for (std::int64_t k = 0; k < c.in; ++k)
                        for (std::int64_t i = 0; i < c.kernel[0]; ++i)
                            for (std::int64_t j = 0; j < c.kernel[1]; ++j) {
                                const std::int64_t down = row * c.stride[0] + i * c.dilation[0] - c.pad[0],
                                                   across = column * c.stride[1] + j * c.dilation[1] - c.pad[1];
                                if (down < 0 || down >= c.x[0] || across < 0 || across >= c.x[1]) continue;
                                const std::int64_t from = ((n * c.x[0] + down) * c.x[1] + across) * c.groups * c.in +
                                                          channel / c.out * c.in + k,
                                                   w = ((channel * c.in + k) * c.kernel[0] + i) * c.kernel[1] + j;
                                sum +=
                                    static_cast<double>((d.x[static_cast<std::size_t>(from)] - c.zero) * d.w[static_cast<std::size_t>(w)]);
                            }
                    if (c.scaled) sum *= static_cast<double>(d.scale[static_cast<std::size_t>(channel)]);
                    if (c.add) sum += static_cast<double>(d.y[at]);
                    d.y[at] = static_cast<float>(c.relu ? std::max(sum, 0.0) : sum);
                }
}

convolution_case bytes(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t pad, std::int64_t size) {
    convolution_case c{};
    const std::int64_t side = size + 2 * pad - kernel + 1;
    c.n = 1, c.groups = 1, c.in = in, c.out = out;
    for (int i = 0; i < 2; ++i) c.x[i] = size, c.y[i] = side, c.kernel[i] = kernel, c.stride[i] = c.dilation[i] = 1, c.pad[i] = pad;
    c.lowest_x = 0, c.highest_x = 255, c.lowest_w = -128, c.highest_w = 127, c.bias = c.scaled = true;
    return c;
}

}  // namespace

TEST_CASE("a convolution that is right passes: kernels, groups, strides, dilation, zero points, addends") {
    for (const std::int64_t kernel : {1, 2, 3})
        for (const std::int64_t pad : {0, 1, 2}) {
            convolution_case c = bytes(24, 40, kernel, pad, 13);
            CHECK(computes_right(c, [&](convolution_numbers& d) { convolve(c, d); }));
            c.relu = c.add = true, c.zero = 100;
            CHECK(computes_right(c, [&](convolution_numbers& d) { convolve(c, d); }));
            c.groups = 4, c.in = 6, c.out = 10, c.bias = false;
            c.stride[0] = 2, c.y[0] = (13 + 2 * pad - kernel) / 2 + 1;
            CHECK(computes_right(c, [&](convolution_numbers& d) { convolve(c, d); }));
            c.dilation[1] = 2, c.y[1] = 13 + 2 * pad - 2 * (kernel - 1);
            CHECK(computes_right(c, [&](convolution_numbers& d) { convolve(c, d); }));
        }
}

TEST_CASE("a convolution with one wrong value fails, whichever value of a small result it is") {
    const convolution_case c = bytes(24, 40, 1, 1, 5);
    const std::size_t values = 7 * 7 * 40;
    for (std::size_t wrong = 0; wrong < values; wrong += 41) {
        CAPTURE(wrong);
        CHECK(!computes_right(c, [&](convolution_numbers& d) {
            convolve(c, d);
            d.y[wrong] += 1;
        }));
    }
}

TEST_CASE("of a large result a wrong channel, row or tail is seen") {
    const convolution_case c = bytes(64, 130, 3, 1, 40);
    const auto fails = [&](const auto& is_wrong) {
        return !computes_right(c, [&](convolution_numbers& d) {
            convolve(c, d);
            for (std::size_t i = 0; i < d.y.size(); ++i)
                if (is_wrong(i % 130, i / 130 % 40, i / 130 / 40)) d.y[i] += 1;
        });
    };
    CHECK(!fails([](auto...) { return false; }));
    CHECK(fails([](auto channel, auto, auto) { return channel == 129; }));
    CHECK(fails([](auto channel, auto, auto) { return channel >= 128; }));
    CHECK(fails([](auto, auto column, auto) { return column == 39; }));
    CHECK(fails([](auto, auto, auto row) { return row == 0; }));
    CHECK(fails([](auto channel, auto column, auto) { return channel >= 128 && column >= 32; }));
}

TEST_CASE("sums that saturate in 16 bits fail") {
    const convolution_case c = bytes(24, 40, 3, 0, 13);
    CHECK(!computes_right(c, [&](convolution_numbers& d) {
        convolve(c, d);
        for (float& v : d.y) v = std::min(v, 60000.0f);
    }));
}
