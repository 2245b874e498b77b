// SPDX-License-Identifier: Apache-2.0
// The words that command lines and files use for the choices of qk::semantics.
#pragma once

#include <cstddef>
#include <string_view>

#include "qk/isa.hpp"
#include "qk/semantics.hpp"
#include "qk/text.hpp"

namespace qk {

template <class T>
struct named_option {
    std::string_view name;
    T value;
};

inline constexpr named_option<rounding> rounding_names[] = {
    {"half-even", rounding::half_even},
    {"half-away", rounding::half_away},
    {"half-up", rounding::half_up},
    {"toward-zero", rounding::toward_zero},
    {"up", rounding::up},
    {"down", rounding::down},
    {"stochastic", rounding::stochastic},
    {"to-odd", rounding::to_odd},
    {"stochastic-b", rounding::stochastic_b},
    {"stochastic-c", rounding::stochastic_c},
};
inline constexpr named_option<scale_rule> scale_rule_names[] = {
    {"floor", scale_rule::floor},   {"ceil", scale_rule::ceil},           {"rceil", scale_rule::rceil},
    {"even", scale_rule::even},     {"ceil_7_25", scale_rule::ceil_7_25}, {"four_over_six", scale_rule::four_over_six},
    {"search", scale_rule::search},
};
inline constexpr named_option<scale_objective> scale_objective_names[] = {
    {"mse", scale_objective::mse}, {"mae", scale_objective::mae}, {"weighted", scale_objective::weighted}};
inline constexpr named_option<overflow_rule> overflow_names[] = {
    {"saturate", overflow_rule::saturate}, {"ieee", overflow_rule::ieee}, {"propagate", overflow_rule::propagate}};
inline constexpr named_option<integer_mode> integer_mode_names[] = {{"division", integer_mode::division},
                                                                    {"reciprocal", integer_mode::reciprocal}};
inline constexpr named_option<semantics> semantics_names[] = {
    {"ocp", semantics::ocp},         {"nvidia", semantics::nvidia},
    {"quark", semantics::quark},     {"microxcaling", semantics::microxcaling},
    {"torchao", semantics::torchao}, {"ml_dtypes", semantics::ml_dtypes},
    {"torch", semantics::torch},     {"onnx", semantics::onnx},
};

inline namespace QK_ISA {

/// Returns the value of that name; the error names the option (`what`, for instance "rounding"), the words there are, and the nearest of
/// them.
template <class T, std::size_t N>
constexpr parsed<T> parse_option(std::string_view what, std::string_view word, const named_option<T> (&names)[N]) {
    for (const auto& entry : names) {
        if (entry.name == word) return {entry.value, {}};
    }
    parsed<T> result;
    result.error.append("unknown ").append(what).append(" '").append(word.substr(0, 60)).append("'; say ");
    for (std::size_t i = 0; i < N; ++i) result.error.append(i == 0 ? "" : i + 1 == N ? " or " : ", ").append(names[i].name);
    if (const named_option<T>* near = nearest_name(names, word)) result.error.append(". Did you mean ").append(near->name).append("?");
    return result;
}

constexpr parsed<rounding> parse_rounding(std::string_view word) { return parse_option("rounding", word, rounding_names); }
constexpr parsed<scale_rule> parse_scale_rule(std::string_view word) { return parse_option("scale rule", word, scale_rule_names); }
constexpr parsed<scale_objective> parse_scale_objective(std::string_view word) {
    return parse_option("scale objective", word, scale_objective_names);
}
constexpr parsed<overflow_rule> parse_overflow(std::string_view word) { return parse_option("overflow rule", word, overflow_names); }
constexpr parsed<integer_mode> parse_integer_mode(std::string_view word) { return parse_option("integer mode", word, integer_mode_names); }
constexpr parsed<semantics> parse_semantics(std::string_view word) { return parse_option("semantics", word, semantics_names); }

/// Returns the word for a value; empty when it has none.
template <class T, std::size_t N>
constexpr std::string_view option_name(const T& value, const named_option<T> (&names)[N]) {
    for (const auto& entry : names) {
        if (entry.value == value) return entry.name;
    }
    return {};
}
constexpr std::string_view to_text(rounding r) { return option_name(r, rounding_names); }
constexpr std::string_view to_text(scale_rule r) { return option_name(r, scale_rule_names); }
constexpr std::string_view to_text(scale_objective o) { return option_name(o, scale_objective_names); }
constexpr std::string_view to_text(overflow_rule r) { return option_name(r, overflow_names); }
constexpr std::string_view to_text(integer_mode m) { return option_name(m, integer_mode_names); }

}  // namespace QK_ISA

}  // namespace qk
