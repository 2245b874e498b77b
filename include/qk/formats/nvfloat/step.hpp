// SPDX-License-Identifier: Apache-2.0
// The step of NVFP4 and its like: general form, the scale of a tensor, and the step whose scales are searched.
#pragma once

#include <algorithm>
#include <limits>

#include "qk/formats/floating/step.hpp"
#include "qk/formats/nvfloat/format.hpp"
#include "qk/isa.hpp"
#include "qk/steps/blocks.hpp"
#include "qk/steps/search.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

constexpr block_shape shape_of(const nvfloat& f) { return {f.block_size, element_step::element}; }

/// Returns the tensor scale that lets an array with this largest finite magnitude use all of the format; 1 for formats without one.
QK_INLINE float tensor_scale_of(const nvfloat& f, float amax, const semantics& how) noexcept {
    if (!f.tensor_scale) return 1.0f;
    return how.flush_inputs && amax < 0x1p-126f ? 0.0f : amax / static_cast<float>(max_value(f.scale) * max_value(f.element));
}

/// The step of NVFP4 and its like: each block has a floating scale, and the tensor a scale above these.
template <class Arch>
struct nvfloat_step {
    static constexpr int sub_block_size = 0;
    static constexpr bool bump = false;
    int block_size;
    floating_rules element, scale;
    float element_max, tensor_scale;
    block_rules rules;

    struct shared {
        vf<Arch> d;  ///< block scale times tensor scale
        vi<Arch> worst;
    };

    nvfloat_step(const nvfloat& f, const semantics& how, float t) noexcept
        : block_size(f.block_size),
          element(rules_apart<Arch>(f.element, how)),
          scale(rules_apart<Arch>(f.scale, semantics{.overflow = overflow_rule::saturate})),
          element_max(static_cast<float>(max_value(f.element))),
          tensor_scale(t),
          rules(rules_of(how, how.mx_specials, has_negative_zero(f.element) ? how.mx_zero : zero_sign::positive)) {
        element.beyond[0] = element.beyond[1] = element.infinity = element.largest;
        element.flush_below = element.least_input = 0;
        if (!has_negative_zero(f.element)) rules.zero_signs = 0;
    }

    /// Returns the scales of blocks, as numbers of their format.
    vf<Arch> block_scale(const seen<Arch>& s) const noexcept {
        using V = vi<Arch>;
        const bool none = tensor_scale == 0;  // in a tensor so small that its scale is 0, everything becomes 0
        const V amax = select(s.finite < V(none ? infinity_bits : rules.least_input), V(0), s.finite);
        const vf<Arch> ratio = quotient<Arch>(quotient<Arch>(as_float<Arch>(amax), vf<Arch>(element_max)), vf<Arch>(tensor_scale));
        return as_float<Arch>(select(amax == V(0), V(0), as_int<Arch>(cast_general<Arch>(ratio, scale, V(0)))));
    }
    shared plan(const seen<Arch>& s) const noexcept { return {block_scale(s) * vf<Arch>(tensor_scale), s.all}; }

    vf<Arch> apply(vf<Arch> x, const shared& b, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = element.nonnegative ? without_negatives<Arch>(as_int<Arch>(x)) : as_int<Arch>(x);
        const V a = ordinary_magnitude<Arch>(bits, rules.least_input);
        const mask<Arch> empty = as_int<Arch>(b.d) == V(0);  // d = 0 gives +0
        const vf<Arch> divisor = as_float<Arch>(select(empty, as_int<Arch>(vf<Arch>(1.0f)), as_int<Arch>(b.d)));
        const vf<Arch> q = quotient<Arch>(as_float<Arch>(a | (bits & V(sign_bit))), divisor);
        const V y = as_int<Arch>(cast_general<Arch>(q, element, random) * b.d) & V(magnitude_bits);
        const mask<Arch> lost = (as_int<Arch>(q) & V(magnitude_bits)) == V(0);
        return finish<Arch>(select(empty, V(0), y), select(empty, special_only(bits), bits), lost, b.worst, rules);
    }

  private:
    /// Keeps special values and returns +0 for the rest.
    static vi<Arch> special_only(vi<Arch> bits) noexcept {
        using V = vi<Arch>;
        return select((bits & V(magnitude_bits)) >= V(infinity_bits), bits, V(0));
    }
};

template <class Arch>
nvfloat_step<Arch> step_of(const nvfloat& f, const semantics& how, float tensor_scale) noexcept {
    return {f, how, tensor_scale};
}

/// The finite numbers of a format for scales, from 0 on, in their order.
struct scale_numbers {
    float at[256];  ///< of each code
    int count = 1;
    float least_normal;  ///< of the format and of float32
    int shift, offset;   ///< from a normal number's bits to its code

    explicit scale_numbers(floating f) noexcept
        : least_normal(static_cast<float>(std::max(min_normal(f), 0x1p-126))),
          shift(23 - f.mantissa_bits),
          offset((f.bias - 127) * (1 << f.mantissa_bits)) {
        at[0] = 0;
        for (std::uint64_t code = 1; code <= largest_magnitude(f) && count < 256; ++code) {
            const int field = static_cast<int>(code >> f.mantissa_bits), m = f.mantissa_bits;
            const bool subnormal = field == 0 && f.subnormals;
            const std::uint64_t digits = (code & ((std::uint64_t{1} << m) - 1)) + (subnormal ? 0 : std::uint64_t{1} << m);
            at[count++] = static_cast<float>(static_cast<double>(digits) * power_of_two(field - f.bias - m + int{subnormal}));
        }
    }
    /// Returns where a number stands; for what is beyond the largest, the count.
    int place(float v) const noexcept {
        if (v > at[count - 1]) return count;
        if (v >= least_normal) return (std::bit_cast<std::int32_t>(v) >> shift) + offset;
        return static_cast<int>(std::lower_bound(at, at + count, v) - at);
    }
};

/// An NVFP4 step whose block scales are searched.
template <class Arch>
struct searched_nvfloat : nvfloat_step<Arch> {
    using base = nvfloat_step<Arch>;
    using shared = typename base::shared;
    search_task task;
    base trial;
    element_rounding<Arch> rounded;
    scale_numbers numbers;
    float halved_from;  ///< from here on half of a scale is a scale, too
    static constexpr int lowest = 1;

    searched_nvfloat(const nvfloat& f, float t, const search_task& s) noexcept
        : base(f, s.how, t),
          task(s),
          trial(f, for_search(s.how), t),
          rounded(f.element.mantissa_bits, min_exponent(f.element), this->element_max, f.element.is_signed && !trial.element.grid.needed()),
          numbers(f.scale),
          halved_from(static_cast<float>(2 * (f.scale.subnormals ? min_normal(f.scale) : min_value(f.scale)))) {}

    bool may_search() const noexcept { return this->tensor_scale != 0; }
    ladder_steps<Arch> rule_steps(const seen<Arch>& all) const noexcept {
        alignas(64) float rule[lanes<Arch>];
        store<Arch>(rule, this->block_scale(all));
        ladder_steps<Arch> s;
        for (std::size_t k = 0; k < lanes<Arch>; ++k) s.at[k] = numbers.place(rule[k]);
        return s;
    }
    shared shared_at(const ladder_steps<Arch>& at) const noexcept { return {units(load<Arch>(at.at)), vi<Arch>(0)}; }
    std::int32_t scale_of(int at) const noexcept { return std::bit_cast<std::int32_t>(numbers.at[at]); }
    vf<Arch> units(vi<Arch> at) const noexcept {
        alignas(64) std::int32_t from[lanes<Arch>];
        alignas(64) float d[lanes<Arch>];
        store<Arch>(from, at);
        for (std::size_t k = 0; k < lanes<Arch>; ++k) d[k] = numbers.at[from[k]];
        return load<Arch>(d) * vf<Arch>(this->tensor_scale);
    }
    vf<Arch> limits(const ladder_steps<Arch>& at) const noexcept { return vf<Arch>(this->element_max) * units(load<Arch>(at.at)); }
    /// Where the search ends above the rule's scale. That scale is rounded and so is its product with the tensor's: it, or one of the two
    /// next, clips nothing. From twice that on none is better whose half is a scale, unless products are subnormal and halves inexact.
    int end(int first, float largest) const noexcept {
        int unclipped = first;
        const auto clips = [&] { return largest > this->element_max * (numbers.at[unclipped] * this->tensor_scale); };
        while (unclipped < std::min(first + 2, numbers.count - 1) && clips()) ++unclipped;
        if (numbers.at[unclipped] * this->tensor_scale < std::numeric_limits<float>::min()) return numbers.count;
        return numbers.place(std::max(2 * numbers.at[unclipped], halved_from));
    }
    /// The scale under which the largest element takes 4 in place of 6.
    int other(int first) const noexcept {
        alignas(64) float scaled[lanes<Arch>] = {1.5f * numbers.at[first]};
        store<Arch>(scaled, cast_general<Arch>(load<Arch>(scaled), this->scale, vi<Arch>(0)));
        return numbers.place(scaled[0]);
    }
    /// A scale of 0 makes +0.
    mask<Arch> empties(vi<Arch> amax) const noexcept { return amax == vi<Arch>(0); }
};

template <class Arch>
searched_nvfloat<Arch> searched_step(const nvfloat& f, float t, const search_task& task) noexcept {
    return {f, t, task};
}

}  // namespace QK_ISA
}  // namespace qk::kernels
