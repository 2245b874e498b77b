// SPDX-License-Identifier: Apache-2.0
// Converts names to UTF-8 when a model is read: plans, reports and JSON could not hold other bytes, and no other runtime reads them.
#pragma once

#include <cstddef>

namespace onnx {
class ModelProto;
}

namespace qk::graph {

/// Before: node "conv\xff" (the byte 255).  After: node "conv\\xff" (four characters), everywhere in the model where it stood.  Conditions:
/// a text of the model (name, operator, domain, key, documentation) is not UTF-8. Different texts stay different. Returns how many were
/// changed.
std::size_t names_to_utf8(onnx::ModelProto& m);

}  // namespace qk::graph
