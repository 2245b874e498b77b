// SPDX-License-Identifier: Apache-2.0
// Implements Col2Im and MaxUnpool, which put columns or maxima back to their positions in the image.
#pragma once

#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Returns attribute pads: two values for each spatial axis, small enough that their sums do not overflow.
inline std::vector<std::int64_t> pads_of(const op_context& call, std::size_t rank) {
    auto pads = call.node().get_ints("pads");
    if (pads.empty()) pads.assign(2 * rank, 0);
    if (pads.size() != 2 * rank) call.fail("pads needs two values for each spatial axis");
    for (const std::int64_t p : pads)
        if (p < -(std::int64_t{1} << 31) || p > std::int64_t{1} << 31) call.fail("attribute 'pads' is out of range");
    return pads;
}

/// Where the columns of Col2Im belong in the image.
struct column_places {
    std::vector<std::int64_t> image, block, stride, dilation, pads, blocks;
    std::int64_t channels = 0;
    dims shape;  ///< shape of the image, with samples and channels

    /// Calls f(element of the columns, element of the image) for every element of the columns that is not padding.
    template <class F>
    void each(F&& f) const {
        const std::size_t rank = image.size();
        const std::int64_t plane = product(image);
        std::int64_t from = 0;
        for (std::int64_t c = 0; c < shape[0] * channels; ++c) {
            std::vector<std::int64_t> k(rank, 0);
            do {
                std::vector<std::int64_t> o(rank, 0);
                do {
                    std::int64_t at = 0;
                    bool inside = true;
                    for (std::size_t a = 0; inside && a < rank; ++a) {
                        const std::int64_t p = o[a] * stride[a] - pads[a] + k[a] * dilation[a];
                        inside = p >= 0 && p < image[a];
                        if (inside) at = at * image[a] + p;
                    }
                    if (inside) f(static_cast<std::size_t>(from), static_cast<std::size_t>(c * plane + at));
                    ++from;
                } while (advance(o, blocks));
            } while (advance(k, block));
        }
    }
};

inline column_places places_of_columns(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    column_places w;
    w.image = integers(call, 1), w.block = integers(call, 2);
    const std::size_t rank = w.image.size();
    if (given.rank() != 3 || rank == 0 || w.block.size() != rank)
        call.fail("input must have rank 3, image_shape and block_shape one length");
    w.stride = spatial_attribute(node, "strides", rank, 1), w.dilation = spatial_attribute(node, "dilations", rank, 1);
    w.pads = pads_of(call, rank);
    static_cast<void>(element_count(w.image));
    static_cast<void>(element_count(w.block));
    w.blocks.resize(rank);
    for (std::size_t a = 0; a < rank; ++a) {
        if (w.image[a] < 1 || w.block[a] < 1 || w.image[a] > 1 << 24 || w.block[a] > 1 << 24)
            call.fail("image_shape and block_shape must be positive");
        const std::int64_t room = w.image[a] + w.pads[a] + w.pads[a + rank] - w.dilation[a] * (w.block[a] - 1) - 1;
        if (room < 0) call.fail("a block is larger than the padded image");
        w.blocks[a] = room / w.stride[a] + 1;
    }
    static_cast<void>(element_count(w.blocks));
    const std::int64_t taps = product(w.block), places = product(w.blocks);
    if (given.dim(1) % taps != 0 || given.dim(2) != places)
        call.fail("input of shape " + to_string(given.shape()) + " does not fit " + std::to_string(places) + " blocks of " +
                  std::to_string(taps));
    w.channels = given.dim(1) / taps;
    w.shape = image_shape(given.dim(0), w.channels, w.image);
    return w;
}

inline void run_col2im(op_context& call) {
    const column_places places = places_of_columns(call);
    const tensor& given = call.input(0);
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), places.shape);
        std::fill(y.values().begin(), y.values().end(), T{0});
        const T* in = x.as<T>().data();
        places.each([&](std::size_t from, std::size_t to) { y.data()[to] += in[from]; });
        y.store();
    });
}

/// Writes the values at their indices in the inferred shape. With output_shape that shape is the leading corner of a larger one.
inline void run_max_unpool(op_context& call) {
    const node_view& node = call.node();
    const tensor& x = call.input(0);
    const auto kernel = node.get_ints("kernel_shape");
    const std::size_t rank = kernel.size();
    if (x.rank() != rank + 2 || rank == 0) call.fail("kernel_shape does not fit an input of shape " + to_string(x.shape()));
    const auto stride = spatial_attribute(node, "strides", rank, 1);
    const auto pads = pads_of(call, rank);
    for (const std::int64_t k : kernel)
        if (k < 1 || k > std::int64_t{1} << 31) call.fail("a kernel of length " + std::to_string(k));
    for (std::size_t a = 0; a < rank; ++a)
        if (x.dim(a + 2) > std::int64_t{1} << 31) call.fail("X of shape " + to_string(x.shape()) + " is too long");
    const std::vector<std::int64_t> index = integers(call, 1);
    if (index.size() != x.size()) call.fail("indices and X differ in size");
    dims inferred{x.dim(0), x.dim(1)};
    for (std::size_t a = 0; a < rank; ++a) inferred.push_back((x.dim(a + 2) - 1) * stride[a] - pads[a] - pads[a + rank] + kernel[a]);
    const dims shape = call.has_input(2) ? integers(call, 2) : inferred;
    if (shape.size() != inferred.size()) call.fail("output_shape needs " + std::to_string(inferred.size()) + " values");
    for (std::size_t a = 0; a < shape.size(); ++a)
        if (shape[a] < inferred[a] || inferred[a] < 0)
            call.fail("output_shape " + to_string(shape) + " is smaller than " + to_string(inferred));
    const auto count = static_cast<std::int64_t>(element_count(inferred));
    tensor& y = call.output(0, x.type(), shape);
    std::fill_n(y.bytes(), y.size_bytes(), std::byte{0});
    const auto to_strides = row_major_strides(shape), from_strides = row_major_strides(inferred);
    dispatch_width(call, x.type(), [&]<class U>(type_tag<U>) {
        for (std::size_t i = 0; i < index.size(); ++i) {
            if (index[i] < 0 || index[i] >= count) call.fail("index " + std::to_string(index[i]) + " is outside " + to_string(inferred));
            std::size_t rest = static_cast<std::size_t>(index[i]), at = 0;
            for (std::size_t a = 0; a < shape.size(); ++a) {
                at += rest / from_strides[a] * to_strides[a];
                rest %= from_strides[a];
            }
            y.as<U>()[at] = x.as<U>()[i];
        }
    });
}

inline constexpr op_entry unpool_ops[] = {
    {"", "Col2Im", 18, run_col2im, nullptr, {follow_columns_to_image}},
    {"", "MaxUnpool", 9, run_max_unpool, nullptr, {follow_all_samples}},
};

}  // namespace qk::graph::ops
