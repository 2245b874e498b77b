// SPDX-License-Identifier: Apache-2.0
// The memory that the process holds, as the system counts it.
#pragma once

#include <cstddef>

namespace qk::graph {

/// Returns the most bytes of memory that the process has held at once so far, program and libraries included (Linux: VmHWM); 0 if unknown.
std::size_t peak_process_bytes();

}  // namespace qk::graph
