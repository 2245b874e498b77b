// SPDX-License-Identifier: Apache-2.0
// Writes down what the sources know of each value of models without running them, beside what running gives: knowledge_record FILE
//
// A line of FILE is "LABEL MODEL DATA OPSETS" with tabs between: a model, a folder with its inputs (input_0.pb, ...; may be empty) and the
// opsets that it is also raised to, with commas between. The model's declarations of outputs are taken away first, so that what is known
// of them follows from the nodes. Where inputs of integers hold a shape, axes or a count, the model comes a second time (LABEL+) with
// them as constants.
//
// A line of the result is "LABEL@OPSET VALUE OPERATOR KEY=KNOWN|COMPUTED ..." with tabs between. "?" and what begins with it is not known;
// what cannot be computed has no "|COMPUTED". A VALUE with " / AXES" has the verdict on samples that stand along these axes of the inputs
// ("-": not along this one). tests/knowledge.py makes FILE, compares two results and says where they disagree with themselves.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>

// These sources know it in unnamed places, so they are here as a whole.
#include "graph/export/export.cpp"
#include "graph/export/raise_opset.cpp"
#include "graph/model/check.cpp"
#include "graph/pipeline/forced.cpp"
#include "graph/pipeline/generate.cpp"
#include "graph/plan/layers.cpp"
#include "graph/quantize/planner.cpp"

#include "graph/base/content_hash.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/runner.hpp"
#include "graph/plan/operand_tables.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "samples_apart.hpp"
#ifdef QK_HAVE_LEARN
#include "learn/stream.hpp"
#endif

using namespace qk::graph;
using namespace qk::graph::execute;
namespace fs = std::filesystem;

namespace {

using values_by_name = std::map<std::string, tensor>;

// Texts of facts.

const char* yes(bool b) { return b ? "yes" : "no"; }
std::string number(std::int64_t n, std::int64_t least = 0) { return n < least ? "?" : std::to_string(n); }

/// Unknown lengths of a shape are ?a, ?b, ...: those with one letter are known to be equal.
std::string shape_of(const dims* shape) {
    if (shape == nullptr) return "?";
    std::string text;
    dims symbols;
    for (const std::int64_t d : *shape) {
        text += text.empty() ? "" : ",";
        if (d >= 0) {
            text += std::to_string(d);
            continue;
        }
        auto at = std::ranges::find(symbols, d);
        if (at == symbols.end()) at = symbols.insert(at, d);
        text += {'?', static_cast<char>('a' + (at - symbols.begin()) % 26)};
    }
    return "[" + text + "]";
}

const char* text_of(layout_rule r) {
    constexpr const char* names[] = {"plain",  "unary",    "scaled",       "block_axis",     "by_channel", "binary",
                                     "concat", "max_pool", "average_pool", "global_average", "slice",      "pad"};
    return names[static_cast<int>(r)];
}
const char* text_of(layer_kind k) {
    constexpr const char* names[] = {"compute", "neighbour", "mover", "activation", "other"};
    return names[static_cast<int>(k)];
}
std::string text_of(const operand_axes& a) { return std::to_string(a.block) + (a.flatten ? "f" : "") + "/" + std::to_string(a.channel); }

/// One line of the result.
class row {
  public:
    row(const std::string& label, const std::string& value, const std::string& op) : text_(label + "\t" + value + "\t" + op) {}
    void fact(const char* key, const std::function<std::string()>& known, const std::string& computed = "") {
        std::string text;
        try {
            text = known();
        } catch (const std::exception& e) {
            text = std::string("error: ") + e.what();
        }
        std::ranges::replace(text, '\t', ' ');
        std::ranges::replace(text, '\n', ' ');
        std::ranges::replace(text, '|', '/');
        text_ += std::string("\t") + key + "=" + text + (computed.empty() ? "" : "|" + computed);
    }
    void print() const { std::cout << text_ << '\n'; }

  private:
    std::string text_;
};

// Models as they are asked about.

/// Returns the model with every value of its graph as an output of which nothing is said.
model without_declarations(model m) {
    onnx::GraphProto& g = m.graph();
    g.clear_value_info();
    g.clear_output();
    for (const auto& n : g.node())
        for (const std::string& o : n.output())
            if (!o.empty()) g.add_output()->set_name(o);
    m.reindex();
    return m;
}

/// Returns the model with the first axis of its float inputs open.
model opened(model m) {
    for (auto& i : *m.graph().mutable_input()) {
        auto& t = *i.mutable_type()->mutable_tensor_type();
        const auto type = static_cast<data_type>(t.elem_type());
        const bool real = type == data_type::float32 || type == data_type::float64 || ops::is_half(type);
        if (real && !m.is_constant(i.name()) && t.shape().dim_size() > 0) t.mutable_shape()->mutable_dim(0)->set_dim_param("N");
    }
    m.reindex();
    return m;
}

/// Makes constants of short inputs of integers; returns whether there are any.
bool hold_integers(model& m, std::vector<tensor>& inputs) {
    std::vector<tensor> left;
    const std::vector<value_info> declared = m.inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const tensor& t = inputs[i];
        if (t.rank() > 1 || t.size() > 16 || (t.type() != data_type::int64 && t.type() != data_type::int32)) left.push_back(t);
        else to_proto(t, declared[i].name, *m.graph().add_initializer());
    }
    const bool any = left.size() < inputs.size();
    inputs = std::move(left);
    if (any) m.reindex();
    return any;
}

// What is known of values.

class knowledge {
  public:
    /// `computed` has the values that running gave, and outlives this, as the model does.
    knowledge(const model& m, const values_by_name& computed)
        : m_(m),
          computed_(computed),
          layers_(m),
          shapes_(m),
          known_(m),
          open_(opened(m)),
          open_shapes_(open_),
          raised_(m),
          body_(*raised_.proto().mutable_graph(), names_, m.folder()),
          softmax_(masks_before_softmax(layers_, nullptr)),
          cached_(layers_.cached_tensors()) {
        body_.know(shapes_);
        find_types();
    }

    void print(const std::string& label) {
        for (const value_info& i : m_.inputs()) {
            row r(label, i.name, "input");
            of_value(r, i.name);
            r.print();
        }
        for (int k = 0; k < m_.graph().node_size(); ++k) {
            const onnx::NodeProto& n = m_.graph().node(k);
            for (const std::string& o : n.output()) {
                if (o.empty()) continue;
                row r(label, o, n.domain().empty() ? n.op_type() : n.domain() + "." + n.op_type());
                of_types(r, o);
                of_shapes(r, o);
                of_value(r, o);
                of_node(r, k);
                r.print();
            }
        }
    }

  private:
    const tensor* value(const std::string& name) const {
        const auto found = computed_.find(name);
        return found == computed_.end() ? nullptr : &found->second;
    }
    /// Returns a shape as running or the model's constants give it.
    dims shape_now(const std::string& name) const {
        if (const tensor* t = value(name)) return t->shape();
        return m_.is_constant(name) ? m_.constant_shape(name) : dims{};
    }

    void find_types() {
        for (const auto& t : m_.graph().initializer()) types_[t.name()] = t.data_type();
        for (const auto& t : m_.graph().sparse_initializer()) types_[t.values().name()] = t.values().data_type();
        for (const value_info& i : m_.inputs()) types_[i.name] = static_cast<int>(i.type);
        for (const onnx::NodeProto& n : m_.graph().node())
            for (const std::string& o : n.output()) types_[o] = static_cast<int>(shapes_.type(o));
    }
    void of_types(row& r, const std::string& name) {
        const tensor* t = value(name);
        const std::string now = t ? name_of(t->type()) : "";
        r.fact(
            "type", [&] { return std::string(types_.at(name) < 1 ? "?" : name_of(static_cast<data_type>(types_.at(name)))); }, now);
        const auto raised = [&] {
            const data_type type = body_.type_of(name);
            return std::string(type == data_type::undefined ? "?" : name_of(type));
        };
        r.fact("type_raised", raised, now);
    }
    void of_shapes(row& r, const std::string& name) {
        const tensor* t = value(name);
        const std::string now = t ? shape_of(&t->shape()) : "";
        r.fact(
            "shape", [&] { return shape_of(shapes_.shape(name)); }, now);
        r.fact(
            "shape_open", [&] { return shape_of(open_shapes_.shape(name)); }, now);
        r.fact(
            "rank_raised", [&] { return number(static_cast<std::int64_t>(body_.rank_of(name).value_or(std::size_t(-1)))); },
            t ? std::to_string(t->rank()) : "");
        for (const int axis : {-1, 1}) {
            const auto facts = [](std::int64_t rank, std::int64_t length, std::int64_t inner) {
                return number(rank, 1) + "," + number(length) + "," + number(inner);
            };
            const auto known = [&] {
                const qk::graph::detail::axis_facts f = known_.find(name, axis, m_.uses(name));
                return facts(static_cast<std::int64_t>(f.rank), f.length, f.inner);
            };
            std::string computed;
            if (t != nullptr && t->rank() > (axis < 0 ? 0u : 1u)) {
                const std::size_t at = axis < 0 ? t->rank() - 1 : 1;
                std::int64_t inner = 1;
                for (std::size_t k = at + 1; k < t->rank(); ++k) inner *= t->dim(k);
                computed = facts(static_cast<std::int64_t>(t->rank()), t->dim(at), inner);
            }
            r.fact(axis < 0 ? "last_axis" : "axis_1", known, computed);
        }
    }
    /// Says what is known of a value itself: where it comes from and leads to, and what it holds.
    void of_value(row& r, const std::string& name) {
        r.fact("picture", [&] { return yes(layers_.has_channels_second(name)); });
        r.fact(
            "root", [&] { return layers_.root(name); }, made_of(name, layers_.root(name)));
        r.fact("fused", [&] { return std::to_string(layers_.fused_activation(name)); });
        r.fact("mask", [&] { return yes(masks_.contains(m_, name)); });
        r.fact("before_softmax", [&] {
            const auto found = softmax_.find(name);
            return found == softmax_.end() ? std::string("no") : formatted("%g..%g", double(found->second.lo), double(found->second.hi));
        });
        r.fact("cached", [&] { return yes(std::ranges::find(cached_, name) != cached_.end()); });
        r.fact("comes_back", [&] { return pipeline::comes_back_as(m_, name); });
        r.fact("expert", [&] { return yes(is_chosen_expert(layers_, name)); });
#ifdef QK_HAVE_LEARN
        r.fact("stream", [&] {
            const qk::graph::detail::stream s(m_, name);
            if (!s.refused.empty()) return s.refused;
            return formatted("%zu channels, written %zu, read %zu, gains %zu, tensors %zu", s.channels, s.written.size(), s.read.size(),
                             s.gains.size() + s.gain_nodes.size(), s.tensors.size());
        });
#endif
    }
    /// Says whether each element of a value is one of its root, or 0 (padding).
    std::string made_of(const std::string& name, const std::string& root) const {
        const tensor *t = value(name), *from = value(root);
        if (name == root || t == nullptr || from == nullptr || t->type() != from->type() || t->type() == data_type::string) return "";
        const auto elements = [](const tensor& x) {
            std::set<std::string> all;
            const std::size_t width = size_of(x.type());
            for (std::size_t i = 0; i < x.size(); ++i) all.emplace(reinterpret_cast<const char*>(x.bytes()) + i * width, width);
            return all;
        };
        std::set<std::string> there = elements(*from);
        there.emplace(size_of(t->type()), '\0');
        return std::ranges::includes(there, elements(*t)) ? root : "others";
    }
    /// Says what is known of the node that makes a value.
    void of_node(row& r, int k) {
        const onnx::NodeProto& n = m_.graph().node(k);
        r.fact("layout", [&] { return text_of(layout_rule_of(node_view(n, m_.opset(n.domain())), facts_of(n))); });
        r.fact("exact", [&] { return yes(pipeline::is_exact(n)); });
        r.fact("kind", [&] { return text_of(kind_of(n)); });
        const layer_view::node_info& info = layers_.nodes()[static_cast<std::size_t>(k)];
        r.fact("role", [&] { return text_of(info.kind); });
        r.fact("parts", [&] {
            std::string parts;
            for (const layer_view::part p : info.parts) parts += "-iwb"[static_cast<int>(p)];
            return parts;
        });
        r.fact("axes", [&] {
            std::string axes;
            for (int i = 0; i < n.input_size(); ++i) axes += (i > 0 ? " " : "") + text_of(axes_of(n, i, shape_now(n.input(i))));
            return axes;
        });
        r.fact("needs", [&] { return std::to_string(least_inputs(n)); });
        r.fact("holds", [&] {
            std::string all = layers_.is_embedding(k) ? "table" : "";
            for (const held_weight& h : held_weights(layers_, k))
                all += formatted(" %d:%d:", static_cast<int>(h.what), h.input) + text_of(h.axes);
            return all;
        });
    }

    const model& m_;
    const values_by_name& computed_;
    layer_view layers_;
    qk::graph::known_values shapes_;
    qk::graph::detail::known_shapes known_;
    model open_;
    qk::graph::known_values open_shapes_;
    model raised_;
    qk::graph::detail::taken_names names_;
    qk::graph::detail::raised_body body_;
    qk::graph::detail::masks_of_constants masks_;
    std::map<std::string, value_range> softmax_;
    std::vector<std::string> cached_;
    std::map<std::string, int> types_;
};

// Verdicts on samples.

/// Inputs in which samples stand along axes.
struct sample_cut {
    std::vector<tensor> inputs;
    std::vector<int> axes;  ///< -1: the same for every sample
    std::size_t count = 0;

    std::string text() const {
        std::string all;
        for (const int a : axes) all += (all.empty() ? "" : ",") + (a < 0 ? std::string("-") : std::to_string(a));
        return all + " of " + std::to_string(count);
    }
};

/// Returns a tensor with another sample behind it along axis 0: its elements from the last to the first.
tensor doubled(const tensor& t) {
    dims shape = t.shape();
    shape[0] *= 2;
    tensor both(t.type(), shape);
    const std::size_t width = size_of(t.type());
    std::memcpy(both.bytes(), t.bytes(), t.size_bytes());
    for (std::size_t i = 0; i < t.size(); ++i)
        std::memcpy(both.bytes() + t.size_bytes() + i * width, t.bytes() + (t.size() - 1 - i) * width, width);
    return both;
}

/// Returns how the data can be taken as samples: its rows along an axis, of an input alone or of all that have as many, and likewise the
/// data itself beside a second sample.
std::vector<sample_cut> cuts_of(const std::vector<tensor>& inputs) {
    std::vector<sample_cut> cuts;
    std::set<std::pair<std::vector<int>, bool>> tried;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        for (int axis = 0; axis < 3 && axis < static_cast<int>(inputs[i].rank()); ++axis) {
            const std::int64_t length = inputs[i].dim(static_cast<std::size_t>(axis));
            for (const bool all : {false, true}) {
                sample_cut c{inputs, std::vector<int>(inputs.size(), -1), static_cast<std::size_t>(length)};
                for (std::size_t k = 0; k < inputs.size(); ++k) {
                    const bool alike = static_cast<int>(inputs[k].rank()) > axis && inputs[k].dim(static_cast<std::size_t>(axis)) == length;
                    if (k == i || (all && alike)) c.axes[k] = axis;
                }
                if (length > 1 && tried.insert({c.axes, false}).second) cuts.push_back(c);
                if (axis > 0 || length == 0 || !tried.insert({c.axes, true}).second) continue;
                c.count = 2;
                for (std::size_t k = 0; k < inputs.size(); ++k)
                    if (c.axes[k] == 0) c.inputs[k] = doubled(inputs[k]);
                cuts.push_back(std::move(c));
            }
        }
    return cuts;
}

class sample_verdicts {
  public:
    sample_verdicts(const model& m, const std::string& label) : label_(label), run_(m, 1), outputs_(run_.net->outputs) {
        const precision_plan none;
        const precision_plan* plan = &none;
        program_ = make_program(*run_.net, run_.shared, {&plan, 1});
        for (const auto& n : m.graph().node())
            for (const std::string& o : n.output())
                if (!o.empty()) operators_.push_back(n.op_type());
    }

    /// Returns the values of one run; throws what the run throws.
    std::vector<tensor> run(const std::vector<tensor>& inputs) { return run_.once(*program_, inputs); }

    void print(const sample_cut& c) {
        std::optional<qk_test::samples_apart> apart;
        try {
            apart.emplace(run_, *program_, c.inputs, c.axes, c.count);
        } catch (const std::exception&) {
        }
        std::vector<batch_input> given;
        for (std::size_t i = 0; i < c.inputs.size(); ++i) {
            given.push_back({c.axes[i], c.inputs[i].shape()});
            if (c.axes[i] >= 0) given.back().shape[static_cast<std::size_t>(c.axes[i])] /= static_cast<std::int64_t>(c.count);
        }
        for (std::size_t o = 0; o < outputs_.size(); ++o) {
            run_.net->outputs = {outputs_[o]};
            const batch_verdict v = follow_batch_axis(*run_.net, given, static_cast<std::int64_t>(c.count));
            row r(label_, outputs_[o].edges.back().tensor + " / " + c.text(), operators_[o]);
            r.fact(
                "samples", [&] { return text_of(v); }, apart ? apart->verdict(o, v.output_axes.front()) : "fails");
            r.fact("because", [&] { return v.why; });
            r.print();
        }
        run_.net->outputs = outputs_;
    }

  private:
    static std::string text_of(const batch_verdict& v) {
        if (v.rows()) return "rows " + std::to_string(v.output_axes.front());
        if (v.why == "no output depends on the samples") return "shared";
        return v.is == batch_verdict::kind::mixed ? "mixed" : "?";
    }
    std::string label_;
    runner run_;
    std::vector<net_input> outputs_;
    std::vector<std::string> operators_;
    std::unique_ptr<program> program_;
};

// The list.

void print_all(const std::string& label, const model& given, const std::vector<tensor>& inputs) {
    const model m = without_declarations(given);
    row about(label, "*", "model");
    about.fact("file", [&] {
        content_hash h;
        h.add(given.proto().SerializeAsString());
        return h.text();
    });
    values_by_name computed;
    std::unique_ptr<sample_verdicts> verdicts;
    about.fact("runs", [&] {
        verdicts = std::make_unique<sample_verdicts>(m, label);
        if (inputs.size() != m.inputs().size()) return "no data";
        const std::vector<tensor> made = verdicts->run(inputs);
        for (std::size_t i = 0; i < made.size(); ++i)
            if (!made[i].empty()) computed[m.outputs()[i].name] = made[i];
        for (std::size_t i = 0; i < inputs.size(); ++i) computed[m.inputs()[i].name] = inputs[i];
        return "yes";
    });
    about.print();
    knowledge(m, computed).print(label);
    if (!computed.empty() && verdicts)
        for (const sample_cut& c : cuts_of(inputs)) verdicts->print(c);
}

void print_job(const std::string& label, const fs::path& file, const fs::path& data, const std::vector<int>& opsets) {
    const model given = model::load(file);
    std::vector<tensor> inputs;
    for (std::size_t i = 0; i < given.inputs().size(); ++i)
        if (const fs::path one = data / ("input_" + std::to_string(i) + ".pb"); fs::exists(one))
            inputs.push_back(read_tensor_proto(one).value);
    for (int k = -1; k < static_cast<int>(opsets.size()); ++k) {
        model m = given;
        const int version = k < 0 ? m.opset("") : opsets[static_cast<std::size_t>(k)];
        const std::string own = label + "@" + std::to_string(version);
        try {
            if (k >= 0) raise_opset(m, version);
        } catch (const error& e) {
            row r(own, "*", "model");
            r.fact("raised", [&] { return std::string(e.what()); });
            r.print();
            continue;
        }
        print_all(own, m, inputs);
        std::vector<tensor> others = inputs;
        if (inputs.size() == m.inputs().size() && hold_integers(m, others)) print_all(label + "+@" + std::to_string(version), m, others);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: knowledge_record FILE\n";
        return 2;
    }
    std::ifstream list(argv[1]);
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string label, file, data, versions;
        std::getline(words, label, '\t'), std::getline(words, file, '\t'), std::getline(words, data, '\t'), std::getline(words, versions);
        std::istringstream numbers(versions);
        std::vector<int> opsets;
        for (std::string v; std::getline(numbers, v, ',');) opsets.push_back(std::stoi(v));
        try {
            print_job(label, file, data, opsets);
        } catch (const std::exception& e) {
            row r(label, "*", "model");
            r.fact("loads", [&] { return std::string(e.what()); });
            r.print();
        }
    }
}
