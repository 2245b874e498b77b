// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of ai.onnx.ml's operators on rows of features, of Det, and of CumProd.
#pragma once

#include <cmath>
#include <vector>

#include "qk/graph/gradient/ops/signal.hpp"
#include "qk/graph/gradient/product.hpp"
#include "qk/graph/ops/determinant.hpp"
#include "qk/graph/ops/ml.hpp"

namespace qk::graph::gradient {

inline void scaler_product(product_call& call) {
    const auto scale = call.node().get_floats("scale", {1.0f});
    const tensor g = as_real<double>(call.gradient());
    const auto features = static_cast<std::size_t>(call.input(0).rank() == 0 ? 1 : call.input(0).shape().back());
    std::vector<double> d(g.size());
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = g.as<double>()[i] * ops::entry_of(call.context(), scale, i % features);
    give_doubles(call, 0, d);
}

/// What replaces a missing value is constant: the gradient there is 0.
inline void imputer_product(product_call& call) {
    const double replaced = static_cast<double>(call.node().get_float("replaced_value_float", 0));
    const tensor x = call.real<double>(0), g = as_real<double>(call.gradient());
    std::vector<double> d(g.size());
    for (std::size_t i = 0; i < d.size(); ++i) {
        const double v = x.as<double>()[i];
        d[i] = v == replaced || (std::isnan(v) && std::isnan(replaced)) ? 0.0 : g.as<double>()[i];
    }
    give_doubles(call, 0, d);
}

/// y = x / d: dx = g / d - sum(g x) / d^2 d', where d' is the slope of the divisor.
inline void normalizer_product(product_call& call) {
    const std::string norm = call.node().get_string("norm", "MAX");
    const tensor x = call.real<double>(0), g = as_real<double>(call.gradient());
    const auto features = static_cast<std::size_t>(x.rank() == 0 ? 1 : x.shape().back());
    std::vector<double> d(x.size());
    for (std::size_t at = 0; features != 0 && at < d.size(); at += features) {
        const double *v = x.as<double>().data() + at, *by = g.as<double>().data() + at;
        std::size_t largest = 0;
        double divisor = 0, product = 0;
        for (std::size_t i = 0; i < features; ++i) {
            if (v[i] > v[largest]) largest = i;
            divisor += norm == "L1" ? std::abs(v[i]) : v[i] * v[i];
            product += by[i] * v[i];
        }
        if (norm == "MAX") divisor = v[largest];
        else if (norm == "L2") divisor = std::sqrt(divisor);
        for (std::size_t i = 0; i < features; ++i) {
            const double slope = norm == "MAX" ? (i == largest ? 1.0 : 0.0) : norm == "L1" ? (v[i] > 0) - (v[i] < 0) : v[i] / divisor;
            d[at + i] = divisor == 0 ? by[i] : by[i] / divisor - product / (divisor * divisor) * slope;
        }
    }
    give_doubles(call, 0, d);
}

inline void linear_regressor_product(product_call& call) {
    const auto coefficients = call.node().get_floats("coefficients");
    const tensor g = as_real<double>(call.gradient());
    const auto features = static_cast<std::size_t>(call.input(0).dim(1)), targets = static_cast<std::size_t>(g.dim(1));
    std::vector<double> d(call.input(0).size(), 0.0);
    for (std::size_t i = 0; i < d.size(); ++i)
        for (std::size_t t = 0; t < targets; ++t)
            d[i] += g.as<double>()[i / features * targets + t] * static_cast<double>(coefficients[t * features + i % features]);
    give_doubles(call, 0, d);
}

/// The derivative by an element is its cofactor, from the determinant without row i and column j; this holds for singular matrices, too.
inline void det_product(product_call& call) {
    const tensor x = call.real<double>(0), g = as_real<double>(call.gradient());
    const auto n = static_cast<std::size_t>(x.shape().back());
    std::vector<double> d(x.size()), minor;
    for (std::size_t at = 0; at < d.size(); ++at) {
        const std::size_t matrix = at / (n * n), row = at / n % n, column = at % n;
        minor.clear();
        for (std::size_t k = 0; k < n * n; ++k)
            if (k / n != row && k % n != column) minor.push_back(x.as<double>()[matrix * n * n + k]);
        d[at] = g.as<double>()[matrix] * ((row + column) % 2 == 0 ? 1 : -1) * ops::determinant(minor, n - 1);
    }
    give_doubles(call, 0, d);
}

/// The gradient by x[k] sums g[i] times the product of all factors of element i but x[k], over the elements i that x[k] is a factor of.
inline void cumulative_product_product(product_call& call) {
    const bool exclusive = call.node().get_int("exclusive", 0) != 0, reverse = call.node().get_int("reverse", 0) != 0;
    op_context context = call.context();
    const tensor x = call.real<double>(0), g = as_real<double>(call.gradient());
    const auto axis = ops::normal_axis(context, ops::scalar_value<std::int64_t>(context, call.input(1)), x.rank());
    const ops::axis_split s = ops::split_at(x.shape(), axis);
    std::vector<double> d(x.size(), 0.0);
    for (std::size_t o = 0; o < s.outer; ++o)
        for (std::size_t j = 0; j < s.inner; ++j) {
            const auto at = [&](std::size_t k) { return (o * s.length + (reverse ? s.length - 1 - k : k)) * s.inner + j; };
            double before = 1;
            for (std::size_t k = 0; k < s.length; ++k) {
                double others = before;  // product of all factors of element i but x[k]
                for (std::size_t i = k; i < s.length; ++i) {
                    if (exclusive && i + 1 == s.length) break;
                    if (i > k) others *= x.as<double>()[at(i)];
                    d[at(k)] += g.as<double>()[at(exclusive ? i + 1 : i)] * others;
                }
                before *= x.as<double>()[at(k)];
            }
        }
    give_doubles(call, 0, d);
}

inline constexpr product_entry feature_products[] = {
    {"", "Det", 11, det_product},
    {"", "CumProd", 26, cumulative_product_product},
    {"ai.onnx.ml", "Scaler", 1, scaler_product},
    {"ai.onnx.ml", "Imputer", 1, imputer_product},
    {"ai.onnx.ml", "Normalizer", 1, normalizer_product},
    {"ai.onnx.ml", "LinearRegressor", 1, linear_regressor_product},
};

}  // namespace qk::graph::gradient
