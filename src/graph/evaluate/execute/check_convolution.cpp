// SPDX-License-Identifier: Apache-2.0
#include "graph/evaluate/execute/check_convolution.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace qk::graph::execute {
namespace {

constexpr std::size_t checked_products = 1 << 20;  ///< takes about a millisecond

convolution_numbers drawn(const convolution_case& c) {
    std::mt19937 random(1);
    const auto fill = [&](std::int64_t count, std::int64_t low, std::int64_t high) {
        std::vector<std::int32_t> v(static_cast<std::size_t>(count));
        for (std::int32_t& e : v)
            e = static_cast<std::int32_t>(low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1)));
        return v;
    };
    convolution_numbers d;
    d.x = fill(c.n * c.x[0] * c.x[1] * c.groups * c.in, c.lowest_x, c.highest_x);
    d.w = fill(c.groups * c.out * c.in * c.kernel[0] * c.kernel[1], c.lowest_w, c.highest_w);
    const auto channels = static_cast<std::size_t>(c.groups * c.out);
    for (std::size_t i = 0; c.bias && i < channels; ++i) d.bias.push_back(static_cast<float>(static_cast<int>(random() % 201) - 100));
    for (std::size_t i = 0; c.scaled && i < channels; ++i) d.scale.push_back(i % 2 == 0 ? 0.5f : 2.0f);
    d.y.assign(static_cast<std::size_t>(c.n * c.y[0] * c.y[1]) * channels, 0.0f);
    if (c.add)
        for (float& v : d.y) v = static_cast<float>(static_cast<int>(random() % 201) - 100);
    return d;
}

/// Returns one value of the result; `at` is its place in memory, `added` what was there.
float expected(const convolution_case& c, const convolution_numbers& d, std::size_t at, float added) {
    const auto place = static_cast<std::int64_t>(at);
    const std::int64_t channels = c.groups * c.out, channel = place % channels, column = place / channels % c.y[1],
                       row = place / channels / c.y[1] % c.y[0], sample = place / channels / c.y[1] / c.y[0], group = channel / c.out;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < c.kernel[0]; ++i)
        for (std::int64_t j = 0; j < c.kernel[1]; ++j) {
            const std::int64_t down = row * c.stride[0] - c.pad[0] + i * c.dilation[0],
                               across = column * c.stride[1] - c.pad[1] + j * c.dilation[1];
            if (down < 0 || down >= c.x[0] || across < 0 || across >= c.x[1]) continue;
            const std::size_t x = static_cast<std::size_t>((((sample * c.x[0] + down) * c.x[1] + across) * c.groups + group) * c.in);
            for (std::int64_t k = 0; k < c.in; ++k) {
                const std::size_t w = static_cast<std::size_t>(((channel * c.in + k) * c.kernel[0] + i) * c.kernel[1] + j);
                sum += (d.x[x + static_cast<std::size_t>(k)] - c.zero) * d.w[w];
            }
        }
    float y = static_cast<float>(sum);
    if (c.bias) y += d.bias[static_cast<std::size_t>(channel)];
    if (c.scaled) y *= d.scale[static_cast<std::size_t>(channel)];
    if (c.add) y += added;
    return c.relu ? std::max(y, 0.0f) : y;
}

}  // namespace

bool computes_right(const convolution_case& c, const std::function<void(convolution_numbers&)>& run) {
    convolution_numbers d = drawn(c);
    const std::vector<float> before = d.y;
    run(d);
    const std::size_t all = d.y.size(), each = static_cast<std::size_t>(c.in * c.kernel[0] * c.kernel[1]);
    if (all == 0) return true;
    const std::size_t count = std::min(all, std::max<std::size_t>(checked_products / std::max<std::size_t>(each, 1), 64));
    // Steps of the golden section reach every channel and every place sooner or later; a step without a common factor reaches all.
    std::size_t step = count == all ? 1 : static_cast<std::size_t>(static_cast<double>(all) * 0.618) | 1;
    while (std::gcd(step, all) != 1) ++step;
    for (std::size_t i = 0, at = all - 1; i < count; ++i, at = (at + step) % all)
        if (d.y[at] != expected(c, d, at, before[at])) return false;
    return true;
}

}  // namespace qk::graph::execute
