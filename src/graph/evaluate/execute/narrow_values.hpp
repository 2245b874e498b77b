// SPDX-License-Identifier: Apache-2.0
// Narrow forms of quantized values, which processors multiply faster than floats: whole numbers of one byte, or of two bytes in separate
// planes, whose products are summed exactly; or bfloat16, whose products are exact in float32. Chooses the form that holds a format's
// values without loss. Whole numbers in float32 are no faster than other floats, but their sums are exact below 2^24, so a layer of
// integers has the same bits on processors with and without an instruction that sums bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/op.hpp"
#include "qk/formats/format.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// How the values under one quantizer are stored: as bfloat16, or as whole numbers, each the value divided by `scale`.
struct narrow_form {
    bool whole = false;
    bool is_signed = false;  ///< for whole numbers; of two planes only the upper one can be
    int planes = 1;          ///< bytes of a whole number; 2: a plane of upper bytes, followed by one of lower bytes
    float scale = 1.0f;
    bool floats = false;  ///< whole numbers of one plane, held in float32
    bool words = false;   ///< whole numbers of two planes, held in words of 16 bits instead
    int zero = 0;         ///< added to whole numbers, so that they fit one plane or equal their codes
    friend bool operator==(const narrow_form&, const narrow_form&) = default;
};

namespace detail {

/// Returns the significant bits of a format's values; 0 if float32's exponents may not hold them, or for formats that are decided
/// elsewhere.
inline int significant_bits(const format& f) {
    return std::visit(
        [](const auto& g) {
            using family = std::remove_cvref_t<decltype(g)>;
            if constexpr (qk::detail::is_float<family>) return g.exponent_bits <= 8 ? g.mantissa_bits + 1 : 0;
            else if constexpr (qk::detail::under_power_scales<family>)
                return has_integer_elements(g) ? g.integer_bits - 1 : g.element.mantissa_bits + 1;
            else if constexpr (qk::detail::has_elements<family> || !qk::detail::has_blocks<family>)
                return 0;  // a product of three factors; integers and tables
            else return g.mantissa_bits;
        },
        f);
}

inline bool is_power_of_two(float v) { return v > 0 && (std::bit_cast<std::uint32_t>(v) & 0x7fffffu) == 0 && std::isnormal(v); }

}  // namespace detail

/// Returns the narrow form that holds every value under `q` without loss; nullopt if none does: stay in float32.
inline std::optional<narrow_form> narrow_form_of(const quantizer& q) {
    if (const auto* g = std::get_if<integer>(&q.format)) {
        if (q.dynamic || q.scale.size() != 1 || q.block_size != 0 || !std::isnormal(q.scale[0]) || q.scale[0] > 0x1p100f)
            return std::nullopt;
        const std::int64_t zero = q.zero_point.empty() ? 0 : q.zero_point[0], low = qmin(*g) - zero, high = qmax(*g) - zero;
        const auto within = [&](std::int64_t least, std::int64_t most) { return low >= least && high <= most; };
        if (within(-128, 127) || within(0, 255)) return narrow_form{true, low < 0, 1, q.scale[0]};
        if (within(-32768, 32767) || within(0, 65535)) return narrow_form{true, low < 0, 2, q.scale[0]};
        return std::nullopt;
    }
    const int bits = detail::significant_bits(q.format);
    if (bits == 0 || bits > 8) return std::nullopt;
    const bool own_steps = is_block_format(q.format) || (q.scale.empty() && !q.dynamic);  // scales, if any, are powers of two
    if (!own_steps && (q.dynamic || q.scale.size() != 1 || !detail::is_power_of_two(q.scale[0]))) return std::nullopt;
    return narrow_form{};
}

/// Returns the one-plane form that holds 8-bit codes as they are, for quantizers whose numbers (codes less the zero point) need two planes;
/// nullopt for all others.
inline std::optional<narrow_form> form_of_codes(const quantizer& q) {
    const auto* g = std::get_if<integer>(&q.format);
    const auto numbers = narrow_form_of(q);
    if (g == nullptr || !numbers || !numbers->whole || numbers->planes != 2) return std::nullopt;
    const bool is_signed = qmin(*g) < 0;
    if (qmin(*g) < (is_signed ? -128 : 0) || qmax(*g) > (is_signed ? 127 : 255)) return std::nullopt;
    narrow_form form{true, is_signed, 1, numbers->scale};
    form.zero = static_cast<int>(q.zero_point[0]);
    return form;
}

/// Returns -32768 if adding that turns unsigned 16-bit numbers into their signed codes, so that words hold these codes; else 0.
inline int zero_of_words(const quantizer& q) {
    return q.zero_point.size() == 1 && q.zero_point[0] == -32768 && q.scale.size() == 1 ? -32768 : 0;
}

/// Converts x, whose values `form` holds, to that form: [planes, n] of uint8 or int8, or [1, n] of words (uint16), bfloat16 or float32.
inline tensor narrowed(const narrow_form& form, std::span<const float> x, allocator& memory) {
    const auto n = static_cast<std::int64_t>(x.size());
    const auto make = [&](data_type type, std::int64_t planes) {
        return tensor(type, {planes, n}, memory.allocate(static_cast<std::size_t>(planes * n) * size_of(type)));
    };
    // The lambda owns copies of the pointers and the conversion: stores of bytes may alias the originals, and prevent vectorization.
    const auto fill = [&](auto* to, const auto& convert) {
        for_each_range(x.size(), 1, [to, from = x.data(), convert](std::size_t begin, std::size_t end) {
            const auto own = convert;
            std::transform(from + begin, from + end, to + begin, own);
        });
    };
    if (!form.whole) {
        tensor y = make(data_type::bfloat16, 1);
        fill(reinterpret_cast<std::uint16_t*>(y.bytes()),
             [](float v) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16); });
        return y;
    }
    // A value is the rounded product of scale and number, so the product by the reciprocal is within a hundredth of the number, and
    // adding 1.5 * 2^23 leaves the number in the sum's last bits.
    const float per_step = 1.0f / form.scale;
    const auto number = [per_step, zero = static_cast<std::uint32_t>(form.zero)](float v) {
        return std::bit_cast<std::uint32_t>(v * per_step + 0x1.8p23f) + zero;
    };
    if (form.floats) {
        tensor y = make(data_type::float32, 1);
        fill(y.as<float>().data(), [per_step](float v) { return (v * per_step + 0x1.8p23f) - 0x1.8p23f; });
        return y;
    }
    if (form.words) {
        tensor y = make(data_type::uint16, 1);
        fill(reinterpret_cast<std::uint16_t*>(y.bytes()), [number](float v) { return static_cast<std::uint16_t>(number(v)); });
        return y;
    }
    tensor y = make(form.is_signed && form.planes == 1 ? data_type::int8 : data_type::uint8, form.planes);
    auto* to = reinterpret_cast<std::uint8_t*>(y.bytes());
    if (form.planes == 1) {
        fill(to, [number](float v) { return static_cast<std::uint8_t>(number(v)); });
    } else {
        fill(to, [number](float v) { return static_cast<std::uint8_t>(number(v) >> 8); });
        fill(to + x.size(), [number](float v) { return static_cast<std::uint8_t>(number(v)); });
    }
    return y;
}

/// Weights [channels, ...] for inputs in a narrow form: int8 with a scale for each channel, or bfloat16.
struct narrow_weights {
    tensor values;             ///< int8 or bfloat16, of the weights' shape
    std::vector<float> scale;  ///< of products of whole numbers, by channel; empty for bfloat16
};

/// Converts weights `w` [channels, ...] for inputs in the form `x`. `q` is the quantizer that made `w`, or null; it was applied with the
/// channels on `channel_axis` of `rank` axes. Returns nullopt if the weights do not fit or a sum could pass 2^31.
inline std::optional<narrow_weights> narrow_weights_of(const narrow_form& x, const tensor& w, const quantizer* q, int channel_axis,
                                                       int rank) {
    const auto values = w.as<float>();
    const auto channels = static_cast<std::size_t>(w.dim(0)), each = values.size() / std::max<std::size_t>(channels, 1);
    narrow_weights result;
    if (!x.whole) {
        result.values = tensor(data_type::bfloat16, w.shape());
        const auto to = result.values.as<brain>();
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto bits = std::bit_cast<std::uint32_t>(values[i]);
            if ((bits & 0xffffu) != 0) return std::nullopt;
            to[i] = {static_cast<std::uint16_t>(bits >> 16)};
        }
        return result;
    }
    if (q == nullptr || !is_integer_format(q->format) || q->dynamic || q->block_size != 0 || each > 65000) return std::nullopt;
    const bool by_channel = q->scale.size() != 1;
    if (by_channel && (q->scale.size() != channels || (q->axis != channel_axis && q->axis + rank != channel_axis))) return std::nullopt;
    result.values = tensor(data_type::int8, w.shape());
    const auto to = result.values.as<std::int8_t>();
    for (std::size_t c = 0; c < channels; ++c) {
        const float scale = q->scale[by_channel ? c : 0];
        result.scale.push_back(scale * x.scale);
        if (!std::isnormal(scale) || !std::isnormal(result.scale.back()) || !std::isnormal(result.scale.back() * 256)) return std::nullopt;
        for (std::size_t i = c * each; i < (c + 1) * each; ++i) {
            const float number = std::nearbyint(values[i] / scale);
            if (!(number >= -128 && number <= 127)) return std::nullopt;
            to[i] = static_cast<std::int8_t>(number);
        }
    }
    return result;
}

/// Returns whether every sum of products of one-plane whole numbers and these weights is at most 2^24, so exact in float32 in any order.
inline bool sums_fit_floats(const narrow_form& x, const narrow_weights& w) {
    if (!x.whole || x.planes != 1) return false;
    const auto values = w.values.as<std::int8_t>();
    const std::size_t each = values.size() / std::max<std::size_t>(w.scale.size(), 1);
    for (std::size_t c = 0; c < w.scale.size(); ++c) {
        std::int64_t sum = 0;
        for (std::size_t i = c * each; i < (c + 1) * each; ++i) sum += std::abs(int{values[i]});
        if (sum * (x.is_signed ? 128 : 255) > (std::int64_t{1} << 24)) return false;
    }
    return true;
}

/// Converts int8 weights to float32.
inline tensor as_floats(const tensor& bytes) {
    tensor y(data_type::float32, bytes.shape());
    std::copy(bytes.as<std::int8_t>().begin(), bytes.as<std::int8_t>().end(), y.as<float>().begin());
    return y;
}

}  // namespace qk::graph::execute
