// SPDX-License-Identifier: Apache-2.0
// QK_EXPECT(condition, "sentence"): what a caller promised. A debug build asserts it. With QK_CHECK defined a release build does so, too:
// it writes the sentence to standard error and aborts. Otherwise NDEBUG makes it nothing.
//
// QK_EXPECT_EACH is for what costs time: each scale, a whole format. qk::dispatch defines QK_CHECK_SIZES, with which a release build checks
// all but these.
//
// Define QK_CHECK before the first include of qk, or as -DQK_CHECK, and alike in all files of a program.
#pragma once

#if defined(QK_CHECK) || (defined(QK_CHECK_SIZES) && defined(NDEBUG))
#include <cstdio>
#include <cstdlib>
#define QK_EXPECT(condition, sentence) \
    (static_cast<bool>(condition)      \
         ? void(0)                     \
         : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, sentence), std::fflush(stderr), std::abort()))
#define QK_EXPECTS 1
#elif !defined(NDEBUG)
#include <cassert>
#define QK_EXPECT(condition, sentence) assert((condition) && sentence)
#define QK_EXPECTS 1
#else
#define QK_EXPECT(condition, sentence) void(0)
#define QK_EXPECTS 0
#endif

#if defined(QK_CHECK) || !defined(NDEBUG)
#define QK_EXPECT_EACH(condition, sentence) QK_EXPECT(condition, sentence)
#define QK_EXPECTS_EACH 1
#else
#define QK_EXPECT_EACH(condition, sentence) void(0)
#define QK_EXPECTS_EACH 0
#endif
