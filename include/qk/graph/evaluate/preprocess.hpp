// SPDX-License-Identifier: Apache-2.0
// Converts pictures as they are stored to what a network expects: layout, channel order, scale, mean, deviation.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// y = (x * scale - mean) / std for each channel, channels in the model's order. Text form:
/// "layout=nhwc,channels=bgr,scale=1,mean=104:117:123,std=1:1:1"; every part may be left out.
struct preprocessing {
    bool channels_last = false;  ///< layout=nhwc: the data is N,H,W,C (or N,H,W with one channel) and becomes N,C,H,W
    bool swap_channels = false;  ///< channels=bgr: the data is RGB and the model takes BGR
    float scale = 1;
    int resize_height = 0, resize_width = 0;  ///< resize=HxW: size given to images before anything else; only image files can be resized
    std::vector<float> mean, deviation;       ///< one value for all channels, or one a channel; empty: 0 and 1

    /// Parses the text form. Throws an error that names the wrong part and what it may be.
    static preprocessing parse(const std::string& text);

    /// Converts data of any numeric type to float32. Data whose rank is not that of the model's input takes the input's shape if a sample
    /// has as many elements (N,28,28 or N,784 for N,1,28,28). Throws an error that names the input if channels or sizes do not fit.
    tensor apply(const tensor& data, const value_info& input) const;
};

/// Returns the text of a preprocessing that makes `data` fit `input`, for errors: "layout=nhwc,scale=0.003921569" for bytes in N,H,W,C.
/// Returns "" if the data fits as it is or no preprocessing helps.
std::string fitting_preprocessing(const tensor& data, const value_info& input);

}  // namespace qk::graph
