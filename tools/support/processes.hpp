// SPDX-License-Identifier: Apache-2.0
// The processes that a launcher started together: `mpirun -n 4 qk search ...`.
#pragma once

#include <string_view>

#include "qk/graph/base/ranks.hpp"

namespace qk::tool {

/// Alone where no launcher started this process, or where qk was built without MPI.
class processes {
  public:
    processes();
    ~processes();
    processes(const processes&) = delete;
    processes& operator=(const processes&) = delete;

    /// Of this run; a processes object must live.
    static const graph::ranks& together();
    /// What this process alone may have met ends all of them, with `status`. Returns if there is only this one.
    void fail(std::string_view sentence, int status) const;
};

}  // namespace qk::tool
