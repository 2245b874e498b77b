// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime/quark.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "onnxruntime/kernel.hpp"
#include "onnxruntime/meaning.hpp"
#include "qk/dispatch.hpp"
#include "qk/storage.hpp"

namespace qk::onnxruntime {
namespace {

enum class quark_kind { block_float, microscaling, quantize, dequantize };

/// An operator by one of its names.
struct quark_operation : OrtCustomOp {
    const char* name;
    quark_kind kind;

    quark_operation(const char* of, quark_kind k);
};

/// A node's operator.
struct quark_kernel {
    const OrtApi& api;
    std::string node;
    quark_kind kind;
    call_meaning blocks{};  ///< of the operators with blocks
    bool through_bfloat16 = false;
    std::int64_t axis = 1;
};

const quark_operation& of(const OrtCustomOp* op) { return *static_cast<const quark_operation*>(op); }

rounding rounding_of(std::int64_t mode) {
    constexpr rounding modes[] = {rounding::half_away, rounding::half_up, rounding::half_even};
    if (mode < 0 || mode > 2)
        throw refusal("rounding_mode " + std::to_string(mode) + " is none of 0 (half away), 1 (half up), 2 (half even)");
    return modes[mode];
}

/// Reads attributes, each of which has a value where it is left out.
struct attributes {
    const OrtApi& api;
    const OrtKernelInfo* info;

    std::int64_t number(const char* name, std::int64_t otherwise) const {
        std::int64_t value = 0;
        return succeeded(api, api.KernelInfoGetAttribute_int64(info, name, &value)) ? value : otherwise;
    }
    int number(const char* name, std::int64_t otherwise, std::int64_t low, std::int64_t high) const {
        const std::int64_t v = number(name, otherwise);
        if (v < low || v > high)
            throw refusal("attribute " + std::string(name) + "=" + std::to_string(v) + " is outside [" + std::to_string(low) + ", " +
                          std::to_string(high) + "]");
        return static_cast<int>(v);
    }
    std::string text(const char* name, const char* otherwise) const { return text_attribute(api, info, name).value_or(otherwise); }
};

format block_float_of(const attributes& a) {
    const int mantissa = a.number("bit_width", 16, 10, 32) - 9, block = a.number("block_size", 8, 1, 1 << 20);
    const std::string method = a.text("bfp_method", "to_bfp");
    if (method == "to_bfp") return qk::block_float{.block_size = block, .exponent_bits = 8, .mantissa_bits = mantissa};
    if (method != "to_bfp_prime" && method != "to_bfp_prime_shared")
        throw refusal("bfp_method '" + method + "' is none of to_bfp, to_bfp_prime");
    const microexponent f{.block_size = block,
                          .sub_block_size = a.number("sub_block_size", 2, 1, block),
                          .exponent_bits = 8,
                          .shift_bits = a.number("sub_block_shift_bits", 1, 1, 7),
                          .mantissa_bits = mantissa};
    if (f.block_size % f.sub_block_size != 0) throw refusal("block_size is not a multiple of sub_block_size");
    return f;
}

format microscaling_of(const attributes& a) {
    constexpr std::pair<std::string_view, floating> elements[] = {
        {"fp8_e4m3", fp8_e4m3fn}, {"fp8_e5m2", fp8_e5m2}, {"fp6_e3m2", fp6_e3m2}, {"fp6_e2m3", fp6_e2m3}, {"fp4_e2m1", fp4_e2m1}};
    const std::string element = a.text("element_dtype", "int8");
    qk::microscaling f = mxint8;
    f.block_size = a.number("block_size", 32, 1, 1 << 20);
    if (element == "int8") return f;
    for (const auto& [name, of_element] : elements)
        if (name == element) return f.element = of_element, f.integer_bits = 0, f;
    throw refusal("element_dtype '" + element + "' is none of fp8_e4m3, fp8_e5m2, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8");
}

OrtStatus* make_kernel(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** made) noexcept {
    const std::string node = node_name(*api, info);
    return as_status(*api, [&] {
        try {
            const attributes a{*api, info};
            quark_kernel k{.api = *api, .node = node, .kind = of(op).kind};
            k.axis = a.number("axis", 1);
            call_meaning& m = k.blocks;
            m.semantics = semantics::quark;
            if (k.kind == quark_kind::block_float) {
                m.format = block_float_of(a);
                m.semantics.rounding = rounding_of(a.number("rounding_mode", 0));
                k.through_bfloat16 = a.number("convert_to_bfloat_before_bfp", 0) != 0;
            } else if (k.kind == quark_kind::microscaling) {
                m.format = microscaling_of(a);
                // The rounding mode is that of integer elements alone.
                if (has_integer_elements(std::get<qk::microscaling>(m.format)))
                    m.semantics.rounding = rounding_of(a.number("rounding_mode", 2));
            }
            m.scales = portable::scale_source::own;
            m.axis = k.axis;
            m.block = static_cast<std::size_t>(block_size(m.format));
            *made = new quark_kernel(std::move(k));
        } catch (const refusal& e) {
            throw refusal("qk: node '" + node + "' (" + of(op).name + "): " + e.what());
        }
    });
}

/// Calls work(T{}) with the type of a tensor of floats.
template <class Work>
void with_floats(const input_tensor& t, const Work& work) {
    switch (t.type) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return work(0.0f);
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return work(float16{});
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return work(bfloat16{});
        default: throw refusal("its input is no float of 16 or 32 bits");
    }
}
float wide(float v) { return v; }
template <class T>
float wide(T v) {
    return widen(v);
}

void quantize_blocks(const quark_kernel& k, run_context& run) {
    const input_tensor in = run.input(0);
    with_floats(in, [&]<class T>(T) {
        const std::span<const T> from = in.as<T>();
        const std::span<T> to = run.output<T>(in.shape);
        if (from.size() == 1) return static_cast<void>(to[0] = from[0]);  // a single element passes
        if constexpr (std::is_same_v<T, float>)
            if (!k.through_bfloat16) return quantize(k.blocks, in.shape, from, to, {}, {}, run);
        const std::span<float> x = run.room_for<float>(from.size());
        std::ranges::transform(from, x.begin(), [&](T v) { return k.through_bfloat16 ? widen(narrow<bfloat16>(wide(v))) : wide(v); });
        if constexpr (std::is_same_v<T, float>) return quantize(k.blocks, in.shape, x, to, {}, {}, run);
        else {
            quantize(k.blocks, in.shape, x, x, {}, {}, run);
            std::ranges::transform(x, to.begin(), [](float v) { return narrow<T>(v); });
        }
    });
}

/// The integers that codes may be.
std::optional<integer> integer_of(ONNXTensorElementDataType t) {
    switch (t) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: return int8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return uint8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: return int16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: return uint16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return int32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32: return uint32;
        default: return std::nullopt;
    }
}

/// Scales and zero points, one for the tensor or one for each index of an axis.
struct grid {
    along_axis axis;
    std::span<const float> scale;
    std::span<const std::int64_t> zero;  ///< of integers
    std::span<const float> float_zero;   ///< of floats of 16 bits

    bool is_one() const { return scale.size() == 1; }
    codec_parameters of(const part& p) const {
        if (is_one()) return affine{scale[0], zero.empty() ? 0 : zero[0]};
        return per_channel{scale.subspan(p.along, p.axis.length), zero.empty() ? zero : zero.subspan(p.along, p.axis.length), p.axis};
    }
    /// Calls each(begin, end, number of the scale) for runs of values of a part that share a scale.
    template <class Each>
    void each_run(const part& p, const Each& each) const {
        if (is_one()) return each(p.offset, p.offset + p.size(), std::size_t{0});
        for (std::size_t i = 0; i < p.axis.outer * p.axis.length; ++i)
            each(p.offset + i * p.axis.inner, p.offset + (i + 1) * p.axis.inner, p.along + i % p.axis.length);
    }
    float float_zero_of(std::size_t i) const { return float_zero.empty() ? 0.0f : float_zero[i]; }
};

std::span<const std::int64_t> wholes(const input_tensor& t, run_context& run) {
    const auto all = run.room_for<std::int64_t>(t.size);
    const auto take = [&]<class T>(T) { std::ranges::copy(t.as<T>(), all.begin()); };
    switch (t.type) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: take(std::int8_t{}); break;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: take(std::uint8_t{}); break;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: take(std::int16_t{}); break;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: take(std::uint16_t{}); break;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: take(std::int32_t{}); break;
        default: take(std::uint32_t{}); break;
    }
    return all;
}

grid grid_of(const quark_kernel& k, const input_tensor& x, const input_tensor& scale, const input_tensor& zero, run_context& run) {
    if (scale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || scale.size == 0) throw refusal("its scales are no float32");
    if (zero.size != scale.size)
        throw refusal("it has " + std::to_string(zero.size) + " zero points for " + std::to_string(scale.size) + " scales");
    grid g{.axis = {1, x.size, 1}, .scale = scale.as<float>(), .zero = {}, .float_zero = {}};
    if (!g.is_one()) {
        call_meaning m;
        m.scales = portable::scale_source::channels, m.axis = k.axis;
        g.axis = seen_along(m, x.shape);
        if (g.axis.length != scale.size)
            throw refusal("it has " + std::to_string(scale.size) + " scales for " + std::to_string(g.axis.length) + " channels");
    }
    if (!std::ranges::all_of(g.scale, [](float s) { return s > 0 && std::isfinite(s); }))
        throw refusal("a scale is no finite number above 0");
    if (integer_of(zero.type)) {
        g.zero = wholes(zero, run);
    } else {
        const auto floats = run.room_for<float>(zero.size);
        with_floats(zero, [&]<class T>(T) { std::ranges::transform(zero.as<T>(), floats.begin(), [](T v) { return wide(v); }); });
        g.float_zero = floats;
    }
    return g;
}

template <class T>
void quantize_to(const grid& g, std::span<const float> x, std::span<T> y, run_context& run) {
    const parts all(g.axis, 1, 1);
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        g.each_run(all[i], [&](std::size_t begin, std::size_t end, std::size_t s) {
            if constexpr (std::is_same_v<T, float16>) {  // cut off, with neither scale nor zero point
                for (std::size_t k = begin; k < end; ++k)
                    y[k] = narrow<T>(x[k] > 65504.0f ? 65504.0f : x[k] < -65504.0f ? -65504.0f : x[k]);
            } else {
                const float scale = g.scale[s], zero = g.float_zero_of(s);
                for (std::size_t k = begin; k < end; ++k) y[k] = narrow<T>(x[k] / scale + zero);
            }
        });
    });
}

void quantize_codes(const quark_kernel& own, run_context& run) {
    const input_tensor in = run.input(0), zero = run.input(2);
    if (in.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) throw refusal("its input is not float32");
    const grid g = grid_of(own, in, run.input(1), zero, run);
    const std::span<const float> x = in.as<float>();
    if (zero.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16) return quantize_to(g, x, run.output<float16>(in.shape), run);
    if (zero.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16) return quantize_to(g, x, run.output<bfloat16>(in.shape), run);
    const auto codes = integer_of(zero.type);
    if (!codes) throw refusal("its zero point has a type that no code has");
    const std::size_t width = static_cast<std::size_t>(codes->bits) / 8;
    const std::span<std::byte> y{run.output<std::byte>(in.shape).data(), x.size() * width};
    if (x.empty()) return;
    const parts all(g.axis, 1, 1);
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        const part p = all[i];
        static_cast<void>(dispatch::encode(*codes, x.subspan(p.offset, p.size()), y.subspan(p.offset * width, p.size() * width), g.of(p),
                                           semantics::quark));  // every number has a code
        // A quotient from 2^63 on has no int64, and x86-64's conversion makes the lowest code of it, as of Inf.
        g.each_run(p, [&](std::size_t begin, std::size_t end, std::size_t s) {
            const float beyond = 0x1p63f * g.scale[s];
            float most = 0;
            for (std::size_t k = begin; k < end; ++k) most = std::max(most, x[k]);
            if (!(most >= beyond / 2)) return;
            const std::int64_t lowest = qmin(*codes);
            for (std::size_t k = begin; k < end; ++k)
                if (x[k] / g.scale[s] >= 0x1p63f) std::memcpy(&y[k * width], &lowest, width);
        });
    });
}

void dequantize_codes(const quark_kernel& own, run_context& run) {
    const input_tensor in = run.input(0), zero = run.input(2);
    if (in.type != zero.type) throw refusal("its codes and its zero point have two types");
    const grid g = grid_of(own, in, run.input(1), zero, run);
    const std::span<float> y = run.output<float>(in.shape);
    if (y.empty()) return;
    const parts all(g.axis, 1, 1);
    if (const auto codes = integer_of(in.type)) {
        const std::size_t width = static_cast<std::size_t>(codes->bits) / 8;
        const std::span<const std::byte> bytes{static_cast<const std::byte*>(in.data), in.size * width};
        return run.in_parallel(all.count(), [&](std::size_t i) noexcept {
            const part p = all[i];
            dispatch::decode(*codes, bytes.subspan(p.offset * width, p.size() * width), y.subspan(p.offset, p.size()), g.of(p));
        });
    }
    with_floats(in, [&]<class T>(T) {
        const std::span<const T> x = in.as<T>();
        run.in_parallel(all.count(), [&](std::size_t i) noexcept {
            g.each_run(all[i], [&](std::size_t begin, std::size_t end, std::size_t s) {
                const bool cut_off = std::is_same_v<T, float16>;  // without scale and zero point, as above
                const float scale = cut_off ? 1.0f : g.scale[s], z = cut_off ? 0.0f : g.float_zero_of(s);
                for (std::size_t k = begin; k < end; ++k) y[k] = (wide(x[k]) - z) * scale;
            });
        });
    });
}

OrtStatus* compute(void* k, OrtKernelContext* context) noexcept {
    const quark_kernel& own = *static_cast<const quark_kernel*>(k);
    return as_status(own.api, [&] {
        try {
            run_context run(own.api, context);
            switch (own.kind) {
                case quark_kind::block_float:
                case quark_kind::microscaling: return quantize_blocks(own, run);
                case quark_kind::quantize: return quantize_codes(own, run);
                case quark_kind::dequantize: return dequantize_codes(own, run);
            }
        } catch (const refusal& e) {
            throw refusal("qk: node '" + own.node + "': " + e.what());
        }
    });
}

bool has_codes(quark_kind k) { return k == quark_kind::quantize || k == quark_kind::dequantize; }

quark_operation::quark_operation(const char* of_file, quark_kind k) : OrtCustomOp{}, name(of_file), kind(k) {
    fill_operation(*this);
    GetName = [](const OrtCustomOp* op) { return of(op).name; };
    GetInputTypeCount = [](const OrtCustomOp* op) -> std::size_t { return has_codes(of(op).kind) ? 3 : 1; };
    GetInputType = [](const OrtCustomOp* op, std::size_t i) {
        const bool is_float = has_codes(of(op).kind) && (i == 1 || (i == 0 && of(op).kind == quark_kind::quantize));
        return is_float ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    };
    GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) { return INPUT_OUTPUT_REQUIRED; };
    GetOutputType = [](const OrtCustomOp* op, std::size_t) {  // else that of the input whose type is open
        return of(op).kind == quark_kind::dequantize ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    };
    CreateKernelV2 = make_kernel;
    KernelComputeV2 = compute;
    KernelDestroy = [](void* made) { delete static_cast<quark_kernel*>(made); };
}

}  // namespace

std::span<const OrtCustomOp* const> quark_operations() {
    using enum quark_kind;
    static const quark_operation all[] = {{"BFPQuantizeDequantize", block_float},   {"BFPFixNeuron", block_float},
                                          {"MXQuantizeDequantize", microscaling},   {"MXFixNeuron", microscaling},
                                          {"ExtendedQuantizeLinear", quantize},     {"VitisQuantizeLinear", quantize},
                                          {"ExtendedDequantizeLinear", dequantize}, {"VitisDequantizeLinear", dequantize}};
    static const auto pointers = [] {
        std::array<const OrtCustomOp*, std::size(all)> p{};
        std::ranges::transform(all, p.begin(), [](const quark_operation& o) { return &o; });
        return p;
    }();
    return pointers;
}

}  // namespace qk::onnxruntime
