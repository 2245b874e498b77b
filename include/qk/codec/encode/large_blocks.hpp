// SPDX-License-Identifier: Apache-2.0
// `encode` for blocks longer than a tile (512 values): the block is surveyed first, then goes through the kernel in pieces, each with
// the block's largest values in front, so that every piece gets the block's scale. Rare, and written for clarity.
#pragma once

#include "qk/codec/encode/blocks.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// One long block: positions first + k * stride of the array.
struct long_block {
    std::size_t first, stride, count;
    std::size_t position(std::size_t k) const { return first + k * stride; }
};

inline constexpr std::size_t sentinels = 2;  ///< in front of a piece: the largest finite magnitude, and the worst special value (or 0)

/// Loads values [from, from + n) and their random bits; `out` and `words` begin behind the sentinels.
template <class Arch>
void load_piece(values_in x, const long_block& b, std::size_t from, std::size_t n, const semantics& how, float* out,
                std::uint32_t* words) noexcept {
    for (std::size_t k = 0; k < n; ++k) {
        const std::size_t at = b.position(from + k);
        out[k] = x[at];
        kernels::store_random<Arch>(kernels::random_source(how), at, 1, words + k);
    }
    if (how.flush_inputs) flush(out, n);
}

template <class Arch>
survey survey_values(values_in x, const long_block& b, std::size_t from, std::size_t n, const semantics& how) noexcept {
    survey s;
    for (std::size_t k = from; k < from + n; ++k) {
        std::uint32_t a = as_bits(x[b.position(k)]) & 0x7fffffffu;
        if (how.flush_inputs && a < 0x00800000u) a = 0;
        s.all = std::max(s.all, a);
        s.finite = std::max(s.finite, a < 0x7f800000u ? a : 0u);
    }
    return s;
}

/// Encodes the elements of a block (of microexponents: of a sub-block, whose own survey is `part`) piece by piece. A piece is as long as a
/// tile. With microexponents its first half holds the block's largest magnitude, as a sub-block of its own, and the sub-block follows.
template <class Arch>
void encode_pieces(const block_coder<Arch>& coder, values_in x, planes out, const long_block& b, std::size_t from, std::size_t count,
                   survey block, survey part, inverse step, bool is_nan, const semantics& how) noexcept {
    const bool with_parts = coder.packed.shift_bits != 0;
    const std::size_t front = with_parts ? tile / 2 + 1 : sentinels;
    block_tile t;
    std::uint32_t words[tile] = {};
    semantics inside = how;
    if (is_stochastic(how.rounding)) inside.random_words = words;
    for (std::size_t k = 0; k < count; k += tile - front) {
        const std::size_t n = std::min(tile - front, count - k);
        for (std::size_t j = 0; j < front; ++j) t.x[j] = as_float(block.finite);
        if (with_parts) t.x[front - 1] = as_float(part.finite);
        else t.x[1] = block.all >= 0x7f800000u ? as_float(block.all) : 0.0f;
        // The front rounds up wherever a rounding may, so an exponent that is raised is raised in every piece.
        for (std::size_t j = 0; j < front; ++j) words[j] = 0xffffffffu;
        load_piece<Arch>(x, b, from + k, n, how, t.x + front, words + front);
        coder.round(inside, t.x, t.y, along_axis{1, front + n, 1}, t.found);
        if (is_nan) std::fill(t.y, t.y + front + n, 0.0f);
        std::fill(t.first, t.first + front + n, step.first);
        std::fill(t.second, t.second + front + n, step.second);
        coder.elements(t, front + n);
        for (std::size_t j = 0; j < n; ++j) put_code(out.elements, b.position(from + k + j), coder.packed.element_width, t.code[front + j]);
    }
}

/// Is true when any value of a block with `bump` rounds past its range. The block's largest magnitude then becomes one that surely does.
template <class Arch, class Format>
bool raises(const Format& f, const block_coder<Arch>& coder, values_in x, const long_block& b, survey s, const semantics& how) noexcept {
    const double beyond = power_of_two(exponent_code(f, s.finite).exponent + f.mantissa_bits);
    alignas(64) float in[tile], y[tile];
    std::uint32_t words[tile] = {};
    semantics inside = how;
    if (is_stochastic(how.rounding)) inside.random_words = words;
    for (std::size_t k = 0; k < b.count; k += tile - 1) {
        const std::size_t n = std::min(tile - 1, b.count - k);
        in[0] = -as_float(s.finite & 0xff800000u);  // has the block's exponent and never rounds past the range
        load_piece<Arch>(x, b, k, n, how, in + 1, words + 1);
        coder.round(inside, in, y, along_axis{1, n + 1, 1}, nullptr);
        for (std::size_t j = 1; j <= n; ++j) {
            if (static_cast<double>(y[j]) >= beyond || static_cast<double>(y[j]) < -beyond) return true;
        }
    }
    return false;
}

template <class Arch, class Format>
void encode_long_block(const Format& f, const block_coder<Arch>& coder, values_in x, planes out, along_axis a, std::size_t o, std::size_t l,
                       std::size_t i, const semantics& how) noexcept {
    const auto size = static_cast<std::size_t>(f.block_size);
    const long_block b{(o * a.length + l) * a.inner + i, a.inner, std::min(size, a.length - l)};
    const survey s = survey_values<Arch>(x, b, 0, b.count, how);
    const std::size_t at = scale_index(coder.packed, a, o, l, i);
    if constexpr (under_floating_scales<Format>) {
        const std::uint32_t code = block_scale_code<Arch>(f, s, coder.tensor, how);
        put_code(out.scales, at, scale_width(f), code);
        const float d = scale_of(f, code, coder.tensor);
        encode_pieces<Arch>(coder, x, out, b, 0, b.count, s, s, {d, 1}, d != d, how);
    } else if constexpr (has_sub_blocks<Format>) {
        const shared_code shared = share(f, s, nullptr, 0, 0, how);
        const bool is_nan = shared.code == low_bits(scale_width(f));
        put_code(out.scales, at, scale_width(f), shared.code);
        Format piece = f;
        piece.block_size = static_cast<int>(tile);
        piece.sub_block_size = static_cast<int>(tile / 2);
        struct pieces_coder final : family_coder<Arch, Format> {
            using family_coder<Arch, Format>::family_coder;
        };
        const pieces_coder of_pieces(piece, 0);
        const auto sub = static_cast<std::size_t>(f.sub_block_size);
        std::size_t number = shift_index(coder.packed, a, o, l, i);
        for (std::size_t k = 0; k < b.count; k += sub, number += a.inner) {
            const std::size_t n = std::min(sub, b.count - k);
            const survey part = survey_values<Arch>(x, b, k, n, how);
            const std::uint32_t shift = is_nan ? 0 : std::min(shared.code - (part.finite >> 23), low_bits(f.shift_bits));
            put_code(out.shifts, number, f.shift_bits, shift);
            const inverse v = is_nan ? inverse{} : inverse_of(step_exponent(f, static_cast<int>(shared.code), static_cast<int>(shift)));
            encode_pieces<Arch>(of_pieces, x, out, b, k, n, s, part, v, is_nan, how);
        }
    } else {
        survey front = s;
        shared_code shared = share(f, s, nullptr, 0, 0, how);
        const bool is_nan = shared.code == low_bits(scale_width(f));
        if constexpr (in_plain_blocks<Format>) {
            if (f.bump && !is_nan && raises<Arch>(f, coder, x, b, s, how)) {
                shared = {shared.code + 1, shared.exponent + 1};
                front.finite = s.finite | 0x7fffffu;
            } else if (f.bump) {
                front.finite = s.finite & 0xff800000u;
            }
        }
        put_code(out.scales, at, scale_width(f), shared.code);
        encode_pieces<Arch>(coder, x, out, b, 0, b.count, front, front, is_nan ? inverse{} : inverse_of(shared.exponent), is_nan, how);
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
