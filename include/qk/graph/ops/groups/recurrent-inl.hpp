// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU, RNN.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group recurrent_group() { return {}; }

}  // namespace qk::graph::ops
