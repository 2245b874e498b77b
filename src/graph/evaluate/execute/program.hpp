// SPDX-License-Identifier: Apache-2.0
// A program: one or several plans of a network as a list of steps in which every distinct value is computed once.
//
// A slot is a value under a given set of upstream quantizers. Building a program for plans P1, P2, ... walks the network once for each
// plan; a step that an earlier plan already has (same node, same input slots) is not added again. Constants are folded while building:
// fake-quantized weights and everything computed from constants alone exist once for all programs of a cache.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/evaluate/execute/cache.hpp"
#include "graph/evaluate/execute/conv_unit.hpp"
#include "graph/evaluate/execute/dense_unit.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/network.hpp"
#include "qk/graph/plan/device_layer.hpp"

namespace qk::graph::execute {

struct program;
class row_unit;

struct step {
    const net_node* node = nullptr;  ///< null: a quantizer
    int quantizer = -1;              ///< of the first result, for a quantizer or a DequantizeLinear
    std::vector<slot> in, out;
    std::vector<slot> release;  ///< slots whose last reader is this step
    layout_rule layout = layout_rule::plain;
    std::shared_ptr<const conv_unit> unit;            ///< `node` is its Conv; `in` are the Conv's inputs and the residual
    std::shared_ptr<const dense_unit> dense;          ///< `node` is its MatMul or Gemm; `in` are x, weights, bias
    std::shared_ptr<const attention_unit> attention;  ///< `node` is its last node; `in` are its inputs()
    const value_products* products = nullptr;         ///< `node` is a MatMul that may use them
    std::shared_ptr<const device_layer> device;       ///< `in` are x, weights, bias
    const net_node *add = nullptr, *relu = nullptr;
    std::shared_ptr<const row_unit> together;  ///< may run this step and its later members as one
    bool is_sum = false;                       ///< `node` is an Add, perhaps with a Relu behind it
    bool only_for_sums = false;                ///< a quantizer that only sums read: they round its input themselves
    std::shared_ptr<const prepared_op> prepared;
    source_pointer rows;                           ///< `node` is a Gather that takes rows of this constant, which is not read as a whole
    std::vector<std::unique_ptr<program>> bodies;  ///< the node's subgraphs, in their order
    bool is_layer = false;                         ///< Conv, ConvTranspose, Gemm, MatMul: what a search counts
};

struct program {
    struct candidate {
        std::vector<slot> outputs;
        int after = -1;          ///< step after which the outputs exist
        std::size_t layers = 0;  ///< layer steps that this plan alone would run
    };
    const network* net = nullptr;
    cache* shared = nullptr;
    std::vector<step> steps;
    std::vector<candidate> candidates;
    std::vector<slot> input_slots;
    int slot_count = 0;
    std::size_t layers = 0;  ///< layer steps in all
};

/// Builds the program of some plans. `whole` keeps every value observable: no step may absorb another one.
std::unique_ptr<program> make_program(const network& net, cache& shared, std::span<const precision_plan* const> plans, bool whole = false);

/// Receives the outputs of a candidate, in the order of the network's outputs. They may be kept, but not written to.
using deliver = std::function<void(std::size_t candidate, std::span<const tensor> outputs)>;
struct observe_value {
    std::function<void(const std::string& name, const tensor& value)> see;
    bool any_order = false;  ///< elements may come in another order than the shape says, which saves conversions
};

/// Runs all steps for one set of inputs. Re-entrant if each thread passes its own memory. `body_steps` is null, or in a subgraph's run the
/// step counter of the run that it belongs to.
void run_program(const program& p, std::span<const tensor> inputs, allocator& memory, const deliver& out, const observe_value& observe = {},
                 std::uint64_t* body_steps = nullptr);

}  // namespace qk::graph::execute
