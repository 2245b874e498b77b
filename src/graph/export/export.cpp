// SPDX-License-Identifier: Apache-2.0
// Definitions of export.hpp: edges with equal quantizers share one set of operators; readers are rewired to what those make.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/export/fusing.hpp"
#include "graph/export/inline_functions.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/openvino.hpp"
#include "graph/export/raise_functions.hpp"
#include "graph/export/style.hpp"
#include "graph/model/body_mark.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/open_bodies.hpp"
#include "graph/quantize/pair_safe.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace detail {

// What is known of a model's tensor shapes without running it: what it declares, what follows from that, and what the weights of a tensor's
// readers imply.

/// What is known about one axis of a tensor; -1: not known.
struct axis_facts {
    std::size_t rank = 0;      ///< 0: not known
    std::int64_t length = -1;  ///< of the requested axis
    std::int64_t inner = -1;   ///< product of the lengths behind it
};

class known_shapes {
  public:
    explicit known_shapes(const model& m) : model_(m), inferred_(known_values_of(m)) {}

    axis_facts find(const std::string& tensor, int axis, const std::vector<model::use>& readers) const {
        axis_facts facts;
        if (const dims* d = inferred_->shape(tensor)) {
            facts.rank = d->size();
            if (const auto place = place_of(axis, d->size())) {
                facts.length = std::max<std::int64_t>((*d)[*place], -1), facts.inner = 1;
                for (std::size_t i = *place + 1; i < d->size(); ++i)
                    facts.inner = (*d)[i] < 0 || facts.inner < 0 ? -1 : facts.inner * (*d)[i];
            }
        }
        for (const model::use u : readers) {
            if (u.node < 0 || u.input != 0 || facts.length > 0) continue;
            const axis_facts implied = from_reader(model_.graph().node(u.node), axis);
            if (facts.rank == 0) facts.rank = implied.rank;
            if (facts.rank == implied.rank || implied.rank == 0) facts.length = implied.length;
        }
        return facts;
    }

  private:
    static std::optional<std::size_t> place_of(int axis, std::size_t rank) {
        const int i = rank == 1 ? 0 : axis < 0 ? axis + static_cast<int>(rank) : axis;
        return i >= 0 && i < static_cast<int>(rank) ? std::optional(static_cast<std::size_t>(i)) : std::nullopt;
    }
    /// Returns what a layer with constant weights implies about its first operand.
    axis_facts from_reader(const onnx::NodeProto& n, int axis) const {
        const auto p = product_axes_of(n);
        if (!p || n.input_size() < 2 || !model_.is_constant(n.input(1))) return {};
        const dims weights = model_.constant_shape(n.input(1));
        if (weights.size() < (p->windows ? 3 : 2) || (p->sums >= 0 && !p->windows && weights.size() != 2)) return {};
        const std::size_t rank = p->sums < 0 ? 0 : weights.size();  // axes that count from the last fit any rank
        const std::int64_t sums = weights[resolve_axis(p->in, weights.size())] * (p->transposed ? 1 : p->groups);
        return {rank, (axis < 0 ? axis + static_cast<int>(rank) : axis) == p->sums ? sums : -1};
    }

    const model& model_;
    std::shared_ptr<const known_values> inferred_;
};

class exporter {
  public:
    exporter(const model& m, const precision_plan& plan, const export_options& options)
        : source_(m),
          layers_(m),
          plan_(plan),
          options_(options),
          style_(options.style.row()),
          result_{m, {}, m.opset(""), m.opset("")},
          g_(result_.exported),
          shapes_(m) {
        if (options.weights == weight_storage::product && (options.inlined || !has_functions()))
            throw error("--weights product writes functions, which " +
                        (options.inlined ? std::string("a file with --inline") : "style " + std::string(style_.name)) +
                        " has none of: take style portable or nbits");
        if (!options.guards) g_.leave_guards_out();
        writer_ = style_.writer(g_, options, result_.notes);
        fusing_.emplace(m, plan, *writer_);
        openvino_.emplace(m, *fusing_, *writer_, options.int8_weights);
    }

    export_result run() {
        check_plan();
        drop_initializer_inputs();
        writer_->begin(source_, plan_);
        for (const std::string& name : tensors()) quantize(name);
        guard_own_pairs();
        guard_scales();
        writer_->finish();  // once the other inputs of nodes have what the plan makes of them
        note_int8_weights();
        note_biases_apart();
        note_openvino();
        result_.exported.reindex();
        if (writer_->wants_constants_first()) constants_first();
        drop_unused_initializers(result_.exported);
        raise();
        if (options_.inlined) {
            if (result_.exported.proto().functions_size() > 0) raise_functions(result_.exported);
            open_calls(result_.exported);
            inline_functions(result_.exported);
        }
        sign_functions();
        return std::move(result_);
    }

  private:
    using use = model::use;

    /// Signs the functions that this export wrote; those that the model had keep what they say of themselves.
    void sign_functions() {
        for (auto& f : *result_.exported.proto().mutable_functions())
            if (f.domain() == marks::function_domain && f.doc_string().ends_with(portable::body_mark)) sign(f);
    }

    edge edge_of(const std::string& tensor, use u) const {
        return {tensor, u.node < 0 ? "" : source_.graph().node(u.node).name(), u.input};
    }

    /// Throws error where an entry of the plan means nothing in this model.
    void check_plan() const {
        for (const auto& [name, how] : plan_.tensors)
            if (source_.uses(name).empty())
                throw error("the plan names tensor '" + name + "', which nothing in " + source_.label() + " reads");
        for (const auto& [e, how] : plan_.edges) {
            bool found = false;
            for (const use u : source_.uses(e.tensor)) found = found || edge_of(e.tensor, u) == e;
            if (!found)
                throw error("the plan names input " + std::to_string(e.index) + " of '" + e.consumer + "' for tensor '" + e.tensor +
                            "', which " + source_.label() + " does not have");
        }
    }

    /// Drops graph inputs that only name initializers (IR version 3 and before): they keep runtimes from folding and fusing.
    void drop_initializer_inputs() {
        auto& inputs = *g_.graph().mutable_input();
        int dropped = 0;
        for (int i = inputs.size(); i-- > 0;)
            if (source_.is_constant(inputs.Get(i).name())) inputs.DeleteSubrange(i, 1), ++dropped;
        if (dropped > 0)
            result_.notes.push_back(std::to_string(dropped) + " graph inputs that only named initializers are no inputs any more");
    }

    /// Returns the tensors in the model's order: inputs, initializers, results of nodes.
    std::vector<std::string> tensors() const {
        std::vector<std::string> all;
        const auto add = [&](const std::string& name) {
            if (!name.empty()) all.push_back(name);
        };
        for (const value_info& v : source_.inputs()) add(v.name);
        for (const auto& t : source_.graph().initializer()) add(t.name());
        for (const auto& n : source_.graph().node())
            for (const std::string& o : n.output()) add(o);
        return all;
    }

    void quantize(const std::string& name) {
        std::vector<std::pair<const quantizer*, std::vector<use>>> groups;
        for (const use u : source_.uses(name)) {
            const quantizer* q = u.input < 0 ? nullptr : plan_.find(edge_of(name, u));
            if (q == nullptr) continue;
            auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return *g.first == *q; });
            if (at == groups.end()) at = groups.insert(groups.end(), {q, {}});
            at->second.push_back(u);
        }
        if (groups.empty()) return;
        // The group that is a graph output goes last: it takes the tensor's name.
        std::stable_partition(groups.begin(), groups.end(), [](const auto& g) { return g.second.back().node >= 0; });
        const bool constant = source_.is_constant(name);
        const tensor value = constant ? ops::widened(source_.constant(name)) : tensor();
        if (constant && value.type() != data_type::float32)
            throw error("tensor '" + name + "' is " + name_of(value.type()) + "; only floats of 16 and 32 bits are quantized");
        const data_type own = layers_.float_type(name);  // quantizers compute in float32, between two Casts where the model does not
        const std::string wide = ops::is_half(own) && !constant ? g_.cast(name, name + marks::wide, data_type::float32) : name;
        for (auto& [q, uses] : groups) {
            const axis_facts facts = constant ? axis_facts{.rank = value.rank()} : shapes_.find(name, q->axis, uses);
            const bool apart = !constant && needs_guard_before(name) && writer_->dequantizes_activation(*q);
            quantized_value v{.name = apart ? g_.kept_apart_twice(wide) : wide,
                              .how = *q,
                              .rank = facts.rank,
                              .length = facts.length,
                              .inner = facts.inner};
            if (!constant && q->block_size == 0 && q->scale.size() > 1 && facts.length > 0 &&
                static_cast<std::size_t>(facts.length) != q->scale.size())
                throw error(source_.label() + ": tensor '" + name + "' has " + std::to_string(facts.length) + " channels along axis " +
                            std::to_string(q->axis) + ", its quantizer " + std::to_string(q->scale.size()) + " scales");
            for (const use u : uses) v.guard = v.guard || (constant ? misreads_bias(u) : fusing_->needs_guard(*q, u));
            for (const use u : uses) {
                const bool nbits = fusing_->becomes_nbits(*q, u, has_functions());
                v.nbits = v.nbits || nbits;
                v.fine_codes = v.fine_codes || (nbits && style_.for_onnxruntime && std::get<integer>(q->format).bits > 4);
            }
            if (constant) std::erase_if(uses, [&](const use u) { return writer_->takes(v, value, own, u); });
            if (uses.empty()) continue;
            const bool called = v.nbits && has_functions();  // a function decodes them
            if (constant && !called && style_.for_onnxruntime && fusing_->may_saturate(*q, uses)) {
                const bool safe = options_.int8_weights == int8_codes::where_safe && fits_pairs(*q, uses, value);
                v.as_unsigned = !safe && options_.int8_weights != int8_codes::as_signed;
                if (v.as_unsigned) openvino_->stored_unsigned(name);
                ++(safe ? safe_weights_ : int8_weights_);
            }
            std::string result;
            try {
                if (constant) v.shape = value.shape();
                result = constant ? writer_->weight(v, value) : writer_->activation(v);
            } catch (const error& e) {
                const std::string text = e.what();
                throw error(source_.label() + ": " + (text.starts_with("tensor '") ? text : "tensor '" + name + "': " + text));
            }
            if (constant &&
                std::ranges::any_of(uses, [&, of = q](const use u) { return for_openvino() && openvino_->misreads_weights(*of, u); }))
                result = g_.kept_apart_twice(result);
            if (ops::is_half(own)) result = g_.cast(result, name + marks::own, own);
            for (const use u : uses) {
                if (u.node >= 0) g_.graph().mutable_node(u.node)->set_input(u.input, result);
                else replace_output(name, result, constant);
            }
        }
    }

    bool for_openvino() const { return options_.inlined || options_.pairs_of_bytes_alone; }
    /// Returns whether a file for OpenVINO needs a guard before the pair of this activation.
    bool needs_guard_before(const std::string& name) const {
        return for_openvino() && (stands_behind_doubles(name) || openvino_->fuses_pair(name));
    }
    /// Returns whether a Cast from an input of float64 makes the activation. OpenVINO's CPU makes one operator of the Cast and the pair
    /// behind it, and has none that reads float64.
    bool stands_behind_doubles(const std::string& name) const {
        const int maker = source_.producer(name);
        if (maker < 0 || !facts_of(source_.graph().node(maker)).has(ops::repeats)) return false;
        return std::ranges::any_of(source_.graph().input(), [&](const onnx::ValueInfoProto& i) {
            return i.name() == source_.graph().node(maker).input(0) && i.type().tensor_type().elem_type() == onnx::TensorProto::DOUBLE;
        });
    }

    /// Returns whether this bias needs a guard, and remembers the layer for a note.
    bool misreads_bias(use u) {
        if (!style_.for_onnxruntime || !fusing_->misreads_bias(u)) return false;
        biases_apart_.push_back(source_.graph().node(u.node).name());
        return true;
    }
    void note_biases_apart() {
        if (biases_apart_.empty()) return;
        result_.notes.push_back("the int32 bias of " + std::to_string(biases_apart_.size()) + " layers ('" + biases_apart_[0] + "'" +
                                (biases_apart_.size() > 1 ? ", ..." : "") +
                                ") has another scale than s_x * s_w, at which integer operators add: onnxruntime computes these layers in "
                                "float32; with that scale they run in integers");
    }

    bool has_functions() const { return style_.has(target_profile::file_form::functions); }

    /// Returns whether these weights meet what their readers' kernels need.
    bool fits_pairs(const quantizer& q, const std::vector<use>& readers, const tensor& value) const {
        return std::ranges::all_of(
            readers, [&](const use u) { return u.node >= 0 && is_pair_safe(source_.graph().node(u.node), u.input, q, value); });
    }

    void note_int8_weights() {
        if (int8_weights_ == 0) return;
        if (options_.int8_weights == int8_codes::as_unsigned) {
            result_.notes.push_back(std::to_string(int8_weights_) +
                                    " int8 weights written as uint8 with zero point + 128, as the target asks: the same values");
            return;
        }
        const bool moved = options_.int8_weights != int8_codes::as_signed;
        result_.notes.push_back(
            std::to_string(int8_weights_) +
            (moved ? " int8 weights written as uint8 with zero point + 128: the same values; they are not pair-safe (from "
                     "a saved plan or a search, or not one product with its own weights), and onnxruntime's "
                     "kernels of uint8 by int8 saturate on x86-64 without VNNI, "
                     "those of uint8 by uint8 are right everywhere (where VNNI is sure to be, int8 takes "
                     "down to half the time: \"int8_weights\": \"signed\" in a "
                     "--target profile)"
                   : " int8 weights written as int8, as asked: their products with uint8 activations "
                     "saturate in onnxruntime on x86-64 without VNNI; so do those "
                     "with int8 activations in Q/DQ pairs, which its optimizer makes uint8; integer "
                     "operators of style qoperator with int8 activations are right "
                     "everywhere"));
    }

    /// Adds a guard where a DequantizeLinear of the model itself feeds a layer whose weights the plan changes.
    void guard_own_pairs() {
        for (int i = 0; i < source_.graph().node_size(); ++i) {
            const onnx::NodeProto& n = source_.graph().node(i);
            if (!fusing_->changes_weights(n) || fusing_->planned(n, 0) != nullptr || !fusing_->needs_guard(i)) continue;
            const int producer = source_.producer(n.input(0));
            if (producer < 0) continue;
            const op_facts& made_by = facts_of(source_.graph().node(producer));
            if (made_by.has(ops::on_codes) && made_by.has(ops::repeats))  // a DequantizeLinear
                g_.graph().mutable_node(i)->set_input(0, g_.kept_apart(n.input(0)));
        }
    }

    /// Keeps OpenVINO from moving scales where it loses them.
    void guard_scales() {
        for (int i = 0; for_openvino() && i < source_.graph().node_size(); ++i)
            if (openvino_->misplaces_scales(i)) {
                onnx::NodeProto& n = *g_.graph().mutable_node(i);
                n.set_input(0, g_.kept_apart_twice(n.input(0)));
            }
    }
    /// Adds a note on files that OpenVINO would read, and are not written for it.
    void note_openvino() {
        if (!style_.is_read_by({target_profile::file_form::functions}) || !options_.guards || g_.target().proto().functions_size() > 0)
            return;
        if (std::string text = for_openvino() ? openvino_->note_on_rounding() : openvino_->note(); !text.empty())
            result_.notes.push_back(std::move(text));
    }

    void constants_first() {
        auto& nodes = *g_.graph().mutable_node();
        string_set constant;
        google::protobuf::RepeatedPtrField<onnx::NodeProto> first, rest;
        for (auto& n : nodes) {
            bool known = n.input_size() > 0;
            for (const std::string& in : n.input())
                known = known && (in.empty() || result_.exported.is_constant(in) || constant.contains(in));
            for_each_subgraph(n, [&](onnx::GraphProto&) { known = false; });
            if (known) constant.insert(n.output().begin(), n.output().end());
            (known ? first : rest).Add()->Swap(&n);
        }
        for (auto& n : rest) first.Add()->Swap(&n);
        nodes.Swap(&first);
    }

    /// Lets a graph output keep its name: the float tensor that had it gets another.
    void replace_output(const std::string& name, const std::string& result, bool constant) {
        if (constant || source_.producer(name) < 0) {
            result_.notes.push_back("output '" + name + "' is an input or initializer of the model: left in float32");
            return;
        }
        const std::string original = g_.fresh(name + marks::as_float);
        for (auto& n : *g_.graph().mutable_node()) {
            for (auto& o : *n.mutable_output()) {
                if (o == name) o = original;
                else if (o == result) o = name;
            }
            for (auto& i : *n.mutable_input()) {
                if (i == name) i = original;
                else if (i == result) i = name;
            }
            for_each_subgraph(n, [&](onnx::GraphProto& inner) { rename_outer(inner, name, original); });
        }
    }
    static void rename_outer(onnx::GraphProto& g, const std::string& from, const std::string& to) {
        for (auto& n : *g.mutable_node()) {
            for (auto& i : *n.mutable_input())
                if (i == from) i = to;
            for_each_subgraph(n, [&](onnx::GraphProto& inner) { rename_outer(inner, from, to); });
        }
    }

    void raise() {
        const int needed = g_.required_opset();
        if (result_.exported.opset("") < needed) {
            const std::string why = g_.opset_reason();
            // tests/graph/runtimes_evidence.py tells which types these are.
            const bool lacks_kernel = why.find("float8e8m0") != std::string::npos || why.find("float4e2m1") != std::string::npos;
            result_.notes.push_back("opset raised from " + std::to_string(result_.opset_before) + " to " + std::to_string(needed) + ": " +
                                    why +
                                    (lacks_kernel ? ", for which onnxruntime's CPU has no kernel yet; style portable runs there" : ""));
            raise_opset(result_.exported, needed);
        }
        result_.opset_after = result_.exported.opset("");
        // The oldest IR version that has what was used: https://github.com/onnx/onnx/blob/main/docs/Versioning.md
        const int o = result_.opset_after;
        onnx::ModelProto& p = result_.exported.proto();  // raise_opset puts another one in place of the former
        const int ir = o >= 25 ? 13 : o >= 24 ? 12 : o >= 23 ? 11 : o >= 21 ? 10 : o >= 19 ? 9 : p.functions_size() > 0 ? 8 : 4;
        if (p.ir_version() < ir) p.set_ir_version(ir);
        result_.exported.reindex();
    }

    const model& source_;
    layer_view layers_;
    const precision_plan& plan_;
    const export_options& options_;
    const style_row& style_;
    export_result result_;
    graph_writer g_;
    known_shapes shapes_;
    std::unique_ptr<quantizer_writer> writer_;
    std::optional<fusing_rules> fusing_;
    std::optional<openvino_rules> openvino_;
    std::vector<std::string> biases_apart_;  ///< layers whose int32 bias has a guard
    std::size_t int8_weights_ = 0;           ///< weights of layers whose products may saturate
    std::size_t safe_weights_ = 0;           ///< such weights that are pair-safe
};

}  // namespace detail

export_result export_model(const model& m, const precision_plan& plan, const export_options& options) {
    return detail::exporter(m, plan, options).run();
}

weight_storage weight_storage_from(const std::string& name) {
    if (name == "packed") return weight_storage::packed;
    if (name == "float") return weight_storage::floats;
    if (name == "product") return weight_storage::product;
    throw error("unknown weight storage '" + name + "'; it is packed, float or product." +
                did_you_mean(name, {"packed", "float", "product"}));
}

}  // namespace qk::graph
