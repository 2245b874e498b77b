// SPDX-License-Identifier: Apache-2.0
// Lets the caller of a pipeline call end it.
#pragma once

#include "graph/base/stop_check.hpp"
#include "qk/graph/pipeline/sources.hpp"

namespace qk::graph::pipeline {

/// Returns the check that throws `cancelled` when `cancel` says so; empty if there is none.
inline std::function<void()> stopping(const cancel_function& cancel) {
    if (!cancel) return {};
    return [cancel] {
        if (cancel()) throw cancelled();
    };
}

}  // namespace qk::graph::pipeline
