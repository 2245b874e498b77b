// SPDX-License-Identifier: Apache-2.0
// Tiles of up to six places by two vectors of outputs: what is added up stays in registers, a pair of words is loaded once for a tile's
// outputs and a vector of weights once for its places.
#include "qk/graph/evaluate/execute/word_convolution.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#ifdef QK_HAVE_ONEDNN
#include <dnnl.hpp>
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define QK_WORDS 1
#include <immintrin.h>
#endif

namespace qk::graph::execute {
namespace {

constexpr std::int64_t vector_outputs = 8, places_a_tile = 6, places_a_block = 48;

std::int64_t whole_vectors(std::int64_t outputs) { return (outputs + vector_outputs - 1) / vector_outputs; }

/// A layer's constants as the kernel sees them, from one tile's first output on.
struct tile_call {
    const std::int16_t* words;
    const std::int32_t* correction;
    const float *scale, *bias, *added;  ///< bias and added may be null
    float* y;
    std::int64_t outputs, left;  ///< of y's rows; from this tile's first to the last
    const std::int32_t* runs;
    std::int64_t run_count, pairs;
    bool relu;
};

#ifdef QK_WORDS

[[gnu::target("avx2,fma")]] inline __m256 relu(__m256 y) { return _mm256_andnot_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_LT_OQ), y); }

/// From eight sums to results, which begin at y[at] and with the tile's output `first`.
[[gnu::target("avx2,fma")]] inline void finish(const std::int32_t* sums, const tile_call& c, std::int64_t at, std::int64_t first) {
    __m256i s = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums));
    if (c.correction != nullptr) s = _mm256_add_epi32(s, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(c.correction + first)));
    __m256 y = _mm256_cvtepi32_ps(s);
    if (c.bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(c.bias + first));
    y = _mm256_mul_ps(y, _mm256_loadu_ps(c.scale + first));
    // The product is rounded before anything is added: an instruction that does both at once would have other bits.
    asm("" : "+x"(y));
    const std::int64_t left = c.left - first;
    if (left < vector_outputs) {  // by way of a buffer: stores under a mask take long on some processors
        const auto bytes = static_cast<std::size_t>(left) * sizeof(float);
        alignas(32) float some[vector_outputs] = {};
        if (c.added != nullptr) std::memcpy(some, c.added + at, bytes), y = _mm256_add_ps(y, _mm256_load_ps(some));
        if (c.relu) y = relu(y);
        _mm256_store_ps(some, y);
        std::memcpy(c.y + at, some, bytes);
        return;
    }
    if (c.added != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(c.added + at));
    if (c.relu) y = relu(y);
    _mm256_storeu_ps(c.y + at, y);
}

/// `Places` results of `Vectors` * 8 outputs each; `x` are the places' windows. The first `stored` results are written.
template <int Places, int Vectors>
[[gnu::target("avx2,fma")]] void tile(const std::int16_t* const* x, const tile_call& c, std::int64_t stored) {
    __m256i sum[Places][Vectors];
    for (int p = 0; p < Places; ++p)
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
    alignas(32) std::int32_t sums[Places][Vectors * vector_outputs];
    for (int p = 0; p < Places; ++p)
        for (int v = 0; v < Vectors; ++v) _mm256_store_si256(reinterpret_cast<__m256i*>(sums[p] + v * vector_outputs), sum[p][v]);
    for (std::int64_t p = 0; p < stored; ++p)
        for (std::int64_t first = 0; first < Vectors * vector_outputs; first += vector_outputs)
            finish(sums[p] + first, c, p * c.outputs + first, first);
}

template <int Vectors>
void tile_of(std::int64_t places, const std::int16_t* const* x, const tile_call& c) {
    if (places > 4) tile<6, Vectors>(x, c, places);
    else if (places > 2) tile<4, Vectors>(x, c, places);
    else if (places == 2) tile<2, Vectors>(x, c, places);
    else tile<1, Vectors>(x, c, places);
}

/// Bytes, with or without a sign, as words.
[[gnu::target("avx2")]] void widen_bytes(const std::byte* x, std::int64_t n, bool is_signed, std::int16_t* to) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(x);
    if (is_signed)
        for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int8_t>(bytes[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) to[i] = bytes[i];
}

/// Upper and lower bytes as words; `flip` is 2^15 for numbers without a sign.
[[gnu::target("avx2")]] void join_bytes(const std::byte* upper, const std::byte* lower, std::int64_t n, unsigned flip, std::int16_t* to) {
    for (std::int64_t i = 0; i < n; ++i)
        to[i] = static_cast<std::int16_t>((std::to_integer<unsigned>(upper[i]) << 8 | std::to_integer<unsigned>(lower[i])) ^ flip);
}

#endif

}  // namespace

packed_word_weights::packed_word_weights(const tensor& w, bool side_by_side) : joined(side_by_side), rows(w.dim(2)) {
    const std::int64_t outputs = w.dim(0), channels = w.dim(1), columns = w.dim(3);
    const std::int64_t taps = joined ? columns : 1, runs = joined ? rows : rows * columns;
    run = channels * taps, pairs = (run + 1) / 2;
    const std::int64_t vectors = whole_vectors(outputs);
    words.assign(static_cast<std::size_t>(vectors * runs * pairs * 16), 0);
    sums.assign(static_cast<std::size_t>(vectors * vector_outputs), 0);
    const auto values = w.as<std::int8_t>();
    for (std::int64_t o = 0; o < outputs; ++o) {
        // Two vectors side by side, but for the last of an odd number.
        const std::int64_t vector = o / vector_outputs, first = vector / 2 * 2, side = std::min<std::int64_t>(2, vectors - first);
        std::int64_t magnitudes = 0, sum = 0;
        for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < rows; ++r)
                for (std::int64_t s = 0; s < columns; ++s) {
                    const std::int8_t value = values[static_cast<std::size_t>(((o * channels + c) * rows + r) * columns + s)];
                    const std::int64_t k = joined ? s * channels + c : c, of_run = joined ? r : r * columns + s;
                    const std::int64_t at = first * runs * pairs * 16 + (of_run * pairs + k / 2) * 16 * side + (vector - first) * 16 +
                                            o % vector_outputs * 2 + k % 2;
                    words[static_cast<std::size_t>(at)] = value;
                    magnitudes += std::abs(int{value}), sum += value;
                }
        largest = std::max(largest, magnitudes);
        sums[static_cast<std::size_t>(o)] = static_cast<std::int32_t>(sum);
    }
}

bool word_convolution::is_quick() {
#if defined(QK_WORDS) && defined(QK_HAVE_ONEDNN)
    // oneDNN is asked so that its limits for tests are kept, too.
    static const bool quick = [] {
        const auto has = [](dnnl::cpu_isa isa) {
            return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
        };
        return has(dnnl::cpu_isa::avx2) && !has(dnnl::cpu_isa::avx512_core) && __builtin_cpu_supports("avx2") != 0 &&
               __builtin_cpu_supports("fma") != 0;
    }();
    return quick;
#else
    return false;
#endif
}

std::optional<word_convolution> word_convolution::make(const word_shape& s, const narrow_form& form,
                                                       std::shared_ptr<const packed_word_weights> weights, std::vector<float> scale,
                                                       std::span<const float> bias, bool relu) {
    const std::int64_t largest = form.planes == 1 ? (form.is_signed ? 128 : 255) : (form.is_signed ? 32768 : 65535);
    if (weights->largest * largest >= std::int64_t{1} << 31) return std::nullopt;
    word_convolution c;
    c.shape_ = s, c.form_ = form, c.relu_ = relu;
    const auto filled_up = static_cast<std::size_t>(whole_vectors(s.outputs) * vector_outputs);
    for (std::size_t i = 0; i < bias.size(); ++i) c.bias_.push_back(bias[i] / scale[i]);
    if (!bias.empty()) c.bias_.resize(filled_up, 0.0f);
    scale.resize(filled_up, 0.0f);
    c.scale_ = std::move(scale);
    if (form.planes == 2 && !form.is_signed)
        for (const std::int32_t sum : weights->sums) c.correction_.push_back(sum * 32768);
    const auto span_of = [](const word_shape::axis& a) {  // from the first element that a window reads to behind the last
        return std::max(a.pad_begin + a.in, (a.out - 1) * a.stride + (a.kernel - 1) * a.dilation + 1);
    };
    c.height_ = span_of(s.down), c.width_ = span_of(s.across);
    if (s.images * c.height_ * c.width_ * s.channels >= std::int64_t{1} << 31) return std::nullopt;
    for (std::int64_t i = 0; i < s.down.out; ++i)
        for (std::int64_t j = 0; j < s.across.out; ++j)
            c.places_.push_back(static_cast<std::int32_t>((i * s.down.stride * c.width_ + j * s.across.stride) * s.channels));
    for (std::int64_t i = 0; i < s.down.kernel; ++i)
        for (std::int64_t j = 0; j < (weights->joined ? 1 : s.across.kernel); ++j)
            c.runs_.push_back(static_cast<std::int32_t>((i * s.down.dilation * c.width_ + j * s.across.dilation) * s.channels));
    c.weights_ = std::move(weights);
    return c;
}

void word_convolution::widen([[maybe_unused]] const std::byte* x, [[maybe_unused]] std::int64_t plane,
                             [[maybe_unused]] std::int16_t* to) const {
#ifdef QK_WORDS
    const std::int64_t row = shape_.across.in * shape_.channels, padded_row = width_ * shape_.channels;
    const std::int64_t before = shape_.across.pad_begin * shape_.channels;
    const bool flips = form_.planes == 2 && !form_.is_signed;
    const auto none = static_cast<std::int16_t>(flips ? -32768 : 0);
    for (std::int64_t n = 0; n < shape_.images; ++n)
        for (std::int64_t i = 0; i < height_; ++i, to += padded_row) {
            const std::int64_t from = i - shape_.down.pad_begin;
            if (from < 0 || from >= shape_.down.in) {
                std::fill(to, to + padded_row, none);
                continue;
            }
            const std::byte* bytes = x + (n * shape_.down.in + from) * row;
            std::fill(to, to + before, none);
            if (form_.planes == 1) widen_bytes(bytes, row, form_.is_signed, to + before);
            else join_bytes(bytes, bytes + plane, row, flips ? 0x8000u : 0u, to + before);
            std::fill(to + before + row, to + padded_row, none);
        }
    *to = 0;  // a run of an odd length reads one word more, of weight zero
#endif
}

void word_convolution::run([[maybe_unused]] const std::byte* x, [[maybe_unused]] std::int64_t plane, [[maybe_unused]] const float* added,
                           [[maybe_unused]] float* y, [[maybe_unused]] allocator& memory) const {
#ifdef QK_WORDS
    const std::int64_t image = height_ * width_ * shape_.channels, places = shape_.down.out * shape_.across.out;
    const auto room = memory.allocate(static_cast<std::size_t>(shape_.images * image + 1) * sizeof(std::int16_t));
    auto* words = reinterpret_cast<std::int16_t*>(room.get());
    widen(x, plane, words);
    const std::int64_t vectors = whole_vectors(shape_.outputs), runs = std::ssize(runs_);
    for (std::int64_t n = 0; n < shape_.images; ++n)
        // Blocks of places whose words stay in the first cache while all weights pass by.
        for (std::int64_t block = 0; block < places; block += places_a_block)
            for (std::int64_t v = 0; v < vectors; v += 2) {
                tile_call c{weights_->words.data() + v * runs * weights_->pairs * 16,
                            correction_.empty() ? nullptr : correction_.data() + v * vector_outputs,
                            scale_.data() + v * vector_outputs,
                            bias_.empty() ? nullptr : bias_.data() + v * vector_outputs,
                            nullptr,
                            nullptr,
                            shape_.outputs,
                            shape_.outputs - v * vector_outputs,
                            runs_.data(),
                            runs,
                            weights_->pairs,
                            relu_};
                const std::int64_t end = std::min(block + places_a_block, places);
                for (std::int64_t p = block; p < end; p += places_a_tile) {
                    const std::int16_t* windows[places_a_tile];
                    for (std::int64_t i = 0; i < places_a_tile; ++i)
                        windows[i] = words + n * image + places_[static_cast<std::size_t>(std::min(p + i, end - 1))];
                    const std::int64_t at = (n * places + p) * shape_.outputs + v * vector_outputs;
                    c.added = added == nullptr ? nullptr : added + at;
                    c.y = y + at;
                    const std::int64_t here = std::min(end - p, places_a_tile);
                    if (v + 1 < vectors) tile_of<2>(here, windows, c);
                    else tile_of<1>(here, windows, c);
                }
            }
#endif
}

}  // namespace qk::graph::execute
