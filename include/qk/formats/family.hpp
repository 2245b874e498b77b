// SPDX-License-Identifier: Apache-2.0
// What the rooms of families share: how a check says what is wrong, and what a table of formats says about each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "qk/isa.hpp"
#include "qk/memory/planes.hpp"
#include "qk/semantics.hpp"
#include "qk/text.hpp"

namespace qk {

/// The numbers of a format (of one with more exponents than float32: those that float32 has), with scales at their extremes. Integers: in
/// units of the scale. NVFP4: in units of the tensor scale.
struct format_facts {
    double largest = 0;          ///< finite
    double lowest = 0;           ///< most negative finite
    double smallest = 0;         ///< smallest above 0: a subnormal where there are any
    double smallest_normal = 0;  ///< full precision from here up; equals `smallest` where there are no subnormals
    bool infinity = false;
    bool nan = false;  ///< block formats: as the code of a whole block
    bool negative_zero = false;
};

namespace detail {
inline namespace QK_ISA {

/// Returns "NAME is N; it must be LOWEST to HIGHEST", or nothing.
constexpr message in_range(std::string_view name, std::int64_t n, std::int64_t lowest, std::int64_t highest) {
    message m;
    if (n < lowest || n > highest)
        m.append(name).append(" is ").append(n).append("; it must be ").append(lowest).append(" to ").append(highest);
    return m;
}
constexpr message first_of(std::initializer_list<message> candidates) {
    for (const message& m : candidates) {
        if (!m.empty()) return m;
    }
    return {};
}

inline constexpr int largest_block = 1 << 20;

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// encode searches the scale of a block that it sees as a whole.
constexpr bool search_has_codes(int block_size, const semantics& how) { return !is_searched(how.scale_rule) || block_size <= 512; }

}  // namespace QK_ISA

}  // namespace qk
