// SPDX-License-Identifier: Apache-2.0
#include "graph/base/inner_loop.hpp"

#include <algorithm>

namespace qk::graph {

const part_runner*& runs_parts() {
    thread_local const part_runner* runner = nullptr;
    return runner;
}

void for_each_part(std::size_t n, body_of<std::size_t> body) {
    const part_runner* runner = runs_parts();
    if (runner == nullptr || n < 2) {
        for (std::size_t i = 0; i < n; ++i) body(i);
        return;
    }
    const parts_side_by_side none(nullptr);  // the parts of a part run one after the other
    (*runner)(n, body);
}

void for_each_range(std::size_t n, std::size_t work, body_of<std::size_t, std::size_t> body) {
    constexpr std::size_t least = 1 << 16;
    const std::size_t items = std::max<std::size_t>(1, least / std::max<std::size_t>(work, 1));
    if (runs_parts() == nullptr || n < 2 * items) {
        if (n > 0) body(std::size_t{0}, n);
        return;
    }
    const std::size_t parts = std::min<std::size_t>(n / items, 64);
    for_each_part(parts, [&](std::size_t i) { body(n * i / parts, n * (i + 1) / parts); });
}

}  // namespace qk::graph
