// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: a body of whole vectors, and a tail through the same step.
#pragma once

#include "qk/kernels/round.hpp"

namespace qk::kernels {

/// y[i] = step(x[i]); `position` is that of x[0] in the caller's span (stochastic rounding).
template <class Arch, class Step>
void run_row(const float* x, float* y, std::size_t n, std::size_t position, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto bits = [&](std::size_t i, std::size_t count) { return random_lanes<Arch>(step.random(), position + i, 1, count); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.complete(load<Arch>(x + i), bits(i, w)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.complete(load_some<Arch>(x + i, 1, n - i), bits(i, n - i)));
}

}  // namespace qk::kernels
