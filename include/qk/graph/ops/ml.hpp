// SPDX-License-Identifier: Apache-2.0
// Implements the simple numeric operators of ai.onnx.ml: Binarizer, LabelEncoder, ArrayFeatureExtractor, Scaler, Normalizer, Imputer,
// LinearRegressor.
#pragma once

#include <cmath>
#include <cstring>

#include "qk/graph/ops/gather.hpp"
#include "qk/graph/ops/signal.hpp"

namespace qk::graph::ops {

inline void binarizer(op_context& call) {
    const tensor& x = call.input(0);
    const double threshold = call.node().get_float("threshold", 0);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < x.size(); ++i) y.as<T>()[i] = static_cast<double>(x.as<T>()[i]) > threshold ? T{1} : T{0};
    });
}

/// Returns the keys or values of a LabelEncoder from whichever attribute holds them.
inline tensor encoder_table(op_context& call, const std::string& what) {
    const node_view& node = call.node();
    if (node.has(what + "_tensor")) return node.get_tensor(what + "_tensor");
    if (node.has(what + "_int64s")) {
        const auto v = node.get_ints(what + "_int64s");
        return make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v);
    }
    if (!node.has(what + "_floats")) call.fail("only numbers are supported as " + what);
    const auto v = node.get_floats(what + "_floats");
    return make_tensor<float>({static_cast<std::int64_t>(v.size())}, v);
}

/// Looks up each element by linear search. NaN finds NaN.
inline void label_encoder(op_context& call) {
    const tensor& x = call.input(0);
    const tensor keys = encoder_table(call, "keys"), values = encoder_table(call, "values");
    if (keys.type() != x.type() || keys.size() != values.size()) call.fail("keys need the input's type and as many values");
    tensor otherwise;
    if (call.node().has("default_tensor")) otherwise = call.node().get_tensor("default_tensor");
    else if (values.type() == data_type::float32)
        otherwise = make_tensor<float>({}, std::array{call.node().get_float("default_float", -0.0f)});
    else if (values.type() == data_type::int64)
        otherwise = make_tensor<std::int64_t>({}, std::array{call.node().get_int("default_int64", -1)});
    else
        dispatch(call, values.type(), number_types,
                 [&]<class T>(type_tag<T>) { otherwise = make_tensor<T>({}, std::array{static_cast<T>(std::is_integral_v<T> ? -1 : 0)}); });
    if (otherwise.type() != values.type() || otherwise.size() != 1) call.fail("the default is not one element of the values' type");
    tensor& y = call.output(0, values.type(), x.shape());
    const std::size_t width = size_of(values.type());
    dispatch(call, x.type(), element_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const T v = x.as<T>()[i];
            std::size_t k = 0;
            while (k < keys.size() && !(keys.as<T>()[k] == v || (v != v && keys.as<T>()[k] != keys.as<T>()[k]))) ++k;
            std::memcpy(y.bytes() + i * width, k < keys.size() ? values.bytes() + k * width : otherwise.bytes(), width);
        }
    });
}

inline void array_feature_extractor(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() == 0) call.fail("the input has no axis");
    const auto chosen = int_values(call, call.input(1));
    const std::int64_t length = x.shape().back();
    dims shape = x.shape();
    shape.back() = static_cast<std::int64_t>(chosen.size());
    if (x.rank() == 1) shape.insert(shape.begin(), 1);
    tensor& y = call.output(0, x.type(), shape);
    if (length == 0 && y.size() != 0) call.fail("the last axis is empty: there is nothing to choose from");
    const std::size_t width = size_of(x.type()), rows = length == 0 ? 0 : x.size() / static_cast<std::size_t>(length);
    std::byte* to = y.bytes();
    for (std::size_t r = 0; r < rows; ++r)
        for (const std::int64_t c : chosen)
            std::memcpy(to, x.bytes() + (r * static_cast<std::size_t>(length) + normal_index(call, c, length)) * width, width), to += width;
}

/// Computes f(value, feature) over rows of features. The result is float32.
template <class F>
void each_feature(op_context& call, F f) {
    const tensor& x = call.input(0);
    auto v = as_doubles(call, x);
    const std::size_t features = x.rank() == 0 ? 1 : static_cast<std::size_t>(x.shape().back());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = f(v[i], i % features);
    output_as(call, data_type::float32, x.shape(), v);
}

/// Returns entry i of a list that has one element for all features, or one for each feature.
inline double entry_of(const op_context& call, const std::vector<float>& list, std::size_t i) {
    if (list.size() != 1 && i >= list.size()) call.fail("an attribute has fewer entries than there are features");
    return list[list.size() == 1 ? 0 : i];
}

inline void scaler(op_context& call) {
    const auto scale = call.node().get_floats("scale", {1.0f}), offset = call.node().get_floats("offset", {0.0f});
    each_feature(call, [&](double v, std::size_t i) { return (v - entry_of(call, offset, i)) * entry_of(call, scale, i); });
}

inline void normalizer(op_context& call) {
    const tensor& x = call.input(0);
    const std::string norm = call.node().get_string("norm", "MAX");
    if (norm != "MAX" && norm != "L1" && norm != "L2") call.fail("attribute 'norm' is '" + norm + "'; it can be MAX, L1 or L2");
    auto v = as_doubles(call, x);
    const std::size_t features = x.rank() == 0 ? 1 : static_cast<std::size_t>(x.shape().back());
    for (std::size_t at = 0; features != 0 && at < v.size(); at += features) {
        double divisor = norm == "MAX" ? v[at] : 0;
        for (std::size_t i = at; i < at + features; ++i)
            divisor = norm == "MAX" ? std::max(divisor, v[i]) : norm == "L1" ? divisor + std::abs(v[i]) : divisor + v[i] * v[i];
        if (norm == "L2") divisor = std::sqrt(divisor);
        for (std::size_t i = at; divisor != 0 && i < at + features; ++i) v[i] /= divisor;
    }
    output_as(call, data_type::float32, x.shape(), v);
}

inline void imputer(op_context& call) {
    const tensor& x = call.input(0);
    const bool floating = call.node().has("imputed_value_floats");
    const auto floats = call.node().get_floats("imputed_value_floats");
    const auto integers = call.node().get_ints("imputed_value_int64s");
    const std::size_t entries = floating ? floats.size() : integers.size(),
                      features = x.rank() == 0 ? 1 : static_cast<std::size_t>(x.shape().back());
    if (entries != 1 && entries != features) call.fail("there must be one imputed value, or one for each feature");
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        const T replaced = floating ? number_as<T>(call.node().get_float("replaced_value_float", 0))
                                    : static_cast<T>(call.node().get_int("replaced_value_int64", 0));
        for (std::size_t i = 0; i < x.size(); ++i) {
            const T v = x.as<T>()[i];
            const std::size_t e = entries == 1 ? 0 : i % features;
            const bool hit = v == replaced || (v != v && replaced != replaced);
            y.as<T>()[i] = !hit ? v : floating ? number_as<T>(floats[e]) : static_cast<T>(integers[e]);
        }
    });
}

inline void linear_regressor(op_context& call) {
    const tensor& x = call.input(0);
    if (call.node().get_string("post_transform", "NONE") != "NONE") call.fail("post_transform is not supported");
    if (x.rank() != 2) call.fail("the input is not [samples, features]");
    const auto features = static_cast<std::size_t>(x.dim(1));
    const std::int64_t targets = call.node().get_int("targets", 1);
    const auto coefficients = call.node().get_floats("coefficients"), intercepts = call.node().get_floats("intercepts");
    if (targets < 1 || coefficients.size() != features * static_cast<std::size_t>(targets))
        call.fail("the coefficients do not fit the features");
    const auto v = as_doubles(call, x);
    expect_room(call, {x.dim(0), targets});
    std::vector<double> y;
    for (std::size_t n = 0; n < static_cast<std::size_t>(x.dim(0)); ++n)
        for (std::size_t t = 0; t < static_cast<std::size_t>(targets); ++t) {
            double total = t < intercepts.size() ? static_cast<double>(intercepts[t]) : 0.0;
            for (std::size_t f = 0; f < features; ++f) total += v[n * features + f] * static_cast<double>(coefficients[t * features + f]);
            y.push_back(total);
        }
    output_as(call, data_type::float32, {x.dim(0), targets}, y);
}

inline constexpr op_entry ml_ops[] = {
    {"ai.onnx.ml", "Binarizer", 1, binarizer},
    {"ai.onnx.ml", "LabelEncoder", 2, label_encoder},
    {"ai.onnx.ml", "ArrayFeatureExtractor", 1, array_feature_extractor},
    {"ai.onnx.ml", "Scaler", 1, scaler},
    {"ai.onnx.ml", "Normalizer", 1, normalizer},
    {"ai.onnx.ml", "Imputer", 1, imputer},
    {"ai.onnx.ml", "LinearRegressor", 1, linear_regressor},
};

}  // namespace qk::graph::ops
