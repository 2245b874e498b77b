// SPDX-License-Identifier: Apache-2.0
// Style qinteger: layers of dynamically quantized uint8 activations become ConvInteger and MatMulInteger; the rest stays Q/DQ pairs.
#pragma once

#include "graph/export/layer_rewriter.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/qdq.hpp"

namespace qk::graph::detail {

/// Before:  DynamicQuantizeLinear -> DequantizeLinear -> MatMul | Gemm | Conv, of weights in int8 or uint8.
/// After:   MatMulInteger | ConvInteger -> Cast -> Mul of both scales -> Add of the bias.
/// Conditions: scales per tensor or per output channel, those of a Conv then with one zero point; Gemm with alpha = beta = 1 and transA =
/// 0.
class integer_product_rewriter {
  public:
    explicit integer_product_rewriter(graph_writer& g) : g_(g), layers_(g) {}

    void run() {
        for (int i = 0; i < layers_.count(); ++i) {
            const onnx::NodeProto& n = layers_.node(i);
            if (!n.domain().empty()) continue;
            if (n.op_type() == "MatMul") matmul(i);
            else if (n.op_type() == "Gemm") gemm(i);
            else if (n.op_type() == "Conv") conv(i);
        }
        layers_.drop_dead();
    }
    int layers() const { return rewritten_; }

  private:
    std::optional<coded> weight(const std::string& name) {
        auto c = layers_.dequantized(name);
        if (!c || (c->type != data_type::int8 && c->type != data_type::uint8)) return std::nullopt;
        return c;
    }

    void matmul(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto a = layers_.dynamic(n.input(0));
        if (!a) return;
        if (const auto other = layers_.dynamic(n.input(1))) return product(i, "MatMulInteger", *a, *other, other->scale, "");
        const auto b = weight(n.input(1));
        if (!b) return;
        if (!b->single()) {
            const auto codes = layers_.constant(b->codes);
            if (!codes || codes->rank() != 2 || (b->axis != 1 && b->axis != -1)) return;
        }
        product(i, "MatMulInteger", *a, *b, b->scale, "");
    }

    void gemm(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const bool transposed = int_attribute(n, "transB", 0) != 0, biased = n.input_size() > 2 && !n.input(2).empty();
        if (float_attribute(n, "alpha", 1) != 1.0f || (biased && float_attribute(n, "beta", 1) != 1.0f) ||
            int_attribute(n, "transA", 0) != 0)
            return;
        const auto a = layers_.dynamic(n.input(0));
        auto b = weight(n.input(1));
        if (!a || !b || (!b->single() && b->axis != (transposed ? 0 : 1))) return;
        if (transposed) {
            const auto codes = layers_.constant(b->codes);
            if (!codes) return;
            tensor t(codes->type(), {codes->dim(1), codes->dim(0)});
            const auto rows = static_cast<std::size_t>(codes->dim(0)), columns = static_cast<std::size_t>(codes->dim(1));
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t c = 0; c < columns; ++c) t.bytes()[c * rows + r] = codes->bytes()[r * columns + c];
            b->codes = g_.constant(b->codes + "_transposed", t);
        }
        const std::string bias = biased ? n.input(2) : "";
        product(i, "MatMulInteger", *a, *b, b->scale, bias);
        layers_.node(i).clear_attribute();
    }

    void conv(int i) {
        const onnx::NodeProto& n = layers_.node(i);
        const auto x = layers_.dynamic(n.input(0));
        auto w = weight(n.input(1));
        if (!x || !w) return;
        const auto codes = layers_.constant(w->codes);
        if (!codes) return;
        const dims along_channels = [&] {
            dims d(codes->rank() - 1, 1);
            d[0] = codes->dim(0);
            return d;
        }();
        std::string scale = w->scale;
        if (!w->single()) {
            if (w->axis != 0 || !layers_.one_zero_point(*w)) return;
            scale = g_.constant(w->scale + "_channels", layers_.constant(w->scale)->reshaped(along_channels));
            if (layers_.zero_everywhere(*w)) w->zero_point.clear();
        }
        std::string bias;
        if (n.input_size() > 2 && !n.input(2).empty()) {
            if (const auto held = layers_.constant(n.input(2))) {
                bias = g_.constant(n.input(2) + "_channels", held->reshaped(along_channels));
            } else {
                bias = g_.fresh(n.input(2) + "_channels");
                g_.node("Reshape",
                        {n.input(2),
                         g_.constant(n.input(2) + "_shape",
                                     make_tensor<std::int64_t>({static_cast<std::int64_t>(along_channels.size())}, along_channels))},
                        {bias});
            }
        }
        product(i, "ConvInteger", *x, *w, scale, bias);
    }

    /// Writes (q_a * q_b) as int32, times both scales, plus the bias.
    void product(int i, const std::string& op, const coded& a, const coded& b, const std::string& scale, const std::string& bias) {
        const std::string y = layers_.node(i).output(0), sums = g_.fresh(y + "_sums"), wide = g_.fresh(y + marks::as_float),
                          scales = g_.fresh(y + "_scales");
        std::vector<std::string> in{a.codes, b.codes, a.zero_point};
        if (!b.zero_point.empty()) in.push_back(layers_.scalar_zero_point(b));
        layers_.rewrite(i, op, "", in);
        if (b.constant) layers_.node(i).set_doc_string(b.description);
        layers_.node(i).set_output(0, sums);
        set_attribute(g_.node("Cast", {sums}, {wide}), "to", std::int64_t{1});
        g_.node("Mul", {a.scale, scale}, {scales});
        const std::string scaled = bias.empty() ? y : g_.fresh(y + "_unbiased");
        g_.node("Mul", {wide, scales}, {scaled});
        if (!bias.empty()) g_.node("Add", {scaled, bias}, {y});
        g_.require_opset(10, op);
        ++rewritten_;
    }

    graph_writer& g_;
    layer_rewriter layers_;
    int rewritten_ = 0;
};

class qinteger_writer : public qdq_writer {
  public:
    using qdq_writer::qdq_writer;
    void finish() override {
        integer_product_rewriter rewriter(g_);
        rewriter.run();
        notes_.push_back(std::to_string(rewriter.layers()) + " layers became ConvInteger or MatMulInteger" +
                         (rewriter.layers() == 0
                              ? "; this style is for dynamic uint8 activations: --approach dynamic --activation uint8 --weight int8"
                              : ""));
    }
};

}  // namespace qk::graph::detail
