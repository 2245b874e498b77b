// SPDX-License-Identifier: Apache-2.0
// Model bytes through everything that reads a model: parse, check, fold, evaluate, calibrate, plan, evaluate under the plan, export.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// Whatever the bytes are: ends quickly, in bounded memory, and lets nothing out but what is no qk::graph::error.
void feed_model(std::string_view bytes);

}  // namespace qk_fuzz
