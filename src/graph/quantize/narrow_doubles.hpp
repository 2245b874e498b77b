// SPDX-License-Identifier: Apache-2.0
// Makes float32 layers of those of a float64 model, which formats do not stand for.
#pragma once

#include <string>

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Makes every float64 of a model float32 where a layer of it computes in float64; inputs and outputs keep their type, with a Cast behind
/// or before them. Returns a sentence about that, empty where nothing changed. Throws where a constant does not fit into float32.
std::string narrow_doubles(model& m);

}  // namespace qk::graph
