// SPDX-License-Identifier: Apache-2.0
// Implements Pad (constant, reflect, edge, wrap; negative amounts crop) and CenterCropPad.
#pragma once

#include <algorithm>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/walk/rules.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::ops {

enum class pad_mode { constant, reflect, edge, wrap };

/// Returns which element of an axis of n elements the padded position `at` copies, or -1 for the constant.
inline std::int64_t padded_source(std::int64_t at, std::int64_t n, pad_mode mode) {
    if (at >= 0 && at < n) return at;
    if (mode == pad_mode::constant || n == 0) return -1;
    if (mode == pad_mode::edge) return at < 0 ? 0 : n - 1;
    if (mode == pad_mode::wrap) return ((at % n) + n) % n;
    if (n == 1) return 0;
    const std::int64_t period = 2 * (n - 1), phase = ((at % period) + period) % period;
    return phase < n ? phase : period - phase;
}

/// Sets output 0 to x padded by before[i] and after[i] elements along axis i. `fill` holds the constant's bytes; null means zero.
inline void pad_tensor(op_context& call, const tensor& x, const dims& before, const dims& after, pad_mode mode, const std::byte* fill) {
    const std::size_t rank = x.rank();
    dims shape = x.shape();
    for (std::size_t i = 0; i < rank; ++i) {
        shape[i] += before[i] + after[i];
        if (shape[i] < 0) call.fail("padding leaves a negative length on axis " + std::to_string(i));
        if (mode != pad_mode::constant && x.dim(i) == 0 && shape[i] > 0) call.fail("an empty axis can only be padded with a constant");
    }
    tensor& y = call.output(0, x.type(), shape);
    if (y.size() == 0) return;
    // Unpadded axes at the end are copied as one block of `inner` elements; `last` is the innermost padded axis.
    std::size_t last = rank, inner = 1;
    while (last > 0 && before[last - 1] == 0 && after[last - 1] == 0) inner *= static_cast<std::size_t>(shape[--last]);
    if (last == 0) {
        std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
        return;
    }
    --last;
    std::vector<std::vector<std::int64_t>> source(last + 1);
    for (std::size_t a = 0; a <= last; ++a)
        for (std::int64_t i = 0; i < shape[a]; ++i) {
            // In wrap mode only what negative amounts leave of the axis is repeated.
            const std::int64_t cut = mode == pad_mode::wrap ? std::max<std::int64_t>(-before[a], 0) : 0,
                               left = x.dim(a) - cut - (mode == pad_mode::wrap ? std::max<std::int64_t>(-after[a], 0) : 0);
            if (left <= 0 && mode == pad_mode::wrap) call.fail("negative amounts leave nothing of axis " + std::to_string(a) + " to wrap");
            const std::int64_t from = padded_source(i - before[a] - cut, left, mode);
            source[a].push_back(from < 0 ? from : from + cut);
        }
    struct run {
        std::int64_t source;
        std::size_t count;
    };
    std::vector<run> runs;  // along `last`: elements that are neighbours in x too, or are all constant
    for (const std::int64_t s : source[last]) {
        if (!runs.empty() && s == (runs.back().source < 0 ? -1 : runs.back().source + static_cast<std::int64_t>(runs.back().count)))
            ++runs.back().count;
        else runs.push_back({s, 1});
    }
    const auto stride = row_major_strides(x.shape());
    const std::size_t rows = product(shape, 0, last), length = static_cast<std::size_t>(shape[last]);

    dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) {
        T constant{};
        if (fill) std::memcpy(&constant, fill, sizeof(T));
        const T* from = x.as<T>().data();
        T* to = y.as<T>().data();
        std::vector<std::size_t> index(last);
        for (std::size_t r = 0; r < rows; ++r) {
            std::size_t base = 0;
            bool outside = false;
            for (std::size_t a = 0; a < last; ++a) {
                const std::int64_t s = source[a][index[a]];
                outside = outside || s < 0;
                base += static_cast<std::size_t>(std::max<std::int64_t>(s, 0)) * stride[a];
            }
            if (outside) std::fill_n(to, length * inner, constant), to += length * inner;
            else
                for (const run& part : runs) {
                    if (part.source < 0) std::fill_n(to, part.count * inner, constant);
                    else
                        std::memcpy(to, from + base + static_cast<std::size_t>(part.source) * stride[last], part.count * inner * sizeof(T));
                    to += part.count * inner;
                }
            for (std::size_t a = last; a-- > 0;) {
                if (++index[a] < static_cast<std::size_t>(shape[a])) break;
                index[a] = 0;
            }
        }
    });
}

/// The amounts are attributes before opset 11 (named `paddings` in opset 1), inputs since then; `axes` exists since opset 18.
inline void pad(op_context& call) {
    const tensor& x = call.input(0);
    const bool old = call.node().version() < 11;
    const std::string name = call.node().get_string("mode", "constant");
    pad_mode mode = pad_mode::constant;
    if (name == "reflect") mode = pad_mode::reflect;
    else if (name == "edge") mode = pad_mode::edge;
    else if (name == "wrap") mode = pad_mode::wrap;
    else if (name != "constant") call.fail("unknown mode '" + name + "'");
    const auto pads = old ? call.node().get_ints(call.node().has("paddings") ? "paddings" : "pads") : int_values(call, call.input(1));
    std::vector<std::int64_t> axes;
    if (call.has_input(3)) axes = int_values(call, call.input(3));
    else
        for (std::size_t i = 0; i < x.rank(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    if (pads.size() != 2 * axes.size())
        call.fail("there are " + std::to_string(pads.size()) + " pads for " + std::to_string(axes.size()) + " axes");
    dims before(x.rank(), 0), after(x.rank(), 0);
    for (std::size_t k = 0; k < axes.size(); ++k) {
        const std::size_t a = normal_axis(call, axes[k], x.rank());
        before[a] = pads[k];
        after[a] = pads[k + axes.size()];
        for (const std::int64_t p : {before[a], after[a]})
            if (p > (std::int64_t{1} << 40) || p < -(std::int64_t{1} << 40)) call.fail("a pad of " + std::to_string(p));
    }
    tensor value;
    if (call.has_input(2)) {
        value = call.input(2);
        if (value.type() != x.type() || value.size() != 1) call.fail("the constant must be one element of the input's type");
    } else if (old) {
        const float f[] = {call.node().get_float("value", 0.0f)};
        if (x.type() == data_type::float32) value = make_tensor<float>({}, f);
        if (x.type() == data_type::float64) value = make_tensor<double>({}, std::array{static_cast<double>(f[0])});
        if (x.type() == data_type::float16) value = make_tensor<half>({}, std::array{to_half(f[0])});
    }
    pad_tensor(call, x, before, after, mode, value.empty() ? nullptr : value.bytes());
}

inline void center_crop_pad(op_context& call) {
    const tensor& x = call.input(0);
    const auto target = int_values(call, call.input(1));
    std::vector<std::int64_t> axes = call.node().get_ints("axes");
    if (!call.node().has("axes"))
        for (std::size_t i = 0; i < x.rank(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    if (axes.size() != target.size())
        call.fail("shape has " + std::to_string(target.size()) + " entries for " + std::to_string(axes.size()) + " axes");
    dims before(x.rank(), 0), after(x.rank(), 0);
    for (std::size_t k = 0; k < axes.size(); ++k) {
        const std::size_t a = normal_axis(call, axes[k], x.rank());
        element_count(dims{target[k]});  // throws for negative and absurd lengths
        const std::int64_t more = target[k] - x.dim(a);
        before[a] = more / 2;  // truncates toward zero, so the odd element is cut or added at the end
        after[a] = more - before[a];
    }
    pad_tensor(call, x, before, after, pad_mode::constant, nullptr);
}

/// A padding of 0 is inside every range; other constants are not.
inline bool pads_within_range(const onnx::NodeProto& n) {
    const bool constant = graph::detail::text_attribute(n, "mode", "constant") == "constant";
    return !constant || ((n.input_size() < 3 || n.input(2).empty()) && graph::detail::float_attribute(n, "value", 0) == 0.0f);
}

// clang-format off
inline constexpr op_entry pad_ops[] = {
    {"", "Pad", 1, pad, nullptr, {follow_pad},
     {.traits = exact | channels_second, .places = 1u << 1 | 1u << 3, .values = first_input, .moves = pads_within_range, .layout = pad_layout}},
    {"", "CenterCropPad", 18, center_crop_pad, nullptr, {follow_center_crop_pad}, {0, all_but_first}},
};
// clang-format on

}  // namespace qk::graph::ops
