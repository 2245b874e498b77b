// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to every reader except that of models: plans, requests, encodings, arrays, labels, images, tensors, calibrations, tables,
// packed files, words and cases of test benches, configs and indices of checkpoints, texts of options.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// Gives the bytes to the reader that the first byte chooses, '0' and up, and what was read to the code that uses it. Catches
/// qk::graph::error and no other exception.
void feed_input(std::string_view bytes);

}  // namespace qk_fuzz
