// SPDX-License-Identifier: Apache-2.0
// Reads rows of whole blocks, or of one short block each, as one long row: the same blocks, and the kernels' fastest path.
#pragma once

#include <variant>

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"

namespace qk::graph {

/// Makes `f` and `axis` describe one row of `total` values with the same blocks; returns false and changes nothing if that is impossible. A
/// row shorter than a block becomes a block of the row's length, which is the same: the longer block would only add zeros.
inline bool as_one_row(format& f, along_axis& axis, std::size_t total) {
    const auto block = static_cast<std::size_t>(block_size(f));
    if (block == 0 || axis.inner != 1 || axis.length == 0) return false;
    if (axis.length % block != 0) {
        if (axis.length > block || axis.length % 8 != 0) return false;
        const bool resized = std::visit(
            [&](auto& g) {
                if constexpr (requires { g.sub_block_size; }) {
                    if (axis.length % static_cast<std::size_t>(g.sub_block_size) != 0) return false;
                }
                if constexpr (requires { g.block_size; }) g.block_size = static_cast<int>(axis.length);
                return true;
            },
            f);
        if (!resized) return false;
    }
    axis = {1, total, 1};
    return true;
}

}  // namespace qk::graph
