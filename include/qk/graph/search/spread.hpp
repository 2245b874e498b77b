// SPDX-License-Identifier: Apache-2.0
// How far chance may move a metric: other samples would have given another number.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "qk/graph/search/metric.hpp"

namespace qk::graph {

/// Returns a metric over samples, from the terms of each.
double value_over(const metric& m, std::span<const metric_terms> samples);

/// Where a number lies in 95 of 100 cases.
struct interval {
    double low = 0, high = 0;
};

/// Returns where the metric lies with as many other samples of the same kind, by bootstrap: the metric plus the difference between two
/// draws of as many samples, with repetition, 1,000 times from a fixed seed. Few samples are taken into account as in the expanded
/// percentile interval (Hesterberg 2015, https://arxiv.org/abs/1411.5279, section 5.3). With one sample there are no ends: they are
/// infinite.
interval bootstrapped(const metric& m, std::span<const metric_terms> samples);

/// Returns the standard error of after - before, both measured on the same samples: by jackknife, which leaves out each sample in turn.
double error_of_difference(const metric& m, std::span<const metric_terms> before, std::span<const metric_terms> after);

/// What two measurements on the same samples say of each other.
struct measured_difference {
    interval metric{};  ///< where the second lies with as many other samples
    double value = 0;   ///< the second less the first
    double chance = 0;  ///< other samples move that by less, in 95 of 100 cases
    bool is_noise() const { return !(std::fabs(value) > chance); }
};
measured_difference difference_of(const metric& m, std::span<const metric_terms> before, std::span<const metric_terms> after);

/// Likewise for a measure that is known by its values alone: `measured` returns both for the samples of these numbers.
measured_difference difference_by_draws(double before, double after, std::size_t samples, std::size_t draws,
                                        const std::function<std::pair<double, double>(std::span<const std::size_t>)>& measured);

/// Returns the quantile of Student's distribution for `samples` where the normal distribution's is `z`.
double student(double z, std::size_t samples);

}  // namespace qk::graph
