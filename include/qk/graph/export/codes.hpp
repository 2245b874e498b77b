// SPDX-License-Identifier: Apache-2.0
// Constants as an export stores them: rounded floats, or codes with their scales. Scalar and exact; weights are quantized once.
#pragma once

#include "qk/codec/layout/code.hpp"
#include "qk/graph/export/writer.hpp"
#include "qk/reference.hpp"

namespace qk::graph::detail {

/// What an element is quantized by.
struct scale_place {
    float scale = 1.0f;
    std::int64_t zero_point = 0;
};

/// Where the scale of each element of a tensor under an elementwise quantizer is. The quantizer outlives it.
class scale_places {
  public:
    scale_places(const quantizer& q, const dims& shape)
        : q_(q),
          along_(view_along(shape, q.axis, q.flatten && q.block_size > 0)),
          block_(q.block_size > 0 ? static_cast<std::size_t>(q.block_size) : 1),
          blocks_((along_.length + block_ - 1) / block_),
          many_(q.scale.size() > 1 || q.block_size > 0) {
        const std::size_t expected = q.block_size > 0 ? along_.outer * blocks_ * along_.inner : along_.length;
        if (many_ && q.scale.size() != expected)
            throw error("the plan has " + std::to_string(q.scale.size()) + " scales where " + to_string(shape) + " needs " +
                        std::to_string(expected));
        if (q.zero_point.size() > 1 && q.zero_point.size() != q.scale.size())
            throw error("the plan has another number of zero points than scales");
    }
    bool one() const { return !many_; }  ///< one scale for all
    scale_place at(std::size_t i) const {
        std::size_t k = 0;
        if (many_)
            k = q_.block_size > 0
                    ? (i / (along_.length * along_.inner) * blocks_ + i / along_.inner % along_.length / block_) * along_.inner +
                          i % along_.inner
                    : i / along_.inner % along_.length;
        return {q_.scale.empty() ? 1.0f : q_.scale[k], q_.zero_point.empty() ? 0 : q_.zero_point[q_.zero_point.size() == 1 ? 0 : k]};
    }

  private:
    const quantizer& q_;
    along_axis along_;
    std::size_t block_, blocks_;
    bool many_;
};

/// Calls visit(element, scale, zero point, one scale for all) for every element of a tensor under an elementwise quantizer.
template <class Visit>
void for_each_scale(const quantizer& q, const dims& shape, std::size_t count, const Visit& visit) {
    const scale_places places(q, shape);
    for (std::size_t i = 0; i < count; ++i) {
        const scale_place s = places.at(i);
        visit(i, s.scale, s.zero_point, places.one());
    }
}

/// x after the quantizer.
inline tensor rounded(const quantizer& q, const tensor& x) {
    tensor y(data_type::float32, x.shape());
    if (is_block_format(q.format)) {
        const affine t{.scale = q.scale.empty() ? 0.0f : q.scale[0]};
        reference::fake_quantize(q.format, x.as<float>(), y.as<float>(), view_along(x.shape(), q.axis, q.flatten), t, q.semantics);
        return y;
    }
    for_each_scale(q, x.shape(), x.size(), [&](std::size_t i, float scale, std::int64_t zero_point, bool one) {
        y.as<float>()[i] = reference::quantize_one(q.format, x.as<float>()[i], scale, zero_point, one, q.semantics,
                                                   reference::random_word(q.semantics, i));
    });
    return y;
}

/// Integer codes of x, moved up by `shift`, in a container type.
inline tensor integer_codes(const quantizer& q, const tensor& x, data_type container, std::int64_t shift = 0) {
    const integer f = std::get<integer>(q.format);
    tensor y(container, x.shape());
    for_each_scale(q, x.shape(), x.size(), [&](std::size_t i, float scale, std::int64_t zero_point, bool one) {
        const std::int64_t code =
            shift + reference::code_of(f, x.as<float>()[i], scale, zero_point, one, q.semantics, reference::random_word(q.semantics, i));
        std::memcpy(y.bytes() + i * size_of(container), &code, size_of(container));  // two's complement, little endian
    });
    return y;
}

/// Codes of x in a floating format of at most 8 bits, one a byte: of x / scale, rounded.
inline tensor floating_codes(const quantizer& q, const tensor& x, data_type container) {
    const floating f = std::get<floating>(q.format);
    tensor y(container, x.shape());
    for_each_scale(q, x.shape(), x.size(), [&](std::size_t i, float scale, std::int64_t, bool) {
        const float value = reference::quantize(f, x.as<float>()[i] / scale, 1.0f, q.semantics, reference::random_word(q.semantics, i));
        y.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(code_of(f, value));
    });
    return y;
}

}  // namespace qk::graph::detail
