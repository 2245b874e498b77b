// SPDX-License-Identifier: Apache-2.0
// Floats that lie on a grid of bytes and are made only if somebody reads them as floats: what a DequantizeLinear, or a plan's quantizer of
// integers, makes. A layer that multiplies bytes takes them straight from the codes, or encodes the floats once.
#pragma once

#include <algorithm>

#include "qk/graph/base/kernel_calls.hpp"
#include "qk/graph/evaluate/execute/layout.hpp"
#include "qk/graph/evaluate/execute/narrow_values.hpp"
#include "qk/graph/ops/op.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// Whole numbers of one byte each, under one scale.
inline bool has_byte_codes(const quantizer& q) {
    const auto* g = std::get_if<integer>(&q.format);
    if (g == nullptr || g->bits != 8) return false;
    const auto form = narrow_form_of(q);
    return form && form->whole && form->planes == 1;
}

/// Values that lie under `q`, as their codes or, where the quantizer has not run yet, as the floats that it takes.
struct byte_source {
    tensor t;
    bool channels_last = false;

    bool is_codes() const { return t.type() != data_type::float32; }
    /// The numbers (codes less the zero point) in the form and layout asked for; empty where the codec does not serve the semantics.
    tensor numbers(const quantizer& q, const narrow_form& form, bool last, allocator& memory) const {
        const tensor bytes = bytes_of(q, last, memory);
        if (!form.floats || bytes.empty()) return bytes;
        tensor y(data_type::float32, t.shape(), memory.allocate(t.size() * sizeof(float)));
        float* to = y.as<float>().data();
        const auto widen = [&](const auto* from) { std::copy(from, from + t.size(), to); };
        form.is_signed ? widen(reinterpret_cast<const std::int8_t*>(bytes.bytes()))
                       : widen(reinterpret_cast<const std::uint8_t*>(bytes.bytes()));
        return y;
    }
    /// What stands for the floats where only their type and shape are asked for.
    tensor outline() const {
        static std::byte nothing;
        return tensor(data_type::float32, t.shape(), std::shared_ptr<std::byte>(&nothing, [](std::byte*) {}));
    }

  private:
    tensor bytes_of(const quantizer& q, bool last, allocator& memory) const {
        const std::int64_t zero = q.zero_point.empty() ? 0 : q.zero_point[0];
        const std::size_t n = t.size();
        tensor codes = t;
        if (!is_codes()) {
            codes = tensor(data_type::uint8, t.shape(), memory.allocate(n));
            if (kernel_calls::encode(q.format, t.as<float>(), std::span(codes.bytes(), n), affine{q.scale[0], zero}, q.semantics) !=
                encode_status::done)
                return {};
        }
        if (channels_last != last) codes = converted(codes, last, memory);
        if (zero == 0) return codes;
        tensor y(data_type::uint8, t.shape(), memory.allocate(n));
        const auto* from = reinterpret_cast<const std::uint8_t*>(codes.bytes());
        auto* to = reinterpret_cast<std::uint8_t*>(y.bytes());
        const auto less = static_cast<std::uint8_t>(zero);
        for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<std::uint8_t>(from[i] - less);
        return y;
    }
};

}  // namespace qk::graph::execute
