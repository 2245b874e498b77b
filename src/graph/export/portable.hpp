// SPDX-License-Identifier: Apache-2.0
// Style portable: qdq where that can write the quantizer, otherwise a model-local function of standard operators. docs/guide/export.md.
#pragma once

#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/portable/function_set.hpp"
#include "graph/export/qdq.hpp"

namespace qk::graph::detail {

class portable_writer : public quantizer_writer {
  public:
    portable_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes)
        : quantizer_writer(g, options, notes), standard_(g, options, notes), functions_(g) {}

    std::string activation(const quantized_value& v) override {
        if (is_standard(v.how, false)) return standard_.activation(v);
        if (const char* why = obstacle_to(v.how)) cannot_hold(v, why);
        return is_block_format(v.how.format) ? blocks(v) : elements(v);
    }

    std::string weight(const quantized_value& v, const tensor& value) override {
        if (is_standard(v.how, true) && !v.nbits) return standard_.weight(v, value);
        if (is_unpacked_in_each_run(v, value)) {
            unpacks_in_each_run_ = true;
            // Must be neither folded at load, as a function of standard operators is, nor fused: Flatten is the identity here.
            quantized_value codes = v;
            codes.planned_products = false;  // which that does already
            return flattened(standard_.weight(codes, value));
        }
        if (options_.weights == weight_storage::packed) {
            const std::optional<packed_constant> p = packed(v.how, value);
            if (p && p->bytes() + size_of_call < value.size_bytes()) {
                const std::string y = decoded(v, value, *p);
                if (!is_decoded_in_each_run(value)) return y;
                return value.rank() == 2 ? flattened(y) : g_.kept_apart(y);
            }
        }
        return g_.rounded_constant(v.name, rounded(v.how, value), describe(v.how, true));
    }

    bool dequantizes(const quantizer& weight) const override { return is_standard(weight, true) && standard_.dequantizes(weight); }

    bool dequantizes_activation(const quantizer& q) const override { return is_standard(q, false); }
    bool wants_constants_first() const override { return unpacks_in_each_run_; }

    void finish() override {
        standard_.finish();
        functions_.finish();
    }

  private:
    /// About how many bytes a call of a decoding function takes in a file: a smaller saving is not worth it.
    static constexpr std::size_t size_of_call = 400;

    /// Puts a matrix behind a Flatten, the identity here. A product's inputs run in the order in which their own nodes stand in the file,
    /// and the nodes of an inlined function stand behind all others: all weights would be decoded before the first product, and held.
    std::string flattened(const std::string& matrix) {
        const std::string y = g_.fresh(matrix + marks::guarded);
        set_attribute(g_.node("Flatten", {matrix}, {y}), "axis", std::int64_t{1});
        return y;
    }

    /// Returns whether this is a large matrix of integer codes that onnxruntime would multiply with 8-bit activations. Decoded by a
    /// function, its floats and every step on the way to them would be in onnxruntime's memory from the moment that it loads the model.
    bool is_unpacked_in_each_run(const quantized_value& v, const tensor& value) {
        if (!v.nbits || !is_standard(v.how, true) || value.rank() != 2 || value.size_bytes() < std::size_t{1} << 20 ||
            options_.weights != weight_storage::packed)
            return false;
        if (!blocks_possible_) {
            blocks_possible_ = true;
            try {
                model tried = g_.target();
                tried.reindex();
                raise_opset(tried, 21);
            } catch (const error&) {
                blocks_possible_ = false;
            }
        }
        return *blocks_possible_;
    }

    /// Returns the floating elements of a format; null if it has none.
    static const floating* float_elements(const qk::format& f) {
        if (const nvfloat* n = std::get_if<nvfloat>(&f)) return &n->element;
        if (const microscaling* m = std::get_if<microscaling>(&f)) return has_integer_elements(*m) ? nullptr : &m->element;
        return std::get_if<floating>(&f);
    }
    /// Returns why an activation that style qdq does not write cannot be written at all; null if it can.
    static const char* obstacle_to(const quantizer& q) {
        if (is_stochastic(q.semantics.rounding)) return "is rounded stochastically, which no standard operator does";
        if (q.semantics.rounding == rounding::to_odd) return "is rounded to odd, which no standard operator does";
        if (q.semantics.overflow == overflow_rule::propagate) return "saturates but for Inf, which has no standard operators";
        if (q.semantics.flush_inputs || q.semantics.flush_outputs) return "with subnormals flushed has no standard operators";
        if (q.format == qk::format(e8m0)) return "is a format for scales";
        if (const floating* e = float_elements(q.format); e != nullptr && (!e->subnormals || exceeds_float32(*e)))
            return "has elements without subnormals or beyond float32, which have no standard operators";
        if (is_integer_format(q.format) && !q.dynamic && q.scale.empty()) return "has no scale in the plan";
        return nullptr;
    }
    /// Returns whether style qdq writes the quantizer. It writes all that it can, except integers of 2 bits, whose types would raise the
    /// opset to one that few runtimes know; activations of 4 bits with many scales, which wrap around far out of range in onnxruntime; and
    /// FP8 activations: a function needs no guards against the optimizer, is right beyond the largest value, and faster.
    static bool is_standard(const quantizer& q, bool is_weight) {
        if (qdq_writer::obstacle_to(q, is_weight) != nullptr) return false;
        if (const integer* f = std::get_if<integer>(&q.format)) return f->bits > (is_weight || q.scale.size() <= 1 ? 2 : 4);
        return is_weight || !onnx_float8(std::get<floating>(q.format));
    }
    /// Returns whether a constant is decoded in each run. onnxruntime folds what depends on constants alone when it loads a model, and
    /// holds every step of it, some ten times the floats. So matrices from 1 MiB and other constants from 32 MiB are decoded in each run:
    /// most of a language model, and little of a network of convolutions, which is decoded once.
    static bool is_decoded_in_each_run(const tensor& value) {
        return value.size_bytes() >= std::size_t{value.rank() == 2 ? 1u : 32u} << 20;
    }

    std::string decoded(const quantized_value& v, const tensor& value, const packed_constant& p) {
        const quantizer& q = v.how;
        const bool blocked = is_block_format(q.format);
        const auto block = static_cast<std::size_t>(blocked ? block_size(q.format) : q.block_size);
        function_key key{.format = q.format,
                         .semantics = {},
                         .one_scale = q.scale.size() <= 1,
                         .block_scales = !blocked && q.block_size > 0,
                         .block = blocked ? 0 : q.block_size,
                         .decodes = true,
                         .each_run = is_decoded_in_each_run(value),
                         .whole_bytes = 8 % p.element_bits == 0 && value.size() * static_cast<std::size_t>(p.element_bits) % 8 == 0,
                         .whole_blocks = block > 0 && p.shift_bits == 0 && p.view.length % block == 0};
        unpacks_in_each_run_ = unpacks_in_each_run_ || key.each_run;
        std::vector<std::string> inputs;
        const auto planes = [&](const std::vector<tensor>& all, const char* stem) {
            for (const tensor& plane : all) inputs.push_back(g_.constant(v.name + stem, plane));
        };
        planes(p.elements, "_codes");
        planes(p.scales, "_scales");
        planes(p.shifts, "_shifts");
        const auto number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
        const std::int64_t outer = number(p.view.outer), inner = number(p.view.inner), blocks = number(p.blocks);
        if (p.tensor_scale != 0 || (!blocked && (is_integer_format(q.format) || has_scale(q)))) {
            dims shape;
            if (key.block_scales) shape = {outer, blocks, inner};
            else if (!key.one_scale) shape = {number(p.view.length), 1};
            key.scales = 1;
            inputs.push_back(
                g_.constant(v.name + "_scale", make_tensor<float>(shape, blocked ? std::vector<float>{p.tensor_scale} : q.scale)));
            if (is_shifted(q)) {
                key.scales = 2;
                const std::optional<tensor> codes = packed_zero_points(q);
                key.zero_codes = codes.has_value();
                inputs.push_back(key.zero_codes
                                     ? g_.constant(v.name + "_zero_codes", *codes)
                                     : g_.constant(v.name + "_zero_point",
                                                   zero_points(q, q.zero_point.size() == 1 && !key.block_scales ? dims{} : shape)));
            }
        }
        onnx::NodeProto& n = call(v, v.how, key, inputs);
        using list = std::vector<std::int64_t>;
        if (key.zero_codes) set_attribute(n, "zero_count", list{number(q.zero_point.size())});
        set_attribute(n, "shape", list(value.shape().begin(), value.shape().end()));
        set_attribute(n, "rows", key.whole_blocks ? list{outer * blocks, number(block), inner} : list{outer, number(p.view.length), inner});
        if (!key.whole_bytes) set_attribute(n, "count", list{number(value.size())});
        if (block > 0) {
            set_attribute(n, "grid", key.whole_blocks ? list{outer * blocks, 1, inner} : list{outer, blocks, inner});
            if (!key.whole_blocks) set_attribute(n, "length", number(p.view.length));
        }
        if (blocked) set_attribute(n, "grid_count", list{number(p.scale_count)});
        if (p.shift_bits > 0) {
            set_attribute(n, "parts", list{outer, number(p.shift_count) / (outer * inner), inner});
            set_attribute(n, "part_count", list{number(p.shift_count)});
        }
        return n.output(0);
    }

    onnx::NodeProto& call(const quantized_value& v, const quantizer& asked, const function_key& key,
                          const std::vector<std::string>& inputs) {
        onnx::NodeProto& n = g_.node(functions_.name(key), inputs, {g_.fresh(v.name + marks::rounded)}, marks::function_domain);
        n.set_doc_string(describe(asked));
        return n;
    }

    /// Sets the attributes of a function with blocks of any number (block_layout::any_length counts axes behind one of length 1).
    void set_axis(onnx::NodeProto& n, const quantized_value& v) const {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), counted = axis < 0 ? axis : axis + 1;
        const bool last = axis == -1 || axis + 1 == static_cast<std::int64_t>(v.rank);
        set_attribute(n, "axis", std::vector<std::int64_t>{counted});
        set_attribute(n, "after", std::vector<std::int64_t>{last ? std::numeric_limits<std::int64_t>::max() : counted + 1});
    }

    /// Returns the shape that gives whole blocks (or the one short block) if it is known without running the model; otherwise empty.
    static std::vector<std::int64_t> blocks_of(const quantized_value& v) {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), length = v.length;
        const bool last = axis == -1 || axis + 1 == static_cast<std::int64_t>(v.rank);
        const microexponent* parts = std::get_if<microexponent>(&v.how.format);
        const std::int64_t part = parts ? parts->sub_block_size : 1;
        if (length <= 0 || (axis < 0 && !last)) return {};
        std::int64_t block = qk::block_size(v.how.format);
        if (length < block) block = length;
        if (length % block != 0 || block % part != 0) return {};
        std::vector<std::int64_t> shape(last ? 0 : static_cast<std::size_t>(axis), 0);
        shape.push_back(last ? -1 : length / block);
        if (parts) shape.push_back(block / part);
        shape.push_back(parts ? part : block);
        shape.push_back(last ? 1 : -1);
        return shape;
    }

    /// Returns the shape of blocks once zeros have filled the last one, if the rank and what lies behind the axis are known; otherwise
    /// empty.
    static std::vector<std::int64_t> padded_blocks_of(const quantized_value& v) {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), block = qk::block_size(v.how.format);
        const microexponent* parts = std::get_if<microexponent>(&v.how.format);
        const std::int64_t part = parts ? parts->sub_block_size : block;
        if (v.rank == 0 || axis < 0 || v.inner <= 0 || block % part != 0) return {};
        std::vector<std::int64_t> shape{-1};
        if (parts) shape.push_back(block / part);
        shape.insert(shape.end(), {part, v.inner});
        return shape;
    }

    std::string blocks(quantized_value v) {
        const quantizer asked = v.how;
        std::string x = v.name, shape;
        if (v.how.flatten) {  // rows span all axes but the first
            shape = g_.fresh(v.name + "_shape");
            g_.node("Shape", {x}, {shape});
            x = g_.fresh(v.name + "_rows");
            set_attribute(g_.node("Flatten", {v.name}, {x}), "axis", std::int64_t{1});
            v.rank = 2, v.how.axis = 1, v.length = -1, v.inner = 1;
        }
        const std::vector<std::int64_t> whole = blocks_of(v), filled = whole.empty() ? padded_blocks_of(v) : whole;
        function_key key{.format = v.how.format,
                         .semantics = v.how.semantics,
                         .layout = !whole.empty()    ? block_layout::whole
                                   : !filled.empty() ? block_layout::padded
                                                     : block_layout::any_length};
        std::vector<std::string> inputs{x};
        if (std::holds_alternative<nvfloat>(v.how.format) && !v.how.dynamic && !v.how.scale.empty()) {
            key.scales = 1;
            inputs.push_back(g_.constant(v.name + "_scale", make_tensor<float>({}, std::vector<float>{v.how.scale[0]})));
        }
        onnx::NodeProto& n = call(v, asked, key, inputs);
        if (filled.empty()) set_axis(n, v);
        else set_attribute(n, "blocks", filled);
        if (key.layout == block_layout::padded) {
            const std::int64_t axis = positive_axis(v.how.axis, v.rank);
            std::vector<std::int64_t> ends(2 * v.rank, 0);
            ends[v.rank + static_cast<std::size_t>(axis)] = 1;
            set_attribute(n, "axis", std::vector<std::int64_t>{axis});
            set_attribute(n, "ends", ends);
        }
        const std::string y = n.output(0);
        if (shape.empty()) return y;
        const std::string reshaped = g_.fresh(v.name + marks::rounded);
        g_.node("Reshape", {y, shape}, {reshaped});
        return reshaped;
    }

    std::string elements(const quantized_value& v) {
        const quantizer& q = v.how;
        const floating* f = std::get_if<floating>(&q.format);
        function_key key{.format = q.format, .semantics = q.semantics, .dynamic = q.dynamic && (f == nullptr || is_scaled(*f))};
        std::vector<std::string> inputs{v.name};
        if (key.dynamic) return call(v, q, key, inputs).output(0);
        if (!q.scale.empty() && (is_integer_format(q.format) || has_scale(q))) {
            key.scales = 1;
            key.one_scale = q.scale.size() == 1 && q.block_size == 0;
            key.block_scales = q.block_size > 0;
            key.block = q.block_size;
            dims shape;
            if (key.block_scales) {
                shape = {static_cast<std::int64_t>(q.scale.size())};
            } else if (!key.one_scale) {
                const std::int64_t axis = positive_axis(q.axis, v.rank);
                if (axis >= 0 && v.rank == 0)
                    cannot_hold(v, "has a scale for each index of axis " + std::to_string(axis) +
                                       ", and the tensor's rank is not known; run the model through shape inference first");
                shape.assign(axis < 0 ? static_cast<std::size_t>(-axis) : v.rank - static_cast<std::size_t>(axis), 1);
                shape[0] = static_cast<std::int64_t>(q.scale.size());
            }
            inputs.push_back(g_.constant(v.name + "_scale", make_tensor<float>(shape, q.scale)));
            if (is_shifted(q)) {
                key.scales = 2;
                inputs.push_back(g_.constant(v.name + "_zero_point", zero_points(q, q.zero_point.size() == 1 ? dims{} : shape)));
            }
        }
        onnx::NodeProto& n = call(v, q, key, inputs);
        if (key.block_scales) set_axis(n, v);
        return n.output(0);
    }

    static tensor zero_points(const quantizer& q, const dims& shape) {
        if (zero_point_type(std::get<integer>(q.format)) == data_type::float64)
            return make_tensor<double>(shape, std::vector<double>(q.zero_point.begin(), q.zero_point.end()));
        return make_tensor<float>(shape, std::vector<float>(q.zero_point.begin(), q.zero_point.end()));
    }

    qdq_writer standard_;
    function_set functions_;
    bool unpacks_in_each_run_ = false;
    std::optional<bool> blocks_possible_;  ///< whether the model can have the opset of DequantizeLinear by blocks; empty until needed
};

}  // namespace qk::graph::detail
