// SPDX-License-Identifier: Apache-2.0
// Chooses which part of a forward pass is forgotten if it would not fit into memory, and runs it again.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/gradient/tape.hpp"

namespace qk::graph::gradient {

/// Watches what a tape holds while it is recorded. Nodes are cut into stretches; when the tape exceeds the limit, the oldest stretch
/// forgets what only its own nodes read. When every stretch has forgotten and the tape is still too large, neighbours are joined in pairs,
/// which also forget what only the second stretch reads of the first. Random values are never forgotten: a second run would give others.
class stretch_keeper {
  public:
    stretch_keeper(const execute::network& net, tape& t, std::size_t limit);
    /// Counts what node n holds, once it has run, and forgets stretches if the tape is too large.
    void after(std::size_t n);

  private:
    std::size_t made_by(std::size_t n) const;
    void forget(tape::stretch& s);
    void join_neighbours();

    const execute::network* net_;
    tape* t_;
    std::size_t limit_, length_, open_bytes_ = 0, first_kept_ = 0;  ///< length_: bytes that the nodes of a stretch make
    std::vector<std::size_t> last_use_;  ///< by value: the last node that reads it; the number of nodes for outputs of the graph
};

/// Runs a forgotten stretch again if node n lies in it. The walk back calls it for every node, the last first.
void recall(const execute::network& net, tape& t, std::size_t n, edge_visitor* visitor);

}  // namespace qk::graph::gradient
