// SPDX-License-Identifier: Apache-2.0
// How far chance may move a metric: other samples would have given another number.
#pragma once

#include <cstddef>
#include <span>

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

/// Returns the quantile of Student's distribution for `samples` where the normal distribution's is `z`.
double student(double z, std::size_t samples);

}  // namespace qk::graph
