// SPDX-License-Identifier: Apache-2.0
// The cross-entropy of one sample's output and its label, with its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "graph/gradient/distribution.hpp"

namespace qk::graph::gradient {

/// Writes to g the gradient of -log p[label] / samples by one sample's output y; returns this loss. y holds probabilities if it is a
/// distribution, else logits.
inline double cross_entropy_gradient(std::span<const double> y, std::int64_t label, std::size_t samples, std::span<double> g) {
    const output_scan seen = scan_output(y);
    const auto at = static_cast<std::size_t>(label);
    const double share = 1 / static_cast<double>(samples);
    if (seen.is_distribution) {
        const double p = std::max(y[at], 1e-30);
        std::fill(g.begin(), g.end(), 0.0);
        g[at] = -share / p;
        return -std::log(p) * share;
    }
    double norm = 0;
    for (const double v : y) norm += std::exp(v - seen.largest);
    for (std::size_t i = 0; i < y.size(); ++i) g[i] = share * (std::exp(y[i] - seen.largest) / norm - (i == at ? 1.0 : 0.0));
    return share * (std::log(norm) + seen.largest - y[at]);
}

}  // namespace qk::graph::gradient
