// SPDX-License-Identifier: Apache-2.0
// The operators of AMD Quark's files, by Quark's names: domains com.amd.quark and, of before, com.vai.quantize.
#pragma once

#include <span>

#include "onnxruntime/api.hpp"

namespace qk::onnxruntime {

inline constexpr const char* quark_domains[] = {"com.amd.quark", "com.vai.quantize"};

/// Returns the operators of such a domain. They live as long as the process.
std::span<const OrtCustomOp* const> quark_operations();

}  // namespace qk::onnxruntime
