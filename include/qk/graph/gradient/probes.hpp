// SPDX-License-Identifier: Apache-2.0
// The vectors that Jacobians are probed with: orthonormal within a sample, and in the metric of a loss.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/gradient/distribution.hpp"

namespace qk::graph::gradient {

/// `count` orthonormal vectors of n values: the unit vectors if they are as many, else random ones.
inline std::vector<std::vector<double>> orthonormal(std::size_t n, std::size_t count, std::uint64_t seed) {
    std::vector<std::vector<double>> all;
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    for (std::size_t k = 0; k < count; ++k) {
        std::vector<double> v(n, 0.0);
        if (count == n) {
            v[k] = 1;
            all.push_back(std::move(v));
            continue;
        }
        for (double& x : v) x = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
        for (int twice = 0; twice < 2; ++twice) {
            for (const auto& u : all) {
                double dot = 0;
                for (std::size_t i = 0; i < n; ++i) dot += u[i] * v[i];
                for (std::size_t i = 0; i < n; ++i) v[i] -= dot * u[i];
            }
            double norm = 0;
            for (const double x : v) norm += x * x;
            for (double& x : v) x /= std::sqrt(norm);
        }
        all.push_back(std::move(v));
    }
    return all;
}

/// u in the metric of Fisher at an output y: S u with S S' = diag(p) - p p', p = softmax(y); for an output that is a distribution itself
/// u / sqrt(p).
inline void to_divergence(std::span<const double> y, std::vector<double>& u) {
    const output_scan seen = scan_output(y);
    if (seen.is_distribution) {
        for (std::size_t i = 0; i < u.size(); ++i) u[i] /= std::sqrt(std::max(y[i], 1e-6));
        return;
    }
    std::vector<double> root(y.size());
    double norm = 0, along = 0;
    for (std::size_t i = 0; i < y.size(); ++i) norm += root[i] = std::exp(y[i] - seen.largest);
    for (std::size_t i = 0; i < y.size(); ++i) root[i] = std::sqrt(root[i] / norm), along += root[i] * u[i];
    for (std::size_t i = 0; i < y.size(); ++i) u[i] = root[i] * (u[i] - along * root[i]);
}

/// How many vectors a run gets: `asked`, or as many as make 200 over all runs; at most as many as the output has values.
inline std::size_t probe_count(int asked, std::size_t runs, std::size_t values) {
    const std::size_t wanted = asked > 0 ? static_cast<std::size_t>(asked) : (200 + runs - 1) / runs;
    return std::min(wanted, values);
}

/// The vectors of one run with the output y (double) of `samples` samples; with `divergence` in the metric of Fisher, by sample.
inline std::vector<std::vector<double>> probes(const tensor& y, std::size_t count, std::size_t samples, bool divergence, std::uint64_t seed,
                                               std::size_t run) {
    std::vector<std::vector<double>> all = orthonormal(y.size(), count, seed * 0x9e3779b97f4a7c15u + run + 1);
    if (!divergence) return all;
    const std::size_t classes = y.size() / samples;
    for (std::vector<double>& v : all)
        for (std::size_t s = 0; s < samples; ++s) {
            const auto from = v.begin() + static_cast<std::ptrdiff_t>(s * classes);
            std::vector<double> part(from, from + static_cast<std::ptrdiff_t>(classes));
            to_divergence(y.as<double>().subspan(s * classes, classes), part);
            std::copy(part.begin(), part.end(), from);
        }
    return all;
}

}  // namespace qk::graph::gradient
