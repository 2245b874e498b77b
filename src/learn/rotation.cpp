// SPDX-License-Identifier: Apache-2.0
// Applies the orthogonal matrix of rotate.hpp, equation (4), factor by factor: H log H steps for a row if H is a power of two.
#include <cmath>
#include <numbers>

#include "learn/rotate.hpp"

namespace qk::learn {
namespace {

/// splitmix64: https://prng.di.unimi.it/splitmix64.c
std::uint64_t next(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

}  // namespace

rotation::rotation(std::size_t channels, std::uint64_t seed) : sign_(channels, 1), rest_(channels) {
    while (rest_ > 1 && rest_ % 2 == 0) rest_ /= 2;
    for (double& s : sign_) s = (next(seed) >> 63) != 0 ? -1 : 1;
    const auto n = static_cast<double>(rest_);
    for (std::size_t i = 0; i < rest_ && rest_ > 1; ++i)
        for (std::size_t j = 0; j < rest_; ++j) {
            const double angle = 2 * std::numbers::pi * static_cast<double>(i * j % rest_) / n;
            hartley_.push_back((std::cos(angle) + std::sin(angle)) / std::sqrt(n));
        }
}

void rotation::times(std::span<double> row) const {
    const std::size_t power = row.size() / rest_;
    const double scale = 1 / std::sqrt(static_cast<double>(power));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] *= sign_[i] * scale;
    for (std::size_t half = 1; half < power; half *= 2)
        for (std::size_t first = 0; first < power; first += 2 * half)
            for (std::size_t i = first * rest_; i < (first + half) * rest_; ++i) {
                const double a = row[i], b = row[i + half * rest_];
                row[i] = a + b, row[i + half * rest_] = a - b;
            }
    if (rest_ == 1) return;
    std::vector<double> mixed(rest_);
    for (std::size_t first = 0; first < row.size(); first += rest_) {
        for (std::size_t j = 0; j < rest_; ++j) {
            mixed[j] = 0;
            for (std::size_t i = 0; i < rest_; ++i) mixed[j] += row[first + i] * hartley_[i * rest_ + j];
        }
        std::copy(mixed.begin(), mixed.end(), row.begin() + static_cast<std::ptrdiff_t>(first));
    }
}

}  // namespace qk::learn
