// SPDX-License-Identifier: Apache-2.0
// Two objects with the same calls, one compiled for an instruction set that this processor may lack. `linked_isas` calls the other one
// alone; `linked_isas both` calls both, whose results must be the same bits.
#include <cstdint>
#include <cstdio>

std::uint64_t run_base();
std::uint64_t run_other();

int main(int argc, char**) {
    const std::uint64_t base = run_base();
    std::printf("%016llx\n", static_cast<unsigned long long>(base));
    if (argc > 1 && run_other() != base) return std::puts("the objects differ"), 1;
    return 0;
}
