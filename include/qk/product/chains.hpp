// SPDX-License-Identifier: Apache-2.0
// Products whose sums are chains (product_sums::chains). Many vectors: a lane for each of them, so that a decoded weight is multiplied by
// all of them. Few vectors, which would leave lanes empty: a lane for each row.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/isa.hpp"
#include "qk/product/call.hpp"
#include "qk/product/ends.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// sum[r][i] += w[r][k] * x[k][i], k upwards, for R rows and as many vectors as two registers have lanes.
template <class Arch, std::size_t R>
QK_APART void add_chains(const float* w, std::size_t w_stride, const float* x, std::size_t n, float* sum, std::size_t sum_stride) noexcept {
    constexpr std::size_t lanes = kernels::lanes<Arch>;
    kernels::vf<Arch> s[R][2];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        s[r][0] = kernels::load<Arch>(sum + r * sum_stride), s[r][1] = kernels::load<Arch>(sum + r * sum_stride + lanes);
    });
    for (std::size_t k = 0; k < n; ++k) {
        const kernels::vf<Arch> first = in_register<Arch>(kernels::load<Arch>(x + k * 2 * lanes)),
                                second = in_register<Arch>(kernels::load<Arch>(x + k * 2 * lanes + lanes));
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            const kernels::vf<Arch> weight(w[r * w_stride + k]);
            s[r][0] = fused<Arch>(weight, first, s[r][0]), s[r][1] = fused<Arch>(weight, second, s[r][1]);
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::store<Arch>(sum + r * sum_stride, s[r][0]), kernels::store<Arch>(sum + r * sum_stride + lanes, s[r][1]);
    });
}

/// sum[m][r] += x[m][k] * w[k][r], k upwards, for M vectors and as many rows as V registers have lanes.
template <class Arch, std::size_t M, std::size_t V>
QK_APART void add_chains_of_rows(const float* w, const float* const* x, std::size_t n, float* sum) noexcept {
    constexpr std::size_t lanes = kernels::lanes<Arch>, rows = V * lanes;
    kernels::vf<Arch> s[M][V];
    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
        kernels::unrolled<V>([&](auto v) QK_INLINE_CALL { s[m][v] = kernels::load<Arch>(sum + m * rows + v * lanes); });
    });
    const float* of[M];
    for (std::size_t m = 0; m < M; ++m) of[m] = x[m];
    for (std::size_t k = 0; k < n; ++k) {
        kernels::vf<Arch> value[M];
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { value[m] = in_register<Arch>(kernels::vf<Arch>(of[m][k])); });
        kernels::unrolled<V>([&](auto v) QK_INLINE_CALL {
            kernels::vf<Arch> weight = kernels::load<Arch>(w + k * rows + v * lanes);
            if constexpr (M > 1) weight = in_register<Arch>(weight);
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[m][v] = fused<Arch>(value[m], weight, s[m][v]); });
        });
    }
    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
        kernels::unrolled<V>([&](auto v) QK_INLINE_CALL { kernels::store<Arch>(sum + m * rows + v * lanes, s[m][v]); });
    });
}

#if QK_HAS(BYTE_SHUFFLES)

/// Writes eight times eight values, from[i][k], to to[k * stride + i].
QK_INLINE void transpose_eight(const float* const* from, std::size_t k, float* to, std::size_t stride) noexcept {
    __m256 in[8], pairs[8];
    kernels::unrolled<8>([&](auto i) QK_INLINE_CALL { in[i] = _mm256_loadu_ps(from[i] + k); });
    kernels::unrolled<4>([&](auto i) QK_INLINE_CALL {
        pairs[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]), pairs[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    });
    kernels::unrolled<2>([&](auto half) QK_INLINE_CALL {  // columns 0 and 4, 1 and 5, 2 and 6, 3 and 7 of four vectors
        const __m256 a = pairs[4 * half], b = pairs[4 * half + 1], c = pairs[4 * half + 2], d = pairs[4 * half + 3];
        in[half] = _mm256_shuffle_ps(a, c, 0x44), in[2 + half] = _mm256_shuffle_ps(a, c, 0xee);
        in[4 + half] = _mm256_shuffle_ps(b, d, 0x44), in[6 + half] = _mm256_shuffle_ps(b, d, 0xee);
    });
    kernels::unrolled<4>([&](auto i) QK_INLINE_CALL {
        _mm256_storeu_ps(to + i * stride, _mm256_permute2f128_ps(in[2 * i], in[2 * i + 1], 0x20));
        _mm256_storeu_ps(to + (i + 4) * stride, _mm256_permute2f128_ps(in[2 * i], in[2 * i + 1], 0x31));
    });
}

#endif

template <class Arch>
class chains_walk : product_ends<Arch> {
    using base = product_ends<Arch>;
    using base::c_, base::columns_, base::copy, base::first_vector_, base::vectors_;

  public:
    chains_walk(const weight_rows<Arch>& w, const product_call& c) noexcept : base(w, c) {}

    QK_APART void run() noexcept {
        std::memset(x_, 0, sizeof x_);  // lanes behind the last vector are computed, too
        this->each_expert([&](std::size_t begin, std::size_t end) {
            for (std::size_t m = begin; m < end; m += most_vectors) {
                first_vector_ = m, vectors_ = std::min(most_vectors, end - m);
                if (vectors_ <= panel / 2) {
                    for (std::size_t r = c_.first; r < c_.last; r += rows_in_lanes) in_lanes(r, std::min(rows_in_lanes, c_.last - r));
                    continue;
                }
                for (std::size_t r = c_.first; r < c_.last; r += rows_of_sums) rows(r, std::min(rows_of_sums, c_.last - r));
            }
        });
    }

  private:
    static constexpr std::size_t most_vectors = 64, depth = 256, rows_of_sums = 120, rows_at_once = 12, tile = 6;
    static constexpr std::size_t panel = 2 * kernels::lanes<Arch>;  ///< vectors that lie beside each other in x_

    void rows(std::size_t row, std::size_t count) noexcept {
        std::memset(sum_, 0, count * most_vectors * sizeof(float));
        for (std::size_t k = 0; k < columns_; k += depth) {
            const std::size_t n = std::min(depth, columns_ - k);
            order_input(k, n);
            for (std::size_t r = 0; r < count; r += rows_at_once) {
                const std::size_t some = std::min(rows_at_once, count - r);
                this->decode(row + r, some, k, n, weights_, depth);
                for (std::size_t m = 0; m < vectors_; m += panel) add_rows(some, x_ + m * depth, n, sum_ + r * most_vectors + m);
            }
        }
        for (std::size_t r = 0; r < count; r += base::most_rows)
            this->finish(row + r, std::min(base::most_rows, count - r),
                         [&](std::size_t m, std::size_t i) { return sum_[(r + i) * most_vectors + m]; });
    }
    void add_rows(std::size_t rows, const float* x, std::size_t n, float* sum) noexcept {
        std::size_t r = 0;
        for (; r + tile <= rows; r += tile) add_chains<Arch, tile>(weights_ + r * depth, depth, x, n, sum + r * most_vectors, most_vectors);
        for (; r + 2 <= rows; r += 2) add_chains<Arch, 2>(weights_ + r * depth, depth, x, n, sum + r * most_vectors, most_vectors);
        if (r < rows) add_chains<Arch, 1>(weights_ + r * depth, depth, x, n, sum + r * most_vectors, most_vectors);
    }
    // ---- few vectors

    static constexpr std::size_t rows_in_lanes = 32, depth_of_lanes = 128,
                                 at_once = 8;  ///< rows that are decoded, or vectors ordered, together
    static constexpr std::size_t registers = rows_in_lanes / kernels::lanes<Arch>, vectors_of_lanes = registers >= 8 ? 1 : 8 / registers;

    void in_lanes(std::size_t row, std::size_t count) noexcept {
        std::memset(sum_, 0, vectors_ * rows_in_lanes * sizeof(float));
        const bool in_place = c_.x.step == 1 && c_.x.values.floats() != nullptr && c_.options.round.call == nullptr;
        for (std::size_t k = 0; k < columns_; k += depth_of_lanes) {
            const std::size_t n = std::min(depth_of_lanes, columns_ - k);
            for (std::size_t r = 0; r < rows_in_lanes; r += at_once)
                order_weights(row + r, r < count ? std::min(at_once, count - r) : 0, k, n, x_ + r);
            const float* x[panel / 2];
            for (std::size_t m = 0; m < vectors_; ++m) {
                float* const room = room_ + m * depth_of_lanes;
                if (!in_place) copy(m, k, n, room);
                x[m] = in_place ? this->in_memory(m, k) : room;
            }
            std::size_t m = 0;
            for (; m + vectors_of_lanes <= vectors_; m += vectors_of_lanes)
                add_chains_of_rows<Arch, vectors_of_lanes, registers>(x_, x + m, n, sum_ + m * rows_in_lanes);
            for (; vectors_of_lanes > 1 && m < vectors_; ++m)
                add_chains_of_rows<Arch, 1, registers>(x_, x + m, n, sum_ + m * rows_in_lanes);
        }
        for (std::size_t r = 0; r < count; r += base::most_rows)
            this->finish(row + r, std::min(base::most_rows, count - r),
                         [&](std::size_t m, std::size_t i) { return sum_[m * rows_in_lanes + r + i]; });
    }
    /// Puts n weights each of at most eight rows from column k on into their lanes, [k][row].
    QK_APART void order_weights(std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* to) noexcept {
        if (rows != 0) this->decode(row, rows, k, n, weights_, depth_of_lanes);
        const float* from[at_once];
        for (std::size_t r = 0; r < at_once; ++r) from[r] = weights_ + (r < rows ? r : 0) * depth_of_lanes;  // lanes without a row get any
        std::size_t j = 0;
#if QK_HAS(BYTE_SHUFFLES)
        for (; j + at_once <= n; j += at_once) transpose_eight(from, j, to + j * rows_in_lanes, rows_in_lanes);
#endif
        for (; j < n; ++j)
            for (std::size_t r = 0; r < at_once; ++r) to[j * rows_in_lanes + r] = from[r][j];
    }

    // ---- many

    /// Puts n values of each vector from number k on into panels, [vector / panel][k][vector % panel].
    QK_APART void order_input(std::size_t k, std::size_t n) noexcept {
        const bool in_place = c_.x.step == 1 && c_.x.values.floats() != nullptr && c_.options.round.call == nullptr;
        for (std::size_t m = 0; m < vectors_; m += at_once) {
            const std::size_t some = std::min(at_once, vectors_ - m);
            const float* from[at_once];
            for (std::size_t i = 0; i < some; ++i) {
                if (in_place) {
                    from[i] = this->in_memory(m + i, k);
                } else {
                    copy(m + i, k, n, room_ + i * depth);
                    from[i] = room_ + i * depth;
                }
            }
            std::size_t j = 0;
#if QK_HAS(BYTE_SHUFFLES)
            if constexpr (panel % at_once == 0) {
                float* const to = x_ + m / panel * panel * depth + m % panel;
                for (; some == at_once && j + at_once <= n; j += at_once) transpose_eight(from, j, to + j * panel, panel);
            }
#endif
            for (std::size_t i = 0; i < some; ++i) {
                float* const to = x_ + (m + i) / panel * panel * depth + (m + i) % panel;
                for (std::size_t at = j; at < n; ++at) to[at * panel] = from[i][at];
            }
        }
    }
    static_assert(rows_in_lanes * depth_of_lanes <= most_vectors * depth && at_once * depth_of_lanes <= rows_at_once * depth &&
                  panel / 2 * depth_of_lanes <= at_once * depth);
    alignas(64) float x_[most_vectors * depth], room_[at_once * depth], weights_[rows_at_once * depth];
    alignas(64) float sum_[rows_of_sums * most_vectors];
};

}  // namespace QK_ISA
}  // namespace qk::detail
