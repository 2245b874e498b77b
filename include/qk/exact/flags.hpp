// SPDX-License-Identifier: Apache-2.0
// Refuses compiler flags under which a sum, a sign of zero or a quotient is no longer what IEEE 754 says. docs/reference/numerics.md,
// "The environment"; tests/core/math_flags.py compiles with each flag.
#pragma once

#if defined(__FAST_MATH__)
#error "qk's results are defined bit for bit, and -ffast-math (or -Ofast) permits other ones: compile this file without it"
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "qk's results are defined bit for bit, and -ffinite-math-only permits other ones for Inf and NaN: compile this file without it"
#elif defined(__ASSOCIATIVE_MATH__)
#error \
    "qk's results are defined bit for bit, and -fassociative-math (part of -funsafe-math-optimizations) permits other ones: compile this file without it"
#elif defined(__RECIPROCAL_MATH__)
#error \
    "qk's results are defined bit for bit, and -freciprocal-math (part of -funsafe-math-optimizations) permits other ones: compile this file without it"
#elif defined(__NO_SIGNED_ZEROS__)
#error \
    "qk's results are defined bit for bit, and -fno-signed-zeros (part of -funsafe-math-optimizations) permits other zeros: compile this file without it"
#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2 || __FLT_EVAL_METHOD__ == -1)
#error \
    "qk's results are defined bit for bit, and this target computes floats in a wider type (-mfpmath=387): compile this file with -mfpmath=sse"
#endif

static_assert(0.1 != static_cast<double>(0.1f),
              "qk's results are defined bit for bit, and -fsingle-precision-constant changes its constants: compile this file without it");
