// SPDX-License-Identifier: Apache-2.0
// The fingerprint that a function of style portable has at the end of its documentation, by which an edited body is known.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "qk/portable/function.hpp"

namespace qk::graph::detail {

/// Writes the fingerprint of a function's body behind the mark in its documentation, which it adds where there is none.
inline void sign(onnx::FunctionProto& f) {
    std::string text = f.doc_string();
    text.erase(std::min(text.size(), text.rfind(portable::body_mark)));
    text.append(portable::body_mark);
    const auto digits = portable::fingerprint(f.SerializeAsString());
    f.set_doc_string(text.append(digits.begin(), digits.end()));
}

/// Returns whether a function has the body that was signed.
inline bool is_as_signed(const onnx::FunctionProto& f) {
    const std::size_t at = f.doc_string().rfind(portable::body_mark);
    if (at == std::string::npos) return false;
    const auto digits = portable::fingerprint(f.SerializeAsString());
    return std::string_view(f.doc_string()).substr(at + portable::body_mark.size()) == std::string_view(digits.data(), digits.size());
}

}  // namespace qk::graph::detail
