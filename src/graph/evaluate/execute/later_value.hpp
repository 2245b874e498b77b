// SPDX-License-Identifier: Apache-2.0
// The result of a DequantizeLinear or of a plan's quantizer of integers, made only if a reader needs it as floats. A layer that multiplies
// bytes (or words) takes them straight from the codes, or encodes the quantizer's input once.
#pragma once

#include <algorithm>
#include <atomic>

#include "graph/base/kernel_calls.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/narrow_values.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// Returns whether values under `q` are whole numbers of one byte each, or also of one 16-bit word each if `words`, under one scale.
inline bool has_whole_codes(const quantizer& q, bool words) {
    const auto* g = std::get_if<integer>(&q.format);
    if (g == nullptr || !(g->bits == 8 || (words && g->bits == 16))) return false;
    const auto form = narrow_form_of(q);
    return form && form->whole && (form->planes * 8 == g->bits || form_of_codes(q));
}

/// Returns a float32 tensor without data, of which only type and shape may be read.
inline tensor outline_of(dims shape) {
    static std::byte nothing;
    return tensor(data_type::float32, std::move(shape), std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), &nothing));
}

/// Values under a quantizer `q`: their codes or, if the quantizer has not run yet, the floats that are its input.
struct deferred_codes {
    tensor t;
    bool channels_last = false;

    bool is_codes() const { return t.type() != data_type::float32; }
    /// Returns the numbers (codes less the zero point) in a form and layout. Returns an empty tensor if the codec does not support the
    /// semantics, or for two planes of bytes.
    tensor numbers(const quantizer& q, const narrow_form& form, bool last, allocator& memory) const {
        const std::int64_t zero = q.zero_point.empty() ? 0 : q.zero_point[0];
        const bool has_words = std::get<integer>(q.format).bits == 16;
        if (form.planes == 2)
            return form.words && has_words ? codes_of<std::uint16_t>(q, zero - form.zero, data_type::uint16, last, memory) : tensor();
        const tensor bytes = codes_of<std::uint8_t>(q, zero - form.zero, data_type::uint8, last, memory);
        if (!form.floats || bytes.empty()) return bytes;
        tensor y(data_type::float32, t.shape(), memory.allocate(t.size() * sizeof(float)));
        float* to = y.as<float>().data();
        const auto widen = [&](const auto* from) {
            for_each_range(t.size(), 1, [&](std::size_t begin, std::size_t end) { std::copy(from + begin, from + end, to + begin); });
        };
        form.is_signed ? widen(reinterpret_cast<const std::int8_t*>(bytes.bytes()))
                       : widen(reinterpret_cast<const std::uint8_t*>(bytes.bytes()));
        return y;
    }
    tensor outline() const { return outline_of(t.shape()); }

  private:
    template <class Code>
    tensor codes_of(const quantizer& q, std::int64_t less_by, data_type type, bool last, allocator& memory) const {
        const std::int64_t zero = q.zero_point.empty() ? 0 : q.zero_point[0];
        const std::size_t n = t.size();
        tensor codes = t;
        if (!is_codes()) {
            codes = tensor(type, t.shape(), memory.allocate(n * sizeof(Code)));
            std::atomic<bool> done = true;
            for_each_range(n, 2, [&](std::size_t begin, std::size_t end) {
                const auto to = std::span(codes.bytes(), n * sizeof(Code)).subspan(begin * sizeof(Code), (end - begin) * sizeof(Code));
                if (kernel_calls::encode(q.format, t.as<float>().subspan(begin, end - begin), to, affine{q.scale[0], zero},
                                         from_element(q.semantics, begin)) != encode_status::done)
                    done = false;
            });
            if (!done) return {};
        }
        if (channels_last != last) codes = converted(codes, last, memory);
        if (less_by == 0) return codes;
        tensor y(type, t.shape(), memory.allocate(n * sizeof(Code)));
        const auto* from = reinterpret_cast<const Code*>(codes.bytes());
        auto* to = reinterpret_cast<Code*>(y.bytes());
        const auto less = static_cast<Code>(less_by);
        for_each_range(n, 1, [to, from, less](std::size_t begin, std::size_t end) {
            // The lambda owns a copy: stores of bytes may alias the original, and prevent vectorization.
            const Code own = less;
            std::transform(from + begin, from + end, to + begin, [own](Code code) { return static_cast<Code>(code - own); });
        });
        return y;
    }
};

}  // namespace qk::graph::execute
