// SPDX-License-Identifier: Apache-2.0
// Style qoperator: layers whose inputs, weights and result are all 8-bit integers become one integer operator; the rest stays Q/DQ pairs.
#include <cmath>

#include "graph/export/fusing.hpp"
#include "graph/export/layer_rewriter.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/style.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::detail {

/// Before:  DequantizeLinear -> Conv -> (Relu | Clip)* -> QuantizeLinear.  After: QLinearConv (-> Clip of codes).
/// Conditions: constant scales; every step has one reader; types that onnxruntime's kernels take; an int32 bias of scale s_x * s_w.
class qlinear_rewriter {
  public:
    explicit qlinear_rewriter(graph_writer& g) : g_(g), layers_(g) {}

    void run() {
        for (int i = 0; i < layers_.count(); ++i) {
            const onnx::NodeProto& n = layers_.node(i);
            if (!n.domain().empty() || n.output_size() != 1) continue;
            const operator_name op = operator_of(n);
            if (op == "Conv") conv(i);
            else if (op == "MatMul") matmul(i);
            else if (op == "Gemm") gemm(i);
            else if (op == "Add" || op == "Mul") binary(i, "QLinear" + n.op_type());
            else if (op == "Concat") concat(i);
            else if (op == "AveragePool" || op == "GlobalAveragePool" || op == "Sigmoid" || op == "LeakyRelu")
                unary(i, "QLinear" + n.op_type());
            else if (moves(n)) move(i);
        }
        layers_.drop_dead();
    }

    int layers() const { return rewritten_; }

  private:
    using pair = std::pair<std::int64_t, std::int64_t>;
    using quantized = layer_rewriter::quantized;

    /// Returns codes with a single scale, or nullopt.
    std::optional<coded> activation(const std::string& name) {
        auto c = layers_.dequantized(name);
        if (!c || !is_byte(c->type) || !c->single() || c->zero_point.empty()) return std::nullopt;
        return c;
    }
    /// Returns the codes of x's other operand: uint8 constants become int8 where x is int8, because onnxruntime has kernels for that pair.
    std::optional<coded> weight(const std::string& name, const std::optional<coded>& x) {
        auto c = layers_.dequantized(name);
        if (!c || !is_byte(c->type) || c->zero_point.empty()) return std::nullopt;
        if (x && x->type == data_type::int8 && c->type == data_type::uint8 && c->constant) {
            c->codes = layers_.moved_down(c->codes), c->zero_point = layers_.moved_down(c->zero_point);
            c->type = data_type::int8;
        }
        return c;
    }
    /// Returns whether onnxruntime's kernels multiply these types: uint8 by either, int8 by int8.
    static bool multiply(const coded& x, const coded& w) { return x.type == data_type::uint8 || w.type == data_type::int8; }

    /// Returns the bias codes, "" where there is no bias, and nullopt where the bias is not an int32 of scale s_x * s_w * factor.
    std::optional<std::string> bias(const onnx::NodeProto& n, int input, const coded& x, const coded& w, double factor = 1) {
        if (n.input_size() <= input || n.input(input).empty()) return "";
        const auto b = layers_.dequantized(n.input(input));
        if (!b || b->type != data_type::int32 || (b->scales.size() != 1 && b->scales.size() != w.scales.size())) return std::nullopt;
        for (std::size_t k = 0; k < w.scales.size(); ++k) {
            const double expected = static_cast<double>(x.scales[0]) * static_cast<double>(w.scales[k]) * factor;
            if (std::fabs(static_cast<double>(b->scales[b->scales.size() == 1 ? 0 : k]) - expected) > 1e-6 * expected) return std::nullopt;
        }
        return b->codes;
    }

    struct result {
        quantized to;
        pair bounds;
    };
    std::optional<result> output(int i, data_type type) {
        auto q = layers_.quantized_output(layers_.node(i).output(0));
        if (!q || q->to.type != type) return std::nullopt;
        const auto bounds = layers_.code_bounds(*q);
        if (!bounds) return std::nullopt;
        return result{*q, *bounds};
    }

    void conv(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto x = activation(n.input(0)), w = weight(n.input(1), x);
        if (!x || !w || !multiply(*x, *w) || (!w->single() && (w->axis != 0 || !layers_.one_zero_point(*w)))) return;
        const auto b = bias(n, 2, *x, *w);
        const auto y = output(i, x->type);
        if (!b || !y) return;
        std::vector<std::string> in{x->codes, x->scale,      x->zero_point,  w->codes,
                                    w->scale, w->zero_point, y->to.to.scale, y->to.to.zero_point};
        if (!b->empty()) in.push_back(*b);
        replace(i, "QLinearConv", "", in, *y);
    }

    /// Writes an operator of these codes if its result has the type of the first.
    void combine(int i, const std::string& op, const std::string& domain, const std::vector<coded>& parts) {
        const auto y = output(i, parts[0].type);
        if (!y) return;
        std::vector<std::string> in;
        for (const coded& c : parts) in.insert(in.end(), {c.codes, c.scale, c.zero_point});
        in.insert(in.end(), {y->to.to.scale, y->to.to.zero_point});
        replace(i, op, domain, in, *y);
    }

    void matmul(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto a = activation(n.input(0)), b = weight(n.input(1), a);
        if (!a || !b || !multiply(*a, *b) || !per_column(*b)) return;
        combine(i, "QLinearMatMul", "", {*a, *b});
    }
    /// Returns whether scales are by column: there is one, or they lie along the last of two axes.
    bool per_column(const coded& b) {
        if (b.single()) return true;
        const auto codes = layers_.constant(b.codes);
        return codes && codes->rank() == 2 && (b.axis == 1 || b.axis == -1);
    }

    /// Writes com.microsoft.QGemm; without a quantizer behind it, it returns floats.
    void gemm(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const float alpha = float_attribute(n, "alpha", 1);
        const auto a = activation(n.input(0)), b = weight(n.input(1), a);
        if (!a || !b || !multiply(*a, *b) || !(alpha > 0)) return;
        if (!b->single() && b->axis != (int_attribute(n, "transB", 0) != 0 ? 0 : 1)) return;
        const bool biased = n.input_size() > 2 && !n.input(2).empty();
        if (biased && float_attribute(n, "beta", 1) != 1.0f) return;
        const auto c = bias(n, 2, *a, *b, static_cast<double>(alpha));
        if (!c) return;
        std::vector<std::string> in{a->codes, a->scale, a->zero_point, b->codes, b->scale, b->zero_point, *c};
        if (const auto y = output(i, a->type)) {
            in.push_back(y->to.to.scale), in.push_back(y->to.to.zero_point);
            replace(i, "QGemm", "com.microsoft", in, *y);
        } else {
            if (c->empty()) in.pop_back();
            layers_.rewrite(i, "QGemm", "com.microsoft", in);
            ++rewritten_;
        }
        remove_attribute(layers_.node(i), "beta");
    }

    void binary(int i, const std::string& op) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto a = activation(n.input(0)), b = activation(n.input(1));
        if (a && b && a->type == b->type) combine(i, op, "com.microsoft", {*a, *b});
    }

    void unary(int i, const std::string& op) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto x = activation(n.input(0));
        if (x && has_integer_pool(n)) combine(i, op, "com.microsoft", {*x});
    }

    void concat(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        std::vector<coded> parts;
        for (const std::string& in : n.input()) {
            const auto c = activation(in);
            if (!c || (!parts.empty() && c->type != parts[0].type)) return;
            parts.push_back(*c);
        }
        if (parts.empty()) return;
        const auto y = output(i, parts[0].type);
        if (!y) return;
        std::vector<std::string> in{y->to.to.scale, y->to.to.zero_point};
        for (const coded& c : parts) in.insert(in.end(), {c.codes, c.scale, c.zero_point});
        replace(i, "QLinearConcat", "com.microsoft", in, *y);
    }

    /// Is true for operators whose output elements are elements of input 0, and which have kernels for bytes.
    bool moves(const onnx::NodeProto& n) const {
        return one_of(operator_of(n), {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "MaxPool", "Identity", "Pad"});
    }
    /// Before: DequantizeLinear -> mover -> QuantizeLinear of the same scale.  After: the mover of codes.
    void move(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto x = activation(n.input(0));
        if (!x) return;
        const auto y = output(i, x->type);
        if (!y || y->to.to.scales != x->scales || layers_.zero_of(*x) != layers_.zero_of(y->to.to)) return;
        std::vector<std::string> in(n.input().begin(), n.input().end());
        in[0] = x->codes;
        if (operator_of(n) == "Pad") {
            const auto* mode = find_attribute(n, "mode");
            if (mode == nullptr || mode->s() == "constant") {
                // Pads are filled with 0, whose code is the zero point.
                if (find_attribute(n, "pads") != nullptr || in.size() < 2) return;
                if (in.size() > 2 && !in[2].empty() && layers_.number(in[2]) != 0.0f) return;
                in.resize(std::max<std::size_t>(in.size(), 3));
                in[2] = x->zero_point;
            }
            g_.require_opset(13, "Pad of codes");
        }
        if (operator_of(n) == "MaxPool") g_.require_opset(12, "MaxPool of codes");
        replace(i, n.op_type(), "", in, *y);
    }

    void replace(int i, const std::string& op, const std::string& domain, const std::vector<std::string>& in, const result& y) {
        layers_.replace(i, op, domain, in, y.to, y.bounds);
        ++rewritten_;
    }

    graph_writer& g_;
    layer_rewriter layers_;
    int rewritten_ = 0;
};

class qoperator_writer : public qdq_writer {
  public:
    using qdq_writer::qdq_writer;
    void finish() override {
        qlinear_rewriter rewriter(g_);
        rewriter.run();
        notes_.push_back(std::to_string(rewriter.layers()) + " nodes became operators on 8-bit codes");
    }
};

constinit const style_row qoperator_style{.name = "qoperator",
                                          .help = "integer operators for whole layers",
                                          .writer = make_writer<qoperator_writer>,
                                          .writes = {target_profile::file_form::integer_operators, "com.microsoft"},
                                          .unread = "its layers are integer operators"};

}  // namespace qk::graph::detail
