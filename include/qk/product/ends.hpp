// SPDX-License-Identifier: Apache-2.0
// Where a product begins and ends, whatever the order of its sums: vectors of x, experts, and what follows a sum.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "qk/isa.hpp"
#include "qk/product/activation.hpp"
#include "qk/product/bytes.hpp"
#include "qk/product/call.hpp"
#include "qk/product/nibbles.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/rows.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Copies n values of vector `m` of x from number `k` on.
template <class Arch>
QK_APART void copy_input(const product_input& x, std::size_t columns, std::size_t m, std::size_t k, std::size_t n, float* to) noexcept {
    const std::size_t at = m * (x.stride != 0 ? x.stride : columns * x.step) + k * x.step;
    if (x.step == 1) return x.values.copy<Arch>(at, n, to);
    for (std::size_t i = 0; i < n; ++i) to[i] = x.values[at + i * x.step];
}

/// The same, rounded as the caller wants it: in pieces of whole blocks.
template <class Arch>
QK_APART void copy_input(const product_input& x, std::size_t columns, std::size_t m, std::size_t k, std::size_t n,
                         const input_rounding& round, float* to) noexcept {
    if (round.call == nullptr) return copy_input<Arch>(x, columns, m, k, n, to);
    constexpr std::size_t piece = 256;
    alignas(64) float given[piece], rounded[piece];
    for (std::size_t at = k / piece * piece; at < k + n; at += piece) {
        const std::size_t some = std::min(piece, columns - at), begin = std::max(at, k), end = std::min(at + some, k + n);
        copy_input<Arch>(x, columns, m, at, some, given);
        round.call(round.context, given, rounded, some);
        std::memcpy(to + (begin - k), rounded + (begin - at), (end - begin) * sizeof(float));
    }
}

template <class Arch>
class product_ends {
  protected:
    static constexpr std::size_t most_rows = 16;  ///< that finish() writes
    static constexpr std::size_t group = 32;

    product_ends(const weight_rows<Arch>& w, const product_call& c) noexcept : w_(w), c_(c), columns_(c.w.columns) {
        const bool whole = columns_ >= group && whole_bytes() && whole_runs();
        table_.usable = has_nibbles && w.width == 4 && whole;
        if (table_.usable) table_.fill(w);
        by_codes_ = whole && !table_.usable && w.decodes_codes();
    }
    product_ends(const product_ends&) = delete;
    product_ends& operator=(const product_ends&) = delete;

    /// Calls call(begin, end) for the vectors of x or, expert by expert, for what a router chose.
    template <class Call>
    void each_expert(const Call& call) noexcept {
        if (c_.experts == nullptr) return call(0, c_.x.count);
        const std::span<const expert_choice> chosen = c_.experts->chosen;
        for (std::size_t i = 0, end = 0; i < chosen.size(); i = end) {
            for (end = i + 1; end < chosen.size() && chosen[end].expert == chosen[i].expert;) ++end;
            first_of_expert_ = chosen[i].expert * c_.experts->rows;
            expert_scale_ = c_.experts->scale.empty() ? 1.0f : c_.experts->scale[chosen[i].expert];
            call(i, end);
        }
    }
    /// Returns the row of the matrix that is row r of the product.
    std::size_t in_matrix(std::size_t r) const noexcept { return c_.w.first_row + first_of_expert_ + r * c_.w.row_step; }

    /// Returns the number in x of vector first_vector_ + m.
    std::size_t vector(std::size_t m) const noexcept {
        return c_.experts == nullptr ? first_vector_ + m : c_.experts->chosen[first_vector_ + m].from;
    }
    /// Copies n values of vector first_vector_ + m from number k on, rounded as the caller wants it: in pieces of whole blocks.
    void copy(std::size_t m, std::size_t k, std::size_t n, float* to) const noexcept {
        copy_input<Arch>(c_.x, columns_, vector(m), k, n, c_.options.round, to);
    }
    /// Returns where value k of vector first_vector_ + m lies, of an x in float32 whose values are neighbours.
    const float* in_memory(std::size_t m, std::size_t k) const noexcept {
        return c_.x.values.floats() + vector(m) * (c_.x.stride != 0 ? c_.x.stride : columns_) + k;
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
        if (w_.block_bytes != 0) return first % run == 0 && columns_ % run == 0;
        return run == group / 2 ? first % run == 0 : run != 0 && run % group == 0 && first % group == 0;
    }
    /// The runs of weights under one factor that n columns from k on have a part in.
    struct runs {
        std::size_t run, first, number;
    };
    runs runs_of(std::size_t k, std::size_t n) const noexcept {
        if (w_.run == all_weights) return {w_.matrix.columns, 0, 1};
        const std::size_t first = k / w_.run;
        return {w_.run, first, (k + n - 1) / w_.run - first + 1};
    }
    /// Entries of factors for each group of 32 weights, and from a group to the next (piece_of_rows).
    std::size_t factors_of_group() const noexcept { return w_.run == group / 2 ? 2 : 1; }
    std::size_t step_of_group() const noexcept { return w_.run == all_weights ? 0 : factors_of_group(); }
    std::size_t entries_of(std::size_t n) const noexcept {
        return w_.run == all_weights ? entries_of_one : (n + group - 1) / group * factors_of_group();
    }
    /// So many entries are written behind the last one of a piece.
    static constexpr std::size_t behind_factors = 16;

    /// Returns the factors of a piece of a row of the matrix, one for each group of 32 weights or two, from a column on that is a multiple
    /// of 32; where the whole row shares one, entries_of_one. `zero`, where there are any, likewise. Each room has entries for them.
    const float* factors_of(std::size_t row, const runs& of, std::size_t k, std::size_t n, float* room, float* zero_room,
                            const float*& zero) const noexcept {
        const float* factor = w_.factors(row, of.first, of.number, room, zero_room, zero);
        if (w_.run == group / 2 || w_.run == group) return factor;
        spread(factor, of, k, n, room);
        if (zero != nullptr) {
            spread(zero, of, k, n, zero_room);
            zero = zero_room;
        }
        return room;
    }
    /// Fills p with a piece of at most rows_at_once rows of the product. `room` and `zero_room` have `stride` entries for each of them, or
    /// are null where only the codes of scales are wanted.
    piece_of_rows pieces_of(packed_piece* p, std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* room, float* zero_room,
                            std::size_t stride) const noexcept {
        bool zeros = false;
        k += c_.w.first_column;
        const runs of = runs_of(k, n);
        // The factors of whole rows that are neighbours are in one piece.
        const bool together = (w_.run == group || w_.run == group / 2) && of.number == w_.runs && c_.w.row_step == 1;
        const float *zero = nullptr, *factor = nullptr;
        if (together && room != nullptr) {
            factor = w_.factors(in_matrix(row), 0, rows * w_.runs, room, zero_room, zero);
            zeros = zero != nullptr;
        }
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t in = in_matrix(row + r);
            p[r].codes = w_.codes(in, k);
            if (room == nullptr) {
                p[r].scale = w_.scale_bytes(in, of.first, n / w_.run);
            } else if (together) {
                p[r].factor = factor + r * w_.runs, p[r].zero = zeros ? zero + r * w_.runs : nullptr;
            } else {
                p[r].factor = factors_of(in, of, k, n, room + r * stride, zero_room + r * stride, p[r].zero);
                zeros |= p[r].zero != nullptr;
            }
        }
        for (std::size_t r = 0; zeros && r < rows; ++r) {
            float* const none = zero_room + r * stride;
            if (p[r].zero == nullptr) std::fill(none, none + entries_of(n), 0.0f), p[r].zero = none;
        }
        for (std::size_t r = rows; r < rows_at_once; ++r) p[r] = p[rows - 1];
        // The same columns of as many rows further on come next.
        const std::size_t next = c_.w.row_step * w_.bytes_of_row() * rows_at_once;
        return {p, rows, n / group, factors_of_group(), step_of_group(), zeros, 1, nullptr, 0, nullptr, partial_sums, next};
    }
    /// Writes n weights each of rows of the product from column k on, a multiple of 32, those of row r from to + r * stride on.
    QK_APART void decode(std::size_t row, std::size_t rows, std::size_t k, std::size_t n, float* to, std::size_t stride) const noexcept {
        const std::size_t done = (table_.usable || by_codes_) && n <= most_decoded ? n / group * group : 0;
        for (std::size_t r = 0; done != 0 && r < rows; r += rows_at_once) {
            constexpr std::size_t entries = most_decoded / group * 2 + behind_factors;
            alignas(64) float own[rows_at_once * entries], own_zero[rows_at_once * entries];
            packed_piece p[rows_at_once];
            const piece_of_rows piece = pieces_of(p, row + r, std::min(rows_at_once, rows - r), k, done, own, own_zero, entries);
            if (by_codes_) w_.decode_codes(piece, to + r * stride, stride);
            if constexpr (has_nibbles) {
                if (!by_codes_) decode_nibbles<Arch>(table_, piece, to + r * stride, stride);
            }
        }
        for (std::size_t r = 0; done < n && r < rows; ++r)
            w_.decode(in_matrix(row + r), c_.w.first_column + k + done, n - done, to + r * stride + done);
    }
    /// Writes the outputs of a block of rows; sum(m, r) is that of its row r for vector m.
    template <class Sum>
    QK_APART void finish(std::size_t row, std::size_t rows, const Sum& sum) const noexcept {
        const product_options& o = c_.options;
        const product_output& y = c_.y;
        float out[most_rows];
        const bool alone = c_.experts == nullptr && o.row_scale.empty() && o.bias.empty() && o.act == activation::none &&
                           o.times.size() == 0 && o.plus.size() == 0;
        for (std::size_t m = 0; m < vectors_; ++m) {
            const expert_choice* chosen = c_.experts == nullptr ? nullptr : &c_.experts->chosen[first_vector_ + m];
            const std::size_t vector = chosen == nullptr ? first_vector_ + m : chosen->to,
                              at = vector * (y.stride != 0 ? y.stride : c_.w.rows * y.step) + row * y.step;
            for (std::size_t r = 0; alone && r < rows; ++r) out[r] = sum(m, r) * o.scale;
            for (std::size_t r = 0; !alone && r < rows; ++r) {
                const std::size_t of = first_of_expert_ + row + r;
                float s = kept(sum(m, r) * o.scale);
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
    std::size_t vectors_ = 1, first_vector_ = 0;  ///< those at work
    nibble_table table_;                          ///< usable where the codes of 4 bits of whole groups can be looked up

  private:
    static constexpr std::size_t most_decoded = 512;
    bool by_codes_ = false;  ///< weight_rows::decode_codes decodes whole groups

    /// Writes the entry of each group of a piece, given those of its runs, from column k on; `from` may be `to`.
    QK_APART void spread(const float* from, const runs& of, std::size_t k, std::size_t n, float* to) const noexcept {
        if (of.number == 1) {
            const float one = from[0];
            return std::fill(to, to + entries_of(n), one);
        }
        constexpr std::size_t w = kernels::lanes<Arch>, most_runs = 8192 / (2 * group) + 2;  // of a piece of x
        static_assert(w <= behind_factors);
        alignas(64) float value[most_runs];
        std::memcpy(value, from, of.number * sizeof(float));
        const std::size_t most = (n + group - 1) / group, of_run = of.run / group;
        std::size_t last = (of.first + 1) * of_run - k / group;
        for (std::size_t i = 0, at = 0; i < of.number; ++i, at = last, last = std::min(last + of_run, most)) {
            for (const kernels::vf<Arch> v(value[i]); at < last; at += w) kernels::store<Arch>(to + at, v);
        }
    }

    std::size_t first_of_expert_ = 0;
    float expert_scale_ = 1;
};

}  // namespace QK_ISA
}  // namespace qk::detail
