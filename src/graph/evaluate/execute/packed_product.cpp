// SPDX-License-Identifier: Apache-2.0
#include "graph/evaluate/execute/packed_product.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "graph/base/kernel_calls.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/ops/packed_rows.hpp"

namespace qk::graph::execute {
namespace {

/// Returns whether every scale of q belongs to whole columns of a product, or to blocks along them; `along` is the axis of k.
bool lies_along(const quantizer& q, int along) {
    const int axis = q.axis < 0 ? q.axis + 2 : q.axis;
    const std::size_t bits = layout_of(q.format, along_axis{1, 64, 1}).elements.bytes() / 8;
    if (q.dynamic || q.flatten || bits > 16) return false;
    return is_block_format(q.format) || q.block_size > 0 ? axis == along : q.scale.size() <= 1 || axis != along;
}

}  // namespace

codec_parameters packed_product::parameters() const {
    const along_axis rows{n_, k_, 1};
    if (block_ != 0) return per_block{scale_, zero_point_, rows, block_};
    if (scale_.empty()) return rows;
    return {rows, affine{scale_[0], zero_point_.empty() ? 0 : zero_point_[0]}};
}

bool packed_product::encode(std::span<const float> rows, const semantics& how) {
    const codec_parameters by = parameters();
    codes_.resize(layout_of(format_, along_axis{n_, k_, 1}).bytes());
    if (kernel_calls::encode(format_, rows, std::span(codes_), by, how) != encode_status::done) return false;
    std::vector<float> again(rows.size());
    kernel_calls::decode(format_, std::span<const std::byte>(codes_), again, by);
    return std::memcmp(again.data(), rows.data(), rows.size_bytes()) == 0;
}

std::optional<packed_product> packed_product::make(const tensor& values, bool transposed, const quantizer& q) {
    if (!lies_along(q, transposed ? 1 : 0)) return std::nullopt;
    packed_product m;
    m.format_ = q.format;
    m.k_ = static_cast<std::size_t>(values.shape()[transposed ? 1 : 0]),
    m.n_ = static_cast<std::size_t>(values.shape()[transposed ? 0 : 1]);
    std::vector<float> own;
    std::span<const float> rows = values.as<float>();
    if (!transposed) rows = own = transpose(rows, m.k_, m.n_);
    m.scale_ = q.scale;
    if (!is_block_format(q.format)) {
        if (is_shifted(q)) m.zero_point_ = q.zero_point;
        if (q.scale.size() > 1) m.block_ = q.block_size > 0 ? static_cast<std::size_t>(q.block_size) : m.k_;
        if (q.block_size > 0 && !transposed) {
            const std::size_t blocks = q.scale.size() / m.n_;
            m.scale_ = transpose(std::span<const float>(q.scale), blocks, m.n_);
            if (!m.zero_point_.empty()) m.zero_point_ = transpose(std::span<const std::int64_t>(q.zero_point), blocks, m.n_);
        }
    }
    if (!m.encode(rows, q.semantics)) return std::nullopt;
    return m;
}

void packed_product::multiply(const float* x, std::size_t rows, const float* bias, float* y) const {
    const packed_layout layout = layout_of(format_, along_axis{n_, k_, 1});
    const packed_rows w{{n_, k_, planes_of(layout, std::span<const std::byte>(codes_)), parameters()}, n_, k_};
    ops::detail::multiply_by_rows(format_, w, x, rows, bias == nullptr ? std::span<const float>() : std::span(bias, n_), y);
}

}  // namespace qk::graph::execute
