// SPDX-License-Identifier: Apache-2.0
// `encode` of elementwise formats: a tile goes through the kernel of fake_quantize, and its values become codes. So decode(encode(x))
// cannot be anything else than fake_quantize(x), and a semantics is implemented once.
#pragma once

#include "qk/codec/encode/fast_codes.hpp"
#include "qk/codec/encode/rounded_values.hpp"
#include "qk/codec/encode/short_planes.hpp"
#include "qk/codec/encode/wide_integers.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/codec/layout/scales_of_tile.hpp"
#include "qk/formats/codes/groups.hpp"
#include "qk/formats/codes/pack.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

QK_INLINE void flush(float* x, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) {
        const std::uint32_t u = as_bits(x[k]);
        x[k] = as_float((u & 0x7fffffffu) < 0x00800000u ? u & 0x80000000u : u);
    }
}

/// Returns n values from number `first` on, flushed if `flush_inputs` says so: where they lie, or copied to `room`.
template <class Arch>
const float* inputs_of(values_in x, std::size_t first, std::size_t n, bool flush_inputs, float* room) {
    if (x.floats() != nullptr && !flush_inputs) return x.floats() + first;
    x.template copy<Arch>(first, n, room);
    if (flush_inputs) flush(room, n);
    return room;
}

/// Computes x / scale, or x times its reciprocal, in float32. With `keep_finite` a quotient of a finite x beyond float32 is clamped.
template <class Arch>
QK_APART void divide(const float* x, float* y, const scale_tile<Arch>& s, std::size_t n, bool reciprocal, bool keep_finite) {
    using V = kernels::vi<Arch>;
    using F = kernels::vf<Arch>;
    s.each(x, y, n, [&](F v, F scale) QK_INLINE_CALL {
        const F q = reciprocal ? v * kernels::quotient<Arch>(F(1.0f), scale) : kernels::quotient<Arch>(v, scale);
        if (!keep_finite) return q;
        const V u = kernels::as_int<Arch>(q), infinity(kernels::infinity_bits), magnitude(kernels::magnitude_bits);
        const kernels::mask<Arch> overflown = ((u & magnitude) == infinity) & ((kernels::as_int<Arch>(v) & magnitude) < infinity);
        return kernels::as_float<Arch>(select(overflown, u - V(1), u));  // the largest finite magnitude is one below
    });
}

/// Takes (values, number of the first, n, scale, zero point, call for values that it cannot encode). Returns false if nothing was done.
using fast_call = kernels::call_of<bool, const float*, std::size_t, std::size_t, float, std::int64_t, const kernels::range_call&>;
using tile_call = kernels::call_with<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;  ///< (o, l, i, first, n)

/// Encodes runs with one scale by fast(x, first, n, scale, zero, general). Runs for which that returns false, values that it passes to
/// general(begin, count) and values with scales of their own go to tile_of(o, l, i, first, n). With `by_quotients` (values are divided by
/// their scale and nothing else) short planes are divided first, and `fast` gets the quotients.
template <class Arch>
void encode_runs(along_axis a, values_in x, const codec_parameters& p, int width, bool by_quotients, const fast_call& fast,
                 const tile_call& tile_of) noexcept {
    constexpr std::size_t together = 2 * widened;  // values of 16-bit memory that are widened for one coder
    const bool planes_of_scales = !p.one_scale() && p.group == 0 && a.inner != 1;
    const bool rows_of_scales = a.inner == 1 && p.group <= 1 && p.block_rows == 1 && !p.one_scale();
    if (by_quotients && (rows_of_scales || (planes_of_scales && is_short_plane(a.inner, width))) && x.floats() != nullptr &&
        p.scale.data() != nullptr && p.zero_point.all_alike()) {
        const std::int64_t zero = p.zero_point.empty() ? 0 : p.zero_point[0];
        const auto quotients = [&](const float* v, std::size_t first, std::size_t n, const kernels::range_call& general) {
            return fast(v, first, n, 1.0f, zero, general);
        };
        if (rows_of_scales) return encode_scaled_rows<Arch>(a, x.floats(), p.scale.data(), p.group == 1, quotients, tile_of);
        return encode_short_planes<Arch>(a, x.floats(), p.scale.data(), quotients, tile_of);
    }
    const auto run = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) QK_APART {
        const auto general = [&](std::size_t begin, std::size_t count) {
            for (std::size_t k = begin; k < begin + count; k += tile) {
                const std::size_t some = std::min(tile, begin + count - k);
                a.inner == 1 ? tile_of(o, l + k, i, first + k, some) : tile_of(o, l, i + k, first + k, some);
            }
        };
        if (p.one_scale() || planes_of_scales) {
            const float scale = p.one_scale() ? p.one.scale : p.scale[l];
            const std::int64_t zero = p.one_scale() ? p.one.zero_point : p.zero_point.empty() ? 0 : p.zero_point[l];
            if (x.floats() != nullptr) {
                if (fast(x.floats() + first, first, n, scale, zero, kernels::range_call(general))) return;
            } else if (n <= together) {
                alignas(64) float value[together];
                x.template copy<Arch>(first, n, value);
                if (fast(value, first, n, scale, zero, kernels::range_call(general))) return;
            }
        }
        general(0, n);
    };
    if (!p.one_scale()) return for_each_run(a, 0, run);
    if (x.floats() != nullptr) return run(0, 0, 0, 0, x.size());
    for (std::size_t k = 0; k < x.size(); k += together) run(0, k, 0, k, std::min(together, x.size() - k));
}

/// Takes (values, number of the first, n, call for values that it cannot encode), under the scales of a table.
using table_call = kernels::call_of<bool, const float*, std::size_t, std::size_t, const kernels::range_call&>;

/// Encodes rows whose vectors have one scale each, in pieces of whole tiles, by `fast` and `table`, whose zero points get `plus`. All else
/// goes to tile_of(o, l, i, first, n).
template <class Arch>
QK_APART void encode_by_tables(along_axis a, values_in x, const codec_parameters& p, divisor_table<Arch>& table, bool with_zeros,
                               std::int32_t plus, const table_call& fast, const tile_call& tile_of) noexcept {
    constexpr std::size_t piece = group_table<Arch>::piece;
    alignas(64) float room[piece];
    if (a.length % p.group == 0 && p.block_rows == 1) a = {1, a.outer * a.length, 1};  // no short run: all rows are one
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0, n = 0; l < a.length; l += n) {
            n = std::min(piece, a.length - l);
            const std::size_t first = o * a.length + l, whole = n - n % table.at.tile_of_four;
            const auto general = [&](std::size_t begin, std::size_t count) QK_APART {
                for (std::size_t k = begin; k < begin + count; k += tile)
                    tile_of(o, l + k, 0, first + k, std::min(tile, begin + count - k));
            };
            if (whole != 0) {
                table.fill(p, a, o, l, whole, with_zeros, plus);
                table.invert();
                if (x.floats() == nullptr) x.template copy<Arch>(first, whole, room);
                const float* from = x.floats() != nullptr ? x.floats() + first : room;
                if (!fast(from, first, whole, kernels::range_call(general))) general(0, whole);
            }
            if (whole != n) general(whole, n - whole);
        }
    }
}

/// Is true when subnormal elements get the same codes whether they are flushed or not: all are nearer to zero than to the least step.
QK_INLINE bool flushing_is_idle(floating f, rounding how, float scale) {
    if (how == rounding::up || how == rounding::down || how == rounding::to_odd) return false;
    return has_zero(f) && scale > 0x1p-60f && min_exponent(f) - f.mantissa_bits > -60;
}
QK_INLINE bool flushing_is_idle(rounding how, float scale) {  // of integers
    return scale > 0x1p-60f && how != rounding::up && how != rounding::down && how != rounding::to_odd;
}

/// Encodes n values with one scale, or those of a divisor_table, by the coder for the format. Returns false where there is none.
template <class Arch, int Width, class Scales>
QK_APART bool encode_floats(floating f, semantics how, const Scales& scales, const float* v, std::size_t first, std::size_t n,
                            std::span<std::byte> plane, const kernels::range_call& general) noexcept {
    const float scale = one_scale_of(scales);
    const auto encode = [&](const auto& coder) {
        return encode_fast<Arch, Width>(coder_under<Arch>(coder, scales), v, first, n, plane, bits(f), general);
    };
    if constexpr (may_be_wide(Width, 8)) {
        if (f == e8m0) {
            if constexpr (!std::same_as<Scales, float>) return false;  // powers of two with scales of their own are seldom
            else {
                const kernels::fast_power_of_two<Arch> form(kernels::rules_of(f, how));
                return encode(form_coder<Arch, kernels::fast_power_of_two<Arch>>(form, scale));
            }
        }
    }
    if (flushing_is_idle(f, how.rounding, scale)) how.flush_inputs = false;
    const kernels::fast_floating<Arch> fast(kernels::rules_of(f, how));
    if (fast.shift != 0 && how.rounding == rounding::half_even) {
        const kernels::fast_truncation<Arch> form(fast);
        return encode(form_coder<Arch, kernels::fast_truncation<Arch>>(form, scale));
    }
    return encode(floating_coder<Arch>(f, how, fast, scale));
}

/// Encodes values with one scale, a tile at a time: round(values, rounded, position, n), then encode(rounded, first, n, general). Values
/// that either cannot handle go to `general`. Returns false for the baseline, or if the floating-point environment is not the default one.
template <class Arch, class Round, class Encode>
QK_INLINE bool encode_rounded(const float* v, std::size_t first, std::size_t n, const kernels::range_call& general, const Round& round,
                              const Encode& encode) noexcept {
    if constexpr (!kernels::is_baseline<Arch>) {
        if (!kernels::default_environment<Arch>()) return false;
        alignas(64) float rounded[tile];
        for (std::size_t k = 0; k < n; k += tile) {
            const std::size_t some = std::min(tile, n - k);
            const auto declined = [&](std::size_t begin, std::size_t count) { general(k + begin, count); };
            if (!round(v + k, rounded, first + k, some) || !encode(rounded, first + k, some, kernels::range_call(declined)))
                general(k, some);
        }
        return true;
    }
    return false;
}

/// encode_floats and encode_fast of any width: the code around them is compiled once for all widths.
template <class Scales>
using floats_encoder = bool (*)(floating, semantics, const Scales&, const float*, std::size_t, std::size_t, std::span<std::byte>,
                                const kernels::range_call&) noexcept;
template <class Coder>
using integers_encoder = bool (*)(const Coder&, const float*, std::size_t, std::size_t, std::span<std::byte>, int,
                                  const kernels::range_call&) noexcept;
template <class Arch>
struct floats_encoders {
    floats_encoder<float> under_one;
    floats_encoder<divisor_table<Arch>> under_table;
};
template <class Arch>
struct integers_encoders {
    integers_encoder<integer_coder<Arch>> under_one;
    integers_encoder<integer_coder_by_table<Arch>> under_table;
};
template <class Arch, int Width>
constexpr floats_encoders<Arch> floats_encoders_of() noexcept {
    if constexpr (kernels::is_baseline<Arch>) return {&encode_floats<Arch, Width, float>, nullptr};
    else return {&encode_floats<Arch, Width, float>, &encode_floats<Arch, Width, divisor_table<Arch>>};
}
template <class Arch, int Width>
constexpr integers_encoders<Arch> integers_encoders_of() noexcept {
    if constexpr (kernels::is_baseline<Arch>) return {&encode_fast<Arch, Width, integer_coder<Arch>>, nullptr};
    else return {&encode_fast<Arch, Width, integer_coder<Arch>>, &encode_fast<Arch, Width, integer_coder_by_table<Arch>>};
}

template <class Arch, kernels::floating_kind Kind>
void encode_elements(floating f, values_in x, planes out, const codec_parameters& p, const semantics& how,
                     const floats_encoders<Arch>& encoders) noexcept {
    const floats_encoder<float> encode_floats = encoders.under_one;
    const along_axis a = walk_of(p, x.size());
    const kernels::floating_rules rules = kernels::rules_of(f, how);
    const bool power = !has_zero(f);
    const bool other = rules.how != (power ? rounding::half_away : rounding::half_even) || rules.flush_below != 0 ||
                       (rules.least_input != 0 && min_exponent(f) <= -126);
    const auto fast = [&](const float* v, std::size_t first, std::size_t n, float scale, std::int64_t, const kernels::range_call& general) {
        if (other)
            return encode_rounded<Arch>(
                v, first, n, general,
                [&](const float* from, float* to, std::size_t at, std::size_t some) {
                    return round_quotients<Arch>(rules, from, to, some, at, scale);
                },
                [&](const float* from, std::size_t at, std::size_t some, const kernels::range_call& declined) {
                    return encode_floats(f, semantics{}, 1.0f, from, at, some, out.elements, declined);
                });
        return encode_floats(f, how, scale, v, first, n, out.elements, general);
    };
    const bool by_quotients = f != fp32 && !how.flush_inputs && !how.flush_outputs;
    const auto encode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile];
        QK_TRACE("general codes", first, n, std::remove_cvref_t<decltype(f)>);
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        const float* v = inputs_of<Arch>(x, first, n, how.flush_inputs, value);
        if (!(s.single && s.scale[0] == 1.0f) && f != fp32) {
            divide(v, value, s, n, false, false);
            v = value;
        }
        const auto general = [&](std::size_t begin, std::size_t count) {
            kernels::run_tile<Arch, Kind>(f, v + begin, value + begin, count, from_element(how, first + begin));
            const auto one_by_one = [&](std::size_t from, std::size_t some) {
                to_codes<Arch>(f, value + begin + from, code, some);
                put_codes<Arch>(out.elements, first + begin + from, some, element_width(f), code);
            };
            // Values that are rounded already do not change by rounding to nearest.
            if (f == bf16 ||
                !encode_floats(f, semantics{}, 1.0f, value + begin, first + begin, count, out.elements, kernels::range_call(one_by_one)))
                one_by_one(0, count);
        };
        if (s.single || !fast(v, first, n, 1.0f, 0, kernels::range_call(general))) general(0, n);
    };
    if constexpr (!kernels::is_baseline<Arch>) {
        if (has_group_tables<Arch>(a, p) && by_quotients && !other) {
            divisor_table<Arch> table(p.group, kernels::fast_floating<Arch>(rules).tie_bits, false);
            const auto by_table = [&](const float* v, std::size_t first, std::size_t n, const kernels::range_call& general) {
                return encoders.under_table(f, how, table, v, first, n, out.elements, general);
            };
            return encode_by_tables<Arch>(a, x, p, table, false, 0, table_call(by_table), tile_call(encode_tile));
        }
    }
    encode_runs<Arch>(a, x, p, bits(f), by_quotients, fast_call(fast), tile_call(encode_tile));
}

QK_INLINE bool all_finite(const float* v, std::size_t n) {
    std::uint32_t worst = 0;
    for (std::size_t k = 0; k < n; ++k) worst = std::max(worst, as_bits(v[k]) & 0x7fffffffu);
    return worst < 0x7f800000u;
}

/// Returns a rounded quotient. From 2^23 on the quotient is whole itself; from 2^40 on, beyond every code, it is clamped.
QK_INLINE float rounded_number(float quotient, float rounded) {
    return quotient < 8388608.0f && quotient > -8388608.0f ? rounded : std::min(std::max(quotient, -0x1p40f), 0x1p40f);
}

/// Rounds finite quotients, clamped to +-2^21, to whole numbers. Returns false for stochastic rounding. Both arrays have room for whole
/// vectors.
template <class Arch>
QK_APART bool round_numbers(rounding how, const float* x, float* y, std::size_t n) {
    using F = kernels::vf<Arch>;
    if (is_stochastic(how) || how == rounding::to_odd) return false;
    const number_rounding<Arch> rounds(how);
    const F most(0x1p21f), zero(0.0f);
    for (std::size_t k = 0; k < n; k += kernels::lanes<Arch>)
        kernels::store<Arch>(y + k, rounds(kernels::clamp_magnitude<Arch>(kernels::load<Arch>(x + k), most) + zero));
    return true;
}

/// Computes codes of finite quotients; `rounded` has the rounded ones, used below 2^23. Sums are doubles, whose lowest bits hold the codes.
template <class Arch>
QK_APART void to_codes(integer f, const float* quotient, const float* rounded, std::int64_t zero, std::uint32_t* code, std::size_t n) {
    const auto lowest = static_cast<double>(qmin(f)), highest = static_cast<double>(qmax(f)), less = static_cast<double>(zero);
    const std::uint32_t mask = low_bits(f.bits);
    for (std::size_t k = 0; k < n; ++k) {
        const double q = static_cast<double>(rounded_number(quotient[k], rounded[k])) + less;
        const double held = std::min(std::max(q, lowest), highest);
        code[k] = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(held + 0x1.8p52)) & mask;
    }
}

/// encode_by_tables for integers of at most 16 bits. `multiply`: by the rounded reciprocals.
template <class Arch>
QK_APART void encode_by_tables(integer f, along_axis a, values_in x, planes out, const codec_parameters& p, bool multiply,
                               integers_encoder<integer_coder_by_table<Arch>> encode, const tile_call& tile_of) noexcept {
    divisor_table<Arch> table(p.group, f.bits + 1, multiply);
    const integer_coder_by_table<Arch> coder(number_coder<Arch>(f), table);
    const auto by_table = [&](const float* v, std::size_t first, std::size_t n, const kernels::range_call& general) {
        return encode(coder, v, first, n, out.elements, f.bits, general);
    };
    encode_by_tables<Arch>(a, x, p, table, true, coder.plus, table_call(by_table), tile_of);
}

/// Rounds by a kernel for signed integers of scale 1, whose range holds every quotient that has a fraction or is a code. Special values,
/// zero point and clamp are applied to exact integers (2^31 - 1 is not a float32).
template <class Arch>
void encode_elements(integer f, values_in x, planes out, const codec_parameters& p, const semantics& how,
                     const integers_encoders<Arch>& encoders) noexcept {
    const integers_encoder<integer_coder<Arch>> encode_fast = encoders.under_one;
    const integer wide{.bits = f.bits <= 16 ? 20 : 25};  // the fast form of the kernel ends at 21 bits
    const along_axis a = walk_of(p, x.size());
    semantics round = how;
    round.flush_inputs = round.flush_outputs = round.zero_point_before = false;
    const std::int64_t lowest = qmin(f), highest = qmax(f);
    const kernels::integer_rules rules = kernels::rules_of(f, how, p.one_scale());
    const integer_special infinity = p.one_scale() ? how.integer_infinity : how.integer_infinity_per_channel;
    const auto fast = [&](const float* v, std::size_t first, std::size_t n, float scale, std::int64_t zero,
                          const kernels::range_call& general) {
        if (f.bits > 16) return encode_wide<Arch>(f, rules, v, first, n, scale, zero, out.elements, general);
        if (how.rounding != rounding::half_even || how.zero_point_before) {
            const integer_coder<Arch> coder(f, semantics{}, true, 1.0f, how.zero_point_before ? 0 : zero);
            const auto make = [&](const float* from, float* to, std::size_t at, std::size_t some) {
                return round_numbers<Arch>(rules, from, to, some, at, scale, zero);
            };
            return encode_rounded<Arch>(v, first, n, general, make,
                                        [&](const float* from, std::size_t at, std::size_t some, const kernels::range_call& declined) {
                                            return encode_fast(coder, from, at, some, out.elements, f.bits, declined);
                                        });
        }
        semantics own = how;
        if (flushing_is_idle(how.rounding, scale)) own.flush_inputs = own.flush_outputs = false;
        return encode_fast(integer_coder<Arch>(f, own, p.one_scale(), scale, zero), v, first, n, out.elements, f.bits, general);
    };
    const bool by_quotients = !rules.multiply && !how.flush_inputs && !how.flush_outputs;
    const auto encode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile], quotient[tile], whole_part[tile];
        QK_TRACE("general codes", first, n, std::remove_cvref_t<decltype(f)>);
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        const float* v = inputs_of<Arch>(x, first, n, how.flush_inputs, value);
        divide(v, quotient, s, n, how.integer_mode == integer_mode::reciprocal, true);
        if (how.zero_point_before) {
            for (std::size_t k = 0; k < n; ++k) quotient[k] += static_cast<float>(s.zero_of(k));
        }
        const auto special = [&](integer_special rule, std::int64_t zero) {
            return rule == integer_special::zero_point ? zero : rule == integer_special::lowest ? lowest : highest;
        };
        const auto general = [&](std::size_t begin, std::size_t count) {
            const bool finite = all_finite(quotient + begin, count);
            const bool rounded = finite && f.bits <= 16 && kernels::default_environment<Arch>() &&
                                 round_numbers<Arch>(how.rounding, quotient + begin, whole_part + begin, count);
            if (!rounded) kernels::run_tile<Arch>(wide, quotient + begin, whole_part + begin, count, from_element(round, first + begin));
            const auto one_by_one = [&](std::size_t from, std::size_t some) {
                for (std::size_t k = begin + from; k < begin + from + some; ++k) {
                    const std::int64_t zero = s.zero_of(k);
                    const std::uint32_t magnitude = as_bits(v[k]) & 0x7fffffffu;
                    const float t = quotient[k];
                    std::int64_t q =
                        (t != t ? 0 : static_cast<std::int64_t>(rounded_number(t, whole_part[k]))) + (how.zero_point_before ? 0 : zero);
                    q = std::clamp(q, lowest, highest);
                    if (magnitude == 0x7f800000u) q = v[k] < 0 ? lowest : special(infinity, zero);
                    if (magnitude > 0x7f800000u || (t != t && magnitude < 0x7f800000u)) q = special(how.integer_nan, zero);
                    code[k] = code_of(f, q);
                }
                put_codes<Arch>(out.elements, first + begin + from, some, f.bits, code + begin + from);
            };
            if ((!how.zero_point_before && !s.one_zero(n)) || !finite) return one_by_one(0, count);
            const std::int64_t zero = how.zero_point_before ? 0 : s.zero_of(0);
            // Whole numbers do not change by rounding to nearest.
            if (f.bits <= 16 && encode_fast(integer_coder<Arch>(f, semantics{}, true, 1.0f, zero), whole_part + begin, first + begin, count,
                                            out.elements, f.bits, kernels::range_call(one_by_one)))
                return;
            to_codes<Arch>(f, quotient + begin, whole_part + begin, zero, code + begin, count);
            put_codes<Arch>(out.elements, first + begin, count, f.bits, code + begin);
        };
        const bool as_one = !s.single && !how.zero_point_before && s.one_zero(n);
        if (!as_one || !fast(quotient, first, n, 1.0f, s.zero_of(0), kernels::range_call(general))) general(0, n);
    };
    if constexpr (!kernels::is_baseline<Arch>) {
        const bool plain = how.rounding == rounding::half_even && !how.zero_point_before && !how.flush_inputs && !how.flush_outputs;
        if (plain && has_group_tables<Arch>(a, p) && f.bits <= 16)
            return encode_by_tables<Arch>(f, a, x, out, p, rules.multiply, encoders.under_table, tile_call(encode_tile));
    }
    encode_runs<Arch>(a, x, p, f.bits, by_quotients, fast_call(fast), tile_call(encode_tile));
}

/// Encodes by a table: each quotient is searched.
template <class Arch>
void encode_elements(const table& f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
    const along_axis a = walk_of(p, x.size());
    const kernels::table_rules<Arch> rules(f, how);
    const int width = element_width(f);
    const bool in_registers = kernels::has_fast_form(rules);
    const auto fast = [&]([[maybe_unused]] const float* v, [[maybe_unused]] std::size_t first, [[maybe_unused]] std::size_t n,
                          [[maybe_unused]] float scale, std::int64_t, [[maybe_unused]] const kernels::range_call& general) {
        if constexpr (kernels::most_looked_up<Arch>() != 0) {
            if (in_registers && rules.levels == 4)
                return encode_fast<Arch, any_width>(table_coder<Arch, 4>(rules, scale), v, first, n, out.elements, width, general);
            if (in_registers)
                return encode_fast<Arch, any_width>(table_coder<Arch, 5>(rules, scale), v, first, n, out.elements, width, general);
        }
        return false;
    };
    const auto encode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile];
        QK_TRACE("general codes", first, n, std::remove_cvref_t<decltype(f)>);
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        const float* v = inputs_of<Arch>(x, first, n, how.flush_inputs, value);
        if (!(s.single && s.scale[0] == 1.0f)) {
            divide(v, value, s, n, false, false);
            v = value;
        }
        const auto general = [&](std::size_t begin, std::size_t count) {
            for (std::size_t k = begin; k < begin + count; k += kernels::lanes<Arch>) {
                const std::size_t some = std::min(kernels::lanes<Arch>, begin + count - k);
                const kernels::vf<Arch> q =
                    some == kernels::lanes<Arch> ? kernels::load<Arch>(v + k) : kernels::load_some<Arch>(v + k, 1, some);
                const kernels::vi<Arch> codes = rules.codes_of(q, kernels::random_lanes<Arch>(rules.random, first + k, 1, some));
                kernels::store<Arch>(reinterpret_cast<std::int32_t*>(code) + (k - begin), codes);
            }
            put_codes<Arch>(out.elements, first + begin, count, width, code);
        };
        if (s.single || !fast(v, first, n, 1.0f, 0, kernels::range_call(general))) general(0, n);
    };
    if constexpr (kernels::most_looked_up<Arch>() != 0) {
        if (has_group_tables<Arch>(a, p) && in_registers) {
            divisor_table<Arch> table(p.group, 0, false);
            const auto by_table = [&](const float* v, std::size_t first, std::size_t n, const kernels::range_call& general) {
                const auto encode = [&](const auto& coder) {
                    return encode_fast<Arch, any_width>(coder_under<Arch>(coder, table), v, first, n, out.elements, width, general);
                };
                return rules.levels == 4 ? encode(table_coder<Arch, 4>(rules, 1.0f)) : encode(table_coder<Arch, 5>(rules, 1.0f));
            };
            return encode_by_tables<Arch>(a, x, p, table, false, 0, table_call(by_table), tile_call(encode_tile));
        }
    }
    encode_runs<Arch>(a, x, p, width, in_registers, fast_call(fast), tile_call(encode_tile));
}

}  // namespace QK_ISA
}  // namespace qk::detail
