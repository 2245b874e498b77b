// SPDX-License-Identifier: Apache-2.0
// Operands with blocks for device_layer.hpp: lays values out in the order in which the matrix unit sums them, packs them with encode, and
// multiplies them in lanes or with matrix_multiply_add.
#include <algorithm>
#include <numeric>

#include "graph/base/kernel_calls.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/matmul.hpp"
#include "hardware/devices/device_layer.hpp"
#include "qk/dot.hpp"
#include "qk/dot/aligned_columns.hpp"
#include "qk/graph/base/format_text.hpp"

namespace qk::graph::execute {
namespace {

/// Returns an operand as A or B of a product.
tensor as_operand(const node_view& v, const tensor& t, bool weights) {
    const product_axes axes = *product_axes_of(v.proto());
    if (!of_matrices(axes)) return t;
    if (t.rank() != 2) v.fail("A and B must be matrices");
    if (!lies_turned(axes, weights)) return t;
    tensor r(data_type::float32, {t.dim(1), t.dim(0)});
    transpose(t.as<float>().data(), static_cast<std::size_t>(t.dim(0)), static_cast<std::size_t>(t.dim(1)), r.as<float>().data());
    return r;
}

}  // namespace

void unit_layer::check_blocks(const quantizer& q, const tensor& t, bool weights) const {
    const node_view& v = node_->view;
    const int rank = static_cast<int>(t.rank()), axis = q.axis < 0 ? q.axis + rank : q.axis;
    const product_axes axes = *product_axes_of(v.proto());
    const int along = weights ? axes.in : axes.sums, sum = rank < 2 ? rank - 1 : along < 0 ? along + rank : along;
    const std::string which = weights ? "the weights' blocks" : "the input's blocks";
    if (q.flatten || (rank > 1 && axis != sum))
        fail(which + " do not run along axis " + std::to_string(sum) + ", which the unit sums along: it needs blocks there");
    if (is_stochastic(q.semantics.rounding)) fail(which + " are rounded at random: the unit would see other codes than the plan");
    const std::int64_t group = axes.groups;
    if (!weights && group > 1 && t.rank() > 1 && t.dim(1) / group % block_size(q.format) != 0)
        fail(which + " reach over groups of " + std::to_string(t.dim(1) / group) + " channels");
}

packed_operand unit_layer::pack(std::span<const float> values, const operand_codes& how, along_axis sum, std::span<const float> scale,
                                along_axis channels) const {
    packed_operand o{how.format, how.zero_point, sum, std::vector<std::byte>(packed_bytes(how.format, sum))};
    const std::vector<std::int64_t> zero_points(scale.size(), how.zero_point);
    const codec_parameters p = is_block_format(how.format) ? codec_parameters(sum, affine{how.tensor_scale, 0})
                               : scale.size() > 1          ? codec_parameters(per_channel{scale, zero_points, channels})
                                                           : codec_parameters(affine{scale[0], how.zero_point});
    if (!values.empty() && kernel_calls::encode(how.format, values, o.bytes, p, how.how) != encode_status::done)
        fail("an operand has values without a code in " + to_string(how.format) + " under these semantics");
    return o;
}

std::int64_t unit_layer::padded_channels(std::int64_t channels) const {
    const auto block = [&](bool weights) { return std::max<std::int64_t>(block_size(format_of(weights)), 1); };
    const std::int64_t step = std::lcm(block(false), block(true));
    return (channels + step - 1) / step * step;
}

std::vector<packed_operand> unit_layer::pack_weights(const tensor& w, const operand_codes& how) const {
    const node_view& v = node_->view;
    std::vector<packed_operand> packed;
    if (!convolves(v)) {
        const tensor b = as_operand(v, w, true);
        const auto n = static_cast<std::size_t>(b.rank() < 2 ? 1 : b.dim(b.rank() - 1));
        const auto k = static_cast<std::size_t>(b.rank() == 0 ? 1 : b.rank() == 1 ? b.dim(0) : b.dim(b.rank() - 2));
        for (std::size_t at = 0; at < b.size(); at += k * n)
            packed.push_back(pack(b.as<float>().subspan(at, k * n), how, {1, k, n}, how.scale, {k, n, 1}));
        return packed;
    }
    if (w.rank() < 2) fail("weights of shape " + to_string(w.shape()));
    const std::int64_t group = std::max<std::int64_t>(v.get_int("group", 1), 1);
    const auto channels = static_cast<std::size_t>(w.dim(1)), padded = static_cast<std::size_t>(padded_channels(w.dim(1)));
    const std::size_t out = static_cast<std::size_t>(w.dim(0) / group),
                      taps = out == 0 || channels == 0 ? 0 : w.size() / static_cast<std::size_t>(w.dim(0)) / channels;
    for (std::size_t g = 0; g < static_cast<std::size_t>(group); ++g) {
        std::vector<float> rows(out * taps * padded, 0.0f);
        const float* from = w.as<float>().data() + g * out * channels * taps;
        for (std::size_t o = 0; o < out; ++o)
            for (std::size_t c = 0; c < channels; ++c)
                for (std::size_t t = 0; t < taps; ++t) rows[(o * taps + t) * padded + c] = *from++;
        std::span<const float> scale = how.scale;
        if (scale.size() > 1) {
            if (scale.size() != static_cast<std::size_t>(w.dim(0))) fail("the weights' scales do not run along their first axis");
            scale = scale.subspan(g * out, out);
        }
        packed.push_back(pack(rows, how, {out, taps * padded, 1}, scale, {1, out, taps * padded}));
    }
    return packed;
}

unit_operand unit_layer::take_blocks(const packed_operand& packed, std::size_t lines, std::size_t k, bool columns) const {
    unit_operand o;
    o.format = packed.format;
    o.block = block_size(packed.format);
    const packed_matrix matrix = packed.view();
    const device_sums::operand operand{packed.format, matrix, packed.axis, how_};
    o.kind = device_sums::kind_of(packed.format);
    o.factor = how_.sum == summation::exact ? 1.0f : operand.tensor_scale();
    const bool in_terms = how_.sum == summation::exact && operand.tensor_scale() != 1, bundled = how_.bundle > 1;
    if (in_terms || o.kind.width > 15 || (bundled && device_sums::bits_in_block(o.kind) > 15)) return o;
    o.n.resize(lines * k), o.exponent.resize(lines * k);
    const std::size_t line_step = columns ? 1 : k, step = columns ? lines : 1;
    int lowest = device_sums::first_special, highest = -device_sums::first_special;
    bool special = false;
    device_sums::element_tile t;
    for (std::size_t line = 0; line < lines && !special; ++line)
        operand.with_row(columns ? 0 : line, columns ? line : 0, [&](const auto& row) {
            for (std::size_t first = 0; first < k; first += device_sums::dot_tile) {
                const std::size_t count = std::min(device_sums::dot_tile, k - first);
                row.load(first, count, t);
                std::size_t at = line * line_step + first * step;
                for (std::size_t i = 0; i < count; ++i, at += step) {
                    special = special || t.exponent[i] >= device_sums::first_special;
                    if (special) return;
                    const int e = t.exponent[i], place = bundled ? e - t.base[i] - o.kind.lowest : 0;
                    o.n[at] = static_cast<std::int16_t>(t.n[i] == 0 ? 0 : t.n[i] * (1 << place));
                    o.exponent[at] = static_cast<std::int16_t>(bundled ? t.base[i] : e);
                    if (t.n[i] != 0) lowest = std::min(lowest, e), highest = std::max(highest, e);
                }
            }
        });
    if (special) o.n.clear(), o.exponent.clear();  // Inf and NaN take the general form
    // The range of exact sums covers the exponents that occur, scales included.
    if (lowest > highest) lowest = highest = 0;
    if (how_.sum == summation::exact) o.kind.lowest = lowest, o.kind.highest = highest;
    return o;
}

unit_operand unit_layer::take_weights(const packed_operand& packed) const {
    const bool columns = !convolves(node_->view);
    return take_blocks(packed, columns ? packed.axis.inner : packed.axis.outer, packed.axis.length, columns);
}

tensor unit_layer::run_blocks(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const {
    const node_view& v = node_->view;
    const operand_codes x_codes = codes_of(x, false), w_codes = codes_of(w, true);
    const std::vector<packed_operand> made = packed_weights_.empty() ? pack_weights(w, w_codes) : std::vector<packed_operand>{};
    const std::vector<packed_operand>& weights = packed_weights_.empty() ? made : packed_weights_;
    std::vector<unit_operand> taken;
    if (taken_weights_.empty())
        for (const packed_operand& p : weights) taken.push_back(take_weights(p));
    const std::vector<unit_operand>& weights_apart = taken_weights_.empty() ? taken : taken_weights_;
    const auto multiply = [&](const packed_operand& rows, const unit_operand& rows_apart, const packed_operand& columns,
                              const unit_operand& columns_apart, const product_shape& s, float* d) {
        const bool apart = !rows_apart.n.empty() && !columns_apart.n.empty();
        const column_way way = apart ? way_of(how_, rows_apart, columns_apart, s.k) : column_way::none;
        if (way == column_way::none) return multiply_general(rows, columns, s, d);
        multiply_columns(how_, way, rows_apart, 0, columns_apart, {columns_apart.n.data(), columns_apart.exponent.data()}, s, d,
                         [&](std::size_t i, std::size_t j) { return general_sum(rows, columns, i, j); });
    };
    if (!convolves(v)) {
        const tensor a = as_operand(v, x, false), b = as_operand(v, w, true);
        packed_operand rows;
        unit_operand rows_apart;
        std::int64_t packed = -1;
        return product_of_matrices(a.shape(), b.shape(), x_codes, w_codes, bias, memory,
                                   [&](std::int64_t i, std::int64_t j, const product_shape& s, float* d) {
                                       if (packed != i) {
                                           rows = pack(a.as<float>().subspan(static_cast<std::size_t>(i) * s.m * s.k, s.m * s.k), x_codes,
                                                       {s.m, s.k, 1}, x_codes.scale, {});
                                           rows_apart = take_blocks(rows, s.m, s.k, false);
                                       }
                                       packed = i;
                                       const auto at = static_cast<std::size_t>(j);
                                       multiply(rows, rows_apart, weights[at], weights_apart[at], s, d);
                                   });
    }
    const std::int64_t group = v.get_int("group", 1), in = w.rank() < 2 ? 0 : w.dim(1);
    const ops::window window = ops::check_conv(v, x.shape(), w.shape(), nullptr, group);
    const auto padded = static_cast<std::size_t>(padded_channels(in)), taps = static_cast<std::size_t>(ops::product(window.kernel));
    const auto in_size = static_cast<std::size_t>(ops::product(window.input));
    std::vector<float> columns, channel;
    return convolution(x.shape(), w.shape(), x_codes, w_codes, bias, memory,
                       [&](std::int64_t b, std::int64_t g, product_shape s, float* d) {
                           s.k = taps * padded;
                           columns.assign(s.k * s.n, 0.0f), channel.resize(taps * s.n);
                           const float* from = x.as<float>().data() + static_cast<std::size_t>((b * group + g) * in) * in_size;
                           for (std::size_t c = 0; c < static_cast<std::size_t>(in); ++c) {
                               ops::gather_columns(from + c * in_size, 1, window, 0.0f, channel.data());
                               for (std::size_t t = 0; t < taps; ++t)
                                   std::copy_n(channel.data() + t * s.n, s.n, columns.data() + (t * padded + c) * s.n);
                           }
                           const packed_operand packed = pack(columns, x_codes, {1, s.k, s.n}, x_codes.scale, {});
                           const auto at = static_cast<std::size_t>(g);
                           multiply(weights[at], weights_apart[at], packed, take_blocks(packed, s.n, s.k, true), s, d);
                       });
}

}  // namespace qk::graph::execute
