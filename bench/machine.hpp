// SPDX-License-Identifier: Apache-2.0
// Context of a measured figure: the processor, the instruction set that the kernels in this program are compiled for, and the compiler.
#pragma once

#include <algorithm>
#include <fstream>
#include <string>

#include "qk/lanes/vectors.hpp"

namespace qk::bench {

/// Returns the processor's name as Linux reports it, with its family and model, since the names of rented processors say little.
inline std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    std::string name, family, model;
    for (std::string line; std::getline(file, line) && !line.empty();) {
        const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
        if (line.starts_with("model name")) name = value;
        else if (line.starts_with("cpu family")) family = value;
        else if (line.starts_with("model\t")) model = value;
    }
    return name.empty() ? "unknown" : family.empty() ? name : name + " (family " + family + ", model " + model + ")";
}

inline std::string instruction_set() {
#if defined(QK_MASK_REGISTERS)
    return "avx512";
#elif defined(__AVX2__) && defined(__FMA__)
    return "avx2+fma";
#elif defined(__AVX2__)
    return "avx2";
#elif defined(__SSE2__)
    return "sse2";
#else
    return "neon";
#endif
}

inline std::string compiler() {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "g++ " __VERSION__;
#endif
}

}  // namespace qk::bench
