// SPDX-License-Identifier: Apache-2.0
// Measures how far outputs [samples, classes] are from expected ones, sample by sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Returns each sample's largest absolute difference over the largest expected magnitude of all samples, in ascending order.
inline std::vector<float> sorted_errors(const tensor& got, const tensor& expected) {
    float largest = 0;
    for (const float v : expected.as<float>()) largest = std::max(largest, std::fabs(v));
    const auto classes = static_cast<std::size_t>(expected.dim(1));
    std::vector<float> errors;
    for (std::size_t begin = 0; begin < expected.size(); begin += classes) {
        float worst = 0;
        for (std::size_t i = begin; i < begin + classes; ++i)
            worst = std::max(worst, std::fabs(got.as<float>()[i] - expected.as<float>()[i]));
        errors.push_back(worst / largest);
    }
    std::sort(errors.begin(), errors.end());
    return errors;
}

}  // namespace qk::graph
