// SPDX-License-Identifier: Apache-2.0
// Gradients through fake_quantize, for quantization-aware training.
//
// Straight-through estimator: rounding counts as the identity, clipping as a stop. dy/dx is 1 where x is within the range of the format
// (of its scale), else 0; NaN inputs get 0. Scale and zero point are learned as in LSQ (Esser et al., arXiv 1902.08153, eq. 3) and
// LSQ+ (Bhalgat et al., arXiv 2004.09576, eq. 4):
//
//   y = (q - z) s    dy/ds = round(x / s) - x / s  inside, q_limit - z  outside        dy/dz = 0  inside, -s  outside
//
// Contract: x and both gradients are float, float16 or bfloat16 (values_in, values_out: with a pitch, too), each of its own type, and of
// equal length; grad_in may be grad_out or x; nothing is allocated or thrown. Sums are taken in double, in the order of the array.
// Preconditions as in fake_quantize.hpp, asserted likewise; no_format lets no gradient through.
#pragma once

#include "qk/exact/begin.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "qk/fake_quantize.hpp"
#include "qk/formats/facts.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

/// Writes grad_out where x is within the range of the format, else 0. The range ends at the largest value itself, though half a step beyond
/// it still rounds to it. Block formats follow their data, so only Inf and NaN are clipped.
template <auto Format, class Arch = native>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in) noexcept;

/// Does that under a scale (integer, floating), and returns the gradients by scale and zero point. LSQ multiplies these by a factor of its
/// own, 1 / sqrt(n * qmax), which is left to the caller.
template <auto Format, class Arch = native>
scale_gradient fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, affine scale,
                                      const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
scale_gradient fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, affine scale = {},
                                      const semantics& how = semantics::ocp) noexcept;

/// Does that under a scale for each channel or block, and writes the gradients by each of them to `by`.
template <auto Format, class Arch = native>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, const per_channel& scales, scale_gradients by = {},
                            const semantics& how = semantics::ocp) noexcept;
template <auto Format, class Arch = native>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, const per_block& scales, scale_gradients by = {},
                            const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_channel& scales,
                            scale_gradients by = {}, const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_block& scales,
                            scale_gradients by = {}, const semantics& how = semantics::ocp) noexcept;

/// Every other call does not compile, and says why (wrong_use.hpp).
template <auto Format, class Arch = native, class X, class G, class Y, class... P>
requires(!detail::is_input<X> || !detail::is_input<G> || !detail::is_output<Y>) void fake_quantize_backward(X&&, G&&, Y&&, P&&...) {
    wrong_use::of_arrays<std::conditional_t<detail::is_input<X>, G, X>, Y>();
}
template <class Arch = native, class F, class X, class G, class Y, class... P>
requires(!detail::format_value<F> || !detail::is_input<X> || !detail::is_input<G> ||
         !detail::is_output<Y>) void fake_quantize_backward(F&&, X&&, G&&, Y&&, P&&...) {
    if constexpr (!detail::format_value<F>) wrong_use::of_format<F>();
    else wrong_use::of_arrays<std::conditional_t<detail::is_input<X>, G, X>, Y>();
}

}  // namespace QK_ISA

// ---- implementation

namespace detail {
inline namespace QK_ISA {

inline constexpr std::size_t backward_piece = 256;

/// Returns n numbers from `first` on: where they lie, or copied to `room`.
template <class Arch>
QK_INLINE const float* numbers_at(const values_in& x, std::size_t first, std::size_t n, float* room) {
    if (x.floats() != nullptr) return x.floats() + first;
    x.copy<Arch>(first, n, room);
    return room;
}

/// Block formats: only Inf and NaN are clipped.
template <class Arch>
void backward_of_blocks(const values_in& x, const values_in& grad_out, const values_out& grad_in) noexcept {
    alignas(64) float of_x[backward_piece], of_grad[backward_piece];
    for (std::size_t first = 0; first < x.size(); first += backward_piece) {
        const std::size_t n = std::min(backward_piece, x.size() - first);
        const float *v = numbers_at<Arch>(x, first, n, of_x), *g = numbers_at<Arch>(grad_out, first, n, of_grad);
        for (std::size_t i = 0; i < n; ++i) of_grad[i] = is_finite(v[i]) ? g[i] : 0.0f;
        grad_in.copy<Arch>(of_grad, first, n);
    }
}

/// Elementwise formats. kernel(from, to, scaled_piece, semantics of the piece) is fake_quantize. Returns the sums over all scales.
template <class Arch, class Kernel>
scale_gradient backward_of_elements(const format& f, const values_in& x, const values_in& grad_out, const values_out& grad_in,
                                    const codec_parameters& p, const scale_gradients& by, const semantics& how,
                                    const Kernel& kernel) noexcept {
    std::fill(by.scale.begin(), by.scale.end(), 0.0);
    std::fill(by.zero_point.begin(), by.zero_point.end(), 0.0);
    const bool is_whole = is_integer_format(f), is_nan = f == format(no_format);
    const format_facts k = is_nan ? format_facts{} : facts(f);
    scale_gradient total;
    for_each_scaled_piece(p, x.size(), backward_piece, [&](const scaled_piece& piece) {
        alignas(64) float of_x[backward_piece], of_grad[backward_piece], y[backward_piece];
        const float *v = numbers_at<Arch>(x, piece.first, piece.n, of_x), *g = numbers_at<Arch>(grad_out, piece.first, piece.n, of_grad);
        if (is_nan) std::fill(y, y + piece.n, 0.0f);
        else kernel(v, y, piece, from_element(how, piece.first));
        for (std::size_t entry = 0, i = 0; entry < piece.entries; ++entry) {
            const double zero = is_whole ? static_cast<double>(piece.zero[entry]) : 0.0, s = static_cast<double>(piece.scale[entry]);
            const double lowest = k.lowest - zero, highest = k.largest - zero;
            double& of_scale = by.scale.empty() ? total.scale : by.scale[piece.entry + entry];
            double& of_zero = by.zero_point.empty() ? total.zero_point : by.zero_point[piece.entry + entry];
            for (const std::size_t end = std::min(piece.n, i + piece.group); i < end; ++i) {
                const double slope = static_cast<double>(g[i]), at = static_cast<double>(v[i]) / s;
                const bool inside = !is_nan && at >= lowest && at <= highest;
                of_grad[i] = inside ? g[i] : 0.0f;
                if (is_nan || at != at) continue;
                of_scale += slope * (inside ? static_cast<double>(y[i]) / s - at : at < lowest ? lowest : highest);
                if (is_whole) of_zero += inside ? 0 : -s * slope;
            }
        }
        grad_in.copy<Arch>(of_grad, piece.first, piece.n);
    });
    return total;
}

QK_INLINE void expect_backward(const format& f, [[maybe_unused]] const values_in& x, const values_in& grad_out, const values_out& grad_in,
                               const codec_parameters& p, [[maybe_unused]] const scale_gradients& by) {
    expect_values(f, grad_out, grad_in, is_block_format(f) ? codec_parameters{} : p);
    QK_EXPECT(x.size() == grad_out.size(), "qk: x must have as many values as its gradients");
    QK_EXPECT(is_there(x.memory(), x.size()), "qk: x is a null pointer");
    QK_EXPECT(x.memory() == grad_in.memory() || are_apart(x.memory(), x.bytes(), grad_in.memory(), grad_in.bytes()),
              "qk: grad_in must be x itself or not overlap it");
    QK_EXPECT((by.scale.empty() || by.scale.size() == p.scale.size()) && (by.zero_point.empty() || by.zero_point.size() == p.scale.size()),
              "qk: there must be a gradient for each scale, or none");
}

template <class Arch, class Format>
scale_gradient backward(const Format& f, const values_in& x, const values_in& grad_out, const values_out& grad_in,
                        const codec_parameters& p, const scale_gradients& by, const semantics& how) noexcept {
    if constexpr (kernels::is_block_family<Format>) {
        backward_of_blocks<Arch>(x, grad_out, grad_in);
        return {};
    } else {
        return backward_of_elements<Arch>(f, x, grad_out, grad_in, p, by, how, elements_kernel<Arch>(f, p.one_scale()));
    }
}
/// Checks a call whose format is known when compiling, and runs it.
template <auto Format, class Arch>
scale_gradient backward(const values_in& x, const values_in& grad_out, const values_out& grad_in, const codec_parameters& p,
                        const scale_gradients& by, const semantics& how) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format>()) {
        expect_backward(Format, x, grad_out, grad_in, p, by);
        return backward<Arch>(Format, x, grad_out, grad_in, p, by, how);
    }
    return {};
}
template <class Arch>
scale_gradient backward(const format& f, const values_in& x, const values_in& grad_out, const values_out& grad_in,
                        const codec_parameters& p, const scale_gradients& by, const semantics& how) noexcept {
    expect_backward(f, x, grad_out, grad_in, p, by);
    return with_family(f, [&](const auto& g) { return backward<Arch>(g, x, grad_out, grad_in, p, by, how); });
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

template <auto Format, class Arch>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in) noexcept {
    detail::backward<Format, Arch>(x, grad_out, grad_in, affine{}, {}, semantics::ocp);
}
template <auto Format, class Arch>
scale_gradient fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, affine scale, const semantics& how) noexcept {
    static_assert(!kernels::is_block_family<std::remove_const_t<decltype(Format)>>,
                  "block formats take their scales from the data: call without a scale");
    return detail::backward<Format, Arch>(x, grad_out, grad_in, scale, {}, how);
}
template <auto Format, class Arch>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, const per_channel& scales, scale_gradients by,
                            const semantics& how) noexcept {
    static_assert(!kernels::is_block_family<std::remove_const_t<decltype(Format)>>,
                  "block formats take their scales from the data: call without a scale");
    detail::backward<Format, Arch>(x, grad_out, grad_in, scales, by, how);
}
template <auto Format, class Arch>
void fake_quantize_backward(values_in x, values_in grad_out, values_out grad_in, const per_block& scales, scale_gradients by,
                            const semantics& how) noexcept {
    static_assert(!kernels::is_block_family<std::remove_const_t<decltype(Format)>>,
                  "block formats take their scales from the data: call without a scale");
    detail::backward<Format, Arch>(x, grad_out, grad_in, scales, by, how);
}
template <class Arch>
scale_gradient fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, affine scale,
                                      const semantics& how) noexcept {
    return detail::backward<Arch>(f, x, grad_out, grad_in, scale, {}, how);
}
template <class Arch>
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_channel& scales,
                            scale_gradients by, const semantics& how) noexcept {
    detail::backward<Arch>(f, x, grad_out, grad_in, scales, by, how);
}
template <class Arch>
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_block& scales,
                            scale_gradients by, const semantics& how) noexcept {
    detail::backward<Arch>(f, x, grad_out, grad_in, scales, by, how);
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
