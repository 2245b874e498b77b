// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the readers of checkpoints.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// Reads the bytes as a file of that kind, decodes what it holds, looks for findings, compares it with itself and with a file of which one
/// bit is another, and makes the bytes of what it would be converted to. What follows the last "\nconfig:" is the config beside it. Catches
/// qk::checkpoint::error and no other exception.
void feed_safetensors(std::string_view bytes);
void feed_gguf(std::string_view bytes);

/// The same with small weights of every system, and the bytes as the config.json beside them, or as the index.json of two shards of them.
void feed_config(std::string_view bytes);
void feed_index(std::string_view bytes);

}  // namespace qk_fuzz
