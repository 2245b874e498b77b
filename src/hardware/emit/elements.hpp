// SPDX-License-Identifier: Apache-2.0
// The functions of a format: NAME_encode and NAME_decode of single values, and NAME_scale, NAME_shift, NAME_element and NAME_decode of
// blocks.
#pragma once

#include <string>
#include <vector>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"

namespace qk::emit {

/// Returns the functions; throws std::invalid_argument with a sentence for what they cannot say.
std::vector<function> functions_of(const converter& what);
/// Returns NAME_is_nan of a result: any code of NaN is as right as another.
function is_nan_of(const converter& what);

}  // namespace qk::emit
