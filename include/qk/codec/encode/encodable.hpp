// SPDX-License-Identifier: Apache-2.0
// The status that encode returns, and which semantics it supports.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/semantics.hpp"

namespace qk {

enum class encode_status : std::uint8_t {
    done,
    no_code,    ///< this semantics gives results for which the format has no code: use fake_quantize, or another semantics
    too_small,  ///< `packed` has too few bytes
};

inline namespace QK_ISA {

/// Is true when every result of fake_quantize under this semantics has a code. The rooms of the families say so for theirs.
constexpr bool encodable(const format& f, const semantics& how) {
    return detail::with_read_family(f, [&how](const auto& g) { return encodable(g, how); });
}

}  // namespace QK_ISA

}  // namespace qk
