// SPDX-License-Identifier: Apache-2.0
// The component learn, the library qk::learn: fine-tuning, learned rounding, corrected biases, rotations. docs/guide/gradients.md.
#pragma once

#include "qk/graph/learn/finetune.hpp"
#include "qk/graph/learn/finetune_verb.hpp"

namespace qk::learn {

/// Lets plans and pipelines of this program learn and rotate: call it once, before the first of them. Any thread may, and more than once.
/// What this door declares needs no such call.
void enter();

}  // namespace qk::learn
