// SPDX-License-Identifier: Apache-2.0
// The scales and zero points of a piece of an elementwise tensor, however they are shared.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "qk/formats/codes/unpack.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Holds the scale and zero point of every value of a piece, or one of each when `single`. Points into the parameters given to fill().
template <class Arch>
class scale_tile {
  public:
    const float* scale = nullptr;        ///< one for each value, or one for all
    const std::int64_t* zero = nullptr;  ///< likewise; null: 0
    bool single = true;

    scale_tile() noexcept {}  // leaves the arrays uninitialized
    scale_tile(const scale_tile&) = delete;
    scale_tile& operator=(const scale_tile&) = delete;

    /// Takes the scales of n values from (o, l, i) on, along `length` where inner is 1, else along `inner`.
    QK_APART void fill(const codec_parameters& p, along_axis a, std::size_t o, std::size_t l, std::size_t i, std::size_t n) {
        if (p.one_scale()) {
            scale = &p.one.scale;
            zero = &p.one.zero_point;
            return;
        }
        const bool along = a.inner == 1;
        single = !along && p.group == 0;
        const std::size_t at = p.index(a, o, l, i);
        const bool apart = along && p.group > 1;  // `group` values share an entry
        const bool as_given = !apart && p.scale.data() != nullptr && (p.zero_point.empty() || p.zero_point.data() != nullptr);
        if (as_given) {
            scale = p.scale.data() + at;
            if (!p.zero_point.empty()) zero = p.zero_point.data() + at;
            return;
        }
        const std::size_t count = single ? 1 : n, group = apart ? p.group : 1;
        for (std::size_t k = 0, entry = at; k < count; ++entry) {
            const std::size_t end = std::min(count, k + group - (apart ? (l + k) % group : 0));
            std::fill(own_scale_ + k, own_scale_ + end, p.scale[entry]);
            if (!p.zero_point.empty()) std::fill(own_zero_ + k, own_zero_ + end, p.zero_point[entry]);
            k = end;
        }
        scale = own_scale_;
        if (!p.zero_point.empty()) zero = own_zero_;
    }
    std::int64_t zero_of(std::size_t k) const { return zero == nullptr ? 0 : zero[single ? 0 : k]; }
    /// Is true when all n values have the same zero point.
    QK_APART bool one_zero(std::size_t n) const {
        return single || zero == nullptr || std::all_of(zero, zero + n, [&](std::int64_t z) { return z == zero[0]; });
    }
    /// y = make(x, scale), a vector at a time; x may be y.
    template <class Make>
    QK_INLINE void each(const float* x, float* y, std::size_t n, const Make& make) const {
        constexpr std::size_t w = kernels::lanes<Arch>;
        const kernels::vf<Arch> shared(scale[0]);
        std::size_t k = 0;
        for (; k + w <= n; k += w)
            kernels::store<Arch>(y + k, make(kernels::load<Arch>(x + k), single ? shared : kernels::load<Arch>(scale + k)));
        if (k == n) return;
        const kernels::vf<Arch> last = single ? shared : kernels::load_first<Arch>(scale + k, n - k);
        kernels::store_first<Arch>(y + k, n - k, make(kernels::load_first<Arch>(x + k, n - k), last));
    }
    QK_APART void multiply(float* v, std::size_t n) const {
        if (single && scale[0] == 1.0f) return;
        each(v, v, n, [](kernels::vf<Arch> x, kernels::vf<Arch> s) QK_INLINE_CALL { return x * s; });
    }

  private:
    alignas(64) float own_scale_[tile];
    alignas(64) std::int64_t own_zero_[tile];
};

/// Returns how an elementwise tensor is walked: along its scales, or as one row if it has one scale.
QK_INLINE along_axis walk_of(const codec_parameters& p, std::size_t n) { return p.one_scale() ? along_axis{1, n, 1} : resolved(p.axis, n); }

}  // namespace QK_ISA
}  // namespace qk::detail
