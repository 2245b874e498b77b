// SPDX-License-Identifier: Apache-2.0
// Formats given by the values of their codes: codebooks such as NF4, and formats with a definition of another kind, such as posits.
#pragma once

#include "qk/exact/begin.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <new>
#include <span>

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// Which neighbour a value halfway between two numbers of a table becomes under rounding to nearest (half_even); the other roundings have
/// rules of their own.
enum class table_ties : std::uint8_t { even_code, lower, upper, toward_zero, away };

/// The numbers of a table: code i means number[i].
struct table_values {
    int size = 0;                     ///< codes there are, 2 to 256
    std::array<float, 256> number{};  ///< those from `size` on are 0
};

inline namespace QK_ISA {

/// Returns the values of a table: numbers or NaN, at most 256 (-0 becomes +0, every NaN the same).
constexpr table_values values_of(std::span<const float> numbers) {
    table_values t{.size = static_cast<int>(numbers.size() < 256 ? numbers.size() : 256)};
    for (std::size_t i = 0; i < static_cast<std::size_t>(t.size); ++i)
        t.number[i] = numbers[i] != numbers[i] ? std::numeric_limits<float>::quiet_NaN() : numbers[i] == 0 ? 0.0f : numbers[i];
    return t;
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr bool same_values(const table_values& a, const table_values& b) {
    if (a.size != b.size) return false;
    for (std::size_t i = 0; &a != &b && i < static_cast<std::size_t>(a.size); ++i)
        if (std::bit_cast<std::uint32_t>(a.number[i]) != std::bit_cast<std::uint32_t>(b.number[i])) return false;
    return true;
}

}  // namespace QK_ISA
}  // namespace detail

namespace detail {

inline constexpr table_values no_values;

/// What table_of keeps, the last one first.
struct kept_values {
    table_values values;
    const kept_values* before;
};
inline std::atomic<const kept_values*> last_kept{nullptr};

}  // namespace detail

/// A value of this type is a format. Its values are numbers or NaN, in any order; of equal ones the first code is used. Zeros are +0.
/// Values beyond the largest and the lowest number become these. It refers to the numbers, as a string_view does to characters, so that a
/// format stays some words large; table_of keeps numbers that are known only when running.
struct table {
    const table_values* values = &detail::no_values;  ///< of static storage, or from table_of
    table_ties ties = table_ties::even_code;

    QK_INLINE constexpr int size() const { return values->size; }
    friend QK_INLINE constexpr bool operator==(const table& a, const table& b) {
        return a.ties == b.ties && detail::same_values(*a.values, *b.values);
    }
};

inline namespace QK_ISA {

/// Returns the number or NaN of a code; codes beyond the table mean 0.
constexpr float value_of(const table& t, std::uint32_t code) { return t.values->number[code & 255u]; }

/// Returns the table of these numbers (at most 256). The numbers are kept until the process ends, equal ones once; a table without values,
/// which check refuses, is returned where there is no memory for them.
inline table table_of(std::span<const float> numbers, table_ties ties = table_ties::even_code) noexcept {
    using kept = detail::kept_values;
    std::atomic<const kept*>& last = detail::last_kept;
    const table_values values = values_of(numbers);
    const kept* before = last.load(std::memory_order_acquire);
    for (const kept* k = before; k != nullptr; k = k->before)
        if (const table t{&k->values, ties}; t == table{&values, ties}) return t;
    auto* own = new (std::nothrow) kept{values, before};
    if (own == nullptr) return {&detail::no_values, ties};
    while (!last.compare_exchange_weak(own->before, own, std::memory_order_release, std::memory_order_relaxed)) {
    }
    return {&own->values, ties};
}

/// Bits of a code.
constexpr int bits(const table& t) {
    int width = 1;
    while (1 << width < t.size()) ++width;
    return width;
}
constexpr bool has_nan(const table& t) {
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(t.size()); ++i)
        if (value_of(t, i) != value_of(t, i)) return true;
    return false;
}
/// Return the largest and the lowest number, and the smallest above 0 (0 if there is none).
constexpr float max_value(const table& t) {
    float most = -std::numeric_limits<float>::max();
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(t.size()); ++i)
        if (value_of(t, i) > most) most = value_of(t, i);
    return most;
}
constexpr float lowest_value(const table& t) {
    float least = std::numeric_limits<float>::max();
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(t.size()); ++i)
        if (value_of(t, i) < least) least = value_of(t, i);
    return least;
}
constexpr float smallest_value(const table& t) {
    float least = std::numeric_limits<float>::infinity();
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(t.size()); ++i)
        if (value_of(t, i) > 0 && value_of(t, i) < least) least = value_of(t, i);
    return detail::is_finite(least) ? least : 0.0f;
}

/// The largest magnitude of a table's numbers.
constexpr double reach(const table& t) {
    const double most = static_cast<double>(max_value(t)), least = static_cast<double>(lowest_value(t));
    return most > -least ? most : -least;
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Posits of `width` bits with es = 2 (Posit Standard 2022): sign, regime, two bits of exponent, fraction; negative ones in two's
/// complement.
constexpr float posit_value(std::uint32_t code, int width) {
    const std::uint32_t all = (1u << width) - 1, top = 1u << (width - 1);
    if (code == 0) return 0;
    if (code == top) return std::numeric_limits<float>::quiet_NaN();
    const bool negative = (code & top) != 0;
    const std::uint32_t magnitude = negative ? (~code + 1) & all : code;
    int at = width - 2, run = 0;
    const std::uint32_t first = magnitude >> at & 1u;
    for (; at >= 0 && (magnitude >> at & 1u) == first; --at) ++run;
    --at;  // the bit that ends the regime
    int exponent = 4 * (first != 0 ? run - 1 : -run);
    for (int k = 1; k >= 0; --k, --at)
        if (at >= 0 && (magnitude >> at & 1u) != 0) exponent += 1 << k;
    double value = 1, place = 0.5;
    for (; at >= 0; --at, place /= 2)
        if ((magnitude >> at & 1u) != 0) value += place;
    const double v = value * power_of_two(exponent);
    return static_cast<float>(negative ? -v : v);
}
template <int Width>
constexpr table_values posits() {
    std::array<float, std::size_t{1} << Width> v{};
    for (std::size_t code = 0; code < v.size(); ++code) v[code] = posit_value(static_cast<std::uint32_t>(code), Width);
    return values_of(v);
}

/// Sign and logarithm: +-2^((magnitude - 64) / 8), and 0 for the magnitude 0; the code of -0 is NaN.
constexpr table_values logarithms() {
    // 2^(k / 8), rounded to float32
    constexpr float roots[8] = {1.0f,           0x1.172b84p+0f, 0x1.306fep+0f,  0x1.4bfdaep+0f,
                                0x1.6a09e6p+0f, 0x1.8ace54p+0f, 0x1.ae89fap+0f, 0x1.d5818ep+0f};
    std::array<float, 256> v{};
    for (int m = 1; m < 128; ++m) {
        const int over = m - 64, whole = over >= 0 ? over / 8 : -((7 - over) / 8);
        const float value = static_cast<float>(static_cast<double>(roots[over - 8 * whole]) * power_of_two(whole));
        v[static_cast<std::size_t>(m)] = value;
        v[128 + static_cast<std::size_t>(m)] = -value;
    }
    v[128] = std::numeric_limits<float>::quiet_NaN();
    return values_of(v);
}

/// Sums of two powers of two, 4 levels each, over their largest: Li et al., ICLR 2020.
constexpr table_values sums_of_powers() {
    constexpr double first[4] = {0, 1, 0.25, 0.0625}, second[4] = {0, 0.5, 0.125, 0.03125};
    std::array<float, 16> v{};
    for (std::size_t i = 0; i < 16; ++i) v[i] = static_cast<float>((first[i / 4] + second[i % 4]) / 1.5);
    return values_of(v);
}

inline constexpr table_values nf4_values = values_of(std::array<float, 16>{
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f});
inline constexpr table_values posit8_values = posits<8>(), lns8_values = logarithms(), apot4_values = sums_of_powers();

}  // namespace QK_ISA
}  // namespace detail

/// NormalFloat: Dettmers et al., QLoRA, NeurIPS 2023 (bitsandbytes' values; a tie goes to the lower one).
inline constexpr table nf4{&detail::nf4_values, table_ties::lower};
inline constexpr table posit8{&detail::posit8_values};
inline constexpr table lns8{&detail::lns8_values};
inline constexpr table apot4{&detail::apot4_values};

inline namespace QK_ISA {

constexpr double bits_per_value(const table& f) { return bits(f); }
constexpr int block_size(const table&) { return 0; }

/// A table has 2 to 256 values, numbers or NaN, and two different numbers at least.
constexpr message check(const table& f) {
    const message sizes = detail::in_range("the number of a table's values", f.size(), 2, 256);
    if (!sizes.empty()) return sizes;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(f.size()); ++i)
        if (value_of(f, i) == value_of(f, i) && !detail::is_finite(value_of(f, i))) return "a table's values are finite numbers or NaN";
    if (!(lowest_value(f) < max_value(f))) return "a table needs two different numbers";
    return {};
}

constexpr format_facts facts(const table& f) {
    const double smallest = static_cast<double>(smallest_value(f));
    return {static_cast<double>(max_value(f)), static_cast<double>(lowest_value(f)), smallest, smallest, false, has_nan(f), false};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(const table& f, const semantics& how) { return has_nan(f) || how.nan_without_code != nan_rule::nan; }

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const table& f) { return {.element_width = bits(f)}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
