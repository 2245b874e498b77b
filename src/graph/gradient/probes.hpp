// SPDX-License-Identifier: Apache-2.0
// The vectors that probe Jacobians: orthonormal within a run, if wanted in the metric of a loss.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "graph/gradient/distribution.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::gradient {

/// Returns `count` orthonormal vectors of n values: the unit vectors if count == n, else random ones.
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

/// Brings u into the metric of Fisher at an output y: S u with S S' = diag(p) - p p', p = softmax(y), or u / sqrt(p) if y is a distribution
/// itself.
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

/// Returns how many vectors a run gets: `asked`, or if that is 0 as many as make 200 over all runs; at most as many as the output has
/// values.
inline std::size_t probe_count(int asked, std::size_t runs, std::size_t values) {
    const std::size_t wanted = asked > 0 ? static_cast<std::size_t>(asked) : (200 + runs - 1) / runs;
    return std::min(wanted, values);
}

/// Which vectors a run gets: `count` of them for an output of `samples` samples, with `divergence` in the metric of Fisher of each sample.
struct probe_choice {
    std::size_t count, samples;
    bool divergence;
    std::uint64_t seed;
    std::size_t run;
};

/// Calls visit(vector) for the vectors of one run with the output y (double). If there are many values and few vectors, these are random
/// signs: as good as orthogonal (Hutchinson 1990), made in no time, and held one at a time.
template <class Visit>
void each_probe(const tensor& y, const probe_choice& how, Visit&& visit) {
    const std::size_t n = y.size(), classes = n / how.samples;
    const std::uint64_t seed = how.seed * 0x9e3779b97f4a7c15u + how.run + 1;
    const auto give = [&](std::vector<double>& v) {
        for (std::size_t s = 0; how.divergence && s < how.samples; ++s) {
            const auto from = v.begin() + static_cast<std::ptrdiff_t>(s * classes);
            std::vector<double> part(from, from + static_cast<std::ptrdiff_t>(classes));
            to_divergence(y.as<double>().subspan(s * classes, classes), part);
            std::copy(part.begin(), part.end(), from);
        }
        visit(std::span<const double>(v));
    };
    if (n < 65536 || n / 256 < how.count) {
        for (std::vector<double>& v : orthonormal(n, how.count, seed)) give(v);
        return;
    }
    std::mt19937_64 random(seed);
    const double unit = 1 / std::sqrt(static_cast<double>(n));
    std::vector<double> v(n);
    for (std::size_t k = 0; k < how.count; ++k) {
        for (std::size_t i = 0; i < n; i += 64) {
            std::uint64_t word = random();
            for (std::size_t j = i; j < std::min(n, i + 64); ++j, word >>= 1) v[j] = (word & 1) != 0 ? unit : -unit;
        }
        give(v);
    }
}

}  // namespace qk::graph::gradient
