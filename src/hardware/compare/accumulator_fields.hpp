// SPDX-License-Identifier: Apache-2.0
// The fields that a search for an accumulator changes, and the accumulators where it begins.
#pragma once

#include "qk/compare/dot.hpp"

namespace qk::compare {

/// A field of the accumulator and the values that are tried for it.
struct field {
    void (*set)(accumulator&, int value);
    std::vector<int> values;
};

/// What answers show of the result's register before any search: a float32 that was made of a narrower one ends with zeros.
struct seen_results {
    int mantissa = 0;       ///< mantissa bits that some result has; 0: none seen yet
    int exponent_bits = 2;  ///< bits of the narrowest exponent that holds all finite results
    int width = 0;          ///< bits of the widest code; 0: none seen yet

    void look(const dot_task& task, std::uint64_t d);
};

std::vector<field> fields_of(const dot_task& task, const seen_results& seen);

/// Returns accumulators of each kind, and those of the catalogue that the task's registers allow.
std::vector<accumulator> seeds_of(const dot_task& task, const seen_results& seen);

}  // namespace qk::compare
