// SPDX-License-Identifier: Apache-2.0
// What the two objects of linked_isas have. They exchange no class template of the standard library: its functions are not qk's, and the
// linker may take them from either object.
#pragma once

#include <cstdint>

/// Is told of each part of the core, and the hash of all numbers, codes and texts that it made.
using part_made = void (*)(const char* part, std::uint64_t hash);

void run_base(part_made made);
void run_other(part_made made);
