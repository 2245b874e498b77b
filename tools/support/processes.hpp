// SPDX-License-Identifier: Apache-2.0
// The processes that a launcher started together: `mpirun -n 4 qk search ...`.
#pragma once

#include <string_view>

#include "qk/graph/evaluate.hpp"

namespace qk::tool {

/// This process is alone if no launcher started it, or if qk was built without MPI.
class processes {
  public:
    processes();
    ~processes();
    processes(const processes&) = delete;
    processes& operator=(const processes&) = delete;

    /// Returns the processes of this run. A `processes` object must exist.
    static const graph::ranks& together();
    /// Ends all processes with `status`, for a failure that perhaps only this one has met. Returns if this process is alone.
    void fail(std::string_view sentence, int status) const;
};

}  // namespace qk::tool
