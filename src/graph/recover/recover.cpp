// SPDX-License-Identifier: Apache-2.0
// Definitions of recover.hpp: finds quantizers from their last node back, rewires readers to what went in, and drops dead nodes. What one
// style alone writes is read by its row (export/style.hpp). The file is long because the nodes that several styles and tools write for a
// quantizer are recognised here.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/portable.hpp"
#include "graph/export/refine.hpp"
#include "graph/export/style.hpp"
#include "graph/model/check.hpp"
#include "graph/model/code_types.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/run_node.hpp"
#include "graph/ops/widened.hpp"
#include "graph/recover/inlined_calls.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/recover/recover.hpp"

namespace qk::graph {
namespace detail {

// Tells by operator which nodes quantize and dequantize.

inline bool is_amd(const onnx::NodeProto& n) { return marks::is_amd(n.domain()); }
inline bool quantizes(const onnx::NodeProto& n) {
    const operator_name op = operator_of(n);
    return is_amd(n) ? op == "ExtendedQuantizeLinear" || op == "VitisQuantizeLinear"
                     : op == "QuantizeLinear" && (n.domain().empty() || n.domain() == "com.microsoft");
}
inline bool dequantizes(const onnx::NodeProto& n) {
    const operator_name op = operator_of(n);
    return is_amd(n)                              ? op == "ExtendedDequantizeLinear" || op == "VitisDequantizeLinear"
           : n.domain() == marks::tensorrt_domain ? op == "DequantizeLinear" || op == "TRT_MXFP8DequantizeLinear"
                                                  : op == "DequantizeLinear" && (n.domain().empty() || n.domain() == "com.microsoft");
}

/// Returns the results of the calls whose inputs are all constants, by name, computed as the model computes them.
inline std::map<std::string, tensor> called_constants(const model& m) {
    onnx::ModelProto calls;
    calls.set_ir_version(std::max<std::int64_t>(m.proto().ir_version(), 8));
    *calls.mutable_opset_import() = m.proto().opset_import();
    *calls.mutable_functions() = m.proto().functions();
    onnx::GraphProto& g = *calls.mutable_graph();
    g.set_name("calls");
    const auto declare = [](onnx::ValueInfoProto& v, const std::string& name) {
        v.set_name(name);
        v.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    };
    std::map<std::string, tensor> results;
    std::set<std::string> held;
    for (const auto& n : m.graph().node()) {
        if (called_quantizer(m, n) == nullptr || !std::ranges::all_of(n.input(), [&](const std::string& i) { return m.is_constant(i); }))
            continue;
        *g.add_node() = n;
        declare(*g.add_output(), n.output(0));
        for (const std::string& i : n.input())
            if (held.insert(i).second) to_proto(m.constant(i), i, *g.add_initializer());
    }
    if (g.node_size() == 0) return results;
    // A run needs an input.
    const std::string none = "qk/none";
    onnx::NodeProto& idle = *g.add_node();
    idle.set_op_type("Identity");
    idle.add_input(none), idle.add_output(none + "/y");
    declare(*g.add_input(), none);
    g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(1);
    declare(*g.add_output(), idle.output(0));
    const model small = model::parse(calls.SerializeAsString(), {}, m.label());
    for (auto& [name, value] : evaluator(small, {.threads = 1}).run({{none, make_tensor<float>({1}, std::vector<float>{0})}}).outputs)
        if (name != idle.output(0)) results.emplace(name, std::move(value));
    return results;
}

/// Removes qk's functions that nobody calls any more, and imports of their domain and of AMD's that nothing uses.
inline void forget_functions(onnx::ModelProto& m) {
    const auto called = [&](const std::string& domain, const std::string* name) {
        return std::any_of(m.graph().node().begin(), m.graph().node().end(),
                           [&](const onnx::NodeProto& n) { return n.domain() == domain && (name == nullptr || n.op_type() == *name); });
    };
    auto& functions = *m.mutable_functions();
    for (int k = functions.size(); k-- > 0;)
        if (functions.Get(k).domain() == marks::function_domain && !called(marks::function_domain, &functions.Get(k).name()))
            functions.DeleteSubrange(k, 1);
    auto& imports = *m.mutable_opset_import();
    for (int k = imports.size(); k-- > 0;) {
        const std::string& domain = imports.Get(k).domain();
        const bool known = marks::is_amd(domain) || domain == marks::function_domain || domain == marks::tensorrt_domain;
        if (known && !called(domain, nullptr)) imports.DeleteSubrange(k, 1);
    }
}

// Removes quantizers that were recovered into a plan from the model, with what only they needed.

inline std::set<std::string> int8_names(const onnx::ModelProto& m) {
    std::set<std::string> names;
    for (const auto& p : m.metadata_props()) {
        if (p.key() != marks::int8_property) continue;
        std::size_t at = 0;
        for (std::size_t end; (end = p.value().find('\n', at)) != std::string::npos; at = end + 1)
            names.insert(p.value().substr(at, end - at));
    }
    return names;
}

/// `owned` marks nodes that are part of a quantizer. Removes those that nobody reads any more, and constants that only they read.
inline void drop_quantizers(model& m, const std::vector<bool>& owned) {
    onnx::GraphProto& g = m.graph();
    std::vector<bool> gone(static_cast<std::size_t>(g.node_size()), false);
    mark_unread(g, gone, [&](int i) {
        return owned[static_cast<std::size_t>(i)] || (operator_of(g.node(i)) == "Constant" && g.node(i).domain().empty());
    });
    remove_nodes(g, gone);
    allow_free_initializers(m.proto());
    forget_functions(m.proto());
    auto& properties = *m.proto().mutable_metadata_props();
    for (int k = properties.size(); k-- > 0;)
        if (properties.Get(k).key() == marks::int8_property) properties.DeleteSubrange(k, 1);
    m.reindex();
    drop_unused_initializers(m);
    // Remove shapes of tensors that no longer exist.
    auto& infos = *g.mutable_value_info();
    for (int k = infos.size(); k-- > 0;)
        if (m.producer(infos.Get(k).name()) < 0) infos.DeleteSubrange(k, 1);
    m.reindex();
}

inline int number(const onnx::NodeProto& n, const char* name, int otherwise) { return static_cast<int>(int_attribute(n, name, otherwise)); }

class plan_recovery {
  public:
    explicit plan_recovery(const model& m)
        : source_(m), result_{m, {}, {}}, owned_(static_cast<std::size_t>(m.graph().node_size()), false) {
        for (const auto& n : m.graph().node())
            if (operator_of(n) == "Constant" && n.domain().empty())
                if (auto v = constant_value(n)) constants_.emplace(n.output(0), std::move(*v));
        int8_ = int8_names(m.proto());
    }

    recovered_plan run() {
        called_ = called_constants(source_);
        look_at_rounded_constants();
        for (int i = 0; i < source_.graph().node_size(); ++i) {
            const read_back read = read_by_style(i);
            look_at(i, std::get_if<quantizer>(&read));
            if (const auto* plain = std::get_if<node_on_floats>(&read)) put(i, *plain);
        }
        int calls = 0, pairs = 0;
        for (const onnx::NodeProto& n : source_.graph().node()) pairs += dequantizes(n);
        for (int i = 0; i < source_.graph().node_size(); ++i)
            calls += source_.graph().node(i).domain() == marks::function_domain && !owned_[static_cast<std::size_t>(i)];
        if (links_.empty() && edges_.empty())
            throw error(source_.label() +
                        " has no quantizers to recover a plan from: no QuantizeLinear and DequantizeLinear pairs, Cast pairs, calls of "
                        "functions of style portable, com.amd.quark operators, MatMulNBits or QMoE" +
                        (has_integer_operators() ? "; its layers are integer operators, export it as qdq instead" : "") +
                        (pairs > 0 ? "; the " + std::to_string(pairs) +
                                         " DequantizeLinear nodes that it has read scales that are computed, or other parameters than the "
                                         "QuantizeLinear before them"
                                   : "") +
                        (calls > 0 ? "; its calls of functions do not say what they quantize" : ""));
        if (calls > 0)
            result_.notes.push_back(std::to_string(calls) + " calls of functions stay in the model: they do not say what they quantize");
        if (in_halves_ > 0)
            result_.notes.push_back(std::to_string(in_halves_) +
                                    " quantizers divide in 16 bits, and the plan in float32: a value beside a tie may have the next code");
        rewire();
        drop_quantizers(result_.plain, owned_);
        result_.plan = gather(std::move(edges_), result_.plain);
        return std::move(result_);
    }

  private:
    /// What a quantizer made: the tensor that it read, how it quantizes, and for a constant the float values.
    struct link {
        std::string source;
        quantizer how;
        std::optional<tensor> value;
    };

    bool has_integer_operators() const {
        return std::ranges::any_of(source_.graph().node(), [](const onnx::NodeProto& n) {
            return operator_of(n).starts_with("QLinear") || operator_of(n).ends_with("Integer");
        });
    }

    const onnx::NodeProto* maker(const std::string& name) const {
        const int i = source_.producer(name);
        return i < 0 ? nullptr : &source_.graph().node(i);
    }
    std::optional<tensor> constant(const std::string& name) const {
        if (const auto i = constants_.find(name); i != constants_.end()) return i->second;
        if (name.empty() || !source_.is_constant(name)) return std::nullopt;
        return source_.constant(name);
    }
    static bool same(const tensor& a, const tensor& b) {
        return a.type() == b.type() && a.shape() == b.shape() && std::equal(a.bytes(), a.bytes() + a.size_bytes(), b.bytes());
    }
    bool same_constant(const std::string& a, const std::string& b) const {
        if (a == b) return true;
        const auto x = constant(a), y = constant(b);
        return x && y && same(*x, *y);
    }
    static quantizer of(const qk::format& f, bool dynamic = false) {
        quantizer q;
        q.format = f, q.dynamic = dynamic;
        return q;
    }
    void own(const std::string& tensor) {
        if (const int i = source_.producer(tensor); i >= 0) owned_[static_cast<std::size_t>(i)] = true;
    }

    /// Records what a quantizer made. Values of a constant are rounded already: a code divided by its scale again may fall an ulp short of
    /// itself, and is then nearest to it, so roundings that are not to nearest become half-even.
    void remember(const std::string& result, link found) {
        if (found.value && found.how.semantics.rounding >= rounding::toward_zero) found.how.semantics.rounding = rounding::half_even;
        if (found.value && !gives_itself(found.how, *found.value)) {
            result_.notes.push_back("tensor '" + result +
                                    "' stays as its rounded values: the scales of its format are chosen by values before a rounding, and "
                                    "these come from another");
            found.how = of(fp32);
        }
        links_.emplace(result, std::move(found));
    }
    /// Returns the quantizer of values that are rounded already, or that of float32 with a note where it would change them.
    quantizer kept(const quantizer& how, const tensor& value, const std::string& name) {
        if (gives_itself(how, value)) return how;
        result_.notes.push_back("the weights '" + name +
                                "' stay as their rounded values: the scales of their format are chosen by values before a rounding, and "
                                "these come from another");
        return of(fp32);
    }
    /// Returns whether rounding changes nothing; for formats other than NVFP4 it never changes anything.
    static bool gives_itself(const quantizer& how, const tensor& value) {
        const auto rank = static_cast<int>(value.rank());
        if (!has_floating_scales(how.format) || (rank > 1 && (how.axis < -rank || how.axis >= rank))) return true;
        std::vector<float> y(value.size());
        apply(how, value, y);
        return std::ranges::equal(y, value.as<float>(), [](float a, float b) { return a == b || (a != a && b != b); });
    }

    read_back read_by_style(int i) const {
        for (const export_style s : export_styles()) {
            const auto read = s.row().read;
            if (read_back found = read != nullptr ? read(source_, i) : read_back(); found.index() != 0) return found;
        }
        return {};
    }

    /// `by_style` is what a style's row says that the node quantizes with.
    void look_at(int i, const quantizer* by_style) {
        const onnx::NodeProto& n = source_.graph().node(i);
        if (n.output_size() == 0 || n.input_size() == 0) return;
        std::optional<link> found;
        if (dequantizes(n)) {
            found = in_blocks(n);
            if (!found && !whole_.contains(n.output(0))) found = dequantized(n);
        } else if (n.domain().empty() && n.input_size() > 1 && whole_.contains(n.input(0))) found = in_own_shape(n);
        else if (operator_of(n) == "Cast" && n.domain().empty() && links_.contains(n.input(0))) found = in_own_type(n);
        else if (operator_of(n) == "Cast" && n.domain().empty() && number(n, "to", 0) == 1) found = widened(n);
        else if (by_style != nullptr) found = of_node(n, *by_style);
        else if (operator_of(n) == "Reshape" && n.domain().empty() && links_.contains(n.input(0))) found = rows_of_filter(n);
        else if (links_.contains(n.input(0)) && is_guard(n)) found = links_.at(n.input(0));
        if (whole_.contains(n.output(0))) owned_[static_cast<std::size_t>(i)] = true;
        if (!found) return;
        skip_guard(*found);
        if (n.domain().empty()) refine(found->how, n.doc_string());
        if (const auto value = constant(found->source); value && !found->value) {
            found->value = *value;
            found->source = free_name(marks::without(found->source, {marks::rounded}), found->source, *value);
        }
        remember(n.output(0), std::move(*found));
        owned_[static_cast<std::size_t>(i)] = true;
    }

    /// Returns whether a node behind a quantizer is the identity: a Max of one input, or one of the exporter's other guards.
    bool is_guard(const onnx::NodeProto& n) const {
        if (!n.domain().empty()) return false;
        if (operator_of(n) == "Max" && n.input_size() == 1) return true;
        if (!marks::has(n.output(0), marks::guarded)) return false;
        if (operator_of(n) == "Flatten") return n.input_size() == 1;
        if (operator_of(n) != "Max" || n.input_size() != 2) return false;
        const auto lowest = constant(n.input(1));
        return lowest && lowest->size() == 1 && lowest->type() == data_type::float32 &&
               lowest->as<float>()[0] == -std::numeric_limits<float>::infinity();
    }

    /// Returns `wanted` if no other tensor has it (or `own`, the quantizer's result, which goes away), else `otherwise`, or one made from
    /// it.
    std::string free_name(const std::string& wanted, const std::string& otherwise, const tensor& value, const std::string& own = {}) {
        for (std::string name = wanted, next = otherwise;; next += marks::as_float) {
            const auto made = made_.find(name);
            const bool used =
                !source_.uses(name).empty() || source_.producer(name) >= 0;  // a constant that nobody reads may be written over
            const bool free = made != made_.end()                 ? same(made->second, value)
                              : source_.is_constant(name) && used ? same(source_.constant(name), value)
                                                                  : !used || name == otherwise || name == own;
            if (free) {
                made_.emplace(name, value);
                return name;
            }
            name = next;
        }
    }

    /// Returns a name for the floats behind codes or rounded values: `name`, which those have, without its mark. `own` as in free_name().
    std::string floats_of(const std::string& name, const char* mark, const tensor& value, const std::string& own) {
        return free_name(marks::without(name, {mark}), name + marks::as_float, value, own);
    }

    static bool has_zero_point(const onnx::NodeProto& n) { return n.input_size() > 2 && !n.input(2).empty(); }

    /// Returns the type of a QuantizeLinear's codes: that of its zero point, or what an attribute says, or uint8. Returns nullopt where the
    /// zero point is no constant.
    std::optional<data_type> codes_of(const onnx::NodeProto& n) const {
        if (has_zero_point(n)) {
            const auto zero = constant(n.input(2));
            return zero ? std::optional(zero->type()) : std::nullopt;
        }
        if (is_amd(n)) return std::nullopt;  // whose formats are their zero points' types
        const auto type = static_cast<data_type>(number(n, "output_dtype", 0));
        return type == data_type::undefined ? data_type::uint8 : type;
    }
    /// Returns whether the zero points of a pair are the same; one that is left out is 0.
    bool same_zero_point(const onnx::NodeProto& a, const onnx::NodeProto& b) const {
        if (has_zero_point(a) && has_zero_point(b)) return same_constant(a.input(2), b.input(2));
        for (const onnx::NodeProto* n : {&a, &b}) {
            if (!has_zero_point(*n)) continue;
            const auto zero = constant(n->input(2));
            if (!zero || std::any_of(zero->bytes(), zero->bytes() + zero->size_bytes(), [](std::byte v) { return v != std::byte{0}; }))
                return false;
        }
        return true;
    }

    /// Returns the format, scales, zero points and axis of a DequantizeLinear; nullopt when they are not constants.
    std::optional<quantizer> parameters(const onnx::NodeProto& n, data_type codes) const {
        quantizer q;
        const auto given = constant(n.input(1));
        const auto f = format_of_codes(codes);
        if (!given || !f) return std::nullopt;
        const tensor wide = ops::widened(*given), *scale = &wide;
        if (scale->type() != data_type::float32) return std::nullopt;
        q.format = *f;
        q.block_size = number(n, "block_size", 0);
        if (scale->size() > 1 || q.block_size > 0) q.axis = number(n, "axis", 1);
        const bool scaled = is_integer_format(*f) || (std::holds_alternative<floating>(*f) && bits(std::get<floating>(*f)) <= 8);
        if (scaled) q.scale.assign(scale->as<float>().begin(), scale->as<float>().end());
        if (q.scale.size() == 1 && q.scale[0] == 1.0f && !is_integer_format(*f)) q.scale.clear();
        if (is_amd(n)) q.semantics = semantics::quark;
        if (has_zero_point(n) && is_integer_format(*f)) {
            const auto zero = constant(n.input(2));
            if (!zero || zero->type() != codes) return std::nullopt;
            for (std::size_t i = 0; i < zero->size(); ++i) q.zero_point.push_back(code_at(*zero, i));
            if (!is_shifted(q)) q.zero_point.clear();
        }
        return q;
    }
    /// Returns the inputs of a node that are known: constants, and scales that are codes themselves.
    std::optional<std::vector<tensor>> known_inputs(const onnx::NodeProto& n) const {
        std::vector<tensor> inputs;
        for (const std::string& in : n.input()) {
            const auto made = links_.find(in);
            auto value = made != links_.end() && made->second.value ? made->second.value : constant(in);
            if (!value && !in.empty()) return std::nullopt;
            inputs.push_back(value ? std::move(*value) : tensor());
        }
        return inputs;
    }

    /// Returns the quantizer of a constant that DequantizeLinear decodes by blocks: what the node says, else the block format whose
    /// element, scales and blocks these are.
    std::optional<quantizer> block_quantizer(const onnx::NodeProto& n, const std::vector<tensor>& inputs) const {
        const int block = number(n, "block_size", 0);
        if (inputs.size() < 2) return std::nullopt;
        if (auto told = described(n.doc_string()); told && is_block_format(told->format))
            return told;  // a vector of one block names no size
        if (block == 0) return std::nullopt;
        const data_type codes = inputs[0].type(), scales = inputs[1].type();
        if (const auto held = format_of_codes(codes); held && is_integer_format(*held)) {
            auto q = parameters(n, codes);
            const auto told = q ? described(n.doc_string(), q->scale, q->zero_point) : std::nullopt;
            if (!told || !holds_codes(q->format, told->format) || !marks::has(n.input(0), marks::quantized)) return std::nullopt;
            return told;
        }
        const auto element = format_of_codes(codes);
        if (!element || !std::holds_alternative<floating>(*element)) return std::nullopt;
        quantizer q;
        q.axis = number(n, "axis", 1);
        if (scales == data_type::float8e8m0) {
            q.format = microscaling{.block_size = block, .element = std::get<floating>(*element)};
            return q;
        }
        const onnx::NodeProto* inner = maker(n.input(1));
        if (inner == nullptr || !dequantizes(*inner) || inner->input_size() < 2) return std::nullopt;
        const auto scale_codes = constant(inner->input(0)), tensor_scale = constant(inner->input(1));
        const auto scale = scale_codes ? format_of_codes(scale_codes->type()) : std::nullopt;
        if (!scale || !std::holds_alternative<floating>(*scale) || !tensor_scale || tensor_scale->type() != data_type::float32 ||
            tensor_scale->size() != 1)
            return std::nullopt;
        q.format = in_floating_scales(block, std::get<floating>(*element), std::get<floating>(*scale));
        q.scale = {tensor_scale->as<float>()[0]};
        return q;
    }

    /// Returns what the node makes of these values: nothing if it fails or needs more than any tensor of a file that can be loaded.
    std::vector<tensor> run(const onnx::NodeProto& n, const std::vector<tensor>& inputs) const {
        constexpr std::size_t bytes = std::size_t{1} << 34;
        return try_run(source_, n, inputs, bytes);
    }

    /// Reads a DequantizeLinear of a constant by blocks. Where the blocks are not yet in the tensor's own shape, what is known goes to
    /// whole_ and nothing is returned.
    std::optional<link> in_blocks(const onnx::NodeProto& n) {
        const auto inputs = known_inputs(n);
        const auto q = inputs ? block_quantizer(n, *inputs) : std::nullopt;
        if (!q) return std::nullopt;
        const std::vector<tensor> values = run(n, *inputs);
        if (values.size() != 1 || values[0].type() != data_type::float32) return std::nullopt;
        const std::string base = marks::without(n.input(0), {marks::quantized});
        if (!marks::has(base, marks::whole)) return link{floats_of(n.input(0), marks::quantized, values[0], n.output(0)), *q, values[0]};
        whole_.emplace(n.output(0), link{marks::without(base, {marks::whole}), *q, values[0]});
        return std::nullopt;
    }

    /// Reads the Slice or the Reshape from whole blocks to the tensor's own shape.
    std::optional<link> in_own_shape(const onnx::NodeProto& n) {
        const link from = whole_.at(n.input(0));
        std::vector<tensor> inputs{*from.value};
        for (int k = 1; k < n.input_size(); ++k) {
            const auto value = constant(n.input(k));
            if (!value) return std::nullopt;
            inputs.push_back(*value);
        }
        const std::vector<tensor> values = run(n, inputs);
        if (values.size() != 1) return std::nullopt;
        own(n.input(0));
        if (operator_of(n) == "Slice" && from.how.flatten) {
            whole_.emplace(n.output(0), link{from.source, from.how, values[0]});
            return std::nullopt;
        }
        return link{free_name(from.source, from.source + marks::as_float, values[0], n.output(0)), from.how, values[0]};
    }

    std::optional<link> dequantized(const onnx::NodeProto& n) {
        if (n.input_size() < 2) return std::nullopt;
        if (const auto codes = constant(n.input(0))) {
            const auto q = parameters(n, codes->type());
            if (!q) return std::nullopt;
            std::vector<tensor> inputs;
            for (const std::string& in : n.input()) inputs.push_back(constant(in).value_or(tensor()));
            const std::vector<tensor> values = run(n, inputs);
            if (values.size() != 1 || (values[0].type() != data_type::float32 && !ops::is_half(values[0].type()))) return std::nullopt;
            return link{floats_of(n.input(0), marks::quantized, values[0], n.output(0)), *q, values[0]};
        }
        const onnx::NodeProto* q = maker(n.input(0));
        if (q == nullptr) return std::nullopt;
        if (operator_of(*q) == "DynamicQuantizeLinear" && q->domain().empty() && n.input_size() > 2 && n.input(1) == q->output(1) &&
            n.input(2) == q->output(2)) {
            own(n.input(0));
            return link{q->input(0), of(uint8, true), std::nullopt};
        }
        if (q->domain() == marks::tensorrt_domain) return in_dynamic_blocks(n, *q);
        if (!quantizes(*q) || q->input_size() < 2 || !same_constant(q->input(1), n.input(1)) || !same_zero_point(*q, n))
            return std::nullopt;
        if (number(*q, "axis", 1) != number(n, "axis", 1)) return std::nullopt;
        const auto codes = codes_of(*q);
        auto how = codes ? parameters(n, *codes) : std::nullopt;
        if (!how) return std::nullopt;
        const auto scale = constant(n.input(1));
        if (number(n, "output_dtype", 0) != 0 && number(n, "output_dtype", 0) != static_cast<int>(scale->type())) return std::nullopt;
        if (ops::is_half(scale->type())) ++in_halves_;
        if (number(*q, "saturate", 1) == 0) how->semantics.overflow = overflow_rule::ieee;
        own(n.input(0));
        link found{q->input(0), *how, std::nullopt};
        skip_guard(found);
        narrow_by_clip(found);
        if ((int8_.contains(found.source) || int8_.contains(marks::without(found.source, {marks::as_float}))) &&
            found.how.format == qk::format(uint8))
            make_signed(found.how, int8);
        return found;
    }

    /// Reads TensorRT's dynamic quantizer with the DequantizeLinear behind it.
    std::optional<link> in_dynamic_blocks(const onnx::NodeProto& n, const onnx::NodeProto& q) {
        const bool nv = operator_of(q) == "TRT_FP4DynamicQuantize";
        if ((!nv && operator_of(q) != "TRT_MXFP8DynamicQuantize") || q.output_size() != 2 || n.input(0) != q.output(0)) return std::nullopt;
        quantizer how;
        if (nv) {
            const auto scale = q.input_size() > 1 ? constant(q.input(1)) : std::nullopt;
            const onnx::NodeProto* inner = maker(n.input(1));
            if (!scale || scale->type() != data_type::float32 || scale->size() != 1 || inner == nullptr || !dequantizes(*inner) ||
                inner->input(0) != q.output(1) || !same_constant(inner->input(1), q.input(1)))
                return std::nullopt;
            how.format = nvfp4, how.scale = {scale->as<float>()[0]};
            own(n.input(1));
        } else if (n.input(1) != q.output(1)) {
            return std::nullopt;
        } else {
            how.format = mxfp8_e4m3, how.semantics.scale_rule = scale_rule::rceil;
        }
        how.axis = number(q, "axis", -1);
        if (const auto told = described(n.doc_string()); told && told->format == how.format) how = *told;
        own(n.input(0));
        return link{q.input(0), how, std::nullopt};
    }

    /// Skips the exporter's own guard before a quantizer, a Max of one input or with -Inf.
    void skip_guard(link& found) {
        const onnx::NodeProto* n = maker(found.source);
        if (n == nullptr || operator_of(*n) != "Max" || !is_guard(*n) || !marks::has(found.source, marks::guarded)) return;
        own(found.source);
        found.source = n->input(0);
    }

    /// Skips the exporter's own Clip before a QuantizeLinear whose type has more codes than the format, and narrows the format to it.
    void narrow_by_clip(link& found) {
        const onnx::NodeProto* n = maker(found.source);
        if (n == nullptr || operator_of(*n) != "Clip" || !marks::has(found.source, marks::clipped) || n->input_size() < 3 ||
            !is_integer_format(found.how.format))
            return;
        const auto low = constant(n->input(1)), high = constant(n->input(2));
        if (!low || !high || !narrow(found.how, *low, *high)) return;
        own(found.source);
        found.source = n->input(0);
    }

    /// Reads a Cast to float32: of a Cast to 16 bits, or of a constant of 16 bits.
    std::optional<link> widened(const onnx::NodeProto& n) {
        if (const auto codes = constant(n.input(0))) {
            if (codes->type() != data_type::float16 && codes->type() != data_type::bfloat16) return std::nullopt;
            const std::vector<tensor> values = run(n, {*codes});
            if (values.size() != 1) return std::nullopt;
            return link{floats_of(n.input(0), marks::narrow, values[0], n.output(0)), of(*format_of_codes(codes->type())), values[0]};
        }
        const onnx::NodeProto* narrow = maker(n.input(0));
        if (narrow == nullptr || operator_of(*narrow) != "Cast" || !narrow->domain().empty()) return std::nullopt;
        const auto type = static_cast<data_type>(number(*narrow, "to", 0));
        if (type != data_type::float16 && type != data_type::bfloat16) return std::nullopt;
        own(n.input(0));
        return link{narrow->input(0), of(*format_of_codes(type)), std::nullopt};
    }

    /// Reads the Cast behind a quantizer of a 16-bit tensor, whose other Cast is before the quantizer; or behind a quantized constant.
    std::optional<link> in_own_type(const onnx::NodeProto& n) {
        const auto type = static_cast<data_type>(number(n, "to", 0));
        if (!ops::is_half(type)) return std::nullopt;
        const link& wide = links_.at(n.input(0));
        if (wide.value) {
            const tensor own = ops::narrowed(*wide.value, type);
            return link{floats_of(n.output(0), marks::own, own, n.output(0)), wide.how, own};
        }
        const onnx::NodeProto* before = maker(wide.source);
        if (before == nullptr || operator_of(*before) != "Cast" || !before->domain().empty() || !marks::has(wide.source, marks::wide))
            return std::nullopt;
        own(wide.source);
        return link{before->input(0), wide.how, std::nullopt};
    }

    /// Reads a node that quantizes its first input, or decodes a constant.
    link of_node(const onnx::NodeProto& n, const quantizer& q) {
        const auto value = called_.find(n.output(0));
        if (value == called_.end()) return link{n.input(0), q, std::nullopt};
        return link{floats_of(n.output(0), marks::rounded, value->second, n.output(0)), q, value->second};
    }

    /// Reads the Reshape behind a call that takes a tensor as rows of all axes but the first.
    std::optional<link> rows_of_filter(const onnx::NodeProto& n) {
        const link& rows = links_.at(n.input(0));
        const onnx::NodeProto* flatten = maker(rows.source);
        if (!rows.how.flatten || rows.value || flatten == nullptr || operator_of(*flatten) != "Flatten" ||
            called_quantizer(source_, *maker(n.input(0))) == nullptr)
            return std::nullopt;
        own(rows.source), own(n.input(0)), own(n.input(1));
        return link{flatten->input(0), rows.how, std::nullopt};
    }

    /// Records constants that were stored rounded and say how.
    void look_at_rounded_constants() {
        for (const auto& t : source_.graph().initializer()) {
            const std::optional<quantizer> q = described(t.doc_string());
            if (!q) continue;
            const tensor value = source_.constant(t.name());
            remember(t.name(), {free_name(marks::without(t.name(), {marks::rounded}), t.name(), value), *q, value});
        }
    }

    /// Puts the node on floats into the place of a node on codes, which keeps its names.
    void put(int i, const node_on_floats& plain) {
        onnx::GraphProto& g = result_.plain.graph();
        onnx::NodeProto& n = *g.mutable_node(i);
        n = plain.node;
        for (const node_on_floats::operand& o : plain.operands)
            if (o.value) n.set_input(o.input, floats_of(o.name, marks::quantized, *o.value, o.name));
        for (const node_on_floats::operand& o : plain.operands) {
            const std::string& name = n.input(o.input);
            edges_[{name, n.name(), o.input}] = o.value ? kept(o.departs != nullptr ? of(fp32) : o.how, *o.value, name) : o.how;
            if (o.departs != nullptr)
                result_.notes.push_back("the weights '" + name + "' of '" + n.name() + "' stay as their rounded values: " + o.departs);
        }
        if (plain.rounds_activations)
            result_.notes.push_back("layer '" + n.name() +
                                    "' rounds its activations to int8 (accuracy_level 4); the plan leaves them in float");
        for (const int part : plain.parts) {
            owned_[static_cast<std::size_t>(part)] = true;
            for (std::string& made : *g.mutable_node(part)->mutable_output())
                if (made == n.output(0)) made += "_quantizer";
        }
    }

    void rewire() {
        onnx::GraphProto& g = result_.plain.graph();
        std::set<std::string> twice;
        for (int i = 0; i < g.node_size(); ++i) {
            if (owned_[static_cast<std::size_t>(i)]) continue;
            onnx::NodeProto& n = *g.mutable_node(i);
            for (int k = 0; k < n.input_size(); ++k) {
                const auto found = links_.find(n.input(k));
                if (found == links_.end()) continue;
                const link& l = found->second;
                if (l.source != n.input(k) && links_.contains(l.source)) twice.insert(l.source);
                edges_[{l.source, n.name(), k}] = l.how;
                n.set_input(k, l.source);
            }
        }
        for (const std::string& t : twice)
            result_.notes.push_back("tensor '" + t + "' is quantized a second time; its first quantizer stays in the model");
        for (int o = 0; o < g.output_size(); ++o) output(g.output(o).name(), o);
        for (const auto& [name, value] : made_) {
            const int producer = source_.producer(name);
            if (producer >= 0 && links_.contains(name)) g.mutable_node(producer)->set_output(0, g.node(producer).output(0) + "_quantizer");
            else if (producer >= 0 || (source_.is_constant(name) && !source_.uses(name).empty())) continue;
            for (int i = g.initializer_size(); i-- > 0;)
                if (g.initializer(i).name() == name) g.mutable_initializer()->DeleteSubrange(i, 1);
            to_proto(value, name, *g.add_initializer());
        }
    }

    /// Gives the float tensor behind a quantized model output the output's name.
    void output(const std::string& name, int index) {
        const auto found = links_.find(name);
        if (found == links_.end()) return;
        const std::string from = found->second.source;
        onnx::GraphProto& g = result_.plain.graph();
        const bool is_output = std::ranges::any_of(g.output(), [&](const auto& o) { return o.name() == from; });
        if (found->second.value || source_.producer(from) < 0 || is_output || links_.contains(from)) {
            result_.notes.push_back("the quantizer of output '" + name +
                                    "' stays in the model: what it quantizes is an input, a constant or an output itself");
            return;
        }
        // Plan, readers and the node that makes the tensor get the new name together; the quantizer's own nodes are cut off.
        for (int i = 0; i < g.node_size(); ++i) {
            onnx::NodeProto& n = *g.mutable_node(i);
            for (auto& s : *n.mutable_output()) s = s == name ? name + "_quantizer" : s == from ? name : s;
            for (auto& s : *n.mutable_input())
                if (s == from) s = name;
        }
        std::map<edge, quantizer> renamed;
        for (auto& [e, q] : edges_) renamed.emplace(e.tensor == from ? edge{name, e.consumer, e.index} : e, std::move(q));
        edges_ = std::move(renamed);
        edges_[{name, "", index}] = found->second.how;
    }

    const model& source_;
    recovered_plan result_;
    std::vector<bool> owned_;  ///< nodes that are part of a quantizer
    std::map<std::string, tensor> constants_;
    std::map<std::string, tensor> called_;  ///< results of calls whose inputs are constants
    std::map<std::string, tensor> made_;    ///< float constants by their new names
    std::map<std::string, link> links_;     ///< by the quantized tensor
    std::map<std::string, link> whole_;     ///< constants on their way from whole blocks to their own shape, by the tensor
    std::map<edge, quantizer> edges_;
    std::set<std::string> int8_;
    int in_halves_ = 0;  ///< pairs whose quantizers compute in 16 bits
};

}  // namespace detail

recovered_plan recover_plan(const model& quantized) {
    if (const auto called = detail::with_calls(quantized)) return detail::plan_recovery(*called).run();
    return detail::plan_recovery(quantized).run();
}

}  // namespace qk::graph
