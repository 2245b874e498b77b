// SPDX-License-Identifier: Apache-2.0
// Puts the nodes of qk's functions in the place of their calls, for runtimes that have no functions.
#pragma once

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Replaces every call of a function of qk's own domain by the function's nodes; their constants become initializers, one for equal values.
/// The node that makes the result keeps what the call was, for recovery.
void inline_functions(model& m);

}  // namespace qk::graph::detail
