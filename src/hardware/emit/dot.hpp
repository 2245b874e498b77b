// SPDX-License-Identifier: Apache-2.0
// Units that multiply and add as circuits: the equations (D1) to (D14) of docs/reference/numerics.md, for the operands and the registers
// that an accumulator says.
#pragma once

#include <vector>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"

namespace qk::emit {

/// Returns the functions, NAME_dot the last one; throws std::invalid_argument with a sentence for what they cannot say. Its operands stand
/// in the order of a line of `qk gen`: a, scales of a, b, scales of b, c.
std::vector<function> functions_of(const multiplier& what);
/// Returns NAME_is_nan of a result.
function is_nan_of(const multiplier& what);
/// Returns the bits of a stored result, and of a stored C.
int result_width(const accumulator& a);
int addend_width(const accumulator& a);

}  // namespace qk::emit
