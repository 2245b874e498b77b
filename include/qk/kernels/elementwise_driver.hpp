// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: tiles by the short form where it serves them, all else by the complete one.
#pragma once

#include "qk/kernels/quick_roundings.hpp"
#include "qk/kernels/quick_steps.hpp"
#include "qk/kernels/streaming.hpp"

namespace qk::kernels {

/// y[i] = step(x[i]); `position` is that of x[0] in the caller's span (stochastic rounding).
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void run_row_completely(const float* x, float* y, std::size_t n, std::size_t position, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto bits = [&](std::size_t i, std::size_t count) { return random_lanes<Arch>(step.random(), position + i, 1, count); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.complete(load<Arch>(x + i), bits(i, w)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.complete(load_some<Arch>(x + i, 1, n - i), bits(i, n - i)));
}

/// What a tile's test compares with the form's limit: the magnitude, unless the form knows better.
template <class Arch, class Form>
QK_INLINE vi<Arch> tested(const Form& form, vf<Arch> x) noexcept {
    if constexpr (requires { form.tested(x); }) return form.tested(x);
    return as_int<Arch>(x) & vi<Arch>(magnitude_bits);
}

/// Tiles of four vectors, tested with one compare. `Choice` is what the short form is compiled for (scaled, multiplied);
/// complete(begin, count) does what it declines.
template <class Arch, bool Choice, bool Streaming, class Form, class Complete>
QK_INLINE std::size_t run_tiles(const float* x, float* y, std::size_t n, const Form& form, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, tile = 4 * w;
    using V = vi<Arch>;
    const V limit(form.limit);
    const std::size_t whole = n - n % tile;
    for (std::size_t i = 0; i < whole; i += tile) {
        Streaming ? read_ahead<Arch, 4>(x + i) : own_ahead<Arch, 4>(y + i);
        const vf<Arch> a = form.template prepare<Choice>(load<Arch>(x + i)), b = form.template prepare<Choice>(load<Arch>(x + i + w));
        const vf<Arch> c = form.template prepare<Choice>(load<Arch>(x + i + 2 * w)), d = form.template prepare<Choice>(load<Arch>(x + i + 3 * w));
        const V most = xsimd::max(xsimd::max(tested<Arch>(form, a), tested<Arch>(form, b)), xsimd::max(tested<Arch>(form, c), tested<Arch>(form, d)));
        const auto put = [](float* to, vf<Arch> v) QK_INLINE_CALL { Streaming ? stream<Arch>(to, v) : store<Arch>(to, v); };
        if (__builtin_expect(xsimd::any(most > limit), 0)) {
            complete(i, tile);
        } else {
            put(y + i, form.template finish<Choice>(a, i));
            put(y + i + w, form.template finish<Choice>(b, i + w));
            put(y + i + 2 * w, form.template finish<Choice>(c, i + 2 * w));
            put(y + i + 3 * w, form.template finish<Choice>(d, i + 3 * w));
        }
    }
    return whole;
}

/// `count` rows of n elements, one after the other: use(form, k) sets what row k has of its own, or is false; complete(k, begin, some)
/// does what of it the short form declines, and ragged ends. The caller ends the streaming, which is for forms that do not look at
/// an element's position.
template <class Arch, bool Choice, bool Streaming, class Form, class Use, class Complete>
void run_rows(const float* x, float* y, std::size_t n, std::size_t count, const Form& given, const Use& use, const Complete& complete) noexcept {
    constexpr std::size_t alignment = sizeof(vf<Arch>);
    Form form = given;  // its constants in registers
    for (std::size_t k = 0; k < count; ++k, x += n, y += n) {
        if (!use(form, k)) {
            complete(k, 0, n);
            continue;
        }
        std::size_t head = 0;
        if constexpr (Streaming) {
            const std::size_t past = reinterpret_cast<std::uintptr_t>(y) % alignment;
            head = past == 0 ? 0 : std::min(n, (alignment - past) / sizeof(float));
            if (head != 0) complete(k, 0, head);
        }
        const auto declined = [&](std::size_t begin, std::size_t some) { complete(k, head + begin, some); };
        const std::size_t done = run_tiles<Arch, Choice, Streaming>(x + head, y + head, n - head, form, declined);
        if (head + done < n) declined(done, n - head - done);
    }
}

/// Rows of a few vectors are not worth a short form's preparation.
template <class Arch>
inline constexpr std::size_t quick_from = 4 * lanes<Arch>;

/// Fewer elements than this are divided: the reciprocals would take longer.
inline constexpr std::size_t product_from = 2048;

/// The scales of up to a vector of rows, and what the rows are multiplied by in place of a division where quick_quotient serves.
template <class Arch>
struct scales_of_rows {
    alignas(64) float scale[lanes<Arch>];
    alignas(64) float high[lanes<Arch>], low[lanes<Arch>];
    std::uint32_t products = 0;  ///< a bit for each row of which it does

    /// `tie_bits` are those of has_quick_quotient; 0: divide. `elements`: of all the rows.
    scales_of_rows(const float* s, std::size_t rows, std::size_t elements, int tie_bits) noexcept {
        if (!has_fused<Arch>() || tie_bits == 0 || elements < product_from) {
            for (std::size_t k = 0; k < rows; ++k) scale[k] = s[k];
            return;
        }
        for (std::size_t k = 0; k < lanes<Arch>; ++k) scale[k] = k < rows ? s[k] : 1.0f;
        const vf<Arch> d = load<Arch>(scale);
        const two_part_reciprocal<Arch> r = reciprocal_of<Arch>(d);
        store<Arch>(high, r.high);
        store<Arch>(low, r.low);
        alignas(64) std::int32_t serves[lanes<Arch>];
        store<Arch>(serves, xsimd::select(has_quick_quotient<Arch>(as_int<Arch>(d), tie_bits), vi<Arch>(1), vi<Arch>(0)));
        for (std::size_t k = 0; k < rows; ++k) products |= static_cast<std::uint32_t>(serves[k]) << k;
    }
    bool by_product(std::size_t row) const noexcept { return (products >> row & 1u) != 0; }
    /// How many rows from this one on are like it in that, of `rows`.
    std::size_t alike(std::size_t row, std::size_t rows) const noexcept {
        std::size_t next = row + 1;
        while (next < rows && by_product(next) == by_product(row)) ++next;
        return next - row;
    }
    QK_INLINE two_part_reciprocal<Arch> reciprocal(std::size_t row) const noexcept { return {vf<Arch>(high[row]), vf<Arch>(low[row])}; }
};

/// What the rows of an array share, of which each has a scale and a zero point of its own.
template <class Arch>
struct floating_rows {
    floating_rules rules;
    quick_floating<Arch> quick;
    bool usable, scales_apply, streaming;
    int tie_bits;

    floating_rows(floating f, const semantics& how, bool, bool stream_rows) noexcept
        : rules(rules_of(f, how)), quick(rules), usable(quick.limit != no_value && default_environment<Arch>()), scales_apply(f != fp32), streaming(stream_rows), tie_bits(quick.tie_bits) {}

    /// `count` rows of n elements from the row-th scale on.
    void run(const float* x, float* y, std::size_t n, std::size_t count, std::size_t position, const scales_of_rows<Arch>& scales, std::size_t row,
             const std::int64_t*) const noexcept {
        const auto scale = [&](std::size_t k) { return scales_apply ? scales.scale[row + k] : 1.0f; };
        const auto complete = [&](std::size_t k, std::size_t begin, std::size_t some) {
            const std::size_t at = k * n + begin;
            run_row_completely<Arch>(x + at, y + at, some, position + at, floating_step<Arch>(rules, vf<Arch>(scale(k)), scale(k) != 1.0f));
        };
        const bool scaled = count != 1 || scale(0) != 1.0f, other_rounding = rules.how != rounding::half_even || rules.random.used;
        const auto use = [&](auto& form, std::size_t k) QK_INLINE_CALL {
            form.scale = vf<Arch>(scale(k));
            return true;
        };
        const auto run = [&]<bool Streaming>(const auto& form, const auto& use_row) {
            scaled ? run_rows<Arch, true, Streaming>(x, y, n, count, form, use_row, complete) : run_rows<Arch, false, Streaming>(x, y, n, count, form, use_row, complete);
        };
        const auto run_or_stream = [&](const auto& form) { streaming ? run.template operator()<true>(form, use) : run.template operator()<false>(form, use); };
        // Steps and what counts them are to be normal numbers.
        const bool countable = quick.shift != 0 || !xsimd::any(quick.least <= vi<Arch>((rules.mantissa_bits + 1) << 23));
        if (!usable || n < quick_from<Arch> || (other_rounding && !countable)) {
            for (std::size_t k = 0; k < count; ++k) complete(k, 0, n);
        } else if (other_rounding) {
            const auto at = [&](auto& form, std::size_t k) QK_INLINE_CALL {
                form.position = position + k * n;
                return use(form.quick, k);
            };
            quick.shift != 0 ? run.template operator()<false>(rounded_truncation<Arch>(quick, rules), at)
                             : run.template operator()<false>(rounded_floating<Arch>(quick, rules), at);
        } else if (quick.shift != 0) {
            run_or_stream(quick_truncation<Arch>(quick));
        } else if (scaled && scales.by_product(row)) {
            const auto product = [&](auto& form, std::size_t k) QK_INLINE_CALL {
                form.reciprocal = scales.reciprocal(row + k);
                return use(form.quick, k);
            };
            const auto multiply = [&](const auto& form) {
                streaming ? run_rows<Arch, true, true>(x, y, n, count, form, product, complete) : run_rows<Arch, true, false>(x, y, n, count, form, product, complete);
            };
            quick.saturates ? multiply(floating_by_product<Arch, true>(quick)) : multiply(floating_by_product<Arch, false>(quick));
        } else {
            run_or_stream(quick);
        }
    }
};

template <class Arch>
struct integer_rows {
    integer_rules rules;
    quick_integer<Arch> quick;
    bool usable, streaming;
    int tie_bits;  ///< of an odd number of halves between two codes less a zero point

    integer_rows(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept
        : rules(rules_of(f, how, one_scale)), quick(rules), usable(quick.plain && default_environment<Arch>()), streaming(stream_rows),
          tie_bits(f.bits < 20 && !quick.multiply ? f.bits + 1 : 0) {}

    /// `count` rows of n elements from the row-th scale on; `zero`: a zero point for each, or nullptr.
    void run(const float* x, float* y, std::size_t n, std::size_t count, std::size_t position, const scales_of_rows<Arch>& scales, std::size_t row,
             const std::int64_t* zero) const noexcept {
        const auto zero_of = [&](std::size_t k) { return zero == nullptr ? 0 : zero[k]; };
        const auto lowest = [&](std::size_t k) { return static_cast<float>(rules.lowest - zero_of(k)); };
        const auto highest = [&](std::size_t k) { return static_cast<float>(rules.highest - zero_of(k)); };
        const auto complete = [&](std::size_t k, std::size_t begin, std::size_t some) {
            const std::size_t at = k * n + begin;
            run_row_completely<Arch>(x + at, y + at, some, position + at, integer_step<Arch>(rules, scales.scale[row + k], zero_of(k)));
        };
        const auto use = [&](auto& form, std::size_t k) QK_INLINE_CALL { return form.set(scales.scale[row + k], lowest(k), highest(k)); };
        const auto run = [&]<bool Streaming>(const auto& form, const auto& use_row) {
            quick.multiply ? run_rows<Arch, true, Streaming>(x, y, n, count, form, use_row, complete) : run_rows<Arch, false, Streaming>(x, y, n, count, form, use_row, complete);
        };
        if (!usable || n < quick_from<Arch>) {
            for (std::size_t k = 0; k < count; ++k) complete(k, 0, n);
        } else if (rules.how != rounding::half_even || rules.random.used) {
            const auto at = [&](auto& form, std::size_t k) QK_INLINE_CALL {
                const bool served = use(form.quick, k);
                form.set(form.quick.limit, lowest(k), highest(k), position + k * n);
                return served;
            };
            run.template operator()<false>(rounded_integer<Arch>(quick, rules), at);
        } else if (scales.by_product(row)) {
            const auto product = [&](auto& form, std::size_t k) QK_INLINE_CALL {
                const bool served = use(form.quick, k);
                form.limit = form.quick.limit;
                form.reciprocal = scales.reciprocal(row + k);
                return served;
            };
            const integer_by_product<Arch> form(quick);
            streaming ? run_rows<Arch, false, true>(x, y, n, count, form, product, complete) : run_rows<Arch, false, false>(x, y, n, count, form, product, complete);
        } else {
            streaming ? run.template operator()<true>(quick, use) : run.template operator()<false>(quick, use);
        }
    }
};

}  // namespace qk::kernels
