// SPDX-License-Identifier: Apache-2.0
// Between begin.hpp and end.hpp sums stay as they are written, whatever a file is compiled with. Every public header of the core stands
// between the two.
//
// clang has no macros for -funsafe-math-optimizations and its parts, but a pragma that switches them off, and that templates keep when they
// are instantiated elsewhere (not for WebAssembly). g++ has the macros, so flags.hpp refuses the flags there. No #pragma once: each header
// opens a pair of its own.
#include "qk/exact/flags.hpp"

#if defined(__clang__) && !defined(__wasm__)
#pragma float_control(push)
#pragma float_control(precise, on)
#endif
