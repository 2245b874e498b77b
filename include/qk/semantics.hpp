// SPDX-License-Identifier: Apache-2.0
// The questions on which systems disagree, and each system's answers under its name. docs/reference/numerics.md, "Semantics".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/rounding.hpp"

namespace qk {

/// What finite values beyond the largest code become.
enum class overflow_rule : std::uint8_t {
    by_width,      ///< 8 bits or fewer saturate, Inf too; fp16 and bf16 overflow to Inf (OCP)
    saturate,      ///< to the largest finite value, Inf too
    ieee,          ///< to Inf, or to NaN where the format has no Inf; saturates where it has neither. Directed roundings overflow as in
                   ///< IEEE 754-2019, 7.4: a finite value that is rounded toward zero stops at the largest finite one
    fn_saturates,  ///< like `ieee`, but `fn` formats saturate, Inf too (PyTorch)
    propagate,     ///< finite values saturate, Inf stays Inf where the format has it
};
// IEEE P3109's SatFinite is `saturate`, its SatPropagate `propagate`, its OvfInf `ieee`.
// Microscaling elements, block scales and block floats saturate under every rule.

/// How a block chooses its scale. The first four are an MX block's, from amax alone; their names are torchao's. NVFP4 takes amax / 6 for
/// them.
enum class scale_rule : std::uint8_t {
    floor,
    ceil,
    rceil,
    even,
    ceil_7_25,      ///< MX: the least scale under which amax is at most 7.25 for E2M1, whose largest is 6 (auto-round); others likewise
    four_over_six,  ///< two candidates by their error. NVFP4: the scale for 6, or 1.5 times it, for 4. MX: rceil's, or half of it
    search,         ///< the code of least error of all that the scale can have
};

inline namespace QK_ISA {

/// Is true for the rules that compare errors, for which a block's values must be seen.
constexpr bool is_searched(scale_rule r) { return r == scale_rule::search || r == scale_rule::four_over_six; }

}  // namespace QK_ISA

/// What four_over_six and search minimise over a block.
enum class scale_objective : std::uint8_t {
    mse,       ///< the sum of squared errors
    mae,       ///< the sum of their magnitudes
    weighted,  ///< mse; where a model's weights are quantized, weighted by the mean squares of what they multiply
};

/// What an Inf or NaN does to the block it stands in.
enum class block_specials : std::uint8_t {
    block_nan,     ///< the whole block becomes NaN
    pass_through,  ///< kept element by element; the scale comes from the finite ones
    nan_only,      ///< a NaN makes the block NaN; an Inf is kept and the rest of its block becomes 0
};

/// The sign of a result that is zero.
enum class zero_sign : std::uint8_t {
    kept,                    ///< the input's, where the format has -0
    positive,                ///< always +0
    underflow_positive,      ///< +0 for a negative value that underflows, kept for -0 (Quark, half-even)
    zero_quotient_positive,  ///< +0 where the float32 quotient x / scale is itself zero, kept otherwise (microxcaling)
};

/// What a NaN becomes in a format without a code for it.
enum class nan_rule : std::uint8_t { positive_zero, negative_zero, nan };

/// What a special value becomes in an integer.
enum class integer_special : std::uint8_t { zero_point, lowest, highest };

enum class integer_mode : std::uint8_t {
    division,    ///< round(x / scale): ONNX Runtime, Quark
    reciprocal,  ///< round(x * (1 / scale)): PyTorch, FBGEMM, XNNPACK
};

/// A word for each element of a span. (std::span itself cannot be part of a template argument, as a semantics may be.)
struct random_words_in {
    const std::uint32_t* first = nullptr;
    std::size_t count = 0;

    QK_INLINE constexpr random_words_in() = default;
    template <class R>
    requires std::is_convertible_v<R, std::span<const std::uint32_t>> QK_INLINE constexpr random_words_in(R&& words)
        : random_words_in(std::span<const std::uint32_t>(words), 0) {}

    QK_INLINE constexpr const std::uint32_t* data() const { return first; }
    QK_INLINE constexpr std::size_t size() const { return count; }
    QK_INLINE constexpr bool empty() const { return count == 0; }
    QK_INLINE constexpr std::uint32_t operator[](std::size_t i) const { return first[i]; }
    /// Returns those of the elements from `begin` on.
    QK_INLINE constexpr random_words_in from(std::size_t begin) const { return {std::span(first, count), begin < count ? begin : count}; }
    friend QK_INLINE constexpr bool operator==(const random_words_in&, const random_words_in&) = default;

  private:
    QK_INLINE constexpr random_words_in(std::span<const std::uint32_t> words, std::size_t begin)
        : first(words.data() + begin), count(words.size() - begin) {}
};

/// A set of answers. The default is OCP's; `semantics::quark` and the others reproduce a system bit for bit.
struct semantics {
    qk::rounding rounding = qk::rounding::half_even;
    overflow_rule overflow = overflow_rule::by_width;
    qk::scale_rule scale_rule = qk::scale_rule::floor;
    qk::scale_objective scale_objective = qk::scale_objective::mse;
    const float* scale_weights = nullptr;  ///< weights of any objective, finite and not negative: one for each position along the blocks'
                                           ///< axis; none: all 1
    qk::block_specials mx_specials = qk::block_specials::block_nan;   ///< microscaling and NVFP4
    qk::block_specials bfp_specials = qk::block_specials::block_nan;  ///< block float; microexponents are always block_nan
    bool clamp_mx_scale = true;                                       ///< clamp the exponent of an MX scale to [-127, 127]
    bool mxint_uses_lowest = false;                                   ///< MXINT8 code -128 may be used
    zero_sign mx_zero = zero_sign::kept;                              ///< microscaling with floating elements
    zero_sign bfp_zero = zero_sign::kept;                             ///< block float
    zero_sign mxint_zero = zero_sign::positive;                       ///< microscaling with integer elements; they have no -0
    nan_rule nan_without_code = nan_rule::positive_zero;
    integer_special integer_nan = integer_special::zero_point;
    integer_special integer_infinity = integer_special::highest;              ///< +Inf, one scale for the tensor; -Inf is the lowest code
    integer_special integer_infinity_per_channel = integer_special::highest;  ///< +Inf, a scale per channel
    qk::integer_mode integer_mode = qk::integer_mode::division;
    bool zero_point_before = false;  ///< add the zero point before rounding (ties differ)
    bool flush_inputs = false;       ///< subnormal float32 inputs count as zero of their sign
    bool flush_outputs =
        false;               ///< results below the smallest normal float32 (elementwise floats: of the format) become zero of their sign
    std::uint64_t seed = 0;  ///< stochastic rounding: random bits are random_bits(seed, first_index + position in the span)
    std::uint64_t first_index = 0;   ///< where the span starts in the caller's array, so that cutting it changes nothing
    random_words_in random_words{};  ///< stochastic rounding with the caller's bits instead: one word for each element of the span
    int stochastic_bits = 32;        ///< how many of the upper bits of a random word count, 1 to 32
    friend QK_INLINE constexpr bool operator==(const semantics&, const semantics&) = default;

    static const semantics ocp, nvidia, quark, microxcaling, torchao, ml_dtypes, torch, onnx;
};

inline constexpr semantics semantics::ocp{};
inline constexpr semantics semantics::nvidia{.scale_rule = qk::scale_rule::rceil};
inline constexpr semantics semantics::quark{
    .overflow = overflow_rule::by_width,
    .mx_specials = block_specials::pass_through,
    .bfp_specials = block_specials::pass_through,
    .clamp_mx_scale = false,
    .mxint_uses_lowest = true,
    .mx_zero = zero_sign::positive,
    .bfp_zero = zero_sign::underflow_positive,
    .mxint_zero = zero_sign::underflow_positive,
    .integer_nan = integer_special::lowest,
    .integer_infinity = integer_special::lowest,
    .integer_infinity_per_channel = integer_special::lowest,
};
inline constexpr semantics semantics::microxcaling{.mx_zero = zero_sign::zero_quotient_positive,
                                                   .bfp_zero = zero_sign::zero_quotient_positive,
                                                   .mxint_zero = zero_sign::zero_quotient_positive,
                                                   .nan_without_code = nan_rule::nan};
inline constexpr semantics semantics::torchao{.mx_specials = block_specials::nan_only};
inline constexpr semantics semantics::ml_dtypes{.overflow = overflow_rule::ieee, .nan_without_code = nan_rule::negative_zero};
inline constexpr semantics semantics::torch{.overflow = overflow_rule::fn_saturates,
                                            .integer_nan = integer_special::lowest,
                                            .integer_infinity_per_channel = integer_special::lowest,
                                            .integer_mode = qk::integer_mode::reciprocal};
inline constexpr semantics semantics::onnx{.integer_nan = integer_special::lowest};

inline namespace QK_ISA {

/// Returns the semantics for the elements of a span from `first` on, under which they round to the same bits as in the whole span.
QK_INLINE semantics from_element(semantics s, std::size_t first) {
    s.first_index += first;
    s.random_words = s.random_words.from(first);
    return s;
}

}  // namespace QK_ISA

}  // namespace qk
