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

std::vector<field> fields_of(const dot_task& task);

/// Returns accumulators of each kind, and those of the catalogue that the task's registers allow.
std::vector<accumulator> seeds_of(const dot_task& task);

}  // namespace qk::compare
