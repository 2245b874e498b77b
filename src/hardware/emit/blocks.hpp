// SPDX-License-Identifier: Apache-2.0
// Blocks as circuits: NAME_scale finds what a block shares from its largest magnitude, NAME_element rounds one value under that.
#pragma once

#include <vector>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"

namespace qk::emit {

/// Return the functions of a block format; throw std::invalid_argument with a sentence for what they cannot say.
std::vector<function> functions_of(const converter& what, const microscaling& f);
std::vector<function> functions_of(const converter& what, const block_float& f);
std::vector<function> functions_of(const converter& what, const microexponent& f);

}  // namespace qk::emit
