// SPDX-License-Identifier: Apache-2.0
// Tells whether a loss reads an output as probabilities or as logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace qk::graph::gradient {

struct output_scan {
    double largest = -std::numeric_limits<double>::infinity();
    bool is_distribution = true;  ///< all values are in [0, 1] and add up to 1 (probabilities); otherwise they are logits
};

inline output_scan scan_output(std::span<const double> y) {
    output_scan found;
    double sum = 0;
    for (const double v : y) {
        found.is_distribution = found.is_distribution && v >= 0 && v <= 1;
        found.largest = std::max(found.largest, v);
        sum += v;
    }
    found.is_distribution = found.is_distribution && std::abs(sum - 1) < 1e-3;
    return found;
}

}  // namespace qk::graph::gradient
