// SPDX-License-Identifier: Apache-2.0
// The fast form of `decode` for blocks that lie in a row. It computes the factors of as many blocks as there are lanes at once, and every
// vector of elements loads its own from memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "qk/codec/decode/fast_values.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/memory/planes.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Returns the one-bit shifts of the pairs of four vectors, the first of which is number `vector`, in every lane.
template <class Arch>
QK_INLINE kernels::vi<Arch> shifts_of_four(std::span<const std::byte> shifts, std::size_t vector) noexcept {
    constexpr std::size_t bytes = 4 * kernels::lanes<Arch> / 2 / 8;
    std::int32_t bits = 0;
    std::memcpy(&bits, shifts.data() + vector / 4 * bytes, bytes);
    return kernels::vi<Arch>(bits);
}

/// Returns the lanes of vector k of four whose pair has its bit set in shifts_of_four().
template <class Arch>
QK_INLINE kernels::mask<Arch> pairs_set(kernels::vi<Arch> shifts, std::size_t k) noexcept {
    using V = kernels::vi<Arch>;
    const V own = V(1) << ((kernels::iota<Arch>() >> 1) + V(static_cast<std::int32_t>(k * kernels::lanes<Arch> / 2)));
    return (shifts & own) != V(0);
}

/// Groups of blocks whose factors are computed together: processors wait for part of a vector that was just stored.
inline constexpr std::size_t factors_together = 32;

/// The factors of groups of as many blocks as there are lanes, which have one each.
template <class Arch, class Format>
class group_factors {
  public:
    group_factors(const Format& f, const_planes p, std::size_t groups, float tensor) noexcept
        : factors_(f, tensor), scales_(p.scales.data()), groups_(groups), tensor_(tensor) {}

    /// Makes those of group g.
    QK_INLINE kernels::vf<Arch> made(std::size_t g) const noexcept {
        kernels::vf<Arch> made(0.0f);
        factors_.make(kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(scales_) + g * w), &made);
        return made;
    }
    /// Returns those of group g, times `unit`. To be called for all groups in turn.
    QK_INLINE const float* of(std::size_t g, kernels::vf<Arch> unit) noexcept {
        if (g % factors_together == 0) make_from(g, unit);
        return factor_ + g % factors_together * w;
    }

  private:
    static constexpr std::size_t w = kernels::lanes<Arch>;

    QK_APART void make_from(std::size_t g, kernels::vf<Arch> unit) noexcept {
        const std::size_t some = std::min(factors_together, groups_ - g);
        std::size_t ready = 0;  // factors without the unit
        if constexpr (under_floating_scales<Format>) {
            if (groups_ >= factors_together)
                ready = decode_32_at_a_time<Arch, 8>(factors_.scale, scales_ + g * w, factor_, some * w, one_factor<Arch>(tensor_), false);
        }
        for (std::size_t k = 0; k < some; ++k) {
            float* const own = factor_ + k * w;
            kernels::store<Arch>(own, (k * w + w <= ready ? kernels::load<Arch>(own) : made(g + k)) * unit);
        }
    }

    block_factors<Arch, Format> factors_;
    const std::byte* scales_;
    std::size_t groups_;
    float tensor_;
    alignas(64) float factor_[factors_together * w];
};

/// decode_row_of_blocks for blocks of whole vectors with one factor each, 32 values at a time: decodes `groups` groups of as many blocks as
/// there are lanes.
template <class Arch, int Known, int Size, class Format, class Values>
QK_APART void decode_groups_of_blocks(const Format& f, const Values& values, const_planes p, float* y, std::size_t groups, float tensor,
                                      bool streaming) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 32;
    const auto size = static_cast<std::size_t>(Size != 0 ? Size : f.block_size);
    const int width = element_width(f), per_block = std::countr_zero(size);
    group_factors<Arch, Format> factors(f, p, groups, tensor);
    const auto all = [&](const auto& each, kernels::vf<Arch> unit, const auto& otherwise) QK_INLINE_CALL {
        const std::byte* in = p.elements.data();
        const auto step = static_cast<std::size_t>(width) * count / 8;
        for (std::size_t g = 0; g < groups; ++g) {
            const float* const of_group = factors.of(g, unit);
            if (otherwise(g, kernels::load<Arch>(of_group))) {
                in += step * (w * size / count);
                continue;
            }
            for (std::size_t i = 0; i < w * size; i += count, in += step) {
                const float* own = of_group + (i >> per_block);
                each(in, [&](std::size_t k, kernels::vf<Arch> v) QK_INLINE_CALL {
                    kernels::put<Arch>(y + g * w * size + i + k, v * kernels::vf<Arch>(own[k >> per_block]), streaming);
                });
            }
        }
    };
    // Factors so large that a missing power of two takes them to Inf are applied to whole values.
    [[maybe_unused]] const auto apart = [&](std::size_t g, kernels::vf<Arch> whole) QK_INLINE_CALL {
        using V = kernels::vi<Arch>;
        const V a = kernels::as_int<Arch>(whole) & V(kernels::magnitude_bits);
        if (__builtin_expect(!any(a == V(kernels::infinity_bits)), 1)) return false;
        alignas(64) float made[w], same[tile];
        kernels::store<Arch>(made, factors.made(g));
        for (std::size_t b = 0; b < w; ++b) {
            const std::size_t at = (g * w + b) * size;
            std::fill(same, same + size, made[b]);
            decode_columns<Arch, Known>(values, p.elements, at, y + at, 1, 0, size, width, same);
        }
        return true;
    };
    const auto none = [](std::size_t, kernels::vf<Arch>) QK_INLINE_CALL { return false; };
    const kernels::vf<Arch> one(1.0f);
    if constexpr (std::same_as<Values, floating_values<Arch>>) {
        if constexpr (has_half_values<Arch>()) {
            if (half_form_of(values.format) != half_form::none)
                return half_values<Arch>(values.format).template with_form<Known>([&](const auto& each) QK_INLINE_CALL {
                    all(each, kernels::vf<Arch>(half_unit(values.format)), apart);
                });
        }
        if constexpr (has_byte_values<Arch>()) {
            if (in_bytes(values.format)) {
                byte_values<Arch> bytes;
                bytes.fill(values.format, values);
                return bytes.template with_kind<Known>(width, [&](const auto& each) QK_INLINE_CALL { all(each, one, none); });
            }
        } else if constexpr (has_sixteen_values<Arch>() && may_be_wide(Known, 4)) {
            if (width == 4) {
                const sixteen_values<Arch> sixteen(sixteen_numbers<Arch>(values).number);
                return all([&](const std::byte* in, const auto& put) QK_INLINE_CALL { sixteen.each(in, put); }, one, none);
            }
        }
    }
    const code_reader<Arch, Known> codes{width, p.elements.data() + p.elements.size()};
    const Values own = values;
    const auto each_by = [&](const auto& make) QK_INLINE_CALL {
        return [&](const std::byte* in, const auto& put) QK_INLINE_CALL {
            codes.template each_vector<count>(in, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, make(code)); });
        };
    };
    if constexpr (std::same_as<Values, twos_complement_values<Arch>>)
        all(each_by([&](kernels::vi<Arch> code) QK_INLINE_CALL { return own.number(code); }), own.unit, none);
    else all(each_by(own), one, none);
}

/// Decodes `blocks` blocks of `Size` values (0: any size) in a row, from the start of the planes on. Returns how many values were done:
/// those of whole groups of as many blocks as there are lanes, or 0 where the fast form does not support the format.
template <class Arch, int Known, int Size, class Format, class Values>
std::size_t decode_row_of_blocks(const Format& f, const Values& given, const_planes p, float* y, std::size_t blocks, float tensor,
                                 bool streaming) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 4 * w;
    constexpr bool with_pairs = has_sub_blocks<Format>;
    const auto size = static_cast<std::size_t>(Size != 0 ? Size : f.block_size);
    const int width = element_width(f);
    const bool halves = w == 16 && size == 8;
    if ((size % w != 0 && !halves) || !std::has_single_bit(size) || size < 4 || size > tile) return 0;
    if constexpr (with_pairs) {
        if (f.sub_block_size != 2 || f.shift_bits != 1 || w < 4) return 0;
    }
    const Values values = given;
    QK_TRACE("block_rows", 0, blocks * size, Values);
    const int per_block = halves ? 0 : std::countr_zero(size / w);  // log2 of the vectors in a block
    const code_reader<Arch, Known> codes{width, p.elements.data() + p.elements.size()};
    const std::byte* in = p.elements.data();
    const std::size_t groups = blocks / w;
    if constexpr (decodes_in_groups<Arch>() && !with_pairs) {
        if (!halves) {
            decode_groups_of_blocks<Arch, Known, Size>(f, given, p, y, groups, tensor, streaming);
            if (streaming) kernels::end_streaming<Arch>();
            return groups * w * size;
        }
    }
    const block_factors<Arch, Format> factors(f, tensor);
    for (std::size_t g = 0; g < groups; ++g, in += codes.bytes(w * size)) {
        constexpr std::size_t kinds = with_pairs ? 2 : 1;
        alignas(64) float factor[2][w], eighths[kinds][8 * w];
        kernels::vf<Arch> made[2] = {kernels::vf<Arch>(0.0f), kernels::vf<Arch>(0.0f)};
        factors.make(kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(p.scales.data()) + g * w), made);
        const std::size_t at = g * w * size;
        kernels::store<Arch>(factor[0], made[0]);
        if constexpr (with_pairs) kernels::store<Arch>(factor[1], made[1]);
        if (halves) {
            const auto fill = [&](std::size_t kind) {
                for (std::size_t b = 0; b < w; ++b) {
                    for (std::size_t k = 0; k < 8; ++k) eighths[kind][8 * b + k] = factor[kind][b];
                }
            };
            fill(0);
            if constexpr (with_pairs) fill(1);
        }
        for (std::size_t v = 0; v < size; v += 4) {  // vectors
            [[maybe_unused]] kernels::vi<Arch> shifts;
            if constexpr (with_pairs) shifts = shifts_of_four<Arch>(p.shifts, g * size + v);
            codes.template each_vector<count>(in + codes.bytes(v * w), [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL {
                const std::size_t vector = v + k / w, block = vector >> per_block;
                const auto of = [&](std::size_t kind) QK_INLINE_CALL {
                    return halves ? kernels::load<Arch>(eighths[kind] + vector * w) : kernels::vf<Arch>(factor[kind][block % w]);
                };
                kernels::vf<Arch> scale = of(0);
                if constexpr (with_pairs) {
                    const kernels::vi<Arch> low = kernels::as_int<Arch>(of(1)), high = kernels::as_int<Arch>(scale);
                    scale = kernels::as_float<Arch>(select(pairs_set<Arch>(shifts, k / w), low, high));
                }
                const kernels::vf<Arch> out = values(code) * scale;
                kernels::put<Arch>(y + at + vector * w, out, streaming);
            });
        }
    }
    if (streaming) kernels::end_streaming<Arch>();
    return groups * w * size;
}

/// Returns call(values), where values(code) turns a vector of element codes into values, or 0 where the format has no fast form.
template <class Arch, compile_time_facts Known, class Format, class Call>
std::size_t with_element_values(const Format& f, const Call& call) {
    if (scale_width(f) != 8 || !decodes_fast<Arch>(element_width(f))) return 0;
    if constexpr (in_plain_blocks<Format>) {
        return f.bump ? call(twos_complement_values<Arch>(1 + f.mantissa_bits, 1.0f)) : call(element_values<Arch>(f));
    } else if constexpr (under_power_scales<Format>) {
        using kernels::element_step;
        if constexpr (Known.blocks.step != element_step::element) {
            if (has_integer_elements(f)) return call(twos_complement_values<Arch>(f.integer_bits, exact_power(2 - f.integer_bits)));
        }
        if constexpr (Known.blocks.step != element_step::block) {
            const floating_values<Arch> values(f.element);
            return values.usable ? call(values) : 0;
        }
        return 0;
    } else if constexpr (under_floating_scales<Format>) {
        const floating_values<Arch> values(f.element);
        return values.usable && floating_values<Arch>(f.scale).usable ? call(values) : 0;
    } else {
        return call(element_values<Arch>(f));
    }
}

/// Computes the factors of n values that lie across the axis. Their codes are number `scale` of the scales and number `shift` of the
/// shifts, and those after them.
template <class Arch, class Format>
void factors_across(const Format& f, const_planes p, std::size_t scale, std::size_t shift, std::size_t n, float tensor,
                    float* factor) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    std::size_t k = 0;
    const auto by_vectors = [&] {
        const block_factors<Arch, Format> factors(f, tensor);
        if constexpr (has_sub_blocks<Format>) {
            if (f.shift_bits != 1) return;
        }
        if constexpr (under_floating_scales<Format>) {
            if (!factors.scale.usable) return;
        }
        for (; k + w <= n; k += w) {
            kernels::vf<Arch> made[2] = {kernels::vf<Arch>(0.0f), kernels::vf<Arch>(0.0f)};
            factors.make(kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(p.scales.data()) + scale + k), made);
            if constexpr (has_sub_blocks<Format>) {
                const kernels::mask<Arch> set = kernels::lanes_set<Arch>(get_bits(p.shifts, shift + k, w));
                made[0] = kernels::as_float<Arch>(select(set, kernels::as_int<Arch>(made[1]), kernels::as_int<Arch>(made[0])));
            }
            kernels::store<Arch>(factor + k, made[0]);
        }
    };
    if (scale_width(f) == 8 && n >= w) by_vectors();
    for (; k < n; ++k) {
        const std::uint32_t code = get_code(p.scales, scale + k, scale_width(f));
        if constexpr (has_sub_blocks<Format>) factor[k] = scale_of(f, code, get_code(p.shifts, shift + k, f.shift_bits));
        else if constexpr (under_floating_scales<Format>) factor[k] = scale_of(f, code, tensor);
        else factor[k] = scale_of(f, code);
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
