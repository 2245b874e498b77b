// SPDX-License-Identifier: Apache-2.0
// Mistakes of units that multiply and add which no accumulator makes: C ignored, products cut, one operand's subnormal numbers lost.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/compare/dot.hpp"

namespace qk::compare {

struct answered_case {
    const dot_case* asked;
    std::span<const std::uint64_t> d;
};
struct explained_answers {
    std::string sentence;
    accumulator by;  ///< what gives every answer, with the mistake
};

/// Returns a mistake with which one of the accumulators gives every answer; nullopt if there is none.
std::optional<explained_answers> find_dot_mistake(const dot_task& task, const std::vector<answered_case>& cases,
                                                  const std::vector<accumulator>& bases);

}  // namespace qk::compare
