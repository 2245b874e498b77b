// SPDX-License-Identifier: Apache-2.0
// Defines what the evaluator knows of an operator: its entry in the table, and the view of one node's call that its function receives.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/model/operator_name.hpp"
#include "qk/graph/base/tensor.hpp"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace qk::graph {

/// A node as operators see it: attributes by name, and the version of its domain that the model imports. Every getter names the node in its
/// errors. Attributes of a function body that refer to the function's are already replaced by their values.
class node_view {
  public:
    node_view(const onnx::NodeProto& proto, int version) : proto_(&proto), version_(version) {}
    const onnx::NodeProto& proto() const { return *proto_; }
    int version() const { return version_; }  ///< opset version of this node's domain in the model
    std::string_view op_type() const;
    std::string_view name() const;

    bool has(std::string_view attribute) const;
    std::int64_t get_int(std::string_view attribute, std::int64_t otherwise) const;
    float get_float(std::string_view attribute, float otherwise) const;
    std::string get_string(std::string_view attribute, std::string_view otherwise) const;
    std::vector<std::int64_t> get_ints(std::string_view attribute, std::vector<std::int64_t> otherwise = {}) const;
    std::vector<float> get_floats(std::string_view attribute, std::vector<float> otherwise = {}) const;
    std::vector<std::string> get_strings(std::string_view attribute) const;
    tensor get_tensor(std::string_view attribute) const;                  ///< error if absent
    const onnx::GraphProto& get_graph(std::string_view attribute) const;  ///< error if absent

    /// Throws error: "node 'conv1' (Conv): <what>".
    [[noreturn]] void fail(const std::string& what) const;

  private:
    const onnx::AttributeProto* find(std::string_view attribute) const;
    const onnx::NodeProto* proto_;
    int version_;
};

inline operator_name operator_of(const node_view& n) { return operator_name(n.op_type()); }

class op_context;

/// Holds work that is done once for a node (weights packed, primitives built) for all runs. Many threads call run at once, so it is const.
class prepared_op {
  public:
    virtual ~prepared_op() = default;
    virtual void run(op_context& call) const = 0;
};

/// One call of one node. Inputs are read; outputs are made with output() or set_output().
class op_context {
  public:
    using subgraph_runner = std::function<std::vector<tensor>(const onnx::GraphProto&, std::span<const tensor>)>;

    op_context(const node_view& node, std::span<const tensor> inputs, std::span<tensor> outputs, allocator& memory,
               const subgraph_runner& subgraphs)
        : node_(&node), inputs_(inputs), outputs_(outputs), memory_(&memory), subgraphs_(&subgraphs) {}

    const node_view& node() const { return *node_; }
    [[noreturn]] void fail(const std::string& what) const { node_->fail(what); }

    std::size_t input_count() const { return inputs_.size(); }
    bool has_input(std::size_t i) const { return i < inputs_.size() && !inputs_[i].empty(); }
    /// Returns input i. Fails with the node's name if the model leaves it out.
    const tensor& input(std::size_t i) const {
        if (!has_input(i)) fail_without_input(i);
        return inputs_[i];
    }

    std::size_t output_count() const { return outputs_.size(); }
    /// Is true when the model names output i and something may read it.
    bool wants(std::size_t i) const { return i < outputs_.size(); }
    /// Makes output i with uninitialised elements. An output that is not wanted gets a scratch tensor.
    tensor& output(std::size_t i, data_type type, dims shape);
    /// Makes output i share the memory of an existing tensor (Reshape, Identity).
    tensor& set_output(std::size_t i, tensor value);
    /// Returns uninitialised working memory that lives as long as the tensor.
    tensor scratch(data_type type, dims shape);
    /// Returns this call with other inputs and outputs, for an operator that is computed by another operator's function.
    op_context with(std::span<const tensor> inputs, std::span<tensor> outputs) const {
        return {*node_, inputs, outputs, *memory_, *subgraphs_};
    }
    /// Also replaces the node, so that the call reads another operator's attributes or version.
    op_context with(const node_view& node, std::span<const tensor> inputs, std::span<tensor> outputs) const {
        return {node, inputs, outputs, *memory_, *subgraphs_};
    }
    /// Runs a graph attribute (If, Loop, Scan) on the given inputs. The graph also sees the values of the outer graphs by name.
    std::vector<tensor> run_subgraph(const onnx::GraphProto& graph, std::span<const tensor> inputs) { return (*subgraphs_)(graph, inputs); }

  private:
    [[noreturn]] void fail_without_input(std::size_t i) const;

    const node_view* node_;
    std::span<const tensor> inputs_;
    std::span<tensor> outputs_;
    allocator* memory_;
    const subgraph_runner* subgraphs_;
    tensor discarded_;
};

/// What `prepare` receives: the node, and its inputs that are constants of the model. The other inputs are empty tensors.
struct prepare_context {
    const node_view& node;
    std::span<const tensor> constants;
};

namespace ops {
class op_body;
class walk_call;
}  // namespace ops

/// What the walk (walk/walk.hpp) does at a node.
struct walk_rule {
    void (*follow)(ops::walk_call&) = nullptr;  ///< says of the outputs what follows from the inputs; nullptr: nothing
    unsigned sizes = 0;                         ///< bits of inputs that may hold numbers of samples: shapes, not values to compute with
    unsigned numbers = 0;  ///< bits of inputs that may hold which sample it is, 0 where it runs alone: the rule heeds it
};

namespace ops {

/// What planners, exporters and the evaluator ask of an operator. A row has the sum of what holds for it.
enum trait : unsigned {
    layer = 1,                  ///< multiplies weights or activations
    neighbour = 1 << 1,         ///< has an integer kernel in runtimes, of activations
    clamps = 1 << 2,            ///< fused into the node before it
    mover = 1 << 3,             ///< gives elements of input 0, or the largest of some; formats propagate through it
    exact = 1 << 4,             ///< one correctly rounded operation, a choice among inputs, or a whole number: every runtime gives the same
    reckons = 1 << 5,           ///< shapes are reckoned with it: of its numbers it makes one that is asked for
    moves_channels = 1 << 6,    ///< the result has channels elsewhere than its input, or none
    of_pictures = 1 << 7,       ///< reads N,C,H,W
    makes_codes = 1 << 8,       ///< gives codes of numbers that it rounds
    one_by_one = 1 << 9,        ///< element by element of input 0: any order of elements will do
    pairwise = 1 << 10,         ///< element by element of two inputs of one shape, or of one and a scalar
    random = 1 << 11,           ///< no function of its inputs
    chooses = 1 << 12,          ///< gives one of its inputs' values at each place: a constant among them is a bound or a table
    reshapes = 1 << 13,         ///< gives the elements of input 0 in their order, under another shape
    keeps_all = 1 << 14,        ///< gives each element of input 0 once: reshaped, turned, or in another type
    recurrent = 1 << 15,        ///< walks along time with weights W and R, its inputs 1 and 2
    biased = 1 << 16,           ///< input 2 is a bias
    sums_axes = 1 << 17,        ///< a layer whose results are sums over axes of input 0, so that what it reads can be taken apart
    reduces = 1 << 18,          ///< takes axes together, which `keepdims` keeps or drops
    measures = 1 << 19,         ///< its result follows from the lengths of input 0 alone
    picks_rows = 1 << 20,       ///< reads input 0 as a table of rows
    channels_second = 1 << 21,  ///< input 0 has its channels on axis 1, whatever its rank
    repeats = 1 << 22,          ///< gives the values of input 0 at their places, perhaps in another type or rounded
    joins = 1 << 23,            ///< its inputs stand behind one another in its result
    adds = 1 << 25,             ///< the sum of two inputs
    finds_nan = 1 << 26,        ///< a model that asks for NaN has an answer to them
    on_codes = 1 << 24,         ///< a quantizer, or computes with what one made
};

inline constexpr unsigned first_input = 1, all_inputs = ~0u, all_but_first = ~1u;

}  // namespace ops

/// Where the element type of an output comes from.
struct type_source {
    int like = 0;                              ///< the input that has it; -1: `type` is it
    data_type type = data_type::undefined;     ///< undefined: not known
    data_type (*turned)(data_type) = nullptr;  ///< what becomes of the input's type, where it is not kept
};
using type_rule = type_source (*)(const onnx::NodeProto&, int output);

/// How a layer sums products of its inputs 0 and 1 (its weights). An axis below 0 counts from the last.
struct product_axes {
    int sums = -1;            ///< the axis of input 0 that sums run along
    int in = -2, out = -1;    ///< axes of the weights: what meets an element of input 0, and what is made of it
    std::int64_t groups = 1;  ///< products beside each other, each of channels of its own
    bool windows = false;     ///< axes from 2 on are places of a picture, those of the weights taps
    bool transposed = false;  ///< weights have the inputs of all groups and the outputs of one; otherwise the other way round
};

/// How a node computes values N,C,H,W that lie channels last.
enum class layout_rule {
    plain,       ///< needs N,C,H,W
    unary,       ///< element by element of input 0: any order of elements will do
    scaled,      ///< unary if input 1 (a scale) is one value
    block_axis,  ///< blocks along attribute `axis`; along axis 1 a channels-last value is a matrix whose rows are cut into blocks
    by_channel,  ///< a channels-last value is a matrix with a column for each channel
    binary,      ///< element by element of two inputs of one shape, or of one and a scalar
    concat,      ///< along axis 1
    max_pool,
    average_pool,
    global_average,
    slice,  ///< starts, ends, axes, steps are inputs; axes are renumbered
    pad,    ///< pads are an input; axes are renumbered
};

struct op_facts {
    unsigned traits = 0;
    unsigned places = 0;        ///< bits of inputs that are no data but say where, how many or between what: indices, axes, sizes, bounds
    unsigned values = 0;        ///< bits of inputs whose values the result holds, some of them, added to others, scaled or bounded
    type_rule types = nullptr;  ///< of the outputs (types.hpp); nullptr: that of the first input
    int inputs = 1;             ///< that a node must have
    int outputs = 1;            ///< that a node must have
    unsigned pasts = 0;         ///< bits of inputs that hold what earlier runs made: outputs 1, 2, ... continue them, in their order
    int mask = -1;              ///< the input that is added to scores
    bool (*moves)(const onnx::NodeProto&) = nullptr;         ///< whether this node is a mover, where its attributes decide
    layout_rule (*layout)(const node_view&) = nullptr;       ///< nullptr: what one_by_one and pairwise say, otherwise plain
    product_axes (*axes)(const onnx::NodeProto&) = nullptr;  ///< of one product of two inputs; nullptr: it is none
    bool has(ops::trait t) const { return (traits & t) != 0; }
    bool is_place(int input) const { return is_bit(places, input); }
    /// Returns the output that holds the values of this input with more behind them; -1 if there is none.
    int continued_by(int input) const {
        if (has(ops::joins)) return 0;
        return is_bit(pasts, input) ? 1 + std::popcount(pasts & ((1u << input) - 1)) : -1;
    }
    /// Is true when a result holds the values of this input: what passes a mask on, or scores.
    bool passes(int input) const { return is_bit(values, input) || (has(ops::mover) && input == 0); }

  private:
    static bool is_bit(unsigned bits, int input) { return input >= 0 && (bits >> std::min(input, 31) & 1u) != 0; }
};

/// One line of the table. `since` is the first opset version that this entry implements. Of the entries with `since` <= the model's
/// version, find_op takes the one with the largest.
struct op_entry {
    std::string_view domain;  ///< "" is ai.onnx
    std::string_view name;
    int since;
    void (*run)(op_context&);
    std::unique_ptr<prepared_op> (*prepare)(const prepare_context&) = nullptr;  ///< nullptr, or a result of nullptr: run is used
    walk_rule walk = {};
    op_facts is = {};
    void (*body)(ops::op_body&) = nullptr;  ///< of a composite: makes the nodes of standard operators that it stands for (body.hpp)
};

/// Returns what holds for the operator of a node, whatever version the model imports; nothing for one that the table lacks.
const op_facts& facts_of(const onnx::NodeProto& n);
/// The same for an operator of ONNX by its name, as in "Conv=int8/int4".
const op_facts& facts_of_type(std::string_view op_type);

layout_rule layout_rule_of(const node_view& n, const op_facts& is);

/// Returns how a node sums; nullopt where it is no product of two inputs.
std::optional<product_axes> product_axes_of(const onnx::NodeProto& n);

/// Returns where the element type of a node's output comes from; nullopt where the operator is not known.
std::optional<type_source> type_source_of(const onnx::NodeProto& n, int output);

/// Returns whether a node quantizes, or computes with codes; also operators that are not run here.
bool works_on_codes(const onnx::NodeProto& n);
/// Returns whether the results of a node are no tensors but sequences of them. `takes_one`: it reads one.
bool makes_sequence(const onnx::NodeProto& n, bool takes_one);

/// Finds the entry of an operator in the table (ops/table.hpp). Returns nullptr when the operator or its version is unknown.
const op_entry* find_op(std::string_view domain, std::string_view name, int version);

}  // namespace qk::graph
