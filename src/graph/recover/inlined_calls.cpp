// SPDX-License-Identifier: Apache-2.0
#include "graph/recover/inlined_calls.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "disk/bounded_json.hpp"
#include "graph/export/marks.hpp"
#include "graph/model/edit.hpp"

namespace qk::graph::detail {
namespace {

/// A call as its last node tells it.
struct told_call {
    std::string function, quantizer;
    std::vector<std::pair<std::string, std::string>> inputs;  ///< names in the function, names in the graph
};

std::optional<told_call> told_by(const onnx::NodeProto& n) {
    if (n.output_size() != 1 || !marks::tells_of_call(n.doc_string())) return std::nullopt;
    try {
        const auto j = bounded_json::parse(n.doc_string());
        return told_call{j.at(marks::inlined), j.at("quantizer"), j.at("inputs")};
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

class call_finder {
  public:
    explicit call_finder(const model& m) : source_(m), made_(m), gone_(static_cast<std::size_t>(m.graph().node_size()), false) {}

    std::optional<model> run() {
        for (int i = 0; i < source_.graph().node_size(); ++i)
            if (const auto told = told_by(source_.graph().node(i))) fold(i, *told);
        if (calls_ == 0) return std::nullopt;
        remove_nodes(made_.graph(), gone_);
        if (made_.opset(marks::function_domain) <= 0) {
            auto* import = made_.proto().add_opset_import();
            import->set_domain(marks::function_domain);
            import->set_version(1);
        }
        if (made_.proto().ir_version() < 8) made_.proto().set_ir_version(8);
        made_.reindex();
        return std::move(made_);
    }

  private:
    void fold(int last, const told_call& told) {
        std::set<int> nodes{last};
        std::map<std::string, std::string> formal;  // by names in the graph
        for (const auto& [inside, outside] : told.inputs) formal.emplace(outside, inside);
        std::vector<std::string> constants;
        std::set<std::string> read;
        std::vector<int> open{last};
        while (!open.empty()) {
            const onnx::NodeProto& n = source_.graph().node(open.back());
            open.pop_back();
            for (const std::string& in : n.input()) {
                read.insert(in);
                if (in.empty() || formal.contains(in)) continue;
                if (const int maker = source_.producer(in); maker >= 0) {
                    if (nodes.insert(maker).second) open.push_back(maker);
                    continue;
                }
                if (!source_.is_constant(in)) return;
                formal.emplace(in, "constant_" + std::to_string(constants.size()));
                constants.push_back(in);
            }
        }
        const auto is_read = [&](const auto& input) { return read.contains(input.second); };
        if (told.inputs.empty() || !std::ranges::all_of(told.inputs, is_read)) return;
        for (const int i : nodes) {
            if (gone_[static_cast<std::size_t>(i)]) return;
            for (const std::string& out : source_.graph().node(i).output())
                for (const auto& use : source_.uses(out))
                    if (i != last && (use.node < 0 || !nodes.contains(use.node))) return;
        }
        write(last, told, nodes, formal, constants);
    }

    void write(int last, const told_call& told, const std::set<int>& nodes, const std::map<std::string, std::string>& formal,
               const std::vector<std::string>& constants) {
        onnx::FunctionProto& f = *made_.proto().add_functions();
        f.set_domain(marks::function_domain);
        f.set_name(told.function + "_of_call_" + std::to_string(++calls_));
        for (const auto& o : source_.proto().opset_import()) *f.add_opset_import() = o;
        onnx::NodeProto call;
        call.set_op_type(f.name());
        call.set_domain(marks::function_domain);
        call.set_name(source_.graph().node(last).name());
        call.set_doc_string(told.quantizer);
        for (const auto& [inside, outside] : told.inputs) f.add_input(inside), call.add_input(outside);
        for (const std::string& c : constants) f.add_input(formal.at(c)), call.add_input(c);
        call.add_output(source_.graph().node(last).output(0));
        f.add_output("y");
        for (const int i : nodes) {
            onnx::NodeProto& n = *f.add_node();
            n = source_.graph().node(i);
            n.clear_doc_string();
            const auto rename = [&](std::string& name) {
                if (const auto at = formal.find(name); at != formal.end()) name = at->second;
                else if (name == call.output(0)) name = "y";
                else if (!name.empty()) name = "in/" + name;
            };
            for (std::string& in : *n.mutable_input()) rename(in);
            for (std::string& out : *n.mutable_output()) rename(out);
            gone_[static_cast<std::size_t>(i)] = i != last;
        }
        *made_.graph().mutable_node(last) = std::move(call);
    }

    const model& source_;
    model made_;
    std::vector<bool> gone_;
    int calls_ = 0;
};

}  // namespace

std::optional<model> with_calls(const model& m) {
    const auto tells = [](const onnx::NodeProto& n) { return marks::tells_of_call(n.doc_string()); };
    if (std::ranges::none_of(m.graph().node(), tells)) return std::nullopt;  // before the model is copied
    return call_finder(m).run();
}

}  // namespace qk::graph::detail
