// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to what reads words of test benches and accumulators: .hex files, lines of `qk ver`, cases of `qk dot`, --accumulator.
#pragma once

#include <string_view>

#include "qk/graph/evaluate/evaluator.hpp"

namespace qk_fuzz {

// In each the first line says what is asked; what follows is the file. They throw qk::graph::error and nothing else.

/// "mxfp8_e4m3", then hexadecimal words: the codes of a format, decoded.
void read_hex(std::string_view bytes);
/// "mxfp4", "mxfp4 decode", "int8 pairs int8" or "device NAME", then lines of operands and results.
void read_stream(std::string_view bytes);
/// A device, or "ACCUMULATOR a-format b-format", then an .npz of codes, multiplied.
void read_dot_case(std::string_view bytes);
/// What --accumulator takes, for a model and its data.
void read_accumulator(std::string_view bytes, const qk::graph::model& m, const qk::graph::named_tensors& data);

}  // namespace qk_fuzz
