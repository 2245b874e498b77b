// SPDX-License-Identifier: Apache-2.0
// Applies a plan's quantizer to a tensor of any floating type.
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/ops/half.hpp"

namespace qk::graph::execute {

std::pair<float, float> finite_range(std::span<const float> x) {
    constexpr std::size_t piece = 1 << 14;
    const std::size_t pieces = (x.size() + piece - 1) / piece;
    std::vector<std::pair<float, float>> of(pieces);
    for_each_range(pieces, piece, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
            float low = 0, high = 0;
            for (const float v : x.subspan(i * piece, std::min(piece, x.size() - i * piece))) {
                const float finite = std::abs(v) <= std::numeric_limits<float>::max() ? v : 0.0f;
                low = finite < low ? finite : low, high = finite > high ? finite : high;
            }
            of[i] = {low, high};
        }
    });
    std::pair<float, float> all{0.0f, 0.0f};
    for (const auto& [low, high] : of) all = {std::min(all.first, low), std::max(all.second, high)};
    return all;
}

void quantize_in_parts(const quantizer& q, const dims& shape, bool channels_last, std::span<const float> x, std::span<float> y) {
    const auto whole = [&] { quantize_value(q, shape, channels_last, x, y); };
    // Rows are independent unless the whole tensor decides a scale, or scales are given for blocks.
    const bool by_row = q.block_size == 0 && !(has_floating_scales(q.format) && (q.dynamic || q.scale.empty()));
    if (runs_parts() == nullptr || has_one_scale(q) || !by_row || x.empty()) return whole();
    along_axis axis = axis_of(shape, q.axis, q.flatten);
    if (channels_last) axis = {static_cast<std::size_t>(shape[0]) * axis.inner, axis.length, 1};
    const std::size_t row = axis.length * axis.inner;
    if (axis.outer < 2) return whole();
    for_each_range(axis.outer, 4 * row, [&](std::size_t first, std::size_t last) {
        quantizer of = q;
        of.axis = 1, of.flatten = false, of.semantics = from_element(q.semantics, first * row);
        const dims part{static_cast<std::int64_t>(last - first), static_cast<std::int64_t>(axis.length),
                        static_cast<std::int64_t>(axis.inner)};
        quantize_value(of, part, false, x.subspan(first * row, (last - first) * row), y.subspan(first * row, (last - first) * row));
    });
}

tensor quantized(const quantizer& q, const tensor& value, bool channels_last, allocator& memory) {
    const std::size_t n = value.size();
    if (value.type() == data_type::float32) {
        tensor y(value.type(), value.shape(), memory.allocate(value.size_bytes()));
        quantize_in_parts(q, value.shape(), channels_last, value.as<float>(), y.as<float>());
        return y;
    }
    if (value.type() != data_type::float16 && value.type() != data_type::bfloat16 && value.type() != data_type::float64) return value;
    tensor wide(data_type::float32, value.shape(), memory.allocate(n * sizeof(float)));
    const auto w = wide.as<float>();
    if (value.type() == data_type::float16) ops::widen(value.as<half>(), w);
    else if (value.type() == data_type::bfloat16) ops::widen(value.as<brain>(), w);
    else std::transform(value.as<double>().begin(), value.as<double>().end(), w.begin(), [](double v) { return static_cast<float>(v); });
    quantize_in_parts(q, value.shape(), channels_last, w, w);
    tensor y(value.type(), value.shape(), memory.allocate(value.size_bytes()));
    if (value.type() == data_type::float16) ops::narrow(std::span<const float>(w), y.as<half>());
    else if (value.type() == data_type::bfloat16) ops::narrow(std::span<const float>(w), y.as<brain>());
    else std::copy(w.begin(), w.end(), y.as<double>().begin());
    return y;
}

}  // namespace qk::graph::execute
