// SPDX-License-Identifier: Apache-2.0
// Two objects with the same calls, one compiled for an instruction set that this processor may lack. `linked_isas` calls the lesser one
// alone; `linked_isas both` calls both, which must make the same bits.
#include "linked_isas.hpp"

#include <cstddef>
#include <cstdio>

namespace {

constexpr std::size_t most = 128;
std::uint64_t of_base[most];
std::size_t made = 0, compared = 0, differ = 0;

}  // namespace

int main(int argc, char**) {
    run_base([](const char*, std::uint64_t hash) {
        if (made < most) of_base[made] = hash;
        ++made;
    });
    std::printf("%zu parts of the core ran\n", made);
    if (made < 20 || made > most) return 1;
    if (argc == 1) return 0;
    run_other([](const char* part, std::uint64_t hash) {
        if (compared >= made || of_base[compared] != hash) std::printf("%s differs\n", part), ++differ;
        ++compared;
    });
    return differ == 0 && compared == made ? 0 : 1;
}
