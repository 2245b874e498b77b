// SPDX-License-Identifier: Apache-2.0
// `encode` of elementwise formats: a tile goes through the kernel of fake_quantize, and its values become codes. So decode(encode(x))
// cannot be anything else than fake_quantize(x), and a semantics is implemented once.
#pragma once

#include "qk/codec/encode/fast_codes.hpp"
#include "qk/codec/layout/pack.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/codec/layout/range_call.hpp"
#include "qk/codec/layout/scales_of_tile.hpp"
#include "qk/kernels/choose.hpp"

namespace qk::detail {

/// The semantics of a tile that starts at position `first` of the array.
QK_INLINE semantics shifted(semantics how, std::size_t first) {
    how.first_index += first;
    if (how.random_words != nullptr) how.random_words += first;
    return how;
}
QK_INLINE void flush(float* x, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) {
        const std::uint32_t u = as_bits(x[k]);
        x[k] = as_float((u & 0x7fffffffu) < 0x00800000u ? u & 0x80000000u : u);
    }
}

/// x / scale, or x times its reciprocal, in float32. A finite x stays finite: a quotient beyond float32 is clamped, not special.
template <class Arch>
QK_APART void divide(float* x, const scale_tile<Arch>& s, std::size_t n, bool reciprocal, bool keep_finite) {
    for (std::size_t k = 0; k < n; ++k) {
        const float scale = s.scale[s.single ? 0 : k];
        const float q = reciprocal ? x[k] * (1.0f / scale) : x[k] / scale;
        const std::uint32_t u = as_bits(q);
        const bool overflown = keep_finite && (u & 0x7fffffffu) == 0x7f800000u && (as_bits(x[k]) & 0x7fffffffu) < 0x7f800000u;
        x[k] = overflown ? as_float((u & 0x80000000u) | 0x7f7fffffu) : q;
    }
}

/// Runs under one scale go to quick(x, first, n, scale, zero, complete) where it serves them; the rest, and what it hands to
/// complete(begin, count), to tile(o, l, i, first, n). Of values under scales of their own it is the quotients that go to `quick`.
template <class Arch, class Quick, class Tile>
QK_INLINE void encode_runs(along_axis a, values_in x, const codec_parameters& p, const Quick& quick, const Tile& tile_of) {
    const auto run = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        const auto complete = [&](std::size_t begin, std::size_t count) {
            for (std::size_t k = begin; k < begin + count; k += tile) {
                const std::size_t some = std::min(tile, begin + count - k);
                a.inner == 1 ? tile_of(o, l + k, i, first + k, some) : tile_of(o, l, i + k, first + k, some);
            }
        };
        if (p.one_scale() || (a.inner != 1 && p.group == 0)) {
            const float scale = p.one_scale() ? p.one.scale : p.scale[l];
            const std::int64_t zero = p.one_scale() ? p.one.zero_point : p.zero_point.empty() ? 0 : p.zero_point[l];
            if (x.floats() != nullptr) {
                if (quick(x.floats() + first, first, n, scale, zero, range_call(complete))) return;
            } else if (n <= widened) {
                alignas(64) float value[widened];
                x.template copy<Arch>(first, n, value);
                if (quick(value, first, n, scale, zero, range_call(complete))) return;
            }
        }
        complete(0, n);
    };
    if (!p.one_scale()) return for_each_run(a, 0, run);
    if (x.floats() != nullptr) return run(0, 0, 0, 0, x.size());
    for (std::size_t k = 0; k < x.size(); k += widened) run(0, k, 0, k, std::min(widened, x.size() - k));
}

template <class Arch, known_codes Known>
void encode_elements(floating f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
    const along_axis a = walk_of(p, x.size());
    const auto quick = [&](const float* v, std::size_t first, std::size_t n, float scale, std::int64_t, const range_call& complete) {
        if (f.specials == specials::e8m0)
            return encode_quickly<Arch, Known.width>(power_coder<Arch>(f, how, scale), v, first, n, out.elements, 8, complete);
        const floating_coder<Arch> coder(f, how, scale);
        if (coder.quick.shift != 0)
            return encode_quickly<Arch, Known.width>(truncated_coder<Arch>(coder), v, first, n, out.elements, bits(f), complete);
        return encode_quickly<Arch, Known.width>(coder, v, first, n, out.elements, bits(f), complete);
    };
    encode_runs<Arch>(a, x, p, quick, [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile];
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        x.template copy<Arch>(first, n, value);
        if (!(s.single && s.scale[0] == 1.0f) && f != fp32) {
            if (how.flush_inputs) flush(value, n);
            divide(value, s, n, false, false);
        }
        const auto complete = [&](std::size_t begin, std::size_t count) {
            kernels::run_tile<Arch, Known.kind>(f, value + begin, value + begin, count, shifted(how, first + begin));
            to_codes<Arch>(f, value + begin, code, count);
            put_codes<Arch>(out.elements, first + begin, count, element_width(f), code);
        };
        if (s.single || !quick(value, first, n, 1.0f, 0, range_call(complete))) complete(0, n);
    });
}

QK_INLINE bool all_finite(const float* v, std::size_t n) {
    std::uint32_t worst = 0;
    for (std::size_t k = 0; k < n; ++k) worst = std::max(worst, as_bits(v[k]) & 0x7fffffffu);
    return worst < 0x7f800000u;
}

/// Rounds through a kernel for signed integers of scale 1, which every quotient that has a fraction, or is a code, fits; specials, zero
/// point and clamp are applied to exact integers (2^31 is no float32).
template <class Arch, known_codes Known>
void encode_elements(integer f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
    const integer wide{.bits = f.bits <= 16 ? 20 : 25};  // the fast form of the kernel ends at 21 bits
    const along_axis a = walk_of(p, x.size());
    semantics round = how;
    round.flush_inputs = round.flush_outputs = round.zero_point_before = false;
    const std::int64_t lowest = qmin(f), highest = qmax(f);
    const integer_special infinity = p.one_scale() ? how.integer_infinity : how.integer_infinity_per_channel;
    const auto quick = [&](const float* v, std::size_t first, std::size_t n, float scale, std::int64_t zero, const range_call& complete) {
        return encode_quickly<Arch, Known.width>(integer_coder<Arch>(f, how, p.one_scale(), scale, zero), v, first, n, out.elements, f.bits,
                                                 complete);
    };
    encode_runs<Arch>(a, x, p, quick, [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile], quotient[tile], whole_part[tile];
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        x.template copy<Arch>(first, n, value);
        if (how.flush_inputs) flush(value, n);
        std::memcpy(quotient, value, n * sizeof(float));
        divide(quotient, s, n, how.integer_mode == integer_mode::reciprocal, true);
        if (how.zero_point_before) {
            for (std::size_t k = 0; k < n; ++k) quotient[k] += static_cast<float>(s.zero[s.single ? 0 : k]);
        }
        const auto special = [&](integer_special rule, std::int64_t zero) {
            return rule == integer_special::zero_point ? zero : rule == integer_special::lowest ? lowest : highest;
        };
        const auto complete = [&](std::size_t begin, std::size_t count) {
            const std::size_t end = begin + count;
            kernels::run_tile<Arch>(wide, quotient + begin, whole_part + begin, count, shifted(round, first + begin));
            if (f.bits <= 16 && s.single && !how.zero_point_before &&
                all_finite(quotient + begin, count)) {  // clamped as floats, which hold these codes
                const auto low = static_cast<float>(lowest - s.zero[0]), high = static_cast<float>(highest - s.zero[0]);
                const auto zero = static_cast<std::uint32_t>(s.zero[0]);
                const std::uint32_t mask = low_bits(f.bits);
                for (std::size_t k = begin; k < end; ++k) {
                    const float r = std::min(std::max(whole_part[k], low), high);
                    code[k] = (static_cast<std::uint32_t>(static_cast<std::int32_t>(r)) + zero) & mask;
                }
                put_codes<Arch>(out.elements, first + begin, count, f.bits, code + begin);
                return;
            }
            for (std::size_t k = begin; k < end; ++k) {
                const std::int64_t zero = s.zero[s.single ? 0 : k];
                const std::uint32_t magnitude = as_bits(value[k]) & 0x7fffffffu;
                // From 2^23 on a quotient is whole; from 2^40 on it is beyond every code.
                const float t = quotient[k], r = t < 8388608.0f && t > -8388608.0f ? whole_part[k] : std::clamp(t, -0x1p40f, 0x1p40f);
                std::int64_t q = (t != t ? 0 : static_cast<std::int64_t>(r)) + (how.zero_point_before ? 0 : zero);
                q = std::clamp(q, lowest, highest);
                if (magnitude == 0x7f800000u) q = value[k] < 0 ? lowest : special(infinity, zero);
                if (magnitude > 0x7f800000u || (t != t && magnitude < 0x7f800000u)) q = special(how.integer_nan, zero);
                code[k] = code_of(f, q);
            }
            put_codes<Arch>(out.elements, first + begin, count, f.bits, code + begin);
        };
        const bool as_one = !s.single && !how.zero_point_before && s.one_zero(n);
        if (!as_one || !quick(quotient, first, n, 1.0f, s.zero[0], range_call(complete))) complete(0, n);
    });
}

}  // namespace qk::detail
