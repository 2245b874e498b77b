// SPDX-License-Identifier: Apache-2.0
// Constants as an export stores them: rounded floats, or codes with their scales. Scalar and exact; weights are quantized once.
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/base/kernel_calls.hpp"
#include "graph/export/writer.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/reference.hpp"

namespace qk::graph::detail {

/// The scale and zero point that quantize an element.
struct scale_place {
    float scale = 1.0f;
    std::int64_t zero_point = 0;
};

/// Finds the scale of each element of a tensor under an elementwise quantizer, which must outlive it.
class scale_places {
  public:
    scale_places(const quantizer& q, const dims& shape)
        : q_(q),
          along_(view_along(shape, q.axis, q.flatten && q.block_size > 0)),
          block_(q.block_size > 0 ? static_cast<std::size_t>(q.block_size) : 1),
          blocks_((along_.length + block_ - 1) / block_),
          many_(q.scale.size() > 1 || q.block_size > 0) {
        const std::size_t expected = scales_along(q, along_);
        if (many_ && q.scale.size() != expected)
            throw error("the plan has " + std::to_string(q.scale.size()) + " scales where " + to_string(shape) + " needs " +
                        std::to_string(expected));
        if (q.zero_point.size() > 1 && q.zero_point.size() != q.scale.size())
            throw error("the plan has another number of zero points than scales");
    }
    bool one() const { return !many_; }  ///< one scale for all elements
    /// Consecutive elements that share one scale, or whose scales are consecutive, too.
    struct run {
        std::size_t first, count;
        std::size_t scale, step;  ///< scale: index of the first one's scale; step: 0 if they share it, 1 if each has the next
    };
    /// Calls visit(run) until all `count` elements of the tensor have been visited in their order.
    template <class Visit>
    void each_run(std::size_t count, const Visit& visit) const {
        if (!many_ || count == 0) return visit(run{0, count, 0, 0});
        const std::size_t length = along_.length, inner = along_.inner;
        const bool blocked = q_.block_size > 0;
        for (std::size_t o = 0; o < along_.outer; ++o) {
            if (inner == 1 && !blocked) {
                visit(run{o * length, length, 0, 1});
                continue;
            }
            const std::size_t together = inner == 1 ? block_ : 1;
            for (std::size_t p = 0; p < length; p += together) {
                const std::size_t n = std::min(together, length - p) * inner;
                visit(run{(o * length + p) * inner, n, blocked ? (o * blocks_ + p / block_) * inner : p, blocked && inner > 1 ? 1u : 0u});
            }
        }
    }
    scale_place of_scale(std::size_t k) const {
        return {q_.scale.empty() ? 1.0f : q_.scale[k], q_.zero_point.empty() ? 0 : q_.zero_point[q_.zero_point.size() == 1 ? 0 : k]};
    }
    /// Returns the scale and zero point of element i.
    scale_place at(std::size_t i) const {
        if (!many_) return of_scale(0);
        if (q_.block_size == 0) return of_scale(i / along_.inner % along_.length);
        return of_scale((i / (along_.length * along_.inner) * blocks_ + i / along_.inner % along_.length / block_) * along_.inner +
                        i % along_.inner);
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
    places.each_run(count, [&](const scale_places::run& r) {
        for (std::size_t i = 0; i < r.count; ++i) {
            const scale_place s = places.of_scale(r.scale + i * r.step);
            visit(r.first + i, s.scale, s.zero_point, places.one());
        }
    });
}

/// Returns x as the quantizer rounds it.
inline tensor rounded(const quantizer& q, const tensor& x) {
    tensor y(data_type::float32, x.shape());
    if (is_block_format(q.format)) {
        const affine t{.scale = q.scale.empty() ? 0.0f : q.scale[0]};
        const along_axis a = view_along(x.shape(), q.axis, q.flatten);
        if (is_searched(q.semantics.scale_rule))  // the oracle tries every scale, the kernels with the same result a few
            kernel_calls::fake_quantize(q.format, x.as<float>(), y.as<float>(), a, t, q.semantics);
        else reference::fake_quantize(q.format, x.as<float>(), y.as<float>(), a, t, q.semantics);
        return y;
    }
    for_each_scale(q, x.shape(), x.size(), [&](std::size_t i, float scale, std::int64_t zero_point, bool one) {
        y.as<float>()[i] = reference::quantize_one(q.format, x.as<float>()[i], scale, zero_point, one, q.semantics,
                                                   reference::random_word(q.semantics, i));
    });
    return y;
}

/// Computes reference::code_of, faster where the semantics are a division, a rounding to even and a sum. `one`: one scale for all elements.
class integer_coder {
  public:
    integer_coder(const quantizer& q, bool one)
        : f_(std::get<integer>(q.format)),
          how_(q.semantics),
          one_(one),
          quick_(how_.rounding == rounding::half_even && how_.integer_mode == integer_mode::division && !how_.zero_point_before &&
                 !how_.flush_inputs),
          low_(static_cast<double>(qmin(f_))),
          high_(static_cast<double>(qmax(f_))) {}

    /// Returns the code of element i, whose value is v.
    std::int64_t code(std::size_t i, float v, const scale_place& s) const {
        const float quotient = v / s.scale;
        if (!quick_ || !std::isfinite(quotient))
            return reference::code_of(f_, v, s.scale, s.zero_point, one_, how_, reference::random_word(how_, i));
        return static_cast<std::int64_t>(
            std::clamp(static_cast<double>(std::nearbyint(quotient)) + static_cast<double>(s.zero_point), low_, high_));
    }

  private:
    integer f_;
    semantics how_;
    bool one_, quick_;
    double low_, high_;
};

/// Returns integer codes of x, moved up by `shift`, in a container type.
inline tensor integer_codes(const quantizer& q, const tensor& x, data_type container, std::int64_t shift = 0) {
    const scale_places places(q, x.shape());
    const integer_coder coder(q, places.one());
    const float* from = x.as<float>().data();
    const std::size_t width = size_of(container);
    tensor y(container, x.shape());
    places.each_run(x.size(), [&](const scale_places::run& r) {
        for (std::size_t i = 0; i < r.count; ++i) {
            const std::int64_t code = shift + coder.code(r.first + i, from[r.first + i], places.of_scale(r.scale + i * r.step));
            std::byte* to = y.bytes() + (r.first + i) * width;  // two's complement, little endian
            if (width == 1) *to = static_cast<std::byte>(code);
            else std::memcpy(to, &code, width);
        }
    });
    return y;
}

/// Returns codes of x / scale in a floating format of at most 8 bits, one a byte.
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
