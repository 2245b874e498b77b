// SPDX-License-Identifier: Apache-2.0
// What a runtime has: formats, rules for scales, and how files are written for it. docs/reference/targets.md says where each rule is from.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// The formats that a runtime supports, by operator type ("*": all types that are not listed). An empty list allows everything.
struct target_profile {
    struct formats {
        std::vector<qk::format> activation, weight;
        friend bool operator==(const formats&, const formats&) = default;
    };
    /// Weights in blocks: of so many bits, the sizes or the multiple that blocks have, and the bits that activations have at least.
    struct block_rule {
        int bits = 0;
        std::vector<int> sizes{};
        int multiple = 1, activation_bits = 0;
        bool needed = false;  ///< such weights have blocks, of the last size where nothing is said
    };
    /// How a file is written. A command's own words win.
    struct file_form {
        std::string style{};  ///< export style; empty: the command's default
        /// What the runtime reads beside ONNX's operators on floats and pairs, as styles of export say what they write: `functions`,
        /// `integer_operators`, or a domain of operators. Unset: everything.
        std::optional<std::set<std::string_view>> reads{};
        static constexpr std::string_view functions = "functions", integer_operators = "integer operators";
        bool inlined = false;             ///< export_options::inlined
        bool wide_pairs = true;           ///< not export_options::pairs_of_bytes_alone
        bool guards = true;               ///< export_options::guards
        bool dynamic_quantize = false;    ///< export_options::dynamic_quantize
        bool signed_activations = false;  ///< int8 activations are int8 codes, not uint8
    };
    std::string name;
    std::map<std::string, formats> operators;
    /// From "int8_weights": "signed" or "unsigned": exports write all int8 weights as int8, or as uint8 (export.hpp, int8_codes), and none
    /// is made pair-safe. Neither: "pair_safe".
    bool signed_int8 = false, unsigned_int8 = false;
    /// What a layer with weights may have together, activation and weight (fp32: none), where lists alone say too much. Empty: everything.
    std::vector<std::pair<qk::format, qk::format>> pairs{};
    bool symmetric_activations = false, symmetric_weights = false;  ///< integers have zero points in the middle alone
    bool power_of_two = false;                                      ///< integers of 8 bits have scales that are powers of two
    bool one_static_scale = false;                                  ///< an activation in integers has one scale, known beforehand
    bool fused_outputs = false;  ///< a layer with weights runs together with the Add and the activation behind it (resolve.hpp, rule 7)
    std::optional<std::set<std::string>> per_channel{};  ///< types whose weights may have a scale for each channel; unset: all
    std::vector<block_rule> blocks{};
    std::optional<qk::scale_rule> scale_rule{};  ///< of MX blocks for which nobody names one
    std::optional<placement> where{};            ///< where nobody names one
    std::string activation{}, weight{}, bias{};  ///< formats where nobody names any
    file_form file{};

    /// Is true when a layer of that type may have these formats (nullptr: float32). Integers compare by width and signedness alone.
    bool allows(const std::string& op_type, const qk::format* activation, const qk::format* weight) const;
    /// Fills in what the rules say where a precision leaves it open.
    void complete(precision& what, const std::string& op_type, bool weight) const;
    /// Returns why a layer of that type cannot run, the end of a sentence that begins with the profile's name; empty if it can. `dynamic`:
    /// its activations have scales from each run.
    std::string obstacle(const std::string& op_type, const std::vector<precision>& activations, const precision* weight,
                         bool dynamic) const;
};

/// Returns the names of the built-in profiles.
std::vector<std::string> builtin_target_names();

}  // namespace qk::graph
