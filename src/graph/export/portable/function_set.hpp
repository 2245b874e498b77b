// SPDX-License-Identifier: Apache-2.0
// The model-local functions of one export: one for each format, semantics and layout of blocks, whatever the number of tensors.
#pragma once

#include <cctype>
#include <string>
#include <vector>

#include "graph/export/marks.hpp"
#include "graph/export/portable/decode.hpp"

namespace qk::graph::detail {

/// Returns a name that ONNX allows: letters, digits and underscores.
inline std::string identifier(std::string text) {
    for (char& c : text)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return text;
}

class function_set {
  public:
    explicit function_set(graph_writer& g) : g_(g) {
        for (const auto& f : g.target().proto().functions())
            if (f.domain() == marks::function_domain) taken_.push_back(f.name());
    }

    /// Returns the name of the function for a key; equal keys get the same function.
    const std::string& name(const function_key& key) {
        for (const auto& [k, name] : functions_)
            if (k == key) return name;
        g_.require_opset(12, "functions of standard operators");
        g_.import(marks::function_domain, 1);
        const std::string stem = (key.decodes ? "decode_" : "") + identifier(text_of(key.format));
        std::string unique = stem;
        for (int i = 2; std::find(taken_.begin(), taken_.end(), unique) != taken_.end(); ++i) unique = stem + "_" + std::to_string(i);
        taken_.push_back(unique);
        return functions_.emplace_back(key, unique).second;
    }

    /// Adds the bodies to the model, for the opset that it will have.
    void finish() {
        const int opset = std::max(g_.target().opset(""), g_.required_opset());
        for (const auto& [key, name] : functions_) {
            *g_.target().proto().add_functions() =
                key.decodes ? decode_function(key, name, opset) : fake_quantize_function(key, name, opset);
        }
    }

  private:
    graph_writer& g_;
    std::vector<std::string> taken_;
    std::vector<std::pair<function_key, std::string>> functions_;
};

}  // namespace qk::graph::detail
