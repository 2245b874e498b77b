// SPDX-License-Identifier: Apache-2.0
// A plan's quantizer on a tensor of any floating type.
#include "qk/graph/evaluate/execute/quantize_value.hpp"
#include "qk/graph/ops/half.hpp"

namespace qk::graph::execute {

tensor quantized(const quantizer& q, const tensor& value, bool channels_last, allocator& memory) {
    const std::size_t n = value.size();
    if (value.type() == data_type::float32) {
        tensor y(value.type(), value.shape(), memory.allocate(value.size_bytes()));
        quantize_value(q, value.shape(), channels_last, value.as<float>(), y.as<float>());
        return y;
    }
    if (value.type() != data_type::float16 && value.type() != data_type::bfloat16 && value.type() != data_type::float64) return value;
    tensor wide(data_type::float32, value.shape(), memory.allocate(n * sizeof(float)));
    const auto w = wide.as<float>();
    if (value.type() == data_type::float16) ops::widen(value.as<half>(), w);
    else if (value.type() == data_type::bfloat16) ops::widen(value.as<brain>(), w);
    else std::transform(value.as<double>().begin(), value.as<double>().end(), w.begin(), [](double v) { return static_cast<float>(v); });
    quantize_value(q, value.shape(), channels_last, w, w);
    tensor y(value.type(), value.shape(), memory.allocate(value.size_bytes()));
    if (value.type() == data_type::float16) ops::narrow(std::span<const float>(w), y.as<half>());
    else if (value.type() == data_type::bfloat16) ops::narrow(std::span<const float>(w), y.as<brain>());
    else std::copy(w.begin(), w.end(), y.as<double>().begin());
    return y;
}

}  // namespace qk::graph::execute
