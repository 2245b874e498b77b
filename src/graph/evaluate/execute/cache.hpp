// SPDX-License-Identifier: Apache-2.0
// Holds what programs of one network share: everything that is computed before a run and does not depend on its inputs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "graph/evaluate/execute/arena.hpp"
#include "graph/evaluate/execute/attention_unit.hpp"
#include "graph/evaluate/execute/conv_unit.hpp"
#include "graph/evaluate/execute/dense_unit.hpp"
#include "graph/evaluate/execute/network.hpp"

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

/// Constants, numbered quantizers, quantized weights and prepared operators that programs of one network share.
class cache {
  public:
    explicit cache(run_limits limits = {}) : body_steps(limits.body_steps), budget(std::make_shared<memory_budget>(limits.memory)) {}

    /// Returns a constant. A large one is read, or computed again, and lives only as long as the caller holds it.
    tensor constant(slot s) const;
    /// Returns a constant for a run and keeps it from now on. May be called from several threads.
    const tensor& kept_constant(slot s) const;
    data_type type_of(slot s) const { return at(s).type; }
    const dims& shape_of(slot s) const { return at(s).shape; }
    slot add_constant(tensor t);
    /// Adds a large constant without its value; `make` must return the same value each time.
    slot add_late_constant(data_type type, dims shape, std::function<tensor()> make);
    slot value_constant(const net_value& v);  ///< the slot of a constant value of a network
    /// Returns the source that a large constant of the network is read from; null for other constants.
    source_pointer source_of(slot s) const { return at(s).source; }
    /// Returns the constant of which this matrix is the transpose; no_slot if there is none.
    slot turned_from(slot s) const { return at(s).turned_from; }
    void set_turned_from(slot s, slot from) { constants_[static_cast<std::size_t>(-2 - s)].turned_from = from; }
    bool is_late(slot s) const { return s < no_slot && at(s).make != nullptr; }
    int intern(const quantizer& q);
    const quantizer& quantizer_at(int id) const { return quantizers_[static_cast<std::size_t>(id)]; }
    slot quantized_constant(slot s, int quantizer_id);
    /// Replaces a constant under a quantizer by `value` under it, for weights that were rounded another way.
    void hold(slot s, int quantizer_id, const tensor& value);
    const quantizer* quantizer_of_constant(slot s) const;  ///< that made it, or null
    void set_quantizer_of_constant(slot s, int quantizer_id) { quantizer_of_constant_[s] = quantizer_id; }
    std::size_t bytes() const { return bytes_; }

    std::unordered_map<std::vector<int>, std::vector<slot>, slots_hash> folded;                     ///< outputs of nodes of constants
    std::unordered_map<std::vector<int>, std::shared_ptr<const prepared_op>, slots_hash> prepared;  ///< by node and constant inputs

    std::unordered_map<std::vector<int>, std::shared_ptr<const conv_unit>, slots_hash> units;  ///< by nodes and constant inputs
    std::unordered_map<std::vector<int>, std::shared_ptr<const dense_unit>, slots_hash> dense;

    value_products products;

    bool plain_kernels = false;   ///< no units: every node runs its own operator
    bool packed_weights = false;  ///< products keep the weights under a quantizer as codes
    std::uint64_t body_steps;     ///< most steps inside subgraphs in one run
    std::shared_ptr<memory_budget> budget;

    /// A number for a node that is the same in every program.
    int node_number(const net_node& n) { return node_numbers_.try_emplace(&n, static_cast<int>(node_numbers_.size())).first->second; }

  private:
    struct entry {
        data_type type = data_type::undefined;
        dims shape;
        std::function<tensor()> make;  ///< of a large constant; else empty
        source_pointer source;
        slot turned_from = no_slot;
        mutable tensor value;  ///< empty for a large constant until a run reads it
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
