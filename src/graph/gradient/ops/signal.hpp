// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of DFT and STFT. A Fourier sum is linear; its product is the Fourier sum with the other sign in the exponent.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/ops/signal.hpp"

namespace qk::graph::gradient {

/// Gives `values` as the gradient of input i.
inline void give_doubles(backward_call& call, std::size_t i, const std::vector<double>& values) {
    if (!call.wants(i)) return;
    tensor t(data_type::float64, call.input(i).shape());
    std::copy(values.begin(), values.end(), t.as<double>().begin());
    call.give(i, t);
}

inline void dft_backward(backward_call& call) {
    op_context context = call.context();
    const tensor& x = call.input(0);
    const node_view& node = call.node();
    const std::size_t axis = ops::dft_axis(context);
    const bool inverse = node.get_int("inverse", 0) != 0, half_given = inverse && node.get_int("onesided", 0) != 0;
    const auto n = static_cast<std::size_t>(ops::dft_length(context, axis, half_given));
    const tensor g = as_real<double>(call.gradient());
    const auto parts = static_cast<std::size_t>(x.shape().back()), out_parts = static_cast<std::size_t>(g.shape().back());
    const ops::axis_split s = ops::split_at(x.shape(), axis);
    const std::size_t inner = s.inner / parts, out_length = static_cast<std::size_t>(g.dim(axis));
    std::vector<double> d(x.size(), 0.0);
    for (std::size_t o = 0; o < s.outer; ++o)
        for (std::size_t j = 0; j < inner; ++j) {
            ops::complex_row row(n);
            for (std::size_t i = 0; i < out_length; ++i) {
                const double* at = g.as<double>().data() + ((o * out_length + i) * inner + j) * out_parts;
                row[i] = {at[0], out_parts == 2 ? at[1] : 0.0};
                if (inverse) row[i] /= static_cast<double>(n);
            }
            row = ops::fourier(row, inverse ? -1 : 1);
            if (half_given) {  // the other half was the conjugate of this one
                for (std::size_t i = n / 2 + 1; i < n; ++i) row[n - i] += std::conj(row[i]), row[i] = 0;
                row[0].imag(0);
                if (n % 2 == 0) row[n / 2].imag(0);
            }
            for (std::size_t i = 0; i < std::min(n, s.length); ++i) {
                double* at = &d[((o * s.length + i) * inner + j) * parts];
                at[0] = row[i].real();
                if (parts == 2) at[1] = row[i].imag();
            }
        }
    give_doubles(call, 0, d);
}

inline void stft_backward(backward_call& call) {
    op_context context = call.context();
    const tensor &x = call.input(0), values = call.real<double>(0), g = as_real<double>(call.gradient());
    const auto step = static_cast<std::size_t>(ops::scalar_value<std::int64_t>(context, call.input(1)));
    const tensor window = call.optional_real<double>(2);
    const auto n = static_cast<std::size_t>(call.has_input(3) ? ops::scalar_value<std::int64_t>(context, call.input(3))
                                            : window.empty()  ? x.dim(1)
                                                              : static_cast<std::int64_t>(window.size()));
    const std::size_t parts = x.rank() == 3 ? static_cast<std::size_t>(x.dim(2)) : 1, signal = static_cast<std::size_t>(x.dim(1));
    const auto frames = static_cast<std::size_t>(g.dim(1)), bins = static_cast<std::size_t>(g.dim(2));
    std::vector<double> d(x.size(), 0.0), by_window(n, 0.0);
    for (std::size_t b = 0; b < static_cast<std::size_t>(x.dim(0)); ++b)
        for (std::size_t f = 0; f < frames; ++f) {
            ops::complex_row row(n);
            for (std::size_t i = 0; i < bins; ++i) {
                const double* at = g.as<double>().data() + ((b * frames + f) * bins + i) * 2;
                row[i] = {at[0], at[1]};
            }
            row = ops::fourier(row, 1);
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t at = (b * signal + f * step + i) * parts;
                const double w = window.empty() ? 1.0 : window.as<double>()[i], part[2] = {row[i].real(), row[i].imag()};
                for (std::size_t k = 0; k < parts; ++k) {
                    d[at + k] += part[k] * w;
                    by_window[i] += part[k] * values.as<double>()[at + k];
                }
            }
        }
    give_doubles(call, 0, d);
    if (!window.empty()) give_doubles(call, 2, by_window);
}

inline constexpr backward_entry signal_backward_rows[] = {
    {"", "DFT", 17, dft_backward},
    {"", "STFT", 17, stft_backward},
};

}  // namespace qk::graph::gradient
