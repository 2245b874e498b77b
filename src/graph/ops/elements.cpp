// SPDX-License-Identifier: Apache-2.0
// Defines the conversions of elements.hpp, compiled once for float, double and int64.
#include "graph/ops/elements.hpp"

#include <cmath>

namespace qk::graph::ops {

float round_to_odd(double x) {
    const auto y = static_cast<float>(x);
    if (static_cast<double>(y) == x || x != x || std::isinf(y)) {
        return std::isinf(y) && !std::isinf(x) ? std::copysign(std::numeric_limits<float>::max(), y) : y;
    }
    auto b = std::bit_cast<std::uint32_t>(y);
    const bool away = std::fabs(static_cast<double>(y)) > std::fabs(x);
    if (away) --b;  // truncates toward zero, also across a binade
    return std::bit_cast<float>(b | 1u);
}

float small_float_value(floating f, std::uint32_t code) {
    if (f == e8m0) {
        return code == 0xffu ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(power_of_two(static_cast<int>(code) - 127));
    }
    const std::uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
    const auto exponent = static_cast<int>(code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
    const bool negative = (code >> (f.mantissa_bits + f.exponent_bits) & 1u) != 0;
    const int top = (1 << f.exponent_bits) - 1;
    const std::uint32_t ones = (1u << f.mantissa_bits) - 1;
    const float sign = negative ? -1.0f : 1.0f;
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (f.specials == specials::ieee && exponent == top) {
        return std::copysign(mantissa != 0 ? nan : std::numeric_limits<float>::infinity(), sign);
    }
    if (f.specials == specials::fn && exponent == top && mantissa == ones) return std::copysign(nan, sign);
    if (f.specials == specials::fnuz && negative && exponent == 0 && mantissa == 0) return nan;
    const double m = exponent == 0 ? mantissa : mantissa + (1u << f.mantissa_bits);
    return sign * static_cast<float>(m * power_of_two((exponent == 0 ? 1 : exponent) - f.bias - f.mantissa_bits));
}

std::uint8_t small_float_code(floating f, float x, bool saturate) {
    const auto b = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (b >> 31) << (f.exponent_bits + f.mantissa_bits);
    const std::uint32_t inf = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const std::uint32_t all = inf | ((1u << f.mantissa_bits) - 1);
    const auto special = [&](bool is_inf) -> std::uint32_t {
        if (f.specials == specials::ieee) return sign | (is_inf ? inf : inf | (1u << (f.mantissa_bits - 1)));
        if (f.specials == specials::fn) return sign | all;
        if (f.specials == specials::fnuz) return 1u << (f.exponent_bits + f.mantissa_bits);
        return is_inf ? sign | all : 1u << (f.exponent_bits + f.mantissa_bits);  // no NaN: -0, as the standard's tests have it
    };
    if (x != x) return static_cast<std::uint8_t>(special(false));
    const std::uint32_t largest = (static_cast<std::uint32_t>(max_exponent(f) + f.bias) << f.mantissa_bits) | max_mantissa(f);
    const auto overflow = [&] {
        return static_cast<std::uint8_t>(saturate || f.specials == specials::none ? sign | largest : special(true));
    };
    if (std::isinf(x)) return overflow();
    // `steps` is |x| in the target's ulp at x, an exact double rounded to even. Plus the binade it is the code (binades are consecutive).
    const double a = std::fabs(static_cast<double>(x));
    const int exponent = std::max(a == 0 ? -1000 : std::ilogb(a), min_exponent(f));
    const double steps = std::nearbyint(a * power_of_two(f.mantissa_bits - exponent));
    const auto code = static_cast<std::uint64_t>(steps) + (static_cast<std::uint64_t>(exponent - min_exponent(f)) << f.mantissa_bits);
    if (code > largest) return overflow();
    if (code == 0 && f.specials == specials::fnuz) return 0;
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(code));
}

std::uint8_t e8m0_code(float x, cast_rules rules) {
    if (x != x) return 0xff;
    if (std::isinf(x)) return rules.saturate ? 0xfe : 0xff;
    const double a = std::fabs(static_cast<double>(x));
    if (a < 0x1p-127) return rules.saturate ? 0 : 0xff;
    int e = std::ilogb(a);
    const double fraction = a * power_of_two(-e);  // [1, 2)
    if (rules.round_mode == cast_rules::e8m0_rounding::up && fraction > 1) ++e;
    if (rules.round_mode == cast_rules::e8m0_rounding::nearest && fraction >= 1.5) ++e;
    if (e > 127) return rules.saturate ? 0xfe : 0xff;
    return static_cast<std::uint8_t>(e + 127);
}

const std::array<float, 256>& small_float_table(data_type t) {
    static const auto tables = [] {
        std::array<std::array<float, 256>, 29> all{};
        for (int i = 0; i < static_cast<int>(all.size()); ++i) {
            const auto type = static_cast<data_type>(i);
            if (!is_small_float(type)) continue;
            const auto codes = 1u << bits_of(type);
            for (std::uint32_t c = 0; c < 256; ++c) all[static_cast<std::size_t>(i)][c] = small_float_value(format_of(type), c % codes);
        }
        return all;
    }();
    return tables[static_cast<std::size_t>(t)];
}

namespace detail {

template <class T, class Out, class F>
void read_as(const std::byte* from, std::span<Out> to, F convert) {
    const T* in = reinterpret_cast<const T*>(from);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = convert(in[i]);
}

}  // namespace detail

template <class Out>
bool read_elements(data_type t, const std::byte* from, std::span<Out> to) {
    const auto number = [](auto v) -> Out {
        if constexpr (std::is_same_v<Out, std::int64_t> && std::is_floating_point_v<decltype(v)>) return detail::to_int64(v);
        else return static_cast<Out>(v);
    };
    switch (t) {
        case data_type::float32: detail::read_as<float>(from, to, number); return true;
        case data_type::float64: detail::read_as<double>(from, to, number); return true;
        case data_type::float16: detail::read_as<half>(from, to, [&](half v) { return number(to_float(v)); }); return true;
        case data_type::bfloat16: detail::read_as<brain>(from, to, [&](brain v) { return number(to_float(v)); }); return true;
        case data_type::int8: detail::read_as<std::int8_t>(from, to, number); return true;
        case data_type::uint8: detail::read_as<std::uint8_t>(from, to, number); return true;
        case data_type::int16: detail::read_as<std::int16_t>(from, to, number); return true;
        case data_type::uint16: detail::read_as<std::uint16_t>(from, to, number); return true;
        case data_type::int32: detail::read_as<std::int32_t>(from, to, number); return true;
        case data_type::uint32: detail::read_as<std::uint32_t>(from, to, number); return true;
        case data_type::int64: detail::read_as<std::int64_t>(from, to, number); return true;
        case data_type::uint64: detail::read_as<std::uint64_t>(from, to, number); return true;
        case data_type::boolean:
            detail::read_as<std::uint8_t>(from, to, [&](auto v) { return number(static_cast<int>(v != 0)); });
            return true;
        case data_type::int2:
        case data_type::int4:
        case data_type::uint2:
        case data_type::uint4: detail::read_as<std::uint8_t>(from, to, [&](auto v) { return number(narrow_integer(t, v)); }); return true;
        default: break;
    }
    if (!is_small_float(t)) return false;
    const auto& table = small_float_table(t);
    detail::read_as<std::uint8_t>(from, to, [&](auto v) { return number(table[v]); });
    return true;
}

namespace detail {

template <class T, class In, class F>
void write_as(std::span<const In> from, std::byte* to, F convert) {
    T* out = reinterpret_cast<T*>(to);
    for (std::size_t i = 0; i < from.size(); ++i) out[i] = convert(from[i]);
}

template <class T, class In>
void write_integers(std::span<const In> from, std::byte* to) {
    if constexpr (std::is_same_v<In, std::int64_t>) write_as<T>(from, to, [](std::int64_t v) { return static_cast<T>(v); });
    else write_as<T>(from, to, [](In v) { return static_cast<T>(to_int64(static_cast<double>(v))); });
}

/// Converts a number to float or double; with `unsigned_source` the 64 bits of an int64 are a uint64.
template <class Out, class In>
Out nearest(In v, bool unsigned_source) {
    if constexpr (std::is_same_v<In, std::int64_t>)
        if (unsigned_source) return static_cast<Out>(static_cast<std::uint64_t>(v));
    return static_cast<Out>(v);
}

}  // namespace detail

template <class In>
bool write_elements(std::span<const In> from, data_type t, std::byte* to, cast_rules rules, bool unsigned_source) {
    const auto real = [=](In v) -> double {
        if constexpr (std::is_same_v<In, std::int64_t>) {
            // Integers of more than 53 bits are rounded to odd, so that only the next rounding has an effect.
            if (unsigned_source && v < 0) {
                const auto u = static_cast<std::uint64_t>(v);
                return static_cast<double>((u >> 11 | std::uint64_t{(u & 0x7ff) != 0})) * 2048.0;
            }
            const std::uint64_t m = v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v);
            const double a =
                m >> 53 == 0 ? static_cast<double>(m) : static_cast<double>(m >> 11 | std::uint64_t{(m & 0x7ff) != 0}) * 2048.0;
            return v < 0 ? -a : a;
        }
        return static_cast<double>(v);
    };
    const auto single = [&](In v) -> float {  // its result is rounded once more
        if constexpr (std::is_same_v<In, float>) return v;
        else return round_to_odd(real(v));
    };
    switch (t) {
        case data_type::float32:
            detail::write_as<float>(from, to, [&](In v) { return detail::nearest<float>(v, unsigned_source); });
            return true;
        case data_type::float64:
            detail::write_as<double>(from, to, [&](In v) { return detail::nearest<double>(v, unsigned_source); });
            return true;
        case data_type::float16: detail::write_as<half>(from, to, [&](In v) { return to_half(single(v)); }); return true;
        case data_type::bfloat16: detail::write_as<brain>(from, to, [&](In v) { return to_brain(single(v)); }); return true;
        case data_type::int8: detail::write_integers<std::int8_t>(from, to); return true;
        case data_type::uint8: detail::write_integers<std::uint8_t>(from, to); return true;
        case data_type::int16: detail::write_integers<std::int16_t>(from, to); return true;
        case data_type::uint16: detail::write_integers<std::uint16_t>(from, to); return true;
        case data_type::int32: detail::write_integers<std::int32_t>(from, to); return true;
        case data_type::uint32: detail::write_integers<std::uint32_t>(from, to); return true;
        case data_type::int64: detail::write_integers<std::int64_t>(from, to); return true;
        case data_type::uint64: detail::write_integers<std::uint64_t>(from, to); return true;
        case data_type::boolean:
            detail::write_as<std::uint8_t>(from, to, [](In v) { return static_cast<std::uint8_t>(v != In{0}); });
            return true;
        case data_type::int2:
        case data_type::int4:
        case data_type::uint2:
        case data_type::uint4:
            detail::write_integers<std::uint8_t>(from, to);
            for (std::size_t i = 0; i < from.size(); ++i) {
                to[i] = static_cast<std::byte>(narrow_integer(t, static_cast<std::int64_t>(to[i])));
            }
            return true;
        case data_type::float8e8m0:
            detail::write_as<std::uint8_t>(from, to, [&](In v) { return e8m0_code(single(v), rules); });
            return true;
        default: break;
    }
    if (!is_small_float(t)) return false;
    const floating f = format_of(t);
    detail::write_as<std::uint8_t>(from, to, [&](In v) { return small_float_code(f, single(v), rules.saturate); });
    return true;
}

template bool read_elements<float>(data_type, const std::byte*, std::span<float>);
template bool read_elements<double>(data_type, const std::byte*, std::span<double>);
template bool read_elements<std::int64_t>(data_type, const std::byte*, std::span<std::int64_t>);
template bool write_elements<float>(std::span<const float>, data_type, std::byte*, cast_rules, bool);
template bool write_elements<double>(std::span<const double>, data_type, std::byte*, cast_rules, bool);
template bool write_elements<std::int64_t>(std::span<const std::int64_t>, data_type, std::byte*, cast_rules, bool);

}  // namespace qk::graph::ops
