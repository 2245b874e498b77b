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

#include "qk/exact/product.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/general.hpp"
#include "qk/kernels/drivers/scale_shortlist.hpp"
#include "qk/steps/search.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

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
                error_[k] += rounded_product(weight, absolute ? d : d * d);
                clipped_[k] += rounded_product(weight, absolute ? beyond : beyond * beyond);
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

/// Rounds blocks whose scales are searched. `t` is NVFP4's tensor scale; `found` as search_task says.
template <class Arch, class Format>
QK_APART void run_searched(const Format& f, const float* x, float* y, along_axis axis, float t, const semantics& how,
                           std::int32_t* found = nullptr) noexcept {
    if (axis.outer * axis.length * axis.inner != 0)
        run_blocks_general<Arch>(x, y, axis, searched_step<Arch>(f, t, search_task{axis, how, found}));
}

}  // namespace QK_ISA
}  // namespace qk::kernels
