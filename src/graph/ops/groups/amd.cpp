// SPDX-License-Identifier: Apache-2.0
// Lists the operators of AMD's domains com.amd.quark and com.vai.quantize.
#include "graph/ops/amd_quantizers.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group amd_group() { return join(amd_quantizer_ops, also_in("com.vai.quantize", amd_quantizer_ops)); }

}  // namespace qk::graph::ops
