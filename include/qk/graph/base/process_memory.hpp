// SPDX-License-Identifier: Apache-2.0
// What the process holds in memory, as the system counts it.
#pragma once

#include <cstddef>

namespace qk::graph {

/// The most bytes of memory that the process has held at once so far, program and libraries included (Linux: VmHWM); 0 where unknown.
std::size_t peak_process_bytes();

}  // namespace qk::graph
