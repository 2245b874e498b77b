// SPDX-License-Identifier: Apache-2.0
// What the two objects of linked_isas return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The hash of all numbers, codes and texts that a part of the core makes.
struct part_hash {
    std::string part;
    std::uint64_t hash;
};
std::vector<part_hash> run_base();
std::vector<part_hash> run_other();
