// SPDX-License-Identifier: Apache-2.0
// Requests and calibration become a precision plan, with a report of what every edge got and why. docs/guide/plan.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"
#include "qk/graph/quantize/target.hpp"

namespace qk::graph {

/// Scaling of a layer's input channels against its weights (scale_channels.hpp). It changes the model before anything is planned.
struct channel_scaling {
    enum class rule : std::uint8_t { none, smooth_quant, awq } how = rule::none;
    std::optional<double> alpha{};  ///< 0 to 1; unset: searched, for each group of layers that read one tensor
    bool any() const { return how != rule::none; }
};

/// Rotation of residual streams (learning.hpp). It changes the model before channels are scaled.
enum class stream_rotation : std::uint8_t { none, hadamard };

struct quantize_options {
    placement where = placement::layers;
    approach how = approach::static_ranges;
    bool dual = false;                            ///< a tensor may have two formats, one for each of its readers
    bool strict = false;                          ///< every violation (resolve.hpp) is an error, but for what a later request overrides
    bool strict_all = false;                      ///< that, too
    range_method method = range_method::min_max;  ///< for activations whose request names none
    bool best_method = false;                     ///< search/choose_method.hpp chooses `method` by measuring; a planner ignores this
    double percentile = 99.999;
    bool per_channel = true;                               ///< for integer weights whose request does not say
    std::optional<range_method> weight_method{};           ///< min_max or mse, for weights whose request names none
    bool unshifted = false;                                ///< signed weights have zero points of 0 alone, as accumulators need
    std::optional<qk::semantics> semantics{};              ///< for values whose request names none
    std::optional<qk::scale_rule> scale_rule{};            ///< for block formats whose request names neither rule nor semantics
    std::optional<qk::scale_objective> scale_objective{};  ///< likewise
    std::optional<target_profile> target{};
    weight_rounding rounding = weight_rounding::nearest;  ///< does not change the plan; pipeline::make_plan applies it to the model
    bool correct_bias = false;                            ///< likewise
    channel_scaling scaling{};
    stream_rotation rotation = stream_rotation::none;
    /// Is true when the model changes before it is planned.
    bool transforms() const { return scaling.any() || rotation != stream_rotation::none; }
    /// Returns how requests are resolved, by these options and the target's rules.
    resolve_options resolving() const {
        return {.where = where, .how = how, .dual = dual, .fused_outputs = target && target->fused_outputs};
    }
};

/// Returns a precision with the options, and the target's rules for an operator, in the places that it leaves open.
precision completed(precision what, const quantize_options& options, bool weight, const std::string& op_type = "");

/// One quantized edge in the report.
struct edge_report {
    graph::edge edge;
    std::string op_type;  ///< of the consumer; "" for a model output
    layer_view::part part = layer_view::part::input;
    quantizer how;
    value_range range{};       ///< calibrated or of the weights; {0, 0} where none was needed
    std::size_t elements = 0;  ///< of a weight or bias; of one observation of an activation; 0: unknown
    double sqnr = 0;           ///< decibels; weights exactly, activations as estimated from the histogram; NaN: unknown
    std::string why{};
    std::string origin{};
    std::string module{};  ///< of torch, that the consumer comes from (torch_names.hpp); empty: unknown
    /// Returns the consumer for a person: its name, and the module where that is another.
    std::string consumer_text() const;
};

/// How the methods for ranges compared, where one was chosen by measuring (search/choose_method.hpp).
struct method_choice {
    struct trial {
        range_method method = range_method::min_max;
        double metric = 0;
        double error = 0;  ///< mean squared error of the output against float32's
    };
    std::string metric;  ///< name
    std::size_t samples = 0;
    std::vector<trial> tried;
    std::size_t best = 0;
    range_method method() const { return tried[best].method; }
};

struct quantize_report {
    std::vector<plan_note> notes;    ///< in network order
    std::vector<edge_report> edges;  ///< quantized_edges() of the plan, in the same order
    widened_tensors widened;         ///< the tensors that notes of kind `boundary` are about, for boundary_line()
    std::optional<method_choice> method{};
    /// Bits of the weights and biases among the edges: at 32 bits, and as quantized with their scales. Each edge counts its constant.
    double float_bits = 0, quantized_bits = 0;
    /// Appends an edge and counts its bits.
    void add(edge_report line);
    /// Returns text for a log: a line for each note, the chosen method, then a line for each edge.
    std::string text() const;
};

struct quantize_result {
    precision_plan plan;
    quantize_report report;
    std::map<std::string, weight_rounding> rounding{};  ///< of layers whose request says so; others have the options'
};

/// Makes plans for one model. Keeps what is the same for every set of requests: the model's layers, quantized constants, chosen ranges.
/// Quantizes weights always from the model's own float values. Two threads must not use one planner at once.
class planner {
  public:
    /// The arguments must outlive the planner. `m` should have its constants folded. Without `seen` only formats that need no ranges,
    /// dynamic activations and weights can be planned. Reports describe the values of `reported`, or of `seen` without it; no plan depends
    /// on `reported`.
    explicit planner(const model& m, const calibration* seen = nullptr, const calibration* reported = nullptr);

    /// Makes a plan and its report. Without `detailed` the report has notes only, which is enough for search loops.
    quantize_result plan(const std::vector<request>& requests, const quantize_options& options = {}, bool detailed = true);

    const layer_view& layers() const { return layers_; }
    const calibration* seen() const { return seen_; }
    /// Returns the range that a precision asks for on a tensor: the given one, the calibrated one, or that of a constant's values. Throws
    /// an error if there is none.
    value_range range_for(const std::string& tensor, const precision& what, const quantize_options& options);

  private:
    class call;                                                               ///< one call of plan()
    const tensor_statistics* statistics_of(const std::string& tensor) const;  ///< nullptr: not seen
    struct constant_entry {
        precision what;
        operand_axes axes;
        quantizer how;
    };
    /// What a constant's values are, whatever format they get.
    struct constant_facts {
        value_range range;  ///< of the finite ones
        std::size_t size = 0, nan = 0, infinite = 0;
    };
    quantizer& constant_quantizer(const std::string& name, const precision& what, const operand_axes& axes);
    tensor constant(const std::string& name);  ///< as float32
    const constant_facts& facts_of(const std::string& name);
    const value_range* mask_before_softmax(const std::string& tensor);  ///< nullptr: it holds none

    const model* model_;
    const calibration *seen_, *reported_;
    layer_view layers_;
    std::map<std::string, tensor> values_;    ///< small constants as float32
    std::pair<std::string, tensor> largest_;  ///< the large constant that was used last
    std::map<std::string, std::vector<constant_entry>> constants_;
    std::map<std::string, std::vector<std::pair<range_options, value_range>>> ranges_;
    std::map<std::string, constant_facts> facts_;
    std::optional<std::map<std::string, value_range>> softmax_masks_;  ///< once asked for
};

/// Makes a plan and its report from requests and calibration in one call.
inline quantize_result quantize(const model& m, const precision_requests& requests, const calibration& seen,
                                const quantize_options& options = {}) {
    return planner(m, &seen).plan(requests.list(), options);
}

/// Returns every edge that a plan quantizes, in network order, the model's outputs last. Every count of "quantized edges" counts these.
std::vector<edge> quantized_edges(const precision_plan& plan, const model& m);
/// Returns the mean square of the values that calibration saw, from the histogram.
double mean_square(const tensor_statistics& s);
/// Makes the report's line of one edge, without `why`. `constant` is the value of a constant tensor, else nullptr.
edge_report describe_edge(const layer_view& layers, const edge& e, layer_view::part part, const quantizer& how, const calibration* seen,
                          const tensor* constant);
/// Makes the report of a plan that no planner made (a saved plan, or encodings). Every edge gets the same `why`.
quantize_report describe_plan(const layer_view& layers, const precision_plan& plan, const calibration* seen, const std::string& why);
/// Fills in the modules of torch that the edges' consumers come from.
void name_modules(quantize_report& report, const model& m);

/// Throws an error for the first note that is a violation of strict or strict_all.
void throw_violations(const quantize_report& report, const quantize_options& options);
/// Returns one sentence about all tensors that took the wider of two formats, with the option that keeps both. Empty when there are none.
std::string boundary_line(const widened_tensors& widened);

/// Makes a plan of quantizers by edge. Where all readers of a tensor agree, the tensor gets one entry instead.
precision_plan gather(std::map<edge, quantizer> chosen, const model& m);

/// What weights, biases and products cost under a plan. Bits of constants count each constant once, with the scales that are stored.
struct plan_cost {
    double weight_bits = 0;        ///< weights and biases under the plan
    double float_weight_bits = 0;  ///< the same in the model's own float types
    double bit_operations = 0;  ///< multiply-accumulates of one sample times activation bits times weight bits; needs shapes (calibration)
    double float_bit_operations = 0;
};
plan_cost cost_of(const layer_view& layers, const precision_plan& plan, const calibration* seen);
/// Returns the bits that a quantizer stores for so many elements, scales and zero points included.
double stored_bits(const quantizer& q, std::size_t elements);
/// Returns the multiply-accumulates of a compute node for one sample; 0 when shapes are not known.
double multiply_accumulates(const layer_view& layers, int node, const calibration* seen);

}  // namespace qk::graph
