// SPDX-License-Identifier: Apache-2.0
// raise_opset of export.hpp: where an operator changed between versions, the node is rewritten. docs/reference/opset_changes.md has the
// table of the changes; tests/graph/opset_changes.py makes it from ONNX's schemas. The file is long because each of these operators changed
// in its own way.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/export/raise_functions.hpp"
#include "graph/model/body_mark.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/taken_names.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/half.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/ops/known_values.hpp"

namespace qk::graph {
namespace detail {

// A list of nodes while its opset is raised: the model's graph, a body of If, Loop or Scan, or one of the model's functions. It finds what
// is known of tensors there and around it, and adds nodes and constants under new names.

class raised_body {
  public:
    using node_list = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

    /// `names` and `outside` outlive this; `outside` is the body around this one.
    raised_body(onnx::GraphProto& g, taken_names& names, std::filesystem::path folder, const raised_body* outside = nullptr)
        : graph_(&g), nodes_(g.mutable_node()), names_(names), folder_(std::move(folder)), outside_(outside) {
        for (int i = 0; i < g.initializer_size(); ++i) initializers_[g.initializer(i).name()] = i;
        const auto declare = [&](const auto& infos) {
            for (const auto& v : infos)
                if (v.type().has_tensor_type()) declared_[v.name()] = v.type().tensor_type();
        };
        declare(g.value_info()), declare(g.input()), declare(g.output());
        for (const auto& v : g.input()) own_.insert(v.name());
        know_producers();
    }
    raised_body(onnx::FunctionProto& f, taken_names& names)
        : nodes_(f.mutable_node()), names_(names), function_outputs_(f.output().begin(), f.output().end()) {
        own_.insert(f.input().begin(), f.input().end());
        know_producers();
    }

    node_list& nodes() { return *nodes_; }
    taken_names& names() { return names_; }
    const std::filesystem::path& folder() const { return folder_; }
    /// Gives ranks that were inferred for the model's own graph.
    void know(const known_values& known) { inferred_ = &known; }

    onnx::NodeProto& node(const std::string& op, const std::string& stem, const std::vector<std::string>& in, const std::string& out) {
        onnx::NodeProto& n = *nodes_->Add();
        n.set_op_type(op);
        n.set_name(names_.fresh(stem + "/" + op));
        for (const std::string& i : in) n.add_input(i);
        n.add_output(out);
        return n;
    }
    /// Adds a constant: an initializer, or in a function, which has none, a node.
    std::string constant(const std::string& stem, const tensor& value) {
        const std::string name = names_.fresh(stem);
        if (graph_ != nullptr) {
            to_proto(value, name, *graph_->add_initializer());
        } else {
            onnx::AttributeProto& a = *node("Constant", stem, {}, name).add_attribute();
            a.set_name("value");
            a.set_type(onnx::AttributeProto::TENSOR);
            to_proto(value, name, *a.mutable_t());
        }
        return name;
    }

    /// Returns whether anything here, in a body inside or around this one reads a tensor that a node here makes.
    bool is_read(const std::string& name) const {
        std::unordered_set<std::string_view> read;
        for (const auto& n : *nodes_) {
            read.insert(n.input().begin(), n.input().end());
            for_each_subgraph(n, [&](const onnx::GraphProto& g) { collect_outer(g, read); });
        }
        if (graph_ != nullptr)
            for (const auto& o : graph_->output()) read.insert(o.name());
        else read.insert(function_outputs_.begin(), function_outputs_.end());
        return read.contains(name);
    }

    /// Returns the value of an initializer or a Constant, from around this body, too; nullopt for anything else.
    std::optional<tensor> value_of(const std::string& name) const {
        if (const auto i = initializers_.find(name); i != initializers_.end()) return to_tensor(graph_->initializer(i->second), folder_);
        if (const auto p = producers_.find(name); p != producers_.end()) {
            const onnx::NodeProto& n = nodes_->Get(p->second);
            const auto* a = operator_of(n) == "Constant" ? find_attribute(n, "value") : nullptr;
            return a && a->has_t() ? std::optional(to_tensor(a->t(), folder_)) : std::nullopt;
        }
        return outside_ && !own_.contains(name) ? outside_->value_of(name) : std::nullopt;
    }

    std::optional<std::size_t> rank_of(const std::string& name) const {
        if (const auto i = initializers_.find(name); i != initializers_.end())
            return static_cast<std::size_t>(graph_->initializer(i->second).dims_size());
        if (const auto d = declared_.find(name); d != declared_.end() && d->second.has_shape())
            return static_cast<std::size_t>(d->second.shape().dim_size());
        const dims* known = inferred_ ? inferred_->shape(name) : nullptr;
        if (known) return known->size();
        return outside_ && !own_.contains(name) ? outside_->rank_of(name) : std::nullopt;
    }

    /// Returns undefined where neither a declaration nor the nodes on the way to the tensor say its type.
    data_type type_of(std::string name) const {
        std::vector<data_type (*)(data_type)> turns;
        const auto turned = [&](data_type t) {
            for (; !turns.empty(); turns.pop_back()) t = turns.back()(t);
            return t;
        };
        for (std::size_t step = 0; step <= producers_.size(); ++step) {
            if (const auto i = initializers_.find(name); i != initializers_.end())
                return turned(static_cast<data_type>(graph_->initializer(i->second).data_type()));
            if (const auto d = declared_.find(name); d != declared_.end() && d->second.elem_type() != 0)
                return turned(static_cast<data_type>(d->second.elem_type()));
            const auto p = producers_.find(name);
            if (p == producers_.end()) return outside_ && !own_.contains(name) ? turned(outside_->type_of(name)) : data_type::undefined;
            const onnx::NodeProto& n = nodes_->Get(p->second);
            const auto output = static_cast<int>(std::ranges::find(n.output(), name) - n.output().begin());
            const type_source from = type_source_of(n, output).value_or(type_source{-1});
            if (from.like < 0 || from.like >= n.input_size()) return from.like < 0 ? turned(from.type) : data_type::undefined;
            if (from.turned != nullptr) turns.push_back(from.turned);
            name = std::string(n.input(from.like));
        }
        return data_type::undefined;
    }

  private:
    void know_producers() {
        for (int i = 0; i < nodes_->size(); ++i)
            for (const std::string& o : nodes_->Get(i).output())
                if (!o.empty()) producers_[o] = i, own_.insert(o);
    }

    onnx::GraphProto* graph_ = nullptr;  ///< null: a function
    node_list* nodes_;
    taken_names& names_;
    std::vector<std::string> function_outputs_;
    std::filesystem::path folder_;
    const raised_body* outside_ = nullptr;
    const known_values* inferred_ = nullptr;
    string_set own_;  ///< names of its inputs and of what its nodes make
    string_map<int> initializers_, producers_;
    string_map<onnx::TypeProto::Tensor> declared_;
};

/// Rewrites the nodes of one body, one version after the other. The bodies inside go first: what this one puts around them is new already.
class opset_raiser {
  public:
    opset_raiser(raised_body& body, std::string where, int from, int to) : body_(body), where_(std::move(where)), to_(to) {
        for (int i = 0, count = body_.nodes().size(); i < count; ++i)
            for_each_subgraph(*body_.nodes().Mutable(i), [&](onnx::GraphProto& g) {
                raised_body inner(g, body_.names(), body_.folder(), &body_);
                opset_raiser(inner, where_, from, to);
            });
        for (int v = from + 1; v <= to; ++v)
            for (int i = 0, count = body_.nodes().size(); i < count; ++i) {
                onnx::NodeProto& n = *body_.nodes().Mutable(i);
                if (n.domain().empty()) rewrite(n, v);
            }
    }

  private:
    [[noreturn]] void fail(const onnx::NodeProto& n, int version, const std::string& why) const {
        throw error(where_ + "node '" + n.name() + "' (" + n.op_type() + ") changed its meaning in opset " + std::to_string(version) +
                    ": " + why + "; the export needs opset " + std::to_string(to_) +
                    ". Change the node first, or ask for formats and a style that need no newer opset");
    }
    static std::string stem(const onnx::NodeProto& n) { return n.name().empty() ? n.output(0) : n.name(); }

    static tensor numbers(const std::vector<std::int64_t>& v) {
        return make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v);
    }
    static tensor number(float v) { return make_tensor<float>({}, std::vector<float>{v}); }
    std::string constant(const onnx::NodeProto& n, const std::string& what, const tensor& value) {
        return body_.constant(stem(n) + "/" + what, value);
    }
    /// Returns the name of a constant with the value of an attribute. A node of a function may leave that value to the function's caller.
    std::string constant(const onnx::NodeProto& n, const onnx::AttributeProto& a, const tensor& value, int version) {
        if (a.ref_attr_name().empty()) return constant(n, a.name(), value);
        const bool scalar = value.rank() == 0;
        const char* name = a.type() == onnx::AttributeProto::INTS            ? "value_ints"
                           : a.type() == onnx::AttributeProto::INT && scalar ? "value_int"
                           : a.type() == onnx::AttributeProto::FLOAT         ? "value_float"
                                                                             : nullptr;
        if (name == nullptr || to_ < 12) fail(n, version, "attribute '" + a.name() + "' became an input, and its value is the caller's");
        const std::string made = body_.names().fresh(stem(n) + "/" + a.name());
        onnx::AttributeProto& value_of_caller = *body_.node("Constant", stem(n), {}, made).add_attribute();
        value_of_caller.set_name(name);
        value_of_caller.set_type(a.type());
        value_of_caller.set_ref_attr_name(a.ref_attr_name());
        return made;
    }
    /// Returns the name of a scalar that has the type of tensor `like`.
    std::string scalar_like(const onnx::NodeProto& n, const std::string& what, float value, const std::string& like, int version) {
        switch (body_.type_of(like)) {
            case data_type::float32: return constant(n, what, number(value));
            case data_type::float64: return constant(n, what, make_tensor<double>({}, std::vector<double>{static_cast<double>(value)}));
            case data_type::float16: return constant(n, what, make_tensor<half>({}, std::vector<half>{ops::to_half(value)}));
            case data_type::bfloat16: return constant(n, what, make_tensor<brain>({}, std::vector<brain>{ops::to_brain(value)}));
            case data_type::undefined: break;
            default: fail(n, version, std::string("it has no form for ") + name_of(body_.type_of(like)));
        }
        return typed_like(n, constant(n, what, number(value)), like, version);
    }
    std::string typed_like(const onnx::NodeProto& n, const std::string& value, const std::string& like, int version) {
        if (to_ < 15) fail(n, version, "the element type of tensor '" + like + "', which it needs now, is not known");
        const std::string typed = body_.names().fresh(value + "_typed");
        body_.node("CastLike", stem(n), {value, like}, typed);
        return typed;
    }

    static void set_input(onnx::NodeProto& n, int index, const std::string& name) {
        while (n.input_size() <= index) n.add_input();
        n.set_input(index, name);
    }
    /// Turns attribute `name`, if there is one, into input `index`: the constant value_of(attribute).
    template <class Value>
    void to_input(onnx::NodeProto& n, const std::string& name, int index, int version, const Value& value_of) {
        const auto* a = find_attribute(n, name);
        if (a == nullptr) return;
        set_input(n, index, constant(n, *a, value_of(*a), version));
        remove_attribute(n, name);
    }
    void ints_to_input(onnx::NodeProto& n, const std::string& name, int index, int version) {
        to_input(n, name, index, version, [](const auto& a) { return numbers({a.ints().begin(), a.ints().end()}); });
    }
    /// Turns a float attribute into a scalar input of input 0's type. Without the attribute it is `otherwise`, or nothing if that is 0.
    void float_to_input(onnx::NodeProto& n, const std::string& name, int index, int version, float otherwise) {
        const auto* a = find_attribute(n, name);
        if (a != nullptr && !a->ref_attr_name().empty()) {
            const std::string value = constant(n, *a, number(0), version);
            const bool plain = body_.type_of(n.input(0)) == data_type::float32;
            set_input(n, index, plain ? value : typed_like(n, value, n.input(0), version));
        } else if (const float value = a ? a->f() : otherwise; value != 0 || otherwise != 0) {
            set_input(n, index, scalar_like(n, name, value, n.input(0), version));
        }
        remove_attribute(n, name);
    }
    /// Returns an attribute's value as it stands in the node, which a function's caller must not decide.
    const onnx::AttributeProto* own_attribute(const onnx::NodeProto& n, const std::string& name, int version) const {
        const auto* a = find_attribute(n, name);
        if (a != nullptr && !a->ref_attr_name().empty())
            fail(n, version, "what to write for attribute '" + name + "' depends on its value, which is the caller's of the function");
        return a;
    }
    /// Returns a constant's elements, which old operators had in the type of their data.
    std::optional<std::vector<std::int64_t>> whole_numbers(const std::string& name) const {
        const auto value = body_.value_of(name);
        std::vector<std::int64_t> whole(value ? value->size() : 0);
        if (!value || !ops::read_elements<std::int64_t>(value->type(), value->bytes(), whole)) return std::nullopt;
        return whole;
    }
    /// Returns how many outputs are asked for.
    static int outputs(const onnx::NodeProto& n) {
        int last = n.output_size();
        while (last > 0 && n.output(last - 1).empty()) --last;
        return last;
    }

    void rewrite(onnx::NodeProto& n, int version) {
        const operator_name op = operator_of(n);
        switch (version) {
            case 2: to_2(n); break;
            case 4:
                if (op == "Concat" && !find_attribute(n, "axis")) set_attribute(n, "axis", std::int64_t{1});
                break;
            case 5:
                if (op == "Reshape") ints_to_input(n, "shape", 1, version);
                break;
            case 6: to_6(n); break;
            case 7: to_7(n); break;
            case 9:
                if (op == "BatchNormalization") batch_normalization_to_9(n);
                else if (op == "Scan") scan_to_9(n);
                else if (op == "MeanVarianceNormalization") mean_variance_to_9(n);
                else if (op == "Upsample")
                    to_input(n, "scales", 1, version, [](const auto& a) {
                        return make_tensor<float>({a.floats_size()}, std::vector<float>(a.floats().begin(), a.floats().end()));
                    });
                break;
            case 10: to_10(n); break;
            case 11: to_11(n); break;
            case 12:
                if (op == "Dropout") dropout_to_12(n);
                break;
            case 13: to_13(n); break;
            case 14:
                if (op == "BatchNormalization" && outputs(n) > 1)
                    fail(n, version, "its second to fifth outputs, those of training, are others now");
                break;
            case 16:
                if (op == "RoiAlign" && !find_attribute(n, "coordinate_transformation_mode"))
                    set_attribute(n, "coordinate_transformation_mode", std::string("output_half_pixel"));
                break;
            case 18:
                if (one_of(op, {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
                                "ReduceProd", "ReduceSumSquare"}))
                    ints_to_input(n, "axes", 1, version);
                if (op == "Split" && (n.input_size() < 2 || n.input(1).empty())) {
                    n.mutable_input()->DeleteSubrange(1, n.input_size() - 1);
                    set_attribute(n, "num_outputs", static_cast<std::int64_t>(n.output_size()));
                }
                break;
            case 20: to_20(n); break;
            case 21:
                if (op == "GroupNormalization") group_normalization_to_21(n);
                break;
            default: break;
        }
    }

    void to_2(onnx::NodeProto& n) {
        if (operator_of(n) == "Pad")
            for (auto& a : *n.mutable_attribute())
                if (a.name() == "paddings") a.set_name("pads");
        if (operator_of(n) == "Split" && n.input_size() > 1) {
            const auto parts = whole_numbers(n.input(1));
            if (!parts) fail(n, 2, "the lengths became an attribute, and here they are no constant");
            n.mutable_input()->RemoveLast();
            if (!find_attribute(n, "split")) set_attribute(n, "split", *parts);
        }
        if (one_of(operator_of(n), {"LpPool", "GlobalLpPool"}))
            if (const auto* a = find_attribute(n, "p"); a && a->type() == onnx::AttributeProto::FLOAT) {
                const float p = a->f();
                if (p != std::floor(p) || !(std::abs(p) < 1e6f)) fail(n, 2, "p became a whole number");
                remove_attribute(n, "p");
                set_attribute(n, "p", static_cast<std::int64_t>(p));
            }
    }

    void to_6(onnx::NodeProto& n) {
        remove_attribute(n, "consumed_inputs");
        if (operator_of(n) == "Cast")
            if (const auto* a = find_attribute(n, "to"); a && a->type() == onnx::AttributeProto::STRING) {
                onnx::TensorProto::DataType type{};
                if (!onnx::TensorProto::DataType_Parse(a->s(), &type)) fail(n, 6, "'" + a->s() + "' is the name of no type");
                remove_attribute(n, "to");
                set_attribute(n, "to", static_cast<std::int64_t>(type));
            }
        if (operator_of(n) == "Selu") {  // the constants got more digits
            if (!find_attribute(n, "alpha")) set_attribute(n, "alpha", 1.6732f);
            if (!find_attribute(n, "gamma")) set_attribute(n, "gamma", 1.0507f);
        }
        if (operator_of(n) == "Tile") {
            const auto none = std::optional<std::vector<std::int64_t>>();
            const auto tiles = n.input_size() == 3 ? whole_numbers(n.input(1)) : none;
            const auto axis = n.input_size() == 3 ? whole_numbers(n.input(2)) : none;
            const auto rank = body_.rank_of(n.input(0));
            if (!tiles || !axis || !rank || tiles->size() != 1 || axis->size() != 1)
                fail(n, 6, "it repeats along every axis now, and here the number and the axis are no constants or the rank is not known");
            std::vector<std::int64_t> repeats(*rank, 1);
            const std::int64_t at = axis->front();
            if (at < 0 || at >= static_cast<std::int64_t>(*rank)) fail(n, 6, "its axis does not exist");
            repeats[static_cast<std::size_t>(at)] = tiles->front();
            n.mutable_input()->RemoveLast();
            n.set_input(1, constant(n, "repeats", numbers(repeats)));
        }
    }

    /// NumPy's broadcasting came with opset 7; before, `axis` said where the second operand's dimensions stand.
    void to_7(onnx::NodeProto& n) {
        if (one_of(operator_of(n), {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"})) {
            if (const auto* a = find_attribute(n, "axis")) {
                const auto b = body_.value_of(n.input(1));
                const auto rank = body_.rank_of(n.input(0));
                const std::string why = "its attribute axis is gone, and here the second operand is no constant or the rank is not known";
                if (!b || !rank || a->i() < -64 || a->i() > 64) fail(n, 7, why);
                dims shape = b->shape();
                const auto behind = static_cast<std::int64_t>(*rank) - a->i() - static_cast<std::int64_t>(shape.size());
                if (behind < 0) fail(n, 7, why);
                shape.resize(shape.size() + static_cast<std::size_t>(behind), 1);
                n.set_input(1, constant(n, "operand", b->reshaped(shape)));
            }
            remove_attribute(n, "axis");
            remove_attribute(n, "broadcast");
        }
        if (operator_of(n) == "PRelu") {
            const auto slope = body_.value_of(n.input(1));
            const auto rank = body_.rank_of(n.input(0));
            if (!slope || (slope->size() > 1 && (!rank || *rank < 2)))
                fail(n, 7, "the slope is broadcast as in NumPy now, and here it is no constant or the rank is not known");
            if (slope->size() > 1) {
                dims shape{static_cast<std::int64_t>(slope->size())};
                shape.resize(*rank - 1, 1);
                n.set_input(1, constant(n, "slope", slope->reshaped(shape)));
            }
        }
        if (one_of(operator_of(n), {"BatchNormalization", "Dropout"})) {
            const auto* test = find_attribute(n, "is_test");
            if (test == nullptr || test->i() == 0) fail(n, 7, "it is no longer trained with (is_test is 0 here)");
            remove_attribute(n, "is_test");
        }
        if (operator_of(n) == "Gemm") remove_attribute(n, "broadcast");
        if (one_of(operator_of(n), {"RNN", "GRU", "LSTM"})) remove_attribute(n, "output_sequence");
        if (operator_of(n) == "Upsample" && !find_attribute(n, "scales")) {
            onnx::AttributeProto scales;
            scales.set_name("scales");
            scales.set_type(onnx::AttributeProto::FLOATS);
            for (const float s : {1.0f, 1.0f, float_attribute(n, "height_scale", 1), float_attribute(n, "width_scale", 1)})
                scales.add_floats(s);
            const bool linear = text_attribute(n, "mode", "nearest") == "bilinear";
            for (const char* name : {"height_scale", "width_scale", "mode"}) remove_attribute(n, name);
            *n.add_attribute() = scales;
            set_attribute(n, "mode", std::string(linear ? "linear" : "nearest"));
        }
    }

    /// Until opset 8 the statistics could be those of each element of a sample.
    void batch_normalization_to_9(onnx::NodeProto& n) {
        const auto* spatial = own_attribute(n, "spatial", 9);
        const bool each = spatial != nullptr && spatial->i() == 0;
        remove_attribute(n, "spatial");
        if (!each) return;
        if (outputs(n) > 1) fail(n, 9, "statistics of each element (spatial is 0) are gone, and here they are trained");
        const std::string s = stem(n);
        const auto step = [&](const std::string& op, const std::vector<std::string>& in, const std::string& what) {
            const std::string out = body_.names().fresh(s + "/" + what);
            body_.node(op, s, in, out);
            return out;
        };
        const std::string epsilon = scalar_like(n, "epsilon", float_attribute(n, "epsilon", 1e-5f), n.input(4), 9);
        const std::string deviation = step("Sqrt", {step("Add", {n.input(4), epsilon}, "variance")}, "deviation");
        const std::string centred = step("Sub", {n.input(0), n.input(3)}, "centred");
        const std::string scaled = step("Mul", {step("Div", {centred, deviation}, "normalized"), n.input(1)}, "scaled");
        const std::string bias = n.input(2);
        n.set_op_type("Add");
        n.clear_attribute();
        n.clear_input();
        n.add_input(scaled);
        n.add_input(bias);
    }

    /// Scan of opset 8 ran once for each sample of a batch: that is a Scan over the samples around one over the sequence.
    void scan_to_9(onnx::NodeProto& n) {
        if (n.input_size() > 0 && !n.input(0).empty()) fail(n, 9, "the lengths of sequences, its first input, are gone");
        const int scanned = static_cast<int>(int_attribute(n, "num_scan_inputs", 0)), inputs = n.input_size() - 1;
        onnx::GraphProto sample;
        sample.set_name(body_.names().fresh(stem(n) + "/sample"));
        onnx::NodeProto& inner = *sample.add_node();
        inner = n;
        inner.set_name(body_.names().fresh(stem(n) + "/Scan"));
        inner.clear_input();
        inner.clear_output();
        const auto name = [&](const char* what, int i) { return body_.names().fresh(stem(n) + "/" + what + std::to_string(i)); };
        for (int i = 0; i < inputs; ++i) inner.add_input(name("in", i));
        for (int i = 0; i < n.output_size(); ++i) inner.add_output(name("out", i));
        for (const std::string& in : inner.input()) sample.add_input()->set_name(in);
        for (const std::string& out : inner.output()) sample.add_output()->set_name(out);
        for (auto& a : *inner.mutable_attribute())
            if (a.name() == "directions") a.set_name("scan_input_directions");
        if (scanned < 1 || scanned > inputs) fail(n, 9, "its inputs do not fit num_scan_inputs");
        n.mutable_input()->DeleteSubrange(0, 1);
        n.clear_attribute();
        set_attribute(n, "num_scan_inputs", static_cast<std::int64_t>(inputs));
        sample.Swap(add_attribute(n, "body", onnx::AttributeProto::GRAPH).mutable_g());
    }

    /// The experiment of this name, which opset 9 made an operator, has its axes of four by attributes.
    void mean_variance_to_9(onnx::NodeProto& n) {
        const auto *across = own_attribute(n, "across_channels", 9), *variance = own_attribute(n, "normalize_variance", 9);
        if (variance != nullptr && variance->i() == 0) fail(n, 9, "normalize_variance is gone");
        const bool all = across != nullptr && across->i() != 0;
        remove_attribute(n, "across_channels");
        remove_attribute(n, "normalize_variance");
        if (all) set_attribute(n, "axes", std::vector<std::int64_t>{0, 1, 2, 3});
    }

    void to_10(onnx::NodeProto& n) {
        if (one_of(operator_of(n), {"Affine", "Crop", "DynamicSlice", "GivenTensorFill", "GRUUnit", "ImageScaler", "ParametricSoftplus",
                                    "Scale", "ScaledTanh"}))
            fail(n, 10, "it was an experiment, and is gone");
        if (operator_of(n) == "Slice") ints_to_input(n, "starts", 1, 10), ints_to_input(n, "ends", 2, 10), ints_to_input(n, "axes", 3, 10);
        if (operator_of(n) == "TopK") to_input(n, "k", 1, 10, [](const auto& a) { return numbers({a.i()}); });
        if (operator_of(n) == "Upsample" && to_ == 10) n.set_op_type("Resize");             // to_11 knows that it only enlarges
        if (operator_of(n) == "Dropout" && outputs(n) > 1 && body_.is_read(n.output(1))) {  // the mask is boolean now
            const data_type type = body_.type_of(n.input(0));
            const std::string mask = n.output(1), truth = body_.names().fresh(mask + "_bool");
            n.set_output(1, truth);
            if (type != data_type::undefined) {
                set_attribute(body_.node("Cast", stem(n), {truth}, mask), "to", static_cast<std::int64_t>(type));
            } else {
                if (to_ < 15) fail(n, 10, "its mask became boolean, and here the type that it had is not known");
                body_.node("CastLike", stem(n), {truth, n.input(0)}, mask);
            }
        }
    }

    void to_11(onnx::NodeProto& n) {
        constexpr float most = std::numeric_limits<float>::max();
        if (operator_of(n) == "Clip") float_to_input(n, "min", 1, 11, -most), float_to_input(n, "max", 2, 11, most);
        if (operator_of(n) == "Pad") ints_to_input(n, "pads", 1, 11), float_to_input(n, "value", 2, 11, 0);
        if (operator_of(n) == "Scatter") n.set_op_type("ScatterElements");
        if (one_of(operator_of(n), {"Resize", "Upsample"})) resize_to_11(n);
    }

    /// Before 11, Resize took the coordinate divided by the scale, and of that the ceiling where an axis shrinks, otherwise the floor. One
    /// node has one way of rounding now, so that an image that grows along one axis and shrinks along another takes two.
    void resize_to_11(onnx::NodeProto& n) {
        const auto* mode = own_attribute(n, "mode", 11);
        const bool nearest = mode == nullptr || mode->s() == "nearest", enlarges = operator_of(n) == "Upsample";
        if (n.input_size() < 2) fail(n, 11, "it has no scales");
        const std::string scales = n.input(1), roi = to_ < 13 ? constant(n, "roi", tensor(data_type::float32, {0})) : "";
        n.set_op_type("Resize");
        n.set_input(1, roi);
        set_input(n, 2, scales);
        set_attribute(n, "coordinate_transformation_mode", std::string("asymmetric"));
        if (!nearest) return;
        const auto value = body_.value_of(scales);
        const bool known = value && value->type() == data_type::float32;
        const auto any = [&](const auto& is) { return std::any_of(value->as<float>().begin(), value->as<float>().end(), is); };
        const bool shrinks = !enlarges && (!known || any([](float s) { return s < 1; })),
                   grows = !known || any([](float s) { return s > 1; });
        set_attribute(n, "nearest_mode", std::string(shrinks && !grows ? "ceil" : "floor"));
        if (!shrinks || !grows) return;
        const std::string y = n.output(0), larger = body_.names().fresh(stem(n) + "/larger");
        const auto part = [&](const std::string& op) {
            if (known) {
                std::vector<float> s(value->as<float>().begin(), value->as<float>().end());
                for (float& v : s) v = op == "Max" ? std::max(v, 1.0f) : std::min(v, 1.0f);
                return constant(n, "scales", make_tensor<float>(value->shape(), s));
            }
            const std::string made = body_.names().fresh(stem(n) + "/scales");
            body_.node(op, stem(n), {scales, constant(n, "one", number(1))}, made);
            return made;
        };
        onnx::NodeProto& second = body_.node("Resize", stem(n), {larger, roi, part("Min")}, y);
        for (const auto& a : n.attribute())
            if (a.name() != "nearest_mode") *second.add_attribute() = a;
        set_attribute(second, "nearest_mode", std::string("ceil"));
        n.set_output(0, larger);
        n.set_input(2, part("Max"));
    }

    /// Until 12 the standard left open what mask there is outside of training: onnxruntime's is false, qk's true, as it is from 12 on.
    void dropout_to_12(onnx::NodeProto& n) {
        if (outputs(n) > 1) {
            if (body_.is_read(n.output(1))) fail(n, 12, "its mask, which is read here, was left open and is true now");
            n.mutable_output()->DeleteSubrange(1, n.output_size() - 1);
        }
        to_input(n, "ratio", 1, 12, [](const auto& a) { return number(a.f()); });
    }

    void to_13(onnx::NodeProto& n) {
        if (one_of(operator_of(n), {"Squeeze", "Unsqueeze", "ReduceSum"})) ints_to_input(n, "axes", 1, 13);
        if (operator_of(n) == "Split") ints_to_input(n, "split", 1, 13);
        if (one_of(operator_of(n), {"Softmax", "LogSoftmax", "Hardmax"})) softmax_to_13(n);
        if (operator_of(n) == "Erf") {
            const data_type type = body_.type_of(n.input(0));
            if (type != data_type::undefined && !one_of(name_of(type), {"float32", "float64", "float16", "bfloat16"}))
                fail(n, 13, std::string("it has no form for ") + name_of(type));
        }
        // (x + 1/2) / scale is what half_pixel takes and 1/2: the floor of the one is the nearest of the other.
        if (operator_of(n) == "Resize" && text_attribute(n, "coordinate_transformation_mode", "") == "tf_half_pixel_for_nn") {
            const std::string rounding = text_attribute(n, "nearest_mode", "round_prefer_floor");
            if (text_attribute(n, "mode", "nearest") != "nearest" || !one_of(rounding, {"floor", "round_prefer_floor"}))
                fail(n, 13, "coordinate_transformation_mode tf_half_pixel_for_nn is gone");
            remove_attribute(n, "coordinate_transformation_mode");
            remove_attribute(n, "nearest_mode");
            set_attribute(n, "coordinate_transformation_mode", std::string("half_pixel"));
            set_attribute(n, "nearest_mode", std::string(rounding == "floor" ? "round_prefer_ceil" : "ceil"));
        }
    }

    /// Before 13 these operators took the tensor as a matrix [before axis, from axis on] and normalised its rows.
    void softmax_to_13(onnx::NodeProto& n) {
        onnx::AttributeProto axis;
        axis.set_name("axis");
        axis.set_type(onnx::AttributeProto::INT);
        axis.set_i(1);
        if (const auto* a = find_attribute(n, "axis")) axis = *a;
        remove_attribute(n, "axis");
        set_attribute(n, "axis", std::int64_t{-1});
        const auto rank = body_.rank_of(n.input(0));
        if (axis.ref_attr_name().empty() && (axis.i() == -1 || (rank && axis.i() == static_cast<std::int64_t>(*rank) - 1))) return;
        const std::string x = n.input(0), y = n.output(0), s = stem(n);
        const std::string rows = body_.names().fresh(s + "/rows"), normalised = body_.names().fresh(s + "/normalised");
        const std::string shape = body_.names().fresh(s + "/shape");
        n.set_input(0, rows);
        n.set_output(0, normalised);
        *body_.node("Flatten", s, {x}, rows).add_attribute() = axis;
        body_.node("Shape", s, {x}, shape);
        body_.node("Reshape", s, {normalised, shape}, y);
    }

    void to_20(onnx::NodeProto& n) {
        if (operator_of(n) == "GridSample" && own_attribute(n, "mode", 20))
            for (auto& a : *n.mutable_attribute())
                if (a.name() == "mode") a.set_s(a.s() == "bilinear" ? "linear" : a.s() == "bicubic" ? "cubic" : a.s());
        if (operator_of(n) == "DFT") {
            const auto scalar = [](std::int64_t v) { return make_tensor<std::int64_t>({}, std::vector<std::int64_t>{v}); };
            if (find_attribute(n, "axis")) to_input(n, "axis", 2, 20, [&](const auto& a) { return scalar(a.i()); });
            else set_input(n, 2, constant(n, "axis", scalar(1)));  // without the input it is -2 now
        }
    }

    /// Before 21 there was a scale and a bias for each group; now there is one for each channel.
    void group_normalization_to_21(onnx::NodeProto& n) {
        const auto* groups = find_attribute(n, "num_groups");
        if (n.input_size() != 3 || groups == nullptr) fail(n, 21, "it has not the three inputs and the groups that it needs");
        const std::string s = stem(n);
        const auto step = [&](const std::string& op, const std::vector<std::string>& in, const std::string& what) {
            const std::string out = body_.names().fresh(s + "/" + what);
            return std::pair(out, &body_.node(op, s, in, out));
        };
        const std::string count = constant(n, *groups, make_tensor<std::int64_t>({}, std::vector<std::int64_t>{groups->i()}), 21);
        const auto [channels, shape] = step("Shape", {n.input(0)}, "channels");
        set_attribute(*shape, "start", std::int64_t{1});
        set_attribute(*shape, "end", std::int64_t{2});
        const std::string share = step("Div", {channels, count}, "channels_of_group").first;
        const auto [target, concat] = step("Concat", {constant(n, "one", numbers({1})), share}, "repeats");
        set_attribute(*concat, "axis", std::int64_t{0});
        const std::string column = constant(n, "column", numbers({-1, 1})), flat = constant(n, "flat", numbers({-1}));
        for (const int i : {1, 2}) {
            const std::string each = step("Reshape", {n.input(i), column}, "column").first;
            n.set_input(i, step("Reshape", {step("Expand", {each, target}, "repeated").first, flat}, "each").first);
        }
    }

    raised_body& body_;
    std::string where_;
    int to_;
};

}  // namespace detail

namespace detail {

/// Raises the imports of the standard operators; returns whether there are any.
template <class Imports>
bool raise_import(Imports& imports, int at_least) {
    bool found = false;
    for (auto& o : imports)
        if (o.domain().empty() || o.domain() == "ai.onnx") {
            found = true;
            if (o.version() < at_least) o.set_version(at_least);
        }
    return found;
}

inline void raise_function(onnx::FunctionProto& f, const std::string& label, int version) {
    int own = 0;
    for (const auto& o : f.opset_import())
        if (o.domain().empty() || o.domain() == "ai.onnx") own = static_cast<int>(o.version());
    if (own == 0 || own >= version) return;
    taken_names names;
    for (const std::string& i : f.input()) names.take(i);
    names.take_nodes(f.node());
    const bool signs = is_as_signed(f);
    raised_body body(f, names);
    opset_raiser(body, label + ": function '" + f.name() + "': ", own, version);
    raise_import(*f.mutable_opset_import(), version);
    if (signs) sign(f);
}

}  // namespace detail

void raise_functions(model& m) {
    for (auto& f : *m.proto().mutable_functions()) {
        onnx::FunctionProto raised = f;
        try {
            detail::raise_function(raised, m.label(), m.opset(""));
            f = std::move(raised);
        } catch (const error&) {  // what cannot be rewritten stays a call
        }
    }
    m.reindex();
}

void raise_opset(model& m, int version) {
    const int from = m.opset("");
    if (from >= version) return;
    model raised = m;  // so that an error leaves the model as it was
    onnx::ModelProto& p = raised.proto();
    {
        detail::taken_names names;
        names.take_graph(p.graph());
        detail::raised_body body(*p.mutable_graph(), names, m.folder());
        const auto known = known_values_of(m);
        body.know(*known);
        detail::opset_raiser(body, m.label() + ": ", from, version);
        if (!detail::raise_import(*p.mutable_opset_import(), version)) p.add_opset_import()->set_version(version);
    }
    // A function has imports of its own. A runtime puts its nodes in the place of the call, where the model's opset holds.
    for (auto& f : *p.mutable_functions()) detail::raise_function(f, m.label(), version);
    detail::allow_free_initializers(p);
    raised.reindex();
    m = std::move(raised);
}

}  // namespace qk::graph
