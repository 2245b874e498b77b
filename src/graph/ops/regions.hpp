// SPDX-License-Identifier: Apache-2.0
// Implements RoiAlign, MaxRoiPool and NonMaxSuppression, which detectors use.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

/// A point of an image as its four surrounding pixels and their weights; all weights are zero outside.
template <class T>
struct region_sample {
    std::int64_t at[4];
    T weight[4];
};

/// Returns the sample at point (u, v), in pixels, of an image of width x height.
template <class T>
region_sample<T> between_pixels(double u, double v, std::int64_t width, std::int64_t height) {
    if (v < -1 || v > static_cast<double>(height) || u < -1 || u > static_cast<double>(width)) return {};
    v = std::max(v, 0.0);
    u = std::max(u, 0.0);
    const std::int64_t y0 = std::min(static_cast<std::int64_t>(v), height - 1), x0 = std::min(static_cast<std::int64_t>(u), width - 1);
    const std::int64_t y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
    const T ly = static_cast<T>(y0 >= height - 1 ? 0 : v - static_cast<double>(y0)),
            lx = static_cast<T>(x0 >= width - 1 ? 0 : u - static_cast<double>(x0));
    return {{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
            {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
}

}  // namespace detail

/// Calls f(region, image, position in the result's plane, samples) for every bin of RoiAlign's regions. The samples' weights are in T.
template <class T, class F>
void each_region_bin(op_context& call, F&& f) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    if (given.rank() != 4) call.fail("X must have rank 4");
    const tensor rois = input_as<double>(call, 1);
    const std::vector<std::int64_t> batch = integers(call, 2);
    if (rois.rank() != 2 || rois.dim(1) != 4 || batch.size() != static_cast<std::size_t>(rois.dim(0)))
        call.fail("rois must be [n, 4] and batch_indices [n]");
    // Before opset 16 there was no half-pixel shift.
    const std::string transform =
        node.get_string("coordinate_transformation_mode", node.version() >= 16 ? "half_pixel" : "output_half_pixel");
    if (transform != "half_pixel" && transform != "output_half_pixel")
        call.fail("coordinate_transformation_mode '" + transform + "' is neither half_pixel nor output_half_pixel");
    const bool half_pixel = transform == "half_pixel";
    const std::int64_t out_h = node.get_int("output_height", 1), out_w = node.get_int("output_width", 1),
                       ratio = node.get_int("sampling_ratio", 0);
    const double spatial_scale = static_cast<double>(node.get_float("spatial_scale", 1));
    if (out_h < 1 || out_w < 1 || ratio < 0 || ratio > 4096)
        call.fail("output_height and output_width must be positive, sampling_ratio in [0, 4096]");
    const std::int64_t height = given.dim(2), width = given.dim(3);
    if (height == 0 || width == 0) call.fail("X of shape " + to_string(given.shape()) + " has no pixels");
    std::vector<detail::region_sample<T>> samples;
    for (std::int64_t r = 0; r < rois.dim(0); ++r) {
        const std::int64_t image = batch[static_cast<std::size_t>(r)];
        if (image < 0 || image >= given.dim(0)) call.fail("batch_indices holds " + std::to_string(image));
        const double* roi = rois.as<double>().data() + r * 4;
        const double shift = half_pixel ? 0.5 : 0;
        const double left = roi[0] * spatial_scale - shift, top = roi[1] * spatial_scale - shift;
        double w = roi[2] * spatial_scale - shift - left, h = roi[3] * spatial_scale - shift - top;
        if (!half_pixel) {
            w = std::max(w, 1.0);
            h = std::max(h, 1.0);
        }
        const double bin_h = h / static_cast<double>(out_h), bin_w = w / static_cast<double>(out_w);
        if (!(std::fabs(bin_h) < 4096 && std::fabs(bin_w) < 4096)) call.fail("a region is larger than 4096 samples a bin");
        const std::int64_t grid_h = ratio > 0 ? ratio : std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(bin_h)));
        const std::int64_t grid_w = ratio > 0 ? ratio : std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(bin_w)));
        expect_room(call, {grid_h, grid_w, sizeof(detail::region_sample<T>)}, data_type::uint8);
        for (std::int64_t ph = 0; ph < out_h; ++ph)
            for (std::int64_t pw = 0; pw < out_w; ++pw) {
                samples.clear();
                for (std::int64_t iy = 0; iy < grid_h; ++iy)
                    for (std::int64_t ix = 0; ix < grid_w; ++ix) {
                        const double v =
                            top + static_cast<double>(ph) * bin_h + (static_cast<double>(iy) + 0.5) * bin_h / static_cast<double>(grid_h);
                        const double u =
                            left + static_cast<double>(pw) * bin_w + (static_cast<double>(ix) + 0.5) * bin_w / static_cast<double>(grid_w);
                        samples.push_back(detail::between_pixels<T>(u, v, width, height));
                    }
                f(r, image, ph * out_w + pw, samples);
            }
    }
}

inline void run_roi_align(op_context& call) {
    const node_view& node = call.node();
    const tensor &given = call.input(0), &rois = call.input(1);
    if (given.rank() != 4 || rois.rank() != 2) call.fail("X must have rank 4 and rois be [n, 4]");
    const std::int64_t out_h = node.get_int("output_height", 1), out_w = node.get_int("output_width", 1), channels = given.dim(1),
                       plane = given.dim(2) * given.dim(3);
    if (out_h < 1 || out_w < 1) call.fail("output_height and output_width must be positive");
    const bool maximum = node.get_string("mode", "avg") == "max";
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), {rois.dim(0), channels, out_h, out_w});
        each_region_bin<T>(call, [&](std::int64_t r, std::int64_t image, std::int64_t place, const auto& samples) {
            for (std::int64_t c = 0; c < channels; ++c) {
                const T* from = x.as<T>().data() + (image * channels + c) * plane;
                T sum = 0, largest = 0;
                bool any = false;
                for (const auto& s : samples)
                    for (int i = 0; i < 4; ++i) {
                        const T v = s.weight[i] * from[s.at[i]];
                        sum += v;
                        largest = any ? std::max(largest, v) : v;
                        any = true;
                    }
                y.values()[static_cast<std::size_t>((r * channels + c) * out_h * out_w + place)] =
                    maximum ? largest : sum / static_cast<T>(std::max<std::size_t>(samples.size(), 1));
            }
        });
        y.store();
    });
}

/// Calls f(element of the result, plane of X, rows, columns) for every bin of MaxRoiPool's regions. A bin may be empty.
template <class F>
void each_pooled_bin(op_context& call, F&& f) {
    const tensor& given = call.input(0);
    const auto pooled = call.node().get_ints("pooled_shape");
    const tensor rois = input_as<double>(call, 1);
    const double scale = static_cast<double>(call.node().get_float("spatial_scale", 1));
    const std::int64_t channels = given.dim(1), height = given.dim(2), width = given.dim(3);
    for (std::int64_t r = 0; r < rois.dim(0); ++r) {
        const double* roi = rois.as<double>().data() + r * 5;
        for (int i = 0; i < 5; ++i)
            if (!(std::fabs(roi[i]) < 1e9 && std::fabs(roi[i] * scale) < 1e9)) call.fail("a region has a coordinate that is not finite");
        const auto image = static_cast<std::int64_t>(roi[0]);
        if (image < 0 || image >= given.dim(0)) call.fail("rois name image " + std::to_string(image));
        const auto at = [&](int i) { return static_cast<std::int64_t>(std::round(roi[i] * scale)); };
        const std::int64_t left = at(1), top = at(2);
        const double h = static_cast<double>(std::max<std::int64_t>(at(4) - top + 1, 1)) / static_cast<double>(pooled[0]);
        const double w = static_cast<double>(std::max<std::int64_t>(at(3) - left + 1, 1)) / static_cast<double>(pooled[1]);
        const auto bound = [](double v, std::int64_t start, std::int64_t size) {
            return std::clamp<std::int64_t>(static_cast<std::int64_t>(v) + start, 0, size);
        };
        for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t i = 0; i < pooled[0]; ++i)
                for (std::int64_t j = 0; j < pooled[1]; ++j) {
                    const std::array rows{bound(std::floor(static_cast<double>(i) * h), top, height),
                                          bound(std::ceil(static_cast<double>(i + 1) * h), top, height)};
                    const std::array columns{bound(std::floor(static_cast<double>(j) * w), left, width),
                                             bound(std::ceil(static_cast<double>(j + 1) * w), left, width)};
                    f(((r * channels + c) * pooled[0] + i) * pooled[1] + j, image * channels + c, rows, columns);
                }
    }
}

inline void run_max_roi_pool(op_context& call) {
    const tensor &given = call.input(0), &rois = call.input(1);
    const auto pooled = call.node().get_ints("pooled_shape");
    if (given.rank() != 4 || pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1 || rois.rank() != 2 || rois.dim(1) != 5)
        call.fail("X must have rank 4, rois be [n, 5], pooled_shape two positive values");
    const std::int64_t width = given.dim(3), plane = given.dim(2) * width;
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), {rois.dim(0), given.dim(1), pooled[0], pooled[1]});
        each_pooled_bin(call, [&](std::int64_t place, std::int64_t channel, const auto& rows, const auto& columns) {
            const T* from = x.as<T>().data() + channel * plane;
            T largest = rows[0] < rows[1] && columns[0] < columns[1] ? from[rows[0] * width + columns[0]] : T{0};
            for (std::int64_t a = rows[0]; a < rows[1]; ++a)
                for (std::int64_t b = columns[0]; b < columns[1]; ++b) largest = std::max(largest, from[a * width + b]);
            y.values()[static_cast<std::size_t>(place)] = largest;
        });
        y.store();
    });
}

/// Visits boxes by descending score, and drops a box that overlaps a chosen one by more than the threshold.
inline void run_non_max_suppression(op_context& call) {
    const tensor boxes = input_as<float>(call, 0), scores = input_as<float>(call, 1);
    if (boxes.rank() != 3 || boxes.dim(2) != 4 || scores.rank() != 3 || scores.dim(0) != boxes.dim(0) || scores.dim(2) != boxes.dim(1)) {
        call.fail("boxes of shape " + to_string(boxes.shape()) + " and scores of shape " + to_string(scores.shape()) + " do not fit");
    }
    const auto scalar = [&](std::size_t i) { return call.has_input(i) && call.input(i).size() == 1; };
    const std::int64_t most = scalar(2) ? integers(call, 2)[0] : 0;
    const float overlap = scalar(3) ? input_as<float>(call, 3).as<float>()[0] : 0.0f;
    const bool has_threshold = scalar(4);
    const float threshold = has_threshold ? input_as<float>(call, 4).as<float>()[0] : 0.0f;
    const bool centred = call.node().get_int("center_point_box", 0) != 0;
    struct box {
        float y0, x0, y1, x1;
    };
    const auto box_of = [&](const float* b) -> box {
        if (centred) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
        return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
    };
    const auto overlaps = [&](const box& a, const box& b) {
        const float h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
        if (h <= 0 || w <= 0) return false;
        const float both = h * w, area_a = (a.y1 - a.y0) * (a.x1 - a.x0), area_b = (b.y1 - b.y0) * (b.x1 - b.x0);
        if (area_a <= 0 || area_b <= 0) return false;
        return both / (area_a + area_b - both) > overlap;
    };
    std::vector<std::int64_t> chosen;
    const std::int64_t count = boxes.dim(1);
    for (std::int64_t n = 0; n < boxes.dim(0); ++n)
        for (std::int64_t c = 0; c < scores.dim(1); ++c) {
            const float* score = scores.as<float>().data() + (n * scores.dim(1) + c) * count;
            std::vector<std::int64_t> order;
            for (std::int64_t i = 0; i < count; ++i)
                if (!has_threshold || score[i] > threshold) order.push_back(i);
            std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return score[a] > score[b]; });
            std::vector<box> kept;
            for (const std::int64_t i : order) {
                if (static_cast<std::int64_t>(kept.size()) >= most) break;
                const box candidate = box_of(boxes.as<float>().data() + (n * count + i) * 4);
                if (std::any_of(kept.begin(), kept.end(), [&](const box& b) { return overlaps(b, candidate); })) continue;
                kept.push_back(candidate);
                chosen.insert(chosen.end(), {n, c, i});
            }
        }
    tensor& y = call.output(0, data_type::int64, {static_cast<std::int64_t>(chosen.size() / 3), 3});
    std::copy(chosen.begin(), chosen.end(), y.as<std::int64_t>().begin());
}

inline constexpr op_entry regions_ops[] = {
    {"", "RoiAlign", 10, run_roi_align, nullptr, {follow_all_samples}},
    {"", "MaxRoiPool", 1, run_max_roi_pool, nullptr, {follow_all_samples}},
    {"", "NonMaxSuppression", 10, run_non_max_suppression, nullptr, {follow_all_samples}, {.types = gives_int64}},
};

}  // namespace qk::graph::ops
