// SPDX-License-Identifier: Apache-2.0
// A line of `qk gen` as the functions of a unit take it: which words stand in it, and how its results come from the functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"

namespace qk::emit {

/// Returns a text with words in place of others, one after the other.
std::string replaced(std::string s, const std::vector<std::pair<std::string, std::string>>& words);
/// Returns the texts of functions.
std::string functions_in(const std::vector<function>& all, std::string (*print)(const function&), const char* between);

/// Words of one kind, which stand side by side in a line.
struct word_group {
    std::string name;
    int width = 0, count = 1;
};

/// What programs around a unit's functions need to know.
struct case_shape {
    std::vector<word_group> in, out;
    std::string name, golden;  ///< what functions begin with, and the one that gives the last result
    int random_bits = 0;       ///< of each value; 0: nothing is random
    int judged = -1;           ///< the words of `out` of which any code of NaN is as right as another; -1: a block whose scale is NaN
    std::uint64_t seed = 0;
    bool is_block = false, is_decoder = false, is_sum = false;
    int sub_block = 0;  ///< values under one shift; 0: there are no shifts
    int in_words() const { return words(in); }
    int out_words() const { return words(out); }
    int in_bits() const { return total_bits(in); }
    int out_bits() const { return total_bits(out); }
    static int words(const std::vector<word_group>& g);
    static int total_bits(const std::vector<word_group>& g);
    int widest() const;
    /// Words that a function takes by themselves; those of other groups it takes as an array.
    static bool is_alone(const word_group& g) { return g.name == "c" || g.name == "scale"; }
};
case_shape shape_of(const unit& u);

/// Return the functions of a unit, and NAME_is_nan of a result.
std::vector<function> functions_of(const unit& u);
function is_nan_of(const unit& u);
const std::string& name_of(const unit& u);

/// The operands of a line as a function's arguments, arrays first: what fills them, and the arguments. In C and Python they come from the
/// words `in`, in SystemVerilog from words side by side.
struct line_arguments {
    std::string filled, arguments;
};
line_arguments arguments_in_c(const case_shape& s);
std::string arguments_in_python(const case_shape& s);
std::string arguments_in_system_verilog(const case_shape& s);

/// Return a function that gives the results of a line. C: golden(in, index, out) over words of 64 bits; Python: golden(words, index), a
/// list; SystemVerilog: NAME_case(in), of words side by side, the first in the low bits.
std::string case_in_c(const case_shape& s);
std::string case_in_python(const case_shape& s);
std::string case_in_system_verilog(const case_shape& s);

}  // namespace qk::emit
