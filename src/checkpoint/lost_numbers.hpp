// SPDX-License-Identifier: Apache-2.0
// Counts the numbers that a conversion does not keep: finite ones that the new format has only as Inf or NaN, and Inf and NaN that become
// numbers. They are said, one sentence for a tensor; other rounding is what a format is.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "parts.hpp"

namespace qk::checkpoint {

class lost_numbers {
  public:
    /// Whether a number of `x` may be lost in 16-bit floats, or in a format whose scales are some: NaN, Inf, or above 1023, from which on a
    /// sum of 32 values, the most that a block stores in float16, passes 65504.
    static bool possible(std::span<const float> x) {
        std::uint32_t most = 0;
        for (const float v : x) most = std::max(most, std::bit_cast<std::uint32_t>(v) & 0x7fffffffu);
        return most >= std::bit_cast<std::uint32_t>(1023.0f);
    }
    void compare(std::span<const float> before, std::span<const float> after) {
        for (std::size_t i = 0; i < before.size(); ++i) {
            const bool was = std::isfinite(before[i]), is = std::isfinite(after[i]);
            overflowed_ += was && !is, invented_ += !was && is, infinite_ += std::isnan(before[i]) && std::isinf(after[i]);
        }
    }
    /// Takes `n` numbers that were Inf in `before` only because float32 does not have them: what became finite of them is rounded, not
    /// lost.
    void add_beyond_float32(std::uint64_t n) {
        const std::uint64_t finite = std::min(n, invented_);
        invented_ -= finite, overflowed_ += n - finite;
    }
    /// Adds a sentence for each kind of loss of `all` numbers to `notes`. `way_out` says what else can be done.
    void say(const std::string& tensor, std::uint64_t all, const std::string& format, std::string_view way_out,
             std::vector<std::string>& notes) const {
        const auto of = [&](std::uint64_t n) { return tensor + ": " + std::to_string(n) + " of " + std::to_string(all) + " numbers "; };
        if (overflowed_ != 0)
            notes.push_back(of(overflowed_) + "are finite, and Inf or NaN in " + format +
                            " (overflow: beyond its range, or that of its scales); " + std::string(way_out));
        if (invented_ != 0)
            notes.push_back(of(invented_) + "are Inf or NaN, and become finite in " + format +
                            "; qk lint names the tensors that have them");
        if (infinite_ != 0) notes.push_back(of(infinite_) + "are NaN, and become Inf in " + format);
    }

  private:
    std::uint64_t overflowed_ = 0, invented_ = 0, infinite_ = 0;
};

}  // namespace qk::checkpoint
