// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/transform.hpp"

namespace qk::graph::pipeline {

transformation transform(model& m, const data_settings& data, const std::vector<request>& requests, const quantize_options& options,
                         const step_limits& limits) {
    transformation done{.rotates = options.rotation != stream_rotation::none, .rotated = {}, .rule = options.scaling.how, .scaled = {}};
    if (done.rotates && data.has_statistics())
        throw error("'" + data.calibration[0] +
                    "' holds the statistics of the model before its rotation: give the samples, --calibration X.npy");
    if (done.rotates) done.rotated = rotate_streams(m);
    if (!options.scaling.any()) return done;
    if ((data.calibration.empty() && data.inputs.empty()) || data.has_statistics())
        throw error("scaling of channels needs the samples themselves: give --calibration X.npy");
    done.scaled = scale_channels(m, requests, options, data.load_calibration(m), data.threads, limits.worth);
    return done;
}

void add_to(quantize_report& report, const transformation& done) {
    if (done.rotates) add_to(report, done.rotated);
    add_to(report, done.scaled, done.rule);
}

}  // namespace qk::graph::pipeline
