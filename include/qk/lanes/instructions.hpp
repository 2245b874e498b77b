// SPDX-License-Identifier: Apache-2.0
// What the instruction set that a file is compiled for can do, in words: `#if QK_HAS(BYTE_SHUFFLES)`. Outside of lanes nobody asks for an
// instruction set by its name (tests/house holds it), and a word that is not listed here does not compile.
#pragma once

#define QK_HAS(what) QK_HAS_##what()

/// Bytes and words of 256 bits can be shuffled, compared and added.
#if defined(__AVX2__)
#define QK_HAS_BYTE_SHUFFLES() 1
#else
#define QK_HAS_BYTE_SHUFFLES() 0
#endif

/// Registers of 512 bits: sixteen floats, for each of which a mask may have a bit.
#if defined(__AVX512F__)
#define QK_HAS_SIXTEEN_LANES() 1
#else
#define QK_HAS_SIXTEEN_LANES() 0
#endif

/// The same for bytes and words, in registers of any length.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define QK_HAS_MASKED_BYTES() 1
#else
#define QK_HAS_MASKED_BYTES() 0
#endif

/// float16 is converted to float32 and back, eight at a time.
#if defined(__F16C__)
#define QK_HAS_HALF_CONVERSIONS() 1
#else
#define QK_HAS_HALF_CONVERSIONS() 0
#endif

/// a * b + c is rounded once, on x86.
#if defined(__FMA__) || defined(__AVX512F__)
#define QK_HAS_FUSED_SUMS() 1
#else
#define QK_HAS_FUSED_SUMS() 0
#endif

/// Products of bytes are added to sums of 32 bits by one instruction: in registers of 256 bits; of 512.
#if defined(__AVXVNNI__)
#define QK_HAS_BYTE_PRODUCTS() 1
#else
#define QK_HAS_BYTE_PRODUCTS() 0
#endif
#if defined(__AVX512VNNI__)
#define QK_HAS_WIDE_BYTE_PRODUCTS() 1
#else
#define QK_HAS_WIDE_BYTE_PRODUCTS() 0
#endif

/// Bytes are looked up in two registers of 64.
#if defined(__AVX512VBMI__)
#define QK_HAS_BYTE_LOOKUPS() 1
#else
#define QK_HAS_BYTE_LOOKUPS() 0
#endif

/// There are 32 registers for vectors.
#if defined(__aarch64__) || defined(__AVX512F__)
#define QK_HAS_MANY_REGISTERS() 1
#else
#define QK_HAS_MANY_REGISTERS() 0
#endif
