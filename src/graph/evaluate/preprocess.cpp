// SPDX-License-Identifier: Apache-2.0
// Parses and applies preprocessing.
#include <charconv>
#include <cmath>

#include "graph/ops/elements.hpp"
#include "qk/graph/evaluate/preprocess.hpp"

namespace qk::graph {
namespace detail {

inline float preprocess_number(std::string_view text, const std::string& part) {
    float value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
        throw error("--preprocess: '" + part + "' needs numbers, not '" + std::string(text) + "'");
    }
    return value;
}

inline std::vector<float> preprocess_numbers(std::string_view text, const std::string& part) {
    std::vector<float> values;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(':', begin), text.size());
        values.push_back(preprocess_number(text.substr(begin, end - begin), part));
        begin = end + 1;
    }
    return values;
}

/// Returns the data's shape in its own layout, with the input's rank. Throws an error if it cannot take the input's shape.
inline dims fitted_shape(const tensor& data, const value_info& input, bool channels_last) {
    dims shape = data.shape();
    if (!input.has_shape || shape.size() == input.shape.size() || shape.empty()) return shape;
    if (channels_last && shape.size() + 1 == input.shape.size()) {
        shape.push_back(1);
        return shape;
    }
    dims wanted{shape[0]};
    for (std::size_t i = 1; i < input.shape.size(); ++i) {
        if (input.shape[i].value < 0)
            throw error("--preprocess: data " + to_string(shape) + " has another rank than input '" + input.name + "'");
        wanted.push_back(input.shape[i].value);
    }
    if (element_count(wanted) != data.size()) {
        throw error("--preprocess: data " + to_string(shape) + " cannot take the shape of input '" + input.name + "', " +
                    to_string(wanted));
    }
    return wanted;
}

}  // namespace detail

preprocessing preprocessing::parse(const std::string& text) {
    preprocessing p;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const std::size_t equals = part.find('=');
        const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
        if (key == "layout" && (value == "nhwc" || value == "nchw")) {
            p.channels_last = value == "nhwc";
        } else if (key == "channels" && (value == "bgr" || value == "rgb")) {
            p.swap_channels = value == "bgr";
        } else if (key == "resize") {
            const std::size_t cross = std::min(value.find('x'), value.size());
            const float height = detail::preprocess_number(value.substr(0, cross), part);
            const float width = cross == value.size() ? height : detail::preprocess_number(value.substr(cross + 1), part);
            for (const float n : {height, width})
                if (n != std::floor(n) || n < 1 || n > 16384)
                    throw error("--preprocess: '" + part + "' needs whole numbers from 1 to 16384, as in resize=224x224");
            p.resize_height = static_cast<int>(height);
            p.resize_width = static_cast<int>(width);
        } else if (key == "scale") {
            p.scale = detail::preprocess_number(value, part);
        } else if (key == "mean") {
            p.mean = detail::preprocess_numbers(value, part);
        } else if (key == "std") {
            p.deviation = detail::preprocess_numbers(value, part);
            for (const float d : p.deviation) {
                if (d == 0) throw error("--preprocess: std must not be 0");
            }
        } else {
            throw error(
                "--preprocess: '" + part +
                "' is not understood; parts are layout=nhwc|nchw, channels=bgr|rgb, resize=HxW, scale=S, mean=M[:M...], std=D[:D...]");
        }
        begin = end + 1;
    }
    return p;
}

tensor preprocessing::apply(const tensor& data, const value_info& input) const {
    const dims shape = detail::fitted_shape(data, input, channels_last);
    if (shape.size() < 2) throw error("--preprocess: input '" + input.name + "' has no channels: its data is " + to_string(shape));
    const auto n = static_cast<std::size_t>(shape[0]);
    const auto channels = static_cast<std::size_t>(channels_last ? shape.back() : shape[1]);
    const std::size_t sample = n == 0 ? 0 : data.size() / n, plane = channels == 0 ? 0 : sample / channels;
    dims out_shape = shape;
    if (channels_last) {
        out_shape.insert(out_shape.begin() + 1, shape.back());
        out_shape.pop_back();
    }
    for (const auto* values : {&mean, &deviation}) {
        if (values->size() > 1 && values->size() != channels) {
            throw error("--preprocess: " + std::to_string(values->size()) + " values of " + (values == &mean ? "mean" : "std") + " for " +
                        std::to_string(channels) + " channels of input '" + input.name + "'");
        }
    }
    if (swap_channels && channels != 3)
        throw error("--preprocess: channels=bgr needs 3 channels; input '" + input.name + "' has " + std::to_string(channels));

    std::vector<float> x(data.size());
    if (!ops::read_elements(data.type(), data.bytes(), std::span<float>(x))) {
        throw error(std::string("--preprocess: cannot convert ") + name_of(data.type()) + " data of input '" + input.name + "'");
    }
    tensor result(data_type::float32, out_shape);
    const std::span<float> y = result.as<float>();
    const auto pick = [](const std::vector<float>& v, std::size_t c, float otherwise) {
        return v.empty() ? otherwise : v.size() == 1 ? v[0] : v[c];
    };
    for (std::size_t s = 0; s < n; ++s) {
        for (std::size_t c = 0; c < channels; ++c) {
            const std::size_t from = swap_channels ? channels - 1 - c : c;
            const float m = pick(mean, c, 0), d = pick(deviation, c, 1);
            for (std::size_t i = 0; i < plane; ++i) {
                const float v = x[s * sample + (channels_last ? i * channels + from : from * plane + i)];
                y[s * sample + c * plane + i] = (v * scale - m) / d;
            }
        }
    }
    return result;
}

std::string fitting_preprocessing(const tensor& data, const value_info& input) {
    const auto fits = [&](const dims& shape) {
        if (!input.has_shape) return true;
        if (shape.size() != input.shape.size()) return false;
        for (std::size_t i = 1; i < shape.size(); ++i)  // axis 0 counts samples
            if (input.shape[i].value >= 0 && input.shape[i].value != shape[i]) return false;
        return true;
    };
    const bool numbers = data.type() == data_type::float32 || data.type() == input.type;
    if (input.type != data_type::float32 || data.rank() == 0 || (numbers && fits(data.shape()))) return "";
    std::string layout;
    if (!fits(data.shape())) {
        dims moved = data.shape();
        if (moved.size() > 2) {
            moved.insert(moved.begin() + 1, moved.back());
            moved.pop_back();
        }
        std::int64_t sample = 1;
        for (std::size_t i = 1; i < input.shape.size() && sample >= 0; ++i)
            sample = input.shape[i].value < 0 ? -1 : sample * input.shape[i].value;
        const bool same_rank = moved.size() == input.shape.size();
        if (same_rank && fits(moved)) layout = "layout=nhwc";
        else if (same_rank || sample < 0 || data.dim(0) * sample != static_cast<std::int64_t>(data.size())) return "";
    }
    const std::string scale = data.type() == data_type::uint8 ? "scale=0.003921569" : numbers && !layout.empty() ? "" : "scale=1";
    return layout + (layout.empty() || scale.empty() ? "" : ",") + scale;
}

}  // namespace qk::graph
