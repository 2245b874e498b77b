// SPDX-License-Identifier: Apache-2.0
// Long lists of a saved plan (a scale for each block of every weight) lie in PLAN.npz beside it, and the plan refers to them:
// {"file": "PLAN.npz", "array": "3"}. As text they would be ten times as long.
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

/// Lists of more numbers than this leave the JSON; those with a number for each channel stay there as far as a person would look at them.
inline std::size_t longest_list(const quantizer& q) { return q.block_size > 0 ? 1024 : 65536; }

/// The plan as JSON text; its long lists are put into `arrays` and referred to as those of `file`.
std::string plan_text(const precision_plan& plan, const std::string& file, std::vector<named_tensor>& arrays);
/// PLAN.json and, if there are long lists, PLAN.json.npz, as outputs of `out`, which commits.
void save_plan(const precision_plan& plan, output_set& out, const std::filesystem::path& file);

namespace detail {

/// Arrays that a document refers to, each file read once.
class plan_arrays {
  public:
    /// Whether `c` is a reference and not the list itself.
    static bool refers(const json_cursor& c) { return c.is_object(); }
    /// The array; errors name the place of the reference. Files lie beside the document: names without folders.
    const tensor& at(const json_cursor& c);

  private:
    std::map<std::filesystem::path, std::map<std::string, tensor>> files_;
};

/// As read_quantizer, with lists by reference.
quantizer read_quantizer(const json_cursor& c, plan_arrays& arrays);

}  // namespace detail
}  // namespace qk::graph
