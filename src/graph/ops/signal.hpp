// SPDX-License-Identifier: Apache-2.0
// Implements DFT, STFT, window functions and MelWeightMatrix, all computed in double.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Sets output 0 of `type` (also float16 and bfloat16) from doubles.
inline void output_as(op_context& call, data_type type, const dims& shape, const std::vector<double>& values) {
    tensor y = call.scratch(is_narrow_float(type) ? data_type::float32 : type, shape);
    dispatch(call, y.type(), number_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < values.size(); ++i) y.as<T>()[i] = number_as<T>(values[i]);
    });
    call.set_output(0, is_narrow_float(type) ? narrowed(call, y, type) : y);
}

/// Computes a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), where N is the size (periodic) or one less.
inline void cosine_window(op_context& call, double a0, double a1, double a2) {
    const std::int64_t size = scalar_value<std::int64_t>(call, call.input(0));
    const bool periodic = call.node().get_int("periodic", 1) != 0;
    expect_room(call, {size});
    const double period = static_cast<double>(periodic ? size : size - 1);
    std::vector<double> w(static_cast<std::size_t>(size));
    for (std::size_t n = 0; n < w.size(); ++n) {
        const double phase = period > 0 ? 2 * std::numbers::pi * static_cast<double>(n) / period : 0;
        w[n] = a0 - a1 * std::cos(phase) + a2 * std::cos(2 * phase);
    }
    output_as(call, static_cast<data_type>(call.node().get_int("output_datatype", 1)), {size}, w);
}
inline void hann_window(op_context& call) { cosine_window(call, 0.5, 0.5, 0); }
inline void hamming_window(op_context& call) { cosine_window(call, 25.0 / 46, 21.0 / 46, 0); }
inline void blackman_window(op_context& call) { cosine_window(call, 0.42, 0.5, 0.08); }

using complex_row = std::vector<std::complex<double>>;

inline complex_row fourier(const complex_row& x, double sign);

/// Transforms an odd length by a convolution whose length is a power of two (Bluestein 1970): j k = (j^2 + k^2 - (k - j)^2) / 2.
inline complex_row fourier_odd(const complex_row& x, double sign) {
    const std::size_t n = x.size(), m = std::bit_ceil(2 * n);
    complex_row chirp(n), a(m), b(m);
    for (std::size_t k = 0; k < n; ++k)  // k^2 modulo 2n, so that large angles stay exact
        chirp[k] = std::polar(1.0, sign * std::numbers::pi * static_cast<double>(k * k % (2 * n)) / static_cast<double>(n));
    for (std::size_t k = 0; k < n; ++k) a[k] = x[k] * chirp[k];
    for (std::size_t k = 0; k < n; ++k) b[k] = b[(m - k) % m] = std::conj(chirp[k]);
    a = fourier(a, -1);
    b = fourier(b, -1);
    for (std::size_t k = 0; k < m; ++k) a[k] *= b[k];
    a = fourier(a, 1);
    complex_row y(n);
    for (std::size_t k = 0; k < n; ++k) y[k] = a[k] / static_cast<double>(m) * chirp[k];
    return y;
}

/// Returns y[k] = sum over j of x[j] e^(sign 2 pi i j k / n). Even lengths are halved; odd lengths up to 100 are summed directly.
inline complex_row fourier(const complex_row& x, double sign) {
    const std::size_t n = x.size();
    if (n <= 1) return x;
    complex_row y(n);
    const auto turn = [&](std::size_t k) {
        return std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n));
    };
    if (n % 2 == 0) {
        complex_row even(n / 2), odd(n / 2);
        for (std::size_t i = 0; i < n / 2; ++i) even[i] = x[2 * i], odd[i] = x[2 * i + 1];
        even = fourier(even, sign);
        odd = fourier(odd, sign);
        for (std::size_t k = 0; k < n / 2; ++k) {
            const auto t = turn(k) * odd[k];
            y[k] = even[k] + t;
            y[k + n / 2] = even[k] - t;
        }
    } else if (n > 100) {
        return fourier_odd(x, sign);
    } else {
        for (std::size_t k = 0; k < n; ++k)
            for (std::size_t j = 0; j < n; ++j) y[k] += x[j] * turn(j * k % n);
    }
    return y;
}

inline std::vector<double> as_doubles(op_context& call, const tensor& given) {
    const tensor x = widened(call, given);
    std::vector<double> v(x.size());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(x.as<T>()[i]);
    });
    return v;
}

/// Returns the axis of a DFT: an attribute in opset 17 (default 1), an input since 20 (default -2).
inline std::size_t dft_axis(op_context& call) {
    const std::int64_t given = call.node().version() < 20 ? call.node().get_int("axis", 1)
                               : call.has_input(2)        ? scalar_value<std::int64_t>(call, call.input(2))
                                                          : -2;
    return normal_axis(call, given, call.input(0).rank());
}

/// Returns the length of the transform: input 1, else the axis' length n, or 2 (n - 1) if only half of a spectrum is given (`half_given`).
inline std::int64_t dft_length(op_context& call, std::size_t axis, bool half_given) {
    if (call.has_input(1)) return scalar_value<std::int64_t>(call, call.input(1));
    const std::int64_t length = call.input(0).dim(axis);
    return half_given ? 2 * (length - 1) : length;
}

/// The last axis has length 1 (real) or 2 (real, imaginary).
inline void dft(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() < 2 || x.shape().back() < 1 || x.shape().back() > 2) call.fail("the last axis must be of length 1 or 2");
    const std::size_t axis = dft_axis(call);
    if (axis + 1 == x.rank()) call.fail("the axis of real and imaginary parts cannot be transformed");
    const bool inverse = call.node().get_int("inverse", 0) != 0, onesided = call.node().get_int("onesided", 0) != 0;
    const std::int64_t wanted = dft_length(call, axis, onesided && inverse);
    if (wanted < 1) call.fail("dft_length is not positive");
    expect_room(call, {wanted, 16});
    const auto n = static_cast<std::size_t>(wanted);
    const auto parts = static_cast<std::size_t>(x.shape().back());
    const axis_split s = split_at(x.shape(), axis);
    const std::size_t inner = s.inner / parts, out_parts = onesided && inverse ? 1 : 2, out_length = onesided && !inverse ? n / 2 + 1 : n;
    const auto from = as_doubles(call, x);
    dims shape = x.shape();
    shape[axis] = static_cast<std::int64_t>(out_length);
    shape.back() = static_cast<std::int64_t>(out_parts);
    expect_room(call, shape);
    std::vector<double> to(element_count(shape));
    for (std::size_t o = 0; o < s.outer; ++o)
        for (std::size_t j = 0; j < inner; ++j) {
            complex_row row(n);
            for (std::size_t i = 0; i < std::min(n, s.length); ++i) {
                const double* at = &from[((o * s.length + i) * inner + j) * parts];
                row[i] = {at[0], parts == 2 ? at[1] : 0.0};
            }
            if (onesided && inverse) {  // the other half is the conjugate of the given one
                for (std::size_t i = n / 2 + 1; i < n; ++i) row[i] = std::conj(row[n - i]);
                row[0].imag(0);
                if (n % 2 == 0) row[n / 2].imag(0);
            }
            const complex_row result = fourier(row, inverse ? 1 : -1);
            for (std::size_t i = 0; i < out_length; ++i) {
                const auto v = inverse ? result[i] / static_cast<double>(n) : result[i];
                double* at = &to[((o * out_length + i) * inner + j) * out_parts];
                at[0] = v.real();
                if (out_parts == 2) at[1] = v.imag();
            }
        }
    output_as(call, x.type(), shape, to);
}

inline void stft(op_context& call) {
    const tensor& x = call.input(0);  // [batch, length, 1 or 2], or [batch, length]
    if (x.rank() < 2 || x.rank() > 3) call.fail("the signal is not of the form batch, length, parts");
    const std::int64_t step = scalar_value<std::int64_t>(call, call.input(1));
    std::vector<double> window;
    if (call.has_input(2)) window = as_doubles(call, call.input(2));
    const std::int64_t length = call.has_input(3) ? scalar_value<std::int64_t>(call, call.input(3))
                                : window.empty()  ? x.dim(1)
                                                  : static_cast<std::int64_t>(window.size());
    if (step < 1 || length < 1 || length > x.dim(1))
        call.fail("frame_step and frame_length must be positive, and a frame no longer than the signal");
    if (window.empty()) window.assign(static_cast<std::size_t>(length), 1.0);
    if (window.size() != static_cast<std::size_t>(length)) call.fail("the window is not as long as a frame");
    const auto n = static_cast<std::size_t>(length), signal = static_cast<std::size_t>(x.dim(1)),
               batches = static_cast<std::size_t>(x.dim(0));
    const std::size_t parts = x.rank() == 3 ? static_cast<std::size_t>(x.dim(2)) : 1,
                      frames = (signal - n) / static_cast<std::size_t>(step) + 1;
    if (parts < 1 || parts > 2) call.fail("the last axis must be of length 1 or 2");
    const std::size_t bins = call.node().get_int("onesided", 1) != 0 ? n / 2 + 1 : n;
    const auto from = as_doubles(call, x);
    expect_room(call, {x.dim(0), static_cast<std::int64_t>(frames), static_cast<std::int64_t>(bins), 2});
    std::vector<double> to;
    for (std::size_t b = 0; b < batches; ++b)
        for (std::size_t f = 0; f < frames; ++f) {
            complex_row row(n);
            for (std::size_t i = 0; i < n; ++i) {
                const double* at = &from[(b * signal + f * static_cast<std::size_t>(step) + i) * parts];
                row[i] = std::complex<double>(at[0], parts == 2 ? at[1] : 0.0) * window[i];
            }
            const complex_row result = fourier(row, -1);
            for (std::size_t i = 0; i < bins; ++i) to.push_back(result[i].real()), to.push_back(result[i].imag());
        }
    output_as(call, x.type(), {x.dim(0), static_cast<std::int64_t>(frames), static_cast<std::int64_t>(bins), 2}, to);
}

/// Computes triangles of height 1 whose corners are evenly spaced on the mel scale and lie on spectrogram bins.
inline void mel_weight_matrix(op_context& call) {
    const std::int64_t mel_bins = scalar_value<std::int64_t>(call, call.input(0)), length = scalar_value<std::int64_t>(call, call.input(1));
    const double rate = scalar_value<double>(call, call.input(2)), lower = scalar_value<double>(call, call.input(3)),
                 upper = scalar_value<double>(call, call.input(4));
    if (mel_bins < 1 || length < 1 || !(rate > 0)) call.fail("the numbers of bins and the sample rate must be positive");
    const std::int64_t bins = length / 2 + 1;
    expect_room(call, {bins, mel_bins});
    std::vector<double> w(element_count(dims{bins, mel_bins}));
    const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
    const double low = mel(lower), width = (mel(upper) - low) / static_cast<double>(mel_bins + 2);
    const auto corner = [&](std::int64_t i) {
        const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * width + low) / 2595) - 1);
        const double bin = std::floor(static_cast<double>(length + 1) * hertz / rate);
        if (!(bin >= 0 && bin < static_cast<double>(bins))) call.fail("a triangle reaches beyond the spectrogram");
        return static_cast<std::int64_t>(bin);
    };
    const auto at = [&](std::int64_t j, std::int64_t i) -> double& { return w[static_cast<std::size_t>(j * mel_bins + i)]; };
    for (std::int64_t i = 0; i < mel_bins; ++i) {
        const std::int64_t left = corner(i), centre = corner(i + 1), right = corner(i + 2);
        if (left == centre) at(centre, i) = 1;
        for (std::int64_t j = left; left != centre && j <= centre; ++j)
            at(j, i) = static_cast<double>(j - left) / static_cast<double>(centre - left);
        for (std::int64_t j = centre; j < right; ++j) at(j, i) = static_cast<double>(right - j) / static_cast<double>(right - centre);
    }
    output_as(call, static_cast<data_type>(call.node().get_int("output_datatype", 1)), {bins, mel_bins}, w);
}

inline type_source window_types(const onnx::NodeProto& n, int) {
    return {-1, static_cast<data_type>(graph::detail::int_attribute(n, "output_datatype", static_cast<std::int64_t>(data_type::float32)))};
}

inline constexpr op_entry signal_ops[] = {
    {"", "HannWindow", 17, hann_window, nullptr, {}, {.types = window_types}},
    {"", "HammingWindow", 17, hamming_window, nullptr, {}, {.types = window_types}},
    {"", "BlackmanWindow", 17, blackman_window, nullptr, {}, {.types = window_types}},
    {"", "DFT", 17, dft, nullptr, {follow_dft}},
    {"", "STFT", 17, stft, nullptr, {follow_stft}},
    {"", "MelWeightMatrix", 17, mel_weight_matrix, nullptr, {}, {.types = window_types}},
};

}  // namespace qk::graph::ops
