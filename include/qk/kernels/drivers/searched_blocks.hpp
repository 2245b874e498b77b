// SPDX-License-Identifier: Apache-2.0
// Block scales that are searched (scale_rule::search, four_over_six): docs/reference/numerics.md, "Searched scales".
//
// A lane is a block, as in run_group. A scale is a number on a ladder: MX's exponent, or where NVFP4's scale stands among the numbers of
// its format. What decides is the error of the values that the step itself gives, summed in doubles, element after element, so that every
// instruction set chooses the same scale; scale_shortlist.hpp finds the few scales for which that is worth computing.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "qk/kernels/drivers/general_blocks.hpp"
#include "qk/kernels/drivers/scale_shortlist.hpp"

namespace qk::kernels {

/// Semantics under which scales are compared: the choice depends neither on the rounding of the elements nor on what becomes of results.
constexpr semantics for_search(semantics how) {
    how.rounding = rounding::half_even;
    how.random_words = nullptr;
    how.flush_outputs = false;
    return how;
}

/// What both families know of a search. `found`, where it is given, gets each block's scale at the position of the block's first element:
/// MX's exponent, or the bits of NVFP4's block scale.
struct search_task {
    along_axis axis;
    semantics how;
    std::int32_t* found = nullptr;

    /// Is the result of a finite x the nearest element with x's sign, where a zero has x's sign, too, or none?
    constexpr bool is_plain(zero_sign zero) const {
        return how.rounding == rounding::half_even && !how.flush_inputs && !how.flush_outputs &&
               (zero == zero_sign::kept || zero == zero_sign::positive);
    }
};

/// Finds the best step of the ladder for each block of a group.
template <class Arch, class Step>
class scale_finder {
  public:
    static constexpr std::size_t w = lanes<Arch>;

    /// `given`: the group as it lies in the caller's span; g may be a copy of it.
    scale_finder(const Step& step, const block_group& g, const block_group& given) noexcept : step_(step), g_(g) {
        if (step.task.how.scale_weights == nullptr) return;
        for (std::size_t k = 0; k < given.blocks; ++k)
            along_[k] = (given.position + k * given.lane_stride) / step.task.axis.inner % step.task.axis.length;
    }

    /// Replaces the rule's steps by the best ones, in the lanes that are open. `largest`: the block's largest finite magnitudes.
    void find(ladder_steps<Arch>& best, const lane_flags<Arch>& open, const float* largest) noexcept {
        const ladder_steps<Arch> first = best;
        const bool two = step_.task.how.scale_rule == scale_rule::four_over_six;
        ladder_steps<Arch> end;
        for (std::size_t k = 0; k < w; ++k)
            end.at[k] = !open.is[k] ? first.at[k] : two ? step_.other(first.at[k]) : step_.end(first.at[k], largest[k]);
        scale_shortlist<Arch, Step> list(step_, g_, along_);
        if (two ? list.collect_two(first, end, open) : list.collect(first, end, open)) {
            if (list.choose(best)) compare_listed(list, first, best);
            return;
        }
        measure(first);
        keep(first, best, open);
        if (two) {
            measure(end);
            return keep(end, best, open);
        }
        walk<1>(first, end, best, open);
        walk<-1>(first, end, best, open);
    }

  private:
    /// Computes the error of each lane's block under these scales, and what is lost beyond the largest element alone.
    void measure(const ladder_steps<Arch>& at) noexcept {
        alignas(64) float x[w], y[w], limit[w];
        store<Arch>(limit, step_.limits(at));
        for (std::size_t k = 0; k < w; ++k) error_[k] = clipped_[k] = 0;
        const auto shared = step_.shared_at(at);
        const bool absolute = step_.task.how.scale_objective == scale_objective::mae;
        for (std::size_t j = 0; j < g_.length; ++j) {
            const vf<Arch> v = flushed<Arch>(load_across<Arch>(g_, j), step_.rules.least_input);
            store<Arch>(x, v);
            store<Arch>(y, step_.trial.apply(v, shared, vi<Arch>(0)));
            for (std::size_t k = 0; k < g_.blocks; ++k) {
                const double a = std::abs(static_cast<double>(x[k])), weight = weight_of(j, k);
                if (!(a < std::numeric_limits<double>::infinity()) || weight == 0) continue;
                const double d = std::abs(static_cast<double>(x[k]) - static_cast<double>(y[k]));
                const double beyond = std::max(0.0, a - static_cast<double>(limit[k]));
                error_[k] += weight * (absolute ? d : d * d);
                clipped_[k] += weight * (absolute ? beyond : beyond * beyond);
            }
        }
    }
    double weight_of(std::size_t j, std::size_t k) const noexcept {
        const float* weights = step_.task.how.scale_weights;
        return weights == nullptr ? 1.0 : static_cast<double>(weights[along_[k] + j]);
    }

    /// Takes what was measured where it is better than everything before it.
    void keep(const ladder_steps<Arch>& now, ladder_steps<Arch>& best, const lane_flags<Arch>& where) noexcept {
        for (std::size_t k = 0; k < w; ++k) {
            if (!where.is[k] || (seen_.is[k] && !(error_[k] < least_[k]))) continue;
            least_[k] = error_[k];
            best.at[k] = now.at[k];
            seen_.is[k] = true;
        }
    }

    void compare_listed(const scale_shortlist<Arch, Step>& list, const ladder_steps<Arch>& first, ladder_steps<Arch>& best) noexcept {
        for (std::size_t c = 0; c < list.size(); ++c) {
            const lane_flags<Arch> where = list.compared(c);
            if (std::find(where.is, where.is + w, true) == where.is + w) continue;
            ladder_steps<Arch> now;
            for (std::size_t k = 0; k < w; ++k) now.at[k] = where.is[k] ? list.steps(c).at[k] : first.at[k];
            measure(now);
            keep(now, best, where);
        }
    }

    /// Compares the scales above the rule's, or those below it.
    template <int Direction>
    void walk(const ladder_steps<Arch>& first, const ladder_steps<Arch>& end, ladder_steps<Arch>& best,
              const lane_flags<Arch>& open) noexcept {
        ladder_steps<Arch> now = first;
        lane_flags<Arch> going = open;
        for (;;) {
            bool any = false;
            for (std::size_t k = 0; k < w; ++k) {
                const int next = now.at[k] + Direction;
                going.is[k] = going.is[k] && (Direction > 0 ? next < end.at[k] : next >= step_.lowest);
                if (going.is[k]) now.at[k] = next;
                any |= going.is[k];
            }
            if (!any) return;
            measure(now);
            keep(now, best, going);
            for (std::size_t k = 0; k < w; ++k) going.is[k] = going.is[k] && (Direction > 0 || clipped_[k] < least_[k]);
        }
    }

    const Step& step_;
    const block_group& g_;
    std::size_t along_[w] = {};  ///< where each lane's block begins on its axis
    double error_[w], clipped_[w], least_[w] = {};
    lane_flags<Arch> seen_ = {};
};

/// Runs a group of blocks whose scales `step` searches. Blocks that are not long are brought together first: they are read several times.
template <class Arch, class Step>
QK_INLINE void run_searched_group(const block_group& g, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>, longest = scale_shortlist<Arch, Step>::longest;
    alignas(64) float together[longest * w];
    block_group near = g;
    if (g.length <= longest && g.lane_stride != 1) {
        near = {together, together, 1, w, w, g.length, g.position};
        for (std::size_t k = 0; k < w; ++k) {
            for (std::size_t j = 0; j < g.length; ++j)
                together[j * w + k] = k < g.blocks ? g.x[k * g.lane_stride + j * g.element_stride] : 0.0f;
        }
    }
    seen<Arch> all;
    for (std::size_t j = 0; j < g.length; ++j) all.add(load_across<Arch>(near, j));
    const vi<Arch> amax = select(all.finite < vi<Arch>(step.rules.least_input), vi<Arch>(0), all.finite);
    ladder_steps<Arch> best = step.rule_steps(all);
    lane_flags<Arch> open;
    alignas(64) float largest[w];
    store<Arch>(largest, as_float<Arch>(amax));
    for (std::size_t k = 0; k < w; ++k) open.is[k] = k < g.blocks && largest[k] != 0 && step.may_search();
    scale_finder<Arch, Step>(step, near, g).find(best, open, largest);
    if (step.task.found != nullptr) {
        for (std::size_t k = 0; k < g.blocks; ++k) step.task.found[g.position + k * g.lane_stride] = step.scale_of(best.at[k]);
    }
    auto shared = step.shared_at(best);
    shared.worst = all.all;
    const vf<Arch> units = step.units(load<Arch>(best.at));
    const vi<Arch> size = as_int<Arch>(units), zero(0);
    // Blocks of zeros have a scale of any size, and become zeros.
    const bool plain = step.rounded.usable && step.task.is_plain(step.rules.zero) &&
                       !any((all.all >= vi<Arch>(infinity_bits)) |
                            ((amax != zero) & ((size < as_int<Arch>(vf<Arch>(0x1p-60f))) | (size > as_int<Arch>(vf<Arch>(0x1p60f))))));
    const mask<Arch> empty = step.empties(amax);
    const vf<Arch> divisor = as_float<Arch>(select(amax == zero, as_int<Arch>(vf<Arch>(1.0f)), size));
    for (std::size_t j = 0; j < g.length; ++j) {
        const vf<Arch> v = load_across<Arch>(near, j);
        if (plain) {
            const vi<Arch> bits = as_int<Arch>(v);
            const vf<Arch> element = step.rounded(quotient<Arch>(as_float<Arch>(bits & vi<Arch>(magnitude_bits)), divisor));
            const vi<Arch> y = as_int<Arch>(element * divisor);
            const mask<Arch> bare = step.rules.zero == zero_sign::kept ? empty : y == zero;
            store_across<Arch>(near, j, as_float<Arch>(y | select(bare, zero, bits & vi<Arch>(sign_bit))));
        } else {
            store_across<Arch>(
                near, j,
                step.apply(v, shared, random_lanes<Arch>(step.rules.random, g.position + j * g.element_stride, g.lane_stride, g.blocks)));
        }
    }
    if (near.x == g.x) return;
    for (std::size_t k = 0; k < g.blocks; ++k) {
        for (std::size_t j = 0; j < g.length; ++j) g.y[k * g.lane_stride + j * g.element_stride] = together[j * w + k];
    }
}

/// A microscaling step whose scales are searched. Nothing above rceil's scale is better, which clips nothing: its grid has every number of
/// the grids above it.
template <class Arch>
struct searched_microscaling : microscaling_step<Arch> {
    using base = microscaling_step<Arch>;
    using shared = typename base::shared;
    search_task task;
    base trial;
    element_rounding<Arch> rounded;
    int lowest;

    searched_microscaling(const microscaling& f, float, const search_task& t) noexcept
        : base(f, t.how),
          task(t),
          trial(f, for_search(t.how)),
          rounded(this->mantissa_bits, this->least_step + this->mantissa_bits - step_bias, std::bit_cast<float>(this->largest),
                  !this->nonnegative && !trial.element_grid.needed() && this->largest_negative == this->largest),
          lowest(t.how.clamp_mx_scale ? -127 : -400) {}

    void run(const block_group& g) const noexcept { run_searched_group<Arch>(g, *this); }

    bool may_search() const noexcept { return true; }
    ladder_steps<Arch> rule_steps(const seen<Arch>& all) const noexcept {
        ladder_steps<Arch> s;
        store<Arch>(s.at, this->plan(all).scale);
        return s;
    }
    shared shared_at(const ladder_steps<Arch>& at) const noexcept { return {load<Arch>(at.at), vi<Arch>(0)}; }
    std::int32_t scale_of(int at) const noexcept { return at; }
    /// Scales as floats, where they are normal numbers; else 0 or Inf.
    vf<Arch> units(vi<Arch> at) const noexcept { return as_float<Arch>(min(max(at + vi<Arch>(127), vi<Arch>(0)), vi<Arch>(255)) << 23); }
    /// The largest magnitudes under scales.
    vf<Arch> limits(const ladder_steps<Arch>& at) const noexcept {
        return as_float<Arch>(scaled_constant<Arch>(std::max(this->largest, this->largest_negative), load<Arch>(at.at)));
    }
    int end(int first, float) const noexcept { return first + 1; }
    int other(int first) const noexcept { return std::max(first - 1, lowest); }
    /// Blocks that lose the sign of zeros.
    mask<Arch> empties(vi<Arch> amax) const noexcept { return amax < vi<Arch>(0); }
};

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

    void run(const block_group& g) const noexcept { run_searched_group<Arch>(g, *this); }

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
searched_microscaling<Arch> searched_step(const microscaling& f, float t, const search_task& task) noexcept {
    return {f, t, task};
}
template <class Arch>
searched_nvfloat<Arch> searched_step(const nvfloat& f, float t, const search_task& task) noexcept {
    return {f, t, task};
}

/// Rounds blocks whose scales are searched. `t` is NVFP4's tensor scale; `found` as search_task says.
template <class Arch, class Format>
QK_APART void run_searched(const Format& f, const float* x, float* y, along_axis axis, float t, const semantics& how,
                           std::int32_t* found = nullptr) noexcept {
    if (axis.outer * axis.length * axis.inner != 0)
        run_blocks_general<Arch>(x, y, axis, searched_step<Arch>(f, t, search_task{axis, how, found}));
}

}  // namespace qk::kernels
