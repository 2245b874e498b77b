// SPDX-License-Identifier: Apache-2.0
// A user's table of the cost of a layer under each option.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace qk::graph {

/// {"unit": "ms", "layers": {NAME_OR_GLOB: {"int8/int8": 0.3, ...}}, "op_types": {"Conv": {"int8/int8": 0.01, ...}}}
/// layers: the cost itself; op_types: the cost of a million multiply-accumulates, for layers that no name matches.
class latency_table {
  public:
    /// Reads a table. Throws, with the place in the file, for anything that is not of this form.
    static latency_table load(const std::filesystem::path& file);
    /// Returns the cost of a layer. Throws, naming the layer and the option, if the table has no entry for it.
    double cost(const std::string& layer, const std::string& op_type, double macs, const std::string& option) const;
    /// Returns a sentence for each name or glob under "layers" that matches none of `layers`.
    std::vector<std::string> without_layer(const std::vector<std::string>& layers) const;
    const std::string& unit() const { return unit_; }

  private:
    std::string file_, unit_ = "ms";
    std::vector<std::pair<std::string, std::map<std::string, double>>> layers_, op_types_;
};

}  // namespace qk::graph
