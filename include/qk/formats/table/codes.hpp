// SPDX-License-Identifier: Apache-2.0
// Values of a table's codes. (Codes of values: table_rules::codes_of.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/formats/table/format.hpp"

namespace qk::detail {

template <class Arch>
void elements_of(const table& f, const std::uint32_t* code, float* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = value_of(f, code[i]);
}

}  // namespace qk::detail
