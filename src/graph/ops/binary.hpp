// SPDX-License-Identifier: Apache-2.0
// Implements arithmetic of two operands with broadcasting: Add, Sub, Mul, Div, Mod, Pow, shifts and bitwise operators.
#pragma once

#include <cmath>
#include <functional>
#include <type_traits>

#include "graph/ops/broadcast.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Returns the second operand in a shape for numpy broadcasting. Before opset 7 `axis` told which axis of A the first axis of B belongs to.
inline tensor aligned_operand(const op_context& call, const tensor& a, const tensor& b) {
    if (call.node().version() >= 7 || !call.node().has("axis") || b.rank() >= a.rank()) return b;
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", 0), a.rank());
    if (axis + b.rank() > a.rank()) call.fail("axis leaves no room for the second operand's shape");
    dims shape = b.shape();
    shape.resize(a.rank() - axis, 1);
    return b.reshaped(shape);
}

/// Integer types with few bits, which models rarely compute with. They are computed in int64: the result, wrapped, is the same.
inline constexpr type_list<std::int8_t, std::int16_t, std::uint8_t, std::uint16_t, std::uint32_t> short_integers;

template <class T, class... Ts>
constexpr bool is_one_of(type_list<Ts...>) {
    return (std::is_same_v<T, Ts> || ...);
}
template <class... Ts>
constexpr bool names_type(data_type type, type_list<Ts...>) {
    return ((type == type_of<Ts>) || ...);
}
template <class... Ts>
constexpr auto without_short_integers(type_list<Ts...>) {
    return (type_list<>{} + ... + std::conditional_t<is_one_of<Ts>(short_integers), type_list<>, type_list<Ts>>{});
}

/// A function f, and the element types of its operands and its result.
template <class F>
struct short_integer_function {
    const F& f;
    data_type operands, result;
};

/// Computes one row of short integers, in pieces that stay in the L1 cache.
template <class F>
void compute_short_integers(const void* function, const pair_row& row) {
    constexpr std::size_t piece = 512;
    const auto& with = *static_cast<const short_integer_function<F>*>(function);
    const std::size_t size = size_of(with.operands);
    std::array<std::int64_t, piece> a, b, y;
    for (std::size_t i = 0; i < row.count; i += piece) {
        const std::size_t n = std::min(piece, row.count - i);
        read_elements<std::int64_t>(with.operands, row.a + i * row.step_a * size, std::span(a).first(row.step_a ? n : 1));
        read_elements<std::int64_t>(with.operands, row.b + i * row.step_b * size, std::span(b).first(row.step_b ? n : 1));
        compute_elements<std::int64_t, std::int64_t, std::int64_t, F>(
            &with.f, {reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data()),
                      reinterpret_cast<std::byte*>(y.data()), n, row.step_a, row.step_b});
        write_elements<std::int64_t>(std::span(y).first(n), with.result, row.y + i * size_of(with.result));
    }
}

/// Computes y[i] = f(a[i], b[i]) with broadcasting. a and b have one type of the list; y has type `Y`, or theirs if `Y` is void.
template <const auto& Types, class Y = void, class F>
void map_numbers(const op_context& call, std::span<const std::int64_t> shape, const tensor& a, const tensor& b, tensor& y, const F& f) {
    constexpr auto own_loops = without_short_integers(Types);
    if (names_type(a.type(), short_integers) && names_type(a.type(), Types)) {
        const short_integer_function<F> with{f, a.type(), y.type()};
        return map_rows(shape, a, b, y, &with, compute_short_integers<F>);
    }
    dispatch(call, a.type(), own_loops,
             [&]<class T>(type_tag<T>) { map_broadcast<T, T, std::conditional_t<std::is_void_v<Y>, T, Y>>(shape, a, b, y, f); });
}

/// Computes y = f(a, b). Both operands have one type of the list; the result has type `Y`, or theirs if `Y` is void.
template <const auto& Types, class Y = void, class F>
void map_binary(op_context& call, const F& f) {
    const tensor& a = call.input(0);
    const tensor b = aligned_operand(call, a, call.input(1));
    if (a.type() != b.type()) call.fail(std::string("operands differ in type: ") + name_of(a.type()) + " and " + name_of(b.type()));
    const tensor* operands[] = {&a, &b};
    const dims shape = broadcast_shape(call, operands);
    data_type result = a.type();
    if constexpr (!std::is_void_v<Y>) result = type_of<Y>;
    map_numbers<Types, Y>(call, shape, a, b, call.output(0, result, shape), f);
}

/// The unsigned type of at least 32 bits in which integers are computed, because there wrapping is defined.
template <class T>
using wrapping =
    std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>>;

namespace functions {
struct add {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<wrapping<T>>(a) + static_cast<wrapping<T>>(b));
        else return a + b;
    }
};
struct subtract {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<wrapping<T>>(a) - static_cast<wrapping<T>>(b));
        else return a - b;
    }
};
struct multiply {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<wrapping<T>>(a) * static_cast<wrapping<T>>(b));
        else return a * b;
    }
};
/// Integer division truncates. x / 0 is 0, and the lowest integer divided by -1 wraps, so that no input traps.
struct divide {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) {
            if (b == 0) return 0;
            if constexpr (std::is_signed_v<T>)
                if (b == T{-1}) return subtract{}(T{0}, a);
            return static_cast<T>(a / b);
        } else return a / b;
    }
};
/// With fmod=1 the result has the sign of the dividend (C), with fmod=0 that of the divisor (Python).
struct modulo {
    bool c_sign;
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) {
            if (b == 0) return 0;
            if constexpr (std::is_signed_v<T>) {
                if (b == T{-1}) return 0;
                const T r = static_cast<T>(a % b);
                return !c_sign && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
            } else return static_cast<T>(a % b);
        } else {
            const T r = std::fmod(a, b);
            if (c_sign) return r;
            if (r == 0) return std::copysign(r, b);
            return (r < 0) != (b < 0) ? r + b : r;
        }
    }
};
}  // namespace functions

/// Returns the mean of n elements from their sum. n need not fit T; the mean of no integers is 0.
template <class T>
T divide_by_count(T sum, std::size_t n) {
    if constexpr (std::is_floating_point_v<T>) return sum / static_cast<T>(n);
    else if (n == 0) return T{0};
    else if constexpr (std::is_signed_v<T>) return static_cast<T>(std::int64_t{sum} / static_cast<std::int64_t>(n));
    else return static_cast<T>(sum / n);
}

template <class F>
void arithmetic(op_context& call) {
    map_binary<number_types>(call, F{});
}

inline void mod(op_context& call) { map_binary<number_types>(call, functions::modulo{call.node().get_int("fmod", 0) != 0}); }

/// Returns base ^ exponent in the base's type. With two integers the result is exact and wraps; a negative exponent truncates toward zero.
template <class A, class B>
A power(A base, B exponent) {
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
        if constexpr (std::is_signed_v<B>)
            if (exponent < 0)
                return base == 1 ? A{1} : std::is_signed_v<A> && base == static_cast<A>(-1) ? (exponent % 2 ? base : A{1}) : A{0};
        wrapping<A> result = 1, square = static_cast<wrapping<A>>(base);
        for (auto e = static_cast<std::uint64_t>(exponent); e != 0; e >>= 1, square *= square)
            if (e & 1) result *= square;
        return static_cast<A>(result);
    } else if constexpr (std::is_integral_v<A>) {
        return static_cast<A>(detail::to_int64(std::pow(static_cast<double>(base), static_cast<double>(exponent))));
    } else {
        return static_cast<A>(std::pow(
            base, static_cast<std::conditional_t<std::is_same_v<A, float> && !std::is_same_v<B, double>, float, double>>(exponent)));
    }
}

inline void power_of(op_context& call, const dims& shape, const tensor& a, const tensor& exponents, tensor& y) {
    dispatch(call, a.type(), float_types + type_list<std::int64_t, std::uint64_t>{}, [&]<class A>(type_tag<A>) {
        dispatch(call, exponents.type(), float_types + type_list<std::int64_t>{}, [&]<class B>(type_tag<B>) {
            map_broadcast<A, B, A>(shape, a, exponents, y, [](A base, B exponent) { return power(base, exponent); });
        });
    });
}

/// Returns a loop for exponents 1, 2, 3 and 0.5, which models use most: products and sqrt are as accurate as pow and vectorise. Returns
/// null for other exponents.
inline auto short_power(double e) -> void (*)(const float* x, float* y, std::size_t n) {
    const auto each = []<class F>(F) -> void (*)(const float*, float*, std::size_t) {
        return [](const float* x, float* y, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) y[i] = F{}(x[i]);
        };
    };
    if (e == 2) return each([](float v) { return v * v; });
    if (e == 3) return each([](float v) { return v * v * v; });
    if (e == 1) return each([](float v) { return v; });
    if (e == 0.5) return each([](float v) { return v == -std::numeric_limits<float>::infinity() ? -v : std::sqrt(v + 0.0f); });
    return nullptr;
}

inline void pow(op_context& call) {
    const tensor& a = call.input(0);
    const tensor b = aligned_operand(call, a, call.input(1));
    const tensor* operands[] = {&a, &b};
    const dims shape = broadcast_shape(call, operands);
    tensor& y = call.output(0, a.type(), shape);
    if (a.type() == data_type::float32 && b.size() == 1 && shape == a.shape())
        if (const auto quick = short_power(scalar_value<double>(call, b)))
            return quick(a.as<float>().data(), y.as<float>().data(), a.size());
    tensor exponents = b;
    if (b.type() != data_type::float32 && b.type() != data_type::float64)  // one loop for all integer widths
        exponents = make_tensor<std::int64_t>(b.shape(), int_values(call, b));
    const bool is_short = a.type() != data_type::int64 && a.type() != data_type::uint64 && is_integer_type(a.type());
    if (is_short) {  // computed in int64, then wrapped
        tensor base = call.scratch(data_type::int64, a.shape()), wide = call.scratch(data_type::int64, shape);
        read_elements<std::int64_t>(a.type(), a.bytes(), base.as<std::int64_t>());
        power_of(call, shape, base, exponents, wide);
        write_elements<std::int64_t>(wide.as<std::int64_t>(), a.type(), y.bytes());
    } else power_of(call, shape, a, exponents, y);
}

/// Computes Pow for all types. Only the base decides the result's type: a float16 base may have an exponent of another type.
inline void pow_any(op_context& call) {
    const tensor inputs[] = {widened(call, call.input(0)), widened(call, call.input(1))};
    tensor outputs[1];
    op_context wide = call.with(inputs, outputs);
    pow(wide);
    const data_type type = call.input(0).type();
    call.set_output(0, is_narrow_float(type) ? narrowed(call, outputs[0], type) : outputs[0]);
}

/// A signed right shift extends the sign. By a negative amount, or at least the type's width, only the sign remains (0 if there is none).
inline void bit_shift(op_context& call) {
    const std::string direction = call.node().get_string("direction", "");
    if (direction != "LEFT" && direction != "RIGHT") call.fail("direction must be LEFT or RIGHT");
    const bool left = direction == "LEFT";
    map_binary<integer_types>(call, [left]<class T>(T a, T b) -> T {
        const bool outside = static_cast<std::make_unsigned_t<T>>(b) >= sizeof(T) * 8;  // also true for negative amounts
        if (left) return outside ? T{0} : static_cast<T>(static_cast<wrapping<T>>(a) << b);
        return static_cast<T>(a >> (outside ? sizeof(T) * 8 - 1 : static_cast<std::size_t>(b)) >>
                              (outside && std::is_unsigned_v<T> ? 1 : 0));
    });
}

template <class F>
void bitwise(op_context& call) {
    map_binary<integer_types>(call, []<class T>(T a, T b) { return static_cast<T>(F{}(a, b)); });
}

// clang-format off
inline constexpr op_entry binary_ops[] = {
    {"", "Add", 1, through_float32<arithmetic<functions::add>>, nullptr,
     {follow_elements}, {.traits = neighbour | exact | reckons | pairwise | adds, .values = all_inputs, .inputs = 2}},
    {"", "Sub", 1, through_float32<arithmetic<functions::subtract>>, nullptr,
     {follow_elements}, {.traits = exact | reckons | pairwise, .values = all_inputs, .inputs = 2}},
    {"", "Mul", 1, through_float32<arithmetic<functions::multiply>>, nullptr,
     {follow_elements}, {.traits = exact | reckons | pairwise, .values = all_inputs, .inputs = 2}},
    {"", "Div", 1, through_float32<arithmetic<functions::divide>>, nullptr,
     {follow_elements}, {.traits = exact | reckons | pairwise, .values = first_input, .inputs = 2}},
    {"", "Mod", 10, through_float32<mod>, nullptr, {follow_elements}, {reckons}},
    {"", "Pow", 1, pow_any, nullptr, {follow_elements}, {.traits = reckons, .inputs = 2}},
    {"", "BitShift", 11, bit_shift, nullptr, {follow_elements}},
    {"", "BitwiseAnd", 18, bitwise<std::bit_and<>>, nullptr, {follow_elements}},
    {"", "BitwiseOr", 18, bitwise<std::bit_or<>>, nullptr, {follow_elements}},
    {"", "BitwiseXor", 18, bitwise<std::bit_xor<>>, nullptr, {follow_elements}},
};
// clang-format on

}  // namespace qk::graph::ops
