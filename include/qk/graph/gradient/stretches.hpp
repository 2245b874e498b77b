// SPDX-License-Identifier: Apache-2.0
// Which part of a forward pass is forgotten when it would not fit, and how it is run again.
#pragma once

#include <cstddef>
#include <vector>

#include "qk/graph/gradient/tape.hpp"

namespace qk::graph::gradient {

/// Watches what a tape holds while it is recorded. Nodes are cut into stretches; when all that is held exceeds the limit, the oldest
/// stretch forgets what only its own nodes read. When every stretch has forgotten and it is still too much, two neighbours become one, and
/// what only the second read of the first goes, too. Random values are never forgotten: they would not come again.
class stretch_keeper {
  public:
    stretch_keeper(const execute::network& net, tape& t, std::size_t limit);
    /// Called when node n has run.
    void after(std::size_t n);

  private:
    std::size_t made_by(std::size_t n) const;
    void forget(tape::stretch& s);
    void join_neighbours();

    const execute::network* net_;
    tape* t_;
    std::size_t limit_, length_, open_bytes_ = 0, first_kept_ = 0;  ///< length_: bytes that a stretch makes
    std::vector<std::size_t> last_use_;  ///< by value: the last node that reads it; all nodes for what the graph gives
};

/// Runs a forgotten stretch again if node n is its last one.
void recall(const execute::network& net, tape& t, std::size_t n, edge_visitor* visitor);

}  // namespace qk::graph::gradient
