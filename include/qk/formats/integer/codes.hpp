// SPDX-License-Identifier: Apache-2.0
// Codes of integers from the fast form, a vector at a time, and back.
#pragma once

#include <algorithm>

#include "qk/formats/codes/byte_codes.hpp"
#include "qk/formats/codes/groups.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/formats/integer/fast.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

template <class Arch>
struct integer_coder {
    kernels::fast_integer<Arch> fast;
    kernels::vi<Arch> offset, mask;
    bytes_if_any<Arch, integer_bytes> packed;
    kernels::fast_divisor<Arch> over_scale;
    kernels::fast_scale<Arch> by;

    integer_coder(integer f, const semantics& how, bool one_scale, float scale, std::int64_t zero) noexcept
        : fast(kernels::rules_of(f, how, one_scale)),
          offset(static_cast<std::int32_t>(static_cast<std::uint32_t>(zero) -
                                           std::bit_cast<std::uint32_t>(kernels::fast_integer<Arch>::middle))),
          mask(static_cast<std::int32_t>(low_bits(f.bits))),
          packed(f, zero),
          over_scale(scale, f.bits < 20 ? f.bits + 1 : 0) {
        const auto lowest = static_cast<float>(qmin(f) - zero), highest = static_cast<float>(qmax(f) - zero);
        const bool may_be_fast = how.rounding == rounding::half_even && f.bits <= 16;
        const kernels::vf<Arch> s(scale);
        using V = kernels::vi<Arch>;
        by = {s,
              kernels::quotient<Arch>(kernels::vf<Arch>(1.0f), s),
              s,
              V(fast.sum_of(lowest)),
              V(fast.sum_of(highest)),
              may_be_fast ? fast.limit_of(scale, lowest, highest) : kernels::no_value};
    }
    bool usable() const noexcept { return by.limit != kernels::no_value; }
    std::int32_t limit() const noexcept { return by.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>*) const noexcept {}
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        return ((fast.multiply ? fast.template sum<true>(x, by) : fast.clamped(over_scale(x), by)) + offset) & mask;
    }
    QK_INLINE auto bytes(const kernels::vf<Arch>* x) const noexcept requires(has_byte_codes<Arch>()) {
        kernels::vi<Arch> sums[4];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            const kernels::vf<Arch> t = fast.multiply ? kernels::opaque<Arch>(x[k] * by.high) : over_scale(x[k]);
            sums[k] = kernels::as_int<Arch>(t + kernels::vf<Arch>(fast.middle));
        });
        return packed(sums);
    }
    QK_INLINE bool serves_bytes() const noexcept requires(has_byte_codes<Arch>()) { return packed.serves(); }
};

/// Makes codes of numbers: quotients plus a zero point.
template <class Arch>
struct number_coder {
    kernels::vi<Arch> lowest, highest, mask;
    bytes_if_any<Arch, integer_bytes> packed;

    explicit number_coder(integer f) noexcept
        : lowest(static_cast<std::int32_t>(qmin(f))),
          highest(static_cast<std::int32_t>(qmax(f))),
          mask(static_cast<std::int32_t>(low_bits(f.bits))),
          packed(f, 0) {}
    bool usable() const noexcept { return true; }
    std::int32_t limit() const noexcept { return std::bit_cast<std::int32_t>(0x1p21f); }
};

/// Makes codes of integers under the scales and zero points of a table, which were made less `middle`.
template <class Arch>
struct integer_coder_by_table : coder_by_table<Arch, number_coder<Arch>> {
    using coder_by_table<Arch, number_coder<Arch>>::coder_by_table;
    static constexpr std::int32_t plus = -std::bit_cast<std::int32_t>(kernels::fast_integer<Arch>::middle);

    /// Returns the whole numbers of the quotients of vector k of the tile at value i.
    QK_INLINE kernels::vi<Arch> number(kernels::vf<Arch> x, std::size_t i, std::size_t k) const noexcept {
        return kernels::as_int<Arch>(x + kernels::vf<Arch>(kernels::fast_integer<Arch>::middle)) +
               kernels::vi<Arch>(this->table->zero[this->table->at(i, k)]);
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x, std::size_t i, std::size_t k) const noexcept {
        return min(max(number(x, i, k), this->lowest), this->highest) & this->mask;
    }
    QK_INLINE auto bytes(const kernels::vf<Arch>* x, std::size_t i) const noexcept requires(has_byte_codes<Arch>()) {
        kernels::vi<Arch> numbers[4];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { numbers[k] = number(x[k], i, k); });
        return this->packed.of_numbers(numbers);
    }
    QK_INLINE bool serves_bytes() const noexcept requires(has_byte_codes<Arch>()) { return this->packed.serves(); }
};

/// Turns codes of integers into values less their zero point.
template <class Arch>
struct integer_values {
    int up;
    bool is_signed;
    kernels::vi<Arch> zero;

    QK_INLINE kernels::vi<Arch> number(kernels::vi<Arch> code) const noexcept { return is_signed ? (code << up) >> up : code; }
    integer_values(integer f, std::int64_t z) noexcept : up(32 - f.bits), is_signed(f.is_signed), zero(static_cast<std::int32_t>(z)) {}
    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept { return to_float(number(code) - zero); }
};

/// The same with the zero points of a table.
template <class Arch, bool Whole>
struct integer_values_by_table {
    integer_values<Arch> of;
    const std::int32_t* zero;
    entry_of_vector<Arch> at;
    std::size_t number;  ///< of zero points

    integer_values_by_table(integer f, const group_table<Arch>& table) noexcept
        : of(f, 0), zero(table.zero), at(table.at), number(table.number) {}
    /// Is true when float32 holds every zero point and differences from small numbers.
    bool are_small() const noexcept {
        return std::all_of(zero, zero + number, [](std::int32_t z) { return z > -(1 << 23) && z < 1 << 23; });
    }
    /// Returns what turns codes of vector k of the tile at value i into values.
    QK_INLINE auto of_tile(std::size_t i) const noexcept {
        return [less = numbers_of_tile<Whole, kernels::vi<Arch>>(zero, at, i), this](kernels::vi<Arch> code, std::size_t k)
                   QK_INLINE_CALL { return to_float(of.number(code) - less(k)); };
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
