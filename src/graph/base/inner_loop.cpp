// SPDX-License-Identifier: Apache-2.0
// Definitions of inner_loop.hpp.
#include "qk/graph/base/inner_loop.hpp"

namespace qk::graph {

const part_runner*& runs_parts() {
    thread_local const part_runner* runner = nullptr;
    return runner;
}

}  // namespace qk::graph
