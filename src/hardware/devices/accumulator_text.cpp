// SPDX-License-Identifier: Apache-2.0
#include "qk/dot/text.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/plan/accumulators.hpp"

namespace qk::graph {

void check_accumulator_text(const std::string& text, const std::string& origin) {
    if (const auto a = parse_accumulator(text); !a) throw error(origin + ": " + std::string(a.error.view()));
}

}  // namespace qk::graph
