// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/transform.hpp"

namespace qk::graph::pipeline {

transformation transform(model& m, const data_settings& data, const std::vector<request>& requests, const quantize_options& options,
                         const step_limits& limits) {
    transformation done{.rotates = options.rotation != stream_rotation::none, .rotated = {}, .rule = options.scaling.how, .scaled = {}};
    if (done.rotates && data.has_statistics())
        throw error("'" + data.calibration.files[0] +
                    "' holds the statistics of the model before its rotation: give the samples, --calibration X.npy");
    if (done.rotates) done.rotated = rotate_streams(m);
    if (!options.scaling.any()) return done;
    if ((data.calibration.empty() && data.inputs.empty()) || data.has_statistics())
        throw error("scaling of channels needs the samples themselves: give --calibration X.npy");
    done.scaled = scale_channels(m, requests, options, data.load_calibration(m, limits.samples), data.threads, limits.worth);
    // What a recipe tried in vain is no remark.
    if (limits.worth < 1) std::erase_if(done.scaled, [](const scaled_group& g) { return g.left; });
    return done;
}

void transformation::into(precision_plan& plan) const {
    plan.rotated = rotates;
    for (const scaled_group& g : scaled)
        if (!g.left) plan.scaled.push_back(g.how);
}

void add_to(quantize_report& report, const transformation& done) {
    if (done.rotates) add_to(report, done.rotated);
    add_to(report, done.scaled, done.rule);
}

}  // namespace qk::graph::pipeline
