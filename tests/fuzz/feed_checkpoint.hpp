// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the readers of checkpoints.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// Reads the bytes as a file of that kind, decodes what it holds, looks for findings and compares it with itself. Catches
/// qk::checkpoint::error and no other exception.
void feed_safetensors(std::string_view bytes);
void feed_gguf(std::string_view bytes);

}  // namespace qk_fuzz
