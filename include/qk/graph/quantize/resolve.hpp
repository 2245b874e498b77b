// SPDX-License-Identifier: Apache-2.0
// Resolves requests against a model: which precision every edge gets, from which request, and what became of each request.
//
// Rules, in the order in which they decide:
//   1. Every other request wins over the default (scope::everything). Among other requests the latest wins, whatever its scope.
//   2. By default the inputs and weights of compute layers (Conv, ConvTranspose, Gemm, MatMul) are quantized. With integer formats so are
//      the inputs of Add, AveragePool, GlobalAveragePool and Concat of activations whose result a quantized layer reads, so that integer
//      kernels can follow one another. Nothing is quantized between a node and a Relu or Clip behind it. The model's outputs stay float32.
//   3. A layer's activation format governs its inputs. `output` governs its outputs; `activation` governs them too where no reader has a
//      format of its own.
//   4. Elementwise formats propagate through operators that only move data, which then share one scale.
//   5. A tensor whose readers ask for different formats gets the widest of them; with `dual` each reader gets its own. A reader in float32
//      reads the tensor unquantized.
//   6. The output of a Conv of 8-bit integers is quantized for all its readers, because integer kernels write integers. This holds unless a
//      reader has a request of its own, or the tensor is an output of the model.
//   7. With `fused_outputs` rule 6 does not hold, and of what an Add adds by default the operand that a layer computes for it alone (of two
//      the later one) is not quantized: the Add runs with that layer, and the pair of the other operand is what it waits for.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

/// Which edges a default request means.
enum class placement : std::uint8_t {
    layers,  ///< rule 2
    all,     ///< every float activation that a node reads, and the model's outputs; none between a node and its Relu or Clip
    every,   ///< as `all`, and between a node and its Relu or Clip too
};

enum class approach : std::uint8_t {
    static_ranges,  ///< activations calibrated
    dynamic,        ///< activations' scales from each run's own values
    weight_only,    ///< activations float32 unless a request names them
};

struct resolve_options {
    placement where = placement::layers;
    approach how = approach::static_ranges;
    bool dual = false;
    bool fused_outputs = false;  ///< rule 7
};

/// What became of a request, or what happened that nobody asked for.
struct plan_note {
    enum class kind : std::uint8_t {
        unmatched,      ///< names nothing
        overridden,     ///< a later request of another scope won
        contradictory,  ///< the same thing was asked twice, differently; the later one won
        boundary,       ///< a shared tensor took a wider format
        propagated,     ///< reached a tensor through data movement
        moved,          ///< stands behind a Relu or Clip instead of before it
        unrealised,     ///< could not be done
        adjusted,       ///< a scale was changed (bias overflow, tiny scale)
        left_out,       ///< outside the target profile
        renamed,        ///< names something that folding renamed or removed; counts for what that became
        absent,         ///< the model lacks an operator type of a list, and has another one of that list
        unchanged,      ///< the plan as a whole changes nothing
        tied,           ///< weights that another layer or a table of embeddings reads too
        embedding,      ///< a table of embeddings takes the weights' format in weight_only
        destroyed,      ///< little of a tensor's signal is left
        cache,          ///< a tensor that holds keys or values takes the format asked of the cache
        scaled,         ///< input channels were scaled against the weights (scale_channels.hpp)
        rotated,        ///< a residual stream was rotated into another basis (rotate.hpp)
        together,       ///< rows of the data are no samples by themselves, so they run together
        unused,         ///< an option changes nothing beside the others
        requantized,    ///< the model holds quantizers already
        recurrent,      ///< weights of LSTM, GRU or RNN take the weights' format, and what these nodes read stays float32
    };
    kind what = kind::unmatched;
    std::string subject;   ///< tensor, layer or request
    std::string text;      ///< one sentence
    std::string origin{};  ///< where the request was made
    int place = -1;        ///< the node that it is about, for a log in network order; -1: the model, its inputs, or none
    friend bool operator==(const plan_note&, const plan_note&) = default;
};
const char* name_of(plan_note::kind k);
/// Is true for notes that `strict` turns into errors, all but the overridden ones, and `strict_all`: something that was asked did not
/// happen as asked.
bool is_violation(const plan_note& n);
/// Is true for notes on requests that a later one overrides, as it should.
bool is_overridden(const plan_note& n);

/// The precision of one edge and why it has it.
struct edge_precision {
    const precision* what = nullptr;
    layer_view::part part = layer_view::part::input;
    int node = -1;                ///< the consumer; -1: the model's output
    int sequence = -1;            ///< position of the request; -1: the default
    bool automatic_bias = false;  ///< a bias that no request names; it follows its layer
    std::string why;
    std::string origin;
};

/// Names of the tensors that took the wider of two formats, by {format taken, format asked for}.
using widened_tensors = std::map<std::pair<std::string, std::string>, std::vector<std::string>>;

struct resolution {
    std::map<edge, edge_precision> edges;  ///< only those that are not float32, and automatic biases
    std::vector<plan_note> notes;          ///< in network order
    widened_tensors widened;
};

/// Resolves requests by the rules above, without side effects. The precisions in the result point into `requests`.
resolution resolve(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options);

}  // namespace qk::graph
