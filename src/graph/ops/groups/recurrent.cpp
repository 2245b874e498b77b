// SPDX-License-Identifier: Apache-2.0
// Lists LSTM, GRU and RNN.
#include "graph/ops/gru.hpp"
#include "graph/ops/lstm.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group recurrent_group() { return join(lstm_ops, gru_ops); }

}  // namespace qk::graph::ops
