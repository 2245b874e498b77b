// SPDX-License-Identifier: Apache-2.0
// A scale, and a zero point, for each run of values along a row, as the fast loops of encode and decode take them: these go by tiles of
// four vectors, and a table has an entry for each vector, each two or each four of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/memory/values.hpp"
#include "qk/steps/fast.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Which entry of a table each vector of a tile has. Runs of `group` values are cut into entries: 1, 2 or 4 vectors each.
template <class Arch>
struct entry_of_vector {
    static constexpr std::size_t w = kernels::lanes<Arch>, tile_of_four = 4 * w;
    std::size_t values, after[4];  ///< values of an entry; how far behind the tile's first entry a vector's one is
    int shift;

    QK_INLINE explicit entry_of_vector(std::size_t group) noexcept : values(std::min(group & (0 - group), tile_of_four)) {
        shift = std::countr_zero(values);
        for (std::size_t k = 0; k < 4; ++k) after[k] = k * w >> shift;
    }
    /// Is true when a tile has a single entry.
    QK_INLINE bool is_whole() const noexcept { return values == tile_of_four; }
    /// Returns the entry of vector k of the tile at value i.
    QK_INLINE std::size_t operator()(std::size_t i, std::size_t k) const noexcept { return (i >> shift) + after[k]; }
};

/// Is true when each vector of a row has one scale.
template <class Arch>
bool has_group_tables(along_axis a, const codec_parameters& p) noexcept {
    return !kernels::is_baseline<Arch> && !p.one_scale() && a.inner == 1 && p.group % kernels::lanes<Arch> == 0 && p.group != 0;
}

/// Scales and zero points of a piece of a row.
template <class Arch>
class group_table {
  public:
    static constexpr std::size_t piece = 2 * widened, most = piece / kernels::lanes<Arch>;  ///< values, entries

    entry_of_vector<Arch> at;
    std::size_t number = 0;         ///< of entries
    alignas(64) float scale[most];  ///< `number` of them, and as many 1s as fill a vector
    alignas(64) std::int32_t zero[most];

    explicit group_table(std::size_t group) noexcept : at(group) {}
    group_table(const group_table&) = delete;
    group_table& operator=(const group_table&) = delete;

    /// Takes what n values (whole tiles, a piece at most) have from place l of row o on, which begins a tile. `plus` is added to zero
    /// points.
    QK_APART void fill(const codec_parameters& p, along_axis a, std::size_t o, std::size_t l, std::size_t n, bool with_zeros,
                       std::int32_t plus = 0) noexcept {
        const std::size_t each = p.group / at.values, begun = l % p.group / at.values, first = p.index(a, o, l, 0);
        number = n / at.values;
        const std::size_t scales = (begun + number + each - 1) / each;
        copy(p.scale, first, scales);
        spread(scale, each, begun);
        for (std::size_t k = number; k % kernels::lanes<Arch> != 0; ++k) scale[k] = 1.0f;  // for loops over vectors of them
        if (!with_zeros) return;
        const zero_points_in& z = p.zero_point;
        if (z.size() == 0) {
            for (std::size_t k = 0; k < number; ++k) zero[k] = static_cast<std::int32_t>(z[0]) + plus;
            return;
        }
        for (std::size_t k = 0; k < scales; ++k) zero[k] = static_cast<std::int32_t>(z[first + k]) + plus;
        spread(zero, each, begun);
    }

  private:
    void copy(const scales_in& from, std::size_t first, std::size_t n) noexcept {
        if (from.data() != nullptr) std::memcpy(scale, from.data() + first, n * sizeof(float));
        else if (from.halves() != nullptr) kernels::widen_all<Arch>(from.halves() + first, n, scale);
        else kernels::widen_all<Arch>(from.brains() + first, n, scale);
    }
    /// Gives each of the first numbers `each` entries, the first one those that are left of it after `begun`.
    template <class T>
    void spread(T* v, std::size_t each, std::size_t begun) const noexcept {
        if (each == 1) return;
        std::size_t from = (begun + number - 1) / each, left = (begun + number - 1) % each + 1;
        for (std::size_t k = number; k-- > 0;) {
            if (left == 0) left = each, --from;
            v[k] = v[from];
            --left;
        }
    }
};

/// A number for all vectors of a tile, in registers.
template <class V>
struct one_of_tile {
    V all;
    QK_INLINE V operator()(std::size_t) const noexcept { return all; }
};
/// A number for each vector of a tile, in memory.
template <class Arch, class V, class T>
struct each_of_tile {
    const T* first;
    const std::size_t* after;
    QK_INLINE V operator()(std::size_t k) const noexcept { return V(first[after[k]]); }
};
/// Returns the numbers of the tile at value i. `Whole`: it has a single entry.
template <bool Whole, class V, class Arch, class T>
QK_INLINE auto numbers_of_tile(const T* entry, const entry_of_vector<Arch>& at, std::size_t i) noexcept {
    if constexpr (Whole) return one_of_tile<V>{V(entry[i / at.tile_of_four])};
    else return each_of_tile<Arch, V, T>{entry + (i >> at.shift), at.after};
}

/// Factors of a row: a number for all values, or a table's. times() multiplies them by a power of two of at least 1, where takes() says
/// that none becomes too large; of_tile(i)(k) returns the factor of vector k of the tile at value i.
template <class Arch>
struct one_factor {
    kernels::vf<Arch> factor;
    float number;

    explicit one_factor(float f) noexcept : factor(f), number(f) {}
    QK_INLINE bool takes(float unit) const noexcept { return __builtin_fabsf(number * unit) <= std::numeric_limits<float>::max(); }
    QK_INLINE one_factor times(float unit) const noexcept { return one_factor(number * unit); }
    QK_INLINE auto of_tile(std::size_t) const noexcept { return one_of_tile<kernels::vf<Arch>>{factor}; }
};
template <class Arch, bool Whole>
struct table_factors {
    const float* entry;
    entry_of_vector<Arch> at;
    std::size_t number;
    float* room;  ///< for as many as there are

    QK_INLINE bool takes(float unit) const noexcept {
        using V = kernels::vi<Arch>;
        V most(0);
        for (std::size_t k = 0; k < number; k += kernels::lanes<Arch>) {
            const kernels::vf<Arch> product = kernels::load<Arch>(entry + k) * kernels::vf<Arch>(unit);
            kernels::store<Arch>(room + k, product);
            most = max(most, kernels::as_int<Arch>(product) & V(kernels::magnitude_bits));
        }
        return !any(most >= V(kernels::infinity_bits));
    }
    QK_INLINE table_factors times(float) const noexcept { return {room, at, number, room}; }  // takes() has multiplied them
    QK_INLINE auto of_tile(std::size_t i) const noexcept { return numbers_of_tile<Whole, kernels::vf<Arch>>(entry, at, i); }
};

/// Divisors of a piece, with their reciprocals in two floats where the quotient may be a product (steps/fast.hpp); else `high`
/// is NaN, so that no tile passes its test before it is divided.
template <class Arch>
class divisor_table : public group_table<Arch> {
  public:
    alignas(64) float high[group_table<Arch>::most], low[group_table<Arch>::most];
    bool products;  ///< some quotients may be

    /// `tie_bits` as in has_fast_quotient (0: divide); `multiply`: by the rounded reciprocal.
    divisor_table(std::size_t group, int tie_bits, bool multiply) noexcept
        : group_table<Arch>(group),
          products(multiply || (kernels::has_fused<Arch>() && tie_bits != 0)),
          tie_bits_(tie_bits),
          multiply_(multiply) {}

    /// Derives the reciprocals of what fill() has taken.
    QK_APART void invert() noexcept {
        using V = kernels::vi<Arch>;
        using F = kernels::vf<Arch>;
        constexpr std::size_t w = kernels::lanes<Arch>;
        if (!products) return;
        const V nan(kernels::nan_bits);
        for (std::size_t k = 0; k < this->number; k += w) {
            const F d = kernels::load<Arch>(this->scale + k);
            if (multiply_) {
                kernels::store<Arch>(high + k, kernels::quotient<Arch>(F(1.0f), d));
                kernels::store<Arch>(low + k, F(0.0f));
                kernels::store<Arch>(this->scale + k, kernels::as_float<Arch>(nan));
                continue;
            }
            const kernels::two_part_reciprocal<Arch> r = kernels::reciprocal_of<Arch>(d);
            const kernels::mask<Arch> fast = kernels::has_fast_quotient<Arch>(kernels::as_int<Arch>(d), tie_bits_);
            kernels::store<Arch>(high + k, kernels::as_float<Arch>(select(fast, kernels::as_int<Arch>(r.high), nan)));
            kernels::store<Arch>(low + k, r.low);
        }
    }

  private:
    int tie_bits_;
    bool multiply_;
};

/// The coder of quotients by the divisors of a table; `Coder` is the one for the scale 1.
template <class Arch, class Coder>
struct coder_by_table : Coder {
    const divisor_table<Arch>* table;

    coder_by_table(const Coder& of_quotients, const divisor_table<Arch>& divisors) noexcept : Coder(of_quotients), table(&divisors) {}
    /// Makes the quotients of the tile at value i.
    QK_INLINE void prepare(kernels::vf<Arch>* x, std::size_t i) const noexcept {
        if (!table->products) return divide(x, i);
        const auto by = [&](auto each) QK_INLINE_CALL {
            const auto high = numbers_of_tile<!each.value, kernels::vf<Arch>>(table->high, table->at, i);
            const auto low = numbers_of_tile<!each.value, kernels::vf<Arch>>(table->low, table->at, i);
            kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::fma<Arch>(x[k], high(k), x[k] * low(k)); });
        };
        table->at.is_whole() ? by(std::false_type()) : by(std::true_type());
    }
    QK_INLINE void divide(kernels::vf<Arch>* x, std::size_t i) const noexcept {
        kernels::unrolled<4>(
            [&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], kernels::vf<Arch>(table->scale[table->at(i, k)])); });
    }
};

/// Returns the coder under one scale (which it knows already), or under those of a table.
template <class Arch, class Coder>
QK_INLINE const Coder& coder_under(const Coder& coder, float) noexcept {
    return coder;
}
template <class Arch, class Coder>
QK_INLINE coder_by_table<Arch, Coder> coder_under(const Coder& coder, const divisor_table<Arch>& table) noexcept {
    return {coder, table};
}
QK_INLINE float one_scale_of(float scale) noexcept { return scale; }
template <class Arch>
float one_scale_of(const divisor_table<Arch>&) noexcept {
    return 1.0f;
}

}  // namespace QK_ISA
}  // namespace qk::detail
