// SPDX-License-Identifier: Apache-2.0
// Finds tensors of which calibration saw no value although it ran the model: empty caches, and results of nodes that read nothing else.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::detail {

inline bool is_never_filled(const layer_view& layers, const calibration& seen, const std::string& tensor, int depth = 0) {
    const model& m = layers.source();
    if (seen.tensors.contains(layers.root(tensor)) || seen.tensors.contains(tensor) || !layers.is_float(tensor) || depth > 8) return false;
    if (std::ranges::any_of(m.inputs(), [&](const value_info& i) { return i.name == tensor; })) return true;
    const int p = m.producer(tensor);
    if (p < 0) return false;
    const auto& inputs = m.graph().node(p).input();
    const auto is_data = [&](const std::string& i) { return layers.is_float(i); };
    return std::ranges::any_of(inputs, is_data) &&
           std::ranges::all_of(inputs, [&](const std::string& i) { return !is_data(i) || is_never_filled(layers, seen, i, depth + 1); });
}

}  // namespace qk::graph::detail
