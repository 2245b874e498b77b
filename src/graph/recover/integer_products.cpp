// SPDX-License-Identifier: Apache-2.0
#include "graph/recover/integer_products.hpp"

#include <algorithm>

#include "graph/model/code_types.hpp"
#include "graph/recover/refine.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {

namespace {

class product_match {
  public:
    product_match(const model& m, int node) : m_(m), n_(m.graph().node(node)) {}

    std::optional<integer_product> run() {
        const bool convolves = n_.op_type() == "ConvInteger";
        if (!n_.domain().empty() || (!convolves && n_.op_type() != "MatMulInteger") || n_.input_size() < 3) return std::nullopt;
        found_.op_type = convolves ? "Conv" : "MatMul";
        const auto a = dynamic(0, 2);
        if (!a) return std::nullopt;
        found_.operands[0] = a->input(0);
        const int cast = only_reader(n_.output(0), "Cast");
        if (cast < 0 || int_attribute(m_.graph().node(cast), "to", 0) != 1) return std::nullopt;
        const std::string& sums = m_.graph().node(cast).output(0);
        found_.last = only_reader(sums, "Mul");
        if (found_.last < 0) return std::nullopt;
        const onnx::NodeProto& last = m_.graph().node(found_.last);
        const int scales = m_.producer(last.input(last.input(0) == sums ? 1 : 0));
        if (scales < 0 || m_.graph().node(scales).op_type() != "Mul" || m_.graph().node(scales).input_size() != 2) return std::nullopt;
        const onnx::NodeProto& both = m_.graph().node(scales);
        if (both.input(0) != a->output(1) && both.input(1) != a->output(1)) return std::nullopt;
        const std::string& other = both.input(both.input(0) == a->output(1) ? 1 : 0);
        found_.nodes.insert(found_.nodes.end(), {cast, found_.last, scales});
        if (const auto b = m_.is_constant(n_.input(1)) ? nullptr : dynamic(1, 3)) {
            if (convolves || b->output(1) != other) return std::nullopt;
            found_.operands[1] = b->input(0);
        } else if (!weights(other, convolves)) {
            return std::nullopt;
        }
        return std::move(found_);
    }

  private:
    /// Returns the DynamicQuantizeLinear that makes the codes of one input and the zero point of another.
    const onnx::NodeProto* dynamic(int codes, int zero_point) {
        if (n_.input_size() <= zero_point) return nullptr;
        const int maker = m_.producer(n_.input(codes));
        if (maker < 0) return nullptr;
        const onnx::NodeProto& n = m_.graph().node(maker);
        if (n.op_type() != "DynamicQuantizeLinear" || n.output_size() != 3 || n.output(0) != n_.input(codes) ||
            n.output(2) != n_.input(zero_point))
            return nullptr;
        found_.nodes.push_back(maker);
        return &n;
    }
    int only_reader(const std::string& tensor, const char* op) const {
        const auto& uses = m_.uses(tensor);
        if (uses.size() != 1 || uses[0].node < 0 || uses[0].input < 0) return -1;
        const onnx::NodeProto& n = m_.graph().node(uses[0].node);
        return n.domain().empty() && n.op_type() == op ? uses[0].node : -1;
    }

    /// Reads constant weights with one scale for all, or one for each result: along the last axis of a product, the first of a filter.
    bool weights(const std::string& scale_name, bool filters) {
        found_.codes = n_.input(1);
        const std::string zero_name = n_.input_size() > 3 ? n_.input(3) : "";
        if (!m_.is_constant(found_.codes) || !m_.is_constant(scale_name) || (!zero_name.empty() && !m_.is_constant(zero_name)))
            return false;
        const tensor codes = m_.constant(found_.codes), scale = m_.constant(scale_name);
        const tensor zero = zero_name.empty() ? tensor() : m_.constant(zero_name);
        const auto format = format_of_codes(codes.type());
        if (!format || !is_integer_format(*format) || scale.type() != data_type::float32 || codes.rank() < 2 || codes.size() == 0)
            return false;
        const std::size_t axis = filters ? 0 : codes.rank() - 1, channels = static_cast<std::size_t>(codes.dim(static_cast<int>(axis)));
        const std::size_t inner = filters ? codes.size() / channels : 1;
        const auto fits = [&](std::size_t count) { return count == 1 || count == channels; };
        if (!fits(scale.size()) || (!zero_name.empty() && !fits(zero.size()))) return false;
        quantizer& q = found_.how;
        q.format = *format;
        if (scale.size() > 1) q.axis = static_cast<int>(axis);
        q.scale.assign(scale.as<float>().begin(), scale.as<float>().end());
        for (std::size_t c = 0; c < zero.size() && !zero_name.empty(); ++c) q.zero_point.push_back(code_at(zero, c));
        if (!is_shifted(q)) q.zero_point.clear();
        if (q.zero_point.size() > q.scale.size()) q.scale.assign(channels, q.scale[0]), q.axis = static_cast<int>(axis);
        found_.value = tensor(data_type::float32, codes.shape());
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const std::size_t c = i / inner % channels;
            const std::int64_t z = q.zero_point.empty() ? 0 : q.zero_point[q.zero_point.size() == 1 ? 0 : c];
            found_.value.as<float>()[i] = static_cast<float>(code_at(codes, i) - z) * q.scale[q.scale.size() == 1 ? 0 : c];
        }
        if (q.zero_point.size() == 1 && q.scale.size() > 1) q.zero_point.assign(q.scale.size(), q.zero_point[0]);
        refine(q, n_.doc_string());
        return true;
    }

    const model& m_;
    const onnx::NodeProto& n_;
    integer_product found_;
};

}  // namespace

std::optional<integer_product> integer_product_of(const model& m, int node) { return product_match(m, node).run(); }

void make_plain(onnx::GraphProto& g, int node, const integer_product& p, const std::string& second) {
    onnx::NodeProto &n = *g.mutable_node(node), &last = *g.mutable_node(p.last);
    n.set_op_type(p.op_type);
    n.clear_doc_string(), n.clear_input();
    n.add_input(p.operands[0]), n.add_input(second);
    n.set_output(0, last.output(0));
    last.set_output(0, last.output(0) + "_quantizer");
}

}  // namespace qk::graph::detail
