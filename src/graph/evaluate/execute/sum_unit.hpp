// SPDX-License-Identifier: Apache-2.0
// An Add of two values of one shape, with a Relu behind it where that alone reads it, as one pass: what lies under a quantizer is rounded
// on the way, a piece that stays in the first cache at a time, by the same kernels and with the same bits.
#pragma once

#include "qk/graph/evaluate/execute/narrow_values.hpp"
#include "qk/graph/evaluate/execute/program.hpp"

namespace qk::graph::execute {

/// One of the two: floats, or what `by` makes of them.
struct addend {
    tensor floats;
    const quantizer* by = nullptr;  ///< of one scale, and not dynamic
    tensor words = {};              ///< the numbers that `by` makes, if somebody asked for them already
    narrow_form form = {};          ///< of `words`
};

/// Their sum in the order in which their buffers lie. Empty: they are no floats of one shape.
tensor sum_of(const addend& a, const addend& b, bool relu, allocator& memory);

/// How many steps, and outputs of candidates, read each slot.
std::vector<int> readers_of_slots(const program& p);

/// Takes a Relu that alone reads an Add into it, and marks the quantizers that only such steps read.
void join_sums(program& p);

}  // namespace qk::graph::execute
