// SPDX-License-Identifier: Apache-2.0
// A QK_INLINE function has no symbol of its own, so that files compiled for different instruction sets may be linked together (isa.hpp).
#pragma once

#if defined(__GNUC__)
#define QK_INLINE inline __attribute__((always_inline))
#define QK_INLINE_CALL __attribute__((always_inline))
#if defined(__clang__)
#define QK_APART __attribute__((noinline))
#else
#define QK_APART __attribute__((noinline, noclone))  // one copy of what is seldom called, or called from several places
#endif
#else
#define QK_INLINE inline
#define QK_INLINE_CALL
#define QK_APART
#endif
