// SPDX-License-Identifier: Apache-2.0
// Tensors that hold a mask: values as low as the type has them, which no scale can hold together with others.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::detail {

/// Exporters mask with the lowest float32 (-3.4e38) or float16 (-65504), with half of it, or with 1e30 and more.
inline bool holds_mask(const value_range& r, data_type type) {
    const double largest = std::max(std::fabs(static_cast<double>(r.lo)), std::fabs(static_cast<double>(r.hi)));
    return largest >= (type == data_type::float16 ? 32752.0 : 1e30);
}

inline std::string mask_sentence(const value_range& r) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "holds a mask (values from %.3g to %.3g), which no scale can hold together with other values: left as it is",
                  static_cast<double>(r.lo), static_cast<double>(r.hi));
    return text;
}

inline std::string destroyed_sentence(const edge_report& line) {
    char text[200];
    std::snprintf(text, sizeof text, " leaves little of it (%.1f dB; its values lie between %.3g and %.3g): most become 0 or clip",
                  line.sqnr, static_cast<double>(line.range.lo), static_cast<double>(line.range.hi));
    return to_string(line.how.format) + text;
}

}  // namespace qk::graph::detail
