// SPDX-License-Identifier: Apache-2.0
// `qk compare --dot`: finds the accumulator of a device that multiplies and adds.
#pragma once

#include <cstdint>
#include <string>

namespace qk::tool {

struct compare_dot_options {
    bool asked = false;  ///< --dot
    std::string file, command, a_format, b_format, c_format = "fp32", expected;
    std::size_t k = 64, questions = 10000;
    std::uint64_t seed = 0;
    bool json = false;
};

/// Prints the accumulator found. Returns false if no accumulator explains every answer, or if it is not the expected one.
bool compare_dot(const compare_dot_options& given);

}  // namespace qk::tool
