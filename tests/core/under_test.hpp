// SPDX-License-Identifier: Apache-2.0
// Selects the kernels that a program tests. With QK_TEST_ISA (an instruction set's name) they are compiled with the program, as a consumer
// would. Otherwise they are those of qk::dispatch for the instruction set that QK_ARCH names: one program, run once for each.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

namespace under_test {

/// Chooses one case in QK_TEST_ONE_IN (of the environment), or one in `otherwise`, by chance, the same ones in each run. With QK_TEST_WHOLE
/// in the environment every case is chosen.
inline bool one_in(unsigned long otherwise) {
    static const unsigned long n = [&] {
        const char* const asked = std::getenv("QK_TEST_ONE_IN");
        return std::getenv("QK_TEST_WHOLE") != nullptr ? 1 : asked != nullptr ? std::max(1ul, std::strtoul(asked, nullptr, 10)) : otherwise;
    }();
    static std::minstd_rand chance{1};
    return chance() % n == 0;
}

}  // namespace under_test

#if defined(QK_TEST_ISA)

#include "qk/backward.hpp"
#include "qk/codec.hpp"

namespace under_test {

using qk::decode;
using qk::encode;
using qk::fake_quantize;
using qk::fake_quantize_backward;

inline const std::string isa = QK_TEST_ISA;
inline constexpr bool sampled = QK_TEST_SAMPLED;

/// One case in seven: such a program compiles a second time what qk::dispatch's programs try.
inline bool chosen() { return one_in(7); }

}  // namespace under_test

#else

#include <cstdio>

#include "qk/dispatch.hpp"

namespace under_test {

using qk::dispatch::decode;
using qk::dispatch::encode;
using qk::dispatch::fake_quantize;
using qk::dispatch::fake_quantize_backward;

/// The instruction set's name in the table of evidence. If it is missing, the program says so and ends (CMake counts it as skipped).
inline const std::string isa = [] {
    if (qk::dispatch::problem() != nullptr) {
        std::printf("skipped: %s\n", qk::dispatch::problem());
        std::exit(0);
    }
    const std::string name = qk::dispatch::architecture();
    return name.starts_with("avx512") ? "AVX-512" : name == "avx2" ? "AVX2+FMA" : name == "sse2" ? "SSE2" : name == "neon" ? "NEON" : name;
}();
/// Is true where tests sample the pairs of exponents; only the best instruction set sees every pair.
inline const bool sampled = isa != "AVX-512" && isa != "NEON";
/// Every case, unless the environment asks for less.
inline bool chosen() { return one_in(1); }

}  // namespace under_test

#endif
