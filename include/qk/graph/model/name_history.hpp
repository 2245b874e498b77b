// SPDX-License-Identifier: Apache-2.0
// Names of a model's file that folding removed, and what replaces them: users know the names of their file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qk::graph {

class model;

/// How close a successor is to the name that it follows.
enum class bond : std::uint8_t {
    place,  ///< the same place in the network: weights that were multiplied, the tensor behind a folded node
    part,   ///< the name was merged with others: a parameter of a BatchNormalization, a shape
};

/// What a tensor or a node of the file has become.
struct successor {
    std::string name;
    bool is_node = false;  ///< `name` is a node's; otherwise a tensor's
    bond how = bond::place;
    std::string why{};  ///< "BatchNormalization 'bn1' was folded into 'conv1'"
    /// For weights and biases, what each output channel was multiplied by. Empty: the values did not change so simply, or not at all.
    std::vector<double> factor{};
};

/// A node that is no longer there.
struct folded_node {
    std::string op_type;
    std::vector<successor> became;
};

/// What folding passes did to names. A model carries its own (model::history); every pass adds to it.
class name_history {
  public:
    void add_tensor(const std::string& name, successor to) { tensors_[name].push_back(std::move(to)); }
    void add_node(const std::string& name, const std::string& op_type, successor to);

    const std::map<std::string, std::vector<successor>, std::less<>>& tensors() const { return tensors_; }
    const std::map<std::string, folded_node, std::less<>>& nodes() const { return nodes_; }

  private:
    std::map<std::string, std::vector<successor>, std::less<>> tensors_;
    std::map<std::string, folded_node, std::less<>> nodes_;
};

/// Returns what replaces a tensor of the file in `m`; passes that followed one another count as one step. A tensor that several nodes read
/// may have several successors, and may exist still. Empty: it has no successor.
std::vector<successor> successors_of_tensor(const model& m, std::string_view name);
/// Returns what replaces a node of the file, by the same rules. A node of constants became tensors.
std::vector<successor> successors_of_node(const model& m, std::string_view name);

/// Returns whether the model has the tensor now: an input, an initializer, or what a node makes.
bool has_tensor(const model& m, std::string_view name);
/// Returns every tensor that a request may name: those of the network, then those of the file that folding removed.
std::vector<std::string> tensor_names(const model& m);
/// Returns every node that a request may name, in the same order.
std::vector<std::string> node_names(const model& m);

}  // namespace qk::graph
