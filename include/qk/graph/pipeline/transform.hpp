// SPDX-License-Identifier: Apache-2.0
// What changes a model before it is planned: rotation of its streams, then scaling of its channels. Its float outputs stay.
#pragma once

#include <vector>

#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/quantize/rotate.hpp"
#include "qk/graph/quantize/scale_channels.hpp"

namespace qk::graph::pipeline {

struct transformation {
    bool rotates = false;
    std::vector<rotated_stream> rotated;
    channel_scaling::rule rule = channel_scaling::rule::none;
    std::vector<scaled_group> scaled;
};

/// As the options ask. The requests say which layers are narrowed, and to what. Error where samples are needed and there are only
/// statistics, which are those of the model as it was.
transformation transform(model& m, const data_settings& data, const std::vector<request>& requests, const quantize_options& options);

/// The remarks on it.
void add_to(quantize_report& report, const transformation& done);

}  // namespace qk::graph::pipeline
