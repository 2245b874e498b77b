// SPDX-License-Identifier: Apache-2.0
// Vectors of floats, integers and masks of one instruction set, and what is done with them lane by lane: over xsimd::batch on x86 from SSE2
// on, on NEON, and on SVE, RISC-V's V and WebAssembly where the compiler is told so; else, or where QK_SCALAR is defined, one value at a
// time, without xsimd.
//
// Everything here and in what builds on it is a template on the architecture, so that one program may link the kernels compiled for
// several. Values are compared as integers: of two finite floats' magnitudes, the larger one has the larger bits, NaN is above Inf, and
// nothing depends on the order of NaN in min and max or on flush-to-zero modes. Integers wrap around.
#pragma once

#include "qk/exact/flags.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/instructions.hpp"
#include "qk/lanes/intrinsics.hpp"

// RISC-V's registers have a length that the compiler must know (-mrvv-vector-bits); qk has lanes for 128 to 512 bits.
#if defined(__riscv_v_fixed_vlen)
#if __riscv_v_fixed_vlen >= 128 && __riscv_v_fixed_vlen <= 512
#define QK_HAS_RVV 1
#endif
#endif

#if !defined(QK_SCALAR) && \
    (defined(__SSE2__) || (defined(__ARM_NEON) && defined(__aarch64__)) || defined(__wasm_simd128__) || defined(QK_HAS_RVV))
#include "qk/lanes/registers.hpp"
#else
#include "qk/lanes/scalar.hpp"
#endif

#include <cstddef>
#include <cstdint>
#include <utility>

#include "qk/inline.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

template <class Arch>
inline constexpr std::size_t lanes = vf<Arch>::size;

#if defined(__aarch64__)
inline constexpr bool four_lanes_are_least = false;  // NEON's registers have no wider ones beside them
#else
inline constexpr bool four_lanes_are_least = true;
#endif

/// Is true for the least that a processor has: x86 without AVX2, and one value a vector. It gets the fast forms for half-even only, and
/// other code that differs only in speed is left out, too: nobody measures there, and everybody who includes qk without naming an
/// instruction set compiles it.
template <class Arch>
inline constexpr bool is_baseline = lanes<Arch> == 1 || (lanes<Arch> == 4 && four_lanes_are_least);

/// Calls call(k) for k = 0 .. N - 1, each a constant: an array of vectors that is indexed by constants stays in registers.
template <std::size_t N, class Call>
QK_INLINE void unrolled(const Call& call) noexcept {
    [&]<std::size_t... K>(std::index_sequence<K...>) QK_INLINE_CALL { (call(std::integral_constant<std::size_t, K>()), ...); }
    (std::make_index_sequence<N>());
}

/// Is true when m holds in each lane.
template <class Arch>
QK_INLINE bool all(mask<Arch> m) noexcept {
    return !any(~m);
}

}  // namespace QK_ISA
}  // namespace qk::kernels
