// SPDX-License-Identifier: Apache-2.0
// Definitions of word_convolution.hpp.
#include "graph/evaluate/words/word_convolution.hpp"

#include <algorithm>
#include <cstdlib>

#include "graph/evaluate/words/word_filter.hpp"
#include "graph/evaluate/words/word_tile.hpp"

#ifdef QK_HAVE_ONEDNN
#include <dnnl.hpp>
#endif

namespace qk::graph::execute {

using words::places_a_tile, words::vector_outputs, words::whole_vectors;

namespace {

constexpr std::int64_t places_a_block = 48;

#ifdef QK_WORDS

/// Widens bytes, signed or unsigned, to words.
[[gnu::target("avx2")]] void widen_bytes(const std::byte* x, std::int64_t n, bool is_signed, std::int16_t* to) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(x);
    if (is_signed)
        for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int8_t>(bytes[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) to[i] = bytes[i];
}

/// Copies words less `flip`, which is 2^15 for unsigned numbers and else 0.
[[gnu::target("avx2")]] void flip_words(const std::byte* x, std::int64_t n, unsigned flip, std::int16_t* to) {
    const auto* words = reinterpret_cast<const std::uint16_t*>(x);
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int16_t>(words[i] ^ flip);
}

#endif

}  // namespace

packed_word_weights::packed_word_weights(const tensor& w, bool side_by_side, bool for_fewer, int planes)
    : joined(side_by_side), rows(w.dim(2)), is_filtered(for_fewer) {
    const std::int64_t outputs = w.dim(0), channels = w.dim(1), columns = w.dim(3);
    const std::int64_t taps = joined ? columns : 1, runs = joined ? rows : rows * columns;
    run = channels * taps, pairs = (run + 1) / 2;
    const std::int64_t vectors = whole_vectors(outputs);
    words.assign(static_cast<std::size_t>(vectors * runs * pairs * 16), 0);
    sums.assign(static_cast<std::size_t>(vectors * vector_outputs), 0);
    const auto values = w.as<std::int8_t>();
    for (std::int64_t o = 0; o < outputs; ++o) {
        // Two vectors are packed side by side; the last of an odd number is alone.
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
    if (!is_filtered || (planes == 2 && largest > words::largest_filtered)) return;
    filtered = words::filtered_weights(w);
    if (planes == 1) words.clear(), words.shrink_to_fit();  // 16-bit numbers may still need them
}

bool word_convolution::is_quick() {
#if defined(QK_WORDS) && defined(QK_HAVE_ONEDNN)
    // Asks oneDNN, so that limits that tests set for its instruction sets apply here, too.
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
    if (!weights->filtered.empty())  // a tile may reach a row and a column beyond the results
        c.height_ = std::max(c.height_, (s.down.out + 1) / 2 * 2 + 2), c.width_ = std::max(c.width_, (s.across.out + 1) / 2 * 2 + 2);
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

void word_convolution::widen([[maybe_unused]] const std::byte* x, [[maybe_unused]] std::int16_t* to) const {
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
            const std::byte* bytes = x + (n * shape_.down.in + from) * row * form_.planes;
            std::fill(to, to + before, none);
            if (form_.planes == 1) widen_bytes(bytes, row, form_.is_signed, to + before);
            else flip_words(bytes, row, flips && form_.zero == 0 ? 0x8000u : 0u, to + before);
            std::fill(to + before + row, to + padded_row, none);
        }
    *to = 0;  // a run of an odd length reads one word more, of weight zero
#endif
}

#ifdef QK_WORDS

namespace words {
namespace {

/// Computes results [begin, end) of an image for `Vectors` vectors of outputs.
template <int Vectors>
[[gnu::target("avx2,fma")]] void run_block(const layer_call& c, std::int64_t begin, std::int64_t end, std::int64_t vector) {
    const std::int64_t runs = std::ssize(c.runs), first = vector * vector_outputs;
    const products of{c.weights.words.data() + vector * runs * c.weights.pairs * 16, c.runs.data(), runs, c.weights.pairs};
    for (std::int64_t p = begin; p < end; p += places_a_tile) {
        const std::int16_t* windows[places_a_tile];
        for (std::int64_t k = 0; k < places_a_tile; ++k) windows[k] = c.x + c.places[static_cast<std::size_t>(std::min(p + k, end - 1))];
        const std::int64_t here = std::min(end - p, places_a_tile);
        alignas(32) std::int32_t sums[places_a_tile][Vectors * vector_outputs];
        tile_of<Vectors>(here, windows, of, sums[0]);
        for (std::int64_t v = 0; v < Vectors; ++v) {
            const ending e(c, vector + v);
            const std::int64_t at = v * vector_outputs;
            const __m256i more = c.correction == nullptr ? _mm256_setzero_si256() : load(c.correction + first + at);
            for (std::int64_t k = 0; k < here; ++k) finish(_mm256_add_epi32(load(sums[k] + at), more), e, (p + k) * c.shape.outputs);
        }
    }
}

void run_places(const layer_call& c) {
    const std::int64_t vectors = whole_vectors(c.shape.outputs), places = std::ssize(c.places);
    // The words of a block of places stay in L1 cache while all weights are read.
    for (std::int64_t block = 0; block < places; block += places_a_block)
        for (std::int64_t v = 0; v < vectors; v += 2) {
            const std::int64_t end = std::min(block + places_a_block, places);
            if (v + 1 < vectors) run_block<2>(c, block, end, v);
            else run_block<1>(c, block, end, v);
        }
}

}  // namespace
}  // namespace words

#endif

void word_convolution::run([[maybe_unused]] const std::byte* x, [[maybe_unused]] const float* added, [[maybe_unused]] float* y,
                           [[maybe_unused]] allocator& memory) const {
#ifdef QK_WORDS
    const std::int64_t image = height_ * width_ * shape_.channels, places = shape_.down.out * shape_.across.out;
    const bool filters = !weights_->filtered.empty();
    const std::size_t bytes = static_cast<std::size_t>(shape_.images * image + 1) * sizeof(std::int16_t),
                      whole_lines = (bytes + 63) / 64 * 64;
    const auto room = memory.allocate(whole_lines + (filters ? words::room_to_filter(shape_, form_) : 0));
    auto* all = reinterpret_cast<std::int16_t*>(room.get());
    widen(x, all);
    for (std::int64_t n = 0; n < shape_.images; ++n) {
        const std::int64_t at = n * places * shape_.outputs;
        const words::layer_call c{shape_,
                                  *weights_,
                                  places_,
                                  runs_,
                                  scale_.data(),
                                  bias_.empty() ? nullptr : bias_.data(),
                                  correction_.empty() ? nullptr : correction_.data(),
                                  relu_,
                                  height_,
                                  width_,
                                  all + n * image,
                                  added == nullptr ? nullptr : added + at,
                                  y + at};
        if (!filters || !words::run_filtered(c, form_, room.get() + whole_lines)) words::run_places(c);
    }
#endif
}

}  // namespace qk::graph::execute
