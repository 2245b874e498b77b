// SPDX-License-Identifier: Apache-2.0
// What the tests of weights that are rounded with the layer's output in mind share: activations that depend on each other, a plan of
// weights alone, and whether two tensors are the same.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// Values of `shape` [samples, channels, ...]: elements depend on their neighbours and channels on each other, as those of pictures and
/// features do.
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

/// The plan that gives every weight of a layer this precision, and nothing else.
inline quantize_result weights_only(const model& m, const precision& weight, bool per_channel) {
    return planner(m).plan({{.scope = scope::everything, .role = role::weight, .what = weight}},
                           {.how = approach::weight_only, .per_channel = per_channel});
}

inline bool same(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::equal(a.as<float>().begin(), a.as<float>().end(), b.as<float>().begin());
}

}  // namespace qk::graph
