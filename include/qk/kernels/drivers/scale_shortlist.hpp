// SPDX-License-Identifier: Apache-2.0
// The quick half of a search for block scales: errors of candidates in float32, in units of the rule's scale, a lane for each block. They
// are good to some thousandths of a percent, so they choose nothing; they leave the few candidates that the exact sums of
// searched_blocks.hpp compare.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "qk/kernels/drivers/general_blocks.hpp"

namespace qk::kernels {

template <class Arch>
class scale_shortlist {
  public:
    static constexpr std::size_t w = lanes<Arch>, longest = 64, most = 64;

    /// Loads the blocks in units of d, the scales that the rule gives. Returns whether the quick errors mean something: for finite blocks
    /// that are not long, with scales of ordinary size.
    bool load_blocks(const block_group& g, const float* d, const bool* open) noexcept {
        if (g.length > longest) return false;
        alignas(64) float inverse[w];
        for (std::size_t k = 0; k < w; ++k) {
            if (open[k] && !(d[k] > 1e-30f && d[k] < 1e30f)) return false;
            inverse[k] = open[k] ? 1.0f / d[k] : 0.0f;
        }
        const vf<Arch> by = load<Arch>(inverse);
        vf<Arch> sum(0.0f), largest(0.0f);
        bool finite = true;
        for (std::size_t j = 0; j < g.length; ++j) {
            const vi<Arch> a = as_int<Arch>(load_across<Arch>(g, j)) & vi<Arch>(magnitude_bits);
            finite = finite && !any(a >= vi<Arch>(infinity_bits));
            value_[j] = as_float<Arch>(a) * by;
            largest = max(largest, value_[j]);
            sum = sum + value_[j] * value_[j];
        }
        length_ = g.length;
        store<Arch>(energy, sum);
        return finite && !any(as_int<Arch>(largest) > as_int<Arch>(vf<Arch>(4096.0f)));
    }

    /// Errors under ratio[lane] times the rule's scale, and what is lost above the largest element alone.
    void measure(const float* ratio, int mantissa_bits, int least_exponent, float largest, bool absolute, float* error,
                 float* clipped) const noexcept {
        const vf<Arch> r = load<Arch>(ratio), inverse = vf<Arch>(1.0f) / r, end(largest);
        const vi<Arch> smallest((least_exponent + 127) << 23), lift((23 - mantissa_bits) << 23), exponents(0x7f800000);
        vf<Arch> sum(0.0f), lost(0.0f);
        for (std::size_t j = 0; j < length_; ++j) {
            const vf<Arch> q = value_[j] * inverse;
            const vf<Arch> magic = as_float<Arch>(max(as_int<Arch>(q) & exponents, smallest) + lift);  // rounds to the element's step
            const vf<Arch> element = min((q + magic) - magic, end);
            const vf<Arch> d = as_float<Arch>(as_int<Arch>(value_[j] - element * r) & vi<Arch>(magnitude_bits));
            const vf<Arch> beyond = max(value_[j] - end * r, vf<Arch>(0.0f));
            sum = sum + (absolute ? d : d * d);
            lost = lost + (absolute ? beyond : beyond * beyond);
        }
        store<Arch>(error, sum);
        store<Arch>(clipped, lost);
    }

    /// Adds a candidate for the lanes that are `open`.
    void add(const float* candidate, const float* error, const bool* open) noexcept {
        for (std::size_t k = 0; k < w; ++k) {
            scale[count][k] = candidate[k];
            cost[count][k] = open[k] ? error[k] : std::numeric_limits<float>::infinity();
            least[k] = count == 0 ? cost[count][k] : std::min(least[k], cost[count][k]);
        }
        ++count;
    }
    /// Call when all candidates are there: says up to which quick error the exact one may be the least, and how many of a lane are.
    /// A quick error is off by some last bits of a value for each error of half an element's step, so `mantissa_bits` decide.
    void settle(int mantissa_bits) noexcept {
        const float slack = std::max(1.002f, 1.0f + 2e-5f * static_cast<float>(1 << mantissa_bits));
        for (std::size_t k = 0; k < w; ++k) {
            limit[k] = least[k] * slack + 1e-9f * energy[k] + (absolute_guard ? 1e-5f * std::sqrt(energy[k]) : 0.0f);
            close_ones[k] = 0;
        }
        for (std::size_t c = 0; c < count; ++c) {
            for (std::size_t k = 0; k < w; ++k) close_ones[k] += cost[c][k] <= limit[k];
        }
    }
    bool close(std::size_t candidate, std::size_t lane) const noexcept { return cost[candidate][lane] <= limit[lane]; }

    std::size_t count = 0;
    bool absolute_guard = false;  ///< errors are sums of magnitudes
    alignas(64) float scale[most][w], cost[most][w], least[w], energy[w], limit[w];
    int close_ones[w];

  private:
    vf<Arch> value_[longest];
    std::size_t length_ = 0;
};

}  // namespace qk::kernels
