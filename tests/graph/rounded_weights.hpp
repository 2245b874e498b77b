// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of rounding that minimizes the error of a layer's output: correlated activations, a plan of weights alone, and
// equality of tensors.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// Returns values of `shape` [samples, channels, ...] in which neighbouring elements and channels are correlated, as in pictures and
/// features.
inline tensor correlated(dims shape, unsigned seed = 1, float mean = 0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    tensor t(data_type::float32, std::move(shape));
    const auto channels = static_cast<std::size_t>(t.dim(1)), samples = static_cast<std::size_t>(t.dim(0)),
               places = t.size() / channels / samples;
    for (std::size_t s = 0; s < samples; ++s) {
        std::vector<float> common(places);
        float last = normal(random);
        for (float& v : common) v = last = 0.8f * last + 0.4f * normal(random);
        for (std::size_t i = 0; i < channels * places; ++i) {
            if (places == 1) last = 0.8f * last + 0.4f * normal(random);
            t.as<float>()[s * channels * places + i] = (places == 1 ? last : common[i % places]) + 0.3f * normal(random) + mean;
        }
    }
    return t;
}

/// Returns the plan that gives every layer's weight this precision and leaves everything else in float32.
inline quantize_result weights_only(const model& m, const precision& weight, bool per_channel) {
    return planner(m).plan({{.scope = scope::everything, .role = role::weight, .what = weight}},
                           {.how = approach::weight_only, .per_channel = per_channel});
}

inline bool same(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::equal(a.as<float>().begin(), a.as<float>().end(), b.as<float>().begin());
}

}  // namespace qk::graph
