// SPDX-License-Identifier: Apache-2.0
// Which kernels a program tests. With QK_TEST_ISA (its name) those that its own files are compiled for, in a consumer's way; else those of
// qk::dispatch, of the instruction set that QK_ARCH names: the program is compiled once, and run once for each.
#pragma once

#include <string>

#if defined(QK_TEST_ISA)

#include "qk/codec.hpp"

namespace under_test {

using qk::decode;
using qk::encode;
using qk::fake_quantize;

inline const std::string isa = QK_TEST_ISA;
inline constexpr bool sampled = QK_TEST_SAMPLED;

}  // namespace under_test

#else

#include <cstdio>
#include <cstdlib>

#include "qk/dispatch.hpp"

namespace under_test {

using qk::dispatch::decode;
using qk::dispatch::encode;
using qk::dispatch::fake_quantize;

/// As the table of evidence calls it. A program for an instruction set that is not there says so and ends (CMake counts it as skipped).
inline const std::string isa = [] {
    if (qk::dispatch::problem() != nullptr) {
        std::printf("skipped: %s\n", qk::dispatch::problem());
        std::exit(0);
    }
    const std::string name = qk::dispatch::architecture();
    return name == "avx512" ? "AVX-512" : name == "avx2" ? "AVX2+FMA" : name == "sse2" ? "SSE2" : name == "neon" ? "NEON" : name;
}();
/// Only the best one sees every pair of exponents.
inline const bool sampled = isa != "AVX-512" && isa != "NEON";

}  // namespace under_test

#endif
