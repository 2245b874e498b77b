// SPDX-License-Identifier: Apache-2.0
#include "hardware/devices/device_layer.hpp"

#include <algorithm>
#include <cmath>

#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/matmul.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/kernels/choose.hpp"

namespace qk::graph::execute {
namespace {

/// Transposes one array of an operand; an empty one stays empty.
template <class T>
void transpose_all(std::vector<T>& v, std::size_t rows, std::size_t columns) {
    if (!v.empty()) v = execute::transpose(std::span<const T>(v), rows, columns);
}
void transpose(unit_operand& o) {
    const auto rows = static_cast<std::size_t>(o.shape[0]), columns = static_cast<std::size_t>(o.shape[1]);
    transpose_all(o.codes, rows, columns), transpose_all(o.n, rows, columns), transpose_all(o.exponent, rows, columns);
    transpose_all(o.value, rows, columns), transpose_all(o.special, rows, columns);
    std::swap(o.shape[0], o.shape[1]);
}

float largest(std::span<const float> x) {
    float amax = 0;
    for (const float v : x)
        if (std::isfinite(v)) amax = std::max(amax, std::fabs(v));
    return amax;
}

}  // namespace

unit_layer::unit_layer(const net_node& node, const std::string& accumulator, const quantizer* x, const quantizer* w, const tensor& weights)
    : node_(&node), name_(accumulator) {
    const auto parsed = parse_accumulator(accumulator);
    if (!parsed) fail(std::string(parsed.error.view()));
    how_ = *parsed;
    if (const device* d = find_device(accumulator)) a_ = d->a, b_ = d->b;
    if (how_.partial == fp64) fail(name_ + " adds in float64; the evaluator's values are float32");
    if (x != nullptr) x_ = *x;
    if (w != nullptr) w_ = *w;
    if (weights.empty()) return;
    if (has_blocks()) {
        packed_weights_ = pack_weights(weights, codes_of(weights, true));
        for (const packed_operand& p : packed_weights_) taken_weights_.push_back(take_weights(p));
    } else weights_ = prepare(weights, true);
}

void unit_layer::fail(const std::string& sentence) const { node_->view.fail(sentence); }

const qk::format& unit_layer::format_of(bool weights) const {
    static const qk::format plain = fp32;
    const std::optional<quantizer>& q = weights ? w_ : x_;
    const std::optional<qk::format>& own = weights ? b_ : a_;
    return q ? q->format : own ? *own : plain;
}

bool unit_layer::has_blocks() const { return is_block_format(format_of(false)) || is_block_format(format_of(true)); }

operand_codes unit_layer::codes_of(const tensor& t, bool weights) const {
    if (t.type() != data_type::float32) fail(std::string("an accumulator multiplies float32 values, not ") + graph::name_of(t.type()));
    const quantizer* q = weights ? (w_ ? &*w_ : nullptr) : (x_ ? &*x_ : nullptr);
    operand_codes o;
    o.format = format_of(weights);
    if (q != nullptr) o.how = q->semantics;
    const char* which = weights ? "the weights" : "the input";
    if (a_ && o.format != (weights ? *b_ : *a_))
        fail(name_ + " multiplies " + to_string(*a_) + " by " + to_string(*b_) + ", and " + which + " have format " + to_string(o.format));
    if (is_block_format(o.format)) {
        if (q != nullptr) check_blocks(*q, t, weights);
        if (q != nullptr && !q->dynamic && !q->scale.empty()) o.tensor_scale = q->scale[0];
        else if (has_floating_scales(o.format)) o.tensor_scale = kernels::tensor_scale_of(o.format, largest(t.as<float>()), o.how);
        return o;
    }
    if (q != nullptr && q->dynamic) {
        const affine one = range_scale(o.format, t.as<float>());
        o.scale = {one.scale}, o.zero_point = one.zero_point;
        return o;
    }
    if (q != nullptr && q->block_size > 0) fail(std::string(which) + " have a scale for each block; an accumulator needs one a channel");
    if (q == nullptr || q->scale.empty()) return o;
    o.scale = q->scale;
    if (!q->zero_point.empty()) o.zero_point = q->zero_point[0];
    if (std::any_of(q->zero_point.begin(), q->zero_point.end(), [&](std::int64_t z) { return z != o.zero_point; }))
        fail(std::string(which) + " have several zero points; an accumulator needs one");
    if (o.scale.size() > 1 && !weights) fail("the input has a scale for each channel; an accumulator needs one");
    return o;
}

unit_operand unit_layer::prepare(const tensor& t, bool weights) const {
    unit_operand o;
    static_cast<operand_codes&>(o) = codes_of(t, weights);
    o.shape = t.shape();
    std::vector<std::byte> packed(packed_bytes(o.format, along_axis{1, t.size(), 1}));
    const along_axis axis = weights && w_ ? axis_of(t.shape(), w_->axis, false) : along_axis{};
    const std::vector<std::int64_t> zero_points(o.scale.size(), o.zero_point);
    const codec_parameters p =
        o.scale.size() > 1 ? codec_parameters(per_channel{o.scale, zero_points, axis}) : codec_parameters(affine{o.scale[0], o.zero_point});
    if (t.size() != 0 && kernel_calls::encode(o.format, t.as<float>(), packed, p, o.how) != encode_status::done)
        fail(std::string(weights ? "the weights" : "the input") + " have values without a code in " + to_string(o.format) +
             " under these semantics");
    o.codes.resize(t.size());
    const int width = element_width(o.format);
    if (t.size() != 0) get_codes(std::span<const std::byte>(packed), 0, t.size(), width, o.codes.data());
    take_apart(how_, o);
    if (const product_axes axes = *product_axes_of(node_->view.proto()); of_matrices(axes)) {
        if (o.shape.size() != 2) fail("A and B must be matrices");
        if (lies_turned(axes, weights)) transpose(o);
    }
    return o;
}

void unit_layer::multiply_general(const packed_operand& rows, const packed_operand& columns, product_shape s, float* d) const {
    std::vector<std::uint64_t> result(s.m * s.n);
    matrix_multiply_add(rows.format, columns.format, how_, s, rows.view(), columns.view(), {}, result);
    for (std::size_t i = 0; i < result.size(); ++i) d[i] = stored_value(how_, result[i]);
}

float unit_layer::general_sum(const packed_operand& rows, const packed_operand& columns, std::size_t row, std::size_t column) const {
    const packed_matrix a = rows.view(), b = columns.view();
    const device_sums::operand x{rows.format, a, rows.axis, how_}, y{columns.format, b, columns.axis, how_};
    const float scale = how_.sum == summation::exact ? 1.0f : x.tensor_scale() * y.tensor_scale();
    std::uint64_t stored = 0;
    x.with_row(row, 0, [&](const auto& p) {
        y.with_row(0, column, [&](const auto& q) {
            stored = device_sums::one_sum(how_, device_sums::source_of(p), device_sums::source_of(q), rows.axis.length, 0, scale, nullptr);
        });
    });
    return stored_value(how_, stored);
}

namespace {
/// Returns a sum as a value of the layer: times both scales.
float finished(float sum, float x_scale, const std::vector<float>& w_scale, std::size_t channel) {
    const float scale = x_scale * w_scale[w_scale.size() > 1 ? channel : 0];
    return scale == 1 ? sum : sum * scale;
}
}  // namespace

tensor unit_layer::convolution(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes, const tensor& bias,
                               allocator& memory, const multiply_function& multiply) const {
    const std::int64_t group = node_->view.get_int("group", 1);
    const ops::window window = ops::check_conv(node_->view, x, w, bias.empty() ? nullptr : &bias, group);
    const auto out = static_cast<std::size_t>(w[0] / group), places = static_cast<std::size_t>(ops::product(window.output));
    const dims shape = ops::image_shape(x[0], w[0], window.output);
    tensor y(data_type::float32, shape, memory.allocate(element_count(shape) * sizeof(float)));
    if (y.size() == 0) return y;
    if (w_codes.scale.size() > 1 && w_codes.scale.size() != static_cast<std::size_t>(w[0]))
        fail("the weights' scales do not run along their first axis");
    float* target = y.as<float>().data();
    for (std::int64_t b = 0; b < x[0]; ++b) {
        for (std::int64_t g = 0; g < group; ++g) {
            const std::size_t first = static_cast<std::size_t>(g) * out;
            multiply(b, g, {out, places, static_cast<std::size_t>(w[1] * ops::product(window.kernel))}, target);
            for (std::size_t o = 0; o < out; ++o) {
                const float add = bias.empty() ? 0.0f : bias.as<float>()[first + o];
                for (std::size_t p = 0; p < places; ++p, ++target) {
                    const float v = finished(*target, x_codes.scale[0], w_codes.scale, first + o);
                    *target = bias.empty() ? v : v + add;
                }
            }
        }
    }
    return y;
}

tensor unit_layer::product_of_matrices(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes,
                                       const tensor& bias, allocator& memory, const multiply_function& multiply) const {
    const node_view& v = node_->view;
    const bool gemm = of_matrices(*product_axes_of(v.proto()));
    const ops::matmul_plan p = ops::plan_matmul(v, x, w);
    tensor y(data_type::float32, p.shape, memory.allocate(element_count(p.shape) * sizeof(float)));
    if (y.size() == 0) return y;
    const product_shape s{static_cast<std::size_t>(p.m), static_cast<std::size_t>(p.n), static_cast<std::size_t>(p.k)};
    if (w_codes.scale.size() > 1 && w_codes.scale.size() != s.n) fail("the weights' scales do not run along their columns");
    float* d = y.as<float>().data();
    p.each([&](std::int64_t i, std::int64_t a, std::int64_t b) { multiply(a, b, s, d + static_cast<std::size_t>(i) * s.m * s.n); });
    const float alpha = gemm ? v.get_float("alpha", 1.0f) : 1.0f, beta = gemm ? v.get_float("beta", 1.0f) : 1.0f;
    const bool add = gemm && !bias.empty() && beta != 0;
    std::int64_t rows = 1, columns = 1;
    if (add) {
        rows = bias.rank() < 2 ? 1 : bias.dim(0), columns = bias.rank() < 1 ? 1 : bias.dim(bias.rank() - 1);
        if (bias.type() != data_type::float32 || bias.rank() > 2 || (rows != 1 && rows != p.m) || (columns != 1 && columns != p.n))
            fail("C of shape " + to_string(bias.shape()) + " cannot be broadcast to " + to_string(p.shape));
    }
    for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t row = i / s.n % s.m, column = i % s.n;
        float value = finished(d[i], x_codes.scale[0], w_codes.scale, column);
        if (alpha != 1) value *= alpha;
        if (add) {
            const float c = bias.as<float>()[(rows == 1 ? 0 : row) * static_cast<std::size_t>(columns) + (columns == 1 ? 0 : column)];
            value += beta == 1 ? c : beta * c;
        }
        d[i] = value;
    }
    return y;
}

namespace {
/// Packs the codes of a matrix into a plane.
packed_operand packed_codes(const operand_codes& o, const std::uint32_t* from, along_axis axis) {
    const int width = element_width(o.format);
    const std::size_t count = axis.outer * axis.length * axis.inner;
    packed_operand p{o.format, o.zero_point, axis, std::vector<std::byte>(packed_bytes(o.format, axis))};
    for (std::size_t i = 0; i < count; ++i) put_code(p.bytes, i, width, from[i] & low_bits(width));
    return p;
}

/// Returns the code of 0, which stands beyond the borders of an image; nullopt if there is none.
std::optional<std::uint32_t> code_of_zero(const operand_codes& o) {
    if (is_integer_format(o.format)) return static_cast<std::uint32_t>(o.zero_point);
    const table* t = std::get_if<table>(&o.format);
    if (t == nullptr) return 0u;
    for (std::uint32_t code = 0; code < static_cast<std::uint32_t>(t->size()); ++code)
        if (value_of(*t, code) == 0) return code;
    return std::nullopt;
}
bool pads(const ops::window& w) {
    const auto some = [](std::int64_t n) { return n != 0; };
    return std::any_of(w.pad_begin.begin(), w.pad_begin.end(), some) || std::any_of(w.pad_end.begin(), w.pad_end.end(), some);
}
}  // namespace

tensor unit_layer::run_elements(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const {
    const unit_operand input = prepare(x, false);
    const unit_operand made = weights_ ? unit_operand{} : prepare(w, true);
    const unit_operand& weights = weights_ ? *weights_ : made;
    // Multiplies rows from `first` on by columns in lanes. What lanes cannot compute takes the general form, for which codes() returns the
    // columns' codes.
    const auto multiply = [&](const unit_operand& rows, std::size_t first, const unit_operand& kind, const auto& in_columns,
                              const auto& codes, const product_shape& s, float* d) {
        packed_operand a, b;
        const auto pack = [&] {
            if (!a.bytes.empty()) return;
            a = packed_codes(rows, rows.codes.data() + first * s.k, {s.m, s.k, 1});
            b = packed_codes(kind, codes(), {1, s.k, s.n});
        };
        const column_way way = way_of(how_, rows, kind, s.k);
        if (way == column_way::none) return pack(), multiply_general(a, b, s, d);
        multiply_columns(how_, way, rows, first, kind, in_columns(way), s, d, [&](std::size_t i, std::size_t j) {
            pack();
            return general_sum(a, b, i, j);
        });
    };
    if (!convolves(node_->view)) {
        return product_of_matrices(
            input.shape, weights.shape, input, weights, bias, memory,
            [&](std::int64_t a, std::int64_t b, const product_shape& s, float* d) {
                const std::size_t at = static_cast<std::size_t>(b) * s.k * s.n;
                const auto from = [at](const auto& v) { return v.empty() ? nullptr : v.data() + at; };
                multiply(
                    input, static_cast<std::size_t>(a) * s.m, weights,
                    [&](column_way) {
                        return unit_columns{from(weights.n), from(weights.exponent), from(weights.value), from(weights.special)};
                    },
                    [&] { return weights.codes.data() + at; }, s, d);
            });
    }
    const std::int64_t group = node_->view.get_int("group", 1), in = weights.shape.size() < 2 ? 0 : weights.shape[1];
    const ops::window window = ops::check_conv(node_->view, input.shape, weights.shape, nullptr, group);
    const std::optional<std::uint32_t> zero = code_of_zero(input);
    if (!zero && pads(window)) fail("the input's format " + to_string(input.format) + " has no 0, which the padding needs");
    std::vector<std::uint32_t> codes;
    std::vector<std::int16_t> n, exponent;
    std::vector<float> value, special;
    return convolution(input.shape, weights.shape, input, weights, bias, memory,
                       [&](std::int64_t b, std::int64_t g, const product_shape& s, float* d) {
                           const auto from = static_cast<std::size_t>((b * group + g) * in * ops::product(window.input));
                           const auto gathered = [&](const auto& all, auto padding, auto& to) {
                               if (all.empty()) return decltype(to.data()){nullptr};
                               to.resize(s.k * s.n);
                               ops::gather_columns(all.data() + from, in, window, padding, to.data());
                               return to.data();
                           };
                           multiply(
                               weights, static_cast<std::size_t>(g) * s.m, input,
                               [&](column_way way) {
                                   if (way == column_way::rounded) return unit_columns{.value = gathered(input.value, 0.0f, value)};
                                   return unit_columns{.n = gathered(input.n, std::int16_t{0}, n),
                                                       .exponent = gathered(input.exponent, input.zero_exponent, exponent),
                                                       .special = gathered(input.special, 0.0f, special)};
                               },
                               [&] { return gathered(input.codes, zero.value_or(0), codes); }, s, d);
                       });
}

tensor unit_layer::run(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const {
    if (const message m = check_operands(format_of(false), format_of(true), how_); !m.empty()) fail(name_ + ": " + std::string(m.view()));
    return has_blocks() ? run_blocks(x, w, bias, memory) : run_elements(x, w, bias, memory);
}

}  // namespace qk::graph::execute
