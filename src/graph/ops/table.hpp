// SPDX-License-Identifier: Apache-2.0
// Assembles the explicit table of operators from groups. Each group is a source of groups/, so that they compile in parallel.
#pragma once

#include <iterator>
#include <ranges>
#include <vector>

#include "graph/ops/op.hpp"

namespace qk::graph::ops {

/// The rows of one source of groups/: groups/NAME.cpp defines `op_group NAME_group()`.
using op_group = std::vector<op_entry>;

/// Joins the tables of several headers, for example to a group of operators: `return join(relu_ops, clip_ops);`
template <class First, class... Rest>
auto join(const First& first, const Rest&... rest) {
    std::vector<std::ranges::range_value_t<const First&>> all;
    all.reserve((std::size(first) + ... + std::size(rest)));
    const auto add = [&](const auto& table) {
        for (const auto& e : table) all.push_back(e);  // one by one: g++ 12 sees an overflow in a range insertion
    };
    add(first);
    (add(rest), ...);
    return all;
}

/// Returns the rows for operators of the same names in another domain.
template <class Rows>
auto also_in(std::string_view domain, const Rows& rows) {
    auto all = join(rows);
    for (auto& row : all) row.domain = domain;
    return all;
}

}  // namespace qk::graph::ops
