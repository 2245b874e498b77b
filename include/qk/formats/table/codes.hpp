// SPDX-License-Identifier: Apache-2.0
// Values of a table's codes, and codes of values by the fast form. (By the general form: table_rules::codes_of.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/formats/table/fast.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

template <class Arch>
void elements_of(const table& f, const std::uint32_t* code, float* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = value_of(f, code[i]);
}

/// The elementwise coder of the fast form.
template <class Arch, int Levels>
struct table_coder {
    kernels::fast_table<Arch, Levels> fast;
    kernels::vf<Arch> scale;
    bool scaled;

    table_coder(const kernels::table_rules<Arch>& rules, float s) noexcept : fast{&rules}, scale(s), scaled(s != 1.0f) {}
    bool usable() const noexcept { return true; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], scale); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return fast.code(x); }
};

/// Turns codes of tables into values: of at most 32 numbers in registers, else lane by lane.
template <class Arch>
struct listed_values {
    const float* numbers;
    int size;

    explicit listed_values(const table& f) noexcept : numbers(f.values->number.data()), size(f.size()) {}
    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept {
        if constexpr (kernels::most_looked_up<Arch>() >= 32) {
            const auto* p = reinterpret_cast<const std::int32_t*>(numbers);
            if (size <= 8) return kernels::as_float<Arch>(kernels::looked_up<8, Arch>(p, code));
            if (size <= 16) return kernels::as_float<Arch>(kernels::looked_up<16, Arch>(p, code));
            if (size <= 32) return kernels::as_float<Arch>(kernels::looked_up<32, Arch>(p, code));
        }
#if QK_HAS(SIXTEEN_LANES)
        if constexpr (kernels::lanes<Arch> == 16) return _mm512_i32gather_ps((code & kernels::vi<Arch>(255)).data, numbers, sizeof(float));
#endif
        alignas(64) std::int32_t at[kernels::lanes<Arch>];
        alignas(64) float lane[kernels::lanes<Arch>];
        kernels::store<Arch>(at, code);
        for (std::size_t k = 0; k < kernels::lanes<Arch>; ++k) lane[k] = numbers[at[k] & 255];
        return kernels::load<Arch>(lane);
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
