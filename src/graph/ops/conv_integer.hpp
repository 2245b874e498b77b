// SPDX-License-Identifier: Apache-2.0
// Implements ConvInteger and QLinearConv: convolutions of int8/uint8 codes with exact int32 sums over any number of spatial axes.
#pragma once

#include "graph/ops/conv.hpp"
#include "graph/ops/integer_product.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

/// Computes int32 sums [N, M, output...] of a convolution of codes. Padding has the code x_zero. w_zero: none, one value, or one per
/// channel.
inline tensor integer_conv(op_context& call, const tensor& x, float x_zero, const tensor& w, const tensor& w_zero) {
    if (x.rank() < 3 || w.rank() != x.rank())
        call.fail("x of shape " + to_string(x.shape()) + " and w of shape " + to_string(w.shape()) + " do not fit");
    const std::int64_t groups = call.node().get_int("group", 1);
    const std::int64_t outputs = w.dim(0), per_group = w.dim(1);
    if (misfit_groups(x.dim(1), per_group, groups) || outputs % groups != 0) {
        call.fail("group=" + std::to_string(groups) + " does not fit x of shape " + to_string(x.shape()) + " and w of shape " +
                  to_string(w.shape()));
    }
    check_codes(call, x);
    check_codes(call, w);
    if (!w_zero.empty() && w_zero.size() != 1 && w_zero.size() != static_cast<std::size_t>(outputs))
        call.fail("the zero point of w must be one value, or one an output channel");
    const window win = make_window(call.node(), x.shape(), {w.shape().begin() + 2, w.shape().end()});
    const std::int64_t positions = product(win.output), in_size = product(win.input), taps = per_group * product(win.kernel),
                       rows = outputs / groups;

    tensor weights = call.scratch(data_type::float32, w.shape());
    for (std::int64_t o = 0; o < outputs; ++o) {
        const float zero = w_zero.empty() ? 0 : w_zero.as<float>()[w_zero.size() == 1 ? 0 : static_cast<std::size_t>(o)];
        center(w, static_cast<std::size_t>(o * taps),
               weights.as<float>().subspan(static_cast<std::size_t>(o * taps), static_cast<std::size_t>(taps)), zero);
    }
    tensor image = call.scratch(data_type::float32, {per_group, in_size});
    tensor columns = call.scratch(data_type::float32, {taps, positions});
    tensor piece = call.scratch(data_type::float32, {rows, positions});
    tensor sums = call.scratch(data_type::int32, image_shape(x.dim(0), outputs, win.output));
    const auto all = sums.as<std::int32_t>();
    std::fill(all.begin(), all.end(), 0);
    for (std::int64_t i = 0; i < x.dim(0); ++i) {
        for (std::int64_t g = 0; g < groups; ++g) {
            center(x, static_cast<std::size_t>((i * groups + g) * per_group * in_size), image.as<float>(), x_zero);
            gather_columns(image.as<float>().data(), per_group, win, 0.0f, columns.as<float>().data());
            multiply_integers(weights.as<float>().data() + g * rows * taps, columns.as<float>().data(),
                              all.data() + (i * groups + g) * rows * positions, rows, positions, taps, piece.as<float>().data());
        }
    }
    return sums;
}

inline void run_conv_integer(op_context& call) {
    const tensor &x = call.input(0), &w = call.input(1);
    static_cast<void>(zero_point_of<float>(call, 2, x.type()));  // checks its type
    call.set_output(0, integer_conv(call, x, optional_scalar(call, 2), w, zero_point_of<float>(call, 3, w.type())));
}

/// Computes y = saturate(round((sum + bias) * (x_scale * w_scale / y_scale)) + y_zero_point).
inline void run_qlinear_conv(op_context& call) {
    static_cast<void>(zero_point_of<float>(call, 2, call.input(0).type()));  // checks its type
    tensor sums =
        integer_conv(call, call.input(0), optional_scalar(call, 2), call.input(3), zero_point_of<float>(call, 5, call.input(3).type()));
    const float x_scale = optional_scalar(call, 1), y_scale = optional_scalar(call, 6);
    const tensor w_scale = input_as<float>(call, 4);
    const auto channels = static_cast<std::size_t>(sums.dim(1));
    if (w_scale.size() != 1 && w_scale.size() != channels) call.fail("the scale of w must be one value, or one an output channel");
    const auto zero = detail::to_int64(optional_scalar(call, 7));
    const data_type type = call.has_input(7) ? call.input(7).type() : call.input(0).type();
    const tensor bias = optional_as<std::int64_t>(call, 8);
    if (!bias.empty() && bias.size() != channels) call.fail("the bias must have one value an output channel");
    tensor& y = call.output(0, type, sums.shape());
    const std::size_t positions = product(sums.shape(), 2, sums.rank());
    with_byte_type(call, type, [&]<class T>(T) {
        for (std::size_t row = 0; row < static_cast<std::size_t>(sums.dim(0)) * channels; ++row) {
            const std::size_t c = row % channels;
            std::int32_t* sum = sums.as<std::int32_t>().data() + row * positions;
            if (!bias.empty()) {
                const auto add = static_cast<std::uint32_t>(bias.as<std::int64_t>()[c]);
                for (std::size_t i = 0; i < positions; ++i) sum[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[i]) + add);
            }
            const float by = w_scale.as<float>()[w_scale.size() == 1 ? 0 : c];
            requantize(sum, positions, x_scale * by / y_scale, zero, y.as<T>().data() + row * positions);
        }
    });
}

// clang-format off
inline constexpr op_entry conv_integer_ops[] = {
    {"", "ConvInteger", 10, run_conv_integer, nullptr, {follow_conv_integer}, {.traits = exact | on_codes, .types = gives_int32}},
    {"", "QLinearConv", 10, run_qlinear_conv, nullptr, {follow_qlinear_conv}, {.traits = makes_codes | on_codes, .types = like_zero_point<7>}},
};
// clang-format on

}  // namespace qk::graph::ops
