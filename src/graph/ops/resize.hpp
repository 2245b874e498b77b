// SPDX-License-Identifier: Apache-2.0
// Implements all versions of Resize and Upsample. Every interpolation here is a weighted sum along one axis after the other.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::ops {

/// How one axis is resized: output i is the sum over t of weight[i * taps + t] * input[index[i * taps + t]].
struct resize_axis {
    std::int64_t output = 0;
    std::size_t taps = 1;
    std::vector<std::int64_t> index;
    std::vector<double> weight;
    std::vector<char> outside;  ///< with tf_crop_and_resize: the position gets extrapolation_value

    bool identity(std::int64_t input) const {
        if (output != input || taps != 1) return false;
        for (std::int64_t i = 0; i < output; ++i)
            if (index[static_cast<std::size_t>(i)] != i || outside[static_cast<std::size_t>(i)]) return false;
        return true;
    }
};

namespace detail {

struct resize_options {
    std::string mode, transform, nearest;
    double cubic_a = -0.75, extrapolation = 0;
    bool exclude_outside = false, antialias = false;
};

/// Returns the input coordinate of output position x. See coordinate_transformation_mode in the documentation of Resize. Runtimes compute
/// in float32, and so does this: 8 / (8/3) is 3, where the scale, rounded to float32, would give a little less in doubles.
inline double resize_coordinate(const op_context& call, const resize_options& o, float x, double ratio, std::int64_t input,
                                std::int64_t output, float start, float end) {
    const auto length = static_cast<float>(input), scale = static_cast<float>(ratio);
    const auto exact = static_cast<float>(ratio * static_cast<double>(input));  // may be fractional
    if (o.transform == "half_pixel") return (x + 0.5f) / scale - 0.5f;
    if (o.transform == "asymmetric") return x / scale;
    if (o.transform == "pytorch_half_pixel") return output <= 1 ? 0 : (x + 0.5f) / scale - 0.5f;
    if (o.transform == "align_corners") return exact == 1 ? 0 : x * (length - 1) / (exact - 1);
    if (o.transform == "tf_half_pixel_for_nn") return (x + 0.5f) / scale;
    if (o.transform == "half_pixel_symmetric") return length / 2 * (1 - static_cast<float>(output) / exact) + (x + 0.5f) / scale - 0.5f;
    if (o.transform == "tf_crop_and_resize") {
        const float step = exact == 1 ? (end - start) * (length - 1) / 2 : x * (end - start) * (length - 1) / (exact - 1);
        return step + start * (length - 1);
    }
    call.fail("coordinate_transformation_mode '" + o.transform + "' is not one of the standard's");
}

/// A coordinate that lies this near to the middle between two positions is a tie that float32 missed; onnxruntime takes it for one, too.
constexpr double tie_width = 1e-6;

inline std::int64_t nearest_index(const op_context& call, const resize_options& o, double x, double scale) {
    if (o.nearest == "round_prefer_floor") return static_cast<std::int64_t>(std::ceil(x - 0.5 - tie_width));
    if (o.nearest == "round_prefer_ceil") return static_cast<std::int64_t>(std::floor(x + 0.5 + tie_width));
    if (o.nearest == "floor") return static_cast<std::int64_t>(std::floor(x));
    if (o.nearest == "ceil") return static_cast<std::int64_t>(std::ceil(x));
    if (o.nearest == "simple") return static_cast<std::int64_t>(scale < 1 ? std::ceil(x) : std::floor(x));  // before opset 11
    call.fail("nearest_mode '" + o.nearest + "' is none of round_prefer_floor, round_prefer_ceil, floor, ceil");
}

/// Keys' cubic kernel with parameter a.
inline double cubic_weight(double x, double a) {
    x = std::fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

inline resize_axis plan_resize_axis(op_context& call, const resize_options& o, double scale, std::int64_t input, std::int64_t output,
                                    double start, double end) {
    if (input < 1 && output > 0) call.fail("cannot resize an empty axis");
    const bool nearest = o.mode == "nearest", cubic = o.mode == "cubic";
    // Antialiasing widens the kernel when the axis shrinks.
    const double stretch = o.antialias && !nearest ? std::min(scale, 1.0) : 1.0;
    const double reach = (cubic ? 2 : 1) / stretch;
    if (!(reach < 1e6)) call.fail("the scale " + std::to_string(scale) + " is too small to be antialiased");
    const auto first = static_cast<std::int64_t>(std::floor(-reach)) + 1;
    resize_axis plan;
    plan.output = output;
    plan.taps = nearest ? 1 : static_cast<std::size_t>(2 - 2 * first);
    expect_room(call, {output, static_cast<std::int64_t>(plan.taps), 2});
    for (std::int64_t i = 0; i < output; ++i) {
        const double x =
            resize_coordinate(call, o, static_cast<float>(i), scale, input, output, static_cast<float>(start), static_cast<float>(end));
        plan.outside.push_back(o.transform == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(input - 1)));
        if (!(std::fabs(x) < 1e15)) call.fail("a coordinate is not finite");
        if (nearest) {
            plan.index.push_back(std::clamp<std::int64_t>(nearest_index(call, o, x, scale), 0, input - 1));
            plan.weight.push_back(1);
            continue;
        }
        const auto base =
            static_cast<std::int64_t>(std::ceil(x)) - 1;  // x - base in (0, 1]: for an integer x the left neighbour comes first
        const std::size_t at = plan.weight.size();
        double sum = 0;
        for (std::size_t t = 0; t < plan.taps; ++t) {
            const std::int64_t k = base + first + static_cast<std::int64_t>(t);
            const double distance = (static_cast<double>(k) - x) * stretch;
            double w = cubic ? cubic_weight(distance, o.cubic_a) : std::max(0.0, 1 - std::fabs(distance));
            if (o.exclude_outside && (k < 0 || k >= input)) w = 0;
            plan.index.push_back(std::clamp<std::int64_t>(k, 0, input - 1));
            plan.weight.push_back(w);
            sum += w;
        }
        if (sum != 0 && (o.antialias || o.exclude_outside))
            for (std::size_t t = at; t < plan.weight.size(); ++t) plan.weight[t] /= sum;
    }
    return plan;
}

/// Resizes one axis of x, seen as [outer][length][inner].
template <class T>
tensor resize_along(op_context& call, const tensor& x, std::size_t axis, const resize_axis& plan, double extrapolation) {
    const axis_split s = split_at(x.shape(), axis);
    dims shape = x.shape();
    shape[axis] = plan.output;
    tensor y = call.scratch(type_of<T>, shape);
    T* to = y.as<T>().data();
    for (std::size_t o = 0; o < s.outer; ++o) {
        const T* from = x.as<T>().data() + o * s.length * s.inner;
        for (std::size_t i = 0; i < static_cast<std::size_t>(plan.output); ++i, to += s.inner) {
            if (plan.outside[i]) {
                std::fill_n(to, s.inner, static_cast<T>(extrapolation));
                continue;
            }
            for (std::size_t t = 0; t < plan.taps; ++t) {
                const T* row = from + static_cast<std::size_t>(plan.index[i * plan.taps + t]) * s.inner;
                const T w = static_cast<T>(plan.weight[i * plan.taps + t]);
                if (plan.taps == 1) std::copy_n(row, s.inner, to);
                else if (t == 0)
                    for (std::size_t j = 0; j < s.inner; ++j) to[j] = row[j] * w;
                else
                    for (std::size_t j = 0; j < s.inner; ++j) to[j] += row[j] * w;
            }
        }
    }
    return y;
}

/// A plan for each axis, and the value of positions outside the input.
struct resize_plans {
    std::vector<resize_axis> axes;
    double extrapolation = 0;
};

/// Applies the plans axis by axis and stores the result in X's type. Integers are rounded and clamped.
inline void resize_axes(op_context& call, const resize_plans& plans) {
    const tensor& given = call.input(0);
    const auto run = [&]<class T>(T) {
        tensor x = input_as<T>(call, 0);
        for (std::size_t a = 0; a < plans.axes.size(); ++a)
            if (!plans.axes[a].identity(x.dim(a))) x = resize_along<T>(call, x, a, plans.axes[a], plans.extrapolation);
        if (given.type() == type_of<T>) {
            call.set_output(0, x);
            return;
        }
        tensor& y = call.output(0, given.type(), x.shape());
        if (is_integer_type(given.type())) {
            tensor rounded = call.scratch(type_of<T>, x.shape());
            const T low = static_cast<T>(lowest_code(given.type())), high = static_cast<T>(highest_code(given.type()));
            for (std::size_t i = 0; i < x.size(); ++i) rounded.as<T>()[i] = std::clamp(std::nearbyint(x.as<T>()[i]), low, high);
            x = rounded;
        }
        write_elements<T>(std::span<const T>(std::as_const(x).as<T>()), given.type(), y.bytes());
    };
    if (given.type() == data_type::float64 || is_integer_type(given.type())) run(double{});
    else run(float{});
}

/// Multiplies in float32, as runtimes do: 3 * (7/3) is 7 there, and 6 for the real numbers that the standard speaks of.
inline std::int64_t scaled_size(const op_context& call, double scale, std::int64_t input) {
    if (!(scale > 0)) call.fail("a scale of " + std::to_string(scale) + " is not positive");
    const float size = std::floor(static_cast<float>(scale) * static_cast<float>(input));
    if (!(size < 0x1p40f)) call.fail("a scale of " + std::to_string(scale) + " is too large");
    return static_cast<std::int64_t>(size);
}

/// Plans Upsample, and Resize of opset 10: one scale for each axis, asymmetric coordinates.
inline resize_plans plan_by_scales(op_context& call, const std::vector<double>& scales) {
    const tensor& x = call.input(0);
    resize_options o{.mode = call.node().get_string("mode", "nearest"), .transform = "asymmetric", .nearest = "simple"};
    if (o.mode == "bilinear") o.mode = "linear";
    if (o.mode != "nearest" && o.mode != "linear") call.fail("mode '" + o.mode + "' is neither nearest nor linear");
    if (scales.size() != x.rank()) call.fail(std::to_string(scales.size()) + " scales for an input of rank " + std::to_string(x.rank()));
    std::vector<resize_axis> plans;
    for (std::size_t a = 0; a < x.rank(); ++a)
        plans.push_back(plan_resize_axis(call, o, scales[a], x.dim(a), scaled_size(call, scales[a], x.dim(a)), 0, 1));
    return {std::move(plans), 0};
}

inline std::vector<double> scale_values(op_context& call, std::size_t i) {
    const tensor t = input_as<double>(call, i);
    return {t.as<double>().begin(), t.as<double>().end()};
}

}  // namespace detail

inline detail::resize_plans plan_upsample(op_context& call) {
    const node_view& node = call.node();
    if (call.input_count() > 1) return detail::plan_by_scales(call, detail::scale_values(call, 1));
    std::vector<double> scales;
    for (const float s : node.get_floats("scales")) scales.push_back(static_cast<double>(s));
    if (scales.empty())
        scales = {1, 1, static_cast<double>(node.get_float("height_scale", 1)), static_cast<double>(node.get_float("width_scale", 1))};
    return detail::plan_by_scales(call, scales);
}

inline detail::resize_plans plan_resize(op_context& call) {
    const node_view& node = call.node();
    if (node.version() < 11) return detail::plan_by_scales(call, detail::scale_values(call, 1));
    const tensor& x = call.input(0);
    const detail::resize_options o{.mode = node.get_string("mode", "nearest"),
                                   .transform = node.get_string("coordinate_transformation_mode", "half_pixel"),
                                   .nearest = node.get_string("nearest_mode", "round_prefer_floor"),
                                   .cubic_a = static_cast<double>(node.get_float("cubic_coeff_a", -0.75f)),
                                   .extrapolation = static_cast<double>(node.get_float("extrapolation_value", 0)),
                                   .exclude_outside = node.get_int("exclude_outside", 0) != 0,
                                   .antialias = node.get_int("antialias", 0) != 0};
    if (o.mode != "nearest" && o.mode != "linear" && o.mode != "cubic")
        call.fail("mode '" + o.mode + "' is none of nearest, linear, cubic");
    std::vector<std::size_t> axes;
    for (const std::int64_t a : node.get_ints("axes")) axes.push_back(normal_axis(call, a, x.rank()));
    if (!node.has("axes"))
        for (std::size_t a = 0; a < x.rank(); ++a) axes.push_back(a);

    struct part {
        double scale = 1, start = 0, end = 1;
    };
    std::vector<part> parts(x.rank());
    dims size = x.shape();
    const bool has_sizes = call.has_input(3) && call.input(3).size() > 0, has_scales = call.has_input(2) && call.input(2).size() > 0;
    if (has_sizes == has_scales) call.fail("exactly one of scales and sizes must be given");
    if ((has_sizes ? call.input(3) : call.input(2)).size() != axes.size())
        call.fail("scales or sizes need one value for each of " + std::to_string(axes.size()) + " axes");
    if (has_scales) {
        const auto values = detail::scale_values(call, 2);
        for (std::size_t i = 0; i < axes.size(); ++i) {
            parts[axes[i]].scale = values[i];
            size[axes[i]] = detail::scaled_size(call, values[i], x.dim(axes[i]));
        }
    } else {
        const auto values = integers(call, 3);
        const std::string policy = node.get_string("keep_aspect_ratio_policy", "stretch");
        if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
            call.fail("keep_aspect_ratio_policy '" + policy + "' is none of stretch, not_larger, not_smaller");
        double common = 0;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            if (values[i] < 0 || x.dim(axes[i]) == 0) call.fail("sizes must not be negative, nor the resized axes empty");
            const double s = static_cast<double>(values[i]) / static_cast<double>(x.dim(axes[i]));
            parts[axes[i]].scale = s;
            size[axes[i]] = values[i];
            common = i == 0 ? s : policy == "not_larger" ? std::min(common, s) : std::max(common, s);
        }
        if (policy != "stretch")
            for (const std::size_t a : axes) {
                parts[a].scale = common;
                size[a] = detail::to_int64(std::floor(common * static_cast<double>(x.dim(a)) + 0.5));
            }
    }
    if (o.transform == "tf_crop_and_resize") {
        const auto roi = call.has_input(1) ? detail::scale_values(call, 1) : std::vector<double>{};
        if (roi.size() != 2 * axes.size()) call.fail("tf_crop_and_resize needs a roi with a start and an end for each axis");
        for (std::size_t i = 0; i < axes.size(); ++i) {
            parts[axes[i]].start = roi[i];
            parts[axes[i]].end = roi[axes.size() + i];
        }
    }
    element_count(size);
    std::vector<resize_axis> plans(x.rank());
    std::vector<char> resized(x.rank(), 0);
    for (const std::size_t a : axes) {
        const bool whole = parts[a].scale == 1 && size[a] == x.dim(a) && parts[a].start == 0 && parts[a].end == 1;
        if (whole) continue;
        resized[a] = 1;
        plans[a] = detail::plan_resize_axis(call, o, parts[a].scale, x.dim(a), size[a], parts[a].start, parts[a].end);
    }
    const detail::resize_options same{.mode = "nearest", .transform = "asymmetric", .nearest = "floor"};
    for (std::size_t a = 0; a < x.rank(); ++a)
        if (!resized[a]) plans[a] = detail::plan_resize_axis(call, same, 1, x.dim(a), x.dim(a), 0, 1);
    return {std::move(plans), o.extrapolation};
}

inline void run_upsample(op_context& call) { detail::resize_axes(call, plan_upsample(call)); }
inline void run_resize(op_context& call) { detail::resize_axes(call, plan_resize(call)); }

inline bool takes_nearest(const onnx::NodeProto& n) { return graph::detail::text_attribute(n, "mode", "nearest") == "nearest"; }

// clang-format off
inline constexpr op_entry resize_ops[] = {
    {"", "Resize", 10, run_resize, nullptr, {follow_resize, 8}, {.traits = channels_second, .places = all_but_first, .moves = takes_nearest}},
    {"", "Upsample", 1, run_upsample, nullptr, {follow_resize, 8}, {.traits = channels_second, .places = all_but_first, .moves = takes_nearest}},
};
// clang-format on

}  // namespace qk::graph::ops
