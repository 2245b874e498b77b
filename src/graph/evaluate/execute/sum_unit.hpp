// SPDX-License-Identifier: Apache-2.0
// Runs an Add of two values of one shape, and a Relu that alone reads the sum, in one pass. Values under a quantizer are rounded on the
// way, in pieces that stay in L1 cache, by the same kernels and with the same bits.
#pragma once

#include "graph/evaluate/execute/narrow_values.hpp"
#include "graph/evaluate/execute/program.hpp"

namespace qk::graph::execute {

/// One addend: `floats`, quantized by `by` unless that is null.
struct addend {
    tensor floats;
    const quantizer* by = nullptr;  ///< has one scale at most, and is not dynamic
    tensor words = {};              ///< the quantized numbers, if they exist already
    narrow_form form = {};          ///< of `words`
};

/// Returns the sum of two addends in the order of their buffers; an empty tensor unless both are float32 of one shape.
tensor sum_of(const addend& a, const addend& b, bool relu, allocator& memory);

/// Counts how many steps, and outputs of candidates, read each slot.
std::vector<int> readers_of_slots(const program& p);

/// Merges a Relu that alone reads an Add into it, and marks the quantizers that only Adds read.
void join_sums(program& p);

}  // namespace qk::graph::execute
