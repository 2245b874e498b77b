// SPDX-License-Identifier: Apache-2.0
// The quick half of a search for block scales: errors in float32, in units of the rule's scale, a lane for each block. They are off by
// rounding errors alone, whose sum has a bound, so they leave the few scales that may be the best: mostly one. Among several the exact
// sums of searched_blocks.hpp decide.
//
// The window holds the best scale of all:
//   - Where a scale clips nothing and is half of another, its grid has every number of the other's grid that matters. `end` of a step says
//     where these others begin.
//   - The error is at least that of the clipped values, which only grows as scales fall. Below, the search ends where the clipped values
//     alone cost as much as the best that was found.
#pragma once

#include <algorithm>
#include <limits>

#include "qk/isa.hpp"
#include "qk/kernels/drivers/general.hpp"
#include "qk/steps/search.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

template <class Arch, class Step>
class scale_shortlist {
  public:
    static constexpr std::size_t w = lanes<Arch>, longest = 64, most = 64;

    scale_shortlist(const Step& step, const block_group& g, const std::size_t* along) noexcept
        : step_(step),
          g_(g),
          weights_(step.task.how.scale_weights),
          along_(along),
          absolute_(step.task.how.scale_objective == scale_objective::mae) {}

    /// Collects the scales that may be the best, in the order of the definition: the rule's, those above, those below. `end`: where those
    /// above end. Returns false where quick errors mean nothing: for long blocks, special values, unusual grids, and scales of unusual
    /// size.
    bool collect(const ladder_steps<Arch>& first, const ladder_steps<Arch>& end, const lane_flags<Arch>& open) noexcept {
        if (!step_.rounded.usable || g_.length > longest || !load_values(first, open)) return false;
        const vi<Arch> start = load<Arch>(first.at);
        add<false>(start, open_);
        mask<Arch> going = open_;
        for (vi<Arch> now = start; count_ < most;) {
            now = now + vi<Arch>(1);
            going = going & (now < load<Arch>(end.at));
            if (!any(going)) break;
            now = select(going, now, start);
            add<false>(now, going);
        }
        going = open_;
        for (vi<Arch> now = start; count_ < most;) {
            now = now - vi<Arch>(1);
            going = going & (now >= vi<Arch>(step_.lowest));
            if (!any(going)) return settle(), true;
            now = select(going, now, start);
            const vf<Arch> clipped = add<true>(now, going);
            going = going & (as_int<Arch>(clipped) < as_int<Arch>(limit_of(least_)));
        }
        return false;
    }
    /// Collects two scales.
    bool collect_two(const ladder_steps<Arch>& first, const ladder_steps<Arch>& other, const lane_flags<Arch>& open) noexcept {
        if (!step_.rounded.usable || g_.length > longest || !load_values(first, open)) return false;
        add<false>(load<Arch>(first.at), open_);
        add<false>(load<Arch>(other.at), open_);
        return settle(), true;
    }

    std::size_t size() const noexcept { return count_; }
    const ladder_steps<Arch>& steps(std::size_t candidate) const noexcept { return at_[candidate]; }
    /// Sets the lanes for which one scale alone may be the best; returns whether there are others.
    bool choose(ladder_steps<Arch>& best) const noexcept {
        store<Arch>(best.at, select(close_ones_ == vi<Arch>(1), close_one_, load<Arch>(best.at)));
        return any(close_ones_ > vi<Arch>(1));
    }
    /// The lanes of which this may be the best, among others.
    lane_flags<Arch> compared(std::size_t candidate) const noexcept {
        alignas(64) std::int32_t lane[w];
        store<Arch>(lane, select(is_close(candidate) & (close_ones_ > vi<Arch>(1)), vi<Arch>(1), vi<Arch>(0)));
        lane_flags<Arch> f;
        for (std::size_t k = 0; k < w; ++k) f.is[k] = lane[k] != 0;
        return f;
    }

  private:
    /// Loads the magnitudes in units of the rule's scales; returns whether quick errors mean something.
    bool load_values(const ladder_steps<Arch>& first, const lane_flags<Arch>& open) noexcept {
        alignas(64) std::int32_t opened[w];
        for (std::size_t k = 0; k < w; ++k) opened[k] = open.is[k] ? 1 : 0;
        open_ = load<Arch>(opened) != vi<Arch>(0);
        const vf<Arch> unit = step_.units(load<Arch>(first.at));
        const vi<Arch> size = as_int<Arch>(unit), one = as_int<Arch>(vf<Arch>(1.0f));
        if (any(open_ & ((size < as_int<Arch>(vf<Arch>(0x1p-60f))) | (size > as_int<Arch>(vf<Arch>(0x1p60f)))))) return false;
        const vf<Arch> by = vf<Arch>(1.0f) / as_float<Arch>(select(open_, size, one));
        by_ = as_float<Arch>(select(open_, as_int<Arch>(by), vi<Arch>(0)));
        vf<Arch> sum(0.0f), largest(0.0f);
        vi<Arch> special(0);
        for (std::size_t j = 0; j < g_.length; ++j) {
            const vi<Arch> a = as_int<Arch>(load_across<Arch>(g_, j)) & vi<Arch>(magnitude_bits);
            special = max(special, a);
            const vf<Arch> v = as_float<Arch>(select(a < vi<Arch>(step_.rules.least_input), vi<Arch>(0), a)) * by_;
            value_[j] = v;
            largest = max(largest, v);
            vf<Arch> part = absolute_ ? v : v * v;
            if (weights_ != nullptr) {
                alignas(64) float weight[w];
                for (std::size_t k = 0; k < w; ++k) weight[k] = open.is[k] ? weights_[along_[k] + j] : 0.0f;
                weight_[j] = load<Arch>(weight);
                part = part * weight_[j];
            }
            sum = sum + part;
        }
        norm_ = sum;
        least_ = vf<Arch>(std::numeric_limits<float>::infinity());
        const vi<Arch> norm = as_int<Arch>(sum);
        return !any((special >= vi<Arch>(infinity_bits)) |
                    (open_ & ((as_int<Arch>(largest) > as_int<Arch>(vf<Arch>(8.0f) * step_.rounded.largest)) |
                              (norm < as_int<Arch>(vf<Arch>(1e-20f))) | (norm > as_int<Arch>(vf<Arch>(1e20f))))));
    }

    /// Measures the scales of a step in some lanes and adds them to the list. `Clips`: returns what is lost beyond the largest element
    /// alone.
    template <bool Clips>
    vf<Arch> add(vi<Arch> at, mask<Arch> where) noexcept {
        store<Arch>(at_[count_].at, at);
        const vf<Arch> ratio = step_.units(at) * by_;
        vf<Arch> error, clipped;
        if (weights_ != nullptr && absolute_) measure<Clips, true, true>(ratio, error, clipped);
        else if (weights_ != nullptr) measure<Clips, true, false>(ratio, error, clipped);
        else if (absolute_) measure<Clips, false, true>(ratio, error, clipped);
        else measure<Clips, false, false>(ratio, error, clipped);
        cost_[count_] = as_float<Arch>(select(where, as_int<Arch>(error), vi<Arch>(infinity_bits)));
        least_ = min(least_, cost_[count_++]);
        return clipped;
    }

    template <bool Clips, bool Weighted, bool Absolute>
    void measure(vf<Arch> ratio, vf<Arch>& error, vf<Arch>& clipped) const noexcept {
        const element_rounding<Arch> rounded = step_.rounded;
        const vf<Arch> inverse = vf<Arch>(1.0f) / ratio, limit = rounded.largest * ratio, zero(0.0f);
        vf<Arch> sum = zero, lost = zero;
        for (std::size_t j = 0; j < g_.length; ++j) {
            const vf<Arch> v = value_[j];
            vf<Arch> d = fnma<Arch>(rounded(v * inverse), ratio, v);
            if constexpr (Absolute) d = as_float<Arch>(as_int<Arch>(d) & vi<Arch>(magnitude_bits));
            if constexpr (Weighted) sum = fma<Arch>(Absolute ? d : d * d, weight_[j], sum);
            else sum = Absolute ? sum + d : fma<Arch>(d, d, sum);
            if constexpr (Clips) {
                const vf<Arch> beyond = max(v - limit, zero);
                if constexpr (Weighted) lost = fma<Arch>(Absolute ? beyond : beyond * beyond, weight_[j], lost);
                else lost = Absolute ? lost + beyond : fma<Arch>(beyond, beyond, lost);
            }
        }
        error = sum;
        clipped = lost;
    }

    /// Returns up to which quick error the exact one may be the least, if `error` is the least quick one. An element's quick error is off
    /// by less than 3e-6 of the element: a few roundings, and a tie that goes the other way. So the root r of a sum of squares is off by
    /// less than e = 3e-6 of the root n of the values' sum, and (r + 2 e n)^2 <= (1 + 1e-4) r^2 + (1 + 1e4) (2 e n)^2.
    vf<Arch> limit_of(vf<Arch> error) const noexcept {
        return absolute_ ? error * vf<Arch>(1.00002f) + norm_ * vf<Arch>(6.1e-6f) : error * vf<Arch>(1.00012f) + norm_ * vf<Arch>(3.7e-7f);
    }
    void settle() noexcept {
        limit_ = limit_of(least_);
        close_ones_ = close_one_ = vi<Arch>(0);
        for (std::size_t c = 0; c < count_; ++c) {
            const mask<Arch> close = is_close(c);
            close_ones_ = one_more<Arch>(close_ones_, close);
            close_one_ = select(close, load<Arch>(at_[c].at), close_one_);
        }
    }
    mask<Arch> is_close(std::size_t candidate) const noexcept {
        const vi<Arch> cost = as_int<Arch>(cost_[candidate]);
        return (cost <= as_int<Arch>(limit_)) & (cost < vi<Arch>(infinity_bits));
    }

    const Step& step_;
    const block_group& g_;
    const float* weights_;
    const std::size_t* along_;
    bool absolute_;
    std::size_t count_ = 0;
    mask<Arch> open_ = vi<Arch>(0) != vi<Arch>(0);
    vf<Arch> by_{}, least_{}, norm_{}, limit_{};
    vi<Arch> close_ones_{}, close_one_{};
    vf<Arch> value_[longest], weight_[longest], cost_[most];
    ladder_steps<Arch> at_[most];
};

}  // namespace QK_ISA
}  // namespace qk::kernels
