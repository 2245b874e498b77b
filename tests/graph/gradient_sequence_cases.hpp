// SPDX-License-Identifier: Apache-2.0
// More nodes for gradient_test: recurrent operators, grids, signals, losses, features.
#pragma once

#include "gradient_cases.hpp"

namespace qk_test {

inline std::vector<gradient_case> recurrent_cases() {
    const std::int64_t one = 1, hidden = 3;
    using strings = std::vector<std::string>;
    using floats = std::vector<float>;
    const auto text = [](const char* s) { return std::string(s); };
    const auto lengths = whole({2}, {4, 2});
    const auto w = [](std::int64_t d, std::int64_t rows) { return real({d, rows, 2}, -1, 1); };
    const auto r = [](std::int64_t d, std::int64_t rows) { return real({d, rows, 3}, -1, 1); };
    const auto b = [](std::int64_t d, std::int64_t rows) { return real({d, 2 * rows}, -1, 1); };
    const auto x = real({4, 2, 2}, -1, 1), x_first = real({2, 4, 2}, -1, 1);
    const auto state = [](std::int64_t d) { return real({d, 2, 3}, -1, 1); };
    const auto state_first = [](std::int64_t d) { return real({2, d, 3}, -1, 1); };
    return {
        {"LSTM", {x, w(1, 12), r(1, 12)}, {{"hidden_size", hidden}}, 14, false, 3},
        {"LSTM",
         {x, w(1, 12), r(1, 12), b(1, 12), lengths, state(1), state(1), real({1, 9}, -1, 1)},
         {{"hidden_size", hidden}, {"direction", text("reverse")}},
         14,
         false,
         3},
        {"LSTM",
         {x_first, w(2, 12), r(2, 12), b(2, 12), lengths, state_first(2), state_first(2), real({2, 9}, -1, 1)},
         {{"hidden_size", hidden}, {"direction", text("bidirectional")}, {"layout", one}, {"input_forget", one}},
         14,
         false,
         3},
        {"LSTM",
         {x, w(1, 12), r(1, 12), b(1, 12), nothing(), nothing(), nothing(), real({1, 9}, -1, 1)},
         {{"hidden_size", hidden},
          {"clip", 0.6f},
          {"activations", strings{"HardSigmoid", "ScaledTanh", "Softsign"}},
          {"activation_alpha", floats{0.3f, 0.8f}},
          {"activation_beta", floats{0.4f, 1.5f}}},
         14,
         false,
         3},
        {"GRU", {x, w(1, 9), r(1, 9)}, {{"hidden_size", hidden}}, 14, false, 2},
        {"GRU",
         {x, w(2, 9), r(2, 9), b(2, 9), lengths, state(2)},
         {{"hidden_size", hidden}, {"direction", text("bidirectional")}},
         14,
         false,
         2},
        {"GRU",
         {x_first, w(2, 9), r(2, 9), b(2, 9), lengths, state_first(2)},
         {{"hidden_size", hidden}, {"direction", text("bidirectional")}, {"linear_before_reset", one}, {"layout", one}, {"clip", 0.7f}},
         14,
         false,
         2},
        {"GRU",
         {x, w(1, 9), r(1, 9), b(1, 9)},
         {{"hidden_size", hidden},
          {"linear_before_reset", one},
          {"activations", strings{"Softplus", "Elu"}},
          {"activation_alpha", floats{0.7f}}},
         14,
         false,
         2},
        {"RNN", {x, w(1, 3), r(1, 3)}, {{"hidden_size", hidden}}, 14, false, 2},
        {"RNN",
         {x, w(2, 3), r(2, 3), b(2, 3), lengths, state(2)},
         {{"hidden_size", hidden},
          {"direction", text("bidirectional")},
          {"activations", strings{"LeakyRelu", "Affine"}},
          {"activation_alpha", floats{0.2f, 0.9f}},
          {"activation_beta", floats{0.1f}}},
         14,
         false,
         2},
        {"RNN",
         {x, w(1, 3), r(1, 3)},
         {{"hidden_size", hidden}, {"activations", strings{"ThresholdedRelu"}}, {"activation_alpha", floats{0.3f}}}},
        {"RNN", {x, w(1, 3), r(1, 3)}, {{"hidden_size", hidden}, {"activations", strings{"Relu"}}}},
        {"RNN", {x, w(1, 3), r(1, 3)}, {{"hidden_size", hidden}, {"activations", strings{"Sigmoid"}}}},
    };
}

inline std::vector<gradient_case> grid_cases() {
    const std::int64_t one = 1, zero = 0;
    std::vector<gradient_case> all;
    for (const char* padding : {"zeros", "border", "reflection"})
        for (const std::int64_t align : {zero, one})
            for (const char* mode : {"linear", "nearest", "cubic"})
                all.push_back({"GridSample",
                               {real({2, 2, 4, 5}), real({2, 2, 3, 2}, -2.6, 2.6)},
                               {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", align}},
                               20});
    all.push_back({"GridSample", {real({1, 2, 3, 4}), real({1, 2, 3, 2}, -1.2, 1.2)}, {{"mode", std::string("bilinear")}}, 16});
    all.push_back({"GridSample", {real({1, 1, 3, 4, 2}), real({1, 2, 2, 2, 3}, -1.2, 1.2)}, {{"align_corners", one}}, 20});
    all.push_back({"GridSample", {real({1, 2, 5}), real({1, 4, 1}, -1.5, 1.5)}, {{"padding_mode", std::string("reflection")}}, 20});
    using ints = std::vector<std::int64_t>;
    for (const char* mode : {"avg", "max"})
        all.push_back(
            {"RoiAlign",
             {real({2, 2, 5, 6}), real({3, 4}, 0.2, 4.4), whole({3}, {0, 1, 1})},
             {{"mode", std::string(mode)}, {"output_height", one + one}, {"output_width", one + one}, {"sampling_ratio", one + one}}});
    all.push_back({"MaxRoiPool", {real({2, 2, 5, 6}), real({2, 5}, 0.6, 1.4)}, {{"pooled_shape", ints{1, 2}}}});
    all.push_back({"DeformConv",
                   {real({2, 4, 4, 5}), real({2, 2, 2, 3}), real({2, 12, 3, 2}, -0.9, 0.9), real({2}), real({2, 6, 3, 2})},
                   {{"group", one + one}, {"strides", ints{1, 2}}, {"pads", ints{0, 0, 0, 1}}},
                   19});
    all.push_back({"DeformConv", {real({1, 2, 5}), real({3, 2, 2}), real({1, 4, 4}, -0.4, 0.4)}, {{"offset_group", one + one}}, 19});
    all.push_back({"AffineGrid", {real({2, 2, 3}), whole({4}, {2, 1, 3, 4})}, {}, 20});
    all.push_back({"AffineGrid", {real({1, 3, 4}), whole({5}, {1, 1, 2, 3, 2})}, {{"align_corners", one}}, 20});
    all.push_back({"Col2Im",
                   {real({1, 8, 9}), whole({2}, {4, 4}), whole({2}, {2, 2})},
                   {{"dilations", std::vector<std::int64_t>{2, 1}}, {"pads", std::vector<std::int64_t>{1, 0, 0, 0}}},
                   18});
    all.push_back({"MaxUnpool",
                   {real({1, 1, 2, 2}), whole({1, 1, 2, 2}, {0, 3, 8, 15})},
                   {{"kernel_shape", std::vector<std::int64_t>{2, 2}}, {"strides", std::vector<std::int64_t>{2, 2}}},
                   11});
    return all;
}

inline std::vector<gradient_case> other_cases() {
    const std::int64_t one = 1;
    std::vector<gradient_case> all;
    all.push_back({"CumProd", {real({2, 4, 2}), whole({}, {1})}, {}, 26});
    all.push_back({"CumProd", {real({2, 4, 2}), whole({}, {1})}, {{"reverse", one}, {"exclusive", one}}, 26});
    for (const std::int64_t length : {4, 5, 7}) all.push_back({"DFT", {real({2, 5, 2}), whole({}, {length}), whole({}, {1})}, {}, 20});
    all.push_back({"DFT", {real({2, 6, 1}), nothing(), whole({}, {1})}, {{"onesided", one}}, 20});
    all.push_back({"DFT", {real({3, 4, 2})}, {{"axis", std::int64_t{0}}, {"inverse", one}}});
    for (const std::int64_t length : {5, 6})
        all.push_back({"DFT", {real({2, 4, 2}), whole({}, {length}), whole({}, {1})}, {{"onesided", one}, {"inverse", one}}, 20});
    all.push_back({"STFT", {real({2, 9, 1}), whole({}, {2}), real({4}), whole({}, {4})}});
    all.push_back({"STFT", {real({1, 7, 2}), whole({}, {3}), nothing(), whole({}, {3})}, {{"onesided", std::int64_t{0}}}});
    all.push_back({"OptionalGetElement", {real({2, 3})}, {}, 18});
    return all;
}

}  // namespace qk_test
