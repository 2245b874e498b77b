// SPDX-License-Identifier: Apache-2.0
// Block scales that are searched (scale_rule::search, four_over_six): docs/reference/numerics.md, "Searched scales".
//
// A lane is a block, as in run_group. Every candidate scale goes through the step itself, so that its error is that of the values which
// fake_quantize gives; errors are summed in doubles, element after element, so that every instruction set chooses the same scale.
//
// The window holds the best code of all:
//   - A power-of-two multiple of a scale that clips nothing has a grid that is part of its grid, so it is not better. MX therefore starts
//     at the least scale that clips nothing, and NVFP4 need not look from twice that scale on, where half of a scale is a scale, too: from
//     twice the smallest normal one on.
//   - The error is at least that of the clipped values, which only grows as scales fall. Below, the search ends where the clipped values
//     alone cost as much as the best that was found.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "qk/kernels/drivers/general_blocks.hpp"
#include "qk/kernels/drivers/scale_shortlist.hpp"

namespace qk::kernels {

/// Is true when the rule compares errors, for which a step must see the values of a block.
constexpr bool searches(scale_rule r) { return r == scale_rule::search || r == scale_rule::four_over_six; }

/// Semantics under which candidates are compared: the choice of a scale does not depend on the rounding of the elements.
constexpr semantics for_search(semantics how) {
    how.rounding = rounding::half_even;
    how.random_words = nullptr;
    return how;
}

/// Compares candidates for the blocks of a group, a lane each.
template <class Arch>
class scale_search {
  public:
    static constexpr std::size_t w = lanes<Arch>;

    scale_search(const block_group& g, along_axis axis, const semantics& how) noexcept
        : g_(g),
          axis_(axis),
          weights_(how.scale_weights),
          absolute_(how.scale_objective == scale_objective::mae),
          flush_(how.flush_inputs) {}

    /// Error of each lane's block when its elements become apply(x), into `error`; what is lost above limit[lane] alone, into `clipped`.
    template <class Apply>
    void measure(const Apply& apply, const float* limit, double* error, double* clipped) const noexcept {
        for (std::size_t k = 0; k < w; ++k) error[k] = clipped[k] = 0;
        alignas(64) float x[w], y[w];
        for (std::size_t j = 0; j < g_.length; ++j) {
            const vf<Arch> v = load_across<Arch>(g_, j);
            store<Arch>(x, v);
            store<Arch>(y, apply(v));
            for (std::size_t k = 0; k < w; ++k) {
                const float a = flush_ && std::abs(x[k]) < 0x1p-126f ? 0.0f : x[k];
                const bool counts = std::abs(a) < std::numeric_limits<float>::infinity();
                const double weight = counts ? weight_of(j, k) : 0.0;
                const double d = counts ? std::abs(static_cast<double>(a) - static_cast<double>(y[k])) : 0.0;
                const double beyond = counts ? std::max(0.0, std::abs(static_cast<double>(a)) - static_cast<double>(limit[k])) : 0.0;
                error[k] += weight * (absolute_ ? d : d * d);
                clipped[k] += weight * (absolute_ ? beyond : beyond * beyond);
            }
        }
    }

  private:
    double weight_of(std::size_t j, std::size_t k) const noexcept {
        if (weights_ == nullptr || k >= g_.blocks) return 1.0;
        const std::size_t at = g_.position + k * g_.lane_stride + j * g_.element_stride;
        return static_cast<double>(weights_[at / axis_.inner % axis_.length]);
    }

    const block_group& g_;
    const along_axis axis_;
    const float* weights_;
    bool absolute_, flush_;
};

/// A microscaling step whose scales are searched.
template <class Arch>
struct searched_microscaling : microscaling_step<Arch> {
    using base = microscaling_step<Arch>;
    using shared = typename base::shared;
    along_axis axis;
    semantics how;

    searched_microscaling(const microscaling& f, const semantics& given, along_axis a) noexcept
        : base(f, given), axis(a), how(given), trial_(f, for_search(given)) {}

    shared search(const block_group& g, const shared& start, const seen<Arch>&) const noexcept {
        constexpr std::size_t w = lanes<Arch>;
        const scale_search<Arch> compare(g, axis, how);
        alignas(64) std::int32_t first[w], now[w], best[w];
        alignas(64) float limit[w];
        double error[w], clipped[w], least[w] = {};
        store<Arch>(first, start.scale);
        const int floor = how.clamp_mx_scale ? -127 : -400;
        const float most = std::bit_cast<float>(std::max(this->largest, this->largest_negative));
        bool open[w];
        for (std::size_t k = 0; k < w; ++k) {
            best[k] = first[k];
            open[k] = k < g.blocks;
        }
        for (int below = 0; std::find(open, open + w, true) != open + w; ++below) {
            for (std::size_t k = 0; k < w; ++k) {
                now[k] = std::max(first[k] - below, floor);
                limit[k] = static_cast<float>(std::ldexp(static_cast<double>(most), now[k]));
            }
            const shared tried{load<Arch>(now), vi<Arch>(0)};
            compare.measure([&](vf<Arch> x) { return trial_.apply(x, tried, vi<Arch>(0)); }, limit, error, clipped);
            for (std::size_t k = 0; k < w; ++k) {
                if (!open[k]) continue;
                if (below == 0 || error[k] < least[k]) {
                    least[k] = error[k];
                    best[k] = now[k];
                }
                if (clipped[k] >= least[k] || now[k] == floor || (below == 1 && how.scale_rule == scale_rule::four_over_six))
                    open[k] = false;
            }
        }
        return {load<Arch>(best), start.worst};
    }

  private:
    base trial_;
};

/// An NVFP4 step whose block scales are searched.
template <class Arch>
struct searched_nvfloat : nvfloat_step<Arch> {
    using base = nvfloat_step<Arch>;
    using shared = typename base::shared;
    along_axis axis;
    semantics how;
    floating grid;  ///< of the block scales
    floating element_format;

    searched_nvfloat(const nvfloat& f, const semantics& given, float t, along_axis a) noexcept
        : base(f, given, t), axis(a), how(given), grid(f.scale), element_format(f.element), trial_(f, for_search(given), t) {}

    shared search(const block_group& g, const shared& start, const seen<Arch>& all) const noexcept {
        return {load<Arch>(scales(g, all).value) * vf<Arch>(this->tensor_scale), start.worst};
    }

    /// The chosen block scales, as numbers of their format.
    struct chosen {
        alignas(64) float value[lanes<Arch>];
    };
    chosen scales(const block_group& g, const seen<Arch>& all) const noexcept {
        constexpr std::size_t w = lanes<Arch>;
        const scale_search<Arch> compare(g, axis, how);
        chosen best;
        alignas(64) float d[w], now[w], limit[w], first[w];
        double error[w], clipped[w], least[w] = {}, top[w];
        store<Arch>(now, as_float<Arch>(select(all.finite < vi<Arch>(this->rules.least_input), vi<Arch>(0), all.finite)));
        bool open[w];
        for (std::size_t k = 0; k < w; ++k) {
            open[k] = k < g.blocks && now[k] != 0 && this->tensor_scale != 0;
            first[k] = best.value[k] = now[k] = open[k] ? nearest(now[k] / this->element_max / this->tensor_scale) : 0.0f;  // the rule's
        }
        const auto measure = [&] {
            for (std::size_t k = 0; k < w; ++k) {
                d[k] = now[k] * this->tensor_scale;
                limit[k] = this->element_max * d[k];
            }
            const shared tried{load<Arch>(d), vi<Arch>(0)};
            compare.measure([&](vf<Arch> x) { return trial_.apply(x, tried, vi<Arch>(0)); }, limit, error, clipped);
        };
        const auto keep = [&](std::size_t k) {
            if (!(error[k] < least[k])) return;
            least[k] = error[k];
            best.value[k] = now[k];
        };
        if (scale_shortlist<Arch> list; how.scale_rule == scale_rule::search && shortlisted(g, all, first, open, list)) {
            list.settle(element_format.mantissa_bits);
            bool compared[w] = {};
            for (std::size_t c = 0; c < list.count; ++c) {
                bool wanted[w], any = false;
                for (std::size_t k = 0; k < w; ++k) {
                    wanted[k] = open[k] && list.close(c, k);
                    if (wanted[k] && list.close_ones[k] == 1) {
                        best.value[k] = list.scale[c][k];
                        wanted[k] = false;
                    }
                    any |= wanted[k];
                    now[k] = wanted[k] ? list.scale[c][k] : first[k];
                }
                if (!any) continue;
                measure();
                for (std::size_t k = 0; k < w; ++k) {
                    if (!wanted[k]) continue;
                    if (!compared[k]) least[k] = std::numeric_limits<double>::infinity();
                    compared[k] = true;
                    keep(k);
                }
            }
            return best;
        }
        measure();
        for (std::size_t k = 0; k < w; ++k) {
            least[k] = error[k];
            // twice the least scale that clips nothing: this one or the next; one more, since its product is rounded
            top[k] = std::max(2.0 * static_cast<double>(clipped[k] == 0 ? now[k] : up(up(now[k]))), 2 * min_normal(grid));
            if (least[k] == 0) open[k] = false;
        }
        if (how.scale_rule == scale_rule::four_over_six) {
            for (std::size_t k = 0; k < w; ++k) now[k] = nearest(1.5f * first[k]);
            measure();
            for (std::size_t k = 0; k < w; ++k) {
                if (open[k]) keep(k);
            }
            return best;
        }
        bool going[w];
        std::copy(open, open + w, going);
        while (std::find(going, going + w, true) != going + w) {
            for (std::size_t k = 0; k < w; ++k) {
                const float next = going[k] ? up(now[k]) : now[k];
                going[k] = going[k] && next != now[k] && static_cast<double>(next) < top[k];
                if (going[k]) now[k] = next;
            }
            measure();
            for (std::size_t k = 0; k < w; ++k) {
                if (going[k]) keep(k);
            }
        }
        std::copy(first, first + w, now);
        std::copy(open, open + w, going);
        while (std::find(going, going + w, true) != going + w) {
            for (std::size_t k = 0; k < w; ++k) {
                const float next = going[k] ? down(now[k]) : now[k];
                going[k] = going[k] && next > 0;
                if (going[k]) now[k] = next;
            }
            measure();
            for (std::size_t k = 0; k < w; ++k) {
                if (!going[k]) continue;
                keep(k);
                if (clipped[k] >= least[k]) going[k] = false;
            }
        }
        return best;
    }

  private:
    /// Collects the candidates of a search with their quick errors, in the order of the exact search. Returns false where these mean
    /// nothing.
    bool shortlisted(const block_group& g, const seen<Arch>& all, const float* first, const bool* open,
                     scale_shortlist<Arch>& list) const noexcept {
        constexpr std::size_t w = lanes<Arch>;
        if (how.scale_weights != nullptr || how.flush_inputs || element_format.mantissa_bits > 15) return false;
        alignas(64) float d[w], amax[w], now[w], ratio[w], error[w], clipped[w];
        bool going[w];
        double top[w];
        for (std::size_t k = 0; k < w; ++k) d[k] = first[k] * this->tensor_scale;
        if (!list.load_blocks(g, d, open)) return false;
        store<Arch>(amax, as_float<Arch>(all.finite));
        list.absolute_guard = how.scale_objective == scale_objective::mae;
        const auto try_scales = [&] {
            for (std::size_t k = 0; k < w; ++k) ratio[k] = going[k] ? now[k] / first[k] : 1.0f;
            list.measure(ratio, element_format.mantissa_bits, min_exponent(element_format), this->element_max, list.absolute_guard, error,
                         clipped);
            list.add(now, error, going);
        };
        const auto start = [&] {
            std::copy(first, first + w, now);
            std::copy(open, open + w, going);
        };
        start();
        try_scales();
        for (std::size_t k = 0; k < w; ++k)
            top[k] = std::max(2.0 * static_cast<double>(amax[k] <= this->element_max * d[k] ? first[k] : up(up(first[k]))),
                              2 * min_normal(grid));
        while (list.count < list.most) {
            for (std::size_t k = 0; k < w; ++k) {
                const float next = going[k] ? up(now[k]) : now[k];
                going[k] = going[k] && next != now[k] && static_cast<double>(next) < top[k];
                if (going[k]) now[k] = next;
            }
            if (std::find(going, going + w, true) == going + w) break;
            try_scales();
        }
        start();
        while (list.count < list.most) {
            for (std::size_t k = 0; k < w; ++k) {
                const float next = going[k] ? down(now[k]) : now[k];
                going[k] = going[k] && next > 0;
                if (going[k]) now[k] = next;
            }
            if (std::find(going, going + w, true) == going + w) return true;
            try_scales();
            for (std::size_t k = 0; k < w; ++k) going[k] = going[k] && clipped[k] <= list.least[k] * 1.01f + 1e-6f * list.energy[k];
        }
        return false;
    }

    /// Step of the candidates at v. Of scales with more than seven mantissa bits only those that seven can hold are tried.
    float spacing(float v, int mantissa_bits) const noexcept {
        const int e = std::max(static_cast<int>(std::bit_cast<std::uint32_t>(v) >> 23) - 127, min_exponent(grid)) - mantissa_bits;
        return e >= -126 ? std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23) : static_cast<float>(power_of_two(e));
    }
    float spacing(float v) const noexcept { return spacing(v, std::min(grid.mantissa_bits, 7)); }
    float nearest(float v) const noexcept {
        const float s = spacing(v, grid.mantissa_bits);
        return std::min(std::nearbyint(v / s) * s, static_cast<float>(max_value(grid)));
    }
    float up(float v) const noexcept { return std::min(v + spacing(v), static_cast<float>(max_value(grid))); }
    float down(float v) const noexcept {
        const float s = spacing(v);
        const bool power = v > static_cast<float>(min_normal(grid)) && std::bit_cast<std::uint32_t>(v) << 9 == 0;
        return v - (power ? s / 2 : s);
    }

    base trial_;
};

template <class Arch>
searched_microscaling<Arch> searched_step(const microscaling& f, const semantics& how, float, along_axis axis) noexcept {
    return {f, how, axis};
}
template <class Arch>
searched_nvfloat<Arch> searched_step(const nvfloat& f, const semantics& how, float t, along_axis axis) noexcept {
    return {f, how, t, axis};
}

/// Rounds blocks whose scales are searched.
template <class Arch, class Format>
QK_APART void run_searched(const Format& f, const float* x, float* y, along_axis axis, float t, const semantics& how) noexcept {
    if (axis.outer * axis.length * axis.inner != 0) run_blocks_completely<Arch>(x, y, axis, searched_step<Arch>(f, how, t, axis));
}

/// What a single block shares, found by a search: `count` values `stride` apart, of which the first is at `at` along its axis.
template <class Arch, class Format>
auto searched_block(const Format& f, const float* x, std::size_t count, std::size_t stride, const semantics& how, float t) noexcept {
    const block_group g{x, nullptr, 1, stride, 1, count, 0};
    const auto step = searched_step<Arch>(f, how, t, along_axis{1, count, stride});
    seen<Arch> all;
    for (std::size_t j = 0; j < count; ++j) all.add(load_across<Arch>(g, j));
    if constexpr (std::is_same_v<Format, nvfloat>) {
        return step.scales(g, all).value[0];
    } else {
        const auto rule = step.plan(all);
        alignas(64) std::int32_t exponent[lanes<Arch>];
        store<Arch>(exponent, step.search(g, rule, all).scale);
        return static_cast<int>(exponent[0]);
    }
}

}  // namespace qk::kernels
