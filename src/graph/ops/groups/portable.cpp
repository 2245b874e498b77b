// SPDX-License-Identifier: Apache-2.0
// Lists the rows by which the evaluator computes functions of portable files.
#include <algorithm>
#include <cmath>
#include <string>

#include "graph/base/block_rows.hpp"
#include "graph/base/kernel_calls.hpp"
#include "graph/ops/packed_rows.hpp"
#include "graph/ops/portable_functions.hpp"
#include "graph/ops/qgemm.hpp"
#include "graph/ops/table.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/call.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/observe.hpp"
#include "qk/portable/range_scale.hpp"

namespace qk::graph::ops {
namespace {

using enum portable::scale_source;

/// Returns a shape as [outer][length][inner] around the axis of blocks or channels.
along_axis seen_along(const portable_call& c, const dims& shape) {
    const std::size_t size = product(shape, 0, shape.size());
    if (c.scales == none || c.scales == run || c.scales == one) return {1, size, 1};
    if (shape.empty()) return {1, 1, 1};
    const auto rank = static_cast<int>(shape.size());
    const int at = c.flatten && rank > 1 ? 1 : rank == 1 ? 0 : c.axis < 0 ? c.axis + rank : c.axis;
    if (at < 0 || at >= rank)
        throw error("the axis is " + std::to_string(c.axis) + ", and the tensor has " + std::to_string(rank) + " axes");
    along_axis a{1, 1, 1};
    for (int i = 0; i < rank; ++i) {
        const bool along = i == at || (c.flatten && i > at);
        (i < at ? a.outer : along ? a.length : a.inner) *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
    }
    return a;
}

/// Scales and zero points that a call was given.
struct given_scales {
    std::vector<float> scale;
    std::vector<std::int64_t> zero_point;
    affine only() const { return {scale[0], zero_point.empty() ? 0 : zero_point[0]}; }
};

std::vector<std::int64_t> zero_points_of(const portable_call& c, const tensor& t, std::size_t count) {
    const integer* f = std::get_if<integer>(&c.format);
    if (f == nullptr) throw error("only integer formats have zero points");
    std::vector<std::int64_t> zeros(count);
    if (t.type() == data_type::uint8) {
        const auto bytes = t.as<std::uint8_t>();
        const auto width = static_cast<std::size_t>(f->bits);
        if (width > 8 || bytes.size() * 8 < count * width) throw error("the zero points are too few");
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t bit = i * width;
            const unsigned both = bytes[bit / 8] | (bit / 8 + 1 < bytes.size() ? unsigned{bytes[bit / 8 + 1]} << 8 : 0u);
            const std::int64_t code = both >> bit % 8 & ((1u << width) - 1);
            zeros[i] = f->is_signed && code >> (width - 1) != 0 ? code - (std::int64_t{1} << width) : code;
        }
        return zeros;
    }
    if ((t.type() != data_type::float32 && t.type() != data_type::float64) || (t.size() != 1 && t.size() != count))
        throw error("the zero points are no floats for each scale");
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = t.size() == 1 ? 0 : i;
        const double v = t.type() == data_type::float64 ? t.as<double>()[at] : static_cast<double>(t.as<float>()[at]);
        if (!(v >= static_cast<double>(qmin(*f)) && v <= static_cast<double>(qmax(*f)) && v == std::floor(v)))
            throw error("a zero point is no code of the format");
        zeros[i] = static_cast<std::int64_t>(v);
    }
    return zeros;
}

given_scales scales_of(const portable_call& c, const along_axis& a, const tensor* scale, const tensor* zero) {
    const std::size_t wanted =
        c.scales == channels ? a.length
        : c.scales == blocks ? a.outer * ((a.length + static_cast<std::size_t>(c.block) - 1) / static_cast<std::size_t>(c.block)) * a.inner
                             : 1;
    if (scale == nullptr || scale->type() != data_type::float32 || scale->size() != wanted)
        throw error("the scales are not " + std::to_string(wanted) + " float32");
    given_scales g;
    g.scale.assign(scale->as<float>().begin(), scale->as<float>().end());
    if (!std::ranges::all_of(g.scale, [](float s) { return s > 0 && std::isfinite(s); }))
        throw error("a scale is no finite number above 0");
    if (zero != nullptr) g.zero_point = zero_points_of(c, *zero, wanted);
    return g;
}

/// The planes of a constant, cut to their layout, and the scales beside them. They hold the memory of the tensors.
struct held_codes {
    along_axis axis;
    const_planes planes;
    given_scales given;
    affine only{.scale = 1};
    codec_parameters parameters;  ///< of decode
};

std::unique_ptr<held_codes> held_in(const portable_call& c, std::span<const tensor> held) {
    auto h = std::make_unique<held_codes>();
    h->axis = seen_along(c, c.shape);
    const packed_layout l = layout_of(c.format, h->axis);
    std::size_t next = 0;
    const auto given = [&](std::size_t i) { return i < held.size() && !held[i].empty() ? &held[i] : nullptr; };
    const auto plane_of = [&](const plane& wanted) -> std::span<const std::byte> {
        if (wanted.count == 0 && wanted.bits == 0) return {};
        const tensor* t = given(next++);
        if (t == nullptr || t->type() != data_type::uint8 || t->size() < wanted.bytes())
            throw error("the codes or scales are fewer than the shape needs");
        return std::span<const std::byte>(t->bytes(), t->size()).first(wanted.bytes());
    };
    h->planes.elements = plane_of(l.elements), h->planes.scales = plane_of(l.scales), h->planes.shifts = plane_of(l.shifts);
    const tensor *scale = given(next), *zero = given(next + 1);
    if (c.scales == own) {
        if (scale != nullptr) {
            if (scale->type() != data_type::float32 || scale->size() != 1) throw error("the scale of the tensor is not one float32");
            h->given.scale = {scale->as<float>()[0]};
            h->only.scale = h->given.scale[0];
            h->planes.tensor = std::span<const std::byte>(scale->bytes(), sizeof(float)).first(l.tensor.bytes());
        } else if (has_tensor_scale(c.format)) {
            throw error("the scale of the tensor is missing");
        }
        h->parameters = codec_parameters(h->axis, h->only);
    } else if (c.scales != none) {
        h->given = scales_of(c, h->axis, scale, zero);
        if (c.scales == one) h->parameters = h->given.only();
        else if (c.scales == channels) h->parameters = per_channel{h->given.scale, h->given.zero_point, h->axis};
        else h->parameters = per_block{h->given.scale, h->given.zero_point, h->axis, static_cast<std::size_t>(c.block)};
    }
    return h;
}

portable_call read(const op_context& call) {
    const auto c = portable_call_of(call.node().proto());
    if (!c) call.fail("does not say what it means");
    return *c;
}

std::vector<tensor> inputs_from(const op_context& call, std::size_t first) {
    std::vector<tensor> held;
    for (std::size_t i = first; i < call.input_count(); ++i) held.push_back(call.has_input(i) ? call.input(i) : tensor());
    return held;
}

/// Runs `work`, whose errors get the node's name.
template <class Work>
void named(const op_context& call, const Work& work) {
    std::string what;
    try {
        return work();
    } catch (const error& e) {
        what = e.what();
    }
    call.fail(what);
}

void run_quantize(op_context& call) {
    const portable_call c = read(call);
    const tensor& x = call.input(0);
    if (x.type() != data_type::float32) call.fail("its input is not float32");
    const std::span<const float> from = x.as<float>();
    const std::span<float> to = call.output(0, data_type::float32, x.shape()).as<float>();
    if (from.empty()) return;
    named(call, [&] {
        along_axis a = seen_along(c, x.shape());
        const auto largest = [&] {
            observed_range r;
            r.observe(from);
            return std::pair(std::min(r.min, 0.0f), std::max(r.max, 0.0f));
        };
        if (c.scales == none) return kernel_calls::fake_quantize(c.format, from, to, c.semantics);
        if (c.scales == run) {
            const auto [low, high] = largest();
            return kernel_calls::fake_quantize(c.format, from, to, scale_of_range(c.format, low, high), c.semantics);
        }
        if (c.scales == own) {
            qk::format f = c.format;
            if (has_floating_scales(f)) {
                float of_tensor = 1;
                if (call.has_input(1)) {
                    if (call.input(1).type() != data_type::float32 || call.input(1).size() != 1)
                        throw error("the scale of its tensor is not one float32");
                    of_tensor = call.input(1).as<float>()[0];
                } else if (has_tensor_scale(f)) {
                    const auto [low, high] = largest();
                    of_tensor = kernels::tensor_scale_of(f, std::max(-low, high), c.semantics);
                }
                return kernel_calls::fake_quantize(f, from, to, a, affine{of_tensor, 0}, c.semantics);
            }
            as_one_row(f, a, from.size());
            return kernel_calls::fake_quantize(f, from, to, a, c.semantics);
        }
        const given_scales g = scales_of(c, a, call.has_input(1) ? &call.input(1) : nullptr, call.has_input(2) ? &call.input(2) : nullptr);
        if (c.scales == one) return kernel_calls::fake_quantize(c.format, from, to, g.only(), c.semantics);
        if (c.scales == channels)
            return kernel_calls::fake_quantize(c.format, from, to, per_channel{g.scale, g.zero_point, a}, c.semantics);
        kernel_calls::fake_quantize(c.format, from, to, per_block{g.scale, g.zero_point, a, static_cast<std::size_t>(c.block)},
                                    c.semantics);
    });
}

void run_decode(op_context& call) {
    const portable_call c = read(call);
    named(call, [&] {
        const std::vector<tensor> held = inputs_from(call, 0);
        const auto h = held_in(c, held);
        kernel_calls::decode(c.format, h->planes, call.output(0, data_type::float32, c.shape).as<float>(), h->parameters);
    });
}

void run_product(op_context& call) {
    const portable_call c = read(call);
    named(call, [&] {
        const std::vector<tensor> held = inputs_from(call, c.bias ? 2 : 1);
        const auto h = held_in(c, held);
        const tensor x = input_as<float>(call, 0), bias = c.bias ? input_as<float>(call, 1) : tensor();
        const auto n = static_cast<std::size_t>(c.shape[0]), k = static_cast<std::size_t>(c.shape[1]);
        if (x.rank() < 1 || x.shape().back() != c.shape[1])
            throw error("an input of shape " + to_string(x.shape()) + " meets a matrix of " + std::to_string(k) + " inputs");
        if (c.bias && bias.size() != n) throw error("the bias has not one value for each output");
        dims shape = x.shape();
        shape.back() = c.shape[0];
        working_output<float> y(call, 0, call.input(0).type(), shape);
        const packed_rows rows{{n, k, h->planes, h->parameters}, n, k};
        const product_sums sums = c.sums == portable::sums::integers ? product_sums::integers : product_sums::floats;
        detail::multiply_by_rows(c.format, rows, x.as<float>().data(), x.size() / k,
                                 bias.empty() ? std::span<const float>() : bias.as<float>(), y.data(), sums);
        y.store();
    });
}

/// Rows of a table, which is decoded as a whole.
void run_rows(op_context& call) {
    const portable_call c = read(call);
    named(call, [&] {
        const std::vector<tensor> held = inputs_from(call, 1);
        const auto h = held_in(c, held);
        const std::vector<std::int64_t> wanted = integers(call, 0);
        const auto width = static_cast<std::size_t>(c.shape[1]);
        dims shape = call.input(0).shape();
        shape.push_back(c.shape[1]);
        const std::span<float> y = call.output(0, data_type::float32, shape).as<float>();
        tensor table(data_type::float32, c.shape);
        kernel_calls::decode(c.format, h->planes, table.as<float>(), h->parameters);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const std::int64_t row = wanted[i] < 0 ? wanted[i] + c.shape[0] : wanted[i];
            if (row < 0 || row >= c.shape[0])
                throw error("index " + std::to_string(wanted[i]) + " is outside of " + std::to_string(c.shape[0]) + " rows");
            std::ranges::copy(table.as<float>().subspan(static_cast<std::size_t>(row) * width, width), y.subspan(i * width).begin());
        }
    });
}

/// A quantizer, which has one scale for all samples only where the values of a run choose it.
void follow_portable_quantize(walk_call& c) {
    const walked& x = c.ranked(0);
    const auto call = portable_call_of(c.view().proto());
    if (!call) c.undecided("does not say what it means");
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "scales");
    if (x.is_rows()) {
        if (call->scales == run || (call->scales == own && has_tensor_scale(call->format) && !c.has(1)))
            c.mixed("chooses one scale for all samples");
        if (call->scales == own || call->scales == channels || call->scales == blocks) {
            const std::int64_t rank = c.rank(0), axis = call->flatten && rank > 1 ? 1 : rank == 1 ? 0 : c.normal(call->axis, rank);
            const bool along = x.axis == axis || (call->flatten && x.axis > axis);
            if (along || (call->scales == blocks && x.is_rows())) c.mixed("has blocks or scales along the samples");
        }
    }
    c.keep(0, x);
}

void follow_portable_decode(walk_call& c) {
    const auto call = portable_call_of(c.view().proto());
    if (!call) c.undecided("does not say what it means");
    for (std::size_t i = 0; i < c.inputs(); ++i) c.shared(i, "codes");
    c.make(0, walked{}, call->shape);
}

void follow_portable_product(walk_call& c) {
    const auto call = portable_call_of(c.view().proto());
    if (!call) c.undecided("does not say what it means");
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "weights");
    walked y = c.ranked(0);
    if (y.is_rows() && y.axis + 1 == c.rank(0)) c.mixed("adds up over the samples");
    if (y.shape.empty()) c.undecided("has a wrong rank");
    y.shape.back() = call->shape[0];
    c.make(0, y, y.shape);
}

void follow_portable_rows(walk_call& c) {
    const auto call = portable_call_of(c.view().proto());
    if (!call) c.undecided("does not say what it means");
    for (std::size_t i = 1; i < c.inputs(); ++i) c.shared(i, "codes");
    walked y = c.ranked(0);
    y.shape.push_back(call->shape[1]);
    c.make(0, y, y.shape);
}

constexpr op_entry portable_ops[] = {
    {"qk", "quantize", 1, run_quantize, nullptr, {follow_portable_quantize}},
    {"qk", "decode", 1, run_decode, nullptr, {follow_portable_decode}, {.types = gives<data_type::float32>}},
    {"qk", "product", 1, run_product, nullptr, {follow_portable_product}, {.traits = layer}},
    {"qk", "rows", 1, run_rows, nullptr, {follow_portable_rows}, {.types = gives<data_type::float32>}},
};

}  // namespace

std::optional<decoded_constant> decoded_matrix_of(const portable_call& call, std::span<const tensor> held) {
    try {
        const auto h = held_in(call, held);
        decoded_constant d{.value = tensor(data_type::float32, call.shape), .scale = h->given.scale, .zero_point = h->given.zero_point};
        kernel_calls::decode(call.format, h->planes, d.value.as<float>(), h->parameters);
        return d;
    } catch (const error&) {
        return std::nullopt;
    }
}

const char* portable_row_of(const onnx::NodeProto& n) {
    const auto call = portable_call_of(n);
    if (!call) return nullptr;
    switch (call->result) {
        case portable::result_shape::input: return "quantize";
        case portable::result_shape::product: return "product";
        case portable::result_shape::rows: return "rows";
        case portable::result_shape::shape: break;
    }
    return n.op_type().find(portable::in_each_run) == std::string::npos ? nullptr : "decode";
}

op_group portable_group() { return join(portable_ops); }

}  // namespace qk::graph::ops
