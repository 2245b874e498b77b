// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: a body of whole vectors, and a tail through the same step.
#pragma once

#include "qk/kernels/round.hpp"

namespace qk::kernels {

/// y[i] = step(x[i]); `index` is that of x[0] in the tensor (stochastic rounding).
template <class Arch, class Step>
void run_row(const float* x, float* y, std::size_t n, std::uint64_t index, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const bool random = step.random();
    const auto bits = [&](std::size_t i) { return random ? random_lanes<Arch>(step.seed(), index + i, 1) : vi<Arch>(0); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.complete(load<Arch>(x + i), bits(i)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.complete(load_some<Arch>(x + i, 1, n - i), bits(i)));
}

}  // namespace qk::kernels
