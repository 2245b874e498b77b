// SPDX-License-Identifier: Apache-2.0
// Implements Dropout, Bernoulli, Multinomial, RandomUniform and RandomNormal. The standard does not prescribe the numbers; here a Mersenne
// twister draws them, seeded in every run with the attribute (0 if there is none), so that results repeat.
#pragma once

#include <cmath>
#include <numbers>
#include <random>

#include "graph/model/operator_name.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Draws uniform numbers in [0, 1) with 53 random bits from two words.
class uniform_source {
  public:
    explicit uniform_source(const op_context& call) : words_(static_cast<std::uint32_t>(seed_of(call))) {}
    double operator()() {
        const auto high = static_cast<double>(words_() >> 5), low = static_cast<double>(words_() >> 6);
        return (high * 0x1p26 + low) * 0x1p-53;
    }
    /// Draws a normal number by Box and Muller's method, which makes two; the other is not used.
    double normal() {
        const double radius = std::sqrt(-2 * std::log(1 - (*this)()));
        return radius * std::cos(2 * std::numbers::pi * (*this)());
    }

  private:
    static std::int64_t seed_of(const op_context& call) {
        if (!call.node().has("seed")) return 0;
        if (operator_of(call.node()) == "Dropout") return call.node().get_int("seed", 0);
        const double s = call.node().get_float("seed", 0);
        return std::abs(s) < 0x1p60 ? static_cast<std::int64_t>(s) : 0;
    }
    std::mt19937 words_;
};

/// Fills output 0 of `type` (also float16 and bfloat16) with next().
template <class F>
void fill_random(op_context& call, data_type type, const dims& shape, F next) {
    tensor y = call.scratch(is_narrow_float(type) ? data_type::float32 : type, shape);
    dispatch(call, y.type(), element_types, [&]<class T>(type_tag<T>) {
        for (T& v : y.as<T>()) v = number_as<T>(next());
    });
    call.set_output(0, is_narrow_float(type) ? narrowed(call, y, type) : y);
}

/// Returns attribute dtype, else the type of input 0, else float32.
inline data_type random_type(const op_context& call) {
    const data_type otherwise = call.has_input(0) ? call.input(0).type() : data_type::float32;
    return static_cast<data_type>(call.node().get_int("dtype", static_cast<std::int64_t>(otherwise)));
}

template <bool Like>
void random_uniform(op_context& call) {
    uniform_source uniform(call);
    const double low = call.node().get_float("low", 0.0f), high = call.node().get_float("high", 1.0f);
    fill_random(call, random_type(call), Like ? call.input(0).shape() : call.node().get_ints("shape"),
                [&] { return low + (high - low) * uniform(); });
}

template <bool Like>
void random_normal(op_context& call) {
    uniform_source uniform(call);
    const double mean = call.node().get_float("mean", 0.0f), scale = call.node().get_float("scale", 1.0f);
    fill_random(call, random_type(call), Like ? call.input(0).shape() : call.node().get_ints("shape"),
                [&] { return mean + scale * uniform.normal(); });
}

inline void bernoulli(op_context& call) {
    uniform_source uniform(call);
    const tensor p = widened(call, call.input(0));
    dispatch(call, p.type(), float_types, [&]<class T>(type_tag<T>) {
        const T* next = p.as<T>().data();
        fill_random(call, random_type(call), p.shape(), [&] { return uniform() < static_cast<double>(*next++) ? 1 : 0; });
    });
}

inline void multinomial(op_context& call) {
    uniform_source uniform(call);
    const tensor x = widened(call, call.input(0));
    const std::int64_t samples = call.node().get_int("sample_size", 1);
    if (x.rank() != 2 || x.dim(1) == 0 || samples < 0) call.fail("the input is not [batch, classes], or sample_size is negative");
    const auto classes = static_cast<std::size_t>(x.dim(1));
    expect_room(call, {x.dim(0), samples}, data_type::int64);
    std::vector<std::int64_t> drawn;
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        for (std::size_t b = 0; b < static_cast<std::size_t>(x.dim(0)); ++b) {
            const T* row = x.as<T>().data() + b * classes;
            const T top = *std::max_element(row, row + classes);
            std::vector<double> total(classes);
            for (std::size_t c = 0; c < classes; ++c)
                total[c] = (c ? total[c - 1] : 0) + std::exp(static_cast<double>(row[c]) - static_cast<double>(top));
            for (std::int64_t s = 0; s < samples; ++s) {
                const auto at = std::upper_bound(total.begin(), total.end() - 1, uniform() * total.back());
                drawn.push_back(at - total.begin());
            }
        }
    });
    auto next = drawn.begin();
    fill_random(call, static_cast<data_type>(call.node().get_int("dtype", 6)), {x.dim(0), samples}, [&] { return *next++; });
}

/// In inference the input passes unchanged. Training (from opset 12 on, set by an input) drops elements and scales the others.
inline void dropout(op_context& call) {
    const tensor& x = call.input(0);
    const int version = call.node().version();
    const bool training = version >= 12 && call.has_input(2) && scalar_value<bool>(call, call.input(2));
    const double ratio = version < 12 ? 0.0 : call.has_input(1) ? scalar_value<double>(call, call.input(1)) : 0.5;
    const bool dropping = training && ratio != 0;
    tensor mask;
    if (call.wants(1) || dropping) mask = call.scratch(data_type::boolean, x.shape());
    if (!dropping) {
        call.set_output(0, x);
        if (call.wants(1)) {
            std::fill_n(mask.as<bool>().data(), mask.size(), true);
            // Before opset 10 the mask had the input's type.
            if (version >= 10) {
                call.set_output(1, mask);
                return;
            }
            tensor& old = call.output(1, x.type(), x.shape());
            dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) { std::fill_n(old.as<T>().data(), old.size(), T{1}); });
        }
        return;
    }
    if (!(ratio > 0 && ratio < 1)) call.fail("ratio is outside [0, 1)");
    uniform_source uniform(call);
    for (bool& m : mask.as<bool>()) m = uniform() >= ratio;
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const T scale = static_cast<T>(1 / (1 - ratio));
        for (std::size_t i = 0; i < x.size(); ++i) y.as<T>()[i] = mask.as<bool>()[i] ? x.as<T>()[i] * scale : T{0};
    });
    if (call.wants(1)) call.set_output(1, mask);
}

inline constexpr op_entry random_ops[] = {
    {"", "RandomUniform", 1, random_uniform<false>, nullptr, {}, {.traits = random, .types = dtype_or<data_type::float32>, .inputs = 0}},
    {"", "RandomUniformLike", 1, random_uniform<true>, nullptr, {}, {.traits = random, .types = dtype_or_like}},
    {"", "RandomNormal", 1, random_normal<false>, nullptr, {}, {.traits = random, .types = dtype_or<data_type::float32>, .inputs = 0}},
    {"", "RandomNormalLike", 1, random_normal<true>, nullptr, {}, {.traits = random, .types = dtype_or_like}},
    {"", "Bernoulli", 15, bernoulli, nullptr, {}, {.traits = random, .types = dtype_or_like}},
    {"", "Multinomial", 7, multinomial, nullptr, {}, {.traits = random, .types = dtype_or<data_type::int32>}},
    {"", "Dropout", 1, through_float32<dropout>, nullptr, {follow_dropout}, {.traits = mover, .types = gives_beside<data_type::boolean>}},
};

}  // namespace qk::graph::ops
