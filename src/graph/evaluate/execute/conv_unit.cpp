// SPDX-License-Identifier: Apache-2.0
// Turns a Conv node and its input's shape into what oneDNN is asked to compute.
#include "graph/evaluate/execute/conv_unit.hpp"

#include <algorithm>

#include "graph/ops/conv.hpp"

#ifdef QK_HAVE_ONEDNN

namespace qk::graph::execute {

void zero_frame::put(const float* middle, const dims& whole, float* y) const {
    const std::int64_t channels = whole[1];
    const auto frame = [&](std::int64_t places) {
        for (; places > 0; --places) y = std::copy(edge.begin(), edge.end(), y);
    };
    for (std::int64_t n = 0; n < whole[0]; ++n) {
        frame(top * whole[3]);
        for (std::int64_t i = 0; i < height; ++i, middle += width * channels) {
            frame(left);
            y = std::copy_n(middle, width * channels, y);
            frame(whole[3] - left - width);
        }
        frame((whole[2] - top - height) * whole[3]);
    }
}

const prepared_convolution::at_shape& conv_unit::prepared(const dims& x) const {
    return convolution_.at(x, [&] {
        const dims& weights = convolution_.weights();
        const tensor& bias = convolution_.bias();
        const std::int64_t group = conv_->view.get_int("group", 1);
        const ops::window w = ops::check_conv(conv_->view, x, weights, bias.empty() ? nullptr : &bias, group);
        prepared_convolution::request r;
        r.y = {x[0], weights[0], w.output[0], w.output[1]};
        dnn_convolution::shape& s = r.shape;
        s.x = x, s.y = r.y, s.grouped = group > 1, s.bias = !bias.empty(), s.add = add_, s.relu = relu_;
        s.weights = weights;
        if (s.grouped) {
            s.weights[0] /= group;
            s.weights.insert(s.weights.begin(), group);
        }
        s.stride = w.stride, s.pad_begin = w.pad_begin, s.pad_end = w.pad_end;
        for (const std::int64_t d : w.dilation) s.dilation.push_back(d - 1);
        if (ops::has_frame(w) && !add_) {
            r.frame = zero_frame{w.pad_begin[0], w.pad_begin[1], x[2], x[3], {}};
            s.y[2] = x[2], s.y[3] = x[3];
            s.pad_begin = s.pad_end = {0, 0};
        }
        // A column of pixels is a row of pixels in memory, and only rows are fast.
        if (x[3] == 1 && w.kernel[1] == 1 && w.pad_begin[1] == 0 && w.pad_end[1] == 0) {
            for (auto* v : {&s.x, &s.y}) std::swap((*v)[2], (*v)[3]);
            std::swap(s.weights[s.weights.size() - 2], s.weights[s.weights.size() - 1]);
            for (auto* v : {&s.stride, &s.dilation, &s.pad_begin, &s.pad_end}) std::swap((*v)[0], (*v)[1]);
        }
        for (std::size_t i = 0; i < 2; ++i) r.possible = r.possible && w.pad_begin[i] >= 0 && w.pad_end[i] >= 0 && x[i + 2] > 0;
        r.possible = r.possible && x[0] > 0;
        return r;
    });
}

tensor conv_unit::run(const tensor& x, const tensor& narrow, const tensor& residual, allocator& memory) const {
    const auto& prepared_for_x = prepared(x.shape());
    if (!prepared_for_x.possible() || (add_ && residual.shape() != prepared_for_x.y)) return {};
    tensor y(data_type::float32, prepared_for_x.y, memory.allocate(element_count(prepared_for_x.y) * sizeof(float)));
    prepared_convolution::run(prepared_for_x, x, narrow, residual, y, memory);
    return y;
}

}  // namespace qk::graph::execute

#endif
