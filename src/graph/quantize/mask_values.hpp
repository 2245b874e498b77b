// SPDX-License-Identifier: Apache-2.0
// Finds tensors that hold a mask: values near the lowest of their type, which no scale can hold together with others.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "graph/ops/elements.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::detail {

/// Is true when a range reaches a mask's values. Exporters mask with the lowest float32 (-3.4e38) or float16 (-65504), with half of it, or
/// with 1e30 and more.
inline bool holds_mask(const value_range& r, data_type type) {
    const double largest = std::max(std::fabs(static_cast<double>(r.lo)), std::fabs(static_cast<double>(r.hi)));
    return largest >= (type == data_type::float16 ? 32752.0 : 1e30);
}

/// Is true when an activation holds such values, or Inf or NaN, beside finite ones.
inline bool holds_mask(const tensor_statistics& s, data_type type) {
    return s.count > s.not_finite && (s.not_finite > 0 || holds_mask(s.range, type));
}
inline bool holds_mask(std::span<const float> constant, data_type type) {
    return holds_mask(range_of(constant), type) || std::ranges::any_of(constant, [](float v) { return !std::isfinite(v); });
}

/// Says why a tensor that holds a mask is left alone. `seen` is null for a weight, or where calibration saw no sample; `softmax` is the
/// mask's range where a Softmax tells that it is one.
inline std::string mask_sentence(const tensor_statistics* seen, const value_range* softmax) {
    constexpr const char* why = ", which no scale can hold together with other values: left as it is";
    if (seen != nullptr && seen->nan > 0)
        return "calibration saw NaN in " + std::to_string(seen->nan) + " of its " + std::to_string(seen->count) +
               " values, first in sample " + std::to_string(seen->nan_sample) + " (from 0): left as it is";
    const bool finite = seen == nullptr || seen->not_finite == 0;
    if (softmax != nullptr && finite) {
        const double lowest = static_cast<double>(std::fabs(softmax->lo) > std::fabs(softmax->hi) ? softmax->lo : softmax->hi);
        return formatted("holds a mask (values down to %.6g, which Softmax makes 0)%s", lowest, why);
    }
    if (seen == nullptr) return std::string("holds a mask (a constant that is infinite or the lowest of its type goes into it)") + why;
    return formatted("holds a mask (%svalues from %.3g to %.3g)%s", finite ? "" : "Inf beside ", static_cast<double>(seen->range.lo),
                     static_cast<double>(seen->range.hi), why);
}

/// Tensors that hold a mask as the graph alone tells: results of a constant mask, as long as operators pass its values on.
class masks_of_constants {
  public:
    bool contains(const model& m, const std::string& tensor) {
        if (!found_) find(m);
        return found_->contains(tensor);
    }

  private:
    /// Is true when an operator's result holds the values of this input. A constant is only a bound for `Max` and `Min`, and a table for
    /// `Gather`.
    static bool passes(std::string_view op, int input, bool constant) {
        if (one_of(op, {"Where", "Add", "Sub", "Mul", "Div", "Concat"})) return true;
        if (one_of(op, {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Split", "Expand", "Tile",
                        "Trilu", "Pad"}))
            return input == 0;
        if (op == "ScatterND" || op == "ScatterElements") return input != 1;
        return !constant && (op == "Max" || op == "Min" || ((op == "Gather" || op == "GatherND") && input == 0));
    }
    static bool is_mask(const model& m, const std::string& name) {
        const data_type type = m.constant_type(name);
        const bool real = type == data_type::float32 || type == data_type::float16 || type == data_type::bfloat16;
        if (!real || element_count(m.constant_shape(name)) > std::size_t{1} << 22) return false;
        const tensor t = m.constant(name);
        std::vector<float> values(t.size());
        return ops::read_elements(t.type(), t.bytes(), std::span<float>(values)) && holds_mask(std::span<const float>(values), type);
    }
    void find(const model& m) {
        found_.emplace();
        for (const onnx::NodeProto& n : m.graph().node()) {  // in network order
            if (!n.domain().empty() && n.domain() != "ai.onnx") continue;
            bool holds = false;
            if (const onnx::AttributeProto* filled = n.op_type() == "ConstantOfShape" ? find_attribute(n, "value") : nullptr;
                filled != nullptr) {
                const node_view view(n, 9);
                const tensor one = view.get_tensor("value");
                holds = one.type() == data_type::float32 && holds_mask(one.as<float>(), one.type());
            }
            for (int k = 0; k < n.input_size() && !holds; ++k) {
                const bool constant = m.is_constant(n.input(k));
                holds = passes(n.op_type(), k, constant) && (constant ? is_mask(m, n.input(k)) : found_->contains(n.input(k)));
            }
            if (holds) found_->insert(n.output().begin(), n.output().end());
        }
    }
    std::optional<std::set<std::string>> found_;
};

inline std::string destroyed_sentence(const edge_report& line) {
    return to_string(line.how.format) +
           formatted(" leaves little of it (%.1f dB; its values lie between %.3g and %.3g): most become 0 or clip", line.sqnr,
                     static_cast<double>(line.range.lo), static_cast<double>(line.range.hi));
}

}  // namespace qk::graph::detail
