// SPDX-License-Identifier: Apache-2.0
// conv_unit: primitives made once for each input shape.
#pragma once

#include "qk/graph/config.hpp"
#include "qk/graph/execute/conv_unit.hpp"
#include "qk/graph/ops/conv.hpp"

namespace qk::graph::execute {

#ifdef QK_HAVE_ONEDNN

QK_GRAPH_INLINE const conv_unit::made& conv_unit::prepared(const dims& x) const {
    {
        const std::shared_lock lock(mutex_);
        for (const auto& m : made_)
            if (m->x == x) return *m;
    }
    const std::unique_lock lock(mutex_);
    for (const auto& m : made_)
        if (m->x == x) return *m;
    const std::int64_t group = conv_->view.get_int("group", 1);
    const ops::window w = ops::check_conv(conv_->view, x, weights_.shape(), bias_.empty() ? nullptr : &bias_, group);
    auto m = std::make_unique<made>();
    m->x = x;
    m->y = {x[0], weights_.dim(0), w.output[0], w.output[1]};
    dnn_convolution::shape s;
    s.x = x, s.y = m->y, s.grouped = group > 1, s.bias = !bias_.empty(), s.add = add_, s.relu = relu_;
    s.weights = weights_.shape();
    if (s.grouped) {
        s.weights[0] /= group;
        s.weights.insert(s.weights.begin(), group);
    }
    s.stride = w.stride, s.pad_begin = w.pad_begin, s.pad_end = w.pad_end;
    for (const std::int64_t d : w.dilation) s.dilation.push_back(d - 1);
    // A column of pixels is a row of pixels in memory, and only rows are fast.
    if (x[3] == 1 && w.kernel[1] == 1 && w.pad_begin[1] == 0 && w.pad_end[1] == 0) {
        for (auto* v : {&s.x, &s.y}) std::swap((*v)[2], (*v)[3]);
        std::swap(s.weights[s.weights.size() - 2], s.weights[s.weights.size() - 1]);
        for (auto* v : {&s.stride, &s.dilation, &s.pad_begin, &s.pad_end}) std::swap((*v)[0], (*v)[1]);
    }
    bool positive = true;
    for (std::size_t i = 0; i < 2; ++i) positive = positive && w.pad_begin[i] >= 0 && w.pad_end[i] >= 0 && x[i + 2] > 0;
    if (positive && x[0] > 0) {
        const one_thread alone;
        try {
            m->convolution = dnn_convolution::make(s, weights_.as<float>().data(), bias_.empty() ? nullptr : bias_.as<float>().data());
        } catch (const dnnl::error&) {  // a shape that it does not take
        }
    }
    made_.push_back(std::move(m));
    return *made_.back();
}

QK_GRAPH_INLINE tensor conv_unit::run(const tensor& x, const tensor& residual, allocator& memory) const {
    if (x.rank() != 4 || x.type() != data_type::float32) return {};
    const made& m = prepared(x.shape());
    if (!m.convolution || (add_ && residual.shape() != m.y)) return {};
    tensor y(data_type::float32, m.y, memory.allocate(element_count(m.y) * sizeof(float)));
    if (add_) std::memcpy(y.bytes(), residual.bytes(), y.size_bytes());
    m.convolution->run(x.as<float>().data(), y.as<float>().data(), memory);
    return y;
}

#else

QK_GRAPH_INLINE tensor conv_unit::run(const tensor&, const tensor&, allocator&) const { return {}; }

#endif

}  // namespace qk::graph::execute
