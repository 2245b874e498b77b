// SPDX-License-Identifier: Apache-2.0
// The scales and zero points of a piece of an elementwise tensor, however they are shared.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "qk/codec/layout/parameters.hpp"
#include "qk/codec/layout/unpack.hpp"
#include "qk/inline.hpp"

namespace qk::detail {

/// Scale and zero point of every value of a piece; one of each when `single`.
template <class Arch>
struct scale_tile {
    alignas(64) float scale[tile];
    alignas(64) std::int64_t zero[tile];
    bool single = true;

    /// Of n values at (o, l, i) and on: along `length` where inner is 1, else along `inner`.
    QK_APART void fill(const codec_parameters& p, along_axis a, std::size_t o, std::size_t l, std::size_t i, std::size_t n) {
        if (p.one_scale()) {
            scale[0] = p.one.scale;
            zero[0] = p.one.zero_point;
            return;
        }
        const bool along = a.inner == 1;
        single = !along && p.group == 0;
        const std::size_t at = p.index(a, o, l, i);
        if (along && p.group > 1) {  // `group` values share an entry
            for (std::size_t k = 0, entry = at; k < n; ++entry) {
                const std::size_t end = std::min(n, k + p.group - (l + k) % p.group);
                std::fill(scale + k, scale + end, p.scale[entry]);
                std::fill(zero + k, zero + end, p.zero_point.empty() ? 0 : p.zero_point[entry]);
                k = end;
            }
            return;
        }
        const std::size_t entries = single ? 1 : n;
        std::copy_n(p.scale.data() + at, entries, scale);
        p.zero_point.empty() ? void(std::fill_n(zero, entries, 0)) : void(std::copy_n(p.zero_point.data() + at, entries, zero));
    }
    /// The zero point of all n values, if it is the same one.
    QK_APART bool one_zero(std::size_t n) const {
        return single || std::all_of(zero, zero + n, [&](std::int64_t z) { return z == zero[0]; });
    }
    QK_APART void multiply(float* v, std::size_t n) const {
        if (!single) {
            for (std::size_t k = 0; k < n; ++k) v[k] *= scale[k];
        } else if (scale[0] != 1.0f) {
            for (std::size_t k = 0; k < n; ++k) v[k] *= scale[0];
        }
    }
};

/// How an elementwise tensor is walked: along its scales, or as one row.
QK_INLINE along_axis walk_of(const codec_parameters& p, std::size_t n) { return p.one_scale() ? along_axis{1, n, 1} : resolved(p.axis, n); }

}  // namespace qk::detail
