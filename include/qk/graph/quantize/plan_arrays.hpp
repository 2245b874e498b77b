// SPDX-License-Identifier: Apache-2.0
// Long lists of a saved plan (a scale for each block of every weight) lie in PLAN.json.npz beside PLAN.json, which refers to them:
// {"file": "PLAN.json.npz", "array": "3"}. As text they would be ten times as long.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Returns the length of the longest list that stays in the JSON. Lists with a number for each channel may be longer than those with one
/// for each block, since a person may look at them.
inline std::size_t longest_list(const quantizer& q) { return q.block_size > 0 ? 1024 : 65536; }

/// Returns the plan as JSON text. Puts its long lists into `arrays`; the text refers to them as arrays of `file`.
std::string plan_text(const precision_plan& plan, const std::string& file, std::vector<named_tensor>& arrays);
/// Writes PLAN.json and, if there are long lists, PLAN.json.npz as outputs of `out`, whose owner commits them.
void save_plan(const precision_plan& plan, output_set& out, const std::filesystem::path& file);

namespace detail {

/// The arrays that a document refers to. Reads each file once.
class plan_arrays {
  public:
    /// Is true when `c` is a reference and not the list itself.
    static bool refers(const json_cursor& c) { return c.is_object(); }
    /// Returns the array. Errors name the place of the reference. Its file lies beside the document, so its name has no folder.
    const tensor& at(const json_cursor& c);

  private:
    std::map<std::filesystem::path, std::map<std::string, tensor>> files_;
};

/// Reads a quantizer whose lists may be references.
quantizer read_quantizer(const json_cursor& c, plan_arrays& arrays);
/// Likewise the places and values of a plan's moved elements.
moved_values read_moved(const json_cursor& c, plan_arrays& arrays);
/// Reads {"tensor": T, "layers": [L...], "factors": [F...], "weights": HASH}.
scaled_channels read_scaled(const json_cursor& c, plan_arrays& arrays);

}  // namespace detail
}  // namespace qk::graph
