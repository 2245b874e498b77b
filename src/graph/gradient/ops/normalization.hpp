// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of normalizations: over rows (LayerNormalization, RMSNormalization and com.microsoft's), over groups of channels
// (InstanceNormalization, GroupNormalization), over the batch (BatchNormalization), and those without parameters.
//
// With n = (x - mean) / deviation and h the gradient of n: dx = (h - mean(h) - n * mean(h * n)) / deviation; RMS has no mean(h).
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/layer_normalization.hpp"
#include "graph/ops/lp_normalization.hpp"
#include "graph/ops/sums.hpp"

namespace qk::graph::gradient {

/// Writes n and dx of a row of x, from h. Neither may be x.
template <class T>
void normalized_row_gradient(const T* x, const T* h, std::size_t length, double epsilon, bool centered, T* n, T* dx) {
    const double count = static_cast<double>(std::max<std::size_t>(length, 1));
    double mean = 0, variance = 0, sum = 0, product = 0;
    if (centered) {
        for (std::size_t i = 0; i < length; ++i) mean += static_cast<double>(x[i]);
        mean /= count;
    }
    for (std::size_t i = 0; i < length; ++i) variance += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
    const double inverse = 1 / std::sqrt(variance / count + epsilon);
    for (std::size_t i = 0; i < length; ++i) {
        n[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * inverse);
        sum += static_cast<double>(h[i]);
        product += static_cast<double>(h[i]) * static_cast<double>(n[i]);
    }
    if (!centered) sum = 0;
    for (std::size_t i = 0; i < length; ++i)
        dx[i] = static_cast<T>((static_cast<double>(h[i]) - sum / count - static_cast<double>(n[i]) * product / count) * inverse);
}

/// Returns the shape in which a parameter is broadcast over x: that of a row if it holds a whole row in another shape.
inline dims row_shape(const tensor& parameter, const dims& x, std::size_t axis) {
    const dims inner(x.begin() + static_cast<std::ptrdiff_t>(axis), x.end());
    if (parameter.size() == element_count(inner) && parameter.rank() <= inner.size()) return inner;
    return parameter.shape();
}

/// Returns dx of x normalized over the axes from `axis`, times input `scale`, plus input `bias` (-1: the node has none), and gives the
/// gradients of these two.
template <class T>
tensor row_normalization(backward_call& call, const tensor& x, std::size_t axis, int scale, int bias, double epsilon, bool centered) {
    const auto has = [&](int i) { return i >= 0 && call.has_input(static_cast<std::size_t>(i)); };
    const tensor& g = call.gradient();
    const std::size_t rows = ops::product(x.shape(), 0, axis), length = ops::product(x.shape(), axis, x.rank());
    tensor h = g;
    tensor factor;
    dims factor_shape;
    if (has(scale)) {
        factor = call.real<T>(static_cast<std::size_t>(scale));
        factor_shape = row_shape(factor, x.shape(), axis);
        h = tensor(type_of<T>, x.shape());
        each_broadcast(x.shape(), factor_shape, [&](std::size_t i, std::size_t j) { h.as<T>()[i] = g.as<T>()[i] * factor.as<T>()[j]; });
    }
    tensor n(type_of<T>, x.shape()), dx(type_of<T>, x.shape());
    for (std::size_t r = 0; r < rows; ++r)
        normalized_row_gradient(x.as<T>().data() + r * length, std::as_const(h).as<T>().data() + r * length, length, epsilon, centered,
                                n.as<T>().data() + r * length, dx.as<T>().data() + r * length);
    if (has(scale) && call.wants(static_cast<std::size_t>(scale))) {
        for (std::size_t i = 0; i < n.size(); ++i) n.as<T>()[i] *= g.as<T>()[i];
        call.give(static_cast<std::size_t>(scale), reduced_to<T>(n, factor_shape));
    }
    if (has(bias) && call.wants(static_cast<std::size_t>(bias)))
        call.give(static_cast<std::size_t>(bias), reduced_to<T>(g, row_shape(call.input(static_cast<std::size_t>(bias)), x.shape(), axis)));
    return dx;
}

inline void only_first_gradient(const backward_call& call, const char* others) {
    for (std::size_t k = 1; k < call.output_count(); ++k)
        if (call.has_gradient(k)) call.fail(std::string("a gradient through ") + others + " is not supported");
}

template <bool Centered>
void row_normalization_backward(backward_call& call) {
    only_first_gradient(call, "the outputs Mean and InvStdDev");
    with_gradient_type(call, [&]<class T>(T) {
        const std::size_t axis = ops::normal_axis(call.context(), call.node().get_int("axis", -1), call.input(0).rank());
        call.give(0, row_normalization<T>(call, call.real<T>(0), axis, 1, Centered ? 2 : -1,
                                          static_cast<double>(call.node().get_float("epsilon", 1e-5f)), Centered));
    });
}

inline void group_normalization_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), scale = call.real<T>(1), &g = call.gradient();
        const auto channels = static_cast<std::size_t>(x.dim(1));
        const std::size_t groups =
            operator_of(call.node()) == "InstanceNormalization" ? channels : static_cast<std::size_t>(call.node().get_int("num_groups", 1));
        const std::size_t per_group = channels / groups, positions = ops::product(x.shape(), 2, x.rank()), length = per_group * positions;
        const auto epsilon = static_cast<double>(call.node().get_float("epsilon", 1e-5f));
        std::vector<double> dscale(scale.size(), 0.0), dbias(call.input(2).size(), 0.0);
        tensor dx(type_of<T>, x.shape());
        std::vector<T> h(length), n(length);
        for (std::size_t k = 0; k < static_cast<std::size_t>(x.dim(0)) * groups; ++k) {
            const T* from = g.as<T>().data() + k * length;
            // A scale or bias has one value per channel, or one per group.
            const auto at = [&](std::size_t values, std::size_t i) {
                return values == channels ? k % groups * per_group + i / positions : k % groups;
            };
            for (std::size_t i = 0; i < length; ++i) h[i] = from[i] * scale.as<T>()[at(scale.size(), i)];
            normalized_row_gradient(x.as<T>().data() + k * length, h.data(), length, epsilon, true, n.data(),
                                    dx.as<T>().data() + k * length);
            for (std::size_t i = 0; i < length; ++i) {
                dscale[at(dscale.size(), i)] += static_cast<double>(from[i]) * static_cast<double>(n[i]);
                dbias[at(dbias.size(), i)] += static_cast<double>(from[i]);
            }
        }
        call.give(0, dx);
        call.give(1, rounded_sums<T>(dscale, call.input(1).shape()));
        call.give(2, rounded_sums<T>(dbias, call.input(2).shape()));
    });
}

inline void batch_normalization_backward(backward_call& call) {
    only_first_gradient(call, "the running mean and variance");
    const int version = call.node().version();
    const bool training = version >= 14 ? call.node().get_int("training_mode", 0) != 0
                                        : version < 7 && call.node().get_int("is_test", 0) == 0 && call.output_count() > 1;
    const double epsilon = static_cast<double>(call.node().get_float("epsilon", 1e-5f));
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), scale = call.real<T>(1), mean = call.real<T>(3), variance = call.real<T>(4);
        const std::size_t samples = static_cast<std::size_t>(x.dim(0)), channels = scale.size();
        const std::size_t plane = samples * channels == 0 ? 0 : x.size() / (samples * channels);
        tensor dx(type_of<T>, x.shape());
        std::vector<tensor> d(5);
        for (std::size_t i = 1; i < 5; ++i) d[i] = zeros<T>(scale.shape());
        const bool of_constants = call.wants(1) || call.wants(2) || call.wants(3) || call.wants(4);
        std::vector<T> values(training ? samples * plane : 0), h(values.size()), n(values.size()), to(values.size());
        for (std::size_t c = 0; c < channels; ++c) {
            const auto each = [&](auto f) {
                for (std::size_t b = 0; b < samples; ++b)
                    for (std::size_t i = 0; i < plane; ++i) f((b * channels + c) * plane + i, b * plane + i);
            };
            const double factor = static_cast<double>(scale.as<T>()[c]), centre = static_cast<double>(mean.as<T>()[c]);
            const double spread = static_cast<double>(variance.as<T>()[c]) + epsilon, inverse = 1 / std::sqrt(spread);
            double sum = 0, product = 0;
            if (training) {
                each([&](std::size_t at, std::size_t i) {
                    values[i] = x.as<T>()[at];
                    h[i] = call.gradient().as<T>()[at] * scale.as<T>()[c];
                });
                normalized_row_gradient(values.data(), h.data(), values.size(), epsilon, true, n.data(), to.data());
                each([&](std::size_t at, std::size_t i) {
                    dx.as<T>()[at] = to[i];
                    sum += static_cast<double>(call.gradient().as<T>()[at]);
                    product += static_cast<double>(call.gradient().as<T>()[at]) * static_cast<double>(n[i]) / inverse;
                });
            } else {
                const T slope = static_cast<T>(factor * inverse);
                for (std::size_t b = 0; b < samples; ++b) {
                    const T *g = call.gradient().as<T>().data() + (b * channels + c) * plane,
                            *v = x.as<T>().data() + (b * channels + c) * plane;
                    T* out = dx.as<T>().data() + (b * channels + c) * plane;
                    for (std::size_t i = 0; i < plane; ++i) out[i] = g[i] * slope;
                    if (!of_constants) continue;
                    sum += ops::lane_sum<double>(plane, [&](std::size_t i) { return static_cast<double>(g[i]); });
                    product += ops::lane_sum<double>(
                        plane, [&](std::size_t i) { return static_cast<double>(g[i]) * (static_cast<double>(v[i]) - centre); });
                }
                d[3].as<T>()[c] = static_cast<T>(-sum * factor * inverse);
                d[4].as<T>()[c] = static_cast<T>(-product * factor * inverse / (2 * spread));
            }
            d[1].as<T>()[c] = static_cast<T>(product * inverse);
            d[2].as<T>()[c] = static_cast<T>(sum);
        }
        call.give(0, dx);
        for (std::size_t i = 1; i < 5; ++i) call.give(i, d[i]);
    });
}

/// x / |x| along an axis: dx = (g - slope of the norm * sum(g * y)) / norm.
inline void lp_normalization_backward(backward_call& call) {
    const bool one = call.node().get_int("p", 2) == 1;
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        const ops::axis_split s = ops::split_at(x.shape(), ops::normal_axis(call.context(), call.node().get_int("axis", -1), x.rank()));
        tensor dx = zeros<T>(x.shape());
        for (std::size_t o = 0; o < s.outer && x.size() != 0; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const auto at = [&](std::size_t k) { return (o * s.length + k) * s.inner + j; };
                double norm = 0, product = 0;
                for (std::size_t k = 0; k < s.length; ++k) {
                    const auto v = static_cast<double>(x.as<T>()[at(k)]);
                    norm += one ? std::abs(v) : v * v;
                    product += static_cast<double>(call.gradient().as<T>()[at(k)]) * static_cast<double>(y.as<T>()[at(k)]);
                }
                if (!one) norm = std::sqrt(norm);
                for (std::size_t k = 0; norm != 0 && k < s.length; ++k) {
                    const auto v = static_cast<double>(x.as<T>()[at(k)]);
                    const double slope = one ? static_cast<double>((v > 0) - (v < 0)) : v / norm;
                    dx.as<T>()[at(k)] = static_cast<T>((static_cast<double>(call.gradient().as<T>()[at(k)]) - slope * product) / norm);
                }
            }
        call.give(0, dx);
    });
}

/// y = x * s^-beta with s = bias + alpha / size * sum of squares of neighbours.
inline void lrn_backward(backward_call& call) {
    const node_view& node = call.node();
    const std::int64_t size = node.get_int("size", 1), before = (size - 1) / 2, after = size - 1 - before;
    const double factor = static_cast<double>(node.get_float("alpha", 0.0001f)) / static_cast<double>(size),
                 beta = static_cast<double>(node.get_float("beta", 0.75f)), bias = static_cast<double>(node.get_float("bias", 1.0f));
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0);
        const std::int64_t channels = x.dim(1);
        const std::size_t positions = ops::product(x.shape(), 2, x.rank());
        tensor dx(type_of<T>, x.shape());
        std::vector<double> s(static_cast<std::size_t>(channels)), ratio(s.size());
        for (std::int64_t b = 0; b < x.dim(0); ++b)
            for (std::size_t p = 0; p < positions; ++p) {
                const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(b * channels + c) * positions + p; };
                for (std::int64_t c = 0; c < channels; ++c) {
                    double sum = 0;
                    for (std::int64_t k = std::max<std::int64_t>(0, c - before); k <= std::min(channels - 1, c + after); ++k)
                        sum += static_cast<double>(x.as<T>()[at(k)]) * static_cast<double>(x.as<T>()[at(k)]);
                    const auto i = static_cast<std::size_t>(c);
                    s[i] = bias + factor * sum;
                    ratio[i] = static_cast<double>(call.gradient().as<T>()[at(c)]) * static_cast<double>(x.as<T>()[at(c)]) *
                               std::pow(s[i], -beta - 1);
                }
                for (std::int64_t c = 0; c < channels; ++c) {
                    double sum = 0;  // over the channels whose sums contain channel c
                    for (std::int64_t k = std::max<std::int64_t>(0, c - after); k <= std::min(channels - 1, c + before); ++k)
                        sum += ratio[static_cast<std::size_t>(k)];
                    dx.as<T>()[at(c)] = static_cast<T>(static_cast<double>(call.gradient().as<T>()[at(c)]) *
                                                           std::pow(s[static_cast<std::size_t>(c)], -beta) -
                                                       2 * factor * beta * static_cast<double>(x.as<T>()[at(c)]) * sum);
                }
            }
        call.give(0, dx);
    });
}

inline void mean_variance_normalization_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0);
        const dims kept = ops::mean_variance_shape(call.context(), x.shape());
        const std::size_t groups = element_count(kept);
        std::vector<std::vector<std::size_t>> members(groups);
        each_broadcast(x.shape(), kept, [&](std::size_t i, std::size_t j) { members[j].push_back(i); });
        tensor dx(type_of<T>, x.shape());
        std::vector<T> values, h, n, d;
        for (const auto& list : members) {
            values.clear(), h.clear();
            for (const std::size_t i : list) values.push_back(x.as<T>()[i]), h.push_back(call.gradient().as<T>()[i]);
            n.resize(list.size()), d.resize(list.size());
            normalized_row_gradient(values.data(), h.data(), list.size(), 1e-18, true, n.data(), d.data());
            for (std::size_t k = 0; k < list.size(); ++k) dx.as<T>()[list[k]] = d[k];
        }
        call.give(0, dx);
    });
}

inline constexpr backward_entry normalization_backward_rows[] = {
    {"", "LayerNormalization", 1, row_normalization_backward<true>},
    {"", "RMSNormalization", 1, row_normalization_backward<false>},
    {"", "SimplifiedLayerNormalization", 1, row_normalization_backward<false>},
    {"com.microsoft", "LayerNormalization", 1, row_normalization_backward<true>},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, row_normalization_backward<false>},
    {"", "InstanceNormalization", 1, group_normalization_backward},
    {"", "GroupNormalization", 1, group_normalization_backward},
    {"", "BatchNormalization", 1, batch_normalization_backward},
    {"", "LpNormalization", 1, lp_normalization_backward},
    {"", "LRN", 1, lrn_backward},
    {"", "MeanVarianceNormalization", 1, mean_variance_normalization_backward},
};

}  // namespace qk::graph::gradient
