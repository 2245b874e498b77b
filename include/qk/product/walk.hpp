// SPDX-License-Identifier: Apache-2.0
// The loops of a product: blocks of rows, pieces of x on the stack, and the epilogue. The order of the sums is that of product/sums.hpp
// whatever the blocks are: they only say when a partial sum rests in memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/product/activation.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/nibbles.hpp"
#include "qk/product/options.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {

/// What a product is called with, besides the weights.
struct product_call {
    const product_input& x;
    const product_output& y;
    const product_options& options;
    std::size_t first, last;  ///< rows
};

/// Copies n values of vector `m` of x from number `k` on.
template <class Arch>
QK_APART void copy_input(const product_input& x, std::size_t columns, std::size_t m, std::size_t k, std::size_t n, float* to) noexcept {
    const std::size_t at = m * (x.stride != 0 ? x.stride : columns * x.step) + k * x.step;
    if (x.step == 1) return x.values.copy<Arch>(at, n, to);
    for (std::size_t i = 0; i < n; ++i) to[i] = x.values[at + i * x.step];
}

template <class Arch>
class product_walk {
  public:
    product_walk(const weight_rows<Arch>& w, const product_call& c) noexcept : w_(w), c_(c), columns_(w.matrix.columns) {}

    QK_APART void run() noexcept {
        for (std::size_t m = 0; m < c_.x.count; m += vectors_) {
            const bool whole = c_.options.sums == product_sums::integers;
            vectors_ = whole ? 1 : std::min(most_vectors, c_.x.count - m);
            first_vector_ = m;
            one_piece_ = false;
            piece_ = whole ? int8_size : vectors_ == 1 ? x_size : x_size / (vectors_ <= 4 ? 4 : most_vectors);
            const form how = whole ? form::integers : form_of_rows();
            if (whole && m == 0) elements_.fill(w_);
            for (std::size_t r = c_.first; r < c_.last; r += block_of_rows) {
                const std::size_t rows = std::min(block_of_rows, c_.last - r);
                for (std::size_t i = 0; i < rows; ++i) std::memset(sum_ + i * of_row, 0, vectors_ * partial_sums * sizeof(float));
                if (how == form::integers) integer_rows(r, rows);
                else if (how == form::decoded) decoded_rows(r, rows);
                else rows_in_registers(r, rows, how);
                finish(r, rows);
            }
        }
    }

  private:
    static constexpr std::size_t x_size = 8192, int8_size = 4096, most_vectors = 16, block_of_rows = 16, decoded = 512;
    static constexpr std::size_t of_row = most_vectors * partial_sums;

    // ---- weights decoded to memory

    void decoded_rows(std::size_t row, std::size_t rows) noexcept {
        for (std::size_t k = 0; k < columns_; k += piece_) {
            const std::size_t n = std::min(piece_, columns_ - k);
            if (!one_piece_) {
                for (std::size_t m = 0; m < vectors_; ++m) copy_input<Arch>(c_.x, columns_, first_vector_ + m, k, n, x_ + m * piece_);
            }
            one_piece_ = n == columns_;
            for (std::size_t i = 0; i < n; i += decoded) {
                const std::size_t some = std::min(decoded, n - i);
                for (std::size_t r = 0; r < rows; r += 2) {
                    w_.decode(row + r, k + i, some, weights_);
                    if (r + 1 < rows) w_.decode(row + r + 1, k + i, some, weights_ + decoded);
                    if (r + 1 < rows) add<2>(weights_, i, some, sum_ + r * of_row);
                    else add<1>(weights_, i, some, sum_ + r * of_row);
                }
            }
        }
    }
    /// Adds the products of R decoded rows with all vectors.
    template <std::size_t R>
    void add(const float* weights, std::size_t i, std::size_t n, float* sum) const noexcept {
        std::size_t m = 0;
        for (; m + 2 <= vectors_; m += 2)
            add_products<Arch, R, 2>(weights, decoded, x_ + m * piece_ + i, piece_, n, sum + m * partial_sums, of_row);
        for (; m < vectors_; ++m)
            add_products<Arch, R, 1>(weights, decoded, x_ + m * piece_ + i, piece_, n, sum + m * partial_sums, of_row);
    }

    // ---- weights decoded in registers

    static constexpr std::size_t group = 32, rows_at_once = 4;
    enum class form { decoded, nibbles, codes, integers };

    form form_of_rows() noexcept {
        const std::size_t run = w_.run;
        if (vectors_ != 1 || columns_ < group || !kernels::has_fused<Arch>()) return form::decoded;
        if (w_.matrix.rows > 1 && columns_ * static_cast<std::size_t>(w_.width) % 8 != 0) return form::decoded;
        if (run != all_weights && run != group / 2 && (run == 0 || run % group != 0)) return form::decoded;
        if (has_nibbles && w_.width == 4) {
            table_.fill(w_);
            if (table_.usable) return form::nibbles;
        }
        return w_.in_registers() ? form::codes : form::decoded;
    }
    void rows_in_registers(std::size_t row, std::size_t rows, form how) noexcept {
        const std::size_t whole = columns_ / group * group, rest = columns_ - whole;
        for (std::size_t k = 0; k < whole; k += piece_) {
            const std::size_t n = std::min(piece_, whole - k);
            if (!one_piece_) {
                copy_input<Arch>(c_.x, columns_, first_vector_, k, n, x_);
                if (how == form::nibbles) order_input(n);
            }
            one_piece_ = n == whole;
            for (std::size_t r = 0; r < rows; r += rows_at_once)
                add_rows(row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * of_row, how);
        }
        for (std::size_t r = 0; how == form::nibbles && r < rows; ++r) {
            float* sum = sum_ + r * of_row;
            float ordered[partial_sums];
            std::memcpy(ordered, sum, sizeof ordered);
            for (std::size_t i = 0; i < partial_sums; ++i) sum[nibble_order[i]] = ordered[i];
        }
        if (rest == 0) return;
        alignas(64) float x[group];
        copy_input<Arch>(c_.x, columns_, first_vector_, whole, rest, x);
        for (std::size_t r = 0; r < rows; ++r) {
            w_.decode(row + r, whole, rest, weights_);
            add_products<Arch, 1, 1>(weights_, decoded, x, group, rest, sum_ + r * of_row, of_row);
        }
    }
    QK_APART void order_input(std::size_t n) noexcept {
        for (std::size_t i = 0; i < n; i += partial_sums) {
            float natural[partial_sums];
            std::memcpy(natural, x_ + i, sizeof natural);
            for (std::size_t j = 0; j < partial_sums; ++j) x_[i + j] = natural[nibble_order[j]];
        }
    }
    /// Fills p with a piece of at most rows_at_once rows.
    piece_of_rows pieces_of(packed_piece* p, std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* sum) noexcept {
        bool zeros = false;
        const std::size_t run = w_.run == all_weights ? columns_ : w_.run, first = w_.run == all_weights ? 0 : k / run,
                          number = w_.run == all_weights ? 1 : (k + n - 1) / run - first + 1;
        for (std::size_t r = 0; r < rows; ++r) {
            p[r].codes = w_.codes(row + r, k);
            p[r].factor = w_.factors(row + r, first, number, factors_[r], zeros_[r], p[r].zero);
            zeros |= p[r].zero != nullptr;
            if (w_.run == group / 2 || w_.run == group) continue;
            spread(p[r].factor, run, k, n, factors_[r]);
            p[r].factor = factors_[r];
            if (p[r].zero != nullptr) spread(p[r].zero, run, k, n, zeros_[r]);
        }
        for (std::size_t r = 0; zeros && r < rows; ++r) {
            if (p[r].zero == nullptr) std::fill(zeros_[r], zeros_[r] + (n + group - 1) / group * 2, 0.0f), p[r].zero = zeros_[r];
        }
        if (rows % 2 != 0) p[rows] = p[rows - 1];
        return {p, rows, n / group, w_.run == group / 2 ? std::size_t{2} : std::size_t{1}, zeros, x_, sum, of_row};
    }
    /// Adds the products of at most rows_at_once rows with a piece of x.
    void add_rows(std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* sum, form how) noexcept {
        packed_piece p[rows_at_once];
        const piece_of_rows pieces = pieces_of(p, row, rows, k, n, sum);
        if (how == form::codes) w_.add_codes(pieces);
        else if constexpr (has_nibbles) add_nibbles<Arch>(table_, pieces);
    }
    /// Writes the entry of each group of a piece, given those of its runs. `from` may be `to`, since a run has more than one group.
    QK_APART static void spread(const float* from, std::size_t run, std::size_t k, std::size_t n, float* to) noexcept {
        const std::size_t first = k / run;
        for (std::size_t end = k + n, run_number = (end - 1) / run + 1; run_number-- > first;) {
            const std::size_t begin = std::max(k, run_number * run), until = std::min(end, (run_number + 1) * run);
            const float value = from[run_number - first];
            std::fill(to + (begin - k) / group, to + (until - k + group - 1) / group, value);
        }
    }

    // ---- x in int8

    /// Is true where the weights are whole numbers of a unit, and share factors as the loops below expect.
    bool takes_integers() const noexcept {
        return elements_.usable && (w_.run == all_weights || w_.run == group / 2 || w_.run % group == 0);
    }
    bool integers_in_registers() const noexcept {
        const bool known = w_.width == 4 ? elements_.in_bytes : elements_.two_s_complement || elements_.natural;
        return has_fast_integers && known && (w_.matrix.rows == 1 || columns_ * static_cast<std::size_t>(w_.width) % 8 == 0);
    }
    void integer_rows(std::size_t row, std::size_t rows) noexcept {
        if (!takes_integers()) {  // the caller broke the contract: no number is right
            for (std::size_t r = 0; r < rows; ++r) sum_[r * of_row] = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        const bool fast = integers_in_registers();
        const integer_input x{q_, scale_, four_};
        for (std::size_t k = 0; k < columns_; k += piece_) {
            const std::size_t n = std::min(piece_, columns_ - k), whole = fast ? n / group * group : 0;
            if (!one_piece_) {
                copy_input<Arch>(c_.x, columns_, first_vector_, k, n, x_);
                round_input<Arch>(x_, n, elements_.unit, x);
                if (w_.width == 4) order_integers(whole);
            }
            one_piece_ = n == columns_;
            for (std::size_t r = 0; r < rows; r += rows_at_once) {
                packed_piece p[rows_at_once];
                const piece_of_rows pieces = pieces_of(p, row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * of_row);
                if constexpr (has_fast_integers) {
                    if (fast) add_integers<Arch>(pieces, x, elements_, w_.width);
                }
                for (std::size_t i = 0; i < pieces.rows; ++i) rest_of_integers(pieces, i, row + r + i, k, whole, n);
            }
        }
    }
    /// Adds the blocks of row i of a piece from number `from` on.
    void rest_of_integers(const piece_of_rows& p, std::size_t i, std::size_t row, std::size_t k, std::size_t from, std::size_t n) noexcept {
        for (std::size_t at = from; at < n; at += group) {
            const std::size_t some = std::min(group, n - at), entry = at / group * p.factors;
            std::uint32_t code[group];
            std::int32_t element[group];
            get_codes<Arch>(w_.matrix.planes.elements, row * columns_ + k + at, some, w_.width, code);
            for (std::size_t j = 0; j < some; ++j) element[j] = elements_.value[code[j]];
            add_whole<Arch>(element, q_ + at, some, p.piece[i].factor + entry, p.factors,
                            p.piece[i].zero == nullptr ? nullptr : p.piece[i].zero + entry, scale_[at / group], p.sum + i * of_row);
        }
    }
    /// Puts the even numbers of each block before the odd ones.
    QK_APART void order_integers(std::size_t n) noexcept {
        for (std::size_t i = 0; i < n; i += group) {
            std::int8_t natural[group];
            std::memcpy(natural, q_ + i, sizeof natural);
            for (std::size_t j = 0; j < group; ++j) q_[i + j] = natural[j % 16 * 2 + j / 16];
        }
    }

    // ---- epilogue

    /// Writes the outputs of a block of rows.
    QK_APART void finish(std::size_t row, std::size_t rows) const noexcept {
        const product_options& o = c_.options;
        const product_output& y = c_.y;
        float out[block_of_rows];
        for (std::size_t m = 0; m < vectors_; ++m) {
            const std::size_t at = (first_vector_ + m) * (y.stride != 0 ? y.stride : w_.matrix.rows * y.step) + row * y.step;
            for (std::size_t r = 0; r < rows; ++r) {
                float s = kept(joined(sum_ + r * of_row + m * partial_sums) * o.scale);
                if (!o.row_scale.empty()) s = kept(s * o.row_scale[row + r]);
                if (!o.bias.empty()) s = s + o.bias[row + r];
                s = activated(o.act, s);
                if (o.times.size() != 0) s = kept(s * o.times[at + r * y.step]);
                if (o.plus.size() != 0) s = s + o.plus[at + r * y.step];
                out[r] = s;
            }
            if (y.step == 1) y.values.copy<Arch>(out, at, rows);
            else
                for (std::size_t r = 0; r < rows; ++r) y.values.copy<Arch>(out + r, at + r * y.step, 1);
        }
    }

    const weight_rows<Arch>& w_;
    const product_call& c_;
    const std::size_t columns_;
    std::size_t vectors_ = 1, first_vector_ = 0, piece_ = 0;
    bool one_piece_ = false;  ///< x_ holds all of x
    nibble_table table_;
    whole_elements elements_;
    alignas(64) std::int8_t q_[int8_size];
    alignas(64) std::int32_t four_[int8_size / 4];
    alignas(64) float scale_[int8_size / group];
    alignas(64) float factors_[rows_at_once][x_size / group * 2], zeros_[rows_at_once][x_size / group * 2];
    alignas(64) float x_[x_size];
    alignas(64) float sum_[block_of_rows * of_row];
    alignas(64) float weights_[2 * decoded];
};

}  // namespace qk::detail
