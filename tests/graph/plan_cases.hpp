// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of plans: made-up ranges, and look-ups in a plan and its report.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk_test {

using namespace qk::graph;

/// Returns a calibration in which the k-th tensor has the range [-0.5 k, k], k from 1.
inline calibration made_up_ranges(const std::vector<std::string>& tensors, dims shape = {1, 4, 8, 8}) {
    calibration c;
    float hi = 1;
    for (const std::string& t : tensors) {
        tensor_statistics& s = c.tensors[t];
        s.shape = shape;
        s.range = {-0.5f * hi, hi};
        s.count = 100;
        hi += 1;
    }
    c.samples = 1;
    return c;
}
inline calibration residual_ranges() {
    return made_up_ranges({"x", "conv1_out", "relu1_out", "conv2_out", "add_out", "relu2_out", "pool_out", "y"});
}

inline std::string format_at(const precision_plan& p, const std::string& tensor, const std::string& consumer, int index) {
    const quantizer* q = p.find({tensor, consumer, index});
    return q ? qk::to_string(q->format) : "fp32";
}
inline std::size_t count(const quantize_report& r, plan_note::kind k) {
    return static_cast<std::size_t>(std::count_if(r.notes.begin(), r.notes.end(), [k](const plan_note& n) { return n.what == k; }));
}
inline bool says(const quantize_report& r, plan_note::kind k, const std::string& text) {
    return std::any_of(r.notes.begin(), r.notes.end(),
                       [&](const plan_note& n) { return n.what == k && (n.subject + ": " + n.text).find(text) != std::string::npos; });
}

}  // namespace qk_test
