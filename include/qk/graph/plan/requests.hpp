// SPDX-License-Identifier: Apache-2.0
// What a user asks of a model's numbers: requests from a file, the command line or code. quantize.hpp turns them into a plan.
// docs/guide/plan.md.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qk/formats/format.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/semantics.hpp"

namespace qk::graph {

/// How an activation's range is chosen from what calibration saw. docs/reference/numerics.md, "Calibration".
enum class range_method : std::uint8_t { min_max, moving_average, percentile, layerwise_percentile, entropy, mse };

/// How a power-of-two scale is chosen from the scale that follows from the range.
enum class pow2_rule : std::uint8_t {
    non_overflow,  ///< the smallest power of two that does not clip (ceil)
    nearest,       ///< the nearest exponent; may clip (what Quark calls NonOverflow)
    min_mse,       ///< the best of five neighbouring exponents by squared error
};

/// How weights become codes: each rounded to the nearest; rounded by linear algebra so that the layer's output stays
/// (quantize/compensate.hpp); or with rounding learned, layer by layer, so that it stays (quantize/learning.hpp).
enum class weight_rounding : std::uint8_t { nearest, compensated, adaround, adaquant };

/// A format and everything else that may be requested about how a value is stored. What is not set follows the defaults of the value's
/// role: activations are affine, weights symmetric, with one scale for the tensor.
struct precision {
    qk::format format = fp32;                        ///< fp32: leave the value alone (an exclusion)
    std::optional<bool> symmetric{};                 ///< integers: zero point in the middle
    std::optional<bool> per_channel{};               ///< weights: a scale for each output channel
    std::optional<int> block_size{};                 ///< weights, integers and scaled floats: a scale for each run along the reduction axis
    std::optional<range_method> method{};            ///< activations; unset: the options' method
    std::optional<double> percentile{};              ///< per cent kept by `percentile`
    std::optional<pow2_rule> pow2{};                 ///< formats with power-of-two scales; unset: non_overflow
    std::optional<std::pair<float, float>> range{};  ///< given instead of calibrated
    std::vector<float> scale{};                      ///< given instead of computed: 1 value, or one a channel
    std::vector<std::int64_t> zero_point{};
    std::optional<qk::semantics> semantics{};    ///< unset: ocp, but for the scale rule
    std::optional<qk::scale_rule> scale_rule{};  ///< of blocks; unset: that of `semantics` if it is set, else default_scale_rule()
    std::optional<qk::scale_objective> scale_objective{};  ///< of scales that are searched; unset: that of `semantics`, else mse
    bool dynamic = false;                                  ///< activations: scale from each run's own value
    std::optional<weight_rounding> rounding{};             ///< weights; unset: the options' rounding
    friend bool operator==(const precision&, const precision&) = default;
};

/// Returns the rule by which the MX blocks of a model choose their scales where nobody names one: the best of the four on trained networks
/// (docs/results/scale_rules.md). What the codes mean is the same under each. Arrays are quantized by the standard's own text: floor.
scale_rule default_scale_rule(const qk::format& f);
/// Returns the semantics that a precision asks for.
qk::semantics semantics_of(const precision& p);

/// What a request refers to.
enum class scope : std::uint8_t {
    everything,    ///< the default, under every other request whatever their order
    op_type,       ///< every node of a type: "Conv", or as torch names it: "Conv2d"
    layer,         ///< a node by name, a glob ("layer1.*.conv?"), a module of torch, or a position
    group,         ///< nodes whose name is the prefix, or starts with it and a separator ("/", ".", ":", "_"), or a module of torch
    subgraph,      ///< every node on a path from node `name` to node `end`, both included
    tensor,        ///< a tensor by name or glob
    model_input,   ///< the model's input number `index`
    model_output,  ///< the model's output number `index`
    kv_cache,      ///< keys and values that a decoder keeps (layer_view::cached_tensors)
};

/// Which of a layer's values a request is for; a set of bits.
enum class role : std::uint8_t { none = 0, input = 1, output = 2, activation = 3, weight = 4, bias = 8, all = 15 };
constexpr role operator|(role a, role b) { return static_cast<role>(static_cast<int>(a) | static_cast<int>(b)); }
constexpr bool has(role set, role r) { return (static_cast<int>(set) & static_cast<int>(r)) != 0; }

struct request {
    qk::graph::scope scope = scope::everything;
    qk::graph::role role = role::activation;
    std::string name{};             ///< op type, layer, prefix, first node of a sub-graph, or tensor
    std::string end{};              ///< last node of a sub-graph
    int index = 0;                  ///< model_input, model_output; -1: the last, and so on
    std::optional<int> position{};  ///< layer: its place among the layers instead of a name; -1: the last, and so on
    precision what{};
    std::string origin{};               ///< where it was said: "plan.json:12", "--activation", "set_precision call 3"
    std::vector<std::string> beside{};  ///< op_type: the list of types that it comes from. The model need not have every type of a list
    bool quiet = false;                 ///< nobody typed it: no message where it has no effect
    bool of_choice = false;             ///< made from a choice without alternatives; a search reads the choice instead
};

/// Returns text for messages: "layer 'conv1' activation+weight".
std::string describe(const request& r);
const char* name_of(range_method m);
const char* name_of(pow2_rule r);
std::string name_of(role r);
/// Returns every method, in the order of their values.
std::vector<range_method> all_range_methods();
/// These invert name_of; they return nullopt for an unknown name.
std::optional<range_method> parse_range_method(std::string_view name);
std::optional<pow2_rule> parse_pow2_rule(std::string_view name);
std::optional<role> parse_role(std::string_view name);

/// Parses a format's text, with options, as a precision: "int8", "bfp:block=16,...". Throws error with the nearest names.
precision parse_precision(std::string_view text);

/// A list of requests in the order they were made, built by calls. Formats are given by name or by value.
/// Nothing is checked against a model here: names that match nothing are reported when a plan is made.
class precision_requests {
  public:
    /// Requests formats for everything that is quantized by default; either may be fp32.
    precision_requests& set_default(const precision& activation, const precision& weight);
    precision_requests& set_default(std::string_view activation, std::string_view weight);

    /// Requests formats for a layer, a glob of layers, or (prefix of several) a group. `parameters`: {"weight", F}, {"bias", F}.
    precision_requests& set_precision(std::string_view layer, std::string_view activation,
                                      std::initializer_list<std::pair<std::string_view, std::string_view>> parameters = {});
    precision_requests& set_precision(std::string_view layer, role values, const precision& what);
    precision_requests& set_group_precision(std::string_view prefix, role values, const precision& what);
    precision_requests& set_type_precision(std::string_view op_type, role values, const precision& what);
    precision_requests& set_subgraph_precision(std::string_view start, std::string_view end, role values, const precision& what);
    precision_requests& set_tensor_precision(std::string_view tensor, const precision& what);

    /// These request formats by position; nullopt skips one.
    precision_requests& set_model_input_precision(const std::vector<std::optional<std::string>>& formats);
    precision_requests& set_model_output_precision(const std::vector<std::optional<std::string>>& formats);

    /// Leaves a layer (or glob, or group) in float32.
    precision_requests& exclude(std::string_view layer);

    precision_requests& add(request r);
    const std::vector<request>& list() const { return list_; }
    bool empty() const { return list_.empty(); }

  private:
    std::vector<request> list_;
};

}  // namespace qk::graph
