// SPDX-License-Identifier: Apache-2.0
// Sums of packed rows, each times a number: what attention makes of its values. A sum is a chain over the rows, so that a later page of a
// cache can go on where an earlier one ended.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/isa.hpp"
#include "qk/product/activation.hpp"
#include "qk/product/call.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// sum[m][c] += by[m][r] * row[r][c] for M vectors and C vectors of lanes, r upward.
template <class Arch, std::size_t M, std::size_t C>
QK_APART void add_weighted(std::size_t rows, const float* by, std::size_t by_stride, const float* row, std::size_t row_stride, float* sum,
                           std::size_t sum_stride) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    kernels::vf<Arch> s[M][C];
    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
        kernels::unrolled<C>([&](auto c) QK_INLINE_CALL { s[m][c] = kernels::load<Arch>(sum + m * sum_stride + c * w); });
    });
    for (std::size_t r = 0; r < rows; ++r) {
        kernels::vf<Arch> value[C];
        kernels::unrolled<C>([&](auto c) QK_INLINE_CALL { value[c] = kernels::load<Arch>(row + r * row_stride + c * w); });
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
            const kernels::vf<Arch> times(by[m * by_stride + r]);
            kernels::unrolled<C>([&](auto c) QK_INLINE_CALL { s[m][c] = fused<Arch>(times, value[c], s[m][c]); });
        });
    }
    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
        kernels::unrolled<C>([&](auto c) QK_INLINE_CALL { kernels::store<Arch>(sum + m * sum_stride + c * w, s[m][c]); });
    });
}

template <class Arch>
class weighted_walk {
  public:
    weighted_walk(const weight_rows<Arch>& w, const weighted_call& c) noexcept : w_(w), c_(c) {}

    QK_APART void run() noexcept {
        std::memset(row_, 0, sizeof row_);  // lanes behind a row's last column are computed, too
        for (std::size_t k = c_.first; k < c_.last; k += tile_of_columns) {
            columns_ = std::min(tile_of_columns, c_.last - k);
            for (std::size_t m = 0; m < c_.x.count; m += most_vectors) {
                vectors_ = std::min(most_vectors, c_.x.count - m);
                begin(m, k);
                for (std::size_t r = 0; r < c_.w.rows; r += rows_at_once) add_rows(m, k, r, std::min(rows_at_once, c_.w.rows - r));
                finish(m, k);
            }
        }
    }

  private:
    static constexpr std::size_t tile_of_columns = 128, rows_at_once = 16, most_vectors = 16;

    std::size_t place(std::size_t m, std::size_t k) const noexcept {
        return m * (c_.y.stride != 0 ? c_.y.stride : c_.w.columns * c_.y.step) + k * c_.y.step;
    }
    void begin(std::size_t first, std::size_t k) noexcept {
        std::memset(sum_, 0, sizeof sum_);
        if (c_.options.begin.empty()) return;
        for (std::size_t m = 0; m < vectors_; ++m)
            for (std::size_t i = 0; i < columns_; ++i) sum_[m * tile_of_columns + i] = c_.options.begin[place(first + m, k + i)];
    }
    void add_rows(std::size_t first, std::size_t k, std::size_t row, std::size_t rows) noexcept {
        for (std::size_t r = 0; r < rows; ++r)
            w_.decode(c_.w.first_row + (row + r) * c_.w.row_step, c_.w.first_column + k, columns_, row_ + r * tile_of_columns);
        const product_input& x = c_.x;
        for (std::size_t m = 0; m < vectors_; ++m) {
            const std::size_t at = (first + m) * (x.stride != 0 ? x.stride : c_.w.rows * x.step) + row * x.step;
            if (x.step == 1) x.values.copy<Arch>(at, rows, by_ + m * rows_at_once);
            else
                for (std::size_t r = 0; r < rows; ++r) by_[m * rows_at_once + r] = x.values[at + r * x.step];
        }
        std::size_t m = 0;
        for (; m + 4 <= vectors_; m += 4) add<4>(m, rows);
        for (; m < vectors_; ++m) add<1>(m, rows);
    }
    template <std::size_t M>
    void add(std::size_t m, std::size_t rows) noexcept {
        constexpr std::size_t w = kernels::lanes<Arch>, C = M == 1 && tile_of_columns >= 8 * w ? 8 : 2;
        const auto call = [&]<std::size_t Count>(std::size_t c) QK_INLINE_CALL {
            add_weighted<Arch, M, Count>(rows, by_ + m * rows_at_once, rows_at_once, row_ + c, tile_of_columns,
                                         sum_ + m * tile_of_columns + c, tile_of_columns);
        };
        std::size_t c = 0;
        for (; c + C * w <= columns_; c += C * w) call.template operator()<C>(c);
        for (; c < columns_; c += w) call.template operator()<1>(c);
    }
    void finish(std::size_t first, std::size_t k) noexcept {
        const weighted_options& o = c_.options;
        for (std::size_t m = 0; m < vectors_; ++m) {
            float* out = sum_ + m * tile_of_columns;
            const std::size_t at = place(first + m, k);
            for (std::size_t i = 0; i < columns_; ++i) {
                float s = kept(out[i] * o.scale);
                if (!o.column_scale.empty()) s = kept(s * o.column_scale[k + i]);
                if (o.plus.size() != 0) s = s + o.plus[at + i * c_.y.step];
                out[i] = s;
            }
            if (c_.y.step == 1) c_.y.values.copy<Arch>(out, at, columns_);
            else
                for (std::size_t i = 0; i < columns_; ++i) c_.y.values.copy<Arch>(out + i, at + i * c_.y.step, 1);
        }
    }

    const weight_rows<Arch>& w_;
    const weighted_call& c_;
    std::size_t columns_ = 0, vectors_ = 0;
    alignas(64) float row_[rows_at_once * tile_of_columns], sum_[most_vectors * tile_of_columns], by_[most_vectors * rows_at_once];
};

}  // namespace QK_ISA
}  // namespace qk::detail
