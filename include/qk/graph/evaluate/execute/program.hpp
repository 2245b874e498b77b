// SPDX-License-Identifier: Apache-2.0
// One or several plans of a network as a list of steps in which every distinct value is computed once.
//
// A slot is a value under a given set of upstream quantizers. Building a program for plans P1, P2, ... walks the network once for
// each plan; a step that an earlier plan already has (same node, same input slots) is not added again. Constants are folded while
// building: fake-quantized weights and everything computed from constants alone exist once for all programs of a cache.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "qk/graph/evaluate/execute/arena.hpp"
#include "qk/graph/evaluate/execute/conv_unit.hpp"
#include "qk/graph/evaluate/execute/dense_unit.hpp"
#include "qk/graph/evaluate/execute/layout_rules.hpp"
#include "qk/graph/evaluate/execute/network.hpp"

namespace qk::graph::execute {

/// Slot numbers: 0 and up are computed when running; -1 is "left out"; -2 and below are constants of the cache.
using slot = int;
inline constexpr slot no_slot = -1;

struct slots_hash {
    std::size_t operator()(const std::vector<int>& v) const noexcept {
        std::size_t h = v.size();
        for (const int x : v) h = (h ^ static_cast<std::size_t>(static_cast<unsigned>(x))) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
        return h;
    }
};

/// What programs of one network share: constants, quantizers by number, quantized weights, prepared operators.
class cache {
  public:
    explicit cache(run_limits limits = {}) : body_steps(limits.body_steps), budget(std::make_shared<memory_budget>(limits.memory)) {}

    const tensor& constant(slot s) const { return constants_[static_cast<std::size_t>(-2 - s)]; }
    slot add_constant(tensor t);
    slot value_constant(const net_value& v);               ///< the slot of a constant value of a network
    int intern(const quantizer& q);
    const quantizer& quantizer_at(int id) const { return quantizers_[static_cast<std::size_t>(id)]; }
    slot quantized_constant(slot s, int quantizer_id);
    const quantizer* quantizer_of_constant(slot s) const;  ///< under which it lies, or null
    void set_quantizer_of_constant(slot s, int quantizer_id) { quantizer_of_constant_[s] = quantizer_id; }
    std::size_t bytes() const { return bytes_; }

    std::unordered_map<std::vector<int>, std::vector<slot>, slots_hash> folded;                   ///< outputs of nodes of constants
    std::unordered_map<std::vector<int>, std::shared_ptr<const prepared_op>, slots_hash> prepared;  ///< by node and constant inputs

    std::unordered_map<std::vector<int>, std::shared_ptr<const conv_unit>, slots_hash> units;      ///< by nodes and constant inputs
    std::unordered_map<std::vector<int>, std::shared_ptr<const dense_unit>, slots_hash> dense;

    bool plain_kernels = false;  ///< no units: every node by its own operator
    std::uint64_t body_steps;    ///< most steps inside subgraphs in one run
    std::shared_ptr<memory_budget> budget;

    /// A number for a node that is the same in every program.
    int node_number(const net_node& n) { return node_numbers_.try_emplace(&n, static_cast<int>(node_numbers_.size())).first->second; }

  private:
    std::deque<tensor> constants_;
    std::deque<quantizer> quantizers_;
    std::unordered_multimap<std::size_t, int> quantizer_ids_;
    std::unordered_map<const net_value*, slot> value_slots_;
    std::map<std::pair<slot, int>, slot> quantized_;
    std::unordered_map<slot, int> quantizer_of_constant_;
    std::unordered_map<const net_node*, int> node_numbers_;
    std::size_t bytes_ = 0;
};

struct program;

struct step {
    const net_node* node = nullptr;  ///< null: a quantizer
    int quantizer = -1;
    std::vector<slot> in, out;
    std::vector<slot> release;       ///< last used here
    layout_rule layout = layout_rule::plain;
    std::shared_ptr<const conv_unit> unit;  ///< `node` is its Conv; `in` are the Conv's inputs and the residual
    std::shared_ptr<const dense_unit> dense;  ///< `node` is its MatMul or Gemm; `in` are x, weights, bias
    const net_node *add = nullptr, *relu = nullptr;
    std::shared_ptr<const prepared_op> prepared;
    std::vector<std::unique_ptr<program>> bodies;  ///< of the node's subgraphs, in their order
    bool is_layer = false;           ///< Conv, ConvTranspose, Gemm, MatMul: what a search counts
};

struct program {
    struct candidate {
        std::vector<slot> outputs;
        int after = -1;         ///< step after which the outputs exist
        std::size_t layers = 0;  ///< layer steps that this plan alone would run
    };
    const network* net = nullptr;
    cache* shared = nullptr;
    std::vector<step> steps;
    std::vector<candidate> candidates;
    std::vector<slot> input_slots;
    std::vector<slot> unused;  ///< slots that nothing reads: released at once
    int slot_count = 0;
    std::size_t layers = 0;    ///< layer steps in all
};

/// `whole`: keep every value observable (no step may swallow another).
std::unique_ptr<program> make_program(const network& net, cache& shared, std::span<const precision_plan* const> plans, bool whole = false);

/// Outputs of a candidate, in the order of the network's outputs. They may be kept, but not written to.
using deliver = std::function<void(std::size_t candidate, std::span<const tensor> outputs)>;
struct observe_value {
    std::function<void(const std::string& name, const tensor& value)> see;
    bool any_order = false;  ///< elements may come in another order than the shape says: spares a conversion for each value
};

/// Runs all steps for one set of inputs. Re-entrant: each thread brings its own memory. `body_steps`: of a subgraph's run, the count
/// of the run that it belongs to.
void run_program(const program& p, std::span<const tensor> inputs, allocator& memory, const deliver& out, const observe_value& observe = {},
                 std::uint64_t* body_steps = nullptr);

}  // namespace qk::graph::execute
