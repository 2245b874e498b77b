// SPDX-License-Identifier: Apache-2.0
// What programs of one network share: everything that is computed before a run and does not depend on its inputs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "qk/graph/evaluate/execute/arena.hpp"
#include "qk/graph/evaluate/execute/attention_unit.hpp"
#include "qk/graph/evaluate/execute/conv_unit.hpp"
#include "qk/graph/evaluate/execute/dense_unit.hpp"
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

    /// A constant for as long as the caller holds it: a large one is read, or computed again.
    tensor constant(slot s) const;
    /// The same for a run, and kept from now on. From several threads.
    const tensor& kept_constant(slot s) const;
    data_type type_of(slot s) const { return at(s).type; }
    const dims& shape_of(slot s) const { return at(s).shape; }
    slot add_constant(tensor t);
    /// Of a large one only how it is made, the same each time.
    slot add_late_constant(data_type type, dims shape, std::function<tensor()> make);
    slot value_constant(const net_value& v);  ///< the slot of a constant value of a network
    /// Where a large constant of the network comes from, as long as no run has read all of it; null: it comes from elsewhere.
    source_pointer source_of(slot s) const { return at(s).source; }
    /// A matrix that is another constant transposed. no_slot: it is not.
    slot turned_from(slot s) const { return at(s).turned_from; }
    void set_turned_from(slot s, slot from) { constants_[static_cast<std::size_t>(-2 - s)].turned_from = from; }
    bool is_late(slot s) const { return at(s).make != nullptr; }
    int intern(const quantizer& q);
    const quantizer& quantizer_at(int id) const { return quantizers_[static_cast<std::size_t>(id)]; }
    slot quantized_constant(slot s, int quantizer_id);
    /// From now on a constant under this quantizer is that value under it (weights that were rounded another way).
    void hold(slot s, int quantizer_id, const tensor& value);
    const quantizer* quantizer_of_constant(slot s) const;  ///< under which it lies, or null
    void set_quantizer_of_constant(slot s, int quantizer_id) { quantizer_of_constant_[s] = quantizer_id; }
    std::size_t bytes() const { return bytes_; }

    std::unordered_map<std::vector<int>, std::vector<slot>, slots_hash> folded;                     ///< outputs of nodes of constants
    std::unordered_map<std::vector<int>, std::shared_ptr<const prepared_op>, slots_hash> prepared;  ///< by node and constant inputs

    std::unordered_map<std::vector<int>, std::shared_ptr<const conv_unit>, slots_hash> units;  ///< by nodes and constant inputs
    std::unordered_map<std::vector<int>, std::shared_ptr<const dense_unit>, slots_hash> dense;

    value_products products;

    bool plain_kernels = false;  ///< no units: every node by its own operator
    std::uint64_t body_steps;    ///< most steps inside subgraphs in one run
    std::shared_ptr<memory_budget> budget;

    /// A number for a node that is the same in every program.
    int node_number(const net_node& n) { return node_numbers_.try_emplace(&n, static_cast<int>(node_numbers_.size())).first->second; }

  private:
    struct entry {
        data_type type = data_type::undefined;
        dims shape;
        std::function<tensor()> make;  ///< of a large one
        source_pointer source;
        slot turned_from = no_slot;
        mutable tensor value;  ///< of a large one, once a run has read it
        mutable std::once_flag kept;
    };
    const entry& at(slot s) const { return constants_[static_cast<std::size_t>(-2 - s)]; }
    std::deque<entry> constants_;
    std::deque<quantizer> quantizers_;
    std::unordered_multimap<std::size_t, int> quantizer_ids_;
    std::unordered_map<const net_value*, slot> value_slots_;
    std::map<std::pair<slot, int>, slot> quantized_;
    std::unordered_map<slot, int> quantizer_of_constant_;
    std::unordered_map<const net_node*, int> node_numbers_;
    std::size_t bytes_ = 0;
};

}  // namespace qk::graph::execute
