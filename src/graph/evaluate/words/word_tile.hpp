// SPDX-License-Identifier: Apache-2.0
// Parts of word convolutions. A tile is up to six places by two vectors of outputs: its sums stay in registers, a pair of words is loaded
// once for its outputs, and a vector of weights once for its places.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "graph/evaluate/words/word_convolution.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define QK_WORDS 1
#include <immintrin.h>
#endif

namespace qk::graph::execute::words {

inline constexpr std::int64_t vector_outputs = 8, places_a_tile = 6;

inline std::int64_t whole_vectors(std::int64_t outputs) { return (outputs + vector_outputs - 1) / vector_outputs; }

/// A layer's constants and one of its images.
struct layer_call {
    const word_shape& shape;
    const packed_word_weights& weights;
    std::span<const std::int32_t> places, runs;  ///< offsets of windows, and of runs in a window, in words
    const float *scale, *bias;                   ///< padded to whole vectors; bias may be null
    const std::int32_t* correction;              ///< added to sums, padded likewise; may be null
    bool relu;
    std::int64_t height, width;  ///< of x with its padding
    const std::int16_t* x;
    const float* added;  ///< may be null
    float* y;
};

#ifdef QK_WORDS

/// The factors of a tile: windows of `run_count` runs of `pairs` pairs of words each, and the weights (`words`) of up to two vectors of
/// outputs.
struct products {
    const std::int16_t* words;
    const std::int32_t* runs;
    std::int64_t run_count, pairs;
};

/// A layer's constants for one vector of outputs, by which finish() turns sums into results.
struct ending {
    [[gnu::target("avx2,fma")]] ending(const layer_call& c, std::int64_t vector)
        : scale(_mm256_loadu_ps(c.scale + vector * vector_outputs)),
          bias(c.bias == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(c.bias + vector * vector_outputs)),
          least(_mm256_set1_ps(c.relu ? 0.0f : -std::numeric_limits<float>::infinity())),
          added(c.added == nullptr ? nullptr : c.added + vector * vector_outputs),
          y(c.y + vector * vector_outputs),
          outputs(std::min(c.shape.outputs - vector * vector_outputs, vector_outputs)) {}
    __m256 scale, bias;  ///< a missing bias is 0: adding that changes no whole number, as none is -0
    __m256 least;        ///< smallest result: 0 with a Relu, else -Inf
    const float* added;  ///< may be null
    float* y;
    std::int64_t outputs;  ///< of this vector: 8, or fewer in the last one
};

/// Computes `Places` sums of `Vectors` * 8 outputs each, at `sums[place * Vectors * 8]`; `x` are the places' windows.
template <int Places, int Vectors>
[[gnu::target("avx2,fma")]] void tile(const std::int16_t* const* x, const products& c, std::int32_t* sums) {
    __m256i sum[Places][Vectors];
#pragma GCC unroll 6  // else g++ 12 writes zeros to memory first
    for (int p = 0; p < Places; ++p)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sum[p][v] = _mm256_setzero_si256();
    const std::int16_t* w = c.words;
    for (std::int64_t r = 0; r < c.run_count; ++r) {
        const std::int16_t* from[Places];
        for (int p = 0; p < Places; ++p) from[p] = x[p] + c.runs[r];
        for (std::int64_t k = 0; k < c.pairs; ++k, w += 16 * Vectors) {
            __m256i weights[Vectors];
            for (int v = 0; v < Vectors; ++v) weights[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 16 * v));
            for (int p = 0; p < Places; ++p) {
                std::int32_t pair;
                std::memcpy(&pair, from[p] + 2 * k, sizeof pair);
                const __m256i both = _mm256_set1_epi32(pair);
                for (int v = 0; v < Vectors; ++v) sum[p][v] = _mm256_add_epi32(sum[p][v], _mm256_madd_epi16(both, weights[v]));
            }
        }
    }
    for (int p = 0; p < Places; ++p)
        for (int v = 0; v < Vectors; ++v)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + (p * Vectors + v) * vector_outputs), sum[p][v]);
}

/// Runs tile() for 1 to 6 places. For 3 or 5 it computes one more, whose window repeats the last one. `x` has six windows.
template <int Vectors>
void tile_of(std::int64_t places, const std::int16_t* const* x, const products& c, std::int32_t* sums) {
    if (places > 4) tile<6, Vectors>(x, c, sums);
    else if (places > 2) tile<4, Vectors>(x, c, sums);
    else if (places == 2) tile<2, Vectors>(x, c, sums);
    else tile<1, Vectors>(x, c, sums);
}

[[gnu::target("avx2,fma")]] inline __m256i load(const std::int32_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
[[gnu::target("avx2,fma")]] inline __m256i load(const std::int16_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
[[gnu::target("avx2,fma")]] inline void store(__m256i v, std::int16_t* x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), v); }
/// Turns eight sums into results, the first at y[at].
[[gnu::target("avx2,fma")]] inline void finish(__m256i sums, const ending& c, std::int64_t at) {
    __m256 y = _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(sums), c.bias), c.scale);
    // Rounds the product before anything is added: a fused multiply-add would give other bits.
    asm("" : "+x"(y));
    // _mm256_max_ps returns its second operand if that is NaN or both are zeros, so NaN and -0 stay.
    if (c.outputs < vector_outputs) {  // through a buffer: masked stores are slow on some processors
        const auto bytes = static_cast<std::size_t>(c.outputs) * sizeof(float);
        alignas(32) float some[vector_outputs] = {};
        if (c.added != nullptr) std::memcpy(some, c.added + at, bytes), y = _mm256_add_ps(y, _mm256_load_ps(some));
        _mm256_store_ps(some, _mm256_max_ps(c.least, y));
        std::memcpy(c.y + at, some, bytes);
        return;
    }
    if (c.added != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(c.added + at));
    _mm256_storeu_ps(c.y + at, _mm256_max_ps(c.least, y));
}

#endif

}  // namespace qk::graph::execute::words
