// SPDX-License-Identifier: Apache-2.0
// Definition of process_memory.hpp. It does not use getrusage, whose ru_maxrss begins with what the parent process held.
#include "graph/base/process_memory.hpp"

#include <fstream>
#include <limits>
#include <string>

namespace qk::graph {

std::size_t peak_process_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
        std::size_t kilobytes = 0;
        if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    }
    return 0;
}

}  // namespace qk::graph
