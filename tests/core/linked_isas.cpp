// SPDX-License-Identifier: Apache-2.0
// Two objects with the same calls, one compiled for an instruction set that this processor may lack. `linked_isas` calls the lesser one
// alone; `linked_isas both` calls both, which must make the same bits.
#include "linked_isas.hpp"

#include <cstdio>

int main(int argc, char**) {
    const std::vector<part_hash> base = run_base();
    std::printf("%zu parts of the core ran\n", base.size());
    if (argc == 1) return base.size() < 20 ? 1 : 0;
    const std::vector<part_hash> other = run_other();
    int differ = 0;
    for (std::size_t i = 0; i < base.size(); ++i) {
        if (other[i].hash == base[i].hash) continue;
        std::printf("%s differs\n", base[i].part.c_str());
        differ = 1;
    }
    return differ;
}
