// SPDX-License-Identifier: Apache-2.0
// Coverage as a file: the bins of `qk cover` as counters, and a circuit that says which of them a line hits.
#pragma once

#include <string>
#include <vector>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"

namespace qk::emit {

/// A bin as a word, so that bins of a kind stand side by side: its kind, and its numbers a, b, c and d below.
std::uint32_t key_of(const compare::bin& b);

/// A value hits several bins: NAME_key of a word, its result, and a number gives them one after the other. Of lines of several words
/// NAME_keys gives all of them.
struct key_functions {
    std::vector<function> all;  ///< what results need, and NAME_key or NAME_keys
    std::uint64_t asks = 0;     ///< how many bins a line hits at most
    bool of_lines = false;
};
/// Returns the functions; throws std::invalid_argument, with a sentence, for what has no such file.
key_functions key_functions_of(const unit& u);

/// Return what stands in a file behind the first comment.
std::string coverage_in_c(const file_request& r);
std::string coverage_in_system_verilog(const file_request& r);
std::string coverage_in_python(const file_request& r);

}  // namespace qk::emit
