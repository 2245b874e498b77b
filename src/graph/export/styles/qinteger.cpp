// SPDX-License-Identifier: Apache-2.0
// Style qinteger: layers of dynamically quantized uint8 activations become ConvInteger and MatMulInteger; the rest stays Q/DQ pairs.
#include <algorithm>

#include "graph/export/layer_rewriter.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/refine.hpp"
#include "graph/export/style.hpp"
#include "graph/model/code_types.hpp"
#include "graph/model/operator_name.hpp"
#include "qk/graph/model/attribute.hpp"

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
            if (operator_of(n) == "MatMul") matmul(i);
            else if (operator_of(n) == "Gemm") gemm(i);
            else if (operator_of(n) == "Conv") conv(i);
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

namespace {

/// Reads DynamicQuantizeLinear -> MatMulInteger | ConvInteger -> Cast -> Mul of both scales, as this style and onnxruntime's
/// quantize_dynamic write it: the product of floats, and both quantizers.
class product_match {
  public:
    product_match(const model& m, int node) : m_(m), n_(m.graph().node(node)) {}

    read_back run() {
        const bool convolves = operator_of(n_) == "ConvInteger";
        if (!n_.domain().empty() || (!convolves && operator_of(n_) != "MatMulInteger") || n_.input_size() < 3) return {};
        found_.node = n_;
        found_.node.set_op_type(convolves ? "Conv" : "MatMul");
        found_.node.clear_doc_string(), found_.node.clear_input();
        const auto a = dynamic(0, 2);
        if (!a) return {};
        add(a->input(0));
        const int cast = only_reader(n_.output(0), "Cast");
        if (cast < 0 || int_attribute(m_.graph().node(cast), "to", 0) != 1) return {};
        const std::string& sums = m_.graph().node(cast).output(0);
        const int last_node = only_reader(sums, "Mul");
        if (last_node < 0) return {};
        const onnx::NodeProto& last = m_.graph().node(last_node);
        const int scales = m_.producer(last.input(last.input(0) == sums ? 1 : 0));
        if (scales < 0 || operator_of(m_.graph().node(scales)) != "Mul" || m_.graph().node(scales).input_size() != 2) return {};
        const onnx::NodeProto& both = m_.graph().node(scales);
        if (both.input(0) != a->output(1) && both.input(1) != a->output(1)) return {};
        const std::string& other = both.input(both.input(0) == a->output(1) ? 1 : 0);
        found_.parts.insert(found_.parts.end(), {cast, last_node, scales});
        found_.node.set_output(0, last.output(0));
        if (const auto b = m_.is_constant(n_.input(1)) ? nullptr : dynamic(1, 3)) {
            if (convolves || b->output(1) != other) return {};
            add(b->input(0));
        } else if (!weights(other, convolves)) {
            return {};
        }
        return std::move(found_);
    }

  private:
    /// Adds an operand that is quantized in each run; returns it.
    node_on_floats::operand& add(const std::string& name) {
        quantizer how;
        how.format = uint8, how.dynamic = true;
        found_.node.add_input(name);
        return found_.operands.emplace_back(node_on_floats::operand{.input = found_.node.input_size() - 1, .name = name, .how = how});
    }
    /// Returns the DynamicQuantizeLinear that makes the codes of one input and the zero point of another.
    const onnx::NodeProto* dynamic(int codes, int zero_point) {
        if (n_.input_size() <= zero_point) return nullptr;
        const int maker = m_.producer(n_.input(codes));
        if (maker < 0) return nullptr;
        const onnx::NodeProto& n = m_.graph().node(maker);
        if (operator_of(n) != "DynamicQuantizeLinear" || n.output_size() != 3 || n.output(0) != n_.input(codes) ||
            n.output(2) != n_.input(zero_point))
            return nullptr;
        found_.parts.push_back(maker);
        return &n;
    }
    int only_reader(const std::string& tensor, operator_word op) const {
        const auto& uses = m_.uses(tensor);
        if (uses.size() != 1 || uses[0].node < 0 || uses[0].input < 0) return -1;
        const onnx::NodeProto& n = m_.graph().node(uses[0].node);
        return n.domain().empty() && operator_of(n) == op ? uses[0].node : -1;
    }

    /// Reads constant weights with one scale for all, or one for each result: along the last axis of a product, the first of a filter.
    bool weights(const std::string& scale_name, bool filters) {
        const std::string& code_name = n_.input(1);
        const std::string zero_name = n_.input_size() > 3 ? n_.input(3) : "";
        if (!m_.is_constant(code_name) || !m_.is_constant(scale_name) || (!zero_name.empty() && !m_.is_constant(zero_name))) return false;
        const tensor codes = m_.constant(code_name), scale = m_.constant(scale_name);
        const tensor zero = zero_name.empty() ? tensor() : m_.constant(zero_name);
        const auto format = format_of_codes(codes.type());
        if (!format || !is_integer_format(*format) || scale.type() != data_type::float32 || codes.rank() < 2 || codes.size() == 0)
            return false;
        const std::size_t axis = filters ? 0 : codes.rank() - 1, channels = static_cast<std::size_t>(codes.dim(axis));
        const std::size_t inner = filters ? codes.size() / channels : 1;
        const auto fits = [&](std::size_t count) { return count == 1 || count == channels; };
        if (!fits(scale.size()) || (!zero_name.empty() && !fits(zero.size()))) return false;
        quantizer q;
        q.format = *format;
        if (scale.size() > 1) q.axis = static_cast<int>(axis);
        q.scale.assign(scale.as<float>().begin(), scale.as<float>().end());
        for (std::size_t c = 0; c < zero.size() && !zero_name.empty(); ++c) q.zero_point.push_back(code_at(zero, c));
        if (!is_shifted(q)) q.zero_point.clear();
        if (q.zero_point.size() > q.scale.size()) q.scale.assign(channels, q.scale[0]), q.axis = static_cast<int>(axis);
        tensor value(data_type::float32, codes.shape());
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const std::size_t c = i / inner % channels;
            const std::int64_t z = q.zero_point.empty() ? 0 : q.zero_point[q.zero_point.size() == 1 ? 0 : c];
            value.as<float>()[i] = static_cast<float>(code_at(codes, i) - z) * q.scale[q.scale.size() == 1 ? 0 : c];
        }
        if (q.zero_point.size() == 1 && q.scale.size() > 1) q.zero_point.assign(q.scale.size(), q.zero_point[0]);
        refine(q, n_.doc_string());
        node_on_floats::operand& o = add(code_name);
        o.how = q, o.value = std::move(value);
        return true;
    }

    const model& m_;
    const onnx::NodeProto& n_;
    node_on_floats found_;
};

}  // namespace

constinit const style_row qinteger_style{.name = "qinteger",
                                         .help = "integer operators for whole layers, under scales of each run",
                                         .writer = make_writer<qinteger_writer>,
                                         .writes = {target_profile::file_form::integer_operators},
                                         .read = [](const model& m, int node) { return product_match(m, node).run(); },
                                         .signed_activations = true};

}  // namespace qk::graph::detail
