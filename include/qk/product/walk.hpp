// SPDX-License-Identifier: Apache-2.0
// The loops of a product: blocks of rows, pieces of x on the stack, and the epilogue. The order of the sums is that of product/sums.hpp
// whatever the blocks are: they only say when a partial sum rests in memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/isa.hpp"
#include "qk/product/activation.hpp"
#include "qk/product/call.hpp"
#include "qk/product/ends.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/nibbles.hpp"
#include "qk/product/options.hpp"
#include "qk/product/permuted.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

template <class Arch>
class product_walk : product_ends<Arch> {
    using base = product_ends<Arch>;
    using base::c_, base::columns_, base::copy, base::first_vector_, base::group, base::in_matrix, base::table_, base::vectors_, base::w_,
        base::whole_bytes, base::whole_runs;

  public:
    product_walk(const weight_rows<Arch>& w, const product_call& c) noexcept : base(w, c) {}

    QK_APART void run() noexcept {
        if (c_.options.sums == product_sums::integers) elements_.fill(w_);
        this->each_expert([&](std::size_t begin, std::size_t end) { vectors(begin, end); });
    }

  private:
    static constexpr std::size_t x_size = 8192, int8_size = 2 * most_rounded, most_vectors = 64, rows_of_one = 16, rows_of_many = 8,
                                 decoded = 512;

    /// Multiplies vectors from number `begin` to before `end`: of x, or of what a router chose.
    void vectors(std::size_t begin, std::size_t end) noexcept {
        for (std::size_t m = begin; m < end; m += vectors_) {
            const bool whole = c_.options.sums == product_sums::integers;
            const form how = whole ? form::integers : form_of_rows(end - m);
            vectors_ = how == form::decoded ? std::min(most_vectors, end - m) : std::min(most_in_registers(how), end - m);
            if (whole && !c_.x.is_rounded() && vectors_ > 1)
                vectors_ = std::clamp<std::size_t>(sizeof x_ / std::max(padded_columns(columns_), group), 1,
                                                   vectors_);  // those that round_once has room for
            computed_ = how != form::decoded && !whole && vectors_ % 4 == 3 ? vectors_ + 1 : vectors_;  // three are computed as four
            first_vector_ = m;
            of_row_ = computed_ * partial_sums;
            one_piece_ = false;
            // Several vectors share the first-level cache.
            const std::size_t share = computed_ <= 2 ? computed_ : computed_ <= 4 ? 4 : 8;
            piece_ = whole ? std::min(most_rounded, int8_size / share) : share == 1 ? x_size : x_size / 2 / share;
            kept_ = {};
            if (whole && !c_.x.is_rounded() && columns_ > piece_ && vectors_ * padded_columns(columns_) <= sizeof x_) round_once();
            if (computed_ != vectors_) std::memset(x_ + vectors_ * piece_, 0, piece_ * sizeof(float));
            // What is done once for a piece of x serves as many rows as there is room for sums of.
            const std::size_t rows_of_pieces = rows_of_many * most_vectors / computed_;
            const std::size_t block_of_rows = how == form::decoded ? rows_of_many : columns_ <= piece_ ? rows_of_one : rows_of_pieces;
            for (std::size_t r = c_.first; r < c_.last; r += block_of_rows) {
                const std::size_t rows = std::min(block_of_rows, c_.last - r);
                std::memset(sum_, 0, rows * of_row_ * sizeof(float));
                if (how == form::integers) integer_rows(r, rows);
                else if (how == form::decoded) decoded_rows(r, rows);
                else rows_in_registers(r, rows, how);
                for (std::size_t done = 0; done < rows; done += base::most_rows) {
                    const float* const sum = sum_ + done * of_row_;
                    this->finish(r + done, std::min(base::most_rows, rows - done),
                                 [&](std::size_t vector, std::size_t i) { return joined(sum + i * of_row_ + vector * partial_sums); });
                }
            }
        }
    }
    /// Returns the same values where they lie, or copies them.
    const float* input(std::size_t m, std::size_t k, std::size_t n, float* room) const noexcept {
        if (one_piece_) return x_ + m * columns_ + k;
        if (c_.x.step != 1 || c_.x.values.floats() == nullptr || c_.options.round.call != nullptr) {
            copy(m, k, n, room);
            return room;
        }
        return this->in_memory(m, k);
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
            this->decode(row, rows, k, n, weights_, decoded);
            for (std::size_t m = 0, some = 0; m < vectors_; m += some) {
                some = next_vectors<Arch>(vectors_ - m);
                const float* x[at_once];
                for (std::size_t i = 0; i < some; ++i) x[i] = input(m + i, k, n, x_ + i * decoded);
                add_products<Arch>(rows, some, weights_, decoded, x, n, sum_ + m * partial_sums, of_row_);
            }
        }
    }

    // ---- weights decoded in registers

    enum class form { decoded, nibbles, permuted, codes, integers };

    static std::size_t most_in_registers(form how) noexcept {
        if (how == form::codes) return 4;  // more of them are faster from memory
        return (how == form::integers && has_fast_integers) || how == form::nibbles ? 8 : 1;
    }
    form form_of_rows(std::size_t count) noexcept {
        if (count > 8 || columns_ < group || !kernels::has_fused<Arch>() || !whole_bytes() || !whole_runs()) return form::decoded;
        if (table_.usable) {
            // Where factors are one byte each, a table for each of them has the products, which saves multiplying each weight.
            float factor[256];
            scaled_tables_ = w_.run >= least_scaled_run && w_.run <= group && c_.last - c_.first >= rows_of_one &&
                             w_.factors_of_bytes(factor) && tables_.template fill<Arch>(table_, factor);
            return form::nibbles;
        }
        if (count == 1) {
            permuted_.template fill<Arch>(w_);
            if (permuted_.usable) return form::permuted;
        }
        return count <= most_in_registers(form::codes) && w_.in_registers() ? form::codes : form::decoded;
    }
    void rows_in_registers(std::size_t row, std::size_t rows, form how) noexcept {
        const std::size_t whole = columns_ / group * group, rest = columns_ - whole;
        for (std::size_t k = 0; k < whole; k += piece_) {
            const std::size_t n = std::min(piece_, whole - k);
            for (std::size_t m = 0; !one_piece_ && m < vectors_; ++m) {
                float* const x = x_ + m * piece_;
                copy(m, k, n, x);
                if constexpr (has_nibbles) {
                    for (std::size_t i = 0; how == form::nibbles && i < n; i += partial_sums) put_in_nibble_order<Arch>(x + i);
                }
            }
            one_piece_ = n == whole;
            for (std::size_t r = 0; r < rows; r += rows_at_once)
                add_rows(row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * of_row_, how);
        }
        if constexpr (has_nibbles) {
            for (std::size_t i = 0; how == form::nibbles && i < rows * of_row_; i += partial_sums) put_in_nibble_order<Arch>(sum_ + i);
        }
        if (rest == 0) return;
        alignas(64) float x[8][group];
        const float* in[8];
        for (std::size_t m = 0; m < vectors_; ++m) copy(m, whole, rest, x[m]), in[m] = x[m];
        for (std::size_t r = 0; r < rows; r += rows_of_one) {
            const std::size_t some = std::min(rows_of_one, rows - r);
            this->decode(row + r, some, whole, rest, weights_, group);
            for (std::size_t m = 0, few = 0; m < vectors_; m += few) {
                few = next_vectors<Arch>(vectors_ - m);
                add_products<Arch>(some, few, weights_, group, in + m, rest, sum_ + r * of_row_ + m * partial_sums, of_row_);
            }
        }
    }
    piece_of_rows pieces(packed_piece* p, std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* sum) noexcept {
        float* const room = scaled_tables_ || in_blocks() ? nullptr : factors_[0];
        piece_of_rows made = this->pieces_of(p, row, rows, k, n, room, zeros_[0], entries_of_piece);
        made.x = x_, made.x_stride = piece_, made.sum = sum, made.sum_stride = of_row_;
        return made;
    }
    /// Adds the products of at most rows_at_once rows with a piece of x.
    void add_rows(std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* sum, form how) noexcept {
        packed_piece p[rows_at_once];
        piece_of_rows piece = pieces(p, row, rows, k, n, sum);
        for (std::size_t m = 0; m < computed_; m += piece.vectors) {
            next_of(piece, m, sum);
            add_rows(piece, how);
        }
    }
    /// Makes a piece that of the vectors from number m on.
    void next_of(piece_of_rows& piece, std::size_t m, float* sum) noexcept {
        piece.vectors = computed_ - m >= 4 ? 4 : computed_ - m >= 2 ? 2 : 1;
        piece.x = x_ + m * piece_, piece.sum = sum + m * partial_sums;
    }
    void add_rows(const piece_of_rows& piece, form how) noexcept {
        if (how == form::codes) return w_.add_codes(piece);
        if constexpr (has_permuted) {
            if (how == form::permuted) return add_permuted<Arch>(permuted_, piece, w_.width);
        }
        if constexpr (has_nibbles) {
            if (scaled_tables_) add_scaled_nibbles<Arch>(tables_, piece);
            else add_nibbles<Arch>(table_, piece);
        }
    }

    // ---- x in int8

    /// Is true where blocks have bytes of their own, and say themselves what their numbers are.
    bool in_blocks() const noexcept { return w_.block_bytes != 0; }
    /// Is true where the weights are whole numbers of a unit, and share factors as the loops below expect.
    bool takes_integers() const noexcept { return elements_.usable && (in_blocks() ? c_.w.first_column % group == 0 : whole_runs()); }
    bool integers_in_registers() const noexcept {
        if (!has_fast_integers || !whole_bytes()) return false;
        return in_blocks() ? w_.integers_in_registers() && whole_runs() : elements_.in_registers(w_.width);
    }
    /// Rounds the vectors at work for all rows, to the memory of x_, which is free in this order.
    QK_APART void round_once() noexcept {
        const std::size_t stride = padded_columns(columns_);
        auto* const q = reinterpret_cast<std::int8_t*>(x_);
        for (std::size_t m = 0; m < vectors_; ++m) {
            for (std::size_t k = 0; k < columns_; k += most_rounded) {
                const std::size_t n = std::min(most_rounded, columns_ - k), at = m * stride + k;
                round_input<Arch>(input(m, k, n, weights_), n, 1, q + at, kept_scale_ + at / group);
            }
        }
        kept_ = {std::span<const std::int8_t>(q, vectors_ * stride), kept_scale_};
    }
    void integer_rows(std::size_t row, std::size_t rows) noexcept {
        if (!takes_integers()) {  // the caller broke the contract: no number is right
            for (std::size_t i = 0; i < rows * of_row_; i += partial_sums) sum_[i] = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        const bool fast = integers_in_registers();
        const integer_input first{q_, scale_, eight_, lane_scale_, lane_eight_, lane_more_, block_sum_};
        for (std::size_t k = 0; k < columns_; k += piece_) {
            const std::size_t n = std::min(piece_, columns_ - k), whole = fast ? n / (2 * group) * (2 * group) : 0;
            for (std::size_t m = 0; !one_piece_ && m < vectors_; ++m) {
                const integer_input x = first.after(m * piece_);
                if (c_.x.is_rounded()) take_rounded<Arch>(c_.x.rounded, columns_, this->vector(m), k, n, elements_.unit, x);
                else if (!kept_.q.empty()) take_rounded<Arch>(kept_, columns_, m, k, n, elements_.unit, x);
                else round_input<Arch>(input(m, k, n, x_), n, elements_.unit, x);
                if constexpr (has_fast_integers) {
                    if (in_blocks()) order_blocks<Arch>(whole, x);
                    else order_lanes<Arch>(whole, w_.width, codes_of<Arch>(elements_, w_.width).lowest, x);
                }
            }
            one_piece_ = n == columns_;
            for (std::size_t r = 0; r < rows; r += rows_at_once) {
                packed_piece p[rows_at_once];
                piece_of_rows piece = pieces(p, row + r, std::min(rows_at_once, rows - r), k, n, sum_ + r * of_row_);
                if constexpr (has_fast_integers) {
                    for (std::size_t m = 0; fast && m < computed_; m += piece.vectors) {
                        next_of(piece, m, sum_ + r * of_row_);
                        if (in_blocks()) w_.add_integers(piece, first.after(m * piece_));
                        else add_integers<Arch>(piece, first.after(m * piece_), codes_of<Arch>(elements_, w_.width));
                    }
                }
                piece.sum = sum_ + r * of_row_;
                for (std::size_t i = 0; i < piece.rows; ++i) rest_of_integers(piece, i, row + r + i, k, whole, n);
            }
        }
    }
    /// Adds the blocks of row i of a piece from number `from` on.
    void rest_of_integers(const piece_of_rows& p, std::size_t i, std::size_t row, std::size_t k, std::size_t from, std::size_t n) noexcept {
        for (std::size_t at = from; at < n; at += group) {
            const std::size_t some = std::min(group, n - at), entry = at / group * p.step;
            const std::size_t column = c_.w.first_column + k + at;
            const float *factor = nullptr, *zero = nullptr;
            std::size_t factors = 2, constants = 0;
            std::int32_t element[group];
            float own[2], added[2];
            if (in_blocks()) {
                constants = w_.whole_numbers(in_matrix(row), column, some, element, own, added);
                factor = own;
            } else {
                std::uint32_t code[group];
                get_codes<Arch>(w_.matrix.planes.elements, in_matrix(row) * w_.matrix.columns + column, some, w_.width, code);
                for (std::size_t j = 0; j < some; ++j) element[j] = elements_.value[code[j]];
                factor = p.piece[i].factor + entry, factors = p.factors;
                if (p.piece[i].zero != nullptr) zero = p.piece[i].zero + entry;
            }
            for (std::size_t m = 0; m < vectors_; ++m) {
                const std::size_t of_x = m * piece_ + at, block = (k + at) / group;
                float* const sum = p.sum + i * of_row_ + m * partial_sums;
                add_whole<Arch>(element, q_ + of_x, some, factor, factors, zero, scale_[of_x / group], block, sum);
                add_constants<Arch>(q_ + of_x, some, added, constants, scale_[of_x / group], block, sum);
            }
        }
    }

    std::size_t piece_ = 0, of_row_ = partial_sums, computed_ = 1;
    bool one_piece_ = false;      ///< x_ holds all of x
    bool scaled_tables_ = false;  ///< tables_ hold the weights for each scale
    scaled_nibble_tables tables_;
    permuted_table permuted_;
    whole_elements elements_;
    rounded_vectors kept_{};  ///< the vectors at work, or none
    alignas(64) float kept_scale_[x_size * sizeof(float) / group];
    static_assert(most_rounded <= rows_of_many * decoded);
    alignas(64) std::int8_t q_[int8_size];
    alignas(64) std::int32_t eight_[int8_size / 8], lane_eight_[int8_size / 8], lane_more_[int8_size / 8];
    alignas(64) float scale_[int8_size / group], lane_scale_[int8_size / 8], block_sum_[int8_size / group];
    static constexpr std::size_t entries_of_piece = x_size / group * 2 + base::behind_factors;
    alignas(64) float factors_[rows_at_once][entries_of_piece], zeros_[rows_at_once][entries_of_piece];
    alignas(64) float x_[x_size];
    alignas(64) float sum_[rows_of_many * most_vectors * partial_sums];
    alignas(64) float weights_[rows_of_many * decoded];
};

}  // namespace QK_ISA
}  // namespace qk::detail
