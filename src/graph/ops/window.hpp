// SPDX-License-Identifier: Apache-2.0
// Computes the geometry that convolutions and pools share: strides, dilations, pads, auto_pad, output sizes.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"

namespace qk::graph::ops {

/// A window sliding over the spatial axes of an N,C,D1,D2,... tensor.
struct window {
    std::vector<std::int64_t> kernel, stride, dilation, pad_begin, pad_end, input, output;
    std::size_t rank() const { return kernel.size(); }
};

inline std::int64_t product(const std::vector<std::int64_t>& v) {
    std::int64_t n = 1;
    for (const std::int64_t d : v) n *= d;
    return n;
}

/// Reads attribute `name`: one positive value for each of `rank` spatial axes, or all `otherwise` if it is absent.
std::vector<std::int64_t> spatial_attribute(const node_view& node, const char* name, std::size_t rank, std::int64_t otherwise);

/// Makes the window of Conv or of a pool for an input of the given shape. ceil_mode rounds the number of steps up (pools).
window make_window(const node_view& node, const dims& shape, std::vector<std::int64_t> kernel, bool ceil_mode = false);

/// Is true when a kernel of one tap and stride 1 also visits padding. The outputs there do not depend on the input; the others equal those
/// of the window without padding.
inline bool has_frame(const window& w) {
    bool padded = false;
    for (std::size_t i = 0; i < w.rank(); ++i) {
        if (w.kernel[i] != 1 || w.stride[i] != 1 || w.pad_begin[i] < 0 || w.pad_end[i] < 0) return false;
        padded = padded || w.pad_begin[i] > 0 || w.pad_end[i] > 0;
    }
    return padded;
}

/// Returns [samples, channels, spatial...].
inline dims image_shape(std::int64_t samples, std::int64_t channels, const std::vector<std::int64_t>& spatial) {
    dims shape{samples, channels};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return shape;
}

/// Returns the outputs [first, second), of `count` along an axis, whose tap at `shift` + output * `step` lies inside an input of `length`.
inline std::pair<std::int64_t, std::int64_t> outputs_inside(std::int64_t shift, std::int64_t step, std::int64_t length,
                                                            std::int64_t count) {
    const std::int64_t from = std::clamp<std::int64_t>(shift >= 0 ? 0 : (-shift + step - 1) / step, 0, count);
    return {from, std::clamp<std::int64_t>(length - shift <= 0 ? 0 : (length - shift + step - 1) / step, from, count)};
}

/// Is true when `channels` are not `groups` times `per_group`. It divides, because a product could overflow.
inline bool misfit_groups(std::int64_t channels, std::int64_t per_group, std::int64_t groups) {
    return groups < 1 || groups > std::max<std::int64_t>(channels, 1) || channels % groups != 0 || channels / groups != per_group;
}

/// Taps of a window along one axis: those in [begin, end) lie inside the input, and `padded` taps lie inside the padded input.
struct tap_range {
    std::int64_t begin, end, padded;
    std::int64_t size() const { return end - begin; }
};
/// Returns the taps of the window at output position `o`. The time does not depend on the padding: padded taps are counted, not visited.
inline tap_range taps_of(const window& w, std::size_t axis, std::int64_t o) {
    const std::int64_t base = o * w.stride[axis] - w.pad_begin[axis], step = w.dilation[axis];
    const auto below = [&](std::int64_t end) {
        return std::clamp<std::int64_t>(end <= base ? 0 : (end - base + step - 1) / step, 0, w.kernel[axis]);
    };
    const std::int64_t begin = below(0);
    return {begin, std::max(below(w.input[axis]), begin), below(w.input[axis] + w.pad_end[axis])};  // ceil_mode may reach beyond padding
}

/// Advances `index` to the next one below `extent`, last axis fastest. Returns false after the last one, when it is all zeros again.
inline bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& extent) {
    for (std::size_t i = index.size(); i-- > 0;) {
        if (++index[i] < extent[i]) return true;
        index[i] = 0;
    }
    return false;
}

/// A run of the im2col matrix: `length` outputs along the last axis, for one tap. Output i reads the input's element `first + i * step` for
/// i in [from, to); the other outputs read padding.
struct column_run {
    std::int64_t length, from, to, first, step;
};

/// Calls f(run) for every run of the im2col matrix columns[c * kernel + k][o], in the order of its elements.
template <class F>
void for_each_column_run(const window& w, std::int64_t channels, F&& f) {
    const std::size_t rank = w.rank();
    const std::int64_t size = product(w.input), length = rank == 0 ? 1 : w.output[rank - 1];
    const std::vector<std::int64_t> outer(w.output.begin(), w.output.end() - (rank != 0));
    std::vector<std::int64_t> k(rank, 0), o(outer.size(), 0);
    for (std::int64_t c = 0; c < channels; ++c) {
        std::fill(k.begin(), k.end(), 0);
        do {
            std::int64_t shift = 0, from = 0, to = 1, step = 1;  // along the last axis
            if (rank != 0) {
                const std::size_t l = rank - 1;
                step = w.stride[l], shift = k[l] * w.dilation[l] - w.pad_begin[l];
                std::tie(from, to) = outputs_inside(shift, step, w.input[l], length);
            }
            std::fill(o.begin(), o.end(), 0);
            do {
                std::int64_t base = 0;
                bool inside = true;
                for (std::size_t i = 0; inside && i + 1 < rank; ++i) {
                    const std::int64_t p = o[i] * w.stride[i] - w.pad_begin[i] + k[i] * w.dilation[i];
                    inside = p >= 0 && p < w.input[i];
                    if (inside) base = base * w.input[i] + p;
                }
                if (rank != 0) base = base * w.input[rank - 1] + shift;
                f(column_run{length, inside ? from : 0, inside ? to : 0, inside ? c * size + base : 0, step});
            } while (advance(o, outer));
        } while (advance(k, w.kernel));
    }
}

}  // namespace qk::graph::ops
