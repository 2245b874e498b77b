// SPDX-License-Identifier: Apache-2.0
// The names that a torch user knows: which module of the torch model a node was exported from, and by which type of torch one may ask for
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qk::graph {

class model;

/// The module of a torch model that a node comes from.
struct torch_module {
    std::string path;  ///< "features.1.conv.0.0"; empty: unknown, or no module but the model itself
    std::string type;  ///< "torch.nn.modules.conv.Conv2d"; empty: unknown
};

/// Returns the module of each node. It is known from what torch's exporter writes beside a node (metadata_props), from the names of nodes
/// that the exporter before that gives ("/features/features.1/conv/conv.0/Conv"), or from the name of a layer's weight.
std::vector<torch_module> torch_modules(const model& m);

/// Is true when `path` is the module `module` or lies in it: "features.1.conv" lies in "features.1".
bool is_in_module(std::string_view path, std::string_view module);

/// Returns the nodes that are of a type of torch, by their module's type ("AvgPool2d" or "torch.nn.AvgPool2d"), or where no module has that
/// type by what such a module becomes: AveragePool, GlobalAveragePool, or a ReduceMean over the image. Of a module that has layers these
/// alone count. Empty: there are none.
std::vector<int> nodes_of_torch_type(const model& m, const std::vector<torch_module>& modules, std::string_view type);

}  // namespace qk::graph
