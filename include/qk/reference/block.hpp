// SPDX-License-Identifier: Apache-2.0
// What all block formats share: a block seen along an axis, what its special values do to it, and the sign of its zeros.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "qk/isa.hpp"
#include "qk/reference/rounding.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// `count` values that lie `stride` apart, from position `first` of both arrays. y may be x.
struct block {
    const float* x = nullptr;
    float* y = nullptr;
    std::size_t first = 0;
    std::size_t stride = 1;
    std::size_t count = 0;
    const semantics* how = nullptr;
    std::size_t along = 0;  ///< where the block begins on its axis

    /// Weight of an element in the objective of a searched scale.
    double weight(std::size_t i) const { return how->scale_weights == nullptr ? 1.0 : static_cast<double>(how->scale_weights[along + i]); }
    std::size_t position(std::size_t i) const { return first + i * stride; }
    float in(std::size_t i) const { return flush_input(x[position(i)], *how); }
    std::uint32_t random(std::size_t i) const { return random_word(*how, position(i)); }
    void out(std::size_t i, float value) const { y[position(i)] = flush_output(value, 0x1p-126, *how); }
    block part(std::size_t start, std::size_t length) const {
        return {x, y, position(start), stride, std::min(length, count - start), how};
    }
};

struct block_facts {
    bool has_nan = false;
    bool has_infinity = false;
    float amax = 0;  ///< over the finite values
};

inline block_facts survey(const block& b) {
    block_facts facts;
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (std::isnan(x)) facts.has_nan = true;
        else if (std::isinf(x)) facts.has_infinity = true;
        else facts.amax = std::max(facts.amax, std::fabs(x));
    }
    return facts;
}

/// Is true when the whole block is NaN.
inline bool block_is_nan(const block_facts& facts, block_specials rule) {
    return (facts.has_nan && rule != block_specials::pass_through) || (facts.has_infinity && rule == block_specials::block_nan);
}

inline void fill_nan(const block& b) {
    for (std::size_t i = 0; i < b.count; ++i) b.out(i, quiet_nan);
}

/// Returns the zero that x becomes. `quotient` is x over the block's scale or step.
inline float zero_of(float x, double quotient, zero_sign rule, rounding how) {
    const bool lost = static_cast<float>(quotient) == 0;  // zero or underflowed as a float32
    switch (rule) {
        case zero_sign::kept: break;
        case zero_sign::positive: return 0.0f;
        case zero_sign::underflow_positive:
            if (how == rounding::half_even && !lost) return 0.0f;
            break;
        case zero_sign::zero_quotient_positive:
            if (lost) return 0.0f;
            break;
    }
    return std::copysign(0.0f, x);
}

}  // namespace QK_ISA
}  // namespace qk::reference
