// SPDX-License-Identifier: Apache-2.0
// Multiplies by the weights of MatMulNBits as they are packed.
#include <algorithm>
#include <cmath>

#include "graph/ops/matrix.hpp"
#include "graph/ops/packed_rows.hpp"
#include "graph/ops/qgemm.hpp"

namespace qk::graph::ops::detail {

prepared_matmul_nbits::prepared_matmul_nbits(const nbits_weights& w) : shape_(w.shape) {
    const nbits_shape& s = shape_;
    const bool scaled = std::ranges::all_of(w.scale.as<float>(), [](float v) { return v > 0 && std::isfinite(v); });  // as product() asks
    if (!w.zeros.empty() || !w.groups.empty() || s.block * s.bits % 8 != 0 || !scaled) {
        floats_ = unpacked_nbits(w);
        return;
    }
    packed_ = w.packed, scale_ = w.scale;
    if (w.zero_codes.empty()) {  // codes less half of their range are the signed ones, which differ in the upper bit
        const auto upper = static_cast<std::byte>(s.bits == 2 ? 0xaa : s.bits == 4 ? 0x88 : 0x80);
        packed_ = tensor(data_type::uint8, w.packed.shape());
        std::transform(w.packed.bytes(), w.packed.bytes() + w.packed.size(), packed_.bytes(), [upper](std::byte b) { return b ^ upper; });
        return;
    }
    zeros_.resize(scale_.size());
    for (std::size_t i = 0; i < zeros_.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / s.blocks;
        zeros_[i] = w.code(w.zero_codes, row * w.zero_bytes(), static_cast<std::int64_t>(i) % s.blocks);
    }
}

/// Multiplies `rows` vectors of K values. The last block of a row may reach beyond column K.
void prepared_matmul_nbits::multiply_packed(const float* a, std::size_t rows, const tensor& bias, float* y) const {
    const auto n = static_cast<std::size_t>(shape_.n), k = static_cast<std::size_t>(shape_.k),
               block = static_cast<std::size_t>(shape_.block), columns = static_cast<std::size_t>(shape_.blocks) * block;
    const integer codes{.bits = static_cast<int>(shape_.bits), .is_signed = zeros_.empty()};
    const per_block by{scale_.as<float>(), zeros_, {n, columns, 1}, block};
    const packed_rows w{{n, columns, {std::span(packed_.bytes(), packed_.size()), {}, {}, {}}, by}, n, k};
    multiply_by_rows(codes, w, a, rows, bias.empty() ? std::span<const float>() : bias.as<float>(), y);
}

void prepared_matmul_nbits::run(op_context& call) const {
    const nbits_shape& s = shape_;
    tensor a = input_as<float>(call, 0);
    if (a.rank() < 1 || a.shape().back() != s.k) call.fail("A of shape " + to_string(a.shape()) + " does not fit K");
    dims shape = a.shape();
    shape.back() = s.n;
    const tensor bias = optional_as<float>(call, 5);
    if (!bias.empty() && bias.size() != static_cast<std::size_t>(s.n)) call.fail("the bias needs one value a column");
    working_output<float> y(call, 0, call.input(0).type(), shape);
    const auto rows = static_cast<std::int64_t>(a.size()) / s.k;
    if (call.node().get_int("accuracy_level", 0) == 4) a = in_bytes(call, a, s.k, s.block);
    if (floats_.empty()) {
        multiply_packed(a.as<float>().data(), static_cast<std::size_t>(rows), bias, y.data());
    } else {
        multiply(a.as<float>().data(), false, floats_.as<float>().data(), true, y.data(), rows, s.n, s.k);
        for (std::size_t i = 0; i < y.values().size() && !bias.empty(); ++i)
            y.values()[i] += bias.as<float>()[i % static_cast<std::size_t>(s.n)];
    }
    y.store();
}

}  // namespace qk::graph::ops::detail
