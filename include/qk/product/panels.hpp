// SPDX-License-Identifier: Apache-2.0
// Products for many vectors with x rounded to int8 by block (product_sums::integers; AVX-512 with VNNI): a lane for each of sixteen
// vectors, so that a decoded weight is multiplied by all of them. The bits are those of integers.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qk/isa.hpp"
#include "qk/product/call.hpp"
#include "qk/product/ends.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/rows.hpp"

namespace qk::detail {
inline namespace QK_ISA {

#if QK_HAS(WIDE_BYTE_PRODUCTS) && defined(QK_MASK_REGISTERS)

/// Sixteen vectors of x: for each four columns their bytes, for each eight the sums of these, for each block of 32 their scales.
struct panel_of_input {
    static constexpr std::size_t lanes = 16, depth = 2048;
    alignas(64) std::int8_t q[lanes * depth];
    alignas(64) std::int32_t eight[lanes * depth / 8];
    alignas(64) float scale[lanes * depth / block_of_input];

    /// Puts n rounded values of a vector, from column k of the panel on, into its lane.
    QK_INLINE void put(std::size_t lane, std::size_t k, std::size_t n, const integer_input& x) noexcept {
        for (std::size_t i = 0; i < n; i += 4) std::memcpy(q + (k + i) * lanes + lane * 4, x.q + i, 4);
        for (std::size_t i = 0; i < n / 8; ++i) eight[(k / 8 + i) * lanes + lane] = x.eight[i];
        for (std::size_t i = 0; i < n / block_of_input; ++i) scale[(k / block_of_input + i) * lanes + lane] = x.scale[i];
    }
};

/// Returns the four bytes at `from` in each lane.
QK_INLINE __m512i four_bytes(const std::byte* from) noexcept {
    std::int32_t four;
    std::memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

/// Adds the products of four rows, whose codes are their elements less the lowest one, a byte each, to their eight partial sums of sixteen
/// lanes: first those of blocks 0, 2, 4 ..., then the others.
template <class Arch, std::size_t Factors, bool Zero>
QK_INLINE void add_panel(const packed_piece* piece, const panel_of_input& x, std::size_t blocks, std::size_t step, std::int32_t least,
                         float* sum, std::size_t sum_stride) noexcept {
    constexpr std::size_t R = rows_at_once, lanes = panel_of_input::lanes;
    const __m512i lowest = _mm512_set1_epi32(least), none = _mm512_setzero_si512();
    for (std::size_t parity = 0; parity < 2; ++parity) {
        float* const at = sum + parity * 4 * lanes;
        __m512 s[R][4];
        kernels::unrolled<4 * R>([&](auto i)
                                     QK_INLINE_CALL { s[i / 4][i % 4] = _mm512_loadu_ps(at + i / 4 * sum_stride + i % 4 * lanes); });
        for (std::size_t b = parity; b < blocks; b += 2) {
            const __m512 scale = _mm512_load_ps(x.scale + b * lanes);
            kernels::unrolled<4>([&](auto j) QK_INLINE_CALL {
                const std::size_t group = b * 4 + j, entry = b * step + (Factors == 2 ? j / 2 : 0);
                const __m512i eight = _mm512_load_si512(x.eight + group * lanes), start = Zero ? none : _mm512_mullo_epi32(eight, lowest),
                              q0 = _mm512_load_si512(x.q + group * 8 * lanes), q1 = _mm512_load_si512(x.q + group * 8 * lanes + 64);
                kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                    const __m512i a = four_bytes(piece[r].codes + group * 8), c = four_bytes(piece[r].codes + group * 8 + 4);
                    __m512i whole = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, a, q0), c, q1);
                    if constexpr (Zero) {
                        const std::int32_t own = static_cast<std::int32_t>(piece[r].zero[entry]) - least;
                        whole = _mm512_sub_epi32(whole, _mm512_mullo_epi32(eight, _mm512_set1_epi32(own)));
                    }
                    const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(piece[r].factor[entry]));
                    s[r][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), by, s[r][j]);
                });
            });
        }
        kernels::unrolled<4 * R>([&](auto i)
                                     QK_INLINE_CALL { _mm512_storeu_ps(at + i / 4 * sum_stride + i % 4 * lanes, s[i / 4][i % 4]); });
    }
}
template <class Arch>
QK_APART void add_panel(const packed_piece* piece, const panel_of_input& x, std::size_t blocks, std::size_t factors, std::size_t step,
                        bool zeros, std::int32_t lowest, float* sum, std::size_t sum_stride) noexcept {
    const auto all = [&]<std::size_t Factors, bool Zero>()
                         QK_INLINE_CALL { add_panel<Arch, Factors, Zero>(piece, x, blocks, step, lowest, sum, sum_stride); };
    if (factors == 2) zeros ? all.template operator()<2, true>() : all.template operator()<2, false>();
    else zeros ? all.template operator()<1, true>() : all.template operator()<1, false>();
}

template <class Arch>
class panels_walk : product_ends<Arch> {
    using base = product_ends<Arch>;
    using base::c_, base::columns_, base::copy, base::first_vector_, base::group, base::in_matrix, base::vectors_, base::w_,
        base::whole_bytes, base::whole_runs;

  public:
    panels_walk(const weight_rows<Arch>& w, const product_call& c) noexcept : base(w, c) {}

    /// Returns false, and has done nothing, where the call is none for this form.
    bool run() noexcept {
        constexpr std::size_t fewest = 12;  // below, lanes would stay empty, and the form for a few vectors is faster
        if (c_.experts != nullptr || c_.x.count < fewest || columns_ % group != 0 || !whole_bytes() || !whole_runs()) return false;
        std::memset(&x_, 0, sizeof x_);  // lanes behind the last vector are computed, too
        elements_.fill(w_);
        if (!elements_.usable || !elements_.in_registers(w_.width)) return false;
        for (std::size_t m = 0; m < c_.x.count; m += lanes) {
            first_vector_ = m, vectors_ = std::min(lanes, c_.x.count - m);
            for (std::size_t r = c_.first; r < c_.last; r += rows_of_sums) rows(r, std::min(rows_of_sums, c_.last - r));
        }
        return true;
    }

  private:
    static constexpr std::size_t lanes = panel_of_input::lanes, depth = panel_of_input::depth, rows_of_sums = 96, sums = 8 * lanes,
                                 some_columns = 256;

    QK_APART void rows(std::size_t row, std::size_t count) noexcept {
        std::memset(sum_, 0, sizeof sum_);
        const integer_codes codes = codes_of<Arch>(elements_, w_.width);
        for (std::size_t k = 0; k < columns_; k += depth) {
            const std::size_t n = std::min(depth, columns_ - k);
            if (columns_ > depth || row == c_.first) order_input(k, n);
            const typename base::runs of = this->runs_of(c_.w.first_column + k, n);
            for (std::size_t r = 0; r < count; r += rows_at_once) {
                packed_piece p[rows_at_once];
                bool zeros = false;
                for (std::size_t i = 0; i < rows_at_once; ++i) {
                    const std::size_t in = in_matrix(row + std::min(r + i, count - 1)), at = c_.w.first_column + k;
                    p[i].factor = this->factors_of(in, of, at, n, factors_[i], zeros_[i], p[i].zero);
                    p[i].codes = bytes_of(w_.codes(in, at), n, codes, bytes_ + i * depth);
                    zeros = zeros || p[i].zero != nullptr;
                }
                for (std::size_t i = 0; zeros && i < rows_at_once; ++i) {
                    if (p[i].zero == nullptr) std::fill(zeros_[i], zeros_[i] + entries, 0.0f), p[i].zero = zeros_[i];
                }
                add_panel<Arch>(p, x_, n / group, this->factors_of_group(), this->step_of_group(), zeros, codes.lowest, sum_ + r * sums,
                                sums);
            }
        }
        for (std::size_t r = 0; r < count; ++r) join(sum_ + r * sums);
        for (std::size_t r = 0; r < count; r += base::most_rows)
            this->finish(row + r, std::min(base::most_rows, count - r),
                         [&](std::size_t m, std::size_t i) { return sum_[(r + i) * sums + m]; });
    }
    /// Joins the eight partial sums of each lane as joined() does, whose numbers 8 to 15 are +0 here. The first sixteen numbers get them.
    static void join(float* sum) noexcept {
        __m512 s[8];
        kernels::unrolled<8>([&](auto j) QK_INLINE_CALL { s[j] = _mm512_add_ps(_mm512_load_ps(sum + j * lanes), _mm512_setzero_ps()); });
        kernels::unrolled<4>([&](auto j) QK_INLINE_CALL { s[j] = _mm512_add_ps(s[j], s[j + 4]); });
        _mm512_store_ps(sum, _mm512_add_ps(_mm512_add_ps(s[0], s[2]), _mm512_add_ps(s[1], s[3])));
    }
    /// Rounds n values of all vectors. (Some columns at a time, so that what the lanes of a line get finds it in the cache.)
    QK_APART void order_input(std::size_t k, std::size_t n) noexcept {
        const integer_input rounded{q_, scale_, eight_, nullptr, nullptr, nullptr, nullptr};
        const bool in_place = c_.x.step == 1 && c_.x.values.floats() != nullptr && c_.options.round.call == nullptr;
        for (std::size_t at = 0; at < n; at += some_columns) {
            const std::size_t some = std::min(some_columns, n - at);
            for (std::size_t m = 0; m < vectors_; ++m) {
                if (c_.x.is_rounded()) {
                    take_rounded<Arch>(c_.x.rounded, columns_, this->vector(m), k + at, some, elements_.unit, rounded);
                } else {
                    if (!in_place) copy(m, k + at, some, room_);
                    round_input<Arch>(in_place ? this->in_memory(m, k + at) : room_, some, elements_.unit, rounded);
                }
                x_.put(m, at, some, rounded);
            }
        }
    }
    /// Returns n elements less the lowest one, where they lie or in `room`.
    static const std::byte* bytes_of(const std::byte* from, std::size_t n, const integer_codes& codes, std::byte* room) noexcept {
        if (codes.kind == integer_kind::bytes) return from;
        const __m256i flip = _mm256_set1_epi8(-128), nibble = _mm256_set1_epi8(15);
        for (std::size_t i = 0; i < n; i += 32) {
            __m256i v;
            if (codes.kind == integer_kind::signed_bytes) {
                v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)), flip);
            } else {
                const __m256i two = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i / 2)));
                v = _mm256_shuffle_epi8(codes.table, _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16(two, 4)), nibble));
            }
            _mm256_store_si256(reinterpret_cast<__m256i*>(room + i), v);
        }
        return room;
    }

    whole_elements elements_;
    panel_of_input x_;
    alignas(64) float room_[some_columns], scale_[some_columns / group];
    alignas(64) std::int8_t q_[some_columns];
    alignas(64) std::int32_t eight_[some_columns / 8];
    alignas(64) std::byte bytes_[rows_at_once * depth];
    static constexpr std::size_t entries = depth / group * 2 + base::behind_factors;
    alignas(64) float factors_[rows_at_once][entries], zeros_[rows_at_once][entries];
    alignas(64) float sum_[rows_of_sums * sums];
};
/// Computes a product in this form, or returns false.
template <class Arch>
QK_APART bool product_in_panels(const weight_rows<Arch>& w, const product_call& c) noexcept {
    return panels_walk<Arch>(w, c).run();
}

#else

template <class Arch>
QK_INLINE bool product_in_panels(const weight_rows<Arch>&, const product_call&) noexcept {
    return false;
}

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
