// SPDX-License-Identifier: Apache-2.0
// How far chance may move a metric: other samples would have given another number.
#pragma once

#include <cstddef>
#include <span>

#include "qk/graph/search/metric.hpp"

namespace qk::graph {

/// Returns a metric over samples, from the terms of each.
double value_over(const metric& m, std::span<const metric_terms> samples);

/// The 95 % interval of a number.
struct interval {
    double low = 0, high = 0;
};

/// Returns the interval of a metric by bootstrap: 1,000 draws of as many samples, with repetition, from a fixed seed. It is the expanded
/// percentile interval, which takes few samples into account (Hesterberg 2015, https://arxiv.org/abs/1411.5279, section 5.3). With one
/// sample it has no ends: they are infinite.
interval bootstrapped(const metric& m, std::span<const metric_terms> samples);

/// Returns the standard error of after - before, both measured on the same samples: by jackknife, which leaves out each sample in turn.
double error_of_difference(const metric& m, std::span<const metric_terms> before, std::span<const metric_terms> after);

/// Returns the quantile of Student's distribution for `samples` where the normal distribution's is `z`.
double student(double z, std::size_t samples);

}  // namespace qk::graph
