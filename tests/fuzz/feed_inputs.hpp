// SPDX-License-Identifier: Apache-2.0
// Bytes to every reader but that of models: plans, requests, encodings, arrays, tensors, calibrations, tables, packed files, texts of
// options.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// The first byte chooses the reader, '0' and up; what is read goes on to whoever uses it. Nothing comes out but what is no
/// qk::graph::error.
void feed_input(std::string_view bytes);

}  // namespace qk_fuzz
