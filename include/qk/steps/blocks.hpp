// SPDX-License-Identifier: Apache-2.0
// What the steps of block formats share, and the fast form of those whose blocks share what follows from amax alone. A lane is an element,
// and carries what its block shares.
//
// Each step answers three questions: what must be known of the elements of a block (`seen`), what it shares (`plan`), and what becomes of
// an element (`apply`). The driver asks them along any axis. The fast forms take signed values by the sums of steps/fast.hpp: they are
// as exact, and x - x = +0 is the zero of formats without -0.
#pragma once

#include "qk/isa.hpp"
#include "qk/semantics.hpp"
#include "qk/steps/counting.hpp"
#include "qk/steps/fast.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// What the step of the grid at an element depends on: its block, the element itself, or the pair that is its sub-block.
enum class element_step : std::uint8_t { unknown, block, element, pair };

/// What is known of a block format when compiling. Only the loops that the format needs are compiled then.
struct block_shape {
    int size = 0;  ///< 0: known when running
    element_step step = element_step::unknown;
    bool one_row = false;  ///< the whole array is one row
};

/// The largest finite magnitude seen in a block, and the largest of all (Inf and NaN are above the finite ones).
template <class Arch>
struct seen {
    vi<Arch> finite = vi<Arch>(0);
    vi<Arch> all = vi<Arch>(0);

    void add(vf<Arch> x) noexcept {
        const vi<Arch> a = as_int<Arch>(x) & vi<Arch>(magnitude_bits);
        all = max(all, a);
        finite = max(finite, select(a < vi<Arch>(infinity_bits), a, vi<Arch>(0)));
    }
};

/// What the block formats take from a semantics.
struct block_rules {
    block_specials specials = block_specials::block_nan;
    zero_sign zero = zero_sign::kept;
    std::int32_t flush_below = 0;
    std::int32_t least_input = 0;
    std::int32_t zero_signs = -1;  ///< mask: nothing where elements have no -0, so that a zero beside an Inf is +0
    rounding how = rounding::half_even;
    random_source random;
};

constexpr block_rules rules_of(const semantics& how, block_specials special, zero_sign zero) {
    // Quark keeps the sign of zero in roundings other than half-even.
    const bool as_kept = zero == zero_sign::underflow_positive && how.rounding != rounding::half_even;
    return {.specials = special,
            .zero = as_kept ? zero_sign::kept : zero,
            .flush_below = how.flush_outputs ? min_normal_bits : 0,
            .least_input = how.flush_inputs ? min_normal_bits : 0,
            .how = how.rounding,
            .random = random_source(how)};
}

/// Returns the result for a rounded magnitude y, the element's bits and `worst`, the largest magnitude of its block. `lost` is where the
/// float32 quotient x / scale is zero.
template <class Arch>
vf<Arch> finish(vi<Arch> y, vi<Arch> bits, mask<Arch> lost, vi<Arch> worst, const block_rules& r) noexcept {
    using V = vi<Arch>;
    const V a = bits & V(magnitude_bits);
    const V sign = bits & V(sign_bit);
    V zero = sign;
    switch (r.zero) {
        case zero_sign::kept: break;
        case zero_sign::positive: zero = V(0); break;
        case zero_sign::underflow_positive: zero = select(lost, sign, V(0)); break;
        case zero_sign::zero_quotient_positive: zero = select(lost, V(0), sign); break;
    }
    const V signs = select(y == V(0), zero, sign);
    y = signs | select(y < V(r.flush_below), V(0), y);
    switch (r.specials) {
        case block_specials::block_nan: y = select(worst >= V(infinity_bits), V(nan_bits), y); break;
        case block_specials::pass_through: y = select(a >= V(infinity_bits), bits, y); break;
        case block_specials::nan_only:
            y = select(worst == V(infinity_bits), select(a == V(infinity_bits), bits, sign & V(r.zero_signs)), y);
            y = select(worst > V(infinity_bits), V(nan_bits), y);
            break;
    }
    return as_float<Arch>(y);
}

/// Returns the bits of an element that has no sign: what is below zero, -Inf too, becomes +0.
template <class Arch>
vi<Arch> without_negatives(vi<Arch> bits) noexcept {
    using V = vi<Arch>;
    return select((bits < V(0)) & ((bits & V(magnitude_bits)) <= V(infinity_bits)), V(0), bits);
}

/// Returns the magnitude of a finite element, and 0 for special values and for what the semantics flushes.
template <class Arch>
vi<Arch> ordinary_magnitude(vi<Arch> bits, std::int32_t least_input) noexcept {
    const vi<Arch> a = bits & vi<Arch>(magnitude_bits);
    return select((a >= vi<Arch>(infinity_bits)) | (a < vi<Arch>(least_input)), vi<Arch>(0), a);
}

// What the elements of a block share is a struct for each family, with a block in each lane. `parts` lists its members, so that drivers can
// store and broadcast them without knowing what they mean.

/// Formats whose blocks share what follows from amax alone.
template <class Arch>
struct block_shared {
    vf<Arch> base{};     ///< M, or the least c (steps/fast.hpp)
    vf<Arch> largest{};  ///< largest magnitude
    static constexpr vf<Arch> block_shared::*parts[] = {&block_shared::base, &block_shared::largest};
};

// Where the semantics flushes subnormals, only blocks are covered whose least step is so large that no result is subnormal and that
// subnormal elements lie below half of it.

/// The fast form of formats whose blocks share what follows from amax alone. It covers amax from `lowest` to `highest`, and 0.
template <class Arch>
struct fast_block {
    using shared_type = block_shared<Arch>;
    static constexpr bool has_ratio = false;
    std::int32_t lowest = 0, highest = no_value;
    bool grid = false;       ///< small floats: each element has its own step
    int sub_block_size = 0;  ///< 0: none
    int mantissa_bits = 0;
    vi<Arch> add, to_base, to_limit, kept_sign;
    vi<Arch> largest_shift = vi<Arch>(0);
    vi<Arch> lowest_held = vi<Arch>(0);  ///< lower bound for exponents of blocks with sub-blocks
    vi<Arch> scale_from_base;            ///< exponent field of the scale less that of the base
    vf<Arch> magic;

    /// Covers nothing yet. The families fill it: fast_block_of(step, any_rounding), where `any_rounding` is for rounded_block, which covers
    /// every rounding and sign of zero.
    explicit fast_block(int m) noexcept : mantissa_bits(m) {}
    /// Takes the sign of zeros; returns whether the form rounds that way.
    bool covers(const block_rules& r, bool any_rounding) noexcept {
        kept_sign = vi<Arch>(r.zero == zero_sign::kept ? sign_bit : 0);
        if (!is_counted(r.how, r.random)) return false;
        return any_rounding ||
               (r.how == rounding::half_even && !r.random.used && (r.zero == zero_sign::kept || r.zero == zero_sign::positive));
    }

    bool usable() const noexcept { return highest != no_value; }
    /// Excludes blocks whose steps, or the factors that count in them, are not normal numbers. A format with few exponents may have no
    /// others.
    void raise_lowest() noexcept {
        lowest += (28 + mantissa_bits) << 23;
        lowest_held = vi<Arch>(lowest);
        if (lowest > highest) highest = no_value;
    }

    /// The latency-bound part of share(), started one tile earlier. Unused here.
    QK_INLINE vf<Arch> ratio(vi<Arch>) const noexcept { return vf<Arch>(0.0f); }
    /// Computes what blocks share from the largest magnitude of each. With sub-blocks `base` holds the least exponent that those may have.
    /// Returns false if some block is not covered and needs the general form.
    template <std::size_t Sub>
    QK_INLINE bool share(vi<Arch> amax, vf<Arch>, shared_type& b) const noexcept {
        using V = vi<Arch>;
        const V offset = (amax - V(lowest)) ^ V(sign_bit), room((highest - lowest) ^ sign_bit);  // compared as unsigned
        if (__builtin_expect(any(offset > room), 0)) {
            if (any((offset > room) & (amax != V(0)))) return false;
        }
        if constexpr (Sub != 0) {
            b.base = as_float<Arch>(max(amax & V(exponent_mask), lowest_held) - largest_shift);
        } else {
            const V exponent = max(amax + add, V(lowest)) & V(exponent_mask);  // a block of zeros may have any scale
            b = {as_float<Arch>(exponent + to_base), as_float<Arch>(exponent + to_limit)};
        }
        return true;
    }
    /// Returns what sub-blocks share, from what share() found for their block and from their largest magnitude.
    QK_INLINE shared_type held(const shared_type& block, vi<Arch> largest) const noexcept {
        const vi<Arch> exponent = max(largest & vi<Arch>(exponent_mask), as_int<Arch>(block.base));
        return {as_float<Arch>(exponent + to_base), as_float<Arch>(exponent + to_limit)};
    }

    template <bool Grid>
    QK_INLINE vf<Arch> apply(vf<Arch> x, const shared_type& b) const noexcept {
        const vf<Arch> r = Grid ? to_grid<Arch>(x, as_int<Arch>(b.base), magic) : (x + b.base) - b.base;
        return as_float<Arch>(as_int<Arch>(clamp_magnitude<Arch>(r, b.largest)) | (as_int<Arch>(x) & kept_sign));
    }
};

/// The form for any rounding. `fast` computes what blocks share.
template <class Arch>
struct rounded_block {
    fast_block<Arch> fast;
    fast_rounding<Arch> rounds;
    block_rules rules;
    signs_of_zeros<Arch> zeros;
    bool uses_lowest = false;  ///< two's complement: negative elements go one step further
    vi<Arch> further{0};       ///< from the limit of positive elements to that of negative ones
    vi<Arch> step_below;       ///< from the exponent of a binade to that of its step
    vi<Arch> per_step_over;    ///< less the exponent of a binade: that of one over its step
    vi<Arch> per_scale_over;   ///< less the base of a block: the exponent of one over its scale
    bool by_code = false;      ///< elements have one digit, and ties go to even codes
    bool half_even;            ///< value() rounds by a sum, as the other fast forms do
    vi<Arch> to_many;          ///< from a binade to 2^23 of its steps, the number by whose sum it is rounded

    template <class Step>
    explicit rounded_block(const Step& s) noexcept
        : fast(fast_block_of<Arch>(s, true)), rounds(s.rules.how, s.rules.random), rules(s.rules), zeros(s.rules.zero) {
        if constexpr (requires { s.element_grid; }) by_code = s.element_grid.by_code;
        if constexpr (requires { s.largest_negative; }) uses_lowest = s.largest_negative != s.largest;
        if (fast.usable()) fast.raise_lowest();
        using V = vi<Arch>;
        fast.to_base = fast.to_base & V(~half_bit);  // the base is not added here: it is the binade of elements with one step
        step_below = V((fast.grid ? fast.mantissa_bits : 23) << 23);
        if (uses_lowest) further = V(1 << 23) - (fast.to_limit & V(0x7fffff));
        per_step_over = V(254 << 23) + step_below;
        per_scale_over = V(254 << 23) - fast.scale_from_base;
        half_even = s.rules.how == rounding::half_even && !s.rules.random.used;
        to_many = V(23 << 23) - step_below;
    }

    /// Counts an element in steps and rounds the count. Where a block has one step, its base lies above every element, and is the binade of
    /// them all. `OneStep`: blocks are known to have one step; `Signless`: nothing depends on the sign of a zero; `Integers`: the count is
    /// an integer.
    template <bool OneStep = false, bool Signless = false, bool Integers = false>
    QK_INLINE counted<Arch, Integers> count(std::size_t i, vf<Arch> x, const block_shared<Arch>& b) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), binade = binade_of<OneStep>(u, b), a = magnitude(u);
        const auto k = rounds.template count<Integers>(as_float<Arch>(tied<OneStep>(a, binade, b)), as_float<Arch>(per_step_over - binade),
                                                       u, rounds.words(i));
        return {k, binade, Signless ? u & V(sign_bit) : sign(u, a, k, b)};
    }
    template <bool OneStep = false>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const block_shared<Arch>& b) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), limit = as_int<Arch>(b.largest) + (further & (u >> 31));
        if (half_even) {
            const V a = magnitude(u);
            const V binade = binade_of<OneStep>(u, b);
            const vf<Arch> many = as_float<Arch>(binade + to_many), v = (as_float<Arch>(tied<OneStep>(a, binade, b)) + many) - many;
            return as_float<Arch>(as_int<Arch>(min(v, as_float<Arch>(limit))) | sign(u, a, v, b));
        }
        const counted<Arch> c = count<OneStep>(i, x, b);
        return as_float<Arch>(as_int<Arch>(min(c.steps * as_float<Arch>(c.binade - step_below), as_float<Arch>(limit))) | c.sign);
    }

  private:
    template <bool OneStep>
    static QK_INLINE vi<Arch> binade_of(vi<Arch> u, const block_shared<Arch>& b) noexcept {
        return OneStep ? as_int<Arch>(b.base) : max(u & vi<Arch>(exponent_mask), as_int<Arch>(b.base));
    }
    template <bool OneStep>
    QK_INLINE vi<Arch> tied(vi<Arch> a, vi<Arch> binade, const block_shared<Arch>& b) const noexcept {
        return !OneStep && __builtin_expect(by_code, 0) ? tied_by_code<Arch>(a, binade, as_int<Arch>(b.base)) : a;
    }
    QK_INLINE vi<Arch> magnitude(vi<Arch> u) const noexcept {
        const vi<Arch> a = u & vi<Arch>(magnitude_bits);
        return rules.least_input != 0 ? select(a < vi<Arch>(rules.least_input), vi<Arch>(0), a) : a;
    }
    /// Returns the sign of an element with the magnitude `a` that is rounded to `to`, of which only 0 matters.
    template <class Rounded>
    QK_INLINE vi<Arch> sign(vi<Arch> u, vi<Arch> a, Rounded to, const block_shared<Arch>& b) const noexcept {
        return zeros.of(u & vi<Arch>(sign_bit), to, [&] {  // for block float the scale is the step
            return as_int<Arch>(as_float<Arch>(a) * as_float<Arch>(per_scale_over - as_int<Arch>(b.base))) == vi<Arch>(0);
        });
    }
};

/// Returns the fast form of a step, and the form that covers every rounding and sign of zero.
template <class Arch, class Step>
fast_block<Arch> fast_of(const Step& step) noexcept {
    return fast_block_of<Arch>(step, false);
}
template <class Arch, class Step>
rounded_block<Arch> rounded_of(const Step& step) noexcept {
    return rounded_block<Arch>(step);
}

}  // namespace QK_ISA
}  // namespace qk::kernels
