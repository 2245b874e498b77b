// SPDX-License-Identifier: Apache-2.0
// Compares batches of dot products with the oracle. A batch is one sum, or the rows of A times the columns of B, whose operands are made,
// packed and taken apart once for all sums. Half of the batches count flags; lanes of columns are compared where they support the kind.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "dot_cases.hpp"
#include "dot_inputs.hpp"
#include "qk/dot/aligned_columns.hpp"

/// Packs codes into planes: the rows of A one after the other, or the columns of B side by side.
struct packed_dot_rows {
    std::vector<std::byte> elements, scales, shifts;

    packed_dot_rows(const qk::format& f, std::span<const qk::reference::dot_row> rows, bool columns) {
        const std::size_t k = rows[0].elements.size(), count = rows.size();
        const qk::along_axis axis = columns ? qk::along_axis{1, k, count} : qk::along_axis{count, k, 1};
        std::visit(
            [&](const auto& g) {
                using family = std::remove_cvref_t<decltype(g)>;
                const qk::packed_layout planes = qk::layout_of(g, axis);
                elements.resize(planes.elements.bytes());
                scales.resize(planes.scales.bytes());
                shifts.resize(planes.shifts.bytes());
                for (std::size_t r = 0; r < count; ++r) {
                    const std::size_t outer = columns ? 0 : r, across = columns ? r : 0;
                    for (std::size_t i = 0; i < k; ++i)
                        put(elements, (outer * k + i) * axis.inner + across, planes.elements.bits, rows[r].elements[i]);
                    if constexpr (qk::detail::has_blocks<family>) {
                        const auto block = static_cast<std::size_t>(g.block_size);
                        for (std::size_t i = 0; i < k; i += block)
                            put(scales, qk::detail::scale_index(qk::detail::packing_of(g), axis, outer, i, across), planes.scales.bits,
                                rows[r].scales[i / block]);
                    }
                    if constexpr (std::is_same_v<family, qk::microexponent>) {
                        const auto block = static_cast<std::size_t>(g.block_size), part = static_cast<std::size_t>(g.sub_block_size);
                        for (std::size_t i = 0; i < k; i += part)
                            put(shifts, qk::detail::shift_index(qk::detail::packing_of(g), axis, outer, i, across), g.shift_bits,
                                rows[r].shifts[i / block * qk::reference::sub_blocks(g) + i % block / part]);
                    }
                }
            },
            f);
    }
    packed_dot_rows(const qk::format& f, const qk::reference::dot_row& row) : packed_dot_rows(f, std::span(&row, 1), false) {}
    qk::packed_matrix matrix() const { return {{elements, scales, shifts, {}}}; }

  private:
    static void put(std::vector<std::byte>& plane, std::size_t i, int width, std::uint64_t code) {
        if (width % 8 == 0) {
            const auto bytes = static_cast<std::size_t>(width) / 8;
            std::memcpy(plane.data() + bytes * i, &code, bytes);
        } else {
            qk::detail::put_code(plane, i, width, static_cast<std::uint32_t>(code));
        }
    }
};

/// Computes sums with aligned_columns(), for the kinds that it supports, finite elements and C = 0.
class dot_lanes {
  public:
    static constexpr int lanes = 8;
    explicit dot_lanes(const dot_kind& kind) : kind_(kind), x_(qk::detail::kind_of(kind.a)), y_(qk::detail::kind_of(kind.b)) {
        serves_ = !qk::is_block_format(kind.a) && !qk::is_block_format(kind.b) && qk::detail::serves_aligned_columns(kind.how, x_, y_);
    }
    bool serves() const { return serves_; }

    /// Returns the codes of one row times `lanes` columns; an empty vector where only the general form can compute the sums.
    std::vector<std::uint32_t> multiply(const qk::reference::dot_row& row, std::span<const qk::reference::dot_row> columns) const {
        const std::size_t k = row.elements.size();
        std::vector<std::int16_t> bn(k * lanes), be(k * lanes);
        std::vector<std::int32_t> an(k), ae(k);
        bool finite = true;
        const auto take = [&](const qk::format& f, std::uint64_t code, auto& n, auto& e, int raise) {
            const qk::detail::element x = std::holds_alternative<qk::floating>(f)
                                              ? qk::detail::take_apart(std::get<qk::floating>(f), static_cast<std::uint32_t>(code),
                                                                       kind_.how.operand_bits, qk::detail::reading_of(kind_.how).flush)
                                              : qk::detail::element{};
            finite = finite && std::holds_alternative<qk::floating>(f) && x.exponent < qk::detail::first_special;
            n = static_cast<std::remove_reference_t<decltype(n)>>(x.n * (1 << raise));
            e = static_cast<std::remove_reference_t<decltype(e)>>(x.exponent);
        };
        for (std::size_t i = 0; i < k; ++i) {
            take(kind_.a, row.elements[i], an[i], ae[i], kind_.how.align - x_.fraction - y_.fraction);
            for (std::size_t j = 0; j < lanes; ++j) take(kind_.b, columns[j].elements[i], bn[i * lanes + j], be[i * lanes + j], 0);
        }
        std::vector<std::uint32_t> codes(lanes);
        const auto sums =
            kind_.how.cut == qk::rounding::down ? &qk::detail::aligned_columns<lanes, true> : &qk::detail::aligned_columns<lanes, false>;
        const std::size_t chunk = std::size_t{1} << (31 - qk::detail::aligned_bits(kind_.how, x_, y_));
        if (!finite || !sums(kind_.how, k, an.data(), ae.data(), {bn.data(), be.data()}, lanes, chunk, codes.data())) return {};
        for (std::uint32_t& c : codes) c = static_cast<std::uint32_t>(qk::detail::stored_code(kind_.how.result, c));
        return codes;
    }

  private:
    const dot_kind& kind_;
    qk::detail::element_kind x_, y_;
    bool serves_ = false;
};

/// Compares batches of one kind and counts the sums that differ from the oracle.
class dot_comparison {
  public:
    dot_comparison(const dot_kind& kind, std::uint64_t seed)
        : kind_(kind), inputs_(seed), oracle_(kind.a, kind.b, kind.how), lanes_(kind) {}

    std::size_t run(std::size_t count) {
        for (std::size_t done = 0; done < count; ++batch_) {
            const bool alone = batch_ % 4 == 0 || count - done < 32;
            const std::size_t m = alone ? 1 : 4, n = alone ? 1 : 8;
            make(m, n);
            compare();
            done += m * n;
        }
        return mismatches_;
    }

  private:
    using number = qk::reference::dot_number;
    std::uint32_t below(std::uint32_t n) { return inputs_.random().below(n); }

    void make(std::size_t m, std::size_t n) {
        k_ = batch_ % 512 == 511 ? below(600) : below(batch_ % 16 == 15 ? 40 : 10);
        rows_.resize(m);
        columns_.resize(n);
        c_.resize(m * n);
        mood_ = below(7);
        for (auto& r : rows_) r = inputs_.row(kind_.a, k_, mood_);
        for (auto& r : columns_) r = inputs_.row(kind_.b, k_, below(3) == 0 ? below(7) : mood_);
        cancels_ = below(4) == 0 && k_ > 1;
        if (cancels_) {  // rows have pairs x, -x; about half of the columns repeat one element
            const auto* f = std::get_if<qk::floating>(&kind_.a);
            const std::uint64_t sign = f != nullptr && is_signed(*f) ? std::uint64_t{1} << (f->exponent_bits + f->mantissa_bits) : 0;
            for (auto& r : rows_)
                for (std::size_t i = 0; i + 1 < k_; i += 2) r.elements[i + 1] = r.elements[i] ^ sign;
            for (auto& r : columns_)
                if (below(2) == 0) r.elements.assign(k_, r.elements[0]);
        }
        const unsigned c_mood = below(8);
        for (std::uint64_t& c : c_) c = c_mood > 6 ? 0 : inputs_.c(kind_.how.addend, c_mood == 6 ? below(6) : c_mood);
    }

    /// value() decodes a register's code. stored() encodes a value as matrices hold it: float32 bits for registers of 17 to 32 bits.
    static double value(qk::floating f, std::uint64_t code) {
        return f == qk::fp64 ? std::bit_cast<double>(code) : double{qk::reference::value_of(f, static_cast<std::uint32_t>(code))};
    }
    static std::uint64_t stored(qk::floating f, double v) {
        if (f == qk::fp64) return std::bit_cast<std::uint64_t>(v);
        if (qk::bits(f) <= 16) return qk::reference::code_of(f, static_cast<float>(v));
        return std::bit_cast<std::uint32_t>(static_cast<float>(v));
    }
    static double value_of_stored(qk::floating f, std::uint64_t code) {
        if (f == qk::fp64 || qk::bits(f) <= 16) return value(f, code);
        return double{std::bit_cast<float>(static_cast<std::uint32_t>(code))};
    }

    void compare() {
        const qk::accumulator& how = kind_.how;
        const std::size_t m = rows_.size(), n = columns_.size();
        std::vector<std::vector<number>> x, y;
        for (const auto& r : rows_) x.push_back(oracle_.row_of_a(r));
        for (const auto& r : columns_) y.push_back(oracle_.column_of_b(r));
        std::vector<double> expected(m * n);
        std::vector<std::uint64_t> start(m * n), actual(m * n);
        bool zeros = true;
        for (std::size_t at = 0; at < m * n; ++at) {
            double c = value(how.addend, c_[at]);
            if (cancels_ && below(2) == 0 && how.result == how.addend) {  // C cancels the sum of the products
                const double s = oracle_.sum(x[at / n], y[at % n], 0);
                if (std::isfinite(s)) c = -s;
            }
            start[at] = stored(how.addend, c);
            zeros = zeros && start[at] == 0;
            expected[at] = oracle_.sum(x[at / n], y[at % n], c);
        }
        const packed_dot_rows a(kind_.a, rows_, false), b(kind_.b, columns_, true);
        qk::dot_counts counts;
        qk::matrix_multiply_add(kind_.a, kind_.b, how, {m, n, k_}, a.matrix(), b.matrix(), start, actual,
                                batch_ % 2 == 0 ? nullptr : &counts);
        for (std::size_t at = 0; at < m * n; ++at) judge("", at, start[at], expected[at], actual[at]);
        if (!zeros || !lanes_.serves() || n != dot_lanes::lanes) return;
        for (std::size_t i = 0; i < m; ++i) {
            const std::vector<std::uint32_t> codes = lanes_.multiply(rows_[i], columns_);
            for (std::size_t j = 0; j < codes.size(); ++j) judge(" in lanes", i * n + j, 0, expected[i * n + j], codes[j]);
        }
    }

    void judge(const char* where, std::size_t at, std::uint64_t start, double expected, std::uint64_t code) {
        const double actual = value_of_stored(kind_.how.result, code);
        const bool same =
            std::bit_cast<std::uint64_t>(expected) == std::bit_cast<std::uint64_t>(actual) || (expected != expected && actual != actual);
        if (same || mismatches_++ >= 3) return;
        std::fprintf(stderr, "%s%s, batch %zu, sum %zu, k %zu, mood %u: c %a expected %a actual %a\n", kind_.name, where, batch_, at, k_,
                     mood_, value_of_stored(kind_.how.addend, start), expected, actual);
        const auto &a = rows_[at / columns_.size()].elements, &b = columns_[at % columns_.size()].elements;
        for (std::size_t i = 0; i < k_ && i < 5; ++i)
            std::fprintf(stderr, "  a %llx b %llx\n", static_cast<unsigned long long>(a[i]), static_cast<unsigned long long>(b[i]));
    }

    const dot_kind& kind_;
    dot_inputs inputs_;
    qk::reference::dot_oracle oracle_;
    dot_lanes lanes_;
    std::vector<qk::reference::dot_row> rows_, columns_;
    std::vector<std::uint64_t> c_;
    std::size_t k_ = 0, batch_ = 0, mismatches_ = 0;
    unsigned mood_ = 0;
    bool cancels_ = false;
};

/// Compares `count` dot products of a kind. Returns how many differ from the oracle.
inline std::size_t compare_dots(const dot_kind& kind, std::size_t count, std::uint64_t seed) {
    return dot_comparison(kind, seed).run(count);
}
