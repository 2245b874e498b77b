// SPDX-License-Identifier: Apache-2.0
// A product that is rounded before it meets a sum. g++ contracts products with sums into one fma wherever a processor has it, and then sums
// that decide between two scales differ from those of a processor without.
#pragma once

#include "qk/inline.hpp"

namespace qk {

/// Returns a * b, rounded.
QK_INLINE double rounded_product(double a, double b) noexcept {
    double product = a * b;
#if defined(__SSE2__)
    asm("" : "+x"(product));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    asm("" : "+w"(product));
#elif defined(__riscv_flen)
    asm("" : "+f"(product));
#else
    volatile double hidden = product;
    product = hidden;
#endif
    return product;
}

}  // namespace qk
