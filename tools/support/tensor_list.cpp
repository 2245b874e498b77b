// SPDX-License-Identifier: Apache-2.0
#include "support/tensor_list.hpp"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "qk/graph/error.hpp"
#include "qk/graph/evaluate.hpp"
#include "qk/graph/model.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/plan.hpp"
#include "qk/graph/report.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

struct known_value {
    std::string type;
    graph::dims shape;
};

/// Returns what a run for shapes alone may take: 1 GB, and four times the weights.
std::size_t memory_for(const graph::model& m) {
    std::size_t weights = 0;
    for (const auto& t : m.graph().initializer())
        weights += static_cast<std::size_t>(graph::element_count(m.constant_shape(t.name()))) * graph::size_of(m.constant_type(t.name()));
    return (std::size_t{1} << 30) + 4 * weights;
}

/// Returns types and shapes for one sample, found by running the model on zeros. Where it does not run, only declared types and shapes are
/// known.
std::map<std::string, known_value> values_of(const graph::model& m) {
    std::map<std::string, known_value> known;
    const auto declared = [&](const auto& values) {
        for (const auto& v : values) {
            const auto& t = v.type().tensor_type();
            graph::dims shape;
            bool whole = t.has_shape();
            for (const auto& d : t.shape().dim()) {
                whole = whole && (d.has_dim_value() || shape.empty());
                shape.push_back(d.has_dim_value() ? d.dim_value() : 1);  // a symbolic first dimension counts samples
            }
            if (whole) known[v.name()] = {graph::name_of(static_cast<graph::data_type>(t.elem_type())), shape};
        }
    };
    declared(m.graph().value_info());
    declared(m.graph().output());
    // A declared shape is no data: what it would take may be far more than the model.
    std::uint64_t left = std::uint64_t{1} << 28;
    graph::named_tensors zeros;
    for (const graph::value_info& v : m.inputs()) {
        graph::dims shape;
        for (const graph::dimension& d : v.shape) shape.push_back(d.value > 0 ? d.value : 1);
        if (!v.has_shape || v.type == graph::data_type::undefined) return known;
        known[v.name] = {graph::name_of(v.type), shape};
        const std::uint64_t bytes = static_cast<std::uint64_t>(graph::element_count(shape)) * graph::size_of(v.type);
        if (bytes > left) return known;
        left -= bytes;
        graph::tensor t(v.type, shape);
        std::fill_n(t.bytes(), t.size_bytes(), std::byte{0});
        zeros[v.name] = std::move(t);
    }
    std::mutex lock;
    try {
        graph::evaluator(m, {.batch = 1, .limits = {.memory = memory_for(m)}})
            .run(zeros, {}, [&](const std::string& name, const graph::tensor& value, std::size_t) {
                const std::lock_guard guard(lock);
                known[name] = {graph::name_of(value.type()), value.shape()};
            });
    } catch (const graph::error&) {
        // Not every model runs on zeros; its names are worth listing all the same.
    }
    return known;
}

class lister {
  public:
    explicit lister(const graph::model& m) : file_(m), planned_(folded(m)), roles_(m), planned_roles_(planned_), known_(values_of(m)) {}

    std::vector<listed_name> run() {
        const std::vector<graph::torch_module> modules = graph::torch_modules(file_);
        for (const graph::value_info& o : file_.outputs()) outputs_.insert(o.name);
        for (const graph::value_info& i : file_.inputs()) add_tensor(file_, i.name, "model input");
        for (int n = 0; n < file_.graph().node_size(); ++n) {
            const onnx::NodeProto& node = file_.graph().node(n);
            listed_name layer{node.name(), "layer " + node.op_type(), "", std::nullopt, {}, ""};
            if (const std::string& path = modules[static_cast<std::size_t>(n)].path; path != node.name()) layer.module = path;
            if (planned_.node_index(node.name()) < 0) follow(layer, graph::successors_of_node(planned_, node.name()));
            all_.push_back(std::move(layer));
            add_constants(file_, roles_, n, "");
            for (const std::string& o : node.output())
                if (!o.empty())
                    add_tensor(file_, o, outputs_.contains(o) ? "model output" : node.op_type() == "Constant" ? "constant" : "activation");
            if (const int now = planned_.node_index(node.name()); now >= 0)
                add_constants(planned_, planned_roles_, now, ", made by folding");
        }
        for (const auto& i : file_.graph().initializer()) add_tensor(file_, i.name(), "constant");  // constants that nothing reads
        return std::move(all_);
    }

  private:
    static graph::model folded(graph::model m) {
        graph::pipeline::prepare_for_plan(m);
        return m;
    }

    void add_constants(const graph::model& m, const graph::layer_view& roles, int n, const std::string& suffix) {
        using part = graph::layer_view::part;
        const onnx::NodeProto& node = m.graph().node(n);
        const auto& info = roles.nodes()[static_cast<std::size_t>(n)];
        for (int i = 0; i < node.input_size(); ++i) {
            if (node.input(i).empty() || !m.is_constant(node.input(i))) continue;
            const part p = info.kind == graph::layer_kind::compute ? info.parts[static_cast<std::size_t>(i)] : part::none;
            add_tensor(m, node.input(i), (p == part::weight ? "weight" : p == part::bias ? "bias" : "constant") + suffix);
        }
    }

    void add_tensor(const graph::model& m, const std::string& name, const std::string& kind) {
        if (!listed_.insert(name).second) return;
        listed_name row{name, kind, "", std::nullopt, {}, ""};
        if (m.is_constant(name)) {
            row.shape = m.constant_shape(name);
            row.type = graph::name_of(m.constant_type(name));
        } else if (const auto v = known_.find(name); v != known_.end()) {
            row.type = v->second.type, row.shape = v->second.shape;
        }
        const auto successors = graph::successors_of_tensor(planned_, name);
        if (graph::has_tensor(planned_, name) && !successors.empty()) row.became.push_back(name);
        follow(row, successors);
        if (row.became.empty() && !graph::has_tensor(planned_, name)) row.why = "nothing reads it: left out";
        all_.push_back(std::move(row));
    }

    static void follow(listed_name& row, const std::vector<graph::successor>& successors) {
        for (const graph::successor& s : successors) {
            row.became.push_back(s.name);
            row.why = s.why;
        }
    }

    const graph::model& file_;
    graph::model planned_;
    graph::layer_view roles_, planned_roles_;
    std::map<std::string, known_value> known_;
    std::set<std::string> listed_, outputs_;
    std::vector<listed_name> all_;
};

}  // namespace

std::vector<listed_name> list_names(const graph::model& m) { return lister(m).run(); }

void print_names(const std::vector<listed_name>& names) {
    std::size_t width = 4, kinds = 4;
    for (const listed_name& n : names) width = std::max(width, n.name.size() + 2), kinds = std::max(kinds, n.kind.size());
    width = std::min<std::size_t>(width, 60);
    print("{:<{}} {:<{}} {:<10} {:<18} {}\n", "name", width, "kind", kinds, "type", "shape", "what it became");
    for (const listed_name& n : names) {
        std::string became = graph::comma_separated(n.became);
        if (!n.why.empty()) became += (became.empty() ? "" : ": ") + n.why;
        if (!n.module.empty()) became += (became.empty() ? "module " : "; module ") + n.module;
        print("{:<{}} {:<{}} {:<10} {:<18} {}\n", (n.is_layer() ? "" : "  ") + n.name, width, n.kind, kinds, n.type,
              n.shape ? graph::to_string(*n.shape) : "", became);
    }
}

void add_names(nlohmann::ordered_json& json, const std::vector<listed_name>& names) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array(), layers = nlohmann::ordered_json::array();
    for (const listed_name& n : names) {
        if (n.is_layer())
            layers.push_back({{"name", n.name}, {"op_type", n.kind.substr(6)}, {"became", n.became}, {"why", n.why}, {"module", n.module}});
        else
            tensors.push_back({{"name", n.name},
                               {"kind", n.kind},
                               {"type", n.type},
                               {"shape", n.shape ? nlohmann::ordered_json(*n.shape) : nlohmann::ordered_json()},
                               {"became", n.became},
                               {"why", n.why}});
    }
    json["tensors"] = std::move(tensors);
    json["layer_names"] = std::move(layers);
}

}  // namespace qk::tool
