// SPDX-License-Identifier: Apache-2.0
// Gradients through fake_quantize, for quantization-aware training.
//
// Straight-through estimator: rounding counts as the identity, clipping as a stop. dy/dx is 1 where x is within the range of the format
// (of its scale), else 0; NaN inputs get 0. Scale and zero point are learned as in LSQ (Esser et al., arXiv 1902.08153, eq. 3) and
// LSQ+ (Bhalgat et al., arXiv 2004.09576, eq. 4):
//
//   y = (q - z) s    dy/ds = round(x / s) - x / s  inside, q_limit - z  outside        dy/dz = 0  inside, -s  outside
//
// Contract: spans of equal length, grad_in may be grad_out or x; nothing is allocated or thrown. Sums are taken in double, in order.
// Preconditions as in fake_quantize.hpp, asserted likewise; no_format lets no gradient through.
#pragma once

#include "qk/exact/begin.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "qk/fake_quantize.hpp"
#include "qk/formats/facts.hpp"

namespace qk {

/// Gradients of the loss with respect to scale and zero point, summed over the span.
struct scale_gradient {
    double scale = 0;
    double zero_point = 0;
};

/// Writes grad_out where x is within the range of the format, else 0. The range ends at the largest value itself, though half a step beyond
/// it still rounds to it. Block formats follow their data, so only Inf and NaN are clipped.
template <auto Format, class Arch = native>
void fake_quantize_backward(std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in) noexcept;

/// Does that under a scale (integer, floating), and returns the gradients by scale and zero point. LSQ multiplies these by a factor of its
/// own, 1 / sqrt(n * qmax), which is left to the caller.
template <auto Format, class Arch = native>
scale_gradient fake_quantize_backward(std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in, affine scale,
                                      const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
scale_gradient fake_quantize_backward(const format& f, std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in,
                                      affine scale = {}, const semantics& how = semantics::ocp) noexcept;

/// Every other call does not compile, and says why (wrong_use.hpp).
template <auto Format, class Arch = native, class X, class G, class Y, class... P>
requires(!detail::readable_floats<X> || !detail::readable_floats<G> ||
         !detail::writable_floats<Y>) void fake_quantize_backward(X&&, G&&, Y&&, P&&...) {
    if constexpr (!detail::readable_floats<X>) detail::refuse_input<X>();
    else detail::refuse_call<G, Y>();
}
template <class Arch = native, class F, class X, class G, class Y, class... P>
requires(!detail::format_value<F> || !detail::readable_floats<X> || !detail::readable_floats<G> ||
         !detail::writable_floats<Y>) void fake_quantize_backward(F&&, X&&, G&&, Y&&, P&&...) {
    if constexpr (!detail::format_value<F>) detail::refuse_format<F>();
    else if constexpr (!detail::readable_floats<X>) detail::refuse_input<X>();
    else detail::refuse_call<G, Y>();
}

// ---- implementation

namespace detail {

template <class Arch, class Format>
scale_gradient backward(const Format& f, std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in, affine a,
                        const semantics& how) noexcept {
    expect_format(f);
    expect_arrays(grad_out, grad_in);
    assert(x.size() == grad_out.size() && "qk: x must have as many values as its gradients");
    assert(is_there(x.data(), x.size()) && "qk: x is a null pointer");
    assert((x.data() == grad_in.data() || are_apart(x.data(), x.size_bytes(), grad_in.data(), grad_in.size_bytes())) &&
           "qk: grad_in must be x itself or not overlap it");
    scale_gradient total;
    if constexpr (kernels::is_block_family<Format>) {
        for (std::size_t i = 0; i < x.size(); ++i) grad_in[i] = is_finite(x[i]) ? grad_out[i] : 0.0f;
        return total;
    } else {
        expect_scale(f, a);
        if (is_answered_by_nan(f, grad_in)) {
            std::fill(grad_in.begin(), grad_in.end(), 0.0f);
            return total;
        }
        const format_facts k = facts(f);
        double zero = 0;
        if constexpr (std::is_same_v<Format, integer>) zero = static_cast<double>(a.zero_point);
        const double s = static_cast<double>(a.scale), lowest = k.lowest - zero, highest = k.largest - zero;
        constexpr std::size_t piece = 256;
        alignas(64) float y[piece];
        for (std::size_t first = 0; first < x.size(); first += piece) {
            const std::size_t n = std::min(piece, x.size() - first);
            kernels::run_uniform<Arch>(f, x.data() + first, y, n, 0, a.scale, a.zero_point, from_element(how, first), true);
            for (std::size_t i = 0; i < n; ++i) {
                const double g = static_cast<double>(grad_out[first + i]), v = static_cast<double>(x[first + i]) / s;
                const bool inside = v >= lowest && v <= highest;
                grad_in[first + i] = inside ? grad_out[first + i] : 0.0f;
                if (v != v) continue;
                total.scale += g * (inside ? static_cast<double>(y[i]) / s - v : v < lowest ? lowest : highest);
                if constexpr (std::is_same_v<Format, integer>) total.zero_point += inside ? 0 : -s * g;
            }
        }
        return total;
    }
}

}  // namespace detail

template <auto Format, class Arch>
void fake_quantize_backward(std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in) noexcept {
    if constexpr (detail::is_valid<Format>()) detail::backward<Arch>(Format, x, grad_out, grad_in, affine{}, semantics::ocp);
}
template <auto Format, class Arch>
scale_gradient fake_quantize_backward(std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in, affine scale,
                                      const semantics& how) noexcept {
    static_assert(!kernels::is_block_family<std::remove_const_t<decltype(Format)>>,
                  "block formats take their scales from the data: call without a scale");
    if constexpr (detail::is_valid<Format>()) return detail::backward<Arch>(Format, x, grad_out, grad_in, scale, how);
    return {};
}
template <class Arch>
scale_gradient fake_quantize_backward(const format& f, std::span<const float> x, std::span<const float> grad_out, std::span<float> grad_in,
                                      affine scale, const semantics& how) noexcept {
    return detail::with_family(f, [&](const auto& g) { return detail::backward<Arch>(g, x, grad_out, grad_in, scale, how); });
}

}  // namespace qk

#include "qk/exact/end.hpp"
