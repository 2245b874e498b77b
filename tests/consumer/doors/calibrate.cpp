// SPDX-License-Identifier: Apache-2.0
// Ranges of every activation, from one pass over data. Includes one door of the installed package.
#include <cstdio>
#include <qk/graph/calibrate.hpp>

void print_ranges(const qk::graph::model& m, const qk::graph::named_tensors& data) {
    const qk::graph::calibration seen = qk::graph::calibrate(m, data, qk::graph::options_for(qk::graph::range_method::min_max));
    for (const auto& [name, statistics] : seen.tensors)
        std::printf("%s: %g to %g\n", name.c_str(), statistics.range.lo, statistics.range.hi);
}
