// SPDX-License-Identifier: Apache-2.0
// Changes a model before it is planned: rotates its residual streams, then scales channels. Its float outputs stay the same.
#pragma once

#include <vector>

#include "graph/quantize/scale_channels.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/quantize/learning.hpp"

namespace qk::graph::pipeline {

struct transformation {
    bool rotates = false;
    std::vector<rotated_stream> rotated;
    channel_scaling::rule rule = channel_scaling::rule::none;
    std::vector<scaled_group> scaled;

    /// Writes into a plan what was done.
    void into(precision_plan& plan) const;
};

/// Transforms the model as the options say. The requests say which layers are narrowed, and to what. Throws where samples are needed and
/// there are only statistics, which are those of the model before its transformation.
transformation transform(model& m, const data_settings& data, const std::vector<request>& requests, const quantize_options& options,
                         const step_limits& limits = {});

/// Adds the remarks on the transformation.
void add_to(quantize_report& report, const transformation& done);

}  // namespace qk::graph::pipeline
