// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels that the graph module calls: those of qk::dispatch, which suit the processor that runs them, where qk::graph was
// built with them (QK_GRAPH_DISPATCH); otherwise those of the headers, for the including file's instruction set. The bits are the same.
#pragma once

#ifdef QK_GRAPH_DISPATCH
#include "qk/dispatch.hpp"
namespace qk::graph {
namespace kernel_calls = qk::dispatch;
}
#else
#include "qk/codec.hpp"
namespace qk::graph {
namespace kernel_calls = qk;
}
#endif
