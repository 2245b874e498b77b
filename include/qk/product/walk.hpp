// SPDX-License-Identifier: Apache-2.0
// The loops of a product: blocks of rows, pieces of x on the stack, and the epilogue. The order of the sums is that of product/sums.hpp
// whatever the blocks are: they only say when a partial sum rests in memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/product/activation.hpp"
#include "qk/product/call.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/nibbles.hpp"
#include "qk/product/options.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {

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
    product_walk(const weight_rows<Arch>& w, const product_call& c) noexcept : w_(w), c_(c), columns_(c.w.columns) {}

    QK_APART void run() noexcept {
        if (c_.options.sums == product_sums::integers) elements_.fill(w_);
        if (c_.experts == nullptr) return vectors(0, c_.x.count);
        const std::span<const expert_choice> chosen = c_.experts->chosen;
        for (std::size_t i = 0, end = 0; i < chosen.size(); i = end) {
            for (end = i + 1; end < chosen.size() && chosen[end].expert == chosen[i].expert;) ++end;
            first_of_expert_ = chosen[i].expert * c_.experts->rows;
            expert_scale_ = c_.experts->scale.empty() ? 1.0f : c_.experts->scale[chosen[i].expert];
            vectors(i, end);
        }
    }

  private:
    static constexpr std::size_t x_size = 8192, int8_size = 4096, most_vectors = 64, rows_of_one = 16, rows_of_many = 8, decoded = 512;

    /// Multiplies vectors from number `begin` to before `end`: of x, or of what a router chose.
    void vectors(std::size_t begin, std::size_t end) noexcept {
        for (std::size_t m = begin; m < end; m += vectors_) {
            const bool whole = c_.options.sums == product_sums::integers;
            vectors_ = whole ? 1 : std::min(most_vectors, end - m);
            first_vector_ = m;
            of_row_ = vectors_ * partial_sums;
            one_piece_ = false;
            piece_ = whole ? int8_size : x_size;
            const form how = whole ? form::integers : form_of_rows();
            const std::size_t block_of_rows = how == form::decoded ? rows_of_many : rows_of_one;
            for (std::size_t r = c_.first; r < c_.last; r += block_of_rows) {
                const std::size_t rows = std::min(block_of_rows, c_.last - r);
                std::memset(sum_, 0, rows * of_row_ * sizeof(float));
                if (how == form::integers) integer_rows(r, rows);
                else if (how == form::decoded) decoded_rows(r, rows);
                else rows_in_registers(r, rows, how);
                finish(r, rows);
            }
        }
    }
    /// Returns the row of the matrix that is row r of the product.
    std::size_t in_matrix(std::size_t r) const noexcept { return c_.w.first_row + first_of_expert_ + r * c_.w.row_step; }

    /// Copies n values of vector first_vector_ + m from number k on, rounded as the caller wants it: in pieces of whole blocks.
    void copy(std::size_t m, std::size_t k, std::size_t n, float* to) const noexcept {
        const std::size_t vector = c_.experts == nullptr ? first_vector_ + m : c_.experts->chosen[first_vector_ + m].from;
        const input_rounding& round = c_.options.round;
        if (round.call == nullptr) return copy_input<Arch>(c_.x, columns_, vector, k, n, to);
        constexpr std::size_t piece = 256;
        alignas(64) float given[piece], rounded[piece];
        for (std::size_t at = k / piece * piece; at < k + n; at += piece) {
            const std::size_t some = std::min(piece, columns_ - at), begin = std::max(at, k), end = std::min(at + some, k + n);
            copy_input<Arch>(c_.x, columns_, vector, at, some, given);
            round.call(round.context, given, rounded, some);
            std::memcpy(to + (begin - k), rounded + (begin - at), (end - begin) * sizeof(float));
        }
    }
    /// Returns the same values where they lie, or copies them.
    const float* input(std::size_t m, std::size_t k, std::size_t n, float* room) const noexcept {
        if (one_piece_) return x_ + m * columns_ + k;
        if (c_.x.step != 1 || c_.x.values.floats() == nullptr || c_.options.round.call != nullptr) {
            copy(m, k, n, room);
            return room;
        }
        const std::size_t vector = c_.experts == nullptr ? first_vector_ + m : c_.experts->chosen[first_vector_ + m].from;
        return c_.x.values.floats() + vector * (c_.x.stride != 0 ? c_.x.stride : columns_) + k;
    }

    // ---- weights decoded to memory

    /// Each decoded weight is multiplied by all vectors before the next ones are decoded.
    void decoded_rows(std::size_t row, std::size_t rows) noexcept {
        constexpr std::size_t at_once = vectors_at_once<Arch>;
        if (!one_piece_ && vectors_ * columns_ <= x_size) {
            for (std::size_t m = 0; m < vectors_; ++m) copy(m, 0, columns_, x_ + m * columns_);
            one_piece_ = true;
        }
        for (std::size_t k = 0; k < columns_; k += decoded) {
            const std::size_t n = std::min(decoded, columns_ - k);
            for (std::size_t r = 0; r < rows; ++r) w_.decode(in_matrix(row + r), c_.w.first_column + k, n, weights_ + r * decoded);
            for (std::size_t m = 0; m < vectors_; m += at_once) {
                const std::size_t some = std::min(at_once, vectors_ - m);
                const float* x[at_once];
                for (std::size_t i = 0; i < some; ++i) x[i] = input(m + i, k, n, x_ + i * decoded);
                add_products<Arch>(rows, some, weights_, decoded, x, n, sum_ + m * partial_sums, of_row_);
            }
        }
    }

    // ---- weights decoded in registers

    static constexpr std::size_t group = 32, rows_at_once = 4;
    enum class form { decoded, nibbles, codes, integers };

    form form_of_rows() noexcept {
        if (vectors_ != 1 || columns_ < group || !kernels::has_fused<Arch>() || !whole_bytes() || !whole_runs()) return form::decoded;
        if (has_nibbles && w_.width == 4) {
            table_.fill(w_);
            if (table_.usable) {
                // Where factors are one byte each, a table for each of them has the products, which saves multiplying each weight.
                float factor[256];
                scaled_tables_ =
                    w_.run == group && c_.last - c_.first >= rows_of_one && w_.factors_of_bytes(factor) && tables_.fill(table_, factor);
                return form::nibbles;
            }
        }
        return w_.in_registers() ? form::codes : form::decoded;
    }
    /// Is true where the codes of each row begin at a whole byte.
    bool whole_bytes() const noexcept {
        const auto width = static_cast<std::size_t>(w_.width);
        return (w_.matrix.rows == 1 || w_.matrix.columns * width % 8 == 0) && c_.w.first_column * width % 8 == 0;
    }
    /// Is true where a factor is that of a row, or of 16 weights or a multiple of 32 from the first column on.
    bool whole_runs() const noexcept {
        const std::size_t run = w_.run, first = c_.w.first_column;
        if (run == all_weights) return true;
        return run == group / 2 ? first % run == 0 : run != 0 && run % group == 0 && first % group == 0;
    }
    void rows_in_registers(std::size_t row, std::size_t rows, form how) noexcept {
        const std::size_t whole = columns_ / group * group, rest = columns_ - whole;
        for (std::size_t k = 0; k < whole; k += piece_) {
            const std::size_t n = std::min(piece_, whole - k);
            if (!one_piece_) {
                copy(0, k, n, x_);
                if (how == form::nibbles) order_input(n);
            }
            one_piece_ = n == whole;
            for (std::size_t r = 0; r < rows; r += rows_at_once)
                add_rows(row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * partial_sums, how);
        }
        for (std::size_t r = 0; how == form::nibbles && r < rows; ++r) {
            float* sum = sum_ + r * partial_sums;
            float ordered[partial_sums];
            std::memcpy(ordered, sum, sizeof ordered);
            for (std::size_t i = 0; i < partial_sums; ++i) sum[nibble_order[i]] = ordered[i];
        }
        if (rest == 0) return;
        alignas(64) float x[group];
        copy(0, whole, rest, x);
        const float* const in = x;
        for (std::size_t r = 0; r < rows; ++r) w_.decode(in_matrix(row + r), c_.w.first_column + whole, rest, weights_ + r * group);
        add_products<Arch>(rows, 1, weights_, group, &in, rest, sum_, partial_sums);
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
        k += c_.w.first_column;
        const std::size_t run = w_.run == all_weights ? w_.matrix.columns : w_.run, first = w_.run == all_weights ? 0 : k / run,
                          number = w_.run == all_weights ? 1 : (k + n - 1) / run - first + 1;
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t in = in_matrix(row + r);
            p[r].codes = w_.codes(in, k);
            if (scaled_tables_) {
                p[r].scale = w_.scale_bytes(in, first);
                continue;
            }
            p[r].factor = w_.factors(in, first, number, factors_[r], zeros_[r], p[r].zero);
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
        return {p, rows, n / group, w_.run == group / 2 ? std::size_t{2} : std::size_t{1}, zeros, x_, sum, partial_sums};
    }
    /// Adds the products of at most rows_at_once rows with a piece of x.
    void add_rows(std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* sum, form how) noexcept {
        packed_piece p[rows_at_once];
        const piece_of_rows pieces = pieces_of(p, row, rows, k, n, sum);
        if (how == form::codes) w_.add_codes(pieces);
        else if constexpr (has_nibbles) {
            if (scaled_tables_) add_scaled_nibbles<Arch>(tables_, pieces);
            else add_nibbles<Arch>(table_, pieces);
        }
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
    bool takes_integers() const noexcept { return elements_.usable && whole_runs(); }
    bool integers_in_registers() const noexcept {
        const bool known = w_.width == 4 ? elements_.is_narrow() : elements_.two_s_complement || elements_.natural;
        return has_fast_integers && known && whole_bytes();
    }
    void integer_rows(std::size_t row, std::size_t rows) noexcept {
        if (!takes_integers()) {  // the caller broke the contract: no number is right
            for (std::size_t r = 0; r < rows; ++r) sum_[r * partial_sums] = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        const bool fast = integers_in_registers();
        const integer_input x{q_, scale_, eight_, lane_scale_, lane_eight_, lane_more_};
        for (std::size_t k = 0; k < columns_; k += piece_) {
            const std::size_t n = std::min(piece_, columns_ - k), whole = fast ? n / (2 * group) * (2 * group) : 0;
            if (!one_piece_) {
                copy(0, k, n, x_);
                round_input<Arch>(x_, n, elements_.unit, x);
                if constexpr (has_fast_integers) order_lanes(whole, w_.width, codes_of(elements_, w_.width).lowest, x);
            }
            one_piece_ = n == columns_;
            for (std::size_t r = 0; r < rows; r += rows_at_once) {
                packed_piece p[rows_at_once];
                const piece_of_rows pieces = pieces_of(p, row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * partial_sums);
                if constexpr (has_fast_integers) {
                    if (fast) add_integers<Arch>(pieces, x, codes_of(elements_, w_.width));
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
            get_codes<Arch>(w_.matrix.planes.elements, in_matrix(row) * w_.matrix.columns + c_.w.first_column + k + at, some, w_.width,
                            code);
            for (std::size_t j = 0; j < some; ++j) element[j] = elements_.value[code[j]];
            add_whole<Arch>(element, q_ + at, some, p.piece[i].factor + entry, p.factors,
                            p.piece[i].zero == nullptr ? nullptr : p.piece[i].zero + entry, scale_[at / group], (k + at) / group,
                            p.sum + i * partial_sums);
        }
    }

    // ---- epilogue

    /// Writes the outputs of a block of rows.
    QK_APART void finish(std::size_t row, std::size_t rows) const noexcept {
        const product_options& o = c_.options;
        const product_output& y = c_.y;
        float out[rows_of_one];
        for (std::size_t m = 0; m < vectors_; ++m) {
            const expert_choice* chosen = c_.experts == nullptr ? nullptr : &c_.experts->chosen[first_vector_ + m];
            const std::size_t vector = chosen == nullptr ? first_vector_ + m : chosen->to,
                              at = vector * (y.stride != 0 ? y.stride : c_.w.rows * y.step) + row * y.step;
            for (std::size_t r = 0; r < rows; ++r) {
                const std::size_t of = first_of_expert_ + row + r;
                float s = kept(joined(sum_ + r * of_row_ + m * partial_sums) * o.scale);
                if (chosen != nullptr) s = kept(s * expert_scale_);
                if (!o.row_scale.empty()) s = kept(s * o.row_scale[of]);
                if (!o.bias.empty()) s = s + o.bias[of];
                s = activated(o.act, s);
                if (chosen != nullptr) s = kept(s * chosen->weight);
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
    std::size_t vectors_ = 1, first_vector_ = 0, piece_ = 0, of_row_ = partial_sums;
    std::size_t first_of_expert_ = 0;
    float expert_scale_ = 1;
    bool one_piece_ = false;      ///< x_ holds all of x
    bool scaled_tables_ = false;  ///< tables_ hold the weights for each scale
    nibble_table table_;
    scaled_nibble_tables tables_;
    whole_elements elements_;
    alignas(64) std::int8_t q_[int8_size];
    alignas(64) std::int32_t eight_[int8_size / 8], lane_eight_[int8_size / 8], lane_more_[int8_size / 8];
    alignas(64) float scale_[int8_size / group], lane_scale_[int8_size / 8];
    alignas(64) float factors_[rows_at_once][x_size / group * 2], zeros_[rows_at_once][x_size / group * 2];
    alignas(64) float x_[x_size];
    alignas(64) float sum_[rows_of_many * most_vectors * partial_sums];
    alignas(64) float weights_[rows_of_many * decoded];
};

}  // namespace qk::detail
