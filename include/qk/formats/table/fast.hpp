// SPDX-License-Identifier: Apache-2.0
// The fast form of tables of at most 32 numbers, where registers can be looked up in: a search by halving. Other tables have the general
// form alone.
#pragma once

#include <concepts>

#include "qk/formats/floating/fast.hpp"
#include "qk/formats/table/step.hpp"
#include "qk/isa.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// A value becomes the number that the search finds; NaN is left to the general form.
template <class Arch, int Levels>
struct fast_table {
    static constexpr std::int32_t limit = infinity_bits;
    const table_rules<Arch>* rules;

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> q, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return multiplied<Scaled>(rules->template number_of<Levels>(q), by);
    }
    QK_INLINE vi<Arch> code(vf<Arch> q) const noexcept { return rules->template code_of<Levels>(q); }
};

constexpr floating_kind kind_of(const table&) { return floating_kind::any; }

/// Is true when the fast form applies under these rules. (Scales are a matter of the caller's.)
template <class Arch>
bool has_fast_form(const table_rules<Arch>& r) noexcept {
    return r.in_registers && r.flush_below == 0 && r.least_input == 0 && default_environment<Arch>();
}

/// What the rows (or columns) of an array have in common.
template <class Arch>
struct table_rows {
    table_rules<Arch> rules;
    bool usable, streaming;

    table_rows(const table& f, const semantics& how, bool stream_rows) noexcept
        : rules(f, how), usable(has_fast_form(rules)), streaming(usable && stream_rows) {}
    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t*, std::size_t count, bool) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            t.scale[k] = scale[k];
            t.lowest[k] = t.highest[k] = 0;
            t.limit[k] = infinity_bits;
        }
        t.finish(count, 0, false);
    }
    template <std::size_t Size>
    table_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t*) const noexcept {
        return {&rules, vf<Arch>(t.scale[k]), t.scale[k] != 1.0f};
    }
    template <std::size_t Size>
    table_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t, const std::int64_t*) const noexcept {
        return {&rules, load<Arch>(t.scale + i), true};
    }
    template <class Scaled, class Call>
    void with_form(Scaled scaled, bool, const Call& call) const noexcept {
        if constexpr (most_looked_up<Arch>() != 0) {
            const auto either = [&](const auto& form) {
                if constexpr (std::same_as<Scaled, bool>) scaled ? call(form, std::true_type()) : call(form, std::false_type());
                else call(form, scaled);
            };
            rules.levels == 4 ? either(fast_table<Arch, 4>{&rules}) : either(fast_table<Arch, 5>{&rules});
        }
    }
};

template <class Arch, floating_kind = floating_kind::any>
table_rows<Arch> rows_of(const table& f, const semantics& how, bool, bool stream_rows) noexcept {
    return {f, how, stream_rows};
}

constexpr bool is_identity(const table&, const semantics&) { return false; }

}  // namespace QK_ISA
}  // namespace qk::kernels
