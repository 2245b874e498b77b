// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/model/torch_names.hpp"
#include "graph/model/operator_name.hpp"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "qk/graph/model/model.hpp"
#include "qk/graph/model/name_history.hpp"

namespace qk::graph {
namespace {

/// Returns a node's metadata_props. Before version 1.16 onnx did not know them and keeps them as an unknown field.
template <class Node>
std::map<std::string, std::string> properties(const Node& node) {
    std::map<std::string, std::string> all;
    if constexpr (requires { node.metadata_props(); }) {
        for (const auto& p : node.metadata_props()) all[p.key()] = p.value();
    } else {
        constexpr int metadata_props = 9;
        const auto& unknown = node.GetReflection()->GetUnknownFields(node);
        for (int i = 0; i < unknown.field_count(); ++i) {
            const auto& field = unknown.field(i);
            if (field.number() != metadata_props || field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
            onnx::StringStringEntryProto p;
            if (p.ParseFromString(field.length_delimited())) all[p.key()] = p.value();
        }
    }
    return all;
}

/// Returns the strings of a list as Python prints it: "['', 'features.1', 'conv2d_1']".
std::vector<std::string> listed_strings(const std::string& text) {
    std::vector<std::string> all;
    for (std::size_t at = 0; (at = text.find_first_of("'\"", at)) != std::string::npos;) {
        const std::size_t end = text.find(text[at], at + 1);
        if (end == std::string::npos) break;
        all.push_back(text.substr(at + 1, end - at - 1));
        at = end + 1;
    }
    return all;
}

/// Reads "namespace": ": package.Net/features: torch.nn...Sequential/features.0: torch.nn...Conv2d/conv2d: aten.conv2d.default". The last
/// entry is the operation.
torch_module of_namespace(const std::string& text) {
    std::vector<torch_module> entries;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('/', begin), text.size()), colon = text.find(": ", begin);
        if (colon == std::string::npos || colon > end) return {};
        entries.push_back({text.substr(begin, colon - begin), text.substr(colon + 2, end - colon - 2)});
        begin = end + 1;
    }
    return entries.size() < 2 ? torch_module{} : entries[entries.size() - 2];
}

/// Returns whether what the exporter wrote beside a node is of a batch normalization: its optimizer folds one into the layer before it, and
/// the layer that comes of both tells of the normalization.
bool tells_of_normalization(const std::map<std::string, std::string>& all) {
    for (const char* key : {"pkg.torch.onnx.class_hierarchy", "namespace"})
        if (const auto said = all.find(key); said != all.end())
            return said->second.find("batch_norm", std::min(said->second.rfind("aten."), said->second.size())) != std::string::npos;
    return false;
}

/// Reads what torch.onnx.export(dynamo=True), the default of today, writes beside a node.
torch_module of_properties(const std::map<std::string, std::string>& all) {
    const auto list = [&](const char* key) {
        const auto found = all.find(key);
        return found == all.end() ? std::vector<std::string>{} : listed_strings(found->second);
    };
    const std::vector<std::string> scopes = list("pkg.torch.onnx.name_scopes"), types = list("pkg.torch.onnx.class_hierarchy");
    if (scopes.size() >= 2)  // the last is the operation's own
        return {scopes[scopes.size() - 2], types.size() == scopes.size() ? types[types.size() - 2] : ""};
    const auto space = all.find("namespace");
    return space == all.end() ? torch_module{} : of_namespace(space->second);
}

/// Reads the name of a node as torch's older exporter makes it: of "/features/features.1/conv/conv.0/Conv" the path is features.1.conv.0.
std::string of_node_name(const std::string& name) {
    if (!name.starts_with('/')) return {};
    std::vector<std::string> parts;
    const std::size_t last = name.rfind('/');
    for (std::size_t begin = 1; begin < last;) {
        const std::size_t end = std::min(name.find('/', begin), last);
        std::string part = name.substr(begin, end - begin);
        if (!parts.empty() && part.starts_with(parts.back() + ".")) parts.back() = std::move(part);  // an element of a list of modules
        else parts.push_back(std::move(part));
        begin = end + 1;
    }
    std::string path;
    for (const std::string& p : parts) path += (path.empty() ? "" : ".") + p;
    return path;
}

/// Returns "features.0" for a tensor "features.0.weight"; nullopt for names of another form.
std::optional<std::string> owner_of(const std::string& tensor) {
    for (const char* end : {".weight", ".bias"})
        if (tensor.ends_with(end) && tensor.size() > std::char_traits<char>::length(end))
            return tensor.substr(0, tensor.size() - std::char_traits<char>::length(end));
    return std::nullopt;
}

bool is_layer(const onnx::NodeProto& n) { return detail::one_of(operator_of(n), {"Conv", "ConvTranspose", "Gemm", "MatMul"}); }

/// Returns the type of torch that a layer with a weight of this rank comes from.
std::string type_of_layer(const onnx::NodeProto& n, std::size_t rank) {
    if (!operator_of(n).starts_with("Conv")) return "torch.nn.modules.linear.Linear";
    return "torch.nn.modules.conv." + n.op_type() + std::to_string(rank - std::min<std::size_t>(rank, 2)) + "d";
}

std::string_view behind_last_dot(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

/// What a module of torch becomes in an exported model; Conv1d, Conv2d and Conv3d are one row.
struct conversion {
    std::string_view type;
    std::vector<operator_word> operators;
};
const std::vector<conversion>& conversions() {
    static const std::vector<conversion> all{
        {"Conv", {"Conv"}},
        {"ConvTranspose", {"ConvTranspose"}},
        {"Linear", {"Gemm", "MatMul"}},
        {"AvgPool", {"AveragePool", "GlobalAveragePool", "ReduceMean"}},
        {"AdaptiveAvgPool", {"AveragePool", "GlobalAveragePool", "ReduceMean"}},
        {"MaxPool", {"MaxPool"}},
        {"AdaptiveMaxPool", {"MaxPool", "GlobalMaxPool", "ReduceMax"}},
        {"BatchNorm", {"BatchNormalization"}},
        {"InstanceNorm", {"InstanceNormalization"}},
        {"LayerNorm", {"LayerNormalization"}},
        {"GroupNorm", {"GroupNormalization"}},
        {"ReLU", {"Relu"}},
        {"ReLU6", {"Clip"}},
        {"Hardtanh", {"Clip"}},
        {"LeakyReLU", {"LeakyRelu"}},
        {"PReLU", {"PRelu"}},
        {"ELU", {"Elu"}},
        {"GELU", {"Gelu"}},
        {"Hardswish", {"HardSwish"}},
        {"Hardsigmoid", {"HardSigmoid"}},
        {"Embedding", {"Gather"}},
        {"Upsample", {"Resize"}},
    };
    return all;
}

/// Is true for a reduction over as many last axes as an image has, and for every other operator.
bool fits_image(const model& m, const onnx::NodeProto& node, std::size_t dimensions) {
    if (!operator_of(node).starts_with("Reduce")) return true;
    std::vector<std::int64_t> axes;
    for (const auto& a : node.attribute())
        if (a.name() == "axes") axes.assign(a.ints().begin(), a.ints().end());
    if (node.input_size() > 1 && m.is_constant(node.input(1))) {
        const tensor given = m.constant(node.input(1));
        if (given.type() == data_type::int64) axes.assign(given.as<std::int64_t>().begin(), given.as<std::int64_t>().end());
    }
    return axes.size() == dimensions && std::ranges::none_of(axes, [](std::int64_t a) { return a == 0 || a == 1; });
}

/// Is true for a layer whose weight has the dimensions that Conv1d, Conv2d or Conv3d says; 0 fits all.
bool fits_weight(const model& m, const onnx::NodeProto& node, std::size_t dimensions) {
    if (dimensions == 0 || !operator_of(node).starts_with("Conv") || node.input_size() < 2 || !m.is_constant(node.input(1))) return true;
    return m.constant_shape(node.input(1)).size() == dimensions + 2;
}

}  // namespace

bool is_in_module(std::string_view path, std::string_view module) {
    return !module.empty() && path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

std::vector<torch_module> torch_modules(const model& m) {
    std::map<std::string, std::string> file_names;  // of tensors that folding made, the names that they have in the file
    for (const auto& [name, became] : m.history().tensors())
        for (const successor& s : became)
            if (s.how == bond::place && !s.is_node && owner_of(name)) file_names.emplace(s.name, name);
    std::vector<torch_module> all;
    for (const onnx::NodeProto& node : m.graph().node()) {
        const std::map<std::string, std::string> said = properties(node);
        torch_module& found = all.emplace_back(of_properties(said));
        if (found.path.empty()) found.path = of_node_name(node.name());
        if (!is_layer(node) || node.input_size() < 2 || !m.is_constant(node.input(1))) continue;
        const bool is_folded = tells_of_normalization(said);
        if (!found.path.empty() && !is_folded) continue;
        const auto in_file = file_names.find(node.input(1));
        const std::optional<std::string> owner = owner_of(in_file == file_names.end() ? node.input(1) : in_file->second);
        if (!owner) continue;
        found.path = *owner;
        if (is_folded) found.type = type_of_layer(node, m.constant_shape(node.input(1)).size());
    }
    return all;
}

std::vector<int> nodes_of_torch_type(const model& m, const std::vector<torch_module>& modules, std::string_view type) {
    const std::string_view wanted = behind_last_dot(type);
    std::vector<int> found;
    std::set<std::string> with_layers;  // modules
    for (std::size_t n = 0; n < modules.size(); ++n) {
        if (modules[n].type.empty() || behind_last_dot(modules[n].type) != wanted) continue;
        found.push_back(static_cast<int>(n));
        if (is_layer(m.graph().node(static_cast<int>(n)))) with_layers.insert(modules[n].path);
    }
    std::erase_if(found,
                  [&](int n) { return with_layers.contains(modules[static_cast<std::size_t>(n)].path) && !is_layer(m.graph().node(n)); });
    if (!found.empty()) return found;
    const bool counts = wanted.size() > 2 && wanted.back() == 'd' && wanted[wanted.size() - 2] >= '1' && wanted[wanted.size() - 2] <= '3';
    const std::size_t dimensions = counts ? static_cast<std::size_t>(wanted[wanted.size() - 2] - '0') : 0;
    const std::string_view plain = counts ? wanted.substr(0, wanted.size() - 2) : wanted;
    const auto made = std::ranges::find(conversions(), plain, &conversion::type);
    if (made == conversions().end()) return {};
    for (int n = 0; n < m.graph().node_size(); ++n) {
        const onnx::NodeProto& node = m.graph().node(n);
        const int weight = plain == "Linear" ? 1 : plain == "Embedding" ? 0 : -1;
        const bool weighed = weight < 0 || (node.input_size() > weight && m.is_constant(node.input(weight)));
        const bool is_made = std::ranges::any_of(made->operators, [&](operator_word op) { return operator_of(node) == op; });
        if (is_made && weighed && fits_image(m, node, dimensions) && fits_weight(m, node, dimensions)) found.push_back(n);
    }
    return found;
}

}  // namespace qk::graph
