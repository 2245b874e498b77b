// SPDX-License-Identifier: Apache-2.0
// Feeds model bytes to everything that reads a model: parse, check, fold, evaluate, calibrate, plan, evaluate under the plan, export.
#pragma once

#include <string_view>

namespace qk_fuzz {

/// Ends quickly and in bounded memory whatever the bytes are. Catches qk::graph::error and no other exception.
void feed_model(std::string_view bytes);

}  // namespace qk_fuzz
