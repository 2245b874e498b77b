// SPDX-License-Identifier: Apache-2.0
// QK_ISA: a name for the instructions that a file may use, such as avx2_lpbBmfh. The core's functions stand in an inline namespace of this
// name, which a caller does not see:
//
//   namespace qk {
//   struct floating { ... };                                // types that libraries exchange are the same for all,
//   inline namespace QK_ISA { int bits(floating f) ... }    // functions are not,
//   namespace detail {
//   inline namespace QK_ISA { ... }                         // nor what only they use
//   }
//   }
//
// So objects for several instruction sets may be linked together: of functions with one name the linker keeps one, and a processor without
// that one's instructions would end at it, or take lzcnt for bsr and return other bits. What cannot stand in there is inlined always:
// members of the types outside (QK_INLINE). Compiled functions, which a header only declares, stand outside. tests/core/linked_isas.cmake
// looks at the symbols.
//
// The name begins with the vectors and ends with a letter for each further extension that changes code.
#pragma once

// ---- the vectors

#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define QK_ISA_VECTORS avx512
#elif defined(__AVX512F__)
#define QK_ISA_VECTORS avx512f
#elif defined(__AVX2__)
#define QK_ISA_VECTORS avx2
#elif defined(__AVX__)
#define QK_ISA_VECTORS avx
#elif defined(__SSE4_2__)
#define QK_ISA_VECTORS sse4_2
#elif defined(__SSE4_1__)
#define QK_ISA_VECTORS sse4_1
#elif defined(__SSSE3__)
#define QK_ISA_VECTORS ssse3
#elif defined(__SSE3__)
#define QK_ISA_VECTORS sse3
#elif defined(__SSE2__)
#define QK_ISA_VECTORS sse2
#elif defined(__ARM_FEATURE_SVE2)
#define QK_ISA_VECTORS sve2
#elif defined(__ARM_FEATURE_SVE)
#define QK_ISA_VECTORS sve
#elif defined(__ARM_NEON)
#define QK_ISA_VECTORS neon
#elif defined(__riscv_vector)
#define QK_ISA_VECTORS rvv
#elif defined(__wasm_simd128__)
#define QK_ISA_VECTORS simd128
#else
#define QK_ISA_VECTORS plain
#endif

// The length of vectors, where the compiler is told it, or the architecture's number.
#if defined(__ARM_FEATURE_SVE_BITS)
#define QK_ISA_NUMBER __ARM_FEATURE_SVE_BITS
#elif defined(__riscv_v_fixed_vlen)
#define QK_ISA_NUMBER __riscv_v_fixed_vlen
#elif defined(__ARM_ARCH)
#define QK_ISA_NUMBER __ARM_ARCH
#else
#define QK_ISA_NUMBER
#endif

// ---- a letter for each extension

// QK_ISA_IF(macro, letter) is the letter where the macro is 1, else nothing.
#define QK_ISA_ONE_1 ~,
#define QK_ISA_SECOND(first, second, ...) second
#define QK_ISA_CHOOSE(...) QK_ISA_SECOND(__VA_ARGS__, )
#define QK_ISA_IF_GIVEN(given, letter) QK_ISA_CHOOSE(QK_ISA_ONE_##given letter, )
#define QK_ISA_IF(macro, letter) QK_ISA_IF_GIVEN(macro, letter)

#if defined(__riscv_zba)
#define QK_ISA_ADDRESSES a
#else
#define QK_ISA_ADDRESSES
#endif
#if defined(__riscv_zbb)
#define QK_ISA_COUNTS l
#else
#define QK_ISA_COUNTS QK_ISA_IF(__LZCNT__, l)
#endif
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
#define QK_ISA_BYTE_PRODUCTS v
#else
#define QK_ISA_BYTE_PRODUCTS
#endif
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define QK_ISA_BFLOAT w
#else
#define QK_ISA_BFLOAT
#endif
#if defined(__AVX512FP16__) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define QK_ISA_HALVES H
#else
#define QK_ISA_HALVES
#endif
#if defined(__FMA4__) || defined(__XOP__) || defined(__TBM__)
#define QK_ISA_BULLDOZER x
#else
#define QK_ISA_BULLDOZER
#endif
#if defined(__APX_F__) || defined(__AVX10_1__) || defined(__AVX10_2__)
#define QK_ISA_APX A
#else
#define QK_ISA_APX
#endif
#if defined(QK_SCALAR)
#define QK_ISA_SCALAR S
#else
#define QK_ISA_SCALAR
#endif

#define QK_ISA_PASTE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) a##b##c##d##e##f##g##h##i##j##k##l##m##n##o##p
#define QK_ISA_JOIN(...) QK_ISA_PASTE(__VA_ARGS__)

#define QK_ISA_SCALARS                                                                                                                    \
    QK_ISA_JOIN(QK_ISA_SCALAR, QK_ISA_COUNTS, QK_ISA_IF(__POPCNT__, p), QK_ISA_IF(__BMI__, b), QK_ISA_IF(__BMI2__, B),                    \
                QK_ISA_IF(__MOVBE__, m), QK_ISA_IF(__PRFCHW__, P), QK_ISA_ADDRESSES, QK_ISA_BULLDOZER, QK_ISA_APX, QK_ISA_IF(__FMA__, f), \
                QK_ISA_IF(__F16C__, h), QK_ISA_IF(__ARM_FEATURE_ATOMICS, u), QK_ISA_IF(__ARM_FEATURE_QRDMX, r),                           \
                QK_ISA_IF(__ARM_FEATURE_COMPLEX, j), QK_ISA_IF(__ARM_FEATURE_FRINT, J))
#define QK_ISA_PRODUCTS                                                                                                         \
    QK_ISA_JOIN(QK_ISA_BYTE_PRODUCTS, QK_ISA_IF(__AVXVNNI__, V), QK_ISA_IF(__AVXVNNIINT8__, t), QK_ISA_IF(__AVXVNNIINT16__, T), \
                QK_ISA_IF(__ARM_FEATURE_MATMUL_INT8, M), QK_ISA_IF(__AVX512IFMA__, i), QK_ISA_IF(__AVXIFMA__, I),               \
                QK_ISA_IF(__AVX512VBMI__, y), QK_ISA_IF(__AVX512VBMI2__, Y), QK_ISA_IF(__AVX512BITALG__, o),                    \
                QK_ISA_IF(__AVX512VPOPCNTDQ__, q), QK_ISA_IF(__AVX512CD__, C), QK_ISA_BFLOAT, QK_ISA_HALVES,                    \
                QK_ISA_IF(__AVXNECONVERT__, n), QK_ISA_IF(__GFNI__, g))

#define QK_ISA_NAMED(vectors, number, scalars, products) QK_ISA_NAME(vectors, number, scalars, products)
#define QK_ISA_NAME(vectors, number, scalars, products) vectors##number##_##scalars##products
#define QK_ISA QK_ISA_NAMED(QK_ISA_VECTORS, QK_ISA_NUMBER, QK_ISA_SCALARS, QK_ISA_PRODUCTS)

/// The same as text.
#define QK_ISA_QUOTED(name) #name
#define QK_ISA_QUOTE(name) QK_ISA_QUOTED(name)
#define QK_ISA_TEXT QK_ISA_QUOTE(QK_ISA)
