// SPDX-License-Identifier: Apache-2.0
// Computes shapes for operators: windows, matrix products, broadcasting.
#include "graph/ops/broadcast.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/conv_transpose.hpp"
#include "graph/ops/matmul.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

std::vector<std::int64_t> spatial_attribute(const node_view& node, const char* name, std::size_t rank, std::int64_t otherwise) {
    auto v = node.get_ints(name);
    if (v.empty()) v.assign(rank, otherwise);
    if (v.size() != rank) node.fail(std::string("attribute '") + name + "' does not have one value for each spatial axis");
    for (const std::int64_t x : v)
        if (x < 1 || x > (std::int64_t{1} << 31)) node.fail(std::string("attribute '") + name + "' must be positive");
    return v;
}

static std::string auto_pad_of(const node_view& node) {
    std::string given = node.get_string("auto_pad", "NOTSET");
    if (given != "NOTSET" && given != "SAME_UPPER" && given != "SAME_LOWER" && given != "VALID")
        node.fail("attribute 'auto_pad' is '" + given + "'; it can be NOTSET, SAME_UPPER, SAME_LOWER or VALID");
    return given;
}

window make_window(const node_view& node, const dims& shape, std::vector<std::int64_t> kernel, bool ceil_mode) {
    if (shape.size() < 2 || shape.size() != kernel.size() + 2)
        node.fail("input of shape " + to_string(shape) + " does not fit a kernel of rank " + std::to_string(kernel.size()));
    window w;
    const std::size_t rank = kernel.size();
    for (const std::int64_t k : kernel)
        if (k < 1 || k > (std::int64_t{1} << 20)) node.fail("a kernel of length " + std::to_string(k));
    static_cast<void>(element_count(kernel));  // throws on overflow: taps of a window are counted below
    w.kernel = std::move(kernel);
    w.input.assign(shape.begin() + 2, shape.end());
    w.stride = spatial_attribute(node, "strides", rank, 1);
    w.dilation = spatial_attribute(node, "dilations", rank, 1);
    auto pads = node.get_ints("pads");
    if (pads.empty()) pads.assign(2 * rank, 0);
    if (pads.size() != 2 * rank) node.fail("attribute 'pads' needs two values for each spatial axis");
    for (const std::int64_t p : pads)
        if (p < -(std::int64_t{1} << 31) || p > (std::int64_t{1} << 31)) node.fail("attribute 'pads' is out of range");
    const std::string auto_pad = auto_pad_of(node);
    for (std::size_t i = 0; i < rank; ++i) {
        std::int64_t begin = pads[i], end = pads[i + rank];
        const std::int64_t reach = (w.kernel[i] - 1) * w.dilation[i] + 1;
        if (auto_pad == "VALID") begin = end = 0;
        if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
            const std::int64_t out = (w.input[i] + w.stride[i] - 1) / w.stride[i];
            const std::int64_t all = std::max<std::int64_t>((out - 1) * w.stride[i] + reach - w.input[i], 0);
            begin = auto_pad == "SAME_UPPER" ? all / 2 : all - all / 2;
            end = all - begin;
        }
        const std::int64_t room = w.input[i] + begin + end - reach;
        if (room < 0) node.fail("the kernel is larger than its padded input of shape " + to_string(shape));
        std::int64_t out = room / w.stride[i] + 1;
        if (ceil_mode && room % w.stride[i] != 0) {
            ++out;
            if ((out - 1) * w.stride[i] >= w.input[i] + begin) --out;  // drops a window that would start in the end padding
        }
        w.pad_begin.push_back(begin);
        w.pad_end.push_back(end);
        w.output.push_back(out);
    }
    static_cast<void>(element_count(w.output));  // throws on overflow: products of it are taken below
    return w;
}

window check_conv(const node_view& node, const dims& x, const dims& weights, const tensor* bias, std::int64_t group) {
    if (x.size() < 3 || weights.size() != x.size())
        node.fail("input of shape " + to_string(x) + " and weights of shape " + to_string(weights) + " do not fit");
    if (misfit_groups(x[1], weights[1], group) || weights[0] % group != 0)
        node.fail("input of shape " + to_string(x) + " does not fit weights of shape " + to_string(weights) + " in " +
                  std::to_string(group) + " group(s)");
    std::vector<std::int64_t> kernel(weights.begin() + 2, weights.end());
    if (const auto given = node.get_ints("kernel_shape"); !given.empty() && given != kernel)
        node.fail("attribute 'kernel_shape' differs from the shape of the weights " + to_string(weights));
    if (bias != nullptr && bias->shape() != dims{weights[0]})
        node.fail("bias of shape " + to_string(bias->shape()) + " for " + std::to_string(weights[0]) + " channels");
    return make_window(node, x, std::move(kernel));
}

window transposed_window(const node_view& node, const dims& x, std::vector<std::int64_t> kernel) {
    const std::size_t rank = kernel.size();
    window w;
    w.kernel = std::move(kernel);
    w.output.assign(x.begin() + 2, x.end());
    w.stride = spatial_attribute(node, "strides", rank, 1);
    w.dilation = spatial_attribute(node, "dilations", rank, 1);
    auto pads = node.get_ints("pads");
    if (pads.empty()) pads.assign(2 * rank, 0);
    auto extra = node.get_ints("output_padding");
    if (extra.empty()) extra.assign(rank, 0);
    auto wanted = node.get_ints("output_shape");
    if (wanted.size() == rank + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
    if (pads.size() != 2 * rank || extra.size() != rank || (!wanted.empty() && wanted.size() != rank))
        node.fail("pads, output_padding or output_shape do not have the input's number of spatial axes");
    for (const auto* list : {&pads, &extra, &wanted})
        for (const std::int64_t v : *list)
            if (v < -(std::int64_t{1} << 31) || v > (std::int64_t{1} << 31))
                node.fail("pads, output_padding or output_shape are out of range");
    const std::string auto_pad = auto_pad_of(node);
    for (std::size_t i = 0; i < rank; ++i) {
        if (w.kernel[i] < 1 || w.kernel[i] > 1 << 20) node.fail("a kernel of length " + std::to_string(w.kernel[i]));
        if (w.output[i] > std::int64_t{1} << 31) node.fail("input of shape " + to_string(x) + " is too long");
        const std::int64_t full = w.stride[i] * (w.output[i] - 1) + extra[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
        std::int64_t begin = pads[i], end = pads[i + rank], size = full - begin - end;
        if (auto_pad == "VALID") begin = end = 0, size = full;
        const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
        if (!wanted.empty() || same) {
            size = wanted.empty() ? w.output[i] * w.stride[i] : wanted[i];
            const std::int64_t all = std::max<std::int64_t>(full - size, 0);
            begin = auto_pad == "SAME_UPPER" ? all / 2 : all - all / 2;
            end = all - begin;
        }
        if (size < 1) node.fail("the output would be empty along spatial axis " + std::to_string(i));
        w.pad_begin.push_back(begin);
        w.pad_end.push_back(end);
        w.input.push_back(size);
    }
    static_cast<void>(element_count(w.input));  // throws on overflow: products of it are taken below
    return w;
}

matmul_plan plan_matmul(const node_view& node, dims a, dims b) {
    const auto bad = [&] { node.fail("shapes " + to_string(a) + " and " + to_string(b) + " cannot be multiplied"); };
    if (a.empty() || b.empty()) bad();
    const bool row = a.size() == 1, column = b.size() == 1;
    if (row) a.insert(a.begin(), 1);
    if (column) b.push_back(1);
    matmul_plan p;
    p.m = a[a.size() - 2], p.k = a.back(), p.n = b.back();
    if (b[b.size() - 2] != p.k) bad();
    const std::size_t batch = std::max(a.size(), b.size()) - 2;
    std::vector<std::int64_t> ea(batch, 1), eb(batch, 1), e(batch);
    for (std::size_t i = 0; i + 2 < a.size(); ++i) ea[batch - (a.size() - 2) + i] = a[i];
    for (std::size_t i = 0; i + 2 < b.size(); ++i) eb[batch - (b.size() - 2) + i] = b[i];
    for (std::size_t i = 0; i < batch; ++i) {
        if (ea[i] != eb[i] && ea[i] != 1 && eb[i] != 1) bad();
        e[i] = ea[i] == 1 ? eb[i] : ea[i];
    }
    p.shape = e;
    if (!row) p.shape.push_back(p.m);
    if (!column) p.shape.push_back(p.n);
    p.a_batch = ea, p.b_batch = eb, p.batch = e;
    return p;
}

dims broadcast_shape(const op_context& call, std::span<const tensor* const> operands) {
    dims shape;
    for (const tensor* t : operands) {
        const dims& s = t->shape();
        if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
        const std::size_t skip = shape.size() - s.size();
        for (std::size_t i = 0; i < s.size(); ++i) {
            std::int64_t& d = shape[skip + i];
            if (d == 1) d = s[i];
            else if (s[i] != 1 && s[i] != d) call.fail("shapes do not broadcast: " + to_string(s) + " against " + to_string(shape));
        }
    }
    return shape;
}

}  // namespace qk::graph::ops
