// SPDX-License-Identifier: Apache-2.0
// Runs elementwise formats with a scale for each column: channels last, or blocks along an axis that is not the last.
#pragma once

#include "qk/isa.hpp"
#include "qk/kernels/drivers/rows.hpp"
#include "qk/trace.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// How many columns get their scales prepared at a time, for all rows.
inline constexpr std::size_t columns_together = 512;

/// Runs the columns of a panel: each row lies `stride` elements after the one before. Within a tile the table has one limit and one
/// product.
template <class Arch, class Rows>
void run_panel(const Rows& rows, const row_group& r, std::size_t stride, const scale_table<Arch, columns_together>& scales,
               const std::int64_t* zero) noexcept {
    constexpr std::size_t tile = 4 * lanes<Arch>;
    const auto general = [&](std::size_t k, std::size_t begin, std::size_t some) {  // columns of row k
        for (std::size_t i = begin; i < begin + some; i += lanes<Arch>) {
            const std::size_t at = k * stride + i, count = std::min(lanes<Arch>, begin + some - i);
            run_row_general<Arch>(r.x + at, r.y + at, count, r.position + at, rows.step_across(scales, i, count, zero));
        }
    };
    if (!rows.usable) {
        for (std::size_t k = 0; k < r.count; ++k) general(k, 0, r.n);
        return;
    }
    const auto run_segment = [&](std::size_t first, std::size_t n, auto form, auto choice) {
        const auto of_columns = [&](std::size_t i) QK_INLINE_CALL { return scales.across(first + i); };
        for (std::size_t k = 0; k < r.count; ++k) {
            const std::size_t at = k * stride + first;
            QK_TRACE("columns", r.position + at, n, decltype(form));
            const auto declined = [&](std::size_t begin, std::size_t some) { general(k, first + begin, some); };
            run_tiles<Arch, choice.value>(r.x + at, r.y + at, n, r.position + at, std::false_type(), form, of_columns, declined);
        }
    };
    for (std::size_t first = 0; first < r.n;) {
        const std::size_t n = scales.alike(first, r.n, tile);
        rows.with_form(std::true_type(), scales.product[first] != 0, [&](const auto& form, auto choice) {
            if constexpr (requires {
                              form.rounds;
                              Rows::rounds_apart;
                          })
                [&]() QK_APART { run_segment(first, n, form, choice); }();
            else run_segment(first, n, form, choice);
        });
        first += n;
    }
}

/// Writes the entries of n columns of a row from column `begin` on, entry c / repeat for column c, and repeats them until `rows` rows have
/// them.
template <class Arch, class T>
void repeat_entries(const T* entry, std::size_t begin, std::size_t n, std::size_t repeat, std::size_t rows, T* to) noexcept {
    if (repeat == 1) {
        std::copy_n(entry + begin, n, to);
    } else {
        entry += begin / repeat;
        std::size_t seen = begin % repeat;  // how many columns of that entry lie before
        for (std::size_t c = 0; c < n; ++c) {
            to[c] = *entry;
            if (++seen == repeat) seen = 0, ++entry;
        }
    }
    for (std::size_t k = 1; k < rows; ++k) std::copy_n(to, n, to + k * n);
}

/// Runs all.count rows of all.n columns, one after the other; column c has entry c / repeat of scale and zero (which may be null).
template <class Arch, class Rows>
void run_columns(const Rows& rows, const row_group& all, std::size_t repeat, const float* scale, const std::int64_t* zero) noexcept {
    constexpr std::size_t most = columns_together, tile = 4 * lanes<Arch>;
    // Short rows are taken several at a time, with their scales repeated.
    const std::size_t together = all.n <= most / 2 ? std::min(all.count, most / all.n) : 1, width = all.n * together;
    scale_table<Arch, most> scales;
    alignas(64) float s[most];
    alignas(64) std::int64_t z[most];
    const std::int64_t* zeros = zero == nullptr ? nullptr : z;
    for (std::size_t begin = 0; begin < width; begin += most) {
        const std::size_t n = std::min(most, width - begin);
        repeat_entries<Arch>(scale, begin, n / together, repeat, together, s);
        if (zero != nullptr) repeat_entries<Arch>(zero, begin, n / together, repeat, together, z);
        rows.fill(scales, s, zeros, n, all.count >= 4 * together);
        for (std::size_t t = 0; t < n; t += tile) {
            const std::size_t end = std::min(t + tile, n);
            // Works on whole vectors, since copies of the last entry stand behind it. The least entry is the one whose -1 - entry is
            // largest.
            const auto hold_to_least = [&](std::int32_t* of) {
                vi<Arch> lack(INT32_MIN);
                for (std::size_t c = t; c < end; c += lanes<Arch>) lack = max(lack, vi<Arch>(-1) - load<Arch>(of + c));
                const vi<Arch> least = vi<Arch>(-1) - max_of_group<lanes<Arch>, Arch>(lack);
                for (std::size_t c = t; c < end; c += lanes<Arch>) store<Arch>(of + c, least);
            };
            hold_to_least(scales.product);
            hold_to_least(scales.limit);
        }
        const std::size_t whole = all.count / together, rest = all.count % together;
        run_panel<Arch>(rows, {all.x + begin, all.y + begin, n, whole, all.position + begin}, width, scales, zeros);
        const std::size_t at = whole * width;
        if (rest != 0) run_panel<Arch>(rows, {all.x + at, all.y + at, rest * all.n, 1, all.position + at}, width, scales, zeros);
    }
}

}  // namespace QK_ISA
}  // namespace qk::kernels
