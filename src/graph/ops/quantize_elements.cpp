// SPDX-License-Identifier: Apache-2.0
// Defines quantize_linear.hpp: converts values to codes and back under a grid of scales.
#include "graph/ops/quantize_linear.hpp"

#include <cmath>

namespace qk::graph::ops {

namespace detail {
namespace {

/// Does what quantize_run does for 32-bit codes, whose bounds are not exact floats.
template <class T>
void quantize_run_wide(const float* x, std::size_t n, float scale, std::int64_t zero_point, T* y) {
    for (std::size_t i = 0; i < n; ++i) {
        const double q = std::nearbyint(x[i] / scale);
        const double sum = q + static_cast<double>(zero_point);  // exact wherever it is not clamped: both are below 2^33 there
        constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
        constexpr auto high = static_cast<double>(std::numeric_limits<T>::max());
        y[i] = static_cast<T>(!(sum > low) ? low : sum > high ? high : sum);
    }
}

/// Is true for codes of 8 or 16 bits, in runs long enough for a call of the codec, with a scale that the codec can divide by.
bool suits_codec(data_type codes, std::size_t n, float scale) {
    const bool whole = codes == data_type::int8 || codes == data_type::uint8 || codes == data_type::int16 || codes == data_type::uint16;
    return whole && n >= 64 && scale > 0 && std::isfinite(scale);
}
integer code_format(data_type codes) {
    return {.bits = bits_of(codes), .is_signed = codes == data_type::int8 || codes == data_type::int16};
}

}  // namespace
}  // namespace detail

void quantize_elements(const op_context& call, std::span<const float> x, const scale_grid& grid, std::span<const float> scale,
                       std::span<const std::int64_t> zero_point, tensor& y, bool saturate, float float_zero) {
    const data_type type = y.type();
    const auto zero = [&](std::size_t i) { return zero_point.empty() ? 0 : zero_point[zero_point.size() == 1 ? 0 : i]; };
    const auto each = [&]<class T>(T* to, auto run) {
        grid.for_each_run(
            [&](std::size_t begin, std::size_t n, std::size_t s) { run(x.data() + begin, n, scale[s], zero(s), to + begin); });
    };
    const auto narrow = [&]<class T>(T* to) {
        const std::int64_t low = lowest_code(type), high = highest_code(type);
        each(to, [low, high, type](const float* from, std::size_t n, float s, std::int64_t z, T* out) {
            if (detail::suits_codec(type, n, s) && z >= low && z <= high) {
                const auto bytes = std::as_writable_bytes(std::span(out, n));
                if (kernel_calls::encode(detail::code_format(type), std::span(from, n), bytes, affine{s, z}, semantics::onnx) ==
                    encode_status::done)
                    return;
            }
            detail::quantize_run(from, n, s, z, low, high, out);
        });
    };
    switch (type) {
        case data_type::int8:
        case data_type::int4:
        case data_type::int2: return narrow(reinterpret_cast<std::int8_t*>(y.bytes()));
        case data_type::uint8:
        case data_type::uint4:
        case data_type::uint2: return narrow(reinterpret_cast<std::uint8_t*>(y.bytes()));
        case data_type::int16: return narrow(y.as<std::int16_t>().data());
        case data_type::uint16: return narrow(y.as<std::uint16_t>().data());
        case data_type::int32:
            return each(y.as<std::int32_t>().data(), [](const float* from, std::size_t n, float s, std::int64_t z, std::int32_t* out) {
                detail::quantize_run_wide(from, n, s, z, out);
            });
        case data_type::uint32:
            return each(y.as<std::uint32_t>().data(), [](const float* from, std::size_t n, float s, std::int64_t z, std::uint32_t* out) {
                detail::quantize_run_wide(from, n, s, z, out);
            });
        default: break;
    }
    if (!is_float_type(type) || type == data_type::float64) call.fail(std::string("cannot quantize to ") + name_of(type));
    each(y.bytes(), [&](const float* from, std::size_t n, float s, std::int64_t, std::byte*) {
        constexpr std::size_t chunk = 256;
        float quotient[chunk];
        const auto begin = static_cast<std::size_t>(from - x.data());
        for (std::size_t i = 0; i < n; i += chunk) {
            const std::size_t m = std::min(chunk, n - i);
            for (std::size_t j = 0; j < m; ++j) quotient[j] = from[i + j] / s + float_zero;
            write_elements<float>(std::span<const float>(quotient, m), type, y.bytes() + (begin + i) * size_of(type),
                                  {.saturate = saturate});
        }
    });
}

void dequantize_elements(const op_context& call, const tensor& x, const scale_grid& grid, std::span<const float> scale,
                         std::span<const std::int64_t> zero_point, std::span<float> y) {
    const auto zero = [&](std::size_t i) { return zero_point.empty() ? 0 : zero_point[zero_point.size() == 1 ? 0 : i]; };
    const auto each = [&]<class T>(const T* from) {  // codes of at most 16 bits, so the difference fits int32
        grid.for_each_run([&](std::size_t begin, std::size_t n, std::size_t s) {
            const auto z = static_cast<std::int32_t>(zero(s));
            const float by = scale[s];
            if (detail::suits_codec(x.type(), n, by)) {
                const auto bytes = std::as_bytes(std::span(from + begin, n));
                return kernel_calls::decode(detail::code_format(x.type()), bytes, y.subspan(begin, n), affine{by, z});
            }
            for (std::size_t i = begin; i < begin + n; ++i) y[i] = static_cast<float>(static_cast<std::int32_t>(from[i]) - z) * by;
        });
    };
    switch (x.type()) {
        case data_type::int8: return each(x.as<std::int8_t>().data());
        case data_type::uint8: return each(x.as<std::uint8_t>().data());
        case data_type::int16: return each(x.as<std::int16_t>().data());
        case data_type::uint16: return each(x.as<std::uint16_t>().data());
        default: break;
    }
    if (is_integer_type(x.type()) && bits_of(x.type()) > 32) call.fail(std::string("cannot dequantize ") + name_of(x.type()));
    constexpr std::size_t chunk = 256;
    const std::size_t width = size_of(x.type());
    grid.for_each_run([&](std::size_t begin, std::size_t n, std::size_t s) {
        for (std::size_t i = begin; i < begin + n; i += chunk) {
            const std::size_t m = std::min(chunk, begin + n - i);
            if (is_integer_type(x.type())) {
                std::int64_t code[chunk];
                read_elements<std::int64_t>(x.type(), x.bytes() + i * width, std::span(code, m));
                for (std::size_t j = 0; j < m; ++j) y[i + j] = static_cast<float>(code[j] - zero(s)) * scale[s];
            } else {
                float value[chunk];
                if (!read_elements<float>(x.type(), x.bytes() + i * width, std::span(value, m))) {
                    call.fail(std::string("cannot dequantize ") + name_of(x.type()));
                }
                for (std::size_t j = 0; j < m; ++j) y[i + j] = value[j] * scale[s];
            }
        }
    });
}

}  // namespace qk::graph::ops
