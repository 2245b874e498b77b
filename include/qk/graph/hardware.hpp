// SPDX-License-Identifier: Apache-2.0
// The part of the component hardware that stands above the graph module, the library qk::hardware: accumulators of devices in the
// evaluator. docs/guide/evaluate.md. The rest of the component is qk::compare (qk/compare) and qk::c (qk/qk.h).
#pragma once

namespace qk::hardware {

/// Lets plans of this program name accumulators: call it once, before the first of them. Any thread may, and more than once.
void enter();

}  // namespace qk::hardware
